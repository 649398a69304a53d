// SPDX-License-Identifier: MIT
/*
 * diag_test.c - the explanation beside an errno: the first one stays, and it is one line of UTF-8 whatever
 * a message quotes.
 */
#include "daemon/diag.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void first_message_stays(void **state)
{
	struct sits_diag d = { "" };

	assert_int_equal(sits_diag_fail(&d, -EINVAL, "first %d", 1), -EINVAL);
	assert_int_equal(sits_diag_fail(&d, -ENOMEM, "second"), -ENOMEM);
	assert_string_equal(d.msg, "first 1");
	assert_int_equal(sits_diag_fail(NULL, -EIO, "nowhere"), -EIO);
	(void)state;
}

static void quoted_bytes_become_one_line_of_utf8(void **state)
{
	static const struct {
		const char *in, *out;
	} c[] = {
		{ "plain", "plain" }, { "schön 漢 🙂", "schön 漢 🙂" }, { "a\nb\r\tc", "a?b??c" }, { "\x1b[31mred", "?[31mred" },
		{ "\x7f", "?" }, { "\xc2\x9b" "31m", "??31m" }, { "\xff\xfe", "??" }, { "\xc0\x80", "??" }, { "\xe2\x82", "??" },
		{ "\xed\xa0\x80", "???" }, { "\xf4\x90\x80\x80", "????" }, { "\xf0\x8f\xbf\xbf", "????" }, { "\xc2\xa0", "\xc2\xa0" },
	};
	size_t i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		struct sits_diag d = { "" };

		sits_diag_fail(&d, -EBADMSG, "%s", c[i].in);
		assert_string_equal(d.msg, c[i].out);
	}
	(void)state;
}

/* A message that is cut within a character is still UTF-8. */
static void long_messages_are_cut(void **state)
{
	struct sits_diag d = { "" };
	char text[600];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memcpy(text + sizeof(d.msg) - 3, "漢", 3);
	sits_diag_fail(&d, -EBADMSG, "%s", text);
	assert_int_equal(strlen(d.msg), sizeof(d.msg) - 1);
	assert_string_equal(d.msg + sizeof(d.msg) - 4, "a??");
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_message_stays),
		cmocka_unit_test(quoted_bytes_become_one_line_of_utf8),
		cmocka_unit_test(long_messages_are_cut),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
