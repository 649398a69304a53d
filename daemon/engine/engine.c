// SPDX-License-Identifier: MIT
/*
 * engine.c - see engine.h: creation, submit, cancel, a step. What a step is made of lies in the files that
 * engine_impl.h lists.
 */
#include "daemon/engine/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engine/engine_impl.h"
#include "daemon/engine/kv_evict.h"

#define DEFAULT_SEQS	64
#define DEFAULT_BUDGET	256
#define DEFAULT_SEQ_TOKENS 512
#define MAX_SEQS	4096
#define MAX_BUDGET	65536
#define MAX_PATTERNS	65536
/* Rows of guesses in a step, at most: each has logits, a vocabulary wide. */
#define MAX_STEP_GUESSES 128

uint64_t sits_engine_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

uint64_t sits_engine_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* ---- creation ---- */

static uint64_t memory_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
}

/* Pages are touched when they are used, but the list of them is filled at once: some bytes for each. */
static int check_kv(const struct sits_engine_opts *o, struct sits_diag *diag)
{
	if (o->kv_bytes > memory_bytes())
		return sits_diag_fail(diag, -EINVAL, "engine: kv_bytes %" PRIu64 " is more than the memory of this machine, %" PRIu64
				      " bytes", o->kv_bytes, memory_bytes());
	if (o->kv_kind != SITS_KV_F16 && o->kv_kind != SITS_KV_I8)
		return sits_diag_fail(diag, -EINVAL, "engine: kv_kind %" PRIu32 " is unknown", o->kv_kind);
	return 0;
}

static int create_pool(struct sits_engine *e, const struct sits_engine_opts *o, struct sits_diag *diag)
{
	uint64_t page = sits_graph_page_bytes(e->m, e->be, o->kv_kind);
	uint64_t pages = (uint64_t)e->max_seqs * sits_kv_pages(DEFAULT_SEQ_TOKENS);
	uint32_t i;
	int ret;

	if (pages < sits_kv_pages(e->context))
		pages = sits_kv_pages(e->context);
	if (o->kv_bytes)
		pages = o->kv_bytes / page;
	if (!pages)
		return sits_diag_fail(diag, -EINVAL,
				      "engine: kv_bytes %" PRIu64 " is less than one page of %" PRIu64 " bytes",
				      o->kv_bytes, page);
	if (pages >= UINT32_MAX)
		pages = UINT32_MAX - 1;
	ret = sits_kv_init(&e->kv, page, pages);
	if (ret)
		return sits_diag_fail(diag, ret, "engine: no memory for %" PRIu64 " KV pages of %" PRIu64 " bytes; "
				      "lower kv_bytes, or max_seqs and context", pages, page);
	for (i = 0; i < SITS_KV_CLASSES; i++) {
		if (o->kv_limit[i] && o->kv_limit[i] < page)
			return sits_diag_fail(diag, -EINVAL, "engine: kv_limit %" PRIu64 " is less than one page of %"
					      PRIu64 " bytes", o->kv_limit[i], page);
		if (o->kv_limit[i] && o->kv_limit[i] / page < pages)
			e->kv.limit[i] = o->kv_limit[i] / page;
	}
	return 0;
}

static int create_arrays(struct sits_engine *e)
{
	e->running = calloc(e->max_seqs, sizeof(*e->running));
	e->token = calloc(e->budget, sizeof(*e->token));
	e->pos = calloc(e->budget, sizeof(*e->pos));
	e->seq = calloc(e->max_seqs, sizeof(*e->seq));
	e->stride = calloc(e->max_seqs, sizeof(*e->stride));
	e->owner = calloc(e->max_seqs, sizeof(*e->owner));
	e->want = calloc(e->max_seqs, sizeof(*e->want));
	return e->running && e->token && e->pos && e->seq && e->stride && e->owner && e->want ? 0 : -ENOMEM;
}

static int check_opts(struct sits_engine *e, const struct sits_engine_opts *o, struct sits_diag *diag)
{
	e->max_seqs = o->max_seqs ? o->max_seqs : DEFAULT_SEQS;
	e->budget = o->token_budget ? o->token_budget : DEFAULT_BUDGET;
	e->context = o->context ? o->context : e->m->hp.context;
	if (e->max_seqs > MAX_SEQS)
		return sits_diag_fail(diag, -EINVAL, "engine: max_seqs %" PRIu32 " is more than %u", e->max_seqs,
				      MAX_SEQS);
	if (!o->token_budget && e->budget < e->max_seqs)
		e->budget = e->max_seqs;
	if (e->budget < e->max_seqs || e->budget > MAX_BUDGET)
		return sits_diag_fail(diag, -EINVAL, "engine: token_budget %" PRIu32 " is not in %" PRIu32
				      " (max_seqs)..%u", e->budget, e->max_seqs, MAX_BUDGET);
	if (e->context < 2 || e->context > e->m->hp.context)
		return sits_diag_fail(diag, -EINVAL, "engine: context %" PRIu32 " is not in 2..%" PRIu32
				      ", the model's own", e->context, e->m->hp.context);
	e->max_guesses = e->budget - 1 < MAX_STEP_GUESSES ? e->budget - 1 : MAX_STEP_GUESSES;
	return 0;
}

