// SPDX-License-Identifier: MIT
/*
 * key.c - key-encryption keys: opening, making, reading in, and what their bytes look like outside.
 *
 * Key bytes go from where they are kept (key_source.h) into a page of secret memory (secret.c) and nowhere else: not through
 * stdio, the heap or the stack, and never into a message. What is sealed under a key is for others.
 */
#include "libsits/key.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/key_source.h"
#include "libsits/secret.h"

#define BASE64_LEN	24		/* of a key, with its "==" */
#define SPEC_HELP	"a key is given as file:PATH or keyring:NAME, for example file:/etc/sits/model.key"

static const struct sits_key_source *const sources[] = { &sits_key_file, &sits_key_keyring, &sits_key_tpm };

void sits_hex(const u8 *bytes, size_t len, char *out)
{
	size_t i;

	for (i = 0; i < 2 * len; i++) {
		unsigned int v = i & 1 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4;

		/* No table: it may be a secret. For v above 9 the shift gives ones. */
		out[i] = (char)('0' + v + ((9 - v) >> 8 & ('a' - '0' - 10)));
	}
	out[2 * len] = '\0';
}

/* Digits of a key: no tables indexed by secrets. Return: 0 to 15, or -1. */
static int hex_value(unsigned int c)
{
	unsigned int digit = c - '0', letter = (c | 0x20) - 'a';
	int is_digit = -(int)(digit < 10), is_letter = -(int)(letter < 6);

	return ((int)digit & is_digit) | ((int)(letter + 10) & is_letter) | ~(is_digit | is_letter);
}

static bool from_hex(const char *text, u8 *raw)
{
	size_t i;
	int bad = 0;

	for (i = 0; i < SITS_SM4_KEY_LEN; i++) {
		int hi = hex_value((unsigned char)text[2 * i]), lo = hex_value((unsigned char)text[2 * i + 1]);

		bad |= hi | lo;
		raw[i] = (u8)((unsigned int)hi << 4 | ((unsigned int)lo & 15));
	}
	return bad >= 0;
}

/*
 * Sixteen bytes that are all text: a password, with its end of line, or half of the digits. Bytes from a random
 * generator look like this once in 5 million times, and can be given as digits then.
 */
static bool is_text(const char *text, size_t len)
{
	unsigned int others = 0;
	size_t i;

	for (i = 0; i < len; i++) {
		unsigned int c = (unsigned char)text[i];

		others |= (unsigned int)(c - ' ' > '~' - ' ') & (unsigned int)(c - '\t' > '\r' - '\t');
	}
	return !others;
}

/* The value of a digit of base64: no tables indexed by secrets. Return: 0 to 63, or -1. */
static int base64_value(unsigned int c)
{
	unsigned int upper = c - 'A', lower = c - 'a', digit = c - '0';
	int is_upper = -(int)(upper < 26), is_lower = -(int)(lower < 26), is_digit = -(int)(digit < 10);
	int is_plus = -(int)(c == '+'), is_slash = -(int)(c == '/');

	return ((int)upper & is_upper) | ((int)(lower + 26) & is_lower) | ((int)(digit + 52) & is_digit) | (62 & is_plus) |
	       (63 & is_slash) | ~(is_upper | is_lower | is_digit | is_plus | is_slash);
}

/* Twenty-two digits that hold 132 bits, of which the last four must be zero, and "==". */
static bool from_base64(const char *text, u8 *raw)
{
	unsigned int bits = 0, have = 0;
	size_t i, out = 0;
	int bad = 0;

	for (i = 0; i < BASE64_LEN - 2; i++) {
		int v = base64_value((unsigned char)text[i]);

		bad |= v;
		bits = (bits << 6 | ((unsigned int)v & 63)) & 0xffff;
		have += 6;
		if (have >= 8) {
			have -= 8;
			raw[out++] = (u8)(bits >> have);
		}
	}
	return bad >= 0 && !(bits & ((1u << have) - 1)) && text[i] == '=' && text[i + 1] == '=';
}

static size_t without_line_end(const char *text, size_t len, size_t want)
{
	if (len == want + 2 && text[want] == '\r' && text[want + 1] == '\n')
		return want;
	return len == want + 1 && text[want] == '\n' ? want : len;
}

