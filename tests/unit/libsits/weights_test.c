// SPDX-License-Identifier: MIT
/*
 * weights_test.c - loading what was cut, changed, swapped, exchanged, or is too old: refused, named, wiped. For each
 * provider in $SITS_TEST_PROVIDERS.
 */
#include <keyutils.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "crypto/sealed.h"
#include "libsits/internal.h"
#include "libsits/journal.h"
#include "libsits/key.h"
#include "tests/unit/libsits/sealed_util.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define CHUNK	4096
#define CHUNKS	41
#define PLAIN	((CHUNKS - 1) * CHUNK + 123)
#define TAGS	4096
#define DATA	8192
#define FILE_LEN (DATA + PLAIN)

static struct sits_key *key, *other_key;
static struct sits_region *region;	/* for loads that fail */
static uint8_t *plain, *sealed;
static char path[64];

static void seal(const char *name, const struct sits_key *k, uint64_t version)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = CHUNK, .threads = 1, .model_version = version,
				    .model_id = "test", .force = 1 };

	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir(name), k, &o), 0);
}

static int setup(void **state)
{
	size_t len;

	if (dir_setup(state))
		return -1;
	key = make_key("kek");
	other_key = make_key("other");
	plain = make_plain(in_dir("plain"), PLAIN);
	seal("m.sits", key, 5);
	sealed = read_file(in_dir("m.sits"), &len);
	assert_int_equal(len, FILE_LEN);
	snprintf(path, sizeof(path), "%s", in_dir("m.sits"));
	region = make_region(PLAIN);
	return 0;
}

static int teardown(void **state)
{
	sits_region_destroy(region);
	sits_key_close(key);
	sits_key_close(other_key);
	free(plain);
	free(sealed);
	return dir_teardown(state);
}

static int load(const struct sits_load_opts *o)
{
	struct sits_load_opts few = { .size = sizeof(few), .threads = 1 };

	log_clear();
	return sits_weights_load(ctx, path, region, key, o ? o : &few, NULL);
}

/* Under emulation @n of a kind are too many. */
static unsigned int some(unsigned int n)
{
	return getenv("SITS_VM") ? (n + 19) / 20 : n;
}

/* Steps that go through @n of a kind: each, or under emulation a random selection. */
static unsigned int step(unsigned int n)
{
	return n == some(n) ? 1 : 1 + (unsigned int)(rnd() % (2 * n / some(n)));
}

/* The region was given up: not to be read, and nothing in it. @started: the load got as far as the chunks. */
static void assert_nothing_handed_out(bool started)
{
	/* Where the kernel had not begun, all is as it was. */
	assert_true(region->state == SITS_REGION_FAILED ||
		    ((!started || test_on_kernel()) && region->state == SITS_REGION_OPEN));
	if (test_on_kernel() && region->state == SITS_REGION_FAILED) {
		assert_null(sits_region_data(region));
		assert_true(mmap(NULL, 4096, PROT_READ, MAP_SHARED, region->fd, 0) == MAP_FAILED);
		assert_int_equal(errno, ENODATA);
		return;
	}
	if (region->state == SITS_REGION_FAILED)
		assert_null(sits_region_data(region));
	assert_true(all_zero(region->data, region->mapped_bytes));
}

/* A load that must fail with @want (0: any) and name @part. */
static void refused(int want, const char *part, bool started)
{
	int ret = load(NULL);

	if (!ret || (want && ret != want))
		fail_msg("%d, not %d (%s): %s", ret, want, part, test_log);
	assert_logged(part);
	assert_logged("m.sits");
	assert_nothing_handed_out(started);
}

/* The region of the bad cases must still take a good load; then it is sealed, and another is needed. */
static void accepted(void)
{
	int ret = load(NULL);

	if (ret)
		fail_msg("%d: %s", ret, test_log);
	assert_memory_equal(sits_region_data(region), plain, PLAIN);
	sits_region_destroy(region);
	region = make_region(PLAIN);
}

static void restore(void)
{
	write_file(path, sealed, FILE_LEN, 0600);
}

