/* SPDX-License-Identifier: MIT */
/*
 * sits/crypto.h - SM4 in its modes, and SM3, for others than SITS itself.
 *
 * A cipher is SM4 under one key in one mode, in pages of its own: locked in memory, left out of core dumps, wiped on
 * destruction, zeros in a forked child (where every call on it but destroy answers -ESTALE: make it after fork()). It
 * encrypts and decrypts whole messages in one call, from any number of threads at once; and one message at a time in pieces.
 *
 * Of all functions here: buffers are borrowed until return and have any alignment; dst may be src, else the two may not
 * overlap; a length of 0 allows NULL. Timing depends on lengths, addresses and initialisation vectors, and on whether a tag is right;
 * never on keys or data. No context of libsits is needed, and nothing is logged.
 *
 * Source: GB/T 32907-2016 (SM4), GB/T 17964-2021 and NIST SP 800-38A, D, E (modes), IEEE Std 1619 (XTS), RFC 8998 (GCM with SM4),
 * GB/T 32905-2016 (SM3).
 */
#ifndef SITS_CRYPTO_H
#define SITS_CRYPTO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sits_cipher;
struct sits_hash;

/*                                        key  iv        length of a message
 *                                        ---  --------  ----------------------------------- */
#define SITS_CIPHER_SM4_ECB	1	/* 16   none      whole blocks of 16; hides no patterns */
#define SITS_CIPHER_SM4_CBC	2	/* 16   16        whole blocks of 16; not padded */
#define SITS_CIPHER_SM4_CTR	3	/* 16   16        any; iv counts up as a number of 128 bits */
#define SITS_CIPHER_SM4_GCM	4	/* 16   1 up: 12  up to 2^36 - 32; authenticated */
#define SITS_CIPHER_SM4_XTS	5	/* 32   16        16 up; IEEE 1619, what Linux and others call xts(sm4) */
#define SITS_CIPHER_SM4_XTS_GB	6	/* 32   16        16 up; GB/T 17964-2021: other ciphertext from block 2 on */

#define SITS_CIPHER_IV_LEN	16
#define SITS_CIPHER_GCM_IV_LEN	12	/* the length to use where nothing demands another */
#define SITS_CIPHER_TAG_LEN	16

/* Flags of sits_cipher_create() and sits_hash_create(). */
#define SITS_CRYPTO_MAY_SWAP	(1u << 0)	/* go on where RLIMIT_MEMLOCK does not let the memory be locked */

/* Directions. */
#define SITS_CIPHER_DECRYPT	0
#define SITS_CIPHER_ENCRYPT	1

/**
 * sits_cipher_create() - SM4 under a key.
 * @type: SITS_CIPHER_SM4_*
 * @key: copied; the caller wipes its own
 * @key_len: 16; for XTS 32: the data's key, then the tweak's
 * @flags: 0 or SITS_CRYPTO_MAY_SWAP
 * @out: the cipher; owned by the caller, freed with sits_cipher_destroy()
 *
 * Return: 0; -EINVAL for an unknown type or flag, another key_len, or two equal halves of a key for XTS; -EPERM where
 * RLIMIT_MEMLOCK is too small for one page more; -ENOMEM.
 */
int sits_cipher_create(uint32_t type, const void *key, size_t key_len, uint32_t flags, struct sits_cipher **out);

/**
 * sits_cipher_dup() - A cipher like @cipher, with a message begun in it as far as it has come.
 * Context: no call that changes @cipher may run meanwhile.
 * Return: 0; -ESTALE; -EPERM; -ENOMEM.
 */
int sits_cipher_dup(const struct sits_cipher *cipher, struct sits_cipher **out);

/** sits_cipher_destroy() - Wipe and free; NULL is allowed. @cipher: taken. */
void sits_cipher_destroy(struct sits_cipher *cipher);

/**
 * sits_cipher_variant() - Which code does the work of @cipher: "portable", "aesni-avx2", "gfni-avx2" or "gfni-avx512".
 * @cipher: NULL: what the next cipher will have on this machine
 * Return: static storage; more names may come. "stale" in a forked child.
 */
const char *sits_cipher_variant(const struct sits_cipher *cipher);

/* ---------------------------------------------------------------- whole messages */

/**
 * sits_cipher_encrypt() - Encrypt a message. Not for GCM.
 * @iv: @iv_len: as the table above has it: 16 bytes, or NULL and 0 for ECB
 * @dst: out, @len bytes
 *
 * CTR: no two messages under one key may share a counter: iv + 0 .. iv + len / 16. XTS: iv is the number of the data unit,
 * little-endian.
 *
 * Context: any thread; others may use @cipher meanwhile.
 * Return: 0; -EINVAL for another @iv_len or @len, buffers that overlap, or a cipher of type GCM; -ESTALE.
 */
int sits_cipher_encrypt(const struct sits_cipher *cipher, const void *iv, size_t iv_len, void *dst, const void *src, size_t len);

/** sits_cipher_decrypt() - The reverse: arguments, context and return as there. */
int sits_cipher_decrypt(const struct sits_cipher *cipher, const void *iv, size_t iv_len, void *dst, const void *src, size_t len);

