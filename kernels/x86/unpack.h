/* SPDX-License-Identifier: MIT */
/*
 * unpack.h - template: groups of quantised weights of VL rows, turned so that a lane is a row.
 *
 * A group of 32 elements of VL rows becomes
 *
 *	w[j], j = 0..7: lane r holds the bytes of elements 4 j .. 4 j + 3 of row r
 *	sc, mn: lane r holds row r's scale and minimum (Q6_K: the scales of the two halves)
 *
 * so that one multiply-add over bytes with a broadcast dword of activations serves all rows, and
 * nothing is ever added across lanes. Bytes are unsigned, with the offset of quant.h still in them
 * (for Q8_0 see WFLIP_Q8). The 256-element types are unpacked eight groups at a time.
 */
#ifndef SITS_KERNELS_X86_UNPACK_H
#define SITS_KERNELS_X86_UNPACK_H

#include "kernels/quant.h"

struct wgroup {
	vi w[8];
	vf sc, mn;
};

#define UNIT_MAX 8

/* Groups that are unpacked together when there are so many left, and their bytes in a row. */
INLINE size_t unit_groups(uint32_t type)
{
	return type == SITS_Q4_K || type == SITS_Q5_K || type == SITS_Q6_K ? 8 : 1;
}

INLINE size_t unit_bytes(uint32_t type)
{
	switch (type) {
	case SITS_Q4_0:
		return 18;
	case SITS_Q4_1:
		return 20;
	case SITS_Q5_0:
		return 22;
	case SITS_Q5_1:
		return 24;
	case SITS_Q8_0:
		return 34;
	case SITS_Q4_K:
		return 144;
	case SITS_Q5_K:
		return 176;
	default:
		return 210;
	}
}

INLINE bool type_has_min(uint32_t type)
{
	return type == SITS_Q4_1 || type == SITS_Q5_1 || type == SITS_Q4_K || type == SITS_Q5_K;
}

/* 16 bytes of nibbles to the 32 bytes of w. */
INLINE void unpack_nibbles(const vi z[4], vi w[8])
{
	vi low = vi_set1_8(15);

	UNROLL for (int j = 0; j < 4; j++) {
		w[j] = vi_and(z[j], low);
		w[4 + j] = vi_and(vi_srl(z[j], 4), low);
	}
}

TEMPLATE void unpack_q4(uint32_t type, struct rows row, struct wgroup *o)
{
	size_t bytes = unit_bytes(type);
	vi h[4], z[4];

	vi_load_t16(row, 0, h);
	o->sc = vi_f16(h[0]);
	o->mn = type == SITS_Q4_1 ? vi_f16(vi_srl(h[0], 16)) : v_zero();
	vi_load_t16(row, bytes - 16, z);
	unpack_nibbles(z, o->w);
}

TEMPLATE void unpack_q5(uint32_t type, struct rows row, struct wgroup *o)
{
	size_t bytes = unit_bytes(type);
	vi h[4], z[4], qh;

	vi_load_t16(row, 0, h);
	o->sc = vi_f16(h[0]);
	o->mn = type == SITS_Q5_1 ? vi_f16(vi_srl(h[0], 16)) : v_zero();
	qh = type == SITS_Q5_1 ? h[1] : vi_or(vi_srl(h[0], 16), vi_sll(h[1], 16));
	vi_load_t16(row, bytes - 16, z);
	unpack_nibbles(z, o->w);
	UNROLL for (int j = 0; j < 8; j++)
		o->w[j] = vi_or_bit4(o->w[j], qh, j);
}

TEMPLATE void unpack_q8(struct rows row, struct wgroup *o)
{
	vi h[4];

	vi_load_t16(row, 0, h);
	o->sc = vi_f16(h[0]);
	o->mn = v_zero();
	vi_load_t16(row, 2, o->w);
	vi_load_t16(row, 18, o->w + 4);
	UNROLL for (int j = 0; j < 8; j++)
		o->w[j] = vi_xor(o->w[j], vi_set1_8(WFLIP_Q8));
}

/* Eight scales and minimums from the 16-byte head of Q4_K and Q5_K. */
TEMPLATE void unpack_k_scales(const vi h[4], struct wgroup *o)
{
	vi six = vi_set1_8(63), four = vi_set1_8(15), top = vi_set1_8(0x30), byte = vi_set1(255);
	vi s[2], m[2];
	vf d = vi_f16(h[0]), dmin = v_neg(vi_f16(vi_srl(h[0], 16)));

	s[0] = vi_and(h[1], six);
	m[0] = vi_and(h[2], six);
	s[1] = vi_or(vi_and(h[3], four), vi_and(vi_srl(h[1], 2), top));
	m[1] = vi_or(vi_and(vi_srl(h[3], 4), four), vi_and(vi_srl(h[2], 2), top));
	for (int i = 0; i < 2; i++) {
		UNROLL for (int k = 0; k < 4; k++) {
			o[4 * i + k].sc = v_mul(d, vi_to_f(vi_and(s[i], byte)));
			o[4 * i + k].mn = v_mul(dmin, vi_to_f(vi_and(m[i], byte)));
			s[i] = vi_srl(s[i], 8);
			m[i] = vi_srl(m[i], 8);
		}
	}
}

