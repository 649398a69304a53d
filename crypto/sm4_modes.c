// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_modes.c - ECB (decrypting only, for files of existing deployments) and CTR.
 *
 * Source: NIST SP 800-38A for the modes.
 */
#include "crypto/sm4_impl.h"

#define BATCH_MAX SITS_SM4_BS128_BLOCKS

void sits_sm4_ecb_decrypt(const struct sits_sm4_key *key, u8 *dst, const u8 *src, size_t nr_blocks)
{
	sits_sm4_crypt_blocks(key->dec, dst, src, nr_blocks);
}

/* Write nr counter blocks: the way round when the carry leaves the last word. */
static void write_counters(u8 *out, const u8 ctr[16], size_t nr)
{
	u64 hi = sits_get_be64(ctr), lo = sits_get_be64(ctr + 8);

	for (; nr--; out += 16) {
		sits_put_be64(out, hi);
		sits_put_be64(out + 8, lo);
		hi += !++lo;
	}
}

static void advance(u8 ctr[16], u32 nr, int wrap_bits)
{
	u64 lo = sits_get_be64(ctr + 8);

	if (wrap_bits == 32) {
		sits_put_be32(ctr + 12, (u32)lo + nr);
		return;
	}
	sits_put_be64(ctr + 8, lo + nr);
	if (lo + nr < lo)
		sits_put_be64(ctr, sits_get_be64(ctr) + 1);
}

/* Keystream for nr blocks or more. The counter is public: its value may be branched on. */
static void make_stream(const u32 rk[32], u8 ctr[16], u8 stream[16 * BATCH_MAX], size_t nr, int wrap_bits)
{
	if (wrap_bits != 32 && (u32)(sits_get_be32(ctr + 12) + nr - 1) < nr - 1) {
		write_counters(stream, ctr, nr);
		sits_sm4_crypt_blocks(rk, stream, stream, nr);
	} else if (SITS_HAVE_VECTORS && nr > SITS_SM4_BS64_BLOCKS) {
		sits_sm4_stream_bs128(rk, ctr, stream);
	} else {
		sits_sm4_stream_bs64(rk, ctr, stream);
	}
	advance(ctr, (u32)nr, wrap_bits);
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
	const size_t batch = 16 * (SITS_HAVE_VECTORS ? SITS_SM4_BS128_BLOCKS : SITS_SM4_BS64_BLOCKS);
	u8 stream[16 * BATCH_MAX];
	size_t n;

	if (!len)
		return;
	for (; len; len -= n, dst += n, src += n) {
		n = len < batch ? len : batch;
		make_stream(rk, ctr, stream, (n + 15) / 16, wrap_bits);
		xor_bytes(dst, src, stream, n);
	}
	sits_wipe(stream, sizeof(stream));
}

void sits_sm4_ctr(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t len)
{
	sits_sm4_ctr_crypt(key->enc, iv, dst, src, len, 128);
}
