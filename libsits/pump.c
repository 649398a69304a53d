// SPDX-License-Identifier: MIT
/*
 * pump.c - a file goes through a function on all cores, with reads (and writes) in flight.
 *
 * Spans are claimed in order, so when one fails all before it have been claimed too; those are finished,
 * which makes the lowest failing offset the same on every run. Nothing here knows what a span holds.
 *
 * One mutex guards the failure and the count of workers; claiming and progress are atomics.
 */
#include "libsits/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libsits/secret.h"

#define DEPTH_DST	8	/* spans in flight per worker, where they go to their final place */
#define DEPTH_BUFFERS	3	/* and where each needs a buffer */
#define THREADS_MAX	256
#define PROGRESS_NS	100000000L

struct run {
	struct sits_pump *p;
	uint64_t nr_spans;
	uint64_t next_span;	/* atomic */
	uint64_t done_bytes;	/* atomic */
	bool stop;		/* atomic: claim no more */
	bool no_direct;		/* atomic: the filesystem refused O_DIRECT */
	pthread_mutex_t lock;
	pthread_cond_t changed;	/* a worker ended */
	unsigned int nr_working;
	int err;		/* of the failure at p->fail_off */
};

struct slot {
	uint64_t off;		/* of the span, from the start of the input */
	size_t len, done;
	uint8_t *buf;
	bool busy, writing, direct;
};

struct worker {
	struct run *run;
	struct io_uring ring;
	uint8_t *bufs;
	unsigned int depth, nr_busy;
	struct slot slots[DEPTH_DST];
};

size_t sits_pump_span(uint32_t chunk_bytes)
{
	return chunk_bytes > SITS_PUMP_SPAN_BYTES ? chunk_bytes : SITS_PUMP_SPAN_BYTES;
}

static void run_fail(struct run *r, int err, enum sits_pump_stage stage, uint64_t off)
{
	struct sits_pump *p = r->p;

	pthread_mutex_lock(&r->lock);
	if (!r->err || off < p->fail_off) {
		r->err = err;
		p->fail_stage = stage;
		p->fail_off = off;
	}
	pthread_mutex_unlock(&r->lock);
	__atomic_store_n(&r->stop, true, __ATOMIC_RELAXED);
}

static bool stopped(const struct run *r)
{
	return __atomic_load_n(&r->stop, __ATOMIC_RELAXED);
}

static bool claim(struct worker *w, struct slot *s)
{
	struct run *r = w->run;
	struct sits_pump *p = r->p;
	uint64_t i;

	if (stopped(r))
		return false;
	i = __atomic_fetch_add(&r->next_span, 1, __ATOMIC_RELAXED);
	if (i >= r->nr_spans)
		return false;
	s->off = i * p->span_bytes;
	s->len = p->total_bytes - s->off < p->span_bytes ? p->total_bytes - s->off : p->span_bytes;
	s->done = 0;
	s->buf = p->dst ? p->dst + s->off : w->bufs + (size_t)(s - w->slots) * p->span_bytes;
	s->writing = false;
	s->direct = p->in_direct_fd >= 0 && !__atomic_load_n(&r->no_direct, __ATOMIC_RELAXED);
	return true;
}

/* Direct reads want whole blocks: the last one is asked for whole and comes back as long as the file is. */
static size_t left_to_read(const struct slot *s)
{
	size_t left = s->len - s->done;

	return s->direct ? (left + SITS_PUMP_ALIGN - 1) & ~(size_t)(SITS_PUMP_ALIGN - 1) : left;
}

/*
 * What a read gave (bytes or -errno). Return: true if the slot's read ended, with the span whole or the
 * failure noted; false if there is more to read.
 */
static bool read_advance(struct worker *w, struct slot *s, ssize_t res)
{
	struct run *r = w->run;

	if (res == -EINTR || res == -EAGAIN)
		return false;
	if (res == -EINVAL && s->direct) {
		__atomic_store_n(&r->no_direct, true, __ATOMIC_RELAXED);
		s->direct = false;
		return false;
	}
	if (res <= 0) {
		run_fail(r, res ? (int)res : -ENODATA, res ? SITS_PUMP_READ : SITS_PUMP_EOF, s->off + s->done);
		return true;
	}
	s->done += (size_t)res;
	if (s->done >= s->len) {
		s->done = s->len;
		return true;
	}
	if (s->done % SITS_PUMP_ALIGN)
		s->direct = false;
	return false;
}

/* As read_advance(), for a write. */
static bool write_advance(struct worker *w, struct slot *s, ssize_t res)
{
	if (res == -EINTR || res == -EAGAIN)
		return false;
	if (res <= 0) {
		run_fail(w->run, res ? (int)res : -EIO, SITS_PUMP_WRITE, s->off + s->done);
		return true;
	}
	s->done += (size_t)res;
	return s->done >= s->len;
}

