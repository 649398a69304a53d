// SPDX-License-Identifier: MIT
/*
 * weights_abi_test.c - WEIGHTS_LOAD as ioctl and as command of a ring: valid, then with one thing wrong at a time: fields,
 * files, regions, keys, rights. Exact errno; what the kernel writes, and what it does not.
 */
#include <grp.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "weights_common.h"

#define LEN (64 * 1024 + 5)

static int file_fd, region_fd;
static uint8_t *data;
/* A page before one that can't be touched: what reads or writes beyond a struct is found out. */
static char *edge;

struct bad {
	const char *what;
	size_t off, len;
	uint64_t value[1];
	int err;
};

/* As the struct was before it had ranges. */
#define SIZE_FIRST offsetof(struct sits_weights_load, ranges)

#define BAD(field, val, err) { #field " = " #val, offsetof(struct sits_weights_load, field), \
	sizeof(((struct sits_weights_load *)0)->field), { (uint64_t)(val) }, err }

static const struct bad bads[] = {
	BAD(size, 0, -EINVAL),
	BAD(size, 8, -EINVAL),
	BAD(size, SIZE_FIRST - 1, -EINVAL),
	BAD(size, UINT32_MAX, -E2BIG),
	BAD(flags, 4, -EINVAL),
	BAD(flags, 1u << 31, -EINVAL),
	BAD(file_fd, -1, -EBADF),
	BAD(file_fd, 1000, -EBADF),
	BAD(region_fd, -1, -EBADF),
	BAD(region_fd, 0, -EINVAL),	/* /dev/null */
	BAD(min_version, 8, -EKEYEXPIRED),
	BAD(min_version, UINT64_MAX, -EKEYEXPIRED),
	BAD(nr_inflight, 257, -EINVAL),
	BAD(nr_inflight, UINT32_MAX, -EINVAL),
	BAD(cancel, 1, -ECANCELED),
	BAD(key[0], 0, -EINVAL),
	BAD(key[2], '\n', -EINVAL),
	BAD(key[2], '\177', -EINVAL),
	BAD(key[2], 'X', -ENOKEY),
	BAD(ranges, 4096, -EINVAL),	/* of which there are none */
	BAD(nr_ranges, 1, -EINVAL),	/* which are nowhere */
	BAD(reserved, 1, -EINVAL),
};

static void renew_region(void)
{
	close(region_fd);
	region_fd = create(SITS_KIND_PINNED, 0, LEN);
	need(region_fd >= 0, "make a region");
}

static struct sits_weights_load *prepare(size_t len)
{
	struct sits_weights_load a = load_arg(file_fd, region_fd);

	a.size = len;
	memset(edge - PAGE, 0, PAGE);
	memcpy(edge - len, &a, len < sizeof(a) ? len : sizeof(a));
	return (struct sits_weights_load *)(edge - len);
}

static void check_good(int ret, const char *what)
{
	check_int(ret, 0, "%s", what);
	check(region_is(region_fd, data, LEN), "%s: contents", what);
	renew_region();
}

/* The command, issued in the ring's other ways. */
static int load_ring_as(unsigned int setup, unsigned int sqe_flags, struct sits_weights_load *a)
{
	struct io_uring_params p = { .flags = setup, .sq_thread_idle = 100 };
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	uint64_t addr = (uintptr_t)a;
	int ret;

	ret = io_uring_queue_init_params(8, &ring, &p);
	if (ret)
		return ret;
	sqe = io_uring_get_sqe(&ring);
	if (!sqe)
		exit(1);
	memset(sqe, 0, setup & IORING_SETUP_SQE128 ? 128 : 64);
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->flags = sqe_flags & ~IOSQE_FIXED_FILE;
	sqe->fd = dev;
	if (sqe_flags & IOSQE_FIXED_FILE) {
		need(!io_uring_register_files(&ring, &dev, 1), "register a file");
		sqe->flags |= IOSQE_FIXED_FILE;
		sqe->fd = 0;
	}
	sqe->cmd_op = SITS_IOC_WEIGHTS_LOAD;
	memcpy(sqe->cmd, &addr, sizeof(addr));
	need(io_uring_submit(&ring) >= 0, "submit");
	ret = ring_wait(&ring);
	io_uring_queue_exit(&ring);
	return ret;
}

