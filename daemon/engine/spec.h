/* SPDX-License-Identifier: MIT */
/*
 * spec.h - speculative decoding: tokens are guessed, and one pass over the weights checks several of them.
 *
 * A guess stands where the drawn token will stand. The pass computes its row beside the last real one; then the
 * sampler draws at each place in turn, as it would have without guesses. As long as it draws what was
 * guessed, the next row is already there. So the answer is the same, bit for bit, whoever guesses and how
 * well: guesses are never accepted on other grounds, also where tokens are sampled.
 *
 * Who guesses:
 *	lookup  what followed the last tokens where they stood before in the same sequence (prompt lookup)
 *	draft   a smaller model with the same tokens; where the answer is sampled it draws with the same numbers
 *
 * Source: Leviathan, Kalman and Matias 2023 (draft and verify); Saxena 2023 (prompt lookup). The exact match in place
 * of rejection sampling keeps what a seed stands for.
 */
#ifndef SITS_ENGINE_SPEC_H
#define SITS_ENGINE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/engine/kv.h"

struct request;
struct sits_engine;
struct sits_engine_opts;
struct sits_sampler;
struct spec;

/* Of one request; zero-initialised is ready. */
struct spec_state {
	bool off;		/* the request does without */
	float rate;		/* share of guesses that came true, recent ones weigh more */
	uint32_t rest;		/* steps to go without guesses */
	uint32_t fails;		/* times in a row that no guess came true */
	/* draft: */
	struct sits_kv_table pages;
	uint32_t nr_cached;	/* tokens in them */
	struct sits_sampler *sampler;
};

/** sits_spec_create() - @e: its model, backend, team, budget and pool are there. *@out is NULL where the options
 * say off. Return: 0; -EINVAL where the draft model does not fit; -ENOMEM. */
int sits_spec_create(struct sits_engine *e, const struct sits_engine_opts *o, struct spec **out,
		     struct sits_diag *diag);
void sits_spec_destroy(struct spec *s);	/* NULL is allowed */

/**
 * sits_spec_guess() - Put guesses behind the tokens of running requests that are planned for one row.
 * @room: rows that the step has left for them
 *
 * Each request's nr_guess says how many are its own. Pages for them are there.
 */
void sits_spec_guess(struct sits_engine *e, uint32_t room);

/** sits_spec_learn() - After the draws: of the request's guesses @right came true. */
void sits_spec_learn(struct sits_engine *e, struct request *r, uint32_t right);

/** sits_spec_drop() - The request gives up its pages, or ends: those of the draft model go, too. */
void sits_spec_drop(struct sits_engine *e, struct request *r);

/**
 * sits_spec_lookup() - What followed where the end of @token stood before.
 * @token: [nr]
 * @out: room for @max guesses; may lie directly behind @token
 * Return: guesses made: 0 where not even the last SITS_SPEC_MIN_MATCH tokens stood there before.
 */
#define SITS_SPEC_MIN_MATCH 2
uint32_t sits_spec_lookup(const int32_t *token, uint32_t nr, int32_t *out, uint32_t max);

/*
 * What a step costs, in rows: a step of n rows takes as long as base + n of them, since it reads the weights
 * once for all; a guess takes a row and what it took to guess it.
 */
struct spec_cost {
	float base, guess;
};

/** sits_spec_length() - How many guesses are worth what they cost, at most @max. @rows: in the step without them. */
uint32_t sits_spec_length(struct spec_state *s, const struct spec_cost *c, uint32_t rows, uint32_t max);

/* Times of steps, older ones fading: weighted sums of 1, n, n^2, t and n t over steps of n rows that took t. */
struct spec_clock {
	double w, n, nn, t, nt;
	float base;	/* as in struct spec_cost; 0: not known yet */
	double row_ns;
};

/** sits_spec_clock_add() - A step of @rows took @ns. Large ones and odd ones out are not followed. */
void sits_spec_clock_add(struct spec_clock *c, uint32_t rows, uint64_t ns);

/** sits_spec_timed() - The engine's step of @rows took @ns. */
void sits_spec_timed(struct sits_engine *e, uint32_t rows, uint64_t ns);

/* ---- the draft model: spec_draft.c ---- */

struct spec_draft;

int sits_spec_draft_create(struct sits_engine *e, const struct sits_engine_opts *o, struct spec_draft **out,
			   struct sits_diag *diag);
void sits_spec_draft_destroy(struct spec_draft *d);
/* @want: [nr_running] guesses that each running request would take; nr_guess says how many it got. */
void sits_spec_draft_guess(struct spec_draft *d, struct sits_engine *e, const uint32_t *want);
void sits_spec_draft_drop(struct spec_draft *d, struct request *r);

#endif
