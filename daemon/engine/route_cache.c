// SPDX-License-Identifier: MIT
/*
 * route_cache.c - see route_cache.h.
 */
#include "daemon/engine/route_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/prefetch.h"

#define KEY_TOKENS 32
/* Counts of a layer are halved when one of them gets here: what was long ago fades. */
#define COUNT_MAX 4096

struct sits_route_entry {
	uint64_t key, last;	/* last: tick of its last begin; 0: empty */
	uint32_t held;		/* requests that run */
	bool known;		/* it was remembered when the first of those began */
	uint64_t *expected;	/* [words] */
	uint16_t *count;	/* [layers][experts] pairs */
};

/* One allocation each for the sets and counts of all entries. */
struct sits_route_cache {
	uint32_t layers, experts, nr;
	size_t words;
	uint64_t tick;
	struct sits_route_entry *entry;
	uint64_t *sets;
	uint16_t *counts;
	struct sits_route_cache_stats stats;
};

int sits_route_cache_create(uint32_t layers, uint32_t experts, uint32_t entries, struct sits_route_cache **out)
{
	const size_t per = (size_t)layers * experts, words = sits_expert_words(layers, experts);
	struct sits_route_cache *c;
	uint32_t i;

	if (!layers || !experts || !entries)
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->layers = layers;
	c->experts = experts;
	c->nr = entries;
	c->words = words;
	c->entry = calloc(entries, sizeof(*c->entry));
	c->sets = calloc(entries, words * sizeof(*c->sets));
	c->counts = calloc(entries, per * sizeof(*c->counts));
	if (!c->entry || !c->sets || !c->counts) {
		sits_route_cache_destroy(c);
		return -ENOMEM;
	}
	for (i = 0; i < entries; i++) {
		c->entry[i].expected = c->sets + i * words;
		c->entry[i].count = c->counts + i * per;
	}
	*out = c;
	return 0;
}

void sits_route_cache_destroy(struct sits_route_cache *c)
{
	if (!c)
		return;
	free(c->entry);
	free(c->sets);
	free(c->counts);
	free(c);
}

/* A step of splitmix64 (Steele et al. 2014) for each word. */
static uint64_t mix(uint64_t h, uint64_t v)
{
	h += v + 0x9e3779b97f4a7c15;
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
	h = (h ^ h >> 27) * 0x94d049bb133111eb;
	return h ^ h >> 31;
}

uint64_t sits_route_key(uint64_t scope, uint64_t tag, const int32_t *token, size_t nr)
{
	uint64_t h = tag ? mix(1, tag) : mix(2, scope);
	size_t i;

	for (i = 0; !tag && i < nr && i < KEY_TOKENS; i++)
		h = mix(h, (uint32_t)token[i]);
	return h;
}

/* The experts expected, from the counts. Return: whether there are any. */
static bool expect(const struct sits_route_cache *c, struct sits_route_entry *e)
{
	const uint16_t *count = e->count;
	uint32_t l, x;
	uint64_t sum;
	size_t bit;
	bool any = false;

	memset(e->expected, 0, c->words * sizeof(*e->expected));
	for (l = 0; l < c->layers; l++, count += c->experts) {
		for (sum = 0, x = 0; x < c->experts; x++)
			sum += count[x];
		any |= sum > 0;
		for (x = 0; x < c->experts; x++) {
			bit = (size_t)l * c->experts + x;
			if (sum && 2ull * count[x] * c->experts >= sum)
				e->expected[bit / 64] |= 1ull << bit % 64;
		}
	}
	return any;
}

/* The entry of @key, else an empty one, else the one used longest ago that nobody holds. */
static struct sits_route_entry *find(struct sits_route_cache *c, uint64_t key)
{
	struct sits_route_entry *e, *old = NULL;
	uint32_t i;

	for (i = 0; i < c->nr; i++) {
		e = &c->entry[i];
		if (e->last && e->key == key)
			return e;
		if (!e->held && (!old || e->last < old->last))
			old = e;
	}
	if (!old)
		return NULL;
	c->stats.entries += !old->last;
	memset(old->count, 0, (size_t)c->layers * c->experts * sizeof(*old->count));
	old->key = key;
	return old;
}

struct sits_route_entry *sits_route_cache_begin(struct sits_route_cache *c, uint64_t key, const uint64_t **expected)
{
	struct sits_route_entry *e = find(c, key);

	c->stats.queries++;
	*expected = NULL;
	if (!e)
		return NULL;
	if (!e->held)
		e->known = expect(c, e);
	if (e->known) {
		c->stats.found++;
		*expected = e->expected;
	}
	e->held++;
	e->last = ++c->tick;
	return e;
}

void sits_route_cache_note(struct sits_route_cache *c, struct sits_route_entry *e, uint32_t layer, const uint32_t *expert,
			   uint32_t nr)
{
	uint16_t *count;
	uint32_t i, x;
	size_t bit;

	if (!e)
		return;
	count = e->count + (size_t)layer * c->experts;
	for (i = 0; i < nr; i++) {
		bit = (size_t)layer * c->experts + expert[i];
		if (e->known) {
			c->stats.pairs++;
			c->stats.hits += e->expected[bit / 64] >> bit % 64 & 1;
		}
		if (++count[expert[i]] == COUNT_MAX)
			for (x = 0; x < c->experts; x++)
				count[x] /= 2;
	}
}

void sits_route_cache_end(struct sits_route_entry *e)
{
	if (e)
		e->held--;
}

void sits_route_cache_get_stats(const struct sits_route_cache *c, struct sits_route_cache_stats *s)
{
	*s = c->stats;
}
