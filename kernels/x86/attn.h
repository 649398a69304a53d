/* SPDX-License-Identifier: MIT */
/*
 * attn.h - template: causal grouped-query attention over paged keys and values.
 *
 * A row (one query head at one position) sees a range of positions. They are taken in blocks of BLOCK,
 * blocks in segments of SEGMENT, both cut at absolute positions. Within a segment the softmax runs online:
 *
 *	m' = max(m, largest score of the block);  p = 2^(score - m');  c = 2^(m - m')
 *	l = l c + p (by lanes);  sum = sum c + p_j V_j, j ascending
 *
 * with log2 e in the scores' scale, and segments are put together in ascending order. All of it depends on
 * nothing but the row itself: not on chunks of prefill, nor on which rows run together. That segments are
 * independent lets several threads share one row's long context (struct sits_attn, work): each leaves its segments
 * there, and the one that comes last puts them together.
 *
 * Up to TASK_ROWS rows that share a key/value head run together over each block, in tiles of up to TILE rows that
 * share each load and conversion of K and V. Tokens that not all rows of a tile see are weighed row by row, so that
 * what a row does not see (other rows' tokens, old pages' leftovers) never touches it.
 */
#ifndef SITS_KERNELS_X86_ATTN_H
#define SITS_KERNELS_X86_ATTN_H

#include "kernels/dropout.h"
#include "kernels/x86/attn_kv.h"
#include "kernels/x86/exp.h"

#define PV (P / VL)		/* vectors in a page's scores */
#define BLOCK_PAGES 4
#define BLOCK (BLOCK_PAGES * P)
#define ALL_PAGES ((1u << BLOCK_PAGES) - 1)
#define AHEAD (VL == 16 ? 2 : 1)	/* pages */
#define SEGMENT 512
/* So few rows wait for memory: they take values page by page, which prefetches evenly. More rows wait for the
 * multipliers: they take a block at a time, so that sums stay in registers longer. */
#define FEW_ROWS 3
#define TILE 6			/* rows; their sums fill the registers */
#define TASK_ROWS 12
#define FEW_TASKS 8		/* fewer than this are made more */
#define LOG2_E 0x1.715476p+0f
#define LN_2 0x1.62e43p-1f

/* Of a softmax and its weighted sum. No position was seen yet: m is -Inf and l is 0. */
struct part {
	float m, l, ls;		/* largest score; sums of p, and of p (score - m) */
	float *sum;		/* [Dv] */
};

struct arow {
	vf l, ls;		/* of the segment, by lanes */
	float m;
	float *p, *sum;		/* scores, then weights, [BLOCK]; [Dv] of the segment */
	size_t lo, hi;		/* what it sees of the block */
	struct part all;	/* segments before */
	const float *q;
	float *y, *entropy;
	size_t pos, stream;	/* stream: sequence and head, as dropout counts them */
};

struct task {
	const struct sits_attn *a;
	const struct sits_attn_seq *seq;
	const uint32_t *pages;
	size_t g, n;
	struct arow *row;	/* [n], positions not descending */
	float *partial;		/* split: [n][segments of the sequence] of partial_floats() */
	uint32_t *done;		/* split: tasks that have finished, of `parts` */
	size_t parts, seg0, seg1, first_seg, end_seg;
};

/*
 * bytes is constant. To the second cache with AVX-512: Intel's first level has fewer lines under way, and those are needed for what
 * is read now. Zen 3 was measured with the first.
 */
INLINE void prefetch(const uint8_t *p, size_t bytes)
{
	UNROLL for (size_t i = 0; i < bytes; i += 64)
		_mm_prefetch((const char *)p + i, VL == 16 ? _MM_HINT_T1 : _MM_HINT_T0);
}

/* ---- scores: p[at + j] = q . k_j for tokens [lo, hi) of a page, and for some around them ---- */

/* s: one vector of sums, of tokens j and on. kind is constant. */
INLINE vf scaled(uint32_t kind, vf s, vf scale, const float *ks)
{
	s = v_mul(s, scale);
	return kind == SITS_KV_I8 ? v_mul(s, v_load(ks)) : s;
}

