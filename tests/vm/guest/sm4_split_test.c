// SPDX-License-Identifier: MIT
/*
 * sm4_split_test.c - all drivers of sits_sm4.ko beside crypto/ in userspace, with scatterlists cut anywhere: odd places, pieces
 * that adjoin, empty ones, in place and not; in tasks, in soft interrupts, and without vector registers.
 *
 * sits_test_sm4.ko makes the requests. What is compared with is the portable core, whichever the driver has.
 */
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "crypto/sm4.h"
#include "tests/unit/crypto/reference.h"
#include "tests/vm/guest/kmod/sits_test_sm4.h"
#include "tests/vm/guest/proc_crypto.h"

#define MAX_LEN		(1u << 20)
#define FUZZ_LEN	20000u
#define TAG		SITS_GCM_TAG_LEN

enum mode { SM4, ECB, CBC, CTR, XTS, GCM, NR_MODES };

static const struct {
	const char *prefix;
	uint32_t type, key_len, iv_len;
} modes[NR_MODES] = {
	[SM4] = { "", SITS_TEST_SM4_CIPHER, 16, 0 },
	[ECB] = { "ecb-", SITS_TEST_SM4_SKCIPHER, 16, 0 },
	[CBC] = { "cbc-", SITS_TEST_SM4_SKCIPHER, 16, 16 },
	[CTR] = { "ctr-", SITS_TEST_SM4_SKCIPHER, 16, 16 },
	[XTS] = { "xts-", SITS_TEST_SM4_SKCIPHER, 32, 16 },
	[GCM] = { "gcm-", SITS_TEST_SM4_AEAD, 16, 12 },
};

static char variants[4][32];
static unsigned int nr_variants;
static int dev = -1;

/* One request, and what it should give. */
struct request {
	enum mode mode;
	const char *variant;
	uint32_t flags, where, aad_len, tag_len;
	uint32_t len;			/* of text, without tag */
	uint8_t key[32], iv[16];
	uint8_t iv_out[16];		/* out: of the driver */
	struct sits_test_sm4_piece src_pieces[SITS_TEST_SM4_MAX_PIECES], dst_pieces[SITS_TEST_SM4_MAX_PIECES];
	uint32_t nr_src, nr_dst;
	uint32_t no_simd;
};

static uint8_t plain[MAX_LEN], aad[4096], in[MAX_LEN], out[MAX_LEN], before[MAX_LEN], want[MAX_LEN];

/* ------------------------------------------------------------------ by the portable core */

static void expect_blocks(const struct request *r, uint8_t *dst, const uint8_t *src, uint8_t iv[16])
{
	bool encrypt = r->flags & SITS_TEST_SM4_ENCRYPT;
	struct sits_xts_key xts;
	struct sits_sm4_key k;

	memcpy(iv, r->iv, 16);
	if (r->mode == XTS) {
		sits_xts_set_key_on(&sits_sm4_portable, &xts, r->key);
		assert_int_equal((encrypt ? sits_xts_encrypt : sits_xts_decrypt)(&xts, SITS_XTS_IEEE, iv, dst, src, r->len), 0);
		return;
	}
	sits_sm4_expand_key_on(&sits_sm4_portable, &k, r->key);
	switch (r->mode) {
	case CBC:
		(encrypt ? sits_sm4_cbc_encrypt : sits_sm4_cbc_decrypt)(&k, iv, dst, src, r->len / 16);
		break;
	case CTR:
		sits_sm4_ctr(&k, iv, dst, src, r->len);
		break;
	default:
		(encrypt ? sits_sm4_ecb_encrypt : sits_sm4_ecb_decrypt)(&k, dst, src, r->len / 16);
	}
}

/* Ciphertext and tag of the first len bytes of plain[]. */
static void expect_gcm(const struct request *r, uint8_t *dst)
{
	struct sits_gcm_key k;
	uint8_t tag[TAG];

	sits_gcm_set_key_on(&sits_sm4_portable, &k, r->key);
	assert_int_equal(sits_gcm_encrypt(&k, r->iv, aad, r->aad_len, dst, plain, r->len, tag), 0);
	memcpy(dst + r->len, tag, r->tag_len);
}

