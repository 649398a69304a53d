// SPDX-License-Identifier: MIT
/*
 * region_limit_test.c - who may make regions, what they are charged to, what happens at each limit, what is to be seen
 * of it, and when the module can go. At the end of each test nothing may be left over.
 */
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "region_common.h"

#define PARAM(name) "/sys/module/sits/parameters/" #name
#define STAT(name) "/sys/class/misc/sits/" #name
#define CGROUP "/sys/fs/cgroup/sits-test"
#define TRACING "/sys/kernel/tracing"
#define GID 4711

static int other_fd;	/* made by a parent */

static void become_nobody(gid_t group)
{
	need(!setgroups(group ? 1 : 0, &group) && !setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534),
	     "setuid");
}

static void limit_memlock(unsigned long bytes)
{
	struct rlimit l = { bytes, bytes };

	need(!setrlimit(RLIMIT_MEMLOCK, &l), "setrlimit");
}

static long locked_kb(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long kb = -1;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmLck: %ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

/* Children exit with the number of the first step that went wrong, 0 if none. */

static int stranger(void *arg)
{
	struct sits_region_facts f = { .size = sizeof(f), .fd = other_fd };
	struct sits_dma_map m = { .size = sizeof(m), .flags = 1, .fd = other_fd, .device = "0000:00:00.0" };
	struct sits_get_info i = { .size = sizeof(i) };

	become_nobody(0);
	open_dev();
	if (create(SITS_KIND_PINNED, 0, PAGE) != -EPERM)
		return 1;
	if (import(SITS_IMPORT_USER, -1, (void *)PAGE, PAGE) != -EPERM)
		return 2;
	if (seal(other_fd, 0) != -EPERM || allow(other_fd, "*") != -EPERM)
		return 3;
	if (xioctl(dev, SITS_IOC_DMA_MAP, &m) != -EPERM)
		return 4;
	/* Whoever was given a region may look at it. */
	if (xioctl(dev, SITS_IOC_REGION_INFO, &f) || xioctl(dev, SITS_IOC_GET_INFO, &i))
		return 5;
	return 0;
}

static int member(void *arg)
{
	int a, b;

	become_nobody(GID);
	open_dev();
	limit_memlock(16 * PAGE);
	a = create(SITS_KIND_PINNED, 0, 16 * PAGE);
	if (a < 0)
		return 1;
	if (locked_kb() != 64)
		return 2;
	if (create(SITS_KIND_PINNED, 0, PAGE) != -ENOMEM)
		return 3;
	if (create(SITS_KIND_HUGE, 0, 1) != -ENOMEM)
		return 4;
	close(a);
	if (locked_kb() != 0)
		return 5;
	b = create(SITS_KIND_PROTECTED, 0, 16 * PAGE);
	if (b < 0)
		return 6;
	close(b);
	a = create(SITS_KIND_PINNED, 0, 8 * PAGE);
	char *p = map(a, 8 * PAGE, PROT_READ | PROT_WRITE);
	if (is_err(p))
		return 7;
	/* Pinned memory counts once more. */
	b = import(SITS_IMPORT_USER, -1, p, 8 * PAGE);
	if (b < 0)
		return 8;
	if (import(SITS_IMPORT_USER, -1, p, PAGE) != -ENOMEM)
		return 9;
	close(b);
	if (locked_kb() != 32)
		return 10;
	return 0;
}

/* The right to make regions is the opener's. */
static int dropped(void *arg)
{
	open_dev();
	become_nobody(0);
	limit_memlock(PAGE);
	if (create(SITS_KIND_PINNED, 0, 2 * PAGE) != -ENOMEM)
		return 1;
	if (create(SITS_KIND_PINNED, 0, PAGE) < 0)
		return 2;
	return 0;
}

static void test_rights(void)
{
	struct stat st;

	check(!stat(SITS_DEV_PATH, &st) && (st.st_mode & 0777) == 0666, "the device is open to all");
	other_fd = create(SITS_KIND_PROTECTED, 0, PAGE);
	check_int(in_child(stranger, NULL), 0, "without capability and group: only to look");
	check_int(write_text(PARAM(owner_gid), "4711"), 0, "set the owner group");
	check_int(in_child(stranger, NULL), 0, "who is not a member: as before");
	close(other_fd);
	check_int(in_child(member, NULL), 0, "a member: within RLIMIT_MEMLOCK");
	check_int(write_text(PARAM(owner_gid), "-1"), 0, "set no owner group");
	check_int(in_child(member, NULL), 1, "then it may not");
	check_int(in_child(dropped, NULL), 0, "who opened as root and became nobody: within RLIMIT_MEMLOCK");
	check(nothing_left(), "rights: nothing is left");
}

static void test_module_limit(void)
{
	int a, b;

	check_int(write_text(PARAM(region_limit_bytes), "1048576"), 0, "module's limit: 1 MiB");
	check_int(info().region_limit_bytes, 1048576, "module's limit: told");
	check_int(create(SITS_KIND_HUGE, 0, 1), -EDQUOT, "module's limit: too large");
	a = create(SITS_KIND_PINNED, 0, 1048576 - PAGE);
	check(a >= 0, "module's limit: all but a page");
	check_int(create(SITS_KIND_PINNED, 0, PAGE + 1), -EDQUOT, "module's limit: a page too much");
	b = create(SITS_KIND_PINNED, 0, PAGE);
	check(b >= 0, "module's limit: the last page");
	check_int(create(SITS_KIND_PINNED, 0, 1), -EDQUOT, "module's limit: nothing is left");
	close(a);
	close(b);
	check_int(write_text(PARAM(region_limit_bytes), "0"), 0, "module's limit: none");
	a = create(SITS_KIND_HUGE, 0, 1);
	check(a >= 0, "module's limit: then a larger one can be made");
	close(a);
	check(nothing_left(), "module's limit: nothing is left");
}

static long current_bytes(void)
{
	return read_number(CGROUP "/memory.current");
}

static int in_cgroup(void *arg)
{
	long before, failures = 0;
	int fd;

	if (write_text(CGROUP "/cgroup.procs", "0"))
		return 1;
	before = current_bytes();
	fd = create(SITS_KIND_PINNED, 0, 8 << 20);
	if (fd < 0)
		return 2;
	if (current_bytes() < before + (8 << 20))
		return 3;
	close(fd);
	for (int tries = 0; tries < 3000 && current_bytes() > before + (4 << 20); tries++)
		usleep(10000);
	if (current_bytes() > before + (4 << 20))
		return 4;
	for (int i = 0; i < 20; i++) {
		failures += create(SITS_KIND_PINNED, 0, (32 + i) << 20) == -ENOMEM;
		failures += create(SITS_KIND_HUGE, 0, (32 + i) << 20) == -ENOMEM;
		failures += create(SITS_KIND_PROTECTED, SITS_CREATE_REQUIRE_HUGE, (32 + i) << 20) == -ENOMEM;
	}
	return failures == 60 ? 0 : 5;
}

/*
 * Fail at another page each time: what was made until then is given back. The limit is never below what is in use, and
 * there is room for what the kernel itself allocates: both would wake the OOM killer, whatever the module does.
 */
static int in_small_cgroup(void *arg)
{
	int failed = 0;
	char text[32];

	if (write_text(CGROUP "/cgroup.procs", "0"))
		return 1;
	for (int i = 0; i < 64; i++) {
		snprintf(text, sizeof(text), "%ld", current_bytes() + (1 << 18) + i * 3 * 4096L);
		write_text(CGROUP "/memory.max", text);
		failed += create(i % 2 ? SITS_KIND_PINNED : SITS_KIND_PROTECTED, 0, 512 * PAGE - 1) == -ENOMEM;
		write_text(CGROUP "/memory.max", "max");
	}
	return failed == 64 ? 0 : 2;
}

static void test_cgroup(void)
{
	FILE *f;
	char line[128];
	long kills = -1;

	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP, 0755) || write_text(CGROUP "/memory.max", "25165824")) {
		skip("memory cgroup", "no memory controller in the second version's hierarchy");
		return;
	}
	check_int(in_child(in_cgroup, NULL), 0, "memory cgroup: charged, and full");
	check_int(write_text(CGROUP "/memory.max", "max"), 0, "memory cgroup: without limit");
	check_int(in_child(in_small_cgroup, NULL), 0, "memory cgroup: full at 64 different moments");
	f = fopen(CGROUP "/memory.events", "re");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "oom_kill %ld", &kills);
	if (f)
		fclose(f);
	check_int(kills, 0, "memory cgroup: nobody was killed for it");
	check(nothing_left(), "memory cgroup: nothing is left");
	for (int tries = 0; tries < 3000 && rmdir(CGROUP); tries++)
		usleep(10000);
	check(access(CGROUP, F_OK), "memory cgroup: can be removed");
}

