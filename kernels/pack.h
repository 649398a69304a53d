/* SPDX-License-Identifier: MIT */
/*
 * pack.h - the order of packed weights, and the way into it and back. Done offline, before a model is sealed.
 *
 * A packed matrix is the same bytes as the plain one in strips of SITS_PACK_ROWS rows: dword i of row r of a strip lies
 * at byte 64 * i + 4 * r, so that one load of a cache line has the same dword of all the rows, and no shuffle is needed
 * to make a lane a row. The dwords of a row are those of its blocks in order. Blocks of 18, 22, 34 and 210 bytes are no whole
 * dwords: there two blocks' scales d (f16) share one dword that stands before the rest of the two,
 *
 *	| d0 d1 | rest of block 0 | rest of block 1 | d2 d3 | ...	(half empty before an odd last block)
 *
 * Rows past N in the last strip are zeros. The total is that of the plain matrix but for these and the odd last block.
 * Nothing in it depends on an instruction set: vectors of 8 lanes take half a line.
 */
#ifndef SITS_KERNELS_PACK_H
#define SITS_KERNELS_PACK_H

#include <string.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * sits_pack_rows() - Put a matrix into the packed order.
 * @type: the plain type, quantised (SITS_Q4_0 ... SITS_Q6_K, SITS_I8C)
 * @src: [N] rows of K elements, sits_dtype_row_bytes(type, K) apart
 * @dst: out, sits_dtype_matrix_bytes(type | SITS_PACKED, K, N) bytes; may not overlap @src
 *
 * Return: 0; -EINVAL where the type can't be packed, or K or N does not fit it.
 */
int sits_pack_rows(uint32_t type, const void *src, uint64_t K, uint64_t N, void *dst);

/** sits_unpack_rows() - The inverse of sits_pack_rows(): @src is packed, @dst plain. Return: as there. */
int sits_unpack_rows(uint32_t type, const void *src, uint64_t K, uint64_t N, void *dst);

#ifdef __cplusplus
}
#endif

/* Bytes of a block of a quantised type, and where its f16 scale stands if that goes before the pair; else -1. */
static inline uint32_t sits_pack_block(uint32_t type, int *d_at)
{
	*d_at = 0;
	switch (type) {
	case SITS_Q4_0:
		return 18;
	case SITS_Q5_0:
		return 22;
	case SITS_Q8_0:
		return 34;
	case SITS_Q6_K:
		*d_at = 208;
		return 210;
	default:
		*d_at = -1;
		return type == SITS_Q4_1 ? 20 : type == SITS_Q5_1 ? 24 : type == SITS_Q4_K ? 144 : 176;
	}
}

/* Dwords of a packed row of so many blocks (not SITS_I8C). */
static inline uint64_t sits_pack_dwords(uint32_t type, uint64_t blocks)
{
	int d_at;
	uint32_t bytes = sits_pack_block(type, &d_at);

	return d_at < 0 ? blocks * (bytes / 4) : (blocks + 1) / 2 + blocks * ((bytes - 2) / 4);
}

/* Block i of the packed row at @row (sits_dtype_row()), as it stands in the plain one (not SITS_I8C). */
static inline void sits_pack_load(uint32_t type, const uint8_t *row, size_t i, uint8_t *block)
{
	int d_at;
	uint32_t bytes = sits_pack_block(type, &d_at);
	size_t at = sits_pack_dwords(type, i), rest = d_at < 0 ? bytes : bytes - 2, step = 4 * SITS_PACK_ROWS;
	uint8_t *to = block + (d_at == 0 ? 2 : 0);

	if (d_at >= 0) {	/* the pair's scales stand before its first block */
		memcpy(block + d_at, row + step * (i % 2 ? at - 1 - rest / 4 : at) + 2 * (i % 2), 2);
		at += i % 2 ? 0 : 1;
	}
	for (size_t k = 0; k < rest / 4; k++)
		memcpy(to + 4 * k, row + step * (at + k), 4);
}

#endif
