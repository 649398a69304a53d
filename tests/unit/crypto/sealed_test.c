// SPDX-License-Identifier: MIT
/* sealed_test.c - the sealed file's header page and chunks: what is written opens, what was changed is refused. */
#include <setjmp.h>
#include <stdarg.h>

#include "crypto/sealed.h"
#include "tests/unit/crypto/reference.h"

#include <cmocka.h>

#define PAGE	SITS_SEALED_HDR_BYTES
#define CHUNK	4096u

struct sample {
	uint8_t kek[16], random[SITS_SEALED_RANDOM_LEN], page[PAGE];
	struct sits_sealed_file f;
};

static void make(struct sample *s, uint32_t chunk_bytes, uint64_t plain_bytes)
{
	test_fill(s->kek, sizeof(s->kek));
	test_fill(s->random, sizeof(s->random));
	assert_int_equal(sits_sealed_init(&s->f, s->page, s->kek, s->random, chunk_bytes, plain_bytes, "model", 7), 0);
}

static void test_init_and_unwrap(void **state)
{
	struct sits_sealed_file f;
	const char *why = NULL;
	uint8_t id[16];
	struct sample s;

	make(&s, 1 << 20, 10000000);
	assert_int_equal(sits_sealed_unwrap(s.page, s.kek, &f, &why), 0);
	assert_memory_equal(&f, &s.f, sizeof(f));
	assert_int_equal(f.hdr.version, 1);
	assert_int_equal(f.hdr.suite, SITS_SEALED_SUITE_GCM);
	assert_int_equal(f.hdr.chunk_bytes, 1 << 20);
	assert_int_equal(f.hdr.plain_bytes, 10000000);
	assert_int_equal(f.hdr.model_version, 7);
	assert_string_equal(f.hdr.model_id, "model");
	assert_int_equal(f.hdr.nr_chunks, 10);
	assert_int_equal(f.hdr.tags_off, 4096);
	assert_int_equal(f.hdr.tags_bytes, 160);
	assert_int_equal(f.hdr.data_off, 8192);
	assert_int_equal(f.hdr.data_bytes, 10000000);
	assert_int_equal(f.hdr.file_bytes, 10008192);
	sits_sealed_key_id(s.kek, id);
	assert_memory_equal(f.hdr.key_id, id, 16);
	assert_null(why);
}

static void test_other_key(void **state)
{
	struct sits_sealed_file f, zero;
	const char *why = NULL;
	struct sample s;

	memset(&zero, 0, sizeof(zero));
	make(&s, CHUNK, 1);
	s.kek[5] ^= 1;
	assert_int_equal(sits_sealed_unwrap(s.page, s.kek, &f, &why), -ENOKEY);
	assert_string_equal(why, "key id");
	assert_memory_equal(&f, &zero, sizeof(f));
}

/* Every bit would be slow under sanitizers: every byte, one bit of it. */
static void test_each_header_byte(void **state)
{
	struct sits_sealed_file f, zero;
	struct sample s;

	memset(&zero, 0, sizeof(zero));
	make(&s, CHUNK, 12345);
	for (size_t i = 0; i < PAGE; i++) {
		uint8_t bit = (uint8_t)(1 << (test_random() & 7));
		const char *why = NULL;
		int ret, want = -EBADMSG;

		s.page[i] ^= bit;
		ret = sits_sealed_unwrap(s.page, s.kek, &f, &why);
		if (i >= SITS_SEALED_OFF_VERSION && i < SITS_SEALED_OFF_CHUNK_BYTES)
			want = -EPROTONOSUPPORT;
		if (i >= SITS_SEALED_OFF_KEY_ID && i < SITS_SEALED_OFF_NONCE)
			want = -ENOKEY;
		if (ret != want || !why || memcmp(&f, &zero, sizeof(f)))
			fail_msg("byte %zu ^ 0x%02x: %d (%s), wanted %d", i, bit, ret, why ? why : "no reason", want);
		s.page[i] ^= bit;
	}
	assert_int_equal(sits_sealed_unwrap(s.page, s.kek, &f, NULL), 0);
}

