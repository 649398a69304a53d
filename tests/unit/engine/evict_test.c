// SPDX-License-Identifier: MIT
/*
 * evict_test.c - requests that keep a part of their keys and values: what each head keeps, that an answer depends on its own
 * request alone, and that shared pages stay as they are.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/engine_impl.h"
#include "daemon/engine/kv_evict.h"
#include "daemon/engine/kv_node.h"
#include "tests/unit/engine/engine_fixture.h"

#define P SITS_KV_PAGE_TOKENS
#define MAX_PROMPT 400

static void fill(int32_t *t, size_t from, size_t to, uint64_t seed)
{
	struct rng r = { seed };

	for (; from < to; from++)
		t[from] = rng_below(&r, 250);
}

static size_t page_bytes(const struct fixture *f)
{
	return sits_graph_page_bytes(f->m, sits_backend_get(NULL), SITS_KV_F16);
}

/* ---- shares ---- */

static void shares_follow_what_heads_attend_to(void **state)
{
	static const struct {
		const char *name;
		double wide[4];
		uint32_t heads, budget, full, want[4];
	} cases[] = {
		{ "one head", { 5 }, 1, 7, 20, { 7 } },
		{ "no choice", { 1, 100 }, 2, 2, 20, { 2, 2 } },
		{ "equal", { 9, 9, 9 }, 3, 8, 20, { 8, 8, 8 } },
		{ "equal, full", { 9, 9, 9 }, 3, 8, 8, { 8, 8, 8 } },
		/* 9 each, and 6 in the proportion of 1 to 2. */
		{ "twice as wide", { 10, 20 }, 2, 12, 20, { 11, 13 } },
		{ "the other way round", { 20, 10 }, 2, 12, 20, { 13, 11 } },
		{ "one is narrow", { 1, 1000, 1000 }, 3, 8, 20, { 6, 9, 9 } },
		{ "no more than there is", { 1, 1000 }, 2, 8, 9, { 7, 9 } },
		{ "what one can't have goes on", { 1, 3, 1000 }, 3, 8, 9, { 7, 8, 9 } },
		{ "three quarters of a large budget", { 1, 1e9 }, 2, 40, 200, { 30, 50 } },
		{ "of equal ones the first", { 1, 1, 1 }, 3, 3, 20, { 3, 3, 3 } },
	};
	uint32_t got[4];
	size_t i, g;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		sits_evict_shares(cases[i].wide, cases[i].heads, cases[i].budget, cases[i].full, got);
		for (g = 0; g < cases[i].heads; g++)
			if (got[g] != cases[i].want[g])
				fail_msg("%s: head %zu keeps %u", cases[i].name, g, got[g]);
	}
}

static void shares_are_all_that_there_is(void **state)
{
	struct rng r = rng_seeded("shares");
	uint32_t share[16], heads, budget, full, g, h, sum, i;
	double wide[16];

	for (i = 0; i < 2000; i++) {
		heads = 1 + rng_below(&r, 16);
		budget = 2 + rng_below(&r, 60);
		full = budget + rng_below(&r, 100);
		for (g = 0; g < heads; g++)
			wide[g] = 1 + rng_below(&r, 2000);
		sits_evict_shares(wide, heads, budget, full, share);
		for (g = sum = 0; g < heads; g++) {
			sum += share[g];
			assert_true(share[g] >= 2 && share[g] >= budget * 3 / 4 && share[g] <= full);
			for (h = 0; h < heads; h++)
				assert_true(wide[g] <= wide[h] || share[g] >= share[h]);
		}
		assert_int_equal(sum, heads * budget);
	}
}

/* ---- what is kept ---- */

/* Pages that a head of the first running request has of its first @full ones. */
static uint32_t kept(const struct fixture *f, uint32_t layer, uint32_t head, uint32_t full)
{
	struct sits_kv_cells *c = f->e->running[0]->pages.cells;
	const uint32_t *at = sits_kv_cells_of(c, layer) + head * c->cap;
	uint32_t i, nr = 0;

	assert_true(at[0] != SITS_KV_ABSENT && at[full - 1] != SITS_KV_ABSENT);
	for (i = 0; i < full; i++)
		nr += at[i] != SITS_KV_ABSENT;
	return nr;
}

