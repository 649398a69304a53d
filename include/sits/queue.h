/* SPDX-License-Identifier: MIT */
/*
 * sits/queue.h - the request path: a daemon's queue and a client's channel.
 *
 * A daemon creates a named queue, fetches requests from it and commits answers, a chunk at a
 * time. A client opens a channel to a queue, submits requests whose bytes lie in an arena it
 * shares with the other side, receives the stream of chunks and may cancel. Every request is
 * answered exactly once (its last chunk), also when either side dies.
 */
#ifndef SITS_QUEUE_H
#define SITS_QUEUE_H

#include <stdint.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sits_ctx;
struct sits_queue;
struct sits_channel;

#define SITS_QUEUE_NAME_MAX	32	/* with NUL; [A-Za-z0-9_.-], not starting with '.' */
#define SITS_REQUEST_MAX	(4u << 20)	/* bytes of one request */

/* ---------------------------------------------------------------- daemon */

/**
 * struct sits_queue_opts - what queue to create.
 * @depth: requests fetched or waiting, over all clients; one more is answered -EBUSY to its client
 * @per_client: the same for one client; at least 1, at most @depth
 * @max_clients: channels open at once
 * @mode: who may open a channel: permission bits of the socket or node, as chmod(2)
 * @chunk_backlog: bytes of uncollected answer kept per request before commit says -ENOBUFS
 */
struct sits_queue_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t depth;
	uint32_t per_client;
	uint32_t max_clients;
	uint32_t mode;
	uint32_t chunk_backlog;
	uint32_t reserved;
	const char *name;
};

/* Kinds of struct sits_queue_event. */
#define SITS_EVENT_REQUEST	1	/* a new request; must be ended with a COMMIT_LAST */
#define SITS_EVENT_CANCEL	2	/* the client cancelled it or died; still commit its end */

/**
 * struct sits_queue_event - what sits_queue_fetch() got.
 * @kind: SITS_EVENT_*
 * @req: the request's id, unique over the queue's life
 * @client: number of the client's channel, unique over the queue's life
 * @client_uid: @client_pid: the peer's credentials when it opened the channel
 * @data: @len: REQUEST only: the request's bytes, a private copy, valid until the next fetch
 * @deadline_ns: CLOCK_MONOTONIC time by which the client wants it ended; 0 means none. After
 *               it, the queue itself delivers a CANCEL event for the request
 */
struct sits_queue_event {
	uint32_t kind;
	uint32_t client_uid;
	uint32_t client_pid;
	uint32_t reserved;
	uint64_t req;
	uint64_t client;
	uint64_t deadline_ns;
	const void *data;
	size_t len;
};

/** sits_queue_create() - Create a queue. @out: freed with sits_queue_destroy().
 * A name left over from a dead daemon is taken over. Return: 0; -EADDRINUSE where a live daemon holds the
 * name; -EINVAL; -EACCES; -errno. */
int sits_queue_create(struct sits_ctx *ctx, const struct sits_queue_opts *opts, struct sits_queue **out);

/** sits_queue_destroy() - Answer everything left with -ESHUTDOWN, close, free; NULL is allowed.
 * Context: no other call on @queue may run. */
void sits_queue_destroy(struct sits_queue *queue);

/** sits_queue_close_intake() - Refuse new requests with -ESHUTDOWN from now on, and end those that were not
 * fetched so; those fetched go on. Context: any thread. */
void sits_queue_close_intake(struct sits_queue *queue);

/**
 * sits_queue_fetch() - Wait for the next event.
 * @timeout_ms: 0 polls, -1 waits for ever
 *
 * Connections, cancels, deadlines and answers that had to wait are handled in here: a thread should be
 * in it, or return to it soon.
 *
 * Context: one thread at a time; requests come round robin between clients.
 * Return: 1 with @ev filled; 0 on timeout or after sits_queue_wake(); -errno.
 */
int sits_queue_fetch(struct sits_queue *queue, struct sits_queue_event *ev, int timeout_ms);

