// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * gcm.c - SM4-GCM: whole messages in one call, and messages in pieces.
 *
 * Whole blocks of text go to the core's gcm_encrypt() or gcm_decrypt(), which cipher and hash in one pass. What is left, the
 * first counter block and ends within a block, costs one call of the cipher and one of the hash in all, since a call for
 * one block takes as long as one for several.
 *
 * Source: NIST SP 800-38D, clause 7; RFC 8998, clause 2 for SM4.
 */
#include "crypto/sm4_impl.h"

/* Messages that go whole through a buffer: one call of the cipher, for no more than 64 blocks, and one of the hash. */
#define SHORT_TEXT	1008u
#define SHORT_AAD	64u

static sits_noinline void set_key(const struct sits_sm4_core *core, struct sits_gcm_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
	const struct sits_sm4_core *c;
	u8 h[16] = { 0 };

	sits_sm4_expand_key_on(core, &key->sm4, raw);
	/* Powers for a core can be made by that core alone: where it cannot run now, the key is the portable core's. */
	c = sits_core_enter(core);
	key->sm4.core = c;
	c->crypt(&key->sm4.enc, h, h, 1);
	key->hash.h[0] = sits_get_be64(h);
	key->hash.h[1] = sits_get_be64(h + 8);
	c->ghash_key(&key->hash);
	sits_core_leave(c);
	sits_wipe(h, sizeof(h));
}

void sits_gcm_set_key_on(const struct sits_sm4_core *core, struct sits_gcm_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
	set_key(core, key, raw);
	sits_clean(SITS_CLEAN_MODE);
}

void sits_gcm_set_key(struct sits_gcm_key *key, const u8 raw[SITS_SM4_KEY_LEN])
{
	sits_gcm_set_key_on(sits_sm4_best(), key, raw);
}

static void hash_blocks(const struct sits_gcm_key *key, u8 y[16], const u8 *data, size_t nr_blocks)
{
	const struct sits_sm4_core *c;
	size_t n;

	for (; nr_blocks; nr_blocks -= n, data += 16 * n) {
		n = sits_core_piece(nr_blocks);
		c = sits_core_enter(key->sm4.core);
		c->ghash(&key->hash, y, data, n);
		sits_core_leave(c);
	}
}

/* The same for what ends within a block, and is padded with zeros. */
static void hash_padded(const struct sits_gcm_key *key, u8 y[16], const u8 *data, size_t len)
{
	u8 last[16] = { 0 };

	hash_blocks(key, y, data, len / 16);
	if (len % 16) {
		memcpy(last, data + len / 16 * 16, len % 16);
		hash_blocks(key, y, last, 1);
	}
}

static void put_lengths(u8 block[16], u64 aad_len, u64 text_len)
{
	sits_put_be64(block, 8 * aad_len);
	sits_put_be64(block + 8, 8 * text_len);
}

static void first_counter(u8 ctr[16], const u8 iv[SITS_GCM_IV_LEN])
{
	memcpy(ctr, iv, SITS_GCM_IV_LEN);
	sits_put_be32(ctr + SITS_GCM_IV_LEN, 1);
}

static void increment(u8 ctr[16])
{
	sits_put_be32(ctr + 12, sits_get_be32(ctr + 12) + 1);
}

/* Whole blocks of text, either way. */
static void text_blocks(const struct sits_gcm_key *key, u8 ctr[16], u8 y[16], u8 *dst, const u8 *src, size_t nr_blocks,
			bool encrypt)
{
	const struct sits_sm4_core *c;
	size_t n;

	for (; nr_blocks; nr_blocks -= n, dst += 16 * n, src += 16 * n) {
		n = sits_core_piece(nr_blocks);
		c = sits_core_enter(key->sm4.core);
		if (encrypt)
			c->gcm_encrypt(&key->sm4.enc, &key->hash, ctr, y, dst, src, n);
		else
			c->gcm_decrypt(&key->sm4.enc, &key->hash, ctr, y, dst, src, n);
		sits_core_leave(c);
	}
}

static bool is_short(size_t aad_len, size_t len)
{
	return aad_len <= SHORT_AAD && len <= SHORT_TEXT;
}

static bool tags_differ(const u8 *a, const u8 *b, size_t len)
{
	u8 diff = 0;

	while (len--)
		diff |= *a++ ^ *b++;
	return diff;
}

/*
 * A short message, as the hash wants it, with room for the first counter's block where the associated data end (so that
 * the cipher finds it in front of the text, at another time):
 *
 *	| associated data, padded | text, padded | lengths |
 *			 | mask   |
 */
