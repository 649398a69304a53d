// SPDX-License-Identifier: MIT
/*
 * tool_msg.c - messages on stderr, the context whose log lines go there too, and failures.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sits/context.h"
#include "sits/sealed.h"
#include "tools/sits/cmd.h"

#define MESSAGE_MAX (2 * PATH_MAX + 256)	/* two paths and words */

/* The last ERR line of the library: what a failure that follows is about. */
static char last_error[MESSAGE_MAX];

static void say(const char *cmd, const char *fmt, va_list ap)
{
	char line[MESSAGE_MAX];

	vsnprintf(line, sizeof(line), fmt, ap);
	tool_progress_end();
	fprintf(stderr, "sits %s: %s\n", cmd, tool_print_safe(line, line, sizeof(line)));
}

int tool_error(const char *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(cmd, fmt, ap);
	va_end(ap);
	return 1;
}

int tool_usage(const char *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(cmd, fmt, ap);
	va_end(ap);
	fprintf(stderr, "'sits %s --help' lists the options\n", cmd);
	return 2;
}

int tool_bad_option(const char *cmd, int c, char **argv)
{
	const char *arg = argv[optind - 1];

	if (c == ':')
		return tool_usage(cmd, "option '%s' needs an argument", arg);
	if (!strncmp(arg, "--", 2) && optopt)
		return tool_usage(cmd, "option '%s' takes no argument", arg);
	if (!strncmp(arg, "--", 2))
		return tool_usage(cmd, "unknown option '%s'", arg);
	return tool_usage(cmd, "unknown option '-%c'", optopt);
}

/* @log_arg: the command's name */
static void log_line(void *log_arg, int severity, const char *line)
{
	if (severity == SITS_LOG_ERR)
		snprintf(last_error, sizeof(last_error), "%s", line);
	if (severity > SITS_LOG_WARN && !getenv("SITS_DEBUG"))
		return;
	tool_error(log_arg, "%s%s", severity == SITS_LOG_WARN ? "warning: " : "", line);
}

int tool_open(const char *cmd, const char *provider, const char *run_dir, struct sits_ctx **ctx)
{
	struct sits_open_opts o = { .size = sizeof(o), .run_dir = run_dir, .log = log_line };
	int ret;

	o.log_arg = (void *)(uintptr_t)cmd;
	if (!provider || !strcmp(provider, "auto"))
		o.provider = SITS_PROVIDER_AUTO;
	else if (!strcmp(provider, "kernel"))
		o.provider = SITS_PROVIDER_KERNEL;
	else if (!strcmp(provider, "user"))
		o.provider = SITS_PROVIDER_USER;
	else
		return tool_usage(cmd, "unknown provider '%s': it is auto, kernel or user", provider);
	ret = sits_open(&o, ctx);
	return ret ? tool_fail(cmd, "can't open libsits", ret, false) : 0;
}

json_t *tool_failure(const char *cmd, const char *what, int err)
{
	const char *name = strerrorname_np(-err);
	bool stopped = err == -ECANCELED && tool_signal();
	json_t *obj;
	char *at;

	if (stopped)
		snprintf(last_error, sizeof(last_error), "%s: stopped by signal %d", what, tool_signal());
	else if (!last_error[0])
		snprintf(last_error, sizeof(last_error), "%s: %s", what, strerror(-err));
	else
		goto logged;
	tool_error(cmd, "%s", last_error);
logged:
	obj = json_pack("{s:s, s:b, s:s, s:s}", "file", what, "ok", 0, "error", name ? name : "EIO", "message", last_error);
	/* Names that are no UTF-8 can't be in JSON; but what went wrong, and about where, is to be known. */
	if (!obj) {
		for (at = last_error; *at; at++)
			*at = (unsigned char)*at < 0x80 ? *at : '?';
		obj = json_pack("{s:n, s:b, s:s, s:s}", "file", "ok", 0, "error", name ? name : "EIO", "message", last_error);
	}
	last_error[0] = '\0';
	return obj;
}

int tool_fail(const char *cmd, const char *what, int err, bool json)
{
	json_t *obj = tool_failure(cmd, what, err);

	if (json) {
		json_dumpf(obj, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(obj);
	return err == -ECANCELED && tool_signal() ? 128 + tool_signal() : 1;
}

int tool_fail_because(const char *cmd, const char *what, int err, const char *words, bool json)
{
	snprintf(last_error, sizeof(last_error), "%s", words);
	tool_error(cmd, "%s", words);
	return tool_fail(cmd, what, err, json);
}

int tool_key(const char *cmd, struct sits_ctx *ctx, const char *option, const char *spec, bool json,
	     struct sits_key **key)
{
	int ret;

	if (!spec)
		return tool_usage(cmd, "%s is required, for example: %s file:/etc/sits/model.key", option, option);
	tool_protect();
	ret = sits_key_open(ctx, spec, key);
	/* The spec is not repeated: it may be a key that somebody gave in place of where it is. */
	return ret ? tool_fail(cmd, option, ret, json) : 0;
}

int tool_with_key(const char *cmd, const char *spec, bool json,
		  int (*work)(void *arg, struct sits_ctx *ctx, const struct sits_key *key), void *arg)
{
	struct sits_ctx *ctx = NULL;
	struct sits_key *key = NULL;
	int status = tool_open(cmd, NULL, NULL, &ctx);

	if (!status)
		status = tool_key(cmd, ctx, "--key", spec, json, &key);
	if (!status)
		status = work(arg, ctx, key);
	sits_key_close(key);
	sits_close(ctx);
	return status;
}
