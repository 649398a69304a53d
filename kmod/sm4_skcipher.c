// SPDX-License-Identifier: GPL-2.0
/*
 * sm4_skcipher.c - ecb(sm4), cbc(sm4), ctr(sm4) and xts(sm4) for the kernel crypto API.
 *
 * xts(sm4) is the form of IEEE Std 1619, as the kernel's template has it; that of GB/T 17964-2021
 * gives other ciphertexts, and has no name in the kernel.
 */
#include <crypto/xts.h>
#include <linux/string.h>

#include "kmod/sm4_glue.h"

/* Of what is in a request, what the steps of a mode need. */
struct sits_sm4_work {
	const void *key;
	u8 *iv;
};

static const struct sits_sm4_core *sits_sm4_core(struct crypto_skcipher *tfm)
{
	return container_of(crypto_skcipher_alg(tfm), struct sits_sm4_skcipher, alg)->core;
}

static void sits_sm4_start(struct skcipher_request *req, struct sits_sg_pair *at)
{
	sits_sg_start(&at->in, req->src, 0);
	sits_sg_start(&at->out, req->dst, 0);
	at->may_sleep = req->base.flags & CRYPTO_TFM_REQ_MAY_SLEEP;
}

static int sits_sm4_setkey(struct crypto_skcipher *tfm, const u8 *raw, unsigned int len)
{
	if (len != SITS_SM4_KEY_LEN)
		return -EINVAL;
	sits_sm4_expand_key_on(sits_sm4_core(tfm), crypto_skcipher_ctx(tfm), raw);
	return 0;
}

/* The request, all of it, step by step. */
static int sits_sm4_crypt(struct skcipher_request *req, unsigned int unit,
			  void (*step)(void *work, u8 *dst, const u8 *src, size_t len))
{
	struct sits_sm4_work work = {
		.key = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req)),
		.iv = req->iv,
	};
	struct sits_sg_pair at;

	sits_sm4_start(req, &at);
	return sits_sg_runs(&at, req->cryptlen, unit, step, &work);
}

static int sits_sm4_crypt_blocks(struct skcipher_request *req,
				 void (*step)(void *work, u8 *dst, const u8 *src, size_t len))
{
	if (req->cryptlen % SITS_SM4_BLOCK_LEN)
		return -EINVAL;
	return sits_sm4_crypt(req, SITS_SM4_BLOCK_LEN, step);
}

/* --------------------------------------------------------------------------- modes */

static void sits_sm4_ecb_encrypt_step(void *work, u8 *dst, const u8 *src, size_t len)
{
	const struct sits_sm4_work *w = work;

	sits_sm4_ecb_encrypt(w->key, dst, src, len / SITS_SM4_BLOCK_LEN);
}

static int sits_sm4_ecb_encrypt_req(struct skcipher_request *req)
{
	return sits_sm4_crypt_blocks(req, sits_sm4_ecb_encrypt_step);
}

static void sits_sm4_ecb_decrypt_step(void *work, u8 *dst, const u8 *src, size_t len)
{
	const struct sits_sm4_work *w = work;

	sits_sm4_ecb_decrypt(w->key, dst, src, len / SITS_SM4_BLOCK_LEN);
}

static int sits_sm4_ecb_decrypt_req(struct skcipher_request *req)
{
	return sits_sm4_crypt_blocks(req, sits_sm4_ecb_decrypt_step);
}

static void sits_sm4_cbc_encrypt_step(void *work, u8 *dst, const u8 *src, size_t len)
{
	const struct sits_sm4_work *w = work;

	sits_sm4_cbc_encrypt(w->key, w->iv, dst, src, len / SITS_SM4_BLOCK_LEN);
}

static int sits_sm4_cbc_encrypt_req(struct skcipher_request *req)
{
	return sits_sm4_crypt_blocks(req, sits_sm4_cbc_encrypt_step);
}

static void sits_sm4_cbc_decrypt_step(void *work, u8 *dst, const u8 *src, size_t len)
{
	const struct sits_sm4_work *w = work;

	sits_sm4_cbc_decrypt(w->key, w->iv, dst, src, len / SITS_SM4_BLOCK_LEN);
}

static int sits_sm4_cbc_decrypt_req(struct skcipher_request *req)
{
	return sits_sm4_crypt_blocks(req, sits_sm4_cbc_decrypt_step);
}

static void sits_sm4_ctr_step(void *work, u8 *dst, const u8 *src, size_t len)
{
	const struct sits_sm4_work *w = work;

	sits_sm4_ctr(w->key, w->iv, dst, src, len);
}

static int sits_sm4_ctr_req(struct skcipher_request *req)
{
	return sits_sm4_crypt(req, SITS_SM4_BLOCK_LEN, sits_sm4_ctr_step);
}

/* ----------------------------------------------------------------------------- XTS */

static int sits_sm4_xts_setkey(struct crypto_skcipher *tfm, const u8 *raw, unsigned int len)
{
	int ret;

	if (len != 2 * SITS_SM4_KEY_LEN)
		return -EINVAL;
	ret = xts_verify_key(tfm, raw, len);
	if (ret)
		return ret;
	sits_xts_set_key_on(sits_sm4_core(tfm), crypto_skcipher_ctx(tfm), raw);
	return 0;
}

static void sits_sm4_xts_encrypt_step(void *work, u8 *dst, const u8 *src, size_t len)
{
	const struct sits_sm4_work *w = work;

	sits_xts_encrypt_blocks(w->key, SITS_XTS_IEEE, w->iv, dst, src, len / SITS_SM4_BLOCK_LEN);
}

