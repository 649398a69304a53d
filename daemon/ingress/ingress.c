// SPDX-License-Identifier: MIT
/*
 * ingress.c - see ingress.h.
 */
#include "daemon/ingress/ingress.h"
#include "daemon/siphash.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "daemon/engine/threads.h"
#include "daemon/ingress/request.h"
#include "daemon/log.h"
#include "daemon/model/model.h"
#include "sits/queue.h"

#define NO_USER		UINT64_MAX	/* no uid: they have 32 bits */
#define NR_BUCKETS	256	/* of the table by request id; power of two */
#define MIN_PIECE	64	/* a control token's text may be this long at least, whatever the pieces say */

enum stage { STAGE_LISTED, STAGE_TOKENISING, STAGE_LOOP };

/* Made by the fetching thread. The stage and links are guarded by the ingress's lock; the rest belongs to the
 * thread that the stage says: the fetching one, the tokenising one, the loop's. */
struct job {
	struct sits_work work;		/* first: sink callbacks get the job */
	struct sits_ingress *in;
	struct job *hash_next;		/* in its bucket */
	struct job *next, *prev;	/* in the list of those to tokenise */
	enum stage stage;
	bool cancelled;
	int cancel_status;		/* what a cancelled job ends with */

	uint64_t req, client, arrival_ns;
	uint32_t uid;			/* of the client */
	struct sits_request request;
	struct sits_tokens tokens;

	struct sits_infer_chunk_hdr *chunk;	/* TEXT under way: header and text_len bytes */
	size_t text_len, text_cap;
	int text_err;			/* text was lost: how the job must end */
	bool dirty;
	struct job *dirty_next;
};

struct sits_ingress {
	struct sits_ingress_opts opts;
	struct sits_loop *loop;
	struct sits_queue *queue;
	size_t longest_piece;		/* bytes behind one token, at most */
	uint64_t hash_key[2];		/* of scopes */
	_Atomic uint32_t max_tokens, max_prompt_tokens;
	struct job *dirty;		/* the loop's thread alone */

	pthread_t fetcher, tokeniser;
	bool started;
	atomic_bool stop, shutdown;

	pthread_mutex_t lock;
	pthread_cond_t wake;		/* to the tokeniser */
	struct job *bucket[NR_BUCKETS];
	struct job *first, *last;	/* to tokenise */
	uint32_t nr_jobs;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ------------------------------------------------------------------ table and list; the lock is held */

static struct job **bucket_of(struct sits_ingress *in, uint64_t req)
{
	return &in->bucket[(req ^ req >> 8 ^ req >> 32) & (NR_BUCKETS - 1)];
}

static struct job *table_find(struct sits_ingress *in, uint64_t req)
{
	struct job *j = *bucket_of(in, req);

