// SPDX-License-Identifier: MIT
/*
 * block.c - SM4-ECB and SM4-CBC of the provider: whole blocks, with the padding of PKCS #7 unless it is switched off.
 */
#include "provider/prov.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "crypto/sm4.h"

#define BLOCK SITS_SM4_BLOCK_LEN
#define BOUNCE_LEN 1024u

static const struct cipher_facts ecb_facts = { .mode = EVP_CIPH_ECB_MODE, .key_len = 16, .block_len = BLOCK };
static const struct cipher_facts cbc_facts = { .mode = EVP_CIPH_CBC_MODE, .key_len = 16, .iv_len = BLOCK, .block_len = BLOCK };

/* Owned by the core's EVP_CIPHER_CTX, which one thread at a time uses; wiped when freed. */
struct ctx {
	const struct prov *prov;
	bool cbc, encrypt, pad, key_set, iv_set;
	struct sits_sm4_key key;
	uint8_t first_iv[BLOCK];	/* as it was set */
	uint8_t iv[BLOCK];		/* the block before */
	uint8_t part[BLOCK];		/* what came and was not worked on yet */
	size_t have;			/* bytes of it; up to BLOCK where the last block may be padding */
};

/* --------------------------------------------------------------- lives */

static void *new_ctx(const struct prov *prov, bool cbc)
{
	struct ctx *c = prov->zalloc(sizeof(*c), NULL, 0);

	if (!c)
		return NULL;
	c->prov = prov;
	c->cbc = cbc;
	c->pad = true;
	return c;
}

static void *new_ecb(void *provctx)
{
	return new_ctx(provctx, false);
}

static void *new_cbc(void *provctx)
{
	return new_ctx(provctx, true);
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
	struct ctx *copy = new_ctx(c->prov, c->cbc);

	if (copy)
		*copy = *c;
	return copy;
}

/* --------------------------------------------------------------- parameters */

static int get_ecb_params(OSSL_PARAM params[])
{
	return cipher_facts_get(params, &ecb_facts);
}

static int get_cbc_params(OSSL_PARAM params[])
{
	return cipher_facts_get(params, &cbc_facts);
}

static int get_ctx_params(void *ctx, OSSL_PARAM params[])
{
	const struct ctx *c = ctx;
	size_t iv_len = c->cbc ? BLOCK : 0;

	if (param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_KEYLEN), SITS_SM4_KEY_LEN) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_IVLEN), iv_len) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_PADDING), c->pad) &&
	    param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_NUM), 0) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_IV), c->first_iv, iv_len) &&
	    param_put_bytes(param_find_out(params, OSSL_CIPHER_PARAM_UPDATED_IV), c->iv, iv_len))
		return 1;
	return FAIL(c->prov, PROV_R_PARAM);
}

static int set_ctx_params(void *ctx, const OSSL_PARAM params[])
{
	struct ctx *c = ctx;
	const OSSL_PARAM *p;
	uint64_t n;

	p = param_find(params, OSSL_CIPHER_PARAM_PADDING);
	if (p) {
		if (!param_get_number(p, &n))
			return FAIL(c->prov, PROV_R_PARAM);
		c->pad = n;
	}
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
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_CIPHER_PARAM_PADDING), PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN), PARAM_END,
	};

	return list;
}

/* --------------------------------------------------------------- work */

