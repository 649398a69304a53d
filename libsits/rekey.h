/* SPDX-License-Identifier: MIT */
/*
 * rekey.h - the lock under which a sealed file gets another header or another content.
 */
#ifndef SITS_LIBSITS_REKEY_H
#define SITS_LIBSITS_REKEY_H

struct sits_ctx;
struct sits_key;
struct sits_load_opts;

/**
 * sits_sealed_lock() - Keep others from rekeying and resealing the file at @path, until the descriptor is closed.
 * @old_key: @new_key: a rekey of the file that was cut short is brought to an end first, under one of these
 *
 * Return: the descriptor; -EBUSY where another process has the lock; -ENOKEY where the rekey that was cut short was
 * between other keys; -errno; logged.
 */
int sits_sealed_lock(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		     const struct sits_key *new_key);

/**
 * sits_reseal_locked() - sits_sealed_reseal() under a lock that the caller has.
 * @lock: as sits_sealed_lock() returned it; borrowed
 * @opts: checked
 */
int sits_reseal_locked(struct sits_ctx *ctx, const char *path, int lock, const struct sits_key *old_key,
		       const struct sits_key *new_key, const struct sits_load_opts *opts);

#endif
