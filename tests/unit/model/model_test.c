// SPDX-License-Identifier: MIT
/*
 * model_test.c - models from whole files: the fuzzer's seeds are read to their ends, so that what it makes of them gets that far.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/model.h"

#define SEEDS "tests/fuzz/corpus/gguf"
#define SUFFIX "-model"
#define MAX_BYTES 24576		/* -max_len of tests/fuzz/run: a longer seed is cut */

/* GGUF wants its data aligned to 32 bytes. */
static void *read_seed(const char *name, size_t *len)
{
	uint8_t *p = aligned_alloc(64, 2 * MAX_BYTES);
	char path[512];
	FILE *f;

	assert_non_null(p);
	snprintf(path, sizeof(path), SEEDS "/%s", name);
	f = fopen(path, "rb");
	assert_non_null(f);
	*len = fread(p, 1, 2 * MAX_BYTES, f);
	fclose(f);
	return p;
}

static void open_seed(const char *name, bool *moe)
{
	struct sits_diag diag = { "" };
	struct sits_model *m;
	size_t len;
	void *p = read_seed(name, &len);

	if (len > MAX_BYTES)
		fail_msg("%s has %zu bytes; the fuzzer takes %d", name, len, MAX_BYTES);
	if (sits_model_open(p, len, &m, &diag))
		fail_msg("%s: %s", name, diag.msg);
	*moe = m->hp.route.experts;
	sits_model_close(m);
	free(p);
}

static void seeds_of_the_fuzzer_are_models(void **state)
{
	int nr = 0, mixtures = 0;
	struct dirent *d;
	const char *end;
	bool moe;
	DIR *dir = opendir(SEEDS);

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		end = strstr(d->d_name, SUFFIX);
		if (!end || strcmp(end, SUFFIX))
			continue;
		open_seed(d->d_name, &moe);
		nr++;
		mixtures += moe;
	}
	closedir(dir);
	print_message("# %d models, %d of them mixtures of experts\n", nr, mixtures);
	assert_true(nr >= 8 && mixtures >= 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds_of_the_fuzzer_are_models),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
