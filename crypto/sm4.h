/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4.h - the SM4 block cipher and the modes that SITS uses: ECB (reading only), CTR, GCM.
 *
 * Freestanding: the same source builds in the kernel module and in libsits. Timing of every
 * function here depends on lengths alone, never on keys or data.
 *
 * Source: GB/T 32907-2016 (SM4); NIST SP 800-38D and RFC 8998 (GCM with SM4).
 */
#ifndef SITS_CRYPTO_SM4_H
#define SITS_CRYPTO_SM4_H

#include "crypto/port.h"

#define SITS_SM4_KEY_LEN	16
#define SITS_SM4_BLOCK_LEN	16
#define SITS_GCM_IV_LEN		12
#define SITS_GCM_TAG_LEN	16

/* Round keys; secret: wipe with sits_wipe(). */
struct sits_sm4_key {
	u32 enc[32];
	u32 dec[32];
};

void sits_sm4_expand_key(struct sits_sm4_key *key, const u8 raw[SITS_SM4_KEY_LEN]);
void sits_sm4_encrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src);	/* dst may be src */
void sits_sm4_decrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src);

/* nr_blocks whole blocks; dst may be src, else they may not overlap. */
void sits_sm4_ecb_decrypt(const struct sits_sm4_key *key, u8 *dst, const u8 *src, size_t nr_blocks);

/* CTR with a 128-bit big-endian counter in iv, which is advanced past the blocks used (a partial last block
 * counts as one). Encrypts and decrypts. */
void sits_sm4_ctr(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t len);

/* GCM key: round keys and the GHASH key; secret. */
struct sits_gcm_key {
	struct sits_sm4_key sm4;
	u64 h[2];
};

void sits_gcm_set_key(struct sits_gcm_key *key, const u8 raw[SITS_SM4_KEY_LEN]);

/**
 * sits_gcm_encrypt() - Seal len bytes in one call.
 * @dst: len bytes; may be src
 * @tag: out, SITS_GCM_TAG_LEN bytes
 */
void sits_gcm_encrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		      u8 *dst, const u8 *src, size_t len, u8 tag[SITS_GCM_TAG_LEN]);

/**
 * sits_gcm_decrypt() - Open len bytes in one call.
 * @dst: may be src. Wiped (zeros) where the tag does not verify
 * Return: 0; -EBADMSG.
 */
int sits_gcm_decrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		     u8 *dst, const u8 *src, size_t len, const u8 tag[SITS_GCM_TAG_LEN]);

#endif
