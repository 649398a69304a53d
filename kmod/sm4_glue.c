// SPDX-License-Identifier: GPL-2.0
/*
 * sm4_glue.c - sits_sm4.ko: crypto/'s SM4 for the kernel crypto API.
 *
 * Registers sm4 (single blocks), ecb(sm4) and ctr(sm4). The kernel's templates make the other modes of them:
 * gcm(sm4) of ctr(sm4) and the machine's ghash, xts(sm4) of ecb(sm4). Users ask by name, so a driver with
 * a higher priority (vector code, an accelerator) wins where there is one.
 *
 * Each algorithm is tested by the crypto manager when it is registered, with the vectors that the kernel has for its name.
 */
#include <crypto/algapi.h>
#include <crypto/internal/skcipher.h>
#include <linux/crypto.h>
#include <linux/module.h>

#include "crypto/sm4_impl.h"

/* Above sm4-generic (100), whose tables leak by cache timing; below vector code (400 and up). */
#define SITS_SM4_PRIORITY 200

/* What the walker should offer at least: one batch of the core. */
#define SITS_SM4_WALK_BYTES (SITS_SM4_BS64_BLOCKS * SITS_SM4_BLOCK_LEN)

static int sits_sm4_set_key(struct sits_sm4_key *key, const u8 *raw, unsigned int len)
{
	if (len != SITS_SM4_KEY_LEN)
		return -EINVAL;
	sits_sm4_expand_key(key, raw);
	return 0;
}

static int sits_sm4_cipher_setkey(struct crypto_tfm *tfm, const u8 *raw, unsigned int len)
{
	return sits_sm4_set_key(crypto_tfm_ctx(tfm), raw, len);
}

static void sits_sm4_cipher_encrypt(struct crypto_tfm *tfm, u8 *dst, const u8 *src)
{
	sits_sm4_encrypt_block(crypto_tfm_ctx(tfm), dst, src);
}

static void sits_sm4_cipher_decrypt(struct crypto_tfm *tfm, u8 *dst, const u8 *src)
{
	sits_sm4_decrypt_block(crypto_tfm_ctx(tfm), dst, src);
}

static int sits_sm4_skcipher_setkey(struct crypto_skcipher *tfm, const u8 *raw, unsigned int len)
{
	return sits_sm4_set_key(crypto_skcipher_ctx(tfm), raw, len);
}

static int sits_sm4_ecb(struct skcipher_request *req, const u32 rk[32])
{
	struct skcipher_walk walk;
	int ret;

	ret = skcipher_walk_virt(&walk, req, false);
	while (walk.nbytes) {
		unsigned int tail = walk.nbytes % SITS_SM4_BLOCK_LEN;

		sits_sm4_crypt_blocks(rk, walk.dst.virt.addr, walk.src.virt.addr, walk.nbytes / SITS_SM4_BLOCK_LEN);
		ret = skcipher_walk_done(&walk, tail);
	}
	return ret;
}

static int sits_sm4_ecb_encrypt_req(struct skcipher_request *req)
{
	const struct sits_sm4_key *key = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));

	return sits_sm4_ecb(req, key->enc);
}

static int sits_sm4_ecb_decrypt_req(struct skcipher_request *req)
{
	const struct sits_sm4_key *key = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));

	return sits_sm4_ecb(req, key->dec);
}

static int sits_sm4_ctr_req(struct skcipher_request *req)
{
	const struct sits_sm4_key *key = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));
	struct skcipher_walk walk;
	int ret;

	ret = skcipher_walk_virt(&walk, req, false);
	while (walk.nbytes) {
		/* Only the last step may end within a block. */
		unsigned int tail = walk.nbytes < walk.total ? walk.nbytes % SITS_SM4_BLOCK_LEN : 0;

		sits_sm4_ctr(key, walk.iv, walk.dst.virt.addr, walk.src.virt.addr, walk.nbytes - tail);
		ret = skcipher_walk_done(&walk, tail);
	}
	return ret;
}

