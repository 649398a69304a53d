/* SPDX-License-Identifier: MIT */
/*
 * sm4_ops.h - everything that SM4 of crypto/ can do to a message, as one table: what each does, on a core of choice, and what
 * others (peers.h) say that it should give. Tests of all of them go through the table.
 */
#ifndef SITS_TESTS_CRYPTO_SM4_OPS_H
#define SITS_TESTS_CRYPTO_SM4_OPS_H

#include "crypto/sm4.h"
#include "tests/unit/crypto/peers.h"

/* Instrumented code is several times slower, and leaves on the stack what ours does not. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OPS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define OPS_SANITIZED 1
#elif !defined(OPS_SANITIZED)
#define OPS_SANITIZED 0
#endif

/* What an operation works on: its key, ready for a core. */
union op_key {
	struct sits_sm4_key sm4;
	struct sits_xts_key xts;
	struct sits_gcm_key gcm;
};

/*
 * One message. All pointers are the caller's.
 *
 * @raw: 16 bytes, XTS: 32
 * @iv, @iv_len: counter, initial value, tweak's number (16); GCM: nonce of any length but 0
 * @state: in and out where an operation goes on from a state: what is left in iv's copy, or the hash
 * @tag: GCM: out when encrypting, in when decrypting
 * @split: 0: one call; else the seed of a splitting into pieces (where the operation has them), empty ones among them
 */
struct op_args {
	const struct sits_sm4_core *core;
	const uint8_t *raw;
	const uint8_t *iv;
	size_t iv_len;
	const uint8_t *aad;
	size_t aad_len;
	uint8_t *dst;
	const uint8_t *src;
	size_t len;
	uint8_t state[16], state2[16];
	uint8_t tag[16];
	uint64_t split;
};

/* @step: lengths are multiples of it. @min_len: below, it is refused. */
struct op {
	const char *name;
	size_t step, min_len;
	bool aead, pieces;
	void (*set_key)(const struct sits_sm4_core *core, union op_key *key, const uint8_t *raw);
	int (*run)(const union op_key *key, struct op_args *a);
	void (*peer)(struct op_args *a);
};

/* ---------------------------------------------------------------- pieces */

static inline uint64_t op_next(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* How much of what is left comes next, in units; all of it without a seed. */
static inline size_t op_piece(uint64_t *seed, size_t left)
{
	static const uint16_t most[] = { 1, 2, 17, 40, 300, 2100, 9000, 65535 };
	uint64_t r;
	size_t n;

	if (!*seed)
		return left;
	r = op_next(seed);
	n = (size_t)((r >> 8) % (1u + most[r % 8]));
	/* A message of many megabytes need not come a byte at a time. */
	if (left > 1u << 17)
		n += left / 3;
	return n < left ? n : left;
}

/* ---------------------------------------------------------------- ours */

static inline void op_sm4_key(const struct sits_sm4_core *core, union op_key *key, const uint8_t *raw)
{
	sits_sm4_expand_key_on(core, &key->sm4, raw);
}

static inline void op_xts_key(const struct sits_sm4_core *core, union op_key *key, const uint8_t *raw)
{
	sits_xts_set_key_on(core, &key->xts, raw);
}

static inline void op_gcm_key(const struct sits_sm4_core *core, union op_key *key, const uint8_t *raw)
{
	sits_gcm_set_key_on(core, &key->gcm, raw);
}

/* A loop over pieces of whole blocks: at, n count blocks. */
#define OP_BLOCKS(call) do { \
	uint64_t seed_ = a->split; \
	size_t nr_ = a->len / 16, at, n; \
	for (at = 0; at < nr_ || !nr_; at += n) { \
		n = op_piece(&seed_, nr_ - at); \
		call; \
		if (!nr_) \
			break; \
	} \
} while (0)

#define OP_BLOCKS_FN(name, call) \
static inline int name(const union op_key *key, struct op_args *a) \
{ \
	memcpy(a->state, a->iv ? a->iv : a->raw, 16); \
	OP_BLOCKS(call); \
	return 0; \
}