struct short_message {
	const struct sits_gcm_key *key;
	const u8 *iv;
	size_t nr_aad, nr;	/* blocks */
	u8 *text;	/* in bytes[] */
	u8 bytes[SHORT_AAD + SHORT_TEXT + 16];
};

/* Copy, padding the last block with zeros. */
static void copy_padded(u8 *dst, const u8 *src, size_t len)
{
	if (!len)
		return;
	memset(dst + (len - 1) / 16 * 16, 0, 16);
	memcpy(dst, src, len);
}

/* Cipher the text. @mask: out, E(J0). */
static void cipher_short(struct short_message *m, const struct sits_sm4_core *c, u8 mask[16])
{
	u8 ctr[16];

	first_counter(ctr, m->iv);
	memset(m->text - 16, 0, 16);
	c->ctr32(&m->key->sm4.enc, ctr, m->text - 16, m->text - 16, 1 + m->nr);
	memcpy(mask, m->text - 16, 16);
	sits_wipe(m->text - 16, 16);
}

/* Hash the message, whose text is ciphertext now. @y: out. */
static void hash_short(struct short_message *m, const struct sits_sm4_core *c, const u8 *aad, size_t aad_len, size_t len,
		       u8 y[16])
{
	memset(y, 0, 16);
	copy_padded(m->text - 16 * m->nr_aad, aad, aad_len);
	if (len % 16)
		memset(m->text + len, 0, 16 - len % 16);
	put_lengths(m->text + 16 * m->nr, aad_len, len);
	c->ghash(&m->key->hash, y, m->text - 16 * m->nr_aad, m->nr_aad + m->nr + 1);
}

static void set_short(struct short_message *m, const struct sits_gcm_key *key, const u8 *iv, size_t aad_len, const u8 *src,
		      size_t len)
{
	m->key = key;
	m->iv = iv;
	m->nr_aad = (aad_len + 15) / 16;
	m->nr = (len + 15) / 16;
	m->text = m->bytes + 16 * (m->nr_aad ? m->nr_aad : 1);
	copy_padded(m->text, src, len);
}

static sits_noinline void encrypt_short(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad,
					size_t aad_len, u8 *dst, const u8 *src, size_t len, u8 tag[SITS_GCM_TAG_LEN])
{
	const struct sits_sm4_core *c = sits_core_enter(key->sm4.core);
	struct short_message m;
	u8 mask[16], y[16];

	set_short(&m, key, iv, aad_len, src, len);
	cipher_short(&m, c, mask);
	hash_short(&m, c, aad, aad_len, len, y);
	sits_core_leave(c);
	if (len)
		memcpy(dst, m.text, len);
	sits_xor(tag, y, mask, 16);
	sits_wipe(mask, sizeof(mask));
	sits_wipe(y, sizeof(y));
}

static sits_noinline int decrypt_short(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad,
				       size_t aad_len, u8 *dst, const u8 *src, size_t len, const u8 tag[SITS_GCM_TAG_LEN])
{
	const struct sits_sm4_core *c = sits_core_enter(key->sm4.core);
	u8 mask[16], want[SITS_GCM_TAG_LEN];
	struct short_message m;
	bool differ;

	set_short(&m, key, iv, aad_len, src, len);
	hash_short(&m, c, aad, aad_len, len, want);
	cipher_short(&m, c, mask);
	sits_core_leave(c);
	sits_xor(want, want, mask, 16);
	differ = tags_differ(want, tag, SITS_GCM_TAG_LEN);
	if (len && !differ)
		memcpy(dst, m.text, len);
	sits_wipe(m.text, 16 * m.nr);
	sits_wipe(mask, sizeof(mask));
	sits_wipe(want, sizeof(want));
	return differ ? -EBADMSG : 0;
}

/* A long message, up to its tag. */
static sits_noinline void crypt_long(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad,
				     size_t aad_len, u8 *dst, const u8 *src, size_t len, bool encrypt,
				     u8 tag[SITS_GCM_TAG_LEN])
{
	u8 stream[32];	/* the mask, and the keystream of an end within a block: both counters in one call */
	u8 ctr[16], y[16] = { 0 }, last[32] = { 0 };
	size_t whole = len / 16 * 16, rest = len - whole;

	first_counter(stream, iv);
	memcpy(ctr, stream, 16);
	increment(ctr);
	hash_padded(key, y, aad, aad_len);
	text_blocks(key, ctr, y, dst, src, whole / 16, encrypt);
	memcpy(stream + 16, ctr, 16);
	sits_sm4_ecb_encrypt(&key->sm4, stream, stream, rest ? 2 : 1);
	if (rest) {
		if (!encrypt)
			memcpy(last, src + whole, rest);
		sits_xor(dst + whole, src + whole, stream + 16, rest);
		if (encrypt)
			memcpy(last, dst + whole, rest);
	}
	put_lengths(last + (rest ? 16 : 0), aad_len, len);
	hash_blocks(key, y, last, rest ? 2 : 1);
	sits_xor(tag, y, stream, 16);
	sits_wipe(stream, sizeof(stream));
	sits_wipe(y, sizeof(y));
}

