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

/* Many tokens: the same products, from a panel. */
#define TILE 8
#define CHUNK 16		/* groups; a multiple of UNIT_MAX */
#define MANY 8
#define NARROW 0
#define STRIPS_AHEAD 0
#define DIRECT 8

#include "kernels/x86/unpack.h"

struct wtile {
	struct wgroup g;
};

struct xtile {
	int8_t hi[8][SITS_QG], lo[8][SITS_QG];
	float d[8], s[8];
	int32_t off[8][2];	/* what the sums of each half start from; of all but Q6_K, of the whole in [0] */
};

INLINE void wtile_set(uint32_t type, struct wtile *w, size_t v, const struct wgroup *u)
{
	w->g = *u;
}

INLINE void xtile_set(uint32_t type, struct xtile *x, size_t i, const struct sits_q16 *q)
{
	uint32_t base = BASE(type);

	_mm256_storeu_si256((void *)x->hi[i], _mm256_loadu_si256((const void *)q->hi));
	_mm256_storeu_si256((void *)x->lo[i], _mm256_loadu_si256((const void *)q->lo));
	x->d[i] = q->d;
	x->s[i] = q->s;
	x->off[i][0] = base == SITS_Q4_0 ? q->off8 : base == SITS_Q5_0 ? q->off16 : base == SITS_Q8_0 ? q->off128 :
		       base == SITS_Q6_K ? q->off32[0] : 0;
	x->off[i][1] = q->off32[1];
}

/* n dwords from dword j on: hi * 128 + lo. */
INLINE vi tile_dot(const struct wtile *w, const struct xtile *x, size_t i, int j, int n, int32_t off)
{
	vi s = vi_sll(dot(0, w->g.w + j, x->hi[i] + 4 * j, n, vi_zero()), 7);

	return dot(0, w->g.w + j, x->lo[i] + 4 * j, n, vi_add(s, vi_set1(off)));
}

TEMPLATE void tile_mac(enum tile_kind kind, size_t nt, vf acc[TILE][1], const struct wtile *w, const struct xtile *x)
{
	UNROLL for (size_t i = 0; i < nt; i++) {
		vf d = v_set1(x->d[i]);
		vf a = acc[i][0];

		if (kind == KIND_HALVES) {
			a = v_fma(vi_to_f(tile_dot(w, x, i, 0, 4, x->off[i][0])), v_mul(w->g.sc, d), a);
			a = v_fma(vi_to_f(tile_dot(w, x, i, 4, 4, x->off[i][1])), v_mul(w->g.mn, d), a);
		} else {
			a = v_fma(vi_to_f(tile_dot(w, x, i, 0, 8, x->off[i][0])), v_mul(w->g.sc, d), a);
		}
		if (kind == KIND_MIN)
			a = v_fma(w->g.mn, v_set1(x->s[i]), a);
		acc[i][0] = a;
	}
}

#include "kernels/x86/matmul_quant.h"
