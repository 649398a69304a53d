/* SPDX-License-Identifier: MIT */
/*
 * providers.h - run the same tests on each provider in $SITS_TEST_PROVIDERS (default: user), as one group: a name
 * in the output is "test (provider)".
 */
#ifndef SITS_TESTS_PROVIDERS_H
#define SITS_TESTS_PROVIDERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sits/context.h"

/* The one that the running test is to open: SITS_PROVIDER_USER or _KERNEL. */
static uint32_t test_provider = SITS_PROVIDER_USER;

/* A test on one provider. */
struct provider_test {
	const struct CMUnitTest *test;
	uint32_t provider;
	CMFixtureFunction group_setup, group_teardown;
};

static const struct provider_test *provider_running __attribute__((unused));	/* whose group was set up */

static inline int provider_leave(void)
{
	void *none = NULL;
	int ret = 0;

	if (provider_running && provider_running->group_teardown)
		ret = provider_running->group_teardown(&none);
	provider_running = NULL;
	return ret;
}

static inline int provider_enter(const struct provider_test *p)
{
	void *none = NULL;

	if (provider_running && provider_running->provider == p->provider)
		return 0;
	if (provider_leave())
		return -1;
	test_provider = p->provider;
	provider_running = p;
	return p->group_setup ? p->group_setup(&none) : 0;
}

static inline int provider_setup(void **state)
{
	const struct provider_test *p = *state;
	int ret = provider_enter(p);

	if (ret)
		return ret;
	*state = p->test->initial_state;
	return p->test->setup_func ? p->test->setup_func(state) : 0;
}

static inline bool test_on_kernel(void)
{
	return test_provider == SITS_PROVIDER_KERNEL;
}

/* So many rounds of what is cheap; fewer in a guest, which may be emulated. */
static inline int test_rounds(int native, int in_guest)
{
	return getenv("SITS_TEST_GUEST") ? in_guest : native;
}

/* As cmocka_run_group_tests(), whose arguments these are; @setup and @teardown run once for each provider. */
static inline int run_on_providers(const struct CMUnitTest *tests, size_t nr, CMFixtureFunction setup, CMFixtureFunction teardown)
{
	const char *list = getenv("SITS_TEST_PROVIDERS");
	struct provider_test *on = calloc(2 * nr, sizeof(*on));
	struct CMUnitTest *all = calloc(2 * nr, sizeof(*all));
	size_t i, n = 0;
	int failed;

	for (uint32_t provider = SITS_PROVIDER_USER; provider >= SITS_PROVIDER_KERNEL; provider--) {
		const char *word = provider == SITS_PROVIDER_USER ? "user" : "kernel";

		if (!strstr(list && *list ? list : "user", word))
			continue;
		for (i = 0; i < nr; i++, n++) {
			char *name = NULL;

			if (asprintf(&name, "%s (%s)", tests[i].name, word) < 0)
				abort();
			on[n] = (struct provider_test){ &tests[i], provider, setup, teardown };
			all[n] = (struct CMUnitTest){ name, tests[i].test_func, provider_setup, tests[i].teardown_func, &on[n] };
		}
	}
	failed = _cmocka_run_group_tests("providers", all, n, NULL, NULL);
	failed += !!provider_leave();
	for (i = 0; i < n; i++)
		free((void *)(uintptr_t)all[i].name);
	free(all);
	free(on);
	return failed;
}

#endif
