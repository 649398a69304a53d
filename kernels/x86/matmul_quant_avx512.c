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
#define ABREAST 4

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

/*
 * n dwords from dword j on, hi * 128 + lo, times sc and the tokens' scales. A sum waits five cycles for itself, and two could begin in each: the
 * sums of all tokens go side by side, as written here. One after the other, they fill the processor's scheduler with what waits.
 */
TEMPLATE void tile_sums(size_t nt, vf acc[TILE][1], const struct wtile *w, const struct xtile *x, int j, int n, int half, vf sc)
{
	vi hi[TILE], lo[TILE];

	UNROLL for (size_t i = 0; i < nt; i++) {
		hi[i] = vi_zero();
		lo[i] = vi_set1(x->off[i][half]);
	}
	UNROLL for (int k = j; k < j + n; k++) {
		UNROLL for (size_t i = 0; i < nt; i++) {
			hi[i] = dot(0, &w->g.w[k], &x->hi[i][4 * k], 1, hi[i]);
			lo[i] = dot(0, &w->g.w[k], &x->lo[i][4 * k], 1, lo[i]);
		}
	}
	UNROLL for (size_t i = 0; i < nt; i++)
		acc[i][0] = v_fma(vi_to_f(vi_add(vi_sll(hi[i], 7), lo[i])), v_mul(sc, v_set1(x->d[i])), acc[i][0]);
}

TEMPLATE void tile_mac(enum tile_kind kind, size_t nt, vf acc[TILE][1], const struct wtile *w, const struct xtile *x)
{
	if (kind == KIND_HALVES) {
		tile_sums(nt, acc, w, x, 0, 4, 0, w->g.sc);
		tile_sums(nt, acc, w, x, 4, 4, 1, w->g.mn);
	} else {
		tile_sums(nt, acc, w, x, 0, 8, 0, w->g.sc);
	}
	if (kind == KIND_MIN) {
		UNROLL for (size_t i = 0; i < nt; i++)
			acc[i][0] = v_fma(w->g.mn, v_set1(x->s[i]), acc[i][0]);
	}
}

#include "kernels/x86/matmul_quant.h"
