// SPDX-License-Identifier: MIT
/*
 * stat_test.c - sits stat and sits info beside the real module: what they show is what this program made, and what the
 * kernel says. Loads and removes the module itself.
 */
#include <jansson.h>

#include "region_common.h"

#define SYSFS "/sys/class/misc/sits/"

static char sits[256];	/* the command */

/* Its exit status; what it wrote, in @out. */
static int run(char *out, size_t len, const char *args)
{
	char cmd[512];
	size_t n = 0, got;
	int status;
	FILE *p;

	snprintf(cmd, sizeof(cmd), "%s %s 2>&1", sits, args);
	p = popen(cmd, "re");
	need(p, "popen");
	while ((got = fread(out + n, 1, len - 1 - n, p)) > 0)
		n += got;
	out[n] = '\0';
	status = pclose(p);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static json_t *run_json(const char *args)
{
	static char out[1 << 18];
	json_error_t err;
	json_t *all;
	int status = run(out, sizeof(out), args);

	all = json_loads(out, 0, &err);
	if (status || !all) {
		check(false, "%s: exit status %d, %s", args, status, all ? "" : err.text);
		printf("# %.500s\n", out);
		return json_object();
	}
	return all;
}

static const json_t *get(const json_t *o, const char *key)
{
	return json_object_get(o, key);
}

static long num(const json_t *o, const char *key)
{
	return json_is_integer(get(o, key)) ? json_integer_value(get(o, key)) : -4711;
}

static bool has_word(const json_t *list, const char *word)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_array_get(list, i)), word))
			return true;
	return false;
}

static bool is_text(const json_t *o, const char *key, const char *want)
{
	const char *s = json_string_value(get(o, key));

	if (!s || strcmp(s, want))
		printf("# %s: %s\n", key, s ? s : "no text");
	return s && !strcmp(s, want);
}

static const json_t *find_region(const json_t *all, const char *name)
{
	const json_t *list = get(get(all, "held"), "regions");

	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(get(json_array_get(list, i), "name")), name))
			return json_array_get(list, i);
	return NULL;
}

static void without_module(void)
{
	static char out[1 << 16];
	json_t *all = run_json("stat --json");

	check(json_is_null(get(all, "module")) && json_is_null(get(all, "device")), "no module: null");
	check(strstr(json_string_value(get(all, "device_error")), "modprobe sits"), "no module: what to do");
	check(is_text(all, "provider", "user"), "no module: the user provider");
	json_decref(all);
	check_int(run(out, sizeof(out), "stat"), 0, "no module: exit status 0");
	check(strstr(out, "not loaded"), "no module: said");
	check_int(run(out, sizeof(out), "stat --provider kernel"), 1, "no module, --provider kernel: exit status 1");
	all = run_json("info --json");
	check(json_is_false(get(get(get(all, "providers"), "kernel"), "available")) && json_is_null(get(all, "module")),
	      "no module: info says so");
	json_decref(all);
}

/* Every number that sysfs has is in it, and no other. */
static void counters_are_those_of_sysfs(const json_t *all)
{
	const json_t *c = get(all, "counters");
	unsigned int found = 0, wrong = 0;
	char path[512];
	struct dirent *e;
	DIR *d = opendir(SYSFS);
	long n;

	while (d && (e = readdir(d))) {
		if (e->d_type != DT_REG || !strcmp(e->d_name, "dev") || !strcmp(e->d_name, "uevent"))
			continue;
		snprintf(path, sizeof(path), SYSFS "%s", e->d_name);
		n = read_number(path);
		found++;
		if (num(c, e->d_name) != n) {
			printf("# %s: %ld, in sysfs %ld\n", e->d_name, num(c, e->d_name), n);
			wrong++;
		}
	}
	if (d)
		closedir(d);
	check(found >= 7 && !wrong, "counters: those of sysfs, %u", found);
	check_int(json_object_size(c), found, "counters: no others");
}

static void device_is_told(const json_t *all)
{
	const json_t *d = get(all, "device"), *m = get(all, "module");
	struct sits_get_info i = info();

	check_int(num(d, "abi_version"), SITS_ABI_VERSION, "device: ABI");
	check_int(num(d, "regions"), i.nr_regions, "device: regions");
	check_int(num(d, "region_used_bytes"), i.region_used_bytes, "device: bytes");
	check(json_is_null(get(d, "region_limit_bytes")), "device: no limit");
	check(has_word(get(d, "features"), "region"), "device: features by name");
	check(has_word(get(d, "features"), "huge-pmd") == !!(i.features & SITS_FEATURE_HUGE_PMD), "device: huge PMDs");
	check(is_text(m, "version", "0.1.0"), "module: version");
	check(num(m, "users") > 0, "module: in use");
	check_int(num(get(m, "parameters"), "node_mode"), 0666, "module: parameters");
	check_int(num(get(m, "parameters"), "owner_gid"), -1, "module: owner group");
}

