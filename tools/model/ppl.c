// SPDX-License-Identifier: MIT
/*
 * ppl.c - see ppl.h.
 *
 * Several windows go through the graph side by side, as requests would, each in pages of its own. By batch invariance
 * (kernels/kernels.h) the logits are those that serving would compute, bit for bit.
 */
#include "tools/model/ppl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/threads.h"
#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "tools/model/model.h"

#define CONTEXT_DEFAULT	512
#define CONTEXT_MIN	8
/* Windows at once, and rows of each in a pass: enough to share the weights' bytes, few enough that the logits stay small. */
#define LANES		4
#define LANE_ROWS	32
#define ROWS		(LANES * LANE_ROWS)

/* A window under way. */
struct lane {
	uint32_t *pages;		/* [pages of a window] */
	int32_t *token;			/* [C] */
	double *nll;			/* [C]: of the token at that position; NaN where a logit is not finite */
};

struct ppl {
	const struct sits_model *m;
	const struct sits_backend *be;
	struct sits_threads *team;
	struct sits_graph *graph;
	struct sits_kv kv;
	uint32_t C;
	struct lane lane[LANES];

	/* Of a pass: rows of the lanes in use, from position @from on. */
	uint32_t from;
	int32_t token[ROWS], pos[ROWS];
	struct sits_attn_seq seq[LANES];
	uint32_t owner[LANES], want[LANES];
	const struct ppl_opts *opts;
};

double ppl_nll(const float *logits, size_t V, int32_t target)
{
	double sum = 0, top = -INFINITY;
	size_t i;

	for (i = 0; i < V; i++) {
		if (isnan(logits[i]))
			return NAN;
		top = logits[i] > top ? (double)logits[i] : top;
	}
	if (!isfinite(top))
		return NAN;
	for (i = 0; i < V; i++)
		sum += (double)expf(logits[i] - (float)top);
	return log(sum) + top - (double)logits[target];
}

/* By any thread of the team: the logits of the lane's last @nr rows. A lane is one thread's. */
static void score(void *arg, uint32_t lane, const float *logits, size_t nr)
{
	struct ppl *p = arg;
	struct lane *l = &p->lane[lane];
	size_t V = p->m->hp.vocab, i, pos = p->from + p->seq[lane].nr - nr;

	for (i = 0; i < nr; i++)
		l->nll[pos + i + 1] = ppl_nll(logits + i * V, V, l->token[pos + i + 1]);
}

static void probe(void *arg, enum sits_probe what, uint32_t layer, const float *x, size_t rows, size_t cols)
{
	const struct ppl *p = arg;

	if (what == SITS_PROBE_FFN_IN)
		p->opts->ffn_in(p->opts->arg, layer, x, rows, cols);
}

/* Positions [from, to) of @lanes windows; those from @first on are scored. The last token of a window predicts nothing. */
static int run_rows(struct ppl *p, uint32_t lanes, uint32_t from, uint32_t to, uint32_t first)
{
	struct sits_graph_batch b = { .token = p->token, .pos = p->pos, .seq = p->seq, .owner = p->owner, .want = p->want,
				      .nr_seq = lanes, .sample = score, .probe = p->opts->ffn_in ? probe : NULL, .arg = p };
	uint32_t l, at;

	p->from = from;
	for (l = 0; l < lanes; l++) {
		p->seq[l] = (struct sits_attn_seq){ .pages = p->lane[l].pages, .row0 = b.T, .nr = to - from, .pos0 = from };
		p->owner[l] = l;
		p->want[l] = to > first ? to - (from > first ? from : first) : 0;
		for (at = from; at < to; at++, b.T++) {
			p->token[b.T] = p->lane[l].token[at];
			p->pos[b.T] = (int32_t)at;
		}
	}
	return sits_graph_run(p->graph, &p->kv, &b);
}

static int run_windows(struct ppl *p, uint32_t lanes)
{
	uint32_t at, to;
	int ret = 0;

	for (at = 0; at + 1 < p->C && !ret; at = to) {
		to = at + LANE_ROWS < p->C - 1 ? at + LANE_ROWS : p->C - 1;
		ret = run_rows(p, lanes, at, to, p->C / 2);
	}
	return ret;
}

