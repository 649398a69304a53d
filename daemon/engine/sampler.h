/* SPDX-License-Identifier: MIT */
/*
 * sampler.h - from logits to a token.
 *
 * Order of the stages: penalties, temperature, top-k, top-p, min-p, draw.
 */
#ifndef SITS_ENGINE_SAMPLER_H
#define SITS_ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

struct sits_sampling {
	float temperature;	/* 0: greedy, ties to the lowest id */
	uint32_t top_k;		/* 0: off */
	float top_p;		/* 1: off */
	float min_p;		/* 0: off */
	float repeat_penalty;	/* 1: off; logits of seen tokens are divided (if > 0) or multiplied */
	float frequency_penalty, presence_penalty;	/* 0: off; subtracted */
	uint32_t repeat_last_n;	/* tokens that penalties look back over; 0: all of them */
	uint64_t seed;
};

struct sits_sampler;

/** sits_sampler_create() - @s: copied; every seed, 0 too, stands for one fixed sequence. @vocab: tokens.
 * Return: 0; -EINVAL where a value is out of its range or not finite; -ENOMEM. */
int sits_sampler_create(const struct sits_sampling *s, uint32_t vocab, struct sits_sampler **out);
void sits_sampler_destroy(struct sits_sampler *s);
/** sits_sampler_copy() - Make *@to draw as @from would from now on, from logits of @vocab tokens. *@to NULL: made here,
 * to be destroyed by the caller; else one made so before from the same one. Return: 0; -ENOMEM. */
int sits_sampler_copy(const struct sits_sampler *from, uint32_t vocab, struct sits_sampler **to);
/** sits_sampler_draw() - Pick a token. @logits: [vocab], borrowed, not changed; @history: prompt and
 * generated tokens so far. Return: the id; -EDOM where a logit is NaN or +Inf, or all are -Inf; -ENOMEM. */
int32_t sits_sampler_draw(struct sits_sampler *s, const float *logits, const int32_t *history, size_t nr_history);

#endif
