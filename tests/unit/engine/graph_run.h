/* SPDX-License-Identifier: MIT */
/*
 * graph_run.h - a graph and a few sequences for tests that ask it directly, without the engine.
 * Include after cmocka.h.
 */
#ifndef SITS_TESTS_ENGINE_GRAPH_RUN_H
#define SITS_TESTS_ENGINE_GRAPH_RUN_H

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/threads.h"
#include "daemon/model/model.h"

#define GRAPH_RUN_SEQS 2

struct graph_run {
	const struct sits_model *m;
	struct sits_graph *g;
	struct sits_kv kv;
	struct sits_kv_table table[GRAPH_RUN_SEQS];
};

/* Sequences of up to @tokens tokens, batches of up to as many rows, logits of up to @outs. @kind: enum sits_kv_kind */
static inline void graph_run_init(struct graph_run *r, const struct sits_model *m, const struct sits_backend *be,
				  struct sits_threads *team, uint32_t kind, size_t tokens, size_t outs)
{
	struct sits_diag diag = { 0 };

	memset(r, 0, sizeof(*r));
	r->m = m;
	assert_int_equal(sits_kv_init(&r->kv, sits_graph_page_bytes(m, be, kind), GRAPH_RUN_SEQS * sits_kv_pages(tokens)),
			 0);
	if (sits_graph_create(m, be, team, tokens, outs, &r->g, &diag))
		fail_msg("%s", diag.msg);
	sits_graph_set_kv_kind(r->g, kind);
}

static inline void graph_run_fini(struct graph_run *r)
{
	size_t i;

	sits_graph_destroy(r->g);
	for (i = 0; i < GRAPH_RUN_SEQS; i++)
		sits_kv_release(&r->kv, &r->table[i]);
	sits_kv_fini(&r->kv);
}

/* Make sequence @i cover @tokens tokens; its block table. */
static inline const uint32_t *graph_run_pages(struct graph_run *r, size_t i, size_t tokens)
{
	assert_int_equal(sits_kv_grow(&r->kv, &r->table[i], tokens), 0);
	return r->table[i].page;
}

/*
 * Rows of sequence 0 alone: tokens @from .. @from + @nr - 1 of @token. @b: its want, sample, routed and arg are the
 * caller's; the rest is filled in. @want: how many of the last rows' logits.
 */
static inline void graph_run_rows(struct graph_run *r, struct sits_graph_batch *b, const int32_t *token, uint32_t from,
				  uint32_t nr, uint32_t want)
{
	struct sits_attn_seq seq = { .pages = graph_run_pages(r, 0, from + nr), .nr = nr, .pos0 = from };
	int32_t *pos = malloc(nr * sizeof(*pos));
	uint32_t owner = 0, i;

	assert_non_null(pos);
	for (i = 0; i < nr; i++)
		pos[i] = from + i;
	b->T = nr;
	b->nr_seq = 1;
	b->token = token + from;
	b->pos = pos;
	b->seq = &seq;
	b->owner = &owner;
	b->want = &want;
	assert_int_equal(sits_graph_run(r->g, &r->kv, b), 0);
	free(pos);
}

#endif
