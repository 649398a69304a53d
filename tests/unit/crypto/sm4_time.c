// SPDX-License-Identifier: MIT
/*
 * sm4_time.c - does the time that SM4 takes tell keys or texts apart? Measured, for every core and mode, as in "Dude, is my code
 * constant time?" (Reparaz, Balasch, Verbauwhede 2017): one class of calls has one key and text, the other has random ones, in
 * random order; Welch's t between the two, over all times and over the faster 99, 95, 90, 75 and 50 in a hundred. `make
 * check-crypto-time` runs it; not a test of `make test`, since a busy machine may upset it.
 *
 *	sm4_time [SAMPLES]	calls of each (200,000)
 *
 * An |t| over 10 fails; over 5, it is measured twice more, and the least counts.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include "tests/unit/crypto/sm4_ops.h"

#if defined(__x86_64__)
#include <x86intrin.h>

#define BATCH	2000
#define LEN	1040	/* a batch and a block of the widest core; 16 blocks and more of the others */
#define FAILS	10.0
#define SUSPECT	5.0

static const double crops[] = { 1.0, 0.99, 0.95, 0.90, 0.75, 0.50 };
#define NR_CROPS (sizeof(crops) / sizeof(crops[0]))

/* Of one class, under one crop: Welford's sums. */
struct sums {
	double n, mean, m2;
};

static struct {
	u8 raw[BATCH][32], text[BATCH][LEN], tag[BATCH][16];
	u8 class[BATCH];
	u8 fixed_raw[32], fixed_text[LEN];
	uint64_t time[BATCH], sorted[BATCH];
	/* what a call works on, always the same memory */
	u8 key_raw[32], iv[16], src[LEN], dst[LEN];
	union op_key key;
} room __attribute__((aligned(64)));

static void add(struct sums *s, double x)
{
	double d = x - s->mean;

	s->n++;
	s->mean += d / s->n;
	s->m2 += d * (x - s->mean);
}

static double welch(const struct sums *a, const struct sums *b)
{
	double v;

	if (a->n < 2 || b->n < 2)
		return 0;
	v = a->m2 / (a->n - 1) / a->n + b->m2 / (b->n - 1) / b->n;
	return v > 0 ? fabs(a->mean - b->mean) / sqrt(v) : 0;
}

