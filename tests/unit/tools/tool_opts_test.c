// SPDX-License-Identifier: MIT
/*
 * tool_opts_test.c - a command line by a table of options: each kind, each way to be wrong, and what is said then.
 */
#include "tools/sits/tool_opts.h"

#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/sits/cmd.h"

#define MAX_ARGS 32

static struct {
	bool flag;
	uint32_t bits, threads, wait_s, u32, from;
	float f32;
	const char *text, *taken, *words;
	uint32_t given;
	char said[2048];	/* on standard output and error */
} got;

static int take_word(void *arg, const char *text)
{
	assert_ptr_equal(arg, &got);
	if (!strcmp(text, "bad"))
		return tool_usage("test", "--word 'bad' is bad");
	got.taken = text;
	return 0;
}

static const struct tool_opt opts[] = {
	{ "flag", 'f', .flag = &got.flag }, { "one", .bits = &got.bits, .bit = 1 }, { "four", .bits = &got.bits, .bit = 4 },
	{ "text", 't', .text = &got.text }, { "threads", .threads = &got.threads }, { "wait", .wait_s = &got.wait_s },
	{ "u32", .u32 = &got.u32 }, { "f32", .f32 = &got.f32 }, { "word", .take = take_word },
	{ "least", .from = &got.from, .min = 8 }, { "words", .text = &got.words, .may_be_empty = true }, { 0 },
};

/* What goes to @fd from now on is in a file. Return: what it was. */
static int divert(FILE *stream, int fd, int to)
{
	int was;

	fflush(stream);
	was = dup(fd);
	assert_true(was >= 0 && dup2(to, fd) == fd);
	return was;
}

static void restore(FILE *stream, int fd, int was)
{
	fflush(stream);
	assert_int_equal(dup2(was, fd), fd);
	close(was);
}

/* @line: arguments with one space between them, '' for an empty one. @operands, @needs: as in struct tool_cmdline */
static int parse(const char *line, int operands, const char *needs)
{
	static char words[256], *argv[MAX_ARGS];
	struct tool_cmdline l = { .cmd = "test", .help = "the help\n", .opt = opts, .arg = &got, .operands = operands, .needs = needs };
	int argc = 0, status, fd, out, err;
	ssize_t n;
	char *w;

	memset(&got, 0, sizeof(got));
	snprintf(words, sizeof(words), "test %s", line);
	for (w = strtok(words, " "); w; w = strtok(NULL, " "))
		argv[argc++] = strcmp(w, "''") ? w : w + 2;
	argv[argc] = NULL;
	optind = 0;	/* getopt_long() starts anew */
	fd = memfd_create("said", MFD_CLOEXEC);
	assert_true(fd >= 0);
	out = divert(stdout, STDOUT_FILENO, fd);
	err = divert(stderr, STDERR_FILENO, fd);
	status = tool_parse(&l, argc, argv);
	restore(stdout, STDOUT_FILENO, out);
	restore(stderr, STDERR_FILENO, err);
	n = pread(fd, got.said, sizeof(got.said) - 1, 0);
	assert_true(n >= 0);
	got.said[n] = '\0';
	close(fd);
	got.given = l.given;
	return status;
}

static void each_kind_arrives(void **state)
{
	assert_int_equal(parse("--flag --one --four --text hello --threads 3 --wait 0 --u32 2K --f32 -0.5 --word x --least 8", 0, NULL), -1);
	assert_true(got.flag);
	assert_int_equal(got.bits, 5);
	assert_string_equal(got.text, "hello");
	assert_int_equal(got.threads, 3);
	assert_int_equal(got.wait_s, 0);
	assert_int_equal(got.u32, 2048);
	assert_true(got.f32 == -0.5f);
	assert_string_equal(got.taken, "x");
	assert_int_equal(got.from, 8);
	assert_int_equal(got.given, 0x3ff);
	assert_string_equal(got.said, "");
}

