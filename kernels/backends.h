/* SPDX-License-Identifier: MIT */
/*
 * backends.h - the tables that dispatch.c chooses from, and what they share. Inside kernels/ only.
 */
#ifndef SITS_KERNELS_BACKENDS_H
#define SITS_KERNELS_BACKENDS_H

#include "kernels/kernels.h"

extern const struct sits_backend sits_backend_ref;
#ifdef SITS_KERNELS_X86
extern const struct sits_backend sits_backend_avx2;
extern const struct sits_backend sits_backend_avx512;
extern const struct sits_backend sits_backend_avx512bf16;
#endif

/* The product of one group of a grouped call. */
static inline struct sits_matmul sits_matmul_of_group(const struct sits_matmul *mm, const struct sits_matmul_group *g)
{
	struct sits_matmul one = *mm;

	one.w = g->w;
	one.T = g->nr;
	one.y = mm->y + g->t0 * mm->ldy;
	if (mm->x_row)
		one.x_row = mm->x_row + g->t0;
	else
		one.x = (const uint8_t *)mm->x + g->t0 * mm->x_row_bytes;
	return one;
}

#endif
