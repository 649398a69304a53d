// SPDX-License-Identifier: MIT
/*
 * infer_test.c - the request codec: what goes in comes out, and nothing else gets through.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "sits/infer.h"
#include "sits/queue.h"

struct seen {
	size_t nr;
	uint16_t type[64];
	size_t len[64];
	char first[64];
	int stop_at, stop_with;
};

static int note_field(void *arg, uint16_t type, const void *bytes, size_t len)
{
	struct seen *s = arg;

	if (s->stop_with && (int)s->nr == s->stop_at)
		return s->stop_with;
	if (s->nr < 64) {
		s->type[s->nr] = type;
		s->len[s->nr] = len;
		s->first[s->nr] = len ? *(const char *)bytes : '\0';
	}
	s->nr++;
	return 0;
}

static struct sits_infer_builder *new_builder(void)
{
	struct sits_infer_builder *b;

	assert_int_equal(sits_infer_builder_create(&b), 0);
	return b;
}

static void add(struct sits_infer_builder *b, uint16_t type, const char *text)
{
	assert_int_equal(sits_infer_builder_add(b, type, text, strlen(text)), 0);
}

static int parse(struct sits_infer_builder *b, struct sits_infer_request_hdr *hdr,
		 struct seen *seen, char *err, size_t err_len)
{
	const void *bytes;
	size_t len;

	assert_int_equal(sits_infer_builder_bytes(b, &bytes, &len), 0);
	return sits_infer_parse(bytes, len, hdr, seen ? note_field : NULL, seen, err, err_len);
}

static void test_round_trip(void **state)
{
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr hdr, *h = sits_infer_builder_hdr(b);
	struct seen seen = { 0 };
	char err[128], big[70000];

	memset(big, 'x', sizeof(big));
	h->max_tokens = 32;
	h->temperature = 0.7f;
	h->seed = 0x123456789abcdefull;
	add(b, SITS_FIELD_SYSTEM, "be brief");
	add(b, SITS_FIELD_USER, "");
	assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_USER, big, sizeof(big)), 0);
	add(b, SITS_FIELD_STOP, "1234567");
	add(b, SITS_FIELD_MODEL, "m");
	assert_ptr_equal(h, sits_infer_builder_hdr(b));
	assert_int_equal(parse(b, &hdr, &seen, err, sizeof(err)), 0);
	assert_string_equal(err, "");
	assert_memory_equal(&hdr, h, sizeof(hdr));
	assert_int_equal(hdr.nr_fields, 5);
	assert_int_equal(seen.nr, 5);
	assert_int_equal(seen.type[1], SITS_FIELD_USER);
	assert_int_equal(seen.len[1], 0);
	assert_int_equal(seen.len[2], sizeof(big));
	assert_int_equal(seen.first[2], 'x');
	assert_int_equal(seen.len[3], 7);
	assert_int_equal(seen.first[4], 'm');
	sits_infer_builder_destroy(b);
}

static void test_defaults_are_valid(void **state)
{
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr hdr;

	add(b, SITS_FIELD_PROMPT, "");
	assert_int_equal(parse(b, &hdr, NULL, NULL, 0), 0);
	assert_int_equal(hdr.op, SITS_INFER_OP_GENERATE);
	assert_int_equal(hdr.sched_class, SITS_CLASS_GUARANTEED);
	assert_true(hdr.temperature == 0.0f && hdr.top_p == 1.0f && hdr.repeat_penalty == 1.0f);
	sits_infer_builder_destroy(b);
	sits_infer_builder_destroy(NULL);
}

static void test_unaligned_input(void **state)
{
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr hdr;
	const void *bytes;
	uint8_t copy[512];
	size_t len;

	add(b, SITS_FIELD_PROMPT, "hello");
	add(b, SITS_FIELD_STOP, "\n");
	sits_infer_builder_bytes(b, &bytes, &len);
	for (int shift = 0; shift < 8; shift++) {
		struct seen seen = { 0 };

		memcpy(copy + shift, bytes, len);
		assert_int_equal(sits_infer_parse(copy + shift, len, &hdr, note_field, &seen, NULL,
						  0), 0);
		assert_int_equal(seen.nr, 2);
	}
	sits_infer_builder_destroy(b);
}

static void test_callback_stops_the_walk(void **state)
{
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr hdr;
	struct seen seen = { .stop_at = 1, .stop_with = -ENOMEM };

	add(b, SITS_FIELD_USER, "a");
	add(b, SITS_FIELD_USER, "b");
	add(b, SITS_FIELD_USER, "c");
	assert_int_equal(parse(b, &hdr, &seen, NULL, 0), -ENOMEM);
	assert_int_equal(seen.nr, 1);
	sits_infer_builder_destroy(b);
}

/* Each case changes one float of a valid request; the message must begin with its name. */
static void test_floats(void **state)
{
	static const struct {
		const char *name;
		size_t at;
		float bad[6];
		float good[3];
	} cases[] = {
		{ "temperature", offsetof(struct sits_infer_request_hdr, temperature),
		  { NAN, INFINITY, -INFINITY, -0.001f, 100.01f, -1 }, { 0, 1e-6f, 100 } },
		{ "top_p", offsetof(struct sits_infer_request_hdr, top_p),
		  { NAN, INFINITY, -INFINITY, 0, 1.0001f, -0.5f }, { 1e-6f, 0.5f, 1 } },
		{ "min_p", offsetof(struct sits_infer_request_hdr, min_p),
		  { NAN, INFINITY, -INFINITY, 1, -0.1f, 2 }, { 0, 0.5f, 0.999f } },
		{ "repeat_penalty", offsetof(struct sits_infer_request_hdr, repeat_penalty),
		  { NAN, INFINITY, -INFINITY, 0, -1, -0.1f }, { 1e-3f, 1, 1000 } },
		{ "frequency_penalty", offsetof(struct sits_infer_request_hdr, frequency_penalty),
		  { NAN, INFINITY, -INFINITY, 2.01f, -2.01f, 1e30f }, { -2, 0, 2 } },
		{ "presence_penalty", offsetof(struct sits_infer_request_hdr, presence_penalty),
		  { NAN, INFINITY, -INFINITY, 2.01f, -2.01f, -1e30f }, { -2, 0, 2 } },
	};
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr hdr, *h = sits_infer_builder_hdr(b), saved;
	char err[128];

	add(b, SITS_FIELD_PROMPT, "p");
	saved = *h;
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		float *value = (float *)(void *)((uint8_t *)h + cases[c].at);

		for (size_t i = 0; i < 6; i++) {
			*value = cases[c].bad[i];
			assert_int_equal(parse(b, &hdr, NULL, err, sizeof(err)), -EINVAL);
			assert_memory_equal(err, cases[c].name, strlen(cases[c].name));
			assert_int_equal(err[strlen(cases[c].name)], ':');
		}
		for (size_t i = 0; i < 3; i++) {
			*value = cases[c].good[i];
			assert_int_equal(parse(b, &hdr, NULL, err, sizeof(err)), 0);
		}
		*h = saved;
	}
	sits_infer_builder_destroy(b);
}

