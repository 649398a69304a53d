// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * xts.c - XTS of SM4, in the form of IEEE 1619 and in that of GB/T 17964-2021, with ciphertext stealing.
 *
 * Source: IEEE Std 1619-2018, clause 5; GB/T 17964-2021, clause 10 (XTS). The stealing is the same in both.
 */
#include "crypto/sm4_impl.h"

void sits_xts_set_key_on(const struct sits_sm4_core *core, struct sits_xts_key *key, const u8 raw[SITS_XTS_KEY_LEN])
{
	sits_sm4_expand_key_on(core, &key->data, raw);
	sits_sm4_expand_key_on(core, &key->tweak, raw + SITS_SM4_KEY_LEN);
}

void sits_xts_set_key(struct sits_xts_key *key, const u8 raw[SITS_XTS_KEY_LEN])
{
	sits_xts_set_key_on(sits_sm4_best(), key, raw);
}

void sits_xts_start(const struct sits_xts_key *key, u8 tweak[16], const u8 iv[16])
{
	sits_sm4_encrypt_block(&key->tweak, tweak, iv);
}

static void xts_blocks(const struct sits_sm4_core *core, const struct sits_sm4_rounds *k, enum sits_xts_form form,
		       u8 tweak[16], u8 *dst, const u8 *src, size_t nr_blocks)
{
	const struct sits_sm4_core *c;
	size_t n;

	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = sits_core_piece(nr_blocks);
		c = sits_core_enter(core);
		c->xts(k, tweak, dst, src, n, form == SITS_XTS_GB);
		sits_core_leave(c);
	}
}

void sits_xts_encrypt_blocks(const struct sits_xts_key *key, enum sits_xts_form form, u8 tweak[16], u8 *dst, const u8 *src,
			     size_t nr_blocks)
{
	xts_blocks(key->data.core, &key->data.enc, form, tweak, dst, src, nr_blocks);
}

void sits_xts_decrypt_blocks(const struct sits_xts_key *key, enum sits_xts_form form, u8 tweak[16], u8 *dst, const u8 *src,
			     size_t nr_blocks)
{
	xts_blocks(key->data.core, &key->data.dec, form, tweak, dst, src, nr_blocks);
}

/*
 * The end of a unit that is no multiple of a block. dst[0..15]: the last whole block under the first of its two tweaks; its head becomes
 * the rest of the output, and its tail, behind the rest of the input, goes through the cipher again, under the second tweak, and
 * becomes the whole block. @in: the rest of the input, perhaps at dst + 16; it is consumed.
 */
static sits_noinline void steal(const struct sits_sm4_core *core, const struct sits_sm4_rounds *k, enum sits_xts_form form,
				u8 tweak[16], u8 *dst, const u8 *in, size_t rest)
{
	u8 joined[16];

	memcpy(joined, in, rest);
	memcpy(joined + rest, dst + rest, 16 - rest);
	memcpy(dst + 16, dst, rest);
	xts_blocks(core, k, form, tweak, dst, joined, 1);
	sits_wipe(joined, sizeof(joined));
}

static sits_noinline void next_tweak(u8 next[16], const u8 tweak[16], enum sits_xts_form form)
{
	u64 t[2];

	sits_xts_load(t, tweak, form == SITS_XTS_GB);
	sits_xts_step(t, form == SITS_XTS_GB);
	sits_xts_store(next, t, form == SITS_XTS_GB);
}

static sits_noinline void encrypt_tail(const struct sits_xts_key *key, enum sits_xts_form form, const u8 tweak[16], u8 *dst,
				       const u8 *src, size_t len)
{
	u8 both[16];

	memcpy(both, tweak, 16);
	sits_xts_encrypt_blocks(key, form, both, dst, src, 1);
	steal(key->data.core, &key->data.enc, form, both, dst, src + 16, len - 16);
	sits_wipe(both, sizeof(both));
}

/* The tweaks are exchanged: what was put together in encrypting had the last one. */
static sits_noinline void decrypt_tail(const struct sits_xts_key *key, enum sits_xts_form form, const u8 tweak[16], u8 *dst,
				       const u8 *src, size_t len)
{
	u8 last[16], before[16];

	memcpy(before, tweak, 16);
	next_tweak(last, tweak, form);
	sits_xts_decrypt_blocks(key, form, last, dst, src, 1);
	steal(key->data.core, &key->data.dec, form, before, dst, src + 16, len - 16);
	sits_wipe(last, sizeof(last));
	sits_wipe(before, sizeof(before));
}

void sits_xts_encrypt_tail(const struct sits_xts_key *key, enum sits_xts_form form, const u8 tweak[16], u8 *dst,
			   const u8 *src, size_t len)
{
	encrypt_tail(key, form, tweak, dst, src, len);
	sits_clean(SITS_CLEAN_MODE);
}

void sits_xts_decrypt_tail(const struct sits_xts_key *key, enum sits_xts_form form, const u8 tweak[16], u8 *dst,
			   const u8 *src, size_t len)
{
	decrypt_tail(key, form, tweak, dst, src, len);
	sits_clean(SITS_CLEAN_MODE);
}

/* All whole blocks go to the core at once, and leave the tweak that the stealing wants. */
int sits_xts_encrypt(const struct sits_xts_key *key, enum sits_xts_form form, const u8 iv[16], u8 *dst, const u8 *src,
		     size_t len)
{
	size_t whole = len / 16 * 16;
	u8 tweak[16];

	if (len < 16)
		return -EINVAL;
	sits_xts_start(key, tweak, iv);
	sits_xts_encrypt_blocks(key, form, tweak, dst, src, whole / 16);
	if (whole < len) {
		steal(key->data.core, &key->data.enc, form, tweak, dst + whole - 16, src + whole, len - whole);
		sits_clean(SITS_CLEAN_MODE);
	}
	sits_wipe(tweak, sizeof(tweak));
	return 0;
}

int sits_xts_decrypt(const struct sits_xts_key *key, enum sits_xts_form form, const u8 iv[16], u8 *dst, const u8 *src,
		     size_t len)
{
	size_t head = len % 16 ? len / 16 * 16 - 16 : len;
	u8 tweak[16];

	if (len < 16)
		return -EINVAL;
	sits_xts_start(key, tweak, iv);
	sits_xts_decrypt_blocks(key, form, tweak, dst, src, head / 16);
	if (head < len)
		sits_xts_decrypt_tail(key, form, tweak, dst + head, src + head, len - head);
	sits_wipe(tweak, sizeof(tweak));
	return 0;
}
