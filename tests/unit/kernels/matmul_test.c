// SPDX-License-Identifier: MIT
/*
 * matmul_test.c - products of every weight type on every backend usable here.
 *
 * Quantised types: the sum's order and rounding are laid down (kernels/quant.h), so backends agree
 * to the bit. Float types: the reference sums in double; others may be off by what f32 sums of K
 * terms lose, K * 2^-24 of the sum of magnitudes (and the final rounding).
 */
#include "tests/unit/kernels/util.h"

/* One product with its operands. */
struct mm_case {
	uint32_t type;
	size_t K, N, T, shift;	/* shift: bytes that the weights are off alignment */
	size_t row_bytes;
	uint8_t *raw;
	float *x;
};

static void case_init(struct mm_case *c, uint32_t type, size_t K, size_t N, size_t T, size_t shift)
{
	*c = (struct mm_case){ .type = type, .K = K, .N = N, .T = T, .shift = shift };
	c->row_bytes = type_row_bytes(type, K);
	c->raw = xalloc(sits_dtype_matrix_bytes(type, K, N) + shift);
	rnd_matrix(type, c->raw + shift, K, N);
	c->x = rnd_floats(T * K);
}

static void case_fini(struct mm_case *c)
{
	free(c->raw);
	free(c->x);
}

static void run_range(const struct sits_backend *b, const struct mm_case *c, const void *act, size_t act_bytes, size_t T,
		      size_t n0, size_t n1, float *y)
{
	struct sits_matmul mm = {
		.wtype = c->type, .w = c->raw + c->shift, .w_row_bytes = c->row_bytes, .x = act,
		.x_row_bytes = act_bytes, .y = y, .ldy = c->N, .T = T, .K = c->K, .N = c->N, .n0 = n0, .n1 = n1,
	};

	b->matmul(&mm);
}

static void *prepare(const struct sits_backend *b, const struct mm_case *c, size_t *bytes)
{
	void *act;

	*bytes = b->act_row_bytes(c->type, c->K);
	assert_int_equal(*bytes % 64, 0);
	act = xalloc(*bytes * c->T);
	b->act_prepare(c->type, c->x, c->K, c->T, c->K, act);
	return act;
}

/* y: [T][N], all at once. */
static float *run_all(const struct sits_backend *b, const struct mm_case *c)
{
	float *y = xalloc(c->T * c->N * sizeof(float));
	size_t bytes;
	void *act = prepare(b, c, &bytes);

	memset(y, 0xff, c->T * c->N * sizeof(float));
	run_range(b, c, act, bytes, c->T, 0, c->N, y);
	free(act);
	return y;
}

/* Does the backend round activations for this type to BF16? */
static bool rounds_to_bf16(const struct sits_backend *b, uint32_t type)
{
	return type == SITS_BF16 && !strcmp(b->name, "avx512bf16");
}

static float tolerance(const struct sits_backend *b, const struct mm_case *c, size_t t, size_t n)
{
	float *w = xalloc(c->K * sizeof(float)), sum = 0;

	ref()->dequant(c->type, sits_dtype_row(c->type, c->raw + c->shift, c->row_bytes, n), w, c->K);
	for (size_t k = 0; k < c->K; k++)
		sum += fabsf(w[k] * c->x[t * c->K + k]);
	free(w);
	return sum * ((float)(c->K + 2) * 0x1p-24f + (rounds_to_bf16(b, c->type) ? 0x1p-8f : 0));
}

static void check_against_ref(const struct sits_backend *b, const struct mm_case *c)
{
	float *want = run_all(ref(), c), *got = run_all(b, c);

	for (size_t i = 0; i < c->T * c->N; i++) {
		float off = is_float_type(c->type) ? tolerance(b, c, i / c->N, i % c->N) : 0;

		if (!(fabsf(got[i] - want[i]) <= off))
			fail_msg("%s %s K %zu N %zu T %zu: y[%zu][%zu] = %a, not %a", b->name,
				 sits_dtype_info(c->type)->name, c->K, c->N, c->T, i / c->N, i % c->N,
				 (double)got[i], (double)want[i]);
	}
	free(want);
	free(got);
}

