// SPDX-License-Identifier: MIT
/*
 * output.c - what came out of a step: draws, tokens, text, ends.
 */
#include <errno.h>

#include "daemon/engine/engine_impl.h"
#include "sits/infer.h"

/*
 * On any thread of the team; each request is sampled by one. Rows after the first stand behind guesses:
 * they count as long as each draw is the guess in its place.
 */
void sits_output_sample(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	struct sits_engine *e = arg;
	struct request *r = e->running[owner];
	int32_t guess, id;
	size_t i;

	r->logits = logits;
	if (r->forced) {
		r->nr_drawn = nr;
		return;
	}
	for (i = 0; i < nr; i++) {
		id = sits_sampler_draw(r->sampler, logits + i * e->m->hp.vocab, r->token, r->nr + i);
		if (id < 0) {
			r->draw_err = id;
			return;
		}
		guess = i + 1 < nr ? r->token[r->nr + i] : -1;
		r->token[r->nr + i] = id;
		r->nr_drawn++;
		if (id != guess)
			return;
	}
}

/* Take a drawn token in. Return: whether the request goes on; else *status, *fin and *why say how it ended. */
static bool take_token(struct sits_engine *e, struct request *r, int *status, uint32_t *fin, const char **why)
{
	int32_t id = r->token[r->nr];
	const char *piece;
	bool stopped;
	int len;

	*status = 0;
	*why = NULL;
	if (!r->first_token_ns)
		r->first_token_ns = sits_engine_now_ns();
	r->nr++;
	r->untold++;
	e->stats.generated_tokens++;
	if (!r->ignore_eos && sits_tokenizer_is_eog(e->m->tok, id)) {
		*fin = SITS_FINISH_EOS;
		return false;
	}
	len = sits_tokenizer_piece(e->m->tok, id, &piece);
	if (len > 0 && sits_stream_push(r->stream, piece, len, &stopped)) {
		*status = -ENOMEM;
		*fin = 0;
		*why = "no memory for the text";
		return false;
	}
	sits_req_tell(r);
	if (len > 0 && stopped) {
		*fin = SITS_FINISH_STOP;
		return false;
	}
	*fin = SITS_FINISH_LENGTH;
	return r->nr < r->cap;
}

static bool take_error(struct sits_engine *e, struct request *r, int *status, uint32_t *fin, const char **why)
{
	*status = r->draw_err;
	*fin = 0;
	*why = r->draw_err == -EDOM ? "the model's output is not a finite number" : "no memory to sample a token";
	e->stats.nonfinite += r->draw_err == -EDOM;
	return false;
}

/* All that was drawn for @r in this step, in order. Return: as take_token(). */
static bool take_draws(struct sits_engine *e, struct request *r, int *status, uint32_t *fin, const char **why)
{
	const float *logits = r->logits;
	uint32_t i, n = r->nr_drawn;
	bool on = true;

	/* All draws but the last were guessed; before an error, all. */
	if (r->nr_guess && !r->forced)
		sits_spec_learn(e, r, r->draw_err ? n : n - 1);
	for (i = 0; on && i < n + (r->draw_err != 0); i++, logits += e->m->hp.vocab) {
		if (r->sink.logits)
			r->sink.logits(r->sink.arg, logits, e->m->hp.vocab);
		r->nr_cached += i > 0;
		on = i < n ? take_token(e, r, status, fin, why) : take_error(e, r, status, fin, why);
	}
	return on;
}

/* Keys and values that the request goes on without. Return: as take_token(). */
static bool give_up(struct sits_engine *e, struct request *r, int *status, uint32_t *fin, const char **why)
{
	*status = sits_evict_run(e, r);
	*fin = 0;
	*why = *status ? "no memory for the block tables of its heads" : NULL;
	return !*status;
}

static void forget_draws(struct request *r)
{
	r->nr_drawn = r->nr_guess = 0;
	r->draw_err = 0;
	r->logits = NULL;
}

static void count_rows(struct sits_engine *e, struct request *r)
{
	uint32_t prompt = r->nr_cached < r->nr_prompt ? r->nr_prompt - r->nr_cached : 0;

	e->stats.prompt_tokens += prompt < r->plan ? prompt : r->plan;
	r->nr_cached += r->plan;
}

void sits_output_collect(struct sits_engine *e)
{
	uint32_t i = 0, fin;
	struct request *r;
	const char *why;
	int status;
	bool on;

	/* Callbacks may submit and cancel; both leave the running array alone. */
	while (i < e->nr_running) {
		r = e->running[i];
		on = true;
		if (r->plan && !atomic_load(&r->cancelled)) {
			count_rows(e, r);
			if (r->nr_drawn || r->draw_err)
				on = take_draws(e, r, &status, &fin, &why);
			if (on && !is_private(r))
				sits_kv_index(&e->kv, &r->pages, r->scope, r->token, r->nr_cached, false);
			if (on)
				on = give_up(e, r, &status, &fin, &why);
		}
		forget_draws(r);
		if (on) {
			i++;
			continue;
		}
		sits_req_unrun(e, r);
		sits_req_finish(e, r, status, fin, why);
	}
}
