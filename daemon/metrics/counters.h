/* SPDX-License-Identifier: MIT */
/*
 * counters.h - what the daemon counts about requests, since it started.
 *
 * Written by the ingress and the engine's thread, read by whoever answers INFO. Every request that was
 * fetched ends in exactly one of the ends.
 */
#ifndef SITS_METRICS_COUNTERS_H
#define SITS_METRICS_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* How a request ended. */
enum sits_end {
	SITS_END_STOP,		/* the model ended its turn, or a stop string came */
	SITS_END_LENGTH,
	SITS_END_CANCELLED,	/* by the client, by its death or by its deadline */
	SITS_END_REFUSED,	/* malformed or over a limit: never reached the engine */
	SITS_END_FAILED,	/* the engine could not go on with it, or the client did not collect */
	SITS_END_SHUTDOWN,
	SITS_END_INFO,		/* INFO requests, answered */
	SITS_NR_ENDS,
};

struct sits_counters {
	_Atomic uint64_t requests;	/* fetched, INFO included */
	_Atomic uint64_t active;	/* gauge: fetched and not ended */
	_Atomic uint64_t ended[SITS_NR_ENDS];
	_Atomic uint64_t prompt_tokens, completion_tokens;
	/* Sums over requests that got a first token. */
	_Atomic uint64_t first_tokens, queue_ns, first_token_ns;
};

static inline void sits_count(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

/** sits_end_name() - "stop", "length", "cancelled", ...; static storage. */
const char *sits_end_name(enum sits_end end);

#endif
