// SPDX-License-Identifier: MIT
/*
 * graph_mla.c - multi-head latent attention: what deepseek2 has in place of the q, k, v of graph.c.
 *
 * A token's keys and values in all heads come from one latent vector c of R = kv_rank elements, and one rotated key shared by
 * the heads. Only these are stored. In head h
 *
 *	q.k = q_nope . (Wk[h] c) + q_rope . k_rope = (Wk[h]' q_nope) . c + q_rope . k_rope
 *	out = sum of a_j Wv[h] c_j = Wv[h] (sum of a_j c_j)
 *
 * so attention is that of H query heads over one key/value head whose key is [c, k_rope] and whose value is c, with a
 * product by Wk[h]' before and one by Wv[h] behind. Stages:
 *
 *	qkv     matrices q (or its first half) and [c, k_rope]   tail: norms, RoPE of the key, store; prepare the input of q_b
 *	q_b     where q has two matrices
 *	absorb  heads: RoPE of q, Wk[h]' q_nope
 *	attend  as in graph.c
 *	v_up    heads: Wv[h]                                    tail: prepare the input of wo
 *
 * A file with kv_b whole has Wk[h] the wrong way round for a matrix product; its rows are added up instead, slower.
 *
 * Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1 and appendix C.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/graph_impl.h"

#define MAX_RANK 1024	/* struct sits_kv_shape */
#define ROWS_AT_ONCE 8

/* ---- rows ---- */

static void latent_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	const struct sits_hparams *hp = &g->m->hp;
	const struct sits_layer *l = &g->m->layer[g->layer];
	float *c;
	size_t r;

	if (hp->q_rank) {
		g->be->rmsnorm(g->mla.q_a + r0 * hp->q_rank, g->mla.q_a + r0 * hp->q_rank, l->q_a_norm.data, r1 - r0,
			       hp->q_rank, hp->rms_eps);
		sits_graph_prepare(g, &g->cur->q_b, g->mla.q_a, hp->q_rank, r0, r1);
	}
	for (r = r0; r < r1; r++) {
		c = g->k + r * g->KD;
		g->be->rmsnorm(c, c, l->kv_a_norm.data, 1, hp->kv_rank, hp->rms_eps);
	}
	g->be->rope(g->k + r0 * g->KD + hp->kv_rank, g->KD, g->b->pos + r0, g->m->inv_freq, r1 - r0, 1, hp->rope.dims,
		    hp->rope.dims, hp->rope.neox);
	sits_graph_store(g, r0, r1);
}

ROW_TASK(latent)
ROW_TAIL(latent)

/* ---- heads ---- */

static void *act_of(const struct sits_graph *g, uint32_t self)
{
	return g->mla.act + self * g->mla.act_bytes;
}

/* y[t] = w x[t] for all rows; @x, @y: ldx and ldy floats between rows. */
static void head_product(struct sits_graph *g, uint32_t self, uint32_t type, const void *w, size_t w_row_bytes, size_t K,
			 size_t N, const float *x, size_t ldx, float *y, size_t ldy)
{
	const struct sits_matmul mm = {
		.wtype = type, .w = w, .w_row_bytes = w_row_bytes, .x = act_of(g, self),
		.x_row_bytes = g->be->act_row_bytes(type, K), .y = y, .ldy = ldy, .T = g->rows, .K = K, .N = N, .n1 = N,
	};

	g->be->act_prepare(type, x, ldx, g->rows, K, act_of(g, self));
	g->be->matmul(&mm);
}

/* y += sum over n < @nr of x[n] * row n, added in that order. K is a multiple of 16: what is of a fixed length becomes vectors. */
static void add_rows(float *restrict y, const float *restrict x, float (*restrict row)[MAX_RANK], size_t nr, size_t K)
{
	float sum[16];
	size_t n, k, i;

	for (k = 0; k < K; k += 16) {
		memcpy(sum, y + k, sizeof(sum));
		for (n = 0; n < nr; n++)
			for (i = 0; i < 16; i++)
				sum[i] += x[n] * row[n][k + i];
		memcpy(y + k, sum, sizeof(sum));
	}
}

/* y[t] = sum over n of x[t][n] * row n of w, in ascending order of n. */
static void head_rows_product(struct sits_graph *g, uint32_t type, const uint8_t *w, size_t w_row_bytes, size_t N, size_t K,
			      const float *x, size_t ldx, float *y, size_t ldy)
{
	float row[ROWS_AT_ONCE][MAX_RANK];	/* with a row of y they fit a first-level cache */
	size_t t, n, i, nr;

	for (t = 0; t < g->rows; t++)
		memset(y + t * ldy, 0, K * sizeof(*y));
	for (n = 0; n < N; n += nr) {
		nr = N - n < ROWS_AT_ONCE ? N - n : ROWS_AT_ONCE;
		for (i = 0; i < nr; i++)
			g->be->dequant(type, w + (n + i) * w_row_bytes, row[i], K);
		for (t = 0; t < g->rows; t++)
			add_rows(y + t * ldy, x + t * ldx + n, row, nr, K);
	}
	explicit_bzero(row, sizeof(row));
}

