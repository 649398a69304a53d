/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_core.h - what a variant of SM4 (a core) offers to the modes; not for callers of crypto/.
 *
 * A core works on whole blocks under keys that are ready for it; everything else (lengths that are no multiple of a block,
 * pieces of a message, associated data, tags, the choice of a core, and in the kernel the vector registers) is done once, in C,
 * by the modes. All functions of a core
 *  - take any number of blocks, also 0, and any alignment; dst may be src, else the two may not overlap;
 *  - take a time that depends on nr_blocks and addresses alone, never on keys or data (counters and tweaks are public);
 *  - leave no round key, keystream or text in vector registers or on the stack when they return;
 *  - call nothing and need no more than 4 KiB of stack.
 *
 * Source: GB/T 32907-2016 (SM4), GB/T 17964-2021 and NIST SP 800-38A, D, E (modes), IEEE Std 1619 (XTS).
 */
#ifndef SITS_CRYPTO_SM4_CORE_H
#define SITS_CRYPTO_SM4_CORE_H

#include "crypto/port.h"

/* What a processor, and its system, must have for a core. */
#define SITS_CPU_AVX2		(1u << 0)	/* with AVX and the system's keeping of ymm */
#define SITS_CPU_AESNI		(1u << 1)
#define SITS_CPU_PCLMUL		(1u << 2)
#define SITS_CPU_GFNI		(1u << 3)
#define SITS_CPU_VPCLMUL	(1u << 4)
#define SITS_CPU_AVX512		(1u << 5)	/* F, BW, VL, DQ, VBMI, with the system's keeping of zmm and masks */

#define SITS_CPU_BMI		(1u << 6)	/* BMI1 and BMI2: for SM3; asked in userspace alone */

/*
 * 32 round keys in the order of their use, in the forms that cores want; encrypting or decrypting is a matter of the order.
 *
 * @rk: as the standard has them
 * @affine: byte j of round key r, the most significant first, mapped by A1 (docs/sm4.md) and repeated four times: for cores that
 * keep the state in that domain, one broadcast of 32 bits each
 */
struct sits_sm4_rounds {
	u32 rk[32];
	u32 affine[32][4];
};

#define SITS_GHASH_POWERS	32

/*
 * @h: H as the standard has it, big-endian halves: what every core can start from
 * @powers: H^SITS_GHASH_POWERS .. H^1 in the form that the key's core wants; made by its ghash_key()
 */
struct sits_ghash_key {
	u64 h[2];
	u64 powers[SITS_GHASH_POWERS][2];
};

struct sits_sm4_core {
	const char *name;	/* "portable", "aesni-avx2", "gfni-avx2", "gfni-avx512" */
	u32 needs;		/* SITS_CPU_* */

	/* ECB, either way. */
	void (*crypt)(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks);
	/* iv: in the block before, out the last one of src. */
	void (*cbc_decrypt)(const struct sits_sm4_rounds *dec, u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks);
	/* ctr: big-endian, advanced by nr_blocks modulo 2^128, or 2^32 in its last four bytes. */
	void (*ctr128)(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t nr_blocks);
	void (*ctr32)(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t nr_blocks);
	/* XTS. tweak: in of the first block (already enciphered), out of the block after the last. @gb: doubles as GB/T 17964-2021
	 * does (bits of a byte from the most significant), not as IEEE 1619.
	 */
	void (*xts)(const struct sits_sm4_rounds *k, u8 tweak[16], u8 *dst, const u8 *src, size_t nr_blocks, bool gb);
	/* GHASH. y: running value, 16 bytes as the standard has them. */
	void (*ghash_key)(struct sits_ghash_key *key);
	void (*ghash)(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr_blocks);
	/* ctr32 and ghash over the ciphertext in one pass: of dst, or of src. */
	void (*gcm_encrypt)(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *dst,
			    const u8 *src, size_t nr_blocks);
	void (*gcm_decrypt)(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *dst,
			    const u8 *src, size_t nr_blocks);
};

/*
 * The portable core needs nothing, is always there, and works with any key: also with one that was made for another core (rk,
 * and h of the hash key, are all it looks at). The tables of the others are in crypto/x86/; what the assembler cannot do
 * is left out of the build, which defines SITS_HAVE_SM4_AESNI_AVX2, SITS_HAVE_SM4_GFNI_AVX2 and SITS_HAVE_SM4_GFNI_AVX512
 * for the others.
 */
extern const struct sits_sm4_core sits_sm4_portable;
#if defined(__x86_64__)
extern const struct sits_sm4_core sits_sm4_aesni_avx2;
extern const struct sits_sm4_core sits_sm4_gfni_avx2;
extern const struct sits_sm4_core sits_sm4_gfni_avx512;
#endif

/* SITS_CPU_* of this machine, asked once (x86/cpu.c). */
u32 sits_cpu_features(void);

/* All cores that this machine can run, the best first; *nr: out, at least 1. */
const struct sits_sm4_core *const *sits_sm4_cores(unsigned int *nr);

#endif
