// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_modes.c - single blocks, ECB, CBC and CTR on the core of the key.
 *
 * Source: NIST SP 800-38A for the modes.
 */
#include "crypto/sm4_impl.h"

/* A message of so many bytes that ends within a block goes through a buffer whole, for one call of the core. */
#define SHORT_BYTES 1024

static void crypt(const struct sits_sm4_core *core, const struct sits_sm4_rounds *k, u8 *dst, const u8 *src, size_t nr_blocks)
{
	const struct sits_sm4_core *c;
	size_t n;

	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = sits_core_piece(nr_blocks);
		c = sits_core_enter(core);
		c->crypt(k, dst, src, n);
		sits_core_leave(c);
	}
}

void sits_sm4_encrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src)
{
	crypt(key->core, &key->enc, dst, src, 1);
}

void sits_sm4_decrypt_block(const struct sits_sm4_key *key, u8 *dst, const u8 *src)
{
	crypt(key->core, &key->dec, dst, src, 1);
}

void sits_sm4_ecb_encrypt(const struct sits_sm4_key *key, u8 *dst, const u8 *src, size_t nr_blocks)
{
	crypt(key->core, &key->enc, dst, src, nr_blocks);
}

void sits_sm4_ecb_decrypt(const struct sits_sm4_key *key, u8 *dst, const u8 *src, size_t nr_blocks)
{
	crypt(key->core, &key->dec, dst, src, nr_blocks);
}

/*
 * Each block waits for the one before: up to 30 times as long as decrypting, which has many blocks at once. So the pieces between
 * which vector registers are left are shorter by as much.
 */
#define CBC_PIECE_BLOCKS (SITS_SIMD_BYTES / 16 / 16)

static sits_noinline void encrypt_cbc(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	const struct sits_sm4_core *c;
	size_t n, i;

	for (; nr_blocks; nr_blocks -= n) {
		n = nr_blocks < CBC_PIECE_BLOCKS ? nr_blocks : CBC_PIECE_BLOCKS;
		c = sits_core_enter(key->core);
		for (i = 0; i < n; i++, dst += 16, src += 16) {
			sits_xor(iv, iv, src, 16);
			c->crypt(&key->enc, iv, iv, 1);
			memcpy(dst, iv, 16);
		}
		sits_core_leave(c);
	}
}

void sits_sm4_cbc_encrypt(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	encrypt_cbc(key, iv, dst, src, nr_blocks);
	sits_clean(SITS_CLEAN_MODE);
}

void sits_sm4_cbc_decrypt(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	const struct sits_sm4_core *c;
	size_t n;

	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = sits_core_piece(nr_blocks);
		c = sits_core_enter(key->core);
		c->cbc_decrypt(&key->dec, iv, dst, src, n);
		sits_core_leave(c);
	}
}

static void ctr_blocks(const struct sits_sm4_key *key, u8 ctr[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	const struct sits_sm4_core *c;
	size_t n;

	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = sits_core_piece(nr_blocks);
		c = sits_core_enter(key->core);
		c->ctr128(&key->enc, ctr, dst, src, n);
		sits_core_leave(c);
	}
}

/* What ends within a block, by way of a buffer. */
static sits_noinline void ctr_short(const struct sits_sm4_key *key, u8 ctr[16], u8 *dst, const u8 *src, size_t len)
{
	u8 buf[SHORT_BYTES];
	size_t nr = (len + 15) / 16;

	memset(buf + 16 * (nr - 1), 0, 16);
	memcpy(buf, src, len);
	ctr_blocks(key, ctr, buf, buf, nr);
	memcpy(dst, buf, len);
	sits_wipe(buf, 16 * nr);
}

void sits_sm4_ctr(const struct sits_sm4_key *key, u8 iv[16], u8 *dst, const u8 *src, size_t len)
{
	size_t whole = len % 16 && len <= SHORT_BYTES ? 0 : len / 16;

	ctr_blocks(key, iv, dst, src, whole);
	if (len > 16 * whole) {
		ctr_short(key, iv, dst + 16 * whole, src + 16 * whole, len - 16 * whole);
		sits_clean(SITS_CLEAN_MODE);
	}
}

void sits_sm4_stream_start(struct sits_sm4_stream *s, const struct sits_sm4_key *key, const u8 iv[16])
{
	memset(s, 0, sizeof(*s));
	s->key = key;
	memcpy(s->ctr, iv, 16);
	s->used = 16;
}

/* Up to len bytes of the begun block. Return: how many. */
static size_t stream_rest(struct sits_sm4_stream *s, u8 *dst, const u8 *src, size_t len)
{
	size_t n = 16 - s->used < len ? 16 - s->used : len;

	sits_xor(dst, src, s->stream + s->used, n);
	s->used += (u32)n;
	return n;
}

static sits_noinline void crypt_stream(struct sits_sm4_stream *s, u8 *dst, const u8 *src, size_t len)
{
	size_t n = stream_rest(s, dst, src, len), whole = (len - n) / 16;

	ctr_blocks(s->key, s->ctr, dst + n, src + n, whole);
	n += 16 * whole;
	if (n == len)
		return;
	memset(s->stream, 0, 16);
	ctr_blocks(s->key, s->ctr, s->stream, s->stream, 1);
	s->used = 0;
	stream_rest(s, dst + n, src + n, len - n);
}

void sits_sm4_stream_crypt(struct sits_sm4_stream *s, u8 *dst, const u8 *src, size_t len)
{
	if (s->used == 16 && len % 16 == 0) {
		ctr_blocks(s->key, s->ctr, dst, src, len / 16);
	} else if (len) {
		crypt_stream(s, dst, src, len);
		sits_clean(SITS_CLEAN_MODE);
	}
}

void sits_sm4_stream_end(struct sits_sm4_stream *s)
{
	sits_wipe(s, sizeof(*s));
}
