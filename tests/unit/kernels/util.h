/* SPDX-License-Identifier: MIT */
/*
 * util.h - random numbers, exact-size buffers and weights of every type for the kernel tests.
 */
#ifndef SITS_TESTS_KERNELS_UTIL_H
#define SITS_TESTS_KERNELS_UTIL_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"

static uint64_t rng_state;

/* The seed is printed; SITS_TEST_SEED repeats a run. */
static inline void rng_init(void)
{
	const char *s = getenv("SITS_TEST_SEED");

	rng_state = s ? strtoull(s, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
	printf("# seed 0x%llx (SITS_TEST_SEED repeats it)\n", (unsigned long long)rng_state);
}

static inline uint32_t rnd(void)
{
	rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng_state >> 32);
}

static inline float rnd_unit(void)		/* [-1, 1) */
{
	return (float)(int32_t)rnd() * 0x1p-31f;
}

static inline float rnd_normal(void)		/* about normal, variance 1 */
{
	return rnd_unit() + rnd_unit() + rnd_unit();
}

static inline void *xalloc(size_t bytes)	/* 64-byte aligned, exactly as long as asked */
{
	void *p = NULL;

	if (posix_memalign(&p, 64, bytes ? bytes : 1))
		abort();
	return p;
}

static inline float *rnd_floats(size_t n)
{
	float *x = xalloc(n * sizeof(float));

	for (size_t i = 0; i < n; i++)
		x[i] = rnd_normal();
	return x;
}

#define PACKED(t) (SITS_PACKED | (t))
static const uint32_t all_types[] = {
	SITS_F32, SITS_F16, SITS_BF16, SITS_Q4_0, SITS_Q4_1, SITS_Q5_0, SITS_Q5_1, SITS_Q8_0, SITS_Q4_K, SITS_Q5_K,
	SITS_Q6_K, SITS_I8C, PACKED(SITS_Q4_0), PACKED(SITS_Q4_1), PACKED(SITS_Q5_0), PACKED(SITS_Q5_1), PACKED(SITS_Q8_0),
	PACKED(SITS_Q4_K), PACKED(SITS_Q5_K), PACKED(SITS_Q6_K), PACKED(SITS_I8C),
};
#define NR_TYPES (sizeof(all_types) / sizeof(all_types[0]))

static inline bool is_float_type(uint32_t t)
{
	return t == SITS_F32 || t == SITS_F16 || t == SITS_BF16;
}

static inline bool is_i8c(uint32_t t)
{
	return (t & ~(uint32_t)SITS_PACKED) == SITS_I8C;
}

static inline size_t type_row_bytes(uint32_t type, size_t K)
{
	return sits_dtype_row_bytes(type, K);
}

static inline void put_f16(uint8_t *p, float f)
{
	uint16_t h = sits_f32_to_f16(f);

	memcpy(p, &h, 2);
}

/* K random elements of a plain type: any bytes for the quants, f16 scales of the size that makes w about 1. */
static inline void rnd_weights(uint32_t type, uint8_t *w, size_t K)
{
	size_t bytes = type_row_bytes(type, K), block = sits_dtype_info(type)->block_bytes;

	for (size_t i = 0; i < bytes; i++)
		w[i] = (uint8_t)(rnd() >> 7);
	if (type == SITS_F32) {
		for (size_t k = 0; k < K; k++) {
			float f = rnd_normal();

			memcpy(w + 4 * k, &f, 4);
		}
	} else if (type == SITS_F16 || type == SITS_BF16) {
		for (size_t k = 0; k < K; k++) {
			float f = rnd_normal();
			uint16_t h = type == SITS_F16 ? sits_f32_to_f16(f) : (uint16_t)(sits_f32_bits(f) >> 16);

			memcpy(w + 2 * k, &h, 2);
		}
	}
	if (type == SITS_I8C) {
		float scale = 0.01f * rnd_unit();

		memcpy(w, &scale, 4);
		return;
	}
	for (size_t b = 0; !is_float_type(type) && b < bytes; b += block) {
		float scale = type == SITS_Q8_0 ? 0.01f : type == SITS_Q6_K ? 0.0005f :
			      type == SITS_Q4_K || type == SITS_Q5_K ? 0.002f : 0.1f;

		put_f16(w + b + (type == SITS_Q6_K ? 208 : 0), scale * rnd_unit());
		if (type == SITS_Q4_1 || type == SITS_Q5_1 || type == SITS_Q4_K || type == SITS_Q5_K)
			put_f16(w + b + 2, 8 * scale * rnd_unit());
	}
}

/* N rows of K random elements, sits_dtype_matrix_bytes() of them. */
static inline void rnd_matrix(uint32_t type, uint8_t *w, size_t K, size_t N)
{
	uint32_t plain = type & ~(uint32_t)SITS_PACKED;
	uint8_t *to = type == plain ? w : xalloc(type_row_bytes(plain, K) * N);

	for (size_t n = 0; n < N; n++)
		rnd_weights(plain, to + n * type_row_bytes(plain, K), K);
	if (type == plain)
		return;
	if (sits_pack_rows(plain, to, K, N, w))
		abort();
	free(to);
}

/* Run f on every backend usable here; say which are not. */
static inline void each_backend(void (*f)(const struct sits_backend *b))
{
	const struct sits_backend *b;

	for (size_t i = 0; (b = sits_backend_at(i)); i++) {
		if (b->usable())
			f(b);
		else
			printf("# %s: not usable on this machine\n", b->name);
	}
}

static inline const struct sits_backend *ref(void)
{
	return sits_backend_get("ref");
}

static inline bool same_bits(const float *a, const float *b, size_t n)
{
	return !memcmp(a, b, n * sizeof(float));
}

#endif