static inline uint64_t now(void)
{
	unsigned int cpu;
	uint64_t t;

	_mm_lfence();
	t = __rdtscp(&cpu);
	_mm_lfence();
	return t;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void prepare(const struct sits_sm4_core *core, int op, size_t len)
{
	for (int i = 0; i < BATCH; i++) {
		room.class[i] = test_random() & 1;
		if (room.class[i]) {
			test_fill(room.raw[i], 32);
			for (size_t at = 0; at < len; at += 8) {
				uint64_t r = test_random();

				memcpy(room.text[i] + at, &r, 8);
			}
		} else {
			memcpy(room.raw[i], room.fixed_raw, 32);
			memcpy(room.text[i], room.fixed_text, len);
		}
		if (op == OP_GCM_DECRYPT) {
			struct op_args a = { .core = core, .raw = room.raw[i], .iv = room.iv, .iv_len = 12, .dst = room.dst,
					     .src = room.text[i], .len = len };

			op_gcm_key(core, &room.key, room.raw[i]);
			ops[OP_GCM_ENCRYPT].run(&room.key, &a);
			memcpy(room.text[i], room.dst, len);
			memcpy(room.tag[i], a.tag, 16);
		}
	}
}

/* op < 0: making the keys of -op - 1. */
static void measure_batch(const struct sits_sm4_core *core, int op, size_t len)
{
	for (int i = 0; i < BATCH; i++) {
		struct op_args a = { .core = core, .raw = room.key_raw, .iv = room.iv, .iv_len = op >= 0 && ops[op].aead ? 12 : 16,
				     .dst = room.dst, .src = room.src, .len = len };
		uint64_t t;

		memcpy(room.key_raw, room.raw[i], 32);
		memcpy(room.src, room.text[i], len);
		memcpy(a.tag, room.tag[i], 16);
		if (op < 0) {
			t = now();
			ops[-op - 1].set_key(core, &room.key, room.key_raw);
		} else {
			ops[op].set_key(core, &room.key, room.key_raw);
			t = now();
			(void)ops[op].run(&room.key, &a);
		}
		room.time[i] = now() - t;
	}
}

static double measure(const struct sits_sm4_core *core, int op, size_t len, unsigned long samples)
{
	struct sums sums[2][NR_CROPS] = { 0 };
	uint64_t limit[NR_CROPS] = { 0 };
	double worst = 0;

	test_fill(room.fixed_raw, 32);
	memset(room.fixed_text, 0, len);
	for (unsigned long done = 0; done <= samples; done += BATCH) {
		prepare(core, op, len);
		measure_batch(core, op, len);
		if (!done) {	/* warms up, and tells where to crop */
			memcpy(room.sorted, room.time, sizeof(room.time));
			qsort(room.sorted, BATCH, sizeof(room.sorted[0]), by_value);
			for (size_t c = 0; c < NR_CROPS; c++)
				limit[c] = c ? room.sorted[(size_t)(crops[c] * BATCH) - 1] : UINT64_MAX;
			continue;
		}
		for (int i = 0; i < BATCH; i++) {
			for (size_t c = 0; c < NR_CROPS; c++) {
				if (room.time[i] <= limit[c])
					add(&sums[room.class[i]][c], (double)room.time[i]);
			}
		}
	}
	for (size_t c = 0; c < NR_CROPS; c++) {
		double t = welch(&sums[0][c], &sums[1][c]);

		worst = t > worst ? t : worst;
	}
	return worst;
}

/* A branch on one bit in a text: what the measurement has to see. */
static const struct sits_sm4_core *const *cores;
static unsigned int nr_cores;

static void leaky_crypt(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks)
{
	sits_sm4_portable.crypt(k, dst, src, nr_blocks);
	if (src[0] & 1)
		sits_sm4_portable.crypt(k, dst, src, 1);
}

int main(int argc, char **argv)
{
	static const int measured[] = { -OP_CTR - 1, -OP_GCM_ENCRYPT - 1, OP_ECB_ENCRYPT, OP_ECB_DECRYPT, OP_CBC_ENCRYPT,
					OP_CBC_DECRYPT, OP_CTR, OP_STREAM, OP_XTS_ENCRYPT, OP_XTS_GB_DECRYPT, OP_GCM_ENCRYPT,
					OP_GCM_DECRYPT, OP_CORE_CTR32, OP_CORE_GHASH };
	unsigned long samples = argc > 1 ? strtoul(argv[1], NULL, 0) : 200000;
	const unsigned int nr_measured = sizeof(measured) / sizeof(measured[0]);
	struct sits_sm4_core leaky = sits_sm4_portable;
	unsigned int nr = 0, failed = 0;
	double t;

	test_seed_init();
	cores = sits_sm4_cores(&nr_cores);
	printf("1..%u\n", 1 + nr_cores * nr_measured);
	leaky.crypt = leaky_crypt;
	t = measure(&leaky, OP_CORE_ENCRYPT, 256, samples < 20000 ? samples : 20000);
	failed += t < FAILS;
	printf("%sok %u - a branch on one bit of the text is seen: t = %.1f\n", t < FAILS ? "not " : "", ++nr, t);
	for (unsigned int c = 0; c < nr_cores; c++) {
		for (unsigned int m = 0; m < nr_measured; m++) {
			int op = measured[m];
			size_t len = op >= 0 && ops[op].step == 1 ? LEN - 3 : LEN;

			t = measure(cores[c], op, len, samples);
			for (int again = 0; again < 2 && t > SUSPECT; again++)
				t = fmin(t, measure(cores[c], op, len, samples));
			failed += t > FAILS;
			printf("%sok %u - %s: %s%s, %zu bytes: t = %.1f\n", t > FAILS ? "not " : "", ++nr, cores[c]->name,
			       op < 0 ? "the key of " : "", ops[op < 0 ? -op - 1 : op].name, op < 0 ? (size_t)0 : len, t);
			fflush(stdout);
		}
	}
	printf("# %lu calls of each\n", samples);
	return failed ? 1 : 0;
}

#else

int main(void)
{
	printf("1..0 # SKIP the time stamp counter is x86's\n");
	return 0;
}

#endif
