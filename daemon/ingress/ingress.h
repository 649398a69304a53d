/* SPDX-License-Identifier: MIT */
/*
 * ingress.h - from the queue to the engine's loop and back.
 *
 * Two threads: one fetches events and is never busy for long, so that a cancel is heard at once; one turns
 * prompts into tokens. Answers go to the queue from the loop's thread, one text chunk for each step.
 *
 *   queue --fetch--> parse --list--> tokenise --> loop (inbox, engine)
 *     ^                 |                |          | text(), done()
 *     +----- commit ----+----------------+----------+
 *
 * A request is a job. It is in one stage at a time, and whoever ends it does so alone: it takes the job out
 * of the table under the ingress's lock, commits the last chunk and frees it.
 * Lock order: the ingress's, then the loop's.
 */
#ifndef SITS_INGRESS_INGRESS_H
#define SITS_INGRESS_INGRESS_H

#include <stdint.h>

#include "daemon/metrics/counters.h"
#include "daemon/sched/loop.h"

struct sits_ingress;
struct sits_model;

/* Whose requests use each other's computed prefixes; a tag narrows it further. */
enum sits_prefix_sharing { SITS_PREFIX_OFF, SITS_PREFIX_USER, SITS_PREFIX_ALL };
struct sits_queue;

/* What one request may ask for; 0 means what fits the context. */
struct sits_limits {
	uint32_t max_tokens, max_prompt_tokens;
};

/**
 * struct sits_ingress_opts - what it works with; pointers are borrowed until sits_ingress_destroy().
 * @model_id: what a request's MODEL field must name
 * @context: longest sequence in tokens
 * @prefix: enum sits_prefix_sharing
 * @info: the answer to INFO: JSON text, freed with free(); called on the fetching thread
 * @idle: no request is outstanding any more; from any thread, with no lock held; may be NULL
 * @fault: fetching, or the engine, failed for good with @err; from any thread
 */
struct sits_ingress_opts {
	const struct sits_model *model;
	const char *model_id;
	uint32_t context;
	struct sits_limits limits;
	uint32_t prefix;
	struct sits_counters *counters;
	char *(*info)(void *arg);
	void (*idle)(void *arg);
	void (*fault)(void *arg, int err);
	void *arg;
};

int sits_ingress_create(const struct sits_ingress_opts *opts, struct sits_ingress **out);

/** sits_ingress_hooks() - What the loop must tell it. */
struct sits_loop_hooks sits_ingress_hooks(struct sits_ingress *in);

/** sits_ingress_start() - Begin to fetch. @loop, @queue: borrowed; they outlive every request. Return: 0; -EAGAIN. */
int sits_ingress_start(struct sits_ingress *in, struct sits_loop *loop, struct sits_queue *queue);

/** sits_ingress_set_limits() - From the next request on. Context: any thread. */
void sits_ingress_set_limits(struct sits_ingress *in, const struct sits_limits *limits);

/** sits_ingress_active() - Requests fetched and not ended. Context: any thread. */
uint32_t sits_ingress_active(struct sits_ingress *in);

/** sits_ingress_end_all() - End every request with -ESHUTDOWN, those that still come too. Some end a little later,
 * on the loop's thread. Context: any thread. */
void sits_ingress_end_all(struct sits_ingress *in);

/** sits_ingress_stop() - End its threads. Requests in the loop go on to call back. */
void sits_ingress_stop(struct sits_ingress *in);

/** sits_ingress_destroy() - After the loop has been destroyed; NULL is allowed. */
void sits_ingress_destroy(struct sits_ingress *in);

#endif
