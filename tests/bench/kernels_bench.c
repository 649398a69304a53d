// SPDX-License-Identifier: MIT
/*
 * kernels_bench.c - how fast the matrix products and attention run on this machine.
 *
 * One JSON object a line. Weights are spread over more memory than the caches hold, as a model's are.
 * "stream" lines give what plain reading of memory reaches with the same threads in the same run:
 * products of one token (gemv) are bounded by it.
 *
 *	kernels_bench [--isa NAME] [--seconds S] [--only stream|gemv|gemm|attn] [--type NAME] [--pool-mib N]
 *
 * A small pool shows what the caches deliver.
 */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"

#define POOL_MIB 192		/* weights in use: well above a last-level cache */
#define STREAM_BYTES (16u << 20)
#define MAX_THREADS 2
#define RUN_SECONDS 0.003

static const struct sits_backend *be;
static double seconds = 0.4;
static uint8_t *pool;
static size_t pool_bytes = (size_t)POOL_MIB << 20;
static atomic_size_t sink;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* One round of work, done by all threads together. */
struct job {
	void (*run)(struct job *j, size_t part, size_t parts, size_t round);
	size_t threads, rounds, done;
	pthread_barrier_t barrier;
	struct sits_matmul mm;
	size_t matrix_bytes, copies;
	struct sits_attn attn;
};

struct worker {
	struct job *job;
	size_t part;
	double start, end;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(&w->job->barrier);
	w->start = now();
	for (size_t r = 0; r < w->job->rounds; r++)
		w->job->run(w->job, w->part, w->job->threads, w->job->done + r);
	w->end = now();
	return NULL;
}

/* From the first thread's start to the last one's end. */
static double timed(struct job *j)
{
	double start = INFINITY, end = 0;
	struct worker w[MAX_THREADS];
	pthread_t id[MAX_THREADS];

	pthread_barrier_init(&j->barrier, NULL, (unsigned int)j->threads);
	for (size_t i = 0; i < j->threads; i++) {
		w[i] = (struct worker){ j, i, 0, 0 };
		if (pthread_create(&id[i], NULL, work, &w[i]))
			abort();
	}
	for (size_t i = 0; i < j->threads; i++) {
		pthread_join(id[i], NULL);
		start = fmin(start, w[i].start);
		end = fmax(end, w[i].end);
	}
	j->done += j->rounds;
	pthread_barrier_destroy(&j->barrier);
	return end - start;
}

/* Seconds for one round: the best of many short runs, so that a busy machine disturbs little. */
static double measure(struct job *j)
{
	double best = INFINITY, end = now() + seconds;

	for (j->rounds = 1; timed(j) < RUN_SECONDS; j->rounds *= 2)
		;
	do
		best = fmin(best, timed(j) / (double)j->rounds);
	while (now() < end);
	return best;
}

static void stream_run(struct job *j, size_t part, size_t parts, size_t round)
{
	size_t n = STREAM_BYTES / parts / 8;
	const uint64_t *p = (const uint64_t *)(pool + round % ((pool_bytes + STREAM_BYTES - 1) / STREAM_BYTES) * STREAM_BYTES) + part * n;
	uint64_t s[16] = { round };

	for (size_t i = 0; i + 16 <= n; i += 16) {
		for (size_t k = 0; k < 16; k++)
			s[k] ^= p[i + k];
	}
	for (size_t k = 1; k < 16; k++)
		s[0] ^= s[k];
	atomic_fetch_xor(&sink, s[0]);
}

static void matmul_run(struct job *j, size_t part, size_t parts, size_t round)
{
	struct sits_matmul mm = j->mm;
	size_t per = (mm.N / parts + 15) / 16 * 16;

	mm.w = pool + round % j->copies * j->matrix_bytes;
	mm.n0 = part * per < mm.N ? part * per : mm.N;
	mm.n1 = part + 1 == parts || mm.n0 + per > mm.N ? mm.N : mm.n0 + per;
	be->matmul(&mm);
}

