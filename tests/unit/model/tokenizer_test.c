// SPDX-License-Identifier: MIT
/*
 * tokenizer_test.c - vocabularies made by hand: what is refused, and rules that real vocabularies
 * seldom reach. Agreement with the reference is in tok_golden_test.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"
#include "tests/unit/model/gguf_build.h"

#define NR(a) (sizeof(a) / sizeof(*(a)))
#define ALL (SITS_TOK_ADD_BOS | SITS_TOK_SPECIAL | SITS_TOK_ADD_EOS)

/* What a vocabulary is made of; tests change one thing in a good one. */
struct recipe {
	const char *model, *pre, *name;
	const char *token[40], *merge[40];
	int32_t type[40];
	float score[40];
	int nr, nr_merges, nr_types, nr_scores;
	int64_t bos, eos, eot, unk;	/* -1: no such key */
	int add_bos, add_eos, prefix;	/* -1: no such key */
	const char *odd_key;		/* this key gets the value 7, as a u32 */
};

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

static void add(struct recipe *r, const char *text, int type, float score)
{
	r->token[r->nr] = text;
	r->type[r->nr] = type;
	r->score[r->nr] = score;
	r->nr_types = r->nr_scores = ++r->nr;
}

/* Letters a to d, the space and some merges; control tokens <s>, </s> and <|im_end|>. */
static struct recipe bpe_recipe(void)
{
	static const char *const tokens[] = { "a", "b", "c", "d", "Ġ", "ab", "cd", "abcd", "Ġab", "'", "s", "1" };
	static const char *const merges[] = { "a b", "c d", "ab cd", "Ġ ab" };
	struct recipe r = { .model = "gpt2", .pre = "gpt-2", .bos = 12, .eos = 13, .eot = -1, .unk = -1, .add_bos = -1,
			    .add_eos = -1, .prefix = -1 };
	size_t i;

	for (i = 0; i < NR(tokens); i++)
		add(&r, tokens[i], NORMAL, 0);
	add(&r, "<s>", CONTROL, 0);
	add(&r, "</s>", CONTROL, 0);
	add(&r, "<|im_end|>", CONTROL, 0);
	for (i = 0; i < NR(merges); i++)
		r.merge[i] = merges[i];
	r.nr_merges = NR(merges);
	return r;
}

static struct recipe spm_recipe(void)
{
	static const char *const tokens[] = { "▁", "a", "b", "▁a", "ab", "aa", "<0x41>", "<", ">" };
	struct recipe r = { .model = "llama", .bos = 1, .eos = 2, .eot = -1, .unk = 0, .add_bos = -1, .add_eos = -1, .prefix = -1 };
	size_t i;

	add(&r, "<unk>", UNKNOWN, 0);
	add(&r, "<s>", CONTROL, 0);
	add(&r, "</s>", CONTROL, 0);
	for (i = 0; i < NR(tokens); i++)
		add(&r, tokens[i], strlen(tokens[i]) == 6 ? BYTE : NORMAL, -(float)i);
	return r;
}

static void put_id(struct gguf_build *b, const char *key, int64_t id)
{
	if (id >= 0)
		gguf_build_u32(b, key, (uint32_t)id);
}

static void put_flag(struct gguf_build *b, const char *key, int flag)
{
	if (flag >= 0)
		gguf_build_bool(b, key, flag);
}

static void *image_of(const struct recipe *r, size_t *len)
{
	struct gguf_build b;

	gguf_build_begin(&b);
	gguf_build_str(&b, "general.architecture", "llama");
	if (r->name)
		gguf_build_str(&b, "general.name", r->name);
	if (r->model)
		gguf_build_str(&b, "tokenizer.ggml.model", r->model);
	if (r->pre)
		gguf_build_str(&b, "tokenizer.ggml.pre", r->pre);
	if (r->nr >= 0)
		gguf_build_strs(&b, "tokenizer.ggml.tokens", r->token, (uint64_t)r->nr);
	if (r->nr_merges >= 0)
		gguf_build_strs(&b, "tokenizer.ggml.merges", r->merge, (uint64_t)r->nr_merges);
	if (r->nr_types >= 0)
		gguf_build_array(&b, "tokenizer.ggml.token_type", 5, (uint64_t)r->nr_types, r->type, 4 * (size_t)r->nr_types);
	if (r->nr_scores >= 0)
		gguf_build_array(&b, "tokenizer.ggml.scores", 6, (uint64_t)r->nr_scores, r->score, 4 * (size_t)r->nr_scores);
	put_id(&b, "tokenizer.ggml.bos_token_id", r->bos);
	put_id(&b, "tokenizer.ggml.eos_token_id", r->eos);
	put_id(&b, "tokenizer.ggml.eot_token_id", r->eot);
	put_id(&b, "tokenizer.ggml.unknown_token_id", r->unk);
	put_flag(&b, "tokenizer.ggml.add_bos_token", r->add_bos);
	put_flag(&b, "tokenizer.ggml.add_eos_token", r->add_eos);
	put_flag(&b, "tokenizer.ggml.add_space_prefix", r->prefix);
	if (r->odd_key)
		gguf_build_u32(&b, r->odd_key, 7);
	return gguf_build_end(&b, len);
}