static void test_malformed_fields(void **state)
{
	static const struct {
		const char *why;
		size_t off;
		int bytes, err;
		uint64_t value;
	} cases[] = {
		{ "magic", 0, 8, EBADMSG, 0 },
		{ "version", 8, 4, EPROTONOSUPPORT, 0 },
		{ "version", 8, 4, EPROTONOSUPPORT, 2 },
		{ "suite", 12, 4, EPROTONOSUPPORT, 0 },
		{ "suite", 12, 4, EPROTONOSUPPORT, 2 },
		{ "chunk size", 16, 4, EBADMSG, 0 },
		{ "chunk size", 16, 4, EBADMSG, 2048 },
		{ "chunk size", 16, 4, EBADMSG, 4097 },
		{ "chunk size", 16, 4, EBADMSG, 12288 },
		{ "chunk size", 16, 4, EBADMSG, 32 << 20 },
		{ "chunk size", 16, 4, EBADMSG, 0x80000000 },
		{ "plaintext length", 24, 8, EBADMSG, ~0ull },
		{ "plaintext length", 24, 8, EBADMSG, (1ull << 44) + 1 },
		{ "plaintext length", 24, 8, EBADMSG, 1ull << 63 },
		{ "model id", 64, 1, EBADMSG, 0 },	/* text after the end */
		{ "model id", 66, 1, EBADMSG, '\n' },
		{ "model id", 66, 1, EBADMSG, 0x7f },
		{ "model id", 191, 1, EBADMSG, 'x' },
		{ "reserved bytes", 20, 4, EBADMSG, 1 },
		{ "reserved bytes", 48, 8, EBADMSG, 1 },
		{ "reserved bytes", 63, 1, EBADMSG, 1 },
		{ "reserved bytes", 220, 1, EBADMSG, 1 },
		{ "reserved bytes", 4063, 1, EBADMSG, 1 },
	};
	struct sits_sealed_hdr hdr;
	struct sample s;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *why = NULL;

		make(&s, CHUNK, 12345);
		for (int j = 0; j < cases[i].bytes; j++)
			s.page[cases[i].off + j] = (uint8_t)(cases[i].value >> 8 * j);
		assert_int_equal(sits_sealed_parse(s.page, &hdr, &why), -cases[i].err);
		assert_string_equal(why, cases[i].why);
		assert_int_equal(sits_sealed_parse(s.page, &hdr, NULL), -cases[i].err);
	}
}

static void test_model_id_fills_its_field_without_end(void **state)
{
	struct sits_sealed_hdr hdr;
	const char *why = NULL;
	struct sample s;

	make(&s, CHUNK, 1);
	memset(s.page + SITS_SEALED_OFF_MODEL_ID, 'a', SITS_SEALED_MODEL_ID_MAX);
	assert_int_equal(sits_sealed_parse(s.page, &hdr, &why), -EBADMSG);
	assert_string_equal(why, "model id");
}

static void test_init_refuses(void **state)
{
	char id[SITS_SEALED_MODEL_ID_MAX + 1];
	struct sits_sealed_file f;
	uint8_t kek[16] = { 0 }, random[SITS_SEALED_RANDOM_LEN] = { 0 }, page[PAGE];

	assert_int_equal(sits_sealed_init(&f, page, kek, random, 0, 1, "m", 0), -EINVAL);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 2048, 1, "m", 0), -EINVAL);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 5000, 1, "m", 0), -EINVAL);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 32 << 20, 1, "m", 0), -EINVAL);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 4096, (1ull << 44) + 1, "m", 0), -EINVAL);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 4096, ~0ull, "m", 0), -EINVAL);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 4096, 1ull << 44, "m", 0), 0);
	assert_int_equal(f.hdr.nr_chunks, 1ull << 32);
	memset(id, 'x', sizeof(id));
	id[SITS_SEALED_MODEL_ID_MAX] = 0;
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 4096, 1, id, 0), -EINVAL);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 4096, 1, "a\033[2J", 0), -EINVAL);
	id[SITS_SEALED_MODEL_ID_MAX - 1] = 0;
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 4096, 1, id, 0), 0);
	assert_string_equal(f.hdr.model_id, id);
	assert_int_equal(sits_sealed_init(&f, page, kek, random, 4096, 1, "", 0), 0);
}

