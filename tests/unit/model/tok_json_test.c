// SPDX-License-Identifier: MIT
/*
 * tok_json_test.c - tokenizers from tokenizer.json: token ids against Hugging Face tokenizers', on some 2,500 texts and a dozen
 * files of every kind that is supported; and what is refused, by which name. Files and their generator:
 * tests/golden/tokenizer_json.py.
 */
#include "daemon/model/tok_json.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"
#include "tests/unit/model/golden_file.h"

#define NR(a) (sizeof(a) / sizeof((a)[0]))

/* A tokenizer and what it stands on. */
struct tok {
	struct sits_gguf *g;
	uint8_t *image;
	struct sits_tokenizer *tok;
};

static int make(const struct sits_tok_json_src *src, struct tok *t, struct sits_diag *diag)
{
	struct sits_meta meta = { 0 };
	struct sits_tok_json json;
	size_t len;
	int ret;

	memset(t, 0, sizeof(*t));
	diag->msg[0] = '\0';
	ret = sits_tok_json_read(src, &meta, &json, diag);
	if (sits_meta_end(&meta, &t->image, &len))
		fail_msg("no memory");
	if (!ret)
		ret = sits_gguf_open(t->image, len, &t->g, diag);
	if (!ret)
		ret = sits_tokenizer_create_ext(t->g, &json.ext, &t->tok, diag);
	sits_tok_json_fini(&json);
	return ret;
}

static void drop(struct tok *t)
{
	sits_tokenizer_destroy(t->tok);
	sits_gguf_close(t->g);
	free(t->image);
}

static struct sits_tok_json_src src_of(const char *text, size_t len)
{
	return (struct sits_tok_json_src){ .tokenizer = { text, len }, .bos = -1 };
}

/* ------------------------------------------------------------------ against the reference */

static uint32_t hash_ids(const struct sits_tokens *t)
{
	const uint8_t *p = (const uint8_t *)t->id;
	uint32_t h = 0x811c9dc5;
	size_t i;

	for (i = 0; i < t->nr * sizeof(*t->id); i++)
		h = (h ^ p[i]) * 0x01000193;
	return h;
}

static int is_utf8(const uint8_t *p, size_t len)
{
	size_t i, j, n;

	for (i = 0; i < len; i += n) {
		n = p[i] < 0x80 ? 1 : p[i] < 0xc2 ? 0 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : p[i] < 0xf5 ? 4 : 0;
		if (!n || n > len - i)
			return 0;
		for (j = 1; j < n; j++)
			if ((p[i + j] & 0xc0) != 0x80)
				return 0;
		if ((p[i] == 0xe0 && p[i + 1] < 0xa0) || (p[i] == 0xed && p[i + 1] > 0x9f) || (p[i] == 0xf0 && p[i + 1] < 0x90) ||
		    (p[i] == 0xf4 && p[i + 1] > 0x8f))
			return 0;
	}
	return 1;
}

static size_t differs(const struct sits_tokenizer *tok, const char *text, size_t len, uint32_t flags, uint32_t want)
{
	struct sits_tokens t = { 0 };
	size_t i, wrong;

	assert_int_equal(sits_tokenizer_encode(tok, text, len, flags, &t), 0);
	wrong = hash_ids(&t) != want;
	if (wrong) {
		print_message("# flags %u: \"", flags);
		for (i = 0; i < len && i < 200; i++)
			print_message((uint8_t)text[i] > ' ' && text[i] < 0x7f ? "%c" : "\\x%02x", (uint8_t)text[i]);
		print_message("\"\n#  got");
		for (i = 0; i < t.nr && i < 40; i++)
			print_message(" %d", t.id[i]);
		print_message("\n");
	}
	sits_tokens_fini(&t);
	return wrong;
}

static uint32_t next_hash(struct bytes *golden)
{
	uint32_t v;

	assert_true(golden->at + 4 <= golden->len);
	memcpy(&v, golden->p + golden->at, 4);
	golden->at += 4;
	return v;
}

