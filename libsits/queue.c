// SPDX-License-Identifier: MIT
/*
 * queue.c - the public functions of queues and channels: arguments, then the provider.
 */
#include "libsits/wire.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX (1u << 20)
#define CLIENTS_MAX (1u << 16)

static int check_opts(struct sits_ctx *ctx, const struct sits_queue_opts *o)
{
	if (o->flags || o->reserved)
		return -EINVAL;
	if (sits_wire_check_name(o->name)) {
		sits_log(ctx, SITS_LOG_ERR,
			 "queue name '%.40s': 1 to %d characters of A-Z a-z 0-9 _ . -, not starting with '.'",
			 o->name ? o->name : "", SITS_QUEUE_NAME_MAX - 1);
		return -EINVAL;
	}
	if (!o->depth || o->depth > DEPTH_MAX || !o->per_client || o->per_client > o->depth ||
	    !o->max_clients || o->max_clients > CLIENTS_MAX || o->mode & ~0777u ||
	    !o->chunk_backlog) {
		sits_log(ctx, SITS_LOG_ERR,
			 "queue '%s': depth %u (1 to %u), per_client %u (1 to depth), max_clients %u (1 to %u), mode %#o, chunk_backlog %u (1 up): out of range",
			 o->name, o->depth, DEPTH_MAX, o->per_client, o->max_clients, CLIENTS_MAX,
			 o->mode, o->chunk_backlog);
		return -EINVAL;
	}
	return 0;
}

int sits_queue_create(struct sits_ctx *ctx, const struct sits_queue_opts *opts,
		      struct sits_queue **out)
{
	struct sits_queue_opts o;
	int ret;

	if (!ctx || !opts || !out)
		return -EINVAL;
	ret = sits_opts_copy(&o, sizeof(o), opts, sizeof(o));
	if (!ret)
		ret = check_opts(ctx, &o);
	return ret ? ret : ctx->provider->queue_create(ctx, &o, out);
}

void sits_queue_destroy(struct sits_queue *queue)
{
	if (queue)
		queue->ops->destroy(queue);
}

void sits_queue_close_intake(struct sits_queue *queue)
{
	queue->ops->close_intake(queue);
}

int sits_queue_fetch(struct sits_queue *queue, struct sits_queue_event *ev, int timeout_ms)
{
	if (timeout_ms < -1)
		return -EINVAL;
	return queue->ops->fetch(queue, ev, timeout_ms);
}

void sits_queue_wake(struct sits_queue *queue)
{
	queue->ops->wake(queue);
}

int sits_queue_commit(struct sits_queue *queue, uint64_t req, const void *data, size_t len,
		      int status, uint32_t flags)
{
	if (flags & ~SITS_COMMIT_LAST || status > 0 || len > UINT32_MAX || (len && !data))
		return -EINVAL;
	if (status && !(flags & SITS_COMMIT_LAST))
		return -EINVAL;
	return queue->ops->commit(queue, req, data, len, status, flags);
}

void sits_queue_get_stats(struct sits_queue *queue, struct sits_queue_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	queue->ops->get_stats(queue, stats);
}

int sits_channel_open(struct sits_ctx *ctx, const char *name, uint64_t arena_bytes,
		      struct sits_channel **out)
{
	if (!ctx || !out)
		return -EINVAL;
	if (sits_wire_check_name(name)) {
		sits_log(ctx, SITS_LOG_ERR,
			 "queue name '%.40s': 1 to %d characters of A-Z a-z 0-9 _ . -, not starting with '.'",
			 name ? name : "", SITS_QUEUE_NAME_MAX - 1);
		return -EINVAL;
	}
	return ctx->provider->channel_open(ctx, name, arena_bytes, out);
}

void sits_channel_close(struct sits_channel *ch)
{
	if (ch)
		ch->ops->close(ch);
}

int sits_channel_submit(struct sits_channel *ch, const void *data, size_t len,
			uint64_t timeout_ns, uint64_t *req)
{
	if (!len || !data || !req)
		return -EINVAL;
	if (len > SITS_REQUEST_MAX)
		return -EMSGSIZE;
	return ch->ops->submit(ch, data, len, timeout_ns, req);
}

int sits_channel_recv(struct sits_channel *ch, struct sits_chunk *chunk, int timeout_ms)
{
	if (timeout_ms < -1)
		return -EINVAL;
	return ch->ops->recv(ch, chunk, timeout_ms);
}

int sits_channel_cancel(struct sits_channel *ch, uint64_t req)
{
	return ch->ops->cancel(ch, req);
}

int sits_channel_fd(struct sits_channel *ch)
{
	return ch->ops->fd(ch);
}
