// SPDX-License-Identifier: MIT
/*
 * dcu_test.c - the public C ABI of the kernels, on every backend usable here.
 *
 * Tolerance of attention against the definition in double: as in attn_test.c, f32 sums of head_dim products in the
 * exponent, averages of values of about 1: 1e-5; with dropout weights are larger by 1 / (1 - p).
 */
#include <errno.h>
#include <limits.h>

#include "kernels/philox.h"
#include "sits/dcu.h"
#include "tests/unit/kernels/util.h"

/* The ABI has no argument for the backend: SITS_FORCE_ISA has to name it. */
static void (*under_test)(void);

static void forced(const struct sits_backend *b)
{
	setenv("SITS_FORCE_ISA", b->name, 1);
	under_test();
	unsetenv("SITS_FORCE_ISA");
}

static void on_each(void (*f)(void))
{
	under_test = f;
	each_backend(forced);
}

struct dims {
	int B, T, H, D;
};

static size_t count(const struct dims *d)
{
	return (size_t)d->B * (size_t)d->T * (size_t)d->H * (size_t)d->D;
}

static size_t at(const struct dims *d, int b, int t, int h)
{
	return (((size_t)b * (size_t)d->T + (size_t)t) * (size_t)d->H + (size_t)h) * (size_t)d->D;
}

/* Is weight (b, h, i, j) dropped? As the header says. */
static bool dropped(const struct dims *d, int b, int h, int i, int j, uint64_t seed, uint32_t call, float p)
{
	uint32_t c[4] = { (uint32_t)j / 4, (uint32_t)i, (uint32_t)(b * d->H + h), call };

	sits_philox4x32(c, (uint32_t)seed, (uint32_t)(seed >> 32));
	return (double)c[j % 4] < (double)p * 0x1p32;
}

/* The definition, in double. */
static void naive(const struct dims *d, const float *q, const float *k, const float *v, double *o, uint64_t seed, uint32_t call,
		  float p)
{
	double *w = xalloc((size_t)d->T * sizeof(*w));

	for (int b = 0; b < d->B; b++) {
		for (int h = 0; h < d->H; h++) {
			for (int i = 0; i < d->T; i++) {
				double top = -INFINITY, sum = 0, *out = o + at(d, b, i, h);

				for (int j = 0; j <= i; j++) {
					w[j] = 0;
					for (int e = 0; e < d->D; e++)
						w[j] += (double)q[at(d, b, i, h) + (size_t)e] * (double)k[at(d, b, j, h) + (size_t)e];
					w[j] /= sqrt(d->D);
					top = w[j] > top ? w[j] : top;
				}
				for (int j = 0; j <= i; j++)
					sum += exp(w[j] - top);
				for (int e = 0; e < d->D; e++)
					out[e] = 0;
				for (int j = 0; j <= i; j++) {
					if (p > 0 && dropped(d, b, h, i, j, seed, call, p))
						continue;
					for (int e = 0; e < d->D; e++)
						out[e] += exp(w[j] - top) / sum / (1 - (double)p) * (double)v[at(d, b, j, h) + (size_t)e];
				}
			}
		}
	}
	free(w);
}

static void check(const struct dims *d, float p)
{
	size_t n = count(d);
	float *q = rnd_floats(n), *k = rnd_floats(n), *v = rnd_floats(n), *o = xalloc(n * sizeof(float));
	double *want = xalloc(n * sizeof(double));

	dcu_flash_attn3_seed(0x123456789abcdefu);
	assert_int_equal(dcu_flash_attn3_forward(q, k, v, o, d->B, d->T, d->H, d->D, p), 0);
	naive(d, q, k, v, want, 0x123456789abcdefu, 0, p);
	for (size_t i = 0; i < n; i++) {
		if (!(fabs((double)o[i] - want[i]) <= 1e-5 / (1 - (double)p)))
			fail_msg("%d x %d x %d x %d, p %g: %zu: %g, not %g", d->B, d->T, d->H, d->D, (double)p, i, (double)o[i], want[i]);
	}
	free(q);
	free(k);
	free(v);
	free(o);
	free(want);
}

static void shapes(void)
{
	static const struct dims dims[] = {
		{ 1, 1, 1, 1 }, { 1, 5, 1, 1 }, { 2, 33, 3, 16 }, { 1, 100, 2, 64 }, { 3, 7, 2, 17 }, { 1, 130, 1, 80 },
		{ 1, 40, 2, 100 }, { 2, 64, 1, 128 }, { 1, 20, 1, 257 }, { 1, 3, 1, 1100 }, { 1, 600, 1, 8 },
	};

	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
		check(&dims[i], 0);
		check(&dims[i], 0.25f);
	}
}

static void attention_is_the_definition(void **state)
{
	on_each(shapes);
}

