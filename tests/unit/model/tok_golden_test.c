// SPDX-License-Identifier: MIT
/*
 * tok_golden_test.c - token ids against the reference implementation's, on some 2,800 texts and
 * seven vocabularies. Files, their format and their generator: tests/golden/tokenizer.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"
#include "tests/unit/model/golden_file.h"

static uint64_t fnv(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len--)
		h = (h ^ *p++) * 0x100000001b3ull;
	return h;
}

struct vocab {
	struct bytes file, golden;
	struct sits_gguf *g;
	struct sits_tokenizer *tok;
	bool byte_level;
};

static void open_vocab(struct vocab *v, const char *path, const char *golden)
{
	struct sits_diag diag = { 0 };
	struct sits_str model;

	memset(v, 0, sizeof(*v));
	v->file = slurp(path);
	v->golden = slurp(golden);
	if (sits_gguf_open(v->file.p, v->file.len, &v->g, &diag) || sits_tokenizer_create(v->g, &v->tok, &diag))
		fail_msg("%s: %s", path, diag.msg);
	assert_int_equal(sits_gguf_get_str(v->g, "tokenizer.ggml.model", &model), 0);
	v->byte_level = model.len == 4;
	assert_true(v->golden.len > 8 && !memcmp(v->golden.p, "SITSTOK1", 8));
	v->golden.at = 8;
}

static void close_vocab(struct vocab *v)
{
	sits_tokenizer_destroy(v->tok);
	sits_gguf_close(v->g);
	free(v->file.p);
	free(v->golden.p);
}

/* Vocabulary size, BOS, the tokens that end generation, and every piece. */
static void check_facts(struct vocab *v)
{
	uint64_t want, h = 0xcbf29ce484222325ull;
	uint32_t i, nr, nr_ends;
	const char *p;
	int n;

	nr = (uint32_t)varint(&v->golden);
	assert_int_equal(sits_tokenizer_vocab(v->tok), nr);
	assert_int_equal(sits_tokenizer_bos(v->tok), (int32_t)varint(&v->golden) - 1);
	nr_ends = (uint32_t)varint(&v->golden);
	for (i = 0; i < nr_ends; i++)
		assert_true(sits_tokenizer_is_eog(v->tok, (int32_t)varint(&v->golden)));
	for (i = 0; i < nr; i++) {
		uint8_t len[5];
		size_t l = 0;

		nr_ends -= sits_tokenizer_is_eog(v->tok, (int32_t)i);
		n = sits_tokenizer_piece(v->tok, (int32_t)i, &p);
		assert_true(n >= 0);
		for (uint32_t rest = (uint32_t)n; rest || !l; rest >>= 7)
			len[l++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
		h = fnv(fnv(h, len, l), p, (size_t)n);
	}
	assert_int_equal(nr_ends, 0);
	assert_true(v->golden.at + 8 <= v->golden.len);
	memcpy(&want, v->golden.p + v->golden.at, 8);
	v->golden.at += 8;
	assert_int_equal(h, want);
}

static void show(const char *what, const int32_t *id, size_t nr)
{
	size_t i;

	print_message("# %s", what);
	for (i = 0; i < nr && i < 60; i++)
		print_message(" %d", id[i]);
	print_message("\n");
}

/* Encode @text and compare with the next record. Return: whether they differ. */
static bool differs(struct vocab *v, const char *text, size_t len, uint32_t flags, struct sits_tokens *got)
{
	struct sits_tokens want = { 0 };
	uint64_t nr = varint(&v->golden);
	bool differ;
	size_t i;

	while (nr--)
		assert_int_equal(sits_tokens_push(&want, (int32_t)varint(&v->golden)), 0);
	got->nr = 0;
	assert_int_equal(sits_tokenizer_encode(v->tok, text, len, flags, got), 0);
	differ = got->nr != want.nr || (got->nr && memcmp(got->id, want.id, got->nr * sizeof(*got->id)));
	if (differ) {
		print_message("# text, flags %u:", flags);
		for (i = 0; i < len && i < 200; i++)
			print_message(isprint((uint8_t)text[i]) ? "%c" : "\\x%02x", (uint8_t)text[i]);
		print_message("\n");
		show("got ", got->id, got->nr);
		show("want", want.id, want.nr);
	}
	sits_tokens_fini(&want);
	return differ;
}

/* Pieces put together are the text again: well-formed, all its bytes in the vocabulary. */
static void check_round_trip(struct vocab *v, const char *text, size_t len, const struct sits_tokens *t)
{
	size_t i, at = 0;
	const char *p;
	int n;

	for (i = 0; i < t->nr; i++) {
		n = sits_tokenizer_piece(v->tok, t->id[i], &p);
		assert_true(n >= 0 && at + (size_t)n <= len);
		assert_memory_equal(p, text + at, (size_t)n);
		at += (size_t)n;
	}
	assert_int_equal(at, len);
}

static bool is_well_formed(const uint8_t *p, size_t len)
{
	size_t i, n, j;
	uint32_t cp;

	for (i = 0; i < len; i += n) {
		n = p[i] < 0x80 ? 1 : p[i] < 0xc2 ? 0 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : p[i] < 0xf5 ? 4 : 0;
		if (!n || n > len - i)
			return false;
		cp = n == 1 ? p[i] : p[i] & (0x7fu >> n);
		for (j = 1; j < n; j++) {
			if ((p[i + j] & 0xc0) != 0x80)
				return false;
			cp = cp << 6 | (p[i + j] & 0x3f);
		}
		if ((n == 3 && cp < 0x800) || (n == 4 && (cp < 0x10000 || cp > 0x10ffff)) || (cp >= 0xd800 && cp < 0xe000))
			return false;
	}
	return true;
}

/* Which bytes have a token: each is looked up as the character that GPT-2's alphabet has for it. */
static void find_bytes(const struct sits_tokenizer *tok, bool have[256])
{
	uint32_t b, c, next = 0x100;
	char text[2];

	for (b = 0; b < 256; b++) {
		c = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad) ? b : next++;
		text[0] = (char)(c < 0x80 ? c : 0xc0 | c >> 6);
		text[1] = (char)(0x80 | (c & 0x3f));
		have[b] = sits_tokenizer_find(tok, text, c < 0x80 ? 1 : 2) >= 0;
	}
}

