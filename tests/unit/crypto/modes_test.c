// SPDX-License-Identifier: MIT
/*
 * modes_test.c - the modes of SM4 as callers use them, on every core of this machine: messages in pieces, ends within a block,
 * refusals, bounds; keys in all their forms; the choice of a core and its self-test.
 */
#include <setjmp.h>
#include <stdarg.h>

#include "crypto/sm4_impl.h"
#include "tests/unit/crypto/reference.h"

#include <cmocka.h>

#define MAX 3000

static const struct sits_sm4_core *const *cores;
static unsigned int nr_cores;

static uint8_t src[MAX + 16], dst[MAX + 16], want[MAX + 16];

/* Some bytes of what is left, often few, often to the end of a block or beside it. */
static size_t piece(size_t left)
{
	static const size_t favourites[] = { 0, 1, 15, 16, 17, 31, 32, 33, 1024, 1023 };
	size_t n = test_random() % 3 ? favourites[test_random() % 10] : test_random() % 700;

	return n < left ? n : left;
}

/* GF2P8AFFINEQB of one byte, as Intel's manual defines it. */
static uint8_t affine_byte(uint64_t matrix, uint8_t x, uint8_t constant)
{
	uint8_t y = 0;

	for (int i = 0; i < 8; i++)
		y |= (uint8_t)(__builtin_parity((uint8_t)(matrix >> 8 * (7 - i)) & x) << i);
	return y ^ constant;
}

static void test_key_forms(void **state)
{
	struct sits_sm4_key k, other;
	uint8_t raw[16];

	/* Made by whatever way a core has, the same. */
	for (int i = 0; i < 1000; i++) {
		test_fill(raw, 16);
		sits_sm4_expand_key_on(&sits_sm4_portable, &k, raw);
		sits_sm4_expand_key_on(cores[test_random() % nr_cores], &other, raw);
		assert_memory_equal(&k.enc, &other.enc, sizeof(k.enc));
		assert_memory_equal(&k.dec, &other.dec, sizeof(k.dec));
	}
	for (int r = 0; r < 32; r++) {
		assert_int_equal(k.dec.rk[31 - r], k.enc.rk[r]);
		for (int j = 0; j < 4; j++) {
			uint32_t byte = affine_byte(0x4c287db91a22505d, (uint8_t)(k.enc.rk[r] >> (24 - 8 * j)), 0x3e);

			assert_int_equal(k.enc.affine[r][j], byte * 0x01010101u);
			assert_int_equal(k.dec.affine[31 - r][j], byte * 0x01010101u);
		}
	}
}

static void test_ecb_and_cbc(void **state)
{
	for (unsigned int c = 0; c < nr_cores; c++) {
		for (size_t nr = 0; nr < 150; nr += 1 + test_random() % 9) {
			uint8_t key[16], iv[16], chain[16];
			struct sits_sm4_key k;
			size_t at, n;

			test_fill(key, 16);
			test_fill(iv, 16);
			test_fill(src, 16 * nr);
			sits_sm4_expand_key_on(cores[c], &k, key);
			if (nr)
				ref_ecb(1, key, want, src, 16 * nr);
			sits_sm4_ecb_encrypt(&k, dst, src, nr);
			assert_memory_equal(dst, want, 16 * nr);
			sits_sm4_ecb_decrypt(&k, dst, dst, nr);
			assert_memory_equal(dst, src, 16 * nr);

			if (nr)
				ref_cipher(EVP_sm4_cbc(), 1, key, iv, want, src, 16 * nr);
			memcpy(chain, iv, 16);
			for (at = 0; at < nr; at += n) {
				n = 1 + test_random() % (nr - at);
				sits_sm4_cbc_encrypt(&k, chain, dst + 16 * at, src + 16 * at, n);
				assert_memory_equal(chain, dst + 16 * (at + n - 1), 16);
			}
			assert_memory_equal(dst, want, 16 * nr);
			memcpy(chain, iv, 16);
			for (at = 0; at < nr; at += n) {
				n = 1 + test_random() % (nr - at);
				sits_sm4_cbc_decrypt(&k, chain, dst + 16 * at, dst + 16 * at, n);
				assert_memory_equal(chain, want + 16 * (at + n - 1), 16);
			}
			assert_memory_equal(dst, src, 16 * nr);
			sits_sm4_cbc_decrypt(&k, chain, dst, src, 0);
			sits_sm4_cbc_encrypt(&k, chain, dst, src, 0);
		}
	}
}

