// SPDX-License-Identifier: MIT
/*
 * versions_test.c - the record of model versions: it only rises, it survives, and damage is never "nothing recorded".
 */
#include "daemon/versions.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/unit/model/may_fail.h"

static char dir[] = "/tmp/sits-versions-XXXXXX";
static char state[64], file[128];

static int setup(void **unused)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(state, sizeof(state), "%s/state", dir);
	snprintf(file, sizeof(file), "%s/%s", state, SITS_VERSIONS_FILE);
	return 0;
}

static int teardown(void **unused)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

static uint64_t get(const char *id)
{
	struct sits_diag diag = { "" };
	uint64_t v;

	if (sits_versions_get(state, id, &v, &diag))
		fail_msg("%s", diag.msg);
	return v;
}

static void raise_to(const char *id, uint64_t v)
{
	struct sits_diag diag = { "" };

	if (sits_versions_raise(state, id, v, &diag))
		fail_msg("%s", diag.msg);
}

static void record_only_rises(void **unused)
{
	struct stat st;

	assert_int_equal(get("a"), 0);
	raise_to("a", 3);
	assert_int_equal(get("a"), 3);
	raise_to("a", 2);
	assert_int_equal(get("a"), 3);
	raise_to("b/../\"\\ü", UINT64_MAX);
	assert_true(get("b/../\"\\ü") == UINT64_MAX);
	raise_to("a", 4);
	assert_int_equal(get("a"), 4);
	assert_int_equal(get("c"), 0);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(state, &st), 0);
	assert_int_equal(st.st_mode & 0077, 0);
}

static void spoil(const char *text)
{
	FILE *f = fopen(file, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void damaged_record_is_refused_and_kept(void **unused)
{
	static const char *const bad[] = {
		"", "{", "[]", "{\"a\": 3}", "{\"a\": \"-1\"}", "{\"a\": \"3x\"}", "{\"a\": \"99999999999999999999\"}",
		"{\"a\": \"1\", \"a\": \"2\"}",
	};
	char back[64];
	FILE *f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sits_diag diag = { "" };
		uint64_t v;

		spoil(bad[i]);
		assert_int_equal(sits_versions_get(state, "a", &v, &diag), -EBADMSG);
		assert_non_null(strstr(diag.msg, file));
		assert_int_equal(sits_versions_raise(state, "a", 9, &diag), -EBADMSG);
		memset(back, 0, sizeof(back));
		f = fopen(file, "r");
		assert_non_null(f);
		assert_int_equal(fread(back, 1, sizeof(back) - 1, f), strlen(bad[i]));
		fclose(f);
		assert_string_equal(back, bad[i]);
	}
	unlink(file);
}

static void want_of_memory_is_no_damage(void **unused)
{
	struct sits_diag diag = { "" };
	int ret, rise;
	uint64_t v;
	long n;

	raise_to("a", 3);
	raise_to("b", 5);
	json_set_alloc_funcs(may_fail, free);
	for (rise = 0; rise < 2; rise++) {
		for (n = 0;; n++) {
			failed = false;
			diag.msg[0] = '\0';
			left = n;
			ret = rise ? sits_versions_raise(state, "c", 2, &diag) : sits_versions_get(state, "b", &v, &diag);
			left = -1;
			if (!failed)
				break;
			if (ret != -ENOMEM || !strstr(diag.msg, "Cannot allocate memory"))
				fail_msg("call %ld: %d: %s", n, ret, diag.msg);
			assert_int_equal(get("a"), 3);
			assert_int_equal(get("b"), 5);
			assert_int_equal(get("c"), 0);
		}
		assert_int_equal(ret, 0);
		assert_true(rise || v == 5);
	}
	json_set_alloc_funcs(malloc, free);
	assert_int_equal(get("c"), 2);
	unlink(file);
}

static void places_that_cannot_hold_it_are_named(void **unused)
{
	struct sits_diag diag = { "" };
	uint64_t v;

	assert_int_equal(sits_versions_raise("/nonexistent/a/b", "a", 1, &diag), -ENOENT);
	assert_non_null(strstr(diag.msg, "/nonexistent/a/b"));
	diag.msg[0] = '\0';
	assert_int_equal(sits_versions_get("/dev/null", "a", &v, &diag), -ENOTDIR);
	assert_int_equal(symlink("/dev/null", file), 0);
	assert_true(sits_versions_get(state, "a", &v, &diag) < 0);
	unlink(file);
	diag.msg[0] = '\0';
	assert_int_equal(chmod(state, 0777), 0);
	assert_int_equal(sits_versions_get(state, "a", &v, &diag), -EPERM);
	assert_non_null(strstr(diag.msg, "by everybody"));
	assert_int_equal(sits_versions_raise(state, "a", 1, &diag), -EPERM);
	assert_int_equal(chmod(state, 0700), 0);
}

/* Two writers at once: neither loses the other's entry. */
static void writers_do_not_lose_entries(void **unused)
{
	char id[16];
	pid_t pid = fork();

	assert_true(pid >= 0);
	for (int i = 0; i < 20; i++) {
		snprintf(id, sizeof(id), "%c%d", pid ? 'p' : 'c', i);
		if (!pid) {
			if (sits_versions_raise(state, id, 1, NULL))
				_exit(1);
		} else {
			raise_to(id, 1);
		}
	}
	if (!pid)
		_exit(0);
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (int i = 0; i < 20; i++) {
		snprintf(id, sizeof(id), "c%d", i);
		assert_int_equal(get(id), 1);
		snprintf(id, sizeof(id), "p%d", i);
		assert_int_equal(get(id), 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(record_only_rises),
		cmocka_unit_test(damaged_record_is_refused_and_kept),
		cmocka_unit_test(want_of_memory_is_no_damage),
		cmocka_unit_test(places_that_cannot_hold_it_are_named),
		cmocka_unit_test(writers_do_not_lose_entries),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
