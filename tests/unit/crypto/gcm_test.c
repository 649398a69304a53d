// SPDX-License-Identifier: MIT
/* gcm_test.c - SM4-GCM: published vectors, OpenSSL with a bitwise GHASH, lengths, alignments, refusals. */
#include <setjmp.h>
#include <stdarg.h>

#include "crypto/sm4_impl.h"
#include "tests/unit/crypto/reference.h"

#include <cmocka.h>

struct vector {
	const char *name, *key, *iv, *aad, *msg, *ct, *tag;
	bool valid;
};

static const struct vector vectors[] = {
	{ "RFC 8998, A.1",
	  "0123456789abcdeffedcba9876543210", "00001234567800000000abcd", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
	  "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
	  "eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa",
	  "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
	  "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d",
	  "83de3541e4c2b58177e065a9bf7b62ec", true },
#include "tests/vectors/crypto/wycheproof_sm4_gcm.inc"
};

#define MAX 4400

static void check(const struct vector *v)
{
	uint8_t key[16], iv[12], aad[1100], msg[1100], ct[1100], tag[16], out[1100], got[16];
	size_t aad_len = test_unhex(aad, sizeof(aad), v->aad), len = test_unhex(msg, sizeof(msg), v->msg);
	struct sits_gcm_key k;
	int ret;

	assert_int_equal(test_unhex(key, 16, v->key), 16);
	assert_int_equal(test_unhex(iv, 12, v->iv), 12);
	assert_int_equal(test_unhex(ct, sizeof(ct), v->ct), len);
	assert_int_equal(test_unhex(tag, 16, v->tag), 16);
	sits_gcm_set_key(&k, key);
	ret = sits_gcm_decrypt(&k, iv, aad, aad_len, out, ct, len, tag);
	sits_gcm_encrypt(&k, iv, aad, aad_len, ct, msg, len, got);
	if (ret != (v->valid ? 0 : -EBADMSG) || !memcmp(got, tag, 16) != v->valid)
		fail_msg("%s: wrong answer", v->name);
	if (!v->valid)
		memset(msg, 0, len);	/* wiped */
	if (memcmp(out, msg, len))
		fail_msg("%s: wrong plaintext", v->name);
	if (v->valid && sits_gcm_decrypt(&k, iv, aad, aad_len, out, ct, len, tag))
		fail_msg("%s: does not open what was sealed", v->name);
}

static void test_vectors(void **state)
{
	size_t n = sizeof(vectors) / sizeof(vectors[0]);

	for (size_t i = 0; i < n; i++)
		check(&vectors[i]);
	assert_true(n > 50);
}

/* Seal and open src[len] at the given offsets and compare with the reference. */
static void compare(size_t len, size_t aad_len, size_t src_off, size_t dst_off, bool in_place)
{
	static uint8_t src[MAX + 16], dst[MAX + 48], want[MAX], aad[512];
	uint8_t key[16], iv[12], tag[16], want_tag[16];
	uint8_t *s = src + src_off, *d = in_place ? s : dst + 16 + dst_off;
	struct sits_gcm_key k;

	test_fill(key, 16);
	test_fill(iv, 12);
	test_fill(aad, aad_len);
	test_fill(src, sizeof(src));
	memset(dst, 0xa5, sizeof(dst));
	ref_gcm(key, iv, aad, aad_len, want, s, len, want_tag);
	sits_gcm_set_key(&k, key);
	sits_gcm_encrypt(&k, iv, aad, aad_len, d, s, len, tag);
	assert_memory_equal(d, want, len);
	assert_memory_equal(tag, want_tag, 16);
	if (!in_place)
		assert_true(d[-1] == 0xa5 && d[len] == 0xa5);
	assert_int_equal(sits_gcm_decrypt(&k, iv, aad, aad_len, d, d, len, tag), 0);
	if (in_place) {
		sits_gcm_encrypt(&k, iv, aad, aad_len, d, d, len, tag);
		assert_memory_equal(d, want, len);
	} else {
		assert_memory_equal(d, s, len);
		assert_true(d[-1] == 0xa5 && d[len] == 0xa5);
	}
}

static void test_lengths(void **state)
{
	for (size_t len = 0; len <= 200; len++)
		compare(len, test_random() % 80, test_random() % 16, test_random() % 16, len & 1);
	for (size_t edge = 256; edge <= 4096; edge *= 2) {
		for (size_t len = edge - 17; len <= edge + 17; len += 1 + (edge > 512) * 4)
			compare(len, test_random() % 200, test_random() % 16, test_random() % 16, len & 1);
	}
	for (size_t aad_len = 0; aad_len <= 140; aad_len++)
		compare(test_random() % 70, aad_len, 0, 1, false);
}

