// SPDX-License-Identifier: MIT
/*
 * key.c - key-encryption keys from files and from the kernel's keyrings.
 *
 * Key bytes go from the file or keyring into a page of secret memory (secret.c) and nowhere else: not through
 * stdio, the heap or the stack, and never into a message. What is sealed under a key is for others.
 */
#include "libsits/key.h"

#include <errno.h>
#include <fcntl.h>
#include <keyutils.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/secret.h"
#include "libsits/tmpfile.h"

#define HEX_LEN		(2 * SITS_SM4_KEY_LEN)
#define TEXT_MAX	(HEX_LEN + 2)	/* with "\r\n" */
#define KEYRING_PREFIX	"sits:"
#define KEYRING_NAME_MAX 200		/* bytes; the kernel takes descriptions of up to 4095 */

#define SPEC_HELP	"a key is given as file:PATH or keyring:NAME, for example file:/etc/sits/model.key"

/* All that passes through while a key is read or made; in secret memory. */
struct workspace {
	char text[TEXT_MAX + 2];	/* one byte more than the longest, to see that there is more; and room */
	u8 raw[SITS_SM4_KEY_LEN];
};

enum source { FROM_FILE, FROM_KEYRING };

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

/* 32 digits, with or without an end of line, or the 16 bytes themselves. Return: false if it is neither. */
static bool parse_key(const char *text, size_t len, u8 *raw)
{
	if (len == SITS_SM4_KEY_LEN) {
		memcpy(raw, text, len);
		return !is_text(text, len);
	}
	if (len == HEX_LEN + 2 && text[HEX_LEN] == '\r' && text[HEX_LEN + 1] == '\n')
		len = HEX_LEN;
	if (len == HEX_LEN + 1 && text[HEX_LEN] == '\n')
		len = HEX_LEN;
	return len == HEX_LEN && from_hex(text, raw);
}

static int parse_spec(struct sits_ctx *ctx, const char *spec, enum source *from, const char **name)
{
	if (spec && !strncmp(spec, "file:", 5) && spec[5]) {
		*from = FROM_FILE;
		*name = spec + 5;
		return 0;
	}
	if (spec && !strncmp(spec, "keyring:", 8) && spec[8]) {
		*from = FROM_KEYRING;
		*name = spec + 8;
		if (strlen(*name) <= KEYRING_NAME_MAX)
			return 0;
		sits_log(ctx, SITS_LOG_ERR, "the keyring name has %zu bytes; at most %d are allowed", strlen(*name),
			 KEYRING_NAME_MAX);
		return -EINVAL;
	}
	/* The text is not repeated: it may be a key that somebody gave in place of where it is. */
	sits_log(ctx, SITS_LOG_ERR, "malformed key: " SPEC_HELP);
	return -EINVAL;
}

/* May this opened file hold a key? */
static int check_key_file(struct sits_ctx *ctx, const char *path, const struct stat *st)
{
	unsigned int mode = st->st_mode & 07777;

	if (!S_ISREG(st->st_mode)) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: is not a regular file", path);
		return -EINVAL;
	}
	if (st->st_uid != geteuid() && st->st_uid != 0) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: is owned by user %u, who could change it; it must be owned by you (user %u) or root",
			 path, (unsigned int)st->st_uid, (unsigned int)geteuid());
		return -EACCES;
	}
	if (mode & ~0600u) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: has mode %04o%s; run: chmod 600 %s", path, mode,
			 mode & 077 ? ", so that others may use it" : ", more than 0600", path);
		return -EACCES;
	}
	return 0;
}

