// SPDX-License-Identifier: MIT
/*
 * provider_test.c - the OpenSSL provider through EVP, linked into the test rather than loaded, so that sanitizers see it: known
 * answers, against libcrypto's own and libgcrypt's ciphers, the calls of a TLS 1.3 record layer, copies, threads, wrong use.
 * That the module itself loads is shown in tests/e2e/provider.t.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <gcrypt.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>

#include "provider/prov.h"

#define LEN_MAX 3000

OSSL_provider_init_fn OSSL_provider_init;

static OSSL_LIB_CTX *lib;
static OSSL_PROVIDER *ours, *theirs;
static uint64_t seed;

static uint32_t rnd(uint32_t below)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(seed >> 33) % below;
}

static void rnd_bytes(uint8_t *p, size_t len)
{
	while (len--)
		*p++ = (uint8_t)rnd(256);
}

static size_t from_hex(const char *hex, uint8_t *out)
{
	size_t n = 0;
	unsigned int byte;

	for (; *hex; hex += 2) {
		assert_int_equal(sscanf(hex, "%2x", &byte), 1);
		out[n++] = (uint8_t)byte;
	}
	return n;
}

static EVP_CIPHER *fetch(const char *name, const char *from)
{
	EVP_CIPHER *c = EVP_CIPHER_fetch(lib, name, from);

	assert_non_null(c);
	return c;
}

static EVP_CIPHER_CTX *begin(const char *name, const char *from, bool encrypt, const uint8_t *key, const uint8_t *iv)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	EVP_CIPHER *cipher = fetch(name, from);

	assert_non_null(ctx);
	assert_int_equal(EVP_CipherInit_ex2(ctx, cipher, key, iv, encrypt, NULL), 1);
	EVP_CIPHER_free(cipher);
	return ctx;
}

/* The last error's text, and an empty queue. */
static const char *reason(void)
{
	unsigned long e = ERR_peek_last_error();
	const char *text = ERR_reason_error_string(e);

	ERR_clear_error();
	return text ? text : "none";
}

/* The library frees a key's memory, and wipes it; what is asked here is that the tables agree with what is documented. */
static void test_facts(void **state)
{
	static const struct {
		const char *name;
		int mode, key, iv, block;
		bool aead;
	} want[] = {
		{ "SM4-ECB", EVP_CIPH_ECB_MODE, 16, 0, 16, false }, { "SM4-CBC", EVP_CIPH_CBC_MODE, 16, 16, 16, false },
		{ "SM4", EVP_CIPH_CBC_MODE, 16, 16, 16, false }, { "SM4-CTR", EVP_CIPH_CTR_MODE, 16, 16, 1, false },
		{ "SM4-GCM", EVP_CIPH_GCM_MODE, 16, 12, 1, true }, { "SM4-XTS", EVP_CIPH_XTS_MODE, 32, 16, 1, false },
		{ "1.2.156.10197.1.104.8", EVP_CIPH_GCM_MODE, 16, 12, 1, true },
	};
	size_t i;

	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		EVP_CIPHER *c = fetch(want[i].name, "provider=sits");

		assert_int_equal(EVP_CIPHER_get_mode(c), want[i].mode);
		assert_int_equal(EVP_CIPHER_get_key_length(c), want[i].key);
		assert_int_equal(EVP_CIPHER_get_iv_length(c), want[i].iv);
		assert_int_equal(EVP_CIPHER_get_block_size(c), want[i].block);
		assert_int_equal(!!(EVP_CIPHER_get_flags(c) & EVP_CIPH_FLAG_AEAD_CIPHER), want[i].aead);
		assert_string_equal(OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(c)), "sits");
		EVP_CIPHER_free(c);
	}
	assert_null(EVP_CIPHER_fetch(lib, "SM4-CFB", "provider=sits"));
	ERR_clear_error();
	assert_int_equal(OSSL_PROVIDER_self_test(ours), 1);
}

static void test_provider_says_what_it_is(void **state)
{
	char *name = NULL, *version = NULL, *core = NULL;
	unsigned int status = 0;
	OSSL_PARAM params[] = {
		OSSL_PARAM_utf8_ptr(OSSL_PROV_PARAM_NAME, &name, 0), OSSL_PARAM_utf8_ptr(OSSL_PROV_PARAM_VERSION, &version, 0),
		OSSL_PARAM_utf8_ptr(OSSL_PROV_PARAM_BUILDINFO, &core, 0), OSSL_PARAM_uint(OSSL_PROV_PARAM_STATUS, &status),
		OSSL_PARAM_END,
	};

	assert_int_equal(OSSL_PROVIDER_get_params(ours, params), 1);
	assert_string_equal(name, "SITS SM4 and SM3");
	assert_non_null(strchr(version, '.'));
	assert_true(strlen(core) > 4);
	assert_int_equal(status, 1);
}

/* --------------------------------------------------------------- known answers */

/* RFC 8998, A.1. */
static const char gcm_key[] = "0123456789abcdeffedcba9876543210", gcm_iv[] = "00001234567800000000abcd",
	gcm_aad[] = "feedfacedeadbeeffeedfacedeadbeefabaddad2",
	gcm_plain[] = "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
		      "eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa",
	gcm_cipher[] = "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
		       "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d",
	gcm_tag[] = "83de3541e4c2b58177e065a9bf7b62ec";

