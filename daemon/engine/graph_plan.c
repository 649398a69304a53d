// SPDX-License-Identifier: MIT
/*
 * graph_plan.c - which matrices a stage has and how they are cut; buffers; making and destroying a graph.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/graph_impl.h"
#include "daemon/engine/mem.h"

size_t sits_graph_columns(const struct sits_graph *g, size_t total)
{
	size_t c = aligned_columns(total / (CHUNKS_PER_THREAD * sits_threads_nr(g->team)));

	return c < CHUNK_ALIGN ? CHUNK_ALIGN : c > CHUNK_MAX ? CHUNK_MAX : c;
}

void sits_plan_begin(struct sits_graph *g, struct gemm *gm, size_t K)
{
	memset(gm, 0, sizeof(*gm));
	gm->K = K;
	gm->max_rows = g->max_rows;
	memcpy(gm->act, g->act, sizeof(gm->act));
}

void sits_plan_add(struct sits_graph *g, struct gemm *gm, const struct sits_weight *w, const struct sits_weight *bias,
		   float *y, size_t ldy)
{
	const struct sits_backend *be = g->be;
	uint32_t s;

	for (s = 0; s < gm->nr_slots; s++)
		if (be->act_class(gm->slot_type[s]) == be->act_class(w->type))
			break;
	if (s == gm->nr_slots) {
		gm->nr_slots++;
		gm->slot_type[s] = w->type;
		gm->slot_row_bytes[s] = be->act_row_bytes(w->type, gm->K);
	}
	gm->mm[gm->nr++] = (struct mm){ .w = w, .bias = bias ? bias->data : NULL, .slot = s, .y = y, .ldy = ldy };
}

void sits_plan_subset(struct gemm *gm, const struct gemm *in)
{
	*gm = *in;
	gm->nr = 0;
	memset(gm->mm, 0, sizeof(gm->mm));
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

void sits_plan_end(struct sits_graph *g, struct gemm *gm, uint32_t nr_split)
{
	size_t total = 0;
	uint32_t i;

	for (i = 0; i < nr_split; i++)
		total += aligned_columns(gm->mm[i].w->N);
	gm->chunk = sits_graph_columns(g, total);
	gm->nr_chunks = (total + gm->chunk - 1) / gm->chunk;
	gm->nr_split = nr_split;
	for (i = 0; i < gm->nr_slots; i++)
		g->act_bytes[i] = larger(g->act_bytes[i], gm->max_rows * gm->slot_row_bytes[i]);
}

static void plan_dense(struct sits_graph *g, const struct sits_layer *l, struct layer_plan *p)
{
	sits_plan_begin(g, &p->ffn, g->E);
	sits_plan_add(g, &p->ffn, &l->w_gate, &l->b_gate, g->gate, g->F);
	sits_plan_add(g, &p->ffn, &l->w_up, &l->b_up, g->up, g->F);
	sits_plan_end(g, &p->ffn, 1);
	sits_plan_begin(g, &p->down, g->F);
	sits_plan_add(g, &p->down, &l->w_down, &l->b_down, g->tmp, g->E);
	sits_plan_end(g, &p->down, 1);
}

static void plan_qkv(struct sits_graph *g, const struct sits_layer *l, struct layer_plan *p)
{
	sits_plan_begin(g, &p->qkv, g->E);
	sits_plan_add(g, &p->qkv, &l->wq, &l->bq, g->q, g->QD);
	sits_plan_add(g, &p->qkv, &l->wk, &l->bk, g->k, g->KD);
	sits_plan_add(g, &p->qkv, &l->wv, &l->bv, g->v, g->VD);
	sits_plan_end(g, &p->qkv, 3);
}

static void plan_all(struct sits_graph *g)
{
	const struct sits_layer *l;
	struct layer_plan *p;
	uint32_t i;

	for (i = 0; i < g->m->hp.layers; i++) {
		l = &g->m->layer[i];
		p = &g->plan[i];
		if (g->m->hp.kv_rank)
			sits_mla_plan(g, l, p);
		else
			plan_qkv(g, l, p);
		sits_plan_begin(g, &p->wo, g->AD);
		sits_plan_add(g, &p->wo, &l->wo, &l->bo, g->tmp, g->E);
		sits_plan_end(g, &p->wo, 1);
		if (l->kind == SITS_LAYER_MOE)
			sits_moe_plan(g, l, p);
		else
			plan_dense(g, l, p);
	}
	sits_plan_begin(g, &g->out, g->E);
	g->out.max_rows = g->max_outs;
	sits_plan_add(g, &g->out, &g->m->output, NULL, g->logits, g->m->hp.vocab);
	sits_plan_end(g, &g->out, 1);
}

/* Place the buffers one after another, each on a cache line. With base NULL only the length counts. */
static size_t place(struct sits_graph *g, uint8_t *base)
{
	const struct sits_hparams *hp = &g->m->hp;
	const size_t R = g->max_rows, X = hp->route.experts, pairs = R * hp->route.used, f = sizeof(float);
	const size_t threads = sits_threads_nr(g->team), heads = hp->kv_rank ? hp->heads : 0;
	struct moe_run *mo = &g->moe;
	struct { void *p; size_t bytes; } part[] = {
		{ &g->x, R * g->E * f }, { &g->xn, larger(R, g->max_outs) * g->E * f }, { &g->q, R * g->QD * f },
		{ &g->k, R * g->KD * f }, { &g->v, R * g->VD * f }, { &g->att, R * g->AD * f }, { &g->tmp, R * g->E * f },
		{ &g->gate, R * g->F * f }, { &g->up, R * g->F * f }, { &g->logits, g->max_outs * hp->vocab * f },
		{ &g->entropy, R * hp->heads * f },
		{ &g->act[0], g->act_bytes[0] }, { &g->act[1], g->act_bytes[1] }, { &g->act[2], g->act_bytes[2] },
		{ &mo->act_shared, g->moe.act_shared_bytes },
		{ &mo->logits, R * X * f }, { &mo->gate, X ? R * f : 0 },
		{ &mo->expert, pairs * f }, { &mo->weight, pairs * f }, { &mo->pair_row, pairs * f },
		{ &mo->pair_weight, pairs * f }, { &mo->hidden, pairs * hp->expert_ff * f },
		{ &mo->shared, R * hp->shared_ff * f },
		{ &mo->tmp, X ? threads * MOE_ROWS * MOE_TMP_LD * f : 0 },
		{ &g->mla.q_a, R * hp->q_rank * f }, { &g->mla.q, R * heads * g->KD * f },
		{ &g->mla.sum, R * heads * hp->kv_rank * f }, { &g->mla.act, threads * g->mla.act_bytes },
	};
	size_t at = 0, i;
	void *p;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		p = base ? base + at : NULL;
		memcpy(part[i].p, &p, sizeof(p));
		at += (part[i].bytes + 63) & ~(size_t)63;
	}
	return at;
}

