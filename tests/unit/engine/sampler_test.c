// SPDX-License-Identifier: MIT
/*
 * sampler_test.c - each stage against a plain computation of the distribution, draws against it.
 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/sampler.h"
#include "tests/unit/engine/rng.h"

#define V 200

static const struct sits_sampling plain = { .temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 7 };

static struct sits_sampler *make(const struct sits_sampling *o, uint32_t vocab)
{
	struct sits_sampler *s;

	assert_int_equal(sits_sampler_create(o, vocab, &s), 0);
	return s;
}

static int by_likelihood(const void *a, const void *b, void *l)
{
	const float *x = l;
	int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;

	if (x[i] != x[j])
		return x[i] < x[j] ? 1 : -1;
	return (i > j) - (i < j);
}

/* The distribution by the text of sampler.h: everything sorted, in double. */
static void expect(const struct sits_sampling *o, const float *logits, size_t n, const int32_t *hist, size_t nr,
		   double *p)
{
	float l[V];
	int32_t order[V];
	size_t i, j, keep = n, from = o->repeat_last_n && nr > o->repeat_last_n ? nr - o->repeat_last_n : 0;
	double sum = 0, cum = 0;

	for (i = 0; i < n; i++) {
		size_t count = 0;

		for (j = from; j < nr; j++)
			count += hist[j] == (int32_t)i;
		l[i] = logits[i];
		if (count) {
			l[i] = l[i] > 0 ? l[i] / o->repeat_penalty : l[i] * o->repeat_penalty;
			l[i] -= count * o->frequency_penalty + o->presence_penalty;
		}
		order[i] = i;
	}
	qsort_r(order, n, sizeof(*order), by_likelihood, l);
	memset(p, 0, n * sizeof(*p));
	if (o->temperature == 0) {
		p[order[0]] = 1;
		return;
	}
	if (o->top_k && o->top_k < n)
		keep = o->top_k;
	for (i = 0; i < keep; i++)
		sum += exp(((double)l[order[i]] - l[order[0]]) / o->temperature);
	for (i = 0; i < keep; i++) {
		p[order[i]] = exp(((double)l[order[i]] - l[order[0]]) / o->temperature) / sum;
		cum += p[order[i]];
		if (o->top_p < 1 && cum >= o->top_p)
			keep = i + 1;
	}
	for (i = 0, cum = 0; i < n; i++) {
		for (j = 0; j < keep && order[j] != (int32_t)i; j++)
			;
		if (j == keep || p[i] < o->min_p * p[order[0]])
			p[i] = 0;
		cum += p[i];
	}
	for (i = 0; i < n; i++)
		p[i] /= cum;
}

/* Pearson's statistic over draws; cells that expect fewer than 5 are pooled. */
static void check_draws(const char *name, const struct sits_sampling *o, const float *logits, size_t n,
			const int32_t *hist, size_t nr)
{
	const int draws = 40000;
	double p[V], stat = 0, pool_want = 0, pool_got = 0, limit;
	struct sits_sampler *s = make(o, n);
	int got[V] = { 0 }, cells = 0, i;
	int32_t id;

	expect(o, logits, n, hist, nr, p);
	for (i = 0; i < draws; i++) {
		id = sits_sampler_draw(s, logits, hist, nr);
		assert_in_range(id, 0, n - 1);
		got[id]++;
	}
	for (i = 0; i < (int)n; i++) {
		if (p[i] == 0 && got[i])
			fail_msg("%s: token %d was drawn %d times and must not be", name, i, got[i]);
		if (p[i] * draws < 5) {
			pool_want += p[i] * draws;
			pool_got += got[i];
			continue;
		}
		stat += (got[i] - p[i] * draws) * (got[i] - p[i] * draws) / (p[i] * draws);
		cells++;
	}
	if (pool_want > 0) {
		stat += (pool_got - pool_want) * (pool_got - pool_want) / (pool_want > 1 ? pool_want : 1);
		cells++;
	}
	/* Mean plus five deviations of a chi-square with cells - 1 degrees; the seed is fixed. */
	limit = (cells - 1) + 5 * sqrt(2.0 * (cells - 1)) + 1e-9;
	if (stat > limit)
		fail_msg("%s: chi-square %g over %d cells, limit %g", name, stat, cells, limit);
	sits_sampler_destroy(s);
}

static void fill(float *l, size_t n, uint64_t seed, float spread)
{
	struct rng r = { seed };
	size_t i;

	for (i = 0; i < n; i++)
		l[i] = spread * rng_normal(&r);
}

