// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * gcm.c - SM4-GCM over whole messages with a 96-bit nonce and a 128-bit tag.
 *
 * Source: NIST SP 800-38D, clause 7; RFC 8998, clause 2 for SM4.
 */
#include "crypto/ghash.h"
#include "crypto/sm4_impl.h"

/* Hashed and ciphered by turns in pieces that stay in the first cache; a multiple of every batch. */
#define PIECE_BYTES 4096u

/* SP 800-38D, clause 5.2.1.1: 2^39 - 256 bits of text, else the counter would come round. */
#define TEXT_MAX ((1ULL << 36) - 32)

void sits_gcm_set_key(struct sits_gcm_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
	u8 zero[16] = { 0 };

	sits_sm4_expand_key(&key->sm4, raw);
	sits_sm4_encrypt_block(&key->sm4, zero, zero);
	sits_ghash_key(key->h, zero);
	sits_wipe(zero, sizeof(zero));
}

struct gcm {
	struct sits_ghash hash;
	u8 ctr[16];	/* next counter block */
	u8 mask[16];	/* E(J0), added to the hash */
};

static void gcm_start(struct gcm *s, const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN],
		      const u8 *aad, size_t aad_len, size_t len)
{
	memcpy(s->ctr, iv, SITS_GCM_IV_LEN);
	sits_put_be32(s->ctr + SITS_GCM_IV_LEN, 1);
	memset(s->mask, 0, sizeof(s->mask));
	sits_sm4_ctr_crypt(key->sm4.enc, s->ctr, s->mask, s->mask, 16, 32);
	sits_ghash_init(&s->hash, key->h, len > aad_len ? len : aad_len);
	sits_ghash_update(&s->hash, aad, aad_len);
}

static void gcm_tag(struct gcm *s, size_t aad_len, size_t len, u8 tag[SITS_GCM_TAG_LEN])
{
	int i;

	sits_ghash_final(&s->hash, aad_len, len, tag);
	for (i = 0; i < SITS_GCM_TAG_LEN; i++)
		tag[i] ^= s->mask[i];
	sits_wipe(s, sizeof(*s));
}

void sits_gcm_encrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		      u8 *dst, const u8 *src, size_t len, u8 tag[SITS_GCM_TAG_LEN])
{
	size_t left = len, n;
	struct gcm s;

	gcm_start(&s, key, iv, aad, aad_len, len);
	for (; left; left -= n) {
		n = left < PIECE_BYTES ? left : PIECE_BYTES;
		sits_sm4_ctr_crypt(key->sm4.enc, s.ctr, dst, src, n, 32);
		sits_ghash_update(&s.hash, dst, n);
		dst += n;
		src += n;
	}
	gcm_tag(&s, aad_len, len, tag);
}

int sits_gcm_decrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		     u8 *dst, const u8 *src, size_t len, const u8 tag[SITS_GCM_TAG_LEN])
{
	u8 *out = dst, want[SITS_GCM_TAG_LEN], diff = 0;
	size_t left = len, n;
	struct gcm s;
	int i;

	gcm_start(&s, key, iv, aad, aad_len, len);
	for (; left; left -= n) {
		n = left < PIECE_BYTES ? left : PIECE_BYTES;
		sits_ghash_update(&s.hash, src, n);
		sits_sm4_ctr_crypt(key->sm4.enc, s.ctr, out, src, n, 32);
		out += n;
		src += n;
	}
	gcm_tag(&s, aad_len, len, want);
	for (i = 0; i < SITS_GCM_TAG_LEN; i++)
		diff |= want[i] ^ tag[i];
	sits_wipe(want, sizeof(want));
	if (!diff && (u64)len <= TEXT_MAX)
		return 0;
	if (len)
		sits_wipe(dst, len);
	return -EBADMSG;
}
