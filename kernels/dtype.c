// SPDX-License-Identifier: MIT
/*
 * dtype.c - facts of the tensor element types.
 *
 * Sizes as in the GGUF format's block structures (ggml-common.h of llama.cpp). What is inside a
 * block is drawn in quant.h, the order of packed rows in pack.h.
 */
#include "kernels/kernels.h"
#include "kernels/pack.h"

/* name, elements and bytes of a block */
#define QUANT_TYPES(X)					\
	X(Q4_0, 32, 18) X(Q4_1, 32, 20) X(Q5_0, 32, 22)	\
	X(Q5_1, 32, 24) X(Q8_0, 32, 34) X(Q4_K, 256, 144) \
	X(Q5_K, 256, 176) X(Q6_K, 256, 210)

#define PLAIN(type, elems, bytes) [SITS_##type] = { #type, elems, bytes },
#define PACKED(type, elems, bytes) [SITS_##type] = { #type "_P16", elems, bytes },

static const struct sits_dtype_info plain[] = {
	[SITS_F32] = { "F32", 1, 4 },
	[SITS_F16] = { "F16", 1, 2 },
	QUANT_TYPES(PLAIN)
	[SITS_BF16] = { "BF16", 1, 2 },
};

static const struct sits_dtype_info packed[] = { QUANT_TYPES(PACKED) };

static const struct sits_dtype_info i8c = { "I8C", 32, 32 }, i8c_packed = { "I8C_P16", 32, 32 };

static const struct sits_dtype_info *find(const struct sits_dtype_info *of, size_t nr, uint32_t type)
{
	return type < nr && of[type].name ? &of[type] : NULL;
}

const struct sits_dtype_info *sits_dtype_info(uint32_t type)
{
	if (type == SITS_I8C)
		return &i8c;
	if (type == (SITS_I8C | SITS_PACKED))
		return &i8c_packed;
	if (type & SITS_PACKED)
		return find(packed, sizeof(packed) / sizeof(packed[0]), type & ~(uint32_t)SITS_PACKED);
	return find(plain, sizeof(plain) / sizeof(plain[0]), type);
}

uint64_t sits_dtype_row_bytes(uint32_t type, uint64_t K)
{
	const struct sits_dtype_info *info = sits_dtype_info(type);
	uint32_t base = type & ~(uint32_t)SITS_PACKED;
	uint64_t blocks, bytes;

	if (!info || !K || K % info->block_elems)
		return 0;
	if (base == SITS_I8C)
		return K <= SITS_I8C_MAX_K ? sizeof(float) + K : 0;
	blocks = K / info->block_elems;
	if (__builtin_mul_overflow(blocks, (uint64_t)info->block_bytes, &bytes))
		return 0;
	if (!(type & SITS_PACKED))
		return bytes;
	return bytes <= UINT64_MAX - sizeof(uint32_t) ? sizeof(uint32_t) * sits_pack_dwords(base, blocks) : 0;
}

uint64_t sits_dtype_matrix_bytes(uint32_t type, uint64_t K, uint64_t N)
{
	uint64_t row = sits_dtype_row_bytes(type, K), bytes;

	if (type & SITS_PACKED) {
		if (N > UINT64_MAX - SITS_PACK_ROWS)
			return 0;
		N = (N + SITS_PACK_ROWS - 1) / SITS_PACK_ROWS * SITS_PACK_ROWS;
	}
	return __builtin_mul_overflow(row, N, &bytes) ? 0 : bytes;
}

const void *sits_dtype_row(uint32_t type, const void *w, size_t row_bytes, size_t n)
{
	if (type & SITS_PACKED)
		return (const uint8_t *)w + n / SITS_PACK_ROWS * SITS_PACK_ROWS * row_bytes + n % SITS_PACK_ROWS * sizeof(uint32_t);
	return (const uint8_t *)w + n * row_bytes;
}
