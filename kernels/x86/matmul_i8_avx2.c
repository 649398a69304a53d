// SPDX-License-Identifier: MIT
/*
 * matmul_i8_avx2.c - products of SITS_I8C with AVX2.
 *
 * Few tokens: weights give their sign to the activations, then vpmaddubsw is exact: 128 * 127 * 2 is below 2^15. Many
 * tokens: products of 16 bits, as in matmul_quant_avx2.c.
 */
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/x86.h"

#include "kernels/quant.h"

#define I8_UNSIGNED 0
#define I8_TILE 4
#define I8_CHUNK 16

INLINE vi i8_dot(vi s, vi w, const uint8_t *x)
{
	vi p = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(_mm256_set1_epi32((int32_t)sits_ld32(x)), w));

	return _mm256_add_epi32(s, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
}

/* Pairs: bytes 0 and 2 of the eight dwords, then bytes 1 and 3. */
struct i8w {
	__m256i w[2][16];
};

struct i8x {
	int32_t x[I8_TILE][16];
};

INLINE vi even_bytes(vi a)
{
	return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
}

INLINE void i8w_set(struct i8w *w, size_t v, const vi z[8])
{
	UNROLL for (int j = 0; j < 8; j++) {
		w->w[v][j] = even_bytes(z[j]);
		w->w[v][8 + j] = _mm256_srai_epi16(z[j], 8);
	}
}

INLINE void i8x_set(struct i8x *x, size_t i, const int8_t *q)
{
	vi a = vi_load(q);

	_mm256_storeu_si256((void *)x->x[i], even_bytes(a));
	_mm256_storeu_si256((void *)(x->x[i] + 8), _mm256_srai_epi16(a, 8));
}

INLINE void i8_mac(vi s[I8_TILE][2], const struct i8w *w, const struct i8x *x)
{
	ROLLED for (int j = 0; j < 16; j++) {	/* unrolled, sums are spilled */
		vi w0 = w->w[0][j], w1 = w->w[1][j];

		UNROLL for (int i = 0; i < I8_TILE; i++) {
			vi xv = vi_set1(x->x[i][j]);

			vi_add_to(s[i][0], _mm256_madd_epi16(w0, xv));
			vi_add_to(s[i][1], _mm256_madd_epi16(w1, xv));
		}
	}
}

#include "kernels/x86/matmul_i8.h"