/* Digits, with or without an end of line, or the 16 bytes themselves. Return: false if it is neither. */
static bool parse_key(const struct sits_key_text *t, bool base64_too, u8 *raw)
{
	if (t->len == SITS_SM4_KEY_LEN) {
		memcpy(raw, t->text, t->len);
		return !is_text(t->text, t->len);
	}
	if (base64_too && without_line_end(t->text, t->len, BASE64_LEN) == BASE64_LEN)
		return from_base64(t->text, raw);
	return without_line_end(t->text, t->len, SITS_KEY_DIGITS) == SITS_KEY_DIGITS && from_hex(t->text, raw);
}

static const char *what_is_wrong(const struct sits_key_text *t)
{
	return !t->len ? "is empty" : t->len > SITS_KEY_TEXT_MAX ? "is too long" :
	       t->len == SITS_SM4_KEY_LEN ? "is text, as a password would be" : "is malformed";
}

int sits_key_source_find(struct sits_ctx *ctx, const char *spec, const struct sits_key_source **src, const char **name)
{
	size_t i, n;

	for (i = 0; spec && i < sizeof(sources) / sizeof(sources[0]); i++) {
		n = strlen(sources[i]->prefix);
		if (strncmp(spec, sources[i]->prefix, n) || !spec[n])
			continue;
		*src = sources[i];
		*name = spec + n;
		return sources[i]->check ? sources[i]->check(ctx, spec + n) : 0;
	}
	/* The text is not repeated: it may be a key that somebody gave in place of where it is. */
	sits_log(ctx, SITS_LOG_ERR, "malformed key: " SPEC_HELP);
	return -EINVAL;
}

/* A key and room for its text. On success both are to be freed. */
static int alloc_both(struct sits_ctx *ctx, struct sits_key **key, struct sits_key_text **t)
{
	void *mem;
	int ret;

	ret = sits_secret_alloc(ctx, sizeof(**t), &mem);
	if (ret)
		return ret;
	*t = mem;
	ret = sits_secret_alloc(ctx, sizeof(**key), &mem);
	if (ret)
		sits_secret_free(*t, sizeof(**t));
	*key = mem;
	return ret;
}

int sits_key_open_at(struct sits_ctx *ctx, const struct sits_key_source *src, const char *name, int missing,
		     struct sits_key **out)
{
	struct sits_key *key;
	struct sits_key_text *t;
	int ret;

	ret = alloc_both(ctx, &key, &t);
	if (ret)
		return ret;
	ret = src->read(ctx, name, missing, t, key);
	if (!ret && !key->in_kernel && !parse_key(t, false, key->raw)) {
		sits_log(ctx, SITS_LOG_ERR, "key %s%s: %s: a key is %d hexadecimal digits, or %d random bytes", src->prefix, name,
			 what_is_wrong(t), SITS_KEY_DIGITS, SITS_SM4_KEY_LEN);
		ret = -EINVAL;
	}
	sits_secret_free(t, sizeof(*t));
	if (ret) {
		sits_secret_free(key, sizeof(*key));
		return ret;
	}
	if (!key->in_kernel)
		sits_sealed_key_id(key->raw, key->id);
	key->is_here = true;
	*out = key;
	return 0;
}

int sits_key_open(struct sits_ctx *ctx, const char *spec, struct sits_key **out)
{
	const struct sits_key_source *src;
	const char *name;
	int ret;

	if (!ctx || !out)
		return -EINVAL;
	ret = sits_key_source_find(ctx, spec, &src, &name);
	return ret ? ret : sits_key_open_at(ctx, src, name, SITS_LOG_ERR, out);
}

/* Bytes that no generator gives: what was read is not what was meant. */
static bool is_monotone(const u8 *raw)
{
	u8 differ = 0;
	size_t i;

	for (i = 1; i < SITS_SM4_KEY_LEN; i++)
		differ |= raw[i] ^ raw[0];
	return !differ;
}

static int parse_imported(struct sits_ctx *ctx, const struct sits_key_text *t, struct sits_key *key)
{
	if (!parse_key(t, true, key->raw)) {
		sits_log(ctx, SITS_LOG_ERR, "the key to import %s: a key is %d hexadecimal digits, %d of base64, or %d random bytes",
			 what_is_wrong(t), SITS_KEY_DIGITS, BASE64_LEN, SITS_SM4_KEY_LEN);
		return -EINVAL;
	}
	if (is_monotone(key->raw)) {
		sits_log(ctx, SITS_LOG_ERR, "the key to import is the same byte %d times: that is no key", SITS_SM4_KEY_LEN);
		return -EINVAL;
	}
	sits_sealed_key_id(key->raw, key->id);
	return 0;
}

