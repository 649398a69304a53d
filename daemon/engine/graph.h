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
struct sits_threads;

/**
 * struct sits_graph_batch - rows, and where they belong; the arrays are the caller's, changed by drops.
 * @token: @pos: [T] ids and positions
 * @seq: [nr_seq] sequences, their rows consecutive and in order; pages cover every position
 * @owner: [nr_seq] the caller's number for each sequence
 * @want: [nr_seq] whether the logits of its last row are asked for
 * @dropped: asked between layers, by one thread at a time: is owner's work pointless now? Its rows leave
 *	the batch. May be NULL
 * @sample: called once for each wanted row, by any thread of the team, several at a time; logits: [V], valid
 *	until the next run
 */
struct sits_graph_batch {
	size_t T, nr_seq;
	const int32_t *token;
	int32_t *pos;
	struct sits_attn_seq *seq;
	uint32_t *owner;
	bool *want;
	bool (*dropped)(void *arg, uint32_t owner);
	void (*sample)(void *arg, uint32_t owner, const float *logits);
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

/** sits_graph_run() - Compute; keys and values go to @kv. Return: 0; -ENOMEM, then nothing was computed. */
int sits_graph_run(struct sits_graph *g, const struct sits_kv *kv, struct sits_graph_batch *b);

#endif
