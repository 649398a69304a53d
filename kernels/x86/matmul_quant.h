/* SPDX-License-Identifier: MIT */
/*
 * matmul_quant.h - template: quantised weights times 16-bit activations.
 *
 * The including file supplies the vector vocabulary, WFLIP_Q8, dot() (the integer part where few tokens
 * are computed), DIRECT (the most tokens whose sums stay in registers then), ABREAST (of how many the integer sums go side
 * by side) and, unless it wants the case T = 1 alone (ONE_TOKEN), the tiles of many tokens; see there. Here is the tiling. Rows of weights are turned
 * so that a lane is a row (unpack.h); integer sums are exact and each lane's f32 sum takes groups in ascending
 * order, as quant.h lays down, so that every tile shape gives the same bits.
 *
 *	few tokens	weights are unpacked in registers (256-element types: eight groups on the stack)
 *			and used for all tokens at once
 *	many tokens	blocks of PANEL tokens and CHUNK groups: their activations are laid side by side (a
 *			panel, which stays in the second-level cache for all strips of the call); then for every
 *			STRIPS strips of 16 rows the weights of the chunk are unpacked once (wtile, in the first-level
 *			cache) and meet the panel's tokens, a tile at a time; partial sums wait in y. Both
 *			copies are on the stack, and wiped before return.
 */
#ifndef SITS_KERNELS_X86_MATMUL_QUANT_H
#define SITS_KERNELS_X86_MATMUL_QUANT_H

#include "kernels/ref/ref.h"
#include "kernels/x86/strip.h"
#include "kernels/x86/unpack.h"

#ifdef ONE_TOKEN
#define DIRECT 1
#endif
#ifndef ABREAST
#define ABREAST 1
#endif
#define PACKED_AHEAD 4096	/* bytes of packed weights fetched ahead */

/* off + the products of n dwords of weights and activations, from elements [i, i + 4 n) of the group. */
INLINE vi dot16(uint32_t type, const vi *w, const struct sits_q16 *x, int i, int n, int32_t off)
{
	vi s = vi_sll(dot(type, w, x->hi + i, n, vi_zero()), 7);

	return dot(type, w, x->lo + i, n, vi_add(s, vi_set1(off)));
}

/* What the sums of a half of a group (i is 0 or 16), or of all of it, start from. */
INLINE int32_t sum_start(uint32_t base, const struct sits_q16 *x, int i)
{
	return base == SITS_Q4_0 ? x->off8 : base == SITS_Q5_0 ? x->off16 : base == SITS_Q8_0 && WFLIP_Q8 != 0 ? x->off128 :
	       base == SITS_Q6_K ? x->off32[i / 16] : 0;
}

/* Add one group of one token to acc. */
TEMPLATE vf mac(uint32_t type, vf acc, const struct wgroup *w, const struct sits_q16 *x)
{
	uint32_t base = BASE(type);
	vf d = v_set1(x->d);
	vi s;

	if (base == SITS_Q6_K) {
		s = dot16(base, w->w, x, 0, 4, sum_start(base, x, 0));
		acc = v_fma(vi_to_f(s), v_mul(w->sc, d), acc);
		s = dot16(base, w->w + 4, x, 16, 4, sum_start(base, x, 16));
		return v_fma(vi_to_f(s), v_mul(w->mn, d), acc);
	}
	acc = v_fma(vi_to_f(dot16(base, w->w, x, 0, 8, sum_start(base, x, 0))), v_mul(w->sc, d), acc);
	return type_has_min(base) ? v_fma(w->mn, v_set1(x->s), acc) : acc;
}

#if ABREAST > 1
/* n dwords from element i of a group on, of nt tokens: their sums side by side, where one alone would wait for itself. */
TEMPLATE void dots_abreast(uint32_t base, size_t nt, vf *acc, const struct wgroup *w, const struct sits_q16 *const *x, size_t g, int i,
			   int n, vf sc)
{
	vi hi[ABREAST], lo[ABREAST];

	UNROLL for (size_t t = 0; t < nt; t++) {
		hi[t] = vi_zero();
		lo[t] = vi_set1(sum_start(base, x[t] + g, i));
	}
	UNROLL for (int k = i; k < i + 4 * n; k += 4) {
		UNROLL for (size_t t = 0; t < nt; t++) {
			hi[t] = dot(base, &w->w[k / 4], x[t][g].hi + k, 1, hi[t]);
			lo[t] = dot(base, &w->w[k / 4], x[t][g].lo + k, 1, lo[t]);
		}
	}
	UNROLL for (size_t t = 0; t < nt; t++)
		acc[t] = v_fma(vi_to_f(vi_add(vi_sll(hi[t], 7), lo[t])), v_mul(sc, v_set1(x[t][g].d)), acc[t]);
}