	while (j && j->req != req)
		j = j->hash_next;
	return j;
}

static void table_add(struct sits_ingress *in, struct job *j)
{
	struct job **b = bucket_of(in, j->req);

	j->hash_next = *b;
	*b = j;
	in->nr_jobs++;
}

static void table_remove(struct sits_ingress *in, struct job *j)
{
	struct job **p = bucket_of(in, j->req);

	while (*p != j)
		p = &(*p)->hash_next;
	*p = j->hash_next;
	in->nr_jobs--;
}

static void list_add(struct sits_ingress *in, struct job *j)
{
	j->next = NULL;
	j->prev = in->last;
	if (in->last)
		in->last->next = j;
	else
		in->first = j;
	in->last = j;
}

static void list_remove(struct sits_ingress *in, struct job *j)
{
	if (j->prev)
		j->prev->next = j->next;
	else
		in->first = j->next;
	if (j->next)
		j->next->prev = j->prev;
	else
		in->last = j->prev;
}

/* ------------------------------------------------------------------ ends */

static void free_job(struct job *j)
{
	sits_request_fini(&j->request);
	if (j->tokens.id)
		explicit_bzero(j->tokens.id, j->tokens.cap * sizeof(j->tokens.id[0]));
	sits_tokens_fini(&j->tokens);
	if (j->chunk)
		explicit_bzero(j->chunk, j->text_cap);
	free(j->chunk);
	free(j);
}

/* A chunk that ends @req. Where not even that fits the client's backlog, the end goes alone. */
static void commit_last(struct sits_queue *q, uint64_t req, uint16_t type, const void *body, size_t len, int status)
{
	struct {
		struct sits_infer_chunk_hdr hdr;
		char body[sizeof(((struct sits_diag *)0)->msg) + 256];
	} chunk = { .hdr.type = type };
	int ret;

	if (len > sizeof(chunk.body))
		len = sizeof(chunk.body);
	memcpy(chunk.body, body, len);
	ret = sits_queue_commit(q, req, &chunk, sizeof(chunk.hdr) + len, status, SITS_COMMIT_LAST);
	if (ret == -ENOBUFS)
		sits_queue_commit(q, req, NULL, 0, status ? status : -ENOBUFS, SITS_COMMIT_LAST);
}

static void commit_error(struct sits_queue *q, uint64_t req, int status, const char *why)
{
	commit_last(q, req, SITS_CHUNK_ERROR, why, strlen(why), status);
}

/* Before the last chunk is committed: who has heard the end finds it counted. */
static void count_end(struct sits_counters *c, enum sits_end end)
{
	sits_count(&c->ended[end], 1);
	sits_count(&c->active, (uint64_t)-1);
}

/* Out of the table and gone; its last chunk has been committed. The lock is not held. */
static void retire(struct job *j)
{
	struct sits_ingress *in = j->in;
	uint32_t left;

	pthread_mutex_lock(&in->lock);
	table_remove(in, j);
	left = in->nr_jobs;
	pthread_mutex_unlock(&in->lock);
	free_job(j);
	if (!left && in->opts.idle)
		in->opts.idle(in->opts.arg);
}

static enum sits_end end_of(int status)
{
	switch (status) {
	case -ECANCELED:
		return SITS_END_CANCELLED;
	case -ESHUTDOWN:
		return SITS_END_SHUTDOWN;
	case -EINVAL:
	case -EMSGSIZE:
	case -EPROTONOSUPPORT:
	case -ENOENT:
		return SITS_END_REFUSED;
	default:
		return SITS_END_FAILED;
	}
}

/* End a job that has not reached the engine. */
static void end_early(struct job *j, int status, const char *why)
{
	sitsd_log(SITS_LOG_DEBUG, "request %" PRIu64 " of client %" PRIu64 ": %s", j->req, j->client, why);
	count_end(j->in->opts.counters, end_of(status));
	commit_error(j->in->queue, j->req, status, why);
	retire(j);
}

static const char *end_words(int status)
{
	switch (status) {
	case -ECANCELED:
		return "cancelled";
	case -ESHUTDOWN:
		return "the daemon is shutting down";
	case -ENOBUFS:
		return "the client does not collect its answer";
	case -ENOMEM:
		return "the daemon is out of memory";
	default:
		return strerror(-status);
	}
}

/* ------------------------------------------------------------------ the loop's side */

/* Ends a job from the loop's thread, between steps; done() follows. */
static void cancel_from_loop(struct job *j, int status)
{
	pthread_mutex_lock(&j->in->lock);
	if (!j->cancelled) {
		j->cancelled = true;
		j->cancel_status = status;
		sits_loop_cancel(j->in->loop, &j->work);
	}
	pthread_mutex_unlock(&j->in->lock);
}

/* Return: what the commit said, for the caller to act on. */
static int flush_text(struct job *j)
{
	int ret;

	if (j->text_err || !j->chunk || !(j->text_len || j->chunk->nr_tokens))
		return j->text_err;
	ret = sits_queue_commit(j->in->queue, j->req, j->chunk, sizeof(*j->chunk) + j->text_len, 0, 0);
	j->text_len = 0;
	j->chunk->nr_tokens = 0;
	return ret;
}

static int grow_text(struct job *j, size_t more)
{
	size_t need = sizeof(*j->chunk) + j->text_len + more, cap = j->text_cap ? j->text_cap : 256;
	void *p;

	if (need <= j->text_cap)
		return 0;
	while (cap < need)
		cap *= 2;
	p = realloc(j->chunk, cap);
	if (!p)
		return -ENOMEM;
	if (!j->chunk)
		memset(p, 0, sizeof(*j->chunk));
	j->chunk = p;
	j->text_cap = cap;
	j->chunk->type = SITS_CHUNK_TEXT;
	return 0;
}

static void on_text(void *arg, const char *bytes, size_t len, uint32_t nr_tokens)
{
	struct job *j = arg;

	if (!j->dirty) {
		j->dirty = true;
		j->dirty_next = j->in->dirty;
		j->in->dirty = j;
	}
	if (j->text_err)
		return;
	j->text_err = grow_text(j, len);
	if (j->text_err)
		return;
	memcpy((char *)(j->chunk + 1) + j->text_len, bytes, len);
	j->text_len += len;
	j->chunk->nr_tokens += nr_tokens;
}

static void count_result(struct sits_counters *c, const struct job *j, const struct sits_gen_result *res)
{
	sits_count(&c->prompt_tokens, res->prompt_tokens);
	sits_count(&c->completion_tokens, res->completion_tokens);
	if (!res->first_token_ns)
		return;
	sits_count(&c->first_tokens, 1);
	sits_count(&c->queue_ns, res->start_ns - j->arrival_ns);
	sits_count(&c->first_token_ns, res->first_token_ns - j->arrival_ns);
}

static uint64_t since(uint64_t t, uint64_t start)
{
	return t > start ? t - start : 0;
}

static void commit_done(struct job *j, const struct sits_gen_result *res, int status)
{
	struct sits_infer_done done = {
		.finish = res->finish,
		.prompt_tokens = res->prompt_tokens,
		.completion_tokens = res->completion_tokens,
		.cached_tokens = res->cached_tokens,
		.queue_ns = since(res->start_ns, j->arrival_ns),
		.first_token_ns = since(res->first_token_ns, j->arrival_ns),
		.total_ns = since(now_ns(), j->arrival_ns),
	};

	commit_last(j->in->queue, j->req, SITS_CHUNK_DONE, &done, sizeof(done), status);
}

/* What a job that the engine is done with ends with, and in which words. */
static int final_status(struct job *j, const struct sits_gen_result *res, const char **why)
{
	int status = 0, flushed;

	if (res->status || res->finish == SITS_FINISH_CANCEL) {
		pthread_mutex_lock(&j->in->lock);
		status = j->cancelled ? j->cancel_status : res->status ? res->status : -ECANCELED;
		pthread_mutex_unlock(&j->in->lock);
	}
	flushed = flush_text(j);
	if (!status)
		status = flushed;
	/* Ended between the engine's last word and this: nobody is left to tell. */
	if (status == -ENOENT || status == -EPIPE)
		status = -ECANCELED;
	*why = status == res->status && res->why && res->why[0] ? res->why : end_words(status);
	return status;
}

static void unlink_dirty(struct job *j)
{
	struct job **p = &j->in->dirty;

	if (!j->dirty)
		return;
	while (*p != j)
		p = &(*p)->dirty_next;
	*p = j->dirty_next;
	j->dirty = false;
}

static void on_done(void *arg, const struct sits_gen_result *res)
{
	struct job *j = arg;
	enum sits_end end;
	const char *why;
	int status;

	unlink_dirty(j);
	status = final_status(j, res, &why);
	end = status ? end_of(status) : res->finish == SITS_FINISH_LENGTH ? SITS_END_LENGTH : SITS_END_STOP;
	count_result(j->in->opts.counters, j, res);
	count_end(j->in->opts.counters, end);
	if (status && status != -ECANCELED)
		commit_error(j->in->queue, j->req, status, why);
	else
		commit_done(j, res, status);
	sitsd_log(SITS_LOG_DEBUG, "request %" PRIu64 " of client %" PRIu64 ": %s, %u prompt and %u completion tokens",
		 j->req, j->client, status && status != -ECANCELED ? why : sits_end_name(end), res->prompt_tokens,
		 res->completion_tokens);
	retire(j);
}

/* After a step: one chunk for each request that got text in it. */
static void on_step(void *arg)
{
	struct sits_ingress *in = arg;
	struct job *j;
	int ret;

	while ((j = in->dirty)) {
		in->dirty = j->dirty_next;
		j->dirty = false;
		ret = flush_text(j);
		if (ret == -EPIPE || ret == -ENOENT)
			cancel_from_loop(j, -ECANCELED);
		else if (ret)
			cancel_from_loop(j, ret);
	}
}

static void on_fault(void *arg, int err)
{
	struct sits_ingress *in = arg;

	in->opts.fault(in->opts.arg, err);
}

/* ------------------------------------------------------------------ the tokeniser's side */

static int check_prompt_length(const struct job *j, struct sits_diag *diag)
{
	uint32_t context = j->in->opts.context, limit = atomic_load(&j->in->max_prompt_tokens);

	if (j->tokens.nr >= context)
		return sits_diag_fail(diag, -EMSGSIZE, "the prompt has %zu tokens; the context holds %u, and at least one "
				      "is for the answer", j->tokens.nr, context);
	if (limit && j->tokens.nr > limit)
		return sits_diag_fail(diag, -EMSGSIZE, "the prompt has %zu tokens; this daemon takes at most %u "
				      "(limits.max_prompt_tokens)", j->tokens.nr, limit);
	return 0;
}

/* What stands for requests of a user, all (NO_USER), with the tag of @j or without one: a keyed hash, so that nobody can
 * make theirs that of another. Never 0. */
static uint64_t scope_of(const struct job *j, uint64_t user)
{
	const uint64_t *key = j->in->hash_key;
	const struct sits_request *r = &j->request;
	uint64_t part[2] = { user, r->tag ? sits_siphash(key, r->tag, r->tag_len) : 0 };

	return sits_siphash(key, part, sizeof(part)) | 1;
}

static uint64_t prefix_scope(const struct job *j)
{
	switch (j->in->opts.prefix) {
	case SITS_PREFIX_OFF:
		return 0;
	case SITS_PREFIX_ALL:
		return scope_of(j, NO_USER);
	default:
		return scope_of(j, j->uid);
	}
}

static void fill_params(struct job *j)
{
	const struct sits_infer_request_hdr *h = &j->request.hdr;
	struct sits_gen_params *p = &j->work.params;
	uint64_t seed = h->seed;

	while (!seed && h->temperature > 0)
		if (getrandom(&seed, sizeof(seed), 0) < 0 && errno != EINTR)
			seed = now_ns();
	*p = (struct sits_gen_params){
		.prompt = j->tokens.id, .nr_prompt = j->tokens.nr,
		.max_tokens = h->max_tokens ? h->max_tokens : atomic_load(&j->in->max_tokens),
		.ignore_eos = h->flags & SITS_INFER_IGNORE_EOS,
		.stop = j->request.stop, .stop_len = j->request.stop_len, .nr_stop = j->request.nr_stop,
		.sched_class = h->sched_class,
		.prefix_scope = prefix_scope(j), .route_tag = j->request.tag ? scope_of(j, j->uid) : 0,
		.route_scope = scope_of(j, j->uid),
		.no_speculation = h->flags & SITS_INFER_NO_SPECULATION,
		.sampling = {
			.temperature = h->temperature, .top_k = h->top_k, .top_p = h->top_p, .min_p = h->min_p,
			.repeat_penalty = h->repeat_penalty, .frequency_penalty = h->frequency_penalty,
			.presence_penalty = h->presence_penalty, .repeat_last_n = h->repeat_last_n, .seed = seed,
		},
	};
	j->work.sink = (struct sits_gen_sink){ .text = on_text, .done = on_done, .arg = j };
}

/* Tokenise @j and hand it on, or end it. */
static void prepare(struct sits_ingress *in, struct job *j)
{
	struct sits_diag diag = { "" };
	int ret = sits_request_tokens(&j->request, in->opts.model, &j->tokens, &diag);

	if (!ret)
		ret = check_prompt_length(j, &diag);
	if (!ret)
		fill_params(j);
	pthread_mutex_lock(&in->lock);
	if (j->cancelled) {
		ret = j->cancel_status;
		snprintf(diag.msg, sizeof(diag.msg), "%s", end_words(ret));
	}
	if (!ret) {
		j->stage = STAGE_LOOP;
		sits_loop_submit(in->loop, &j->work);
	}
	pthread_mutex_unlock(&in->lock);
	if (ret)
		end_early(j, ret, diag.msg);
}

static void *tokeniser_main(void *arg)
{
	struct sits_ingress *in = arg;
	struct job *j;

	for (;;) {
		pthread_mutex_lock(&in->lock);
		while (!in->first && !atomic_load(&in->stop))
			pthread_cond_wait(&in->wake, &in->lock);
		j = in->first;
		if (j) {
			list_remove(in, j);
			j->stage = STAGE_TOKENISING;
		}
		pthread_mutex_unlock(&in->lock);
		if (!j)
			return NULL;
		prepare(in, j);
	}
}

/* ------------------------------------------------------------------ the fetcher's side */

static int check_generate(struct sits_ingress *in, const struct sits_request *r, struct sits_diag *diag)
{
	uint32_t limit = atomic_load(&in->max_tokens);
	size_t most = (size_t)in->opts.context * in->longest_piece;
	size_t id_len = strlen(in->opts.model_id);

	if (atomic_load(&in->shutdown))
		return sits_diag_fail(diag, -ESHUTDOWN, "the daemon is shutting down");
	if (r->model && (r->model_len != id_len || memcmp(r->model, in->opts.model_id, id_len)))
		return sits_diag_fail(diag, -ENOENT, "model '%.*s' is not served here; '%s' is",
				      (int)(r->model_len < 128 ? r->model_len : 128), r->model, in->opts.model_id);
	if (r->hdr.sched_class > SITS_CLASS_BESTEFFORT)
		return sits_diag_fail(diag, -EINVAL, "malformed request: class %u is not known", r->hdr.sched_class);
	if (limit && r->hdr.max_tokens > limit)
		return sits_diag_fail(diag, -EINVAL, "max_tokens is %u; this daemon gives at most %u (limits.max_tokens)",
				      r->hdr.max_tokens, limit);
	/* Before the cost of tokenising what can't fit. */
	if (r->text_bytes > most)
		return sits_diag_fail(diag, -EMSGSIZE, "the prompt has %zu bytes; the context of %u tokens holds at most %zu",
				      r->text_bytes, in->opts.context, most);
	return 0;
}

static void answer_info(struct sits_ingress *in, uint64_t req)
{
	struct sits_infer_chunk_hdr *chunk;
	size_t len;
	char *json;

	/* First, so that it is not among the active requests of its own answer. */
	count_end(in->opts.counters, SITS_END_INFO);
	json = in->opts.info(in->opts.arg);
	len = json ? strlen(json) : 0;
	chunk = json ? malloc(sizeof(*chunk) + len) : NULL;
	if (!chunk) {
		free(json);
		commit_error(in->queue, req, -ENOMEM, "out of memory");
		return;
	}
	*chunk = (struct sits_infer_chunk_hdr){ .type = SITS_CHUNK_JSON };
	memcpy(chunk + 1, json, len);
	if (sits_queue_commit(in->queue, req, chunk, sizeof(*chunk) + len, 0, SITS_COMMIT_LAST) == -ENOBUFS)
		sits_queue_commit(in->queue, req, NULL, 0, -ENOBUFS, SITS_COMMIT_LAST);
	free(chunk);
	free(json);
}

static void refuse(struct sits_ingress *in, const struct sits_queue_event *ev, int status, const char *why)
{
	sitsd_log(SITS_LOG_DEBUG, "request %" PRIu64 " of client %" PRIu64 " (pid %u, uid %u): %s", ev->req, ev->client,
		 ev->client_pid, ev->client_uid, why);
	count_end(in->opts.counters, end_of(status));
	commit_error(in->queue, ev->req, status, why);
}

static void accept_job(struct sits_ingress *in, const struct sits_queue_event *ev, struct sits_request *r)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j) {
		sits_request_fini(r);
		refuse(in, ev, -ENOMEM, "out of memory");
		return;
	}
	j->in = in;
	j->req = ev->req;
	j->client = ev->client;
	j->uid = ev->client_uid;
	j->arrival_ns = now_ns();
	j->request = *r;
	pthread_mutex_lock(&in->lock);
	table_add(in, j);
	list_add(in, j);
	pthread_cond_signal(&in->wake);
	pthread_mutex_unlock(&in->lock);
}

