// SPDX-License-Identifier: MIT
/*
 * info.c - see info.h.
 *
 * Protections are reported as the kernel says they hold now, not as they were asked for.
 */
#include "daemon/info.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/metrics/counters.h"
#include "daemon/model/model.h"
#include "daemon/node.h"
#include "daemon/sched/loop.h"
#include "kernels/kernels.h"
#include "sits/context.h"
#include "sits/queue.h"

/* jansson's integers are signed; what is beyond becomes text, not another number. */
static json_t *number(uint64_t v)
{
	char text[24];

	if (v <= INT64_MAX)
		return json_integer((json_int_t)v);
	snprintf(text, sizeof(text), "%" PRIu64, v);
	return json_string(text);
}

/* Text from a model file: null where it is not UTF-8. */
static json_t *text(const char *p, size_t len)
{
	json_t *v = p ? json_stringn(p, len) : NULL;

	return v ? v : json_null();
}

static json_t *hex(const uint8_t *bytes, size_t n)
{
	char out[2 * 32 + 1];

	for (size_t i = 0; i < n && i < 32; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	return json_string(out);
}

/* The element type that holds the most bytes names the quantization. */
static void count_tensors(const struct sits_gguf *g, uint64_t *parameters, const char **quant)
{
	enum { NR = 64, PACKED = 64 };	/* GGUF's numbers, and the same packed; SITS_I8C takes a free one */
	uint64_t bytes[NR + PACKED] = { 0 }, most = 0;

	*parameters = 0;
	*quant = NULL;
	for (uint64_t i = 0; i < sits_gguf_nr_tensors(g); i++) {
		const struct sits_gguf_tensor *t = sits_gguf_tensor_at(g, i);
		const struct sits_dtype_info *info = sits_dtype_info(t->type);
		uint64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
		uint32_t slot;

		*parameters += n;
		slot = (t->type & ~(uint32_t)SITS_PACKED) == SITS_I8C ? NR - 1 : t->type & ~(uint32_t)SITS_PACKED;
		if (!info || slot >= NR)
			continue;
		slot += t->type & SITS_PACKED ? PACKED : 0;
		bytes[slot] += t->bytes;
		if (bytes[slot] > most) {
			most = bytes[slot];
			*quant = info->name;
		}
	}
}

static json_t *model_info(const struct sits_node *n)
{
	const struct sits_sealed_info *s = &n->sealed;
	const struct sits_model *m = n->model;
	uint64_t parameters;
	const char *quant;

	count_tensors(m->gguf, &parameters, &quant);
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s?, s:i, s:i, s:i, s:i, s:s?, s:o, s:o, s:i, s:o, s:o, s:f}",
			 "id", text(s->model_id, strlen(s->model_id)), "version", number(s->model_version),
			 "name", text(m->name.p, m->name.len), "architecture", text(m->arch.p, m->arch.len),
			 "parameters", number(parameters), "quantization", quant, "layers", (int)m->hp.layers,
			 "embedding", (int)m->hp.embd, "vocabulary", (int)m->hp.vocab, "context", (int)n->context,
			 "chat_template", m->chat ? sits_chat_name(m->chat) : NULL, "digest", hex(s->digest, sizeof(s->digest)),
			 "key_id", hex(s->key_id, sizeof(s->key_id)), "suite", (int)s->suite, "bytes", number(s->plain_bytes),
			 "min_version", number(n->min_version), "load_s", (double)n->load_ns / 1e9);
}

/* What is routed, and how far it was foreseen; the model's part beside it. NULL in a dense model. */
static json_t *experts_info(const struct sits_node *n, const struct sits_engine_stats *e)
{
	const struct sits_hparams *hp = &n->model->hp;

	if (!hp->route.experts)
		return NULL;
	return json_pack("{s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "count", (int)hp->route.experts,
			 "used", (int)hp->route.used, "feed_forward", (int)hp->expert_ff, "shared_feed_forward",
			 (int)hp->shared_ff, "routed", number(e->routed), "dropped", number(e->route_dropped),
			 "pattern_queries", number(e->route_queries), "pattern_hits", number(e->route_found),
			 "predicted_pairs", number(e->route_pairs), "predicted_hits", number(e->route_hits),
			 "prefetch_bytes", number(e->prefetch_bytes));
}

