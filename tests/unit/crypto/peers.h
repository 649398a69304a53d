/* SPDX-License-Identifier: MIT */
/*
 * peers.h - every mode of SM4 by others: OpenSSL (ECB, CBC, CTR), libgcrypt (CTR, GCM, XTS as in IEEE 1619), and what neither
 * has from the standards' definitions over OpenSSL's ECB: XTS of GB/T 17964-2021, counters of 32 bits, GHASH, inverses.
 * What the tests of the cores and modes compare with, at any length. Shares no code with crypto/.
 */
#ifndef SITS_TESTS_CRYPTO_PEERS_H
#define SITS_TESTS_CRYPTO_PEERS_H

#include "tests/unit/crypto/reference.h"

#include <gcrypt.h>

/* A failure here is one of the test or its libraries, not of what is tested. */
#define PEER_CHECK(x) do { \
	if (!(x)) { \
		fprintf(stderr, "%s:%d: peer failed: %s\n", __FILE__, __LINE__, #x); \
		abort(); \
	} \
} while (0)

static inline void peer_init(void)
{
	PEER_CHECK(gcry_check_version(NULL));
	gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
	gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
}

/* A context of libgcrypt for each mode, opened once: opening costs more than a short message. */
static inline gcry_cipher_hd_t peer_gcry(int mode, const uint8_t *key, size_t key_len)
{
	static gcry_cipher_hd_t open[32];

	if (!open[mode])
		PEER_CHECK(!gcry_cipher_open(&open[mode], GCRY_CIPHER_SM4, mode, 0));
	PEER_CHECK(!gcry_cipher_setkey(open[mode], key, key_len));
	return open[mode];
}

/* EVP_CipherUpdate() takes an int, and OpenSSL's CBC and CTR chain over calls. */
static inline void peer_evp(const EVP_CIPHER *type, int enc, const uint8_t *key, const uint8_t *iv, uint8_t *dst,
			    const uint8_t *src, size_t len)
{
	static EVP_CIPHER_CTX *ctx;
	int n = 0;

	if (!ctx)
		PEER_CHECK((ctx = EVP_CIPHER_CTX_new()));
	PEER_CHECK(EVP_CipherInit_ex(ctx, type, NULL, key, iv, enc) && EVP_CIPHER_CTX_set_padding(ctx, 0));
	PEER_CHECK(len <= 1u << 30);
	if (len)
		PEER_CHECK(EVP_CipherUpdate(ctx, dst, &n, src, (int)len) && (size_t)n == len);
}

static inline void peer_ecb(int enc, const uint8_t *key, uint8_t *dst, const uint8_t *src, size_t len)
{
	peer_evp(EVP_sm4_ecb(), enc, key, NULL, dst, src, len);
}

static inline void peer_cbc(int enc, const uint8_t *key, const uint8_t *iv, uint8_t *dst, const uint8_t *src, size_t len)
{
	peer_evp(EVP_sm4_cbc(), enc, key, iv, dst, src, len);
}

/* OpenSSL up to 64 KiB, libgcrypt, which is faster, beyond. */
static inline void peer_ctr(const uint8_t *key, const uint8_t *iv, uint8_t *dst, const uint8_t *src, size_t len)
{
	gcry_cipher_hd_t h;

	if (len <= 1u << 16) {
		peer_evp(EVP_sm4_ctr(), 1, key, iv, dst, src, len);
		return;
	}
	h = peer_gcry(GCRY_CIPHER_MODE_CTR, key, 16);
	PEER_CHECK(!gcry_cipher_setctr(h, iv, 16));
	PEER_CHECK(!gcry_cipher_encrypt(h, dst, len, src, len));
}

/* Add n to the last `bits` bits of a big-endian counter, one at a time where few. */
static inline void peer_count(uint8_t ctr[16], uint64_t n, int bits)
{
	unsigned int carry = 0;

	for (int i = 15; i >= 16 - bits / 8; i--, n >>= 8) {
		carry += ctr[i] + (unsigned int)(n & 0xff);
		ctr[i] = (uint8_t)carry;
		carry >>= 8;
	}
}

