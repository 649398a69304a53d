// SPDX-License-Identifier: MIT
/*
 * graph_moe.c - mixtures of experts in the graph.
 *
 * Three stages, behind the one of wo, whose tail norms and prepares the rows:
 *
 *	route   router, gate of the shared expert    tail: choose, sort pairs by expert
 *	expert  gate, up, silu, product, for all     tail: prepare the inputs of down
 *		pairs and the shared expert
 *	down    and weighted sum onto the residual   tail: sits_graph_end_layer()
 *
 * A pair is a row and one of its experts. Pairs are sorted by expert, stably, so an expert's rows are neighbours and meet
 * its weights in one product; nothing is gathered, products name the rows they read. Tasks of the expert stage are columns of all
 * experts in use, side by side. A task of the down stage has some columns of the output for all experts and adds them up itself, so no
 * barrier stands between down and sum.
 *
 * Order of a row's sum: residual, shared expert, its experts by ascending number, each by one fused multiply-add. That order, like
 * all that a row reads, follows from the row alone; company changes nothing, and a NaN stays in its row.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/graph_impl.h"

static const struct sits_layer *layer_of(const struct sits_graph *g)
{
	return &g->m->layer[g->layer];
}

/* ---- route ---- */

static void task_router(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	sits_graph_chunk(g, &g->cur->moe.route, i, g->rows, sits_graph_mm);
}

/* The model's selection bias and that of load balancing, added up where both are; NULL: none. */
static const float *selection_bias(const struct sits_graph *g, float *sum)
{
	const uint32_t X = g->m->hp.route.experts;
	const float *model = layer_of(g)->router_bias.data, *own = g->moe_stats->bias + g->layer * X;
	uint32_t i;

	if (!(g->moe_stats->balance > 0))
		return model;
	for (i = 0; i < X; i++)
		sum[i] = own[i] + (model ? model[i] : 0);
	return sum;
}

static void choose_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	struct moe_run *mo = &g->moe;
	const struct sits_route_rule *rule = &mo->rule;
	float sum[SITS_ROUTE_MAX_EXPERTS];
	const float *bias = selection_bias(g, sum);
	size_t r;

	for (r = r0; r < r1; r++) {
		sits_route(rule, mo->logits + r * rule->experts, bias, mo->expert + r * rule->used,
			   mo->weight + r * rule->used);
		mo->gate[r] = layer_of(g)->s_router.data ? (float)(1 / (1 + exp(-(double)mo->gate[r]))) : 1;
	}
}

static void tell_routes(struct sits_graph *g)
{
	const struct sits_graph_batch *b = g->b;
	const uint32_t k = g->m->hp.route.used;
	size_t r;

	for (r = 0; b->routed && r < g->rows; r++)
		b->routed(b->arg, g->layer, b->owner[g->row_seq[r]], b->pos[r], g->moe.expert + r * k,
			  g->moe.weight + r * k);
}

/* Counting sort of the pairs by expert; an expert's rows stay in order. What is beyond its room is left out. */
static void sort_pairs(struct sits_graph *g)
{
	const uint32_t X = g->m->hp.route.experts, k = g->m->hp.route.used;
	const uint32_t room = sits_moe_capacity(g->moe_stats, g->rows);
	struct moe_run *mo = &g->moe;
	size_t i, at = 0, all = g->rows * k;
	uint32_t x, n;

	memset(mo->count, 0, X * sizeof(*mo->count));
	for (i = 0; i < all; i++)
		mo->count[mo->expert[i]]++;
	mo->nr_groups = 0;
	for (x = 0; x < X; x++) {
		mo->next[x] = at;
		n = mo->count[x] < room ? mo->count[x] : room;
		if (n)
			mo->group[mo->nr_groups++] = (struct moe_group){ .expert = x, .p0 = at, .nr = n };
		at += n;
		mo->count[x] = n;
		mo->end[x] = at;
	}
	mo->nr_pairs = at;
	for (i = 0; i < all; i++) {
		x = mo->expert[i];
		if (mo->next[x] == mo->end[x])
			continue;
		mo->pair_row[mo->next[x]] = i / k;
		mo->pair_weight[mo->next[x]++] = mo->weight[i];
	}
	sits_moe_stats_add(g->moe_stats, g->layer, mo->count, g->rows, all - at);
}

static void tail_sort(void *arg)
{
	struct sits_graph *g = arg;
	const struct sits_hparams *hp = &g->m->hp;
	size_t total;

	tell_routes(g);
	sort_pairs(g);
	total = aligned_columns(hp->shared_ff) + g->moe.nr_groups * aligned_columns(hp->expert_ff);
	g->moe.chunk = sits_graph_columns(g, total);
	g->moe.nr_chunks = (total + g->moe.chunk - 1) / g->moe.chunk;
}

ROW_TASK(choose)

static void tail_choose(void *arg)
{
	struct sits_graph *g = arg;

	choose_rows(g, 0, g->rows);
	tail_sort(g);
}

/* ---- experts ---- */

/*
 * Columns [n0, n1) of a matrix for @T rows into @y, @ldy floats apart, the first column at y[0]. @x_row: rows of @x that are read;
 * NULL: the first T.
 */
