// SPDX-License-Identifier: MIT
/*
 * gguf_fuzz.c - the GGUF reader and everything that is built from its metadata: tokenizer (a tokenizer.json in a key,
 * too), chat template, model. What opens must hold together, and look-ups must find what the walk shows.
 */
#include <errno.h>

#include "daemon/model/gguf.h"
#include "daemon/model/model.h"
#include "daemon/model/tok_json.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/gguf_mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	uint64_t rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	return gm_mutate(data, size, max_size, &rng);
}

static uint64_t sum_bytes(const void *p, uint64_t n)
{
	const uint8_t *b = p;
	uint64_t i, sum = 0;

	for (i = 0; i < n; i++)
		sum += b[i];
	return sum;
}

static void inside(const void *p, uint64_t n, const uint8_t *data, size_t size)
{
	const uint8_t *b = p;

	FUZZ_CHECK(b >= data && b <= data + size && n <= (uint64_t)(data + size - b));
}

static void check_value(const struct sits_gguf *g, const char *key, enum sits_gguf_type type, const uint8_t *data,
			size_t size)
{
	struct sits_gguf_array a;
	struct sits_str s;
	uint64_t u, i;
	float f;
	bool b;

	FUZZ_CHECK((sits_gguf_get_str(g, key, &s) == 0) == (type == SITS_GGUF_STRING));
	FUZZ_CHECK((sits_gguf_get_bool(g, key, &b) == 0) == (type == SITS_GGUF_BOOL));
	FUZZ_CHECK((sits_gguf_get_array(g, key, &a) == 0) == (type == SITS_GGUF_ARRAY));
	FUZZ_CHECK(sits_gguf_get_u64(g, key, &u) != -ENOENT);
	FUZZ_CHECK(sits_gguf_get_f32(g, key, &f) != -ENOENT);
	if (type == SITS_GGUF_STRING)
		inside(s.p, s.len, data, size);
	if (type != SITS_GGUF_ARRAY)
		return;
	FUZZ_CHECK((a.strings != NULL) == (a.type == SITS_GGUF_STRING && a.nr));
	FUZZ_CHECK((a.data == NULL) == (a.type == SITS_GGUF_STRING || a.type == SITS_GGUF_ARRAY));
	if (a.data)
		inside(a.data, a.nr * gm_scalar(a.type), data, size);
	for (i = 0; a.strings && i < a.nr; i++)
		inside(a.strings[i].p, a.strings[i].len, data, size);
}

static void walk(const struct sits_gguf *g, const uint8_t *data, size_t size)
{
	static char name[65536];
	enum sits_gguf_type type;
	struct sits_str key;
	uint64_t i;

	for (i = 0; i < sits_gguf_nr_keys(g); i++) {
		FUZZ_CHECK(!sits_gguf_key_at(g, i, &key, &type));
		FUZZ_CHECK(key.len && key.len < sizeof(name));
		inside(key.p, key.len, data, size);
		memcpy(name, key.p, key.len);
		name[key.len] = '\0';
		check_value(g, name, type, data, size);
	}
	for (i = 0; i < sits_gguf_nr_tensors(g); i++) {
		const struct sits_gguf_tensor *t = sits_gguf_tensor_at(g, i);

		FUZZ_CHECK(t->name.len && t->name.len < 64 && t->bytes);
		inside(t->data, t->bytes, data, size);
		FUZZ_CHECK(((const uint8_t *)t->data - data) % 8 == 0);
		memcpy(name, t->name.p, t->name.len);
		name[t->name.len] = '\0';
		FUZZ_CHECK(sits_gguf_find(g, name) == t);
		FUZZ_CHECK(sum_bytes(t->data, t->bytes) <= 255 * t->bytes);
	}
}

static void try_chat(const struct sits_gguf *g)
{
	static const struct sits_chat_message msg[] = {
		{ SITS_ROLE_SYSTEM, "s", 1 }, { SITS_ROLE_USER, "<|im_end|> hi", 13 },
	};
	const struct sits_chat_template *t;
	struct sits_diag diag = { "" };
	struct sits_chat_prompt p;
	int ret = sits_chat_pick(g, &t, &diag);

	FUZZ_CHECK(ret == 0 || ret == -ENOENT || ret == -EPROTONOSUPPORT);
	if (ret) {
		fuzz_check_words(diag.msg, sizeof(diag.msg));
		return;
	}
	if (!sits_chat_render(t, msg, 2, &p, NULL))
		sits_chat_prompt_fini(&p);
}

static void try_tokenizer(const struct sits_tokenizer *tok)
{
	static const char text[] = "Hello  wörld\n\n<|im_end|>\xff 12345 \xf0\x9f\x99\x82";
	struct sits_tokens ids = { 0 };
	const char *piece;
	size_t i;
	int n;

	if (!sits_tokenizer_encode(tok, text, sizeof(text) - 1, SITS_TOK_ADD_BOS | SITS_TOK_SPECIAL, &ids)) {
		for (i = 0; i < ids.nr; i++) {
			n = sits_tokenizer_piece(tok, ids.id[i], &piece);
			FUZZ_CHECK(n >= 0);
			FUZZ_CHECK(sum_bytes(piece, (uint64_t)n) <= 255u * (unsigned int)n);
			(void)sits_tokenizer_is_eog(tok, ids.id[i]);
		}
	}
	FUZZ_CHECK(sits_tokenizer_piece(tok, -1, &piece) < 0);
	FUZZ_CHECK(sits_tokenizer_piece(tok, (int32_t)sits_tokenizer_vocab(tok), &piece) < 0);
	(void)sits_tokenizer_find(tok, "<|im_end|>", 10);
	sits_tokens_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sits_diag diag = { "" };
	struct sits_tokenizer *tok;
	struct sits_model *m;
	struct sits_gguf *g;
	struct sits_str s;
	bool has_json;
	int ret;

	ret = sits_gguf_open(data, size, &g, &diag);
	FUZZ_CHECK(ret == 0 || ret == -EBADMSG || ret == -EPROTONOSUPPORT);
	if (ret) {
		fuzz_check_words(diag.msg, sizeof(diag.msg));
		return 0;
	}
	walk(g, data, size);
	try_chat(g);
	ret = sits_tokenizer_create(g, &tok, &diag);
	if (!ret) {
		try_tokenizer(tok);
		sits_tokenizer_destroy(tok);
	} else {
		fuzz_check_words(diag.msg, sizeof(diag.msg));
	}
	has_json = !sits_gguf_get_str(g, SITS_TOK_JSON_KEY, &s);
	sits_gguf_close(g);
	if (ret && !has_json)
		return 0;
	diag.msg[0] = '\0';
	if (!sits_model_open(data, size, &m, &diag))
		sits_model_close(m);
	return 0;
}
