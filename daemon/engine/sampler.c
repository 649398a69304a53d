// SPDX-License-Identifier: MIT
/*
 * sampler.c - see sampler.h.
 *
 * Never a sort of the whole vocabulary: top-k keeps a heap of k; a nucleus first drops what is too
 * unlikely to belong to it, then takes the likeliest of the rest off a heap until the sum is
 * reached. Equal values are ordered by id, so a draw depends on logits, history and seed alone.
 */
#include "daemon/engine/sampler.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct cand {
	float w;		/* logit, later exp((logit - max) / temperature) */
	int32_t id;
};

/* Owned by one request. The arrays come with the first draw that needs them; they hold [vocab]. */
struct sits_sampler {
	struct sits_sampling opt;
	uint32_t vocab;
	uint64_t rng[4];
	float *logits;		/* penalised copy */
	uint32_t *count;	/* all zero between draws */
	struct cand *cand;
};

/* splitmix64 and xoshiro256**. Source: Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021. */
static uint64_t splitmix64(uint64_t *x)
{
	uint64_t z = *x += 0x9E3779B97F4A7C15u;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

static uint64_t next64(uint64_t s[4])
{
	uint64_t r = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return r;
}

/* Uniform in [0, 1), 53 bits. */
static double uniform(struct sits_sampler *s)
{
	return (next64(s->rng) >> 11) * 0x1p-53;
}

static bool has_penalty(const struct sits_sampling *o)
{
	return o->repeat_penalty != 1.0f || o->frequency_penalty != 0.0f || o->presence_penalty != 0.0f;
}

int sits_sampler_create(const struct sits_sampling *o, uint32_t vocab, struct sits_sampler **out)
{
	struct sits_sampler *s;
	uint64_t x = o->seed;
	size_t i;

	if (!vocab || vocab > INT32_MAX || !isfinite(o->temperature) || o->temperature < 0 ||
	    !(o->top_p > 0 && o->top_p <= 1) || !(o->min_p >= 0 && o->min_p <= 1) ||
	    !isfinite(o->repeat_penalty) || o->repeat_penalty <= 0 || !isfinite(o->frequency_penalty) ||
	    !isfinite(o->presence_penalty))
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->opt = *o;
	s->vocab = vocab;
	for (i = 0; i < 4; i++)
		s->rng[i] = splitmix64(&x);
	*out = s;
	return 0;
}

void sits_sampler_destroy(struct sits_sampler *s)
{
	if (!s)
		return;
	free(s->logits);
	free(s->count);
	free(s->cand);
	free(s);
}

int sits_sampler_copy(const struct sits_sampler *from, uint32_t vocab, struct sits_sampler **to)
{
	struct sits_sampler *s = *to;

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->opt = from->opt;
		s->vocab = vocab;
		*to = s;
	}
	memcpy(s->rng, from->rng, sizeof(s->rng));
	return 0;
}

#define LANES 16
#define BLOCK 1024		/* a multiple of LANES */

typedef float vf __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));

/* The largest of n values; *bad is set where one is not below +Inf, as NaN is not either. */
static float block_max(const float *x, size_t n, bool *bad)
{
	const vf inf = (vf){ 0 } + INFINITY;
	float m = -INFINITY;
	size_t i = 0, j;

	if (n >= LANES) {
		vf best = *(const vf *)x, v;
		vi ok = best < inf, gt;

		for (i = LANES; i + LANES <= n; i += LANES) {
			v = *(const vf *)(x + i);
			gt = v > best;
			best = (vf)(((vi)v & gt) | ((vi)best & ~gt));
			ok &= v < inf;
		}
		for (j = 0; j < LANES; j++) {
			*bad |= !ok[j];
			m = best[j] > m ? best[j] : m;
		}
	}
	for (; i < n; i++) {
		*bad |= !(x[i] < INFINITY);
		m = x[i] > m ? x[i] : m;
	}
	return m;
}

