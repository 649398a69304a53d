/* SPDX-License-Identifier: MIT */
/*
 * kernels.h - compute operations behind one table per backend.
 *
 * Dimension letters: T tokens (rows of activations), K inputs, N outputs, H query heads,
 * G key/value heads, D head size, C channels, P tokens in a KV page.
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

/* Tensor element types, numbered as in GGUF. */
enum sits_dtype {
	SITS_F32 = 0, SITS_F16 = 1, SITS_Q4_0 = 2, SITS_Q4_1 = 3, SITS_Q5_0 = 6, SITS_Q5_1 = 7,
	SITS_Q8_0 = 8, SITS_Q4_K = 12, SITS_Q5_K = 13, SITS_Q6_K = 14, SITS_BF16 = 30,
};

struct sits_dtype_info {
	const char *name;
	uint32_t block_elems;	/* a row's length is a multiple of it */
	uint32_t block_bytes;
};

/** sits_dtype_info() - Facts of a type, or NULL where it is not one of enum sits_dtype. */
const struct sits_dtype_info *sits_dtype_info(uint32_t type);

/**
 * struct sits_matmul - y[t][n] = sum over k of w[n][k] * x[t][k], for n in [n0, n1).
 * @wtype: enum sits_dtype of @w
 * @w: [N] rows of K elements in GGUF block order, @w_row_bytes apart; any alignment
 * @x: activations prepared by act_prepare() for @wtype, [T], @x_row_bytes apart (64-byte aligned)
 * @y: out, f32, [T] rows @ldy floats apart; only columns [n0, n1) are written
 * @T: @K: @N: @n0: @n1: sizes, in elements. n0 and n1 need no alignment, but multiples of 16 are fastest
 */
struct sits_matmul {
	uint32_t wtype;
	const void *w;
	size_t w_row_bytes;
	const void *x;
	size_t x_row_bytes;
	float *y;
	size_t ldy;
	size_t T, K, N, n0, n1;
};

/*
 * KV pages. A page holds P = SITS_KV_PAGE_TOKENS tokens of one sequence, for every layer: layer l's
 * part starts at page + l * kv_layer_bytes(G, D) and its inner layout is the backend's own.
 */
#define SITS_KV_PAGE_TOKENS 32

/* Rows of one sequence in an attention call. */
struct sits_attn_seq {
	const uint32_t *pages;	/* block table: page numbers, in order */
	size_t row0;		/* first row of q and y that belongs to it */
	size_t nr;		/* rows, >= 1 */
	size_t pos0;		/* position of the first row; row i attends to positions 0 .. pos0 + i */
};

/**
 * struct sits_attn - causal grouped-query attention of one layer over paged KV.
 * @q: [rows][H][D] f32, rope already applied; @y: out, the same shape; may not alias
 * @kv: the pool: page p starts at kv + p * page_bytes; + layer_off is this layer's part
 * @scale: multiplies q.k, usually 1/sqrt(D)
 * @seq: @nr_seq: the sequences whose rows these are
 */
struct sits_attn {
	const float *q;
	float *y;
	const void *kv;
	size_t page_bytes;
	size_t layer_off;
	size_t H, G, D;		/* H a multiple of G; D a multiple of 16, at most 256 */
	float scale;
	const struct sits_attn_seq *seq;
	size_t nr_seq;
};

struct sits_backend {
	const char *name;	/* "ref", "avx2", "avx512": what SITS_FORCE_ISA selects */
	int priority;		/* the highest usable one is the default */
	bool (*usable)(void);

	/* Row of n elements at src to f32. */
	void (*dequant)(uint32_t wtype, const void *src, float *dst, size_t n);

	/* Bytes of one prepared activation row for weights of this type (a multiple of 64). */
	size_t (*act_row_bytes)(uint32_t wtype, size_t K);
	/* x: [T][K] f32, ldx floats apart -> out: [T], act_row_bytes apart. Types with equal
	 * act_class() share one prepared copy. */
	void (*act_prepare)(uint32_t wtype, const float *x, size_t ldx, size_t T, size_t K, void *out);
	uint32_t (*act_class)(uint32_t wtype);
	void (*matmul)(const struct sits_matmul *mm);

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

	size_t (*kv_layer_bytes)(size_t G, size_t D);	/* a multiple of 64 */
	/* Write one token's k and v ([G][D] f32 each) into slot [0, P) of a page's layer part. */
	void (*kv_store)(void *layer, size_t slot, const float *k, const float *v, size_t G, size_t D);
	/* Number of independent tasks of an attention call, and the run of tasks [t0, t1).
	 * scratch: attn_scratch_bytes(a) of the calling thread's own, 64-byte aligned. */
	size_t (*attn_tasks)(const struct sits_attn *a);
	size_t (*attn_scratch_bytes)(const struct sits_attn *a);
	void (*attn)(const struct sits_attn *a, size_t t0, size_t t1, void *scratch);
};

/** sits_backend_get() - A backend by name; NULL or "" picks the best usable, or the one that the
 * environment variable SITS_FORCE_ISA names. Return: NULL where it is unknown or not usable here. */
const struct sits_backend *sits_backend_get(const char *name);

/** sits_backend_at() - The i-th built-in backend, usable or not; NULL past the end. */
const struct sits_backend *sits_backend_at(size_t i);

#ifdef __cplusplus
}
#endif
#endif
