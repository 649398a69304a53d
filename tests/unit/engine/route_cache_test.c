// SPDX-License-Identifier: MIT
/*
 * route_cache_test.c - remembered routes: what is expected after what was seen, who is forgotten, what counts as a hit;
 * and that what is asked for comes into memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/prefetch.h"
#include "daemon/engine/route_cache.h"
#include "daemon/model/model.h"
#include "tests/unit/engine/tiny_model.h"

#define LAYERS 3
#define EXPERTS 50	/* sets span words */

static bool has(const uint64_t *set, uint32_t layer, uint32_t expert)
{
	size_t bit = (size_t)layer * EXPERTS + expert;

	return set[bit / 64] >> bit % 64 & 1;
}

static struct sits_route_cache *make(uint32_t entries)
{
	struct sits_route_cache *c;

	assert_int_equal(sits_route_cache_create(LAYERS, EXPERTS, entries, &c), 0);
	return c;
}

static void note(struct sits_route_cache *c, struct sits_route_entry *e, uint32_t layer, uint32_t a, uint32_t b, int times)
{
	while (times--)
		sits_route_cache_note(c, e, layer, (uint32_t[]){ a, b }, 2);
}

static void a_pattern_seen_is_expected_again(void **state)
{
	struct sits_route_cache *c = make(4);
	struct sits_route_cache_stats s;
	struct sits_route_entry *e;
	const uint64_t *set;
	uint32_t x;

	e = sits_route_cache_begin(c, 7, &set);
	assert_non_null(e);
	assert_null(set);
	for (x = 0; x < LAYERS; x++)
		note(c, e, x, 10 + x, 49 - x, 100);
	note(c, e, 1, 0, 1, 1);	/* 1 of 202: less than half of a 50th */
	sits_route_cache_end(e);

	e = sits_route_cache_begin(c, 7, &set);
	assert_non_null(set);
	for (x = 0; x < EXPERTS; x++) {
		assert_int_equal(has(set, 0, x), x == 10 || x == 49);
		assert_int_equal(has(set, 1, x), x == 11 || x == 48);
		assert_int_equal(has(set, 2, x), x == 12 || x == 47);
	}
	note(c, e, 0, 10, 49, 5);	/* 10 hits */
	note(c, e, 0, 10, 30, 2);	/* 2 hits of 4 */
	sits_route_cache_end(e);
	sits_route_cache_get_stats(c, &s);
	assert_int_equal(s.queries, 2);
	assert_int_equal(s.found, 1);
	assert_int_equal(s.pairs, 14);
	assert_int_equal(s.hits, 12);
	assert_int_equal(s.entries, 1);
	sits_route_cache_destroy(c);
}

static void the_pattern_used_longest_ago_goes(void **state)
{
	struct sits_route_cache *c = make(2);
	struct sits_route_entry *a, *b;
	struct sits_route_cache_stats s;
	const uint64_t *set;
	uint64_t key;

	for (key = 1; key <= 3; key++) {	/* 3 displaces 1 */
		a = sits_route_cache_begin(c, key, &set);
		assert_null(set);
		note(c, a, 0, 1, 2, 1);
		sits_route_cache_end(a);
	}
	sits_route_cache_end(sits_route_cache_begin(c, 2, &set));
	assert_non_null(set);
	sits_route_cache_end(sits_route_cache_begin(c, 3, &set));
	assert_non_null(set);
	/* Those that are held stay; where all are, a newcomer is not remembered, and may say so to note and end. */
	a = sits_route_cache_begin(c, 2, &set);
	b = sits_route_cache_begin(c, 3, &set);
	assert_null(sits_route_cache_begin(c, 1, &set));
	assert_null(set);
	sits_route_cache_note(c, NULL, 0, (uint32_t[]){ 1 }, 1);
	sits_route_cache_end(NULL);
	sits_route_cache_end(a);
	a = sits_route_cache_begin(c, 1, &set);	/* takes the place of 2 */
	assert_non_null(a);
	assert_null(set);
	sits_route_cache_end(a);
	sits_route_cache_end(b);
	sits_route_cache_end(sits_route_cache_begin(c, 3, &set));
	assert_non_null(set);
	sits_route_cache_get_stats(c, &s);
	assert_int_equal(s.entries, 2);
	sits_route_cache_destroy(c);
}

/* Counts stay within their 16 bits, and what was long ago fades. */
static void habits_change(void **state)
{
	struct sits_route_cache *c = make(1);
	const uint64_t *set;
	struct sits_route_entry *e = sits_route_cache_begin(c, 1, &set);

	note(c, e, 0, 3, 4, 100000);
	note(c, e, 0, 5, 6, 100000);
	sits_route_cache_end(e);
	sits_route_cache_end(sits_route_cache_begin(c, 1, &set));
	assert_true(has(set, 0, 5) && has(set, 0, 6));
	assert_false(has(set, 0, 3) || has(set, 0, 4));
	sits_route_cache_destroy(c);
}

