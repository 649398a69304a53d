// SPDX-License-Identifier: MIT
/*
 * queue_kernel.c - a daemon's queue in the kernel module: events by FETCH, answers by COMMIT.
 *
 * All state is the module's. A FETCH waits in a ring, and its event lies in @buf when it completes; a COMMIT is an
 * ioctl, as it never waits and its caller wants to know. Without io_uring, FETCH is an ioctl too, beside poll(2).
 *
 * A FETCH may wait in the ring while nobody is in fetch(): the event that it gets is handed out by the next call.
 */
#include "libsits/kernel_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libsits/provider_kernel.h"

/* Only pages that are written are there, so room for the longest request costs little. */
#define BUF_BYTES (sizeof(struct sits_event) + SITS_REQUEST_BYTES_MAX)

#define FINI_LIMIT_NS (10 * SITS_NSEC_PER_SEC)

/* Allocated by create, freed by destroy. fetch() alone uses @ring, @buf and what follows; the rest is constant. */
struct kqueue {
	struct sits_queue base;	/* first */
	char name[SITS_QUEUE_NAME_MAX];
	int fd, wake_fd;
	int wake_asked;		/* atomic */
	struct sits_kring ring;
	bool armed;		/* a FETCH is in the ring */
	int res;		/* of the FETCH that completed; 0: none */
	uint8_t *buf;
};

static struct kqueue *queue_of(struct sits_queue *base)
{
	return (struct kqueue *)base;	/* its first member */
}

/* Return: 1 with @ev filled; 0 where it was no event; -errno. */
static int take_event(struct kqueue *q, int res, struct sits_queue_event *ev)
{
	struct sits_event e;

	if (res < 0)
		return res == -ECANCELED || res == -EINTR || res == -EAGAIN ? 0 : res;
	if ((size_t)res < sizeof(e))
		return -EPROTO;
	memcpy(&e, q->buf, sizeof(e));
	if (e.kind == SITS_EV_SHUTDOWN)
		return -ESHUTDOWN;
	*ev = (struct sits_queue_event){
		.kind = e.kind == SITS_EV_REQUEST ? SITS_EVENT_REQUEST : SITS_EVENT_CANCEL,
		.req = e.req, .client = e.client, .client_uid = e.uid, .client_pid = e.pid,
		.deadline_ns = e.deadline_ns,
		.data = e.kind == SITS_EV_REQUEST ? q->buf + sizeof(e) : NULL, .len = e.len,
	};
	return 1;
}

static struct sits_fetch fetch_arg(struct kqueue *q, uint32_t flags)
{
	return (struct sits_fetch){ .addr = (uintptr_t)q->buf, .len = BUF_BYTES, .flags = flags };
}

static void clear_wake(struct kqueue *q)
{
	uint64_t count;
	ssize_t n = read(q->wake_fd, &count, sizeof(count));

	(void)n;
}

/* --------------------------------------------------------------- by ioctl */

static int fetch_now(struct kqueue *q, struct sits_queue_event *ev)
{
	struct sits_fetch arg = fetch_arg(q, SITS_FETCH_NONBLOCK);

	return take_event(q, sits_ioctl(q->fd, SITS_IOC_FETCH, &arg), ev);
}

static int wait_plain(struct kqueue *q, uint64_t wait_ns)
{
	struct pollfd pfd[2] = { { .fd = q->fd, .events = POLLIN }, { .fd = q->wake_fd, .events = POLLIN } };
	struct timespec ts = { .tv_sec = (time_t)(wait_ns / SITS_NSEC_PER_SEC), .tv_nsec = (long)(wait_ns % SITS_NSEC_PER_SEC) };

	if (ppoll(pfd, 2, wait_ns == SITS_KRING_FOREVER ? NULL : &ts, NULL) >= 0 || errno == EINTR || errno == EAGAIN)
		return 0;
	return -errno;
}

/* --------------------------------------------------------------- by ring */

static void collect(struct kqueue *q)
{
	uint32_t data;
	int res;

	while (sits_kring_next(&q->ring, &data, &res)) {
		q->armed = false;
		q->res = res ? res : -EAGAIN;
	}
}

/*
 * A ring that is bound to a thread can't be entered by another: it gives way to one that can. The module takes back
 * an event that was on its way to it, as that thread is not there to receive it.
 */
static void unbind(struct kqueue *q)
{
	collect(q);
	sits_kring_fini(&q->ring);
	q->armed = false;
	sits_kring_init(&q->ring, q->base.ctx, "queue", false, q->wake_fd);
}