static void draws_follow_the_distribution_of_each_stage(void **state)
{
	static const int32_t hist[] = { 3, 5, 5, 199, 3, 3, 17, 0 };
	static const struct {
		const char *name;
		struct sits_sampling o;
	} cases[] = {
		{ "plain", { .temperature = 1, .top_p = 1, .repeat_penalty = 1 } },
		{ "cold", { .temperature = 0.3f, .top_p = 1, .repeat_penalty = 1 } },
		{ "hot", { .temperature = 5, .top_p = 1, .repeat_penalty = 1 } },
		{ "top-k 1", { .temperature = 1, .top_k = 1, .top_p = 1, .repeat_penalty = 1 } },
		{ "top-k 2", { .temperature = 1, .top_k = 2, .top_p = 1, .repeat_penalty = 1 } },
		{ "top-k 40", { .temperature = 1, .top_k = 40, .top_p = 1, .repeat_penalty = 1 } },
		{ "top-k all", { .temperature = 1, .top_k = V, .top_p = 1, .repeat_penalty = 1 } },
		{ "top-k more than all", { .temperature = 1, .top_k = 5 * V, .top_p = 1, .repeat_penalty = 1 } },
		{ "top-p tiny", { .temperature = 1, .top_p = 1e-6f, .repeat_penalty = 1 } },
		{ "top-p 0.5", { .temperature = 1, .top_p = 0.5f, .repeat_penalty = 1 } },
		{ "top-p 0.95", { .temperature = 1.5f, .top_p = 0.95f, .repeat_penalty = 1 } },
		{ "top-p 0.999", { .temperature = 1, .top_p = 0.999f, .repeat_penalty = 1 } },
		{ "min-p 0.05", { .temperature = 1, .top_p = 1, .min_p = 0.05f, .repeat_penalty = 1 } },
		{ "min-p 0.9", { .temperature = 3, .top_p = 1, .min_p = 0.9f, .repeat_penalty = 1 } },
		{ "all three", { .temperature = 0.8f, .top_k = 30, .top_p = 0.9f, .min_p = 0.02f, .repeat_penalty = 1 } },
		{ "top-k, top-p", { .temperature = 2, .top_k = 20, .top_p = 0.8f, .repeat_penalty = 1 } },
		{ "repetition", { .temperature = 1, .top_p = 1, .repeat_penalty = 1.3f } },
		{ "repetition that favours", { .temperature = 1, .top_p = 1, .repeat_penalty = 0.7f } },
		{ "frequency", { .temperature = 1, .top_p = 1, .repeat_penalty = 1, .frequency_penalty = 0.9f } },
		{ "presence", { .temperature = 1, .top_p = 1, .repeat_penalty = 1, .presence_penalty = 1.5f } },
		{ "negative", { .temperature = 1, .top_p = 1, .repeat_penalty = 1, .presence_penalty = -1,
				.frequency_penalty = -0.5f } },
		{ "last two", { .temperature = 1, .top_p = 1, .repeat_penalty = 1.5f, .repeat_last_n = 2 } },
		{ "everything", { .temperature = 0.9f, .top_k = 50, .top_p = 0.9f, .min_p = 0.01f, .repeat_penalty = 1.2f,
				  .frequency_penalty = 0.2f, .presence_penalty = 0.2f, .repeat_last_n = 5 } },
	};
	struct sits_sampling o;
	float l[V];
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		o = cases[i].o;
		o.seed = 1000 + i;
		fill(l, V, 50 + i, 2.0f);
		check_draws(cases[i].name, &o, l, V, hist, sizeof(hist) / sizeof(hist[0]));
		fill(l, V, 90 + i, 0.3f);
		check_draws(cases[i].name, &o, l, V, hist, sizeof(hist) / sizeof(hist[0]));
		/* Sizes around a vector's, and one. */
		check_draws(cases[i].name, &o, l, 15, hist, 3);
		check_draws(cases[i].name, &o, l, 17, hist, 3);
		check_draws(cases[i].name, &o, l, 1, hist, 0);
	}
}

static void greedy_takes_the_largest_and_the_lowest_of_equals(void **state)
{
	struct sits_sampling o = plain;
	struct sits_sampler *s;
	float l[V];
	size_t i, at;

	o.temperature = 0;
	s = make(&o, V);
	for (at = 0; at < V; at++) {
		for (i = 0; i < V; i++)
			l[i] = -3;
		l[at] = l[V - 1] = 1;
		assert_int_equal(sits_sampler_draw(s, l, NULL, 0), at);
	}
	sits_sampler_destroy(s);
	/* top-k keeps the lowest ids of equals, too. */
	o.temperature = 1;
	o.top_k = 3;
	s = make(&o, V);
	for (i = 0; i < V; i++)
		l[i] = 0;
	for (i = 0; i < 200; i++)
		assert_in_range(sits_sampler_draw(s, l, NULL, 0), 0, 2);
	sits_sampler_destroy(s);
}