static void product(struct sits_graph *g, const struct sits_weight *w, uint32_t expert, const uint8_t *x, size_t x_row_bytes,
		    const uint32_t *x_row, size_t T, float *y, size_t ldy, size_t n0, size_t n1)
{
	const struct sits_matmul call = {
		.wtype = w->type, .w = sits_weight_at(w, expert), .w_row_bytes = w->row_bytes,
		.x = x, .x_row_bytes = x_row_bytes, .x_row = x_row,
		/* The kernel writes at column n0 of y. */
		.y = (float *)((uintptr_t)y - n0 * sizeof(float)), .ldy = ldy,
		.T = T, .K = w->K, .N = w->N, .n0 = n0, .n1 = n1,
	};

	g->be->matmul(&call);
}

static float *tmp_of(const struct sits_graph *g, uint32_t self)
{
	return g->moe.tmp + (size_t)self * MOE_ROWS * MOE_TMP_LD;
}

static uint32_t slot_of(const struct sits_graph *g, const struct gemm *gm, const struct sits_weight *w)
{
	uint32_t s = 0;

	while (g->be->act_class(gm->slot_type[s]) != g->be->act_class(w->type))
		s++;
	return s;
}

/* hidden[t][n] = silu(gate[t][n]) * up[t][n] for @T rows and columns [n0, n1), a block of rows at a time. */
static void gate_up(struct sits_graph *g, const struct sits_weight *gate, const struct sits_weight *up, uint32_t expert,
		    const uint32_t *x_row, size_t T, float *hidden, size_t ld, size_t n0, size_t n1, float *tmp)
{
	const struct gemm *in = &g->cur->moe.in;
	const uint32_t sg = slot_of(g, in, gate), su = slot_of(g, in, up);
	size_t t, i, nr, from;
	float *h;

	for (t = 0; t < T; t += nr) {
		nr = T - t < MOE_ROWS ? T - t : MOE_ROWS;
		from = x_row ? 0 : t;
		h = hidden + t * ld + n0;
		product(g, gate, expert, in->act[sg] + from * in->slot_row_bytes[sg], in->slot_row_bytes[sg],
			x_row ? x_row + t : NULL, nr, h, ld, n0, n1);
		product(g, up, expert, in->act[su] + from * in->slot_row_bytes[su], in->slot_row_bytes[su],
			x_row ? x_row + t : NULL, nr, tmp, MOE_TMP_LD, n0, n1);
		for (i = 0; i < nr; i++)
			g->be->silu_mul(h + i * ld, h + i * ld, tmp + i * MOE_TMP_LD, n1 - n0);
	}
}

/* The part of columns [from, to) that lies in a matrix of @N columns at @at; empty where n0 >= n1. */
static size_t overlap(size_t from, size_t to, size_t at, size_t N, size_t *n1)
{
	*n1 = to > at ? to - at : 0;
	*n1 = *n1 < N ? *n1 : N;
	return from > at ? from - at : 0;
}

/* Columns of the shared expert, then of the groups in order, each rounded up to CHUNK_ALIGN. */
static void task_expert(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;
	const struct sits_layer *l = layer_of(g);
	const struct moe_run *mo = &g->moe;
	const size_t S = g->m->hp.shared_ff, F = g->m->hp.expert_ff;
	size_t from = i * mo->chunk, to = from + mo->chunk, at = aligned_columns(S), j, n0, n1;
	const struct moe_group *gr;

	n0 = overlap(from, to, 0, S, &n1);
	if (n0 < n1)
		gate_up(g, &l->s_gate, &l->s_up, 0, NULL, g->rows, mo->shared, S, n0, n1, tmp_of(g, self));
	j = from > at ? (from - at) / aligned_columns(F) : 0;
	for (at += j * aligned_columns(F); j < mo->nr_groups && at < to; j++, at += aligned_columns(F)) {
		gr = &mo->group[j];
		n0 = overlap(from, to, at, F, &n1);
		if (n0 < n1)
			gate_up(g, &l->e_gate, &l->e_up, gr->expert, mo->pair_row + gr->p0, gr->nr,
				mo->hidden + gr->p0 * F, F, n0, n1, tmp_of(g, self));
	}
}

/* Pairs are spread over the tasks as the rows are: a row's task prepares used pairs, whosever they are. */
static void prep_down_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	const struct sits_hparams *hp = &g->m->hp;
	const struct layer_plan *p = g->cur;
	size_t p0 = r0 * hp->route.used, p1 = r1 * hp->route.used;

	p1 = p1 < g->moe.nr_pairs ? p1 : g->moe.nr_pairs;
	if (p0 < p1)
		sits_graph_prepare(g, &p->moe.down, g->moe.hidden, hp->expert_ff, p0, p1);
	if (hp->shared_ff)
		sits_graph_prepare(g, &p->moe.shared_down, g->moe.shared, hp->shared_ff, r0, r1);
}

ROW_TASK(prep_down)
ROW_TAIL(prep_down)

/* ---- down ---- */