static void chunk_name(uint64_t i, char *out, size_t len)
{
	snprintf(out, len, "chunk %" PRIu64 " (counted from 0, of %d)", i, CHUNKS);
}

static void every_header_byte(void **state)
{
	struct sits_sealed_info info;
	unsigned int i;

	for (i = 0; i < SITS_SEALED_HDR_BYTES; i += step(SITS_SEALED_HDR_BYTES)) {
		uint8_t changed = sealed[i] ^ (uint8_t)(1u << (rnd() >> 61));
		int ret;

		patch_file(path, i, &changed, 1);
		ret = load(NULL);
		if (ret != -EBADMSG && ret != -ENOKEY && ret != -EPROTONOSUPPORT)
			fail_msg("byte %u %02x -> %02x: %d: %s", i, sealed[i], changed, ret, test_log);
		if (ret == -ENOKEY) {
			assert_true(i >= SITS_SEALED_OFF_KEY_ID && i < SITS_SEALED_OFF_KEY_ID + SITS_KEY_ID_LEN);
			assert_logged("wrong key");
		} else {
			assert_logged("header: ");
		}
		assert_nothing_handed_out(false);
		assert_int_equal(sits_sealed_inspect(ctx, path, key, &info), ret);
		patch_file(path, i, sealed + i, 1);
	}
	accepted();
}

static void every_tag(void **state)
{
	char name[64];
	unsigned int i, at;

	for (i = 0; i < CHUNKS; i += step(CHUNKS)) {
		uint8_t changed;

		at = TAGS + 16 * i + (unsigned int)(rnd() >> 60);
		changed = sealed[at] ^ (uint8_t)(1u << (rnd() >> 61));
		patch_file(path, at, &changed, 1);
		chunk_name(i, name, sizeof(name));
		refused(-EBADMSG, name, true);
		patch_file(path, at, sealed + at, 1);
	}
	accepted();
}

/* Nothing is between the tag table and the ciphertext. */
static void every_byte_between(void **state)
{
	uint8_t changed;
	unsigned int at;

	for (at = TAGS + CHUNKS * 16; at < DATA; at += step(DATA - TAGS - CHUNKS * 16)) {
		changed = (uint8_t)(1u << (rnd() >> 61));
		patch_file(path, at, &changed, 1);
		refused(-EBADMSG, "tag table: byte", false);
		patch_file(path, at, sealed + at, 1);
	}
	accepted();
}

static void a_thousand_ciphertext_bits(void **state)
{
	char name[64];
	unsigned int n;

	for (n = 0; n < some(1000); n++) {
		uint64_t at = rnd() % PLAIN;
		uint8_t changed = sealed[DATA + at] ^ (uint8_t)(1u << (rnd() >> 61));

		patch_file(path, DATA + at, &changed, 1);
		chunk_name(at / CHUNK, name, sizeof(name));
		refused(-EBADMSG, name, true);
		patch_file(path, DATA + at, sealed + DATA + at, 1);
	}
	accepted();
}

static void truncations(void **state)
{
	char name[64];
	unsigned int i;

	for (i = 0; i < 300; i += i < 250 ? step(300) : 1) {
		uint64_t len;

		if (i < 2 * CHUNKS)	/* around every chunk's border */
			len = DATA + (uint64_t)(i / 2) * CHUNK + (i & 1);
		else if (i < 2 * CHUNKS + 40)	/* around the tag table */
			len = TAGS + (i - 2 * CHUNKS) * 20;
		else
			len = rnd() % FILE_LEN;
		if (i == 299)
			len = 0;
		if (i == 298)
			len = FILE_LEN - 1;
		write_file(path, sealed, len, 0600);
		if (len < SITS_SEALED_HDR_BYTES) {
			refused(-EBADMSG, len ? "header: the file is too short" : "header: the file is empty", false);
		} else if (len < TAGS + CHUNKS * 16) {
			refused(-EBADMSG, "tag table: cut", false);
		} else {
			chunk_name(len < DATA ? 0 : (len - DATA) / CHUNK, name, sizeof(name));
			refused(-EBADMSG, name, false);
			assert_logged("cut");
		}
	}
	restore();
	accepted();
}

