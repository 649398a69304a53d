// SPDX-License-Identifier: MIT
/*
 * attn.c - reference: causal grouped-query attention over paged keys and values.
 *
 * A page's part of a layer; elements are f16, f32 or signed bytes, the latter with scales:
 *
 *	| K [G][P][Dk] | V [G][P][Dv], where not in K | scales f32: K [G][P] | V [G][P] |
 *
 * One task is one query row of one head: softmax in the plain three passes (largest, exponentials,
 * weighted sum), sums in double.
 */
#include <math.h>

#include "kernels/dropout.h"
#include "kernels/kv_i8.h"
#include "kernels/ref/ref.h"

#define P SITS_KV_PAGE_TOKENS

static size_t elem_bytes(const struct sits_kv_shape *s)
{
	return s->kind == SITS_KV_F32 ? sizeof(float) : s->kind == SITS_KV_I8 ? sizeof(int8_t) : sizeof(uint16_t);
}

/* Where the parts begin. */
struct layout {
	size_t v, k_scale, v_scale, end;
};

static struct layout layout_of(const struct sits_kv_shape *s)
{
	size_t Dv = s->v_in_k ? 0 : s->Dv, scales = s->kind == SITS_KV_I8 ? s->G * P * sizeof(float) : 0;
	struct layout l;

	l.v = s->G * P * s->Dk * elem_bytes(s);
	l.k_scale = l.v + s->G * P * Dv * elem_bytes(s);
	l.v_scale = l.k_scale + scales;
	l.end = l.v_scale + (s->v_in_k ? 0 : scales);
	return l;
}

size_t sits_ref_kv_layer_bytes(const struct sits_kv_shape *s)
{
	return (layout_of(s).end + 63) / 64 * 64;
}

/* D elements to place `at`, their scale to place `at` of scales. */
static void store(const struct sits_kv_shape *s, void *elems, void *scales, size_t at, const float *x, size_t D)
{
	float inverse;

	if (s->kind == SITS_KV_F32) {
		memcpy((float *)elems + at * D, x, D * sizeof(float));
		return;
	}
	if (s->kind == SITS_KV_F16) {
		for (size_t d = 0; d < D; d++)
			((uint16_t *)elems)[at * D + d] = sits_f32_to_f16(x[d]);
		return;
	}
	((float *)scales)[at] = sits_kv_i8_scale(x, D, &inverse);
	for (size_t d = 0; d < D; d++)
		((int8_t *)elems)[at * D + d] = sits_kv_i8_round(x[d], inverse);
}

void sits_ref_kv_store(const struct sits_kv_shape *s, void *layer, size_t slot, const float *k, const float *v)
{
	struct layout l = layout_of(s);
	uint8_t *part = layer;

	for (size_t g = 0; g < s->G; g++) {
		store(s, part, part + l.k_scale, g * P + slot, k + g * s->Dk, s->Dk);
		if (!s->v_in_k)
			store(s, part + l.v, part + l.v_scale, g * P + slot, v + g * s->Dv, s->Dv);
	}
}

void sits_ref_kv_copy(const struct sits_kv_shape *s, void *to, size_t to_cell, const void *from, size_t from_cell)
{
	const size_t k = P * s->Dk * elem_bytes(s), v = s->v_in_k ? 0 : P * s->Dv * elem_bytes(s);
	const size_t scales = s->kind == SITS_KV_I8 ? P * sizeof(float) : 0, v_scales = s->v_in_k ? 0 : scales;
	const struct layout l = layout_of(s);
	const uint8_t *src = from;
	uint8_t *dst = to;

	memcpy(dst + to_cell * k, src + from_cell * k, k);
	memcpy(dst + l.v + to_cell * v, src + l.v + from_cell * v, v);
	memcpy(dst + l.k_scale + to_cell * scales, src + l.k_scale + from_cell * scales, scales);
	memcpy(dst + l.v_scale + to_cell * v_scales, src + l.v_scale + from_cell * v_scales, v_scales);
}

static double load(const struct sits_kv_shape *s, const void *elems, const void *scales, size_t at, size_t D, size_t d)
{
	if (s->kind == SITS_KV_F32)
		return (double)((const float *)elems)[at * D + d];
	if (s->kind == SITS_KV_F16)
		return (double)sits_f16_to_f32(((const uint16_t *)elems)[at * D + d]);
	return (double)((const float *)scales)[at] * ((const int8_t *)elems)[at * D + d];
}

