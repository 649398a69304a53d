// SPDX-License-Identifier: MIT
/*
 * engine.c - see engine.h: requests, what runs in a step, and what comes out of it.
 *
 * A request is its tokens (prompt, then generated ones) and the number of them whose keys and
 * values are in its pages. It needs rows for the others, and when the last one's row has run, its
 * logits give the next token. So a prompt, the next token, and a request that comes back after it
 * lost its pages are one case, not three.
 */
#include "daemon/engine/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/stream.h"
#include "daemon/engine/threads.h"
#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "sits/infer.h"

#define DEFAULT_SEQS	64
#define DEFAULT_BUDGET	256
#define DEFAULT_SEQ_TOKENS 512
#define MAX_SEQS	4096
#define MAX_BUDGET	65536
/* Least number of prompt tokens that a request's share of a step is worth. */
#define MIN_CHUNK	16

/*
 * Heap; made by submit, freed by finish(). The engine's thread owns it but for cancelled, which
 * any thread sets under the engine's lock, and which is read without it.
 */
struct request {
	uint64_t id;		/* grows with arrival: also the order of age */
	struct request *next;	/* waiting list, by id */
	struct request *all_next, *all_prev;	/* every request; under the lock */
	atomic_bool cancelled;
	struct sits_gen_sink sink;
	bool ignore_eos;

	int32_t *token;		/* [nr] of [cap]; the first nr_prompt are the prompt */
	uint32_t nr, nr_prompt, cap;
	uint32_t nr_cached;	/* tokens whose keys and values are in pages */
	struct sits_kv_table pages;
	struct sits_sampler *sampler;
	struct sits_stream *stream;
	uint32_t untold;	/* tokens generated since the last text */

	uint32_t plan;		/* rows in this step */
	bool sampled;		/* draw is a token, or -errno */
	int32_t draw;
	const float *logits;	/* of the draw */
	uint64_t arrival_ns, start_ns, first_token_ns;
};

struct sits_engine {
	const struct sits_model *m;
	const struct sits_backend *be;
	struct sits_threads *team;
	struct sits_graph *graph;
	struct sits_kv kv;
	uint32_t max_seqs, budget;
	uint32_t context;	/* longest sequence by the options; kv may hold less */

	struct request *waiting;	/* by id */
	struct request **running;	/* [nr_running] of [max_seqs], by id */
	uint32_t nr_running, nr_waiting;
	uint32_t turn;		/* which running request gets the first share of prompt tokens */
	uint64_t last_id;

	int32_t *token, *pos;	/* [budget] */
	struct sits_attn_seq *seq;	/* these: [max_seqs] */
	uint32_t *owner;
	bool *want;

