// SPDX-License-Identifier: MIT
/*
 * main.c - sits-model: the commands that hold plaintext weights. `sits NAME` starts it as `sits-model NAME`.
 */
#include "tools/model/model.h"
#include "tools/sits/tool_main.h"

static const struct sits_cmd *const cmds[] = { &sits_cmd_quantize, &sits_cmd_pack, &sits_cmd_perplexity };

static const struct tool_program program = {
	.name = "sits-model",
	.before = "usage: sits-model COMMAND [OPTIONS]...\n"
		  "       sits-model --help | --version\n"
		  "\n"
		  "The commands of sits that hold plaintext weights: 'sits COMMAND' starts this program.\n"
		  "\n"
		  "Commands:\n",
	.after = "\n"
		 "'sits COMMAND --help' lists the options of a command; there is a man page sits-COMMAND(1) for each.\n"
		 "\n"
		 "Exit status: 0 done, 1 failed, 2 wrong usage, 128 + N stopped by signal N.\n",
	.cmds = cmds,
	.nr_cmds = sizeof(cmds) / sizeof(cmds[0]),
};

int main(int argc, char **argv)
{
	return tool_main(&program, argc, argv);
}
