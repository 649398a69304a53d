// SPDX-License-Identifier: MIT
/*
 * fault_fuzz_test.c - whatever the interface takes, and what it should not, at random, by four threads that share their descriptors:
 * structs that are right but for a field or two, wrong pointers and sizes, commands of io_uring, mappings, copies, forks, and
 * descriptors closed, duplicated and in sockets meanwhile. It has passed when nothing of it is left, and the log is clean.
 *
 * SITS_SEED repeats the choices, not how the threads met. SITS_FUZZ_OPS: how many for each thread.
 */
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "region_common.h"

#define NR_THREADS	4
#define NR_SLOTS	48
#define SECONDS_MAX	20	/* on a slow machine it does less */
#define LIMIT		"/sys/module/sits/parameters/region_limit_bytes"

static atomic_int slots[NR_SLOTS];	/* descriptors, -1: none */
static char pci_device[SITS_NAME_MAX] = "0000:00:00.0";
static char *user;			/* 16 pages */
static int garbage = -1;		/* a file */
static atomic_bool running = true;
static atomic_long nr_ops, nr_good;
static pthread_t threads[NR_THREADS];

struct fuzz {
	uint64_t state;
	struct io_uring ring;
	int copy;		/* a file to copy to and from mappings by, which gives no signals */
};

/* Source: Marsaglia 2003, "Xorshift RNGs", the triple 13, 7, 17. */
static uint64_t rnd(struct fuzz *f)
{
	f->state ^= f->state << 13;
	f->state ^= f->state >> 7;
	f->state ^= f->state << 17;
	return f->state;
}

static uint64_t below(struct fuzz *f, uint64_t n)
{
	return rnd(f) % n;
}

static bool one_in(struct fuzz *f, uint64_t n)
{
	return !below(f, n);
}

static uint64_t odd_number(struct fuzz *f)
{
	static const uint64_t some[] = {
		0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 512, 4095, 4096, 4097, 8192, 65535, 65536, 1 << 20,
		2 << 20, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000, ~0ull, ~0ull - 4095,
	};

	return one_in(f, 5) ? rnd(f) : some[below(f, sizeof(some) / sizeof(some[0]))];
}

static uint64_t odd_pointer(struct fuzz *f)
{
	switch (below(f, 6)) {
	case 0:
		return 0;
	case 1:
		return 0xffff888000000000ull;
	case 2:
		return (uintptr_t)user + 15 * PAGE + 4080;	/* runs into nothing */
	case 3:
		return 0x7fffffffe000ull;
	default:
		return (uintptr_t)user + below(f, 16 * PAGE);
	}
}

static int slot_fd(struct fuzz *f)
{
	return one_in(f, 30) ? (int)below(f, 80) - 5 : atomic_load(&slots[below(f, NR_SLOTS)]);
}

static void slot_put(struct fuzz *f, int fd)
{
	int old;

	if (fd < 0)
		return;
	old = atomic_exchange(&slots[below(f, NR_SLOTS)], fd);
	if (old >= 0)
		close(old);
}

/* --------------------------------------------------------------------------- ioctls */

union args {
	uint32_t size;
	uint32_t words[160];
	struct sits_get_info info;
	struct sits_region_create create;
	struct sits_region_facts facts;
	struct sits_region_import import;
	struct sits_region_seal seal;
	struct sits_device_allow allow;
	struct sits_dma_map dma_map;
	struct sits_dma_unmap dma_unmap;
	struct sits_weights_load load;
	struct sits_queue_create queue;
	struct sits_channel_create channel;
	struct sits_queue_facts queue_facts;
	struct sits_fetch fetch;
	struct sits_commit commit;
	struct sits_submit submit;
	struct sits_recv recv;
	struct sits_cancel cancel;
};

struct call {
	unsigned long cmd;
	size_t size;
	int fd_at;	/* of a descriptor that comes back; -1: none */
	bool sized;	/* begins with its size */
};

#define SIZED(cmd, type, fd_at) { cmd, sizeof(type), fd_at, true }
#define PLAIN(cmd, type) { cmd, sizeof(type), -1, false }

