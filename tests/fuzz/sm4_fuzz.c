// SPDX-License-Identifier: MIT
/*
 * sm4_fuzz.c - messages to SM4 in pieces, on any core: the same as in one call on the portable core, and back again; what was
 * changed is refused. libFuzzer finds the pieces that reach each path of the modes' state.
 *
 * Input: a header of HEADER bytes, then the lengths of the pieces, two bytes each, over and over. The text is a pattern made of the
 * header.
 */
#include <errno.h>

#include "crypto/sm4.h"
#include "tests/fuzz/fuzz.h"

#define TEXT_MAX 4400
#define AAD_MAX 600
#define HEADER 64

enum { STREAM, XTS, GCM, CBC, NR_MODES };

static struct {
	const u8 *lens;		/* of pieces */
	size_t nr_lens, at;
	u8 aad[AAD_MAX], text[TEXT_MAX], whole[TEXT_MAX], pieces[TEXT_MAX], back[TEXT_MAX];
} in;

/* The next piece of what is left: at least nothing, and now and then something. */
static size_t piece(size_t left)
{
	size_t n, i = in.nr_lens ? in.at++ % in.nr_lens : 0;

	if (!in.nr_lens || in.at > 64)
		return left;
	n = (size_t)in.lens[2 * i] | (size_t)(in.lens[2 * i + 1] & 15) << 8;
	return n < left ? n : left;
}

static void stream(const struct sits_sm4_core *core, const u8 *head, const u8 *src, u8 *dst, size_t len, bool whole)
{
	struct sits_sm4_stream s;
	struct sits_sm4_key key;

	sits_sm4_expand_key_on(core, &key, head);
	sits_sm4_stream_start(&s, &key, head + 32);
	for (size_t at = 0, n; at < len; at += n) {
		n = whole ? len : piece(len - at);
		sits_sm4_stream_crypt(&s, dst + at, src + at, n);
	}
	sits_sm4_stream_end(&s);
}

static void xts(const struct sits_sm4_core *core, const u8 *head, const u8 *src, u8 *dst, size_t len, bool whole, bool enc)
{
	enum sits_xts_form form = head[48] & 1 ? SITS_XTS_GB : SITS_XTS_IEEE;
	size_t tail = len % 16 ? len % 16 + 16 : 0, nr = (len - tail) / 16;
	struct sits_xts_key key;
	u8 tweak[16];

	sits_xts_set_key_on(core, &key, head);
	if (whole) {
		FUZZ_CHECK(!(enc ? sits_xts_encrypt : sits_xts_decrypt)(&key, form, head + 32, dst, src, len));
		return;
	}
	sits_xts_start(&key, tweak, head + 32);
	for (size_t at = 0, n; at < nr; at += n) {
		n = piece(nr - at);
		(enc ? sits_xts_encrypt_blocks : sits_xts_decrypt_blocks)(&key, form, tweak, dst + 16 * at, src + 16 * at, n);
	}
	if (tail)
		(enc ? sits_xts_encrypt_tail : sits_xts_decrypt_tail)(&key, form, tweak, dst + 16 * nr, src + 16 * nr, tail);
}

static void cbc(const struct sits_sm4_core *core, const u8 *head, const u8 *src, u8 *dst, size_t len, bool whole, bool enc)
{
	struct sits_sm4_key key;
	u8 iv[16];

	memcpy(iv, head + 32, 16);
	sits_sm4_expand_key_on(core, &key, head);
	for (size_t at = 0, n; at < len / 16; at += n) {
		n = whole ? len / 16 : piece(len / 16 - at);
		(enc ? sits_sm4_cbc_encrypt : sits_sm4_cbc_decrypt)(&key, iv, dst + 16 * at, src + 16 * at, n);
	}
}

