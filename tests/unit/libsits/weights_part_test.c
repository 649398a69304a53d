// SPDX-License-Identifier: MIT
/*
 * weights_part_test.c - loading parts of a sealed file, and several files at once. For each provider in
 * $SITS_TEST_PROVIDERS.
 */
#include <sys/mman.h>

#include "crypto/sealed.h"
#include "libsits/internal.h"
#include "tests/unit/libsits/sealed_util.h"

#define MIB (1u << 20)

static struct sits_key *key, *other_key;

/* Under emulation @n of a kind are too many. */
static unsigned int some(unsigned int n)
{
	return getenv("SITS_VM") ? (n + 19) / 20 : n;
}

static int setup(void **state)
{
	if (dir_setup(state))
		return -1;
	key = make_key("kek");
	other_key = make_key("other");
	return 0;
}

static int teardown(void **state)
{
	sits_key_close(key);
	sits_key_close(other_key);
	return dir_teardown(state);
}

/* Random bytes, sealed under @k as @name; they are returned, to be freed by the caller. */
static uint8_t *seal_random(const char *name, const struct sits_key *k, size_t len, uint32_t chunk)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = chunk, .threads = 2, .model_id = name, .force = 1 };
	uint8_t *plain = make_plain(in_dir("plain"), len);

	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir(name), k, &o), 0);
	unlink(in_dir("plain"));
	return plain;
}

static uint64_t data_off(const char *name)
{
	struct sits_sealed_info info;

	assert_int_equal(sits_sealed_inspect(ctx, in_dir(name), NULL, &info), 0);
	return info.file_bytes - info.plain_bytes;
}

static void flip(const char *name, uint64_t off)
{
	int fd = open(in_dir(name), O_RDWR | O_CLOEXEC);
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	b ^= 1;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	close(fd);
}

