// SPDX-License-Identifier: MIT
/*
 * spec_draft.c - guesses by a smaller model; see spec.h.
 *
 * The draft model has a graph and a pool of pages of its own and runs on the same threads, one pass for each
 * place that is guessed, for all requests together. Its pages are kept from step to step: what it has to
 * compute first is what was drawn since. It guesses with the request's sampler, in the state that the
 * draws will find, so the same numbers fall: where the two models agree, so do the draws.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/engine_impl.h"

struct spec_draft {
	const struct sits_model *m;
	struct sits_graph *graph;
	struct sits_kv kv;
	uint32_t budget, vocab;	/* tokens that both models have */

	int32_t *token, *pos;	/* [budget] */
	struct sits_attn_seq *seq;	/* these: [max_seqs] */
	uint32_t *owner, *want, *left;
	struct sits_engine *e;	/* of the pass under way */
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* The two must name the same texts by the same numbers; one may have more of them, unused ones at the end. */
static int check_tokens(const struct sits_model *m, const struct sits_model *d, uint32_t *vocab, struct sits_diag *diag)
{
	const char *a, *b;
	uint32_t i;
	int na, nb;

	*vocab = least(m->hp.vocab, d->hp.vocab);
	for (i = 0; i < *vocab; i++) {
		na = sits_tokenizer_piece(m->tok, i, &a);
		nb = sits_tokenizer_piece(d->tok, i, &b);
		if (na != nb || (na > 0 && memcmp(a, b, na)) ||
		    sits_tokenizer_is_eog(m->tok, i) != sits_tokenizer_is_eog(d->tok, i))
			return sits_diag_fail(diag, -EINVAL, "engine: the draft model has other tokens than the model: "
					      "token %" PRIu32 " differs", i);
	}
	return 0;
}

static int create_arrays(struct spec_draft *d, uint32_t max_seqs)
{
	d->token = calloc(d->budget, sizeof(*d->token));
	d->pos = calloc(d->budget, sizeof(*d->pos));
	d->seq = calloc(max_seqs, sizeof(*d->seq));
	d->owner = calloc(max_seqs, sizeof(*d->owner));
	d->want = calloc(max_seqs, sizeof(*d->want));
	d->left = calloc(max_seqs, sizeof(*d->left));
	return d->token && d->pos && d->seq && d->owner && d->want && d->left ? 0 : -ENOMEM;
}

int sits_spec_draft_create(struct sits_engine *e, const struct sits_engine_opts *o, struct spec_draft **out,
			   struct sits_diag *diag)
{
	struct spec_draft *d;
	int ret;

	if (!o->draft)
		return sits_diag_fail(diag, -EINVAL, "engine: speculation by a draft model, but there is none");
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->m = o->draft;
	d->budget = e->budget;
	ret = check_tokens(e->m, d->m, &d->vocab, diag);
	if (!ret)
		ret = create_arrays(d, e->max_seqs);
	/* As many tokens as the model's own pool. */
	if (!ret)
		ret = sits_kv_init(&d->kv, sits_graph_page_bytes(d->m, e->be, SITS_KV_F16), e->kv.nr_pages);
	if (!ret)
		ret = sits_graph_create(d->m, e->be, e->team, d->budget, e->max_seqs, &d->graph, diag);
	if (ret) {
		sits_diag_fail(diag, ret, "engine: no memory for the draft model's pages and batches");
		sits_spec_draft_destroy(d);
		return ret;
	}
	*out = d;
	return 0;
}

void sits_spec_draft_destroy(struct spec_draft *d)
{
	if (!d)
		return;
	sits_graph_destroy(d->graph);
	sits_kv_fini(&d->kv);
	free(d->token);
	free(d->pos);
	free(d->seq);
	free(d->owner);
	free(d->want);
	free(d->left);
	free(d);
}

void sits_spec_draft_drop(struct spec_draft *d, struct request *r)
{
	sits_kv_release(&d->kv, &r->spec.pages);
	r->spec.nr_cached = 0;
}

