// SPDX-License-Identifier: MIT
/*
 * engine_test.c - how requests live and end, on a model of random weights.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/engine/client.h"
#include "tests/unit/engine/tiny_model.h"

#define BIG 300

struct fixture {
	void *image;
	struct sits_model *m;
	struct sits_engine *e;
	int32_t prompt[BIG];
};

static const struct sits_sampling greedy = { .top_p = 1, .repeat_penalty = 1 };

static void open_model(struct fixture *f, struct tiny_opts o)
{
	struct sits_diag diag = { 0 };
	size_t len, i;

	f->image = tiny_model(o, &len);
	if (sits_model_open(f->image, len, &f->m, &diag))
		fail_msg("%s", diag.msg);
	for (i = 0; i < BIG; i++)
		f->prompt[i] = (i * 37 + i / 7) % 256;
}

static void open_engine(struct fixture *f, struct sits_engine_opts o)
{
	struct sits_diag diag = { 0 };

	if (!o.threads)
		o.threads = 2;
	if (sits_engine_create(f->m, &o, &f->e, &diag))
		fail_msg("%s", diag.msg);
}

static void close_all(struct fixture *f)
{
	sits_engine_destroy(f->e);
	sits_model_close(f->m);
	free(f->image);
}

static struct sits_engine_stats stats(struct fixture *f)
{
	struct sits_engine_stats s;

	sits_engine_get_stats(f->e, &s);
	return s;
}

static struct sits_gen_params params(const int32_t *prompt, size_t nr, uint32_t max_tokens)
{
	return (struct sits_gen_params){
		.prompt = prompt, .nr_prompt = nr, .max_tokens = max_tokens, .sampling = greedy, .ignore_eos = true,
	};
}

static void submit(struct fixture *f, struct client *c, size_t nr, uint32_t max_tokens)
{
	struct sits_gen_params p = params(f->prompt, nr, max_tokens);
	struct sits_diag diag = { 0 };

	if (client_submit(c, f->e, &p, &diag))
		fail_msg("%s", diag.msg);
}

static void run_out(struct fixture *f)
{
	int ret, steps = 0;

	while ((ret = sits_engine_step(f->e)) > 0)
		assert_true(++steps < 20000);
	assert_int_equal(ret, 0);
	assert_int_equal(stats(f).pages_used, 0);
	assert_int_equal(stats(f).running + stats(f).waiting, 0);
}

static void a_request_ends_at_its_limit(void **state)
{
	struct fixture f = { 0 };
	struct client c[3] = { 0 };

	open_model(&f, (struct tiny_opts){ .context = 64 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	assert_int_equal(sits_engine_step(f.e), 0);
	submit(&f, &c[0], 5, 1);
	submit(&f, &c[1], 5, 20);
	submit(&f, &c[2], 60, 0);	/* up to the context's end */
	run_out(&f);
	assert_int_equal(c[0].res.completion_tokens, 1);
	assert_int_equal(c[1].res.completion_tokens, 20);
	assert_int_equal(c[2].res.completion_tokens, 4);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(c[i].dones, 1);
		assert_int_equal(c[i].res.status, 0);
		assert_int_equal(c[i].res.finish, SITS_FINISH_LENGTH);
		assert_int_equal(c[i].nr_logits, c[i].res.completion_tokens);
		client_fini(&c[i]);
	}
	assert_int_equal(stats(&f).generated_tokens, 25);
	assert_int_equal(stats(&f).prompt_tokens, 70);
	/* The context's end bounds a larger wish, too. */
	submit(&f, &c[0], 60, 1000);
	run_out(&f);
	assert_int_equal(c[0].res.completion_tokens, 4);
	client_fini(&c[0]);
	close_all(&f);
}