static bool fits(size_t aad_len, size_t len)
{
	return (u64)len <= SITS_GCM_TEXT_MAX && (u64)aad_len <= SITS_GCM_AAD_MAX;
}

int sits_gcm_encrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		     u8 *dst, const u8 *src, size_t len, u8 tag[SITS_GCM_TAG_LEN])
{
	if (!fits(aad_len, len))
		return -EMSGSIZE;
	if (is_short(aad_len, len))
		encrypt_short(key, iv, aad, aad_len, dst, src, len, tag);
	else
		crypt_long(key, iv, aad, aad_len, dst, src, len, true, tag);
	sits_clean(SITS_CLEAN_MODE);
	return 0;
}

static int decrypt_long(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len, u8 *dst,
			const u8 *src, size_t len, const u8 tag[SITS_GCM_TAG_LEN])
{
	u8 want[SITS_GCM_TAG_LEN];
	bool differ;

	crypt_long(key, iv, aad, aad_len, dst, src, len, false, want);
	differ = tags_differ(want, tag, SITS_GCM_TAG_LEN);
	sits_wipe(want, sizeof(want));
	return differ ? -EBADMSG : 0;
}

int sits_gcm_decrypt(const struct sits_gcm_key *key, const u8 iv[SITS_GCM_IV_LEN], const u8 *aad, size_t aad_len,
		     u8 *dst, const u8 *src, size_t len, const u8 tag[SITS_GCM_TAG_LEN])
{
	int ret = -EBADMSG;

	if (is_short(aad_len, len))
		ret = decrypt_short(key, iv, aad, aad_len, dst, src, len, tag);
	else if (fits(aad_len, len))
		ret = decrypt_long(key, iv, aad, aad_len, dst, src, len, tag);
	if (ret && len)
		sits_wipe(dst, len);
	sits_clean(SITS_CLEAN_MODE);
	return ret;
}

int sits_gcm_start(struct sits_gcm *s, const struct sits_gcm_key *key, const u8 *iv, size_t iv_len)
{
	u8 lengths[16];

	if (!iv_len)
		return -EINVAL;
	memset(s, 0, sizeof(*s));
	s->key = key;
	if (iv_len == SITS_GCM_IV_LEN) {
		first_counter(s->ctr, iv);
	} else {
		put_lengths(lengths, 0, iv_len);
		hash_padded(key, s->ctr, iv, iv_len);
		hash_blocks(key, s->ctr, lengths, 1);
	}
	memcpy(s->mask, s->ctr, 16);
	increment(s->ctr);
	return 0;
}

/* Fill up the block to be hashed, of which have bytes are there. Return: how many bytes that took. */
static size_t fill_part(struct sits_gcm *s, const u8 *data, size_t have, size_t len)
{
	size_t n = 16 - have < len ? 16 - have : len;

	memcpy(s->part + have, data, n);
	if (have + n == 16)
		hash_blocks(s->key, s->y, s->part, 1);
	return n;
}

/* The end of the associated data, or of the text: have bytes of its last block are there. */
static void close_part(struct sits_gcm *s, size_t have)
{
	if (!have)
		return;
	memset(s->part + have, 0, 16 - have);
	hash_blocks(s->key, s->y, s->part, 1);
}

int sits_gcm_aad(struct sits_gcm *s, const u8 *aad, size_t len)
{
	size_t have = s->aad_len % 16, n = 0;

	if (s->in_text)
		return -EINVAL;
	if (len > SITS_GCM_AAD_MAX - s->aad_len)
		return -EMSGSIZE;
	if (!len)
		return 0;
	s->aad_len += len;
	if (have)
		n = fill_part(s, aad, have, len);
	hash_blocks(s->key, s->y, aad + n, (len - n) / 16);
	n += (len - n) / 16 * 16;
	if (n < len)
		fill_part(s, aad + n, 0, len - n);
	return 0;
}

/* Before any text. Return: 0; -EMSGSIZE. */
static int begin_text(struct sits_gcm *s, size_t len)
{
	if (len > SITS_GCM_TEXT_MAX - s->text_len)
		return -EMSGSIZE;
	if (!s->in_text)
		close_part(s, s->aad_len % 16);
	s->in_text = 1;
	return 0;
}

