// SPDX-License-Identifier: MIT
/*
 * key_file.c - keys in files that only their owner may use: file:PATH.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/key_source.h"
#include "libsits/tmpfile.h"

/* May this opened file hold a key? */
static int check_opened(struct sits_ctx *ctx, const char *path, const struct stat *st)
{
	unsigned int mode = st->st_mode & 07777;

	if (!S_ISREG(st->st_mode)) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: is not a regular file", path);
		return -EINVAL;
	}
	if (st->st_uid != geteuid() && st->st_uid != 0) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: is owned by user %u, who could change it; it must be owned by you (user %u) or root",
			 path, (unsigned int)st->st_uid, (unsigned int)geteuid());
		return -EACCES;
	}
	if (mode & ~0600u) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: has mode %04o%s; run: chmod 600 %s", path, mode,
			 mode & 077 ? ", so that others may use it" : ", more than 0600", path);
		return -EACCES;
	}
	return 0;
}

static int log_open(struct sits_ctx *ctx, const char *path, int missing, int err)
{
	if (err == -ELOOP)
		sits_log(ctx, SITS_LOG_ERR, "key file %s: is a symbolic link: name the key file itself", path);
	else if (err == -ENOENT)
		sits_log(ctx, missing, "key file %s: %s; `sits key new` makes one", path, strerror(-err));
	else
		sits_log(ctx, SITS_LOG_ERR, "key file %s: %s", path, strerror(-err));
	return err;
}

static int read_file(struct sits_ctx *ctx, const char *path, int missing, struct sits_key_text *t, struct sits_key *key)
{
	int ret, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return log_open(ctx, path, missing, -errno);
	ret = fstat(fd, &st) ? -errno : check_opened(ctx, path, &st);
	if (!ret) {
		ret = sits_read_upto(fd, t->text, SITS_KEY_TEXT_MAX + 1, &t->len);
		if (ret)
			sits_log(ctx, SITS_LOG_ERR, "key file %s: can't read: %s", path, strerror(-ret));
	}
	close(fd);
	return ret;
}

static int create_file(struct sits_ctx *ctx, const char *path, int missing, const char *text, size_t len)
{
	struct sits_tmpfile t;
	struct stat st;
	int ret;

	/* Said at another severity than tmpfile.c would. */
	if (missing != SITS_LOG_ERR && !lstat(path, &st))
		return -EEXIST;
	ret = sits_tmpfile_open(ctx, path, 0600, false, 0, &t);
	if (ret)
		return ret;
	ret = fchmod(t.fd, 0600) ? -errno : sits_pwrite_all(t.fd, text, len, 0);
	if (!ret)
		ret = sits_pwrite_all(t.fd, "\n", 1, len);
	if (ret) {
		sits_log(ctx, SITS_LOG_ERR, "key file %s: can't write: %s", path, strerror(-ret));
		sits_tmpfile_abort(&t);
		return ret;
	}
	return sits_tmpfile_commit(&t);
}

static int sync_file(struct sits_ctx *ctx, const char *path)
{
	char dir[PATH_MAX], base[NAME_MAX + 1];
	int ret, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	ret = fd < 0 || fsync(fd) ? -errno : sits_split_path(path, dir, base);
	if (fd >= 0)
		close(fd);
	if (!ret) {
		fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ret = fd < 0 ? -errno : sits_sync_dir(fd);
		if (fd >= 0)
			close(fd);
	}
	if (ret)
		sits_log(ctx, SITS_LOG_ERR, "key file %s: can't be written out to the disk: %s", path, strerror(-ret));
	return ret;
}

const struct sits_key_source sits_key_file = {
	.prefix = "file:",
	.durable = true,
	.read = read_file,
	.create = create_file,
	.sync = sync_file,
};
