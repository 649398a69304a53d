// SPDX-License-Identifier: MIT
/*
 * rekey_many.c - put many sealed files under another key. The work on each is sits_sealed_change_key()'s; one that fails
 * does not stop the others.
 */
#include "tools/sits/rekey_many.h"

#include <errno.h>
#include <fts.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/manifest.h"
#include "sits/context.h"
#include "sits/rekey.h"
#include "tools/sits/cmd.h"
#include "tools/sits/sealed_dir.h"

#define SUFFIX		".sits"
#define ROUNDS_MAX	100
#define SILENT_NS	1000000000u	/* of waiting, before a word is said about it */

/* Freed by list_free(). */
struct list {
	char **paths;
	unsigned int nr, room;
};

/* What the callbacks know. */
struct working {
	const struct rekey_many *m;
	const char *path;
	uint64_t since_ns;		/* when the waiting began; 0 before */
	uint64_t limit_ns;
	bool told, gave_up;
};

static int add(struct list *l, const char *path)
{
	char **more;

	if (l->nr == l->room) {
		l->room = l->room ? 2 * l->room : 16;
		more = reallocarray(l->paths, l->room, sizeof(*l->paths));
		if (!more)
			return -ENOMEM;
		l->paths = more;
	}
	l->paths[l->nr] = strdup(path);
	if (!l->paths[l->nr])
		return -ENOMEM;
	l->nr++;
	return 0;
}

static void list_free(struct list *l)
{
	while (l->nr)
		free(l->paths[--l->nr]);
	free(l->paths);
	*l = (struct list){ 0 };
}

/* @obj: taken */
static void count_failed(struct rekey_many *m, json_t *obj)
{
	m->failed++;
	if (m->files)
		json_array_append_new(m->files, obj);
	else
		json_decref(obj);
}

static void failed(struct rekey_many *m, const char *path, int err)
{
	count_failed(m, tool_failure(m->cmd, path, err));
}

