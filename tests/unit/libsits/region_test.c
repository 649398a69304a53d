// SPDX-License-Identifier: MIT
/*
 * region_test.c - regions: what they promise, attacked; what they report, compared with the kernel's own words in
 * /proc. For each provider in $SITS_TEST_PROVIDERS.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "libsits/internal.h"
#include "tests/unit/libsits/providers.h"
#include "tests/unit/libsits/queue_peer.h"

static char log_text[8192];

static void keep_log(void *arg, int severity, const char *line)
{
	size_t len = strlen(log_text);

	if (severity <= SITS_LOG_INFO)
		snprintf(log_text + len, sizeof(log_text) - len, "%d %s\n", severity, line);
}

static struct sits_ctx *open_ctx(void)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = test_provider,
				    .log = keep_log };
	struct sits_ctx *ctx;

	log_text[0] = '\0';
	assert_int_equal(sits_open(&o, &ctx), 0);
	return ctx;
}

static struct sits_region_opts region_opts(uint32_t kind, uint64_t len)
{
	return (struct sits_region_opts){
		.size = sizeof(struct sits_region_opts), .kind = kind, .node = -1,
		.len_bytes = len, .name = "test",
	};
}

static struct sits_region *create(struct sits_ctx *ctx, uint32_t kind, uint64_t len)
{
	struct sits_region_opts o = region_opts(kind, len);
	struct sits_region *r;

	assert_int_equal(sits_region_create(ctx, &o, &r), 0);
	return r;
}

/* The flags of the mapping at @addr, straight from the kernel: " rd wr sh ... ". */
static void vm_flags(const void *addr, char flags[512])
{
	FILE *f = fopen("/proc/self/smaps", "re");
	bool ours = false;
	char line[512];
	uint64_t a, b;

	flags[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &a, &b) == 2)
			ours = (uintptr_t)addr >= a && (uintptr_t)addr < b;
		if (ours && !strncmp(line, "VmFlags:", 8))
			strcpy(flags, line + 8);
	}
	fclose(f);
}

static bool has(const char *flags, const char *flag)
{
	char padded[8];

	snprintf(padded, sizeof(padded), " %s ", flag);
	return strstr(flags, padded);
}

/* Run @fn in a child; return its exit status, or 1000 + the signal that ended it. */
static int in_child(int (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(fn(arg));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* ------------------------------------------------------------------- the facts */

static void test_facts(void **state)
{
	static const uint64_t lens[] = { 1, 4096, 4097, 100000, 5 << 20 };
	struct sits_ctx *ctx = open_ctx();

	for (uint32_t kind = SITS_REGION_PINNED; kind <= SITS_REGION_PROTECTED; kind++) {
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			struct sits_region *r = create(ctx, kind, lens[i]);
			const uint8_t *data = sits_region_data(r);
			struct sits_region_info info;
			char flags[512];

			assert_non_null(data);
			assert_int_equal((uintptr_t)data % 64, 0);
			assert_int_equal(sits_region_len(r), lens[i]);
			assert_int_equal(sits_region_info(r, &info), 0);
			assert_int_equal(info.len_bytes, lens[i]);
			assert_int_equal(info.kind, kind);
			assert_true(info.mapped_bytes >= lens[i] && info.mapped_bytes % 4096 == 0);
			for (uint64_t at = 0; at < info.mapped_bytes; at++)
				assert_int_equal(data[at], 0);
			assert_int_equal(info.locked, 1);
			assert_int_equal(info.nodump, 1);
			assert_int_equal(info.nofork, 1);
			assert_int_equal(info.sealed, 0);
			assert_in_range(info.huge_bytes, 0, info.mapped_bytes);
			assert_true(info.page_bytes == 4096 || info.page_bytes == 2 << 20);
			assert_int_equal(info.page_bytes == 2 << 20,
					 info.huge_bytes == info.mapped_bytes);
			vm_flags(data, flags);
			assert_true(has(flags, "dd"));	/* not in core dumps */
			assert_true(has(flags, "dc"));	/* not in children */
			/* The module's own pages are not on any list of the kernel's to swap. */
			assert_true(has(flags, "lo") || has(flags, "ht") || test_on_kernel());
			assert_int_equal(has(flags, "wr"), kind != SITS_REGION_PROTECTED);
			if (kind == SITS_REGION_HUGE || info.huge_bytes)
				assert_int_equal((uintptr_t)data % (2 << 20), 0);
			sits_region_destroy(r);
		}
	}
	sits_close(ctx);
}

static uint64_t free_huge_pages(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long nr = 0;
	char line[128];

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "HugePages_Free: %llu", &nr) == 1)
			break;
	fclose(f);
	return nr;
}