/* Keys with tokens side by side. kind and n are constant. */
TEMPLATE void scores_lanes(uint32_t kind, const struct sits_attn *a, const struct head *h, struct arow *row, size_t n,
			   size_t at, size_t lo, size_t hi)
{
	const size_t step = VL == 8 && n <= 3 ? 4 : 2, chains = VL == 16 ? 2 : 1;
	vf scale = v_set1(a->scale * LOG2_E);

	/* AVX-512 adds even and odd d apart: enough independent sums for one row alone. */
	for (size_t v = lo / (step * VL) * step; v * VL < hi; v += step) {
		vf s[TILE][2][4];

		UNROLL for (size_t r = 0; r < n; r++)
			UNROLL for (size_t i = 0; i < step; i++)
				s[r][0][i] = s[r][1][i] = v_zero();
		for (size_t d = 0; d < a->shape.Dk; d += 2) {
			UNROLL for (size_t odd = 0; odd < 2; odd++) {
				size_t at_d = ((d + odd) * P + v * VL) * elem_bytes(kind);
				/* A key's line of the page ahead for each line of this one. */
				if (step * VL * elem_bytes(kind) >= 64 || at_d % 64 == 0)
					prefetch(h->k_ahead + at_d, step * VL * elem_bytes(kind));
				if (n < step) {		/* hold q, or hold k: what takes fewer registers */
					vf q[TILE];

					UNROLL for (size_t r = 0; r < n; r++)
						q[r] = v_set1(row[r].q[d + odd]);
					UNROLL for (size_t i = 0; i < step; i++) {
						vf k = load_kv(kind, h->k + at_d, i * VL);

						UNROLL for (size_t r = 0; r < n; r++)
							s[r][odd % chains][i] = v_fma(q[r], k, s[r][odd % chains][i]);
					}
				} else {
					vf k[4];

					UNROLL for (size_t i = 0; i < step; i++)
						k[i] = load_kv(kind, h->k + at_d, i * VL);
					UNROLL for (size_t r = 0; r < n; r++) {
						vf q = v_set1(row[r].q[d + odd]);

						UNROLL for (size_t i = 0; i < step; i++)
							s[r][odd % chains][i] = v_fma(q, k[i], s[r][odd % chains][i]);
					}
				}
			}
		}
		UNROLL for (size_t r = 0; r < n; r++) {
			UNROLL for (size_t i = 0; i < step; i++) {
				vf t = chains == 2 ? v_add(s[r][0][i], s[r][1][i]) : s[r][0][i];

				v_store(row[r].p + at + (v + i) * VL, scaled(kind, t, scale, h->ks + (v + i) * VL));
			}
		}
	}
}

/* Keys in rows. kind and n are constant. */
TEMPLATE void scores_rows(uint32_t kind, const struct sits_attn *a, const struct head *h, struct arow *row, size_t n,
			  size_t at, size_t lo, size_t hi)
{
	const size_t step = n <= 3 ? 4 : 2, D = a->shape.Dk;
	float scale = a->scale * LOG2_E;

	for (size_t j = lo / step * step; j < hi; j += step) {
		vf s[TILE][4];

		UNROLL for (size_t r = 0; r < n; r++)
			UNROLL for (size_t i = 0; i < step; i++)
				s[r][i] = v_zero();
		for (size_t d = 0; d < D; d += VL) {
			vf k[4];

			UNROLL for (size_t i = 0; i < step; i++) {
				size_t at_d = ((j + i) * D + d) * elem_bytes(kind);

				k[i] = load_kv(kind, h->k + at_d, 0);
				if (VL * elem_bytes(kind) >= 64 || at_d % 64 == 0)
					prefetch(h->k_ahead + at_d, 64);
			}
			UNROLL for (size_t r = 0; r < n; r++) {
				vf q = v_load(row[r].q + d);

				UNROLL for (size_t i = 0; i < step; i++)
					s[r][i] = v_fma(q, k[i], s[r][i]);
			}
		}
		UNROLL for (size_t r = 0; r < n; r++) {
			UNROLL for (size_t i = 0; i < step; i++) {
				float t = v_hsum(s[r][i]) * scale;

				row[r].p[at + j + i] = kind == SITS_KV_I8 ? t * h->ks[j + i] : t;
			}
		}
	}
}

/* ---- softmax of a block ---- */

/* Vector v of the block without what the row does not see. whole is constant. */
INLINE vf seen(const struct arow *r, size_t v, vf x, vf fill, bool whole)
{
	size_t lo = r->lo < v * VL ? 0 : r->lo - v * VL, hi = r->hi < v * VL ? 0 : r->hi - v * VL;

	return whole ? x : v_keep_range(x, lo < VL ? lo : VL, hi < VL ? hi : VL, fill);
}

/*
 * One step of the online softmax. present: bit i: page i of the block is there. vs: their scales of values, or
 * NULL: the weights are for the bytes then. whole (all of the block is seen) and entropy are constant.
 */
