// SPDX-License-Identifier: MIT
/*
 * prefix_test.c - requests that share pages, lose them and find them again: answers are the same bit for bit, and
 * nobody finds what is not theirs. Also the limits and the order of classes.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/kv.h"
#include "tests/unit/engine/engine_fixture.h"

#define P SITS_KV_PAGE_TOKENS
#define MAX_PROMPT 300

static void fill(int32_t *t, size_t from, size_t to, uint64_t seed)
{
	struct rng r = { seed };

	for (; from < to; from++)
		t[from] = rng_below(&r, 250);
}

static size_t page_bytes(void)
{
	const struct sits_kv_shape s = { .G = 2, .Dk = 16, .Dv = 16 };

	return 2 * sits_backend_get(NULL)->kv_layer_bytes(&s);
}

/* ---- the same answers ---- */

#define JOBS 14

struct job {
	int32_t token[MAX_PROMPT];
	size_t nr;
	uint32_t max_tokens;
};

/* Three system prompts, ends of their own, and some that are the beginning or the whole of another. */
static void make_jobs(struct job *j)
{
	static const size_t common[3] = { 5 * P, 3 * P + 11, 47 };
	size_t i;

	for (i = 0; i < JOBS; i++) {
		fill(j[i].token, 0, common[i % 3], 100 + i % 3);
		j[i].nr = common[i % 3] + i * 5;
		fill(j[i].token, common[i % 3], j[i].nr, 200 + i / 6);
		j[i].max_tokens = 3 + i * 3;
	}
	j[JOBS - 1] = j[0];
	j[JOBS - 2].nr = 2 * P;
	j[JOBS - 3].nr = 1;
}

static void run_jobs(struct fixture *f, struct client *c, const struct job *j, uint64_t scope, int per_step)
{
	struct sits_gen_params p;
	int i;

	for (i = 0; i < JOBS; i++) {
		p = params(j[i].token, j[i].nr, j[i].max_tokens);
		p.prefix_scope = scope;
		submit(f, &c[i], &p);
		if (per_step && i % per_step == per_step - 1)
			sits_engine_step(f->e);
	}
	run_out(f);
}

static void shared_prefixes_change_no_bit(void **state)
{
	static const struct { uint32_t threads, budget, pages; int per_step; } ways[] = {
		{ 1, 64, 200, 0 }, { 2, 256, 200, 2 }, { 2, 33, 24, 1 }, { 3, 64, 12, 0 },
	};
	struct client alone[JOBS] = { 0 }, shared[JOBS] = { 0 };
	struct job *j = calloc(JOBS, sizeof(*j));
	const struct sits_backend *be;
	struct fixture f = { 0 };
	size_t i, k, w;

	assert_non_null(j);
	make_jobs(j);
	open_model(&f, (struct tiny_opts){ .type = SITS_Q4_1, .type_v = SITS_F16, .type_out = SITS_Q8_0 });
	for (k = 0; (be = sits_backend_at(k)); k++) {
		if (!be->usable())
			continue;
		open_engine(&f, (struct sits_engine_opts){ .isa = be->name });
		run_jobs(&f, alone, j, 0, 0);
		assert_int_equal(stats(&f).prefix_cache_queries, 0);
		assert_int_equal(stats(&f).pages_cached, 0);
		close_engine(&f);
		for (w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
			if (!strcmp(be->name, "ref") && w != 2)
				continue;
			open_engine(&f, (struct sits_engine_opts){
				.isa = be->name, .threads = ways[w].threads, .token_budget = ways[w].budget,
				.max_seqs = 8, .kv_bytes = ways[w].pages * page_bytes() });
			run_jobs(&f, shared, j, 9, ways[w].per_step);
			assert_true(stats(&f).prefix_cache_hits > 500);
			if (ways[w].pages < 20)
				assert_true(stats(&f).preemptions > 0 && stats(&f).prefix_cache_evicted > 0);
			for (i = 0; i < JOBS; i++) {
				assert_same(&alone[i], &shared[i]);
				client_fini(&shared[i]);
			}
			close_engine(&f);
		}
		for (i = 0; i < JOBS; i++)
			client_fini(&alone[i]);
	}
	close_all(&f);
	free(j);
}

