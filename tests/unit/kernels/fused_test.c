// SPDX-License-Identifier: MIT
/*
 * fused_test.c - fused operations on every backend usable here: bit for bit the operations they name, one by one, on
 * the same backend. softmax_rmsnorm and topk stand for themselves: against the reference.
 */
#include "tests/unit/kernels/util.h"

static const size_t lengths[] = { 32, 64, 96, 576, 1536, 4096 };
#define NR_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))
static const uint32_t classes[] = { SITS_F32, SITS_Q8_0 };	/* plain; groups of 16-bit numbers */

static void check_norm(const struct sits_backend *b, uint32_t type, size_t T, size_t C, bool with_r, bool in_place)
{
	size_t row = b->act_row_bytes(type, C), n = T * C;
	float *x = rnd_floats(n), *r = rnd_floats(n), *w = rnd_floats(C), *y = xalloc(n * sizeof(float));
	float *x2 = xalloc(n * sizeof(float)), *y2 = xalloc(n * sizeof(float));
	uint8_t *act = xalloc(T * row), *act2 = xalloc(T * row);

	memcpy(x2, x, n * sizeof(float));
	if (T > 1)
		x[0] = x2[0] = NAN;	/* the first row's, nobody else's */
	if (with_r)
		b->add(x2, r, n);
	b->rmsnorm(y2, x2, w, T, C, 1e-5f);
	b->act_prepare(type, y2, C, T, C, act2);
	b->add_rmsnorm_prepare(type, x, with_r ? r : NULL, w, in_place ? r : y, T, C, 1e-5f, act);
	assert_true(same_bits(x, x2, n));
	assert_true(same_bits(in_place ? r : y, y2, n));
	assert_memory_equal(act, act2, T * row);
	if (T > 1)
		assert_true(isnan(y2[0]) && !isnan(y2[C]));
	free(x);
	free(r);
	free(w);
	free(y);
	free(x2);
	free(y2);
	free(act);
	free(act2);
}

static void norms(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_LENGTHS; i++) {
		for (size_t c = 0; c < 2; c++) {
			for (int how = 0; how < 4; how++) {
				check_norm(b, classes[c], 0, lengths[i], how & 1, how & 2);
				check_norm(b, classes[c], 1, lengths[i], how & 1, how & 2);
				check_norm(b, classes[c], 3, lengths[i], how & 1, how & 2);
			}
		}
	}
	for (size_t C = 1; C < 40; C++)		/* f32 rows have any length */
		check_norm(b, SITS_F32, 2, C, C & 1, false);
}

static void add_rmsnorm_prepare_is_the_three_in_turn(void **state)
{
	each_backend(norms);
}

static void check_gated(const struct sits_backend *b, uint32_t type, size_t T, size_t K)
{
	size_t row = b->act_row_bytes(type, K), n = T * K;
	float *a = rnd_floats(n), *g = rnd_floats(n), *y = xalloc(n * sizeof(float));
	uint8_t *act = xalloc(T * row), *act2 = xalloc(T * row);

	if (T > 1)
		a[3] = INFINITY;
	b->silu_mul(y, a, g, n);
	b->act_prepare(type, y, K, T, K, act2);
	b->silu_mul_prepare(type, a, a, g, T, K, act);
	assert_true(same_bits(a, y, n));
	assert_memory_equal(act, act2, T * row);
	free(a);
	free(g);
	free(y);
	free(act);
	free(act2);
}

static void gated(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_LENGTHS; i++) {
		for (size_t T = 0; T < 4; T++) {
			check_gated(b, SITS_F32, T, lengths[i]);
			check_gated(b, SITS_Q4_0, T, lengths[i]);
		}
	}
	for (size_t K = 1; K < 20; K++)
		check_gated(b, SITS_F32, 1, K);
}

static void silu_mul_prepare_is_the_two_in_turn(void **state)
{
	each_backend(gated);
}

struct rope_case {
	size_t H, G, D, R;
	int neox, norm;		/* norm: 0 none, 1 of each head, 2 of all */
	uint32_t kind;
	float q_scale;
};

