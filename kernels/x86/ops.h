/* SPDX-License-Identifier: MIT */
/*
 * ops.h - template: norm, rotary positions, gated activation, addition.
 */
#ifndef SITS_KERNELS_X86_OPS_H
#define SITS_KERNELS_X86_OPS_H

#include "kernels/x86/exp.h"

INLINE float square_sum(const float *x, size_t C)
{
	vf a[4] = { v_zero(), v_zero(), v_zero(), v_zero() }, v;
	size_t c = 0;

	for (; c + 4 * VL <= C; c += 4 * VL) {
		UNROLL for (size_t i = 0; i < 4; i++) {
			v = v_load(x + c + i * VL);
			a[i] = v_fma(v, v, a[i]);
		}
	}
	for (; c + VL <= C; c += VL) {
		v = v_load(x + c);
		a[0] = v_fma(v, v, a[0]);
	}
	v = v_load_n(x + c, C - c);
	a[0] = v_fma(v, v, a[0]);
	return v_hsum(v_add(v_add(a[0], a[1]), v_add(a[2], a[3])));
}

void ISA(rmsnorm)(float *y, const float *x, const float *w, size_t T, size_t C, float eps)
{
	for (size_t t = 0; t < T; t++, x += C, y += C) {
		double mean = (double)square_sum(x, C) / (double)C + (double)eps;
		vf scale = v_set1((float)(1.0 / __builtin_sqrt(mean)));
		size_t c = 0;

		for (; c + VL <= C; c += VL)
			v_store(y + c, v_mul(v_mul(v_load(x + c), scale), v_load(w + c)));
		if (c < C)
			v_store_n(y + c, v_mul(v_mul(v_load_n(x + c, C - c), scale), v_load_n(w + c, C - c)), C - c);
	}
}

/*
 * Sine and cosine of VL / 2 angles. The angle is reduced in f64 to within pi / 4 of a multiple of
 * pi / 2; Taylor series to x^11 and x^12 (truncation below 1e-11), also in f64: what is stored as
 * f32 is off by no more than its rounding.
 */
INLINE void sincos_store(vd a, float *s, float *c)
{
	vd magic = vd_set1(0x1.8p52), n, r, r2, sp, cp;
	vi q;

	n = vd_fma(a, vd_set1(0x1.45f306dc9c883p-1), magic);	/* 2 / pi; the low bits are the quadrant */
	q = vd_bits(n);
	n = vd_sub(n, magic);
	r = vd_fma(n, vd_set1(-0x1.921fb54442d18p+0), a);	/* pi / 2, high and low part */
	r = vd_fma(n, vd_set1(-0x1.1a62633145c07p-54), r);
	r2 = vd_mul(r, r);
	sp = vd_set1(-1.0 / 39916800);
	sp = vd_fma(sp, r2, vd_set1(1.0 / 362880));
	sp = vd_fma(sp, r2, vd_set1(-1.0 / 5040));
	sp = vd_fma(sp, r2, vd_set1(1.0 / 120));
	sp = vd_fma(sp, r2, vd_set1(-1.0 / 6));
	sp = vd_fma(vd_mul(sp, r2), r, r);
	cp = vd_set1(1.0 / 479001600);
	cp = vd_fma(cp, r2, vd_set1(-1.0 / 3628800));
	cp = vd_fma(cp, r2, vd_set1(1.0 / 40320));
	cp = vd_fma(cp, r2, vd_set1(-1.0 / 720));
	cp = vd_fma(cp, r2, vd_set1(1.0 / 24));
	cp = vd_fma(cp, r2, vd_set1(-0.5));
	cp = vd_fma(cp, r2, vd_set1(1.0));
	/* Quadrant 1, 3: exchange. Sine is negative in 2, 3; cosine in 1, 2. */
	vd_store_f32(s, vd_flip(vd_select(sp, cp, vi_bit_to_sign64(q, 0)), vi_bit_to_sign64(q, 1)));
	vd_store_f32(c, vd_flip(vd_select(cp, sp, vi_bit_to_sign64(q, 0)),
				vi_bit_to_sign64(vi_add64(q, 1), 1)));
}

#define ROPE_PAIRS 64		/* angles computed at a time */

