// SPDX-License-Identifier: MIT
/*
 * kernels_bench.c - how fast the matrix products and attention run on this machine, and how near its limits.
 *
 * One JSON object a line, as tests/bench/run takes them. Weights are spread over more memory than the caches hold, as a
 * model's are. Limits are measured in the same run with the same threads, and ratio is the share of them:
 *
 *	read-bandwidth	reading memory and nothing else (read_mem.h); bounds products of one token (gemv) and of many experts (moe)
 *	multiply-peak	the backend's multiply-add on registers alone, no load: vpdpbusd (64 products of bytes), with AVX2
 *			vpmaddwd and vpaddd (16 products of 16 bits), for float types a vector FMA. Bounds products of many
 *			tokens (gemm). What counts are products executed: with vpdpbusd two for a weight and a 16-bit
 *			activation, one with vpmaddwd, one for a weight and an 8-bit activation (I8C)
 *	gemm-peak-share	the share of the GEMM of a prefill, by itself
 *
 *	kernels_bench [--isa NAME] [--seconds S] [--only stream|peak|gemv|gemm|moe|attn|gemm-peak-share] [--type NAME] [--pool-mib N]
 *		[--cpu-time]
 *
 * A small pool shows what the caches deliver. --cpu-time counts the time that threads ran instead of the time that
 * passed: for looking at the multipliers while the machine does other work.
 */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/kernels.h"
#include "tests/bench/read_mem.h"

#define POOL_MIB 192		/* weights in use: well above a last-level cache */
#define STREAM_BYTES (16u << 20)
#define MAX_THREADS 2
#define RUN_SECONDS 0.003
#define STACK_BYTES (1 << 20)

static const struct sits_backend *be;
static double seconds = 0.4;
static uint8_t *pool;
static size_t pool_bytes = (size_t)POOL_MIB << 20;
static atomic_size_t sink;

static bool cpu_time;

static double seconds_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

/* One round of work, done by all threads together. */
struct job {
	void (*run)(struct job *j, size_t part, size_t parts, size_t round);
	size_t threads, rounds, done;
	unsigned int way;	/* of read_mem() */
	pthread_barrier_t barrier;
	struct sits_matmul mm;
	struct sits_matmul_group *group;	/* of a grouped product; a round's begin at (round % copies) * nr_groups */
	size_t matrix_bytes, copies, nr_groups;
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
	double cpu;

	pthread_barrier_wait(&w->job->barrier);
	w->start = now();
	cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
	for (size_t r = 0; r < w->job->rounds; r++)
		w->job->run(w->job, w->part, w->job->threads, w->job->done + r);
	cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
	w->end = cpu_time ? w->start + cpu : now();
	return NULL;
}

/* A thread of the engine lives long, and its stack is there: so are these threads' stacks. */
static void start(pthread_t *id, struct worker *w)
{
	static uint8_t stacks[MAX_THREADS][STACK_BYTES] __attribute__((aligned(4096)));
	pthread_attr_t attr;

	if (pthread_attr_init(&attr) || pthread_attr_setstack(&attr, stacks[w->part], STACK_BYTES) ||
	    pthread_create(id, &attr, work, w))
		abort();
	pthread_attr_destroy(&attr);
}