static json_t *protection_info(const struct sits_node *n)
{
	struct sits_region_info r = { 0 };
	struct rlimit core = { 0 };

	sits_node_region_info(n, &r);
	getrlimit(RLIMIT_CORE, &core);
	return json_pack("{s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:i, s:b, s:b, s:b}", "locked", r.locked, "sealed", r.sealed,
			 "excluded_from_dumps", r.nodump, "excluded_from_fork", r.nofork, "mapped_bytes", number(r.mapped_bytes),
			 "huge_bytes", number(r.huge_bytes), "page_bytes", number(r.page_bytes), "numa_node", (int)r.node,
			 "ptrace_by_others", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0, "core_dumps", core.rlim_cur != 0,
			 "no_new_privileges", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

/* KV pages, and what finds or guesses work done before. */
static json_t *reuse_info(const struct sits_engine_stats *e)
{
	return json_pack("{s:i, s:i, s:i, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "kv_pages", (int)e->pages_total,
			 "kv_pages_used", (int)e->pages_used, "kv_pages_cached", (int)e->pages_cached,
			 "kv_page_bytes", number(e->page_bytes), "kv_keep", (int)e->kv_keep,
			 "kv_pages_given_up", number(e->kv_given_up), "prefix_cache_queries", number(e->prefix_cache_queries),
			 "prefix_cache_hits", number(e->prefix_cache_hits),
			 "prefix_cache_evicted", number(e->prefix_cache_evicted), "draft_tokens", number(e->draft_tokens),
			 "draft_accepted", number(e->draft_accepted));
}

static json_t *engine_info(const struct sits_info_source *s, const struct sits_loop_state *l)
{
	const struct sits_engine_stats *e = &l->engine;
	json_t *o, *more = reuse_info(e);

	o = json_pack("{s:s, s:i, s:i, s:o, s:o, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:b, s:b}", "isa", l->isa,
		      "threads", (int)e->threads, "thread_nodes", (int)e->thread_nodes, "max_seqs", number(s->cfg->engine.max_seqs),
		      "token_budget", number(s->cfg->engine.token_budget), "running", (int)e->running,
		      "waiting", (int)e->waiting, "inbox", (int)l->inbox, "steps", number(e->steps),
		      "prompt_tokens", number(e->prompt_tokens), "generated_tokens", number(e->generated_tokens),
		      "preemptions", number(e->preemptions), "nonfinite", number(e->nonfinite), "busy", l->busy,
		      "failed", l->faulted);
	if (o && more)
		json_object_update(o, more);
	json_decref(more);
	return o;
}

static json_t *queue_info(const struct sits_info_source *s)
{
	struct sits_queue_stats q = { 0 };

	sits_queue_get_stats(s->queue, &q);
	return json_pack("{s:s, s:o, s:o, s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "name", s->cfg->queue.name,
			 "depth", number(s->cfg->queue.depth), "per_client", number(s->cfg->queue.per_client),
			 "max_clients", number(s->cfg->queue.max_clients), "clients", (int)q.clients, "pending", (int)q.pending,
			 "requests", number(q.requests), "answered", number(q.answered), "cancelled", number(q.cancelled),
			 "refused_busy", number(q.refused_busy), "bytes_in", number(q.bytes_in), "bytes_out", number(q.bytes_out));
}

static uint64_t value(const _Atomic uint64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static json_t *counters_info(const struct sits_counters *c)
{
	json_t *ended = json_object();

	for (int i = 0; ended && i < SITS_NR_ENDS; i++)
		json_object_set_new(ended, sits_end_name(i), number(value(&c->ended[i])));
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f}", "requests", number(value(&c->requests)),
			 "active", number(value(&c->active)), "ended", ended, "prompt_tokens", number(value(&c->prompt_tokens)),
			 "completion_tokens", number(value(&c->completion_tokens)),
			 "first_tokens", number(value(&c->first_tokens)), "queue_s_sum", (double)value(&c->queue_ns) / 1e9,
			 "time_to_first_token_s_sum", (double)value(&c->first_token_ns) / 1e9);
}

static double uptime_s(uint64_t start_ns)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)((uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec - start_ns) / 1e9;
}

char *sits_info_json(const struct sits_info_source *s)
{
	struct sits_loop_state l;
	json_t *root, *experts;
	char *out;

	sits_loop_get_state(s->loop, &l);
	root = json_pack("{s:s, s:i, s:f, s:s, s:s, s:o, s:o, s:o, s:{s:o, s:o}, s:o, s:o}", "version", SITS_VERSION,
			 "pid", (int)getpid(), "uptime_s", uptime_s(s->start_ns), "state", s->draining ? "draining" : "serving",
			 "provider", sits_provider_name(s->node->ctx), "model", model_info(s->node),
			 "protection", protection_info(s->node), "engine", engine_info(s, &l),
			 "limits", "max_tokens", number(s->cfg->limits.max_tokens),
			 "max_prompt_tokens", number(s->cfg->limits.max_prompt_tokens), "queue", queue_info(s),
			 "counters", counters_info(s->counters));
	experts = experts_info(s->node, &l.engine);
	if (root && experts)
		json_object_set(root, "experts", experts);
	json_decref(experts);
	out = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return out;
}