static void against_ref(const struct sits_backend *b)
{
	static const size_t rows[] = { 1, 5, 8, 16, 17, 33, 50 };
	static const size_t tokens[] = { 1, 2, 3, 4, 5, 8, 9, 11, 12, 16, 23, 32, 33, 34, 35, 36, 37, 38, 70 };
	struct mm_case c;

	for (size_t i = 0; i < NR_TYPES; i++) {
		size_t block = sits_dtype_info(all_types[i])->block_elems;

		for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
			size_t blocks = 1 + rnd() % (block == 256 ? 4 : block == 32 ? 30 : 100);
			size_t T = tokens[rnd() % (sizeof(tokens) / sizeof(tokens[0]))];

			case_init(&c, all_types[i], block * blocks, rows[n], T, rnd() % 8);
			check_against_ref(b, &c);
			case_fini(&c);
		}
		for (size_t t = 0; t < sizeof(tokens) / sizeof(tokens[0]); t++) {
			case_init(&c, all_types[i], block == 1 ? 77 : block == 32 ? 27 * 32 : 1024, 19, tokens[t], 1);
			check_against_ref(b, &c);
			case_fini(&c);
		}
		/* Several chunks of K, more tokens than a panel has, and rows that lie a power of two apart. */
		for (size_t n = 16; n <= 50; n += 17) {
			case_init(&c, all_types[i], 2048 + block, n, 131, 0);
			check_against_ref(b, &c);
			case_fini(&c);
		}
	}
}

static void every_type_matches_the_reference(void **state)
{
	each_backend(against_ref);
}

/* The same bits however tokens and columns are cut. */
static void check_invariance(const struct sits_backend *b, const struct mm_case *c)
{
	float *all = run_all(b, c), *y = xalloc(c->T * c->N * sizeof(float));
	size_t bytes, cut;
	uint8_t *act = prepare(b, c, &bytes);

	for (size_t t = 0; t < c->T; t++)	/* alone */
		run_range(b, c, act + t * bytes, bytes, 1, 0, c->N, y + t * c->N);
	assert_true(same_bits(all, y, c->T * c->N));
	for (int round = 0; round < 8; round++) {	/* token and column cuts at random */
		memset(y, 0xff, c->T * c->N * sizeof(float));
		for (size_t t = 0; t < c->T; t += cut) {
			size_t at = rnd() % (c->N + 1);

			cut = 1 + rnd() % (c->T - t);
			run_range(b, c, act + t * bytes, bytes, cut, at, c->N, y + t * c->N);
			run_range(b, c, act + t * bytes, bytes, cut, 0, at, y + t * c->N);
		}
		assert_true(same_bits(all, y, c->T * c->N));
	}
	free(act);
	free(y);
	free(all);
}

static void invariance(const struct sits_backend *b)
{
	struct mm_case c;

	for (size_t i = 0; i < NR_TYPES; i++) {
		case_init(&c, all_types[i], is_float_type(all_types[i]) ? 301 : 1024, 45, 70, 0);
		check_invariance(b, &c);
		case_fini(&c);
	}
}

static void results_do_not_depend_on_the_batch_or_the_split(void **state)
{
	each_backend(invariance);
}

