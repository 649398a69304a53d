/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * ghash.h - GHASH, for gcm.c and its tests; not for callers of crypto/.
 */
#ifndef SITS_CRYPTO_GHASH_H
#define SITS_CRYPTO_GHASH_H

#include "crypto/port.h"

#define SITS_GHASH_AGGREGATE	8	/* blocks multiplied for one reduction */
#define SITS_GHASH_LIMBS	3	/* high and low 64 bits, and their sum */
#define SITS_GHASH_FORMS	9	/* products of 4-term polynomials by Karatsuba's method, twice */

/* Secret: sits_wipe() it when done. */
struct sits_ghash {
	u64 y[2];	/* running value, the bits in the order of the standard: [0] first */
	bool many;	/* all powers are there, not only the first */
	/* [limb][form][i]: H^(SITS_GHASH_AGGREGATE - i), cut up for multiplying */
	u64 h[SITS_GHASH_LIMBS][SITS_GHASH_FORMS][SITS_GHASH_AGGREGATE];
};

/* The hash key as gcm keys keep it, from E(0^128). */
void sits_ghash_key(u64 h[2], const u8 raw[16]);

/* Start a hash over about so many bytes (a hint: fewer powers of the key are made for short messages). */
void sits_ghash_init(struct sits_ghash *g, const u64 h[2], u64 len_hint);

/* Feed len bytes, padded with zeros to whole blocks. */
void sits_ghash_update(struct sits_ghash *g, const u8 *data, size_t len);

/* Feed the block of lengths and give the hash. */
void sits_ghash_final(struct sits_ghash *g, u64 aad_len, u64 text_len, u8 out[16]);

#endif
