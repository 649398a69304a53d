// SPDX-License-Identifier: MIT
/*
 * cipher.c - SM4 for others: include/sits/crypto.h over crypto/sm4.h.
 *
 * The work is done there; here are memory for keys, checks of what callers say, and the order of calls on a message in pieces.
 */
#include "sits/crypto.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "crypto/sm4.h"
#include "libsits/secret.h"

#define BLOCK SITS_SM4_BLOCK_LEN

/* SP 800-38D, clause 5.2.1.2, and what sits_gcm_verify() takes. */
#define TAG_LEN_MIN 4
#define TAG_LEN_MAX SITS_GCM_TAG_LEN

/* Where a message in pieces stands. 0 is NONE. */
enum progress {
	PROGRESS_NONE,
	PROGRESS_BEGUN,
	PROGRESS_LAST,	/* XTS: the piece that ends the data unit was there */
};

/*
 * All of it lies in memory of sits_secret_alloc(). The caller owns it; the key is read-only after creation; msg, progress and
 * direction belong to the one thread that works on a message in pieces.
 *
 * @type: 0 in a forked child, which has zeros here
 */
struct sits_cipher {
	uint32_t type;
	uint32_t flags;
	union {
		struct sits_sm4_key sm4;
		struct sits_gcm_key gcm;
		struct sits_xts_key xts;
	} key;
	uint32_t progress;
	uint32_t direction;
	union {
		uint8_t iv[BLOCK];	/* CBC: the block before; XTS: the tweak */
		struct sits_sm4_stream ctr;
		struct sits_gcm gcm;
	} msg;
};

/* --------------------------------------------------------------- lives */

/* Of the secret's time nothing is told but whether the halves are equal. */
static bool halves_equal(const uint8_t *key, size_t half)
{
	uint8_t diff = 0;
	size_t i;

	for (i = 0; i < half; i++)
		diff |= key[i] ^ key[half + i];
	return !diff;
}

static bool is_xts(uint32_t type)
{
	return type == SITS_CIPHER_SM4_XTS || type == SITS_CIPHER_SM4_XTS_GB;
}

static enum sits_xts_form form_of(uint32_t type)
{
	return type == SITS_CIPHER_SM4_XTS_GB ? SITS_XTS_GB : SITS_XTS_IEEE;
}

static int alloc_cipher(uint32_t flags, struct sits_cipher **out)
{
	if (!(flags & SITS_CRYPTO_MAY_SWAP))
		return sits_secret_alloc(NULL, sizeof(struct sits_cipher), (void **)out);
	*out = sits_scratch_alloc(sizeof(struct sits_cipher));
	return *out ? 0 : -ENOMEM;
}

int sits_cipher_create(uint32_t type, const void *key, size_t key_len, uint32_t flags, struct sits_cipher **out)
{
	struct sits_cipher *c;
	int ret;

	if (type < SITS_CIPHER_SM4_ECB || type > SITS_CIPHER_SM4_XTS_GB || flags & ~SITS_CRYPTO_MAY_SWAP ||
	    key_len != (is_xts(type) ? SITS_XTS_KEY_LEN : SITS_SM4_KEY_LEN))
		return -EINVAL;
	if (is_xts(type) && halves_equal(key, SITS_SM4_KEY_LEN))
		return -EINVAL;
	ret = alloc_cipher(flags, &c);
	if (ret)
		return ret;
	c->type = type;
	c->flags = flags;
	if (is_xts(type))
		sits_xts_set_key(&c->key.xts, key);
	else if (type == SITS_CIPHER_SM4_GCM)
		sits_gcm_set_key(&c->key.gcm, key);
	else
		sits_sm4_expand_key(&c->key.sm4, key);
	*out = c;
	return 0;
}

