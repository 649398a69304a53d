// SPDX-License-Identifier: MIT
/*
 * moe_stats_test.c - load of experts, room of one in a pass, and the bias that balances.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/engine/moe_stats.h"

static struct sits_moe_stats *make(uint32_t layers, uint32_t experts, uint32_t used)
{
	struct sits_moe_stats *s;

	assert_int_equal(sits_moe_stats_create(layers, experts, used, &s), 0);
	return s;
}

static void room_is_an_even_share_times_capacity_rounded_up(void **state)
{
	static const struct { float capacity; uint64_t rows; uint32_t room; } cases[] = {
		{ 0, 100, 100 }, { 1, 100, 25 }, { 1, 101, 26 }, { 1.5f, 100, 38 }, { 4, 100, 100 }, { 1e30f, 100, 100 },
		{ 1e-6f, 100, 1 }, { 1, 1, 1 }, { 0.5f, 2, 1 }, { 0, 1ull << 40, UINT32_MAX },
	};
	struct sits_moe_stats *s = make(1, 8, 2);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		s->capacity = cases[i].capacity;
		assert_int_equal(sits_moe_capacity(s, cases[i].rows), cases[i].room);
	}
	sits_moe_stats_destroy(s);
	sits_moe_stats_destroy(NULL);
}

/* A step of 1000 rows moves the average by 1 - e^(-1000 / 4096) of the way; one of 1000 times one row as far. */
static void loads_are_exponential_averages_over_rows(void **state)
{
	static const uint32_t count[4] = { 1000, 600, 400, 0 }, one[4] = { 1, 1, 0, 0 };
	const double far = 1 - exp(-1000.0 / 4096);
	struct sits_moe_stats *s = make(2, 4, 2);

	sits_moe_stats_add(s, 1, count, 1000, 7);
	for (int i = 0; i < 4; i++) {
		assert_true(s->load[i] == 1);	/* of the other layer */
		assert_true(fabs((double)s->load[4 + i] - (1 + (count[i] / 500.0 - 1) * far)) < 1e-5);
		assert_int_equal(s->assigned[4 + i], count[i]);
		assert_int_equal(s->assigned[i], 0);
	}
	assert_int_equal(s->rows, 1000);
	assert_int_equal(s->dropped, 7);
	for (int i = 0; i < 1000; i++)
		sits_moe_stats_add(s, 0, one, 1, 0);
	assert_true(fabs((double)s->load[0] - (1 + (2 - 1) * far)) < 1e-3);
	assert_true(fabs((double)s->load[3] - (1 - far)) < 1e-3);
	sits_moe_stats_destroy(s);
}

static void the_bias_follows_the_load_within_bounds(void **state)
{
	static const uint32_t count[4] = { 10, 6, 4, 0 };
	struct sits_moe_stats *s = make(1, 4, 2);

	sits_moe_stats_add(s, 0, count, 10, 0);
	for (int i = 0; i < 4; i++)
		assert_true(s->bias[i] == 0);	/* off */
	s->balance = 0.25f;
	s->balance_max = 0.6f;
	sits_moe_stats_add(s, 0, count, 10, 0);
	assert_true(s->bias[0] == -0.25f && s->bias[1] == -0.25f && s->bias[2] == 0.25f && s->bias[3] == 0.25f);
	for (int i = 0; i < 10; i++)
		sits_moe_stats_add(s, 0, count, 10, 0);
	assert_true(s->bias[0] == -0.6f && s->bias[3] == 0.6f);
	sits_moe_stats_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(room_is_an_even_share_times_capacity_rounded_up),
		cmocka_unit_test(loads_are_exponential_averages_over_rows),
		cmocka_unit_test(the_bias_follows_the_load_within_bounds),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
