// SPDX-License-Identifier: MIT
/*
 * ops_test.c - norm, rotary positions, gated activation, addition: every backend against the
 * reference and against what the definitions say.
 */
#include "tests/unit/kernels/util.h"

/* |got - want| <= rel * |want| + abs */
static void near(const char *what, const struct sits_backend *b, const float *got, const float *want, size_t n,
		 float rel, float abs)
{
	for (size_t i = 0; i < n; i++) {
		if (!(fabsf(got[i] - want[i]) <= rel * fabsf(want[i]) + abs))
			fail_msg("%s %s: element %zu of %zu is %a, not %a", b->name, what, i, n, (double)got[i],
				 (double)want[i]);
	}
}

/* The sum of squares has no cancellation: f32 sums over lanes lose less than C / 8 * 2^-24 of it, and
 * half of that comes through the root; three roundings follow. */
static void rmsnorm(const struct sits_backend *b)
{
	static const size_t cols[] = { 1, 7, 8, 15, 16, 17, 63, 64, 65, 128, 200, 576, 1000 };

	for (size_t i = 0; i < sizeof(cols) / sizeof(cols[0]); i++) {
		size_t C = cols[i], T = 3;
		float *x = rnd_floats(T * C), *w = rnd_floats(C), *want = rnd_floats(T * C), *got = rnd_floats(T * C);

		ref()->rmsnorm(want, x, w, T, C, 1e-5f);
		b->rmsnorm(got, x, w, T, C, 1e-5f);
		near("rmsnorm", b, got, want, T * C, (float)(C / 8 + 8) * 0x1p-24f, 0);
		for (size_t t = 0; t < T; t++) {	/* a row alone, in place */
			b->rmsnorm(x + t * C, x + t * C, w, 1, C, 1e-5f);
			assert_true(same_bits(x + t * C, got + t * C, C));
		}
		free(x);
		free(w);
		free(want);
		free(got);
	}
}

static void rmsnorm_matches_and_rows_stand_alone(void **state)
{
	each_backend(rmsnorm);
}

static void rmsnorm_specials(const struct sits_backend *b)
{
	float x[40] = { 0 }, w[40], y[40];

	for (size_t c = 0; c < 40; c++)
		w[c] = 1;
	b->rmsnorm(y, x, w, 1, 40, 1e-6f);
	for (size_t c = 0; c < 40; c++)
		assert_true(y[c] == 0);
	x[37] = NAN;
	b->rmsnorm(y, x, w, 1, 40, 1e-6f);
	for (size_t c = 0; c < 40; c++)
		assert_true(isnan(y[c]));
}

static void rmsnorm_of_zero_is_zero_and_nan_spreads(void **state)
{
	each_backend(rmsnorm_specials);
}

/* Two products of numbers below 3 and angles exact to f32 rounding: 4 roundings of 2^-24 * 3 * 2. */
#define ROPE_TOLERANCE (24 * 0x1p-24f)

static void rope_case(const struct sits_backend *b, size_t H, size_t D, size_t R, int neox)
{
	size_t T = 5, ld = H * D + 3;
	float *x = rnd_floats(T * ld), *want = xalloc(T * ld * sizeof(float)), *one = xalloc(T * ld * sizeof(float));
	float *freq = xalloc((R / 2 ? R / 2 : 1) * sizeof(float));
	int32_t pos[5] = { 0, 1, 77, 8191, 131071 };

	for (size_t i = 0; i < R / 2; i++)
		freq[i] = powf(10000.0f, -2.0f * (float)i / (float)R);
	memcpy(want, x, T * ld * sizeof(float));
	memcpy(one, x, T * ld * sizeof(float));
	ref()->rope(want, ld, pos, freq, T, H, D, R, neox);
	for (size_t t = 0; t < T; t++)
		b->rope(one + t * ld, ld, pos + t, freq, 1, H, D, R, neox);
	b->rope(x, ld, pos, freq, T, H, D, R, neox);
	near(neox ? "rope neox" : "rope", b, x, want, T * ld, 0, ROPE_TOLERANCE);
	assert_true(same_bits(x, one, T * ld));
	for (size_t t = 0; t < T; t++) {	/* what is not rotated stays; so does position 0 */
		for (size_t h = 0; h < H; h++)
			assert_true(same_bits(x + t * ld + h * D + R, want + t * ld + h * D + R, D - R));
		assert_true(same_bits(x + t * ld + H * D, want + t * ld + H * D, 3));
	}
	free(x);
	free(want);
	free(one);
	free(freq);
}

static void rope(const struct sits_backend *b)
{
	for (int neox = 0; neox < 2; neox++) {
		rope_case(b, 3, 64, 64, neox);
		rope_case(b, 2, 128, 128, neox);
		rope_case(b, 1, 256, 256, neox);
		rope_case(b, 2, 80, 32, neox);
		rope_case(b, 2, 64, 20, neox);
		rope_case(b, 5, 16, 6, neox);
		rope_case(b, 1, 16, 2, neox);
	}
}

static void rope_matches_for_both_pairings_and_partial_rotation(void **state)
{
	each_backend(rope);
}

