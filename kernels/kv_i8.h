/* SPDX-License-Identifier: MIT */
/*
 * kv_i8.h - keys and values as signed bytes with a scale: SITS_KV_I8, as every CPU backend rounds them.
 *
 *	s = max |x| / 127;  i = x * (1 / s) rounded to nearest even
 *
 * A row that is nowhere above 2^-100 is zero (1 / s must not overflow). A row with a NaN or Inf has the scale
 * NaN, so that whoever attends to it gets NaN, and nobody else.
 */
#ifndef SITS_KERNELS_KV_I8_H
#define SITS_KERNELS_KV_I8_H

#include <math.h>
#include <stddef.h>

#include "kernels/half.h"

#define SITS_KV_I8_MAX 127
#define SITS_KV_I8_TINY 0x1p-100f

/* The scale of n elements; their bytes are then sits_kv_i8_round(x, *inverse). */
static inline float sits_kv_i8_scale(const float *x, size_t n, float *inverse)
{
	uint32_t top = 0;
	float s;

	for (size_t i = 0; i < n; i++) {	/* as integers, NaN > Inf > any number */
		uint32_t a = sits_f32_bits(x[i]) & 0x7fffffff;

		top = a > top ? a : top;
	}
	*inverse = 0;
	if (top >= 0x7f800000)
		return NAN;
	if (sits_bits_f32(top) < SITS_KV_I8_TINY)
		return 0;
	s = sits_bits_f32(top) / (float)SITS_KV_I8_MAX;
	*inverse = 1.0f / s;
	return s;
}

static inline int8_t sits_kv_i8_round(float x, float inverse)
{
	return inverse == 0 ? 0 : (int8_t)lrintf(x * inverse);
}

#endif