/* ------------------------------------------------------------------------- by a driver */

/* @in, @out: contents of the lists. Return: of the request, or of the test's module. */
static int submit(struct request *r, uint32_t in_len, uint32_t out_len)
{
	struct sits_test_sm4 a = {
		.type = modes[r->mode].type, .flags = r->flags, .where = r->where,
		.key_len = modes[r->mode].key_len, .iv_len = modes[r->mode].iv_len,
		.aad_len = r->aad_len, .tag_len = r->tag_len, .len = in_len - r->aad_len,
		.src_len = in_len, .dst_len = out_len, .nr_src = r->nr_src, .nr_dst = r->nr_dst,
		.key = (uintptr_t)r->key, .iv = (uintptr_t)r->iv_out, .src = (uintptr_t)in, .dst = (uintptr_t)out,
		.src_pieces = (uintptr_t)r->src_pieces, .dst_pieces = (uintptr_t)r->dst_pieces,
	};

	if (r->flags & SITS_TEST_SM4_IN_PLACE && r->mode == GCM && r->flags & SITS_TEST_SM4_ENCRYPT)
		a.len -= r->tag_len;	/* whose room is in the list */
	snprintf((char *)a.driver, sizeof(a.driver), "%ssm4-sits-%s", modes[r->mode].prefix, r->variant);
	memcpy(r->iv_out, r->iv, 16);
	if (ioctl(dev, SITS_TEST_SM4_DO, &a))
		return -errno;
	r->no_simd = a.no_simd;
	if (a.overrun)
		fail_msg("%s: wrote %u bytes beside its pieces", a.driver, a.overrun);
	return a.result;
}

/* Cut @len bytes in @nr pieces at most, at random. */
static uint32_t cut(struct sits_test_sm4_piece *p, uint32_t len, uint32_t nr)
{
	uint32_t i;

	for (i = 0; i < nr; i++) {
		uint32_t n = i == nr - 1 ? len : (uint32_t)test_random() % (len + 1);

		/* Most cuts within a few blocks, else the first one takes nearly all. */
		if (i < nr - 1 && test_random() % 2)
			n = n < 40 ? n : (uint32_t)test_random() % 40;
		p[i] = (struct sits_test_sm4_piece){ .len = n, .offset = (uint16_t)(test_random() % 4096) };
		switch (test_random() % 4) {
		case 0:
			p[i].offset = 0;
			break;
		case 1:	/* up to the end of a page */
			p[i].offset = (uint16_t)(4096 - 1 - test_random() % 32);
			break;
		case 2:
			p[i].offset = i ? SITS_TEST_SM4_ADJOIN : 16;
			break;
		}
		len -= n;
	}
	return nr;
}

static void one_piece(struct request *r, uint32_t in_len, uint32_t out_len)
{
	r->nr_src = r->nr_dst = 1;
	r->src_pieces[0] = (struct sits_test_sm4_piece){ .len = in_len };
	r->dst_pieces[0] = (struct sits_test_sm4_piece){ .len = out_len };
}

/* Lengths of the lists of a request: in place, one serves for both. */
static void list_lens(const struct request *r, uint32_t *in_len, uint32_t *out_len)
{
	bool encrypt = r->flags & SITS_TEST_SM4_ENCRYPT;
	uint32_t tag = r->mode == GCM ? r->tag_len : 0;

	*in_len = r->aad_len + r->len + (encrypt ? 0 : tag);
	*out_len = r->aad_len + r->len + (encrypt ? tag : 0);
	if (r->flags & SITS_TEST_SM4_IN_PLACE)
		*in_len = *out_len = r->aad_len + r->len + tag;
}

