// SPDX-License-Identifier: MIT
/*
 * arch_golden_test.c - every architecture and variant against what transformers computes in float32.
 *
 * tests/golden/arch/models.py writes the models, small and of random weights, into a temporary directory;
 * golden.bin beside it holds logits at some positions and every choice of experts. The prompt is computed
 * in pieces of several sizes, the last tokens one by one, on every backend usable; then again token by token beside
 * somebody else's, which must not change a bit.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/engine/graph_run.h"

#define GOLDEN "tests/golden/arch/golden.bin"
#define MODELS "tests/golden/arch/models.py"
#define MAX_MODELS 64
/* Of the largest logit of a position. Keys and values are kept in F16, which is most of it. */
#define TOLERANCE 1e-3
#define TOLERANCE_BF16 1e-2	/* avx512bf16 on BF16 weights, which rounds activations to 8 bits and is used by name only (docs/kernels.md) */
/* Bytes are 16 times coarser than F16. Where that changes a choice of experts, the logits are others. */
#define TOLERANCE_I8 0.03
#define TOLERANCE_I8_MOE 0.3

struct expected {
	char name[64];
	uint32_t tokens, vocab, positions, layers, used;
	const int32_t *token;
	const uint32_t *position;	/* ascending: where the pieces of the prompt end */
	const float *logits;		/* [positions][vocab] */
	const uint32_t *layer;		/* [layers]: those with experts */
	const uint8_t *expert;		/* [layers][tokens][used], ascending */
};

static struct expected expected[MAX_MODELS];
static size_t nr_expected;
static char dir[] = "/tmp/sits-arch-XXXXXX";

static void *read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	void *p = NULL;
	long n = 0;

	if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET))
		fail_msg("%s: %s", path, strerror(errno));
	if (posix_memalign(&p, 64, n + 1) || fread(p, 1, n, f) != (size_t)n)
		fail_msg("%s: %s", path, strerror(errno));
	fclose(f);
	*len = n;
	return p;
}

/* ---- golden.bin ---- */

static uint8_t *golden;
static size_t golden_len, at;

/* The next n bytes, copied: the file aligns nothing. */
static void *get(size_t n)
{
	void *p = malloc(n ? n : 1);

	assert_non_null(p);
	assert_true(n <= golden_len - at);
	memcpy(p, golden + at, n);
	at += n;
	return p;
}

static uint32_t get_u32(void)
{
	uint32_t v;

	assert_true(golden_len - at >= sizeof(v));
	memcpy(&v, golden + at, sizeof(v));
	at += sizeof(v);
	return v;
}

static int read_golden(void **state)
{
	struct expected *e;
	uint32_t n;
	void *name;

	golden = read_file(GOLDEN, &golden_len);
	assert_memory_equal(golden, "SITSARCH", 8);
	at = 8;
	assert_int_equal(get_u32(), 1);
	nr_expected = get_u32();
	assert_in_range(nr_expected, 1, MAX_MODELS);
	for (e = expected; e < expected + nr_expected; e++) {
		n = get_u32();
		assert_true(n < sizeof(e->name));
		name = get(n);
		memcpy(e->name, name, n);
		free(name);
		e->tokens = get_u32();
		e->vocab = get_u32();
		e->positions = get_u32();
		e->layers = get_u32();
		e->used = get_u32();
		e->token = get(4 * e->tokens);
		e->position = get(4 * e->positions);
		e->logits = get((size_t)4 * e->positions * e->vocab);
		e->layer = get(4 * e->layers);
		e->expert = get((size_t)e->layers * e->tokens * e->used);
	}
	assert_int_equal(at, golden_len);
	free(golden);
	return 0;
}

/* ---- models ---- */

static int write_models(void **state)
{
	char cmd[256];

	if (read_golden(state))
		return -1;
	if (!mkdtemp(dir))
		return -1;
	snprintf(cmd, sizeof(cmd), "python3 -B " MODELS " %s", dir);
	return system(cmd);
}

