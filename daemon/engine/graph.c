// SPDX-License-Identifier: MIT
/*
 * graph.c - see graph.h.
 *
 * One run is one program of the thread team, four stages a layer:
 *
 *	qkv     matrices q, k, v           tail: RoPE, store k and v
 *	attend  heads of sequences         tail: prepare the input of wo
 *	wo      and add to the residual    tail: norm, prepare the input of gate and up
 *	ffn     gate, up, silu, product    tail: prepare the input of down
 *	down    and add to the residual    tail: drop cancelled rows, next layer's norm
 *
 * Where a batch has more rows than TAIL_ROWS, what the tails do becomes a stage of its own, split
 * by rows. Matrices are split by output columns into chunks of a size that depends on the shapes
 * and the number of threads alone; by the contract of the kernels no split changes a result.
 */
#include "daemon/engine/graph.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/kv.h"
#include "daemon/engine/mem.h"
#include "daemon/engine/threads.h"
#include "daemon/model/model.h"

/* Up to here a tail costs less than the barrier of a stage. */
#define TAIL_ROWS 4
/*
 * Columns in one task. Few and long: with 8 chunks a thread, at most 128 columns each, decoding on Zen 4 was a third
 * slower than with 2 and 512, since each start somewhere else costs the prefetchers their stride.
 */
#define CHUNK_ALIGN 16
#define CHUNK_MAX 512
#define CHUNKS_PER_THREAD 2
/* Tasks of an attention call in one claim: as many claims as level the threads. */
#define ATTN_CLAIMS 8

#define MAX_SLOTS 3

/* One weight matrix in a stage: where its input lies and where its output goes. */
struct mm {
	const struct sits_weight *w;
	const float *bias;
	uint32_t slot;		/* prepared input, in struct gemm */
	float *y;
	size_t ldy;
};

/* Matrices that share an input; types of equal act_class share a prepared copy of it. */
struct gemm {
	struct mm mm[3];
	uint32_t nr, nr_split, nr_slots;	/* the first nr_split are cut into chunks; others go along */
	uint32_t slot_type[MAX_SLOTS];
	size_t slot_row_bytes[MAX_SLOTS];
	size_t K, chunk, nr_chunks;
};

struct layer_plan {
	struct gemm qkv, wo, ffn, down;
};

/* Owned by the engine. Buffers are written by the team inside a run only. */
struct sits_graph {
	const struct sits_model *m;
	const struct sits_backend *be;
	struct sits_threads *team;
	size_t max_rows, max_outs;
	size_t E, F, QD, GD;	/* columns of x; of gate and up; of q; of k and v */
	size_t kv_layer_bytes;

	void *arena;		/* what follows lies here */
	size_t arena_len;
	float *x, *xn, *q, *k, *v, *att, *tmp, *gate, *up, *logits;
	uint8_t *act[MAX_SLOTS];

	struct layer_plan *plan;	/* [layers] */
	struct gemm out;
	uint8_t **scratch;	/* [threads], of scratch_len each */
	size_t scratch_len;
	uint32_t *row_seq;	/* [max_rows]: index into the batch's sequences */
	uint32_t *out_owner;	/* [max_outs] */

	/* Of the run under way; changed between stages only. */
	struct sits_graph_batch *b;
	const struct sits_kv *kv;
	const struct layer_plan *cur;
	size_t layer, rows, rows_per_task, nr_out;
	struct sits_attn attn;
	size_t attn_tasks, attn_per_claim;
};

/* ---- work on rows [r0, r1) ---- */

static void prepare(struct sits_graph *g, const struct gemm *gm, const float *x, size_t ldx, size_t r0, size_t r1)
{
	uint32_t s;

	for (s = 0; s < gm->nr_slots; s++)
		g->be->act_prepare(gm->slot_type[s], x + r0 * ldx, ldx, r1 - r0, gm->K,
				   g->act[s] + r0 * gm->slot_row_bytes[s]);
}

static void norm_rows(struct sits_graph *g, const struct gemm *gm, const struct sits_weight *w, size_t r0, size_t r1)
{
	g->be->rmsnorm(g->xn + r0 * g->E, g->x + r0 * g->E, w->data, r1 - r0, g->E, g->m->hp.rms_eps);
	prepare(g, gm, g->xn, g->E, r0, r1);
}

static void norm_attn_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	norm_rows(g, &g->cur->qkv, &g->m->layer[g->layer].attn_norm, r0, r1);
}

static void norm_ffn_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	norm_rows(g, &g->cur->ffn, &g->m->layer[g->layer].ffn_norm, r0, r1);
}

