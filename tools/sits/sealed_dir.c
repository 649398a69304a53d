// SPDX-License-Identifier: MIT
/*
 * sealed_dir.c - see sealed_dir.h. Each file is sits_seal()'s work; here is what makes them one model.
 */
#include "tools/sits/sealed_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "daemon/manifest.h"
#include "sits/context.h"
#include "sits/region.h"
#include "sits/sealed.h"
#include "tools/sits/cmd.h"
#include "tools/sits/tool_dir.h"

#define TMP_MARK	".sits-tmp."
#define OLD_MARK	".sits-old."
#define TMP_X		"XXXXXX"
#define TMP_RANDOM	(sizeof(TMP_X) - 1)
/* What of OUTPUT's name goes in front of these, so that they still fit. */
#define BASE_MAX	((int)(NAME_MAX - strlen(TMP_MARK TMP_X)))

/* Heap, for its paths: open_sealing() makes it, close_sealing() frees it. */
struct sealing {
	const struct sealed_dir_args *a;
	struct sits_ctx *ctx;
	const struct sits_key *key;
	const char *in, *out;
	struct sits_seal_opts opts;
	struct sits_manifest m;		/* names first, digests when they are known */
	struct sits_sealed_info *info;	/* [m.nr + 1], the last of the manifest */
	struct stat *before;		/* [m.nr], of the files before the first was sealed */
	char dir[4096], base[256];	/* what @out is in, and its name there */
	char id[256];			/* the model's, where none was given */
	char file[4096], made[4096];	/* a file of @in, and what becomes of it */
	char tmp[4096];			/* "": not made yet */
	int tmp_fd;
	int status;			/* of what failed */
};

/* Return: NULL where there is no memory; *status is told then. */
static struct sealing *open_sealing(const struct sealed_dir_args *a, struct sits_ctx *ctx, const struct sits_key *key, const char *in,
				    int *status)
{
	struct sealing *s = calloc(1, sizeof(*s));

	if (!s) {
		*status = tool_fail(a->cmd, in, -ENOMEM, a->json);
		return NULL;
	}
	s->a = a;
	s->ctx = ctx;
	s->key = key;
	s->in = in;
	s->tmp_fd = -1;
	return s;
}

/* Return: the exit status, @ret being the result. */
static int close_sealing(struct sealing *s, int ret)
{
	int status = ret ? s->status : 0;

	if (s->tmp_fd >= 0)
		close(s->tmp_fd);
	sits_manifest_fini(&s->m);
	free(s->info);
	free(s->before);
	free(s);
	return status;
}

static int failed(struct sealing *s, const char *what, int err)
{
	s->status = tool_fail(s->a->cmd, what, err, s->a->json);
	return err;
}

/* Fail with words of our own; they follow the name of @what. */
static int because(struct sealing *s, const char *what, int err, const char *words)
{
	char all[4096 + 1024];

	snprintf(all, sizeof(all), "%s: %s", what, words);
	s->status = tool_fail_because(s->a->cmd, what, err, tool_print_safe(all, all, sizeof(all)), s->a->json);
	return err;
}

/* ------------------------------------------------------------------ which files */

static void tell_left_out(void *arg, const char *name)
{
	const struct sealing *s = arg;
	char safe[512];

	if (!s->a->quiet)
		fprintf(stderr, "sits %s: left out: %s\n", s->a->cmd, tool_print_safe(name, safe, sizeof(safe)));
}

static int list_files(struct sealing *s)
{
	struct tool_dir_why why;
	int ret = tool_dir_list(s->in, &s->m, tell_left_out, s, &why);

	return ret ? because(s, why.path, ret, why.words) : 0;
}

/* Of @i, which s->file names then. */
static int stat_file(struct sealing *s, size_t i, struct stat *st)
{
	if (tool_dir_join(s->file, s->in, s->m.file[i].name, ""))
		return failed(s, s->in, -ENAMETOOLONG);
	return stat(s->file, st) ? failed(s, s->file, -errno) : 0;
}

