// SPDX-License-Identifier: MIT
/*
 * channel_kernel.c - a client's channel in the kernel module: SUBMIT, RECV and CANCEL.
 *
 * The arena, shared with the module alone:
 *
 *	0        4096                rx_off                                arena_bytes
 *	| number | request bytes     | room 0 | room 1 | ...               |
 *
 * The module copies a request's bytes before SUBMIT ends, so there is one place for them, and @lock is held meanwhile.
 * A RECV has a room to write into. With io_uring several wait in the ring, oldest first, and rooms go round: the one
 * that the caller looks at is armed again in the call after. Without, there is one room and RECV does not wait.
 *
 * The ring is the receiver's. A thread that submits between its own calls of recv() uses it too, so that SUBMIT and RECV
 * share a system call; any other thread's SUBMIT is an ioctl. What the module refuses to take becomes an end in @refused.
 */
#include "libsits/kernel_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libsits/provider_kernel.h"
#include "libsits/whole.h"
#include "libsits/wire.h"

#define NR_ROOMS 4u
#define NR_REFUSED 16u		/* refused requests whose ends wait; then submit says -ENOBUFS */
#define REFUSED_BIT (1ull << 63)	/* of their numbers: the module's count from 1 */
#define FINI_LIMIT_NS (10 * SITS_NSEC_PER_SEC)
#define CQ_BUSY 16u		/* completions to be collected; a SUBMIT that fails would leave one more */
#define DATA_SUBMIT NR_ROOMS	/* the data of a command's completion: its room, or this */

struct refused {
	uint64_t req;
	int status;
};

/*
 * Allocated by open, freed by close. @lock guards @receiver, the arena's request bytes, @refused, @kept and @hinted; and the ring
 * where a thread submits by it. The ring's other use, the rooms and @whole are the receiver's.
 */
struct kchannel {
	struct sits_channel base;	/* first */
	pthread_mutex_t lock;
	char name[SITS_QUEUE_NAME_MAX];
	int fd, wake_fd;
	int poll_fd;		/* for sits_channel_fd(), made when it is first asked for; else -1 */
	uint8_t *arena;
	uint64_t arena_bytes, tx_bytes, rx_off;
	uint32_t room_bytes;

	int receiver;		/* the thread that received last; 0: none yet */
	struct sits_kring ring;
	int res[NR_ROOMS];	/* of the RECV that completed; 0: none has */
	unsigned int armed_at;	/* counts: RECVs put into the ring, */
	unsigned int taken_at;	/* and taken out of it; room N % NR_ROOMS */
	bool held;		/* the caller looks at the room of @taken_at - 1 */
	bool kept;		/* the result of @taken_at is in @res, and not in the ring any more */
	bool gone;		/* the daemon is, and all ends have come */

	struct refused refused[NR_REFUSED];
	unsigned int nr_refused;
	uint64_t next_refused;
	bool hinted;		/* @wake_fd is readable */

	struct sits_whole whole;
	uint64_t whole_req;
	bool whole_done;	/* the caller looks at it */
	size_t tx_used, rx_used;	/* to be wiped */
};

static struct kchannel *channel_of(struct sits_channel *base)
{
	return (struct kchannel *)base;	/* its first member */
}

static uint32_t room_off(const struct kchannel *ch, unsigned int at)
{
	return (uint32_t)ch->rx_off + at % NR_ROOMS * ch->room_bytes;
}

/* Lock held. wake_fd is readable while there is something that the ring or the channel's descriptor does not show. */
static void hint(struct kchannel *ch)
{
	bool want = ch->nr_refused || ch->gone || ch->kept;
	uint64_t n = 1;
	ssize_t ret;

	if (want == ch->hinted)
		return;
	ch->hinted = want;
	ret = want ? write(ch->wake_fd, &n, sizeof(n)) : read(ch->wake_fd, &n, sizeof(n));
	(void)ret;
}

