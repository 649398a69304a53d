/* SPDX-License-Identifier: MIT */
/*
 * tmpfile.h - a file that appears at its path whole and durable, or not at all.
 *
 * Written without a name where the filesystem can (O_TMPFILE), else as ".BASE.sits-tmp.XXXXXXXX" beside the
 * final name, locked while its writer lives. Opening one removes what killed writers left for the same path.
 */
#ifndef SITS_LIBSITS_TMPFILE_H
#define SITS_LIBSITS_TMPFILE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct sits_ctx;

#define SITS_TMPFILE_NAMED	(1u << 0)	/* do not use O_TMPFILE, even where there is one */

struct sits_tmpfile {
	struct sits_ctx *ctx;
	const char *path;		/* as given; borrowed until commit or abort */
	int dirfd, fd;			/* fd: to write to */
	bool replace;
	char base[NAME_MAX + 1];
	char name[NAME_MAX + 1];	/* its name meanwhile; "" while it has none */
};

/**
 * sits_tmpfile_open() - Start a file for @path.
 * @replace: false refuses a path that exists, now (-EEXIST) and at commit; true replaces it at commit if it is a regular
 *           file or a symbolic link: a device, pipe or socket is -EEXIST all the same
 * Return: 0, then commit or abort is due; -EEXIST; -EISDIR; -errno. All but -ENOMEM are logged.
 */
int sits_tmpfile_open(struct sits_ctx *ctx, const char *path, mode_t mode, bool replace, unsigned int flags,
		      struct sits_tmpfile *t);

/** sits_tmpfile_commit() - Make it durable and give it its name; on failure nothing is left. Return: 0; -errno, logged. */
int sits_tmpfile_commit(struct sits_tmpfile *t);

/** sits_tmpfile_abort() - Give it up; nothing is left. */
void sits_tmpfile_abort(struct sits_tmpfile *t);

/** sits_split_path() - The directory and the base name of @path. @dir: PATH_MAX bytes, @base: NAME_MAX + 1.
 * Return: 0; -EISDIR where it ends in '/' or a dot name; -ENOENT for an empty one; -ENAMETOOLONG. */
int sits_split_path(const char *path, char *dir, char *base);

/** sits_sync_dir() - Make the names in a directory durable. Return: 0; -errno. */
int sits_sync_dir(int dirfd);

#endif
