// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm3.c - the SM3 hash. On x86-64 in userspace, x86/sm3_bmi2.S compresses where the processor can run it.
 *
 * Source: GB/T 32905-2016, clause 5.
 */
#include "crypto/sm3.h"
#include "crypto/sm4_core.h"

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

/* T_j rotated to the left by j, as step j adds it. */
#define T0(j) (0x79cc4519u << (j) | 0x79cc4519u >> 1 >> (31 - (j)))
#define T1(j) (0x7a879d8au << ((j) & 31) | 0x7a879d8au >> 1 >> (31 - ((j) & 31)))
#define FOUR(t, j) t(j), t((j) + 1), t((j) + 2), t((j) + 3)
#define SIXTEEN(t, j) FOUR(t, j), FOUR(t, (j) + 4), FOUR(t, (j) + 8), FOUR(t, (j) + 12)

static const u32 step_constant[64] = { SIXTEEN(T0, 0), SIXTEEN(T1, 16), SIXTEEN(T1, 32), SIXTEEN(T1, 48) };

/*
 * One of the 64 steps. The words stay where they are, and change roles from step to step: A to D are v[(0..3 - j) mod 4], E to H
 * those behind. @early: of the first 16, which have parities in place of majority and choice. @w, @w4: W_j and W_(j+4).
 */
static inline __attribute__((always_inline)) void sm3_step(u32 v[8], unsigned int j, bool early, u32 t, u32 w, u32 w4)
{
	u32 *b = &v[(1 - j) & 3], *d = &v[(3 - j) & 3], *f = &v[4 + ((1 - j) & 3)], *h = &v[4 + ((3 - j) & 3)];
	u32 a = v[-j & 3], c = v[(2 - j) & 3], e = v[4 + (-j & 3)], g = v[4 + ((2 - j) & 3)];
	u32 ff = early ? a ^ *b ^ c : (a & *b) + ((a ^ *b) & c);
	u32 gg = early ? e ^ *f ^ g : g ^ (e & (*f ^ g));
	u32 a12 = rotate_left(a, 12);
	u32 ss1 = rotate_left(a12 + (e + t), 7);

	*d += ff + (w ^ w4) + (ss1 ^ a12);
	*h = p0(*h + gg + w + ss1);
	*b = rotate_left(*b, 9);
	*f = rotate_left(*f, 19);
}

/* W_(j + 16) in place of W_j, of which 16 are kept. */
static inline __attribute__((always_inline)) u32 next_word(u32 w[16], unsigned int j)
{
	u32 x = w[j & 15] ^ w[(j + 7) & 15] ^ rotate_left(w[(j + 13) & 15], 15);

	w[j & 15] = p1(x) ^ rotate_left(w[(j + 3) & 15], 7) ^ w[(j + 10) & 15];
	return w[j & 15];
}

static void compress_portable(u32 state[8], const u8 *block, size_t nr_blocks)
{
	u32 w[16], v[8];
	unsigned int i, j;

	for (; nr_blocks; nr_blocks--, block += 64) {
		for (j = 0; j < 16; j++)
			w[j] = sits_get_be32(block + 4 * j);
		memcpy(v, state, sizeof(v));
		/* All indices are numbers once these are unrolled, so that v, at least, is in registers. */
#pragma GCC unroll 16
		for (j = 0; j < 12; j++)
			sm3_step(v, j, true, step_constant[j], w[j], w[j + 4]);
#pragma GCC unroll 4
		for (; j < 16; j++) {
			u32 now = w[j];

			sm3_step(v, j, true, step_constant[j], now, next_word(w, j - 12));
		}
		for (i = 16; i < 64; i += 16) {
#pragma GCC unroll 16
			for (j = 0; j < 16; j++) {
				u32 now = w[j];

				sm3_step(v, j, false, step_constant[i + j], now, next_word(w, j + 4));
			}
		}
		for (j = 0; j < 8; j++)
			state[j] ^= v[j];
	}
	sits_wipe(w, sizeof(w));
	sits_wipe(v, sizeof(v));
}

#if SITS_HAVE_X86_USER
/* x86/sm3_bmi2.S; nr_blocks at least 1 */
void sits_sm3_compress_bmi2(u32 state[8], const u8 *block, size_t nr_blocks);

static void compress(u32 state[8], const u8 *block, size_t nr_blocks)
{
	const u32 needs = SITS_CPU_AVX2 | SITS_CPU_BMI;

	if (!nr_blocks)
		return;
	if ((sits_cpu_features() & needs) == needs)
		sits_sm3_compress_bmi2(state, block, nr_blocks);
	else
		compress_portable(state, block, nr_blocks);
}
#else
static void compress(u32 state[8], const u8 *block, size_t nr_blocks)
{
	compress_portable(state, block, nr_blocks);
}
#endif

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
