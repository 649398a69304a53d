/* SPDX-License-Identifier: MIT */
/*
 * queue_common.h - what the tests of queues and channels share: making them, and their commands in each
 * way that there is: ioctl, io_uring, io_uring's workers, its polling thread.
 */
#ifndef SITS_QUEUE_COMMON_H
#define SITS_QUEUE_COMMON_H

#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "region_common.h"

enum way { BY_IOCTL, BY_URING, BY_WORKER, BY_SQPOLL, NR_WAYS };

__attribute__((unused))
static const char *const way_names[NR_WAYS] = { "ioctl", "uring", "uring worker", "uring sqpoll" };

#define ARENA_BYTES	(256ul << 10)
#define NEVER_MS	30000		/* beyond any wait that ends well */

/* 0: what most tests want; mode -1: nobody */
struct queue_opts {
	const char *name;
	uint32_t depth, per_client, max_clients, chunk_backlog;
	int mode;
};

#define OPTS(...) (&(struct queue_opts){ __VA_ARGS__ })

/* A queue's descriptor, or -errno. */
__attribute__((unused))
static int queue_create(const struct queue_opts *o)
{
	struct sits_queue_create arg = {
		.size = sizeof(arg), .depth = o->depth ?: 16, .per_client = o->per_client ?: 8,
		.max_clients = o->max_clients ?: 8, .mode = o->mode < 0 ? 0 : o->mode ?: 0666,
		.chunk_backlog = o->chunk_backlog ?: 64 << 10,
		.fd_flags = O_CLOEXEC, .fd = -1,
	};
	const char *name = o->name ?: "q";
	int ret;

	memcpy(arg.name, name, strnlen(name, sizeof(arg.name)));
	ret = xioctl(dev, SITS_IOC_QUEUE_CREATE, &arg);
	return ret ? ret : arg.fd;
}

/* A channel's descriptor, or -errno. */
__attribute__((unused))
static int channel_fd(const char *queue, uint64_t bytes)
{
	struct sits_channel_create arg = {
		.size = sizeof(arg), .arena_bytes = bytes, .fd_flags = O_CLOEXEC, .fd = -1,
	};
	int ret;

	memcpy(arg.queue, queue, strnlen(queue, sizeof(arg.queue)));
	ret = xioctl(dev, SITS_IOC_CHANNEL_OPEN, &arg);
	return ret ? ret : arg.fd;
}

struct chan {
	int fd;
	char *arena;
	uint64_t bytes;
};

__attribute__((unused))
static struct chan channel_open(const char *queue)
{
	struct chan c = { .fd = channel_fd(queue, ARENA_BYTES), .bytes = ARENA_BYTES };

	if (c.fd < 0)
		errno = -c.fd;
	need(c.fd >= 0, "CHANNEL_OPEN");
	c.arena = mmap(NULL, c.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c.fd, 0);
	need(c.arena != MAP_FAILED, "mmap of an arena");
	return c;
}

__attribute__((unused))
static void channel_close(struct chan *c)
{
	munmap(c->arena, c->bytes);
	close(c->fd);
	c->fd = -1;
}

/* -------------------------------------------------------------------- rings */

__attribute__((unused))
static void ring_init(struct io_uring *ring, unsigned int flags)
{
	struct io_uring_params p = { .flags = flags, .sq_thread_idle = 50 };
	int ret = io_uring_queue_init_params(64, ring, &p);

	errno = -ret;
	need(!ret, "io_uring_queue_init");
}

/* Put a command in. @sqe_flags: IOSQE_* */
__attribute__((unused))
static void ring_put(struct io_uring *ring, int fd, uint32_t op, const void *payload,
		     unsigned int sqe_flags, uint64_t tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	need(sqe, "io_uring_get_sqe");
	if (!sqe)
		return;		/* for the compiler */
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = op;
	sqe->flags = sqe_flags;
	sqe->user_data = tag;
	if (payload)
		memcpy(sqe->cmd, payload, 16);
}

__attribute__((unused))
static void ring_submit(struct io_uring *ring)
{
	int ret = io_uring_submit(ring);

	errno = -ret;
	need(ret >= 0, "io_uring_submit");
}