static void on_request(struct sits_ingress *in, const struct sits_queue_event *ev)
{
	struct sits_diag diag = { "" };
	struct sits_request r;
	int ret;

	sits_count(&in->opts.counters->requests, 1);
	sits_count(&in->opts.counters->active, 1);
	ret = sits_request_init(&r, ev->data, ev->len, &diag);
	if (ret) {
		refuse(in, ev, ret, diag.msg);
		return;
	}
	if (r.hdr.op == SITS_INFER_OP_INFO) {
		sits_request_fini(&r);
		answer_info(in, ev->req);
		return;
	}
	ret = check_generate(in, &r, &diag);
	if (ret) {
		refuse(in, ev, ret, diag.msg);
		sits_request_fini(&r);
		return;
	}
	accept_job(in, ev, &r);
}

/* Cancel @j; the lock is held. Return: true where it is the caller's to end, once the lock is released. */
static bool cancel_job(struct sits_ingress *in, struct job *j, int status)
{
	if (j->cancelled)
		return false;
	j->cancelled = true;
	j->cancel_status = status;
	if (j->stage == STAGE_LISTED) {
		list_remove(in, j);
		return true;
	}
	return j->stage == STAGE_LOOP && sits_loop_cancel(in->loop, &j->work);
}

static void on_cancel(struct sits_ingress *in, uint64_t req)
{
	bool ours = false;
	struct job *j;

	pthread_mutex_lock(&in->lock);
	j = table_find(in, req);
	if (j)
		ours = cancel_job(in, j, -ECANCELED);
	pthread_mutex_unlock(&in->lock);
	if (ours)
		end_early(j, -ECANCELED, end_words(-ECANCELED));
}

