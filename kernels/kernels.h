/* SPDX-License-Identifier: MIT */
/*
 * kernels.h - compute operations behind one table per backend.
 *
 * Dimension letters: T tokens (rows of activations), K inputs, N outputs, H query heads,
 * G key/value heads, D head size (Dk of keys, Dv of values), C channels, P tokens in a KV page.
 *
 * Batch invariance: within one backend, what an operation writes for a token depends only on
 * that token's own inputs - bit for bit - never on T, on the token's place among the T, on n0/n1
 * or task ranges, or on other tokens. The greedy output of a request therefore does not depend on
 * who shares its batch. A variant that breaks this is wrong, however fast.
 *
 * Operations are pure: no allocation, no threads, no state. The caller splits work over threads by
 * ranges. Floats: IEEE single, no flags are changed, NaN and Inf pass through.
 */
#ifndef SITS_KERNELS_H
#define SITS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Tensor element types, numbered as in GGUF. Two kinds are no types of GGUF, and numbered far from its own:
 *
 *	SITS_I8C	a row is | f32 scale | s8 q[K] |, w = scale * q, K a multiple of 32. Meets activations of 8 bits
 *			with one scale for each token (kernels/quant.h): lossy, for files made so on purpose
 *	SITS_PACKED | t	the bytes of a quantised type t in another order: strips of SITS_PACK_ROWS rows with their
 *			dwords interleaved (kernels/pack.h), so that vector code loads them in place. Same results
 */
enum sits_dtype {
	SITS_F32 = 0, SITS_F16 = 1, SITS_Q4_0 = 2, SITS_Q4_1 = 3, SITS_Q5_0 = 6, SITS_Q5_1 = 7,
	SITS_Q8_0 = 8, SITS_Q4_K = 12, SITS_Q5_K = 13, SITS_Q6_K = 14, SITS_BF16 = 30,
	SITS_I8C = 0x5300, SITS_PACKED = 0x8000,
};

#define SITS_PACK_ROWS 16	/* rows in a strip of a packed type */

/* Longest row of SITS_I8C: K * 127 * 128 stays below 2^31. */
#define SITS_I8C_MAX_K 131072

struct sits_dtype_info {
	const char *name;
	uint32_t block_elems;	/* a row's length is a multiple of it */
	uint32_t block_bytes;	/* not the whole of a row of SITS_I8C and of packed types: sits_dtype_row_bytes() */
};

/** sits_dtype_info() - Facts of a type, or NULL where it is not one of enum sits_dtype or a packed one. */
const struct sits_dtype_info *sits_dtype_info(uint32_t type);

/** sits_dtype_row_bytes() - Bytes of a row of K elements, or 0 where the type is unknown or has no such row (K is 0, no
 * multiple of the block, or too large). Of a packed type: a strip's bytes over SITS_PACK_ROWS. */
uint64_t sits_dtype_row_bytes(uint32_t type, uint64_t K);

/** sits_dtype_matrix_bytes() - Bytes of N rows of K elements. Packed types have whole strips: N is rounded up to
 * SITS_PACK_ROWS. Return: 0 where sits_dtype_row_bytes() is, or N is 0, or the product overflows. */
uint64_t sits_dtype_matrix_bytes(uint32_t type, uint64_t K, uint64_t N);

/** sits_dtype_row() - Row n of the matrix at @w, as dequant() takes it; @row_bytes of sits_dtype_row_bytes(). A row of a
 * packed type is not contiguous, so only dequant() can read it. */
const void *sits_dtype_row(uint32_t type, const void *w, size_t row_bytes, size_t n);