static void test_good(void)
{
	static const struct {
		const char *name;
		unsigned int setup, sqe;
	} rings[] = {
		{ "asynchronous", 0, IOSQE_ASYNC },
		{ "registered file", 0, IOSQE_FIXED_FILE },
		{ "polling thread", IORING_SETUP_SQPOLL, 0 },
		{ "polling thread, asynchronous", IORING_SETUP_SQPOLL, IOSQE_ASYNC },
		{ "large entries", IORING_SETUP_SQE128 | IORING_SETUP_CQE32, 0 },
		{ "deferred completion", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0 },
	};
	struct sits_weights_load *a;
	char what[80];

	for (int way = 0; way < 2; way++) {
		snprintf(what, sizeof(what), "%s: valid", ways[way].name);
		a = prepare(sizeof(*a));
		check_good(ways[way].fn(a), what);
		snprintf(what, sizeof(what), "%s: longer, and zero there", ways[way].name);
		a = prepare(sizeof(*a) + 16);
		check_good(ways[way].fn(a), what);
		snprintf(what, sizeof(what), "%s: as long as it was first", ways[way].name);
		a = prepare(SIZE_FIRST);
		check_good(ways[way].fn(a), what);
		a = prepare(sizeof(*a) + 16);
		((char *)a)[sizeof(*a) + 15] = 1;
		check_int(ways[way].fn(a), -E2BIG, "%s: longer, and not zero there", ways[way].name);
	}
	a = prepare(sizeof(*a));
	check_good(xioctl(dev, SITS_IOC_WEIGHTS_LOAD ^ (8u << _IOC_SIZESHIFT), a), "ioctl: the size bits of its number do not count");
	for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		a = prepare(sizeof(*a));
		snprintf(what, sizeof(what), "ring: %s", rings[i].name);
		check_good(load_ring_as(rings[i].setup, rings[i].sqe, a), what);
	}
	/* All else that is out is ignored on the way in. */
	a = prepare(sizeof(*a));
	memset((char *)a + offsetof(struct sits_weights_load, progress_bytes), 0xff,
	       offsetof(struct sits_weights_load, key) - offsetof(struct sits_weights_load, progress_bytes));
	check_good(load_ioctl(a), "fields that are out hold rubbish");
	check(!a->bad_chunk && a->plain_bytes == LEN && a->model_version == 7 && a->progress_bytes == LEN &&
	      a->read_ns < a->total_ns, "fields that are out hold results then");
	a = prepare(sizeof(*a));
	a->min_version = 7;
	a->nr_inflight = 256;
	check_good(load_ioctl(a), "the largest values");
}

static void test_bad(void)
{
	for (int way = 0; way < 2; way++)
		for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
			struct sits_weights_load *a = prepare(sizeof(*a)), before;

			memcpy((char *)a + bads[i].off, bads[i].value, bads[i].len);
			before = *a;
			check_int(ways[way].fn(a), bads[i].err, "%s: %s", ways[way].name, bads[i].what);
			if (bads[i].err != -EKEYEXPIRED)
				check(!memcmp(a, &before, sizeof(before)), "%s: %s: nothing was written", ways[way].name, bads[i].what);
			else
				check(a->total_ns && !a->plain_bytes && !a->bad_chunk, "%s: %s: results", ways[way].name, bads[i].what);
		}
	for (int way = 0; way < 2; way++) {
		struct sits_weights_load *a = prepare(sizeof(*a));

		memset(a->key, 'k', sizeof(a->key));
		check_int(ways[way].fn(a), -EINVAL, "%s: a key's description that does not end", ways[way].name);
		check_int(ways[way].fn(NULL), -EFAULT, "%s: NULL", ways[way].name);
		a = prepare(sizeof(*a));
		memmove((char *)a + 8, a, sizeof(*a) - 8);
		check_int(ways[way].fn((void *)((char *)a + 8)), -EFAULT, "%s: its end is not mapped", ways[way].name);
	}
	check_int(facts(region_fd).state, SITS_REGION_F_PINNABLE, "the region is as it was");
	check_good(load_ioctl(prepare(sizeof(struct sits_weights_load))), "and can be loaded");
}

#define CHUNK 16384ul

