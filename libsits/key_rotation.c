// SPDX-License-Identifier: MIT
/*
 * key_rotation.c - the change of a key that files are under for another: who holds which key at each step.
 *
 * In place, with A the old key and B the new one; each line is durable before the next begins:
 *
 *	PATH	PATH.next	PATH.old-ID(A)
 *	A
 *	A	B				begin
 *	A	B				files go from A to B, one by one: rekey.c
 *	A	B		A		commit
 *	B			A		commit
 *
 * So both keys are there in every line, and where it stopped can be seen: with a PATH.next, files may be under either. The
 * key file at PATH is locked (flock) from begin to end. What becomes of the files is for the caller.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libsits/internal.h"
#include "libsits/key.h"
#include "libsits/key_source.h"
#include "sits/rekey.h"

#define NEXT_SUFFIX	".next"
#define OLD_SUFFIX	".old-"
#define LOCK_TRIES	8
#define SPEC_MAX	(PATH_MAX + 16)

/* Made by begin, freed by end; no secrets but in the keys, which have memory of their own. One thread at a time. */
struct sits_key_rotation {
	struct sits_ctx *ctx;
	struct sits_key *old_key, *new_key;
	const char *path;		/* of the key that is changed in place; NULL with a place of its own for the new one */
	int lock_fd;			/* on it; -1 without */
	char new_spec[SPEC_MAX], kept_spec[SPEC_MAX];
};

/* The name in a spec of key_file.c. */
static const char *path_of(const char *spec)
{
	return spec + strlen(sits_key_file.prefix);
}

static bool same_key(const struct sits_key *a, const struct sits_key *b)
{
	return !memcmp(a->id, b->id, sizeof(a->id));
}