	pthread_mutex_t lock;	/* guards all and the requests' place in it */
	struct request *all;
	struct sits_engine_stats stats;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* Tokens that a sequence can have: the last one's keys and values are never stored. */
static uint64_t pool_tokens(const struct sits_engine *e)
{
	return (uint64_t)e->kv.nr_pages * SITS_KV_PAGE_TOKENS + 1;
}

/* ---- creation ---- */

static int create_pool(struct sits_engine *e, const struct sits_engine_opts *o, struct sits_diag *diag)
{
	const struct sits_hparams *hp = &e->m->hp;
	uint64_t page = (uint64_t)e->be->kv_layer_bytes(hp->kv_heads, hp->head_dim) * hp->layers;
	uint64_t pages = (uint64_t)e->max_seqs * sits_kv_pages(DEFAULT_SEQ_TOKENS);
	int ret;

	if (pages < sits_kv_pages(e->context))
		pages = sits_kv_pages(e->context);
	if (o->kv_bytes)
		pages = o->kv_bytes / page;
	if (!pages)
		return sits_diag_fail(diag, -EINVAL,
				      "engine: kv_bytes %" PRIu64 " is less than one page of %" PRIu64 " bytes",
				      o->kv_bytes, page);
	if (pages > UINT32_MAX)
		pages = UINT32_MAX;
	ret = sits_kv_init(&e->kv, page, pages);
	if (ret)
		return sits_diag_fail(diag, ret, "engine: no memory for %" PRIu64 " KV pages of %" PRIu64 " bytes; "
				      "lower kv_bytes, or max_seqs and context", pages, page);
	return 0;
}

static int create_arrays(struct sits_engine *e)
{
	e->running = calloc(e->max_seqs, sizeof(*e->running));
	e->token = calloc(e->budget, sizeof(*e->token));
	e->pos = calloc(e->budget, sizeof(*e->pos));
	e->seq = calloc(e->max_seqs, sizeof(*e->seq));
	e->owner = calloc(e->max_seqs, sizeof(*e->owner));
	e->want = calloc(e->max_seqs, sizeof(*e->want));
	return e->running && e->token && e->pos && e->seq && e->owner && e->want ? 0 : -ENOMEM;
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
	return 0;
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
	ret = -ENODEV;
	e->be = sits_backend_get(opts->isa);
	if (!e->be) {
		sits_diag_fail(diag, ret, "engine: backend \"%s\" is unknown or not usable on this CPU",
			       opts->isa ? opts->isa : "");
		goto err_destroy;
	}
	ret = create_arrays(e);
	if (!ret)
		ret = create_pool(e, opts, diag);
	if (!ret)
		ret = sits_threads_create(opts->threads, opts->pin, &e->team, diag);
	if (!ret)
		ret = sits_graph_create(m, e->be, e->team, e->budget, e->max_seqs, &e->graph, diag);
	if (ret)
		goto err_destroy;
	*out = e;
	return 0;

err_destroy:
	sits_diag_fail(diag, ret, "engine: no memory");
	sits_engine_destroy(e);
	return ret;
}

/* ---- the life of a request ---- */

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

static void wait_add(struct sits_engine *e, struct request *r)
{
	struct request **at = &e->waiting;

	while (*at && (*at)->id < r->id)
		at = &(*at)->next;
	r->next = *at;
	*at = r;
	e->nr_waiting++;
}

static void wait_del(struct sits_engine *e, struct request *r)
{
	struct request **at = &e->waiting;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	r->next = NULL;
	e->nr_waiting--;
}

static void run_del(struct sits_engine *e, struct request *r)
{
	uint32_t i = 0;

	while (e->running[i] != r)
		i++;
	memmove(e->running + i, e->running + i + 1, (e->nr_running - i - 1) * sizeof(*e->running));
	e->nr_running--;
}

static void run_add(struct sits_engine *e, struct request *r)
{
	uint32_t i = e->nr_running++;

	for (; i && e->running[i - 1]->id > r->id; i--)
		e->running[i] = e->running[i - 1];
	e->running[i] = r;
}

static void request_free(struct request *r)
{
	if (!r)
		return;
	if (r->token)
		explicit_bzero(r->token, r->cap * sizeof(*r->token));
	free(r->token);
	sits_sampler_destroy(r->sampler);
	sits_stream_destroy(r->stream);
	free(r);
}

static void tell_text(struct request *r)
{
	const char *text;
	size_t len = sits_stream_take(r->stream, &text);

	if (!len)
		return;
	if (r->sink.text)
		r->sink.text(r->sink.arg, text, len, r->untold);
	r->untold = 0;
}

/* The request, off its list already, ends: pages free, words told, memory wiped. */
static void finish(struct sits_engine *e, struct request *r, int status, uint32_t why_finish, const char *why)
{
	struct sits_gen_result res = {
		.status = status, .finish = why_finish, .prompt_tokens = r->nr_prompt,
		.completion_tokens = r->nr - r->nr_prompt, .arrival_ns = r->arrival_ns, .start_ns = r->start_ns,
		.first_token_ns = r->first_token_ns, .why = why,
	};

	sits_kv_release(&e->kv, &r->pages);
	all_del(e, r);
	if (!status && (why_finish == SITS_FINISH_EOS || why_finish == SITS_FINISH_LENGTH)) {
		/* No memory for a held-back tail: the text stays short by it, the result stands. */
		sits_stream_end(r->stream);
		tell_text(r);
	}
	res.end_ns = now_ns();
	if (r->sink.done)
		r->sink.done(r->sink.arg, &res);
	request_free(r);
}

void sits_engine_destroy(struct sits_engine *e)
{
	struct request *r;

	if (!e)
		return;
	while (e->nr_running) {
		r = e->running[e->nr_running - 1];
		run_del(e, r);
		finish(e, r, -ESHUTDOWN, 0, "the engine is shutting down");
	}
	while ((r = e->waiting)) {
		wait_del(e, r);
		finish(e, r, -ESHUTDOWN, 0, "the engine is shutting down");
	}
	sits_graph_destroy(e->graph);
	sits_threads_destroy(e->team);
	sits_kv_fini(&e->kv);
	free(e->running);
	free(e->token);
	free(e->pos);
	free(e->seq);
	free(e->owner);
	free(e->want);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

/* The most tokens that the request can have, prompt included. */
static int check_length(const struct sits_engine *e, const struct sits_gen_params *p, uint32_t *cap,
			struct sits_diag *diag)
{
	uint64_t want = p->max_tokens ? p->nr_prompt + (uint64_t)p->max_tokens : UINT64_MAX;

	if (p->nr_prompt >= e->context)
		return sits_diag_fail(diag, -EMSGSIZE,
				      "the prompt has %zu tokens; with at least one more they do not fit the context of %"
				      PRIu32, p->nr_prompt, e->context);
	if (want > e->context)
		want = e->context;
	/* With a limit of its own a request must fit the pool with all of it; without one it takes what there is. */
	if (p->nr_prompt >= pool_tokens(e) || (p->max_tokens && want > pool_tokens(e)))
		return sits_diag_fail(diag, -ENOSPC,
				      "the request may need %" PRIu64 " tokens of KV pages, the pool has %" PRIu64
				      "; raise kv_bytes or lower max_tokens",
				      (p->max_tokens ? want : p->nr_prompt + 1) - 1, pool_tokens(e) - 1);
	if (want > pool_tokens(e))
		want = pool_tokens(e);
	*cap = want;
	return 0;
}

static int check_params(const struct sits_engine *e, const struct sits_gen_params *p, struct sits_diag *diag)
{
	size_t i;

	if (!p->nr_prompt)
		return sits_diag_fail(diag, -EINVAL, "the prompt is empty: it has no token to go on from");
	if (p->sched_class > SITS_CLASS_BESTEFFORT)
		return sits_diag_fail(diag, -EINVAL, "scheduling class %" PRIu32 " is unknown", p->sched_class);
	for (i = 0; i < p->nr_prompt; i++)
		if (p->prompt[i] < 0 || (uint32_t)p->prompt[i] >= e->m->hp.vocab)
			return sits_diag_fail(diag, -EINVAL, "prompt token %zu is %" PRId32 ", not in the vocabulary",
					      i, p->prompt[i]);
	return 0;
}

int sits_engine_submit(struct sits_engine *e, const struct sits_gen_params *p,
		       const struct sits_gen_sink *sink, uint64_t *id, struct sits_diag *diag)
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
	r->ignore_eos = p->ignore_eos;
	r->cap = cap;
	r->token = malloc(r->cap * sizeof(*r->token));
	if (!r->token) {
		ret = -ENOMEM;
		goto err_free;
	}
	memcpy(r->token, p->prompt, p->nr_prompt * sizeof(*r->token));
	r->nr = r->nr_prompt = p->nr_prompt;
	ret = sits_sampler_create(&p->sampling, e->m->hp.vocab, &r->sampler);
	if (ret == -EINVAL)
		sits_diag_fail(diag, ret, "a sampling parameter is out of its range");
	if (ret)
		goto err_free;
	ret = sits_stream_create(p->stop, p->stop_len, p->nr_stop, &r->stream);
	if (ret == -EINVAL)
		sits_diag_fail(diag, ret, "a stop string is empty or too long");
	if (ret)
		goto err_free;
	r->id = ++e->last_id;
	r->arrival_ns = now_ns();
	wait_add(e, r);
	all_add(e, r);
	*id = r->id;
	return 0;

err_free:
	request_free(r);
	return ret;
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

static void reap_cancelled(struct sits_engine *e)
{
	struct request *r, *next;
	uint32_t i;

	for (i = e->nr_running; i-- > 0;) {
		r = e->running[i];
		if (!atomic_load(&r->cancelled))
			continue;
		run_del(e, r);
		finish(e, r, 0, SITS_FINISH_CANCEL, NULL);
	}
	for (r = e->waiting; r; r = next) {
		next = r->next;
		if (!atomic_load(&r->cancelled))
			continue;
		wait_del(e, r);
		finish(e, r, 0, SITS_FINISH_CANCEL, NULL);
	}
}

/* ---- what runs in this step ---- */

static uint32_t rows_due(const struct request *r)
{
	return r->nr - r->nr_cached;
}

/*
 * Strictly by age: a large request at the head waits for pages, and no later one takes them. A
 * request starts when what it and those that run have to compute now fits the free pages.
 */
static void admit(struct sits_engine *e)
{
	struct request *r;
	uint32_t i, owed = 0, need;

	for (i = 0; i < e->nr_running; i++) {
		need = sits_kv_pages(e->running[i]->nr);
		if (need > e->running[i]->pages.nr)
			owed += need - e->running[i]->pages.nr;
	}
	while ((r = e->waiting) && e->nr_running < e->max_seqs) {
		need = sits_kv_pages(r->nr);
		if (e->nr_running && (uint64_t)owed + need > e->kv.nr_free)
			break;
		owed += need;
		wait_del(e, r);
		run_add(e, r);
		if (!r->start_ns)
			r->start_ns = now_ns();
	}
}

/* Share @left rows among requests that still compute their prompt: an equal part to each, in turn;
 * what some do not need goes to the others, oldest first. */
static void share_rows(struct sits_engine *e, uint32_t nr_prefill, uint32_t left)
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
		n = rows_due(r) < share ? rows_due(r) : share;
		r->plan = n < left ? n : left;
		left -= r->plan;
	}
	for (i = 0; i < e->nr_running && left; i++) {
		r = e->running[i];
		if (rows_due(r) == 1)
			continue;
		n = rows_due(r) - r->plan;
		n = n < left ? n : left;
		r->plan += n;
		left -= n;
	}
}

