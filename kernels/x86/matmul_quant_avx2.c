// SPDX-License-Identifier: MIT
/*
 * matmul_quant_avx2.c - quantised matrix products with AVX2.
 *
 * vpmaddubsw adds two products of unsigned and signed bytes into 16 bits with saturation, so that
 * only as many may be added before widening as provably fit: 127 * 2 * (15, 31, 63) * (8, 4, 2) is
 * below 2^15 for weights of 4, 5, 6 bits. Signed 8-bit weights give their sign to the activation;
 * then 128 * 127 * 2 fits once.
 */
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/x86.h"

#define WFLIP_Q8 0		/* s8 weights stay as they are */

#include "kernels/quant.h"

INLINE int products_in_16_bits(uint32_t type)
{
	switch (type) {
	case SITS_Q8_0:
		return 1;
	case SITS_Q6_K:
		return 2;
	case SITS_Q5_0:
	case SITS_Q5_1:
	case SITS_Q5_K:
		return 4;
	default:
		return 8;
	}
}

INLINE vi products(uint32_t type, vi w, const int8_t *x)
{
	int32_t v;

	memcpy(&v, x, sizeof(v));
	if (type == SITS_Q8_0)
		return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(_mm256_set1_epi32(v), w));
	return _mm256_maddubs_epi16(w, _mm256_set1_epi32(v));
}

/* s + the products of n dwords of weights and activations. */
INLINE vi dot(uint32_t type, const vi *w, const int8_t *x, int n, vi s)
{
	int run = products_in_16_bits(type);

	run = run < n ? run : n;
	UNROLL for (int j = 0; j < n; j += run) {
		vi p = products(type, w[j], x + 4 * j);

		UNROLL for (int i = 1; i < run; i++)
			p = _mm256_add_epi16(p, products(type, w[j + i], x + 4 * (j + i)));
		s = _mm256_add_epi32(s, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
	}
	return s;
}

/* Many tokens: four and 16 rows. */
#define TILE 4
#define TILES(X) X(4) X(3) X(2) X(1)
#define TILE_LOOP ROLLED
#define STRIPS 1
#define CHUNK 16		/* groups; a multiple of UNIT_MAX */
#define PANEL 64
#define MANY 4
#define STRIPS_AHEAD 1
#define DIRECT 4

INLINE size_t tile_size(size_t left)
{
	return left < TILE ? left : TILE;
}

INLINE vi v16_set1(int16_t n) { return _mm256_set1_epi16(n); }
INLINE vi v16_sub(vi a, vi b) { return _mm256_sub_epi16(a, b); }
INLINE vi v16_sll(vi a, int n) { return _mm256_slli_epi16(a, n); }
INLINE vi v16_srl(vi a, int n) { return _mm256_srli_epi16(a, n); }
INLINE vi v16_sra(vi a, int n) { return _mm256_srai_epi16(a, n); }
INLINE vi v16_mac(vi s, vi w, vi x) { return _mm256_add_epi32(s, _mm256_madd_epi16(w, x)); }

#include "kernels/x86/matmul_quant.h"
