// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_portable.c - the core that needs nothing of the machine: the bitsliced ciphers, and GHASH by integer multiplication.
 *
 * Each function does its work in another, which is not inlined, and then cleans up what the compiler left behind below.
 *
 * Batches are 32 blocks in 128-bit vectors (userspace), or 16 in 64-bit integers (few blocks, and the kernel).
 */
#include "crypto/sm4_impl.h"

#define BATCH	(SITS_HAVE_VECTORS ? SITS_SM4_BS128_BLOCKS : SITS_SM4_BS64_BLOCKS)

/* GCM ciphers and hashes by turns in pieces that stay in the first cache. */
#define GCM_PIECE_BLOCKS 256

static sits_noinline void crypt_blocks(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks)
{
	if (SITS_HAVE_VECTORS && nr_blocks > SITS_SM4_BS64_BLOCKS)
		sits_sm4_crypt_bs128(rk, dst, src, nr_blocks);
	else
		sits_sm4_crypt_bs64(rk, dst, src, nr_blocks);
}

static size_t next_batch(size_t nr_blocks)
{
	return nr_blocks < BATCH ? nr_blocks : BATCH;
}

static sits_noinline void decrypt_cbc(const u32 rk[32], u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	u8 before[16 * BATCH];	/* what each block is to be added to: ciphertext */
	size_t n;

	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = next_batch(nr_blocks);
		memcpy(before, iv, 16);
		memcpy(before + 16, src, 16 * (n - 1));
		memcpy(iv, src + 16 * (n - 1), 16);
		crypt_blocks(rk, dst, src, n);
		sits_xor(dst, dst, before, 16 * n);
	}
}

/* Write nr counter blocks: the way round when the carry leaves the last word. */
static void write_counters(u8 *out, const u8 ctr[16], size_t nr)
{
	u64 hi = sits_get_be64(ctr), lo = sits_get_be64(ctr + 8);

	for (; nr--; out += 16) {
		sits_put_be64(out, hi);
		sits_put_be64(out + 8, lo);
		hi += !++lo;
	}
}

static void advance(u8 ctr[16], u32 nr, int wrap_bits)
{
	u64 lo = sits_get_be64(ctr + 8);

	if (wrap_bits == 32) {
		sits_put_be32(ctr + 12, (u32)lo + nr);
		return;
	}
	sits_put_be64(ctr + 8, lo + nr);
	if (lo + nr < lo)
		sits_put_be64(ctr, sits_get_be64(ctr) + 1);
}

/* Keystream for nr blocks or more. The counter is public: its value may be branched on. */
static void make_stream(const u32 rk[32], u8 ctr[16], u8 stream[16 * BATCH], size_t nr, int wrap_bits)
{
	if (wrap_bits != 32 && (u32)(sits_get_be32(ctr + 12) + nr - 1) < nr - 1) {
		write_counters(stream, ctr, nr);
		crypt_blocks(rk, stream, stream, nr);
	} else if (SITS_HAVE_VECTORS && nr > SITS_SM4_BS64_BLOCKS) {
		sits_sm4_stream_bs128(rk, ctr, stream);
	} else {
		sits_sm4_stream_bs64(rk, ctr, stream);
	}
	advance(ctr, (u32)nr, wrap_bits);
}

static sits_noinline void crypt_ctr(const u32 rk[32], u8 ctr[16], u8 *dst, const u8 *src, size_t nr_blocks, int wrap_bits)
{
	u8 stream[16 * BATCH];
	size_t n;

	if (!nr_blocks)
		return;
	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = next_batch(nr_blocks);
		make_stream(rk, ctr, stream, n, wrap_bits);
		sits_xor(dst, src, stream, 16 * n);
	}
	sits_wipe(stream, sizeof(stream));
}