static void extensions(void **state)
{
	static const size_t more[] = { 1, 15, 16, 4096 - 123, 4096, 100000 };
	static uint8_t zeros[100000];
	size_t i;

	for (i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		restore();
		patch_file(path, FILE_LEN, zeros, more[i]);
		refused(-EBADMSG, "more than its header says", false);
	}
	restore();
	accepted();
}

static void swap(uint8_t *file, uint64_t a, uint64_t b, size_t len)
{
	uint8_t tmp[CHUNK];

	memcpy(tmp, file + a, len);
	memcpy(file + a, file + b, len);
	memcpy(file + b, tmp, len);
}

/* Chunks change places, alone and with their tags; the first one is named. */
static void swapped_chunks(void **state)
{
	uint8_t *copy = malloc(FILE_LEN);
	char name[64];
	int with_tags, n;

	assert_non_null(copy);
	for (with_tags = 0; with_tags < 2; with_tags++) {
		for (n = 0; n < (int)some(40); n++) {
			uint64_t a = rnd() % (CHUNKS - 1), b = rnd() % (CHUNKS - 1);

			if (a == b)
				continue;
			memcpy(copy, sealed, FILE_LEN);
			swap(copy, DATA + a * CHUNK, DATA + b * CHUNK, CHUNK);
			if (with_tags)
				swap(copy, TAGS + a * 16, TAGS + b * 16, 16);
			write_file(path, copy, FILE_LEN, 0600);
			chunk_name(SITS_MIN(a, b), name, sizeof(name));
			refused(-EBADMSG, name, true);
		}
	}
	free(copy);
	restore();
	accepted();
}

/* Chunks, the tag table or the header of a file of the same plaintext under the same key. */
static void parts_of_another_file(void **state)
{
	uint8_t *copy = malloc(FILE_LEN), *other;
	char name[64];
	size_t len;
	int n;

	assert_non_null(copy);
	seal("other.sits", key, 5);
	other = read_file(in_dir("other.sits"), &len);
	assert_int_equal(len, FILE_LEN);
	for (n = 0; n < (int)some(20); n++) {
		uint64_t i = rnd() % (CHUNKS - 1);

		memcpy(copy, sealed, FILE_LEN);
		memcpy(copy + DATA + i * CHUNK, other + DATA + i * CHUNK, CHUNK);
		memcpy(copy + TAGS + i * 16, other + TAGS + i * 16, 16);
		write_file(path, copy, FILE_LEN, 0600);
		chunk_name(i, name, sizeof(name));
		refused(-EBADMSG, name, true);
	}
	memcpy(copy, sealed, FILE_LEN);
	memcpy(copy + TAGS, other + TAGS, FILE_LEN - TAGS);
	write_file(path, copy, FILE_LEN, 0600);
	refused(-EBADMSG, "chunk 0 ", true);
	memcpy(copy, other, TAGS);
	memcpy(copy + TAGS, sealed + TAGS, FILE_LEN - TAGS);
	write_file(path, copy, FILE_LEN, 0600);
	refused(-EBADMSG, "chunk 0 ", true);
	/* The wrapped key of the other file with this header. */
	memcpy(copy, sealed, FILE_LEN);
	memcpy(copy + SITS_SEALED_OFF_NONCE, other + SITS_SEALED_OFF_NONCE, 4096 - SITS_SEALED_OFF_NONCE);
	write_file(path, copy, FILE_LEN, 0600);
	refused(-EBADMSG, "header: ", false);
	free(copy);
	free(other);
	restore();
	accepted();
}

