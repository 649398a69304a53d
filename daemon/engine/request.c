// SPDX-License-Identifier: MIT
/*
 * request.c - the life of a request: made, waiting, running, preempted, ended. See engine_impl.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/engine_impl.h"
#include "sits/infer.h"

/* The longest that a request of each class should wait for its start: docs/design.md, section 6. */
static const uint64_t start_wait_ns[SITS_KV_CLASSES] = {
	[SITS_CLASS_REALTIME] = 50000000, [SITS_CLASS_GUARANTEED] = 500000000, [SITS_CLASS_BESTEFFORT] = 2000000000,
};

/* ---- lists ---- */

static void all_add(struct sits_engine *e, struct request *r)
{
	pthread_mutex_lock(&e->lock);
	r->all_next = e->all;
	if (e->all)
		e->all->all_prev = r;
	e->all = r;
	pthread_mutex_unlock(&e->lock);
}

static void all_del(struct sits_engine *e, struct request *r)
{
	pthread_mutex_lock(&e->lock);
	if (r->all_prev)
		r->all_prev->all_next = r->all_next;
	else
		e->all = r->all_next;
	if (r->all_next)
		r->all_next->all_prev = r->all_prev;
	pthread_mutex_unlock(&e->lock);
}

void sits_req_wait(struct sits_engine *e, struct request *r)
{
	struct request **at = &e->waiting;

	while (*at && comes_before(*at, r))
		at = &(*at)->next;
	r->next = *at;
	*at = r;
	e->nr_waiting++;
}

void sits_req_unwait(struct sits_engine *e, struct request *r)
{
	struct request **at = &e->waiting;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	r->next = NULL;
	e->nr_waiting--;
}

void sits_req_run(struct sits_engine *e, struct request *r)
{
	uint32_t i = e->nr_running++;

	for (; i && comes_before(r, e->running[i - 1]); i--)
		e->running[i] = e->running[i - 1];
	e->running[i] = r;
}

void sits_req_unrun(struct sits_engine *e, struct request *r)
{
	uint32_t i = 0;

	while (e->running[i] != r)
		i++;
	memmove(e->running + i, e->running + i + 1, (e->nr_running - i - 1) * sizeof(*e->running));
	e->nr_running--;
}

/* ---- the beginning ---- */

static bool is_limited(const struct sits_engine *e, uint32_t cls)
{
	return e->kv.limit[cls] < e->kv.nr_pages;
}

/* Tokens that a sequence can have: the last one's keys and values are never stored. */
static uint64_t pool_tokens(const struct sits_engine *e, uint32_t cls)
{
	return (uint64_t)(is_limited(e, cls) ? e->kv.limit[cls] : e->kv.nr_pages) * SITS_KV_PAGE_TOKENS + 1;
}

/*
 * Of @tokens, how many must fit at a time. Pages that requests of other classes name, too, can't be given up, and nobody displaces
 * these for a class's limit: there all must.
 */
static uint64_t needed_tokens(const struct sits_engine *e, const struct sits_gen_params *p, uint64_t tokens)
{
	return is_limited(e, p->sched_class) ? tokens : sits_evict_peak(e, p->nr_prompt, tokens - 1) + 1;
}

/* The most tokens that the request can have, prompt included. */
static int check_length(const struct sits_engine *e, const struct sits_gen_params *p, uint32_t *cap,
			struct sits_diag *diag)
{
	uint64_t max = p->nr_forced ? p->nr_forced : p->max_tokens, pool = pool_tokens(e, p->sched_class);
	uint64_t want = max ? p->nr_prompt + max : UINT64_MAX, need;

	if (p->nr_prompt >= e->context)
		return sits_diag_fail(diag, -EMSGSIZE,
				      "the prompt has %zu tokens; with at least one more they do not fit the context of %"
				      PRIu32, p->nr_prompt, e->context);
	if (p->nr_forced && want > e->context)
		return sits_diag_fail(diag, -EMSGSIZE, "a prompt of %zu tokens and %zu forced ones do not fit the context of %"
				      PRIu32, p->nr_prompt, p->nr_forced, e->context);
	if (want > e->context)
		want = e->context;
	need = needed_tokens(e, p, want);
	/* With a limit of its own a request must fit the pool with all of it; without one it takes what there is. */
	if (p->nr_prompt >= pool || (max && need > pool))
		return sits_diag_fail(diag, -ENOSPC,
				      "the request may need %" PRIu64 " tokens of KV pages, %s has %" PRIu64
				      "; raise kv_bytes%s or lower max_tokens",
				      (max ? need : p->nr_prompt + 1) - 1, is_limited(e, p->sched_class) ? "its class" : "the pool",
				      pool - 1, is_limited(e, p->sched_class) ? " or the limit of the class" : "");
	*cap = need <= pool ? want : pool;
	return 0;
}