/* A header signed by the key's holder, but for other values: every chunk must be refused under it. */
static void test_each_immutable_field_is_bound_to_chunks(void **state)
{
	static const size_t fields[] = { SITS_SEALED_OFF_PLAIN_BYTES, SITS_SEALED_OFF_MODEL_VERSION, SITS_SEALED_OFF_SALT,
					 SITS_SEALED_OFF_SALT + 7, SITS_SEALED_OFF_MODEL_ID + 4 };
	uint8_t buf[CHUNK], tag[16], page[PAGE], id[16], *at;
	struct sits_gcm_key kek, file_key;
	struct sits_sealed_file f;
	struct sample s;

	make(&s, CHUNK, 3 * CHUNK - 100);
	test_fill(buf, CHUNK);
	sits_sealed_chunk_seal(&s.f, 1, buf, tag);
	sits_gcm_set_key(&kek, s.kek);
	sits_gcm_set_key(&file_key, s.random + 8);
	sits_sealed_key_id(s.kek, id);
	for (size_t i = 0; i <= sizeof(fields) / sizeof(fields[0]); i++) {
		uint8_t copy[CHUNK];

		memcpy(page, s.page, PAGE);
		if (i < sizeof(fields) / sizeof(fields[0]))
			page[fields[i]] ^= 1;
		at = page + SITS_SEALED_OFF_WRAPPED_KEY;
		sits_gcm_encrypt(&kek, page + SITS_SEALED_OFF_NONCE, page, SITS_SEALED_OFF_WRAPPED_KEY, at,
				 s.random + 8, 16, page + SITS_SEALED_OFF_WRAP_TAG);
		assert_int_equal(sits_sealed_unwrap(page, s.kek, &f, NULL), 0);
		assert_memory_equal(&f.key, &file_key, sizeof(file_key));
		memcpy(copy, buf, CHUNK);
		assert_int_equal(sits_sealed_chunk_open(&f, 1, copy, tag),
				 i < sizeof(fields) / sizeof(fields[0]) ? -EBADMSG : 0);
	}
}

/* Seal a whole file in memory and open it again, chunk by chunk. */
static void round_trip(uint32_t chunk_bytes, uint64_t plain_bytes, uint64_t nr_chunks)
{
	size_t room = nr_chunks * chunk_bytes;
	uint8_t *plain = malloc(room), *data = malloc(room), (*tags)[16] = malloc(16 * nr_chunks);
	uint64_t sum = 0;
	struct sample s;

	make(&s, chunk_bytes, plain_bytes);
	assert_int_equal(s.f.hdr.nr_chunks, nr_chunks);
	test_fill(plain, room);
	memcpy(data, plain, room);
	for (uint64_t i = 0; i < nr_chunks; i++) {
		size_t len = sits_sealed_chunk_len(&s.f.hdr, i);

		sits_sealed_chunk_seal(&s.f, i, data + i * chunk_bytes, tags[i]);
		assert_true(len < 16 || memcmp(data + i * chunk_bytes, plain + i * chunk_bytes, len));
		sum += len;
	}
	assert_int_equal(sum, plain_bytes);
	assert_int_equal(sits_sealed_chunk_len(&s.f.hdr, nr_chunks), 0);
	for (uint64_t i = 0; i < nr_chunks; i++)
		assert_int_equal(sits_sealed_chunk_open(&s.f, i, data + i * chunk_bytes, tags[i]), 0);
	assert_memory_equal(data, plain, room);
	assert_int_equal(sits_sealed_chunk_open(&s.f, nr_chunks, data, tags[0]), -EBADMSG);
	free(plain);
	free(data);
	free(tags);
}

static void test_sizes(void **state)
{
	round_trip(CHUNK, 0, 1);
	round_trip(CHUNK, 1, 1);
	round_trip(CHUNK, CHUNK - 1, 1);
	round_trip(CHUNK, CHUNK, 1);
	round_trip(CHUNK, CHUNK + 1, 2);
	round_trip(CHUNK, 3 * CHUNK, 3);
	round_trip(8192, 8192 * 3 + 17, 4);
	round_trip(1 << 20, (1 << 20) + 5, 2);
}

/* Chunk i of the sample's file, CHUNK bytes each, nr of them, and its tag. */
static void seal(const struct sample *s, uint64_t i, uint8_t *buf, uint8_t *tag)
{
	memset(buf, (int)i, CHUNK);
	sits_sealed_chunk_seal(&s->f, i, buf, tag);
}

