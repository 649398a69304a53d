// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_gfni_avx512.c - the table of the GFNI and AVX-512 core, and how it cuts any number of blocks into pieces;
 * sm4_gfni_avx512_asm.S is what works, docs/sm4.md explains it.
 */
#include "crypto/sm4_core.h"

/*
 * nr is a multiple of 64 for the whole ones; else 1 to 4, 1 to 16, 17 to 32, 33 to 64. @iv: what the mode chains, or NULL.
 */
#define FUNCTION(name) void sits_sm4_gfni_avx512_##name(const struct sits_sm4_rounds *k, u8 *iv, u8 *dst, const u8 *src, size_t nr)
#define FUNCTIONS(mode) FUNCTION(mode##_whole); FUNCTION(mode##_64); FUNCTION(mode##_32); FUNCTION(mode##_16); FUNCTION(mode##_4)

FUNCTION(ecb_long); FUNCTION(cbc_long); FUNCTION(ctr_long);
FUNCTIONS(ecb);
FUNCTIONS(cbc);
FUNCTIONS(ctr);		/* the last 64 bits of iv count, and may not overflow; not advanced */

void sits_sm4_gfni_avx512_xts_whole(const struct sits_sm4_rounds *k, u8 *tweak, u8 *dst, const u8 *src, size_t nr, u32 gb);
void sits_sm4_gfni_avx512_xts_64(const struct sits_sm4_rounds *k, u8 *tweak, u8 *dst, const u8 *src, size_t nr, u32 gb);
void sits_sm4_gfni_avx512_xts_32(const struct sits_sm4_rounds *k, u8 *tweak, u8 *dst, const u8 *src, size_t nr, u32 gb);
void sits_sm4_gfni_avx512_xts_16(const struct sits_sm4_rounds *k, u8 *tweak, u8 *dst, const u8 *src, size_t nr, u32 gb);
void sits_sm4_gfni_avx512_xts_4(const struct sits_sm4_rounds *k, u8 *tweak, u8 *dst, const u8 *src, size_t nr, u32 gb);

/* ctr as ctr_long's. */
void sits_sm4_gfni_avx512_gcm_encrypt_long(const struct sits_sm4_rounds *k, u8 *ctr, u8 *dst, const u8 *src, size_t nr,
					   const struct sits_ghash_key *key, u8 y[16]);
void sits_sm4_gfni_avx512_gcm_decrypt_long(const struct sits_sm4_rounds *k, u8 *ctr, u8 *dst, const u8 *src, size_t nr,
					   const struct sits_ghash_key *key, u8 y[16]);
void sits_sm4_gfni_avx512_ghash_key(struct sits_ghash_key *key);
void sits_sm4_gfni_avx512_ghash(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr);	/* nr >= 1 */
void sits_sm4_gfni_avx512_ghash_long(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr);	/* 64 x n */

/* From here on a pipeline is worth its beginning and its end. */
#define LONG 320

#define CALL(mode, size, ...) sits_sm4_gfni_avx512_##mode##_##size(__VA_ARGS__)

