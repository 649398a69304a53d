/* SPDX-License-Identifier: MIT */
/*
 * client.h - what `sits run` and `sits info` share: a channel to sitsd, and INFO over it.
 */
#ifndef SITS_TOOLS_CLIENT_H
#define SITS_TOOLS_CLIENT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct sits_channel;
struct sits_ctx;

/** client_ctx() - Like tool_open(), but ERR lines of the library are kept for client_open_words() in place of shown.
 * ($SITS_DEBUG still shows all.) Return: 0, or an exit status after a message. */
int client_ctx(const char *cmd, const char *provider, const char *run_dir, struct sits_ctx **ctx);

/** client_said() - The library's last ERR line in contexts of client_ctx(), as a buffer that may be emptied; static storage. */
char *client_said(void);

/** client_open() - Connect to sitsd's queue. @arena_bytes: as for sits_channel_open(). Return: 0; -errno, for
 * client_open_words().
 * @ctx: of client_ctx(); where the choice was left to libsits and the daemon turns out to be on the other provider, it is
 * closed, and another one takes its place. */
int client_open(struct sits_ctx **ctx, const char *queue, uint64_t arena_bytes, struct sits_channel **ch);

/** client_open_words() - Why it failed and what to do, without a newline. @buf: @len bytes. Return: @buf. */
const char *client_open_words(struct sits_ctx *ctx, const char *queue, int err, char *buf, size_t len);

/** client_words() - What the status that ends a request means to a person; static storage. */
const char *client_words(int status);

/** client_info() - Ask for INFO. @why: out: words on failure, static storage. Return: the object (a new reference); NULL. */
json_t *client_info(struct sits_channel *ch, int timeout_ms, const char **why);

#endif
