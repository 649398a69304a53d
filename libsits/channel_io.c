// SPDX-License-Identifier: MIT
/*
 * channel_io.c - see channel_io.h.
 *
 * The ring may be used by any thread that holds the channel's lock, so it is set up without
 * SINGLE_ISSUER. Where the thread that armed the receive ends, the kernel cancels it; the next call
 * arms it again.
 */
#include "libsits/channel_io.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define SQ_ENTRIES 8
#define CQ_ENTRIES 256
#define NR_BUFS 128u		/* power of two; fewer than CQ_ENTRIES, so completions never overflow */
#define BUF_GROUP 0
#define DATA_RECV 0		/* user_data; sends count from 1, as they never are in flight */
#define NEEDED (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_CQE_SKIP)
#define FINI_LIMIT_NS (10 * SITS_NSEC_PER_SEC)
#define ARM_TRIES 8		/* of a receive that ends at once; then, or where the kernel has no memory for one, */
#define ARM_AGAIN_NS (10 * SITS_NSEC_PER_MSEC)	/* it is tried again so soon */

#define BUF_RING_BYTES (NR_BUFS * sizeof(struct io_uring_buf))
#define MAPPING_BYTES (BUF_RING_BYTES + NR_BUFS * SITS_WIRE_MAX)

static void give_buf(struct sits_chio *io, unsigned int index)
{
	io_uring_buf_ring_add(io->buf_ring, io->bufs + index * SITS_WIRE_MAX, SITS_WIRE_MAX,
			      (unsigned short)index, io_uring_buf_ring_mask(NR_BUFS), 0);
	io_uring_buf_ring_advance(io->buf_ring, 1);
}

static int setup_bufs(struct sits_chio *io)
{
	struct io_uring_buf_reg reg = { .ring_entries = NR_BUFS, .bgid = BUF_GROUP };
	void *p;
	int ret;

	p = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	io->buf_ring = p;
	io->bufs = (uint8_t *)p + BUF_RING_BYTES;
	reg.ring_addr = (uint64_t)(uintptr_t)p;
	ret = io_uring_register_buf_ring(&io->ring, &reg, 0);
	if (ret) {
		munmap(p, MAPPING_BYTES);
		return ret;
	}
	io_uring_buf_ring_init(io->buf_ring);
	for (unsigned int i = 0; i < NR_BUFS; i++)
		give_buf(io, i);
	return 0;
}

static int arm_recv(struct sits_chio *io)
{
	struct io_uring_sqe *sqe;
	int ret;

	if (io->recv_armed)
		return 0;
	sqe = io_uring_get_sqe(&io->ring);
	if (!sqe)
		return -EBUSY;
	io_uring_prep_recv_multishot(sqe, io->sock, NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = BUF_GROUP;
	io_uring_sqe_set_data64(sqe, DATA_RECV);
	ret = io_uring_submit(&io->ring);
	if (ret < 0)
		return ret;
	io->recv_armed = true;
	return 0;
}

/* A kernel without multishot receive (before 6.0) says so at once. */
static int first_recv(struct sits_chio *io)
{
	struct io_uring_cqe *cqe;
	int ret = arm_recv(io);

	if (!ret && !io_uring_peek_cqe(&io->ring, &cqe) && cqe->res == -EINVAL)
		ret = -ENOSYS;
	return ret;
}

static int init_uring(struct sits_chio *io)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP, .cq_entries = CQ_ENTRIES,
	};
	int ret;

	ret = io_uring_queue_init_params(SQ_ENTRIES, &io->ring, &params);
	if (ret)
		return ret;
	io_uring_ring_dontfork(&io->ring);
	ret = (params.features & NEEDED) == NEEDED ? setup_bufs(io) : -ENOSYS;
	if (ret)
		goto err_ring;
	ret = first_recv(io);
	if (ret)
		goto err_bufs;
	return 0;

err_bufs:
	munmap(io->buf_ring, MAPPING_BYTES);
err_ring:
	io_uring_queue_exit(&io->ring);
	return ret;
}

int sits_chio_init(struct sits_chio *io, struct sits_ctx *ctx, int sock)
{
	int ret = -ENOSYS;

	memset(io, 0, sizeof(*io));
	io->ctx = ctx;
	io->sock = sock;
	if (!sits_wire_want_io_uring())
		return 0;
	ret = init_uring(io);
	io->uring = !ret;
	if (ret)
		sits_log(ctx, SITS_LOG_WARN,
			 "channel: io_uring is not available (%s; see the sysctl kernel.io_uring_disabled): using poll(2) and recv(2)",
			 strerror(-ret));
	return 0;
}

/* The receive writes into our buffers, so it must have ended before they go. */
void sits_chio_fini(struct sits_chio *io)
{
	uint64_t limit = sits_now_ns() + FINI_LIMIT_NS;
	uint8_t buf[SITS_WIRE_MAX];

	if (!io->uring)
		return;
	while (io->recv_armed && sits_now_ns() < limit)
		if (!sits_chio_next(io, buf))
			sits_chio_wait(io, SITS_NSEC_PER_SEC);
	io_uring_queue_exit(&io->ring);
	if (!io->recv_armed)
		munmap(io->buf_ring, MAPPING_BYTES);
}