static void test_swapped_chunks(void **state)
{
	uint8_t a[CHUNK], b[CHUNK], zero[CHUNK] = { 0 }, tag_a[16], tag_b[16];
	struct sample s;

	make(&s, CHUNK, 3 * CHUNK);
	seal(&s, 0, a, tag_a);
	seal(&s, 1, b, tag_b);
	assert_int_equal(sits_sealed_chunk_open(&s.f, 0, b, tag_b), -EBADMSG);
	assert_memory_equal(b, zero, CHUNK);
	seal(&s, 1, b, tag_b);
	assert_int_equal(sits_sealed_chunk_open(&s.f, 1, b, tag_a), -EBADMSG);
	assert_int_equal(sits_sealed_chunk_open(&s.f, 2, a, tag_a), -EBADMSG);
}

static void test_chunks_of_another_file(void **state)
{
	struct sample s, other;
	uint8_t a[CHUNK], tag[16];

	make(&s, CHUNK, 3 * CHUNK);
	other = s;
	other.random[0] ^= 1;	/* same keys, another salt */
	assert_int_equal(sits_sealed_init(&other.f, other.page, other.kek, other.random, CHUNK, 3 * CHUNK, "model", 7), 0);
	seal(&other, 1, a, tag);
	assert_int_equal(sits_sealed_chunk_open(&s.f, 1, a, tag), -EBADMSG);
}

static void test_last_flag(void **state)
{
	struct sits_sealed_file longer;
	uint8_t a[CHUNK], tag[16];
	struct sample s;

	make(&s, CHUNK, 2 * CHUNK);
	longer = s.f;
	longer.hdr.nr_chunks = 3;	/* the digest is the same: only the flag differs */
	longer.hdr.plain_bytes += CHUNK;
	seal(&s, 1, a, tag);
	assert_int_equal(sits_sealed_chunk_open(&longer, 1, a, tag), -EBADMSG);
	seal(&s, 1, a, tag);
	assert_int_equal(sits_sealed_chunk_open(&s.f, 1, a, tag), 0);
}