static int create_lanes(struct ppl *p)
{
	uint32_t l, i, nr = sits_kv_pages(p->C);

	for (l = 0; l < LANES; l++) {
		p->lane[l].pages = malloc(nr * sizeof(uint32_t));
		p->lane[l].token = malloc(p->C * sizeof(int32_t));
		p->lane[l].nll = malloc(p->C * sizeof(double));
		if (!p->lane[l].pages || !p->lane[l].token || !p->lane[l].nll)
			return -ENOMEM;
		for (i = 0; i < nr; i++)
			p->lane[l].pages[i] = l * nr + i;
	}
	return 0;
}

static int create(struct ppl *p, const struct ppl_opts *o, struct sits_diag *diag)
{
	int ret;

	p->be = sits_backend_get(o->isa);
	if (!p->be)
		return o->isa ? sits_diag_fail(diag, -EINVAL, "no compute backend '%s' that this processor can run", o->isa) :
				sits_diag_fail(diag, -EINVAL, "no compute backend that $SITS_FORCE_ISA names");
	ret = sits_threads_create(o->threads, 0, &p->team, diag);
	if (!ret)
		ret = sits_graph_create(p->m, p->be, p->team, ROWS, ROWS, &p->graph, diag);
	if (ret)
		return ret;
	sits_graph_set_kv_kind(p->graph, o->kv_kind);
	ret = sits_kv_init(&p->kv, sits_graph_page_bytes(p->m, p->be, o->kv_kind), LANES * sits_kv_pages(p->C));
	return ret ? ret : create_lanes(p);
}

static void destroy(struct ppl *p)
{
	uint32_t l;

	for (l = 0; l < LANES; l++) {
		free(p->lane[l].pages);
		free(p->lane[l].token);
		free(p->lane[l].nll);
	}
	if (p->kv.base)
		sits_kv_fini(&p->kv);
	sits_graph_destroy(p->graph);
	if (p->team)
		sits_threads_destroy(p->team);
}

/* Offset of the first byte that is not UTF-8, or @len. */
static size_t not_utf8(const char *text, size_t len)
{
	utf8proc_ssize_t n;
	utf8proc_int32_t c;
	size_t at = 0;

	while (at < len) {
		n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(len - at), &c);
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	return at;
}

int ppl_tokens(const struct sits_model *m, const char *text, size_t len, struct sits_tokens *out, struct sits_diag *diag)
{
	const size_t bad = not_utf8(text, len);
	int ret;

	/* It would become replacement characters, and their perplexity be taken for the text's. */
	if (bad < len)
		return sits_diag_fail(diag, -EILSEQ, "the text: byte %zu (0x%02x) is not UTF-8; convert it first, with iconv(1) for example",
				      bad, (unsigned int)(uint8_t)text[bad]);
	ret = sits_tokenizer_encode(m->tok, text, len, SITS_TOK_ADD_BOS, out);
	return ret ? sits_diag_fail(diag, ret, "the text could not be made tokens") : 0;
}

void ppl_window(const struct sits_model *m, const struct sits_tokens *t, uint32_t C, uint64_t window, int32_t *token)
{
	bool bos = t->id[0] == sits_tokenizer_bos(m->tok);

	memcpy(token, t->id + window * C, C * sizeof(*token));
	if (bos)
		token[0] = t->id[0];
}

static int sum_lane(const struct ppl *p, const struct lane *l, uint64_t window, struct ppl_result *res, double sum[2],
		    struct sits_diag *diag)
{
	uint32_t i;

	for (i = p->C / 2 + 1; i < p->C; i++) {
		if (isnan(l->nll[i]))
			return sits_diag_fail(diag, -EDOM, "window %llu, position %u: the logits are not finite",
					      (unsigned long long)window, i);
		sum[0] += l->nll[i];
		sum[1] += l->nll[i] * l->nll[i];
		res->scored++;
	}
	return 0;
}