static struct crypto_alg sits_sm4_cipher = {
	.cra_name		= "sm4",
	.cra_driver_name	= "sm4-sits",
	.cra_priority		= SITS_SM4_PRIORITY,
	.cra_flags		= CRYPTO_ALG_TYPE_CIPHER,
	.cra_blocksize		= SITS_SM4_BLOCK_LEN,
	.cra_ctxsize		= sizeof(struct sits_sm4_key),
	.cra_module		= THIS_MODULE,
	.cra_u.cipher = {
		.cia_min_keysize	= SITS_SM4_KEY_LEN,
		.cia_max_keysize	= SITS_SM4_KEY_LEN,
		.cia_setkey		= sits_sm4_cipher_setkey,
		.cia_encrypt		= sits_sm4_cipher_encrypt,
		.cia_decrypt		= sits_sm4_cipher_decrypt,
	},
};

static struct skcipher_alg sits_sm4_skciphers[] = {
	{
		.base = {
			.cra_name		= "ecb(sm4)",
			.cra_driver_name	= "ecb-sm4-sits",
			.cra_priority		= SITS_SM4_PRIORITY,
			.cra_blocksize		= SITS_SM4_BLOCK_LEN,
			.cra_ctxsize		= sizeof(struct sits_sm4_key),
			.cra_module		= THIS_MODULE,
		},
		.min_keysize	= SITS_SM4_KEY_LEN,
		.max_keysize	= SITS_SM4_KEY_LEN,
		.walksize	= SITS_SM4_WALK_BYTES,
		.setkey		= sits_sm4_skcipher_setkey,
		.encrypt	= sits_sm4_ecb_encrypt_req,
		.decrypt	= sits_sm4_ecb_decrypt_req,
	}, {
		.base = {
			.cra_name		= "ctr(sm4)",
			.cra_driver_name	= "ctr-sm4-sits",
			.cra_priority		= SITS_SM4_PRIORITY,
			.cra_blocksize		= 1,
			.cra_ctxsize		= sizeof(struct sits_sm4_key),
			.cra_module		= THIS_MODULE,
		},
		.min_keysize	= SITS_SM4_KEY_LEN,
		.max_keysize	= SITS_SM4_KEY_LEN,
		.ivsize		= SITS_SM4_BLOCK_LEN,
		.chunksize	= SITS_SM4_BLOCK_LEN,
		.walksize	= SITS_SM4_WALK_BYTES,
		.setkey		= sits_sm4_skcipher_setkey,
		.encrypt	= sits_sm4_ctr_req,
		.decrypt	= sits_sm4_ctr_req,
	},
};

static int __init sits_sm4_init(void)
{
	int ret;

	ret = crypto_register_alg(&sits_sm4_cipher);
	if (ret)
		return ret;
	ret = crypto_register_skciphers(sits_sm4_skciphers, ARRAY_SIZE(sits_sm4_skciphers));
	if (ret)
		goto err_unregister_cipher;
	return 0;

err_unregister_cipher:
	crypto_unregister_alg(&sits_sm4_cipher);
	return ret;
}

static void __exit sits_sm4_exit(void)
{
	crypto_unregister_skciphers(sits_sm4_skciphers, ARRAY_SIZE(sits_sm4_skciphers));
	crypto_unregister_alg(&sits_sm4_cipher);
}

module_init(sits_sm4_init);
module_exit(sits_sm4_exit);

MODULE_DESCRIPTION("SM4 (GB/T 32907-2016) in constant time: sm4, ecb(sm4), ctr(sm4)");
MODULE_LICENSE("GPL");
MODULE_ALIAS_CRYPTO("sm4");
MODULE_ALIAS_CRYPTO("sm4-sits");
MODULE_ALIAS_CRYPTO("ecb(sm4)");
MODULE_ALIAS_CRYPTO("ctr(sm4)");
/* The templates and the hash for gcm(sm4) and xts(sm4), where a small root file system has them. */
MODULE_SOFTDEP("post: crypto-gcm crypto-ghash crypto-xts");