static void keys_follow_the_tag_or_the_beginning(void **state)
{
	int32_t a[40] = { 1, 2, 3 }, b[40] = { 1, 2, 3 };

	b[39] = 9;	/* behind what counts */
	assert_true(sits_route_key(1, 0, a, 40) == sits_route_key(1, 0, b, 40));
	b[31] = 9;
	assert_true(sits_route_key(1, 0, a, 40) != sits_route_key(1, 0, b, 40));
	assert_true(sits_route_key(1, 5, a, 40) == sits_route_key(1, 5, b, 40));
	assert_true(sits_route_key(1, 5, a, 40) != sits_route_key(1, 6, a, 40));
	assert_true(sits_route_key(1, 5, a, 40) != sits_route_key(1, 0, a, 40));
	assert_true(sits_route_key(1, 0, a, 3) != sits_route_key(1, 0, a, 4));
	assert_true(sits_route_key(1, 0, a, 40) != sits_route_key(2, 0, a, 40));
}

static void sizes_of_nothing_are_refused(void **state)
{
	struct sits_route_cache *c;

	assert_int_equal(sits_route_cache_create(0, 1, 1, &c), -EINVAL);
	assert_int_equal(sits_route_cache_create(1, 0, 1, &c), -EINVAL);
	assert_int_equal(sits_route_cache_create(1, 1, 0, &c), -EINVAL);
	sits_route_cache_destroy(NULL);
}

/* ---- prefetch ---- */

/* A file of @len bytes, mapped, none of it in memory. NULL where the file system keeps it there. */
static uint8_t *map_cold(size_t len, int *fd)
{
	char path[] = "build/prefetch-XXXXXX";
	unsigned char in[64];
	uint8_t *p;

	mkdir("build", 0777);
	*fd = mkostemp(path, O_CLOEXEC);
	assert_true(*fd >= 0);
	unlink(path);
	assert_int_equal(posix_fallocate(*fd, 0, len), 0);
	assert_int_equal(pwrite(*fd, "x", 1, len / 2), 1);
	assert_int_equal(fsync(*fd), 0);
	posix_fadvise(*fd, 0, 0, POSIX_FADV_DONTNEED);
	p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, *fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(mincore(p, 64 * 4096, in), 0);
	if (in[0] & 1 || in[63] & 1)
		return NULL;
	return p;
}

static void what_is_missing_is_asked_for(void **state)
{
	const size_t len = 8 << 20;
	uint8_t *p, *locked;
	uint64_t bytes;
	int fd;

	/* In memory already: nothing to do; at odd addresses, too. */
	locked = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	assert_true(locked != MAP_FAILED);
	memset(locked, 1, 1 << 20);
	assert_int_equal(sits_prefetch_range(locked + 17, (1 << 20) - 99), 0);
	assert_int_equal(sits_prefetch_range(locked, 0), 0);
	munmap(locked, 1 << 20);

	p = map_cold(len, &fd);
	if (!p) {
		print_message("# skip: the file system keeps a file in memory\n");
		close(fd);
		skip();
	}
	bytes = sits_prefetch_range(p + 5000, len - 5000);
	assert_true(bytes > 0 && bytes <= len && bytes % 4096 == 0);
	munmap(p, len);
	close(fd);
}

static void the_thread_takes_every_set_and_ends(void **state)
{
	struct sits_prefetch_stats s = { 0 };
	struct sits_prefetch *p;
	struct sits_model *m;
	uint64_t set[2] = { ~0ull, ~0ull };
	size_t len;
	void *image = tiny_model((struct tiny_opts){ .experts = 40, .layers = 3, .apart = true }, &len);
	int i;

	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	assert_int_equal(sits_expert_words(3, 40), 2);
	assert_int_equal(sits_prefetch_create(m, &p), 0);
	for (i = 0; i < 200; i++)
		sits_prefetch_ask(p, set);
	sits_prefetch_get_stats(p, &s);
	assert_int_equal(s.asked, 200);
	assert_true(s.skipped < 200);
	assert_int_equal(s.bytes, 0);	/* just written: all in memory */
	sits_prefetch_destroy(p);
	sits_prefetch_destroy(NULL);
	sits_model_close(m);
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pattern_seen_is_expected_again),
		cmocka_unit_test(the_pattern_used_longest_ago_goes),
		cmocka_unit_test(habits_change),
		cmocka_unit_test(keys_follow_the_tag_or_the_beginning),
		cmocka_unit_test(sizes_of_nothing_are_refused),
		cmocka_unit_test(what_is_missing_is_asked_for),
		cmocka_unit_test(the_thread_takes_every_set_and_ends),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
