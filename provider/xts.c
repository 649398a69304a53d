// SPDX-License-Identifier: MIT
/*
 * xts.c - SM4-XTS of the provider. As with libcrypto's own XTS, each call of update is a data unit of its own, under the tweak that was
 * set last. The parameter "xts_standard" chooses between "GB" (GB/T 17964-2021; what SM4-XTS means to OpenSSL unless told
 * otherwise) and "IEEE" (IEEE 1619).
 */
#include "provider/prov.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "crypto/sm4.h"

#define IV_LEN 16
#define DATA_UNIT_MAX ((size_t)16 << 20)	/* IEEE Std 1619-2018, clause 5.1: 2^20 blocks */

/* Came with OpenSSL 3.2. */
#ifndef OSSL_CIPHER_PARAM_XTS_STANDARD
#define OSSL_CIPHER_PARAM_XTS_STANDARD "xts_standard"
#endif

static const struct cipher_facts facts = {
	.mode = EVP_CIPH_XTS_MODE, .key_len = SITS_XTS_KEY_LEN, .iv_len = IV_LEN, .block_len = 1, .custom_iv = true,
};

/* Owned by the core's EVP_CIPHER_CTX, which one thread at a time uses; wiped when freed. */
struct ctx {
	const struct prov *prov;
	bool encrypt, key_set, iv_set;
	enum sits_xts_form form;
	struct sits_xts_key key;
	uint8_t iv[IV_LEN];
};

static void *new_ctx(void *provctx)
{
	const struct prov *prov = provctx;
	struct ctx *c = prov->zalloc(sizeof(*c), NULL, 0);

	if (!c)
		return NULL;
	c->prov = prov;
	c->form = SITS_XTS_GB;
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

	if (copy)
		*copy = *c;
	return copy;
}

static int get_params(OSSL_PARAM params[])
{
	return cipher_facts_get(params, &facts);
}

static int get_ctx_params(void *ctx, OSSL_PARAM params[])
{
	const struct ctx *c = ctx;

	if (param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_KEYLEN), SITS_XTS_KEY_LEN) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_IVLEN), IV_LEN) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_PADDING), 0) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_IV), c->iv, IV_LEN) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_UPDATED_IV), c->iv, IV_LEN) &&
	    param_put_text(param_find_out(params, OSSL_CIPHER_PARAM_XTS_STANDARD), c->form == SITS_XTS_GB ? "GB" : "IEEE"))
		return 1;
	return FAIL(c->prov, PROV_R_PARAM);
}

/* A letter of either case: names of standards are given in both. */
static bool same_name(const OSSL_PARAM *p, const char *name)
{
	const char *s = p->data;
	size_t len = strlen(name), i;

	if (p->data_size < len)
		return false;
	for (i = 0; i < len; i++)
		if ((s[i] | 0x20) != (name[i] | 0x20))
			return false;
	return p->data_size == len || !s[len];
}

static int set_ctx_params(void *ctx, const OSSL_PARAM params[])
{
	struct ctx *c = ctx;
	const OSSL_PARAM *p;

	if (!cipher_check_key_len(c->prov, params, SITS_XTS_KEY_LEN))
		return 0;
	p = param_find(params, OSSL_CIPHER_PARAM_XTS_STANDARD);
	if (!p)
		return 1;
	if (p->data_type != OSSL_PARAM_UTF8_STRING || !p->data)
		return FAIL(c->prov, PROV_R_PARAM);
	if (same_name(p, "GB"))
		c->form = SITS_XTS_GB;
	else if (same_name(p, "IEEE"))
		c->form = SITS_XTS_IEEE;
	else
		return FAIL(c->prov, PROV_R_XTS_STANDARD);
	return 1;
}

