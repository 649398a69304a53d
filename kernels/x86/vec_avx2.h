/* SPDX-License-Identifier: MIT */
/*
 * vec_avx2.h - the small vector vocabulary that the templates are written in, 8 lanes.
 *
 * vec_avx512.h has the same names with 16 lanes. Functions with a count n take 0 <= n <= VL and
 * touch only the first n elements; absent lanes read as zero.
 */
#ifndef SITS_KERNELS_X86_VEC_H
#define SITS_KERNELS_X86_VEC_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
/*
 * Templates are functions whose constant arguments pick the code: inlined for each of them, with loops
 * unrolled. Instrumented builds (SITS_KERNELS_PLAIN) compile them once, with loops: unrolled they take minutes. ROLLED
 * keeps a loop a loop.
 */
#if defined(SITS_KERNELS_PLAIN)
#define TEMPLATE static __attribute__((noinline, unused))	/* as INLINE: not each file takes each of them */
#define UNROLL
#define ROLLED
#elif defined(__clang__)
#define TEMPLATE INLINE
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("nounroll")
#else
#define TEMPLATE INLINE
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 4")
#endif

#define VL 8			/* f32 or i32 lanes */
#ifndef ISA
#define ISA(name) sits_avx2_##name
#endif

typedef __m256 vf;
typedef __m256i vi;
typedef __m256d vd;		/* VL / 2 lanes */

INLINE __m256i v_mask(size_t n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* f32 */
INLINE vf v_zero(void) { return _mm256_setzero_ps(); }
INLINE vf v_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE vf v_load_n(const float *p, size_t n) { return _mm256_maskload_ps(p, v_mask(n)); }
INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE void v_store_n(float *p, vf x, size_t n) { _mm256_maskstore_ps(p, v_mask(n), x); }
/* Lanes [lo, hi) only. */
INLINE __m256i v_mask_range(size_t lo, size_t hi) { return _mm256_andnot_si256(v_mask(lo), v_mask(hi)); }
INLINE vf v_load_range(const float *p, size_t lo, size_t hi) { return _mm256_maskload_ps(p, v_mask_range(lo, hi)); }
INLINE void v_store_range(float *p, vf x, size_t lo, size_t hi) { _mm256_maskstore_ps(p, v_mask_range(lo, hi), x); }
INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }	/* b where either is NaN */
INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }	/* b where either is NaN */
INLINE vf v_neg(vf a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
INLINE vf v_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf v_swap_pairs(vf a) { return _mm256_permute_ps(a, 0xb1); }

/* x * 2^n, n whole, |n| < 252: in two steps, so that each factor is a normal number. */
INLINE vf v_scale2(vf x, vf n)
{
	__m256i i = _mm256_cvtps_epi32(n), h = _mm256_srai_epi32(i, 1), one = _mm256_set1_epi32(127);
	__m256i a = _mm256_slli_epi32(_mm256_add_epi32(h, one), 23);
	__m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, h), one), 23);

	return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}

/* Bit i: lane i of a is greater; never where either is NaN. */
INLINE uint32_t v_greater(vf a, vf b)
{
	return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

/* Lanes from n on become fill. */
INLINE vf v_keep_n(vf x, size_t n, vf fill)
{
	return _mm256_blendv_ps(fill, x, _mm256_castsi256_ps(v_mask(n)));
}

/* Lanes outside of [lo, hi) become fill. */
INLINE vf v_keep_range(vf x, size_t lo, size_t hi, vf fill)
{
	return _mm256_blendv_ps(fill, x, _mm256_castsi256_ps(v_mask_range(lo, hi)));
}

/* Sum and largest of all lanes: halves are folded, so the order is fixed. */
INLINE float v_hsum(vf h)
{
	__m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

	q = _mm_add_ps(q, _mm_movehl_ps(q, q));
	return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

INLINE float v_first(vf a) { return _mm256_cvtss_f32(a); }

INLINE float v_hmax(vf h)
{
	__m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

	q = _mm_max_ps(q, _mm_movehl_ps(q, q));
	return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* f16 and bf16 */
INLINE __m128i v_load16_n(const void *p, size_t n)
{
	__m128i x = _mm_setzero_si128();

	memcpy(&x, p, 2 * n);
	return x;
}
INLINE vf v_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
INLINE vf v_load_f16_n(const void *p, size_t n) { return _mm256_cvtph_ps(v_load16_n(p, n)); }
INLINE void v_store_f16(void *p, vf x)
{
	_mm_storeu_si128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vf v_from_bf16(__m128i x)
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
INLINE vf v_load_bf16(const void *p) { return v_from_bf16(_mm_loadu_si128(p)); }
INLINE vf v_load_bf16_n(const void *p, size_t n) { return v_from_bf16(v_load16_n(p, n)); }

/* i32 lanes and bytes */
INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
INLINE vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_set1_8(int8_t x) { return _mm256_set1_epi8(x); }
INLINE vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
#define vi_srl(a, n) _mm256_srli_epi32(a, n)
#define vi_sll(a, n) _mm256_slli_epi32(a, n)
#define vi_sra(a, n) _mm256_srai_epi32(a, n)
/* s += p in the register that holds s: of sums in a loop gcc makes copies at each turn otherwise, or spills them. */
#define vi_add_to(s, p) __asm__("vpaddd %1, %0, %0" : "+x"(s) : "x"(p))
INLINE vi vi_srl_by(vi a, int n) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n)); }
INLINE vf vi_to_f(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE vi v_to_i(vf a) { return _mm256_cvtps_epi32(a); }	/* to nearest even */
INLINE vi v_bits(vf a) { return _mm256_castps_si256(a); }
INLINE vf v_from_bits(vi a) { return _mm256_castsi256_ps(a); }
/* VL signed bytes. */
INLINE vf v_load_i8(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p))); }
/* The f16 in the low half of each lane. */
INLINE vf vi_f16(vi a)
{
	a = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
	return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}
