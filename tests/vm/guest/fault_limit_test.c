// SPDX-License-Identifier: MIT
/*
 * fault_limit_test.c - limits that users set, moved step by step over each operation, so that it fails where the limit happens to
 * be: RLIMIT_MEMLOCK, RLIMIT_NOFILE, RLIMIT_AS, and a memory cgroup's, where the kernel may kill as well. Whatever comes of it,
 * the module is as before.
 *
 * A cgroup that is full makes the kernel print how it got there when it kills, which is no splat: for that while the console is
 * quiet, and the log is read here.
 */
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "fault_common.h"
#include "import_common.h"

#define CGROUP "/sys/fs/cgroup/sits-fault"
#define OPS_MAX 300	/* until a cgroup is full: each processor has some of it in advance */
#define QUIET "/proc/sys/kernel/printk"

static char *user;

/* --------------------------------------------------------------------- operations */

static int op_create(void)
{
	return create(SITS_KIND_PINNED, 0, 16 * PAGE);
}

static int op_protected(void)
{
	return create(SITS_KIND_PROTECTED, 0, 16 * PAGE);
}

static int op_import(void)
{
	return import(SITS_IMPORT_USER, -1, user, 16 * PAGE);
}

static int make_queue(const char *name)
{
	struct sits_queue_create arg = {
		.size = sizeof(arg), .depth = 16, .per_client = 8, .max_clients = 1000, .mode = 0666, .chunk_backlog = 65536,
		.fd_flags = O_CLOEXEC, .fd = -1,
	};
	int ret;

	strcpy((char *)arg.name, name);
	ret = xioctl(dev, SITS_IOC_QUEUE_CREATE, &arg);
	return ret ? ret : arg.fd;
}

static int op_queue(void)
{
	static int nr;
	char name[SITS_QNAME_MAX];

	snprintf(name, sizeof(name), "other%d", nr++);
	return make_queue(name);
}

static int queue = -1, region = -1;

static int op_channel(void)
{
	struct sits_channel_create arg = {
		.size = sizeof(arg), .arena_bytes = 16 * PAGE, .fd_flags = O_CLOEXEC, .fd = -1, .queue = "limit",
	};
	int ret = xioctl(dev, SITS_IOC_CHANNEL_OPEN, &arg);

	return ret ? ret : arg.fd;
}

static int op_dma_map(void)
{
	static struct sits_dma_seg segs[32];
	struct sits_dma_map arg = {
		.size = sizeof(arg), .flags = SITS_DMA_TO_DEVICE, .fd = region, .segs = (uintptr_t)segs, .nr_segs = 32,
	};
	int ret;

	memcpy(arg.device, edu, sizeof(arg.device));
	ret = xioctl(dev, SITS_IOC_DMA_MAP, &arg);
	return ret ? ret : arg.fd_map;
}

static int op_allow(void)
{
	int fd = create(SITS_KIND_PROTECTED, 0, PAGE), ret = fd;

	for (int i = 0; i < 64 && ret >= 0; i++) {
		char name[SITS_NAME_MAX];

		snprintf(name, sizeof(name), "device%d", i);
		ret = allow(fd, name);
	}
	if (fd >= 0)
		close(fd);
	return ret;
}

static const struct {
	const char *name;
	int (*fn)(void);
	unsigned int memlock;	/* pages that count */
	bool fd;		/* returns a descriptor */
} ops[] = {
	{ "REGION_CREATE", op_create, 16, true },
	{ "REGION_CREATE, protected", op_protected, 16, true },
	{ "REGION_IMPORT", op_import, 16, true },
	{ "DMA_MAP", op_dma_map, 0, true },
	{ "DEVICE_ALLOW", op_allow, 1, false },
	{ "QUEUE_CREATE", op_queue, 0, true },
	{ "CHANNEL_OPEN", op_channel, 0, true },
};

#define NR_OPS (sizeof(ops) / sizeof(ops[0]))

static int (*op)(void);

/* ------------------------------------------------------------------ RLIMIT_MEMLOCK */

struct memlock {
	unsigned int pages, need;
};

