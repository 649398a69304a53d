// SPDX-License-Identifier: MIT
/*
 * threads.c - see threads.h.
 */
#include "daemon/engine/threads.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/engine/topology.h"

/* About 50 us on today's cores: longer than any stage of a small batch, shorter than a scheduler's slice. */
#define SPINS 2000
/* Two lines: the adjacent-line prefetcher of x86 pairs them. */
#define LINE 128

struct worker {
	struct sits_threads *team;
	pthread_t thread;
	uint32_t self;
};

/*
 * Owned by its creator. next, arrived and phase are the stage machinery; gen starts a run. body
 * and arg are written before gen and read after it.
 */
struct sits_threads {
	_Alignas(LINE) _Atomic size_t next;	/* first unclaimed task of the stage */
	_Alignas(LINE) _Atomic uint32_t arrived;	/* threads that wait at the barrier */
	_Alignas(LINE) _Atomic uint32_t phase;	/* barriers passed; futex */
	_Atomic uint32_t sleepers;		/* in or near a futex wait on phase */
	_Alignas(LINE) _Atomic uint32_t gen;	/* runs started; futex */
	_Atomic uint32_t idle;			/* in or near a futex wait on gen */
	_Atomic bool stop;
	void (*body)(void *arg, uint32_t self);
	void *arg;
	_Alignas(LINE) uint32_t nr;
	uint32_t nodes;				/* of the pinned threads; 0: not pinned */
	bool pinned;
	cpu_set_t old_mask;
	struct worker *worker;			/* [nr]; 0 is the caller, without a thread */
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/*
 * Until *word differs from seen. The sleeper counts itself before it looks again, the waker
 * changes the word before it looks at the count: one of the two always sees the other.
 */
static void wait_change(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleepers)
{
	uint32_t i;

	for (i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != seen)
			return;
		relax();
	}
	atomic_fetch_add(sleepers, 1);
	while (atomic_load(word) == seen)
		futex_wait(word, seen);
	atomic_fetch_sub(sleepers, 1);
}

static void post_change(_Atomic uint32_t *word, _Atomic uint32_t *sleepers)
{
	atomic_fetch_add(word, 1);
	if (atomic_load(sleepers))
		futex_wake_all(word);
}

void sits_threads_stage(struct sits_threads *t, uint32_t self, size_t nr,
			void (*task)(void *arg, size_t i, uint32_t self), void (*tail)(void *arg), void *arg)
{
	uint32_t seen = atomic_load_explicit(&t->phase, memory_order_relaxed);
	size_t i;

	while (nr && (i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < nr)
		task(arg, i, self);
	if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < t->nr) {
		wait_change(&t->phase, seen, &t->sleepers);
		return;
	}
	if (tail)
		tail(arg);
	atomic_store_explicit(&t->next, 0, memory_order_relaxed);
	atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
	post_change(&t->phase, &t->sleepers);
}

void sits_threads_run(struct sits_threads *t, void (*body)(void *arg, uint32_t self), void *arg)
{
	t->body = body;
	t->arg = arg;
	post_change(&t->gen, &t->idle);
	body(arg, 0);
	sits_threads_stage(t, 0, 0, NULL, NULL, NULL);
}

static void *worker_main(void *p)
{
	struct worker *w = p;
	struct sits_threads *t = w->team;
	uint32_t seen = 0;

	for (;;) {
		wait_change(&t->gen, seen, &t->idle);
		seen++;
		if (atomic_load(&t->stop))
			return NULL;
		t->body(t->arg, w->self);
		sits_threads_stage(t, w->self, 0, NULL, NULL, NULL);
	}
}

