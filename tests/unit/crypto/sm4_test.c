// SPDX-License-Identifier: MIT
/* sm4_test.c - SM4, its S-box circuit, its cores and modes: published vectors, OpenSSL, lengths, alignments. */
#include <setjmp.h>
#include <stdarg.h>

#include "crypto/sm4_impl.h"
#include "tests/unit/crypto/reference.h"

#include <cmocka.h>

typedef u32 word;

#include "crypto/sm4_sbox.h"

/* GB/T 32907-2016, table 1. */
static const uint8_t sbox[256] = {
	0xd6, 0x90, 0xe9, 0xfe, 0xcc, 0xe1, 0x3d, 0xb7, 0x16, 0xb6, 0x14, 0xc2, 0x28, 0xfb, 0x2c, 0x05,
	0x2b, 0x67, 0x9a, 0x76, 0x2a, 0xbe, 0x04, 0xc3, 0xaa, 0x44, 0x13, 0x26, 0x49, 0x86, 0x06, 0x99,
	0x9c, 0x42, 0x50, 0xf4, 0x91, 0xef, 0x98, 0x7a, 0x33, 0x54, 0x0b, 0x43, 0xed, 0xcf, 0xac, 0x62,
	0xe4, 0xb3, 0x1c, 0xa9, 0xc9, 0x08, 0xe8, 0x95, 0x80, 0xdf, 0x94, 0xfa, 0x75, 0x8f, 0x3f, 0xa6,
	0x47, 0x07, 0xa7, 0xfc, 0xf3, 0x73, 0x17, 0xba, 0x83, 0x59, 0x3c, 0x19, 0xe6, 0x85, 0x4f, 0xa8,
	0x68, 0x6b, 0x81, 0xb2, 0x71, 0x64, 0xda, 0x8b, 0xf8, 0xeb, 0x0f, 0x4b, 0x70, 0x56, 0x9d, 0x35,
	0x1e, 0x24, 0x0e, 0x5e, 0x63, 0x58, 0xd1, 0xa2, 0x25, 0x22, 0x7c, 0x3b, 0x01, 0x21, 0x78, 0x87,
	0xd4, 0x00, 0x46, 0x57, 0x9f, 0xd3, 0x27, 0x52, 0x4c, 0x36, 0x02, 0xe7, 0xa0, 0xc4, 0xc8, 0x9e,
	0xea, 0xbf, 0x8a, 0xd2, 0x40, 0xc7, 0x38, 0xb5, 0xa3, 0xf7, 0xf2, 0xce, 0xf9, 0x61, 0x15, 0xa1,
	0xe0, 0xae, 0x5d, 0xa4, 0x9b, 0x34, 0x1a, 0x55, 0xad, 0x93, 0x32, 0x30, 0xf5, 0x8c, 0xb1, 0xe3,
	0x1d, 0xf6, 0xe2, 0x2e, 0x82, 0x66, 0xca, 0x60, 0xc0, 0x29, 0x23, 0xab, 0x0d, 0x53, 0x4e, 0x6f,
	0xd5, 0xdb, 0x37, 0x45, 0xde, 0xfd, 0x8e, 0x2f, 0x03, 0xff, 0x6a, 0x72, 0x6d, 0x6c, 0x5b, 0x51,
	0x8d, 0x1b, 0xaf, 0x92, 0xbb, 0xdd, 0xbc, 0x7f, 0x11, 0xd9, 0x5c, 0x41, 0x1f, 0x10, 0x5a, 0xd8,
	0x0a, 0xc1, 0x31, 0x88, 0xa5, 0xcd, 0x7b, 0xbd, 0x2d, 0x74, 0xd0, 0x12, 0xb8, 0xe5, 0xb4, 0xb0,
	0x89, 0x69, 0x97, 0x4a, 0x0c, 0x96, 0x77, 0x7e, 0x65, 0xb9, 0xf1, 0x09, 0xc5, 0x6e, 0xc6, 0x84,
	0x18, 0xf0, 0x7d, 0xec, 0x3a, 0xdc, 0x4d, 0x20, 0x79, 0xee, 0x5f, 0x3e, 0xd7, 0xcb, 0x39, 0x48,
};

static void test_sbox_circuit(void **state)
{
	for (unsigned int x = 0; x < 256; x += 32) {	/* 32 inputs at a time, one a bit */
		word plane[8] = { 0 };

		for (unsigned int k = 0; k < 32; k++) {
			for (int i = 0; i < 8; i++)
				plane[i] |= (((x + k) ^ SITS_SM4_SBOX_IN) >> i & 1) << k;
		}
		sm4_sbox(plane);
		for (unsigned int k = 0; k < 32; k++) {
			unsigned int y = 0;

			for (int i = 0; i < 8; i++)
				y |= (plane[i] >> k & 1) << i;
			assert_int_equal(y ^ SITS_SM4_SBOX_OUT, sbox[x + k]);
		}
	}
}

