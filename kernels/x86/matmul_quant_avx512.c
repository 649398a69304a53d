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

#include "kernels/x86/matmul_quant.h"
