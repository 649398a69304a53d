/* SPDX-License-Identifier: MIT */
/*
 * sealed_util.h - what the tests of keys and sealed files share: a directory, a context that keeps its log, files.
 */
#ifndef SITS_TESTS_SEALED_UTIL_H
#define SITS_TESTS_SEALED_UTIL_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "sits/context.h"
#include "sits/region.h"
#include "sits/sealed.h"
#include "tests/unit/libsits/providers.h"

#define UNUSED __attribute__((unused))

static const char *test_parent = "/tmp";	/* where dir_setup() makes test_dir */
static char test_dir[32];
static char test_log[8192];	/* all lines since log_clear() */
static struct sits_ctx *ctx;
static uint64_t rng_state;

static UNUSED void log_clear(void)
{
	test_log[0] = '\0';
}

static UNUSED void keep_line(void *arg, int severity, const char *line)
{
	size_t len = strlen(test_log);

	snprintf(test_log + len, sizeof(test_log) - len, "%d %s\n", severity, line);
}

/* The log has an ERR line with @part in it. */
static UNUSED void assert_logged(const char *part)
{
	if (!strstr(test_log, part) || !strstr(test_log, "3 "))
		fail_msg("the log has no '%s': %s", part, test_log);
}

/* xorshift64*: the seed is printed by dir_setup(). */
static UNUSED uint64_t rnd(void)
{
	rng_state ^= rng_state >> 12;
	rng_state ^= rng_state << 25;
	rng_state ^= rng_state >> 27;
	return rng_state * 0x2545f4914f6cdd1dull;
}

static UNUSED const char *in_dir(const char *name)
{
	static char paths[8][512];
	static unsigned int next;
	char *p = paths[next++ % 8];

	snprintf(p, sizeof(paths[0]), "%s/%s", test_dir, name);
	return p;
}

static UNUSED void remove_all(const char *dir)
{
	char path[600];
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (unlink(path) && errno == EISDIR)
			remove_all(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

static UNUSED int dir_setup(void **state)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = test_provider, .log = keep_line };
	const char *seed = getenv("SITS_TEST_SEED");

	if (seed)
		rng_state = strtoull(seed, NULL, 0);
	else if (getrandom(&rng_state, sizeof(rng_state), 0) != (ssize_t)sizeof(rng_state))
		return -1;
	rng_state |= 1;
	printf("# SITS_TEST_SEED=0x%" PRIx64 "\n", rng_state);
	snprintf(test_dir, sizeof(test_dir), "%s/sits-sealed-XXXXXX", test_parent);
	return mkdtemp(test_dir) && !sits_open(&o, &ctx) ? 0 : -1;
}

static UNUSED int dir_teardown(void **state)
{
	sits_close(ctx);
	remove_all(test_dir);
	return 0;
}

static UNUSED void write_file(const char *path, const void *data, size_t len, mode_t mode)
{
	int fd;

	/* A new file: one that is there may be read-only. */
	unlink(path);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

/* All of a file; freed by the caller. */
static UNUSED uint8_t *read_file(const char *path, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *p;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	p = malloc((size_t)st.st_size + 1);
	assert_non_null(p);
	assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
	close(fd);
	*len = (size_t)st.st_size;
	return p;
}

static UNUSED void patch_file(const char *path, uint64_t off, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, len, (off_t)off), len);
	close(fd);
}

static UNUSED unsigned int count_files(void)
{
	unsigned int n = 0;
	struct dirent *e;
	DIR *d = opendir(test_dir);

	assert_non_null(d);
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(d);
	return n;
}

static UNUSED void fill_random(uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(rnd() >> 32);
}

/* A file of random bytes; they are returned too, to be freed by the caller. */
static UNUSED uint8_t *make_plain(const char *path, size_t len)
{
	uint8_t *p = malloc(len + 1);

	assert_non_null(p);
	fill_random(p, len);
	write_file(path, p, len, 0600);
	return p;
}

/* A key in test_dir, opened. */
static UNUSED struct sits_key *make_key(const char *name)
{
	struct sits_key *key = NULL;
	char spec[300];

	snprintf(spec, sizeof(spec), "file:%s", in_dir(name));
	assert_int_equal(sits_key_create(ctx, spec), 0);
	assert_int_equal(sits_key_open(ctx, spec, &key), 0);
	return key;
}

static UNUSED struct sits_region *make_region(uint64_t len)
{
	struct sits_region_opts o = { .size = sizeof(o), .kind = SITS_REGION_PINNED, .node = -1, .len_bytes = len,
				      .flags = SITS_REGION_ALLOW_UNLOCKED, .name = "test" };
	struct sits_region *r = NULL;

	assert_int_equal(sits_region_create(ctx, &o, &r), 0);
	return r;
}

static UNUSED bool all_zero(const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

#endif