int sits_cipher_dup(const struct sits_cipher *cipher, struct sits_cipher **out)
{
	struct sits_cipher *c;
	int ret;

	if (!cipher->type)
		return -ESTALE;
	ret = alloc_cipher(cipher->flags, &c);
	if (ret)
		return ret;
	memcpy(c, cipher, sizeof(*c));
	if (c->progress && c->type == SITS_CIPHER_SM4_CTR)
		c->msg.ctr.key = &c->key.sm4;
	if (c->progress && c->type == SITS_CIPHER_SM4_GCM)
		c->msg.gcm.key = &c->key.gcm;
	*out = c;
	return 0;
}

void sits_cipher_destroy(struct sits_cipher *cipher)
{
	sits_secret_free(cipher, sizeof(*cipher));
}

const char *sits_cipher_variant(const struct sits_cipher *cipher)
{
	if (!cipher)
		return sits_sm4_best()->name;
	if (!cipher->type)
		return "stale";
	/* The first key of each of them. */
	if (is_xts(cipher->type))
		return cipher->key.xts.data.core->name;
	return cipher->type == SITS_CIPHER_SM4_GCM ? cipher->key.gcm.sm4.core->name : cipher->key.sm4.core->name;
}

/* --------------------------------------------------------------- checks */

/* In place, or apart. */
static bool overlap(const void *dst, const void *src, size_t len)
{
	uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;

	return d != s && d < s + len && s < d + len;
}

static bool iv_len_is_right(uint32_t type, size_t iv_len)
{
	if (type == SITS_CIPHER_SM4_ECB)
		return !iv_len;
	if (type == SITS_CIPHER_SM4_GCM)
		return iv_len;
	return iv_len == SITS_CIPHER_IV_LEN;
}

static bool tag_len_is_right(size_t tag_len)
{
	return tag_len >= TAG_LEN_MIN && tag_len <= TAG_LEN_MAX;
}

/* --------------------------------------------------------------- whole messages */

static int whole(const struct sits_cipher *c, bool encrypt, const void *iv, size_t iv_len, uint8_t *dst, const uint8_t *src,
		 size_t len)
{
	uint8_t block[BLOCK];

	if (!c->type)
		return -ESTALE;
	if (c->type == SITS_CIPHER_SM4_GCM || !iv_len_is_right(c->type, iv_len) || overlap(dst, src, len))
		return -EINVAL;
	if (c->type <= SITS_CIPHER_SM4_CBC && len % BLOCK)
		return -EINVAL;
	if (!len && !is_xts(c->type))
		return 0;
	if (iv_len)
		memcpy(block, iv, BLOCK);
	switch (c->type) {
	case SITS_CIPHER_SM4_ECB:
		(encrypt ? sits_sm4_ecb_encrypt : sits_sm4_ecb_decrypt)(&c->key.sm4, dst, src, len / BLOCK);
		return 0;
	case SITS_CIPHER_SM4_CBC:
		(encrypt ? sits_sm4_cbc_encrypt : sits_sm4_cbc_decrypt)(&c->key.sm4, block, dst, src, len / BLOCK);
		return 0;
	case SITS_CIPHER_SM4_CTR:
		sits_sm4_ctr(&c->key.sm4, block, dst, src, len);
		return 0;
	default:
		return (encrypt ? sits_xts_encrypt : sits_xts_decrypt)(&c->key.xts, form_of(c->type), block, dst, src, len);
	}
}

int sits_cipher_encrypt(const struct sits_cipher *cipher, const void *iv, size_t iv_len, void *dst, const void *src, size_t len)
{
	return whole(cipher, true, iv, iv_len, dst, src, len);
}

int sits_cipher_decrypt(const struct sits_cipher *cipher, const void *iv, size_t iv_len, void *dst, const void *src, size_t len)
{
	return whole(cipher, false, iv, iv_len, dst, src, len);
}