static const struct call device_calls[] = {
	SIZED(SITS_IOC_GET_INFO, struct sits_get_info, -1),
	SIZED(SITS_IOC_REGION_CREATE, struct sits_region_create, offsetof(struct sits_region_create, fd)),
	SIZED(SITS_IOC_REGION_INFO, struct sits_region_facts, -1),
	SIZED(SITS_IOC_REGION_IMPORT, struct sits_region_import, offsetof(struct sits_region_import, fd)),
	SIZED(SITS_IOC_REGION_SEAL, struct sits_region_seal, -1),
	SIZED(SITS_IOC_DEVICE_ALLOW, struct sits_device_allow, -1),
	SIZED(SITS_IOC_DMA_MAP, struct sits_dma_map, offsetof(struct sits_dma_map, fd_map)),
	SIZED(SITS_IOC_DMA_UNMAP, struct sits_dma_unmap, -1),
	SIZED(SITS_IOC_WEIGHTS_LOAD, struct sits_weights_load, -1),
	SIZED(SITS_IOC_QUEUE_CREATE, struct sits_queue_create, offsetof(struct sits_queue_create, fd)),
	SIZED(SITS_IOC_CHANNEL_OPEN, struct sits_channel_create, offsetof(struct sits_channel_create, fd)),
};

static const struct call other_calls[] = {
	SIZED(SITS_IOC_QUEUE_INFO, struct sits_queue_facts, -1),
	PLAIN(SITS_IOC_FETCH, struct sits_fetch),
	PLAIN(SITS_IOC_COMMIT, struct sits_commit),
	PLAIN(SITS_IOC_CLOSE_INTAKE, struct sits_cancel),
	PLAIN(SITS_IOC_SUBMIT, struct sits_submit),
	PLAIN(SITS_IOC_RECV, struct sits_recv),
	PLAIN(SITS_IOC_CANCEL, struct sits_cancel),
};

static void fill_region(struct fuzz *f, unsigned long cmd, union args *a)
{
	switch (cmd) {
	case SITS_IOC_REGION_CREATE:
		a->create.len_bytes = one_in(f, 4) ? (1 + below(f, 2)) * HUGE : (1 + below(f, 40)) * PAGE - below(f, 2);
		a->create.kind = SITS_KIND_PINNED + below(f, 3);
		a->create.flags = one_in(f, 6) ? below(f, 4) : 0;
		a->create.node = -1;
		a->create.fd_flags = O_CLOEXEC;
		memcpy(a->create.name, "fuzz", 5);
		break;
	case SITS_IOC_REGION_INFO:
		a->facts.fd = slot_fd(f);
		break;
	case SITS_IOC_REGION_IMPORT:
		a->import.from = 1 + below(f, 2);
		a->import.src_fd = a->import.from == SITS_IMPORT_USER ? -1 : slot_fd(f);
		a->import.fd_flags = O_CLOEXEC;
		if (a->import.from == SITS_IMPORT_USER) {
			a->import.addr = (uintptr_t)user + below(f, 8) * PAGE;
			a->import.len_bytes = (1 + below(f, 8)) * PAGE;
		}
		break;
	case SITS_IOC_REGION_SEAL:
		a->seal.fd = slot_fd(f);
		a->seal.flags = one_in(f, 3);
		break;
	case SITS_IOC_DEVICE_ALLOW:
		a->allow.fd = slot_fd(f);
		memcpy(a->allow.device, one_in(f, 2) ? "*" : pci_device, 13);
		a->allow.device[12] = '\0';
		break;
	case SITS_IOC_DMA_MAP:
		a->dma_map.fd = slot_fd(f);
		a->dma_map.flags = 1 + below(f, 3);
		memcpy(a->dma_map.device, pci_device, sizeof(a->dma_map.device));
		a->dma_map.segs = (uintptr_t)user;
		a->dma_map.nr_segs = 1024;
		break;
	case SITS_IOC_DMA_UNMAP:
		a->dma_unmap.fd_map = slot_fd(f);
		break;
	case SITS_IOC_WEIGHTS_LOAD:
		a->load.file_fd = one_in(f, 4) ? slot_fd(f) : garbage;
		a->load.region_fd = slot_fd(f);
		memcpy(a->load.key, "sits:fuzz", 10);
		break;
	}
}