static void heads_of_higher_entropy_keep_more(void **state)
{
	enum { LAYERS = 3, HEADS = 4, KEEP = 11 };
	struct fixture f = { 0 };
	struct client c = { 0 };
	int32_t token[MAX_PROMPT];
	struct sits_gen_params p;
	uint32_t l, g, h, sum, uneven = 0;
	const double *entropy;

	/* Experts and biases do not matter here; the more layers and heads, the more of them differ. */
	open_model(&f, (struct tiny_opts){ .layers = LAYERS, .heads = 8, .kv_heads = HEADS, .embd = 128, .biases = true });
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = KEEP * P - 7 });
	assert_int_equal(stats(&f).kv_keep, KEEP * P);
	fill(token, 0, 390, 3);
	p = params(token, 390, 60);
	submit(&f, &c, &p);
	while (!c.nr_logits)
		sits_engine_step(f.e);
	entropy = f.e->running[0]->evict.entropy;
	assert_int_equal(f.e->running[0]->evict.nr_rows, SITS_EVICT_ROWS);
	for (l = 0; l < LAYERS; l++) {
		for (g = sum = 0; g < HEADS; g++) {
			sum += kept(&f, l, g, 390 / P);
			uneven += kept(&f, l, g, 390 / P) != KEEP;
			for (h = 0; h < HEADS; h++)
				assert_true(entropy[l * HEADS + g] <= entropy[l * HEADS + h] ||
					    kept(&f, l, g, 390 / P) >= kept(&f, l, h, 390 / P));
			/* No head attends to more positions than there are. */
			assert_true(entropy[l * HEADS + g] > 0 && entropy[l * HEADS + g] < 2 * SITS_EVICT_ROWS * log(390));
		}
		assert_int_equal(sum, HEADS * KEEP);
	}
	printf("# %u of %u heads keep more or less than the mean\n", uneven, LAYERS * HEADS);
	assert_true(uneven > 0);
	run_out(&f);
	client_fini(&c);
	close_all(&f);
}

static void pages_in_use_fall_to_the_budget(void **state)
{
	struct fixture f = { 0 };
	struct client c = { 0 };
	int32_t token[MAX_PROMPT];
	struct sits_gen_params p;
	uint32_t most = 0;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 3 * P, .token_budget = 64 });
	fill(token, 0, 300, 1);
	p = params(token, 300, 150);
	submit(&f, &c, &p);
	while (!c.nr_logits)
		sits_engine_step(f.e);
	assert_int_equal(stats(&f).pages_used, 3 + 1);
	assert_int_equal(stats(&f).kv_given_up, 300 / P - 3);
	while (sits_engine_step(f.e) > 0)
		most = stats(&f).pages_used > most ? stats(&f).pages_used : most;
	assert_int_equal(most, 3 + 1);
	assert_int_equal(c.res.status, 0);
	assert_int_equal(c.res.completion_tokens, 150);
	assert_true(c.res.kv_pages <= 3 + 1);
	assert_int_equal(stats(&f).kv_given_up, 449 / P - 3);
	client_fini(&c);
	close_all(&f);
}