/* A token's prepared form depends on that token alone. */
static void prepare_by_row(const struct sits_backend *b)
{
	struct mm_case c;
	size_t bytes;

	for (size_t i = 0; i < NR_TYPES; i++) {
		uint8_t *act, *one;

		case_init(&c, all_types[i], is_float_type(all_types[i]) ? 45 : 512, 1, 5, 0);
		act = prepare(b, &c, &bytes);
		one = xalloc(bytes);
		for (size_t t = 0; t < c.T; t++) {
			b->act_prepare(c.type, c.x + t * c.K, 9999, 1, c.K, one);
			assert_memory_equal(one, act + t * bytes, bytes);
		}
		for (size_t j = 0; j < i; j++) {	/* types of a class share it */
			if (b->act_class(all_types[j]) != b->act_class(all_types[i]) || c.K % 32)
				continue;
			assert_int_equal(b->act_row_bytes(all_types[j], c.K), bytes);
			b->act_prepare(all_types[j], c.x, c.K, 1, c.K, one);
			assert_memory_equal(one, act, bytes);
		}
		free(one);
		free(act);
		case_fini(&c);
	}
}

static void prepared_rows_stand_alone(void **state)
{
	each_backend(prepare_by_row);
}

/* The engine counts on not-finite inputs being seen at the outputs of that token, and only there. */
static void specials(const struct sits_backend *b)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	struct mm_case c;

	for (size_t i = 0; i < NR_TYPES; i++) {
		for (size_t v = 0; v < 3; v++) {
			float *y;

			case_init(&c, all_types[i], 512, 20, 11, 0);
			c.x[4 * c.K + rnd() % c.K] = bad[v];
			y = run_all(b, &c);
			for (size_t j = 0; j < c.T * c.N; j++)
				assert_true(!isfinite(y[j]) == (j / c.N == 4));
			free(y);
			case_fini(&c);
		}
	}
}

static void extremes(const struct sits_backend *b)
{
	struct mm_case c;
	float *y;

	case_init(&c, SITS_Q8_0, 64, 16, 3, 0);
	for (size_t k = 0; k < c.K; k++) {
		c.x[k] = k & 1 ? 1e-40f : -0.0f;	/* counts as zero */
		c.x[c.K + k] = k & 1 ? 1e30f : -1e30f;	/* large, still finite */
		c.x[2 * c.K + k] = k == 7 ? 3.0f : 0;
	}
	y = run_all(b, &c);
	for (size_t n = 0; n < c.N; n++) {
		assert_true(y[n] == 0);
		assert_true(isfinite(y[c.N + n]) && isfinite(y[2 * c.N + n]));
	}
	free(y);
	check_against_ref(b, &c);
	case_fini(&c);
	/* The largest sums of products: nothing may saturate. */
	for (size_t i = 3; i < NR_TYPES && all_types[i] != SITS_I8C; i++) {
		case_init(&c, all_types[i], 512, 16, 9, 0);
		for (size_t j = 0; j < c.row_bytes * c.N; j++)
			c.raw[j] = i == 7 ? 0x80 : 0xff;
		for (size_t j = 0; j < c.row_bytes * c.N; j += sits_dtype_info(c.type)->block_bytes) {
			put_f16(c.raw + j + (c.type == SITS_Q6_K ? 208 : 0), 1.0f);
			if (c.type != SITS_Q6_K && c.type != SITS_Q8_0)
				put_f16(c.raw + j + 2, 1.0f);
		}
		for (size_t j = 0; j < c.T * c.K; j++)
			c.x[j] = j / c.K & 1 ? -1.0f : 1.0f;
		check_against_ref(b, &c);
		case_fini(&c);
	}
}

static void not_finite_inputs_reach_their_own_outputs(void **state)
{
	each_backend(specials);
}

static void extreme_values_do_not_saturate(void **state)
{
	each_backend(extremes);
}