static void wrong_key_and_old_version(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o), .min_version = 6 };
	char id[33];

	log_clear();
	assert_int_equal(sits_weights_load(ctx, path, region, other_key, NULL, NULL), -ENOKEY);
	sits_hex(key->id, sizeof(key->id), id);
	assert_logged(id);
	sits_hex(other_key->id, sizeof(other_key->id), id);
	assert_logged(id);
	assert_nothing_handed_out(false);

	assert_int_equal(load(&o), -EKEYEXPIRED);
	assert_logged("model version 5 is older than 6");
	assert_nothing_handed_out(false);
	log_clear();
	assert_int_equal(sits_sealed_verify(ctx, path, key, &o, NULL), -EKEYEXPIRED);
	o.min_version = 5;
	assert_int_equal(sits_sealed_verify(ctx, path, key, &o, NULL), 0);
	/* A version that claims to be newer is no longer authentic. */
	patch_file(path, SITS_SEALED_OFF_MODEL_VERSION, "\x09", 1);
	assert_int_equal(load(&o), -EBADMSG);
	restore();
	accepted();
}

static void arguments(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o) }, bad;
	struct sits_region *small = make_region(PLAIN - 1);
	struct sits_sealed_info info;
	void *data;

	bad = o;
	bad.size = 4;
	assert_int_equal(load(&bad), -EINVAL);
	bad = o;
	bad.flags = 1u << 7;
	assert_int_equal(load(&bad), -EINVAL);
	bad = o;
	bad.reserved = 1;
	assert_int_equal(load(&bad), -EINVAL);
	assert_int_equal(sits_weights_load(ctx, path, NULL, key, NULL, NULL), -EINVAL);
	assert_int_equal(sits_weights_load(ctx, path, region, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(sits_weights_load(ctx, NULL, region, key, NULL, NULL), -EINVAL);
	assert_int_equal(sits_sealed_inspect(ctx, path, key, NULL), -EINVAL);
	assert_int_equal(sits_sealed_verify(ctx, path, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(sits_sealed_inspect(ctx, test_dir, NULL, &info), -EISDIR);
	assert_int_equal(sits_sealed_inspect(ctx, in_dir("none"), NULL, &info), -ENOENT);
	assert_int_equal(sits_sealed_inspect(ctx, "/dev/null", NULL, &info), -EINVAL);
	assert_int_equal(sits_sealed_inspect(ctx, in_dir("plain"), NULL, &info), -EBADMSG);

	/* Too small by one byte: untouched, and still its owner's. */
	memset(sits_region_data(small), 0xab, PLAIN - 1);
	log_clear();
	assert_int_equal(sits_weights_load(ctx, path, small, key, NULL, NULL), -EFBIG);
	assert_logged("has room for");
	data = sits_region_data(small);
	assert_non_null(data);
	assert_int_equal(((uint8_t *)data)[PLAIN - 2], 0xab);
	sits_region_destroy(small);

	/* A sealed region takes no load. */
	assert_int_equal(load(NULL), 0);
	assert_int_equal(load(NULL), -EPERM);
	assert_memory_equal(sits_region_data(region), plain, PLAIN);
	sits_region_destroy(region);
	region = make_region(PLAIN);
}

/* ------------------------------------------------- changes while it is being read */

static int spoil_how;

/* The first call comes after the file was opened and before a chunk is read. */
static int spoil(void *arg, uint64_t done, uint64_t total)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1 } };

	/* Nobody gets at it meanwhile. */
	assert_null(sits_region_data(region));
	assert_true(sits_region_fd(region) < 0);
	assert_int_equal(sits_region_seal(region), -EBUSY);
	if (done)
		return 0;
	switch (spoil_how) {
	case 0:
		return 1;
	case 1:
		assert_int_equal(truncate(path, DATA + 5 * CHUNK + 1), 0);
		break;
	case 2:
		assert_int_equal(truncate(path, DATA), 0);
		break;
	case 3:
		assert_int_equal(truncate(path, FILE_LEN + 5000), 0);
		break;
	case 4:
		patch_file(path, DATA + 7 * CHUNK, "changed", 7);
		break;
	case 5:		/* the same bytes, but written anew */
		patch_file(path, DATA, sealed + DATA, 10);
		break;
	case 6:
		assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
		break;
	}
	return 0;
}

