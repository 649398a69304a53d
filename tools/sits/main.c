// SPDX-License-Identifier: MIT
/*
 * main.c - sits: the table of subcommands. Each is in cmd_<name>.c; what they share is in tool_*.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/sits/cmd.h"

static const struct sits_cmd *const cmds[] = {
	&sits_cmd_seal, &sits_cmd_verify, &sits_cmd_inspect, &sits_cmd_rekey, &sits_cmd_key, &sits_cmd_run, &sits_cmd_info,
	&sits_cmd_stat, &sits_cmd_quantize, &sits_cmd_pack, &sits_cmd_perplexity,
};

static void help(void)
{
	size_t i;

	printf("usage: sits COMMAND [OPTIONS]...\n"
	       "       sits --help | --version\n"
	       "\n"
	       "Sealed inference: seal the weights of a model, check them, and ask the node that serves it.\n"
	       "\n"
	       "Commands:\n");
	for (i = 0; i < sizeof(cmds) / sizeof(cmds[0]); i++)
		printf("  %-10s %s\n", cmds[i]->name, cmds[i]->summary);
	printf("\n"
	       "'sits COMMAND --help' lists the options of a command; there is a man page sits-COMMAND(1) for each.\n"
	       "\n"
	       "Exit status: 0 done, 1 failed, 2 wrong usage, 128 + N stopped by signal N.\n"
	       "Environment: SITS_DEBUG=1 shows all log lines; SITS_RUN_DIR, where the sockets of sitsd are.\n");
}

static int run(int argc, char **argv)
{
	size_t i;

	if (argc < 2) {
		help();
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help();
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("sits %s\n", SITS_VERSION);
		return 0;
	}
	for (i = 0; i < sizeof(cmds) / sizeof(cmds[0]); i++)
		if (!strcmp(argv[1], cmds[i]->name))
			return cmds[i]->run(argc - 1, argv + 1);
	fprintf(stderr, "sits: unknown %s '%s'; 'sits --help' lists the commands\n", argv[1][0] == '-' ? "option" : "command",
		argv[1]);
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

int main(int argc, char **argv)
{
	int status;

	if (!fill_stdio())
		return 1;
	/* Writing beyond RLIMIT_FSIZE is an error to report, not an end without words. */
	signal(SIGXFSZ, SIG_IGN);
	status = run(argc, argv);
	tool_progress_end();
	/* A full disk behind standard output is a failure too. */
	errno = 0;
	if ((fflush(stdout) || ferror(stdout)) && !status) {
		fprintf(stderr, "sits: can't write to standard output: %s\n", strerror(errno ? errno : EIO));
		status = 1;
	}
	return status;
}
