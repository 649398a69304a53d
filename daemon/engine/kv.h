/* SPDX-License-Identifier: MIT */
/*
 * kv.h - the pool of KV pages and the block table of one sequence.
 *
 *	pool   | page 0 | page 1 | page 2 | ...        page = SITS_KV_PAGE_TOKENS tokens, all layers
 *	table  [ 7, 2, 9 ]  positions 0..31 in page 7, 32..63 in page 2, ...
 *
 * All pages are of one size, so the pool never fragments. A page belongs to one table or to the
 * free list. A released page is wiped at once: keys and values are a request's text in another shape.
 */
#ifndef SITS_ENGINE_KV_H
#define SITS_ENGINE_KV_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct sits_kv - the pool; owned by the engine, touched by its thread alone.
 * @base: page p starts at base + p * page_bytes; 64-byte aligned
 * @free: stack of free page numbers, [nr_free] of [nr_pages]
 */
struct sits_kv {
	uint8_t *base;
	size_t page_bytes;
	uint32_t nr_pages, nr_free;
	uint32_t *free;
};

/* Block table; zero-initialise. */
struct sits_kv_table {
	uint32_t *page;
	uint32_t nr, cap;
};

/** sits_kv_init() - Reserve @nr_pages pages of @page_bytes (a multiple of 64). Return: 0; -EINVAL; -ENOMEM. */
int sits_kv_init(struct sits_kv *kv, size_t page_bytes, uint32_t nr_pages);
/** sits_kv_fini() - Give the pool back; every table must have been released. */
void sits_kv_fini(struct sits_kv *kv);

/** sits_kv_pages() - Pages that hold @tokens tokens. */
uint32_t sits_kv_pages(size_t tokens);

/** sits_kv_grow() - Make @t cover @tokens tokens; all of the missing pages or none.
 * Return: 0; -ENOSPC where the pool has too few free pages; -ENOMEM. */
int sits_kv_grow(struct sits_kv *kv, struct sits_kv_table *t, size_t tokens);

/** sits_kv_release() - Wipe a sequence's pages and return them; the table is empty again, its storage freed. */
void sits_kv_release(struct sits_kv *kv, struct sits_kv_table *t);

#endif
