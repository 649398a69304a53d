/* SPDX-License-Identifier: MIT */
/*
 * weights_common.h - what the tests of WEIGHTS_LOAD share: sealed files, keys, loads as ioctl and as command of a ring.
 */
#ifndef SITS_WEIGHTS_COMMON_H
#define SITS_WEIGHTS_COMMON_H

#include <inttypes.h>
#include <keyutils.h>
#include <liburing.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "crypto/sealed.h"
#include "region_common.h"
#include "sits/context.h"
#include "sits/sealed.h"

#define MIB		(1ul << 20)
#define KEY_NAME	"sits:weights-test"
#define STAT(name)	"/sys/class/misc/sits/" #name

static char dir[64] = "/tmp/weights-XXXXXX";
static struct sits_ctx *ctx;
static struct sits_key *kek;
static uint8_t kek_raw[16];
static uint64_t rng_state;

/* xorshift64*; the seed is printed. */
__attribute__((unused))
static uint64_t rnd(void)
{
	rng_state ^= rng_state >> 12;
	rng_state ^= rng_state << 25;
	rng_state ^= rng_state >> 27;
	return rng_state * 0x2545f4914f6cdd1dull;
}

__attribute__((unused))
static void log_line(void *arg, int severity, const char *line)
{
	printf("# %s\n", line);
}

__attribute__((unused))
static const char *in_dir(const char *name)
{
	static char paths[8][256];
	static unsigned int next;
	char *p = paths[next++ % 8];

	snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
	return p;
}

/* A key file, opened, and its bytes. */
__attribute__((unused))
static struct sits_key *make_key(const char *name, uint8_t raw[16])
{
	struct sits_key *key = NULL;
	char spec[300], hex[33] = "";
	int fd;

	snprintf(spec, sizeof(spec), "file:%s", in_dir(name));
	unlink(in_dir(name));
	need(!sits_key_create(ctx, spec) && !sits_key_open(ctx, spec, &key), "make a key");
	fd = open(in_dir(name), O_RDONLY);
	need(fd >= 0 && read(fd, hex, 32) == 32, "read the key");
	close(fd);
	for (int i = 0; i < 16; i++) {
		unsigned int byte;

		need(sscanf(hex + 2 * i, "%2x", &byte) == 1, "parse the key");
		raw[i] = byte;
	}
	return key;
}

__attribute__((unused))
static key_serial_t add_user_key(const char *type, const char *name, const void *payload, size_t len)
{
	key_serial_t key = add_key(type, name, payload, len, KEY_SPEC_USER_KEYRING);

	need(key >= 0, "add a key of type %s", type);
	return key;
}

__attribute__((unused))
static void teardown(void)
{
	char cmd[128];
	long key = keyctl_search(KEY_SPEC_USER_KEYRING, "logon", KEY_NAME, 0);

	if (key >= 0)
		keyctl_unlink(key, KEY_SPEC_USER_KEYRING);
	sits_key_close(kek);
	sits_close(ctx);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	check(!system(cmd), "the test's files are removed");
}

__attribute__((unused))
static void write_new(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	need(fd >= 0, "open %s", path);
	for (size_t at = 0; at < len;) {
		ssize_t n = write(fd, (const char *)data + at, len - at);

		need(n > 0, "write %s", path);
		at += n;
	}
	close(fd);
}

__attribute__((unused))
static uint8_t *random_bytes(size_t len)
{
	uint8_t *p = malloc(len + 8);

	need(p, "malloc");
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = rnd();

		memcpy(p + i, &v, 8);
	}
	return p;
}

/* Seal @len bytes into @path: with @key, in chunks of @chunk bytes. */
__attribute__((unused))
static void seal_bytes(const char *path, const void *data, size_t len, const struct sits_key *key, uint32_t chunk)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = chunk, .model_id = "test", .model_version = 7,
				    .force = 1 };
	const char *plain = in_dir("plain");

	write_new(plain, data, len);
	need(!sits_seal(ctx, plain, path, key, &o), "seal %s", path);
	unlink(plain);
}