/* A list of ranges with something wrong in it; the file has four whole chunks and 5 bytes. */
static const struct {
	const char *what;
	struct sits_weights_range r[2];
	uint32_t nr;
	int err;
} bad_ranges[] = {
	{ "empty", { { 0, 0, 0 } }, 1, -EINVAL },
	{ "begins within a chunk", { { 4096, CHUNK - 4096, 0 } }, 1, -EINVAL },
	{ "ends within a chunk", { { 0, CHUNK - 1, 0 } }, 1, -EINVAL },
	{ "beyond the end", { { 0, LEN + 1, 0 } }, 1, -EINVAL },
	{ "whole chunks beyond the end", { { 0, 5 * CHUNK, 0 } }, 1, -EINVAL },
	{ "begins at the end of the chunks", { { 5 * CHUNK, CHUNK, 0 } }, 1, -EINVAL },
	{ "begins far beyond", { { ~0ul - CHUNK + 1, CHUNK, 0 } }, 1, -EINVAL },
	{ "as long as can be", { { CHUNK, ~0ul - CHUNK + 1, 0 } }, 1, -EINVAL },
	{ "goes to the middle of a page", { { 0, CHUNK, 512 } }, 1, -EINVAL },
	{ "goes to where there is no room", { { CHUNK, CHUNK, LEN / PAGE * PAGE } }, 1, -EFBIG },
	{ "goes far beyond", { { CHUNK, CHUNK, ~0ul - PAGE + 1 } }, 1, -EFBIG },
	{ "twice the same", { { 0, CHUNK, 0 }, { 0, CHUNK, CHUNK } }, 2, -EINVAL },
	{ "overlap in the file", { { 0, 2 * CHUNK, 0 }, { CHUNK, CHUNK, 2 * CHUNK } }, 2, -EINVAL },
	{ "overlap in the region", { { 0, 2 * CHUNK, 0 }, { 2 * CHUNK, CHUNK, CHUNK } }, 2, -EINVAL },
	{ "fall in the file", { { CHUNK, CHUNK, 0 }, { 0, CHUNK, CHUNK } }, 2, -EINVAL },
	{ "fall in the region", { { 0, CHUNK, CHUNK }, { CHUNK, CHUNK, 0 } }, 2, -EINVAL },
};

static void test_ranges(void)
{
	struct sits_weights_load *a;

	for (int way = 0; way < 2; way++) {
		const char *w = ways[way].name;

		for (size_t i = 0; i < sizeof(bad_ranges) / sizeof(bad_ranges[0]); i++) {
			a = prepare(sizeof(*a));
			a->ranges = (uintptr_t)bad_ranges[i].r;
			a->nr_ranges = bad_ranges[i].nr;
			check_int(ways[way].fn(a), bad_ranges[i].err, "%s: ranges: %s", w, bad_ranges[i].what);
		}
		a = prepare(sizeof(*a));
		a->ranges = (uintptr_t)bad_ranges[0].r;
		a->nr_ranges = SITS_LOAD_RANGES_MAX + 1;
		check_int(ways[way].fn(a), -EINVAL, "%s: ranges: too many", w);
		a->ranges = (uintptr_t)edge - sizeof(struct sits_weights_range);
		a->nr_ranges = 2;
		check_int(ways[way].fn(a), -EFAULT, "%s: ranges: the second one is not mapped", w);
	}
	check_int(facts(region_fd).state, SITS_REGION_F_PINNABLE, "ranges: the region is as it was");
	check(info().features & SITS_FEATURE_LOAD_RANGES, "ranges: the feature is told");
}

static int ring_cmd(int fd, unsigned int op, uint64_t addr, uint64_t second)
{
	struct io_uring ring;
	int ret;

	ring_init(&ring, 0);
	ring_submit(&ring, fd, op, addr, second);
	ret = ring_wait(&ring);
	io_uring_queue_exit(&ring);
	return ret;
}

