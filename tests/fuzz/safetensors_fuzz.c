// SPDX-License-Identifier: MIT
/*
 * safetensors_fuzz.c - the safetensors reader. What opens covers the data without a gap.
 *
 * Input: 16 bits of how much data there is, with the highest bit set the file as it is follows, else its header.
 */
#include "daemon/model/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/json_mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	uint64_t rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	if (size < 3 || data[1] & 0x80 || fuzz_rand(&rng) % 16 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	return 2 + jm_mutate(data + 2, size - 2, max_size - 2, &rng);
}

static void check(const struct sits_st *s, const uint8_t *file, size_t len)
{
	const struct sits_st_tensor *t;
	const uint8_t *end = NULL;
	uint64_t sum = 0;
	size_t i, j;

	for (i = 0; i < sits_st_nr(s); i++) {
		t = sits_st_at(s, i);
		FUZZ_CHECK(t && t->name.len && strlen(t->name.p) == t->name.len && t->name.len <= SITS_ST_MAX_NAME);
		FUZZ_CHECK(t->nr_dims <= SITS_ST_MAX_DIMS && t->dtype);
		FUZZ_CHECK((const uint8_t *)t->data >= file + 8 && (const uint8_t *)t->data <= file + len);
		FUZZ_CHECK(t->bytes <= (uint64_t)(file + len - (const uint8_t *)t->data));
		FUZZ_CHECK(!end || t->data == end);
		end = (const uint8_t *)t->data + t->bytes;
		sum += t->bytes;
		for (j = 0; j < i && i < 64; j++)
			FUZZ_CHECK(strcmp(t->name.p, sits_st_at(s, j)->name.p));
	}
	FUZZ_CHECK(!end || end == file + len);
	FUZZ_CHECK(sum <= len && !sits_st_at(s, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sits_diag diag = { "" };
	struct sits_st *s = NULL;
	uint64_t header;
	uint8_t *file;
	size_t len, data_len;
	int ret;

	if (size < 2)
		return 0;
	data_len = data[0] | (data[1] & 0x7f) << 8;
	header = size - 2;
	len = data[1] & 0x80 ? size - 2 : 8 + size - 2 + data_len;
	file = calloc(1, len ? len : 1);	/* exactly as long: the sanitizer sees a byte too far */
	FUZZ_CHECK(file);
	if (data[1] & 0x80) {
		memcpy(file, data + 2, size - 2);
	} else {
		memcpy(file, &header, 8);
		memcpy(file + 8, data + 2, size - 2);
	}
	ret = sits_st_open("fuzz.safetensors", file, len, &s, &diag);
	if (ret)
		fuzz_check_words(diag.msg, sizeof(diag.msg));
	else
		check(s, file, len);
	FUZZ_CHECK(!ret == !!s);
	sits_st_close(s);
	free(file);
	return 0;
}
