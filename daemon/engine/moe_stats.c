// SPDX-License-Identifier: MIT
/*
 * moe_stats.c - see moe_stats.h.
 */
#include "daemon/engine/moe_stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define WINDOW 4096	/* rows */

int sits_moe_stats_create(uint32_t layers, uint32_t experts, uint32_t used, struct sits_moe_stats **out)
{
	struct sits_moe_stats *s = calloc(1, sizeof(*s));
	size_t i, nr = (size_t)layers * experts;

	if (!s)
		return -ENOMEM;
	*s = (struct sits_moe_stats){ .layers = layers, .experts = experts, .used = used, .window = WINDOW,
				      .balance_max = 1 };
	s->assigned = calloc(nr, sizeof(*s->assigned));
	s->load = calloc(nr, sizeof(*s->load));
	s->bias = calloc(nr, sizeof(*s->bias));
	if (!s->assigned || !s->load || !s->bias) {
		sits_moe_stats_destroy(s);
		return -ENOMEM;
	}
	for (i = 0; i < nr; i++)
		s->load[i] = 1;
	*out = s;
	return 0;
}

void sits_moe_stats_destroy(struct sits_moe_stats *s)
{
	if (!s)
		return;
	free(s->assigned);
	free(s->load);
	free(s->bias);
	free(s);
}

uint32_t sits_moe_capacity(const struct sits_moe_stats *s, uint64_t rows)
{
	float room = ceilf(s->capacity * (float)rows * (float)s->used / (float)s->experts);

	if (!(s->capacity > 0) || room > (float)rows)
		return rows > UINT32_MAX ? UINT32_MAX : rows;
	return room;
}

void sits_moe_stats_add(struct sits_moe_stats *s, uint32_t layer, const uint32_t *count, uint64_t rows, uint64_t dropped)
{
	const float forget = -expm1f(-(float)rows / s->window);
	float *load = s->load + (size_t)layer * s->experts, *bias = s->bias + (size_t)layer * s->experts;
	uint64_t *assigned = s->assigned + (size_t)layer * s->experts;
	float share;
	uint32_t i;

	s->rows += rows;
	s->dropped += dropped;
	for (i = 0; i < s->experts; i++) {
		assigned[i] += count[i];
		share = (float)count[i] * s->experts / ((float)rows * s->used);
		load[i] += (share - load[i]) * forget;
		if (!(s->balance > 0))
			continue;
		bias[i] += load[i] < 1 ? s->balance : load[i] > 1 ? -s->balance : 0;
		bias[i] = fminf(fmaxf(bias[i], -s->balance_max), s->balance_max);
	}
}
