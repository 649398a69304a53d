// SPDX-License-Identifier: MIT
/*
 * queue_loop_uring.c - the event loop on io_uring.
 *
 * The ring is used by whichever thread runs a turn, and threads may take turns: so no
 * SINGLE_ISSUER and no COOP_TASKRUN, whose completions wait for the thread that submitted. A thread
 * that ends has its operations cancelled by the kernel; they come back with -ECANCELED and
 * are armed again.
 */
#include "libsits/queue_loop.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define SQ_ENTRIES 256
#define CQ_ENTRIES 4096
#define DRAIN_LIMIT_NS (10 * SITS_NSEC_PER_SEC)

/* Low bits of user_data beside a connection's address, or alone. */
enum tag { TAG_RECV = 1, TAG_WRITE, TAG_ACCEPT, TAG_WAKE, TAG_IGNORE, TAG_MASK = 7 };

_Static_assert(_Alignof(struct sits_conn) > TAG_MASK, "tags go into the address");

struct uring {
	struct io_uring ring;
	bool accept_armed, wake_armed;
	bool accept_once;	/* a kernel without multishot accept */
};

/* What one turn relies on: waits with a timeout that need no entry of their own (5.11), and
 * completions that are never dropped (5.5). */
#define NEEDED (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP)

static int uring_init(struct sits_loop *loop)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP, .cq_entries = CQ_ENTRIES,
	};
	struct uring *u = calloc(1, sizeof(*u));
	int ret;

	if (!u)
		return -ENOMEM;
	ret = io_uring_queue_init_params(SQ_ENTRIES, &u->ring, &params);
	if (ret) {
		free(u);
		return ret;
	}
	if ((params.features & NEEDED) != NEEDED) {
		io_uring_queue_exit(&u->ring);
		free(u);
		return -ENOSYS;
	}
	io_uring_ring_dontfork(&u->ring);
	loop->engine_data = u;
	return 0;
}

static void uring_fini(struct sits_loop *loop)
{
	struct uring *u = loop->engine_data;

	io_uring_queue_exit(&u->ring);
	free(u);
}

/* A free entry; where the ring is full, what is in it is submitted first. */
static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (sqe)
		return sqe;
	io_uring_submit(&u->ring);
	return io_uring_get_sqe(&u->ring);
}

static void tag_sqe(struct io_uring_sqe *sqe, struct sits_conn *conn, enum tag tag)
{
	io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)conn | tag);
}

static void arm_shared(struct sits_loop *loop, struct uring *u)
{
	struct io_uring_sqe *sqe;

	if (!u->wake_armed && (sqe = get_sqe(u))) {
		io_uring_prep_poll_multishot(sqe, loop->wake_fd, POLLIN);
		tag_sqe(sqe, NULL, TAG_WAKE);
		u->wake_armed = true;
	}
	if (!u->accept_armed && sits_loop_may_accept(loop) && (sqe = get_sqe(u))) {
		if (u->accept_once)
			io_uring_prep_accept(sqe, loop->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		else
			io_uring_prep_multishot_accept(sqe, loop->listen_fd, NULL, NULL,
						       SOCK_CLOEXEC);
		tag_sqe(sqe, NULL, TAG_ACCEPT);
		u->accept_armed = true;
	}
}

/* Returns false where the ring took no more: the rest stays on the list. */
static bool arm_conn(struct uring *u, struct sits_conn *conn)
{
	struct io_uring_sqe *sqe;

	if (!conn->recv_armed) {
		sqe = get_sqe(u);
		if (!sqe)
			return false;
		sits_loop_prepare_recv(conn);
		io_uring_prep_recvmsg(sqe, conn->fd, &conn->msg, MSG_CMSG_CLOEXEC);
		tag_sqe(sqe, conn, TAG_RECV);
		conn->recv_armed = true;
	}
	if (conn->want_write && !conn->write_armed) {
		sqe = get_sqe(u);
		if (!sqe)
			return false;
		io_uring_prep_poll_add(sqe, conn->fd, POLLOUT);
		tag_sqe(sqe, conn, TAG_WRITE);
		conn->write_armed = true;
	}
	return true;
}

static void arm_all(struct sits_loop *loop, struct uring *u)
{
	struct sits_conn *conn;

	arm_shared(loop, u);
	while ((conn = TAILQ_FIRST(&loop->todo))) {
		if (conn->gone) {
			if (sits_loop_close_if_idle(loop, conn))
				continue;
		} else if (!arm_conn(u, conn)) {
			return;
		}
		conn->on_todo = false;
		TAILQ_REMOVE(&loop->todo, conn, todo);
	}
}

static void complete_accept(struct sits_loop *loop, struct uring *u, const struct io_uring_cqe *cqe)
{
	if (!(cqe->flags & IORING_CQE_F_MORE))
		u->accept_armed = false;
	if (cqe->res == -EINVAL && !u->accept_once)
		u->accept_once = true;
	else
		sits_loop_accepted(loop, cqe->res);
}

static void complete(struct sits_loop *loop, struct uring *u, const struct io_uring_cqe *cqe)
{
	uint64_t data = cqe->user_data;
	struct sits_conn *conn = (struct sits_conn *)(uintptr_t)(data & ~(uint64_t)TAG_MASK);

	switch (data & TAG_MASK) {
	case TAG_ACCEPT:
		complete_accept(loop, u, cqe);
		return;
	case TAG_WAKE:
		if (!(cqe->flags & IORING_CQE_F_MORE))
			u->wake_armed = false;
		sits_loop_clear_wake(loop);
		return;
	case TAG_RECV:
		conn->recv_armed = false;
		sits_loop_received(loop, conn, cqe->res);
		break;
	case TAG_WRITE:
		conn->write_armed = false;
		conn->want_write = false;
		if (!conn->gone)
			loop->handler->writable(loop->arg, conn);
		break;
	default:
		return;
	}
	sits_loop_to_do(loop, conn);
}

static void complete_all(struct sits_loop *loop, struct uring *u)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&u->ring, &cqe)) {
		complete(loop, u, cqe);
		io_uring_cqe_seen(&u->ring, cqe);
	}
}

