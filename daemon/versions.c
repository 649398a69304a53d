// SPDX-License-Identifier: MIT
/*
 * versions.c - see versions.h.
 */
#include "daemon/versions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_FILE	"model-versions.lock"
#define TEMP_FILE	"model-versions.json.new"
#define RECORD_MAX	(4u << 20)

static int damaged(const char *dir, const char *what, struct sits_diag *diag)
{
	return sits_diag_fail(diag, -EBADMSG, "%.300s/" SITS_VERSIONS_FILE ": %s; it protects from older models, so it is not "
			      "skipped: restore it, or remove it to start a new record", dir, what);
}

static int failed(const char *dir, const char *name, int err, struct sits_diag *diag)
{
	return sits_diag_fail(diag, err, "%.300s/%s: %s", dir, name, strerror(-err));
}

/* All of the record; *out NULL where there is none. */
static int read_record(int dir_fd, const char *dir, json_t **out, struct sits_diag *diag)
{
	int fd = openat(dir_fd, SITS_VERSIONS_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	json_error_t err;
	bool no_memory;
	struct stat st;
	json_t *root;

	*out = NULL;
	if (fd < 0)
		return errno == ENOENT ? 0 : failed(dir, SITS_VERSIONS_FILE, -errno, diag);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > RECORD_MAX) {
		close(fd);
		return damaged(dir, "not a regular file of sensible size", diag);
	}
	/* jansson 2.14 takes want of memory for damage, or leaves something out. */
	errno = 0;
	root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &err);
	no_memory = errno == ENOMEM;
	close(fd);
	if (no_memory) {
		json_decref(root);
		return failed(dir, SITS_VERSIONS_FILE, -ENOMEM, diag);
	}
	if (!json_is_object(root)) {
		json_decref(root);
		return damaged(dir, root ? "not a JSON object" : "not valid JSON", diag);
	}
	*out = root;
	return 0;
}

/* A version as text: digits alone, 64 bits. */
static int parse_version(const json_t *v, uint64_t *version)
{
	const char *s = json_string_value(v);
	char *end;

	if (!s || *s < '0' || *s > '9')
		return -EBADMSG;
	errno = 0;
	*version = strtoull(s, &end, 10);
	return errno || *end ? -EBADMSG : 0;
}

static int look_up(const json_t *root, const char *dir, const char *model_id, uint64_t *version, struct sits_diag *diag)
{
	const json_t *v = json_object_get(root, model_id);

	*version = 0;
	if (!v)
		return 0;
	return parse_version(v, version) ? damaged(dir, "a version that is not a number", diag) : 0;
}

/* Return: a descriptor; -ENOENT, without words, where there is none; -EPERM where everybody can write it; -errno. */
static int open_state_dir(const char *dir, struct sits_diag *diag)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : sits_diag_fail(diag, -errno, "state_dir %.300s: %s", dir, strerror(errno));
	if (fstat(fd, &st) || st.st_mode & S_IWOTH) {
		close(fd);
		return sits_diag_fail(diag, -EPERM, "state_dir %.300s may be written by everybody, who could undo the protection from "
				      "older models: chmod o-w it, or choose another", dir);
	}
	return fd;
}

int sits_versions_get(const char *dir, const char *model_id, uint64_t *version, struct sits_diag *diag)
{
	int fd = open_state_dir(dir, diag), ret;
	json_t *root;

	*version = 0;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	ret = read_record(fd, dir, &root, diag);
	if (!ret)
		ret = look_up(root, dir, model_id, version, diag);
	json_decref(root);
	close(fd);
	return ret;
}

static int write_record(int dir_fd, const char *dir, const json_t *root, struct sits_diag *diag)
{
	int fd = openat(dir_fd, TEMP_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int ret = 0;

	if (fd < 0)
		return failed(dir, TEMP_FILE, -errno, diag);
	errno = 0;
	if (json_dumpfd(root, fd, JSON_INDENT(2) | JSON_SORT_KEYS) || write(fd, "\n", 1) != 1 || fsync(fd))
		ret = errno ? -errno : -EIO;
	if (close(fd) && !ret)
		ret = -errno;
	if (!ret && (renameat(dir_fd, TEMP_FILE, dir_fd, SITS_VERSIONS_FILE) || fsync(dir_fd)))
		ret = -errno;
	if (ret)
		unlinkat(dir_fd, TEMP_FILE, 0);
	return ret ? failed(dir, TEMP_FILE, ret, diag) : 0;
}

static int set_version(json_t *root, const char *dir, const char *model_id, uint64_t version, struct sits_diag *diag)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, version);
	errno = 0;
	if (!json_object_set_new(root, model_id, json_string(text)))
		return 0;
	if (errno == ENOMEM)
		return failed(dir, SITS_VERSIONS_FILE, -ENOMEM, diag);
	return sits_diag_fail(diag, -EINVAL, "model id can't be recorded: it is not UTF-8");
}

/* Read, compare and write under a lock: daemons of several run directories may share the state. */
static int raise_locked(int dir_fd, const char *dir, const char *model_id, uint64_t version, struct sits_diag *diag)
{
	uint64_t recorded;
	json_t *root;
	int ret;

	ret = read_record(dir_fd, dir, &root, diag);
	if (ret)
		return ret;
	ret = look_up(root, dir, model_id, &recorded, diag);
	if (!ret && (!root || !json_object_get(root, model_id) || recorded < version)) {
		if (!root)
			root = json_object();
		ret = root ? set_version(root, dir, model_id, version, diag) : failed(dir, SITS_VERSIONS_FILE, -ENOMEM, diag);
		if (!ret)
			ret = write_record(dir_fd, dir, root, diag);
	}
	json_decref(root);
	return ret;
}

int sits_versions_raise(const char *dir, const char *model_id, uint64_t version, struct sits_diag *diag)
{
	int dir_fd, lock_fd, ret;

	if (mkdir(dir, 0700) && errno != EEXIST)
		return sits_diag_fail(diag, -errno, "state_dir %.300s can't be made: %s", dir, strerror(errno));
	dir_fd = open_state_dir(dir, diag);
	if (dir_fd < 0)
		return sits_diag_fail(diag, dir_fd, "state_dir %.300s: %s", dir, strerror(-dir_fd));
	lock_fd = openat(dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock_fd < 0 || flock(lock_fd, LOCK_EX))
		ret = failed(dir, LOCK_FILE, -errno, diag);
	else
		ret = raise_locked(dir_fd, dir, model_id, version, diag);
	if (lock_fd >= 0)
		close(lock_fd);
	close(dir_fd);
	return ret;
}
