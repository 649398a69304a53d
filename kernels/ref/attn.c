// SPDX-License-Identifier: MIT
/*
 * attn.c - reference: causal grouped-query attention over paged keys and values.
 *
 * Keys and values are kept as f16, rounded to nearest even. A page's part of a layer:
 *
 *	| K [G][P][D] f16 | V [G][P][D] f16 |
 *
 * One task is one query row of one head: softmax in the plain three passes (largest, exponentials,
 * weighted sum), sums in double.
 */
#include <math.h>

#include "kernels/half.h"
#include "kernels/ref/ref.h"

#define P SITS_KV_PAGE_TOKENS

size_t sits_ref_kv_layer_bytes(size_t G, size_t D)
{
	return 2 * G * P * D * sizeof(uint16_t);
}

void sits_ref_kv_store(void *layer, size_t slot, const float *k, const float *v, size_t G, size_t D)
{
	uint16_t *kp = layer, *vp = kp + G * P * D;

	for (size_t g = 0; g < G; g++) {
		for (size_t d = 0; d < D; d++) {
			kp[(g * P + slot) * D + d] = sits_f32_to_f16(k[g * D + d]);
			vp[(g * P + slot) * D + d] = sits_f32_to_f16(v[g * D + d]);
		}
	}
}

size_t sits_ref_attn_tasks(const struct sits_attn *a)
{
	size_t rows = 0;

	for (size_t s = 0; s < a->nr_seq; s++)
		rows += a->seq[s].nr;
	return rows * a->H;
}

/* A weight for each position of the longest row, and D sums. */
size_t sits_ref_attn_scratch_bytes(const struct sits_attn *a)
{
	size_t len = 0;

	for (size_t s = 0; s < a->nr_seq; s++) {
		size_t end = a->seq[s].pos0 + a->seq[s].nr;

		len = end > len ? end : len;
	}
	return ((len + a->D) * sizeof(double) + 63) / 64 * 64;
}

static const uint16_t *slot_at(const struct sits_attn *a, const struct sits_attn_seq *s, size_t g,
			       size_t pos, bool value)
{
	const uint8_t *page = (const uint8_t *)a->kv + s->pages[pos / P] * a->page_bytes + a->layer_off;
	size_t row = ((value ? a->G : 0) + g) * P + pos % P;

	return (const uint16_t *)page + row * a->D;
}

/* Row i of sequence s, query head h. */
static void attend(const struct sits_attn *a, const struct sits_attn_seq *s, size_t i, size_t h,
		   double *scratch)
{
	size_t D = a->D, len = s->pos0 + i + 1, g = h / (a->H / a->G);
	const float *q = a->q + ((s->row0 + i) * a->H + h) * D;
	float *y = a->y + ((s->row0 + i) * a->H + h) * D;
	double *p = scratch, *sum = scratch + len, top = -INFINITY, total = 0;

	for (size_t j = 0; j < len; j++) {
		const uint16_t *k = slot_at(a, s, g, j, false);
		double dot = 0;

		for (size_t d = 0; d < D; d++)
			dot += (double)q[d] * (double)sits_f16_to_f32(k[d]);
		p[j] = dot * (double)a->scale;
		top = p[j] > top ? p[j] : top;
	}
	for (size_t d = 0; d < D; d++)
		sum[d] = 0;
	for (size_t j = 0; j < len; j++) {
		const uint16_t *v = slot_at(a, s, g, j, true);

		p[j] = exp(p[j] - top);
		total += p[j];
		for (size_t d = 0; d < D; d++)
			sum[d] += p[j] * (double)sits_f16_to_f32(v[d]);
	}
	for (size_t d = 0; d < D; d++)
		y[d] = (float)(sum[d] / total);
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