static int check_gcm(const struct sits_cipher *c, size_t iv_len, size_t aad_len, const void *dst, const void *src, size_t len,
		     size_t tag_len)
{
	if (!c->type)
		return -ESTALE;
	if (c->type != SITS_CIPHER_SM4_GCM || !iv_len || !tag_len_is_right(tag_len) || overlap(dst, src, len))
		return -EINVAL;
	return (uint64_t)len > SITS_GCM_TEXT_MAX || (uint64_t)aad_len > SITS_GCM_AAD_MAX ? -EMSGSIZE : 0;
}

int sits_cipher_seal(const struct sits_cipher *cipher, const void *iv, size_t iv_len, const void *aad, size_t aad_len,
		     void *dst, const void *src, size_t len, void *tag, size_t tag_len)
{
	uint8_t full[SITS_GCM_TAG_LEN];
	struct sits_gcm s;
	int ret = check_gcm(cipher, iv_len, aad_len, dst, src, len, tag_len);

	if (ret)
		return ret;
	if (iv_len == SITS_GCM_IV_LEN) {
		ret = sits_gcm_encrypt(&cipher->key.gcm, iv, aad, aad_len, dst, src, len, full);
		if (ret)
			return ret;
	} else {
		ret = sits_gcm_start(&s, &cipher->key.gcm, iv, iv_len);
		if (!ret)
			ret = sits_gcm_aad(&s, aad, aad_len);
		if (!ret)
			ret = sits_gcm_update_encrypt(&s, dst, src, len);
		if (ret) {
			sits_gcm_abandon(&s);
			return ret;
		}
		sits_gcm_final(&s, full);
	}
	memcpy(tag, full, tag_len);
	/* What a short tag leaves out is not for others to see. */
	explicit_bzero(full, sizeof(full));
	return 0;
}

int sits_cipher_open(const struct sits_cipher *cipher, const void *iv, size_t iv_len, const void *aad, size_t aad_len,
		     void *dst, const void *src, size_t len, const void *tag, size_t tag_len)
{
	struct sits_gcm s;
	int ret = check_gcm(cipher, iv_len, aad_len, dst, src, len, tag_len);

	if (ret)
		return ret;
	if (iv_len == SITS_GCM_IV_LEN && tag_len == SITS_GCM_TAG_LEN)
		return sits_gcm_decrypt(&cipher->key.gcm, iv, aad, aad_len, dst, src, len, tag);
	ret = sits_gcm_start(&s, &cipher->key.gcm, iv, iv_len);
	if (!ret)
		ret = sits_gcm_aad(&s, aad, aad_len);
	if (!ret)
		ret = sits_gcm_update_decrypt(&s, dst, src, len);
	if (ret) {
		sits_gcm_abandon(&s);
		return ret;
	}
	ret = sits_gcm_verify(&s, tag, tag_len);
	if (ret && len)
		explicit_bzero(dst, len);
	return ret;
}

/* --------------------------------------------------------------- messages in pieces */

static void forget(struct sits_cipher *c)
{
	explicit_bzero(&c->msg, sizeof(c->msg));
	c->progress = PROGRESS_NONE;
}

int sits_cipher_start(struct sits_cipher *cipher, uint32_t direction, const void *iv, size_t iv_len)
{
	int ret = 0;

	if (!cipher->type)
		return -ESTALE;
	if (direction > SITS_CIPHER_ENCRYPT || !iv_len_is_right(cipher->type, iv_len))
		return -EINVAL;
	forget(cipher);
	if (cipher->type == SITS_CIPHER_SM4_CTR)
		sits_sm4_stream_start(&cipher->msg.ctr, &cipher->key.sm4, iv);
	else if (cipher->type == SITS_CIPHER_SM4_GCM)
		ret = sits_gcm_start(&cipher->msg.gcm, &cipher->key.gcm, iv, iv_len);
	else if (is_xts(cipher->type))
		sits_xts_start(&cipher->key.xts, cipher->msg.iv, iv);
	else if (iv_len)
		memcpy(cipher->msg.iv, iv, BLOCK);
	if (ret)
		return ret;
	cipher->direction = direction;
	cipher->progress = PROGRESS_BEGUN;
	return 0;
}

