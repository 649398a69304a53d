// SPDX-License-Identifier: MIT
/*
 * kv.c - see kv.h: pages, references and limits. The index is in kv_prefix.c, what sequences give up in kv_evict.c.
 */
#include "daemon/engine/kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/engine/kv_node.h"
#include "daemon/engine/mem.h"

static int create_index(struct sits_kv *kv)
{
	uint32_t n = 16, i;
	void *p;
	int ret;

	while (n < kv->nr_pages && n < 1u << 30)
		n *= 2;
	kv->bucket = malloc((size_t)n * sizeof(*kv->bucket));
	if (!kv->bucket)
		return -ENOMEM;
	memset(kv->bucket, 0xFF, (size_t)n * sizeof(*kv->bucket));
	kv->bucket_mask = n - 1;
	kv->oldest = kv->newest = kv->roots = SITS_KV_NONE;
	for (i = 0; i < SITS_KV_CLASSES; i++)
		kv->limit[i] = UINT32_MAX;
	/* Short reads do not happen below 256 bytes; see getrandom(2). */
	if (getrandom(kv->hash_key, sizeof(kv->hash_key), 0) != sizeof(kv->hash_key))
		return -EIO;
	/* Touched as pages are used, like the pages themselves. */
	ret = sits_mem_map((size_t)kv->nr_pages * sizeof(*kv->node), &p);
	if (!ret)
		kv->node = p;
	return ret;
}

int sits_kv_init(struct sits_kv *kv, size_t page_bytes, uint32_t nr_pages)
{
	void *base;
	uint32_t i;
	int ret;

	memset(kv, 0, sizeof(*kv));
	if (!page_bytes || page_bytes % 64 || !nr_pages || nr_pages == SITS_KV_NONE || page_bytes > SIZE_MAX / nr_pages)
		return -EINVAL;
	kv->page_bytes = page_bytes;
	kv->nr_pages = nr_pages;
	kv->free = malloc((size_t)nr_pages * sizeof(*kv->free));
	ret = kv->free ? sits_mem_map(page_bytes * nr_pages, &base) : -ENOMEM;
	if (ret)
		goto err_fini;
	kv->base = base;
	ret = create_index(kv);
	if (ret)
		goto err_fini;
	kv->nr_free = nr_pages;
	/* A stack: page 0 goes out first, and the page freed last goes out next, still in the cache. */
	for (i = 0; i < nr_pages; i++)
		kv->free[i] = nr_pages - 1 - i;
	return 0;

err_fini:
	sits_kv_fini(kv);
	return ret;
}

void sits_kv_fini(struct sits_kv *kv)
{
	sits_mem_unmap(kv->base, kv->page_bytes * kv->nr_pages);
	sits_mem_unmap(kv->node, (size_t)kv->nr_pages * sizeof(*kv->node));
	free(kv->free);
	free(kv->bucket);
	memset(kv, 0, sizeof(*kv));
}

uint32_t sits_kv_pages(size_t tokens)
{
	return (tokens + SITS_KV_PAGE_TOKENS - 1) / SITS_KV_PAGE_TOKENS;
}

uint32_t sits_kv_more(const struct sits_kv_table *t, size_t tokens)
{
	uint32_t want = sits_kv_pages(tokens), have = t->nr + t->nr_gone;

	return want > have ? want - have : 0;
}

uint32_t sits_kv_room(const struct sits_kv *kv)
{
	return kv->nr_free + kv->nr_cached;
}

uint32_t sits_kv_used(const struct sits_kv *kv)
{
	return kv->nr_pages - kv->nr_free - kv->nr_cached;
}

/* ---- cached pages, by age ---- */

static void lru_add(struct sits_kv *kv, uint32_t p)
{
	struct sits_kv_node *n = &kv->node[p];

	n->newer = SITS_KV_NONE;
	n->older = kv->newest;
	if (kv->newest != SITS_KV_NONE)
		kv->node[kv->newest].newer = p;
	else
		kv->oldest = p;
	kv->newest = p;
	kv->nr_cached++;
}

void sits_kv_lru_del(struct sits_kv *kv, uint32_t p)
{
	struct sits_kv_node *n = &kv->node[p];

	if (n->older != SITS_KV_NONE)
		kv->node[n->older].newer = n->newer;
	else
		kv->oldest = n->newer;
	if (n->newer != SITS_KV_NONE)
		kv->node[n->newer].older = n->older;
	else
		kv->newest = n->older;
	kv->nr_cached--;
}