static void expect_bad(struct sits_infer_builder *b, const char *words)
{
	struct sits_infer_request_hdr hdr;
	struct seen seen = { 0 };
	char err[160];

	assert_int_equal(parse(b, &hdr, &seen, err, sizeof(err)), -EINVAL);
	if (!strstr(err, words))
		fail_msg("'%s' lacks '%s'", err, words);
	assert_int_equal(seen.nr, 0);	/* nothing is shown of a request that is refused */
}

static void test_header_values(void **state)
{
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr *h = sits_infer_builder_hdr(b), saved;

	add(b, SITS_FIELD_PROMPT, "p");
	saved = *h;
#define BAD(field_, value_, words_) do { h->field_ = (value_); expect_bad(b, words_); *h = saved; } while (0)
	BAD(size, 0, "size");
	BAD(size, 56, "size");
	BAD(size, 68, "size");
	BAD(size, 72, "size");		/* the field's header is no zero extension */
	BAD(size, UINT32_MAX, "size");
	BAD(flags, SITS_INFER_FLAGS + 1, "flags");
	BAD(op, 0, "op");
	BAD(op, 3, "op");
	BAD(sched_class, 3, "sched_class");
	BAD(reserved, 1, "reserved");
	BAD(nr_fields, 0, "nr_fields");
	BAD(nr_fields, 2, "field 1");
	BAD(nr_fields, UINT32_MAX, "field 1");
	BAD(op, SITS_INFER_OP_INFO, "INFO");
#undef BAD
	sits_infer_builder_destroy(b);
}