static void a_conversation_is_computed_once(void **state)
{
	struct fixture f = { 0 };
	struct client a = { 0 }, b = { 0 }, c = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	size_t i, nr = 70;
	uint64_t before;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	fill(token, 0, nr, 1);
	p = params(token, nr, 20);
	p.prefix_scope = 1;
	submit(&f, &a, &p);
	run_out(&f);
	assert_int_equal(a.res.cached_tokens, 0);
	/* Three full pages and one with 89 - 64 = 25 tokens; the last token's are not stored. */
	assert_int_equal(stats(&f).pages_cached, 3);

	/* The next turn: prompt, answer, and more. */
	for (i = 0; i < 20; i++)
		token[nr + i] = drawn(&a, i);
	fill(token, nr + 20, nr + 40, 2);
	p = params(token, nr + 40, 5);
	p.prefix_scope = 1;
	before = stats(&f).prompt_tokens;
	submit(&f, &b, &p);
	run_out(&f);
	assert_int_equal(b.res.cached_tokens, 89);
	assert_int_equal(stats(&f).prompt_tokens - before, 110 - 89);
	assert_int_equal(stats(&f).prefix_cache_hits, 89);
	assert_int_equal(stats(&f).prefix_cache_queries, 180);

	/* The same again: all but the last token, whose logits are wanted. */
	submit(&f, &c, &p);
	run_out(&f);
	assert_int_equal(c.res.cached_tokens, 109);
	assert_same(&b, &c);
	client_fini(&a);
	client_fini(&b);
	client_fini(&c);
	close_all(&f);
}

static void other_scopes_find_nothing(void **state)
{
	static const uint64_t scopes[] = { 1, 0, 2, 1, 0 };
	struct fixture f = { 0 };
	struct client c[5] = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	int i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	fill(token, 0, 110, 1);
	for (i = 0; i < 5; i++) {
		p = params(token, 110, 4);
		p.prefix_scope = scopes[i];
		submit(&f, &c[i], &p);
		run_out(&f);
		assert_int_equal(c[i].res.cached_tokens, i == 3 ? 109 : 0);
		assert_same(&c[0], &c[i]);
	}
	for (i = 0; i < 5; i++)
		client_fini(&c[i]);
	close_all(&f);
}

static void those_that_come_together_wait_for_one_to_compute(void **state)
{
	enum { N = 6 };
	struct fixture f = { 0 };
	struct client c[N] = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	int i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .token_budget = 64 });
	fill(token, 0, 256, 1);
	for (i = 0; i < N; i++) {
		fill(token, 256, 266, 50 + i);
		p = params(token, 266, 6);
		p.prefix_scope = 3;
		submit(&f, &c[i], &p);
	}
	run_out(&f);
	/* The common part once, each end for itself. */
	assert_int_equal(stats(&f).prompt_tokens, 256 + N * 10);
	for (i = 0; i < N; i++) {
		assert_int_equal(c[i].res.cached_tokens, i ? 256 : 0);
		client_fini(&c[i]);
	}
	close_all(&f);
}

/* ---- what must not stay ---- */

static void what_is_not_finite_is_not_shared(void **state)
{
	struct fixture f = { 0 };
	struct client bad = { 0 }, good = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];

	open_model(&f, (struct tiny_opts){ .untied = true, .nan_token = 255 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	fill(token, 0, 150, 1);
	p = params(token, 64, 4);
	p.prefix_scope = 1;
	submit(&f, &good, &p);
	run_out(&f);
	assert_int_equal(stats(&f).pages_cached, 3);
	client_fini(&good);
	token[70] = 255;
	p = params(token, 150, 4);
	p.prefix_scope = 1;
	submit(&f, &bad, &p);
	run_out(&f);
	assert_int_equal(bad.res.status, -EDOM);
	assert_int_equal(bad.res.cached_tokens, 64);
	/* The two full pages that were there before, and what the first one had begun. */
	assert_int_equal(stats(&f).pages_cached, 3);
	client_fini(&bad);
	token[70] = 7;
	submit(&f, &good, &p);
	run_out(&f);
	assert_int_equal(good.res.status, 0);
	assert_int_equal(good.res.cached_tokens, 64);
	client_fini(&good);
	close_all(&f);
}

static void pages_of_a_lone_request_end_with_it(void **state)
{
	enum { N = 5 };
	struct fixture f = { 0 };
	struct client c[N] = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	int i, steps = 0;

	open_model(&f, (struct tiny_opts){ .context = 256 });
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 6 * page_bytes() });
	for (i = 0; i < N; i++) {
		fill(token, 0, 60, i);
		p = params(token, 60, 100);
		submit(&f, &c[i], &p);
	}
	while (!stats(&f).preemptions || !stats(&f).pages_cached)
		assert_true(sits_engine_step(f.e) > 0 && ++steps < 1000);
	/* Those that wait have pages that may be taken; cancelled, they have none. */
	for (i = 0; i < N; i++)
		sits_engine_cancel(f.e, c[i].id);
	run_out(&f);
	assert_int_equal(stats(&f).pages_cached, 0);
	for (i = 0; i < N; i++)
		client_fini(&c[i]);
	close_all(&f);
}

