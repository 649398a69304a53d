/* SPDX-License-Identifier: MIT */
/*
 * tok_json.h - a tokenizer from tokenizer.json and tokenizer_config.json, the files of Hugging Face tokenizers and transformers.
 *
 * What a GGUF has keys for goes into a struct sits_meta under those keys, so that chat templates and the like are found where
 * they are in a GGUF; the rest into a struct sits_tok_ext. A component of the tokenizer that is not supported is refused by
 * name, never skipped.
 */
#ifndef SITS_MODEL_TOK_JSON_H
#define SITS_MODEL_TOK_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/meta.h"
#include "daemon/model/tok.h"

#define SITS_TOK_JSON_MAX_END 64

/* All borrowed until sits_tok_json_read() returns. */
struct sits_tok_json_src {
	struct sits_str tokenizer;	/* tokenizer.json */
	struct sits_str config;		/* tokenizer_config.json; p NULL where there is none */
	struct sits_str chat;		/* chat_template.jinja, which goes before the template in the configuration; p NULL */
	uint32_t vocab;			/* rows of the embedding: ids without a token up to there are holes; 0: none */
	int64_t bos;			/* what config.json says; -1: nothing. tokenizer_config.json goes before it */
	int64_t end[SITS_TOK_JSON_MAX_END];	/* tokens that end generation, the first one EOS where no tokenizer_config.json says */
	size_t nr_end;
};

struct sits_tok_json {
	struct sits_tok_ext ext;	/* points into what follows */
	json_t *root;
	struct sits_tok_merge_text *merge;
	uint16_t *attr;
};

/**
 * sits_tok_json_read() - Read the files.
 * @meta: the keys tokenizer.ggml.* and tokenizer.chat_template are put into it
 * @out: out: for sits_tokenizer_create_ext(); sits_tok_json_fini() in any case, but after that
 * Return: 0; -EPROTONOSUPPORT for a component that is not supported; -EBADMSG for what is inconsistent; -EFBIG; -ENOMEM.
 */
int sits_tok_json_read(const struct sits_tok_json_src *src, struct sits_meta *meta, struct sits_tok_json *out,
		       struct sits_diag *diag);

/* A GGUF that was made of such files has tokenizer.json whole under this key of the GGUF specification, and no tokenizer.ggml.model. */
#define SITS_TOK_JSON_KEY	"tokenizer.huggingface.json"
/* Our own: the ids of all tokens that end generation. */
#define SITS_TOK_ENDS_KEY	"tokenizer.sits.end_token_ids"

/**
 * sits_tok_json_embedded() - The same from the keys of a GGUF, for sits_tokenizer_create_ext() with that GGUF.
 * @g: its tokenizer.ggml.tokens and token_type must be those of the tokenizer.json
 * Return: as sits_tok_json_read().
 */
int sits_tok_json_embedded(const struct sits_gguf *g, struct sits_tok_json *out, struct sits_diag *diag);
void sits_tok_json_fini(struct sits_tok_json *t);

#endif