/* Group g of nt <= ABREAST tokens. */
TEMPLATE void mac_abreast(uint32_t base, size_t nt, vf *acc, const struct wgroup *w, const struct sits_q16 *const *x, size_t g)
{
	if (base == SITS_Q6_K) {
		dots_abreast(base, nt, acc, w, x, g, 0, 4, w->sc);
		dots_abreast(base, nt, acc, w, x, g, 16, 4, w->mn);
	} else {
		dots_abreast(base, nt, acc, w, x, g, 0, 8, w->sc);
	}
	if (type_has_min(base)) {
		UNROLL for (size_t t = 0; t < nt; t++)
			acc[t] = v_fma(w->mn, v_set1(x[t][g].s), acc[t]);
	}
}
#endif

/* Add group g of nt tokens to their sums; nt is constant. */
TEMPLATE void macs(uint32_t type, size_t nt, vf *acc, const struct wgroup *w, const struct sits_q16 *const *x, size_t g)
{
#if ABREAST > 1
	_Static_assert(DIRECT <= 2 * ABREAST, "two parts");
	mac_abreast(BASE(type), nt < ABREAST ? nt : ABREAST, acc, w, x, g);
	if (nt > ABREAST)
		mac_abreast(BASE(type), nt - ABREAST, acc + ABREAST, w, x + ABREAST, g);
#else
	UNROLL for (size_t t = 0; t < nt; t++)
		acc[t] = mac(type, acc[t], w, x[t] + g);
#endif
}

/* Cache lines of the next strip's weights that fall to one unit of this strip. */
INLINE size_t lines_ahead(uint32_t type, size_t units)
{
	return (VL * unit_bytes(type) * units + 63) / 64;
}

/* Cache lines of a unit of a packed strip. */
INLINE size_t unit_lines(uint32_t type)
{
	return (unit_bytes(type) + 3) / 4;
}

INLINE const uint8_t *fetch_ahead(const uint8_t *p, size_t lines)
{
	const uint8_t *end = p + 64 * lines;

	for (; p != end; p += 64)
		_mm_prefetch((const char *)p, _MM_HINT_T0);
	return p;
}

/* All of K for VL plain rows and nt <= DIRECT tokens from t on, weights in registers. nt is constant. */
TEMPLATE void tile_direct(const struct sits_matmul *mm, uint32_t type, const struct strip *s, size_t t, size_t nt)
{
	size_t groups = mm->K / SITS_QG, unit = unit_groups(type), run = run_groups(type), g = 0;
	struct src src = src_init(type, mm->w, mm->w_row_bytes, s->n);
	const uint8_t *ahead = src.rows.b[0] + VL * mm->w_row_bytes;
	const struct sits_q16 *x[DIRECT] = { NULL };
	struct wgroup u[UNIT_MAX];
	vf acc[DIRECT];
	vi d[20];

	UNROLL for (size_t i = 0; i < nt; i++) {
		x[i] = token_x(mm, t + i);
		acc[i] = v_zero();
	}
	for (; run && g + run <= groups; g += run) {
		UNROLL for (size_t k = 0; k < run; k++) {
			ahead = fetch_ahead(ahead, lines_ahead(type, 1));
			run_step(type, src.rows, k, d, u);
			macs(type, nt, acc, u, x, g + k);
		}
		rows_advance(&src.rows, run * unit_bytes(type));
	}
	for (; g < groups; g += unit) {
		ahead = fetch_ahead(ahead, lines_ahead(type, 1));
		unpack(type, &src, u);
		src_next(type, &src);
		for (size_t k = 0; k < unit; k++)
			macs(type, nt, acc, &u[k], x, g + k);
	}
	UNROLL for (size_t i = 0; i < nt; i++) {
		if (t + i < mm->T)
			store_y(mm, s, 0, t + i, acc[i]);
	}
}

