// SPDX-License-Identifier: MIT
/*
 * cipher_test.c - the public cipher and hash API: known answers through it, pieces against whole messages, wrong calls one by
 * one, memory. That the ciphers are right at all lengths and on all cores is shown in tests/unit/crypto/.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sits/crypto.h"

#define LEN_MAX 2000
#define NR(a) (sizeof(a) / sizeof((a)[0]))

static const uint32_t types[] = {
	SITS_CIPHER_SM4_ECB, SITS_CIPHER_SM4_CBC, SITS_CIPHER_SM4_CTR, SITS_CIPHER_SM4_GCM, SITS_CIPHER_SM4_XTS,
	SITS_CIPHER_SM4_XTS_GB,
};

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

static bool xts(uint32_t type)
{
	return type == SITS_CIPHER_SM4_XTS || type == SITS_CIPHER_SM4_XTS_GB;
}

static size_t key_len(uint32_t type)
{
	return xts(type) ? 32 : 16;
}

static size_t iv_len(uint32_t type)
{
	return type == SITS_CIPHER_SM4_ECB ? 0 : type == SITS_CIPHER_SM4_GCM ? 12 : 16;
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

static struct sits_cipher *make(uint32_t type, const uint8_t *key)
{
	struct sits_cipher *c = NULL;

	assert_int_equal(sits_cipher_create(type, key, key_len(type), 0, &c), 0);
	return c;
}

static const struct answer {
	const char *source;
	uint32_t type;
	const char *key, *iv, *plain, *cipher;
} answers[] = {
	{ "GB/T 32907-2016, example 1", SITS_CIPHER_SM4_ECB, "0123456789abcdeffedcba9876543210", "",
	  "0123456789abcdeffedcba9876543210", "681edf34d206965e86b3e94f536e4246" },
	{ "draft-ribose-cfrg-sm4-10, A.2.2.1 (CBC)", SITS_CIPHER_SM4_CBC, "0123456789abcdeffedcba9876543210",
	  "000102030405060708090a0b0c0d0e0f", "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffaaaaaaaabbbbbbbb",
	  "78ebb11cc40b0a48312aaeb2040244cb4cb7016951909226979b0d15dc6a8f6d" },
	{ "draft-ribose-cfrg-sm4-10, A.2.5.1 (CTR)", SITS_CIPHER_SM4_CTR, "0123456789abcdeffedcba9876543210",
	  "000102030405060708090a0b0c0d0e0f",
	  "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
	  "eeeeeeeeeeeeeeeeffffffffffffffffaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb",
	  "ac3236cb970cc20791364c395a1342d1a3cbc1878c6f30cd074cce385cdd70c7"
	  "f234bc0e24c11980fd1286310ce37b926e02fcd0faa0baf38b2933851d824514" },
};

static void test_known_answers(void **state)
{
	uint8_t key[32], iv[16], plain[64], want[64], out[64];
	size_t i, len, n;

	for (i = 0; i < NR(answers); i++) {
		const struct answer *a = &answers[i];
		struct sits_cipher *c;

		from_hex(a->key, key);
		n = from_hex(a->iv, iv);
		len = from_hex(a->plain, plain);
		from_hex(a->cipher, want);
		c = make(a->type, key);
		assert_int_equal(sits_cipher_encrypt(c, n ? iv : NULL, n, out, plain, len), 0);
		assert_memory_equal(out, want, len);
		assert_int_equal(sits_cipher_decrypt(c, n ? iv : NULL, n, out, out, len), 0);
		assert_memory_equal(out, plain, len);
		sits_cipher_destroy(c);
	}
}

/* Source: RFC 8998, A.1. */
static void test_gcm_of_rfc_8998(void **state)
{
	uint8_t key[16], iv[12], aad[20], plain[64], want[64], tag[16], out[64], got[16];
	struct sits_cipher *c;

	from_hex("0123456789abcdeffedcba9876543210", key);
	from_hex("00001234567800000000abcd", iv);
	from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2", aad);
	from_hex("aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
		 "eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa", plain);
	from_hex("17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
		 "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d", want);
	from_hex("83de3541e4c2b58177e065a9bf7b62ec", tag);
	c = make(SITS_CIPHER_SM4_GCM, key);
	assert_int_equal(sits_cipher_seal(c, iv, 12, aad, 20, out, plain, 64, got, 16), 0);
	assert_memory_equal(out, want, 64);
	assert_memory_equal(got, tag, 16);
	assert_int_equal(sits_cipher_open(c, iv, 12, aad, 20, out, out, 64, tag, 16), 0);
	assert_memory_equal(out, plain, 64);
	sits_cipher_destroy(c);
}