static void test_gcm_of_rfc_8998(void **state)
{
	uint8_t key[16], iv[12], aad[20], plain[64], want[64], tag[16], got[16], out[64];
	EVP_CIPHER_CTX *ctx;
	int n;

	from_hex(gcm_key, key);
	from_hex(gcm_iv, iv);
	from_hex(gcm_aad, aad);
	from_hex(gcm_plain, plain);
	from_hex(gcm_cipher, want);
	from_hex(gcm_tag, tag);
	ctx = begin("SM4-GCM", "provider=sits", true, key, iv);
	assert_int_equal(EVP_EncryptUpdate(ctx, NULL, &n, aad, 20), 1);
	assert_int_equal(n, 20);
	assert_int_equal(EVP_EncryptUpdate(ctx, out, &n, plain, 64), 1);
	assert_int_equal(n, 64);
	assert_int_equal(EVP_EncryptFinal_ex(ctx, out, &n), 1);
	assert_int_equal(n, 0);
	assert_memory_equal(out, want, 64);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, got), 1);
	assert_memory_equal(got, tag, 16);
	/* A shorter tag is its beginning. */
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 8, got), 1);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 17, got), 0);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 3, got), 0);

	assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag), 1);
	assert_int_equal(EVP_DecryptUpdate(ctx, NULL, &n, aad, 20), 1);
	assert_int_equal(EVP_DecryptUpdate(ctx, out, &n, out, 64), 1);
	assert_int_equal(EVP_DecryptFinal_ex(ctx, out, &n), 1);
	assert_memory_equal(out, plain, 64);
	EVP_CIPHER_CTX_free(ctx);
	ERR_clear_error();
}

/* The beginnings of the second blocks: OpenSSL's documentation of xts_standard has no vectors; these are of its tests and GB/T 17964-2021. */
static void test_standards_of_xts(void **state)
{
	static const struct {
		const char *set, *got;
		uint8_t second[4];
	} want[] = {
		{ NULL, "GB", { 0x2c, 0x5c, 0x58, 0x1b } },
		{ "IEEE", "IEEE", { 0xb3, 0xdb, 0x1a, 0x3e } },
		{ "gb", "GB", { 0x2c, 0x5c, 0x58, 0x1b } },
		{ "ieee", "IEEE", { 0xb3, 0xdb, 0x1a, 0x3e } },
	};
	uint8_t key[32], iv[16], plain[32], out[32];
	char got[8];
	OSSL_PARAM get[] = { OSSL_PARAM_utf8_string("xts_standard", got, sizeof(got)), OSSL_PARAM_END };
	EVP_CIPHER_CTX *ctx;
	size_t i;
	int n;

	from_hex("2b7e151628aed2a6abf7158809cf4f3c000102030405060708090a0b0c0d0e0f", key);
	from_hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", iv);
	from_hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51", plain);
	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		OSSL_PARAM set[] = { OSSL_PARAM_utf8_string("xts_standard", (char *)want[i].set, 0), OSSL_PARAM_END };

		if (want[i].set)
			set[0].data_size = strlen(want[i].set);
		ctx = begin("SM4-XTS", "provider=sits", true, key, iv);
		if (want[i].set)
			assert_int_equal(EVP_CIPHER_CTX_set_params(ctx, set), 1);
		assert_int_equal(EVP_CIPHER_CTX_get_params(ctx, get), 1);
		assert_string_equal(got, want[i].got);
		assert_int_equal(EVP_EncryptUpdate(ctx, out, &n, plain, 32), 1);
		assert_memory_equal(out + 16, want[i].second, 4);
		assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, NULL), 1);
		assert_int_equal(EVP_DecryptUpdate(ctx, out, &n, out, 32), 1);
		assert_memory_equal(out, plain, 32);
		EVP_CIPHER_CTX_free(ctx);
	}
}

/* --------------------------------------------------------------- against libcrypto's own */

/* A message in pieces at random, in place or not; bytes of output. */
static size_t in_pieces(EVP_CIPHER_CTX *ctx, uint8_t *out, const uint8_t *in, size_t len)
{
	size_t at, done = 0, n;
	int got;

	for (at = 0; at < len; at += n) {
		n = rnd(4) ? rnd((uint32_t)(len - at < 70 ? len - at : 70) + 1) : rnd((uint32_t)(len - at) + 1);
		assert_int_equal(EVP_CipherUpdate(ctx, out + done, &got, in + at, (int)n), 1);
		done += (size_t)got;
	}
	assert_int_equal(EVP_CipherFinal_ex(ctx, out + done, &got), 1);
	return done + (size_t)got;
}

static void against_theirs(const char *name)
{
	uint8_t key[16], iv[16], plain[LEN_MAX], a[LEN_MAX + 16], b[LEN_MAX + 16];
	size_t len = rnd(LEN_MAX), len_a, len_b;
	bool pad = rnd(2) && strcmp(name, "SM4-CTR");
	EVP_CIPHER_CTX *one, *two;

	if (!pad && strcmp(name, "SM4-CTR"))
		len -= len % 16;
	rnd_bytes(key, 16);
	rnd_bytes(iv, 16);
	/* Counters that overflow. */
	if (!rnd(3))
		memset(iv + rnd(16), 0xff, 1), memset(iv + 4, 0xff, 12);
	rnd_bytes(plain, len);
	one = begin(name, "provider=sits", true, key, iv);
	two = begin(name, "provider=default", true, key, iv);
	EVP_CIPHER_CTX_set_padding(one, pad);
	EVP_CIPHER_CTX_set_padding(two, pad);
	len_a = in_pieces(one, a, plain, len);
	len_b = in_pieces(two, b, plain, len);
	assert_int_equal(len_a, len_b);
	assert_memory_equal(a, b, len_a);
	assert_int_equal(EVP_CipherInit_ex(one, NULL, NULL, NULL, iv, 0), 1);
	assert_int_equal(in_pieces(one, a, a, len_a), len);
	assert_memory_equal(a, plain, len);
	EVP_CIPHER_CTX_free(one);
	EVP_CIPHER_CTX_free(two);
}

static void test_against_libcrypto(void **state)
{
	int i;

	print_message("# seed: %llu\n", (unsigned long long)seed);
	for (i = 0; i < 300; i++) {
		against_theirs("SM4-ECB");
		against_theirs("SM4-CBC");
		against_theirs("SM4-CTR");
	}
}