static void check_corpus(const struct sits_tokenizer *tok, const char *golden_path)
{
	struct bytes corpus = slurp("tests/golden/tokenizer.corpus"), golden = slurp(golden_path);
	uint64_t nr = varint(&corpus), i;
	size_t wrong = 0, compared = 0;
	uint32_t plain, full;

	assert_memory_equal(golden.p, "SITSTKJ1", 8);
	golden.at = 12;
	for (i = 0; i < nr; i++) {
		size_t len = (size_t)(varint(&corpus) >> 1);
		char *text = malloc(len ? len : 1);

		assert_true(len <= corpus.len - corpus.at);
		memcpy(text, corpus.p + corpus.at, len);
		corpus.at += len;
		if (is_utf8((uint8_t *)text, len)) {
			plain = next_hash(&golden);
			full = next_hash(&golden);
			if (plain || full) {
				wrong += differs(tok, text, len, 0, plain);
				wrong += differs(tok, text, len, SITS_TOK_ADD_BOS | SITS_TOK_SPECIAL | SITS_TOK_ADD_EOS, full);
				compared++;
			}
		}
		free(text);
	}
	assert_int_equal(golden.at, golden.len);
	assert_true(compared > 2400);
	assert_int_equal(wrong, 0);
	free(corpus.p);
	free(golden.p);
}

/* The keys that @src gives and @json, as a GGUF has them. @end: the ids of [nr_end] tokens; nr_end 0: no such key */
static int embed(const struct sits_tok_json_src *src, struct sits_str json, const int32_t *end, size_t nr_end, struct tok *t,
		 struct sits_diag *diag)
{
	struct sits_meta meta = { 0 };
	struct sits_tok_json tj;
	size_t len;
	int ret;

	memset(t, 0, sizeof(*t));
	diag->msg[0] = '\0';
	assert_int_equal(sits_tok_json_read(src, &meta, &tj, diag), 0);
	sits_tok_json_fini(&tj);
	sits_meta_str(&meta, SITS_TOK_JSON_KEY, json.p, json.len);
	if (nr_end)
		sits_meta_i32s(&meta, SITS_TOK_ENDS_KEY, end, nr_end);
	assert_int_equal(sits_meta_end(&meta, &t->image, &len), 0);
	assert_int_equal(sits_gguf_open(t->image, len, &t->g, diag), 0);
	ret = sits_tok_json_embedded(t->g, &tj, diag);
	if (!ret)
		ret = sits_tokenizer_create_ext(t->g, &tj.ext, &t->tok, diag);
	sits_tok_json_fini(&tj);
	return ret;
}

/* Read as a file, and as a key of a GGUF. */
static void check(const char *path, const char *golden)
{
	struct bytes file = slurp(path);
	struct sits_tok_json_src src = src_of((char *)file.p, file.len);
	struct sits_diag diag;
	struct tok t;

	if (make(&src, &t, &diag))
		fail_msg("%s: %s", path, diag.msg);
	check_corpus(t.tok, golden);
	drop(&t);
	if (embed(&src, src.tokenizer, NULL, 0, &t, &diag))
		fail_msg("%s as a key: %s", path, diag.msg);
	check_corpus(t.tok, golden);
	drop(&t);
	free(file.p);
}

static void equals_the_reference(void **state)
{
	char path[128], golden[128];

	snprintf(path, sizeof(path), "tests/vectors/tok-json-%s.json", (char *)*state);
	snprintf(golden, sizeof(golden), "tests/golden/tokenizer-json-%s.golden", (char *)*state);
	check(path, golden);
}

static void deepseek_equals_the_reference(void **state)
{
	const char *path = getenv("SITS_TOKENIZER_JSON");

	if (!path || !*path) {
		print_message("# skip: SITS_TOKENIZER_JSON names no file\n");
		skip();
	}
	check(path, "tests/golden/tokenizer-json-deepseek.golden");
}

