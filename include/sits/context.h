/* SPDX-License-Identifier: MIT */
/*
 * sits/context.h - opening libsits: which provider, where, and who hears messages.
 *
 * Part of the installed libsits API. Every call in every libsits header returns
 * 0 or a count on success and -errno on failure, never prints, never exits.
 */
#ifndef SITS_CONTEXT_H
#define SITS_CONTEXT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sits_ctx;

/* Which implementation stands behind the API. AUTO takes KERNEL when /dev/sits
 * answers, else USER. */
#define SITS_PROVIDER_AUTO	0
#define SITS_PROVIDER_KERNEL	1
#define SITS_PROVIDER_USER	2

/* Severity of a log message, as in syslog(3). */
#define SITS_LOG_ERR	3
#define SITS_LOG_WARN	4
#define SITS_LOG_INFO	6
#define SITS_LOG_DEBUG	7

/**
 * struct sits_open_opts - how to open a context.
 * @size: sizeof(struct sits_open_opts) of the caller's header
 * @flags: none defined; must be 0
 * @provider: SITS_PROVIDER_*
 * @run_dir: directory of the user provider's sockets; copied. NULL means
 *           $SITS_RUN_DIR, else /run/sits
 * @log: receives one line (no newline) per message, from any thread; may be NULL; must not call libsits.
 *       An ERR line says in words what the -errno of the failing call means,
 *       and what to do about it
 * @log_arg: first argument of @log; borrowed until sits_close()
 */
struct sits_open_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t provider;
	uint32_t reserved;
	const char *run_dir;
	void (*log)(void *log_arg, int severity, const char *line);
	void *log_arg;
};

/**
 * sits_open() - Open a context on a provider.
 * @opts: borrowed until return; NULL takes every default
 * @out: the new context; owned by the caller, freed with sits_close()
 *
 * Context: any thread. The context may be shared between threads.
 * Return: 0; -EINVAL for an unknown provider, flag or size; -ENODEV where
 * SITS_PROVIDER_KERNEL was asked for and /dev/sits does not answer, -EACCES where it may not be opened; -ENOMEM.
 */
int sits_open(const struct sits_open_opts *opts, struct sits_ctx **out);

/**
 * sits_close() - Close a context; NULL is allowed.
 * @ctx: taken. Objects made from it must have been destroyed before.
 */
void sits_close(struct sits_ctx *ctx);

/** sits_provider_name() - "kernel" or "user"; static storage. */
const char *sits_provider_name(const struct sits_ctx *ctx);

/** sits_run_dir() - the directory of the sockets in use; lives as long as @ctx. */
const char *sits_run_dir(const struct sits_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif
