/* SPDX-License-Identifier: MIT */
/*
 * graph.h - one pass of a batch through a model.
 *
 * The graph is written once for all backends and for every architecture that struct sits_model can
 * describe. Rows of a batch are tokens; rows of one sequence are consecutive. What a row becomes
 * depends on its own sequence alone, bit for bit: see kernels/kernels.h on batch invariance.
 *
 * Dimension letters: T rows, E embedding, F feed-forward, H query heads, G key/value heads, D head
 * size, V vocabulary.
 */
#ifndef SITS_ENGINE_GRAPH_H
#define SITS_ENGINE_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "kernels/kernels.h"

struct sits_graph;
struct sits_kv;
struct sits_model;
struct sits_moe_stats;
struct sits_threads;

/* What a probe sees. */
enum sits_probe {
	SITS_PROBE_FFN_IN,	/* [rows][E]: the normed rows that a layer's FFN, or its router and experts, read */
};

/**
 * struct sits_graph_batch - rows, and where they belong; the arrays are the caller's, changed by drops.
 * @token: @pos: [T] ids and positions
 * @seq: [nr_seq] sequences, their rows consecutive and in order; pages cover every position
 * @owner: [nr_seq] the caller's number for each sequence
 * @layer_stride: [nr_seq] where a sequence's layers have block tables of their own (with head_stride): how far one layer's
 *	is behind the one before; seq says where the first one's is. 0: all layers share one. May be NULL: 0 for all
 * @want: [nr_seq] how many of its last rows' logits are asked for; their sum is at most the graph's max_outs
 * @dropped: asked between layers, by one thread at a time: is owner's work pointless now? Its rows leave
 *	the batch. May be NULL
 * @sample: called once for each sequence that wants logits, by any thread of the team, several at a time;
 *	logits: [nr][V] of its last @nr rows, in order, valid until the next run
 * @routed: may be NULL; called for each row and layer of experts, one call at a time: the row's experts by rank and their
 *	weights, [route.used] each (with a capacity factor: also those that are dropped)
 * @entropy: may be NULL; called for each layer and sequence, one call at a time: entropies of its rows' softmax, [rows][H] nats,
 *	positions ascending from @pos; borrowed during the call
 * @probe: may be NULL; called for each layer, one call at a time; x: borrowed during the call
 */
struct sits_graph_batch {
	size_t T, nr_seq;
	const int32_t *token;
	int32_t *pos;
	struct sits_attn_seq *seq;
	size_t *layer_stride;
	uint32_t *owner;
	uint32_t *want;
	bool (*dropped)(void *arg, uint32_t owner);
	void (*sample)(void *arg, uint32_t owner, const float *logits, size_t nr);
	void (*routed)(void *arg, uint32_t layer, uint32_t owner, int32_t pos, const uint32_t *expert, const float *weight);
	void (*entropy)(void *arg, uint32_t layer, uint32_t owner, int32_t pos, const float *entropy, size_t rows);
	void (*probe)(void *arg, enum sits_probe what, uint32_t layer, const float *x, size_t rows, size_t cols);
	void *arg;
};

/**
 * sits_graph_create() - Buffers and plan for batches of at most @max_rows rows and @max_outs wanted ones.
 * @m: @be: @team: borrowed until destroy
 * Return: 0; -ENOMEM; -EPROTONOSUPPORT where the backend can't run the model.
 */
int sits_graph_create(const struct sits_model *m, const struct sits_backend *be, struct sits_threads *team,
		      size_t max_rows, size_t max_outs, struct sits_graph **out, struct sits_diag *diag);
void sits_graph_destroy(struct sits_graph *g);	/* NULL is allowed */

/** sits_graph_kv_shape() - What a layer of @m keeps for a token; @kind: enum sits_kv_kind. */
void sits_graph_kv_shape(const struct sits_model *m, uint32_t kind, struct sits_kv_shape *s);

/** sits_graph_page_bytes() - Bytes of a page of KV for all layers; @kind: enum sits_kv_kind. */
size_t sits_graph_page_bytes(const struct sits_model *m, const struct sits_backend *be, uint32_t kind);

/** sits_graph_set_kv_kind() - How the pools that it will run on keep keys and values: enum sits_kv_kind, F16 if
 * nothing is said. Context: before the first run. */
void sits_graph_set_kv_kind(struct sits_graph *g, uint32_t kind);

/** sits_graph_set_route_temperature() - What the routers' logits are divided by, > 0; 1, as models are trained, if nothing is
 * said. A dense model has no use for it. Context: between runs. */
void sits_graph_set_route_temperature(struct sits_graph *g, float temperature);

/** sits_graph_copy_cell() - A layer's cell (kernels/kernels.h) of a page of @kv into another's. Context: between runs. */
void sits_graph_copy_cell(const struct sits_graph *g, const struct sits_kv *kv, uint32_t layer, uint32_t to_page,
			  uint32_t to_cell, uint32_t from_page, uint32_t from_cell);

/** sits_graph_moe() - Options and statistics of the experts; NULL in a dense model. Context: between runs. */
struct sits_moe_stats *sits_graph_moe(struct sits_graph *g);

/** sits_graph_run() - Compute; keys and values go to @kv.
 * Return: 0; -EINVAL where more logits are wanted than max_outs, -ENOMEM: nothing was computed. */
int sits_graph_run(struct sits_graph *g, const struct sits_kv *kv, struct sits_graph_batch *b);

#endif