static int wait_ring(struct kqueue *q, uint64_t wait_ns)
{
	struct sits_fetch arg = fetch_arg(q, 0);
	int ret;

	sits_kring_arm_wake(&q->ring);
	if (!q->armed && sits_kring_cmd(&q->ring, q->fd, SITS_IOC_FETCH, &arg, 0))
		q->armed = true;
	ret = sits_kring_turn(&q->ring, wait_ns);
	if (ret == -EEXIST) {	/* another thread with the same number */
		unbind(q);
		return 0;
	}
	collect(q);
	return ret;
}

/* What there is, without waiting. */
static int look(struct kqueue *q, struct sits_queue_event *ev)
{
	int res;

	if (q->ring.on && !sits_kring_may_use(&q->ring))
		unbind(q);
	if (q->ring.on && q->armed && !q->res)
		collect(q);
	res = q->res;
	q->res = 0;
	return res ? take_event(q, res, ev) : 0;
}

/* --------------------------------------------------------------- the queue */

static int fetch_until(struct kqueue *q, struct sits_queue_event *ev, uint64_t until_ns)
{
	bool looked = false;
	int ret;

	for (;;) {
		uint64_t now, wait = SITS_KRING_FOREVER;

		if (__atomic_exchange_n(&q->wake_asked, 0, __ATOMIC_ACQ_REL)) {
			clear_wake(q);
			return 0;
		}
		ret = look(q, ev);
		if (ret == 1 || ret < 0)
			return ret;
		if (until_ns != SITS_KRING_FOREVER) {
			now = sits_now_ns();
			wait = until_ns > now ? until_ns - now : 0;
		}
		if (!wait && looked)
			return 0;
		looked = true;
		/* Nothing is left waiting in the ring by who only looks. */
		if (!q->ring.on || (!wait && !q->armed)) {
			ret = fetch_now(q, ev);
			if (ret || !wait)
				return ret;
			ret = wait_plain(q, wait);
		} else {
			ret = wait_ring(q, wait);
		}
		if (ret)
			return ret;
	}
}

static int kq_fetch(struct sits_queue *base, struct sits_queue_event *ev, int timeout_ms)
{
	struct kqueue *q = queue_of(base);
	uint64_t until = SITS_KRING_FOREVER;
	int ret;

	if (timeout_ms >= 0)
		until = timeout_ms ? sits_now_ns() + (uint64_t)timeout_ms * SITS_NSEC_PER_MSEC : 0;
	ret = fetch_until(q, ev, until);
	if (ret < 0)
		sits_log(base->ctx, SITS_LOG_ERR, "queue '%s': waiting for events (%s): %s", q->name,
			 q->ring.on ? "io_uring" : "ioctl", strerror(-ret));
	return ret;
}

static void kq_wake(struct sits_queue *base)
{
	struct kqueue *q = queue_of(base);
	const uint64_t one = 1;
	int saved = errno;
	ssize_t n;

	__atomic_store_n(&q->wake_asked, 1, __ATOMIC_RELEASE);
	n = write(q->wake_fd, &one, sizeof(one));
	(void)n;	/* EAGAIN: it is readable already */
	errno = saved;
}

static int kq_commit(struct sits_queue *base, uint64_t req, const void *data, size_t len, int status, uint32_t flags)
{
	struct sits_commit_desc desc = {
		.size = sizeof(desc), .flags = flags & SITS_COMMIT_LAST ? SITS_COMMIT_F_LAST : 0,
		.req = req, .addr = (uintptr_t)data, .len = (uint32_t)len, .status = status,
	};
	struct sits_commit arg = { .addr = (uintptr_t)&desc };
	int ret;

	do {
		ret = sits_ioctl(queue_of(base)->fd, SITS_IOC_COMMIT, &arg);
	} while (ret == -EINTR);
	return ret;
}

static void kq_close_intake(struct sits_queue *base)
{
	sits_ioctl(queue_of(base)->fd, SITS_IOC_CLOSE_INTAKE, NULL);
}

static void kq_get_stats(struct sits_queue *base, struct sits_queue_stats *stats)
{
	struct sits_queue_facts f = { .size = sizeof(f) };

	if (sits_ioctl(queue_of(base)->fd, SITS_IOC_QUEUE_INFO, &f))
		return;
	*stats = (struct sits_queue_stats){
		.requests = f.requests, .answered = f.answered, .cancelled = f.cancelled,
		.refused_busy = f.refused_busy, .bytes_in = f.bytes_in, .bytes_out = f.bytes_out,
		.clients = f.nr_clients, .pending = f.nr_waiting + f.nr_running,
	};
}