int sits_cipher_aad(struct sits_cipher *cipher, const void *aad, size_t len)
{
	if (!cipher->type)
		return -ESTALE;
	if (cipher->type != SITS_CIPHER_SM4_GCM || cipher->progress != PROGRESS_BEGUN)
		return -EINVAL;
	return sits_gcm_aad(&cipher->msg.gcm, aad, len);
}

/* Whole blocks, but that the last one and a rest are stolen from one another, which ends the data unit. */
static int update_xts(struct sits_cipher *c, uint8_t *dst, const uint8_t *src, size_t len)
{
	enum sits_xts_form form = form_of(c->type);
	size_t tail = len % BLOCK ? BLOCK + len % BLOCK : 0;

	if (tail > len)
		return -EINVAL;
	(c->direction == SITS_CIPHER_ENCRYPT ? sits_xts_encrypt_blocks : sits_xts_decrypt_blocks)(
		&c->key.xts, form, c->msg.iv, dst, src, (len - tail) / BLOCK);
	if (!tail)
		return 0;
	(c->direction == SITS_CIPHER_ENCRYPT ? sits_xts_encrypt_tail : sits_xts_decrypt_tail)(
		&c->key.xts, form, c->msg.iv, dst + len - tail, src + len - tail, tail);
	c->progress = PROGRESS_LAST;
	return 0;
}

int sits_cipher_update(struct sits_cipher *cipher, void *dst, const void *src, size_t len)
{
	bool encrypt = cipher->direction == SITS_CIPHER_ENCRYPT;
	struct sits_cipher *c = cipher;

	if (!c->type)
		return -ESTALE;
	if (c->progress != PROGRESS_BEGUN || overlap(dst, src, len))
		return -EINVAL;
	if (c->type <= SITS_CIPHER_SM4_CBC && len % BLOCK)
		return -EINVAL;
	if (!len)
		return 0;
	switch (c->type) {
	case SITS_CIPHER_SM4_ECB:
		(encrypt ? sits_sm4_ecb_encrypt : sits_sm4_ecb_decrypt)(&c->key.sm4, dst, src, len / BLOCK);
		return 0;
	case SITS_CIPHER_SM4_CBC:
		(encrypt ? sits_sm4_cbc_encrypt : sits_sm4_cbc_decrypt)(&c->key.sm4, c->msg.iv, dst, src, len / BLOCK);
		return 0;
	case SITS_CIPHER_SM4_CTR:
		sits_sm4_stream_crypt(&c->msg.ctr, dst, src, len);
		return 0;
	case SITS_CIPHER_SM4_GCM:
		return (encrypt ? sits_gcm_update_encrypt : sits_gcm_update_decrypt)(&c->msg.gcm, dst, src, len);
	default:
		return update_xts(c, dst, src, len);
	}
}

int sits_cipher_finish(struct sits_cipher *cipher, void *tag, size_t tag_len)
{
	uint8_t full[SITS_GCM_TAG_LEN];
	int ret = 0;

	if (!cipher->type)
		return -ESTALE;
	if (cipher->progress == PROGRESS_NONE)
		return -EINVAL;
	if (cipher->type != SITS_CIPHER_SM4_GCM) {
		if (tag_len)
			return -EINVAL;
	} else if (!tag_len_is_right(tag_len)) {
		return -EINVAL;
	} else if (cipher->direction == SITS_CIPHER_ENCRYPT) {
		sits_gcm_final(&cipher->msg.gcm, full);
		memcpy(tag, full, tag_len);
		explicit_bzero(full, sizeof(full));
	} else {
		ret = sits_gcm_verify(&cipher->msg.gcm, tag, tag_len);
	}
	forget(cipher);
	return ret;
}