static void test_field_rules(void **state)
{
	struct sits_infer_builder *b;
	char long_stop[257], long_model[128];

	memset(long_stop, 's', sizeof(long_stop));
	memset(long_model, 'm', sizeof(long_model));

	b = new_builder();
	expect_bad(b, "prompt: missing");
	add(b, SITS_FIELD_PROMPT, "a");
	add(b, SITS_FIELD_PROMPT_SPECIAL, "b");
	expect_bad(b, "prompt: given 2 times");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	add(b, SITS_FIELD_USER, "b");
	expect_bad(b, "excludes");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	sits_infer_builder_add(b, SITS_FIELD_STOP, long_stop, sizeof(long_stop));
	expect_bad(b, "field 1 (stop): 257 bytes");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	add(b, SITS_FIELD_STOP, "");
	expect_bad(b, "field 1 (stop): 0 bytes");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	for (int i = 0; i < 17; i++)
		add(b, SITS_FIELD_STOP, "s");
	expect_bad(b, "more than 16");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	sits_infer_builder_add(b, SITS_FIELD_MODEL, long_model, sizeof(long_model));
	expect_bad(b, "field 1 (model): 128 bytes");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	add(b, SITS_FIELD_MODEL, "m");
	add(b, SITS_FIELD_MODEL, "m");
	expect_bad(b, "given twice");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	sits_infer_builder_add(b, SITS_FIELD_TAG, long_model, 65);
	expect_bad(b, "field 1 (tag): 65 bytes");
	sits_infer_builder_destroy(b);

	b = new_builder();
	add(b, SITS_FIELD_PROMPT, "a");
	add(b, SITS_FIELD_TAG, "t");
	add(b, SITS_FIELD_TAG, "t");
	expect_bad(b, "field 2 (tag): given twice");
	sits_infer_builder_destroy(b);
}

static void test_builder_refuses(void **state)
{
	struct sits_infer_builder *b = new_builder();
	char *big = calloc(1, SITS_REQUEST_MAX);
	struct sits_infer_request_hdr hdr;

	assert_non_null(big);
	assert_int_equal(sits_infer_builder_add(b, 0, "x", 1), -EINVAL);
	assert_int_equal(sits_infer_builder_add(b, 9, "x", 1), -EINVAL);
	assert_int_equal(sits_infer_builder_add(b, 65535, "x", 1), -EINVAL);
	assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_PROMPT, big, SIZE_MAX), -EMSGSIZE);
	assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_PROMPT, big, SITS_REQUEST_MAX),
			 -EMSGSIZE);
	assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_PROMPT, big, SITS_REQUEST_MAX - 72),
			 0);
	assert_int_equal(parse(b, &hdr, NULL, NULL, 0), 0);
	assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_STOP, "", 0), -EMSGSIZE);
	assert_int_equal(sits_infer_parse(big, (size_t)SITS_REQUEST_MAX + 1, &hdr, NULL, NULL,
					  NULL, 0), -EMSGSIZE);
	free(big);
	sits_infer_builder_destroy(b);
}

/* Every length short of the whole must be refused, without reading past the end: the copy is an
 * exact allocation, so that the sanitizer sees any byte too many. */
static void test_every_truncation(void **state)
{
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr hdr;
	const void *bytes;
	size_t len;

	add(b, SITS_FIELD_USER, "question");
	add(b, SITS_FIELD_STOP, "abc");
	sits_infer_builder_bytes(b, &bytes, &len);
	for (size_t n = 0; n < len; n++) {
		uint8_t *cut = malloc(n ? n : 1);

		memcpy(cut, bytes, n);
		assert_int_equal(sits_infer_parse(cut, n, &hdr, NULL, NULL, NULL, 0), -EINVAL);
		free(cut);
	}
	sits_infer_builder_destroy(b);
}

