// SPDX-License-Identifier: MIT
/*
 * dtype.c - facts of the tensor element types.
 *
 * Sizes as in the GGUF format's block structures (ggml-common.h of llama.cpp). What is inside a
 * block is drawn in quant.h.
 */
#include "kernels/kernels.h"

static const struct sits_dtype_info infos[] = {
	[SITS_F32] = { "F32", 1, 4 },
	[SITS_F16] = { "F16", 1, 2 },
	[SITS_Q4_0] = { "Q4_0", 32, 18 },
	[SITS_Q4_1] = { "Q4_1", 32, 20 },
	[SITS_Q5_0] = { "Q5_0", 32, 22 },
	[SITS_Q5_1] = { "Q5_1", 32, 24 },
	[SITS_Q8_0] = { "Q8_0", 32, 34 },
	[SITS_Q4_K] = { "Q4_K", 256, 144 },
	[SITS_Q5_K] = { "Q5_K", 256, 176 },
	[SITS_Q6_K] = { "Q6_K", 256, 210 },
	[SITS_BF16] = { "BF16", 1, 2 },
};

const struct sits_dtype_info *sits_dtype_info(uint32_t type)
{
	if (type >= sizeof(infos) / sizeof(infos[0]) || !infos[type].name)
		return NULL;
	return &infos[type];
}
