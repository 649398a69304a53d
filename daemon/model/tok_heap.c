// SPDX-License-Identifier: MIT
/*
 * tok_heap.c - the priority queue that makes one long word cost n log n, and the scratch memory
 * of one encode call.
 */
#include "daemon/model/tok.h"

#include <errno.h>
#include <stdlib.h>

int sits_tok_heap_push(struct sits_tok_heap *h, struct sits_tok_item item)
{
	size_t i, up;

	if (h->nr == h->cap) {
		size_t cap = h->cap ? 2 * h->cap : 64;
		struct sits_tok_item *grown = realloc(h->item, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		h->item = grown;
		h->cap = cap;
	}
	for (i = h->nr++; i; i = up) {
		up = (i - 1) / 2;
		if (h->item[up].key <= item.key)
			break;
		h->item[i] = h->item[up];
	}
	h->item[i] = item;
	return 0;
}

bool sits_tok_heap_pop(struct sits_tok_heap *h, struct sits_tok_item *item)
{
	struct sits_tok_item last;
	size_t i = 0, down;

	if (!h->nr)
		return false;
	*item = h->item[0];
	last = h->item[--h->nr];
	while ((down = 2 * i + 1) < h->nr) {
		if (down + 1 < h->nr && h->item[down + 1].key < h->item[down].key)
			down++;
		if (last.key <= h->item[down].key)
			break;
		h->item[i] = h->item[down];
		i = down;
	}
	h->item[i] = last;
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
	free(s->heap.item);
	free(s->text);
}
