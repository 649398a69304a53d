// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sealed.c - the form of sealed files: the header page, what binds a chunk to its place. docs/sealed-file.md has
 * every byte.
 *
 * Nothing is encrypted or authenticated here: userspace does that in sealed_crypt.c, the kernel through its crypto API.
 */
#include "crypto/sealed.h"

#define VERSION		1
#define CHUNKS_MAX	(1ULL << 32)	/* the nonce has 32 bits for the chunk's number */

static const u8 magic[8] = SITS_SEALED_MAGIC;
static const char key_id_label[] = "SITS key id v1";

void sits_sealed_key_id(const u8 kek[SITS_SM4_KEY_LEN], u8 id[SITS_SEALED_KEY_ID_LEN])
{
	u8 digest[SITS_SM3_LEN];
	struct sits_sm3 s;

	sits_sm3_init(&s);
	sits_sm3_update(&s, key_id_label, sizeof(key_id_label) - 1);
	sits_sm3_update(&s, kek, SITS_SM4_KEY_LEN);
	sits_sm3_final(&s, digest);
	memcpy(id, digest, SITS_SEALED_KEY_ID_LEN);
	sits_wipe(digest, sizeof(digest));
}

static int refuse(const char **why, const char *field, int err)
{
	if (why)
		*why = field;
	return err;
}

static bool is_zero(const u8 *p, size_t from, size_t to)
{
	for (; from < to; from++) {
		if (p[from])
			return false;
	}
	return true;
}

static bool model_id_ok(const char *id)
{
	size_t i;

	for (i = 0; i < SITS_SEALED_MODEL_ID_MAX && id[i]; i++) {
		if ((u8)id[i] < 0x20 || id[i] == 0x7f)
			return false;
	}
	return i < SITS_SEALED_MODEL_ID_MAX;
}

static bool chunk_bytes_ok(u32 n)
{
	return n >= SITS_SEALED_CHUNK_MIN && n <= SITS_SEALED_CHUNK_MAX && !(n & (n - 1));
}

/* Fill in what follows from suite, chunk_bytes (already checked) and plain_bytes. False: too long. */
static bool lay_out(struct sits_sealed_hdr *h)
{
	bool ecb = h->suite == SITS_SEALED_SUITE_ECB;

	/* 2^32 chunks of 2^24 bytes at most: nothing below comes near 64 bits. */
	if (h->plain_bytes > CHUNKS_MAX * h->chunk_bytes)
		return false;
	h->nr_chunks = (h->plain_bytes + h->chunk_bytes - 1) / h->chunk_bytes;
	if (!h->nr_chunks && !ecb)
		h->nr_chunks = 1;
	h->tags_off = SITS_SEALED_HDR_BYTES;
	h->tags_bytes = ecb ? 0 : h->nr_chunks * SITS_GCM_TAG_LEN;
	h->data_off = (h->tags_off + h->tags_bytes + SITS_SEALED_ALIGN - 1) & ~(u64)(SITS_SEALED_ALIGN - 1);
	h->data_bytes = ecb ? (h->plain_bytes + 15) & ~(u64)15 : h->plain_bytes;
	h->file_bytes = h->data_off + h->data_bytes;
	return true;
}

int sits_sealed_parse(const u8 page[SITS_SEALED_HDR_BYTES], struct sits_sealed_hdr *hdr, const char **why)
{
	const char *id = (const char *)page + SITS_SEALED_OFF_MODEL_ID;

	memset(hdr, 0, sizeof(*hdr));
	if (memcmp(page, magic, sizeof(magic)))
		return refuse(why, "magic", -EBADMSG);
	hdr->version = sits_get_le32(page + SITS_SEALED_OFF_VERSION);
	if (hdr->version != VERSION)
		return refuse(why, "version", -EPROTONOSUPPORT);
	hdr->suite = sits_get_le32(page + SITS_SEALED_OFF_SUITE);
	if (hdr->suite != SITS_SEALED_SUITE_GCM && hdr->suite != SITS_SEALED_SUITE_ECB)
		return refuse(why, "suite", -EPROTONOSUPPORT);
	hdr->chunk_bytes = sits_get_le32(page + SITS_SEALED_OFF_CHUNK_BYTES);
	if (!chunk_bytes_ok(hdr->chunk_bytes))
		return refuse(why, "chunk size", -EBADMSG);
	hdr->plain_bytes = sits_get_le64(page + SITS_SEALED_OFF_PLAIN_BYTES);
	if (!lay_out(hdr))
		return refuse(why, "plaintext length", -EBADMSG);
	hdr->model_version = sits_get_le64(page + SITS_SEALED_OFF_MODEL_VERSION);
	if (hdr->suite == SITS_SEALED_SUITE_ECB && !is_zero(page, SITS_SEALED_OFF_SALT, SITS_SEALED_OFF_SALT + SITS_SEALED_SALT_LEN))
		return refuse(why, "salt", -EBADMSG);
	if (!model_id_ok(id) || !is_zero(page, SITS_SEALED_OFF_MODEL_ID + strnlen(id, SITS_SEALED_MODEL_ID_MAX),
					 SITS_SEALED_OFF_MODEL_ID + SITS_SEALED_MODEL_ID_MAX))
		return refuse(why, "model id", -EBADMSG);
	memcpy(hdr->model_id, id, SITS_SEALED_MODEL_ID_MAX);
	memcpy(hdr->key_id, page + SITS_SEALED_OFF_KEY_ID, SITS_SEALED_KEY_ID_LEN);
	if (!is_zero(page, SITS_SEALED_OFF_CHUNK_BYTES + 4, SITS_SEALED_OFF_PLAIN_BYTES) ||
	    !is_zero(page, SITS_SEALED_OFF_SALT + SITS_SEALED_SALT_LEN, SITS_SEALED_OFF_MODEL_ID) ||
	    !is_zero(page, SITS_SEALED_OFF_NONCE + SITS_GCM_IV_LEN, SITS_SEALED_OFF_WRAPPED_KEY))
		return refuse(why, "reserved bytes", -EBADMSG);
	return 0;
}

