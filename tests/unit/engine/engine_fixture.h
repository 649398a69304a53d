/* SPDX-License-Identifier: MIT */
/*
 * engine_fixture.h - a tiny model and an engine on it, for tests of requests. Include after cmocka.h.
 */
#ifndef SITS_TESTS_ENGINE_FIXTURE_H
#define SITS_TESTS_ENGINE_FIXTURE_H

#include "tests/unit/engine/client.h"
#include "tests/unit/engine/tiny_model.h"

struct fixture {
	void *image;
	struct sits_model *m;
	struct sits_engine *e;
};

static const struct sits_sampling greedy = { .top_p = 1, .repeat_penalty = 1 };

static inline void open_model(struct fixture *f, struct tiny_opts o)
{
	struct sits_diag diag = { 0 };
	size_t len;

	f->image = tiny_model(o, &len);
	if (sits_model_open(f->image, len, &f->m, &diag))
		fail_msg("%s", diag.msg);
}

static inline void open_engine(struct fixture *f, struct sits_engine_opts o)
{
	struct sits_diag diag = { 0 };

	if (!o.threads)
		o.threads = 2;
	if (sits_engine_create(f->m, &o, &f->e, &diag))
		fail_msg("%s", diag.msg);
}

static inline void close_engine(struct fixture *f)
{
	sits_engine_destroy(f->e);
	f->e = NULL;
}

static inline void close_all(struct fixture *f)
{
	close_engine(f);
	sits_model_close(f->m);
	free(f->image);
}

static inline struct sits_engine_stats stats(struct fixture *f)
{
	struct sits_engine_stats s;

	sits_engine_get_stats(f->e, &s);
	return s;
}

/* Greedy, to its end by length. */
static inline struct sits_gen_params params(const int32_t *prompt, size_t nr, uint32_t max_tokens)
{
	return (struct sits_gen_params){
		.prompt = prompt, .nr_prompt = nr, .max_tokens = max_tokens, .sampling = greedy, .ignore_eos = true,
	};
}

static inline void submit(struct fixture *f, struct client *c, const struct sits_gen_params *p)
{
	struct sits_diag diag = { 0 };

	c->keep_logits = true;
	if (client_submit(c, f->e, p, &diag))
		fail_msg("%s", diag.msg);
}

static inline void run_out(struct fixture *f)
{
	int ret, steps = 0;

	while ((ret = sits_engine_step(f->e)) > 0)
		assert_true(++steps < 50000);
	assert_int_equal(ret, 0);
	assert_int_equal(stats(f).pages_used, 0);
	assert_int_equal(stats(f).running + stats(f).waiting, 0);
}

static inline void assert_same(const struct client *a, const struct client *b)
{
	assert_int_equal(a->dones, 1);
	assert_int_equal(b->dones, 1);
	assert_int_equal(a->res.status, b->res.status);
	assert_int_equal(a->res.finish, b->res.finish);
	assert_int_equal(a->res.completion_tokens, b->res.completion_tokens);
	assert_int_equal(a->nr_logits, b->nr_logits);
	assert_memory_equal(a->logits, b->logits, a->nr_logits * a->vocab * sizeof(float));
	assert_int_equal(a->len, b->len);
	if (a->len)
		assert_memory_equal(a->text, b->text, a->len);
}

/* The largest logit of the i-th token: what a greedy run without penalties drew. */
static inline int32_t drawn(const struct client *c, size_t i)
{
	const float *l = c->logits + i * c->vocab;
	size_t k, best = 0;

	for (k = 1; k < c->vocab; k++)
		if (l[k] > l[best])
			best = k;
	return best;
}

#endif
