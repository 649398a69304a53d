// SPDX-License-Identifier: MIT
/*
 * ppl_keep.c - perplexity where each head keeps a part of its keys and values; see ppl.h.
 *
 * A window is a request to the engine as serving has it: its first half, and the token after it, are the prompt, the rest is
 * given as its answer. So what is given up, and when, is what a request of these tokens would give up.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/model/model.h"
#include "tools/model/ppl.h"

#define LANES	4	/* windows at once */

struct lane {
	int32_t *token;		/* [C] */
	double *nll;		/* [C] */
	uint32_t at;		/* the token that the next logits predict */
	struct sits_gen_result res;
};

struct keep {
	const struct sits_model *m;
	struct sits_engine *e;
	uint32_t C;
	struct lane lane[LANES];
};

static void take_logits(void *arg, const float *logits, size_t vocab)
{
	struct lane *l = arg;

	l->nll[l->at] = ppl_nll(logits, vocab, l->token[l->at]);
	l->at++;
}

static void take_end(void *arg, const struct sits_gen_result *res)
{
	struct lane *l = arg;

	l->res = *res;
	l->res.why = NULL;	/* borrowed */
}

static int submit(struct keep *k, struct lane *l, struct sits_diag *diag)
{
	const struct sits_gen_sink sink = { .logits = take_logits, .done = take_end, .arg = l };
	const uint32_t prompt = k->C / 2 + 1;
	const struct sits_gen_params p = {
		.prompt = l->token, .nr_prompt = prompt, .forced = l->token + prompt, .nr_forced = k->C - prompt,
		.sampling = { .top_p = 1, .repeat_penalty = 1 },
	};
	uint64_t id;

	l->at = prompt;
	return sits_engine_submit(k->e, &p, &sink, &id, diag);
}

/* In the order in which ppl.c adds them up: where nothing is given up, the sums are the same. */
static int sum_lane(const struct keep *k, const struct lane *l, uint64_t window, double sum[2], struct sits_diag *diag)
{
	uint32_t i;

	for (i = k->C / 2 + 1; i < k->C; i++) {
		if (isnan(l->nll[i]))
			return sits_diag_fail(diag, -EDOM, "window %llu, position %u: the logits are not finite",
					      (unsigned long long)window, i);
		sum[0] += l->nll[i];
		sum[1] += l->nll[i] * l->nll[i];
	}
	return 0;
}

static int run_windows(struct keep *k, uint32_t lanes, uint64_t window, struct ppl_result *res, double sum[2],
		       struct sits_diag *diag)
{
	const struct lane *l;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < lanes && !ret; i++)
		ret = submit(k, &k->lane[i], diag);
	while (!ret && (ret = sits_engine_step(k->e)) > 0)
		ret = 0;
	for (i = 0; i < lanes && !ret; i++) {
		l = &k->lane[i];
		if (l->res.status)
			return l->res.status;
		res->kept.kv_pages += l->res.kv_pages;
		ret = sum_lane(k, l, window + i, sum, diag);
	}
	return ret;
}

static int create(struct keep *k, const struct ppl_opts *o, struct sits_diag *diag)
{
	struct sits_engine_opts opts = {
		.threads = o->threads, .isa = o->isa, .max_seqs = LANES, .context = k->C, .kv_kind = o->kv_kind,
		.kv_keep = o->kv_keep,
	};
	uint32_t i;

	opts.kv_bytes = (uint64_t)LANES * sits_kv_pages(k->C) *
			sits_graph_page_bytes(k->m, sits_backend_get(o->isa), o->kv_kind);
	for (i = 0; i < LANES; i++) {
		k->lane[i].token = malloc(k->C * sizeof(int32_t));
		k->lane[i].nll = malloc(k->C * sizeof(double));
		if (!k->lane[i].token || !k->lane[i].nll)
			return -ENOMEM;
	}
	return sits_engine_create(k->m, &opts, &k->e, diag);
}

int ppl_keep(const struct sits_model *m, const struct sits_tokens *t, const struct ppl_opts *o, struct ppl_result *res,
	     double sum[2], struct sits_diag *diag)
{
	struct keep k = { .m = m, .C = res->context };
	int ret = create(&k, o, diag);
	uint32_t i, lanes;
	uint64_t w;

	for (w = 0; w < res->windows && !ret; w += lanes) {
		if (o->progress && o->progress(o->arg, w, res->windows)) {
			ret = -ECANCELED;
			break;
		}
		lanes = res->windows - w < LANES ? (uint32_t)(res->windows - w) : LANES;
		for (i = 0; i < lanes; i++)
			ppl_window(m, t, k.C, w + i, k.lane[i].token);
		ret = run_windows(&k, lanes, w, res, sum, diag);
	}
	res->kept.kv_pages /= (double)res->windows;
	sits_engine_destroy(k.e);
	for (i = 0; i < LANES; i++) {
		free(k.lane[i].token);
		free(k.lane[i].nll);
	}
	return ret;
}
