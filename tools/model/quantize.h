/* SPDX-License-Identifier: MIT */
/*
 * quantize.h - a GGUF file from another one: which tensor becomes what, and the work.
 *
 * A plan is made first, whole, so that everything that can be refused is refused before any byte is written.
 */
#ifndef SITS_TOOLS_QUANTIZE_H
#define SITS_TOOLS_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/gguf.h"

struct gguf_out;

#define QUANT_KEEP UINT32_MAX	/* in place of a type: as it is */

/* A rule of the user's: tensors whose name matches @glob get @type, vectors only F32. The last one that matches counts. */
struct quant_rule {
	const char *glob;
	uint32_t type;
};

/**
 * struct quant_opts - what is wanted; zero-initialise.
 * @type: of matrices; QUANT_KEEP: none but those of the rules
 * @out_type: of token_embd and output; QUANT_KEEP allowed
 * @rule: [nr_rules]; borrowed
 * @requantise: quantised tensors may be decoded and encoded again
 */
struct quant_opts {
	uint32_t type, out_type;
	const struct quant_rule *rule;
	uint32_t nr_rules;
	bool requantise;
};

/*
 * Factors by which a tensor's f32 elements are multiplied before they are encoded: element k of row n of matrix e
 * by col[e * col_stride + k] * row[e * row_stride + n]. NULL: none. Borrowed.
 */
struct quant_scale {
	const float *col, *row;
	uint64_t col_stride, row_stride;
};

/* What becomes of one tensor. */
struct quant_tensor {
	const struct sits_gguf_tensor *t;
	uint32_t type;			/* it will have */
	bool copy;			/* byte for byte: same type, no factors. Else if the types are one but for
					 * SITS_PACKED, the same bytes in another order */
	bool fallback;			/* @type is not the one asked for, since rows are not whole blocks of that */
	struct quant_scale scale;
	uint64_t bytes;			/* of its data in the new file */
	const void *const *part;	/* [matrices], where each lies; borrowed. NULL: one after the other at t->data */
	uint64_t head_rows;		/* of a head whose rows come as halves, for rotation by pairs (i, i + half), and are
					 * written as pairs (2i, 2i + 1); the elements of a vector likewise. 0: in their order */
	/* After quant_run(): sums over elements x and what they are decoded to; of those that are not copied. */
	double err2, x2, max_err;
};

struct quant_plan {
	const struct sits_gguf *g;	/* borrowed */
	struct quant_tensor *tensor;	/* [nr], in the file's order */
	uint64_t nr;
};

/** quant_type() - A type by its name in any case, "q8_0"; "keep" is QUANT_KEEP. Return: false where there is none. */
bool quant_type(const char *name, uint32_t *type);

/**
 * quant_plan_create() - Decide.
 * Return: 0; -EINVAL for a type without an encoder, a rule that matches nothing, or a quantised tensor that would have
 * to be encoded again without @opts->requantise; -ENOMEM; all with words.
 */
int quant_plan_create(const struct sits_gguf *g, const struct quant_opts *opts, struct quant_plan *p,
		      struct sits_diag *diag);

/**
 * quant_plan_pack() - The packed order of kernels/pack.h for every quantised matrix, or with @unpack the plain order; all else stays.
 * Return: 0; -EINVAL where nothing would change; -ENOMEM; with words.
 */
int quant_plan_pack(const struct sits_gguf *g, bool unpack, struct quant_plan *p, struct sits_diag *diag);

void quant_plan_destroy(struct quant_plan *p);

/** quant_plan_find() - A tensor of the plan by name, or NULL. */
struct quant_tensor *quant_plan_find(const struct quant_plan *p, const char *name);

/** quant_plan_encode() - It becomes @type. Return: false, and nothing is changed, where its rows do not fit that. */
bool quant_plan_encode(struct quant_tensor *q, uint32_t type);

/**
 * quant_plan_scale() - Multiply a tensor before it is encoded; one that was to be copied is encoded, in its own type, or
 * in F16 where that is quantised and no other was asked for.
 */
void quant_plan_scale(struct quant_tensor *q, const struct quant_scale *s);

/**
 * quant_run() - Write all tensors of the plan into @o, which has none yet, and commit nothing.
 * @threads: 0: one per usable core
 * @progress: called with bytes read; non-zero stops with -ECANCELED; may be NULL
 * Return: 0; -EDOM or -ERANGE for a weight that can't be encoded, with the tensor's name; -ENOSPC; -errno.
 */
int quant_run(struct quant_plan *p, struct gguf_out *o, uint32_t threads,
	      int (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct sits_diag *diag);

#endif