static int read_key_file(struct sits_ctx *ctx, const char *path, struct workspace *ws, size_t *len)
{
	int ret, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n;

	if (fd < 0) {
		ret = -errno;
		if (ret == -ELOOP)
			sits_log(ctx, SITS_LOG_ERR, "key file %s: is a symbolic link: name the key file itself", path);
		else
			sits_log(ctx, SITS_LOG_ERR, "key file %s: %s%s", path, strerror(-ret),
				 ret == -ENOENT ? "; `sits key new` makes one" : "");
		return ret;
	}
	ret = fstat(fd, &st) ? -errno : check_key_file(ctx, path, &st);
	if (ret)
		goto out;
	for (*len = 0; *len <= TEXT_MAX; *len += (size_t)n) {
		n = read(fd, ws->text + *len, TEXT_MAX + 1 - *len);
		if (n < 0 && errno == EINTR) {
			n = 0;
			continue;
		}
		if (n < 0) {
			ret = -errno;
			sits_log(ctx, SITS_LOG_ERR, "key file %s: can't read: %s", path, strerror(-ret));
			break;
		}
		if (!n)
			break;
	}
out:
	close(fd);
	return ret;
}

/* A key of that name in the session's keyring or the user's. Return: 0; -ENOKEY; -errno. */
static int search_keyring(const char *desc, key_serial_t *key)
{
	static const key_serial_t rings[] = { KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING };
	static const char *const types[] = { "user", "logon" };
	int ret = -ENOKEY;
	size_t i, t;

	for (t = 0; t < 2; t++) {
		for (i = 0; i < 2; i++) {
			long found = keyctl_search(rings[i], types[t], desc, 0);

			if (found >= 0) {
				*key = (key_serial_t)found;
				return t ? -EOPNOTSUPP : 0;
			}
			if (errno != ENOKEY)
				ret = -errno;
		}
	}
	return ret;
}

static void keyring_desc(const char *name, char *out)
{
	snprintf(out, KEYRING_NAME_MAX + sizeof(KEYRING_PREFIX), KEYRING_PREFIX "%s", name);
}

static int read_keyring(struct sits_ctx *ctx, const char *name, struct workspace *ws, size_t *len)
{
	char desc[KEYRING_NAME_MAX + sizeof(KEYRING_PREFIX)];
	key_serial_t key;
	long n;
	int ret;

	keyring_desc(name, desc);
	ret = search_keyring(desc, &key);
	if (ret == -EOPNOTSUPP) {
		sits_log(ctx, SITS_LOG_ERR, "key %s: is of type logon, which the %s provider can't read; add it with type user",
			 desc, sits_provider_name(ctx));
		return ret;
	}
	if (ret) {
		sits_log(ctx, SITS_LOG_ERR, "key %s: not found in the session or the user keyring: %s; `sits key new keyring:%s` makes one",
			 desc, strerror(-ret), name);
		return ret;
	}
	n = keyctl_read(key, ws->text, TEXT_MAX + 1);
	if (n < 0) {
		ret = -errno;
		sits_log(ctx, SITS_LOG_ERR, "key %s: can't read: %s", desc, strerror(-ret));
		return ret;
	}
	/* The answer is the key's length, also where that is more than what was read. */
	*len = n > TEXT_MAX ? TEXT_MAX + 1 : (size_t)n;
	return 0;
}

