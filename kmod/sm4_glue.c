// SPDX-License-Identifier: GPL-2.0
/*
 * sm4_glue.c - sits_sm4.ko: crypto/'s SM4 for the kernel crypto API.
 *
 * Each variant (crypto/sm4_core.h) that this machine can run registers sm4 (single blocks), ecb,
 * cbc, ctr, xts and gcm of it, the faster the higher its priority. Users ask by name, and get
 * the best; a driver of an accelerator that registers above all wins.
 *
 * Each variant answers known questions when the module is loaded, and is left out if it fails;
 * each algorithm is tested by the crypto manager besides, with the vectors that the kernel has for
 * its name, and is not used if it fails.
 */
#define pr_fmt(fmt) "sits_sm4: " fmt

#include <crypto/algapi.h>
#include <linux/crypto.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/string.h>

#include "kmod/sm4_glue.h"

/*
 * The kernel's own: sm4-generic 100, whose tables leak by cache timing; aesni-avx 400;
 * aesni-avx2 500. Accelerators: those that stay below the kernel's vector code (Hygon's CCP, 300)
 * stay below ours; the others are in the thousands.
 */
static const struct {
	const char *core;
	int priority;
} sits_sm4_priorities[] = {
	{ "gfni-avx512", 700 },
	{ "gfni-avx2", 650 },
	{ "aesni-avx2", 600 },
	{ "portable", 200 },
};

/* Where 512 bits slow down all else on the core: below gfni-avx2, for who asks by driver. */
#define SITS_SM4_PRIORITY_SLOW_ZMM 640

static char *variant;
module_param(variant, charp, 0444);
MODULE_PARM_DESC(variant, "The only one to offer: portable, aesni-avx2, gfni-avx2 or gfni-avx512; default: all that this machine can run");

static struct sits_sm4_variant sits_sm4_variants[ARRAY_SIZE(sits_sm4_priorities)];
static unsigned int sits_sm4_nr_variants;

/* Ice Lake and Tiger Lake, as the kernel's own AES sees them; Skylake has no GFNI. */
static bool sits_sm4_slow_zmm(void)
{
#ifdef CONFIG_X86_64
	static const u8 models[] = { 0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0x9d };

	return boot_cpu_data.x86_vendor == X86_VENDOR_INTEL && boot_cpu_data.x86 == 6 &&
	       memchr(models, boot_cpu_data.x86_model, sizeof(models));
#else
	return false;
#endif
}

/* Return: below 0 for what is no variant. */
static int sits_sm4_priority(const char *core)
{
	unsigned int i;

	if (!strcmp(core, "gfni-avx512") && sits_sm4_slow_zmm())
		return SITS_SM4_PRIORITY_SLOW_ZMM;
	for (i = 0; i < ARRAY_SIZE(sits_sm4_priorities); i++)
		if (!strcmp(core, sits_sm4_priorities[i].core))
			return sits_sm4_priorities[i].priority;
	return -ENOENT;
}

void sits_sm4_init_base(struct crypto_alg *alg, const struct sits_sm4_core *core, const char *mode)
{
	snprintf(alg->cra_name, sizeof(alg->cra_name), "%s(sm4)", mode);
	snprintf(alg->cra_driver_name, sizeof(alg->cra_driver_name), "%s-sm4-sits-%s", mode,
		 core->name);
	alg->cra_priority = sits_sm4_priority(core->name);
	alg->cra_module = THIS_MODULE;
}

/* ------------------------------------------------------------------- single blocks */

static int sits_sm4_cipher_setkey(struct crypto_tfm *tfm, const u8 *raw, unsigned int len)
{
	const struct sits_sm4_variant *v =
		container_of(tfm->__crt_alg, struct sits_sm4_variant, cipher);

	if (len != SITS_SM4_KEY_LEN)
		return -EINVAL;
	sits_sm4_expand_key_on(v->core, crypto_tfm_ctx(tfm), raw);
	return 0;
}

static void sits_sm4_cipher_encrypt(struct crypto_tfm *tfm, u8 *dst, const u8 *src)
{
	sits_sm4_encrypt_block(crypto_tfm_ctx(tfm), dst, src);
}

static void sits_sm4_cipher_decrypt(struct crypto_tfm *tfm, u8 *dst, const u8 *src)
{
	sits_sm4_decrypt_block(crypto_tfm_ctx(tfm), dst, src);
}

