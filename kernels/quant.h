/* SPDX-License-Identifier: MIT */
/*
 * quant.h - quantised weights and activations, as every CPU backend sees them.
 *
 * Facts of the weight blocks (GGUF; ggml-common.h of llama.cpp). f16 d, m; nibbles low first:
 *
 *	Q4_0  | d | qs[16] |			w = d * (q - 8)
 *	Q4_1  | d | m | qs[16] |		w = d * q + m
 *	Q5_0  | d | qh u32 | qs[16] |		w = d * (q - 16), bit 4 of element i is bit i of qh
 *	Q5_1  | d | m | qh u32 | qs[16] |	w = d * q + m
 *	Q8_0  | d | q s8[32] |			w = d * q
 *	      byte i of qs: element i (low nibble) and element i + 16 (high nibble)
 *
 *	Q4_K  | d | dmin | sc[12] | qs[128] |	w = d * sc[g] * q - dmin * mn[g], g = 0..7
 *	Q5_K  | d | dmin | sc[12] | qh[32] | qs[128] |	bit 4 of element i of group g: bit g of qh[i]
 *	      byte i of qs + 32 * (g / 2): element i of group g (low nibble if g is even, else high)
 *	      sc and mn have 6 bits: g < 4: sc[g] & 63, sc[g + 4] & 63;
 *	      else low nibble of sc[g + 4] | sc[g - 4] >> 6 << 4, high nibble of it | sc[g] >> 6 << 4
 *	Q6_K  | ql[128] | qh[64] | sc s8[16] | d |	w = d * sc[2g], sc[2g + 1] * (q - 32)
 *	      group g = 4 * h + r: low nibbles ql + 64 h + 32 (r & 1) (high half where r >= 2),
 *	      bits 4, 5: qh + 32 h, shifted by 2 r
 *
 * So each type is a case of one form. In groups of 32 consecutive elements:
 *
 *	w[i] = sc[i / 16] * (q[i] - off) + mn		(sc equal in both halves but for Q6_K)
 *
 * with f32 sc and mn that are exact products of the stored numbers. Activations are quantised in
 * the same groups, x[i] = d * xq[i], to 16 bits held as two signed bytes, xq = 128 * hi + lo: eight bits
 * alone move the next-token distribution too far (docs/kernels.md). A group adds to the sum
 *
 *	acc = fma(sum (q - off) * xq, sc * d, acc);	integer sum exact, it and sc * d rounded to f32
 *	acc = fma(mn, s, acc);				types with a minimum; s = d * sum xq, rounded
 *
 * (Q6_K: the first line once for each half). Groups are taken in ascending order. This order and
 * rounding is the contract: all backends follow it, hence agree with each other to the bit, and a
 * result cannot depend on how tokens or rows are tiled.
 *
 * SITS_I8C, 8-bit weights with one scale sc a row, meets activations of 8 bits with one scale d a token:
 *
 *	xq[k] = x[k] / d, d = largest |x| / 127;  y = f32(sum q * xq) * (sc * d);  each step rounded once, to nearest even
 *
 * Packed types mean what their plain type means.
 */
#ifndef SITS_KERNELS_QUANT_H
#define SITS_KERNELS_QUANT_H

#include <math.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"

#define SITS_QG 32		/* elements in a group */

/* A prepared group of activations: two cache lines. The offsets are what a sum over unsigned weights
 * starts from. d is NaN where an element is not finite: that makes the outputs NaN. */
struct sits_q16 {
	int8_t hi[SITS_QG];	/* -127 .. 127 */
	int8_t lo[SITS_QG];	/* -64 .. 63 */
	float d, s;
	int32_t off8, off16, off128;	/* -8, -16, -128 times the sum of xq */
	int32_t off32[2];	/* -32 times the sum of each half */
	int32_t zero[9];
};
_Static_assert(sizeof(struct sits_q16) == 128, "a prepared group is two cache lines");

/* Largest xq: its hi is 127 and its lo is 0. */
#define SITS_Q16_MAX (127 * 128)