/**
 * sits_cipher_seal() - Encrypt and authenticate a message. GCM only.
 * @iv: @iv_len: the nonce: never twice under one key
 * @aad: @aad_len: authenticated, not encrypted
 * @dst: out, @len bytes
 * @tag: out, @tag_len bytes: 4 to 16; fewer than 16 are easier to guess
 *
 * Context: any thread; others may use @cipher meanwhile.
 * Return: 0; -EINVAL for an @iv_len of 0, another @tag_len, buffers that overlap, or a cipher that is not GCM; -EMSGSIZE for
 * a @len over 2^36 - 32, or an @aad_len over 2^61 - 1; -ESTALE.
 */
int sits_cipher_seal(const struct sits_cipher *cipher, const void *iv, size_t iv_len, const void *aad, size_t aad_len,
		     void *dst, const void *src, size_t len, void *tag, size_t tag_len);

/**
 * sits_cipher_open() - Verify and decrypt a message. GCM only.
 * @dst: out, @len bytes: zeros where the message was refused
 * @tag: @tag_len: in
 *
 * Return: 0; -EBADMSG where message, associated data, nonce or tag is not what was sealed; else as sits_cipher_seal().
 */
int sits_cipher_open(const struct sits_cipher *cipher, const void *iv, size_t iv_len, const void *aad, size_t aad_len,
		     void *dst, const void *src, size_t len, const void *tag, size_t tag_len);

/* ---------------------------------------------------------------- messages in pieces */

/**
 * sits_cipher_start() - Begin a message, and forget one that was begun before.
 * @direction: SITS_CIPHER_ENCRYPT or SITS_CIPHER_DECRYPT
 *
 * Context, of this section: one thread at a time; whole messages may be worked on beside it.
 * Return: 0; -EINVAL for another @direction or @iv_len; -ESTALE.
 */
int sits_cipher_start(struct sits_cipher *cipher, uint32_t direction, const void *iv, size_t iv_len);

/**
 * sits_cipher_aad() - Associated data, or more of it, before the first text. GCM only.
 * Return: 0; -EINVAL where no message is begun, or its text is; -EMSGSIZE over 2^61 - 1 bytes in all; -ESTALE.
 */
int sits_cipher_aad(struct sits_cipher *cipher, const void *aad, size_t len);

/**
 * sits_cipher_update() - The next piece of the message.
 * @dst: out, @len bytes: every byte is written at once, none is kept back
 * @len: CTR, GCM: any. ECB, CBC: whole blocks. XTS: whole blocks, but for the last piece of a data unit, which may be any of 16 bytes up
 *
 * What GCM decrypts is not authentic before sits_cipher_finish() says so: keep it to yourself until then.
 *
 * Return: 0; -EINVAL where no message is begun or (XTS) it has had its last piece, for another @len, or buffers that overlap; -EMSGSIZE
 * where GCM's text gets too long; -ESTALE.
 */
int sits_cipher_update(struct sits_cipher *cipher, void *dst, const void *src, size_t len);

/**
 * sits_cipher_finish() - End a message, and wipe what is left of it.
 * @tag: @tag_len: GCM: out when encrypting, in when decrypting; 4 to 16 bytes. Else NULL and 0
 *
 * Return: 0; -EBADMSG where a message under GCM is not what was sealed: wipe what was decrypted of it; -EINVAL where none is begun
 * or for another @tag_len: a message begun stays so; -ESTALE.
 */
int sits_cipher_finish(struct sits_cipher *cipher, void *tag, size_t tag_len);

/* ---------------------------------------------------------------- hashes */

#define SITS_HASH_SM3		1

#define SITS_HASH_SM3_LEN	32
#define SITS_HASH_LEN_MAX	64	/* of any type that may come */

/**
 * sits_hash_create() - A hash of nothing yet, in memory as that of a cipher.
 * @type: SITS_HASH_SM3
 * @flags: 0 or SITS_CRYPTO_MAY_SWAP
 * @out: owned by the caller, freed with sits_hash_destroy()
 * Return: 0; -EINVAL for an unknown type or flag; -EPERM, -ENOMEM as sits_cipher_create().
 */
int sits_hash_create(uint32_t type, uint32_t flags, struct sits_hash **out);

/** sits_hash_dup() - One that has seen the same bytes. Return: 0; -ESTALE; -EPERM; -ENOMEM. */
int sits_hash_dup(const struct sits_hash *hash, struct sits_hash **out);

/** sits_hash_destroy() - Wipe and free; NULL is allowed. @hash: taken. */
void sits_hash_destroy(struct sits_hash *hash);

/** sits_hash_update() - The next bytes. Context: one thread at a time. Return: 0; -ESTALE. */
int sits_hash_update(struct sits_hash *hash, const void *data, size_t len);

/**
 * sits_hash_finish() - The digest of what was hashed; the next bytes begin a new one.
 * @digest: out, @len bytes; @len: 32
 * Return: 0; -EINVAL for another @len; -ESTALE.
 */
int sits_hash_finish(struct sits_hash *hash, void *digest, size_t len);

/** sits_hash_once() - The digest of @data in one call, without an object. Return: 0; -EINVAL. */
int sits_hash_once(uint32_t type, const void *data, size_t data_len, void *digest, size_t len);

#ifdef __cplusplus
}
#endif
#endif