/* The tweak goes on in integers, and not through memory, where each step would wait for the one before to be stored. */
static sits_noinline void crypt_xts(const u32 rk[32], u8 tweak[16], u8 *dst, const u8 *src, size_t nr_blocks, bool gb)
{
	u8 tweaks[16 * BATCH];
	u64 t[2];
	size_t n, i;

	sits_xts_load(t, tweak, gb);
	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = next_batch(nr_blocks);
		for (i = 0; i < n; i++) {
			sits_xts_store(tweaks + 16 * i, t, gb);
			sits_xts_step(t, gb);
		}
		sits_xor(dst, src, tweaks, 16 * n);
		crypt_blocks(rk, dst, dst, n);
		sits_xor(dst, dst, tweaks, 16 * n);
	}
	sits_xts_store(tweak, t, gb);
	sits_wipe(tweaks, sizeof(tweaks));
}

static size_t next_gcm_piece(size_t nr_blocks)
{
	return nr_blocks < GCM_PIECE_BLOCKS ? nr_blocks : GCM_PIECE_BLOCKS;
}

static sits_noinline void crypt_gcm(const u32 rk[32], const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *dst,
				    const u8 *src, size_t nr_blocks, bool encrypt)
{
	size_t n;

	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = next_gcm_piece(nr_blocks);
		if (!encrypt)
			sits_ghash_portable(key, y, src, n);
		crypt_ctr(rk, ctr, dst, src, n, 32);
		if (encrypt)
			sits_ghash_portable(key, y, dst, n);
	}
}

static void portable_crypt(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks)
{
	crypt_blocks(k->rk, dst, src, nr_blocks);
	sits_clean(SITS_CLEAN_PORTABLE);
}

static void portable_cbc_decrypt(const struct sits_sm4_rounds *dec, u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	decrypt_cbc(dec->rk, iv, dst, src, nr_blocks);
	sits_clean(SITS_CLEAN_PORTABLE);
}

static void portable_ctr128(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	crypt_ctr(enc->rk, ctr, dst, src, nr_blocks, 128);
	sits_clean(SITS_CLEAN_PORTABLE);
}

static void portable_ctr32(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	crypt_ctr(enc->rk, ctr, dst, src, nr_blocks, 32);
	sits_clean(SITS_CLEAN_PORTABLE);
}

static void portable_xts(const struct sits_sm4_rounds *k, u8 tweak[16], u8 *dst, const u8 *src, size_t nr_blocks, bool gb)
{
	crypt_xts(k->rk, tweak, dst, src, nr_blocks, gb);
	sits_clean(SITS_CLEAN_PORTABLE);
}

/* Nothing: h is all that sits_ghash_portable() takes. */
static void portable_ghash_key(struct sits_ghash_key *key)
{
}

static void portable_ghash(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr_blocks)
{
	sits_ghash_portable(key, y, data, nr_blocks);
	sits_clean(SITS_CLEAN_PORTABLE);
}

static void portable_gcm_encrypt(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16],
				 u8 *dst, const u8 *src, size_t nr_blocks)
{
	crypt_gcm(enc->rk, key, ctr, y, dst, src, nr_blocks, true);
	sits_clean(SITS_CLEAN_PORTABLE);
}

static void portable_gcm_decrypt(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16],
				 u8 *dst, const u8 *src, size_t nr_blocks)
{
	crypt_gcm(enc->rk, key, ctr, y, dst, src, nr_blocks, false);
	sits_clean(SITS_CLEAN_PORTABLE);
}

const struct sits_sm4_core sits_sm4_portable = {
	.name = "portable",
	.crypt = portable_crypt,
	.cbc_decrypt = portable_cbc_decrypt,
	.ctr128 = portable_ctr128,
	.ctr32 = portable_ctr32,
	.xts = portable_xts,
	.ghash_key = portable_ghash_key,
	.ghash = portable_ghash,
	.gcm_encrypt = portable_gcm_encrypt,
	.gcm_decrypt = portable_gcm_decrypt,
};