/* ------------------------------------------------------- creation and the end */

static void free_queue(struct kqueue *q)
{
	if (q->buf != MAP_FAILED)
		munmap(q->buf, BUF_BYTES);	/* the kernel clears pages before anybody gets them */
	if (q->fd >= 0)
		close(q->fd);
	if (q->wake_fd >= 0)
		close(q->wake_fd);
	free(q);
}

/*
 * A FETCH that closing the descriptor has ended may write to @buf in the thread that put it into the ring, until it has
 * completed. In a ring that is bound that can only be this thread, which has done so. Else, if a stopped thread delays it
 * beyond the limit, the memory is left to the process.
 */
static void end_ring(struct kqueue *q)
{
	uint64_t limit = sits_now_ns() + FINI_LIMIT_NS;

	while (q->ring.on && q->armed && sits_kring_may_use(&q->ring)) {
		collect(q);
		if (!q->armed || sits_now_ns() >= limit || sits_kring_turn(&q->ring, 100 * SITS_NSEC_PER_MSEC))
			break;
	}
	if (q->ring.on && q->armed && !q->ring.bound)
		q->buf = MAP_FAILED;
	sits_kring_fini(&q->ring);
}

static void kq_destroy(struct sits_queue *base)
{
	struct kqueue *q = queue_of(base);

	kq_close_intake(base);
	close(q->fd);	/* what was fetched ends here, also where a forked child has the descriptor */
	q->fd = -1;
	end_ring(q);
	free_queue(q);
}

static const struct sits_queue_ops kq_ops = {
	.destroy = kq_destroy,
	.close_intake = kq_close_intake,
	.fetch = kq_fetch,
	.wake = kq_wake,
	.commit = kq_commit,
	.get_stats = kq_get_stats,
};

static int explain_create(struct kqueue *q, int err)
{
	struct sits_ctx *ctx = q->base.ctx;
	char who[160];

	switch (err) {
	case -EADDRINUSE:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': the name is held by a running daemon", q->name);
		break;
	case -EPERM:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': may not be made by who opened %s here; it takes %s", q->name,
			 SITS_DEV_PATH, sits_device_owner_words(who, sizeof(who)));
		break;
	case -EOPNOTSUPP:
	case -ENOTTY:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': this module has no queues: load a newer one, or choose provider 'user'",
			 q->name);
		break;
	default:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': %s: %s", q->name, SITS_DEV_PATH, strerror(-err));
	}
	return err;
}

static int create_in_kernel(struct kqueue *q, const struct sits_queue_opts *opts)
{
	struct sits_queue_create arg = {
		.size = sizeof(arg), .depth = opts->depth, .per_client = opts->per_client,
		.max_clients = opts->max_clients, .mode = opts->mode, .chunk_backlog = opts->chunk_backlog,
		.fd_flags = O_CLOEXEC, .fd = -1,
	};
	int ret;

	memcpy(arg.name, q->name, strlen(q->name));
	ret = sits_ioctl(q->base.ctx->dev_fd, SITS_IOC_QUEUE_CREATE, &arg);
	if (ret)
		return explain_create(q, ret);
	q->fd = arg.fd;
	return 0;
}

int sits_kernel_queue_create(struct sits_ctx *ctx, const struct sits_queue_opts *opts, struct sits_queue **out)
{
	struct kqueue *q = calloc(1, sizeof(*q));
	int ret;

	if (!q)
		return -ENOMEM;
	q->base.ops = &kq_ops;
	q->base.ctx = ctx;
	snprintf(q->name, sizeof(q->name), "%s", opts->name);
	q->fd = q->wake_fd = -1;
	q->buf = mmap(NULL, BUF_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ret = q->buf == MAP_FAILED ? -ENOMEM : 0;
	if (!ret) {
		madvise(q->buf, BUF_BYTES, MADV_DONTFORK);
		madvise(q->buf, BUF_BYTES, MADV_DONTDUMP);
		q->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		ret = q->wake_fd < 0 ? -errno : create_in_kernel(q, opts);
	}
	if (ret) {
		free_queue(q);
		return ret;
	}
	sits_kring_init(&q->ring, ctx, "queue", true, q->wake_fd);
	sits_log(ctx, SITS_LOG_INFO, "queue '%s': serving in %s by %s", q->name, SITS_DEV_PATH,
		 q->ring.on ? "io_uring" : "ioctl");
	*out = &q->base;
	return 0;
}
