/* SPDX-License-Identifier: MIT */
/*
 * engine.h - a model, its KV pages and the iteration-level batch that runs over them.
 *
 * One thread owns an engine and calls everything but sits_engine_cancel(). A step packs tokens
 * of all active requests (decode tokens first, then prefill chunks up to the token budget) into
 * one pass over the weights.
 */
#ifndef SITS_ENGINE_H
#define SITS_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/engine/sampler.h"

struct sits_model;		/* daemon/model/model.h */
struct sits_gen_result;
struct sits_moe_stats;		/* daemon/engine/moe_stats.h */
struct sits_engine;

/* Who guesses tokens for one pass to check several; see spec.h. */
enum sits_speculation { SITS_SPEC_OFF, SITS_SPEC_LOOKUP, SITS_SPEC_DRAFT };

/* The least of kv_keep, in tokens: a head's first page and its latest one. */
#define SITS_KV_KEEP_LEAST 64

/**
 * struct sits_engine_opts - sizes of an engine; 0 takes the default.
 * @threads: compute threads, the caller's one included; 0 means one per usable core
 * @max_seqs: requests running at once (default 64)
 * @token_budget: tokens per step over all requests (default 256)
 * @kv_bytes: bytes of KV pages (default: enough for max_seqs x 512 tokens, at least one full context); no more than the machine has
 * @context: longest sequence, at most the model's own
 * @pin: 1 pins compute threads to cores
 * @isa: backend name; NULL picks
 * @kv_kind: enum sits_kv_kind; one that is not F16 changes answers a little
 * @kv_limit: bytes of KV pages that the requests of a class may hold together, by SITS_CLASS_*; 0: no limit
 * @kv_keep: tokens whose keys and values each head keeps, on average (see evict.h; rounded up to pages); 0: all. Lossy
 * @speculation: enum sits_speculation; no answer depends on it
 * @draft_tokens: most tokens guessed for a request in one step (default 8)
 * @moe_temperature: what the routers' logits are divided by before they become scores (default 1, as models are trained). Above 1
 *	the weights of a token's experts are more even, below 1 less; where a bias has a say, the choice changes too
 * @moe_capacity: @moe_balance: of experts, see moe_stats.h; 0: off. Either makes answers depend on other requests
 * @route_patterns: of requests, whose routes to experts are remembered to have those in memory; 0: none. No answer depends
 *	on it
 * @draft: the smaller model that guesses, with the same tokens; borrowed until destroy
 */
struct sits_engine_opts {
	uint32_t threads;
	uint32_t max_seqs;
	uint32_t token_budget;
	uint32_t context;
	uint64_t kv_bytes;
	int pin;
	const char *isa;
	uint32_t kv_kind;
	uint64_t kv_limit[3];
	uint32_t kv_keep;
	uint32_t speculation, draft_tokens;
	float moe_temperature, moe_capacity, moe_balance;
	uint32_t route_patterns;
	const struct sits_model *draft;
};

/* What a request hears, always from the engine's thread, inside sits_engine_step(). */
struct sits_gen_sink {
	/* Whole UTF-8 characters; nr_tokens tokens stand behind them (0 is possible). */
	void (*text)(void *arg, const char *bytes, size_t len, uint32_t nr_tokens);
	/* The end, exactly once: status 0 or -errno (with words in diag), finish SITS_FINISH_*. */
	void (*done)(void *arg, const struct sits_gen_result *res);
	/* Optional, for tests and tools: logits [vocab] f32 of each sampled position; borrowed. */
	void (*logits)(void *arg, const float *logits, size_t vocab);
	void *arg;
};

struct sits_gen_result {
	int status;		/* 0; -ENOSPC out of KV pages; -EDOM not-finite logits; ... */
	uint32_t finish;	/* SITS_FINISH_* of sits/infer.h */
	uint32_t prompt_tokens, completion_tokens;
	uint32_t cached_tokens;	/* of the prompt: found in the pages of earlier requests */
	uint32_t kv_pages;	/* that it named at its end */
	uint64_t arrival_ns, start_ns, first_token_ns, end_ns;	/* CLOCK_MONOTONIC; 0 = never came */
	const char *why;	/* words for status != 0; borrowed during the call */
};