/* x[row][n0 .. n1) += scale[t] * (down of hidden row t); row: NULL: t itself. */
static void down_add(struct sits_graph *g, const struct gemm *gm, uint32_t expert, size_t t0, size_t T, const uint32_t *row,
		     const float *scale, size_t n0, size_t n1, float *tmp)
{
	size_t t, i, nr;

	for (t = 0; t < T; t += nr) {
		nr = T - t < MOE_ROWS ? T - t : MOE_ROWS;
		product(g, gm->mm[0].w, expert, gm->act[0] + (t0 + t) * gm->slot_row_bytes[0], gm->slot_row_bytes[0], NULL,
			nr, tmp, MOE_TMP_LD, n0, n1);
		for (i = 0; i < nr; i++)
			g->be->add_scaled(g->x + (row ? row[t + i] : t + i) * g->E + n0, tmp + i * MOE_TMP_LD,
					  scale[t + i], n1 - n0);
	}
}

static void task_down(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;
	const struct layer_plan *p = g->cur;
	const struct moe_run *mo = &g->moe;
	size_t n0 = i * p->moe.down.chunk, n1 = n0 + p->moe.down.chunk, j;
	const struct moe_group *gr;

	n1 = n1 < g->E ? n1 : g->E;
	if (g->m->hp.shared_ff)
		down_add(g, &p->moe.shared_down, 0, 0, g->rows, NULL, mo->gate, n0, n1, tmp_of(g, self));
	for (j = 0; j < mo->nr_groups; j++) {
		gr = &mo->group[j];
		down_add(g, &p->moe.down, gr->expert, gr->p0, gr->nr, mo->pair_row + gr->p0, mo->pair_weight + gr->p0, n0,
			 n1, tmp_of(g, self));
	}
}

void sits_moe_stages(struct sits_graph *g, uint32_t self)
{
	sits_graph_rows_or_tail(g, self, g->cur->moe.route.nr_chunks, task_router, task_choose, tail_choose, tail_sort);
	sits_graph_rows_or_tail(g, self, g->moe.nr_chunks, task_expert, task_prep_down, tail_prep_down, NULL);
	sits_threads_stage(g->team, self, g->cur->moe.down.nr_chunks, task_down, sits_graph_end_layer, g);
}

/* ---- plan ---- */

void sits_moe_plan(struct sits_graph *g, const struct sits_layer *l, struct layer_plan *p)
{
	const struct sits_hparams *hp = &g->m->hp;
	const struct sits_weight *reads[] = { &l->router, &l->s_router, &l->s_gate, &l->s_up, &l->e_gate, &l->e_up };
	struct moe_run *mo = &g->moe;
	size_t i, bytes;

	sits_plan_begin(g, &p->moe.in, g->E);
	for (i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		if (reads[i]->data)
			sits_plan_add(g, &p->moe.in, reads[i], NULL, NULL, 0);
	sits_plan_end(g, &p->moe.in, 0);
	sits_plan_subset(&p->moe.route, &p->moe.in);
	sits_plan_add(g, &p->moe.route, &l->router, NULL, mo->logits, hp->route.experts);
	if (l->s_router.data)
		sits_plan_add(g, &p->moe.route, &l->s_router, NULL, mo->gate, 1);
	sits_plan_end(g, &p->moe.route, p->moe.route.nr);

	sits_plan_begin(g, &p->moe.down, hp->expert_ff);
	p->moe.down.max_rows = g->max_rows * hp->route.used;
	sits_plan_add(g, &p->moe.down, &l->e_down, NULL, NULL, 0);
	sits_plan_end(g, &p->moe.down, 1);
	if (!hp->shared_ff)
		return;
	sits_plan_begin(g, &p->moe.shared_down, hp->shared_ff);
	sits_plan_add(g, &p->moe.shared_down, &l->s_down, NULL, NULL, 0);
	p->moe.shared_down.act[0] = mo->act_shared;
	bytes = g->max_rows * p->moe.shared_down.slot_row_bytes[0];
	mo->act_shared_bytes = bytes > mo->act_shared_bytes ? bytes : mo->act_shared_bytes;
}

int sits_moe_init(struct sits_graph *g)
{
	const struct sits_route_rule *r = &g->m->hp.route;
	struct moe_run *mo = &g->moe;

	mo->rule = *r;
	if (!r->experts)
		return 0;
	mo->group = calloc(r->experts, sizeof(*mo->group));
	mo->count = calloc(3 * (size_t)r->experts, sizeof(*mo->count));
	if (!mo->group || !mo->count)
		return -ENOMEM;
	mo->next = mo->count + r->experts;
	mo->end = mo->next + r->experts;
	return sits_moe_stats_create(g->m->hp.layers, r->experts, r->used, &g->moe_stats);
}

void sits_moe_fini(struct sits_graph *g)
{
	free(g->moe.group);
	free(g->moe.count);
	sits_moe_stats_destroy(g->moe_stats);
}

void sits_graph_set_route_temperature(struct sits_graph *g, float temperature)
{
	g->moe.rule.temperature = temperature;
}

struct sits_moe_stats *sits_graph_moe(struct sits_graph *g)
{
	return g->moe_stats;
}