static void fill_queue(struct fuzz *f, unsigned long cmd, union args *a)
{
	char name[8];

	snprintf(name, sizeof(name), "fuzz%u", (unsigned int)below(f, 3));
	switch (cmd) {
	case SITS_IOC_QUEUE_CREATE:
		a->queue.depth = 1 + below(f, 8);
		a->queue.per_client = 1 + below(f, a->queue.depth);
		a->queue.max_clients = 1 + below(f, 4);
		a->queue.mode = 0666;
		a->queue.chunk_backlog = 4096 << below(f, 4);
		a->queue.fd_flags = O_CLOEXEC;
		memcpy(a->queue.name, name, sizeof(name));
		break;
	case SITS_IOC_CHANNEL_OPEN:
		a->channel.arena_bytes = (1 + below(f, 16)) * PAGE;
		a->channel.fd_flags = O_CLOEXEC;
		memcpy(a->channel.queue, name, sizeof(name));
		break;
	case SITS_IOC_FETCH:
		a->fetch.addr = (uintptr_t)user;
		a->fetch.len = 8 * PAGE;
		a->fetch.flags = one_in(f, 8) ? 0 : SITS_FETCH_NONBLOCK;
		break;
	case SITS_IOC_COMMIT:
		a->commit.addr = (uintptr_t)user;
		break;
	case SITS_IOC_SUBMIT:
		a->submit.off = below(f, PAGE);
		a->submit.len = below(f, PAGE);
		a->submit.off_req = below(f, 512) * 8;
		a->submit.timeout_ms = one_in(f, 3) ? below(f, 50) : 0;
		break;
	case SITS_IOC_RECV:
		a->recv.len = PAGE;
		a->recv.flags = one_in(f, 8) ? 0 : SITS_RECV_NONBLOCK;
		break;
	case SITS_IOC_CANCEL:
		a->cancel.req = below(f, 20);
		break;
	}
}

static void spoil(struct fuzz *f, const struct call *c, union args *a)
{
	for (uint64_t n = below(f, 3); n; n--) {
		unsigned int word = below(f, c->size / 4);
		uint64_t v = one_in(f, 4) ? odd_pointer(f) : odd_number(f);

		a->words[word] = v;
		if (one_in(f, 3) && word % 2 == 0 && word + 1 < c->size / 4)
			a->words[word + 1] = v >> 32;
	}
	if (c->sized && one_in(f, 20))
		a->size = one_in(f, 2) ? c->size + 8 * below(f, 4) : odd_number(f);
}

static void prepare(struct fuzz *f, const struct call *c, union args *a)
{
	memset(a, 0, sizeof(*a));
	if (c->sized)
		a->size = c->size;
	fill_region(f, c->cmd, a);
	fill_queue(f, c->cmd, a);
	if (one_in(f, 2))
		spoil(f, c, a);
	/* What COMMIT points to. */
	if (c->cmd == SITS_IOC_COMMIT) {
		struct sits_commit_desc d = {
			.size = one_in(f, 20) ? odd_number(f) : sizeof(d), .flags = below(f, 2), .req = below(f, 20),
			.addr = one_in(f, 10) ? odd_pointer(f) : (uintptr_t)user, .len = below(f, PAGE),
			.status = one_in(f, 4) ? -(int)below(f, 140) : 0,
		};

		memcpy(user, &d, sizeof(d));
	}
}

static void op_ioctl(struct fuzz *f, bool device)
{
	const struct call *c = device ? &device_calls[below(f, sizeof(device_calls) / sizeof(device_calls[0]))] :
					&other_calls[below(f, sizeof(other_calls) / sizeof(other_calls[0]))];
	int on = device && !one_in(f, 30) ? dev : slot_fd(f);
	unsigned long cmd = one_in(f, 50) ? c->cmd ^ 1ul << below(f, 30) : c->cmd;
	union args a;
	int fd;

	prepare(f, c, &a);
	if (ioctl(on, cmd, one_in(f, 30) ? (void *)(uintptr_t)odd_pointer(f) : &a) < 0)
		return;
	atomic_fetch_add(&nr_good, 1);
	if (cmd == c->cmd && c->fd_at >= 0) {
		memcpy(&fd, (char *)&a + c->fd_at, sizeof(fd));
		slot_put(f, fd);
	}
}

/* ------------------------------------------------------------------------- io_uring */

static void ring_start(struct fuzz *f)
{
	need(!io_uring_queue_init(32, &f->ring, 0), "io_uring");
}

