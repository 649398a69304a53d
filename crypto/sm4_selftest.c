// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_selftest.c - known answers of a core: does this machine do with this code what it should?
 *
 * All functions of the core are applied to one text, one after the other, each to what the one before made of it. So one
 * number, over the last text and all counters, tweaks and tags on the way, tells of a fault in any. The text is long enough for
 * several of the longest batches and a rest; its beginning goes through the ways of short messages; counters wrap.
 */
#include "crypto/sm4_impl.h"

#define TEXT_BLOCKS 300
#define ANSWER 0x73a205c4e0373ab8ULL

static const size_t lengths[] = { TEXT_BLOCKS, 1, 5, 19, 70 };	/* blocks */

/* Too much for a stack of the kernel. */
struct room {
	struct sits_gcm_key key;
	struct sits_gcm gcm;
	u8 text[16 * TEXT_BLOCKS];
	u8 iv[16];
	u64 sum;
};

static void fold(struct room *r, const u8 *data, size_t len)
{
	for (; len; len -= 8, data += 8) {
		r->sum = (r->sum ^ sits_get_le64(data)) * 0x9e3779b97f4a7c15ULL;
		r->sum ^= r->sum >> 32;
	}
}

static void make_text(u8 *text, size_t len)
{
	u64 x = 1;

	for (; len; len -= 8, text += 8) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;	/* Knuth's, of MMIX */
		sits_put_le64(text, x);
	}
}

/* A counter that wraps halfway. */
static void set_counter(u8 ctr[16], size_t nr_blocks)
{
	memset(ctr, 0xff, 16);
	sits_put_be32(ctr + 12, 0u - (u32)(nr_blocks + 1) / 2);
}

static void ecb_cbc_ctr(struct room *r, size_t nr)
{
	const struct sits_sm4_key *key = &r->key.sm4;

	sits_sm4_ecb_encrypt(key, r->text, r->text, nr);
	sits_sm4_cbc_decrypt(key, r->iv, r->text, r->text, nr);
	fold(r, r->iv, 16);
	set_counter(r->iv, nr);
	sits_sm4_ctr(key, r->iv, r->text, r->text, 16 * nr);
	fold(r, r->iv, 16);
}

static void xts(struct room *r, size_t nr)
{
	const struct sits_sm4_core *c = sits_core_enter(r->key.sm4.core);

	c->xts(&r->key.sm4.enc, r->iv, r->text, r->text, nr, false);
	c->xts(&r->key.sm4.dec, r->iv, r->text, r->text, nr, true);
	sits_core_leave(c);
	fold(r, r->iv, 16);
}

static void ctr32_ghash(struct room *r, size_t nr)
{
	const struct sits_sm4_core *c = sits_core_enter(r->key.sm4.core);

	set_counter(r->iv, nr);
	c->ctr32(&r->key.sm4.enc, r->iv, r->text, r->text, nr);
	c->ghash(&r->key.hash, r->iv, r->text, nr);
	sits_core_leave(c);
	fold(r, r->iv, 16);
}

static void gcm(struct room *r, size_t nr)
{
	u8 tag[SITS_GCM_TAG_LEN];

	sits_gcm_start(&r->gcm, &r->key, r->text, 12);
	set_counter(r->gcm.ctr, nr);
	sits_gcm_update_encrypt(&r->gcm, r->text, r->text, 16 * nr);
	sits_gcm_final(&r->gcm, tag);
	fold(r, tag, 16);
	sits_gcm_start(&r->gcm, &r->key, r->text, 13);
	set_counter(r->gcm.ctr, nr);
	sits_gcm_update_decrypt(&r->gcm, r->text, r->text, 16 * nr);
	sits_gcm_final(&r->gcm, tag);
	fold(r, tag, 16);
}

int sits_sm4_selftest(const struct sits_sm4_core *core)
{
	static const u8 key[SITS_SM4_KEY_LEN] = { 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10 };
	SITS_ROOM struct room r;
	size_t i;

	r.sum = 0;
	memset(r.iv, 0x5a, sizeof(r.iv));
	make_text(r.text, sizeof(r.text));
	sits_gcm_set_key_on(core, &r.key, key);
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		ecb_cbc_ctr(&r, lengths[i]);
		xts(&r, lengths[i]);
		ctr32_ghash(&r, lengths[i]);
		gcm(&r, lengths[i]);
	}
	fold(&r, r.text, sizeof(r.text));
	return r.sum == ANSWER ? 0 : -EBADMSG;
}
