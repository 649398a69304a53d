// SPDX-License-Identifier: MIT
/*
 * sealed_hdr_fuzz.c - the sealed file's header page. What parses adds up; nothing but what this program
 * sealed itself is ever authentic; a chunk that was touched is refused and wiped.
 *
 * Input: a page (cut or filled with zeros to 4096 bytes). The mutator starts from sealed pages.
 */
#include <errno.h>

#include "crypto/sealed.h"
#include "tests/fuzz/fuzz.h"

static const u8 kek[SITS_SM4_KEY_LEN] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

/* A page of these, sealed. False: the values are out of range. */
static bool seal_page(u8 page[SITS_SEALED_HDR_BYTES], uint64_t *rng)
{
	u8 random[SITS_SEALED_RANDOM_LEN];
	struct sits_sealed_file f;
	size_t i;

	for (i = 0; i < sizeof(random); i++)
		random[i] = (u8)fuzz_rand(rng);
	return !sits_sealed_init(&f, page, kek, random, SITS_SEALED_CHUNK_MIN << fuzz_rand(rng) % 14,
				 fuzz_rand(rng) >> fuzz_rand(rng) % 64, "model", fuzz_rand(rng) % 4);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	uint64_t rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	uint8_t part[64];
	size_t at;

	if (max_size < SITS_SEALED_HDR_BYTES)
		return LLVMFuzzerMutate(data, size, max_size);
	if (size != SITS_SEALED_HDR_BYTES || fuzz_rand(&rng) % 16 == 0)
		if (!seal_page(data, &rng))
			return LLVMFuzzerMutate(data, size, max_size);
	if (fuzz_rand(&rng) % 8 == 0)
		return SITS_SEALED_HDR_BYTES;
	/* The fields are in the first few hundred bytes. */
	at = (fuzz_rand(&rng) % 8 ? fuzz_rand(&rng) % 320 : fuzz_rand(&rng) % (SITS_SEALED_HDR_BYTES - sizeof(part))) & ~(size_t)3;
	memcpy(part, data + at, sizeof(part));
	(void)LLVMFuzzerMutate(part, 4 << fuzz_rand(&rng) % 5, 4 << 4);
	memcpy(data + at, part, 4 << fuzz_rand(&rng) % 5);
	return SITS_SEALED_HDR_BYTES;
}

static void check_facts(const struct sits_sealed_hdr *h)
{
	uint64_t chunks = h->nr_chunks, last;

	FUZZ_CHECK(h->version == 1);
	FUZZ_CHECK(h->chunk_bytes >= SITS_SEALED_CHUNK_MIN && h->chunk_bytes <= SITS_SEALED_CHUNK_MAX);
	FUZZ_CHECK(h->tags_off >= SITS_SEALED_HDR_BYTES && h->data_off % SITS_SEALED_ALIGN == 0);
	FUZZ_CHECK(h->tags_off + h->tags_bytes <= h->data_off);
	FUZZ_CHECK(h->file_bytes == h->data_off + h->data_bytes && h->data_bytes >= h->plain_bytes);
	FUZZ_CHECK(h->suite == SITS_SEALED_SUITE_ECB || h->tags_bytes == chunks * SITS_GCM_TAG_LEN);
	FUZZ_CHECK(strnlen(h->model_id, sizeof(h->model_id)) < sizeof(h->model_id));
	if (!chunks)
		return;
	last = sits_sealed_chunk_len(h, chunks - 1);
	FUZZ_CHECK(last <= h->chunk_bytes && (chunks - 1) * h->chunk_bytes + last == h->plain_bytes);
}

/* The first chunk sealed, opened, and refused with one bit changed. */
static void check_chunk(const struct sits_sealed_file *f, const u8 page[SITS_SEALED_HDR_BYTES])
{
	static u8 buf[SITS_SEALED_CHUNK_MIN];
	u8 tag[SITS_GCM_TAG_LEN];
	size_t n = sits_sealed_chunk_len(&f->hdr, 0), i;

	if (n > sizeof(buf) || f->hdr.suite != SITS_SEALED_SUITE_GCM)
		return;
	memcpy(buf, page, n);
	sits_sealed_chunk_seal(f, 0, buf, tag);
	FUZZ_CHECK(!sits_sealed_chunk_open(f, 0, buf, tag));
	FUZZ_CHECK(!memcmp(buf, page, n));
	sits_sealed_chunk_seal(f, 0, buf, tag);
	tag[page[100] % SITS_GCM_TAG_LEN] ^= 1;
	FUZZ_CHECK(sits_sealed_chunk_open(f, 0, buf, tag) == -EBADMSG);
	for (i = 0; i < n; i++)
		FUZZ_CHECK(!buf[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static u8 page[SITS_SEALED_HDR_BYTES], other[SITS_SM4_KEY_LEN] = { 9 };
	struct sits_sealed_hdr h, h2;
	struct sits_sealed_file f;
	const char *why = NULL;
	int ret, again;

	memset(page, 0, sizeof(page));
	memcpy(page, data, size < sizeof(page) ? size : sizeof(page));
	ret = sits_sealed_parse(page, &h, &why);
	FUZZ_CHECK(ret == 0 || ret == -EBADMSG || ret == -EPROTONOSUPPORT);
	FUZZ_CHECK(sits_sealed_parse(page, &h2, NULL) == ret);
	if (ret)
		FUZZ_CHECK(why && why[0]);
	else
		check_facts(&h);
	again = sits_sealed_unwrap(page, kek, &f, &why);
	FUZZ_CHECK(!ret || again == ret);
	FUZZ_CHECK(again == 0 || again == -EBADMSG || again == -EPROTONOSUPPORT || again == -ENOKEY);
	if (!again) {
		FUZZ_CHECK(!memcmp(&f.hdr, &h, sizeof(h)));
		check_chunk(&f, page);
		sits_wipe(&f, sizeof(f));
		FUZZ_CHECK(sits_sealed_unwrap(page, other, &f, &why) == -ENOKEY);
	}
	return 0;
}
