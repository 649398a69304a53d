// SPDX-License-Identifier: MIT
/*
 * stat_data.c - see stat_data.h.
 *
 * Attributes and parameters are listed as they are found, so that a module newer than this program shows all it has.
 */
#include "tools/sits/stat_data.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX	4096	/* an attribute is at most a page */
#define EXPORTER	"sits-"	/* what names of our exporters and keys of our fdinfo start with */

/* ------------------------------------------------------------------ files */

/* The contents of a small file without its last newline. Return: length or -errno. */
static int read_text(int dir, const char *name, char *buf, size_t len)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), ret;
	size_t n = 0;
	ssize_t got;

	if (fd < 0)
		return -errno;
	do {
		got = read(fd, buf + n, len - 1 - n);
		ret = got < 0 ? -errno : 0;
		n += got > 0 ? (size_t)got : 0;
	} while (got > 0 && n < len - 1);
	close(fd);
	if (ret)
		return ret;
	if (n && buf[n - 1] == '\n')
		n--;
	buf[n] = '\0';
	return (int)n;
}

static int open_dir(const char *root, const char *path)
{
	char full[PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	return open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* jansson's integers are signed; what is beyond them is given as text rather than wrongly. */
static json_t *u64_value(uint64_t v)
{
	char text[24];

	if (v <= INT64_MAX)
		return json_integer((json_int_t)v);
	snprintf(text, sizeof(text), "%" PRIu64, v);
	return json_string(text);
}

/* A string, or null where it is no UTF-8. */
static json_t *text_value(const char *s)
{
	json_t *v = json_string(s);

	return v ? v : json_null();
}

/* A number where @s is one, else a string. */
static json_t *value(const char *s)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(s, &end, 10);
	if (*s && (isdigit((unsigned char)*s) || *s == '-') && !*end && !errno)
		return json_integer(n);
	return text_value(s);
}

static bool is_in(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

/* All regular files of a folder but those named in @but, in the order of their names. Takes @fd. */
static json_t *attributes(int fd, const char *const *but)
{
	json_t *all = json_object();
	struct dirent **list = NULL;
	char text[TEXT_MAX];
	int n, i;

	n = fd < 0 ? 0 : scandirat(fd, ".", &list, NULL, alphasort);
	for (i = 0; i < n; i++) {
		if (list[i]->d_type == DT_REG && !is_in(list[i]->d_name, but) &&
		    read_text(fd, list[i]->d_name, text, sizeof(text)) >= 0)
			json_object_set_new(all, list[i]->d_name, value(text));
		free(list[i]);
	}
	free(list);
	if (fd >= 0)
		close(fd);
	return all;
}

json_t *stat_counters(const struct stat_source *src)
{
	static const char *const core[] = { "dev", "uevent", "waiting_for_supplier", NULL };

	return attributes(open_dir(src->root, "sys/class/misc/sits"), core);
}

json_t *stat_module(const struct stat_source *src)
{
	static const char *const none[] = { NULL };
	int fd = open_dir(src->root, "sys/module/sits");
	json_t *module;
	char text[TEXT_MAX];

	if (fd < 0)
		return NULL;
	module = json_object();
	if (read_text(fd, "version", text, sizeof(text)) >= 0)
		json_object_set_new(module, "version", text_value(text));
	if (read_text(fd, "srcversion", text, sizeof(text)) >= 0)
		json_object_set_new(module, "source_version", text_value(text));
	if (read_text(fd, "refcnt", text, sizeof(text)) >= 0)
		json_object_set_new(module, "users", value(text));
	json_object_set_new(module, "parameters", attributes(open_dir(src->root, "sys/module/sits/parameters"), none));
	close(fd);
	return module;
}

/* ------------------------------------------------------------------ the device */

static json_t *bit_names(uint64_t bits, const char *const *names, unsigned int nr_names)
{
	json_t *all = json_array();
	unsigned int i;
	char text[16];

	for (i = 0; i < 64; i++) {
		if (!(bits >> i & 1))
			continue;
		snprintf(text, sizeof(text), "bit %u", i);
		json_array_append_new(all, json_string(i < nr_names && names[i] ? names[i] : text));
	}
	return all;
}

json_t *stat_features(uint64_t features)
{
	/* By bit: SITS_FEATURE_* */
	static const char *const names[] = { "region", "import", "dma-map", "weights", "queue", "uring-cmd", "huge-pmd",
					    "load-ranges" };

	return bit_names(features, names, sizeof(names) / sizeof(names[0]));
}

json_t *stat_states(uint32_t state)
{
	/* By bit: SITS_REGION_F_* */
	static const char *const names[] = { "sealed", "pinnable", "device-only", "encrypted", "loaded", "loading", "revoked",
					    "partial" };

	return bit_names(state, names, sizeof(names) / sizeof(names[0]));
}

json_t *stat_device(const struct stat_source *src, int *err)
{
	struct sits_get_info i = { .size = sizeof(i) };

	*err = src->get_info(src->arg, &i);
	if (*err)
		return NULL;
	return json_pack("{s:s, s:I, s:o, s:I, s:o, s:o, s:I, s:I, s:b}", "path", SITS_DEV_PATH, "abi_version", (json_int_t)i.abi_version,
			 "features", stat_features(i.features), "regions", (json_int_t)i.nr_regions,
			 "region_used_bytes", u64_value(i.region_used_bytes),
			 "region_limit_bytes", i.region_limit_bytes ? u64_value(i.region_limit_bytes) : json_null(),
			 "queues", (json_int_t)i.nr_queues, "channels", (json_int_t)i.nr_channels,
			 "encrypted_by_platform", i.tee != 0);
}

/* ------------------------------------------------------------------ what processes hold */

struct walk {
	const struct stat_source *src;
	json_t *regions;	/* by inode number, while it lasts */
	json_t *files;
	unsigned int hidden;
	pid_t pid;
	char comm[64];
};

/* One line of fdinfo, "key:\tvalue", split in place. Return: what follows it, or NULL at the end. */
static char *fdinfo_line(char *line, char **key, char **val)
{
	char *end = strchr(line, '\n'), *colon;

	if (end)
		*end = '\0';
	colon = strchr(line, ':');
	*key = line;
	*val = line + strlen(line);
	if (colon) {
		*colon = '\0';
		*val = colon + 1 + strspn(colon + 1, " \t");
	}
	return end ? end + 1 : NULL;
}

static json_t *holder(const struct walk *w, int fd)
{
	return json_pack("{s:I, s:o, s:i}", "pid", (json_int_t)w->pid, "command", text_value(w->comm), "fd", fd);
}

/* What the dma-buf core does not tell, by asking the module, where the caller may. */
static void add_facts(const struct walk *w, int fd, uint64_t ino, json_t *region)
{
	struct sits_region_facts f = { .size = sizeof(f) };
	int ret = w->src->region_facts(w->src->arg, w->pid, fd, ino, &f);

	if (ret) {
		json_object_set_new(region, "facts_error", json_string(strerror(-ret)));
		return;
	}
	json_object_set_new(region, "name", text_value((const char *)f.name));
	json_object_set_new(region, "len_bytes", u64_value(f.len_bytes));
	json_object_set_new(region, "huge_bytes", u64_value(f.huge_bytes));
	json_object_set_new(region, "page_bytes", json_integer(f.page_bytes));
	json_object_set_new(region, "node", f.node < 0 ? json_null() : json_integer(f.node));
	json_object_set_new(region, "state", stat_states(f.state));
	json_object_set_new(region, "importers", json_integer(f.nr_importers));
	json_object_set_new(region, "refused_imports", u64_value(f.refused_imports));
	json_object_del(region, "facts_error");
}

/* @info: key and value of each line */
static void add_region(struct walk *w, int fd, const json_t *info)
{
	const char *ino = json_string_value(json_object_get(info, "ino"));
	const char *name = json_string_value(json_object_get(info, "name"));
	const char *size = json_string_value(json_object_get(info, "size"));
	json_t *region;

	if (!ino || !size)
		return;
	region = json_object_get(w->regions, ino);
	if (!region) {
		region = json_pack("{s:o, s:s, s:o, s:o, s:[]}", "name", text_value(name ? name : ""),
				   "kind", json_string_value(json_object_get(info, "exp_name")) + strlen(EXPORTER),
				   "mapped_bytes", value(size), "inode", value(ino), "holders");
		json_object_set_new(w->regions, ino, region);
		json_object_set_new(region, "facts_error", json_null());
	}
	json_array_append_new(json_object_get(region, "holders"), holder(w, fd));
	if (json_object_get(region, "facts_error"))
		add_facts(w, fd, strtoull(ino, NULL, 10), region);
}

static void add_file(struct walk *w, int fd, const char *link, const json_t *info)
{
	json_t *file, *facts = json_object(), *v;
	const char *key;

	json_object_foreach((json_t *)(uintptr_t)info, key, v)
		if (!strncmp(key, EXPORTER, strlen(EXPORTER)))
			json_object_set_new(facts, key + strlen(EXPORTER), value(json_string_value(v)));
	if (!json_object_size(facts)) {
		json_decref(facts);
		return;
	}
	file = holder(w, fd);
	json_object_set_new(file, "file", text_value(link));
	json_object_set_new(file, "facts", facts);
	json_array_append_new(w->files, file);
}

static void look_at_fd(struct walk *w, int fd_dir, int info_dir, const char *name)
{
	char link[256], text[TEXT_MAX], *line = text, *key, *val;
	ssize_t n = readlinkat(fd_dir, name, link, sizeof(link) - 1);
	json_t *info;
	const char *exporter;

	link[n < 0 ? 0 : n] = '\0';
	/* Every fdinfo costs: only those that can be ours. */
	if (!strstr(link, "dmabuf") && !strstr(link, "sits"))
		return;
	if (read_text(info_dir, name, text, sizeof(text)) < 0)
		return;
	info = json_object();
	while (line) {
		line = fdinfo_line(line, &key, &val);
		/* The first counts: a name, which comes last and which its holder can change, may hold a newline. */
		if (!json_object_get(info, key))
			json_object_set_new(info, key, json_string(val));
	}
	exporter = json_string_value(json_object_get(info, "exp_name"));
	if (exporter && !strncmp(exporter, EXPORTER, strlen(EXPORTER)))
		add_region(w, atoi(name), info);
	else
		add_file(w, atoi(name), link, info);
	json_decref(info);
}

static void look_at_process(struct walk *w, int proc_fd, const char *pid)
{
	char path[64];
	int fd_dir, info_dir;
	struct dirent *e;
	DIR *d = NULL;

	snprintf(path, sizeof(path), "%.16s/fd", pid);
	fd_dir = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd_dir < 0 && (errno == EACCES || errno == EPERM))
		w->hidden++;
	snprintf(path, sizeof(path), "%.16s/fdinfo", pid);
	info_dir = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%.16s/comm", pid);
	if (read_text(proc_fd, path, w->comm, sizeof(w->comm)) < 0)
		w->comm[0] = '\0';
	w->pid = (pid_t)atol(pid);
	if (fd_dir >= 0 && info_dir >= 0)
		d = fdopendir(fd_dir);
	while (d && (e = readdir(d)))
		if (isdigit((unsigned char)e->d_name[0]))
			look_at_fd(w, dirfd(d), info_dir, e->d_name);
	if (d)
		closedir(d);
	else if (fd_dir >= 0)
		close(fd_dir);
	if (info_dir >= 0)
		close(info_dir);
}

json_t *stat_held(const struct stat_source *src)
{
	struct walk w = { .src = src, .regions = json_object(), .files = json_array() };
	int fd = open_dir(src->root, "proc");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	json_t *list = json_array(), *region;
	struct dirent *e;
	const char *ino;

	while (d && (e = readdir(d)))
		if (isdigit((unsigned char)e->d_name[0]) && (!src->but || atol(e->d_name) != src->but))
			look_at_process(&w, dirfd(d), e->d_name);
	if (d)
		closedir(d);
	json_object_foreach(w.regions, ino, region)
		json_array_append(list, region);
	json_decref(w.regions);
	return json_pack("{s:o, s:o, s:i}", "regions", list, "files", w.files, "hidden_processes", (int)w.hidden);
}
