/* SPDX-License-Identifier: MIT */
/*
 * loop.h - the thread that owns the engine: takes work in between steps and sleeps when there is none.
 *
 * Other threads hand work over through an inbox. The engine is created, stepped and destroyed on this one
 * thread, as daemon/engine/engine.h wants; only a cancel may reach it from elsewhere.
 *
 * Lock order: the caller's own locks, then the loop's. No lock of the loop is held during a callback.
 */
#ifndef SITS_SCHED_LOOP_H
#define SITS_SCHED_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/engine/engine.h"

/* The engine as the loop sees it; tests put another in its place. */
struct sits_gen_ops {
	int (*create)(void *arg, void **engine, struct sits_diag *diag);
	void (*destroy)(void *engine);	/* ends every request with -ESHUTDOWN */
	int (*submit)(void *engine, const struct sits_gen_params *p, const struct sits_gen_sink *sink, uint64_t *id,
		      struct sits_diag *diag);
	void (*cancel)(void *engine, uint64_t id);
	int (*step)(void *engine);
	void (*get_stats)(const void *engine, struct sits_engine_stats *s);
};

/* The real one; create's argument is a struct sits_gen_engine_arg. */
extern const struct sits_gen_ops sits_gen_engine_ops;
struct sits_gen_engine_arg {
	const struct sits_model *model;
	struct sits_engine_opts opts;
};

/* A request on its way through the loop. Embedded in the submitter's own struct, which lives from
 * sits_loop_submit() until sink.done() returns, or until sits_loop_withdraw() says true. */
struct sits_work {
	struct sits_gen_params params;	/* borrowed pointers; used until the engine has copied them */
	struct sits_gen_sink sink;	/* called on the loop's thread */

	/* The loop's own, guarded by its lock. */
	struct sits_work *next, *prev;
	uint64_t id;
	bool in_inbox, cancelled;
};

struct sits_loop;

/**
 * struct sits_loop_hooks - what the loop tells, on its own thread.
 * @after_step: a step's callbacks are all done; may be NULL
 * @fault: the engine itself failed with @err; every request has been ended. May be NULL
 */
struct sits_loop_hooks {
	void (*after_step)(void *arg);
	void (*fault)(void *arg, int err);
	void *arg;
};

/** sits_loop_create() - Start the thread and create the engine on it. @engine_arg: borrowed until return.
 * Return: 0; the engine's -errno with words in @diag; -ENOMEM; -EAGAIN. */
int sits_loop_create(const struct sits_gen_ops *ops, void *engine_arg, const struct sits_loop_hooks *hooks,
		     struct sits_loop **out, struct sits_diag *diag);

/** sits_loop_destroy() - End every request with -ESHUTDOWN, destroy the engine, join; NULL is allowed. */
void sits_loop_destroy(struct sits_loop *l);

/** sits_loop_submit() - Hand over @w; its sink's done() will be called exactly once, unless it is withdrawn.
 * Context: any thread. */
void sits_loop_submit(struct sits_loop *l, struct sits_work *w);

/** sits_loop_cancel() - End @w early. Context: any thread, not inside a callback of the engine; the caller makes
 * sure that @w is not ending meanwhile (its done() takes a lock that the caller holds). Return: true where it had not reached the
 * engine: it is the caller's again and done() will not be called. */
bool sits_loop_cancel(struct sits_loop *l, struct sits_work *w);

/** struct sits_loop_state - the engine's counters after its latest step, and signs of life. */
struct sits_loop_state {
	struct sits_engine_stats engine;
	char isa[16];		/* copy of engine.isa, which may not outlive the engine */
	uint32_t inbox;
	bool busy;		/* a step runs or is due */
	bool faulted;
	uint64_t progress_ns;	/* CLOCK_MONOTONIC of the latest end of a step, or of the wake-up before it */
};
void sits_loop_get_state(struct sits_loop *l, struct sits_loop_state *s);

#endif
