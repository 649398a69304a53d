// SPDX-License-Identifier: MIT
/*
 * engine_bench.c - the engine's side of the benchmarks; tests/bench/peer_llama.py is the other one.
 *
 * usage: engine_bench MODEL.gguf THREADS [KV_BYTES]
 *
 * KV_BYTES is the engine's kv_bytes; it matters to scaling alone.
 *
 * Reads commands from standard input, one a line, and answers each with one JSON line:
 *	decode-1 PROMPT N	tokens/s of N greedy tokens after PROMPT tokens, one stream
 *	prefill-512 N		tokens/s of one prompt of N tokens
 *	batch-8 S PROMPT N	tokens/s, all together, of S streams that decode N tokens each
 *	scaling S CONTEXT N	tokens/s of S streams that draw N tokens each, the last of which makes CONTEXT tokens full, and
 *				step_ms, both medians of the steps; a null value and a reason where the model's context or
 *				the KV pool is too small
 *	read-bandwidth		GB/s of reading the weights alone, by the same threads
 *
 * For scaling one stream's prompt is computed; the others get copies of its keys and values, in pages of their own, under
 * scopes of their own. A step then reads as much memory as if each had computed its prompt, and 64 streams
 * of 8,192 tokens are ready in seconds, not in a quarter of an hour. Each stream's last prompt token is its own and is
 * computed, so that streams, and their choices of experts, go their own ways.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engine/engine_impl.h"
#include "daemon/model/model.h"
#include "tests/bench/read_mem.h"

#define MAX_STREAMS 64
#define MAX_STEPS 256
#define SOURCE_SCOPE 1	/* of the prompt that is computed; stream i has SOURCE_SCOPE + i */

struct bench {
	const void *image;
	size_t len, weight_bytes;
	struct sits_model *m;
	struct sits_engine *e;
	uint32_t threads;
	int32_t *ids;		/* the source's tokens, [source_nr] */
	uint32_t source_nr;
	struct sits_kv_table source;	/* holds its pages, so that none is evicted */
};

/* What all streams of one measurement tell. */
struct run {
	uint32_t streams, started, done, tokens;
	uint64_t from_ns, to_ns;	/* all have started; all are done */
	uint32_t from_tokens;
	uint32_t min_cached;	/* prompt tokens that each stream found */
	int status;
};

struct stream {
	struct run *run;
	bool started;
};

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "engine_bench: %s: %s\n", what, why);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void on_logits(void *arg, const float *logits, size_t vocab)
{
	struct stream *s = arg;
	struct run *r = s->run;

	r->tokens++;
	if (s->started)
		return;
	s->started = true;
	if (++r->started == r->streams) {
		r->from_ns = now_ns();
		r->from_tokens = r->tokens;
	}
}

static void on_done(void *arg, const struct sits_gen_result *res)
{
	struct stream *s = arg;

	s->run->to_ns = now_ns();
	s->run->done++;
	if (res->cached_tokens < s->run->min_cached)
		s->run->min_cached = res->cached_tokens;
	if (res->status)
		s->run->status = res->status;
}

/* A made-up token, the peer's: the @j-th of stream @i. */
static int32_t made_up(const struct bench *b, uint32_t i, uint32_t j)
{
	return (1000 + (j * 7919ull + i * 104729ull) % 40000) % b->m->hp.vocab;
}

/* @nr streams of @prompt made-up tokens, and @n decode steps each. Returns the start. */
static uint64_t generate(struct bench *b, struct run *r, uint32_t nr, uint32_t prompt, uint32_t n)
{
	struct stream s[MAX_STREAMS];
	struct sits_gen_sink sink = { .done = on_done, .logits = on_logits };
	struct sits_gen_params p = { .nr_prompt = prompt, .max_tokens = n + 1, .ignore_eos = true,
				     .sampling = { .top_p = 1, .repeat_penalty = 1 } };
	struct sits_diag diag = { 0 };
	int32_t *ids = malloc(prompt * sizeof(*ids));
	uint64_t id, start;
	uint32_t i, j;
	int ret;

	if (!ids || !nr || nr > MAX_STREAMS || !prompt)
		die("arguments", "out of range");
	*r = (struct run){ .streams = nr };
	for (i = 0; i < nr; i++) {
		for (j = 0; j < prompt; j++)
			ids[j] = made_up(b, i, j);
		s[i] = (struct stream){ .run = r };
		sink.arg = &s[i];
		p.prompt = ids;
		if (sits_engine_submit(b->e, &p, &sink, &id, &diag))
			die("submit", diag.msg);
	}
	free(ids);
	start = now_ns();
	while ((ret = sits_engine_step(b->e)) > 0)
		;
	if (ret || r->status || r->done != nr)
		die("step", "failed");
	return start;
}

