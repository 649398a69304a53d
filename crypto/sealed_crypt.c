// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sealed_crypt.c - sealed files under our own SM4-GCM: wrapping the file key, sealing and opening chunks.
 *
 * Userspace's way. The kernel does the same through its crypto API, and shares sealed.c only.
 */
#include "crypto/sealed.h"

static int refuse(const char **why, const char *field, int err)
{
	if (why)
		*why = field;
	return err;
}

/* What follows from an authentic or new page and its file key. */
static void open_file(struct sits_sealed_file *f, const u8 page[SITS_SEALED_HDR_BYTES],
		      const u8 file_key[SITS_SM4_KEY_LEN])
{
	struct sits_sm3 s;

	sits_gcm_set_key(&f->key, file_key);
	memcpy(f->salt, page + SITS_SEALED_OFF_SALT, sizeof(f->salt));
	sits_sealed_digest_init(&s, page);
	sits_sm3_final(&s, f->hdr_digest);
}

/* Put the file key into the page under kek; the page's other bytes are final. */
static void wrap(u8 page[SITS_SEALED_HDR_BYTES], const u8 kek[SITS_SM4_KEY_LEN], const u8 nonce[SITS_GCM_IV_LEN],
		 const u8 file_key[SITS_SM4_KEY_LEN])
{
	struct sits_gcm_key key;

	sits_sealed_key_id(kek, page + SITS_SEALED_OFF_KEY_ID);
	memcpy(page + SITS_SEALED_OFF_NONCE, nonce, SITS_GCM_IV_LEN);
	sits_gcm_set_key(&key, kek);
	sits_gcm_encrypt(&key, nonce, page, SITS_SEALED_OFF_WRAPPED_KEY, page + SITS_SEALED_OFF_WRAPPED_KEY,
			 file_key, SITS_SM4_KEY_LEN, page + SITS_SEALED_OFF_WRAP_TAG);
	sits_wipe(&key, sizeof(key));
}

/* Check the page's form and its tag under kek. @file_key: out, secret; zeros on failure. */
static int unwrap(const u8 page[SITS_SEALED_HDR_BYTES], const u8 kek[SITS_SM4_KEY_LEN],
		  struct sits_sealed_hdr *hdr, u8 file_key[SITS_SM4_KEY_LEN], const char **why)
{
	u8 id[SITS_SEALED_KEY_ID_LEN];
	struct sits_gcm_key key;
	int ret;

	memset(file_key, 0, SITS_SM4_KEY_LEN);
	ret = sits_sealed_parse(page, hdr, why);
	if (ret)
		return ret;
	sits_sealed_key_id(kek, id);
	if (memcmp(id, hdr->key_id, sizeof(id)))
		return refuse(why, "key id", -ENOKEY);
	sits_gcm_set_key(&key, kek);
	ret = sits_gcm_decrypt(&key, page + SITS_SEALED_OFF_NONCE, page, SITS_SEALED_OFF_WRAPPED_KEY, file_key,
			       page + SITS_SEALED_OFF_WRAPPED_KEY, SITS_SM4_KEY_LEN, page + SITS_SEALED_OFF_WRAP_TAG);
	sits_wipe(&key, sizeof(key));
	return ret ? refuse(why, "header tag", ret) : 0;
}

int sits_sealed_unwrap(const u8 page[SITS_SEALED_HDR_BYTES], const u8 kek[SITS_SM4_KEY_LEN],
		       struct sits_sealed_file *f, const char **why)
{
	u8 file_key[SITS_SM4_KEY_LEN];
	int ret;

	memset(f, 0, sizeof(*f));
	ret = unwrap(page, kek, &f->hdr, file_key, why);
	if (ret)
		sits_wipe(f, sizeof(*f));
	else
		open_file(f, page, file_key);
	sits_wipe(file_key, sizeof(file_key));
	return ret;
}

int sits_sealed_init(struct sits_sealed_file *f, u8 page[SITS_SEALED_HDR_BYTES], const u8 kek[SITS_SM4_KEY_LEN],
		     const u8 random[SITS_SEALED_RANDOM_LEN], u32 chunk_bytes, u64 plain_bytes,
		     const char *model_id, u64 model_version)
{
	const u8 *salt = random, *file_key = random + 8, *nonce = random + 24;
	int ret;

	memset(f, 0, sizeof(*f));
	ret = sits_sealed_compose(page, &f->hdr, salt, chunk_bytes, plain_bytes, model_id, model_version);
	if (ret)
		return ret;
	wrap(page, kek, nonce, file_key);
	memcpy(f->hdr.key_id, page + SITS_SEALED_OFF_KEY_ID, SITS_SEALED_KEY_ID_LEN);
	open_file(f, page, file_key);
	return 0;
}

int sits_sealed_rewrap(u8 page[SITS_SEALED_HDR_BYTES], const u8 old_kek[SITS_SM4_KEY_LEN],
		       const u8 new_kek[SITS_SM4_KEY_LEN], const u8 nonce[SITS_GCM_IV_LEN], const char **why)
{
	u8 file_key[SITS_SM4_KEY_LEN];
	struct sits_sealed_hdr hdr;
	int ret;

	ret = unwrap(page, old_kek, &hdr, file_key, why);
	if (!ret)
		wrap(page, new_kek, nonce, file_key);
	sits_wipe(file_key, sizeof(file_key));
	return ret;
}

int sits_sealed_chunk_open(const struct sits_sealed_file *f, u64 i, u8 *buf, const u8 tag[SITS_GCM_TAG_LEN])
{
	u8 nonce[SITS_GCM_IV_LEN], aad[SITS_SEALED_AAD_LEN];
	size_t len = sits_sealed_chunk_len(&f->hdr, i);

	if (i >= f->hdr.nr_chunks)
		return -EBADMSG;
	if (f->hdr.suite == SITS_SEALED_SUITE_ECB) {
		sits_sm4_ecb_decrypt(&f->key.sm4, buf, buf, (len + 15) / 16);
		return 0;
	}
	sits_sealed_chunk_nonce_aad(&f->hdr, f->salt, f->hdr_digest, i, nonce, aad);
	return sits_gcm_decrypt(&f->key, nonce, aad, sizeof(aad), buf, buf, len, tag);
}

void sits_sealed_chunk_seal(const struct sits_sealed_file *f, u64 i, u8 *buf, u8 tag[SITS_GCM_TAG_LEN])
{
	u8 nonce[SITS_GCM_IV_LEN], aad[SITS_SEALED_AAD_LEN];
	size_t len = sits_sealed_chunk_len(&f->hdr, i);

	if (i >= f->hdr.nr_chunks || f->hdr.suite != SITS_SEALED_SUITE_GCM) {
		memset(tag, 0, SITS_GCM_TAG_LEN);
		memset(buf, 0, len);
		return;
	}
	sits_sealed_chunk_nonce_aad(&f->hdr, f->salt, f->hdr_digest, i, nonce, aad);
	sits_gcm_encrypt(&f->key, nonce, aad, sizeof(aad), buf, buf, len, tag);
}
