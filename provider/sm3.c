// SPDX-License-Identifier: MIT
/*
 * sm3.c - SM3 as a digest of the provider.
 */
#include "provider/prov.h"

#include <string.h>

#include <openssl/core_names.h>

#include "crypto/sm3.h"

#define BLOCK_LEN 64

/* Owned by the core's EVP_MD_CTX, which one thread at a time uses. What is hashed may be secret: wiped when freed. */
struct ctx {
	const struct prov *prov;
	struct sits_sm3 sm3;
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

	if (copy)
		*copy = *c;
	return copy;
}

static int init(void *ctx, const OSSL_PARAM params[])
{
	struct ctx *c = ctx;

	sits_sm3_init(&c->sm3);
	return 1;
}

static int update(void *ctx, const unsigned char *in, size_t len)
{
	struct ctx *c = ctx;

	if (len && !in)
		return FAIL(c->prov, PROV_R_NO_BUFFER);
	sits_sm3_update(&c->sm3, in, len);
	return 1;
}

static int final(void *ctx, unsigned char *out, size_t *out_len, size_t out_size)
{
	struct ctx *c = ctx;

	if (!out || out_size < SITS_SM3_LEN)
		return FAIL(c->prov, PROV_R_OUTPUT_LEN);
	sits_sm3_final(&c->sm3, out);
	*out_len = SITS_SM3_LEN;
	return 1;
}

static int digest(void *provctx, const unsigned char *in, size_t len, unsigned char *out, size_t *out_len, size_t out_size)
{
	struct sits_sm3 s;

	if (!out || out_size < SITS_SM3_LEN)
		return FAIL(provctx, PROV_R_OUTPUT_LEN);
	if (len && !in)
		return FAIL(provctx, PROV_R_NO_BUFFER);
	sits_sm3_init(&s);
	sits_sm3_update(&s, in, len);
	sits_sm3_final(&s, out);
	*out_len = SITS_SM3_LEN;
	return 1;
}

static int get_params(OSSL_PARAM params[])
{
	return param_put_number(param_find_out(params, OSSL_DIGEST_PARAM_BLOCK_SIZE), BLOCK_LEN) &&
	       param_put_number(param_find_out(params, OSSL_DIGEST_PARAM_SIZE), SITS_SM3_LEN) &&
	       param_put_number(param_find_out(params, OSSL_DIGEST_PARAM_XOF), 0) &&
	       param_put_number(param_find_out(params, OSSL_DIGEST_PARAM_ALGID_ABSENT), 0);
}

static const OSSL_PARAM *gettable(void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_DIGEST_PARAM_BLOCK_SIZE), PARAM_NUMBER(OSSL_DIGEST_PARAM_SIZE),
		PARAM_NUMBER(OSSL_DIGEST_PARAM_XOF), PARAM_NUMBER(OSSL_DIGEST_PARAM_ALGID_ABSENT), PARAM_END,
	};

	return list;
}

const OSSL_DISPATCH prov_sm3[] = {
	FUNC(OSSL_FUNC_DIGEST_NEWCTX, new_ctx),
	FUNC(OSSL_FUNC_DIGEST_FREECTX, free_ctx),
	FUNC(OSSL_FUNC_DIGEST_DUPCTX, dup_ctx),
	FUNC(OSSL_FUNC_DIGEST_INIT, init),
	FUNC(OSSL_FUNC_DIGEST_UPDATE, update),
	FUNC(OSSL_FUNC_DIGEST_FINAL, final),
	FUNC(OSSL_FUNC_DIGEST_DIGEST, digest),
	FUNC(OSSL_FUNC_DIGEST_GET_PARAMS, get_params),
	FUNC(OSSL_FUNC_DIGEST_GETTABLE_PARAMS, gettable),
	FUNC_END,
};