static void count_done(struct worker *w, const struct slot *s)
{
	struct sits_pump *p = w->run->p;

	/* Start writing out now, so that the fsync() at the end finds little left to do. */
	if (p->out_fd >= 0)
		sync_file_range(p->out_fd, (off_t)(p->out_off + s->off), (off_t)s->len, SYNC_FILE_RANGE_WRITE);
	__atomic_fetch_add(&w->run->done_bytes, s->len, __ATOMIC_RELAXED);
}

/* The span is there: work on it. Return: true if it is to be written now. */
static bool work_on(struct worker *w, struct slot *s)
{
	struct run *r = w->run;
	struct sits_pump *p = r->p;
	uint64_t bad = s->off;
	int ret;

	ret = p->work ? p->work(p->arg, s->off, s->buf, s->len, &bad) : 0;
	if (ret) {
		run_fail(r, ret, SITS_PUMP_WORK, bad);
		return false;
	}
	if (p->out_fd < 0) {
		count_done(w, s);
		return false;
	}
	s->writing = true;
	s->done = 0;
	return true;
}

/* Is the failure, if there is one, after this span? Then the span may hold an earlier one: finish it. */
static bool worth_finishing(struct run *r, const struct slot *s)
{
	bool ret;

	if (!stopped(r))
		return true;
	pthread_mutex_lock(&r->lock);
	ret = r->err && r->err != -ECANCELED && s->off < r->p->fail_off;
	pthread_mutex_unlock(&r->lock);
	return ret;
}

static void submit_slot(struct worker *w, struct slot *s)
{
	struct sits_pump *p = w->run->p;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);

	/* The ring has an entry for every slot, so there always is one. */
	if (s->writing)
		io_uring_prep_write(sqe, p->out_fd, s->buf + s->done, (unsigned int)(s->len - s->done),
				    p->out_off + s->off + s->done);
	else
		io_uring_prep_read(sqe, s->direct ? p->in_direct_fd : p->in_fd, s->buf + s->done,
				   (unsigned int)left_to_read(s), p->in_off + s->off + s->done);
	io_uring_sqe_set_data(sqe, s);
}

static void slot_free(struct worker *w, struct slot *s)
{
	s->busy = false;
	w->nr_busy--;
}

/* A completion arrived. */
static void slot_advance(struct worker *w, struct slot *s, int res)
{
	struct run *r = w->run;
	bool ended = s->writing ? write_advance(w, s, res) : read_advance(w, s, res);

	if (!worth_finishing(r, s)) {
		slot_free(w, s);
		return;
	}
	if (!ended) {
		submit_slot(w, s);
		return;
	}
	if (s->done == s->len) {
		if (s->writing) {
			count_done(w, s);
		} else if (work_on(w, s)) {
			submit_slot(w, s);
			return;
		}
	}
	slot_free(w, s);
}

static void fill_slots(struct worker *w)
{
	unsigned int i;

	for (i = 0; i < w->depth; i++) {
		struct slot *s = &w->slots[i];

		if (s->busy)
			continue;
		if (!claim(w, s))
			return;
		s->busy = true;
		w->nr_busy++;
		submit_slot(w, s);
	}
}

static void worker_uring(struct worker *w)
{
	struct io_uring_cqe *cqe;
	struct slot *s;
	int ret, res;

	for (;;) {
		fill_slots(w);
		if (!w->nr_busy)
			return;
		ret = io_uring_submit_and_wait(&w->ring, 1);
		if (ret < 0 && ret != -EINTR && ret != -EAGAIN && ret != -EBUSY)
			run_fail(w->run, ret, SITS_PUMP_SETUP, 0);
		while (!io_uring_peek_cqe(&w->ring, &cqe)) {
			s = io_uring_cqe_get_data(cqe);
			res = cqe->res;
			io_uring_cqe_seen(&w->ring, cqe);
			slot_advance(w, s, res);
			/* Let the freed slot's next read run while the next span is worked on. */
			fill_slots(w);
			io_uring_submit(&w->ring);
		}
	}
}

static void worker_sync(struct worker *w)
{
	struct sits_pump *p = w->run->p;
	struct slot *s = &w->slots[0];
	ssize_t n;

	while (claim(w, s)) {
		do {
			n = pread(s->direct ? p->in_direct_fd : p->in_fd, s->buf + s->done, left_to_read(s),
				  (off_t)(p->in_off + s->off + s->done));
		} while (!read_advance(w, s, n < 0 ? -errno : n));
		if (s->done < s->len || !worth_finishing(w->run, s) || !work_on(w, s))
			continue;
		do {
			n = pwrite(p->out_fd, s->buf + s->done, s->len - s->done,
				   (off_t)(p->out_off + s->off + s->done));
		} while (!write_advance(w, s, n < 0 ? -errno : n));
		if (s->done == s->len)
			count_done(w, s);
	}
}

