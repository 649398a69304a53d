// SPDX-License-Identifier: MIT
/* sm4_vectors_test.c - published vectors of SM4 and its modes, on every core that this machine runs. */
#include <setjmp.h>
#include <stdarg.h>

#include "tests/unit/crypto/sm4_ops.h"

#include <cmocka.h>

enum mode { ECB, CBC, CTR, XTS, XTS_GB, GCM };

struct vector {
	enum mode mode;
	const char *source, *key, *iv, *aad, *plain, *cipher;	/* GCM: and the tag behind it */
};

#define KEY1 "0123456789abcdeffedcba9876543210"
#define KEY2 "fedcba98765432100123456789abcdef"
#define COUNT "000102030405060708090a0b0c0d0e0f"
#define WORDS "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffaaaaaaaabbbbbbbb"
#define BLOCKS "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd" \
	"eeeeeeeeeeeeeeeeffffffffffffffffaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb"
#define XTS_KEY "2b7e151628aed2a6abf7158809cf4f3c000102030405060708090a0b0c0d0e0f"
#define XTS_IV "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
#define XTS_PLAIN "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51" \
	"30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17"

static const struct vector vectors[] = {
	{ ECB, "GB/T 32907-2016, A.1", KEY1, "", "", KEY1, "681edf34d206965e86b3e94f536e4246" },
	{ ECB, "draft-ribose-cfrg-sm4-10, A.2.1.1", KEY1, "", "", WORDS,
	  "5ec8143de509cff7b5179f8f474b86192f1d305a7fb17df985f81c8482192304" },
	{ ECB, "draft-ribose-cfrg-sm4-10, A.2.1.2", KEY2, "", "", WORDS,
	  "c5876897e4a59bbba72a10c83872245b12dd90bc2d200692b529a4155ac9e600" },
	{ CBC, "draft-ribose-cfrg-sm4-10, A.2.2.1", KEY1, COUNT, "", WORDS,
	  "78ebb11cc40b0a48312aaeb2040244cb4cb7016951909226979b0d15dc6a8f6d" },
	{ CBC, "draft-ribose-cfrg-sm4-10, A.2.2.2", KEY2, COUNT, "", WORDS,
	  "0d3a6ddc2d21c698857215587b7bb59a91f2c147911a4144665e1fa1d40bae38" },
	{ CTR, "draft-ribose-cfrg-sm4-10, A.2.5.1", KEY1, COUNT, "", BLOCKS,
	  "ac3236cb970cc20791364c395a1342d1a3cbc1878c6f30cd074cce385cdd70c7"
	  "f234bc0e24c11980fd1286310ce37b926e02fcd0faa0baf38b2933851d824514" },
	{ CTR, "draft-ribose-cfrg-sm4-10, A.2.5.2", KEY2, COUNT, "", BLOCKS,
	  "5dcccd25b95ab07417a08512ee160e2f8f661521cbbab44cc87138445bc29e5c"
	  "0ae0297205d62704173b21239b887f6c8cb5b800917a2488284bde9e16ea2906" },
	{ XTS_GB, "GB/T 17964-2021, XTS, as in OpenSSL's evpciph_sm4.txt", XTS_KEY, XTS_IV, "", XTS_PLAIN,
	  "e9538251c71d7b80bbe4483fef497bd12c5c581bd6242fc51e08964fb4f60fdb"
	  "0ba42f63499279213d318d2c11f6886e903be7f93a1b3479" },
	{ XTS, "IEEE 1619, in OpenSSL's evpciph_sm4.txt", XTS_KEY, XTS_IV, "", XTS_PLAIN,
	  "e9538251c71d7b80bbe4483fef497bd1b3db1a3e60408c575d63ff7db39f8326"
	  "0869f9e2585fec9f0b863bf8fd784b8627d16c0db6d2cfc7" },
	{ XTS_GB, "a block and a byte, in OpenSSL's evpciph_sm4.txt",
	  "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0", "9a785634120000000000000000000000", "",
	  "000102030405060708090a0b0c0d0e0f10", "9e52443a35410ca0ba5637b94c0766f469" },
	{ GCM, "RFC 8998, A.1", KEY1, "00001234567800000000abcd", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
	  "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
	  "eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa",
	  "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
	  "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d"
	  "83de3541e4c2b58177e065a9bf7b62ec" },
#include "tests/vectors/crypto/testmgr_sm4.inc"
};