/* Activations smaller than this in all of a group count as zero: SITS_Q16_MAX / x must not overflow. */
#define SITS_Q16_TINY 0x1p-100f

/* What stands before a token's K bytes of xq for SITS_I8C (padded with zeros to 64). d is NaN, and all xq 0, where an
 * element is not finite; both are 0 where all are below SITS_Q16_TINY. */
struct sits_q8_head {
	float d;
	int32_t off128;		/* -128 times the sum of xq: what a sum over unsigned weights starts from */
	int32_t zero[14];
};
_Static_assert(sizeof(struct sits_q8_head) == 64, "activations begin at a cache line");

#define SITS_Q8_MAX 127

enum sits_act_class { SITS_ACT_F32 = 0, SITS_ACT_Q16 = 1, SITS_ACT_Q8 = 2 };

static inline uint32_t sits_dtype_plain(uint32_t t)
{
	return t & ~(uint32_t)SITS_PACKED;
}

static inline bool sits_dtype_is_quant(uint32_t t)
{
	return t != SITS_F32 && t != SITS_F16 && t != SITS_BF16;
}

static inline uint32_t sits_cpu_act_class(uint32_t wtype)
{
	if (sits_dtype_plain(wtype) == SITS_I8C)
		return SITS_ACT_Q8;
	return sits_dtype_is_quant(wtype) ? SITS_ACT_Q16 : SITS_ACT_F32;
}

static inline size_t sits_cpu_act_row_bytes(uint32_t wtype, size_t K)
{
	switch (sits_cpu_act_class(wtype)) {
	case SITS_ACT_Q8:
		return sizeof(struct sits_q8_head) + (K + 63) / 64 * 64;
	case SITS_ACT_Q16:
		return K / SITS_QG * sizeof(struct sits_q16);
	default:
		return (K * sizeof(float) + 63) / 64 * 64;
	}
}

/* The six-bit scale and minimum of group g of Q4_K and Q5_K. */
static inline void sits_k_scale(const uint8_t *sc, unsigned int g, unsigned int *s, unsigned int *m)
{
	if (g < 4) {
		*s = sc[g] & 63;
		*m = sc[g + 4] & 63;
	} else {
		*s = (sc[g + 4] & 15) | (sc[g - 4] >> 6) << 4;
		*m = (sc[g + 4] >> 4) | (sc[g] >> 6) << 4;
	}
}

/* A group of weights in the common form. */
struct sits_group {
	uint8_t q[SITS_QG];
	float sc[2], mn;
	int off;
	bool has_min;
};

static inline void sits_group_nibbles(uint8_t *q, const uint8_t *qs)
{
	for (int i = 0; i < 16; i++) {
		q[i] = qs[i] & 15;
		q[i + 16] = qs[i] >> 4;
	}
}

static inline void sits_group_bit4(uint8_t *q, uint32_t qh)
{
	for (int i = 0; i < SITS_QG; i++)
		q[i] |= ((qh >> i) & 1) << 4;
}

static inline void sits_group_k45(const uint8_t *b, unsigned int g, bool five, struct sits_group *out)
{
	const uint8_t *qh = b + 16, *qs = b + (five ? 48 : 16) + 32 * (g / 2);
	unsigned int s, m, shift = 4 * (g & 1);

	sits_k_scale(b + 4, g, &s, &m);
	out->sc[0] = sits_ld_f16(b) * (float)s;
	out->mn = -(sits_ld_f16(b + 2) * (float)m);
	out->has_min = true;
	for (int i = 0; i < SITS_QG; i++) {
		out->q[i] = (qs[i] >> shift) & 15;
		if (five)
			out->q[i] |= ((qh[i] >> g) & 1) << 4;
	}
}