/* A row depends on no later position, to the bit, and on no other batch item or head. */
static void causal(void)
{
	const struct dims d = { 2, 70, 2, 24 };
	size_t n = count(&d);
	float *q = rnd_floats(n), *k = rnd_floats(n), *v = rnd_floats(n), *o = xalloc(n * sizeof(float)), *p = xalloc(n * sizeof(float));

	assert_int_equal(dcu_flash_attn3_forward(q, k, v, o, d.B, d.T, d.H, d.D, 0), 0);
	k[at(&d, 0, 40, 1)] = NAN;
	v[at(&d, 0, 50, 1) + 3] = INFINITY;
	assert_int_equal(dcu_flash_attn3_forward(q, k, v, p, d.B, d.T, d.H, d.D, 0), 0);
	for (int b = 0; b < d.B; b++) {
		for (int t = 0; t < d.T; t++) {
			for (int h = 0; h < d.H; h++) {
				bool same = b || !h || t < 40;

				assert_int_equal(same_bits(o + at(&d, b, t, h), p + at(&d, b, t, h), 24), same);
				assert_true(same || isnan(p[at(&d, b, t, h)]));
			}
		}
	}
	free(q);
	free(k);
	free(v);
	free(o);
	free(p);
}

static void later_positions_never_reach_a_row(void **state)
{
	on_each(causal);
}

/* With equal scores and values 1, o[i] is the share that was kept, over 1 - p. */
static void statistics(void)
{
	const struct dims d = { 2, 200, 2, 16 };
	size_t n = count(&d);
	float *q = xalloc(n * sizeof(float)), *v = xalloc(n * sizeof(float)), *o = xalloc(n * sizeof(float));
	float *again = xalloc(n * sizeof(float));
	double kept = 0, all = 0;

	for (size_t i = 0; i < n; i++) {
		q[i] = 0;
		v[i] = 1;
	}
	dcu_flash_attn3_seed(7);
	assert_int_equal(dcu_flash_attn3_forward(q, q, v, o, d.B, d.T, d.H, d.D, 0.3f), 0);
	for (int b = 0; b < d.B; b++) {
		for (int h = 0; h < d.H; h++) {
			for (int i = 0; i < d.T; i++) {
				double share = (double)o[at(&d, b, i, h)] * (1 - (double)0.3f) * (i + 1);

				assert_true(fabs(share - round(share)) < 0.01);		/* a count of weights */
				kept += round(share);
				all += i + 1;
			}
		}
	}
	/* Binomial: 80400 draws, standard deviation 130; five of them */
	assert_true(fabs(kept - 0.7 * all) < 5 * sqrt(all * 0.21));
	/* The next call draws anew; the seed brings it back, and the thread's own state is all there is. */
	assert_int_equal(dcu_flash_attn3_forward(q, q, v, again, d.B, d.T, d.H, d.D, 0.3f), 0);
	assert_false(same_bits(o, again, n));
	dcu_flash_attn3_seed(8);
	assert_int_equal(dcu_flash_attn3_forward(q, q, v, again, d.B, d.T, d.H, d.D, 0.3f), 0);
	assert_false(same_bits(o, again, n));
	dcu_flash_attn3_seed(7);
	assert_int_equal(dcu_flash_attn3_forward(q, q, v, again, d.B, d.T, d.H, d.D, 0), 0);		/* draws nothing */
	assert_int_equal(dcu_flash_attn3_forward(q, q, v, again, d.B, d.T, d.H, 0, 0.3f), 0);		/* nor does nothing */
	assert_int_equal(dcu_flash_attn3_forward(q, q, v, again, d.B, d.T, d.H, d.D, 0.3f), 0);
	assert_true(same_bits(o, again, n));
	assert_int_equal(dcu_flash_attn3_forward(q, q, v, again, d.B, d.T, d.H, d.D, 1), 0);
	for (size_t i = 0; i < n; i++)
		assert_true(again[i] == 0);
	free(q);
	free(v);
	free(o);
	free(again);
}

static void dropout_keeps_its_share_and_can_be_repeated(void **state)
{
	on_each(statistics);
}

/* Random123, kat_vectors: philox4x32 10 rounds. */
static void philox_gives_the_published_words(void **state)
{
	static const struct { uint32_t c[4], k[2], want[4]; } kat[] = {
		{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u }, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (size_t i = 0; i < 3; i++) {
		uint32_t c[4];

		memcpy(c, kat[i].c, sizeof(c));
		sits_philox4x32(c, kat[i].k[0], kat[i].k[1]);
		assert_memory_equal(c, kat[i].want, sizeof(c));
	}
}

static void attention_refuses_what_makes_no_sense(void **state)
{
	float a[64] = { 0 }, o[64];

	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, -1, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 1, -1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 1, 1, INT_MIN, 1, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 1, 1, 1, -5, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 1, 1, 1, 1, -0.1f), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 1, 1, 1, 1, 1.5f), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 1, 1, 1, 1, NAN), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(NULL, a, a, o, 1, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, NULL, a, o, 1, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, NULL, o, 1, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, NULL, 1, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, a + 8, 1, 1, 1, 16, 0), -EINVAL);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, INT_MAX, INT_MAX, INT_MAX, INT_MAX, 0), -EOVERFLOW);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, INT_MAX, INT_MAX, 1, 1, 0), -EOVERFLOW);
	/* Nothing to do, so nothing is touched. */
	assert_int_equal(dcu_flash_attn3_forward(NULL, NULL, NULL, NULL, 0, 5, 5, 5, 0), 0);
	assert_int_equal(dcu_flash_attn3_forward(NULL, NULL, NULL, NULL, 5, 0, 5, 5, 0), 0);
	assert_int_equal(dcu_flash_attn3_forward(NULL, NULL, NULL, NULL, 5, 5, 0, 5, 0), 0);
	assert_int_equal(dcu_flash_attn3_forward(NULL, NULL, NULL, NULL, 5, 5, 5, 0, 0.5f), 0);
}