static double decode(struct bench *b, uint32_t streams, uint32_t prompt, uint32_t n)
{
	struct run r;

	generate(b, &r, streams, prompt, n);
	return (r.tokens - r.from_tokens) * 1e9 / (r.to_ns - r.from_ns);
}

static double prefill(struct bench *b, uint32_t n)
{
	struct run r;
	uint64_t start = generate(b, &r, 1, n, 0);

	return n * 1e9 / (r.from_ns - start);
}

/* ---- cost as work grows ---- */

static void submit(struct bench *b, const int32_t *ids, uint32_t prompt, uint32_t n, uint64_t scope, struct stream *s)
{
	const struct sits_gen_sink sink = { .done = on_done, .logits = on_logits, .arg = s };
	const struct sits_gen_params p = { .prompt = ids, .nr_prompt = prompt, .max_tokens = n, .ignore_eos = true,
					   .prefix_scope = scope, .sampling = { .top_p = 1, .repeat_penalty = 1 } };
	struct sits_diag diag = { 0 };
	uint64_t id;

	if (sits_engine_submit(b->e, &p, &sink, &id, &diag))
		die("submit", diag.msg);
}

/* Compute the source's first @nr tokens, or those that are lacking. */
static void extend_source(struct bench *b, uint32_t nr)
{
	struct run r = { .streams = 1 };
	struct stream s = { .run = &r };
	int ret;

	if (nr <= b->source_nr)
		return;
	sits_kv_release(&b->e->kv, &b->source);
	submit(b, b->ids, nr, 1, SOURCE_SCOPE, &s);
	while ((ret = sits_engine_step(b->e)) > 0)
		;
	if (ret || r.status)
		die("scaling", "computing the prompt failed");
	if (sits_kv_match(&b->e->kv, &b->source, SOURCE_SCOPE, b->ids, nr) != nr)
		die("scaling", "the prompt's pages are not found");
	b->source_nr = nr;
}