/* ------------------------------------------------------------------ rules */

/* A right file in parts; tests change one. */
struct parts {
	const char *top, *added, *normalizer, *pre, *post, *decoder, *model, *vocab, *merges;
};

static const struct parts right = {
	.top = "\"version\":\"1.0\"",
	.added = "[{\"id\":6,\"content\":\"<s>\",\"special\":true,\"normalized\":false,\"lstrip\":false,\"rstrip\":false,\"single_word\":false},"
		 "{\"id\":7,\"content\":\"<x>\",\"special\":false}]",
	.normalizer = "null",
	.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}",
	.post = "null", .decoder = "{\"type\":\"ByteLevel\"}",
	.model = "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null",
	.vocab = "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120ab\":4,\"c\":5}",
	.merges = "[\"a b\",[\"\\u0120\",\"ab\"]]",
};

static char *text_of(const struct parts *p, size_t *len)
{
	char *s = malloc(8192);
	int n;

	assert_non_null(s);
	n = snprintf(s, 8192, "{%s,\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
		     "\"model\":{%s,\"vocab\":%s,\"merges\":%s}}", p->top, p->added, p->normalizer, p->pre, p->post, p->decoder, p->model,
		     p->vocab, p->merges);
	assert_true(n > 0 && n < 8192);
	*len = (size_t)n;
	return s;
}

static int make_parts(const struct parts *p, const char *config, uint32_t vocab, struct tok *t, struct sits_diag *diag)
{
	size_t len;
	char *s = text_of(p, &len);
	struct sits_tok_json_src src = src_of(s, len);
	int ret;

	src.vocab = vocab;
	if (config)
		src.config = (struct sits_str){ config, strlen(config) };
	ret = make(&src, t, diag);
	free(s);
	return ret;
}

static void refused_at(int line, const struct parts *p, const char *config, uint32_t vocab, int err, const char *words)
{
	struct sits_diag diag;
	struct tok t;
	int ret = make_parts(p, config, vocab, &t, &diag);

	if (ret != err || !strstr(diag.msg, words))
		fail_msg("line %d: %d instead of %d, \"%s\" does not say \"%s\"", line, ret, err, diag.msg, words);
	drop(&t);
}

#define REFUSED(field, value, err, words) do {				\
		struct parts p_ = right;				\
		p_.field = value;					\
		refused_at(__LINE__, &p_, NULL, 0, err, words);		\
	} while (0)

static void encodes(struct tok *t, const char *text, uint32_t flags, size_t nr, const int32_t *want)
{
	struct sits_tokens ids = { 0 };

	assert_int_equal(sits_tokenizer_encode(t->tok, text, strlen(text), flags, &ids), 0);
	assert_int_equal(ids.nr, nr);
	assert_memory_equal(ids.id, want, nr * sizeof(*want));
	sits_tokens_fini(&ids);
}

#define ENCODES(t, text, flags, ...) encodes(t, text, flags, NR(((const int32_t[]){ __VA_ARGS__ })), (const int32_t[]){ __VA_ARGS__ })