/* GB/T 32907-2016, A.1 and A.2. */
static void test_standard(void **state)
{
	uint8_t key[16], text[16], want[16];
	struct sits_sm4_key k;

	test_unhex(key, 16, "0123456789abcdeffedcba9876543210");
	test_unhex(want, 16, "681edf34d206965e86b3e94f536e4246");
	sits_sm4_expand_key(&k, key);
	assert_int_equal(k.enc.rk[0], 0xf12186f9);
	assert_int_equal(k.enc.rk[31], 0x9124a012);
	assert_int_equal(k.dec.rk[0], 0x9124a012);
	sits_sm4_encrypt_block(&k, text, key);
	assert_memory_equal(text, want, 16);
	for (int i = 1; i < 1000000; i++)
		sits_sm4_encrypt_block(&k, text, text);
	test_unhex(want, 16, "595298c7c6fd271f0402f804c33d3f66");
	assert_memory_equal(text, want, 16);
	for (int i = 0; i < 1000; i++)
		sits_sm4_encrypt_block(&k, text, text);
	for (int i = 0; i < 1000; i++)
		sits_sm4_decrypt_block(&k, text, text);
	assert_memory_equal(text, want, 16);
}

static void test_published_modes(void **state)
{
	static const struct {
		const char *source, *key, *iv, *plain, *cipher;	/* no iv: ECB */
	} vectors[] = {
		{ "draft-ribose-cfrg-sm4-10, A.2.1.1", "0123456789abcdeffedcba9876543210", NULL,
		  "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffaaaaaaaabbbbbbbb",
		  "5ec8143de509cff7b5179f8f474b86192f1d305a7fb17df985f81c8482192304" },
		{ "draft-ribose-cfrg-sm4-10, A.2.1.2", "fedcba98765432100123456789abcdef", NULL,
		  "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffaaaaaaaabbbbbbbb",
		  "c5876897e4a59bbba72a10c83872245b12dd90bc2d200692b529a4155ac9e600" },
		{ "draft-ribose-cfrg-sm4-10, A.2.5.1", "0123456789abcdeffedcba9876543210",
		  "000102030405060708090a0b0c0d0e0f",
		  "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
		  "eeeeeeeeeeeeeeeeffffffffffffffffaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb",
		  "ac3236cb970cc20791364c395a1342d1a3cbc1878c6f30cd074cce385cdd70c7"
		  "f234bc0e24c11980fd1286310ce37b926e02fcd0faa0baf38b2933851d824514" },
		{ "draft-ribose-cfrg-sm4-10, A.2.5.2", "fedcba98765432100123456789abcdef",
		  "000102030405060708090a0b0c0d0e0f",
		  "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
		  "eeeeeeeeeeeeeeeeffffffffffffffffaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb",
		  "5dcccd25b95ab07417a08512ee160e2f8f661521cbbab44cc87138445bc29e5c"
		  "0ae0297205d62704173b21239b887f6c8cb5b800917a2488284bde9e16ea2906" },
	};

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint8_t key[16], iv[16], plain[64], cipher[64], out[64];
		size_t len = test_unhex(plain, 64, vectors[i].plain);
		struct sits_sm4_key k;

		test_unhex(key, 16, vectors[i].key);
		assert_int_equal(test_unhex(cipher, 64, vectors[i].cipher), len);
		sits_sm4_expand_key(&k, key);
		if (vectors[i].iv) {
			test_unhex(iv, 16, vectors[i].iv);
			sits_sm4_ctr(&k, iv, out, plain, len);
			assert_memory_equal(out, cipher, len);
		} else {
			sits_sm4_ecb_encrypt(&k, out, plain, len / 16);
			assert_memory_equal(out, cipher, len);
			sits_sm4_ecb_decrypt(&k, out, cipher, len / 16);
			assert_memory_equal(out, plain, len);
		}
	}
}

typedef void core_fn(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks);

#define NR_MAX 140

static void check_core(core_fn *core, size_t nr, size_t src_off, size_t dst_off, bool in_place)
{
	static uint8_t src[16 * NR_MAX + 16], dst[16 * NR_MAX + 48], want[16 * NR_MAX];
	uint8_t key[16], *s = src + src_off, *d = in_place ? s : dst + 16 + dst_off;
	struct sits_sm4_key k;

	test_fill(key, 16);
	test_fill(src, sizeof(src));
	memset(dst, 0xa5, sizeof(dst));
	sits_sm4_expand_key(&k, key);
	if (nr)
		ref_ecb(1, key, want, s, 16 * nr);
	core(k.enc.rk, d, s, nr);
	assert_memory_equal(d, want, 16 * nr);
	if (nr)
		ref_ecb(0, key, want, want, 16 * nr);
	core(k.dec.rk, d, d, nr);
	assert_memory_equal(d, want, 16 * nr);
	if (!in_place)
		assert_true(d[-1] == 0xa5 && d[16 * nr] == 0xa5);
}