/* Fewer than 64 blocks, by the cheapest. */
#define RUN_REST(mode, k, iv, dst, src, nr, ...)				\
	do {									\
		if ((nr) > 32)							\
			CALL(mode, 64, k, iv, dst, src, nr, ##__VA_ARGS__);	\
		else if ((nr) > 16)						\
			CALL(mode, 32, k, iv, dst, src, nr, ##__VA_ARGS__);	\
		else if ((nr) > 4)						\
			CALL(mode, 16, k, iv, dst, src, nr, ##__VA_ARGS__);	\
		else if (nr)							\
			CALL(mode, 4, k, iv, dst, src, nr, ##__VA_ARGS__);	\
	} while (0)

/* Whole batches, then the rest. */
#define RUN(mode, long_or_whole, k, iv, dst, src, nr, ...)				\
	do {										\
		size_t whole_ = (nr) & ~(size_t)63, rest_ = (nr) & 63;			\
											\
		if (whole_ >= LONG)							\
			CALL(mode, long_or_whole, k, iv, dst, src, whole_, ##__VA_ARGS__);	\
		else if (whole_)							\
			CALL(mode, whole, k, iv, dst, src, whole_, ##__VA_ARGS__);	\
		dst += whole_ * 16;							\
		src += whole_ * 16;							\
		RUN_REST(mode, k, iv, dst, src, rest_, ##__VA_ARGS__);			\
	} while (0)

static void crypt(const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr)
{
	RUN(ecb, long, k, NULL, dst, src, nr);
}

static void cbc_decrypt(const struct sits_sm4_rounds *dec, u8 iv[16], u8 *dst, const u8 *src, size_t nr)
{
	RUN(cbc, long, dec, iv, dst, src, nr);
}

static void xts(const struct sits_sm4_rounds *k, u8 tweak[16], u8 *dst, const u8 *src, size_t nr, bool gb)
{
	RUN(xts, whole, k, tweak, dst, src, nr, gb);
}

/* At most as many blocks as the counter's lower half has before it overflows; ctr is left behind. */
static void run_ctr(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t nr)
{
	size_t whole = nr & ~(size_t)63;

	if (whole) {
		if (whole >= LONG)
			CALL(ctr, long, enc, ctr, dst, src, whole);
		else
			CALL(ctr, whole, enc, ctr, dst, src, whole);
		sits_put_be64(ctr + 8, sits_get_be64(ctr + 8) + whole);
		dst += whole * 16;
		src += whole * 16;
		nr -= whole;
	}
	RUN_REST(ctr, enc, ctr, dst, src, nr);
}

static void ctr128(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t nr)
{
	while (nr) {
		u64 low = sits_get_be64(ctr + 8), room = -low;	/* 0: 2^64 */
		size_t n = room && room < nr ? (size_t)room : nr;

		run_ctr(enc, ctr, dst, src, n);
		sits_put_be64(ctr + 8, low + n);
		if (low + n == 0)
			sits_put_be64(ctr, sits_get_be64(ctr) + 1);
		dst += n * 16;
		src += n * 16;
		nr -= n;
	}
}

/* Of nr blocks, those before the last four bytes of the counter overflow. */
static size_t before_wrap32(const u8 ctr[16], size_t nr)
{
	u64 room = (1ull << 32) - sits_get_be32(ctr + 12);

	return room < nr ? (size_t)room : nr;
}

static void ctr32(const struct sits_sm4_rounds *enc, u8 ctr[16], u8 *dst, const u8 *src, size_t nr)
{
	while (nr) {
		u32 low = sits_get_be32(ctr + 12), high = sits_get_be32(ctr + 8);
		size_t n = before_wrap32(ctr, nr);

		run_ctr(enc, ctr, dst, src, n);
		sits_put_be32(ctr + 8, high);
		sits_put_be32(ctr + 12, (u32)(low + n));
		dst += n * 16;
		src += n * 16;
		nr -= n;
	}
}

static void ghash(const struct sits_ghash_key *key, u8 y[16], const u8 *data, size_t nr)
{
	size_t whole = nr < 128 ? 0 : nr & ~(size_t)63;

	if (whole)
		sits_sm4_gfni_avx512_ghash_long(key, y, data, whole);
	if (nr - whole)
		sits_sm4_gfni_avx512_ghash(key, y, data + whole * 16, nr - whole);
}

static void gcm_encrypt(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *dst,
			const u8 *src, size_t nr)
{
	size_t n = before_wrap32(ctr, nr) & ~(size_t)63;

	if (n >= LONG) {
		CALL(gcm_encrypt, long, enc, ctr, dst, src, n, key, y);
		sits_put_be32(ctr + 12, sits_get_be32(ctr + 12) + (u32)n);
		dst += n * 16;
		src += n * 16;
		nr -= n;
	}
	/* The rest: in pieces, where a counter has wrapped before many. */
	for (; nr; nr -= n, dst += n * 16, src += n * 16) {
		n = nr < 256 ? nr : 256;
		ctr32(enc, ctr, dst, src, n);
		ghash(key, y, dst, n);
	}
}

static void gcm_decrypt(const struct sits_sm4_rounds *enc, const struct sits_ghash_key *key, u8 ctr[16], u8 y[16], u8 *dst,
			const u8 *src, size_t nr)
{
	size_t n = before_wrap32(ctr, nr) & ~(size_t)63;

	if (n >= LONG) {
		CALL(gcm_decrypt, long, enc, ctr, dst, src, n, key, y);
		sits_put_be32(ctr + 12, sits_get_be32(ctr + 12) + (u32)n);
		dst += n * 16;
		src += n * 16;
		nr -= n;
	}
	/* The rest: in pieces, where a counter has wrapped before many. */
	for (; nr; nr -= n, dst += n * 16, src += n * 16) {
		n = nr < 256 ? nr : 256;
		ghash(key, y, src, n);
		ctr32(enc, ctr, dst, src, n);
	}
}

const struct sits_sm4_core sits_sm4_gfni_avx512 = {
	.name = "gfni-avx512",
	.needs = SITS_CPU_AVX2 | SITS_CPU_GFNI | SITS_CPU_PCLMUL | SITS_CPU_VPCLMUL | SITS_CPU_AVX512,
	.crypt = crypt,
	.cbc_decrypt = cbc_decrypt,
	.ctr128 = ctr128,
	.ctr32 = ctr32,
	.xts = xts,
	.ghash_key = sits_sm4_gfni_avx512_ghash_key,
	.ghash = ghash,
	.gcm_encrypt = gcm_encrypt,
	.gcm_decrypt = gcm_decrypt,
};