/* Fill in[], out[] and want[], the last with what out[] (or in[], in place) is to be afterwards. */
static void compose(struct request *r, uint32_t in_len, uint32_t out_len, uint8_t iv_want[16])
{
	bool encrypt = r->flags & SITS_TEST_SM4_ENCRYPT;

	test_fill(plain, r->len);
	test_fill(aad, r->aad_len);
	memset(in, 0x11, in_len);
	memset(out, 0x22, out_len);
	memcpy(iv_want, r->iv, 16);
	memcpy(in, aad, r->aad_len);
	if (r->mode == GCM && encrypt) {
		memcpy(in + r->aad_len, plain, r->len);
		expect_gcm(r, before);
		memcpy(want, r->flags & SITS_TEST_SM4_IN_PLACE ? in : out, out_len);
		memcpy(want + r->aad_len, before, r->len + r->tag_len);
	} else if (r->mode == GCM) {
		expect_gcm(r, in + r->aad_len);
		memcpy(want, r->flags & SITS_TEST_SM4_IN_PLACE ? in : out, out_len);
		memcpy(want + r->aad_len, plain, r->len);
	} else {
		memcpy(in, plain, r->len);
		expect_blocks(r, want, in, iv_want);
	}
	memcpy(before, in, in_len);
}

static void check_request(struct request *r)
{
	bool in_place = r->flags & SITS_TEST_SM4_IN_PLACE;
	uint32_t in_len, out_len;
	uint8_t iv_want[16];
	int ret;

	list_lens(r, &in_len, &out_len);
	compose(r, in_len, out_len, iv_want);
	ret = submit(r, in_len, out_len);
	if (ret)
		fail_msg("%ssm4-sits-%s: %s, flags %x, where %u, %u bytes, %u of aad, %u and %u pieces", modes[r->mode].prefix,
			 r->variant, strerror(-ret), r->flags, r->where, r->len, r->aad_len, r->nr_src, r->nr_dst);
	if (memcmp(in_place ? in : out, want, out_len))
		fail_msg("%ssm4-sits-%s: wrong bytes, flags %x, where %u, %u bytes, %u of aad, %u and %u pieces",
			 modes[r->mode].prefix, r->variant, r->flags, r->where, r->len, r->aad_len, r->nr_src, r->nr_dst);
	if (!in_place)
		assert_memory_equal(in, before, in_len);
	if (r->mode == CBC || r->mode == CTR)
		assert_memory_equal(r->iv_out, iv_want, 16);
	assert_int_equal(r->no_simd, r->where == SITS_TEST_SM4_FPU_HELD);
}

static void new_request(struct request *r, enum mode mode, const char *variant)
{
	*r = (struct request){ .mode = mode, .variant = variant, .tag_len = mode == GCM ? TAG : 0 };
	test_fill(r->key, sizeof(r->key));
	test_fill(r->iv, sizeof(r->iv));
}

/* ------------------------------------------------------------------------------- tests */

static bool have_avx2(void)
{
	unsigned int a, b = 0, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_AVX2;
}

static void test_variants_are_there(void **state)
{
	for (unsigned int i = 0; i < nr_variants; i++)
		print_message("# %s\n", variants[i]);
	assert_true(nr_variants >= 1);
	/* No processor of these tests has AVX2 and no AES-NI. */
	if (have_avx2())
		assert_true(nr_variants >= 2);
}

static uint32_t random_length(enum mode mode)
{
	static const uint32_t around[] = { 32, 64, 256, 512, 1024, 2048, 4096, 8192, 16384 };
	uint32_t len;

	switch (test_random() % 3) {
	case 0:
		len = (uint32_t)test_random() % 300;
		break;
	case 1:
		len = around[test_random() % (sizeof(around) / sizeof(around[0]))] - 17 + (uint32_t)test_random() % 35;
		break;
	default:
		len = (uint32_t)test_random() % FUZZ_LEN;
	}
	if (mode == XTS && len < 16)
		len += 16;
	return mode <= CBC ? len & ~15u : len;
}

