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
 *
 * Plain rows are turned while they are loaded (vi_load_t16()); packed ones lie turned already (pack.h), and a load is
 * a load. Types here may have the bit SITS_PACKED; they are constants wherever that matters.
 */
#ifndef SITS_KERNELS_X86_UNPACK_H
#define SITS_KERNELS_X86_UNPACK_H

#include "kernels/quant.h"

struct wgroup {
	vi w[8];
	vf sc, mn;
};

/* What a group adds beside sums and scales: nothing, a minimum, or a second scale (in mn) for its second half. */
enum tile_kind { KIND_SCALE, KIND_MIN, KIND_HALVES };

#define UNIT_MAX 8

#define BASE(type) ((type) & ~(uint32_t)SITS_PACKED)

/* Groups that are unpacked together when there are so many left, and their bytes in a row. */
INLINE size_t unit_groups(uint32_t type)
{
	type = BASE(type);
	return type == SITS_Q4_K || type == SITS_Q5_K || type == SITS_Q6_K ? 8 : 1;
}

INLINE size_t unit_bytes(uint32_t type)
{
	int d_at;

	return sits_pack_block(BASE(type), &d_at);
}

/* Does the type's scale stand in a dword with that of the next block when packed? */
INLINE bool pairs_scales(uint32_t type)
{
	int d_at;

	sits_pack_block(BASE(type), &d_at);
	return d_at >= 0;
}

/* VL rows of weights, at some block. */
struct src {
	struct rows rows;	/* plain */
	const uint8_t *p, *d;	/* packed: the block without its scale, and the dwords that hold its scale */
	int d_shift;
};

/* @n is the first of the rows; of packed weights, a multiple of VL. */
INLINE struct src src_init(uint32_t type, const void *w, size_t row_bytes, size_t n)
{
	struct src s = { .rows = rows_init((const uint8_t *)w + n * row_bytes, row_bytes) };

	if (type & SITS_PACKED) {
		s.d = sits_dtype_row(type, w, row_bytes, n);
		s.p = pairs_scales(type) ? s.d + 64 : s.d;
	}
	return s;
}

/* Likewise from group g on; of types that come in units of eight, g is a multiple of eight. */
INLINE struct src src_at(uint32_t type, const void *w, size_t row_bytes, size_t n, size_t g)
{
	struct src s = src_init(type, w, row_bytes, n);
	size_t i = g / unit_groups(type), odd = i % 2;

	if (!(type & SITS_PACKED)) {
		rows_advance(&s.rows, i * unit_bytes(type));
		return s;
	}
	s.p += 64 * sits_pack_dwords(BASE(type), i);
	if (pairs_scales(type)) {	/* the block without its scale; in an odd one's place that is counted already */
		s.p -= odd ? 64 : 0;
		s.d = s.p - 64 - (odd ? unit_bytes(type) / 4 * 64 : 0);
		s.d_shift = odd ? 16 : 0;
	}
	return s;
}

/* To the next unit. */
INLINE void src_next(uint32_t type, struct src *s)
{
	if (!(type & SITS_PACKED)) {
		rows_advance(&s->rows, unit_bytes(type));
		return;
	}
	s->p += unit_bytes(type) / 4 * 64;
	if (!pairs_scales(type))
		return;
	s->d_shift ^= 16;
	if (!s->d_shift) {	/* the next block begins a pair */
		s->d = s->p;
		s->p += 64;
	}
}

/* Dwords at bytes off .. off + 15 of the block. */
INLINE void src_load4(uint32_t type, const struct src *s, size_t off, vi z[4])
{
	if (!(type & SITS_PACKED)) {
		vi_load_t16(s->rows, off, z);
		return;
	}
	off -= pairs_scales(type) && BASE(type) != SITS_Q6_K ? 2 : 0;
	UNROLL for (int i = 0; i < 4; i++)
		z[i] = vi_load(s->p + 16 * off + 64 * i);
}

/* d of a packed type that pairs its scales. */
INLINE vf src_scale(const struct src *s)
{
	return vi_f16(vi_srl_by(vi_load(s->d), s->d_shift));
}