/* Rotation keeps lengths, and q.k depends on the difference of positions only. */
static void rope_properties(const struct sits_backend *b)
{
	enum { D = 64 };
	float freq[D / 2], q[D], k[D], dot[2] = { 0, 0 };
	float q0[D], k0[D];

	for (size_t i = 0; i < D / 2; i++)
		freq[i] = powf(10000.0f, -2.0f * (float)i / D);
	for (size_t d = 0; d < D; d++) {
		q0[d] = rnd_normal();
		k0[d] = rnd_normal();
	}
	for (int i = 0; i < 2; i++) {
		int32_t pq = 40 + 1000 * i, pk = 3 + 1000 * i;

		memcpy(q, q0, sizeof(q));
		memcpy(k, k0, sizeof(k));
		b->rope(q, D, &pq, freq, 1, 1, D, D, 1);
		b->rope(k, D, &pk, freq, 1, 1, D, D, 1);
		for (size_t d = 0; d < D; d++)
			dot[i] += q[d] * k[d];
	}
	assert_true(fabsf(dot[0] - dot[1]) < 1e-3f);
}

static void rope_dot_depends_on_distance(void **state)
{
	each_backend(rope_properties);
}

/* e^x within 2 ulp, then add, divide, multiply: 5 ulp of relative error. The range below shows it. */
static void silu(const struct sits_backend *b)
{
	for (size_t n = 0; n < 70; n++) {
		float *x = rnd_floats(n), *y = rnd_floats(n), *want = rnd_floats(n), *got = rnd_floats(n), one;

		for (size_t i = 0; i < n; i++)
			x[i] *= 20;
		ref()->silu_mul(want, x, y, n);
		b->silu_mul(got, x, y, n);
		near("silu_mul", b, got, want, n, 5 * 0x1p-23f, 0);
		for (size_t i = 0; i < n; i++) {
			b->silu_mul(&one, x + i, y + i, 1);
			assert_true(same_bits(&one, got + i, 1));
		}
		b->silu_mul(x, x, y, n);
		assert_true(same_bits(x, got, n));
		free(x);
		free(y);
		free(want);
		free(got);
	}
}

/* 1 / (1 + e^-x) over the whole range shows the exponential: its relative error against double. */
static void exp_accuracy(const struct sits_backend *b)
{
	double worst = 0;

	for (size_t i = 0; i < 40000; i++) {
		float a = -20.0f - (float)i * 60.0f / 40000, x = 1.0f, got;
		double want = (double)a / (1 + exp(-(double)a));

		b->silu_mul(&got, &a, &x, 1);
		worst = fmax(worst, fabs((double)got / want - 1));
	}
	printf("# %s: e^x at most %.2f * 2^-24 off, division included\n", b->name, worst * 0x1p24);
	assert_true(worst < 5 * 0x1p-24);
}

static void silu_specials(const struct sits_backend *b)
{
	static const float a[] = { 0.0f, 100.0f, 1e30f, INFINITY, NAN, -100.0f, -1e30f, -80.0f };
	float one[8], y[8];

	for (size_t i = 0; i < 8; i++)
		one[i] = 1;
	b->silu_mul(y, a, one, 8);
	assert_true(y[0] == 0 && y[1] == 100.0f && y[2] == 1e30f && y[3] == INFINITY && isnan(y[4]));
	assert_true(fabsf(y[5]) < 1e-36f && y[6] == 0 && y[7] < 0);
}

static void silu_matches_at_every_length(void **state)
{
	each_backend(silu);
}

static void silu_far_from_zero(void **state)
{
	each_backend(exp_accuracy);
	each_backend(silu_specials);
}

static void add(const struct sits_backend *b)
{
	for (size_t n = 0; n < 70; n++) {
		float *x = rnd_floats(n), *y = rnd_floats(n), *want = xalloc(n * sizeof(float));

		for (size_t i = 0; i < n; i++)
			want[i] = y[i] + x[i];
		b->add(y, x, n);
		assert_true(same_bits(y, want, n));
		free(x);
		free(y);
		free(want);
	}
}

static void add_is_exact(void **state)
{
	each_backend(add);
}

static void add_scaled(const struct sits_backend *b)
{
	for (size_t n = 0; n < 70; n++) {
		float *x = rnd_floats(n), *y = rnd_floats(n), *want = xalloc(n * sizeof(float)), a = rnd_normal();

		if (n == 33)
			x[7] = NAN;
		for (size_t i = 0; i < n; i++)
			want[i] = fmaf(a, x[i], y[i]);
		b->add_scaled(y, x, a, n);
		assert_true(same_bits(y, want, n));
		free(x);
		free(y);
		free(want);
	}
}

static void add_scaled_rounds_once(void **state)
{
	each_backend(add_scaled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rmsnorm_matches_and_rows_stand_alone),
		cmocka_unit_test(rmsnorm_of_zero_is_zero_and_nan_spreads),
		cmocka_unit_test(rope_matches_for_both_pairings_and_partial_rotation),
		cmocka_unit_test(rope_dot_depends_on_distance),
		cmocka_unit_test(silu_matches_at_every_length),
		cmocka_unit_test(silu_far_from_zero),
		cmocka_unit_test(add_is_exact),
		cmocka_unit_test(add_scaled_rounds_once),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels ops", tests, NULL, NULL);
}