static void store_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	const struct sits_hparams *hp = &g->m->hp;
	const struct sits_attn_seq *s;
	const int32_t *pos = g->b->pos;
	uint8_t *page;
	size_t r;

	g->be->rope(g->q + r0 * g->QD, g->QD, pos + r0, g->m->inv_freq, r1 - r0, hp->heads, hp->head_dim,
		    hp->rope_dims, hp->rope_neox);
	g->be->rope(g->k + r0 * g->GD, g->GD, pos + r0, g->m->inv_freq, r1 - r0, hp->kv_heads, hp->head_dim,
		    hp->rope_dims, hp->rope_neox);
	for (r = r0; r < r1; r++) {
		s = &g->b->seq[g->row_seq[r]];
		page = g->kv->base + s->pages[pos[r] / SITS_KV_PAGE_TOKENS] * g->kv->page_bytes;
		g->be->kv_store(page + g->attn.layer_off, pos[r] % SITS_KV_PAGE_TOKENS, g->k + r * g->GD,
				g->v + r * g->GD, hp->kv_heads, hp->head_dim);
	}
}

static void prep_wo_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	prepare(g, &g->cur->wo, g->att, g->QD, r0, r1);
}

static void prep_down_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	prepare(g, &g->cur->down, g->gate, g->F, r0, r1);
}

static void embed_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	const struct sits_weight *w = &g->m->tok_embd;
	size_t r;

	for (r = r0; r < r1; r++)
		g->be->dequant(w->type, (const uint8_t *)w->data + (size_t)g->b->token[r] * w->row_bytes,
			       g->x + r * g->E, g->E);
	norm_attn_rows(g, r0, r1);
}

/* ---- the same as stages or as tails ---- */

#define ROW_TASK(name)									\
static void task_##name(void *arg, size_t i, uint32_t self)				\
{											\
	struct sits_graph *g = arg;							\
	size_t r0 = i * g->rows_per_task, r1 = r0 + g->rows_per_task;			\
											\
	name##_rows(g, r0, r1 < g->rows ? r1 : g->rows);				\
}

#define ROW_TAIL(name)									\
static void tail_##name(void *arg)							\
{											\
	struct sits_graph *g = arg;							\
											\
	name##_rows(g, 0, g->rows);							\
}

ROW_TASK(embed)
ROW_TASK(norm_attn)
ROW_TASK(store)
ROW_TAIL(store)
ROW_TASK(prep_wo)
ROW_TAIL(prep_wo)
ROW_TASK(norm_ffn)
ROW_TAIL(norm_ffn)
ROW_TASK(prep_down)
ROW_TAIL(prep_down)

/* ---- matrices: columns [n0, n1) ---- */