/* Without the capability, which the descriptor's opener had. */
static int with_memlock(void *arg)
{
	const struct memlock *m = arg;
	struct rlimit l = { m->pages * PAGE, m->pages * PAGE };
	int ret;

	if (setrlimit(RLIMIT_MEMLOCK, &l) || setgroups(0, NULL) || setresgid(65534, 65534, 65534) ||
	    setresuid(65534, 65534, 65534))
		return 1;
	ret = op();
	if (m->pages >= m->need)
		return ret >= 0 ? 0 : 2;
	return ret == -ENOMEM ? 0 : 3;
}

static void test_memlock(void)
{
	for (unsigned int i = 0; i < NR_OPS; i++) {
		struct memlock m = { 0, ops[i].memlock };
		int bad = 0;

		/* What clients ask for may count, too: that is for their test. */
		if (!ops[i].memlock)
			continue;
		op = ops[i].fn;
		for (m.pages = 0; m.pages <= m.need + 2; m.pages++)
			bad += in_child(with_memlock, &m) != 0;
		check_int(bad, 0, "RLIMIT_MEMLOCK: %s: with less than %u pages ENOMEM, with more not", ops[i].name, m.need);
	}
}

/* ------------------------------------------------------------------- RLIMIT_NOFILE */

static int with_few_files(void *arg)
{
	struct rlimit l = { 64, 64 };
	int fds[64], n = 0, ret;

	if (setrlimit(RLIMIT_NOFILE, &l))
		return 1;
	while (n < 64 && (fds[n] = dup(dev)) >= 0)
		n++;
	if (errno != EMFILE || n < 2)
		return 2;
	if (op() != -EMFILE)
		return 3;
	close(fds[--n]);
	ret = op();
	if (ret < 0)
		return 4;
	if (op() != -EMFILE)
		return 5;
	close(ret);
	return op() >= 0 ? 0 : 6;
}

static void test_files(void)
{
	for (unsigned int i = 0; i < NR_OPS; i++) {
		struct state before = state_now();

		if (!ops[i].fd || ops[i].fn == op_queue)	/* two queues of one name would clash */
			continue;
		op = ops[i].fn;
		check_int(in_child(with_few_files, NULL), 0, "RLIMIT_NOFILE: %s: EMFILE until one is free", ops[i].name);
		check(state_is(&before), "RLIMIT_NOFILE: %s: nothing is left", ops[i].name);
	}
}

/* ----------------------------------------------------------------------- RLIMIT_AS */

static int with_little_space(void *arg)
{
	struct rlimit l = { 0, RLIM_INFINITY }, all = { RLIM_INFINITY, RLIM_INFINITY };
	int refused = 0, fd = create(SITS_KIND_PINNED, 0, 64 * PAGE);
	char *p;

	for (unsigned long mib = 0; mib < 64; mib++) {
		l.rlim_cur = mib << 20;
		if (setrlimit(RLIMIT_AS, &l))
			return 1;
		p = map(fd, 64 * PAGE, PROT_READ | PROT_WRITE);
		setrlimit(RLIMIT_AS, &all);
		if (is_err(p)) {
			if (err_of(p) != -ENOMEM)
				return 2;
			refused++;
		} else {
			munmap(p, 64 * PAGE);
		}
	}
	/* Whatever was refused does not count as a mapping. */
	if (!refused || seal(fd, 0))
		return 3;
	return 0;
}

/* --------------------------------------------------------------------- memory cgroup */

static long current_bytes(void)
{
	return read_number(CGROUP "/memory.current");
}

static int in_cgroup(void *arg)
{
	char text[32];
	int ret = 0;

	if (write_text(CGROUP "/cgroup.procs", "0"))
		return 100;
	/* What the process itself takes is there before the limit is. */
	user[0] = 1;
	snprintf(text, sizeof(text), "%ld", current_bytes() + *(long *)arg);
	if (write_text(CGROUP "/memory.max", text))
		return 101;
	for (int i = 0; i < OPS_MAX && ret >= 0; i++)
		ret = op();
	if (ret < 0 && ret != -ENOMEM)
		printf("# %d (%s)\n", ret, strerror(-ret));
	fflush(stdout);
	return ret >= 0 ? 0 : ret == -ENOMEM ? 1 : 2;
}