TEMPLATE void softmax_step(struct arow *r, size_t Dv, uint32_t present, const float *const *vs, bool whole, bool entropy)
{
	size_t v0 = whole ? 0 : r->lo / VL, v1 = whole ? BLOCK / VL : (r->hi + VL - 1) / VL;
	vf top = v_set1(-INFINITY), m, sum, ls, c;
	float most;

	for (size_t v = v0; v < v1; v++) {
		if (whole || present >> (v / PV) & 1)
			top = v_max(top, seen(r, v, v_load(r->p + v * VL), v_set1(-INFINITY), whole));
	}
	most = v_hmax(top);
	most = most > r->m ? most : r->m;
	m = v_set1(most);
	c = v_exp2(v_sub(v_set1(r->m), m));
	sum = v_mul(r->l, c);
	/* The old sum of p (score - m), for the new m. Where there was none, its m is -Inf. */
	ls = !entropy || r->m == -INFINITY ? v_zero() : v_fma(sum, v_set1(r->m - most), v_mul(r->ls, c));
	for (size_t v = v0; v < v1; v++) {
		vf x, p;

		if (!whole && !(present >> (v / PV) & 1))
			continue;
		x = v_sub(v_load(r->p + v * VL), m);
		p = seen(r, v, v_exp2(x), v_zero(), whole);
		sum = v_add(sum, p);
		if (entropy)	/* what is not seen may be anything; 0 log 0 is 0 */
			ls = v_fma(p, seen(r, v, v_max(v_set1(-127.0f), x), v_zero(), whole), ls);
		if (vs)
			p = v_mul(p, v_load(vs[v / PV] + v % PV * VL));
		v_store(r->p + v * VL, p);
	}
	for (size_t d = 0; d < Dv && r->m != -INFINITY && v_first(c) != 1; d += VL)
		v_store(r->sum + d, v_mul(v_load(r->sum + d), c));
	r->l = sum;
	r->ls = ls;
	r->m = most;
}

/* ---- weighted sums: sum += p[at + j] V_j for tokens [lo, hi) of each of some pages, j ascending ---- */

/* nv vectors of columns from d on, of pages that are neighbours in the block. kind, n and nv are constant. */
TEMPLATE void weigh_cols(uint32_t kind, const struct head *h, size_t pages, size_t ld, size_t d, struct arow *row, size_t n,
			 size_t nv, size_t at, size_t lo, size_t hi)
{
	vf acc[TILE][8];

	UNROLL for (size_t r = 0; r < n; r++)
		UNROLL for (size_t i = 0; i < nv; i++)
			acc[r][i] = v_load(row[r].sum + d + i * VL);
	for (size_t page = 0; page < pages; page++, at += P) {
		const uint8_t *v = h[page].v, *ahead = h[page].v_ahead;

		for (size_t j = lo; j < hi; j++) {
			size_t at_d = (j * ld + d) * elem_bytes(kind);

			if (nv * VL * elem_bytes(kind) >= 64 || at_d % 64 == 0)
				prefetch(ahead + at_d, nv * VL * elem_bytes(kind));
			if (n < nv) {		/* as in scores_lanes() */
				vf p[TILE];

				UNROLL for (size_t r = 0; r < n; r++)
					p[r] = v_set1(row[r].p[at + j]);
				UNROLL for (size_t i = 0; i < nv; i++) {
					vf x = load_kv(kind, v + at_d, i * VL);

					UNROLL for (size_t r = 0; r < n; r++)
						acc[r][i] = v_fma(p[r], x, acc[r][i]);
				}
			} else {
				vf x[8];

				UNROLL for (size_t i = 0; i < nv; i++)
					x[i] = load_kv(kind, v + at_d, i * VL);
				UNROLL for (size_t r = 0; r < n; r++) {
					vf p = v_set1(row[r].p[at + j]);

					UNROLL for (size_t i = 0; i < nv; i++)
						acc[r][i] = v_fma(p, x[i], acc[r][i]);
				}
			}
		}
	}
	UNROLL for (size_t r = 0; r < n; r++)
		UNROLL for (size_t i = 0; i < nv; i++)
			v_store(row[r].sum + d + i * VL, acc[r][i]);
}

