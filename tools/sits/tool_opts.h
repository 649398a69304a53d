/* SPDX-License-Identifier: MIT */
/*
 * tool_opts.h - the command line of a subcommand, read by a table of its options.
 */
#ifndef SITS_TOOLS_TOOL_OPTS_H
#define SITS_TOOLS_TOOL_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#define TOOL_OPTS_MAX 32	/* in one table: one bit each of @given */

/* One option, and where it goes: exactly one of @flag, @bits, and those with an argument. */
struct tool_opt {
	const char *name;		/* without "--" */
	char letter;			/* "-x" is the same; 0: none is */
	bool *flag;			/* becomes true */
	uint32_t *bits, bit;		/* @bit is set there */
	const char **text;		/* the argument as it is, not empty; borrowed from argv */
	bool may_be_empty;		/* ... or empty */
	uint32_t *threads;		/* the argument by tool_threads() */
	uint32_t *wait_s;		/* the argument by tool_wait() */
	uint32_t *u32;			/* a whole number, by tool_parse_u64() */
	uint32_t *from, min;		/* a whole number, @min or more, without a suffix */
	float *f32;			/* the argument by tool_float() */
	int (*take)(void *arg, const char *text);	/* Return: 0, or an exit status after a message */
};

struct tool_cmdline {
	const char *cmd, *help;		/* @help: what --help and -h print; the table has neither */
	const struct tool_opt *opt;	/* the last one has no name */
	void *arg;			/* for each take() */
	int operands;			/* how many there must be, none of them empty; -1: the command checks them */
	const char *needs;		/* the words for another number: "one FILE is needed"; NULL: there are none */
	uint32_t given;			/* out: bit i is set where opt[i] was given */
};

/**
 * tool_parse() - Read the command line by @l. Operands are at argv[optind] then.
 * Return: -1 to go on; else an exit status: 0, --help was printed; or after a message.
 */
int tool_parse(struct tool_cmdline *l, int argc, char **argv);

/** tool_no_empty() - An empty operand names no file: a shell makes it of a variable that is not set. Return: -1; 2, after a message. */
int tool_no_empty(const char *cmd, int nr, char **operands);

/** tool_float() - The argument of --@name, a finite number. Return: 0; 2, after a message. */
int tool_float(const char *cmd, const char *name, const char *text, float *v);

#endif