static void attn_run(struct job *j, size_t part, size_t parts, size_t round)
{
	static _Thread_local void *scratch;
	size_t n = be->attn_tasks(&j->attn);

	if (!scratch)
		scratch = aligned_alloc(64, (be->attn_scratch_bytes(&j->attn) + 63) / 64 * 64);
	be->attn(&j->attn, n * part / parts, n * (part + 1) / parts, scratch);
}

static void bench_stream(size_t threads)
{
	struct job j = { .run = stream_run, .threads = threads };
	double t = measure(&j);

	printf("{\"bench\": \"stream\", \"threads\": %zu, \"gb_s\": %.2f}\n", threads, STREAM_BYTES / t * 1e-9);
	fflush(stdout);
}

static void bench_matmul(const char *name, uint32_t type, size_t K, size_t N, size_t T, size_t threads)
{
	const struct sits_dtype_info *info = sits_dtype_info(type);
	struct job j = { .run = matmul_run, .threads = threads };
	size_t act = be->act_row_bytes(type, K), row = K / info->block_elems * info->block_bytes;
	float *x = malloc(T * K * sizeof(float)), *y = aligned_alloc(64, (T * N * sizeof(float) + 63) / 64 * 64);
	void *a = aligned_alloc(64, act * T);
	double t;

	for (size_t i = 0; i < T * K; i++)
		x[i] = (float)((i * 2654435761u) >> 8 & 0xffff) / 65536.0f - 0.5f;
	be->act_prepare(type, x, K, T, K, a);
	j.matrix_bytes = row * N;
	j.copies = pool_bytes / j.matrix_bytes ? pool_bytes / j.matrix_bytes : 1;
	j.mm = (struct sits_matmul){ .wtype = type, .w_row_bytes = row, .x = a, .x_row_bytes = act, .y = y,
				     .ldy = N, .T = T, .K = K, .N = N };
	t = measure(&j);
	printf("{\"bench\": \"%s\", \"isa\": \"%s\", \"type\": \"%s\", \"K\": %zu, \"N\": %zu, \"T\": %zu, "
	       "\"threads\": %zu, \"us\": %.1f, \"gb_s\": %.2f, \"gop_s\": %.1f}\n", name, be->name, info->name, K, N, T,
	       threads, t * 1e6, (double)j.matrix_bytes / t * 1e-9,
	       2.0 * (double)K * (double)N * (double)T / t * 1e-9);
	fflush(stdout);
	free(x);
	free(y);
	free(a);
}

static void bench_attn(size_t nr, size_t pos0, size_t threads)
{
	enum { H = 9, G = 3, D = 64 };
	size_t page = be->kv_layer_bytes(G, D), nr_pages = (pos0 + nr + SITS_KV_PAGE_TOKENS - 1) / SITS_KV_PAGE_TOKENS;
	uint32_t *pages = calloc(nr_pages, sizeof(*pages));
	float *q = calloc(nr * H * D, sizeof(float)), *y = calloc(nr * H * D, sizeof(float));
	float k[G * D], v[G * D];
	struct sits_attn_seq seq = { pages, 0, nr, pos0 };
	struct job j = { .run = attn_run, .threads = threads };
	double t;

	for (size_t i = 0; i < nr_pages; i++)
		pages[i] = (uint32_t)i;
	for (size_t i = 0; i < nr * H * D; i++)
		q[i] = (float)(i % 17) * 0.1f - 0.8f;
	for (size_t p = 0; p < pos0 + nr; p++) {
		for (size_t i = 0; i < G * D; i++) {
			k[i] = (float)((i * 7 + p * 13) % 31) * 0.05f - 0.7f;
			v[i] = (float)((i * 3 + p * 11) % 29) * 0.05f - 0.7f;
		}
		be->kv_store(pool + p / SITS_KV_PAGE_TOKENS * page, p % SITS_KV_PAGE_TOKENS, k, v, G, D);
	}
	j.attn = (struct sits_attn){ .q = q, .y = y, .kv = pool, .page_bytes = page, .H = H, .G = G, .D = D,
				     .scale = 0.125f, .seq = &seq, .nr_seq = 1 };
	t = measure(&j);
	printf("{\"bench\": \"attn\", \"isa\": \"%s\", \"H\": %d, \"G\": %d, \"D\": %d, \"rows\": %zu, \"pos0\": %zu, "
	       "\"threads\": %zu, \"us\": %.1f, \"gop_s\": %.1f}\n", be->name, H, G, D, nr, pos0, threads, t * 1e6,
	       4.0 * H * D * (double)nr * ((double)pos0 + (double)(nr + 1) / 2) / t * 1e-9);
	fflush(stdout);
	free(pages);
	free(q);
	free(y);
}