/* Huge pages where the machine grants them; else a refusal, or a fallback that says so. */
static void test_huge_is_what_it_says(void **state)
{
	struct sits_region_opts o = region_opts(SITS_REGION_HUGE, 4 << 20);
	struct sits_ctx *ctx = open_ctx();
	struct sits_region_info info;
	struct sits_region *r;
	int ret;

	assert_int_equal(sits_region_create(ctx, &o, &r), 0);
	assert_int_equal(sits_region_info(r, &info), 0);
	print_message("# %" PRIu64 " of %" PRIu64 " bytes huge, %" PRIu64 " pages free in the pool\n",
		      info.huge_bytes, info.mapped_bytes, free_huge_pages());
	if (info.huge_bytes < info.mapped_bytes)
		assert_non_null(strstr(log_text, "in huge pages"));
	sits_region_destroy(r);
	o.flags = SITS_REGION_REQUIRE_HUGE;
	ret = sits_region_create(ctx, &o, &r);
	if (!ret) {
		assert_int_equal(sits_region_info(r, &info), 0);
		assert_int_equal(info.huge_bytes, info.mapped_bytes);
		assert_int_equal(info.page_bytes, 2 << 20);
		sits_region_destroy(r);
	} else {
		assert_int_equal(ret, -EOPNOTSUPP);
		assert_non_null(strstr(log_text, test_on_kernel() ? "compact_memory" : "vm.nr_hugepages"));
		assert_true(test_on_kernel() || free_huge_pages() < 2);
	}
	sits_close(ctx);
}

static void test_node(void **state)
{
	struct sits_region_opts o = region_opts(SITS_REGION_PINNED, 1 << 20);
	struct sits_ctx *ctx = open_ctx();
	struct sits_region_info info;
	struct sits_region *r;

	o.node = 0;
	assert_int_equal(sits_region_create(ctx, &o, &r), 0);
	assert_int_equal(sits_region_info(r, &info), 0);
	assert_int_equal(info.node, 0);
	sits_region_destroy(r);
	o.node = 900;	/* no machine of ours */
	assert_int_equal(sits_region_create(ctx, &o, &r), -EINVAL);
	assert_non_null(strstr(log_text, "NUMA node 900"));
	o.node = 100000;
	assert_int_equal(sits_region_create(ctx, &o, &r), -EINVAL);
	sits_close(ctx);
}

static void test_arguments(void **state)
{
	struct sits_ctx *ctx = open_ctx();
	struct sits_region_opts good = region_opts(SITS_REGION_PINNED, 4096), o;
	struct sits_region *r;
	char name[65];

	memset(name, 'n', sizeof(name));
	name[64] = '\0';
#define BAD(field_, value_) do { o = good; o.field_ = (value_); \
		assert_int_equal(sits_region_create(ctx, &o, &r), -EINVAL); } while (0)
	BAD(size, 0);
	BAD(size, sizeof(o) - 1);
	BAD(flags, 4);
	BAD(flags, SITS_REGION_REQUIRE_HUGE);	/* of PINNED */
	BAD(kind, 0);
	BAD(kind, 4);
	BAD(len_bytes, 0);
	BAD(len_bytes, UINT64_MAX);
	BAD(node, -2);
	BAD(name, name);
#undef BAD
	name[63] = '\0';
	good.name = name;
	assert_int_equal(sits_region_create(ctx, &good, &r), 0);
	sits_region_destroy(r);
	good.name = NULL;
	assert_int_equal(sits_region_create(ctx, &good, &r), 0);
	sits_region_destroy(r);
	/* More than the machine has: an error, not the OOM killer. */
	good.len_bytes = 1ull << 44;
	assert_int_equal(sits_region_create(ctx, &good, &r), -ENOMEM);
	assert_non_null(strstr(log_text, "available"));
	sits_region_destroy(NULL);
	sits_close(ctx);
}

