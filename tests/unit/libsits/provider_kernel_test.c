// SPDX-License-Identifier: MIT
/*
 * provider_kernel_test.c - the kernel provider without the module: a fake stands in for open() and ioctl(), looks at
 * each field that is sent and gives the answers. Its regions are memfds. Queues and channels have tests of their own.
 */
#include <inttypes.h>
#include <keyutils.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "libsits/device.h"
#include "libsits/internal.h"
#include "libsits/journal.h"
#include "libsits/key.h"
#include "tests/unit/libsits/sealed_util.h"

#define ALL (SITS_FEATURE_REGION | SITS_FEATURE_WEIGHTS | SITS_FEATURE_QUEUE)

/* What the fake answers, and what it saw. */
static struct {
	int open_errno, info_errno, create_errno, facts_errno, seal_errno, load_errno;
	uint32_t abi;
	uint64_t features, limit, used;
	struct sits_region_facts facts;		/* of the region; len and fd are the caller's */
	const void *data;			/* where the region is mapped, to be looked at during calls */
	uint32_t load_state;			/* added to the state after a load */
	uint64_t bad_chunk;
	bool bad_header_once, wait_for_cancel, other_digest;
	uint8_t digest[SITS_DIGEST_LEN];

	const char *path;
	int open_flags, dev_fd, memfd;
	int nr_opens, nr_creates, nr_seals, nr_loads;
	struct sits_region_create create;
	struct sits_region_seal seal;
	struct sits_weights_load load;
	struct sits_map_facts map_at_seal, map_at_load;
	bool key_found, key_readable;
} fake;

static int refuse(int err)
{
	errno = err;
	return -1;
}

static int fake_open(const char *path, int flags)
{
	fake.path = path;
	fake.open_flags = flags;
	fake.nr_opens++;
	if (fake.open_errno)
		return refuse(fake.open_errno);
	fake.dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return fake.dev_fd;
}

static int fake_get_info(struct sits_get_info *info)
{
	assert_int_equal(info->size, sizeof(*info));
	assert_int_equal(info->flags, 0);
	if (fake.info_errno)
		return refuse(fake.info_errno);
	info->abi_version = fake.abi;
	info->features = fake.features;
	info->region_limit_bytes = fake.limit;
	info->region_used_bytes = fake.used;
	return 0;
}

static int fake_create(struct sits_region_create *arg)
{
	uint64_t unit = arg->kind == SITS_KIND_HUGE ? 2 << 20 : 4096;

	fake.nr_creates++;
	fake.create = *arg;
	assert_int_equal(arg->size, sizeof(*arg));
	if (fake.create_errno)
		return refuse(fake.create_errno);
	fake.facts.len_bytes = arg->len_bytes;
	fake.facts.mapped_bytes = (arg->len_bytes + unit - 1) / unit * unit;
	fake.facts.kind = arg->kind;
	fake.memfd = memfd_create("fake", MFD_CLOEXEC);
	assert_true(fake.memfd >= 0);
	assert_int_equal(ftruncate(fake.memfd, (off_t)fake.facts.mapped_bytes), 0);
	arg->fd = fake.memfd;
	return 0;
}

static int fake_facts(struct sits_region_facts *arg)
{
	assert_int_equal(arg->size, sizeof(*arg));
	assert_int_equal(arg->flags, 0);
	assert_int_equal(arg->fd, fake.memfd);
	if (fake.facts_errno)
		return refuse(fake.facts_errno);
	*arg = fake.facts;
	return 0;
}

static int fake_seal(struct sits_region_seal *arg)
{
	fake.nr_seals++;
	fake.seal = *arg;
	assert_int_equal(arg->size, sizeof(*arg));
	assert_int_equal(arg->reserved, 0);
	assert_int_equal(arg->fd, fake.memfd);
	if (fake.data)
		assert_int_equal(sits_map_facts(fake.data, fake.facts.mapped_bytes, &fake.map_at_seal), 0);
	if (fake.seal_errno)
		return refuse(fake.seal_errno);
	fake.facts.state |= SITS_REGION_F_SEALED;
	return 0;
}

/* The key, as the kernel would look for it: this is the thread that issues the load. */
static void look_for_key(const char *desc)
{
	long id = keyctl_search(KEY_SPEC_THREAD_KEYRING, "logon", desc, 0);
	char buf[64];

	fake.key_found = id >= 0;
	fake.key_readable = id >= 0 && keyctl_read((key_serial_t)id, buf, sizeof(buf)) >= 0;
}