static void one_that_stays_within_its_budget_is_not_touched(void **state)
{
	static const uint32_t keep[] = { 0, 352, 400, UINT32_MAX };
	struct client c[4] = { 0 };
	struct fixture f = { 0 };
	int32_t token[MAX_PROMPT];
	struct sits_gen_params p;
	size_t i;

	open_model(&f, (struct tiny_opts){ .type = SITS_Q4_1, .type_v = SITS_F16, .type_out = SITS_Q8_0 });
	fill(token, 0, 300, 1);
	for (i = 0; i < 4; i++) {
		open_engine(&f, (struct sits_engine_opts){ .kv_keep = keep[i], .token_budget = 77 });
		/* 384 tokens and the last one, which is not stored: 12 pages, of which 11 are a budget, but none is begun. */
		p = params(token, 300, 52 + 32);
		submit(&f, &c[i], &p);
		run_out(&f);
		assert_int_equal(stats(&f).kv_given_up, 0);
		assert_same(&c[i], &c[0]);
		close_engine(&f);
	}
	/* Else it makes a difference. */
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 128 });
	client_fini(&c[1]);
	submit(&f, &c[1], &p);
	run_out(&f);
	assert_true(stats(&f).kv_given_up > 0);
	assert_int_equal(c[1].nr_logits, c[0].nr_logits);
	/* The first token saw the whole prompt. */
	assert_memory_equal(c[1].logits, c[0].logits, c[0].vocab * sizeof(float));
	assert_memory_not_equal(c[1].logits + c[0].vocab, c[0].logits + c[0].vocab, c[0].vocab * sizeof(float));
	for (i = 0; i < 4; i++)
		client_fini(&c[i]);
	close_all(&f);
}

/* ---- the same in any company ---- */

#define MODELS "tests/golden/arch/models.py"
#define LATENT "deepseek2-lite"

/* A small model of deepseek2, whose layers have one key/value head. */
static void open_latent(struct fixture *f)
{
	char dir[] = "/tmp/sits-evict-XXXXXX", cmd[256];
	struct sits_diag diag = { 0 };
	struct stat st;
	FILE *file;

	assert_non_null(mkdtemp(dir));
	snprintf(cmd, sizeof(cmd), "python3 -B " MODELS " %s " LATENT, dir);
	assert_int_equal(system(cmd), 0);
	snprintf(cmd, sizeof(cmd), "%s/" LATENT ".gguf", dir);
	file = fopen(cmd, "re");
	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &st), 0);
	assert_int_equal(posix_memalign(&f->image, 64, (size_t)st.st_size), 0);
	assert_int_equal(fread(f->image, 1, (size_t)st.st_size, file), st.st_size);
	fclose(file);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	assert_int_equal(system(cmd), 0);
	if (sits_model_open(f->image, (size_t)st.st_size, &f->m, &diag))
		fail_msg("%s", diag.msg);
}

#define JOBS 12

struct job {
	int32_t token[MAX_PROMPT];
	size_t nr;
	uint32_t max_tokens;
};

/* Some begin alike; some repeat themselves, for guesses to come true; lengths around pages and the budget. */
static void make_jobs(struct job *j)
{
	static const size_t nr[JOBS] = { 1, 31, 95, 96, 97, 128, 129, 200, 256, 300, 350, 160 };
	size_t i, k;

	for (i = 0; i < JOBS; i++) {
		j[i].nr = nr[i];
		fill(j[i].token, 0, nr[i], 100 + i % 2);
		if (i > 6)
			fill(j[i].token, 90, nr[i], 200 + i / 4);
		for (k = 40; i % 3 == 0 && k < nr[i]; k++)
			j[i].token[k] = j[i].token[k - 20];
		j[i].max_tokens = 20 + i * 9;
	}
}

static void run_jobs(struct fixture *f, struct client *c, const struct job *j, uint64_t scope, int per_step)
{
	struct sits_gen_params p;
	int i;

	for (i = 0; i < JOBS; i++) {
		p = params(j[i].token, j[i].nr, j[i].max_tokens);
		p.prefix_scope = scope;
		p.no_speculation = !per_step;
		p.sched_class = i % SITS_KV_CLASSES;
		submit(f, &c[i], &p);
		if (per_step < 0)
			run_out(f);
		else if (per_step && i % per_step == per_step - 1)
			sits_engine_step(f->e);
	}
	run_out(f);
}

