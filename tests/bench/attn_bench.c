// SPDX-License-Identifier: MIT
/*
 * attn_bench.c - attention against what the machine can do, and fused operations against those they stand for.
 *
 * One finished JSON object a line. Decoding: keys and values of many long contexts, more than the caches hold;
 * bytes/s as a share of what reading the same memory alone reaches with the same threads, turn by turn. Prefill:
 * multiply-adds as a share of what registers alone reach. Both are shares of the best of many rounds, so that a busy
 * machine disturbs little. "limit" is the share of what the scarcer of the two allows: with 8 query heads to a key/value
 * head decoding has 4 multiply-adds for each byte, which is more than most cores can do as fast as memory delivers.
 *
 *	attn_bench [--isa NAME] [--threads N] [--seconds S] [--only TEXT] [--pool-mib N]
 */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "kernels/kernels.h"
#include "tests/bench/read_mem.h"

#define PAGE SITS_KV_PAGE_TOKENS
#define CHUNK (1u << 20)
#define MAX_THREADS 64
#define PEAK_ROUNDS 200000

static const struct sits_backend *be;
static size_t threads = 2;
static double seconds = 2;
static size_t pool_bytes = (size_t)160 << 20;	/* well above a last-level cache */
static atomic_size_t sink;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* One thread is measured in its own processor time: what else runs on the machine then takes none of it. */
static double stopwatch(void)
{
	struct timespec ts;

	clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

#define HUGE ((size_t)2 << 20)

static void *alloc(size_t bytes)
{
	void *p = NULL;

	if (posix_memalign(&p, bytes < HUGE ? 4096 : HUGE, bytes ? bytes : 1)) {
		fprintf(stderr, "attn_bench: no memory for %zu bytes\n", bytes);
		exit(1);
	}
	if (bytes >= HUGE)
		madvise(p, bytes, MADV_HUGEPAGE);	/* as the engine's memory is (daemon/engine/mem.c) */
	memset(p, 0, bytes);
	return p;
}

/* ---- n tasks on all threads, claimed one by one ---- */

struct job {
	void (*run)(void *arg, size_t task, size_t self);
	void *arg;
	size_t n;
	atomic_size_t next;
	pthread_barrier_t barrier;
	double start[MAX_THREADS], end[MAX_THREADS];
};

struct worker {
	struct job *job;
	size_t self;
};

static void *work(void *arg)
{
	const struct worker *w = arg;
	struct job *j = w->job;

	pthread_barrier_wait(&j->barrier);
	j->start[w->self] = stopwatch();
	for (size_t t; (t = atomic_fetch_add(&j->next, 1)) < j->n;)
		j->run(j->arg, t, w->self);
	j->end[w->self] = stopwatch();
	return NULL;
}

/* Seconds from the first start to the last end. */
static double timed(void (*run)(void *arg, size_t task, size_t self), void *arg, size_t n)
{
	struct job j = { .run = run, .arg = arg, .n = n };
	struct worker w[MAX_THREADS];
	pthread_t id[MAX_THREADS];
	double start = INFINITY, end = 0;

	pthread_barrier_init(&j.barrier, NULL, (unsigned int)threads);
	for (size_t i = 0; i < threads; i++) {
		w[i] = (struct worker){ &j, i };
		if (pthread_create(&id[i], NULL, work, &w[i]))
			abort();
	}
	for (size_t i = 0; i < threads; i++) {
		pthread_join(id[i], NULL);
		start = fmin(start, j.start[i]);
		end = fmax(end, j.end[i]);
	}
	pthread_barrier_destroy(&j.barrier);
	return end - start;
}

/* ---- what the machine can do ---- */

static unsigned int read_way;

static void read_chunk(void *arg, size_t task, size_t self)
{
	atomic_fetch_xor(&sink, read_mem((uint8_t *)arg + task * CHUNK, CHUNK, read_way));
}

/* Independent multiply-adds, enough to hide their latency. Returns how many were done. */
#ifdef __x86_64__
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define PEAK(name, isa, type, lanes, set1, fma, first)						\
	__attribute__((target(isa))) static double name(void)					\
	{											\
		type a[12], x = set1(0.999f), y = set1(1e-3f);					\
												\
		UNROLL for (int i = 0; i < 12; i++)						\
			a[i] = set1((float)i);							\
		for (int r = 0; r < PEAK_ROUNDS; r++) {						\
			UNROLL for (int i = 0; i < 12; i++)					\
				a[i] = fma(a[i], x, y);						\
			__asm__ volatile("" : "+x"(a[0]), "+x"(a[1]), "+x"(a[2]), "+x"(a[3]), "+x"(a[4]), "+x"(a[5]),	\
					 "+x"(a[6]), "+x"(a[7]), "+x"(a[8]), "+x"(a[9]), "+x"(a[10]), "+x"(a[11]));	\
		}										\
		UNROLL for (int i = 1; i < 12; i++)						\
			a[0] = fma(a[i], x, a[0]);						\
		atomic_fetch_xor(&sink, (size_t)first(a[0]));					\
		return 12.0 * lanes * PEAK_ROUNDS;						\
	}
PEAK(peak_avx2, "avx2,fma", __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)
PEAK(peak_avx512, "avx512f", __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)
#endif

static double peak_once(void)
{
#ifdef __x86_64__
	if (!strcmp(be->name, "avx512"))
		return peak_avx512();
	if (!strcmp(be->name, "avx2"))
		return peak_avx2();
#endif
	return 0;
}

static void peak_task(void *arg, size_t task, size_t self)
{
	peak_once();
}

/* ---- attention ---- */

struct kv {
	struct sits_kv_shape shape;
	size_t H, nr_seq, context, rows;
	size_t per_claim;
	struct sits_attn a;
	struct sits_attn_seq *seq;
	uint8_t *pool;
	uint32_t *pages;
	void *scratch[MAX_THREADS];
};

static float fill(size_t i)
{
	return (float)((uint32_t)(i * 2654435761u) >> 8 & 0xffff) / 32768.0f - 1;
}

/* rows: of each sequence, the last ones of its context. */
static void kv_init(struct kv *c)
{
	const struct sits_kv_shape *s = &c->shape;
	size_t nr_pages = (c->context + PAGE - 1) / PAGE, page = be->kv_layer_bytes(s);
	float *k = alloc((s->G * s->Dk + 7) * sizeof(float)), *v = alloc((s->G * s->Dv + 7) * sizeof(float));
	size_t nq = c->nr_seq * c->rows * c->H;
	float *q = alloc(nq * s->Dk * sizeof(float));

	c->pool = alloc(nr_pages * c->nr_seq * page + CHUNK);
	c->pages = alloc(nr_pages * c->nr_seq * sizeof(*c->pages));
	c->seq = alloc(c->nr_seq * sizeof(*c->seq));
	for (size_t i = 0; i < c->nr_seq * nr_pages; i++)	/* handed out in turn, as when they grow together */
		c->pages[i] = (uint32_t)(i % nr_pages * c->nr_seq + i / nr_pages);
	for (size_t i = 0; i < c->nr_seq * nr_pages * PAGE; i++) {
		for (size_t d = 0; d < s->G * s->Dk; d++)
			k[d] = fill(i * 31 + d);
		for (size_t d = 0; d < s->G * s->Dv; d++)
			v[d] = fill(i * 17 + d);
		be->kv_store(s, c->pool + i / PAGE * page, i % PAGE, k, v);
	}
	for (size_t i = 0; i < nq * s->Dk; i++)
		q[i] = fill(i);
	for (size_t i = 0; i < c->nr_seq; i++)
		c->seq[i] = (struct sits_attn_seq){ .pages = c->pages + i * nr_pages, .row0 = i * c->rows, .nr = c->rows,
						    .pos0 = c->context - c->rows };
	c->a = (struct sits_attn){ .q = q, .y = alloc(nq * s->Dv * sizeof(float)), .kv = c->pool, .page_bytes = page, .H = c->H,
				   .shape = *s, .scale = 1 / sqrtf((float)s->Dk), .seq = c->seq, .nr_seq = c->nr_seq };
	if (be->attn_work_bytes(&c->a))
		c->a.work = alloc(be->attn_work_bytes(&c->a));
	for (size_t i = 0; i < threads; i++)
		c->scratch[i] = alloc(be->attn_scratch_bytes(&c->a));
	c->per_claim = be->attn_tasks(&c->a) / (8 * threads);
	c->per_claim = c->per_claim ? c->per_claim : 1;
	free(k);
	free(v);
}

static void kv_fini(struct kv *c)
{
	for (size_t i = 0; i < threads; i++)
		free(c->scratch[i]);
	free((void *)c->a.q);
	free(c->a.y);
	free(c->a.work);
	free(c->seq);
	free(c->pages);
	free(c->pool);
}

static void attn_task(void *arg, size_t task, size_t self)
{
	struct kv *c = arg;
	size_t n = be->attn_tasks(&c->a), t0 = task * c->per_claim, t1 = t0 + c->per_claim;

	be->attn(&c->a, t0, t1 < n ? t1 : n, c->scratch[self]);
}

static double attn_once(struct kv *c)
{
	return timed(attn_task, c, (be->attn_tasks(&c->a) + c->per_claim - 1) / c->per_claim);
}

static const char *kind_name(const struct sits_kv_shape *s)
{
	return s->kind == SITS_KV_I8 ? "i8" : s->kind == SITS_KV_F32 ? "f32" : "f16";
}

/* limit: share of what the scarcer of memory and multiply-adds allows. */
static void say(const char *name, const struct kv *c, double value, double limit, const char *peer)
{
	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"of 1\", \"ratio\": %.6g, \"peer\": \"%s\", \"limit\": %.6g, \"threads\": %zu, "
	       "\"isa\": \"%s\", \"kv\": \"%s%s\", \"H\": %zu, \"G\": %zu, \"Dk\": %zu, \"Dv\": %zu, \"streams\": %zu, \"context\": %zu, "
	       "\"rows\": %zu, \"command\": \"tests/bench/attn_bench\"}\n", name, value, value, peer, limit, threads, be->name,
	       kind_name(&c->shape), c->shape.v_in_k ? ", values in keys" : "", c->H, c->shape.G, c->shape.Dk, c->shape.Dv, c->nr_seq,
	       c->context, c->rows);
	fflush(stdout);
}

