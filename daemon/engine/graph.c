// SPDX-License-Identifier: MIT
/*
 * graph.c - see graph.h.
 *
 * One run is one program of the thread team, five stages a layer:
 *
 *	qkv     matrices q, k, v           tail: RoPE, store k and v
 *	attend  heads of sequences         tail: prepare the input of wo
 *	wo      and add to the residual    tail: norm, prepare the input of gate and up
 *	ffn     gate, up, silu, product    tail: prepare the input of down
 *	down    and add to the residual    tail: drop cancelled rows, next layer's norm
 *
 * A mixture of experts has three stages in place of the last two: graph_moe.c. Latent attention has others before attend, and one
 * behind: graph_mla.c.
 *
 * Where a batch has more rows than TAIL_ROWS, what the tails do becomes a stage of its own, split
 * by rows. Matrices are split by output columns into chunks of a size that depends on the shapes
 * and the number of threads alone; by the contract of the kernels no split changes a result.
 */
#include <errno.h>
#include <string.h>

#include "daemon/engine/graph_impl.h"
#include "daemon/engine/mem.h"

/* ---- work on rows [r0, r1) ---- */

void sits_graph_prepare(struct sits_graph *g, const struct gemm *gm, const float *x, size_t ldx, size_t r0, size_t r1)
{
	uint32_t s;

	for (s = 0; s < gm->nr_slots; s++)
		g->be->act_prepare(gm->slot_type[s], x + r0 * ldx, ldx, r1 - r0, gm->K,
				   gm->act[s] + r0 * gm->slot_row_bytes[s]);
}

static void norm_rows(struct sits_graph *g, const struct gemm *gm, const struct sits_weight *w, size_t r0, size_t r1)
{
	float *x = g->x + r0 * g->E, *xn = g->xn + r0 * g->E;

	if (gm->nr_slots == 1) {
		g->be->add_rmsnorm_prepare(gm->slot_type[0], x, NULL, w->data, xn, r1 - r0, g->E, g->m->hp.rms_eps,
					   gm->act[0] + r0 * gm->slot_row_bytes[0]);
		return;
	}
	g->be->rmsnorm(xn, x, w->data, r1 - r0, g->E, g->m->hp.rms_eps);
	sits_graph_prepare(g, gm, g->xn, g->E, r0, r1);
}

static void norm_attn_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	norm_rows(g, &g->cur->qkv, &g->m->layer[g->layer].attn_norm, r0, r1);
}

static void norm_ffn_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	const struct sits_layer *l = &g->m->layer[g->layer];

	norm_rows(g, l->kind == SITS_LAYER_MOE ? &g->cur->moe.in : &g->cur->ffn, &l->ffn_norm, r0, r1);
}

/* This layer's part of the page that row @r's key and value go to: of a page that is written, head g has cell g. */
static void *page_of_row(const struct sits_graph *g, size_t r)
{
	const struct sits_attn_seq *s = &g->b->seq[g->row_seq[r]];
	size_t page = s->pages[g->b->pos[r] / SITS_KV_PAGE_TOKENS];

	if (s->head_stride)
		page /= g->kv_shape.G;
	return g->kv->base + page * g->kv->page_bytes + g->attn.layer_off;
}

void sits_graph_store(struct sits_graph *g, size_t r0, size_t r1)
{
	size_t r;

	for (r = r0; r < r1; r++)
		g->be->kv_store(&g->kv_shape, page_of_row(g, r), g->b->pos[r] % SITS_KV_PAGE_TOKENS, g->k + r * g->KD,
				g->v + r * g->VD);
}