static int remember_files(struct sealing *s)
{
	size_t i;
	int ret = 0;

	s->before = calloc(s->m.nr, sizeof(*s->before));
	if (!s->before)
		return failed(s, s->in, -ENOMEM);
	for (i = 0; i < s->m.nr && !ret; i++)
		ret = stat_file(s, i, &s->before[i]);
	return ret;
}

/* sits_seal() has seen that each stayed as it was while it was read; one that was written to before or after is of another model. */
static int check_files(struct sealing *s)
{
	struct stat now;
	size_t i;
	int ret;

	for (i = 0; i < s->m.nr; i++) {
		const struct stat *was = &s->before[i];

		ret = stat_file(s, i, &now);
		if (ret)
			return ret;
		if (now.st_dev == was->st_dev && now.st_ino == was->st_ino && now.st_size == was->st_size &&
		    !memcmp(&now.st_mtim, &was->st_mtim, sizeof(now.st_mtim)))
			continue;
		return because(s, s->file, -ESTALE, "changed while the directory was being sealed: try again once nobody writes it");
	}
	return 0;
}

/* ------------------------------------------------------------------ the new directory */

static bool ends_in(const char *s, const char *suffix)
{
	size_t a = strlen(s), b = strlen(suffix);

	return a >= b && !strcmp(s + a - b, suffix);
}

/*
 * Only what sealing makes is removed: *.sits, and what a writer that was killed left of one. @fd: it, so that it is this one
 * whatever others, who may write the directory that it is in, put at @path.
 */
static void remove_dir(int fd, const char *path)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	DIR *d = own < 0 ? NULL : fdopendir(own);
	struct dirent *e;

	if (!d && own >= 0)
		close(own);
	while (d && (e = readdir(d)))
		if (ends_in(e->d_name, SITS_SEALED_SUFFIX) || strstr(e->d_name, SITS_SEALED_SUFFIX TMP_MARK))
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(path);
}

/* Is it a directory that sealing made, and nothing more? */
static bool is_sealed_dir(const char *path)
{
	bool manifest = false, other = false;
	struct dirent *e;
	DIR *d = opendir(path);

	while (d && (e = readdir(d))) {
		manifest |= !strcmp(e->d_name, SITS_MANIFEST_FILE);
		other |= strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !ends_in(e->d_name, SITS_SEALED_SUFFIX);
	}
	if (d)
		closedir(d);
	return manifest && !other;
}

/* The directory that @path is in, and its own name there; slashes at the end do not count. */
static void cut_path(const char *path, char dir[4096], char base[256])
{
	size_t len = strlen(path);
	const char *slash;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (slash = path + len; slash > path && slash[-1] != '/'; slash--)
		;
	snprintf(base, 256, "%.*s", (int)(path + len - slash), slash);
	snprintf(dir, 4096, "%.*s", slash == path ? 1 : (int)(slash - path), slash == path ? "." : path);
}

bool sealed_dir_is_tmp(const char *name)
{
	size_t len = strlen(name), tail = strlen(TMP_MARK TMP_X);

	return len > tail && !strncmp(name + len - tail, TMP_MARK, strlen(TMP_MARK)) && !strchr(name + len - TMP_RANDOM, '.');
}

/* What killed writers left: nobody holds the lock on it any more. */
static void remove_stale(const char *dir, const char *base)
{
	char mark[300], path[4096];
	struct dirent *e;
	struct stat st;
	DIR *d = opendir(dir);
	int fd;

	snprintf(mark, sizeof(mark), "%s" TMP_MARK, base);
	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, mark, strlen(mark)) || strlen(e->d_name) != strlen(mark) + TMP_RANDOM ||
		    tool_dir_join(path, dir, e->d_name, ""))
			continue;
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && !fstat(fd, &st) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB))
			remove_dir(fd, path);
		if (fd >= 0)
			close(fd);
	}
	if (d)
		closedir(d);
}

