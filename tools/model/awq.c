// SPDX-License-Identifier: MIT
/*
 * awq.c - see awq.h.
 *
 * Letters: R sampled rows of a layer, E embedding, F feed-forward of an expert, X experts, C candidates.
 */
#include "tools/model/awq.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/threads.h"
#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "kernels/route.h"
#include "tools/model/ppl.h"
#include "tools/model/quants.h"

#define WINDOWS_DEFAULT	8
#define WINDOW		512
#define ROWS_MAX	256		/* sampled from a layer, evenly over the text */
#define STEPS		10		/* of a, from 0 to 1 */
#define CANDIDATES	(1 + STEPS + STEPS + 1)	/* none; mean|x|^a, a > 0; max|x|^a / max|W|^(1 - a) */
#define FACTOR_MAX	1e4f		/* bounds of a factor, so that a dead channel does no harm */

/* Sampled inputs of one layer's feed-forward part. */
struct sample {
	float *x;		/* [R][E] */
	uint32_t nr;
	uint64_t seen;
};

struct awq_work {
	const struct sits_model *m;
	const struct awq_opts *o;
	const struct sits_backend *be;
	struct sits_threads *team;
	struct sample *sample;	/* [layers] */
	uint64_t rows_total;	/* that go through a layer */
	uint64_t done, total;	/* of progress */
	int err;		/* of a sampling call */

	/* Of the search under way: what comes out of rows [nr][K] of an expert's matrices, w[1] may be NULL. */
	const float *x;
	const float *w[2];	/* [N][K] f32 */
	size_t nr, K, N;
	const float *weight;	/* [nr]: squared, what a row's error counts */
	const float *ref;	/* [nr][N] */
	const float *cand;	/* [C][K] */
	double err2[CANDIDATES];
	int fail[CANDIDATES];
};

static float *floats(size_t n)
{
	return n && n <= SIZE_MAX / sizeof(float) ? malloc(n * sizeof(float)) : NULL;
}

/* ---- sampling ---- */

static bool takes_part(const struct awq_work *w, uint32_t l)
{
	return w->m->layer[l].kind == SITS_LAYER_MOE || w->o->dense;
}

static void take_rows(void *arg, uint32_t l, const float *x, size_t rows, size_t cols)
{
	struct awq_work *w = arg;
	struct sample *s = &w->sample[l];
	uint64_t want = w->rows_total < ROWS_MAX ? w->rows_total : ROWS_MAX;
	size_t i;

	if (!takes_part(w, l))
		return;
	for (i = 0; i < rows; i++, s->seen++) {
		if ((s->seen + 1) * want / w->rows_total == s->seen * want / w->rows_total || s->nr == want)
			continue;
		if (!s->x)
			s->x = floats(want * cols);
		if (!s->x) {
			w->err = -ENOMEM;
			return;
		}
		memcpy(s->x + s->nr++ * cols, x + i * cols, cols * sizeof(*x));
	}
}

static int sampling_progress(void *arg, uint64_t done, uint64_t total)
{
	struct awq_work *w = arg;

	return w->o->progress ? w->o->progress(w->o->arg, done * w->m->hp.layers / (total ? total : 1), w->total) : 0;
}

static int sample_all(struct awq_work *w, const char *text, size_t len, struct sits_diag *diag)
{
	const struct ppl_opts opts = { .context = w->m->hp.context < WINDOW ? w->m->hp.context : WINDOW,
				       .windows = w->o->windows ? w->o->windows : WINDOWS_DEFAULT, .threads = w->o->threads,
				       .ffn_in = take_rows, .progress = sampling_progress, .arg = w };
	struct sits_tokens t = { 0 };
	struct ppl_result res;
	uint64_t windows;
	int ret = ppl_tokens(w->m, text, len, &t, diag);

	windows = t.nr / opts.context < opts.windows ? t.nr / opts.context : opts.windows;
	sits_tokens_fini(&t);
	if (ret)
		return ret;
	w->rows_total = windows * (opts.context - 1);
	ret = ppl_run(w->m, text, len, &opts, &res, diag);
	return ret ? ret : w->err;
}