/* A caller compiled against a later header, whose new fields are zero, is served. */
static void test_options_grow(void **state)
{
	struct {
		struct sits_region_opts o;
		uint64_t later;
	} big = { .o = region_opts(SITS_REGION_PINNED, 4096) };
	struct sits_ctx *ctx = open_ctx();
	struct sits_region *r;

	big.o.size = sizeof(big);
	assert_int_equal(sits_region_create(ctx, &big.o, &r), 0);
	sits_region_destroy(r);
	big.later = 1;
	assert_int_equal(sits_region_create(ctx, &big.o, &r), -EINVAL);
	sits_close(ctx);
}

/* ----------------------------------------------------------------- RLIMIT_MEMLOCK */

static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	syscall(SYS_capget, &h, d);
	d[0].effective &= ~(1u << CAP_IPC_LOCK);
	d[0].permitted &= ~(1u << CAP_IPC_LOCK);
	d[0].inheritable &= ~(1u << CAP_IPC_LOCK);
	syscall(SYS_capset, &h, d);
}

static int create_beyond_the_limit(void *arg)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };
	struct sits_region_opts o = region_opts(SITS_REGION_PINNED, 3 << 20);
	struct sits_region_info info;
	struct sits_region *r;
	struct sits_ctx *ctx = open_ctx();

	drop_ipc_lock();
	setrlimit(RLIMIT_MEMLOCK, &limit);
	if (sits_region_create(ctx, &o, &r) != -EPERM)
		return 1;
	/* The limit, the need, and how to raise it. */
	if (!strstr(log_text, "3 region 'test'"))
		return 2;
	if (!strstr(log_text, "needs 3072 KiB") || !strstr(log_text, "RLIMIT_MEMLOCK is 1024 KiB") ||
	    !strstr(log_text, "LimitMEMLOCK") || !strstr(log_text, "CAP_IPC_LOCK"))
		return 3;
	log_text[0] = '\0';
	o.flags = SITS_REGION_ALLOW_UNLOCKED;
	if (test_on_kernel()) {		/* has no other memory, and says who has */
		if (sits_region_create(ctx, &o, &r) != -EPERM || !strstr(log_text, "provider 'user'"))
			return 4;
	} else {
		if (sits_region_create(ctx, &o, &r))
			return 4;
		if (strncmp(log_text, "4 ", 2))		/* a warning */
			return 5;
		if (sits_region_info(r, &info) || info.locked)
			return 6;
		memset(sits_region_data(r), 1, 3 << 20);
		sits_region_destroy(r);
	}
	o.flags = 0;
	o.len_bytes = 512 << 10;		/* within it */
	if (sits_region_create(ctx, &o, &r) || sits_region_info(r, &info) || !info.locked)
		return 7;
	sits_region_destroy(r);
	limit.rlim_cur = limit.rlim_max = 0;
	setrlimit(RLIMIT_MEMLOCK, &limit);
	if (sits_region_create(ctx, &o, &r) != -EPERM)
		return 8;
	sits_close(ctx);
	return 0;
}

static void test_memlock_limit(void **state)
{
	assert_int_equal(in_child(create_beyond_the_limit, NULL), 0);
}

/* ---------------------------------------------------------------- sealing, attacked */

static int write_first_byte(void *arg)
{
	*(volatile uint8_t *)arg = 1;
	return 0;
}

/* Every way to a second writer, through @fd. Return: 0, or the number of the one that worked. */
static int attack(int fd, size_t len)
{
	char path[64];
	int again;
	void *p;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);	/* root may: it must not help */
	for (int i = 0; i < 2; i++) {
		int f = i ? again : fd;

		if (f < 0)
			continue;
		if (mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0) != MAP_FAILED)
			return 10 * i + 1;
		p = mmap(NULL, len, PROT_READ, MAP_SHARED, f, 0);
		if (p == MAP_FAILED)
			return 10 * i + 2;	/* reading is allowed */
		if (!mprotect(p, len, PROT_READ | PROT_WRITE))
			return 10 * i + 3;
		munmap(p, len);
		if (pwrite(f, "x", 1, 0) >= 0)
			return 10 * i + 4;
		if (!ftruncate(f, 0) || !ftruncate(f, (off_t)len * 2))
			return 10 * i + 5;
		if (!fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096))
			return 10 * i + 6;
		if (!fallocate(f, FALLOC_FL_ZERO_RANGE, 0, 4096))
			return 10 * i + 7;
		if (!fcntl(f, F_ADD_SEALS, F_SEAL_SEAL))
			return 10 * i + 8;
	}
	if (again >= 0)
		close(again);
	return 0;
}