/* Only the tweaks of later blocks tell the two apart. The beginnings of the second blocks: GB/T 17964-2021 and OpenSSL's tests. */
static void test_two_forms_of_xts(void **state)
{
	uint8_t key[32], iv[16], plain[32], a[32], b[32];
	static const uint8_t gb[4] = { 0x2c, 0x5c, 0x58, 0x1b }, ieee[4] = { 0xb3, 0xdb, 0x1a, 0x3e };
	struct sits_cipher *c;

	from_hex("2b7e151628aed2a6abf7158809cf4f3c000102030405060708090a0b0c0d0e0f", key);
	from_hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", iv);
	from_hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51", plain);
	c = make(SITS_CIPHER_SM4_XTS, key);
	assert_int_equal(sits_cipher_encrypt(c, iv, 16, a, plain, 32), 0);
	sits_cipher_destroy(c);
	c = make(SITS_CIPHER_SM4_XTS_GB, key);
	assert_int_equal(sits_cipher_encrypt(c, iv, 16, b, plain, 32), 0);
	sits_cipher_destroy(c);
	assert_memory_equal(a, b, 16);
	assert_memory_equal(a + 16, ieee, 4);
	assert_memory_equal(b + 16, gb, 4);
}

/* What may be the next piece of a message with so much left. */
static size_t piece(uint32_t type, size_t left)
{
	size_t n = rnd(5) ? rnd((uint32_t)(left < 100 ? left : 100) + 1) : rnd((uint32_t)left + 1);

	if (type == SITS_CIPHER_SM4_CTR || type == SITS_CIPHER_SM4_GCM)
		return n;
	n -= n % 16;
	/* The last of XTS takes a whole block with it. */
	return xts(type) && left % 16 && left - n < 32 ? left : n;
}

static void in_pieces(struct sits_cipher *c, uint32_t type, uint32_t direction, const uint8_t *iv, const uint8_t *aad,
		      size_t aad_len, uint8_t *dst, const uint8_t *src, size_t len)
{
	struct sits_cipher *copy;
	size_t at, n;

	assert_int_equal(sits_cipher_start(c, direction, iv, iv_len(type)), 0);
	for (at = 0; type == SITS_CIPHER_SM4_GCM && at < aad_len; at += n) {
		n = rnd((uint32_t)(aad_len - at) + 1);
		assert_int_equal(sits_cipher_aad(c, aad + at, n), 0);
	}
	for (at = 0; at < len; at += n) {
		n = piece(type, len - at);
		/* A copy goes on where the message is, and does not disturb it. */
		if (!rnd(10)) {
			uint8_t *scratch = malloc(n + 1);

			assert_non_null(scratch);
			assert_int_equal(sits_cipher_dup(c, &copy), 0);
			assert_int_equal(sits_cipher_update(copy, scratch, src + at, n), 0);
			assert_int_equal(sits_cipher_update(c, dst + at, src + at, n), 0);
			assert_memory_equal(scratch, dst + at, n);
			sits_cipher_destroy(copy);
			free(scratch);
			continue;
		}
		assert_int_equal(sits_cipher_update(c, dst + at, src + at, n), 0);
	}
}

