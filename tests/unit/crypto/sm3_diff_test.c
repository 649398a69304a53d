// SPDX-License-Identifier: MIT
/*
 * sm3_diff_test.c - SM3 in both its forms, the one that this processor has and the portable one, against OpenSSL: every length
 * to 8192, every alignment, pages that are not there, and more than 2^32 bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "tests/unit/crypto/reference.h"

#include <cmocka.h>

/* The same source once more, on a processor that has nothing. */
#define sits_sm3_init portable_init
#define sits_sm3_update portable_update
#define sits_sm3_final portable_final
#define sits_cpu_features no_features
#include "crypto/sm3.c"
#undef sits_sm3_init
#undef sits_sm3_update
#undef sits_sm3_final
#undef sits_cpu_features

u32 no_features(void)
{
	return 0;
}

void sits_sm3_init(struct sits_sm3 *s);
void sits_sm3_update(struct sits_sm3 *s, const void *data, size_t len);
void sits_sm3_final(struct sits_sm3 *s, u8 out[SITS_SM3_LEN]);

static const struct {
	const char *name;
	void (*init)(struct sits_sm3 *s);
	void (*update)(struct sits_sm3 *s, const void *data, size_t len);
	void (*final)(struct sits_sm3 *s, u8 out[SITS_SM3_LEN]);
} forms[] = {
	{ "this processor's", sits_sm3_init, sits_sm3_update, sits_sm3_final },
	{ "portable", portable_init, portable_update, portable_final },
};

#define NR_FORMS (sizeof(forms) / sizeof(forms[0]))
#define MAX 8192

/* In one call, or cut somewhere. */
static void check(const u8 *data, size_t len, size_t cut)
{
	u8 want[32], got[32];

	ref_sm3(want, data, len);
	for (size_t f = 0; f < NR_FORMS; f++) {
		struct sits_sm3 s;

		forms[f].init(&s);
		forms[f].update(&s, data, cut);
		forms[f].update(&s, data + cut, len - cut);
		forms[f].final(&s, got);
		if (memcmp(got, want, 32))
			fail_msg("%s, %zu bytes at %p, cut at %zu: wrong digest", forms[f].name, len, (const void *)data, cut);
	}
}

static void test_lengths(void **state)
{
	static u8 data[MAX + 64];

	test_fill(data, sizeof(data));
	for (size_t len = 0; len <= MAX; len++)
		check(data + test_random() % 64, len, test_random() % (len + 1));
	for (size_t off = 0; off < 64; off++) {
		for (size_t len = 0; len < 400; len += 1 + test_random() % 9)
			check(data + off, len, 0);
	}
}

/* The carries of the message schedule and of additions, where all bits are alike. */
static void test_patterns(void **state)
{
	static const u8 patterns[] = { 0x00, 0xff, 0x80, 0x01, 0x55, 0xaa };
	static u8 data[1024];

	for (size_t i = 0; i < sizeof(patterns); i++) {
		memset(data, patterns[i], sizeof(data));
		for (size_t len = 0; len <= sizeof(data); len += 1 + test_random() % 5)
			check(data, len, len / 2);
	}
}

static void test_missing_pages(void **state)
{
	u8 *p = mmap(NULL, 5 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED && !mprotect(p + 4096, 3 * 4096, PROT_READ | PROT_WRITE));
	test_fill(p + 4096, 3 * 4096);
	assert_int_equal(mprotect(p + 4096, 3 * 4096, PROT_READ), 0);
	for (size_t len = 0; len <= 3 * 4096; len += len < 600 ? 1 : 1 + test_random() % 200) {
		check(p + 4096, len, 0);
		check(p + 4 * 4096 - len, len, 0);
	}
}

/* The portable one counts by the same code. */
static void test_many_bits(void **state)
{
	const size_t piece = 1u << 20, nr = 513;
	u8 *data = malloc(piece), got[32], want[32];
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	struct sits_sm3 s;

	assert_true(data && ctx && EVP_DigestInit_ex(ctx, EVP_sm3(), NULL));
	test_fill(data, piece);
	sits_sm3_init(&s);
	for (size_t i = 0; i < nr; i++) {
		sits_sm3_update(&s, data, piece);
		assert_true(EVP_DigestUpdate(ctx, data, piece));
	}
	sits_sm3_final(&s, got);
	assert_true(EVP_DigestFinal_ex(ctx, want, NULL));
	assert_memory_equal(got, want, 32);
	EVP_MD_CTX_free(ctx);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_missing_pages),
		cmocka_unit_test(test_many_bits),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	return cmocka_run_group_tests_name("sm3 differential", tests, NULL, NULL);
}