static void test_commands(void)
{
	struct sits_weights_load *a = prepare(sizeof(*a));

	check_int(ring_cmd(dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)a, 1), -EINVAL, "ring: second half of the payload");
	check_int(ring_cmd(dev, SITS_IOC_REGION_INFO, (uintptr_t)a, 0), -ENOTTY, "ring: an ioctl that is no command");
	check_int(ring_cmd(dev, 0, (uintptr_t)a, 0), -ENOTTY, "ring: command 0");
	check_int(ring_cmd(dev, ~0u, (uintptr_t)a, 0), -ENOTTY, "ring: command UINT32_MAX");
	check_int(ring_cmd(region_fd, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)a, 0), -EOPNOTSUPP, "ring: on a region");
	check_good(ring_cmd(dev, SITS_IOC_WEIGHTS_LOAD ^ (8u << _IOC_SIZESHIFT), (uintptr_t)a, 0),
		   "ring: the size bits of its number do not count");
	check_int(load_ring_as(IORING_SETUP_IOPOLL, 0, a), -EOPNOTSUPP, "ring: polled for completion");
	check((info().features & (SITS_FEATURE_WEIGHTS | SITS_FEATURE_URING_CMD)) ==
	      (SITS_FEATURE_WEIGHTS | SITS_FEATURE_URING_CMD), "features are told");
}

/* Results can't be written: the load fails, and the region is not sealed with nobody knowing. */
static void test_readonly_struct(void)
{
	for (int way = 0; way < 2; way++) {
		struct sits_weights_load *a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		*a = load_arg(file_fd, region_fd);
		mprotect(a, PAGE, PROT_READ);
		check_int(ways[way].fn(a), -EFAULT, "%s: struct can't be written", ways[way].name);
		check_int(facts(region_fd).state, SITS_REGION_F_PINNABLE | SITS_REGION_F_LOADING, "%s: struct can't be written: the load failed",
			  ways[way].name);
		munmap(a, PAGE);
		check_good(ways[way].fn(prepare(sizeof(*a))), "and then it can be loaded");
	}
}

static int load_of(int fd, int way)
{
	struct sits_weights_load a = load_arg(fd, region_fd);
	int ret = ways[way].fn(&a);

	close(fd);
	return ret;
}

static void test_files(void)
{
	const char *path = in_dir("good.sits");
	int fds[2];

	for (int way = 0; way < 2; way++) {
		const char *w = ways[way].name;

		check_int(load_of(open(path, O_WRONLY), way), -EBADF, "%s: file open for writing only", w);
		check_int(load_of(open(path, O_PATH), way), -EBADF, "%s: file opened with O_PATH", w);
		check_int(load_of(open("/tmp", O_RDONLY | O_DIRECTORY), way), -EINVAL, "%s: directory", w);
		check_int(load_of(open("/dev/null", O_RDONLY), way), -EINVAL, "%s: character device", w);
		check_int(load_of(dup(dev), way), -EINVAL, "%s: /dev/sits", w);
		check_int(load_of(dup(region_fd), way), -EINVAL, "%s: a region", w);
		check_int(load_of(eventfd(0, 0), way), -EINVAL, "%s: event descriptor", w);
		need(!pipe(fds), "pipe");
		check_int(load_of(fds[0], way), -EINVAL, "%s: pipe", w);
		close(fds[1]);
		need(!mkfifo(in_dir("fifo"), 0600), "mkfifo");
		check_int(load_of(open(in_dir("fifo"), O_RDONLY | O_NONBLOCK), way), -EINVAL, "%s: FIFO", w);
		unlink(in_dir("fifo"));
		need(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "socketpair");
		check_int(load_of(fds[0], way), -EINVAL, "%s: socket", w);
		close(fds[1]);
		check_int(load_of(open("/proc/self/status", O_RDONLY), way), -EBADMSG, "%s: a file of /proc, of no length", w);
		check_int(load_of(open("/proc/self/mem", O_RDONLY), way), -EBADMSG, "%s: memory of a process", w);
	}
	check_int(facts(region_fd).state, SITS_REGION_F_PINNABLE, "files: the region is as it was");
}

static int load_into(int region)
{
	struct sits_weights_load a = load_arg(file_fd, region);

	return load_ioctl(&a);
}

/* The address of a PCI device: for mapping a region. */
static void find_pci_device(char name[SITS_NAME_MAX])
{
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf(name, SITS_NAME_MAX, "%.12s", e->d_name);
	if (d)
		closedir(d);
	need(name[0], "a PCI device");
}

