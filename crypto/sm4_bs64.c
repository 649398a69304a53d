// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_bs64.c - SM4 on 16 blocks at a time in 64-bit integers: the core that needs nothing of the
 * machine, for the kernel, single blocks and key schedules. The layout is in sm4_bitslice.h.
 */
#include "crypto/sm4_impl.h"

typedef u64 word;

#define NR	SITS_SM4_BS64_BLOCKS

/* Lane j is at bit 16 j. */
static inline word lanes8(word x)
{
	return x >> 16 | x << 48;
}

static inline word lanes16(word x)
{
	return x >> 32 | x << 32;
}

static inline word lanes24(word x)
{
	return x >> 48 | x << 16;
}

/* Byte j (0: the one loaded first) of x to the low half of lane j. */
static inline u64 spread_bytes(u64 x)
{
	x = (x | x << 16) & 0x0000ffff0000ffffULL;
	return (x | x << 8) & 0x00ff00ff00ff00ffULL;
}

static inline u32 gather_bytes(u64 x)
{
	x &= 0x00ff00ff00ff00ffULL;
	x = (x | x >> 8) & 0x0000ffff0000ffffULL;
	return (u32)(x | x >> 16);
}

static inline void round_key_planes(word k[8], u32 rk)
{
	u64 x = (u64)(rk & 0xffff) << 32 | rk >> 16;	/* lane 0 is the most significant byte */
	int i;

	x = (x >> 8 | x << 16) & 0x00ff00ff00ff00ffULL;
	for (i = 0; i < 8; i++)
		k[i] = (x >> i & 0x0001000100010001ULL) * 0xffff;
}

#include "crypto/sm4_bitslice.h"

static void load(word p[4][8], const u8 *src)
{
	int w, g;

	for (w = 0; w < 4; w++) {
		for (g = 0; g < 8; g++)
			p[w][g] = spread_bytes(sits_get_le32(src + 32 * g + 4 * w)) |
				  spread_bytes(sits_get_le32(src + 32 * g + 16 + 4 * w)) << 8;
		transpose_bits(p[w], 0x5555555555555555ULL, 0x3333333333333333ULL, 0x0f0f0f0f0f0f0f0fULL);
	}
}

static inline u64 counter_bytes(u32 n)
{
	u8 be[4];

	sits_put_be32(be, n);
	return spread_bytes(sits_get_le32(be));
}

static void counter_planes(word p[8], u32 first)
{
	u32 g;

	for (g = 0; g < 8; g++)
		p[g] = counter_bytes(first + 2 * g) | counter_bytes(first + 2 * g + 1) << 8;
	transpose_bits(p, 0x5555555555555555ULL, 0x3333333333333333ULL, 0x0f0f0f0f0f0f0f0fULL);
}

/* SM4 gives its last four words in reverse. */
static void store(u8 *dst, word p[4][8])
{
	int w, g;

	for (w = 0; w < 4; w++) {
		transpose_bits(p[3 - w], 0x5555555555555555ULL, 0x3333333333333333ULL, 0x0f0f0f0f0f0f0f0fULL);
		for (g = 0; g < 8; g++) {
			sits_put_le32(dst + 32 * g + 4 * w, gather_bytes(p[3 - w][g]));
			sits_put_le32(dst + 32 * g + 16 + 4 * w, gather_bytes(p[3 - w][g] >> 8));
		}
	}
}

void sits_sm4_crypt_bs64(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks)
{
	word p[4][8];

	for (; nr_blocks >= NR; nr_blocks -= NR, src += 16 * NR, dst += 16 * NR) {
		load(p, src);
		sm4_rounds(p, rk);
		store(dst, p);
	}
	if (nr_blocks) {
		u8 part[16 * NR] = { 0 };

		memcpy(part, src, 16 * nr_blocks);
		load(p, part);
		sm4_rounds(p, rk);
		store(part, p);
		memcpy(dst, part, 16 * nr_blocks);
		sits_wipe(part, sizeof(part));
	}
	sits_wipe(p, sizeof(p));
}

void sits_sm4_stream_bs64(const u32 rk[32], const u8 ctr[16], u8 *stream)
{
	word p[4][8];

	sm4_counters(p, ctr);
	sm4_rounds(p, rk);
	store(stream, p);
	sits_wipe(p, sizeof(p));
}