static int fake_load(struct sits_weights_load *arg)
{
	fake.nr_loads++;
	fake.load = *arg;
	if (fake.data)
		sits_map_facts(fake.data, fake.facts.mapped_bytes, &fake.map_at_load);
	look_for_key((const char *)arg->key);
	arg->bad_chunk = fake.bad_chunk;
	arg->progress_bytes = 4096;
	while (fake.wait_for_cancel && !__atomic_load_n(&arg->cancel, __ATOMIC_RELAXED))
		sched_yield();
	if (fake.wait_for_cancel)
		return refuse(ECANCELED);
	if (fake.bad_header_once && fake.nr_loads == 1) {
		arg->bad_chunk = SITS_BAD_HEADER;
		return refuse(EBADMSG);
	}
	fake.facts.state |= fake.load_state;
	if (fake.load_errno)
		return refuse(fake.load_errno);
	fake.facts.state |= SITS_REGION_F_SEALED | SITS_REGION_F_LOADED;
	memcpy(arg->digest, fake.digest, sizeof(arg->digest));
	if (fake.other_digest)
		arg->digest[0] ^= 1;
	arg->plain_bytes = 10000;
	arg->model_version = 7;
	return 0;
}

static int fake_ioctl(int fd, unsigned long cmd, void *arg)
{
	assert_int_equal(fd, fake.dev_fd);
	switch (cmd) {
	case SITS_IOC_GET_INFO:
		return fake_get_info(arg);
	case SITS_IOC_REGION_CREATE:
		return fake_create(arg);
	case SITS_IOC_REGION_INFO:
		return fake_facts(arg);
	case SITS_IOC_REGION_SEAL:
		return fake_seal(arg);
	case SITS_IOC_WEIGHTS_LOAD:
		return fake_load(arg);
	}
	return refuse(ENOTTY);
}

/* ---------------------------------------------------------------------- opening */

static int try_open(uint32_t provider, struct sits_ctx **out)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = provider, .log = keep_line };

	log_clear();
	*out = NULL;
	return sits_open(&o, out);
}

static struct sits_ctx *open_kernel(void)
{
	struct sits_ctx *c;

	assert_int_equal(try_open(SITS_PROVIDER_KERNEL, &c), 0);
	assert_string_equal(sits_provider_name(c), "kernel");
	return c;
}

static int reset(void **state)
{
	memset(&fake, 0, sizeof(fake));
	fake.abi = SITS_ABI_VERSION;
	fake.features = ALL;
	fake.memfd = fake.dev_fd = -1;
	fake.facts.size = sizeof(fake.facts);
	fake.facts.page_bytes = 4096;
	return 0;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void device_is_opened_and_closed(void **state)
{
	struct sits_ctx *c = open_kernel();
	int fd = fake.dev_fd;

	assert_string_equal(fake.path, "/dev/sits");
	assert_int_equal(fake.open_flags, O_RDWR | O_CLOEXEC);
	assert_string_equal(test_log, "7 provider 'kernel', run directory /run/sits\n");
	assert_true(is_open(fd));
	sits_close(c);
	assert_false(is_open(fd));
}

static void forced_says_why_not(void **state)
{
	static const struct { int err, ret; const char *words; } cases[] = {
		{ ENOENT, -ENODEV, "modprobe sits" }, { ENXIO, -ENODEV, "modprobe sits" }, { EACCES, -EACCES, "node_mode" },
		{ EPERM, -EACCES, "node_mode" }, { EMFILE, -EMFILE, "open files" }, { ENOMEM, -ENOMEM, "memory" },
		{ EIO, -ENODEV, "whole" },
	};
	struct sits_ctx *c;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake.open_errno = cases[i].err;
		assert_int_equal(try_open(SITS_PROVIDER_KERNEL, &c), cases[i].ret);
		assert_logged("provider 'kernel': /dev/sits");
		assert_logged(cases[i].words);
		assert_null(c);
	}
	fake.open_errno = 0;
	fake.info_errno = ENOTTY;
	assert_int_equal(try_open(SITS_PROVIDER_KERNEL, &c), -ENODEV);
	assert_logged("does not answer as the module does");
	assert_false(is_open(fake.dev_fd));
	fake.info_errno = 0;
	fake.abi = 2;
	assert_int_equal(try_open(SITS_PROVIDER_KERNEL, &c), -ENODEV);
	assert_logged("ABI 2");
	assert_false(is_open(fake.dev_fd));
}