static void whole_against_pieces(uint32_t type)
{
	uint8_t key[32], iv[16], aad[60], plain[LEN_MAX], one[LEN_MAX + 1], two[LEN_MAX], tag1[16], tag2[16];
	size_t len = rnd(LEN_MAX), aad_len = rnd(60);
	bool gcm = type == SITS_CIPHER_SM4_GCM;
	struct sits_cipher *c;

	if (type <= SITS_CIPHER_SM4_CBC)
		len -= len % 16;
	if (xts(type) && len < 16)
		len += 16;
	rnd_bytes(key, 32);
	rnd_bytes(iv, 16);
	rnd_bytes(aad, sizeof(aad));
	rnd_bytes(plain, len);
	c = make(type, key);
	one[len] = 0xa5;
	assert_int_equal(gcm ? sits_cipher_seal(c, iv, 12, aad, aad_len, one, plain, len, tag1, 16) :
			 sits_cipher_encrypt(c, iv, iv_len(type), one, plain, len), 0);
	assert_int_equal(one[len], 0xa5);
	in_pieces(c, type, SITS_CIPHER_ENCRYPT, iv, aad, aad_len, two, plain, len);
	assert_int_equal(sits_cipher_finish(c, tag2, gcm ? 16 : 0), 0);
	assert_memory_equal(one, two, len);
	if (gcm)
		assert_memory_equal(tag1, tag2, 16);
	in_pieces(c, type, SITS_CIPHER_DECRYPT, iv, aad, aad_len, two, two, len);
	assert_int_equal(sits_cipher_finish(c, tag1, gcm ? 16 : 0), 0);
	assert_memory_equal(two, plain, len);
	assert_int_equal(gcm ? sits_cipher_open(c, iv, 12, aad, aad_len, one, one, len, tag1, 16) :
			 sits_cipher_decrypt(c, iv, iv_len(type), one, one, len), 0);
	assert_memory_equal(one, plain, len);
	sits_cipher_destroy(c);
}

static void test_pieces(void **state)
{
	size_t i, n;

	print_message("# seed: %llu\n", (unsigned long long)seed);
	for (i = 0; i < NR(types); i++)
		for (n = 0; n < 150; n++)
			whole_against_pieces(types[i]);
}

/* Every length of nonce and tag; and a message that was touched is refused and leaves zeros. */
static void test_gcm_lengths_and_forgeries(void **state)
{
	uint8_t key[16] = { 7 }, iv[40] = { 1 }, plain[50], box[50], out[50], zero[50] = { 0 }, tag[16];
	struct sits_cipher *c = make(SITS_CIPHER_SM4_GCM, key);
	size_t n, t;

	rnd_bytes(plain, sizeof(plain));
	for (n = 1; n <= sizeof(iv); n++) {
		for (t = 4; t <= 16; t++) {
			memset(tag, 0xa5, sizeof(tag));
			assert_int_equal(sits_cipher_seal(c, iv, n, "head", 4, box, plain, 50, tag, t), 0);
			assert_true(t == 16 || tag[t] == 0xa5);
			assert_int_equal(sits_cipher_open(c, iv, n, "head", 4, out, box, 50, tag, t), 0);
			assert_memory_equal(out, plain, 50);
			tag[rnd((uint32_t)t)] ^= 1 << rnd(8);
			assert_int_equal(sits_cipher_open(c, iv, n, "head", 4, out, box, 50, tag, t), -EBADMSG);
			assert_memory_equal(out, zero, 50);
		}
	}
	assert_int_equal(sits_cipher_seal(c, iv, 12, "head", 4, box, plain, 50, tag, 16), 0);
	assert_int_equal(sits_cipher_open(c, iv, 12, "heae", 4, out, box, 50, tag, 16), -EBADMSG);
	box[49] ^= 0x80;
	assert_int_equal(sits_cipher_open(c, iv, 12, "head", 4, out, box, 50, tag, 16), -EBADMSG);
	assert_int_equal(sits_cipher_start(c, SITS_CIPHER_DECRYPT, iv, 12), 0);
	assert_int_equal(sits_cipher_aad(c, "head", 4), 0);
	assert_int_equal(sits_cipher_update(c, out, box, 50), 0);
	assert_int_equal(sits_cipher_finish(c, tag, 16), -EBADMSG);
	/* It has ended all the same. */
	assert_int_equal(sits_cipher_finish(c, tag, 16), -EINVAL);
	sits_cipher_destroy(c);
}

