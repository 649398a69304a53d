// SPDX-License-Identifier: MIT
/*
 * tokenizer_bench.c - how fast text becomes tokens. Prints JSON lines.
 *
 * usage: tokenizer_bench MODEL.gguf [ROUNDS]
 *
 * Lines: creation; the texts of tests/golden/tokenizer.corpus, one by one; one megabyte that is one
 * word, of letters and of spaces. Medians of ROUNDS (7).
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"

#define CORPUS "tests/golden/tokenizer.corpus"
#define MAX_ROUNDS 99

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint8_t *slurp(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p = NULL;

	if (f && !fseek(f, 0, SEEK_END)) {
		*len = (size_t)ftell(f);
		rewind(f);
		p = malloc(*len + 1);
	}
	if (!p || fread(p, 1, *len, f) != *len) {
		fprintf(stderr, "tokenizer_bench: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	fclose(f);
	return p;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return v[n / 2];
}

static void report(const char *name, double value, const char *unit, const char *model)
{
	printf("{\"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"peer\": null, \"ratio\": null, \"threads\": 1, "
	       "\"command\": \"tests/bench/tokenizer_bench %s\"}\n", name, value, unit, model);
}

static void encode(const struct sits_tokenizer *tok, const char *text, size_t len, struct sits_tokens *out)
{
	out->nr = 0;
	if (sits_tokenizer_encode(tok, text, len, 0, out)) {
		fprintf(stderr, "tokenizer_bench: encoding failed\n");
		exit(1);
	}
}

static size_t varint(const uint8_t **p)
{
	size_t v = 0;
	int shift = 0;

	do {
		v |= (size_t)(**p & 0x7f) << shift;
		shift += 7;
	} while (*(*p)++ & 0x80);
	return v;
}

/* All texts of the corpus, ten times. Return: bytes. */
static size_t encode_corpus(const struct sits_tokenizer *tok, const uint8_t *corpus, struct sits_tokens *out)
{
	size_t bytes = 0;
	int i;

	for (i = 0; i < 10; i++) {
		const uint8_t *p = corpus;
		size_t nr = varint(&p), len;

		while (nr--) {
			len = varint(&p) >> 1;
			encode(tok, (const char *)p, len, out);
			p += len;
			bytes += len;
		}
	}
	return bytes;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; char c; } words[] = { { "tokenizer-word-1mb", 'a' }, { "tokenizer-spaces-1mb", ' ' } };
	int rounds = argc > 2 ? atoi(argv[2]) : 7, i, w;
	double t[MAX_ROUNDS], start;
	struct sits_tokens out = { 0 };
	struct sits_tokenizer *tok = NULL;
	struct sits_diag diag = { 0 };
	size_t len, bytes, corpus_len;
	uint8_t *file, *corpus, *big;
	struct sits_gguf *g;

	if (argc < 2 || rounds < 1 || rounds > MAX_ROUNDS) {
		fprintf(stderr, "usage: tokenizer_bench MODEL.gguf [ROUNDS, 1 to %d]\n", MAX_ROUNDS);
		return 2;
	}
	file = slurp(argv[1], &len);
	corpus = slurp(CORPUS, &corpus_len);
	if (sits_gguf_open(file, len, &g, &diag)) {
		fprintf(stderr, "tokenizer_bench: %s: %s\n", argv[1], diag.msg);
		return 1;
	}
	for (i = 0; i < rounds; i++) {
		sits_tokenizer_destroy(tok);
		start = now();
		if (sits_tokenizer_create(g, &tok, &diag)) {
			fprintf(stderr, "tokenizer_bench: %s: %s\n", argv[1], diag.msg);
			return 1;
		}
		t[i] = now() - start;
	}
	report("tokenizer-create", 1e3 * median(t, rounds), "ms", argv[1]);
	for (i = 0; i < rounds; i++) {
		start = now();
		bytes = encode_corpus(tok, corpus, &out);
		t[i] = (double)bytes / (now() - start);
	}
	report("tokenizer", 1e-6 * median(t, rounds), "MB/s", argv[1]);
	big = malloc(1000000);
	for (w = 0; w < 2 && big; w++) {
		memset(big, words[w].c, 1000000);
		for (i = 0; i < rounds; i++) {
			start = now();
			encode(tok, (char *)big, 1000000, &out);
			t[i] = now() - start;
		}
		report(words[w].name, 1e3 * median(t, rounds), "ms", argv[1]);
	}
	free(big);
	sits_tokens_fini(&out);
	sits_tokenizer_destroy(tok);
	sits_gguf_close(g);
	free(file);
	free(corpus);
	return 0;
}
