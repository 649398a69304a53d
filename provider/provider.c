// SPDX-License-Identifier: MIT
/*
 * provider.c - SM4 and SM3 of crypto/ as a provider module of OpenSSL 3: entry, tables, errors.
 *
 * An application asks for "provider=sits", or loads this provider alone, and gets the fastest core of the machine through
 * the same EVP calls as before. docs/provider.md tells how; the modes are in block.c, ctr.c, gcm.c, xts.c, the hash in sm3.c.
 *
 * Source: provider-base(7), provider-cipher(7), provider-digest(7).
 */
#include "provider/prov.h"

#include <stdio.h>
#include <string.h>

#include <openssl/core_names.h>

#include "crypto/sm4.h"

#define PROPERTIES "provider=sits"

/* The identifiers: GM/T 0006; those that OpenSSL gives its own. */
static const OSSL_ALGORITHM ciphers[] = {
	{ "SM4-ECB:1.2.156.10197.1.104.1", PROPERTIES, prov_ecb, "SM4, electronic codebook" },
	{ "SM4-CBC:SM4:1.2.156.10197.1.104.2", PROPERTIES, prov_cbc, "SM4, cipher block chaining" },
	{ "SM4-CTR:1.2.156.10197.1.104.7", PROPERTIES, prov_ctr, "SM4, counter" },
	{ "SM4-GCM:1.2.156.10197.1.104.8", PROPERTIES, prov_gcm, "SM4, Galois/counter (RFC 8998)" },
	{ "SM4-XTS:1.2.156.10197.1.104.10", PROPERTIES, prov_xts, "SM4, XTS of GB/T 17964-2021 or IEEE 1619" },
	{ NULL, NULL, NULL, NULL },
};

static const OSSL_ALGORITHM digests[] = {
	{ "SM3:1.2.156.10197.1.401", PROPERTIES, prov_sm3, "SM3" },
	{ NULL, NULL, NULL, NULL },
};

static const OSSL_ITEM reasons[] = {
	{ PROV_R_NO_KEY, "no key was set" },
	{ PROV_R_NO_IV, "no initialisation vector was set for this message" },
	{ PROV_R_KEY_LEN, "wrong length of key" },
	{ PROV_R_IV_LEN, "wrong length of initialisation vector" },
	{ PROV_R_TAG_LEN, "wrong length of tag: 4 to 16 bytes" },
	{ PROV_R_NO_TAG, "no tag: set it before the end of decryption, get it after the end of encryption" },
	{ PROV_R_BAD_TAG, "the message is not authentic: drop what was decrypted" },
	{ PROV_R_BAD_PADDING, "wrong padding: another key, or a damaged message" },
	{ PROV_R_NOT_WHOLE_BLOCKS, "the message is no multiple of 16 bytes" },
	{ PROV_R_DATA_UNIT_LEN, "wrong length of a data unit: 16 bytes to 16 MiB" },
	{ PROV_R_TOO_LONG, "the message is too long for this mode" },
	{ PROV_R_OUTPUT_LEN, "the output does not fit its buffer" },
	{ PROV_R_OVERLAP, "input and output overlap, and are not the same" },
	{ PROV_R_NO_BUFFER, "no input, or nowhere for output" },
	{ PROV_R_XTS_KEYS_EQUAL, "the two halves of the key for XTS are equal" },
	{ PROV_R_XTS_STANDARD, "unknown xts_standard: GB or IEEE" },
	{ PROV_R_PARAM, "a parameter is of another type or length" },
	{ PROV_R_AAD_LATE, "associated data after text" },
	{ PROV_R_SELF_TEST, "the known answers of the cipher are not what it gives" },
	{ 0, NULL },
};

int prov_fail(const struct prov *prov, int reason, const char *func)
{
	va_list none;

	memset(&none, 0, sizeof(none));
	if (!prov->new_error || !prov->vset_error)
		return 0;
	prov->new_error(prov->handle);
	if (prov->set_error_debug)
		prov->set_error_debug(prov->handle, "sits provider", 0, func);
	/* Without a format the arguments are not looked at. */
	prov->vset_error(prov->handle, (uint32_t)reason, NULL, none);
	return 0;
}

bool prov_overlap(const void *dst, const void *src, size_t len)
{
	uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;

	return d != s && d < s + len && s < d + len;
}

int prov_check_buffers(const struct prov *prov, const void *out, size_t out_size, const void *in, size_t len)
{
	if (len && (!out || !in))
		return FAIL(prov, PROV_R_NO_BUFFER);
	if (out_size < len)
		return FAIL(prov, PROV_R_OUTPUT_LEN);
	return prov_overlap(out, in, len) ? FAIL(prov, PROV_R_OVERLAP) : 1;
}

int cipher_facts_get(OSSL_PARAM params[], const struct cipher_facts *facts)
{
	return param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_MODE), facts->mode) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_KEYLEN), facts->key_len) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_IVLEN), facts->iv_len) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_BLOCK_SIZE), facts->block_len) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_AEAD), facts->aead) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_CUSTOM_IV), facts->custom_iv) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_CTS), 0) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_TLS1_MULTIBLOCK), 0) &&
	       param_put_number(param_find_out(params, OSSL_CIPHER_PARAM_HAS_RAND_KEY), 0);
}