/* From the first thread's start to the last one's end; of CPU time, the longest. */
static double timed(struct job *j)
{
	double first = INFINITY, end = 0, longest = 0;
	struct worker w[MAX_THREADS];
	pthread_t id[MAX_THREADS];

	pthread_barrier_init(&j->barrier, NULL, (unsigned int)j->threads);
	for (size_t i = 0; i < j->threads; i++) {
		w[i] = (struct worker){ j, i, 0, 0 };
		start(&id[i], &w[i]);
	}
	for (size_t i = 0; i < j->threads; i++) {
		pthread_join(id[i], NULL);
		first = fmin(first, w[i].start);
		end = fmax(end, w[i].end);
		longest = fmax(longest, w[i].end - w[i].start);
	}
	j->done += j->rounds;
	pthread_barrier_destroy(&j->barrier);
	return cpu_time ? longest : end - first;
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
	size_t n = STREAM_BYTES / parts;

	atomic_fetch_xor(&sink, read_mem(pool + round % ((pool_bytes + STREAM_BYTES - 1) / STREAM_BYTES) * STREAM_BYTES + part * n, n, j->way));
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

/* The rest of a line; @limit: 0, or what the value is a share of. */
static void emit_end(double value, const char *unit, size_t threads, double us, double limit, const char *peer)
{
	printf("\", \"value\": %.4g, \"unit\": \"%s\", \"isa\": \"%s\", \"threads\": %zu, \"us\": %.6g", value, unit, be->name, threads, us);
	if (limit > 0)
		printf(", \"ratio\": %.6g, \"peer\": \"%s\"", value / limit, peer);
	printf(", \"command\": \"make bench BENCH=kernels\"}\n");
	fflush(stdout);
}

static double read_gb_s[MAX_THREADS + 1];

static double stream_limit(size_t threads)
{
	struct job j = { .run = stream_run, .threads = threads };

	if (!read_gb_s[threads]) {
		for (; j.way < READ_WAYS; j.way++)
			read_gb_s[threads] = fmax(read_gb_s[threads], STREAM_BYTES / measure(&j) * 1e-9);
	}
	return read_gb_s[threads];
}

/* ---- what the multipliers reach with nothing else to do ---- */

enum peak { PEAK_QUANT, PEAK_FLOAT, NR_PEAKS };
#define PEAK_LOOPS 4096
#define PEAK_SUMS 12		/* enough to hide the latency */

#if defined(__x86_64__)
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* The sums are registers and never read, as what they hold does not matter. */
#define PEAK_LOOP(name, isa, vec, zero, insn)							\
	__attribute__((target(isa))) static void name(struct job *j, size_t part, size_t parts, size_t round)	\
	{											\
		vec s[PEAK_SUMS], a = zero, b = zero;						\
		TWELVE(SET_ZERO)								\
		for (size_t i = 0; i < PEAK_LOOPS; i++)						\
			__asm__ volatile(insn : "+x"(s[0]), "+x"(s[1]), "+x"(s[2]), "+x"(s[3]), "+x"(s[4]), "+x"(s[5]), \
					 "+x"(s[6]), "+x"(s[7]), "+x"(s[8]), "+x"(s[9]), "+x"(s[10]), "+x"(s[11]), "+x"(a) \
					 : "x"(b));							\
	}
#define SET_ZERO(i) s[i] = a;
#define ALL(op) op("0") op("1") op("2") op("3") op("4") op("5") op("6") op("7") op("8") op("9") op("10") op("11")
#define DPBUSD(i) "vpdpbusd %13, %12, %" i "\n"
#define FMA(i) "vfmadd231ps %13, %12, %" i "\n"
/* A register for the product: it is not added up in one step. */
#define MADDWD(i) "vpmaddwd %13, %13, %12\nvpaddd %12, %" i ", %" i "\n"

PEAK_LOOP(peak_vnni, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), ALL(DPBUSD))
PEAK_LOOP(peak_fma512, "avx512f", __m512, _mm512_setzero_ps(), ALL(FMA))
PEAK_LOOP(peak_madd, "avx2", __m256i, _mm256_setzero_si256(), ALL(MADDWD))
PEAK_LOOP(peak_fma256, "avx2,fma", __m256, _mm256_setzero_ps(), ALL(FMA))
#endif

