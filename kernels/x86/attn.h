/* SPDX-License-Identifier: MIT */
/*
 * attn.h - template: causal grouped-query attention over paged keys and values.
 *
 * A page's part of a layer, P = 32 tokens, all f16:
 *
 *	| K [G][D][P] | V [G][P][D] |
 *
 * Keys lie with tokens side by side, so a lane of a dot product is a token and nothing is added
 * across lanes. A row (one query head at one position) runs the softmax online, a page at a time
 * from position 0:
 *
 *	m' = max(m, largest score);  p = e^(score - m');  c = e^(m - m')
 *	l = l c + p (by lanes);  sum = sum c + p_j V_j, j ascending
 *
 * which depends on nothing but the row itself: not on chunks of prefill, nor on which rows run
 * together. Up to ATTN_ROWS rows that share a key/value head run together and share each load and
 * conversion of K and V. In pages that not all of them see whole, each weighs V alone and stops at
 * its own last position, so that what lies beyond (other rows' tokens, old pages' leftovers) is never
 * touched.
 */
#ifndef SITS_KERNELS_X86_ATTN_H
#define SITS_KERNELS_X86_ATTN_H

#include "kernels/x86/exp.h"

#define P SITS_KV_PAGE_TOKENS
#define PV (P / VL)		/* vectors in a page's scores */
#define ATTN_ROWS (VL == 16 ? 6 : 4)
#define ATTN_COLS (VL == 16 ? 4 : 2)	/* vectors of V at a time */
#define ATTN_FEW 8		/* fewer tasks than this are split further */
#define D_MAX 256

/* State of one row. */
struct arow {
	vf l;			/* sums of p by lanes */
	float m, c;		/* largest score so far; the correction of this page */
	float p[P];
	float sum[D_MAX];
};

/* Rows that run together. */
struct batch {
	const struct sits_attn *a;
	const struct sits_attn_seq *seq;
	size_t g, n;
	const float *q[ATTN_ROWS];
	float *y[ATTN_ROWS];
	size_t pos[ATTN_ROWS];	/* not descending */
};

void ISA(kv_store)(void *layer, size_t slot, const float *k, const float *v, size_t G, size_t D)
{
	uint16_t *kp = layer, *vp = kp + G * P * D, h[VL];

	for (size_t g = 0; g < G; g++) {
		for (size_t d = 0; d < D; d += VL) {
			v_store_f16(h, v_load(k + g * D + d));
			for (size_t i = 0; i < VL; i++)
				kp[(g * D + d + i) * P + slot] = h[i];
			v_store_f16(vp + (g * P + slot) * D + d, v_load(v + g * D + d));
		}
	}
}

/* s[r][..] = q_r . k for all tokens of the page. n rows, constant. */
TEMPLATE void scores(const struct batch *b, const uint16_t *k, struct arow *row, size_t n)
{
	vf scale = v_set1(b->a->scale);

	/* Two vectors at a time, even and odd d apart: enough independent sums for one row alone. */
	for (size_t v = 0; v < PV; v += 2) {
		vf s[ATTN_ROWS][2][2];

		UNROLL for (size_t r = 0; r < n; r++)
			s[r][0][0] = s[r][0][1] = s[r][1][0] = s[r][1][1] = v_zero();
		for (size_t d = 0; d < b->a->D; d += 2) {
			UNROLL for (size_t odd = 0; odd < 2; odd++) {
				const uint16_t *kd = k + (d + odd) * P + v * VL;
				size_t chain = VL == 16 ? odd : 0;
				vf k0 = v_load_f16(kd), k1 = v_load_f16(kd + VL);

				UNROLL for (size_t r = 0; r < n; r++) {
					vf q = v_set1(b->q[r][d + odd]);

					s[r][chain][0] = v_fma(q, k0, s[r][chain][0]);
					s[r][chain][1] = v_fma(q, k1, s[r][chain][1]);
				}
			}
		}
		UNROLL for (size_t r = 0; r < n; r++) {
			UNROLL for (size_t i = 0; i < 2; i++) {
				vf t = VL == 16 ? v_add(s[r][0][i], s[r][1][i]) : s[r][0][i];

				v_store(row[r].p + (v + i) * VL, v_mul(t, scale));
			}
		}
	}
}

/* One step of the online softmax over the first n scores of the page. */
INLINE void softmax_step(struct arow *r, size_t n)
{
	vf s[PV], top = v_set1(-INFINITY), sum, m;
	float most;

	UNROLL for (size_t i = 0; i < PV; i++) {
		size_t have = n < i * VL ? 0 : n - i * VL;

		s[i] = v_keep_n(v_load(r->p + i * VL), have < VL ? have : VL, v_set1(-INFINITY));
		top = v_max(top, s[i]);
	}
	most = v_hmax(top);
	most = most > r->m ? most : r->m;
	m = v_set1(most);
	r->c = v_first(v_exp(v_sub(v_set1(r->m), m)));
	sum = v_mul(r->l, v_set1(r->c));
	UNROLL for (size_t i = 0; i < PV; i++) {
		size_t have = n < i * VL ? 0 : n - i * VL;

		s[i] = v_keep_n(v_exp(v_sub(s[i], m)), have < VL ? have : VL, v_zero());
		v_store(r->p + i * VL, s[i]);
		sum = v_add(sum, s[i]);
	}
	r->l = sum;
	r->m = most;
}

