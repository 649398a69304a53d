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

/*
 * Many tokens: products of 16 bits. vpmaddwd multiplies 8 pairs of i16 and adds each pair, exactly, so nothing needs
 * splitting into bytes, offsets are taken off the weights at once, and all types cost the same. Bytes 0 and 2 of
 * a dword are one pair, 1 and 3 the other: no shuffle makes them. Four tokens and 16 rows: eight sums stay in registers
 * and each load serves two or four products.
 */
#define TILE 4
#define CHUNK 16		/* groups; a multiple of UNIT_MAX */
#define MANY 4
#define NARROW 3
#define STRIPS_AHEAD 1
#define DIRECT 4

struct wtile {
	__m256i w[2][16];	/* vectors of the strip; pairs (0, 2) of dwords 0 .. 7, then pairs (1, 3) */
	__m256 sc[2], mn[2];
};

struct xtile {
	int32_t x[4][16];	/* tokens; pairs in the same order */
	float d[4], s[4];
};

#include "kernels/x86/unpack.h"

INLINE void wtile_set(uint32_t type, struct wtile *w, size_t v, const struct wgroup *u)
{
	uint32_t base = type & ~(uint32_t)SITS_PACKED;
	vi off = _mm256_set1_epi16(base == SITS_Q4_0 ? 8 : base == SITS_Q5_0 ? 16 : base == SITS_Q6_K ? 32 : 0);

	UNROLL for (int j = 0; j < 8; j++) {
		if (base == SITS_Q8_0) {
			w->w[v][j] = _mm256_srai_epi16(_mm256_slli_epi16(u->w[j], 8), 8);
			w->w[v][8 + j] = _mm256_srai_epi16(u->w[j], 8);
			continue;
		}
		w->w[v][j] = _mm256_sub_epi16(_mm256_and_si256(u->w[j], _mm256_set1_epi16(255)), off);
		w->w[v][8 + j] = _mm256_sub_epi16(_mm256_srli_epi16(u->w[j], 8), off);
	}
	w->sc[v] = u->sc;
	w->mn[v] = u->mn;
}

INLINE void xtile_set(uint32_t type, struct xtile *x, size_t i, const struct sits_q16 *q)
{
	vi hi = vi_load(q->hi), lo = vi_load(q->lo);
	vi even = _mm256_srai_epi16(_mm256_slli_epi16(lo, 8), 8), odd = _mm256_srai_epi16(lo, 8);

	/* hi * 128: its byte moved to the top of 16 bits, and down by one with its sign. */
	even = _mm256_add_epi16(even, _mm256_srai_epi16(_mm256_slli_epi16(hi, 8), 1));
	odd = _mm256_add_epi16(odd, _mm256_slli_epi16(_mm256_srai_epi16(hi, 8), 7));
	_mm256_storeu_si256((void *)x->x[i], even);
	_mm256_storeu_si256((void *)(x->x[i] + 8), odd);
	x->d[i] = q->d;
	x->s[i] = q->s;
}

/* Dwords [j0, j1) of one kind of pairs. A loop, since compilers spill the sums when all of it is unrolled. */
TEMPLATE void tile_pairs(size_t nt, vi s[TILE][2], const struct wtile *w, const struct xtile *x, int j0, int j1)
{
	ROLLED for (int j = j0; j < j1; j++) {
		vi w0 = w->w[0][j], w1 = w->w[1][j];

		UNROLL for (size_t i = 0; i < nt; i++) {
			vi xv = vi_set1(x->x[i][j]);

			vi_add_to(s[i][0], _mm256_madd_epi16(w0, xv));
			vi_add_to(s[i][1], _mm256_madd_epi16(w1, xv));
		}
	}
}

/* Groups' products from s, with scale sc. */
TEMPLATE void tile_scaled(size_t nt, vf acc[TILE][2], vi s[TILE][2], const struct xtile *x, const vf sc[2])
{
	UNROLL for (size_t i = 0; i < nt; i++) {
		vf d = v_set1(x->d[i]);

		acc[i][0] = v_fma(vi_to_f(s[i][0]), v_mul(sc[0], d), acc[i][0]);
		acc[i][1] = v_fma(vi_to_f(s[i][1]), v_mul(sc[1], d), acc[i][1]);
		s[i][0] = s[i][1] = vi_zero();
	}
}

TEMPLATE void tile_mac(enum tile_kind kind, size_t nt, vf acc[TILE][2], const struct wtile *w, const struct xtile *x)
{
	vi s[TILE][2];

	UNROLL for (size_t i = 0; i < nt; i++)
		s[i][0] = s[i][1] = vi_zero();
	if (kind == KIND_HALVES) {
		tile_pairs(nt, s, w, x, 0, 4);
		tile_pairs(nt, s, w, x, 8, 12);
		tile_scaled(nt, acc, s, x, w->sc);
		tile_pairs(nt, s, w, x, 4, 8);
		tile_pairs(nt, s, w, x, 12, 16);
		tile_scaled(nt, acc, s, x, w->mn);
		return;
	}
	tile_pairs(nt, s, w, x, 0, 16);
	tile_scaled(nt, acc, s, x, w->sc);
	if (kind == KIND_MIN) {
		UNROLL for (size_t i = 0; i < nt; i++) {
			vf sum = v_set1(x->s[i]);

			acc[i][0] = v_fma(w->mn[0], sum, acc[i][0]);
			acc[i][1] = v_fma(w->mn[1], sum, acc[i][1]);
		}
	}
}

#include "kernels/x86/matmul_quant.h"