static void no_company_changes_a_bit(void **state)
{
	static const struct { uint32_t threads, budget, pages; uint64_t scope; int per_step; uint32_t spec; } ways[] = {
		{ 1, 16, 0, 0, 2, SITS_SPEC_OFF }, { 2, 256, 0, 9, 3, SITS_SPEC_OFF }, { 2, 33, 0, 9, 1, SITS_SPEC_LOOKUP },
		{ 3, 64, 16, 9, 2, SITS_SPEC_LOOKUP }, { 2, 40, 18, 0, 1, SITS_SPEC_DRAFT },
		{ 1, 500, 0, 9, -1, SITS_SPEC_LOOKUP },
	};
	static const struct { const char *name; struct tiny_opts o; uint32_t kind; bool latent; } models[] = {
		{ "q4_1", { .type = SITS_Q4_1, .type_v = SITS_F16, .type_out = SITS_Q8_0 }, SITS_KV_F16, false },
		{ "f32, a window, int8", { .heads = 6, .kv_heads = 3, .embd = 96, .window = 150 }, SITS_KV_I8, false },
		{ "latent attention", { 0 }, SITS_KV_F16, true },
	};
	struct client alone[JOBS] = { 0 }, shared[JOBS] = { 0 };
	struct job *j = calloc(JOBS, sizeof(*j));
	const struct sits_backend *be;
	struct fixture f = { 0 };
	size_t i, k, w, m;
	uint64_t preempted = 0, guessed = 0;

	assert_non_null(j);
	make_jobs(j);
	for (m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
		if (models[m].latent)
			open_latent(&f);
		else
			open_model(&f, models[m].o);
		for (k = 0; (be = sits_backend_at(k)); k++) {
			if (!be->usable())
				continue;
			open_engine(&f, (struct sits_engine_opts){ .isa = be->name, .kv_keep = 3 * P, .kv_kind = models[m].kind });
			run_jobs(&f, alone, j, 0, 0);
			assert_true(stats(&f).kv_given_up > 20);
			close_engine(&f);
			for (w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
				/* The scalar backend is slow, and what is the engine's own the others show. */
				if (!strcmp(be->name, "ref") && (w != 3 || m))
					continue;
				if (m && w < 3)
					continue;
				open_engine(&f, (struct sits_engine_opts){
					.isa = be->name, .threads = ways[w].threads, .token_budget = ways[w].budget,
					.max_seqs = 6, .kv_bytes = ways[w].pages * sits_graph_page_bytes(f.m, be, models[m].kind),
					.kv_keep = 3 * P, .kv_kind = models[m].kind,
					/* The same model, which gives nothing up: mostly right. */
					.speculation = ways[w].spec, .draft = f.m });
				run_jobs(&f, shared, j, ways[w].scope, ways[w].per_step);
				preempted += stats(&f).preemptions;
				guessed += stats(&f).draft_accepted;
				assert_true(!ways[w].pages || stats(&f).preemptions > 0);
				assert_true(!ways[w].scope || stats(&f).prefix_cache_hits > 100);
				close_engine(&f);
				for (i = 0; i < JOBS; i++) {
					if (shared[i].nr_logits != alone[i].nr_logits ||
					    memcmp(shared[i].logits, alone[i].logits,
						   alone[i].nr_logits * alone[i].vocab * sizeof(float)))
						fail_msg("%s, %s, way %zu: request %zu differs in company", models[m].name,
							 be->name, w, i);
					assert_same(&shared[i], &alone[i]);
					client_fini(&shared[i]);
				}
			}
			for (i = 0; i < JOBS; i++)
				client_fini(&alone[i]);
		}
		close_all(&f);
	}
	printf("# %u preemptions, %u guesses came true\n", (uint32_t)preempted, (uint32_t)guessed);
	assert_true(preempted > 0 && guessed > 0);
	free(j);
}

struct canceller {
	struct sits_engine *e;
	_Atomic uint64_t newest;
	atomic_bool stop;
	uint64_t seed;
};

/* At any moment, so that rows leave between layers, too. */
static void *cancel_at_random(void *arg)
{
	struct canceller *k = arg;
	struct rng r = { k->seed };
	uint64_t newest, seen = 0;
	volatile uint32_t wait;

	while (!atomic_load(&k->stop)) {
		newest = atomic_load(&k->newest);
		if (newest == seen || rng_below(&r, 3))
			continue;
		seen = newest;
		for (wait = rng_below(&r, 300000); wait; wait--)
			;
		sits_engine_cancel(k->e, newest - rng_below(&r, newest < 6 ? newest : 6));
	}
	return NULL;
}