/* ---- references ---- */

void sits_kv_wipe(struct sits_kv *kv, uint32_t p)
{
	explicit_bzero(kv->base + p * kv->page_bytes, kv->page_bytes);
	explicit_bzero(&kv->node[p], sizeof(kv->node[p]));
	kv->free[kv->nr_free++] = p;
}

void sits_kv_ref(struct sits_kv *kv, uint32_t p, uint32_t cls)
{
	struct sits_kv_node *n = &kv->node[p];

	if (!n->ref++ && n->fill)
		sits_kv_lru_del(kv, p);
	if (!n->class_ref[cls]++)
		kv->held[cls]++;
}

void sits_kv_unref(struct sits_kv *kv, uint32_t p, uint32_t cls)
{
	struct sits_kv_node *n = &kv->node[p];

	if (!--n->class_ref[cls])
		kv->held[cls]--;
	if (--n->ref)
		return;
	if (n->fill)
		lru_add(kv, p);
	else
		sits_kv_wipe(kv, p);
}

uint32_t sits_kv_take(struct sits_kv *kv, uint32_t cls)
{
	uint32_t p;

	if (!kv->nr_free)
		kv->evicted += sits_kv_prune(kv, kv->oldest);
	p = kv->free[--kv->nr_free];
	sits_kv_ref(kv, p, cls);
	return p;
}

int sits_kv_reserve_table(struct sits_kv_table *t, uint32_t pages)
{
	uint32_t cap, *page;

	if (pages <= t->cap)
		return 0;
	cap = pages < 8 ? 8 : pages + pages / 2;
	page = realloc(t->page, (size_t)cap * sizeof(*page));
	if (!page)
		return -ENOMEM;
	t->page = page;
	t->cap = cap;
	return 0;
}

/* The last page, shared and not full, becomes the table's own: by a copy, or, where no page is left for one and nobody
 * else names it, by taking it out of the index. */
static void own_last(struct sits_kv *kv, struct sits_kv_table *t, bool copy)
{
	uint32_t old = t->page[t->nr - 1], p;

	t->cow = false;
	t->nr_indexed = t->nr - 1;
	if (!copy) {
		if (kv->node[old].fill)
			sits_kv_prune(kv, old);
		return;
	}
	p = sits_kv_take(kv, t->cls);
	memcpy(kv->base + p * kv->page_bytes, kv->base + old * kv->page_bytes, kv->page_bytes);
	t->page[t->nr - 1] = p;
	sits_kv_unref(kv, old, t->cls);
}

int sits_kv_grow(struct sits_kv *kv, struct sits_kv_table *t, size_t tokens)
{
	uint32_t more = sits_kv_more(t, tokens), want = t->nr + more, copy, quota = kv->limit[t->cls];
	const struct sits_kv_node *last = t->cow ? &kv->node[t->page[t->nr - 1]] : NULL;

	if (!more && !(t->cow && sits_kv_pages(tokens) == t->nr))
		return 0;
	quota = quota > kv->held[t->cls] ? quota - kv->held[t->cls] : 0;
	/* A copy takes a page from the pool, and from the quota where another of the class keeps the old one. */
	copy = last && (last->ref > 1 || (last->fill && more < sits_kv_room(kv)));
	if (more + copy > sits_kv_room(kv))
		return -ENOSPC;
	if (more + (last && last->class_ref[t->cls] > 1) > quota)
		return -EDQUOT;
	if (sits_kv_reserve_table(t, want) || sits_kv_cells_reserve(t, want + t->nr_gone))
		return -ENOMEM;
	if (last)
		own_last(kv, t, copy);
	while (t->nr < want) {
		t->page[t->nr++] = sits_kv_take(kv, t->cls);
		sits_kv_cells_add(t);
	}
	return 0;
}

/* From the end, so that among cached pages a child is older than its parent. */
void sits_kv_release(struct sits_kv *kv, struct sits_kv_table *t)
{
	while (t->nr)
		sits_kv_unref(kv, t->page[--t->nr], t->cls);
	free(t->page);
	free(t->cells);
	*t = (struct sits_kv_table){ .cls = t->cls };
}
