// SPDX-License-Identifier: MIT
/*
 * dcu.c - the public C ABI of some operations (include/sits/dcu.h), over the table of the best backend.
 *
 * Attention packs the keys and values of one batch item into pages, as they are (SITS_KV_F32), and runs the same
 * code as the engine does.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "sits/dcu.h"

#define PAGE SITS_KV_PAGE_TOKENS
#define ALIGN 64
/* Rows of a product that are made into probabilities while they are in the cache. */
#define FUSE_ROWS 8

static _Thread_local struct {
	uint64_t seed;
	uint32_t call;
} drop_state;

void dcu_flash_attn3_seed(uint64_t seed)
{
	drop_state.seed = seed;
	drop_state.call = 0;
}

/* out = a * b. Return: whether that fits. */
static bool mul(size_t *out, size_t a, size_t b)
{
	return !__builtin_mul_overflow(a, b, out) && *out <= PTRDIFF_MAX;
}

/* Memory of n * bytes, wiped by nobody, for free(); NULL where there is none. */
static void *array(size_t n, size_t bytes)
{
	size_t len;
	void *p;

	if (!mul(&len, n, bytes) || len > PTRDIFF_MAX - ALIGN || posix_memalign(&p, ALIGN, len ? len : 1))
		return NULL;
	return p;
}

static bool overlap(const float *a, size_t a_len, const float *b, size_t b_len)
{
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

	return x < y + b_len * sizeof(float) && y < x + a_len * sizeof(float);
}

/* What a call needs; pages and rows are those of one batch item. */
struct job {
	const struct sits_backend *be;
	struct sits_attn a;
	struct sits_attn_seq seq;
	size_t T, H, D, padded;		/* padded: D rounded up to what the backends take */
	uint8_t *kv;
	uint32_t *pages;
	float *q, *o, *row;		/* where D is not padded: copies, and one token's k and v */
	void *scratch;
};

static void job_fini(struct job *j)
{
	free(j->kv);
	free(j->pages);
	free(j->q);
	free(j->o);
	free(j->row);
	free(j->scratch);
}

static int job_init(struct job *j)
{
	size_t nr_pages = (j->T + PAGE - 1) / PAGE, per_page, rows;

	j->padded = (j->D + 15) / 16 * 16;
	j->a.shape = (struct sits_kv_shape){ .kind = SITS_KV_F32, .G = j->H, .Dk = j->padded, .Dv = j->padded };
	if (!mul(&per_page, j->H, j->padded) || !mul(&rows, per_page, j->T) || !mul(&rows, rows, sizeof(float)) ||
	    !mul(&per_page, per_page, 2 * PAGE * sizeof(float)))
		return -EOVERFLOW;
	j->a.page_bytes = j->be->kv_layer_bytes(&j->a.shape);
	j->kv = array(nr_pages, j->a.page_bytes);
	j->pages = array(nr_pages, sizeof(*j->pages));
	if (j->padded != j->D) {
		j->q = array(rows, 1);
		j->o = array(rows, 1);
		j->row = array(2 * j->H * j->padded, sizeof(float));
	}
	if (!j->kv || !j->pages || (j->padded != j->D && (!j->q || !j->o || !j->row)))
		return -ENOMEM;
	for (size_t i = 0; i < nr_pages; i++)
		j->pages[i] = (uint32_t)i;
	j->a.kv = j->kv;
	j->a.H = j->H;
	j->a.scale = (float)(1 / sqrt((double)j->D));
	j->seq = (struct sits_attn_seq){ .pages = j->pages, .nr = j->T };
	j->a.seq = &j->seq;
	j->a.nr_seq = 1;
	j->scratch = array(1, j->be->attn_scratch_bytes(&j->a));
	return j->scratch ? 0 : -ENOMEM;
}

/* n rows of D floats to rows of `to`, what is new zero; or back. */
static void repitch(float *dst, size_t to, const float *src, size_t from, size_t n)
{
	size_t D = to < from ? to : from;

	for (size_t i = 0; i < n; i++) {
		memcpy(dst + i * to, src + i * from, D * sizeof(float));
		memset(dst + i * to + D, 0, (to - D) * sizeof(float));
	}
}