/**
 * struct sits_matmul - y[t][n] = sum over k of w[n][k] * x[t][k], for n in [n0, n1).
 * @wtype: enum sits_dtype of @w
 * @w: [N] rows of K elements in GGUF block order, @w_row_bytes apart; any alignment. Packed types: strips, SITS_PACK_ROWS *
 *	@w_row_bytes apart, the last one whole too; fastest at a multiple of 64
 * @x: activations prepared by act_prepare() for @wtype, @x_row_bytes apart (64-byte aligned)
 * @x_row: [T] which row of @x token t reads, borrowed; NULL: row t. Rows may be read more than once
 * @y: out, f32, [T] rows @ldy floats apart; only columns [n0, n1) are written
 * @T: @K: @N: @n0: @n1: sizes, in elements; K >= 1, a multiple of the type's block; T = 0 and n0 = n1 are allowed.
 *	n0 and n1 need no alignment, but multiples of 16 are fastest
 */
struct sits_matmul {
	uint32_t wtype;
	const void *w;
	size_t w_row_bytes;
	const void *x;
	size_t x_row_bytes;
	const uint32_t *x_row;
	float *y;
	size_t ldy;
	size_t T, K, N, n0, n1;
};

/* One expert's part of a grouped product: tokens [t0, t0 + nr) of the call meet its weights. */
struct sits_matmul_group {
	const void *w;		/* [N] rows, as in struct sits_matmul */
	size_t t0, nr;		/* nr = 0: nothing is read or written */
};

/*
 * KV pages. A page holds P = SITS_KV_PAGE_TOKENS tokens of one sequence, for every layer: layer l's
 * part starts at an offset of its own (with equal layers, l * kv_layer_bytes(shape)) and its inner layout
 * is the backend's own.
 */
#define SITS_KV_PAGE_TOKENS 32

/*
 * In a page's part of a layer each key/value head has a cell: its keys and values, and their scales. All cells of a
 * layer are alike, so a head's tokens may lie in any of them. A block table of one head (struct sits_attn_seq) names
 * page and cell as
 *
 *	page * G + cell
 *
 * so page * G + g for head g is where kv_store() writes.
 */

/* In a block table: no page here. Nobody attends to its positions. */
#define SITS_KV_ABSENT UINT32_MAX

/* How keys and values are kept. */
enum sits_kv_kind {
	SITS_KV_F16 = 0,	/* rounded to nearest even */
	SITS_KV_I8 = 1,		/* lossy: x = s * i, i in -127 .. 127, one f32 s for each token's key and value of a head */
	SITS_KV_F32 = 2,	/* as they are */
};

/**
 * struct sits_kv_shape - keys and values of one layer.
 * @kind: enum sits_kv_kind
 * @v_in_k: values are the first Dv elements of keys and not stored themselves (MLA: G = 1,
 *	Dk = kv_lora_rank + rope dims, Dv = kv_lora_rank)
 * @G: heads, >= 1
 * @Dk: @Dv: sizes of a key and a value, multiples of 16, at most 1024 (SITS_KV_F32: any); Dv <= Dk where v_in_k
 */
struct sits_kv_shape {
	uint32_t kind;
	bool v_in_k;
	size_t G, Dk, Dv;
};

/* Rows of one sequence in an attention call. */
struct sits_attn_seq {
	const uint32_t *pages;	/* block table: page numbers in order (cells, where heads have their own), or SITS_KV_ABSENT */
	size_t row0;		/* first row of q and y that belongs to it */
	size_t nr;		/* rows, >= 1 */
	size_t pos0;		/* position of the first row; row i is at pos0 + i */
	size_t head_stride;	/* 0: all heads share pages; else head g's block table, of cells, is pages + g * head_stride */
};

/**
 * struct sits_attn_dropout - which weights of the softmax are dropped, which is what training wants.
 * @key: @call: @stream: the weight at position j of the row at position i, of query head h of sequence number s of
 *	the call, has word j % 4 of Philox4x32-10 (kernels/philox.h) of counter { j / 4, i, stream + s * H + h, call }
 * @below: a weight is dropped where its word is less
 * @scale: multiplies what is kept; it is not part of the softmax's sum
 */
struct sits_attn_dropout {
	uint32_t key[2], call, stream;
	uint64_t below;
	float scale;
};

