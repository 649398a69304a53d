/* SPDX-License-Identifier: MIT */
/*
 * rng.h - a small generator for tests; the seed is printed by whoever makes one.
 */
#ifndef SITS_TESTS_ENGINE_RNG_H
#define SITS_TESTS_ENGINE_RNG_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct rng {
	uint64_t s;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = r->s += 0x9E3779B97F4A7C15u;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (rng_next(r) >> 32) * n >> 32;
}

static inline float rng_unit(struct rng *r)
{
	return (rng_next(r) >> 40) * 0x1p-24f;
}

/* About normal: mean 0, deviation 1. */
static inline float rng_normal(struct rng *r)
{
	float s = 0;
	int i;

	for (i = 0; i < 12; i++)
		s += rng_unit(r);
	return s - 6;
}

/* From SITS_TEST_SEED, else the clock; printed, so that a failure can be had again. */
static inline struct rng rng_seeded(const char *who)
{
	const char *env = getenv("SITS_TEST_SEED");
	struct rng r = { env ? strtoull(env, NULL, 0) : (uint64_t)time(NULL) };

	printf("# %s: seed %llu (SITS_TEST_SEED)\n", who, (unsigned long long)r.s);
	return r;
}

#endif
