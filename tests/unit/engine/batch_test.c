// SPDX-License-Identifier: MIT
/*
 * batch_test.c - a request's logits are the same, bit for bit, alone and in any company.
 *
 * Company means: other requests of other lengths that come and go, prompts cut into chunks in
 * other places, other numbers of threads, rows dropped between layers. On every backend usable here.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/threads.h"
#include "tests/unit/engine/client.h"
#include "tests/unit/engine/tiny_model.h"

#define REQUESTS 16
#define MAX_PROMPT 150

struct job {
	int32_t prompt[MAX_PROMPT];
	size_t nr;
	uint32_t max_tokens;
	int arrives;		/* at this step */
};

static const struct {
	const char *name;
	struct tiny_opts o;
} models[] = {
	{ "q4_1, tied q8_0, odd sizes", { .type = SITS_Q4_1, .type_v = SITS_Q4_1, .type_out = SITS_Q8_0, .embd = 96,
		.ff = 160, .heads = 6, .kv_heads = 2, .head_dim = 16 } },
	{ "q4_0, q5_0, biases, rope factors", { .type = SITS_Q4_0, .type_v = SITS_Q5_0, .type_out = SITS_Q8_0,
		.biases = true, .rope_freqs = true, .untied = true } },
	{ "f16, bf16, f32", { .type = SITS_F16, .type_v = SITS_BF16, .type_out = SITS_F32, .untied = true } },
	{ "q4_K, q6_K", { .type = SITS_Q4_K, .type_v = SITS_Q6_K, .type_out = SITS_Q6_K, .embd = 256, .ff = 256,
		.heads = 4, .kv_heads = 1 } },
	{ "q5_K, q5_1, one layer", { .type = SITS_Q5_K, .type_v = SITS_Q5_1, .type_out = SITS_Q5_K, .embd = 256,
		.ff = 512, .heads = 2, .kv_heads = 2, .layers = 1 } },
	{ "a mixture of 8, q8_0 and q5_0, a window", { .experts = 8, .type = SITS_Q8_0, .type_v = SITS_Q5_0,
		.type_out = SITS_Q8_0, .window = 20 } },
	{ "a mixture of 24 with a shared expert, f16", { .arch = "qwen2moe", .experts = 24, .used = 5, .expert_ff = 32,
		.shared_ff = 64, .type = SITS_F16, .type_v = SITS_Q4_0, .type_out = SITS_F16, .untied = true,
		.layers = 1 } },
	{ "a mixture with head norms, experts apart", { .arch = "qwen3moe", .experts = 5, .used = 4, .expert_ff = 64,
		.apart = true, .type = SITS_Q4_0, .type_v = SITS_Q4_1, .type_router = SITS_BF16, .layers = 1 } },
	{ "a mixture with one norm over all heads", { .arch = "olmoe", .experts = 7, .used = 3, .type = SITS_BF16,
		.type_v = SITS_F32, .layers = 1 } },
};

static void make_jobs(struct rng *r, struct job *job)
{
	static const size_t lengths[] = { 1, 2, 31, 32, 33, 63, 65, 150 };
	int i;
	size_t j;

	for (i = 0; i < REQUESTS; i++) {
		job[i].nr = i < 8 ? lengths[i] : 1 + rng_below(r, MAX_PROMPT);
		job[i].max_tokens = 1 + rng_below(r, 24);
		job[i].arrives = i < 4 ? 0 : rng_below(r, 12);
		for (j = 0; j < job[i].nr; j++)
			job[i].prompt[j] = rng_below(r, 256);
	}
}

static struct sits_engine *make_engine(const struct sits_model *m, const char *isa, uint32_t threads, uint32_t budget)
{
	const struct sits_engine_opts o = {
		.threads = threads, .isa = isa, .token_budget = budget, .max_seqs = REQUESTS,
	};
	struct sits_diag diag = { 0 };
	struct sits_engine *e;

	if (sits_engine_create(m, &o, &e, &diag))
		fail_msg("%s", diag.msg);
	return e;
}