/* The same for a whole strip of packed rows: lines of memory are used whole, and in order. */
TEMPLATE void tile_packed(const struct sits_matmul *mm, uint32_t type, const struct strip *s, size_t t, size_t nt)
{
	size_t groups = mm->K / SITS_QG, unit = unit_groups(type);
	const struct sits_q16 *x[DIRECT] = { NULL };
	struct wgroup u[UNIT_MAX];
	vf acc[NV][DIRECT];
	struct src src[NV];
	const uint8_t *ahead;

	UNROLL for (size_t v = 0; v < NV; v++)
		src[v] = src_init(type, mm->w, mm->w_row_bytes, s->n + v * VL);
	ahead = src[0].d + PACKED_AHEAD;
	UNROLL for (size_t i = 0; i < nt; i++) {
		x[i] = token_x(mm, t + i);
		UNROLL for (size_t v = 0; v < NV; v++)
			acc[v][i] = v_zero();
	}
	for (size_t g = 0; g < groups; g += unit) {
		UNROLL for (size_t v = 0; v < NV; v++) {
			ahead = fetch_ahead(ahead, (v + 1) * unit_lines(type) / NV - v * unit_lines(type) / NV);
			unpack(type, &src[v], u);
			src_next(type, &src[v]);
			for (size_t k = 0; k < unit; k++)
				macs(type, nt, acc[v], &u[k], x, g + k);
		}
	}
	UNROLL for (size_t i = 0; i < nt; i++) {
		UNROLL for (size_t v = 0; v < NV; v++) {
			if (t + i < mm->T)
				store_y(mm, s, v, t + i, acc[v][i]);
		}
	}
}

/* All tokens, nt at a time, and the last up to four by themselves; nt is constant. Rows are still in a cache when the next ones come. */
TEMPLATE void rows_direct(const struct sits_matmul *mm, uint32_t type, size_t nt)
{
	const size_t rows = type & SITS_PACKED ? STRIP : VL;
	struct strip s;

	for (size_t n = mm->n0; n < mm->n1; n = s.n + rows) {
		s = strip_at(mm, type, n, rows);
		for (size_t t = 0; t < mm->T; t += nt) {
			bool few = nt > 4 && mm->T - t <= 4;

			if (type & SITS_PACKED && few)
				tile_packed(mm, type, &s, t, 4);
			else if (type & SITS_PACKED)
				tile_packed(mm, type, &s, t, nt);
			else if (few)
				tile_direct(mm, type, &s, t, 4);
			else
				tile_direct(mm, type, &s, t, nt);
		}
	}
}

#ifdef ONE_TOKEN
/* type is constant. */
TEMPLATE void matmul_type(const struct sits_matmul *mm, uint32_t type)
{
	rows_direct(mm, type, 1);
}
#else

/*
 * Many tokens. Of the including file, beside what tile16.h asks for: CHUNK, PANEL (tokens), MANY (more tokens than that), STRIPS_AHEAD (are
 * the next strip's weights fetched while one is unpacked?), TILES(X) (how many tokens a tile may have), STRIPS (in a tile), and
 * tile_size(left), the tokens of the next tile where so many are left; it may be more than those.
 *
 * Once weights are unpacked, types differ in how their scales enter, and in nothing else: three kinds of tiles serve all.
 */
#define VECS (STRIPS * NV)

#include "kernels/x86/tile16.h"

struct panel {
	struct xtile x[(PANEL + TILE) * CHUNK];		/* tile after tile: of each group, all of its tokens */
	struct wtile w[CHUNK];
	float y[TILE * STRIPS * STRIP];			/* sums of a tile that goes over an edge */
};

/* Where a tile's sums are between chunks: the first token's, and how far the next one's are. */
struct sums {
	float *strip[STRIPS];
	size_t ld;
};

/* What a type brings: its weights, n groups from src on as vectors v .. v + NV - 1, and its kind of tile. */
typedef void unpack_fn(struct src src[NV], size_t n, struct wtile *w, size_t v);
typedef void tile_fn(const struct wtile *w, const struct xtile *x, size_t n, size_t nt, bool fresh, const struct sums *y);

/* n groups of nt tokens and STRIPS strips, added to what is in y, or to nothing. kind and nt are constant. */
TEMPLATE void tile_chunk(enum tile_kind kind, size_t nt, const struct wtile *w, const struct xtile *x, size_t n, bool fresh,
			 const struct sums *y)
{
	vf acc[TILE][VECS];

	UNROLL for (size_t i = 0; i < nt; i++) {
		UNROLL for (size_t v = 0; v < VECS; v++)
			acc[i][v] = fresh ? v_zero() : v_load(y->strip[v / NV] + i * y->ld + v % NV * VL);
	}
	for (size_t g = 0; g < n; g++)
		tile_mac(kind, nt, acc, &w[g], &x[g * nt]);
	UNROLL for (size_t i = 0; i < nt; i++) {
		UNROLL for (size_t v = 0; v < VECS; v++)
			v_store(y->strip[v / NV] + i * y->ld + v % NV * VL, acc[i][v]);
	}
}

