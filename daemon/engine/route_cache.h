/* SPDX-License-Identifier: MIT */
/*
 * route_cache.h - which experts requests of one pattern went to, remembered.
 *
 * A pattern is a tag that the client gives, or else how the prompt begins. A router sees the hidden state of the whole context, so what is
 * remembered is a guess, never a decision: it says which experts to have in memory (prefetch.h) before a request of the pattern
 * starts, and no output depends on it.
 *
 * An expert is expected in a layer if it got at least half of an even share of the layer's remembered pairs (a row and one of
 * its experts). Every pair that a request of a known pattern then routes is a hit if its expert was expected.
 */
#ifndef SITS_ENGINE_ROUTE_CACHE_H
#define SITS_ENGINE_ROUTE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sits_route_cache;
struct sits_route_entry;	/* one pattern */

struct sits_route_cache_stats {
	uint64_t queries, found;	/* requests; those of a known pattern */
	uint64_t pairs, hits;	/* routed by requests of a known pattern; to experts that were expected */
	uint32_t entries;	/* patterns remembered now */
};

/** sits_route_cache_create() - Room for @entries patterns; when it is full the one used longest ago goes. Return: 0; -EINVAL
 * where a size is 0; -ENOMEM. */
int sits_route_cache_create(uint32_t layers, uint32_t experts, uint32_t entries, struct sits_route_cache **out);
void sits_route_cache_destroy(struct sits_route_cache *c);	/* NULL is allowed */

/** sits_route_key() - The pattern of a request: @tag where that is not 0, else how its prompt begins (32 tokens), in @scope: what users
 * of one scope ask is not to be felt in another. */
uint64_t sits_route_key(uint64_t scope, uint64_t tag, const int32_t *token, size_t nr);

/**
 * sits_route_cache_begin() - A request of pattern @key begins.
 * @expected: out: the set of experts to have ready (bits as in prefetch.h), borrowed until the next call on @c; NULL where the
 *	pattern is new
 * Return: the pattern, held until sits_route_cache_end(); NULL where all entries are held: nothing is remembered then.
 */
struct sits_route_entry *sits_route_cache_begin(struct sits_route_cache *c, uint64_t key, const uint64_t **expected);
/** sits_route_cache_note() - A row of it went to @expert[@nr] in @layer. @e: NULL is allowed. */
void sits_route_cache_note(struct sits_route_cache *c, struct sits_route_entry *e, uint32_t layer, const uint32_t *expert,
			   uint32_t nr);
void sits_route_cache_end(struct sits_route_entry *e);	/* NULL is allowed */

void sits_route_cache_get_stats(const struct sits_route_cache *c, struct sits_route_cache_stats *s);

#endif