/* In words of our own. */
static void failed_because(struct rekey_many *m, const char *path, const char *error, const char *words)
{
	tool_error(m->cmd, "%s: %s", path, words);
	count_failed(m, json_pack("{s:o, s:b, s:s, s:s}", "file", tool_json_text(path), "ok", 0, "error", error, "message", words));
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool is_sealed_name(const FTSENT *e)
{
	size_t suffix = strlen(SUFFIX);

	return e->fts_namelen > suffix && !strcmp(e->fts_name + e->fts_namelen - suffix, SUFFIX);
}

/* An entry could not be looked at. One that has gone meanwhile, as journals do, is none. */
static void failed_entry(struct rekey_many *m, const FTSENT *e)
{
	if (e->fts_errno != ENOENT)
		failed(m, e->fts_path, -e->fts_errno);
}

/* Every *.sits below @dir; symbolic links, and directories that are being sealed, are not followed there. @again: failures were told. Return: 0; -ENOMEM. */
static int add_below(struct rekey_many *m, struct list *l, char *dir, bool again)
{
	char *const roots[] = { dir, NULL };
	unsigned int before = l->nr, failed_before = m->failed;
	int ret = 0;
	FTSENT *e;
	FTS *fts;

	fts = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
	if (!fts)
		return -errno;
	while (!ret && (e = fts_read(fts))) {
		switch (e->fts_info) {
		case FTS_D:
			/* A model that is being sealed is none yet; what it will be, its writer knows. */
			if (e->fts_level > FTS_ROOTLEVEL && sealed_dir_is_tmp(e->fts_name))
				fts_set(fts, e, FTS_SKIP);
			break;
		case FTS_F:
			if (is_sealed_name(e))
				ret = add(l, e->fts_path);
			break;
		case FTS_DNR:
		case FTS_ERR:
		case FTS_NS:
			if (!again)
				failed_entry(m, e);
			break;
		}
	}
	fts_close(fts);
	/* Most likely the wrong directory: nobody shall think that the files are done. */
	if (!ret && !again && l->nr == before && m->failed == failed_before)
		failed_because(m, dir, "ENOENT", "no file *" SUFFIX " is in this directory");
	return ret;
}

static int gather(struct rekey_many *m, struct list *l, char **paths, int nr_paths)
{
	struct stat st;
	int i, ret = 0;

	for (i = 0; i < nr_paths && !ret; i++)
		ret = !stat(paths[i], &st) && S_ISDIR(st.st_mode) ? add_below(m, l, paths[i], false) : add(l, paths[i]);
	return ret;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What is in the directories now and was not @seen. @seen is sorted by this. */
static int gather_new(struct rekey_many *m, struct list *l, char **paths, int nr_paths, const struct list *seen)
{
	struct list now = { 0 };
	struct stat st;
	unsigned int n;
	int i, ret = 0;

	for (i = 0; i < nr_paths && !ret; i++)
		if (!stat(paths[i], &st) && S_ISDIR(st.st_mode))
			ret = add_below(m, &now, paths[i], true);
	if (seen->nr)
		qsort(seen->paths, seen->nr, sizeof(*seen->paths), by_text);
	for (n = 0; n < now.nr && !ret; n++)
		if (!seen->nr || !bsearch(&now.paths[n], seen->paths, seen->nr, sizeof(*seen->paths), by_text))
			ret = add(l, now.paths[n]);
	list_free(&now);
	return ret;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
	const struct working *w = arg;

	return w->m->quiet ? tool_progress_quiet(NULL, done, total) : tool_progress((void *)"resealing", done, total);
}

static int on_waiting(void *arg)
{
	struct working *w = arg;
	uint64_t now = now_ns();

	if (tool_signal())
		return 1;
	if (!w->since_ns)
		w->since_ns = now;
	w->gave_up = now - w->since_ns >= w->limit_ns;
	if (!w->gave_up && !w->told && !w->m->quiet && now - w->since_ns >= SILENT_NS) {
		tool_error(w->m->cmd, "%s: waiting for another process that is writing it", w->path);
		w->told = true;
	}
	return w->gave_up;
}

/* The manifest of a sealed directory has the digests of its files: one that is encrypted anew would be no file of it any more. */
static bool is_in_sealed_dir(const char *path)
{
	char whole[PATH_MAX], manifest[PATH_MAX + 32];
	const char *slash;

	/* A link may lead into one. */
	if (realpath(path, whole))
		path = whole;
	slash = strrchr(path, '/');
	snprintf(manifest, sizeof(manifest), "%.*s" SITS_MANIFEST_FILE, slash ? (int)(slash - path + 1) : 0, path);
	return !access(manifest, F_OK);
}

#define DIR_WORDS "a file of a sealed directory is not encrypted anew by itself: seal the directory again; --reseal is not needed to put it under another key"

/* @wait_s: for another process. Return: as sits_sealed_change_key(); -EBUSY where that was not long enough; -EXDEV for a file of a
 * sealed directory. */
static int change(struct rekey_many *m, const char *path, uint32_t wait_s, uint32_t *outcome)
{
	struct working w = { .m = m, .path = path, .limit_ns = wait_s * (uint64_t)1000000000 };
	struct sits_rekey_opts o = { .size = sizeof(o), .flags = m->flags | SITS_REKEY_WAIT, .threads = m->threads,
				     .progress = on_progress, .waiting = on_waiting, .progress_arg = &w };
	int ret;

	if (m->flags & SITS_REKEY_RESEAL && is_in_sealed_dir(path))
		return -EXDEV;
	ret = sits_sealed_change_key(m->ctx, path, m->old_key, m->new_key, &o, outcome);
	if (m->flags & SITS_REKEY_RESEAL)
		tool_progress_end();
	return ret == -ECANCELED && w.gave_up ? -EBUSY : ret;
}

#define BUSY_WORDS "another process is writing it, or has it locked: try again when that has ended"

int rekey_many_one(struct rekey_many *m, const char *path, uint32_t *outcome)
{
	char words[4400];
	int ret;

	tool_catch_signals();
	ret = change(m, path, m->wait_s, outcome);
	if (ret != -EBUSY && ret != -EXDEV)
		return ret ? tool_fail(m->cmd, path, ret, m->json) : 0;
	snprintf(words, sizeof(words), "%s: %s", path, ret == -EXDEV ? DIR_WORDS : BUSY_WORDS);
	return tool_fail_because(m->cmd, path, ret, words, m->json);
}

/* What is said of a file that was changed, or would be. */
static const char *done_word(const struct rekey_many *m)
{
	bool reseal = m->flags & SITS_REKEY_RESEAL;

	if (m->flags & SITS_REKEY_DRY_RUN)
		return reseal ? "to reseal" : "to rewrap";
	return reseal ? "resealed" : "rewrapped";
}

static void done(struct rekey_many *m, const char *path, uint32_t outcome)
{
	const char *word = outcome == SITS_REKEY_CHANGED ? done_word(m) : outcome == SITS_REKEY_ALREADY ? "already" : "other key";
	char safe[4096];

	*(outcome == SITS_REKEY_CHANGED ? &m->changed : outcome == SITS_REKEY_ALREADY ? &m->already : &m->other) += 1;
	if (m->files)
		json_array_append_new(m->files, json_pack("{s:o, s:b, s:s}", "file", tool_json_text(path), "ok", 1, "outcome", word));
	else if (!m->quiet) {
		tool_progress_end();
		printf("%-10s %s\n", word, tool_print_safe(path, safe, sizeof(safe)));
	}
}

/*
 * Each of @l; what another process has goes to @busy, or, without, is waited for. @good: those that did not fail are added.
 * Return: how many were not tried.
 */
static unsigned int go_through(struct rekey_many *m, const struct list *l, struct list *busy, struct list *good)
{
	unsigned int i;
	int ret;

	for (i = 0; i < l->nr && !tool_signal(); i++) {
		uint32_t outcome = 0;

		if (!m->quiet && !(m->flags & SITS_REKEY_RESEAL))
			tool_progress_files(m->flags & SITS_REKEY_DRY_RUN ? "looking at" : "rewrapping", i, l->nr);
		ret = change(m, l->paths[i], busy ? 0 : m->wait_s, &outcome);
		if (ret == -EBUSY && busy)
			ret = add(busy, l->paths[i]);
		else if (!ret) {
			done(m, l->paths[i], outcome);
			ret = add(good, l->paths[i]);
		}
		if (ret == -EBUSY)
			failed_because(m, l->paths[i], "EBUSY", BUSY_WORDS);
		else if (ret == -EXDEV)
			failed_because(m, l->paths[i], "EXDEV", DIR_WORDS);
		else if (ret)
			failed(m, l->paths[i], ret);
	}
	return l->nr - i;
}

/* All of @l, those last that others have. */
static void go_through_twice(struct rekey_many *m, const struct list *l, struct list *good)
{
	struct list busy = { 0 };

	m->left = go_through(m, l, &busy, good);
	m->left += go_through(m, &busy, NULL, good);
	list_free(&busy);
}

/* One that was done: has a file under the old key taken its place? Return: 1 if so; 0; -errno, logged. */
static int is_back(struct rekey_many *m, const char *path)
{
	struct sits_rekey_opts o = { .size = sizeof(o), .flags = m->flags | SITS_REKEY_DRY_RUN };
	uint32_t outcome = 0;
	int ret;

	if (access(path, F_OK))
		return 0;	/* gone: not a word */
	ret = sits_sealed_change_key(m->ctx, path, m->old_key, m->new_key, &o, &outcome);
	return ret ? ret : outcome == SITS_REKEY_CHANGED;
}

static bool same_keys(const struct rekey_many *m)
{
	uint8_t a[SITS_KEY_ID_LEN], b[SITS_KEY_ID_LEN];

	sits_key_id(m->old_key, a);
	sits_key_id(m->new_key, b);
	return !memcmp(a, b, sizeof(a));
}

/*
 * What is under the old key again, of those that were done: a copy was put in their place, or written over them, meanwhile.
 * They go from @good to @l. Return: 0; -ENOMEM.
 */
static int gather_back(struct rekey_many *m, struct list *l, struct list *good)
{
	unsigned int i, kept = 0;
	int ret = 0, back;

	if (m->flags & SITS_REKEY_DRY_RUN || same_keys(m))
		return 0;
	for (i = 0; i < good->nr; i++) {
		back = ret || tool_signal() ? 0 : is_back(m, good->paths[i]);
		if (back > 0)
			ret = add(l, good->paths[i]);
		else if (back)
			failed(m, good->paths[i], back);
		if (back)
			free(good->paths[i]);
		else
			good->paths[kept++] = good->paths[i];
	}
	good->nr = kept;
	return ret;
}

int rekey_many_run(struct rekey_many *m, char **paths, int nr_paths)
{
	struct list seen = { 0 }, good = { 0 }, l = { 0 };
	unsigned int i, round;
	int ret;

	m->files = m->json ? json_array() : NULL;
	tool_catch_signals();
	/* Who reads the output may go away; the work is to be done all the same, and main() notices. */
	signal(SIGPIPE, SIG_IGN);
	ret = gather(m, &l, paths, nr_paths);
	for (round = 0; l.nr && !ret && !tool_signal() && round < ROUNDS_MAX; round++) {
		go_through_twice(m, &l, &good);
		for (i = 0; i < l.nr && !ret; i++)
			ret = add(&seen, l.paths[i]);
		list_free(&l);
		/* What was sealed, or put there in place of another, meanwhile. */
		if (!ret)
			ret = gather_new(m, &l, paths, nr_paths, &seen);
		if (!ret)
			ret = gather_back(m, &l, &good);
	}
	tool_progress_end();
	for (i = 0; i < l.nr && !ret && !tool_signal(); i++)
		failed_because(m, l.paths[i], "EAGAIN", "files come faster than they can be put under the new key: stop what writes them, and try again");
	if (ret)
		failed(m, "the list of files", ret);
	if (tool_signal())
		tool_error(m->cmd, "stopped by signal %d, %u files were not looked at; run the same command again to go on",
			   tool_signal(), m->left);
	list_free(&seen);
	list_free(&good);
	list_free(&l);
	return tool_signal() ? 128 + tool_signal() : m->failed ? 1 : 0;
}

static void report_json(struct rekey_many *m, bool ok, json_t *more)
{
	char old_id[2 * SITS_KEY_ID_LEN + 1], new_id[2 * SITS_KEY_ID_LEN + 1];
	json_t *obj;

	obj = json_pack("{s:b, s:b, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:o}", "ok", ok, "dry_run",
			!!(m->flags & SITS_REKEY_DRY_RUN), "mode", m->flags & SITS_REKEY_RESEAL ? "reseal" : "rewrap",
			"old_key_id", tool_key_id(m->old_key, old_id), "new_key_id", tool_key_id(m->new_key, new_id),
			"changed", m->changed, "already", m->already, "other_key", m->other, "failed", m->failed, "left", m->left,
			"files", m->files);
	m->files = NULL;
	if (more)
		json_object_update(obj, more);
	json_dumpf(obj, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(obj);
}

void rekey_many_report(struct rekey_many *m, bool ok, json_t *more)
{
	if (m->files) {
		report_json(m, ok, more);
	} else if (!m->quiet) {
		printf("%u %s, %u under the new key already", m->changed, done_word(m), m->already);
		if (m->other)
			printf(", %u under other keys", m->other);
		printf(", %u failed\n", m->failed);
	}
	json_decref(more);
}
