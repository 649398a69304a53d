// SPDX-License-Identifier: MIT
/*
 * cores_test.c - the choice of a core of SM4 where one fails its self-test, or the processor lacks what it needs. The choice is
 * compiled into this program once more, under other names, with a processor and a self-test of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include "crypto/sm4_impl.h"

#include <cmocka.h>

static u32 fake_features;
static unsigned int fails;	/* bit i: the core of usable[] with this number fails */
static unsigned int asked;	/* tests made, all together */

static int fake_selftest(const struct sits_sm4_core *core);

#define sits_cpu_features() fake_features
#define sits_sm4_selftest fake_selftest
#define sits_sm4_cores fake_cores
#define sits_sm4_best fake_best
#define sits_sm4_limit fake_limit
const struct sits_sm4_core *const *fake_cores(unsigned int *nr);
const struct sits_sm4_core *fake_best(void);
int fake_limit(const char *name);
#include "crypto/sm4_cores.c"

static int fake_selftest(const struct sits_sm4_core *core)
{
	asked++;
	for (unsigned int i = 0; i < nr_usable; i++) {
		if (usable[i] == core)
			return fails >> i & 1 ? -EBADMSG : 0;
	}
	fail_msg("%s is not for this machine", core->name);
	return 0;
}

/* As in a process that begins. */
static void begin(u32 features, unsigned int failing)
{
	memset(usable, 0, sizeof(usable));
	memset(verdicts, 0, sizeof(verdicts));
	nr_usable = 0;
	limit = NULL;
	fake_features = features;
	fails = failing;
	asked = 0;
}

static void test_processors(void **state)
{
	const struct sits_sm4_core *const *cores;
	unsigned int nr;

	for (u32 features = 0; features < 64; features++) {
		begin(features, 0);
		cores = fake_cores(&nr);
		assert_in_range(nr, 1, NR_ALL);
		assert_ptr_equal(cores[nr - 1], &sits_sm4_portable);
		for (unsigned int i = 0; i < NR_ALL; i++) {
			bool there = false;

			for (unsigned int k = 0; k < nr; k++)
				there |= cores[k] == all[i];
			assert_int_equal(there, !(all[i]->needs & ~features));
		}
		assert_ptr_equal(fake_best(), cores[0]);
	}
}

static void test_failures(void **state)
{
	unsigned int nr, i;

	for (unsigned int failing = 0; failing < 1u << NR_ALL; failing++) {
		begin(~0u, failing);
		fake_cores(&nr);
		assert_int_equal(nr, NR_ALL);
		for (i = 0; i + 1 < nr && failing >> i & 1; i++)
			;
		assert_ptr_equal(fake_best(), usable[i]);
		assert_ptr_equal(fake_best(), usable[i]);
		assert_int_equal(asked, i + 1 < nr ? i + 1 : i);	/* each once, and the portable core never */
	}
}

static void test_limit(void **state)
{
	begin(0, 0);
	assert_int_equal(fake_limit("portable"), 0);
	assert_int_equal(fake_limit(NR_ALL > 1 ? all[0]->name : "none"), -ENOENT);
	assert_ptr_equal(fake_best(), &sits_sm4_portable);
	begin(~0u, 1);
	assert_int_equal(fake_limit(all[0]->name), 0);	/* for benchmarks and tests: even one that fails */
	assert_ptr_equal(fake_best(), all[0]);
	assert_int_equal(fake_limit(NULL), 0);
	assert_ptr_equal(fake_best(), usable[NR_ALL > 1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processors),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_limit),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	printf("# %zu cores in this build\n", NR_ALL);
	return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