/* As many columns at a time as there are registers for. */
TEMPLATE void weigh(uint32_t kind, const struct sits_attn *a, const struct head *h, size_t pages, struct arow *row, size_t n,
		    size_t at, size_t lo, size_t hi)
{
	const size_t most = n == 1 ? 8 : n <= 3 || VL == 16 ? 4 : 2, D = a->shape.Dv;
	size_t d = 0, ld = a->shape.v_in_k ? a->shape.Dk : D;

	for (; most == 8 && d + 8 * VL <= D; d += 8 * VL)
		weigh_cols(kind, h, pages, ld, d, row, n, 8, at, lo, hi);
	for (; most >= 4 && d + 4 * VL <= D; d += 4 * VL)
		weigh_cols(kind, h, pages, ld, d, row, n, 4, at, lo, hi);
	for (; d + 2 * VL <= D; d += 2 * VL)
		weigh_cols(kind, h, pages, ld, d, row, n, 2, at, lo, hi);
	for (; d < D; d += VL)
		weigh_cols(kind, h, pages, ld, d, row, n, 1, at, lo, hi);
}

/* ---- the code for each kind of KV and number of rows ---- */

#define PER_N(f) f(1) f(2) f(3) f(4) f(5) f(6)

#define SCORES(name, of, kind, n)							\
	static void name##_##n(const struct sits_attn *a, const struct head *h, struct arow *row, size_t at,	\
			       size_t lo, size_t hi)					\
	{										\
		of(kind, a, h, row, n, at, lo, hi);					\
	}

#define WEIGH(name, kind, n)								\
	static void name##_##n(const struct sits_attn *a, const struct head *h, size_t pages, struct arow *row,	\
			       size_t at, size_t lo, size_t hi)				\
	{										\
		weigh(kind, a, h, pages, row, n, at, lo, hi);				\
	}

#define F16_CODE(n)									\
	SCORES(lanes_f16, scores_lanes, SITS_KV_F16, n)					\
	SCORES(rows_f16, scores_rows, SITS_KV_F16, n)					\
	WEIGH(weigh_f16, SITS_KV_F16, n)
#define I8_CODE(n)									\
	SCORES(lanes_i8, scores_lanes, SITS_KV_I8, n)					\
	SCORES(rows_i8, scores_rows, SITS_KV_I8, n)					\
	WEIGH(weigh_i8, SITS_KV_I8, n)
#define F32_CODE(n)									\
	SCORES(lanes_f32, scores_lanes, SITS_KV_F32, n)					\
	SCORES(rows_f32, scores_rows, SITS_KV_F32, n)					\
	WEIGH(weigh_f32, SITS_KV_F32, n)
PER_N(F16_CODE)
PER_N(I8_CODE)
PER_N(F32_CODE)

typedef void (*scores_fn)(const struct sits_attn *a, const struct head *h, struct arow *row, size_t at, size_t lo,
			  size_t hi);
typedef void (*weigh_fn)(const struct sits_attn *a, const struct head *h, size_t pages, struct arow *row, size_t at,
			 size_t lo, size_t hi);

#define TABLE(name) { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }
static const scores_fn scores_fns[3][2][TILE] = {
	{ TABLE(lanes_f16), TABLE(rows_f16) },
	{ TABLE(lanes_i8), TABLE(rows_i8) },
	{ TABLE(lanes_f32), TABLE(rows_f32) },
};
static const weigh_fn weigh_fns[3][TILE] = { TABLE(weigh_f16), TABLE(weigh_i8), TABLE(weigh_f32) };

#define SOFTMAX(name, whole, entropy)							\
	static void name(struct arow *r, size_t Dv, uint32_t present, const float *const *vs)	\
	{										\
		softmax_step(r, Dv, present, vs, whole, entropy);			\
	}
SOFTMAX(softmax_some, false, false)
SOFTMAX(softmax_whole, true, false)
SOFTMAX(softmax_some_entropy, false, true)
SOFTMAX(softmax_whole_entropy, true, true)

static void (*const softmax_fns[2][2])(struct arow *r, size_t Dv, uint32_t present, const float *const *vs) = {
	{ softmax_some, softmax_whole },
	{ softmax_some_entropy, softmax_whole_entropy },
};

/* ---- a block ---- */

