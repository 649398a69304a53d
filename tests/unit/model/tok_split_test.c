// SPDX-License-Identifier: MIT
/*
 * tok_split_test.c - pre-tokenizers: words of known texts, the same from PCRE2's JIT and its
 * interpreter, repair of broken UTF-8, long inputs, and what happens when PCRE2 gives up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/model/tok.h"

#define NR(a) (sizeof(a) / sizeof(*(a)))
#define FAMILIES 4

static struct sits_tok_split *split_of(enum sits_tok_family family, bool jit)
{
	struct sits_tok_split *s = NULL;
	struct sits_diag diag = { 0 };

	if (sits_tok_split_create(family, jit, &s, &diag))
		fail_msg("%s", diag.msg);
	return s;
}

/* Words joined by '|'. */
static void join(const struct sits_tok_split *s, const char *text, size_t len, char *out, size_t size)
{
	struct sits_tok_words w;
	const char *word;
	size_t n, o = 0;
	int ret;

	assert_int_equal(sits_tok_words_init(&w, s, text, len, 0), 0);
	while ((ret = sits_tok_words_next(&w, &word, &n)) > 0) {
		assert_true(o + n + 1 < size);
		if (o)
			out[o++] = '|';
		memcpy(out + o, word, n);
		o += n;
	}
	assert_int_equal(ret, 0);
	assert_int_equal(w.pos, w.len);
	out[o] = 0;
	sits_tok_words_fini(&w);
}

/* Expected words follow from the patterns in each family's tokenizer.json. */
static const struct {
	const char *text, *want[FAMILIES];	/* gpt2, smollm, qwen2, llama3 */
} cases[] = {
	{ "Hello world", { "Hello| world", "Hello| world", "Hello| world", "Hello| world" } },
	{ "it's IT'S", { "it|'s| IT|'|S", "it|'s| IT|'|S", "it|'s| IT|'S", "it|'s| IT|'S" } },
	{ "we'Ll 'x", { "we|'|Ll| '|x", "we|'|Ll| '|x", "we|'Ll| '|x", "we|'Ll| '|x" } },
	{ "'sa'tb'mc'dd'ree'vef'llg", { "'s|a|'t|b|'m|c|'d|d|'re|e|'ve|f|'ll|g", "'s|a|'t|b|'m|c|'d|d|'re|e|'ve|f|'ll|g",
					"'s|a|'t|b|'m|c|'d|d|'re|e|'ve|f|'ll|g", "'s|a|'t|b|'m|c|'d|d|'re|e|'ve|f|'ll|g" } },
	{ "'Sa'DB'rEe'Vef'LLg'Lg", { "'|Sa|'|DB|'|rEe|'|Vef|'|LLg|'|Lg", "'|Sa|'|DB|'|rEe|'|Vef|'|LLg|'|Lg",
				     "'S|a|'D|B|'rE|e|'Ve|f|'LL|g|'Lg", "'S|a|'D|B|'rE|e|'Ve|f|'LL|g|'Lg" } },
	{ "12345 6", { "12345| 6", "1|2|3|4|5| |6", "1|2|3|4|5| |6", "123|45| |6" } },
	{ "a  b", { "a| | b", "a| | b", "a| | b", "a| | b" } },
	{ "a  1", { "a| | 1", "a|  |1", "a| | |1", "a| | |1" } },
	{ "a  ", { "a|  ", "a|  ", "a|  ", "a|  " } },
	{ "a \n\n b", { "a| \n\n| b", "a| \n\n| b", "a| \n\n| b", "a| \n\n| b" } },
	{ "a\n\nb", { "a|\n|\n|b", "a|\n|\n|b", "a|\n\n|b", "a|\n\n|b" } },
	{ "x.\n\ny", { "x|.|\n|\n|y", "x|.|\n|\n|y", "x|.\n\n|y", "x|.\n\n|y" } },
	{ "(foo)", { "(|foo|)", "(|foo|)", "(foo|)", "(foo|)" } },
	{ " ...", { " ...", " ...", " ...", " ..." } },
	{ "e\xcc\x81t", { "e|\xcc\x81|t", "e|\xcc\x81|t", "e|\xcc\x81t", "e|\xcc\x81t" } },
	{ "\xe4\xb8\xad\xe6\x96\x87", { "\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad\xe6\x96\x87",
					"\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad\xe6\x96\x87" } },
	/* U+00A0 is white space, U+180E is not. */
	{ "a\xc2\xa0" "b", { "a|\xc2\xa0|b", "a|\xc2\xa0|b", "a|\xc2\xa0" "b", "a|\xc2\xa0" "b" } },
	{ "\xe1\xa0\x8e.", { "\xe1\xa0\x8e.", "\xe1\xa0\x8e.", "\xe1\xa0\x8e.", "\xe1\xa0\x8e." } },
	/* U+017F is no s, U+0660 is a number, U+1123F a letter since Unicode 15. */
	{ "'\xc5\xbf" "a", { "'|\xc5\xbf" "a", "'|\xc5\xbf" "a", "'\xc5\xbf" "a", "'\xc5\xbf" "a" } },
	{ "\xd9\xa0\xd9\xa0", { "\xd9\xa0\xd9\xa0", "\xd9\xa0|\xd9\xa0", "\xd9\xa0|\xd9\xa0", "\xd9\xa0\xd9\xa0" } },
	{ "a\xf0\x91\x88\xbf", { "a\xf0\x91\x88\xbf", "a\xf0\x91\x88\xbf", "a\xf0\x91\x88\xbf", "a\xf0\x91\x88\xbf" } },
	{ "", { "", "", "", "" } },
};