struct made {
	void *image;
	struct sits_gguf *g;
	struct sits_tokenizer *tok;
	struct sits_diag diag;
	int ret;
};

static struct made make(const struct recipe *r)
{
	struct made m = { 0 };
	size_t len;

	m.image = image_of(r, &len);
	m.ret = sits_gguf_open(m.image, len, &m.g, &m.diag);
	if (m.ret)
		fail_msg("the test's own file: %s", m.diag.msg);
	m.ret = sits_tokenizer_create(m.g, &m.tok, &m.diag);
	return m;
}

static void unmake(struct made *m)
{
	sits_tokenizer_destroy(m->tok);
	sits_gguf_close(m->g);
	free(m->image);
}

static void expect_refused(const struct recipe *r, int err, const char *why)
{
	struct made m = make(r);

	if (m.ret != err || !strstr(m.diag.msg, why))
		fail_msg("got %d, \"%s\"; wanted %d, \"...%s...\"", m.ret, m.diag.msg, err, why);
	assert_null(m.tok);
	unmake(&m);
}

/* Encode with a good vocabulary and compare with @want, token texts separated by spaces. */
static void expect(const struct recipe *r, const char *text, uint32_t flags, const char *want)
{
	struct made m = make(r);
	struct sits_tokens t = { 0 };
	char got[4096] = "";
	size_t i, o = 0;

	if (m.ret)
		fail_msg("refused: %s", m.diag.msg);
	assert_int_equal(sits_tokenizer_encode(m.tok, text, strlen(text), flags, &t), 0);
	for (i = 0; i < t.nr; i++)
		o += (size_t)snprintf(got + o, sizeof(got) - o, "%s%s", i ? " " : "", r->token[t.id[i]]);
	assert_string_equal(got, want);
	sits_tokens_fini(&t);
	unmake(&m);
}

#define REFUSED(RECIPE, CHANGE, ERR, WHY) do {	\
	struct recipe r = RECIPE();		\
	CHANGE;					\
	expect_refused(&r, ERR, WHY);		\
} while (0)

static void refuses_unknown_kinds(void **state)
{
	REFUSED(bpe_recipe, r.model = NULL, -EBADMSG, "tokenizer.ggml.model");
	REFUSED(bpe_recipe, r.model = "t5", -EPROTONOSUPPORT, "\"t5\" is not known; known: gpt2");
	REFUSED(bpe_recipe, r.model = "", -EPROTONOSUPPORT, "\"\" is not known");
	REFUSED(bpe_recipe, r.pre = "tekken", -EPROTONOSUPPORT, "tekken is not known; known: gpt-2");
	REFUSED(bpe_recipe, r.pre = "tekken", -EPROTONOSUPPORT, "smollm");
	REFUSED(bpe_recipe, r.pre = "tekken", -EPROTONOSUPPORT, "smaug-bpe");	/* the list fits to its end */
	REFUSED(bpe_recipe, r.pre = "default", -EPROTONOSUPPORT, "default is not known");
	REFUSED(bpe_recipe, r.pre = "gpt", -EPROTONOSUPPORT, "gpt is not known");
	REFUSED(bpe_recipe, r.pre = NULL, -EPROTONOSUPPORT, "(missing)");
}