INLINE size_t clamp(size_t x, size_t lo, size_t hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

/* The part of [lo, hi) of a block that lies in its page i. */
INLINE void within_page(size_t i, size_t *lo, size_t *hi)
{
	*lo = clamp(*lo, i * P, i * P + P) - i * P;
	*hi = clamp(*hi, i * P, i * P + P) - i * P;
}

/* Rows of a tile: what all see together, and what each sees before and after that alone. */
static void weigh_tile(const struct sits_attn *a, const struct head *h, struct arow *row, size_t n, size_t page)
{
	const weigh_fn *fn = weigh_fns[a->shape.kind];
	size_t lo = row[n - 1].lo, hi = row[0].hi, l, e;

	within_page(page, &lo, &hi);
	if (lo >= hi)
		lo = hi = P;
	for (size_t r = 0; r < n; r++) {
		l = row[r].lo;
		e = row[r].hi;
		within_page(page, &l, &e);
		if (l < lo && l < e)
			fn[0](a, h, 1, &row[r], page * P, l, e < lo ? e : lo);
	}
	if (lo < hi)
		fn[n - 1](a, h, 1, row, page * P, lo, hi);
	for (size_t r = 0; r < n; r++) {
		l = row[r].lo;
		e = row[r].hi;
		within_page(page, &l, &e);
		l = l > hi ? l : hi;
		if (l < e)
			fn[0](a, h, 1, &row[r], page * P, l, e);
	}
}

static void scores_tile(const struct sits_attn *a, const struct head *h, struct arow *row, size_t n, size_t page)
{
	size_t lo = row[0].lo, hi = row[n - 1].hi;

	within_page(page, &lo, &hi);
	if (lo < hi)
		scores_fns[a->shape.kind][a->shape.v_in_k][n - 1](a, h, row, page * P, lo, hi);
}

static size_t nr_tiles(const struct task *t)
{
	return (t->n + TILE - 1) / TILE;
}

/* Tiles of a task's rows: as few as possible, of nearly one size. Return: the rows of tile i. */
static struct arow *tile_at(const struct task *t, size_t i, size_t *n)
{
	size_t from = t->n * i / nr_tiles(t);

	*n = t->n * (i + 1) / nr_tiles(t) - from;
	return t->row + from;
}

/* The first position that the row at pos sees. */
INLINE size_t sees_from(const struct sits_attn *a, size_t pos)
{
	return a->window && a->window <= pos ? pos + 1 - a->window : 0;
}

/* Weights of the block that the row sees. */
static void drop(const struct sits_attn_dropout *d, struct arow *r, size_t base)
{
	for (size_t j = r->lo / 4 * 4; j < r->hi; j += 4) {
		float f[4];

		sits_dropout_factors(d, base + j, r->pos, r->stream, f);
		for (size_t i = 0; i < 4; i++)
			r->p[j + i] *= f[i];
	}
}

/* The page, and the cell in it, of position pos for the task's head. Return: false: absent. */
static bool find_head(const struct task *t, size_t pos, struct head *h)
{
	const struct sits_attn *a = t->a;
	uint32_t page = t->pages[pos / P];
	size_t cell = t->g;

	if (page == SITS_KV_ABSENT)
		return false;
	if (t->seq->head_stride) {
		cell = page % a->shape.G;
		page /= a->shape.G;
	}
	*h = head_at(&a->shape, (const uint8_t *)a->kv + page * a->page_bytes + a->layer_off, cell);
	return true;
}

/* What is read AHEAD pages later: keys page by page, then values page by page, then the next block's keys. */
static void look_ahead(const struct task *t, size_t base, struct head *h, uint32_t present)
{
	const uint8_t *order[2 * BLOCK_PAGES + AHEAD] = { NULL }, **ahead[2 * BLOCK_PAGES];
	struct head next;
	size_t n = 0;

	for (size_t i = 0; i < 2 * BLOCK_PAGES; i++) {
		struct head *page = &h[i % BLOCK_PAGES];

		if (!(present >> i % BLOCK_PAGES & 1))
			continue;
		order[n] = i < BLOCK_PAGES ? page->k : page->v;
		ahead[n++] = i < BLOCK_PAGES ? &page->k_ahead : &page->v_ahead;
	}
	for (size_t i = 0; i < AHEAD; i++) {
		size_t pos = base + BLOCK + i * P;

		order[n + i] = pos <= t->row[t->n - 1].pos && find_head(t, pos, &next) ? next.k : NULL;
	}
	for (size_t i = 0; i < n; i++) {
		if (order[i + AHEAD])
			*ahead[i] = order[i + AHEAD];
	}
}

/* Page by page, so that all tiles find it in the nearest cache. One tile prefetches. */
static void score_pages(const struct task *t, const struct head *h, uint32_t present)
{
	for (size_t page = 0; page < BLOCK_PAGES; page++) {
		struct head now;

		if (!(present >> page & 1))
			continue;
		now = h[page];
		for (size_t i = 0, n; i < nr_tiles(t); i++, now.k_ahead = now.k) {
			struct arow *row = tile_at(t, i, &n);

			scores_tile(t->a, &now, row, n, page);
		}
	}
}

/* A tile that sees the whole block goes through it with no look at its rows' limits. */
static void weigh_pages(const struct task *t, struct head *h, uint32_t present)
{
	for (size_t i = 0, n; i < nr_tiles(t); i++) {
		struct arow *row = tile_at(t, i, &n);

		if (present == ALL_PAGES && row[n - 1].lo == 0 && row[0].hi == BLOCK) {
			size_t pages = n <= FEW_ROWS ? 1 : BLOCK_PAGES;

			for (size_t page = 0; page < BLOCK_PAGES; page += pages)
				weigh_fns[t->a->shape.kind][n - 1](t->a, h + page, pages, row, page * P, 0, P);
		} else {
			for (size_t page = 0; page < BLOCK_PAGES; page++) {
				if (present >> page & 1)
					weigh_tile(t->a, &h[page], row, n, page);
			}
		}
		for (size_t page = 0; page < BLOCK_PAGES; page++) {
			if (present >> page & 1)
				h[page].v_ahead = h[page].v;	/* one tile prefetches */
		}
	}
}

static void run_block(const struct task *t, size_t base)
{
	const struct sits_attn *a = t->a;
	size_t first = sees_from(a, t->row[0].pos), last = t->row[t->n - 1].pos;
	const float *vs[BLOCK_PAGES] = { NULL };
	struct head h[BLOCK_PAGES];
	uint32_t present = 0;

	for (size_t i = 0; i < BLOCK_PAGES; i++) {
		size_t pos = base + i * P;

		if (pos > last || pos + P <= first || !find_head(t, pos, &h[i]))
			continue;
		present |= 1u << i;
		vs[i] = h[i].vs;
	}
	look_ahead(t, base, h, present);
	for (size_t r = 0; r < t->n; r++) {
		t->row[r].lo = clamp(sees_from(a, t->row[r].pos), base, base + BLOCK) - base;
		t->row[r].hi = clamp(t->row[r].pos + 1, base, base + BLOCK) - base;
	}
	score_pages(t, h, present);
	for (size_t r = 0; r < t->n; r++) {
		struct arow *row = &t->row[r];
		bool whole = row->lo == 0 && row->hi == BLOCK && present == ALL_PAGES;
		bool any = false;

		for (size_t i = 0; i < BLOCK_PAGES; i++)
			any |= present >> i & 1 && row->lo < (i + 1) * P && row->hi > i * P;
		if (!any || row->lo >= row->hi)
			continue;
		softmax_fns[a->entropy != NULL][whole](row, a->shape.Dv, present,
						       a->shape.kind == SITS_KV_I8 ? vs : NULL);
		if (a->dropout)
			drop(a->dropout, row, base);
	}
	weigh_pages(t, h, present);
}

/* ---- segments ---- */

/* into = into and s, in this order. */
static void part_add(struct part *into, struct part *s, size_t Dv)
{
	float m = s->m > into->m ? s->m : into->m;
	vf c, cs;

	if (s->m == -INFINITY && s->l == 0)
		return;
	if (into->m == -INFINITY && into->l == 0) {
		float *sum = into->sum;

		*into = *s;
		s->sum = sum;	/* exchanged */
		return;
	}
	c = v_exp2(v_set1(into->m - m));
	cs = v_exp2(v_set1(s->m - m));
	into->ls = v_first(c) * (into->ls + into->l * (into->m - m)) + v_first(cs) * (s->ls + s->l * (s->m - m));
	into->l = v_first(c) * into->l + v_first(cs) * s->l;
	into->m = m;
	for (size_t d = 0; d < Dv; d += VL)
		v_store(into->sum + d, v_fma(v_load(into->sum + d), c, v_mul(v_load(s->sum + d), cs)));
}

static void row_finish(const struct sits_attn *a, struct arow *row)
{
	const struct part *s = &row->all;
	bool none = s->m == -INFINITY && s->l == 0;
	vf l = v_set1(s->l);

	for (size_t d = 0; d < a->shape.Dv; d += VL)
		v_store(row->y + d, none ? v_zero() : v_div(v_load(s->sum + d), l));
	if (row->entropy)
		*row->entropy = none ? 0 : logf(s->l) - LN_2 * (s->ls / s->l);
}

/* A segment's part of a row, as it is left for the others: m, l, ls, then from PARTIAL_HEAD on the sums. */
#define PARTIAL_HEAD 16

static size_t partial_floats(const struct sits_attn *a)
{
	return PARTIAL_HEAD + a->shape.Dv;
}

static float *partial_at(const struct task *t, size_t r, size_t seg)
{
	return t->partial + (r * (t->end_seg - t->first_seg) + seg - t->first_seg) * partial_floats(t->a);
}

static void run_segment(const struct task *t, size_t seg)
{
	size_t Dv = t->a->shape.Dv, last = t->row[t->n - 1].pos, base = seg * SEGMENT, first = sees_from(t->a, t->row[0].pos);

	for (size_t r = 0; r < t->n; r++) {
		t->row[r].l = t->row[r].ls = v_zero();
		t->row[r].m = -INFINITY;
		memset(t->row[r].sum, 0, Dv * sizeof(float));
	}
	for (size_t i = 0; i < SEGMENT / BLOCK; i++, base += BLOCK) {
		if (base <= last && base + BLOCK > first)
			run_block(t, base);
	}
	for (size_t r = 0; r < t->n; r++) {
		struct arow *row = &t->row[r];
		struct part s = { row->m, v_hsum(row->l), v_hsum(row->ls), row->sum };

		if (t->partial) {
			float *out = partial_at(t, r, seg);

			out[0] = s.m;
			out[1] = s.l;
			out[2] = s.ls;
			memcpy(out + PARTIAL_HEAD, s.sum, Dv * sizeof(float));
			continue;
		}
		part_add(&row->all, &s, Dv);
		row->sum = s.sum;
	}
}

/* All segments are there: the same additions in the same order as one thread does. */
static void gather(const struct task *t)
{
	for (size_t r = 0; r < t->n; r++) {
		for (size_t seg = t->first_seg; seg < t->end_seg; seg++) {
			float *in = partial_at(t, r, seg);
			struct part s = { in[0], in[1], in[2], in + PARTIAL_HEAD };
			float *own = t->row[r].all.sum;

			part_add(&t->row[r].all, &s, t->a->shape.Dv);
			if (t->row[r].all.sum != own) {	/* stay in the scratch: the next call writes there */
				memcpy(own, t->row[r].all.sum, t->a->shape.Dv * sizeof(float));
				t->row[r].all.sum = own;
			}
		}
	}
}

static void run_task(const struct task *t)
{
	for (size_t seg = t->seg0; seg < t->seg1; seg++)
		run_segment(t, seg);
	if (t->partial) {
		if (__atomic_add_fetch(t->done, 1, __ATOMIC_ACQ_REL) < t->parts)
			return;
		__atomic_store_n(t->done, 0, __ATOMIC_RELAXED);	/* for the next call */
		gather(t);
	}
	for (size_t r = 0; r < t->n; r++)
		row_finish(t->a, &t->row[r]);
}

/* ---- tasks ---- */

/* How a call is cut: rows in a task at most, and into how many tasks a batch's segments go. */
struct plan {
	size_t rows, parts;
};

static size_t seq_batches(const struct sits_attn *a, const struct sits_attn_seq *s, size_t rows)
{
	return (s->nr * (a->H / a->shape.G) + rows - 1) / rows;
}

static size_t first_segment(const struct sits_attn *a, const struct sits_attn_seq *s)
{
	return sees_from(a, s->pos0) / SEGMENT;
}

static size_t end_segment(const struct sits_attn_seq *s)
{
	return (s->pos0 + s->nr - 1) / SEGMENT + 1;
}

static size_t seq_parts(const struct sits_attn *a, const struct sits_attn_seq *s, const struct plan *p)
{
	size_t segs = end_segment(s) - first_segment(a, s);

	return segs < p->parts ? segs : p->parts;
}

static size_t count_tasks(const struct sits_attn *a, const struct plan *p)
{
	size_t n = 0;

	for (size_t i = 0; i < a->nr_seq; i++)
		n += a->shape.G * seq_batches(a, &a->seq[i], p->rows) * seq_parts(a, &a->seq[i], p);
	return n;
}

/* Where threads would stand idle: split contexts, then rows. */
static struct plan plan_of(const struct sits_attn *a)
{
	struct plan p = { TASK_ROWS, 1 };
	size_t n = count_tasks(a, &p);

	if (n && n < FEW_TASKS && a->work)
		p.parts = (2 * FEW_TASKS + n - 1) / n;
	while (p.rows > 1 && count_tasks(a, &p) < FEW_TASKS)
		p.rows--;
	return p;
}

size_t ISA(attn_tasks)(const struct sits_attn *a)
{
	struct plan p = plan_of(a);

	return count_tasks(a, &p);
}

static size_t row_floats(const struct sits_attn *a)
{
	return BLOCK + 2 * a->shape.Dv;
}

size_t ISA(attn_scratch_bytes)(const struct sits_attn *a)
{
	return TASK_ROWS * (sizeof(struct arow) + row_floats(a) * sizeof(float));
}

/* Counters of all batches come first. Both sums are over all sequences: a few rows of each, so not large. */
static size_t counters_bytes(const struct sits_attn *a, const struct plan *p)
{
	size_t n = 0;

	for (size_t i = 0; i < a->nr_seq; i++)
		n += a->shape.G * seq_batches(a, &a->seq[i], p->rows);
	return (n * sizeof(uint32_t) + 63) / 64 * 64;
}

static size_t seq_partials(const struct sits_attn *a, const struct sits_attn_seq *s)
{
	return s->nr * a->H * (end_segment(s) - first_segment(a, s));
}

size_t ISA(attn_work_bytes)(const struct sits_attn *a)
{
	struct sits_attn with = *a;
	size_t n = 0;
	struct plan p;

	with.work = &with;	/* what it would need */
	p = plan_of(&with);
	if (p.parts == 1)
		return 0;
	for (size_t i = 0; i < a->nr_seq; i++)
		n += seq_partials(a, &a->seq[i]);
	return counters_bytes(a, &p) + n * partial_floats(a) * sizeof(float);
}

/* Rows [from, to) of sequence s and head g, by position, then head. */
static void task_rows(struct task *t, size_t from, size_t to, void *scratch)
{
	const struct sits_attn *a = t->a;
	size_t per = a->H / a->shape.G, Dv = a->shape.Dv;
	float *f = (float *)((struct arow *)scratch + TASK_ROWS);

	t->row = scratch;
	t->n = to - from;
	for (size_t r = 0; r < t->n; r++, f += row_floats(a)) {
		size_t i = (from + r) / per, at = (t->seq->row0 + i) * a->H + t->g * per + (from + r) % per;

		t->row[r] = (struct arow){
			.p = f, .sum = f + BLOCK, .all = { -INFINITY, 0, 0, f + BLOCK + Dv }, .q = a->q + at * a->shape.Dk,
			.y = a->y + at * Dv, .entropy = a->entropy ? a->entropy + at : NULL, .pos = t->seq->pos0 + i,
			.stream = (size_t)(t->seq - a->seq) * a->H + t->g * per + (from + r) % per,
		};
	}
}

/* Task i of sequence s. counter, partial: the sequence's, where the call is split. */
static void run_seq_task(const struct sits_attn *a, const struct sits_attn_seq *s, const struct plan *p, size_t i,
			 uint32_t *counter, float *partial, void *scratch)
{
	size_t batches = seq_batches(a, s, p->rows), parts = seq_parts(a, s, p), rows = s->nr * (a->H / a->shape.G);
	size_t part = i % parts, batch = i / parts % batches, g = i / parts / batches;
	size_t from = rows * batch / batches, to = rows * (batch + 1) / batches;
	struct task t = {
		.a = a, .seq = s, .pages = s->pages + g * s->head_stride, .g = g, .parts = parts,
		.first_seg = first_segment(a, s), .end_seg = end_segment(s),
	};
	size_t segs = t.end_seg - t.first_seg;

	t.seg0 = t.first_seg + segs * part / parts;
	t.seg1 = t.first_seg + segs * (part + 1) / parts;
	if (parts > 1) {
		t.done = counter + g * batches + batch;
		t.partial = partial + (g * rows + from) * segs * partial_floats(a);
	}
	task_rows(&t, from, to, scratch);
	run_task(&t);
}

void ISA(attn)(const struct sits_attn *a, size_t t0, size_t t1, void *scratch)
{
	struct plan p = plan_of(a);
	uint32_t *counter = a->work;
	float *partial = a->work ? (float *)((uint8_t *)a->work + counters_bytes(a, &p)) : NULL;
	const struct sits_attn_seq *s;
	size_t first = 0, n;

	for (s = a->seq; s < a->seq + a->nr_seq && first < t1; s++, first += n) {
		n = a->shape.G * seq_batches(a, s, p.rows) * seq_parts(a, s, &p);
		for (size_t t = t0 > first ? t0 : first; t < t1 && t < first + n; t++)
			run_seq_task(a, s, &p, t - first, counter, partial, scratch);
		if (p.parts > 1) {
			counter += a->shape.G * seq_batches(a, s, p.rows);
			partial += seq_partials(a, s) * partial_floats(a);
		}
	}
}

#endif
