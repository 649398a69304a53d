// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4.c - the key schedule of SM4, in the forms that all cores want.
 *
 * The choice of a core is in sm4_cores.c, the modes in sm4_modes.c, xts.c and gcm.c.
 */
#include "crypto/sm4_impl.h"

typedef u32 word;

#include "crypto/sm4_sbox.h"

static const u32 family_key[4] = { 0xa3b1bac6, 0x56aa3350, 0x677d9197, 0xb27022dc };

/* Each plane holds the four bits of one weight where they are in x, so slicing is a shift and a mask. */
static u32 substitute(u32 x)
{
	word plane[8];
	u32 y = 0;
	int i;

	x ^= 0x01010101u * SITS_SM4_SBOX_IN;
	for (i = 0; i < 8; i++)
		plane[i] = x >> i & 0x01010101u;
	sm4_sbox(plane);
	for (i = 0; i < 8; i++)
		y |= (plane[i] & 0x01010101u) << i;
	return y ^ 0x01010101u * SITS_SM4_SBOX_OUT;
}

/* CK: byte j of word i is 7 (4 i + j) mod 256. */
static u32 schedule_constant(u32 i)
{
	u32 ck = 0, j;

	for (j = 0; j < 4; j++)
		ck = ck << 8 | (7 * (4 * i + j) & 0xff);
	return ck;
}

static u32 rotate_left(u32 x, int n)
{
	return x << n | x >> (32 - n);
}

/* Source: GB/T 32907-2016, clause 7.3. */
static sits_noinline void make_round_keys(u32 rk[32], const u8 raw[SITS_SM4_KEY_LEN])
{
	u32 k[4], i;

	for (i = 0; i < 4; i++)
		k[i] = sits_get_be32(raw + 4 * i) ^ family_key[i];
	for (i = 0; i < 32; i++) {
		u32 b = substitute(k[(i + 1) % 4] ^ k[(i + 2) % 4] ^ k[(i + 3) % 4] ^ schedule_constant(i));

		k[i % 4] ^= b ^ rotate_left(b, 13) ^ rotate_left(b, 23);
		rk[i] = k[i % 4];
	}
	sits_wipe(k, sizeof(k));
}

/*
 * A1, which leads into the domain where SM4's S-box is one GF2P8AFFINEINVQB and an affine map (docs/sm4.md), as what each bit of a
 * byte adds to the result, the least significant first. x86/gen_matrices.py derives it: SITS_AFFINE_A1 there, and the
 * constant of the S-box's input, SITS_AFFINE_C1, which is kept in the round keys.
 */
#define A1_CONSTANT 0x3e3e3e3eu
static const u8 a1_columns[8] = { 0x8c, 0x30, 0x85, 0x9f, 0xdc, 0x2e, 0xc5, 0x08 };

static u32 map_a1(u32 x)
{
	u32 y = A1_CONSTANT;
	int i;

	for (i = 0; i < 8; i++)
		y ^= (x >> i & 0x01010101u) * a1_columns[i];
	return y;
}

static sits_noinline void make_forms(struct sits_sm4_key *key)
{
	u32 i, j;

	for (i = 0; i < 32; i++) {
		u32 mapped = map_a1(key->enc.rk[i]);

		key->dec.rk[31 - i] = key->enc.rk[i];
		for (j = 0; j < 4; j++) {
			u32 byte = (mapped >> (24 - 8 * j) & 0xff) * 0x01010101u;

			key->enc.affine[i][j] = byte;
			key->dec.affine[31 - i][j] = byte;
		}
	}
}

/* By assembly, for cores that are. Return: false where it cannot be used here and now. */
static bool make_keys_fast(struct sits_sm4_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
#ifdef SITS_HAVE_SM4_AESNI_AVX2
	const u32 needs = SITS_CPU_AVX2 | SITS_CPU_AESNI;

	if (key->core->needs && (sits_cpu_features() & needs) == needs && sits_simd_begin()) {
		sits_sm4_make_keys_aesni(&key->enc, &key->dec, raw);
		sits_simd_end();
		return true;
	}
#endif
	return false;
}

void sits_sm4_expand_key_on(const struct sits_sm4_core *core, struct sits_sm4_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
	key->core = core;
	if (make_keys_fast(key, raw))
		return;
	make_round_keys(key->enc.rk, raw);
	make_forms(key);
	sits_clean(SITS_CLEAN_MODE);
}

void sits_sm4_expand_key(struct sits_sm4_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
	sits_sm4_expand_key_on(sits_sm4_best(), key, raw);
}