static bool take_refused(struct kchannel *ch, struct sits_chunk *chunk)
{
	if (!ch->nr_refused)
		return false;
	*chunk = (struct sits_chunk){ .req = ch->refused[0].req, .status = ch->refused[0].status, .last = 1 };
	memmove(ch->refused, ch->refused + 1, --ch->nr_refused * sizeof(ch->refused[0]));
	hint(ch);
	return true;
}

/* ------------------------------------------------------------------- sending */

/* Put RECVs for all free rooms into the ring. */
static void arm_rooms(struct kchannel *ch)
{
	unsigned int most = NR_ROOMS - ch->held;

	while (!ch->gone && ch->armed_at - ch->taken_at < most) {
		struct sits_recv arg = { .off = room_off(ch, ch->armed_at), .len = ch->room_bytes };
		unsigned int room = ch->armed_at % NR_ROOMS;

		if (!sits_kring_cmd(&ch->ring, ch->fd, SITS_IOC_RECV, &arg, room))
			return;
		ch->res[room] = 0;
		ch->armed_at++;
	}
}

/* What a SUBMIT that has been submitted came to: only a failure leaves a completion, which is left to be collected. */
static int submit_result(struct kchannel *ch, const uint64_t *number)
{
	uint64_t mine = sits_kring_user_data(SITS_KRING_CMD, DATA_SUBMIT);
	struct io_uring_cqe *cqe;
	unsigned int head;
	int ret = 1;

	if (__atomic_load_n(number, __ATOMIC_ACQUIRE))
		return 0;
	io_uring_for_each_cqe(&ch->ring.ring, head, cqe)
		if (cqe->user_data == mine) {
			cqe->user_data = sits_kring_user_data(SITS_KRING_IGNORE, 0);
			ret = cqe->res;
		}
	return ret;
}

static int submit_by_ring(struct kchannel *ch, const struct sits_submit *arg)
{
	uint64_t *number = (uint64_t *)ch->arena;
	struct io_uring_sqe *sqe;
	int ret;

	sqe = sits_kring_cmd(&ch->ring, ch->fd, SITS_IOC_SUBMIT, arg, DATA_SUBMIT);
	if (!sqe)
		return -ENOEXEC;
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	if (ch->armed_at == ch->taken_at)
		arm_rooms(ch);
	ret = io_uring_submit(&ch->ring.ring);
	if (ret <= 0) {	/* nothing was taken: this one is not to go later */
		io_uring_prep_nop(sqe);
		io_uring_sqe_set_data64(sqe, sits_kring_user_data(SITS_KRING_IGNORE, 0));
		return -ENOEXEC;
	}
	while ((ret = submit_result(ch, number)) > 0) {	/* a worker of the kernel has it */
		struct io_uring_cqe *cqe;
		struct __kernel_timespec ts = { .tv_nsec = SITS_NSEC_PER_MSEC };

		io_uring_wait_cqes(&ch->ring.ring, &cqe, io_uring_cq_ready(&ch->ring.ring) + 1, &ts, NULL);
	}
	return ret;
}

static uint32_t timeout_to_ms(uint64_t timeout_ns)
{
	uint64_t ms = timeout_ns / SITS_NSEC_PER_MSEC + !!(timeout_ns % SITS_NSEC_PER_MSEC);

	return ms > UINT32_MAX ? 0 : (uint32_t)ms;	/* beyond 49 days there is no end */
}

/* Lock held. */
static int send_submit(struct kchannel *ch, const void *data, size_t len, uint64_t timeout_ns)
{
	struct sits_submit arg = { .off = SITS_ARENA_CTL, .len = (uint32_t)len, .timeout_ms = timeout_to_ms(timeout_ns) };
	uint64_t *number = (uint64_t *)ch->arena;
	int ret = -ENOEXEC;

	memcpy(ch->arena + arg.off, data, len);
	ch->tx_used = SITS_MAX(ch->tx_used, len);
	__atomic_store_n(number, 0, __ATOMIC_RELEASE);
	if (ch->ring.on && ch->receiver == sits_kring_this_task() && io_uring_cq_ready(&ch->ring.ring) < CQ_BUSY)
		ret = submit_by_ring(ch, &arg);
	if (ret == -ENOEXEC)
		do {
			ret = sits_ioctl(ch->fd, SITS_IOC_SUBMIT, &arg);
		} while (ret == -EINTR);
	return ret;
}

