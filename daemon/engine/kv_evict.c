// SPDX-License-Identifier: MIT
/*
 * kv_evict.c - see kv_evict.h: heads' block tables, and the cells that move.
 */
#include "daemon/engine/kv_evict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/kv_node.h"

static uint32_t *head_of(struct sits_kv_cells *c, uint32_t layer, uint32_t head)
{
	return sits_kv_cells_of(c, layer) + (size_t)head * c->cap;
}

static struct sits_kv_cells *cells_alloc(uint32_t layers, uint32_t heads, uint32_t cap)
{
	struct sits_kv_cells *c = malloc(sizeof(*c) + (size_t)layers * heads * cap * sizeof(*c->at));

	if (c)
		*c = (struct sits_kv_cells){ .layers = layers, .heads = heads, .cap = cap };
	return c;
}

/* Pages that the table's tokens fill, those that it has given up among them. */
static uint32_t logical(const struct sits_kv_table *t)
{
	return t->nr_gone + t->nr;
}

/* Page @p, numbered @at in the sequence, as it was stored: head g in cell g. */
static void add_page(struct sits_kv_cells *c, uint32_t at, uint32_t p)
{
	uint32_t l, g;

	for (l = 0; l < c->layers; l++)
		for (g = 0; g < c->heads; g++)
			head_of(c, l, g)[at] = p * c->heads + g;
}

int sits_kv_cells_reserve(struct sits_kv_table *t, uint32_t pages)
{
	struct sits_kv_cells *old = t->cells, *c;
	uint32_t l, g;

	if (!old || pages <= old->cap)
		return 0;
	c = cells_alloc(old->layers, old->heads, pages + pages / 2);
	if (!c)
		return -ENOMEM;
	for (l = 0; l < c->layers; l++)
		for (g = 0; g < c->heads; g++)
			memcpy(head_of(c, l, g), head_of(old, l, g), logical(t) * sizeof(*c->at));
	t->cells = c;
	free(old);
	return 0;
}

void sits_kv_cells_add(struct sits_kv_table *t)
{
	if (t->cells)
		add_page(t->cells, logical(t) - 1, t->page[t->nr - 1]);
}

static int create_cells(struct sits_kv_table *t, const struct sits_kv_cut *cut)
{
	uint32_t i;

	if (t->cells)
		return 0;
	t->cells = cells_alloc(cut->layers, cut->heads, t->nr + t->nr / 2);
	if (!t->cells)
		return -ENOMEM;
	for (i = 0; i < t->nr; i++)
		add_page(t->cells, i, t->page[i]);
	return 0;
}

/* ---- which ---- */

/* All but the first and the latest @keep - 1 of those that are there go. Return: how many stay. */
static uint32_t cut_head(uint32_t *at, uint32_t full, uint32_t keep)
{
	uint32_t i, nr = 0, drop;

	for (i = 0; i < full; i++)
		nr += at[i] != SITS_KV_ABSENT;
	drop = nr > keep ? nr - keep : 0;
	nr -= drop;
	for (i = 1; drop; i++) {
		drop -= at[i] != SITS_KV_ABSENT;
		at[i] = SITS_KV_ABSENT;
	}
	return nr;
}

/* Return: pages that hold the cells that are left. */
static uint32_t cut_all(struct sits_kv_cells *c, uint32_t full, const uint32_t *keep)
{
	uint32_t l, g, nr, most = 0;

	for (l = 0; l < c->layers; l++) {
		for (g = nr = 0; g < c->heads; g++)
			nr += cut_head(head_of(c, l, g), full, *keep++);
		nr = (nr + c->heads - 1) / c->heads;
		most = nr > most ? nr : most;
	}
	return most;
}

/* ---- where to ---- */

static bool is_ours_alone(const struct sits_kv *kv, uint32_t p)
{
	return kv->node[p].ref == 1;
}

static bool is_own(const struct sits_kv *kv, uint32_t p)
{
	return is_ours_alone(kv, p) && !kv->node[p].fill;
}

/* Pages that the table may have beside those it has. */
static uint32_t can_have(const struct sits_kv *kv, const struct sits_kv_table *t)
{
	uint32_t limit = kv->limit[t->cls], room = sits_kv_room(kv);
	uint32_t quota = limit > kv->held[t->cls] ? limit - kv->held[t->cls] : 0;

	return room < quota ? room : quota;
}

/*
 * @need pages to fill: the table's own ones, then fresh ones; where there is no room for these, pages that only the table
 * names are taken out of the index. Return: whether there are so many; if not, nothing has changed.
 */
static bool find_targets(struct sits_kv *kv, const struct sits_kv_table *t, uint32_t nr_full, uint32_t need, uint32_t *target)
{
	uint32_t i, n = 0, fresh, indexed = 0;

	for (i = 0; i < nr_full; i++) {
		if (is_own(kv, t->page[i]) && n < need)
			target[n++] = t->page[i];
		indexed += is_ours_alone(kv, t->page[i]) && kv->node[t->page[i]].fill;
	}
	fresh = can_have(kv, t);
	fresh = fresh < need - n ? fresh : need - n;
	if (n + fresh + indexed < need)
		return false;
	for (i = nr_full; i-- > 0 && n + fresh < need;) {
		if (!is_ours_alone(kv, t->page[i]) || !kv->node[t->page[i]].fill)
			continue;
		sits_kv_prune(kv, t->page[i]);
		target[n++] = t->page[i];
	}
	while (n < need)
		target[n++] = sits_kv_take(kv, t->cls);
	return true;
}

