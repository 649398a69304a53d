/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4.h - the SM4 block cipher and its modes: ECB, CBC, CTR, XTS in two forms, GCM.
 *
 * Freestanding: the same source builds in the kernel module and in libsits. Timing of every function here depends on lengths,
 * addresses, counters and on whether a tag is right, never on keys or data. All take any alignment; dst may be src, else the
 * two may not overlap. A key may be used by many threads at once, the state of a message by one at a time.
 *
 * Keys and states are secret: their owners wipe them with sits_wipe(), where no function here says that it does. They may be
 * copied; a state goes on pointing to its key, which stays where it is meanwhile.
 *
 * In the kernel: any context. Vector registers are entered and left inside, for no more than SITS_SIMD_BYTES at a time; where
 * they may not be used, the portable core does the work.
 *
 * Source: GB/T 32907-2016 (SM4); GB/T 17964-2021 and NIST SP 800-38A, D, E (modes); RFC 8998 (GCM with SM4); IEEE Std 1619 (XTS).
 */
#ifndef SITS_CRYPTO_SM4_H
#define SITS_CRYPTO_SM4_H

#include "crypto/port.h"
#include "crypto/sm4_core.h"

#define SITS_SM4_KEY_LEN	16
#define SITS_SM4_BLOCK_LEN	16
#define SITS_XTS_KEY_LEN	32
#define SITS_GCM_IV_LEN		12
#define SITS_GCM_TAG_LEN	16

/* SP 800-38D, clause 5.2.1.1: 2^39 - 256 bits of text, else the counter would come round; 2^64 - 1 bits of associated data. */
#define SITS_GCM_TEXT_MAX	((1ULL << 36) - 32)
#define SITS_GCM_AAD_MAX	((1ULL << 61) - 1)

/* Round keys for either direction, and the core that all use of them goes to. */
struct sits_sm4_key {
	struct sits_sm4_rounds enc, dec;
	const struct sits_sm4_core *core;
};

/** sits_sm4_best() - The core that keys are made for: the best that this machine can run and that passes its self-test. */
const struct sits_sm4_core *sits_sm4_best(void);

/**
 * sits_sm4_limit() - Make sits_sm4_best() give the core of this name, for tests and benchmarks; NULL: the best again.
 * Return: 0; -ENOENT where this machine cannot run such a core.
 */
int sits_sm4_limit(const char *name);

/**
 * sits_sm4_selftest() - Known answers of every mode on one core, long enough for its longest batch; some 50 microseconds.
 * Context: in the kernel, process context, by one caller at a time.
 * Return: 0; -EBADMSG.
 */
int sits_sm4_selftest(const struct sits_sm4_core *core);

void sits_sm4_expand_key(struct sits_sm4_key *key, const u8 raw[SITS_SM4_KEY_LEN]);	/* on sits_sm4_best() */
void sits_sm4_expand_key_on(const struct sits_sm4_core *core, struct sits_sm4_key *key, const u8 raw[SITS_SM4_KEY_LEN]);

void sits_sm4_encrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src);
void sits_sm4_decrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src);

/* nr_blocks whole blocks. */
void sits_sm4_ecb_encrypt(const struct sits_sm4_key *key, u8 *dst, const u8 *src, size_t nr_blocks);
void sits_sm4_ecb_decrypt(const struct sits_sm4_key *key, u8 *dst, const u8 *src, size_t nr_blocks);

/* iv: in the block before, out the last block of ciphertext, so that a message may come in pieces. */
void sits_sm4_cbc_encrypt(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks);
void sits_sm4_cbc_decrypt(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks);

/*
 * CTR with a 128-bit big-endian counter in iv, which is advanced past the blocks used (a partial last block counts as one).
 * Encrypts and decrypts.
 */
void sits_sm4_ctr(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t len);

/* The same with a message in pieces of any length. */
struct sits_sm4_stream {
	const struct sits_sm4_key *key;	/* borrowed until the end */
	u8 ctr[16];	/* the next counter */
	u8 stream[16];	/* keystream of the block begun */
	u32 used;	/* bytes of it that are used; 16: none is left */
};

void sits_sm4_stream_start(struct sits_sm4_stream *s, const struct sits_sm4_key *key, const u8 iv[16]);
void sits_sm4_stream_crypt(struct sits_sm4_stream *s, u8 *dst, const u8 *src, size_t len);
void sits_sm4_stream_end(struct sits_sm4_stream *s);	/* wipes s */

/*
 * XTS. The two forms differ in how the tweak of the next block is made of the last: IEEE 1619 (the xts(sm4) of Linux, and
 * what others call SM4-XTS) takes the bits of a byte from the least significant on, GB/T 17964-2021 from the most
 * significant. They agree on the first block alone. Both end with the same ciphertext stealing.
 */
enum sits_xts_form {
	SITS_XTS_IEEE,
	SITS_XTS_GB,
};

struct sits_xts_key {
	struct sits_sm4_key data, tweak;
};

/* raw: the data's key, then the tweak's. That they differ, which IEEE 1619 and SP 800-38E want, is for the caller to see to. */
void sits_xts_set_key(struct sits_xts_key *key, const u8 raw[SITS_XTS_KEY_LEN]);
void sits_xts_set_key_on(const struct sits_sm4_core *core, struct sits_xts_key *key, const u8 raw[SITS_XTS_KEY_LEN]);

