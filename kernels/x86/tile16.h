/* SPDX-License-Identifier: MIT */
/*
 * tile16.h - template: a tile of a quantised product of many tokens, by products of 16 bits.
 *
 * Bytes of weights become 16 bits with their offset taken off at once, and an activation one number of 16 bits: an instruction
 * multiplies pairs of them and adds each pair to a lane's sum, exactly, so that all types cost the same. Bytes 0 and 2 of a dword
 * are one pair, 1 and 3 the other: no shuffle makes them. The sums of TILE tokens and VECS vectors of rows stay in registers, side by side
 * as each waits for its last product; a load of weights serves all tokens, a load of activations all vectors. The including file supplies
 * TILE, VECS (two), TILE_LOOP (UNROLL, or ROLLED where the compiler spills the sums when all of it is unrolled), WFLIP_Q8, and
 *
 *	v16_set1(n), v16_sub(a, b), v16_sll(a, n), v16_srl(a, n), v16_sra(a, n)	of 16-bit lanes
 *	v16_mac(s, w, x)							s + the products of pairs
 */
#ifndef SITS_KERNELS_X86_TILE16_H
#define SITS_KERNELS_X86_TILE16_H

#include "kernels/x86/unpack.h"

/* A group of a tile's weights. */
struct wtile {
	vi w[VECS][16];		/* pairs (0, 2) of dwords 0 .. 7, then pairs (1, 3) */
	vf sc[VECS], mn[VECS];
};

/* A group of a token. */
struct xtile {
	int32_t x[16];		/* pairs in the same order */
	float d, s;
};

/* Vector v of w from u. */
INLINE void wtile_set(uint32_t type, struct wtile *w, size_t v, const struct wgroup *u)
{
	const uint32_t base = BASE(type);
	vi off = v16_set1(base == SITS_Q4_0 ? 8 : base == SITS_Q5_0 ? 16 : base == SITS_Q6_K ? 32 : base == SITS_Q8_0 ? -WFLIP_Q8 : 0);

	UNROLL for (int j = 0; j < 8; j++) {
		if (base == SITS_Q8_0 && WFLIP_Q8 == 0) {
			w->w[v][j] = v16_sra(v16_sll(u->w[j], 8), 8);
			w->w[v][8 + j] = v16_sra(u->w[j], 8);
		} else {
			w->w[v][j] = v16_sub(vi_and(u->w[j], v16_set1(255)), off);
			w->w[v][8 + j] = v16_sub(v16_srl(u->w[j], 8), off);
		}
	}
	w->sc[v] = u->sc;
	w->mn[v] = u->mn;
}

INLINE void xtile_set(struct xtile *x, const struct sits_q16 *q)
{
	__m256i hi = _mm256_loadu_si256((const void *)q->hi), lo = _mm256_loadu_si256((const void *)q->lo);
	__m256i even = _mm256_srai_epi16(_mm256_slli_epi16(lo, 8), 8), odd = _mm256_srai_epi16(lo, 8);

	/* hi * 128: its byte moved to the top of 16 bits, and down by one with its sign. */
	even = _mm256_add_epi16(even, _mm256_srai_epi16(_mm256_slli_epi16(hi, 8), 1));
	odd = _mm256_add_epi16(odd, _mm256_slli_epi16(_mm256_srai_epi16(hi, 8), 7));
	_mm256_storeu_si256((void *)x->x, even);
	_mm256_storeu_si256((void *)(x->x + 8), odd);
	x->d = q->d;
	x->s = q->s;
}

/* Dwords [j0, j1) of both kinds of pairs, with scale sc and the tokens' own. */
TEMPLATE void tile_sums(size_t nt, vf acc[TILE][VECS], const struct wtile *w, const struct xtile *x, int j0, int j1, const vf sc[VECS])
{
	vi s[TILE][VECS];

	UNROLL for (size_t i = 0; i < nt; i++)
		s[i][0] = s[i][1] = vi_zero();
	UNROLL for (int odd = 0; odd < 16; odd += 8) {
		TILE_LOOP for (int j = odd + j0; j < odd + j1; j++) {
			vi w0 = w->w[0][j], w1 = w->w[1][j];

			UNROLL for (size_t i = 0; i < nt; i++) {
				vi xv = vi_set1(x[i].x[j]);

				s[i][0] = v16_mac(s[i][0], w0, xv);
				s[i][1] = v16_mac(s[i][1], w1, xv);
			}
		}
	}
	UNROLL for (size_t i = 0; i < nt; i++) {
		vf d = v_set1(x[i].d);

		acc[i][0] = v_fma(vi_to_f(s[i][0]), v_mul(sc[0], d), acc[i][0]);
		acc[i][1] = v_fma(vi_to_f(s[i][1]), v_mul(sc[1], d), acc[i][1]);
	}
}

/* One group of nt tokens; kind and nt are constant. */
TEMPLATE void tile_mac(enum tile_kind kind, size_t nt, vf acc[TILE][VECS], const struct wtile *w, const struct xtile *x)
{
	if (kind == KIND_HALVES) {
		tile_sums(nt, acc, w, x, 0, 4, w->sc);
		tile_sums(nt, acc, w, x, 4, 8, w->mn);
	} else {
		tile_sums(nt, acc, w, x, 0, 8, w->sc);
	}
	if (kind == KIND_MIN) {
		UNROLL for (size_t i = 0; i < nt; i++) {
			vf sum = v_set1(x[i].s);

			acc[i][0] = v_fma(w->mn[0], sum, acc[i][0]);
			acc[i][1] = v_fma(w->mn[1], sum, acc[i][1]);
		}
	}
}

#endif