/* What a command made can't be told from here: those that make descriptors are not commands. */
static void op_uring(struct fuzz *f)
{
	bool device = one_in(f, 3);
	const struct call *c = device ? &device_calls[8] : &other_calls[below(f, sizeof(other_calls) / sizeof(other_calls[0]))];
	struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring);
	struct io_uring_cqe *cqe;
	union args *a = (union args *)(user + 8 * PAGE + below(f, 8) * 512);
	uint64_t payload[2];

	if (!sqe || one_in(f, 60)) {
		io_uring_queue_exit(&f->ring);
		ring_start(f);
		return;
	}
	prepare(f, c, a);
	memcpy(payload, a, sizeof(payload));
	if (device) {
		payload[0] = one_in(f, 20) ? odd_pointer(f) : (uintptr_t)a;
		payload[1] = one_in(f, 20);
	}
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = device ? dev : slot_fd(f);
	sqe->cmd_op = one_in(f, 50) ? (uint32_t)rnd(f) : c->cmd;
	sqe->flags = one_in(f, 4) ? IOSQE_ASYNC : one_in(f, 8) ? IOSQE_IO_LINK : 0;
	memcpy(sqe->cmd, payload, sizeof(payload));
	io_uring_submit(&f->ring);
	while (!io_uring_peek_cqe(&f->ring, &cqe)) {
		if (cqe->res >= 0)
			atomic_fetch_add(&nr_good, 1);
		io_uring_cqe_seen(&f->ring, cqe);
	}
}

/* -------------------------------------------------------------------------- the rest */

static void op_map(struct fuzz *f)
{
	static const int prots[] = { PROT_READ, PROT_READ | PROT_WRITE, PROT_WRITE, PROT_READ | PROT_EXEC, PROT_NONE };
	unsigned long len = (1 + below(f, one_in(f, 4) ? 600 : 4)) * PAGE;
	char *p = mmap(NULL, len, prots[below(f, 5)], one_in(f, 10) ? MAP_PRIVATE : MAP_SHARED, slot_fd(f), below(f, 3) * PAGE);

	if (p == MAP_FAILED)
		return;
	for (int i = 0; i < 3; i++) {
		char *at = p + below(f, len - 16);

		/* By a copy of the kernel's: no signal comes where there is no page. */
		if (pwrite(f->copy, at, 16, 0) == 16)
			atomic_fetch_add(&nr_good, 1);
		if (pread(f->copy, at, 16, 0) == 16)
			atomic_fetch_add(&nr_good, 1);
	}
	if (one_in(f, 4))
		mprotect(p, PAGE, prots[below(f, 5)]);
	if (one_in(f, 8))
		madvise(p, len, below(f, 30));
	if (one_in(f, 8))
		import(SITS_IMPORT_USER, -1, p, PAGE);
	if (one_in(f, 8)) {
		char *q = mremap(p, len, PAGE, MREMAP_MAYMOVE);

		if (q != MAP_FAILED) {
			p = q;
			len = PAGE;
		}
	}
	munmap(p, len);
}

static void op_descriptor(struct fuzz *f)
{
	struct dma_buf_sync_arg { uint64_t flags; } sync = { below(f, 8) };
	int fd = slot_fd(f), socks[2], fds[2];
	pid_t pid;

	switch (below(f, 7)) {
	case 0:
		slot_put(f, fcntl(fd, F_DUPFD_CLOEXEC, 10));
		break;
	case 1:
		ioctl(fd, _IOW('b', 0, uint64_t), &sync);
		break;
	case 2:
		if (one_in(f, 4)) {
			pid = fork();
			if (!pid)
				_exit(0);
			while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
				;
		}
		break;
	case 3:
		/* A descriptor that nobody receives. */
		if (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks)) {
			char c = 0, ctl[CMSG_SPACE(sizeof(int))] = { 0 };
			struct iovec iov = { &c, 1 };
			struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl) };

			CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
			CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
			CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
			sendmsg(socks[0], &m, MSG_DONTWAIT);
			close(socks[0]);
			close(socks[1]);
		}
		break;
	case 4:
		/* A page that stays in a pipe while its region goes. */
		if (!pipe2(fds, O_CLOEXEC | O_NONBLOCK)) {
			char *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
			struct iovec iov = { p, 64 };

			if (p != MAP_FAILED) {
				if (vmsplice(fds[1], &iov, 1, SPLICE_F_NONBLOCK) == 64)
					atomic_fetch_add(&nr_good, 1);
				munmap(p, PAGE);
			}
			close(fds[0]);
			close(fds[1]);
		}
		break;
	default:
		fd = atomic_exchange(&slots[below(f, NR_SLOTS)], -1);
		if (fd >= 0)
			close(fd);
	}
}

