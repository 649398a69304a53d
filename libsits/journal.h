/* SPDX-License-Identifier: MIT */
/*
 * journal.h - the header page of a sealed file, before and after, kept beside it while it is rewritten.
 *
 * A page is not written atomically: power may fail in the middle. While rekey writes the header page in place,
 * ".BASE.sits-rekey" beside the sealed file holds the old and the new page. It appears whole or not at all, before
 * the first byte is changed, and goes after the last is on the disk. journal.c has the layout.
 */
#ifndef SITS_LIBSITS_JOURNAL_H
#define SITS_LIBSITS_JOURNAL_H

#include "crypto/sealed.h"

struct sits_ctx;

struct sits_journal {
	u8 old_page[SITS_SEALED_HDR_BYTES];
	u8 new_page[SITS_SEALED_HDR_BYTES];
};

/** sits_journal_read() - The journal of the sealed file at @path (symbolic links are followed).
 * Return: 0; -ENOENT where there is none; -EBADMSG for a malformed one; -errno. */
int sits_journal_read(struct sits_ctx *ctx, const char *path, struct sits_journal *j);

/** sits_journal_check() - Can it have a name? Return: 0; -errno, logged. */
int sits_journal_check(struct sits_ctx *ctx, const char *path);

/** sits_journal_write() - Make it, durable. Return: 0; -errno, logged. */
int sits_journal_write(struct sits_ctx *ctx, const char *path, const struct sits_journal *j);

/** sits_journal_remove() - Remove it, durably. Return: 0, also where there is none; -errno, logged. */
int sits_journal_remove(struct sits_ctx *ctx, const char *path);

#endif
