// SPDX-License-Identifier: MIT
/*
 * kernel_ring.c - see kernel_ring.h.
 */
#include "libsits/kernel_ring.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libsits/device.h"
#include "libsits/wire.h"

#define ENTRIES 16
/* Waits with a time limit that need no entry (5.11), completions that are never dropped (5.5), commands (5.19). */
#define NEEDED (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_CQE_SKIP)


/*
 * Going to sleep and being woken costs more than all else of a short request, most in a virtual machine. So a wait looks at the
 * ring's memory first, for at most SPIN_NS ($SITS_SPIN_US; as long as KVM polls before it halts a processor), but only where the
 * last wait was hardly longer; and after it has looked in vain, not for the next SPIN_PAUSE waits.
 */
#define SPIN_NS (200 * 1000u)
#define SPIN_US_MAX 10000
#define SPIN_PAUSE 16
#define SPIN_LOOKS 32		/* at the ring, between two at the clock */

static __thread int own_tid;

int sits_kring_this_task(void)
{
	if (!own_tid)
		own_tid = gettid();
	return own_tid;
}

static int init_ring(struct sits_kring *r, unsigned int flags)
{
	struct io_uring_params params = { .flags = IORING_SETUP_CLAMP | flags };
	int ret = io_uring_queue_init_params(ENTRIES, &r->ring, &params);

	if (ret)
		return ret;
	if ((params.features & NEEDED) != NEEDED) {
		io_uring_queue_exit(&r->ring);
		return -ENOSYS;
	}
	io_uring_ring_dontfork(&r->ring);
	return 0;
}

static uint64_t spin_time(void)
{
	const char *us = secure_getenv("SITS_SPIN_US");
	cpu_set_t cpus;

	/* Alone on a processor it would wait for who can not run. */
	if (sched_getaffinity(0, sizeof(cpus), &cpus) || CPU_COUNT(&cpus) < 2)
		return 0;
	return us && *us ? SITS_MIN(strtoul(us, NULL, 10), (unsigned long)SPIN_US_MAX) * 1000u : SPIN_NS;
}

void sits_kring_init(struct sits_kring *r, struct sits_ctx *ctx, const char *who, bool bound, int wake_fd)
{
	int ret = -EINVAL;

	memset(r, 0, sizeof(*r));
	r->wake_fd = wake_fd;
	r->spin_ns = spin_time();
	r->last_wait_ns = UINT64_MAX;
	if (!sits_wire_want_io_uring() || sits_device_is_faked())
		return;
	/* Made disabled, as who makes it need not be who uses it. */
	if (bound)
		ret = init_ring(r, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
				      IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED);
	r->bound = !ret;
	if (ret == -EINVAL)
		ret = init_ring(r, 0);
	r->on = !ret;
	if (ret)
		sits_log(ctx, SITS_LOG_WARN,
			 "%s: io_uring is not available (%s; see the sysctl kernel.io_uring_disabled): using ioctl(2) and poll(2)",
			 who, strerror(-ret));
}

void sits_kring_fini(struct sits_kring *r)
{
	if (!r->on)
		return;
	io_uring_queue_exit(&r->ring);
	r->on = false;
}

