/* SPDX-License-Identifier: MIT */
/*
 * matmul_float.h - template: F32, F16 and BF16 weights times f32 activations.
 *
 * A lane is a place in K: each (row, token) pair has one vector of partial sums over K in ascending
 * steps of VL, folded once at the end. Tiles and blocks of rows and tokens only decide what shares a load.
 */
#ifndef SITS_KERNELS_X86_MATMUL_FLOAT_H
#define SITS_KERNELS_X86_MATMUL_FLOAT_H

#define TILE_N 4		/* rows */
#define TILE_T (VL == 16 ? 4 : 2)	/* tokens */
#define BLOCK_BYTES (128 << 10)	/* of activations, a quarter of a small second-level cache */

INLINE vf load_w(uint32_t type, const uint8_t *row, size_t k)
{
	if (type == SITS_F32)
		return v_load((const float *)(row + 4 * k));
	return type == SITS_F16 ? v_load_f16(row + 2 * k) : v_load_bf16(row + 2 * k);
}

INLINE vf load_w_n(uint32_t type, const uint8_t *row, size_t k, size_t n)
{
	if (type == SITS_F32)
		return v_load_n((const float *)(row + 4 * k), n);
	return type == SITS_F16 ? v_load_f16_n(row + 2 * k, n) : v_load_bf16_n(row + 2 * k, n);
}

/* nn rows from n on, nt tokens from t on; both constant. Prepared rows are zero past K. */
TEMPLATE void tile_float(const struct sits_matmul *mm, uint32_t type, size_t n, size_t nn, size_t t, size_t nt)
{
	const uint8_t *w = (const uint8_t *)mm->w + n * mm->w_row_bytes;
	const float *x[TILE_T];
	size_t whole = mm->K / VL * VL;
	vf acc[TILE_N][TILE_T], wv[TILE_N];

	UNROLL for (size_t j = 0; j < nt; j++)
		x[j] = (const void *)((const uint8_t *)mm->x + (mm->x_row ? mm->x_row[t + j] : t + j) * mm->x_row_bytes);
	UNROLL for (size_t i = 0; i < nn; i++)
		UNROLL for (size_t j = 0; j < nt; j++)
			acc[i][j] = v_zero();
	for (size_t k = 0; k < mm->K; k += VL) {
		UNROLL for (size_t i = 0; i < nn; i++) {
			const uint8_t *row = w + i * mm->w_row_bytes;

			wv[i] = k < whole ? load_w(type, row, k) : load_w_n(type, row, k, mm->K - k);
		}
		UNROLL for (size_t j = 0; j < nt; j++) {
			vf xv = v_load(x[j] + k);

			UNROLL for (size_t i = 0; i < nn; i++)
				acc[i][j] = v_fma(wv[i], xv, acc[i][j]);
		}
	}
	UNROLL for (size_t i = 0; i < nn; i++)
		UNROLL for (size_t j = 0; j < nt; j++)
			mm->y[(t + j) * mm->ldy + n + i] = v_hsum(acc[i][j]);
}

/* Tokens [t0, t1). */
TEMPLATE void rows_float(const struct sits_matmul *mm, uint32_t type, size_t n, size_t nn, size_t t0, size_t t1)
{
	size_t t = t0;

	for (; t + TILE_T <= t1; t += TILE_T)
		tile_float(mm, type, n, nn, t, TILE_T);
	for (; t < t1; t++)
		tile_float(mm, type, n, nn, t, 1);
}

/* Tokens go in blocks whose activations stay in the second-level cache for all rows of the call. type is constant. */
TEMPLATE void matmul_float_type(const struct sits_matmul *mm, uint32_t type)
{
	size_t block = BLOCK_BYTES / (mm->K * sizeof(float)) / TILE_T * TILE_T, n, end;

	block = block < 4 * TILE_T ? 4 * TILE_T : block;
	for (size_t t = 0; t < mm->T; t = end) {
		end = mm->T - t < block ? mm->T : t + block;
		for (n = mm->n0; n + TILE_N <= mm->n1; n += TILE_N)
			rows_float(mm, type, n, TILE_N, t, end);
		for (; n < mm->n1; n++)
			rows_float(mm, type, n, 1, t, end);
	}
}

static void matmul_f32(const struct sits_matmul *mm)
{
	matmul_float_type(mm, SITS_F32);
}

static void matmul_f16(const struct sits_matmul *mm)
{
	matmul_float_type(mm, SITS_F16);
}

static void matmul_bf16(const struct sits_matmul *mm)
{
	matmul_float_type(mm, SITS_BF16);
}

void ISA(matmul_float)(const struct sits_matmul *mm)
{
	if (mm->wtype == SITS_F32)
		matmul_f32(mm);
	else if (mm->wtype == SITS_F16)
		matmul_f16(mm);
	else
		matmul_bf16(mm);
}

#endif
