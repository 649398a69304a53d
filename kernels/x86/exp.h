/* SPDX-License-Identifier: MIT */
/*
 * exp.h - template: e^x for a vector.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series to r^7 (truncation below 6e-9
 * relative), then times 2^n. Within 2 units in the last place of the true value (measured: see
 * ops_test.c); exactly 1 at 0. Overflows to Inf, underflows gradually to 0, NaN stays NaN.
 */
#ifndef SITS_KERNELS_X86_EXP_H
#define SITS_KERNELS_X86_EXP_H

INLINE vf v_exp(vf x)
{
	vf n, r, p;

	x = v_max(v_set1(-110.0f), v_min(v_set1(90.0f), x));
	n = v_round(v_mul(x, v_set1(0x1.715476p+0f)));		/* log2 e */
	r = v_fma(n, v_set1(-0x1.62e43p-1f), x);		/* ln 2, high and low part */
	r = v_fma(n, v_set1(0x1.05c61p-29f), r);
	p = v_set1(1.0f / 5040);
	p = v_fma(p, r, v_set1(1.0f / 720));
	p = v_fma(p, r, v_set1(1.0f / 120));
	p = v_fma(p, r, v_set1(1.0f / 24));
	p = v_fma(p, r, v_set1(1.0f / 6));
	p = v_fma(p, r, v_set1(0.5f));
	p = v_fma(p, r, v_set1(1.0f));
	p = v_fma(p, r, v_set1(1.0f));
	return v_scale2(p, n);
}

/*
 * 2^y for y <= 0, as the softmax needs it: below 2^-126.5 it is 0. (2^r - 1) / r for |r| <= 1/2 is a polynomial of
 * degree 5 through the Chebyshev nodes (off by 5e-9 of 2^r); exactly 1 at 0, within 1 unit in the last place elsewhere.
 * NaN stays NaN.
 */
INLINE vf v_exp2(vf y)
{
	vf magic = v_set1(0x1.8p23f + 127), n, r, p;	/* its low bits are then the exponent's field */

	y = v_max(v_set1(-127.0f), y);
	n = v_add(y, magic);
	r = v_sub(y, v_sub(n, magic));
	p = v_set1(0x1.44138ap-13f);
	p = v_fma(p, r, v_set1(0x1.5f0890p-10f));
	p = v_fma(p, r, v_set1(0x1.3b2a54p-7f));
	p = v_fma(p, r, v_set1(0x1.c6af6cp-5f));
	p = v_fma(p, r, v_set1(0x1.ebfbe0p-3f));
	p = v_fma(p, r, v_set1(0x1.62e430p-1f));
	p = v_fma(p, r, v_set1(1.0f));
	return v_mul(p, v_from_bits(vi_sll(v_bits(n), 23)));
}

#endif