static void a_preempted_request_computes_only_what_was_taken(void **state)
{
	struct fixture f = { 0 };
	struct client a = { 0 }, b = { 0 }, alone = { 0 };
	struct sits_gen_params p, q;
	int32_t token[MAX_PROMPT], other[MAX_PROMPT];

	open_model(&f, (struct tiny_opts){ .context = 400 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	fill(token, 0, 280, 1);
	fill(other, 0, 30, 2);
	p = params(token, 280, 10);
	submit(&f, &alone, &p);
	run_out(&f);
	close_engine(&f);
	/* Eleven pages: nine or ten for the one with the long prompt, two at first for the other, then a third. */
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 11 * page_bytes() });
	q = params(other, 30, 60);
	submit(&f, &b, &q);
	sits_engine_step(f.e);
	submit(&f, &a, &p);
	run_out(&f);
	assert_same(&a, &alone);
	assert_true(stats(&f).preemptions > 0);
	/* Without its pages it would have computed its prompt, 280 tokens, again for each. */
	printf("# %u preemptions, %u prompt tokens\n", (uint32_t)stats(&f).preemptions, (uint32_t)stats(&f).prompt_tokens);
	assert_true(stats(&f).prompt_tokens < 280 + 30 + stats(&f).preemptions * 2 * P);
	client_fini(&a);
	client_fini(&b);
	client_fini(&alone);
	close_all(&f);
}

/* ---- classes ---- */

static void a_class_keeps_within_its_limit_and_holds_up_nobody_else(void **state)
{
	struct fixture f = { 0 };
	struct client c[4] = { 0 };
	struct sits_diag diag = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	int i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 40 * page_bytes(),
						  .kv_limit = { [SITS_CLASS_REALTIME] = 4 * page_bytes() + 1 } });
	fill(token, 0, 100, 1);
	/* More than the class may ever have is refused, with words. */
	p = params(token, 100, 40);
	p.sched_class = SITS_CLASS_REALTIME;
	assert_int_equal(client_submit(&c[0], f.e, &p, &diag), -ENOSPC);
	assert_non_null(strstr(diag.msg, "class"));
	p.max_tokens = 20;
	submit(&f, &c[0], &p);
	submit(&f, &c[1], &p);
	p.sched_class = SITS_CLASS_BESTEFFORT;
	p.max_tokens = 40;
	submit(&f, &c[2], &p);
	submit(&f, &c[3], &p);
	sits_engine_step(f.e);
	assert_int_equal(stats(&f).running, 3);
	assert_int_equal(stats(&f).waiting, 1);
	run_out(&f);
	assert_true(c[1].done_order > c[0].done_order);
	for (i = 0; i < 4; i++) {
		assert_int_equal(c[i].res.status, 0);
		assert_int_equal(c[i].res.completion_tokens, i < 2 ? 20 : 40);
		client_fini(&c[i]);
	}
	assert_int_equal(stats(&f).preemptions, 0);
	close_all(&f);
}

