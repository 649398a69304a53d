// SPDX-License-Identifier: MIT
/*
 * pump.c - files go through a function on all cores, with reads (and writes) in flight.
 *
 * Spans are claimed in order, so when one fails all before it have been claimed too; those are finished,
 * which makes the lowest failing offset the same on every run. Nothing here knows what a span holds.
 *
 * A span of input that is in the page cache is read by the worker itself, piece by piece, without waiting (RWF_NOWAIT).
 * The first one that is not there shows that reads wait for the disk: from then on it is asked for ahead of the workers.
 *
 * One mutex guards the failure and the counts of workers; claiming and progress are atomics.
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

#include "libsits/internal.h"
#include "libsits/secret.h"

#define DEPTH_DST	8	/* spans in flight per worker, where they go to their final place */
#define DEPTH_BUFFERS	3	/* and where each needs a buffer */
#define THREADS_MAX	256
#define PROGRESS_NS	100000000L
#define AHEAD_BYTES	(16u << 20)	/* asked for before it is claimed, where it is not in the page cache */
#define AHEAD_STEP	(128u << 10)	/* the least that the kernel reads ahead in one call */

/* What a run knows of a part. */
struct part {
	struct sits_pump_part in;
	uint64_t first_span;
	uint64_t asked_for;	/* atomic: bytes of it, ahead of the workers */
	bool no_direct;		/* atomic: the filesystem refused O_DIRECT */
};

struct run {
	struct sits_pump *p;
	struct part *parts;
	unsigned int nr_parts;
	uint64_t nr_spans, total_bytes;
	size_t span_bytes;	/* of the largest */
	bool buffers;		/* spans have no place of their own */
	bool alone;		/* no thread could be started: the caller's works, and tells of progress itself */
	uint64_t told_ns;	/* alone: when it last did */
	uint64_t next_span;	/* atomic */
	uint64_t done_bytes;	/* atomic */
	bool stop;		/* atomic: claim no more */
	pthread_mutex_t lock;
	pthread_cond_t changed;	/* a worker ended */
	unsigned int nr_working;
	unsigned int nr_able;	/* of those that were started: did not give up for want of memory */
	int err;		/* of the failure at p->fail_part and p->fail_off */
};

struct slot {
	struct part *part;
	uint64_t off;		/* of the span, from the start of the part */
	size_t len, done;
	uint8_t *buf;
	bool busy, writing, direct;
};

struct worker {
	struct run *run;
	struct io_uring ring;
	uint8_t *bufs;
	uint8_t *piece;		/* a piece, then the state */
	unsigned int depth, nr_busy;
	unsigned int part;	/* of the last claim: they rise */
	uint64_t read_ns, work_ns;
	struct slot slots[DEPTH_DST];
};

size_t sits_pump_span(uint32_t chunk_bytes)
{
	return chunk_bytes > SITS_PUMP_SPAN_BYTES ? chunk_bytes : SITS_PUMP_SPAN_BYTES;
}

static unsigned int part_index(const struct run *r, const struct part *part)
{
	return (unsigned int)(part - r->parts);
}

/* Is that place before the failure? */
static bool before_failure(const struct run *r, const struct part *part, uint64_t off)
{
	unsigned int i = part_index(r, part);

	return i < r->p->fail_part || (i == r->p->fail_part && part->in.first_off + off < r->p->fail_off);
}

/* @off: from the start of the part. */
static void run_fail(struct run *r, int err, enum sits_pump_stage stage, const struct part *part, uint64_t off)
{
	struct sits_pump *p = r->p;

	pthread_mutex_lock(&r->lock);
	if (!r->err || before_failure(r, part, off)) {
		r->err = err;
		p->fail_stage = stage;
		p->fail_part = part_index(r, part);
		p->fail_off = part->in.first_off + off;
	}
	pthread_mutex_unlock(&r->lock);
	__atomic_store_n(&r->stop, true, __ATOMIC_RELAXED);
}

/* It comes before all else. */
static void run_cancel(struct run *r)
{
	pthread_mutex_lock(&r->lock);
	r->err = -ECANCELED;
	r->p->fail_stage = SITS_PUMP_OK;
	r->p->fail_part = 0;
	r->p->fail_off = 0;
	pthread_mutex_unlock(&r->lock);
	__atomic_store_n(&r->stop, true, __ATOMIC_RELAXED);
}

static bool stopped(const struct run *r)
{
	return __atomic_load_n(&r->stop, __ATOMIC_RELAXED);
}

