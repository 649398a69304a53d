/* SPDX-License-Identifier: MIT */
/*
 * kv_node.h - what the pool knows of each page; shared by kv.c (pages) and kv_prefix.c (index).
 */
#ifndef SITS_ENGINE_KV_NODE_H
#define SITS_ENGINE_KV_NODE_H

#include "daemon/engine/kv.h"
#include "kernels/kernels.h"

/*
 * Lies with the others in one mapping, as the pages do: the tokens are a request's text. The links are page
 * numbers or SITS_KV_NONE.
 */
struct sits_kv_node {
	uint32_t ref;			/* tables that name it */
	uint32_t fill;			/* tokens it is indexed for; 0: not in the index */
	uint16_t class_ref[SITS_KV_CLASSES];
	uint32_t parent;
	uint32_t chain;			/* next in its bucket */
	uint32_t older, newer;		/* cached pages */
	uint32_t child, next, prev;	/* newest child; siblings */
	uint32_t target;		/* of an eviction under way: 1 + its place among the pages that stay; 0: none */
	uint64_t scope, hash;
	int32_t token[SITS_KV_PAGE_TOKENS];
};

/* kv.c */
void sits_kv_ref(struct sits_kv *kv, uint32_t page, uint32_t cls);
void sits_kv_unref(struct sits_kv *kv, uint32_t page, uint32_t cls);
void sits_kv_lru_del(struct sits_kv *kv, uint32_t page);
void sits_kv_wipe(struct sits_kv *kv, uint32_t page);	/* and onto the free stack */
int sits_kv_reserve_table(struct sits_kv_table *t, uint32_t pages);
uint32_t sits_kv_take(struct sits_kv *kv, uint32_t cls);	/* there is room, the caller has made sure */

/* kv_evict.c: nothing where the table has no cells; the last page of @t into the tables of all heads. */
int sits_kv_cells_reserve(struct sits_kv_table *t, uint32_t pages);
void sits_kv_cells_add(struct sits_kv_table *t);

/* kv_prefix.c: take a page and all that continue it out of the index; those that no table names are free. */
uint32_t sits_kv_prune(struct sits_kv *kv, uint32_t page);

#endif