static void changes_during_a_load(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o), .progress = spoil, .threads = 2 };
	int buffered, ret;

	for (buffered = 0; buffered < 2; buffered++) {
		o.flags = buffered ? SITS_LOAD_BUFFERED : 0;
		for (spoil_how = 0; spoil_how <= 6; spoil_how++) {
			/* A change within one tick of the clock that stamps files can't be told from no change: an old
			 * file has an old stamp. */
			struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };

			restore();
			assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
			ret = load(&o);
			if (ret != (spoil_how ? -ESTALE : -ECANCELED))
				fail_msg("case %d: %d: %s", spoil_how, ret, test_log);
			if (spoil_how)
				assert_logged("m.sits: ");
			assert_nothing_handed_out(true);
		}
	}
	restore();
	accepted();
}

/* -------------------------------------------------------------- ECB, by a flag only */

static void make_ecb(const char *name, size_t len)
{
	uint8_t page[4096], random[SITS_SEALED_RANDOM_LEN], *data = calloc(1, len + 16), file_key[16], id[16];
	size_t padded = (len + 15) & ~(size_t)15, i;
	struct sits_sealed_file f;
	struct sits_gcm_key kek;
	struct sits_sm4_key sm4;

	/* Nothing writes this suite: its header is made from that of suite 1. */
	fill_random(random, sizeof(random));
	assert_non_null(data);
	assert_int_equal(sits_sealed_init(&f, page, key->raw, random, CHUNK, len, "ecb", 1), 0);
	sits_put_le32(page + SITS_SEALED_OFF_SUITE, SITS_SEALED_SUITE_ECB);
	memset(page + SITS_SEALED_OFF_SALT, 0, 8);
	memcpy(file_key, random + 8, 16);
	sits_sealed_key_id(key->raw, id);
	assert_memory_equal(page + SITS_SEALED_OFF_KEY_ID, id, 16);
	sits_gcm_set_key(&kek, key->raw);
	sits_gcm_encrypt(&kek, page + SITS_SEALED_OFF_NONCE, page, SITS_SEALED_OFF_WRAPPED_KEY,
			 page + SITS_SEALED_OFF_WRAPPED_KEY, file_key, 16, page + SITS_SEALED_OFF_WRAP_TAG);
	sits_sm4_expand_key(&sm4, file_key);
	memcpy(data, plain, len);
	for (i = 0; i < padded; i += 16)
		sits_sm4_encrypt_block(&sm4, data + i, data + i);
	write_file(in_dir(name), page, sizeof(page), 0600);
	patch_file(in_dir(name), 4096, data, padded);
	free(data);
}

static void ecb_needs_its_flag(void **state)
{
	static const size_t lens[] = { PLAIN, 4096, 5, 8192 + 16 };
	struct sits_load_opts o = { .size = sizeof(o), .flags = SITS_LOAD_ALLOW_ECB };
	struct sits_sealed_info info;
	size_t i;

	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct sits_region *r = make_region(lens[i]);

		make_ecb("ecb.sits", lens[i]);
		log_clear();
		assert_int_equal(sits_weights_load(ctx, in_dir("ecb.sits"), r, key, NULL, NULL), -EPROTONOSUPPORT);
		assert_logged("SM4-ECB");
		assert_int_equal(sits_sealed_verify(ctx, in_dir("ecb.sits"), key, NULL, NULL), -EPROTONOSUPPORT);
		assert_int_equal(sits_weights_load(ctx, in_dir("ecb.sits"), r, key, &o, &info), 0);
		assert_int_equal(info.suite, SITS_SUITE_SM4_ECB);
		/* What nothing vouches for must not become authentic. */
		assert_int_equal(sits_sealed_reseal(ctx, in_dir("ecb.sits"), key, key, &o), -EPROTONOSUPPORT);
		assert_memory_equal(sits_region_data(r), plain, lens[i]);
		assert_true(all_zero((uint8_t *)r->data + lens[i], r->mapped_bytes - lens[i]));
		sits_region_destroy(r);
	}
	unlink(in_dir("ecb.sits"));
}

