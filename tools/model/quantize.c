// SPDX-License-Identifier: MIT
/*
 * quantize.c - see quantize.h.
 */
#include "tools/model/quantize.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/engine/threads.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "tools/model/gguf_out.h"
#include "tools/model/quants.h"

#define CHUNK_BYTES	(4u << 20)	/* of f32 in one go */
#define NAME_MAX_GGUF	64

/* ---- plan ---- */

bool quant_type(const char *name, uint32_t *type)
{
	const struct sits_dtype_info *info;
	uint32_t t;

	*type = QUANT_KEEP;
	if (!strcasecmp(name, "keep"))
		return true;
	for (t = 0; t < 0x10000; t++) {
		info = sits_dtype_info(t);
		if (info && !strcasecmp(name, info->name)) {
			*type = t;
			return true;
		}
	}
	return false;
}

static uint64_t nr_matrices(const struct sits_gguf_tensor *t)
{
	return t->ne[2] * t->ne[3];
}

static uint64_t nr_rows(const struct sits_gguf_tensor *t)
{
	return t->ne[1] * nr_matrices(t);
}

static const uint8_t *matrix_at(const struct quant_tensor *q, uint64_t e)
{
	return q->part ? q->part[e] : (const uint8_t *)q->t->data + e * (q->t->bytes / nr_matrices(q->t));
}

/* Which of the rows there are is written as row @n. */
static uint64_t source_row(const struct quant_tensor *q, uint64_t n)
{
	uint64_t i = q->head_rows ? n % q->head_rows : 0;

	return q->head_rows ? n - i + i / 2 + i % 2 * (q->head_rows / 2) : n;
}

/* Of a tensor's data as @type; 0 where that can't be. */
static uint64_t tensor_bytes(const struct sits_gguf_tensor *t, uint32_t type)
{
	uint64_t one = sits_dtype_matrix_bytes(type, t->ne[0], t->ne[1]), all;

	return __builtin_mul_overflow(one, nr_matrices(t), &all) ? 0 : all;
}

static bool is_quantised(uint32_t type)
{
	return type != SITS_F32 && type != SITS_F16 && type != SITS_BF16;
}

