// SPDX-License-Identifier: MIT
/*
 * hash.c - SM3 for others: include/sits/crypto.h over crypto/sm3.h.
 */
#include "sits/crypto.h"

#include <errno.h>
#include <string.h>

#include "crypto/sm3.h"
#include "libsits/secret.h"

/* In memory of sits_secret_alloc(): what is hashed may be a secret. The caller owns it. @type: 0 in a forked child. */
struct sits_hash {
	uint32_t type;
	uint32_t flags;
	struct sits_sm3 sm3;
};

static int alloc_hash(uint32_t flags, struct sits_hash **out)
{
	if (!(flags & SITS_CRYPTO_MAY_SWAP))
		return sits_secret_alloc(NULL, sizeof(struct sits_hash), (void **)out);
	*out = sits_scratch_alloc(sizeof(struct sits_hash));
	return *out ? 0 : -ENOMEM;
}

int sits_hash_create(uint32_t type, uint32_t flags, struct sits_hash **out)
{
	struct sits_hash *h;
	int ret;

	if (type != SITS_HASH_SM3 || flags & ~SITS_CRYPTO_MAY_SWAP)
		return -EINVAL;
	ret = alloc_hash(flags, &h);
	if (ret)
		return ret;
	h->type = type;
	h->flags = flags;
	sits_sm3_init(&h->sm3);
	*out = h;
	return 0;
}

int sits_hash_dup(const struct sits_hash *hash, struct sits_hash **out)
{
	struct sits_hash *h;
	int ret;

	if (!hash->type)
		return -ESTALE;
	ret = alloc_hash(hash->flags, &h);
	if (ret)
		return ret;
	memcpy(h, hash, sizeof(*h));
	*out = h;
	return 0;
}

void sits_hash_destroy(struct sits_hash *hash)
{
	sits_secret_free(hash, sizeof(*hash));
}

int sits_hash_update(struct sits_hash *hash, const void *data, size_t len)
{
	if (!hash->type)
		return -ESTALE;
	sits_sm3_update(&hash->sm3, data, len);
	return 0;
}

int sits_hash_finish(struct sits_hash *hash, void *digest, size_t len)
{
	if (!hash->type)
		return -ESTALE;
	if (len != SITS_HASH_SM3_LEN)
		return -EINVAL;
	sits_sm3_final(&hash->sm3, digest);
	sits_sm3_init(&hash->sm3);
	return 0;
}

int sits_hash_once(uint32_t type, const void *data, size_t data_len, void *digest, size_t len)
{
	struct sits_sm3 s;

	if (type != SITS_HASH_SM3 || len != SITS_HASH_SM3_LEN)
		return -EINVAL;
	sits_sm3_init(&s);
	sits_sm3_update(&s, data, data_len);
	sits_sm3_final(&s, digest);
	return 0;
}