/* A send never waits, so it has ended when submit returns; only a failure leaves a completion. */
static int send_uring(struct sits_chio *io, const void *msg, size_t len)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&io->ring);
	struct io_uring_cqe *cqe;
	uint64_t id = ++io->next_send;
	unsigned int head;
	int ret;

	if (!sqe)
		return -EAGAIN;
	io_uring_prep_send(sqe, io->sock, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	io_uring_sqe_set_data64(sqe, id);
	ret = io_uring_submit(&io->ring);
	if (ret < 0)
		return ret;
	ret = 0;
	io_uring_for_each_cqe(&io->ring, head, cqe)
		if (cqe->user_data == id)
			ret = cqe->res;
	if (ret == -ECONNRESET || ret == -ENOTCONN)
		return -EPIPE;
	return ret == -ENOBUFS || ret == -ENOMEM || ret == -EINTR ? -EAGAIN : ret;
}

int sits_chio_send(struct sits_chio *io, const void *msg, size_t len)
{
	return io->uring ? send_uring(io, msg, len) : sits_wire_send(io->sock, msg, len);
}

/* What one completion means: > 0 a message's length, 0 nothing, -EPIPE the end. The end is left
 * where it is, so that the ring stays readable. */
static int take_cqe(struct sits_chio *io, struct io_uring_cqe *cqe, void *buf)
{
	unsigned int index;
	int res = cqe->res;

	if (cqe->user_data != DATA_RECV) {
		io_uring_cqe_seen(&io->ring, cqe);
		return 0;
	}
	if (!(cqe->flags & IORING_CQE_F_MORE))
		io->recv_armed = false;
	if (cqe->flags & IORING_CQE_F_BUFFER) {
		index = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
		if (res > 0)
			memcpy(buf, io->bufs + index * SITS_WIRE_MAX, (size_t)res);
		if (res != 0)
			give_buf(io, index);
	}
	if (!res)
		return -EPIPE;
	io_uring_cqe_seen(&io->ring, cqe);
	return res > 0 ? res : 0;
}

/*
 * A receive that ends with an error, as the first one after the daemon's death does, is armed again at once, for what comes
 * after it: whoever waits without one is not woken.
 */
static int next_uring(struct sits_chio *io, void *buf)
{
	struct io_uring_cqe *cqe;
	int ret;

	for (int tries = 0; tries < ARM_TRIES; tries++) {
		while (!io_uring_peek_cqe(&io->ring, &cqe)) {
			ret = take_cqe(io, cqe, buf);
			if (ret)
				return ret;
		}
		if (io->recv_armed)
			break;
		/* What has come meanwhile completes inside the call. */
		ret = arm_recv(io);
		if (ret)
			return ret == -EBUSY || ret == -EAGAIN ? 0 : ret;
	}
	return 0;
}

static int next_plain(struct sits_chio *io, void *buf)
{
	for (;;) {
		ssize_t n = recv(io->sock, buf, SITS_WIRE_MAX, MSG_DONTWAIT);

		if (n > 0)
			return (int)n;
		if (!n)
			return -EPIPE;
		/* ECONNRESET comes once, before what is still to be read and the end. */
		if (errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS)
			return 0;
		if (errno != EINTR && errno != ECONNRESET)
			return -EPIPE;
	}
}

int sits_chio_next(struct sits_chio *io, void *buf)
{
	return io->uring ? next_uring(io, buf) : next_plain(io, buf);
}

int sits_chio_wait(struct sits_chio *io, uint64_t timeout_ns)
{
	uint64_t wait_ns = io->uring && !io->recv_armed ? SITS_MIN(timeout_ns, ARM_AGAIN_NS) : timeout_ns;
	bool for_ever = wait_ns == UINT64_MAX;
	struct __kernel_timespec kts = {
		.tv_sec = (long long)(wait_ns / SITS_NSEC_PER_SEC),
		.tv_nsec = (long long)(wait_ns % SITS_NSEC_PER_SEC),
	};
	struct timespec ts = { .tv_sec = (time_t)kts.tv_sec, .tv_nsec = (long)kts.tv_nsec };
	struct pollfd pfd = { .fd = io->sock, .events = POLLIN };
	struct io_uring_cqe *cqe;
	int ret;

	if (io->uring)
		ret = io_uring_wait_cqe_timeout(&io->ring, &cqe, for_ever ? NULL : &kts);
	else
		ret = ppoll(&pfd, 1, for_ever ? NULL : &ts, NULL) < 0 ? -errno : 0;
	return ret == -ETIME || ret == -EINTR || ret == -EAGAIN ? 0 : ret;
}

int sits_chio_fd(const struct sits_chio *io)
{
	return io->uring ? io->ring.ring_fd : io->sock;
}