/* The largest value and its lowest index. Return: 0; -EDOM where one is NaN or +Inf, or all are -Inf. */
static int scan(const float *x, size_t n, float *max, size_t *at)
{
	size_t i, first = 0;
	bool bad = false;
	float m;

	*max = -INFINITY;
	for (i = 0; i < n; i += BLOCK) {
		m = block_max(x + i, n - i < BLOCK ? n - i : BLOCK, &bad);
		if (m > *max) {
			*max = m;
			first = i;
		}
	}
	if (bad || *max == -INFINITY)
		return -EDOM;
	while (x[first] != *max)
		first++;
	*at = first;
	return 0;
}

static int alloc_once(void *array, size_t nr, size_t size)
{
	void **p = array;

	if (!*p)
		*p = calloc(nr, size);
	return *p ? 0 : -ENOMEM;
}

/* A penalised logit stays finite: no request, however odd, may look like a model that is broken. */
static float bounded(float v, float logit)
{
	return isfinite(logit) ? fmaxf(-FLT_MAX, fminf(v, FLT_MAX)) : v;
}

/* Into s->logits. Each token seen is treated once; the counts are then cleared the same way. */
static int penalise(struct sits_sampler *s, const float *logits, const int32_t *hist, size_t nr)
{
	const struct sits_sampling *o = &s->opt;
	size_t i, from = 0;
	uint32_t c;
	float *l;

	if (alloc_once(&s->logits, s->vocab, sizeof(float)) || alloc_once(&s->count, s->vocab, sizeof(uint32_t)))
		return -ENOMEM;
	memcpy(s->logits, logits, s->vocab * sizeof(float));
	if (o->repeat_last_n && nr > o->repeat_last_n)
		from = nr - o->repeat_last_n;
	for (i = from; i < nr; i++)
		if (hist[i] >= 0 && (uint32_t)hist[i] < s->vocab)
			s->count[hist[i]]++;
	for (i = from; i < nr; i++) {
		if (hist[i] < 0 || (uint32_t)hist[i] >= s->vocab || !s->count[hist[i]])
			continue;
		c = s->count[hist[i]];
		s->count[hist[i]] = 0;
		l = &s->logits[hist[i]];
		*l = bounded(*l > 0 ? *l / o->repeat_penalty : *l * o->repeat_penalty, *l);
		*l -= c * o->frequency_penalty + o->presence_penalty;
	}
	return 0;
}

/* Whether a comes after b in the order of likelihood. */
static inline bool after(struct cand a, struct cand b)
{
	return a.w < b.w || (a.w == b.w && a.id > b.id);
}

/* Restore a heap below @i. Its root is the last in order where @least, else the first. */
static void sift(struct cand *h, size_t n, size_t i, bool least)
{
	struct cand x = h[i];
	size_t c;

	while ((c = 2 * i + 1) < n) {
		if (c + 1 < n && after(h[c + 1], h[c]) == least)
			c++;
		if (after(h[c], x) != least)
			break;
		h[i] = h[c];
		i = c;
	}
	h[i] = x;
}

static void heapify(struct cand *h, size_t n, bool least)
{
	size_t i;

	for (i = n / 2; i-- > 0;)
		sift(h, n, i, least);
}

/* The k likeliest of n, in order, into s->cand. */
static void keep_top_k(struct sits_sampler *s, const float *l, size_t k)
{
	struct cand *h = s->cand, c;
	size_t i;

	for (i = 0; i < k; i++)
		h[i] = (struct cand){ l[i], i };
	heapify(h, k, true);
	for (; i < s->vocab; i++) {
		/* Ids rise, so an equal value comes after the root. */
		if (l[i] <= h[0].w)
			continue;
		h[0] = (struct cand){ l[i], i };
		sift(h, k, 0, true);
	}
	for (i = k; i-- > 1;) {
		c = h[0];
		h[0] = h[i];
		sift(h, i, 0, true);
		h[i] = c;
	}
}