static void refuses_bad_lists(void **state)
{
	REFUSED(bpe_recipe, r.nr = -1, -EBADMSG, "tokenizer.ggml.tokens: missing");
	REFUSED(bpe_recipe, r.nr = 0, -EBADMSG, "tokenizer.ggml.tokens: 0 tokens");
	REFUSED(bpe_recipe, r.token[3] = "a", -EBADMSG, "tokens 0 and 3 are both \"a\"");
	REFUSED(bpe_recipe, r.nr_types = r.nr - 1, -EBADMSG, "14 types for 15 tokens");
	REFUSED(bpe_recipe, r.nr_types = r.nr + 1, -EBADMSG, "16 types for 15 tokens");
	REFUSED(bpe_recipe, r.type[2] = 9, -EBADMSG, "token 2 has type 9");
	REFUSED(bpe_recipe, r.type[2] = -1, -EBADMSG, "token 2 has type -1");
	REFUSED(bpe_recipe, r.type[2] = BYTE, -EBADMSG, "byte token 2");
	REFUSED(bpe_recipe, (r.nr_types = -1, r.odd_key = "tokenizer.ggml.token_type"), -EBADMSG, "token_type: not an array");
	REFUSED(bpe_recipe, (r.nr = -1, r.odd_key = "tokenizer.ggml.tokens"), -EBADMSG, "tokens: not an array");
	REFUSED(bpe_recipe, r.nr_merges = -1, -EBADMSG, "tokenizer.ggml.merges: missing");
	REFUSED(bpe_recipe, (r.nr_merges = -1, r.odd_key = "tokenizer.ggml.merges"), -EBADMSG, "merges: not an array");
	REFUSED(bpe_recipe, r.merge[1] = "x y", -EBADMSG, "merge 1, \"x y\"");
	REFUSED(bpe_recipe, r.merge[1] = "a c", -EBADMSG, "merge 1, \"a c\"");	/* "ac" is no token */
	REFUSED(bpe_recipe, r.merge[1] = "ab", -EBADMSG, "merge 1");
	REFUSED(bpe_recipe, r.merge[1] = "", -EBADMSG, "merge 1");
	REFUSED(bpe_recipe, r.merge[1] = " ", -EBADMSG, "merge 1");
	REFUSED(bpe_recipe, r.merge[1] = "ab ", -EBADMSG, "merge 1");
	REFUSED(bpe_recipe, r.merge[1] = " ab", -EBADMSG, "merge 1");
	REFUSED(bpe_recipe, r.merge[1] = "a b c", -EBADMSG, "merge 1");
}

static void refuses_bad_scores(void **state)
{
	REFUSED(spm_recipe, r.nr_scores = -1, -EBADMSG, "tokenizer.ggml.scores: missing");
	REFUSED(spm_recipe, r.nr_scores = 3, -EBADMSG, "3 scores for 12 tokens");
	REFUSED(spm_recipe, r.score[4] = NAN, -EBADMSG, "score of token 4");
	REFUSED(spm_recipe, r.score[4] = -INFINITY, -EBADMSG, "score of token 4");
	REFUSED(spm_recipe, (r.nr_scores = -1, r.odd_key = "tokenizer.ggml.scores"), -EBADMSG, "scores: not an array");
	REFUSED(spm_recipe, r.type[3] = BYTE, -EBADMSG, "byte token 3");
	REFUSED(spm_recipe, (r.unk = -1, r.type[0] = NORMAL), -EBADMSG, "no token <0x00> and no unknown token");
}

static void refuses_bad_ids(void **state)
{
	REFUSED(bpe_recipe, r.bos = 15, -EBADMSG, "tokenizer.ggml.bos_token_id: 15, but there are 15 tokens");
	REFUSED(bpe_recipe, r.eos = 4000000000, -EBADMSG, "tokenizer.ggml.eos_token_id: 4000000000");
	REFUSED(bpe_recipe, r.eot = 99, -EBADMSG, "tokenizer.ggml.eot_token_id");
	REFUSED(bpe_recipe, r.unk = 99, -EBADMSG, "tokenizer.ggml.unknown_token_id");
	REFUSED(bpe_recipe, r.odd_key = "tokenizer.ggml.add_bos_token", -EBADMSG, "add_bos_token: not a boolean");
	REFUSED(bpe_recipe, r.odd_key = "tokenizer.ggml.add_eos_token", -EBADMSG, "add_eos_token: not a boolean");
	REFUSED(spm_recipe, r.odd_key = "tokenizer.ggml.add_space_prefix", -EBADMSG, "add_space_prefix: not a boolean");
	REFUSED(bpe_recipe, (r.bos = -1, r.add_bos = 1), -EBADMSG, "tokenizer.ggml.bos_token_id: missing");
	REFUSED(bpe_recipe, (r.eos = -1, r.add_eos = 1), -EBADMSG, "tokenizer.ggml.eos_token_id: missing");
	REFUSED(bpe_recipe, (r.pre = "llama-bpe", r.bos = -1), -EBADMSG, "tokenizer.ggml.bos_token_id: missing");
}