/* A request loses its pages and waits again at its own place; its tokens, text and seed's state stay. */
static void preempt(struct sits_engine *e, struct request *r)
{
	run_del(e, r);
	sits_kv_release(&e->kv, &r->pages);
	r->nr_cached = 0;
	r->plan = 0;
	wait_add(e, r);
	e->stats.preemptions++;
}

/*
 * Pages for what is planned, oldest first, at the cost of the youngest. The youngest itself makes
 * do with what is left, down to sitting the step out. The oldest can displace all others and was
 * checked at submit to fit alone, so each step moves it on.
 */
static void find_pages(struct sits_engine *e)
{
	struct request *r, *youngest;
	uint32_t i, room;
	int ret;

	for (i = 0; i < e->nr_running; i++) {
		r = e->running[i];
		while (r->plan && (ret = sits_kv_grow(&e->kv, &r->pages, (size_t)r->nr_cached + r->plan))) {
			youngest = e->running[e->nr_running - 1];
			if (ret == -ENOSPC && youngest != r) {
				preempt(e, youngest);
				continue;
			}
			room = (r->pages.nr + (ret == -ENOSPC ? e->kv.nr_free : 0)) * SITS_KV_PAGE_TOKENS;
			r->plan = room > r->nr_cached ? room - r->nr_cached : 0;
		}
	}
}

