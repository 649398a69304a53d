/* SPDX-License-Identifier: MIT */
/*
 * fuzz.h - what the fuzz targets share. A target is tests/fuzz/NAME_fuzz.c; build.mk here lists them.
 */
#ifndef SITS_TESTS_FUZZ_H
#define SITS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer's interface, all of it weak or looked up by name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* What must hold whatever the input is. */
#define FUZZ_CHECK(cond)								\
	do {										\
		if (!(cond)) {								\
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond);	\
			abort();							\
		}									\
	} while (0)

/* A message that promises to be one line of text. */
static inline void fuzz_check_words(const char *msg, size_t max)
{
	FUZZ_CHECK(msg[0]);
	FUZZ_CHECK(strnlen(msg, max) < max);
	for (; *msg; msg++)
		FUZZ_CHECK((uint8_t)*msg >= 0x20 && *msg != 0x7f);
}

/* xorshift64*: choices of a mutator, from libFuzzer's seed. */
static inline uint64_t fuzz_rand(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

#endif
