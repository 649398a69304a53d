// SPDX-License-Identifier: MIT
/*
 * tool_dir.c - see tool_dir.h.
 */
#include "tools/sits/tool_dir.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/sits/cmd.h"

#define INDEX_NAME	"model.safetensors.index.json"
#define WHOLE_NAME	"model.safetensors"
#define INDEX_MAX	(128u << 20)
#define NEEDS		"is a directory; one with a model has config.json, tokenizer.json and *.safetensors in it; a GGUF is given as a file"

/* What is looked at, and what came of it. */
struct list {
	const char *dir;
	struct sits_manifest *m;
	struct tool_dir_why *why;
	json_t *index;			/* the weights' files that the index names, as keys; NULL: there is no index */
	bool has_whole;
	void (*left_out)(void *arg, const char *name);
	void *arg;
};

static int because(struct list *l, const char *path, int err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static int because(struct list *l, const char *path, int err, const char *fmt, ...)
{
	va_list ap;

	snprintf(l->why->path, sizeof(l->why->path), "%s", path);
	va_start(ap, fmt);
	vsnprintf(l->why->words, sizeof(l->why->words), fmt, ap);
	va_end(ap);
	return err;
}

static int failed(struct list *l, const char *path, int err)
{
	return because(l, path, err, "%s", strerror(-err));
}

bool tool_dir_is(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

int tool_dir_join(char out[TOOL_PATH_MAX], const char *dir, const char *name, const char *suffix)
{
	int n = snprintf(out, TOOL_PATH_MAX, "%s/%s%s", dir, name, suffix);

	return n < 0 || n >= TOOL_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* The weights' files that the index names: others may lie beside them, in another form. */
static int read_index(struct list *l)
{
	char path[TOOL_PATH_MAX];
	json_error_t err;
	json_t *root, *v;
	const char *key;
	struct stat st;
	int ret = 0;

	if (tool_dir_join(path, l->dir, INDEX_NAME, "") || stat(path, &st))
		return 0;
	if (!S_ISREG(st.st_mode) || st.st_size > INDEX_MAX)
		return because(l, path, -EFBIG, "is no file of sensible size");
	errno = 0;
	root = json_load_file(path, 0, &err);
	/* Of what the text is not to blame for, jansson has no words, or wrong ones. */
	if (errno == ENOMEM || (!root && json_error_code(&err) == json_error_cannot_open_file)) {
		ret = -errno;
		json_decref(root);
		return failed(l, path, ret);
	}
	if (!json_is_object(json_object_get(root, "weight_map"))) {
		json_decref(root);
		return because(l, path, -EBADMSG, "is no JSON object with a weight_map");
	}
	l->index = json_object();
	json_object_foreach(json_object_get(root, "weight_map"), key, v)
		if (json_is_string(v) && json_object_set_new(l->index, json_string_value(v), json_true()))
			ret = -ENOMEM;
	json_decref(root);
	if (!l->index)
		ret = -ENOMEM;
	return ret ? failed(l, path, ret) : 0;
}

static bool is_wanted(const struct list *l, const char *name)
{
	if (!sits_manifest_is_weights(name))
		return sits_manifest_is_model_file(name) && (l->index || strcmp(name, INDEX_NAME));
	if (l->index)
		return json_object_get(l->index, name);
	return !l->has_whole || !strcmp(name, WHOLE_NAME);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct sits_manifest_file *)a)->name, ((const struct sits_manifest_file *)b)->name);
}

void tool_dir_sort(struct sits_manifest *m)
{
	qsort(m->file, m->nr, sizeof(*m->file), by_name);
}

int tool_dir_add(struct sits_manifest *m, const char *name, uint64_t bytes)
{
	struct sits_manifest_file *grown = reallocarray(m->file, m->nr + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	m->file = grown;
	grown[m->nr] = (struct sits_manifest_file){ .bytes = bytes };
	snprintf(grown[m->nr].name, sizeof(grown->name), "%s", name);
	m->nr++;
	return 0;
}

static bool has(const struct sits_manifest *m, const char *name)
{
	size_t i;

	for (i = 0; i < m->nr; i++)
		if (!strcmp(m->file[i].name, name))
			return true;
	return false;
}

static int look_at(struct list *l, const char *name)
{
	char path[TOOL_PATH_MAX];
	struct stat st;

	if (*name == '.' || !is_wanted(l, name))
		return 0;
	if (tool_dir_join(path, l->dir, name, ""))
		return failed(l, l->dir, -ENAMETOOLONG);
	if (stat(path, &st))
		return failed(l, path, -errno);
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return because(l, path, -EINVAL, S_ISREG(st.st_mode) ? "empty" : "not a regular file");
	if (!sits_manifest_name_ok(name, strlen(name)) || l->m->nr == SITS_MANIFEST_FILES_MAX)
		return because(l, path, -EINVAL, l->m->nr == SITS_MANIFEST_FILES_MAX ? "one file more than a directory can have" :
			       "its name is too long, or has control characters");
	return tool_dir_add(l->m, name, (uint64_t)st.st_size) ? failed(l, l->dir, -ENOMEM) : 0;
}

/* What sitsd would refuse for what is missing is no model: the index names each file of weights, or there is just one. */
static int check_weights(struct list *l)
{
	size_t i, nr = 0;
	const char *name;
	char safe[512];
	json_t *v;

	json_object_foreach(l->index, name, v)
		if (!sits_manifest_is_weights(name) || !has(l->m, name))
			return because(l, l->dir, -ENOENT, INDEX_NAME " names %s, but no such *.safetensors file is in the directory",
				       tool_print_safe(name, safe, sizeof(safe)));
	for (i = 0; i < l->m->nr; i++)
		nr += sits_manifest_is_weights(l->m->file[i].name);
	if (nr > 1 && !l->index)
		return because(l, l->dir, -EINVAL, "several files *.safetensors, but no " INDEX_NAME " that says what is in which");
	return nr ? 0 : because(l, l->dir, -ENOENT, NEEDS);
}

/* Told once it is known that the rest is a model. */
static int tell_left_out(struct list *l, const char *name)
{
	if (l->left_out && *name != '.' && !is_wanted(l, name))
		l->left_out(l->arg, name);
	return 0;
}

static int for_names(struct list *l, int (*fn)(struct list *l, const char *name))
{
	struct dirent *e;
	DIR *d = opendir(l->dir);
	int ret = d ? 0 : failed(l, l->dir, -errno);

	while (!ret && (e = readdir(d)))
		ret = fn(l, e->d_name);
	if (d)
		closedir(d);
	return ret;
}

int tool_dir_list(const char *dir, struct sits_manifest *m, void (*left_out)(void *arg, const char *name), void *arg,
		  struct tool_dir_why *why)
{
	struct list l = { .dir = dir, .m = m, .why = why, .left_out = left_out, .arg = arg };
	char path[TOOL_PATH_MAX];
	int ret;

	*m = (struct sits_manifest){ 0 };
	l.has_whole = !tool_dir_join(path, dir, WHOLE_NAME, "") && !access(path, F_OK);
	ret = read_index(&l);
	if (!ret)
		ret = for_names(&l, look_at);
	if (!ret && (!has(m, "config.json") || !has(m, "tokenizer.json")))
		ret = because(&l, dir, -ENOENT, NEEDS);
	if (!ret)
		ret = check_weights(&l);
	if (!ret)
		ret = for_names(&l, tell_left_out);
	json_decref(l.index);
	if (!ret)
		tool_dir_sort(m);
	return ret;
}