static void test_no_second_writer(void **state)
{
	struct sits_ctx *ctx = open_ctx();

	for (uint32_t kind = SITS_REGION_PINNED; kind <= SITS_REGION_PROTECTED; kind++) {
		struct sits_region *r = create(ctx, kind, 2 << 20);
		struct sits_region_info info;
		uint8_t *data = sits_region_data(r);

		/* Already before the seal there is one writable mapping, the owner's; the kernel provider promises it after. */
		if (!test_on_kernel() || kind == SITS_REGION_PROTECTED)
			assert_int_equal(attack(sits_region_fd(r), 2 << 20), 0);
		if (kind != SITS_REGION_PROTECTED)
			memset(data, 0xa5, 2 << 20);
		assert_int_equal(sits_region_seal(r), 0);
		assert_int_equal(sits_region_seal(r), 0);	/* for good: again is fine */
		assert_ptr_equal(sits_region_data(r), data);
		assert_int_equal(data[12345], kind != SITS_REGION_PROTECTED ? 0xa5 : 0);
		assert_int_equal(attack(sits_region_fd(r), 2 << 20), 0);
		assert_int_equal(sits_region_info(r, &info), 0);
		assert_int_equal(info.sealed, 1);
		sits_region_destroy(r);
	}
	sits_close(ctx);
}

/* Another writer, where the provider allows one: it is seen, and nothing is sealed behind its back. */
static void test_seal_waits_for_writers(void **state)
{
	struct sits_ctx *ctx = open_ctx();
	struct sits_region *r = create(ctx, SITS_REGION_PINNED, 4096);
	volatile uint8_t *data = sits_region_data(r);
	uint8_t *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, sits_region_fd(r), 0);

	assert_int_equal(other != MAP_FAILED, test_on_kernel());
	if (other != MAP_FAILED) {
		log_text[0] = '\0';
		assert_int_equal(sits_region_seal(r), -EBUSY);
		assert_non_null(strstr(log_text, "3 region 'test': can't be sealed"));
		*data = 1;		/* as it was */
		other[1] = 2;
		munmap(other, 4096);
	}
	*data = 1;
	assert_int_equal(sits_region_seal(r), 0);
	assert_ptr_equal(sits_region_data(r), data);
	assert_int_equal(data[1], test_on_kernel() ? 2 : 0);
	sits_region_destroy(r);
	sits_close(ctx);
}

static sigjmp_buf on_fault;

static void fault_handler(int sig)
{
	siglongjmp(on_fault, sig);
}

static int read_first_byte(void *arg)
{
	return *(volatile uint8_t *)arg;
}

/* Return: 0 where the access went through, else the signal. */
static int try_access(int (*fn)(void *), void *p)
{
	struct sigaction sa = { .sa_handler = fault_handler }, segv, bus;
	int sig;

	sigaction(SIGSEGV, &sa, &segv);
	sigaction(SIGBUS, &sa, &bus);
	sig = sigsetjmp(on_fault, 1);
	if (!sig)
		fn(p);
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return sig;
}

static int try_write(void *p)
{
	return try_access(write_first_byte, p);
}

static void test_owner_cannot_write_by_accident(void **state)
{
	struct sits_ctx *ctx = open_ctx();
	struct sits_region *r = create(ctx, SITS_REGION_PINNED, 4096);
	struct iovec local = { (void *)(uintptr_t)"x", 1 }, remote;

	assert_int_equal(try_write(sits_region_data(r)), 0);
	sits_region_seal(r);
	assert_int_equal(try_write(sits_region_data(r)), SIGSEGV);
	/* Nor the kernel on somebody's behalf. */
	remote = (struct iovec){ sits_region_data(r), 1 };
	assert_int_equal(syscall(SYS_process_vm_writev, getpid(), &local, 1, &remote, 1, 0), -1);
	assert_int_equal(*(uint8_t *)sits_region_data(r), 1);
	sits_region_destroy(r);
	r = create(ctx, SITS_REGION_PROTECTED, 4096);
	assert_int_equal(try_write(sits_region_data(r)), SIGSEGV);
	sits_region_destroy(r);
	sits_close(ctx);
}

/* -------------------------------------------------------------------- fork and exec */

