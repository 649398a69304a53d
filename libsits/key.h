/* SPDX-License-Identifier: MIT */
/*
 * key.h - what a key is inside libsits.
 */
#ifndef SITS_LIBSITS_KEY_H
#define SITS_LIBSITS_KEY_H

#include "crypto/sm4.h"
#include "sits/sealed.h"

/* Lives in a page of secret memory, made by sits_key_open(), freed by sits_key_close(); constant in between. */
struct sits_key {
	u8 raw[SITS_SM4_KEY_LEN];
	u8 id[SITS_KEY_ID_LEN];
};

/** sits_hex() - Lower-case hexadecimal digits of @len bytes, with a NUL: 2 * @len + 1 bytes at @out. Constant time. */
void sits_hex(const u8 *bytes, size_t len, char *out);

#endif