static void plan(struct sits_engine *e)
{
	uint32_t i, left = e->budget, nr_prefill = 0;

	for (i = 0; i < e->nr_running; i++) {
		e->running[i]->plan = 0;
		if (rows_due(e->running[i]) > 1) {
			nr_prefill++;
			continue;
		}
		e->running[i]->plan = 1;
		left--;
	}
	if (nr_prefill)
		share_rows(e, nr_prefill, left);
	find_pages(e);
}

static void add_rows(struct sits_engine *e, struct sits_graph_batch *b, uint32_t i)
{
	struct request *r = e->running[i];
	uint32_t j;

	e->seq[b->nr_seq] = (struct sits_attn_seq){
		.pages = r->pages.page, .row0 = b->T, .nr = r->plan, .pos0 = r->nr_cached,
	};
	e->owner[b->nr_seq] = i;
	e->want[b->nr_seq] = r->plan == rows_due(r);
	b->nr_seq++;
	for (j = 0; j < r->plan; j++) {
		e->token[b->T] = r->token[r->nr_cached + j];
		e->pos[b->T++] = r->nr_cached + j;
	}
}

static bool is_dropped(void *arg, uint32_t owner)
{
	struct sits_engine *e = arg;

	return atomic_load_explicit(&e->running[owner]->cancelled, memory_order_relaxed);
}

