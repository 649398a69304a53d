/* SPDX-License-Identifier: MIT */
/*
 * half.h - IEEE binary16 and bfloat16 to and from f32, in integer arithmetic.
 *
 * Exact towards f32; round to nearest even from it. NaN stays NaN (made quiet), Inf stays Inf.
 */
#ifndef SITS_KERNELS_HALF_H
#define SITS_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t sits_f32_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static inline float sits_bits_f32(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline float sits_f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exp = (h >> 10) & 0x1f, man = h & 0x3ff;

	if (exp == 0x1f)	/* Inf or NaN; bit 22 makes a NaN quiet, as the hardware does */
		return sits_bits_f32(sign | 0x7f800000 | man << 13 | (man ? 0x400000 : 0));
	if (!exp)		/* zero or subnormal: man * 2^-24, exact */
		return sits_bits_f32(sign | sits_f32_bits((float)man * 0x1p-24f));
	return sits_bits_f32(sign | (exp + 112) << 23 | man << 13);
}

static inline uint16_t sits_f32_to_f16(float f)
{
	uint32_t u = sits_f32_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;

	if (a > 0x7f800000)	/* NaN: keep the top of the payload */
		return sign | 0x7e00 | ((a >> 13) & 0x3ff);
	if (a >= 0x477ff000)	/* rounds to 65536 or more */
		return sign | 0x7c00;
	if (a < 0x38800000) {	/* below 2^-14: adding 0.5 rounds at 2^-24 */
		uint32_t r = sits_f32_bits(sits_bits_f32(a) + 0.5f);

		return sign | (r - 0x3f000000);
	}
	return sign | ((a + 0xfff + ((a >> 13) & 1) - 0x38000000) >> 13);
}

static inline float sits_bf16_to_f32(uint16_t h)
{
	return sits_bits_f32((uint32_t)h << 16);
}

/* Unaligned little-endian loads. */
static inline uint16_t sits_ld16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t sits_ld32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline float sits_ld_f16(const void *p)
{
	return sits_f16_to_f32(sits_ld16(p));
}

#endif
