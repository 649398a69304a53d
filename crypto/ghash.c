// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * ghash.c - GHASH in constant time, by multiplying polynomials over GF(2) as integers with holes.
 *
 * An integer multiplication adds where a carry-less one XORs. If only every fourth bit of either factor
 * may be set, and at most 15 products meet in a place, then the sums stay within their four bits, and
 * the lowest bit of each is the XOR. So a 64-bit factor is split into four classes of bits
 *
 *	x = x0 + t x1 + t^2 x2 + t^3 x3,	each xr having bits 0, 4, 8 .. 60 only,
 *
 * and the 4 x 4 products of classes are reduced to 9 by Karatsuba's method, whose sums are XORs of
 * classes (9 "forms" of each factor). One factor keeps to 60 bits, so that 15 is the most that meets; its top
 * four bits multiply the other's classes apart, where nothing meets at all. The 128-bit product is three 64-bit products, by
 * Karatsuba again. XOR of such products commutes with taking the lowest bits, so that the products of
 * several blocks with falling powers of H are summed first, and masked, joined and reduced once.
 *
 * All instructions used have timing independent of data on the 64-bit machines that SITS runs on
 * (integer multiplication included).
 *
 * Bit order: GHASH numbers bits from the most significant of the first byte. Loaded as big-endian numbers,
 * polynomials appear reversed, and the 255-bit product appears shifted by one, which is the same as
 * multiplied by t: the key is kept divided by t to make up for it.
 *
 * Source: NIST SP 800-38D, clause 6.
 */
#include "crypto/sm4_impl.h"

typedef unsigned __int128 u128_t;

#define LIMBS	3	/* high and low 64 bits, and their sum */
#define FORMS	9	/* products of 4-term polynomials by Karatsuba's method, twice */
#define MANY	8	/* blocks multiplied for one reduction */

/* From so many blocks on, making the powers of the key pays. */
#define MANY_FROM 24

/* Secret. */
struct hash {
	u64 y[2];	/* running value, the bits in the order of the standard: [0] first */
	/* [limb][form][i]: H^(MANY - i), cut up for multiplying */
	u64 h[LIMBS][FORMS][MANY];
};

#define CLASS_MASK	0x1111111111111111ULL
#define LOW_60		0x0fffffffffffffffULL

/* The sums of classes that Karatsuba's method multiplies: {x0, x1}, {x2, x3}, and {x0 + x2, x1 + x3}. */
static inline __attribute__((always_inline)) void make_forms(u64 f[FORMS], u64 x)
{
	f[0] = x & CLASS_MASK;
	f[1] = x >> 1 & CLASS_MASK;
	f[2] = f[0] ^ f[1];
	f[3] = x >> 2 & CLASS_MASK;
	f[4] = x >> 3 & CLASS_MASK;
	f[5] = f[3] ^ f[4];
	f[6] = f[0] ^ f[3];
	f[7] = f[1] ^ f[4];
	f[8] = f[2] ^ f[5];
}

static inline u128_t low_bits(u128_t x)
{
	return x & ((u128_t)CLASS_MASK << 64 | CLASS_MASK);
}

/* Products of two-term polynomials: a b, and the middle from the product of sums. */
static inline u128_t join(u128_t p0, u128_t p1, u128_t sums)
{
	return p0 ^ (p0 ^ p1 ^ sums) << 1 ^ p1 << 2;
}

/* The sum of n products: carry-less but for what low_bits() removes. */
static inline __attribute__((always_inline)) u128_t sum_products(const u64 *a, const u64 *b, unsigned int n)
{
	u128_t acc = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		acc ^= (u128_t)a[i] * b[i];
	return low_bits(acc);
}

/* The same for the top four bits of a limb: 64 bits hold each product, and all its bits are meant. */
static inline __attribute__((always_inline)) u64 sum_top(const u64 *nibble, const u64 *b, unsigned int n)
{
	u64 acc = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		acc ^= nibble[i] * b[i];
	return acc;
}

/*
 * The carry-less products of n limbs with as many of the key's, summed. @y: limbs; @h: [form][i] of
 * the same limb of the key's powers, from index first on.
 */
static inline __attribute__((always_inline)) u128_t limb_products(const u64 *y, unsigned int n,
								  const u64 h[FORMS][MANY], unsigned int first)
{
	u64 f[FORMS][MANY], nibble[MANY], x[FORMS];
	u128_t low, high, mid, top;
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		make_forms(x, y[i] & LOW_60);
		for (k = 0; k < FORMS; k++)
			f[k][i] = x[k];
		nibble[i] = y[i] >> 60;
	}
	low = join(sum_products(f[0], h[0] + first, n), sum_products(f[1], h[1] + first, n),
		   sum_products(f[2], h[2] + first, n));
	high = join(sum_products(f[3], h[3] + first, n), sum_products(f[4], h[4] + first, n),
		    sum_products(f[5], h[5] + first, n));
	mid = join(sum_products(f[6], h[6] + first, n), sum_products(f[7], h[7] + first, n),
		   sum_products(f[8], h[8] + first, n)) ^ low ^ high;
	top = sum_top(nibble, h[0] + first, n) ^ (u128_t)sum_top(nibble, h[1] + first, n) << 1 ^
	      (u128_t)sum_top(nibble, h[3] + first, n) << 2 ^ (u128_t)sum_top(nibble, h[4] + first, n) << 3;
	return low ^ mid << 2 ^ high << 4 ^ top << 60;
}