static void test_sm3_against_libcrypto(void **state)
{
	EVP_MD *md = EVP_MD_fetch(lib, "SM3", "provider=sits"), *theirs_md = EVP_MD_fetch(lib, "SM3", "provider=default");
	EVP_MD_CTX *ctx = EVP_MD_CTX_new(), *copy = EVP_MD_CTX_new();
	uint8_t data[500], a[32], b[32];
	unsigned int n;
	int i;

	assert_non_null(md);
	assert_non_null(theirs_md);
	assert_int_equal(EVP_MD_get_size(md), 32);
	assert_int_equal(EVP_MD_get_block_size(md), 64);
	for (i = 0; i < 300; i++) {
		size_t len = rnd(500), cut = rnd((uint32_t)len + 1);

		rnd_bytes(data, len);
		assert_int_equal(EVP_Digest(data, len, b, NULL, theirs_md, NULL), 1);
		assert_int_equal(EVP_DigestInit_ex(ctx, md, NULL), 1);
		assert_int_equal(EVP_DigestUpdate(ctx, data, cut), 1);
		assert_int_equal(EVP_MD_CTX_copy_ex(copy, ctx), 1);
		assert_int_equal(EVP_DigestUpdate(ctx, data, cut), 1);
		assert_int_equal(EVP_DigestUpdate(copy, data + cut, len - cut), 1);
		assert_int_equal(EVP_DigestFinal_ex(copy, a, &n), 1);
		assert_int_equal(n, 32);
		assert_memory_equal(a, b, 32);
		assert_int_equal(EVP_Digest(data, len, a, NULL, md, NULL), 1);
		assert_memory_equal(a, b, 32);
	}
	EVP_MD_CTX_free(ctx);
	EVP_MD_CTX_free(copy);
	EVP_MD_free(md);
	EVP_MD_free(theirs_md);
}

/* One buffer for input and output of every call, though bytes are kept back between calls. */
static void test_in_place_with_bytes_kept_back(void **state)
{
	uint8_t key[16], iv[16], plain[LEN_MAX], box[LEN_MAX + 16], buf[LEN_MAX + 32], all[LEN_MAX + 32];
	int round, n;

	for (round = 0; round < 200; round++) {
		size_t len = rnd(LEN_MAX), at, piece, done = 0, total;
		const char *name = rnd(2) ? "SM4-CBC" : "SM4-ECB";
		bool encrypt = rnd(2);
		const uint8_t *in = encrypt ? plain : box, *want = encrypt ? box : plain;
		EVP_CIPHER_CTX *ctx;

		rnd_bytes(key, 16);
		rnd_bytes(iv, 16);
		rnd_bytes(plain, len);
		ctx = begin(name, "provider=default", true, key, iv);
		total = in_pieces(ctx, box, plain, len);
		EVP_CIPHER_CTX_free(ctx);
		ctx = begin(name, "provider=sits", encrypt, key, iv);
		for (at = 0; at < (encrypt ? len : total); at += piece) {
			size_t left = (encrypt ? len : total) - at;

			piece = rnd(3) ? rnd((uint32_t)(left < 100 ? left : 100) + 1) : rnd((uint32_t)left + 1);
			memcpy(buf, in + at, piece);
			assert_int_equal(EVP_CipherUpdate(ctx, buf, &n, buf, (int)piece), 1);
			memcpy(all + done, buf, (size_t)n);
			done += (size_t)n;
		}
		assert_int_equal(EVP_CipherFinal_ex(ctx, all + done, &n), 1);
		done += (size_t)n;
		assert_int_equal(done, encrypt ? total : len);
		assert_memory_equal(all, want, done);
		EVP_CIPHER_CTX_free(ctx);
	}
}

/* --------------------------------------------------------------- against libgcrypt: what libcrypto 3.0 does not have */

static void test_gcm_against_libgcrypt(void **state)
{
	uint8_t key[16], iv[64], aad[100], plain[LEN_MAX], a[LEN_MAX], b[LEN_MAX], tag[16], want[16];
	gcry_cipher_hd_t hd;
	EVP_CIPHER_CTX *ctx;
	int i, n;

	assert_int_equal(gcry_cipher_open(&hd, GCRY_CIPHER_SM4, GCRY_CIPHER_MODE_GCM, 0), 0);
	for (i = 0; i < 300; i++) {
		size_t len = rnd(LEN_MAX), aad_len = rnd(100), iv_len = rnd(2) ? 12 : 1 + rnd(64), cut = rnd((uint32_t)aad_len + 1);

		rnd_bytes(key, 16);
		rnd_bytes(iv, sizeof(iv));
		rnd_bytes(aad, aad_len);
		rnd_bytes(plain, len);
		assert_int_equal(gcry_cipher_setkey(hd, key, 16), 0);
		assert_int_equal(gcry_cipher_setiv(hd, iv, iv_len), 0);
		assert_int_equal(gcry_cipher_authenticate(hd, aad, aad_len), 0);
		memcpy(b, plain, len);
		assert_int_equal(gcry_cipher_encrypt(hd, b, len, NULL, 0), 0);
		assert_int_equal(gcry_cipher_gettag(hd, want, 16), 0);

		ctx = begin("SM4-GCM", "provider=sits", true, NULL, NULL);
		assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, (int)iv_len, NULL), 1);
		assert_int_equal(EVP_CIPHER_CTX_get_iv_length(ctx), (int)iv_len);
		assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, key, iv), 1);
		assert_int_equal(EVP_EncryptUpdate(ctx, NULL, &n, aad, (int)cut), 1);
		assert_int_equal(EVP_EncryptUpdate(ctx, NULL, &n, aad + cut, (int)(aad_len - cut)), 1);
		assert_int_equal(in_pieces(ctx, a, plain, len), len);
		assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag), 1);
		assert_memory_equal(a, b, len);
		assert_memory_equal(tag, want, 16);
		assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
		assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 4 + (int)rnd(13), tag), 1);
		assert_int_equal(EVP_DecryptUpdate(ctx, NULL, &n, aad, (int)aad_len), 1);
		assert_int_equal(in_pieces(ctx, a, a, len), len);
		assert_memory_equal(a, plain, len);
		EVP_CIPHER_CTX_free(ctx);
	}
	gcry_cipher_close(hd);
}