/* The nucleus of n candidates whose weights sum to @sum, to the front of s->cand, in order. Returns its size. */
static size_t keep_nucleus(struct sits_sampler *s, size_t n, double sum)
{
	double want = s->opt.top_p * sum, cum = 0;
	/* All that lie below this weigh less than the mass outside of the nucleus together. */
	float floor_w = (1.0 - s->opt.top_p) * sum / n * 0.999;
	size_t i, m = 0, out = 0;
	struct cand *h = s->cand, c;

	for (i = 0; i < n; i++)
		if (h[i].w >= floor_w)
			h[m++] = h[i];
	heapify(h, m, false);
	/* Popped ones gather behind the shrinking heap, the first at the very end. */
	while (out < m) {
		c = h[0];
		h[0] = h[m - 1 - out];
		sift(h, m - 1 - out, 0, false);
		h[m - 1 - out] = c;
		out++;
		cum += c.w;
		if (cum >= want)
			break;
	}
	for (i = 0; i < out / 2; i++) {
		c = h[m - 1 - i];
		h[m - 1 - i] = h[m - out + i];
		h[m - out + i] = c;
	}
	memmove(h, h + m - out, out * sizeof(*h));
	return out;
}

/* Same, where the candidates are in order already. */
static size_t cut_nucleus(const struct sits_sampler *s, size_t n, double sum)
{
	double want = s->opt.top_p * sum, cum = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		cum += s->cand[i].w;
		if (cum >= want)
			return i + 1;
	}
	return n;
}

static size_t keep_min_p(struct sits_sampler *s, size_t n)
{
	size_t i, m = 0;

	/* The likeliest weighs exp(0) = 1. */
	for (i = 0; i < n; i++)
		if (s->cand[i].w >= s->opt.min_p)
			s->cand[m++] = s->cand[i];
	return m;
}

static int32_t pick(struct sits_sampler *s, size_t n)
{
	double sum = 0, cum = 0, r;
	int32_t last = s->cand[0].id;
	size_t i;

	for (i = 0; i < n; i++)
		sum += s->cand[i].w;
	r = uniform(s) * sum;
	for (i = 0; i < n; i++) {
		cum += s->cand[i].w;
		if (r < cum)
			return s->cand[i].id;
		/* Rounding may leave r at the very end: the last one that can be drawn takes it. */
		if (s->cand[i].w > 0)
			last = s->cand[i].id;
	}
	return last;
}

int32_t sits_sampler_draw(struct sits_sampler *s, const float *logits, const int32_t *history, size_t nr_history)
{
	const struct sits_sampling *o = &s->opt;
	bool sorted = false;
	double sum = 0;
	size_t at, i, n;
	float max;

	/* Before penalties, too: these touch a few logits only, and could hide a fault by chance. */
	if (scan(logits, s->vocab, &max, &at))
		return -EDOM;
	if (has_penalty(o)) {
		if (penalise(s, logits, history, nr_history))
			return -ENOMEM;
		logits = s->logits;
		if (scan(logits, s->vocab, &max, &at))
			return -EDOM;
	}
	if (o->temperature == 0 || o->top_k == 1)
		return at;
	if (alloc_once(&s->cand, s->vocab, sizeof(struct cand)))
		return -ENOMEM;
	n = s->vocab;
	if (o->top_k && o->top_k < n) {
		n = o->top_k;
		keep_top_k(s, logits, n);
		sorted = true;
	} else {
		for (i = 0; i < n; i++)
			s->cand[i] = (struct cand){ logits[i], i };
	}
	for (i = 0; i < n; i++) {
		s->cand[i].w = expf((s->cand[i].w - max) / o->temperature);
		sum += s->cand[i].w;
	}
	if (o->top_p < 1)
		n = sorted ? cut_nucleus(s, n, sum) : keep_nucleus(s, n, sum);
	if (o->min_p > 0)
		n = keep_min_p(s, n);
	return pick(s, n);
}
