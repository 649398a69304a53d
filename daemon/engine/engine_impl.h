/* SPDX-License-Identifier: MIT */
/*
 * engine_impl.h - what the files of the engine share: requests and the engine itself.
 *
 *	engine.c   creation, submit, cancel, a step
 *	request.c  the life of a request: lists, preemption, end
 *	plan.c     what runs in a step: admission, rows, pages
 *	output.c   what came out: draws, tokens, text
 *	spec.c     tokens that are guessed and then checked
 *	evict.c    keys and values that are given up
 *
 * A request is its tokens (prompt, then generated ones) and the number of them whose keys and
 * values are in its pages. It needs rows for the others, and when the last one's row has run, its
 * logits give the next token. So a prompt, the next token, and a request that comes back after it
 * lost its pages are one case, not three. Guessed tokens stand behind the others in the same array; a guess that
 * comes true is a token like any other, and what its row left in the pages is right.
 */
#ifndef SITS_ENGINE_IMPL_H
#define SITS_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/evict.h"
#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/moe_stats.h"
#include "daemon/engine/prefetch.h"
#include "daemon/engine/route_cache.h"
#include "daemon/engine/spec.h"
#include "daemon/engine/stream.h"
#include "daemon/engine/threads.h"
#include "daemon/model/model.h"
#include "kernels/kernels.h"

/* Scopes of the index of prefixes: this bit marks those that one request has to itself. */
#define PRIVATE_SCOPE	(1ull << 63)

/*
 * Heap; made by submit, freed by finish(). The engine's thread owns it but for cancelled, which
 * any thread sets under the engine's lock, and which is read without it.
 */
struct request {
	uint64_t id;		/* grows with arrival */
	uint64_t due_ns;	/* when it should start: the order of requests, then by id */
	struct request *next;	/* waiting list */
	struct request *all_next, *all_prev;	/* every request; under the lock */
	atomic_bool cancelled;
	struct sits_gen_sink sink;
	bool ignore_eos;

	int32_t *token;		/* [nr] of [cap]; the first nr_prompt are the prompt; nr_guess guesses follow */
	uint32_t nr, nr_prompt, cap;
	bool forced;		/* all of token[cap] is given */
	uint32_t nr_cached;	/* tokens whose keys and values are in pages */
	struct sits_kv_table pages;
	uint64_t scope;		/* of its prefixes */
	uint32_t from_cache;	/* prompt tokens that it did not have to compute at its first start */
	uint32_t hit_pages;	/* leading pages that others computed */
	bool parked;		/* preempted; its pages may still be in the index */
	struct sits_sampler *sampler;
	struct sits_stream *stream;
	uint32_t untold;	/* tokens generated since the last text */
	struct spec_state spec;
	struct sits_evict_state evict;
	struct sits_route_entry *route;	/* its pattern; NULL: not remembered */

	uint32_t plan;		/* rows in this step, without those of guesses */
	uint32_t nr_guess;	/* guesses in this step */
	uint32_t nr_drawn;	/* tokens drawn, at token[nr] and up */
	int draw_err;		/* -errno of the draw after these */
	const float *logits;	/* of the draws */
	uint64_t arrival_ns, start_ns, first_token_ns;
};

struct sits_engine {
	const struct sits_model *m;
	const struct sits_backend *be;
	struct sits_threads *team;
	struct sits_graph *graph;
	struct sits_kv kv;
	uint32_t max_seqs, budget;
	uint32_t max_guesses;	/* over all requests, in a step */
	uint32_t context;	/* longest sequence by the options; kv may hold less */
	struct spec *spec;	/* NULL: no speculation */
	struct sits_evict evict;
	struct sits_route_cache *routes;	/* both NULL: routes are not remembered */
	struct sits_prefetch *prefetch;

	struct request *waiting;	/* in order */
	struct request **running;	/* [nr_running] of [max_seqs], in order */
	uint32_t nr_running, nr_waiting;
	uint32_t turn;		/* which running request gets the first share of prompt tokens */
	uint64_t last_id;

	int32_t *token, *pos;	/* [budget] */
	struct sits_attn_seq *seq;	/* these: [max_seqs] */
	size_t *stride;
	uint32_t *owner, *want;

	pthread_mutex_t lock;	/* guards all and the requests' place in it */
	struct request *all;
	struct sits_engine_stats stats;
};

static inline bool is_private(const struct request *r)
{
	return r->scope & PRIVATE_SCOPE;
}

static inline uint32_t rows_due(const struct request *r)
{
	return r->nr - r->nr_cached;
}

static inline bool comes_before(const struct request *a, const struct request *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->id < b->id;
}

uint64_t sits_engine_now_ns(void);
uint64_t sits_engine_cpu_ns(void);	/* of the calling thread: what its work costs, whoever else has the core */

/* request.c */
int sits_req_create(struct sits_engine *e, const struct sits_gen_params *p, const struct sits_gen_sink *sink,
		    struct request **out, struct sits_diag *diag);
void sits_req_wait(struct sits_engine *e, struct request *r);
void sits_req_unwait(struct sits_engine *e, struct request *r);
void sits_req_run(struct sits_engine *e, struct request *r);
void sits_req_unrun(struct sits_engine *e, struct request *r);
/* Tokens behind those it has whose rows may be computed in one pass with the last one's. */
uint32_t sits_req_room(const struct sits_engine *e, const struct request *r);
/* From running to waiting, at its own place; what it has said and drawn stays, its pages may. */
void sits_req_preempt(struct sits_engine *e, struct request *r);
void sits_req_tell(struct request *r);
/* The request, off its list already, ends: pages let go, words told, memory wiped. */
void sits_req_finish(struct sits_engine *e, struct request *r, int status, uint32_t why_finish, const char *why);
void sits_req_finish_all(struct sits_engine *e, int status, const char *why);
void sits_req_reap(struct sits_engine *e);	/* those that are cancelled */

/* plan.c */
void sits_plan_admit(struct sits_engine *e);
void sits_plan_step(struct sits_engine *e);

/* output.c */
void sits_output_sample(void *arg, uint32_t owner, const float *logits, size_t nr);
void sits_output_collect(struct sits_engine *e);

#endif
