// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4.c - the key schedule of SM4, single blocks, and the choice of a core.
 *
 * The cores that do the work are sm4_bs64.c and sm4_bs128.c; the modes are sm4_modes.c and gcm.c.
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
void sits_sm4_expand_key(struct sits_sm4_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
	u32 k[4], i;

	for (i = 0; i < 4; i++)
		k[i] = sits_get_be32(raw + 4 * i) ^ family_key[i];
	for (i = 0; i < 32; i++) {
		u32 b = substitute(k[(i + 1) % 4] ^ k[(i + 2) % 4] ^ k[(i + 3) % 4] ^ schedule_constant(i));

		k[i % 4] ^= b ^ rotate_left(b, 13) ^ rotate_left(b, 23);
		key->enc[i] = k[i % 4];
		key->dec[31 - i] = k[i % 4];
	}
	sits_wipe(k, sizeof(k));
}

void sits_sm4_encrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src)
{
	sits_sm4_crypt_bs64(key->enc, dst, src, 1);
}

void sits_sm4_decrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src)
{
	sits_sm4_crypt_bs64(key->dec, dst, src, 1);
}

void sits_sm4_crypt_blocks(const u32 rk[32], u8 *dst, const u8 *src, size_t nr_blocks)
{
	if (SITS_HAVE_VECTORS && nr_blocks > SITS_SM4_BS64_BLOCKS)
		sits_sm4_crypt_bs128(rk, dst, src, nr_blocks);
	else
		sits_sm4_crypt_bs64(rk, dst, src, nr_blocks);
}
