/* SPDX-License-Identifier: MIT */
/*
 * prefetch.h - experts that are wanted soon and not in memory are asked for, by a thread of its own.
 *
 * Weights in a locked region are always in memory, and then this finds nothing to do. Where they are mapped from a file or may be
 * swapped out, the kernel reads them in while the engine computes something else. Only hints are given: nothing waits for
 * them, and no result depends on them.
 */
#ifndef SITS_ENGINE_PREFETCH_H
#define SITS_ENGINE_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

struct sits_model;
struct sits_prefetch;

/* A set of experts: bit layer * experts + expert. */
static inline size_t sits_expert_words(size_t layers, size_t experts)
{
	return (layers * experts + 63) / 64;
}

struct sits_prefetch_stats {
	uint64_t asked, skipped;	/* sets; those dropped because too many waited */
	uint64_t bytes;		/* found missing and asked for */
};

/** sits_prefetch_create() - Start the thread. @m: borrowed until destroy, has experts. Return: 0; -ENOMEM; -EAGAIN. */
int sits_prefetch_create(const struct sits_model *m, struct sits_prefetch **out);
void sits_prefetch_destroy(struct sits_prefetch *p);	/* NULL is allowed; waits for the thread */

/** sits_prefetch_ask() - Fetch a set of experts. @set: [sits_expert_words()], copied. Never blocks on I/O. */
void sits_prefetch_ask(struct sits_prefetch *p, const uint64_t *set);

/** sits_prefetch_get_stats() - Context: any thread. */
void sits_prefetch_get_stats(struct sits_prefetch *p, struct sits_prefetch_stats *s);

/** sits_prefetch_range() - Ask for the pages of [p, p + len) that are not in memory. Return: their bytes. */
uint64_t sits_prefetch_range(const void *p, size_t len);

#endif