/* Index a copy of the source's first @nr tokens under @scope, but for the pages that are there. */
static void copy_source(struct bench *b, uint64_t scope, uint32_t nr)
{
	struct sits_kv *kv = &b->e->kv;
	struct sits_kv_table t = { 0 };
	uint32_t i;

	i = sits_kv_match(kv, &t, scope, b->ids, nr) / SITS_KV_PAGE_TOKENS;
	if (sits_kv_grow(kv, &t, nr))
		die("scaling", "no KV pages for a copy");
	for (; i < t.nr; i++)
		memcpy(kv->base + t.page[i] * kv->page_bytes, kv->base + b->source.page[i] * kv->page_bytes,
		       kv->page_bytes);
	sits_kv_index(kv, &t, scope, b->ids, nr, true);
	sits_kv_release(kv, &t);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * Median seconds of the steps in which all @nr streams decode. The first step computes the prompts' last tokens and copies
 * the pages that are shared in part, the last one lets pages go: neither counts.
 */
static double step_seconds(struct bench *b, uint32_t nr, uint32_t prompt, uint32_t n)
{
	struct run r = { .streams = nr, .min_cached = prompt };
	struct stream s[MAX_STREAMS];
	double took[MAX_STEPS];
	uint32_t i, steps = 0, before;
	uint64_t start;
	int ret = 1;

	for (i = 0; i < nr; i++) {
		s[i] = (struct stream){ .run = &r };
		/* submit() copies the prompt */
		b->ids[prompt - 1] = made_up(b, i + 1, prompt - 1);
		submit(b, b->ids, prompt, n, SOURCE_SCOPE + i, &s[i]);
	}
	b->ids[prompt - 1] = made_up(b, 0, prompt - 1);
	while (ret > 0) {
		before = r.tokens;
		start = now_ns();
		ret = sits_engine_step(b->e);
		if (before >= nr && r.tokens - before == nr && !r.done)
			took[steps++] = (now_ns() - start) * 1e-9;
	}
	if (ret || r.status || r.done != nr)
		die("step", "failed");
	if (r.min_cached != prompt - 1 || steps != n - 2)
		die("scaling", "the streams did not run side by side on copied pages");
	qsort(took, steps, sizeof(*took), by_size);
	return steps % 2 ? took[steps / 2] : (took[steps / 2 - 1] + took[steps / 2]) / 2;
}

/* Whether it fits: the source's pages, those of each stream, and for each a page shared in part. */
static bool scaling_fits(struct bench *b, uint32_t nr, uint32_t context)
{
	uint64_t need, page = b->e->kv.page_bytes;

	if (context > b->e->context) {
		printf("{\"name\": \"scaling\", \"value\": null, \"why\": \"the model has a context of %" PRIu32 "\"}\n",
		       b->e->context);
		return false;
	}
	need = (uint64_t)sits_kv_pages(context) * (nr + 1) + nr;
	if (need > b->e->kv.nr_pages) {
		printf("{\"name\": \"scaling\", \"value\": null, \"why\": \"%.1f GiB of KV pages are needed, there are "
		       "%.1f\"}\n", (double)need * page / (1 << 30), (double)b->e->kv.nr_pages * page / (1 << 30));
		return false;
	}
	return true;
}

static void scaling(struct bench *b, uint32_t nr, uint32_t context, uint32_t n)
{
	double seconds;
	uint32_t i;

	/* The prompt, context - n tokens, has a page to find and a token of its own; the index finds no part of a page below 4. */
	if (!nr || nr > MAX_STREAMS || n < 3 || n > MAX_STEPS || context < n + SITS_KV_PAGE_TOKENS + 1 ||
	    (context - n - 1) % SITS_KV_PAGE_TOKENS < 4)
		die("scaling", "arguments out of range");
	if (!scaling_fits(b, nr, context))
		return;
	extend_source(b, context - n);
	for (i = 1; i < nr; i++)
		copy_source(b, SOURCE_SCOPE + i, context - n);
	seconds = step_seconds(b, nr, context - n, n);
	printf("{\"name\": \"scaling\", \"value\": %.6g, \"unit\": \"tokens/s\", \"threads\": %u, \"streams\": %u, "
	       "\"context\": %u, \"step_ms\": %.6g}\n", nr / seconds, b->threads, nr, context, seconds * 1e3);
}

/* ---- the limit ---- */

#define CHUNK (256u << 10)

struct reader {
	struct sits_threads *t;
	const uint8_t *p;
	size_t len;
	unsigned int way;
	_Atomic uint64_t sum;
};

static void read_chunk(void *arg, size_t i, uint32_t self)
{
	struct reader *r = arg;
	size_t left = r->len - i * CHUNK;

	r->sum ^= read_mem(r->p + i * CHUNK, left < CHUNK ? left : CHUNK, r->way);
}

static void read_body(void *arg, uint32_t self)
{
	struct reader *r = arg;

	sits_threads_stage(r->t, self, (r->len + CHUNK - 1) / CHUNK, read_chunk, NULL, r);
}

static double read_bandwidth(struct bench *b)
{
	/* The engine's own team: it has pinned this thread, and another team's would all be where this one is. */
	struct reader r = { .t = b->e->team, .p = b->image, .len = b->len };
	uint64_t start, took, best = UINT64_MAX;
	int i;

	for (i = 0; i < 4 * READ_WAYS; i++) {
		r.way = (unsigned int)i % READ_WAYS;
		start = now_ns();
		sits_threads_run(r.t, read_body, &r);
		took = now_ns() - start;
		best = took < best ? took : best;
	}
	return (double)b->len / best;
}

static void answer(struct bench *b, const char *line)
{
	unsigned int x[3] = { 0 };
	char name[64];
	double value;

	if (sscanf(line, "%63s %u %u %u", name, &x[0], &x[1], &x[2]) < 1)
		return;
	if (!strcmp(name, "scaling")) {
		scaling(b, x[0], x[1], x[2]);
		fflush(stdout);
		return;
	}
	if (!strcmp(name, "decode-1"))
		value = decode(b, 1, x[0], x[1]);
	else if (!strcmp(name, "prefill-512"))
		value = prefill(b, x[0]);
	else if (!strcmp(name, "batch-8"))
		value = decode(b, x[0], x[1], x[2]);
	else if (!strcmp(name, "read-bandwidth"))
		value = read_bandwidth(b);
	else
		die(name, "unknown command");
	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"threads\": %u}\n", name, value,
	       strcmp(name, "read-bandwidth") ? "tokens/s" : "GB/s", b->threads);
	fflush(stdout);
}

