// SPDX-License-Identifier: MIT
/*
 * attn_test.c - attention over paged keys and values on every backend usable here.
 *
 * Tolerance against the reference, which works in double: scores are f32 sums of D products, so an
 * exponent is off by some D * 2^-24 of |q||k| scale (a few units here), and each weight by that much;
 * outputs are averages of values of about 1: 1e-5.
 */
#include "tests/unit/kernels/util.h"

#define PAGE SITS_KV_PAGE_TOKENS
#define TOLERANCE 1e-5f
#define LAYER_OFF 128

/* Some sequences over one pool; pages are handed out in a scattered order. */
struct pool {
	const struct sits_backend *b;
	size_t H, G, D, nr_seq, rows, page_bytes, nr_pages;
	size_t len[4];		/* tokens of each */
	uint8_t *kv;
	uint32_t *pages[4];
	float *k[4], *v[4];	/* [len][G][D] */
	float *q[4];		/* [len][H][D] */
};

static void pool_init(struct pool *p, size_t H, size_t G, size_t D, size_t nr_seq, const size_t *len)
{
	*p = (struct pool){ .H = H, .G = G, .D = D, .nr_seq = nr_seq };
	for (size_t s = 0; s < nr_seq; s++) {
		size_t n = (len[s] + PAGE - 1) / PAGE;

		p->len[s] = len[s];
		p->k[s] = rnd_floats(len[s] * G * D);
		p->v[s] = rnd_floats(len[s] * G * D);
		p->q[s] = rnd_floats(len[s] * H * D);
		p->pages[s] = xalloc(n * sizeof(uint32_t));
		for (size_t i = 0; i < n; i++)
			p->pages[s][i] = (uint32_t)(i * nr_seq + s);	/* interleaved */
		p->nr_pages = p->nr_pages > n * nr_seq ? p->nr_pages : n * nr_seq;
	}
}

/* What a page held before must not matter: it is filled with NaN. */
static void pool_store(struct pool *p, const struct sits_backend *b)
{
	size_t layer = b->kv_layer_bytes(p->G, p->D);

	assert_int_equal(layer % 64, 0);
	p->b = b;
	p->page_bytes = LAYER_OFF + layer;
	free(p->kv);
	p->kv = xalloc(p->page_bytes * p->nr_pages);
	memset(p->kv, 0xff, p->page_bytes * p->nr_pages);
	for (size_t s = 0; s < p->nr_seq; s++) {
		for (size_t t = 0; t < p->len[s]; t++) {
			uint8_t *page = p->kv + p->pages[s][t / PAGE] * p->page_bytes + LAYER_OFF;

			b->kv_store(page, t % PAGE, p->k[s] + t * p->G * p->D, p->v[s] + t * p->G * p->D, p->G, p->D);
		}
	}
	for (size_t i = 0; i < p->nr_pages; i++) {	/* layers next to it stay */
		for (size_t j = 0; j < LAYER_OFF; j++)
			assert_int_equal(p->kv[i * p->page_bytes + j], 0xff);
	}
}

static void pool_fini(struct pool *p)
{
	for (size_t s = 0; s < p->nr_seq; s++) {
		free(p->k[s]);
		free(p->v[s]);
		free(p->q[s]);
		free(p->pages[s]);
	}
	free(p->kv);
}

/* Rows [from[s], from[s] + nr[s]) of each sequence in one call; y as q, packed by sequence. */
static float *run(struct pool *p, const size_t *from, const size_t *nr, bool by_task)
{
	struct sits_attn_seq seq[4];
	size_t row = p->H * p->D, rows = 0, used = 0;
	float *q, *y;
	struct sits_attn a = {
		.kv = p->kv, .page_bytes = p->page_bytes, .layer_off = LAYER_OFF, .H = p->H, .G = p->G, .D = p->D,
		.scale = 1.0f / sqrtf((float)p->D), .seq = seq,
	};
	void *scratch;

	for (size_t s = 0; s < p->nr_seq; s++)
		rows += nr[s];
	q = xalloc(rows * row * sizeof(float));
	y = xalloc(rows * row * sizeof(float));
	memset(y, 0xff, rows * row * sizeof(float));
	for (size_t s = 0; s < p->nr_seq; s++) {
		if (!nr[s])
			continue;
		seq[a.nr_seq++] = (struct sits_attn_seq){ p->pages[s], used, nr[s], from[s] };
		memcpy(q + used * row, p->q[s] + from[s] * row, nr[s] * row * sizeof(float));
		used += nr[s];
	}
	a.q = q;
	a.y = y;
	scratch = xalloc(p->b->attn_scratch_bytes(&a));
	if (by_task) {
		for (size_t t = p->b->attn_tasks(&a); t > 0; t--)
			p->b->attn(&a, t - 1, t, scratch);
	} else {
		p->b->attn(&a, 0, p->b->attn_tasks(&a), scratch);
	}
	free(scratch);
	free(q);
	return y;
}

static const struct shape { size_t H, G, D, nr_seq, len[4]; } shapes[] = {
	{ 9, 3, 64, 1, { 100 } },
	{ 9, 3, 64, 3, { 33, 1, 64 } },
	{ 4, 4, 16, 2, { 31, 32 } },
	{ 8, 1, 128, 1, { 70 } },
	{ 14, 2, 80, 2, { 5, 97 } },
	{ 2, 1, 256, 1, { 40 } },
	{ 3, 3, 48, 4, { 1, 2, 3, 65 } },
};
#define NR_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const size_t zero[4];

