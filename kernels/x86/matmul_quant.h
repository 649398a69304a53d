/* SPDX-License-Identifier: MIT */
/*
 * matmul_quant.h - template: quantised weights times 16-bit activations.
 *
 * The including file supplies the vector vocabulary, WFLIP_Q8 and dot(): the integer part; with
 * ONE_TOKEN it gets the case T = 1 alone. Here is the tiling. VL rows of weights are turned so that a
 * lane is a row (unpack.h); integer sums are exact and each lane's f32 sum takes groups in
 * ascending order, as quant.h lays down, so that every tile shape gives the same bits.
 *
 *	few tokens	weights are unpacked in registers (256-element types: eight groups on the stack)
 *			and used for all tokens at once
 *	many tokens	CHUNK groups of VL rows are unpacked to the stack (at most 15 KiB, so that it stays
 *			in the first-level cache) and used for all tokens, eight at a time; partial sums
 *			wait in y. That stack copy is wiped before return.
 */
#ifndef SITS_KERNELS_X86_MATMUL_QUANT_H
#define SITS_KERNELS_X86_MATMUL_QUANT_H

#include "kernels/ref/ref.h"
#include "kernels/x86/unpack.h"

#define CHUNK 24		/* groups; a multiple of UNIT_MAX */
#define TILE 8			/* tokens */

/* VL rows from n on. Where columns are left over at the end, rows that lie before are read again and only
 * lanes [lo, hi) are stored. */
struct strip {
	struct rows rows;
	size_t n, lo, hi;
};

INLINE void strip_init(struct strip *s, const struct sits_matmul *mm, size_t n)
{
	s->n = n + VL <= mm->N ? n : mm->N - VL;
	s->lo = n - s->n;
	s->hi = mm->n1 - s->n < VL ? mm->n1 - s->n : VL;
	s->rows = rows_init((const uint8_t *)mm->w + s->n * mm->w_row_bytes, mm->w_row_bytes);
}

INLINE void store_y(const struct sits_matmul *mm, const struct strip *s, size_t t, vf acc)
{
	float *y = mm->y + t * mm->ldy + s->n;

	if (s->hi - s->lo == VL)
		v_store(y, acc);
	else
		v_store_range(y, acc, s->lo, s->hi);
}

#ifndef ONE_TOKEN
INLINE vf load_y(const struct sits_matmul *mm, const struct strip *s, size_t t)
{
	const float *y = mm->y + t * mm->ldy + s->n;

	return s->hi - s->lo == VL ? v_load(y) : v_load_range(y, s->lo, s->hi);
}
#endif

/* off + the products of n dwords of weights and activations, from elements [i, i + 4 n) of the group. */
INLINE vi dot16(uint32_t type, const vi *w, const struct sits_q16 *x, int i, int n, int32_t off)
{
	vi s = vi_sll(dot(type, w, x->hi + i, n, vi_zero()), 7);

	return dot(type, w, x->lo + i, n, vi_add(s, vi_set1(off)));
}

/* Add one group of one token to acc. */
TEMPLATE vf mac(uint32_t type, vf acc, const struct wgroup *w, const struct sits_q16 *x)
{
	vf d = v_set1(x->d);
	int32_t off = 0;
	vi s;

	if (type == SITS_Q6_K) {
		s = dot16(type, w->w, x, 0, 4, x->off32[0]);
		acc = v_fma(vi_to_f(s), v_mul(w->sc, d), acc);
		s = dot16(type, w->w + 4, x, 16, 4, x->off32[1]);
		return v_fma(vi_to_f(s), v_mul(w->mn, d), acc);
	}
	if (type == SITS_Q4_0)
		off = x->off8;
	else if (type == SITS_Q5_0)
		off = x->off16;
	else if (type == SITS_Q8_0 && WFLIP_Q8 != 0)
		off = x->off128;
	acc = v_fma(vi_to_f(dot16(type, w->w, x, 0, 8, off)), v_mul(w->sc, d), acc);
	return type_has_min(type) ? v_fma(w->mn, v_set1(x->s), acc) : acc;
}

/* Pointers to the activations of nt tokens from t on; where there are fewer, the last again. */
INLINE void tile_x(const struct sits_matmul *mm, size_t t, const struct sits_q16 **x, size_t nt)
{
	UNROLL for (size_t i = 0; i < nt; i++) {
		size_t at = t + i < mm->T ? t + i : mm->T - 1;

		x[i] = (const void *)((const uint8_t *)mm->x + at * mm->x_row_bytes);
	}
}

/* Cache lines of the next strip's weights that fall to one unit of this strip. */
INLINE size_t lines_ahead(uint32_t type, size_t units)
{
	return (VL * unit_bytes(type) * units + 63) / 64;
}

INLINE const uint8_t *fetch_ahead(const uint8_t *p, size_t lines)
{
	const uint8_t *end = p + 64 * lines;

	for (; p != end; p += 64)
		_mm_prefetch((const char *)p, _MM_HINT_T0);
	return p;
}