static void what_can_never_run_is_refused_with_words(void **state)
{
	struct sits_gen_params p;
	struct sits_diag diag = { 0 };
	struct fixture f = { 0 };
	struct client c = { 0 };
	size_t page;
	const char *stop[] = { "" };
	size_t stop_len[] = { 0 };

	open_model(&f, (struct tiny_opts){ .context = 256 });
	page = 2 * sits_backend_get(NULL)->kv_layer_bytes(&(struct sits_kv_shape){ .G = 2, .Dk = 16, .Dv = 16 });
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 3 * page, .context = 200 });
	assert_int_equal(stats(&f).pages_total, 3);

	p = params(f.prompt, 200, 1);
	assert_int_equal(client_submit(&c, f.e, &p, &diag), -EMSGSIZE);
	assert_non_null(strstr(diag.msg, "200"));
	diag.msg[0] = 0;
	p = params(f.prompt, 97, 1);
	assert_int_equal(client_submit(&c, f.e, &p, &diag), -ENOSPC);
	assert_non_null(strstr(diag.msg, "kv_bytes"));
	p = params(f.prompt, 50, 48);
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -ENOSPC);
	p = params(f.prompt, 0, 5);
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -EINVAL);
	p = params((int32_t[]){ 1, TINY_VOCAB }, 2, 5);
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -EINVAL);
	p = params((int32_t[]){ -1, 2 }, 2, 5);
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -EINVAL);
	p = params(f.prompt, 5, 5);
	p.sched_class = 3;
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -EINVAL);
	p = params(f.prompt, 5, 5);
	p.sampling.top_p = 0;
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -EINVAL);
	p = params(f.prompt, 5, 5);
	p.stop = stop;
	p.stop_len = stop_len;
	p.nr_stop = 1;
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -EINVAL);
	assert_int_equal(sits_engine_step(f.e), 0);
	assert_int_equal(c.dones, 0);

	/* The largest that fits: 96 stored positions and one token that is not stored. */
	p = params(f.prompt, 50, 47);
	assert_int_equal(client_submit(&c, f.e, &p, &diag), 0);
	run_out(&f);
	assert_int_equal(c.res.completion_tokens, 47);
	client_fini(&c);
	p = params(f.prompt, 96, 0);
	assert_int_equal(client_submit(&c, f.e, &p, &diag), 0);
	run_out(&f);
	assert_int_equal(c.res.completion_tokens, 1);
	assert_int_equal(c.res.finish, SITS_FINISH_LENGTH);
	client_fini(&c);
	close_all(&f);
}

static void bad_options_are_refused_with_words(void **state)
{
	static const struct {
		struct sits_engine_opts o;
		int want;
		const char *word;
	} cases[] = {
		{ { .threads = 100000 }, -EINVAL, "threads" },
		{ { .max_seqs = 5000 }, -EINVAL, "max_seqs" },
		{ { .max_seqs = 10, .token_budget = 9 }, -EINVAL, "token_budget" },
		{ { .token_budget = 1000000 }, -EINVAL, "token_budget" },
		{ { .context = 1 }, -EINVAL, "context" },
		{ { .context = 513 }, -EINVAL, "context" },
		{ { .kv_bytes = 1 }, -EINVAL, "kv_bytes" },
		{ { .kv_bytes = UINT64_C(1) << 50 }, -EINVAL, "kv_bytes 1125899906842624 is more than the memory" },
		{ { .isa = "sse1" }, -ENODEV, "sse1" },
	};
	const char *forced = getenv("SITS_FORCE_ISA");
	struct sits_diag diag = { 0 };
	struct sits_engine *e = NULL;
	struct fixture f = { 0 };
	size_t i;

	open_model(&f, (struct tiny_opts){ 0 });
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		diag.msg[0] = 0;
		assert_int_equal(sits_engine_create(f.m, &cases[i].o, &e, &diag), cases[i].want);
		assert_null(e);
		assert_non_null(strstr(diag.msg, cases[i].word));
	}
	/* Who asked for it in another way finds it named, too. */
	forced = forced ? strdup(forced) : NULL;
	setenv("SITS_FORCE_ISA", "sse2", 1);
	diag.msg[0] = 0;
	assert_int_equal(sits_engine_create(f.m, &(struct sits_engine_opts){ 0 }, &e, &diag), -ENODEV);
	assert_non_null(strstr(diag.msg, "SITS_FORCE_ISA \"sse2\""));
	unsetenv("SITS_FORCE_ISA");
	if (forced)
		setenv("SITS_FORCE_ISA", forced, 1);
	free((void *)forced);
	sits_engine_destroy(NULL);
	close_all(&f);
}