static void letters_and_values_in_one_word(void **state)
{
	assert_int_equal(parse("-f -t hello --four", 0, NULL), -1);
	assert_true(got.flag);
	assert_string_equal(got.text, "hello");
	assert_int_equal(got.bits, 4);
	assert_int_equal(got.given, 1 << 0 | 1 << 2 | 1 << 3);
	assert_int_equal(parse("-fthello --u32=7", 0, NULL), -1);
	assert_true(got.flag && got.u32 == 7);
	assert_string_equal(got.text, "hello");
	assert_int_equal(parse("", 0, NULL), -1);
	assert_int_equal(got.given, 0);
}

static void help_is_printed_and_ends_it(void **state)
{
	static const char *const line[] = { "--help", "-h", "--flag --help --nonsense", "x y -h", "--threads 2 -h" };
	size_t i;

	for (i = 0; i < sizeof(line) / sizeof(line[0]); i++) {
		assert_int_equal(parse(line[i], 1, "one FILE is needed"), 0);
		assert_string_equal(got.said, "the help\n");
	}
}

static void operands_are_counted(void **state)
{
	assert_int_equal(parse("a --flag", 1, "one FILE is needed"), -1);
	assert_int_equal(parse("--flag", 1, "one FILE is needed"), 2);
	assert_non_null(strstr(got.said, "sits test: one FILE is needed, 0 were given\n"));
	assert_int_equal(parse("a b c", 2, "two are needed"), 2);
	assert_non_null(strstr(got.said, "two are needed, 3 were given\n"));
	assert_int_equal(parse("--flag stray", 0, NULL), 2);
	assert_non_null(strstr(got.said, "unexpected argument 'stray'"));
	assert_int_equal(parse("a ''", 2, "two are needed"), 2);
	assert_non_null(strstr(got.said, "sits test: argument 2 is empty\n"));
	assert_int_equal(parse("a b c d ''", -1, NULL), -1);
	assert_int_equal(parse("-- --flag", 1, "one FILE is needed"), -1);
	assert_false(got.flag);
}

static void only_what_may_be_is_empty(void **state)
{
	assert_int_equal(parse("--words=", 0, NULL), -1);
	assert_string_equal(got.words, "");
	assert_int_equal(parse("--text=", 0, NULL), 2);
	assert_null(got.text);
}

static void what_is_wrong_is_named(void **state)
{
	static const struct { const char *line, *words; } bad[] = {
		{ "--nonsense", "unknown option '--nonsense'" }, { "-z", "unknown option '-z'" },
		{ "--text=", "--text is empty" },
		{ "--text", "option '--text' needs an argument" }, { "-t", "option '-t' needs an argument" },
		{ "--flag=yes", "option '--flag=yes' takes no argument" }, { "--help=yes", "option '--help=yes' takes no argument" },
		{ "--threads 0", "--threads '0' is not" }, { "--threads 257", "--threads '257' is not" },
		{ "--threads 2K", "--threads '2K' is not" }, { "--wait 1000001", "--wait '1000001' is not" },
		{ "--u32 4294967296", "--u32 '4294967296' is not a whole number" }, { "--u32 -1", "--u32 '-1' is not" },
		{ "--u32 1.5", "--u32 '1.5' is not" }, { "--f32 1x", "--f32 '1x' is not a number" },
		{ "--f32 inf", "--f32 'inf' is not a number" }, { "--f32 nan", "--f32 'nan' is not a number" },
		{ "--word bad", "--word 'bad' is bad" }, { "--least 7", "--least '7' is not a number from 8 up" },
		{ "--least 8K", "--least '8K' is not" }, { "--least 4294967296", "--least '4294967296' is not" },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(bad[i].line, 0, NULL), 2);
		if (!strstr(got.said, bad[i].words) || !strstr(got.said, "'sits test --help' lists the options\n"))
			fail_msg("%s: said %s", bad[i].line, got.said);
	}
}

static void a_name_may_be_cut_where_it_stays_clear(void **state)
{
	assert_int_equal(parse("--fl --th 2", 0, NULL), -1);
	assert_true(got.flag && got.threads == 2);
	assert_int_equal(parse("--f", 0, NULL), 2);	/* flag, four, f32 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_arrives),
		cmocka_unit_test(letters_and_values_in_one_word),
		cmocka_unit_test(help_is_printed_and_ends_it),
		cmocka_unit_test(operands_are_counted),
		cmocka_unit_test(only_what_may_be_is_empty),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(a_name_may_be_cut_where_it_stays_clear),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