/* The keystream of the next block; and with it, since both take no longer than one, the mask. */
static void next_stream(struct sits_gcm *s)
{
	u8 both[32];

	memcpy(both, s->ctr, 16);
	memcpy(both + 16, s->mask, 16);
	sits_sm4_ecb_encrypt(&s->key->sm4, both, both, s->masked ? 1 : 2);
	memcpy(s->stream, both, 16);
	memcpy(s->mask, both + 16, 16);
	sits_wipe(both, sizeof(both));
	s->masked = 1;
	increment(s->ctr);
}

/* Part of one block, whose keystream is there. Return: how many bytes. */
static size_t text_part(struct sits_gcm *s, u8 *dst, const u8 *src, size_t len, bool encrypt)
{
	size_t have = s->text_len % 16, n = 16 - have < len ? 16 - have : len;

	if (!encrypt)
		fill_part(s, src, have, n);
	sits_xor(dst, src, s->stream + have, n);
	if (encrypt)
		fill_part(s, dst, have, n);
	s->text_len += n;
	return n;
}

static sits_noinline int update(struct sits_gcm *s, u8 *dst, const u8 *src, size_t len, bool encrypt)
{
	int ret = begin_text(s, len);
	size_t n = 0, whole;

	if (ret || !len)
		return ret;
	if (s->text_len % 16)
		n = text_part(s, dst, src, len, encrypt);
	whole = (len - n) / 16 * 16;
	text_blocks(s->key, s->ctr, s->y, dst + n, src + n, whole / 16, encrypt);
	s->text_len += whole;
	n += whole;
	if (n < len) {
		next_stream(s);
		text_part(s, dst + n, src + n, len - n, encrypt);
	}
	return 0;
}

static int update_and_clean(struct sits_gcm *s, u8 *dst, const u8 *src, size_t len, bool encrypt)
{
	bool parts = s->text_len % 16 || len % 16;
	int ret = update(s, dst, src, len, encrypt);

	if (parts)
		sits_clean(SITS_CLEAN_MODE);
	return ret;
}

int sits_gcm_update_encrypt(struct sits_gcm *s, u8 *dst, const u8 *src, size_t len)
{
	return update_and_clean(s, dst, src, len, true);
}

int sits_gcm_update_decrypt(struct sits_gcm *s, u8 *dst, const u8 *src, size_t len)
{
	return update_and_clean(s, dst, src, len, false);
}

int sits_gcm_update_auth(struct sits_gcm *s, const u8 *src, size_t len)
{
	size_t have = s->text_len % 16, n = 0, whole;
	int ret = begin_text(s, len);

	if (ret || !len)
		return ret;
	if (have)
		n = fill_part(s, src, have, len);
	whole = (len - n) / 16 * 16;
	hash_blocks(s->key, s->y, src + n, whole / 16);
	n += whole;
	if (n < len)
		fill_part(s, src + n, 0, len - n);
	s->text_len += len;
	return 0;
}

/* The end of the text and the lengths are hashed in one call. */
static sits_noinline void finish(struct sits_gcm *s, u8 tag[SITS_GCM_TAG_LEN])
{
	size_t have = (s->in_text ? s->text_len : s->aad_len) % 16;
	u8 last[32] = { 0 };

	memcpy(last, s->part, have);
	put_lengths(last + (have ? 16 : 0), s->aad_len, s->text_len);
	hash_blocks(s->key, s->y, last, have ? 2 : 1);
	if (!s->masked)
		sits_sm4_encrypt_block(&s->key->sm4, s->mask, s->mask);
	sits_xor(tag, s->y, s->mask, 16);
	sits_wipe(s, sizeof(*s));
}

void sits_gcm_final(struct sits_gcm *s, u8 tag[SITS_GCM_TAG_LEN])
{
	finish(s, tag);
	sits_clean(SITS_CLEAN_MODE);
}

int sits_gcm_verify(struct sits_gcm *s, const u8 *tag, size_t len)
{
	u8 want[SITS_GCM_TAG_LEN];
	bool differ;

	if (len < 4 || len > SITS_GCM_TAG_LEN) {
		sits_gcm_abandon(s);
		return -EINVAL;
	}
	finish(s, want);
	differ = tags_differ(want, tag, len);
	sits_wipe(want, sizeof(want));
	sits_clean(SITS_CLEAN_MODE);
	return differ ? -EBADMSG : 0;
}

void sits_gcm_abandon(struct sits_gcm *s)
{
	sits_wipe(s, sizeof(*s));
}