static void *fetcher_main(void *arg)
{
	struct sits_ingress *in = arg;
	struct sits_queue_event ev;
	int ret;

	while (!atomic_load(&in->stop)) {
		ret = sits_queue_fetch(in->queue, &ev, -1);
		if (ret < 0 && ret != -EINTR) {
			in->opts.fault(in->opts.arg, ret);
			return NULL;
		}
		if (ret <= 0)
			continue;
		if (ev.kind == SITS_EVENT_REQUEST)
			on_request(in, &ev);
		else if (ev.kind == SITS_EVENT_CANCEL)
			on_cancel(in, ev.req);
	}
	return NULL;
}

/* ------------------------------------------------------------------ public */

static size_t longest_piece(const struct sits_tokenizer *tok)
{
	size_t most = MIN_PIECE;
	const char *p;

	for (uint32_t i = 0; i < sits_tokenizer_vocab(tok); i++) {
		int len = sits_tokenizer_piece(tok, (int32_t)i, &p);

		if (len > 0 && (size_t)len > most)
			most = (size_t)len;
	}
	return most;
}

int sits_ingress_create(const struct sits_ingress_opts *opts, struct sits_ingress **out)
{
	struct sits_ingress *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	if (getrandom(in->hash_key, sizeof(in->hash_key), 0) != sizeof(in->hash_key)) {
		free(in);
		return -EIO;
	}
	in->opts = *opts;
	in->longest_piece = longest_piece(opts->model->tok);
	pthread_mutex_init(&in->lock, NULL);
	pthread_cond_init(&in->wake, NULL);
	sits_ingress_set_limits(in, &opts->limits);
	*out = in;
	return 0;
}