static void test_stream_in_pieces(void **state)
{
	for (unsigned int round = 0; round < 40 * nr_cores; round++) {
		size_t len = test_random() % MAX, at, n;
		uint8_t key[16], iv[16];
		struct sits_sm4_stream s, zero = { 0 };
		struct sits_sm4_key k;

		test_fill(key, 16);
		test_fill(iv, 16);
		if (round & 1)
			memset(iv, 0xff, 15);
		test_fill(src, len);
		if (len)
			ref_ctr(key, iv, want, src, len);
		sits_sm4_expand_key_on(cores[round % nr_cores], &k, key);
		sits_sm4_stream_start(&s, &k, iv);
		memcpy(dst, src, len);
		for (at = 0; at < len; at += n) {
			n = piece(len - at);
			sits_sm4_stream_crypt(&s, dst + at, round & 2 ? dst + at : src + at, n);
		}
		assert_memory_equal(dst, want, len);
		sits_sm4_stream_end(&s);
		assert_memory_equal(&s, &zero, sizeof(s));
	}
}

/* The last length that goes through a buffer whole, and those about it; the counter's advance. */
static void test_ctr_ends(void **state)
{
	for (unsigned int c = 0; c < nr_cores; c++) {
		for (size_t len = 0; len < 1100; len += len < 40 || (len > 1000 && len < 1045) ? 1 : 23) {
			uint8_t key[16], iv[16], ctr[16];
			struct sits_sm4_key k;
			uint64_t low;

			test_fill(key, 16);
			test_fill(iv, 16);
			test_fill(src, len);
			iv[8] = 0;	/* no carry out of the last half */
			memcpy(ctr, iv, 16);
			if (len)
				ref_ctr(key, iv, want, src, len);
			memset(dst, 0xa5, sizeof(dst));
			sits_sm4_expand_key_on(cores[c], &k, key);
			sits_sm4_ctr(&k, ctr, dst, src, len);
			assert_memory_equal(dst, want, len);
			assert_int_equal(dst[len], 0xa5);
			low = sits_get_be64(iv + 8) + (len + 15) / 16;
			assert_memory_equal(ctr, iv, 8);
			assert_int_equal(sits_get_be64(ctr + 8), low);
		}
	}
}