static void bench_decode(struct kv c, const char *name)
{
	size_t page = be->kv_layer_bytes(&c.shape), bytes;
	double attn = INFINITY, plain = INFINITY, peak = INFINITY, end, fmas;
	char peer[96];

	c.rows = 1;
	c.context = pool_bytes / c.nr_seq / page * PAGE;
	kv_init(&c);
	bytes = c.nr_seq * (c.context / PAGE) * page;
	for (end = now() + seconds; now() < end;) {
		attn = fmin(attn, attn_once(&c));
		for (read_way = 0; read_way < READ_WAYS; read_way++)
			plain = fmin(plain, timed(read_chunk, c.pool, (bytes + CHUNK - 1) / CHUNK));
		peak = fmin(peak, timed(peak_task, NULL, threads));
	}
	/* To seconds for all of it. */
	fmas = (double)c.H * (double)(c.shape.Dk + c.shape.Dv) * (double)c.nr_seq * (double)c.context;
	peak *= peak_once() > 0 ? fmas / (peak_once() * (double)threads) : 0;
	snprintf(peer, sizeof(peer), "reading alone, %.1f GB/s", (double)bytes / plain * 1e-9);
	say(name, &c, plain / attn, fmax(plain, peak) / attn, peer);
	kv_fini(&c);
}

