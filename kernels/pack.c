// SPDX-License-Identifier: MIT
/*
 * pack.c - weights into the packed order and back; see pack.h.
 */
#include "kernels/pack.h"

#include <errno.h>

#define LINE (4 * SITS_PACK_ROWS)

static uint8_t *put_dwords(uint8_t *lane, const uint8_t *src, size_t nr)
{
	for (size_t i = 0; i < nr; i++, lane += LINE)
		memcpy(lane, src + 4 * i, 4);
	return lane;
}

static void pack_row(uint32_t type, const uint8_t *src, uint64_t K, uint8_t *lane)
{
	uint64_t blocks;
	uint32_t bytes;
	int d_at;

	if (type == SITS_I8C) {
		put_dwords(lane, src, 1 + K / 4);
		return;
	}
	bytes = sits_pack_block(type, &d_at);
	blocks = K / sits_dtype_info(type)->block_elems;
	for (uint64_t i = 0; i < blocks; i++, src += bytes) {
		if (d_at < 0) {
			lane = put_dwords(lane, src, bytes / 4);
			continue;
		}
		if (i % 2 == 0) {
			uint8_t d[4] = { 0 };

			memcpy(d, src + d_at, 2);
			if (i + 1 < blocks)
				memcpy(d + 2, src + bytes + d_at, 2);
			lane = put_dwords(lane, d, 1);
		}
		lane = put_dwords(lane, src + (d_at ? 0 : 2), (bytes - 2) / 4);
	}
}

static void unpack_row(uint32_t type, const uint8_t *lane, uint64_t K, uint8_t *dst)
{
	uint64_t blocks;
	uint32_t bytes;
	int d_at;

	if (type == SITS_I8C) {
		for (uint64_t i = 0; i < 1 + K / 4; i++)
			memcpy(dst + 4 * i, lane + LINE * i, 4);
		return;
	}
	bytes = sits_pack_block(type, &d_at);
	blocks = K / sits_dtype_info(type)->block_elems;
	for (uint64_t i = 0; i < blocks; i++)
		sits_pack_load(type, lane, i, dst + i * bytes);
}

/* Sizes of a plain and a packed row, or false where there are none. */
static bool sizes(uint32_t type, uint64_t K, uint64_t N, uint64_t *plain, uint64_t *packed)
{
	if (type & SITS_PACKED || !sits_dtype_matrix_bytes(type, K, N))
		return false;
	*plain = sits_dtype_row_bytes(type, K);
	*packed = sits_dtype_row_bytes(type | SITS_PACKED, K);
	return *packed && sits_dtype_matrix_bytes(type | SITS_PACKED, K, N);
}

int sits_pack_rows(uint32_t type, const void *src, uint64_t K, uint64_t N, void *dst)
{
	uint64_t plain, packed;

	if (!sizes(type, K, N, &plain, &packed))
		return -EINVAL;
	if (N % SITS_PACK_ROWS)
		memset((uint8_t *)dst + N / SITS_PACK_ROWS * SITS_PACK_ROWS * packed, 0, SITS_PACK_ROWS * packed);
	for (uint64_t n = 0; n < N; n++)
		pack_row(type, (const uint8_t *)src + n * plain, K, (uint8_t *)dst + n / SITS_PACK_ROWS * SITS_PACK_ROWS * packed +
			 n % SITS_PACK_ROWS * 4);
	return 0;
}

int sits_unpack_rows(uint32_t type, const void *src, uint64_t K, uint64_t N, void *dst)
{
	uint64_t plain, packed;

	if (!sizes(type, K, N, &plain, &packed))
		return -EINVAL;
	for (uint64_t n = 0; n < N; n++)
		unpack_row(type, sits_dtype_row(type | SITS_PACKED, src, packed, n), K, (uint8_t *)dst + n * plain);
	return 0;
}
