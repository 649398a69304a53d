// SPDX-License-Identifier: MIT
/*
 * ctr.c - SM4-CTR of the provider: pieces of any length, a counter of 128 bits.
 */
#include "provider/prov.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "crypto/sm4.h"

#define IV_LEN 16

static const struct cipher_facts facts = { .mode = EVP_CIPH_CTR_MODE, .key_len = 16, .iv_len = IV_LEN, .block_len = 1 };

/* Owned by the core's EVP_CIPHER_CTX, which one thread at a time uses; wiped when freed. */
struct ctx {
	const struct prov *prov;
	bool key_set, iv_set;
	struct sits_sm4_key key;
	struct sits_sm4_stream stream;	/* valid where iv_set; points to key */
	uint8_t first_iv[IV_LEN];	/* as it was set */
};

static void *new_ctx(void *provctx)
{
	const struct prov *prov = provctx;
	struct ctx *c = prov->zalloc(sizeof(*c), NULL, 0);

	if (c)
		c->prov = prov;
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
	copy->stream.key = &copy->key;
	return copy;
}

static int get_params(OSSL_PARAM params[])
{
	return cipher_facts_get(params, &facts);
}

static int get_ctx_params(void *ctx, OSSL_PARAM params[])
{
	const struct ctx *c = ctx;

	if (param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_KEYLEN), SITS_SM4_KEY_LEN) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_IVLEN), IV_LEN) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_PADDING), 0) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_NUM), c->iv_set ? c->stream.used % 16 : 0) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_IV), c->first_iv, IV_LEN) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_UPDATED_IV), c->iv_set ? c->stream.ctr : c->first_iv, IV_LEN))
		return 1;
	return FAIL(c->prov, PROV_R_PARAM);
}

static int set_ctx_params(void *ctx, const OSSL_PARAM params[])
{
	const struct ctx *c = ctx;

	return cipher_check_key_len(c->prov, params, SITS_SM4_KEY_LEN);
}

static const OSSL_PARAM *gettable_ctx(void *ctx, void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN), PARAM_NUMBER(OSSL_CIPHER_PARAM_IVLEN),
		PARAM_NUMBER(OSSL_CIPHER_PARAM_PADDING), PARAM_NUMBER(OSSL_CIPHER_PARAM_NUM),
		PARAM_BYTES(OSSL_CIPHER_PARAM_IV), PARAM_BYTES(OSSL_CIPHER_PARAM_UPDATED_IV), PARAM_END,
	};

	return list;
}

static const OSSL_PARAM *settable_ctx(void *ctx, void *provctx)
{
	static const OSSL_PARAM list[] = { PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN), PARAM_END };

	return list;
}

/* Both directions are one. Without a new counter the next message goes on where the last one was, at a whole block. */
static int init(void *ctx, const unsigned char *key, size_t key_len, const unsigned char *iv, size_t iv_len,
		const OSSL_PARAM params[])
{
	struct ctx *c = ctx;
	uint8_t next[IV_LEN];

	if (key && key_len != SITS_SM4_KEY_LEN)
		return FAIL(c->prov, PROV_R_KEY_LEN);
	if (iv && iv_len != IV_LEN)
		return FAIL(c->prov, PROV_R_IV_LEN);
	if (key) {
		sits_sm4_expand_key(&c->key, key);
		c->key_set = true;
	}
	if (iv) {
		memcpy(c->first_iv, iv, IV_LEN);
		c->iv_set = true;
		sits_sm4_stream_start(&c->stream, &c->key, iv);
	} else if (c->iv_set) {
		memcpy(next, c->stream.ctr, IV_LEN);
		sits_sm4_stream_start(&c->stream, &c->key, next);
	}
	return set_ctx_params(c, params);
}

static int update(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len)
{
	struct ctx *c = ctx;

	*out_len = 0;
	if (!c->key_set)
		return FAIL(c->prov, PROV_R_NO_KEY);
	if (!c->iv_set)
		return FAIL(c->prov, PROV_R_NO_IV);
	if (!prov_check_buffers(c->prov, out, out_size, in, len))
		return 0;
	if (len)
		sits_sm4_stream_crypt(&c->stream, out, in, len);
	*out_len = len;
	return 1;
}

static int final(void *ctx, unsigned char *out, size_t *out_len, size_t out_size)
{
	const struct ctx *c = ctx;

	*out_len = 0;
	return c->key_set ? 1 : FAIL(c->prov, PROV_R_NO_KEY);
}

const OSSL_DISPATCH prov_ctr[] = {
	FUNC(OSSL_FUNC_CIPHER_NEWCTX, new_ctx),
	FUNC(OSSL_FUNC_CIPHER_FREECTX, free_ctx),
	FUNC(OSSL_FUNC_CIPHER_DUPCTX, dup_ctx),
	FUNC(OSSL_FUNC_CIPHER_ENCRYPT_INIT, init),
	FUNC(OSSL_FUNC_CIPHER_DECRYPT_INIT, init),
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