struct sits_gen_params {
	const int32_t *prompt;	/* copied */
	size_t nr_prompt;	/* >= 1 */
	uint32_t max_tokens;	/* 0: what fits the context */
	bool ignore_eos;
	struct sits_sampling sampling;
	const char *const *stop;	/* copied; [nr_stop] strings */
	const size_t *stop_len;
	size_t nr_stop;
	uint32_t sched_class;	/* SITS_CLASS_* */
	/* Requests of one scope use each other's keys and values for equal beginnings; 0: with nobody. All but the top bit
	 * counts. Answers are the same; how soon they come tells what others of the scope have asked. */
	uint64_t prefix_scope;
	/* Requests of one tag are expected to want the same experts; 0: those of one scope that begin alike. */
	uint64_t route_tag, route_scope;
	bool no_speculation;
	/* For measurements: the answer's tokens, in place of draws; ends and stop strings are not looked for.
	 * Copied; [nr_forced], 0: none. max_tokens is not looked at then. */
	const int32_t *forced;
	size_t nr_forced;
};

int sits_engine_create(const struct sits_model *m, const struct sits_engine_opts *opts,
		       struct sits_engine **out, struct sits_diag *diag);
void sits_engine_destroy(struct sits_engine *e);	/* ends every request with -ESHUTDOWN */

/** sits_engine_submit() - Queue a request. @id: out, unique. Return: 0; -EMSGSIZE where the prompt does not
 * fit the context (never cut silently); -EINVAL; -ENOSPC where it could never get its pages; -ENOMEM. */
int sits_engine_submit(struct sits_engine *e, const struct sits_gen_params *p,
		       const struct sits_gen_sink *sink, uint64_t *id, struct sits_diag *diag);

/** sits_engine_cancel() - End a request: its pages are free and done() has been called by the end of the
 * next step; a step under way stops working on a prefill between layers. Context: any thread. Unknown ids are ignored. */
void sits_engine_cancel(struct sits_engine *e, uint64_t id);

/** sits_engine_step() - Run one iteration. Return: requests still unfinished; 0 means idle; -errno on a
 * fault of the engine itself. */
int sits_engine_step(struct sits_engine *e);

struct sits_engine_stats {
	uint64_t steps, prompt_tokens, generated_tokens, preemptions, nonfinite;
	uint64_t prefix_cache_queries, prefix_cache_hits;	/* tokens of prompts with a scope; those found */
	uint64_t prefix_cache_evicted;	/* pages */
	uint64_t draft_tokens, draft_accepted;	/* guessed; came true */
	uint64_t routed, route_dropped;	/* rows x layers of experts; pairs of row and expert beyond moe_capacity */
	uint64_t route_queries, route_found;	/* requests; those whose pattern was remembered */
	uint64_t route_pairs, route_hits;	/* of those: pairs routed, and how many of them as remembered */
	uint64_t prefetch_bytes;	/* of experts, missing from memory and asked for */
	uint32_t running, waiting, threads;
	uint32_t thread_nodes;	/* NUMA nodes that pinned threads are on; 0: not pinned */
	uint32_t pages_total, pages_used, pages_cached;	/* used: by requests; cached: for others to come, may be taken */
	uint64_t page_bytes;
	uint32_t kv_keep;	/* tokens that a head keeps; 0: all */
	uint64_t kv_given_up;	/* pages, by requests that went on without them */
	const char *isa;
};
void sits_engine_get_stats(const struct sits_engine *e, struct sits_engine_stats *s);

/** sits_engine_moe() - Load of each expert (moe_stats.h), borrowed until the next step; NULL in a dense model. */
const struct sits_moe_stats *sits_engine_moe(const struct sits_engine *e);

#endif
