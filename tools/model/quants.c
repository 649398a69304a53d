// SPDX-License-Identifier: MIT
/*
 * quants.c - see quants.h. Block layouts are drawn in kernels/quant.h.
 *
 * Sources: the rounding rules of Q8_0, Q4_0 and Q5_0 are those of quantize_row_*_ref() in ggml-quants.c (a fact of the
 * files in use). Scale and minimum by least squares with the rounded values held fixed, in turn with rounding under the
 * scale and minimum found, is Lloyd's method (1982) on a uniform grid.
 */
#include "tools/model/quants.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

static void put16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
}

static uint16_t to_bf16(float f)
{
	uint32_t u = sits_f32_bits(f);

	return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);	/* nearest, ties to even; finite input */
}

/* Store an f16 scale. Return: 0, or -ERANGE. */
static int put_scale(uint8_t *p, float d)
{
	uint16_t h = sits_f32_to_f16(d);

	put16(p, h);
	return (h & 0x7c00) == 0x7c00 ? -ERANGE : 0;
}

/* The element of largest magnitude, the first of equals, with its sign. */
static float extreme(const float *x, size_t n)
{
	float top = 0;
	size_t i;

	for (i = 0; i < n; i++)
		top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
	return top;
}

/* Where d is so small that its inverse is infinite, everything rounds to nothing, as if it were zero. */
static float inverse(float d)
{
	float id = 1.0f / d;

	return isfinite(id) ? id : 0;
}

static int block_q8_0(const float *x, uint8_t *dst)
{
	float d = fabsf(extreme(x, 32)) / 127, id = inverse(d);
	int i;

	for (i = 0; i < 32; i++)
		dst[2 + i] = (uint8_t)(int8_t)roundf(x[i] * id);
	return put_scale(dst, d);
}

/* Steps of 2^bits around half of it; the element of largest magnitude gets the lowest step. */
static void round_offset(const float *x, float d, int half, uint8_t q[32])
{
	float id = inverse(d);
	int i, v;

	for (i = 0; i < 32; i++) {
		v = (int8_t)(x[i] * id + ((float)half + 0.5f));
		q[i] = (uint8_t)(v < 2 * half - 1 ? v : 2 * half - 1);
	}
}