static void test_xts_against_libgcrypt(void **state)
{
	uint8_t key[32], iv[16], plain[LEN_MAX], a[LEN_MAX], b[LEN_MAX];
	OSSL_PARAM ieee[] = { OSSL_PARAM_utf8_string("xts_standard", "IEEE", 4), OSSL_PARAM_END };
	gcry_cipher_hd_t hd;
	EVP_CIPHER_CTX *ctx;
	int i, n;

	assert_int_equal(gcry_cipher_open(&hd, GCRY_CIPHER_SM4, GCRY_CIPHER_MODE_XTS, 0), 0);
	for (i = 0; i < 200; i++) {
		size_t len = 16 + rnd(LEN_MAX - 16);

		rnd_bytes(key, 32);
		rnd_bytes(iv, 16);
		rnd_bytes(plain, len);
		assert_int_equal(gcry_cipher_setkey(hd, key, 32), 0);
		assert_int_equal(gcry_cipher_setiv(hd, iv, 16), 0);
		assert_int_equal(gcry_cipher_encrypt(hd, b, len, plain, len), 0);
		ctx = begin("SM4-XTS", "provider=sits", true, key, iv);
		assert_int_equal(EVP_CIPHER_CTX_set_params(ctx, ieee), 1);
		assert_int_equal(EVP_EncryptUpdate(ctx, a, &n, plain, (int)len), 1);
		assert_memory_equal(a, b, len);
		/* Every call is a data unit of its own, under the same tweak. */
		assert_int_equal(EVP_EncryptUpdate(ctx, a, &n, plain, (int)len), 1);
		assert_memory_equal(a, b, len);
		assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
		assert_int_equal(EVP_DecryptUpdate(ctx, a, &n, a, (int)len), 1);
		assert_memory_equal(a, plain, len);
		EVP_CIPHER_CTX_free(ctx);
	}
	gcry_cipher_close(hd);
}

/* --------------------------------------------------------------- TLS 1.3 */

/* What libssl sets up once for a direction (tls13_change_cipher_state and what it calls, OpenSSL 3.0). */
static EVP_CIPHER_CTX *tls_side(bool sending, const uint8_t *key)
{
	EVP_CIPHER *cipher = fetch("SM4-GCM", "provider=sits");
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

	assert_non_null(ctx);
	assert_int_equal(EVP_CIPHER_get_mode(cipher), EVP_CIPH_GCM_MODE);
	assert_true(EVP_CipherInit_ex(ctx, cipher, NULL, NULL, NULL, sending) > 0);
	assert_true(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 12, NULL) > 0);
	assert_true(EVP_CipherInit_ex(ctx, NULL, NULL, key, NULL, -1) > 0);
	EVP_CIPHER_free(cipher);
	return ctx;
}

/* One record, in place (tls13_enc): text and tag in @rec. Return: 1; 0 for one that is refused. */
static int tls_record(EVP_CIPHER_CTX *ctx, bool sending, const uint8_t *fixed_iv, uint64_t seq, uint8_t *rec, size_t text_len)
{
	uint8_t iv[12], header[5] = { 23, 3, 3 };
	int n, m, i;

	memcpy(iv, fixed_iv, 12);
	for (i = 0; i < 8; i++)
		iv[11 - i] ^= (uint8_t)(seq >> 8 * i);
	header[3] = (uint8_t)((text_len + 16) >> 8);
	header[4] = (uint8_t)(text_len + 16);
	assert_int_equal(EVP_CIPHER_CTX_get_iv_length(ctx), 12);
	if (EVP_CipherInit_ex(ctx, NULL, NULL, NULL, iv, sending) <= 0 ||
	    (!sending && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, rec + text_len) <= 0))
		return 0;
	if (EVP_CipherUpdate(ctx, NULL, &n, header, sizeof(header)) <= 0 ||
	    EVP_CipherUpdate(ctx, rec, &n, rec, (int)text_len) <= 0 || EVP_CipherFinal_ex(ctx, rec + n, &m) <= 0 ||
	    (size_t)n + (size_t)m != text_len)
		return 0;
	return !sending || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, rec + text_len) > 0;
}

static void test_as_a_tls_13_record_layer_does(void **state)
{
	uint8_t key[16], iv[12], text[1000], rec[1016];
	EVP_CIPHER_CTX *out, *in;
	uint64_t seq;

	rnd_bytes(key, 16);
	rnd_bytes(iv, 12);
	out = tls_side(true, key);
	in = tls_side(false, key);
	for (seq = 0; seq < 300; seq++) {
		size_t len = 1 + rnd(1000);

		rnd_bytes(text, len);
		memcpy(rec, text, len);
		assert_int_equal(tls_record(out, true, iv, seq, rec, len), 1);
		assert_memory_not_equal(rec, text, len < 16 ? len + 16 : len);
		if (seq % 10 == 9) {
			/* A flipped bit; the next record is none the worse for it. */
			rec[rnd((uint32_t)len + 16)] ^= 1 << rnd(8);
			assert_int_equal(tls_record(in, false, iv, seq, rec, len), 0);
			assert_non_null(strstr(reason(), "not authentic"));
			continue;
		}
		assert_int_equal(tls_record(in, false, iv, seq, rec, len), 1);
		assert_memory_equal(rec, text, len);
	}
	EVP_CIPHER_CTX_free(out);
	EVP_CIPHER_CTX_free(in);
}

/* --------------------------------------------------------------- copies and threads */