static int check_tokens(const struct sits_engine *e, const char *what, const int32_t *token, size_t nr,
			struct sits_diag *diag)
{
	size_t i;

	for (i = 0; i < nr; i++)
		if (token[i] < 0 || (uint32_t)token[i] >= e->m->hp.vocab)
			return sits_diag_fail(diag, -EINVAL, "%s token %zu is %" PRId32 ", not in the vocabulary", what,
					      i, token[i]);
	return 0;
}

static int check_params(const struct sits_engine *e, const struct sits_gen_params *p, struct sits_diag *diag)
{
	int ret;

	if (!p->nr_prompt)
		return sits_diag_fail(diag, -EINVAL, "the prompt is empty: it has no token to go on from");
	if (p->sched_class > SITS_CLASS_BESTEFFORT)
		return sits_diag_fail(diag, -EINVAL, "scheduling class %" PRIu32 " is unknown", p->sched_class);
	ret = check_tokens(e, "prompt", p->prompt, p->nr_prompt, diag);
	return ret ? ret : check_tokens(e, "forced", p->forced, p->nr_forced, diag);
}

static void request_free(struct request *r)
{
	if (!r)
		return;
	if (r->token)
		explicit_bzero(r->token, r->cap * sizeof(*r->token));
	free(r->token);
	free(r->evict.entropy);
	sits_sampler_destroy(r->sampler);
	sits_sampler_destroy(r->spec.sampler);
	sits_stream_destroy(r->stream);
	free(r);
}

static int fill(struct sits_engine *e, struct request *r, const struct sits_gen_params *p, struct sits_diag *diag)
{
	int ret;

	r->token = malloc(r->cap * sizeof(*r->token));
	if (!r->token)
		return -ENOMEM;
	memcpy(r->token, p->prompt, p->nr_prompt * sizeof(*r->token));
	if (p->nr_forced)
		memcpy(r->token + p->nr_prompt, p->forced, p->nr_forced * sizeof(*r->token));
	r->forced = p->nr_forced;
	r->nr = r->nr_prompt = p->nr_prompt;
	ret = sits_evict_begin(e, r);
	if (ret)
		return ret;
	ret = sits_sampler_create(&p->sampling, e->m->hp.vocab, &r->sampler);
	if (ret == -EINVAL)
		sits_diag_fail(diag, ret, "a sampling parameter is out of its range");
	if (ret)
		return ret;
	ret = sits_stream_create(p->stop, p->stop_len, p->nr_forced ? 0 : p->nr_stop, &r->stream);
	if (ret == -EINVAL)
		sits_diag_fail(diag, ret, "a stop string is empty or too long");
	return ret;
}

/* While it waits, the experts that its like went to come into memory. */
static void begin_route(struct sits_engine *e, struct request *r, const struct sits_gen_params *p)
{
	uint64_t key = sits_route_key(p->route_scope, p->route_tag, r->token, r->nr_prompt);
	const uint64_t *expected;

	if (!e->routes)
		return;
	r->route = sits_route_cache_begin(e->routes, key, &expected);
	if (expected)
		sits_prefetch_ask(e->prefetch, expected);
}

int sits_req_create(struct sits_engine *e, const struct sits_gen_params *p, const struct sits_gen_sink *sink,
		    struct request **out, struct sits_diag *diag)
{
	struct request *r;
	uint32_t cap = 0;
	int ret;

	ret = check_params(e, p, diag);
	if (!ret)
		ret = check_length(e, p, &cap, diag);
	if (ret)
		return ret;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->sink = *sink;
	r->ignore_eos = p->ignore_eos || p->nr_forced;
	r->cap = cap;
	r->pages.cls = p->sched_class;
	r->spec.off = p->no_speculation;
	ret = fill(e, r, p, diag);
	if (ret) {
		request_free(r);
		return ret;
	}
	r->id = ++e->last_id;
	r->scope = p->prefix_scope ? p->prefix_scope & ~PRIVATE_SCOPE : PRIVATE_SCOPE | r->id;
	r->arrival_ns = sits_engine_now_ns();
	r->due_ns = r->arrival_ns + start_wait_ns[p->sched_class];
	begin_route(e, r, p);
	all_add(e, r);
	*out = r;
	return 0;
}