/* sum = sum c + p V for nv vectors of columns from d on, the first len tokens, n rows; n and nv constant. */
TEMPLATE void weigh_cols(const uint16_t *v, size_t D, size_t d, struct arow *row, size_t n, size_t nv, size_t len)
{
	vf acc[ATTN_ROWS][ATTN_COLS];

	UNROLL for (size_t r = 0; r < n; r++)
		UNROLL for (size_t i = 0; i < nv; i++)
			acc[r][i] = v_mul(v_load(row[r].sum + d + i * VL), v_set1(row[r].c));
	for (size_t j = 0; j < len; j++) {
		vf x[ATTN_COLS];

		UNROLL for (size_t i = 0; i < nv; i++)
			x[i] = v_load_f16(v + j * D + d + i * VL);
		UNROLL for (size_t r = 0; r < n; r++) {
			vf p = v_set1(row[r].p[j]);

			UNROLL for (size_t i = 0; i < nv; i++)
				acc[r][i] = v_fma(p, x[i], acc[r][i]);
		}
	}
	UNROLL for (size_t r = 0; r < n; r++)
		UNROLL for (size_t i = 0; i < nv; i++)
			v_store(row[r].sum + d + i * VL, acc[r][i]);
}

TEMPLATE void weigh(const uint16_t *v, size_t D, struct arow *row, size_t n, size_t len)
{
	size_t d = 0;

	for (; d + ATTN_COLS * VL <= D; d += ATTN_COLS * VL)
		weigh_cols(v, D, d, row, n, ATTN_COLS, len);
	for (; d < D; d += VL)
		weigh_cols(v, D, d, row, n, 1, len);
}

/* n is constant. */
TEMPLATE void batch_run(const struct batch *b, struct arow *row, size_t n)
{
	const struct sits_attn *a = b->a;
	size_t D = a->D, last = b->pos[n - 1];

	for (size_t r = 0; r < n; r++) {
		row[r].l = v_zero();
		row[r].m = -INFINITY;
		memset(row[r].sum, 0, D * sizeof(float));
	}
	for (size_t base = 0; base <= last; base += P) {
		const uint8_t *page = (const uint8_t *)a->kv + b->seq->pages[base / P] * a->page_bytes;
		const uint16_t *k = (const uint16_t *)(page + a->layer_off) + b->g * P * D;
		const uint16_t *v = k + a->G * P * D;

		scores(b, k, row, n);
		if (b->pos[0] + 1 >= base + P) {	/* all rows see all of it */
			UNROLL for (size_t r = 0; r < n; r++)
				softmax_step(&row[r], P);
			weigh(v, D, row, n, P);
			continue;
		}
		for (size_t r = 0; r < n; r++) {
			size_t len = b->pos[r] < base ? 0 : b->pos[r] + 1 - base;

			if (!len)
				continue;
			len = len < P ? len : P;
			softmax_step(&row[r], len);
			weigh(v, D, &row[r], 1, len);
		}
	}
	for (size_t r = 0; r < n; r++) {
		vf l = v_set1(v_hsum(row[r].l));

		for (size_t d = 0; d < D; d += VL)
			v_store(b->y[r] + d, v_div(v_load(row[r].sum + d), l));
	}
}

#define BATCH_RUN(n)									\
	static void batch_run_##n(const struct batch *b, struct arow *row)		\
	{										\
		batch_run(b, row, n);							\
	}

BATCH_RUN(1)
BATCH_RUN(2)
BATCH_RUN(3)
BATCH_RUN(4)
#if VL == 16
BATCH_RUN(5)
BATCH_RUN(6)
#endif

static void (*const batch_runs[])(const struct batch *, struct arow *) = {
	batch_run_1, batch_run_2, batch_run_3, batch_run_4,
#if VL == 16
	batch_run_5, batch_run_6,
#endif
};

static size_t seq_batches(const struct sits_attn *a, const struct sits_attn_seq *s, size_t rows)
{
	return (s->nr * (a->H / a->G) + rows - 1) / rows;
}

static size_t count_tasks(const struct sits_attn *a, size_t rows)
{
	size_t n = 0;

	for (size_t i = 0; i < a->nr_seq; i++)
		n += a->G * seq_batches(a, &a->seq[i], rows);
	return n;
}

/* Rows in a task: as many as can run together, fewer where threads would stand idle. */
static size_t task_rows(const struct sits_attn *a)
{
	size_t rows = ATTN_ROWS;

	while (rows > 1 && count_tasks(a, rows) < ATTN_FEW)
		rows--;
	return rows;
}

size_t ISA(attn_tasks)(const struct sits_attn *a)
{
	return count_tasks(a, task_rows(a));
}

size_t ISA(attn_scratch_bytes)(const struct sits_attn *a)
{
	return ATTN_ROWS * sizeof(struct arow);
}

/* Batch number i of sequence s, key/value head g. Its rows go by position, then head. */
static void batch_init(struct batch *b, const struct sits_attn *a, const struct sits_attn_seq *s, size_t g, size_t i,
		       size_t rows)
{
	size_t per = a->H / a->G, all = s->nr * per;

	b->a = a;
	b->seq = s;
	b->g = g;
	b->n = all - i * rows < rows ? all - i * rows : rows;
	for (size_t r = 0; r < b->n; r++) {
		size_t at = i * rows + r, t = at / per, h = g * per + at % per;
		size_t off = ((s->row0 + t) * a->H + h) * a->D;

		b->q[r] = a->q + off;
		b->y[r] = a->y + off;
		b->pos[r] = s->pos0 + t;
	}
}

void ISA(attn)(const struct sits_attn *a, size_t t0, size_t t1, void *scratch)
{
	size_t rows = task_rows(a), first = 0, n;
	const struct sits_attn_seq *s = a->seq;
	struct batch b;

	for (size_t t = t0; t < t1; t++) {
		while (n = a->G * seq_batches(a, s, rows), t - first >= n) {
			first += n;
			s++;
		}
		n = seq_batches(a, s, rows);
		batch_init(&b, a, s, (t - first) / n, (t - first) % n, rows);
		batch_runs[b.n - 1](&b, scratch);
	}
}

#endif
