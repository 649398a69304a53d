// SPDX-License-Identifier: MIT
/*
 * stream_test.c - stop strings and characters, against a plain model over the whole text.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/stream.h"
#include "tests/unit/engine/rng.h"

#define FFFD "\xEF\xBF\xBD"

/* Sources: the Unicode Standard 15.0, tables 3-8 to 3-11; the rest follow from its rule. */
static const struct {
	const char *name, *in, *out;
} utf8_cases[] = {
	{ "ascii", "abc", "abc" },
	{ "two, three and four bytes", "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80", "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80" },
	{ "table 3-8: non-shortest forms", "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
	  FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A" },
	{ "table 3-9: surrogates", "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
	  FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A" },
	{ "table 3-10: other ill-formed", "\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
	  FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B" },
	{ "table 3-11: truncated", "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A" },
	{ "cut at the end", "a\xE4\xB8", "a" FFFD },
	{ "lone lead at the end", "\xF0", FFFD },
	{ "largest code point", "\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF" },
	{ "beyond the largest", "\xF5\x80", FFFD FFFD },
	{ "a character after a cut one", "\xE4\xB8\xC3\xA9", FFFD "\xC3\xA9" },
};

static void invalid_utf8_is_replaced_by_maximal_parts(void **state)
{
	char out[256];
	struct sits_utf8 u;
	size_t i, j, n;

	for (i = 0; i < sizeof(utf8_cases) / sizeof(utf8_cases[0]); i++) {
		memset(&u, 0, sizeof(u));
		for (j = n = 0; utf8_cases[i].in[j]; j++)
			n += sits_utf8_push(&u, utf8_cases[i].in[j], out + n);
		n += sits_utf8_end(&u, out + n);
		out[n] = 0;
		if (strcmp(out, utf8_cases[i].out))
			fail_msg("%s: got %s", utf8_cases[i].name, out);
	}
}

struct text {
	char p[4096];
	size_t n;
};

static void take(struct sits_stream *s, struct text *t)
{
	const char *p;
	size_t n = sits_stream_take(s, &p);

	assert_true(t->n + n < sizeof(t->p));
	if (n)
		memcpy(t->p + t->n, p, n);
	t->n += n;
	t->p[t->n] = 0;
}

static struct sits_stream *make(const char *const *stop, size_t nr)
{
	struct sits_stream *s;
	size_t len[8], i;

	for (i = 0; i < nr; i++)
		len[i] = strlen(stop[i]);
	assert_int_equal(sits_stream_create(stop, len, nr, &s), 0);
	return s;
}

static const struct {
	const char *name;
	const char *stop[4];
	const char *piece[8];
	const char *shown[8];	/* all that is out after each piece; the last stands when the stream ended */
	bool stopped;
} stop_cases[] = {
	{ "in one piece", { "END" }, { "a END b" }, { "a " }, true },
	{ "over three pieces", { "END" }, { "aE", "N", "D" }, { "a", "a", "a" }, true },
	{ "a beginning that leads nowhere", { "END" }, { "E", "N", "x" }, { "", "", "ENx" }, false },
	{ "a beginning at the very end is text", { "END" }, { "a", "EN" }, { "a", "a", "aEN" }, false },
	{ "a beginning inside a beginning", { "aab" }, { "a", "a", "a", "b" }, { "", "", "a", "a" }, true },
	{ "two, the first to be complete", { "xyz", "yq" }, { "xyq" }, { "x" }, true },
	{ "two that end together: the longer", { "c", "abc" }, { "zab", "c" }, { "z", "z" }, true },
	{ "a longer one under way loses", { "abcd", "b" }, { "ab", "cd" }, { "a", "a" }, true },
	{ "one byte", { "\n" }, { "line", "\nmore" }, { "line", "line" }, true },
	{ "characters stay whole around it", { "\xE4\xB8\xAD" }, { "\xE4", "\xB8", "\xAD" }, { "", "", "" }, true },
	{ "a character that shares the beginning", { "\xE4\xB8\xAD" }, { "\xE4", "\xB8", "\x80" },
	  { "", "", "\xE4\xB8\x80" }, false },
	{ "a stop that begins within a character", { "\xB8" }, { "a\xE4\xB8" }, { "a" FFFD }, true },
	{ "none", { 0 }, { "\xF0\x9F", "\x98\x80!" }, { "", "\xF0\x9F\x98\x80!" }, false },
};

static void stop_strings_never_leak(void **state)
{
	size_t i, j, nr;

	for (i = 0; i < sizeof(stop_cases) / sizeof(stop_cases[0]); i++) {
		struct sits_stream *s;
		struct text t = { .n = 0 };
		bool stopped = false;

		for (nr = 0; nr < 4 && stop_cases[i].stop[nr]; nr++)
			;
		s = make(stop_cases[i].stop, nr);
		for (j = 0; stop_cases[i].piece[j] && !stopped; j++) {
			assert_int_equal(sits_stream_push(s, stop_cases[i].piece[j], strlen(stop_cases[i].piece[j]),
							  &stopped), 0);
			take(s, &t);
			if (strcmp(t.p, stop_cases[i].shown[j]))
				fail_msg("%s: piece %zu: shown \"%s\"", stop_cases[i].name, j, t.p);
		}
		assert_int_equal(stopped, stop_cases[i].stopped);
		if (!stopped) {
			assert_int_equal(sits_stream_end(s), 0);
			take(s, &t);
			assert_string_equal(t.p, stop_cases[i].shown[j] ? stop_cases[i].shown[j] :
					    stop_cases[i].shown[j - 1]);
		}
		sits_stream_destroy(s);
	}
}

/* The plain way: first index at which any string is complete; the longest of those that are. */
static bool plain_stop(const char *text, size_t n, const char *const *stop, size_t nr, size_t *cut)
{
	size_t end, j, len, best;

	for (end = 1; end <= n; end++) {
		for (j = best = 0; j < nr; j++) {
			len = strlen(stop[j]);
			if (len <= end && len > best && !memcmp(text + end - len, stop[j], len))
				best = len;
		}
		if (best) {
			*cut = end - best;
			return true;
		}
	}
	*cut = n;
	return false;
}

static void random_text_agrees_with_a_search_of_the_whole(void **state)
{
	static const char alphabet[] = "ab";
	struct rng r = rng_seeded("stream");
	uint32_t round, i, n, nr, hits = 0;

	for (round = 0; round < 20000; round++) {
		char text[33], str[4][8];
		const char *stop[4];
		struct sits_stream *s;
		struct text t = { .n = 0 };
		bool stopped = false;
		size_t cut, at;

		n = rng_below(&r, 32);
		for (i = 0; i < n; i++)
			text[i] = alphabet[rng_below(&r, 2)];
		nr = rng_below(&r, 5);
		for (i = 0; i < nr; i++) {
			size_t len = 1 + rng_below(&r, 7), k;

			for (k = 0; k < len; k++)
				str[i][k] = alphabet[rng_below(&r, 2)];
			str[i][len] = 0;
			stop[i] = str[i];
		}
		s = make(stop, nr);
		for (at = 0; at < n && !stopped; at += i) {
			i = 1 + rng_below(&r, 4);
			if (i > n - at)
				i = n - at;
			assert_int_equal(sits_stream_push(s, text + at, i, &stopped), 0);
			take(s, &t);
		}
		if (!stopped)
			sits_stream_end(s);
		take(s, &t);
		assert_int_equal(stopped, plain_stop(text, n, stop, nr, &cut));
		hits += stopped;
		assert_int_equal(t.n, cut);
		assert_memory_equal(t.p, text, cut);
		sits_stream_destroy(s);
	}
	assert_true(hits > 1000);
}

/* What is shown is at any time what the plain way shows, less the shortest tail that could still matter. */
static void no_more_is_held_back_than_must_be(void **state)
{
	static const char *const stop[] = { "abcabd" };
	struct sits_stream *s = make(stop, 1);
	struct text t = { .n = 0 };
	bool stopped;

	assert_int_equal(sits_stream_push(s, "xabcab", 6, &stopped), 0);
	take(s, &t);
	assert_string_equal(t.p, "x");
	assert_int_equal(sits_stream_push(s, "c", 1, &stopped), 0);
	take(s, &t);
	assert_string_equal(t.p, "xabc");
	assert_int_equal(sits_stream_push(s, "z", 1, &stopped), 0);
	take(s, &t);
	assert_string_equal(t.p, "xabcabcz");
	sits_stream_destroy(s);
}

static void long_and_empty_pieces(void **state)
{
	static const char *const stop[] = { "never" };
	struct sits_stream *s = make(stop, 1);
	char *big = malloc(1 << 20);
	const char *p;
	bool stopped;

	assert_non_null(big);
	memset(big, 0xFF, 1 << 20);
	assert_int_equal(sits_stream_push(s, "", 0, &stopped), 0);
	assert_int_equal(sits_stream_take(s, &p), 0);
	assert_int_equal(sits_stream_push(s, big, 1 << 20, &stopped), 0);
	assert_int_equal(sits_stream_take(s, &p), 3 << 20);
	assert_memory_equal(p + (3 << 20) - 3, FFFD, 3);
	assert_int_equal(sits_stream_end(s), 0);
	assert_int_equal(sits_stream_take(s, &p), 0);
	sits_stream_destroy(s);
	free(big);
}

static void bad_stop_strings_are_refused(void **state)
{
	struct sits_stream *s;
	const char *stop[] = { "ok", "" };
	size_t len[] = { 2, 0 };

	assert_int_equal(sits_stream_create(stop, len, 2, &s), -EINVAL);
	len[1] = 65536;
	assert_int_equal(sits_stream_create(stop, len, 2, &s), -EINVAL);
	sits_stream_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(invalid_utf8_is_replaced_by_maximal_parts),
		cmocka_unit_test(stop_strings_never_leak),
		cmocka_unit_test(random_text_agrees_with_a_search_of_the_whole),
		cmocka_unit_test(no_more_is_held_back_than_must_be),
		cmocka_unit_test(long_and_empty_pieces),
		cmocka_unit_test(bad_stop_strings_are_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
