// SPDX-License-Identifier: MIT
/*
 * attn_test.c - attention over paged keys and values on every backend usable here.
 *
 * Tolerance against the reference, which works in double: scores are f32 sums of D products, so an
 * exponent is off by some D * 2^-24 of |q||k| scale (a few units here), and each weight by that much;
 * outputs are averages of values of about 1: 1e-5.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/kernels/util.h"

#define PAGE SITS_KV_PAGE_TOKENS
#define TOLERANCE 1e-5f
#define LAYER_OFF 128

static const struct shape {
	size_t H, G, Dk, Dv, len[4], window;
	uint32_t kind;
	bool v_in_k;
} shapes[] = {
	{ 9, 3, 64, 64, { 100 }, 0, SITS_KV_F16, false },
	{ 9, 3, 64, 64, { 33, 1, 64 }, 0, SITS_KV_F16, false },
	{ 4, 4, 16, 16, { 31, 32 }, 0, SITS_KV_F16, false },
	{ 8, 1, 128, 128, { 70 }, 0, SITS_KV_F16, false },
	{ 14, 2, 80, 80, { 5, 97 }, 0, SITS_KV_F16, false },
	{ 2, 1, 256, 256, { 40 }, 0, SITS_KV_F16, false },
	{ 3, 3, 48, 48, { 1, 2, 3, 65 }, 0, SITS_KV_F16, false },
	{ 9, 3, 64, 64, { 100, 33 }, 1, SITS_KV_F16, false },
	{ 9, 3, 64, 64, { 100, 64 }, 31, SITS_KV_F16, false },
	{ 4, 2, 32, 32, { 130, 1, 65 }, 40, SITS_KV_F16, false },
	{ 6, 3, 96, 64, { 40, 70 }, 0, SITS_KV_F16, false },		/* MLA, unfolded */
	{ 4, 2, 16, 48, { 65 }, 33, SITS_KV_F16, false },
	{ 16, 1, 576, 512, { 66 }, 0, SITS_KV_F16, true },	/* MLA, folded */
	{ 5, 1, 96, 80, { 70, 3 }, 20, SITS_KV_F16, true },
	{ 4, 2, 48, 48, { 40 }, 0, SITS_KV_F16, true },
	{ 9, 3, 64, 64, { 100, 33 }, 0, SITS_KV_I8, false },
	{ 6, 2, 128, 96, { 70 }, 45, SITS_KV_I8, false },
	{ 7, 1, 80, 64, { 70, 31 }, 0, SITS_KV_I8, true },
	{ 9, 3, 64, 64, { 100, 33 }, 0, SITS_KV_F32, false },
	{ 5, 1, 96, 80, { 70, 3 }, 20, SITS_KV_F32, true },
	{ 2, 2, 1024, 1024, { 35 }, 0, SITS_KV_F16, false },
};
#define NR_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Some sequences over one pool; pages are handed out in a scattered order. */
struct pool {
	const struct sits_backend *b;
	struct sits_kv_shape shape;
	size_t H, window, nr_seq, page_bytes, nr_pages, head_stride, tasks;
	size_t len[4];		/* tokens of each */
	uint8_t *kv;
	uint32_t *pages[4];
	float *k[4], *v[4];	/* [len][G][Dk], [len][G][Dv] */
	float *q[4];		/* [len][H][Dk] */
	float *entropy;		/* of the last run, [rows][H] */
	bool shared;		/* give run() the memory to split contexts with, and several threads */
	void *work;		/* it, from run() to run() */
};

static void pool_init(struct pool *p, const struct shape *sh)
{
	size_t G = sh->G, nr_seq;

	for (nr_seq = 0; nr_seq < 4 && sh->len[nr_seq]; nr_seq++)
		;
	*p = (struct pool){ .H = sh->H, .window = sh->window, .nr_seq = nr_seq,
		.shape = { .kind = sh->kind, .v_in_k = sh->v_in_k, .G = G, .Dk = sh->Dk, .Dv = sh->Dv } };
	for (size_t s = 0; s < nr_seq; s++) {
		size_t len = sh->len[s], n = (len + PAGE - 1) / PAGE;

		p->len[s] = len;
		p->k[s] = rnd_floats(len * G * sh->Dk);
		p->v[s] = rnd_floats(len * G * sh->Dv);
		p->q[s] = rnd_floats(len * p->H * sh->Dk);
		p->pages[s] = xalloc(n * sizeof(uint32_t));
		for (size_t i = 0; i < n; i++)
			p->pages[s][i] = (uint32_t)(i * nr_seq + s);	/* interleaved */
		p->nr_pages = p->nr_pages > n * nr_seq ? p->nr_pages : n * nr_seq;
	}
}