static void test_copies_go_on_by_themselves(void **state)
{
	static const char *const names[] = { "SM4-ECB", "SM4-CBC", "SM4-CTR", "SM4-GCM" };
	uint8_t key[16], iv[16], data[200], a[256], b[256], want[256];
	size_t i;
	int n, m, k, round;

	for (round = 0; round < 100; round++) {
		for (i = 0; i < 4; i++) {
			int cut = (int)rnd(200);
			EVP_CIPHER_CTX *ctx, *copy = EVP_CIPHER_CTX_new();

			rnd_bytes(key, 16);
			rnd_bytes(iv, 16);
			rnd_bytes(data, sizeof(data));
			ctx = begin(names[i], "provider=sits", true, key, iv);
			assert_int_equal(EVP_EncryptUpdate(ctx, want, &n, data, 200), 1);
			assert_int_equal(EVP_EncryptFinal_ex(ctx, want + n, &m), 1);
			EVP_CIPHER_CTX_free(ctx);

			ctx = begin(names[i], "provider=sits", true, key, iv);
			assert_int_equal(EVP_EncryptUpdate(ctx, a, &n, data, cut), 1);
			memcpy(b, a, (size_t)n);
			assert_int_equal(EVP_CIPHER_CTX_copy(copy, ctx), 1);
			/* The first goes another way and is gone; the copy does not notice. */
			assert_int_equal(EVP_EncryptUpdate(ctx, a + n, &k, iv, 16), 1);
			EVP_CIPHER_CTX_free(ctx);
			assert_int_equal(EVP_EncryptUpdate(copy, b + n, &k, data + cut, 200 - cut), 1);
			assert_int_equal(EVP_EncryptFinal_ex(copy, b + n + k, &m), 1);
			assert_int_equal(n + k + m, strcmp(names[i], "SM4-ECB") && strcmp(names[i], "SM4-CBC") ? 200 : 208);
			assert_memory_equal(b, want, (size_t)(n + k + m));
			EVP_CIPHER_CTX_free(copy);
		}
	}
}

struct worker {
	pthread_t thread;
	uint8_t tag[16];
	bool ok;
};

static void *work(void *arg)
{
	static const uint8_t key[16] = "thread's own key";
	struct worker *w = arg;
	uint8_t buf[1000], iv[12] = { 0 };
	int i, n;

	w->ok = true;
	for (i = 0; i < 200 && w->ok; i++) {
		EVP_CIPHER *cipher = EVP_CIPHER_fetch(lib, "SM4-GCM", "provider=sits");
		EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

		memset(buf, i, sizeof(buf));
		iv[0] = (uint8_t)i;
		w->ok = cipher && ctx && EVP_EncryptInit_ex2(ctx, cipher, key, iv, NULL) &&
			EVP_EncryptUpdate(ctx, buf, &n, buf, sizeof(buf)) && EVP_EncryptFinal_ex(ctx, buf, &n) &&
			EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, w->tag);
		EVP_CIPHER_CTX_free(ctx);
		EVP_CIPHER_free(cipher);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct worker w[8];
	int i;

	for (i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(pthread_join(w[i].thread, NULL), 0);
	for (i = 0; i < 8; i++) {
		assert_true(w[i].ok);
		assert_memory_equal(w[i].tag, w[0].tag, 16);
	}
}

/* A server that forks for each connection: what the parent set up works in the child. */
static void test_contexts_survive_fork(void **state)
{
	uint8_t key[16] = { 1 }, iv[16] = { 2 }, data[40] = { 3 }, want[40], out[40];
	EVP_CIPHER_CTX *ctx = begin("SM4-CTR", "provider=sits", true, key, iv), *copy = EVP_CIPHER_CTX_new();
	int n, status;
	pid_t pid;

	assert_int_equal(EVP_EncryptUpdate(ctx, out, &n, data, 7), 1);
	assert_int_equal(EVP_CIPHER_CTX_copy(copy, ctx), 1);
	assert_int_equal(EVP_EncryptUpdate(copy, want, &n, data, 40), 1);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(EVP_EncryptUpdate(ctx, out, &n, data, 40) == 1 && !memcmp(out, want, 40) ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	EVP_CIPHER_CTX_free(ctx);
	EVP_CIPHER_CTX_free(copy);
}

/* --------------------------------------------------------------- wrong use */

static void test_gcm_refuses(void **state)
{
	uint8_t key[16] = { 1 }, iv[12] = { 2 }, buf[32] = { 0 }, tag[16] = { 0 };
	EVP_CIPHER_CTX *ctx = begin("SM4-GCM", "provider=sits", true, NULL, NULL);
	int n;

	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
	assert_string_equal(reason(), "no key was set");
	assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, key, NULL), 1);
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
	assert_non_null(strstr(reason(), "no initialisation vector"));
	assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
	/* A tag is got at the end, and not set. */
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag), 0);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag), 0);
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 1);
	assert_int_equal(EVP_EncryptUpdate(ctx, NULL, &n, buf, 16), 0);
	assert_string_equal(reason(), "associated data after text");
	assert_int_equal(EVP_EncryptUpdate(ctx, buf + 1, &n, buf, 16), 0);
	assert_non_null(strstr(reason(), "overlap"));
	assert_int_equal(EVP_EncryptFinal_ex(ctx, buf, &n), 1);
	/* The nonce is used up: for text, for associated data, for an end. */
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
	assert_int_equal(EVP_EncryptUpdate(ctx, NULL, &n, buf, 16), 0);
	assert_int_equal(EVP_EncryptFinal_ex(ctx, buf, &n), 0);
	assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, NULL), 1);
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
	/* Also where the message was given up in the middle. */
	assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 1);
	assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, key, NULL), 1);
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
	/* And where another length was asked for after it was set. */
	assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 13, NULL), 1);
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 0, NULL), 0);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 1 << 20, NULL), 0);

	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 12, NULL), 1);
	assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
	assert_int_equal(EVP_DecryptUpdate(ctx, buf, &n, buf, 16), 1);
	assert_int_equal(EVP_DecryptFinal_ex(ctx, buf, &n), 0);
	assert_non_null(strstr(reason(), "no tag"));
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 3, tag), 0);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 17, tag), 0);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag), 1);
	assert_int_equal(EVP_DecryptFinal_ex(ctx, buf, &n), 0);
	assert_non_null(strstr(reason(), "not authentic"));
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag), 0);
	EVP_CIPHER_CTX_free(ctx);
	ERR_clear_error();
}

