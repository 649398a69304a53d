// SPDX-License-Identifier: MIT
/*
 * matmul_quant_avx512.c - quantised matrix products with AVX-512 VNNI.
 *
 * vpdpbusd adds four products of unsigned and signed bytes to each lane without saturation.
 */
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/x86.h"

#define WFLIP_Q8 -128		/* s8 weights become unsigned with an offset of 128 */

/* s + the products of n dwords of weights and activations. */
INLINE vi dot(uint32_t type, const vi *w, const int8_t *x, int n, vi s)
{
	UNROLL for (int j = 0; j < n; j++) {
		int32_t v;

		memcpy(&v, x + 4 * j, sizeof(v));
		s = _mm512_dpbusd_epi32(s, w[j], _mm512_set1_epi32(v));
	}
	return s;
}

/*
 * Many tokens: six and 32 rows. vpdpwssd has half as many products as vpdpbusd, but activations of 16 bits are two bytes there: two sums a token,
 * to be shifted and added. A sum waits five cycles for itself, and two products could begin in each.
 */
#define TILE 6
#define TILES(X) X(6) X(4) X(2)
#define TILE_LOOP UNROLL
#define STRIPS 2
#define CHUNK 8			/* groups; a multiple of UNIT_MAX */
#define PANEL 128
#define MANY 32
#define STRIPS_AHEAD 0
#define DIRECT 8
#define ABREAST 4

INLINE size_t tile_size(size_t left)
{
	return left > 8 || left == 5 || left == 6 ? 6 : left > 2 ? 4 : 2;
}

INLINE vi v16_set1(int16_t n) { return _mm512_set1_epi16(n); }
INLINE vi v16_sub(vi a, vi b) { return _mm512_sub_epi16(a, b); }
INLINE vi v16_sll(vi a, int n) { return _mm512_slli_epi16(a, n); }
INLINE vi v16_srl(vi a, int n) { return _mm512_srli_epi16(a, n); }
INLINE vi v16_sra(vi a, int n) { return _mm512_srai_epi16(a, n); }
INLINE vi v16_mac(vi s, vi w, vi x) { return _mm512_dpwssd_epi32(s, w, x); }

#include "kernels/x86/matmul_quant.h"
