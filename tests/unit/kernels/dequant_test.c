// SPDX-License-Identifier: MIT
/*
 * dequant_test.c - type facts, halves and dequantisation, on every backend usable here.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

struct dequant_vector {
	const char *name;
	uint32_t type;
	size_t n;
	uint8_t raw[256];
	uint32_t want[256];
};
#include "tests/vectors/dequant_vectors.h"

#define NR_VECTORS (sizeof(dequant_vectors) / sizeof(dequant_vectors[0]))

static size_t row_bytes(uint32_t type, size_t n)
{
	const struct sits_dtype_info *info = sits_dtype_info(type);

	return n / info->block_elems * info->block_bytes;
}

static void types_have_the_sizes_of_the_format(void **state)
{
	/* Source: GGML_QUANT_SIZES of the Python package gguf. */
	static const struct { uint32_t type, elems, bytes; const char *name; } want[] = {
		{ 0, 1, 4, "F32" }, { 1, 1, 2, "F16" }, { 2, 32, 18, "Q4_0" }, { 3, 32, 20, "Q4_1" },
		{ 6, 32, 22, "Q5_0" }, { 7, 32, 24, "Q5_1" }, { 8, 32, 34, "Q8_0" }, { 12, 256, 144, "Q4_K" },
		{ 13, 256, 176, "Q5_K" }, { 14, 256, 210, "Q6_K" }, { 30, 1, 2, "BF16" },
	};
	size_t known = 0;

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct sits_dtype_info *info = sits_dtype_info(want[i].type);

		assert_non_null(info);
		assert_string_equal(info->name, want[i].name);
		assert_int_equal(info->block_elems, want[i].elems);
		assert_int_equal(info->block_bytes, want[i].bytes);
	}
	for (uint32_t t = 0; t < 300; t++)
		known += !!sits_dtype_info(t);
	assert_int_equal(known, sizeof(want) / sizeof(want[0]));
	assert_null(sits_dtype_info(UINT32_MAX));
}

static void half_corner_cases(void **state)
{
	static const struct { uint16_t h; uint32_t f; } exact[] = {
		{ 0x0000, 0x00000000 }, { 0x8000, 0x80000000 }, { 0x3c00, 0x3f800000 }, { 0xc000, 0xc0000000 },
		{ 0x7bff, 0x477fe000 }, { 0x0400, 0x38800000 }, { 0x03ff, 0x387fc000 }, { 0x0001, 0x33800000 },
		{ 0x8001, 0xb3800000 }, { 0x7c00, 0x7f800000 }, { 0xfc00, 0xff800000 },
	};
	static const struct { float f; uint16_t h; } rounded[] = {
		{ 65504.0f, 0x7bff }, { 65519.996f, 0x7bff }, { 65520.0f, 0x7c00 }, { 1e30f, 0x7c00 },
		{ 1.00048828125f, 0x3c00 }, { 1.00146484375f, 0x3c02 }, { 0x1.002002p0f, 0x3c01 },
		{ 0x1p-25f, 0x0000 }, { 0x1.000002p-25f, 0x0001 }, { 0x1.8p-24f, 0x0002 }, { 0x1.ffcp-15f, 0x0400 },
		{ -1e-30f, 0x8000 },
	};

	for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++) {
		assert_int_equal(sits_f32_bits(sits_f16_to_f32(exact[i].h)), exact[i].f);
		assert_int_equal(sits_f32_to_f16(sits_bits_f32(exact[i].f)), exact[i].h);
	}
	for (size_t i = 0; i < sizeof(rounded) / sizeof(rounded[0]); i++)
		assert_int_equal(sits_f32_to_f16(rounded[i].f), rounded[i].h);
	for (uint32_t h = 0; h < 0x10000; h++) {
		float f = sits_f16_to_f32((uint16_t)h);

		if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff))
			assert_true(isnan(f) && isnan(sits_f16_to_f32(sits_f32_to_f16(f))));
		else
			assert_int_equal(sits_f32_to_f16(f), h);
	}
}