/* Programs set the tag when they have it: also before key and nonce (pyca/cryptography), which must not make it be forgotten. */
static void test_gcm_tag_comes_first(void **state)
{
	uint8_t key[16] = { 1 }, iv[12] = { 2 }, text[40] = { 3 }, out[40], tag[16];
	EVP_CIPHER_CTX *ctx = begin("SM4-GCM", "provider=sits", true, key, iv);
	int n, bit;

	assert_int_equal(EVP_EncryptUpdate(ctx, text, &n, text, sizeof(text)), 1);
	assert_int_equal(EVP_EncryptFinal_ex(ctx, out, &n), 1);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag), 1);
	/* What was got is none that was set. */
	assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, key, iv), 1);
	assert_int_equal(EVP_DecryptUpdate(ctx, out, &n, text, sizeof(text)), 1);
	assert_int_equal(EVP_DecryptFinal_ex(ctx, out, &n), 0);
	assert_non_null(strstr(reason(), "no tag"));
	EVP_CIPHER_CTX_free(ctx);

	for (bit = 0; bit < 2; bit++) {
		ctx = begin("SM4-GCM", "provider=sits", false, NULL, NULL);
		tag[15] ^= bit;
		assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 12, NULL), 1);
		assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag), 1);
		assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, key, NULL), 1);
		assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
		assert_int_equal(EVP_DecryptUpdate(ctx, out, &n, text, sizeof(text)), 1);
		assert_int_equal(EVP_DecryptFinal_ex(ctx, out, &n), !bit);
		/* It was for one message. */
		assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
		assert_int_equal(EVP_DecryptUpdate(ctx, out, &n, text, sizeof(text)), 1);
		assert_int_equal(EVP_DecryptFinal_ex(ctx, out, &n), 0);
		assert_non_null(strstr(reason(), "no tag"));
		EVP_CIPHER_CTX_free(ctx);
	}
	ERR_clear_error();
}

static void test_others_refuse(void **state)
{
	uint8_t key[32] = { 1 }, same[32] = { 0 }, iv[16] = { 2 }, buf[64] = { 0 };
	OSSL_PARAM rot13[] = { OSSL_PARAM_utf8_string("xts_standard", "ROT13", 5), OSSL_PARAM_END };
	OSSL_PARAM number[] = { OSSL_PARAM_size_t("xts_standard", &(size_t){ 1 }), OSSL_PARAM_END };
	static const char *const names[] = { "SM4-CBC", "SM4-CTR", "SM4-XTS" };
	EVP_CIPHER_CTX *ctx;
	size_t i;
	int n;

	for (i = 0; i < 3; i++) {
		ctx = begin(names[i], "provider=sits", true, NULL, NULL);
		assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
		assert_string_equal(reason(), "no key was set");
		assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, key, NULL), 1);
		assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 16), 0);
		assert_non_null(strstr(reason(), "no initialisation vector"));
		assert_int_equal(EVP_CIPHER_CTX_set_key_length(ctx, 24), 0);
		EVP_CIPHER_CTX_free(ctx);
	}
	ctx = begin("SM4-XTS", "provider=sits", true, key, iv);
	assert_int_equal(EVP_EncryptUpdate(ctx, buf, &n, buf, 15), 0);
	assert_non_null(strstr(reason(), "data unit"));
	assert_int_equal(EVP_CIPHER_CTX_set_params(ctx, rot13), 0);
	assert_non_null(strstr(reason(), "xts_standard"));
	assert_int_equal(EVP_CIPHER_CTX_set_params(ctx, number), 0);
	assert_int_equal(EVP_EncryptInit_ex(ctx, NULL, NULL, same, iv), 0);
	assert_non_null(strstr(reason(), "equal"));
	assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, same, iv), 1);
	EVP_CIPHER_CTX_free(ctx);

	ctx = begin("SM4-CBC", "provider=sits", false, key, iv);
	assert_int_equal(EVP_DecryptUpdate(ctx, buf, &n, buf, 20), 1);
	assert_int_equal(EVP_DecryptFinal_ex(ctx, buf, &n), 0);
	assert_non_null(strstr(reason(), "multiple of 16"));
	assert_int_equal(EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, iv), 1);
	assert_int_equal(EVP_DecryptUpdate(ctx, buf, &n, iv, 16), 1);
	assert_int_equal(EVP_DecryptFinal_ex(ctx, buf, &n), 0);
	assert_non_null(strstr(reason(), "padding"));
	EVP_CIPHER_CTX_free(ctx);
	ERR_clear_error();
}

/* Every way in which padding can be wrong; and the right ones. */
static void test_padding(void **state)
{
	uint8_t key[16] = { 1 }, iv[16] = { 2 }, block[16], box[16], out[32];
	EVP_CIPHER_CTX *ctx;
	int last, bad, n, m, i;

	for (last = 0; last < 256; last++) {
		for (bad = -1; bad < 15; bad++) {
			bool right = last >= 1 && last <= 16;

			memset(block, last, 16);
			for (i = 0; right && i < 16 - last; i++)
				block[i] = 0xee;
			if (bad >= 0) {
				block[bad] ^= 0x40;
				right = right && bad < 16 - last;
			}
			ctx = begin("SM4-CBC", "provider=default", true, key, iv);
			assert_int_equal(EVP_EncryptUpdate(ctx, box, &n, block, 16), 1);
			EVP_CIPHER_CTX_free(ctx);
			ctx = begin("SM4-CBC", "provider=sits", false, key, iv);
			assert_int_equal(EVP_DecryptUpdate(ctx, out, &n, box, 16), 1);
			assert_int_equal(n, 0);
			assert_int_equal(EVP_DecryptFinal_ex(ctx, out, &m), right);
			if (right)
				assert_int_equal(m, 16 - last);
			EVP_CIPHER_CTX_free(ctx);
		}
	}
	ERR_clear_error();
}

