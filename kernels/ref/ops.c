// SPDX-License-Identifier: MIT
/*
 * ops.c - reference: norm, rotary positions, gated activation, addition.
 */
#include <math.h>

#include "kernels/ref/ref.h"

/* Source: Zhang and Sennrich 2019, eq. 4, with eps added to the mean square. */
void sits_ref_rmsnorm(float *y, const float *x, const float *w, size_t T, size_t C, float eps)
{
	for (size_t t = 0; t < T; t++, x += C, y += C) {
		double sum = 0;
		float scale;

		for (size_t c = 0; c < C; c++)
			sum += (double)x[c] * (double)x[c];
		scale = (float)(1.0 / sqrt(sum / (double)C + (double)eps));
		for (size_t c = 0; c < C; c++)
			y[c] = x[c] * scale * w[c];
	}
}

static void rotate(float *a, float *b, double angle)
{
	float c = (float)cos(angle), s = (float)sin(angle), x = *a, y = *b;

	*a = x * c - y * s;
	*b = x * s + y * c;
}

/* Source: Su et al. 2021, eq. 34. The angle is the exact product pos * inv_freq. */
void sits_ref_rope(float *x, size_t ld, const int32_t *pos, const float *inv_freq, size_t T, size_t H,
		   size_t D, size_t R, int neox)
{
	for (size_t t = 0; t < T; t++) {
		for (size_t i = 0; i < R / 2; i++) {
			double angle = (double)pos[t] * (double)inv_freq[i];
			size_t a = neox ? i : 2 * i, b = neox ? i + R / 2 : 2 * i + 1;

			for (size_t h = 0; h < H; h++) {
				float *v = x + t * ld + h * D;

				rotate(&v[a], &v[b], angle);
			}
		}
	}
}

void sits_ref_silu_mul(float *y, const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = a[i] / (1.0f + expf(-a[i])) * b[i];
}

void sits_ref_add(float *y, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] += x[i];
}

void sits_ref_add_scaled(float *y, const float *x, float a, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = fmaf(a, x[i], y[i]);
}
