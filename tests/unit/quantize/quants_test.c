// SPDX-License-Identifier: MIT
/*
 * quants_test.c - encoders: bits against llama.cpp's own (tests/vectors/quants.py), errors against what each type allows.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "tests/unit/engine/rng.h"
#include "tests/vectors/quants.h"
#include "tools/model/quants.h"

#define K 256

static const struct sits_backend *ref;

static int setup(void **state)
{
	ref = sits_backend_get("ref");
	return ref ? 0 : -1;
}

/* As in quants.py. */
static void vector_input(float x[4 * 64])
{
	int i;

	for (i = 0; i < 4 * 64; i++)
		x[i] = (float)((i * 7919 + 13) % 2003 - 1001) / 256;
	x[64] = 40;
	for (i = 96; i < 128; i++)
		x[i] = 0;
	for (i = 128; i < 160; i++)
		x[i] = fminf(fmaxf(x[i], -2), 2);
	x[128] = -3.9375f;
	x[133] = 3.9375f;
}

static void bits_are_those_of_llama_cpp(void **state)
{
	static const struct { uint32_t type; const unsigned char *want; size_t len; } cases[] = {
		{ SITS_Q8_0, vector_q8_0, sizeof(vector_q8_0) }, { SITS_Q4_0, vector_q4_0, sizeof(vector_q4_0) },
		{ SITS_Q5_0, vector_q5_0, sizeof(vector_q5_0) }, { SITS_BF16, vector_bf16, sizeof(vector_bf16) },
	};
	uint8_t got[4 * 64 * 4];
	float x[4 * 64];
	size_t i, r, row;

	vector_input(x);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		row = sits_dtype_row_bytes(cases[i].type, 64);
		assert_int_equal(4 * row, cases[i].len);
		for (r = 0; r < 4; r++)
			assert_int_equal(quants_row(cases[i].type, x + 64 * r, 64, got + r * row), 0);
		assert_memory_equal(got, cases[i].want, cases[i].len);
	}
}

/* Encode and decode; the largest and the relative squared error. */
static double round_trip(uint32_t type, const float *x, size_t n, float *y)
{
	uint8_t *raw = malloc(sits_dtype_row_bytes(type, n));
	double err2 = 0, x2 = 0;
	size_t i;

	assert_non_null(raw);
	assert_int_equal(quants_row(type, x, n, raw), 0);
	ref->dequant(type, raw, y, n);
	free(raw);
	for (i = 0; i < n; i++) {
		err2 += pow((double)y[i] - (double)x[i], 2);
		x2 += pow((double)x[i], 2);
	}
	return x2 > 0 ? sqrt(err2 / x2) : err2;
}

/* Steps of max|x| / levels: half a step of rounding, a step where the far end is cut off, and the scale's own rounding. */
static void no_element_is_off_by_more_than_its_type_allows(void **state)
{
	static const struct { uint32_t type; size_t block; double steps; } cases[] = {
		{ SITS_Q8_0, 32, 0.5 / 127 }, { SITS_I8C, K, 0.5 / 127 }, { SITS_Q5_0, 32, 1.0 / 16 }, { SITS_Q4_0, 32, 1.0 / 8 },
		{ SITS_BF16, 1, 1.0 / 256 }, { SITS_F16, 1, 1.0 / 2048 }, { SITS_F32, 1, 0 },
	};
	struct rng r = { 71 };
	float x[K], y[K], top;
	size_t c, i, at, turn;

	for (turn = 0; turn < 200; turn++) {
		for (i = 0; i < K; i++)
			x[i] = rng_normal(&r) * (turn % 3 ? 1 : 1e-2f);
		for (c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
			round_trip(cases[c].type, x, K, y);
			for (at = 0; at < K; at += cases[c].block) {
				for (i = 0, top = 0; i < cases[c].block; i++)
					top = fmaxf(top, fabsf(x[at + i]));
				for (i = 0; i < cases[c].block; i++)
					assert_true(fabs((double)y[at + i] - (double)x[at + i]) <=
						    (double)top * (cases[c].steps * 1.001 + 0x1p-11 * (cases[c].block > 1)) + 1e-7);
			}
		}
	}
}