static void start(struct client *c, struct sits_engine *e, const struct job *j)
{
	const struct sits_gen_params p = {
		.prompt = j->prompt, .nr_prompt = j->nr, .max_tokens = j->max_tokens, .ignore_eos = true,
		.sampling = { .top_p = 1, .repeat_penalty = 1 },
	};

	c->keep_logits = true;
	assert_int_equal(client_submit(c, e, &p, NULL), 0);
}

static void run_alone(struct sits_engine *e, struct client *c, const struct job *job)
{
	int i;

	for (i = 0; i < REQUESTS; i++) {
		start(&c[i], e, &job[i]);
		while (sits_engine_step(e) > 0)
			;
	}
}

static void run_together(struct sits_engine *e, struct client *c, const struct job *job)
{
	int step, i, left = 1;

	for (step = 0; left > 0 || step < 12; step++) {
		for (i = 0; i < REQUESTS; i++)
			if (job[i].arrives == step)
				start(&c[i], e, &job[i]);
		left = sits_engine_step(e);
		assert_true(left >= 0 && step < 1000);
	}
}

static void compare(const char *what, const char *isa, struct client *a, struct client *b)
{
	int i;

	for (i = 0; i < REQUESTS; i++) {
		assert_int_equal(b[i].dones, 1);
		assert_int_equal(b[i].res.status, 0);
		assert_int_equal(a[i].nr_logits, b[i].nr_logits);
		if (memcmp(a[i].logits, b[i].logits, a[i].nr_logits * a[i].vocab * sizeof(float)))
			fail_msg("%s, %s: request %d differs in company", isa, what, i);
		assert_int_equal(a[i].len, b[i].len);
		assert_memory_equal(a[i].text, b[i].text, a[i].len);
		client_fini(&b[i]);
	}
}

static void one_backend(const struct sits_model *m, const char *name, const char *isa, const struct job *job)
{
	static const struct { uint32_t threads, budget; } ways[] = {
		{ 1, 256 }, { 2, REQUESTS }, { 2, 37 }, { 3, 64 }, { 2, 1000 },
	};
	struct client alone[REQUESTS] = { 0 }, together[REQUESTS] = { 0 };
	struct sits_engine *e = make_engine(m, isa, 1, 512);
	size_t i;

	run_alone(e, alone, job);
	sits_engine_destroy(e);
	for (i = 0; i < REQUESTS; i++)
		assert_int_equal(alone[i].nr_logits, job[i].max_tokens);
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		/* The scalar backend is slow, and what is the engine's own the others show. */
		if (!strcmp(isa, "ref") && i != 2)
			continue;
		e = make_engine(m, isa, ways[i].threads, ways[i].budget);
		run_together(e, together, job);
		sits_engine_destroy(e);
		compare(name, isa, alone, together);
	}
	for (i = 0; i < REQUESTS; i++)
		client_fini(&alone[i]);
}

static void alone_and_in_a_batch_of_16_bit_for_bit(void **state)
{
	struct rng r = rng_seeded("batch");
	const struct sits_backend *be;
	struct job job[REQUESTS];
	struct sits_model *m;
	size_t i, k, len;
	void *image;

	for (k = 0; k < sizeof(models) / sizeof(models[0]); k++) {
		struct sits_diag diag = { 0 };

		make_jobs(&r, job);
		image = tiny_model(models[k].o, &len);
		if (sits_model_open(image, len, &m, &diag))
			fail_msg("%s: %s", models[k].name, diag.msg);
		for (i = 0; (be = sits_backend_at(i)); i++)
			if (be->usable())
				one_backend(m, models[k].name, be->name, job);
		sits_model_close(m);
		free(image);
	}
}

/* ---- rows that leave between layers ---- */

#define SEQS 5
#define ROWS 90

struct drop_run {
	int drop_at[SEQS];	/* the how manyth question about a sequence drops it */
	int questions[SEQS];
	bool sampled[SEQS];
	float logits[SEQS][TINY_VOCAB];
};