static void forget_cached(const char *name)
{
	int fd = open(in_dir(name), O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

/* A region with something in it, which a load has to take away. */
static struct sits_region *dirty_region(uint64_t len)
{
	struct sits_region *r = make_region(len);

	memset(sits_region_data(r), 0xa5, len);
	return r;
}

static void assert_unreadable(const struct sits_region *r)
{
	assert_null(sits_region_data(r));
	if (!test_on_kernel())
		assert_true(all_zero(r->data, r->mapped_bytes));
}

/* -------------------------------------------------------------------- the plan */

#define PLAN_CHUNKS 60u

/* Each chunk that has a wanted byte, and no other, once, in order; packed or in its place. */
static void check_plan(const struct sits_sealed_info *info, const struct sits_load_range *want, uint32_t nr_want, bool in_place)
{
	struct sits_load_range out[32];
	bool wanted[PLAN_CHUNKS + 1] = { false };
	uint64_t bytes, at = 0, off, run;
	uint32_t i, c = 0;
	int nr;

	for (i = 0; i < nr_want; i++)
		for (off = want[i].file_off / info->chunk_bytes; off * info->chunk_bytes < want[i].file_off + want[i].len_bytes; off++)
			wanted[off] = true;
	nr = sits_load_plan(info, want, nr_want, in_place ? SITS_PLAN_IN_PLACE : 0, out, &bytes);
	assert_true(nr > 0 && nr <= (int)nr_want);
	for (i = 0; i < (uint32_t)nr; i++) {
		for (; c * (uint64_t)info->chunk_bytes < out[i].file_off; c++)
			assert_false(wanted[c]);
		assert_int_equal(c * (uint64_t)info->chunk_bytes, out[i].file_off);
		for (; c * (uint64_t)info->chunk_bytes < out[i].file_off + out[i].len_bytes; c++)
			assert_true(wanted[c]);
		assert_true(c * (uint64_t)info->chunk_bytes == out[i].file_off + out[i].len_bytes ||
			    info->plain_bytes == out[i].file_off + out[i].len_bytes);
		/* What touches is one range. */
		assert_false(wanted[c] && c < PLAN_CHUNKS);
		assert_int_equal(out[i].region_off, in_place ? out[i].file_off : at);
		at = out[i].region_off + out[i].len_bytes;
	}
	for (; c < PLAN_CHUNKS; c++)
		assert_false(wanted[c]);
	assert_int_equal(bytes, at);
	for (i = 0; i < nr_want; i++) {
		off = want[i].file_off + rnd() % want[i].len_bytes;
		assert_int_equal(sits_load_place(out, (uint32_t)nr, off, &at, &run), 0);
		assert_true(run >= want[i].file_off + want[i].len_bytes - off);
		assert_true(at + run <= bytes);
		if (in_place)
			assert_int_equal(at, off);
	}
	for (c = 0; c < PLAN_CHUNKS; c++)
		assert_int_equal(sits_load_place(out, (uint32_t)nr, c * (uint64_t)info->chunk_bytes, NULL, NULL), wanted[c] ? 0 : -ENOENT);
}

static void plans(void **state)
{
	struct sits_sealed_info info = { .chunk_bytes = 4096, .plain_bytes = PLAN_CHUNKS * 4096ull - 1000 };
	struct sits_load_range want[32];
	unsigned int n;

	for (n = 0; n < some(3000); n++) {
		uint32_t i, nr = 1 + (uint32_t)(rnd() % 32);

		for (i = 0; i < nr; i++) {
			want[i].file_off = rnd() % info.plain_bytes;
			want[i].len_bytes = 1 + rnd() % SITS_MIN(info.plain_bytes - want[i].file_off, n & 1 ? 100 : 20000);
			want[i].region_off = rnd();
		}
		check_plan(&info, want, nr, n & 2);
	}
}

static void plans_refused(void **state)
{
	struct sits_sealed_info info = { .chunk_bytes = 4096, .plain_bytes = 10000 }, odd = info, large;
	struct sits_load_range want = { .len_bytes = 1 }, out, bad[] = {
		{ 0, 0, 0 }, { 10000, 1, 0 }, { 0, 10001, 0 }, { 9999, 2, 0 }, { UINT64_MAX, 1, 0 }, { 1, UINT64_MAX, 0 },
	};
	uint64_t bytes;
	size_t i;

	assert_int_equal(sits_load_plan(&info, &want, 1, 0, &out, NULL), 1);
	assert_int_equal(out.len_bytes, 4096);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(sits_load_plan(&info, &bad[i], 1, 0, &out, &bytes), -EINVAL);
	assert_int_equal(sits_load_plan(&info, &want, 0, 0, &out, &bytes), -EINVAL);
	assert_int_equal(sits_load_plan(&info, &want, SITS_LOAD_RANGES_MAX + 1, 0, &out, &bytes), -EINVAL);
	assert_int_equal(sits_load_plan(&info, &want, 1, 2, &out, &bytes), -EINVAL);
	assert_int_equal(sits_load_plan(NULL, &want, 1, 0, &out, &bytes), -EINVAL);
	assert_int_equal(sits_load_plan(&info, NULL, 1, 0, &out, &bytes), -EINVAL);
	assert_int_equal(sits_load_plan(&info, &want, 1, 0, NULL, &bytes), -EINVAL);
	odd.chunk_bytes = 5000;
	assert_int_equal(sits_load_plan(&odd, &want, 1, 0, &out, &bytes), -EINVAL);
	odd.chunk_bytes = 0;
	assert_int_equal(sits_load_plan(&odd, &want, 1, 0, &out, &bytes), -EINVAL);
	/* The largest that a header could claim. */
	large = (struct sits_sealed_info){ .chunk_bytes = 16 << 20, .plain_bytes = UINT64_MAX };
	want = (struct sits_load_range){ .file_off = UINT64_MAX - 5, .len_bytes = 5 };
	assert_int_equal(sits_load_plan(&large, &want, 1, 0, &out, &bytes), 1);
	assert_true(out.file_off == UINT64_MAX - (16 << 20) + 1 && out.file_off + out.len_bytes == UINT64_MAX);
}

/* -------------------------------------------------------------- parts of a file */

static const struct {
	const char *name;
	unsigned int flags;
	bool no_uring, cold;
} ways[] = {
	{ "direct", 0, false, false },
	{ "page cache", SITS_LOAD_BUFFERED, false, false },
	{ "page cache, not there", SITS_LOAD_BUFFERED, false, true },
	{ "direct, no io_uring", 0, true, false },
	{ "page cache, no io_uring", SITS_LOAD_BUFFERED, true, true },
};

static void set_way(size_t way, struct sits_load_opts *o, const char *name)
{
	*o = (struct sits_load_opts){ .size = sizeof(*o), .flags = ways[way].flags, .threads = 1 + (uint32_t)(way % 3) };
	if (ways[way].no_uring)
		setenv("SITS_NO_IO_URING", "1", 1);
	else
		unsetenv("SITS_NO_IO_URING");
	if (ways[way].cold)
		forget_cached(name);
}

/* Load @ranges into a dirty region of @bytes, and compare with @plain. */
static void check_ranges(const char *name, const uint8_t *plain, const struct sits_load_range *ranges, uint32_t nr,
			 uint64_t bytes, size_t way)
{
	struct sits_region *r = dirty_region(bytes + 5000);
	struct sits_sealed_info info, inspected;
	struct sits_region_info facts;
	struct sits_load_opts o;
	uint64_t at = 0;
	uint8_t *data;
	uint32_t i;
	int ret;

	set_way(way, &o, name);
	o.ranges = ranges;
	o.nr_ranges = nr;
	log_clear();
	ret = sits_weights_load(ctx, in_dir(name), r, key, &o, &info);
	if (ret)
		fail_msg("%s: %d: %s", ways[way].name, ret, test_log);
	data = sits_region_data(r);
	assert_non_null(data);
	for (i = 0; i < nr; i++) {
		assert_true(all_zero(data + at, ranges[i].region_off - at));
		assert_memory_equal(data + ranges[i].region_off, plain + ranges[i].file_off, ranges[i].len_bytes);
		at = ranges[i].region_off + ranges[i].len_bytes;
	}
	assert_true(all_zero(data + at, r->mapped_bytes - at));
	assert_int_equal(sits_region_info(r, &facts), 0);
	assert_int_equal(facts.partial, 1);
	assert_int_equal(facts.sealed, 1);
	/* It is the file's digest all the same. */
	assert_int_equal(sits_sealed_inspect(ctx, in_dir(name), key, &inspected), 0);
	assert_memory_equal(facts.digest, inspected.digest, 32);
	assert_memory_equal(info.digest, inspected.digest, 32);
	assert_int_equal(info.plain_bytes, inspected.plain_bytes);
	sits_region_destroy(r);
	unsetenv("SITS_NO_IO_URING");
}

/* Chunks smaller than, as large as, and larger than what is worked on at a time. */
static void parts_of_a_file(void **state)
{
	static const uint32_t chunks[] = { 4096, 65536, 128 << 10, 256 << 10, 1 << 20, 4 << 20 };
	struct sits_load_range want[12], out[12];
	const bool guest = getenv("SITS_VM");
	size_t len = (guest ? 2 : 5) * MIB - 777, c, way;
	struct sits_sealed_info info;
	uint64_t bytes;

	for (c = 0; c < sizeof(chunks) / sizeof(chunks[0]); c += guest ? 2 : 1) {
		uint8_t *plain = seal_random("m.sits", key, len, chunks[c]);

		assert_int_equal(sits_sealed_inspect(ctx, in_dir("m.sits"), key, &info), 0);
		for (way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
			uint32_t i, nr = 1 + (uint32_t)(rnd() % 12);
			int n;

			for (i = 0; i < nr; i++) {
				want[i].file_off = rnd() % len;
				want[i].len_bytes = 1 + rnd() % SITS_MIN(len - want[i].file_off, 300000);
			}
			if (!way)
				want[0] = (struct sits_load_range){ .file_off = len - 1, .len_bytes = 1 };
			n = sits_load_plan(&info, want, nr, way & 1 ? SITS_PLAN_IN_PLACE : 0, out, &bytes);
			assert_true(n > 0);
			if (!(way & 1) && n > 1)	/* and a hole in the region */
				for (i = 1, bytes += 8192; i < (uint32_t)n; i++)
					out[i].region_off += 8192;
			check_ranges("m.sits", plain, out, (uint32_t)n, bytes, way);
		}
		free(plain);
	}
}

static void refuse(const struct sits_load_range *ranges, uint32_t nr, int want, const char *words)
{
	struct sits_load_opts o = { .size = sizeof(o), .threads = 1, .ranges = ranges, .nr_ranges = nr };
	struct sits_region *r = dirty_region(40000);
	int ret;

	log_clear();
	ret = sits_weights_load(ctx, in_dir("m.sits"), r, key, &o, NULL);
	if (ret != want)
		fail_msg("%d, not %d (%s): %s", ret, want, words, test_log);
	assert_logged(words);
	assert_logged("m.sits: ");
	/* It was not touched. */
	assert_non_null(sits_region_data(r));
	assert_int_equal(((uint8_t *)sits_region_data(r))[39999], 0xa5);
	sits_region_destroy(r);
}

static void ranges_refused(void **state)
{
	uint8_t *plain = seal_random("m.sits", key, 30000, 4096);
	const struct sits_load_range good = { 4096, 8192, 0 };
	struct sits_load_range r[2] = { good, good };
	struct sits_load_opts o = { .size = sizeof(o), .ranges = r, .nr_ranges = 1 };

	refuse(NULL, 1, -EINVAL, "must be somewhere");
	refuse(r, SITS_LOAD_RANGES_MAX + 1, -EINVAL, "at most 65536");
	r[0] = (struct sits_load_range){ 4096, 0, 0 };
	refuse(r, 1, -EINVAL, "range 0 (counted from 0), 0 bytes at 4096: is empty");
	r[0] = (struct sits_load_range){ 4095, 4097, 0 };
	refuse(r, 1, -EINVAL, "whole chunks");
	r[0] = (struct sits_load_range){ 4096, 4095, 0 };
	refuse(r, 1, -EINVAL, "whole chunks");
	r[0] = (struct sits_load_range){ 28672, 1329, 0 };
	refuse(r, 1, -EINVAL, "beyond the end");
	r[0] = (struct sits_load_range){ 32768, 4096, 0 };
	refuse(r, 1, -EINVAL, "beyond the end");
	r[0] = (struct sits_load_range){ 4096, UINT64_MAX - 4095, 0 };
	refuse(r, 1, -EINVAL, "beyond the end");
	r[0] = (struct sits_load_range){ 4096, 4096, 100 };
	refuse(r, 1, -EINVAL, "multiple of 4096");
	r[0] = (struct sits_load_range){ 4096, 4096, 36864 };
	refuse(r, 1, -EFBIG, "4096 bytes, goes to byte 36864 of a region that has room for 40000");
	r[0] = (struct sits_load_range){ 4096, 4096, UINT64_MAX - 4095 };
	refuse(r, 1, -EFBIG, "has room for");
	/* Its end is 0, and the next one is behind that. */
	r[1] = (struct sits_load_range){ 8192, 4096, 0 };
	refuse(r, 2, -EFBIG, "range 0 (counted from 0), 4096 bytes, goes to byte 18446744073709547520 of a region");
	r[0].region_off = UINT64_MAX - 8191;
	r[0].len_bytes = 12288;
	r[1] = (struct sits_load_range){ 16384, 4096, 4096 };
	refuse(r, 2, -EFBIG, "range 0 (counted from 0), 12288 bytes, goes to byte");
	r[0] = good;
	r[1] = (struct sits_load_range){ 8192, 4096, 8192 };
	refuse(r, 2, -EINVAL, "range 1 (counted from 0), 4096 bytes at 8192: is not behind");
	r[1] = (struct sits_load_range){ 12288, 4096, 4096 };
	refuse(r, 2, -EINVAL, "goes to where the one before it does");
	r[1] = (struct sits_load_range){ 12288, 4096, 8192 };
	assert_int_equal(sits_sealed_verify(ctx, in_dir("m.sits"), key, &o, NULL), 0);
	/* A verify puts them nowhere. */
	r[0].region_off = 1;
	assert_int_equal(sits_sealed_verify(ctx, in_dir("m.sits"), key, &o, NULL), 0);
	r[0].file_off = 1;
	assert_int_equal(sits_sealed_verify(ctx, in_dir("m.sits"), key, &o, NULL), -EINVAL);
	free(plain);

	/* A file without contents has no parts. */
	free(seal_random("m.sits", key, 0, 4096));
	refuse(&good, 1, -EINVAL, "beyond the end");
}

/* Only the chunks of the ranges are verified; which is bad is told by its number in the file. */
static void what_is_verified(void **state)
{
	const struct sits_load_range ranges[2] = { { 2 * 65536, 65536, 0 }, { 9 * 65536, 3 * 65536, 65536 } };
	const bool guest = getenv("SITS_VM");
	size_t way, len = MIB;
	unsigned int chunk;
	char name[40];

	for (chunk = guest ? 2 : 0; chunk < 16; chunk += guest ? 4 : 1) {
		bool inside = chunk == 2 || (chunk >= 9 && chunk < 12);
		uint8_t *plain = seal_random("m.sits", key, len, 65536);
		struct sits_load_opts o;
		int verify, ret;

		way = chunk % (sizeof(ways) / sizeof(ways[0]));
		flip("m.sits", data_off("m.sits") + chunk * 65536 + rnd() % 65536);
		for (verify = 0; verify < 2; verify++) {
			struct sits_region *r = dirty_region(4 * 65536);

			set_way(way, &o, "m.sits");
			o.ranges = ranges;
			o.nr_ranges = 2;
			log_clear();
			ret = verify ? sits_sealed_verify(ctx, in_dir("m.sits"), key, &o, NULL) :
			      sits_weights_load(ctx, in_dir("m.sits"), r, key, &o, NULL);
			if (ret != (inside ? -EBADMSG : 0))
				fail_msg("chunk %u, %s: %d: %s", chunk, ways[way].name, ret, test_log);
			if (inside) {
				snprintf(name, sizeof(name), "chunk %u (counted from 0, of 16)", chunk);
				assert_logged(name);
			}
			if (inside && !verify)
				assert_unreadable(r);
			sits_region_destroy(r);
		}
		assert_int_equal(sits_sealed_verify(ctx, in_dir("m.sits"), key, NULL, NULL), -EBADMSG);
		unsetenv("SITS_NO_IO_URING");
		free(plain);
	}
}

/* --------------------------------------------------------------- several files */

#define FILES 5

static const size_t file_lens[FILES] = { 3 * MIB + 5, 0, 70000, 1, 2 * MIB };
static uint64_t progress_done, progress_total;
static unsigned int progress_calls;
static bool stop_early;

static int progress(void *arg, uint64_t done, uint64_t total)
{
	assert_ptr_equal(arg, &progress_calls);
	assert_true(done >= progress_done && done <= total);
	assert_true(!progress_calls || total == progress_total);
	progress_done = done;
	progress_total = total;
	progress_calls++;
	return stop_early && progress_calls == 2;
}

struct files {
	struct sits_load_item items[FILES];
	struct sits_sealed_info info[FILES];
	uint8_t *plain[FILES];
	char names[FILES][16], paths[FILES][64];
};

static void files_make(struct files *f)
{
	int i;

	for (i = 0; i < FILES; i++) {
		snprintf(f->names[i], sizeof(f->names[i]), "part-%d.sits", i);
		snprintf(f->paths[i], sizeof(f->paths[i]), "%s", in_dir(f->names[i]));
		f->plain[i] = seal_random(f->names[i], key, file_lens[i], i % 2 ? 4096 : i ? 65536 : MIB);
		f->items[i] = (struct sits_load_item){ .size = sizeof(f->items[i]), .path = f->paths[i], .info = &f->info[i] };
	}
}

static void regions_make(struct files *f)
{
	int i;

	for (i = 0; i < FILES; i++)
		f->items[i].region = dirty_region(file_lens[i] + 1);
}

static void regions_destroy(struct files *f)
{
	int i;

	for (i = 0; i < FILES; i++)
		sits_region_destroy(f->items[i].region);
}

static void files_free(struct files *f)
{
	int i;

	for (i = 0; i < FILES; i++) {
		free(f->plain[i]);
		unlink(f->paths[i]);
	}
}

static int load_many(struct files *f, size_t way)
{
	struct sits_load_opts o;
	int ret;

	set_way(way, &o, f->names[0]);
	o.progress = progress;
	o.progress_arg = &progress_calls;
	progress_done = 0;
	progress_calls = 0;
	log_clear();
	ret = sits_weights_load_many(ctx, f->items, FILES, key, &o);
	unsetenv("SITS_NO_IO_URING");
	return ret;
}

static void several_files(void **state)
{
	static struct files f;
	struct sits_region_info facts;
	struct sits_sealed_info info;
	uint64_t total = 0;
	size_t way;
	int i, ret;

	files_make(&f);
	for (i = 0; i < FILES; i++)
		total += file_lens[i];
	for (way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
		regions_make(&f);
		ret = load_many(&f, way);
		if (ret)
			fail_msg("%s: %d: %s", ways[way].name, ret, test_log);
		assert_true(progress_calls >= 2 && progress_done == total && progress_total == total);
		for (i = 0; i < FILES; i++) {
			const struct sits_region *r = f.items[i].region;
			uint8_t *data = sits_region_data(r);

			assert_non_null(data);
			assert_memory_equal(data, f.plain[i], file_lens[i]);
			assert_true(all_zero(data + file_lens[i], r->mapped_bytes - file_lens[i]));
			assert_int_equal(sits_sealed_inspect(ctx, f.paths[i], key, &info), 0);
			assert_int_equal(sits_region_info(r, &facts), 0);
			assert_int_equal(facts.partial, 0);
			assert_int_equal(facts.sealed, 1);
			assert_memory_equal(facts.digest, info.digest, 32);
			assert_memory_equal(&info, &f.info[i], sizeof(info));
		}
		regions_destroy(&f);
	}
	files_free(&f);
}

/* A load of several with ranges of some. */
static void several_files_in_part(void **state)
{
	static const struct sits_load_range first[1] = { { MIB, MIB, 4096 } }, third[2] = { { 0, 65536, 0 }, { 65536, 70000 - 65536, 65536 } };
	static struct files f;
	struct sits_region_info facts;
	uint8_t *data;

	files_make(&f);
	regions_make(&f);
	f.items[0].ranges = first;
	f.items[0].nr_ranges = 1;
	f.items[2].ranges = third;
	f.items[2].nr_ranges = 2;
	assert_int_equal(load_many(&f, 1), 0);
	assert_int_equal(progress_total, MIB + 70000 + 1 + 2 * MIB);
	data = sits_region_data(f.items[0].region);
	assert_true(all_zero(data, 4096));
	assert_memory_equal(data + 4096, f.plain[0] + MIB, MIB);
	assert_true(all_zero(data + MIB + 4096, file_lens[0] - MIB - 4096));
	assert_memory_equal(sits_region_data(f.items[2].region), f.plain[2], 70000);
	assert_int_equal(sits_region_info(f.items[2].region, &facts), 0);
	assert_int_equal(facts.partial, 1);
	assert_memory_equal(sits_region_data(f.items[4].region), f.plain[4], file_lens[4]);
	assert_int_equal(sits_region_info(f.items[4].region, &facts), 0);
	assert_int_equal(facts.partial, 0);
	regions_destroy(&f);
	files_free(&f);
}

/* One that can't be loaded takes all others with it. */
static void none_of_several(void **state)
{
	static struct files f;
	size_t way;
	int i, bad;

	files_make(&f);
	for (bad = 0; bad < FILES; bad++) {
		struct sits_sealed_info info;
		uint64_t at;

		if (!file_lens[bad])
			continue;
		at = data_off(f.names[bad]) + file_lens[bad] - 1;
		way = (size_t)bad % (sizeof(ways) / sizeof(ways[0]));
		regions_make(&f);
		flip(f.names[bad], at);
		assert_int_equal(load_many(&f, way), -EBADMSG);
		assert_logged(f.names[bad]);
		assert_logged("tag does not verify");
		for (i = 0; i < FILES; i++) {
			/* Those that the kernel had not begun with are as they were. */
			if (test_on_kernel() && i > bad)
				assert_int_equal(*(uint8_t *)sits_region_data(f.items[i].region), 0xa5);
			else
				assert_unreadable(f.items[i].region);
		}
		flip(f.names[bad], at);
		assert_int_equal(sits_sealed_inspect(ctx, f.paths[bad], key, &info), 0);
		regions_destroy(&f);
	}
	/* Of two that are bad the first is told, however small it is. */
	flip(f.names[3], data_off(f.names[3]));
	flip(f.names[4], data_off(f.names[4]));
	regions_make(&f);
	assert_int_equal(load_many(&f, 0), -EBADMSG);
	assert_logged("part-3.sits: chunk 0");
	assert_null(strstr(test_log, "part-4"));
	regions_destroy(&f);
	files_free(&f);
}

/* What the headers say is looked at before a region is touched. */
static void several_refused_at_once(void **state)
{
	struct sits_load_opts o = { .size = sizeof(o) };
	static struct files f;
	struct sits_region *kept;
	const char *path;
	int i;

	files_make(&f);
	regions_make(&f);
	free(seal_random("other.sits", other_key, 100, 4096));
	path = f.items[4].path;
	f.items[4].path = in_dir("other.sits");
	assert_int_equal(load_many(&f, 0), -ENOKEY);
	assert_logged("other.sits: wrong key");
	f.items[4].path = in_dir("none.sits");
	assert_int_equal(load_many(&f, 0), -ENOENT);
	f.items[4].path = NULL;
	assert_int_equal(load_many(&f, 0), -EINVAL);
	assert_logged("file 4");
	f.items[4].path = path;
	f.items[3].size += 8;
	assert_int_equal(load_many(&f, 0), -EINVAL);
	f.items[3].size -= 8;
	assert_int_equal(sits_weights_load_many(ctx, f.items, 0, key, NULL), -EINVAL);
	assert_int_equal(sits_weights_load_many(ctx, f.items, SITS_LOAD_FILES_MAX + 1, key, NULL), -EINVAL);
	assert_int_equal(sits_weights_load_many(ctx, NULL, 1, key, NULL), -EINVAL);
	assert_int_equal(sits_weights_load_many(ctx, f.items, 1, NULL, NULL), -EINVAL);
	assert_int_equal(sits_weights_load_many(NULL, f.items, 1, key, NULL), -EINVAL);
	o.nr_ranges = 1;
	assert_int_equal(sits_weights_load_many(ctx, f.items, FILES, key, &o), -EINVAL);
	for (i = 0; i < FILES; i++)
		assert_int_equal(*(uint8_t *)sits_region_data(f.items[i].region), 0xa5);

	/* The same region for two: nothing is left of the load, but what it had taken. */
	kept = f.items[3].region;
	f.items[3].region = f.items[2].region;
	assert_int_equal(load_many(&f, 0), -EBUSY);
	assert_logged("another load runs");
	f.items[3].region = kept;

	/* Told to stop, then all once more. */
	stop_early = true;
	assert_int_equal(load_many(&f, 1), -ECANCELED);
	stop_early = false;
	if (!test_on_kernel())
		for (i = 0; i < FILES; i++)
			assert_unreadable(f.items[i].region);
	regions_destroy(&f);
	regions_make(&f);
	assert_int_equal(load_many(&f, 1), 0);
	regions_destroy(&f);
	files_free(&f);
}

/* A struct of a program that was built before there were ranges. */
static void options_as_they_were(void **state)
{
	uint8_t *plain = seal_random("m.sits", key, 5000, 4096);
	struct {
		struct sits_load_opts o;
	} was = { .o = { .size = offsetof(struct sits_load_opts, ranges), .ranges = (void *)16, .nr_ranges = 77, .reserved2 = 1 } };
	struct sits_region *r = make_region(5000);

	assert_int_equal(sits_weights_load(ctx, in_dir("m.sits"), r, key, &was.o, NULL), 0);
	assert_memory_equal(sits_region_data(r), plain, 5000);
	was.o.size = sizeof(was.o);
	was.o.ranges = NULL;
	was.o.nr_ranges = 0;
	assert_int_equal(sits_sealed_verify(ctx, in_dir("m.sits"), key, &was.o, NULL), -EINVAL);
	sits_region_destroy(r);
	free(plain);
}

/* Items of a program that was built later: what it set and is not known here is not passed over. */
static void items_of_the_future(void **state)
{
	uint8_t *plain = seal_random("m.sits", key, 5000, 4096);
	struct {
		struct sits_load_item item;
		uint64_t later;
	} items[2];
	int i;

	for (i = 0; i < 2; i++) {
		items[i].item = (struct sits_load_item){ .size = sizeof(items[0]), .path = in_dir("m.sits"), .region = make_region(5000) };
		items[i].later = 0;
	}
	items[1].later = 1;
	assert_int_equal(sits_weights_load_many(ctx, &items[0].item, 2, key, NULL), -EINVAL);
	assert_logged("file 1 (counted from 0): unknown size, or fields");
	items[1].later = 0;
	assert_int_equal(sits_weights_load_many(ctx, &items[0].item, 2, key, NULL), 0);
	for (i = 0; i < 2; i++) {
		assert_memory_equal(sits_region_data(items[i].item.region), plain, 5000);
		sits_region_destroy(items[i].item.region);
	}
	/* Far more than any item will ever have. */
	items[0].item.size = UINT32_MAX - 7;
	assert_int_equal(sits_weights_load_many(ctx, &items[0].item, 2, key, NULL), -EINVAL);
	free(plain);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans),
		cmocka_unit_test(plans_refused),
		cmocka_unit_test(parts_of_a_file),
		cmocka_unit_test(ranges_refused),
		cmocka_unit_test(what_is_verified),
		cmocka_unit_test(several_files),
		cmocka_unit_test(several_files_in_part),
		cmocka_unit_test(none_of_several),
		cmocka_unit_test(several_refused_at_once),
		cmocka_unit_test(options_as_they_were),
		cmocka_unit_test(items_of_the_future),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return run_on_providers(tests, sizeof(tests) / sizeof(tests[0]), setup, teardown);
}