/* Known answers, at every misalignment of the source. */
static void check_vectors(const struct sits_backend *b)
{
	uint8_t raw[256 + 64];
	float got[256 + 1];

	for (size_t i = 0; i < NR_VECTORS; i++) {
		const struct dequant_vector *v = &dequant_vectors[i];

		for (size_t shift = 0; shift < 17; shift++) {
			memcpy(raw + shift, v->raw, row_bytes(v->type, v->n));
			got[v->n] = 1234.5f;
			b->dequant(v->type, raw + shift, got, v->n);
			for (size_t k = 0; k < v->n; k++) {
				if (sits_f32_bits(got[k]) != v->want[k])
					fail_msg("%s %s element %zu: %08x, not %08x", b->name, v->name, k,
						 sits_f32_bits(got[k]), v->want[k]);
			}
			assert_true(got[v->n] == 1234.5f);
		}
	}
}

/* Float types have rows of any length; the source ends where its buffer ends. */
static void check_float_tails(const struct sits_backend *b)
{
	static const uint32_t types[] = { SITS_F32, SITS_F16, SITS_BF16 };

	for (size_t i = 0; i < 3; i++) {
		for (size_t n = 1; n < 70; n++) {
			size_t bytes = row_bytes(types[i], n);
			uint8_t *src = malloc(bytes);
			float *got = malloc(n * sizeof(float)), one;

			for (size_t k = 0; k < bytes; k++)
				src[k] = (uint8_t)((k * 37 + n) & 0x7f) % (k & 1 ? 0x3f : 0x7f);
			b->dequant(types[i], src, got, n);
			for (size_t k = 0; k < n; k++) {
				sits_backend_get("ref")->dequant(types[i], src + row_bytes(types[i], k), &one, 1);
				assert_int_equal(sits_f32_bits(got[k]), sits_f32_bits(one));
			}
			free(got);
			free(src);
		}
	}
}

static void check_specials(const struct sits_backend *b)
{
	static const uint16_t f16[] = { 0x7c00, 0xfc00, 0x7e01, 0x0001, 0x8000, 0x83ff };
	static const uint16_t bf16[] = { 0x7f80, 0xff80, 0x7fc1, 0x0001, 0x8000, 0x807f };
	uint8_t q[34] = { 0x00, 0x7c, 1, 0xff };	/* Q8_0 with d = Inf */
	float got[32];

	b->dequant(SITS_F16, f16, got, 6);
	assert_true(got[0] == INFINITY && got[1] == -INFINITY && isnan(got[2]));
	for (size_t k = 3; k < 6; k++)
		assert_int_equal(sits_f32_bits(got[k]), sits_f32_bits(sits_f16_to_f32(f16[k])));
	b->dequant(SITS_BF16, bf16, got, 6);
	assert_true(got[0] == INFINITY && got[1] == -INFINITY && isnan(got[2]));
	for (size_t k = 3; k < 6; k++)
		assert_int_equal(sits_f32_bits(got[k]), (uint32_t)bf16[k] << 16);
	b->dequant(SITS_Q8_0, q, got, 32);
	assert_true(got[0] == INFINITY && got[1] == -INFINITY && isnan(got[2]));
}

static void every_type_matches_the_python_package(void **state)
{
	const struct sits_backend *b;

	for (size_t i = 0; (b = sits_backend_at(i)); i++) {
		if (!b->usable()) {
			print_message("# %s: not usable on this machine\n", b->name);
			continue;
		}
		check_vectors(b);
		check_float_tails(b);
		check_specials(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_have_the_sizes_of_the_format),
		cmocka_unit_test(half_corner_cases),
		cmocka_unit_test(every_type_matches_the_python_package),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("kernels dequant", tests, NULL, NULL);
}