struct sits_loop_hooks sits_ingress_hooks(struct sits_ingress *in)
{
	return (struct sits_loop_hooks){ .after_step = on_step, .fault = on_fault, .arg = in };
}

int sits_ingress_start(struct sits_ingress *in, struct sits_loop *loop, struct sits_queue *queue)
{
	int ret;

	in->loop = loop;
	in->queue = queue;
	ret = sits_threads_start(&in->tokeniser, tokeniser_main, in);
	if (ret)
		return ret;
	ret = sits_threads_start(&in->fetcher, fetcher_main, in);
	if (ret) {
		pthread_mutex_lock(&in->lock);
		atomic_store(&in->stop, true);
		pthread_cond_signal(&in->wake);
		pthread_mutex_unlock(&in->lock);
		pthread_join(in->tokeniser, NULL);
		return ret;
	}
	pthread_setname_np(in->tokeniser, "sits-tokens");
	pthread_setname_np(in->fetcher, "sits-ingress");
	in->started = true;
	return 0;
}

void sits_ingress_set_limits(struct sits_ingress *in, const struct sits_limits *limits)
{
	atomic_store(&in->max_tokens, limits->max_tokens);
	atomic_store(&in->max_prompt_tokens, limits->max_prompt_tokens);
}

uint32_t sits_ingress_active(struct sits_ingress *in)
{
	uint32_t n;

	pthread_mutex_lock(&in->lock);
	n = in->nr_jobs;
	pthread_mutex_unlock(&in->lock);
	return n;
}

