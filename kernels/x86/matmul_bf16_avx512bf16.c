// SPDX-License-Identifier: MIT
/*
 * matmul_bf16_avx512bf16.c - BF16 weights times activations rounded to BF16, with vdpbf16ps.
 *
 * Lossy in the activations (8 bits of mantissa), so no part of the default backend. A lane is a pair of places in K: each
 * (row, token) pair has one vector of sums over K in ascending steps of 32, folded once at the end. The instruction
 * rounds to nearest even and takes subnormal inputs and sums for zero, whatever MXCSR says (Intel SDM, VDPBF16PS).
 */
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/x86.h"

#define STEP 32			/* elements of K in one instruction */
#define TILE_N 8		/* rows: they share the rounding of activations */
#define TILE_T 2		/* tokens */
#define BLOCK_BYTES (128 << 10)	/* of activations, a quarter of a small second-level cache */

/* n elements at p, at most STEP, the rest zero. */
INLINE __m512bh load_w(const uint8_t *p, size_t n)
{
	return (__m512bh)_mm512_maskz_loadu_epi16((__mmask32)_bzhi_u32(0xffffffff, (unsigned int)n), p);
}

INLINE __m512bh load_x(const float *p, size_t n)
{
	size_t first = n < VL ? n : VL;

	return _mm512_cvtne2ps_pbh(v_load_n(p + first, n - first), v_load_n(p, first));
}

/* nn rows from n on, nt tokens from t on; both constant. */
TEMPLATE void tile(const struct sits_matmul *mm, size_t n, size_t nn, size_t t, size_t nt)
{
	const uint8_t *w = (const uint8_t *)mm->w + n * mm->w_row_bytes;
	vf acc[TILE_N][TILE_T];
	const float *x[TILE_T];

	UNROLL for (size_t j = 0; j < nt; j++) {
		x[j] = (const void *)((const uint8_t *)mm->x + (mm->x_row ? mm->x_row[t + j] : t + j) * mm->x_row_bytes);
		UNROLL for (size_t i = 0; i < nn; i++)
			acc[i][j] = v_zero();
	}
	for (size_t k = 0; k < mm->K; k += STEP) {
		size_t left = mm->K - k < STEP ? mm->K - k : STEP;
		__m512bh xv[TILE_T];

		UNROLL for (size_t j = 0; j < nt; j++)
			xv[j] = load_x(x[j] + k, left);
		UNROLL for (size_t i = 0; i < nn; i++) {
			__m512bh wv = load_w(w + i * mm->w_row_bytes + 2 * k, left);

			UNROLL for (size_t j = 0; j < nt; j++)
				acc[i][j] = _mm512_dpbf16_ps(acc[i][j], wv, xv[j]);
		}
	}
	UNROLL for (size_t i = 0; i < nn; i++)
		UNROLL for (size_t j = 0; j < nt; j++)
			mm->y[(t + j) * mm->ldy + n + i] = v_hsum(acc[i][j]);
}

/* Tokens [t0, t1). */
TEMPLATE void rows(const struct sits_matmul *mm, size_t n, size_t nn, size_t t0, size_t t1)
{
	size_t t = t0;

	for (; t + TILE_T <= t1; t += TILE_T)
		tile(mm, n, nn, t, TILE_T);
	if (t < t1)
		tile(mm, n, nn, t, 1);
}

void sits_avx512bf16_matmul(const struct sits_matmul *mm)
{
	size_t block = BLOCK_BYTES / (mm->K * sizeof(float)) / TILE_T * TILE_T, n, end;

	block = block < 4 * TILE_T ? 4 * TILE_T : block;
	for (size_t t = 0; t < mm->T; t = end) {
		end = mm->T - t < block ? mm->T : t + block;
		for (n = mm->n0; n + TILE_N <= mm->n1; n += TILE_N)
			rows(mm, n, TILE_N, t, end);
		for (; n < mm->n1; n++)
			rows(mm, n, 1, t, end);
	}
}