static void those_that_leave_change_no_other(void **state)
{
	enum { N = 80, KINDS = 4 };
	struct client *c = calloc(N, sizeof(*c)), whole[KINDS] = { 0 };
	struct rng r = rng_seeded("evict mix");
	struct canceller k = { .seed = r.s };
	int32_t token[KINDS][MAX_PROMPT];
	struct fixture f = { 0 };
	struct sits_gen_params p;
	int i, cancelled = 0;
	uint8_t kind[N];
	pthread_t t;

	assert_non_null(c);
	open_model(&f, (struct tiny_opts){ .layers = 4 });
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 2 * P });
	for (i = 0; i < KINDS; i++) {
		fill(token[i], 0, 70, 1 + i / 2);
		fill(token[i], 70, 100 + 33 * i, 20 + i);
		p = params(token[i], 100 + 33 * i, 60);
		submit(&f, &whole[i], &p);
	}
	run_out(&f);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 2 * P, .max_seqs = 5, .token_budget = 48,
						  .kv_bytes = 20 * page_bytes(&f), .speculation = SITS_SPEC_LOOKUP });
	k.e = f.e;
	assert_int_equal(pthread_create(&t, NULL, cancel_at_random, &k), 0);
	for (i = 0; i < N; i++) {
		kind[i] = rng_below(&r, KINDS);
		p = params(token[kind[i]], 100 + 33 * kind[i], 60);
		p.prefix_scope = rng_below(&r, 3);
		p.sched_class = rng_below(&r, SITS_KV_CLASSES);
		submit(&f, &c[i], &p);
		atomic_store(&k.newest, c[i].id);
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
		if (c[i].res.finish == SITS_FINISH_LENGTH)
			assert_same(&c[i], &whole[kind[i]]);
		else if (c[i].nr_logits)
			assert_memory_equal(c[i].logits, whole[kind[i]].logits, c[i].nr_logits * TINY_VOCAB * sizeof(float));
		client_fini(&c[i]);
	}
	printf("# %d of %d were cancelled, %u preempted\n", cancelled, N, (uint32_t)stats(&f).preemptions);
	for (i = 0; i < KINDS; i++)
		client_fini(&whole[i]);
	free(c);
	close_all(&f);
}

/* Tokens that are given go the same way, several at once. */
static void forced_tokens_give_the_same_logits(void **state)
{
	struct client drawn_c = { 0 }, forced = { 0 };
	int32_t token[MAX_PROMPT], answer[100];
	struct fixture f = { 0 };
	struct sits_gen_params p;
	size_t i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 2 * P });
	fill(token, 0, 150, 1);
	p = params(token, 150, 100);
	submit(&f, &drawn_c, &p);
	run_out(&f);
	for (i = 0; i < 100; i++)
		answer[i] = drawn(&drawn_c, i);
	p.forced = answer;
	p.nr_forced = 100;
	submit(&f, &forced, &p);
	run_out(&f);
	assert_same(&drawn_c, &forced);
	/* 100 at a page's distance: four or five steps, where draws took 100. */
	assert_true(stats(&f).steps < 100 + 20);
	client_fini(&drawn_c);
	client_fini(&forced);
	close_all(&f);
}

/* ---- shared pages ---- */