/* Lock held. The module refused: the request ends here. */
static int note_refused(struct kchannel *ch, int status, uint64_t *req)
{
	if (ch->nr_refused == NR_REFUSED)
		return -ENOBUFS;
	*req = REFUSED_BIT | ++ch->next_refused;
	ch->refused[ch->nr_refused++] = (struct refused){ .req = *req, .status = status };
	hint(ch);
	return 0;
}

static int kc_submit(struct sits_channel *base, const void *data, size_t len, uint64_t timeout_ns, uint64_t *req)
{
	struct kchannel *ch = channel_of(base);
	int ret;

	if (len > ch->tx_bytes) {
		sits_log(base->ctx, SITS_LOG_ERR,
			 "channel '%s': a request of %zu bytes; its arena takes %" PRIu64 ": open the channel with a larger one",
			 ch->name, len, ch->tx_bytes);
		return -EMSGSIZE;
	}
	pthread_mutex_lock(&ch->lock);
	ret = send_submit(ch, data, len, timeout_ns);
	if (!ret)
		*req = *(const uint64_t *)ch->arena;
	else if (ret == -EBUSY || ret == -ESHUTDOWN)
		ret = note_refused(ch, ret, req);
	pthread_mutex_unlock(&ch->lock);
	return ret;
}

static int kc_cancel(struct sits_channel *base, uint64_t req)
{
	struct kchannel *ch = channel_of(base);
	struct sits_cancel arg = { .req = req };
	int ret = -ENOENT;

	if (!(req & REFUSED_BIT))
		return req ? sits_ioctl(ch->fd, SITS_IOC_CANCEL, &arg) : ret;
	pthread_mutex_lock(&ch->lock);
	for (unsigned int i = 0; i < ch->nr_refused; i++)
		if (ch->refused[i].req == req)
			ret = 0;	/* its end is there already */
	pthread_mutex_unlock(&ch->lock);
	return ret;
}

/* ----------------------------------------------------------------- receiving */

/* Make a chunk of what RECV has written to @at. Return: 1; 0 where more of it has to come; -errno. */
static int take_room(struct kchannel *ch, const uint8_t *at, int res, struct sits_chunk *chunk)
{
	struct sits_chunk_hdr h;
	int ret;

	if ((size_t)res < sizeof(h))
		return -EPROTO;
	memcpy(&h, at, sizeof(h));
	at += sizeof(h);
	ch->rx_used = SITS_MAX(ch->rx_used, (size_t)(at - ch->arena) - ch->rx_off + h.len);
	if (h.len != (size_t)res - sizeof(h) || (ch->whole.len && ch->whole_req != h.req))
		return -EPROTO;
	*chunk = (struct sits_chunk){ .req = h.req, .data = at, .len = h.len };
	if (h.flags & SITS_CHUNK_F_MORE || ch->whole.len) {
		ret = sits_whole_append(&ch->whole, at, h.len);
		if (ret)
			return ret;
		ch->whole_req = h.req;
		chunk->data = ch->whole.data;
		chunk->len = ch->whole.len;
	}
	if (h.flags & SITS_CHUNK_F_MORE)
		return 0;
	ch->whole_done = true;
	if (h.flags & SITS_CHUNK_F_LAST) {
		chunk->last = 1;
		chunk->status = h.status;
	}
	return 1;
}

static int set_gone(struct kchannel *ch)
{
	pthread_mutex_lock(&ch->lock);
	ch->gone = true;
	hint(ch);
	pthread_mutex_unlock(&ch->lock);
	return -EPIPE;
}

/* The same for a RECV's result. */
static int take_result(struct kchannel *ch, const uint8_t *at, int res, struct sits_chunk *chunk)
{
	if (res > 0)
		res = take_room(ch, at, res, chunk);
	else if (res == -ECANCELED || res == -EINTR || res == -EAGAIN)
		return 0;
	if (res == -EPIPE)
		return set_gone(ch);
	if (res < 0)
		sits_log(ch->base.ctx, SITS_LOG_ERR, "channel '%s': receiving (%s): %s", ch->name,
			 ch->ring.on ? "io_uring" : "ioctl", strerror(-res));
	return res;
}

