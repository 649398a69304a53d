// SPDX-License-Identifier: MIT
/*
 * kv.c - see kv.h.
 */
#include "daemon/engine/kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/mem.h"
#include "kernels/kernels.h"

int sits_kv_init(struct sits_kv *kv, size_t page_bytes, uint32_t nr_pages)
{
	void *base;
	uint32_t i;
	int ret;

	memset(kv, 0, sizeof(*kv));
	if (!page_bytes || page_bytes % 64 || !nr_pages || page_bytes > SIZE_MAX / nr_pages)
		return -EINVAL;
	kv->free = malloc((size_t)nr_pages * sizeof(*kv->free));
	if (!kv->free)
		return -ENOMEM;
	ret = sits_mem_map(page_bytes * nr_pages, &base);
	if (ret) {
		free(kv->free);
		kv->free = NULL;
		return ret;
	}
	kv->base = base;
	kv->page_bytes = page_bytes;
	kv->nr_pages = kv->nr_free = nr_pages;
	/* A stack: page 0 goes out first, and the page freed last goes out next, still in the cache. */
	for (i = 0; i < nr_pages; i++)
		kv->free[i] = nr_pages - 1 - i;
	return 0;
}

void sits_kv_fini(struct sits_kv *kv)
{
	sits_mem_unmap(kv->base, kv->page_bytes * kv->nr_pages);
	free(kv->free);
	memset(kv, 0, sizeof(*kv));
}

uint32_t sits_kv_pages(size_t tokens)
{
	return (tokens + SITS_KV_PAGE_TOKENS - 1) / SITS_KV_PAGE_TOKENS;
}

int sits_kv_grow(struct sits_kv *kv, struct sits_kv_table *t, size_t tokens)
{
	uint32_t want = sits_kv_pages(tokens);
	uint32_t cap, *page;

	if (want <= t->nr)
		return 0;
	if (want - t->nr > kv->nr_free)
		return -ENOSPC;
	if (want > t->cap) {
		cap = want < 8 ? 8 : want + want / 2;
		page = realloc(t->page, (size_t)cap * sizeof(*page));
		if (!page)
			return -ENOMEM;
		t->page = page;
		t->cap = cap;
	}
	while (t->nr < want)
		t->page[t->nr++] = kv->free[--kv->nr_free];
	return 0;
}

void sits_kv_release(struct sits_kv *kv, struct sits_kv_table *t)
{
	uint8_t *p;

	while (t->nr) {
		t->nr--;
		p = kv->base + t->page[t->nr] * kv->page_bytes;
		explicit_bzero(p, kv->page_bytes);
		kv->free[kv->nr_free++] = t->page[t->nr];
	}
	free(t->page);
	memset(t, 0, sizeof(*t));
}