static bool still_there(int fd, const char *path)
{
	struct stat opened, named;

	return !fstat(fd, &opened) && !lstat(path, &named) && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* Who waited for nobody may still have got a file that another rotation had just replaced. */
static int lock_key_file(struct sits_key_rotation *rot)
{
	int fd, ret, tries;

	for (tries = 0; tries < LOCK_TRIES; tries++) {
		fd = open(rot->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
		if (fd < 0)
			return 0;	/* opening it as a key says why */
		ret = flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
		if (!ret && still_there(fd, rot->path)) {
			rot->lock_fd = fd;
			return 0;
		}
		close(fd);
		if (ret)
			break;
	}
	if (ret && ret != -EWOULDBLOCK) {
		sits_log(rot->ctx, SITS_LOG_ERR, "key file %s: can't lock it: %s", rot->path, strerror(-ret));
		return ret;
	}
	sits_log(rot->ctx, SITS_LOG_ERR, "key file %s: another rotation of this key is running: try again when that has ended",
		 rot->path);
	return -EBUSY;
}

/* Where it is, make it if it is not. */
static int get_new_key(struct sits_key_rotation *rot, uint32_t flags)
{
	const struct sits_key_source *src;
	const char *name;
	int ret;

	ret = sits_key_source_find(rot->ctx, rot->new_spec, &src, &name);
	if (ret)
		return ret;
	ret = sits_key_open_at(rot->ctx, src, name, SITS_LOG_INFO, &rot->new_key);
	if ((ret == -ENOENT || ret == -ENOKEY) && !src->durable) {
		sits_log(rot->ctx, SITS_LOG_ERR, "key %s: not found, and no new key is made there: what is under it would be lost with a restart; make it with `sits key new` or `sits key import`, and keep a copy",
			 rot->new_spec);
		return ret;
	}
	if (ret == -ENOENT || ret == -ENOKEY) {
		if (flags & SITS_REKEY_DRY_RUN)
			return 0;
		ret = sits_key_create_at(rot->ctx, src, name, SITS_LOG_INFO);
		if (!ret || ret == -EEXIST)
			ret = sits_key_open_at(rot->ctx, src, name, SITS_LOG_ERR, &rot->new_key);
	}
	if (!ret)
		ret = sits_key_need_bytes(rot->ctx, rot->new_key, "sealing under another key");
	/* Made just now by a run that was killed, or copied there, it may not be on the disk yet. */
	if (!ret && src->sync && !(flags & SITS_REKEY_DRY_RUN))
		ret = src->sync(rot->ctx, name);
	return ret;
}

static int get_old_key(struct sits_key_rotation *rot, const struct sits_key_source *src, const char *name)
{
	int ret;

	ret = sits_key_open_at(rot->ctx, src, name, SITS_LOG_ERR, &rot->old_key);
	return ret ? ret : sits_key_need_bytes(rot->ctx, rot->old_key, "sealing under another key");
}

/* Return: 0; -ENAMETOOLONG, logged. */
static int name_places(struct sits_key_rotation *rot, const char *spec, const char *new_spec)
{
	const char *slash, *base;
	char id[2 * SITS_KEY_ID_LEN + 1];
	size_t longest;

	if (new_spec) {
		if (strlen(new_spec) >= SPEC_MAX || strlen(spec) >= SPEC_MAX)
			goto too_long;
		strcpy(rot->new_spec, new_spec);
		strcpy(rot->kept_spec, spec);
		return 0;
	}
	slash = strrchr(rot->path, '/');
	base = slash ? slash + 1 : rot->path;
	longest = strlen(OLD_SUFFIX) + 2 * SITS_KEY_ID_LEN;
	if (strlen(base) + longest > NAME_MAX || strlen(rot->path) + longest >= PATH_MAX)
		goto too_long;
	sits_hex(rot->old_key->id, SITS_KEY_ID_LEN, id);
	snprintf(rot->new_spec, sizeof(rot->new_spec), "%s" NEXT_SUFFIX, spec);
	snprintf(rot->kept_spec, sizeof(rot->kept_spec), "%s" OLD_SUFFIX "%s", spec, id);
	return 0;

too_long:
	sits_log(rot->ctx, SITS_LOG_ERR, "key %s: the name is too long for one more behind it; give the new key a place of its own (sits key rotate --new-key)", spec);
	return -ENAMETOOLONG;
}

static int begin(struct sits_key_rotation *rot, const char *spec, const char *new_spec, uint32_t flags)
{
	const struct sits_key_source *src;
	const char *name;
	int ret;

	ret = sits_key_source_find(rot->ctx, spec, &src, &name);
	if (ret)
		return ret;
	if (!new_spec && src != &sits_key_file) {
		sits_log(rot->ctx, SITS_LOG_ERR, "key %s: only a key in a file can be changed in place; give the new key a place of its own (sits key rotate --new-key)", spec);
		return -EINVAL;
	}
	rot->path = new_spec ? NULL : name;
	if (rot->path && !(flags & SITS_REKEY_DRY_RUN))
		ret = lock_key_file(rot);
	if (!ret)
		ret = get_old_key(rot, src, name);
	if (!ret)
		ret = name_places(rot, spec, new_spec);
	if (!ret)
		ret = get_new_key(rot, flags);
	if (ret)
		return ret;
	if (rot->new_key && same_key(rot->old_key, rot->new_key)) {
		sits_log(rot->ctx, SITS_LOG_ERR, "keys %s and %s are the same: nothing would change", spec, rot->new_spec);
		return -EINVAL;
	}
	return 0;
}

int sits_key_rotation_begin(struct sits_ctx *ctx, const char *spec, const char *new_spec, uint32_t flags,
			    struct sits_key_rotation **out)
{
	struct sits_key_rotation *rot;
	int ret;

	if (!ctx || !out || flags & ~SITS_REKEY_DRY_RUN)
		return -EINVAL;
	rot = calloc(1, sizeof(*rot));
	if (!rot)
		return sits_log_nomem(ctx, "key", "its rotation", sizeof(*rot));
	rot->ctx = ctx;
	rot->lock_fd = -1;
	ret = begin(rot, spec, new_spec, flags);
	if (ret)
		sits_key_rotation_end(rot);
	else
		*out = rot;
	return ret;
}

const struct sits_key *sits_key_rotation_old(const struct sits_key_rotation *rot)
{
	return rot->old_key;
}

const struct sits_key *sits_key_rotation_new(const struct sits_key_rotation *rot)
{
	return rot->new_key;
}

const char *sits_key_rotation_new_spec(const struct sits_key_rotation *rot)
{
	return rot->new_spec;
}

const char *sits_key_rotation_kept_spec(const struct sits_key_rotation *rot)
{
	return rot->kept_spec;
}

/* Is the key file at @path still @key? */
static int check_same(struct sits_key_rotation *rot, const char *path, const struct sits_key *key)
{
	struct sits_key *now = NULL;
	int ret;

	ret = sits_key_open_at(rot->ctx, &sits_key_file, path, SITS_LOG_ERR, &now);
	if (!ret && !same_key(now, key)) {
		sits_log(rot->ctx, SITS_LOG_ERR, "key file %s: is another key than expected; no key file was changed", path);
		ret = -ESTALE;
	}
	sits_key_close(now);
	return ret;
}

static int keep_old(struct sits_key_rotation *rot)
{
	const char *path = path_of(rot->kept_spec);
	int ret;

	ret = sits_key_save_at(rot->ctx, &sits_key_file, path, SITS_LOG_INFO, rot->old_key);
	if (ret != -EEXIST)
		return ret;
	/* By a commit that was cut short, perhaps before it was on the disk. */
	ret = check_same(rot, path, rot->old_key);
	return ret ? ret : sits_key_file.sync(rot->ctx, path);
}

int sits_key_rotation_commit(struct sits_key_rotation *rot)
{
	const char *next;
	int ret;

	if (!rot || !rot->new_key)
		return -EINVAL;
	if (!rot->path)
		return 0;
	next = path_of(rot->new_spec);
	if (rot->lock_fd < 0 || !still_there(rot->lock_fd, rot->path)) {
		sits_log(rot->ctx, SITS_LOG_ERR, "key file %s: another file was put in its place meanwhile; no key file was changed",
			 rot->path);
		return -ESTALE;
	}
	ret = check_same(rot, rot->path, rot->old_key);
	if (!ret)
		ret = check_same(rot, next, rot->new_key);
	if (!ret)
		ret = keep_old(rot);
	if (ret)
		return ret;
	if (rename(next, rot->path)) {
		ret = -errno;
		sits_log(rot->ctx, SITS_LOG_ERR, "key file %s: can't take the place of %s: %s", next, rot->path, strerror(-ret));
		return ret;
	}
	snprintf(rot->new_spec, sizeof(rot->new_spec), "%s%s", sits_key_file.prefix, rot->path);
	return sits_key_file.sync(rot->ctx, rot->path);
}

void sits_key_rotation_end(struct sits_key_rotation *rot)
{
	if (!rot)
		return;
	sits_key_close(rot->new_key);
	sits_key_close(rot->old_key);
	if (rot->lock_fd >= 0)
		close(rot->lock_fd);
	free(rot);
}