INLINE bool type_has_min(uint32_t type)
{
	type = BASE(type);
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

TEMPLATE void unpack_q4(uint32_t type, const struct src *s, struct wgroup *o)
{
	vi h[4], z[4];

	if (type == SITS_Q4_0) {
		vi_load_t16(s->rows, 0, h);
		o->sc = vi_f16(h[0]);
	} else if (type == (SITS_PACKED | SITS_Q4_0)) {
		o->sc = src_scale(s);
	} else {
		src_load4(type, s, 0, h);
		o->sc = vi_f16(h[0]);
	}
	o->mn = BASE(type) == SITS_Q4_1 ? vi_f16(vi_srl(h[0], 16)) : v_zero();
	src_load4(type, s, unit_bytes(type) - 16, z);
	unpack_nibbles(z, o->w);
}

TEMPLATE void unpack_q5(uint32_t type, const struct src *s, struct wgroup *o)
{
	vi h[4], z[4], qh;

	if (type == (SITS_PACKED | SITS_Q5_0)) {
		src_load4(type, s, 2, h);
		qh = h[0];
		o->sc = src_scale(s);
		o->mn = v_zero();
	} else {
		src_load4(type, s, 0, h);
		o->sc = vi_f16(h[0]);
		o->mn = BASE(type) == SITS_Q5_1 ? vi_f16(vi_srl(h[0], 16)) : v_zero();
		qh = BASE(type) == SITS_Q5_1 ? h[1] : vi_or(vi_srl(h[0], 16), vi_sll(h[1], 16));
	}
	src_load4(type, s, unit_bytes(type) - 16, z);
	unpack_nibbles(z, o->w);
	UNROLL for (int j = 0; j < 8; j++)
		o->w[j] = vi_or_bit4(o->w[j], qh, j);
}

TEMPLATE void unpack_q8(uint32_t type, const struct src *s, struct wgroup *o)
{
	vi h[4];

	if (type & SITS_PACKED) {
		o->sc = src_scale(s);
	} else {
		vi_load_t16(s->rows, 0, h);
		o->sc = vi_f16(h[0]);
	}
	o->mn = v_zero();
	src_load4(type, s, 2, o->w);
	src_load4(type, s, 18, o->w + 4);
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

TEMPLATE void unpack_k45(uint32_t type, const struct src *s, struct wgroup *o)
{
	const bool five = BASE(type) == SITS_Q5_K;
	size_t qs = five ? 48 : 16;
	vi h[4], bits[8], z[8], low = vi_set1_8(15);

	src_load4(type, s, 0, h);
	unpack_k_scales(h, o);
	if (five) {
		src_load4(type, s, 16, bits);
		src_load4(type, s, 32, bits + 4);
	}
	UNROLL for (int i = 0; i < 4; i++) {
		src_load4(type, s, qs + 32 * (size_t)i, z);
		src_load4(type, s, qs + 32 * (size_t)i + 16, z + 4);
		UNROLL for (int j = 0; j < 8; j++) {
			vi lo = vi_and(z[j], low), hi = vi_and(vi_srl(z[j], 4), low);

			o[2 * i].w[j] = five ? or_bit(lo, bits[j], 2 * i) : lo;
			o[2 * i + 1].w[j] = five ? or_bit(hi, bits[j], 2 * i + 1) : hi;
		}
	}
}

/* Byte b of each lane, signed, as f32. */
#define LANE_S8(x, b) vi_to_f(vi_sra(vi_sll(x, 24 - 8 * (b)), 24))

/* Half h (four groups) of a Q6_K block. */
TEMPLATE void unpack_k6_half(uint32_t type, const struct src *s, size_t h, struct wgroup *o)
{
	vi ql[16], qh[8], low = vi_set1_8(15), two = vi_set1_8(0x30);

	for (size_t i = 0; i < 4; i++)
		src_load4(type, s, 64 * h + 16 * i, ql + 4 * i);
	src_load4(type, s, 128 + 32 * h, qh);
	src_load4(type, s, 144 + 32 * h, qh + 4);
	UNROLL for (int j = 0; j < 8; j++) {
		o[0].w[j] = vi_or(vi_and(ql[j], low), vi_and(vi_sll(qh[j], 4), two));
		o[1].w[j] = vi_or(vi_and(ql[8 + j], low), vi_and(vi_sll(qh[j], 2), two));
		o[2].w[j] = vi_or(vi_and(vi_srl(ql[j], 4), low), vi_and(qh[j], two));
		o[3].w[j] = vi_or(vi_and(vi_srl(ql[8 + j], 4), low), vi_and(vi_srl(qh[j], 2), two));
	}
}

TEMPLATE void unpack_k6(uint32_t type, const struct src *s, struct wgroup *o)
{
	vi sc[4], z[4];
	vf d;

	if (type & SITS_PACKED) {
		d = src_scale(s);
	} else {
		vi_load_t16(s->rows, 194, z);	/* d is the block's last half word */
		d = vi_f16(vi_srl(z[3], 16));
	}
	src_load4(type, s, 192, sc);
	UNROLL for (int i = 0; i < 4; i++) {
		o[2 * i].sc = v_mul(d, LANE_S8(sc[i], 0));
		o[2 * i].mn = v_mul(d, LANE_S8(sc[i], 1));
		o[2 * i + 1].sc = v_mul(d, LANE_S8(sc[i], 2));
		o[2 * i + 1].mn = v_mul(d, LANE_S8(sc[i], 3));
	}
	unpack_k6_half(type, s, 0, o);
	unpack_k6_half(type, s, 1, o + 4);
}

/* The next unit_groups(type) groups of the rows. */
TEMPLATE void unpack(uint32_t type, const struct src *s, struct wgroup *o)
{
	switch (BASE(type)) {
	case SITS_Q4_0:
	case SITS_Q4_1:
		unpack_q4(type, s, o);
		break;
	case SITS_Q5_0:
	case SITS_Q5_1:
		unpack_q5(type, s, o);
		break;
	case SITS_Q8_0:
		unpack_q8(type, s, o);
		break;
	case SITS_Q4_K:
	case SITS_Q5_K:
		unpack_k45(type, s, o);
		break;
	default:
		unpack_k6(type, s, o);
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
