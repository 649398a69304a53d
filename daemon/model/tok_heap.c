// SPDX-License-Identifier: MIT
/*
 * tok_heap.c - the priority queue that makes one long word cost n log n, and the scratch memory
 * of one encode call.
 */
#include "daemon/model/tok.h"

#include <errno.h>
#include <stdlib.h>

#define WAYS 4	/* children of a node: half as deep as a binary heap */

int sits_tok_heap_push(struct sits_tok_heap *h, uint32_t rank, int32_t left)
{
	uint64_t key = (uint64_t)rank << 32 | (uint32_t)left;
	size_t i, up;

	if (h->nr == h->cap) {
		size_t cap = h->cap ? 2 * h->cap : 64;
		uint64_t *grown = realloc(h->key, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		h->key = grown;
		h->cap = cap;
	}
	for (i = h->nr++; i; i = up) {
		up = (i - 1) / WAYS;
		if (h->key[up] <= key)
			break;
		h->key[i] = h->key[up];
	}
	h->key[i] = key;
	return 0;
}

bool sits_tok_heap_pop(struct sits_tok_heap *h, uint32_t *rank, int32_t *left)
{
	size_t i = 0, down, best, end;
	uint64_t last;

	if (!h->nr)
		return false;
	*rank = (uint32_t)(h->key[0] >> 32);
	*left = (int32_t)(uint32_t)h->key[0];
	last = h->key[--h->nr];
	while ((best = WAYS * i + 1) < h->nr) {
		end = best + WAYS < h->nr ? best + WAYS : h->nr;
		for (down = best + 1; down < end; down++)
			if (h->key[down] < h->key[best])
				best = down;
		if (last <= h->key[best])
			break;
		h->key[i] = h->key[best];
		i = best;
	}
	h->key[i] = last;
	return true;
}

/* Grow an array to hold @nr elements at least. */
static int reserve(void *array, size_t *cap, size_t nr, size_t each)
{
	size_t want = *cap ? *cap : 64;
	void *grown;

	if (nr <= *cap)
		return 0;
	while (want < nr)
		want *= 2;
	grown = realloc(*(void **)array, want * each);
	if (!grown)
		return -ENOMEM;
	*(void **)array = grown;
	*cap = want;
	return 0;
}

int sits_tok_scratch_reserve(struct sits_tok_scratch *s, size_t nr_symbols, size_t text_bytes)
{
	int ret = reserve(&s->sym, &s->cap, nr_symbols, sizeof(*s->sym));

	return ret ? ret : reserve(&s->text, &s->text_cap, text_bytes, 1);
}

void sits_tok_scratch_fini(struct sits_tok_scratch *s)
{
	free(s->sym);
	free(s->heap.key);
	free(s->text);
}
