// SPDX-License-Identifier: MIT
/*
 * tool_main.c - see tool_main.h: standard streams that are open, the subcommand by its name, output that arrived.
 */
#include "tools/sits/tool_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void help(const struct tool_program *p, FILE *to)
{
	size_t i;

	fputs(p->before, to);
	for (i = 0; i < p->nr_cmds; i++)
		fprintf(to, "  %-10s  %s\n", p->cmds[i]->name, p->cmds[i]->summary);
	fputs(p->after, to);
}

static int run(const struct tool_program *p, int argc, char **argv)
{
	size_t i;

	if (argc < 2) {
		help(p, stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help(p, stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("%s %s\n", p->name, SITS_VERSION);
		return 0;
	}
	for (i = 0; i < p->nr_cmds; i++)
		if (!strcmp(argv[1], p->cmds[i]->name))
			return p->cmds[i]->run(argc - 1, argv + 1);
	fprintf(stderr, "%s: unknown %s '%s'; '%s --help' lists the commands\n", p->name, argv[1][0] == '-' ? "option" : "command",
		argv[1], p->name);
	return 2;
}

/*
 * Started without standard input, output or error, the next file opened would take its place, and messages would go into
 * a sealed file. What is put there answers every read and write with EBADF, as the closed descriptor did.
 */
static bool fill_stdio(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH) != fd)
			return false;
	return true;
}

int tool_main(const struct tool_program *p, int argc, char **argv)
{
	int status;

	if (!fill_stdio())
		return 1;
	/* Writing beyond RLIMIT_FSIZE is an error to report, not an end without words. */
	signal(SIGXFSZ, SIG_IGN);
	status = run(p, argc, argv);
	tool_progress_end();
	/* A full disk behind standard output is a failure too. */
	errno = 0;
	if ((fflush(stdout) || ferror(stdout)) && !status) {
		fprintf(stderr, "sits: can't write to standard output: %s\n", strerror(errno ? errno : EIO));
		status = 1;
	}
	return status;
}