#define TILE_CASE(n) case n: tile_chunk(k, n, w, x, groups, fresh, y); break;
#define TILE_KIND(name, kind)									\
	static void name(const struct wtile *w, const struct xtile *x, size_t groups, size_t nt, bool fresh,	\
			 const struct sums *y)							\
	{											\
		const enum tile_kind k = kind;							\
												\
		switch (nt) {									\
		TILES(TILE_CASE)								\
		}										\
	}

TILE_KIND(tile_scale, KIND_SCALE)
TILE_KIND(tile_min, KIND_MIN)
TILE_KIND(tile_halves, KIND_HALVES)

/* Fetch what the next strip has at the unit of src: no prefetcher foresees pieces of rows. */
INLINE void fetch_strip(uint32_t type, const struct src *src)
{
	size_t row = src->rows.s;

	if (type & SITS_PACKED)
		fetch_ahead(src->p + STRIP * row, unit_lines(type));
	for (size_t r = 0; r < VL && !(type & SITS_PACKED); r++)
		fetch_ahead(src->rows.b[0] + (STRIP + r) * row, (unit_bytes(type) + 63) / 64);
}

/* type is constant. */
TEMPLATE void strip_unpack(uint32_t type, struct src src[NV], size_t n, struct wtile *w, size_t at)
{
	struct wgroup u[UNIT_MAX];

	UNROLL for (size_t v = 0; v < NV; v++) {
		for (size_t g = 0; g < n; g += unit_groups(type)) {
			if (STRIPS_AHEAD && (v == 0 || !(type & SITS_PACKED)))	/* a packed line holds all vectors */
				fetch_strip(type, &src[v]);
			unpack(type, &src[v], u);
			src_next(type, &src[v]);
			for (size_t k = 0; k < unit_groups(type); k++)
				wtile_set(type, &w[g + k], at + v, &u[k]);
		}
	}
}

/* nt tokens from t on and the strips s, of which not all need be there. g: groups that were added before. */
static void tile_at(const struct sits_matmul *mm, tile_fn *tile, struct panel *p, const struct xtile *x, const struct strip s[STRIPS],
		    size_t t, size_t nt, size_t g, size_t n)
{
	bool whole = t + nt <= mm->T;
	struct sums y = { .ld = mm->ldy };

	for (size_t k = 0; k < STRIPS; k++) {
		y.strip[k] = mm->y + t * mm->ldy + s[k].n;
		whole &= s[k].hi - s[k].lo == STRIP;
	}
	if (whole) {
		tile(p->w, x, n, nt, !g, &y);
		return;
	}
	y.ld = STRIPS * STRIP;
	for (size_t k = 0; k < STRIPS; k++)
		y.strip[k] = p->y + k * STRIP;
	for (size_t i = 0; g && i < nt && t + i < mm->T; i++) {
		for (size_t v = 0; v < VECS; v++)
			v_store(p->y + i * y.ld + v * VL, load_y(mm, &s[v / NV], v % NV, t + i));
	}
	tile(p->w, x, n, nt, !g, &y);
	for (size_t i = 0; i < nt && t + i < mm->T; i++) {
		for (size_t v = 0; v < VECS; v++)
			store_y(mm, &s[v / NV], v % NV, t + i, v_load(p->y + i * y.ld + v * VL));
	}
}

/* Groups [g0, g0 + n) of tokens [t0, t1), at most PANEL. g0 is a multiple of CHUNK. */
static void block(const struct sits_matmul *mm, unpack_fn *unpack_strip, tile_fn *tile, struct panel *p, size_t t0, size_t t1,
		  size_t g0, size_t n)
{
	struct src src[NV];
	struct strip s[STRIPS], last = { 0 };

	for (size_t t = t0, nt; t < t1; t += nt) {
		nt = tile_size(t1 - t);
		for (size_t i = 0; i < nt; i++) {
			const struct sits_q16 *q = (const struct sits_q16 *)token_x(mm, t + i) + g0;
			const struct sits_q16 *later = (const struct sits_q16 *)token_x(mm, t + i + 2) + g0;

			for (size_t g = 0; g < n; g++, later++) {
				_mm_prefetch((const char *)later, _MM_HINT_T0);
				_mm_prefetch((const char *)later + 64, _MM_HINT_T0);
				xtile_set(&p->x[(t - t0) * CHUNK + g * nt + i], &q[g]);
			}
		}
	}
	for (size_t at = mm->n0; at < mm->n1;) {
		for (size_t k = 0; k < STRIPS; k++) {
			if (at < mm->n1) {
				last = strip_at(mm, mm->wtype, at, STRIP);
				at = last.n + STRIP;
			} else {
				last.lo = last.hi = 0;	/* computed once more, and not stored */
			}
			s[k] = last;
			UNROLL for (size_t v = 0; v < NV; v++)
				src[v] = src_at(mm->wtype, mm->w, mm->w_row_bytes, last.n + v * VL, g0);
			unpack_strip(src, n, p->w, k * NV);
		}
		for (size_t t = t0, nt; t < t1; t += nt) {
			nt = tile_size(t1 - t);
			tile_at(mm, tile, p, &p->x[(t - t0) * CHUNK], s, t, nt, g0, n);
		}
	}
}

