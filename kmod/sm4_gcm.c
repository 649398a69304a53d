// SPDX-License-Identifier: GPL-2.0
/*
 * sm4_gcm.c - gcm(sm4) for the kernel crypto API, in one pass over the data.
 *
 * Deciphering before the tag is known is what one pass means: where the tag is wrong, what was
 * written is wiped.
 *
 * Source: NIST SP 800-38D; RFC 8998 for SM4.
 */
#include <crypto/gcm.h>
#include <linux/string.h>

#include "kmod/sm4_glue.h"

static int sits_gcm_aead_setkey(struct crypto_aead *tfm, const u8 *raw, unsigned int len)
{
	const struct sits_sm4_variant *v =
		container_of(crypto_aead_alg(tfm), struct sits_sm4_variant, gcm);

	if (len != SITS_SM4_KEY_LEN)
		return -EINVAL;
	sits_gcm_set_key_on(v->core, crypto_aead_ctx(tfm), raw);
	return 0;
}

static int sits_gcm_aead_setauthsize(struct crypto_aead *tfm, unsigned int len)
{
	return crypto_gcm_check_authsize(len);
}

static void sits_gcm_aad_step(void *s, u8 *dst, const u8 *src, size_t len)
{
	sits_gcm_aad(s, src, len);
}

static void sits_gcm_encrypt_step(void *s, u8 *dst, const u8 *src, size_t len)
{
	sits_gcm_update_encrypt(s, dst, src, len);
}

static void sits_gcm_decrypt_step(void *s, u8 *dst, const u8 *src, size_t len)
{
	sits_gcm_update_decrypt(s, dst, src, len);
}

/* Begin, with the associated data. @at: out, where the data begins */
static int sits_gcm_aead_start(struct aead_request *req, struct sits_gcm *s,
			       struct sits_sg_pair *at)
{
	sits_gcm_start(s, crypto_aead_ctx(crypto_aead_reqtfm(req)), req->iv, SITS_GCM_IV_LEN);
	at->may_sleep = req->base.flags & CRYPTO_TFM_REQ_MAY_SLEEP;
	sits_sg_start(&at->in, req->src, 0);
	sits_sg_start(&at->out, req->src, 0);
	if (sits_sg_runs(at, req->assoclen, 1, sits_gcm_aad_step, s))
		return -EINVAL;
	if (req->src == req->dst)
		at->out = at->in;
	else
		sits_sg_start(&at->out, req->dst, req->assoclen);
	return 0;
}

static int sits_gcm_aead_encrypt(struct aead_request *req)
{
	unsigned int tag_len = crypto_aead_authsize(crypto_aead_reqtfm(req));
	u8 tag[SITS_GCM_TAG_LEN];
	struct sits_sg_pair at;
	struct sits_gcm s;
	int ret;

	ret = sits_gcm_aead_start(req, &s, &at);
	if (!ret)
		ret = sits_sg_runs(&at, req->cryptlen, 1, sits_gcm_encrypt_step, &s);
	if (ret)
		goto out;
	sits_gcm_final(&s, tag);
	ret = sits_sg_write(&at.out, tag, tag_len);
out:
	memzero_explicit(&s, sizeof(s));
	return ret;
}

static int sits_gcm_aead_decrypt(struct aead_request *req)
{
	unsigned int tag_len = crypto_aead_authsize(crypto_aead_reqtfm(req)), len;
	u8 tag[SITS_GCM_TAG_LEN];
	struct sits_sg_pair at;
	struct sits_gcm s;
	struct sits_sg begin;
	int ret;

	if (req->cryptlen < tag_len)
		return -EINVAL;
	len = req->cryptlen - tag_len;
	ret = sits_gcm_aead_start(req, &s, &at);
	if (ret)
		goto out;
	begin = at.out;
	ret = sits_sg_runs(&at, len, 1, sits_gcm_decrypt_step, &s);
	if (!ret)
		ret = sits_sg_read(&at.in, tag, tag_len);
	if (!ret)
		ret = sits_gcm_verify(&s, tag, tag_len);
	if (ret)
		sits_sg_zero(&begin, len);
out:
	memzero_explicit(&s, sizeof(s));
	return ret;
}

void sits_sm4_init_gcm(struct sits_sm4_variant *v)
{
	v->gcm = (struct aead_alg) {
		.base.cra_blocksize	= 1,
		.base.cra_ctxsize	= sizeof(struct sits_gcm_key),
		.ivsize			= SITS_GCM_IV_LEN,
		.maxauthsize		= SITS_GCM_TAG_LEN,
		.chunksize		= SITS_SM4_BLOCK_LEN,
		.setkey			= sits_gcm_aead_setkey,
		.setauthsize		= sits_gcm_aead_setauthsize,
		.encrypt		= sits_gcm_aead_encrypt,
		.decrypt		= sits_gcm_aead_decrypt,
	};
	sits_sm4_init_base(&v->gcm.base, v->core, "gcm");
}
