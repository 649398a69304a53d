/* SPDX-License-Identifier: MIT */
/*
 * model.h - a loaded model: hyperparameters, named weights in place, tokenizer, chat template.
 *
 * An architecture is a file (llama.c, ...) that fills this in from the metadata, checking the shape and type
 * of every tensor; the engine's graph runs what is filled in. Nothing here copies weights.
 */
#ifndef SITS_MODEL_H
#define SITS_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/chat.h"
#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"

/* A weight matrix [N][K] or a vector [K] (N = 1), in place. */
struct sits_weight {
	const void *data;
	uint32_t type;		/* enum sits_dtype */
	uint64_t K, N;
	size_t row_bytes;
};

struct sits_hparams {
	uint32_t vocab, layers, embd, ff, heads, kv_heads, head_dim, rope_dims, context;
	float rms_eps, rope_base;
	int rope_neox;
};

struct sits_layer {
	struct sits_weight attn_norm, wq, wk, wv, wo, ffn_norm, w_gate, w_up, w_down;
	struct sits_weight bq, bk, bv, bo, b_gate, b_up, b_down;	/* data NULL where the model has no biases */
};

struct sits_model {
	struct sits_gguf *gguf;
	struct sits_tokenizer *tok;
	const struct sits_chat_template *chat;	/* NULL: none or unknown; chat_diag says so */
	struct sits_diag chat_diag;
	struct sits_str name, arch;
	struct sits_hparams hp;
	struct sits_weight tok_embd, output_norm, output;	/* output may be tok_embd (tied) */
	struct sits_layer *layer;	/* [layers] */
	float *inv_freq;		/* [rope_dims/2], with the model's scaling factors applied */
};

/** sits_model_open() - From a GGUF image; @data is borrowed until close. Return: 0; -EPROTONOSUPPORT for an
 * architecture, tokenizer or feature not supported (never ignored); -EBADMSG; -ENOMEM. A chat template that is
 * absent or unknown is no failure: chat is NULL then. */
int sits_model_open(const void *data, size_t len, struct sits_model **out, struct sits_diag *diag);
void sits_model_close(struct sits_model *m);	/* NULL is allowed */

/** sits_model_start_token() - What stands for an empty prompt: BOS, or where the model has none its end-of-text
 * token, which separates documents in training; -1 where it has neither, and an empty prompt can't be served. */
int32_t sits_model_start_token(const struct sits_model *m);

#endif