static int create_buffers(struct sits_graph *g)
{
	void *p;
	int ret;

	g->plan = calloc(g->m->hp.layers, sizeof(*g->plan));
	g->scratch = calloc(sits_threads_nr(g->team), sizeof(*g->scratch));
	g->row_seq = malloc(g->max_rows * sizeof(*g->row_seq));
	g->outs = malloc(g->max_outs * sizeof(*g->outs));
	if (!g->plan || !g->scratch || !g->row_seq || !g->outs)
		return -ENOMEM;
	ret = sits_moe_init(g);
	if (ret)
		return ret;
	/* Planned twice: for the sizes, and again when the buffers have addresses. */
	plan_all(g);
	g->arena_len = place(g, NULL);
	ret = sits_mem_map(g->arena_len, &p);
	if (ret)
		return ret;
	g->arena = p;
	place(g, p);
	plan_all(g);
	return 0;
}

void sits_graph_kv_shape(const struct sits_model *m, uint32_t kind, struct sits_kv_shape *s)
{
	const struct sits_hparams *hp = &m->hp;

	if (hp->kv_rank)
		*s = (struct sits_kv_shape){ .kind = kind, .v_in_k = true, .G = 1, .Dk = hp->kv_rank + hp->rope.dims,
					     .Dv = hp->kv_rank };
	else
		*s = (struct sits_kv_shape){ .kind = kind, .G = hp->kv_heads, .Dk = hp->head_dim, .Dv = hp->v_dim };
}

size_t sits_graph_page_bytes(const struct sits_model *m, const struct sits_backend *be, uint32_t kind)
{
	struct sits_kv_shape s;

	sits_graph_kv_shape(m, kind, &s);
	return be->kv_layer_bytes(&s) * m->hp.layers;
}

void sits_graph_set_kv_kind(struct sits_graph *g, uint32_t kind)
{
	sits_graph_kv_shape(g->m, kind, &g->kv_shape);
	g->kv_layer_bytes = g->be->kv_layer_bytes(&g->kv_shape);
}

static void *layer_of_page(const struct sits_graph *g, const struct sits_kv *kv, uint32_t layer, uint32_t page)
{
	return kv->base + page * kv->page_bytes + layer * g->kv_layer_bytes;
}

void sits_graph_copy_cell(const struct sits_graph *g, const struct sits_kv *kv, uint32_t layer, uint32_t to_page,
			  uint32_t to_cell, uint32_t from_page, uint32_t from_cell)
{
	g->be->kv_copy(&g->kv_shape, layer_of_page(g, kv, layer, to_page), to_cell, layer_of_page(g, kv, layer, from_page),
		       from_cell);
}

int sits_graph_create(const struct sits_model *m, const struct sits_backend *be, struct sits_threads *team,
		      size_t max_rows, size_t max_outs, struct sits_graph **out, struct sits_diag *diag)
{
	struct sits_graph *g = calloc(1, sizeof(*g));
	int ret;

	if (!g)
		return -ENOMEM;
	g->m = m;
	g->be = be;
	g->team = team;
	g->max_rows = max_rows;
	g->max_outs = max_outs;
	g->E = m->hp.embd;
	g->F = m->hp.ff;
	g->QD = (size_t)m->hp.heads * m->hp.head_dim;
	g->KD = m->hp.kv_rank ? m->hp.kv_rank + m->hp.rope.dims : (size_t)m->hp.kv_heads * m->hp.head_dim;
	g->VD = m->hp.kv_rank ? 0 : (size_t)m->hp.kv_heads * m->hp.v_dim;
	g->AD = (size_t)m->hp.heads * m->hp.v_dim;
	sits_graph_set_kv_kind(g, SITS_KV_F16);
	ret = create_buffers(g);
	if (ret) {
		sits_graph_destroy(g);
		return sits_diag_fail(diag, ret, "engine: no memory for batches of %zu tokens", max_rows);
	}
	*out = g;
	return 0;
}

void sits_graph_destroy(struct sits_graph *g)
{
	uint32_t i;

	if (!g)
		return;
	for (i = 0; g->scratch && i < sits_threads_nr(g->team); i++)
		sits_mem_unmap(g->scratch[i], g->scratch_len);
	sits_mem_unmap(g->work, g->work_len);
	sits_mem_unmap(g->arena, g->arena_len);
	free(g->scratch);
	free(g->row_seq);
	free(g->outs);
	free(g->plan);
	sits_moe_fini(g);
	free(g);
}
