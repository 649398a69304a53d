// SPDX-License-Identifier: MIT
/* sm3_test.c - SM3: the examples of the standard, OpenSSL, and messages fed in pieces. */
#include <setjmp.h>
#include <stdarg.h>

#include "crypto/sm3.h"
#include "tests/unit/crypto/reference.h"

#include <cmocka.h>

static void sm3(uint8_t out[32], const void *data, size_t len)
{
	struct sits_sm3 s;

	sits_sm3_init(&s);
	sits_sm3_update(&s, data, len);
	sits_sm3_final(&s, out);
}

static void test_vectors(void **state)
{
	static const struct {
		const char *source, *message, *digest;
	} vectors[] = {
		{ "GB/T 32905-2016, A.1", "abc", "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0" },
		{ "GB/T 32905-2016, A.2", "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcd",
		  "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732" },
	};

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint8_t got[32], want[32];

		test_unhex(want, 32, vectors[i].digest);
		sm3(got, vectors[i].message, strlen(vectors[i].message));
		assert_memory_equal(got, want, 32);
	}
}

static void test_lengths(void **state)
{
	static uint8_t data[1100];
	uint8_t got[32], want[32];

	test_fill(data, sizeof(data));
	for (size_t len = 0; len <= 1024; len++) {
		size_t off = test_random() % 64;

		sm3(got, data + off, len);
		ref_sm3(want, data + off, len);
		assert_memory_equal(got, want, 32);
	}
	sm3(got, NULL, 0);
	ref_sm3(want, data, 0);
	assert_memory_equal(got, want, 32);
}

static void test_pieces(void **state)
{
	static uint8_t data[5000];
	uint8_t got[32], want[32];

	test_fill(data, sizeof(data));
	ref_sm3(want, data, sizeof(data));
	for (int round = 0; round < 200; round++) {
		size_t at = 0, n, most = 1 + test_random() % 300;
		struct sits_sm3 s;

		sits_sm3_init(&s);
		for (; at < sizeof(data); at += n) {
			n = test_random() % (most + 1);
			n = n < sizeof(data) - at ? n : sizeof(data) - at;
			sits_sm3_update(&s, data + at, n);
		}
		sits_sm3_final(&s, got);
		assert_memory_equal(got, want, 32);
	}
}

static void test_final_wipes(void **state)
{
	struct sits_sm3 s, zero;
	uint8_t out[32];

	memset(&zero, 0, sizeof(zero));
	sits_sm3_init(&s);
	sits_sm3_update(&s, "secret", 6);
	sits_sm3_final(&s, out);
	assert_memory_equal(&s, &zero, sizeof(s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_final_wipes),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	return cmocka_run_group_tests_name("sm3", tests, NULL, NULL);
}
