// SPDX-License-Identifier: MIT
/*
 * cmd_model.c - the commands that hold plaintext weights: sits-model does them, this starts it.
 *
 * It lies beside `sits` (a build directory), or in ../libexec/sits from there (an installation).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/sits/cmd.h"

#define PROGRAM "sits-model"

/* @where: relative to the directory of this program. Return: only where there is no such program. */
static void try_exec(const char *dir, const char *where, char **argv)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s" PROGRAM, dir, where);
	execv(path, argv);
}

static int run(int argc, char **argv)
{
	char dir[PATH_MAX], **args, *slash;
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	int i;

	args = calloc((size_t)argc + 2, sizeof(*args));
	if (!args)
		return tool_error(argv[0], "no memory");
	args[0] = (char *)PROGRAM;
	for (i = 0; i < argc; i++)
		args[i + 1] = argv[i];
	dir[n > 0 ? n : 0] = '\0';
	slash = strrchr(dir, '/');
	if (!slash)
		return tool_error(argv[0], "can't tell where this program is: /proc/self/exe: %s", strerror(errno));
	*slash = '\0';
	try_exec(dir, "", args);
	if (errno == ENOENT)
		try_exec(dir, "../libexec/sits/", args);
	return tool_error(argv[0], "can't start " PROGRAM " from %s or %s/../libexec/sits: %s", dir, dir, strerror(errno));
}

const struct sits_cmd sits_cmd_quantize = { "quantize", "make a smaller model file of another", run };
const struct sits_cmd sits_cmd_pack = { "pack", "put a model's weights into the kernels' order", run };
const struct sits_cmd sits_cmd_perplexity = { "perplexity", "measure how well a model predicts a text", run };
