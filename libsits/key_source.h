/* SPDX-License-Identifier: MIT */
/*
 * key_source.h - where keys are kept: one table of functions for each kind of place.
 *
 * key.c finds the table by the prefix of a key's spec ("file:PATH"), and knows what the bytes of a key look like; a source
 * knows how to get text from its place and how to put some there. To add one, copy key_file.c and list the table in key.c.
 */
#ifndef SITS_LIBSITS_KEY_SOURCE_H
#define SITS_LIBSITS_KEY_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "crypto/sm4.h"

struct sits_ctx;
struct sits_key;

#define SITS_KEY_DIGITS		(2 * SITS_SM4_KEY_LEN)
#define SITS_KEY_TEXT_MAX	(SITS_KEY_DIGITS + 2)	/* digits with "\r\n" */

/* A key as it is outside of this library. Only ever in secret memory. */
struct sits_key_text {
	size_t len;			/* SITS_KEY_TEXT_MAX + 1: there is more than any key has */
	char text[SITS_KEY_TEXT_MAX + 2];
	u8 raw[SITS_SM4_KEY_LEN];	/* room to make one */
};

/**
 * struct sits_key_source - a kind of place for keys; constant.
 * @prefix: with the colon
 * @durable: what is made there outlives a restart of the machine
 * @check: is @name, not empty, one for such a place? NULL: any is. Return: 0; -errno, logged
 * @read: get the text of the key, or set @key->in_kernel and @key->desc where only the kernel has it.
 *        @missing: the severity at which -ENOENT or -ENOKEY, "there is none", is logged; all else is an ERR line
 * @create: put @len bytes of text there, durable where the place is; what is there already is left: -EEXIST, logged at
 *          @missing
 * @sync: make sure that the one that is there is durable, whoever put it there; NULL where nothing is
 */
struct sits_key_source {
	const char *prefix;
	bool durable;
	int (*check)(struct sits_ctx *ctx, const char *name);
	int (*read)(struct sits_ctx *ctx, const char *name, int missing, struct sits_key_text *t, struct sits_key *key);
	int (*create)(struct sits_ctx *ctx, const char *name, int missing, const char *text, size_t len);
	int (*sync)(struct sits_ctx *ctx, const char *name);
};

extern const struct sits_key_source sits_key_file, sits_key_keyring, sits_key_tpm;

/** sits_key_source_find() - The source that @spec names, and the name in it. Return: 0; -EINVAL, -EOPNOTSUPP; logged. */
int sits_key_source_find(struct sits_ctx *ctx, const char *spec, const struct sits_key_source **src, const char **name);

/** sits_key_open_at() - As sits_key_open(), for a place that was found. @missing: as in read. */
int sits_key_open_at(struct sits_ctx *ctx, const struct sits_key_source *src, const char *name, int missing,
		     struct sits_key **out);

/** sits_key_create_at() - As sits_key_create(). @missing: as in create. */
int sits_key_create_at(struct sits_ctx *ctx, const struct sits_key_source *src, const char *name, int missing);

/** sits_key_save_at() - As sits_key_save(), for a @key that has bytes. @missing: as in create. */
int sits_key_save_at(struct sits_ctx *ctx, const struct sits_key_source *src, const char *name, int missing,
		     const struct sits_key *key);

#endif