int sits_key_import(struct sits_ctx *ctx, int fd, struct sits_key **out)
{
	struct sits_key *key;
	struct sits_key_text *t;
	int ret;

	if (!ctx || !out)
		return -EINVAL;
	ret = alloc_both(ctx, &key, &t);
	if (ret)
		return ret;
	ret = sits_read_upto(fd, t->text, SITS_KEY_TEXT_MAX + 1, &t->len);
	if (ret)
		sits_log(ctx, SITS_LOG_ERR, "the key to import can't be read: %s", strerror(-ret));
	else
		ret = parse_imported(ctx, t, key);
	sits_secret_free(t, sizeof(*t));
	key->is_here = !ret;
	if (ret)
		sits_secret_free(key, sizeof(*key));
	else
		*out = key;
	return ret;
}

void sits_key_close(struct sits_key *key)
{
	sits_secret_free(key, sizeof(*key));
}

void sits_key_id(const struct sits_key *key, uint8_t *id)
{
	memcpy(id, key->id, sizeof(key->id));
}

int sits_key_check_here(struct sits_ctx *ctx, const struct sits_key *key)
{
	if (key->is_here)
		return 0;
	sits_log(ctx, SITS_LOG_ERR, "the key was opened before fork(), and a child has nothing of it: open it again there");
	return -ESTALE;
}

int sits_key_need_bytes(struct sits_ctx *ctx, const struct sits_key *key, const char *what)
{
	int ret = sits_key_check_here(ctx, key);

	if (ret)
		return ret;
	if (!key->in_kernel)
		return 0;
	sits_log(ctx, SITS_LOG_ERR, "key %s: is of type logon, whose bytes only the kernel has: it can load into regions of the kernel provider; %s needs the key in a file, or in the keyring with type user",
		 key->desc, what);
	return -EOPNOTSUPP;
}

int sits_key_create_at(struct sits_ctx *ctx, const struct sits_key_source *src, const char *name, int missing)
{
	struct sits_key_text *t;
	struct sits_key *key;
	int ret;

	/* With as much memory as it takes to open it: no key is made that can't be used then, nor its id be told. */
	ret = alloc_both(ctx, &key, &t);
	if (ret)
		return ret;
	if (getrandom(t->raw, sizeof(t->raw), 0) != (ssize_t)sizeof(t->raw)) {
		sits_log(ctx, SITS_LOG_ERR, "the kernel gave no random bytes for a key");
		ret = -EIO;
	} else {
		sits_hex(t->raw, sizeof(t->raw), t->text);
		ret = src->create(ctx, name, missing, t->text, SITS_KEY_DIGITS);
	}
	sits_secret_free(t, sizeof(*t));
	sits_secret_free(key, sizeof(*key));
	return ret;
}

int sits_key_create(struct sits_ctx *ctx, const char *spec)
{
	const struct sits_key_source *src;
	const char *name;
	int ret;

	if (!ctx)
		return -EINVAL;
	ret = sits_key_source_find(ctx, spec, &src, &name);
	return ret ? ret : sits_key_create_at(ctx, src, name, SITS_LOG_ERR);
}

int sits_key_save_at(struct sits_ctx *ctx, const struct sits_key_source *src, const char *name, int missing,
		     const struct sits_key *key)
{
	void *digits;
	int ret;

	ret = sits_secret_alloc(ctx, SITS_KEY_DIGITS + 1, &digits);
	if (ret)
		return ret;
	sits_hex(key->raw, sizeof(key->raw), digits);
	ret = src->create(ctx, name, missing, digits, SITS_KEY_DIGITS);
	sits_secret_free(digits, SITS_KEY_DIGITS + 1);
	return ret;
}

int sits_key_save(struct sits_ctx *ctx, const struct sits_key *key, const char *spec)
{
	const struct sits_key_source *src;
	const char *name;
	int ret;

	if (!ctx || !key)
		return -EINVAL;
	ret = sits_key_source_find(ctx, spec, &src, &name);
	if (!ret)
		ret = sits_key_need_bytes(ctx, key, "keeping it in another place");
	return ret ? ret : sits_key_save_at(ctx, src, name, SITS_LOG_ERR, key);
}
