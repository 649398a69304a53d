// SPDX-License-Identifier: MIT
/*
 * evict.c - see evict.h. The pages and cells are moved by kv_evict.c.
 *
 * Source: Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks" (keep the first tokens and the
 * latest); Feng et al. 2024, "Ada-KV" (budgets by head).
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/engine_impl.h"
#include "daemon/engine/kv_evict.h"

#define P SITS_KV_PAGE_TOKENS

_Static_assert(SITS_KV_KEEP_LEAST == SITS_EVICT_LEAST * P, "engine.h promises what each head keeps");

/* ---- shares ---- */

void sits_evict_shares(const double *wide, uint32_t heads, uint32_t budget, uint32_t full, uint32_t *share)
{
	uint32_t least = budget * 3 / 4 > SITS_EVICT_LEAST ? budget * 3 / 4 : SITS_EVICT_LEAST;
	uint32_t left = heads * (budget - least), g, best;

	for (g = 0; g < heads; g++)
		share[g] = least;
	while (left--) {
		best = heads;
		/* As d'Hondt deals out seats: what one page more would stand for. Of equal ones the lower number. */
		for (g = 0; g < heads; g++)
			if (share[g] < full && (best == heads || wide[g] * (share[best] - least + 1) >
						wide[best] * (share[g] - least + 1)))
				best = g;
		share[best]++;
	}
}

/* Numbers of positions, of which a NaN is none: one. */
static void layer_shares(const struct sits_evict *v, const struct sits_evict_state *s, uint32_t layer, uint32_t full,
			 double *wide)
{
	uint32_t g;

	for (g = 0; g < v->heads; g++) {
		wide[g] = exp(s->entropy[layer * v->heads + g] / ((double)s->nr_rows * v->per_head));
		if (!(wide[g] >= 1 && wide[g] < INFINITY))
			wide[g] = 1;
	}
	sits_evict_shares(wide, v->heads, v->keep, full, v->share + layer * v->heads);
}

/* ---- the engine, a request ---- */

int sits_evict_create(struct sits_engine *e, const struct sits_engine_opts *o, struct sits_diag *diag)
{
	struct sits_evict *v = &e->evict;
	struct sits_kv_shape shape;

	if (!o->kv_keep)
		return 0;
	if (o->kv_keep < SITS_KV_KEEP_LEAST)
		return sits_diag_fail(diag, -EINVAL, "engine: kv_keep %" PRIu32 " is less than %d tokens, which each head keeps",
				      o->kv_keep, SITS_KV_KEEP_LEAST);
	sits_graph_kv_shape(e->m, o->kv_kind, &shape);
	if ((uint64_t)e->kv.nr_pages * shape.G >= SITS_KV_ABSENT)
		return sits_diag_fail(diag, -EINVAL, "engine: kv_keep: %" PRIu32 " KV pages of %zu heads are more than a block "
				      "table can name; lower kv_bytes", e->kv.nr_pages, shape.G);
	v->layers = e->m->hp.layers;
	v->heads = (uint32_t)shape.G;
	v->per_head = e->m->hp.heads / v->heads;
	v->share = malloc((size_t)v->layers * v->heads * sizeof(*v->share));
	if (!v->share)
		return -ENOMEM;
	/* More than a context is all of it. */
	v->keep = sits_kv_pages(o->kv_keep < e->context ? o->kv_keep : e->context);
	return 0;
}

/* With so many tokens in its pages it gives something up for the first time. */
static uint32_t first_of(const struct sits_evict *v, uint32_t nr_prompt)
{
	return nr_prompt / P > v->keep ? nr_prompt : (v->keep + 1) * P;
}

static uint32_t first_time(const struct sits_evict *v, const struct request *r)
{
	return first_of(v, r->nr_prompt);
}

static uint32_t rows_noted(const struct request *r)
{
	return r->nr_prompt < SITS_EVICT_ROWS ? r->nr_prompt : SITS_EVICT_ROWS;
}

int sits_evict_begin(const struct sits_engine *e, struct request *r)
{
	const struct sits_evict *v = &e->evict;

	/* The last token's keys and values are never stored. */
	if (!v->keep || r->cap <= first_time(v, r))
		return 0;
	r->evict.entropy = calloc((size_t)v->layers * v->heads, sizeof(*r->evict.entropy));
	return r->evict.entropy ? 0 : -ENOMEM;
}

