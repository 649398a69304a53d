/* SPDX-License-Identifier: MIT */
/*
 * tool_main.h - what `sits` and `sits-model` do around a subcommand.
 */
#ifndef SITS_TOOLS_TOOL_MAIN_H
#define SITS_TOOLS_TOOL_MAIN_H

#include <stddef.h>

#include "tools/sits/cmd.h"

struct tool_program {
	const char *name;
	const char *before, *after;	/* --help: the text before the list of subcommands, and after it */
	const struct sits_cmd *const *cmds;
	size_t nr_cmds;
};

/** tool_main() - All of main(). Return: the exit status. */
int tool_main(const struct tool_program *p, int argc, char **argv);

#endif
