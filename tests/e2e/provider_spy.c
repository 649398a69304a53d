// SPDX-License-Identifier: MIT
/*
 * provider_spy.c - a provider module that is another one, $SPIED_MODULE, and counts what SM4-GCM of it is given: provider_tls.t
 * asks it whether records really went that way.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core.h>
#include <openssl/core_dispatch.h>

#define ENTRIES_MAX 40

static OSSL_DISPATCH base[ENTRIES_MAX], gcm[ENTRIES_MAX];
static OSSL_ALGORITHM ciphers[ENTRIES_MAX];
static OSSL_FUNC_provider_query_operation_fn *real_query;
static OSSL_FUNC_cipher_update_fn *real_update;
static unsigned long bytes;

unsigned long spy_bytes(void);
unsigned long spy_bytes(void)
{
	return __atomic_load_n(&bytes, __ATOMIC_RELAXED);
}

static int update(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len)
{
	if (out)
		__atomic_fetch_add(&bytes, len, __ATOMIC_RELAXED);
	return real_update(ctx, out, out_len, out_size, in, len);
}

static void (*replace(OSSL_DISPATCH *to, const OSSL_DISPATCH *from, int id, void (*with)(void)))(void)
{
	void (*was)(void) = NULL;
	int i;

	for (i = 0; from[i].function_id; i++) {
		if (i + 1 == ENTRIES_MAX)
			abort();
		to[i] = from[i];
		if (from[i].function_id != id)
			continue;
		was = from[i].function;
		to[i].function = with;
	}
	return was;
}

static const OSSL_ALGORITHM *query(void *provctx, int operation, int *no_cache)
{
	const OSSL_ALGORITHM *real = real_query(provctx, operation, no_cache);
	int i;

	if (operation != OSSL_OP_CIPHER)
		return real;
	for (i = 0; real[i].algorithm_names && i + 1 < ENTRIES_MAX; i++) {
		ciphers[i] = real[i];
		if (strncmp(real[i].algorithm_names, "SM4-GCM", 7))
			continue;
		real_update = (OSSL_FUNC_cipher_update_fn *)replace(gcm, real[i].implementation, OSSL_FUNC_CIPHER_UPDATE,
								     (void (*)(void))update);
		ciphers[i].implementation = gcm;
	}
	return ciphers;
}

int OSSL_provider_init(const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out, void **provctx)
{
	const char *path = getenv("SPIED_MODULE");
	void *module = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	OSSL_provider_init_fn *init = module ? (OSSL_provider_init_fn *)dlsym(module, "OSSL_provider_init") : NULL;
	const OSSL_DISPATCH *real;

	if (!init || !init(handle, in, &real, provctx))
		return 0;
	real_query = (OSSL_FUNC_provider_query_operation_fn *)replace(base, real, OSSL_FUNC_PROVIDER_QUERY_OPERATION,
								       (void (*)(void))query);
	*out = base;
	return 1;
}
