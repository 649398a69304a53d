/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_impl.h - what the files of SM4 share among themselves; not for callers of crypto/.
 */
#ifndef SITS_CRYPTO_SM4_IMPL_H
#define SITS_CRYPTO_SM4_IMPL_H

#include "crypto/sm4.h"

/*
 * The bitsliced cores: any number of blocks under 32 round keys (encrypting or decrypting is a matter
 * of their order). dst may be src. A call costs as much as a whole batch even for one block.
 */
#define SITS_SM4_BS64_BLOCKS	16
#define SITS_SM4_BS128_BLOCKS	32
void sits_sm4_crypt_bs64(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks);
void sits_sm4_crypt_bs128(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks);

/* One batch of keystream: the ciphertexts of ctr, ctr + 1 .., whose last word counts modulo 2^32, alone. */
void sits_sm4_stream_bs64(const u32 rk[32], const u8 ctr[16], u8 *stream);
void sits_sm4_stream_bs128(const u32 rk[32], const u8 ctr[16], u8 *stream);

/* The fastest core for so many blocks. */
void sits_sm4_crypt_blocks(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks);

/* CTR. @wrap_bits: 128, or 32 for the counter of GCM, whose carry stops at the last word. */
void sits_sm4_ctr_crypt(const u32 rk[32], u8 ctr[16], u8 *dst, const u8 *src, size_t len, int wrap_bits);

#endif
