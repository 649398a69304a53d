/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sealed.h - the sealed file, version 1: its header page, and opening and sealing of chunks.
 *
 * Freestanding; docs/sealed-file.md has every byte. sealed.c has the form, which the kernel module and libsits share;
 * sealed_crypt.c does the cryptography for libsits, the module goes to the kernel's crypto API for it. Callers do the
 * reading and writing.
 *
 * The immutable header (magic to model id) is bound into every chunk's associated data together
 * with the chunk's number and whether it is the last. The wrapped file key stays outside it, so that
 * rewrapping touches the header page alone; the wrap's own tag authenticates the whole header page.
 */
#ifndef SITS_CRYPTO_SEALED_H
#define SITS_CRYPTO_SEALED_H

#include "crypto/port.h"
#include "crypto/sm3.h"
#include "crypto/sm4.h"

#define SITS_SEALED_HDR_BYTES	4096
#define SITS_SEALED_ALIGN	4096
#define SITS_SEALED_CHUNK_MIN	4096u
#define SITS_SEALED_CHUNK_DEFAULT (1u << 20)
#define SITS_SEALED_CHUNK_MAX	(16u << 20)
#define SITS_SEALED_KEY_ID_LEN	16
#define SITS_SEALED_SALT_LEN	8
#define SITS_SEALED_AAD_LEN	48
#define SITS_SEALED_MODEL_ID_MAX 128	/* with NUL */
#define SITS_SEALED_SUITE_GCM	1
#define SITS_SEALED_SUITE_ECB	240

/*
 * The header page. Integers are little-endian. What is in no field is reserved and zero.
 *
 *	immutable, bound into every chunk	written anew by rewrapping
 *	0	magic, 8 bytes			192	key id, 16 bytes
 *	8	version, 4			208	wrap nonce, 12
 *	12	suite, 4			4064	wrapped file key, 16
 *	16	chunk bytes, 4			4080	wrap tag, 16: over bytes 0 to 4063 and the key
 *	24	plaintext bytes, 8
 *	32	model version, 8
 *	40	salt, 8 (suite 240: zero)
 *	64	model id, 128, padded with NULs
 */
#define SITS_SEALED_MAGIC	"\x89SITS\r\n\x1a"
#define SITS_SEALED_OFF_VERSION		8
#define SITS_SEALED_OFF_SUITE		12
#define SITS_SEALED_OFF_CHUNK_BYTES	16
#define SITS_SEALED_OFF_PLAIN_BYTES	24
#define SITS_SEALED_OFF_MODEL_VERSION	32
#define SITS_SEALED_OFF_SALT		40
#define SITS_SEALED_OFF_MODEL_ID	64
#define SITS_SEALED_IMMUTABLE_BYTES	192
#define SITS_SEALED_OFF_KEY_ID		192
#define SITS_SEALED_OFF_NONCE		208
#define SITS_SEALED_OFF_WRAPPED_KEY	4064
#define SITS_SEALED_OFF_WRAP_TAG	4080

/* What the header says, after its form was checked; nothing in it is authentic before sits_sealed_unwrap(). */
struct sits_sealed_hdr {
	u32 version, suite, chunk_bytes;
	u64 plain_bytes, model_version;
	u64 nr_chunks;		/* at least 1: an empty file has one empty last chunk (0 for ECB and empty) */
	u64 tags_off, tags_bytes;	/* tag table; then zeros up to data_off, which readers check */
	u64 data_off, data_bytes;	/* ciphertext: data_bytes == plain_bytes (ECB: rounded up to 16) */
	u64 file_bytes;		/* exact size of the whole file */
	u8 key_id[SITS_SEALED_KEY_ID_LEN];
	char model_id[SITS_SEALED_MODEL_ID_MAX];
};

/* An opened file: what is needed to open or seal chunks. Secret: wipe with sits_wipe(). */
struct sits_sealed_file {
	struct sits_sealed_hdr hdr;
	struct sits_gcm_key key;	/* the file key */
	u8 salt[SITS_SEALED_SALT_LEN];
	u8 hdr_digest[SITS_SM3_LEN];	/* SM3 of the immutable header: part of every chunk's AAD */
};

/** sits_sealed_key_id() - The id of a key-encryption key: a truncated SM3 with a label. */
void sits_sealed_key_id(const u8 kek[SITS_SM4_KEY_LEN], u8 id[SITS_SEALED_KEY_ID_LEN]);

