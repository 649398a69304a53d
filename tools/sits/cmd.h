/* SPDX-License-Identifier: MIT */
/*
 * cmd.h - the table of subcommands of `sits`, and what they share.
 *
 * A subcommand is cmd_<name>.c with one struct sits_cmd; main.c lists them. A command returns its
 * exit status: 0 done, 1 failed (a message on stderr says why), 2 wrong usage, 128 + N stopped by signal N.
 */
#ifndef SITS_TOOLS_CMD_H
#define SITS_TOOLS_CMD_H

#include <stdbool.h>
#include <stdint.h>

struct json_t;
struct sits_ctx;
struct sits_key;
struct sits_sealed_info;

struct sits_cmd {
	const char *name;
	const char *summary;		/* one line for `sits --help` */
	int (*run)(int argc, char **argv);	/* argv[0] is the subcommand's name */
};

extern const struct sits_cmd sits_cmd_seal, sits_cmd_verify, sits_cmd_inspect, sits_cmd_rekey,
	sits_cmd_key, sits_cmd_run, sits_cmd_info, sits_cmd_stat, sits_cmd_quantize, sits_cmd_pack,
	sits_cmd_perplexity;

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
/** tool_progress_quiet() - The same without a bar. */
int tool_progress_quiet(void *arg, uint64_t done_bytes, uint64_t total_bytes);
/** tool_progress_files() - The bar for work on files that take no time each; nothing where stderr is no terminal. */
void tool_progress_files(const char *label, unsigned int done, unsigned int total);
/** tool_progress_count() - "LABEL DONE of TOTAL" on stderr, not often; nothing where that is no terminal. */
void tool_progress_count(const char *label, uint64_t done, uint64_t total);
/** tool_progress_end() - Remove the bar; messages do so by themselves. */
void tool_progress_end(void);
/** tool_signal() - The signal that came since tool_catch_signals(), or 0. */
int tool_signal(void);

/** tool_parse_u64() - All of @s as a number, with an optional K, M, G suffix (powers of 1024). */
bool tool_parse_u64(const char *s, uint64_t *v);

/** tool_parse_number() - The same without a suffix: for what is counted in no unit. */
bool tool_parse_number(const char *s, uint64_t *v);

/** tool_threads() - The argument of --threads. Return: 0; 2, after a message. */
int tool_threads(const char *cmd, const char *arg, uint32_t *threads);

/** tool_wait() - The argument of --wait, in seconds. Return: 0; 2, after a message. */
int tool_wait(const char *cmd, const char *arg, uint32_t *seconds);

/** tool_bytes() - @n with a unit, for people. @buf: 32 bytes. Return: @buf. */
const char *tool_bytes(uint64_t n, char *buf);

/** tool_print_safe() - @s without the control characters that a terminal would obey. @buf: @len bytes. Return: @buf. */
const char *tool_print_safe(const char *s, char *buf, unsigned int len);

/**
 * tool_bad_option() - A usage error for what getopt_long() refused; its option string starts with ':'.
 * @c: what it returned: '?' or ':'
 * Return: 2.
 */
int tool_bad_option(const char *cmd, int c, char **argv);

/**
 * tool_fail() - A library call failed. Its ERR log line is on stderr already; without one, say "@what: error".
 * @err: the -errno
 * @json: also print {"file": @what, "ok": false, ...} on stdout
 * Return: the exit status: 1, or 128 + N where signal N stopped it.
 */
int tool_fail(const char *cmd, const char *what, int err, bool json);

/** tool_fail_because() - The same, in words of the caller's, for what the library did not log. */
int tool_fail_because(const char *cmd, const char *what, int err, const char *words, bool json);

/** tool_failure() - As tool_fail(), for one of many things: the object, to be printed with others, in place of the status. */
struct json_t *tool_failure(const char *cmd, const char *what, int err);

/** tool_protect() - No core dump, no ptrace by others of the same user. Before keys are in memory. */
void tool_protect(void);

/** tool_key() - Open the key @spec; NULL is a usage error that names @option. Return: 0, or an exit status after a message. */
int tool_key(const char *cmd, struct sits_ctx *ctx, const char *option, const char *spec, bool json,
	     struct sits_key **key);

/** tool_with_key() - Open libsits and the key @spec of --key, do @work with them, close both. Return: @work's exit status; or
 * one after a message. */
int tool_with_key(const char *cmd, const char *spec, bool json,
		  int (*work)(void *arg, struct sits_ctx *ctx, const struct sits_key *key), void *arg);

/** tool_key_id() - The id of @key in hexadecimal. @text: 2 * SITS_KEY_ID_LEN + 1 bytes. Return: @text. */
const char *tool_key_id(const struct sits_key *key, char *text);

/** tool_json_number() - JSON integers of jansson are signed; what is beyond them is given as text rather than wrongly.
 * Return: a new reference. */
struct json_t *tool_json_number(uint64_t v);

/** tool_json_text() - @s, or null where it is no UTF-8. Return: a new reference. */
struct json_t *tool_json_text(const char *s);
/** tool_json_real() - @v, or null where it is not finite, which JSON has no number for. Return: a new reference. */
struct json_t *tool_json_real(double v);

/** tool_print_info() - What a sealed file says of itself, on stdout: as lines, or as a JSON object with "ok": true. */
void tool_print_info(const char *path, const struct sits_sealed_info *info, bool json);

#endif
