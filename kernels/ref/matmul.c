// SPDX-License-Identifier: MIT
/*
 * matmul.c - reference: weights to f32, activations to their prepared form, and the product.
 *
 * Quantised weights meet activations quantised to 16 bits in groups of 32, summed as quant.h
 * lays down. F32, F16 and BF16 weights meet f32 activations, summed in double.
 */
#include <math.h>
#include <string.h>

#include "kernels/backends.h"
#include "kernels/quant.h"
#include "kernels/ref/ref.h"

static float load_float(uint32_t wtype, const uint8_t *row, size_t k)
{
	uint32_t bits;

	switch (wtype) {
	case SITS_F32:
		bits = sits_ld32(row + 4 * k);
		return sits_bits_f32(bits);
	case SITS_F16:
		return sits_ld_f16(row + 2 * k);
	default:
		return sits_bf16_to_f32(sits_ld16(row + 2 * k));
	}
}

void sits_ref_dequant(uint32_t wtype, const void *src, float *dst, size_t n)
{
	struct sits_group g;

	if (!sits_dtype_is_quant(wtype)) {
		for (size_t k = 0; k < n; k++)
			dst[k] = load_float(wtype, src, k);
		return;
	}
	for (size_t i = 0; i < n / SITS_QG; i++) {
		sits_group_load(wtype, src, i, &g);
		sits_group_dequant(&g, dst + i * SITS_QG);
	}
}

size_t sits_ref_act_row_bytes(uint32_t wtype, size_t K)
{
	return sits_cpu_act_row_bytes(wtype, K);
}

uint32_t sits_ref_act_class(uint32_t wtype)
{
	return sits_cpu_act_class(wtype);
}

/* Symmetric: d = max |x| / SITS_Q16_MAX, xq = x / d rounded to nearest even. */
static void quantise(const float *x, struct sits_q16 *out)
{
	uint32_t top = 0;
	int half[2] = { 0, 0 }, sum;
	float id;

	memset(out, 0, sizeof(*out));
	for (int i = 0; i < SITS_QG; i++) {	/* as integers, NaN > Inf > any number */
		uint32_t a = sits_f32_bits(x[i]) & 0x7fffffff;

		top = a > top ? a : top;
	}
	if (top >= 0x7f800000) {
		out->d = NAN;
		out->s = NAN;
		return;
	}
	if (sits_bits_f32(top) < SITS_Q16_TINY)
		return;
	out->d = sits_bits_f32(top) / (float)SITS_Q16_MAX;
	id = 1.0f / out->d;
	for (int i = 0; i < SITS_QG; i++) {
		int xq = (int)lrintf(x[i] * id);

		out->hi[i] = (int8_t)((xq + 64) >> 7);
		out->lo[i] = (int8_t)(xq - out->hi[i] * 128);
		half[i / 16] += xq;
	}
	sum = half[0] + half[1];
	out->s = out->d * (float)sum;
	out->off8 = -8 * sum;
	out->off16 = -16 * sum;
	out->off128 = -128 * sum;
	out->off32[0] = -32 * half[0];
	out->off32[1] = -32 * half[1];
}

/* One scale for all of a token: d = max |x| / SITS_Q8_MAX, xq = x / d rounded to nearest even. */
static void quantise_row(const float *x, size_t K, struct sits_q8_head *out, size_t row_bytes)
{
	int8_t *q = (int8_t *)(out + 1);
	uint32_t top = 0;
	int32_t sum = 0;
	float id;

	memset(out, 0, row_bytes);
	for (size_t k = 0; k < K; k++) {
		uint32_t a = sits_f32_bits(x[k]) & 0x7fffffff;

		top = a > top ? a : top;
	}
	if (top >= 0x7f800000)
		out->d = NAN;
	if (top >= 0x7f800000 || sits_bits_f32(top) < SITS_Q16_TINY)
		return;
	out->d = sits_bits_f32(top) / (float)SITS_Q8_MAX;
	id = 1.0f / out->d;
	for (size_t k = 0; k < K; k++) {
		q[k] = (int8_t)lrintf(x[k] * id);
		sum += q[k];
	}
	out->off128 = -128 * sum;
}