/* A directory that sealing can work in, whatever the umask; it gets its mode when it gets its name. @path: ends in XXXXXX. */
static bool make_private_dir(char *path)
{
	mode_t mask = umask(0077);
	bool ok = mkdtemp(path);

	umask(mask);
	return ok;
}

static int make_tmp(struct sealing *s)
{
	struct stat st;

	if (!lstat(s->out, &st) && !s->opts.force)
		return because(s, s->out, -EEXIST, "OUTPUT exists; --force replaces a sealed directory");
	if (!lstat(s->out, &st) && (!S_ISDIR(st.st_mode) || !is_sealed_dir(s->out)))
		return because(s, s->out, -EEXIST, "OUTPUT is there and is no sealed directory, or has other files in it: it is not replaced");
	cut_path(s->out, s->dir, s->base);
	if (!*s->base || !strcmp(s->base, ".") || !strcmp(s->base, ".."))
		return because(s, s->out, -EINVAL, "OUTPUT has no name of its own");
	s->base[BASE_MAX] = '\0';
	remove_stale(s->dir, s->base);
	for (;;) {
		errno = ENAMETOOLONG;
		if (snprintf(s->tmp, sizeof(s->tmp), "%s/%s" TMP_MARK TMP_X, s->dir, s->base) >= (int)sizeof(s->tmp) || !make_private_dir(s->tmp)) {
			s->tmp[0] = '\0';
			return failed(s, s->out, -errno);
		}
		s->tmp_fd = open(s->tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s->tmp_fd < 0 && errno == ENOENT)
			continue;
		if (s->tmp_fd < 0 || flock(s->tmp_fd, LOCK_EX))
			return failed(s, s->tmp, -errno);
		if (!stat(s->tmp, &st))
			return 0;
		/* Before it was locked, another sealer took it for what a killed one had left. */
		close(s->tmp_fd);
		s->tmp_fd = -1;
	}
}

/* ------------------------------------------------------------------ room */

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

/* What becomes of so many bytes; 0 where nothing does, which sits_seal() says why. */
static uint64_t sealed_bytes(const struct sealing *s, uint64_t plain)
{
	static const uint8_t salt[SITS_SEALED_SALT_LEN];
	uint8_t page[SITS_SEALED_HDR_BYTES];
	struct sits_sealed_hdr hdr;

	return sits_sealed_compose(page, &hdr, salt, s->opts.chunk_bytes ? s->opts.chunk_bytes : SITS_SEALED_CHUNK_DEFAULT, plain, "size", 0) ?
	       0 : hdr.file_bytes;
}

/*
 * Each file takes its space before the work on it; of all together it is known now. What others write meanwhile, and a quota, show
 * only then. The manifest is small enough not to count.
 */
static int check_space(struct sealing *s)
{
	uint64_t bytes, all = 0, most = 0, free_bytes, unit;
	struct statvfs fs;
	struct rlimit lim;
	char words[224], need[32], have[32];
	size_t i;

	/* A file system that does not tell has none of these. */
	if (statvfs(s->tmp, &fs) || !fs.f_blocks || !fs.f_frsize)
		return 0;
	unit = fs.f_frsize;
	for (i = 0; i < s->m.nr; i++) {
		bytes = sealed_bytes(s, (uint64_t)s->before[i].st_size);
		most = bytes > most ? bytes : most;
		all += round_up(bytes, unit);
	}
	if (!getrlimit(RLIMIT_FSIZE, &lim) && lim.rlim_cur != RLIM_INFINITY && most > lim.rlim_cur) {
		snprintf(words, sizeof(words), "a file of %s comes into it, but the limit on file sizes (ulimit -f) is %s",
			 tool_bytes(most, need), tool_bytes(lim.rlim_cur, have));
		return because(s, s->out, -EFBIG, words);
	}
	/* Root may take what is kept for it. */
	free_bytes = (geteuid() ? fs.f_bavail : fs.f_bfree) * unit;
	if (all <= free_bytes)
		return 0;
	snprintf(words, sizeof(words), "it takes %s (%" PRIu64 " bytes), but the filesystem has not enough free space: %s (%" PRIu64 " bytes)",
		 tool_bytes(all, need), all, tool_bytes(free_bytes, have), free_bytes);
	return because(s, s->out, -ENOSPC, words);
}