static void name_of(const struct sits_gguf_tensor *t, char out[NAME_MAX_GGUF])
{
	size_t n = t->name.len < NAME_MAX_GGUF ? t->name.len : NAME_MAX_GGUF - 1;

	memcpy(out, t->name.p, n);
	out[n] = '\0';
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static bool is_router(const char *name)
{
	return strstr(name, "ffn_gate_inp");
}

/* They are small, and the engine adds and multiplies by them: it reads no other type than F32. */
static bool is_vector(const struct sits_gguf_tensor *t, const char *name)
{
	if (!ends_with(name, ".weight") || strstr(name, "_norm"))
		return true;
	return !is_router(name) && (t->nr_dims < 2 || nr_rows(t) == 1);
}

/* Vectors stay as they are. So do routers, unless a rule names them: which experts are chosen hangs on small differences. */
static bool is_matrix(const struct sits_gguf_tensor *t, const char *name)
{
	return !is_vector(t, name) && !is_router(name);
}

static bool rule_matches(const struct quant_rule *r, const struct sits_gguf_tensor *t, const char *name)
{
	return !fnmatch(r->glob, name, 0) && (r->type == QUANT_KEEP || r->type == SITS_F32 || !is_vector(t, name));
}

/* Types for rows that are not whole blocks of the one asked for. */
static uint32_t fitting(uint32_t type, uint64_t K)
{
	if (sits_dtype_row_bytes(type, K))
		return type;
	return sits_dtype_row_bytes(SITS_Q5_0, K) ? SITS_Q5_0 : SITS_F16;
}

static int decide(struct quant_tensor *q, const struct quant_opts *o, struct sits_diag *diag)
{
	char name[NAME_MAX_GGUF];
	uint32_t want = QUANT_KEEP, i;

	name_of(q->t, name);
	if (is_matrix(q->t, name))
		want = !strcmp(name, "token_embd.weight") || !strcmp(name, "output.weight") ? o->out_type : o->type;
	for (i = 0; i < o->nr_rules; i++)
		if (rule_matches(&o->rule[i], q->t, name))
			want = o->rule[i].type;
	if (want != QUANT_KEEP && !quants_can(want))
		return sits_diag_fail(diag, -EINVAL, "tensor %s: there is no encoder for its type", name);
	q->type = want == QUANT_KEEP ? q->t->type : fitting(want, q->t->ne[0]);
	q->fallback = want != QUANT_KEEP && q->type != want;
	q->copy = q->type == q->t->type;
	q->bytes = tensor_bytes(q->t, q->type);
	if (!q->bytes)
		return sits_diag_fail(diag, -EINVAL, "tensor %s is too large as %s", name, sits_dtype_info(q->type)->name);
	if (!q->copy && q->t->type & SITS_PACKED)
		return sits_diag_fail(diag, -EINVAL, "tensor %s is %s, packed; quantize what it was packed from", name,
				      sits_dtype_info(q->t->type)->name);
	if (!q->copy && is_quantised(q->t->type) && !o->requantise)
		return sits_diag_fail(diag, -EINVAL, "tensor %s is %s already; to make it %s from that, which adds to its error, say --requantize",
				      name, sits_dtype_info(q->t->type)->name, sits_dtype_info(q->type)->name);
	return 0;
}

static int check_rules(const struct sits_gguf *g, const struct quant_opts *o, struct sits_diag *diag)
{
	const struct sits_gguf_tensor *t;
	char name[NAME_MAX_GGUF];
	bool named, counts;
	uint64_t j;
	uint32_t i;

	for (i = 0; i < o->nr_rules; i++) {
		named = counts = false;
		for (j = 0; j < sits_gguf_nr_tensors(g) && !counts; j++) {
			t = sits_gguf_tensor_at(g, j);
			name_of(t, name);
			named |= !fnmatch(o->rule[i].glob, name, 0);
			counts = rule_matches(&o->rule[i], t, name);
		}
		if (!counts)
			return sits_diag_fail(diag, -EINVAL, named ? "only norms and other vectors are called '%s', which stay F32" :
					      "no tensor is called '%s'", o->rule[i].glob);
	}
	return 0;
}

int quant_plan_create(const struct sits_gguf *g, const struct quant_opts *o, struct quant_plan *p, struct sits_diag *diag)
{
	uint64_t i;
	int ret;

	*p = (struct quant_plan){ .g = g, .nr = sits_gguf_nr_tensors(g) };
	if (!p->nr)
		return sits_diag_fail(diag, -EINVAL, "the model has no tensors");
	ret = check_rules(g, o, diag);
	if (ret)
		return ret;
	p->tensor = calloc(p->nr, sizeof(*p->tensor));
	if (!p->tensor)
		return sits_diag_fail(diag, -ENOMEM, "no memory for %" PRIu64 " tensors", p->nr);
	for (i = 0; i < p->nr && !ret; i++) {
		p->tensor[i].t = sits_gguf_tensor_at(g, i);
		ret = decide(&p->tensor[i], o, diag);
	}
	if (ret)
		quant_plan_destroy(p);
	return ret;
}

void quant_plan_destroy(struct quant_plan *p)
{
	free(p->tensor);
	*p = (struct quant_plan){ 0 };
}

struct quant_tensor *quant_plan_find(const struct quant_plan *p, const char *name)
{
	const struct sits_gguf_tensor *t = sits_gguf_find(p->g, name);
	uint64_t i;

	for (i = 0; t && i < p->nr; i++)
		if (p->tensor[i].t == t)
			return &p->tensor[i];
	return NULL;
}

bool quant_plan_encode(struct quant_tensor *q, uint32_t type)
{
	uint64_t bytes = tensor_bytes(q->t, type);

	if (!bytes)
		return false;
	q->type = type;
	q->copy = type == q->t->type;
	q->bytes = bytes;
	return true;
}

void quant_plan_scale(struct quant_tensor *q, const struct quant_scale *s)
{
	if (q->copy && is_quantised(q->type))
		q->type = SITS_F16;
	q->copy = false;
	q->scale = *s;
	q->bytes = tensor_bytes(q->t, q->type);
}

/* Packed are matrices that only products read, whole; of MLA's the graph takes parts. */
static bool is_packable(const struct sits_gguf_tensor *t, bool tied)
{
	char name[NAME_MAX_GGUF];

	name_of(t, name);
	if (!is_matrix(t, name) || !is_quantised(t->type) || strstr(name, "attn_kv_b") || strstr(name, "attn_k_b") ||
	    strstr(name, "attn_v_b"))
		return false;
	return tied || strcmp(name, "token_embd.weight");
}

int quant_plan_pack(const struct sits_gguf *g, bool unpack, struct quant_plan *p, struct sits_diag *diag)
{
	const bool tied = !sits_gguf_find(g, "output.weight");
	uint64_t i, changed = 0;
	struct quant_tensor *q;

	*p = (struct quant_plan){ .g = g, .nr = sits_gguf_nr_tensors(g) };
	p->tensor = calloc(p->nr + 1, sizeof(*p->tensor));
	if (!p->tensor)
		return sits_diag_fail(diag, -ENOMEM, "no memory for %" PRIu64 " tensors", p->nr);
	for (i = 0; i < p->nr; i++) {
		q = &p->tensor[i];
		q->t = sits_gguf_tensor_at(g, i);
		q->type = q->t->type;
		if (unpack)
			q->type &= ~(uint32_t)SITS_PACKED;
		else if (is_packable(q->t, tied) && tensor_bytes(q->t, q->type | SITS_PACKED))
			q->type |= SITS_PACKED;
		q->copy = q->type == q->t->type;
		q->bytes = tensor_bytes(q->t, q->type);
		changed += !q->copy;
	}
	if (changed)
		return 0;
	quant_plan_destroy(p);
	return sits_diag_fail(diag, -EINVAL, unpack ? "no tensor of the model is packed" :
			      "no tensor of the model can be packed: none is quantised, or all are packed already");
}

/* ---- the work ---- */

/* What a thread found; on cache lines of its own. */
struct slot {
	_Alignas(64) double err2;
	double x2, max_err;
	int err;
	uint64_t err_row;
	float *x, *y;			/* [K]: a row, and what it is decoded to */
};

struct work {
	struct sits_threads *team;
	const struct sits_backend *be;
	struct quant_tensor *q;
	uint64_t row0, rows;		/* of the chunk under way */
	uint8_t *out;			/* its encoded rows */
	struct slot *slot;		/* [threads] */
};

static void scale_row(const struct quant_tensor *q, uint64_t r, float *x)
{
	uint64_t e = r / q->t->ne[1], n = r % q->t->ne[1], k, K = q->t->ne[0];
	const float *col = q->scale.col ? q->scale.col + e * q->scale.col_stride : NULL;
	float row = q->scale.row ? q->scale.row[e * q->scale.row_stride + n] : 1;

	for (k = 0; col && k < K; k++)
		x[k] *= col[k];
	for (k = 0; q->scale.row && k < K; k++)
		x[k] *= row;
}

static void measure(struct slot *s, uint64_t K)
{
	double e, err2 = 0, x2 = 0;
	uint64_t k;

	for (k = 0; k < K; k++) {
		e = fabs((double)s->y[k] - (double)s->x[k]);
		err2 += e * e;
		x2 += (double)s->x[k] * (double)s->x[k];
		s->max_err = e > s->max_err ? e : s->max_err;
	}
	s->err2 += err2;
	s->x2 += x2;
}

static void task_row(void *arg, size_t i, uint32_t self)
{
	struct work *w = arg;
	struct slot *s = &w->slot[self];
	uint64_t K = w->q->t->ne[0], r = w->row0 + i, N = w->q->t->ne[1];
	uint64_t in_row = sits_dtype_row_bytes(w->q->t->type, K), out_row = sits_dtype_row_bytes(w->q->type, K);
	uint8_t *out = w->out + i * out_row;
	int ret;

	w->be->dequant(w->q->t->type, matrix_at(w->q, r / N) + source_row(w->q, r % N) * in_row, s->x, K);
	scale_row(w->q, r, s->x);
	ret = quants_row(w->q->type, s->x, K, out);
	if (ret && (!s->err || r < s->err_row)) {
		s->err = ret;
		s->err_row = r;
	}
	if (ret)
		return;
	w->be->dequant(w->q->type, out, s->y, K);
	measure(s, K);
}

static void body(void *arg, uint32_t self)
{
	struct work *w = arg;

	sits_threads_stage(w->team, self, w->rows, task_row, NULL, w);
}

/* The first row that could not be encoded, by whichever thread. */
static int first_error(const struct work *w, struct sits_diag *diag)
{
	const struct slot *bad = NULL, *s;
	char name[NAME_MAX_GGUF];
	uint32_t i;

	for (i = 0; i < sits_threads_nr(w->team); i++) {
		s = &w->slot[i];
		if (s->err && (!bad || s->err_row < bad->err_row))
			bad = s;
	}
	if (!bad)
		return 0;
	name_of(w->q->t, name);
	return sits_diag_fail(diag, bad->err, "tensor %s, row %" PRIu64 ": %s %s", name, bad->err_row,
			      bad->err == -EDOM ? "a weight is not finite and can't be" : "a weight is too large for",
			      sits_dtype_info(w->q->type)->name);
}

static int run_encode(struct work *w, struct gguf_out *o, int (*progress)(void *arg, uint64_t done, uint64_t total),
		      void *arg, uint64_t done, uint64_t total, struct sits_diag *diag)
{
	uint64_t K = w->q->t->ne[0], rows = nr_rows(w->q->t), out_row = sits_dtype_row_bytes(w->q->type, K);
	uint64_t chunk = CHUNK_BYTES / (K * sizeof(float)) + 1, in_row = sits_dtype_row_bytes(w->q->t->type, K);
	uint32_t i, nr = sits_threads_nr(w->team);
	int ret = 0;

	chunk = chunk < rows ? chunk : rows;
	w->out = malloc(chunk * out_row);
	for (i = 0; i < nr; i++) {
		w->slot[i] = (struct slot){ .x = malloc(K * sizeof(float)), .y = malloc(K * sizeof(float)) };
		if (!w->slot[i].x || !w->slot[i].y)
			ret = -ENOMEM;
	}
	if (!w->out)
		ret = -ENOMEM;
	for (w->row0 = 0; w->row0 < rows && !ret; w->row0 += w->rows) {
		w->rows = rows - w->row0 < chunk ? rows - w->row0 : chunk;
		if (progress && progress(arg, done + w->row0 * in_row, total)) {
			ret = -ECANCELED;
			break;
		}
		sits_threads_run(w->team, body, w);
		ret = first_error(w, diag);
		if (!ret)
			ret = gguf_out_write(o, w->out, w->rows * out_row, diag);
	}
	for (i = 0; i < nr; i++) {
		w->q->err2 += w->slot[i].err2;
		w->q->x2 += w->slot[i].x2;
		w->q->max_err = fmax(w->q->max_err, w->slot[i].max_err);
		free(w->slot[i].x);
		free(w->slot[i].y);
	}
	free(w->out);
	return ret;
}

static int run_copy(const struct quant_tensor *q, struct gguf_out *o, int (*progress)(void *arg, uint64_t done, uint64_t total),
		    void *arg, uint64_t done, uint64_t total, struct sits_diag *diag)
{
	const uint8_t *p = q->t->data;
	uint64_t at, n;
	int ret = 0;

	for (at = 0; at < q->bytes && !ret; at += n) {
		n = q->bytes - at < CHUNK_BYTES ? q->bytes - at : CHUNK_BYTES;
		if (progress && progress(arg, done + at, total))
			return -ECANCELED;
		ret = gguf_out_write(o, p + at, n, diag);
	}
	return ret;
}

/* The same row by row, from where each lies. The elements of a vector are its rows. */
static int run_rows(const struct quant_tensor *q, struct gguf_out *o, int (*progress)(void *arg, uint64_t done, uint64_t total),
		    void *arg, uint64_t done, uint64_t total, struct sits_diag *diag)
{
	const uint64_t N = q->t->nr_dims > 1 ? q->t->ne[1] : q->t->ne[0], row = q->bytes / nr_matrices(q->t) / N;
	const uint64_t chunk = CHUNK_BYTES / row + 1;
	uint8_t *out = malloc(chunk * row);
	uint64_t e, n, i, nr;
	int ret = out ? 0 : -ENOMEM;

	for (e = 0; e < nr_matrices(q->t) && !ret; e++)
		for (n = 0; n < N && !ret; n += nr) {
			nr = N - n < chunk ? N - n : chunk;
			if (progress && progress(arg, done + (e * N + n) * row, total)) {
				ret = -ECANCELED;
				break;
			}
			for (i = 0; i < nr; i++)
				memcpy(out + i * row, matrix_at(q, e) + source_row(q, n + i) * row, row);
			ret = gguf_out_write(o, out, nr * row, diag);
		}
	free(out);
	return ret;
}

/* Whole strips at a time, matrix by matrix; the last one of a matrix may be short on the plain side. */
static int run_pack(const struct quant_tensor *q, struct gguf_out *o, int (*progress)(void *arg, uint64_t done, uint64_t total),
		    void *arg, uint64_t done, uint64_t total, struct sits_diag *diag)
{
	const bool pack = q->type & SITS_PACKED;
	uint64_t K = q->t->ne[0], N = q->t->ne[1], e, n, r, from = sits_dtype_row_bytes(q->t->type, K), in;
	uint64_t to = sits_dtype_row_bytes(q->type, K), chunk = (CHUNK_BYTES / to / SITS_PACK_ROWS + 1) * SITS_PACK_ROWS;
	uint32_t plain = q->type & ~(uint32_t)SITS_PACKED;
	const uint8_t *src = q->t->data;
	void *out = malloc(chunk * to);
	int ret = out ? 0 : -ENOMEM;

	for (e = 0; e < nr_matrices(q->t) && !ret; e++, src += q->t->bytes / nr_matrices(q->t)) {
		for (n = 0; n < N && !ret; n += r) {
			r = N - n < chunk ? N - n : chunk;
			in = n * from;
			if (progress && progress(arg, done + (uint64_t)(src - (const uint8_t *)q->t->data) + in, total))
				ret = -ECANCELED;
			else
				ret = pack ? sits_pack_rows(plain, src + in, K, r, out) : sits_unpack_rows(plain, src + in, K, r, out);
			if (!ret)
				ret = gguf_out_write(o, out, sits_dtype_matrix_bytes(q->type, K, r), diag);
		}
	}
	free(out);
	return ret;
}

static int run_one(struct work *w, struct gguf_out *o, int (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
		   uint64_t done, uint64_t total, struct sits_diag *diag)
{
	if (w->q->copy && (w->q->part || w->q->head_rows))
		return run_rows(w->q, o, progress, arg, done, total, diag);
	if (w->q->copy)
		return run_copy(w->q, o, progress, arg, done, total, diag);
	if ((w->q->type ^ w->q->t->type) == SITS_PACKED)
		return run_pack(w->q, o, progress, arg, done, total, diag);
	return run_encode(w, o, progress, arg, done, total, diag);
}

static int run_all(struct quant_plan *p, struct gguf_out *o, struct work *w,
		   int (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct sits_diag *diag)
{
	uint64_t i, done = 0, total = 0;
	int ret = 0;

	for (i = 0; i < p->nr && !ret; i++) {
		total += p->tensor[i].t->bytes;
		ret = gguf_out_tensor(o, p->tensor[i].t->name, p->tensor[i].t->nr_dims, p->tensor[i].t->ne,
				      p->tensor[i].type, p->tensor[i].bytes);
	}
	if (!ret)
		ret = gguf_out_begin(o, diag);
	for (i = 0; i < p->nr && !ret; i++) {
		w->q = &p->tensor[i];
		ret = run_one(w, o, progress, arg, done, total, diag);
		done += w->q->t->bytes;
	}
	return ret;
}

int quant_run(struct quant_plan *p, struct gguf_out *o, uint32_t threads,
	      int (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct sits_diag *diag)
{
	struct work w = { .be = sits_backend_get(NULL) };
	int ret;

	if (!w.be)
		return sits_diag_fail(diag, -EINVAL, "no compute backend that $SITS_FORCE_ISA names");
	ret = sits_threads_create(threads, 0, &w.team, diag);
	if (ret)
		return ret;
	w.slot = aligned_alloc(64, sits_threads_nr(w.team) * sizeof(*w.slot));
	ret = w.slot ? run_all(p, o, &w, progress, arg, diag) : -ENOMEM;
	free(w.slot);
	sits_threads_destroy(w.team);
	return ret;
}
