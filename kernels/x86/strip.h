/* SPDX-License-Identifier: MIT */
/*
 * strip.h - template: rows of a matrix product taken side by side, a lane each, and where their results go.
 */
#ifndef SITS_KERNELS_X86_STRIP_H
#define SITS_KERNELS_X86_STRIP_H

#include "kernels/kernels.h"

#define STRIP SITS_PACK_ROWS	/* rows in a strip of packed weights or of many tokens; else VL */
#define NV (STRIP / VL)		/* vectors in it */

/* Rows from n on. Where columns are left over at the end, plain rows that lie before are read again; only lanes
 * [lo, hi) are stored. */
struct strip {
	size_t n, lo, hi;
};

INLINE struct strip strip_at(const struct sits_matmul *mm, uint32_t type, size_t n, size_t rows)
{
	struct strip s = { .n = n };

	if (type & SITS_PACKED)
		s.n = n / rows * rows;
	else if (n + rows > mm->N)
		s.n = mm->N - rows;
	s.lo = n - s.n;
	s.hi = mm->n1 - s.n < rows ? mm->n1 - s.n : rows;
	return s;
}

/* Lanes [lo, hi) of vector v of the strip. */
INLINE size_t lane_in(size_t at, size_t v)
{
	return at < v * VL ? 0 : at > v * VL + VL ? VL : at - v * VL;
}

INLINE void store_y(const struct sits_matmul *mm, const struct strip *s, size_t v, size_t t, vf acc)
{
	size_t lo = lane_in(s->lo, v), hi = lane_in(s->hi, v);
	float *y = mm->y + t * mm->ldy + s->n + v * VL;

	if (hi - lo == VL)
		v_store(y, acc);
	else if (lo < hi)
		v_store_range(y, acc, lo, hi);
}

__attribute__((unused)) INLINE vf load_y(const struct sits_matmul *mm, const struct strip *s, size_t v, size_t t)
{
	size_t lo = lane_in(s->lo, v), hi = lane_in(s->hi, v);
	const float *y = mm->y + t * mm->ldy + s->n + v * VL;

	if (hi - lo == VL)
		return v_load(y);
	return lo < hi ? v_load_range(y, lo, hi) : v_zero();
}

/* The prepared activations of token t; past the last, of the last again. */
INLINE const void *token_x(const struct sits_matmul *mm, size_t t)
{
	t = t < mm->T ? t : mm->T - 1;
	return (const uint8_t *)mm->x + (mm->x_row ? mm->x_row[t] : t) * mm->x_row_bytes;
}

#endif
