/* SPDX-License-Identifier: MIT */
/*
 * kernel_ring.h - commands to the module by io_uring, as queues and channels of the kernel provider send them.
 *
 * A ring is used by one thread at a time; its owner sees to that. It has an eventfd in it, so that others can
 * end a wait. The ring's mappings are not there in a forked child, its descriptors not after exec.
 */
#ifndef SITS_LIBSITS_KERNEL_RING_H
#define SITS_LIBSITS_KERNEL_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct sits_ctx;

#define SITS_KRING_FOREVER	UINT64_MAX

/* What the low byte of user_data says; the rest is the caller's. */
enum sits_kring_tag { SITS_KRING_CMD = 1, SITS_KRING_WAKE, SITS_KRING_IGNORE };

/*
 * struct sits_kring - embedded in a queue or channel; @on: there is one.
 * @bound: only the thread that used it first may (SINGLE_ISSUER, DEFER_TASKRUN): what completes costs less there
 * @task: that thread; 0 before
 * @spin_ns: how long a wait looks at the ring before it sleeps, where the waits before were short; 0: never
 * @last_wait_ns: how long the last one was
 * @spin_off: waits that sleep at once, as looking was in vain
 */
struct sits_kring {
	struct io_uring ring;
	bool on;
	bool bound;
	bool wake_armed;
	int wake_fd;		/* borrowed */
	int task;
	uint64_t spin_ns, last_wait_ns;
	unsigned int spin_off;
};

/**
 * sits_kring_init() - Make a ring, or not where io_uring is not to be had, SITS_NO_IO_URING is set or a test stands in
 * for the module; where it is not to be had, one line of SITS_LOG_WARN says so.
 * @who: "queue" or "channel", for that line
 * @bound: only one thread will use it
 * @wake_fd: an eventfd; borrowed until fini
 */
void sits_kring_init(struct sits_kring *r, struct sits_ctx *ctx, const char *who, bool bound, int wake_fd);

/** sits_kring_fini() - What is in flight is cancelled by the kernel, some time. */
void sits_kring_fini(struct sits_kring *r);

/** sits_kring_this_task() - The calling thread's number, never 0; cheap. */
int sits_kring_this_task(void);

/** sits_kring_may_use() - May this thread? The first one that asks binds a ring that is to be bound. */
bool sits_kring_may_use(struct sits_kring *r);

/**
 * sits_kring_cmd() - Put a command into the ring, to go with the next submission.
 * @payload: 16 bytes, copied
 * @data: comes back in user_data, above the tag
 * Return: the entry; NULL where the ring is full.
 */
struct io_uring_sqe *sits_kring_cmd(struct sits_kring *r, int fd, uint32_t cmd, const void *payload, uint32_t data);

/** sits_kring_turn() - Submit what is in the ring, and wait for a completion up to @timeout_ns; 0 only collects.
 * Where completions have been coming quickly, it looks for them a while before it sleeps.
 * Return: 0, also on a timeout or a signal; -EEXIST where this thread may not; -errno. */
int sits_kring_turn(struct sits_kring *r, uint64_t timeout_ns);

/** sits_kring_arm_wake() - Have writes to the eventfd end waits; goes with the next submission. */
void sits_kring_arm_wake(struct sits_kring *r);

/** sits_kring_next() - The next completion of a command; those of the eventfd are dealt with in here.
 * Return: false where there is none now. @data: @res: of it. */
bool sits_kring_next(struct sits_kring *r, uint32_t *data, int *res);

static inline uint64_t sits_kring_user_data(enum sits_kring_tag tag, uint32_t data)
{
	return (uint64_t)data << 8 | tag;
}

#pragma GCC visibility pop

#endif