static int remove_models(void **state)
{
	char cmd[64];
	size_t i;

	for (i = 0; i < nr_expected; i++) {
		free((void *)expected[i].token);
		free((void *)expected[i].position);
		free((void *)expected[i].logits);
		free((void *)expected[i].layer);
		free((void *)expected[i].expert);
	}
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* ---- one run ---- */

#define MAX_TOKENS 64

struct run {
	const struct expected *e;
	const char *where;	/* for messages */
	float *logits;		/* [positions][vocab]: what came out */
	uint32_t at;		/* index of the position whose logits come next */
	size_t routed, misrouted;
};

static void keep_logits(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	struct run *r = arg;

	assert_int_equal(owner, 0);
	assert_int_equal(nr, 1);
	memcpy(r->logits + (size_t)r->at * r->e->vocab, logits, r->e->vocab * sizeof(*logits));
}

static int by_value(const void *a, const void *b)
{
	return *(const uint8_t *)a - *(const uint8_t *)b;
}

static void compare_experts(void *arg, uint32_t layer, uint32_t owner, int32_t pos, const uint32_t *expert,
			    const float *weight)
{
	struct run *r = arg;
	const uint8_t *want;
	uint8_t got[64];
	uint32_t i, l;

	for (l = 0; l < r->e->layers && r->e->layer[l] != layer; l++)
		;
	if (l == r->e->layers || r->e->used > sizeof(got))
		fail_msg("%s: layer %u has experts", r->where, layer);
	for (i = 0; i < r->e->used; i++)
		got[i] = expert[i];
	qsort(got, r->e->used, 1, by_value);
	want = r->e->expert + ((size_t)l * r->e->tokens + pos) * r->e->used;
	r->routed++;
	r->misrouted += !!memcmp(got, want, r->e->used);
}

/* The prompt in the pieces of golden.bin; logits are kept, choices of experts compared. */
static void run_pieces(struct graph_run *gr, struct run *r)
{
	struct sits_graph_batch b = { .sample = keep_logits, .routed = compare_experts, .arg = r };
	uint32_t from = 0, nr;

	for (r->at = 0; r->at < r->e->positions; r->at++, from += nr) {
		nr = r->e->position[r->at] + 1 - from;
		graph_run_rows(gr, &b, r->e->token, from, nr, 1);
	}
	assert_int_equal(from, r->e->tokens);
}

/* The prompt token by token, each beside two tokens of somebody else. */
static void run_in_company(struct graph_run *gr, struct run *r)
{
	struct sits_attn_seq seq[2];
	uint32_t owner[2] = { 1, 0 }, want[2] = { 0 }, i;
	int32_t token[3], pos[3];
	struct sits_graph_batch batch = {
		.T = 3, .nr_seq = 2, .token = token, .pos = pos, .seq = seq, .owner = owner, .want = want,
		.sample = keep_logits, .arg = r,
	};

	for (i = r->at = 0; i < r->e->tokens && i < MAX_TOKENS / 2; i++) {
		seq[0] = (struct sits_attn_seq){ .pages = graph_run_pages(gr, 1, 2 * i + 2), .nr = 2, .pos0 = 2 * i };
		seq[1] = (struct sits_attn_seq){ .pages = graph_run_pages(gr, 0, i + 1), .row0 = 2, .nr = 1,
						 .pos0 = i };
		token[0] = (r->e->token[i] + 7) % 256;
		token[1] = (r->e->token[i] + 77) % 256;
		token[2] = r->e->token[i];
		pos[0] = 2 * i;
		pos[1] = 2 * i + 1;
		pos[2] = i;
		want[1] = i == r->e->position[r->at];
		owner[0] = 1;
		owner[1] = 0;
		assert_int_equal(sits_graph_run(gr->g, &gr->kv, &batch), 0);
		r->at += want[1];
	}
}

/* The largest difference, of the largest logit of its position. */
static double off(const struct run *r)
{
	double worst = 0, most, d;
	uint32_t i, p;

	for (p = 0; p < r->e->positions; p++) {
		const float *want = r->e->logits + (size_t)p * r->e->vocab, *got = r->logits + (size_t)p * r->e->vocab;

		for (i = 0, most = 0; i < r->e->vocab; i++)
			most = fmax(most, fabs(want[i]));
		for (i = 0; i < r->e->vocab; i++) {
			d = fabs((double)got[i] - want[i]) / most;
			if (!(d <= worst))	/* a NaN is kept */
				worst = d;
		}
	}
	return worst;
}

/* The prompt with keys and values of one kind in pieces, then in company: not a bit may differ. Return: off(). */
static double run_kind(const struct sits_model *m, const struct sits_backend *be, struct sits_threads *team, uint32_t kind,
		       struct run *r)
{
	const size_t size = (size_t)r->e->positions * r->e->vocab;
	float *alone = calloc(size, sizeof(*alone)), *company = calloc(size, sizeof(*company));
	struct graph_run gr;
	double worst;

	assert_non_null(alone);
	assert_non_null(company);
	graph_run_init(&gr, m, be, team, kind, MAX_TOKENS, 1);
	r->logits = alone;
	run_pieces(&gr, r);
	graph_run_fini(&gr);
	worst = off(r);
	graph_run_init(&gr, m, be, team, kind, MAX_TOKENS, 1);
	r->logits = company;
	run_in_company(&gr, r);
	graph_run_fini(&gr);
	assert_true(r->at >= 2);
	assert_memory_equal(alone, company, (size_t)r->at * r->e->vocab * sizeof(*alone));
	free(alone);
	free(company);
	return worst;
}

static void run_backend(const struct sits_model *m, const struct sits_backend *be, struct sits_threads *team,
			struct run *r)
{
	const bool rounds = !strcmp(be->name, "avx512bf16") && strstr(r->e->name, "bf16");
	size_t routed, misrouted;
	double worst, bytes;

	worst = run_kind(m, be, team, SITS_KV_F16, r);
	routed = r->routed;
	misrouted = r->misrouted;
	bytes = run_kind(m, be, team, SITS_KV_I8, r);
	print_message("# %s: logits %.2g off, with KV in bytes %.2g; %zu of %zu choices of experts differ\n", r->where, worst,
		      bytes, misrouted, routed);
	if (!(worst <= (rounds ? TOLERANCE_BF16 : TOLERANCE)))
		fail_msg("%s: logits are %g of the largest off", r->where, worst);
	if (!(bytes <= (r->e->layers ? TOLERANCE_I8_MOE : TOLERANCE_I8)))
		fail_msg("%s: logits are %g of the largest off with keys and values in bytes", r->where, bytes);
	assert_int_equal(misrouted, 0);
	assert_int_equal(routed, (size_t)r->e->layers * r->e->tokens);
}

static void run_backends(const struct sits_model *m, const struct expected *e, const char *format)
{
	const struct sits_backend *be;
	struct sits_threads *team;
	char where[128];
	uint32_t i;

	assert_int_equal(m->hp.vocab, e->vocab);
	assert_int_equal(m->hp.route.used, e->used);
	assert_true(e->tokens <= MAX_TOKENS);
	assert_int_equal(sits_threads_create(2, 0, &team, NULL), 0);
	for (i = 0; (be = sits_backend_at(i)); i++) {
		struct run r = { .e = e, .where = where };

		if (!be->usable())
			continue;
		snprintf(where, sizeof(where), "%s, %s, %s", e->name, format, be->name);
		run_backend(m, be, team, &r);
	}
	sits_threads_destroy(team);
}

static const struct expected *find(const char *name)
{
	size_t i;

	for (i = 0; i < nr_expected; i++)
		if (!strcmp(expected[i].name, name))
			return &expected[i];
	fail_msg("%s has no model %s", GOLDEN, name);
	return NULL;
}

static void from_gguf(void **state)
{
	const struct expected *e = find(*state);
	struct sits_diag diag = { 0 };
	struct sits_model *m;
	char path[128];
	void *image;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s.gguf", dir, e->name);
	image = read_file(path, &len);
	if (sits_model_open(image, len, &m, &diag))
		fail_msg("%s: %s", e->name, diag.msg);
	run_backends(m, e, "GGUF");
	sits_model_close(m);
	free(image);
}

static void from_directory(void **state)
{
	static const char *const names[] = { "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors" };
	const struct expected *e = find(*state);
	struct sits_model_file files[4];
	struct sits_diag diag = { 0 };
	struct sits_model *m;
	char path[192];
	size_t i, len;

	for (i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s/%s", dir, e->name, names[i]);
		files[i].name = names[i];
		files[i].data = read_file(path, &len);
		files[i].len = len;
	}
	if (sits_model_open_files(files, 4, &m, &diag))
		fail_msg("%s: %s", e->name, diag.msg);
	run_backends(m, e, "safetensors");
	sits_model_close(m);
	for (i = 0; i < 4; i++)
		free((void *)(uintptr_t)files[i].data);
}

#define BOTH(name) { "GGUF: " name, from_gguf, NULL, NULL, (void *)name },	\
	{ "safetensors: " name, from_directory, NULL, NULL, (void *)name }

static const struct CMUnitTest tests[] = {
	BOTH("llama"), BOTH("llama-tied-bias"), BOTH("llama-linear"), BOTH("llama-yarn"), BOTH("llama-llama3"),
	BOTH("llama-f16"), BOTH("mistral-window"), BOTH("mixtral"),
	BOTH("qwen2"), BOTH("qwen2-yarn"), BOTH("qwen2-window"), BOTH("qwen3"), BOTH("qwen3-bf16"),
	BOTH("qwen2moe"), BOTH("qwen3moe"), BOTH("olmoe"),
	BOTH("deepseek2-lite"), BOTH("deepseek2-v2"), BOTH("deepseek2-v3"),
};

/* Two tests for each model of golden.bin; by find() each test has one. */
static int check_list(void **state)
{
	int ret = write_models(state);

	if (!ret)
		assert_int_equal(2 * nr_expected, sizeof(tests) / sizeof(tests[0]));
	return ret;
}

int main(void)
{
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, check_list, remove_models);
}