static void matmul_many(const struct sits_matmul *mm, unpack_fn *unpack_strip, tile_fn *tile)
{
	size_t groups = mm->K / SITS_QG, most = mm->T < PANEL ? mm->T : PANEL;
	struct panel p;

	for (size_t t = 0; t < mm->T; t += PANEL) {
		for (size_t g = 0; g < groups; g += CHUNK)
			block(mm, unpack_strip, tile, &p, t, mm->T - t < PANEL ? mm->T : t + PANEL, g,
			      groups - g < CHUNK ? groups - g : CHUNK);
	}
	memset(p.x, 0, (most + TILE) * CHUNK * sizeof(p.x[0]));
	memset(p.w, 0, sizeof(p.w) + sizeof(p.y));
	__asm__ volatile("" : : "r"(&p) : "memory");	/* so that the wipe is not optimised away */
}

/* type is constant. */
TEMPLATE void matmul_type(const struct sits_matmul *mm, uint32_t type, unpack_fn *unpack_strip)
{
	if (mm->T > MANY && (mm->N >= STRIP || type & SITS_PACKED))
		matmul_many(mm, unpack_strip, type_has_min(type) ? tile_min : BASE(type) == SITS_Q6_K ? tile_halves : tile_scale);
	else if (mm->T == 1)
		rows_direct(mm, type, 1);
	else if (mm->T == 2)
		rows_direct(mm, type, 2);
	else if (mm->T == 3)
		rows_direct(mm, type, 3);
	else if (mm->T <= 4 || DIRECT == 4)
		rows_direct(mm, type, 4);
	else
		rows_direct(mm, type, DIRECT);
}
#endif

#ifdef ONE_TOKEN		/* plain rows only */
#define MATMUL_TYPES(name, type)						\
	static void matmul_##name(const struct sits_matmul *mm)			\
	{									\
		matmul_type(mm, type);						\
	}
#define PLAIN_AND_PACKED(name) { matmul_##name, NULL }
#else
#define MATMUL_TYPE(name, type)								\
	static void unpack_strip_##name(struct src src[NV], size_t n, struct wtile *w, size_t v)	\
	{										\
		strip_unpack(type, src, n, w, v);					\
	}										\
											\
	static void matmul_##name(const struct sits_matmul *mm)				\
	{										\
		matmul_type(mm, type, unpack_strip_##name);				\
	}
#define MATMUL_TYPES(name, type)			\
	MATMUL_TYPE(name, type)				\
	MATMUL_TYPE(name##_p16, SITS_PACKED | type)
#define PLAIN_AND_PACKED(name) { matmul_##name, matmul_##name##_p16 }
#endif

MATMUL_TYPES(q4_0, SITS_Q4_0)
MATMUL_TYPES(q4_1, SITS_Q4_1)
MATMUL_TYPES(q5_0, SITS_Q5_0)
MATMUL_TYPES(q5_1, SITS_Q5_1)
MATMUL_TYPES(q8_0, SITS_Q8_0)
MATMUL_TYPES(q4_k, SITS_Q4_K)
MATMUL_TYPES(q5_k, SITS_Q5_K)
MATMUL_TYPES(q6_k, SITS_Q6_K)

void ISA(matmul_quant)(const struct sits_matmul *mm)
{
	static void (*const by_type[][2])(const struct sits_matmul *) = {
		[SITS_Q4_0] = PLAIN_AND_PACKED(q4_0), [SITS_Q4_1] = PLAIN_AND_PACKED(q4_1),
		[SITS_Q5_0] = PLAIN_AND_PACKED(q5_0), [SITS_Q5_1] = PLAIN_AND_PACKED(q5_1),
		[SITS_Q8_0] = PLAIN_AND_PACKED(q8_0), [SITS_Q4_K] = PLAIN_AND_PACKED(q4_k),
		[SITS_Q5_K] = PLAIN_AND_PACKED(q5_k), [SITS_Q6_K] = PLAIN_AND_PACKED(q6_k),
	};
	bool packed = mm->wtype & SITS_PACKED;

	if (mm->N < VL && !packed)	/* too few rows to fill the lanes */
		sits_ref_matmul(mm);
	else
		by_type[BASE(mm->wtype)][packed](mm);
}

#endif