/* A block that was kept back since it could have been padding, when it turns out that there is none. */
static void test_padding_switched_off_late(void **state)
{
	static const char *const names[] = { "SM4-ECB", "SM4-CBC" };
	uint8_t key[16] = { 1 }, iv[16] = { 2 }, text[48], box[48], out[64];
	EVP_CIPHER_CTX *ctx;
	int i, n, m, more;

	rnd_bytes(text, sizeof(text));
	for (i = 0; i < 4; i++) {
		ctx = begin(names[i / 2], "provider=sits", true, key, i / 2 ? iv : NULL);
		assert_int_equal(EVP_EncryptUpdate(ctx, box, &n, text, sizeof(text)), 1);
		EVP_CIPHER_CTX_free(ctx);
		ctx = begin(names[i / 2], "provider=sits", false, key, i / 2 ? iv : NULL);
		assert_int_equal(EVP_DecryptUpdate(ctx, out, &n, box, 32), 1);
		assert_int_equal(n, 16);
		assert_int_equal(EVP_CIPHER_CTX_set_padding(ctx, 0), 1);
		more = 0;
		if (i & 1)
			assert_int_equal(EVP_DecryptUpdate(ctx, out + n, &more, box + 32, 16), 1);
		assert_int_equal(more, i & 1 ? 32 : 0);
		assert_int_equal(EVP_DecryptFinal_ex(ctx, out + n + more, &m), 1);
		assert_int_equal(n + more + m, i & 1 ? 48 : 32);
		assert_memory_equal(out, text, (size_t)(n + more + m));
		EVP_CIPHER_CTX_free(ctx);
	}
}

/* --------------------------------------------------------------- the tables, without EVP before them */

typedef void *new_fn(void *provctx);
typedef void free_fn(void *ctx);
typedef int init_fn(void *ctx, const unsigned char *key, size_t key_len, const unsigned char *iv, size_t iv_len,
		    const OSSL_PARAM params[]);
typedef int update_fn(void *ctx, unsigned char *out, size_t *out_len, size_t out_size, const unsigned char *in, size_t len);
typedef int final_fn(void *ctx, unsigned char *out, size_t *out_len, size_t out_size);
typedef int get_fn(void *ctx, OSSL_PARAM params[]);
typedef int set_fn(void *ctx, const OSSL_PARAM params[]);

static void (*function(const OSSL_DISPATCH *table, int id))(void)
{
	for (; table->function_id; table++)
		if (table->function_id == id)
			return table->function;
	fail_msg("no function %d", id);
	return NULL;
}

static const OSSL_DISPATCH *const tables[] = { prov_ecb, prov_cbc, prov_ctr, prov_gcm, prov_xts };

/* Lengths and parameters that EVP would not pass on, or only from a broken program. */
static void test_hostile_arguments(void **state)
{
	struct prov *prov = OSSL_PROVIDER_get0_provider_ctx(ours);
	static const size_t key_lens[] = { 0, 1, 15, 17, 24, 31, 33, 64 };
	uint8_t key[64] = { 1 }, iv[2000] = { 2 }, buf[64] = { 0 };
	size_t t, i, n;

	for (t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
		const OSSL_DISPATCH *d = tables[t];
		init_fn *init = (init_fn *)function(d, OSSL_FUNC_CIPHER_ENCRYPT_INIT);
		update_fn *update = (update_fn *)function(d, OSSL_FUNC_CIPHER_UPDATE);
		update_fn *once = (update_fn *)function(d, OSSL_FUNC_CIPHER_CIPHER);
		size_t key_len = d == prov_xts ? 32 : 16, iv_len = d == prov_ecb ? 0 : d == prov_gcm ? 12 : 16;
		void *ctx = ((new_fn *)function(d, OSSL_FUNC_CIPHER_NEWCTX))(prov);

		assert_non_null(ctx);
		for (i = 0; i < sizeof(key_lens) / sizeof(key_lens[0]); i++)
			assert_int_equal(init(ctx, key, key_lens[i], iv, iv_len, NULL), 0);
		if (iv_len) {
			assert_int_equal(init(ctx, key, key_len, iv, 0, NULL), 0);
			assert_int_equal(init(ctx, key, key_len, iv, d == prov_gcm ? 2000 : 15, NULL), 0);
		}
		assert_int_equal(init(ctx, key, key_len, iv, iv_len, NULL), 1);
		/* No room: nothing is written. */
		memset(buf, 0x77, sizeof(buf));
		assert_int_equal(update(ctx, buf, &n, 31, key, 32), 0);
		assert_int_equal(once(ctx, buf, &n, 31, key, 32), 0);
		for (i = 0; i < sizeof(buf); i++)
			assert_int_equal(buf[i], 0x77);
		/* Nothing to read, nowhere to write; to GCM that is associated data. */
		assert_int_equal(init(ctx, key, key_len, iv, iv_len, NULL), 1);
		assert_int_equal(update(ctx, buf, &n, 64, NULL, 32), 0);
		assert_int_equal(update(ctx, NULL, &n, 64, NULL, 32), 0);
		assert_int_equal(update(ctx, NULL, &n, 64, key, 32), d == prov_gcm);
		assert_int_equal(once(ctx, NULL, &n, 64, key, 32), d == prov_gcm);
		if (d != prov_gcm)
			assert_int_equal(once(ctx, buf, &n, 64, NULL, 32), 0);
		if (d == prov_ecb || d == prov_cbc)
			assert_int_equal(((final_fn *)function(d, OSSL_FUNC_CIPHER_FINAL))(ctx, NULL, &n, 64), 0);
		assert_int_equal(init(ctx, key, key_len, iv, iv_len, NULL), 1);
		assert_int_equal(update(ctx, buf, &n, 32, key, 32), 1);
		assert_int_equal(n, 32);
		((free_fn *)function(d, OSSL_FUNC_CIPHER_FREECTX))(ctx);
	}
	ERR_clear_error();
}

