/* SPDX-License-Identifier: MIT */
/*
 * channel_io.h - how a channel moves messages: io_uring, or plain system calls without it.
 *
 * io_uring: one multishot receive into a ring of small buffers stays armed, so a message costs its
 * receiver no system call of its own but the wait; sends complete inside the call that submits them.
 * The descriptor to poll is the ring's, else the socket's.
 */
#ifndef SITS_CHANNEL_IO_H
#define SITS_CHANNEL_IO_H

#include <liburing.h>

#include "libsits/wire.h"

/* Embedded in the channel; all functions but wait are called with the channel's lock held. */
struct sits_chio {
	struct sits_ctx *ctx;
	int sock;			/* borrowed */
	bool uring;
	bool recv_armed;
	struct io_uring ring;
	struct io_uring_buf_ring *buf_ring;	/* then the buffers, in one mapping */
	uint8_t *bufs;
	uint64_t next_send;
};

#pragma GCC visibility push(hidden)

/** sits_chio_init() - Begin to receive on a connected socket. @sock: borrowed until fini. */
int sits_chio_init(struct sits_chio *io, struct sits_ctx *ctx, int sock);

/** sits_chio_fini() - The socket has been shut down by the caller; nothing is in flight after it. */
void sits_chio_fini(struct sits_chio *io);

/** sits_chio_send() - As sits_wire_send(). */
int sits_chio_send(struct sits_chio *io, const void *msg, size_t len);

/** sits_chio_next() - Take the next message. @buf: SITS_WIRE_MAX bytes. Return: its length; 0 if there is
 * none now; -EPIPE at the end of the connection, again and again, the descriptor staying readable. */
int sits_chio_next(struct sits_chio *io, void *buf);

/** sits_chio_wait() - Wait for a message. Lock not held; one thread at a time. Return: 0; -errno. */
int sits_chio_wait(struct sits_chio *io, uint64_t timeout_ns);

/** sits_chio_fd() - Polls readable when next() has something. */
int sits_chio_fd(const struct sits_chio *io);

#pragma GCC visibility pop

#endif