/* Over more values than a block of the scan has, at every place, with equals in other blocks. */
static void greedy_finds_any_place_of_a_large_vocabulary(void **state)
{
	enum { BIG = 2500 };
	struct sits_sampling o = plain;
	struct sits_sampler *s;
	float *l = malloc(BIG * sizeof(*l));
	int i;

	assert_non_null(l);
	o.temperature = 0;
	s = make(&o, BIG);
	for (i = 0; i < BIG; i++)
		l[i] = -1 - i % 7;
	for (i = 0; i < BIG; i++) {
		l[i] += 10;
		assert_int_equal(sits_sampler_draw(s, l, NULL, 0), i);
		l[i] -= 10;
	}
	for (i = BIG - 1; i >= 0; i -= 97) {
		l[i] = 5;
		assert_int_equal(sits_sampler_draw(s, l, NULL, 0), i);
	}
	sits_sampler_destroy(s);
	free(l);
}

static void penalties_change_greedy_choices(void **state)
{
	static const int32_t hist[] = { 4, 4, 4 };
	struct sits_sampling o = plain;
	struct sits_sampler *s;
	float l[8] = { 0, 0, 3.0f, 0, 3.4f, 0, 0, 0 };

	o.temperature = 0;
	o.repeat_penalty = 1.2f;
	s = make(&o, 8);
	assert_int_equal(sits_sampler_draw(s, l, NULL, 0), 4);
	assert_int_equal(sits_sampler_draw(s, l, hist, 3), 2);
	assert_int_equal(sits_sampler_draw(s, l, NULL, 0), 4);	/* counts were cleared */
	sits_sampler_destroy(s);
	o.repeat_penalty = 1;
	o.frequency_penalty = 0.2f;
	s = make(&o, 8);
	assert_int_equal(sits_sampler_draw(s, l, hist, 1), 4);
	assert_int_equal(sits_sampler_draw(s, l, hist, 3), 2);
	sits_sampler_destroy(s);
}

static void a_seed_stands_for_one_sequence(void **state)
{
	struct sits_sampling o = plain;
	struct sits_sampler *a, *b, *c;
	int i, same = 0;
	float l[V];
	int32_t x;

	fill(l, V, 1, 1.0f);
	a = make(&o, V);
	b = make(&o, V);
	o.seed++;
	c = make(&o, V);
	for (i = 0; i < 1000; i++) {
		x = sits_sampler_draw(a, l, NULL, 0);
		assert_int_equal(x, sits_sampler_draw(b, l, NULL, 0));
		same += x == sits_sampler_draw(c, l, NULL, 0);
	}
	assert_true(same < 200);
	sits_sampler_destroy(a);
	sits_sampler_destroy(b);
	sits_sampler_destroy(c);
}

static void values_that_are_not_finite_are_reported(void **state)
{
	static const size_t at[] = { 0, 1, 15, 16, 17, 63, 64, V - 1 };
	struct sits_sampling o = plain;
	struct sits_sampler *greedy, *drawn;
	float l[V], bad;
	size_t i, k;

	drawn = make(&o, V);
	o.temperature = 0;
	greedy = make(&o, V);
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		for (k = 0; k < 2; k++) {
			bad = k ? NAN : INFINITY;
			fill(l, V, 3, 1.0f);
			l[at[i]] = bad;
			assert_int_equal(sits_sampler_draw(greedy, l, NULL, 0), -EDOM);
			assert_int_equal(sits_sampler_draw(drawn, l, NULL, 0), -EDOM);
		}
		/* -Inf only rules a token out. */
		for (k = 0; k < V; k++)
			l[k] = -INFINITY;
		assert_int_equal(sits_sampler_draw(greedy, l, NULL, 0), -EDOM);
		assert_int_equal(sits_sampler_draw(drawn, l, NULL, 0), -EDOM);
		l[at[i]] = -5;
		assert_int_equal(sits_sampler_draw(greedy, l, NULL, 0), at[i]);
		assert_int_equal(sits_sampler_draw(drawn, l, NULL, 0), at[i]);
	}
	sits_sampler_destroy(greedy);
	sits_sampler_destroy(drawn);
}