static void cuts_as_each_family_does(void **state)
{
	char got[256];
	size_t i;
	int f, jit;

	for (f = 0; f < FAMILIES; f++)
		for (jit = 0; jit < 2; jit++) {
			struct sits_tok_split *s = split_of((enum sits_tok_family)f, jit);

			if (!jit)
				assert_false(sits_tok_split_has_jit(s));
			for (i = 0; i < NR(cases); i++) {
				join(s, cases[i].text, strlen(cases[i].text), got, sizeof(got));
				assert_string_equal(got, cases[i].want[f]);
			}
			sits_tok_split_destroy(s);
		}
}

static void jit_and_interpreter_agree(void **state)
{
	static const char *const parts[] = { " ", "  ", "\n", "\r\n", "\t", "a", "Zz", "\xc3\xa9", "\xe4\xb8\xad", "1", "23", "'s", "'LL",
					     "'", ".", "--", "\xc2\xa0", "\xe3\x80\x80", "\xf0\x9f\x98\x80", "\xcc\x81", "\xff", "\xed\xa0\x80" };
	unsigned int seed = (unsigned int)time(NULL);
	struct sits_tok_split *a, *b;
	char text[256], x[1024], y[1024];
	int f, round;
	size_t n;

	print_message("# seed %u\n", seed);
	for (f = 0; f < SITS_TOK_NR_FAMILIES; f++) {
		a = split_of((enum sits_tok_family)f, true);
		b = split_of((enum sits_tok_family)f, false);
		for (round = 0; round < 1000; round++) {
			for (n = 0; n < sizeof(text) - 8 && rand_r(&seed) % 20;) {
				const char *p = parts[(size_t)rand_r(&seed) % NR(parts)];

				memcpy(text + n, p, strlen(p));
				n += strlen(p);
			}
			join(a, text, n, x, sizeof(x));
			join(b, text, n, y, sizeof(y));
			assert_string_equal(x, y);
		}
		sits_tok_split_destroy(a);
		sits_tok_split_destroy(b);
	}
}