static void store_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	const struct sits_hparams *hp = &g->m->hp;
	const struct sits_layer *l = &g->m->layer[g->layer];
	struct sits_rope_store rs = {
		.H = hp->heads, .shape = &g->kv_shape, .q_norm = l->q_norm.data, .k_norm = l->k_norm.data,
		.norm_all = hp->qk_norm == SITS_QK_NORM_ALL, .eps = hp->rms_eps, .inv_freq = g->m->inv_freq,
		.R = hp->rope.dims, .neox = hp->rope.neox,
		/* The magnitude of rotated q and k both: in q.k it is the square on one of them. */
		.q_scale = g->m->rope_mscale * g->m->rope_mscale,
	};
	size_t r;

	for (r = r0; r < r1; r++) {
		rs.q = g->q + r * g->QD;
		rs.k = g->k + r * g->KD;
		rs.v = g->v + r * g->VD;
		rs.pos = g->b->pos[r];
		rs.layer = page_of_row(g, r);
		rs.slot = rs.pos % SITS_KV_PAGE_TOKENS;
		g->be->rope_store(&rs);
	}
}

static void prep_wo_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	sits_graph_prepare(g, &g->cur->wo, g->att, g->AD, r0, r1);
}

static void prep_down_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	sits_graph_prepare(g, &g->cur->down, g->gate, g->F, r0, r1);
}

static void embed_rows(struct sits_graph *g, size_t r0, size_t r1)
{
	const struct sits_weight *w = &g->m->tok_embd;
	size_t r;

	for (r = r0; r < r1; r++)
		g->be->dequant(w->type, sits_dtype_row(w->type, w->data, w->row_bytes, g->b->token[r]), g->x + r * g->E,
			       g->E);
	norm_attn_rows(g, r0, r1);
}

/* ---- the same as stages or as tails ---- */

ROW_TASK(embed)
ROW_TASK(norm_attn)
ROW_TASK(store)
ROW_TAIL(store)
ROW_TASK(prep_wo)
ROW_TAIL(prep_wo)
ROW_TASK(norm_ffn)
ROW_TASK(prep_down)
ROW_TAIL(prep_down)

static void tail_probe_ffn(void *arg)
{
	struct sits_graph *g = arg;

	if (g->b->probe)
		g->b->probe(g->b->arg, SITS_PROBE_FFN_IN, g->layer, g->xn, g->rows, g->E);
}

static void tail_norm_ffn(void *arg)
{
	struct sits_graph *g = arg;

	norm_ffn_rows(g, 0, g->rows);
	tail_probe_ffn(g);
}

/* ---- matrices: columns [n0, n1) ---- */

void sits_graph_mm(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T, size_t n0, size_t n1)
{
	const struct sits_matmul call = {
		.wtype = mm->w->type, .w = mm->w->data, .w_row_bytes = mm->w->row_bytes,
		.x = gm->act[mm->slot], .x_row_bytes = gm->slot_row_bytes[mm->slot],
		.y = mm->y, .ldy = mm->ldy, .T = T, .K = mm->w->K, .N = mm->w->N, .n0 = n0, .n1 = n1,
	};
	size_t t;

	g->be->matmul(&call);
	for (t = 0; mm->bias && t < T; t++)
		g->be->add(mm->y + t * mm->ldy + n0, mm->bias + n0, n1 - n0);
}

void sits_graph_chunk(struct sits_graph *g, const struct gemm *gm, size_t i, size_t T,
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

	sits_graph_chunk(g, &g->cur->qkv, i, g->rows, sits_graph_mm);
}

static void mm_add(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T, size_t n0, size_t n1)
{
	size_t t;

	sits_graph_mm(g, gm, mm, T, n0, n1);
	for (t = 0; t < T; t++)
		g->be->add(g->x + t * g->E + n0, mm->y + t * mm->ldy + n0, n1 - n0);
}

static void task_wo(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	sits_graph_chunk(g, &g->cur->wo, i, g->rows, mm_add);
}

static void task_down(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	sits_graph_chunk(g, &g->cur->down, i, g->rows, mm_add);
}

/* Gate and up go together: their product is made while both are in the cache. */
static void mm_gate_up(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T, size_t n0,
		       size_t n1)
{
	size_t t;

	sits_graph_mm(g, gm, mm, T, n0, n1);
	sits_graph_mm(g, gm, mm + 1, T, n0, n1);
	for (t = 0; t < T; t++)
		g->be->silu_mul(g->gate + t * g->F + n0, g->gate + t * g->F + n0, g->up + t * g->F + n0, n1 - n0);
}