/* ---- moving ---- */

/* Cells of a layer that lie in other pages, into those that targets have left. @used: [need * heads]. */
static void move_layer(struct sits_kv *kv, struct sits_kv_cells *c, uint32_t layer, uint32_t full,
		       const struct sits_kv_cut *cut, const uint32_t *target, uint32_t need, uint8_t *used)
{
	const uint32_t H = c->heads;
	uint32_t g, i, at, to = 0, *cell;

	memset(used, 0, (size_t)need * H);
	for (g = 0; g < H; g++) {
		cell = head_of(c, layer, g);
		for (i = 0; i < full; i++) {
			at = cell[i] == SITS_KV_ABSENT ? 0 : kv->node[cell[i] / H].target;
			if (at)
				used[(at - 1) * H + cell[i] % H] = 1;
		}
	}
	for (g = 0; g < H; g++) {
		cell = head_of(c, layer, g);
		for (i = 0; i < full; i++) {
			if (cell[i] == SITS_KV_ABSENT || kv->node[cell[i] / H].target)
				continue;
			while (used[to])
				to++;
			used[to] = 1;
			cut->copy(cut->arg, layer, target[to / H], to % H, cell[i] / H, cell[i] % H);
			cell[i] = target[to / H] * H + to % H;
		}
	}
}

/* The table names targets in the place of its first @nr_full pages. Let go from the end, as in sits_kv_release(). */
static void replace(struct sits_kv *kv, struct sits_kv_table *t, uint32_t nr_full, const uint32_t *target, uint32_t need)
{
	uint32_t i;

	for (i = nr_full; i-- > 0;)
		if (!kv->node[t->page[i]].target)
			sits_kv_unref(kv, t->page[i], t->cls);
	memcpy(t->page, target, need * sizeof(*target));
	memmove(t->page + need, t->page + nr_full, (t->nr - nr_full) * sizeof(*t->page));
	for (i = 0; i < need; i++)
		kv->node[target[i]].target = 0;
	t->nr_gone += nr_full - need;
	t->nr -= nr_full - need;
}

static void compact(struct sits_kv *kv, struct sits_kv_table *t, uint32_t full, uint32_t need,
		    const struct sits_kv_cut *cut, uint32_t *target, uint8_t *used)
{
	uint32_t i, l, nr_full = full - t->nr_gone;

	if (need >= nr_full || !find_targets(kv, t, nr_full, need, target))
		return;
	for (i = 0; i < need; i++)
		kv->node[target[i]].target = 1 + i;
	for (l = 0; l < cut->layers; l++)
		move_layer(kv, t->cells, l, full, cut, target, need, used);
	replace(kv, t, nr_full, target, need);
}

int sits_kv_evict(struct sits_kv *kv, struct sits_kv_table *t, uint32_t full, const struct sits_kv_cut *cut)
{
	const uint32_t nr = t->nr;
	uint32_t *target = malloc(nr * sizeof(*target));
	uint8_t *used = malloc((size_t)nr * cut->heads);
	int ret = target && used ? create_cells(t, cut) : -ENOMEM;

	if (!ret) {
		t->nr_indexed = 0;
		compact(kv, t, full, cut_all(t->cells, full, cut->keep), cut, target, used);
		ret = (int)(nr - t->nr);
	}
	free(target);
	free(used);
	return ret;
}

/* ---- for tests ---- */

static bool is_named(const struct sits_kv_table *t, uint32_t page)
{
	uint32_t i;

	for (i = 0; i < t->nr; i++)
		if (t->page[i] == page)
			return true;
	return false;
}

const char *sits_kv_check_cells(const struct sits_kv *kv, const struct sits_kv_table *t)
{
	uint32_t l, i, j, nr = logical(t);
	struct sits_kv_cells *c = t->cells;
	const uint32_t *at;

	if (!c)
		return t->nr_gone ? "pages are gone, and there are no heads' tables" : NULL;
	if (t->nr_indexed || t->cow)
		return "pages of an evicted table are still to be shared";
	for (l = 0; l < c->layers; l++) {
		at = sits_kv_cells_of(c, l);
		for (i = 0; i < c->heads * c->cap; i++) {
			if (i % c->cap >= nr || at[i] == SITS_KV_ABSENT)
				continue;
			if (!is_named(t, at[i] / c->heads))
				return "a cell lies in a page that the table does not name";
			for (j = 0; j < i; j++)
				if (j % c->cap < nr && at[j] == at[i])
					return "two places of a layer are one cell";
		}
		for (j = 0; j < c->heads; j++)
			if (nr && at[(size_t)j * c->cap] == SITS_KV_ABSENT)
				return "a head lacks its first page";
	}
	for (i = 0; i < kv->nr_pages; i++)
		if (kv->node[i].target)
			return "a page is still the target of an eviction";
	return NULL;
}
