/* SPDX-License-Identifier: MIT */
/*
 * graph_impl.h - what the graph's files share; nobody else includes it.
 *
 *	graph.c		the program of stages, attention, dense FFN, rows and outputs
 *	graph_plan.c	which matrices a stage has, how they are cut, buffers; create and destroy
 *	graph_moe.c	mixtures of experts
 *	graph_mla.c	multi-head latent attention
 */
#ifndef SITS_ENGINE_GRAPH_IMPL_H
#define SITS_ENGINE_GRAPH_IMPL_H

#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/moe_stats.h"
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

/* Prepared forms of an input that live at a time: as many as there are classes of weights (act_class()). */
#define MAX_SLOTS 3
#define MAX_MM 6

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
	struct mm mm[MAX_MM];
	uint32_t nr, nr_split, nr_slots;	/* the first nr_split are cut into chunks; others go along */
	uint32_t slot_type[MAX_SLOTS];
	size_t slot_row_bytes[MAX_SLOTS];
	uint8_t *act[MAX_SLOTS];	/* the prepared rows, at most max_rows */
	size_t K, max_rows, chunk, nr_chunks;
};

/* moe: what a mixture's layer has in place of ffn and down. @in prepares for all that read the normed rows. */
struct layer_plan {
	struct gemm qkv, q_b, wo, ffn, down;	/* q_b: of MLA with q_rank */
	struct {
		struct gemm in, route;	/* route: the router and the shared expert's gate, of in */
		struct gemm down, shared_down;
	} moe;
};

/* Wanted rows of one sequence, adjacent in the logits. */
struct out_run {
	uint32_t owner;
	size_t row0, nr;
};

/* An expert that rows of this layer go to: pairs (row, expert) [p0, p0 + nr) in order of experts. */
struct moe_group {
	uint32_t expert;
	size_t p0, nr;
};

/* Routing of the layer under way; R = max_rows, k = experts used for each. */
struct moe_run {
	struct sits_route_rule rule;	/* the model's, but for the temperature */
	float *logits, *gate;	/* [R][experts]; [R]: what the shared expert is multiplied by */
	uint32_t *expert;	/* [R][k] by row, rank in a row */
	float *weight;
	uint32_t *pair_row;	/* [R * k]: row of each pair, in order of experts */
	float *pair_weight;
	struct moe_group *group;	/* [experts]: those in use, ascending */
	uint32_t *count, *next, *end;	/* [experts] each, of the sort; one allocation */
	size_t nr_groups, nr_pairs;
	size_t chunk, nr_chunks;	/* columns of the shared experts and all groups, side by side */

	float *hidden, *shared;	/* silu(gate) * up: [R * k][expert_ff]; [R][shared_ff] */
	uint8_t *act_shared;	/* prepared rows of shared */
	size_t act_shared_bytes;
	float *tmp;		/* [threads][MOE_ROWS][MOE_TMP_LD] */
};

/* Pairs of one expert in one product: its outputs stay in the cache until they are added up. */
#define MOE_ROWS 64
/* Columns of one task, and a line: rows a power of two apart would share few sets of the cache. */
#define MOE_TMP_LD (CHUNK_MAX + 16)

/* Buffers of MLA; H heads, R = kv_rank. */
struct mla_run {
	float *q_a, *q, *sum;	/* [max_rows][q_rank]; [max_rows][H][KD]: absorbed; [max_rows][H][R]: weighted latents */
	uint8_t *act;		/* [threads][act_bytes]: a head's prepared input */
	size_t act_bytes;
};

/* Owned by the engine. Buffers are written by the team inside a run only. */
struct sits_graph {
	const struct sits_model *m;
	const struct sits_backend *be;
	struct sits_threads *team;
	size_t max_rows, max_outs;
	size_t E, F;		/* columns of x; of a dense layer's gate and up */
	size_t QD, KD, VD, AD;	/* of q, k, v, and of what attention gives */
	struct sits_kv_shape kv_shape;
	size_t kv_layer_bytes;

	void *arena;		/* what follows lies here */
	size_t arena_len;
	float *x, *xn, *q, *k, *v, *att, *tmp, *gate, *up, *logits;
	float *entropy;		/* [rows][H] of the layer under way, where the batch asks for it */
	uint8_t *act[MAX_SLOTS];
	size_t act_bytes[MAX_SLOTS];
	struct moe_run moe;
	struct mla_run mla;