static const struct wycheproof {
	const char *name, *key, *iv, *aad, *msg, *ct, *tag;
	bool valid;
} wycheproof[] = {
#include "tests/vectors/crypto/wycheproof_sm4_gcm.inc"
#include "tests/vectors/crypto/wycheproof_sm4_gcm_nonces.inc"
};

#define MAX 2048

static const int ways[][2] = {
	[ECB] = { OP_ECB_ENCRYPT, OP_ECB_DECRYPT },
	[CBC] = { OP_CBC_ENCRYPT, OP_CBC_DECRYPT },
	[CTR] = { OP_CTR, OP_STREAM },
	[XTS] = { OP_XTS_ENCRYPT, OP_XTS_DECRYPT },
	[XTS_GB] = { OP_XTS_GB_ENCRYPT, OP_XTS_GB_DECRYPT },
	[GCM] = { OP_GCM_ENCRYPT, OP_GCM_DECRYPT },
};

/* One operation, in one call and in pieces, in place and not. */
static void check(int op, struct op_args *a, const uint8_t *in, const uint8_t *want, const uint8_t *tag, const char *source)
{
	static uint8_t buf[MAX];
	union op_key key;

	ops[op].set_key(a->core, &key, a->raw);
	for (int variant = 0; variant < 4; variant++) {
		memset(buf, 0xa5, sizeof(buf));
		if (variant & 1)
			memcpy(buf, in, a->len);
		a->dst = buf;
		a->src = variant & 1 ? buf : in;
		a->split = variant & 2 ? test_random() | 1 : 0;
		if (tag && op == OP_GCM_DECRYPT)
			memcpy(a->tag, tag, 16);
		if (ops[op].run(&key, a) || memcmp(buf, want, a->len) || (tag && memcmp(a->tag, tag, 16)))
			fail_msg("%s, %s on %s: wrong answer", source, ops[op].name, a->core->name);
	}
	sits_wipe(&key, sizeof(key));
}

static void check_vector(const struct sits_sm4_core *core, const struct vector *v)
{
	uint8_t key[32], iv[16], aad[64], plain[MAX], cipher[MAX];
	struct op_args a = { .core = core, .raw = key, .iv = iv, .aad = aad };

	assert_int_equal(test_unhex(key, 32, v->key), v->mode == XTS || v->mode == XTS_GB ? 32 : 16);
	a.iv_len = test_unhex(iv, 16, v->iv);
	a.aad_len = test_unhex(aad, sizeof(aad), v->aad);
	a.len = test_unhex(plain, MAX, v->plain);
	assert_int_equal(test_unhex(cipher, MAX, v->cipher), a.len + (v->mode == GCM ? 16 : 0));
	check(ways[v->mode][0], &a, plain, cipher, v->mode == GCM ? cipher + a.len : NULL, v->source);
	check(ways[v->mode][1], &a, cipher, plain, v->mode == GCM ? cipher + a.len : NULL, v->source);
}

static void test_published(void **state)
{
	const size_t n = sizeof(vectors) / sizeof(vectors[0]);
	unsigned int nr;
	const struct sits_sm4_core *const *cores = sits_sm4_cores(&nr);

	assert_true(n >= 30);
	for (unsigned int c = 0; c < nr; c++) {
		for (size_t i = 0; i < n; i++)
			check_vector(cores[c], &vectors[i]);
		print_message("# %s: %zu vectors\n", cores[c]->name, n);
	}
}

/* GB/T 32907-2016, A.2; through single blocks, which have a path of their own, and through batches. */
static void test_million(void **state)
{
	uint8_t raw[16], text[16], want[16];
	unsigned int nr;
	const struct sits_sm4_core *const *cores = sits_sm4_cores(&nr);

	if (getenv("SITS_TEST_GUEST"))	/* emulated: half a minute each */
		nr = 1;
	test_unhex(raw, 16, KEY1);
	test_unhex(want, 16, "595298c7c6fd271f0402f804c33d3f66");
	for (unsigned int c = 0; c < nr; c++) {
		struct sits_sm4_key key;

		sits_sm4_expand_key_on(cores[c], &key, raw);
		assert_int_equal(key.enc.rk[0], 0xf12186f9);
		assert_int_equal(key.enc.rk[31], 0x9124a012);
		assert_int_equal(key.dec.rk[0], 0x9124a012);
		assert_int_equal(key.dec.rk[31], 0xf12186f9);
		memcpy(text, raw, 16);
		for (int i = 0; i < 1000000; i++)
			sits_sm4_encrypt_block(&key, text, text);
		assert_memory_equal(text, want, 16);
		for (int i = 0; i < 1000000; i++)
			sits_sm4_decrypt_block(&key, text, text);
		assert_memory_equal(text, raw, 16);
	}
}

