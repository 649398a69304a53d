/* SPDX-License-Identifier: MIT */
/*
 * model.h - a loaded model: hyperparameters, named weights in place, tokenizer, chat template.
 *
 * An architecture is a file (llama.c, ...) that fills this in from the metadata, checking the shape and type
 * of every tensor; the engine's graph runs what is filled in. Nothing here copies weights.
 */
#ifndef SITS_MODEL_H
#define SITS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/chat.h"
#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"
#include "kernels/route.h"

/*
 * A weight matrix [N][K] or a vector [K] (N = 1), in place. A stack has one such matrix for each expert: matrix i
 * lies at data + i * stride (GGUF: one tensor) or at table[i] (safetensors: a tensor for each expert).
 * Matrices may have any type of enum sits_dtype and lie at any address; vectors are F32, aligned to 4 bytes.
 */
struct sits_weight {
	const void *data;	/* NULL: the model has none of it. Of a stack with a table: table[0] */
	uint32_t type;		/* enum sits_dtype */
	uint32_t nr;		/* matrices; 1 but for stacks */
	uint64_t K, N;
	size_t row_bytes;
	size_t stride;		/* bytes from one matrix of a stack to the next; 0 where there is a table */
	const void *const *table;	/* [nr], or NULL; owned by the model (struct sits_model, tables) */
};

/** sits_weight_at() - Matrix @i of a stack. */
static inline const void *sits_weight_at(const struct sits_weight *w, uint32_t i)
{
	return w->table ? w->table[i] : (const uint8_t *)w->data + i * w->stride;
}

enum sits_qk_norm {
	SITS_QK_NORM_NONE,
	SITS_QK_NORM_HEAD,	/* RMS norm of each head, gain [head_dim], before RoPE: qwen3, qwen3moe */
	SITS_QK_NORM_ALL,	/* RMS norm over all heads at once, gain [heads * head_dim], before RoPE: olmoe */
};

/* Rotary positions; sits_rope_plan() (daemon/model/rope.h) makes inv_freq and rope_mscale from it. What llama-3 does to
 * frequencies comes as a tensor of factors. */
enum sits_rope_scaling { SITS_ROPE_PLAIN, SITS_ROPE_LINEAR, SITS_ROPE_YARN };

struct sits_rope {
	uint32_t dims;		/* rotated dimensions of a head, even; the first ones (MLA: a part of their own) */
	int neox;		/* 0: pairs (2i, 2i+1); 1: pairs (i, i + dims/2) */
	float base;
	enum sits_rope_scaling scaling;
	float factor;		/* >= 1 as files have it: positions are divided by it */
	uint32_t orig_context;	/* YaRN: the context before scaling */
	float beta_fast, beta_slow;	/* YaRN: rotations that bound the ramp; 32 and 1 */
	float attn_factor;	/* YaRN: what cos and sin are multiplied by; 0: 0.1 ln(factor) + 1 */
};

/*
 * Sizes and rules. kv_heads, head_dim, v_dim are those of the keys and values as the projections give them; with MLA
 * (kv_rank > 0) each of the heads has a key of nope_dims + rope.dims = head_dim and a value of v_dim, and what is
 * stored for a token is the latent [kv_rank] and one rotated key [rope.dims].
 */
struct sits_hparams {
	uint32_t vocab, layers, embd, context;
	uint32_t ff;		/* of dense layers; 0 where there are none */
	uint32_t heads, kv_heads, head_dim, v_dim;
	uint32_t q_rank, kv_rank, nope_dims;	/* MLA; q_rank 0: q has one matrix. All 0: no MLA */
	float attn_scale;	/* multiplies q.k */
	float rms_eps;
	enum sits_qk_norm qk_norm;
	struct sits_rope rope;

	uint32_t expert_ff;	/* of one expert; the number of experts is route.experts, 0 in a dense model */
	uint32_t shared_ff;	/* of the shared experts together; 0: none */
	struct sits_route_rule route;
};

