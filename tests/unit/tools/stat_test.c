// SPDX-License-Identifier: MIT
/*
 * stat_test.c - what `sits stat` gathers from sysfs, procfs and the device, all of which are made up here.
 */
#include "tools/sits/stat_data.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/sits/stat_print.h"

static char root[] = "/tmp/sits-stat-XXXXXX";

/* What the device answers. */
static struct {
	int err;
	struct sits_get_info info;
	int facts_err;
	pid_t denied;		/* this process's regions can't be asked about */
	struct sits_region_facts facts;
	unsigned int asked;
	uint64_t ino;
	pid_t pid;
	int fd;
} fake;

static int fake_get_info(void *arg, struct sits_get_info *info)
{
	assert_ptr_equal(arg, &fake);
	assert_int_equal(info->size, sizeof(*info));
	assert_int_equal(info->flags, 0);
	if (!fake.err)
		*info = fake.info;
	return fake.err;
}

static int fake_region_facts(void *arg, pid_t pid, int fd, uint64_t ino, struct sits_region_facts *facts)
{
	assert_ptr_equal(arg, &fake);
	assert_int_equal(facts->size, sizeof(*facts));
	fake.asked++;
	fake.ino = ino;
	fake.pid = pid;
	fake.fd = fd;
	if (fake.denied == pid)
		return -EPERM;
	if (!fake.facts_err)
		*facts = fake.facts;
	return fake.facts_err;
}

static const struct stat_source src = {
	.root = root, .get_info = fake_get_info, .region_facts = fake_region_facts, .arg = &fake,
};

static void run(const char *fmt, ...)
{
	char cmd[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

static void put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	run("mkdir -p $(dirname %s)", full);
	f = fopen(full, "we");
	assert_non_null(f);
	assert_int_equal(fputs(text, f) >= 0, 1);
	assert_int_equal(fclose(f), 0);
}

static void put_fd(int pid, int fd, const char *link, const char *info)
{
	char path[128];

	run("mkdir -p %s/proc/%d/fd && ln -s '%s' %s/proc/%d/fd/%d", root, pid, link, root, pid, fd);
	snprintf(path, sizeof(path), "proc/%d/fdinfo/%d", pid, fd);
	put(path, info);
}

static int setup(void **unused)
{
	strcpy(root + strlen(root) - 6, "XXXXXX");
	memset(&fake, 0, sizeof(fake));
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **unused)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "chmod -R u+rwx %s; rm -rf %s", root, root);
	return system(cmd);
}

static json_int_t number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v))
		fail_msg("%s is no integer", key);
	return json_integer_value(v);
}

static const char *string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s)
		fail_msg("%s is no string", key);
	return s;
}

/* The words of an array, one after the other. */
static const char *words(const json_t *list)
{
	static char all[256];
	size_t i;

	all[0] = '\0';
	for (i = 0; i < json_array_size(list); i++) {
		strcat(all, i ? " " : "");
		strcat(all, json_string_value(json_array_get(list, i)));
	}
	return all;
}

static void without_the_module(void **unused)
{
	json_t *held, *counters;
	int err;

	fake.err = -ENOENT;
	assert_null(stat_module(&src));
	assert_null(stat_device(&src, &err));
	assert_int_equal(err, -ENOENT);
	counters = stat_counters(&src);
	assert_int_equal(json_object_size(counters), 0);
	held = stat_held(&src);
	assert_int_equal(json_array_size(json_object_get(held, "regions")), 0);
	assert_int_equal(number(held, "hidden_processes"), 0);
	json_decref(counters);
	json_decref(held);
}

static void counters_are_taken_as_they_come(void **unused)
{
	const char *key;
	char order[128] = "";
	json_t *c, *v;

	put("sys/class/misc/sits/regions", "3\n");
	put("sys/class/misc/sits/loaded_bytes", "9223372036854775807\n");
	put("sys/class/misc/sits/of_tomorrow", "17\n");
	put("sys/class/misc/sits/in_words", "fast \033[2J\n");
	put("sys/class/misc/sits/negative", "-1\n");
	put("sys/class/misc/sits/beyond", "99999999999999999999\n");
	put("sys/class/misc/sits/empty", "");
	/* The driver core's. */
	put("sys/class/misc/sits/dev", "10:123\n");
	put("sys/class/misc/sits/uevent", "MAJOR=10\n");
	put("sys/class/misc/sits/power/control", "auto\n");
	c = stat_counters(&src);
	assert_int_equal(number(c, "regions"), 3);
	assert_int_equal(number(c, "loaded_bytes"), INT64_MAX);
	assert_int_equal(number(c, "of_tomorrow"), 17);
	assert_int_equal(number(c, "negative"), -1);
	assert_string_equal(string(c, "in_words"), "fast \033[2J");
	assert_string_equal(string(c, "beyond"), "99999999999999999999");
	assert_string_equal(string(c, "empty"), "");
	json_object_foreach(c, key, v) {
		strncat(order, key, 3);
		strcat(order, " ");
	}
	assert_string_equal(order, "bey emp in_ loa neg of_ reg ");
	json_decref(c);
}