static void refuses_a_giant_special_token(void **state)
{
	static char text[1026];
	struct recipe r = bpe_recipe();

	memset(text, '<', sizeof(text) - 1);
	r.token[12] = text;
	expect_refused(&r, -EBADMSG, "special token 12 is 1025 bytes long");
	text[1024] = 0;
	expect(&r, text, ALL & ~SITS_TOK_ADD_EOS, text);
}

static void merges_by_rank(void **state)
{
	struct recipe r = bpe_recipe();

	expect(&r, "abcd", 0, "abcd");
	expect(&r, "ab cd", 0, "ab Ġ cd");
	expect(&r, " ab", 0, "Ġab");
	expect(&r, "abab", 0, "ab ab");
	expect(&r, "ababcd", 0, "ab abcd");
	expect(&r, "", 0, "");
	/* A later copy of a merge does not change its rank. */
	add(&r, "bc", NORMAL, 0);
	r.merge[4] = "b c";
	r.merge[5] = "a b";
	r.nr_merges = 6;
	expect(&r, "abc", 0, "ab c");
}

static void drops_bytes_that_the_vocabulary_lacks(void **state)
{
	struct recipe r = bpe_recipe();

	expect(&r, "axb", 0, "a b");
	expect(&r, "xyz", 0, "");
	expect(&r, "axbaxbaxbaxbaxbaxbaxbaxbaxbaxbaxbab", 0, "a b a b a b a b a b a b a b a b a b a b a b ab");
}

static void adds_bos_and_eos_where_the_model_asks(void **state)
{
	struct recipe r = bpe_recipe();

	expect(&r, "a", ALL, "a");
	r.add_bos = 1;
	expect(&r, "a", ALL, "<s> a");
	expect(&r, "a", SITS_TOK_SPECIAL, "a");
	expect(&r, "", SITS_TOK_ADD_BOS, "<s>");
	r.add_eos = 1;
	expect(&r, "a", ALL, "<s> a </s>");
	expect(&r, "a", SITS_TOK_ADD_BOS, "<s> a");
	r.add_bos = r.add_eos = -1;
	r.pre = "llama-bpe";	/* the family's default */
	expect(&r, "a", ALL, "<s> a");
	r = spm_recipe();
	expect(&r, "a", ALL, "<s> ▁a");
	r.add_bos = 0;
	expect(&r, "a", ALL, "▁a");
}

static void recognises_special_tokens(void **state)
{
	struct recipe r = bpe_recipe();

	expect(&r, "a<s>b", SITS_TOK_SPECIAL, "a <s> b");
	expect(&r, "a<s>b", 0, "a s b");	/* "<" and ">" are not in this vocabulary */
	expect(&r, "<s></s><s>", SITS_TOK_SPECIAL, "<s> </s> <s>");
	expect(&r, "<s", SITS_TOK_SPECIAL, "s");
	/* Longest first, wherever it stands; of one length the lower id first. */
	add(&r, "<s><", USER, 0);
	expect(&r, "<s></s>", SITS_TOK_SPECIAL, "<s> </s>");
	expect(&r, "<s><s>", SITS_TOK_SPECIAL, "<s>< s");
	add(&r, "bcd<", USER, 0);
	expect(&r, "abcd<s>", SITS_TOK_SPECIAL, "a bcd< s");
	add(&r, "dab", USER, 0);
	add(&r, "abc", USER, 0);
	expect(&r, "dabc", 0, "dab c");
	expect(&r, "abcdab", 0, "abc dab");
	expect(&r, "abcdabcdab", 0, "abc dab c dab");
	/* User-defined tokens need no flag. */
	expect(&r, "a<s><", 0, "a <s><");
}