static void region_is_told(const json_t *all, const char *name, int fd, const char *kind)
{
	const json_t *r = find_region(all, name), *h;
	struct sits_region_facts f = facts(fd);

	if (!check(r, "region %s: seen", name))
		return;
	check(is_text(r, "kind", kind), "region %s: kind", name);
	check_int(num(r, "mapped_bytes"), f.mapped_bytes, "region %s: bytes", name);
	check_int(num(r, "len_bytes"), f.len_bytes, "region %s: length", name);
	check_int(num(r, "page_bytes"), f.page_bytes, "region %s: page size", name);
	check_int(num(r, "importers"), f.nr_importers, "region %s: importers", name);
	check_int(has_word(get(r, "state"), "sealed"), !!(f.state & SITS_REGION_F_SEALED), "region %s: sealed or not", name);
	h = json_array_get(get(r, "holders"), 0);
	check(json_array_size(get(r, "holders")) == 1 && num(h, "pid") == getpid() && num(h, "fd") == fd,
	      "region %s: who holds it", name);
}

/* Of the module: what is left when it is not counted, which has opened the device itself. */
static void stat_is_not_in_it(void)
{
	json_t *all;

	close(dev);
	all = run_json("stat --json");
	check_int(num(get(all, "module"), "users"), 0, "stat does not count itself as a user of the module");
	check_int(json_array_size(get(get(all, "held"), "files")), 0, "stat does not list its own files");
	json_decref(all);
	open_dev();
}

static int as_nobody(void *arg)
{
	static char out[1 << 16];

	if (setgid(65534) || setuid(65534))
		return 1;
	if (run(out, sizeof(out), "stat"))
		return 2;
	if (!strstr(out, "device: /dev/sits, ABI 1") || strstr(out, "a region of ours") || !strstr(out, "were not looked into"))
		return 3;
	if (run(out, sizeof(out), "info") || !strstr(out, "owner_gid"))
		return 4;
	return 0;
}

static void with_regions(void)
{
	static char out[1 << 16];
	int pinned = create_named(SITS_KIND_PINNED, 0, 5000, "a region of ours"), huge = create_named(SITS_KIND_HUGE, 0, 1, "");
	int protected_fd = create_named(SITS_KIND_PROTECTED, 0, PAGE, "\xc3\xa4 \xe7\xa7\x98 of a name longer than those that dma-bufs keep");
	void *p = map(pinned, PAGE, PROT_READ);
	json_t *all;

	seal(pinned, 0);
	all = run_json("stat --json");
	counters_are_those_of_sysfs(all);
	device_is_told(all);
	check_int(json_array_size(get(get(all, "held"), "regions")), 3, "regions: three");
	region_is_told(all, "a region of ours", pinned, "pinned");
	region_is_told(all, "", huge, "huge");
	region_is_told(all, "\xc3\xa4 \xe7\xa7\x98 of a name longer than those that dma-bufs keep", protected_fd, "protected");
	json_decref(all);
	check_int(run(out, sizeof(out), "stat"), 0, "for people: exit status");
	check(strstr(out, "a region of ours") && strstr(out, "sealed pinnable") && strstr(out, "3 of 3"), "for people: regions");
	if (!strstr(out, "3 of 3"))
		printf("# %s\n", out);
	check_int(in_child(as_nobody, NULL), 0, "as nobody: the device, no regions of others, and from info what right is missing");
	munmap(p, PAGE);
	close(pinned);
	close(huge);
	close(protected_fd);
	check(nothing_left(), "regions: stat holds none of them");
}

/* Whose fdinfo has @key with the value @want. */
static const json_t *find_file(const json_t *all, const char *file, const char *key, const char *want)
{
	const json_t *list = get(get(all, "held"), "files"), *f, *v;

	for (size_t i = 0; i < json_array_size(list); i++) {
		f = json_array_get(list, i);
		v = get(get(f, "facts"), key);
		if (strstr(json_string_value(get(f, "file")), file) && json_is_string(v) && !strcmp(json_string_value(v), want))
			return f;
	}
	return NULL;
}