/* The example of GB/T 17964-2021 that OpenSSL 3.2 tests its SM4-XTS with; and how it goes on in the form of IEEE 1619. */
static void test_xts_vectors(void **state)
{
	static const char *const key_hex = "2b7e151628aed2a6abf7158809cf4f3c000102030405060708090a0b0c0d0e0f";
	static const char *const plain_hex = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
		"30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17";
	static const char *const cipher_hex[] = {
		[SITS_XTS_IEEE] = "e9538251c71d7b80bbe4483fef497bd1b3db1a3e",
		[SITS_XTS_GB] = "e9538251c71d7b80bbe4483fef497bd12c5c581bd6242fc51e08964fb4f60fdb"
				"0ba42f63499279213d318d2c11f6886e903be7f93a1b3479",
	};
	uint8_t raw[32], iv[16], plain[56], cipher[56], out[56];
	struct sits_xts_key k;

	test_unhex(raw, 32, key_hex);
	test_unhex(iv, 16, "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
	assert_int_equal(test_unhex(plain, 56, plain_hex), 56);
	for (unsigned int c = 0; c < nr_cores; c++) {
		for (int form = SITS_XTS_IEEE; form <= SITS_XTS_GB; form++) {
			size_t known = test_unhex(cipher, 56, cipher_hex[form]);

			sits_xts_set_key_on(cores[c], &k, raw);
			assert_int_equal(sits_xts_encrypt(&k, form, iv, out, plain, 56), 0);
			assert_memory_equal(out, cipher, known);
			assert_int_equal(sits_xts_decrypt(&k, form, iv, out, out, 56), 0);
			assert_memory_equal(out, plain, 56);
		}
	}
}

/* XTS as the standards write it: block by block, from the block cipher and a doubling bit by bit. */
static void double_slowly(uint8_t t[16], int form)
{
	uint8_t r[16] = { 0 };
	int carry = 0;

	for (int i = 0; i < 128; i++) {	/* the coefficient of t^i */
		int byte = i / 8, bit = form == SITS_XTS_GB ? 7 - i % 8 : i % 8;
		int next = (i + 1) / 8, next_bit = form == SITS_XTS_GB ? 7 - (i + 1) % 8 : (i + 1) % 8;

		if (!(t[byte] >> bit & 1))
			continue;
		if (i == 127)
			carry = 1;
		else
			r[next] |= (uint8_t)(1 << next_bit);
	}
	if (carry)
		r[0] ^= form == SITS_XTS_GB ? 0xe1 : 0x87;
	memcpy(t, r, 16);
}

static void xts_slowly(int enc, int form, const uint8_t *raw, const uint8_t *iv, uint8_t *out, const uint8_t *in, size_t len)
{
	size_t nr = len / 16, rest = len % 16;
	uint8_t tweaks[MAX / 16 + 2][16], block[16];

	ref_ecb(1, raw + 16, tweaks[0], iv, 16);
	for (size_t i = 1; i <= nr; i++) {
		memcpy(tweaks[i], tweaks[i - 1], 16);
		double_slowly(tweaks[i], form);
	}
	if (rest && !enc) {	/* the last whole block has the last tweak, the one that is put together the one before */
		memcpy(block, tweaks[nr], 16);
		memcpy(tweaks[nr], tweaks[nr - 1], 16);
		memcpy(tweaks[nr - 1], block, 16);
	}
	for (size_t i = 0; i < nr; i++) {
		sits_xor(block, in + 16 * i, tweaks[i], 16);
		ref_ecb(enc, raw, block, block, 16);
		sits_xor(out + 16 * i, block, tweaks[i], 16);
	}
	if (rest) {
		uint8_t *last = out + 16 * (nr - 1);

		memcpy(block, last, 16);
		memcpy(block, in + 16 * nr, rest);
		memcpy(out + 16 * nr, last, rest);
		sits_xor(block, block, tweaks[nr], 16);
		ref_ecb(enc, raw, block, block, 16);
		sits_xor(last, block, tweaks[nr], 16);
	}
}

static void check_xts(const struct sits_sm4_core *core, int form, size_t len, bool in_place)
{
	uint8_t raw[32], iv[16], tweak[16], *out = in_place ? src : dst;
	size_t head = len % 16 ? len / 16 * 16 - 16 : len, at, n;
	struct sits_xts_key k;

	test_fill(raw, 32);
	test_fill(iv, 16);
	test_fill(src, len);
	xts_slowly(1, form, raw, iv, want, src, len);
	sits_xts_set_key_on(core, &k, raw);
	memset(dst, 0xa5, sizeof(dst));
	assert_int_equal(sits_xts_encrypt(&k, form, iv, out, src, len), 0);
	assert_memory_equal(out, want, len);
	if (!in_place)
		assert_int_equal(dst[len], 0xa5);

	/* In pieces, back, in place. */
	xts_slowly(0, form, raw, iv, want, out, len);
	sits_xts_start(&k, tweak, iv);
	for (at = 0; at < head; at += n) {
		n = 16 * (1 + test_random() % ((head - at) / 16));
		sits_xts_decrypt_blocks(&k, form, tweak, out + at, out + at, n / 16);
	}
	if (head < len)
		sits_xts_decrypt_tail(&k, form, tweak, out + head, out + head, len - head);
	assert_memory_equal(out, want, len);
}

static void test_xts_lengths(void **state)
{
	for (unsigned int c = 0; c < nr_cores; c++) {
		for (size_t len = 16; len < 600; len += len < 100 ? 1 : 11)
			check_xts(cores[c], (int)(test_random() & 1), len, test_random() & 1);
		for (int form = SITS_XTS_IEEE; form <= SITS_XTS_GB; form++)
			check_xts(cores[c], form, 2900 + test_random() % 64, true);
	}
}

static void test_xts_refuses_short_units(void **state)
{
	uint8_t raw[32], iv[16], out[16] = { 0xa5 };
	struct sits_xts_key k;

	test_fill(raw, 32);
	test_fill(iv, 16);
	sits_xts_set_key(&k, raw);
	for (size_t len = 0; len < 16; len++) {
		assert_int_equal(sits_xts_encrypt(&k, SITS_XTS_IEEE, iv, out, src, len), -EINVAL);
		assert_int_equal(sits_xts_decrypt(&k, SITS_XTS_GB, iv, out, src, len), -EINVAL);
		assert_int_equal(out[0], 0xa5);
	}
}

/* A message in pieces, encrypted, verified by either way, decrypted, beside the same in one call by the reference. */
static void check_gcm_pieces(const struct sits_sm4_core *core, size_t aad_len, size_t len)
{
	uint8_t key[16], iv[12], aad[600], tag[16], want_tag[16];
	struct sits_gcm_key k;
	struct sits_gcm s, zero = { 0 };
	size_t at, n;

	test_fill(key, 16);
	test_fill(iv, 12);
	test_fill(aad, aad_len);
	test_fill(src, len);
	ref_gcm(key, iv, aad, aad_len, want, src, len, want_tag);
	sits_gcm_set_key_on(core, &k, key);
	for (int pass = 0; pass < 3; pass++) {
		assert_int_equal(sits_gcm_start(&s, &k, iv, 12), 0);
		for (at = 0; at < aad_len; at += n) {
			n = piece(aad_len - at);
			assert_int_equal(sits_gcm_aad(&s, aad + at, n), 0);
		}
		for (at = 0; at < len; at += n) {
			n = piece(len - at);
			if (pass == 0)
				assert_int_equal(sits_gcm_update_encrypt(&s, dst + at, src + at, n), 0);
			else if (pass == 1)
				assert_int_equal(sits_gcm_update_auth(&s, dst + at, n), 0);
			else
				assert_int_equal(sits_gcm_update_decrypt(&s, dst + at, dst + at, n), 0);
		}
		if (pass == 0) {
			sits_gcm_final(&s, tag);
			assert_memory_equal(dst, want, len);
			assert_memory_equal(tag, want_tag, 16);
		} else {
			assert_int_equal(sits_gcm_verify(&s, tag, 16), 0);
			assert_memory_equal(dst, pass == 1 ? want : src, len);
		}
		assert_memory_equal(&s, &zero, sizeof(s));
	}
}

static void test_gcm_in_pieces(void **state)
{
	for (unsigned int c = 0; c < nr_cores; c++) {
		for (int round = 0; round < 60; round++)
			check_gcm_pieces(cores[c], test_random() % 4 * (test_random() % 150), test_random() % 3 * (test_random() % 1400));
		check_gcm_pieces(cores[c], 20, 0);
		check_gcm_pieces(cores[c], 0, 0);
	}
}

/* J0 for nonces of any length: SP 800-38D, clause 7.1, step 2. */
static void test_gcm_nonces(void **state)
{
	for (size_t iv_len = 1; iv_len <= 300; iv_len += iv_len < 70 ? 1 : 29) {
		const struct sits_sm4_core *core = cores[iv_len % nr_cores];
		uint8_t key[16], iv[300], h[16] = { 0 }, j0[16] = { 0 }, lengths[16] = { 0 }, tag[16], want_tag[16] = { 0 }, block[16];
		struct sits_gcm_key k;
		struct sits_gcm s;

		test_fill(key, 16);
		test_fill(iv, iv_len);
		ref_ecb(1, key, h, h, 16);
		if (iv_len == 12) {
			memcpy(j0, iv, 12);
			j0[15] = 1;
		} else {
			lengths[14] = (uint8_t)(8 * iv_len >> 8);
			lengths[15] = (uint8_t)(8 * iv_len);
			ref_ghash(j0, h, iv, iv_len);
			ref_ghash(j0, h, lengths, 16);
		}
		/* One byte of text, under J0 + 1. */
		memcpy(block, j0, 16);
		sits_put_be32(block + 12, sits_get_be32(block + 12) + 1);
		ref_ecb(1, key, block, block, 16);
		memset(lengths, 0, 16);
		lengths[15] = 8;
		ref_ghash(want_tag, h, block, 1);
		ref_ghash(want_tag, h, lengths, 16);
		ref_ecb(1, key, j0, j0, 16);
		sits_xor(want_tag, want_tag, j0, 16);

		sits_gcm_set_key_on(core, &k, key);
		assert_int_equal(sits_gcm_start(&s, &k, iv, iv_len), 0);
		assert_int_equal(sits_gcm_update_encrypt(&s, dst, (const uint8_t *)"", 1), 0);
		sits_gcm_final(&s, tag);
		assert_int_equal(dst[0], block[0]);
		assert_memory_equal(tag, want_tag, 16);
	}
}

static void test_gcm_refusals(void **state)
{
	uint8_t key[16], iv[12], tag[16], bad[16], text[64];
	struct sits_gcm_key k;
	struct sits_gcm s;

	test_fill(key, 16);
	test_fill(iv, 12);
	test_fill(text, 64);
	sits_gcm_set_key(&k, key);
	assert_int_equal(sits_gcm_start(&s, &k, iv, 0), -EINVAL);
	assert_int_equal(sits_gcm_start(&s, &k, iv, 12), 0);
	assert_int_equal(sits_gcm_aad(&s, text, 20), 0);
	assert_int_equal(sits_gcm_update_encrypt(&s, text, text, 0), 0);
	assert_int_equal(sits_gcm_aad(&s, text, 1), -EINVAL);	/* even behind an empty text */
	sits_gcm_abandon(&s);

	/* Bounds, as if so much had gone before. */
	assert_int_equal(sits_gcm_start(&s, &k, iv, 12), 0);
	s.aad_len = SITS_GCM_AAD_MAX - 5;
	assert_int_equal(sits_gcm_aad(&s, text, 6), -EMSGSIZE);
	assert_int_equal(sits_gcm_aad(&s, text, 5), 0);
	s.text_len = SITS_GCM_TEXT_MAX - 16;
	s.in_text = 1;
	memset(text, 0xa5, 64);
	assert_int_equal(sits_gcm_update_encrypt(&s, text, text, 17), -EMSGSIZE);
	assert_int_equal(sits_gcm_update_decrypt(&s, text, text, 17), -EMSGSIZE);
	assert_int_equal(sits_gcm_update_auth(&s, text, 17), -EMSGSIZE);
	assert_int_equal(text[0], 0xa5);
	assert_int_equal(sits_gcm_update_encrypt(&s, text, text, 16), 0);
	sits_gcm_abandon(&s);

	/* In one call nothing is touched, so that there need be no such text. */
	assert_int_equal(sits_gcm_encrypt(&k, iv, NULL, 0, NULL, NULL, (size_t)SITS_GCM_TEXT_MAX + 1, tag), -EMSGSIZE);
	assert_int_equal(sits_gcm_encrypt(&k, iv, NULL, (size_t)SITS_GCM_AAD_MAX + 1, NULL, NULL, 0, tag), -EMSGSIZE);
	assert_int_equal(sits_gcm_decrypt(&k, iv, NULL, (size_t)SITS_GCM_AAD_MAX + 1, NULL, NULL, 0, tag), -EBADMSG);

	/* Tags, cut short and not. */
	assert_int_equal(sits_gcm_encrypt(&k, iv, NULL, 0, text, text, 64, tag), 0);
	for (size_t len = 0; len <= 17; len++) {
		memcpy(bad, tag, 16);
		bad[len ? (len - 1) % 16 : 0] ^= 0x10;
		for (int good = 0; good < 2; good++) {
			assert_int_equal(sits_gcm_start(&s, &k, iv, 12), 0);
			assert_int_equal(sits_gcm_update_auth(&s, text, 64), 0);
			assert_int_equal(sits_gcm_verify(&s, good ? tag : bad, len),
					 len < 4 || len > 16 ? -EINVAL : good ? 0 : -EBADMSG);
			assert_null(s.key);
		}
	}
}

/* The portable core takes any key: in the kernel it stands in where vector registers may not be used. */
static void test_portable_stands_in(void **state)
{
	for (unsigned int c = 0; c < nr_cores; c++) {
		uint8_t key[16], iv[12], tag[16], tag_in[16];
		struct sits_gcm_key k, in;

		test_fill(key, 16);
		test_fill(iv, 12);
		test_fill(src, 2000);
		sits_gcm_set_key_on(cores[c], &k, key);
		in = k;
		in.sm4.core = &sits_sm4_portable;
		sits_gcm_encrypt(&k, iv, src, 33, want, src, 2000, tag);
		sits_gcm_encrypt(&in, iv, src, 33, dst, src, 2000, tag_in);
		assert_memory_equal(dst, want, 2000);
		assert_memory_equal(tag, tag_in, 16);
	}
}

static void test_choice(void **state)
{
	const struct sits_sm4_core *best = sits_sm4_best();
	struct sits_sm4_key k;

	assert_ptr_equal(best, cores[0]);	/* which has passed its test, or the next would have come */
	assert_ptr_equal(cores[nr_cores - 1], &sits_sm4_portable);
	for (unsigned int c = 0; c < nr_cores; c++) {
		assert_int_equal(cores[c]->needs & ~sits_cpu_features(), 0);
		assert_int_equal(sits_sm4_selftest(cores[c]), 0);
		assert_int_equal(sits_sm4_limit(cores[c]->name), 0);
		sits_sm4_expand_key(&k, (const uint8_t *)"0123456789abcdef");
		assert_ptr_equal(k.core, cores[c]);
	}
	assert_int_equal(sits_sm4_limit("abacus"), -ENOENT);
	assert_ptr_equal(sits_sm4_best(), &sits_sm4_portable);	/* as before */
	assert_int_equal(sits_sm4_limit(NULL), 0);
	assert_ptr_equal(sits_sm4_best(), best);
}

/* A core that is right but for one bit, of one function. */
static struct sits_sm4_core faulty;

static void bad_crypt(const struct sits_sm4_rounds *k, u8 *to, const u8 *from, size_t nr)
{
	sits_sm4_portable.crypt(k, to, from, nr);
	to[0] ^= nr > 200;
}

static void bad_cbc(const struct sits_sm4_rounds *k, u8 iv[16], u8 *to, const u8 *from, size_t nr)
{
	sits_sm4_portable.cbc_decrypt(k, iv, to, from, nr);
	iv[15] ^= 0x80;
}

static void bad_ctr128(const struct sits_sm4_rounds *k, u8 ctr[16], u8 *to, const u8 *from, size_t nr)
{
	sits_sm4_portable.ctr128(k, ctr, to, from, nr);
	ctr[0] = 0xff;	/* no carry so far */
}

static void bad_ctr32(const struct sits_sm4_rounds *k, u8 ctr[16], u8 *to, const u8 *from, size_t nr)
{
	sits_sm4_portable.ctr128(k, ctr, to, from, nr);
}

static void bad_xts(const struct sits_sm4_rounds *k, u8 tweak[16], u8 *to, const u8 *from, size_t nr, bool gb)
{
	sits_sm4_portable.xts(k, tweak, to, from, nr, false);
}

static void bad_ghash(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr)
{
	sits_sm4_portable.ghash(key, y, data, nr);
	y[7] ^= nr == 19;
}

static void bad_gcm_encrypt(const struct sits_sm4_rounds *k, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *to,
			    const u8 *from, size_t nr)
{
	sits_sm4_portable.gcm_encrypt(k, key, ctr, y, to, from, nr);
	to[16 * nr - 1] ^= 1;
}

static void bad_gcm_decrypt(const struct sits_sm4_rounds *k, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *to,
			    const u8 *from, size_t nr)
{
	sits_sm4_portable.gcm_decrypt(k, key, ctr, y, to, from, nr);
	y[0] ^= 1;
}

static void test_selftest_refuses(void **state)
{
	faulty = sits_sm4_portable;
	assert_int_equal(sits_sm4_selftest(&faulty), 0);
#define REFUSES(function, bad) do { \
		faulty = sits_sm4_portable; \
		faulty.function = bad; \
		assert_int_equal(sits_sm4_selftest(&faulty), -EBADMSG); \
	} while (0)
	REFUSES(crypt, bad_crypt);
	REFUSES(cbc_decrypt, bad_cbc);
	REFUSES(ctr128, bad_ctr128);
	REFUSES(ctr32, bad_ctr32);
	REFUSES(xts, bad_xts);
	REFUSES(ghash, bad_ghash);
	REFUSES(gcm_encrypt, bad_gcm_encrypt);
	REFUSES(gcm_decrypt, bad_gcm_decrypt);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key_forms),
		cmocka_unit_test(test_ecb_and_cbc),
		cmocka_unit_test(test_stream_in_pieces),
		cmocka_unit_test(test_ctr_ends),
		cmocka_unit_test(test_xts_vectors),
		cmocka_unit_test(test_xts_lengths),
		cmocka_unit_test(test_xts_refuses_short_units),
		cmocka_unit_test(test_gcm_in_pieces),
		cmocka_unit_test(test_gcm_nonces),
		cmocka_unit_test(test_gcm_refusals),
		cmocka_unit_test(test_portable_stands_in),
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_selftest_refuses),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	cores = sits_sm4_cores(&nr_cores);
	for (unsigned int c = 0; c < nr_cores; c++)
		printf("# core %s\n", cores[c]->name);
	return cmocka_run_group_tests_name("modes", tests, NULL, NULL);
}