/* AUTO wants all of it; who asks by name gets what there is, and hears what is missing. */
static void features_decide(void **state)
{
	static const struct { uint64_t bit; const char *word; } parts[] = {
		{ SITS_FEATURE_REGION, "regions" }, { SITS_FEATURE_WEIGHTS, "loading" }, { SITS_FEATURE_QUEUE, "queues" },
	};
	struct sits_ctx *c;

	assert_int_equal(try_open(SITS_PROVIDER_AUTO, &c), 0);
	assert_string_equal(sits_provider_name(c), "kernel");
	sits_close(c);
	for (size_t i = 0; i < 3; i++) {
		fake.features = ALL & ~parts[i].bit;
		assert_int_equal(try_open(SITS_PROVIDER_AUTO, &c), 0);
		assert_string_equal(sits_provider_name(c), "user");
		assert_null(strstr(test_log, "3 "));
		assert_false(is_open(fake.dev_fd));
		sits_close(c);
		c = open_kernel();
		assert_non_null(strstr(test_log, "4 provider 'kernel'"));
		assert_non_null(strstr(test_log, parts[i].word));
		sits_close(c);
	}
	fake.open_errno = ENOENT;
	assert_int_equal(try_open(SITS_PROVIDER_AUTO, &c), 0);
	assert_string_equal(sits_provider_name(c), "user");
	assert_null(strstr(test_log, "3 "));
	sits_close(c);
	fake.nr_opens = 0;
	assert_int_equal(try_open(SITS_PROVIDER_USER, &c), 0);
	assert_int_equal(fake.nr_opens, 0);
	sits_close(c);
}

/* ---------------------------------------------------------------------- regions */

static struct sits_region_opts region_opts(uint32_t kind, uint64_t len)
{
	return (struct sits_region_opts){
		.size = sizeof(struct sits_region_opts), .kind = kind, .node = -1, .len_bytes = len, .name = "test",
	};
}

static struct sits_region *create(struct sits_ctx *c, const struct sits_region_opts *o)
{
	struct sits_region *r = NULL;
	int ret = sits_region_create(c, o, &r);

	if (ret)
		fail_msg("%d: %s", ret, test_log);
	fake.data = r->data;
	return r;
}

static void fields_of_create(void **state)
{
	struct sits_ctx *c = open_kernel();

	for (uint32_t kind = SITS_REGION_PINNED; kind <= SITS_REGION_PROTECTED; kind++) {
		for (int i = 0; i < 2; i++) {
			struct sits_region_opts o = region_opts(kind, 4097 + kind);
			struct sits_map_facts map;
			struct sits_region *r;

			o.node = i ? 3 : -1;
			o.name = i ? "a\nb\x7f" : NULL;
			o.flags = SITS_REGION_ALLOW_UNLOCKED |
				  (i && kind != SITS_REGION_PINNED ? SITS_REGION_REQUIRE_HUGE : 0);
			r = create(c, &o);
			assert_int_equal(fake.create.flags, i && kind != SITS_REGION_PINNED ? SITS_CREATE_REQUIRE_HUGE : 0);
			assert_int_equal(fake.create.len_bytes, 4097 + kind);
			assert_int_equal(fake.create.kind, kind);
			assert_int_equal(fake.create.node, i ? 3 : -1);
			assert_int_equal(fake.create.fd_flags, O_CLOEXEC);
			assert_string_equal((const char *)fake.create.name, i ? "a?b?" : "unnamed");
			assert_int_equal(sits_region_fd(r), fake.memfd);
			assert_int_equal(r->mapped_bytes, fake.facts.mapped_bytes);
			if (kind == SITS_REGION_HUGE)
				assert_int_equal((uintptr_t)sits_region_data(r) % (2 << 20), 0);
			assert_int_equal(sits_map_facts(r->data, r->mapped_bytes, &map), 0);
			assert_int_equal(map.writable, kind != SITS_REGION_PROTECTED);
			sits_region_destroy(r);
		}
	}
	sits_close(c);
}

