/* SPDX-License-Identifier: MIT */
/*
 * prepare.h - template: activations to their prepared form, weights back to f32.
 *
 * Bit for bit what the reference does (ref/matmul.c, quant.h).
 */
#ifndef SITS_KERNELS_X86_PREPARE_H
#define SITS_KERNELS_X86_PREPARE_H

#include "kernels/quant.h"

#define NV (SITS_QG / VL)

/* One group of 32; the same steps as the reference's. */
INLINE void quantise(const float *x, struct sits_q16 *out)
{
	vi top = vi_zero(), sum[2] = { vi_zero(), vi_zero() };
	vf v[NV], id;
	float most;
	int half[2];

	UNROLL for (int i = 0; i < NV; i++) {
		v[i] = v_load(x + i * VL);
		top = vi_max(top, vi_and(v_bits(v[i]), vi_set1(0x7fffffff)));
	}
	most = sits_bits_f32((uint32_t)vi_hmax(top));
	if (!(most >= SITS_Q16_TINY && most < INFINITY)) {
		memset(out, 0, sizeof(*out));
		if (!(most < SITS_Q16_TINY)) {
			out->d = NAN;
			out->s = NAN;
		}
		return;
	}
	out->d = most / (float)SITS_Q16_MAX;
	id = v_set1(1.0f / out->d);
	UNROLL for (int i = 0; i < NV; i++) {
		vi q = v_to_i(v_mul(v[i], id));

		vi up = vi_add(q, vi_set1(64));

		vi_store_low8(out->hi + i * VL, vi_sra(up, 7));
		vi_store_low8(out->lo + i * VL, vi_add(vi_and(up, vi_set1(127)), vi_set1(-64)));
		sum[i * VL / 16] = vi_add(sum[i * VL / 16], q);
	}
	half[0] = vi_hsum(sum[0]);
	half[1] = vi_hsum(sum[1]);
	out->s = out->d * (float)(half[0] + half[1]);
	out->off8 = -8 * (half[0] + half[1]);
	out->off16 = -16 * (half[0] + half[1]);
	out->off128 = -128 * (half[0] + half[1]);
	out->off32[0] = -32 * half[0];
	out->off32[1] = -32 * half[1];
	memset(out->zero, 0, sizeof(out->zero));
}

/* A whole row with one scale. K is a multiple of 32. */
static void quantise_row(const float *x, size_t K, struct sits_q8_head *out, size_t row_bytes)
{
	int8_t *q = (int8_t *)(out + 1);
	vi top = vi_zero(), sum = vi_zero();
	float most;
	vf id;

	for (size_t k = 0; k < K; k += VL)
		top = vi_max(top, vi_and(v_bits(v_load(x + k)), vi_set1(0x7fffffff)));
	most = sits_bits_f32((uint32_t)vi_hmax(top));
	if (!(most >= SITS_Q16_TINY && most < INFINITY)) {
		memset(out, 0, row_bytes);
		if (!(most < SITS_Q16_TINY))
			out->d = NAN;
		return;
	}
	memset(out, 0, sizeof(*out));
	out->d = most / (float)SITS_Q8_MAX;
	id = v_set1(1.0f / out->d);
	for (size_t k = 0; k < K; k += VL) {
		vi v = v_to_i(v_mul(v_load(x + k), id));

		vi_store_low8(q + k, v);
		sum = vi_add(sum, v);
	}
	memset(q + K, 0, row_bytes - sizeof(*out) - K);
	out->off128 = -128 * vi_hsum(sum);
}

void ISA(act_prepare)(uint32_t wtype, const float *x, size_t ldx, size_t T, size_t K, void *out)
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

static void dequant_float(uint32_t wtype, const uint8_t *src, float *dst, size_t n)
{
	size_t k = 0;

	if (wtype == SITS_F32) {
		memcpy(dst, src, n * sizeof(float));
		return;
	}
	for (; k + VL <= n; k += VL)
		v_store(dst + k, wtype == SITS_F16 ? v_load_f16(src + 2 * k) : v_load_bf16(src + 2 * k));
	if (k < n)
		v_store_n(dst + k, wtype == SITS_F16 ? v_load_f16_n(src + 2 * k, n - k) :
			  v_load_bf16_n(src + 2 * k, n - k), n - k);
}

void ISA(dequant)(uint32_t wtype, const void *src, float *dst, size_t n)
{
	struct sits_group g;

	if (!sits_dtype_is_quant(wtype)) {
		dequant_float(wtype, src, dst, n);
		return;
	}
	for (size_t i = 0; i < n / SITS_QG; i++, dst += SITS_QG) {
		sits_group_load(wtype, src, i, &g);
		UNROLL for (int j = 0; j < NV; j++) {
			vf q = v_sub(v_from_u8(g.q + j * VL), v_set1((float)g.off));
			vf v = v_mul(v_set1(g.sc[j * VL / 16]), q);

			v_store(dst + j * VL, g.has_min ? v_add(v, v_set1(g.mn)) : v);
		}
	}
}

#endif
