// SPDX-License-Identifier: MIT
/*
 * log_test.c - the daemon's log: a reader that has stopped holds nobody up, and hears what it missed.
 */
#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/config.h"

#define HUNG_S		300	/* a log that takes this long has hung */
#define NR_LINES	1000	/* far more than the pipe holds */

static struct {
	int read_fd, stderr_fd;
	char *text;
	size_t len;
} s;

/* Standard error becomes a small pipe. */
static int setup(void **state)
{
	int fds[2];

	(void)state;
	if (pipe2(fds, O_CLOEXEC) || fcntl(fds[1], F_SETPIPE_SZ, 16384) < 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK))
		return -1;
	s.read_fd = fds[0];
	s.stderr_fd = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	alarm(HUNG_S);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	alarm(0);
	dup2(s.stderr_fd, STDERR_FILENO);
	close(s.stderr_fd);
	close(s.read_fd);
	free(s.text);
	memset(&s, 0, sizeof(s));
	return 0;
}

/* What the pipe holds, added to s.text. */
static void drain(void)
{
	char buf[8192];
	ssize_t n;

	while ((n = read(s.read_fd, buf, sizeof(buf))) > 0) {
		s.text = realloc(s.text, s.len + (size_t)n + 1);
		assert_non_null(s.text);
		memcpy(s.text + s.len, buf, (size_t)n);
		s.len += (size_t)n;
		s.text[s.len] = '\0';
	}
}

/* Every line is whole; those that came and those that were reported lost are all there were. */
static void check_lines(unsigned int nr_logged)
{
	unsigned int came = 0, lost = 0, n;
	char *save, *line, *p;

	for (line = strtok_r(s.text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if ((p = strstr(line, " messages before this one were lost"))) {
			while (p > s.text && p[-1] >= '0' && p[-1] <= '9')
				p--;
			lost += (unsigned int)strtoul(p, NULL, 10);
			continue;
		}
		p = strstr(line, "line ");
		assert_non_null(p);
		assert_int_equal(sscanf(p, "line %u of the log", &n), 1);
		assert_non_null(strstr(p, " of the log"));
		came++;
	}
	assert_true(lost > 0);
	assert_int_equal(came + lost, nr_logged);
}

static void fill_and_check(uint64_t format)
{
	sitsd_log_setup(SITS_LOG_INFO, format);
	for (unsigned int i = 0; i < NR_LINES; i++)
		sitsd_log(SITS_LOG_INFO, "line %u of the log", i);
	drain();
	sitsd_log(SITS_LOG_INFO, "line %u of the log", NR_LINES);
	drain();
	check_lines(NR_LINES + 1);
}

/* What fails is named first and returned then. */
static void errno_outlives_a_line(void **state)
{
	(void)state;
	sitsd_log_setup(SITS_LOG_INFO, SITS_LOG_FORMAT_TEXT);
	close(STDERR_FILENO);
	errno = ENOSPC;
	sitsd_log(SITS_LOG_ERR, "a line that can't be written");
	assert_int_equal(errno, ENOSPC);
}

static void stopped_reader_holds_nobody_up(void **state)
{
	(void)state;
	fill_and_check(SITS_LOG_FORMAT_TEXT);
}

static void stopped_reader_of_json_holds_nobody_up(void **state)
{
	(void)state;
	fill_and_check(SITS_LOG_FORMAT_JSON);
}

static void control_characters_are_replaced(void **state)
{
	(void)state;
	sitsd_log_setup(SITS_LOG_INFO, SITS_LOG_FORMAT_TEXT);
	sitsd_log(SITS_LOG_INFO, "a\x1b[31mb\nc\x7f");
	drain();
	assert_non_null(strstr(s.text, "a [31mb c \n"));
	assert_int_equal(strcspn(s.text, "\n"), s.len - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(stopped_reader_holds_nobody_up, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped_reader_of_json_holds_nobody_up, setup, teardown),
		cmocka_unit_test_setup_teardown(control_characters_are_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(errno_outlives_a_line, setup, teardown),
	};

	unsetenv("JOURNAL_STREAM");
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
