// SPDX-License-Identifier: MIT
/*
 * moe_test.c - mixtures of experts in the graph: against the dense model that they equal, in hostile company, with a
 * capacity, with load-aware selection.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/moe_stats.h"
#include "daemon/engine/threads.h"
#include "daemon/model/model.h"
#include "tests/unit/engine/client.h"
#include "tests/unit/engine/tiny_model.h"

#define MAX_ROWS 96
#define MAX_SEQS 4
#define MAX_ROUTES 8192

/* A model, a graph, and what a pass gave. */
struct fix {
	void *image;
	struct sits_model *m;
	const struct sits_backend *be;
	struct sits_threads *team;
	struct sits_graph *g;
	struct sits_kv kv;
	float logits[MAX_ROWS][TINY_VOCAB];	/* of the rows of all sequences, in order */
	size_t row0[MAX_SEQS];

	struct {
		uint32_t layer, owner;
		int32_t pos;
		uint32_t expert[8];
		float weight[8];
	} route[MAX_ROUTES];
	size_t nr_routes, nr_probes;
};

static void open_fix(struct fix *f, struct tiny_opts o, const struct sits_backend *be, uint32_t threads)
{
	struct sits_diag diag = { 0 };
	struct sits_kv_shape shape;
	size_t len;

	memset(f, 0, sizeof(*f));
	f->be = be;
	f->image = tiny_model(o, &len);
	if (sits_model_open(f->image, len, &f->m, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(sits_threads_create(threads, 0, &f->team, NULL), 0);
	if (sits_graph_create(f->m, be, f->team, MAX_ROWS, MAX_ROWS, &f->g, &diag))
		fail_msg("%s", diag.msg);
	sits_graph_kv_shape(f->m, SITS_KV_F16, &shape);
	assert_int_equal(sits_kv_init(&f->kv, f->m->hp.layers * be->kv_layer_bytes(&shape), 2 * MAX_SEQS + 4), 0);
}

static void close_fix(struct fix *f)
{
	sits_graph_destroy(f->g);
	sits_threads_destroy(f->team);
	sits_kv_fini(&f->kv);
	sits_model_close(f->m);
	free(f->image);
}

static struct fix *new_fix(struct tiny_opts o, const struct sits_backend *be, uint32_t threads)
{
	struct fix *f = malloc(sizeof(*f));

	assert_non_null(f);
	open_fix(f, o, be, threads);
	return f;
}

static void drop_fix(struct fix *f)
{
	close_fix(f);
	free(f);
}

static void sampled(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	struct fix *f = arg;

	memcpy(f->logits[f->row0[owner]], logits, nr * sizeof(f->logits[0]));
}

static void routed(void *arg, uint32_t layer, uint32_t owner, int32_t pos, const uint32_t *expert, const float *weight)
{
	struct fix *f = arg;
	uint32_t k = f->m->hp.route.used;

	assert_true(f->nr_routes < MAX_ROUTES && k <= 8);
	f->route[f->nr_routes].layer = layer;
	f->route[f->nr_routes].owner = owner;
	f->route[f->nr_routes].pos = pos;
	memcpy(f->route[f->nr_routes].expert, expert, k * sizeof(*expert));
	memcpy(f->route[f->nr_routes++].weight, weight, k * sizeof(*weight));
}

static void probed(void *arg, enum sits_probe what, uint32_t layer, const float *x, size_t rows, size_t cols)
{
	struct fix *f = arg;
	size_t i;

	assert_int_equal(what, SITS_PROBE_FFN_IN);
	assert_int_equal(cols, f->m->hp.embd);
	for (i = 0; i < rows * cols; i++)
		assert_true(isfinite(x[i]));
	f->nr_probes++;
}

/* One pass over @nr_seq sequences of @rows[i] tokens each; logits of every row. */
static void pass(struct fix *f, const int32_t *const *tokens, const uint32_t *rows, size_t nr_seq, bool hooks)
{
	struct sits_kv_table table[MAX_SEQS] = { 0 };
	struct sits_attn_seq seq[MAX_SEQS] = { 0 };
	uint32_t owner[MAX_SEQS], want[MAX_SEQS], i, j;
	int32_t token[MAX_ROWS], pos[MAX_ROWS];
	struct sits_graph_batch b = {
		.nr_seq = nr_seq, .token = token, .pos = pos, .seq = seq, .owner = owner, .want = want, .sample = sampled,
		.arg = f,
	};

	if (hooks) {
		b.routed = routed;
		b.probe = probed;
	}
	f->nr_routes = f->nr_probes = 0;
	for (i = 0; i < nr_seq; i++) {
		assert_int_equal(sits_kv_grow(&f->kv, &table[i], rows[i]), 0);
		f->row0[i] = b.T;
		seq[i] = (struct sits_attn_seq){ .pages = table[i].page, .row0 = b.T, .nr = rows[i] };
		owner[i] = i;
		want[i] = rows[i];
		for (j = 0; j < rows[i]; j++) {
			token[b.T] = tokens[i][j];
			pos[b.T++] = j;
		}
	}
	assert_int_equal(sits_graph_run(f->g, &f->kv, &b), 0);
	for (i = 0; i < nr_seq; i++)
		sits_kv_release(&f->kv, &table[i]);
}

static void make_prompt(int32_t *t, size_t nr, uint32_t seed)
{
	size_t i;

	for (i = 0; i < nr; i++)
		t[i] = (i * i * 37 + i * 11 + seed * 13 + 5) % 256;
}

static void pass_one(struct fix *f, const int32_t *token, uint32_t rows, bool hooks)
{
	pass(f, (const int32_t *const []){ token }, &rows, 1, hooks);
}

/* ---- equal experts are the dense model ---- */

/* The largest difference of two passes' logits, and the largest logit. */
static void differences(const struct fix *a, const struct fix *b, size_t rows, float *worst, float *top)
{
	size_t i, j;

	for (i = 0; i < rows; i++) {
		for (j = 0; j < TINY_VOCAB; j++) {
			assert_true(isfinite(a->logits[i][j]) && isfinite(b->logits[i][j]));
			*worst = fmaxf(*worst, fabsf(a->logits[i][j] - b->logits[i][j]));
			*top = fmaxf(*top, fabsf(b->logits[i][j]));
		}
	}
}

static void eight_equal_experts_renormalised_are_the_dense_model(void **state)
{
	/* Of weights; those of activations are alike in both. */
	static const struct { uint32_t type, type_v; } types[] = {
		{ SITS_F32, SITS_F32 }, { SITS_Q8_0, SITS_Q4_1 }, { SITS_F16, SITS_BF16 },
	};
	const struct sits_backend *be;
	int32_t prompt[40];
	uint32_t used;
	size_t i, k;

	make_prompt(prompt, 40, 1);
	for (i = 0; (be = sits_backend_at(i)); i++) {
		for (k = 0; be->usable() && k < sizeof(types) / sizeof(types[0]); k++) {
			struct tiny_opts o = { .type = types[k].type, .type_v = types[k].type_v, .seed = 3 };
			struct fix *dense = new_fix(o, be, 2), *moe;
			float worst = 0, top = 0;

			pass_one(dense, prompt, 40, false);
			o.experts = 8;
			o.equal_experts = true;
			for (used = 1; used <= 8; used += used == 1 ? 1 : 3) {	/* 1, 2, 5, 8 */
				o.used = used;
				moe = new_fix(o, be, 2);
				pass_one(moe, prompt, 40, false);
				differences(moe, dense, 40, &worst, &top);
				drop_fix(moe);
			}
			/* Weights that sum to 1 within 2^-24, k roundings onto the residual; F16 keys round what differs. */
			print_message("# %s: at most %.2g of the largest logit off\n", be->name, (double)(worst / top));
			assert_true(worst <= 1e-3f * top);
			drop_fix(dense);
		}
	}
}

/* ---- company ---- */

static void experts_apart_or_in_one_tensor_are_the_same(void **state)
{
	const struct sits_backend *be = sits_backend_get(NULL);
	struct tiny_opts o = { .experts = 6, .used = 3, .type = SITS_Q8_0, .type_v = SITS_Q8_0, .type_out = SITS_Q8_0 };
	struct fix *one = new_fix(o, be, 1), *apart;
	int32_t prompt[50];

	o.apart = true;
	apart = new_fix(o, be, 3);
	make_prompt(prompt, 50, 2);
	assert_null(one->m->layer[1].e_up.table);
	assert_non_null(apart->m->layer[1].e_up.table);
	pass_one(one, prompt, 50, false);
	pass_one(apart, prompt, 50, false);
	assert_memory_equal(one->logits, apart->logits, 50 * sizeof(one->logits[0]));
	drop_fix(one);
	drop_fix(apart);
}

/* A sequence whose embedding is NaN, beside others: theirs do not change by a bit, its own are all NaN. */
static void nan_stays_with_its_own_rows(void **state)
{
	const struct tiny_opts o = { .arch = "qwen2moe", .experts = 8, .used = 3, .shared_ff = 32, .expert_ff = 32,
				     .type = SITS_Q8_0, .type_v = SITS_Q8_0, .untied = true, .nan_token = 99 };
	int32_t a[30], bad[20], c[25];
	const struct sits_backend *be;
	size_t i, j;

	make_prompt(a, 30, 3);
	make_prompt(bad, 20, 4);
	make_prompt(c, 25, 5);
	for (i = 0; i < 30; i++)
		a[i] -= a[i] == 99;
	for (i = 0; i < 25; i++)
		c[i] -= c[i] == 99;
	bad[0] = 99;
	for (i = 0; (be = sits_backend_at(i)); i++) {
		struct fix *f, *alone;

		if (!be->usable())
			continue;
		f = new_fix(o, be, 2);
		alone = new_fix(o, be, 2);
		pass(f, (const int32_t *const []){ a, bad, c }, (const uint32_t[]){ 30, 20, 25 }, 3, false);
		pass_one(alone, a, 30, false);
		assert_memory_equal(f->logits[f->row0[0]], alone->logits[0], 30 * sizeof(f->logits[0]));
		pass_one(alone, c, 25, false);
		assert_memory_equal(f->logits[f->row0[2]], alone->logits[0], 25 * sizeof(f->logits[0]));
		for (j = 0; j < TINY_VOCAB; j++)
			assert_true(isnan(f->logits[f->row0[1]][j]));
		drop_fix(f);
		drop_fix(alone);
	}
}

/* ---- what is told and counted ---- */

static void routes_and_loads_agree(void **state)
{
	const struct tiny_opts o = { .arch = "olmoe", .experts = 6, .used = 2, .layers = 3 };
	struct fix *f = new_fix(o, sits_backend_get(NULL), 2);
	const struct sits_moe_stats *s = sits_graph_moe(f->g);
	uint64_t count[3][6] = { { 0 } };
	int32_t prompt[60];
	float w;
	size_t i, j;

	make_prompt(prompt, 60, 6);
	pass_one(f, prompt, 60, true);
	assert_int_equal(f->nr_routes, 3 * 60);
	assert_int_equal(f->nr_probes, 3);
	for (i = 0; i < f->nr_routes; i++) {
		assert_int_equal(f->route[i].layer, i / 60);
		assert_int_equal(f->route[i].owner, 0);
		assert_int_equal(f->route[i].pos, i % 60);
		assert_true(f->route[i].expert[0] != f->route[i].expert[1]);
		w = f->route[i].weight[0] + f->route[i].weight[1];
		assert_true(f->route[i].weight[0] >= f->route[i].weight[1] && w > 0 && w < 1);
		for (j = 0; j < 2; j++)
			count[f->route[i].layer][f->route[i].expert[j]]++;
	}
	assert_memory_equal(s->assigned, count, sizeof(count));
	assert_int_equal(s->rows, 3 * 60);
	assert_int_equal(s->dropped, 0);
	drop_fix(f);
}

static void a_dense_model_has_no_experts_to_count(void **state)
{
	struct fix *f = new_fix((struct tiny_opts){ 0 }, sits_backend_get(NULL), 1);
	int32_t prompt[5];

	assert_null(sits_graph_moe(f->g));
	make_prompt(prompt, 5, 1);
	pass_one(f, prompt, 5, true);
	assert_int_equal(f->nr_routes, 0);
	assert_int_equal(f->nr_probes, 2);
	drop_fix(f);
}

/* What has no room is dropped, latest rows first, and counted; with room for all nothing changes. */
static void a_capacity_drops_and_counts(void **state)
{
	const struct tiny_opts o = { .experts = 4, .used = 2, .layers = 1 };
	struct fix *free_ = new_fix(o, sits_backend_get(NULL), 2), *tight = new_fix(o, sits_backend_get(NULL), 2);
	struct sits_moe_stats *s = sits_graph_moe(tight->g);
	uint32_t seen[4] = { 0 }, room, x;
	uint64_t dropped = 0;
	int32_t prompt[40];
	bool whole[40];
	size_t i, j;

	make_prompt(prompt, 40, 7);
	pass_one(free_, prompt, 40, true);
	s->capacity = 4;	/* of 2: every expert may take every row */
	pass_one(tight, prompt, 40, false);
	assert_int_equal(s->dropped, 0);
	assert_memory_equal(tight->logits, free_->logits, 40 * sizeof(free_->logits[0]));
	s->capacity = 0.8f;
	room = sits_moe_capacity(s, 40);
	assert_int_equal(room, 16);
	for (i = 0; i < 40; i++) {
		whole[i] = true;
		for (j = 0; j < 2; j++) {
			x = free_->route[i].expert[j];
			if (seen[x]++ >= room) {
				whole[i] = false;
				dropped++;
			}
		}
	}
	assert_true(dropped >= 16);	/* 80 pairs, room for 64 */
	pass_one(tight, prompt, 40, false);
	assert_int_equal(s->dropped, dropped);
	/* One layer: a row that kept its experts has its logits. */
	for (i = 0; i < 40; i++)
		assert_int_equal(whole[i], !memcmp(tight->logits[i], free_->logits[i], sizeof(free_->logits[0])));
	drop_fix(free_);
	drop_fix(tight);
}

static float unevenness(const struct fix *f)
{
	uint32_t count[8] = { 0 }, top = 0;
	size_t i, j;

	for (i = 0; i < f->nr_routes; i++)
		for (j = 0; j < f->m->hp.route.used; j++)
			count[f->route[i].expert[j]]++;
	for (i = 0; i < 8; i++)
		top = count[i] > top ? count[i] : top;
	return (float)top * 8 / (f->nr_routes * f->m->hp.route.used);
}

static void balancing_moves_rows_off_loaded_experts(void **state)
{
	const struct tiny_opts o = { .experts = 8, .used = 2, .layers = 1, .seed = 11 };
	struct fix *f = new_fix(o, sits_backend_get(NULL), 2), *again = new_fix(o, sits_backend_get(NULL), 2);
	struct sits_moe_stats *s = sits_graph_moe(f->g);
	float before, after;
	int32_t prompt[80];
	int i;

	make_prompt(prompt, 80, 8);
	pass_one(f, prompt, 80, true);
	before = unevenness(f);
	s->balance = 0.01f;
	s->window = 80;
	for (i = 0; i < 100; i++)
		pass_one(f, prompt, 80, true);
	after = unevenness(f);
	print_message("# the most loaded expert had %.2f times its share, then %.2f\n", (double)before, (double)after);
	assert_true(before > 1.2f && after < before && after < 1.3f);
	/* Off again: what was learned has no say, bit for bit. */
	s->balance = 0;
	pass_one(f, prompt, 80, false);
	pass_one(again, prompt, 80, false);
	assert_memory_equal(f->logits, again->logits, 80 * sizeof(f->logits[0]));
	drop_fix(f);
	drop_fix(again);
}

/* All experts are used, so a weight p at temperature 1 is p^(1/t) of their sum at t. Layer 0 reads the same in both. */
static void a_temperature_is_what_the_definition_says(void **state)
{
	const struct tiny_opts o = { .arch = "olmoe", .experts = 6, .used = 6, .layers = 2 };
	static const float temperature[] = { 0.25f, 0.9f, 2, 50 };
	struct fix *plain = new_fix(o, sits_backend_get(NULL), 2), *f = new_fix(o, sits_backend_get(NULL), 2);
	double want[6], sum;
	int32_t prompt[40];
	size_t i, j, k;

	make_prompt(prompt, 40, 9);
	pass_one(plain, prompt, 40, true);
	for (k = 0; k < sizeof(temperature) / sizeof(temperature[0]); k++) {
		sits_graph_set_route_temperature(f->g, temperature[k]);
		pass_one(f, prompt, 40, true);
		for (i = 0; i < 40; i++) {
			for (j = 0, sum = 0; j < 6; j++)
				sum += want[j] = pow((double)plain->route[i].weight[j], 1 / (double)temperature[k]);
			for (j = 0; j < 6; j++) {
				assert_int_equal(f->route[i].expert[j], plain->route[i].expert[j]);
				assert_true(fabs((double)f->route[i].weight[j] - want[j] / sum) < 2e-6 * want[j] / sum);
			}
		}
		assert_memory_not_equal(f->logits, plain->logits, 40 * sizeof(f->logits[0]));
	}
	sits_graph_set_route_temperature(f->g, 1);
	pass_one(f, prompt, 40, false);
	assert_memory_equal(f->logits, plain->logits, 40 * sizeof(f->logits[0]));
	drop_fix(plain);
	drop_fix(f);
}

/* ---- through the engine ---- */

#define ANSWER 12

struct run {
	struct client c[3];
	struct sits_engine_stats s;
};

/* Three requests one after another: a prompt, the same again, another one. */
static void run_engine(const struct sits_model *m, struct sits_engine_opts o, uint64_t tag, struct run *out)
{
	struct sits_diag diag = { 0 };
	struct sits_engine *e;
	int32_t prompt[3][33];
	int i;

	memset(out, 0, sizeof(*out));
	make_prompt(prompt[0], 33, 1);
	make_prompt(prompt[1], 33, 1);
	make_prompt(prompt[2], 33, 2);
	if (sits_engine_create(m, &o, &e, &diag))
		fail_msg("%s", diag.msg);
	for (i = 0; i < 3; i++) {
		const struct sits_gen_params p = {
			.prompt = prompt[i], .nr_prompt = 33, .max_tokens = ANSWER, .ignore_eos = true, .route_tag = tag,
			.sampling = { .top_p = 1, .repeat_penalty = 1 },
		};

		out->c[i].keep_logits = true;
		assert_int_equal(client_submit(&out->c[i], e, &p, NULL), 0);
		while (sits_engine_step(e) > 0)
			;
		assert_int_equal(out->c[i].nr_logits, ANSWER);
	}
	sits_engine_get_stats(e, &out->s);
	assert_int_equal(sits_engine_moe(e)->rows, out->s.routed);
	sits_engine_destroy(e);
}

static void end_run(struct run *r)
{
	int i;

	for (i = 0; i < 3; i++)
		client_fini(&r->c[i]);
}

/* It waits for memory; on the CPU of the engine's own thread it would be in its way. */
static void who_fetches_experts_is_not_pinned(void **state)
{
	const struct sits_engine_opts o = { .threads = 1, .pin = 1, .route_patterns = 8 };
	cpu_set_t before, pinned, mask;
	struct sits_engine *e;
	struct sits_model *m;
	struct dirent *d;
	int others = 0;
	size_t len;
	void *image = tiny_model((struct tiny_opts){ .experts = 4, .used = 2, .expert_ff = 32, .seed = 5 }, &len);
	DIR *tasks;

	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	assert_int_equal(sits_engine_create(m, &o, &e, NULL), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(pinned), &pinned), 0);
	assert_int_equal(CPU_COUNT(&pinned), 1);
	tasks = opendir("/proc/self/task");
	assert_non_null(tasks);
	while ((d = readdir(tasks))) {
		pid_t tid = (pid_t)atoi(d->d_name);

		if (!tid || tid == gettid())
			continue;
		assert_int_equal(sched_getaffinity(tid, sizeof(mask), &mask), 0);
		assert_true(CPU_EQUAL(&mask, &before));
		others++;
	}
	closedir(tasks);
	assert_int_equal(others, 1);
	sits_engine_destroy(e);
	sits_model_close(m);
	free(image);
}

static void remembered_routes_are_counted_and_change_nothing(void **state)
{
	static struct run off, on, tagged;
	struct sits_model *m;
	size_t len;
	void *image = tiny_model((struct tiny_opts){ .experts = 16, .used = 2, .expert_ff = 32, .seed = 5 }, &len);
	int i;

	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	run_engine(m, (struct sits_engine_opts){ .threads = 1 }, 0, &off);
	run_engine(m, (struct sits_engine_opts){ .threads = 1, .route_patterns = 8 }, 0, &on);
	run_engine(m, (struct sits_engine_opts){ .threads = 1, .route_patterns = 8 }, 77, &tagged);
	assert_int_equal(off.s.route_queries, 0);
	assert_int_equal(off.s.routed, on.s.routed);
	assert_int_equal(on.s.route_queries, 3);
	assert_int_equal(on.s.route_found, 1);	/* the second */
	assert_int_equal(on.s.route_pairs, 2 * 2 * (33 + ANSWER - 1));
	assert_true(on.s.route_hits > on.s.route_pairs / 2 && on.s.route_hits <= on.s.route_pairs);
	assert_int_equal(tagged.s.route_found, 2);	/* the third has the tag */
	assert_int_equal(tagged.s.route_pairs, 2 * on.s.route_pairs);
	for (i = 0; i < 3; i++) {
		assert_memory_equal(on.c[i].logits, off.c[i].logits, ANSWER * TINY_VOCAB * sizeof(float));
		assert_memory_equal(tagged.c[i].logits, off.c[i].logits, ANSWER * TINY_VOCAB * sizeof(float));
	}
	print_message("# %d of %d pairs as remembered\n", (int)on.s.route_hits, (int)on.s.route_pairs);
	end_run(&off);
	end_run(&on);
	end_run(&tagged);
	sits_model_close(m);
	free(image);
}

static void the_engine_hands_the_temperature_on(void **state)
{
	static struct run plain, one, two;
	struct sits_model *m;
	size_t len;
	void *image = tiny_model((struct tiny_opts){ .experts = 8, .used = 2, .expert_ff = 32, .seed = 6 }, &len);
	int i;

	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	run_engine(m, (struct sits_engine_opts){ .threads = 1 }, 0, &plain);
	run_engine(m, (struct sits_engine_opts){ .threads = 1, .moe_temperature = 1 }, 0, &one);
	run_engine(m, (struct sits_engine_opts){ .threads = 1, .moe_temperature = 2 }, 0, &two);
	for (i = 0; i < 3; i++) {
		assert_memory_equal(one.c[i].logits, plain.c[i].logits, ANSWER * TINY_VOCAB * sizeof(float));
		assert_memory_not_equal(two.c[i].logits, plain.c[i].logits, TINY_VOCAB * sizeof(float));
	}
	end_run(&plain);
	end_run(&one);
	end_run(&two);
	sits_model_close(m);
	free(image);
}

static void options_out_of_range_are_refused(void **state)
{
	static const struct { struct sits_engine_opts o; const char *word; } cases[] = {
		{ { .moe_capacity = -1 }, "moe_capacity" }, { { .moe_capacity = NAN }, "moe_capacity" },
		{ { .moe_temperature = -1 }, "moe_temperature" }, { { .moe_temperature = INFINITY }, "moe_temperature" },
		{ { .moe_temperature = NAN }, "moe_temperature" }, { { .moe_balance = INFINITY }, "moe_balance" }, { { .route_patterns = 1u << 31 }, "route_patterns" },
	};
	struct sits_engine *e;
	struct sits_model *m;
	size_t i, len;
	void *image = tiny_model((struct tiny_opts){ .experts = 4 }, &len);

	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_diag diag = { 0 };

		assert_int_equal(sits_engine_create(m, &cases[i].o, &e, &diag), -EINVAL);
		assert_non_null(strstr(diag.msg, cases[i].word));
	}
	sits_model_close(m);
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eight_equal_experts_renormalised_are_the_dense_model),
		cmocka_unit_test(experts_apart_or_in_one_tensor_are_the_same),
		cmocka_unit_test(nan_stays_with_its_own_rows),
		cmocka_unit_test(routes_and_loads_agree),
		cmocka_unit_test(a_dense_model_has_no_experts_to_count),
		cmocka_unit_test(a_capacity_drops_and_counts),
		cmocka_unit_test(balancing_moves_rows_off_loaded_experts),
		cmocka_unit_test(a_temperature_is_what_the_definition_says),
		cmocka_unit_test(who_fetches_experts_is_not_pinned),
		cmocka_unit_test(remembered_routes_are_counted_and_change_nothing),
		cmocka_unit_test(the_engine_hands_the_temperature_on),
		cmocka_unit_test(options_out_of_range_are_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
