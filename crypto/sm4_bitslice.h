/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_bitslice.h - SM4 on bit planes, for a word type that the including file chooses.
 *
 * A batch of NR blocks (4 NR bits a word) is held as p[w][i]: plane i, bit i of each byte of SM4's word
 * w. A plane has four lanes of NR bits, one for each byte of the word, the most significant first; bit b
 * of a lane belongs to block b (in an order that loading and storing agree on):
 *
 *	p[w][i] = [ byte 0 of blocks 0..NR-1 | byte 1 .. | byte 2 .. | byte 3 .. ]
 *
 * So the S-box runs once a round for all bytes, rotations of SM4's words by multiples of 8 bits are
 * rotations of lanes, and other rotations are a renaming of planes plus a rotation of lanes for the bits
 * that cross into the next byte. There is no table, and no branch or address depends on data.
 *
 * The includer has defined before:
 *	word			an integer or a vector of integers of 4 NR bits
 *	lanes8(), lanes16(), lanes24()	the plane whose lane j is lane j + 1, + 2, + 3 (mod 4) of the argument:
 *			what SM4 calls a rotation by 8, 16 and 24 to the left
 *	round_key_planes()	each bit of a word spread over a lane
 * and defines after:
 *	counter_planes()	a word that grows by one from block to block, modulo 2^32
 *
 * The S-box circuit leaves out the S-box's two constants. The one at its output would add
 * L(d3d3d3d3) = 4f4f4f4f to each word that a round makes. The planes do without it, so words with
 * floor(j / 4) odd are held with that difference; both constants go into the round keys, and the last
 * four words (32 to 35) come out right.
 *
 * Source: GB/T 32907-2016, clauses 6 and 7.
 */
#ifndef SITS_CRYPTO_SM4_BITSLICE_H
#define SITS_CRYPTO_SM4_BITSLICE_H

#include "crypto/sm4_sbox.h"

static void counter_planes(word p[8], u32 first);

#define SM4_REP4(byte)	((u32)(byte) * 0x01010101u)
#define SM4_OUT_L	SM4_REP4(0x4f)

/* The round key of round r as the circuit wants it. */
static inline u32 round_key_adjust(u32 rk, unsigned int r)
{
	u32 odd = (r >> 2 ^ r) & 1;

	return rk ^ SM4_REP4(SITS_SM4_SBOX_IN) ^ (SM4_OUT_L & (0u - odd));
}

/* x0 ^= L(T(x1 ^ x2 ^ x3 ^ rk)), L(b) = b ^ b<<<2 ^ b<<<10 ^ b<<<18 ^ b<<<24. */
static inline __attribute__((always_inline)) void sm4_round(word *x0, const word *x1, const word *x2,
							    const word *x3, u32 rk)
{
	word s[8], t[8];
	int i;

	round_key_planes(s, rk);
	for (i = 0; i < 8; i++)
		s[i] ^= x1[i] ^ x2[i] ^ x3[i];
	sm4_sbox(s);
	for (i = 0; i < 8; i++) {
		word u = s[i] ^ lanes8(s[i]);

		t[i] = u ^ lanes16(s[i]);	/* b ^ b<<<8 ^ b<<<16, still to be rotated by 2 */
		x0[i] ^= lanes24(u);		/* b ^ b<<<24 */
	}
	for (i = 2; i < 8; i++)
		x0[i] ^= t[i - 2];
	x0[0] ^= lanes8(t[6]);
	x0[1] ^= lanes8(t[7]);
}

static inline __attribute__((always_inline)) void sm4_rounds(word p[4][8], const u32 rk[32])
{
	unsigned int r;

	for (r = 0; r < 32; r += 4) {
		sm4_round(p[0], p[1], p[2], p[3], round_key_adjust(rk[r], r));
		sm4_round(p[1], p[2], p[3], p[0], round_key_adjust(rk[r + 1], r + 1));
		sm4_round(p[2], p[3], p[0], p[1], round_key_adjust(rk[r + 2], r + 2));
		sm4_round(p[3], p[0], p[1], p[2], round_key_adjust(rk[r + 3], r + 3));
	}
}

/* The blocks of a counter: as load() of ctr, ctr + 1, .. would, but that the last word has no carry. */
static inline __attribute__((always_inline)) void sm4_counters(word p[4][8], const u8 ctr[16])
{
	int w;

	for (w = 0; w < 3; w++)
		round_key_planes(p[w], sits_get_be32(ctr + 4 * w));
	counter_planes(p[3], sits_get_be32(ctr + 12));
}

/* Exchange the bits of b at mask with those of a at mask << n. */
static inline __attribute__((always_inline)) void swap_bits(word *a, word *b, word mask, int n)
{
	word t = ((*a >> n) ^ *b) & mask;

	*b ^= t;
	*a ^= t << n;
}

/* In each byte: bit i of v[g] becomes bit g of v[i]. Its own inverse. @m1, @m2, @m4: 0x55.., 0x33.., 0x0f.. */
static inline __attribute__((always_inline)) void transpose_bits(word v[8], word m1, word m2, word m4)
{
	int i;

	for (i = 0; i < 8; i += 2)
		swap_bits(&v[i], &v[i + 1], m1, 1);
	for (i = 0; i < 8; i++) {
		if (!(i & 2))
			swap_bits(&v[i], &v[i + 2], m2, 2);
	}
	for (i = 0; i < 4; i++)
		swap_bits(&v[i], &v[i + 4], m4, 4);
}

#endif
