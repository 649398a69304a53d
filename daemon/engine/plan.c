// SPDX-License-Identifier: MIT
/*
 * plan.c - what runs in a step: who is admitted, who gets how many rows, and the pages for them.
 *
 * The order of requests is by the time they are due: arrival, and the longest wait of their class. Among requests of
 * one class that is by age. It never changes, and no later one is given what an earlier one needs, so each
 * becomes the first in time and starts.
 */
#include <errno.h>
#include <string.h>

#include "daemon/engine/engine_impl.h"

/* Least number of prompt tokens that a request's share of a step is worth. */
#define MIN_CHUNK	16

/* ---- admission ---- */

/* Tokens that are in the request's pages before it gives something up next; all that it has, where it does not. */
static uint32_t next_tokens(const struct sits_engine *e, const struct request *r)
{
	uint32_t limit = sits_evict_limit(e, r);

	return r->nr < limit ? r->nr : limit;
}

/* Pages that those that run need for the tokens they have. */
static uint32_t owed(const struct sits_engine *e, uint32_t cls)
{
	uint32_t i, need, sum = 0;

	for (i = 0; i < e->nr_running; i++) {
		const struct sits_kv_table *t = &e->running[i]->pages;

		need = sits_kv_more(t, next_tokens(e, e->running[i]));
		if (cls == SITS_KV_CLASSES || cls == t->cls)
			sum += need + t->cow;
	}
	return sum;
}

static bool class_runs(const struct sits_engine *e, uint32_t cls)
{
	uint32_t i;

	for (i = 0; i < e->nr_running; i++)
		if (e->running[i]->pages.cls == cls)
			return true;
	return false;
}

enum fit { FITS, NO_ROOM, OVER_LIMIT, LATER };

/* Whether @r, which has what the index gave it, can start beside those that run. Alone it always can. */
static enum fit fits(const struct sits_engine *e, const struct request *r)
{
	uint64_t need = sits_kv_more(&r->pages, next_tokens(e, r)) + r->pages.cow;
	uint32_t cls = r->pages.cls;

	if (class_runs(e, cls) && (uint64_t)e->kv.held[cls] + owed(e, cls) + need > e->kv.limit[cls])
		return OVER_LIMIT;
	if (e->nr_running && owed(e, SITS_KV_CLASSES) + need > sits_kv_room(&e->kv))
		return NO_ROOM;
	return FITS;
}

/*
 * Whether one that runs is about to compute the next page of the tokens that @r has in common with it: then @r
 * waits for that page.
 */
static bool is_computed_by_another(const struct sits_engine *e, const struct request *r)
{
	uint32_t end = r->nr_cached / SITS_KV_PAGE_TOKENS * SITS_KV_PAGE_TOKENS + SITS_KV_PAGE_TOKENS, i;

	if (is_private(r) || end >= r->nr || end > sits_evict_reuse(e, r))
		return false;
	for (i = 0; i < e->nr_running; i++) {
		const struct request *q = e->running[i];

		if (q->scope == r->scope && !q->pages.cells && q->nr_cached < end && q->nr >= end &&
		    !memcmp(q->token, r->token, end * sizeof(*r->token)))
			return true;
	}
	return false;
}

static void take_prefix(struct sits_engine *e, struct request *r)
{
	r->nr_cached = 0;
	if (!is_private(r) || r->parked)
		r->nr_cached = sits_kv_match(&e->kv, &r->pages, r->scope, r->token,
					     sits_evict_reuse(e, r));
}

static void start(struct sits_engine *e, struct request *r)
{
	sits_req_unwait(e, r);
	sits_req_run(e, r);
	r->hit_pages = r->pages.nr_indexed;
	if (is_private(r) && r->parked)
		sits_kv_forget(&e->kv, r->scope);
	if (is_private(r))
		r->pages.nr_indexed = 0;
	r->parked = false;
	if (r->start_ns)
		return;
	r->start_ns = sits_engine_now_ns();
	r->from_cache = r->nr_cached;
	if (is_private(r))
		return;
	e->stats.prefix_cache_queries += r->nr_prompt;
	e->stats.prefix_cache_hits += r->nr_cached;
}

/* The last of those that run by class and place, but for the first in the order, which nobody displaces. */
static struct request *last_one(const struct sits_engine *e)
{
	struct request *last = NULL;
	uint32_t i;

	for (i = 1; i < e->nr_running; i++)
		if (!last || e->running[i]->pages.cls >= last->pages.cls)
			last = e->running[i];
	return last;
}

/* One of a lower class makes room for @r, which is due. */
static bool displace(struct sits_engine *e, const struct request *r)
{
	struct request *last = last_one(e);

	if (!last || last->pages.cls <= r->pages.cls)
		return false;
	sits_req_preempt(e, last);
	return true;
}

static enum fit try_start(struct sits_engine *e, struct request *r)
{
	enum fit fit;

	do {
		fit = NO_ROOM;
		if (e->nr_running == e->max_seqs)
			continue;
		take_prefix(e, r);
		fit = is_computed_by_another(e, r) ? LATER : fits(e, r);
		if (fit == FITS) {
			start(e, r);
			break;
		}
		sits_kv_release(&e->kv, &r->pages);
		r->nr_cached = 0;
	} while (fit == NO_ROOM && displace(e, r));
	return fit;
}

/*
 * In order: a large request at the head waits for pages, and no later one takes them. One that only its class's
 * limit stops holds up its own class alone; one that waits for another's pages, nobody.
 */
