// SPDX-License-Identifier: GPL-2.0
/*
 * weights_key.c - key-encryption keys from the kernel's keyrings.
 *
 * Bytes go from the key's payload into the caller's buffer, and nowhere else. No table is indexed
 * and no branch taken by them.
 */
#include <keys/user-type.h>
#include <linux/err.h>
#include <linux/key.h>
#include <linux/keyctl.h>

#include "kmod/weights_key.h"

#define SITS_KEY_HEX_LEN (2 * SITS_SM4_KEY_LEN)

/* Return 0 to 15, or -1. */
static int sits_hex_value(unsigned int c)
{
	unsigned int digit = c - '0', letter = (c | 0x20) - 'a';
	int is_digit = -(int)(digit < 10), is_letter = -(int)(letter < 6);

	return ((int)digit & is_digit) | ((int)(letter + 10) & is_letter) | ~(is_digit | is_letter);
}

static bool sits_key_from_hex(const u8 *text, u8 raw[SITS_SM4_KEY_LEN])
{
	int bad = 0;
	size_t i;

	for (i = 0; i < SITS_SM4_KEY_LEN; i++) {
		int hi = sits_hex_value(text[2 * i]), lo = sits_hex_value(text[2 * i + 1]);

		bad |= hi | lo;
		raw[i] = (u8)((unsigned int)hi << 4 | ((unsigned int)lo & 15));
	}
	return bad >= 0;
}

static unsigned int sits_is_beyond(unsigned int c, unsigned int first, unsigned int last)
{
	return c - first > last - first;
}

/* Sixteen bytes of text are a password, not a key. */
static bool sits_key_is_text(const u8 *text)
{
	unsigned int others = 0;
	size_t i;

	for (i = 0; i < SITS_SM4_KEY_LEN; i++)
		others |= sits_is_beyond(text[i], ' ', '~') & sits_is_beyond(text[i], '\t', '\r');
	return !others;
}

static int sits_key_parse(const struct user_key_payload *payload, u8 raw[SITS_SM4_KEY_LEN])
{
	const u8 *text = payload->data;
	size_t len = payload->datalen;

	if (len == SITS_SM4_KEY_LEN) {
		memcpy(raw, text, SITS_SM4_KEY_LEN);
		return sits_key_is_text(text) ? -EKEYREJECTED : 0;
	}
	if (len == SITS_KEY_HEX_LEN + 2 && text[len - 2] == '\r' && text[len - 1] == '\n')
		len -= 2;
	if (len == SITS_KEY_HEX_LEN + 1 && text[len - 1] == '\n')
		len--;
	return len == SITS_KEY_HEX_LEN && sits_key_from_hex(text, raw) ? 0 : -EKEYREJECTED;
}

/* In the user keyring, linked from the session or not. */
static struct key *sits_key_search_user(struct key_type *type, const char *desc)
{
	key_ref_t ring, found;

	ring = lookup_user_key(KEY_SPEC_USER_KEYRING, 0, KEY_NEED_SEARCH);
	if (IS_ERR(ring))
		return ERR_CAST(ring);
	found = keyring_search(ring, type, desc, true);
	key_ref_put(ring);
	return IS_ERR(found) ? ERR_CAST(found) : key_ref_to_ptr(found);
}

/*
 * Of two failed searches, what tells more; the search says -EAGAIN of keyrings without such a key.
 */
static int sits_key_worse(int ret, struct key *key)
{
	int err = PTR_ERR(key);

	if (ret != -ENOKEY || err == -EAGAIN)
		return ret;
	return err == -EKEYEXPIRED ? -EKEYREVOKED : err;
}

static struct key *sits_key_search(const char *desc)
{
	struct key_type *types[] = { &key_type_logon, &key_type_user };
	int i, ret = -ENOKEY;
	struct key *key;

	for (i = 0; i < 4; i++) {
		/* Without callout information nobody is asked to make the key. */
		key = i < 2 ? request_key(types[i], desc, NULL) :
			      sits_key_search_user(types[i - 2], desc);
		if (!IS_ERR(key))
			return key;
		ret = sits_key_worse(ret, key);
	}
	return ERR_PTR(ret);
}

int sits_weights_key_get(const char *desc, u8 raw[SITS_SM4_KEY_LEN])
{
	const struct user_key_payload *payload;
	struct key *key;
	int ret = -EKEYREVOKED;

	memset(raw, 0, SITS_SM4_KEY_LEN);
	key = sits_key_search(desc);
	if (IS_ERR(key))
		return PTR_ERR(key);
	down_read(&key->sem);
	/* Revoking takes the payload away. */
	payload = user_key_payload_locked(key);
	if (payload)
		ret = sits_key_parse(payload, raw);
	up_read(&key->sem);
	key_put(key);
	if (ret)
		memzero_explicit(raw, SITS_SM4_KEY_LEN);
	return ret;
}