static void a_class_over_its_limit_preempts_its_own(void **state)
{
	enum { N = 3 };
	struct fixture f = { 0 };
	struct client c[N + 1] = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	int i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 40 * page_bytes(),
						  .kv_limit = { [SITS_CLASS_GUARANTEED] = 5 * page_bytes() } });
	for (i = 0; i < N; i++) {
		fill(token, 0, 20, i);
		p = params(token, 20, 130);
		p.sched_class = SITS_CLASS_GUARANTEED;
		submit(&f, &c[i], &p);
	}
	p.sched_class = SITS_CLASS_BESTEFFORT;
	submit(&f, &c[N], &p);
	run_out(&f);
	assert_true(stats(&f).preemptions > 0);
	for (i = 0; i <= N; i++) {
		assert_int_equal(c[i].res.status, 0);
		assert_int_equal(c[i].res.completion_tokens, 130);
		assert_true(!i || i == N || c[i].done_order > c[i - 1].done_order);
	}
	assert_int_equal(c[N].done_order < c[1].done_order, 1);
	for (i = 0; i <= N; i++)
		client_fini(&c[i]);
	close_all(&f);
}

static void besteffort_gives_way_and_comes_back(void **state)
{
	enum { N = 3 };
	struct fixture f = { 0 };
	struct client low[N] = { 0 }, high = { 0 }, alone[N] = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	int i, steps = 0;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	for (i = 0; i < N; i++) {
		fill(token, 0, 60, i);
		p = params(token, 60, 100);
		p.sched_class = SITS_CLASS_BESTEFFORT;
		submit(&f, &alone[i], &p);
	}
	run_out(&f);
	close_engine(&f);
	/* Room for three of 160 tokens; slots for three. */
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 15 * page_bytes(), .max_seqs = 3 });
	for (i = 0; i < N; i++) {
		fill(token, 0, 60, i);
		p = params(token, 60, 100);
		p.sched_class = SITS_CLASS_BESTEFFORT;
		submit(&f, &low[i], &p);
	}
	for (i = 0; i < 5; i++)
		sits_engine_step(f.e);
	p = params(token, 20, 5);
	p.sched_class = SITS_CLASS_REALTIME;
	submit(&f, &high, &p);
	while (!high.dones)
		assert_true(sits_engine_step(f.e) > 0 && ++steps < 8);
	assert_int_equal(stats(&f).preemptions, 1);
	run_out(&f);
	for (i = 0; i < N; i++) {
		assert_same(&low[i], &alone[i]);
		client_fini(&low[i]);
		client_fini(&alone[i]);
	}
	client_fini(&high);
	close_all(&f);
}

static void again(struct client *c)
{
	struct sits_gen_params p = params((int32_t[]){ 65, 66 }, 2, 3);
	struct client *next = c + 1;

	p.sched_class = SITS_CLASS_REALTIME;
	if (next->keep_logits)
		assert_int_equal(client_submit(next, c->e, &p, NULL), 0);
}

static void a_stream_of_realtime_does_not_starve_besteffort(void **state)
{
	enum { N = 400 };
	struct fixture f = { 0 };
	struct client *c = calloc(N + 1, sizeof(*c)), low = { 0 };
	struct sits_gen_params p;
	int32_t token[MAX_PROMPT];
	int i, after = 0;

	assert_non_null(c);
	open_model(&f, (struct tiny_opts){ .context = 256 });
	/* The large one needs all pages, and one slot of two is always asked for. */
	open_engine(&f, (struct sits_engine_opts){ .kv_bytes = 4 * page_bytes(), .max_seqs = 2 });
	fill(token, 0, 120, 1);
	p = params(token, 120, 5);
	p.sched_class = SITS_CLASS_BESTEFFORT;
	for (i = 0; i < N; i++) {
		c[i].on_done = again;
		c[i].keep_logits = true;
	}
	submit(&f, &low, &p);
	sits_engine_step(f.e);
	p = params((int32_t[]){ 65, 66 }, 2, 3);
	p.sched_class = SITS_CLASS_REALTIME;
	submit(&f, &c[0], &p);
	run_out(&f);
	assert_int_equal(low.res.status, 0);
	for (i = 0; i < N; i++) {
		assert_int_equal(c[i].dones, 1);
		after += c[i].done_order > low.done_order;
		client_fini(&c[i]);
	}
	assert_true(after > N / 2);
	client_fini(&low);
	free(c);
	close_all(&f);
}

/* ---- all of it at random ---- */