/* Products a second in thousand millions; 0: this backend's multipliers are not known here. */
static double peak_limit(enum peak kind, size_t threads)
{
	static double known[NR_PEAKS][MAX_THREADS + 1];
	struct job j = { .threads = threads };
	double per = 0;

#if defined(__x86_64__)
	if (!strcmp(be->name, "avx512")) {
		j.run = kind == PEAK_QUANT ? peak_vnni : peak_fma512;
		per = kind == PEAK_QUANT ? 64 : 16;
	} else if (!strcmp(be->name, "avx2")) {
		j.run = kind == PEAK_QUANT ? peak_madd : peak_fma256;
		per = kind == PEAK_QUANT ? 16 : 8;
	}
#endif
	if (per && !known[kind][threads])
		known[kind][threads] = per * PEAK_SUMS * PEAK_LOOPS * (double)threads / measure(&j) * 1e-9;
	return known[kind][threads];
}

static bool is_float(uint32_t type)
{
	return type == SITS_F32 || type == SITS_F16 || type == SITS_BF16;
}

/* Products that the multipliers execute for each product of a weight and an activation. */
static double executed(uint32_t type)
{
	return !is_float(type) && (type & ~(uint32_t)SITS_PACKED) != SITS_I8C && !strcmp(be->name, "avx512") ? 2 : 1;
}

static void bench_limits(size_t threads, bool stream, bool peak)
{
	static const char *const unit[] = { "quantised", "float" };

	if (stream) {
		printf("{\"name\": \"read-bandwidth-%zu", threads);
		emit_end(stream_limit(threads), "GB/s", threads, 0, 0, NULL);
	}
	for (int kind = 0; peak && kind < NR_PEAKS; kind++) {
		if (!peak_limit(kind, threads))
			continue;
		printf("{\"name\": \"multiply-peak-%s-%zu", unit[kind], threads);
		emit_end(peak_limit(kind, threads), "G/s", threads, 0, 0, NULL);
	}
}

/* ---- products ---- */

static void *prepared(uint32_t type, size_t K, size_t T, size_t *bytes)
{
	float *x = malloc(T * K * sizeof(float));
	void *a;

	*bytes = be->act_row_bytes(type, K);
	a = aligned_alloc(64, *bytes * T);
	if (!x || !a)
		abort();
	for (size_t i = 0; i < T * K; i++)
		x[i] = (float)((i * 2654435761u) >> 8 & 0xffff) / 65536.0f - 0.5f;
	be->act_prepare(type, x, K, T, K, a);
	free(x);
	return a;
}

/* One token is bounded by memory, many by the multipliers; @name: NULL, or what the line is called. */
static void bench_matmul(const char *name, uint32_t type, size_t K, size_t N, size_t T, size_t threads)
{
	struct job j = { .run = matmul_run, .threads = threads };
	float *y = aligned_alloc(64, (T * N * sizeof(float) + 63) / 64 * 64);
	double t, bytes, products;
	size_t act;
	void *a = prepared(type, K, T, &act);

	j.matrix_bytes = sits_dtype_matrix_bytes(type, K, N);
	j.copies = pool_bytes / j.matrix_bytes ? pool_bytes / j.matrix_bytes : 1;
	j.mm = (struct sits_matmul){ .wtype = type, .w_row_bytes = sits_dtype_row_bytes(type, K), .x = a, .x_row_bytes = act,
				     .y = y, .ldy = N, .T = T, .K = K, .N = N };
	t = measure(&j);
	bytes = (double)j.matrix_bytes / t * 1e-9;
	products = executed(type) * (double)K * (double)N * (double)T / t * 1e-9;
	if (name)
		printf("{\"name\": \"%s", name);
	else
		printf("{\"name\": \"gem%s-%s-%zux%zu-t%zu-%zu", T == 1 ? "v" : "m", sits_dtype_info(type)->name, K, N, T, threads);
	if (T == 1)
		emit_end(bytes, "GB/s", threads, t * 1e6, stream_limit(threads), "reading alone, GB/s");
	else if (name)
		emit_end(products / peak_limit(is_float(type) ? PEAK_FLOAT : PEAK_QUANT, threads), "of 1", threads, t * 1e6, 1,
			 "multiply-adds on registers alone");
	else
		emit_end(products, "G/s", threads, t * 1e6, peak_limit(is_float(type) ? PEAK_FLOAT : PEAK_QUANT, threads),
			 "on registers alone, G/s");
	free(y);
	free(a);
}