static void test_descriptors(void)
{
	struct rlimit l, few = { 8, 1024 };
	char *user = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fds[64], n = 0;

	getrlimit(RLIMIT_NOFILE, &l);
	few.rlim_max = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &few);
	while (n < 64 && (fds[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	check_int(create(SITS_KIND_PINNED, 0, PAGE), -EMFILE, "no descriptor is free: create");
	check_int(import(SITS_IMPORT_USER, -1, user, PAGE), -EMFILE, "no descriptor is free: import");
	while (n)
		close(fds[--n]);
	setrlimit(RLIMIT_NOFILE, &l);
	munmap(user, PAGE);
	check(nothing_left(), "no descriptor is free: nothing is left");
}

/* Output fields can't be written: the region must not stay behind a descriptor that nobody knows. */
static void test_readonly_struct(void)
{
	struct sits_region_create *arg = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int before = nr_fds();

	*arg = (struct sits_region_create) { .size = sizeof(*arg), .len_bytes = PAGE, .kind = SITS_KIND_PINNED, .node = -1 };
	mprotect(arg, PAGE, PROT_READ);
	check_int(xioctl(dev, SITS_IOC_REGION_CREATE, arg), -EFAULT, "struct can't be written");
	check_int(nr_fds(), before, "struct can't be written: no descriptor");
	check(nothing_left(), "struct can't be written: nothing is left");
	munmap(arg, PAGE);
}

static bool file_has(const char *path, const char *text)
{
	static char buf[1 << 16];
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(buf, 1, sizeof(buf) - 1, f) : 0;

	if (f)
		fclose(f);
	buf[n] = '\0';
	return strstr(buf, text);
}

static void test_seen(void)
{
	long made = read_number(STAT(regions_created)), failed = read_number(STAT(regions_failed));
	char path[64];
	int fd;

	check(made > 0 && failed > 0, "counters: made and failed so far");
	write_text(TRACING "/events/sits/enable", "1");
	fd = create_named(SITS_KIND_HUGE, 0, HUGE, "seen-by-all");
	create(SITS_KIND_PINNED, 0, 1ul << 45);
	check_int(read_number(STAT(regions)), 1, "counters: regions");
	check_int(read_number(STAT(region_used_bytes)), HUGE, "counters: bytes");
	check_int(read_number(STAT(regions_created)), made + 1, "counters: made");
	check_int(read_number(STAT(regions_failed)), failed + 1, "counters: failed");
	check(read_number(STAT(imports_refused)) >= 0 && read_number(STAT(importers)) == 0 &&
	      read_number(STAT(dma_maps)) == 0, "counters: the rest");
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	check(file_has(path, "seen-by-all") && file_has(path, "sits-huge"), "fdinfo of a region: name and kind");
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", dev);
	check(file_has(path, "sits-abi-version:\t1") && file_has(path, "sits-may-own:\t1"), "fdinfo of the device");
	seal(fd, SITS_SEAL_REVOKE);
	close(fd);
	check(nothing_left(), "seen: nothing is left");
	write_text(TRACING "/events/sits/enable", "0");
	check(file_has(TRACING "/trace", "sits_region_create: ") && file_has(TRACING "/trace", "name=seen-by-all kind=2"),
	      "tracepoints: create");
	check(file_has(TRACING "/trace", "sits_region_seal: ") && file_has(TRACING "/trace", "sits_region_revoke: ") &&
	      file_has(TRACING "/trace", "sits_region_free: "), "tracepoints: seal, revoke, free");
	write_text(TRACING "/trace", "");
}

static int unload(void)
{
	return syscall(SYS_delete_module, "sits", O_NONBLOCK) ? -errno : 0;
}

static void test_unload(void)
{
	int fd = create(SITS_KIND_PINNED, 0, PAGE);
	char *p = map(fd, PAGE, PROT_READ | PROT_WRITE);

	check_int(unload(), -EAGAIN, "unload: the device is open");
	close(dev);
	check_int(unload(), -EAGAIN, "unload: a region is open");
	close(fd);
	check_int(unload(), -EAGAIN, "unload: a region is mapped");
	p[0] = 1;
	munmap(p, PAGE);
	check_int(unload(), 0, "unload: nothing is left");
	check(access(SITS_DEV_PATH, F_OK) && access(STAT(regions), F_OK) && access("/sys/module/sits", F_OK),
	      "unload: device and counters are gone");
	check_int(system("modprobe sits"), 0, "load it again");
}

int main(void)
{
	open_dev();
	test_rights();
	test_module_limit();
	test_cgroup();
	test_descriptors();
	test_readonly_struct();
	test_seen();
	test_unload();
	return done();
}