enum sits_layer_kind { SITS_LAYER_DENSE, SITS_LAYER_MOE };

/* data is NULL where an architecture has no such weight. Weights first, then what is not one (model.c walks them). */
struct sits_layer {
	struct sits_weight attn_norm, wq, wk, wv, wo, ffn_norm;
	struct sits_weight bq, bk, bv, bo;
	struct sits_weight q_norm, k_norm;	/* hp.qk_norm */
	/* MLA: q = wq_b norm(wq_a x) or wq x; [latent, k_rope] = wkv_a x; per head [k_nope, v] = wkv_b norm(latent),
	 * [heads * (nope_dims + v_dim)][kv_rank]. A file that has its two parts apart: stacks of one matrix for each
	 * head, wk_b [kv_rank][nope_dims] (transposed: absorbs into q) and wv_b [v_dim][kv_rank]. */
	struct sits_weight wq_a, q_a_norm, wq_b, wkv_a, kv_a_norm, wkv_b, wk_b, wv_b;
	/* SITS_LAYER_DENSE */
	struct sits_weight w_gate, w_up, w_down, b_gate, b_up, b_down;
	/* SITS_LAYER_MOE: router [experts][embd]; router_bias [experts], added for selection only; stacks of experts;
	 * shared experts as one FFN, and the [1][embd] gate whose sigmoid multiplies it (none: as it is) */
	struct sits_weight router, router_bias, e_gate, e_up, e_down;
	struct sits_weight s_gate, s_up, s_down, s_router;

	enum sits_layer_kind kind;
	uint32_t window;	/* a row at position p attends to max(0, p - window + 1) .. p; 0: to all */
};

struct sits_hf;

struct sits_model {
	struct sits_gguf *gguf;	/* the index of keys and tensors; of a safetensors directory, too */
	struct sits_hf *dir;	/* what owns that of a directory; NULL for a GGUF file */
	bool hf;		/* rows of q and k are in Hugging Face's order, not in that of GGUF files of some architectures */
	struct sits_tokenizer *tok;
	const struct sits_chat_template *chat;	/* NULL: none or unknown; chat_diag says so */
	struct sits_diag chat_diag;
	struct sits_str name, arch;
	struct sits_hparams hp;
	struct sits_weight tok_embd, output_norm, output;	/* output may be tok_embd (tied) */
	struct sits_layer *layer;	/* [layers] */
	float *inv_freq;		/* [rope.dims/2], scaling applied */
	float rope_mscale;		/* cos and sin are multiplied by it; 1 but for YaRN */
	int32_t start_token;		/* sits_model_start_token() */
	const void **tables;		/* one allocation behind all weights' tables, [nr_tables]; NULL: none */
	size_t nr_tables;
};

/** sits_model_open() - From a GGUF image; @data is borrowed until close. Return: 0; -EPROTONOSUPPORT for an
 * architecture, tokenizer or feature not supported (never ignored); -EBADMSG; -ENOMEM. A chat template that is
 * absent or unknown is no failure: chat is NULL then. */
int sits_model_open(const void *data, size_t len, struct sits_model **out, struct sits_diag *diag);

/* One file of a model: the name it has in its directory, and its bytes. */
struct sits_model_file {
	const char *name;
	const void *data;
	size_t len;
};

/**
 * sits_model_open_files() - From a model's files: one GGUF file, or those of a safetensors directory (docs/model-formats.md).
 * @files: [nr], in any order; the names are borrowed until return, the bytes of GGUF and safetensors files until close
 * Return: as sits_model_open().
 */
int sits_model_open_files(const struct sits_model_file *files, size_t nr, struct sits_model **out, struct sits_diag *diag);
void sits_model_close(struct sits_model *m);	/* NULL is allowed */

/** sits_model_start_token() - What stands for an empty prompt: BOS, or where the model has none its end-of-text
 * token, which separates documents in training; -1 where it has neither, and an empty prompt can't be served. */
int32_t sits_model_start_token(const struct sits_model *m);

#endif