static int uring_turn(struct sits_loop *loop, pthread_mutex_t *lock, uint64_t timeout_ns)
{
	struct uring *u = loop->engine_data;
	struct __kernel_timespec ts = {
		.tv_sec = (long long)(timeout_ns / SITS_NSEC_PER_SEC),
		.tv_nsec = (long long)(timeout_ns % SITS_NSEC_PER_SEC),
	};
	struct io_uring_cqe *cqe;
	int ret;

	arm_all(loop, u);
	pthread_mutex_unlock(lock);
	ret = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1,
					       timeout_ns == SITS_LOOP_FOREVER ? NULL : &ts, NULL);
	pthread_mutex_lock(lock);
	complete_all(loop, u);
	if (ret == -ETIME || ret == -EINTR || ret == -EAGAIN || ret == -EBUSY || ret >= 0)
		return 0;
	return ret;
}

static bool in_flight(const struct sits_loop *loop, const struct uring *u)
{
	return !TAILQ_EMPTY(&loop->conns) || u->accept_armed || u->wake_armed;
}

/* Memory that an operation in flight may still write must outlive it, so this waits; a thread that
 * submitted one and is stopped can delay it, and after the limit the memory is left to the process. */
static void uring_drain(struct sits_loop *loop, pthread_mutex_t *lock)
{
	struct uring *u = loop->engine_data;
	uint64_t limit = sits_now_ns() + DRAIN_LIMIT_NS;
	struct io_uring_sqe *sqe;
	const enum tag tags[] = { TAG_ACCEPT, TAG_WAKE };

	for (int i = 0; i < 2; i++) {
		sqe = get_sqe(u);
		if (!sqe)
			continue;
		io_uring_prep_cancel64(sqe, tags[i], 0);
		tag_sqe(sqe, NULL, TAG_IGNORE);
	}
	while (in_flight(loop, u) && sits_now_ns() < limit) {
		struct __kernel_timespec ts = { .tv_nsec = 100 * SITS_NSEC_PER_MSEC };
		struct sits_conn *conn, *next;
		struct io_uring_cqe *cqe;

		io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
		complete_all(loop, u);
		for (conn = TAILQ_FIRST(&loop->conns); conn; conn = next) {
			next = TAILQ_NEXT(conn, link);
			sits_loop_close_if_idle(loop, conn);
		}
	}
}

const struct sits_loop_engine sits_loop_uring = {
	.name = "io_uring",
	.init = uring_init,
	.fini = uring_fini,
	.turn = uring_turn,
	.drain = uring_drain,
};
