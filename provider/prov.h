/* SPDX-License-Identifier: MIT */
/*
 * prov.h - what the files of the OpenSSL provider share: its context, errors, parameters, tables.
 *
 * The module links with nothing of OpenSSL: what it needs comes from the core that loads it, by the dispatch table of
 * OSSL_provider_init(). So it works in any program, whichever libcrypto 3 that has, also one linked statically.
 */
#ifndef SITS_PROVIDER_PROV_H
#define SITS_PROVIDER_PROV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/core.h>
#include <openssl/core_dispatch.h>

/* Made by OSSL_provider_init(), freed by the core through teardown; read-only between. */
struct prov {
	const OSSL_CORE_HANDLE *handle;
	OSSL_FUNC_CRYPTO_zalloc_fn *zalloc;
	OSSL_FUNC_CRYPTO_clear_free_fn *clear_free;
	OSSL_FUNC_core_new_error_fn *new_error;
	OSSL_FUNC_core_set_error_debug_fn *set_error_debug;
	OSSL_FUNC_core_vset_error_fn *vset_error;
};

/* Reasons of errors; texts in provider.c. */
enum {
	PROV_R_NO_KEY = 1,
	PROV_R_NO_IV,
	PROV_R_KEY_LEN,
	PROV_R_IV_LEN,
	PROV_R_TAG_LEN,
	PROV_R_NO_TAG,
	PROV_R_BAD_TAG,
	PROV_R_BAD_PADDING,
	PROV_R_NOT_WHOLE_BLOCKS,
	PROV_R_DATA_UNIT_LEN,
	PROV_R_TOO_LONG,
	PROV_R_OUTPUT_LEN,
	PROV_R_OVERLAP,
	PROV_R_NO_BUFFER,
	PROV_R_XTS_KEYS_EQUAL,
	PROV_R_XTS_STANDARD,
	PROV_R_PARAM,
	PROV_R_AAD_LATE,
	PROV_R_SELF_TEST,
};

/** prov_fail() - Put an error of the thread into the core's queue. Return: 0, what a provider's functions fail with. */
int prov_fail(const struct prov *prov, int reason, const char *func);
#define FAIL(prov, reason) prov_fail(prov, reason, __func__)

/* In place, or apart. */
bool prov_overlap(const void *dst, const void *src, size_t len);

/* @len bytes of input that give as many of output, at once. Return: 1; 0, with an error, where there is no input, or no room for output. */
int prov_check_buffers(const struct prov *prov, const void *out, size_t out_size, const void *in, size_t len);

/*
 * Parameters: arrays that end with a NULL key. A NULL array has none.
 */
const OSSL_PARAM *param_find(const OSSL_PARAM *params, const char *key);
OSSL_PARAM *param_find_out(OSSL_PARAM *params, const char *key);

/* Answers to a request @p, NULL allowed (nothing was asked): false where its buffer is of another type or too small. */
bool param_put_number(OSSL_PARAM *p, uint64_t value);
bool param_put_bytes(OSSL_PARAM *p, const void *bytes, size_t len);	/* lives as long as its owner: may be pointed to */
bool param_put_text(OSSL_PARAM *p, const char *text);	/* static storage */

/* What callers set: false where it is of another type, or does not fit. */
bool param_get_number(const OSSL_PARAM *p, uint64_t *value);

/* For the lists of what there is to get and to set. */
#define PARAM_NUMBER(key) { key, OSSL_PARAM_UNSIGNED_INTEGER, NULL, 0, (size_t)-1 }
#define PARAM_BYTES(key) { key, OSSL_PARAM_OCTET_STRING, NULL, 0, (size_t)-1 }
#define PARAM_TEXT(key) { key, OSSL_PARAM_UTF8_STRING, NULL, 0, (size_t)-1 }
#define PARAM_TEXT_PTR(key) { key, OSSL_PARAM_UTF8_PTR, NULL, 0, (size_t)-1 }
#define PARAM_END { NULL, 0, NULL, 0, 0 }

/* A line of a dispatch table. */
#define FUNC(id, fn) { id, (void (*)(void))(fn) }
#define FUNC_END { 0, NULL }

/* What each algorithm's constant parameters are. */
struct cipher_facts {
	uint32_t mode;	/* EVP_CIPH_*_MODE */
	uint32_t key_len;
	uint32_t iv_len;
	uint32_t block_len;	/* as callers see it: 1 where any length goes */
	bool aead;
	bool custom_iv;
};
int cipher_facts_get(OSSL_PARAM params[], const struct cipher_facts *facts);
const OSSL_PARAM *cipher_gettable(void *provctx);

/* A key length that is set, if any: none can be but the one there is. Return: 1; 0, with an error. */
int cipher_check_key_len(const struct prov *prov, const OSSL_PARAM params[], size_t key_len);

extern const OSSL_DISPATCH prov_ecb[], prov_cbc[];	/* block.c */
extern const OSSL_DISPATCH prov_ctr[];			/* ctr.c */
extern const OSSL_DISPATCH prov_gcm[];			/* gcm.c */
extern const OSSL_DISPATCH prov_xts[];			/* xts.c */
extern const OSSL_DISPATCH prov_sm3[];			/* sm3.c */

#endif