/* The id that a greedy run puts at its i-th place. */
static int32_t argmax(const struct client *c, size_t i)
{
	const float *l = c->logits + i * c->vocab;
	int32_t best = 0, j;

	for (j = 1; j < (int32_t)c->vocab; j++)
		if (l[j] > l[best])
			best = j;
	return best;
}

static void text_is_the_tokens_bytes(void **state)
{
	struct sits_utf8 u = { 0 };
	struct fixture f = { 0 };
	struct client c = { .keep_logits = true };
	char want[4096];
	const char *p;
	size_t i, n = 0;
	int len, j;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	submit(&f, &c, 40, 300);
	run_out(&f);
	for (i = 0; i < c.nr_logits; i++) {
		len = sits_tokenizer_piece(f.m->tok, argmax(&c, i), &p);
		for (j = 0; j < len; j++)
			n += sits_utf8_push(&u, p[j], want + n);
	}
	n += sits_utf8_end(&u, want + n);
	assert_int_equal(c.len, n);
	assert_memory_equal(c.text, want, n);
	client_fini(&c);
	close_all(&f);
}

static void an_end_token_ends_the_turn(void **state)
{
	struct fixture f = { 0 };
	struct client ends = { .keep_logits = true }, goes_on = { .keep_logits = true };
	struct sits_gen_params p;
	size_t i;

	/* Hot sampling over 258 tokens meets the end token soon; the same seed goes on without it. */
	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	p = params(f.prompt, 3, 500);
	p.sampling = (struct sits_sampling){ .temperature = 100, .top_p = 1, .repeat_penalty = 1, .seed = 5 };
	assert_int_equal(client_submit(&goes_on, f.e, &p, NULL), 0);
	p.ignore_eos = false;
	assert_int_equal(client_submit(&ends, f.e, &p, NULL), 0);
	run_out(&f);
	assert_int_equal(goes_on.res.finish, SITS_FINISH_LENGTH);
	assert_int_equal(goes_on.res.completion_tokens, 500);
	assert_int_equal(ends.res.finish, SITS_FINISH_EOS);
	i = ends.res.completion_tokens;
	assert_true(i < 500);
	assert_int_equal(ends.nr_logits, i);
	assert_memory_equal(ends.logits, goes_on.logits, i * ends.vocab * sizeof(float));
	client_fini(&ends);
	client_fini(&goes_on);
	close_all(&f);
}

