// SPDX-License-Identifier: MIT
/*
 * client.c - see client.h.
 */
#include "tools/sits/client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sits/context.h"
#include "sits/infer.h"
#include "sits/queue.h"
#include "tools/sits/cmd.h"

/* The library's last ERR line. */
static char last_error[1024];

/* As client_ctx() opened it. */
static struct sits_open_opts opened;

static void hear(void *cmd, int severity, const char *line)
{
	if (severity == SITS_LOG_ERR)
		snprintf(last_error, sizeof(last_error), "%s", line);
	if (getenv("SITS_DEBUG"))
		tool_error(cmd, "%s", line);
}

int client_ctx(const char *cmd, const char *provider, const char *run_dir, struct sits_ctx **ctx)
{
	struct sits_open_opts o = { .size = sizeof(o), .run_dir = run_dir, .log = hear, .log_arg = (void *)(uintptr_t)cmd };
	static const char *const name[] = { "auto", "kernel", "user" };
	int ret;

	while (provider && o.provider < 3 && strcmp(provider, name[o.provider]))
		o.provider++;
	if (o.provider == 3)
		return tool_usage(cmd, "unknown provider '%s': it is auto, kernel or user", provider);
	opened = o;
	ret = sits_open(&o, ctx);
	return ret ? tool_error(cmd, "%s", last_error[0] ? last_error : strerror(-ret)) : 0;
}

char *client_said(void)
{
	return last_error;
}

static bool on_kernel(const struct sits_ctx *ctx)
{
	return !strcmp(sits_provider_name(ctx), "kernel");
}

/* The module may be there, and the daemon on sockets: it was told to, or may not make queues of the module. */
static int open_on_sockets(struct sits_ctx **ctx, const char *queue, uint64_t arena_bytes, struct sits_channel **ch)
{
	struct sits_open_opts o = opened;
	struct sits_ctx *other;
	int ret;

	o.provider = SITS_PROVIDER_USER;
	ret = sits_open(&o, &other);
	if (ret)
		return ret;
	ret = sits_channel_open(other, queue, arena_bytes, ch);
	if (ret) {
		sits_close(other);
		return ret;
	}
	sits_close(*ctx);
	*ctx = other;
	return 0;
}

int client_open(struct sits_ctx **ctx, const char *queue, uint64_t arena_bytes, struct sits_channel **ch)
{
	int ret;

	last_error[0] = '\0';
	ret = sits_channel_open(*ctx, queue, arena_bytes, ch);
	if (ret == -ENOENT && opened.provider == SITS_PROVIDER_AUTO && on_kernel(*ctx))
		ret = open_on_sockets(ctx, queue, arena_bytes, ch);
	return ret;
}

const char *client_open_words(struct sits_ctx *ctx, const char *queue, int err, char *buf, size_t len)
{
	const char *dir = sits_run_dir(ctx);
	char where[512], closed[64] = "";

	/* Then it may be there all the same. */
	if (opened.provider == SITS_PROVIDER_AUTO && !on_kernel(ctx) && faccessat(AT_FDCWD, SITS_DEV_PATH, R_OK | W_OK, AT_EACCESS) &&
	    errno != ENOENT)
		snprintf(closed, sizeof(closed), "; %s can't be opened: %s", SITS_DEV_PATH, strerror(errno));
	snprintf(where, sizeof(where), "%s%s%s", on_kernel(ctx) ? "/dev/sits" : "",
		 on_kernel(ctx) && opened.provider == SITS_PROVIDER_AUTO ? " or " : "",
		 on_kernel(ctx) && opened.provider != SITS_PROVIDER_AUTO ? "" : dir);
	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
		snprintf(buf, len, "no daemon serves queue '%s' in %s; start one with 'systemctl start sitsd' or 'sitsd --config "
			 "FILE', or say where it is with --run-dir and --queue%s", queue, where, closed);
		break;
	case -EACCES:
		snprintf(buf, len, "queue '%s' in %s: permission denied; who may connect is queue.mode in sitsd.yaml", queue, where);
		break;
	case -EBUSY:
		snprintf(buf, len, "queue '%s' in %s: the daemon has as many clients as it takes (queue.max_clients)", queue, where);
		break;
	case -EINVAL:
		snprintf(buf, len, "'%s' is not a queue name", queue);
		break;
	default:
		if (last_error[0])	/* it names the queue */
			snprintf(buf, len, "%s", last_error);
		else
			snprintf(buf, len, "queue '%s' in %s: %s", queue, where, strerror(-err));
	}
	return buf;
}

const char *client_words(int status)
{
	switch (status) {
	case -EBUSY:
		return "the daemon is busy: too many requests are waiting (queue.depth, queue.per_client); try again";
	case -ECANCELED:
		return "cancelled";
	case -ETIMEDOUT:
		return "not done within the time given (--timeout)";
	case -EPIPE:
		return "the daemon went away";
	case -ESHUTDOWN:
		return "the daemon is shutting down";
	case -ENOBUFS:
		return "the answer was not collected fast enough, and the daemon ended it";
	default:
		return strerror(-status);
	}
}

static int submit_info(struct sits_channel *ch, int timeout_ms, uint64_t *req)
{
	struct sits_infer_builder *b = NULL;
	const void *bytes;
	size_t len;
	int ret = sits_infer_builder_create(&b);

	if (ret)
		return ret;
	sits_infer_builder_hdr(b)->op = SITS_INFER_OP_INFO;
	ret = sits_infer_builder_bytes(b, &bytes, &len);
	if (!ret)
		ret = sits_channel_submit(ch, bytes, len, (uint64_t)timeout_ms * 1000000, req);
	sits_infer_builder_destroy(b);
	return ret;
}

json_t *client_info(struct sits_channel *ch, int timeout_ms, const char **why)
{
	struct sits_infer_chunk_hdr hdr;
	struct sits_chunk chunk;
	json_t *info = NULL;
	uint64_t req;
	int ret = submit_info(ch, timeout_ms, &req);

	while (!ret) {
		/* The daemon's own deadline ends the request; the margin is for one that hangs. */
		ret = sits_channel_recv(ch, &chunk, timeout_ms + 500);
		if (!ret)
			ret = -ETIMEDOUT;
		if (ret < 0)
			break;
		ret = 0;
		if (chunk.req != req)
			continue;
		if (chunk.len >= sizeof(hdr)) {
			memcpy(&hdr, chunk.data, sizeof(hdr));
			if (hdr.type == SITS_CHUNK_JSON && !info)
				info = json_loadb((const char *)chunk.data + sizeof(hdr), chunk.len - sizeof(hdr), 0, NULL);
		}
		if (chunk.last) {
			ret = chunk.status;
			break;
		}
	}
	if (ret || !json_is_object(info)) {
		json_decref(info);
		info = NULL;
		*why = ret == -ETIMEDOUT ? "the daemon is there, but does not answer: it is stopped or hangs; see its log" :
			ret ? client_words(ret) : "the daemon's answer is not understood";
	}
	return info;
}