/* Take a completion out of the ring. Return: whether there was one. */
static bool collect_one(struct kchannel *ch)
{
	uint32_t data;
	int res;

	if (!sits_kring_next(&ch->ring, &data, &res))
		return false;
	if (data < NR_ROOMS)
		ch->res[data] = res ? res : -EAGAIN;
	return true;
}

static bool is_next_here(const struct kchannel *ch)
{
	return ch->armed_at != ch->taken_at && ch->res[ch->taken_at % NR_ROOMS];
}

/* Completions come in the order of the rooms; one that does not waits for those before it. */
static int take_by_ring(struct kchannel *ch, struct sits_chunk *chunk)
{
	unsigned int room;
	int ret;

	for (;;) {
		if (!is_next_here(ch)) {
			if (!collect_one(ch))
				return 0;
			continue;
		}
		room = ch->taken_at % NR_ROOMS;
		ch->taken_at++;
		ret = take_result(ch, ch->arena + room_off(ch, room), ch->res[room], chunk);
		ch->held = ret == 1;
		if (ret)
			return ret;
	}
}

static int take_plain(struct kchannel *ch, struct sits_chunk *chunk)
{
	struct sits_recv arg = { .off = (uint32_t)ch->rx_off, .len = ch->room_bytes * NR_ROOMS, .flags = SITS_RECV_NONBLOCK };
	int res, ret;

	do {
		res = sits_ioctl(ch->fd, SITS_IOC_RECV, &arg);
		ret = take_result(ch, ch->arena + ch->rx_off, res ? res : -EPROTO, chunk);
	} while (!ret && (res > 0 || res == -EINTR));
	return ret;
}

static int wait_plain(struct kchannel *ch, uint64_t wait_ns)
{
	struct pollfd pfd[2] = { { .fd = ch->fd, .events = POLLIN }, { .fd = ch->wake_fd, .events = POLLIN } };
	struct timespec ts = { .tv_sec = (time_t)(wait_ns / SITS_NSEC_PER_SEC), .tv_nsec = (long)(wait_ns % SITS_NSEC_PER_SEC) };

	if (!wait_ns || ppoll(pfd, 2, wait_ns == SITS_KRING_FOREVER ? NULL : &ts, NULL) >= 0 || errno == EINTR ||
	    errno == EAGAIN)
		return 0;
	return -errno;
}

static int wait_ring(struct kchannel *ch, uint64_t wait_ns)
{
	sits_kring_arm_wake(&ch->ring);
	arm_rooms(ch);
	return sits_kring_turn(&ch->ring, wait_ns);
}

/* What there is, without waiting. */
static int take_one(struct kchannel *ch, struct sits_chunk *chunk)
{
	bool refused = false;
	int ret;

	if (__atomic_load_n(&ch->nr_refused, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&ch->lock);
		refused = take_refused(ch, chunk);
		pthread_mutex_unlock(&ch->lock);
	}
	if (refused)
		return 1;
	ret = ch->ring.on ? take_by_ring(ch, chunk) : take_plain(ch, chunk);
	return !ret && ch->gone ? -EPIPE : ret;
}

static int recv_until(struct kchannel *ch, struct sits_chunk *chunk, uint64_t until_ns)
{
	bool looked = false;
	int ret;

	for (;;) {
		uint64_t now, wait = SITS_KRING_FOREVER;

		ret = take_one(ch, chunk);
		if (ret)
			return ret;
		if (until_ns != SITS_KRING_FOREVER) {
			now = sits_now_ns();
			wait = until_ns > now ? until_ns - now : 0;
		}
		if (!wait && looked)
			return 0;
		looked = true;
		ret = ch->ring.on ? wait_ring(ch, wait) : wait_plain(ch, wait);
		if (ret)
			return ret;
	}
}

/*
 * For who polls: a result that overtook the one just taken is out of the ring, so wake_fd tells of it. Nor may the ring tell of
 * what is only that, so it is emptied.
 */