static void test_hostile_arguments_of_sm3(void **state)
{
	typedef int md_init_fn(void *ctx, const OSSL_PARAM params[]);
	typedef int md_update_fn(void *ctx, const unsigned char *in, size_t len);
	typedef int digest_fn(void *prov, const unsigned char *in, size_t len, unsigned char *out, size_t *out_len, size_t out_size);
	struct prov *prov = OSSL_PROVIDER_get0_provider_ctx(ours);
	md_update_fn *update = (md_update_fn *)function(prov_sm3, OSSL_FUNC_DIGEST_UPDATE);
	final_fn *final = (final_fn *)function(prov_sm3, OSSL_FUNC_DIGEST_FINAL);
	digest_fn *digest = (digest_fn *)function(prov_sm3, OSSL_FUNC_DIGEST_DIGEST);
	void *ctx = ((new_fn *)function(prov_sm3, OSSL_FUNC_DIGEST_NEWCTX))(prov);
	uint8_t out[32], whole[32];
	size_t n;

	assert_non_null(ctx);
	assert_int_equal(((md_init_fn *)function(prov_sm3, OSSL_FUNC_DIGEST_INIT))(ctx, NULL), 1);
	assert_int_equal(update(ctx, NULL, 1), 0);
	assert_int_equal(update(ctx, NULL, 0), 1);
	assert_int_equal(final(ctx, NULL, &n, 32), 0);
	assert_int_equal(final(ctx, out, &n, 31), 0);
	assert_int_equal(final(ctx, out, &n, 32), 1);
	assert_int_equal(digest(prov, NULL, 1, whole, &n, 32), 0);
	assert_int_equal(digest(prov, NULL, 0, NULL, &n, 32), 0);
	assert_int_equal(digest(prov, NULL, 0, whole, &n, 32), 1);
	assert_memory_equal(out, whole, 32);
	((free_fn *)function(prov_sm3, OSSL_FUNC_DIGEST_FREECTX))(ctx);
	ERR_clear_error();
}

static void test_hostile_parameters(void **state)
{
	static const char *const keys[] = { "keylen", "ivlen", "padding", "num", "iv", "updated-iv", "tag", "taglen", "xts_standard",
					    "mode", "blocksize", "aead", "unheard-of" };
	struct prov *prov = OSSL_PROVIDER_get0_provider_ctx(ours);
	uint8_t key[32] = { 1 }, iv[16] = { 2 };
	size_t t, k, size;
	unsigned int type;

	for (t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
		const OSSL_DISPATCH *d = tables[t];
		init_fn *init = (init_fn *)function(d, OSSL_FUNC_CIPHER_ENCRYPT_INIT);
		get_fn *get = (get_fn *)function(d, OSSL_FUNC_CIPHER_GET_CTX_PARAMS);
		set_fn *set = (set_fn *)function(d, OSSL_FUNC_CIPHER_SET_CTX_PARAMS);
		void *ctx = ((new_fn *)function(d, OSSL_FUNC_CIPHER_NEWCTX))(prov);

		assert_int_equal(init(ctx, key, d == prov_xts ? 32 : 16, d == prov_ecb ? NULL : iv,
				      d == prov_ecb ? 0 : d == prov_gcm ? 12 : 16, NULL), 1);
		/* Every type and size: no byte beyond the buffer is touched (exact heap blocks, under the sanitizers). */
		for (k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
			for (type = 0; type <= 8; type++) {
				for (size = 0; size <= 40; size++) {
					bool pointer = type == OSSL_PARAM_UTF8_PTR || type == OSSL_PARAM_OCTET_PTR;
					size_t room = pointer ? sizeof(void *) : size;
					void *data = size ? calloc(1, room) : NULL;
					OSSL_PARAM p[2] = { { keys[k], type, data, size, 0 }, { NULL, 0, NULL, 0, 0 } };

					get(ctx, p);
					assert_true(!p[0].data || pointer || type == OSSL_PARAM_INTEGER ||
						    type == OSSL_PARAM_UNSIGNED_INTEGER || p[0].return_size <= 64);
					if (!pointer)
						set(ctx, p);
					free(data);
				}
			}
		}
		((free_fn *)function(d, OSSL_FUNC_CIPHER_FREECTX))(ctx);
	}
	ERR_clear_error();
}

static int setup(void **state)
{
	lib = OSSL_LIB_CTX_new();
	if (!lib || !OSSL_PROVIDER_add_builtin(lib, "sits", OSSL_provider_init))
		return -1;
	ours = OSSL_PROVIDER_load(lib, "sits");
	theirs = OSSL_PROVIDER_load(lib, "default");
	gcry_check_version(NULL);
	gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
	gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
	return ours && theirs ? 0 : -1;
}

static int teardown(void **state)
{
	OSSL_PROVIDER_unload(ours);
	OSSL_PROVIDER_unload(theirs);
	OSSL_LIB_CTX_free(lib);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_provider_says_what_it_is),
		cmocka_unit_test(test_gcm_of_rfc_8998),
		cmocka_unit_test(test_standards_of_xts),
		cmocka_unit_test(test_against_libcrypto),
		cmocka_unit_test(test_sm3_against_libcrypto),
		cmocka_unit_test(test_in_place_with_bytes_kept_back),
		cmocka_unit_test(test_gcm_against_libgcrypt),
		cmocka_unit_test(test_xts_against_libgcrypt),
		cmocka_unit_test(test_as_a_tls_13_record_layer_does),
		cmocka_unit_test(test_copies_go_on_by_themselves),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_contexts_survive_fork),
		cmocka_unit_test(test_gcm_refuses),
		cmocka_unit_test(test_gcm_tag_comes_first),
		cmocka_unit_test(test_others_refuse),
		cmocka_unit_test(test_padding),
		cmocka_unit_test(test_padding_switched_off_late),
		cmocka_unit_test(test_hostile_arguments),
		cmocka_unit_test(test_hostile_arguments_of_sm3),
		cmocka_unit_test(test_hostile_parameters),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	seed = (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	return cmocka_run_group_tests(tests, setup, teardown);
}