static void sits_sm4_xts_decrypt_step(void *work, u8 *dst, const u8 *src, size_t len)
{
	const struct sits_sm4_work *w = work;

	sits_xts_decrypt_blocks(w->key, SITS_XTS_IEEE, w->iv, dst, src, len / SITS_SM4_BLOCK_LEN);
}

/* The last whole block and what follows it, which steals from it. */
static int sits_sm4_xts_tail(struct sits_sg_pair *at, const struct sits_xts_key *key,
			     const u8 *tweak, bool encrypt, size_t len)
{
	u8 buf[2 * SITS_SM4_BLOCK_LEN];
	int ret;

	ret = sits_sg_read(&at->in, buf, len);
	if (!ret) {
		if (encrypt)
			sits_xts_encrypt_tail(key, SITS_XTS_IEEE, tweak, buf, buf, len);
		else
			sits_xts_decrypt_tail(key, SITS_XTS_IEEE, tweak, buf, buf, len);
		ret = sits_sg_write(&at->out, buf, len);
	}
	memzero_explicit(buf, sizeof(buf));
	return ret;
}

static int sits_sm4_xts_crypt(struct skcipher_request *req, bool encrypt)
{
	const struct sits_xts_key *key = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));
	size_t len = req->cryptlen, tail = 0;
	u8 tweak[SITS_SM4_BLOCK_LEN];
	struct sits_sm4_work work = { .key = key, .iv = tweak };
	struct sits_sg_pair at;
	int ret;

	if (len < SITS_SM4_BLOCK_LEN)
		return -EINVAL;
	if (len % SITS_SM4_BLOCK_LEN)
		tail = SITS_SM4_BLOCK_LEN + len % SITS_SM4_BLOCK_LEN;
	sits_sm4_start(req, &at);
	sits_xts_start(key, tweak, req->iv);
	ret = sits_sg_runs(&at, len - tail, SITS_SM4_BLOCK_LEN,
			   encrypt ? sits_sm4_xts_encrypt_step : sits_sm4_xts_decrypt_step, &work);
	if (!ret && tail)
		ret = sits_sm4_xts_tail(&at, key, tweak, encrypt, tail);
	memzero_explicit(tweak, sizeof(tweak));
	return ret;
}

static int sits_sm4_xts_encrypt_req(struct skcipher_request *req)
{
	return sits_sm4_xts_crypt(req, true);
}

static int sits_sm4_xts_decrypt_req(struct skcipher_request *req)
{
	return sits_sm4_xts_crypt(req, false);
}

/* --------------------------------------------------------------------- algorithms */

/*
 * No walksize: nothing here walks, and templates that go by it would put whole batches through
 * buffers of theirs.
 */
static const struct sits_sm4_mode {
	const char *name;
	struct skcipher_alg alg;
} sits_sm4_modes[SITS_SM4_NR_SKCIPHERS] = {
	{
		.name = "ecb",
		.alg = {
			.base.cra_blocksize	= SITS_SM4_BLOCK_LEN,
			.base.cra_ctxsize	= sizeof(struct sits_sm4_key),
			.min_keysize		= SITS_SM4_KEY_LEN,
			.max_keysize		= SITS_SM4_KEY_LEN,
			.setkey			= sits_sm4_setkey,
			.encrypt		= sits_sm4_ecb_encrypt_req,
			.decrypt		= sits_sm4_ecb_decrypt_req,
		},
	}, {
		.name = "cbc",
		.alg = {
			.base.cra_blocksize	= SITS_SM4_BLOCK_LEN,
			.base.cra_ctxsize	= sizeof(struct sits_sm4_key),
			.min_keysize		= SITS_SM4_KEY_LEN,
			.max_keysize		= SITS_SM4_KEY_LEN,
			.ivsize			= SITS_SM4_BLOCK_LEN,
			.setkey			= sits_sm4_setkey,
			.encrypt		= sits_sm4_cbc_encrypt_req,
			.decrypt		= sits_sm4_cbc_decrypt_req,
		},
	}, {
		.name = "ctr",
		.alg = {
			.base.cra_blocksize	= 1,
			.base.cra_ctxsize	= sizeof(struct sits_sm4_key),
			.min_keysize		= SITS_SM4_KEY_LEN,
			.max_keysize		= SITS_SM4_KEY_LEN,
			.ivsize			= SITS_SM4_BLOCK_LEN,
			.chunksize		= SITS_SM4_BLOCK_LEN,
			.setkey			= sits_sm4_setkey,
			.encrypt		= sits_sm4_ctr_req,
			.decrypt		= sits_sm4_ctr_req,
		},
	}, {
		.name = "xts",
		.alg = {
			.base.cra_blocksize	= SITS_SM4_BLOCK_LEN,
			.base.cra_ctxsize	= sizeof(struct sits_xts_key),
			.min_keysize		= 2 * SITS_SM4_KEY_LEN,
			.max_keysize		= 2 * SITS_SM4_KEY_LEN,
			.ivsize			= SITS_SM4_BLOCK_LEN,
			.setkey			= sits_sm4_xts_setkey,
			.encrypt		= sits_sm4_xts_encrypt_req,
			.decrypt		= sits_sm4_xts_decrypt_req,
		},
	},
};

void sits_sm4_init_skciphers(struct sits_sm4_variant *v)
{
	unsigned int i;

	for (i = 0; i < SITS_SM4_NR_SKCIPHERS; i++) {
		v->skciphers[i].core = v->core;
		v->skciphers[i].alg = sits_sm4_modes[i].alg;
		sits_sm4_init_base(&v->skciphers[i].alg.base, v->core, sits_sm4_modes[i].name);
	}
}