static void create_is_refused_in_words(void **state)
{
	static const struct { int err, ret; uint32_t flags; int32_t node; const char *words; } cases[] = {
		{ EPERM, -EACCES, 0, -1, "owner_gid" }, { EDQUOT, -EDQUOT, 0, -1, "may hold 5242880 bytes" },
		{ EDQUOT, -EDQUOT, 0, -1, "4194304 are in use" }, { ENOMEM, -ENOMEM, 0, -1, "memory cgroup" },
		{ ENOMEM, -EOPNOTSUPP, SITS_REGION_REQUIRE_HUGE, -1, "compact_memory" }, { EINVAL, -EINVAL, 0, 900, "NUMA node 900" },
		{ EINVAL, -EINVAL, 0, -1, "/dev/sits" }, { ENOTTY, -EOPNOTSUPP, 0, -1, "/dev/sits" },
		{ EMFILE, -EMFILE, 0, -1, "open files" },
	};
	struct sits_ctx *c = open_kernel();

	fake.limit = 5 << 20;
	fake.used = 4 << 20;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_region_opts o = region_opts(SITS_REGION_HUGE, 2 << 20);
		struct sits_region *r;

		fake.create_errno = cases[i].err;
		o.flags = cases[i].flags;
		o.node = cases[i].node;
		log_clear();
		assert_int_equal(sits_region_create(c, &o, &r), cases[i].ret);
		assert_logged("region 'test'");
		assert_logged(cases[i].words);
	}
	fake.create_errno = 0;
	fake.facts_errno = EIO;		/* made, and given back */
	assert_int_equal(sits_region_create(c, &(struct sits_region_opts){ .size = sizeof(struct sits_region_opts),
			 .kind = SITS_REGION_PINNED, .node = -1, .len_bytes = 1 }, &(struct sits_region *){ NULL }), -EIO);
	assert_false(is_open(fake.memfd));
	sits_close(c);
}

/* In a child, which loses the right to lock what it likes. */
static int beyond_the_limit(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { 0 } };
	struct rlimit limit = { 1 << 20, 1 << 20 };
	struct sits_region_opts o = region_opts(SITS_REGION_PINNED, 3 << 20);
	struct sits_ctx *c = open_kernel();
	struct sits_region *r;

	syscall(SYS_capset, &h, d);
	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return 1;
	fake.create_errno = ENOMEM;
	o.flags = SITS_REGION_ALLOW_UNLOCKED;
	if (sits_region_create(c, &o, &r) != -EPERM)
		return 2;
	if (!strstr(test_log, "needs 3072 KiB") || !strstr(test_log, "RLIMIT_MEMLOCK is 1024 KiB") ||
	    !strstr(test_log, "provider 'user' can go on"))
		return 3;
	/* Within it, it was something else. */
	o.len_bytes = 4096;
	if (sits_region_create(c, &o, &r) != -ENOMEM)
		return 4;
	sits_close(c);
	return 0;
}

static void memlock_limit_is_told(void **state)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(beyond_the_limit());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void facts_are_the_kernels(void **state)
{
	struct sits_region_opts o = region_opts(SITS_REGION_HUGE, 5 << 20);
	struct sits_ctx *c = open_kernel();
	struct sits_region_info info;
	struct sits_region *r;

	fake.facts.huge_bytes = 4 << 20;
	fake.facts.node = 2;
	r = create(c, &o);
	assert_non_null(strstr(test_log, "6 region 'test': 4 of 6 MiB in huge pages"));
	assert_int_equal(sits_region_info(r, &info), 0);
	assert_int_equal(info.len_bytes, 5 << 20);
	assert_int_equal(info.mapped_bytes, 6 << 20);
	assert_int_equal(info.huge_bytes, 4 << 20);
	assert_int_equal(info.page_bytes, 4096);
	assert_int_equal(info.kind, SITS_REGION_HUGE);
	assert_int_equal(info.node, 2);
	assert_int_equal(info.locked, 1);
	assert_int_equal(info.nodump, 1);
	assert_int_equal(info.nofork, 1);
	assert_int_equal(info.sealed, 0);
	/* A mapping that can write is more than what the module says. */
	fake.facts.state = SITS_REGION_F_SEALED;
	assert_int_equal(sits_region_info(r, &info), 0);
	assert_int_equal(info.sealed, 0);
	assert_int_equal(sits_region_seal(r), 0);
	assert_int_equal(sits_region_info(r, &info), 0);
	assert_int_equal(info.sealed, 1);
	fake.facts_errno = EBADF;
	assert_int_equal(sits_region_info(r, &info), -EBADF);
	sits_region_destroy(r);
	sits_close(c);
}