/* A struct for a load of @file_fd into @region. */
__attribute__((unused))
static struct sits_weights_load load_arg(int file_fd, int region)
{
	struct sits_weights_load a = { .size = sizeof(a), .file_fd = file_fd, .region_fd = region, .key = KEY_NAME };

	return a;
}

__attribute__((unused))
static int load_ioctl(struct sits_weights_load *a)
{
	return xioctl(dev, SITS_IOC_WEIGHTS_LOAD, a);
}

/*
 * The first load brings in the modules of the cipher. On a debug kernel their self-tests take longer than the kernel has patience
 * with, but end all the same.
 */
__attribute__((unused))
static void load_cipher(void)
{
	int ret, fd, region, tries = 0;

	seal_bytes(in_dir("first.sits"), "first", 5, kek, 4096);
	do {
		fd = open(in_dir("first.sits"), O_RDONLY);
		region = create(SITS_KIND_PINNED, 0, 5);
		struct sits_weights_load a = load_arg(fd, region);

		ret = load_ioctl(&a);
		close(fd);
		close(region);
	} while (ret == -ETIMEDOUT && tries++ < 30);
	unlink(in_dir("first.sits"));
}

__attribute__((unused))
static void setup(void)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = SITS_PROVIDER_USER, .log = log_line };
	const char *seed = getenv("SITS_TEST_SEED");

	if (seed)
		rng_state = strtoull(seed, NULL, 0);
	else
		need(getrandom(&rng_state, sizeof(rng_state), 0) == (ssize_t)sizeof(rng_state), "getrandom");
	rng_state |= 1;
	printf("# SITS_TEST_SEED=0x%" PRIx64 "\n", rng_state);
	open_dev();
	need(mkdtemp(dir), "mkdtemp");
	need(!sits_open(&o, &ctx), "sits_open");
	kek = make_key("kek", kek_raw);
	add_user_key("logon", KEY_NAME, kek_raw, 16);
	load_cipher();
}

/* Make a ring for loads. */
__attribute__((unused))
static void ring_init(struct io_uring *ring, unsigned int flags)
{
	int ret = io_uring_queue_init(8, ring, flags);

	errno = -ret;
	need(!ret, "io_uring_queue_init");
}

__attribute__((unused))
static void ring_submit(struct io_uring *ring, int fd, unsigned int op, uint64_t addr, uint64_t second)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	uint64_t payload[2] = { addr, second };

	if (!sqe) {
		printf("Bail out! no entry in the ring\n");
		exit(1);
	}
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = op;
	sqe->user_data = addr;
	memcpy(sqe->cmd, payload, sizeof(payload));
	need(io_uring_submit(ring) == 1, "io_uring_submit");
}

__attribute__((unused))
static int ring_wait(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int ret;

	do {
		ret = io_uring_wait_cqe(ring, &cqe);
	} while (ret == -EINTR);
	if (ret)
		return ret;
	ret = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

__attribute__((unused))
static int load_ring(struct sits_weights_load *a)
{
	struct io_uring ring;
	int ret;

	ring_init(&ring, 0);
	ring_submit(&ring, dev, SITS_IOC_WEIGHTS_LOAD, (uintptr_t)a, 0);
	ret = ring_wait(&ring);
	io_uring_queue_exit(&ring);
	return ret;
}

typedef int (*load_fn)(struct sits_weights_load *a);

static const struct {
	const char *name;
	load_fn fn;
} ways[] __attribute__((unused)) = { { "ioctl", load_ioctl }, { "ring", load_ring } };

/* A disk in memory that answers from its timer's interrupt, as real ones do: /dev/nullb0. */
#define NULLB "/sys/kernel/config/nullb/nullb0"

__attribute__((unused))
static void disk_make(int mib)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", mib);
	need(!system("modprobe null_blk nr_devices=0"), "modprobe null_blk");
	if (access(NULLB, F_OK)) {
		need(!access("/sys/kernel/config/nullb", F_OK) ||
		     !system("mount -t configfs configfs /sys/kernel/config"), "mount configfs");
		need(!mkdir(NULLB, 0755), "make a disk");
	}
	need(!write_text(NULLB "/memory_backed", "1") && !write_text(NULLB "/irqmode", "2") &&
	     !write_text(NULLB "/completion_nsec", "200000") && !write_text(NULLB "/size", text) &&
	     !write_text(NULLB "/blocksize", "512") && !write_text(NULLB "/power", "1"), "set up a disk");
}