static const struct { uint32_t type; size_t K, N; } shapes[] = {
	{ SITS_Q4_1, 576, 576 }, { SITS_Q4_1, 576, 192 }, { SITS_Q4_1, 576, 1536 }, { SITS_Q4_1, 1536, 576 },
	{ SITS_Q8_0, 576, 49152 }, { SITS_Q4_0, 4096, 4096 }, { SITS_Q4_1, 4096, 4096 }, { SITS_Q5_0, 4096, 4096 },
	{ SITS_Q5_1, 4096, 4096 }, { SITS_Q8_0, 4096, 4096 }, { SITS_Q4_K, 4096, 4096 }, { SITS_Q5_K, 4096, 4096 },
	{ SITS_Q6_K, 4096, 4096 }, { SITS_F16, 2048, 2048 }, { SITS_BF16, 2048, 2048 }, { SITS_F32, 2048, 2048 },
};

static bool wanted(const char *only, const char *name)
{
	return !only || !strcmp(only, name);
}

static void bench_shapes(const char *only, const char *type)
{
	static const size_t tokens[] = { 2, 4, 8, 64, 256 };

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (type && strcmp(type, sits_dtype_info(shapes[i].type)->name))
			continue;
		for (size_t th = 1; wanted(only, "gemv") && th <= MAX_THREADS; th++)
			bench_matmul("gemv", shapes[i].type, shapes[i].K, shapes[i].N, 1, th);
		for (size_t t = 0; wanted(only, "gemm") && t < sizeof(tokens) / sizeof(tokens[0]); t++)
			bench_matmul("gemm", shapes[i].type, shapes[i].K, shapes[i].N, tokens[t], MAX_THREADS);
	}
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "isa", required_argument, NULL, 'i' }, { "seconds", required_argument, NULL, 's' },
		{ "only", required_argument, NULL, 'o' }, { "type", required_argument, NULL, 't' },
		{ "pool-mib", required_argument, NULL, 'p' }, { 0 },
	};
	const char *isa = NULL, *only = NULL, *type = NULL;
	size_t alloc;
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (c == 'i')
			isa = optarg;
		else if (c == 's')
			seconds = atof(optarg);
		else if (c == 'o')
			only = optarg;
		else if (c == 't')
			type = optarg;
		else if (c == 'p')
			pool_bytes = strtoul(optarg, NULL, 10) << 20;
		else
			return 2;
	}
	be = sits_backend_get(isa);
	alloc = (size_t)POOL_MIB << 20 > pool_bytes ? (size_t)POOL_MIB << 20 : pool_bytes;
	pool = aligned_alloc(4096, alloc);
	if (!be || !pool) {
		fprintf(stderr, "kernels_bench: no backend \"%s\" on this machine, or no memory\n", isa ? isa : "");
		return 1;
	}
	/* Bytes that are small positive scales in every type: 0x2c.. is 2^-4 as f16. */
	memset(pool, 0x2c, alloc);
	for (size_t th = 1; wanted(only, "stream") && th <= MAX_THREADS; th++)
		bench_stream(th);
	bench_shapes(only, type);
	for (size_t th = 1; wanted(only, "attn") && th <= MAX_THREADS; th++) {
		bench_attn(1, 511, th);
		bench_attn(1, 4095, th);
		bench_attn(256, 256, th);
	}
	return 0;
}