/**
 * struct sits_attn - causal grouped-query attention of one layer over paged KV.
 * @q: [rows][H][Dk] f32, rope already applied; @y: out, [rows][H][Dv]; may not alias
 * @kv: the pool: page p starts at kv + p * page_bytes; + layer_off is this layer's part
 * @H: query heads, a multiple of shape.G; H / G consecutive ones share a key/value head
 * @scale: multiplies q.k, usually 1/sqrt(Dk)
 * @window: 0, or how many positions a row sees, its own included
 * @entropy: out, [rows][H], of each softmax in nats; may be NULL
 * @dropout: NULL: none
 * @work: attn_work_bytes(a) for all tasks of the call together, 64-byte aligned, zero before its first use; each
 *	call leaves ready for the next one what it needs to be. May be NULL: then a few rows over a long context are
 *	fewer tasks. No bit of the result depends on it
 * @seq: @nr_seq: the sequences whose rows these are
 *
 * The row at position p attends to positions max(0, p - window + 1) .. p (window 0: 0 .. p), save those
 * in absent pages. Where that leaves none, y and entropy are 0. Pages that no row sees are not touched, and
 * their table entries need not be valid.
 */
struct sits_attn {
	const float *q;
	float *y;
	const void *kv;
	size_t page_bytes;
	size_t layer_off;
	size_t H;
	struct sits_kv_shape shape;
	float scale;
	size_t window;
	float *entropy;
	const struct sits_attn_dropout *dropout;
	void *work;
	const struct sits_attn_seq *seq;
	size_t nr_seq;
};

/**
 * struct sits_rope_store - one token's q and k: norm, rotation, and k and v into its page.
 * @q: [H][shape.Dk], @k: [shape.G][shape.Dk], in place; @v: [shape.G][shape.Dv]
 * @q_norm: @k_norm: gains of an RMS norm before the rotation, or NULL: [Dk] of each head by itself; where norm_all,
 *	of all heads as one vector, [H * Dk] and [G * Dk]
 * @pos: @inv_freq: @R: @neox: as in rope(); @q_scale: the rotated part of q is multiplied by it then (1: as it is)
 * @layer: @slot: as in kv_store()
 */
struct sits_rope_store {
	float *q, *k;
	const float *v;
	size_t H;
	const struct sits_kv_shape *shape;
	const float *q_norm, *k_norm;
	bool norm_all;
	float eps;
	int32_t pos;
	const float *inv_freq;
	size_t R;
	int neox;
	float q_scale;
	void *layer;
	size_t slot;
};

struct sits_backend {
	const char *name;	/* "ref", "avx2", "avx512": what SITS_FORCE_ISA selects */
	int priority;		/* the highest usable one is the default */
	bool (*usable)(void);

	/* Row of n elements at src (packed types: sits_dtype_row()) to f32. */
	void (*dequant)(uint32_t wtype, const void *src, float *dst, size_t n);

	/* Bytes of one prepared activation row for weights of this type (a multiple of 64). */
	size_t (*act_row_bytes)(uint32_t wtype, size_t K);
	/* x: [T][K] f32, ldx floats apart -> out: [T], act_row_bytes apart. Types with equal
	 * act_class() share one prepared copy. */
	void (*act_prepare)(uint32_t wtype, const float *x, size_t ldx, size_t T, size_t K, void *out);
	uint32_t (*act_class)(uint32_t wtype);
	void (*matmul)(const struct sits_matmul *mm);
	/* Grouped product of a mixture of experts: for each group, tokens [t0, t0 + nr) of mm times the group's
	 * own weights; mm->w and mm->T are not read. With tokens sorted by expert and x_row naming where each
	 * one's activations lie, nothing is gathered. Same bits as matmul() of each token alone. */
	void (*matmul_grouped)(const struct sits_matmul *mm, const struct sits_matmul_group *group, size_t nr_groups);