static void module_and_parameters(void **unused)
{
	const json_t *p;
	json_t *m;

	put("sys/module/sits/version", "0.1.0\n");
	put("sys/module/sits/refcnt", "4\n");
	put("sys/module/sits/parameters/owner_gid", "-1\n");
	put("sys/module/sits/parameters/require_tee", "Y\n");
	m = stat_module(&src);
	assert_string_equal(string(m, "version"), "0.1.0");
	assert_int_equal(number(m, "users"), 4);
	p = json_object_get(m, "parameters");
	assert_int_equal(json_object_size(p), 2);
	assert_int_equal(number(p, "owner_gid"), -1);
	assert_string_equal(string(p, "require_tee"), "Y");
	json_decref(m);
}

static void device_answers(void **unused)
{
	json_t *d;
	int err;

	fake.info = (struct sits_get_info) {
		.abi_version = 1, .features = SITS_FEATURE_REGION | SITS_FEATURE_WEIGHTS | SITS_FEATURE_HUGE_PMD | 1ull << 63,
		.region_limit_bytes = 1ull << 40, .region_used_bytes = 4096, .nr_regions = 1, .nr_queues = 2, .nr_channels = 3, .tee = 1,
	};
	d = stat_device(&src, &err);
	assert_int_equal(err, 0);
	assert_string_equal(words(json_object_get(d, "features")), "region weights huge-pmd bit 63");
	assert_int_equal(number(d, "region_limit_bytes"), 1ll << 40);
	assert_int_equal(number(d, "region_used_bytes"), 4096);
	assert_int_equal(number(d, "regions"), 1);
	assert_int_equal(number(d, "queues"), 2);
	assert_int_equal(number(d, "channels"), 3);
	assert_true(json_is_true(json_object_get(d, "encrypted_by_platform")));
	json_decref(d);

	fake.info.region_limit_bytes = 0;
	fake.info.region_used_bytes = UINT64_MAX;
	d = stat_device(&src, &err);
	assert_true(json_is_null(json_object_get(d, "region_limit_bytes")));
	assert_string_equal(string(d, "region_used_bytes"), "18446744073709551615");
	json_decref(d);
}

/* Every bit of the interface has a name here; what the header gains, this fails on. */
static void every_bit_is_named(void **unused)
{
	json_t *f = stat_features(SITS_FEATURE_REGION | SITS_FEATURE_IMPORT | SITS_FEATURE_DMA_MAP | SITS_FEATURE_WEIGHTS |
				  SITS_FEATURE_QUEUE | SITS_FEATURE_URING_CMD | SITS_FEATURE_HUGE_PMD | SITS_FEATURE_LOAD_RANGES);
	json_t *s = stat_states(SITS_REGION_F_SEALED | SITS_REGION_F_PINNABLE | SITS_REGION_F_DEVICE_ONLY | SITS_REGION_F_ENCRYPTED |
				SITS_REGION_F_LOADED | SITS_REGION_F_LOADING | SITS_REGION_F_REVOKED | SITS_REGION_F_PARTIAL);
	char line[256], name[64], other[256];
	unsigned int features = 0, states = 0;
	FILE *h = fopen("include/uapi/linux/sits.h", "re");

	assert_non_null(h);
	while (fgets(line, sizeof(line), h)) {
		features += sscanf(line, "#define SITS_FEATURE_%63s (1ull << %255s", name, other) == 2;
		states += sscanf(line, "#define SITS_REGION_F_%63s (1u << %255s", name, other) == 2;
	}
	fclose(h);
	assert_int_equal(json_array_size(f), features);
	assert_int_equal(json_array_size(s), states);
	assert_null(strstr(words(f), "bit"));
	assert_null(strstr(words(s), "bit"));
	json_decref(f);
	json_decref(s);
}