static void *fuzz(void *arg)
{
	struct fuzz *f = arg;
	const char *text = getenv("SITS_FUZZ_OPS");
	long ops = text ? atol(text) : 6000;

	f->copy = memfd_create("copy", MFD_CLOEXEC);
	need(f->copy >= 0 && !ftruncate(f->copy, PAGE), "memfd");
	ring_start(f);
	for (long i = 0; i < ops && atomic_load(&running); i++) {
		uint64_t what = below(f, 100);

		if (what < 45)
			op_ioctl(f, true);
		else if (what < 65)
			op_ioctl(f, false);
		else if (what < 75)
			op_uring(f);
		else if (what < 85)
			op_map(f);
		else
			op_descriptor(f);
		atomic_fetch_add(&nr_ops, 1);
	}
	io_uring_queue_exit(&f->ring);
	close(f->copy);
	return NULL;
}

static void nothing(int sig)
{
}

/* Ends waits: those that a thread is in, again and again, until all threads have done what they were to do. */
static void wait_for_threads(void)
{
	struct timespec start, now, nap = { 0, 20000000 };
	int left = NR_THREADS;
	bool joined[NR_THREADS] = { false };

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (left) {
		nanosleep(&nap, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec > SECONDS_MAX)
			atomic_store(&running, false);
		for (int i = 0; i < NR_THREADS; i++) {
			if (joined[i])
				continue;
			if (!pthread_tryjoin_np(threads[i], NULL)) {
				joined[i] = true;
				left--;
			} else {
				pthread_kill(threads[i], SIGUSR1);
			}
		}
	}
}

static void find_pci_device(void)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf(pci_device, sizeof(pci_device), "%.12s", e->d_name);
	if (d)
		closedir(d);
}

static int unload(void)
{
	return syscall(SYS_delete_module, "sits", O_NONBLOCK) ? -errno : 0;
}

int main(void)
{
	struct sigaction act = { .sa_handler = nothing };
	static struct fuzz fuzzers[NR_THREADS];
	const char *text = getenv("SITS_SEED");
	struct timespec ts;
	struct sits_get_info i;
	uint64_t seed;
	int ret = -EAGAIN;

	clock_gettime(CLOCK_REALTIME, &ts);
	seed = text ? strtoull(text, NULL, 0) : (uint64_t)ts.tv_sec * 1000000007u + ts.tv_nsec;
	printf("# SITS_SEED=%llu\n", (unsigned long long)seed);
	sigaction(SIGUSR1, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
	open_dev();
	find_pci_device();
	check_int(write_text(LIMIT, "100663296"), 0, "96 MiB for all regions");
	/* Shared, so that a fork need not copy it. */
	user = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	garbage = memfd_create("garbage", MFD_CLOEXEC);
	need(garbage >= 0 && !ftruncate(garbage, 64 * PAGE), "memfd");
	for (int k = 0; k < NR_SLOTS; k++)
		atomic_store(&slots[k], -1);
	for (int k = 0; k < NR_THREADS; k++) {
		fuzzers[k].state = (seed + k) * 0x9e3779b97f4a7c15ull | 1;
		need(!pthread_create(&threads[k], NULL, fuzz, &fuzzers[k]), "pthread_create");
	}
	wait_for_threads();
	printf("# %ld operations, %ld of them good\n", atomic_load(&nr_ops), atomic_load(&nr_good));
	check(atomic_load(&nr_ops) > 0 && atomic_load(&nr_good) > atomic_load(&nr_ops) / 20, "some of it was right");

	/* A wrong descriptor may have been closed, or one be left that no slot has. */
	syscall(SYS_close_range, 3, ~0u, 0);
	munmap(user, 16 * PAGE);
	open_dev();
	check(nothing_left(), "no region is left");
	i = info();
	for (int tries = 0; tries < 3000 && (i.nr_queues || i.nr_channels); tries++) {
		usleep(10000);
		i = info();
	}
	check_int(i.nr_queues, 0, "no queue is left");
	check_int(i.nr_channels, 0, "no channel is left");
	check_int(read_number("/sys/class/misc/sits/importers"), 0, "no importer is left");
	check_int(read_number("/sys/class/misc/sits/dma_maps"), 0, "no DMA mapping is left");
	write_text(LIMIT, "0");
	close(dev);
	for (int tries = 0; tries < 3000 && (ret = unload()) == -EAGAIN; tries++)
		usleep(10000);
	check_int(ret, 0, "the module goes");
	check(!system("modprobe sits"), "and comes back");
	return done();
}
