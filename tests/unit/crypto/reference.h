/* SPDX-License-Identifier: MIT */
/*
 * reference.h - SM4, CTR, GCM and SM3 by OpenSSL, and GHASH bit by bit from the standard's definition: what
 * the tests of crypto/ compare with. Shares no code with crypto/.
 */
#ifndef SITS_TESTS_CRYPTO_REFERENCE_H
#define SITS_TESTS_CRYPTO_REFERENCE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/evp.h>

static inline void ref_cipher(const EVP_CIPHER *type, int enc, const uint8_t *key, const uint8_t *iv, uint8_t *dst,
			      const uint8_t *src, size_t len)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int n = 0;

	assert(ctx && EVP_CipherInit_ex(ctx, type, NULL, key, iv, enc) && EVP_CIPHER_CTX_set_padding(ctx, 0));
	assert(EVP_CipherUpdate(ctx, dst, &n, src, (int)len) && (size_t)n == len);
	EVP_CIPHER_CTX_free(ctx);
}

static inline void ref_ecb(int enc, const uint8_t *key, uint8_t *dst, const uint8_t *src, size_t len)
{
	ref_cipher(EVP_sm4_ecb(), enc, key, NULL, dst, src, len);
}

static inline void ref_ctr(const uint8_t *key, const uint8_t *iv, uint8_t *dst, const uint8_t *src, size_t len)
{
	ref_cipher(EVP_sm4_ctr(), 1, key, iv, dst, src, len);
}

static inline void ref_sm3(uint8_t *out, const uint8_t *data, size_t len)
{
	unsigned int n = 0;

	assert(EVP_Digest(data, len, out, &n, EVP_sm3(), NULL) && n == 32);
}

/* Z = X Y in GF(2^128): SP 800-38D, algorithm 1, one bit at a time. */
static inline void ref_gf_mul(uint8_t z[16], const uint8_t x[16], const uint8_t y[16])
{
	uint8_t v[16], r[16] = { 0 };

	memcpy(v, y, 16);
	for (int i = 0; i < 128; i++) {
		int low = v[15] & 1;

		for (int j = 0; x[i / 8] >> (7 - i % 8) & 1 && j < 16; j++)
			r[j] ^= v[j];
		for (int j = 15; j > 0; j--)
			v[j] = (uint8_t)(v[j] >> 1 | v[j - 1] << 7);
		v[0] >>= 1;
		v[0] ^= low ? 0xe1 : 0;
	}
	memcpy(z, r, 16);
}

static inline void ref_ghash(uint8_t y[16], const uint8_t h[16], const uint8_t *data, size_t len)
{
	for (; len; len -= len < 16 ? len : 16, data += 16) {
		for (size_t i = 0; i < 16 && i < len; i++)
			y[i] ^= data[i];
		ref_gf_mul(y, y, h);
	}
}

/* GCM for nonces of 12 bytes and texts under 2^28 bytes. */
static inline void ref_gcm(const uint8_t *key, const uint8_t *iv, const uint8_t *aad, size_t aad_len, uint8_t *dst,
			   const uint8_t *src, size_t len, uint8_t tag[16])
{
	uint8_t h[16] = { 0 }, y[16] = { 0 }, lens[16] = { 0 }, ctr[16] = { 0 }, mask[16];

	ref_ecb(1, key, h, h, 16);
	memcpy(ctr, iv, 12);
	ctr[15] = 1;
	ref_ecb(1, key, mask, ctr, 16);
	ctr[15] = 2;
	if (len)
		ref_ctr(key, ctr, dst, src, len);
	ref_ghash(y, h, aad, aad_len);
	ref_ghash(y, h, dst, len);
	for (int i = 0; i < 8; i++) {
		lens[7 - i] = (uint8_t)((uint64_t)aad_len * 8 >> 8 * i);
		lens[15 - i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
	}
	ref_ghash(y, h, lens, 16);
	for (int i = 0; i < 16; i++)
		tag[i] = y[i] ^ mask[i];
}

/* Random numbers of a seed that is printed and may be given again in $SITS_TEST_SEED. */
static inline uint64_t *test_seed(void)
{
	static uint64_t state;

	return &state;
}

static inline void test_seed_init(void)
{
	const char *given = getenv("SITS_TEST_SEED");
	uint64_t seed;

	if (given)
		seed = strtoull(given, NULL, 0);
	else
		assert(getrandom(&seed, sizeof(seed), 0) == sizeof(seed));
	*test_seed() = seed;
	printf("# SITS_TEST_SEED=0x%llx\n", (unsigned long long)seed);
}

static inline uint64_t test_random(void)	/* splitmix64 */
{
	uint64_t z = *test_seed() += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline void test_fill(void *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)p)[i] = (uint8_t)(test_random() >> 56);
}

/* Hexadecimal, spaces allowed, to bytes. Return: how many. */
static inline size_t test_unhex(uint8_t *out, size_t max, const char *hex)
{
	size_t n = 0;
	unsigned int byte;

	for (; *hex; hex += *hex == ' ' ? 1 : 2) {
		if (*hex == ' ')
			continue;
		assert(n < max && sscanf(hex, "%2x", &byte) == 1);
		out[n++] = (uint8_t)byte;
	}
	return n;
}

#endif