/* Keystream of a counter of 32 bits: SP 800-38D, 6.5. */
static inline void peer_ctr32(const uint8_t *key, const uint8_t *iv, uint8_t *dst, const uint8_t *src, size_t len)
{
	uint8_t ctr[16], block[1024];
	size_t n;

	memcpy(ctr, iv, 16);
	for (; len; len -= n, dst += n, src += n) {
		n = len < sizeof(block) ? len : sizeof(block);
		for (size_t i = 0; i < sizeof(block); i += 16) {
			memcpy(block + i, ctr, 16);
			peer_count(ctr, 1, 32);
		}
		peer_ecb(1, key, block, block, sizeof(block));
		for (size_t i = 0; i < n; i++)
			dst[i] = src[i] ^ block[i];
	}
}

/* GCM; nonces of any length but 0. Decrypts where enc is 0; the tag is of the ciphertext either way. */
static inline void peer_gcm(int enc, const uint8_t *key, const uint8_t *iv, size_t iv_len, const uint8_t *aad,
			    size_t aad_len, uint8_t *dst, const uint8_t *src, size_t len, uint8_t tag[16])
{
	gcry_cipher_hd_t h = peer_gcry(GCRY_CIPHER_MODE_GCM, key, 16);

	PEER_CHECK(!gcry_cipher_setiv(h, iv, iv_len));
	if (aad_len)
		PEER_CHECK(!gcry_cipher_authenticate(h, aad, aad_len));
	gcry_cipher_final(h);
	if (enc)
		PEER_CHECK(!gcry_cipher_encrypt(h, dst, len, src, len));
	else
		PEER_CHECK(!gcry_cipher_decrypt(h, dst, len, src, len));
	PEER_CHECK(!gcry_cipher_gettag(h, tag, 16));
}

/*
 * Multiply a tweak by the field's generator. IEEE 1619, 5.2: the first byte is the lowest, bits from the least
 * significant, x^128 = x^7 + x^2 + x + 1. GB/T 17964-2021 numbers bits from the most significant of the first byte,
 * as GCM does.
 */
static inline void peer_double(uint8_t t[16], int gb)
{
	int carry = gb ? t[15] & 1 : t[15] >> 7;

	for (int i = 15; i >= 0; i--) {
		if (gb)
			t[i] = (uint8_t)(t[i] >> 1 | (i ? t[i - 1] << 7 : 0));
		else
			t[i] = (uint8_t)(t[i] << 1 | (i ? t[i - 1] >> 7 : 0));
	}
	t[0] ^= carry ? (gb ? 0xe1 : 0x87) : 0;
}

/* One run of whole blocks from tweak t, which is advanced past them. */
static inline void peer_xts_blocks(int enc, int gb, const uint8_t *key, uint8_t t[16], uint8_t *dst, const uint8_t *src,
				   size_t len)
{
	uint8_t tweaks[4096];
	size_t n;

	for (; len; len -= n, dst += n, src += n) {
		n = len < sizeof(tweaks) ? len : sizeof(tweaks);
		for (size_t i = 0; i < n; i += 16) {
			memcpy(tweaks + i, t, 16);
			peer_double(t, gb);
		}
		for (size_t i = 0; i < n; i++)
			dst[i] = src[i] ^ tweaks[i];
		peer_ecb(enc, key, dst, dst, n);
		for (size_t i = 0; i < n; i++)
			dst[i] ^= tweaks[i];
	}
}

