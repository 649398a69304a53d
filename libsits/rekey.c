// SPDX-License-Identifier: MIT
/*
 * rekey.c - rewrap a sealed file's key under another key-encryption key, in place.
 *
 * Only the header page is written. Because a page may be half written when power fails, a journal (journal.c) with
 * the old and the new page is on the disk before and goes after; readers look there when a page does not verify
 * (source.c). A rekey that finds a journal first brings the file into one of the two states:
 *
 *   header page is      then
 *   the old, the new    the journal goes
 *   neither             the old page is written back, or else the new, that which verifies under one of the keys at hand
 *
 * A lock on the sealed file (flock) keeps out a second rekey, and a reseal (seal.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/journal.h"
#include "libsits/key.h"
#include "libsits/rekey.h"
#include "libsits/secret.h"
#include "libsits/source.h"
#include "libsits/tmpfile.h"
#include "sits/rekey.h"

#define LOCK_POLL_NS	5000000

/* In secret memory, for f. */
struct rekeying {
	struct sits_sealed_file f;
	struct sits_ctx *ctx;
	const char *path;
	const struct sits_key *old_key, *new_key;
	struct sits_rekey_opts o;
	int fd;
	struct stat st;
	u8 page[SITS_SEALED_HDR_BYTES];
	struct sits_journal j;
};

/* Return: 0, with r->fd locked; 1 where somebody else has it, or just replaced it; -errno, logged. */
static int try_lock(struct rekeying *r, int flags)
{
	struct stat st;
	int ret;

	r->fd = sits_open_regular(r->ctx, r->path, flags, &r->st);
	if (r->fd < 0)
		return r->fd;
	ret = flock(r->fd, LOCK_EX | LOCK_NB) ? -errno : 0;
	/* Somebody may have put another file in its place before the lock was had. */
	if (!ret && !stat(r->path, &st) && st.st_ino == r->st.st_ino && st.st_dev == r->st.st_dev)
		return 0;
	close(r->fd);
	if (!ret || ret == -EWOULDBLOCK)
		return 1;
	sits_log(r->ctx, SITS_LOG_ERR, "%s: can't lock it: %s", r->path, strerror(-ret));
	return ret;
}

static int lock_file(struct rekeying *r, int flags)
{
	struct timespec t = { .tv_nsec = LOCK_POLL_NS };
	int ret;

	/* Waiting in flock() would not end with a signal whose handler restarts calls. */
	while ((ret = try_lock(r, flags)) > 0 && r->o.flags & SITS_REKEY_WAIT) {
		if (r->o.waiting && r->o.waiting(r->o.progress_arg))
			return -ECANCELED;
		nanosleep(&t, NULL);
	}
	if (ret <= 0)
		return ret;
	sits_log(r->ctx, SITS_LOG_ERR, "%s: another process is writing it: try again when that has ended", r->path);
	return -EBUSY;
}

static int write_page(struct rekeying *r, const u8 *page)
{
	int ret;

	ret = sits_pwrite_all(r->fd, page, SITS_SEALED_HDR_BYTES, 0);
	if (!ret && fsync(r->fd))
		ret = -errno;
	if (ret == -EBADF)
		ret = -EACCES;	/* locked for a reseal, which needs no more than to read it */
	if (ret)
		sits_log(r->ctx, SITS_LOG_ERR, "%s: can't write the header: %s; what it was is kept beside it, and running the rekey again restores it",
			 r->path, strerror(-ret));
	return ret;
}

static bool opens(struct rekeying *r, const u8 *page)
{
	return !sits_sealed_unwrap(page, r->old_key->raw, &r->f, NULL) ||
	       !sits_sealed_unwrap(page, r->new_key->raw, &r->f, NULL);
}

static int log_cut_short(struct rekeying *r)
{
	char from[2 * SITS_KEY_ID_LEN + 1], to[2 * SITS_KEY_ID_LEN + 1];

	sits_hex(r->j.old_page + SITS_SEALED_OFF_KEY_ID, SITS_KEY_ID_LEN, from);
	sits_hex(r->j.new_page + SITS_SEALED_OFF_KEY_ID, SITS_KEY_ID_LEN, to);
	sits_log(r->ctx, r->o.flags & SITS_REKEY_SKIP_OTHER ? SITS_LOG_INFO : SITS_LOG_ERR,
		 "%s: wrong key: a rekey from key %s to key %s was cut short; give one of these as the key it is under",
		 r->path, from, to);
	return -ENOKEY;
}