const OSSL_PARAM *cipher_gettable(void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_NUMBER(OSSL_CIPHER_PARAM_MODE), PARAM_NUMBER(OSSL_CIPHER_PARAM_KEYLEN),
		PARAM_NUMBER(OSSL_CIPHER_PARAM_IVLEN), PARAM_NUMBER(OSSL_CIPHER_PARAM_BLOCK_SIZE),
		PARAM_NUMBER(OSSL_CIPHER_PARAM_AEAD), PARAM_NUMBER(OSSL_CIPHER_PARAM_CUSTOM_IV),
		PARAM_NUMBER(OSSL_CIPHER_PARAM_CTS), PARAM_NUMBER(OSSL_CIPHER_PARAM_TLS1_MULTIBLOCK),
		PARAM_NUMBER(OSSL_CIPHER_PARAM_HAS_RAND_KEY), PARAM_END,
	};

	return list;
}

static const OSSL_PARAM *gettable(void *provctx)
{
	static const OSSL_PARAM list[] = {
		PARAM_TEXT_PTR(OSSL_PROV_PARAM_NAME), PARAM_TEXT_PTR(OSSL_PROV_PARAM_VERSION),
		PARAM_TEXT_PTR(OSSL_PROV_PARAM_BUILDINFO), PARAM_NUMBER(OSSL_PROV_PARAM_STATUS), PARAM_END,
	};

	return list;
}

/* What `openssl list -providers -verbose` shows: the name of the core is the most useful thing to know of a build. */
static int get_params(void *provctx, OSSL_PARAM params[])
{
	return param_put_text(param_find_out(params, OSSL_PROV_PARAM_NAME), "SITS SM4 and SM3") &&
	       param_put_text(param_find_out(params, OSSL_PROV_PARAM_VERSION), SITS_VERSION) &&
	       param_put_text(param_find_out(params, OSSL_PROV_PARAM_BUILDINFO), sits_sm4_best()->name) &&
	       param_put_number(param_find_out(params, OSSL_PROV_PARAM_STATUS), 1);
}

static const OSSL_ALGORITHM *query(void *provctx, int operation, int *no_cache)
{
	*no_cache = 0;
	if (operation == OSSL_OP_CIPHER)
		return ciphers;
	return operation == OSSL_OP_DIGEST ? digests : NULL;
}

static const OSSL_ITEM *get_reasons(void *provctx)
{
	return reasons;
}

static int self_test(void *provctx)
{
	return sits_sm4_selftest(sits_sm4_best()) ? FAIL(provctx, PROV_R_SELF_TEST) : 1;
}

static void teardown(void *provctx)
{
	struct prov *prov = provctx;

	prov->clear_free(prov, sizeof(*prov), NULL, 0);
}

static const OSSL_DISPATCH functions[] = {
	FUNC(OSSL_FUNC_PROVIDER_TEARDOWN, teardown),
	FUNC(OSSL_FUNC_PROVIDER_GETTABLE_PARAMS, gettable),
	FUNC(OSSL_FUNC_PROVIDER_GET_PARAMS, get_params),
	FUNC(OSSL_FUNC_PROVIDER_QUERY_OPERATION, query),
	FUNC(OSSL_FUNC_PROVIDER_GET_REASON_STRINGS, get_reasons),
	FUNC(OSSL_FUNC_PROVIDER_SELF_TEST, self_test),
	FUNC_END,
};

static void take(struct prov *prov, const OSSL_DISPATCH *in)
{
	for (; in->function_id; in++) {
		switch (in->function_id) {
		case OSSL_FUNC_CRYPTO_ZALLOC:
			prov->zalloc = (OSSL_FUNC_CRYPTO_zalloc_fn *)in->function;
			break;
		case OSSL_FUNC_CRYPTO_CLEAR_FREE:
			prov->clear_free = (OSSL_FUNC_CRYPTO_clear_free_fn *)in->function;
			break;
		case OSSL_FUNC_CORE_NEW_ERROR:
			prov->new_error = (OSSL_FUNC_core_new_error_fn *)in->function;
			break;
		case OSSL_FUNC_CORE_SET_ERROR_DEBUG:
			prov->set_error_debug = (OSSL_FUNC_core_set_error_debug_fn *)in->function;
			break;
		case OSSL_FUNC_CORE_VSET_ERROR:
			prov->vset_error = (OSSL_FUNC_core_vset_error_fn *)in->function;
			break;
		}
	}
}

/* The one symbol that the module exports. */
__attribute__((visibility("default")))
int OSSL_provider_init(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out, void **provctx)
{
	struct prov found = { .handle = handle }, *prov;

	take(&found, in);
	if (!found.zalloc || !found.clear_free)
		return 0;
	prov = found.zalloc(sizeof(*prov), NULL, 0);
	if (!prov)
		return 0;
	*prov = found;
	*provctx = prov;
	*out = functions;
	return 1;
}
