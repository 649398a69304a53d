// SPDX-License-Identifier: MIT
/*
 * params.c - OSSL_PARAM: finding, answering, reading; libcrypto's own functions for it are not there to be linked with.
 *
 * Source: OSSL_PARAM(3).
 */
#include "provider/prov.h"

#include <string.h>

#include <openssl/core_names.h>

const OSSL_PARAM *param_find(const OSSL_PARAM *params, const char *key)
{
	for (; params && params->key; params++)
		if (!strcmp(params->key, key))
			return params;
	return NULL;
}

OSSL_PARAM *param_find_out(OSSL_PARAM *params, const char *key)
{
	return (OSSL_PARAM *)param_find(params, key);
}

/* The numbers that are answered are small and never negative: signed or not makes no difference. */
bool param_put_number(OSSL_PARAM *p, uint64_t value)
{
	uint32_t narrow = (uint32_t)value;

	if (!p)
		return true;
	if (p->data_type != OSSL_PARAM_INTEGER && p->data_type != OSSL_PARAM_UNSIGNED_INTEGER)
		return false;
	p->return_size = sizeof(size_t);
	if (!p->data)
		return true;
	if (p->data_size == sizeof(narrow) && value <= INT32_MAX)
		memcpy(p->data, &narrow, sizeof(narrow));
	else if (p->data_size == sizeof(value))
		memcpy(p->data, &value, sizeof(value));
	else
		return false;
	p->return_size = p->data_size;
	return true;
}

bool param_put_bytes(OSSL_PARAM *p, const void *bytes, size_t len)
{
	if (!p)
		return true;
	if (p->data_type != OSSL_PARAM_OCTET_STRING && p->data_type != OSSL_PARAM_OCTET_PTR)
		return false;
	p->return_size = len;
	if (!p->data)
		return true;
	if (p->data_type == OSSL_PARAM_OCTET_PTR) {
		*(const void **)p->data = bytes;
		return true;
	}
	if (p->data_size < len)
		return false;
	memcpy(p->data, bytes, len);
	return true;
}

bool param_put_text(OSSL_PARAM *p, const char *text)
{
	size_t len = strlen(text);

	if (!p)
		return true;
	if (p->data_type != OSSL_PARAM_UTF8_PTR && p->data_type != OSSL_PARAM_UTF8_STRING)
		return false;
	p->return_size = len;
	if (!p->data)
		return true;
	if (p->data_type == OSSL_PARAM_UTF8_PTR) {
		*(const char **)p->data = text;
		return true;
	}
	if (p->data_size < len)
		return false;
	memcpy(p->data, text, len);
	if (p->data_size > len)
		((char *)p->data)[len] = '\0';
	return true;
}

bool param_get_number(const OSSL_PARAM *p, uint64_t *value)
{
	uint32_t narrow;

	if (!p->data || (p->data_type != OSSL_PARAM_INTEGER && p->data_type != OSSL_PARAM_UNSIGNED_INTEGER))
		return false;
	if (p->data_size == sizeof(narrow)) {
		memcpy(&narrow, p->data, sizeof(narrow));
		*value = narrow;
		return p->data_type == OSSL_PARAM_UNSIGNED_INTEGER || narrow <= INT32_MAX;
	}
	if (p->data_size != sizeof(*value))
		return false;
	memcpy(value, p->data, sizeof(*value));
	return p->data_type == OSSL_PARAM_UNSIGNED_INTEGER || *value <= INT64_MAX;
}

int cipher_check_key_len(const struct prov *prov, const OSSL_PARAM params[], size_t key_len)
{
	const OSSL_PARAM *p = param_find(params, OSSL_CIPHER_PARAM_KEYLEN);
	uint64_t n;

	if (p && (!param_get_number(p, &n) || n != key_len))
		return FAIL(prov, PROV_R_KEY_LEN);
	return 1;
}