static void keeps_control_tokens_out_of_plain_text(void **state)
{
	struct recipe r = bpe_recipe();

	/* A merge that leads to one. */
	r.type[7] = CONTROL;
	expect(&r, "abcd", 0, "ab cd");
	expect(&r, "abcd", SITS_TOK_SPECIAL, "abcd");
	/* A word that is one, in the family that looks words up. */
	r.pre = "dbrx";
	expect(&r, "abcd", 0, "ab cd");
	r.pre = "llama-bpe";
	expect(&r, "abcd", 0, "ab cd");
	/* A byte that is one. */
	r.type[0] = CONTROL;
	expect(&r, "ac", 0, "c");
	/* Characters whose join is one, with the best score. */
	r = spm_recipe();
	r.prefix = 0;
	r.type[4] = r.type[8] = CONTROL;
	expect(&r, "aaaa", 0, "<unk> <unk> <unk> <unk>");
	r = spm_recipe();
	r.prefix = 0;
	r.type[8] = CONTROL;
	expect(&r, "aab", 0, "a ab");
	/* What ends a turn by its text is a control token, whatever the file says. */
	r = bpe_recipe();
	r.type[14] = NORMAL;
	expect(&r, "a<|im_end|>", SITS_TOK_SPECIAL, "a <|im_end|>");
	expect(&r, "a<|im_end|>", 0, "a d");
}

static void looks_whole_words_up_where_the_family_does(void **state)
{
	struct recipe r = bpe_recipe();

	add(&r, "abab", NORMAL, 0);
	expect(&r, "abab", 0, "ab ab");
	r.pre = "llama-bpe";
	expect(&r, "abab", 0, "abab");
	expect(&r, "ababa", 0, "ab ab a");
}

static void swallows_space_after_special_tokens_of_phi_3(void **state)
{
	struct recipe r = spm_recipe();

	r.prefix = r.add_bos = 0;
	add(&r, "<|end|>", CONTROL, 0);
	expect(&r, "a<|end|> \n a", SITS_TOK_SPECIAL, "a <|end|> ▁ <unk> ▁a");
	r.name = "my Phi-3 mini";
	expect(&r, "a<|end|> \n a", SITS_TOK_SPECIAL, "a <|end|> a");
	expect(&r, "<|end|> <|end|> ", SITS_TOK_SPECIAL, "<|end|> <|end|>");
	expect(&r, "<s> a", SITS_TOK_SPECIAL, "<s> ▁a");
}

static void falls_back_to_bytes_and_unknown(void **state)
{
	struct recipe r = spm_recipe();

	r.prefix = 0;
	expect(&r, "aA", 0, "a <0x41>");
	expect(&r, "<0x41>", 0, "< <unk> <unk> <unk> <unk> >");
	expect(&r, "a\xc3\xa9", 0, "a <unk>");
	add(&r, "<0xC3>", BYTE, 0);
	expect(&r, "a\xc3\xa9", 0, "a <unk>");
	add(&r, "<0xA9>", BYTE, 0);
	expect(&r, "a\xc3\xa9", 0, "a <0xC3> <0xA9>");
	expect(&r, "\xc3", 0, "<0xC3>");
}

static void puts_the_space_prefix_after_special_tokens(void **state)
{
	struct recipe r = spm_recipe();

	expect(&r, "a<s>a", SITS_TOK_SPECIAL, "▁a <s> ▁a");
	expect(&r, "<s>", SITS_TOK_SPECIAL, "<s>");
	expect(&r, "", SITS_TOK_SPECIAL, "");
	r.prefix = 0;
	expect(&r, "a<s>a", SITS_TOK_SPECIAL, "a <s> a");
	/* Highest score first, then leftmost. */
	expect(&r, "aab", 0, "a ab");
	expect(&r, "aaa", 0, "aa a");
	r.score[7] = r.score[8] = 1;
	expect(&r, "aab", 0, "aa b");
	r.score[7] = 0.0f;
	r.score[8] = -0.0f;
	expect(&r, "aab", 0, "aa b");
}

static void joins_across_a_space_if_a_token_does(void **state)
{
	struct recipe r = spm_recipe();

	r.prefix = 0;
	expect(&r, "a a", 0, "a ▁a");
	add(&r, "a▁a", NORMAL, -20);
	expect(&r, "a a", 0, "a▁a");
	expect(&r, "a  a", 0, "a ▁ ▁a");
}