static void rotate_head(struct sits_graph *g, float *q)
{
	const struct sits_rope *rope = &g->m->hp.rope;
	const float scale = g->m->rope_mscale * g->m->rope_mscale;	/* that of q and of the key, see graph.c */
	size_t t, d;

	g->be->rope(q, g->QD, g->b->pos, g->m->inv_freq, g->rows, 1, rope->dims, rope->dims, rope->neox);
	for (t = 0; scale != 1 && t < g->rows; t++)
		for (d = 0; d < rope->dims; d++)
			q[t * g->QD + d] *= scale;
}

static void task_absorb(void *arg, size_t h, uint32_t self)
{
	struct sits_graph *g = arg;
	const struct sits_hparams *hp = &g->m->hp;
	const struct sits_layer *l = &g->m->layer[g->layer];
	const size_t ld = hp->heads * g->KD;
	float *q = g->q + h * hp->head_dim, *y = g->mla.q + h * g->KD;
	size_t t;

	rotate_head(g, q + hp->nope_dims);
	if (l->wk_b.data)
		head_product(g, self, l->wk_b.type, sits_weight_at(&l->wk_b, h), l->wk_b.row_bytes, hp->nope_dims, hp->kv_rank,
			     q, g->QD, y, ld);
	else
		head_rows_product(g, l->wkv_b.type, (const uint8_t *)l->wkv_b.data +
				  h * (hp->nope_dims + hp->v_dim) * l->wkv_b.row_bytes, l->wkv_b.row_bytes, hp->nope_dims,
				  hp->kv_rank, q, g->QD, y, ld);
	for (t = 0; t < g->rows; t++)
		memcpy(y + t * ld + hp->kv_rank, q + t * g->QD + hp->nope_dims, hp->rope.dims * sizeof(*y));
}

void sits_mla_v_up(void *arg, size_t h, uint32_t self)
{
	struct sits_graph *g = arg;
	const struct sits_hparams *hp = &g->m->hp;
	const struct sits_layer *l = &g->m->layer[g->layer];
	const bool apart = l->wv_b.data;
	const struct sits_weight *w = apart ? &l->wv_b : &l->wkv_b;
	const uint8_t *rows = apart ? sits_weight_at(w, h) : (const uint8_t *)w->data +
			      (h * (hp->nope_dims + hp->v_dim) + hp->nope_dims) * w->row_bytes;

	head_product(g, self, w->type, rows, w->row_bytes, hp->kv_rank, hp->v_dim, g->mla.sum + h * hp->kv_rank,
		     (size_t)hp->heads * hp->kv_rank, g->att + h * hp->v_dim, g->AD);
}

/* ---- stages and plan ---- */

static void task_qkv(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	sits_graph_chunk(g, &g->cur->qkv, i, g->rows, sits_graph_mm);
}

static void task_q_b(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	sits_graph_chunk(g, &g->cur->q_b, i, g->rows, sits_graph_mm);
}

void sits_mla_stages(struct sits_graph *g, uint32_t self)
{
	sits_graph_rows_or_tail(g, self, g->cur->qkv.nr_chunks, task_qkv, task_latent, tail_latent, NULL);
	if (g->m->hp.q_rank)
		sits_threads_stage(g->team, self, g->cur->q_b.nr_chunks, task_q_b, NULL, g);
	sits_threads_stage(g->team, self, g->m->hp.heads, task_absorb, NULL, g);
}

/* Room for one head's input of either product by part of kv_b. */
static void reserve_act(struct sits_graph *g, const struct sits_weight *w, size_t K)
{
	size_t need = w->data ? g->max_rows * g->be->act_row_bytes(w->type, K) : 0;

	g->mla.act_bytes = need > g->mla.act_bytes ? need : g->mla.act_bytes;
}

void sits_mla_plan(struct sits_graph *g, const struct sits_layer *l, struct layer_plan *p)
{
	const bool low_rank = g->m->hp.q_rank;

	sits_plan_begin(g, &p->qkv, g->E);
	sits_plan_add(g, &p->qkv, low_rank ? &l->wq_a : &l->wq, NULL, low_rank ? g->mla.q_a : g->q,
		      low_rank ? g->m->hp.q_rank : g->QD);
	sits_plan_add(g, &p->qkv, &l->wkv_a, NULL, g->k, g->KD);
	sits_plan_end(g, &p->qkv, 2);
	reserve_act(g, &l->wk_b, g->m->hp.nope_dims);
	reserve_act(g, &l->wv_b, g->m->hp.kv_rank);
	reserve_act(g, &l->wkv_b, g->m->hp.kv_rank);
	if (!low_rank)
		return;
	sits_plan_begin(g, &p->q_b, g->m->hp.q_rank);
	sits_plan_add(g, &p->q_b, &l->wq_b, NULL, g->q, g->QD);
	sits_plan_end(g, &p->q_b, 1);
}