/* One batch item. */
static void attend(struct job *j, const float *q, const float *k, const float *v, float *o)
{
	size_t item = j->H * j->D, wide = j->H * j->padded;
	bool same = j->padded == j->D;

	for (size_t t = 0; t < j->T; t++) {
		const float *kt = k + t * item, *vt = v + t * item;

		if (!same) {
			repitch(j->row, j->padded, kt, j->D, j->H);
			repitch(j->row + wide, j->padded, vt, j->D, j->H);
			kt = j->row;
			vt = j->row + wide;
		}
		j->be->kv_store(&j->a.shape, j->kv + t / PAGE * j->a.page_bytes, t % PAGE, kt, vt);
	}
	if (!same)
		repitch(j->q, j->padded, q, j->D, j->T * j->H);
	j->a.q = same ? q : j->q;
	j->a.y = same ? o : j->o;
	j->be->attn(&j->a, 0, j->be->attn_tasks(&j->a), j->scratch);
	if (!same)
		repitch(o, j->D, j->o, j->padded, j->T * j->H);
}

int dcu_flash_attn3_forward(const float *q, const float *k, const float *v, float *o, int batch_size, int seq_len,
			    int num_heads, int head_dim, float dropout_p)
{
	struct sits_attn_dropout dropout = { .scale = 1 };
	struct job j = { .be = sits_backend_get(NULL) };
	size_t item, all, bytes;
	int ret;

	if (batch_size < 0 || seq_len < 0 || num_heads < 0 || head_dim < 0 || !(dropout_p >= 0 && dropout_p <= 1))
		return -EINVAL;
	if (!batch_size || !seq_len || !num_heads || !head_dim)
		return 0;
	if (!q || !k || !v || !o || !j.be)
		return -EINVAL;
	j.T = (size_t)seq_len;
	j.H = (size_t)num_heads;
	j.D = (size_t)head_dim;
	if (!mul(&item, j.T, j.H) || !mul(&item, item, j.D) || !mul(&all, item, (size_t)batch_size) ||
	    !mul(&bytes, all, sizeof(float)))
		return -EOVERFLOW;
	if (overlap(o, all, q, all) || overlap(o, all, k, all) || overlap(o, all, v, all))
		return -EINVAL;
	ret = job_init(&j);
	if (ret)
		goto out;
	if (dropout_p > 0) {
		dropout = (struct sits_attn_dropout){
			.key = { (uint32_t)drop_state.seed, (uint32_t)(drop_state.seed >> 32) }, .call = drop_state.call++,
			.below = (uint64_t)((double)dropout_p * 0x1p32), .scale = dropout_p < 1 ? 1 / (1 - dropout_p) : 0,
		};
		j.a.dropout = &dropout;
	}
	for (size_t b = 0; b < (size_t)batch_size; b++) {
		dropout.stream = (uint32_t)(b * j.H);
		attend(&j, q + b * item, k + b * item, v + b * item, o + b * item);
	}
out:
	job_fini(&j);
	return ret;
}

int dcu_gemm_softmax_rmsnorm_forward(const float *x, const float *w, const float *gain, float *y, int rows, int in_features,
				     int out_features, float eps)
{
	const struct sits_backend *be = sits_backend_get(NULL);
	struct sits_matmul mm = { .wtype = SITS_F32 };
	size_t T, K, N, nx, nw, ny, bytes;
	void *act;

	if (rows < 0 || in_features < 0 || out_features < 0 || !(eps >= 0))
		return -EINVAL;
	if (!rows || !out_features)
		return 0;
	T = (size_t)rows;
	K = (size_t)in_features;
	N = (size_t)out_features;
	if (!y || (K && (!x || !w)) || !be)
		return -EINVAL;
	if (!mul(&nx, T, K) || !mul(&nw, N, K) || !mul(&ny, T, N) || !mul(&bytes, nx, sizeof(float)) ||
	    !mul(&bytes, nw, sizeof(float)) || !mul(&bytes, ny, sizeof(float)))
		return -EOVERFLOW;
	if ((K && (overlap(y, ny, x, nx) || overlap(y, ny, w, nw))) || (gain && overlap(y, ny, gain, N)))
		return -EINVAL;
	mm.x_row_bytes = be->act_row_bytes(SITS_F32, K);
	act = array(FUSE_ROWS, mm.x_row_bytes);
	if (!act)
		return -ENOMEM;
	mm.w = w;
	mm.w_row_bytes = K * sizeof(float);
	mm.x = act;
	mm.ldy = mm.N = mm.n1 = N;
	mm.K = K;
	for (size_t t = 0; t < T; t += mm.T) {
		mm.T = T - t < FUSE_ROWS ? T - t : FUSE_ROWS;
		mm.y = y + t * N;
		if (K) {
			be->act_prepare(SITS_F32, x + t * K, K, mm.T, K, act);
			be->matmul(&mm);
		} else {
			memset(mm.y, 0, mm.T * N * sizeof(float));
		}
		be->softmax_rmsnorm(mm.y, mm.y, gain, mm.T, N, eps);
	}
	free(act);
	return 0;
}
