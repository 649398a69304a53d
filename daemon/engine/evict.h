/* SPDX-License-Identifier: MIT */
/*
 * evict.h - requests that keep a part of their keys and values: when, and how much of each head.
 *
 * With a budget of B pages a request gives pages up when its prompt has been computed, and again each time a page
 * is full, as soon as it has more than B full ones. A layer keeps B pages for each of its key/value heads together. A head
 * that attends to many positions, by the entropy of its softmax over the prompt's last rows, gets more of them, one that
 * looks at few gets less; each keeps its first page and its latest ones.
 *
 * All of it follows from the request's own tokens: the rows are always computed by the request itself, their entropies are
 * added up in one order, and no step computes rows on both sides of a place where something is given up. So a request that
 * lost its pages comes to the same ones again.
 */
#ifndef SITS_ENGINE_EVICT_H
#define SITS_ENGINE_EVICT_H

#include <stddef.h>
#include <stdint.h>

struct request;
struct sits_engine;
struct sits_engine_opts;
struct sits_diag;

/* Pages that a head keeps at least. */
#define SITS_EVICT_LEAST 2
/* Rows at the end of a prompt whose entropies count. */
#define SITS_EVICT_ROWS 32

/* Of an engine. */
struct sits_evict {
	uint32_t keep;		/* B; 0: off */
	uint32_t layers, heads;	/* key/value heads */
	uint32_t per_head;	/* query heads of each */
	uint32_t *share;	/* [layers][heads] of the request at hand */
};

/* Of a request. */
struct sits_evict_state {
	double *entropy;	/* [layers][heads] sums over rows and query heads, in nats; NULL: it never gives anything up */
	uint32_t nr_rows;	/* of the prompt's last ones, that are in them */
};

/**
 * sits_evict_shares() - Deal a layer's @heads * @budget pages out.
 * @wide: [heads] positions that a head attends to
 * @full: pages that there are; no head gets more. >= @budget
 * @share: out, [heads]; the sum is heads * budget
 *
 * Each head gets three quarters of @budget, or SITS_EVICT_LEAST where that is more. The others go one by one to the head that
 * is then furthest behind @wide.
 */
void sits_evict_shares(const double *wide, uint32_t heads, uint32_t budget, uint32_t full, uint32_t *share);

/** sits_evict_create() - @e: its model and pool are there. Return: 0; -EINVAL for a budget that makes no sense; -ENOMEM. */
int sits_evict_create(struct sits_engine *e, const struct sits_engine_opts *o, struct sits_diag *diag);

/** sits_evict_begin() - The request has its tokens. Return: 0; -ENOMEM. */
int sits_evict_begin(const struct sits_engine *e, struct request *r);

/** sits_evict_reuse() - Of the request's tokens, how many it may take from the index: what it must see of its prompt
 * stays to be computed, and nothing that it would have computed after giving something up is there. */
uint32_t sits_evict_reuse(const struct sits_engine *e, const struct request *r);

/**
 * sits_evict_peak() - Of @tokens that a request has in its pages at last, how many have pages at a time: those of before it gives
 * something up first, as it has a page more than its budget afterwards at most. So it is while nobody else names any of its pages;
 * where others do, it may have to wait for them to end.
 * @nr_prompt: of its tokens, those of the prompt
 */
uint64_t sits_evict_peak(const struct sits_engine *e, uint32_t nr_prompt, uint64_t tokens);

/** sits_evict_limit() - The number of tokens that may be in its pages before it has to give something up next. */
uint32_t sits_evict_limit(const struct sits_engine *e, const struct request *r);

/** sits_evict_listens() - Whether entropies of the rows planned for @r are asked for. */
bool sits_evict_listens(const struct request *r);
/** sits_evict_note() - They come, [rows][query heads] of a layer, positions ascending from @pos. */
void sits_evict_note(const struct sits_engine *e, struct request *r, uint32_t layer, uint32_t pos, const float *entropy,
		     size_t rows);

/** sits_evict_preempted() - What was half noted is noted again. */
void sits_evict_preempted(const struct sits_engine *e, struct request *r);

/** sits_evict_run() - After rows of @r: give up what is due. Return: 0; -ENOMEM: nothing was given up. */
int sits_evict_run(struct sits_engine *e, struct request *r);

/** sits_evict_again() - Let pages go that others named when they were given up. Return: whether there were any. */
bool sits_evict_again(struct sits_engine *e, struct request *r);

#endif