/* The next completion's result and tag; -ETIME where none comes. */
__attribute__((unused))
static int ring_wait(struct io_uring *ring, uint64_t *tag, int ms)
{
	struct __kernel_timespec ts = { ms / 1000, (ms % 1000) * 1000000ll };
	struct io_uring_cqe *cqe;
	int ret;

	do
		ret = io_uring_wait_cqe_timeout(ring, &cqe, &ts);
	while (ret == -EINTR);
	if (ret)
		return ret;
	ret = cqe->res;
	if (tag)
		*tag = cqe->user_data;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

__attribute__((unused))
static bool ring_is_empty(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;

	/* Task work that is due runs first. */
	io_uring_get_events(ring);
	return io_uring_peek_cqe(ring, &cqe) == -EAGAIN;
}

static struct io_uring way_ring[NR_WAYS];

__attribute__((unused))
static void ways_init(void)
{
	ring_init(&way_ring[BY_URING], 0);
	ring_init(&way_ring[BY_WORKER], 0);
	ring_init(&way_ring[BY_SQPOLL], IORING_SETUP_SQPOLL);
}

__attribute__((unused))
static void ways_fini(void)
{
	for (int way = BY_URING; way < NR_WAYS; way++)
		io_uring_queue_exit(&way_ring[way]);
}

/* One command from start to end. */
__attribute__((unused))
static int command(enum way way, int fd, uint32_t op, const void *payload)
{
	struct io_uring *ring = &way_ring[way];
	char copy[16];
	int ret;

	if (way == BY_IOCTL) {
		if (payload)
			memcpy(copy, payload, sizeof(copy));
		ret = ioctl(fd, op, payload ? copy : NULL);
		return ret < 0 ? -errno : ret;
	}
	ring_put(ring, fd, op, payload, way == BY_WORKER ? IOSQE_ASYNC : 0, 1);
	ring_submit(ring);
	return ring_wait(ring, NULL, NEVER_MS);
}

/* ----------------------------------------------------------- the commands */

/* Request bytes lie in the first half of the arena, its last 64 bytes are for numbers; RECV writes from
 * the half on. */
#define RECV_OFF	(ARENA_BYTES / 2)
#define REQ_OFF		(ARENA_BYTES / 2 - 64)

/* Return: 0 and the number, or -errno. */
__attribute__((unused))
static int submit_by(enum way way, const struct chan *c, const void *data, uint32_t len, uint32_t timeout_ms,
		     uint64_t *req)
{
	struct sits_submit arg = { .len = len, .timeout_ms = timeout_ms, .off_req = REQ_OFF };
	int ret;

	memcpy(c->arena, data, len);
	ret = command(way, c->fd, SITS_IOC_SUBMIT, &arg);
	memset(c->arena, 0, len);	/* ours again at once */
	if (req)
		memcpy(req, c->arena + REQ_OFF, sizeof(*req));
	return ret;
}

__attribute__((unused))
static int submit(const struct chan *c, const void *data, uint32_t len, uint64_t *req)
{
	return submit_by(BY_IOCTL, c, data, len, 0, req);
}

/* A request that is taken for sure. Return: its number. */
__attribute__((unused))
static uint64_t submit_text(const struct chan *c, const char *text)
{
	uint64_t req = 0;
	int ret = submit(c, text, strlen(text), &req);

	errno = -ret;
	need(!ret && req, "SUBMIT of '%s'", text);
	return req;
}

/* What FETCH brought; the last one's bytes. */
struct got {
	struct sits_event ev;
	char bytes[SITS_REQUEST_BYTES_MAX];
};

/* Return: bytes or -errno. */
__attribute__((unused))
static int fetch_by(enum way way, int q, struct got *g, uint32_t room)
{
	struct sits_fetch arg = { .addr = (uintptr_t)g, .len = room };

	memset(&g->ev, 0, sizeof(g->ev));
	return command(way, q, SITS_IOC_FETCH, &arg);
}

/* One that doesn't wait. */
__attribute__((unused))
static int fetch(int q, struct got *g)
{
	struct sits_fetch arg = {
		.addr = (uintptr_t)g, .len = sizeof(*g), .flags = SITS_FETCH_NONBLOCK,
	};

	memset(&g->ev, 0, sizeof(g->ev));
	return command(BY_IOCTL, q, SITS_IOC_FETCH, &arg);
}

/* Wait for an event that comes for sure. */
__attribute__((unused))
static bool fetch_kind(int q, struct got *g, uint32_t kind)
{
	struct pollfd pfd = { .fd = q, .events = POLLIN };
	int ret;

	need(poll(&pfd, 1, NEVER_MS) == 1, "poll for an event");
	ret = fetch(q, g);
	if (ret < 0 || g->ev.kind != kind)
		printf("# FETCH: %d, kind %u\n", ret, g->ev.kind);
	return ret == (int)(sizeof(g->ev) + g->ev.len) && g->ev.kind == kind;
}

__attribute__((unused))
static int commit_by(enum way way, int q, uint64_t req, const void *data, uint32_t len, int status, bool last)
{
	struct sits_commit_desc desc = {
		.size = sizeof(desc), .flags = last ? SITS_COMMIT_F_LAST : 0, .req = req,
		.addr = (uintptr_t)data, .len = len, .status = status,
	};
	struct sits_commit arg = { .addr = (uintptr_t)&desc };

	return command(way, q, SITS_IOC_COMMIT, &arg);
}

__attribute__((unused))
static int commit(int q, uint64_t req, const char *text)
{
	return commit_by(BY_IOCTL, q, req, text, strlen(text), 0, false);
}

__attribute__((unused))
static int commit_end(int q, uint64_t req, int status)
{
	return commit_by(BY_IOCTL, q, req, NULL, 0, status, true);
}

/* What RECV wrote. */
__attribute__((unused))
static struct sits_chunk_hdr chunk_hdr(const struct chan *c, uint64_t off)
{
	struct sits_chunk_hdr hdr;

	memcpy(&hdr, c->arena + off, sizeof(hdr));
	return hdr;
}

__attribute__((unused))
static int recv_by(enum way way, const struct chan *c, uint32_t room)
{
	struct sits_recv arg = { .off = RECV_OFF, .len = room };

	return command(way, c->fd, SITS_IOC_RECV, &arg);
}

/* One that doesn't wait. */
__attribute__((unused))
static int recv_now(const struct chan *c, uint32_t room)
{
	struct sits_recv arg = { .off = RECV_OFF, .len = room, .flags = SITS_RECV_NONBLOCK };

	return command(BY_IOCTL, c->fd, SITS_IOC_RECV, &arg);
}

/* The next chunk is this; it has come, or comes. */
__attribute__((unused))
static bool recv_is(const struct chan *c, uint64_t req, const char *text, int status, bool last)
{
	struct pollfd pfd = { .fd = c->fd, .events = POLLIN };
	struct sits_chunk_hdr hdr;
	int ret;

	need(poll(&pfd, 1, NEVER_MS) == 1, "poll for a chunk");
	ret = recv_now(c, ARENA_BYTES / 2);
	hdr = chunk_hdr(c, RECV_OFF);
	if (ret == (int)(sizeof(hdr) + strlen(text)) && hdr.req == req && hdr.len == strlen(text) &&
	    hdr.status == status && hdr.flags == (last ? SITS_CHUNK_F_LAST : 0) && !hdr.reserved &&
	    !memcmp(c->arena + RECV_OFF + sizeof(hdr), text, hdr.len))
		return true;
	printf("# RECV: %d; request %llu, %u bytes, status %d, flags %u; want request %llu, '%s', status %d, last %d\n",
	       ret, (unsigned long long)hdr.req, hdr.len, hdr.status, hdr.flags, (unsigned long long)req, text,
	       status, last);
	return false;
}

__attribute__((unused))
static bool end_is(const struct chan *c, uint64_t req, int status)
{
	return recv_is(c, req, "", status, true);
}

__attribute__((unused))
static int cancel(const struct chan *c, uint64_t req)
{
	struct sits_cancel arg = { .req = req };

	return command(BY_IOCTL, c->fd, SITS_IOC_CANCEL, &arg);
}

__attribute__((unused))
static struct sits_queue_facts queue_facts(int q)
{
	struct sits_queue_facts f = { .size = sizeof(f) };
	int ret = xioctl(q, SITS_IOC_QUEUE_INFO, &f);

	if (ret)
		check(false, "QUEUE_INFO: %s", strerror(-ret));
	return f;
}

/* Files go when the last task that had them has left the kernel: wait for that. */
__attribute__((unused))
static bool no_queue_left(void)
{
	struct sits_get_info i = info();

	for (int tries = 0; tries < 3000 && (i.nr_queues || i.nr_channels); tries++) {
		usleep(10000);
		i = info();
	}
	if (i.nr_queues || i.nr_channels)
		printf("# %u queues, %u channels\n", i.nr_queues, i.nr_channels);
	return !i.nr_queues && !i.nr_channels;
}

#endif