static void a_stop_string_ends_the_text_before_it(void **state)
{
	struct fixture f = { 0 };
	struct client whole = { 0 }, cut = { 0 };
	struct sits_gen_params p;
	const char *stop[1];
	size_t stop_len[1], at;

	open_model(&f, (struct tiny_opts){ .seed = 3 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	p = params(f.prompt, 20, 200);
	p.sampling = (struct sits_sampling){ .temperature = 2, .top_p = 1, .repeat_penalty = 1, .seed = 11 };
	assert_int_equal(client_submit(&whole, f.e, &p, NULL), 0);
	run_out(&f);
	/* A piece of plain ASCII, two bytes or more, so that raw bytes and text agree. */
	for (at = 100; at + 2 < whole.len; at++)
		if ((whole.text[at] & 0x80) == 0 && (whole.text[at + 1] & 0x80) == 0)
			break;
	assert_true(at + 2 < whole.len);
	stop[0] = whole.text + at;
	stop_len[0] = 2;
	p.stop = stop;
	p.stop_len = stop_len;
	p.nr_stop = 1;
	assert_int_equal(client_submit(&cut, f.e, &p, NULL), 0);
	run_out(&f);
	assert_int_equal(cut.res.finish, SITS_FINISH_STOP);
	assert_ptr_equal(memmem(whole.text, whole.len, stop[0], 2), whole.text + cut.len);
	assert_memory_equal(cut.text, whole.text, cut.len);
	client_fini(&whole);
	client_fini(&cut);
	close_all(&f);
}

static void not_finite_output_ends_one_request_alone(void **state)
{
	struct fixture f = { 0 };
	struct client good = { .keep_logits = true }, alone = { .keep_logits = true }, bad = { 0 };
	struct sits_gen_params p;

	open_model(&f, (struct tiny_opts){ .untied = true, .nan_token = 255 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	submit(&f, &alone, 20, 30);
	run_out(&f);
	submit(&f, &good, 20, 30);
	p = params((int32_t[]){ 1, 2, 255, 4 }, 4, 30);
	assert_int_equal(client_submit(&bad, f.e, &p, NULL), 0);
	run_out(&f);
	assert_int_equal(bad.res.status, -EDOM);
	assert_non_null(strstr(bad.why, "finite"));
	assert_int_equal(bad.len, 0);
	assert_int_equal(stats(&f).nonfinite, 1);
	assert_int_equal(good.res.status, 0);
	assert_int_equal(good.nr_logits, alone.nr_logits);
	assert_memory_equal(good.logits, alone.logits, good.nr_logits * good.vocab * sizeof(float));
	client_fini(&good);
	client_fini(&alone);
	client_fini(&bad);
	close_all(&f);
}

static void out_of_pages_the_youngest_waits_and_loses_nothing(void **state)
{
	enum { N = 6 };
	struct fixture f = { 0 };
	struct client alone[N] = { 0 }, packed[N] = { 0 };
	size_t page, i;

	open_model(&f, (struct tiny_opts){ .context = 256 });
	page = 2 * sits_backend_get(NULL)->kv_layer_bytes(&(struct sits_kv_shape){ .G = 2, .Dk = 16, .Dv = 16 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	for (i = 0; i < N; i++) {
		alone[i].keep_logits = packed[i].keep_logits = true;
		submit(&f, &alone[i], 20 + 7 * i, 90);
		run_out(&f);
	}
	assert_int_equal(stats(&f).preemptions, 0);
	sits_engine_destroy(f.e);
	/* Five pages: one request fits, two do not. */
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 5 * page });
	for (i = 0; i < N; i++)
		submit(&f, &packed[i], 20 + 7 * i, 90);
	run_out(&f);
	assert_true(stats(&f).preemptions > 0);
	for (i = 0; i < N; i++) {
		assert_int_equal(packed[i].res.status, 0);
		assert_int_equal(packed[i].nr_logits, 90);
		assert_memory_equal(packed[i].logits, alone[i].logits, 90 * TINY_VOCAB * sizeof(float));
		assert_int_equal(packed[i].len, alone[i].len);
		assert_memory_equal(packed[i].text, alone[i].text, alone[i].len);
		/* By age: nobody who came later ends earlier under this pressure. */
		assert_true(!i || packed[i].done_order > packed[i - 1].done_order);
		client_fini(&alone[i]);
		client_fini(&packed[i]);
	}
	close_all(&f);
}

static void a_long_prompt_does_not_hold_up_a_short_one(void **state)
{
	struct fixture f = { 0 };
	struct client longer = { 0 }, shorter = { 0 };
	int steps = 0;

	open_model(&f, (struct tiny_opts){ .context = 400 });
	open_engine(&f, (struct sits_engine_opts){ .token_budget = 32, .max_seqs = 4 });
	submit(&f, &longer, 290, 2);
	assert_int_equal(sits_engine_step(f.e), 1);
	submit(&f, &shorter, 20, 2);
	while (!shorter.dones) {
		sits_engine_step(f.e);
		assert_true(++steps < 5);
	}
	assert_int_equal(longer.nr_logits, 0);
	run_out(&f);
	assert_int_equal(longer.dones, 1);
	client_fini(&longer);
	client_fini(&shorter);
	close_all(&f);
}

static void submit_another(struct client *c)
{
	struct sits_gen_params p = params((int32_t[]){ 65, 66 }, 2, 3);
	struct client *next = c + 1;

	if (next->keep_logits)
		assert_int_equal(client_submit(next, c->e, &p, NULL), 0);
}

static void a_waiting_request_is_not_starved(void **state)
{
	enum { N = 60 };
	struct fixture f = { 0 };
	struct client stream[N + 1] = { 0 }, big = { 0 };
	size_t page, i, before = 0;

	/* Small ones follow one another without end; the big one needs the whole pool and comes early. */
	open_model(&f, (struct tiny_opts){ .context = 256 });
	page = 2 * sits_backend_get(NULL)->kv_layer_bytes(&(struct sits_kv_shape){ .G = 2, .Dk = 16, .Dv = 16 });
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 4 * page, .max_seqs = 3 });
	for (i = 0; i < N; i++) {
		stream[i].on_done = submit_another;
		stream[i].keep_logits = true;
	}
	submit(&f, &stream[0], 2, 3);
	submit(&f, &big, 120, 5);
	run_out(&f);
	assert_int_equal(big.dones, 1);
	assert_int_equal(big.res.status, 0);
	for (i = 0; i < N; i++) {
		assert_int_equal(stream[i].dones, 1);
		before += stream[i].done_order < big.done_order;
		client_fini(&stream[i]);
	}
	assert_true(before < 8);
	client_fini(&big);
	close_all(&f);
}

static void cancel_self(struct client *c)
{
	sits_engine_cancel(c->e, c->id);
}

static void cancelling_frees_at_once(void **state)
{
	struct fixture f = { 0 };
	struct client c[4] = { 0 };

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .max_seqs = 2, .token_budget = 32 });
	submit(&f, &c[0], 250, 50);	/* will be in its prompt */
	c[1].on_text = cancel_self;
	submit(&f, &c[1], 10, 200);	/* will be in its answer */
	submit(&f, &c[2], 10, 5);	/* will be waiting */
	submit(&f, &c[3], 10, 5);
	sits_engine_step(f.e);
	sits_engine_cancel(f.e, c[0].id);
	sits_engine_cancel(f.e, c[2].id);
	sits_engine_cancel(f.e, 123456);
	sits_engine_step(f.e);
	assert_int_equal(c[0].dones, 1);
	assert_int_equal(c[0].res.finish, SITS_FINISH_CANCEL);
	assert_int_equal(c[0].res.status, 0);
	assert_int_equal(c[0].nr_logits, 0);
	assert_int_equal(c[2].dones, 1);
	assert_int_equal(c[2].res.finish, SITS_FINISH_CANCEL);
	run_out(&f);
	assert_int_equal(c[1].res.finish, SITS_FINISH_CANCEL);
	assert_true(c[1].res.completion_tokens < 20);
	assert_int_equal(c[3].res.finish, SITS_FINISH_LENGTH);
	sits_engine_cancel(f.e, c[3].id);
	assert_int_equal(sits_engine_step(f.e), 0);
	for (int i = 0; i < 4; i++)
		client_fini(&c[i]);
	close_all(&f);
}

