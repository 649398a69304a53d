/* SPDX-License-Identifier: MIT */
/*
 * matmul_i8.h - template: 8-bit weights with one scale a row (SITS_I8C) times 8-bit activations with one scale a token.
 *
 * All of K is one integer sum, exact in any order; the scales enter once, at the end (quant.h). A lane is a row.
 * Tiling as in matmul_quant.h; where there are many tokens, what waits in y between chunks of K are the bits of
 * integer sums. The including file supplies the vector vocabulary and
 *
 *	I8_UNSIGNED			do sums start from off128, with weights that have 128 added?
 *	i8_dot(s, w, x)			s + the products of a vector of weights' dwords and a dword of activations
 *	I8_TILE, I8_CHUNK, struct i8w, struct i8x, i8w_set(w, v, z), i8x_set(x, i, q), i8_mac(s, w, x)
 *					the same of 32 elements, I8_TILE tokens and a strip, as in matmul_quant.h
 */
#ifndef SITS_KERNELS_X86_MATMUL_I8_H
#define SITS_KERNELS_X86_MATMUL_I8_H

#include "kernels/quant.h"
#include "kernels/ref/ref.h"
#include "kernels/x86/strip.h"

#define I8_PANEL 64		/* tokens, a multiple of I8_TILE */
#define LINE (4 * SITS_PACK_ROWS)

/* VL rows: plain, or packed and then at p. */
struct i8src {
	struct rows rows;
	const uint8_t *p;
};

INLINE struct i8src i8src_init(const struct sits_matmul *mm, bool packed, size_t n)
{
	struct i8src s = { .rows = rows_init((const uint8_t *)mm->w + n * mm->w_row_bytes, mm->w_row_bytes) };

	s.p = packed ? sits_dtype_row(mm->wtype, mm->w, mm->w_row_bytes, n) : NULL;
	return s;
}

INLINE vf i8_scale(const struct i8src *s, bool packed)
{
	vi h[4];

	if (packed)
		return v_load((const float *)s->p);
	vi_load_t16(s->rows, 0, h);
	return v_from_bits(h[0]);
}

/* Elements k .. k + 15 of the rows: four dwords. */
INLINE void i8_load4(const struct i8src *s, bool packed, size_t k, vi z[4])
{
	if (packed) {
		UNROLL for (size_t i = 0; i < 4; i++)
			z[i] = vi_load(s->p + LINE * (1 + k / 4 + i));
	} else {
		vi_load_t16(s->rows, sizeof(float) + k, z);
	}
	if (I8_UNSIGNED) {
		UNROLL for (size_t i = 0; i < 4; i++)
			z[i] = vi_xor(z[i], vi_set1_8(-128));
	}
}

INLINE vf i8_finish(vi sum, vf scale, const struct sits_q8_head *x)
{
	sum = vi_add(sum, vi_set1(I8_UNSIGNED ? x->off128 : 0));
	return v_mul(vi_to_f(sum), v_mul(scale, v_set1(x->d)));
}

/* nt tokens from t on and nv vectors of rows; nt, nv and packed are constant. */
TEMPLATE void i8_direct(const struct sits_matmul *mm, bool packed, const struct strip *s, size_t nv, size_t t, size_t nt)
{
	const struct sits_q8_head *x[4];
	struct i8src src[NV];
	vi acc[4][NV];

	UNROLL for (size_t v = 0; v < nv; v++)
		src[v] = i8src_init(mm, packed, s->n + v * VL);
	UNROLL for (size_t i = 0; i < nt; i++) {
		x[i] = token_x(mm, t + i);
		UNROLL for (size_t v = 0; v < nv; v++)
			acc[i][v] = vi_zero();
	}
	for (size_t k = 0; k < mm->K; k += 16) {
		UNROLL for (size_t v = 0; v < nv; v++) {
			vi z[4];

			i8_load4(&src[v], packed, k, z);
			UNROLL for (size_t j = 0; j < 4; j++) {
				UNROLL for (size_t i = 0; i < nt; i++)
					acc[i][v] = i8_dot(acc[i][v], z[j], (const uint8_t *)(x[i] + 1) + k + 4 * j);
			}
		}
	}
	UNROLL for (size_t i = 0; i < nt; i++) {
		UNROLL for (size_t v = 0; v < nv; v++) {
			if (t + i < mm->T)
				store_y(mm, s, v, t + i, i8_finish(acc[i][v], i8_scale(&src[v], packed), x[i]));
		}
	}
}