/* ---- rows ---- */

uint32_t sits_req_room(const struct sits_engine *e, const struct request *r)
{
	uint32_t room = r->cap - r->nr - 1, limit = sits_evict_limit(e, r), most = limit > r->nr ? limit - r->nr : 0;

	return room < most ? room : most;
}

/* ---- preemption ---- */

/*
 * Its pages go into the index under its scope, so that they can be had if the need is smaller than what it held:
 * coming back costs what was taken, at worst the whole of it.
 */
void sits_req_preempt(struct sits_engine *e, struct request *r)
{
	sits_req_unrun(e, r);
	sits_kv_index(&e->kv, &r->pages, r->scope, r->token, r->nr_cached, true);
	sits_kv_release(&e->kv, &r->pages);
	sits_spec_drop(e, r);
	sits_evict_preempted(e, r);
	r->parked = true;
	r->nr_cached = 0;
	r->plan = r->nr_guess = 0;
	sits_req_wait(e, r);
	e->stats.preemptions++;
}

/* ---- the end ---- */

void sits_req_tell(struct request *r)
{
	const char *text;
	size_t len = sits_stream_take(r->stream, &text);

	if (!len)
		return;
	if (r->sink.text)
		r->sink.text(r->sink.arg, text, len, r->untold);
	r->untold = 0;
}

/* What others may share stays in the index; of a broken one, nothing that it computed itself. */
static void let_pages_go(struct sits_engine *e, struct request *r, int status)
{
	if (is_private(r) && r->parked)
		sits_kv_forget(&e->kv, r->scope);
	else if (!is_private(r) && status == -EDOM)
		sits_kv_unindex(&e->kv, &r->pages, r->hit_pages);
	else if (!is_private(r) && !status)
		sits_kv_index(&e->kv, &r->pages, r->scope, r->token, r->nr_cached, true);
	sits_kv_release(&e->kv, &r->pages);
	sits_spec_drop(e, r);
}

void sits_req_finish(struct sits_engine *e, struct request *r, int status, uint32_t why_finish, const char *why)
{
	struct sits_gen_result res = {
		.status = status, .finish = why_finish, .prompt_tokens = r->nr_prompt,
		.completion_tokens = r->nr - r->nr_prompt, .cached_tokens = r->from_cache,
		.kv_pages = r->pages.nr, .arrival_ns = r->arrival_ns,
		.start_ns = r->start_ns, .first_token_ns = r->first_token_ns, .why = why,
	};

	let_pages_go(e, r, status);
	sits_route_cache_end(r->route);
	all_del(e, r);
	if (!status && (why_finish == SITS_FINISH_EOS || why_finish == SITS_FINISH_LENGTH)) {
		/* No memory for a held-back tail: the text stays short by it, the result stands. */
		sits_stream_end(r->stream);
		sits_req_tell(r);
	}
	res.end_ns = sits_engine_now_ns();
	if (r->sink.done)
		r->sink.done(r->sink.arg, &res);
	request_free(r);
}

void sits_req_finish_all(struct sits_engine *e, int status, const char *why)
{
	struct request *r;

	while (e->nr_running) {
		r = e->running[e->nr_running - 1];
		sits_req_unrun(e, r);
		sits_req_finish(e, r, status, 0, why);
	}
	while ((r = e->waiting)) {
		sits_req_unwait(e, r);
		sits_req_finish(e, r, status, 0, why);
	}
}

void sits_req_reap(struct sits_engine *e)
{
	struct request *r, *next;
	uint32_t i;

	for (i = e->nr_running; i-- > 0;) {
		r = e->running[i];
		if (!atomic_load(&r->cancelled))
			continue;
		sits_req_unrun(e, r);
		sits_req_finish(e, r, 0, SITS_FINISH_CANCEL, NULL);
	}
	for (r = e->waiting; r; r = next) {
		next = r->next;
		if (!atomic_load(&r->cancelled))
			continue;
		sits_req_unwait(e, r);
		sits_req_finish(e, r, 0, SITS_FINISH_CANCEL, NULL);
	}
}