static void against_ref(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_SHAPES; i++) {
		const struct shape *sh = &shapes[i];
		size_t n = 0;
		struct pool p;
		float *want, *got;

		pool_init(&p, sh->H, sh->G, sh->D, sh->nr_seq, sh->len);
		pool_store(&p, ref());
		want = run(&p, zero, p.len, false);
		pool_store(&p, b);
		got = run(&p, zero, p.len, false);
		for (size_t s = 0; s < p.nr_seq; s++)
			n += p.len[s] * p.H * p.D;
		for (size_t j = 0; j < n; j++) {
			if (!(fabsf(got[j] - want[j]) <= TOLERANCE))
				fail_msg("%s shape %zu element %zu: %a, not %a", b->name, i, j, (double)got[j],
					 (double)want[j]);
		}
		free(want);
		free(got);
		pool_fini(&p);
	}
}

static void every_shape_matches_the_reference(void **state)
{
	each_backend(against_ref);
}

/* Row t of sequence s in a result of run(all rows). */
static const float *row_of(const struct pool *p, const float *all, size_t s, size_t t)
{
	for (size_t i = 0; i < s; i++)
		all += p->len[i] * p->H * p->D;
	return all + t * p->H * p->D;
}

static void check_row_sets(struct pool *p, const float *all, const size_t *from, const size_t *nr)
{
	float *y = run(p, from, nr, rnd() & 1);
	const float *at = y;

	for (size_t s = 0; s < p->nr_seq; s++) {
		for (size_t t = 0; t < nr[s]; t++, at += p->H * p->D)
			assert_true(same_bits(at, row_of(p, all, s, from[s] + t), p->H * p->D));
	}
	free(y);
}

/* Decode steps, chunks of prefill, company and task order change no bit. */
static void invariance(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_SHAPES; i++) {
		const struct shape *sh = &shapes[i];
		struct pool p;
		float *all;

		pool_init(&p, sh->H, sh->G, sh->D, sh->nr_seq, sh->len);
		pool_store(&p, b);
		all = run(&p, zero, p.len, false);
		check_row_sets(&p, all, zero, p.len);
		for (int round = 0; round < 30; round++) {
			size_t from[4] = { 0 }, nr[4] = { 0 };

			for (size_t s = 0; s < p.nr_seq; s++) {
				from[s] = rnd() % p.len[s];
				nr[s] = rnd() % 3 ? 1 : rnd() % (p.len[s] - from[s] + 1);
			}
			check_row_sets(&p, all, from, nr);
		}
		free(all);
		pool_fini(&p);
	}
}

static void chunks_and_company_change_no_bit(void **state)
{
	each_backend(invariance);
}

/* A later token's not-finite key or value leaves earlier rows of the same page alone. */
static void later_tokens(const struct sits_backend *b)
{
	size_t len[1] = { 45 }, row;
	struct pool p;
	float *clean, *y;

	pool_init(&p, 6, 2, 64, 1, len);
	row = p.H * p.D;
	pool_store(&p, b);
	clean = run(&p, zero, p.len, false);
	for (size_t d = 0; d < p.G * p.D; d++)
		p.k[0][40 * p.G * p.D + d] = p.v[0][40 * p.G * p.D + d] = d & 1 ? NAN : INFINITY;
	pool_store(&p, b);
	y = run(&p, zero, p.len, false);
	assert_true(same_bits(clean, y, 40 * row));
	for (size_t i = 40 * row; i < 45 * row; i++)
		assert_true(isnan(y[i]));
	free(clean);
	free(y);
	pool_fini(&p);
}

static void rows_never_see_later_tokens(void **state)
{
	each_backend(later_tokens);
}

/* Large scores: the softmax must be the stable one. Equal keys: the plain mean of the values. */
static void stable(const struct sits_backend *b)
{
	size_t len[1] = { 70 }, D = 64;
	struct pool p;
	float *y;

	pool_init(&p, 1, 1, D, 1, len);
	for (size_t i = 0; i < len[0] * D; i++) {
		p.q[0][i] = 300;
		p.k[0][i] = i / D == 50 ? 300 : 299;
	}
	pool_store(&p, b);
	y = run(&p, zero, p.len, false);
	for (size_t d = 0; d < D; d++)	/* token 50 takes all from then on */
		assert_true(fabsf(y[69 * D + d] - sits_f16_to_f32(sits_f32_to_f16(p.v[0][50 * D + d]))) < 1e-6f);
	for (size_t d = 0; d < D; d++) {
		double mean = 0;

		for (size_t t = 0; t < 50; t++)
			mean += (double)sits_f16_to_f32(sits_f32_to_f16(p.v[0][t * D + d])) / 50;
		assert_true(fabs((double)y[49 * D + d] - mean) < 1e-5);
	}
	free(y);
	pool_fini(&p);
}

static void softmax_is_stable(void **state)
{
	each_backend(stable);
}

/* One short request on two threads: the work must be divisible. */
static void divisible(const struct sits_backend *b)
{
	struct sits_attn_seq seq = { NULL, 0, 1, 2000 };
	struct sits_attn a = { .H = 9, .G = 3, .D = 64, .seq = &seq, .nr_seq = 1 };

	assert_true(b->attn_tasks(&a) >= 6);
	seq.nr = 64;
	assert_true(b->attn_tasks(&a) >= 64);
}

static void one_row_is_still_many_tasks(void **state)
{
	each_backend(divisible);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape_matches_the_reference),
		cmocka_unit_test(chunks_and_company_change_no_bit),
		cmocka_unit_test(rows_never_see_later_tokens),
		cmocka_unit_test(softmax_is_stable),
		cmocka_unit_test(one_row_is_still_many_tasks),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels attention", tests, NULL, NULL);
}
