/* SPDX-License-Identifier: MIT */
/*
 * route.h - which experts a token goes to, and with what weights.
 *
 * Pure functions, one token's scores in, its experts out: batch invariant by construction. Scalar, double inside; with a
 * few hundred experts a token's routing is microseconds beside its expert products.
 */
#ifndef SITS_KERNELS_ROUTE_H
#define SITS_KERNELS_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SITS_ROUTE_MAX_EXPERTS	1024
#define SITS_ROUTE_MAX_USED	64

enum sits_route_score { SITS_ROUTE_SOFTMAX, SITS_ROUTE_SIGMOID };
enum sits_route_group { SITS_ROUTE_GROUP_MAX, SITS_ROUTE_GROUP_TOP2 };

/**
 * struct sits_route_rule - how a family of models routes.
 * @experts: X, at most SITS_ROUTE_MAX_EXPERTS; @used: k of them for each token, 1 .. min(X, SITS_ROUTE_MAX_USED)
 * @score: what becomes of the router's logits, divided by @temperature first
 * @groups: the experts are this many equal groups of neighbours, of which @groups_used are open to a token; 0 or 1:
 *	all are open. @group_score: a group's rank is the largest score in it, or the sum of its two largest
 * @renorm: weights are divided by their sum, @renorm_min at the least (0 is allowed)
 * @weights_biased: weights are the scores with the selection bias added; else without
 * @scale: then multiplies the weights
 * @temperature: > 0; 1 is what models are trained with
 */
struct sits_route_rule {
	uint32_t experts, used;
	uint32_t groups, groups_used;
	enum sits_route_score score;
	enum sits_route_group group_score;
	bool renorm, weights_biased;
	float renorm_min;
	float scale, temperature;
};

/**
 * sits_route() - The experts of one token.
 * @r: the rule, as sits_route_check() accepts it
 * @logits: [experts], the router's output
 * @bias: [experts], added to the scores for the choice (and see weights_biased); NULL: none
 * @expert: out, [used]: distinct, by descending score; of equal scores the lower index first
 * @weight: out, [used]
 *
 * Where a logit (or bias) is NaN or no finite number comes of it, the experts are 0 .. used - 1 and the weights NaN: the token's
 * output is NaN, and no other's.
 * Source: Fedus et al. 2021, Jiang et al. 2024 (Mixtral), DeepSeek-AI 2024 (V2, section 2.2; V3, section 2.1.2).
 */
void sits_route(const struct sits_route_rule *r, const float *logits, const float *bias, uint32_t *expert,
		float *weight);

/** sits_route_check() - What is wrong with a rule, in words that follow "the routing rule"; NULL: nothing. */
const char *sits_route_check(const struct sits_route_rule *r);

#ifdef __cplusplus
}
#endif
#endif