/* Fold 64 coefficients of t^128 and up into the 128 below: t^128 = t^7 + t^2 + t + 1, bits reversed. */
static inline void fold(u64 x, u64 *hi, u64 *lo)
{
	*hi ^= x ^ x >> 1 ^ x >> 2 ^ x >> 7;
	*lo ^= x << 63 ^ x << 62 ^ x << 57;
}

/* y = sum of blocks[i] H^(n - i), y having been added to the first. */
static inline __attribute__((always_inline)) void multiply(struct hash *g, const u8 *blocks, unsigned int n)
{
	unsigned int i, first = MANY - n;
	u64 limb[LIMBS][MANY], z[4];
	u128_t hh, ll, mm;

	for (i = 0; i < n; i++) {
		limb[0][i] = sits_get_be64(blocks + 16 * i) ^ (i ? 0 : g->y[0]);
		limb[1][i] = sits_get_be64(blocks + 16 * i + 8) ^ (i ? 0 : g->y[1]);
		limb[2][i] = limb[0][i] ^ limb[1][i];
	}
	hh = limb_products(limb[0], n, g->h[0], first);
	ll = limb_products(limb[1], n, g->h[1], first);
	mm = limb_products(limb[2], n, g->h[2], first) ^ hh ^ ll;
	z[3] = (u64)(hh >> 64);
	z[2] = (u64)hh ^ (u64)(mm >> 64);
	z[1] = (u64)(ll >> 64) ^ (u64)mm;
	z[0] = (u64)ll;
	fold(z[0], &z[2], &z[1]);
	fold(z[1], &z[3], &z[2]);
	g->y[0] = z[3];
	g->y[1] = z[2];
}

/* Apart, so that callers do not each get a copy of so much code. */
static __attribute__((__noinline__)) void multiply_one(struct hash *g, const u8 *block)
{
	multiply(g, block, 1);
}

static __attribute__((__noinline__)) void multiply_many(struct hash *g, const u8 *blocks)
{
	multiply(g, blocks, MANY);
}

/* Divide by t: a shift to the left, where t^0 / t = t^127 + t^6 + t + 1. */
static void divide(u64 out[2], u64 hi, u64 lo)
{
	u64 carry = 0 - (hi >> 63);

	out[0] = (hi << 1 | lo >> 63) ^ (carry & 0xc200000000000000ULL);
	out[1] = lo << 1 ^ (carry & 1);
}

static void set_power(struct hash *g, unsigned int i, const u64 h[2])
{
	u64 f[FORMS];
	unsigned int limb, k;

	for (limb = 0; limb < LIMBS; limb++) {
		make_forms(f, limb == 2 ? h[0] ^ h[1] : h[limb]);
		for (k = 0; k < FORMS; k++)
			g->h[limb][k][i] = f[k];
	}
	sits_wipe(f, sizeof(f));
}

/* The key is H/t, so that H/t times a block is the block times H: H^k/t becomes H^(k+1)/t. */
static void set_many_powers(struct hash *g, const u64 h[2])
{
	unsigned int i;
	u8 block[16];

	g->y[0] = h[0];
	g->y[1] = h[1];
	for (i = MANY - 1; i-- > 0;) {
		sits_put_be64(block, g->y[0]);
		sits_put_be64(block + 8, g->y[1]);
		memset(g->y, 0, sizeof(g->y));
		multiply_one(g, block);
		set_power(g, i, g->y);
	}
	sits_wipe(block, sizeof(block));
}

void sits_ghash_portable(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr_blocks)
{
	struct hash g;
	u64 h[2];

	if (!nr_blocks)
		return;
	divide(h, key->h[0], key->h[1]);
	set_power(&g, MANY - 1, h);
	if (nr_blocks >= MANY_FROM)
		set_many_powers(&g, h);
	g.y[0] = sits_get_be64(y);
	g.y[1] = sits_get_be64(y + 8);
	if (nr_blocks >= MANY_FROM) {
		for (; nr_blocks >= MANY; nr_blocks -= MANY, data += 16 * MANY)
			multiply_many(&g, data);
	}
	for (; nr_blocks; nr_blocks--, data += 16)
		multiply_one(&g, data);
	sits_put_be64(y, g.y[0]);
	sits_put_be64(y + 8, g.y[1]);
	sits_wipe(h, sizeof(h));
	sits_wipe(&g, sizeof(g));
}