/* XTS with ciphertext stealing, len >= 16, from the definition. key: of the data, then of the tweak. */
static inline void peer_xts(int enc, int gb, const uint8_t *key, const uint8_t *iv, uint8_t *dst, const uint8_t *src,
			    size_t len)
{
	size_t rest = len % 16, whole = len - rest - (rest ? 16 : 0);
	uint8_t t[16], next[16], block[16], stolen[16];

	peer_ecb(1, key + 16, t, iv, 16);
	peer_xts_blocks(enc, gb, key, t, dst, src, whole);
	if (!rest)
		return;
	/* The last whole block first; what remains of it fills up the rest. Decrypting takes the two tweaks in the other order. */
	memcpy(next, t, 16);
	peer_double(next, gb);
	peer_xts_blocks(enc, gb, key, enc ? t : next, stolen, src + whole, 16);
	if (enc)
		memcpy(t, next, 16);
	memcpy(block, src + whole + 16, rest);
	memcpy(block + rest, stolen + rest, 16 - rest);
	peer_xts_blocks(enc, gb, key, t, dst + whole, block, 16);
	memcpy(dst + whole + 16, stolen, rest);
}

/* libgcrypt's, which takes no more than 2^20 blocks. */
static inline void peer_xts_gcry(int enc, const uint8_t *key, const uint8_t *iv, uint8_t *dst, const uint8_t *src,
				 size_t len)
{
	gcry_cipher_hd_t h = peer_gcry(GCRY_CIPHER_MODE_XTS, key, 32);

	PEER_CHECK(!gcry_cipher_setiv(h, iv, 16));
	PEER_CHECK(!(enc ? gcry_cipher_encrypt : gcry_cipher_decrypt)(h, dst, len, src, len));
}

/* GHASH of whole blocks, bit by bit as ref_gf_mul(), the bits of an element in two integers. */
static inline void peer_ghash(uint8_t y[16], const uint8_t h[16], const uint8_t *data, size_t nr_blocks)
{
	uint64_t key[2] = { 0 }, x[2] = { 0 };

	for (int i = 0; i < 16; i++) {
		key[i / 8] = key[i / 8] << 8 | h[i];
		x[i / 8] = x[i / 8] << 8 | y[i];
	}
	for (; nr_blocks; nr_blocks--, data += 16) {
		uint64_t z[2] = { 0 }, v[2] = { key[0], key[1] };

		for (int i = 0; i < 16; i++)
			x[i / 8] ^= (uint64_t)data[i] << (56 - i % 8 * 8);
		for (int i = 0; i < 128; i++) {
			uint64_t take = 0 - (x[i / 64] >> (63 - i % 64) & 1), low = 0 - (v[1] & 1);

			z[0] ^= v[0] & take;
			z[1] ^= v[1] & take;
			v[1] = v[1] >> 1 | v[0] << 63;
			v[0] = v[0] >> 1 ^ (low & 0xe1ull << 56);
		}
		memcpy(x, z, sizeof(x));
	}
	for (int i = 0; i < 16; i++)
		y[i] = (uint8_t)(x[i / 8] >> (56 - i % 8 * 8));
}

/* 1 / x = x^(2^128 - 2) in the field of GHASH. */
static inline void peer_gf_inverse(uint8_t z[16], const uint8_t x[16])
{
	uint8_t power[16], r[16] = { 0x80 };

	memcpy(power, x, 16);
	for (int i = 1; i < 128; i++) {
		ref_gf_mul(power, power, power);
		ref_gf_mul(r, r, power);
	}
	memcpy(z, r, 16);
}

/* The nonce of 16 bytes that makes GCM's first counter block j0. h: the hash key. */
static inline void peer_gcm_nonce_for(uint8_t iv[16], const uint8_t h_inverse[16], const uint8_t j0[16])
{
	uint8_t lens[16] = { 0 };

	/* j0 = (iv h + lens) h */
	lens[15] = 128;
	ref_gf_mul(iv, j0, h_inverse);
	for (int i = 0; i < 16; i++)
		iv[i] ^= lens[i];
	ref_gf_mul(iv, iv, h_inverse);
}

#endif
