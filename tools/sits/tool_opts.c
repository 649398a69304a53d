// SPDX-License-Identifier: MIT
/*
 * tool_opts.c - see tool_opts.h.
 */
#include "tools/sits/tool_opts.h"

#include <assert.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/sits/cmd.h"

#define OPT_HELP	256			/* what getopt_long() returns: this for --help, */
#define OPT_FIRST	(OPT_HELP + 1)		/* this and more for the table's, by their place */
#define SHORTS_MAX	(2 * TOOL_OPTS_MAX + 3)

static bool has_argument(const struct tool_opt *o)
{
	return !o->flag && !o->bits;
}

/* The table as getopt_long() has it. @longs: TOOL_OPTS_MAX + 2, @shorts: SHORTS_MAX */
static void getopt_tables(const struct tool_opt *opt, struct option *longs, char *shorts)
{
	int i;

	*shorts++ = ':';
	*shorts++ = 'h';
	for (i = 0; opt[i].name; i++) {
		assert(i < TOOL_OPTS_MAX);
		longs[i] = (struct option){ opt[i].name, has_argument(&opt[i]) ? required_argument : no_argument, NULL, OPT_FIRST + i };
		if (!opt[i].letter)
			continue;
		*shorts++ = opt[i].letter;
		if (has_argument(&opt[i]))
			*shorts++ = ':';
	}
	*shorts = '\0';
	longs[i] = (struct option){ "help", no_argument, NULL, OPT_HELP };
	longs[i + 1] = (struct option){ 0 };
}

/* Which of the table's getopt_long() returned as @c; -1: none. */
static int place_of(const struct tool_opt *opt, int c)
{
	int i;

	if (c >= OPT_FIRST)
		return c - OPT_FIRST;
	for (i = 0; opt[i].name; i++)
		if (opt[i].letter && opt[i].letter == c)
			return i;
	return -1;
}

static int take_u32(const char *cmd, const char *name, const char *text, uint32_t *v)
{
	uint64_t n;

	if (!tool_parse_u64(text, &n) || n > UINT32_MAX)
		return tool_usage(cmd, "--%s '%s' is not a whole number from 0 to %u", name, text, UINT32_MAX);
	*v = (uint32_t)n;
	return 0;
}

static int take_from(const char *cmd, const char *name, const char *text, uint32_t min, uint32_t *v)
{
	uint64_t n;

	if (!tool_parse_number(text, &n) || n < min || n > UINT32_MAX)
		return tool_usage(cmd, "--%s '%s' is not a number from %u up", name, text, min);
	*v = (uint32_t)n;
	return 0;
}

int tool_float(const char *cmd, const char *name, const char *text, float *v)
{
	char *end;
	float f = strtof(text, &end);

	if (end == text || *end || !isfinite(f))
		return tool_usage(cmd, "--%s '%s' is not a number", name, text);
	*v = f;
	return 0;
}

static int take(const struct tool_cmdline *l, const struct tool_opt *o, const char *text)
{
	if (o->flag)
		*o->flag = true;
	else if (o->bits)
		*o->bits |= o->bit;
	else if (o->text && !*text && !o->may_be_empty)	/* as operands, see tool_no_empty() */
		return tool_usage(l->cmd, "--%s is empty", o->name);
	else if (o->text)
		*o->text = text;
	else if (o->threads)
		return tool_threads(l->cmd, text, o->threads);
	else if (o->wait_s)
		return tool_wait(l->cmd, text, o->wait_s);
	else if (o->u32)
		return take_u32(l->cmd, o->name, text, o->u32);
	else if (o->from)
		return take_from(l->cmd, o->name, text, o->min, o->from);
	else if (o->f32)
		return tool_float(l->cmd, o->name, text, o->f32);
	else
		return o->take(l->arg, text);
	return 0;
}

int tool_no_empty(const char *cmd, int nr, char **operands)
{
	int i;

	for (i = 0; i < nr; i++)
		if (!*operands[i])
			return tool_usage(cmd, "argument %d is empty", i + 1);
	return -1;
}

static int check_operands(const struct tool_cmdline *l, int nr, char **operands)
{
	if (l->operands < 0)
		return -1;
	if (nr != l->operands && !l->needs)
		return tool_usage(l->cmd, "unexpected argument '%s'", operands[0]);
	if (nr != l->operands)
		return tool_usage(l->cmd, "%s, %d were given", l->needs, nr);
	return tool_no_empty(l->cmd, nr, operands);
}

int tool_parse(struct tool_cmdline *l, int argc, char **argv)
{
	struct option longs[TOOL_OPTS_MAX + 2];
	char shorts[SHORTS_MAX];
	int c, i, status;

	getopt_tables(l->opt, longs, shorts);
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (c == 'h' || c == OPT_HELP) {
			fputs(l->help, stdout);
			return 0;
		}
		i = place_of(l->opt, c);
		if (i < 0)
			return tool_bad_option(l->cmd, c, argv);
		l->given |= 1u << i;
		status = take(l, &l->opt[i], optarg);
		if (status)
			return status;
	}
	return check_operands(l, argc - optind, argv + optind);
}