struct canceller {
	struct fixture *f;
	_Atomic uint64_t newest;
	atomic_bool stop;
	uint64_t seed;
};

/* For about every second new request, some time later, one of the last eight. */
static void *cancel_at_random(void *arg)
{
	struct canceller *k = arg;
	struct rng r = { k->seed };
	uint64_t newest, seen = 0;
	volatile uint32_t wait;

	while (!atomic_load(&k->stop)) {
		newest = atomic_load(&k->newest);
		if (newest == seen)
			continue;
		seen = newest;
		if (rng_below(&r, 2))
			continue;
		for (wait = rng_below(&r, 1000000); wait; wait--)
			;
		sits_engine_cancel(k->f->e, newest - rng_below(&r, newest < 8 ? newest : 8));
	}
	return NULL;
}

static void cancelling_from_another_thread_at_any_moment(void **state)
{
	enum { N = 400 };
	struct rng r = rng_seeded("cancel");
	struct client *c = calloc(N, sizeof(*c)), *whole = calloc(2, sizeof(*whole));
	struct canceller k = { .seed = r.s };
	struct fixture f = { 0 };
	int i = 0, cancelled = 0;
	size_t page;
	pthread_t t;

	assert_non_null(c);
	assert_non_null(whole);
	open_model(&f, (struct tiny_opts){ .context = 384 });
	page = 2 * sits_backend_get(NULL)->kv_layer_bytes(&(struct sits_kv_shape){ .G = 2, .Dk = 16, .Dv = 16 });
	open_engine(&f, (struct sits_engine_opts){ .max_seqs = 6, .token_budget = 48, .kv_bytes = 24 * page });
	whole[0].keep_logits = true;
	submit(&f, &whole[0], 150, 20);
	run_out(&f);
	k.f = &f;
	assert_int_equal(pthread_create(&t, NULL, cancel_at_random, &k), 0);
	while (i < N) {
		c[i].keep_logits = true;
		submit(&f, &c[i], 150, 20);
		atomic_store(&k.newest, c[i].id);
		i++;
		while (sits_engine_step(f.e) > 8)
			;
	}
	run_out(&f);
	atomic_store(&k.stop, true);
	pthread_join(t, NULL);
	for (i = 0; i < N; i++) {
		assert_int_equal(c[i].dones, 1);
		assert_int_equal(c[i].res.status, 0);
		cancelled += c[i].res.finish == SITS_FINISH_CANCEL;
		/* Who leaves does not change what others get. */
		assert_memory_equal(c[i].logits ? c[i].logits : whole[0].logits, whole[0].logits,
				    c[i].nr_logits * TINY_VOCAB * sizeof(float));
		if (c[i].res.finish == SITS_FINISH_LENGTH)
			assert_int_equal(c[i].nr_logits, 20);
		client_fini(&c[i]);
	}
	printf("# %d of %d were cancelled\n", cancelled, N);
	client_fini(&whole[0]);
	free(whole);
	free(c);
	close_all(&f);
}