OP_BLOCKS_FN(op_ecb_encrypt, sits_sm4_ecb_encrypt(&key->sm4, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_ecb_decrypt, sits_sm4_ecb_decrypt(&key->sm4, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_cbc_encrypt, sits_sm4_cbc_encrypt(&key->sm4, a->state, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_cbc_decrypt, sits_sm4_cbc_decrypt(&key->sm4, a->state, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_core_encrypt, a->core->crypt(&key->sm4.enc, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_core_decrypt, a->core->crypt(&key->sm4.dec, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_core_cbc, a->core->cbc_decrypt(&key->sm4.dec, a->state, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_core_ctr128, a->core->ctr128(&key->sm4.enc, a->state, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_core_ctr32, a->core->ctr32(&key->sm4.enc, a->state, a->dst + 16 * at, a->src + 16 * at, n))
OP_BLOCKS_FN(op_core_xts_encrypt, a->core->xts(&key->sm4.enc, a->state, a->dst + 16 * at, a->src + 16 * at, n, false))
OP_BLOCKS_FN(op_core_xts_decrypt, a->core->xts(&key->sm4.dec, a->state, a->dst + 16 * at, a->src + 16 * at, n, false))
OP_BLOCKS_FN(op_core_xts_gb_encrypt, a->core->xts(&key->sm4.enc, a->state, a->dst + 16 * at, a->src + 16 * at, n, true))
OP_BLOCKS_FN(op_core_xts_gb_decrypt, a->core->xts(&key->sm4.dec, a->state, a->dst + 16 * at, a->src + 16 * at, n, true))

/* The hash starts from the first block of the nonce, not from zero: a core goes on from any state. */
OP_BLOCKS_FN(op_core_ghash, a->core->ghash(&key->gcm.hash, a->state, a->src + 16 * at, n))

static inline int op_core_gcm_encrypt(const union op_key *key, struct op_args *a)
{
	memcpy(a->state, a->iv, 16);
	memcpy(a->state2, a->raw, 16);
	OP_BLOCKS(a->core->gcm_encrypt(&key->gcm.sm4.enc, &key->gcm.hash, a->state, a->state2, a->dst + 16 * at,
				       a->src + 16 * at, n));
	return 0;
}

static inline int op_core_gcm_decrypt(const union op_key *key, struct op_args *a)
{
	memcpy(a->state, a->iv, 16);
	memcpy(a->state2, a->raw, 16);
	OP_BLOCKS(a->core->gcm_decrypt(&key->gcm.sm4.enc, &key->gcm.hash, a->state, a->state2, a->dst + 16 * at,
				       a->src + 16 * at, n));
	return 0;
}

static inline int op_ctr(const union op_key *key, struct op_args *a)
{
	memcpy(a->state, a->iv, 16);
	sits_sm4_ctr(&key->sm4, a->state, a->dst, a->src, a->len);
	return 0;
}

static inline int op_stream(const union op_key *key, struct op_args *a)
{
	struct sits_sm4_stream s;
	uint64_t seed = a->split;

	sits_sm4_stream_start(&s, &key->sm4, a->iv);
	for (size_t at = 0, n; at < a->len; at += n) {
		n = op_piece(&seed, a->len - at);
		sits_sm4_stream_crypt(&s, a->dst + at, a->src + at, n);
	}
	sits_sm4_stream_end(&s);
	return 0;
}

static inline int op_xts(const union op_key *key, struct op_args *a, enum sits_xts_form form, bool enc)
{
	size_t tail = a->len % 16 ? a->len % 16 + 16 : 0, nr = (a->len - tail) / 16;
	uint64_t seed = a->split;

	if (!a->split)
		return (enc ? sits_xts_encrypt : sits_xts_decrypt)(&key->xts, form, a->iv, a->dst, a->src, a->len);
	sits_xts_start(&key->xts, a->state, a->iv);
	for (size_t at = 0, n; at < nr; at += n) {
		n = op_piece(&seed, nr - at);
		(enc ? sits_xts_encrypt_blocks : sits_xts_decrypt_blocks)(&key->xts, form, a->state, a->dst + 16 * at,
									  a->src + 16 * at, n);
	}
	if (tail)
		(enc ? sits_xts_encrypt_tail : sits_xts_decrypt_tail)(&key->xts, form, a->state, a->dst + 16 * nr,
								      a->src + 16 * nr, tail);
	sits_wipe(a->state, 16);
	return 0;
}

static inline int op_xts_encrypt(const union op_key *key, struct op_args *a)
{
	return op_xts(key, a, SITS_XTS_IEEE, true);
}

static inline int op_xts_decrypt(const union op_key *key, struct op_args *a)
{
	return op_xts(key, a, SITS_XTS_IEEE, false);
}

static inline int op_xts_gb_encrypt(const union op_key *key, struct op_args *a)
{
	return op_xts(key, a, SITS_XTS_GB, true);
}

static inline int op_xts_gb_decrypt(const union op_key *key, struct op_args *a)
{
	return op_xts(key, a, SITS_XTS_GB, false);
}

static inline int op_gcm_feed(const union op_key *key, struct sits_gcm *s, struct op_args *a, int enc)
{
	uint64_t seed = a->split;
	int ret = sits_gcm_start(s, &key->gcm, a->iv, a->iv_len);

	for (size_t at = 0, n; !ret && at < a->aad_len; at += n) {
		n = op_piece(&seed, a->aad_len - at);
		ret = sits_gcm_aad(s, a->aad + at, n);
	}
	for (size_t at = 0, n; !ret && at < a->len; at += n) {
		n = op_piece(&seed, a->len - at);
		if (enc < 0)
			ret = sits_gcm_update_auth(s, a->src + at, n);
		else
			ret = (enc ? sits_gcm_update_encrypt : sits_gcm_update_decrypt)(s, a->dst + at, a->src + at, n);
	}
	return ret;
}

static inline int op_gcm_encrypt(const union op_key *key, struct op_args *a)
{
	struct sits_gcm s;
	int ret;

	if (!a->split && a->iv_len == SITS_GCM_IV_LEN)
		return sits_gcm_encrypt(&key->gcm, a->iv, a->aad, a->aad_len, a->dst, a->src, a->len, a->tag);
	ret = op_gcm_feed(key, &s, a, 1);
	if (!ret)
		sits_gcm_final(&s, a->tag);
	return ret;
}

static inline int op_gcm_decrypt(const union op_key *key, struct op_args *a)
{
	struct sits_gcm s;
	int ret;

	if (!a->split && a->iv_len == SITS_GCM_IV_LEN)
		return sits_gcm_decrypt(&key->gcm, a->iv, a->aad, a->aad_len, a->dst, a->src, a->len, a->tag);
	ret = op_gcm_feed(key, &s, a, 0);
	return ret ? ret : sits_gcm_verify(&s, a->tag, 16);
}

static inline int op_gcm_auth(const union op_key *key, struct op_args *a)
{
	struct sits_gcm s;
	int ret = op_gcm_feed(key, &s, a, -1);

	return ret ? ret : sits_gcm_verify(&s, a->tag, 16);
}

/* ---------------------------------------------------------------- theirs: dst, state, tag as ours should leave them */

static inline void op_peer_ecb_encrypt(struct op_args *a)
{
	peer_ecb(1, a->raw, a->dst, a->src, a->len);
}

static inline void op_peer_ecb_decrypt(struct op_args *a)
{
	peer_ecb(0, a->raw, a->dst, a->src, a->len);
}

static inline void op_peer_cbc_encrypt(struct op_args *a)
{
	peer_cbc(1, a->raw, a->iv, a->dst, a->src, a->len);
	memcpy(a->state, a->len ? a->dst + a->len - 16 : a->iv, 16);
}

static inline void op_peer_cbc_decrypt(struct op_args *a)
{
	memcpy(a->state, a->len ? a->src + a->len - 16 : a->iv, 16);
	peer_cbc(0, a->raw, a->iv, a->dst, a->src, a->len);
}

static inline void op_peer_ctr(struct op_args *a)
{
	peer_ctr(a->raw, a->iv, a->dst, a->src, a->len);
	memcpy(a->state, a->iv, 16);
	peer_count(a->state, (a->len + 15) / 16, 128);
}

static inline void op_peer_stream(struct op_args *a)
{
	peer_ctr(a->raw, a->iv, a->dst, a->src, a->len);
}

static inline void op_peer_ctr32(struct op_args *a)
{
	peer_ctr32(a->raw, a->iv, a->dst, a->src, a->len);
	memcpy(a->state, a->iv, 16);
	peer_count(a->state, a->len / 16, 32);
}

/* The tweak that goes in is the iv itself. */
static inline void op_peer_core_xts(struct op_args *a, int enc, int gb)
{
	memcpy(a->state, a->iv, 16);
	peer_xts_blocks(enc, gb, a->raw, a->state, a->dst, a->src, a->len);
}

static inline void op_peer_core_xts_encrypt(struct op_args *a)
{
	op_peer_core_xts(a, 1, 0);
}

static inline void op_peer_core_xts_decrypt(struct op_args *a)
{
	op_peer_core_xts(a, 0, 0);
}

static inline void op_peer_core_xts_gb_encrypt(struct op_args *a)
{
	op_peer_core_xts(a, 1, 1);
}

static inline void op_peer_core_xts_gb_decrypt(struct op_args *a)
{
	op_peer_core_xts(a, 0, 1);
}

static inline void op_peer_hash(struct op_args *a, uint8_t y[16], const uint8_t *data)
{
	uint8_t h[16] = { 0 };

	peer_ecb(1, a->raw, h, h, 16);
	peer_ghash(y, h, data, a->len / 16);
}

static inline void op_peer_core_ghash(struct op_args *a)
{
	memcpy(a->state, a->iv, 16);
	op_peer_hash(a, a->state, a->src);
}

static inline void op_peer_core_gcm_encrypt(struct op_args *a)
{
	memcpy(a->state2, a->raw, 16);
	op_peer_ctr32(a);
	op_peer_hash(a, a->state2, a->dst);
}

static inline void op_peer_core_gcm_decrypt(struct op_args *a)
{
	memcpy(a->state2, a->raw, 16);
	op_peer_hash(a, a->state2, a->src);
	op_peer_ctr32(a);
}

/* libgcrypt as far as it goes, else the definition. */
static inline void op_peer_xts_encrypt(struct op_args *a)
{
	if (a->len <= 1u << 24)
		peer_xts_gcry(1, a->raw, a->iv, a->dst, a->src, a->len);
	else
		peer_xts(1, 0, a->raw, a->iv, a->dst, a->src, a->len);
}

static inline void op_peer_xts_decrypt(struct op_args *a)
{
	if (a->len <= 1u << 24)
		peer_xts_gcry(0, a->raw, a->iv, a->dst, a->src, a->len);
	else
		peer_xts(0, 0, a->raw, a->iv, a->dst, a->src, a->len);
}

static inline void op_peer_xts_gb_encrypt(struct op_args *a)
{
	peer_xts(1, 1, a->raw, a->iv, a->dst, a->src, a->len);
}

static inline void op_peer_xts_gb_decrypt(struct op_args *a)
{
	peer_xts(0, 1, a->raw, a->iv, a->dst, a->src, a->len);
}

static inline void op_peer_gcm_encrypt(struct op_args *a)
{
	peer_gcm(1, a->raw, a->iv, a->iv_len, a->aad, a->aad_len, a->dst, a->src, a->len, a->tag);
}

static inline void op_peer_gcm_decrypt(struct op_args *a)
{
	peer_gcm(0, a->raw, a->iv, a->iv_len, a->aad, a->aad_len, a->dst, a->src, a->len, a->tag);
}

/* ---------------------------------------------------------------- the table */

enum {
	OP_ECB_ENCRYPT, OP_ECB_DECRYPT, OP_CBC_ENCRYPT, OP_CBC_DECRYPT, OP_CTR, OP_STREAM,
	OP_XTS_ENCRYPT, OP_XTS_DECRYPT, OP_XTS_GB_ENCRYPT, OP_XTS_GB_DECRYPT,
	OP_GCM_ENCRYPT, OP_GCM_DECRYPT, OP_GCM_AUTH,
	/* from here on: functions of a core, which modes may not send such messages to */
	OP_CORE_ENCRYPT, OP_CORE_DECRYPT, OP_CORE_CBC, OP_CORE_CTR128, OP_CORE_CTR32,
	OP_CORE_XTS_ENCRYPT, OP_CORE_XTS_DECRYPT, OP_CORE_XTS_GB_ENCRYPT, OP_CORE_XTS_GB_DECRYPT,
	OP_CORE_GHASH, OP_CORE_GCM_ENCRYPT, OP_CORE_GCM_DECRYPT,
	NR_OPS,
};

#define OP_FN(name) op_##name, op_peer_##name

static const struct op ops[NR_OPS] = {
	[OP_ECB_ENCRYPT] = { "ecb-encrypt", 16, 0, false, true, op_sm4_key, OP_FN(ecb_encrypt) },
	[OP_ECB_DECRYPT] = { "ecb-decrypt", 16, 0, false, true, op_sm4_key, OP_FN(ecb_decrypt) },
	[OP_CBC_ENCRYPT] = { "cbc-encrypt", 16, 0, false, true, op_sm4_key, OP_FN(cbc_encrypt) },
	[OP_CBC_DECRYPT] = { "cbc-decrypt", 16, 0, false, true, op_sm4_key, OP_FN(cbc_decrypt) },
	[OP_CTR] = { "ctr", 1, 0, false, false, op_sm4_key, OP_FN(ctr) },
	[OP_STREAM] = { "stream", 1, 0, false, true, op_sm4_key, OP_FN(stream) },
	[OP_XTS_ENCRYPT] = { "xts-encrypt", 1, 16, false, true, op_xts_key, OP_FN(xts_encrypt) },
	[OP_XTS_DECRYPT] = { "xts-decrypt", 1, 16, false, true, op_xts_key, OP_FN(xts_decrypt) },
	[OP_XTS_GB_ENCRYPT] = { "xts-gb-encrypt", 1, 16, false, true, op_xts_key, OP_FN(xts_gb_encrypt) },
	[OP_XTS_GB_DECRYPT] = { "xts-gb-decrypt", 1, 16, false, true, op_xts_key, OP_FN(xts_gb_decrypt) },
	[OP_GCM_ENCRYPT] = { "gcm-encrypt", 1, 0, true, true, op_gcm_key, OP_FN(gcm_encrypt) },
	[OP_GCM_DECRYPT] = { "gcm-decrypt", 1, 0, true, true, op_gcm_key, OP_FN(gcm_decrypt) },
	[OP_GCM_AUTH] = { "gcm-auth", 1, 0, true, true, op_gcm_key, op_gcm_auth, op_peer_gcm_decrypt },
	[OP_CORE_ENCRYPT] = { "core-encrypt", 16, 0, false, true, op_sm4_key, op_core_encrypt, op_peer_ecb_encrypt },
	[OP_CORE_DECRYPT] = { "core-decrypt", 16, 0, false, true, op_sm4_key, op_core_decrypt, op_peer_ecb_decrypt },
	[OP_CORE_CBC] = { "core-cbc-decrypt", 16, 0, false, true, op_sm4_key, op_core_cbc, op_peer_cbc_decrypt },
	[OP_CORE_CTR128] = { "core-ctr128", 16, 0, false, true, op_sm4_key, op_core_ctr128, op_peer_ctr },
	[OP_CORE_CTR32] = { "core-ctr32", 16, 0, false, true, op_sm4_key, op_core_ctr32, op_peer_ctr32 },
	[OP_CORE_XTS_ENCRYPT] = { "core-xts-encrypt", 16, 0, false, true, op_sm4_key, OP_FN(core_xts_encrypt) },
	[OP_CORE_XTS_DECRYPT] = { "core-xts-decrypt", 16, 0, false, true, op_sm4_key, OP_FN(core_xts_decrypt) },
	[OP_CORE_XTS_GB_ENCRYPT] = { "core-xts-gb-encrypt", 16, 0, false, true, op_sm4_key, OP_FN(core_xts_gb_encrypt) },
	[OP_CORE_XTS_GB_DECRYPT] = { "core-xts-gb-decrypt", 16, 0, false, true, op_sm4_key, OP_FN(core_xts_gb_decrypt) },
	[OP_CORE_GHASH] = { "core-ghash", 16, 0, false, true, op_gcm_key, OP_FN(core_ghash) },
	[OP_CORE_GCM_ENCRYPT] = { "core-gcm-encrypt", 16, 0, false, true, op_gcm_key, OP_FN(core_gcm_encrypt) },
	[OP_CORE_GCM_DECRYPT] = { "core-gcm-decrypt", 16, 0, false, true, op_gcm_key, OP_FN(core_gcm_decrypt) },
};

/* No text comes out of these. */
static inline bool op_writes(int op)
{
	return op != OP_GCM_AUTH && op != OP_CORE_GHASH;
}

/* Which leave a state that goes on (counter, last block, tweak, hash). */
static inline bool op_has_state(int op)
{
	return op == OP_CBC_ENCRYPT || op == OP_CBC_DECRYPT || op == OP_CTR ||
	       (op >= OP_CORE_CBC && op <= OP_CORE_GCM_DECRYPT);
}

#endif
