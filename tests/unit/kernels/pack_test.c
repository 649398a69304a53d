// SPDX-License-Identifier: MIT
/*
 * pack_test.c - the packed order of weights: where each byte goes, the way back, sizes.
 */
#include <errno.h>

#include "tests/unit/kernels/util.h"

static const uint32_t plain_types[] = {
	SITS_Q4_0, SITS_Q4_1, SITS_Q5_0, SITS_Q5_1, SITS_Q8_0, SITS_Q4_K, SITS_Q5_K, SITS_Q6_K, SITS_I8C,
};
#define NR_PLAIN (sizeof(plain_types) / sizeof(plain_types[0]))

static void round_trip(uint32_t type, size_t K, size_t N)
{
	size_t plain = sits_dtype_matrix_bytes(type, K, N), packed = sits_dtype_matrix_bytes(PACKED(type), K, N);
	uint8_t *w = xalloc(plain), *p = xalloc(packed), *back = xalloc(plain);
	float *a = xalloc(K * sizeof(float)), *b = xalloc(K * sizeof(float));

	assert_true(plain && packed && packed % 64 == 0);
	rnd_matrix(type, w, K, N);
	memset(p, 0xa5, packed);
	assert_int_equal(sits_pack_rows(type, w, K, N, p), 0);
	assert_int_equal(sits_unpack_rows(type, p, K, N, back), 0);
	assert_memory_equal(w, back, plain);
	for (size_t n = 0; n < N; n += 1 + N / 3) {	/* a row of it, read in place */
		ref()->dequant(type, w + n * sits_dtype_row_bytes(type, K), a, K);
		ref()->dequant(PACKED(type), sits_dtype_row(PACKED(type), p, sits_dtype_row_bytes(PACKED(type), K), n), b, K);
		assert_true(same_bits(a, b, K));
	}
	for (size_t i = 0; N % 16 && i < packed / 64; i++) {	/* lanes past N in the last strip, in each line of it */
		if (i >= packed / 64 * (N / 16) / ((N + 15) / 16)) {
			for (size_t at = 4 * (N % 16); at < 64; at++)
				assert_int_equal(p[64 * i + at], 0);
		}
	}
	free(w);
	free(p);
	free(back);
	free(a);
	free(b);
}

static void every_type_comes_back_as_it_was(void **state)
{
	static const size_t blocks[] = { 1, 2, 3, 8, 9 }, rows[] = { 1, 15, 16, 17, 40 };

	for (size_t i = 0; i < NR_PLAIN; i++) {
		for (size_t k = 0; k < 5; k++) {
			for (size_t n = 0; n < 5; n++)
				round_trip(plain_types[i], blocks[k] * sits_dtype_info(plain_types[i])->block_elems, rows[n]);
		}
	}
}

/* Two strips of Q8_0 with rows of three blocks, each byte of row r numbered: where they lie is drawn in pack.h. */
static void bytes_lie_where_the_drawing_says(void **state)
{
	enum { ROW = 3 * 34, STRIP = 16 * (2 * 4 + 3 * 32) };
	uint8_t w[17 * ROW], p[2 * STRIP], *lane;

	assert_int_equal(sits_dtype_matrix_bytes(PACKED(SITS_Q8_0), 96, 17), sizeof(p));
	for (size_t i = 0; i < sizeof(w); i++)
		w[i] = (uint8_t)(i % ROW + i / ROW);
	assert_int_equal(sits_pack_rows(SITS_Q8_0, w, 96, 17, p), 0);
	for (size_t r = 0; r < 17; r++) {
		const uint8_t *row = w + r * ROW;

		lane = p + r / 16 * STRIP + r % 16 * 4;
		assert_memory_equal(lane, row, 2);			/* d0 */
		assert_memory_equal(lane + 2, row + 34, 2);		/* d1 */
		for (size_t i = 0; i < 8; i++) {
			assert_memory_equal(lane + 64 * (1 + i), row + 2 + 4 * i, 4);
			assert_memory_equal(lane + 64 * (9 + i), row + 36 + 4 * i, 4);
			assert_memory_equal(lane + 64 * (18 + i), row + 70 + 4 * i, 4);
		}
		assert_memory_equal(lane + 64 * 17, row + 68, 2);	/* d2, and nothing beside it */
		assert_int_equal(lane[64 * 17 + 2] | lane[64 * 17 + 3], 0);
	}
}