static void test_regions(void)
{
	static struct sits_dma_seg segs[512];
	struct sits_dma_map m = { .size = sizeof(m), .flags = SITS_DMA_TO_DEVICE, .segs = (uintptr_t)segs, .nr_segs = 512 };
	struct iovec iov = { .iov_len = PAGE };
	int r, fds[2];
	char *p;

	r = create(SITS_KIND_PINNED, 0, LEN - 1);
	check_int(load_into(r), -EFBIG, "region: a byte too small, if not by pages");
	close(r);

	r = create(SITS_KIND_HUGE, 0, LEN);
	p = map(r, LEN, PROT_READ);
	check_int(load_into(r), -EBUSY, "region: mapped for reading");
	munmap(p, LEN);
	p = map(r, LEN, PROT_READ | PROT_WRITE);
	p[0] = 1;
	check_int(load_into(r), -EBUSY, "region: mapped for writing");
	need(!pipe(fds), "pipe");
	iov.iov_base = p;
	need(vmsplice(fds[1], &iov, 1, 0) > 0, "vmsplice");
	munmap(p, LEN);
	check_int(load_into(r), -EBUSY, "region: a page of it is in a pipe");
	close(fds[0]);
	close(fds[1]);
	find_pci_device((char *)m.device);
	m.fd = r;
	need(!xioctl(dev, SITS_IOC_DMA_MAP, &m), "DMA_MAP");
	check_int(load_into(r), -EBUSY, "region: mapped for a device");
	close(m.fd_map);
	check_int(load_into(r), 0, "region: free again");
	check_int(load_into(r), -EACCES, "region: loaded before");
	close(r);

	r = create(SITS_KIND_PINNED, 0, LEN);
	seal(r, 0);
	check_int(load_into(r), -EACCES, "region: sealed");
	close(r);
	r = create(SITS_KIND_PINNED, 0, LEN);
	seal(r, SITS_SEAL_REVOKE);
	check_int(load_into(r), -EPERM, "region: revoked");
	close(r);
	p = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r = import(SITS_IMPORT_USER, -1, p, 32 * PAGE);
	check_int(load_into(r), -EOPNOTSUPP, "region: imported");
	close(r);
	munmap(p, 32 * PAGE);
}

/* What a load by a key of that description gives, and whether the file's header is to blame. */
static void check_key(const char *name, int want, bool header, const char *what)
{
	struct sits_weights_load a = load_arg(file_fd, region_fd);

	memset(a.key, 0, sizeof(a.key));
	memcpy(a.key, name, strnlen(name, sizeof(a.key) - 1));
	a.bad_chunk = 4711;
	check_int(load_ioctl(&a), want, "key: %s", what);
	if (want)
		check(a.bad_chunk == (header ? SITS_BAD_HEADER : 4711), "key: %s: the file is%s to blame", what, header ? "" : " not");
	else
		renew_region();
}

