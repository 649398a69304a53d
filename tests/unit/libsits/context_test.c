// SPDX-License-Identifier: MIT
/*
 * context_test.c - opening libsits: options, the provider, the run directory, the log.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "libsits/internal.h"

static char last_line[2048];
static int last_severity, nr_errors;

static void keep_line(void *arg, int severity, const char *line)
{
	assert_ptr_equal(arg, &last_line);
	snprintf(last_line, sizeof(last_line), "%s", line);
	last_severity = severity;
	nr_errors += severity == SITS_LOG_ERR;
}

static struct sits_open_opts opts(void)
{
	nr_errors = 0;
	return (struct sits_open_opts){
		.size = sizeof(struct sits_open_opts), .log = keep_line, .log_arg = &last_line,
	};
}

/* Is the module there? Then with all that a provider does: it is ours. */
static bool has_module(void)
{
	return !access("/dev/sits", F_OK);
}

static void test_defaults(void **state)
{
	struct sits_ctx *ctx;

	unsetenv("SITS_RUN_DIR");
	assert_int_equal(sits_open(NULL, &ctx), 0);
	assert_string_equal(sits_run_dir(ctx), "/run/sits");
	assert_string_equal(sits_provider_name(ctx), has_module() ? "kernel" : "user");
	sits_close(ctx);
	sits_close(NULL);
	assert_int_equal(sits_open(NULL, NULL), -EINVAL);
}

static void test_run_dir(void **state)
{
	struct sits_open_opts o = opts();
	struct sits_ctx *ctx;
	char dir[] = "/elsewhere";

	setenv("SITS_RUN_DIR", "/from/environment", 1);
	assert_int_equal(sits_open(&o, &ctx), 0);
	assert_string_equal(sits_run_dir(ctx), "/from/environment");
	sits_close(ctx);
	o.run_dir = dir;
	assert_int_equal(sits_open(&o, &ctx), 0);
	dir[1] = 'X';	/* it was copied */
	assert_string_equal(sits_run_dir(ctx), "/elsewhere");
	sits_close(ctx);
	setenv("SITS_RUN_DIR", "", 1);
	o.run_dir = "";
	assert_int_equal(sits_open(&o, &ctx), 0);
	assert_string_equal(sits_run_dir(ctx), "/run/sits");
	sits_close(ctx);
	unsetenv("SITS_RUN_DIR");
}

/* What was asked for by name, and what AUTO takes, with the module and without. */
static void test_choice_of_provider(void **state)
{
	struct sits_open_opts o = opts();
	struct sits_ctx *ctx = NULL;

	if (has_module()) {
		for (uint32_t provider = SITS_PROVIDER_AUTO; provider <= SITS_PROVIDER_USER; provider++) {
			o.provider = provider;
			assert_int_equal(sits_open(&o, &ctx), 0);
			assert_string_equal(sits_provider_name(ctx), provider == SITS_PROVIDER_USER ? "user" : "kernel");
			sits_close(ctx);
		}
		assert_int_equal(nr_errors, 0);
		return;
	}
	o.provider = SITS_PROVIDER_KERNEL;
	assert_int_equal(sits_open(&o, &ctx), -ENODEV);
	assert_null(ctx);
	assert_int_equal(nr_errors, 1);
	assert_non_null(strstr(last_line, "/dev/sits"));
	assert_non_null(strstr(last_line, "modprobe sits"));
	o.provider = SITS_PROVIDER_AUTO;
	assert_int_equal(sits_open(&o, &ctx), 0);
	assert_string_equal(sits_provider_name(ctx), "user");
	sits_close(ctx);
	o.provider = SITS_PROVIDER_USER;
	assert_int_equal(sits_open(&o, &ctx), 0);
	assert_string_equal(sits_provider_name(ctx), "user");
	assert_int_equal(nr_errors, 1);
	sits_close(ctx);
}

static void test_bad_options(void **state)
{
	struct sits_open_opts good = opts(), o;
	struct sits_ctx *ctx;

#define BAD(field_, value_) do { o = good; o.field_ = (value_); \
		assert_int_equal(sits_open(&o, &ctx), -EINVAL); } while (0)
	BAD(size, 0);
	BAD(size, sizeof(o) - 1);
	BAD(size, 1 << 20);
	BAD(flags, 1);
	BAD(provider, 3);
	BAD(reserved, 1);
#undef BAD
}

static void test_log_lines_are_bounded(void **state)
{
	struct sits_open_opts o = opts();
	struct sits_ctx *ctx;
	char big[5000];

	memset(big, 'b', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(sits_open(&o, &ctx), 0);
	errno = 42;
	sits_log(ctx, SITS_LOG_WARN, "%s", big);
	assert_int_equal(errno, 42);
	assert_int_equal(strlen(last_line), 1023);
	assert_int_equal(last_severity, SITS_LOG_WARN);
	/* What is said of a long path is behind it. */
	sits_log(ctx, SITS_LOG_ERR, "%.4000s: can't open the directory %.4000s: no such thing", big, big);
	assert_true(strlen(last_line) <= 1023 && strlen(last_line) > 1000);
	assert_memory_equal(last_line, "bbb", 3);
	assert_non_null(strstr(last_line, "b ... b"));
	assert_string_equal(last_line + strlen(last_line) - 15, ": no such thing");
	/* Characters are left out whole, wherever the cuts fall. */
	for (size_t i = 0; i + 3 < sizeof(big); i += 3)
		memcpy(big + i, "\xe2\x82\xac", 3);
	for (int i = 0; i < 3; i++) {
		for (size_t at = 0; at < 3; at++) {
			sits_log(ctx, SITS_LOG_ERR, "%.*s%.*s%.*s", i, "xxx", 3000, big, (int)at, "yyy");
			size_t head = (size_t)(strstr(last_line, " ... ") - last_line);
			assert_int_equal((head - (size_t)i) % 3, 0);
			assert_int_equal((strlen(last_line) - head - 5 - at) % 3, 0);
			assert_true(strlen(last_line) <= 1023);
		}
	}
	sits_close(ctx);
	sits_log(NULL, SITS_LOG_ERR, "nobody listens");
	assert_int_equal(sits_open(NULL, &ctx), 0);
	sits_log(ctx, SITS_LOG_ERR, "nobody listens");
	sits_close(ctx);
}

static void test_opts_copy(void **state)
{
	struct now { uint32_t size, a; uint64_t b; };
	struct then { struct now n; uint64_t later; } src = { .n = { .size = sizeof(src), .a = 1, .b = 2 } };
	struct now dst;

	assert_int_equal(sits_opts_copy(&dst, sizeof(dst), &src, 8), 0);
	assert_true(dst.a == 1 && dst.b == 2);
	src.later = 1;
	assert_int_equal(sits_opts_copy(&dst, sizeof(dst), &src, 8), -EINVAL);
	src.n.size = 8;		/* a caller that is older than @b */
	assert_int_equal(sits_opts_copy(&dst, sizeof(dst), &src, 8), 0);
	assert_true(dst.a == 1 && dst.b == 0);
	src.n.size = 7;
	assert_int_equal(sits_opts_copy(&dst, sizeof(dst), &src, 8), -EINVAL);
	src.n.size = UINT32_MAX;
	assert_int_equal(sits_opts_copy(&dst, sizeof(dst), &src, 8), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_run_dir),
		cmocka_unit_test(test_choice_of_provider),
		cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_log_lines_are_bounded),
		cmocka_unit_test(test_opts_copy),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