static void a_shared_prefix_stays_for_others(void **state)
{
	struct client first = { 0 }, next = { 0 }, alone = { 0 };
	struct fixture f = { 0 };
	int32_t token[MAX_PROMPT];
	struct sits_gen_params p;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 2 * P });
	fill(token, 0, 330, 1);
	p = params(token, 330, 80);
	submit(&f, &alone, &p);
	run_out(&f);
	p = params(token, 320, 100);
	p.prefix_scope = 5;
	submit(&f, &first, &p);
	while (!first.nr_logits)
		sits_engine_step(f.e);
	/* What it gave up is not the index's: all of its prompt is there, and held by nobody. */
	assert_int_equal(stats(&f).pages_used, 2);
	assert_int_equal(stats(&f).pages_cached, 10);
	p = params(token, 330, 80);
	p.prefix_scope = 5;
	submit(&f, &next, &p);
	run_out(&f);
	/* All but what must be looked at again: the last rows of the prompt, to whole pages. */
	assert_true(next.res.cached_tokens >= 330 - SITS_EVICT_ROWS - P);
	assert_same(&next, &alone);
	/* No page of an answer that was computed without all that came before. */
	assert_int_equal(stats(&f).pages_cached, 10);
	client_fini(&first);
	client_fini(&next);
	client_fini(&alone);
	close_all(&f);
}

/* Where there is no room for copies, pages that nobody else names leave the index. */
static void a_full_pool_is_enough(void **state)
{
	struct client c = { 0 }, alone = { 0 };
	struct fixture f = { 0 };
	int32_t token[MAX_PROMPT];
	struct sits_gen_params p;

	open_model(&f, (struct tiny_opts){ 0 });
	fill(token, 0, 320, 1);
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 2 * P });
	p = params(token, 320, 30);
	submit(&f, &alone, &p);
	run_out(&f);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 2 * P, .kv_bytes = 11 * page_bytes(&f) });
	p.prefix_scope = 5;
	submit(&f, &c, &p);
	while (!c.nr_logits)
		sits_engine_step(f.e);
	assert_int_equal(stats(&f).pages_used, 2);
	run_out(&f);
	assert_same(&c, &alone);
	client_fini(&c);
	client_fini(&alone);
	close_all(&f);
}

/* ---- answers longer than the pool ---- */

static void what_it_holds_at_a_time_must_fit_the_pool(void **state)
{
	static const struct {
		const char *name;
		uint32_t nr, max, pages, limit, want;	/* @want: most tokens; 0: refused */
	} cases[] = {
		/* A budget of 3 pages, a context of 512. The prompt takes 10, and then there are 4 at most. */
		{ "a long answer", 310, 200, 10, 0, 200 },
		{ "to the end of the context", 310, 0, 10, 0, 512 - 310 },
		{ "a prompt that does not fit", 321, 100, 10, 0, 0 },
		{ "a prompt that just does", 320, 100, 10, 0, 100 },
		{ "four pages", 5, 400, 4, 0, 400 },
		{ "a full page and no more", 128, 300, 4, 0, 300 },
		/* Where the budget and a page do not fit nothing is given up. */
		{ "three pages", 5, 400, 3, 0, 0 },
		{ "three pages, all of them", 5, 92, 3, 0, 92 },
		{ "three pages, what there is", 5, 0, 3, 0, 92 },
		/* A class's limit is no pool: requests of other classes may name what is to be given up. */
		{ "a limit", 100, 300, 16, 6, 0 },
		{ "a limit, all of it", 100, 93, 16, 6, 93 },
		{ "a limit, what there is", 100, 0, 16, 6, 93 },
		{ "a limit that is none", 100, 400, 6, 6, 400 },
	};
	struct sits_diag diag;
	struct fixture f = { 0 };
	int32_t token[MAX_PROMPT];
	struct sits_gen_params p;
	struct client whole, c;
	size_t i;
	int ret;

	open_model(&f, (struct tiny_opts){ 0 });
	fill(token, 0, MAX_PROMPT, 1);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		whole = c = (struct client){ .keep_logits = true };
		p = params(token, cases[i].nr, cases[i].max);
		p.sched_class = SITS_CLASS_GUARANTEED;
		open_engine(&f, (struct sits_engine_opts){
			.kv_keep = 3 * P, .kv_bytes = cases[i].pages * page_bytes(&f),
			.kv_limit[SITS_CLASS_GUARANTEED] = cases[i].limit * page_bytes(&f) });
		diag.msg[0] = '\0';
		ret = client_submit(&c, f.e, &p, &diag);
		if (ret != (cases[i].want ? 0 : -ENOSPC) || !cases[i].want == !diag.msg[0])
			fail_msg("%s: %d: %s", cases[i].name, ret, diag.msg);
		if (cases[i].want) {
			run_out(&f);
			if (c.res.completion_tokens != cases[i].want)
				fail_msg("%s: %u tokens", cases[i].name, c.res.completion_tokens);
			close_engine(&f);
			open_engine(&f, (struct sits_engine_opts){ .kv_keep = 3 * P });
			p.max_tokens = cases[i].want;
			submit(&f, &whole, &p);
			run_out(&f);
			assert_same(&c, &whole);
		}
		close_engine(&f);
		client_fini(&c);
		client_fini(&whole);
	}
	close_all(&f);
}

