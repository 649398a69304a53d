/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm3.h - the SM3 hash. Freestanding. Source: GB/T 32905-2016.
 */
#ifndef SITS_CRYPTO_SM3_H
#define SITS_CRYPTO_SM3_H

#include "crypto/port.h"

#define SITS_SM3_LEN 32

struct sits_sm3 {
	u32 state[8];
	u64 len_bytes;
	u8 buf[64];
};

void sits_sm3_init(struct sits_sm3 *s);
void sits_sm3_update(struct sits_sm3 *s, const void *data, size_t len);
void sits_sm3_final(struct sits_sm3 *s, u8 out[SITS_SM3_LEN]);	/* wipes s */

#endif