struct angles {
	float s[ROPE_PAIRS], c[ROPE_PAIRS];
	/* For adjacent pairs: -s0 s0 -s1 s1 ..., c0 c0 c1 c1 ... */
	float s2[2 * ROPE_PAIRS], c2[2 * ROPE_PAIRS];
};

INLINE void angles_init(struct angles *a, int32_t pos, const float *inv_freq, size_t n, int neox)
{
	float f[ROPE_PAIRS] = { 0 };

	memcpy(f, inv_freq, n * sizeof(float));
	for (size_t i = 0; i < n; i += VL / 2)
		sincos_store(vd_mul(vd_set1((double)pos), vd_from_f32(f + i)), a->s + i, a->c + i);
	for (size_t i = 0; i < n && !neox; i++) {
		a->s2[2 * i] = -a->s[i];
		a->s2[2 * i + 1] = a->s[i];
		a->c2[2 * i] = a->c[i];
		a->c2[2 * i + 1] = a->c[i];
	}
}

/* Pairs (x[i], y[i]), i < n. */
INLINE void rotate_split(float *x, float *y, const struct angles *a, size_t n)
{
	for (size_t i = 0; i < n; i += VL) {
		size_t left = n - i < VL ? n - i : VL;
		vf u = v_load_n(x + i, left), v = v_load_n(y + i, left);
		vf s = v_load(a->s + i), c = v_load(a->c + i);

		v_store_n(x + i, v_fma(u, c, v_neg(v_mul(v, s))), left);
		v_store_n(y + i, v_fma(u, s, v_mul(v, c)), left);
	}
}

/* Pairs (x[2 i], x[2 i + 1]), i < n. */
INLINE void rotate_adjacent(float *x, const struct angles *a, size_t n)
{
	for (size_t i = 0; i < 2 * n; i += VL) {
		size_t left = 2 * n - i < VL ? 2 * n - i : VL;
		vf u = v_load_n(x + i, left);

		u = v_fma(u, v_load(a->c2 + i), v_mul(v_swap_pairs(u), v_load(a->s2 + i)));
		v_store_n(x + i, u, left);
	}
}

void ISA(rope)(float *x, size_t ld, const int32_t *pos, const float *inv_freq, size_t T, size_t H, size_t D,
	       size_t R, int neox)
{
	struct angles a = { { 0 }, { 0 }, { 0 }, { 0 } };

	for (size_t t = 0; t < T; t++) {
		for (size_t i = 0; i < R / 2; i += ROPE_PAIRS) {
			size_t n = R / 2 - i < ROPE_PAIRS ? R / 2 - i : ROPE_PAIRS;

			angles_init(&a, pos[t], inv_freq + i, n, neox);
			for (size_t h = 0; h < H; h++) {
				float *v = x + t * ld + h * D;

				if (neox)
					rotate_split(v + i, v + R / 2 + i, &a, n);
				else
					rotate_adjacent(v + 2 * i, &a, n);
			}
		}
	}
}

INLINE vf silu(vf a)
{
	return v_div(a, v_add(v_set1(1.0f), v_exp(v_neg(a))));
}

void ISA(silu_mul)(float *y, const float *a, const float *b, size_t n)
{
	size_t i = 0;

	for (; i + VL <= n; i += VL)
		v_store(y + i, v_mul(silu(v_load(a + i)), v_load(b + i)));
	if (i < n)
		v_store_n(y + i, v_mul(silu(v_load_n(a + i, n - i)), v_load_n(b + i, n - i)), n - i);
}

void ISA(add)(float *y, const float *x, size_t n)
{
	size_t i = 0;

	for (; i + VL <= n; i += VL)
		v_store(y + i, v_add(v_load(y + i), v_load(x + i)));
	if (i < n)
		v_store_n(y + i, v_add(v_load_n(y + i, n - i), v_load_n(x + i, n - i)), n - i);
}

void ISA(add_scaled)(float *y, const float *x, float a, size_t n)
{
	const vf va = v_set1(a);
	size_t i = 0;

	for (; i + VL <= n; i += VL)
		v_store(y + i, v_fma(va, v_load(x + i), v_load(y + i)));
	if (i < n)
		v_store_n(y + i, v_fma(va, v_load_n(x + i, n - i), v_load_n(y + i, n - i)), n - i);
}

#endif
