/* SPDX-License-Identifier: MIT */
/*
 * tokenizer.h - text to token ids and back, from a GGUF's metadata.
 *
 * Two families: byte-level BPE ("gpt2") with a PCRE2 pre-tokenizer chosen by
 * tokenizer.ggml.pre, and SentencePiece BPE with byte fallback ("llama"). Others are refused.
 * A tokenizer is immutable after creation and may be used from any thread.
 */
#ifndef SITS_MODEL_TOKENIZER_H
#define SITS_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"

struct sits_gguf;
struct sits_tokenizer;

/* A growing array of token ids; zero-initialise; free with sits_tokens_fini(). */
struct sits_tokens {
	int32_t *id;
	size_t nr, cap;
};
int sits_tokens_push(struct sits_tokens *t, int32_t id);	/* 0 or -ENOMEM */
void sits_tokens_fini(struct sits_tokens *t);

/**
 * sits_tokenizer_create() - Build from metadata.
 * @g: borrowed until sits_tokenizer_destroy()
 * Return: 0; -EPROTONOSUPPORT for an unknown model or pre-tokenizer (@diag names it and those known);
 * -EBADMSG for inconsistent metadata; -ENOMEM.
 */
int sits_tokenizer_create(const struct sits_gguf *g, struct sits_tokenizer **out, struct sits_diag *diag);
void sits_tokenizer_destroy(struct sits_tokenizer *tok);

#define SITS_TOK_ADD_BOS	(1u << 0)	/* prepend BOS if the model's metadata asks for one */
#define SITS_TOK_SPECIAL	(1u << 1)	/* recognise control tokens in the text; user-defined ones always are */
#define SITS_TOK_ADD_EOS	(1u << 2)	/* append EOS if the metadata asks for one; not before generation */

/**
 * sits_tokenizer_encode() - Append the ids of @text to @out.
 * @text: @len: any bytes; invalid UTF-8 is handled as the model's reference implementation does
 *
 * Without SITS_TOK_SPECIAL no text becomes a control token, however the vocabulary is built.
 * Time grows as n log n with the text, whatever it is.
 *
 * Return: 0; -ENOMEM; -E2BIG for more than 512 MiB; -EIO where the regex engine gave up (never
 * seen; no text is dropped). On failure @out is as before.
 */
int sits_tokenizer_encode(const struct sits_tokenizer *tok, const char *text, size_t len,
			  uint32_t flags, struct sits_tokens *out);

/**
 * sits_tokenizer_piece() - The bytes of one token, as generated text (control tokens are empty).
 * @p: out: valid while the tokenizer lives
 * Return: the length in bytes, >= 0; -EINVAL for an id outside the vocabulary.
 */
int sits_tokenizer_piece(const struct sits_tokenizer *tok, int32_t id, const char **p);

uint32_t sits_tokenizer_vocab(const struct sits_tokenizer *tok);
bool sits_tokenizer_is_eog(const struct sits_tokenizer *tok, int32_t id);	/* ends a turn or the text */
int32_t sits_tokenizer_bos(const struct sits_tokenizer *tok);	/* -1 if none */
/** sits_tokenizer_find() - The id of the token that is exactly this text, or -1. */
int32_t sits_tokenizer_find(const struct sits_tokenizer *tok, const char *text, size_t len);

#endif
