// SPDX-License-Identifier: MIT
/*
 * spec.c - see spec.h: how many tokens are guessed, and the guess by lookup. The draft model is in spec_draft.c.
 */
#include "daemon/engine/spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/engine_impl.h"

#define DEFAULT_GUESSES 8
#define MAX_GUESSES 64
/* A match of so many tokens is as good as a longer one: the latest place wins. */
#define MAX_MATCH 8
/* Before it is known: reading the weights takes as long as computing one row. */
#define FIRST_BASE 1.0f
#define MAX_BASE 64.0f
/* Steps of more rows are bound by arithmetic in other ways. */
#define CLOCK_ROWS 32
#define CLOCK_FADE 0.97
/* Weight of one guess in the rate. */
#define RATE_WEIGHT 0.15f
#define FIRST_RATE 0.6f

struct spec {
	uint32_t max;		/* guesses for one request in a step */
	struct spec_draft *draft;	/* NULL: lookup */
	uint32_t *want;		/* [max_seqs] */
	struct spec_clock clock;
	double guess_ns;	/* the draft model's, for one guess */
};

int sits_spec_create(struct sits_engine *e, const struct sits_engine_opts *o, struct spec **out,
		     struct sits_diag *diag)
{
	struct spec *s;
	int ret;

	*out = NULL;
	if (o->speculation == SITS_SPEC_OFF)
		return 0;
	if (o->speculation > SITS_SPEC_DRAFT)
		return sits_diag_fail(diag, -EINVAL, "engine: speculation %d is unknown", o->speculation);
	if (o->draft_tokens > MAX_GUESSES)
		return sits_diag_fail(diag, -EINVAL, "engine: draft_tokens %" PRIu32 " is more than %d", o->draft_tokens,
				      MAX_GUESSES);
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->max = o->draft_tokens ? o->draft_tokens : DEFAULT_GUESSES;
	s->want = calloc(e->max_seqs, sizeof(*s->want));
	ret = s->want ? 0 : -ENOMEM;
	if (!ret && o->speculation == SITS_SPEC_DRAFT)
		ret = sits_spec_draft_create(e, o, &s->draft, diag);
	if (ret) {
		sits_spec_destroy(s);
		return ret;
	}
	*out = s;
	return 0;
}

void sits_spec_destroy(struct spec *s)
{
	if (!s)
		return;
	sits_spec_draft_destroy(s->draft);
	free(s->want);
	free(s);
}

/* The longest match of the end of token[0..nr) with an earlier place; of equal ones the latest. */
uint32_t sits_spec_lookup(const int32_t *token, uint32_t nr, int32_t *out, uint32_t max)
{
	uint32_t best = SITS_SPEC_MIN_MATCH - 1, from = 0, i, n;

	for (i = nr; i-- > 1 && best < MAX_MATCH;) {
		/* token[i - 1] is to be like the last, and something must follow it. */
		if (i == nr || token[i - 1] != token[nr - 1])
			continue;
		for (n = 1; n < MAX_MATCH && n < i && token[i - 1 - n] == token[nr - 1 - n];)
			n++;
		if (n > best) {
			best = n;
			from = i;
		}
	}
	/* Behind the end the guesses themselves follow: a repetition goes round. */
	for (i = 0; from && i < max; i++)
		out[i] = from + i < nr ? token[from + i] : out[from + i - nr];
	return from ? max : 0;
}

/* ---- what pays ---- */

static void fit(struct spec_clock *c)
{
	double det = c->w * c->nn - c->n * c->n, row;

	/* All of about one size tell nothing of the others. */
	if (det < 0.05 * c->w * c->w)
		return;
	row = (c->w * c->nt - c->n * c->t) / det;
	c->row_ns = row > 0 ? row : 0;
	c->base = row > 0 ? (c->t - row * c->n) / (c->w * row) : MAX_BASE;
	c->base = c->base > MAX_BASE ? MAX_BASE : c->base < 0.01f ? 0.01f : c->base;
}