/* Its own mapping must not be in the way of a seal, and stays where it is. */
static void seal_steps_aside(void **state)
{
	struct sits_region_opts o = region_opts(SITS_REGION_PINNED, 10000);
	struct sits_ctx *c = open_kernel();
	struct sits_region *r = create(c, &o);
	volatile uint8_t *data = sits_region_data(r);

	data[5] = 9;
	fake.seal_errno = EBUSY;
	log_clear();
	assert_int_equal(sits_region_seal(r), -EBUSY);
	assert_logged("somebody else can still write");
	assert_int_equal(fake.seal.flags, 0);
	assert_false(fake.map_at_seal.writable);
	assert_true(fake.map_at_seal.nodump && fake.map_at_seal.nofork);
	data[6] = 8;
	fake.seal_errno = 0;
	assert_int_equal(sits_region_seal(r), 0);
	assert_int_equal(sits_region_seal(r), 0);
	assert_int_equal(fake.nr_seals, 2);
	assert_false(fake.map_at_seal.writable);
	assert_ptr_equal(sits_region_data(r), data);
	assert_int_equal(data[5] + data[6], 17);
	sits_region_destroy(r);
	/* Nobody else is left with it. */
	assert_int_equal(fake.nr_seals, 3);
	assert_int_equal(fake.seal.flags, SITS_SEAL_REVOKE);
	assert_false(is_open(fake.memfd));
	sits_close(c);
}

/* ------------------------------------------------------------------------ loads */

static struct sits_ctx *kctx;
static struct sits_key *key;
static struct sits_region *region;
static char path[64];
static bool no_keyrings;

static int load_setup(void **state)
{
	struct sits_seal_opts so = { .size = sizeof(so), .chunk_bytes = 4096, .model_version = 7, .model_id = "test", .force = 1 };
	struct sits_region_opts o = region_opts(SITS_REGION_PINNED, 12000);
	struct sits_sealed_info info;
	long id;

	reset(state);
	if (!key) {
		key = make_key("kek");
		free(make_plain(in_dir("plain"), 10000));
		snprintf(path, sizeof(path), "%s", in_dir("m.sits"));
		assert_int_equal(sits_seal(ctx, in_dir("plain"), path, key, &so), 0);
		id = add_key("user", "sits:probe", "x", 1, KEY_SPEC_PROCESS_KEYRING);
		no_keyrings = id < 0;
	}
	assert_int_equal(sits_sealed_inspect(ctx, path, key, &info), 0);
	memcpy(fake.digest, info.digest, sizeof(fake.digest));
	kctx = open_kernel();
	region = create(kctx, &o);
	memset(region->data, 0x11, region->mapped_bytes);
	return 0;
}

static int load_teardown(void **state)
{
	sits_region_destroy(region);
	sits_close(kctx);
	return 0;
}

static void needs_keyrings(void)
{
	if (no_keyrings) {
		print_message("# skip: no kernel keyrings here\n");
		skip();
	}
}

static int load(struct sits_load_opts *o, struct sits_sealed_info *info)
{
	log_clear();
	fake.nr_loads = 0;
	return sits_weights_load(kctx, path, region, key, o, info);
}

static void fields_of_a_load(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o), .min_version = 6, .threads = 3, .flags = SITS_LOAD_BUFFERED };
	struct stat st, of_fd;
	struct sits_sealed_info info;
	void *data = sits_region_data(region);

	needs_keyrings();
	assert_int_equal(load(&o, &info), 0);
	assert_int_equal(fake.nr_loads, 1);
	assert_int_equal(fake.load.size, sizeof(fake.load));
	assert_int_equal(fake.load.flags, SITS_LOAD_F_BUFFERED);
	assert_int_equal(fake.load.region_fd, fake.memfd);
	assert_int_equal(fake.load.min_version, 6);
	assert_int_equal(fake.load.nr_inflight, 0);
	assert_int_equal(fake.load.cancel, 0);
	assert_int_equal(stat(path, &st), 0);
	/* The file is closed by now; what was sent was one of this process. */
	assert_true(fake.load.file_fd > 2 && fake.load.file_fd != fake.memfd && fstat(fake.load.file_fd, &of_fd));
	/* The key was there for the kernel, for the load only, and for nobody to read. */
	assert_true(fake.key_found);
	assert_false(fake.key_readable);
	assert_int_equal(strncmp((const char *)fake.load.key, "sits:load:", 10), 0);
	look_for_key((const char *)fake.load.key);
	assert_false(fake.key_found);
	/* The region was mapped nowhere, and is at the same place again, not to be written. */
	assert_int_equal(fake.map_at_load.rss_bytes, 0);
	assert_false(fake.map_at_load.writable);
	assert_ptr_equal(sits_region_data(region), data);
	assert_int_equal(*(uint8_t *)data, 0x11);
	assert_int_equal(region->state, SITS_REGION_SEALED);
	assert_memory_equal(region->digest, fake.digest, 32);
	assert_int_equal(info.authenticated, 1);
	assert_string_equal(info.model_id, "test");
	assert_int_equal(info.model_version, 7);
	assert_memory_equal(info.digest, fake.digest, 32);
	assert_int_equal(load(NULL, NULL), -EPERM);
	assert_int_equal(fake.nr_loads, 0);
}