/* 16-bit activations cost little: against exact arithmetic on the dequantised weights. */
static void accuracy(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_TYPES; i++) {
		struct mm_case c;
		double err = 0, all = 0;
		float *y, *w;

		case_init(&c, all_types[i], 1024, 64, 4, 0);
		y = run_all(b, &c);
		w = xalloc(c.K * sizeof(float));
		for (size_t n = 0; n < c.N; n++) {
			ref()->dequant(c.type, sits_dtype_row(c.type, c.raw, c.row_bytes, n), w, c.K);
			for (size_t t = 0; t < c.T; t++) {
				double sum = 0, d;

				for (size_t k = 0; k < c.K; k++)
					sum += (double)w[k] * (double)c.x[t * c.K + k];
				d = (double)y[t * c.N + n] - sum;
				err += d * d;
				all += sum * sum;
			}
		}
		/* Rounding to 16 bits: about max / 16256 / sqrt 12 an element, 5e-5 where max is 2.7 rms; to 8 bits
		 * (SITS_I8C): 128 times that; to BF16: 2^-9 / sqrt 3. */
		if (!(sqrt(err / all) < (rounds_to_bf16(b, c.type) ? 3e-3 : is_float_type(c.type) ? 1e-6 : is_i8c(c.type) ? 1e-2 :
					 1e-4)))
			fail_msg("%s %s: relative error %g", b->name, sits_dtype_info(c.type)->name, sqrt(err / all));
		free(w);
		free(y);
		case_fini(&c);
	}
}

static void quantised_activations_lose_little(void **state)
{
	each_backend(accuracy);
}

/*
 * A grouped product: @nr_experts experts, each some of T tokens that read rows of fewer prepared ones in any order,
 * against the product of each token alone.
 */
static void check_grouped(const struct sits_backend *b, uint32_t type, size_t nr_experts, size_t most)
{
	size_t bytes, rows = 7, K = is_float_type(type) ? 77 : 512, N = 1 + rnd() % 40, T = 0, n0 = rnd() % N;
	size_t n1 = n0 + rnd() % (N - n0 + 1);
	struct sits_matmul_group *group = xalloc(nr_experts * sizeof(*group));
	struct mm_case c, *expert = xalloc(nr_experts * sizeof(*expert));
	uint32_t *x_row;
	float *got, *want;
	void *act;

	case_init(&c, type, K, 1, rows, 0);
	act = prepare(b, &c, &bytes);
	for (size_t e = 0; e < nr_experts; e++) {
		case_init(&expert[e], type, K, N, 0, rnd() % 8);
		group[e] = (struct sits_matmul_group){ expert[e].raw + expert[e].shift, T, rnd() % (most + 1) };
		T += group[e].nr;
	}
	x_row = xalloc(T * sizeof(*x_row));
	for (size_t t = 0; t < T; t++)
		x_row[t] = rnd() % (uint32_t)rows;
	got = xalloc(T * N * sizeof(float));
	want = xalloc(T * N * sizeof(float));
	memset(got, 0xff, T * N * sizeof(float));
	memset(want, 0xff, T * N * sizeof(float));
	b->matmul_grouped(&(struct sits_matmul){ .wtype = type, .w_row_bytes = expert[0].row_bytes, .x = act, .x_row_bytes = bytes,
						 .x_row = x_row, .y = got, .ldy = N, .K = K, .N = N, .n0 = n0, .n1 = n1 },
			  group, nr_experts);
	for (size_t e = 0; e < nr_experts; e++) {
		for (size_t t = group[e].t0; t < group[e].t0 + group[e].nr; t++)
			run_range(b, &expert[e], (uint8_t *)act + x_row[t] * bytes, bytes, 1, n0, n1, want + t * N);
	}
	assert_true(same_bits(got, want, T * N));
	for (size_t e = 0; e < nr_experts; e++)
		case_fini(&expert[e]);
	case_fini(&c);
	free(expert);
	free(group);
	free(act);
	free(x_row);
	free(got);
	free(want);
}

static void grouped(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_TYPES; i++) {
		check_grouped(b, all_types[i], 1, 0);	/* no token at all */
		check_grouped(b, all_types[i], 1, 20);
		check_grouped(b, all_types[i], 8, 4);
		check_grouped(b, all_types[i], 64, 2);
	}
}

static void grouped_products_are_those_of_each_token_alone(void **state)
{
	each_backend(grouped);
}