/**
 * sits_sealed_parse() - Check a header page's form (magic, version, sizes that add up, reserved bytes zero).
 * Return: 0; -EBADMSG no sealed file or malformed; -EPROTONOSUPPORT unknown version or suite. *why (may be NULL):
 * static words naming the field.
 */
int sits_sealed_parse(const u8 page[SITS_SEALED_HDR_BYTES], struct sits_sealed_hdr *hdr, const char **why);

/**
 * sits_sealed_compose() - Write the header page of a new file (suite 1), all but its wrap: what sits_sealed_parse() reads.
 * Return: 0; -EINVAL for a chunk size, length or model id out of range.
 */
int sits_sealed_compose(u8 page[SITS_SEALED_HDR_BYTES], struct sits_sealed_hdr *hdr, const u8 salt[SITS_SEALED_SALT_LEN],
			u32 chunk_bytes, u64 plain_bytes, const char *model_id, u64 model_version);

/**
 * sits_sealed_unwrap() - Parse, authenticate the header under the key-encryption key and unwrap the file key.
 * Return: as parse; -ENOKEY where the header names another key; -EBADMSG where it does not verify.
 */
int sits_sealed_unwrap(const u8 page[SITS_SEALED_HDR_BYTES], const u8 kek[SITS_SM4_KEY_LEN],
		       struct sits_sealed_file *f, const char **why);

/**
 * sits_sealed_init() - Make the header page of a new file (suite 1).
 * @random: 8 bytes salt, 16 bytes file key, 12 bytes wrap nonce, from a CSPRNG; secret
 * Return: 0; -EINVAL for a chunk size, length or model id out of range.
 */
#define SITS_SEALED_RANDOM_LEN 36
int sits_sealed_init(struct sits_sealed_file *f, u8 page[SITS_SEALED_HDR_BYTES], const u8 kek[SITS_SM4_KEY_LEN],
		     const u8 random[SITS_SEALED_RANDOM_LEN], u32 chunk_bytes, u64 plain_bytes,
		     const char *model_id, u64 model_version);

/**
 * sits_sealed_rewrap() - Rewrite the page's wrap under new_kek with a fresh random nonce; the rest stays.
 * Return: as sits_sealed_unwrap() under old_kek; on failure the page is as it was.
 */
int sits_sealed_rewrap(u8 page[SITS_SEALED_HDR_BYTES], const u8 old_kek[SITS_SM4_KEY_LEN],
		       const u8 new_kek[SITS_SM4_KEY_LEN], const u8 nonce[SITS_GCM_IV_LEN], const char **why);

/** sits_sealed_chunk_len() - Plaintext bytes of chunk i < nr_chunks. */
size_t sits_sealed_chunk_len(const struct sits_sealed_hdr *hdr, u64 i);

/**
 * sits_sealed_chunk_nonce_aad() - What binds chunk i of suite 1 to its place in its file.
 * @hdr_digest: SM3 of the immutable header
 */
void sits_sealed_chunk_nonce_aad(const struct sits_sealed_hdr *hdr, const u8 salt[SITS_SEALED_SALT_LEN],
				 const u8 hdr_digest[SITS_SM3_LEN], u64 i, u8 nonce[SITS_GCM_IV_LEN],
				 u8 aad[SITS_SEALED_AAD_LEN]);

/**
 * sits_sealed_chunk_open() - Decrypt chunk i in place.
 * @buf: sits_sealed_chunk_len() bytes; for suite 240 rounded up to 16
 * @tag: the chunk's entry in the tag table; suite 240: unused, may be NULL
 * Return: 0; -EBADMSG (buf is wiped), also for i >= nr_chunks.
 */
int sits_sealed_chunk_open(const struct sits_sealed_file *f, u64 i, u8 *buf, const u8 tag[SITS_GCM_TAG_LEN]);
/** sits_sealed_chunk_seal() - Encrypt chunk i in place and give its tag. Suite 1 only: 240 is never written, buf is wiped. */
void sits_sealed_chunk_seal(const struct sits_sealed_file *f, u64 i, u8 *buf, u8 tag[SITS_GCM_TAG_LEN]);

/* The file's digest: SM3 over the immutable header and the tag table, fed in order. */
void sits_sealed_digest_init(struct sits_sm3 *s, const u8 page[SITS_SEALED_HDR_BYTES]);

#endif