static void file_is_looked_at_first(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o), .min_version = 8 };
	uint8_t *data = sits_region_data(region);

	assert_int_equal(load(&o, NULL), -EKEYEXPIRED);
	assert_logged("model version 7 is older than 8");
	patch_file(path, 4096, "x", 1);		/* a tag: only who opens the chunks sees that */
	patch_file(path, 0, "x", 1);
	assert_int_equal(load(NULL, NULL), -EBADMSG);
	assert_logged("header: ");
	patch_file(path, 0, "S", 1);
	assert_int_equal(fake.nr_loads, 0);
	assert_ptr_equal(sits_region_data(region), data);
	assert_int_equal(data[1], 0x11);
}

/* Each answer of the kernel: what the caller gets, and reads. */
static void answers_in_words(void **state)
{
	static const struct { int err, ret; uint64_t bad; const char *words; } cases[] = {
		{ EBADMSG, -EBADMSG, 0, "chunk 0 (counted from 0, of 3)" }, { EBADMSG, -EBADMSG, 2, "chunk 2 (counted from 0, of 3)" },
		{ EBADMSG, -EBADMSG, SITS_BAD_TAG_TABLE, "tag table" }, { EBADMSG, -EBADMSG, SITS_BAD_LENGTH, "length" },
		{ EBADMSG, -EBADMSG, SITS_BAD_HEADER, "header: " }, { ENOKEY, -ENOKEY, 0, "wrong key" }, { ESTALE, -ESTALE, 0, "changed" },
		{ EKEYREVOKED, -EKEYREVOKED, 0, "revoked" }, { EKEYREJECTED, -EKEYREJECTED, 0, "malformed" },
		{ EKEYEXPIRED, -EKEYEXPIRED, 0, "older" }, { EBUSY, -EBUSY, 0, "mapped" }, { EACCES, -EPERM, 0, "sealed" },
		{ EPERM, -EPERM, 0, "may not load" }, { ENOMEM, -ENOMEM, 0, "cgroup" }, { ENOTTY, -EOPNOTSUPP, 0, "module can't load" },
		{ ENOPKG, -ENOPKG, 0, "sits_sm4" }, { ENOENT, -ENOENT, 0, "No such file" },
		{ EIO, -EIO, 0, "Input/output error" }, { ECANCELED, -ECANCELED, 0, NULL },
		{ EINTR, -ECANCELED, 0, NULL },
	};

	needs_keyrings();
	for (int wiped = 0; wiped < 2; wiped++) {
		fake.load_state = wiped ? SITS_REGION_F_LOADING : 0;
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			fake.load_errno = cases[i].err;
			fake.bad_chunk = cases[i].bad;
			assert_int_equal(load(NULL, NULL), cases[i].ret);
			if (cases[i].words) {
				assert_logged("m.sits: ");
				assert_logged(cases[i].words);
			} else {
				assert_null(strstr(test_log, "3 "));
			}
			/* Refused before it began: as it was. Else not to be read. */
			assert_int_equal(region->state, wiped ? SITS_REGION_FAILED : SITS_REGION_OPEN);
			assert_int_equal(!sits_region_data(region), wiped);
			if (!wiped)
				((volatile uint8_t *)sits_region_data(region))[3] = 4;
		}
	}
	/* And then a good one. */
	fake.load_errno = 0;
	fake.facts.state = 0;
	fake.load_state = 0;
	assert_int_equal(load(NULL, NULL), 0);
}