/* ---- one product and its error ---- */

static double silu(double v)
{
	return v / (1 + exp(-v));
}

/* y = x w^T with weights of @type. @act: scratch for the prepared rows. */
static void product(const struct sits_backend *be, uint32_t type, const void *wt, const void *act, size_t T, size_t K, size_t N,
		    float *y)
{
	const struct sits_matmul mm = { .wtype = type, .w = wt, .w_row_bytes = sits_dtype_row_bytes(type, K), .x = act,
					.x_row_bytes = be->act_row_bytes(type, K), .y = y, .ldy = N, .T = T, .K = K, .N = N,
					.n1 = N };

	be->matmul(&mm);
}

static void *prepared(const struct sits_backend *be, uint32_t type, const float *x, size_t T, size_t K)
{
	void *act = aligned_alloc(64, T * be->act_row_bytes(type, K));

	if (act)
		be->act_prepare(type, x, K, T, K, act);
	return act;
}

/* What comes out without rounding: x w0^T, or silu(x w0^T) * (x w1^T). Return: [T][N], the caller frees it; NULL. */
static float *exact(const struct sits_backend *be, const float *x, const float *const w[2], size_t T, size_t K, size_t N)
{
	float *y = floats(T * N), *u = w[1] ? floats(T * N) : NULL;
	void *act = prepared(be, SITS_F32, x, T, K);
	size_t i;

	if (!y || !act || (w[1] && !u)) {
		free(y);
		y = NULL;
	} else {
		product(be, SITS_F32, w[0], act, T, K, N, y);
		if (w[1])
			product(be, SITS_F32, w[1], act, T, K, N, u);
		for (i = 0; w[1] && i < T * N; i++)
			y[i] = (float)(silu((double)y[i]) * (double)u[i]);
	}
	free(u);
	free(act);
	return y;
}

/* A matrix with its columns multiplied by s, as SITS_I8C. Return: 0 or -errno of quants_row(). @row: [K] scratch. */
static int rounded(const float *w, const float *s, size_t K, size_t N, float *row, uint8_t *out)
{
	size_t n, k;
	int ret = 0;

	for (n = 0; n < N && !ret; n++, out += sits_dtype_row_bytes(SITS_I8C, K)) {
		for (k = 0; k < K; k++)
			row[k] = w[n * K + k] * s[k];
		ret = quants_row(SITS_I8C, row, K, out);
	}
	return ret;
}

/* Candidate c of the search under way; its scratch is its own. */
static void task_candidate(void *arg, size_t c, uint32_t self)
{
	struct awq_work *w = arg;
	size_t K = w->K, N = w->N, i, n;
	const float *s = w->cand + c * K;
	float *x = floats(w->nr * K), *y = floats(w->nr * N), *u = floats(w->nr * N), *row = floats(K);
	uint8_t *q = malloc(N * sits_dtype_row_bytes(SITS_I8C, K));
	void *act = NULL;
	double e, sum;
	int ret = x && y && u && row && q ? 0 : -ENOMEM;

	for (i = 0; i < w->nr * K && !ret; i++)
		x[i] = w->x[i] / s[i % K];
	if (!ret)
		act = prepared(w->be, SITS_I8C, x, w->nr, K);
	if (!act)
		ret = -ENOMEM;
	for (i = 0; i < 2 && w->w[i] && !ret; i++) {
		ret = rounded(w->w[i], s, K, N, row, q);
		if (!ret)
			product(w->be, SITS_I8C, q, act, w->nr, K, N, i ? u : y);
	}
	for (i = 0; i < w->nr && !ret; i++) {
		for (n = 0, sum = 0; n < N; n++) {
			e = (double)y[i * N + n];
			if (w->w[1])
				e = silu(e) * (double)u[i * N + n];
			e -= (double)w->ref[i * N + n];
			sum += e * e;
		}
		w->err2[c] += (double)w->weight[i] * sum;
	}
	w->fail[c] = ret;
	free(x);
	free(y);
	free(u);
	free(row);
	free(q);
	free(act);
}