static void test_wrong_creation(void **state)
{
	uint8_t key[32] = { 1 };
	struct sits_cipher *c = (void *)1;
	struct sits_hash *h = (void *)1;

	assert_int_equal(sits_cipher_create(0, key, 16, 0, &c), -EINVAL);
	assert_int_equal(sits_cipher_create(7, key, 16, 0, &c), -EINVAL);
	assert_int_equal(sits_cipher_create(SITS_CIPHER_SM4_CTR, key, 16, 2, &c), -EINVAL);
	assert_int_equal(sits_cipher_create(SITS_CIPHER_SM4_CTR, key, 15, 0, &c), -EINVAL);
	assert_int_equal(sits_cipher_create(SITS_CIPHER_SM4_CTR, key, 32, 0, &c), -EINVAL);
	assert_int_equal(sits_cipher_create(SITS_CIPHER_SM4_XTS, key, 16, 0, &c), -EINVAL);
	/* Equal halves: IEEE 1619 forbids them. */
	memset(key, 3, sizeof(key));
	assert_int_equal(sits_cipher_create(SITS_CIPHER_SM4_XTS, key, 32, 0, &c), -EINVAL);
	assert_int_equal(sits_cipher_create(SITS_CIPHER_SM4_XTS_GB, key, 32, 0, &c), -EINVAL);
	assert_ptr_equal(c, (void *)1);
	assert_int_equal(sits_hash_create(0, 0, &h), -EINVAL);
	assert_int_equal(sits_hash_create(2, 0, &h), -EINVAL);
	assert_int_equal(sits_hash_create(SITS_HASH_SM3, 2, &h), -EINVAL);
	assert_ptr_equal(h, (void *)1);
	sits_cipher_destroy(NULL);
	sits_hash_destroy(NULL);
}

static void test_wrong_calls_on_whole_messages(void **state)
{
	uint8_t key[32] = { 1 }, iv[16] = { 0 }, buf[64] = { 0 }, tag[16];
	size_t i;

	for (i = 0; i < NR(types); i++) {
		struct sits_cipher *c = make(types[i], key);
		size_t n = iv_len(types[i]);

		if (types[i] == SITS_CIPHER_SM4_GCM) {
			assert_int_equal(sits_cipher_encrypt(c, iv, 12, buf, buf, 16), -EINVAL);
			assert_int_equal(sits_cipher_decrypt(c, iv, 12, buf, buf, 16), -EINVAL);
			assert_int_equal(sits_cipher_seal(c, iv, 0, NULL, 0, buf, buf, 16, tag, 16), -EINVAL);
			assert_int_equal(sits_cipher_seal(c, iv, 12, NULL, 0, buf, buf, 16, tag, 3), -EINVAL);
			assert_int_equal(sits_cipher_seal(c, iv, 12, NULL, 0, buf, buf, 16, tag, 17), -EINVAL);
			assert_int_equal(sits_cipher_open(c, iv, 12, NULL, 0, buf, buf, 16, tag, 3), -EINVAL);
			assert_int_equal(sits_cipher_open(c, iv, 12, NULL, 0, buf, buf, 16, tag, 17), -EINVAL);
			assert_int_equal(sits_cipher_seal(c, iv, 12, NULL, 0, buf + 1, buf, 16, tag, 16), -EINVAL);
			assert_int_equal(sits_cipher_open(c, iv, 12, NULL, 0, buf, buf + 1, 16, tag, 16), -EINVAL);
		} else {
			assert_int_equal(sits_cipher_encrypt(c, iv, n + 1, buf, buf, 16), -EINVAL);
			assert_int_equal(sits_cipher_encrypt(c, iv, n ? n - 1 : 16, buf, buf, 16), -EINVAL);
			assert_int_equal(sits_cipher_encrypt(c, iv, n, buf + 15, buf, 16), -EINVAL);
			assert_int_equal(sits_cipher_decrypt(c, iv, n, buf, buf + 15, 16), -EINVAL);
			assert_int_equal(sits_cipher_encrypt(c, iv, n, buf + 16, buf, 16), 0);
			assert_int_equal(sits_cipher_seal(c, iv, 12, NULL, 0, buf, buf, 16, tag, 16), -EINVAL);
			assert_int_equal(sits_cipher_open(c, iv, 12, NULL, 0, buf, buf, 16, tag, 16), -EINVAL);
		}
		if (types[i] <= SITS_CIPHER_SM4_CBC)
			assert_int_equal(sits_cipher_encrypt(c, iv, n, buf, buf, 17), -EINVAL);
		if (xts(types[i]))
			assert_int_equal(sits_cipher_encrypt(c, iv, n, buf, buf, 15), -EINVAL);
		else if (types[i] != SITS_CIPHER_SM4_GCM)
			assert_int_equal(sits_cipher_encrypt(c, iv, n, NULL, NULL, 0), 0);
		sits_cipher_destroy(c);
	}
}