static void norm_heads(const struct sits_backend *b, const struct rope_case *c, float *x, const float *w, size_t heads)
{
	if (c->norm)
		b->rmsnorm(x, x, w, c->norm == 2 ? 1 : heads, c->norm == 2 ? heads * c->D : c->D, 1e-6f);
}

static void check_rope(const struct sits_backend *b, const struct rope_case *c)
{
	struct sits_kv_shape shape = { .kind = c->kind, .G = c->G, .Dk = c->D, .Dv = c->D };
	size_t page = b->kv_layer_bytes(&shape), nq = c->H * c->D, nk = c->G * c->D;
	float *q = rnd_floats(nq), *k = rnd_floats(nk), *v = rnd_floats(nk), *wq = rnd_floats(nq), *wk = rnd_floats(nk);
	float *q2 = xalloc(nq * sizeof(float)), *k2 = xalloc(nk * sizeof(float)), *freq = rnd_floats(c->R / 2);
	uint8_t *at = xalloc(page), *at2 = xalloc(page);
	int32_t pos = (int32_t)(rnd() % 100000);
	struct sits_rope_store rs = {
		.q = q, .k = k, .v = v, .H = c->H, .shape = &shape, .q_norm = c->norm ? wq : NULL, .k_norm = c->norm ? wk : NULL,
		.norm_all = c->norm == 2, .eps = 1e-6f, .pos = pos, .inv_freq = freq, .R = c->R, .neox = c->neox,
		.q_scale = c->q_scale, .layer = at, .slot = 17,
	};

	memset(at, 0x55, page);
	memset(at2, 0x55, page);
	memcpy(q2, q, nq * sizeof(float));
	memcpy(k2, k, nk * sizeof(float));
	norm_heads(b, c, q2, wq, c->H);
	norm_heads(b, c, k2, wk, c->G);
	b->rope(q2, nq, &pos, freq, 1, c->H, c->D, c->R, c->neox);
	b->rope(k2, nk, &pos, freq, 1, c->G, c->D, c->R, c->neox);
	for (size_t i = 0; i < nq && c->q_scale != 1; i++)
		q2[i] *= i % c->D < c->R ? c->q_scale : 1;
	b->kv_store(&shape, at2, 17, k2, v);
	b->rope_store(&rs);
	assert_true(same_bits(q, q2, nq));
	assert_true(same_bits(k, k2, nk));
	assert_memory_equal(at, at2, page);
	free(q);
	free(k);
	free(v);
	free(wq);
	free(wk);
	free(q2);
	free(k2);
	free(freq);
	free(at);
	free(at2);
}