/* On any thread of the team; each request is sampled by one. */
static void sample(void *arg, uint32_t owner, const float *logits)
{
	struct sits_engine *e = arg;
	struct request *r = e->running[owner];

	r->draw = sits_sampler_draw(r->sampler, logits, r->token, r->nr);
	r->logits = logits;
	r->sampled = true;
}

static int run_batch(struct sits_engine *e)
{
	struct sits_graph_batch b = {
		.token = e->token, .pos = e->pos, .seq = e->seq, .owner = e->owner, .want = e->want,
		.dropped = is_dropped, .sample = sample, .arg = e,
	};
	uint32_t i;

	for (i = 0; i < e->nr_running; i++)
		if (e->running[i]->plan == 1)
			add_rows(e, &b, i);
	for (i = 0; i < e->nr_running; i++)
		if (e->running[i]->plan > 1)
			add_rows(e, &b, i);
	/* The oldest request always gets rows, but for a block table that could not grow. */
	return b.T ? sits_graph_run(e->graph, &e->kv, &b) : -ENOMEM;
}

/* ---- what came out ---- */

/* Take the drawn token in. Return: whether the request goes on; else *status, *fin and *why say how it ended. */
static bool take_token(struct sits_engine *e, struct request *r, int *status, uint32_t *fin, const char **why)
{
	const char *piece;
	bool stopped;
	int len;

	*status = 0;
	*why = NULL;
	if (r->draw < 0) {
		*status = r->draw;
		*fin = 0;
		*why = r->draw == -EDOM ? "the model's output is not a finite number" : "no memory to sample a token";
		e->stats.nonfinite += r->draw == -EDOM;
		return false;
	}
	if (!r->first_token_ns)
		r->first_token_ns = now_ns();
	r->token[r->nr++] = r->draw;
	r->untold++;
	e->stats.generated_tokens++;
	if (!r->ignore_eos && sits_tokenizer_is_eog(e->m->tok, r->draw)) {
		*fin = SITS_FINISH_EOS;
		return false;
	}
	len = sits_tokenizer_piece(e->m->tok, r->draw, &piece);
	if (len > 0 && sits_stream_push(r->stream, piece, len, &stopped)) {
		*status = -ENOMEM;
		*fin = 0;
		*why = "no memory for the text";
		return false;
	}
	tell_text(r);
	if (len > 0 && stopped) {
		*fin = SITS_FINISH_STOP;
		return false;
	}
	*fin = SITS_FINISH_LENGTH;
	return r->nr < r->cap;
}

static void collect(struct sits_engine *e)
{
	uint32_t i = 0, fin, prompt;
	struct request *r;
	const char *why;
	int status;

	/* Callbacks may submit and cancel; both leave the running array alone. */
	while (i < e->nr_running) {
		r = e->running[i];
		if (r->plan && !atomic_load(&r->cancelled)) {
			prompt = r->nr_cached < r->nr_prompt ? r->nr_prompt - r->nr_cached : 0;
			e->stats.prompt_tokens += prompt < r->plan ? prompt : r->plan;
			r->nr_cached += r->plan;
		}
		if (!r->sampled || atomic_load(&r->cancelled)) {
			r->sampled = false;
			i++;
			continue;
		}
		r->sampled = false;
		if (r->sink.logits)
			r->sink.logits(r->sink.arg, r->logits, e->m->hp.vocab);
		if (take_token(e, r, &status, &fin, &why)) {
			i++;
			continue;
		}
		run_del(e, r);
		finish(e, r, status, fin, why);
	}
}

int sits_engine_step(struct sits_engine *e)
{
	int ret;

	reap_cancelled(e);
	admit(e);
	if (e->nr_running) {
		plan(e);
		ret = run_batch(e);
		if (ret)
			return ret;
		e->stats.steps++;
		collect(e);
		reap_cancelled(e);
	}
	return e->nr_running + e->nr_waiting;
}

void sits_engine_get_stats(const struct sits_engine *e, struct sits_engine_stats *s)
{
	*s = e->stats;
	s->running = e->nr_running;
	s->waiting = e->nr_waiting;
	s->pages_total = e->kv.nr_pages;
	s->pages_used = e->kv.nr_pages - e->kv.nr_free;
	s->threads = sits_threads_nr(e->team);
	s->isa = e->be->name;
}
