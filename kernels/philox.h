/* SPDX-License-Identifier: MIT */
/*
 * philox.h - Philox4x32-10: random words as a function of a counter and a key, in no order.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4.3.
 */
#ifndef SITS_KERNELS_PHILOX_H
#define SITS_KERNELS_PHILOX_H

#include <stdint.h>

#define SITS_PHILOX_M0 0xd2511f53u	/* the paper's multipliers, table 2 */
#define SITS_PHILOX_M1 0xcd9e8d57u
#define SITS_PHILOX_W0 0x9e3779b9u	/* golden ratio, and sqrt(3) - 1 */
#define SITS_PHILOX_W1 0xbb67ae85u

static inline void sits_philox4x32(uint32_t c[4], uint32_t k0, uint32_t k1)
{
	for (int round = 0; round < 10; round++, k0 += SITS_PHILOX_W0, k1 += SITS_PHILOX_W1) {
		uint64_t a = (uint64_t)SITS_PHILOX_M0 * c[0], b = (uint64_t)SITS_PHILOX_M1 * c[2];

		c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
		c[1] = (uint32_t)b;
		c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
		c[3] = (uint32_t)a;
	}
}

#endif