int sits_sealed_compose(u8 page[SITS_SEALED_HDR_BYTES], struct sits_sealed_hdr *hdr, const u8 salt[SITS_SEALED_SALT_LEN],
			u32 chunk_bytes, u64 plain_bytes, const char *model_id, u64 model_version)
{
	memset(page, 0, SITS_SEALED_HDR_BYTES);
	memset(hdr, 0, sizeof(*hdr));
	hdr->version = VERSION;
	hdr->suite = SITS_SEALED_SUITE_GCM;
	hdr->chunk_bytes = chunk_bytes;
	hdr->plain_bytes = plain_bytes;
	hdr->model_version = model_version;
	if (!chunk_bytes_ok(chunk_bytes) || !lay_out(hdr) || !model_id_ok(model_id))
		return -EINVAL;
	memcpy(hdr->model_id, model_id, strnlen(model_id, SITS_SEALED_MODEL_ID_MAX));

	memcpy(page, magic, sizeof(magic));
	sits_put_le32(page + SITS_SEALED_OFF_VERSION, hdr->version);
	sits_put_le32(page + SITS_SEALED_OFF_SUITE, hdr->suite);
	sits_put_le32(page + SITS_SEALED_OFF_CHUNK_BYTES, chunk_bytes);
	sits_put_le64(page + SITS_SEALED_OFF_PLAIN_BYTES, plain_bytes);
	sits_put_le64(page + SITS_SEALED_OFF_MODEL_VERSION, model_version);
	memcpy(page + SITS_SEALED_OFF_SALT, salt, SITS_SEALED_SALT_LEN);
	memcpy(page + SITS_SEALED_OFF_MODEL_ID, hdr->model_id, SITS_SEALED_MODEL_ID_MAX);
	return 0;
}

size_t sits_sealed_chunk_len(const struct sits_sealed_hdr *hdr, u64 i)
{
	if (i >= hdr->nr_chunks)
		return 0;
	if (i + 1 < hdr->nr_chunks)
		return hdr->chunk_bytes;
	return (size_t)(hdr->plain_bytes - i * hdr->chunk_bytes);
}

void sits_sealed_chunk_nonce_aad(const struct sits_sealed_hdr *hdr, const u8 salt[SITS_SEALED_SALT_LEN],
				 const u8 hdr_digest[SITS_SM3_LEN], u64 i, u8 nonce[SITS_GCM_IV_LEN],
				 u8 aad[SITS_SEALED_AAD_LEN])
{
	memcpy(nonce, salt, SITS_SEALED_SALT_LEN);
	sits_put_be32(nonce + SITS_SEALED_SALT_LEN, (u32)i);
	memset(aad, 0, SITS_SEALED_AAD_LEN);
	memcpy(aad, hdr_digest, SITS_SM3_LEN);
	sits_put_le64(aad + SITS_SM3_LEN, i);
	aad[SITS_SM3_LEN + 8] = i + 1 == hdr->nr_chunks;
}

void sits_sealed_digest_init(struct sits_sm3 *s, const u8 page[SITS_SEALED_HDR_BYTES])
{
	sits_sm3_init(s);
	sits_sm3_update(s, page, SITS_SEALED_IMMUTABLE_BYTES);
}