void sits_ingress_end_all(struct sits_ingress *in)
{
	struct job *ours = NULL, *j;

	pthread_mutex_lock(&in->lock);
	atomic_store(&in->shutdown, true);
	for (size_t b = 0; b < NR_BUCKETS; b++) {
		for (j = in->bucket[b]; j; j = j->hash_next) {
			if (!cancel_job(in, j, -ESHUTDOWN))
				continue;
			j->next = ours;	/* in no list any more */
			ours = j;
		}
	}
	pthread_mutex_unlock(&in->lock);
	while ((j = ours)) {
		ours = j->next;
		end_early(j, -ESHUTDOWN, end_words(-ESHUTDOWN));
	}
}

void sits_ingress_stop(struct sits_ingress *in)
{
	if (!in || !in->started)
		return;
	pthread_mutex_lock(&in->lock);
	atomic_store(&in->stop, true);
	pthread_cond_signal(&in->wake);
	pthread_mutex_unlock(&in->lock);
	sits_queue_wake(in->queue);
	pthread_join(in->fetcher, NULL);
	pthread_join(in->tokeniser, NULL);
	in->started = false;
}

void sits_ingress_destroy(struct sits_ingress *in)
{
	if (!in)
		return;
	sits_ingress_stop(in);
	pthread_cond_destroy(&in->wake);
	pthread_mutex_destroy(&in->lock);
	free(in);
}
