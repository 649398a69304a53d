// SPDX-License-Identifier: MIT
/*
 * gcm.c - SM4-GCM of the provider (RFC 8998), as EVP and TLS 1.3 use it: associated data by an update without output, the tag as a
 * parameter.
 *
 * A message: a nonce by init, associated data, text, final. After it the nonce is used up, and the next message needs another,
 * in either direction. What only the GCM of TLS 1.2 needs (a nonce of a fixed and a counted part, records in one call) is
 * not there: no cipher suite of TLS 1.2 has SM4-GCM.
 */
#include "provider/prov.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "crypto/sm4.h"

#define IV_LEN_MAX 1024	/* what libcrypto takes is less; SP 800-38D has no limit worth the name */
#define TAG_LEN_MIN 4

static const struct cipher_facts facts = {
	.mode = EVP_CIPH_GCM_MODE, .key_len = 16, .iv_len = SITS_GCM_IV_LEN, .block_len = 1, .aead = true, .custom_iv = true,
};

/* Where a message stands. */
enum progress {
	NO_IV,		/* none was set since the last message ended */
	IV_SET,		/* nothing was worked on yet */
	BEGUN,		/* msg is valid */
};

/* Owned by the core's EVP_CIPHER_CTX, which one thread at a time uses; wiped when freed. */
struct ctx {
	const struct prov *prov;
	bool encrypt, key_set;
	enum progress progress;
	struct sits_gcm_key key;
	struct sits_gcm msg;	/* points to key */
	bool in_text;
	uint8_t iv[IV_LEN_MAX];	/* of the message, or of the last one */
	size_t iv_len;
	uint8_t tag[SITS_GCM_TAG_LEN];
	size_t tag_len;		/* bytes of tag that are valid: decrypting, from the caller until final; encrypting, from final on */
};

static void *new_ctx(void *provctx)
{
	const struct prov *prov = provctx;
	struct ctx *c = prov->zalloc(sizeof(*c), NULL, 0);

	if (!c)
		return NULL;
	c->prov = prov;
	c->iv_len = SITS_GCM_IV_LEN;
	return c;
}

static void free_ctx(void *ctx)
{
	struct ctx *c = ctx;

	if (c)
		c->prov->clear_free(c, sizeof(*c), NULL, 0);
}

static void *dup_ctx(void *ctx)
{
	const struct ctx *c = ctx;
	struct ctx *copy = new_ctx((void *)c->prov);

	if (!copy)
		return NULL;
	*copy = *c;
	copy->msg.key = &copy->key;
	return copy;
}

/* --------------------------------------------------------------- parameters */

static int get_params(OSSL_PARAM params[])
{
	return cipher_facts_get(params, &facts);
}

/* As many bytes of the tag as are asked for. */
static int get_tag(const struct ctx *c, OSSL_PARAM *p)
{
	if (!p)
		return 1;
	if (p->data_type != OSSL_PARAM_OCTET_STRING)
		return FAIL(c->prov, PROV_R_PARAM);
	if (!c->encrypt || c->tag_len != SITS_GCM_TAG_LEN)
		return FAIL(c->prov, PROV_R_NO_TAG);
	if (p->data && (p->data_size < TAG_LEN_MIN || p->data_size > SITS_GCM_TAG_LEN))
		return FAIL(c->prov, PROV_R_TAG_LEN);
	return param_put_bytes(p, c->tag, p->data ? p->data_size : SITS_GCM_TAG_LEN);
}

static int get_ctx_params(void *ctx, OSSL_PARAM params[])
{
	const struct ctx *c = ctx;

	if (param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_KEYLEN), SITS_SM4_KEY_LEN) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_IVLEN), c->iv_len) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_AEAD_TAGLEN), c->tag_len ? c->tag_len : SITS_GCM_TAG_LEN) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_IV), c->iv, c->iv_len) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_UPDATED_IV), c->iv, c->iv_len))
		return get_tag(c, param_find_out(params, OSSL_CIPHER_PARAM_AEAD_TAG));
	return FAIL(c->prov, PROV_R_PARAM);
}