static void fuzz_one(struct request *r, enum mode mode, const char *variant)
{
	static const uint32_t tag_lens[] = { 4, 8, 12, 13, 14, 15, 16, 16, 16 };
	uint32_t in_len, out_len, nr;

	new_request(r, mode, variant);
	r->flags = (uint32_t)test_random() % 4;
	r->where = (uint32_t)test_random() % 4;
	if (r->where == SITS_TEST_SM4_TASK && test_random() % 2)
		r->flags |= SITS_TEST_SM4_SLEEP;
	r->len = random_length(mode);
	if (mode == GCM) {
		r->tag_len = tag_lens[test_random() % (sizeof(tag_lens) / sizeof(tag_lens[0]))];
		r->aad_len = test_random() % 2 ? (uint32_t)test_random() % 80 : (uint32_t)test_random() % sizeof(aad);
	}
	if (test_random() % 4 == 0)	/* counters that carry, at 32 bits and at all */
		memset(r->iv + (test_random() % 2 ? 0 : 12), 0xff, test_random() % 2 ? 3 : 4);
	if (mode == CTR && test_random() % 4 == 0)
		memset(r->iv, 0xff, 15);
	list_lens(r, &in_len, &out_len);
	if (mode == SM4) {
		one_piece(r, in_len, out_len);
		r->src_pieces[0].offset = (uint16_t)(test_random() % 64);
		r->dst_pieces[0].offset = (uint16_t)(test_random() % 64);
	} else {
		nr = test_random() % 16 ? 12 : SITS_TEST_SM4_MAX_PIECES;
		r->nr_src = cut(r->src_pieces, in_len, 1 + (uint32_t)test_random() % nr);
		r->nr_dst = cut(r->dst_pieces, out_len, 1 + (uint32_t)test_random() % nr);
	}
	check_request(r);
}

static void test_random_splits(void **state)
{
	static struct request r;

	for (unsigned int v = 0; v < nr_variants; v++)
		for (enum mode mode = SM4; mode < NR_MODES; mode++)
			for (int i = 0; i < (mode == GCM ? 250 : 100); i++)
				fuzz_one(&r, mode, variants[v]);
}

/* Each place of one cut, in source, destination, and both at once. */
static void test_each_cut(void **state)
{
	static struct request r;

	for (unsigned int v = 0; v < nr_variants; v++) {
		for (uint32_t len = 0; len <= 49; len += len < 47 ? 16 : 1) {
			for (uint32_t at = 0; at <= 5 + len + TAG; at++) {
				new_request(&r, GCM, variants[v]);
				r.flags = at % 2 ? SITS_TEST_SM4_ENCRYPT : 0;
				r.flags |= at % 3 ? 0 : SITS_TEST_SM4_IN_PLACE;
				r.len = len;
				r.aad_len = 5;
				uint32_t in_len, out_len;

				list_lens(&r, &in_len, &out_len);
				one_piece(&r, in_len, out_len);
				if (at < in_len) {
					r.nr_src = 2;
					r.src_pieces[0].len = at;
					r.src_pieces[0].offset = (uint16_t)(4096 - at % 4096) % 4096;
					r.src_pieces[1].len = in_len - at;
				}
				if (at < out_len) {
					r.nr_dst = 2;
					r.dst_pieces[0].len = at;
					r.dst_pieces[1].len = out_len - at;
					r.dst_pieces[1].offset = 7;
				}
				check_request(&r);
			}
		}
	}
}

static void test_long_runs(void **state)
{
	static struct request r;
	uint32_t in_len, out_len;

	for (unsigned int v = 0; v < nr_variants; v++) {
		for (enum mode mode = ECB; mode < NR_MODES; mode++) {
			new_request(&r, mode, variants[v]);
			r.len = MAX_LEN - 4096 + (mode > CBC ? 7 : 0);
			r.aad_len = mode == GCM ? 777 : 0;
			r.flags = SITS_TEST_SM4_IN_PLACE | (mode % 2 ? SITS_TEST_SM4_ENCRYPT : 0) | SITS_TEST_SM4_SLEEP;
			list_lens(&r, &in_len, &out_len);
			one_piece(&r, in_len, out_len);
			check_request(&r);
		}
	}
}