void sits_spec_clock_add(struct spec_clock *c, uint32_t rows, uint64_t ns)
{
	double t = ns, usual;

	if (!rows || rows > CLOCK_ROWS)
		return;
	/* Somebody else had the core. */
	usual = c->w > 0 ? c->t / c->w * (c->base + rows) / (c->base + c->n / c->w) : 0;
	if (c->w > 4 && c->base && t > 2 * usual)
		return;
	c->w = c->w * CLOCK_FADE + 1;
	c->n = c->n * CLOCK_FADE + rows;
	c->nn = c->nn * CLOCK_FADE + (double)rows * rows;
	c->t = c->t * CLOCK_FADE + t;
	c->nt = c->nt * CLOCK_FADE + rows * t;
	fit(c);
}

void sits_spec_timed(struct sits_engine *e, uint32_t rows, uint64_t ns)
{
	sits_spec_clock_add(&e->spec->clock, rows, ns);
}

static struct spec_cost cost(const struct spec *s)
{
	struct spec_cost c = { .base = s->clock.base ? s->clock.base : FIRST_BASE, .guess = 1 };

	if (s->clock.row_ns > 0)
		c.guess += s->guess_ns / s->clock.row_ns;
	return c;
}

uint32_t sits_spec_length(struct spec_state *s, const struct spec_cost *c, uint32_t rows, uint32_t max)
{
	float tokens = rows, time = c->base + rows, p;
	uint32_t n;

	if (!s->rate)
		s->rate = FIRST_RATE;
	if (s->rest) {
		s->rest--;
		return 0;
	}
	/* The n-th guess helps where all before it came true: as long as it brings more than the step's average. */
	for (n = 0, p = s->rate; n < max && p * time > tokens * c->guess; n++, p *= s->rate) {
		tokens += p;
		time += c->guess;
	}
	/* One, now and then, where that does not seem to pay: a text changes. */
	if (!n && max) {
		s->rest = 8u << (s->fails < 3 ? s->fails : 3);
		n = 1;
	}
	return n;
}

void sits_spec_learn(struct sits_engine *e, struct request *r, uint32_t right)
{
	struct spec_state *s = &r->spec;
	uint32_t i;

	e->stats.draft_tokens += r->nr_guess;
	e->stats.draft_accepted += right;
	for (i = 0; i < right; i++)
		s->rate += RATE_WEIGHT * (1 - s->rate);
	if (right < r->nr_guess)
		s->rate -= RATE_WEIGHT * s->rate;
	s->fails = right ? 0 : s->fails + 1;
	if (right)
		s->rest = 0;
}

void sits_spec_drop(struct sits_engine *e, struct request *r)
{
	if (e->spec && e->spec->draft)
		sits_spec_draft_drop(e->spec->draft, r);
}

/* What the request's length and pages allow. Nobody loses a page for a guess. */
static uint32_t allowed(struct sits_engine *e, struct request *r, uint32_t n)
{
	uint32_t room = sits_req_room(e, r);

	n = n < room ? n : room;
	if (n && sits_kv_grow(&e->kv, &r->pages, (size_t)r->nr + n)) {
		room = (r->pages.nr_gone + r->pages.nr) * SITS_KV_PAGE_TOKENS - r->nr;
		n = n < room ? n : room;
	}
	return n;
}

void sits_spec_guess(struct sits_engine *e, uint32_t room)
{
	const struct spec_cost c = cost(e->spec);
	struct spec *s = e->spec;
	uint32_t i, rows = 0, n;
	uint64_t start, made = 0;
	struct request *r;

	for (i = 0; i < e->nr_running; i++)
		rows += e->running[i]->plan;
	for (i = 0; i < e->nr_running; i++) {
		r = e->running[i];
		s->want[i] = 0;
		if (r->spec.off || r->forced || r->plan != 1 || rows_due(r) != 1)
			continue;
		n = sits_spec_length(&r->spec, &c, rows, s->max < room ? s->max : room);
		n = allowed(e, r, n);
		if (!s->draft)
			r->nr_guess = n = n ? sits_spec_lookup(r->token, r->nr, r->token + r->nr, n) : 0;
		s->want[i] = n;
		room -= n;
		rows += n;
	}
	if (!s->draft)
		return;
	start = sits_engine_cpu_ns();
	sits_spec_draft_guess(s->draft, e, s->want);
	for (i = 0; i < e->nr_running; i++)
		made += e->running[i]->nr_guess;
	if (made)
		s->guess_ns += 0.1 * ((double)(sits_engine_cpu_ns() - start) / made - s->guess_ns);
}