static bool dropped(void *arg, uint32_t owner)
{
	struct drop_run *d = arg;

	return ++d->questions[owner] >= d->drop_at[owner];
}

static void sampled(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	struct drop_run *d = arg;

	assert_int_equal(nr, 1);
	d->sampled[owner] = true;
	memcpy(d->logits[owner], logits, sizeof(d->logits[owner]));
}

static void run_graph(struct sits_graph *g, const struct sits_backend *be, struct drop_run *d)
{
	static const uint32_t rows[SEQS] = { 1, 40, 1, 45, 3 };
	int32_t token[ROWS], pos[ROWS];
	struct sits_attn_seq seq[SEQS];
	struct sits_kv_table table[SEQS] = { 0 };
	uint32_t owner[SEQS], i, j;
	struct sits_kv kv;
	uint32_t want[SEQS];
	struct sits_graph_batch b = {
		.nr_seq = SEQS, .token = token, .pos = pos, .seq = seq, .owner = owner, .want = want,
		.dropped = dropped, .sample = sampled, .arg = d,
	};

	assert_int_equal(sits_kv_init(&kv, 4 * be->kv_layer_bytes(&(struct sits_kv_shape){ .G = 2, .Dk = 16, .Dv = 16 }),
				      20), 0);
	for (i = 0; i < SEQS; i++) {
		assert_int_equal(sits_kv_grow(&kv, &table[i], rows[i]), 0);
		seq[i] = (struct sits_attn_seq){ .pages = table[i].page, .row0 = b.T, .nr = rows[i], .pos0 = 0 };
		owner[i] = i;
		want[i] = 1;
		for (j = 0; j < rows[i]; j++) {
			token[b.T] = (i * 50 + j * 3) % 256;
			pos[b.T++] = j;
		}
	}
	assert_int_equal(sits_graph_run(g, &kv, &b), 0);
	for (i = 0; i < SEQS; i++)
		sits_kv_release(&kv, &table[i]);
	sits_kv_fini(&kv);
}

static void drop_rows(struct tiny_opts o)
{
	const struct sits_backend *be = sits_backend_get(NULL);
	struct drop_run *whole = calloc(1, sizeof(*whole)), *d = calloc(1, sizeof(*d));
	struct sits_threads *team;
	struct sits_graph *g;
	struct sits_model *m;
	uint32_t mask, i;
	size_t len;
	void *image;

	assert_non_null(whole);
	assert_non_null(d);
	image = tiny_model(o, &len);
	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	assert_int_equal(sits_threads_create(2, 0, &team, NULL), 0);
	assert_int_equal(sits_graph_create(m, be, team, ROWS, SEQS, &g, NULL), 0);
	for (i = 0; i < SEQS; i++)
		whole->drop_at[i] = 100;
	run_graph(g, be, whole);
	for (mask = 0; mask < 1u << SEQS; mask++) {
		memset(d, 0, sizeof(*d));
		for (i = 0; i < SEQS; i++)
			d->drop_at[i] = mask >> i & 1 ? 1 + (int)((mask + i) % 4) : 100;
		run_graph(g, be, d);
		for (i = 0; i < SEQS; i++) {
			assert_int_equal(d->sampled[i], !(mask >> i & 1));
			if (d->sampled[i])
				assert_memory_equal(d->logits[i], whole->logits[i], sizeof(d->logits[i]));
			else	/* not asked again: its work ended there */
				assert_int_equal(d->questions[i], d->drop_at[i]);
		}
	}
	sits_graph_destroy(g);
	sits_threads_destroy(team);
	sits_model_close(m);
	free(image);
	free(whole);
	free(d);
}

static void rows_dropped_between_layers_leave_the_others_alone(void **state)
{
	drop_rows((struct tiny_opts){ .layers = 4 });
	drop_rows((struct tiny_opts){ .arch = "qwen2moe", .layers = 4, .experts = 6, .expert_ff = 32, .shared_ff = 32 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_and_in_a_batch_of_16_bit_for_bit),
		cmocka_unit_test(rows_dropped_between_layers_leave_the_others_alone),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
