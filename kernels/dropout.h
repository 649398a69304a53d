/* SPDX-License-Identifier: MIT */
/*
 * dropout.h - the factors of four neighbouring weights: struct sits_attn_dropout, as every CPU backend does it.
 */
#ifndef SITS_KERNELS_DROPOUT_H
#define SITS_KERNELS_DROPOUT_H

#include "kernels/kernels.h"
#include "kernels/philox.h"

/* f[0 .. 3]: what the weights at positions j .. j + 3 (j a multiple of 4) are multiplied by. */
static inline void sits_dropout_factors(const struct sits_attn_dropout *d, size_t j, size_t pos, size_t stream, float f[4])
{
	uint32_t c[4] = { (uint32_t)(j / 4), (uint32_t)pos, d->stream + (uint32_t)stream, d->call };

	sits_philox4x32(c, d->key[0], d->key[1]);
	for (int i = 0; i < 4; i++)
		f[i] = c[i] < d->below ? 0 : d->scale;
}

#endif