/* Refused, and nothing of the plaintext there. */
static void check_forgery(struct request *r, uint32_t byte, uint32_t mask)
{
	bool in_place = r->flags & SITS_TEST_SM4_IN_PLACE;
	uint32_t in_len, out_len;
	uint8_t iv_want[16];
	int ret;

	list_lens(r, &in_len, &out_len);
	compose(r, in_len, out_len, iv_want);
	in[byte] ^= (uint8_t)mask;
	memcpy(before, in, in_len);
	ret = submit(r, in_len, out_len);
	if (ret != -EBADMSG)
		fail_msg("gcm-sm4-sits-%s: byte %u of %u changed by %x: %s", r->variant, byte, in_len, mask,
			 ret ? strerror(-ret) : "accepted");
	for (uint32_t i = 0; i < r->len; i++)
		assert_int_equal((in_place ? in : out)[r->aad_len + i], 0);
	/* All else is as it was. */
	if (in_place) {
		assert_memory_equal(in, before, r->aad_len);
		assert_memory_equal(in + r->aad_len + r->len, before + r->aad_len + r->len, r->tag_len);
	} else {
		assert_memory_equal(in, before, in_len);
		for (uint32_t i = 0; i < r->aad_len; i++)
			assert_int_equal(out[i], 0x22);
	}
}

static void test_forgeries(void **state)
{
	static struct request r;
	uint32_t in_len, out_len;

	for (unsigned int v = 0; v < nr_variants; v++) {
		for (int i = 0; i < 200; i++) {
			uint32_t byte, mask = 1u << i % 8;

			new_request(&r, GCM, variants[v]);
			r.flags = i % 2 ? SITS_TEST_SM4_IN_PLACE : 0;
			r.where = (uint32_t)i / 2 % 4;
			r.len = i < 128 ? 100 : random_length(GCM);
			r.aad_len = 20;
			r.tag_len = i < 128 ? TAG : 4 + 4 * ((uint32_t)test_random() % 4);
			list_lens(&r, &in_len, &out_len);
			r.nr_src = cut(r.src_pieces, in_len, 1 + (uint32_t)test_random() % 5);
			r.nr_dst = cut(r.dst_pieces, out_len, 1 + (uint32_t)test_random() % 5);
			/* Each bit of a tag first, then any. */
			byte = i < 128 ? in_len - TAG + (uint32_t)i / 8 : (uint32_t)test_random() % in_len;
			check_forgery(&r, byte, mask);
		}
	}
}

static void test_lengths_that_are_refused(void **state)
{
	static struct request r;

	for (unsigned int v = 0; v < nr_variants; v++) {
		for (enum mode mode = ECB; mode <= XTS; mode++) {
			for (uint32_t len = 0; len < 33; len++) {
				bool fine = mode == CTR || (mode == XTS ? len >= 16 : len % 16 == 0);

				new_request(&r, mode, variants[v]);
				r.len = len;
				r.flags = SITS_TEST_SM4_ENCRYPT;
				one_piece(&r, len, len);
				assert_int_equal(submit(&r, len, len), fine ? 0 : -EINVAL);
			}
		}
		for (uint32_t tag_len = 0; tag_len <= 17; tag_len++) {
			bool fine = tag_len == 4 || tag_len == 8 || (tag_len >= 12 && tag_len <= 16);

			new_request(&r, GCM, variants[v]);
			r.flags = SITS_TEST_SM4_ENCRYPT;
			r.tag_len = tag_len;
			r.len = 20;
			one_piece(&r, 20, 20 + tag_len);
			assert_int_equal(submit(&r, 20, 20 + tag_len), fine ? 0 : -EINVAL);
		}
		/* Not even a tag. */
		new_request(&r, GCM, variants[v]);
		one_piece(&r, 15, 15);
		assert_int_equal(submit(&r, 15, 15), -EINVAL);
	}
}