/* No such message can be in memory; that is found before any of it is looked at, or written. */
static void test_messages_too_long(void **state)
{
	static const size_t text = ((size_t)1 << 36) - 31, aad = (size_t)1 << 61, ivs[] = { 12, 13 }, tags[] = { 16, 12 };
	uint8_t key[16] = { 1 }, iv[16] = { 0 }, tag[16] = { 0 }, buf[16], same[16];
	struct sits_cipher *c;
	size_t i, t;

	memset(buf, 0xa5, sizeof(buf));
	memcpy(same, buf, sizeof(buf));
	assert_int_equal(sits_cipher_create(SITS_CIPHER_SM4_GCM, key, 16, SITS_CRYPTO_MAY_SWAP, &c), 0);
	for (i = 0; i < 2; i++) {
		for (t = 0; t < 2; t++) {
			assert_int_equal(sits_cipher_seal(c, iv, ivs[i], NULL, 0, buf, buf, text, tag, tags[t]), -EMSGSIZE);
			assert_int_equal(sits_cipher_open(c, iv, ivs[i], NULL, 0, buf, buf, text, tag, tags[t]), -EMSGSIZE);
			assert_int_equal(sits_cipher_seal(c, iv, ivs[i], buf, aad, buf, buf, 16, tag, tags[t]), -EMSGSIZE);
			assert_int_equal(sits_cipher_open(c, iv, ivs[i], buf, aad, buf, buf, 16, tag, tags[t]), -EMSGSIZE);
			assert_memory_equal(buf, same, sizeof(buf));
		}
	}
	assert_int_equal(sits_cipher_start(c, SITS_CIPHER_DECRYPT, iv, 12), 0);
	assert_int_equal(sits_cipher_aad(c, buf, aad), -EMSGSIZE);
	assert_int_equal(sits_cipher_aad(c, buf, 16), 0);
	assert_int_equal(sits_cipher_aad(c, buf, aad - 16), -EMSGSIZE);
	assert_int_equal(sits_cipher_update(c, buf, buf, text), -EMSGSIZE);
	assert_memory_equal(buf, same, sizeof(buf));
	sits_cipher_destroy(c);
}

