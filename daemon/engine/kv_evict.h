/* SPDX-License-Identifier: MIT */
/*
 * kv_evict.h - a sequence that has given a part of its keys and values up, each head another one.
 *
 * In a page each layer and key/value head has a cell (kernels/kernels.h). A sequence whose heads do not all keep the same
 * has a block table for each of them, which names cells or says that there is none:
 *
 *	layer 3, head 0   [ 7.0  -    -    7.1  2.0 ]   9.0      7.1: cell 1 of page 7
 *	         head 1   [ 2.1  -    -    -    -   ]   9.1
 *	          the full pages, now in pages 7 and 2    the page being filled
 *
 * Cells of pages that go are copied to where pages that stay have room, so that the table holds as many pages as its heads
 * keep on average. Pages in the index, or named by others, are never written to: what is kept of them is copied to pages
 * of the table's own.
 */
#ifndef SITS_ENGINE_KV_EVICT_H
#define SITS_ENGINE_KV_EVICT_H

#include "daemon/engine/kv.h"

/* Heap; a table's own. All heads' tables have @cap entries. */
struct sits_kv_cells {
	uint32_t layers, heads, cap;
	uint32_t at[];		/* [layers][heads][cap]: page * heads + cell, or SITS_KV_ABSENT */
};

/**
 * struct sits_kv_cut - what is kept of a sequence.
 * @keep: [layers][heads] full pages that a head keeps, >= 2: the first, and the latest
 * @copy: the cell of one layer of a page into another's
 */
struct sits_kv_cut {
	uint32_t layers, heads;
	const uint32_t *keep;
	void (*copy)(void *arg, uint32_t layer, uint32_t to_page, uint32_t to_cell, uint32_t from_page, uint32_t from_cell);
	void *arg;
};

/**
 * sits_kv_evict() - Give up what heads do not keep of the first @full pages of @t's tokens, all of which are full.
 *
 * Which cells a head has afterwards depends on the calls for this table alone. How many pages that frees does not: pages
 * that others name can be given up only where there is room for copies, and a later call tries again.
 * Return: pages that @t names no more; -ENOMEM: nothing has changed.
 */
int sits_kv_evict(struct sits_kv *kv, struct sits_kv_table *t, uint32_t full, const struct sits_kv_cut *cut);

/** sits_kv_cells_of() - The block table of a layer's first head; the next head's is @cap entries on. */
static inline uint32_t *sits_kv_cells_of(struct sits_kv_cells *c, uint32_t layer)
{
	return c->at + (size_t)layer * c->heads * c->cap;
}

/** sits_kv_check_cells() - Whether the heads' tables of @t agree with its pages, for tests. Return: NULL, or what is wrong. */
const char *sits_kv_check_cells(const struct sits_kv *kv, const struct sits_kv_table *t);

#endif
