/* SPDX-License-Identifier: MIT */
/*
 * family.h - what the llama-like architectures share, and the pieces for those that share a part.
 *
 * A decoder layer: RMS norm, attention with rotary positions, residual, RMS norm, gated FFN (one, or a mixture of experts),
 * residual. An architecture says in a struct sits_family where it differs.
 */
#ifndef SITS_MODEL_FAMILY_H
#define SITS_MODEL_FAMILY_H

#include "daemon/model/arch.h"

enum sits_family_biases {
	SITS_BIASES_NONE,
	SITS_BIASES_QKV,	/* each of q, k, v has one */
	SITS_BIASES_ANY,	/* any projection but those of experts may have one */
};

/**
 * struct sits_family - where an architecture differs.
 * @neox: RoPE pairs (i, i + dims/2) in GGUF files too; where 0 the rows of q and k were reordered for pairs (2i, 2i+1)
 * @moe: 0: dense; 1: either, as expert_count says; 2: always a mixture, expert_count is required
 * @renorm: weights of the chosen experts are divided by their sum, where the file does not say
 * @ff_split: where expert_feed_forward_length is absent an expert has feed_forward_length / expert_used_count; else all of it
 * @shared: a shared expert behind a sigmoid gate
 */
struct sits_family {
	int neox;
	enum sits_qk_norm qk_norm;
	enum sits_family_biases biases;
	int moe;
	bool renorm, ff_split, shared;
};

/** sits_family_load() - All of struct sits_model that an architecture fills in, with every key and tensor accounted for. */
int sits_family_load(struct sits_model *m, const struct sits_family *f, struct sits_diag *diag);

/* The pieces, in this order. Each returns 0 or -errno with words. */

/** sits_family_basics() - layers, context, embd, ff, heads, rms_eps; vocab of the tokenizer. */
int sits_family_basics(struct sits_model *m, struct sits_diag *diag);
/** sits_family_sizes() - The basics, and kv_heads, head_dim, v_dim, attn_scale. */
int sits_family_sizes(struct sits_model *m, struct sits_diag *diag);
/** sits_family_rope() - hp.rope and the frequencies; @neox: as in struct sits_family. */
int sits_family_rope(struct sits_model *m, int neox, struct sits_diag *diag);
/** sits_family_route() - Number and size of experts, and the rule: renorm as given where the file does not say. */
int sits_family_route(struct sits_model *m, bool renorm, struct sits_diag *diag);
/** sits_family_ends() - Embedding, output norm and output matrix; allocates the layers. */
int sits_family_ends(struct sits_model *m, struct sits_diag *diag);
/** sits_family_windows() - Sliding windows of the layers, by the two keys. */
int sits_family_windows(struct sits_model *m, struct sits_diag *diag);
/** sits_family_ffn() - Norm and FFN of layer @i: dense, or router and experts by its kind; shared ones where shared_ff > 0. */
int sits_family_ffn(struct sits_model *m, uint32_t i, struct sits_diag *diag);

/* One row of a table of a layer's tensors, "blk.N.NAME". */
struct sits_part {
	const char *name;
	size_t at;		/* offset in struct sits_layer */
	uint64_t K, N;		/* N 0: a vector */
	bool optional;		/* vectors only */
};

#define SITS_PART(field, name, k, n, opt) { name, offsetof(struct sits_layer, field), k, n, opt }

/** sits_family_parts() - Fill in @nr tensors of layer @i. */
int sits_family_parts(struct sits_model *m, uint32_t i, const struct sits_part *parts, size_t nr, struct sits_diag *diag);

/* Keys that the pieces read, and such as can't change an answer; NULL-terminated. */
extern const char *const sits_family_keys[];

#endif
