// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_modes.c - ECB (decrypting only, for files of existing deployments) and CTR.
 *
 * Source: NIST SP 800-38A for the modes.
 */
#include "crypto/sm4_impl.h"

/* Keystream made at a time: on the stack, whole batches of every core. */
#define STRIP_BLOCKS 32

void sits_sm4_ecb_decrypt(const struct sits_sm4_key *key, u8 *dst, const u8 *src, size_t nr_blocks)
{
	sits_sm4_crypt_blocks(key->dec, dst, src, nr_blocks);
}

/* Write nr counter blocks and advance the counter. Its value is public: it may be branched on. */
static void make_counters(u8 *out, u8 ctr[16], size_t nr, int wrap_bits)
{
	u64 hi = sits_get_be64(ctr), lo = sits_get_be64(ctr + 8);

	while (nr--) {
		sits_put_be64(out, hi);
		sits_put_be64(out + 8, lo);
		out += 16;
		if (wrap_bits == 32)
			lo = (lo & ~0xffffffffULL) | (u32)(lo + 1);
		else if (!++lo)
			hi++;
	}
	sits_put_be64(ctr, hi);
	sits_put_be64(ctr + 8, lo);
}

static void xor_bytes(u8 *dst, const u8 *src, const u8 *stream, size_t len)
{
	while (len >= 8) {
		u64 a, b;

		memcpy(&a, src, 8);
		memcpy(&b, stream, 8);
		a ^= b;
		memcpy(dst, &a, 8);
		dst += 8;
		src += 8;
		stream += 8;
		len -= 8;
	}
	while (len--)
		*dst++ = *src++ ^ *stream++;
}

void sits_sm4_ctr_crypt(const u32 rk[32], u8 ctr[16], u8 *dst, const u8 *src, size_t len, int wrap_bits)
{
	u8 stream[16 * STRIP_BLOCKS];

	while (len) {
		size_t n = len < sizeof(stream) ? len : sizeof(stream);
		size_t nr = (n + 15) / 16;

		make_counters(stream, ctr, nr, wrap_bits);
		sits_sm4_crypt_blocks(rk, stream, stream, nr);
		xor_bytes(dst, src, stream, n);
		dst += n;
		src += n;
		len -= n;
	}
	sits_wipe(stream, sizeof(stream));
}

void sits_sm4_ctr(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t len)
{
	sits_sm4_ctr_crypt(key->enc, iv, dst, src, len, 128);
}