static int report(struct run *r)
{
	struct sits_pump *p = r->p;
	uint64_t done = __atomic_load_n(&r->done_bytes, __ATOMIC_RELAXED);

	if (!p->progress || !p->progress(p->progress_arg, done, r->total_bytes))
		return 0;
	run_cancel(r);
	return -ECANCELED;
}

/* What watch() does, where there is nobody to watch. */
static void report_at_times(struct run *r)
{
	uint64_t now = sits_now_ns();

	if (now - r->told_ns < PROGRESS_NS)
		return;
	r->told_ns = now;
	report(r);
}

static struct part *find_part(struct worker *w, uint64_t span)
{
	struct run *r = w->run;

	while (w->part + 1 < r->nr_parts && r->parts[w->part + 1].first_span <= span)
		w->part++;
	return &r->parts[w->part];
}

static bool claim(struct worker *w, struct slot *s)
{
	struct run *r = w->run;
	const struct sits_pump_part *in;
	uint64_t i;

	if (r->alone && !stopped(r))
		report_at_times(r);
	if (stopped(r))
		return false;
	i = __atomic_fetch_add(&r->next_span, 1, __ATOMIC_RELAXED);
	if (i >= r->nr_spans)
		return false;
	s->part = find_part(w, i);
	in = &s->part->in;
	s->off = (i - s->part->first_span) * in->span_bytes;
	s->len = in->total_bytes - s->off < in->span_bytes ? in->total_bytes - s->off : in->span_bytes;
	s->done = 0;
	s->buf = in->dst ? in->dst + s->off : w->bufs ? w->bufs + (size_t)(s - w->slots) * r->span_bytes : NULL;
	s->writing = false;
	s->direct = in->in_direct_fd >= 0 && !__atomic_load_n(&s->part->no_direct, __ATOMIC_RELAXED);
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
		__atomic_store_n(&s->part->no_direct, true, __ATOMIC_RELAXED);
		s->direct = false;
		return false;
	}
	if (res <= 0) {
		run_fail(r, res ? (int)res : -ENODATA, res ? SITS_PUMP_READ : SITS_PUMP_EOF, s->part, s->off + s->done);
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
		run_fail(w->run, res ? (int)res : -EIO, SITS_PUMP_WRITE, s->part, s->off + s->done);
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
	const struct sits_pump_part *in = &s->part->in;
	struct run *r = w->run;
	struct sits_pump *p = r->p;
	uint64_t off = in->first_off + s->off, bad = off, start = sits_now_ns();
	int ret;

	ret = p->work ? p->work(in->arg, off, s->buf, s->len, &bad) : 0;
	w->work_ns += sits_now_ns() - start;
	if (ret) {
		run_fail(r, ret, SITS_PUMP_WORK, s->part, bad - in->first_off);
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
	ret = r->err && r->err != -ECANCELED && before_failure(r, s->part, s->off);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

static int slot_fd(const struct slot *s)
{
	return s->direct ? s->part->in.in_direct_fd : s->part->in.in_fd;
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
		io_uring_prep_read(sqe, slot_fd(s), s->buf + s->done, (unsigned int)left_to_read(s),
				   s->part->in.in_off + s->off + s->done);
	io_uring_sqe_set_data(sqe, s);
}

static void slot_free(struct worker *w, struct slot *s)
{
	s->busy = false;
	w->nr_busy--;
}

/* ------------------------------------------------ from the page cache, in pieces */

/* Have the kernel read ahead of what is at @off, if nobody did. It takes little at a time. */
static void ask_for(struct part *part, uint64_t off)
{
	uint64_t asked = __atomic_load_n(&part->asked_for, __ATOMIC_RELAXED), until = off + AHEAD_BYTES;

	if (until > part->in.total_bytes)
		until = part->in.total_bytes;
	if (asked < off)
		asked = off;
	/* What another worker asks for at the same time is asked for twice. */
	if (until <= asked || (until - asked < AHEAD_BYTES / 2 && until < part->in.total_bytes))
		return;
	__atomic_store_n(&part->asked_for, until, __ATOMIC_RELAXED);
	for (; asked < until; asked += AHEAD_STEP)
		posix_fadvise(part->in.in_fd, (off_t)(part->in.in_off + asked), AHEAD_STEP, POSIX_FADV_WILLNEED);
}

/* Read up to @len bytes at @off of the part. Return: bytes; 0 at the end; -errno. */
static ssize_t read_cached(struct part *part, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	off_t at = (off_t)(part->in.in_off + off);
	ssize_t n;

	n = preadv2(part->in.in_fd, &iov, 1, at, RWF_NOWAIT);
	if (n > 0)
		return n;
	/* It is not there, or that can't be said; of what is wrong with it the plain call tells. */
	if (n < 0 && errno == EAGAIN)
		ask_for(part, off);
	n = pread(part->in.in_fd, buf, len, at);
	return n < 0 ? -errno : n;
}

/* Fill the piece. Return: false, with the failure noted, where that can't be. */
static bool read_piece(struct worker *w, const struct slot *s, size_t len)
{
	ssize_t n;
	size_t at;

	for (at = 0; at < len; at += (size_t)n) {
		n = read_cached(s->part, w->piece + at, len - at, s->off + s->done + at);
		if (n == -EINTR || n == -EAGAIN) {
			n = 0;
			continue;
		}
		if (n > 0)
			continue;
		run_fail(w->run, n ? (int)n : -ENODATA, n ? SITS_PUMP_READ : SITS_PUMP_EOF, s->part, s->off + s->done + at);
		return false;
	}
	return true;
}

static bool goes_in_pieces(const struct run *r, const struct slot *s)
{
	return r->p->piece && !s->direct && !s->done;
}

/* All of a span. */
static void work_in_pieces(struct worker *w, struct slot *s)
{
	const struct sits_pump_part *in = &s->part->in;
	struct sits_pump *p = w->run->p;
	uint64_t off, bad, start = sits_now_ns(), then;
	size_t len;
	int ret;

	for (s->done = 0; s->done < s->len; s->done += len) {
		len = s->len - s->done < SITS_PUMP_PIECE_BYTES ? s->len - s->done : SITS_PUMP_PIECE_BYTES;
		if (!worth_finishing(w->run, s) || !read_piece(w, s, len))
			return;
		then = sits_now_ns();
		w->read_ns += then - start;
		off = bad = in->first_off + s->off + s->done;
		ret = p->piece(in->arg, w->piece + SITS_PUMP_PIECE_BYTES, off, in->dst ? in->dst + s->off + s->done : NULL,
			       w->piece, len, &bad);
		start = sits_now_ns();
		w->work_ns += start - then;
		if (ret) {
			run_fail(w->run, ret, SITS_PUMP_WORK, s->part, bad - in->first_off);
			return;
		}
	}
	count_done(w, s);
}

/* ------------------------------------------------------------------ by io_uring */

/* A completion arrived. */
static void slot_advance(struct worker *w, struct slot *s, int res)
{
	struct run *r = w->run;
	bool ended = s->writing ? write_advance(w, s, res) : read_advance(w, s, res);

	if (!worth_finishing(r, s)) {
		slot_free(w, s);
		return;
	}
	if (!ended && goes_in_pieces(r, s)) {	/* the file system refused direct reads */
		work_in_pieces(w, s);
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
		if (goes_in_pieces(w->run, s)) {
			work_in_pieces(w, s);
			i--;
			continue;
		}
		s->busy = true;
		w->nr_busy++;
		submit_slot(w, s);
	}
}

static void worker_uring(struct worker *w)
{
	struct io_uring_cqe *cqe;
	struct slot *s;
	uint64_t start;
	int ret, res;

	for (;;) {
		fill_slots(w);
		if (!w->nr_busy)
			return;
		start = sits_now_ns();
		ret = io_uring_submit_and_wait(&w->ring, 1);
		w->read_ns += sits_now_ns() - start;
		if (ret < 0 && ret != -EINTR && ret != -EAGAIN && ret != -EBUSY)
			run_fail(w->run, ret, SITS_PUMP_SETUP, w->run->parts, 0);
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

/* Read a span, by calls that wait. Return: false where it went in pieces, and nothing is left to do. */
static bool read_sync(struct worker *w, struct slot *s)
{
	ssize_t n;

	do {
		if (goes_in_pieces(w->run, s)) {
			work_in_pieces(w, s);
			return false;
		}
		n = pread(slot_fd(s), s->buf + s->done, left_to_read(s), (off_t)(s->part->in.in_off + s->off + s->done));
	} while (!read_advance(w, s, n < 0 ? -errno : n));
	return true;
}

static void worker_sync(struct worker *w)
{
	struct sits_pump *p = w->run->p;
	struct slot *s = &w->slots[0];
	uint64_t start;
	bool whole;
	ssize_t n;

	while (claim(w, s)) {
		start = sits_now_ns();
		whole = read_sync(w, s);
		if (whole)
			w->read_ns += sits_now_ns() - start;
		if (!whole || s->done < s->len || !worth_finishing(w->run, s) || !work_on(w, s))
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

/* A worker that has no memory, and claimed nothing yet, leaves the work to the others; the last one fails. */
static void give_up(struct run *r, size_t bytes)
{
	bool alone;

	pthread_mutex_lock(&r->lock);
	alone = !--r->nr_able;
	if (alone)
		r->p->fail_bytes = bytes;
	pthread_mutex_unlock(&r->lock);
	if (alone)
		run_fail(r, -ENOMEM, SITS_PUMP_SETUP, r->parts, 0);
}

static void worker_go(struct worker *w, bool uring)
{
	struct run *r = w->run;
	struct sits_pump *p = r->p;
	size_t bufs_bytes = r->buffers ? w->depth * r->span_bytes : 0;
	size_t piece_bytes = p->piece ? SITS_PUMP_PIECE_BYTES + p->state_bytes : 0;

	if (bufs_bytes)
		w->bufs = sits_scratch_alloc(bufs_bytes);
	if (piece_bytes)
		w->piece = sits_scratch_alloc(piece_bytes);
	if ((bufs_bytes && !w->bufs) || (piece_bytes && !w->piece))
		give_up(r, bufs_bytes + piece_bytes);
	else if (uring)
		worker_uring(w);
	else
		worker_sync(w);
	sits_secret_free(w->bufs, bufs_bytes);
	sits_secret_free(w->piece, piece_bytes);
	pthread_mutex_lock(&r->lock);
	p->read_ns += w->read_ns;
	p->work_ns += w->work_ns;
	pthread_mutex_unlock(&r->lock);
}

static void worker_run(struct run *r)
{
	struct worker w = { .run = r, .depth = r->buffers ? DEPTH_BUFFERS : DEPTH_DST };
	bool uring = !(r->p->flags & SITS_PUMP_NO_URING) && ring_open(&w.ring);

	if (!uring)
		w.depth = 1;
	worker_go(&w, uring);
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
	/* None ends, or gives up, before it is known how many there are. */
	pthread_mutex_lock(&r->lock);
	for (i = 0; i < n; i++)
		if (!pthread_create(&threads[started], NULL, worker_main, r))
			started++;
	r->nr_working = started;
	r->nr_able = started ? started : 1;
	pthread_mutex_unlock(&r->lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	r->alone = !started;
	if (r->alone)
		worker_run(r);
	watch(r);
	for (i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

static void add_part(struct run *r, const struct sits_pump_part *in)
{
	struct part *part = &r->parts[r->nr_parts++];

	part->in = *in;
	part->first_span = r->nr_spans;
	r->nr_spans += in->total_bytes / in->span_bytes + !!(in->total_bytes % in->span_bytes);
	r->total_bytes += in->total_bytes;
	if (in->span_bytes > r->span_bytes)
		r->span_bytes = in->span_bytes;
	/* Spans that go in pieces need none. */
	if (!in->dst && (in->in_direct_fd >= 0 || !r->p->piece))
		r->buffers = true;
}

static int list_parts(struct run *r)
{
	struct sits_pump *p = r->p;
	const struct sits_pump_part only = {
		.in_fd = p->in_fd, .in_direct_fd = p->in_direct_fd, .in_off = p->in_off, .total_bytes = p->total_bytes,
		.span_bytes = p->span_bytes, .dst = p->dst, .arg = p->arg,
	};
	unsigned int i;

	r->parts = calloc(p->nr_parts + 1, sizeof(*r->parts));
	if (!r->parts)
		return -ENOMEM;
	if (!p->parts)
		add_part(r, &only);
	for (i = 0; p->parts && i < p->nr_parts; i++)
		add_part(r, &p->parts[i]);
	return 0;
}

int sits_pump_run(struct sits_pump *p)
{
	struct run r = { .p = p };
	pthread_condattr_t attr;

	p->fail_stage = SITS_PUMP_OK;
	p->fail_part = 0;
	p->fail_off = p->fail_bytes = 0;
	p->read_ns = p->work_ns = 0;
	if (list_parts(&r)) {
		p->fail_stage = SITS_PUMP_SETUP;
		return -ENOMEM;
	}
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
	free(r.parts);
	return r.err;
}
