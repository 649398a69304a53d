// SPDX-License-Identifier: MIT
/*
 * engine_bench.c - the engine's side of the benchmarks; tests/bench/peer_llama.py is the other one.
 *
 * usage: engine_bench MODEL.gguf THREADS
 *
 * Reads commands from standard input, one a line, and answers each with one JSON line:
 *	decode-1 PROMPT N	tokens/s of N greedy tokens after PROMPT tokens, one stream
 *	prefill-512 N		tokens/s of one prompt of N tokens
 *	batch-8 S PROMPT N	tokens/s, all together, of S streams that decode N tokens each
 *	read-bandwidth		GB/s of a plain read of the weights by the same number of threads
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

#include "daemon/engine/engine.h"
#include "daemon/engine/threads.h"
#include "daemon/model/model.h"

#define MAX_STREAMS 64

struct bench {
	const void *image;
	size_t len, weight_bytes;
	struct sits_model *m;
	struct sits_engine *e;
	uint32_t threads;
};

/* What all streams of one measurement tell. */
struct run {
	uint32_t streams, started, done, tokens;
	uint64_t from_ns, to_ns;	/* all have started; all are done */
	uint32_t from_tokens;
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
	if (res->status)
		s->run->status = res->status;
}

/* @nr streams of @prompt made-up tokens, the peer's, and @n decode steps each. Returns the start. */
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
			ids[j] = (1000 + (j * 7919ull + i * 104729ull) % 40000) % b->m->hp.vocab;
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

typedef uint64_t vec __attribute__((vector_size(64), aligned(1), may_alias));

#define CHUNK (256u << 10)

struct reader {
	struct sits_threads *t;
	const uint8_t *p;
	size_t len;
	_Atomic uint64_t sum;
};

static void read_chunk(void *arg, size_t i, uint32_t self)
{
	struct reader *r = arg;
	const uint8_t *p = r->p + i * CHUNK, *end = p + CHUNK < r->p + r->len ? p + CHUNK : r->p + r->len;
	vec a = { 0 }, b = { 0 };

	for (; p + 128 <= end; p += 128) {
		a ^= *(const vec *)p;
		b ^= *(const vec *)(p + 64);
	}
	a ^= b;
	r->sum ^= a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}

static void read_body(void *arg, uint32_t self)
{
	struct reader *r = arg;

	sits_threads_stage(r->t, self, (r->len + CHUNK - 1) / CHUNK, read_chunk, NULL, r);
}

static double read_bandwidth(struct bench *b)
{
	struct reader r = { .p = b->image, .len = b->len };
	uint64_t start, took, best = UINT64_MAX;
	int i;

	if (sits_threads_create(b->threads, 1, &r.t, NULL))
		die("threads", "cannot start");
	for (i = 0; i < 8; i++) {
		start = now_ns();
		sits_threads_run(r.t, read_body, &r);
		took = now_ns() - start;
		best = took < best ? took : best;
	}
	sits_threads_destroy(r.t);
	return (double)b->len / best;
}

static void answer(struct bench *b, const char *line)
{
	unsigned int x[3] = { 0 };
	char name[64];
	double value;

	if (sscanf(line, "%63s %u %u %u", name, &x[0], &x[1], &x[2]) < 1)
		return;
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

int main(int argc, char **argv)
{
	struct sits_engine_opts o = { .pin = 1, .max_seqs = MAX_STREAMS };
	struct sits_diag diag = { 0 };
	struct sits_engine_stats st;
	struct bench b = { 0 };
	char line[256];

	if (argc != 3) {
		fprintf(stderr, "usage: engine_bench MODEL.gguf THREADS\n");
		return 2;
	}
	load(&b, argv[1]);
	b.threads = o.threads = strtoul(argv[2], NULL, 10);
	if (sits_engine_create(b.m, &o, &b.e, &diag))
		die("engine", diag.msg);
	sits_engine_get_stats(b.e, &st);
	printf("{\"ready\": true, \"isa\": \"%s\", \"threads\": %u, \"weight_bytes\": %zu}\n", st.isa, st.threads,
	       b.weight_bytes);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(&b, line);
	sits_engine_destroy(b.e);
	sits_model_close(b.m);
	return 0;
}