static void test_message_fits_its_buffer(void **state)
{
	struct sits_infer_request_hdr hdr;
	char err[8] = "zzzzzzz";

	assert_int_equal(sits_infer_parse("", 0, &hdr, NULL, NULL, err, 4), -EINVAL);
	assert_string_equal(err, "req");
	assert_int_equal(err[4], 'z');
}

static uint64_t rng_state;

static uint64_t rng(void)	/* xorshift64, Marsaglia 2003 */
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

/* Whatever the parser lets through keeps every promise of the header. */
static void check_promises(const struct sits_infer_request_hdr *h, const struct seen *seen,
			   size_t len)
{
	size_t total = h->size;

	assert_true(h->op == SITS_INFER_OP_GENERATE || h->op == SITS_INFER_OP_INFO);
	assert_in_range(h->sched_class, 0, SITS_CLASS_BESTEFFORT);
	assert_true(h->temperature >= 0 && h->temperature <= 100);
	assert_true(h->top_p > 0 && h->top_p <= 1);
	assert_true(h->min_p >= 0 && h->min_p < 1);
	assert_true(h->repeat_penalty > 0 && isfinite(h->repeat_penalty));
	assert_true(fabsf(h->frequency_penalty) <= 2 && fabsf(h->presence_penalty) <= 2);
	assert_int_equal(seen->nr, h->nr_fields);
	for (size_t i = 0; i < seen->nr && i < 64; i++)
		total += 8 + ((seen->len[i] + 7) & ~(size_t)7);
	assert_true(seen->nr > 64 || total == len);
}

static void test_random_mutations(void **state)
{
	struct sits_infer_builder *b = new_builder();
	struct sits_infer_request_hdr hdr;
	const void *bytes;
	size_t len, passed = 0;
	const int rounds = 300000;

	rng_state = (uint64_t)time(NULL) * 2654435761u | 1;
	print_message("# seed %llu\n", (unsigned long long)rng_state);
	add(b, SITS_FIELD_SYSTEM, "s");
	add(b, SITS_FIELD_USER, "a question of some length");
	add(b, SITS_FIELD_STOP, "\n\n");
	add(b, SITS_FIELD_MODEL, "model");
	sits_infer_builder_bytes(b, &bytes, &len);
	for (int i = 0; i < rounds; i++) {
		size_t n = rng() % 4 ? len : rng() % (len + 1);
		uint8_t *copy = malloc(n ? n : 1);
		struct seen seen = { 0 };
		char err[96];
		int ret;

		memcpy(copy, bytes, n);
		for (uint64_t k = rng() % 4; n && k; k--)
			copy[rng() % n] = rng() % 3 ? (uint8_t)rng() : (uint8_t)(1u << rng() % 8);
		ret = sits_infer_parse(copy, n, &hdr, note_field, &seen, err, sizeof(err));
		if (!ret) {
			check_promises(&hdr, &seen, n);
			passed++;
		} else {
			assert_int_equal(ret, -EINVAL);
			assert_true(strlen(err) > 0 && seen.nr == 0);
		}
		free(copy);
	}
	assert_in_range(passed, 1, rounds - 1);
	sits_infer_builder_destroy(b);
}

static void test_finish_names(void **state)
{
	assert_string_equal(sits_infer_finish_name(SITS_FINISH_EOS), "stop");
	assert_string_equal(sits_infer_finish_name(SITS_FINISH_STOP), "stop");
	assert_string_equal(sits_infer_finish_name(SITS_FINISH_LENGTH), "length");
	assert_string_equal(sits_infer_finish_name(SITS_FINISH_CANCEL), "cancel");
	assert_string_equal(sits_infer_finish_name(0), "unknown");
	assert_string_equal(sits_infer_finish_name(99), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_defaults_are_valid),
		cmocka_unit_test(test_unaligned_input),
		cmocka_unit_test(test_callback_stops_the_walk),
		cmocka_unit_test(test_floats),
		cmocka_unit_test(test_header_values),
		cmocka_unit_test(test_field_rules),
		cmocka_unit_test(test_builder_refuses),
		cmocka_unit_test(test_every_truncation),
		cmocka_unit_test(test_message_fits_its_buffer),
		cmocka_unit_test(test_random_mutations),
		cmocka_unit_test(test_finish_names),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