static void task_ffn(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	sits_graph_chunk(g, &g->cur->ffn, i, g->rows, mm_gate_up);
}

static void task_out(void *arg, size_t i, uint32_t self)
{
	struct sits_graph *g = arg;

	sits_graph_chunk(g, &g->out, i, g->nr_out, sits_graph_mm);
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
	const struct out_run *o = &g->outs[i];

	g->b->sample(g->b->arg, o->owner, g->logits + o->row0 * g->m->hp.vocab, o->nr);
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
}

static void set_layer(struct sits_graph *g, size_t layer)
{
	size_t per;

	g->layer = layer;
	g->cur = &g->plan[layer];
	g->attn.layer_off = layer * g->kv_layer_bytes;
	g->attn.window = g->m->layer[layer].window;
	/* Fewer rows may want more of it, after a drop; they can do without. */
	g->attn.work = g->rows && g->be->attn_work_bytes(&g->attn) <= g->work_len ? g->work : NULL;
	g->attn_tasks = g->rows ? g->be->attn_tasks(&g->attn) : 0;
	per = g->attn_tasks / (ATTN_CLAIMS * sits_threads_nr(g->team));
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
			if (b->layer_stride)
				b->layer_stride[n] = b->layer_stride[i];
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
	size_t i, first;

	g->nr_out = g->nr_outs = 0;
	for (i = 0; i < b->nr_seq; i++) {
		if (!b->want[i])
			continue;
		first = b->seq[i].row0 + b->seq[i].nr - b->want[i];
		g->be->rmsnorm(g->xn + g->nr_out * g->E, g->x + first * g->E, g->m->output_norm.data, b->want[i],
			       g->E, g->m->hp.rms_eps);
		g->outs[g->nr_outs++] = (struct out_run){ b->owner[i], g->nr_out, b->want[i] };
		g->nr_out += b->want[i];
	}
	if (g->nr_out)
		sits_graph_prepare(g, &g->out, g->xn, g->E, 0, g->nr_out);
}

static void tell_entropy(struct sits_graph *g)
{
	const struct sits_graph_batch *b = g->b;
	size_t i;

	for (i = 0; i < b->nr_seq; i++)
		b->entropy(b->arg, (uint32_t)g->layer, b->owner[i], (int32_t)b->seq[i].pos0,
			   g->entropy + b->seq[i].row0 * g->m->hp.heads, b->seq[i].nr);
}

/* Block tables of the next layer. */
static void next_tables(struct sits_graph *g)
{
	size_t i;

	for (i = 0; g->b->layer_stride && i < g->b->nr_seq; i++)
		g->b->seq[i].pages += g->b->layer_stride[i];
}

void sits_graph_end_layer(void *arg)
{
	struct sits_graph *g = arg;

	if (g->b->entropy)
		tell_entropy(g);
	if (g->b->dropped)
		drop_rows(g);
	if (!g->rows || g->layer + 1 == g->m->hp.layers) {
		gather_outs(g);
		return;
	}
	next_tables(g);
	set_layer(g, g->layer + 1);
	if (g->rows <= TAIL_ROWS)
		norm_attn_rows(g, 0, g->rows);
}

/* ---- the program ---- */

static size_t row_tasks(const struct sits_graph *g)
{
	return (g->rows + g->rows_per_task - 1) / g->rows_per_task;
}

void sits_graph_rows_or_tail(struct sits_graph *g, uint32_t self, size_t nr,
			     void (*task)(void *arg, size_t i, uint32_t self),
			     void (*row_task)(void *arg, size_t i, uint32_t self), void (*row_tail)(void *arg),
			     void (*after)(void *arg))
{
	bool small = g->rows <= TAIL_ROWS;

	sits_threads_stage(g->team, self, nr, task, small ? row_tail : NULL, g);
	if (!small)
		sits_threads_stage(g->team, self, row_tasks(g), row_task, after, g);
}

