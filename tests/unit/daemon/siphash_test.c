// SPDX-License-Identifier: MIT
/*
 * siphash_test.c - the hash against the vectors of its authors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/siphash.h"

/* Source: the reference implementation's vectors.h, vectors_sip64: key 00 .. 0f, message 00 .. n-1. The one of 15 bytes is
 * the paper's appendix A. */
static void known_answers(void **state)
{
	static const struct { size_t len; uint64_t want; } cases[] = {
		{ 0, 0x726fdb47dd0e0e31u }, { 1, 0x74f839c593dc67fdu }, { 2, 0x0d6c8009d9a94f5au },
		{ 3, 0x85676696d7fb7e2du }, { 7, 0xab0200f58b01d137u }, { 8, 0x93f5f5799a932462u },
		{ 9, 0x9e0082df0ba9e4b0u }, { 15, 0xa129ca6149be45e5u },
	};
	static const uint64_t key[2] = { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u };
	uint8_t message[16];
	size_t i;

	for (i = 0; i < sizeof(message); i++)
		message[i] = i;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (sits_siphash(key, message, cases[i].len) != cases[i].want)
			fail_msg("%zu bytes: %016llx", cases[i].len,
				 (unsigned long long)sits_siphash(key, message, cases[i].len));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(known_answers) };

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