static void sizes_are_exact(void **state)
{
	static const struct { uint32_t type; uint64_t K, N, row, matrix; } want[] = {
		{ SITS_F32, 3, 5, 12, 60 }, { SITS_BF16, 3, 5, 6, 30 }, { SITS_Q8_0, 64, 3, 68, 204 },
		{ SITS_I8C, 64, 3, 68, 204 }, { PACKED(SITS_I8C), 64, 3, 68, 16 * 68 },
		{ PACKED(SITS_Q8_0), 64, 17, 68, 32 * 68 }, { PACKED(SITS_Q8_0), 32, 16, 36, 16 * 36 },
		{ PACKED(SITS_Q4_1), 32, 16, 20, 320 }, { PACKED(SITS_Q4_K), 256, 16, 144, 2304 },
		{ PACKED(SITS_Q6_K), 256, 1, 212, 16 * 212 }, { PACKED(SITS_Q6_K), 512, 1, 420, 16 * 420 },
		{ SITS_I8C, SITS_I8C_MAX_K, 1, SITS_I8C_MAX_K + 4, SITS_I8C_MAX_K + 4 },
		/* no such row or matrix */
		{ SITS_I8C, SITS_I8C_MAX_K + 32, 1, 0, 0 }, { PACKED(SITS_I8C), SITS_I8C_MAX_K + 32, 1, 0, 0 },
		{ SITS_Q8_0, 33, 1, 0, 0 }, { SITS_Q8_0, 0, 1, 0, 0 }, { SITS_F32, 0, 1, 0, 0 }, { SITS_Q8_0, 32, 0, 34, 0 },
		{ SITS_F32, UINT64_MAX, 1, 0, 0 }, { SITS_F32, UINT64_C(1) << 61, 2, UINT64_C(1) << 63, 0 },
		{ PACKED(SITS_Q6_K), UINT64_C(1) << 63, 1, UINT64_C(420) << 54, 0 }, { PACKED(SITS_Q8_0), UINT64_MAX - 31, 1, 0, 0 },
		{ PACKED(SITS_Q8_0), 32, UINT64_MAX, 36, 0 }, { PACKED(SITS_Q8_0), 32, UINT64_MAX - 16, 36, 0 },
		{ PACKED(SITS_F32), 32, 16, 0, 0 }, { PACKED(SITS_BF16), 32, 16, 0, 0 }, { PACKED(4), 32, 16, 0, 0 },
		{ 4, 32, 1, 0, 0 }, { UINT32_MAX, 32, 1, 0, 0 }, { SITS_I8C + 1, 32, 1, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		assert_int_equal(sits_dtype_row_bytes(want[i].type, want[i].K), want[i].row);
		assert_int_equal(sits_dtype_matrix_bytes(want[i].type, want[i].K, want[i].N), want[i].matrix);
	}
	for (size_t i = 0; i < NR_PLAIN; i++) {
		const struct sits_dtype_info *a = sits_dtype_info(plain_types[i]), *b = sits_dtype_info(PACKED(plain_types[i]));

		assert_int_equal(strncmp(a->name, b->name, strlen(a->name)), 0);
		assert_string_equal(b->name + strlen(a->name), "_P16");
	}
}

static void what_cannot_be_packed_is_refused(void **state)
{
	uint8_t w[64] = { 0 }, p[64];

	memset(p, 7, sizeof(p));
	assert_int_equal(sits_pack_rows(SITS_F32, w, 1, 1, p), -EINVAL);
	assert_int_equal(sits_pack_rows(SITS_F16, w, 1, 1, p), -EINVAL);
	assert_int_equal(sits_pack_rows(SITS_Q8_0, w, 31, 1, p), -EINVAL);
	assert_int_equal(sits_pack_rows(SITS_Q8_0, w, 32, 0, p), -EINVAL);
	assert_int_equal(sits_pack_rows(PACKED(SITS_Q8_0), w, 32, 1, p), -EINVAL);
	assert_int_equal(sits_pack_rows(4, w, 32, 1, p), -EINVAL);
	assert_int_equal(sits_unpack_rows(SITS_BF16, w, 1, 1, p), -EINVAL);
	assert_int_equal(sits_unpack_rows(SITS_I8C, w, SITS_I8C_MAX_K + 32, 1, p), -EINVAL);
	for (size_t i = 0; i < sizeof(p); i++)
		assert_int_equal(p[i], 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_comes_back_as_it_was),
		cmocka_unit_test(bytes_lie_where_the_drawing_says),
		cmocka_unit_test(sizes_are_exact),
		cmocka_unit_test(what_cannot_be_packed_is_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rng_init();
	return cmocka_run_group_tests_name("kernels pack", tests, NULL, NULL);
}