static void show_kept(struct kchannel *ch)
{
	while (ch->kept != is_next_here(ch)) {
		pthread_mutex_lock(&ch->lock);
		ch->kept = !ch->kept;
		hint(ch);
		pthread_mutex_unlock(&ch->lock);
		while (collect_one(ch))
			;
	}
}

static int kc_recv(struct sits_channel *base, struct sits_chunk *chunk, int timeout_ms)
{
	struct kchannel *ch = channel_of(base);
	uint64_t until = SITS_KRING_FOREVER;
	int ret;

	if (timeout_ms >= 0)
		until = timeout_ms ? sits_now_ns() + (uint64_t)timeout_ms * SITS_NSEC_PER_MSEC : 0;
	if (ch->receiver != sits_kring_this_task()) {	/* one that submits by the ring ends that first */
		pthread_mutex_lock(&ch->lock);
		ch->receiver = sits_kring_this_task();
		pthread_mutex_unlock(&ch->lock);
	}
	ch->held = false;
	if (ch->whole_done)	/* else it is the front of a chunk, kept over a timeout */
		ch->whole.len = 0;
	ch->whole_done = false;
	ret = recv_until(ch, chunk, until);
	/* For who polls the ring's descriptor. */
	if (ch->ring.on && ch->armed_at == ch->taken_at && !ch->gone)
		wait_ring(ch, 0);
	show_kept(ch);
	return ret;
}

/* ------------------------------------------------------------ its descriptor */

static int make_poll_fd(struct kchannel *ch)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int fd = epoll_create1(EPOLL_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	if (!epoll_ctl(fd, EPOLL_CTL_ADD, ch->ring.on ? ch->ring.ring.ring_fd : ch->fd, &ev) &&
	    !epoll_ctl(fd, EPOLL_CTL_ADD, ch->wake_fd, &ev)) {
		ch->poll_fd = fd;
		return 0;
	}
	err = errno;
	close(fd);
	return -err;
}

static int kc_fd(struct sits_channel *base)
{
	struct kchannel *ch = channel_of(base);
	int ret = 0;

	pthread_mutex_lock(&ch->lock);
	if (ch->poll_fd < 0)
		ret = make_poll_fd(ch);
	pthread_mutex_unlock(&ch->lock);
	return ret ? ret : ch->poll_fd;
}

/* ------------------------------------------------------- opening and closing */

static void free_channel(struct kchannel *ch)
{
	if (ch->arena) {
		explicit_bzero(ch->arena + SITS_ARENA_CTL, ch->tx_used);
		explicit_bzero(ch->arena + ch->rx_off, ch->rx_used);
		munmap(ch->arena, ch->arena_bytes);
	}
	sits_whole_fini(&ch->whole);
	if (ch->poll_fd >= 0)
		close(ch->poll_fd);
	if (ch->fd >= 0)
		close(ch->fd);
	if (ch->wake_fd >= 0)
		close(ch->wake_fd);
	pthread_mutex_destroy(&ch->lock);
	free(ch);
}

/* The RECVs that closing the descriptor has ended hold the channel until they are collected. */
static void end_ring(struct kchannel *ch)
{
	uint64_t limit = sits_now_ns() + FINI_LIMIT_NS;

	while (ch->ring.on) {
		while (collect_one(ch))
			;
		while (is_next_here(ch))
			ch->taken_at++;
		if (ch->taken_at == ch->armed_at || sits_now_ns() >= limit ||
		    sits_kring_turn(&ch->ring, 100 * SITS_NSEC_PER_MSEC))
			break;
	}
	sits_kring_fini(&ch->ring);
}

static void kc_close(struct sits_channel *base)
{
	struct kchannel *ch = channel_of(base);

	close(ch->fd);	/* the channel ends with its user, also where a forked child has the descriptor */
	ch->fd = -1;
	end_ring(ch);
	free_channel(ch);
}

