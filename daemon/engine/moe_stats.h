/* SPDX-License-Identifier: MIT */
/*
 * moe_stats.h - how loaded each expert is, and the two options that act on it.
 *
 * Both options are off by default, since with either of them a request's output depends on more than its own tokens:
 *
 *	capacity	an expert takes at most ceil(capacity * rows * used / experts) rows of a pass, the first ones; what is
 *			beyond is dropped and counted, and the row goes on with the rest of its experts. Which rows are
 *			dropped depends on who shares the pass.
 *	balance		after each pass every expert's selection bias moves by this much, up where its load is under the
 *			average and down where it is over; weights are still those of the unbiased scores. Which experts are
 *			chosen depends on what was served before. (Auxiliary-loss-free balancing: Wang et al. 2024, where it is
 *			done in training; scores are at most 1, so 0.001 is a usual step.)
 */
#ifndef SITS_ENGINE_MOE_STATS_H
#define SITS_ENGINE_MOE_STATS_H

#include <stdint.h>

/**
 * struct sits_moe_stats - owned by the graph; written between stages of a run, read between runs.
 * @capacity: 0: every row has all of its experts; else > 0
 * @balance: 0: off; else the step, > 0. @balance_max: a bias stays within +- this
 * @window: rows over which @load forgets
 * @rows: routed, of all layers together; @dropped: pairs of row and expert that had no room
 * @assigned: [layers][experts] pairs computed
 * @load: [layers][experts], exponential average of an expert's share of the pairs, times experts: 1 is even
 * @bias: [layers][experts], of balance; all 0 while that is off
 */
struct sits_moe_stats {
	uint32_t layers, experts, used;
	float capacity, balance, balance_max, window;
	uint64_t rows, dropped;
	uint64_t *assigned;
	float *load, *bias;
};

/** sits_moe_stats_create() - Return: 0; -ENOMEM. */
int sits_moe_stats_create(uint32_t layers, uint32_t experts, uint32_t used, struct sits_moe_stats **out);
void sits_moe_stats_destroy(struct sits_moe_stats *s);	/* NULL is allowed */

/** sits_moe_capacity() - Rows that an expert takes when @rows are routed. */
uint32_t sits_moe_capacity(const struct sits_moe_stats *s, uint64_t rows);

/**
 * sits_moe_stats_add() - One layer's routing of @rows >= 1 rows.
 * @count: [experts] pairs computed; @dropped: pairs that were not
 */
void sits_moe_stats_add(struct sits_moe_stats *s, uint32_t layer, const uint32_t *count, uint64_t rows, uint64_t dropped);

#endif