static void check_wycheproof(const struct sits_sm4_core *core, const struct wycheproof *v, uint64_t split)
{
	uint8_t key[16], iv[512], aad[MAX], msg[MAX], ct[MAX], tag[16], out[MAX];
	struct op_args a = { .core = core, .raw = key, .iv = iv, .aad = aad, .dst = out, .split = split };
	union op_key k;
	int ret;

	assert_int_equal(test_unhex(key, 16, v->key), 16);
	a.iv_len = test_unhex(iv, sizeof(iv), v->iv);
	a.aad_len = test_unhex(aad, sizeof(aad), v->aad);
	a.len = test_unhex(msg, MAX, v->msg);
	assert_int_equal(test_unhex(ct, MAX, v->ct), a.len);
	assert_int_equal(test_unhex(tag, 16, v->tag), 16);
	op_gcm_key(core, &k, key);

	a.src = ct;
	memcpy(a.tag, tag, 16);
	ret = op_gcm_decrypt(&k, &a);
	if (v->iv[0] == '\0') {
		assert_int_equal(ret, -EINVAL);	/* no nonce at all */
		return;
	}
	if (ret != (v->valid ? 0 : -EBADMSG))
		fail_msg("%s on %s: gave %d", v->name, core->name, ret);
	if (v->valid)
		assert_memory_equal(out, msg, a.len);
	for (size_t i = 0; !v->valid && !split && i < a.len; i++)
		assert_int_equal(out[i], 0);

	a.src = msg;
	assert_int_equal(op_gcm_encrypt(&k, &a), 0);
	if (v->valid && (memcmp(out, ct, a.len) || memcmp(a.tag, tag, 16)))
		fail_msg("%s on %s: sealed otherwise", v->name, core->name);
	if (!v->valid)
		assert_memory_not_equal(a.tag, tag, 16);
}

static void test_wycheproof(void **state)
{
	const size_t n = sizeof(wycheproof) / sizeof(wycheproof[0]);
	unsigned int nr;
	const struct sits_sm4_core *const *cores = sits_sm4_cores(&nr);

	assert_int_equal(n, 104);	/* as many as the file says that it has */
	for (unsigned int c = 0; c < nr; c++) {
		for (size_t i = 0; i < n; i++) {
			check_wycheproof(cores[c], &wycheproof[i], 0);
			check_wycheproof(cores[c], &wycheproof[i], test_random() | 1);
		}
	}
}

/* The peers that other tests rely on have the published answers too. */
static void test_peers(void **state)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		const struct vector *v = &vectors[i];
		uint8_t key[32], iv[16], aad[64], plain[MAX], cipher[MAX], out[MAX];
		struct op_args a = { .raw = key, .iv = iv, .aad = aad, .dst = out, .src = plain };

		test_unhex(key, 32, v->key);
		a.iv_len = test_unhex(iv, 16, v->iv);
		a.aad_len = test_unhex(aad, sizeof(aad), v->aad);
		a.len = test_unhex(plain, MAX, v->plain);
		test_unhex(cipher, MAX, v->cipher);
		ops[ways[v->mode][0]].peer(&a);
		assert_memory_equal(out, cipher, a.len);
		if (v->mode == GCM)
			assert_memory_equal(a.tag, cipher + a.len, 16);
		a.src = cipher;
		ops[ways[v->mode][1]].peer(&a);
		assert_memory_equal(out, plain, a.len);
		if (v->mode == XTS) {	/* by the definition as well */
			peer_xts(1, 0, key, iv, out, plain, a.len);
			assert_memory_equal(out, cipher, a.len);
			peer_xts(0, 0, key, iv, out, cipher, a.len);
			assert_memory_equal(out, plain, a.len);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peers),
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_million),
		cmocka_unit_test(test_wycheproof),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	peer_init();
	test_seed_init();
	return cmocka_run_group_tests_name("sm4 vectors", tests, NULL, NULL);
}