static bool names_our_key(const struct rekeying *r, const u8 *page)
{
	return !memcmp(page + SITS_SEALED_OFF_KEY_ID, r->old_key->id, SITS_KEY_ID_LEN) ||
	       !memcmp(page + SITS_SEALED_OFF_KEY_ID, r->new_key->id, SITS_KEY_ID_LEN);
}

/*
 * The header page is neither the old nor the new one: make it one that the keys at hand open.
 * Return: 0; 1 where the pages of the journal are no good either; -errno.
 */
static int repair(struct rekeying *r)
{
	const u8 *page = opens(r, r->j.old_page) ? r->j.old_page : r->j.new_page;
	int ret;

	if (!opens(r, page))
		return names_our_key(r, r->j.old_page) || names_our_key(r, r->j.new_page) ? 1 : log_cut_short(r);
	ret = write_page(r, page);
	if (!ret)
		sits_log(r->ctx, SITS_LOG_WARN, "%s: the header was half written by a rekey that was cut short; it is as %s that",
			 r->path, page == r->j.old_page ? "before" : "after");
	return ret;
}

/* Bring a file whose last rekey was cut short into one of its two states. */
static int recover(struct rekeying *r)
{
	int ret;

	ret = sits_journal_read(r->ctx, r->path, &r->j);
	if (ret == -ENOENT)
		return 0;
	if (ret && ret != -EBADMSG) {
		sits_log(r->ctx, SITS_LOG_ERR, "%s: can't read the journal of a rekey beside it: %s", r->path, strerror(-ret));
		return ret;
	}
	if (ret) {
		/* No rekey leaves such a thing: it is removed only where it can't be needed. */
		if (sits_pread_all(r->fd, r->page, sizeof(r->page), 0) || !opens(r, r->page))
			return 0;
		return sits_journal_remove(r->ctx, r->path);
	}
	ret = sits_pread_all(r->fd, r->page, sizeof(r->page), 0);
	if (ret)
		return 0;	/* too short: said later */
	if (!opens(r, r->page) && memcmp(r->page, r->j.old_page, sizeof(r->page)) &&
	    memcmp(r->page, r->j.new_page, sizeof(r->page))) {
		if (!sits_same_file_header(r->page, r->j.old_page))
			return 0;	/* of another file: not ours to repair */
		ret = repair(r);
		if (ret)
			return ret > 0 ? 0 : ret;	/* what is wrong is said later */
	}
	return sits_journal_remove(r->ctx, r->path);
}

/*
 * Under which key is r->page? @ret: what opening it with the old key answered.
 * Return: an outcome: 0 for the old key, SITS_REKEY_ALREADY for the new one, SITS_REKEY_OTHER; -errno, logged.
 */
static int tell_key(struct rekeying *r, const char *why, int ret)
{
	if (ret == -ENOKEY && !sits_sealed_unwrap(r->page, r->new_key->raw, &r->f, NULL))
		return SITS_REKEY_ALREADY;
	if (ret == -ENOKEY && r->o.flags & SITS_REKEY_SKIP_OTHER) {
		sits_log(r->ctx, SITS_LOG_INFO, "%s: is under another key; nothing was changed", r->path);
		return SITS_REKEY_OTHER;
	}
	return sits_source_log_header(r->ctx, r->path, &r->st, r->page, r->old_key, why, ret);
}

/* Return: as tell_key(). */
static int check_keys(struct rekeying *r)
{
	const char *why = NULL;
	int ret;

	ret = sits_pread_all(r->fd, r->page, sizeof(r->page), 0);
	if (!ret)
		ret = sits_sealed_unwrap(r->page, r->old_key->raw, &r->f, &why);
	return tell_key(r, why, ret);
}

