// SPDX-License-Identifier: MIT
/*
 * loop.c - see loop.h.
 */
#include "daemon/sched/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/engine/threads.h"
#include "sits/infer.h"

struct sits_loop {
	const struct sits_gen_ops *ops;
	struct sits_loop_hooks hooks;
	void *engine;			/* the loop's thread alone; cancel() from others */
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t wake;		/* to the thread: inbox or stop */
	pthread_cond_t ready;		/* to the creator: started */
	struct sits_work *first, *last;	/* inbox */
	uint32_t nr_inbox;
	bool stop, started, busy;
	bool faulted;			/* the engine failed */
	bool gone;			/* it is being destroyed: no cancel may reach it any more */
	int start_ret;
	void *engine_arg;
	struct sits_diag *start_diag;
	struct sits_engine_stats stats;
	uint64_t progress_ns;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ------------------------------------------------------------------ the real engine */

static int real_create(void *arg, void **engine, struct sits_diag *diag)
{
	struct sits_gen_engine_arg *a = arg;

	return sits_engine_create(a->model, &a->opts, (struct sits_engine **)engine, diag);
}

static void real_destroy(void *engine)
{
	sits_engine_destroy(engine);
}

static int real_submit(void *engine, const struct sits_gen_params *p, const struct sits_gen_sink *sink, uint64_t *id,
		       struct sits_diag *diag)
{
	return sits_engine_submit(engine, p, sink, id, diag);
}

static void real_cancel(void *engine, uint64_t id)
{
	sits_engine_cancel(engine, id);
}

static int real_step(void *engine)
{
	return sits_engine_step(engine);
}

static void real_get_stats(const void *engine, struct sits_engine_stats *s)
{
	sits_engine_get_stats(engine, s);
}

const struct sits_gen_ops sits_gen_engine_ops = {
	.create = real_create, .destroy = real_destroy, .submit = real_submit, .cancel = real_cancel,
	.step = real_step, .get_stats = real_get_stats,
};

/* ------------------------------------------------------------------ inbox; the lock is held */

static void inbox_add(struct sits_loop *l, struct sits_work *w)
{
	w->next = NULL;
	w->prev = l->last;
	if (l->last)
		l->last->next = w;
	else
		l->first = w;
	l->last = w;
	w->in_inbox = true;
	l->nr_inbox++;
}

static void inbox_remove(struct sits_loop *l, struct sits_work *w)
{
	if (w->prev)
		w->prev->next = w->next;
	else
		l->first = w->next;
	if (w->next)
		w->next->prev = w->prev;
	else
		l->last = w->prev;
	w->next = w->prev = NULL;
	w->in_inbox = false;
	l->nr_inbox--;
}

/* ------------------------------------------------------------------ the thread */

static void refuse(struct sits_work *w, int status, const char *why)
{
	struct sits_gen_result res = { .status = status, .why = why, .prompt_tokens = (uint32_t)w->params.nr_prompt };

	w->sink.done(w->sink.arg, &res);
}

/* Between taking @w from the inbox and knowing its id, a cancel can only leave a mark; see sits_loop_cancel(). */
static void admit(struct sits_loop *l, struct sits_work *w)
{
	struct sits_diag diag = { "" };
	struct sits_gen_result res = { .finish = SITS_FINISH_CANCEL };
	uint64_t id = 0;
	bool cancelled;
	int ret;

	ret = l->ops->submit(l->engine, &w->params, &w->sink, &id, &diag);
	pthread_mutex_lock(&l->lock);
	cancelled = w->cancelled;
	if (!ret)
		w->id = id;
	pthread_mutex_unlock(&l->lock);
	if (!ret && cancelled) {
		l->ops->cancel(l->engine, id);
	} else if (ret && cancelled) {
		w->sink.done(w->sink.arg, &res);
	} else if (ret) {
		refuse(w, ret, diag.msg[0] ? diag.msg : strerror(-ret));
	}
}

/* Empty the inbox into the engine, one at a time: a callback may take its time. */
static void admit_all(struct sits_loop *l)
{
	struct sits_work *w;

	for (;;) {
		pthread_mutex_lock(&l->lock);
		w = l->first;
		if (w)
			inbox_remove(l, w);
		pthread_mutex_unlock(&l->lock);
		if (!w)
			return;
		admit(l, w);
	}
}

static void refuse_all(struct sits_loop *l, int status, const char *why)
{
	struct sits_work *w;

	for (;;) {
		pthread_mutex_lock(&l->lock);
		w = l->first;
		if (w)
			inbox_remove(l, w);
		pthread_mutex_unlock(&l->lock);
		if (!w)
			return;
		refuse(w, status, why);
	}
}

static void after_step(struct sits_loop *l, bool busy)
{
	struct sits_engine_stats s;

	l->ops->get_stats(l->engine, &s);
	pthread_mutex_lock(&l->lock);
	l->stats = s;
	l->busy = busy;
	l->progress_ns = now_ns();
	pthread_mutex_unlock(&l->lock);
	if (l->hooks.after_step)
		l->hooks.after_step(l->hooks.arg);
}

/* Wait while there is nothing to do. Return: false to stop. */
static bool wait_for_work(struct sits_loop *l, bool active)
{
	bool go;

	pthread_mutex_lock(&l->lock);
	if (!active && !l->first && !l->stop) {
		l->busy = false;
		while (!l->first && !l->stop)
			pthread_cond_wait(&l->wake, &l->lock);
		l->progress_ns = now_ns();
	}
	l->busy = true;
	go = !l->stop;
	pthread_mutex_unlock(&l->lock);
	return go;
}

static void destroy_engine(struct sits_loop *l, bool faulted)
{
	pthread_mutex_lock(&l->lock);
	l->gone = true;
	l->faulted = faulted;
	pthread_mutex_unlock(&l->lock);
	l->ops->destroy(l->engine);
	l->engine = NULL;
}

/* The engine is beyond use: end what it has, then answer all that still comes. */
static void serve_fault(struct sits_loop *l, int err)
{
	destroy_engine(l, true);
	if (l->hooks.after_step)
		l->hooks.after_step(l->hooks.arg);
	if (l->hooks.fault)
		l->hooks.fault(l->hooks.arg, err);
	while (wait_for_work(l, false))
		refuse_all(l, -EIO, "the engine has failed; the daemon must be restarted");
}

static int start(struct sits_loop *l)
{
	int ret = l->ops->create(l->engine_arg, &l->engine, l->start_diag);

	if (!ret)
		l->ops->get_stats(l->engine, &l->stats);
	pthread_mutex_lock(&l->lock);
	l->start_ret = ret;
	l->started = true;
	l->progress_ns = now_ns();
	pthread_cond_signal(&l->ready);
	pthread_mutex_unlock(&l->lock);
	return ret;
}

static void *loop_main(void *arg)
{
	struct sits_loop *l = arg;
	int active = 0;

	if (start(l))
		return NULL;
	while (wait_for_work(l, active > 0)) {
		admit_all(l);
		active = l->ops->step(l->engine);
		after_step(l, active > 0);
		if (active < 0) {
			serve_fault(l, active);
			break;
		}
	}
	if (l->engine)
		destroy_engine(l, false);
	refuse_all(l, -ESHUTDOWN, "the daemon is shutting down");
	return NULL;
}

/* ------------------------------------------------------------------ public */

int sits_loop_create(const struct sits_gen_ops *ops, void *engine_arg, const struct sits_loop_hooks *hooks,
		     struct sits_loop **out, struct sits_diag *diag)
{
	struct sits_loop *l = calloc(1, sizeof(*l));
	int ret;