INLINE int32_t vi_hmax(vi a)
{
	__m128i q = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

	q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
	return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
INLINE int32_t vi_hsum(vi a)
{
	__m128i q = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

	q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
	return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
/* The low byte of each lane, VL bytes; lanes hold -128 .. 127. */
INLINE void vi_store_low8(void *p, vi a)
{
	__m128i w = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

	_mm_storel_epi64(p, _mm_packs_epi16(w, w));
}
INLINE vf v_from_u8(const uint8_t *p)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
}

/* Bytes w: bit 4 of byte i of each lane becomes bit 4 j + i of the lane of qh. j is constant. */
INLINE vi vi_or_bit4(vi w, vi qh, int j)
{
	vi at = _mm256_add_epi8(_mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c,
						  0, 0x04040404, 0x08080808, 0x0c0c0c0c),
				_mm256_set1_epi8((char)(j / 2)));
	vi bit = _mm256_set1_epi32(j & 1 ? (int)0x80402010 : 0x08040201);
	vi on = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(qh, at), bit), bit);

	return _mm256_or_si256(w, _mm256_and_si256(on, _mm256_set1_epi8(16)));
}

/*
 * A place in VL rows of weights that lie s bytes apart: row 4 l + i is at b[l] + i * s. Written so that
 * each load is one base plus one index register.
 */
struct rows {
	const uint8_t *b[VL / 4];
	size_t s, s3;
};

INLINE struct rows rows_init(const uint8_t *w, size_t s)
{
	struct rows r = { .s = s, .s3 = 3 * s };

	UNROLL for (size_t l = 0; l < VL / 4; l++)
		r.b[l] = w + 4 * l * s;
	return r;
}

INLINE void rows_advance(struct rows *r, size_t bytes)
{
	UNROLL for (size_t l = 0; l < VL / 4; l++)
		r->b[l] += bytes;
}

/*
 * Sixteen bytes at offset off of all rows, transposed: lane r of z[i] is dword i of row r.
 * The inputs are gathered so that unpacking within 128-bit lanes leaves the rows in order.
 */
INLINE vi vi_rows(struct rows rows, size_t off, int i)
{
	size_t step = i == 0 ? 0 : i == 1 ? rows.s : i == 2 ? 2 * rows.s : rows.s3;
	vi z = _mm256_castsi128_si256(_mm_loadu_si128((const void *)(rows.b[0] + step + off)));

	return _mm256_inserti128_si256(z, _mm_loadu_si128((const void *)(rows.b[1] + step + off)), 1);
}

INLINE void vi_load_t16(struct rows rows, size_t off, vi z[4])
{
	vi r0 = vi_rows(rows, off, 0), r1 = vi_rows(rows, off, 1);
	vi r2 = vi_rows(rows, off, 2), r3 = vi_rows(rows, off, 3);
	vi a = _mm256_unpacklo_epi32(r0, r1), b = _mm256_unpackhi_epi32(r0, r1);
	vi c = _mm256_unpacklo_epi32(r2, r3), d = _mm256_unpackhi_epi32(r2, r3);

	z[0] = _mm256_unpacklo_epi64(a, c);
	z[1] = _mm256_unpackhi_epi64(a, c);
	z[2] = _mm256_unpacklo_epi64(b, d);
	z[3] = _mm256_unpackhi_epi64(b, d);
}

/* f64, VL / 2 lanes */
INLINE vd vd_set1(double x) { return _mm256_set1_pd(x); }
INLINE vd vd_from_f32(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
INLINE void vd_store_f32(float *p, vd x) { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }
INLINE vd vd_add(vd a, vd b) { return _mm256_add_pd(a, b); }
INLINE vd vd_sub(vd a, vd b) { return _mm256_sub_pd(a, b); }
INLINE vd vd_mul(vd a, vd b) { return _mm256_mul_pd(a, b); }
INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
INLINE vi vd_bits(vd a) { return _mm256_castpd_si256(a); }
INLINE vi vi_add64(vi a, int64_t b) { return _mm256_add_epi64(a, _mm256_set1_epi64x(b)); }
/* Bit 0 or 1 of each 64-bit lane, moved to the sign. */
INLINE vi vi_bit_to_sign64(vi a, int bit)
{
	return _mm256_and_si256(_mm256_slli_epi64(a, 63 - bit), _mm256_set1_epi64x(INT64_MIN));
}
INLINE vd vd_flip(vd a, vi sign) { return _mm256_castsi256_pd(_mm256_xor_si256(_mm256_castpd_si256(a), sign)); }
/* b where the sign is set, else a. */
INLINE vd vd_select(vd a, vd b, vi sign) { return _mm256_blendv_pd(a, b, _mm256_castsi256_pd(sign)); }

#endif
