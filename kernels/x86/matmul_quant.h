/* SPDX-License-Identifier: MIT */
/*
 * matmul_quant.h - template: quantised weights times 8-bit activations.
 *
 * The including file supplies the vector vocabulary, WFLIP_Q8 and dot(): the integer part. Here is
 * the tiling. VL rows of weights are turned so that a lane is a row (unpack.h); integer sums are
 * exact and each lane's f32 sum takes groups in ascending order, as quant.h lays down, so that
 * every tile shape gives the same bits.
 *
 *	few tokens	weights are unpacked in registers and used for all of them at once
 *	many tokens	CHUNK groups of VL rows are unpacked to the stack (at most 24 groups, 15 KiB, so
 *			that it stays in the first-level cache) and used for all tokens, eight at a time;
 *			partial sums wait in y
 *
 * The stack copy is the only place where unpacked weights stay for longer than a register does; it
 * is wiped before return.
 */
#ifndef SITS_KERNELS_X86_MATMUL_QUANT_H
#define SITS_KERNELS_X86_MATMUL_QUANT_H

#include "kernels/x86/unpack.h"

#define CHUNK 24		/* groups; a multiple of UNIT_MAX */
#define TILE 8			/* tokens */

/* VL rows, or fewer at the end: then the last one is repeated and not stored. */
struct strip {
	const uint8_t *row[VL];
	size_t n, count;
};

INLINE void strip_init(struct strip *s, const struct sits_matmul *mm, size_t n)
{
	s->n = n;
	s->count = mm->n1 - n < VL ? mm->n1 - n : VL;
	for (size_t i = 0; i < VL; i++) {
		size_t r = n + (i < s->count ? i : s->count - 1);

		s->row[i] = (const uint8_t *)mm->w + r * mm->w_row_bytes;
	}
}

INLINE void store_y(const struct sits_matmul *mm, const struct strip *s, size_t t, vf acc)
{
	float *y = mm->y + t * mm->ldy + s->n;

	if (s->count == VL)
		v_store(y, acc);
	else
		v_store_n(y, acc, s->count);
}

INLINE vf load_y(const struct sits_matmul *mm, const struct strip *s, size_t t)
{
	const float *y = mm->y + t * mm->ldy + s->n;

	return s->count == VL ? v_load(y) : v_load_n(y, s->count);
}

/* Add one group of one token to acc. */
TEMPLATE vf mac(uint32_t type, vf acc, const struct wgroup *w, const struct sits_q8 *x)
{
	vf d = v_set1(x->d);
	vi s;

	if (type == SITS_Q6_K) {
		s = dot(type, w->w, x->q, 4, vi_set1(x->off32[0]));
		acc = v_fma(vi_to_f(s), v_mul(w->sc, d), acc);
		s = dot(type, w->w + 4, x->q + 16, 4, vi_set1(x->off32[1]));
		return v_fma(vi_to_f(s), v_mul(w->mn, d), acc);
	}
	if (type == SITS_Q4_0)
		s = vi_set1(x->off8);
	else if (type == SITS_Q5_0)
		s = vi_set1(x->off16);
	else if (type == SITS_Q8_0)
		s = vi_set1(WFLIP_Q8 ? x->off128 : 0);
	else
		s = vi_zero();
	acc = v_fma(vi_to_f(dot(type, w->w, x->q, 8, s)), v_mul(w->sc, d), acc);
	return type_has_min(type) ? v_fma(w->mn, v_set1(x->s), acc) : acc;
}

/* Pointers to the activations of nt tokens from t on; where there are fewer, the last again. */
INLINE void tile_x(const struct sits_matmul *mm, size_t t, const struct sits_q8 **x, size_t nt)
{
	UNROLL for (size_t i = 0; i < nt; i++) {
		size_t at = t + i < mm->T ? t + i : mm->T - 1;

		x[i] = (const void *)((const uint8_t *)mm->x + at * mm->x_row_bytes);
	}
}

/* All of K for one strip and nt <= TILE tokens, weights kept in registers. nt is constant. */
TEMPLATE void tile_direct(const struct sits_matmul *mm, uint32_t type, const struct strip *s, size_t nt)
{
	size_t groups = mm->K / SITS_QG, unit = unit_groups(type);
	/* The next strip's share of each step, so that it is on its way by the time it is needed. */
	const uint8_t *ahead = s->row[0] + VL * mm->w_row_bytes;
	size_t lines = (VL * mm->w_row_bytes * unit / groups + 63) / 64;
	const struct sits_q8 *x[TILE];
	struct wgroup u[UNIT_MAX];
	vf acc[TILE];

	tile_x(mm, 0, x, nt);
	UNROLL for (size_t i = 0; i < nt; i++)
		acc[i] = v_zero();
	for (size_t g = 0; g < groups; g += unit) {
		for (size_t i = 0; i < lines; i++, ahead += 64)
			_mm_prefetch((const char *)ahead, _MM_HINT_T0);
		unpack(type, s->row, g, u);
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

/* Groups [g0, g0 + n) from the stack copy u, for one tile of nt tokens from t on. nt is constant. */
TEMPLATE void tile_chunk(const struct sits_matmul *mm, uint32_t type, const struct strip *s, const struct wgroup *u,
		       size_t g0, size_t n, size_t t, size_t nt)
{
	const struct sits_q8 *x[TILE];
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

	for (size_t g = 0; g < groups; g += n) {
		n = groups - g < CHUNK ? groups - g : CHUNK;
		for (size_t k = 0; k < n; k += unit_groups(type))
			unpack(type, s->row, g + k, u + k);
		for (size_t t = 0; t < mm->T; t += TILE) {
			if (mm->T - t > TILE / 2)
				tile_chunk(mm, type, s, u, g, n, t, TILE);
			else
				tile_chunk(mm, type, s, u, g, n, t, TILE / 2);
		}
	}
}

/* type is constant. */
TEMPLATE void matmul_type(const struct sits_matmul *mm, uint32_t type)
{
	struct wgroup u[CHUNK];
	struct strip s;

	for (size_t n = mm->n0; n < mm->n1; n += VL) {
		strip_init(&s, mm, n);
		if (mm->T > TILE)
			strip_chunks(mm, type, &s, u);
		else if (mm->T > 4)
			tile_direct(mm, type, &s, 8);
		else if (mm->T > 2)
			tile_direct(mm, type, &s, 4);
		else if (mm->T > 1)
			tile_direct(mm, type, &s, 2);
		else
			tile_direct(mm, type, &s, 1);
	}
	if (mm->T > TILE) {
		memset(u, 0, sizeof(u));
		__asm__ volatile("" : : "r"(u) : "memory");
	}
}

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

	by_type[mm->wtype](mm);
}

#endif