static void queues(void)
{
	struct sits_queue_create q = {
		.size = sizeof(q), .depth = 8, .per_client = 4, .max_clients = 2, .mode = 0600, .chunk_backlog = 1 << 16,
		.fd_flags = O_CLOEXEC, .fd = -1, .name = "told",
	};
	struct sits_channel_create c = {
		.size = sizeof(c), .arena_bytes = PAGE, .fd_flags = O_CLOEXEC, .fd = -1, .queue = "told",
	};
	const json_t *f;
	json_t *all;

	check_int(xioctl(dev, SITS_IOC_QUEUE_CREATE, &q), 0, "a queue is made");
	check_int(xioctl(dev, SITS_IOC_CHANNEL_OPEN, &c), 0, "and a channel to it");
	all = run_json("stat --json");
	check(num(get(all, "device"), "queues") == 1 && num(get(all, "device"), "channels") == 1, "queue and channel are counted");
	f = find_file(all, "sits-queue", "queue", "told");
	check(f && num(f, "pid") == getpid() && num(f, "fd") == q.fd && num(get(f, "facts"), "depth") == 8, "the queue is told");
	f = find_file(all, "sits-channel", "queue", "told");
	check(f && num(f, "fd") == c.fd && num(get(f, "facts"), "arena-bytes") == (long)PAGE, "the channel is told");
	json_decref(all);
	close(c.fd);
	close(q.fd);
}

static void limit_and_watch(void)
{
	static char out[1 << 18];
	json_t *all, *first, *second;
	char *line;

	write_text("/sys/module/sits/parameters/region_limit_bytes", "1073741824");
	all = run_json("stat --json --provider kernel");
	check_int(num(get(all, "device"), "region_limit_bytes"), 1 << 30, "the limit is told");
	check(!get(all, "sockets"), "--provider kernel: no sockets");
	json_decref(all);
	write_text("/sys/module/sits/parameters/region_limit_bytes", "0");
	all = run_json("stat --json --provider user");
	check(!get(all, "device") && json_is_array(get(all, "sockets")), "--provider user: no device");
	json_decref(all);
	check_int(run(out, sizeof(out), "stat --json --watch 0.05 --count 2"), 0, "watch: ends after two");
	line = strchr(out, '\n');
	if (line)
		*line++ = '\0';
	first = json_loads(out, 0, NULL);
	second = line ? json_loads(line, 0, NULL) : NULL;
	check(first && second && json_number_value(get(second, "time")) > json_number_value(get(first, "time")),
	      "watch: two objects on two lines, the second later");
	json_decref(first);
	json_decref(second);
}

static void told_by_info(void)
{
	json_t *all = run_json("info --json");
	const json_t *k = get(get(all, "providers"), "kernel"), *u = get(get(all, "providers"), "user"), *plain, *p;

	check(json_is_object(k) && json_is_object(u), "info: both providers");
	check(json_is_true(get(u, "available")), "info: the user provider is there");
	check(is_text(get(all, "module"), "version", "0.1.0") && has_word(get(get(all, "module"), "features"), "region"),
	      "info: the module");
	check(json_is_true(get(k, "available")) && is_text(all, "provider", "kernel"), "info: the kernel provider is taken");
	plain = get(get(k, "regions"), "pinned");
	p = get(get(k, "regions"), "protected");
	check(json_is_true(get(p, "closed_to_tracers")) && json_is_true(get(p, "closed_to_pins")) &&
	      json_is_true(get(p, "sealed_to_others")) && json_is_true(get(p, "sealed_to_owner")), "info: a protected region is closed");
	check(json_is_false(get(plain, "closed_to_tracers")) && json_is_false(get(plain, "closed_to_pins")),
	      "info: a pinned one is not");
	p = get(get(u, "regions"), "protected");
	check(json_is_false(get(p, "closed_to_tracers")) && json_is_true(get(p, "sealed_to_others")),
	      "info: nor is a protected one of the user provider");
	json_decref(all);
}

int main(void)
{
	snprintf(sits, sizeof(sits), "%s/sits", getenv("BUILD") ? getenv("BUILD") : "build");
	setenv("SITS_RUN_DIR", "/tmp", 1);
	without_module();
	need(!system("modprobe sits"), "modprobe sits");
	open_dev();
	stat_is_not_in_it();
	with_regions();
	queues();
	limit_and_watch();
	told_by_info();
	close(dev);
	check_int(system("for i in $(seq 300); do rmmod sits && exit 0; sleep 0.1; done; exit 1"), 0, "the module goes");
	/* It came along. */
	check_int(system("for i in $(seq 300); do grep -q ^sits_sm4 /proc/modules || exit 0; rmmod sits_sm4; sleep 0.1; done; exit 1"), 0,
		  "and so does sits_sm4");
	return done();
}
