// SPDX-License-Identifier: MIT
/*
 * reuse_bench.c - what guessing and shared prefixes save: one engine with, one without, in turns.
 *
 * usage: reuse_bench MODEL.gguf THREADS ROUNDS
 *
 * Prints finished JSON lines; ratio is with over without:
 *	decode-1-lookup		tokens/s of 128 greedy tokens after a text of 64 tokens that repeats, guesses by lookup
 *	decode-1-lookup-worst	the same after tokens without any repetition: what guessing costs where it fails
 *	first-token-cached	1/s until the first token of a prompt of 512 tokens, all but 8 of them seen before
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
#include "daemon/model/model.h"

#define MAX_ROUNDS 99
#define PROMPT 512

struct run {
	uint64_t first_ns, end_ns;
	uint32_t tokens, cached;
};

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "reuse_bench: %s: %s\n", what, why);
	exit(1);
}

static void on_done(void *arg, const struct sits_gen_result *res)
{
	struct run *r = arg;

	if (res->status)
		die("request", res->why);
	*r = (struct run){ res->first_token_ns - res->start_ns, res->end_ns - res->first_token_ns, res->completion_tokens,
			   res->cached_tokens };
}

static struct run generate(struct sits_engine *e, const int32_t *prompt, size_t nr, uint32_t max_tokens, uint64_t scope)
{
	struct run r = { 0 };
	const struct sits_gen_sink sink = { .done = on_done, .arg = &r };
	const struct sits_gen_params p = {
		.prompt = prompt, .nr_prompt = nr, .max_tokens = max_tokens, .ignore_eos = true, .prefix_scope = scope,
		.sampling = { .top_p = 1, .repeat_penalty = 1 },
	};
	struct sits_diag diag = { 0 };
	uint64_t id;

	if (sits_engine_submit(e, &p, &sink, &id, &diag))
		die("submit", diag.msg);
	while (sits_engine_step(e) > 0)
		;
	return r;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, n, sizeof(*v), by_size);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void tell(const char *name, const char *unit, const char *peer, double *with, double *without, int n,
		 uint32_t threads)
{
	double a = median(with, n), b = median(without, n);

	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"peer\": \"%s, %.4g\", \"ratio\": %.4g, \"threads\": %"
	       PRIu32 ", \"command\": \"make bench BENCH=reuse\"}\n", name, a, unit, peer, b, a / b, threads);
	fflush(stdout);
}

static double decode_rate(struct sits_engine *e, const int32_t *prompt, size_t nr)
{
	struct run r = generate(e, prompt, nr, 128, 0);

	return (r.tokens - 1) * 1e9 / r.end_ns;
}

static void bench_lookup(const char *name, struct sits_engine *with, struct sits_engine *without, const int32_t *prompt,
			 int rounds, uint32_t threads)
{
	double a[MAX_ROUNDS], b[MAX_ROUNDS];
	struct sits_engine_stats s, t;
	int i;

	sits_engine_get_stats(with, &s);
	for (i = 0; i < rounds; i++) {
		a[i] = decode_rate(with, prompt, 64);
		b[i] = decode_rate(without, prompt, 64);
	}
	sits_engine_get_stats(with, &t);
	fprintf(stderr, "reuse_bench: %s: %" PRIu64 " of %" PRIu64 " guesses right\n", name,
		t.draft_accepted - s.draft_accepted, t.draft_tokens - s.draft_tokens);
	tell(name, "tokens/s", "the same without guesses", a, b, rounds, threads);
}

static void bench_prefix(struct sits_engine *e, int32_t *prompt, int rounds, uint32_t threads)
{
	double a[MAX_ROUNDS], b[MAX_ROUNDS];
	struct run r;
	int i;

	generate(e, prompt, PROMPT, 1, 1);
	for (i = 0; i < rounds; i++) {
		prompt[PROMPT - 8] = 2000 + i;
		r = generate(e, prompt, PROMPT, 1, 1);
		if (r.cached < PROMPT - 2 * 32)
			die("first-token-cached", "the prefix was not found");
		a[i] = 1e9 / r.first_ns;
		b[i] = 1e9 / generate(e, prompt, PROMPT, 1, 0).first_ns;
	}
	tell("first-token-cached", "1/s", "the same prompt, computed", a, b, rounds, threads);
}

static struct sits_model *load(const char *path)
{
	struct sits_diag diag = { 0 };
	struct sits_model *m;
	struct stat st;
	void *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st))
		die(path, strerror(errno));
	p = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		die(path, strerror(errno));
	close(fd);
	if (sits_model_open(p, st.st_size, &m, &diag))
		die(path, diag.msg);
	return m;
}

int main(int argc, char **argv)
{
	struct sits_engine_opts o = { .pin = 1, .max_seqs = 4 };
	struct sits_engine *with, *without;
	struct sits_diag diag = { 0 };
	int32_t prompt[PROMPT];
	struct sits_model *m;
	int i, rounds;

	if (argc != 4 || (rounds = atoi(argv[3])) < 1 || rounds > MAX_ROUNDS) {
		fprintf(stderr, "usage: reuse_bench MODEL.gguf THREADS ROUNDS\n");
		return 2;
	}
	m = load(argv[1]);
	o.threads = strtoul(argv[2], NULL, 10);
	if (m->hp.vocab < 41000 || sits_engine_create(m, &o, &without, &diag))
		die("engine", diag.msg[0] ? diag.msg : "the model's vocabulary is too small");
	o.speculation = SITS_SPEC_LOOKUP;
	if (sits_engine_create(m, &o, &with, &diag))
		die("engine", diag.msg);
	/* Sixteen made-up tokens over and over: the model goes on with them. */
	for (i = 0; i < PROMPT; i++)
		prompt[i] = 1000 + (i % 16 * 7919) % 40000;
	bench_lookup("decode-1-lookup", with, without, prompt, rounds, o.threads);
	for (i = 0; i < PROMPT; i++)
		prompt[i] = 1000 + (i * 7919) % 40000;
	bench_lookup("decode-1-lookup-worst", with, without, prompt, rounds, o.threads);
	bench_prefix(without, prompt, rounds, o.threads);
	sits_engine_destroy(with);
	sits_engine_destroy(without);
	sits_model_close(m);
	return 0;
}
