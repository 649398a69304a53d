// SPDX-License-Identifier: MIT
/*
 * gemv_quant_avx512.c - quantised products of one token with VNNI on 256-bit vectors.
 *
 * One token is bounded by memory and by the turning of rows into lanes, not by multiplication. Zen 4
 * inserts, shifts and shuffles 256 bits twice as fast as 512, and strips of 8 rows are better
 * foreseen by the prefetchers than strips of 16. The bits are the same as those of the 512-bit
 * code: a lane's sum does not depend on the number of lanes.
 */
#define ISA(name) sits_avx512_one_##name
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/x86.h"

#define ONE_TOKEN
#define WFLIP_Q8 -128		/* s8 weights become unsigned with an offset of 128 */

/* s + the products of n dwords of weights and activations. */
INLINE vi dot(uint32_t type, const vi *w, const int8_t *x, int n, vi s)
{
	UNROLL for (int j = 0; j < n; j++) {
		int32_t v;

		memcpy(&v, x + 4 * j, sizeof(v));
		s = _mm256_dpbusd_epi32(s, w[j], _mm256_set1_epi32(v));
	}
	return s;
}

#include "kernels/x86/matmul_quant.h"