/*
 * Several at once, each longer than the pool, with beginnings that they share: what one gives up others may name just then, and it
 * must come to its end all the same.
 */
static void answers_longer_than_the_pool_come_to_their_end(void **state)
{
	enum { N = 32, KINDS = 6 };
	static const uint32_t prompt[KINDS] = { 200, 256, 130, 97, 250, 40 }, answer[KINDS] = { 400, 300, 500, 330, 420, 600 };
	struct client *c = calloc(N, sizeof(*c)), whole[KINDS] = { 0 };
	struct rng r = rng_seeded("longer than the pool");
	int32_t token[KINDS][MAX_PROMPT];
	struct fixture f = { 0 };
	struct sits_gen_params p;
	uint64_t preempted = 0;
	uint8_t kind[N];
	int i, round;

	assert_non_null(c);
	open_model(&f, (struct tiny_opts){ .context = 1024 });
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 2 * P });
	for (i = 0; i < KINDS; i++) {
		fill(token[i], 0, 160, 1 + i / 3);
		fill(token[i], 90 + 30 * (i % 3), MAX_PROMPT, 20 + i);
		p = params(token[i], prompt[i], answer[i]);
		submit(&f, &whole[i], &p);
	}
	run_out(&f);
	close_engine(&f);
	for (round = 0; round < 4; round++) {
		/* Of 8 pages none can have more than its prompt. */
		open_engine(&f, (struct sits_engine_opts){
			.kv_keep = 2 * P, .max_seqs = 3 + rng_below(&r, 3), .token_budget = 16 + rng_below(&r, 100),
			.kv_bytes = (8 + 2 * round) * page_bytes(&f), .speculation = round % 2 ? SITS_SPEC_LOOKUP : SITS_SPEC_OFF });
		for (i = round * N / 4; i < (round + 1) * N / 4; i++) {
			kind[i] = rng_below(&r, KINDS);
			p = params(token[kind[i]], prompt[kind[i]], answer[kind[i]]);
			p.prefix_scope = rng_below(&r, 3);
			p.sched_class = rng_below(&r, SITS_KV_CLASSES);
			submit(&f, &c[i], &p);
			while (rng_below(&r, 12))
				sits_engine_step(f.e);
		}
		run_out(&f);
		preempted += stats(&f).preemptions;
		close_engine(&f);
	}
	for (i = 0; i < N; i++) {
		assert_same(&c[i], &whole[kind[i]]);
		client_fini(&c[i]);
	}
	printf("# %u preemptions\n", (uint32_t)preempted);
	for (i = 0; i < KINDS; i++)
		client_fini(&whole[i]);
	free(c);
	close_all(&f);
}