static void destroying_ends_every_request(void **state)
{
	struct fixture f = { 0 };
	struct client c[3] = { 0 };
	int i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .max_seqs = 1 });
	for (i = 0; i < 3; i++)
		submit(&f, &c[i], 10, 100);
	sits_engine_step(f.e);
	sits_engine_destroy(f.e);
	f.e = NULL;
	for (i = 0; i < 3; i++) {
		assert_int_equal(c[i].dones, 1);
		assert_int_equal(c[i].res.status, -ESHUTDOWN);
		assert_true(c[i].why[0]);
		client_fini(&c[i]);
	}
	close_all(&f);
}

static void sampled_output_follows_the_seed_alone(void **state)
{
	enum { N = 5 };
	struct fixture f = { 0 };
	struct client a = { 0 }, c[N] = { 0 };
	struct sits_gen_params p;
	size_t i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	p = params(f.prompt, 30, 60);
	p.sampling = (struct sits_sampling){ .temperature = 1, .top_k = 50, .top_p = 0.95f, .repeat_penalty = 1.1f,
					     .repeat_last_n = 16, .seed = 99 };
	assert_int_equal(client_submit(&a, f.e, &p, NULL), 0);
	run_out(&f);
	for (i = 0; i < N; i++) {
		p.sampling.seed = i == 3 ? 99 : i;
		assert_int_equal(client_submit(&c[i], f.e, &p, NULL), 0);
	}
	run_out(&f);
	assert_int_equal(c[3].len, a.len);
	assert_memory_equal(c[3].text, a.text, a.len);
	assert_true(c[0].len != a.len || memcmp(c[0].text, a.text, a.len));
	client_fini(&a);
	for (i = 0; i < N; i++)
		client_fini(&c[i]);
	close_all(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_ends_at_its_limit),
		cmocka_unit_test(what_can_never_run_is_refused_with_words),
		cmocka_unit_test(bad_options_are_refused_with_words),
		cmocka_unit_test(text_is_the_tokens_bytes),
		cmocka_unit_test(an_end_token_ends_the_turn),
		cmocka_unit_test(a_stop_string_ends_the_text_before_it),
		cmocka_unit_test(not_finite_output_ends_one_request_alone),
		cmocka_unit_test(out_of_pages_the_youngest_waits_and_loses_nothing),
		cmocka_unit_test(a_long_prompt_does_not_hold_up_a_short_one),
		cmocka_unit_test(a_waiting_request_is_not_starved),
		cmocka_unit_test(cancelling_frees_at_once),
		cmocka_unit_test(cancelling_from_another_thread_at_any_moment),
		cmocka_unit_test(destroying_ends_every_request),
		cmocka_unit_test(sampled_output_follows_the_seed_alone),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