static void body(void *arg, uint32_t self)
{
	struct awq_work *w = arg;

	sits_threads_stage(w->team, self, CANDIDATES, task_candidate, NULL, w);
}

/* Adds to w->err2. Return: 0 or -errno. */
static int try_candidates(struct awq_work *w)
{
	size_t c;

	sits_threads_run(w->team, body, w);
	for (c = 0; c < CANDIDATES; c++)
		if (w->fail[c])
			return w->fail[c];
	return 0;
}

/* ---- candidates ---- */

/* Largest and mean magnitude of each column of [T][K]. */
static void column_stats(const float *x, size_t T, size_t K, float *top, float *mean)
{
	size_t i, k;

	memset(mean, 0, K * sizeof(*mean));
	for (i = 0; i < T; i++) {
		for (k = 0; k < K; k++) {
			mean[k] += fabsf(x[i * K + k]) / (float)T;
			top[k] = fmaxf(top[k], fabsf(x[i * K + k]));
		}
	}
}

/* Around 1 in the geometric mean, and bounded. */
static void normalise(float *s, size_t K)
{
	double mean = 0;
	size_t k;

	for (k = 0; k < K; k++)
		mean += log((double)s[k]);
	mean = exp(mean / (double)K);
	for (k = 0; k < K; k++)
		s[k] = fminf(fmaxf((float)((double)s[k] / mean), 1 / FACTOR_MAX), FACTOR_MAX);
}

/* @top, @mean: of the inputs; @wtop: of the weights' columns. @cand: out, [C][K] */
static void make_candidates(float *top, float *mean, float *wtop, size_t K, float *cand)
{
	const float tiny = 1e-6f;
	float a, *s;
	size_t c, k;

	for (c = 0; c < CANDIDATES; c++) {
		s = cand + c * K;
		for (k = 0; k < K; k++) {
			if (!c)
				s[k] = 1;
			else if (c <= STEPS)
				s[k] = powf(mean[k] + tiny, (float)c / STEPS);
			else {
				a = (float)(c - STEPS - 1) / STEPS;
				s[k] = powf(top[k] + tiny, a) / powf(wtop[k] + tiny, 1 - a);
			}
		}
		if (c)
			normalise(s, K);
	}
}

static size_t least(const double *err2)
{
	size_t c, best = 0;

	for (c = 1; c < CANDIDATES; c++)
		if (err2[c] < err2[best])
			best = c;
	return best;
}

/* ---- a layer ---- */

/* Rows that an expert gets, with what they count. */
struct share {
	float *x, *weight;	/* [nr][E], [nr] */
	float *h;		/* [nr][F]: what its down matrix reads */
	size_t nr;
};

struct layer_work {
	const struct sits_layer *l;
	const struct sample *sample;
	struct awq_layer *out;
	struct share *share;	/* [X] */
	float *w[2];		/* f32 matrices of the expert under way, [max(F, E)][...] */
	float *top, *mean, *wtop, *cand;	/* [K], [K], [K], [C][K]; K is E or F */
};

static void load_matrix(const struct awq_work *w, const struct sits_weight *m, uint32_t x, float *out)
{
	const void *at = sits_weight_at(m, x);
	uint64_t n;

	for (n = 0; n < m->N; n++)
		w->be->dequant(m->type, sits_dtype_row(m->type, at, m->row_bytes, n), out + n * m->K, m->K);
}

static const struct sits_weight *gate_of(const struct layer_work *lw)
{
	return lw->out->moe ? &lw->l->e_gate : &lw->l->w_gate;
}

static const struct sits_weight *up_of(const struct layer_work *lw)
{
	return lw->out->moe ? &lw->l->e_up : &lw->l->w_up;
}

static const struct sits_weight *down_of(const struct layer_work *lw)
{
	return lw->out->moe ? &lw->l->e_down : &lw->l->w_down;
}

