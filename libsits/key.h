/* SPDX-License-Identifier: MIT */
/*
 * key.h - what a key is inside libsits.
 */
#ifndef SITS_LIBSITS_KEY_H
#define SITS_LIBSITS_KEY_H

#include <stdbool.h>

#include <linux/sits.h>

#include "crypto/sm4.h"
#include "sits/sealed.h"

struct sits_ctx;

/*
 * Lives in a page of secret memory, made by sits_key_open(), freed by sits_key_close(); constant in between.
 * @is_here: true; false in a forked child, which has zeros here: a key of zeros, that is, which must not be used
 * @in_kernel: a key of type logon, which only the kernel can use: @desc names it, @raw and @id are zeros
 */
struct sits_key {
	u8 raw[SITS_SM4_KEY_LEN];
	u8 id[SITS_KEY_ID_LEN];
	bool is_here, in_kernel;
	char desc[SITS_KEYDESC_MAX];
};

/** sits_key_check_here() - -ESTALE and an ERR line in a child that was forked after the key was opened. */
int sits_key_check_here(struct sits_ctx *ctx, const struct sits_key *key);

/** sits_key_need_bytes() - -EOPNOTSUPP and an ERR line where only the kernel has them, -ESTALE where only the parent has, before a
 * fork. @what: that needs them. */
int sits_key_need_bytes(struct sits_ctx *ctx, const struct sits_key *key, const char *what);

/* A key that the calling thread has lent to the kernel; lives on a stack, holds no secret. */
struct sits_lent_key {
	char desc[SITS_KEYDESC_MAX];	/* as WEIGHTS_LOAD wants it */
	int32_t serial;
};

/**
 * sits_key_lend() - Have the kernel find @key, as a key of type logon in the calling thread's own keyring.
 * @lent: out: taken back by the same thread, with sits_key_take_back()
 *
 * One that has bytes is put there under a random name; one that is in the kernel is linked to.
 * Return: 0; -ENOKEY; -ESTALE in a forked child; -errno; logged.
 */
int sits_key_lend(struct sits_ctx *ctx, const struct sits_key *key, struct sits_lent_key *lent);
void sits_key_take_back(const struct sits_key *key, const struct sits_lent_key *lent);

/** sits_hex() - Lower-case hexadecimal digits of @len bytes, with a NUL: 2 * @len + 1 bytes at @out. Constant time. */
void sits_hex(const u8 *bytes, size_t len, char *out);

#endif
