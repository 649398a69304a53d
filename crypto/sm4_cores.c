// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_cores.c - the cores of SM4 that there are, and the choice among them.
 */
#include "crypto/sm4_impl.h"

static const struct sits_sm4_core *const all[] = {
#ifdef SITS_HAVE_SM4_GFNI_AVX512
	&sits_sm4_gfni_avx512,
#endif
#ifdef SITS_HAVE_SM4_GFNI_AVX2
	&sits_sm4_gfni_avx2,
#endif
#ifdef SITS_HAVE_SM4_AESNI_AVX2
	&sits_sm4_aesni_avx2,
#endif
	&sits_sm4_portable,
};

#define NR_ALL (sizeof(all) / sizeof(all[0]))
#define NR_MAX 4

enum { UNKNOWN, PASSED, FAILED };

/* All threads that come first find the same, and write the same. */
static const struct sits_sm4_core *usable[NR_MAX];
static unsigned int nr_usable;
static u32 verdicts[NR_MAX];	/* by the order of usable[] */
static const struct sits_sm4_core *limit;

const struct sits_sm4_core *const *sits_sm4_cores(unsigned int *nr)
{
	unsigned int i, n = sits_observe(&nr_usable);
	u32 has = sits_cpu_features();

	if (!n) {
		for (i = 0; i < NR_ALL; i++) {
			if (!(all[i]->needs & ~has))
				sits_publish(&usable[n++], all[i]);
		}
		sits_publish(&nr_usable, n);
	}
	*nr = n;
	return usable;
}

static bool passes(unsigned int i)
{
	u32 verdict = sits_observe(&verdicts[i]);

	if (verdict == UNKNOWN) {
		verdict = sits_sm4_selftest(usable[i]) ? FAILED : PASSED;
		sits_publish(&verdicts[i], verdict);
	}
	return verdict == PASSED;
}

const struct sits_sm4_core *sits_sm4_best(void)
{
	const struct sits_sm4_core *forced = sits_observe(&limit), *const *cores;
	unsigned int i, nr;

	if (forced)
		return forced;
	cores = sits_sm4_cores(&nr);
	/* The last one is the portable core: there is nothing to turn to if it fails, so it is not asked. */
	for (i = 0; i + 1 < nr && !passes(i); i++)
		;
	return cores[i];
}

int sits_sm4_limit(const char *name)
{
	const struct sits_sm4_core *const *cores, *found = NULL;
	unsigned int i, nr;

	cores = sits_sm4_cores(&nr);
	for (i = 0; name && !found && i < nr; i++) {
		if (!strcmp(cores[i]->name, name))
			found = cores[i];
	}
	if (name && !found)
		return -ENOENT;
	sits_publish(&limit, found);
	return 0;
}