/* Options of experts; a dense model has no use for them. */
static int create_moe(struct sits_engine *e, const struct sits_engine_opts *o, struct sits_diag *diag)
{
	struct sits_moe_stats *s = sits_graph_moe(e->graph);

	if (!(o->moe_capacity >= 0) || !(o->moe_balance >= 0) || isinf(o->moe_capacity) || isinf(o->moe_balance))
		return sits_diag_fail(diag, -EINVAL, "engine: moe_capacity %g or moe_balance %g is not a number >= 0",
				      (double)o->moe_capacity, (double)o->moe_balance);
	if (!(o->moe_temperature >= 0) || isinf(o->moe_temperature))
		return sits_diag_fail(diag, -EINVAL, "engine: moe_temperature %g is not a number > 0", (double)o->moe_temperature);
	if (o->route_patterns > MAX_PATTERNS)
		return sits_diag_fail(diag, -EINVAL, "engine: route_patterns %" PRIu32 " is more than %u",
				      o->route_patterns, MAX_PATTERNS);
	if (!s)
		return 0;
	if (o->moe_temperature > 0)
		sits_graph_set_route_temperature(e->graph, o->moe_temperature);
	s->capacity = o->moe_capacity;
	s->balance = o->moe_balance;
	if (!o->route_patterns)
		return 0;
	return sits_route_cache_create(s->layers, s->experts, o->route_patterns, &e->routes);
}

int sits_engine_create(const struct sits_model *m, const struct sits_engine_opts *opts,
		       struct sits_engine **out, struct sits_diag *diag)
{
	struct sits_engine *e = calloc(1, sizeof(*e));
	int ret;

	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	e->m = m;
	ret = check_opts(e, opts, diag);
	if (ret)
		goto err_destroy;
	ret = check_kv(opts, diag);
	if (ret)
		goto err_destroy;
	ret = -ENODEV;
	e->be = sits_backend_get(opts->isa);
	if (!e->be) {
		sits_diag_fail(diag, ret, "engine: %s \"%s\" is unknown or not usable on this CPU",
			       opts->isa ? "backend" : "SITS_FORCE_ISA", opts->isa ? opts->isa : getenv("SITS_FORCE_ISA"));
		goto err_destroy;
	}
	ret = create_arrays(e);
	if (!ret)
		ret = create_pool(e, opts, diag);
	if (!ret)
		ret = sits_evict_create(e, opts, diag);
	/* Before the team: a thread inherits the CPUs of the one that starts it, and pinning leaves this one with one. */
	if (!ret && opts->route_patterns && m->hp.route.experts)
		ret = sits_prefetch_create(m, &e->prefetch);
	if (!ret)
		ret = sits_threads_create(opts->threads, opts->pin, &e->team, diag);
	if (!ret)
		ret = sits_graph_create(m, e->be, e->team, e->budget, e->max_seqs + e->max_guesses, &e->graph, diag);
	if (!ret)
		ret = create_moe(e, opts, diag);
	if (!ret)
		ret = sits_spec_create(e, opts, &e->spec, diag);
	if (ret)
		goto err_destroy;
	sits_graph_set_kv_kind(e->graph, opts->kv_kind);
	*out = e;
	return 0;

err_destroy:
	sits_diag_fail(diag, ret, "engine: no memory");
	sits_engine_destroy(e);
	return ret;
}

