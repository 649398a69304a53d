/* SPDX-License-Identifier: MIT */
/*
 * quants.h - rows of f32 weights to the element types of kernels/kernels.h; the other way is the backends' dequant().
 *
 * Q8_0, Q4_0 and Q5_0 follow the rounding rules of ggml's reference functions, so that files are those that others
 * would make, bit for bit. Q4_K has a scale and a minimum for each 32 elements, found by weighted least squares, then
 * looked for again among the neighbours of their 6-bit codes.
 */
#ifndef SITS_TOOLS_QUANTS_H
#define SITS_TOOLS_QUANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** quants_can() - Is there an encoder for this type? */
bool quants_can(uint32_t type);

/**
 * quants_row() - Encode one row.
 * @type: one that quants_can()
 * @x: [n] f32; borrowed
 * @n: elements, a multiple of the type's block
 * @dst: out: n / block_elems blocks of block_bytes, or one row of a type with a scale for each row; any alignment
 * Return: 0; -EDOM where an element is not finite; -ERANGE where one is too large for the type (an f16 scale or
 * element would be infinite). On failure @dst is undefined.
 */
int quants_row(uint32_t type, const float *x, size_t n, void *dst);

#endif
