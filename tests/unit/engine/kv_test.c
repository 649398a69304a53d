// SPDX-License-Identifier: MIT
/*
 * kv_test.c - pages of the pool: never two owners, never lost, wiped when they come back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/kv.h"
#include "kernels/kernels.h"
#include "tests/unit/engine/rng.h"

#define PAGES 97
#define PAGE_BYTES 192
#define TABLES 16
#define OPS 100000

struct fixture {
	struct sits_kv kv;
	struct sits_kv_table t[TABLES];
};

static void check(struct fixture *f)
{
	uint8_t owners[PAGES] = { 0 };
	uint32_t i, j, used = 0;

	for (i = 0; i < TABLES; i++) {
		used += f->t[i].nr;
		for (j = 0; j < f->t[i].nr; j++) {
			assert_true(f->t[i].page[j] < PAGES);
			assert_int_equal(owners[f->t[i].page[j]]++, 0);
		}
	}
	assert_int_equal(used + f->kv.nr_free, PAGES);
	for (j = 0; j < f->kv.nr_free; j++) {
		assert_true(f->kv.free[j] < PAGES);
		assert_int_equal(owners[f->kv.free[j]]++, 0);
	}
}

static uint8_t *page_at(struct fixture *f, uint32_t p)
{
	return f->kv.base + (size_t)p * PAGE_BYTES;
}

static void grow(struct fixture *f, struct sits_kv_table *t, size_t tokens)
{
	uint32_t before = t->nr, free_before = f->kv.nr_free, want = sits_kv_pages(tokens), j;
	size_t k;
	int ret = sits_kv_grow(&f->kv, t, tokens);

	if (want > before && want - before > free_before) {
		assert_int_equal(ret, -ENOSPC);
		assert_int_equal(t->nr, before);
		return;
	}
	assert_int_equal(ret, 0);
	assert_int_equal(t->nr, want > before ? want : before);
	/* What is handed out holds nothing of its last owner. */
	for (j = before; j < t->nr; j++) {
		for (k = 0; k < PAGE_BYTES; k++)
			assert_int_equal(page_at(f, t->page[j])[k], 0);
		memset(page_at(f, t->page[j]), 0xA5, PAGE_BYTES);
	}
}

static void pages_used_are_pages_referenced_over_random_operations(void **state)
{
	struct rng r = rng_seeded("kv");
	struct fixture f = { 0 };
	struct sits_kv_table *t;
	uint32_t i, full = 0;

	assert_int_equal(sits_kv_init(&f.kv, PAGE_BYTES, PAGES), 0);
	for (i = 0; i < OPS; i++) {
		t = &f.t[rng_below(&r, TABLES)];
		if (rng_below(&r, 10) == 0)
			sits_kv_release(&f.kv, t);
		else
			grow(&f, t, (size_t)t->nr * SITS_KV_PAGE_TOKENS + rng_below(&r, 3 * SITS_KV_PAGE_TOKENS));
		full += f.kv.nr_free == 0;
		check(&f);
	}
	assert_true(full > 0);
	for (i = 0; i < TABLES; i++)
		sits_kv_release(&f.kv, &f.t[i]);
	assert_int_equal(f.kv.nr_free, PAGES);
	for (i = 0; i < PAGES * PAGE_BYTES; i++)
		assert_int_equal(f.kv.base[i], 0);
	sits_kv_fini(&f.kv);
}

static void growth_is_all_or_nothing(void **state)
{
	struct sits_kv_table a = { 0 }, b = { 0 };
	struct sits_kv kv;

	assert_int_equal(sits_kv_init(&kv, 64, 4), 0);
	assert_int_equal(sits_kv_grow(&kv, &a, 0), 0);
	assert_int_equal(a.nr, 0);
	assert_int_equal(sits_kv_grow(&kv, &a, 1), 0);
	assert_int_equal(a.nr, 1);
	assert_int_equal(sits_kv_grow(&kv, &a, SITS_KV_PAGE_TOKENS), 0);
	assert_int_equal(a.nr, 1);
	assert_int_equal(sits_kv_grow(&kv, &a, SITS_KV_PAGE_TOKENS + 1), 0);
	assert_int_equal(a.nr, 2);
	assert_int_equal(sits_kv_grow(&kv, &b, 3 * SITS_KV_PAGE_TOKENS), -ENOSPC);
	assert_int_equal(b.nr, 0);
	assert_int_equal(kv.nr_free, 2);
	assert_int_equal(sits_kv_grow(&kv, &b, 2 * SITS_KV_PAGE_TOKENS), 0);
	assert_int_equal(sits_kv_grow(&kv, &a, 2 * SITS_KV_PAGE_TOKENS + 1), -ENOSPC);
	sits_kv_release(&kv, &b);
	assert_int_equal(sits_kv_grow(&kv, &a, 4 * SITS_KV_PAGE_TOKENS), 0);
	sits_kv_release(&kv, &a);
	sits_kv_release(&kv, &a);
	sits_kv_fini(&kv);
}

static void impossible_pools_are_refused(void **state)
{
	struct sits_kv kv;

	assert_int_equal(sits_kv_init(&kv, 0, 4), -EINVAL);
	assert_int_equal(sits_kv_init(&kv, 65, 4), -EINVAL);
	assert_int_equal(sits_kv_init(&kv, 64, 0), -EINVAL);
	assert_int_equal(sits_kv_init(&kv, SIZE_MAX / 64 * 64, 4), -EINVAL);
	assert_int_equal(sits_kv_init(&kv, 1ul << 40, 1u << 20), -ENOMEM);
	sits_kv_fini(&kv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_used_are_pages_referenced_over_random_operations),
		cmocka_unit_test(growth_is_all_or_nothing),
		cmocka_unit_test(impossible_pools_are_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