/* way: 1 encrypts, 0 decrypts, -1 verifies alone. */
static int gcm(const struct sits_sm4_core *core, const u8 *head, size_t aad_len, const u8 *src, u8 *dst, size_t len, bool whole,
	       int way, u8 tag[16])
{
	size_t iv_len = 1 + head[49] % 32;
	struct sits_gcm_key key;
	struct sits_gcm s;

	sits_gcm_set_key_on(core, &key, head);
	if (whole && iv_len == SITS_GCM_IV_LEN && way >= 0) {
		if (!way)
			return sits_gcm_decrypt(&key, head + 16, in.aad, aad_len, dst, src, len, tag);
		return sits_gcm_encrypt(&key, head + 16, in.aad, aad_len, dst, src, len, tag);
	}
	FUZZ_CHECK(!sits_gcm_start(&s, &key, head + 16, iv_len));
	for (size_t at = 0, n; at < aad_len; at += n) {
		n = whole ? aad_len : piece(aad_len - at);
		FUZZ_CHECK(!sits_gcm_aad(&s, in.aad + at, n));
	}
	for (size_t at = 0, n; at < len; at += n) {
		n = whole ? len : piece(len - at);
		if (way < 0)
			FUZZ_CHECK(!sits_gcm_update_auth(&s, src + at, n));
		else
			FUZZ_CHECK(!(way ? sits_gcm_update_encrypt : sits_gcm_update_decrypt)(&s, dst + at, src + at, n));
	}
	if (way <= 0)
		return sits_gcm_verify(&s, tag, 16);
	sits_gcm_final(&s, tag);
	return 0;
}

static void check_gcm(const struct sits_sm4_core *core, const u8 *head, size_t aad_len, size_t len)
{
	u8 tag[16], other[16];

	FUZZ_CHECK(!gcm(&sits_sm4_portable, head, aad_len, in.text, in.whole, len, true, 1, tag));
	FUZZ_CHECK(!gcm(core, head, aad_len, in.text, in.pieces, len, false, 1, other));
	FUZZ_CHECK(!memcmp(tag, other, 16) && !memcmp(in.whole, in.pieces, len));
	FUZZ_CHECK(!gcm(core, head, aad_len, in.pieces, in.back, len, false, 0, tag));
	FUZZ_CHECK(!memcmp(in.back, in.text, len));
	FUZZ_CHECK(!gcm(core, head, aad_len, in.pieces, NULL, len, false, -1, tag));
	tag[head[50] % 16] ^= (u8)(1 << head[51] % 8);
	FUZZ_CHECK(gcm(core, head, aad_len, in.pieces, in.back, len, head[52] & 1, 0, tag) == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sits_sm4_core *const *cores, *core;
	size_t len, aad_len;
	unsigned int nr;
	uint64_t rng;

	if (size < HEADER)
		return 0;
	cores = sits_sm4_cores(&nr);
	core = cores[data[53] % nr];
	len = ((size_t)data[54] | (size_t)data[55] << 8) % TEXT_MAX;
	aad_len = ((size_t)data[56] | (size_t)data[57] << 8) % AAD_MAX;
	in.lens = data + HEADER;
	in.nr_lens = (size - HEADER) / 2;
	in.at = 0;
	memcpy(&rng, data + 16, 8);
	rng |= 1;
	for (size_t i = 0; i < aad_len; i++)
		in.aad[i] = (u8)(fuzz_rand(&rng) >> 56);
	for (size_t i = 0; i < len; i++)
		in.text[i] = (u8)(fuzz_rand(&rng) >> 56);
	switch (data[58] % NR_MODES) {
	case STREAM:
		stream(&sits_sm4_portable, data, in.text, in.whole, len, true);
		stream(core, data, in.text, in.pieces, len, false);
		stream(core, data, in.pieces, in.back, len, false);
		break;
	case XTS:
		len = len < 16 ? 16 + len : len;
		xts(&sits_sm4_portable, data, in.text, in.whole, len, true, true);
		xts(core, data, in.text, in.pieces, len, false, true);
		xts(core, data, in.pieces, in.back, len, false, false);
		break;
	case CBC:
		len -= len % 16;
		cbc(&sits_sm4_portable, data, in.text, in.whole, len, true, true);
		cbc(core, data, in.text, in.pieces, len, false, true);
		cbc(core, data, in.pieces, in.back, len, false, false);
		break;
	default:
		check_gcm(core, data, aad_len, len);
		return 0;
	}
	FUZZ_CHECK(!memcmp(in.whole, in.pieces, len));
	FUZZ_CHECK(!memcmp(in.back, in.text, len));
	return 0;
}