/* The header may be torn for a moment, by a rekey: its journal tells. */
static void torn_header_is_tried_again(void **state)
{
	struct sits_journal j;

	memset(&j, 0, sizeof(j));
	needs_keyrings();
	fake.load_errno = EBADMSG;
	fake.bad_chunk = SITS_BAD_HEADER;
	assert_int_equal(load(NULL, NULL), -EBADMSG);
	assert_int_equal(fake.nr_loads, 1);
	assert_int_equal(sits_journal_write(ctx, path, &j), 0);
	fake.load_errno = 0;
	fake.bad_header_once = true;
	assert_int_equal(load(NULL, NULL), 0);
	assert_int_equal(fake.nr_loads, 2);
	assert_null(strstr(test_log, "3 "));
	/* Or for good. */
	load_teardown(state);
	load_setup(state);
	fake.bad_chunk = SITS_BAD_HEADER;
	for (int i = 0; i < 2; i++) {
		fake.load_errno = i ? ENOKEY : EBADMSG;
		assert_int_equal(load(NULL, NULL), -EBADMSG);
		assert_logged("'sits rekey' again");
		assert_true(fake.nr_loads > 1);
	}
	assert_int_equal(sits_journal_remove(ctx, path), 0);
}

static void other_file_than_looked_at(void **state)
{
	needs_keyrings();
	fake.other_digest = true;
	assert_int_equal(load(NULL, NULL), -ESTALE);
	assert_logged("changed");
	/* Loaded, but not what was asked for: taken away from all. */
	assert_int_equal(fake.seal.flags, SITS_SEAL_REVOKE);
	assert_null(sits_region_data(region));
}

static int progress_calls;
static uint64_t progress_last, progress_stop_bytes;
static int progress_stop_at;

static int progress(void *arg, uint64_t done, uint64_t total)
{
	assert_ptr_equal(arg, &progress_calls);
	assert_int_equal(total, 10000);
	assert_true(done <= total && done >= progress_last);
	assert_null(sits_region_data(region));
	progress_last = done;
	return ++progress_calls == progress_stop_at || (progress_stop_bytes && done >= progress_stop_bytes);
}

static void progress_is_told_and_asked(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o), .progress = progress, .progress_arg = &progress_calls };

	needs_keyrings();
	progress_calls = progress_stop_at = 0;
	progress_last = 0;
	/* Stopped before anything was read: the kernel hears nothing of it. */
	progress_stop_at = 1;
	assert_int_equal(load(&o, NULL), -ECANCELED);
	assert_int_equal(fake.nr_loads, 0);
	assert_non_null(sits_region_data(region));
	/* While it runs: the field tells the kernel, which ends it. */
	fake.wait_for_cancel = true;
	progress_calls = progress_stop_at = 0;
	progress_stop_bytes = 4096;
	assert_int_equal(load(&o, NULL), -ECANCELED);
	assert_true(progress_calls >= 2);
	assert_int_equal(progress_last, 4096);
	fake.wait_for_cancel = false;
	progress_stop_bytes = 0;
	/* Not stopped. */
	progress_calls = progress_stop_at = 0;
	progress_last = 0;
	assert_int_equal(load(&o, NULL), 0);
	assert_int_equal(progress_last, 10000);
	assert_true(progress_calls >= 2);
}

static int stop_at_the_end(void *arg, uint64_t done, uint64_t total)
{
	return done == total;
}

static void stopped_at_the_very_end(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o), .progress = stop_at_the_end };

	needs_keyrings();
	assert_int_equal(load(&o, NULL), -ECANCELED);
	assert_int_equal(fake.nr_loads, 1);
	assert_null(sits_region_data(region));
	assert_int_equal(fake.seal.flags, SITS_SEAL_REVOKE);
}

/* ------------------------------------------------------------------ keys of type logon */