	/* y[t][c] = x[t][c] * w[c] / sqrt(mean over c of x[t]^2 + eps); y may be x. */
	void (*rmsnorm)(float *y, const float *x, const float *w, size_t T, size_t C, float eps);
	/* In place on x: [T][H][D], ld floats between tokens; rotates the first R of each head's D.
	 * pos: [T]; inv_freq: [R/2]. neox = 0 pairs (2i, 2i+1), 1 pairs (i, i + R/2). */
	void (*rope)(float *x, size_t ld, const int32_t *pos, const float *inv_freq, size_t T, size_t H,
		     size_t D, size_t R, int neox);
	/* y[i] = silu(a[i]) * b[i]; y may be a or b. */
	void (*silu_mul)(float *y, const float *a, const float *b, size_t n);
	/* y[i] += x[i]. */
	void (*add)(float *y, const float *x, size_t n);
	/* y[i] = fma(a, x[i], y[i]), one rounding: the same bits on every backend. */
	void (*add_scaled)(float *y, const float *x, float a, size_t n);

	/*
	 * Fused: each is bit for bit what the operations that it names do one after the other, in fewer passes.
	 */
	/* x[t] += r[t] (r may be NULL); y = rmsnorm(x); out = act_prepare(y). x, r, y: [T][C]; y may be r. */
	void (*add_rmsnorm_prepare)(uint32_t wtype, float *x, const float *r, const float *w, float *y, size_t T, size_t C,
				    float eps, void *out);
	/* y = silu_mul(a, b); out = act_prepare(y). [T][K]; y may be a or b. */
	void (*silu_mul_prepare)(uint32_t wtype, float *y, const float *a, const float *b, size_t T, size_t K, void *out);
	/* rmsnorm of q and k where asked for, rope of both, kv_store. */
	void (*rope_store)(const struct sits_rope_store *rs);

	/* y = rmsnorm of the softmax of x, [T][C]: with p = softmax(x[t]), y[t][c] = p[c] * w[c] / sqrt(mean of p^2 + eps).
	 * w may be NULL: ones. y may be x. A row with NaN or +Inf is NaN, -Inf counts 0. */
	void (*softmax_rmsnorm)(float *y, const float *x, const float *w, size_t T, size_t C, float eps);
	/* The k largest of n, the largest first, of equals the one with the lower index; NaN is nowhere among them.
	 * id: out, [k]. n < 2^32. Return: how many there are, k but for want of numbers. */
	size_t (*topk)(const float *x, size_t n, size_t k, uint32_t *id);

	size_t (*kv_layer_bytes)(const struct sits_kv_shape *s);	/* a multiple of 64 */
	/* Write one token's k ([G][Dk] f32) and v ([G][Dv]; not looked at where v_in_k) into slot [0, P) of a
	 * page's layer part. */
	void (*kv_store)(const struct sits_kv_shape *s, void *layer, size_t slot, const float *k, const float *v);
	/* All tokens of cell [0, G) of a page's layer part into a cell of another page, or another cell of the same. */
	void (*kv_copy)(const struct sits_kv_shape *s, void *to, size_t to_cell, const void *from, size_t from_cell);
	/* Number of independent tasks of an attention call, and the run of tasks [t0, t1), each task once.
	 * scratch: attn_scratch_bytes(a) of the calling thread's own, 64-byte aligned. */
	size_t (*attn_tasks)(const struct sits_attn *a);
	size_t (*attn_scratch_bytes)(const struct sits_attn *a);
	size_t (*attn_work_bytes)(const struct sits_attn *a);	/* may be 0 */
	void (*attn)(const struct sits_attn *a, size_t t0, size_t t1, void *scratch);
};

/** sits_backend_get() - A backend by name; NULL or "" picks the best usable, or the one that the
 * environment variable SITS_FORCE_ISA names. Return: NULL where it is unknown or not usable here. */
const struct sits_backend *sits_backend_get(const char *name);

/** sits_backend_at() - The i-th built-in backend, usable or not; NULL past the end. */
const struct sits_backend *sits_backend_at(size_t i);

/** sits_backend_exists() - Is @name one of them? */
bool sits_backend_exists(const char *name);
/** sits_backend_names() - All of their names, for a message. @buf: @size bytes, > 0. Return: @buf. */
const char *sits_backend_names(char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
