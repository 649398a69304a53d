// SPDX-License-Identifier: MIT
/*
 * route_test.c - the choice of experts, by hand and against the definitions, for each family's rule.
 */
#include "kernels/route.h"

#include "tests/unit/kernels/util.h"

#define MAXX SITS_ROUTE_MAX_EXPERTS

static const struct sits_route_rule plain = { .experts = 4, .used = 2, .scale = 1, .temperature = 1 };

static void check(const struct sits_route_rule *r, const float *logits, const float *bias, const uint32_t *expert,
		  const double *weight)
{
	uint32_t e[SITS_ROUTE_MAX_USED], i;
	float w[SITS_ROUTE_MAX_USED];

	assert_null(sits_route_check(r));
	sits_route(r, logits, bias, e, w);
	for (i = 0; i < r->used; i++) {
		assert_int_equal(e[i], expert[i]);
		assert_true(fabs((double)w[i] - weight[i]) <= 1e-6 * fabs(weight[i]));
	}
}

/* softmax(0, ln 2, ln 4, ln 1) = 1/8, 2/8, 4/8, 1/8. */
static const float quarter[] = { 0, 0.693147181f, 1.386294361f, 0 };

static void softmax_as_it_is_and_renormalised(void **state)
{
	struct sits_route_rule r = plain;

	check(&r, quarter, NULL, (uint32_t[]){ 2, 1 }, (double[]){ 0.5, 0.25 });
	r.renorm = true;
	check(&r, quarter, NULL, (uint32_t[]){ 2, 1 }, (double[]){ 2.0 / 3, 1.0 / 3 });
	r.scale = 2.5f;
	check(&r, quarter, NULL, (uint32_t[]){ 2, 1 }, (double[]){ 5.0 / 3, 2.5 / 3 });
	r.renorm = false;
	r.scale = 16;
	r.used = 4;
	check(&r, quarter, NULL, (uint32_t[]){ 2, 1, 0, 3 }, (double[]){ 8, 4, 2, 2 });
}

/* With twice the temperature the scores are their roots: 1, sqrt 2, 2, 1. */
static void temperature_divides_logits(void **state)
{
	struct sits_route_rule r = plain;
	const double sum = 4 + sqrt(2);

	r.temperature = 2;
	check(&r, quarter, NULL, (uint32_t[]){ 2, 1 }, (double[]){ 2 / sum, sqrt(2) / sum });
}