void sits_engine_destroy(struct sits_engine *e)
{
	if (!e)
		return;
	sits_req_finish_all(e, -ESHUTDOWN, "the engine is shutting down");
	sits_spec_destroy(e->spec);
	sits_prefetch_destroy(e->prefetch);
	sits_route_cache_destroy(e->routes);
	sits_graph_destroy(e->graph);
	sits_threads_destroy(e->team);
	sits_kv_fini(&e->kv);
	free(e->running);
	free(e->token);
	free(e->pos);
	free(e->seq);
	free(e->stride);
	free(e->evict.share);
	free(e->owner);
	free(e->want);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

/* ---- requests ---- */

int sits_engine_submit(struct sits_engine *e, const struct sits_gen_params *p,
		       const struct sits_gen_sink *sink, uint64_t *id, struct sits_diag *diag)
{
	struct request *r;
	int ret = sits_req_create(e, p, sink, &r, diag);

	if (ret)
		return ret;
	sits_req_wait(e, r);
	*id = r->id;
	return 0;
}

void sits_engine_cancel(struct sits_engine *e, uint64_t id)
{
	struct request *r;

	pthread_mutex_lock(&e->lock);
	for (r = e->all; r; r = r->all_next)
		if (r->id == id)
			atomic_store(&r->cancelled, true);
	pthread_mutex_unlock(&e->lock);
}

/* ---- a step ---- */

static void note_entropy(void *arg, uint32_t layer, uint32_t owner, int32_t pos, const float *entropy, size_t rows)
{
	struct sits_engine *e = arg;

	sits_evict_note(e, e->running[owner], layer, (uint32_t)pos, entropy, rows);
}

static void use_cells(struct sits_kv_cells *c, struct sits_attn_seq *s, size_t *layer_stride)
{
	s->pages = sits_kv_cells_of(c, 0);
	s->head_stride = c->cap;
	*layer_stride = (size_t)c->heads * c->cap;
}

static void add_rows(struct sits_engine *e, struct sits_graph_batch *b, uint32_t i)
{
	struct request *r = e->running[i];
	uint32_t j, nr = r->plan + r->nr_guess;

	e->seq[b->nr_seq] = (struct sits_attn_seq){
		.pages = r->pages.page, .row0 = b->T, .nr = nr, .pos0 = r->nr_cached,
	};
	e->stride[b->nr_seq] = 0;
	if (r->pages.cells)
		use_cells(r->pages.cells, &e->seq[b->nr_seq], &e->stride[b->nr_seq]);
	if (sits_evict_listens(r))
		b->entropy = note_entropy;
	e->owner[b->nr_seq] = i;
	e->want[b->nr_seq] = r->plan == rows_due(r) ? 1 + r->nr_guess : 0;
	b->nr_seq++;
	for (j = 0; j < nr; j++) {
		e->token[b->T] = r->token[r->nr_cached + j];
		e->pos[b->T++] = r->nr_cached + j;
	}
}

static bool is_dropped(void *arg, uint32_t owner)
{
	struct sits_engine *e = arg;

	return atomic_load_explicit(&e->running[owner]->cancelled, memory_order_relaxed);
}

static void note_route(void *arg, uint32_t layer, uint32_t owner, int32_t pos, const uint32_t *expert, const float *weight)
{
	struct sits_engine *e = arg;

	sits_route_cache_note(e->routes, e->running[owner]->route, layer, expert, e->m->hp.route.used);
}

static int run_batch(struct sits_engine *e)
{
	struct sits_graph_batch b = {
		.token = e->token, .pos = e->pos, .seq = e->seq, .layer_stride = e->stride, .owner = e->owner, .want = e->want,
		.dropped = is_dropped, .sample = sits_output_sample, .routed = e->routes ? note_route : NULL, .arg = e,
	};
	uint64_t start;
	uint32_t i;
	size_t rows;
	int ret;

	for (i = 0; i < e->nr_running; i++)
		if (e->running[i]->plan == 1)
			add_rows(e, &b, i);
	for (i = 0; i < e->nr_running; i++)
		if (e->running[i]->plan > 1)
			add_rows(e, &b, i);
	/* The first request always gets rows, but for a block table that could not grow. */
	rows = b.T;
	if (!rows)
		return -ENOMEM;
	start = e->spec ? sits_engine_cpu_ns() : 0;
	ret = sits_graph_run(e->graph, &e->kv, &b);
	if (!ret && e->spec)
		sits_spec_timed(e, rows, sits_engine_cpu_ns() - start);
	return ret;
}

int sits_engine_step(struct sits_engine *e)
{
	int ret;

	sits_req_reap(e);
	sits_plan_admit(e);
	if (e->nr_running) {
		sits_plan_step(e);
		ret = run_batch(e);
		if (ret)
			return ret;
		e->stats.steps++;
		sits_output_collect(e);
		sits_req_reap(e);
	}
	return e->nr_running + e->nr_waiting;
}

static void get_moe_stats(const struct sits_engine *e, struct sits_engine_stats *s)
{
	const struct sits_moe_stats *moe = sits_graph_moe(e->graph);
	struct sits_route_cache_stats r = { 0 };
	struct sits_prefetch_stats p = { 0 };

	if (e->routes)
		sits_route_cache_get_stats(e->routes, &r);
	if (e->prefetch)
		sits_prefetch_get_stats(e->prefetch, &p);
	s->routed = moe ? moe->rows : 0;
	s->route_dropped = moe ? moe->dropped : 0;
	s->route_queries = r.queries;
	s->route_found = r.found;
	s->route_pairs = r.pairs;
	s->route_hits = r.hits;
	s->prefetch_bytes = p.bytes;
}

void sits_engine_get_stats(const struct sits_engine *e, struct sits_engine_stats *s)
{
	*s = e->stats;
	s->running = e->nr_running;
	s->waiting = e->nr_waiting;
	s->pages_total = e->kv.nr_pages;
	s->pages_used = sits_kv_used(&e->kv);
	s->pages_cached = e->kv.nr_cached;
	s->page_bytes = e->kv.page_bytes;
	s->prefix_cache_evicted = e->kv.evicted;
	s->kv_keep = e->evict.keep * SITS_KV_PAGE_TOKENS;
	s->threads = sits_threads_nr(e->team);
	s->thread_nodes = sits_threads_nodes(e->team);
	s->isa = e->be->name;
	get_moe_stats(e, s);
}

const struct sits_moe_stats *sits_engine_moe(const struct sits_engine *e)
{
	return sits_graph_moe(e->graph);
}