static void bench_prefill(struct kv c, const char *name)
{
	double attn = INFINITY, peak = INFINITY, end, fmas;
	char peer[96];

	kv_init(&c);
	fmas = (double)c.H * (double)(c.shape.Dk + c.shape.Dv) * (double)c.rows * (double)c.nr_seq *
	       ((double)(c.context - c.rows) + (double)(c.rows + 1) / 2);
	for (end = now() + seconds; now() < end;) {
		attn = fmin(attn, attn_once(&c));
		peak = fmin(peak, timed(peak_task, NULL, threads));
	}
	peak = peak_once() * (double)threads / peak;
	snprintf(peer, sizeof(peer), "register multiply-adds, %.1f G/s", peak * 1e-9);
	say(name, &c, fmas / attn / peak, fmas / attn / peak, peer);
	kv_fini(&c);
}

/* ---- fused operations, one thread, in the caches ---- */

enum { FT = 8, FC = 2048 };

static float fx[FT * FC], fr[FT * FC], fy[FT * FC], fw[FC];
static uint8_t *fact;
static uint32_t top_id[64];
static float *logits;

static void norm_apart(void)
{
	be->add(fx, fr, FT * FC);
	be->rmsnorm(fy, fx, fw, FT, FC, 1e-5f);
	be->act_prepare(SITS_Q4_0, fy, FC, FT, FC, fact);
}

