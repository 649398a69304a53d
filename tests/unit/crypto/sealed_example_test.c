// SPDX-License-Identifier: MIT
/*
 * sealed_example_test.c - the worked example of docs/sealed-file.md is what the code writes.
 *
 * Without arguments it is the test. --print gives the example's text for the document, --write PATH the file.
 */
#include <setjmp.h>
#include <stdarg.h>

#include "crypto/sealed.h"
#include "tests/unit/crypto/reference.h"

#include <cmocka.h>

#define CHUNK		4096u
#define PLAIN_BYTES	4101u
#define FILE_BYTES	(8192u + PLAIN_BYTES)

static uint8_t file[FILE_BYTES];

static void put_hex(FILE *out, const char *name, const uint8_t *p, size_t len)
{
	fprintf(out, "%-26s", name);
	for (size_t i = 0; i < len; i++)
		fprintf(out, "%02x%s", p[i], i + 1 == len ? "\n" : i % 32 == 31 ? "\n                          " : "");
}

/* Rows of 16 bytes that are not all zero. */
static void put_rows(FILE *out, size_t from, size_t to)
{
	for (; from < to; from += 16) {
		size_t n = to - from < 16 ? to - from : 16, i;

		for (i = 0; i < n && !file[from + i]; i++)
			;
		if (i == n)
			continue;
		fprintf(out, "%06zx ", from);
		for (i = 0; i < n; i++)
			fprintf(out, " %02x", file[from + i]);
		fprintf(out, "\n");
	}
}

static void put_example(FILE *out)
{
	uint8_t kek[16], random[SITS_SEALED_RANDOM_LEN], id[16], digest[32], aad[48], nonce[12];
	struct sits_sealed_file f;
	struct sits_sm3 s;

	test_unhex(kek, 16, "0123456789abcdeffedcba9876543210");
	test_unhex(random, sizeof(random), "a0a1a2a3a4a5a6a7 000102030405060708090a0b0c0d0e0f c0c1c2c3c4c5c6c7c8c9cacb");
	memset(file, 0, sizeof(file));
	assert(!sits_sealed_init(&f, file, kek, random, CHUNK, PLAIN_BYTES, "example-1b", 3));
	assert(f.hdr.file_bytes == FILE_BYTES && f.hdr.nr_chunks == 2);
	for (size_t i = 0; i < PLAIN_BYTES; i++)
		file[8192 + i] = (uint8_t)(i % 251);
	for (u64 i = 0; i < 2; i++)
		sits_sealed_chunk_seal(&f, i, file + 8192 + i * CHUNK, file + 4096 + 16 * i);

	fprintf(out, "Given\n");
	put_hex(out, "key-encryption key", kek, 16);
	put_hex(out, "file key", random + 8, 16);
	put_hex(out, "salt", random, 8);
	put_hex(out, "wrap nonce", random + 24, 12);
	fprintf(out, "chunk size                4096\n"
		"plaintext                 4101 bytes: byte i is i mod 251\n"
		"model id, version         example-1b, 3\n");

	fprintf(out, "\nHeader page, 0 to fff (rows of zeros left out)\n");
	put_rows(out, 0, 4096);
	sits_sealed_key_id(kek, id);
	sits_sealed_digest_init(&s, file);
	sits_sm3_final(&s, digest);
	put_hex(out, "key id", id, 16);
	put_hex(out, "immutable header's digest", digest, 32);

	for (u64 i = 0; i < 2; i++) {
		fprintf(out, "\nChunk %d\n", (int)i);
		memcpy(nonce, random, 8);
		sits_put_be32(nonce + 8, (u32)i);
		memset(aad, 0, sizeof(aad));
		memcpy(aad, digest, 32);
		aad[32] = (uint8_t)i;
		aad[40] = i == 1;
		put_hex(out, "nonce", nonce, 12);
		put_hex(out, "associated data", aad, 48);
		put_hex(out, i ? "ciphertext, all of it" : "ciphertext, first bytes", file + 8192 + i * CHUNK, i ? 5 : 32);
		put_hex(out, "tag", file + 4096 + 16 * i, 16);
	}

	fprintf(out, "\nTag table, 1000 to 101f, then zeros to 1fff\n");
	put_rows(out, 4096, 8192);
	fprintf(out, "\nCiphertext, 2000 to 3004, ends with\n");
	put_rows(out, 8192 + 4096 - 16, FILE_BYTES);
	sits_sealed_digest_init(&s, file);
	sits_sm3_update(&s, file + 4096, 32);
	sits_sm3_final(&s, digest);
	fprintf(out, "\n");
	put_hex(out, "file digest", digest, 32);
	sits_sm3_init(&s);
	sits_sm3_update(&s, file, sizeof(file));
	sits_sm3_final(&s, digest);
	put_hex(out, "SM3 of all 12293 bytes", digest, 32);
}

static char *read_all(const char *path)
{
	char *text = calloc(1, 1 << 20);
	FILE *in = fopen(path, "r");

	if (!in)
		fail_msg("%s: cannot be opened; tests run from the top of the tree", path);
	assert_true(fread(text, 1, (1 << 20) - 1, in) > 0);
	fclose(in);
	return text;
}

static void test_document_has_the_example(void **state)
{
	char *document = read_all("docs/sealed-file.md"), *example = NULL, *begin, *end;
	size_t size = 0;
	FILE *out = open_memstream(&example, &size);

	put_example(out);
	fclose(out);
	begin = strstr(document, "<!-- example -->\n```\n");
	assert_non_null(begin);
	begin += strlen("<!-- example -->\n```\n");
	end = strstr(begin, "```\n");
	assert_non_null(end);
	*end = 0;
	assert_string_equal(begin, example);
	free(document);
	free(example);
}

static void test_example_opens(void **state)
{
	uint8_t kek[16], plain[PLAIN_BYTES];
	struct sits_sealed_file f;
	FILE *out = fopen("/dev/null", "w");

	put_example(out);
	fclose(out);
	test_unhex(kek, 16, "0123456789abcdeffedcba9876543210");
	assert_int_equal(sits_sealed_unwrap(file, kek, &f, NULL), 0);
	assert_int_equal(sits_sealed_chunk_open(&f, 0, file + 8192, file + 4096), 0);
	assert_int_equal(sits_sealed_chunk_open(&f, 1, file + 8192 + CHUNK, file + 4112), 0);
	for (size_t i = 0; i < PLAIN_BYTES; i++)
		plain[i] = (uint8_t)(i % 251);
	assert_memory_equal(file + 8192, plain, PLAIN_BYTES);
}

static int write_file(const char *path)
{
	FILE *out = fopen("/dev/null", "w");

	put_example(out);
	fclose(out);
	out = fopen(path, "w");
	return !out || fwrite(file, sizeof(file), 1, out) != 1 || fclose(out);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_document_has_the_example),
		cmocka_unit_test(test_example_opens),
	};

	if (argc == 2 && !strcmp(argv[1], "--print")) {
		put_example(stdout);
		return 0;
	}
	if (argc == 3 && !strcmp(argv[1], "--write"))
		return write_file(argv[2]);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("sealed_example", tests, NULL, NULL);
}