static int set_tag(struct ctx *c, const OSSL_PARAM *p)
{
	if (p->data_type != OSSL_PARAM_OCTET_STRING)
		return FAIL(c->prov, PROV_R_PARAM);
	if (p->data_size < TAG_LEN_MIN || p->data_size > SITS_GCM_TAG_LEN)
		return FAIL(c->prov, PROV_R_TAG_LEN);
	/* A length alone: what comes out is cut where it is asked for. */
	if (!p->data)
		return 1;
	if (c->encrypt)
		return FAIL(c->prov, PROV_R_PARAM);
	memcpy(c->tag, p->data, p->data_size);
	c->tag_len = p->data_size;
	return 1;
}

static int set_iv_len(struct ctx *c, const OSSL_PARAM *p)
{
	uint64_t n;

	if (!param_get_number(p, &n))
		return FAIL(c->prov, PROV_R_PARAM);
	if (!n || n > IV_LEN_MAX)
		return FAIL(c->prov, PROV_R_IV_LEN);
	/* What was set with another length is no nonce now. */
	if (n != c->iv_len)
		c->progress = NO_IV;
	c->iv_len = n;
	return 1;
}

static int set_ctx_params(void *ctx, const OSSL_PARAM params[])
{
	struct ctx *c = ctx;
	const OSSL_PARAM *p;

	if (!cipher_check_key_len(c->prov, params, SITS_SM4_KEY_LEN))
		return 0;
	p = param_find(params, OSSL_CIPHER_PARAM_AEAD_IVLEN);
	if (p && !set_iv_len(c, p))
		return 0;
	p = param_find(params, OSSL_CIPHER_PARAM_AEAD_TAG);
	return p ? set_tag(c, p) : 1;
}

static const OSSL_PARAM *gettable_ctx(void *ctx, void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN), PARAM_NUMBER(OSSL_CIPHER_PARAM_IVLEN),
		PARAM_NUMBER(OSSL_CIPHER_PARAM_AEAD_TAGLEN), PARAM_BYTES(OSSL_CIPHER_PARAM_IV),
		PARAM_BYTES(OSSL_CIPHER_PARAM_UPDATED_IV), PARAM_BYTES(OSSL_CIPHER_PARAM_AEAD_TAG), PARAM_END,
	};

	return list;
}

static const OSSL_PARAM *settable_ctx(void *ctx, void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN), PARAM_NUMBER(OSSL_CIPHER_PARAM_AEAD_IVLEN),
		PARAM_BYTES(OSSL_CIPHER_PARAM_AEAD_TAG), PARAM_END,
	};

	return list;
}

/* --------------------------------------------------------------- work */

static int init(struct ctx *c, bool encrypt, const unsigned char *key, size_t key_len, const unsigned char *iv, size_t iv_len,
		const OSSL_PARAM params[])
{
	/* A message that was begun is over, and its nonce with it. */
	if (c->progress == BEGUN) {
		sits_gcm_abandon(&c->msg);
		c->progress = NO_IV;
	}
	/* One that was set for a decryption may have come before key and nonce. */
	if (encrypt || c->encrypt)
		c->tag_len = 0;
	c->encrypt = encrypt;
	if (key) {
		if (key_len != SITS_SM4_KEY_LEN)
			return FAIL(c->prov, PROV_R_KEY_LEN);
		sits_gcm_set_key(&c->key, key);
		c->key_set = true;
	}
	/* Before the nonce: they may say how long it is. */
	if (!set_ctx_params(c, params))
		return 0;
	if (iv) {
		if (!iv_len || iv_len > IV_LEN_MAX)
			return FAIL(c->prov, PROV_R_IV_LEN);
		memcpy(c->iv, iv, iv_len);
		c->iv_len = iv_len;
		c->progress = IV_SET;
	}
	return 1;
}

static int encrypt_init(void *ctx, const unsigned char *key, size_t key_len, const unsigned char *iv, size_t iv_len,
			const OSSL_PARAM params[])
{
	return init(ctx, true, key, key_len, iv, iv_len, params);
}