static int explain_open(struct kchannel *ch, int err)
{
	struct sits_ctx *ctx = ch->base.ctx;

	switch (err) {
	case -ENOENT:
		sits_log(ctx, SITS_LOG_ERR,
			 "queue '%s': no daemon serves it in %s: start sitsd there (provider 'kernel' or 'auto'), or choose provider 'user'",
			 ch->name, SITS_DEV_PATH);
		break;
	case -EACCES:
		sits_log(ctx, SITS_LOG_ERR,
			 "queue '%s': uid %u may not open it: join the group of the daemon, or have the daemon open its mode",
			 ch->name, (unsigned int)geteuid());
		break;
	case -EBUSY:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': the daemon has as many clients as it takes (max_clients): try again later",
			 ch->name);
		break;
	case -ENOTTY:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': this module has no queues: load a newer one, or choose provider 'user'",
			 ch->name);
		break;
	default:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': opening a channel with an arena of %" PRIu64 " bytes: %s", ch->name,
			 ch->arena_bytes, strerror(-err));
	}
	return err;
}

static void lay_out(struct kchannel *ch, uint64_t wanted)
{
	uint64_t bytes = wanted ? SITS_MAX(wanted, (uint64_t)SITS_ARENA_MIN) : SITS_ARENA_DEFAULT, rx;

	bytes = (bytes + SITS_ARENA_CTL - 1) / SITS_ARENA_CTL * SITS_ARENA_CTL;
	rx = SITS_MAX(bytes / 4 / SITS_ARENA_CTL * SITS_ARENA_CTL, (uint64_t)SITS_ARENA_RX_MIN);
	ch->arena_bytes = bytes;
	ch->tx_bytes = bytes - SITS_ARENA_CTL - rx;
	ch->rx_off = bytes - rx;
	ch->room_bytes = (uint32_t)(rx / NR_ROOMS / 64 * 64);	/* of a cache line */
}

static int open_in_kernel(struct kchannel *ch)
{
	struct sits_channel_create arg = {
		.size = sizeof(arg), .arena_bytes = ch->arena_bytes, .fd_flags = O_CLOEXEC, .fd = -1,
	};
	void *p;
	int ret;

	memcpy(arg.queue, ch->name, strlen(ch->name));
	ret = sits_ioctl(ch->base.ctx->dev_fd, SITS_IOC_CHANNEL_OPEN, &arg);
	if (ret)
		return explain_open(ch, ret);
	ch->fd = arg.fd;
	p = mmap(NULL, ch->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ch->fd, 0);
	if (p == MAP_FAILED)
		return explain_open(ch, -errno);
	ch->arena = p;
	madvise(p, ch->arena_bytes, MADV_DONTFORK);
	madvise(p, ch->arena_bytes, MADV_DONTDUMP);
	return 0;
}

static const struct sits_channel_ops kc_ops = {
	.close = kc_close,
	.submit = kc_submit,
	.recv = kc_recv,
	.cancel = kc_cancel,
	.fd = kc_fd,
};

int sits_kernel_channel_open(struct sits_ctx *ctx, const char *name, uint64_t arena_bytes, struct sits_channel **out)
{
	struct kchannel *ch;
	int ret;

	if (arena_bytes > SITS_ARENA_MAX) {
		sits_log(ctx, SITS_LOG_ERR, "channel '%s': an arena of %" PRIu64 " bytes; at most %u", name, arena_bytes,
			 SITS_ARENA_MAX);
		return -EINVAL;
	}
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	ch->base.ops = &kc_ops;
	ch->base.ctx = ctx;
	ch->fd = ch->poll_fd = -1;
	memcpy(ch->name, name, strlen(name));	/* checked: shorter than name[] */
	pthread_mutex_init(&ch->lock, NULL);
	lay_out(ch, arena_bytes);
	ch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = ch->wake_fd < 0 ? -errno : open_in_kernel(ch);
	if (ret) {
		free_channel(ch);
		return ret;
	}
	ch->receiver = sits_kring_this_task();
	sits_kring_init(&ch->ring, ctx, "channel", false, ch->wake_fd);
	if (ch->ring.on)
		wait_ring(ch, 0);
	*out = &ch->base;
	return 0;
}