static size_t attn_claims(const struct sits_graph *g)
{
	return (g->attn_tasks + g->attn_per_claim - 1) / g->attn_per_claim;
}

static void attention_stages(struct sits_graph *g, uint32_t self)
{
	if (g->m->hp.kv_rank) {
		sits_mla_stages(g, self);
		sits_threads_stage(g->team, self, attn_claims(g), task_attend, NULL, g);
		sits_graph_rows_or_tail(g, self, g->m->hp.heads, sits_mla_v_up, task_prep_wo, tail_prep_wo, NULL);
		return;
	}
	sits_graph_rows_or_tail(g, self, g->cur->qkv.nr_chunks, task_qkv, task_store, tail_store, NULL);
	sits_graph_rows_or_tail(g, self, attn_claims(g), task_attend, task_prep_wo, tail_prep_wo, NULL);
}

static void dense_stages(struct sits_graph *g, uint32_t self)
{
	sits_graph_rows_or_tail(g, self, g->cur->ffn.nr_chunks, task_ffn, task_prep_down, tail_prep_down, NULL);
	sits_threads_stage(g->team, self, g->cur->down.nr_chunks, task_down, sits_graph_end_layer, g);
}

static void body(void *arg, uint32_t self)
{
	struct sits_graph *g = arg;
	uint32_t l;

	sits_threads_stage(g->team, self, row_tasks(g), task_embed, NULL, g);
	for (l = 0; l < g->m->hp.layers && g->rows; l++) {
		if (l && g->rows > TAIL_ROWS)
			sits_threads_stage(g->team, self, row_tasks(g), task_norm_attn, NULL, g);
		attention_stages(g, self);
		sits_graph_rows_or_tail(g, self, g->cur->wo.nr_chunks, task_wo, task_norm_ffn, tail_norm_ffn,
					tail_probe_ffn);
		if (g->m->layer[l].kind == SITS_LAYER_MOE)
			sits_moe_stages(g, self);
		else
			dense_stages(g, self);
	}
	if (!g->nr_out)
		return;
	sits_threads_stage(g->team, self, g->out.nr_chunks, task_out, NULL, g);
	sits_threads_stage(g->team, self, g->nr_outs, task_sample, NULL, g);
}

/* Attention's scratch depends on the batch; without a window it takes the most. */
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

/* What threads share that work on one row's context; zero at first, and left so that the next call can use it. */
static int reserve_work(struct sits_graph *g)
{
	size_t need = g->be->attn_work_bytes(&g->attn);
	int ret;

	if (need <= g->work_len)
		return 0;
	sits_mem_unmap(g->work, g->work_len);
	g->work = NULL;
	g->work_len = 0;
	need += need / 2;
	ret = sits_mem_map(need, &g->work);
	if (!ret)
		g->work_len = need;
	return ret;
}

int sits_graph_run(struct sits_graph *g, const struct sits_kv *kv, struct sits_graph_batch *b)
{
	const struct sits_hparams *hp = &g->m->hp;
	size_t i, wanted = 0;
	int ret;

	for (i = 0; i < b->nr_seq; i++)
		wanted += b->want[i];
	if (wanted > g->max_outs)
		return -EINVAL;
	g->b = b;
	g->kv = kv;
	g->nr_out = g->nr_outs = 0;
	g->attn = (struct sits_attn){
		.q = hp->kv_rank ? g->mla.q : g->q, .y = hp->kv_rank ? g->mla.sum : g->att, .kv = kv->base, .page_bytes = kv->page_bytes, .H = hp->heads,
		.shape = g->kv_shape, .scale = hp->attn_scale, .entropy = b->entropy ? g->entropy : NULL,
	};
	map_rows(g);
	set_rows(g, b->T);
	ret = reserve_scratch(g);
	if (!ret)
		ret = reserve_work(g);
	if (ret)
		return ret;
	set_layer(g, 0);
	sits_threads_run(g->team, body, g);
	return 0;
}
