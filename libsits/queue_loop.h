/* SPDX-License-Identifier: MIT */
/*
 * queue_loop.h - the event loop of a daemon's queue: accepts connections and receives messages.
 *
 * Two engines behind one set of functions: io_uring (multishot accept, one receive in
 * flight per connection, everything rearmed by the same system call that waits), and poll(2) where
 * io_uring is not to be had. The loop knows connections and messages; what they mean is the queue's.
 */
#ifndef SITS_QUEUE_LOOP_H
#define SITS_QUEUE_LOOP_H

#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "libsits/wire.h"

#define SITS_CONN_FDS 2		/* descriptors taken from one message; the kernel drops the rest */

/*
 * One connection; embedded in the queue's client. The queue allocates it and frees it in the
 * loop's closed(), never before. All fields belong to the loop, under the queue's lock; the
 * queue reads @fd and @gone, and sets the latter by sits_loop_drop() alone.
 */
struct sits_conn {
	TAILQ_ENTRY(sits_conn) link;
	TAILQ_ENTRY(sits_conn) todo;
	int fd;			/* closed by the loop, before closed() */
	bool gone;		/* shut down; closed() follows once nothing is in flight */
	bool on_todo;
	bool want_write;
	bool recv_armed, write_armed;
	struct msghdr msg;
	struct iovec iov;
	uint8_t buf[SITS_WIRE_MAX + 8];	/* longer than any message, so a longer one shows */
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(SITS_CONN_FDS * sizeof(int))];
};

/**
 * struct sits_loop_handler - what the loop calls, with the queue's lock held.
 * @accepted: a new connection; @fd is taken
 * @message: @len bytes lie in conn->buf; @fds: @nr_fds: taken; @truncated: the kernel had to drop part
 * @eof: the peer has closed, or the connection has failed, or the loop ends: drop it
 * @writable: after sits_loop_want_write()
 * @closed: the connection is closed and forgotten; free it
 */
struct sits_loop_handler {
	void (*accepted)(void *arg, int fd);
	void (*message)(void *arg, struct sits_conn *conn, size_t len, const int *fds, int nr_fds,
			bool truncated);
	void (*eof)(void *arg, struct sits_conn *conn);
	void (*writable)(void *arg, struct sits_conn *conn);
	void (*closed)(void *arg, struct sits_conn *conn);
};

TAILQ_HEAD(sits_conn_list, sits_conn);

struct sits_loop_engine;

/* Embedded in the queue; guarded by its lock but for @wake_fd, which is constant. */
struct sits_loop {
	struct sits_ctx *ctx;
	const struct sits_loop_engine *engine;
	void *engine_data;
	const struct sits_loop_handler *handler;
	void *arg;
	struct sits_conn_list conns;
	struct sits_conn_list todo;	/* to be armed, or to be closed */
	int listen_fd;			/* borrowed */
	int wake_fd;
	bool stopping;			/* no more accepts */
	uint64_t accept_after_ns;	/* out of descriptors: try again then; 0: now */
};

/**
 * struct sits_loop_engine - one way to wait.
 * @turn: arm what is on the todo list, wait with @lock released, call the handler
 * @drain: bring every operation in flight home; afterwards nothing touches a connection
 */
struct sits_loop_engine {
	const char *name;
	int (*init)(struct sits_loop *loop);
	void (*fini)(struct sits_loop *loop);
	int (*turn)(struct sits_loop *loop, pthread_mutex_t *lock, uint64_t timeout_ns);
	void (*drain)(struct sits_loop *loop, pthread_mutex_t *lock);
};

#define SITS_LOOP_FOREVER UINT64_MAX

#pragma GCC visibility push(hidden)

extern const struct sits_loop_engine sits_loop_uring;
extern const struct sits_loop_engine sits_loop_poll;

/** sits_loop_init() - Start a loop on a listening socket. @listen_fd: borrowed until fini. */
int sits_loop_init(struct sits_loop *loop, struct sits_ctx *ctx, int listen_fd,
		   const struct sits_loop_handler *handler, void *arg);

/** sits_loop_fini() - Call eof() for each connection, wait for what is in flight, then closed() for each. */
void sits_loop_fini(struct sits_loop *loop, pthread_mutex_t *lock);

/** sits_loop_add() - Begin to receive on @conn, whose fd is set. */
void sits_loop_add(struct sits_loop *loop, struct sits_conn *conn);

/** sits_loop_drop() - Shut @conn down now; closed() is called in a later turn. Any thread, lock held. */
void sits_loop_drop(struct sits_loop *loop, struct sits_conn *conn);

/** sits_loop_want_write() - Have writable() called once it can be written. Any thread, lock held. */
void sits_loop_want_write(struct sits_loop *loop, struct sits_conn *conn);

/** sits_loop_turn() - Wait for events up to @timeout_ns and handle them. @lock: held; released while
 * waiting. Return: 0, also on a timeout, a signal or a wake; -errno. */
int sits_loop_turn(struct sits_loop *loop, pthread_mutex_t *lock, uint64_t timeout_ns);

/** sits_loop_wake() - End a wait. Any thread, signal handlers, no lock needed. */
void sits_loop_wake(struct sits_loop *loop);

/* For the engines. */
void sits_loop_prepare_recv(struct sits_conn *conn);
void sits_loop_received(struct sits_loop *loop, struct sits_conn *conn, ssize_t res);
void sits_loop_accepted(struct sits_loop *loop, int res);
void sits_loop_clear_wake(struct sits_loop *loop);
void sits_loop_to_do(struct sits_loop *loop, struct sits_conn *conn);
bool sits_loop_close_if_idle(struct sits_loop *loop, struct sits_conn *conn);
bool sits_loop_may_accept(const struct sits_loop *loop);

#pragma GCC visibility pop

#endif
