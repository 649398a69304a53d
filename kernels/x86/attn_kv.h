/* SPDX-License-Identifier: MIT */
/*
 * attn_kv.h - template: how keys and values lie in a page, and their store.
 *
 * A page's part of a layer, P = 32 tokens; elements are f16, f32 or signed bytes, the latter with scales:
 *
 *	| K [G][Dk][P] | V [G][P][Dv] | scales f32: K [G][P] | V [G][P] |
 *	| K [G][P][Dk] |              | scales f32: K [G][P] |			values in keys
 *
 * Keys lie with tokens side by side, so a lane of a dot product is a token and nothing is added across lanes.
 * Where values lie in keys, one form has to serve both products; then a lane is a place in Dk.
 */
#ifndef SITS_KERNELS_X86_ATTN_KV_H
#define SITS_KERNELS_X86_ATTN_KV_H

#include "kernels/kv_i8.h"

#define P SITS_KV_PAGE_TOKENS

/* Where a head's elements lie in a page, and a page ahead to prefetch. */
struct head {
	const uint8_t *k, *v;
	const float *ks, *vs;	/* scales, where elements are bytes */
	const uint8_t *k_ahead, *v_ahead;
};

INLINE size_t elem_bytes(uint32_t kind)
{
	return kind == SITS_KV_F32 ? 4 : kind == SITS_KV_I8 ? 1 : 2;
}

static size_t k_head_bytes(const struct sits_kv_shape *s)
{
	return P * s->Dk * elem_bytes(s->kind);
}

static size_t v_head_bytes(const struct sits_kv_shape *s)
{
	return s->v_in_k ? 0 : P * s->Dv * elem_bytes(s->kind);
}

static size_t scales_at(const struct sits_kv_shape *s)
{
	return s->G * (k_head_bytes(s) + v_head_bytes(s));
}

size_t ISA(kv_layer_bytes)(const struct sits_kv_shape *s)
{
	size_t scales = s->kind == SITS_KV_I8 ? s->G * P * sizeof(float) * (s->v_in_k ? 1 : 2) : 0;

	return (scales_at(s) + scales + 63) / 64 * 64;
}

static struct head head_at(const struct sits_kv_shape *s, const uint8_t *layer, size_t g)
{
	struct head h;

	h.k = h.k_ahead = layer + g * k_head_bytes(s);
	h.v = h.v_ahead = s->v_in_k ? h.k : layer + s->G * k_head_bytes(s) + g * v_head_bytes(s);
	h.ks = (const float *)(layer + scales_at(s)) + g * P;
	h.vs = s->v_in_k ? h.ks : h.ks + s->G * P;
	return h;
}

/* VL elements from element i on. kind is constant. */
INLINE vf load_kv(uint32_t kind, const uint8_t *p, size_t i)
{
	if (kind == SITS_KV_F32)
		return v_load((const float *)p + i);
	return kind == SITS_KV_I8 ? v_load_i8(p + i) : v_load_f16(p + 2 * i);
}

/* x[D] as bytes; returns the scale. */
static float to_i8(int8_t *out, const float *x, size_t D)
{
	vi top = vi_zero();
	float most, scale;
	vf inverse;

	for (size_t d = 0; d < D; d += VL)
		top = vi_max(top, vi_and(v_bits(v_load(x + d)), vi_set1(0x7fffffff)));
	most = sits_bits_f32((uint32_t)vi_hmax(top));
	if (!(most >= SITS_KV_I8_TINY && most < INFINITY)) {
		memset(out, 0, D);
		return most < SITS_KV_I8_TINY ? 0 : NAN;
	}
	scale = most / (float)SITS_KV_I8_MAX;
	inverse = v_set1(1.0f / scale);
	for (size_t d = 0; d < D; d += VL)
		vi_store_low8(out + d, v_to_i(v_mul(v_load(x + d), inverse)));
	return scale;
}

/* One head's key: with tokens side by side, or in a row. */
static void store_key(const struct sits_kv_shape *s, uint8_t *k, size_t slot, const float *x, float *scale)
{
	uint16_t h[1024];
	int8_t b[1024];

	if (s->kind == SITS_KV_F32 && s->v_in_k) {
		memcpy((float *)k + slot * s->Dk, x, s->Dk * sizeof(float));
		return;
	}
	if (s->kind == SITS_KV_F32) {
		for (size_t d = 0; d < s->Dk; d++)
			((float *)k)[d * P + slot] = x[d];
		return;
	}
	if (s->kind == SITS_KV_I8) {
		*scale = to_i8(b, x, s->Dk);
		if (s->v_in_k) {
			memcpy(k + slot * s->Dk, b, s->Dk);
			return;
		}
		for (size_t d = 0; d < s->Dk; d++)
			k[d * P + slot] = (uint8_t)b[d];
		return;
	}
	for (size_t d = 0; d < s->Dk; d += VL)
		v_store_f16(h + d, v_load(x + d));
	if (s->v_in_k) {
		memcpy((uint16_t *)k + slot * s->Dk, h, s->Dk * sizeof(uint16_t));
		return;
	}
	for (size_t d = 0; d < s->Dk; d++)
		((uint16_t *)k)[d * P + slot] = h[d];
}

static void store_value(const struct sits_kv_shape *s, uint8_t *v, size_t slot, const float *x, float *scale)
{
	if (s->kind == SITS_KV_I8) {
		*scale = to_i8((int8_t *)v + slot * s->Dv, x, s->Dv);
		return;
	}
	if (s->kind == SITS_KV_F32) {
		memcpy((float *)v + slot * s->Dv, x, s->Dv * sizeof(float));
		return;
	}
	for (size_t d = 0; d < s->Dv; d += VL)
		v_store_f16((uint16_t *)v + slot * s->Dv + d, v_load(x + d));
}

void ISA(kv_store)(const struct sits_kv_shape *s, void *layer, size_t slot, const float *k, const float *v)
{
	float *scales = (float *)((uint8_t *)layer + scales_at(s)) + slot;
	uint8_t *part = layer;

	for (size_t g = 0; g < s->G; g++)
		store_key(s, part + g * k_head_bytes(s), slot, k + g * s->Dk, scales + g * P);
	part += s->G * k_head_bytes(s);
	for (size_t g = 0; g < s->G && !s->v_in_k; g++)
		store_value(s, part + g * v_head_bytes(s), slot, v + g * s->Dv, scales + (s->G + g) * P);
}

void ISA(kv_copy)(const struct sits_kv_shape *s, void *to, size_t to_cell, const void *from, size_t from_cell)
{
	const size_t k = k_head_bytes(s), v = v_head_bytes(s), scales = P * sizeof(float);
	const uint8_t *src = from;
	uint8_t *dst = to;

	memcpy(dst + to_cell * k, src + from_cell * k, k);
	src += s->G * k;
	dst += s->G * k;
	memcpy(dst + to_cell * v, src + from_cell * v, v);
	src += s->G * v;
	dst += s->G * v;
	if (s->kind != SITS_KV_I8)
		return;
	memcpy(dst + to_cell * scales, src + from_cell * scales, scales);
	if (!s->v_in_k)
		memcpy(dst + (s->G + to_cell) * scales, src + (s->G + from_cell) * scales, scales);
}

#endif