static void grouped_run(struct job *j, size_t part, size_t parts, size_t round)
{
	const struct sits_matmul_group *g = j->group + round % j->copies * j->nr_groups;
	size_t from = j->nr_groups * part / parts;

	be->matmul_grouped(&j->mm, g + from, j->nr_groups * (part + 1) / parts - from);
}

/* @nr experts with @rows tokens each, out of as many as the pool holds. */
static void bench_moe(uint32_t type, size_t K, size_t N, size_t nr, size_t rows, size_t threads)
{
	struct job j = { .run = grouped_run, .threads = threads, .nr_groups = nr };
	size_t T = nr * rows, act;
	float *y = aligned_alloc(64, (T * N * sizeof(float) + 63) / 64 * 64);
	uint32_t *x_row = malloc(T * sizeof(*x_row));
	void *a = prepared(type, K, rows, &act);
	double t, bytes;

	j.matrix_bytes = sits_dtype_matrix_bytes(type, K, N);
	j.copies = pool_bytes / j.matrix_bytes / nr ? pool_bytes / j.matrix_bytes / nr : 1;
	j.group = malloc(j.copies * nr * sizeof(*j.group));
	if (!y || !x_row || !j.group)
		abort();
	for (size_t i = 0; i < j.copies * nr; i++)
		j.group[i] = (struct sits_matmul_group){ pool + i * j.matrix_bytes, i % nr * rows, rows };
	for (size_t i = 0; i < T; i++)
		x_row[i] = (uint32_t)(i % rows);
	j.mm = (struct sits_matmul){ .wtype = type, .w_row_bytes = sits_dtype_row_bytes(type, K), .x = a, .x_row_bytes = act,
				     .x_row = x_row, .y = y, .ldy = N, .K = K, .N = N, .n1 = N };
	t = measure(&j);
	bytes = (double)(j.matrix_bytes * nr) / t * 1e-9;
	printf("{\"name\": \"moe-%s-%zux%zu-%zu-experts-of-%zu-rows-%zu", sits_dtype_info(type)->name, K, N, nr, rows, threads);
	emit_end(bytes, "GB/s", threads, t * 1e6, stream_limit(threads), "reading alone, GB/s");
	free(j.group);
	free(x_row);
	free(y);
	free(a);
}

static void bench_attn(size_t nr, size_t pos0, size_t threads)
{
	enum { H = 9, G = 3, D = 64 };
	const struct sits_kv_shape shape = { .G = G, .Dk = D, .Dv = D };
	size_t page = be->kv_layer_bytes(&shape), nr_pages = (pos0 + nr + SITS_KV_PAGE_TOKENS - 1) / SITS_KV_PAGE_TOKENS;
	uint32_t *pages = calloc(nr_pages, sizeof(*pages));
	float *q = calloc(nr * H * D, sizeof(float)), *y = calloc(nr * H * D, sizeof(float));
	float k[G * D], v[G * D];
	struct sits_attn_seq seq = { .pages = pages, .nr = nr, .pos0 = pos0 };
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
		be->kv_store(&shape, pool + p / SITS_KV_PAGE_TOKENS * page, p % SITS_KV_PAGE_TOKENS, k, v);
	}
	j.attn = (struct sits_attn){ .q = q, .y = y, .kv = pool, .page_bytes = page, .H = H,
				     .shape = shape, .scale = 0.125f, .seq = &seq, .nr_seq = 1 };
	t = measure(&j);
	printf("{\"name\": \"attn-%d-heads-%d-of-%d-%zu-rows-at-%zu-%zu", H, G, D, nr, pos0, threads);
	emit_end(2.0 * H * D * (double)nr * ((double)pos0 + (double)(nr + 1) / 2) / t * 1e-9, "G/s", threads, t * 1e6,
		 peak_limit(PEAK_FLOAT, threads), "on registers alone, G/s");
	free(pages);
	free(q);
	free(y);
}

