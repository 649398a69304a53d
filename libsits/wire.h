/* SPDX-License-Identifier: MIT */
/*
 * wire.h - what a queue and a channel of the user provider say to each other.
 *
 * One SOCK_SEQPACKET connection and one arena: a memfd of the client's, sealed against
 * shrinking and growing, whose descriptor travels with HELLO.
 *
 *	0        4096                   tx_off + tx_bytes = rx_off            arena_bytes
 *	| ctl    | tx: requests         | rx: answers                         |
 *
 * Both rings hold contiguous pieces. A position counts bytes from the start of the connection;
 * the piece at position p lies at p modulo the ring's size, and a piece that would not fit before
 * the end starts at the beginning, the bytes in between counting as used.
 *
 *	client                                          daemon
 *	HELLO (arena) ------------------------------->
 *	       <------------------------------- WELCOME
 *	SUBMIT (where in tx) ------------------------>  at fetch: copied out of the arena once,
 *	                                                then ctl->tx_done moves on
 *	       <--------------- CHUNK (where in rx), ..., CHUNK with LAST
 *	at the next recv: ctl->rx_done moves on
 *	KICK, where the daemon has set ctl->rx_wait ->  sends what it had to keep back
 *	CANCEL ------------------------------------->
 *
 * Every message is a struct below, whole, in the byte order of the machine that both sides share.
 * A message of another size, an unknown type, a value out of range: the connection is closed.
 */
#ifndef SITS_WIRE_H
#define SITS_WIRE_H

#include "libsits/internal.h"

#define SITS_WIRE_MAGIC		0x53544953u	/* "SITS" */
#define SITS_WIRE_VERSION	1u
#define SITS_WIRE_MAX		64u		/* bytes of the longest message */

#define SITS_ARENA_CTL		4096u		/* bytes at the front of an arena */
#define SITS_ARENA_MIN		(64u << 10)
#define SITS_ARENA_MAX		(64u << 20)
#define SITS_ARENA_DEFAULT	(1u << 20)
#define SITS_ARENA_RX_MIN	(16u << 10)	/* a piece of 4 KiB fits wherever the ring stands */
#define SITS_ARENA_ALIGN	8u		/* of a piece */

enum sits_wire_type {
	SITS_WIRE_HELLO = 1,
	SITS_WIRE_WELCOME,
	SITS_WIRE_SUBMIT,
	SITS_WIRE_CANCEL,
	SITS_WIRE_KICK,
	SITS_WIRE_CHUNK,
};

#define SITS_WIRE_LAST	(1u << 0)	/* CHUNK: the request has ended */
#define SITS_WIRE_MORE	(1u << 1)	/* CHUNK: the next message goes on with the same chunk */

struct sits_wire_hdr {
	uint16_t type;
	uint16_t flags;
	uint32_t size;		/* of the whole message */
};

struct sits_wire_hello {
	struct sits_wire_hdr hdr;
	uint32_t magic;
	uint32_t version;
	uint64_t arena_bytes;
	uint64_t tx_off, tx_bytes;
	uint64_t rx_off, rx_bytes;
};

struct sits_wire_welcome {
	struct sits_wire_hdr hdr;
	int32_t status;		/* 0, or why the channel is refused */
	uint32_t version;
	uint32_t max_outstanding;	/* requests whose end has not been received; more are hostile */
	uint32_t reserved;
};

struct sits_wire_submit {
	struct sits_wire_hdr hdr;
	uint64_t req;		/* the client's number: larger than every one before */
	uint64_t off;		/* in the arena, within tx */
	uint64_t len;
	uint64_t tx_end;	/* position after the piece; comes back in ctl->tx_done */
	uint64_t deadline_ns;	/* CLOCK_MONOTONIC, or 0 */
};

struct sits_wire_cancel {
	struct sits_wire_hdr hdr;
	uint64_t req;
};

struct sits_wire_kick {
	struct sits_wire_hdr hdr;
};

struct sits_wire_chunk {
	struct sits_wire_hdr hdr;
	uint64_t req;
	uint64_t off;		/* in the arena, within rx; 0 where len is 0 */
	uint32_t len;
	int32_t status;
	uint64_t rx_end;	/* position after the piece; goes to ctl->rx_done once it is read */
};

/* Shared memory: each word is written by one side, but rx_wait, and believed by none. */
struct sits_wire_ctl {
	uint64_t tx_done;	/* daemon */
	uint8_t pad0[56];
	uint64_t rx_done;	/* client */
	uint8_t pad1[56];
	uint32_t rx_wait;	/* daemon sets, client clears and then sends KICK */
	uint8_t pad2[60];
};

_Static_assert(sizeof(struct sits_wire_hello) <= SITS_WIRE_MAX, "longest message");
_Static_assert(sizeof(struct sits_wire_submit) <= SITS_WIRE_MAX, "longest message");
_Static_assert(sizeof(struct sits_wire_chunk) <= SITS_WIRE_MAX, "longest message");
_Static_assert(sizeof(struct sits_wire_ctl) == 192, "shared layout");

#pragma GCC visibility push(hidden)

/** sits_wire_hdr() - The header of a message of @size bytes. */
static inline struct sits_wire_hdr sits_wire_hdr(uint16_t type, size_t size)
{
	return (struct sits_wire_hdr){ .type = type, .size = (uint32_t)size };
}

/** sits_wire_send() - Send one message, never blocking, never a signal. Return: 0; -EAGAIN; -EPIPE. */
int sits_wire_send(int sock, const void *msg, size_t len);

/** sits_wire_send_fd() - The same with one descriptor; blocks as the socket does. */
int sits_wire_send_fd(int sock, const void *msg, size_t len, int fd);

/** sits_wire_check_name() - A queue's name. Return: 0; -EINVAL. */
int sits_wire_check_name(const char *name);

/** sits_wire_path() - The path of @name's socket, with @suffix. Return: 0; -ENAMETOOLONG with a log line. */
int sits_wire_path(struct sits_ctx *ctx, const char *name, const char *suffix, char *path,
		   size_t path_len);

/** sits_wire_want_io_uring() - false where SITS_NO_IO_URING is set in the environment. */
bool sits_wire_want_io_uring(void);

/**
 * struct sits_ring - positions in one of the arena's rings, as its writer sees them.
 * @bytes: size of the ring, a multiple of SITS_ARENA_ALIGN
 * @head: position after the last piece
 * @done: position up to which the reader has finished
 */
struct sits_ring {
	uint64_t bytes;
	uint64_t head;
	uint64_t done;
};

/** sits_ring_place() - Where a piece of @len bytes goes: offset in the ring to @off, position after it to
 * @end. Return: false where there is no room now. Nothing is changed: the caller sets head. */
bool sits_ring_place(const struct sits_ring *ring, uint64_t len, uint64_t *off, uint64_t *end);

/** sits_ring_set_done() - Take over what the reader says. Return: false where that can't be true. */
bool sits_ring_set_done(struct sits_ring *ring, uint64_t done);

#pragma GCC visibility pop

#endif