static int as_nobody(void *arg)
{
	struct sits_weights_load a = load_arg(file_fd, region_fd);
	gid_t group = 65534;

	/* The device stays open: it is its opener's right. The keyring does not. */
	if (setgroups(1, &group) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		return 1;
	if (load_ioctl(&a) != -ENOKEY || load_ring(&a) != -ENOKEY)
		return 2;
	close(dev);
	open_dev();
	if (load_ioctl(&a) != -EPERM || load_ring(&a) != -EPERM)
		return 3;
	return 0;
}

static int with_session(void *arg)
{
	struct sits_weights_load a = load_arg(file_fd, region_fd);

	/* A session of its own, without a link to the user keyring. */
	if (keyctl_join_session_keyring(NULL) < 0)
		return 1;
	return load_ioctl(&a) ? 2 : 0;
}

static void test_keys(void)
{
	char hex[40] = "";
	uint8_t other[16];
	key_serial_t k, ring = KEY_SPEC_USER_KEYRING;

	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", kek_raw[i]);
	memcpy(other, kek_raw, 16);
	other[15] ^= 1;

	check_key("sits:none", -ENOKEY, false, "there is none");
	k = add_user_key("user", "sits:hex", hex, 32);
	check_key("sits:hex", 0, false, "32 hexadecimal digits, type user");
	keyctl_update(k, strcat(hex, "\n"), 33);
	check_key("sits:hex", 0, false, "with an end of line");
	hex[0] = 'g';
	keyctl_update(k, hex, 32);
	check_key("sits:hex", -EKEYREJECTED, false, "a digit that is none");
	keyctl_unlink(k, ring);

	k = add_user_key("logon", "sits:other", other, 16);
	check_key("sits:other", -ENOKEY, true, "another one");
	keyctl_update(k, other, 15);
	check_key("sits:other", -EKEYREJECTED, false, "15 bytes");
	keyctl_update(k, other, 1);
	check_key("sits:other", -EKEYREJECTED, false, "1 byte");
	keyctl_update(k, "0123456789abcde\n", 16);
	check_key("sits:other", -EKEYREJECTED, false, "16 bytes of text");
	keyctl_update(k, kek_raw, 16);
	check_key("sits:other", 0, false, "updated to the right one");
	keyctl_revoke(k);
	check_key("sits:other", -EKEYREVOKED, false, "revoked");
	keyctl_unlink(k, ring);

	k = add_user_key("user", "sits:expires", kek_raw, 16);
	check_key("sits:expires", 0, false, "16 bytes, type user");
	keyctl_set_timeout(k, 1);
	while (keyctl_search(ring, "user", "sits:expires", 0) >= 0)
		usleep(10000);
	check_key("sits:expires", -EKEYREVOKED, false, "expired");
	keyctl_unlink(k, ring);

	k = add_user_key("user", "sits:both", other, 16);
	check_key("sits:both", -ENOKEY, true, "a wrong one of type user");
	key_serial_t l = add_user_key("logon", "sits:both", kek_raw, 16);

	check_key("sits:both", 0, false, "of two types logon goes first");
	keyctl_unlink(k, ring);
	keyctl_unlink(l, ring);

	k = add_key("logon", "sits:process", kek_raw, 16, KEY_SPEC_PROCESS_KEYRING);
	need(k >= 0, "add a key to the process keyring");
	check_key("sits:process", 0, false, "in the process keyring");
	keyctl_unlink(k, KEY_SPEC_PROCESS_KEYRING);

	check_int(in_child(as_nobody, NULL), 0, "another user: not that key, and no right with a device of its own");
	check_int(in_child(with_session, NULL), 0, "a session without a link to the user keyring");
	renew_region();
}

static void test_seen(void)
{
	long loads = read_number(STAT(loads)), failures = read_number(STAT(load_failures)), bytes = read_number(STAT(loaded_bytes));
	static char text[1 << 16];
	struct sits_weights_load *a;
	FILE *f;

	write_text("/sys/kernel/tracing/events/sits/enable", "1");
	check_good(load_ring(prepare(sizeof(*a))), "seen: a load");
	a = prepare(sizeof(*a));
	a->min_version = 8;
	check_int(load_ioctl(a), -EKEYEXPIRED, "seen: one that fails");
	a->flags = 4;
	check_int(load_ioctl(a), -EINVAL, "seen: a wrong argument");
	write_text("/sys/kernel/tracing/events/sits/enable", "0");
	check_int(read_number(STAT(loads)), loads + 1, "counters: loads");
	check_int(read_number(STAT(load_failures)), failures + 1, "counters: failures");
	check_int(read_number(STAT(loaded_bytes)), bytes + LEN, "counters: bytes");
	f = fopen("/sys/kernel/tracing/trace", "re");
	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
		fclose(f);
	}
	check(strstr(text, "sits_region_load_begin: ") && strstr(text, "sits_region_load_end: "), "tracepoints: the region's");
	check(strstr(text, "sits_weights_load: ") && strstr(text, "error=0 plain=65541 ") && strstr(text, "error=-127 plain=0 "),
	      "tracepoints: the load's");
	write_text("/sys/kernel/tracing/trace", "");
}

int main(void)
{
	int fds;

	setup();
	dup2(open("/dev/null", O_RDWR), 0);
	edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* Not unmapped: a ring would take the place. */
	need(edge != MAP_FAILED && !mprotect(edge + PAGE, PAGE, PROT_NONE), "mmap");
	edge += PAGE;
	data = random_bytes(LEN);
	seal_bytes(in_dir("good.sits"), data, LEN, kek, 16384);
	file_fd = open(in_dir("good.sits"), O_RDONLY);
	region_fd = create(SITS_KIND_PINNED, 0, LEN);
	fds = nr_fds();
	test_good();
	test_bad();
	test_ranges();
	test_commands();
	test_readonly_struct();
	test_files();
	test_regions();
	test_keys();
	test_seen();
	check_int(nr_fds(), fds, "no descriptor is left");
	close(region_fd);
	close(file_fd);
	check(nothing_left(), "nothing is left");
	free(data);
	teardown();
	return done();
}