static void test_wrong_calls_on_pieces(void **state)
{
	uint8_t key[32] = { 1 }, iv[16] = { 0 }, buf[64] = { 0 }, tag[16];
	size_t i;

	for (i = 0; i < NR(types); i++) {
		struct sits_cipher *c = make(types[i], key);
		bool gcm = types[i] == SITS_CIPHER_SM4_GCM;
		size_t n = iv_len(types[i]);

		assert_int_equal(sits_cipher_update(c, buf, buf, 16), -EINVAL);
		assert_int_equal(sits_cipher_aad(c, buf, 16), -EINVAL);
		assert_int_equal(sits_cipher_finish(c, NULL, 0), -EINVAL);
		assert_int_equal(sits_cipher_start(c, 2, iv, n), -EINVAL);
		assert_int_equal(sits_cipher_start(c, SITS_CIPHER_ENCRYPT, iv, gcm ? 0 : n + 1), -EINVAL);
		assert_int_equal(sits_cipher_update(c, buf, buf, 16), -EINVAL);
		assert_int_equal(sits_cipher_start(c, SITS_CIPHER_ENCRYPT, iv, n), 0);
		assert_int_equal(sits_cipher_aad(c, buf, 16), gcm ? 0 : -EINVAL);
		assert_int_equal(sits_cipher_update(c, buf + 1, buf, 16), -EINVAL);
		if (types[i] <= SITS_CIPHER_SM4_CBC)
			assert_int_equal(sits_cipher_update(c, buf, buf, 15), -EINVAL);
		if (xts(types[i])) {
			assert_int_equal(sits_cipher_update(c, buf, buf, 15), -EINVAL);
			assert_int_equal(sits_cipher_update(c, buf, buf, 17), 0);
			assert_int_equal(sits_cipher_update(c, buf, buf, 16), -EINVAL);
		} else {
			assert_int_equal(sits_cipher_update(c, buf, buf, 16), 0);
			assert_int_equal(sits_cipher_aad(c, buf, 16), -EINVAL);
			assert_int_equal(sits_cipher_update(c, NULL, NULL, 0), 0);
		}
		assert_int_equal(sits_cipher_finish(c, tag, gcm ? 3 : 16), -EINVAL);
		assert_int_equal(sits_cipher_finish(c, tag, gcm ? 17 : 1), -EINVAL);
		assert_int_equal(sits_cipher_finish(c, tag, gcm ? 16 : 0), 0);
		assert_int_equal(sits_cipher_update(c, buf, buf, 16), -EINVAL);
		sits_cipher_destroy(c);
	}
}

static void test_variant_has_a_name(void **state)
{
	uint8_t key[32] = { 1 };
	size_t i;

	for (i = 0; i < NR(types); i++) {
		struct sits_cipher *c = make(types[i], key);

		assert_string_equal(sits_cipher_variant(c), sits_cipher_variant(NULL));
		sits_cipher_destroy(c);
	}
}

/* GB/T 32905-2016, A.1 and A.2. */
static void test_sm3(void **state)
{
	uint8_t want[32], out[32], data[64];
	struct sits_hash *h, *copy;
	int i;

	from_hex("66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0", want);
	assert_int_equal(sits_hash_once(SITS_HASH_SM3, "abc", 3, out, 32), 0);
	assert_memory_equal(out, want, 32);
	assert_int_equal(sits_hash_once(SITS_HASH_SM3, "abc", 3, out, 31), -EINVAL);
	assert_int_equal(sits_hash_once(2, "abc", 3, out, 32), -EINVAL);
	for (i = 0; i < 64; i++)
		data[i] = "abcd"[i % 4];
	from_hex("debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732", want);
	assert_int_equal(sits_hash_create(SITS_HASH_SM3, 0, &h), 0);
	/* Twice: the end of one is the beginning of the next. */
	for (i = 0; i < 2; i++) {
		assert_int_equal(sits_hash_update(h, data, 30), 0);
		assert_int_equal(sits_hash_update(h, NULL, 0), 0);
		assert_int_equal(sits_hash_dup(h, &copy), 0);
		assert_int_equal(sits_hash_update(copy, "xy", 2), 0);
		assert_int_equal(sits_hash_update(h, data + 30, 34), 0);
		assert_int_equal(sits_hash_finish(h, out, 20), -EINVAL);
		assert_int_equal(sits_hash_finish(h, out, 32), 0);
		assert_memory_equal(out, want, 32);
		assert_int_equal(sits_hash_finish(copy, out, 32), 0);
		assert_memory_not_equal(out, want, 32);
		sits_hash_destroy(copy);
	}
	sits_hash_destroy(h);
}

