// SPDX-License-Identifier: MIT
/*
 * dispatch_test.c - the choice between backends.
 */
#include "tests/unit/kernels/util.h"

static void names_are_unique_and_tables_complete(void **state)
{
	const struct sits_backend *b;
	char names[128];

	for (size_t i = 0; (b = sits_backend_at(i)); i++) {
		for (size_t j = 0; j < i; j++) {
			assert_string_not_equal(b->name, sits_backend_at(j)->name);
			assert_int_not_equal(b->priority, sits_backend_at(j)->priority);
		}
		assert_true(b->usable && b->dequant && b->act_row_bytes && b->act_prepare && b->act_class && b->matmul &&
			    b->matmul_grouped);
		assert_true(b->rmsnorm && b->rope && b->silu_mul && b->add && b->kv_layer_bytes && b->kv_store && b->kv_copy);
		assert_true(b->attn_tasks && b->attn_scratch_bytes && b->attn_work_bytes && b->attn);
		assert_true(b->add_rmsnorm_prepare && b->silu_mul_prepare && b->rope_store && b->softmax_rmsnorm && b->topk);
	}
	for (size_t i = 0; (b = sits_backend_at(i)); i++) {
		assert_true(sits_backend_exists(b->name));
		assert_non_null(strstr(sits_backend_names(names, sizeof(names)), b->name));
	}
	assert_false(sits_backend_exists("") || sits_backend_exists("AVX2") || sits_backend_exists("sse9"));
	assert_int_equal(strlen(sits_backend_names(names, 4)), 3);
	assert_null(sits_backend_at(1000));
}

static void by_name(void **state)
{
	const struct sits_backend *b;

	assert_non_null(sits_backend_get("ref"));
	assert_null(sits_backend_get("no such"));
	for (size_t i = 0; (b = sits_backend_at(i)); i++)
		assert_ptr_equal(sits_backend_get(b->name), b->usable() ? b : NULL);
}

static void the_best_usable_is_the_default(void **state)
{
	const struct sits_backend *b, *best;

	unsetenv("SITS_FORCE_ISA");
	best = sits_backend_get(NULL);
	assert_non_null(best);
	assert_ptr_equal(sits_backend_get(""), best);
	for (size_t i = 0; (b = sits_backend_at(i)); i++)
		assert_true(!b->usable() || b->priority <= best->priority);
}

static void the_environment_chooses_and_a_name_wins(void **state)
{
	setenv("SITS_FORCE_ISA", "ref", 1);
	assert_string_equal(sits_backend_get(NULL)->name, "ref");
	assert_string_equal(sits_backend_get("")->name, "ref");
	setenv("SITS_FORCE_ISA", "bogus", 1);
	assert_null(sits_backend_get(NULL));
	assert_string_equal(sits_backend_get("ref")->name, "ref");
	setenv("SITS_FORCE_ISA", "", 1);
	assert_non_null(sits_backend_get(NULL));
	unsetenv("SITS_FORCE_ISA");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_unique_and_tables_complete),
		cmocka_unit_test(by_name),
		cmocka_unit_test(the_best_usable_is_the_default),
		cmocka_unit_test(the_environment_chooses_and_a_name_wins),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("kernels dispatch", tests, NULL, NULL);
}