/* Others name all of its pages when it is to give something up, and the next time, and are gone then: nobody is left to make room. */
static void what_others_named_is_given_up_once_they_are_gone(void **state)
{
	struct client c = { 0 }, alone = { 0 };
	struct fixture f = { 0 };
	int32_t token[MAX_PROMPT];
	struct sits_gen_params p;
	struct request *r;
	uint32_t page[10], i;

	open_model(&f, (struct tiny_opts){ 0 });
	fill(token, 0, 310, 1);
	p = params(token, 310, 150);
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 3 * P });
	submit(&f, &alone, &p);
	run_out(&f);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){ .kv_keep = 3 * P, .kv_bytes = 10 * page_bytes(&f), .token_budget = 100 });
	submit(&f, &c, &p);
	for (i = 0; i < 3; i++)
		sits_engine_step(f.e);
	r = f.e->running[0];
	assert_int_equal(r->nr_cached, 300);
	/* Of the tenth page, too. */
	assert_int_equal(sits_kv_grow(&f.e->kv, &r->pages, 310), 0);
	memcpy(page, r->pages.page, sizeof(page));
	for (i = 0; i < 10; i++)
		sits_kv_ref(&f.e->kv, page[i], SITS_CLASS_BESTEFFORT);
	while (r->nr_cached < 320)
		assert_true(sits_engine_step(f.e) > 0);
	assert_int_equal(r->pages.nr, 10);
	for (i = 10; i-- > 0;)
		sits_kv_unref(&f.e->kv, page[i], SITS_CLASS_BESTEFFORT);
	run_out(&f);
	assert_same(&c, &alone);
	client_fini(&c);
	client_fini(&alone);
	close_all(&f);
}

/* ---- what can't be ---- */

static void budgets_that_make_no_sense_are_refused(void **state)
{
	struct sits_engine_opts o = { .kv_keep = 63 };
	struct sits_diag diag = { 0 };
	struct fixture f = { 0 };

	open_model(&f, (struct tiny_opts){ 0 });
	assert_int_equal(sits_engine_create(f.m, &o, &f.e, &diag), -EINVAL);
	assert_non_null(strstr(diag.msg, "kv_keep 63 is less than 64"));
	o.kv_keep = 64;
	assert_int_equal(sits_engine_create(f.m, &o, &f.e, &diag), 0);
	assert_int_equal(stats(&f).kv_keep, 64);
	close_all(&f);
}

/* Instrumented builds: as malloc() does, in place of a report. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void no_copy(void *arg, uint32_t layer, uint32_t to_page, uint32_t to_cell, uint32_t from_page, uint32_t from_cell)
{
	fail();
}

static void without_memory_nothing_is_given_up(void **state)
{
	static const uint32_t keep[1] = { 2 };
	/* No machine has the memory for so many block tables. */
	const struct sits_kv_cut cut = { .layers = UINT32_MAX, .heads = 1 << 10, .keep = keep, .copy = no_copy };
	struct sits_kv_table t = { 0 };
	struct sits_kv kv;
	uint32_t page[8];

	assert_int_equal(sits_kv_init(&kv, 64, 8), 0);
	assert_int_equal(sits_kv_grow(&kv, &t, 8 * P), 0);
	memcpy(page, t.page, sizeof(page));
	assert_int_equal(sits_kv_evict(&kv, &t, 8, &cut), -ENOMEM);
	assert_int_equal(t.nr, 8);
	assert_null(t.cells);
	assert_memory_equal(page, t.page, sizeof(page));
	sits_kv_release(&kv, &t);
	assert_int_equal(kv.nr_free, 8);
	sits_kv_fini(&kv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_follow_what_heads_attend_to),
		cmocka_unit_test(shares_are_all_that_there_is),
		cmocka_unit_test(heads_of_higher_entropy_keep_more),
		cmocka_unit_test(pages_in_use_fall_to_the_budget),
		cmocka_unit_test(one_that_stays_within_its_budget_is_not_touched),
		cmocka_unit_test(no_company_changes_a_bit),
		cmocka_unit_test(those_that_leave_change_no_other),
		cmocka_unit_test(forced_tokens_give_the_same_logits),
		cmocka_unit_test(a_shared_prefix_stays_for_others),
		cmocka_unit_test(a_full_pool_is_enough),
		cmocka_unit_test(what_it_holds_at_a_time_must_fit_the_pool),
		cmocka_unit_test(what_others_named_is_given_up_once_they_are_gone),
		cmocka_unit_test(answers_longer_than_the_pool_come_to_their_end),
		cmocka_unit_test(budgets_that_make_no_sense_are_refused),
		cmocka_unit_test(without_memory_nothing_is_given_up),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