static void test_child_has_no_mapping(void **state)
{
	struct sits_ctx *ctx = open_ctx();
	struct sits_region *r = create(ctx, SITS_REGION_PINNED, 4096);
	uint8_t *data = sits_region_data(r);

	*data = 7;
	if (!PEER_SANITIZED)
		assert_int_equal(in_child(write_first_byte, data), 1000 + SIGSEGV);
	else
		assert_int_not_equal(in_child(write_first_byte, data), 0);
	assert_int_equal(*data, 7);
	assert_true(fcntl(sits_region_fd(r), F_GETFD) & FD_CLOEXEC);
	sits_region_destroy(r);
	sits_close(ctx);
}

/* Ten letters that stand together nowhere in this program: made while it runs. */
static void make_letters(char *out, char first)
{
	static const char steps[] = "AHFCMBKDPE";

	for (int i = 0; i < 10; i++)
		out[i] = (char)(steps[i] + (first - 'A'));
	out[10] = '\0';
}

/* Crash with a region full of one pattern, and ordinary memory full of another. */
static int dump_core(void *arg)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	struct sits_ctx *ctx = open_ctx();
	struct sits_region *r = create(ctx, SITS_REGION_PINNED, 1 << 20);
	char *data = sits_region_data(r), *plain = malloc(1 << 20);

	make_letters(data, 'D');
	make_letters(plain, 'G');
	for (size_t i = 10; i < 1 << 20; i++) {
		data[i] = data[i - 10];
		plain[i] = plain[i - 10];
	}
	setrlimit(RLIMIT_CORE, &unlimited);
	prctl(PR_SET_DUMPABLE, 1);
	if (chdir(arg))
		return 1;
	abort();
}

static void read_line(const char *path, char *out, int len)
{
	FILE *f = fopen(path, "re");

	if (f && !fgets(out, len, f))
		out[0] = '\0';
	if (f)
		fclose(f);
}

static size_t count_in_file(const char *path, const char *needle)
{
	size_t len, found = 0, want = strlen(needle);
	struct stat st;
	uint8_t *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return SIZE_MAX;
	fstat(fd, &st);
	len = (size_t)st.st_size;
	p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return SIZE_MAX;
	for (size_t i = 0; i + want <= len; i++)
		found += !memcmp(p + i, needle, want);
	munmap(p, len);
	return found;
}