static int init(struct ctx *c, bool encrypt, const unsigned char *key, size_t key_len, const unsigned char *iv, size_t iv_len,
		const OSSL_PARAM params[])
{
	c->encrypt = encrypt;
	c->have = 0;
	if (key && key_len != SITS_SM4_KEY_LEN)
		return FAIL(c->prov, PROV_R_KEY_LEN);
	if (iv && c->cbc) {
		if (iv_len != BLOCK)
			return FAIL(c->prov, PROV_R_IV_LEN);
		memcpy(c->first_iv, iv, BLOCK);
		c->iv_set = true;
	}
	/* Without a new one, the next message begins with the old: so do libcrypto's own. */
	memcpy(c->iv, c->first_iv, BLOCK);
	if (key) {
		sits_sm4_expand_key(&c->key, key);
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

static bool ready(const struct ctx *c)
{
	if (!c->key_set)
		FAIL(c->prov, PROV_R_NO_KEY);
	else if (c->cbc && !c->iv_set)
		FAIL(c->prov, PROV_R_NO_IV);
	else
		return true;
	return false;
}

static void crypt(struct ctx *c, uint8_t *dst, const uint8_t *src, size_t len)
{
	if (c->cbc)
		(c->encrypt ? sits_sm4_cbc_encrypt : sits_sm4_cbc_decrypt)(&c->key, c->iv, dst, src, len / BLOCK);
	else
		(c->encrypt ? sits_sm4_ecb_encrypt : sits_sm4_ecb_decrypt)(&c->key, dst, src, len / BLOCK);
}

/*
 * A message that is worked on in place, of which some bytes were kept back: output is @lead bytes, up to a block, before input,
 * and would overwrite what is not read yet. @src: the first @lead bytes of it are gone, and were saved in @saved.
 */
static void crypt_behind(struct ctx *c, uint8_t *dst, const uint8_t *src, size_t len, uint8_t saved[BLOCK], size_t lead)
{
	uint8_t bounce[BOUNCE_LEN];
	size_t n;

	for (; len; dst += n, src += n, len -= n) {
		n = len < BOUNCE_LEN ? len : BOUNCE_LEN;
		memcpy(bounce, saved, lead);
		memcpy(bounce + lead, src + lead, n - lead);
		if (len > n)
			memcpy(saved, src + n, lead);
		crypt(c, dst, bounce, n);
	}
	sits_wipe(bounce, sizeof(bounce));
}

/* The block that had begun, and then all that is whole; c->have > 0. */
static int crypt_begun(struct ctx *c, uint8_t *out, size_t whole, const uint8_t *in)
{
	size_t take = BLOCK - c->have, rest = whole - BLOCK;
	const uint8_t *src = in + take;
	uint8_t *dst = out + BLOCK, first[BLOCK], saved[BLOCK];
	uintptr_t lead = (uintptr_t)dst - (uintptr_t)src;
	bool behind = rest && lead && lead <= BLOCK;

	if (rest && lead && !behind && (uintptr_t)out < (uintptr_t)src + rest && (uintptr_t)src < (uintptr_t)out + whole)
		return FAIL(c->prov, PROV_R_OVERLAP);
	memcpy(first, c->part, c->have);
	memcpy(first + c->have, in, take);
	if (behind)
		memcpy(saved, src, lead);
	crypt(c, out, first, BLOCK);
	if (behind)
		crypt_behind(c, dst, src, rest, saved, lead);
	else
		crypt(c, dst, src, rest);
	sits_wipe(first, sizeof(first));
	sits_wipe(saved, sizeof(saved));
	return 1;
}

static int update(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len)
{
	struct ctx *c = ctx;
	size_t total = c->have + len, whole = total - total % BLOCK, used;
	uint8_t tail[BLOCK];

	*out_len = 0;
	if (!ready(c))
		return 0;
	/* What may be padding is kept back until the message has an end, or goes on. */
	if (whole && whole == total && c->pad && !c->encrypt)
		whole -= BLOCK;
	if (!len)
		return 1;
	if (!in || (whole && !out))
		return FAIL(c->prov, PROV_R_NO_BUFFER);
	if (!whole) {
		memcpy(c->part + c->have, in, len);
		c->have += len;
		return 1;
	}
	if (out_size < whole)
		return FAIL(c->prov, PROV_R_OUTPUT_LEN);
	used = whole - c->have;
	memcpy(tail, in + used, len - used);
	if (!c->have) {
		if (prov_overlap(out, in, whole))
			return FAIL(c->prov, PROV_R_OVERLAP);
		crypt(c, out, in, whole);
	} else if (!crypt_begun(c, out, whole, in)) {
		return 0;
	}
	memcpy(c->part, tail, len - used);
	c->have = len - used;
	*out_len = whole;
	sits_wipe(tail, sizeof(tail));
	return 1;
}

/* How many bytes of the last block are padding; 0: it is none. Without a branch on what it holds. */
static unsigned int padding_of(const uint8_t block[BLOCK])
{
	unsigned int n = block[BLOCK - 1], bad, i;

	bad = (n - 1) >> 4;	/* n < 1 or n > BLOCK */
	for (i = 0; i < BLOCK; i++)
		bad |= (block[BLOCK - 1 - i] ^ n) & (0 - ((i - n) >> 31));
	return n & (0 - ((bad - 1) >> 31));
}

static int final(void *ctx, unsigned char *out, size_t *out_len, size_t out_size)
{
	struct ctx *c = ctx;
	uint8_t last[BLOCK];
	size_t n = BLOCK;

	*out_len = 0;
	if (!ready(c))
		return 0;
	if (!out)
		out_size = 0;
	if (!c->pad && !c->have)
		return 1;
	/* Without padding it was kept back, too, if padding was switched off since. */
	if ((!c->pad || !c->encrypt) && c->have != BLOCK)
		return FAIL(c->prov, PROV_R_NOT_WHOLE_BLOCKS);
	if ((!c->pad || c->encrypt) && out_size < BLOCK)
		return FAIL(c->prov, PROV_R_OUTPUT_LEN);
	if (c->encrypt) {
		memset(c->part + c->have, (int)(BLOCK - c->have), BLOCK - c->have);
	}
	crypt(c, last, c->part, BLOCK);
	if (!c->encrypt && c->pad) {
		n -= padding_of(last);
		if (n == BLOCK || n > out_size) {
			sits_wipe(last, sizeof(last));
			return FAIL(c->prov, n == BLOCK ? PROV_R_BAD_PADDING : PROV_R_OUTPUT_LEN);
		}
	}
	if (n)
		memcpy(out, last, n);
	sits_wipe(last, sizeof(last));
	c->have = 0;
	*out_len = n;
	return 1;
}

/* One call for a message of whole blocks; what EVP_Cipher() comes to. */
static int once(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len)
{
	struct ctx *c = ctx;

	if (!ready(c))
		return 0;
	if (len % BLOCK)
		return FAIL(c->prov, PROV_R_NOT_WHOLE_BLOCKS);
	if (!prov_check_buffers(c->prov, out, out_size, in, len))
		return 0;
	crypt(c, out, in, len);
	*out_len = len;
	return 1;
}

#define COMMON \
	FUNC(OSSL_FUNC_CIPHER_FREECTX, free_ctx), \
	FUNC(OSSL_FUNC_CIPHER_DUPCTX, dup_ctx), \
	FUNC(OSSL_FUNC_CIPHER_ENCRYPT_INIT, encrypt_init), \
	FUNC(OSSL_FUNC_CIPHER_DECRYPT_INIT, decrypt_init), \
	FUNC(OSSL_FUNC_CIPHER_UPDATE, update), \
	FUNC(OSSL_FUNC_CIPHER_FINAL, final), \
	FUNC(OSSL_FUNC_CIPHER_CIPHER, once), \
	FUNC(OSSL_FUNC_CIPHER_GET_CTX_PARAMS, get_ctx_params), \
	FUNC(OSSL_FUNC_CIPHER_SET_CTX_PARAMS, set_ctx_params), \
	FUNC(OSSL_FUNC_CIPHER_GETTABLE_PARAMS, cipher_gettable), \
	FUNC(OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, gettable_ctx), \
	FUNC(OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, settable_ctx), \
	FUNC_END

const OSSL_DISPATCH prov_ecb[] = {
	FUNC(OSSL_FUNC_CIPHER_NEWCTX, new_ecb), FUNC(OSSL_FUNC_CIPHER_GET_PARAMS, get_ecb_params), COMMON,
};

const OSSL_DISPATCH prov_cbc[] = {
	FUNC(OSSL_FUNC_CIPHER_NEWCTX, new_cbc), FUNC(OSSL_FUNC_CIPHER_GET_PARAMS, get_cbc_params), COMMON,
};