/* What is encoded for bytes that are not UTF-8, and what PCRE2 gets to see of it. */
static const struct {
	const char *text, *repaired, *masked;	/* masked NULL: the same */
} broken[] = {
	{ "a\x80" "b", "a\xef\xbf\xbd" "b", NULL },
	{ "a\xff\xfe", "a\xef\xbf\xbd\xef\xbf\xbd", NULL },
	{ "\xe4\xb8", "\xef\xbf\xbd\xef\xbf\xbd", NULL },			/* cut short */
	{ "\xe4\xb8" "a", "\xef\xbf\xbd\xef\xbf\xbd" "a", NULL },
	{ "\xc1\xa1", "a", NULL },						/* overlong */
	{ "\xe0\x80\xa0", " ", NULL },
	{ "\xf0\x80\x80\xaf", "/", NULL },
	{ "\xed\xa0\x80x", "\xed\xa0\x80x", "\xef\xbf\xbdx" },			/* a surrogate */
	{ "\xed\xa0\xbd\xed\xb8\x80", "\xed\xa0\xbd\xed\xb8\x80", "\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xff\xed\xbf\xbf", "\xef\xbf\xbd\xed\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", NULL },	/* above U+10FFFF */
	{ "\xf8\x88\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", NULL },
	{ "12345678\xc3\xa9\xf4\x8f\xbf\xbf", "12345678\xc3\xa9\xf4\x8f\xbf\xbf", NULL },	/* nothing to repair */
	{ "\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80", NULL },
};

static void repairs_utf8(void **state)
{
	struct sits_tok_split *s = split_of(SITS_TOK_GPT2, true);
	struct sits_tok_words w;
	size_t i, len;
	char *exact;

	for (i = 0; i < NR(broken); i++) {
		const char *masked = broken[i].masked ? broken[i].masked : broken[i].repaired;

		len = strlen(broken[i].text);
		exact = malloc(len);
		memcpy(exact, broken[i].text, len);
		assert_int_equal(sits_tok_words_init(&w, s, exact, len, 0), 0);
		assert_int_equal(w.len, strlen(broken[i].repaired));
		assert_memory_equal(w.text, broken[i].repaired, w.len);
		assert_memory_equal(w.subject, masked, w.len);
		sits_tok_words_fini(&w);
		free(exact);
	}
	sits_tok_split_destroy(s);
}

/* Nothing that a text of these holds is too much for PCRE2's limits, with or without the JIT. */
static void long_texts_pass(void **state)
{
	static const char *const units[] = { " ", "\n", " \n", "a", "'", "1", ".", "\xe4\xb8\xad", "\xe3\x80\x80", "a ", "\r\n ", "'s", "\xff" };
	const size_t size = 100000;
	char *text = malloc(size);
	struct sits_tok_words w;
	const char *word;
	size_t i, len, n, total;
	int f, jit, ret;

	for (i = 0; i < NR(units); i++) {
		for (len = 0; len + strlen(units[i]) <= size; len += strlen(units[i]))
			memcpy(text + len, units[i], strlen(units[i]));
		for (f = 0; f < SITS_TOK_NR_FAMILIES; f++)
			for (jit = 0; jit < 2; jit++) {
				struct sits_tok_split *s = split_of((enum sits_tok_family)f, jit);

				assert_int_equal(sits_tok_words_init(&w, s, text, len, 0), 0);
				for (total = 0; (ret = sits_tok_words_next(&w, &word, &n)) > 0; total += n)
					assert_true(n > 0 && word == w.text + total);
				assert_int_equal(ret, 0);
				assert_int_equal(total, w.len);
				sits_tok_words_fini(&w);
				sits_tok_split_destroy(s);
			}
	}
	free(text);
}

/* An error is reported, the position stays, and nothing is handed out. */
static void reports_when_pcre2_gives_up(void **state)
{
	struct sits_tok_split *s = split_of(SITS_TOK_QWEN2, false);
	static char text[5000];
	struct sits_tok_words w;
	const char *word = NULL;
	size_t n = 0;

	memset(text, ' ', sizeof(text));
	assert_int_equal(sits_tok_words_init(&w, s, text, sizeof(text), 1), 0);
	assert_int_equal(sits_tok_words_next(&w, &word, &n), -EIO);
	assert_int_equal(w.pos, 0);
	assert_null(word);
	sits_tok_words_fini(&w);
	sits_tok_split_destroy(s);
	sits_tok_split_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_as_each_family_does),
		cmocka_unit_test(jit_and_interpreter_agree),
		cmocka_unit_test(repairs_utf8),
		cmocka_unit_test(long_texts_pass),
		cmocka_unit_test(reports_when_pcre2_gives_up),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
