/* SPDX-License-Identifier: MIT */
/*
 * sits/rekey.h - put sealed files under another key: one file, and the change of a key that many are under.
 *
 * docs/keys.md has the states that a change goes through.
 */
#ifndef SITS_REKEY_H
#define SITS_REKEY_H

#include <stdint.h>

#include "sits/sealed.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SITS_REKEY_RESEAL	(1u << 0)	/* encrypt all of it anew, with a fresh file key */
#define SITS_REKEY_DRY_RUN	(1u << 1)	/* say what would be done; write nothing */
#define SITS_REKEY_WAIT		(1u << 2)	/* wait for another process that is writing the file, rather than -EBUSY */
#define SITS_REKEY_SKIP_OTHER	(1u << 3)	/* a file under neither key is no failure */

/* What became of a file. */
#define SITS_REKEY_CHANGED	0	/* it was under the old key, and is under the new one */
#define SITS_REKEY_ALREADY	1	/* it was under the new key already, and is as it was */
#define SITS_REKEY_OTHER	2	/* it says that it is under another key than these, and is as it was */

/**
 * struct sits_rekey_opts - options of sits_sealed_change_key().
 * @flags: SITS_REKEY_*
 * @threads: for RESEAL; 0 means one per core
 * @min_version: for RESEAL; a file whose model_version is lower is refused with -EKEYEXPIRED
 * @progress: called by RESEAL as it goes on
 * @waiting: called every few milliseconds of WAIT; non-zero ends it: -ECANCELED; may be NULL
 * @progress_arg: for both
 */
struct sits_rekey_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t threads;
	uint32_t reserved;
	uint64_t min_version;
	sits_progress_fn progress;
	int (*waiting)(void *arg);
	void *progress_arg;
};

/**
 * sits_sealed_change_key() - sits_sealed_rekey() or sits_sealed_reseal(), for callers that go through many files.
 * @opts: borrowed; NULL takes the defaults
 * @outcome: out: SITS_REKEY_CHANGED and so on
 *
 * Both keys the same: the file key is wrapped afresh (RESEAL: made afresh) and the outcome CHANGED.
 *
 * Return: 0; -ENOKEY for a file under neither key, without SKIP_OTHER; else as the function that it stands for.
 */
int sits_sealed_change_key(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
			   const struct sits_key *new_key, const struct sits_rekey_opts *opts, uint32_t *outcome);

struct sits_key_rotation;

/**
 * sits_key_rotation_begin() - Begin, or go on with, the change of the key at @spec for another.
 * @spec: where the key is that the files are under: "file:PATH" or, with a @new_spec, any; borrowed until return
 * @new_spec: where the new key is to be; a file that is not there is made. NULL: the new key is to take the place of the old
 *            one. Meanwhile it is PATH.next, which is made if it is not there. Borrowed until return
 * @flags: 0, or SITS_REKEY_DRY_RUN, which makes nothing
 * @out: freed with sits_key_rotation_end()
 *
 * A key in a keyring is used as a new one, but never made: what is under it would be lost with a restart. With a NULL @new_spec no
 * second rotation of the same key can begin meanwhile.
 *
 * Return: 0; -EBUSY where one runs; -EINVAL where both are the same key; as sits_key_open(), sits_key_create().
 */
int sits_key_rotation_begin(struct sits_ctx *ctx, const char *spec, const char *new_spec, uint32_t flags,
			    struct sits_key_rotation **out);

/** sits_key_rotation_old() - The key that files are to be taken from; borrowed until the end. */
const struct sits_key *sits_key_rotation_old(const struct sits_key_rotation *rot);

/** sits_key_rotation_new() - The key that they are to be put under; borrowed until the end. NULL: a dry run, and it is not made. */
const struct sits_key *sits_key_rotation_new(const struct sits_key_rotation *rot);

/** sits_key_rotation_new_spec() - Where the new key is now; borrowed until the end. */
const char *sits_key_rotation_new_spec(const struct sits_key_rotation *rot);

/** sits_key_rotation_kept_spec() - Where the old key is, or will be, after the commit; borrowed until the end. */
const char *sits_key_rotation_kept_spec(const struct sits_key_rotation *rot);

/**
 * sits_key_rotation_commit() - All files are under the new key: let it take the place of the old one, which is kept as
 * PATH.old-ID first. Each step is durable before the next; cut short anywhere, PATH is one of the two keys, and both are there.
 * With a new_spec there is nothing to do.
 * Return: 0; -ESTALE where one of the keys was changed meanwhile; -errno; logged.
 */
int sits_key_rotation_commit(struct sits_key_rotation *rot);

/** sits_key_rotation_end() - Wipe, unlock and free; NULL is allowed. What was not committed goes on with the next begin. @rot: taken. */
void sits_key_rotation_end(struct sits_key_rotation *rot);

#ifdef __cplusplus
}
#endif
#endif