/* The plain way: each group's range in 15 steps, scale and minimum rounded to their 6 bits. */
static double naive_q4_k(const float *x, float *y)
{
	float s[8], m[8], top_s = 0, top_m = 0, d, dmin, lo, hi, sc, mn;
	double err2 = 0, x2 = 0;
	int g, i, q;

	for (g = 0; g < 8; g++) {
		lo = hi = 0;
		for (i = 0; i < 32; i++) {
			lo = fminf(lo, x[32 * g + i]);
			hi = fmaxf(hi, x[32 * g + i]);
		}
		s[g] = (hi - lo) / 15;
		m[g] = -lo;
		top_s = fmaxf(top_s, s[g]);
		top_m = fmaxf(top_m, m[g]);
	}
	d = sits_f16_to_f32(sits_f32_to_f16(top_s / 63));
	dmin = sits_f16_to_f32(sits_f32_to_f16(top_m / 63));
	for (i = 0; i < K; i++) {
		sc = d * roundf(d > 0 ? s[i / 32] / d : 0);
		mn = dmin * roundf(dmin > 0 ? m[i / 32] / dmin : 0);
		q = sc > 0 ? (int)roundf((x[i] + mn) / sc) : 0;
		y[i] = sc * (float)(q < 0 ? 0 : q > 15 ? 15 : q) - mn;
		err2 += pow((double)y[i] - (double)x[i], 2);
		x2 += pow((double)x[i], 2);
	}
	return sqrt(err2 / x2);
}

static void q4_k_is_better_than_ranges_cut_into_steps(void **state)
{
	struct rng r = { 72 };
	double ours = 0, naive = 0;
	float x[K], y[K];
	int turn, i;

	for (turn = 0; turn < 100; turn++) {
		for (i = 0; i < K; i++)
			x[i] = rng_normal(&r) * (float)(1 + i / 32);
		ours += round_trip(SITS_Q4_K, x, K, y);
		naive += naive_q4_k(x, y);
	}
	print_message("# Q4_K on normal weights: error %.2f %%, naive %.2f %%\n", ours, naive);
	assert_true(ours < 0.95 * naive);
	assert_true(ours / 100 < 0.075);
}

static void q4_k_of_special_rows(void **state)
{
	float x[K], y[K];
	int i;

	memset(x, 0, sizeof(x));
	assert_true(round_trip(SITS_Q4_K, x, K, y) == 0);
	for (i = 0; i < K; i++)		/* one value: scale or minimum alone */
		x[i] = 0.25f;
	assert_true(round_trip(SITS_Q4_K, x, K, y) < 0.01);
	for (i = 0; i < K; i++)
		x[i] = -0.25f;
	assert_true(round_trip(SITS_Q4_K, x, K, y) < 0.01);
	for (i = 0; i < K; i++)		/* a minimum above zero, which can't be stored */
		x[i] = 1 + (float)(i % 16) / 15;
	assert_true(round_trip(SITS_Q4_K, x, K, y) < 0.04);
	for (i = 0; i < K; i++)
		x[i] = (float)(i % 16) - 8;
	assert_true(round_trip(SITS_Q4_K, x, K, y) < 0.02);
	x[100] = 1e4f;			/* one large weight spoils its own block, and is kept */
	round_trip(SITS_Q4_K, x, K, y);
	assert_true(fabsf(y[100] - 1e4f) < 200);
}

static void what_can_not_be_encoded_is_refused(void **state)
{
	static const uint32_t types[] = { SITS_F32, SITS_F16, SITS_BF16, SITS_Q8_0, SITS_Q4_0, SITS_Q5_0, SITS_Q4_K, SITS_I8C };
	uint8_t out[4 * K];
	float x[K] = { 0 };
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_true(quants_can(types[i]));
		x[77] = NAN;
		assert_int_equal(quants_row(types[i], x, K, out), -EDOM);
		x[77] = -INFINITY;
		assert_int_equal(quants_row(types[i], x, K, out), -EDOM);
		x[77] = 3e38f;
		assert_int_equal(quants_row(types[i], x, K, out),
				 types[i] == SITS_F32 || types[i] == SITS_BF16 || types[i] == SITS_I8C ? 0 : -ERANGE);
		x[77] = 1e-44f;		/* subnormal: its inverse is infinite */
		assert_int_equal(quants_row(types[i], x, K, out), 0);
	}
	assert_false(quants_can(SITS_Q6_K));
	assert_false(quants_can(SITS_Q8_0 | SITS_PACKED));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_those_of_llama_cpp),
		cmocka_unit_test(no_element_is_off_by_more_than_its_type_allows),
		cmocka_unit_test(q4_k_is_better_than_ranges_cut_into_steps),
		cmocka_unit_test(q4_k_of_special_rows),
		cmocka_unit_test(what_can_not_be_encoded_is_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, NULL);
}