#define P(type) (SITS_PACKED | (type))
static const struct { uint32_t type; size_t K, N; } shapes[] = {
	{ SITS_Q4_1, 576, 576 }, { SITS_Q4_1, 576, 192 }, { SITS_Q4_1, 576, 1536 }, { SITS_Q4_1, 1536, 576 },
	{ SITS_Q8_0, 576, 49152 }, { SITS_Q4_0, 4096, 4096 }, { SITS_Q4_1, 4096, 4096 }, { SITS_Q5_0, 4096, 4096 },
	{ SITS_Q5_1, 4096, 4096 }, { SITS_Q8_0, 4096, 4096 }, { SITS_Q4_K, 4096, 4096 }, { SITS_Q5_K, 4096, 4096 },
	{ SITS_Q6_K, 4096, 4096 }, { SITS_I8C, 4096, 4096 }, { P(SITS_Q4_0), 4096, 4096 }, { P(SITS_Q4_1), 4096, 4096 },
	{ P(SITS_Q8_0), 4096, 4096 }, { P(SITS_Q4_K), 4096, 4096 }, { P(SITS_Q6_K), 4096, 4096 }, { P(SITS_I8C), 4096, 4096 },
	{ SITS_F16, 2048, 2048 }, { SITS_BF16, 2048, 2048 }, { SITS_F32, 2048, 2048 },
};

static bool wanted(const char *only, const char *name)
{
	return !only || !strcmp(only, name);
}

static void bench_shapes(const char *only, const char *type)
{
	static const size_t tokens[] = { 2, 4, 8, 16, 64, 256 };

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (type && strcmp(type, sits_dtype_info(shapes[i].type)->name))
			continue;
		for (size_t th = 1; wanted(only, "gemv") && th <= MAX_THREADS; th++)
			bench_matmul(NULL, shapes[i].type, shapes[i].K, shapes[i].N, 1, th);
		for (size_t t = 0; wanted(only, "gemm") && t < sizeof(tokens) / sizeof(tokens[0]); t++)
			bench_matmul(NULL, shapes[i].type, shapes[i].K, shapes[i].N, tokens[t], MAX_THREADS);
	}
}

static void bench_experts(const char *type)
{
	static const uint32_t types[] = { SITS_Q4_K, SITS_Q8_0, SITS_I8C, P(SITS_Q4_K), P(SITS_Q8_0), P(SITS_I8C) };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (type && strcmp(type, sits_dtype_info(types[i])->name))
			continue;
		for (size_t rows = 1; rows <= 4; rows *= 2)
			bench_moe(types[i], 2048, 768, 8, rows, MAX_THREADS);
	}
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "isa", required_argument, NULL, 'i' }, { "seconds", required_argument, NULL, 's' },
		{ "only", required_argument, NULL, 'o' }, { "type", required_argument, NULL, 't' },
		{ "pool-mib", required_argument, NULL, 'p' }, { "cpu-time", no_argument, NULL, 'c' }, { 0 },
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
		else if (c == 'c')
			cpu_time = true;
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
	for (size_t th = 1; th <= MAX_THREADS; th++)
		bench_limits(th, wanted(only, "stream"), wanted(only, "peak"));
	/* Short, so that a busy machine leaves some runs alone. */
	if (wanted(only, "gemm-peak-share") && peak_limit(PEAK_QUANT, MAX_THREADS))
		bench_matmul("gemm-peak-share", SITS_Q4_K, 4096, 512, 256, MAX_THREADS);
	bench_shapes(only, type);
	if (wanted(only, "moe"))
		bench_experts(type);
	for (size_t th = 1; wanted(only, "attn") && th <= MAX_THREADS; th++) {
		bench_attn(1, 511, th);
		bench_attn(1, 4095, th);
		bench_attn(256, 256, th);
	}
	return 0;
}