static void extreme_temperatures_stay_defined(void **state)
{
	struct sits_sampling o = plain;
	struct sits_sampler *s;
	float l[V];
	int i;

	fill(l, V, 3, 1.0f);
	l[77] = 30;
	o.temperature = 1e-38f;
	s = make(&o, V);
	for (i = 0; i < 100; i++)
		assert_int_equal(sits_sampler_draw(s, l, NULL, 0), 77);
	sits_sampler_destroy(s);
	l[77] = 3e38f;
	l[78] = -3e38f;
	o.temperature = 100;
	s = make(&o, V);
	for (i = 0; i < 100; i++)
		assert_int_equal(sits_sampler_draw(s, l, NULL, 0), 77);
	sits_sampler_destroy(s);
}

static void history_outside_of_the_vocabulary_is_ignored(void **state)
{
	static const int32_t hist[] = { -1, V, INT32_MAX, INT32_MIN };
	struct sits_sampling o = plain;
	struct sits_sampler *s;
	float l[V] = { 1 };

	o.temperature = 0;
	o.presence_penalty = 2;
	s = make(&o, V);
	assert_int_equal(sits_sampler_draw(s, l, hist, 4), 0);
	sits_sampler_destroy(s);
}

static void bad_parameters_are_refused(void **state)
{
	static const struct sits_sampling bad[] = {
		{ .temperature = -1, .top_p = 1, .repeat_penalty = 1 },
		{ .temperature = NAN, .top_p = 1, .repeat_penalty = 1 },
		{ .temperature = INFINITY, .top_p = 1, .repeat_penalty = 1 },
		{ .temperature = 1, .top_p = 0, .repeat_penalty = 1 },
		{ .temperature = 1, .top_p = 1.1f, .repeat_penalty = 1 },
		{ .temperature = 1, .top_p = NAN, .repeat_penalty = 1 },
		{ .temperature = 1, .top_p = 1, .min_p = -0.1f, .repeat_penalty = 1 },
		{ .temperature = 1, .top_p = 1, .min_p = NAN, .repeat_penalty = 1 },
		{ .temperature = 1, .top_p = 1, .repeat_penalty = 0 },
		{ .temperature = 1, .top_p = 1, .repeat_penalty = NAN },
		{ .temperature = 1, .top_p = 1, .repeat_penalty = 1, .frequency_penalty = NAN },
		{ .temperature = 1, .top_p = 1, .repeat_penalty = 1, .presence_penalty = INFINITY },
	};
	struct sits_sampler *s;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(sits_sampler_create(&bad[i], V, &s), -EINVAL);
	assert_int_equal(sits_sampler_create(&plain, 0, &s), -EINVAL);
	sits_sampler_destroy(NULL);
}

/* What a request asks for is never taken for a model that gives nonsense. */
static void extreme_penalties_stay_defined(void **state)
{
	static const float repeat[] = { FLT_MIN, 1e-38f, 0.5f, 1e38f, FLT_MAX };
	struct sits_sampling o = plain;
	struct sits_sampler *s;
	int32_t hist[V];
	float l[V];
	size_t i, k;

	for (i = 0; i < V; i++)
		hist[i] = (int32_t)i;
	fill(l, V, 3, 10.0f);
	for (i = 0; i < sizeof(repeat) / sizeof(repeat[0]); i++) {
		for (k = 0; k < 4; k++) {
			o.repeat_penalty = repeat[i];
			o.temperature = k & 1 ? 1 : 0;
			o.frequency_penalty = k & 2 ? -2 : 2;
			s = make(&o, V);
			assert_in_range(sits_sampler_draw(s, l, hist, V), 0, V - 1);
			assert_in_range(sits_sampler_draw(s, l, hist, V / 2), 0, V - 1);
			sits_sampler_destroy(s);
		}
	}
	/* A logit of the model's own that is not finite is still found. */
	l[V / 2] = INFINITY;
	s = make(&o, V);
	assert_int_equal(sits_sampler_draw(s, l, hist, V), -EDOM);
	sits_sampler_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(draws_follow_the_distribution_of_each_stage),
		cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_of_equals),
		cmocka_unit_test(greedy_finds_any_place_of_a_large_vocabulary),
		cmocka_unit_test(penalties_change_greedy_choices),
		cmocka_unit_test(a_seed_stands_for_one_sequence),
		cmocka_unit_test(values_that_are_not_finite_are_reported),
		cmocka_unit_test(extreme_temperatures_stay_defined),
		cmocka_unit_test(extreme_penalties_stay_defined),
		cmocka_unit_test(history_outside_of_the_vocabulary_is_ignored),
		cmocka_unit_test(bad_parameters_are_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