static bool is_dropped(void *arg, uint32_t owner)
{
	struct spec_draft *d = arg;

	return atomic_load_explicit(&d->e->running[owner]->cancelled, memory_order_relaxed);
}

/* A guess that is no token of the model, or not a number: this request makes do with what it has. */
static void sample_draft(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	struct spec_draft *d = arg;
	struct request *r = d->e->running[owner];
	int32_t id = sits_sampler_draw(r->spec.sampler, logits, r->token, r->nr + r->nr_guess);

	if (id < 0 || (uint32_t)id >= d->vocab) {
		d->left[owner] = 0;
		return;
	}
	r->token[r->nr + r->nr_guess++] = id;
	d->left[owner]--;
}

/* Tokens that the draft model has to compute before it can guess the next one. */
static uint32_t draft_due(const struct request *r)
{
	return r->nr + r->nr_guess - r->spec.nr_cached;
}

/* Rows of one request; a long prompt is computed over several steps. */
static void add_rows(struct spec_draft *d, struct sits_graph_batch *b, uint32_t i, uint32_t n)
{
	struct request *r = d->e->running[i];
	uint32_t j, at = r->spec.nr_cached;

	d->seq[b->nr_seq] = (struct sits_attn_seq){
		.pages = r->spec.pages.page, .row0 = b->T, .nr = n, .pos0 = at,
	};
	d->owner[b->nr_seq] = i;
	d->want[b->nr_seq] = n == draft_due(r);
	b->nr_seq++;
	for (j = 0; j < n; j++) {
		d->token[b->T] = r->token[at + j];
		d->pos[b->T++] = at + j;
	}
}

static void fill_batch(struct spec_draft *d, struct sits_graph_batch *b)
{
	struct sits_engine *e = d->e;
	struct request *r;
	uint32_t i, n;

	for (i = 0; i < e->nr_running && b->T < d->budget; i++) {
		r = e->running[i];
		if (!d->left[i])
			continue;
		n = least(draft_due(r), d->budget - b->T);
		if (r->spec.nr_cached + n > d->m->hp.context ||
		    sits_kv_grow(&d->kv, &r->spec.pages, (size_t)r->spec.nr_cached + n)) {
			d->left[i] = 0;
			continue;
		}
		add_rows(d, b, i, n);
	}
}

/* One pass. Return: whether there may be a next one. */
static bool run_pass(struct spec_draft *d)
{
	struct sits_graph_batch b = {
		.token = d->token, .pos = d->pos, .seq = d->seq, .owner = d->owner, .want = d->want,
		.dropped = is_dropped, .sample = sample_draft, .arg = d,
	};
	uint32_t i, nr;
	struct request *r;

	fill_batch(d, &b);
	nr = b.nr_seq;
	if (!nr || sits_graph_run(d->graph, &d->kv, &b))
		return false;
	/* Those that left on the way are cancelled: what was computed of them does not matter any more. */
	for (i = 0; i < b.nr_seq; i++) {
		r = d->e->running[b.owner[i]];
		r->spec.nr_cached += b.seq[i].nr;
		if (!b.want[i])
			d->left[b.owner[i]] = 0;
	}
	return b.nr_seq == nr;
}

static bool begin(struct spec_draft *d, struct request *r, uint32_t want)
{
	/* What it computed of guesses that did not come true is void. */
	r->spec.nr_cached = least(r->spec.nr_cached, r->nr - 1);
	return want && !sits_sampler_copy(r->sampler, d->vocab, &r->spec.sampler);
}

void sits_spec_draft_guess(struct spec_draft *d, struct sits_engine *e, const uint32_t *want)
{
	bool any = false;
	uint32_t i;

	d->e = e;
	for (i = 0; i < e->nr_running; i++) {
		d->left[i] = begin(d, e->running[i], want[i]) ? want[i] : 0;
		any |= d->left[i] > 0;
	}
	while (any && run_pass(d)) {
		any = false;
		for (i = 0; i < e->nr_running; i++)
			any |= d->left[i] > 0;
	}
}
