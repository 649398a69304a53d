// SPDX-License-Identifier: MIT
/*
 * main.c - sits-model: the commands that hold plaintext weights. `sits NAME` starts it as `sits-model NAME`.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tools/model/model.h"

static const struct sits_cmd *const cmds[] = { &sits_cmd_quantize, &sits_cmd_pack, &sits_cmd_perplexity };

static int run(int argc, char **argv)
{
	size_t i;

	for (i = 0; argc > 1 && i < sizeof(cmds) / sizeof(cmds[0]); i++)
		if (!strcmp(argv[1], cmds[i]->name))
			return cmds[i]->run(argc - 1, argv + 1);
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("sits-model %s\n", SITS_VERSION);
		return 0;
	}
	fprintf(stderr, "usage: sits-model COMMAND [OPTIONS]...; it is started by 'sits COMMAND' for\n");
	for (i = 0; i < sizeof(cmds) / sizeof(cmds[0]); i++)
		fprintf(stderr, "  %-10s %s\n", cmds[i]->name, cmds[i]->summary);
	return 2;
}

int main(int argc, char **argv)
{
	int fd, status;

	/* As in `sits`: a file opened in the place of a closed standard stream would get messages written into it. */
	for (fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH) != fd)
			return 1;
	signal(SIGXFSZ, SIG_IGN);
	status = run(argc, argv);
	tool_progress_end();
	errno = 0;
	if ((fflush(stdout) || ferror(stdout)) && !status) {
		fprintf(stderr, "sits: can't write to standard output: %s\n", strerror(errno ? errno : EIO));
		status = 1;
	}
	return status;
}