static void put_nibbles(const uint8_t q[32], uint8_t *qs)
{
	int i;

	for (i = 0; i < 16; i++)
		qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static int block_q4_0(const float *x, uint8_t *dst)
{
	float d = extreme(x, 32) / -8;
	uint8_t q[32];

	round_offset(x, d, 8, q);
	put_nibbles(q, dst + 2);
	return put_scale(dst, d);
}

static int block_q5_0(const float *x, uint8_t *dst)
{
	float d = extreme(x, 32) / -16;
	uint32_t qh = 0;
	uint8_t q[32];
	int i;

	round_offset(x, d, 16, q);
	for (i = 0; i < 32; i++)
		qh |= (uint32_t)(q[i] >> 4) << i;
	memcpy(dst + 2, &qh, sizeof(qh));
	put_nibbles(q, dst + 6);
	return put_scale(dst, d);
}

/* ---- Q4_K: x ~ s * q - m, q = 0 .. 15, s and m >= 0, for each 32 elements ---- */

#define K_GROUPS	8
#define K_LEVELS	15
#define K_CODES		63	/* s and m have 6 bits */

static int level(float v)
{
	long r = lrintf(v);

	return r < 0 ? 0 : r > K_LEVELS ? K_LEVELS : (int)r;
}

/* Weighted squared error of the group under (s, m) with the best q. */
static float group_error(const float *x, const float *w, float s, float m)
{
	float is = inverse(s), err = 0, e;
	int i;

	for (i = 0; i < SITS_QG; i++) {
		e = s * (float)level((x[i] + m) * is) - m - x[i];
		err += w[i] * e * e;
	}
	return err;
}

/* For q fixed by (s, m): the s and m of least weighted error, m >= 0. Return: false where they are not determined. */
static bool least_squares(const float *x, const float *w, float *s, float *m)
{
	float is = inverse(*s), sw = 0, sx = 0, sq = 0, sqq = 0, sqx = 0, det, q;
	int i;

	for (i = 0; i < SITS_QG; i++) {
		q = (float)level((x[i] + *m) * is);
		sw += w[i];
		sx += w[i] * x[i];
		sq += w[i] * q;
		sqq += w[i] * q * q;
		sqx += w[i] * q * x[i];
	}
	det = sw * sqq - sq * sq;
	if (!(det > 0))
		return false;
	*s = (sw * sqx - sq * sx) / det;
	*m = (sq * sqx - sqq * sx) / det;
	if (*m < 0) {	/* a minimum above zero can't be stored */
		*m = 0;
		*s = sqx / sqq;
	}
	return *s > 0;
}

/* Grids a little finer and a little coarser than the group's range, each improved twice. */
static void fit_group(const float *x, const float *w, float *scale, float *min)
{
	float lo = 0, hi = x[0], best, err, s, m;
	int i, turn, step;

	for (i = 0; i < SITS_QG; i++) {
		lo = x[i] < lo ? x[i] : lo;
		hi = x[i] > hi ? x[i] : hi;
	}
	*scale = 0;
	*min = -lo;
	if (hi <= lo)		/* one value, not above zero: the minimum is all */
		return;
	*scale = (hi - lo) / K_LEVELS;
	best = group_error(x, w, *scale, *min);
	for (step = -10; step <= 10; step += 2) {
		s = (hi - lo) / (K_LEVELS + 0.1f * (float)step);
		m = -lo;
		for (turn = 0; turn < 2 && least_squares(x, w, &s, &m); turn++) {
			err = group_error(x, w, s, m);
			if (err < best) {
				best = err;
				*scale = s;
				*min = m;
			}
		}
	}
}

/* Small errors of large weights matter more than the same of small ones: as large as they are, and never nothing. */
static void weigh(const float *x, float *w)
{
	float sum = 0;
	int i;

	for (i = 0; i < SITS_QG; i++)
		sum += x[i] * x[i];
	sum = sqrtf(sum / SITS_QG);
	for (i = 0; i < SITS_QG; i++)
		w[i] = sum + fabsf(x[i]);
}

static int code(float v)
{
	long r = lrintf(v);

	return r < 0 ? 0 : r > K_CODES ? K_CODES : (int)r;
}

/* The 6-bit codes of (s, m) under the block's d and dmin, and of their neighbours the pair of least error. */
static void choose_codes(const float *x, const float *w, float d, float dmin, float s, float m, int *ls, int *lm)
{
	int s0 = code(s * inverse(d)), m0 = code(m * inverse(dmin)), i, j;
	float best = INFINITY, err;

	for (i = s0 - 1; i <= s0 + 1; i++) {
		for (j = m0 - 1; j <= m0 + 1; j++) {
			if (i < 0 || i > K_CODES || j < 0 || j > K_CODES)
				continue;
			err = group_error(x, w, d * (float)i, dmin * (float)j);
			if (err < best) {
				best = err;
				*ls = i;
				*lm = j;
			}
		}
	}
}

static void put_code(uint8_t sc[12], int g, int ls, int lm)
{
	if (g < 4) {
		sc[g] |= (uint8_t)ls;
		sc[g + 4] |= (uint8_t)lm;
	} else {
		sc[g + 4] = (uint8_t)((ls & 15) | (lm & 15) << 4);
		sc[g - 4] |= (uint8_t)(ls >> 4 << 6);
		sc[g] |= (uint8_t)(lm >> 4 << 6);
	}
}

static int block_q4_k(const float *x, uint8_t *dst)
{
	float s[K_GROUPS], m[K_GROUPS], w[K_GROUPS][SITS_QG], top_s = 0, top_m = 0, d, dmin, is;
	int g, i, ls = 0, lm = 0, q, ret;

	memset(dst, 0, 144);
	for (g = 0; g < K_GROUPS; g++) {
		weigh(x + SITS_QG * g, w[g]);
		fit_group(x + SITS_QG * g, w[g], &s[g], &m[g]);
		top_s = s[g] > top_s ? s[g] : top_s;
		top_m = m[g] > top_m ? m[g] : top_m;
	}
	ret = put_scale(dst, top_s / K_CODES);
	if (!ret)
		ret = put_scale(dst + 2, top_m / K_CODES);
	if (ret)
		return ret;
	d = sits_ld_f16(dst);
	dmin = sits_ld_f16(dst + 2);
	for (g = 0; g < K_GROUPS; g++) {
		choose_codes(x + SITS_QG * g, w[g], d, dmin, s[g], m[g], &ls, &lm);
		put_code(dst + 4, g, ls, lm);
		is = inverse(d * (float)ls);
		for (i = 0; i < SITS_QG; i++) {
			q = level((x[SITS_QG * g + i] + dmin * (float)lm) * is);
			dst[16 + 32 * (g / 2) + i] |= (uint8_t)(q << 4 * (g & 1));
		}
	}
	return 0;
}

/* ---- rows ---- */

/* | f32 scale | s8 q[n] | */
static int row_i8c(const float *x, size_t n, uint8_t *dst)
{
	float d = fabsf(extreme(x, n)) / 127, id = inverse(d);
	size_t i;

	memcpy(dst, &d, sizeof(d));
	for (i = 0; i < n; i++)
		dst[sizeof(d) + i] = (uint8_t)(int8_t)lrintf(x[i] * id);
	return 0;
}

static int (*block_encoder(uint32_t type))(const float *x, uint8_t *dst)
{
	switch (type) {
	case SITS_Q8_0:
		return block_q8_0;
	case SITS_Q4_0:
		return block_q4_0;
	case SITS_Q5_0:
		return block_q5_0;
	case SITS_Q4_K:
		return block_q4_k;
	default:
		return NULL;
	}
}

bool quants_can(uint32_t type)
{
	return type == SITS_F32 || type == SITS_F16 || type == SITS_BF16 || type == SITS_I8C || block_encoder(type);
}

static bool all_finite(const float *x, size_t n)
{
	size_t i;
	bool ok = true;

	for (i = 0; i < n; i++)
		ok &= (sits_f32_bits(x[i]) & 0x7f800000) != 0x7f800000;
	return ok;
}

static int row_16bit(uint32_t type, const float *x, size_t n, uint8_t *dst)
{
	unsigned int inf = type == SITS_F16 ? 0x7c00 : 0x7f80;
	uint16_t h;
	size_t i;

	for (i = 0; i < n; i++) {
		h = type == SITS_F16 ? sits_f32_to_f16(x[i]) : to_bf16(x[i]);
		put16(dst + 2 * i, h);
		if ((h & inf) == inf)
			return -ERANGE;
	}
	return 0;
}

int quants_row(uint32_t type, const float *x, size_t n, void *dst)
{
	int (*block)(const float *x, uint8_t *dst) = block_encoder(type);
	const struct sits_dtype_info *info = sits_dtype_info(type);
	uint8_t *out = dst;
	size_t i;
	int ret = 0;

	if (!all_finite(x, n))
		return -EDOM;
	if (type == SITS_F32) {
		memcpy(dst, x, n * sizeof(*x));
		return 0;
	}
	if (type == SITS_I8C)
		return row_i8c(x, n, out);
	if (!block)
		return row_16bit(type, x, n, dst);
	for (i = 0; i < n / info->block_elems && !ret; i++)
		ret = block(x + i * info->block_elems, out + i * info->block_bytes);
	return ret;
}