/**
 * sits_xts_encrypt() - One data unit in one call.
 * @iv: its number, or whatever its tweak is made of
 * @len: any of at least 16 bytes
 * Return: 0; -EINVAL for a len below 16.
 */
int sits_xts_encrypt(const struct sits_xts_key *key, enum sits_xts_form form, const u8 iv[16], u8 *dst, const u8 *src,
		     size_t len);
int sits_xts_decrypt(const struct sits_xts_key *key, enum sits_xts_form form, const u8 iv[16], u8 *dst, const u8 *src,
		     size_t len);

/*
 * One data unit in pieces: start; whole blocks in any number of calls; and, where the unit is no multiple of a block, its last
 * whole block and the rest in one call, 16 < len < 32. The tweak is secret, and wiped by the caller.
 */
void sits_xts_start(const struct sits_xts_key *key, u8 tweak[16], const u8 iv[16]);
void sits_xts_encrypt_blocks(const struct sits_xts_key *key, enum sits_xts_form form, u8 tweak[16], u8 *dst, const u8 *src,
			     size_t nr_blocks);
void sits_xts_decrypt_blocks(const struct sits_xts_key *key, enum sits_xts_form form, u8 tweak[16], u8 *dst, const u8 *src,
			     size_t nr_blocks);
void sits_xts_encrypt_tail(const struct sits_xts_key *key, enum sits_xts_form form, const u8 tweak[16], u8 *dst,
			   const u8 *src, size_t len);
void sits_xts_decrypt_tail(const struct sits_xts_key *key, enum sits_xts_form form, const u8 tweak[16], u8 *dst,
			   const u8 *src, size_t len);

struct sits_gcm_key {
	struct sits_sm4_key sm4;
	struct sits_ghash_key hash;
};

void sits_gcm_set_key(struct sits_gcm_key *key, const u8 raw[SITS_SM4_KEY_LEN]);
void sits_gcm_set_key_on(const struct sits_sm4_core *core, struct sits_gcm_key *key, const u8 raw[SITS_SM4_KEY_LEN]);

/**
 * sits_gcm_encrypt() - Seal len bytes in one call, with a nonce of 96 bits.
 * @dst: len bytes; may be src
 * @tag: out, SITS_GCM_TAG_LEN bytes
 * Return: 0; -EMSGSIZE for a len over SITS_GCM_TEXT_MAX, or associated data over SITS_GCM_AAD_MAX: nothing was written.
 */
int sits_gcm_encrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		     u8 *dst, const u8 *src, size_t len, u8 tag[SITS_GCM_TAG_LEN]);

/**
 * sits_gcm_decrypt() - Open len bytes in one call, with a nonce of 96 bits.
 * @dst: may be src. Wiped (zeros) where the tag does not verify
 * Return: 0; -EBADMSG.
 */
int sits_gcm_decrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		     u8 *dst, const u8 *src, size_t len, const u8 tag[SITS_GCM_TAG_LEN]);

/*
 * GCM with a message in pieces: start, associated data in any pieces, text in any pieces, and one of final (encrypting) or
 * verify (decrypting). What is decrypted before verify agrees is not authentic: the caller keeps it to itself, and wipes it
 * where verify refuses.
 */
struct sits_gcm {
	const struct sits_gcm_key *key;	/* borrowed until the end */
	u64 aad_len, text_len;
	u8 y[16];	/* the hash so far, up to whole blocks */
	u8 part[16];	/* the begun block of associated data, or ciphertext: what is to be hashed of it */
	u8 ctr[16];	/* the next counter */
	u8 stream[16];	/* keystream of the begun block */
	u8 mask[16];	/* E(J0), which is added to the hash; J0 as long as it is not masked */
	u32 masked;
	u32 in_text;	/* the text has begun */
};

/* iv_len: 12, or any other from 1 on. Return: 0; -EINVAL for an iv_len of 0. */
int sits_gcm_start(struct sits_gcm *s, const struct sits_gcm_key *key, const u8 *iv, size_t iv_len);
/* Return: 0; -EINVAL after text, -EMSGSIZE over SITS_GCM_AAD_MAX in all: nothing was done. */
int sits_gcm_aad(struct sits_gcm *s, const u8 *aad, size_t len);
/* Return: 0; -EMSGSIZE over SITS_GCM_TEXT_MAX in all: nothing was done. */
int sits_gcm_update_encrypt(struct sits_gcm *s, u8 *dst, const u8 *src, size_t len);
int sits_gcm_update_decrypt(struct sits_gcm *s, u8 *dst, const u8 *src, size_t len);
/* Ciphertext to verify, and not to decipher: the whole message this way, or none of it. Return: as decrypting. */
int sits_gcm_update_auth(struct sits_gcm *s, const u8 *src, size_t len);
void sits_gcm_final(struct sits_gcm *s, u8 tag[SITS_GCM_TAG_LEN]);	/* wipes s */
/* tag: its first len bytes, 4 to 16. Wipes s. Return: 0; -EBADMSG; -EINVAL for a len out of range. */
int sits_gcm_verify(struct sits_gcm *s, const u8 *tag, size_t len);
void sits_gcm_abandon(struct sits_gcm *s);	/* wipes s; for a message that is not brought to its end */

#endif