static inline void sits_group_k6(const uint8_t *b, unsigned int g, struct sits_group *out)
{
	unsigned int h = g / 4, r = g & 3;
	const uint8_t *ql = b + 64 * h + 32 * (r & 1), *qh = b + 128 + 32 * h;
	const int8_t *sc = (const int8_t *)b + 192 + 2 * g;
	float d = sits_ld_f16(b + 208);

	out->sc[0] = d * (float)sc[0];
	out->sc[1] = d * (float)sc[1];
	out->off = 32;
	for (int i = 0; i < SITS_QG; i++)
		out->q[i] = ((ql[i] >> (r & 2 ? 4 : 0)) & 15) | ((qh[i] >> (2 * r)) & 3) << 4;
}

static inline void sits_group_i8c(const uint8_t *scale, size_t step, const uint8_t *q, struct sits_group *out)
{
	uint32_t bits = sits_ld32(scale);

	out->sc[0] = out->sc[1] = sits_bits_f32(bits);
	out->off = 128;
	for (int i = 0; i < SITS_QG; i++)
		out->q[i] = q[i / 4 * step + i % 4] ^ 0x80;
}

/* Group g of a row of quantised weights; of a packed type's row as sits_dtype_row() finds it. */
static inline void sits_group_load(uint32_t type, const uint8_t *row, size_t g, struct sits_group *out)
{
	const size_t line = 4 * SITS_PACK_ROWS;
	uint8_t block[210];
	const uint8_t *b;

	if (type & SITS_PACKED && type != (SITS_I8C | SITS_PACKED)) {
		size_t groups = sits_dtype_info(type)->block_elems / SITS_QG;

		type = sits_dtype_plain(type);
		sits_pack_load(type, row, g / groups, block);
		row = block;
		g %= groups;
	}
	out->off = 0;
	out->mn = 0;
	out->has_min = false;
	switch (type) {
	case SITS_Q4_0:
		b = row + g * 18;
		out->sc[0] = sits_ld_f16(b);
		out->off = 8;
		sits_group_nibbles(out->q, b + 2);
		break;
	case SITS_Q4_1:
		b = row + g * 20;
		out->sc[0] = sits_ld_f16(b);
		out->mn = sits_ld_f16(b + 2);
		out->has_min = true;
		sits_group_nibbles(out->q, b + 4);
		break;
	case SITS_Q5_0:
		b = row + g * 22;
		out->sc[0] = sits_ld_f16(b);
		out->off = 16;
		sits_group_nibbles(out->q, b + 6);
		sits_group_bit4(out->q, sits_ld32(b + 2));
		break;
	case SITS_Q5_1:
		b = row + g * 24;
		out->sc[0] = sits_ld_f16(b);
		out->mn = sits_ld_f16(b + 2);
		out->has_min = true;
		sits_group_nibbles(out->q, b + 8);
		sits_group_bit4(out->q, sits_ld32(b + 4));
		break;
	case SITS_Q8_0:
		b = row + g * 34;
		out->sc[0] = sits_ld_f16(b);
		out->off = 128;
		for (int i = 0; i < SITS_QG; i++)
			out->q[i] = b[2 + i] ^ 0x80;
		break;
	case SITS_Q4_K:
		sits_group_k45(row + g / 8 * 144, g % 8, false, out);
		break;
	case SITS_Q5_K:
		sits_group_k45(row + g / 8 * 176, g % 8, true, out);
		break;
	case SITS_I8C:
		sits_group_i8c(row, 4, row + 4 + g * SITS_QG, out);
		return;
	case SITS_I8C | SITS_PACKED:
		sits_group_i8c(row, line, row + line * (1 + g * SITS_QG / 4), out);
		return;
	default:	/* SITS_Q6_K */
		sits_group_k6(row + g / 8 * 210, g % 8, out);
		return;
	}
	out->sc[1] = out->sc[0];
}

/* The group's elements as f32: two roundings at most, sc * (q - off) and + mn. */
static inline void sits_group_dequant(const struct sits_group *g, float *dst)
{
	for (int i = 0; i < SITS_QG; i++) {
		float v = g->sc[i / 16] * (float)((int)g->q[i] - g->off);

		dst[i] = g->has_min ? v + g->mn : v;
	}
}

#endif
