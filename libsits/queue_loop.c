// SPDX-License-Identifier: MIT
/*
 * queue_loop.c - what both engines of the event loop share.
 */
#include "libsits/queue_loop.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ACCEPT_RETRY_NS (100 * SITS_NSEC_PER_MSEC)

static int choose_engine(struct sits_loop *loop)
{
	int ret;

	if (sits_wire_want_io_uring()) {
		loop->engine = &sits_loop_uring;
		ret = loop->engine->init(loop);
		if (!ret)
			return 0;
		sits_log(loop->ctx, SITS_LOG_WARN,
			 "queue: io_uring is not available (%s; see the sysctl kernel.io_uring_disabled): using poll(2), with more system calls per request",
			 strerror(-ret));
	}
	loop->engine = &sits_loop_poll;
	return loop->engine->init(loop);
}

int sits_loop_init(struct sits_loop *loop, struct sits_ctx *ctx, int listen_fd,
		   const struct sits_loop_handler *handler, void *arg)
{
	int ret;

	memset(loop, 0, sizeof(*loop));
	loop->ctx = ctx;
	loop->handler = handler;
	loop->arg = arg;
	loop->listen_fd = listen_fd;
	TAILQ_INIT(&loop->conns);
	TAILQ_INIT(&loop->todo);
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->wake_fd < 0)
		return -errno;
	ret = choose_engine(loop);
	if (ret)
		close(loop->wake_fd);
	return ret;
}

void sits_loop_fini(struct sits_loop *loop, pthread_mutex_t *lock)
{
	struct sits_conn *conn;

	loop->stopping = true;
	TAILQ_FOREACH(conn, &loop->conns, link)
		if (!conn->gone)
			loop->handler->eof(loop->arg, conn);
	loop->engine->drain(loop, lock);
	loop->engine->fini(loop);
	close(loop->wake_fd);
}

void sits_loop_to_do(struct sits_loop *loop, struct sits_conn *conn)
{
	if (conn->on_todo)
		return;
	conn->on_todo = true;
	TAILQ_INSERT_TAIL(&loop->todo, conn, todo);
}

void sits_loop_add(struct sits_loop *loop, struct sits_conn *conn)
{
	TAILQ_INSERT_TAIL(&loop->conns, conn, link);
	sits_loop_to_do(loop, conn);
}

void sits_loop_drop(struct sits_loop *loop, struct sits_conn *conn)
{
	if (conn->gone)
		return;
	conn->gone = true;
	shutdown(conn->fd, SHUT_RDWR);	/* ends what is in flight on it */
	sits_loop_to_do(loop, conn);
}

void sits_loop_want_write(struct sits_loop *loop, struct sits_conn *conn)
{
	if (conn->gone || conn->want_write)
		return;
	conn->want_write = true;
	sits_loop_to_do(loop, conn);
	sits_loop_wake(loop);
}

void sits_loop_wake(struct sits_loop *loop)
{
	const uint64_t one = 1;
	int saved = errno;
	ssize_t n = write(loop->wake_fd, &one, sizeof(one));

	(void)n;	/* EAGAIN: it is readable already */
	errno = saved;
}

void sits_loop_clear_wake(struct sits_loop *loop)
{
	uint64_t count;
	ssize_t n = read(loop->wake_fd, &count, sizeof(count));

	(void)n;
}

int sits_loop_turn(struct sits_loop *loop, pthread_mutex_t *lock, uint64_t timeout_ns)
{
	if (loop->accept_after_ns) {
		uint64_t now = sits_now_ns();

		if (now >= loop->accept_after_ns)
			loop->accept_after_ns = 0;
		else
			timeout_ns = SITS_MIN(timeout_ns, loop->accept_after_ns - now);
	}
	return loop->engine->turn(loop, lock, timeout_ns);
}

bool sits_loop_may_accept(const struct sits_loop *loop)
{
	return !loop->stopping && !loop->accept_after_ns;
}

/* @res: a descriptor or -errno. */
void sits_loop_accepted(struct sits_loop *loop, int res)
{
	if (res >= 0) {
		loop->handler->accepted(loop->arg, res);
		return;
	}
	if (res != -EMFILE && res != -ENFILE && res != -ENOMEM && res != -ENOBUFS)
		return;
	sits_log(loop->ctx, SITS_LOG_WARN,
		 "queue: cannot accept a client: %s; raise RLIMIT_NOFILE (LimitNOFILE= in the systemd unit) or lower max_clients",
		 strerror(-res));
	loop->accept_after_ns = sits_now_ns() + ACCEPT_RETRY_NS;
}

void sits_loop_prepare_recv(struct sits_conn *conn)
{
	conn->iov.iov_base = conn->buf;
	conn->iov.iov_len = sizeof(conn->buf);
	memset(&conn->msg, 0, sizeof(conn->msg));
	conn->msg.msg_iov = &conn->iov;
	conn->msg.msg_iovlen = 1;
	conn->msg.msg_control = conn->control;
	conn->msg.msg_controllen = sizeof(conn->control);
}

static int take_fds(struct sits_conn *conn, int *fds)
{
	int nr = 0;

	if (conn->msg.msg_controllen < sizeof(struct cmsghdr))
		return 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&conn->msg); c; c = CMSG_NXTHDR(&conn->msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int))
			if (nr < SITS_CONN_FDS)
				memcpy(&fds[nr++], CMSG_DATA(c) + at, sizeof(int));
	}
	return nr;
}

/* A receive has ended with @res bytes or -errno. */
void sits_loop_received(struct sits_loop *loop, struct sits_conn *conn, ssize_t res)
{
	int fds[SITS_CONN_FDS], nr;
	bool truncated;

	if (res == -EINTR || res == -EAGAIN || res == -ECANCELED || res == -ENOBUFS ||
	    res == -ENOMEM)
		return;
	if (res < 0) {
		if (!conn->gone)
			loop->handler->eof(loop->arg, conn);
		return;
	}
	nr = take_fds(conn, fds);
	truncated = conn->msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	if (conn->gone || (!res && !nr)) {
		for (int i = 0; i < nr; i++)
			close(fds[i]);
		if (!conn->gone)
			loop->handler->eof(loop->arg, conn);
		return;
	}
	loop->handler->message(loop->arg, conn, (size_t)res, fds, nr, truncated);
}

/* Returns true where it is gone and has been forgotten. */
bool sits_loop_close_if_idle(struct sits_loop *loop, struct sits_conn *conn)
{
	if (!conn->gone || conn->recv_armed || conn->write_armed)
		return false;
	if (conn->on_todo)
		TAILQ_REMOVE(&loop->todo, conn, todo);
	conn->on_todo = false;
	TAILQ_REMOVE(&loop->conns, conn, link);
	close(conn->fd);
	conn->fd = -1;
	loop->accept_after_ns = 0;	/* there is a descriptor again */
	loop->handler->closed(loop->arg, conn);
	return true;
}