static int decrypt_init(void *ctx, const unsigned char *key, size_t key_len, const unsigned char *iv, size_t iv_len,
			const OSSL_PARAM params[])
{
	return init(ctx, false, key, key_len, iv, iv_len, params);
}

static bool begin(struct ctx *c)
{
	if (!c->key_set) {
		FAIL(c->prov, PROV_R_NO_KEY);
		return false;
	}
	if (c->progress == NO_IV) {
		FAIL(c->prov, PROV_R_NO_IV);
		return false;
	}
	if (c->progress == BEGUN)
		return true;
	if (sits_gcm_start(&c->msg, &c->key, c->iv, c->iv_len)) {
		FAIL(c->prov, PROV_R_IV_LEN);
		return false;
	}
	c->in_text = false;
	c->progress = BEGUN;
	return true;
}

static int add_aad(struct ctx *c, const unsigned char *aad, size_t len)
{
	if (c->in_text)
		return FAIL(c->prov, PROV_R_AAD_LATE);
	return sits_gcm_aad(&c->msg, aad, len) ? FAIL(c->prov, PROV_R_TOO_LONG) : 1;
}

static int update(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len)
{
	struct ctx *c = ctx;

	*out_len = 0;
	if (!len)
		return 1;
	if (!in)
		return FAIL(c->prov, PROV_R_NO_BUFFER);
	if (!begin(c))
		return 0;
	if (!out) {
		if (!add_aad(c, in, len))
			return 0;
		*out_len = len;
		return 1;
	}
	if (!prov_check_buffers(c->prov, out, out_size, in, len))
		return 0;
	c->in_text = true;
	if ((c->encrypt ? sits_gcm_update_encrypt : sits_gcm_update_decrypt)(&c->msg, out, in, len))
		return FAIL(c->prov, PROV_R_TOO_LONG);
	*out_len = len;
	return 1;
}

static int final(void *ctx, unsigned char *out, size_t *out_len, size_t out_size)
{
	struct ctx *c = ctx;
	int ret;

	*out_len = 0;
	if (!c->encrypt && !c->tag_len)
		return FAIL(c->prov, PROV_R_NO_TAG);
	if (!begin(c))
		return 0;
	c->progress = NO_IV;
	if (c->encrypt) {
		sits_gcm_final(&c->msg, c->tag);
		c->tag_len = SITS_GCM_TAG_LEN;
		return 1;
	}
	ret = sits_gcm_verify(&c->msg, c->tag, c->tag_len);
	c->tag_len = 0;
	return ret ? FAIL(c->prov, PROV_R_BAD_TAG) : 1;
}

/* What EVP_Cipher() comes to: update, and final where there is no input. */
static int once(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len)
{
	if (in)
		return update(ctx, out, out_len, out_size, in, len);
	return final(ctx, out, out_len, out_size);
}

const OSSL_DISPATCH prov_gcm[] = {
	FUNC(OSSL_FUNC_CIPHER_NEWCTX, new_ctx),
	FUNC(OSSL_FUNC_CIPHER_FREECTX, free_ctx),
	FUNC(OSSL_FUNC_CIPHER_DUPCTX, dup_ctx),
	FUNC(OSSL_FUNC_CIPHER_ENCRYPT_INIT, encrypt_init),
	FUNC(OSSL_FUNC_CIPHER_DECRYPT_INIT, decrypt_init),
	FUNC(OSSL_FUNC_CIPHER_UPDATE, update),
	FUNC(OSSL_FUNC_CIPHER_FINAL, final),
	FUNC(OSSL_FUNC_CIPHER_CIPHER, once),
	FUNC(OSSL_FUNC_CIPHER_GET_PARAMS, get_params),
	FUNC(OSSL_FUNC_CIPHER_GET_CTX_PARAMS, get_ctx_params),
	FUNC(OSSL_FUNC_CIPHER_SET_CTX_PARAMS, set_ctx_params),
	FUNC(OSSL_FUNC_CIPHER_GETTABLE_PARAMS, cipher_gettable),
	FUNC(OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, gettable_ctx),
	FUNC(OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, settable_ctx),
	FUNC_END,
};
