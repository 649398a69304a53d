// SPDX-License-Identifier: MIT
/*
 * matmul_i8_avx512.c - products of SITS_I8C with AVX-512 VNNI.
 *
 * vpdpbusd wants unsigned weights: 128 is added to them, and taken off by where the sums start.
 */
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/x86.h"

#include "kernels/quant.h"

#define I8_UNSIGNED 1
#define I8_TILE 8
#define I8_CHUNK 32

INLINE vi i8_dot(vi s, vi w, const uint8_t *x)
{
	return _mm512_dpbusd_epi32(s, w, _mm512_set1_epi32((int32_t)sits_ld32(x)));
}

struct i8w {
	__m512i w[8];
};

struct i8x {
	uint8_t x[I8_TILE][SITS_QG];
};

INLINE void i8w_set(struct i8w *w, size_t v, const vi z[8])
{
	UNROLL for (int j = 0; j < 8; j++)
		w->w[j] = z[j];
}

INLINE void i8x_set(struct i8x *x, size_t i, const int8_t *q)
{
	memcpy(x->x[i], q, SITS_QG);
}

INLINE void i8_mac(vi s[I8_TILE][1], const struct i8w *w, const struct i8x *x)
{
	UNROLL for (int j = 0; j < 8; j++) {
		UNROLL for (int i = 0; i < I8_TILE; i++)
			s[i][0] = i8_dot(s[i][0], w->w[j], &x->x[i][4 * j]);
	}
}

#include "kernels/x86/matmul_i8.h"