void sits_ref_act_prepare(uint32_t wtype, const float *x, size_t ldx, size_t T, size_t K, void *out)
{
	size_t row = sits_cpu_act_row_bytes(wtype, K);

	for (size_t t = 0; t < T; t++) {
		uint8_t *o = (uint8_t *)out + t * row;

		if (sits_cpu_act_class(wtype) == SITS_ACT_Q8) {
			quantise_row(x + t * ldx, K, (struct sits_q8_head *)o, row);
			continue;
		}
		if (!sits_dtype_is_quant(wtype)) {
			memcpy(o, x + t * ldx, K * sizeof(float));
			memset(o + K * sizeof(float), 0, row - K * sizeof(float));
			continue;
		}
		for (size_t g = 0; g < K / SITS_QG; g++)
			quantise(x + t * ldx + g * SITS_QG, (struct sits_q16 *)o + g);
	}
}

static float add_group(float acc, const struct sits_group *w, const struct sits_q16 *x)
{
	int dot[2] = { 0, 0 };

	for (int i = 0; i < 16; i++) {
		dot[0] += (w->q[i] - w->off) * (x->hi[i] * 128 + x->lo[i]);
		dot[1] += (w->q[i + 16] - w->off) * (x->hi[i + 16] * 128 + x->lo[i + 16]);
	}
	if (w->off == 32) {	/* Q6_K: the halves have scales of their own */
		acc = fmaf((float)dot[0], w->sc[0] * x->d, acc);
		return fmaf((float)dot[1], w->sc[1] * x->d, acc);
	}
	acc = fmaf((float)(dot[0] + dot[1]), w->sc[0] * x->d, acc);
	return w->has_min ? fmaf(w->mn, x->s, acc) : acc;
}

static const void *act_row(const struct sits_matmul *mm, size_t t)
{
	return (const uint8_t *)mm->x + (mm->x_row ? mm->x_row[t] : t) * mm->x_row_bytes;
}

static void row_quant(const struct sits_matmul *mm, const uint8_t *w, size_t n)
{
	struct sits_group g;

	for (size_t t = 0; t < mm->T; t++)
		mm->y[t * mm->ldy + n] = 0;
	for (size_t i = 0; i < mm->K / SITS_QG; i++) {
		sits_group_load(mm->wtype, w, i, &g);
		for (size_t t = 0; t < mm->T; t++) {
			const struct sits_q16 *x = act_row(mm, t);
			float *y = &mm->y[t * mm->ldy + n];

			*y = add_group(*y, &g, x + i);
		}
	}
}

static void row_i8c(const struct sits_matmul *mm, const uint8_t *w, size_t n)
{
	struct sits_group g;

	for (size_t t = 0; t < mm->T; t++) {
		const struct sits_q8_head *x = act_row(mm, t);
		const int8_t *xq = (const int8_t *)(x + 1);
		int32_t sum = 0;

		for (size_t k = 0; k < mm->K; k++) {
			if (k % SITS_QG == 0)
				sits_group_load(mm->wtype, w, k / SITS_QG, &g);
			sum += (g.q[k % SITS_QG] - g.off) * xq[k];
		}
		mm->y[t * mm->ldy + n] = (float)sum * (g.sc[0] * x->d);
	}
}

static void row_float(const struct sits_matmul *mm, const uint8_t *w, size_t n)
{
	for (size_t t = 0; t < mm->T; t++) {
		const float *x = act_row(mm, t);
		double sum = 0;

		for (size_t k = 0; k < mm->K; k++)
			sum += (double)load_float(mm->wtype, w, k) * (double)x[k];
		mm->y[t * mm->ldy + n] = (float)sum;
	}
}

void sits_ref_matmul(const struct sits_matmul *mm)
{
	for (size_t n = mm->n0; mm->T && n < mm->n1; n++) {
		const uint8_t *w = sits_dtype_row(mm->wtype, mm->w, mm->w_row_bytes, n);

		if (sits_cpu_act_class(mm->wtype) == SITS_ACT_Q8)
			row_i8c(mm, w, n);
		else if (sits_dtype_is_quant(mm->wtype))
			row_quant(mm, w, n);
		else
			row_float(mm, w, n);
	}
}

void sits_ref_matmul_grouped(const struct sits_matmul *mm, const struct sits_matmul_group *group, size_t nr_groups)
{
	for (size_t i = 0; i < nr_groups; i++) {
		struct sits_matmul one = sits_matmul_of_group(mm, &group[i]);

		sits_ref_matmul(&one);
	}
}