static void tells_what_ends_generation(void **state)
{
	struct recipe r = bpe_recipe();
	struct made m;

	r.eot = 3;
	add(&r, "<reponame>", NORMAL, 0);
	add(&r, "<|repo_name|>", NORMAL, 0);
	m = make(&r);
	assert_int_equal(m.ret, 0);
	assert_true(sits_tokenizer_is_eog(m.tok, 13));	/* </s>, the file's EOS */
	assert_true(sits_tokenizer_is_eog(m.tok, 14));	/* <|im_end|>, by its text */
	assert_true(sits_tokenizer_is_eog(m.tok, 3));	/* the file's EOT */
	assert_true(sits_tokenizer_is_eog(m.tok, 16));	/* <|repo_name|> comes first in its row */
	assert_false(sits_tokenizer_is_eog(m.tok, 15));
	assert_false(sits_tokenizer_is_eog(m.tok, 12));	/* <s> */
	assert_false(sits_tokenizer_is_eog(m.tok, -1));
	assert_false(sits_tokenizer_is_eog(m.tok, 17));
	unmake(&m);
}

static void expect_piece(struct made *m, int32_t id, const char *want)
{
	const char *p;
	int n = sits_tokenizer_piece(m->tok, id, &p);

	assert_int_equal(n, strlen(want));
	assert_memory_equal(p, want, strlen(want));
}

static void gives_pieces(void **state)
{
	struct recipe r = bpe_recipe();
	const char *p;
	struct made m;

	r.eos = -1;
	add(&r, "Ġ\xc3\xa9\xc5\x83", NORMAL, 0);	/* bytes 20 e9 ad */
	add(&r, "two words", NORMAL, 0);		/* not in the byte alphabet */
	add(&r, "Ġuser", USER, 0);
	add(&r, "unused", UNUSED, 0);
	add(&r, "<0x0A>", BYTE, 0);
	add(&r, "", NORMAL, 0);
	m = make(&r);
	assert_int_equal(m.ret, 0);
	expect_piece(&m, 8, " ab");
	expect_piece(&m, 12, "");
	expect_piece(&m, 15, " \xe9\xad");
	expect_piece(&m, 16, "two words");
	expect_piece(&m, 17, "Ġuser");
	expect_piece(&m, 18, "");
	expect_piece(&m, 19, "\n");
	expect_piece(&m, 20, "");
	assert_int_equal(sits_tokenizer_piece(m.tok, -1, &p), -EINVAL);
	assert_int_equal(sits_tokenizer_piece(m.tok, 21, &p), -EINVAL);
	assert_int_equal(sits_tokenizer_vocab(m.tok), 21);
	assert_int_equal(sits_tokenizer_find(m.tok, "<s>", 3), 12);
	assert_int_equal(sits_tokenizer_find(m.tok, "<s", 2), -1);
	assert_int_equal(sits_tokenizer_find(m.tok, "", 0), -1);
	unmake(&m);
	r = spm_recipe();
	m = make(&r);
	assert_int_equal(m.ret, 0);
	expect_piece(&m, 0, "");
	expect_piece(&m, 6, " a");
	expect_piece(&m, 9, "A");
	assert_int_equal(sits_tokenizer_bos(m.tok), 1);
	unmake(&m);
}

static void appends_and_refuses_giant_text(void **state)
{
	struct recipe r = bpe_recipe();
	struct made m = make(&r);
	struct sits_tokens t = { 0 };

	assert_int_equal(sits_tokenizer_encode(m.tok, "ab", 2, 0, &t), 0);
	assert_int_equal(sits_tokenizer_encode(m.tok, "cd", 2, 0, &t), 0);
	assert_int_equal(t.nr, 2);
	assert_int_equal(t.id[0], 5);
	assert_int_equal(t.id[1], 6);
	assert_int_equal(sits_tokenizer_encode(m.tok, "x", ((size_t)1 << 29) + 1, ALL, &t), -E2BIG);
	assert_int_equal(t.nr, 2);
	sits_tokens_fini(&t);
	assert_int_equal(t.nr, 0);
	unmake(&m);
}

/* Merge the best-ranked, leftmost pair until none is left. */
static size_t naive(const struct recipe *r, const char *text, size_t len, int32_t *id)
{
	char pair[64];
	size_t n = len, i, best = 0;
	int j, rank;

	for (i = 0; i < n; i++)
		id[i] = text[i] - 'a';
	for (;;) {
		rank = r->nr_merges;
		for (i = 0; i + 1 < n; i++) {
			snprintf(pair, sizeof(pair), "%s %s", r->token[id[i]], r->token[id[i + 1]]);
			for (j = 0; j < rank; j++)
				if (!strcmp(pair, r->merge[j])) {
					rank = j;
					best = i;
				}
		}
		if (rank == r->nr_merges)
			return n;
		snprintf(pair, sizeof(pair), "%s%s", r->token[id[best]], r->token[id[best + 1]]);
		for (j = 0; strcmp(pair, r->token[j]); j++)
			;
		id[best] = j;
		memmove(id + best + 1, id + best + 2, (n - best - 2) * sizeof(*id));
		n--;
	}
}