/*
 * A ring that can be made may still be of no use: a filter of system calls may refuse to enter it, and kernels before 5.6
 * have no plain reads. To find out later would be too late, with spans in flight.
 */
static bool ring_works(struct io_uring *ring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool ok = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
		  io_uring_opcode_supported(probe, IORING_OP_WRITE);
	struct io_uring_cqe *cqe;

	if (probe)
		io_uring_free_probe(probe);
	if (!ok)
		return false;
	io_uring_prep_nop(io_uring_get_sqe(ring));
	if (io_uring_submit_and_wait(ring, 1) != 1 || io_uring_peek_cqe(ring, &cqe))
		return false;
	io_uring_cqe_seen(ring, cqe);
	return true;
}

static bool ring_open(struct io_uring *ring)
{
	if (io_uring_queue_init(DEPTH_DST, ring, 0))
		return false;
	if (ring_works(ring))
		return true;
	io_uring_queue_exit(ring);
	return false;
}

static void worker_run(struct run *r)
{
	struct sits_pump *p = r->p;
	struct worker w = { .run = r, .depth = p->dst ? DEPTH_DST : DEPTH_BUFFERS };
	bool uring = !(p->flags & SITS_PUMP_NO_URING) && ring_open(&w.ring);
	size_t bufs_bytes;

	if (!uring)
		w.depth = 1;
	bufs_bytes = p->dst ? 0 : w.depth * p->span_bytes;
	if (bufs_bytes) {
		w.bufs = sits_scratch_alloc(bufs_bytes);
		if (!w.bufs) {
			run_fail(r, -ENOMEM, SITS_PUMP_SETUP, 0);
			goto out;
		}
	}
	if (uring)
		worker_uring(&w);
	else
		worker_sync(&w);
	sits_secret_free(w.bufs, bufs_bytes);
out:
	if (uring)
		io_uring_queue_exit(&w.ring);
}

static void *worker_main(void *arg)
{
	struct run *r = arg;

	worker_run(r);
	pthread_mutex_lock(&r->lock);
	r->nr_working--;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static unsigned int nr_workers(const struct run *r)
{
	unsigned int n = r->p->threads;
	cpu_set_t set;

	if (!n)
		n = sched_getaffinity(0, sizeof(set), &set) ? (unsigned int)sysconf(_SC_NPROCESSORS_ONLN) :
			(unsigned int)CPU_COUNT(&set);
	if (n > THREADS_MAX)
		n = THREADS_MAX;
	if (n > r->nr_spans)
		n = (unsigned int)r->nr_spans;
	return n ? n : 1;
}

static int report(struct run *r)
{
	struct sits_pump *p = r->p;
	uint64_t done = __atomic_load_n(&r->done_bytes, __ATOMIC_RELAXED);

	if (!p->progress || !p->progress(p->progress_arg, done, p->total_bytes))
		return 0;
	run_fail(r, -ECANCELED, SITS_PUMP_OK, 0);
	return -ECANCELED;
}

/* Wait for the workers, and tell about progress meanwhile. */
static void watch(struct run *r)
{
	struct timespec until;

	pthread_mutex_lock(&r->lock);
	while (r->nr_working) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += PROGRESS_NS;
		if (until.tv_nsec >= 1000000000L) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000L;
		}
		pthread_cond_timedwait(&r->changed, &r->lock, &until);
		if (!r->nr_working || stopped(r))
			continue;
		pthread_mutex_unlock(&r->lock);
		report(r);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
}

static void run_workers(struct run *r)
{
	pthread_t threads[THREADS_MAX];
	unsigned int i, started = 0, n = nr_workers(r);
	sigset_t all, before;

	/* The caller's handlers run in the caller's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r->nr_working = n;
	for (i = 0; i < n; i++)
		if (!pthread_create(&threads[started], NULL, worker_main, r))
			started++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_mutex_lock(&r->lock);
	r->nr_working -= n - started;
	pthread_mutex_unlock(&r->lock);
	if (!started)
		worker_run(r);
	watch(r);
	for (i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

int sits_pump_run(struct sits_pump *p)
{
	struct run r = { .p = p };
	pthread_condattr_t attr;

	p->fail_stage = SITS_PUMP_OK;
	p->fail_off = 0;
	r.nr_spans = p->total_bytes / p->span_bytes + !!(p->total_bytes % p->span_bytes);
	pthread_mutex_init(&r.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r.changed, &attr);
	pthread_condattr_destroy(&attr);
	if (!report(&r) && r.nr_spans)
		run_workers(&r);
	if (!r.err)
		report(&r);
	pthread_cond_destroy(&r.changed);
	pthread_mutex_destroy(&r.lock);
	return r.err;
}