static size_t aligned_columns(size_t N)
{
	return (N + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
}

static void mm_run(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T, size_t n0, size_t n1)
{
	const struct sits_matmul call = {
		.wtype = mm->w->type, .w = mm->w->data, .w_row_bytes = mm->w->row_bytes,
		.x = g->act[mm->slot], .x_row_bytes = gm->slot_row_bytes[mm->slot],
		.y = mm->y, .ldy = mm->ldy, .T = T, .K = mm->w->K, .N = mm->w->N, .n0 = n0, .n1 = n1,
	};
	size_t t;

	g->be->matmul(&call);
	for (t = 0; mm->bias && t < T; t++)
		g->be->add(mm->y + t * mm->ldy + n0, mm->bias + n0, n1 - n0);
}

/*
 * Chunk i of the matrices of a gemm laid side by side, each rounded up to CHUNK_ALIGN: @fn runs for the part
 * of each matrix that lies in it.
 */
static void for_chunk(struct sits_graph *g, const struct gemm *gm, size_t i, size_t T,
		      void (*fn)(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T,
				 size_t n0, size_t n1))
{
	size_t from = i * gm->chunk, to = from + gm->chunk, at = 0, n0, n1;
	uint32_t j;

	for (j = 0; j < gm->nr_split; j++) {
		n0 = from > at ? from - at : 0;
		n1 = to > at ? to - at : 0;
		n1 = n1 < gm->mm[j].w->N ? n1 : gm->mm[j].w->N;
		if (n0 < n1)
			fn(g, gm, &gm->mm[j], T, n0, n1);
		at += aligned_columns(gm->mm[j].w->N);
	}
}

static void task_qkv(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	for_chunk(g, &g->cur->qkv, i, g->rows, mm_run);
}

static void mm_add(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T, size_t n0, size_t n1)
{
	size_t t;

	mm_run(g, gm, mm, T, n0, n1);
	for (t = 0; t < T; t++)
		g->be->add(g->x + t * g->E + n0, mm->y + t * mm->ldy + n0, n1 - n0);
}

static void task_wo(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	for_chunk(g, &g->cur->wo, i, g->rows, mm_add);
}

static void task_down(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	for_chunk(g, &g->cur->down, i, g->rows, mm_add);
}

/* Gate and up go together: their product is made while both are in the cache. */
static void mm_gate_up(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T, size_t n0,
		       size_t n1)
{
	size_t t;

	mm_run(g, gm, mm, T, n0, n1);
	mm_run(g, gm, mm + 1, T, n0, n1);
	for (t = 0; t < T; t++)
		g->be->silu_mul(g->gate + t * g->F + n0, g->gate + t * g->F + n0, g->up + t * g->F + n0, n1 - n0);
}

static void task_ffn(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	for_chunk(g, &g->cur->ffn, i, g->rows, mm_gate_up);
}

static void task_out(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	for_chunk(g, &g->out, i, g->nr_out, mm_run);
}

static void task_attend(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;
	size_t t0 = i * g->attn_per_claim, t1 = t0 + g->attn_per_claim;

	g->be->attn(&g->attn, t0, t1 < g->attn_tasks ? t1 : g->attn_tasks, g->scratch[self]);
}

static void task_sample(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	g->b->sample(g->b->arg, g->out_owner[i], g->logits + i * g->m->hp.vocab);
}

/* ---- between layers: one thread ---- */

static void set_rows(struct sits_graph *g, size_t rows)
{
	const uint32_t nr_threads = sits_threads_nr(g->team);
	size_t per = rows / (4 * nr_threads);

	g->rows = rows;
	g->rows_per_task = per < 1 ? 1 : per > 8 ? 8 : per;
	g->attn.seq = g->b->seq;
	g->attn.nr_seq = g->b->nr_seq;
	g->attn_tasks = rows ? g->be->attn_tasks(&g->attn) : 0;
	per = g->attn_tasks / (ATTN_CLAIMS * nr_threads);
	g->attn_per_claim = per ? per : 1;
}

static void map_rows(struct sits_graph *g)
{
	const struct sits_graph_batch *b = g->b;
	size_t i, r;

	for (i = 0; i < b->nr_seq; i++)
		for (r = 0; r < b->seq[i].nr; r++)
			g->row_seq[b->seq[i].row0 + r] = i;
}

/* Between layers only the residual and the positions carry on: rows that stay close up. */
static void drop_rows(struct sits_graph *g)
{
	struct sits_graph_batch *b = g->b;
	size_t i, n = 0, row = 0;

	for (i = 0; i < b->nr_seq; i++) {
		if (b->dropped(b->arg, b->owner[i]))
			continue;
		if (n < i) {
			memmove(g->x + row * g->E, g->x + b->seq[i].row0 * g->E, b->seq[i].nr * g->E * sizeof(float));
			memmove(b->pos + row, b->pos + b->seq[i].row0, b->seq[i].nr * sizeof(*b->pos));
			b->seq[n] = b->seq[i];
			b->seq[n].row0 = row;
			b->owner[n] = b->owner[i];
			b->want[n] = b->want[i];
		}
		row += b->seq[n++].nr;
	}
	if (n == b->nr_seq)
		return;
	b->nr_seq = n;
	map_rows(g);
	set_rows(g, row);
}

/* The wanted rows' final norm, gathered, as the input of the output matrix. */
static void gather_outs(struct sits_graph *g)
{
	const struct sits_graph_batch *b = g->b;
	size_t i, last;

	g->nr_out = 0;
	for (i = 0; i < b->nr_seq; i++) {
		if (!b->want[i])
			continue;
		last = b->seq[i].row0 + b->seq[i].nr - 1;
		g->be->rmsnorm(g->xn + g->nr_out * g->E, g->x + last * g->E, g->m->output_norm.data, 1, g->E,
			       g->m->hp.rms_eps);
		g->out_owner[g->nr_out++] = b->owner[i];
	}
	if (g->nr_out)
		prepare(g, &g->out, g->xn, g->E, 0, g->nr_out);
}

static void tail_layer(void *arg)
{
	struct sits_graph *g = arg;

	if (g->b->dropped)
		drop_rows(g);
	g->layer++;
	if (!g->rows || g->layer == g->m->hp.layers) {
		gather_outs(g);
		return;
	}
	g->cur = &g->plan[g->layer];
	g->attn.layer_off = g->layer * g->kv_layer_bytes;
	if (g->rows <= TAIL_ROWS)
		norm_attn_rows(g, 0, g->rows);
}

/* ---- the program ---- */

static void rows_or_tail(struct sits_graph *g, uint32_t self, size_t nr,
			 void (*task)(void *arg, size_t i, uint32_t self),
			 void (*row_task)(void *arg, size_t i, uint32_t self), void (*row_tail)(void *arg))
{
	bool small = g->rows <= TAIL_ROWS;
	size_t row_tasks = (g->rows + g->rows_per_task - 1) / g->rows_per_task;

	sits_threads_stage(g->team, self, nr, task, small ? row_tail : NULL, g);
	if (!small)
		sits_threads_stage(g->team, self, row_tasks, row_task, NULL, g);
}

static void body(void *arg, uint32_t self)
{
	struct sits_graph *g = arg;
	uint32_t l;

	sits_threads_stage(g->team, self, (g->rows + g->rows_per_task - 1) / g->rows_per_task, task_embed, NULL, g);
	for (l = 0; l < g->m->hp.layers && g->rows; l++) {
		if (l && g->rows > TAIL_ROWS)
			sits_threads_stage(g->team, self, (g->rows + g->rows_per_task - 1) / g->rows_per_task,
					   task_norm_attn, NULL, g);
		rows_or_tail(g, self, g->cur->qkv.nr_chunks, task_qkv, task_store, tail_store);
		rows_or_tail(g, self, (g->attn_tasks + g->attn_per_claim - 1) / g->attn_per_claim, task_attend,
			     task_prep_wo, tail_prep_wo);
		rows_or_tail(g, self, g->cur->wo.nr_chunks, task_wo, task_norm_ffn, tail_norm_ffn);
		rows_or_tail(g, self, g->cur->ffn.nr_chunks, task_ffn, task_prep_down, tail_prep_down);
		sits_threads_stage(g->team, self, g->cur->down.nr_chunks, task_down, tail_layer, g);
	}
	if (!g->nr_out)
		return;
	sits_threads_stage(g->team, self, g->out.nr_chunks, task_out, NULL, g);
	sits_threads_stage(g->team, self, g->nr_out, task_sample, NULL, g);
}

/* Attention's scratch depends on the batch; a layer's call is like the next one's. */
static int reserve_scratch(struct sits_graph *g)
{
	size_t need = g->be->attn_scratch_bytes(&g->attn);
	uint32_t i, nr = sits_threads_nr(g->team);
	void *p;

	if (need <= g->scratch_len)
		return 0;
	for (i = 0; i < nr; i++) {
		sits_mem_unmap(g->scratch[i], g->scratch_len);
		g->scratch[i] = NULL;
	}
	g->scratch_len = 0;
	need += need / 2;
	for (i = 0; i < nr; i++) {
		if (sits_mem_map(need, &p))
			goto err_unmap;
		g->scratch[i] = p;
	}
	g->scratch_len = need;
	return 0;

err_unmap:
	while (i--) {
		sits_mem_unmap(g->scratch[i], need);
		g->scratch[i] = NULL;
	}
	return -ENOMEM;
}

int sits_graph_run(struct sits_graph *g, const struct sits_kv *kv, struct sits_graph_batch *b)
{
	const struct sits_hparams *hp = &g->m->hp;
	int ret;

	g->b = b;
	g->kv = kv;
	g->layer = 0;
	g->cur = g->plan;
	g->nr_out = 0;
	g->attn = (struct sits_attn){
		.q = g->q, .y = g->att, .kv = kv->base, .page_bytes = kv->page_bytes, .H = hp->heads,
		.G = hp->kv_heads, .D = hp->head_dim, .scale = 1.0f / sqrtf(hp->head_dim),
	};
	map_rows(g);
	set_rows(g, b->T);
	ret = reserve_scratch(g);
	if (ret)
		return ret;
	sits_threads_run(g->team, body, g);
	return 0;
}

/* ---- plan ---- */

static void plan_begin(struct gemm *gm, size_t K)
{
	memset(gm, 0, sizeof(*gm));
	gm->K = K;
}

static void plan_add(struct sits_graph *g, struct gemm *gm, const struct sits_weight *w, const struct sits_weight *bias,
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

/* Cut the first @nr_split matrices into chunks. */
static void plan_end(struct sits_graph *g, struct gemm *gm, uint32_t nr_split)
{
	size_t total = 0, c;
	uint32_t i;

	for (i = 0; i < nr_split; i++)
		total += aligned_columns(gm->mm[i].w->N);
	c = aligned_columns(total / (CHUNKS_PER_THREAD * sits_threads_nr(g->team)));
	gm->chunk = c < CHUNK_ALIGN ? CHUNK_ALIGN : c > CHUNK_MAX ? CHUNK_MAX : c;
	gm->nr_chunks = (total + gm->chunk - 1) / gm->chunk;
	gm->nr_split = nr_split;
}

static void plan_all(struct sits_graph *g)
{
	const struct sits_layer *l;
	struct layer_plan *p;
	uint32_t i;

	for (i = 0; i < g->m->hp.layers; i++) {
		l = &g->m->layer[i];
		p = &g->plan[i];
		plan_begin(&p->qkv, g->E);
		plan_add(g, &p->qkv, &l->wq, &l->bq, g->q, g->QD);
		plan_add(g, &p->qkv, &l->wk, &l->bk, g->k, g->GD);
		plan_add(g, &p->qkv, &l->wv, &l->bv, g->v, g->GD);
		plan_end(g, &p->qkv, 3);
		plan_begin(&p->wo, g->QD);
		plan_add(g, &p->wo, &l->wo, &l->bo, g->tmp, g->E);
		plan_end(g, &p->wo, 1);
		plan_begin(&p->ffn, g->E);
		plan_add(g, &p->ffn, &l->w_gate, &l->b_gate, g->gate, g->F);
		plan_add(g, &p->ffn, &l->w_up, &l->b_up, g->up, g->F);
		plan_end(g, &p->ffn, 1);
		plan_begin(&p->down, g->F);
		plan_add(g, &p->down, &l->w_down, &l->b_down, g->tmp, g->E);
		plan_end(g, &p->down, 1);
	}
	plan_begin(&g->out, g->E);
	plan_add(g, &g->out, &g->m->output, NULL, g->logits, g->m->hp.vocab);
	plan_end(g, &g->out, 1);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static size_t widest_slot(const struct gemm *gm)
{
	size_t n = 0;
	uint32_t s;

	for (s = 0; s < gm->nr_slots; s++)
		n = larger(n, gm->slot_row_bytes[s]);
	return n;
}

/* Place the buffers one after another, each on a cache line. With base NULL only the length counts. */
static size_t place(struct sits_graph *g, uint8_t *base, size_t slot_bytes)
{
	const size_t R = g->max_rows;
	struct { float **p; size_t nr; } part[] = {
		{ &g->x, R * g->E }, { &g->xn, larger(R, g->max_outs) * g->E }, { &g->q, R * g->QD },
		{ &g->k, R * g->GD }, { &g->v, R * g->GD }, { &g->att, R * g->QD }, { &g->tmp, R * g->E },
		{ &g->gate, R * g->F }, { &g->up, R * g->F }, { &g->logits, g->max_outs * g->m->hp.vocab },
	};
	size_t at = 0, i;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		*part[i].p = base ? (float *)(base + at) : NULL;
		at += (part[i].nr * sizeof(float) + 63) & ~(size_t)63;
	}
	for (i = 0; i < MAX_SLOTS; i++) {
		g->act[i] = base ? base + at : NULL;
		at += (slot_bytes + 63) & ~(size_t)63;
	}
	return at;
}

static int create_buffers(struct sits_graph *g)
{
	size_t wide, i;
	void *p;
	int ret;

	g->plan = calloc(g->m->hp.layers, sizeof(*g->plan));
	g->scratch = calloc(sits_threads_nr(g->team), sizeof(*g->scratch));
	g->row_seq = malloc(g->max_rows * sizeof(*g->row_seq));
	g->out_owner = malloc(g->max_outs * sizeof(*g->out_owner));
	if (!g->plan || !g->scratch || !g->row_seq || !g->out_owner)
		return -ENOMEM;
	/* Planned twice: for the widths, and again when the buffers have addresses. */
	plan_all(g);
	wide = widest_slot(&g->out);
	for (i = 0; i < g->m->hp.layers; i++) {
		wide = larger(wide, widest_slot(&g->plan[i].qkv));
		wide = larger(wide, widest_slot(&g->plan[i].wo));
		wide = larger(wide, widest_slot(&g->plan[i].ffn));
		wide = larger(wide, widest_slot(&g->plan[i].down));
	}
	wide *= larger(g->max_rows, g->max_outs);
	g->arena_len = place(g, NULL, wide);
	ret = sits_mem_map(g->arena_len, &p);
	if (ret)
		return ret;
	g->arena = p;
	place(g, p, wide);
	plan_all(g);
	return 0;
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
	g->GD = (size_t)m->hp.kv_heads * m->hp.head_dim;
	g->kv_layer_bytes = be->kv_layer_bytes(m->hp.kv_heads, m->hp.head_dim);
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
	sits_mem_unmap(g->arena, g->arena_len);
	free(g->scratch);
	free(g->row_seq);
	free(g->out_owner);
	free(g->plan);
	free(g);
}