static int rewrap(struct rekeying *r)
{
	u8 nonce[SITS_GCM_IV_LEN];
	int ret;

	if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce)) {
		sits_log(r->ctx, SITS_LOG_ERR, "the kernel gave no random bytes for a nonce");
		return -EIO;
	}
	memcpy(r->j.old_page, r->page, sizeof(r->page));
	memcpy(r->j.new_page, r->page, sizeof(r->page));
	ret = sits_sealed_rewrap(r->j.new_page, r->old_key->raw, r->new_key->raw, nonce, NULL);
	/* Trust no page that was not opened again. */
	if (!ret)
		ret = sits_sealed_unwrap(r->j.new_page, r->new_key->raw, &r->f, NULL);
	if (ret) {
		sits_log(r->ctx, SITS_LOG_ERR, "%s: header: can't rewrap: %s", r->path, strerror(-ret));
		return ret;
	}
	ret = sits_journal_write(r->ctx, r->path, &r->j);
	if (ret)
		return ret;
	ret = write_page(r, r->j.new_page);
	if (ret)
		return ret;
	return sits_journal_remove(r->ctx, r->path);
}

/* Return: 0, then finish() is due; -errno, logged. */
static int prepare(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		   const struct sits_key *new_key, const struct sits_rekey_opts *o, struct rekeying **out)
{
	struct rekeying *r;
	void *mem;
	int ret;

	ret = sits_key_need_bytes(ctx, old_key, "sealing under another key");
	if (!ret)
		ret = sits_key_need_bytes(ctx, new_key, "sealing under another key");
	if (!ret)
		ret = sits_secret_alloc(ctx, sizeof(*r), &mem);
	if (ret)
		return ret;
	r = mem;
	r->ctx = ctx;
	r->path = path;
	r->old_key = old_key;
	r->new_key = new_key;
	r->fd = -1;
	if (o)
		r->o = *o;
	*out = r;
	return 0;
}

static void finish(struct rekeying *r)
{
	if (r->fd >= 0)
		close(r->fd);
	sits_secret_free(r, sizeof(*r));
}

/* Lock it, and end what was cut short. Return: 0, then finish() is due; -errno, logged. */
static int start(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		 const struct sits_key *new_key, int flags, const struct sits_rekey_opts *o, struct rekeying **out)
{
	struct rekeying *r;
	int ret;

	ret = prepare(ctx, path, old_key, new_key, o, &r);
	if (ret)
		return ret;
	ret = lock_file(r, flags);
	if (ret)
		r->fd = -1;
	else
		ret = recover(r);
	if (ret)
		finish(r);
	else
		*out = r;
	return ret;
}

/* What a reseal needs to open the file for: no more than to read it, but to end a rekey that was cut short. */
static int reseal_flags(const char *path)
{
	return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) ? O_RDONLY : O_RDWR;
}

int sits_sealed_lock(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		     const struct sits_key *new_key)
{
	struct rekeying *r;
	int ret;

	ret = start(ctx, path, old_key, new_key, reseal_flags(path), NULL, &r);
	if (ret)
		return ret;
	ret = r->fd;
	r->fd = -1;
	finish(r);
	return ret;
}

int sits_sealed_rekey(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		      const struct sits_key *new_key)
{
	struct rekeying *r;
	int ret;

	if (!ctx || !path || !old_key || !new_key)
		return -EINVAL;
	ret = start(ctx, path, old_key, new_key, O_RDWR, NULL, &r);
	if (ret)
		return ret;
	ret = check_keys(r);
	if (!ret)
		ret = rewrap(r);
	else if (ret == SITS_REKEY_ALREADY)
		sits_log(ctx, SITS_LOG_WARN, "%s: is under the new key already; nothing was changed", path);
	finish(r);
	return ret > 0 ? 0 : ret;
}

/* ---------------------------------------------------------------- for many files */

static int get_opts(struct sits_ctx *ctx, const struct sits_rekey_opts *opts, struct sits_rekey_opts *o)
{
	const uint32_t known = SITS_REKEY_RESEAL | SITS_REKEY_DRY_RUN | SITS_REKEY_WAIT | SITS_REKEY_SKIP_OTHER;

	*o = (struct sits_rekey_opts){ .size = sizeof(*o) };
	if (!opts)
		return 0;
	if (!sits_opts_copy(o, sizeof(*o), opts, sizeof(*o)) && !(o->flags & ~known) && !o->reserved)
		return 0;
	sits_log(ctx, SITS_LOG_ERR, "rekey: unknown size, flags or reserved fields in the options");
	return -EINVAL;
}

