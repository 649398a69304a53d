/* SPDX-License-Identifier: MIT */
/*
 * byte_model.h - the parts of a model that ingress uses, without weights: a tokenizer of single bytes and a ChatML
 * template. Token ids are byte values, but for the control tokens below.
 */
#ifndef SITS_TESTS_BYTE_MODEL_H
#define SITS_TESTS_BYTE_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/model.h"
#include "tests/unit/engine/tiny_model.h"

#define BYTE_VOCAB	260	/* the last is "ab", made by the one merge */
#define BYTE_BOS	256
#define BYTE_START	257	/* <|im_start|> */
#define BYTE_END	258	/* <|im_end|> */

static inline void byte_model_tokens(struct gguf_build *b)
{
	static char text[BYTE_VOCAB][16];
	const char *names[BYTE_VOCAB];
	int32_t types[BYTE_VOCAB];

	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = tiny_byte_char(i);

		if (c < 0x80)
			snprintf(text[i], sizeof(text[i]), "%c", (int)c);
		else
			snprintf(text[i], sizeof(text[i]), "%c%c", (int)(0xC0 | c >> 6), (int)(0x80 | (c & 0x3F)));
		types[i] = 1;
	}
	snprintf(text[BYTE_BOS], sizeof(text[0]), "<s>");
	snprintf(text[BYTE_START], sizeof(text[0]), "<|im_start|>");
	snprintf(text[BYTE_END], sizeof(text[0]), "<|im_end|>");
	snprintf(text[BYTE_VOCAB - 1], sizeof(text[0]), "ab");
	types[BYTE_VOCAB - 1] = 1;
	types[BYTE_BOS] = types[BYTE_START] = types[BYTE_END] = 3;
	for (uint32_t i = 0; i < BYTE_VOCAB; i++)
		names[i] = text[i];
	gguf_build_strs(b, "tokenizer.ggml.tokens", names, BYTE_VOCAB);
	gguf_build_array(b, "tokenizer.ggml.token_type", 5, BYTE_VOCAB, types, sizeof(types));
}

/* @image: free() it after byte_model_fini(). @with_chat: has a template; @with_bos: and a token to begin with */
static inline void byte_model_init(struct sits_model *m, void **image, bool with_chat, bool with_bos)
{
	struct sits_diag diag = { "" };
	struct gguf_build b;
	size_t len;

	gguf_build_begin(&b);
	gguf_build_str(&b, "general.architecture", "llama");
	gguf_build_str(&b, "tokenizer.ggml.model", "gpt2");
	gguf_build_str(&b, "tokenizer.ggml.pre", "gpt-2");
	byte_model_tokens(&b);
	gguf_build_strs(&b, "tokenizer.ggml.merges", (const char *[]){ "a b" }, 1);
	if (with_bos)
		gguf_build_u32(&b, "tokenizer.ggml.bos_token_id", BYTE_BOS);
	gguf_build_bool(&b, "tokenizer.ggml.add_bos_token", 0);
	if (with_chat)
		gguf_build_str(&b, "tokenizer.chat_template",
			       "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
			       "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
			       "{% endif %}");
	*image = gguf_build_end(&b, &len);
	memset(m, 0, sizeof(*m));
	if (sits_gguf_open(*image, len, &m->gguf, &diag) || sits_tokenizer_create(m->gguf, &m->tok, &diag) ||
	    (with_chat && sits_chat_pick(m->gguf, &m->chat, &diag))) {
		fprintf(stderr, "byte_model: %s\n", diag.msg);
		abort();
	}
	if (!with_chat)
		sits_chat_pick(m->gguf, &m->chat, &m->chat_diag);
}

static inline void byte_model_fini(struct sits_model *m)
{
	sits_tokenizer_destroy(m->tok);
	sits_gguf_close(m->gguf);
}

#endif