__attribute__((unused))
static void disk_remove(void)
{
	check_int(rmdir(NULLB) ? -errno : 0, 0, "the disk is removed");
	/* What the kernel does in the background may hold the module for a moment yet. */
	check(!system("umount /sys/kernel/config; i=0; until modprobe -r null_blk 2>/dev/null; do [ $i -lt 1500 ] || exit 1; i=$((i+1)); usleep 20000; done"),
	      "its module is removed");
}

/* An ext4 on that disk, mounted at @at. */
__attribute__((unused))
static void ext4_make(const char *at)
{
	char cmd[160];

	snprintf(cmd, sizeof(cmd), "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0 && mkdir -p %s && mount -t ext4 /dev/nullb0 %s",
		 at, at);
	need(!system(cmd), "make an ext4");
}

/* A file that a worker had open is closed a moment after its load. */
__attribute__((unused))
static void unmount(const char *at)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "i=0; until umount %s 2>/dev/null; do [ $i -lt 1500 ] || exit 1; i=$((i+1)); usleep 20000; done", at);
	check(!system(cmd), "unmount %s", at);
}

/*
 * A file of suite 240, which SITS does not write. Source: docs/sealed-file.md.
 */
__attribute__((unused))
static void seal_bytes_ecb(const char *path, const uint8_t *data, size_t len, uint32_t chunk)
{
	size_t padded = (len + 15) & ~15ul;
	uint8_t *file = calloc(1, SITS_SEALED_HDR_BYTES + padded), file_key[16], nonce[12] = { 1, 2, 3 };
	struct sits_sealed_hdr hdr;
	struct sits_gcm_key wrap;
	struct sits_sm4_key sm4;
	uint8_t salt[8] = { 0 };

	need(file && getrandom(file_key, 16, 0) == 16, "getrandom");
	need(!sits_sealed_compose(file, &hdr, salt, chunk, len, "ecb", 3), "compose a header");
	sits_put_le32(file + SITS_SEALED_OFF_SUITE, SITS_SEALED_SUITE_ECB);
	sits_sealed_key_id(kek_raw, file + SITS_SEALED_OFF_KEY_ID);
	memcpy(file + SITS_SEALED_OFF_NONCE, nonce, sizeof(nonce));
	sits_gcm_set_key(&wrap, kek_raw);
	sits_gcm_encrypt(&wrap, nonce, file, SITS_SEALED_OFF_WRAPPED_KEY, file + SITS_SEALED_OFF_WRAPPED_KEY, file_key, 16,
			 file + SITS_SEALED_OFF_WRAP_TAG);
	memcpy(file + SITS_SEALED_HDR_BYTES, data, len);
	sits_sm4_expand_key(&sm4, file_key);
	for (size_t i = 0; i < padded; i += 16)
		sits_sm4_encrypt_block(&sm4, file + SITS_SEALED_HDR_BYTES + i, file + SITS_SEALED_HDR_BYTES + i);
	write_new(path, file, SITS_SEALED_HDR_BYTES + padded);
	free(file);
}

/* Is the region's memory @data, and zero beyond? The region must be sealed. */
__attribute__((unused))
static bool region_is(int region, const uint8_t *data, size_t len)
{
	struct sits_region_facts f = facts(region);
	uint8_t *p = map(region, f.mapped_bytes, PROT_READ);
	bool same;

	if (is_err(p)) {
		printf("# map: %s\n", strerror(-err_of(p)));
		return false;
	}
	same = !memcmp(p, data, len);
	for (size_t i = len; same && i < f.mapped_bytes; i++)
		same = !p[i];
	munmap(p, f.mapped_bytes);
	return same;
}

#endif