static void sits_sm4_init_cipher(struct sits_sm4_variant *v)
{
	v->cipher = (struct crypto_alg) {
		.cra_name	= "sm4",
		.cra_priority	= sits_sm4_priority(v->core->name),
		.cra_flags	= CRYPTO_ALG_TYPE_CIPHER,
		.cra_blocksize	= SITS_SM4_BLOCK_LEN,
		.cra_ctxsize	= sizeof(struct sits_sm4_key),
		.cra_module	= THIS_MODULE,
		.cra_u.cipher	= {
			.cia_min_keysize	= SITS_SM4_KEY_LEN,
			.cia_max_keysize	= SITS_SM4_KEY_LEN,
			.cia_setkey		= sits_sm4_cipher_setkey,
			.cia_encrypt		= sits_sm4_cipher_encrypt,
			.cia_decrypt		= sits_sm4_cipher_decrypt,
		},
	};
	snprintf(v->cipher.cra_driver_name, sizeof(v->cipher.cra_driver_name), "sm4-sits-%s",
		 v->core->name);
}

/* ------------------------------------------------------------------------ variants */

static void sits_sm4_unregister(struct sits_sm4_variant *v)
{
	int i;

	crypto_unregister_aead(&v->gcm);
	for (i = SITS_SM4_NR_SKCIPHERS - 1; i >= 0; i--)
		crypto_unregister_skcipher(&v->skciphers[i].alg);
	crypto_unregister_alg(&v->cipher);
}

static int sits_sm4_register(struct sits_sm4_variant *v, const struct sits_sm4_core *core)
{
	int ret, i;

	v->core = core;
	sits_sm4_init_cipher(v);
	sits_sm4_init_skciphers(v);
	sits_sm4_init_gcm(v);
	ret = crypto_register_alg(&v->cipher);
	if (ret)
		return ret;
	for (i = 0; i < SITS_SM4_NR_SKCIPHERS; i++) {
		ret = crypto_register_skcipher(&v->skciphers[i].alg);
		if (ret)
			goto err_unregister;
	}
	ret = crypto_register_aead(&v->gcm);
	if (ret)
		goto err_unregister;
	return 0;

err_unregister:
	while (i--)
		crypto_unregister_skcipher(&v->skciphers[i].alg);
	crypto_unregister_alg(&v->cipher);
	return ret;
}

static bool sits_sm4_wanted(const struct sits_sm4_core *core)
{
	return !variant || !strcmp(core->name, variant);
}

static void sits_sm4_unregister_all(void)
{
	while (sits_sm4_nr_variants)
		sits_sm4_unregister(&sits_sm4_variants[--sits_sm4_nr_variants]);
}

/* From the slowest: who asks while this goes on gets one that is there, and works. */
static int sits_sm4_register_all(void)
{
	const struct sits_sm4_core *const *cores;
	unsigned int nr;
	int ret;

	cores = sits_sm4_cores(&nr);
	while (nr--) {
		if (!sits_sm4_wanted(cores[nr]))
			continue;
		if (WARN_ON_ONCE(sits_sm4_nr_variants == ARRAY_SIZE(sits_sm4_variants) ||
				 sits_sm4_priority(cores[nr]->name) < 0))
			continue;
		ret = sits_sm4_selftest(cores[nr]);
		if (ret) {
			pr_err("%s: wrong answers (%d); this machine, or this build, cannot use it: it is left out\n",
			       cores[nr]->name, ret);
			continue;
		}
		ret = sits_sm4_register(&sits_sm4_variants[sits_sm4_nr_variants], cores[nr]);
		if (ret)
			return ret;
		sits_sm4_nr_variants++;
	}
	return 0;
}

static int __init sits_sm4_init(void)
{
	int ret;

	if (variant && sits_sm4_priority(variant) < 0) {
		pr_err("variant=%s: no such variant; there are portable, aesni-avx2, gfni-avx2 and gfni-avx512\n",
		       variant);
		return -EINVAL;
	}
	ret = sits_sm4_register_all();
	if (ret)
		goto err_unregister_all;
	if (!sits_sm4_nr_variants) {
		pr_err("%s: cannot be used here; load without variant= for those that can\n",
		       variant ? variant : "all variants");
		return -ENODEV;
	}
	pr_info("best variant: %s, of %u\n",
		sits_sm4_variants[sits_sm4_nr_variants - 1].core->name, sits_sm4_nr_variants);
	return 0;

err_unregister_all:
	sits_sm4_unregister_all();
	return ret;
}

static void __exit sits_sm4_exit(void)
{
	sits_sm4_unregister_all();
}

module_init(sits_sm4_init);
module_exit(sits_sm4_exit);

MODULE_DESCRIPTION("SM4 (GB/T 32907-2016) in constant time: sm4, and ecb, cbc, ctr, xts, gcm of it");
MODULE_AUTHOR("The SITS project");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

/* Loaded by the name of an algorithm, or by that of a driver. */
MODULE_ALIAS_CRYPTO("sm4");
MODULE_ALIAS_CRYPTO("ecb(sm4)");
MODULE_ALIAS_CRYPTO("cbc(sm4)");
MODULE_ALIAS_CRYPTO("ctr(sm4)");
MODULE_ALIAS_CRYPTO("xts(sm4)");
MODULE_ALIAS_CRYPTO("gcm(sm4)");
MODULE_ALIAS("crypto-*sm4-sits-*");