/* All of K for one strip and nt <= TILE tokens, weights kept in registers. nt is constant. */
TEMPLATE void tile_direct(const struct sits_matmul *mm, uint32_t type, const struct strip *s, size_t nt)
{
	size_t groups = mm->K / SITS_QG, unit = unit_groups(type), run = run_groups(type), g = 0;
	const uint8_t *ahead = s->rows.b[0] + VL * mm->w_row_bytes;
	const struct sits_q16 *x[TILE];
	struct rows rows = s->rows;
	struct wgroup u[UNIT_MAX];
	vf acc[TILE];
	vi d[20];

	tile_x(mm, 0, x, nt);
	UNROLL for (size_t i = 0; i < nt; i++)
		acc[i] = v_zero();
	for (; run && g + run <= groups; g += run) {
		UNROLL for (size_t k = 0; k < run; k++) {
			ahead = fetch_ahead(ahead, lines_ahead(type, 1));
			run_step(type, rows, k, d, u);
			UNROLL for (size_t i = 0; i < nt; i++)
				acc[i] = mac(type, acc[i], u, x[i] + g + k);
		}
		rows_advance(&rows, run * unit_bytes(type));
	}
	for (; g < groups; g += unit) {
		ahead = fetch_ahead(ahead, lines_ahead(type, 1));
		unpack(type, rows, u);
		rows_advance(&rows, unit_bytes(type));
		for (size_t k = 0; k < unit; k++) {
			UNROLL for (size_t i = 0; i < nt; i++)
				acc[i] = mac(type, acc[i], &u[k], x[i] + g + k);
		}
	}
	UNROLL for (size_t i = 0; i < nt; i++) {
		if (i < mm->T)
			store_y(mm, s, i, acc[i]);
	}
}

#ifndef ONE_TOKEN
/* Groups [g0, g0 + n) from the stack copy u, for one tile of nt tokens from t on. nt is constant. */
TEMPLATE void tile_chunk(const struct sits_matmul *mm, uint32_t type, const struct strip *s, const struct wgroup *u,
		       size_t g0, size_t n, size_t t, size_t nt)
{
	const struct sits_q16 *x[TILE];
	vf acc[TILE];

	tile_x(mm, t, x, nt);
	UNROLL for (size_t i = 0; i < nt; i++)
		acc[i] = g0 && t + i < mm->T ? load_y(mm, s, t + i) : v_zero();
	for (size_t g = 0; g < n; g++) {
		UNROLL for (size_t i = 0; i < nt; i++)
			acc[i] = mac(type, acc[i], &u[g], x[i] + g0 + g);
	}
	UNROLL for (size_t i = 0; i < nt; i++) {
		if (t + i < mm->T)
			store_y(mm, s, t + i, acc[i]);
	}
}

TEMPLATE void strip_chunks(const struct sits_matmul *mm, uint32_t type, const struct strip *s, struct wgroup *u)
{
	size_t groups = mm->K / SITS_QG, n;
	struct rows rows = s->rows;

	for (size_t g = 0; g < groups; g += n) {
		n = groups - g < CHUNK ? groups - g : CHUNK;
		for (size_t k = 0; k < n; k += unit_groups(type)) {
			unpack(type, rows, u + k);
			rows_advance(&rows, unit_bytes(type));
		}
		for (size_t t = 0; t < mm->T; t += TILE) {
			if (mm->T - t > TILE / 2)
				tile_chunk(mm, type, s, u, g, n, t, TILE);
			else
				tile_chunk(mm, type, s, u, g, n, t, TILE / 2);
		}
	}
}

#endif

#ifdef ONE_TOKEN
/* type is constant. */
TEMPLATE void matmul_type(const struct sits_matmul *mm, uint32_t type)
{
	struct strip s;

	for (size_t n = mm->n0; n < mm->n1; n += VL) {
		strip_init(&s, mm, n);
		tile_direct(mm, type, &s, 1);
	}
}
#else
/* type is constant. */
TEMPLATE void matmul_many(const struct sits_matmul *mm, uint32_t type)
{
	struct wgroup u[CHUNK];
	struct strip s;

	for (size_t n = mm->n0; n < mm->n1; n += VL) {
		strip_init(&s, mm, n);
		strip_chunks(mm, type, &s, u);
	}
	memset(u, 0, sizeof(u));
	__asm__ volatile("" : : "r"(u) : "memory");	/* so that the wipe is not optimised away */
}

TEMPLATE void matmul_type(const struct sits_matmul *mm, uint32_t type)
{
	struct strip s;

	if (mm->T > TILE) {
		matmul_many(mm, type);
		return;
	}
	for (size_t n = mm->n0; n < mm->n1; n += VL) {
		strip_init(&s, mm, n);
		if (mm->T > 4)
			tile_direct(mm, type, &s, 8);
		else if (mm->T > 2)
			tile_direct(mm, type, &s, 4);
		else if (mm->T > 1 || VL == 16)	/* one token comes here with 8 lanes only */
			tile_direct(mm, type, &s, 2);
		else
			tile_direct(mm, type, &s, 1);
	}
}
#endif

#define MATMUL_TYPE(name, type)							\
	static void matmul_##name(const struct sits_matmul *mm)			\
	{									\
		matmul_type(mm, type);						\
	}

MATMUL_TYPE(q4_0, SITS_Q4_0)
MATMUL_TYPE(q4_1, SITS_Q4_1)
MATMUL_TYPE(q5_0, SITS_Q5_0)
MATMUL_TYPE(q5_1, SITS_Q5_1)
MATMUL_TYPE(q8_0, SITS_Q8_0)
MATMUL_TYPE(q4_k, SITS_Q4_K)
MATMUL_TYPE(q5_k, SITS_Q5_K)
MATMUL_TYPE(q6_k, SITS_Q6_K)

void ISA(matmul_quant)(const struct sits_matmul *mm)
{
	static void (*const by_type[])(const struct sits_matmul *) = {
		[SITS_Q4_0] = matmul_q4_0, [SITS_Q4_1] = matmul_q4_1, [SITS_Q5_0] = matmul_q5_0,
		[SITS_Q5_1] = matmul_q5_1, [SITS_Q8_0] = matmul_q8_0, [SITS_Q4_K] = matmul_q4_k,
		[SITS_Q5_K] = matmul_q5_k, [SITS_Q6_K] = matmul_q6_k,
	};

	if (mm->N < VL)		/* too few rows to fill the lanes */
		sits_ref_matmul(mm);
	else
		by_type[mm->wtype](mm);
}

#endif
