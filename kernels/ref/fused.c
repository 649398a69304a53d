// SPDX-License-Identifier: MIT
/*
 * fused.c - reference: operations that stand for several in turn, and the choice of the largest.
 */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

void sits_ref_add_rmsnorm_prepare(uint32_t wtype, float *x, const float *r, const float *w, float *y, size_t T, size_t C,
				  float eps, void *out)
{
	if (r)
		sits_ref_add(x, r, T * C);
	sits_ref_rmsnorm(y, x, w, T, C, eps);
	sits_ref_act_prepare(wtype, y, C, T, C, out);
}

void sits_ref_silu_mul_prepare(uint32_t wtype, float *y, const float *a, const float *b, size_t T, size_t K, void *out)
{
	sits_ref_silu_mul(y, a, b, T * K);
	sits_ref_act_prepare(wtype, y, K, T, K, out);
}

static void norm_heads(const struct sits_rope_store *rs, float *x, const float *w, size_t heads)
{
	size_t D = rs->shape->Dk;

	if (w)
		sits_ref_rmsnorm(x, x, w, rs->norm_all ? 1 : heads, rs->norm_all ? heads * D : D, rs->eps);
}

void sits_ref_rope_store(const struct sits_rope_store *rs)
{
	const struct sits_kv_shape *s = rs->shape;

	norm_heads(rs, rs->q, rs->q_norm, rs->H);
	norm_heads(rs, rs->k, rs->k_norm, s->G);
	sits_ref_rope(rs->q, rs->H * s->Dk, &rs->pos, rs->inv_freq, 1, rs->H, s->Dk, rs->R, rs->neox);
	sits_ref_rope(rs->k, s->G * s->Dk, &rs->pos, rs->inv_freq, 1, s->G, s->Dk, rs->R, rs->neox);
	for (size_t h = 0; h < rs->H && rs->q_scale != 1; h++) {
		for (size_t d = 0; d < rs->R; d++)
			rs->q[h * s->Dk + d] *= rs->q_scale;
	}
	sits_ref_kv_store(s, rs->layer, rs->slot, rs->k, rs->v);
}

void sits_ref_softmax_rmsnorm(float *y, const float *x, const float *w, size_t T, size_t C, float eps)
{
	for (size_t t = 0; t < T; t++, x += C, y += C) {
		double top = -INFINITY, sum = 0, squares = 0, scale;

		for (size_t c = 0; c < C; c++)
			top = (double)x[c] > top ? (double)x[c] : top;
		for (size_t c = 0; c < C; c++) {
			double e = exp((double)x[c] - top);

			sum += e;
			squares += e * e;
		}
		/* p = e / sum, so p / sqrt(mean p^2 + eps) = e / sqrt(mean e^2 + eps sum^2) */
		scale = 1 / sqrt(squares / (double)C + (double)eps * sum * sum);
		for (size_t c = 0; c < C; c++)
			y[c] = (float)(exp((double)x[c] - top) * scale * (w ? (double)w[c] : 1));
	}
}

size_t sits_ref_topk(const float *x, size_t n, size_t k, uint32_t *id)
{
	size_t have = 0, at;

	for (size_t i = 0; i < n; i++) {
		if (isnan(x[i]))
			continue;
		for (at = have; at > 0 && x[i] > x[id[at - 1]]; at--)
			;
		if (at >= k)
			continue;
		have += have < k;
		memmove(id + at + 1, id + at, (have - at - 1) * sizeof(*id));
		id[at] = (uint32_t)i;
	}
	return have;
}