/* The router's logits of all sampled rows, [R][X], the caller frees it; NULL. */
static float *router_logits(const struct awq_work *w, const struct layer_work *lw)
{
	const struct sits_weight *r = &lw->l->router;
	float *f32 = floats(r->N * r->K), *y = floats((size_t)lw->sample->nr * r->N);
	void *act = prepared(w->be, SITS_F32, lw->sample->x, lw->sample->nr, r->K);

	if (f32 && y && act) {
		load_matrix(w, r, 0, f32);
		product(w->be, SITS_F32, f32, act, lw->sample->nr, r->K, r->N, y);
	} else {
		free(y);
		y = NULL;
	}
	free(f32);
	free(act);
	return y;
}

static int give_row(const struct layer_work *lw, struct share *s, size_t row, float weight)
{
	size_t E = lw->out->E;

	if (!s->x) {
		s->x = floats(lw->sample->nr * E);
		s->weight = floats(lw->sample->nr);
	}
	if (!s->x || !s->weight)
		return -ENOMEM;
	memcpy(s->x + s->nr * E, lw->sample->x + row * E, E * sizeof(float));
	s->weight[s->nr++] = weight * weight;
	return 0;
}

static int share_rows(struct awq_work *w, struct layer_work *lw, struct sits_diag *diag)
{
	const struct sits_route_rule *rule = &w->m->hp.route;
	uint32_t expert[SITS_ROUTE_MAX_USED], i;
	float weight[SITS_ROUTE_MAX_USED], *logits = NULL, *bias = NULL;
	size_t row;
	int ret = 0;

	if (lw->out->moe)
		logits = router_logits(w, lw);
	if (lw->out->moe && lw->l->router_bias.data)
		bias = floats(rule->experts);
	if (lw->out->moe && (!logits || (lw->l->router_bias.data && !bias)))
		ret = -ENOMEM;
	if (!ret && bias)
		load_matrix(w, &lw->l->router_bias, 0, bias);
	for (row = 0; row < lw->sample->nr && !ret; row++) {
		if (!lw->out->moe) {
			ret = give_row(lw, lw->share, row, 1);
			continue;
		}
		sits_route(rule, logits + row * rule->experts, bias, expert, weight);
		if (isnan(weight[0]))
			ret = sits_diag_fail(diag, -EDOM, "layer %u: what the router reads is not finite", lw->out->layer);
		for (i = 0; i < rule->used && !ret; i++)
			ret = give_row(lw, &lw->share[expert[i]], row, weight[i]);
	}
	free(logits);
	free(bias);
	return ret;
}

static void begin_search(struct awq_work *w, const struct layer_work *lw, size_t K, size_t N)
{
	w->K = K;
	w->N = N;
	w->cand = lw->cand;
	memset(w->err2, 0, sizeof(w->err2));
}

/* One expert's rows for all candidates. @ref2: in and out, the square of what comes out without rounding. */
static int search_expert(struct awq_work *w, const struct share *s, const float *x, const float *ref, double *ref2)
{
	size_t i, n;

	w->x = x;
	w->nr = s->nr;
	w->weight = s->weight;
	w->ref = ref;
	for (i = 0; i < s->nr; i++)
		for (n = 0; n < w->N; n++)
			*ref2 += (double)s->weight[i] * (double)ref[i * w->N + n] * (double)ref[i * w->N + n];
	return try_candidates(w);
}

/* Finds s; leaves in each share what its down matrix reads. */
static int search_gate_up(struct awq_work *w, struct layer_work *lw)
{
	struct awq_layer *out = lw->out;
	double ref2 = 0;
	uint32_t x;
	size_t best;
	int ret = 0;

	memset(lw->top, 0, out->E * sizeof(float));
	memset(lw->wtop, 0, out->E * sizeof(float));
	for (x = 0; x < out->experts; x++) {
		load_matrix(w, gate_of(lw), x, lw->w[0]);
		load_matrix(w, up_of(lw), x, lw->w[1]);
		column_stats(lw->w[0], out->F, out->E, lw->wtop, lw->mean);
		column_stats(lw->w[1], out->F, out->E, lw->wtop, lw->mean);
	}
	column_stats(lw->sample->x, lw->sample->nr, out->E, lw->top, lw->mean);
	make_candidates(lw->top, lw->mean, lw->wtop, out->E, lw->cand);
	begin_search(w, lw, out->E, out->F);
	for (x = 0; x < out->experts && !ret; x++) {
		struct share *s = &lw->share[x];

		if (!s->nr)
			continue;
		load_matrix(w, gate_of(lw), x, lw->w[0]);
		load_matrix(w, up_of(lw), x, lw->w[1]);
		w->w[0] = lw->w[0];
		w->w[1] = lw->w[1];
		s->h = exact(w->be, s->x, w->w, s->nr, out->E, out->F);
		ret = s->h ? search_expert(w, s, s->x, s->h, &ref2) : -ENOMEM;
	}
	best = least(w->err2);
	memcpy(out->s, lw->cand + best * out->E, out->E * sizeof(float));
	out->gate_up = ref2 > 0 ? sqrt(w->err2[best] / ref2) : 0;
	out->gate_up_plain = ref2 > 0 ? sqrt(w->err2[0] / ref2) : 0;
	return ret;
}