static void equals_the_plain_algorithm_at_any_length(void **state)
{
	struct recipe r = bpe_recipe();
	unsigned int seed = (unsigned int)time(NULL);
	struct sits_tokens t = { 0 };
	int32_t want[120];
	char text[120];
	struct made m;
	size_t n, i;
	int round;

	add(&r, "ba", NORMAL, 0);
	add(&r, "aba", NORMAL, 0);
	add(&r, "bc", NORMAL, 0);
	add(&r, "abab", NORMAL, 0);
	r.merge[4] = "b a";
	r.merge[5] = "b c";
	r.merge[6] = "ab ab";
	r.merge[7] = "ab a";
	r.nr_merges = 8;
	m = make(&r);
	assert_int_equal(m.ret, 0);
	print_message("# seed %u\n", seed);
	for (round = 0; round < 4000; round++) {
		size_t len = 1 + (size_t)rand_r(&seed) % (round % 2 ? 40 : sizeof(text));

		for (i = 0; i < len; i++)
			text[i] = (char)('a' + rand_r(&seed) % 4);
		n = naive(&r, text, len, want);
		t.nr = 0;
		assert_int_equal(sits_tokenizer_encode(m.tok, text, len, 0, &t), 0);
		assert_int_equal(t.nr, n);
		assert_memory_equal(t.id, want, n * sizeof(*want));
	}
	sits_tokens_fini(&t);
	unmake(&m);
}

struct job {
	const struct sits_tokenizer *tok;
	bool same;
};

static void *encode_often(void *arg)
{
	static const char text[] = "ab abcd cd's <s> abababababababababababababababababababab";
	struct sits_tokens t = { 0 }, first = { 0 };
	struct job *j = arg;
	int i;

	j->same = !sits_tokenizer_encode(j->tok, text, sizeof(text) - 1, ALL, &first);
	for (i = 0; i < 500 && j->same; i++) {
		t.nr = 0;
		j->same = !sits_tokenizer_encode(j->tok, text, sizeof(text) - 1, ALL, &t) && t.nr == first.nr &&
			  !memcmp(t.id, first.id, t.nr * sizeof(*t.id));
	}
	sits_tokens_fini(&t);
	sits_tokens_fini(&first);
	return NULL;
}

static void may_be_used_by_threads(void **state)
{
	struct recipe r = bpe_recipe();
	struct made m = make(&r);
	struct job job[4];
	pthread_t thread[4];
	size_t i;

	for (i = 0; i < NR(thread); i++) {
		job[i] = (struct job){ .tok = m.tok };
		assert_int_equal(pthread_create(&thread[i], NULL, encode_often, &job[i]), 0);
	}
	for (i = 0; i < NR(thread); i++) {
		pthread_join(thread[i], NULL);
		assert_true(job[i].same);
	}
	unmake(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_unknown_kinds),
		cmocka_unit_test(refuses_bad_lists),
		cmocka_unit_test(refuses_bad_scores),
		cmocka_unit_test(refuses_bad_ids),
		cmocka_unit_test(refuses_a_giant_special_token),
		cmocka_unit_test(merges_by_rank),
		cmocka_unit_test(drops_bytes_that_the_vocabulary_lacks),
		cmocka_unit_test(adds_bos_and_eos_where_the_model_asks),
		cmocka_unit_test(recognises_special_tokens),
		cmocka_unit_test(keeps_control_tokens_out_of_plain_text),
		cmocka_unit_test(looks_whole_words_up_where_the_family_does),
		cmocka_unit_test(swallows_space_after_special_tokens_of_phi_3),
		cmocka_unit_test(falls_back_to_bytes_and_unknown),
		cmocka_unit_test(puts_the_space_prefix_after_special_tokens),
		cmocka_unit_test(joins_across_a_space_if_a_token_does),
		cmocka_unit_test(tells_what_ends_generation),
		cmocka_unit_test(gives_pieces),
		cmocka_unit_test(appends_and_refuses_giant_text),
		cmocka_unit_test(equals_the_plain_algorithm_at_any_length),
		cmocka_unit_test(may_be_used_by_threads),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