static void logon_key_stays_in_the_kernel(void **state)
{
	char name[64], spec[80], desc[80], zeros[SITS_KEY_ID_LEN] = { 0 };
	struct sits_key *was = key, *logon = NULL;
	struct sits_sealed_info info;
	uint8_t id[SITS_KEY_ID_LEN];
	int serial;

	needs_keyrings();
	snprintf(name, sizeof(name), "test-%d-%08x", getpid(), (unsigned int)rnd());
	snprintf(spec, sizeof(spec), "keyring:%s", name);
	snprintf(desc, sizeof(desc), "sits:%s", name);
	log_clear();
	assert_int_equal(sits_key_open(kctx, spec, &logon), -ENOKEY);
	assert_int_equal(sits_key_install(kctx, key, "file:/tmp/x"), -EINVAL);
	assert_int_equal(sits_key_install(kctx, NULL, spec), -EINVAL);
	assert_int_equal(sits_key_install(kctx, key, spec), 0);
	assert_int_equal(sits_key_install(kctx, key, spec), -EEXIST);
	assert_logged("exists already");
	assert_int_equal(sits_key_create(kctx, spec), -EEXIST);
	/* A session that does not link the user keyring. */
	assert_true(keyctl_join_session_keyring(NULL) >= 0);
	assert_int_equal(sits_key_open(kctx, spec, &logon), 0);
	assert_true(all_zero(logon->raw, sizeof(logon->raw)));
	sits_key_id(logon, id);
	assert_memory_equal(id, zeros, sizeof(id));

	/* What needs the bytes says so. */
#define REFUSED(call) do { log_clear(); assert_int_equal(call, -EOPNOTSUPP); assert_logged(desc); assert_logged("type logon"); } while (0)
	REFUSED(sits_seal(kctx, in_dir("plain"), in_dir("no.sits"), logon, NULL));
	REFUSED(sits_sealed_verify(kctx, path, logon, NULL, NULL));
	REFUSED(sits_sealed_inspect(kctx, path, logon, &info));
	REFUSED(sits_sealed_rekey(kctx, path, logon, key));
	REFUSED(sits_sealed_rekey(kctx, path, key, logon));
	REFUSED(sits_sealed_reseal(kctx, path, key, logon, NULL));
	REFUSED(sits_key_install(kctx, logon, "keyring:other"));
	{
		struct sits_region *r = make_region(12000);	/* of the user provider */

		REFUSED(sits_weights_load(ctx, path, r, logon, NULL, NULL));
		sits_region_destroy(r);
	}
	log_clear();
	assert_int_equal(sits_key_open(ctx, spec, &was), -EOPNOTSUPP);
	assert_logged("only the kernel module can use");
	was = key;

	/* A load has it, by its own name, where the kernel looks first. */
	key = logon;
	assert_int_equal(load(NULL, &info), 0);
	key = was;
	assert_string_equal((const char *)fake.load.key, desc);
	assert_true(fake.key_found);
	assert_false(fake.key_readable);
	assert_int_equal(info.authenticated, 1);
	look_for_key(desc);
	assert_false(fake.key_found);

	/* Gone meanwhile. */
	serial = (int)keyctl_search(KEY_SPEC_USER_KEYRING, "logon", desc, 0);
	assert_true(serial > 0);
	assert_int_equal(keyctl_unlink(serial, KEY_SPEC_USER_KEYRING), 0);
	load_teardown(state);
	load_setup(state);
	key = logon;
	assert_int_equal(load(NULL, NULL), -ENOKEY);
	key = was;
	assert_logged("not found any more");
	assert_int_equal(fake.nr_loads, 0);
	sits_key_close(logon);
}

static int group_setup(void **state)
{
	sits_device_calls = (struct sits_device_calls){ fake_open, fake_ioctl };
	reset(state);
	return dir_setup(state);
}

static int group_teardown(void **state)
{
	sits_key_close(key);
	return dir_teardown(state);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(device_is_opened_and_closed, reset),
		cmocka_unit_test_setup(forced_says_why_not, reset),
		cmocka_unit_test_setup(features_decide, reset),
		cmocka_unit_test_setup(fields_of_create, reset),
		cmocka_unit_test_setup(create_is_refused_in_words, reset),
		cmocka_unit_test_setup(memlock_limit_is_told, reset),
		cmocka_unit_test_setup(facts_are_the_kernels, reset),
		cmocka_unit_test_setup(seal_steps_aside, reset),
		cmocka_unit_test_setup_teardown(fields_of_a_load, load_setup, load_teardown),
		cmocka_unit_test_setup_teardown(answers_in_words, load_setup, load_teardown),
		cmocka_unit_test_setup_teardown(torn_header_is_tried_again, load_setup, load_teardown),
		cmocka_unit_test_setup_teardown(other_file_than_looked_at, load_setup, load_teardown),
		cmocka_unit_test_setup_teardown(progress_is_told_and_asked, load_setup, load_teardown),
		cmocka_unit_test_setup_teardown(stopped_at_the_very_end, load_setup, load_teardown),
		cmocka_unit_test_setup_teardown(logon_key_stays_in_the_kernel, load_setup, load_teardown),
		cmocka_unit_test_setup_teardown(file_is_looked_at_first, load_setup, load_teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("kernel provider", tests, group_setup, group_teardown);
}