static void norm_fused(void)
{
	be->add_rmsnorm_prepare(SITS_Q4_0, fx, fr, fw, fy, FT, FC, 1e-5f, fact);
}

static void gated_apart(void)
{
	be->silu_mul(fy, fx, fr, FT * FC);
	be->act_prepare(SITS_Q4_0, fy, FC, FT, FC, fact);
}

static void gated_fused(void)
{
	be->silu_mul_prepare(SITS_Q4_0, fy, fx, fr, FT, FC, fact);
}

static struct sits_rope_store rope;
static const struct sits_kv_shape rope_shape = { .G = 4, .Dk = 128, .Dv = 128 };

static void rope_apart(void)
{
	be->rmsnorm(rope.q, rope.q, fw, 16, 128, 1e-6f);
	be->rmsnorm(rope.k, rope.k, fw, 4, 128, 1e-6f);
	be->rope(rope.q, 2048, &rope.pos, rope.inv_freq, 1, 16, 128, 128, 1);
	be->rope(rope.k, 512, &rope.pos, rope.inv_freq, 1, 4, 128, 128, 1);
	be->kv_store(&rope_shape, rope.layer, 5, rope.k, rope.v);
}

static void rope_fused(void)
{
	be->rope_store(&rope);
}

enum { VOCAB = 151936 };	/* Qwen3's */

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

static void topk_sort(void)
{
	static float copy[VOCAB];

	memcpy(copy, logits, sizeof(copy));
	qsort(copy, VOCAB, sizeof(float), by_value);
}

static void topk_fast(void)
{
	be->topk(logits, VOCAB, 40, top_id);
}

static double best_of(void (*f)(void), double for_seconds)
{
	double best = INFINITY, end = now() + for_seconds, start;

	do {
		start = now();
		f();
		best = fmin(best, now() - start);
	} while (now() < end);
	return best;
}

static void bench_pair(const char *name, void (*fused)(void), void (*apart)(void), const char *peer)
{
	double a = INFINITY, b = INFINITY;

	for (int i = 0; i < 5; i++) {
		a = fmin(a, best_of(fused, seconds / 20));
		b = fmin(b, best_of(apart, seconds / 20));
	}
	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"us\", \"ratio\": %.6g, \"peer\": \"%s\", \"threads\": 1, \"isa\": \"%s\", "
	       "\"command\": \"tests/bench/attn_bench\"}\n", name, a * 1e6, b / a, peer, be->name);
	fflush(stdout);
}