/* The lists are shorter than the request says. */
static void test_short_lists(void **state)
{
	static struct request r;

	for (unsigned int v = 0; v < nr_variants; v++) {
		for (int encrypt = 0; encrypt < 2; encrypt++) {
			new_request(&r, GCM, variants[v]);
			r.flags = encrypt ? SITS_TEST_SM4_ENCRYPT : 0;
			r.len = 100;
			one_piece(&r, 100 + TAG, 50);
			memset(out, 0x22, 50);
			assert_int_equal(submit(&r, 100 + TAG, 50), -EINVAL);
		}
	}
}

/* What a program has in its vector registers outlives what the kernel does with its own. */
static bool registers_survive(struct request *r, uint32_t len)
{
	static uint8_t ymm[16][32] __attribute__((aligned(32))), after[16][32] __attribute__((aligned(32)));
	struct sits_test_sm4 a = {
		.type = SITS_TEST_SM4_AEAD, .flags = SITS_TEST_SM4_ENCRYPT, .where = r->where, .key_len = 16, .iv_len = 12,
		.tag_len = TAG, .len = len, .src_len = len, .dst_len = len + TAG, .nr_src = 1, .nr_dst = 1,
		.key = (uintptr_t)r->key, .iv = (uintptr_t)r->iv_out, .src = (uintptr_t)in, .dst = (uintptr_t)out,
		.src_pieces = (uintptr_t)r->src_pieces, .dst_pieces = (uintptr_t)r->dst_pieces,
	};
	long ret = 16;	/* SYS_ioctl */

	snprintf((char *)a.driver, sizeof(a.driver), "gcm-sm4-sits-%s", r->variant);
	test_fill(ymm[0], sizeof(ymm));
	__asm__ volatile(
#define LOAD(n) "vmovdqa " #n "*32(%[from]), %%ymm" #n "\n\t"
#define SAVE(n) "vmovdqa %%ymm" #n ", " #n "*32(%[to])\n\t"
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
		ALL(LOAD)
		"syscall\n\t"
		ALL(SAVE)
		"vzeroupper"
		: "+a"(ret)
		: "D"((long)dev), "S"((long)SITS_TEST_SM4_DO), "d"(&a), [from] "r"(ymm), [to] "r"(after)
		: "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
		  "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	assert_int_equal(ret, 0);
	assert_int_equal(a.result, 0);
	return !memcmp(ymm, after, sizeof(ymm));
}

static void test_registers_survive(void **state)
{
	static struct request r;

	if (!have_avx2()) {
		print_message("# skip: this processor has no AVX2\n");
		skip();
	}
	for (unsigned int v = 0; v < nr_variants; v++) {
		for (int i = 0; i < 100; i++) {
			new_request(&r, GCM, variants[v]);
			r.where = i % 4;
			one_piece(&r, 5000, 5000 + TAG);
			assert_true(registers_survive(&r, 5000));
		}
	}
}

static int setup(void **state)
{
	char block[PROC_CRYPTO_BYTES], driver[128];
	FILE *f;

	dev = open(SITS_TEST_SM4_DEV, O_RDWR | O_CLOEXEC);
	f = fopen("/proc/crypto", "re");
	if (dev < 0 || !f)
		return -1;
	while (nr_variants < 4 && proc_crypto_next(f, block))
		if (proc_crypto_field(block, "driver", driver) && sscanf(driver, "ctr-sm4-sits-%31s", variants[nr_variants]) == 1)
			nr_variants++;
	fclose(f);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_variants_are_there),
		cmocka_unit_test(test_each_cut),
		cmocka_unit_test(test_random_splits),
		cmocka_unit_test(test_long_runs),
		cmocka_unit_test(test_forgeries),
		cmocka_unit_test(test_lengths_that_are_refused),
		cmocka_unit_test(test_short_lists),
		cmocka_unit_test(test_registers_survive),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	return cmocka_run_group_tests_name("sm4_split", tests, setup, NULL);
}