int sits_key_open(struct sits_ctx *ctx, const char *spec, struct sits_key **out)
{
	struct sits_key *key = NULL;
	struct workspace *ws = NULL;
	const char *name = NULL;
	enum source from = FROM_FILE;
	void *mem = NULL;
	size_t len = 0;
	int ret;

	if (!ctx || !out)
		return -EINVAL;
	ret = parse_spec(ctx, spec, &from, &name);
	if (ret)
		return ret;
	ret = sits_secret_alloc(ctx, sizeof(*ws), &mem);
	if (ret)
		return ret;
	ws = mem;
	ret = sits_secret_alloc(ctx, sizeof(*key), &mem);
	if (ret)
		goto out_free_ws;
	key = mem;
	ret = from == FROM_FILE ? read_key_file(ctx, name, ws, &len) : read_keyring(ctx, name, ws, &len);
	if (!ret && !parse_key(ws->text, len, key->raw)) {
		sits_log(ctx, SITS_LOG_ERR, "key %s: %s: a key is %d hexadecimal digits, or %d random bytes", spec,
			 !len ? "is empty" : len > TEXT_MAX ? "is too long" :
			 len == SITS_SM4_KEY_LEN ? "is text, as a password would be" : "is malformed", HEX_LEN, SITS_SM4_KEY_LEN);
		ret = -EINVAL;
	}
	if (!ret) {
		sits_sealed_key_id(key->raw, key->id);
		*out = key;
	} else {
		sits_secret_free(key, sizeof(*key));
	}
out_free_ws:
	sits_secret_free(ws, sizeof(*ws));
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

static int create_key_file(struct sits_ctx *ctx, const char *path, const char *line, size_t len)
{
	struct sits_tmpfile t;
	int ret;

	ret = sits_tmpfile_open(ctx, path, 0600, false, 0, &t);
	if (ret)
		return ret;
	ret = fchmod(t.fd, 0600) ? -errno : sits_pwrite_all(t.fd, line, len, 0);
	if (ret) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: can't write: %s", path, strerror(-ret));
		sits_tmpfile_abort(&t);
		return ret;
	}
	return sits_tmpfile_commit(&t);
}

/*
 * Add a key to the user keyring, readable for the user. Without possession, which a session that does not link the
 * user keyring lacks, only the owner's permissions count, and those can't be set on such a key: so it is
 * made in this process's own keyring, given its permissions there, and linked.
 */
static int add_to_keyring(const char *desc, const void *payload, size_t len)
{
	key_serial_t key;
	int ret = 0;

	key = add_key("user", desc, payload, len, KEY_SPEC_PROCESS_KEYRING);
	if (key < 0)
		return -errno;
	if (keyctl_setperm(key, KEY_POS_ALL | KEY_USR_VIEW | KEY_USR_READ | KEY_USR_SEARCH | KEY_USR_SETATTR) ||
	    keyctl_link(key, KEY_SPEC_USER_KEYRING))
		ret = -errno;
	keyctl_unlink(key, KEY_SPEC_PROCESS_KEYRING);
	return ret;
}

static int create_in_keyring(struct sits_ctx *ctx, const char *name, const char *text, size_t len)
{
	char desc[KEYRING_NAME_MAX + sizeof(KEYRING_PREFIX)];
	key_serial_t key;
	int ret;

	keyring_desc(name, desc);
	ret = search_keyring(desc, &key);
	if (!ret || ret == -EOPNOTSUPP) {
		sits_log(ctx, SITS_LOG_ERR, "key %s: exists already; it is left as it is", desc);
		return -EEXIST;
	}
	ret = add_to_keyring(desc, text, len);
	if (ret)
		sits_log(ctx, SITS_LOG_ERR, "key %s: can't add it to the user keyring: %s", desc, strerror(-ret));
	return ret;
}

int sits_key_create(struct sits_ctx *ctx, const char *spec)
{
	const char *name = NULL;
	enum source from = FROM_FILE;
	struct workspace *ws;
	void *mem;
	int ret;

	if (!ctx)
		return -EINVAL;
	ret = parse_spec(ctx, spec, &from, &name);
	if (ret)
		return ret;
	ret = sits_secret_alloc(ctx, sizeof(*ws), &mem);
	if (ret)
		return ret;
	ws = mem;
	if (getrandom(ws->raw, sizeof(ws->raw), 0) != (ssize_t)sizeof(ws->raw)) {
		sits_log(ctx, SITS_LOG_ERR, "the kernel gave no random bytes for a key");
		ret = -EIO;
	} else {
		sits_hex(ws->raw, sizeof(ws->raw), ws->text);
		ws->text[HEX_LEN] = '\n';
		ret = from == FROM_FILE ? create_key_file(ctx, name, ws->text, HEX_LEN + 1) :
			create_in_keyring(ctx, name, ws->text, HEX_LEN);
	}
	sits_secret_free(ws, sizeof(*ws));
	return ret;
}