void sits_plan_admit(struct sits_engine *e)
{
	bool over[SITS_KV_CLASSES] = { false };
	struct request *r, *next;
	uint32_t later = 0;
	enum fit fit;

	/* Of those that wait for others' pages no more are looked at than could run. */
	for (r = e->waiting; r && later < e->max_seqs; r = next) {
		next = r->next;
		if (over[r->pages.cls])
			continue;
		fit = try_start(e, r);
		if (fit == NO_ROOM)
			break;
		over[r->pages.cls] = fit == OVER_LIMIT;
		later += fit == LATER;
	}
}

/* ---- rows ---- */

/* Rows that the request can use in this step. */
static uint32_t rows_now(const struct sits_engine *e, const struct request *r)
{
	uint32_t most = sits_evict_limit(e, r) - r->nr_cached;

	return rows_due(r) < most ? rows_due(r) : most;
}

/* Share @left rows among requests that still compute their prompt: an equal part to each, in turn;
 * what some do not need goes to the others, oldest first. Return: rows left over. */
static uint32_t share_rows(struct sits_engine *e, uint32_t nr_prefill, uint32_t left)
{
	uint32_t share = left / nr_prefill, i, n;
	struct request *r;

	if (share < MIN_CHUNK)
		share = MIN_CHUNK;
	e->turn = e->turn + 1 < e->nr_running ? e->turn + 1 : 0;
	for (i = 0; i < e->nr_running && left; i++) {
		r = e->running[(e->turn + i) % e->nr_running];
		if (rows_due(r) == 1)
			continue;
		n = rows_now(e, r) < share ? rows_now(e, r) : share;
		r->plan = n < left ? n : left;
		left -= r->plan;
	}
	for (i = 0; i < e->nr_running && left; i++) {
		r = e->running[i];
		if (rows_due(r) == 1)
			continue;
		n = rows_now(e, r) - r->plan;
		n = n < left ? n : left;
		r->plan += n;
		left -= n;
	}
	return left;
}

/* ---- pages ---- */

static struct request *last_of_class(const struct sits_engine *e, uint32_t cls)
{
	uint32_t i;

	for (i = e->nr_running; i-- > 0;)
		if (e->running[i]->pages.cls == cls)
			return e->running[i];
	return NULL;
}

/* Make do with the pages that can be had. */
static void shorten(struct sits_engine *e, struct request *r, int why)
{
	const struct sits_kv_table *t = &r->pages;
	uint64_t more = why == -ENOSPC ? sits_kv_room(&e->kv) : 0, room;

	if (why == -EDQUOT && e->kv.held[t->cls] < e->kv.limit[t->cls])
		more = e->kv.limit[t->cls] - e->kv.held[t->cls];
	/* The copy of a shared page comes first; without it nothing can be written. */
	room = t->cow && !more ? 0 : (t->nr_gone + t->nr + more - t->cow) * SITS_KV_PAGE_TOKENS;
	room = room > r->nr_cached ? room - r->nr_cached : 0;
	r->plan = room < r->plan ? room : 0;
}

/*
 * Pages for what is planned, in order, at the cost of the last. The last itself makes do with what is
 * left, down to sitting the step out. The first can displace all others and was checked at submit to fit
 * alone, so each step moves it on; one that could not give up what others named can when they are gone.
 */
static void find_pages(struct sits_engine *e)
{
	struct request *r, *last;
	uint32_t i = 0;
	int ret;

	while (i < e->nr_running) {
		r = e->running[i];
		ret = r->plan ? sits_kv_grow(&e->kv, &r->pages, (size_t)r->nr_cached + r->plan) : 0;
		if (!ret) {
			i++;
			continue;
		}
		if (sits_evict_again(e, r))
			continue;
		last = ret == -ENOSPC ? last_one(e) : ret == -EDQUOT ? last_of_class(e, r->pages.cls) : NULL;
		if (last && last != r) {
			i -= comes_before(last, r);
			sits_req_preempt(e, last);
		} else {
			shorten(e, r, ret);
		}
	}
}

/* Tokens that are given are like guesses that come true. Return: rows for them. */
static uint32_t force(struct sits_engine *e, uint32_t left)
{
	uint32_t i, n, used = 0;
	struct request *r;

	for (i = 0; i < e->nr_running; i++) {
		r = e->running[i];
		if (!r->forced || !r->plan || r->plan != rows_due(r))
			continue;
		n = sits_req_room(e, r) < left - used ? sits_req_room(e, r) : left - used;
		r->nr_guess = sits_kv_grow(&e->kv, &r->pages, (size_t)r->nr + n) ? 0 : n;
		used += r->nr_guess;
	}
	return used;
}

void sits_plan_step(struct sits_engine *e)
{
	uint32_t i, left = e->budget, nr_prefill = 0;

	for (i = 0; i < e->nr_running; i++) {
		e->running[i]->plan = e->running[i]->nr_guess = 0;
		if (rows_due(e->running[i]) > 1) {
			nr_prefill++;
			continue;
		}
		e->running[i]->plan = 1;
		left--;
	}
	if (nr_prefill)
		left = share_rows(e, nr_prefill, left);
	find_pages(e);
	left = left < e->max_guesses ? left : e->max_guesses;
	left -= force(e, left);
	if (e->spec)
		sits_spec_guess(e, left);
}
