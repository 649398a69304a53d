// SPDX-License-Identifier: MIT
/*
 * key_keyring.c - keys in the kernel's keyrings: keyring:NAME, which is the key sits:NAME of type user or logon; and
 * lending keys to the kernel for the time of a load.
 */
#include <errno.h>
#include <keyutils.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "libsits/internal.h"
#include "libsits/key.h"
#include "libsits/key_source.h"
#include "libsits/secret.h"

#define KEYRING_PREFIX	"sits:"
#define KEYRING_NAME_MAX 200		/* bytes; the kernel takes descriptions of up to 4095 */

static const key_serial_t rings[] = { KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING };

/* A key of that name in the session's keyring or the user's. Return: 0; -EOPNOTSUPP for a logon key; -ENOKEY; -errno. */
static int search_keyring(const char *desc, key_serial_t *key)
{
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

static int check_name(struct sits_ctx *ctx, const char *name)
{
	if (strlen(name) <= KEYRING_NAME_MAX)
		return 0;
	sits_log(ctx, SITS_LOG_ERR, "the keyring name has %zu bytes; at most %d are allowed", strlen(name), KEYRING_NAME_MAX);
	return -EINVAL;
}

static void keyring_desc(const char *name, char *out)
{
	snprintf(out, KEYRING_NAME_MAX + sizeof(KEYRING_PREFIX), KEYRING_PREFIX "%s", name);
}

/* A logon key has no bytes to read: what will be given to the kernel is its name. */
static int name_logon_key(struct sits_ctx *ctx, const char *desc, struct sits_key *key)
{
	if (ctx->provider->id != SITS_PROVIDER_KERNEL) {
		sits_log(ctx, SITS_LOG_ERR, "key %s: is of type logon, which only the kernel module can use, for loads, and this is the %s provider; to load, take provider 'kernel' (the module: 'modprobe sits'); all else needs the key in a file, or with type user",
			 desc, sits_provider_name(ctx));
		return -EOPNOTSUPP;
	}
	if (strlen(desc) >= sizeof(key->desc)) {
		sits_log(ctx, SITS_LOG_ERR, "key %s: the kernel module takes names of up to %zu bytes", desc,
			 sizeof(key->desc) - sizeof(KEYRING_PREFIX));
		return -EINVAL;
	}
	strcpy(key->desc, desc);
	key->in_kernel = true;
	return 0;
}

static int read_keyring(struct sits_ctx *ctx, const char *name, int missing, struct sits_key_text *t, struct sits_key *named)
{
	char desc[KEYRING_NAME_MAX + sizeof(KEYRING_PREFIX)];
	key_serial_t key;
	long n;
	int ret;

	keyring_desc(name, desc);
	ret = search_keyring(desc, &key);
	if (ret == -EOPNOTSUPP)
		return name_logon_key(ctx, desc, named);
	if (ret) {
		sits_log(ctx, ret == -ENOKEY ? missing : SITS_LOG_ERR, "key %s: not found in the session or the user keyring: %s; `sits key new keyring:%s` makes one",
			 desc, strerror(-ret), name);
		return ret;
	}
	n = keyctl_read(key, t->text, SITS_KEY_TEXT_MAX + 1);
	if (n < 0) {
		ret = -errno;
		sits_log(ctx, SITS_LOG_ERR, "key %s: can't read: %s", desc, strerror(-ret));
		return ret;
	}
	/* The answer is the key's length, also where that is more than what was read. */
	t->len = n > SITS_KEY_TEXT_MAX ? SITS_KEY_TEXT_MAX + 1 : (size_t)n;
	return 0;
}

/*
 * Add a key to the user keyring, where none of that name may be: what it would displace might be the only copy. @flags: those of
 * KEYCTL_MOVE; @extra are permissions of its user. Without possession, which a session that does not link the
 * user keyring lacks, only the owner's permissions count, and those can't be set on such a key: so it is
 * made in this process's own keyring, given its permissions there, and moved.
 */
static int add_to_keyring(const char *type, const char *desc, const void *payload, size_t len, unsigned int flags,
			  key_perm_t extra)
{
	key_serial_t key;
	int ret = 0;

	key = add_key(type, desc, payload, len, KEY_SPEC_PROCESS_KEYRING);
	if (key < 0)
		return -errno;
	if (keyctl_setperm(key, KEY_POS_ALL | KEY_USR_VIEW | KEY_USR_SEARCH | KEY_USR_SETATTR | extra) ||
	    keyctl_move(key, KEY_SPEC_PROCESS_KEYRING, KEY_SPEC_USER_KEYRING, flags))
		ret = -errno;
	if (ret)
		keyctl_unlink(key, KEY_SPEC_PROCESS_KEYRING);
	return ret;
}

static int log_exists(struct sits_ctx *ctx, int severity, const char *desc)
{
	sits_log(ctx, severity, "key %s: exists already; it is left as it is", desc);
	return -EEXIST;
}

static int create_typed(struct sits_ctx *ctx, const char *name, int missing, const char *type, const void *payload, size_t len)
{
	char desc[KEYRING_NAME_MAX + sizeof(KEYRING_PREFIX)];
	key_serial_t key;
	int ret;

	keyring_desc(name, desc);
	ret = search_keyring(desc, &key);
	if (!ret || ret == -EOPNOTSUPP)
		return log_exists(ctx, missing, desc);
	/* A dead one is no key, but still a name until the kernel clears it away. */
	ret = add_to_keyring(type, desc, payload, len, ret == -EKEYREVOKED || ret == -EKEYEXPIRED ? 0 : KEYCTL_MOVE_EXCL,
			     strcmp(type, "logon") ? KEY_USR_READ : 0);
	if (ret == -EEXIST)
		return log_exists(ctx, missing, desc);
	if (ret)
		sits_log(ctx, SITS_LOG_ERR, "key %s: can't add it to the user keyring: %s", desc, strerror(-ret));
	return ret;
}

static int create_user(struct sits_ctx *ctx, const char *name, int missing, const char *text, size_t len)
{
	return create_typed(ctx, name, missing, "user", text, len);
}

const struct sits_key_source sits_key_keyring = {
	.prefix = "keyring:",
	.check = check_name,
	.read = read_keyring,
	.create = create_user,
};

int sits_key_install(struct sits_ctx *ctx, const struct sits_key *key, const char *spec)
{
	const struct sits_key_source *to;
	const char *name;
	void *digits;
	int ret;

	if (!ctx || !key)
		return -EINVAL;
	ret = sits_key_source_find(ctx, spec, &to, &name);
	if (ret)
		return ret;
	if (to != &sits_key_keyring) {
		sits_log(ctx, SITS_LOG_ERR, "'%s' is no place to install a key in: that is keyring:NAME, such as keyring:model", spec);
		return -EINVAL;
	}
	if (strlen(KEYRING_PREFIX) + strlen(name) >= SITS_KEYDESC_MAX) {
		sits_log(ctx, SITS_LOG_ERR, "the keyring name has %zu bytes; of a key for the kernel module at most %zu are allowed",
			 strlen(name), SITS_KEYDESC_MAX - sizeof(KEYRING_PREFIX));
		return -EINVAL;
	}
	ret = sits_key_need_bytes(ctx, key, "installing it once more");
	if (!ret)
		ret = sits_secret_alloc(ctx, SITS_KEY_DIGITS + 1, &digits);
	if (ret)
		return ret;
	sits_hex(key->raw, sizeof(key->raw), digits);
	ret = create_typed(ctx, name, SITS_LOG_ERR, "logon", digits, SITS_KEY_DIGITS);
	sits_secret_free(digits, SITS_KEY_DIGITS + 1);
	return ret;
}

/* ---------------------------------------------------------------- lending to the kernel */

static int lend_bytes(struct sits_ctx *ctx, const struct sits_key *key, struct sits_lent_key *lent)
{
	char hex[2 * SITS_SM4_KEY_LEN + 1];
	u8 random[SITS_SM4_KEY_LEN];
	char *digits;
	void *mem;
	int ret;

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -EIO;
	sits_hex(random, sizeof(random), hex);
	snprintf(lent->desc, sizeof(lent->desc), KEYRING_PREFIX "load:%s", hex);
	/* As digits: of bytes, the module refuses those that look like a password. */
	ret = sits_secret_alloc(ctx, SITS_KEY_DIGITS + 1, &mem);
	if (ret)
		return ret;
	digits = mem;
	sits_hex(key->raw, sizeof(key->raw), digits);
	lent->serial = add_key("logon", lent->desc, digits, SITS_KEY_DIGITS, KEY_SPEC_THREAD_KEYRING);
	ret = lent->serial < 0 ? -errno : 0;
	sits_secret_free(digits, SITS_KEY_DIGITS + 1);
	if (ret)
		sits_log(ctx, SITS_LOG_ERR, "the key can't be lent to the kernel: %s%s", strerror(-ret),
			 ret == -EDQUOT ? ": this user has as many keys as /proc/sys/kernel/keys allows (see /proc/key-users)" : "");
	return ret;
}

/* The user keyring need not be one that the kernel searches: so it is found here, and linked to where it searches first. */
static int lend_named(struct sits_ctx *ctx, const struct sits_key *key, struct sits_lent_key *lent)
{
	size_t i;
	int ret = -ENOKEY;

	strcpy(lent->desc, key->desc);
	for (i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		lent->serial = (int32_t)keyctl_search(rings[i], "logon", key->desc, KEY_SPEC_THREAD_KEYRING);
		if (lent->serial >= 0)
			return 0;
		if (errno != ENOKEY)
			ret = -errno;
	}
	sits_log(ctx, SITS_LOG_ERR, "key %s: not found any more in the session or the user keyring: %s", key->desc, strerror(-ret));
	return ret;
}

int sits_key_lend(struct sits_ctx *ctx, const struct sits_key *key, struct sits_lent_key *lent)
{
	int ret = sits_key_check_here(ctx, key);

	if (ret)
		return ret;
	return key->in_kernel ? lend_named(ctx, key, lent) : lend_bytes(ctx, key, lent);
}

void sits_key_take_back(const struct sits_key *key, const struct sits_lent_key *lent)
{
	/* Revoking frees the bytes, whoever may have found it meanwhile. */
	if (!key->in_kernel)
		keyctl_revoke(lent->serial);
	keyctl_unlink(lent->serial, KEY_SPEC_THREAD_KEYRING);
}
