// SPDX-License-Identifier: MIT
/*
 * tmpfile.c - a file that appears at its path whole and durable, or not at all.
 *
 * A named temporary file is locked with flock() as long as its writer lives; the lock goes with the process.
 * So a temporary name whose lock can be had belongs to nobody any more, and is removed. What is inside the
 * file is for the callers to know.
 */
#include "libsits/tmpfile.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libsits/internal.h"
#include "libsits/io.h"

#define TMP_MARK	".sits-tmp."
#define TMP_DIGITS	8
/* What of the base name goes into a temporary name, so that it still fits. */
#define TMP_BASE_MAX	(NAME_MAX - 1 - (int)sizeof(TMP_MARK) + 1 - TMP_DIGITS)

int sits_split_path(const char *path, char *dir, char *base)
{
	const char *slash = strrchr(path, '/');
	const char *last = slash ? slash + 1 : path;
	size_t dir_len = slash ? (size_t)(slash - path) : 0;

	if (!*path)
		return -ENOENT;
	if (!*last || !strcmp(last, ".") || !strcmp(last, ".."))
		return -EISDIR;
	if (strlen(last) > NAME_MAX || dir_len + 2 > PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(base, last);
	if (!slash) {
		strcpy(dir, ".");
		return 0;
	}
	if (!dir_len)
		dir_len = 1;	/* the root */
	memcpy(dir, path, dir_len);
	dir[dir_len] = '\0';
	return 0;
}

int sits_sync_dir(int dirfd)
{
	if (!fsync(dirfd))
		return 0;
	/* Filesystems without such a thing say so in these ways. */
	if (errno == EINVAL || errno == ENOTSUP || errno == EROFS)
		return 0;
	return -errno;
}

static void tmp_prefix(const char *base, char *out)
{
	snprintf(out, NAME_MAX + 1, ".%.*s" TMP_MARK, TMP_BASE_MAX, base);
}

static int new_name(struct sits_tmpfile *t)
{
	unsigned int r;
	size_t len;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		return -EIO;
	tmp_prefix(t->base, t->name);
	len = strlen(t->name);
	snprintf(t->name + len, sizeof(t->name) - len, "%08x", r);
	return 0;
}

static bool same_file(int dirfd, const char *name, int fd)
{
	struct stat a, b;

	return !fstatat(dirfd, name, &a, AT_SYMLINK_NOFOLLOW) && !fstat(fd, &b) &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Remove @name if it is a temporary file of ours whose writer is gone. */
static void remove_stale(struct sits_tmpfile *t, const char *name)
{
	int fd = openat(t->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    !flock(fd, LOCK_EX | LOCK_NB) && same_file(t->dirfd, name, fd) &&
	    !unlinkat(t->dirfd, name, 0))
		sits_log(t->ctx, SITS_LOG_INFO, "%s: removed %s, which a killed run had left", t->path, name);
	close(fd);
}

static void remove_stale_all(struct sits_tmpfile *t)
{
	char prefix[NAME_MAX + 1];
	struct dirent *e;
	size_t len;
	int fd;
	DIR *d;

	fd = openat(t->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	tmp_prefix(t->base, prefix);
	len = strlen(prefix);
	while ((e = readdir(d))) {
		const char *tail = e->d_name + len;

		if (!strncmp(e->d_name, prefix, len) && strlen(tail) == TMP_DIGITS &&
		    strspn(tail, "0123456789abcdef") == TMP_DIGITS)
			remove_stale(t, e->d_name);
	}
	closedir(d);
}

static int open_anonymous(struct sits_tmpfile *t, mode_t mode)
{
	char proc[32];
	int fd = sits_off_stdio(openat(t->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode));

	if (fd < 0)
		return -errno;
	/* Without /proc it may be impossible to give it a name later. */
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (access(proc, F_OK)) {
		close(fd);
		return -EOPNOTSUPP;
	}
	t->name[0] = '\0';
	t->fd = fd;
	return 0;
}

static int open_named(struct sits_tmpfile *t, mode_t mode)
{
	int ret, fd, tries;

	for (tries = 0; tries < 100; tries++) {
		ret = new_name(t);
		if (ret)
			return ret;
		fd = sits_off_stdio(openat(t->dirfd, t->name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, mode));
		if (fd < 0 && errno == EEXIST)
			continue;
		if (fd < 0)
			return -errno;
		/* Between the creation and the lock another run may have taken it for a leftover. */
		if (flock(fd, LOCK_EX | LOCK_NB) || !same_file(t->dirfd, t->name, fd)) {
			close(fd);
			continue;
		}
		t->fd = fd;
		return 0;
	}
	return -EEXIST;
}

/* Something is there. What is no file is never replaced: root would take /dev/null away from everybody. */
static int check_existing(struct sits_tmpfile *t, const struct stat *st)
{
	int ret;

	if (S_ISREG(st->st_mode) || S_ISLNK(st->st_mode)) {
		if (t->replace)
			return 0;
		sits_log(t->ctx, SITS_LOG_ERR, "%s: exists already", t->path);
		return -EEXIST;
	}
	ret = S_ISDIR(st->st_mode) ? -EISDIR : -EEXIST;
	sits_log(t->ctx, SITS_LOG_ERR, "%s: is %s, which is not replaced; give another name", t->path,
		 sits_file_kind(st->st_mode));
	return ret;
}

int sits_tmpfile_open(struct sits_ctx *ctx, const char *path, mode_t mode, bool replace, unsigned int flags,
		      struct sits_tmpfile *t)
{
	char dir[PATH_MAX];
	struct stat st;
	int ret;

	*t = (struct sits_tmpfile){ .ctx = ctx, .path = path, .dirfd = -1, .fd = -1, .replace = replace };
	ret = sits_split_path(path, dir, t->base);
	if (ret) {
		sits_log(ctx, SITS_LOG_ERR, "%s: %s", path, ret == -EISDIR ? "names a directory, not a file" : strerror(-ret));
		return ret;
	}
	t->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->dirfd < 0) {
		ret = -errno;
		sits_log(ctx, SITS_LOG_ERR, "%s: can't open the directory %s: %s", path, dir, strerror(-ret));
		return ret;
	}
	remove_stale_all(t);
	ret = fstatat(t->dirfd, t->base, &st, AT_SYMLINK_NOFOLLOW) ? 0 : check_existing(t, &st);
	if (ret)
		goto err_close_dir;
	ret = flags & SITS_TMPFILE_NAMED ? -EOPNOTSUPP : open_anonymous(t, mode);
	/* Old kernels and filesystems without O_TMPFILE answer in these ways. */
	if (ret == -EOPNOTSUPP || ret == -EISDIR || ret == -EINVAL || ret == -ENOENT)
		ret = open_named(t, mode);
	if (ret) {
		sits_log(ctx, SITS_LOG_ERR, "%s: can't create a file in %s: %s", path, dir, strerror(-ret));
		goto err_close_dir;
	}
	return 0;

err_close_dir:
	close(t->dirfd);
	return ret;
}

/* Give an unnamed file the name @to, which must be free. */
static int link_anonymous(struct sits_tmpfile *t, const char *to)
{
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", t->fd);
	return linkat(AT_FDCWD, proc, t->dirfd, to, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

static int give_name(struct sits_tmpfile *t)
{
	int ret;

	if (!t->name[0]) {
		if (!t->replace)
			return link_anonymous(t, t->base);
		/* No call replaces a name by an unnamed file: take a temporary name on the way. */
		if (flock(t->fd, LOCK_EX | LOCK_NB))
			return -errno;
		do {
			ret = new_name(t);
			if (!ret)
				ret = link_anonymous(t, t->name);
		} while (ret == -EEXIST);
		if (ret) {
			t->name[0] = '\0';
			return ret;
		}
	}
	if (t->replace)
		return renameat(t->dirfd, t->name, t->dirfd, t->base) ? -errno : 0;
	if (!renameat2(t->dirfd, t->name, t->dirfd, t->base, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (linkat(t->dirfd, t->name, t->dirfd, t->base, 0))
		return -errno;
	unlinkat(t->dirfd, t->name, 0);
	return 0;
}

int sits_tmpfile_commit(struct sits_tmpfile *t)
{
	int ret;

	if (fsync(t->fd)) {
		ret = -errno;
		sits_log(t->ctx, SITS_LOG_ERR, "%s: can't write it out to the disk: %s", t->path, strerror(-ret));
		goto err_abort;
	}
	ret = give_name(t);
	if (ret) {
		sits_log(t->ctx, SITS_LOG_ERR, "%s: can't be put in place: %s", t->path,
			 ret == -EEXIST ? "another file appeared there meanwhile" : strerror(-ret));
		goto err_abort;
	}
	t->name[0] = '\0';
	ret = sits_sync_dir(t->dirfd);
	if (ret) {
		sits_log(t->ctx, SITS_LOG_ERR, "%s: is in place, but its directory can't be written out to the disk: %s",
			 t->path, strerror(-ret));
		if (!t->replace)
			unlinkat(t->dirfd, t->base, 0);
	}
err_abort:
	sits_tmpfile_abort(t);
	return ret;
}

void sits_tmpfile_abort(struct sits_tmpfile *t)
{
	if (t->name[0])
		unlinkat(t->dirfd, t->name, 0);
	close(t->fd);
	close(t->dirfd);
}