static int seal_files(struct sealing *s)
{
	char label[300];
	size_t i;
	int ret;

	s->info = calloc(s->m.nr + 1, sizeof(*s->info));
	if (!s->info)
		return failed(s, s->out, -ENOMEM);
	for (i = 0; i < s->m.nr; i++) {
		const char *name = s->m.file[i].name;

		snprintf(label, sizeof(label), "%s", name);
		s->opts.progress_arg = label;
		s->opts.info = &s->info[i];
		if (tool_dir_join(s->file, s->in, name, "") || tool_dir_join(s->made, s->tmp, name, SITS_SEALED_SUFFIX))
			return failed(s, s->in, -ENAMETOOLONG);
		ret = sits_seal(s->ctx, s->file, s->made, s->key, &s->opts);
		if (ret)
			return failed(s, s->file, ret);
		tool_progress_end();
		s->m.file[i].bytes = s->info[i].plain_bytes;
		memcpy(s->m.file[i].digest, s->info[i].digest, sizeof(s->m.file[i].digest));
	}
	return 0;
}

static int seal_manifest(struct sealing *s)
{
	char in[64], *text = NULL;
	size_t len = 0;
	int fd, ret;

	ret = sits_manifest_write(&s->m, &text, &len);
	if (ret || tool_dir_join(s->made, s->tmp, SITS_MANIFEST_FILE, ""))
		return failed(s, s->in, ret ? ret : -ENAMETOOLONG);
	fd = memfd_create("manifest", MFD_CLOEXEC);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len) {
		ret = failed(s, SITS_MANIFEST_FILE, -errno);
	} else {
		snprintf(in, sizeof(in), "/proc/self/fd/%d", fd);
		s->opts.info = &s->info[s->m.nr];
		ret = sits_seal(s->ctx, in, s->made, s->key, &s->opts);
		if (ret)
			failed(s, SITS_MANIFEST_FILE, ret);
	}
	if (fd >= 0)
		close(fd);
	free(text);
	return ret;
}

/* What was made and is not wanted now. */
static void remove_tmp(struct sealing *s)
{
	if (s->tmp_fd < 0) {
		rmdir(s->tmp);
		return;
	}
	fchmod(s->tmp_fd, 0700);	/* it may have got that of the umask */
	remove_dir(s->tmp_fd, s->tmp);
}

/* What was at OUTPUT before. */
static void remove_replaced(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return;
	remove_dir(fd, path);
	close(fd);
}

/* NFS, FUSE and others have no such calls. */
static bool is_unknown(int err)
{
	return err == EINVAL || err == ENOSYS;
}

/*
 * Put it in the place of the one at OUTPUT in two steps. Between them nothing is there, and the old one has a name that nobody
 * takes for a leftover. Return: 0, with the old one at s->tmp; -errno.
 */
static int replace_in_two(struct sealing *s)
{
	char old[4096];
	int err;

	errno = ENAMETOOLONG;
	if (snprintf(old, sizeof(old), "%s/%s" OLD_MARK TMP_X, s->dir, s->base) >= (int)sizeof(old) || !make_private_dir(old))
		return -errno;
	if (rename(s->out, old)) {
		err = -errno;
		rmdir(old);
		return err;
	}
	if (rename(s->tmp, s->out)) {
		err = -errno;
		rename(old, s->out);
		return err;
	}
	strcpy(s->tmp, old);
	return 0;
}

