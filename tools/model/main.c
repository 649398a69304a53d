// SPDX-License-Identifier: MIT
/*
 * main.c - sits-model: the commands that hold plaintext weights. `sits NAME` starts it as `sits-model NAME`.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "daemon/engine/threads.h"
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

struct command {
	int argc, status;
	char **argv;
};

static void *run(void *arg)
{
	struct command *c = arg;

	c->status = tool_main(&program, c->argc, c->argv);
	return NULL;
}

/* On a thread that computes with others needs a stack, which the first one may not have: sits_threads_start(). Signals go there, too. */
int main(int argc, char **argv)
{
	struct command c = { .argc = argc, .argv = argv };
	pthread_t thread;
	sigset_t all;
	int ret;

	ret = sits_threads_start(&thread, run, &c);
	if (ret)
		return tool_error("model", "no thread can be started: %s", strerror(-ret));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_join(thread, NULL);
	return c.status;
}