size_t sits_ref_attn_tasks(const struct sits_attn *a)
{
	size_t rows = 0;

	for (size_t s = 0; s < a->nr_seq; s++)
		rows += a->seq[s].nr;
	return rows * a->H;
}

/* A score for each position of the longest row, and Dv sums. */
size_t sits_ref_attn_scratch_bytes(const struct sits_attn *a)
{
	size_t len = 0;

	for (size_t s = 0; s < a->nr_seq; s++) {
		size_t end = a->seq[s].pos0 + a->seq[s].nr;

		len = end > len ? end : len;
	}
	return ((len + a->shape.Dv) * sizeof(double) + 63) / 64 * 64;
}

size_t sits_ref_attn_work_bytes(const struct sits_attn *a)
{
	return 0;
}

/* This layer's part of the page that holds position pos for head g, and its cell there; NULL where it is absent. */
static const uint8_t *part_at(const struct sits_attn *a, const struct sits_attn_seq *s, size_t g, size_t pos, size_t *cell)
{
	uint32_t entry = s->pages[g * s->head_stride + pos / P], page = entry;

	if (entry == SITS_KV_ABSENT)
		return NULL;
	*cell = g;
	if (s->head_stride) {
		page = entry / a->shape.G;
		*cell = entry % a->shape.G;
	}
	return (const uint8_t *)a->kv + page * a->page_bytes + a->layer_off;
}

static double score(const struct sits_attn *a, const uint8_t *part, size_t at, const float *q)
{
	struct layout l = layout_of(&a->shape);
	double dot = 0;

	for (size_t d = 0; d < a->shape.Dk; d++)
		dot += (double)q[d] * load(&a->shape, part, part + l.k_scale, at, a->shape.Dk, d);
	return dot * (double)a->scale;
}

static void add_value(const struct sits_attn *a, const uint8_t *part, size_t at, double p, double *sum)
{
	const struct sits_kv_shape *s = &a->shape;
	struct layout l = layout_of(s);

	for (size_t d = 0; d < s->Dv; d++)
		sum[d] += p * (s->v_in_k ? load(s, part, part + l.k_scale, at, s->Dk, d) :
			       load(s, part + l.v, part + l.v_scale, at, s->Dv, d));
}

/* Row i of sequence s, query head h. */
static void attend(const struct sits_attn *a, const struct sits_attn_seq *s, size_t i, size_t h,
		   double *scratch)
{
	size_t Dk = a->shape.Dk, Dv = a->shape.Dv, len = s->pos0 + i + 1, g = h / (a->H / a->shape.G);
	size_t from = a->window && a->window < len ? len - a->window : 0, seen = 0, row = (s->row0 + i) * a->H + h;
	double *p = scratch, *sum = scratch + len, top = -INFINITY, total = 0, ps = 0;
	size_t cell;

	for (size_t j = from; j < len; j++) {
		const uint8_t *part = part_at(a, s, g, j, &cell);

		if (!part)
			continue;
		p[j] = score(a, part, cell * P + j % P, a->q + row * Dk);
		top = p[j] > top || !seen ? p[j] : top;
		seen++;
	}
	for (size_t d = 0; d < Dv; d++)
		sum[d] = 0;
	for (size_t j = from; j < len; j++) {
		const uint8_t *part = part_at(a, s, g, j, &cell);
		double e;

		if (!part)
			continue;
		e = exp(p[j] - top);
		total += e;
		ps += e > 0 ? e * (p[j] - top) : e;	/* 0 log 0 is 0 */
		if (a->dropout) {
			float f[4];

			sits_dropout_factors(a->dropout, j / 4 * 4, len - 1, (size_t)(s - a->seq) * a->H + h, f);
			e *= (double)f[j % 4];
		}
		add_value(a, part, cell * P + j % P, e, sum);
	}
	for (size_t d = 0; d < Dv; d++)
		a->y[row * Dv + d] = seen ? (float)(sum[d] / total) : 0;
	if (a->entropy)
		a->entropy[row] = seen ? (float)(log(total) - ps / total) : 0;
}

void sits_ref_attn(const struct sits_attn *a, size_t t0, size_t t1, void *scratch)
{
	const struct sits_attn_seq *s = a->seq;
	size_t first = 0;	/* the first task of s */

	for (size_t t = t0; t < t1; t++) {
		while (t - first >= s->nr * a->H) {
			first += s->nr * a->H;
			s++;
		}
		attend(a, s, (t - first) / a->H, (t - first) % a->H, scratch);
	}
}