static void regions_by_descriptor(void **unused)
{
	const json_t *regions, *r, *holders;
	json_t *held;

	put("proc/12/comm", "sitsd\n");
	put_fd(12, 5, "/dmabuf:weights", "pos:\t0\nflags:\t02\nino:\t77\nsize:\t4194304\ncount:\t2\nexp_name:\tsits-huge\nname:\tweights\n");
	put_fd(12, 6, "/dmabuf:frame", "pos:\t0\nino:\t78\nsize:\t4096\ncount:\t1\nexp_name:\tdrm\n");
	put_fd(12, 7, "/tmp/file", "pos:\t0\n");
	put("proc/13/comm", "a client\n");
	put_fd(13, 3, "/dmabuf:weights", "pos:\t0\nflags:\t02\nino:\t77\nsize:\t4194304\ncount:\t2\nexp_name:\tsits-huge\nname:\tweights\n");
	put("proc/self", "no process");
	fake.denied = 12;
	fake.facts = (struct sits_region_facts) {
		.page_bytes = 2 << 20, .len_bytes = 4000000, .huge_bytes = 4 << 20, .node = -1, .nr_importers = 2, .refused_imports = 9,
		.state = SITS_REGION_F_SEALED | SITS_REGION_F_LOADED | 1u << 31, .name = "weights of a longer name",
	};
	held = stat_held(&src);
	regions = json_object_get(held, "regions");
	assert_int_equal(json_array_size(regions), 1);
	r = json_array_get(regions, 0);
	assert_string_equal(string(r, "kind"), "huge");
	assert_int_equal(number(r, "inode"), 77);
	assert_int_equal(number(r, "mapped_bytes"), 4194304);
	/* One holder's could not be asked about, the other's could; in which order they come is the folder's matter. */
	assert_int_equal(fake.ino, 77);
	assert_null(json_object_get(r, "facts_error"));
	assert_string_equal(string(r, "name"), "weights of a longer name");
	assert_int_equal(number(r, "page_bytes"), 2 << 20);
	assert_int_equal(number(r, "importers"), 2);
	assert_int_equal(number(r, "refused_imports"), 9);
	assert_true(json_is_null(json_object_get(r, "node")));
	assert_string_equal(words(json_object_get(r, "state")), "sealed loaded bit 31");
	holders = json_object_get(r, "holders");
	assert_int_equal(json_array_size(holders), 2);
	assert_int_equal(number(json_array_get(holders, 0), "pid") + number(json_array_get(holders, 1), "pid"), 25);
	json_decref(held);
}

static void region_of_a_stranger(void **unused)
{
	const json_t *r;
	json_t *held;

	put("proc/12/comm", "sitsd\n");
	put_fd(12, 5, "/dmabuf:w", "ino:\t77\nsize:\t4096\nexp_name:\tsits-protected\nname:\tw\n");
	fake.denied = 12;
	held = stat_held(&src);
	r = json_array_get(json_object_get(held, "regions"), 0);
	assert_string_equal(string(r, "facts_error"), strerror(EPERM));
	assert_string_equal(string(r, "name"), "w");
	assert_string_equal(string(r, "kind"), "protected");
	assert_null(json_object_get(r, "page_bytes"));
	assert_int_equal(fake.asked, 1);
	assert_int_equal(fake.pid, 12);
	assert_int_equal(fake.fd, 5);
	json_decref(held);
}

/* The name of a dma-buf is its holder's to choose, with newlines in it. */
static void forged_names(void **unused)
{
	json_t *held;

	put_fd(12, 5, "/dmabuf:x", "ino:\t77\nsize:\t4096\nexp_name:\tdrm\nname:\tx\nexp_name:\tsits-huge\n");
	put_fd(12, 6, "/dmabuf:y", "ino:\t78\nexp_name:\tsits-huge\n");	/* no size */
	put_fd(12, 7, "/dmabuf:z", "");
	put_fd(12, 8, "/dmabuf:\377", "ino:\t79\nsize:\t1\nexp_name:\tsits-huge\nname:\t\377\n");
	held = stat_held(&src);
	assert_int_equal(json_array_size(json_object_get(held, "regions")), 1);
	assert_int_equal(number(json_array_get(json_object_get(held, "regions"), 0), "inode"), 79);
	assert_int_equal(json_array_size(json_object_get(held, "files")), 0);
	json_decref(held);
}

static void other_files_by_their_fdinfo(void **unused)
{
	const json_t *files, *f, *facts;
	json_t *held;

	put("proc/12/comm", "sitsd\n");
	put_fd(12, 9, "anon_inode:[sits-dma]", "pos:\t0\nsits-dma-device:\t0000:00:05.0\nsits-dma-bytes:\t4096\n");
	put_fd(12, 10, "anon_inode:[eventfd]", "pos:\t0\nsits-dma-bytes:\t4096\n");	/* not looked at */
	put_fd(12, 11, "/home/sits/notes", "pos:\t0\n");
	held = stat_held(&src);
	files = json_object_get(held, "files");
	assert_int_equal(json_array_size(files), 1);
	f = json_array_get(files, 0);
	assert_int_equal(number(f, "fd"), 9);
	assert_string_equal(string(f, "command"), "sitsd");
	assert_string_equal(string(f, "file"), "anon_inode:[sits-dma]");
	facts = json_object_get(f, "facts");
	assert_string_equal(string(facts, "dma-device"), "0000:00:05.0");
	assert_int_equal(number(facts, "dma-bytes"), 4096);
	json_decref(held);
}