static const OSSL_PARAM *gettable_ctx(void *ctx, void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN), PARAM_NUMBER(OSSL_CIPHER_PARAM_IVLEN),
		PARAM_NUMBER(OSSL_CIPHER_PARAM_PADDING), PARAM_BYTES(OSSL_CIPHER_PARAM_IV),
		PARAM_BYTES(OSSL_CIPHER_PARAM_UPDATED_IV), PARAM_TEXT(OSSL_CIPHER_PARAM_XTS_STANDARD), PARAM_END,
	};

	return list;
}

static const OSSL_PARAM *settable_ctx(void *ctx, void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN), PARAM_TEXT(OSSL_CIPHER_PARAM_XTS_STANDARD), PARAM_END,
	};

	return list;
}

static bool halves_equal(const unsigned char *key)
{
	uint8_t diff = 0;
	int i;

	for (i = 0; i < SITS_SM4_KEY_LEN; i++)
		diff |= key[i] ^ key[SITS_SM4_KEY_LEN + i];
	return !diff;
}

static int init(struct ctx *c, bool encrypt, const unsigned char *key, size_t key_len, const unsigned char *iv, size_t iv_len,
		const OSSL_PARAM params[])
{
	c->encrypt = encrypt;
	if (iv) {
		if (iv_len != IV_LEN)
			return FAIL(c->prov, PROV_R_IV_LEN);
		memcpy(c->iv, iv, IV_LEN);
		c->iv_set = true;
	}
	if (key) {
		if (key_len != SITS_XTS_KEY_LEN)
			return FAIL(c->prov, PROV_R_KEY_LEN);
		/* Data that somebody encrypted so can still be read. */
		if (encrypt && halves_equal(key))
			return FAIL(c->prov, PROV_R_XTS_KEYS_EQUAL);
		sits_xts_set_key(&c->key, key);
		c->key_set = true;
	}
	return set_ctx_params(c, params);
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

static int update(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len)
{
	struct ctx *c = ctx;

	*out_len = 0;
	if (!c->key_set)
		return FAIL(c->prov, PROV_R_NO_KEY);
	if (!c->iv_set)
		return FAIL(c->prov, PROV_R_NO_IV);
	if (len < SITS_SM4_BLOCK_LEN || len > DATA_UNIT_MAX)
		return FAIL(c->prov, PROV_R_DATA_UNIT_LEN);
	if (!prov_check_buffers(c->prov, out, out_size, in, len))
		return 0;
	(c->encrypt ? sits_xts_encrypt : sits_xts_decrypt)(&c->key, c->form, c->iv, out, in, len);
	*out_len = len;
	return 1;
}

static int final(void *ctx, unsigned char *out, size_t *out_len, size_t out_size)
{
	*out_len = 0;
	return 1;
}

const OSSL_DISPATCH prov_xts[] = {
	FUNC(OSSL_FUNC_CIPHER_NEWCTX, new_ctx),
	FUNC(OSSL_FUNC_CIPHER_FREECTX, free_ctx),
	FUNC(OSSL_FUNC_CIPHER_DUPCTX, dup_ctx),
	FUNC(OSSL_FUNC_CIPHER_ENCRYPT_INIT, encrypt_init),
	FUNC(OSSL_FUNC_CIPHER_DECRYPT_INIT, decrypt_init),
	FUNC(OSSL_FUNC_CIPHER_UPDATE, update),
	FUNC(OSSL_FUNC_CIPHER_FINAL, final),
	FUNC(OSSL_FUNC_CIPHER_CIPHER, update),
	FUNC(OSSL_FUNC_CIPHER_GET_PARAMS, get_params),
	FUNC(OSSL_FUNC_CIPHER_GET_CTX_PARAMS, get_ctx_params),
	FUNC(OSSL_FUNC_CIPHER_SET_CTX_PARAMS, set_ctx_params),
	FUNC(OSSL_FUNC_CIPHER_GETTABLE_PARAMS, cipher_gettable),
	FUNC(OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, gettable_ctx),
	FUNC(OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, settable_ctx),
	FUNC_END,
};