/* Give it its name. Return: 0; 1 where another had that, and is at s->tmp now; -errno. */
static int take_name(struct sealing *s)
{
	int ret;

	if (!renameat2(AT_FDCWD, s->tmp, AT_FDCWD, s->out, RENAME_NOREPLACE))
		return 0;
	/* Of what may be there, this replaces an empty directory at most. */
	if (is_unknown(errno) && !rename(s->tmp, s->out))
		return 0;
	if (errno != EEXIST && errno != ENOTEMPTY)
		return -errno;
	if (!s->opts.force)
		return -EEXIST;
	if (!renameat2(AT_FDCWD, s->tmp, AT_FDCWD, s->out, RENAME_EXCHANGE))
		return 1;
	if (!is_unknown(errno))
		return -errno;
	ret = replace_in_two(s);
	return ret ? ret : 1;
}

/* Files and their names are on the disk before the directory gets its own name. */
static int put_in_place(struct sealing *s)
{
	mode_t mask = umask(0);
	int fd, ret;

	umask(mask);
	if (fchmod(s->tmp_fd, 0777 & ~mask) || fsync(s->tmp_fd))
		return failed(s, s->tmp, -errno);
	ret = take_name(s);
	if (ret < 0)
		return failed(s, s->out, ret);
	fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	if (ret)
		remove_replaced(s->tmp);
	s->tmp[0] = '\0';
	return 0;
}

/* ------------------------------------------------------------------ what is said */