/** sits_queue_wake() - Make a waiting fetch return 0. Context: any thread, and signal handlers. */
void sits_queue_wake(struct sits_queue *queue);

#define SITS_COMMIT_LAST	(1u << 0)	/* ends the request */

/**
 * sits_queue_commit() - Send one chunk of the answer to @req.
 * @data: copied; @len may be 0
 * @status: with COMMIT_LAST: 0 or the -errno that the client's receive will return
 *
 * Context: any thread, also beside a fetch. Never blocks on a client.
 * Return: 0; -ENOENT where @req is unknown or already ended (not an error after a cancel);
 * -EPIPE where the client is gone (with COMMIT_LAST it has ended nevertheless); -ENOBUFS where the client does
 * not collect (try later, or end the request: an end without data is always taken).
 */
int sits_queue_commit(struct sits_queue *queue, uint64_t req, const void *data, size_t len,
		      int status, uint32_t flags);

/** struct sits_queue_stats - counters since creation, and gauges. */
struct sits_queue_stats {
	uint64_t requests, answered, cancelled, refused_busy, bytes_in, bytes_out;
	uint32_t clients, pending;
};
void sits_queue_get_stats(struct sits_queue *queue, struct sits_queue_stats *stats);

/* ---------------------------------------------------------------- client */

/** sits_channel_open() - Connect to the queue @name. @arena_bytes: 0 means 1 MiB; at most 64 MiB.
 * Return: 0; -ETIMEDOUT where the daemon is stuck; -ENOENT or -ECONNREFUSED where no daemon serves it; -EACCES; -EBUSY at max_clients; -errno. */
int sits_channel_open(struct sits_ctx *ctx, const char *name, uint64_t arena_bytes,
		      struct sits_channel **out);

/** sits_channel_close() - Cancel what is outstanding and close; NULL is allowed.
 * Context: no other call on @ch may run. */
void sits_channel_close(struct sits_channel *ch);

/**
 * sits_channel_submit() - Send a request.
 * @data: copied into the arena
 * @timeout_ns: after this long the request is cancelled and ends with -ETIMEDOUT; 0 means never
 * @req: out: the request's number on this channel
 * Context: any thread, also beside one that receives.
 * Return: 0; -EMSGSIZE over SITS_REQUEST_MAX, or over what an arena of this size can take (three
 * quarters of it); -ENOBUFS where the arena is full or too many ends have not been received: receive
 * first; -EPIPE where the daemon is gone.
 */
int sits_channel_submit(struct sits_channel *ch, const void *data, size_t len,
			uint64_t timeout_ns, uint64_t *req);

/**
 * struct sits_chunk - a piece of an answer.
 * @data: @len: valid until the next sits_channel_recv() on the channel
 * @last: 1 if the request has ended with this chunk
 * @status: with @last: 0, or -errno: -EBUSY refused, -ECANCELED, -ETIMEDOUT, -EPIPE daemon gone,
 *          -ESHUTDOWN daemon draining, or the daemon's own
 */
struct sits_chunk {
	uint64_t req;
	const void *data;
	size_t len;
	int32_t status;
	uint32_t last;
};

/** sits_channel_recv() - Wait for the next chunk of any request (@timeout_ms as in fetch).
 * Context: one thread at a time, beside others that submit and cancel.
 * Return: 1; 0 on timeout; -EPIPE once the daemon is gone and every request's end was delivered; -errno. */
int sits_channel_recv(struct sits_channel *ch, struct sits_chunk *chunk, int timeout_ms);

/** sits_channel_cancel() - Ask for @req to end. Its last chunk still comes. Return: 0; -ENOENT. */
int sits_channel_cancel(struct sits_channel *ch, uint64_t req);

/** sits_channel_fd() - A descriptor that polls readable when recv has something; borrowed. */
int sits_channel_fd(struct sits_channel *ch);

#ifdef __cplusplus
}
#endif
#endif
