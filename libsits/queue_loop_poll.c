// SPDX-License-Identifier: MIT
/*
 * queue_loop_poll.c - the event loop on poll(2), for hosts where io_uring is disabled.
 */
#include "libsits/queue_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define FIXED 2			/* places in front: wake, listen */
#define ACCEPTS_A_TURN 16

struct poller {
	struct pollfd *fds;
	struct sits_conn **conns;	/* conns[i] belongs to fds[FIXED + i] */
	size_t room;			/* connections that fit */
};

static int poll_init(struct sits_loop *loop)
{
	struct poller *p;

	if (fcntl(loop->listen_fd, F_SETFL, O_NONBLOCK))
		return -errno;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->fds = calloc(FIXED, sizeof(*p->fds));
	if (!p->fds) {
		free(p);
		return -ENOMEM;
	}
	loop->engine_data = p;
	return 0;
}

static void poll_fini(struct sits_loop *loop)
{
	struct poller *p = loop->engine_data;

	free(p->fds);
	free(p->conns);
	free(p);
}

static int make_room(struct poller *p, size_t nr)
{
	size_t room = SITS_MAX(p->room * 2, nr + 16);
	struct pollfd *fds;
	struct sits_conn **conns;

	if (nr <= p->room)
		return 0;
	fds = realloc(p->fds, (room + FIXED) * sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	p->fds = fds;
	conns = realloc(p->conns, room * sizeof(struct sits_conn *));
	if (!conns)
		return -ENOMEM;
	p->conns = conns;
	p->room = room;
	return 0;
}

/* Close what is gone; nothing is in flight between turns. */
static void work_off_todo(struct sits_loop *loop)
{
	struct sits_conn *conn;

	while ((conn = TAILQ_FIRST(&loop->todo))) {
		if (conn->gone && sits_loop_close_if_idle(loop, conn))
			continue;
		conn->on_todo = false;
		TAILQ_REMOVE(&loop->todo, conn, todo);
	}
}

static int collect(struct sits_loop *loop, struct poller *p, size_t *nr_out)
{
	struct sits_conn *conn;
	size_t nr = 0;
	int ret;

	TAILQ_FOREACH(conn, &loop->conns, link)
		nr++;
	ret = make_room(p, nr);
	if (ret)
		return ret;
	p->fds[0] = (struct pollfd){ .fd = loop->wake_fd, .events = POLLIN };
	p->fds[1] = (struct pollfd){ .fd = sits_loop_may_accept(loop) ? loop->listen_fd : -1,
				     .events = POLLIN };
	nr = 0;
	TAILQ_FOREACH(conn, &loop->conns, link) {
		p->conns[nr] = conn;
		p->fds[FIXED + nr] = (struct pollfd){
			.fd = conn->fd,
			.events = (short)(POLLIN | (conn->want_write ? POLLOUT : 0)),
		};
		nr++;
	}
	*nr_out = nr;
	return 0;
}

static void serve(struct sits_loop *loop, struct sits_conn *conn, short events)
{
	ssize_t n;

	if ((events & POLLOUT) && conn->want_write && !conn->gone) {
		conn->want_write = false;
		loop->handler->writable(loop->arg, conn);
	}
	if (conn->gone || !(events & (POLLIN | POLLHUP | POLLERR)))
		return;
	sits_loop_prepare_recv(conn);
	n = recvmsg(conn->fd, &conn->msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	sits_loop_received(loop, conn, n < 0 ? -errno : n);
}

static void accept_some(struct sits_loop *loop)
{
	for (int i = 0; i < ACCEPTS_A_TURN && sits_loop_may_accept(loop); i++) {
		int fd = accept4(loop->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		sits_loop_accepted(loop, fd < 0 ? -errno : fd);
		if (fd < 0)
			return;
	}
}

static int poll_turn(struct sits_loop *loop, pthread_mutex_t *lock, uint64_t timeout_ns)
{
	struct poller *p = loop->engine_data;
	struct timespec ts = {
		.tv_sec = (time_t)(timeout_ns / SITS_NSEC_PER_SEC),
		.tv_nsec = (long)(timeout_ns % SITS_NSEC_PER_SEC),
	};
	size_t nr;
	int ret;

	work_off_todo(loop);
	ret = collect(loop, p, &nr);
	if (ret)
		return ret;
	pthread_mutex_unlock(lock);
	ret = ppoll(p->fds, FIXED + nr, timeout_ns == SITS_LOOP_FOREVER ? NULL : &ts, NULL);
	if (ret < 0)
		ret = errno == EINTR || errno == EAGAIN ? 0 : -errno;
	pthread_mutex_lock(lock);
	if (ret <= 0)
		return ret;
	if (p->fds[0].revents)
		sits_loop_clear_wake(loop);
	for (size_t i = 0; i < nr; i++)	/* connections are freed by work_off_todo alone */
		if (p->fds[FIXED + i].revents)
			serve(loop, p->conns[i], p->fds[FIXED + i].revents);
	if (p->fds[1].revents)
		accept_some(loop);
	return 0;
}

static void poll_drain(struct sits_loop *loop, pthread_mutex_t *lock)
{
	work_off_todo(loop);
}

const struct sits_loop_engine sits_loop_poll = {
	.name = "poll",
	.init = poll_init,
	.fini = poll_fini,
	.turn = poll_turn,
	.drain = poll_drain,
};