static bool has_all_bytes(const bool have[256], const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (!have[p[i]])
			return false;
	return true;
}

static void check_corpus(struct vocab *v)
{
	struct bytes corpus = slurp("tests/golden/tokenizer.corpus");
	uint64_t nr = varint(&corpus), i;
	size_t wrong = 0, trips = 0;
	struct sits_tokens t = { 0 };
	bool have[256];

	find_bytes(v->tok, have);
	assert_true(nr >= 2000);
	assert_int_equal(varint(&v->golden), nr);
	for (i = 0; i < nr; i++) {
		uint64_t head = varint(&corpus);
		size_t len = (size_t)(head >> 1);
		char *text = malloc(len ? len : 1);

		assert_true(len <= corpus.len - corpus.at);
		memcpy(text, corpus.p + corpus.at, len);
		corpus.at += len;
		wrong += differs(v, text, len, 0, &t);
		if (v->byte_level && is_well_formed((uint8_t *)text, len) && has_all_bytes(have, (uint8_t *)text, len)) {
			check_round_trip(v, text, len, &t);
			trips++;
		}
		if (head & 1)
			wrong += differs(v, text, len, SITS_TOK_ADD_BOS | SITS_TOK_SPECIAL | SITS_TOK_ADD_EOS, &t);
		free(text);
	}
	assert_int_equal(wrong, 0);
	assert_int_equal(corpus.at, corpus.len);
	assert_int_equal(v->golden.at, v->golden.len);
	if (v->byte_level)
		assert_true(trips > 1500);
	sits_tokens_fini(&t);
	free(corpus.p);
}

static void check(const char *path, const char *golden)
{
	struct vocab v;

	open_vocab(&v, path, golden);
	check_facts(&v);
	check_corpus(&v);
	close_vocab(&v);
}

static void small(void **state)
{
	char path[128], golden[128];

	snprintf(path, sizeof(path), "tests/vectors/tok-%s.gguf", (char *)*state);
	snprintf(golden, sizeof(golden), "tests/golden/tokenizer-%s.golden", (char *)*state);
	check(path, golden);
}

static void smollm2(void **state)
{
	const char *path = getenv("SITS_MODEL_GGUF");

	if (!path || !*path) {
		print_message("# skip: SITS_MODEL_GGUF names no model\n");
		skip();
	}
	check(path, "tests/golden/tokenizer-smollm2.golden");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "gpt-2 small vocabulary equals the reference", small, NULL, NULL, "gpt2" },
		{ "smollm small vocabulary equals the reference", small, NULL, NULL, "smollm" },
		{ "qwen2 small vocabulary equals the reference", small, NULL, NULL, "qwen2" },
		{ "llama-bpe small vocabulary equals the reference", small, NULL, NULL, "llama3" },
		{ "SentencePiece vocabulary equals the reference", small, NULL, NULL, "spm" },
		{ "SentencePiece without prefix, with EOS, equals the reference", small, NULL, NULL, "spm-noprefix" },
		{ "SmolLM2-135M-Instruct equals the reference", smollm2, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