static void equal_scores_go_to_the_lower_index(void **state)
{
	struct sits_route_rule r = plain;
	float zero[64] = { 0 };
	uint32_t e[64];
	float w[64];

	check(&r, zero, NULL, (uint32_t[]){ 0, 1 }, (double[]){ 0.25, 0.25 });
	r.experts = r.used = 64;
	sits_route(&r, zero, NULL, e, w);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(e[i], i);
	r.used = 3;
	zero[50] = 1;
	sits_route(&r, zero, NULL, e, w);
	assert_true(e[0] == 50 && e[1] == 0 && e[2] == 1);
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* DeepSeek-V3: the bias decides who is chosen, the weights are without it. */
static void a_bias_chooses_and_does_not_weigh(void **state)
{
	static const float logits[] = { 1, 0.9f, 0.8f, -3 }, bias[] = { 0, 0, 0, 5 };
	struct sits_route_rule r = plain;
	const double s0 = sigmoid(1), s3 = sigmoid(-3);

	r.score = SITS_ROUTE_SIGMOID;
	check(&r, logits, bias, (uint32_t[]){ 3, 0 }, (double[]){ s3, s0 });
	r.renorm = true;
	r.renorm_min = 1e-20f;
	check(&r, logits, bias, (uint32_t[]){ 3, 0 }, (double[]){ s3 / (s0 + s3), s0 / (s0 + s3) });
	r.renorm = false;
	r.weights_biased = true;
	check(&r, logits, bias, (uint32_t[]){ 3, 0 }, (double[]){ s3 + 5, s0 });
}

/* Scores 1..8 times a step in 4 groups of 2. */
static void groups_by_maximum_and_by_two_largest(void **state)
{
	/* As sigmoids: groups {.1 .9} {.6 .6} {.2 .3} {.7 .1}: by maximum 0 and 3 are open, by sum 1 and 0. */
	static const double score[] = { 0.1, 0.9, 0.6, 0.6, 0.2, 0.3, 0.7, 0.1 };
	struct sits_route_rule r = { .experts = 8, .used = 3, .groups = 4, .groups_used = 2, .score = SITS_ROUTE_SIGMOID,
				     .scale = 1, .temperature = 1 };
	float logits[8];

	for (int i = 0; i < 8; i++)
		logits[i] = (float)log(score[i] / (1 - score[i]));
	check(&r, logits, NULL, (uint32_t[]){ 1, 6, 0 }, (double[]){ 0.9, 0.7, 0.1 });
	r.group_score = SITS_ROUTE_GROUP_TOP2;
	check(&r, logits, NULL, (uint32_t[]){ 1, 2, 3 }, (double[]){ 0.9, 0.6, 0.6 });
	r.groups_used = 4;
	check(&r, logits, NULL, (uint32_t[]){ 1, 6, 2 }, (double[]){ 0.9, 0.7, 0.6 });
}

/* Random rules and temperatures, against the definition: distinct experts, by descending score, and none better was left out. */
static void choices_are_the_best_ones(void **state)
{
	float logits[MAXX], bias[MAXX], w[SITS_ROUTE_MAX_USED];
	uint32_t e[SITS_ROUTE_MAX_USED];
	int again;

	for (again = 0; again < 500; again++) {
		struct sits_route_rule r = { .score = rnd() % 2, .scale = 1, .temperature = 1, .renorm = rnd() % 2 };
		double choice[MAXX], sum = 0, worst = INFINITY, of[MAXX];
		bool taken[MAXX] = { false };

		if (again % 2)
			r.temperature = expf(rnd_normal());
		r.experts = 1 + rnd() % (again % 10 ? 64 : MAXX);
		r.used = 1 + rnd() % (r.experts < SITS_ROUTE_MAX_USED ? r.experts : SITS_ROUTE_MAX_USED);
		for (uint32_t i = 0; i < r.experts; i++) {
			logits[i] = 3 * rnd_normal();
			bias[i] = 0.1f * rnd_normal();
			of[i] = (double)logits[i] / (double)r.temperature;
			sum += exp(of[i]);
		}
		for (uint32_t i = 0; i < r.experts; i++) {
			of[i] = r.score ? sigmoid(of[i]) : exp(of[i]) / sum;
			choice[i] = (double)bias[i] + of[i];
		}
		sits_route(&r, logits, bias, e, w);
		for (uint32_t i = 0; i < r.used; i++) {
			assert_true(e[i] < r.experts && !taken[e[i]]);
			taken[e[i]] = true;
			assert_true(choice[e[i]] <= worst + 1e-12);
			worst = choice[e[i]];
			assert_true(w[i] >= 0 && w[i] <= 1.000001f);
			/* The smallest ones are no whole floats any more. */
			assert_true(r.renorm || fabs((double)w[i] - of[e[i]]) <= 1e-6 * of[e[i]] + 1e-37);
		}
		for (uint32_t i = 0; i < r.experts; i++)
			assert_true(taken[i] || choice[i] <= worst + 1e-12);
		sum = 0;
		for (uint32_t i = 0; i < r.used && r.renorm; i++)
			sum += (double)w[i];
		assert_true(!r.renorm || fabs(sum - 1) < 1e-6);
	}
}

static void what_is_not_finite_makes_weights_nan(void **state)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	float logits[4], bias[4] = { 0 }, w[2];
	uint32_t e[2];

	for (int i = 0; i < 6; i++) {
		memcpy(logits, quarter, sizeof(logits));
		memset(bias, 0, sizeof(bias));
		*(i < 3 ? &logits[2] : &bias[2]) = bad[i % 3];
		sits_route(&plain, logits, bias, e, w);
		assert_true(e[0] == 0 && e[1] == 1 && isnan(w[0]) && isnan(w[1]));
	}
	/* Far apart is not infinite: one expert has it all. */
	logits[0] = -3e38f;
	logits[1] = 3e38f;
	logits[2] = logits[3] = 0;
	sits_route(&plain, logits, NULL, e, w);
	assert_true(e[0] == 1 && w[0] == 1 && w[1] == 0);
}

static void rules_that_make_no_sense_are_named(void **state)
{
	static const struct {
		struct sits_route_rule r;
		const char *word;
	} cases[] = {
		{ { .experts = 0, .used = 1, .scale = 1, .temperature = 1 }, "no experts" },
		{ { .experts = 1025, .used = 1, .scale = 1, .temperature = 1 }, "1024" },
		{ { .experts = 4, .used = 0, .scale = 1, .temperature = 1 }, "no expert" },
		{ { .experts = 4, .used = 5, .scale = 1, .temperature = 1 }, "more than there are" },
		{ { .experts = 100, .used = 65, .scale = 1, .temperature = 1 }, "64" },
		{ { .experts = 9, .used = 1, .groups = 4, .groups_used = 1, .scale = 1, .temperature = 1 }, "unequal" },
		{ { .experts = 8, .used = 1, .groups = 4, .groups_used = 5, .scale = 1, .temperature = 1 }, "groups" },
		{ { .experts = 8, .used = 3, .groups = 4, .groups_used = 1, .scale = 1, .temperature = 1 }, "open groups" },
		{ { .experts = 4, .used = 1, .groups = 4, .groups_used = 1, .group_score = SITS_ROUTE_GROUP_TOP2, .scale = 1,
		    .temperature = 1 }, "two largest" },
		{ { .experts = 4, .used = 1, .scale = 1, .temperature = 0 }, "temperature" },
		{ { .experts = 4, .used = 1, .scale = NAN, .temperature = 1 }, "scale" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_non_null(sits_route_check(&cases[i].r));
		assert_non_null(strstr(sits_route_check(&cases[i].r), cases[i].word));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(softmax_as_it_is_and_renormalised),
		cmocka_unit_test(temperature_divides_logits),
		cmocka_unit_test(equal_scores_go_to_the_lower_index),
		cmocka_unit_test(a_bias_chooses_and_does_not_weigh),
		cmocka_unit_test(groups_by_maximum_and_by_two_largest),
		cmocka_unit_test(choices_are_the_best_ones),
		cmocka_unit_test(what_is_not_finite_makes_weights_nan),
		cmocka_unit_test(rules_that_make_no_sense_are_named),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels route", tests, NULL, NULL);
}