	struct layer_plan *plan;	/* [layers] */
	struct gemm out;
	uint8_t **scratch;	/* [threads], of scratch_len each */
	size_t scratch_len;
	void *work;		/* of attention, shared by the threads; work_len bytes */
	size_t work_len;
	uint32_t *row_seq;	/* [max_rows]: index into the batch's sequences */
	struct out_run *outs;	/* [max_outs] */

	struct sits_moe_stats *moe_stats;	/* NULL in a dense model */

	/* Of the run under way; changed between stages only. */
	struct sits_graph_batch *b;
	const struct sits_kv *kv;
	const struct layer_plan *cur;
	size_t layer, rows, rows_per_task;
	size_t nr_out, nr_outs;	/* rows whose logits are wanted; sequences that they belong to */
	struct sits_attn attn;
	size_t attn_tasks, attn_per_claim;
};

/* ---- graph.c ---- */

/** prepare() - Rows [r0, r1) of @x as the input of @gm's matrices. */
void sits_graph_prepare(struct sits_graph *g, const struct gemm *gm, const float *x, size_t ldx, size_t r0, size_t r1);
/** sits_graph_mm() - Columns [n0, n1) of one matrix for the first @T rows, bias added. */
void sits_graph_mm(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T, size_t n0, size_t n1);
/** sits_graph_chunk() - Chunk @i of the matrices of a gemm laid side by side: @fn for the part of each that lies in it. */
void sits_graph_chunk(struct sits_graph *g, const struct gemm *gm, size_t i, size_t T,
		      void (*fn)(struct sits_graph *g, const struct gemm *gm, const struct mm *mm, size_t T,
				 size_t n0, size_t n1));
/** sits_graph_rows_or_tail() - A stage of @nr tasks, and work on all rows behind it: as the stage's tail where they are few,
 * else as a stage of its own, with tail @after. */
void sits_graph_rows_or_tail(struct sits_graph *g, uint32_t self, size_t nr,
			     void (*task)(void *arg, size_t i, uint32_t self),
			     void (*row_task)(void *arg, size_t i, uint32_t self), void (*row_tail)(void *arg),
			     void (*after)(void *arg));
/** sits_graph_store() - Keys and values of rows [r0, r1), in k and v, into their pages. */
void sits_graph_store(struct sits_graph *g, size_t r0, size_t r1);
/** sits_graph_end_layer() - The tail of a layer's last stage: cancelled rows leave; the next layer begins. */
void sits_graph_end_layer(void *arg);

/* name_rows(g, r0, r1) as a task of a stage, and as a tail. */
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

/* ---- graph_plan.c ---- */

static inline size_t aligned_columns(size_t N)
{
	return (N + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
}

/** sits_graph_columns() - Columns of one task where @total are to be split over the threads. */
size_t sits_graph_columns(const struct sits_graph *g, size_t total);

/* A gemm is planned by begin, adds, end; end cuts the first @nr_split matrices into chunks. */
void sits_plan_begin(struct sits_graph *g, struct gemm *gm, size_t K);
void sits_plan_add(struct sits_graph *g, struct gemm *gm, const struct sits_weight *w, const struct sits_weight *bias,
		   float *y, size_t ldy);
void sits_plan_end(struct sits_graph *g, struct gemm *gm, uint32_t nr_split);
/** sits_plan_subset() - Begin a gemm that reads what @in prepares. */
void sits_plan_subset(struct gemm *gm, const struct gemm *in);

/* ---- graph_mla.c ---- */

void sits_mla_plan(struct sits_graph *g, const struct sits_layer *l, struct layer_plan *p);
/** sits_mla_stages() - From the normed and prepared rows to the input of attention. */
void sits_mla_stages(struct sits_graph *g, uint32_t self);
/** sits_mla_v_up() - Task @h, of as many as there are heads: from a head's weighted latents to its part of att. */
void sits_mla_v_up(void *arg, size_t h, uint32_t self);

/* ---- graph_moe.c ---- */

void sits_moe_plan(struct sits_graph *g, const struct sits_layer *l, struct layer_plan *p);
/** sits_moe_stages() - From the normed and prepared rows to the residual; the last stage's tail is sits_graph_end_layer(). */
void sits_moe_stages(struct sits_graph *g, uint32_t self);
/** sits_moe_init() - Statistics, and arrays outside of the arena. Return: 0; -ENOMEM. */
int sits_moe_init(struct sits_graph *g);
void sits_moe_fini(struct sits_graph *g);

#endif