/* A filesystem without direct I/O, or with it: both load. */
static void file_in_memory(void **state)
{
	char shm[64] = "/dev/shm/sits-weights-XXXXXX", was[64];
	int fd = mkstemp(shm);

	if (fd < 0) {
		print_message("# skip: /dev/shm is not writable: %s\n", strerror(errno));
		skip();
	}
	close(fd);
	strcpy(was, path);
	strcpy(path, shm);
	restore();
	accepted();
	unlink(path);
	strcpy(path, was);
}

/* A rekey that lost its power in the middle of the page: the page is in the journal, which the kernel does not know. */
static void rekey_cut_short(void **state)
{
	struct sits_journal j;
	size_t len;
	uint8_t *file;

	assert_int_equal(sits_sealed_rekey(ctx, path, key, other_key), 0);
	file = read_file(path, &len);
	memcpy(j.old_page, sealed, sizeof(j.old_page));
	memcpy(j.new_page, file, sizeof(j.new_page));
	free(file);
	restore();
	patch_file(path, SITS_SEALED_OFF_KEY_ID, j.new_page + SITS_SEALED_OFF_KEY_ID, SITS_KEY_ID_LEN);
	assert_int_equal(sits_journal_write(ctx, path, &j), 0);
	if (test_on_kernel()) {
		refused(-EBADMSG, "header: ", false);
		assert_logged("'sits rekey' again");
		/* As it says. */
		assert_int_equal(sits_sealed_rekey(ctx, path, key, other_key), 0);
		assert_int_equal(sits_sealed_rekey(ctx, path, other_key, key), 0);
	}
	accepted();
	assert_int_equal(sits_journal_remove(ctx, path), 0);
	restore();
}

/* Where io_uring is not to be had, all is the same. */
static void without_io_uring(void **state)
{
	char name[64];

	setenv("SITS_NO_IO_URING", "1", 1);
	patch_file(path, DATA + 5 * CHUNK, "bad", 3);
	chunk_name(5, name, sizeof(name));
	refused(-EBADMSG, name, true);
	restore();
	accepted();
	unsetenv("SITS_NO_IO_URING");
}

/* ------------------------------------------- a key that never comes into the process */

/* The kernel's key sits:NAME of that type, or -1. */
static key_serial_t find_logon(const char *desc)
{
	return (key_serial_t)keyctl_search(KEY_SPEC_USER_KEYRING, "logon", desc, KEY_SPEC_PROCESS_KEYRING);
}

static int load_with(const struct sits_key *k, struct sits_sealed_info *info)
{
	log_clear();
	return sits_weights_load(ctx, path, region, k, NULL, info);
}

static void key_of_type_logon(void **state)
{
	char name[64], spec[80], desc[80];
	struct sits_key *logon = NULL;
	struct sits_sealed_info info;
	int uring;

	if (!test_on_kernel()) {
		print_message("# skip: keys of type logon are for the kernel provider\n");
		skip();
	}
	snprintf(name, sizeof(name), "test-%d-%08x", getpid(), (unsigned int)rnd());
	snprintf(spec, sizeof(spec), "keyring:%s", name);
	snprintf(desc, sizeof(desc), "sits:%s", name);
	assert_int_equal(sits_key_install(ctx, key, spec), 0);
	assert_int_equal(sits_key_open(ctx, spec, &logon), 0);
	for (uring = 0; uring < 2; uring++) {
		if (!uring)
			setenv("SITS_NO_IO_URING", "1", 1);
		assert_int_equal(load_with(logon, &info), 0);
		assert_memory_equal(sits_region_data(region), plain, PLAIN);
		assert_int_equal(info.authenticated, 1);
		assert_memory_equal(info.key_id, key->id, sizeof(info.key_id));
		sits_region_destroy(region);
		region = make_region(PLAIN);
		unsetenv("SITS_NO_IO_URING");
	}
	/* Only the kernel can tell what is authentic here, and does. */
	patch_file(path, SITS_SEALED_OFF_MODEL_VERSION, "\x09", 1);
	assert_int_equal(load_with(logon, NULL), -EBADMSG);
	assert_logged("header: ");
	assert_nothing_handed_out(false);
	restore();
	seal("m.sits", other_key, 5);
	assert_int_equal(load_with(logon, NULL), -ENOKEY);
	assert_logged("wrong key");
	assert_logged(desc);
	restore();
	/* Revoked, then gone. */
	assert_true(find_logon(desc) > 0);
	assert_int_equal(keyctl_revoke(find_logon(desc)), 0);
	assert_int_equal(load_with(logon, NULL), -EKEYREVOKED);
	assert_logged(desc);
	assert_logged("evoked");
	sits_key_close(logon);
	accepted();
}

