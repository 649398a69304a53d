// SPDX-License-Identifier: MIT
/*
 * prefetch.c - see prefetch.h.
 */
#include "daemon/engine/prefetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/engine/threads.h"
#include "daemon/model/model.h"
#include "kernels/kernels.h"

#define MAX_WAITING 16
#define VEC_PAGES 4096	/* pages looked at in one call */

/* lock guards all but m and words, which do not change. */
struct sits_prefetch {
	const struct sits_model *m;
	size_t words;		/* of a set */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	bool stop;
	uint64_t *waiting;	/* ring of MAX_WAITING sets */
	uint32_t first, nr;
	struct sits_prefetch_stats stats;
};

uint64_t sits_prefetch_range(const void *p, size_t len)
{
	const uintptr_t page = sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)p / page * page, end = (uintptr_t)p + len;
	unsigned char in_memory[VEC_PAGES];
	uint64_t bytes = 0;
	size_t nr, i, j;

	for (; len && at < end; at += nr * page) {
		nr = (end - at + page - 1) / page;
		nr = nr < VEC_PAGES ? nr : VEC_PAGES;
		if (mincore((void *)at, nr * page, in_memory))
			return bytes;
		for (i = 0; i < nr; i = j) {
			for (j = i + 1; j < nr && (in_memory[j] & 1) == (in_memory[i] & 1); j++)
				;
			if (!(in_memory[i] & 1) && !madvise((void *)(at + i * page), (j - i) * page, MADV_WILLNEED))
				bytes += (j - i) * page;
		}
	}
	return bytes;
}

static uint64_t fetch_expert(const struct sits_layer *l, uint32_t expert)
{
	const struct sits_weight *w[] = { &l->e_gate, &l->e_up, &l->e_down };
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < 3; i++)
		bytes += sits_prefetch_range(sits_weight_at(w[i], expert),
					     sits_dtype_matrix_bytes(w[i]->type, w[i]->K, w[i]->N));
	return bytes;
}

static uint64_t fetch_set(const struct sits_prefetch *p, const uint64_t *set)
{
	const uint32_t X = p->m->hp.route.experts;
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < (size_t)p->m->hp.layers * X; i++)
		if (set[i / 64] >> i % 64 & 1 && p->m->layer[i / X].kind == SITS_LAYER_MOE)
			bytes += fetch_expert(&p->m->layer[i / X], i % X);
	return bytes;
}

static void *work(void *arg)
{
	struct sits_prefetch *p = arg;
	uint64_t *set = p->waiting + MAX_WAITING * p->words, bytes;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		if (!p->nr) {
			pthread_cond_wait(&p->more, &p->lock);
			continue;
		}
		memcpy(set, p->waiting + p->first * p->words, p->words * sizeof(*set));
		p->first = (p->first + 1) % MAX_WAITING;
		p->nr--;
		pthread_mutex_unlock(&p->lock);
		bytes = fetch_set(p, set);
		pthread_mutex_lock(&p->lock);
		p->stats.bytes += bytes;
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Signals are the daemon's main thread's. */
static int start_thread(struct sits_prefetch *p)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = sits_threads_start(&p->thread, work, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

int sits_prefetch_create(const struct sits_model *m, struct sits_prefetch **out)
{
	struct sits_prefetch *p = calloc(1, sizeof(*p));
	int ret = -ENOMEM;

	if (!p)
		return ret;
	p->m = m;
	p->words = sits_expert_words(m->hp.layers, m->hp.route.experts);
	p->waiting = calloc((MAX_WAITING + 1) * p->words, sizeof(*p->waiting));
	if (!p->waiting)
		goto err_free;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	ret = start_thread(p);
	if (ret)
		goto err_fini;
	*out = p;
	return 0;

err_fini:
	pthread_cond_destroy(&p->more);
	pthread_mutex_destroy(&p->lock);
err_free:
	free(p->waiting);
	free(p);
	return ret;
}

void sits_prefetch_destroy(struct sits_prefetch *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->more);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	pthread_cond_destroy(&p->more);
	pthread_mutex_destroy(&p->lock);
	free(p->waiting);
	free(p);
}

void sits_prefetch_ask(struct sits_prefetch *p, const uint64_t *set)
{
	pthread_mutex_lock(&p->lock);
	p->stats.asked++;
	if (p->nr == MAX_WAITING) {
		p->stats.skipped++;
	} else {
		memcpy(p->waiting + (p->first + p->nr) % MAX_WAITING * p->words, set, p->words * sizeof(*set));
		p->nr++;
		pthread_cond_signal(&p->more);
	}
	pthread_mutex_unlock(&p->lock);
}

void sits_prefetch_get_stats(struct sits_prefetch *p, struct sits_prefetch_stats *s)
{
	pthread_mutex_lock(&p->lock);
	*s = p->stats;
	pthread_mutex_unlock(&p->lock);
}
