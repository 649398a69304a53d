// SPDX-License-Identifier: MIT
/*
 * tool_dir_test.c - which files of a directory are the model, where memory is short or a file can't be read.
 * tests/sealed/dir.t has the rest, by the command.
 */
#include "tools/sits/tool_dir.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/model/may_fail.h"

#define INDEX "model.safetensors.index.json"

static char dir[] = "/tmp/sits-tool-dir-XXXXXX";

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	write_file("config.json", "{}");
	write_file("tokenizer.json", "{}");
	write_file("a.safetensors", "x");
	write_file("b.safetensors", "x");
	/* No name of 16 bytes: jansson 2.14 writes beyond one where it gets no memory for more. */
	write_file(INDEX, "{\"weight_map\": {\"w\": \"a.safetensors\", \"x\": \"b.safetensors\"}}");
	return 0;
}

static int teardown(void **state)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

static void want_of_memory_leaves_no_file_out(void **state)
{
	struct tool_dir_why why;
	struct sits_manifest m;
	size_t nr;
	long n;
	int ret;

	json_set_alloc_funcs(may_fail, free);
	for (n = 0;; n++) {
		failed = false;
		left = n;
		ret = tool_dir_list(dir, &m, NULL, NULL, &why);
		left = -1;
		nr = m.nr;
		sits_manifest_fini(&m);
		if (!failed)
			break;
		if (ret != -ENOMEM || strcmp(why.words, "Cannot allocate memory"))
			fail_msg("call %ld: %d, %zu files: %s", n, ret, nr, why.words);
	}
	json_set_alloc_funcs(malloc, free);
	assert_int_equal(ret, 0);
	assert_int_equal(nr, 5);
	assert_true(n > 10);
}

static void an_index_that_may_not_be_read_is_not_blamed_for_its_text(void **state)
{
	struct tool_dir_why why;
	struct sits_manifest m;
	char path[128];

	snprintf(path, sizeof(path), "%s/" INDEX, dir);
	assert_int_equal(chmod(path, 0), 0);
	if (!access(path, R_OK)) {
		/* As root: somebody who may look into the directory. */
		assert_int_equal(chmod(dir, 0755), 0);
		assert_int_equal(seteuid(65534), 0);
	}
	assert_int_equal(tool_dir_list(dir, &m, NULL, NULL, &why), -EACCES);
	assert_string_equal(why.words, "Permission denied");
	assert_string_equal(why.path, path);
	if (!getuid())
		assert_int_equal(seteuid(0), 0);
	sits_manifest_fini(&m);
	assert_int_equal(chmod(path, 0600), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(want_of_memory_leaves_no_file_out),
		cmocka_unit_test(an_index_that_may_not_be_read_is_not_blamed_for_its_text),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("the files of a model", tests, setup, teardown);
}