static void test_core_dump_lacks_it(void **state)
{
	char dir[] = "/tmp/sits-core-XXXXXX", path[64], pattern[128] = "";
	char letters[11], uses_pid[16] = "";
	int status;

	read_line("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern));
	read_line("/proc/sys/kernel/core_uses_pid", uses_pid, sizeof(uses_pid));
	if (strcmp(pattern, "core\n") || strcmp(uses_pid, "0\n") || PEER_SANITIZED) {
		print_message("# skip: %s%s", PEER_SANITIZED ? "no core dumps under a sanitizer; " :
			      "cores do not go to the file core; core_pattern is ", pattern);
		skip();
	}
	assert_non_null(mkdtemp(dir));
	status = in_child(dump_core, dir);
	assert_int_equal(status, 1000 + SIGABRT);
	snprintf(path, sizeof(path), "%s/core", dir);
	make_letters(letters, 'G');
	assert_in_range(count_in_file(path, letters), 1000, SIZE_MAX - 1);
	make_letters(letters, 'D');
	assert_int_equal(count_in_file(path, letters), 0);
	unlink(path);
	rmdir(dir);
}

/* ---------------------------------------------------------------------------- wiping */

/* Who kept the descriptor has nothing after destroy, sealed or not: zeros, or no mapping any more. */
static void test_destroy_wipes(void **state)
{
	struct sits_ctx *ctx = open_ctx();

	for (int sealed = 0; sealed < 2; sealed++) {
		struct sits_region *r = create(ctx, SITS_REGION_PINNED, 3 << 20);
		int kept = fcntl(sits_region_fd(r), F_DUPFD_CLOEXEC, 0);
		const uint8_t *p = mmap(NULL, 3 << 20, PROT_READ, MAP_SHARED, kept, 0);

		assert_true(p != MAP_FAILED);
		memset(sits_region_data(r), 0x5a, 3 << 20);
		assert_int_equal(p[(3 << 20) - 1], 0x5a);
		if (sealed)
			sits_region_seal(r);
		sits_region_destroy(r);
		for (size_t i = 0; i < 3 << 20; i++)
			if (test_on_kernel() ? i % 4096 == 0 && try_access(read_first_byte, (uint8_t *)(uintptr_t)p + i) != SIGBUS :
			    p[i])
				fail_msg("byte %zu is left", i);
		if (test_on_kernel())
			assert_true(mmap(NULL, 4096, PROT_READ, MAP_SHARED, kept, 0) == MAP_FAILED);
		munmap((void *)(uintptr_t)p, 3 << 20);
		close(kept);
	}
	sits_close(ctx);
}

/* ------------------------------------------------------------------- loading into it */

static void test_load_hooks(void **state)
{
	static const uint8_t digest[32] = { 1, 2, 3 };
	struct sits_ctx *ctx;

	if (test_on_kernel()) {
		print_message("# skip: the kernel fills regions itself: see weights_test\n");
		skip();
	}
	ctx = open_ctx();
	for (uint32_t kind = SITS_REGION_PINNED; kind <= SITS_REGION_PROTECTED; kind++) {
		struct sits_region *r = create(ctx, kind, 100000);
		struct sits_region_info info;
		void *data, *twice;

		assert_int_equal(sits_region_load_begin(r, &data), 0);
		assert_null(sits_region_data(r));
		assert_int_equal(sits_region_fd(r), -EBUSY);
		assert_int_equal(sits_region_load_begin(r, &twice), -EBUSY);
		assert_int_equal(sits_region_seal(r), -EBUSY);
		memset(data, 9, sits_region_mapped(r));
		sits_region_load_fail(r);
		assert_null(sits_region_data(r));		/* until a load succeeds */
		assert_int_equal(sits_region_seal(r), -ENODATA);
		assert_int_equal(sits_region_load_finish(r, digest, false), -EINVAL);
		for (size_t i = 0; i < 100000; i++)
			assert_int_equal(((uint8_t *)data)[i], 0);
		assert_int_equal(sits_region_info(r, &info), 0);
		assert_int_equal(info.sealed, 0);

		assert_int_equal(sits_region_load_begin(r, &data), 0);
		memset(data, 8, 100000);
		assert_int_equal(sits_region_load_finish(r, digest, false), 0);
		assert_ptr_equal(sits_region_data(r), data);
		assert_int_equal(((uint8_t *)data)[99999], 8);
		assert_int_equal(try_write(data), SIGSEGV);
		assert_int_equal(attack(sits_region_fd(r), 4096), 0);
		assert_int_equal(sits_region_info(r, &info), 0);
		assert_int_equal(info.sealed, 1);
		assert_memory_equal(info.digest, digest, 32);
		assert_int_equal(sits_region_load_begin(r, &data), -EPERM);
		sits_region_load_fail(r);			/* nothing runs: nothing happens */
		assert_int_equal(((const uint8_t *)sits_region_data(r))[99999], 8);
		sits_region_destroy(r);
	}
	sits_close(ctx);
}

/* ------------------------------------------------------------------------- no growth */

static void test_no_growth(void **state)
{
	const int rounds = test_rounds(2100, 400);
	struct sits_ctx *ctx = open_ctx();
	size_t fds = 0, maps = 0;
	long rss = 0;

	for (int i = 0; i < rounds; i++) {
		struct sits_region *r;

		if (i == 100) {
			fds = peer_nr_fds();
			maps = peer_nr_maps();
			rss = peer_rss_kib();
		}
		log_text[0] = '\0';
		r = create(ctx, 1 + (uint32_t)i % 3, 1 + (uint64_t)i * 97);
		if (i % 2)
			sits_region_seal(r);
		sits_region_destroy(r);
	}
	assert_int_equal(peer_nr_fds(), fds);
	assert_true(peer_nr_maps() <= maps + (PEER_SANITIZED ? 100 : 2));
	if (!PEER_SANITIZED)
		assert_true(peer_rss_kib() < rss + 2048);
	sits_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_huge_is_what_it_says),
		cmocka_unit_test(test_node),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_options_grow),
		cmocka_unit_test(test_memlock_limit),
		cmocka_unit_test(test_no_second_writer),
		cmocka_unit_test(test_seal_waits_for_writers),
		cmocka_unit_test(test_owner_cannot_write_by_accident),
		cmocka_unit_test(test_child_has_no_mapping),
		cmocka_unit_test(test_core_dump_lacks_it),
		cmocka_unit_test(test_destroy_wipes),
		cmocka_unit_test(test_load_hooks),
		cmocka_unit_test(test_no_growth),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return run_on_providers(tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