/* @info: [nr]; the last one is the manifest's. */
static void print_dir(const struct sealed_dir_args *a, const char *path, const struct sits_manifest *m,
		      const struct sits_sealed_info *info, const char *contents)
{
	const struct sits_sealed_info *head = &info[m->nr];
	char key_id[2 * SITS_KEY_ID_LEN + 1], digest[65], id[SITS_MODEL_ID_MAX], size[32], safe[4096];
	uint64_t total = 0;
	json_t *files = json_array(), *obj;
	size_t i;

	for (i = 0; i < SITS_KEY_ID_LEN; i++)
		snprintf(key_id + 2 * i, 3, "%02x", head->key_id[i]);
	for (i = 0; i < 32; i++)
		snprintf(digest + 2 * i, 3, "%02x", head->digest[i]);
	for (i = 0; i < m->nr; i++) {
		total += info[i].plain_bytes;
		json_array_append_new(files, json_pack("{s:o, s:o}", "name", tool_json_text(m->file[i].name), "plain_bytes",
						       tool_json_number(info[i].plain_bytes)));
	}
	if (a->json) {
		obj = json_pack("{s:o, s:b, s:o, s:o, s:o, s:s, s:s, s:b, s:o}", "directory", tool_json_text(path), "ok", 1, "files", files,
				"model_id", tool_json_text(head->model_id), "model_version", tool_json_number(head->model_version), "key_id", key_id,
				"digest", digest, "authenticated", (int)head->authenticated, "plain_bytes", tool_json_number(total));
		json_dumpf(obj, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(obj);
		return;
	}
	json_decref(files);
	if (a->quiet)
		return;
	printf("directory       %s\n", tool_print_safe(path, safe, sizeof(safe)));
	printf("model id        %s\n", tool_print_safe(head->model_id, id, sizeof(id)));
	printf("model version   %" PRIu64 "\n", head->model_version);
	printf("plaintext       %" PRIu64 " bytes (%s) in %zu files\n", total, tool_bytes(total, size), m->nr);
	for (i = 0; i < m->nr; i++)
		printf("  %12" PRIu64 "  %s\n", info[i].plain_bytes, tool_print_safe(m->file[i].name, safe, sizeof(safe)));
	printf("key id          %s\n", key_id);
	printf("digest          %s (SM3 of the manifest's header and tags)\n", digest);
	printf("headers         %s\n", head->authenticated ? "authentic under the given key" : "not authenticated: no key was given");
	if (contents)
		printf("contents        %s\n", contents);
}

/* A name as a model's id, as sits_seal() makes one of a file's: cut between characters, and without control characters. */
static void make_id(char *name)
{
	size_t n = SITS_MODEL_ID_MAX - 1;

	if (strlen(name) > n) {
		for (; n > SITS_MODEL_ID_MAX - 5 && ((unsigned char)name[n] & 0xc0) == 0x80; n--)
			;
		name[n] = '\0';
	}
	for (; *name; name++)
		if ((unsigned char)*name < 0x20 || *name == 0x7f)
			*name = '_';
}

/* The name of @in, or, where it has none, as ".", of where it leads. */
static void name_model(struct sealing *s)
{
	char *whole = realpath(s->in, NULL);

	cut_path(whole ? whole : s->in, s->dir, s->id);
	free(whole);
	make_id(s->id);
	s->opts.model_id = s->id;
}

int sealed_dir_seal(const struct sealed_dir_args *a, struct sits_ctx *ctx, const struct sits_key *key, const char *in,
		    const char *out, const struct sits_seal_opts *opts)
{
	struct sealing *s;
	int ret;

	tool_catch_signals();
	s = open_sealing(a, ctx, key, in, &ret);
	if (!s)
		return ret;
	s->out = out;
	s->opts = *opts;
	if (!s->opts.model_id)
		name_model(s);
	ret = list_files(s);
	if (!ret)
		ret = remember_files(s);
	if (!ret)
		ret = make_tmp(s);
	if (!ret)
		ret = check_space(s);
	s->opts.force = 0;	/* nothing is there */
	if (!ret)
		ret = seal_files(s);
	if (!ret)
		ret = check_files(s);
	if (!ret)
		ret = seal_manifest(s);
	s->opts.force = opts->force;
	if (!ret)
		ret = put_in_place(s);
	if (!ret)
		print_dir(a, out, &s->m, s->info, NULL);
	if (s->tmp[0])
		remove_tmp(s);
	return close_sealing(s, ret);
}

/* ------------------------------------------------------------------ looking at one */

/* The files *.sits in it but the manifest, by their names without the suffix. */
static int list_sealed(struct sealing *s)
{
	struct dirent *e;
	char name[256];
	size_t len;
	DIR *d = opendir(s->in);
	int ret = d ? 0 : failed(s, s->in, -errno);

	while (!ret && (e = readdir(d))) {
		if (*e->d_name == '.' || !ends_in(e->d_name, SITS_SEALED_SUFFIX) || !strcmp(e->d_name, SITS_MANIFEST_FILE))
			continue;
		len = strlen(e->d_name) - strlen(SITS_SEALED_SUFFIX);
		snprintf(name, sizeof(name), "%.*s", (int)len, e->d_name);
		if (!sits_manifest_name_ok(name, len) || s->m.nr == SITS_MANIFEST_FILES_MAX)
			ret = because(s, s->in, -EINVAL, "a name that is too long or has control characters, or too many files");
		else
			ret = tool_dir_add(&s->m, name, 0) ? failed(s, s->in, -ENOMEM) : 0;
	}
	if (d)
		closedir(d);
	if (ret)
		return ret;
	tool_dir_sort(&s->m);
	s->info = calloc(s->m.nr + 1, sizeof(*s->info));
	return s->info ? 0 : failed(s, s->in, -ENOMEM);
}

int sealed_dir_inspect(const struct sealed_dir_args *a, struct sits_ctx *ctx, const struct sits_key *key, const char *path)
{
	struct sealing *s;
	const char *name;
	size_t i;
	int ret;

	s = open_sealing(a, ctx, key, path, &ret);
	if (!s)
		return ret;
	ret = list_sealed(s);
	for (i = 0; !ret && i <= s->m.nr; i++) {
		name = i < s->m.nr ? s->m.file[i].name : SITS_MANIFEST_FILE;
		if (tool_dir_join(s->made, path, name, i < s->m.nr ? SITS_SEALED_SUFFIX : ""))
			ret = failed(s, path, -ENAMETOOLONG);
		if (!ret)
			ret = sits_sealed_inspect(ctx, s->made, key, &s->info[i]);
		if (ret && !s->status)
			failed(s, s->made, ret);
	}
	if (!ret)
		print_dir(a, path, &s->m, s->info, NULL);
	return close_sealing(s, ret);
}

static int load_manifest(struct sealing *s, const struct sits_load_opts *opts, struct sits_sealed_info *info)
{
	struct sits_region_opts region_opts = { .size = sizeof(region_opts), .kind = SITS_REGION_PINNED, .node = -1, .name = "manifest",
						.flags = SITS_REGION_ALLOW_UNLOCKED };
	struct sits_load_opts o = *opts;
	struct sits_region *region = NULL;
	struct sits_diag diag = { "" };
	const char *file = s->made;
	int ret;

	if (tool_dir_join(s->made, s->in, SITS_MANIFEST_FILE, ""))
		return failed(s, s->in, -ENAMETOOLONG);
	if (access(file, F_OK) && errno == ENOENT)
		return because(s, s->in, -ENOENT, "is a directory, but not a sealed one: it has no " SITS_MANIFEST_FILE);
	ret = sits_sealed_inspect(s->ctx, file, s->key, info);
	if (ret)
		return failed(s, file, ret);
	if (!info->plain_bytes || info->plain_bytes > SITS_MANIFEST_BYTES_MAX || info->suite != SITS_SUITE_SM4_GCM)
		return because(s, file, -EBADMSG, "not the manifest of a sealed directory");
	region_opts.len_bytes = info->plain_bytes;
	ret = sits_region_create(s->ctx, &region_opts, &region);
	if (ret)
		return failed(s, file, ret);
	o.progress = NULL;
	ret = sits_weights_load(s->ctx, file, region, s->key, &o, info);
	if (ret)
		failed(s, file, ret);
	else
		ret = sits_manifest_parse(sits_region_data(region), (size_t)info->plain_bytes, &s->m, &diag);
	if (ret && !s->status)
		because(s, s->in, ret, diag.msg[0] ? diag.msg : strerror(-ret));
	sits_region_destroy(region);
	return ret;
}

static int verify_file(struct sealing *s, size_t i, const struct sits_load_opts *opts, const struct sits_sealed_info *head)
{
	const struct sits_manifest_file *f = &s->m.file[i];
	struct sits_load_opts o = *opts;
	char label[300];
	int ret;

	snprintf(label, sizeof(label), "%s", f->name);
	o.progress_arg = label;
	if (tool_dir_join(s->made, s->in, f->name, SITS_SEALED_SUFFIX))
		return failed(s, s->in, -ENAMETOOLONG);
	ret = sits_sealed_verify(s->ctx, s->made, s->key, &o, &s->info[i]);
	if (ret)
		return failed(s, s->made, ret);
	tool_progress_end();
	if (!memcmp(f->digest, s->info[i].digest, sizeof(f->digest)) && s->info[i].plain_bytes == f->bytes &&
	    !strcmp(s->info[i].model_id, head->model_id) && s->info[i].model_version == head->model_version)
		return 0;
	return because(s, s->made, -EBADMSG, "intact, but not the file that " SITS_MANIFEST_FILE " names: it is of another seal");
}

int sealed_dir_verify(const struct sealed_dir_args *a, struct sits_ctx *ctx, const struct sits_key *key, const char *path,
		      const struct sits_load_opts *opts)
{
	struct sits_sealed_info head = { 0 };
	struct sealing *s;
	size_t i;
	int ret;

	tool_catch_signals();
	s = open_sealing(a, ctx, key, path, &ret);
	if (!s)
		return ret;
	ret = load_manifest(s, opts, &head);
	if (!ret) {
		s->info = calloc(s->m.nr + 1, sizeof(*s->info));
		ret = s->info ? 0 : failed(s, path, -ENOMEM);
	}
	for (i = 0; i < s->m.nr && !ret; i++)
		ret = verify_file(s, i, opts, &head);
	if (!ret) {
		s->info[s->m.nr] = head;
		s->info[s->m.nr].authenticated = 1;
		print_dir(a, path, &s->m, s->info, "every chunk verified, and each file is the one that the manifest names");
	}
	return close_sealing(s, ret);
}