/* Without x_row the tokens of the groups are the rows themselves. */
static void in_order(const struct sits_backend *b)
{
	struct sits_matmul_group group[3];
	struct mm_case c;
	float *want, got[11 * 16];
	size_t bytes;
	void *act;

	case_init(&c, SITS_Q8_0, 64, 16, 11, 3);
	act = prepare(b, &c, &bytes);
	want = run_all(b, &c);
	group[0] = (struct sits_matmul_group){ c.raw + c.shift, 5, 6 };
	group[1] = (struct sits_matmul_group){ NULL, 5, 0 };
	group[2] = (struct sits_matmul_group){ c.raw + c.shift, 0, 5 };
	b->matmul_grouped(&(struct sits_matmul){ .wtype = c.type, .w_row_bytes = c.row_bytes, .x = act, .x_row_bytes = bytes,
						 .y = got, .ldy = 16, .K = c.K, .N = 16, .n1 = 16 }, group, 3);
	assert_true(same_bits(got, want, 11 * 16));
	b->matmul_grouped(&(struct sits_matmul){ .wtype = c.type, .K = c.K, .N = 16, .n1 = 16 }, NULL, 0);
	free(want);
	free(act);
	case_fini(&c);
}

static void groups_without_an_index_take_rows_in_order(void **state)
{
	each_backend(in_order);
}

/* No tokens, or no columns: nothing is read or written. */
static void empty(const struct sits_backend *b)
{
	float y = 7;

	for (size_t i = 0; i < NR_TYPES; i++) {
		struct sits_matmul mm = { .wtype = all_types[i], .y = &y, .ldy = 1, .K = 256, .N = 20, .n1 = 20 };

		b->matmul(&mm);
		mm.T = 3;
		mm.n0 = mm.n1 = 5;
		b->matmul(&mm);
	}
	assert_true(y == 7);
}

static void empty_products_touch_nothing(void **state)
{
	each_backend(empty);
}

/* A packed matrix gives the bits of the plain one. */
static void packed(const struct sits_backend *b)
{
	static const size_t tokens[] = { 1, 3, 8, 12, 20, 35 };

	for (size_t i = 0; i < NR_TYPES; i++) {
		for (size_t t = 0; t < sizeof(tokens) / sizeof(tokens[0]) && all_types[i] & SITS_PACKED; t++) {
			uint32_t plain = all_types[i] & ~(uint32_t)SITS_PACKED;
			size_t N = 1 + rnd() % 70, K = sits_dtype_info(plain)->block_elems * (1 + rnd() % 5);
			struct mm_case c, p;
			float *want, *got;

			case_init(&c, plain, K, N, tokens[t], 1);
			case_init(&p, all_types[i], K, N, tokens[t], rnd() % 2 * 32);
			assert_int_equal(sits_pack_rows(plain, c.raw + c.shift, K, N, p.raw + p.shift), 0);
			memcpy(p.x, c.x, c.T * K * sizeof(float));
			want = run_all(b, &c);
			got = run_all(b, &p);
			assert_true(same_bits(want, got, c.T * N));
			free(want);
			free(got);
			case_fini(&c);
			case_fini(&p);
		}
	}
}

static void packing_changes_no_result(void **state)
{
	each_backend(packed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_matches_the_reference),
		cmocka_unit_test(results_do_not_depend_on_the_batch_or_the_split),
		cmocka_unit_test(prepared_rows_stand_alone),
		cmocka_unit_test(not_finite_inputs_reach_their_own_outputs),
		cmocka_unit_test(extreme_values_do_not_saturate),
		cmocka_unit_test(quantised_activations_lose_little),
		cmocka_unit_test(grouped_products_are_those_of_each_token_alone),
		cmocka_unit_test(groups_without_an_index_take_rows_in_order),
		cmocka_unit_test(empty_products_touch_nothing),
		cmocka_unit_test(packing_changes_no_result),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels matmul", tests, NULL, NULL);
}
