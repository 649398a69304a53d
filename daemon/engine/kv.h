/* SPDX-License-Identifier: MIT */
/*
 * kv.h - the pool of KV pages, the block table of one sequence, and the index of shared prefixes.
 *
 *	pool   | page 0 | page 1 | page 2 | ...        page = SITS_KV_PAGE_TOKENS tokens, all layers
 *	table  [ 7, 2, 9 ]  positions 0..31 in page 7, 32..63 in page 2, ...
 *
 * All pages are of one size, so the pool never fragments. A page is in one of three states:
 *
 *	free         on the free stack, wiped
 *	referenced   named by one table or more
 *	cached       named by no table, but found through the index: it may be taken at any moment, the
 *	             least recently used first, and is wiped then
 *
 * The index is a forest: a node is a page and the tokens in it, its parent the page before. A page is found
 * by parent, scope and tokens, all of them compared, so no collision of hashes shares a wrong page; the
 * hash is keyed for each process, so nobody can make collisions. A page in the index is never
 * written. A parent is referenced while a child is, and is released after it, so the least recently used page
 * of all is always a leaf.
 *
 * A page that is wiped is wiped at once: keys and values are a request's text in another shape.
 */
#ifndef SITS_ENGINE_KV_H
#define SITS_ENGINE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SITS_KV_CLASSES	3	/* SITS_CLASS_* */
#define SITS_KV_NONE	UINT32_MAX	/* no page */

struct sits_kv_cells;	/* kv_evict.h */
struct sits_kv_node;

/**
 * struct sits_kv - the pool; owned by the engine, touched by its thread alone.
 * @base: page p starts at base + p * page_bytes; 64-byte aligned
 * @free: stack of free page numbers, [nr_free] of [nr_pages]
 * @nr_cached: pages that no table names, kept for their contents
 * @node: [nr_pages], what is known of each page
 * @bucket: [bucket_mask + 1], chains of indexed pages
 * @oldest: @newest: ends of the list of cached pages
 * @roots: indexed pages without a parent, newest first
 * @limit: most pages that the tables of a class may name together; UINT32_MAX: no limit
 * @held: pages that tables of a class name, each counted once
 * @evicted: cached pages taken so far
 */
struct sits_kv {
	uint8_t *base;
	size_t page_bytes;
	uint32_t nr_pages, nr_free, nr_cached;
	uint32_t *free;
	struct sits_kv_node *node;
	uint32_t *bucket, bucket_mask;
	uint32_t oldest, newest, roots;
	uint64_t hash_key[2];
	uint32_t limit[SITS_KV_CLASSES], held[SITS_KV_CLASSES];
	uint64_t evicted;
};

/**
 * struct sits_kv_table - block table; zero-initialise, but for @cls.
 * @page: [nr] of [cap]
 * @nr_indexed: leading pages that are in the index
 * @cls: whose limit its pages count against: SITS_CLASS_*
 * @cow: the last page is shared but not full: sits_kv_grow() copies it before it is written
 * @nr_gone: pages fewer than the tokens would fill, given up by sits_kv_evict()
 * @cells: block tables of heads, once something was given up: only the last pages, with the tokens that came after,
 *	are then what @page says. Such a table is never indexed
 */
struct sits_kv_table {
	uint32_t *page;
	uint32_t nr, cap, nr_indexed;
	uint32_t cls;
	bool cow;
	uint32_t nr_gone;
	struct sits_kv_cells *cells;
};

/** sits_kv_init() - Reserve @nr_pages pages of @page_bytes (a multiple of 64). Return: 0; -EINVAL; -ENOMEM. */
int sits_kv_init(struct sits_kv *kv, size_t page_bytes, uint32_t nr_pages);
/** sits_kv_fini() - Give the pool back; every table must have been released. */
void sits_kv_fini(struct sits_kv *kv);

/** sits_kv_pages() - Pages that hold @tokens tokens. */
uint32_t sits_kv_pages(size_t tokens);
/** sits_kv_more() - Pages that @t lacks for @tokens tokens. */
uint32_t sits_kv_more(const struct sits_kv_table *t, size_t tokens);
/** sits_kv_room() - Pages that can be had: free ones and cached ones. */
uint32_t sits_kv_room(const struct sits_kv *kv);
/** sits_kv_used() - Pages that tables name. */
uint32_t sits_kv_used(const struct sits_kv *kv);

/**
 * sits_kv_grow() - Make @t cover @tokens tokens, and the page of the first one that is not there yet
 * writable; all of it or nothing.
 * Return: 0; -ENOSPC where the pool has too few pages; -EDQUOT where the class may have no more; -ENOMEM.
 */
int sits_kv_grow(struct sits_kv *kv, struct sits_kv_table *t, size_t tokens);

/** sits_kv_release() - Let a sequence's pages go: those in the index are cached unless others name them, the others
 * are wiped and free. The table is empty again, its storage freed; its class stays. */
void sits_kv_release(struct sits_kv *kv, struct sits_kv_table *t);

/**
 * sits_kv_match() - Give an empty table the longest indexed prefix of @token.
 * @scope: only pages indexed under the same one are found
 * @token: @nr: the sequence; at most @nr tokens are matched. The last page may be shared in part
 * Return: tokens covered. 0 also where there is no memory for the table.
 */
size_t sits_kv_match(struct sits_kv *kv, struct sits_kv_table *t, uint64_t scope, const int32_t *token, size_t nr);

/**
 * sits_kv_index() - Let others find what @t holds.
 * @token: @nr: tokens whose keys and values are in its pages
 * @all: index the last page too where it is not full: nobody may write to it from then on, so release @t next
 *
 * Where an equal page is in the index already, @t names that one from now on and its own is free: results are
 * equal bit for bit whoever computed them.
 */
void sits_kv_index(struct sits_kv *kv, struct sits_kv_table *t, uint64_t scope, const int32_t *token, size_t nr,
		   bool all);

/** sits_kv_unindex() - Take @t's pages from the @from-th on, and all that continue them, out of the index. */
void sits_kv_unindex(struct sits_kv *kv, struct sits_kv_table *t, uint32_t from);

/** sits_kv_forget() - Take all pages of a scope out of the index. Return: pages that became free. */
uint32_t sits_kv_forget(struct sits_kv *kv, uint64_t scope);

/** sits_kv_check() - Whether the pool's own books agree, for tests; @refs: [nr_pages] counted over all tables.
 * Return: NULL, or what is wrong. */
const char *sits_kv_check(const struct sits_kv *kv, const uint32_t *refs);

#endif
