// SPDX-License-Identifier: MIT
/*
 * crypto_bench.c - SM3 of crypto/ against OpenSSL's on one core: a JSON object a line. SM4 is in sm4_bench.c.
 *
 * Each figure is the fastest of many runs over 1 MiB, in thread CPU time, so that a busy machine matters little.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/evp.h>

#include "crypto/sm3.h"

#define LEN (1u << 20)

static uint8_t buf[LEN];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* GB/s of the fastest run within half a second, after one that warms up. */
static double rate(void (*fn)(void))
{
	double start, best = 1e9;

	fn();
	for (start = now(); now() - start < 0.5;) {
		double t = now();

		fn();
		t = now() - t;
		best = t < best ? t : best;
	}
	return LEN / best / 1e9;
}

static void ours_sm3(void)
{
	struct sits_sm3 s;
	uint8_t out[32];

	sits_sm3_init(&s);
	sits_sm3_update(&s, buf, LEN);
	sits_sm3_final(&s, out);
}

static void openssl_sm3(void)
{
	unsigned char out[32];

	EVP_Digest(buf, LEN, out, NULL, EVP_sm3(), NULL);
}

int main(void)
{
	double ours = rate(ours_sm3), theirs = rate(openssl_sm3);

	printf("{\"name\": \"sm3\", \"value\": %.6g, \"unit\": \"GB/s\", \"peer\": \"OpenSSL %s\", \"ratio\": %.6g, "
	       "\"threads\": 1, \"command\": \"crypto_bench\"}\n", ours, OpenSSL_version(OPENSSL_VERSION_STRING), ours / theirs);
	return 0;
}