/* Finds t of each expert. */
static int search_down(struct awq_work *w, struct layer_work *lw)
{
	struct awq_layer *out = lw->out;
	double ref2 = 0, err2 = 0, plain2 = 0;
	float *ref, *t;
	uint32_t x;
	size_t best, k;
	int ret = 0;

	for (x = 0; x < out->experts && !ret; x++) {
		struct share *s = &lw->share[x];

		t = out->t + x * out->F;
		for (k = 0; k < out->F; k++)
			t[k] = 1;
		out->idle += !s->nr;
		if (!s->nr)
			continue;
		load_matrix(w, down_of(lw), x, lw->w[0]);
		memset(lw->top, 0, out->F * sizeof(float));
		memset(lw->wtop, 0, out->F * sizeof(float));
		column_stats(lw->w[0], out->E, out->F, lw->wtop, lw->mean);
		column_stats(s->h, s->nr, out->F, lw->top, lw->mean);
		make_candidates(lw->top, lw->mean, lw->wtop, out->F, lw->cand);
		begin_search(w, lw, out->F, out->E);
		w->w[0] = lw->w[0];
		w->w[1] = NULL;
		ref = exact(w->be, s->h, w->w, s->nr, out->F, out->E);
		ret = ref ? search_expert(w, s, s->h, ref, &ref2) : -ENOMEM;
		free(ref);
		best = least(w->err2);
		memcpy(t, lw->cand + best * out->F, out->F * sizeof(float));
		err2 += w->err2[best];
		plain2 += w->err2[0];
	}
	out->down = ref2 > 0 ? sqrt(err2 / ref2) : 0;
	out->down_plain = ref2 > 0 ? sqrt(plain2 / ref2) : 0;
	return ret;
}

static int alloc_layer(struct layer_work *lw)
{
	struct awq_layer *o = lw->out;
	size_t K = o->E > o->F ? o->E : o->F, all;

	if (__builtin_mul_overflow((size_t)o->experts, o->F, &all))
		return -ENOMEM;
	o->s = floats(o->E);
	o->inv_s = floats(o->E);
	o->t = floats(all);
	o->inv_t = floats(all);
	lw->share = calloc(o->experts, sizeof(*lw->share));
	lw->w[0] = floats(o->E * o->F);
	lw->w[1] = floats(o->E * o->F);
	lw->top = floats(K);
	lw->mean = floats(K);
	lw->wtop = floats(K);
	lw->cand = floats(CANDIDATES * K);
	return o->s && o->inv_s && o->t && o->inv_t && lw->share && lw->w[0] && lw->w[1] && lw->top && lw->mean && lw->wtop &&
	       lw->cand ? 0 : -ENOMEM;
}

static void free_layer_work(struct layer_work *lw)
{
	uint32_t x;

	for (x = 0; lw->share && x < lw->out->experts; x++) {
		free(lw->share[x].x);
		free(lw->share[x].weight);
		free(lw->share[x].h);
	}
	free(lw->share);
	free(lw->w[0]);
	free(lw->w[1]);
	free(lw->top);
	free(lw->mean);
	free(lw->wtop);
	free(lw->cand);
}

static void invert(const float *s, size_t n, float *out)
{
	size_t i;

	for (i = 0; i < n; i++)
		out[i] = 1 / s[i];
}

