// SPDX-License-Identifier: MIT
/*
 * json_test.c - JSON of a model's files: what is wrong with it is named, and want of memory is not taken for that.
 */
#include "daemon/model/json.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/model/may_fail.h"

static const struct sits_json_limits limits = { .bytes = 4096, .values = 100 };

static int parse(const char *text, json_t **out, struct sits_diag *diag)
{
	diag->msg[0] = '\0';
	return sits_json_parse("t.json", text, strlen(text), &limits, out, diag);
}

static void faults_are_named(void **state)
{
	static const struct {
		const char *text, *want;
		int err;
	} bad[] = {
		{ "", "t.json: line 1, column 0: '[' or '{' expected", -EBADMSG },
		{ "{\"a\": x}", "t.json: line 1, column 7: invalid token near 'x'", -EBADMSG },
		{ "{\"a\": 1, \"a\": 2}", "t.json: line 1, column 12: duplicate object key", -EBADMSG },
		{ "[1]", "t.json: not a JSON object", -EBADMSG },
		{ "{\"a\": 1e999}", "t.json: line 1, column 11: real number overflow", -EBADMSG },
	};
	struct sits_diag diag;
	json_t *root;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		/* Of another call, before. */
		errno = ENOMEM;
		assert_int_equal(parse(bad[i].text, &root, &diag), bad[i].err);
		if (strncmp(diag.msg, bad[i].want, strlen(bad[i].want)))
			fail_msg("%s: %s", bad[i].text, diag.msg);
	}
}

static void want_of_memory_is_named(void **state)
{
	/* No text of 16 bytes: jansson 2.14 writes beyond one where it gets no memory for more. */
	static const char text[] = "{\"a\": [1, 2.5, \"x\\u00e9\", true, {\"b\": {}}], \"c\": \"a text\",\n"
		"\"d\": 12, \"e\": 1, \"f\": 2, \"g\": 3, \"h\": [[4]], \"i\": 5, \"j\": 6, \"k\": 7, \"l\": 8}";
	struct sits_diag diag;
	json_t *root;
	long n;
	int ret;

	json_set_alloc_funcs(may_fail, free);
	for (n = 0;; n++) {
		failed = false;
		left = n;
		ret = parse(text, &root, &diag);
		left = -1;
		if (!failed)
			break;
		if (ret != -ENOMEM || strcmp(diag.msg, "t.json: no memory for its JSON"))
			fail_msg("call %ld: %d: %s", n, ret, diag.msg);
	}
	json_set_alloc_funcs(malloc, free);
	assert_int_equal(ret, 0);
	assert_true(n > 10);
	json_decref(root);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_are_named),
		cmocka_unit_test(want_of_memory_is_named),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