/* Is what @masked hides anywhere in memory that this process can write? */
static bool in_own_memory(const uint8_t *masked, size_t len)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], perms[8];
	uint64_t a, b, at;
	bool found = false;
	size_t i;

	assert_non_null(f);
	while (!found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &a, &b, perms) != 3 || strncmp(perms, "rw", 2))
			continue;
		for (at = a; !found && at + len <= b; at++) {
			for (i = 0; i < len && (((const volatile uint8_t *)(uintptr_t)at)[i] ^ 0x5a) == masked[i]; i++)
				;
			found = i == len;
		}
	}
	fclose(f);
	return found;
}

static uint8_t masked_raw[16], masked_hex[32];

static int load_and_look(const char *spec)
{
	static volatile uint8_t planted[16];
	struct sits_key *logon = NULL;
	size_t i;

	/* What the parent had open is not there in a child. */
	region = make_region(PLAIN);
	if (sits_key_open(ctx, spec, &logon) || load_with(logon, NULL) ||
	    memcmp(sits_region_data(region), plain, PLAIN))
		return 1;
	if (in_own_memory(masked_raw, sizeof(masked_raw)) || in_own_memory(masked_hex, sizeof(masked_hex)))
		return 2;
	sits_key_close(logon);
	sits_region_destroy(region);
	for (i = 0; i < sizeof(planted); i++)
		planted[i] = masked_raw[i] ^ 0x5a;
	return in_own_memory(masked_raw, sizeof(masked_raw)) ? 0 : 3;
}

/* A process that loads with a key of type logon has its bytes nowhere. */
static void bytes_of_a_logon_key_stay_out(void **state)
{
	char spec[96], desc[80], hex[33];
	int status;
	size_t i;
	pid_t pid;

	if (!test_on_kernel() || SANITIZED) {
		print_message("# skip: for the kernel provider, without a sanitizer's terabytes of memory\n");
		skip();
	}
	snprintf(desc, sizeof(desc), "sits:test-%d-%08x", getpid(), (unsigned int)rnd());
	snprintf(spec, sizeof(spec), "keyring:%s", desc + 5);
	assert_int_equal(sits_key_install(ctx, key, spec), 0);
	sits_hex(key->raw, 16, hex);
	for (i = 0; i < 32; i++) {
		masked_hex[i] = (uint8_t)hex[i] ^ 0x5a;
		if (i < 16)
			masked_raw[i] = key->raw[i] ^ 0x5a;
	}
	explicit_bzero(hex, sizeof(hex));
	pid = fork();
	if (!pid)
		_exit(load_and_look(spec));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
	assert_int_equal(keyctl_unlink(find_logon(desc), KEY_SPEC_USER_KEYRING), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_header_byte),
		cmocka_unit_test(every_tag),
		cmocka_unit_test(every_byte_between),
		cmocka_unit_test(a_thousand_ciphertext_bits),
		cmocka_unit_test(truncations),
		cmocka_unit_test(extensions),
		cmocka_unit_test(swapped_chunks),
		cmocka_unit_test(parts_of_another_file),
		cmocka_unit_test(wrong_key_and_old_version),
		cmocka_unit_test(arguments),
		cmocka_unit_test(changes_during_a_load),
		cmocka_unit_test(ecb_needs_its_flag),
		cmocka_unit_test(file_in_memory),
		cmocka_unit_test(rekey_cut_short),
		cmocka_unit_test(without_io_uring),
		cmocka_unit_test(key_of_type_logon),
		cmocka_unit_test(bytes_of_a_logon_key_stay_out),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return run_on_providers(tests, sizeof(tests) / sizeof(tests[0]), setup, teardown);
}