int sits_threads_start(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
	pthread_attr_t attr;
	int err = pthread_attr_init(&attr);

	if (err)
		return -err;
	err = pthread_attr_setstacksize(&attr, SITS_THREADS_STACK);
	if (!err)
		err = pthread_create(thread, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	return -err;
}

/* The CPUs that this thread may run on; none where the system does not tell. */
static void read_topology(struct sits_topology *topo)
{
	cpu_set_t mask;

	if (sched_getaffinity(0, sizeof(mask), &mask))
		CPU_ZERO(&mask);
	sits_topology_read(SITS_TOPOLOGY_ROOT, &mask, topo);
}

/* Whole CPUs that the cgroup's quota grants; 0 without one. */
static uint32_t cgroup_cpus(void)
{
	unsigned long long quota, period;
	uint32_t n = 0;
	FILE *f;

	f = fopen("/sys/fs/cgroup/cpu.max", "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &quota, &period) == 2 && period)
		n = quota < period ? 1 : quota / period;
	fclose(f);
	return n;
}

uint32_t sits_threads_usable(void)
{
	uint32_t cores, quota = cgroup_cpus();
	struct sits_topology topo;

	read_topology(&topo);
	cores = topo.cores;
	if (quota && quota < cores)
		cores = quota;
	if (cores > SITS_THREADS_MAX)
		cores = SITS_THREADS_MAX;
	return cores ? cores : 1;
}

void sits_threads_plan(uint32_t nr, int pin, cpu_set_t *nodes)
{
	struct sits_topology topo;

	read_topology(&topo);
	if (!nr)
		nr = sits_threads_usable();
	sits_topology_nodes(&topo, pin ? nr : topo.nr, nodes);
}

static void pin_all(struct sits_threads *t)
{
	struct sits_topology topo;
	cpu_set_t one;
	uint32_t i;

	read_topology(&topo);
	if (topo.nr < t->nr || pthread_getaffinity_np(pthread_self(), sizeof(t->old_mask), &t->old_mask))
		return;
	for (i = 0; i < t->nr; i++) {
		CPU_ZERO(&one);
		CPU_SET(topo.cpu[i].cpu, &one);
		/* A CPU that went offline just now leaves its thread where the others may run, too. */
		pthread_setaffinity_np(i ? t->worker[i].thread : pthread_self(), sizeof(one), &one);
	}
	t->pinned = true;
	t->nodes = sits_topology_nodes(&topo, t->nr, NULL);
}

static void stop_workers(struct sits_threads *t, uint32_t started)
{
	uint32_t i;

	atomic_store(&t->stop, true);
	post_change(&t->gen, &t->idle);
	for (i = 1; i < started; i++)
		pthread_join(t->worker[i].thread, NULL);
}

int sits_threads_create(uint32_t nr, int pin, struct sits_threads **out, struct sits_diag *diag)
{
	struct sits_threads *t;
	sigset_t all, old;
	uint32_t i;
	int err = 0;

	if (nr > SITS_THREADS_MAX)
		return sits_diag_fail(diag, -EINVAL, "threads: %u is more than %u", nr, SITS_THREADS_MAX);
	if (!nr)
		nr = sits_threads_usable();
	t = aligned_alloc(LINE, sizeof(*t));
	if (!t)
		return -ENOMEM;
	memset(t, 0, sizeof(*t));
	t->nr = nr;
	t->worker = calloc(nr, sizeof(*t->worker));
	if (!t->worker) {
		free(t);
		return -ENOMEM;
	}
	/* Signals are the process's business; a compute thread takes none but what it causes itself, in a mapping of a file. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (i = 1; i < nr && !err; i++) {
		t->worker[i].team = t;
		t->worker[i].self = i;
		err = sits_threads_start(&t->worker[i].thread, worker_main, &t->worker[i]);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		stop_workers(t, i - 1);
		free(t->worker);
		free(t);
		return sits_diag_fail(diag, err, "threads: starting number %u of %u: %s", i, nr, strerror(-err));
	}
	if (pin)
		pin_all(t);
	*out = t;
	return 0;
}

void sits_threads_destroy(struct sits_threads *t)
{
	if (!t)
		return;
	stop_workers(t, t->nr);
	if (t->pinned)
		pthread_setaffinity_np(pthread_self(), sizeof(t->old_mask), &t->old_mask);
	free(t->worker);
	free(t);
}

uint32_t sits_threads_nr(const struct sits_threads *t)
{
	return t->nr;
}

uint32_t sits_threads_nodes(const struct sits_threads *t)
{
	return t->nodes;
}