static void test_refuses_each_bit(void **state)
{
	enum { LEN = 100, AAD = 20 };
	uint8_t buf[LEN + AAD + 12 + 16], copy[sizeof(buf)], out[LEN], key[16];
	struct sits_gcm_key k;

	test_fill(key, 16);
	test_fill(buf, sizeof(buf));	/* ciphertext, AAD, nonce, tag */
	sits_gcm_set_key(&k, key);
	sits_gcm_encrypt(&k, buf + LEN + AAD, buf + LEN, AAD, buf, buf, LEN, buf + LEN + AAD + 12);
	memcpy(copy, buf, sizeof(buf));
	for (size_t bit = 0; bit < 8 * sizeof(buf); bit++) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		memset(out, 0xa5, LEN);
		assert_int_equal(sits_gcm_decrypt(&k, buf + LEN + AAD, buf + LEN, AAD, out, buf, LEN,
						  buf + LEN + AAD + 12), -EBADMSG);
		for (size_t i = 0; i < LEN; i++)
			assert_int_equal(out[i], 0);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_memory_equal(buf, copy, sizeof(buf));
	assert_int_equal(sits_gcm_decrypt(&k, buf + LEN + AAD, buf + LEN, AAD, out, buf, LEN, buf + LEN + AAD + 12), 0);
}

static void test_refuses_shifted_boundary(void **state)
{
	uint8_t key[16], iv[12], text[32], tag[16], out[32];
	struct sits_gcm_key k;

	test_fill(key, 16);
	test_fill(iv, 12);
	test_fill(text, 32);
	sits_gcm_set_key(&k, key);
	sits_gcm_encrypt(&k, iv, text, 16, text + 16, text + 16, 16, tag);
	assert_int_equal(sits_gcm_decrypt(&k, iv, text, 0, out, text, 32, tag), -EBADMSG);
	assert_int_equal(sits_gcm_decrypt(&k, iv, text, 32, out, text, 0, tag), -EBADMSG);
	assert_int_equal(sits_gcm_decrypt(&k, iv, text, 16, out, text + 16, 15, tag), -EBADMSG);
	assert_int_equal(sits_gcm_decrypt(&k, iv, text, 16, out, text + 16, 16, tag), 0);
}

/* All ones is where the most products meet in one place of an integer multiplication. */
static void test_ghash_extremes(void **state)
{
	static const uint8_t bytes[] = { 0x00, 0xff, 0x11, 0xee, 0x0f, 0xf0, 0x80, 0x01 };

	for (size_t a = 0; a < sizeof(bytes); a++) {
		for (size_t b = 0; b < sizeof(bytes); b++) {
			uint8_t h[16], text[1600], got[16], want[16] = { 0 };
			struct sits_ghash_key key = { .h = { 0 } };
			unsigned int nr;
			const struct sits_sm4_core *const *cores = sits_sm4_cores(&nr);

			memset(h, bytes[a], 16);
			memset(text, bytes[b], sizeof(text));
			memset(key.h, bytes[a], 16);
			ref_ghash(want, h, text, sizeof(text));
			for (unsigned int c = 0; c < nr; c++) {
				memset(got, 0, 16);
				cores[c]->ghash_key(&key);
				cores[c]->ghash(&key, got, text, sizeof(text) / 16);
				assert_memory_equal(got, want, 16);
				memset(got, 0, 16);	/* one by one */
				for (size_t i = 0; i < sizeof(text); i += 16)
					cores[c]->ghash(&key, got, text + i, 1);
				assert_memory_equal(got, want, 16);
			}
		}
	}
}

static void test_counter_wraps_at_32_bits(void **state)
{
	uint8_t key[16], ctr[16], text[100 * 16] = { 0 }, block[16];
	struct sits_sm4_key k;

	test_fill(key, 16);
	test_fill(ctr, 16);
	memset(ctr + 12, 0xff, 4);
	ctr[15] = 0xff - 39;
	sits_sm4_expand_key(&k, key);
	memcpy(block, ctr, 16);
	k.core->ctr32(&k.enc, ctr, text, text, sizeof(text) / 16);
	for (uint32_t i = 0, n = 0xffffffffu - 39; i < 100; i++, n++) {
		uint8_t want[16];

		for (int j = 0; j < 4; j++)
			block[12 + j] = (uint8_t)(n >> (24 - 8 * j));
		ref_ecb(1, key, want, block, 16);
		assert_memory_equal(text + 16 * i, want, 16);
	}
	assert_memory_equal(ctr, block, 12);
	assert_memory_equal(ctr + 12, "\0\0\0\x3c", 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_refuses_each_bit),
		cmocka_unit_test(test_refuses_shifted_boundary),
		cmocka_unit_test(test_ghash_extremes),
		cmocka_unit_test(test_counter_wraps_at_32_bits),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	return cmocka_run_group_tests_name("gcm", tests, NULL, NULL);
}
