// SPDX-License-Identifier: MIT
/*
 * io.c - reads and writes that are whole or failed.
 */
#include "libsits/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "libsits/internal.h"

int sits_pread_all(int fd, void *buf, size_t len, uint64_t off)
{
	uint8_t *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int sits_read_upto(int fd, void *buf, size_t max, size_t *len)
{
	ssize_t n;

	for (*len = 0; *len < max; *len += (size_t)n) {
		n = read(fd, (uint8_t *)buf + *len, max - *len);
		if (n < 0 && errno == EINTR) {
			n = 0;
			continue;
		}
		if (n < 0)
			return -errno;
		if (!n)
			break;
	}
	return 0;
}

int sits_pwrite_all(int fd, const void *buf, size_t len, uint64_t off)
{
	const uint8_t *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/*
 * POSIX access control lists: acl(5). With one, the group's bits of the mode are no more than its mask: the mode alone would
 * give the group what it was for others named in it. Without one, what @fd got from its directory's default goes.
 */
static int copy_acl(int fd, int from)
{
	static const char name[] = "system.posix_acl_access";
	/* No call takes or gives more, whatever the file system: some keep an entry in a kibibyte, XFS and tmpfs thousands. */
	char *acl = malloc(XATTR_SIZE_MAX);
	ssize_t len;
	int ret = 0;

	if (!acl)
		return -ENOMEM;
	len = fgetxattr(from, name, acl, XATTR_SIZE_MAX);
	if (len >= 0)
		ret = fsetxattr(fd, name, acl, (size_t)len, 0);
	else if (errno == ENODATA)
		ret = fremovexattr(fd, name);
	else
		ret = -1;
	ret = ret && errno != ENODATA && errno != ENOTSUP ? -errno : 0;
	free(acl);
	return ret;
}

int sits_copy_owner(int fd, int from, const struct stat *st, mode_t mask)
{
	int ret, partly = 0;

	if (fchown(fd, st->st_uid, st->st_gid)) {
		if (errno != EPERM)
			return -errno;
		/* Who does not own the file may still be in its group. */
		partly = 1;
		if (fchown(fd, (uid_t)-1, st->st_gid) && errno != EPERM)
			return -errno;
	}
	ret = copy_acl(fd, from);
	if (ret)
		return ret;
	return fchmod(fd, st->st_mode & mask) ? -errno : partly;
}

const char *sits_file_kind(mode_t mode)
{
	return S_ISDIR(mode) ? "a directory" : S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : S_ISFIFO(mode) ? "a pipe" :
	       S_ISSOCK(mode) ? "a socket" : "a file";
}

int sits_off_stdio(int fd)
{
	int up, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	up = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	err = errno;
	close(fd);
	errno = err;
	return up;
}

int sits_open_regular(struct sits_ctx *ctx, const char *path, int flags, struct stat *st)
{
	int ret, fd = sits_off_stdio(open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));

	if (fd < 0) {
		ret = -errno;
		sits_log(ctx, SITS_LOG_ERR, "%s: %s", path, strerror(-ret));
		return ret;
	}
	if (fstat(fd, st)) {
		ret = -errno;
		sits_log(ctx, SITS_LOG_ERR, "%s: %s", path, strerror(-ret));
		goto err_close;
	}
	if (!S_ISREG(st->st_mode)) {
		ret = S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
		sits_log(ctx, SITS_LOG_ERR, "%s: is %s, not a regular file", path, sits_file_kind(st->st_mode));
		goto err_close;
	}
	return fd;

err_close:
	close(fd);
	return ret;
}

int sits_reopen_direct(int fd)
{
	char proc[32];
	int direct;

	/* Through /proc, so that it is the same file whatever happens to the path. */
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	direct = open(proc, O_RDONLY | O_CLOEXEC | O_DIRECT);
	return direct < 0 ? -1 : direct;
}
