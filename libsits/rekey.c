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
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/journal.h"
#include "libsits/key.h"
#include "libsits/rekey.h"
#include "libsits/secret.h"
#include "libsits/source.h"

/* In secret memory, for f. */
struct rekeying {
	struct sits_sealed_file f;
	struct sits_ctx *ctx;
	const char *path;
	const struct sits_key *old_key, *new_key;
	int fd;
	struct stat st;
	u8 page[SITS_SEALED_HDR_BYTES];
	struct sits_journal j;
};

static int lock_file(struct rekeying *r, int flags)
{
	struct stat st;
	int ret;

	r->fd = sits_open_regular(r->ctx, r->path, flags, &r->st);
	if (r->fd < 0)
		return r->fd;
	ret = flock(r->fd, LOCK_EX | LOCK_NB) ? -errno : 0;
	/* Somebody may have put another file in its place before the lock was had. */
	if (!ret && (stat(r->path, &st) || st.st_ino != r->st.st_ino || st.st_dev != r->st.st_dev))
		ret = -EWOULDBLOCK;
	if (!ret)
		return 0;
	if (ret == -EWOULDBLOCK) {
		ret = -EBUSY;
		sits_log(r->ctx, SITS_LOG_ERR, "%s: another process is writing it: try again when that has ended", r->path);
	} else {
		sits_log(r->ctx, SITS_LOG_ERR, "%s: can't lock it: %s", r->path, strerror(-ret));
	}
	close(r->fd);
	return ret;
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
	sits_log(r->ctx, SITS_LOG_ERR, "%s: wrong key: a rekey from key %s to key %s was cut short; give one of these as the key it is under",
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

/* Return: 1 where the file is under the new key already; 0 where it is under the old; -errno. */
static int check_keys(struct rekeying *r)
{
	const char *why = NULL;
	int ret;

	ret = sits_pread_all(r->fd, r->page, sizeof(r->page), 0);
	if (!ret)
		ret = sits_sealed_unwrap(r->page, r->old_key->raw, &r->f, &why);
	if (ret == -ENOKEY && !sits_sealed_unwrap(r->page, r->new_key->raw, &r->f, NULL)) {
		sits_log(r->ctx, SITS_LOG_WARN, "%s: is under the new key already; nothing was changed", r->path);
		return 1;
	}
	return sits_source_log_header(r->ctx, r->path, &r->st, r->page, r->old_key, why, ret);
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

static int start(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		 const struct sits_key *new_key, int flags, struct rekeying **out)
{
	struct rekeying *r;
	void *mem;
	int ret;

	ret = sits_secret_alloc(ctx, sizeof(*r), &mem);
	if (ret)
		return ret;
	r = mem;
	r->ctx = ctx;
	r->path = path;
	r->old_key = old_key;
	r->new_key = new_key;
	ret = lock_file(r, flags);
	if (ret < 0)
		goto err_free;
	ret = recover(r);
	if (ret)
		goto err_close;
	*out = r;
	return 0;

err_close:
	close(r->fd);
err_free:
	sits_secret_free(r, sizeof(*r));
	return ret;
}

int sits_sealed_lock(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		     const struct sits_key *new_key)
{
	int ret, flags = faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) ? O_RDONLY : O_RDWR;
	struct rekeying *r;

	ret = start(ctx, path, old_key, new_key, flags, &r);
	if (ret)
		return ret;
	ret = r->fd;
	sits_secret_free(r, sizeof(*r));
	return ret;
}

int sits_sealed_rekey(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		      const struct sits_key *new_key)
{
	struct rekeying *r;
	int ret;

	if (!ctx || !path || !old_key || !new_key)
		return -EINVAL;
	ret = start(ctx, path, old_key, new_key, O_RDWR, &r);
	if (ret)
		return ret;
	ret = check_keys(r);
	if (!ret)
		ret = rewrap(r);
	close(r->fd);
	sits_secret_free(r, sizeof(*r));
	return ret > 0 ? 0 : ret;
}
