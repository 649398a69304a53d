/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_impl.h - what the files of SM4 share among themselves; not for callers of crypto/.
 */
#ifndef SITS_CRYPTO_SM4_IMPL_H
#define SITS_CRYPTO_SM4_IMPL_H

#include "crypto/sm4.h"

/*
 * The bitsliced ciphers of the portable core: any number of blocks under 32 round keys (encrypting or decrypting is a matter
 * of their order). dst may be src. A call costs as much as a whole batch even for one block.
 */
#define SITS_SM4_BS64_BLOCKS	16
#define SITS_SM4_BS128_BLOCKS	32
void sits_sm4_crypt_bs64(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks);
void sits_sm4_crypt_bs128(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks);

/* One batch of keystream: the ciphertexts of ctr, ctr + 1 .., whose last word counts modulo 2^32, alone. */
void sits_sm4_stream_bs64(const u32 rk[32], const u8 ctr[16], u8 *stream);
void sits_sm4_stream_bs128(const u32 rk[32], const u8 ctr[16], u8 *stream);

/* GHASH without instructions for it (ghash.c): the powers are made in each call that is long enough to want them. */
void sits_ghash_portable(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr_blocks);

/* The key schedule, with all forms (x86/asm_key.S); AES-NI and AVX2. */
void sits_sm4_make_keys_aesni(struct sits_sm4_rounds *enc, struct sits_sm4_rounds *dec, const u8 raw[16]);

/*
 * The tweak of XTS as two integers, and that of the next block: multiplied by t modulo t^128 + t^7 + t^2 + t + 1. IEEE 1619: a
 * little-endian number, whose bit i is the coefficient of t^i. GB/T 17964-2021: coefficients go from the most
 * significant bit of the first byte on, as in GHASH. t[0]: the first eight bytes.
 */
static inline void sits_xts_load(u64 t[2], const u8 tweak[16], bool gb)
{
	t[0] = gb ? sits_get_be64(tweak) : sits_get_le64(tweak);
	t[1] = gb ? sits_get_be64(tweak + 8) : sits_get_le64(tweak + 8);
}

static inline void sits_xts_store(u8 tweak[16], const u64 t[2], bool gb)
{
	if (gb) {
		sits_put_be64(tweak, t[0]);
		sits_put_be64(tweak + 8, t[1]);
	} else {
		sits_put_le64(tweak, t[0]);
		sits_put_le64(tweak + 8, t[1]);
	}
}

static inline void sits_xts_step(u64 t[2], bool gb)
{
	u64 first = t[0], second = t[1];

	if (gb) {
		t[0] = first >> 1 ^ ((0 - (second & 1)) & 0xe100000000000000ULL);
		t[1] = second >> 1 | first << 63;
	} else {
		t[0] = first << 1 ^ ((0 - (second >> 63)) & 0x87);
		t[1] = second << 1 | first >> 63;
	}
}

/*
 * Bracket the calls of a core. sits_core_enter() gives the core to call: the same, or the portable one where vector registers
 * may not be used here and now. Every key is good for both. In between: no more than SITS_SIMD_BYTES, and no sleeping.
 */
static inline const struct sits_sm4_core *sits_core_enter(const struct sits_sm4_core *core)
{
	return !core->needs || sits_simd_begin() ? core : &sits_sm4_portable;
}

static inline void sits_core_leave(const struct sits_sm4_core *entered)
{
	if (entered->needs)
		sits_simd_end();
}

/* How many of nr_blocks go to the core at once. */
static inline size_t sits_core_piece(size_t nr_blocks)
{
	return nr_blocks < SITS_SIMD_BYTES / 16 ? nr_blocks : SITS_SIMD_BYTES / 16;
}

/*
 * Wipe so much of the stack below the caller's frame, and the vector registers that compiled code uses (clean.c): after a call,
 * by which compiled code handled secrets. The depths are those of the modes' own functions, and of the portable core with
 * its 32 blocks in vectors or, in the kernel, 16 in integers.
 */
#define SITS_CLEAN_MODE		1536
#define SITS_CLEAN_PORTABLE	(SITS_HAVE_VECTORS ? 3840 : 3072)

#if SITS_HAVE_X86_USER
void sits_wipe_mode(u32 cpu_features);
void sits_wipe_portable(u32 cpu_features);

static inline void sits_clean(unsigned int stack_bytes)
{
	if (stack_bytes == SITS_CLEAN_MODE)
		sits_wipe_mode(sits_cpu_features());
	else
		sits_wipe_portable(sits_cpu_features());
}
#else
void sits_clean(unsigned int stack_bytes);
#endif

static inline void sits_xor(u8 *dst, const u8 *a, const u8 *b, size_t len)
{
	for (; len >= 8; len -= 8, dst += 8, a += 8, b += 8) {
		u64 x, y;

		memcpy(&x, a, 8);
		memcpy(&y, b, 8);
		x ^= y;
		memcpy(dst, &x, 8);
	}
	while (len--)
		*dst++ = *a++ ^ *b++;
}

#endif
