// SPDX-License-Identifier: MIT
/*
 * main.c - sits: the table of subcommands. Each is in cmd_<name>.c; what they share is in tool_*.c.
 */
#include "tools/sits/cmd.h"
#include "tools/sits/tool_main.h"

static const struct sits_cmd *const cmds[] = {
	&sits_cmd_seal, &sits_cmd_verify, &sits_cmd_inspect, &sits_cmd_rekey, &sits_cmd_key, &sits_cmd_run, &sits_cmd_info,
	&sits_cmd_stat, &sits_cmd_quantize, &sits_cmd_pack, &sits_cmd_perplexity,
};

static const struct tool_program program = {
	.name = "sits",
	.before = "usage: sits COMMAND [OPTIONS]...\n"
		  "       sits --help | --version\n"
		  "\n"
		  "Sealed inference: seal the weights of a model, check them, and ask the node that serves it.\n"
		  "\n"
		  "Commands:\n",
	.after = "\n"
		 "'sits COMMAND --help' lists the options of a command; there is a man page sits-COMMAND(1) for each.\n"
		 "\n"
		 "Exit status: 0 done, 1 failed, 2 wrong usage, 128 + N stopped by signal N.\n"
		 "Environment: SITS_DEBUG=1 shows all log lines; SITS_RUN_DIR, where the sockets of sitsd are.\n",
	.cmds = cmds,
	.nr_cmds = sizeof(cmds) / sizeof(cmds[0]),
};

int main(int argc, char **argv)
{
	return tool_main(&program, argc, argv);
}