	if (!l)
		return sits_diag_fail(diag, -ENOMEM, "out of memory");
	l->ops = ops;
	l->hooks = *hooks;
	l->engine_arg = engine_arg;
	l->start_diag = diag;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->wake, NULL);
	pthread_cond_init(&l->ready, NULL);
	ret = sits_threads_start(&l->thread, loop_main, l);
	if (ret) {
		sits_diag_fail(diag, ret, "the engine's thread can't be started: %s", strerror(-ret));
		goto err_free;
	}
	pthread_setname_np(l->thread, "sits-engine");
	pthread_mutex_lock(&l->lock);
	while (!l->started)
		pthread_cond_wait(&l->ready, &l->lock);
	ret = l->start_ret;
	pthread_mutex_unlock(&l->lock);
	if (ret) {
		pthread_join(l->thread, NULL);
		goto err_free;
	}
	*out = l;
	return 0;

err_free:
	pthread_cond_destroy(&l->ready);
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
	return ret;
}

void sits_loop_destroy(struct sits_loop *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	pthread_cond_destroy(&l->ready);
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

void sits_loop_submit(struct sits_loop *l, struct sits_work *w)
{
	pthread_mutex_lock(&l->lock);
	w->id = 0;
	w->cancelled = false;
	inbox_add(l, w);
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->lock);
}

bool sits_loop_cancel(struct sits_loop *l, struct sits_work *w)
{
	bool withdrawn = false;

	pthread_mutex_lock(&l->lock);
	if (w->in_inbox) {
		inbox_remove(l, w);
		withdrawn = true;
	} else {
		w->cancelled = true;
		if (w->id && !l->gone)
			l->ops->cancel(l->engine, w->id);
	}
	pthread_mutex_unlock(&l->lock);
	return withdrawn;
}

void sits_loop_get_state(struct sits_loop *l, struct sits_loop_state *s)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_lock(&l->lock);
	s->engine = l->stats;
	snprintf(s->isa, sizeof(s->isa), "%s", l->stats.isa ? l->stats.isa : "");
	s->engine.isa = NULL;
	s->inbox = l->nr_inbox;
	s->busy = l->busy;
	s->faulted = l->faulted;
	s->progress_ns = l->progress_ns;
	pthread_mutex_unlock(&l->lock);
}