/* A child finds no key, says so, and may still destroy. */
static void test_forked_child_has_no_key(void **state)
{
	uint8_t key[16] = { 1 }, buf[16] = { 0 };
	struct sits_cipher *c = make(SITS_CIPHER_SM4_ECB, key), *other;
	struct sits_hash *h, *h2;
	int status;
	pid_t pid;

	assert_int_equal(sits_hash_create(SITS_HASH_SM3, 0, &h), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		bool ok = sits_cipher_encrypt(c, NULL, 0, buf, buf, 16) == -ESTALE &&
			  sits_cipher_seal(c, NULL, 0, NULL, 0, buf, buf, 16, buf, 16) == -ESTALE &&
			  sits_cipher_start(c, 1, NULL, 0) == -ESTALE && sits_cipher_update(c, buf, buf, 16) == -ESTALE &&
			  sits_cipher_aad(c, buf, 16) == -ESTALE && sits_cipher_finish(c, NULL, 0) == -ESTALE &&
			  sits_cipher_dup(c, &other) == -ESTALE && !strcmp(sits_cipher_variant(c), "stale") &&
			  sits_hash_update(h, buf, 16) == -ESTALE && sits_hash_finish(h, buf, 32) == -ESTALE &&
			  sits_hash_dup(h, &h2) == -ESTALE;

		sits_cipher_destroy(c);
		sits_hash_destroy(h);
		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(sits_cipher_encrypt(c, NULL, 0, buf, buf, 16), 0);
	sits_cipher_destroy(c);
	sits_hash_destroy(h);
}

/* Sum of a field over the mappings of /proc/self/smaps that hold @p. */
static bool page_is(const void *p, const char *flag)
{
	unsigned long from, to;
	char line[512];
	bool inside = false, found = false;
	FILE *f = fopen("/proc/self/smaps", "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (unsigned long)p >= from && (unsigned long)p < to;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, flag);
	}
	fclose(f);
	return found;
}

static void test_memory_is_locked_and_not_dumped(void **state)
{
	uint8_t key[16] = { 1 };
	struct sits_cipher *c = make(SITS_CIPHER_SM4_GCM, key);
	struct sits_hash *h;

	assert_int_equal(sits_hash_create(SITS_HASH_SM3, 0, &h), 0);
	assert_true(page_is(c, " lo"));
	assert_true(page_is(c, " dd"));
	assert_true(page_is(h, " lo"));
	assert_true(page_is(h, " dd"));
	sits_cipher_destroy(c);
	sits_hash_destroy(h);
}

/* In a child without the right to lock: refused, unless swapping is said to be all right. */
static void test_without_room_to_lock(void **state)
{
	struct rlimit none = { 0, 0 };
	uint8_t key[16] = { 1 };
	struct sits_cipher *c;
	int status, ret;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		if (setrlimit(RLIMIT_MEMLOCK, &none) || (!geteuid() && setuid(65534)))
			_exit(9);
		ret = sits_cipher_create(SITS_CIPHER_SM4_GCM, key, 16, 0, &c);
		if (ret != -EPERM)
			_exit(1);
		if (sits_cipher_create(SITS_CIPHER_SM4_GCM, key, 16, SITS_CRYPTO_MAY_SWAP, &c))
			_exit(2);
		sits_cipher_destroy(c);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_answers),
		cmocka_unit_test(test_gcm_of_rfc_8998),
		cmocka_unit_test(test_two_forms_of_xts),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_gcm_lengths_and_forgeries),
		cmocka_unit_test(test_wrong_creation),
		cmocka_unit_test(test_wrong_calls_on_whole_messages),
		cmocka_unit_test(test_messages_too_long),
		cmocka_unit_test(test_wrong_calls_on_pieces),
		cmocka_unit_test(test_variant_has_a_name),
		cmocka_unit_test(test_sm3),
		cmocka_unit_test(test_forked_child_has_no_key),
		cmocka_unit_test(test_memory_is_locked_and_not_dumped),
		cmocka_unit_test(test_without_room_to_lock),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	seed = (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