uint32_t sits_evict_reuse(const struct sits_engine *e, const struct request *r)
{
	uint32_t most = r->nr - 1, first;

	if (!r->evict.entropy)
		return most;
	first = first_time(&e->evict, r) - 1;
	if (r->evict.nr_rows < rows_noted(r))
		first = r->nr_prompt - rows_noted(r);
	return first < most ? first : most;
}

uint64_t sits_evict_peak(const struct sits_engine *e, uint32_t nr_prompt, uint64_t tokens)
{
	uint32_t first;

	if (!e->evict.keep)
		return tokens;
	first = first_of(&e->evict, nr_prompt);
	return tokens < first ? tokens : first;
}

uint32_t sits_evict_limit(const struct sits_engine *e, const struct request *r)
{
	uint32_t first;

	if (!r->evict.entropy)
		return UINT32_MAX;
	first = first_time(&e->evict, r);
	return r->nr_cached < first ? first : (r->nr_cached / P + 1) * P;
}

/* ---- entropies ---- */

bool sits_evict_listens(const struct request *r)
{
	return r->evict.entropy && r->evict.nr_rows < rows_noted(r) &&
	       r->nr_cached + r->plan > r->nr_prompt - rows_noted(r);
}

void sits_evict_note(const struct sits_engine *e, struct request *r, uint32_t layer, uint32_t pos, const float *entropy,
		     size_t rows)
{
	const struct sits_evict *v = &e->evict;
	const uint32_t H = v->heads * v->per_head, from = r->nr_prompt - rows_noted(r);
	uint32_t h;
	size_t i;

	if (!r->evict.entropy || r->evict.nr_rows == rows_noted(r))
		return;
	for (i = 0; i < rows; i++, pos++) {
		if (pos < from || pos >= r->nr_prompt)
			continue;
		for (h = 0; h < H; h++)
			r->evict.entropy[layer * v->heads + h / v->per_head] += (double)entropy[i * H + h];
		if (layer + 1 == v->layers)
			r->evict.nr_rows++;
	}
}

void sits_evict_preempted(const struct sits_engine *e, struct request *r)
{
	if (!r->evict.entropy || r->evict.nr_rows == rows_noted(r))
		return;
	memset(r->evict.entropy, 0, (size_t)e->evict.layers * e->evict.heads * sizeof(*r->evict.entropy));
	r->evict.nr_rows = 0;
}

/* ---- giving up ---- */

static void copy_cell(void *arg, uint32_t layer, uint32_t to_page, uint32_t to_cell, uint32_t from_page, uint32_t from_cell)
{
	struct sits_engine *e = arg;

	sits_graph_copy_cell(e->graph, &e->kv, layer, to_page, to_cell, from_page, from_cell);
}

/* Of its full pages. Between two times that is nothing more than at the first of them. Return: pages that it names no more; -ENOMEM. */
static int give_up(struct sits_engine *e, struct request *r)
{
	const struct sits_evict *v = &e->evict;
	const struct sits_kv_cut cut = {
		.layers = v->layers, .heads = v->heads, .keep = v->share, .copy = copy_cell, .arg = e,
	};
	uint32_t full = r->nr_cached / P, l;
	double *wide;
	int ret;

	wide = malloc(v->heads * sizeof(*wide));
	if (!wide)
		return -ENOMEM;
	for (l = 0; l < v->layers; l++)
		layer_shares(v, &r->evict, l, full, wide);
	free(wide);
	ret = sits_kv_evict(&e->kv, &r->pages, full, &cut);
	if (ret > 0)
		e->stats.kv_given_up += (uint32_t)ret;
	return ret;
}

int sits_evict_run(struct sits_engine *e, struct request *r)
{
	uint32_t first;
	int ret;

	if (!r->evict.entropy)
		return 0;
	first = first_time(&e->evict, r);
	if (r->nr_cached < first || (r->nr_cached > first && r->nr_cached % P))
		return 0;
	ret = give_up(e, r);
	return ret < 0 ? ret : 0;
}

bool sits_evict_again(struct sits_engine *e, struct request *r)
{
	return r->pages.cells && give_up(e, r) > 0;
}