static void load(struct bench *b, const char *path)
{
	struct sits_diag diag = { 0 };
	struct stat st;
	uint64_t i;
	void *p;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		die(path, strerror(errno));
	b->len = st.st_size;
	/* A copy in anonymous huge pages, as a region holds it; page-cache pages would be measured otherwise. */
	p = mmap(NULL, b->len + (2u << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die(path, strerror(errno));
	p = (void *)(((uintptr_t)p + (2u << 20) - 1) & ~(uintptr_t)((2u << 20) - 1));
	madvise(p, b->len, MADV_HUGEPAGE);
	for (i = 0; i < b->len; i += st.st_blksize)
		if (pread(fd, (char *)p + i, b->len - i < (size_t)st.st_blksize ? b->len - i : (size_t)st.st_blksize,
			  i) < 0)
			die(path, strerror(errno));
	close(fd);
	b->image = p;
	if (sits_model_open(p, b->len, &b->m, &diag))
		die(path, diag.msg);
	/* The embedding is read a row at a time, unless it is the output matrix as well. */
	for (i = 0; i < sits_gguf_nr_tensors(b->m->gguf); i++)
		b->weight_bytes += sits_gguf_tensor_at(b->m->gguf, i)->bytes;
	if (b->m->output.data != b->m->tok_embd.data)
		b->weight_bytes -= b->m->tok_embd.row_bytes * b->m->tok_embd.N;
}

static void create(struct bench *b, uint64_t kv_bytes)
{
	const struct sits_engine_opts o = { .threads = b->threads, .pin = 1, .max_seqs = MAX_STREAMS,
					    .kv_bytes = kv_bytes };
	struct sits_diag diag = { 0 };
	uint32_t j;

	if (sits_engine_create(b->m, &o, &b->e, &diag))
		die("engine", diag.msg);
	b->ids = malloc(b->m->hp.context * sizeof(*b->ids));
	if (!b->ids)
		die("engine", "no memory");
	for (j = 0; j < b->m->hp.context; j++)
		b->ids[j] = made_up(b, 0, j);
}

int main(int argc, char **argv)
{
	struct sits_engine_stats st;
	struct bench b = { 0 };
	char line[256];

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: engine_bench MODEL.gguf THREADS [KV_BYTES]\n");
		return 2;
	}
	load(&b, argv[1]);
	b.threads = strtoul(argv[2], NULL, 10);
	create(&b, argc == 4 ? strtoull(argv[3], NULL, 10) : 0);
	sits_engine_get_stats(b.e, &st);
	printf("{\"ready\": true, \"isa\": \"%s\", \"threads\": %u, \"weight_bytes\": %zu}\n", st.isa, st.threads,
	       b.weight_bytes);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(&b, line);
	sits_kv_release(&b.e->kv, &b.source);
	sits_engine_destroy(b.e);
	sits_model_close(b.m);
	free(b.ids);
	return 0;
}
