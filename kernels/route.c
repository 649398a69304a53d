// SPDX-License-Identifier: MIT
/*
 * route.c - see route.h.
 */
#include "kernels/route.h"

#include <math.h>
#include <stddef.h>

/* Logits to scores. Return: false where one is not finite. */
static bool score(const struct sits_route_rule *r, const float *logits, double *s)
{
	double top = -INFINITY, sum = 0;
	uint32_t i;

	for (i = 0; i < r->experts; i++) {
		if (!isfinite(logits[i]))
			return false;
		s[i] = (double)logits[i] / (double)r->temperature;
		top = s[i] > top ? s[i] : top;
	}
	for (i = 0; i < r->experts; i++) {
		s[i] = r->score == SITS_ROUTE_SIGMOID ? 1 / (1 + exp(-s[i])) : exp(s[i] - top);
		sum += s[i];
	}
	for (i = 0; i < r->experts && r->score == SITS_ROUTE_SOFTMAX; i++)
		s[i] /= sum;
	return true;
}

/* Close all but the best groups: their experts' choice becomes -INFINITY. */
static void close_groups(const struct sits_route_rule *r, double *choice)
{
	double rank[SITS_ROUTE_MAX_EXPERTS], best, next;
	const uint32_t per = r->experts / r->groups;
	bool open[SITS_ROUTE_MAX_EXPERTS] = { false };
	uint32_t g, i, n, at;

	for (g = 0; g < r->groups; g++) {
		best = next = -INFINITY;
		for (i = g * per; i < (g + 1) * per; i++) {
			next = choice[i] > best ? best : choice[i] > next ? choice[i] : next;
			best = choice[i] > best ? choice[i] : best;
		}
		rank[g] = r->group_score == SITS_ROUTE_GROUP_TOP2 ? best + next : best;
	}
	for (n = 0; n < r->groups_used; n++) {
		for (at = r->groups, g = 0; g < r->groups; g++)
			if (!open[g] && (at == r->groups || rank[g] > rank[at]))
				at = g;
		open[at] = true;
	}
	for (i = 0; i < r->experts; i++)
		if (!open[i / per])
			choice[i] = -INFINITY;
}

static void no_route(const struct sits_route_rule *r, uint32_t *expert, float *weight)
{
	uint32_t i;

	for (i = 0; i < r->used; i++) {
		expert[i] = i;
		weight[i] = NAN;
	}
}

void sits_route(const struct sits_route_rule *r, const float *logits, const float *bias, uint32_t *expert,
		float *weight)
{
	double s[SITS_ROUTE_MAX_EXPERTS], choice[SITS_ROUTE_MAX_EXPERTS], sum = 0, w[SITS_ROUTE_MAX_USED];
	uint32_t i, j, at;

	if (!score(r, logits, s)) {
		no_route(r, expert, weight);
		return;
	}
	for (i = 0; i < r->experts; i++) {
		choice[i] = bias ? s[i] + (double)bias[i] : s[i];
		if (!isfinite(choice[i])) {
			no_route(r, expert, weight);
			return;
		}
		if (r->weights_biased)
			s[i] = choice[i];
	}
	if (r->groups > 1)
		close_groups(r, choice);
	for (j = 0; j < r->used; j++) {
		for (at = 0, i = 1; i < r->experts; i++)
			if (choice[i] > choice[at])
				at = i;
		expert[j] = at;
		w[j] = s[at];
		sum += w[j];
		choice[at] = -INFINITY;
	}
	sum = !r->renorm ? 1 : sum > (double)r->renorm_min ? sum : (double)r->renorm_min;
	for (j = 0; j < r->used; j++)
		weight[j] = (float)(w[j] / sum * (double)r->scale);
}

const char *sits_route_check(const struct sits_route_rule *r)
{
	if (!r->experts || r->experts > SITS_ROUTE_MAX_EXPERTS)
		return "has no experts, or more than 1024";
	if (!r->used || r->used > r->experts || r->used > SITS_ROUTE_MAX_USED)
		return "uses no expert, or more than there are, or more than 64";
	if (r->groups > 1 && (r->experts % r->groups || !r->groups_used || r->groups_used > r->groups))
		return "has groups of unequal size, or uses none or more than there are";
	if (r->groups > 1 && r->used > r->experts / r->groups * r->groups_used)
		return "uses more experts than the open groups have";
	if (r->groups > 1 && r->group_score == SITS_ROUTE_GROUP_TOP2 && r->experts / r->groups < 2)
		return "ranks groups of one expert by the sum of their two largest";
	if (r->score > SITS_ROUTE_SIGMOID || r->group_score > SITS_ROUTE_GROUP_TOP2)
		return "has a score function that is not known";
	if (!(r->temperature > 0) || !isfinite(r->temperature) || !isfinite(r->scale) || !isfinite(r->renorm_min) ||
	    r->renorm_min < 0)
		return "has a scale or temperature that is not usable";
	return NULL;
}
