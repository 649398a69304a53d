// SPDX-License-Identifier: MIT
/*
 * manifest_test.c - manifest.c: what is written is read, and everything else is refused with its line.
 */
#include "daemon/manifest.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static int parse(const char *text, size_t len, struct sits_manifest *m, struct sits_diag *diag)
{
	char *exact = malloc(len ? len : 1);	/* the sanitizer sees a byte too far */
	int ret;

	assert_non_null(exact);
	memcpy(exact, text, len);
	diag->msg[0] = '\0';
	ret = sits_manifest_parse(exact, len, m, diag);
	free(exact);
	return ret;
}

static void what_is_written_is_read(void **state)
{
	struct sits_manifest_file f[] = {
		{ .name = "config.json", .bytes = 700, .digest = { 0, 0x11, 0xfe } },
		{ .name = "model-00001-of-00002.safetensors", .bytes = UINT64_C(1) << 40, .digest = { 9 } },
		{ .name = "\xc3\xa4 b.json", .bytes = 1 },
	};
	struct sits_manifest m = { f, 3 }, got;
	struct sits_diag diag;
	char *text;
	size_t len, i;

	assert_int_equal(sits_manifest_write(&m, &text, &len), 0);
	if (parse(text, len, &got, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(got.nr, 3);
	for (i = 0; i < 3; i++) {
		assert_string_equal(got.file[i].name, f[i].name);
		assert_int_equal(got.file[i].bytes, f[i].bytes);
		assert_memory_equal(got.file[i].digest, f[i].digest, 32);
	}
	sits_manifest_fini(&got);
	sits_manifest_fini(&got);
	/* Every shorter text is refused, unless it ends with a line. */
	for (i = 0; i < len; i++) {
		int ret = parse(text, i, &got, &diag);

		assert_true(ret == -EBADMSG || (text[i - 1] == '\n' && !ret && got.nr < 3));
		sits_manifest_fini(&got);
	}
	free(text);
}

static void names_that_may_not_be_are_not_written(void **state)
{
	static const char *const bad[] = { "", "a/b", "..", ".hidden", "a\nb", "a\x7f" };
	struct sits_manifest_file f[2] = { { .bytes = 1 }, { .name = "b", .bytes = 1 } };
	struct sits_manifest m = { f, 1 };
	char *text;
	size_t len, i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(f[0].name, bad[i]);
		assert_int_equal(sits_manifest_write(&m, &text, &len), -EINVAL);
	}
	strcpy(f[0].name, "b");
	m.nr = 2;
	assert_int_equal(sits_manifest_write(&m, &text, &len), -EINVAL);
}

static void everything_else_is_refused(void **state)
{
	static const struct {
		const char *text;
		int err;
		const char *words;
	} bad[] = {
		{ "", -EBADMSG, "not the manifest" },
		{ "\n", -EBADMSG, "not the manifest" },
		{ "SITS-DIRECTORY 1", -EBADMSG, "not the manifest" },
		{ "SITS-DIRECTORY 2\n" HEX " 1 a\n", -EPROTONOSUPPORT, "only version 1" },
		{ "SITS-DIRECTORY 1 \n" HEX " 1 a\n", -EPROTONOSUPPORT, "only version 1" },
		{ "SITS-DIRECTORY 1\n", -EBADMSG, "names no files" },
		{ "SITS-DIRECTORY 1\n\n", -EBADMSG, "line 2: no digest" },
		{ "SITS-DIRECTORY 1\n" HEX "\n", -EBADMSG, "line 2: no digest" },
		{ "SITS-DIRECTORY 1\nx" HEX " 1 a\n", -EBADMSG, "line 2: no digest" },
		{ "SITS-DIRECTORY 1\nA" HEX " 1 a\n", -EBADMSG, "line 2: no digest" },
		{ "SITS-DIRECTORY 1\n" HEX " 0 a\n", -EBADMSG, "line 2: no number" },
		{ "SITS-DIRECTORY 1\n" HEX " 01 a\n", -EBADMSG, "line 2: no number" },
		{ "SITS-DIRECTORY 1\n" HEX " -1 a\n", -EBADMSG, "line 2: no number" },
		{ "SITS-DIRECTORY 1\n" HEX " 99999999999999999999 a\n", -EBADMSG, "line 2: no number" },
		{ "SITS-DIRECTORY 1\n" HEX " 1\n", -EBADMSG, "line 2: no number" },
		{ "SITS-DIRECTORY 1\n" HEX " 1 \n", -EBADMSG, "line 2: no name" },
		{ "SITS-DIRECTORY 1\n" HEX " 1 ../a\n", -EBADMSG, "line 2: no name" },
		{ "SITS-DIRECTORY 1\n" HEX " 1 a/b\n", -EBADMSG, "line 2: no name" },
		{ "SITS-DIRECTORY 1\n" HEX " 1 a\r\n", -EBADMSG, "line 2: no name" },
		{ "SITS-DIRECTORY 1\n" HEX " 1 b\n" HEX " 1 a\n", -EBADMSG, "line 3: the names do not rise" },
		{ "SITS-DIRECTORY 1\n" HEX " 1 a\n" HEX " 1 a\n", -EBADMSG, "line 3: the names do not rise" },
		{ "SITS-DIRECTORY 1\n" HEX " 1 a\n" HEX " 1 b", -EBADMSG, "line 3: it has no end" },
	};
	struct sits_manifest m;
	struct sits_diag diag;
	size_t i;
	int ret;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ret = parse(bad[i].text, strlen(bad[i].text), &m, &diag);
		if (ret != bad[i].err || !strstr(diag.msg, bad[i].words))
			fail_msg("case %zu: %d, \"%s\" does not say \"%s\"", i, ret, diag.msg, bad[i].words);
		sits_manifest_fini(&m);
	}
}

static void files_of_a_model_are_known(void **state)
{
	assert_true(sits_manifest_is_model_file("model-00001-of-00030.safetensors"));
	assert_true(sits_manifest_is_model_file("chat_template.jinja"));
	assert_false(sits_manifest_is_model_file(".safetensors"));
	assert_false(sits_manifest_is_model_file("model.safetensors.bak"));
	assert_false(sits_manifest_is_model_file("README.md"));
	assert_true(sits_manifest_is_model_file("config.json"));
	assert_false(sits_manifest_is_weights("config.json"));
	assert_true(sits_manifest_is_weights("model.safetensors"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(names_that_may_not_be_are_not_written),
		cmocka_unit_test(everything_else_is_refused),
		cmocka_unit_test(files_of_a_model_are_known),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