/* w |= bit g of each byte of h, as bit 4. */
INLINE vi or_bit(vi w, vi h, int g)
{
	vi b = g < 4 ? vi_sll(h, 4 - g) : vi_srl(h, g - 4);

	return vi_or(w, vi_and(b, vi_set1_8(16)));
}

TEMPLATE void unpack_k45(uint32_t type, struct rows row, struct wgroup *o)
{
	size_t qs = type == SITS_Q5_K ? 48 : 16;
	vi h[4], bits[8], z[8], low = vi_set1_8(15);

	vi_load_t16(row, 0, h);
	unpack_k_scales(h, o);
	if (type == SITS_Q5_K) {
		vi_load_t16(row, 16, bits);
		vi_load_t16(row, 32, bits + 4);
	}
	UNROLL for (int i = 0; i < 4; i++) {
		vi_load_t16(row, qs + 32 * (size_t)i, z);
		vi_load_t16(row, qs + 32 * (size_t)i + 16, z + 4);
		UNROLL for (int j = 0; j < 8; j++) {
			vi lo = vi_and(z[j], low), hi = vi_and(vi_srl(z[j], 4), low);

			o[2 * i].w[j] = type == SITS_Q5_K ? or_bit(lo, bits[j], 2 * i) : lo;
			o[2 * i + 1].w[j] = type == SITS_Q5_K ? or_bit(hi, bits[j], 2 * i + 1) : hi;
		}
	}
}

/* Byte b of each lane, signed, as f32. */
#define LANE_S8(x, b) vi_to_f(vi_sra(vi_sll(x, 24 - 8 * (b)), 24))

/* Half h (four groups) of a Q6_K block. */
TEMPLATE void unpack_k6_half(struct rows row, size_t h, struct wgroup *o)
{
	vi ql[16], qh[8], low = vi_set1_8(15), two = vi_set1_8(0x30);

	for (size_t i = 0; i < 4; i++)
		vi_load_t16(row, 64 * h + 16 * i, ql + 4 * i);
	vi_load_t16(row, 128 + 32 * h, qh);
	vi_load_t16(row, 144 + 32 * h, qh + 4);
	UNROLL for (int j = 0; j < 8; j++) {
		o[0].w[j] = vi_or(vi_and(ql[j], low), vi_and(vi_sll(qh[j], 4), two));
		o[1].w[j] = vi_or(vi_and(ql[8 + j], low), vi_and(vi_sll(qh[j], 2), two));
		o[2].w[j] = vi_or(vi_and(vi_srl(ql[j], 4), low), vi_and(qh[j], two));
		o[3].w[j] = vi_or(vi_and(vi_srl(ql[8 + j], 4), low), vi_and(vi_srl(qh[j], 2), two));
	}
}

TEMPLATE void unpack_k6(struct rows row, struct wgroup *o)
{
	vi s[4], z[4];
	vf d;

	vi_load_t16(row, 194, z);	/* d is the block's last half word */
	d = vi_f16(vi_srl(z[3], 16));
	vi_load_t16(row, 192, s);
	UNROLL for (int i = 0; i < 4; i++) {
		o[2 * i].sc = v_mul(d, LANE_S8(s[i], 0));
		o[2 * i].mn = v_mul(d, LANE_S8(s[i], 1));
		o[2 * i + 1].sc = v_mul(d, LANE_S8(s[i], 2));
		o[2 * i + 1].mn = v_mul(d, LANE_S8(s[i], 3));
	}
	unpack_k6_half(row, 0, o);
	unpack_k6_half(row, 1, o + 4);
}

/* The next unit_groups(type) groups of the rows. */
TEMPLATE void unpack(uint32_t type, struct rows row, struct wgroup *o)
{
	switch (type) {
	case SITS_Q4_0:
	case SITS_Q4_1:
		unpack_q4(type, row, o);
		break;
	case SITS_Q5_0:
	case SITS_Q5_1:
		unpack_q5(type, row, o);
		break;
	case SITS_Q8_0:
		unpack_q8(row, o);
		break;
	case SITS_Q4_K:
	case SITS_Q5_K:
		unpack_k45(type, row, o);
		break;
	default:
		unpack_k6(row, o);
		break;
	}
}

/*
 * Blocks whose bytes are a multiple of four tile into whole 16-byte pieces: four of Q4_1 are five pieces, two
 * of Q5_1 are three. run_step() yields group k of such a run and loads no byte twice; d holds the run's dwords.
 */
#define RUN_MAX 4

INLINE size_t run_groups(uint32_t type)
{
	return type == SITS_Q4_1 ? 4 : type == SITS_Q5_1 ? 2 : 0;
}

TEMPLATE void run_step(uint32_t type, struct rows row, size_t k, vi d[20], struct wgroup *o)
{
	size_t dwords = unit_bytes(type) / 4;
	const vi *h = d + k * dwords;

	if (!k)
		vi_load_t16(row, 0, d);
	vi_load_t16(row, 16 * (k + 1), d + 4 * (k + 1));
	o->sc = vi_f16(h[0]);
	o->mn = vi_f16(vi_srl(h[0], 16));
	unpack_nibbles(h + dwords - 4, o->w);
	if (type == SITS_Q5_1) {
		UNROLL for (int j = 0; j < 8; j++)
			o->w[j] = vi_or_bit4(o->w[j], h[1], j);
	}
}

#endif
