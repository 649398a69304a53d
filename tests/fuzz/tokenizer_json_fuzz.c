// SPDX-License-Identifier: MIT
/*
 * tokenizer_json_fuzz.c - tokenizer.json and tokenizer_config.json, and text through the tokenizer that comes of them. Ids are in the
 * vocabulary, and plain text never becomes a control token.
 *
 * Input: {"t": tokenizer.json, "c": tokenizer_config.json or null, "v": vocabulary size, "x": text}
 */
#include "daemon/model/tok_json.h"
#include "daemon/model/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/json_mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	uint64_t rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	return jm_mutate(data, size, max_size, &rng);
}

static void encode(const struct sits_tokenizer *tok, const struct sits_gguf *g, const char *text)
{
	static const uint32_t flags[] = { 0, SITS_TOK_ADD_BOS | SITS_TOK_SPECIAL | SITS_TOK_ADD_EOS };
	struct sits_gguf_array types;
	const char *piece;
	size_t i, f;
	int32_t type;

	FUZZ_CHECK(!sits_gguf_get_array(g, "tokenizer.ggml.token_type", &types));
	for (f = 0; f < 2; f++) {
		struct sits_tokens t = { 0 };

		FUZZ_CHECK(!sits_tokenizer_encode(tok, text, strlen(text), flags[f], &t));
		for (i = 0; i < t.nr; i++) {
			FUZZ_CHECK(t.id[i] >= 0 && (uint32_t)t.id[i] < sits_tokenizer_vocab(tok));
			FUZZ_CHECK(sits_tokenizer_piece(tok, t.id[i], &piece) >= 0);
			memcpy(&type, (const char *)types.data + 4 * (size_t)t.id[i], 4);
			FUZZ_CHECK(flags[f] || type != 3);
		}
		sits_tokens_fini(&t);
	}
}

static void run(const char *tokenizer, const char *config, uint32_t vocab, const char *text)
{
	struct sits_tok_json_src src = { .tokenizer = { tokenizer, strlen(tokenizer) }, .vocab = vocab, .bos = -1 };
	struct sits_diag diag = { "" };
	struct sits_meta meta = { 0 };
	struct sits_tokenizer *tok = NULL;
	struct sits_tok_json json;
	struct sits_gguf *g = NULL;
	uint8_t *image;
	size_t len;
	int ret;

	if (config)
		src.config = (struct sits_str){ config, strlen(config) };
	ret = sits_tok_json_read(&src, &meta, &json, &diag);
	FUZZ_CHECK(!sits_meta_end(&meta, &image, &len));
	if (!ret) {
		FUZZ_CHECK(!sits_gguf_open(image, len, &g, &diag));
		ret = sits_tokenizer_create_ext(g, &json.ext, &tok, &diag);
	}
	sits_tok_json_fini(&json);
	if (ret)
		fuzz_check_words(diag.msg, sizeof(diag.msg));
	else
		encode(tok, g, text);
	sits_tokenizer_destroy(tok);
	sits_gguf_close(g);
	free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *root = json_loadb((const char *)data, size, 0, NULL), *c;
	const char *text = json_string_value(json_object_get(root, "x"));
	json_int_t vocab = json_integer_value(json_object_get(root, "v"));
	char *tokenizer, *config = NULL;

	c = json_object_get(root, "c");
	tokenizer = json_dumps(json_object_get(root, "t"), JSON_ENCODE_ANY | JSON_COMPACT);
	if (c && !json_is_null(c))
		config = json_dumps(c, JSON_ENCODE_ANY | JSON_COMPACT);
	if (tokenizer)
		run(tokenizer, config, vocab < 0 || vocab > 4096 ? 0 : (uint32_t)vocab, text ? text : "");
	else
		run("{", NULL, 0, "");
	free(tokenizer);
	free(config);
	json_decref(root);
	return 0;
}