/* What a page held before must not matter: it is filled with NaN. */
static void pool_store(struct pool *p, const struct sits_backend *b)
{
	size_t layer = b->kv_layer_bytes(&p->shape);

	assert_int_equal(layer % 64, 0);
	p->b = b;
	p->page_bytes = LAYER_OFF + layer;
	free(p->kv);
	p->kv = xalloc(p->page_bytes * p->nr_pages);
	memset(p->kv, 0xff, p->page_bytes * p->nr_pages);
	for (size_t s = 0; s < p->nr_seq; s++) {
		for (size_t t = 0; t < p->len[s]; t++) {
			uint8_t *page = p->kv + p->pages[s][t / PAGE] * p->page_bytes + LAYER_OFF;

			b->kv_store(&p->shape, page, t % PAGE, p->k[s] + t * p->shape.G * p->shape.Dk,
				    p->shape.v_in_k ? NULL : p->v[s] + t * p->shape.G * p->shape.Dv);
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
	free(p->entropy);
	free(p->work);
}

/* Tasks of a call, claimed by threads one by one. */
struct team {
	const struct sits_backend *b;
	const struct sits_attn *a;
	atomic_size_t next;
};

static void *claim(void *arg)
{
	struct team *t = arg;
	void *scratch = xalloc(t->b->attn_scratch_bytes(t->a));

	for (size_t i; (i = atomic_fetch_add(&t->next, 1)) < t->b->attn_tasks(t->a);)
		t->b->attn(t->a, i, i + 1, scratch);
	free(scratch);
	return NULL;
}

static void run_team(const struct sits_backend *b, const struct sits_attn *a)
{
	struct team t = { .b = b, .a = a };
	pthread_t id[4];

	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&id[i], NULL, claim, &t), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(id[i], NULL);
}

/* Rows [from[s], from[s] + nr[s]) of each sequence in one call; y as q, packed by sequence. */
static float *run(struct pool *p, const size_t *from, const size_t *nr, bool by_task)
{
	size_t q_row = p->H * p->shape.Dk, y_row = p->H * p->shape.Dv, rows = 0, used = 0;
	struct sits_attn_seq seq[4];
	struct sits_attn a = {
		.kv = p->kv, .page_bytes = p->page_bytes, .layer_off = LAYER_OFF, .H = p->H, .shape = p->shape,
		.scale = 1.0f / sqrtf((float)p->shape.Dk), .window = p->window, .seq = seq,
	};
	void *scratch;
	float *q, *y;

	for (size_t s = 0; s < p->nr_seq; s++)
		rows += nr[s];
	q = xalloc(rows * q_row * sizeof(float));
	y = xalloc(rows * y_row * sizeof(float));
	free(p->entropy);
	p->entropy = xalloc(rows * p->H * sizeof(float));
	memset(y, 0xff, rows * y_row * sizeof(float));
	memset(p->entropy, 0xff, rows * p->H * sizeof(float));
	for (size_t s = 0; s < p->nr_seq; s++) {
		if (!nr[s])
			continue;
		seq[a.nr_seq++] = (struct sits_attn_seq){ p->pages[s], used, nr[s], from[s], p->head_stride };
		memcpy(q + used * q_row, p->q[s] + from[s] * q_row, nr[s] * q_row * sizeof(float));
		used += nr[s];
	}
	a.q = q;
	a.y = y;
	a.entropy = p->entropy;
	if (p->shared && !p->work) {
		p->work = xalloc(p->b->attn_work_bytes(&a));
		memset(p->work, 0, p->b->attn_work_bytes(&a));
	}
	if (p->shared && p->b->attn_work_bytes(&a))
		a.work = p->work;
	p->tasks = p->b->attn_tasks(&a);
	scratch = xalloc(p->b->attn_scratch_bytes(&a));
	if (by_task && p->shared) {
		run_team(p->b, &a);
	} else if (by_task) {
		for (size_t t = p->b->attn_tasks(&a); t > 0; t--)
			p->b->attn(&a, t - 1, t, scratch);
	} else {
		p->b->attn(&a, 0, p->b->attn_tasks(&a), scratch);
	}
	free(scratch);
	free(q);
	return y;
}

static const size_t zero[4];

static size_t total_rows(const struct pool *p)
{
	size_t n = 0;

	for (size_t s = 0; s < p->nr_seq; s++)
		n += p->len[s];
	return n;
}

static void check_close(const struct pool *p, const char *what, const float *got, const float *want, size_t n)
{
	for (size_t j = 0; j < n; j++) {
		if (!(fabsf(got[j] - want[j]) <= TOLERANCE))
			fail_msg("%s H %zu G %zu Dk %zu Dv %zu kind %u window %zu: %s %zu: %a, not %a", p->b->name, p->H,
				 p->shape.G, p->shape.Dk, p->shape.Dv, p->shape.kind, p->window, what, j, (double)got[j],
				 (double)want[j]);
	}
}

/* All rows on b, against the reference. */
static void check_pool(struct pool *p, const struct sits_backend *b)
{
	size_t n = total_rows(p) * p->H;
	float *want, *got, *entropy;

	pool_store(p, ref());
	want = run(p, zero, p->len, false);
	entropy = p->entropy;
	p->entropy = NULL;
	pool_store(p, b);
	got = run(p, zero, p->len, false);
	check_close(p, "y", got, want, n * p->shape.Dv);
	check_close(p, "entropy", p->entropy, entropy, n);
	free(want);
	free(got);
	free(entropy);
}

static void against_ref(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_SHAPES; i++) {
		struct pool p;

		pool_init(&p, &shapes[i]);
		check_pool(&p, b);
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
		all += p->len[i] * p->H * p->shape.Dv;
	return all + t * p->H * p->shape.Dv;
}

static void check_row_sets(struct pool *p, const float *all, const size_t *from, const size_t *nr)
{
	float *y = run(p, from, nr, rnd() & 1);
	const float *at = y;

	for (size_t s = 0; s < p->nr_seq; s++) {
		for (size_t t = 0; t < nr[s]; t++, at += p->H * p->shape.Dv)
			assert_true(same_bits(at, row_of(p, all, s, from[s] + t), p->H * p->shape.Dv));
	}
	free(y);
}

/* Decode steps, chunks of prefill, company and task order change no bit. */
static void invariance(const struct sits_backend *b)
{
	for (size_t i = 0; i < NR_SHAPES; i++) {
		struct pool p;
		float *all;

		if (b == ref() && shapes[i].Dk > 256)	/* slow, and a row at a time anyway */
			continue;
		pool_init(&p, &shapes[i]);
		pool_store(&p, b);
		all = run(&p, zero, p.len, false);
		check_row_sets(&p, all, zero, p.len);
		for (int round = 0; round < (b == ref() ? 4 : 20); round++) {
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
	static const struct shape kinds[] = {
		{ 6, 2, 64, 64, { 45 }, 0, SITS_KV_F16, false }, { 6, 2, 64, 64, { 45 }, 0, SITS_KV_I8, false },
		{ 6, 1, 64, 48, { 45 }, 0, SITS_KV_F16, true }, { 6, 1, 64, 48, { 45 }, 0, SITS_KV_I8, true },
	};

	for (size_t i = 0; i < 4; i++) {
		float *clean, *y;
		struct pool p;
		size_t row;

		pool_init(&p, &kinds[i]);
		row = p.H * p.shape.Dv;
		pool_store(&p, b);
		clean = run(&p, zero, p.len, false);
		for (size_t d = 0; d < p.shape.G * p.shape.Dk; d++)
			p.k[0][40 * p.shape.G * p.shape.Dk + d] = d & 1 ? NAN : INFINITY;
		for (size_t d = 0; d < p.shape.G * p.shape.Dv; d++)
			p.v[0][40 * p.shape.G * p.shape.Dv + d] = d & 1 ? NAN : INFINITY;
		pool_store(&p, b);
		y = run(&p, zero, p.len, false);
		assert_true(same_bits(clean, y, 40 * row));
		for (size_t j = 40 * row; j < 45 * row; j++)
			assert_true(isnan(y[j]));
		free(clean);
		free(y);
		pool_fini(&p);
	}
}

static void rows_never_see_later_tokens(void **state)
{
	each_backend(later_tokens);
}

/* Nor what the window has left behind: it may be NaN, and its page may be anybody's by now. */
static void left_behind(const struct sits_backend *b)
{
	const struct shape sh = { 4, 2, 32, 32, { 200 }, 50, SITS_KV_F16, false };
	size_t from[4] = { 150 }, nr[4] = { 50 };
	float *clean, *y;
	struct pool p;

	pool_init(&p, &sh);
	pool_store(&p, b);
	clean = run(&p, from, nr, false);
	for (size_t i = 0; i < 101 * 2 * 32; i++)
		p.k[0][i] = p.v[0][i] = NAN;
	pool_store(&p, b);
	for (size_t i = 0; i < 3; i++)	/* positions 0 .. 95; the first row sees from 101 on */
		p.pages[0][i] = i == 1 ? SITS_KV_ABSENT : 0x7fffffff;
	y = run(&p, from, nr, false);
	assert_true(same_bits(clean, y, nr[0] * p.H * 32));
	free(clean);
	free(y);
	pool_fini(&p);
}

static void rows_never_see_what_the_window_left(void **state)
{
	each_backend(left_behind);
}

/* Rows skip absent pages: here against the reference, which is checked against plain masks below. */
static void absent(const struct sits_backend *b)
{
	static const struct shape kinds[] = {
		{ 6, 2, 64, 64, { 200, 100 }, 0, SITS_KV_F16, false }, { 6, 2, 64, 64, { 200, 70 }, 45, SITS_KV_F16, false },
		{ 6, 2, 32, 48, { 170, 33 }, 0, SITS_KV_I8, false }, { 6, 1, 64, 48, { 200 }, 0, SITS_KV_F16, true },
	};

	for (size_t i = 0; i < 4; i++) {
		size_t from[4] = { 20, 20 }, nr[4] = { kinds[i].len[0] - 20, kinds[i].len[1] ? kinds[i].len[1] - 20 : 0 };
		float *all, *y;
		struct pool p;

		pool_init(&p, &kinds[i]);
		pool_store(&p, ref());
		for (size_t s = 0; s < p.nr_seq; s++)
			p.pages[s][1] = SITS_KV_ABSENT;
		/* pool_store() writes every page, so it comes first. */
		all = run(&p, from, nr, false);
		for (size_t s = 0; s < p.nr_seq; s++)
			p.pages[s][1] = (uint32_t)(p.nr_seq + s);
		pool_store(&p, b);
		for (size_t s = 0; s < p.nr_seq; s++)
			p.pages[s][1] = SITS_KV_ABSENT;
		y = run(&p, from, nr, true);
		check_close(&p, "with absent pages: y", y, all, (nr[0] + nr[1]) * p.H * p.shape.Dv);
		free(all);
		free(y);
		pool_fini(&p);
	}
}

static void absent_pages_are_skipped(void **state)
{
	each_backend(absent);
}

/* A row whose positions are all absent. */
static void nothing_to_see(const struct sits_backend *b)
{
	const struct shape sh = { 6, 2, 64, 64, { 40 }, 0, SITS_KV_F16, false };
	float *y;
	struct pool p;

	pool_init(&p, &sh);
	pool_store(&p, b);
	p.pages[0][0] = SITS_KV_ABSENT;
	y = run(&p, zero, p.len, false);
	for (size_t i = 0; i < 32 * p.H * 64; i++)
		assert_true(y[i] == 0);
	for (size_t i = 0; i < 33 * p.H; i++)	/* one token: no choice, no entropy */
		assert_true(p.entropy[i] == 0);
	for (size_t i = 0; i < 64; i++)
		assert_true(y[32 * p.H * 64 + i] == sits_f16_to_f32(sits_f32_to_f16(p.v[0][32 * 2 * 64 + i])));
	free(y);
	pool_fini(&p);
}

static void a_row_that_sees_nothing_is_zero(void **state)
{
	each_backend(nothing_to_see);
}

/* A long context that several threads share gives the same bits, whichever comes last. */
static void split(const struct sits_backend *b)
{
	static const struct shape kinds[] = {
		{ 6, 2, 16, 16, { 1300, 520 }, 0, SITS_KV_F16, false }, { 3, 1, 16, 32, { 1300 }, 600, SITS_KV_F16, false },
		{ 4, 1, 48, 32, { 2100 }, 0, SITS_KV_F16, true }, { 4, 2, 16, 16, { 1100, 3 }, 0, SITS_KV_I8, false },
	};

	for (size_t i = 0; i < 4; i++) {
		size_t from[4] = { kinds[i].len[0] - 2, kinds[i].len[1] ? kinds[i].len[1] - 1 : 0 };
		size_t nr[4] = { 2, kinds[i].len[1] ? 1 : 0 }, n;
		float *want, *y;
		struct pool p;

		pool_init(&p, &kinds[i]);
		n = (nr[0] + nr[1]) * p.H * p.shape.Dv;
		pool_store(&p, ref());
		p.pages[0][20] = SITS_KV_ABSENT;
		want = run(&p, from, nr, false);
		p.pages[0][20] = 20 * (uint32_t)p.nr_seq;
		pool_store(&p, b);
		p.pages[0][20] = SITS_KV_ABSENT;
		y = run(&p, from, nr, false);
		check_close(&p, "long: y", y, want, n);
		free(want);
		p.shared = true;
		for (int turn = 0; turn < 12; turn++) {
			float *shared = run(&p, from, nr, turn > 0);

			assert_true(same_bits(y, shared, n));
			free(shared);
		}
		assert_true(b == ref() || p.tasks >= 8);
		free(y);
		pool_fini(&p);
	}
}

static void sharing_a_context_changes_no_bit(void **state)
{
	each_backend(split);
}

/* Each key/value head with a block table of its own. */
static void own_tables(const struct sits_backend *b)
{
	const struct shape sh = { 6, 2, 64, 64, { 100 }, 0, SITS_KV_F16, false };
	float *shared, *own;
	struct pool p;
	uint32_t *one, *table;

	pool_init(&p, &sh);
	pool_store(&p, b);
	one = p.pages[0];
	shared = run(&p, zero, p.len, false);
	table = xalloc(16 * sizeof(*table));
	for (size_t i = 0; i < 4; i++) {
		table[i] = one[i] * 2;
		table[8 + i] = one[i] * 2 + 1;
	}
	p.pages[0] = table;
	p.head_stride = 8;
	own = run(&p, zero, p.len, false);
	assert_true(same_bits(shared, own, 100 * 6 * 64));
	free(own);
	table[9] = SITS_KV_ABSENT;	/* head 1, positions 32 .. 63 */
	own = run(&p, zero, p.len, false);
	for (size_t r = 0; r < 100; r++) {
		assert_true(same_bits(shared + r * 6 * 64, own + r * 6 * 64, 3 * 64));
		assert_int_equal(same_bits(shared + r * 6 * 64 + 3 * 64, own + r * 6 * 64 + 3 * 64, 3 * 64), r < 32);
	}
	free(one);
	free(own);
	free(shared);
	pool_fini(&p);
}

static void heads_may_have_tables_of_their_own(void **state)
{
	each_backend(own_tables);
}

#define STRIDE 16	/* of heads' tables below */

/* Cells of a sequence's pages and of as many behind them: their table as it is stored, or in the reverse order behind. */
static void cell_table(const struct pool *p, uint32_t *table, size_t pages, bool reversed)
{
	size_t G = p->shape.G;

	for (size_t g = 0; g < G; g++)
		for (size_t i = 0; i < pages; i++)
			table[g * STRIDE + i] = (uint32_t)(reversed ? 2 * pages * G - 1 - i * G - g : i * G + g);
}

/* Each cell is copied to where the reversed table has it, and what it was is void. */
static void scatter(struct pool *p, const uint32_t *from, const uint32_t *to, size_t pages)
{
	size_t G = p->shape.G;
	uint8_t *base = p->kv + LAYER_OFF;

	for (size_t g = 0; g < G; g++)
		for (size_t i = g * STRIDE; i < g * STRIDE + pages; i++)
			p->b->kv_copy(&p->shape, base + to[i] / G * p->page_bytes, to[i] % G,
				      base + from[i] / G * p->page_bytes, from[i] % G);
	memset(p->kv, 0xff, pages * p->page_bytes);
	for (size_t i = pages; i < 2 * pages; i++)	/* the layer before stays */
		for (size_t j = 0; j < LAYER_OFF; j++)
			assert_int_equal(p->kv[i * p->page_bytes + j], 0xff);
}

/* Head g lacks page i. */
static void take_away(const struct pool *p, uint32_t *table, size_t pages)
{
	for (size_t g = 0; g < p->shape.G; g++)
		for (size_t i = 0; i < pages; i++)
			if ((i * 3 + g) % 4 == 1)
				table[g * STRIDE + i] = SITS_KV_ABSENT;
}

static void cells(const struct sits_backend *b)
{
	static const struct shape kinds[] = {
		{ 6, 2, 64, 64, { 170 }, 0, SITS_KV_F16, false }, { 9, 3, 64, 48, { 200 }, 70, SITS_KV_F16, false },
		{ 6, 3, 32, 48, { 170 }, 0, SITS_KV_I8, false }, { 4, 4, 16, 16, { 200 }, 0, SITS_KV_F32, false },
		{ 6, 1, 64, 48, { 200 }, 0, SITS_KV_F16, true }, { 3, 1, 80, 64, { 150 }, 0, SITS_KV_I8, true },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t pages = (kinds[i].len[0] + PAGE - 1) / PAGE, n = kinds[i].len[0] * kinds[i].H * kinds[i].Dv;
		uint32_t plain[4 * STRIDE], moved[4 * STRIDE], *one;
		float *want, *whole, *y;
		struct pool p;

		pool_init(&p, &kinds[i]);
		p.nr_pages *= 2;
		cell_table(&p, plain, pages, false);
		cell_table(&p, moved, pages, true);
		one = p.pages[0];
		pool_store(&p, b);
		whole = run(&p, zero, p.len, false);
		p.head_stride = STRIDE;
		p.pages[0] = plain;
		y = run(&p, zero, p.len, true);
		assert_true(same_bits(whole, y, n));
		free(y);
		scatter(&p, plain, moved, pages);
		p.pages[0] = moved;
		y = run(&p, zero, p.len, true);
		assert_true(same_bits(whole, y, n));
		free(y);
		take_away(&p, moved, pages);
		y = run(&p, zero, p.len, true);
		/* The reference, its cells where they were stored. */
		p.pages[0] = one;
		pool_store(&p, ref());
		take_away(&p, plain, pages);
		p.pages[0] = plain;
		want = run(&p, zero, p.len, false);
		check_close(&p, "with scattered cells: y", y, want, n);
		p.pages[0] = one;
		free(whole);
		free(want);
		free(y);
		pool_fini(&p);
	}
}

static void a_heads_tokens_may_lie_in_any_cell(void **state)
{
	each_backend(cells);
}

/*
 * The reference's window, kinds and entropy from their definitions alone: here the mask, the softmax and
 * -sum p log p are written out for one head.
 */
static void definition(const struct sits_backend *b)
{
	for (int i8 = 0; i8 < 2; i8++) {
		const struct shape sh = { 1, 1, 16, 32, { 77 }, 40, i8 ? SITS_KV_I8 : SITS_KV_F16, false };
		struct pool p;
		float *y;

		pool_init(&p, &sh);
		pool_store(&p, b);
		p.pages[0][1] = SITS_KV_ABSENT;
		y = run(&p, zero, p.len, false);
		for (size_t r = 0; r < 77; r++) {
			double w[77] = { 0 }, total = 0, entropy = 0, sum;

			for (size_t j = 0; j <= r; j++) {
				if (r - j >= 40 || (j >= 32 && j < 64))
					continue;
				sum = 0;
				for (size_t d = 0; d < 16; d++)
					sum += (double)p.q[0][r * 16 + d] * (double)p.k[0][j * 16 + d];
				w[j] = exp(sum / 4);
				total += w[j];
			}
			for (size_t j = 0; j < 77; j++)
				entropy -= w[j] > 0 ? w[j] / total * log(w[j] / total) : 0;
			assert_true(fabs((double)p.entropy[r] - entropy) < (i8 ? 0.05 : 0.002));
			for (size_t d = 0; d < 32; d++) {
				sum = 0;
				for (size_t j = 0; j < 77; j++)
					sum += total > 0 ? w[j] / total * (double)p.v[0][j * 32 + d] : 0;
				/* f16 of numbers about 1: 2^-12; bytes: 3 / 254, and the scores' share */
				assert_true(fabs((double)y[r * 32 + d] - sum) < (i8 ? 0.08 : 0.005));
			}
		}
		free(y);
		pool_fini(&p);
	}
}

static void results_are_those_of_the_definition(void **state)
{
	each_backend(definition);
}

/* Bytes with scales that are at their limits. */
static void byte_limits(const struct sits_backend *b)
{
	const struct shape sh = { 1, 1, 16, 16, { 3 }, 0, SITS_KV_I8, false };
	struct pool p;
	float *y;

	pool_init(&p, &sh);
	for (size_t i = 0; i < 3 * 16; i++) {
		p.q[0][i] = 0;
		p.k[0][i] = 1e-44f;		/* subnormal: counts as zero */
		p.v[0][i] = i < 16 ? 3e38f : i < 32 ? 0.0f : 1e-30f;
	}
	pool_store(&p, b);
	y = run(&p, zero, p.len, false);
	for (size_t d = 0; d < 16; d++) {
		assert_true(fabsf(y[d] - 3e38f) < 1e32f);
		assert_true(fabsf(y[16 + d] - 1.5e38f) < 1e32f);
		assert_true(fabsf(y[32 + d] - 1e38f) < 1e32f);
	}
	free(y);
	pool_fini(&p);
}

static void bytes_reach_from_zero_to_the_largest(void **state)
{
	each_backend(byte_limits);
}

/* Large scores: the softmax must be the stable one. Equal keys: the plain mean of the values. */
static void stable(const struct sits_backend *b)
{
	const struct shape sh = { 1, 1, 64, 64, { 70 }, 0, SITS_KV_F16, false };
	size_t D = 64;
	struct pool p;
	float *y;

	pool_init(&p, &sh);
	for (size_t i = 0; i < 70 * D; i++) {
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
	assert_true(fabsf(p.entropy[49] - logf(50)) < 1e-5f);
	assert_true(p.entropy[69] < 1e-6f);
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
	struct sits_attn_seq seq = { NULL, 0, 1, 2000, 0 };
	struct sits_attn a = { .H = 9, .shape = { .G = 3, .Dk = 64, .Dv = 64 }, .seq = &seq, .nr_seq = 1 };

	assert_true(b->attn_tasks(&a) >= 6);
	seq.nr = 64;
	assert_true(b->attn_tasks(&a) >= 32);
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
		cmocka_unit_test(rows_never_see_what_the_window_left),
		cmocka_unit_test(absent_pages_are_skipped),
		cmocka_unit_test(a_row_that_sees_nothing_is_zero),
		cmocka_unit_test(sharing_a_context_changes_no_bit),
		cmocka_unit_test(heads_may_have_tables_of_their_own),
		cmocka_unit_test(a_heads_tokens_may_lie_in_any_cell),
		cmocka_unit_test(results_are_those_of_the_definition),
		cmocka_unit_test(bytes_reach_from_zero_to_the_largest),
		cmocka_unit_test(softmax_is_stable),
		cmocka_unit_test(one_row_is_still_many_tasks),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels attention", tests, NULL, NULL);
}