struct canceller {
	struct sits_engine *e;
	_Atomic uint64_t newest;
	atomic_bool stop;
	uint64_t seed;
};

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
		if (rng_below(&r, 3))
			continue;
		for (wait = rng_below(&r, 300000); wait; wait--)
			;
		sits_engine_cancel(k->e, newest - rng_below(&r, newest < 8 ? newest : 8));
	}
	return NULL;
}

static void any_mix_of_requests_leaves_every_answer_as_it_is(void **state)
{
	enum { N = 150, KINDS = 6 };
	struct rng r = rng_seeded("prefix mix");
	struct client *c = calloc(N, sizeof(*c)), whole[KINDS] = { 0 };
	int32_t token[KINDS][MAX_PROMPT];
	uint8_t kind[N];
	struct canceller k = { .seed = r.s };
	struct sits_gen_params p;
	struct fixture f = { 0 };
	int i, cancelled = 0;
	pthread_t t;

	assert_non_null(c);
	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	for (i = 0; i < KINDS; i++) {
		fill(token[i], 0, 60 + 7 * i, 1 + i / 3);
		fill(token[i], 60 + 7 * i, 100 + 13 * i, 20 + i);
		p = params(token[i], 100 + 13 * i, 30);
		submit(&f, &whole[i], &p);
	}
	run_out(&f);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){
		.max_seqs = 5, .token_budget = 48, .kv_bytes = 20 * page_bytes(), .speculation = SITS_SPEC_LOOKUP,
		.kv_limit = { [SITS_CLASS_GUARANTEED] = 8 * page_bytes() } });
	k.e = f.e;
	assert_int_equal(pthread_create(&t, NULL, cancel_at_random, &k), 0);
	for (i = 0; i < N; i++) {
		kind[i] = rng_below(&r, KINDS);
		p = params(token[kind[i]], 100 + 13 * kind[i], 30);
		p.prefix_scope = rng_below(&r, 3);
		p.sched_class = rng_below(&r, SITS_KV_CLASSES);
		submit(&f, &c[i], &p);
		atomic_store(&k.newest, c[i].id);
		while (sits_engine_step(f.e) > 10)
			;
	}
	run_out(&f);
	atomic_store(&k.stop, true);
	pthread_join(t, NULL);
	printf("# %u preemptions, %u of %u prompt tokens found, %u of %u guesses right\n", (uint32_t)stats(&f).preemptions,
	       (uint32_t)stats(&f).prefix_cache_hits, (uint32_t)stats(&f).prefix_cache_queries,
	       (uint32_t)stats(&f).draft_accepted, (uint32_t)stats(&f).draft_tokens);
	for (i = 0; i < N; i++) {
		assert_int_equal(c[i].dones, 1);
		assert_int_equal(c[i].res.status, 0);
		cancelled += c[i].res.finish == SITS_FINISH_CANCEL;
		if (c[i].res.finish == SITS_FINISH_LENGTH)
			assert_same(&c[i], &whole[kind[i]]);
		else if (c[i].nr_logits)
			assert_memory_equal(c[i].logits, whole[kind[i]].logits,
					    c[i].nr_logits * TINY_VOCAB * sizeof(float));
		client_fini(&c[i]);
	}
	printf("# %d of %d were cancelled\n", cancelled, N);
	assert_true(stats(&f).preemptions > 0);
	for (i = 0; i < KINDS; i++)
		client_fini(&whole[i]);
	free(c);
	close_all(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_prefixes_change_no_bit),
		cmocka_unit_test(a_conversation_is_computed_once),
		cmocka_unit_test(other_scopes_find_nothing),
		cmocka_unit_test(those_that_come_together_wait_for_one_to_compute),
		cmocka_unit_test(what_is_not_finite_is_not_shared),
		cmocka_unit_test(pages_of_a_lone_request_end_with_it),
		cmocka_unit_test(a_preempted_request_computes_only_what_was_taken),
		cmocka_unit_test(a_class_keeps_within_its_limit_and_holds_up_nobody_else),
		cmocka_unit_test(a_class_over_its_limit_preempts_its_own),
		cmocka_unit_test(besteffort_gives_way_and_comes_back),
		cmocka_unit_test(a_stream_of_realtime_does_not_starve_besteffort),
		cmocka_unit_test(any_mix_of_requests_leaves_every_answer_as_it_is),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