/* All tokens, nt at a time. */
TEMPLATE void i8_few(const struct sits_matmul *mm, bool packed, size_t nt)
{
	const size_t rows = packed ? STRIP : VL;
	struct strip s;

	for (size_t n = mm->n0; n < mm->n1; n = s.n + rows) {
		s = strip_at(mm, mm->wtype, n, rows);
		for (size_t t = 0; t < mm->T; t += nt)
			i8_direct(mm, packed, &s, rows / VL, t, nt);
	}
}

struct i8_panel {
	struct i8x x[I8_PANEL / I8_TILE][I8_CHUNK];
	struct i8w w[I8_CHUNK];
};

/* n groups of a chunk; @k0 is its first element, @last: then the scales enter. */
static void i8_tile(const struct sits_matmul *mm, const struct strip *s, const struct i8_panel *p, const vf scale[NV], size_t k0,
		    size_t n, bool last, size_t t0, size_t t)
{
	const struct i8x *x = p->x[(t - t0) / I8_TILE];
	vi acc[I8_TILE][NV];

	UNROLL for (size_t i = 0; i < I8_TILE; i++) {
		UNROLL for (size_t v = 0; v < NV; v++)
			acc[i][v] = k0 && t + i < mm->T ? v_bits(load_y(mm, s, v, t + i)) : vi_zero();
	}
	for (size_t g = 0; g < n; g++)
		i8_mac(acc, &p->w[g], &x[g]);
	UNROLL for (size_t i = 0; i < I8_TILE; i++) {
		UNROLL for (size_t v = 0; v < NV; v++) {
			if (t + i < mm->T)
				store_y(mm, s, v, t + i, last ? i8_finish(acc[i][v], scale[v], token_x(mm, t + i)) :
					v_from_bits(acc[i][v]));
		}
	}
}

/* n groups from element k0 on, tokens [t0, t1). packed is constant. */
TEMPLATE void i8_block(const struct sits_matmul *mm, bool packed, struct i8_panel *p, size_t t0, size_t t1, size_t k0, size_t n)
{
	bool last = k0 + n * SITS_QG == mm->K;
	struct strip s;

	for (size_t t = t0; t < t1; t += I8_TILE) {
		for (size_t i = 0; i < I8_TILE; i++) {
			const int8_t *q = (const int8_t *)((const struct sits_q8_head *)token_x(mm, t + i) + 1) + k0;

			for (size_t g = 0; g < n; g++)
				i8x_set(&p->x[(t - t0) / I8_TILE][g], i, q + g * SITS_QG);
		}
	}
	for (size_t at = mm->n0; at < mm->n1; at = s.n + STRIP) {
		vf scale[NV];

		s = strip_at(mm, mm->wtype, at, STRIP);
		UNROLL for (size_t v = 0; v < NV; v++) {
			struct i8src src = i8src_init(mm, packed, s.n + v * VL);

			scale[v] = i8_scale(&src, packed);
			for (size_t g = 0; g < n; g++) {
				vi z[8];

				i8_load4(&src, packed, k0 + g * SITS_QG, z);
				i8_load4(&src, packed, k0 + g * SITS_QG + 16, z + 4);
				i8w_set(&p->w[g], v, z);
			}
		}
		for (size_t t = t0; t < t1; t += I8_TILE)
			i8_tile(mm, &s, p, scale, k0, n, last, t0, t);
	}
}

TEMPLATE void i8_many(const struct sits_matmul *mm, bool packed)
{
	const size_t step = I8_CHUNK * SITS_QG;
	struct i8_panel p;

	for (size_t t = 0; t < mm->T; t += I8_PANEL) {
		for (size_t k = 0; k < mm->K; k += step)
			i8_block(mm, packed, &p, t, mm->T - t < I8_PANEL ? mm->T : t + I8_PANEL, k,
				 (mm->K - k < step ? mm->K - k : step) / SITS_QG);
	}
	memset(p.x, 0, ((mm->T < I8_PANEL ? mm->T : I8_PANEL) + I8_TILE - 1) / I8_TILE * sizeof(p.x[0]));
	memset(p.w, 0, sizeof(p.w));
	__asm__ volatile("" : : "r"(&p) : "memory");	/* so that the wipe is not optimised away */
}

TEMPLATE void i8_any(const struct sits_matmul *mm, bool packed)
{
	if (mm->T > 8 && (packed || mm->N >= STRIP))
		i8_many(mm, packed);
	else if (mm->T == 1)
		i8_few(mm, packed, 1);
	else if (mm->T == 2)
		i8_few(mm, packed, 2);
	else
		i8_few(mm, packed, 4);
}

void ISA(matmul_i8)(const struct sits_matmul *mm)
{
	if (mm->wtype & SITS_PACKED)
		i8_any(mm, true);
	else if (mm->N < VL)	/* too few rows to fill the lanes */
		sits_ref_matmul(mm);
	else
		i8_any(mm, false);
}

#endif
