/* SPDX-License-Identifier: MIT */
/*
 * cmd.h - the table of subcommands of `sits`, and what they share.
 *
 * A subcommand is cmd_<name>.c with one struct sits_cmd; main.c lists them. A command returns its
 * exit status: 0 done, 1 failed (a message on stderr says why), 2 wrong usage.
 */
#ifndef SITS_TOOLS_CMD_H
#define SITS_TOOLS_CMD_H

#include <stdbool.h>
#include <stdint.h>

struct sits_ctx;

struct sits_cmd {
	const char *name;
	const char *summary;		/* one line for `sits --help` */
	int (*run)(int argc, char **argv);	/* argv[0] is the subcommand's name */
};

extern const struct sits_cmd sits_cmd_seal, sits_cmd_verify, sits_cmd_inspect, sits_cmd_rekey,
	sits_cmd_key, sits_cmd_run, sits_cmd_info;

/** tool_error() - "sits NAME: message" on stderr. Return: 1, for `return tool_error(...)`. */
int tool_error(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** tool_usage() - A usage error, with a pointer to --help. Return: 2. */
int tool_usage(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** tool_open() - A context whose log lines go to stderr (ERR and WARN; all with $SITS_DEBUG set).
 * @provider: "auto", "kernel", "user" or NULL. Return: 0, or an exit status after a message. */
int tool_open(const char *cmd, const char *provider, const char *run_dir, struct sits_ctx **ctx);

/** tool_progress() - sits_progress_fn that draws a bar on stderr if that is a terminal; arg: a label.
 * Returns non-zero once SIGINT or SIGTERM came (tool_catch_signals() was called before). */
int tool_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes);
void tool_catch_signals(void);

/** tool_parse_u64() - All of @s as a number, with an optional K, M, G suffix (powers of 1024). */
bool tool_parse_u64(const char *s, uint64_t *v);

#endif