static int run_layer(struct awq_work *w, uint32_t l, struct awq_layer *out, struct sits_diag *diag)
{
	const struct sits_layer *layer = &w->m->layer[l];
	struct layer_work lw = { .l = layer, .sample = &w->sample[l], .out = out };
	int ret;

	out->layer = l;
	out->moe = layer->kind == SITS_LAYER_MOE;
	out->experts = out->moe ? w->m->hp.route.experts : 1;
	out->E = w->m->hp.embd;
	out->F = gate_of(&lw)->N;
	if (layer->b_gate.data || layer->b_up.data || layer->b_down.data)
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "layer %u: a feed-forward part with biases can't get factors", l);
	if (!sits_dtype_row_bytes(SITS_I8C, out->E) || !sits_dtype_row_bytes(SITS_I8C, out->F))
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "layer %u: rows of %llu and %llu weights; I8C takes multiples of 32 up to %d", l,
				      (unsigned long long)out->E, (unsigned long long)out->F, SITS_I8C_MAX_K);
	ret = alloc_layer(&lw);
	if (!ret)
		ret = share_rows(w, &lw, diag);
	if (!ret)
		ret = search_gate_up(w, &lw);
	if (!ret)
		ret = search_down(w, &lw);
	if (!ret) {
		invert(out->s, out->E, out->inv_s);
		invert(out->t, out->experts * out->F, out->inv_t);
	}
	free_layer_work(&lw);
	return ret == -EDOM ? sits_diag_fail(diag, ret, "layer %u: a weight of its feed-forward part is not finite", l) : ret;
}

static int run_layers(struct awq_work *w, struct awq *out, struct sits_diag *diag)
{
	uint32_t l, n = 0;
	int ret = 0;

	for (l = 0; l < w->m->hp.layers && !ret; l++) {
		if (w->o->progress && w->o->progress(w->o->arg, w->m->hp.layers + l, w->total))
			return -ECANCELED;
		if (!takes_part(w, l))
			continue;
		out->nr = n + 1;
		ret = run_layer(w, l, &out->layer[n++], diag);
		free(w->sample[l].x);
		w->sample[l].x = NULL;
	}
	return ret;
}

int awq_run(const struct sits_model *m, const char *text, size_t len, const struct awq_opts *o, struct awq *out,
	    struct sits_diag *diag)
{
	struct awq_work w = { .m = m, .o = o, .be = sits_backend_get(NULL), .total = 2 * (uint64_t)m->hp.layers };
	uint32_t l;
	bool any = false;
	int ret = 0;

	*out = (struct awq){ 0 };
	for (l = 0; l < m->hp.layers; l++)
		any |= takes_part(&w, l);
	if (!any)
		return sits_diag_fail(diag, -EINVAL, "the model has no experts, and awq-int8 is for those; --dense takes other layers as well");
	if (!w.be)
		return sits_diag_fail(diag, -EINVAL, "no compute backend that $SITS_FORCE_ISA names");
	w.sample = calloc(m->hp.layers, sizeof(*w.sample));
	out->layer = calloc(m->hp.layers, sizeof(*out->layer));
	if (!w.sample || !out->layer)
		ret = -ENOMEM;
	if (!ret)
		ret = sample_all(&w, text, len, diag);
	if (!ret)
		ret = sits_threads_create(o->threads, 0, &w.team, diag);
	if (!ret)
		ret = run_layers(&w, out, diag);
	if (w.team)
		sits_threads_destroy(w.team);
	for (l = 0; w.sample && l < m->hp.layers; l++)
		free(w.sample[l].x);
	free(w.sample);
	if (ret)
		awq_destroy(out);
	return ret == -ENOMEM ? sits_diag_fail(diag, ret, "no memory to look for factors") : ret;
}

void awq_destroy(struct awq *a)
{
	uint32_t i;

	for (i = 0; a->layer && i < a->nr; i++) {
		free(a->layer[i].s);
		free(a->layer[i].inv_s);
		free(a->layer[i].t);
		free(a->layer[i].inv_t);
	}
	free(a->layer);
	*a = (struct awq){ 0 };
}