static void test_chunk_bits(void **state)
{
	uint8_t a[CHUNK], copy[CHUNK], tag[16], zero[CHUNK] = { 0 };
	struct sample s;

	make(&s, CHUNK, 2 * CHUNK);
	seal(&s, 1, a, tag);
	for (int i = 0; i < 1000; i++) {
		size_t bit = test_random() % (8 * (CHUNK + 16));

		memcpy(copy, a, CHUNK);
		if (bit < 8 * CHUNK)
			copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		else
			tag[bit / 8 - CHUNK] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(sits_sealed_chunk_open(&s.f, 1, copy, tag), -EBADMSG);
		assert_memory_equal(copy, zero, CHUNK);
		if (bit >= 8 * CHUNK)
			tag[bit / 8 - CHUNK] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(sits_sealed_chunk_open(&s.f, 1, a, tag), 0);
}

static void test_empty_last_chunk_is_authenticated(void **state)
{
	uint8_t none[1] = { 0 }, tag[16];
	struct sample s;

	make(&s, CHUNK, 0);
	sits_sealed_chunk_seal(&s.f, 0, none, tag);
	assert_int_equal(sits_sealed_chunk_open(&s.f, 0, none, tag), 0);
	tag[3] ^= 4;
	assert_int_equal(sits_sealed_chunk_open(&s.f, 0, none, tag), -EBADMSG);
}

static void test_rewrap(void **state)
{
	uint8_t new_kek[16], nonce[12], before[PAGE], a[CHUNK], tag[16], digest[2][32];
	struct sits_sealed_file f;
	const char *why = NULL;
	struct sits_sm3 h;
	struct sample s;

	make(&s, CHUNK, 3 * CHUNK);
	seal(&s, 1, a, tag);
	memcpy(before, s.page, PAGE);
	test_fill(new_kek, 16);
	test_fill(nonce, 12);
	assert_int_equal(sits_sealed_rewrap(s.page, new_kek, s.kek, nonce, &why), -ENOKEY);
	assert_string_equal(why, "key id");
	assert_memory_equal(s.page, before, PAGE);
	s.page[4095] ^= 1;
	assert_int_equal(sits_sealed_rewrap(s.page, s.kek, new_kek, nonce, &why), -EBADMSG);
	assert_string_equal(why, "header tag");
	s.page[4095] ^= 1;
	assert_memory_equal(s.page, before, PAGE);

	assert_int_equal(sits_sealed_rewrap(s.page, s.kek, new_kek, nonce, &why), 0);
	assert_memory_equal(s.page, before, SITS_SEALED_IMMUTABLE_BYTES);
	assert_memory_equal(s.page + SITS_SEALED_OFF_NONCE, nonce, 12);
	assert_int_equal(sits_sealed_unwrap(s.page, s.kek, &f, NULL), -ENOKEY);
	assert_int_equal(sits_sealed_unwrap(s.page, new_kek, &f, NULL), 0);
	assert_int_equal(sits_sealed_chunk_open(&f, 1, a, tag), 0);
	sits_sealed_digest_init(&h, before);
	sits_sm3_final(&h, digest[0]);
	sits_sealed_digest_init(&h, s.page);
	sits_sm3_final(&h, digest[1]);
	assert_memory_equal(digest[0], digest[1], 32);
}

/* A file of suite 240 around one chunk and a bit, its key wrapped as in suite 1. */
static void test_ecb(void **state)
{
	enum { LEN = CHUNK + 21 };
	uint8_t plain[2 * CHUNK] = { 0 }, data[2 * CHUNK], zero[CHUNK] = { 0 }, tag[16];
	struct sits_sealed_file f;
	struct sits_gcm_key kek;
	const char *why = NULL;
	struct sample s;

	make(&s, CHUNK, LEN);
	s.page[SITS_SEALED_OFF_SUITE] = SITS_SEALED_SUITE_ECB;
	assert_int_equal(sits_sealed_parse(s.page, &f.hdr, &why), -EBADMSG);
	assert_string_equal(why, "salt");
	memset(s.page + SITS_SEALED_OFF_SALT, 0, 8);
	assert_int_equal(sits_sealed_unwrap(s.page, s.kek, &f, &why), -EBADMSG);
	assert_string_equal(why, "header tag");
	sits_gcm_set_key(&kek, s.kek);
	sits_gcm_encrypt(&kek, s.page + SITS_SEALED_OFF_NONCE, s.page, SITS_SEALED_OFF_WRAPPED_KEY,
			 s.page + SITS_SEALED_OFF_WRAPPED_KEY, s.random + 8, 16, s.page + SITS_SEALED_OFF_WRAP_TAG);
	assert_int_equal(sits_sealed_unwrap(s.page, s.kek, &f, &why), 0);
	assert_int_equal(f.hdr.suite, 240);
	assert_int_equal(f.hdr.nr_chunks, 2);
	assert_int_equal(f.hdr.tags_bytes, 0);
	assert_int_equal(f.hdr.data_off, 4096);
	assert_int_equal(f.hdr.data_bytes, CHUNK + 32);
	assert_int_equal(f.hdr.file_bytes, 2 * 4096 + 32);
	assert_int_equal(sits_sealed_chunk_len(&f.hdr, 1), 21);
	test_fill(plain, LEN);
	ref_ecb(1, s.random + 8, data, plain, CHUNK + 32);
	assert_int_equal(sits_sealed_chunk_open(&f, 0, data, NULL), 0);
	assert_int_equal(sits_sealed_chunk_open(&f, 1, data + CHUNK, NULL), 0);
	assert_memory_equal(data, plain, CHUNK + 32);
	sits_sealed_chunk_seal(&f, 0, data, tag);
	assert_memory_equal(data, zero, CHUNK);

	memset(s.page + SITS_SEALED_OFF_PLAIN_BYTES, 0, 8);
	assert_int_equal(sits_sealed_parse(s.page, &f.hdr, NULL), 0);
	assert_int_equal(f.hdr.nr_chunks, 0);
	assert_int_equal(f.hdr.file_bytes, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_init_and_unwrap),
		cmocka_unit_test(test_other_key),
		cmocka_unit_test(test_each_header_byte),
		cmocka_unit_test(test_malformed_fields),
		cmocka_unit_test(test_model_id_fills_its_field_without_end),
		cmocka_unit_test(test_init_refuses),
		cmocka_unit_test(test_each_immutable_field_is_bound_to_chunks),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_swapped_chunks),
		cmocka_unit_test(test_chunks_of_another_file),
		cmocka_unit_test(test_last_flag),
		cmocka_unit_test(test_chunk_bits),
		cmocka_unit_test(test_empty_last_chunk_is_authenticated),
		cmocka_unit_test(test_rewrap),
		cmocka_unit_test(test_ecb),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	return cmocka_run_group_tests_name("sealed", tests, NULL, NULL);
}