static void gemm(void)
{
	static const struct { int T, K, N; } sizes[] = { { 1, 1, 1 }, { 9, 33, 70 }, { 3, 0, 5 }, { 17, 64, 1000 }, { 8, 7, 3 } };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		size_t T = (size_t)sizes[s].T, K = (size_t)sizes[s].K, N = (size_t)sizes[s].N;
		float *x = rnd_floats(T * K), *w = rnd_floats(N * K), *gain = rnd_floats(N), *y = xalloc(T * N * sizeof(float));
		float eps = s & 1 ? 1e-5f : 0;

		assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(x, w, s & 1 ? gain : NULL, y, sizes[s].T, sizes[s].K, sizes[s].N, eps),
				 0);
		for (size_t t = 0; t < T; t++) {
			double *p = xalloc(N * sizeof(double)), sum = 0, mean = 0, top = -INFINITY;

			for (size_t n = 0; n < N; n++) {
				p[n] = 0;
				for (size_t c = 0; c < K; c++)
					p[n] += (double)x[t * K + c] * (double)w[n * K + c];
				top = p[n] > top ? p[n] : top;
			}
			for (size_t n = 0; n < N; n++)
				sum += p[n] = exp(p[n] - top);
			for (size_t n = 0; n < N; n++)
				mean += p[n] / sum * p[n] / sum / (double)N;
			for (size_t n = 0; n < N; n++) {
				double want = p[n] / sum / sqrt(mean + (double)eps) * (s & 1 ? (double)gain[n] : 1);

				/* the exponent is a sum of K products, each of a few units, in f32 */
				assert_true(fabs((double)y[t * N + n] - want) <= 5e-5 * (1 + fabs(want)));
			}
			free(p);
		}
		free(x);
		free(w);
		free(gain);
		free(y);
	}
}

static void gemm_softmax_rmsnorm_is_the_definition(void **state)
{
	on_each(gemm);
}

static void gemm_refuses_what_makes_no_sense(void **state)
{
	float a[64] = { 0 }, y[64];

	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, y, -1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, y, 1, -1, 1, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, y, 1, 1, -1, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, y, 1, 1, 1, -1e-9f), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, y, 1, 1, 1, NAN), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(NULL, a, NULL, y, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, NULL, NULL, y, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, NULL, 1, 1, 1, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, y + 1, NULL, y, 1, 1, 4, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, y, y, 1, 1, 4, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, y, INT_MAX, INT_MAX, INT_MAX, 0), -EOVERFLOW);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(NULL, NULL, NULL, NULL, 0, 3, 3, 0), 0);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(NULL, NULL, NULL, NULL, 3, 3, 0, 0), 0);
}

static void an_unknown_instruction_set_is_refused_at_each_call(void **state)
{
	float a[16] = { 0 }, ones[16], o[16];

	for (size_t i = 0; i < 16; i++)
		ones[i] = o[i] = 1;
	setenv("SITS_FORCE_ISA", "sse9", 1);
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 1, 1, 1, 16, 0), -EINVAL);
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, o, 1, 1, 16, 1e-5f), -EINVAL);
	assert_memory_equal(o, ones, sizeof(o));
	assert_int_equal(dcu_flash_attn3_forward(a, a, a, o, 0, 1, 1, 16, 0), 0);
	setenv("SITS_FORCE_ISA", "", 1);
	assert_int_equal(dcu_flash_attn3_forward(a, a, ones, o, 1, 1, 1, 16, 0), 0);
	assert_memory_equal(o, ones, sizeof(o));
	unsetenv("SITS_FORCE_ISA");
	assert_int_equal(dcu_gemm_softmax_rmsnorm_forward(a, a, NULL, o, 1, 1, 16, 0), 0);
	for (size_t i = 0; i < 16; i++)
		assert_true(fabsf(o[i] - 1) < 1e-5f);	/* all equal: as much as their rms */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_is_the_definition),
		cmocka_unit_test(later_positions_never_reach_a_row),
		cmocka_unit_test(dropout_keeps_its_share_and_can_be_repeated),
		cmocka_unit_test(philox_gives_the_published_words),
		cmocka_unit_test(attention_refuses_what_makes_no_sense),
		cmocka_unit_test(gemm_softmax_rmsnorm_is_the_definition),
		cmocka_unit_test(gemm_refuses_what_makes_no_sense),
		cmocka_unit_test(an_unknown_instruction_set_is_refused_at_each_call),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels C ABI", tests, NULL, NULL);
}