static void a_right_file_is_read(void **state)
{
	static const char config[] = "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"<x>\",\"add_bos_token\":true,\"chat_template\":"
				     "[{\"name\":\"tool_use\",\"template\":\"no\"},{\"name\":\"default\",\"template\":\"yes\"}]}";
	struct sits_diag diag;
	struct sits_str chat;
	const char *piece;
	struct tok t;

	if (make_parts(&right, config, 10, &t, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(sits_tokenizer_vocab(t.tok), 10);	/* two holes */
	ENCODES(&t, "ab ab", 0, 2, 4);
	ENCODES(&t, "<s>c", SITS_TOK_SPECIAL | SITS_TOK_ADD_BOS, 6, 6, 5);
	ENCODES(&t, "c<x>", SITS_TOK_ADD_EOS, 5, 7);		/* user-defined: always; nobody asked for an EOS */
	ENCODES(&t, "a<s>b", 0, 0, 1);				/* plain text never becomes a control token */
	assert_int_equal(sits_tokenizer_bos(t.tok), 6);
	assert_true(sits_tokenizer_is_eog(t.tok, 7));
	assert_false(sits_tokenizer_is_eog(t.tok, 6));
	assert_int_equal(sits_tokenizer_piece(t.tok, 4, &piece), 3);
	assert_memory_equal(piece, " ab", 3);
	assert_int_equal(sits_tokenizer_piece(t.tok, 6, &piece), 0);
	assert_int_equal(sits_tokenizer_piece(t.tok, 7, &piece), 3);
	assert_int_equal(sits_tokenizer_piece(t.tok, 9, &piece), 0);
	assert_int_equal(sits_tokenizer_piece(t.tok, 10, &piece), -EINVAL);
	assert_int_equal(sits_gguf_get_str(t.g, "tokenizer.chat_template", &chat), 0);
	assert_int_equal(chat.len, 3);
	assert_memory_equal(chat.p, "yes", 3);
	drop(&t);
}

static void tokens_that_end_come_from_the_configuration_too(void **state)
{
	struct sits_tok_json_src src;
	struct sits_diag diag;
	struct tok t;
	size_t len;
	char *s = text_of(&right, &len);

	src = src_of(s, len);
	src.nr_end = 2;
	src.end[0] = 5;
	src.end[1] = 7;
	src.chat = (struct sits_str){ "from a file", 11 };
	assert_int_equal(make(&src, &t, &diag), 0);
	assert_true(sits_tokenizer_is_eog(t.tok, 5) && sits_tokenizer_is_eog(t.tok, 7));
	assert_false(sits_tokenizer_is_eog(t.tok, 0));
	drop(&t);
	src.end[1] = 8;
	assert_int_equal(make(&src, &t, &diag), -EBADMSG);
	assert_non_null(strstr(diag.msg, "eos_token_id: 8, but there are 8 tokens"));
	drop(&t);
	free(s);
}

static void a_template_says_what_starts_and_ends_a_text(void **state)
{
#define TEMPLATE(single, tokens) "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":[" single \
	"],\"pair\":[],\"special_tokens\":{" tokens "}}]}"
#define S_ "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"
#define A_ "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define IDS "\"<s>\":{\"id\":\"<s>\",\"ids\":[6],\"tokens\":[\"<s>\"]}"
	struct parts p = right;
	struct sits_diag diag;
	struct tok t;

	p.post = TEMPLATE(S_ "," A_, IDS);
	assert_int_equal(make_parts(&p, NULL, 0, &t, &diag), 0);
	ENCODES(&t, "c", SITS_TOK_ADD_BOS | SITS_TOK_ADD_EOS, 6, 5);
	drop(&t);
	/* The configuration goes before it. */
	assert_int_equal(make_parts(&p, "{\"add_bos_token\":false}", 0, &t, &diag), 0);
	ENCODES(&t, "c", SITS_TOK_ADD_BOS, 5);
	drop(&t);
	p.post = TEMPLATE(S_ "," A_ "," S_, IDS);
	assert_int_equal(make_parts(&p, "{\"eos_token\":\"<s>\"}", 0, &t, &diag), 0);
	ENCODES(&t, "c", SITS_TOK_ADD_BOS | SITS_TOK_ADD_EOS, 6, 5, 6);
	drop(&t);
	refused_at(__LINE__, &p, "{\"eos_token\":\"<x>\"}", 0, -EPROTONOSUPPORT, "ends a text with token 6, which is not eos_token, 7");
	REFUSED(post, TEMPLATE(S_ "," S_ "," A_, IDS), -EPROTONOSUPPORT, "more than one token on a side");
	REFUSED(post, TEMPLATE(A_ "," A_, IDS), -EPROTONOSUPPORT, "the text twice");
	REFUSED(post, TEMPLATE(S_, IDS), -EBADMSG, "without the text");
	REFUSED(post, TEMPLATE(S_ "," A_, ""), -EPROTONOSUPPORT, "not one known token");
	REFUSED(post, TEMPLATE(S_ "," A_, "\"<s>\":{\"ids\":[6,6]}"), -EPROTONOSUPPORT, "not one known token");
	REFUSED(post, TEMPLATE(S_ "," A_, "\"<s>\":{\"ids\":[8]}"), -EPROTONOSUPPORT, "not one known token");
	REFUSED(post, "{\"type\":\"BertProcessing\"}", -EPROTONOSUPPORT, "\"BertProcessing\" is not supported");
}

/* What tokenizer_config.json and others say is in the keys beside it. */
static void a_gguf_can_have_it_as_a_key(void **state)
{
	static const char config[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"<x>\",\"add_bos_token\":true}";
	static const int32_t end[] = { 5, 7 }, beyond[] = { 10 };
	struct sits_diag diag;
	struct parts other = right;
	struct sits_tok_json_src src;
	size_t len, len2;
	char *s = text_of(&right, &len), *s2;
	struct tok t;

	src = src_of(s, len);
	src.vocab = 10;
	src.config = (struct sits_str){ config, sizeof(config) - 1 };
	if (embed(&src, src.tokenizer, end, 2, &t, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(sits_tokenizer_vocab(t.tok), 10);
	ENCODES(&t, "<s>c", SITS_TOK_SPECIAL | SITS_TOK_ADD_BOS, 6, 6, 5);
	assert_true(sits_tokenizer_is_eog(t.tok, 5) && sits_tokenizer_is_eog(t.tok, 7) && !sits_tokenizer_is_eog(t.tok, 4));
	drop(&t);

	assert_int_equal(embed(&src, src.tokenizer, beyond, 1, &t, &diag), -EBADMSG);
	assert_non_null(strstr(diag.msg, "end_token_ids: 10, but there are 10 tokens"));
	drop(&t);
	/* Another tokenizer than the one that the tokens are of. */
	other.vocab = "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120ab\":4,\"d\":5}";
	s2 = text_of(&other, &len2);
	assert_int_equal(embed(&src, (struct sits_str){ s2, len2 }, NULL, 0, &t, &diag), -EBADMSG);
	assert_non_null(strstr(diag.msg, "not those of key tokenizer.huggingface.json"));
	drop(&t);
	assert_int_equal(embed(&src, (struct sits_str){ "{", 1 }, NULL, 0, &t, &diag), -EBADMSG);
	drop(&t);
	free(s);
	free(s2);
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
	REFUSED(top, "\"version\":\"1.0\",\"new\":1", -EPROTONOSUPPORT, "the file.new is not known");
	REFUSED(model, "\"type\":\"Unigram\"", -EPROTONOSUPPORT, "model.type is \"Unigram\"");
	REFUSED(model, "\"type\":\"BPE\",\"dropout\":0.1", -EPROTONOSUPPORT, "model.dropout is set");
	REFUSED(model, "\"continuing_subword_prefix\":\"##\"", -EPROTONOSUPPORT, "model.continuing_subword_prefix is set");
	REFUSED(model, "\"end_of_word_suffix\":\"</w>\"", -EPROTONOSUPPORT, "model.end_of_word_suffix is set");
	REFUSED(model, "\"cache\":1", -EPROTONOSUPPORT, "model.cache is not known");
	REFUSED(model, "\"byte_fallback\":1", -EBADMSG, "model.byte_fallback is not a boolean");
	REFUSED(model, "\"byte_fallback\":true", -EPROTONOSUPPORT, "byte_fallback or unk_token with the pre_tokenizer ByteLevel");
	REFUSED(model, "\"unk_token\":\"<none>\"", -EBADMSG, "model.unk_token is no token");
	REFUSED(normalizer, "{\"type\":\"Lowercase\"}", -EPROTONOSUPPORT, "normalizer \"Lowercase\" is not supported");
	REFUSED(normalizer, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFKC\"}]}", -EPROTONOSUPPORT, "\"NFKC\"");
	REFUSED(normalizer, "{\"type\":\"Sequence\",\"normalizers\":{}}", -EBADMSG, "normalizer.normalizers is not a list");
	REFUSED(pre, "{\"type\":\"Sequence\",\"pretokenizers\":0}", -EBADMSG, "pre_tokenizer.pretokenizers is not a list");
	REFUSED(decoder, "{\"type\":\"Sequence\"}", -EBADMSG, "decoder.decoders is not a list");
	REFUSED(post, "{\"type\":\"Sequence\",\"processors\":null}", -EBADMSG, "post_processor.processors is not a list");
	REFUSED(normalizer, "{\"type\":\"NFC\",\"x\":1}", -EPROTONOSUPPORT, "normalizer.x is not known");
	REFUSED(normalizer, "{\"type\":\"Prepend\",\"prepend\":\"_\"}", -EPROTONOSUPPORT, "Prepend of anything");
	REFUSED(normalizer, "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}", -EPROTONOSUPPORT, "Prepend without Replace");
	REFUSED(normalizer, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"y\"}", -EPROTONOSUPPORT, "Replace of anything");
	REFUSED(normalizer, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}", -EPROTONOSUPPORT, "with the pre_tokenizer ByteLevel");
	REFUSED(pre, "null", -EPROTONOSUPPORT, "neither a ByteLevel nor a Metaspace");
	REFUSED(pre, "{\"type\":\"BertPreTokenizer\"}", -EPROTONOSUPPORT, "pre_tokenizer \"BertPreTokenizer\" is not supported");
	REFUSED(pre, "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", -EPROTONOSUPPORT, "ByteLevel with add_prefix_space");
	REFUSED(pre, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}]}", -EPROTONOSUPPORT, "no ByteLevel at its end");
	REFUSED(pre, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":false}]}", -EPROTONOSUPPORT, "without individual_digits");
	REFUSED(pre, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":\"Digits\"}]}", -EPROTONOSUPPORT,
		"\"Digits\" after ByteLevel");
	REFUSED(pre, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(x+x+)+y\"},\"behavior\":\"Isolated\",\"invert\":false},"
		"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}", -EPROTONOSUPPORT, "not one of those known: (x+x+)+y");
	REFUSED(pre, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Removed\",\"invert\":false}", -EPROTONOSUPPORT, "behavior Isolated");
	REFUSED(pre, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Isolated\",\"invert\":true}", -EPROTONOSUPPORT, "invert is set");
	REFUSED(pre, "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Isolated\"}", -EPROTONOSUPPORT, "not by a Regex");
	REFUSED(pre, "{\"type\":\"Metaspace\",\"replacement\":\"_\"}", -EPROTONOSUPPORT, "replacement is not U+2581");
	REFUSED(pre, "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"last\"}", -EPROTONOSUPPORT, "prepend_scheme is \"last\"");
	REFUSED(decoder, "{\"type\":\"WordPiece\"}", -EPROTONOSUPPORT, "decoder \"WordPiece\"");
	REFUSED(added, "[{\"id\":6,\"content\":\"<s>\",\"single_word\":true}]", -EPROTONOSUPPORT, "single_word is set");
	REFUSED(added, "[{\"id\":6,\"content\":\"<s>\",\"more\":true}]", -EPROTONOSUPPORT, "added_tokens[].more is not known");
}

static void what_is_inconsistent_is_refused(void **state)
{
	REFUSED(vocab, "[]", -EBADMSG, "model.vocab is not an object");
	REFUSED(vocab, "{\"a\":0,\"b\":0}", -EBADMSG, "have one id, 0");
	REFUSED(vocab, "{\"a\":-1}", -EBADMSG, "token \"a\" has no id");
	REFUSED(vocab, "{\"a\":1.5}", -EBADMSG, "token \"a\" has no id");
	REFUSED(vocab, "{\"a\":16777216}", -EBADMSG, "token \"a\" has no id");
	REFUSED(vocab, "{\"a\":16000000}", -EBADMSG, "tokens for 16000001 ids");
	REFUSED(vocab, "{\"\":0,\"a\":1}", -EBADMSG, "an empty token");
	REFUSED(vocab, "{\"a\":0,\"a\":1}", -EBADMSG, "duplicate");
	REFUSED(merges, "{}", -EBADMSG, "model.merges is not an array");
	REFUSED(merges, "[\"ab\"]", -EBADMSG, "number 0 is neither");
	REFUSED(merges, "[\"a b\",[\"a\"]]", -EBADMSG, "number 1 is neither");
	REFUSED(merges, "[[\"a\",1]]", -EBADMSG, "number 0 is neither");
	REFUSED(merges, "[7]", -EBADMSG, "number 0 is neither");
	REFUSED(merges, "[\"a c\"]", -EBADMSG, "merge 0, \"a\" and \"c\", is not two tokens that make a third");
	REFUSED(merges, "[[\"\",\"a\"]]", -EBADMSG, "merge 0");
	REFUSED(added, "{}", -EBADMSG, "added_tokens is not an array");
	REFUSED(added, "[{\"id\":6}]", -EBADMSG, "token 6 has no content");
	REFUSED(added, "[{\"id\":6,\"content\":\"\"}]", -EBADMSG, "token 6 has no content");
	REFUSED(added, "[{\"content\":\"x\"}]", -EBADMSG, "number 0 has no id");
	REFUSED(added, "[{\"id\":6,\"content\":\"a\"}]", -EBADMSG, "\"a\" has the id 6, in model.vocab it is 0");
	REFUSED(added, "[{\"id\":0,\"content\":\"x\"}]", -EBADMSG, "have one id, 0");
	REFUSED(added, "[{\"id\":6,\"content\":\"x\"},{\"id\":6,\"content\":\"x\"}]", -EBADMSG, "two have the id 6");
	REFUSED(added, "[7]", -EBADMSG, "number 0 has no id");
	REFUSED(normalizer, "7", -EPROTONOSUPPORT, "normalizer \"\"");
	refused_at(__LINE__, &right, NULL, 7, -EBADMSG, "token id 7 is beyond config.json's vocab_size, 7");
	refused_at(__LINE__, &right, "{\"bos_token\":\"<y>\"}", 0, -EBADMSG, "tokenizer_config.json: bos_token, \"<y>\", is no token");
	refused_at(__LINE__, &right, "{\"bos_token\":7}", 0, -EBADMSG, "bos_token");
	refused_at(__LINE__, &right, "{\"add_bos_token\":1}", 0, -EBADMSG, "add_bos_token is not a boolean");
	refused_at(__LINE__, &right, "{\"add_bos_token\":true}", 0, -EBADMSG, "there is no bos_token");
	refused_at(__LINE__, &right, "{\"add_eos_token\":true}", 0, -EBADMSG, "there is no eos_token");
	refused_at(__LINE__, &right, "{\"split_special_tokens\":true}", 0, -EPROTONOSUPPORT, "split_special_tokens is true");
	refused_at(__LINE__, &right, "{\"add_prefix_space\":true}", 0, -EPROTONOSUPPORT, "add_prefix_space is true");
	refused_at(__LINE__, &right, "{\"chat_template\":[]}", 0, -EBADMSG, "chat_template is neither");
	refused_at(__LINE__, &right, "[]", 0, -EBADMSG, "tokenizer_config.json: not a JSON object");
}

/* ------------------------------------------------------------------ NFC */

static void nfc(const char *text, size_t len, const char *want, size_t want_len)
{
	const char *out;
	size_t out_len;
	char *owned;

	assert_int_equal(sits_tok_nfc(text, len, &out, &out_len, &owned), 0);
	if (out_len != want_len || memcmp(out, want, want_len))
		fail_msg("\"%s\" became %zu bytes, \"%.*s\"", text, out_len, (int)out_len, out);
	free(owned);
}

static void text_is_normalised(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "", "" },
		{ "plain", "plain" },
		{ "e\xcc\x81", "\xc3\xa9" },			/* e, acute */
		{ "\xc3\xa9", "\xc3\xa9" },
		{ "=\xcc\xb8x", "\xe2\x89\xa0x" },		/* not equal */
		{ "a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81" },	/* acute, dot below: the dot goes first, and combines */
		{ "\xe2\x84\xab", "\xc3\x85" },			/* Angstrom sign */
		{ "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc" },	/* excluded from composition */
		{ "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c" },	/* Hangul */
		{ "\xcc\x81", "\xcc\x81" },
		{ "\xff" "e\xcc\x81\xed\xa0\x80", "\xff\xc3\xa9\xed\xa0\x80" },	/* what is no UTF-8 stays */
		{ "e\xcc", "e\xcc" },
	};
	size_t i;

	for (i = 0; i < NR(cases); i++)
		nfc(cases[i].text, strlen(cases[i].text), cases[i].want, strlen(cases[i].want));
}

/* A run of marks in the worst order: a sort by exchange of neighbours would take minutes. */
static void many_marks_take_no_quadratic_time(void **state)
{
	const size_t nr = 300000;
	char *text = malloc(2 * nr + 1), *want = malloc(2 * nr + 1);
	size_t i;

	text[0] = want[0] = 'q';
	for (i = 0; i < nr; i++) {
		memcpy(text + 1 + 2 * i, i % 2 ? "\xcc\xa3" : "\xcc\x81", 2);	/* classes 220, 230 */
		memcpy(want + 1 + 2 * i, i < nr / 2 ? "\xcc\xa3" : "\xcc\x81", 2);
	}
	nfc(text, 2 * nr + 1, want, 2 * nr + 1);
	free(text);
	free(want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "gpt2: ByteLevel alone equals the reference", equals_the_reference, NULL, NULL, "gpt2" },
		{ "olmo: NFC equals the reference", equals_the_reference, NULL, NULL, "olmo" },
		{ "smollm: Digits equals the reference", equals_the_reference, NULL, NULL, "smollm" },
		{ "qwen2 equals the reference", equals_the_reference, NULL, NULL, "qwen2" },
		{ "llama3 equals the reference", equals_the_reference, NULL, NULL, "llama3" },
		{ "deepseek2 equals the reference", equals_the_reference, NULL, NULL, "deepseek2" },
		{ "coder equals the reference", equals_the_reference, NULL, NULL, "coder" },
		{ "deepseek3 equals the reference", equals_the_reference, NULL, NULL, "deepseek3" },
		{ "llama: Prepend and Replace, byte fallback, equals the reference", equals_the_reference, NULL, NULL, "llama" },
		{ "llama-old: normalized special tokens equals the reference", equals_the_reference, NULL, NULL, "llama-old" },
		{ "mistral: Metaspace before the first word equals the reference", equals_the_reference, NULL, NULL, "mistral" },
		{ "words: Metaspace that cuts, unknown tokens fused, equals the reference", equals_the_reference, NULL, NULL, "words" },
		{ "never: Metaspace without a prefix equals the reference", equals_the_reference, NULL, NULL, "never" },
		cmocka_unit_test(deepseek_equals_the_reference),
		cmocka_unit_test(a_right_file_is_read),
		cmocka_unit_test(tokens_that_end_come_from_the_configuration_too),
		cmocka_unit_test(a_template_says_what_starts_and_ends_a_text),
		cmocka_unit_test(a_gguf_can_have_it_as_a_key),
		cmocka_unit_test(what_is_not_supported_is_refused_by_name),
		cmocka_unit_test(what_is_inconsistent_is_refused),
		cmocka_unit_test(text_is_normalised),
		cmocka_unit_test(many_marks_take_no_quadratic_time),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
