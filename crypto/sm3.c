// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm3.c - the SM3 hash.
 *
 * Source: GB/T 32905-2016, clause 5.
 */
#include "crypto/sm3.h"

static const u32 initial_state[8] = {
	0x7380166f, 0x4914b2b9, 0x172442d7, 0xda8a0600, 0xa96f30bc, 0x163138aa, 0xe38dee4d, 0xb0fb0e4e,
};

static inline u32 rotate_left(u32 x, unsigned int n)
{
	return x << (n & 31) | x >> (-n & 31);
}

static inline u32 p0(u32 x)
{
	return x ^ rotate_left(x, 9) ^ rotate_left(x, 17);
}

static inline u32 p1(u32 x)
{
	return x ^ rotate_left(x, 15) ^ rotate_left(x, 23);
}

/* One of the 64 steps. Parity for the first 16, then majority and choice. */
static inline __attribute__((always_inline)) void sm3_step(u32 v[8], unsigned int j, u32 w, u32 w4)
{
	u32 t = j < 16 ? 0x79cc4519 : 0x7a879d8a;
	u32 a = v[0], b = v[1], c = v[2], e = v[4], f = v[5], g = v[6];
	u32 ff = j < 16 ? a ^ b ^ c : (a & b) | (c & (a | b));
	u32 gg = j < 16 ? e ^ f ^ g : g ^ (e & (f ^ g));
	u32 a12 = rotate_left(a, 12);
	u32 ss1 = rotate_left(a12 + e + rotate_left(t, j), 7);
	u32 tt1 = ff + v[3] + (ss1 ^ a12) + (w ^ w4);
	u32 tt2 = gg + v[7] + ss1 + w;

	v[3] = c;
	v[2] = rotate_left(b, 9);
	v[1] = a;
	v[0] = tt1;
	v[7] = g;
	v[6] = rotate_left(f, 19);
	v[5] = e;
	v[4] = p0(tt2);
}

static void compress(u32 state[8], const u8 *block, size_t nr_blocks)
{
	u32 w[68], v[8];
	unsigned int j;

	for (; nr_blocks; nr_blocks--, block += 64) {
		for (j = 0; j < 16; j++)
			w[j] = sits_get_be32(block + 4 * j);
		for (; j < 68; j++)
			w[j] = p1(w[j - 16] ^ w[j - 9] ^ rotate_left(w[j - 3], 15)) ^
			       rotate_left(w[j - 13], 7) ^ w[j - 6];
		memcpy(v, state, sizeof(v));
		/* Unrolled by 8, the words come round to where they were, and need no moving. */
#pragma GCC unroll 8
		for (j = 0; j < 16; j++)
			sm3_step(v, j, w[j], w[j + 4]);
#pragma GCC unroll 8
		for (j = 16; j < 64; j++)
			sm3_step(v, j, w[j], w[j + 4]);
		for (j = 0; j < 8; j++)
			state[j] ^= v[j];
	}
	sits_wipe(w, sizeof(w));
	sits_wipe(v, sizeof(v));
}

void sits_sm3_init(struct sits_sm3 *s)
{
	memset(s, 0, sizeof(*s));
	memcpy(s->state, initial_state, sizeof(s->state));
}

void sits_sm3_update(struct sits_sm3 *s, const void *data, size_t len)
{
	size_t have = s->len_bytes % 64, n;
	const u8 *p = data;

	if (!len)
		return;
	s->len_bytes += len;
	if (have) {
		n = len < 64 - have ? len : 64 - have;
		memcpy(s->buf + have, p, n);
		if (have + n < 64)
			return;
		compress(s->state, s->buf, 1);
		p += n;
		len -= n;
	}
	compress(s->state, p, len / 64);
	if (len % 64)
		memcpy(s->buf, p + len / 64 * 64, len % 64);
}

void sits_sm3_final(struct sits_sm3 *s, u8 out[SITS_SM3_LEN])
{
	size_t have = s->len_bytes % 64, i;

	s->buf[have++] = 0x80;
	if (have > 56) {
		memset(s->buf + have, 0, 64 - have);
		compress(s->state, s->buf, 1);
		have = 0;
	}
	memset(s->buf + have, 0, 56 - have);
	sits_put_be64(s->buf + 56, 8 * s->len_bytes);
	compress(s->state, s->buf, 1);
	for (i = 0; i < 8; i++)
		sits_put_be32(out + 4 * i, s->state[i]);
	sits_wipe(s, sizeof(*s));
}