static void hidden_processes_are_counted(void **unused)
{
	bool root_user = !geteuid();
	json_t *held;

	put_fd(12, 5, "/dmabuf:w", "ino:\t77\nsize:\t4096\nexp_name:\tsits-huge\n");
	run("chmod 0 %s/proc/12/fd && chmod 755 %s", root, root);
	if (root_user)
		assert_int_equal(seteuid(65534), 0);
	held = stat_held(&src);
	if (root_user)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(number(held, "hidden_processes"), 1);
	assert_int_equal(json_array_size(json_object_get(held, "regions")), 0);
	json_decref(held);
}

/* What stat_print() writes. */
static void printed(const json_t *all, const json_t *before, char *out, size_t len)
{
	char path[64];
	int fd, old;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/out", root);
	fflush(stdout);
	old = dup(STDOUT_FILENO);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(old >= 0 && fd >= 0);
	dup2(fd, STDOUT_FILENO);
	stat_print(all, before);
	fflush(stdout);
	dup2(old, STDOUT_FILENO);
	n = pread(fd, out, len - 1, 0);
	assert_true(n > 0);
	out[n] = '\0';
	close(fd);
	close(old);
}

static void for_people(void **unused)
{
	json_t *before = json_loads("{\"time\": 10.0, \"counters\": {\"loads\": 2, \"same\": 1}}", 0, NULL);
	json_t *all = json_loads(
		"{\"version\": \"0.1.0\", \"time\": 12.0, \"provider\": \"kernel\", \"run_dir\": \"/run/sits\","
		" \"module\": {\"version\": \"0.1.0\", \"users\": 3, \"parameters\": {\"node_mode\": 438, \"owner_gid\": -1}},"
		" \"device\": {\"path\": \"/dev/sits\", \"abi_version\": 1, \"features\": [\"region\"], \"regions\": 2,"
		"  \"region_used_bytes\": 8192, \"region_limit_bytes\": null, \"queues\": 0, \"channels\": 0,"
		"  \"encrypted_by_platform\": false},"
		" \"device_error\": null, \"counters\": {\"loads\": 8, \"same\": 1},"
		" \"held\": {\"hidden_processes\": 2, \"files\": [], \"regions\": [{\"name\": \"bad\\u001b[2J\", \"kind\": \"huge\","
		"  \"mapped_bytes\": 4096, \"facts_error\": \"no\", \"holders\": [{\"pid\": 12, \"command\": \"sitsd\", \"fd\": 5}]}]},"
		" \"sockets\": [{\"name\": \"infer\", \"error\": \"nobody is there\"}]}", 0, NULL);
	char out[4096];

	assert_non_null(all);
	printed(all, before, out, sizeof(out));
	assert_non_null(strstr(out, "node_mode=0666 owner_gid=-1"));
	assert_non_null(strstr(out, "2, 8.0 KiB of any number"));
	assert_non_null(strstr(out, "+6, 3.0/s"));
	assert_null(strstr(out, "+0"));
	assert_non_null(strstr(out, "1 of 2"));
	assert_non_null(strstr(out, "bad?[2J"));
	assert_null(strchr(out, '\033'));
	assert_non_null(strstr(out, "12 sitsd"));
	assert_non_null(strstr(out, "2 processes of others"));
	assert_non_null(strstr(out, "infer: nobody is there"));
	json_decref(all);
	json_decref(before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(without_the_module, setup, teardown),
		cmocka_unit_test_setup_teardown(counters_are_taken_as_they_come, setup, teardown),
		cmocka_unit_test_setup_teardown(module_and_parameters, setup, teardown),
		cmocka_unit_test_setup_teardown(device_answers, setup, teardown),
		cmocka_unit_test(every_bit_is_named),
		cmocka_unit_test_setup_teardown(regions_by_descriptor, setup, teardown),
		cmocka_unit_test_setup_teardown(region_of_a_stranger, setup, teardown),
		cmocka_unit_test_setup_teardown(forged_names, setup, teardown),
		cmocka_unit_test_setup_teardown(other_files_by_their_fdinfo, setup, teardown),
		cmocka_unit_test_setup_teardown(hidden_processes_are_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(for_people, setup, teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