/* All windows; sums of -ln p and of its square. */
static int run_all(struct ppl *p, const struct sits_tokens *t, const struct ppl_opts *o, struct ppl_result *res,
		   double sum[2], struct sits_diag *diag)
{
	uint32_t l, lanes;
	uint64_t w;
	int ret = 0;

	for (w = 0; w < res->windows && !ret; w += lanes) {
		if (o->progress && o->progress(o->arg, w, res->windows))
			return -ECANCELED;
		lanes = res->windows - w < LANES ? (uint32_t)(res->windows - w) : LANES;
		for (l = 0; l < lanes; l++)
			ppl_window(p->m, t, p->C, w + l, p->lane[l].token);
		ret = run_windows(p, lanes);
		for (l = 0; l < lanes && !ret; l++)
			ret = sum_lane(p, &p->lane[l], w + l, res, sum, diag);
	}
	if (ret)
		return ret;
	return o->progress && o->progress(o->arg, w, res->windows) ? -ECANCELED : 0;
}

static void finish(const struct ppl_result *res, const double sum[2], double *nll, double *ppl, double *err)
{
	double n = (double)res->scored, var;

	*nll = sum[0] / n;
	var = sum[1] / n - *nll * *nll;
	*ppl = exp(*nll);
	*err = n > 1 && var > 0 ? *ppl * sqrt(var / (n - 1)) : 0;
}

/* All of it kept, then a part, where that is asked for. */
static int measure(struct ppl *p, const struct sits_tokens *t, const struct ppl_opts *o, struct ppl_result *res,
		   struct sits_diag *diag)
{
	double sum[2] = { 0, 0 }, kept[2] = { 0, 0 }, start = seconds_now();
	int ret;

	res->isa = p->be->name;
	res->threads = sits_threads_nr(p->team);
	res->kv_page_bytes = p->kv.page_bytes;
	res->kv_pages = sits_kv_pages(p->C - 1);
	ret = run_all(p, t, o, res, sum, diag);
	if (ret)
		return ret;
	finish(res, sum, &res->nll, &res->ppl, &res->err);
	res->seconds = seconds_now() - start;
	if (!o->kv_keep)
		return 0;
	ret = ppl_keep(p->m, t, o, res, kept, diag);
	if (!ret)
		finish(res, kept, &res->kept.nll, &res->kept.ppl, &res->kept.err);
	return ret;
}

int ppl_run(const struct sits_model *m, const char *text, size_t len, const struct ppl_opts *o,
	    struct ppl_result *res, struct sits_diag *diag)
{
	struct ppl p = { .m = m, .opts = o, .C = o->context };
	struct sits_tokens t = { 0 };
	int ret;

	if (!p.C)
		p.C = m->hp.context < CONTEXT_DEFAULT ? m->hp.context : CONTEXT_DEFAULT;
	*res = (struct ppl_result){ .context = p.C };
	if (o->kv_keep && o->kv_keep < SITS_KV_KEEP_LEAST)
		return sits_diag_fail(diag, -EINVAL, "keys and values of %u tokens: each head keeps %d or more", o->kv_keep,
				      SITS_KV_KEEP_LEAST);
	if (p.C < CONTEXT_MIN || p.C > m->hp.context)
		return sits_diag_fail(diag, -EINVAL, "a window of %u tokens: it must have %d to %u, which is the model's context",
				      p.C, CONTEXT_MIN, m->hp.context);
	ret = ppl_tokens(m, text, len, &t, diag);
	if (ret)
		return ret;
	res->tokens = t.nr;
	res->windows = t.nr / p.C;
	if (o->windows && o->windows < res->windows)
		res->windows = o->windows;
	if (!res->windows)
		ret = sits_diag_fail(diag, -EINVAL, "the text has %zu tokens; one window takes %u", t.nr, p.C);
	if (!ret)
		ret = create(&p, o, diag);
	if (!ret)
		ret = measure(&p, &t, o, res, diag);
	destroy(&p);
	sits_tokens_fini(&t);
	return ret == -ENOMEM ? sits_diag_fail(diag, ret, "no memory for windows of %u tokens", p.C) : ret;
}
