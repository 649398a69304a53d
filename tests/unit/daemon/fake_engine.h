/* SPDX-License-Identifier: MIT */
/*
 * fake_engine.h - an engine that does what a test says, behind struct sits_gen_ops.
 *
 * Each step gives every request one token, the text "x", until max_tokens; while it is held, steps do nothing
 * but end cancelled requests. One engine at a time. Counts are read under its lock.
 */
#ifndef SITS_TESTS_FAKE_ENGINE_H
#define SITS_TESTS_FAKE_ENGINE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/sched/loop.h"
#include "sits/infer.h"

#define FAKE_MAX 1024

struct fake_request {
	bool used, cancelled;
	uint64_t id;
	uint32_t left, given, nr_prompt;
	struct sits_gen_sink sink;
};

static struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_request req[FAKE_MAX];
	uint64_t last_id, steps, cancels, submits;
	uint32_t running, most_running;
	bool held;		/* steps give no tokens */
	int step_error;		/* what the next step returns */
	int submit_error;	/* what submit returns */
	int create_error;
	int end_status;		/* requests end with it after their first token */
	struct sits_gen_params last;	/* numbers only */
	int32_t last_prompt[64];
	bool destroyed;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static uint64_t fake_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void fake_reset(void)
{
	memset(fake.req, 0, sizeof(fake.req));
	fake.last_id = fake.steps = fake.cancels = fake.submits = 0;
	fake.running = fake.most_running = 0;
	fake.held = fake.destroyed = false;
	fake.step_error = fake.submit_error = fake.create_error = fake.end_status = 0;
}

static int fake_create(void *arg, void **engine, struct sits_diag *diag)
{
	if (fake.create_error)
		return sits_diag_fail(diag, fake.create_error, "told to fail");
	*engine = &fake;
	return 0;
}

static void fake_end(struct fake_request *r, int status, uint32_t finish, const char *why)
{
	uint64_t now = fake_now();
	struct sits_gen_result res = {
		.status = status, .finish = finish, .prompt_tokens = r->nr_prompt, .completion_tokens = r->given,
		.arrival_ns = now, .start_ns = now, .first_token_ns = r->given ? now : 0, .end_ns = now, .why = why,
	};
	struct sits_gen_sink sink = r->sink;

	pthread_mutex_lock(&fake.lock);
	r->used = false;
	fake.running--;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	sink.done(sink.arg, &res);
}

static void fake_destroy(void *engine)
{
	for (size_t i = 0; i < FAKE_MAX; i++)
		if (fake.req[i].used)
			fake_end(&fake.req[i], -ESHUTDOWN, 0, "the engine is shutting down");
	fake.destroyed = true;
}

static int fake_submit(void *engine, const struct sits_gen_params *p, const struct sits_gen_sink *sink, uint64_t *id,
		       struct sits_diag *diag)
{
	size_t i = 0;
	int err;

	pthread_mutex_lock(&fake.lock);
	err = fake.submit_error;
	if (err) {
		pthread_mutex_unlock(&fake.lock);
		return sits_diag_fail(diag, err, "told to refuse");
	}
	while (i < FAKE_MAX && fake.req[i].used)
		i++;
	if (i == FAKE_MAX)
		abort();
	fake.req[i] = (struct fake_request){
		.used = true, .id = ++fake.last_id, .left = p->max_tokens ? p->max_tokens : 4, .nr_prompt = (uint32_t)p->nr_prompt,
		.sink = *sink,
	};
	fake.last = *p;
	for (size_t k = 0; k < 64 && k < p->nr_prompt; k++)
		fake.last_prompt[k] = p->prompt[k];
	fake.submits++;
	if (++fake.running > fake.most_running)
		fake.most_running = fake.running;
	*id = fake.last_id;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	return 0;
}

static void fake_cancel(void *engine, uint64_t id)
{
	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < FAKE_MAX; i++)
		if (fake.req[i].used && fake.req[i].id == id)
			fake.req[i].cancelled = true;
	fake.cancels++;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static void fake_step_one(struct fake_request *r, bool held)
{
	bool cancelled;
	int end_status;

	pthread_mutex_lock(&fake.lock);
	cancelled = r->cancelled;
	end_status = fake.end_status;
	pthread_mutex_unlock(&fake.lock);
	if (cancelled) {
		fake_end(r, 0, SITS_FINISH_CANCEL, NULL);
		return;
	}
	if (held)
		return;
	r->given++;
	r->left--;
	r->sink.text(r->sink.arg, "x", 1, 1);
	if (end_status)
		fake_end(r, end_status, 0, "told to end so");
	else if (!r->left)
		fake_end(r, 0, SITS_FINISH_LENGTH, NULL);
}

/* A held engine sleeps inside its step, as a real one works there, until something changes. */
static int fake_step(void *engine)
{
	uint32_t running;
	bool held;
	int err;

	pthread_mutex_lock(&fake.lock);
	fake.steps++;
	err = fake.step_error;
	held = fake.held;
	if (held && !err && fake.running) {
		struct timespec ts;

		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_nsec += 1000000;
		if (ts.tv_nsec >= 1000000000) {
			ts.tv_sec++;
			ts.tv_nsec -= 1000000000;
		}
		pthread_cond_timedwait(&fake.changed, &fake.lock, &ts);
	}
	pthread_mutex_unlock(&fake.lock);
	if (err)
		return err;
	for (size_t i = 0; i < FAKE_MAX; i++)
		if (fake.req[i].used)
			fake_step_one(&fake.req[i], held);
	pthread_mutex_lock(&fake.lock);
	running = fake.running;
	pthread_mutex_unlock(&fake.lock);
	return (int)running;
}

static void fake_get_stats(const void *engine, struct sits_engine_stats *s)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_lock(&fake.lock);
	s->steps = fake.steps;
	s->running = fake.running;
	s->isa = "fake";
	pthread_mutex_unlock(&fake.lock);
}

static const struct sits_gen_ops fake_ops = {
	.create = fake_create, .destroy = fake_destroy, .submit = fake_submit, .cancel = fake_cancel, .step = fake_step,
	.get_stats = fake_get_stats,
};

static void fake_hold(bool held)
{
	pthread_mutex_lock(&fake.lock);
	fake.held = held;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static __attribute__((unused)) void fake_fail_step(int err)
{
	pthread_mutex_lock(&fake.lock);
	fake.step_error = err;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

/* What the engine does next, and what it was given last; under the lock. */
static __attribute__((unused)) void fake_set(int *field, int value)
{
	pthread_mutex_lock(&fake.lock);
	*field = value;
	pthread_mutex_unlock(&fake.lock);
}

static __attribute__((unused)) struct sits_gen_params fake_last(int32_t prompt[64])
{
	struct sits_gen_params last;

	pthread_mutex_lock(&fake.lock);
	last = fake.last;
	memcpy(prompt, fake.last_prompt, sizeof(fake.last_prompt));
	pthread_mutex_unlock(&fake.lock);
	return last;
}

/* Wait until @nr requests are in the engine. */
static void fake_wait_running(uint32_t nr)
{
	pthread_mutex_lock(&fake.lock);
	while (fake.running != nr)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

static __attribute__((unused)) uint64_t fake_steps(void)
{
	uint64_t n;

	pthread_mutex_lock(&fake.lock);
	n = fake.steps;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

#endif