/* A rewrap writes the file, and a journal beside it; a reseal only puts a new file in its place. */
static int check_writable(struct rekeying *r)
{
	char real[PATH_MAX], dir[PATH_MAX], base[NAME_MAX + 1];
	int ret = 0;

	if (!(r->o.flags & SITS_REKEY_RESEAL) && faccessat(AT_FDCWD, r->path, W_OK, AT_EACCESS))
		ret = -errno;
	if (!ret && !realpath(r->path, real))
		ret = -errno;
	if (!ret)
		ret = sits_split_path(real, dir, base);
	if (!ret && faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS))
		ret = -errno;
	if (ret)
		sits_log(r->ctx, SITS_LOG_ERR, "%s: it or its directory can't be written: %s", r->path, strerror(-ret));
	if (!ret && !(r->o.flags & SITS_REKEY_RESEAL))
		ret = sits_journal_check(r->ctx, r->path);
	return ret;
}

/* The least of what a reseal looks at before it begins. */
static int check_resealable(struct rekeying *r)
{
	if (!(r->o.flags & SITS_REKEY_RESEAL) || r->f.hdr.suite == SITS_SEALED_SUITE_GCM)
		return 0;
	sits_log(r->ctx, SITS_LOG_ERR, "%s: header: suite %u has no integrity, and can't be resealed", r->path, r->f.hdr.suite);
	return -EPROTONOSUPPORT;
}

/* Say what would be done. Return: as tell_key(). */
static int look(struct rekeying *r)
{
	const char *why = NULL;
	int ret;

	r->fd = sits_open_regular(r->ctx, r->path, O_RDONLY, &r->st);
	if (r->fd < 0)
		return r->fd;
	ret = sits_source_header(r->ctx, r->path, r->fd, r->old_key->raw, r->page, &r->f, &why);
	if (ret == -ENOKEY && !sits_source_header(r->ctx, r->path, r->fd, r->new_key->raw, r->page, &r->f, NULL))
		return SITS_REKEY_ALREADY;
	ret = tell_key(r, why, ret);
	if (!ret)
		ret = check_resealable(r);
	return ret ? ret : check_writable(r);
}

static int reseal(struct rekeying *r)
{
	struct sits_load_opts lo = {
		.size = sizeof(lo),
		.threads = r->o.threads,
		.min_version = r->o.min_version,
		.progress = r->o.progress,
		.progress_arg = r->o.progress_arg,
	};

	return sits_reseal_locked(r->ctx, r->path, r->fd, r->old_key, r->new_key, &lo);
}

int sits_sealed_change_key(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
			   const struct sits_key *new_key, const struct sits_rekey_opts *opts, uint32_t *outcome)
{
	struct sits_rekey_opts o;
	struct rekeying *r;
	int ret;

	if (!ctx || !path || !old_key || !new_key || !outcome)
		return -EINVAL;
	ret = get_opts(ctx, opts, &o);
	if (ret)
		return ret;
	if (o.flags & SITS_REKEY_DRY_RUN)
		ret = prepare(ctx, path, old_key, new_key, &o, &r);
	else
		ret = start(ctx, path, old_key, new_key, o.flags & SITS_REKEY_RESEAL ? reseal_flags(path) : O_RDWR, &o, &r);
	if (ret == -ENOKEY && o.flags & SITS_REKEY_SKIP_OTHER) {
		*outcome = SITS_REKEY_OTHER;	/* cut short between two others */
		return 0;
	}
	if (ret)
		return ret;
	ret = o.flags & SITS_REKEY_DRY_RUN ? look(r) : check_keys(r);
	if (!ret && !(o.flags & SITS_REKEY_DRY_RUN))
		ret = o.flags & SITS_REKEY_RESEAL ? reseal(r) : rewrap(r);
	finish(r);
	if (ret >= 0)
		*outcome = (uint32_t)ret;
	return ret < 0 ? ret : 0;
}
