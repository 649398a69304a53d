// SPDX-License-Identifier: MIT
/*
 * journal.c - the header page of a sealed file, before and after, kept beside it while it is rewritten.
 *
 *   0     8     magic "SITSRKJ1"
 *   8     4096  old header page
 *   4104  4096  new header page
 *   8200  32    SM3 of all before
 *
 * The digest finds damage, not malice: whoever uses a page from here must authenticate it first, as one
 * from the file itself. When to use which is rekey.c's and source.c's decision.
 */
#include "libsits/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/tmpfile.h"

#define MAGIC		"SITSRKJ1"
#define MAGIC_LEN	8
#define SUFFIX		".sits-rekey"

struct image {
	u8 magic[MAGIC_LEN];
	struct sits_journal pages;
	u8 digest[SITS_SM3_LEN];
};

_Static_assert(sizeof(struct image) == MAGIC_LEN + 2 * SITS_SEALED_HDR_BYTES + SITS_SM3_LEN, "packed");

/* @out: PATH_MAX bytes. */
static int journal_path(const char *path, char *out)
{
	char real[PATH_MAX], dir[PATH_MAX], base[NAME_MAX + 1];
	int ret;

	if (!realpath(path, real))
		return -errno;
	ret = sits_split_path(real, dir, base);
	if (ret)
		return ret;
	if (strlen(base) + strlen("." SUFFIX) > NAME_MAX ||
	    snprintf(out, PATH_MAX, "%s/.%s" SUFFIX, dir, base) >= PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

static void image_digest(const struct image *im, u8 digest[SITS_SM3_LEN])
{
	struct sits_sm3 s;

	sits_sm3_init(&s);
	sits_sm3_update(&s, im, offsetof(struct image, digest));
	sits_sm3_final(&s, digest);
}

int sits_journal_read(struct sits_ctx *ctx, const char *path, struct sits_journal *j)
{
	char name[PATH_MAX];
	u8 digest[SITS_SM3_LEN];
	struct image im;
	struct stat st;
	int ret, fd;

	ret = journal_path(path, name);
	if (ret)	/* A name that is too long has none. */
		return ret == -ENAMETOOLONG ? -ENOENT : ret;
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	ret = -EBADMSG;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		goto out;
	if (st.st_size != sizeof(im) || sits_pread_all(fd, &im, sizeof(im), 0))
		goto out;
	image_digest(&im, digest);
	if (memcmp(im.magic, MAGIC, MAGIC_LEN) || memcmp(digest, im.digest, sizeof(digest)))
		goto out;
	/* Of two files: no rekey leaves such a thing, and each page would vouch for the other. */
	if (memcmp(im.pages.old_page, im.pages.new_page, SITS_SEALED_IMMUTABLE_BYTES))
		goto out;
	*j = im.pages;
	ret = 0;
out:
	close(fd);
	return ret;
}

/* @name: PATH_MAX bytes. */
static int name_journal(struct sits_ctx *ctx, const char *path, char *name)
{
	int ret = journal_path(path, name);

	if (ret)
		sits_log(ctx, SITS_LOG_ERR, "%s: can't name a journal beside it: %s; give it a shorter name", path, strerror(-ret));
	return ret;
}

int sits_journal_check(struct sits_ctx *ctx, const char *path)
{
	char name[PATH_MAX];

	return name_journal(ctx, path, name);
}

/* Who reads the file must be able to read this, whatever the umask, and nobody else. It holds wrapped keys, no keys. */
static int open_to_the_same(int fd, const char *path)
{
	int ret, from = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (from < 0)
		return -errno;
	ret = fstat(from, &st) ? -errno : sits_copy_owner(fd, from, &st, 0666);
	close(from);
	return ret;
}

int sits_journal_write(struct sits_ctx *ctx, const char *path, const struct sits_journal *j)
{
	struct sits_tmpfile t;
	char name[PATH_MAX];
	struct image im;
	int ret;

	ret = name_journal(ctx, path, name);
	if (ret)
		return ret;
	memcpy(im.magic, MAGIC, MAGIC_LEN);
	im.pages = *j;
	image_digest(&im, im.digest);
	ret = sits_tmpfile_open(ctx, name, 0600, true, 0, &t);
	if (ret)
		return ret;
	ret = open_to_the_same(t.fd, path);
	if (ret >= 0)
		ret = sits_pwrite_all(t.fd, &im, sizeof(im), 0);
	if (ret) {
		sits_log(ctx, SITS_LOG_ERR, "%s: can't write: %s", name, strerror(-ret));
		sits_tmpfile_abort(&t);
		return ret;
	}
	return sits_tmpfile_commit(&t);
}

int sits_journal_remove(struct sits_ctx *ctx, const char *path)
{
	char name[PATH_MAX], dir[PATH_MAX], base[NAME_MAX + 1];
	int ret, fd;

	ret = journal_path(path, name);
	if (ret == -ENAMETOOLONG || ret == -ENOENT)
		return 0;
	if (ret) {
		sits_log(ctx, SITS_LOG_ERR, "%s: can't name the journal beside it, to remove it: %s", path, strerror(-ret));
		return ret;
	}
	if (unlink(name))
		ret = -errno;
	if (ret == -ENOENT)
		return 0;
	if (!ret)
		ret = sits_split_path(name, dir, base);
	if (!ret) {
		fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ret = fd < 0 ? -errno : sits_sync_dir(fd);
		if (fd >= 0)
			close(fd);
	}
	if (ret)
		sits_log(ctx, SITS_LOG_ERR, "%s: can't remove the journal %s: %s", path, name, strerror(-ret));
	return ret;
}
