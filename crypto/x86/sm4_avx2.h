/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_avx2.h - which function of an AVX2 core's assembly does how many blocks; for the .c files of those cores, which define
 * SITS_AVX2(NAME) as the core's function of that name first.
 *
 * What handles keys and text is all in assembly (sm4_avx2_asm.h), which wipes what it used: nothing here has any to leave behind.
 */
#ifndef SITS_CRYPTO_X86_SM4_AVX2_H
#define SITS_CRYPTO_X86_SM4_AVX2_H

#include "crypto/sm4_core.h"

/* The assembly knows them. */
_Static_assert(__builtin_offsetof(struct sits_sm4_rounds, affine) == 128, "ROUND_KEYS in sm4_avx2_asm.h");
_Static_assert(__builtin_offsetof(struct sits_ghash_key, powers) == 16, "POWERS in ghash_avx2_asm.h");
_Static_assert(SITS_GHASH_POWERS == 32, "the blocks that ghash_avx2_asm.h reduces at once");

/*
 * NAME64: any number of blocks from 1 on, in batches of 64; NAME16: 1 to 16; NAME4: 1 to 4. All take as long for less as for a
 * whole batch. dst may be src. iv, tweak and ctr advance, but that ctr16 and ctr4 leave it as it is, and count in its last 32 bits.
 */
void SITS_AVX2(ecb64)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks);
void SITS_AVX2(ecb16)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks);
void SITS_AVX2(ecb4)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks);
void SITS_AVX2(cbc64)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 iv[16]);
void SITS_AVX2(cbc16)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 iv[16]);
void SITS_AVX2(cbc4)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 iv[16]);
void SITS_AVX2(xts64)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 tweak[16]);
void SITS_AVX2(xts16)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 tweak[16]);
void SITS_AVX2(xts4)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 tweak[16]);
void SITS_AVX2(xts64_gb)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 tweak[16]);
void SITS_AVX2(xts16_gb)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 tweak[16]);
void SITS_AVX2(xts4_gb)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 tweak[16]);
void SITS_AVX2(ctr64)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, u8 ctr[16], u32 of32);
void SITS_AVX2(ctr16)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, const u8 ctr[16]);
void SITS_AVX2(ctr4)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks, const u8 ctr[16]);
void SITS_AVX2(ghash_key)(struct sits_ghash_key *key);
void SITS_AVX2(ghash)(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr_blocks);

/* Of n blocks, so many go to the function for 64: all but the last 32, at most, which take less time in pieces of 16. */
static inline size_t avx2_many(size_t n)
{
	return n % 64 > 32 ? n : n - n % 64;
}

static inline size_t avx2_few(size_t n)
{
	return n < 16 ? n : 16;
}

static void avx2_crypt(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t n)
{
	size_t piece = avx2_many(n);

	if (piece)
		SITS_AVX2(ecb64)(k, dst, src, piece);
	while (n -= piece) {
		dst += piece * 16;
		src += piece * 16;
		piece = avx2_few(n);
		(piece > 4 ? SITS_AVX2(ecb16) : SITS_AVX2(ecb4))(k, dst, src, piece);
	}
}

static void avx2_cbc_decrypt(const struct sits_sm4_rounds *dec, u8 iv[16], u8 *dst, const u8 *src, size_t n)
{
	size_t piece = avx2_many(n);

	if (piece)
		SITS_AVX2(cbc64)(dec, dst, src, piece, iv);
	while (n -= piece) {
		dst += piece * 16;
		src += piece * 16;
		piece = avx2_few(n);
		(piece > 4 ? SITS_AVX2(cbc16) : SITS_AVX2(cbc4))(dec, dst, src, piece, iv);
	}
}

static void avx2_xts(const struct sits_sm4_rounds *k, u8 tweak[16], u8 *dst, const u8 *src, size_t n, bool gb)
{
	size_t piece = avx2_many(n);

	if (piece)
		(gb ? SITS_AVX2(xts64_gb) : SITS_AVX2(xts64))(k, dst, src, piece, tweak);
	while (n -= piece) {
		dst += piece * 16;
		src += piece * 16;
		piece = avx2_few(n);
		if (piece > 4)
			(gb ? SITS_AVX2(xts16_gb) : SITS_AVX2(xts16))(k, dst, src, piece, tweak);
		else
			(gb ? SITS_AVX2(xts4_gb) : SITS_AVX2(xts4))(k, dst, src, piece, tweak);
	}
}

static inline __attribute__((always_inline)) void avx2_ctr(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src,
							   size_t n, bool of32)
{
	size_t piece = avx2_many(n);
	u32 low;

	if (piece)
		SITS_AVX2(ctr64)(enc, dst, src, piece, ctr, of32);
	while (n -= piece) {
		dst += piece * 16;
		src += piece * 16;
		piece = avx2_few(n);
		low = sits_get_be32(ctr + 12);
		if (!of32 && low > 0xffffffff - piece) {
			/* It carries, which this one alone knows. */
			piece = n;
			SITS_AVX2(ctr64)(enc, dst, src, piece, ctr, of32);
			continue;
		}
		(piece > 4 ? SITS_AVX2(ctr16) : SITS_AVX2(ctr4))(enc, dst, src, piece, ctr);
		sits_put_be32(ctr + 12, low + (u32)piece);
	}
}

/* GCM by pieces that stay in the first-level cache. */
static inline size_t avx2_gcm_piece(size_t n)
{
	return n < 256 ? n : 256;
}

static void avx2_gcm_encrypt(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *dst,
			     const u8 *src, size_t n)
{
	for (size_t piece; n; n -= piece, dst += piece * 16, src += piece * 16) {
		piece = avx2_gcm_piece(n);
		avx2_ctr(enc, ctr, dst, src, piece, true);
		SITS_AVX2(ghash)(key, y, dst, piece);
	}
}

static void avx2_gcm_decrypt(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *dst,
			     const u8 *src, size_t n)
{
	for (size_t piece; n; n -= piece, dst += piece * 16, src += piece * 16) {
		piece = avx2_gcm_piece(n);
		SITS_AVX2(ghash)(key, y, src, piece);
		avx2_ctr(enc, ctr, dst, src, piece, true);
	}
}

static void avx2_ctr128(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t n)
{
	avx2_ctr(enc, ctr, dst, src, n, false);
}

static void avx2_ctr32(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t n)
{
	avx2_ctr(enc, ctr, dst, src, n, true);
}

/* Of the core's table: all but what it is called and needs. */
#define SITS_AVX2_FUNCTIONS			\
	.crypt = avx2_crypt,			\
	.cbc_decrypt = avx2_cbc_decrypt,	\
	.ctr128 = avx2_ctr128,			\
	.ctr32 = avx2_ctr32,			\
	.xts = avx2_xts,			\
	.ghash_key = SITS_AVX2(ghash_key),	\
	.ghash = SITS_AVX2(ghash),		\
	.gcm_encrypt = avx2_gcm_encrypt,	\
	.gcm_decrypt = avx2_gcm_decrypt

#endif