static void ropes(const struct sits_backend *b)
{
	static const struct rope_case cases[] = {
		{ 9, 3, 64, 64, 0, 0, SITS_KV_F16, 1 }, { 8, 2, 128, 128, 1, 1, SITS_KV_F16, 1 },
		{ 4, 4, 48, 32, 1, 2, SITS_KV_I8, 1.25f }, { 2, 1, 256, 256, 0, 2, SITS_KV_F32, 0.5f },
		{ 1, 1, 16, 2, 0, 1, SITS_KV_F16, 2 }, { 3, 1, 16, 0, 1, 0, SITS_KV_I8, 3 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_rope(b, &cases[i]);
}

static void rope_store_is_norm_rope_and_store_in_turn(void **state)
{
	each_backend(ropes);
}

/* Sums of C numbers within 0 .. 1 in f32: C 2^-24 of their sum at the very most, and e^x 2 units. */
static void probabilities(const struct sits_backend *b)
{
	static const size_t columns[] = { 1, 2, 7, 8, 9, 15, 16, 17, 33, 1000, 5003 };

	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		size_t C = columns[i], n = 2 * C;
		float *x = rnd_floats(n), *w = rnd_floats(C), *y = xalloc(n * sizeof(float)), *want = xalloc(n * sizeof(float));
		float eps = i & 1 ? 1e-4f : 0;

		for (size_t c = 0; c < n; c++)
			x[c] = x[c] * 8 + (c < C ? 300 : -300);		/* must be the stable one */
		if (C > 2)
			x[1] = -INFINITY;
		ref()->softmax_rmsnorm(want, x, i & 2 ? w : NULL, 2, C, eps);
		b->softmax_rmsnorm(y, x, i & 2 ? w : NULL, 2, C, eps);
		for (size_t c = 0; c < n; c++)
			assert_true(fabsf(y[c] - want[c]) <= 1e-5f * fabsf(want[c]) + 1e-30f);
		b->softmax_rmsnorm(x, x, i & 2 ? w : NULL, 2, C, eps);	/* in place */
		assert_true(same_bits(x, y, n));
		x[C - 1] = NAN;
		b->softmax_rmsnorm(y, x, NULL, 2, C, eps);
		for (size_t c = 0; c < n; c++)
			assert_int_equal(isnan(y[c]), c < C);
		free(x);
		free(w);
		free(y);
		free(want);
	}
	b->softmax_rmsnorm(NULL, NULL, NULL, 0, 5, 0);
}

static void softmax_rmsnorm_matches_the_reference(void **state)
{
	each_backend(probabilities);
}

/* The definition with the steps written out: softmax, then the norm. */
static void softmax_rmsnorm_is_what_it_says(void **state)
{
	float x[3] = { 0, 1, 2 }, w[3] = { 1, 2, -3 }, y[3];
	double p[3], sum = exp(0) + exp(1) + exp(2), mean = 0;

	for (int c = 0; c < 3; c++) {
		p[c] = exp(c) / sum;
		mean += p[c] * p[c] / 3;
	}
	ref()->softmax_rmsnorm(y, x, w, 1, 3, 0.01f);
	for (int c = 0; c < 3; c++)
		assert_true(fabs((double)y[c] - p[c] * (double)w[c] / sqrt(mean + (double)0.01f)) < 1e-6);
}

static void largest(const struct sits_backend *b)
{
	static const size_t sizes[] = { 0, 1, 2, 31, 32, 33, 64, 129, 1000, 49152 };
	static const size_t ks[] = { 0, 1, 2, 7, 40, 200 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t j = 0; j < sizeof(ks) / sizeof(ks[0]); j++) {
			size_t n = sizes[i], k = ks[j], got, want;
			float *x = rnd_floats(n);
			uint32_t *id = xalloc(k * sizeof(*id)), *id2 = xalloc(k * sizeof(*id));

			for (size_t c = 0; c < n; c++) {	/* many that are equal, some that are no numbers */
				if (j & 1)
					x[c] = (float)(int)(x[c] * 4);
				if (rnd() % 16 == 0)
					x[c] = rnd() & 1 ? NAN : rnd() & 1 ? -INFINITY : INFINITY;
			}
			want = ref()->topk(x, n, k, id2);
			got = b->topk(x, n, k, id);
			assert_int_equal(got, want);
			assert_memory_equal(id, id2, got * sizeof(*id));
			free(x);
			free(id);
			free(id2);
		}
	}
}

static void topk_matches_the_reference(void **state)
{
	each_backend(largest);
}

static void topk_takes_the_lower_index_of_equals_and_no_nan(void **state)
{
	const float x[] = { NAN, 1, 3, 3, -INFINITY, 2, 3, NAN };
	uint32_t id[8];

	assert_int_equal(ref()->topk(x, 8, 3, id), 3);
	assert_true(id[0] == 2 && id[1] == 3 && id[2] == 6);
	assert_int_equal(ref()->topk(x, 8, 8, id), 6);
	assert_true(id[3] == 5 && id[4] == 1 && id[5] == 4);
	assert_int_equal(ref()->topk(x, 1, 8, id), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(add_rmsnorm_prepare_is_the_three_in_turn),
		cmocka_unit_test(silu_mul_prepare_is_the_two_in_turn),
		cmocka_unit_test(rope_store_is_norm_rope_and_store_in_turn),
		cmocka_unit_test(softmax_rmsnorm_matches_the_reference),
		cmocka_unit_test(softmax_rmsnorm_is_what_it_says),
		cmocka_unit_test(topk_matches_the_reference),
		cmocka_unit_test(topk_takes_the_lower_index_of_equals_and_no_nan),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels fused", tests, NULL, NULL);
}
