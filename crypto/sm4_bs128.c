// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_bs128.c - SM4 on 32 blocks at a time in 128-bit vectors, written with the compiler's generic
 * vectors: SSE2 on x86-64, NEON on arm64, and plain integers elsewhere. Not for the kernel, whose code
 * may not touch vector registers. The layout is in sm4_bitslice.h.
 */
#include "crypto/sm4_impl.h"

typedef u32 word __attribute__((vector_size(16)));
typedef u8 bytes __attribute__((vector_size(16)));
typedef unsigned short halves __attribute__((vector_size(16)));

#define NR	SITS_SM4_BS128_BLOCKS

/* Lane j is element j. */
#define lanes8(x)	__builtin_shufflevector(x, x, 1, 2, 3, 0)
#define lanes16(x)	__builtin_shufflevector(x, x, 2, 3, 0, 1)
#define lanes24(x)	__builtin_shufflevector(x, x, 3, 0, 1, 2)

static inline word splat(u32 x)
{
	return (word){ x, x, x, x };
}

static inline void round_key_planes(word k[8], u32 rk)
{
	word x = { rk, rk << 8, rk << 16, rk << 24 };
	int i;

	for (i = 0; i < 8; i++)
		k[i] = (word)((__attribute__((vector_size(16))) int)(x << (7 - i)) >> 31);
}

#include "crypto/sm4_bitslice.h"

static inline word zip8_lo(word a, word b)
{
	return (word)__builtin_shufflevector((bytes)a, (bytes)b, 0, 16, 1, 17, 2, 18, 3, 19,
					     4, 20, 5, 21, 6, 22, 7, 23);
}

static inline word zip8_hi(word a, word b)
{
	return (word)__builtin_shufflevector((bytes)a, (bytes)b, 8, 24, 9, 25, 10, 26, 11, 27,
					     12, 28, 13, 29, 14, 30, 15, 31);
}

static inline word zip16_lo(word a, word b)
{
	return (word)__builtin_shufflevector((halves)a, (halves)b, 0, 8, 1, 9, 2, 10, 3, 11);
}

static inline word zip16_hi(word a, word b)
{
	return (word)__builtin_shufflevector((halves)a, (halves)b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/*
 * Byte i of v[b] becomes byte b of element i % 4 of v[i / 4]: four blocks become SM4's four words of each,
 * byte by byte. In the 6-bit index of a byte among all 64 this is a rotation by two bits, so three times
 * is the identity, and twice is the inverse.
 */
static inline __attribute__((always_inline)) void zip4(word v[4])
{
	word ab_lo = zip8_lo(v[0], v[1]), ab_hi = zip8_hi(v[0], v[1]);
	word cd_lo = zip8_lo(v[2], v[3]), cd_hi = zip8_hi(v[2], v[3]);

	v[0] = zip16_lo(ab_lo, cd_lo);
	v[1] = zip16_hi(ab_lo, cd_lo);
	v[2] = zip16_lo(ab_hi, cd_hi);
	v[3] = zip16_hi(ab_hi, cd_hi);
}

static inline __attribute__((always_inline)) void transpose_all(word p[4][8])
{
	int w;

	for (w = 0; w < 4; w++)
		transpose_bits(p[w], splat(0x55555555), splat(0x33333333), splat(0x0f0f0f0f));
}

static inline __attribute__((always_inline)) void load(word p[4][8], const u8 *src)
{
	int w, g;

	for (g = 0; g < 8; g++) {
		word v[4];

		memcpy(v, src + 64 * g, 64);
		zip4(v);
		for (w = 0; w < 4; w++)
			p[w][g] = v[w];
	}
	transpose_all(p);
}

static void counter_planes(word p[8], u32 first)
{
	word n = splat(first) + (word){ 0, 4, 8, 12 };
	int g, i;

	/* Loaded from memory, byte j of block 4 g + b is in element j of v[g]. Integers have it the other way round. */
	for (g = 0; g < 8; g += 4, n += 16) {
		for (i = 0; i < 4; i++)
			p[g + i] = n + (u32)i;
		zip4(p + g);
		for (i = 0; i < 4; i++)
			p[g + i] = __builtin_shufflevector(p[g + i], p[g + i], 3, 2, 1, 0);
	}
	transpose_bits(p, splat(0x55555555), splat(0x33333333), splat(0x0f0f0f0f));
}

/* SM4 gives its last four words in reverse. */
static inline __attribute__((always_inline)) void store(u8 *dst, word p[4][8])
{
	int w, g;

	transpose_all(p);
	for (g = 0; g < 8; g++) {
		word v[4];

		for (w = 0; w < 4; w++)
			v[w] = p[3 - w][g];
		zip4(v);
		zip4(v);
		memcpy(dst + 64 * g, v, 64);
	}
}

void sits_sm4_crypt_bs128(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks)
{
	u8 part[16 * NR];
	word p[4][8];

	while (nr_blocks) {
		size_t nr = nr_blocks < NR ? nr_blocks : NR;

		if (nr == NR) {
			load(p, src);
		} else {
			memset(part, 0, sizeof(part));
			memcpy(part, src, 16 * nr);
			load(p, part);
		}
		sm4_rounds(p, rk);
		if (nr == NR) {
			store(dst, p);
		} else {
			store(part, p);
			memcpy(dst, part, 16 * nr);
			sits_wipe(part, sizeof(part));
		}
		nr_blocks -= nr;
		src += 16 * nr;
		dst += 16 * nr;
	}
	sits_wipe(p, sizeof(p));
}

void sits_sm4_stream_bs128(const u32 rk[32], const u8 ctr[16], u8 *stream)
{
	word p[4][8];

	sm4_counters(p, ctr);
	sm4_rounds(p, rk);
	store(stream, p);
	sits_wipe(p, sizeof(p));
}