static void test_cores(void **state)
{
	static core_fn *const cores[] = { sits_sm4_crypt_bs64, sits_sm4_crypt_bs128 };

	for (size_t c = 0; c < sizeof(cores) / sizeof(cores[0]); c++) {
		for (size_t nr = 0; nr <= NR_MAX; nr++)
			check_core(cores[c], nr, test_random() % 16, test_random() % 16, nr & 1);
	}
}

static void test_ecb_decrypt(void **state)
{
	for (size_t nr = 0; nr <= 100; nr += 1 + test_random() % 5) {
		uint8_t key[16], plain[1600], cipher[1600], out[1600];
		struct sits_sm4_key k;

		test_fill(key, 16);
		test_fill(plain, sizeof(plain));
		sits_sm4_expand_key(&k, key);
		ref_ecb(1, key, cipher, plain, sizeof(plain));
		sits_sm4_ecb_decrypt(&k, out, cipher, nr);
		assert_memory_equal(out, plain, 16 * nr);
	}
}

/* The counter after len bytes, by adding one at a time. */
static void count(uint8_t ctr[16], size_t len)
{
	for (size_t n = (len + 15) / 16; n; n--) {
		for (int i = 15; i >= 0 && !++ctr[i]; i--)
			;
	}
}

static void check_ctr(const uint8_t iv[16], size_t len, size_t off, bool in_place)
{
	static uint8_t src[2200], dst[2200], want[2200];
	uint8_t key[16], ctr[16], ctr_want[16], *s = src + off, *d = in_place ? s : dst + 16 - off;
	struct sits_sm4_key k;

	test_fill(key, 16);
	test_fill(src, sizeof(src));
	memset(dst, 0xa5, sizeof(dst));
	memcpy(ctr, iv, 16);
	memcpy(ctr_want, iv, 16);
	count(ctr_want, len);
	if (len)
		ref_ctr(key, iv, want, s, len);
	sits_sm4_expand_key(&k, key);
	sits_sm4_ctr(&k, ctr, d, s, len);
	assert_memory_equal(d, want, len);
	assert_memory_equal(ctr, ctr_want, 16);
	if (!in_place)
		assert_int_equal(d[len], 0xa5);
}

static void test_ctr_lengths(void **state)
{
	uint8_t iv[16];

	for (size_t len = 0; len <= 1100; len += len < 600 ? 1 : 7) {
		test_fill(iv, 16);
		check_ctr(iv, len, test_random() % 16, len & 1);
	}
}

/* Carries out of the last byte, word and half, and all round, at each block of the longest batch. */
static void test_ctr_carries(void **state)
{
	static const int carry_bytes[] = { 1, 2, 4, 5, 8, 12, 16 };
	uint8_t iv[16];

	for (size_t c = 0; c < sizeof(carry_bytes) / sizeof(carry_bytes[0]); c++) {
		for (int before = 0; before <= 66; before++) {
			test_fill(iv, 16);
			memset(iv + 16 - carry_bytes[c], 0xff, carry_bytes[c]);
			iv[15] = (uint8_t)(0xff - before);
			check_ctr(iv, 1 + test_random() % 1100, 0, before & 1);
		}
	}
}

/* A stream in pieces of whole blocks is the stream. */
static void test_ctr_continues(void **state)
{
	uint8_t key[16], iv[16], ctr[16], src[2048], dst[2048], want[2048];
	struct sits_sm4_key k;
	size_t at = 0, n;

	test_fill(key, 16);
	test_fill(iv, 16);
	test_fill(src, sizeof(src));
	memcpy(ctr, iv, 16);
	ref_ctr(key, iv, want, src, sizeof(src));
	sits_sm4_expand_key(&k, key);
	for (; at < sizeof(src); at += n) {
		n = 16 * (1 + test_random() % 40);
		n = n < sizeof(src) - at ? n : sizeof(src) - at;
		sits_sm4_ctr(&k, ctr, dst + at, src + at, n);
	}
	assert_memory_equal(dst, want, sizeof(want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sbox_circuit),
		cmocka_unit_test(test_standard),
		cmocka_unit_test(test_published_modes),
		cmocka_unit_test(test_cores),
		cmocka_unit_test(test_ecb_decrypt),
		cmocka_unit_test(test_ctr_lengths),
		cmocka_unit_test(test_ctr_carries),
		cmocka_unit_test(test_ctr_continues),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	return cmocka_run_group_tests_name("sm4", tests, NULL, NULL);
}
