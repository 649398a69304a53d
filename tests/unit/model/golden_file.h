/* SPDX-License-Identifier: MIT */
/*
 * golden_file.h - a golden file of tokenizers in memory, and the numbers in it. Include after cmocka.h.
 */
#ifndef SITS_TEST_GOLDEN_FILE_H
#define SITS_TEST_GOLDEN_FILE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
	uint8_t *p;
	size_t len, at;
};

/* In memory of exactly its length, so that reading past the end is seen by the sanitizer. */
static struct bytes slurp(const char *path)
{
	struct bytes b = { 0 };
	FILE *f = fopen(path, "rb");
	long len;

	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	len = ftell(f);
	assert_true(len > 0);
	rewind(f);
	b.len = (size_t)len;
	b.p = malloc(b.len);
	assert_non_null(b.p);
	assert_int_equal(fread(b.p, 1, b.len, f), b.len);
	fclose(f);
	return b;
}

static uint64_t varint(struct bytes *b)
{
	uint64_t v = 0;
	int shift = 0;

	do {
		assert_true(b->at < b->len && shift < 63);
		v |= (uint64_t)(b->p[b->at] & 0x7f) << shift;
		shift += 7;
	} while (b->p[b->at++] & 0x80);
	return v;
}

#endif