bool sits_kring_may_use(struct sits_kring *r)
{
	if (!r->bound)
		return true;
	if (!r->task) {
		r->task = sits_kring_this_task();
		/* By hand: liburing 2.3 declares a function for it, and lacks it. */
		syscall(SYS_io_uring_register, r->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
	}
	return r->task == sits_kring_this_task();
}

struct io_uring_sqe *sits_kring_cmd(struct sits_kring *r, int fd, uint32_t cmd, const void *payload, uint32_t data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	if (!sqe)
		return NULL;
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = cmd;
	memcpy(sqe->cmd, payload, 16);
	io_uring_sqe_set_data64(sqe, sits_kring_user_data(SITS_KRING_CMD, data));
	return sqe;
}

void sits_kring_arm_wake(struct sits_kring *r)
{
	struct io_uring_sqe *sqe;

	if (r->wake_armed)
		return;
	sqe = io_uring_get_sqe(&r->ring);
	if (!sqe)
		return;
	io_uring_prep_poll_multishot(sqe, r->wake_fd, POLLIN);
	io_uring_sqe_set_data64(sqe, sits_kring_user_data(SITS_KRING_WAKE, 0));
	r->wake_armed = true;
}

/* Without a system call: has something completed, or does the kernel have something to do for it? */
static bool is_ready(struct sits_kring *r)
{
	return io_uring_cq_ready(&r->ring) ||
	       IO_URING_READ_ONCE(*r->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

static int collect(struct sits_kring *r)
{
	return r->bound ? io_uring_submit_and_get_events(&r->ring) : io_uring_submit(&r->ring);
}

/* Return: what submitting did; *@ready: something is there. */
static int spin(struct sits_kring *r, uint64_t until_ns, bool *ready)
{
	int ret = io_uring_submit(&r->ring);
	unsigned int looks = 0;

	*ready = ret < 0;
	while (!*ready) {
		*ready = is_ready(r);
		if (++looks % SPIN_LOOKS == 0 && sits_now_ns() >= until_ns)
			break;
		__builtin_ia32_pause();
	}
	if (!*ready)
		r->spin_off = SPIN_PAUSE;
	else if (ret >= 0 && !io_uring_cq_ready(&r->ring))
		ret = collect(r);
	return ret;
}

static int sleep_in_ring(struct sits_kring *r, uint64_t timeout_ns)
{
	struct __kernel_timespec ts = {
		.tv_sec = (long long)(timeout_ns / SITS_NSEC_PER_SEC),
		.tv_nsec = (long long)(timeout_ns % SITS_NSEC_PER_SEC),
	};
	struct io_uring_cqe *cqe;

	return io_uring_submit_and_wait_timeout(&r->ring, &cqe, 1, timeout_ns == SITS_KRING_FOREVER ? NULL : &ts, NULL);
}

static int wait_in_ring(struct sits_kring *r, uint64_t timeout_ns)
{
	bool may_spin = !r->spin_off && r->last_wait_ns <= 2 * r->spin_ns, ready = false;
	uint64_t start;
	int ret = 0;

	if (!r->spin_ns)
		return sleep_in_ring(r, timeout_ns);
	start = sits_now_ns();
	if (may_spin)
		ret = spin(r, start + SITS_MIN(r->spin_ns, timeout_ns), &ready);
	else if (r->spin_off)
		r->spin_off--;
	if (!ready)
		ret = sleep_in_ring(r, timeout_ns);
	r->last_wait_ns = sits_now_ns() - start;
	return ret;
}

int sits_kring_turn(struct sits_kring *r, uint64_t timeout_ns)
{
	int ret = timeout_ns ? wait_in_ring(r, timeout_ns) : collect(r);

	if (ret == -ETIME || ret == -EINTR || ret == -EAGAIN || ret == -EBUSY || ret >= 0)
		return 0;
	return ret;
}

static void woken(struct sits_kring *r, const struct io_uring_cqe *cqe)
{
	if (!(cqe->flags & IORING_CQE_F_MORE))
		r->wake_armed = false;
}

bool sits_kring_next(struct sits_kring *r, uint32_t *data, int *res)
{
	struct io_uring_cqe *cqe;
	uint64_t d;

	while (!io_uring_peek_cqe(&r->ring, &cqe)) {
		d = cqe->user_data;
		*data = (uint32_t)(d >> 8);
		*res = cqe->res;
		if ((uint8_t)d == SITS_KRING_WAKE)
			woken(r, cqe);
		io_uring_cqe_seen(&r->ring, cqe);
		if ((uint8_t)d == SITS_KRING_CMD)
			return true;
	}
	return false;
}