static void bench_fused(void)
{
	fact = alloc(FT * be->act_row_bytes(SITS_Q4_0, FC));
	logits = alloc(VOCAB * sizeof(float));
	for (size_t i = 0; i < FT * FC; i++) {
		fx[i] = fill(i);
		fr[i] = 1e-9f * fill(i + 5);
	}
	for (size_t i = 0; i < FC; i++)
		fw[i] = 1;
	for (size_t i = 0; i < VOCAB; i++)
		logits[i] = fill(i) + fill(i * 7) + fill(i * 13);
	rope = (struct sits_rope_store){ .q = fx, .k = fx + FC, .v = fr, .H = 16, .shape = &rope_shape, .q_norm = fw, .k_norm = fw,
		.eps = 1e-6f, .pos = 1000, .inv_freq = fw, .R = 128, .neox = 1, .q_scale = 1,
		.layer = alloc(be->kv_layer_bytes(&rope_shape)), .slot = 5 };
	bench_pair("fused-add-rmsnorm-prepare", norm_fused, norm_apart, "add, rmsnorm, act_prepare in turn");
	bench_pair("fused-silu-mul-prepare", gated_fused, gated_apart, "silu_mul, act_prepare in turn");
	bench_pair("fused-rope-store", rope_fused, rope_apart, "rmsnorm, rope of q and of k, kv_store in turn");
	bench_pair("topk-40", topk_fast, topk_sort, "a sort of all logits");
	free(fact);
	free(logits);
	free(rope.layer);
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "isa", required_argument, NULL, 'i' }, { "threads", required_argument, NULL, 't' },
		{ "seconds", required_argument, NULL, 's' }, { "only", required_argument, NULL, 'o' },
		{ "pool-mib", required_argument, NULL, 'p' }, { 0 },
	};
	static const struct { const char *name; struct kv c; } decode[] = {
		{ "attention-bandwidth-share", { .shape = { SITS_KV_F16, false, 3, 64, 64 }, .H = 9, .nr_seq = 16 } },
		{ "attention-bandwidth-share-1", { .shape = { SITS_KV_F16, false, 3, 64, 64 }, .H = 9, .nr_seq = 1 } },
		{ "attention-bandwidth-share-i8", { .shape = { SITS_KV_I8, false, 3, 64, 64 }, .H = 9, .nr_seq = 16 } },
		{ "attention-bandwidth-share-gqa8", { .shape = { SITS_KV_F16, false, 4, 128, 128 }, .H = 32, .nr_seq = 16 } },
		{ "attention-bandwidth-share-mla", { .shape = { SITS_KV_F16, true, 1, 576, 512 }, .H = 16, .nr_seq = 16 } },
	};
	static const struct { const char *name; struct kv c; } prefill[] = {
		{ "attention-prefill-peak-share", { .shape = { SITS_KV_F16, false, 4, 128, 128 }, .H = 32, .nr_seq = 1, .context = 2048,
						    .rows = 512 } },
		{ "attention-prefill-peak-share-small", { .shape = { SITS_KV_F16, false, 3, 64, 64 }, .H = 9, .nr_seq = 1,
							  .context = 512, .rows = 512 } },
		{ "attention-prefill-peak-share-f32", { .shape = { SITS_KV_F32, false, 4, 64, 64 }, .H = 4, .nr_seq = 1,
							.context = 1024, .rows = 1024 } },
		{ "attention-prefill-peak-share-mla", { .shape = { SITS_KV_F16, true, 1, 576, 512 }, .H = 16, .nr_seq = 1,
							.context = 1024, .rows = 64 } },
	};
	const char *isa = NULL, *only = "";
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (c == 'i')
			isa = optarg;
		else if (c == 't')
			threads = strtoul(optarg, NULL, 10);
		else if (c == 's')
			seconds = atof(optarg);
		else if (c == 'o')
			only = optarg;
		else if (c == 'p')
			pool_bytes = strtoul(optarg, NULL, 10) << 20;
		else
			return 2;
	}
	be = sits_backend_get(isa);
	if (!be || !threads || threads > MAX_THREADS) {
		fprintf(stderr, "attn_bench: no backend \"%s\" on this machine, or not 1 .. %d threads\n", isa ? isa : "", MAX_THREADS);
		return 1;
	}
	for (size_t i = 0; i < sizeof(decode) / sizeof(decode[0]); i++) {
		if (strstr(decode[i].name, only))
			bench_decode(decode[i].c, decode[i].name);
	}
	for (size_t i = 0; i < sizeof(prefill) / sizeof(prefill[0]) && peak_once() > 0; i++) {
		if (strstr(prefill[i].name, only))
			bench_prefill(prefill[i].c, prefill[i].name);
	}
	if (!*only || strstr(only, "fused") || strstr(only, "topk"))
		bench_fused();
	return 0;
}