static int nr_short;	/* times that there was too little memory */

static void sweep_cgroup(const char *name)
{
	int good = 0, failed = 0, killed = 0, other = 0, left = 0;
	struct state before = state_now();

	for (long room = 0; room < 64 * 4096; room += room < 8 * 4096 ? 4096 : 8 * 4096) {
		int status = in_child(in_cgroup, &room);

		good += status == 0;
		failed += status == 1;
		killed += status == 128 + 9;
		other += status != 0 && status != 1 && status != 128 + 9;
		if (status > 1 && status != 128 + 9)
			printf("# with room for %ld bytes: %d\n", room, status);
		write_text(CGROUP "/memory.max", "max");
		left += !state_is(&before);
	}
	printf("# %s: %d good, %d failed, %d killed\n", name, good, failed, killed);
	nr_short += failed + killed;
	check_int(other, 0, "memory cgroup: %s: works, or ENOMEM, or its process is killed", name);
	check_int(left, 0, "memory cgroup: %s: nothing is left", name);
}

/* What a kernel that only ran out of a cgroup's memory does not print. */
static int bad_lines(int kmsg)
{
	static const char *const bad[] = {
		"WARNING:", "BUG", "Oops", "refcount_t", "general protection", "corruption", "Bad page", "unable to handle",
		"page allocation failure", "sleeping function", "scheduling while",
	};
	char line[8192];
	int n = 0;
	ssize_t len;

	while ((len = read(kmsg, line, sizeof(line) - 1)) > 0 || errno == EPIPE) {
		line[len > 0 ? len : 0] = '\0';
		for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			if (strstr(line, bad[i])) {
				printf("# %s", line);
				n++;
			}
		errno = 0;
	}
	return n;
}

static void test_cgroup(void)
{
	int kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char level[64] = "7 4 1 7";
	int fd = open(QUIET, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, level, sizeof(level) - 1);
	long bytes = -1;

	level[n > 0 ? n : 0] = '\0';
	close(fd);
	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP, 0755) || write_text(CGROUP "/memory.max", "max")) {
		skip("memory cgroup", "no memory controller in the second version's hierarchy");
		return;
	}
	write_text(CGROUP "/memory.swap.max", "0");
	lseek(kmsg, 0, SEEK_END);
	write_text("/proc/sys/vm/oom_dump_tasks", "0");
	write_text(QUIET, "1");
	for (unsigned int i = 0; i < NR_OPS; i++) {
		op = ops[i].fn;
		sweep_cgroup(ops[i].name);
	}
	check(nr_short > 50, "memory cgroup: %d times there was too little", nr_short);
	check_int(bad_lines(kmsg), 0, "memory cgroup: the kernel's log tells of no trouble but full cgroups");
	write_text(QUIET, level);
	write_text("/proc/sys/vm/oom_dump_tasks", "1");
	close(kmsg);
	/* All that was charged comes back. */
	for (int tries = 0; tries < 3000 && (bytes = current_bytes()) > 1 << 20; tries++)
		usleep(10000);
	check(bytes >= 0 && bytes <= 1 << 20, "memory cgroup: what was charged to it has come back");
	printf("# %ld bytes\n", bytes);
	for (int tries = 0; tries < 3000 && rmdir(CGROUP); tries++)
		usleep(10000);
	check(access(CGROUP, F_OK), "memory cgroup: can be removed");
}

int main(void)
{
	if (!getenv("SITS_VM")) {
		printf("1..0 # SKIP this belongs into a virtual machine\n");
		return 0;
	}
	open_dev();
	find_edu();
	user = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(user, 1, 16 * PAGE);
	region = create(SITS_KIND_PINNED, 0, 16 * PAGE);
	need(region >= 0, "a region");
	test_memlock();
	queue = make_queue("limit");
	need(queue >= 0, "a queue");
	test_files();
	check_int(in_child(with_little_space, NULL), 0, "RLIMIT_AS: mappings are refused, and don't count");
	test_cgroup();
	close(queue);
	close(region);
	check(nothing_left(), "nothing is left");
	return done();
}
