// SPDX-License-Identifier: MIT
/*
 * rekey_test.c - putting one file under another key as those do that go through many: what became of it, what is left as it
 * is, and several at once. For each provider in $SITS_TEST_PROVIDERS. Kills are in seal_crash_test.c and key_rotation_test.c.
 */
#include <sys/file.h>
#include <sys/wait.h>

#include "sits/rekey.h"
#include "tests/unit/libsits/sealed_util.h"

#define CHUNK	4096
#define PLAIN	(5 * CHUNK + 100)

static struct sits_key *a, *b, *c;
static uint8_t *plain;

static int setup(void **state)
{
	if (dir_setup(state))
		return -1;
	a = make_key("a.key");
	b = make_key("b.key");
	c = make_key("c.key");
	plain = make_plain(in_dir("plain"), PLAIN);
	return 0;
}

static int teardown(void **state)
{
	sits_key_close(a);
	sits_key_close(b);
	sits_key_close(c);
	free(plain);
	return dir_teardown(state);
}

static const char *sealed_under(const struct sits_key *key)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = CHUNK, .threads = 1, .force = 1 };
	static char path[64];

	snprintf(path, sizeof(path), "%s/m.sits", test_dir);
	assert_int_equal(sits_seal(ctx, in_dir("plain"), path, key, &o), 0);
	return path;
}

static bool opens(const char *path, const struct sits_key *key)
{
	return !sits_sealed_verify(ctx, path, key, NULL, NULL);
}

static int change(const char *path, const struct sits_key *from, const struct sits_key *to, uint32_t flags, uint32_t *outcome)
{
	struct sits_rekey_opts o = { .size = sizeof(o), .flags = flags, .threads = 1 };

	*outcome = 99;
	log_clear();
	return sits_sealed_change_key(ctx, path, from, to, &o, outcome);
}

/* Files under each key, in each way of changing it, done and only looked at. */
static void outcomes(void **state)
{
	static const struct {
		int under;			/* 0: a, 1: b, 2: c */
		uint32_t skip;
		int ret;
		uint32_t outcome;
	} cases[] = {
		{ 0, 0, 0, SITS_REKEY_CHANGED },
		{ 0, SITS_REKEY_SKIP_OTHER, 0, SITS_REKEY_CHANGED },
		{ 1, 0, 0, SITS_REKEY_ALREADY },
		{ 1, SITS_REKEY_SKIP_OTHER, 0, SITS_REKEY_ALREADY },
		{ 2, 0, -ENOKEY, 99 },
		{ 2, SITS_REKEY_SKIP_OTHER, 0, SITS_REKEY_OTHER },
	};
	struct sits_key *const keys[] = { a, b, c };
	uint8_t *before, *after;
	uint32_t reseal, dry, outcome;
	size_t i, len, len2;
	unsigned int files;
	const char *path;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]) * 4; i++) {
		const struct sits_key *under = keys[cases[i / 4].under];

		reseal = i & 1 ? SITS_REKEY_RESEAL : 0;
		dry = i & 2 ? SITS_REKEY_DRY_RUN : 0;
		path = sealed_under(under);
		files = count_files();
		before = read_file(path, &len);
		if (change(path, a, b, cases[i / 4].skip | reseal | dry, &outcome) != cases[i / 4].ret ||
		    outcome != cases[i / 4].outcome)
			fail_msg("case %zu, reseal %u, dry %u: outcome %u: %s", i / 4, reseal, dry, outcome, test_log);
		after = read_file(path, &len2);
		assert_int_equal(len, len2);
		assert_int_equal(count_files(), files);
		if (outcome == SITS_REKEY_CHANGED && !dry) {
			assert_true(opens(path, b));
			assert_false(opens(path, a));
			assert_int_equal(!memcmp(before + 4096, after + 4096, len - 4096), !reseal);
		} else {
			assert_memory_equal(before, after, len);
			assert_true(opens(path, under));
		}
		if (cases[i / 4].ret)
			assert_logged("wrong key");
		free(before);
		free(after);
	}
}

static void the_same_key_is_a_fresh_wrap(void **state)
{
	const char *path = sealed_under(a);
	uint8_t *before, *after;
	uint32_t outcome;
	size_t len;

	before = read_file(path, &len);
	assert_int_equal(change(path, a, a, 0, &outcome), 0);
	assert_int_equal(outcome, SITS_REKEY_CHANGED);
	after = read_file(path, &len);
	assert_memory_not_equal(before, after, 4096);
	assert_memory_equal(before + 4096, after + 4096, len - 4096);
	assert_true(opens(path, a));
	free(before);
	free(after);
}

static void wrong_arguments(void **state)
{
	struct sits_rekey_opts o = { .size = sizeof(o) };
	const char *path = sealed_under(a);
	uint8_t *before, *after;
	uint32_t outcome;
	size_t len;

	before = read_file(path, &len);
	assert_int_equal(sits_sealed_change_key(NULL, path, a, b, &o, &outcome), -EINVAL);
	assert_int_equal(sits_sealed_change_key(ctx, NULL, a, b, &o, &outcome), -EINVAL);
	assert_int_equal(sits_sealed_change_key(ctx, path, NULL, b, &o, &outcome), -EINVAL);
	assert_int_equal(sits_sealed_change_key(ctx, path, a, NULL, &o, &outcome), -EINVAL);
	assert_int_equal(sits_sealed_change_key(ctx, path, a, b, &o, NULL), -EINVAL);
	o.flags = 1u << 4;
	assert_int_equal(sits_sealed_change_key(ctx, path, a, b, &o, &outcome), -EINVAL);
	o.flags = 0;
	o.reserved = 1;
	assert_int_equal(sits_sealed_change_key(ctx, path, a, b, &o, &outcome), -EINVAL);
	o.reserved = 0;
	o.size--;
	assert_int_equal(sits_sealed_change_key(ctx, path, a, b, &o, &outcome), -EINVAL);
	after = read_file(path, &len);
	assert_memory_equal(before, after, len);
	free(before);
	free(after);
}

/* What is no good is refused, and is as it was; a dry run finds it too. */
static void what_is_refused(void **state)
{
	static const struct {
		const char *what;
		uint64_t off;
		int ret;
	} cases[] = {
		{ "magic", 0, -EBADMSG }, { "version", 8, -EPROTONOSUPPORT }, { "model id", 70, -EBADMSG },
		{ "key id", 200, -ENOKEY }, { "wrapped key", 4070, -EBADMSG }, { "wrap tag", 4090, -EBADMSG },
	};
	const char *path = sealed_under(a);
	uint8_t *good, *now;
	uint32_t outcome, dry;
	size_t i, len, len2;

	good = read_file(path, &len);
	for (i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t byte = good[cases[i / 2].off] ^ 1;

		dry = i & 1 ? SITS_REKEY_DRY_RUN : 0;
		patch_file(path, cases[i / 2].off, &byte, 1);
		if (change(path, a, b, dry, &outcome) != cases[i / 2].ret)
			fail_msg("%s: %s", cases[i / 2].what, test_log);
		assert_logged("m.sits: ");
		now = read_file(path, &len2);
		assert_int_equal(now[cases[i / 2].off], byte);
		now[cases[i / 2].off] ^= 1;
		assert_memory_equal(now, good, len);
		free(now);
		patch_file(path, 0, good, 4096);
	}
	assert_int_equal(change(in_dir("none"), a, b, 0, &outcome), -ENOENT);
	assert_int_equal(change(in_dir("none"), a, b, SITS_REKEY_DRY_RUN, &outcome), -ENOENT);
	assert_int_equal(change(test_dir, a, b, SITS_REKEY_DRY_RUN, &outcome), -EISDIR);
	assert_int_equal(change(in_dir("plain"), a, b, SITS_REKEY_DRY_RUN, &outcome), -EBADMSG);
	/* Some byte of the contents: a rewrap does not read it, a reseal does. */
	patch_file(path, len - 1, "\xff\xff", 1);
	if (good[len - 1] == 0xff)
		patch_file(path, len - 1, "\xfe", 1);
	assert_int_equal(change(path, a, b, SITS_REKEY_RESEAL, &outcome), -EBADMSG);
	assert_logged("chunk 5 ");
	assert_int_equal(change(path, a, b, 0, &outcome), 0);
	free(good);
}

static void a_dry_run_tells_what_cannot_be_written(void **state)
{
	const char *path = sealed_under(a);
	uint32_t outcome;
	pid_t pid;
	int status;

	if (geteuid()) {
		print_message("# skip: not root, who alone can become another user\n");
		skip();
	}
	assert_int_equal(chmod(test_dir, 0755), 0);
	assert_int_equal(chmod(path, 0644), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct sits_key *key = NULL;
		char spec[80];

		/* Its copies of the keys are zeros. */
		snprintf(spec, sizeof(spec), "file:%s", in_dir("a.key"));
		if (sits_key_open(ctx, spec, &key) || setegid(65534) || seteuid(65534))
			_exit(9);
		if (change(path, key, key, SITS_REKEY_DRY_RUN, &outcome) != -EACCES || !strstr(test_log, "can't be written"))
			_exit(1);
		_exit(change(path, key, key, SITS_REKEY_DRY_RUN | SITS_REKEY_RESEAL, &outcome) == -EACCES ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(chmod(test_dir, 0700), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A journal has a longer name than its file. */
static void a_dry_run_tells_what_has_too_long_a_name(void **state)
{
	char name[NAME_MAX + 1];
	const char *path;
	uint32_t outcome;
	size_t len;

	/* "." in front and ".sits-rekey" behind. */
	for (len = NAME_MAX - 12; len <= NAME_MAX; len += len == NAME_MAX - 12 ? 1 : 11) {
		memset(name, 'n', len);
		name[len] = '\0';
		path = in_dir(name);
		assert_int_equal(rename(sealed_under(a), path), 0);
		assert_int_equal(change(path, a, b, SITS_REKEY_DRY_RUN, &outcome), len == NAME_MAX - 12 ? 0 : -ENAMETOOLONG);
		assert_int_equal(change(path, a, b, 0, &outcome), len == NAME_MAX - 12 ? 0 : -ENAMETOOLONG);
		if (len > NAME_MAX - 12)
			assert_logged("give it a shorter name");
		/* A reseal has none. */
		assert_int_equal(change(path, a, c, SITS_REKEY_RESEAL | SITS_REKEY_DRY_RUN, &outcome), len == NAME_MAX - 12 ? -ENOKEY : 0);
		assert_int_equal(unlink(path), 0);
	}
}

/* ---------------------------------------------------------------- several at once */

struct waiting {
	int fd, calls;
	bool give_up;
	const char *replace_by;
};

/* The caller waits: after a few rounds whoever has the file goes. */
static int on_wait(void *arg)
{
	struct waiting *w = arg;

	if (++w->calls < 3)
		return 0;
	if (w->give_up)
		return 1;
	if (w->replace_by)
		assert_int_equal(rename(w->replace_by, in_dir("m.sits")), 0);
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	return 0;
}

static void waiting_for_another_process(void **state)
{
	struct waiting w;
	struct sits_rekey_opts o = { .size = sizeof(o), .threads = 1, .waiting = on_wait, .progress_arg = &w };
	const char *path = sealed_under(a);
	uint32_t outcome;
	uint8_t *was;
	size_t len;

	was = read_file(path, &len);
	w = (struct waiting){ .fd = open(path, O_RDONLY | O_CLOEXEC) };
	assert_int_equal(flock(w.fd, LOCK_EX), 0);
	assert_int_equal(sits_sealed_change_key(ctx, path, a, b, &o, &outcome), -EBUSY);
	assert_int_equal(w.calls, 0);
	w.give_up = true;
	o.flags = SITS_REKEY_WAIT;
	assert_int_equal(sits_sealed_change_key(ctx, path, a, b, &o, &outcome), -ECANCELED);
	assert_int_equal(w.calls, 3);
	assert_true(opens(path, a));
	w.give_up = false;
	assert_int_equal(sits_sealed_change_key(ctx, path, a, b, &o, &outcome), 0);
	assert_int_equal(outcome, SITS_REKEY_CHANGED);
	assert_true(opens(path, b));

	/* The one that was waited for put another file in its place, as a reseal does: that one is changed then. */
	write_file(in_dir("other"), was, len, 0600);
	w = (struct waiting){ .fd = open(path, O_RDONLY | O_CLOEXEC), .replace_by = in_dir("other") };
	assert_int_equal(flock(w.fd, LOCK_EX), 0);
	assert_int_equal(sits_sealed_change_key(ctx, path, a, c, &o, &outcome), 0);
	assert_int_equal(outcome, SITS_REKEY_CHANGED);
	assert_true(opens(path, c));
	free(was);
}

/* In a child: keys in a ring, round and round, whichever the file is under. */
static int change_for_long(const char *path, unsigned int who)
{
	static const char *const names[] = { "a.key", "b.key", "c.key" };
	struct sits_key *keys[3];
	uint32_t outcome;
	unsigned int i;
	char spec[80];
	int ret;

	for (i = 0; i < 3; i++) {
		snprintf(spec, sizeof(spec), "file:%s", in_dir(names[i]));
		if (sits_key_open(ctx, spec, &keys[i]))
			return 10;
	}
	for (i = 0; i < (unsigned int)test_rounds(60, 20); i++) {
		uint32_t reseal = (i + who) % 8 == 7 ? SITS_REKEY_RESEAL : 0;

		ret = change(path, keys[i % 3], keys[(i + 1) % 3], SITS_REKEY_WAIT | SITS_REKEY_SKIP_OTHER | reseal, &outcome);
		if (ret) {
			fprintf(stderr, "# rekeyer %u, round %u: %d: %s\n", who, i, ret, test_log);
			return 11;
		}
	}
	return 0;
}

static void start_rekeyers(const char *path, unsigned int n)
{
	unsigned int i;
	pid_t pid;

	for (i = 0; i < n; i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(change_for_long(path, i));
	}
}

/* Return: how many have come to their end since, all well. */
static unsigned int rekeyers_done(void)
{
	unsigned int n = 0;
	int status;

	while (waitpid(-1, &status, WNOHANG) > 0) {
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		n++;
	}
	return n;
}

/* Three rekey the file all the time: whoever reads it meanwhile finds it under one of the keys, never broken. */
static void readers_and_rekeyers_at_once(void **state)
{
	const char *path = sealed_under(a);
	unsigned int left = 3, reads = 0, files = count_files();
	struct sits_key *const keys[] = { a, b, c };
	int ret;

	start_rekeyers(path, left);
	while (left) {
		struct sits_sealed_info info;

		log_clear();
		ret = sits_sealed_inspect(ctx, path, keys[reads++ % 3], &info);
		if (ret && ret != -ENOKEY)
			fail_msg("read %u: %d: %s", reads, ret, test_log);
		left -= rekeyers_done();
	}
	print_message("# read %u times meanwhile\n", reads);
	assert_int_equal(opens(path, a) + opens(path, b) + opens(path, c), 1);
	assert_int_equal(count_files(), files);
}

/* And whoever loads it has all of it, or is told that it is under another key or changed under his hands. */
static void loads_and_rekeyers_at_once(void **state)
{
	const char *path = sealed_under(a);
	unsigned int left = 2, loads = 0, whole = 0;
	struct sits_key *const keys[] = { a, b, c };
	struct sits_region *region;
	int ret;

	start_rekeyers(path, left);
	while (left) {
		log_clear();
		region = make_region(PLAIN);
		ret = sits_weights_load(ctx, path, region, keys[loads++ % 3], NULL, NULL);
		if (!ret) {
			whole++;
			assert_memory_equal(sits_region_data(region), plain, PLAIN);
		} else if (ret != -ENOKEY && ret != -ESTALE) {
			fail_msg("load %u: %d: %s", loads, ret, test_log);
		}
		sits_region_destroy(region);
		left -= rekeyers_done();
	}
	print_message("# loaded %u times meanwhile, %u times all of it\n", loads, whole);
	assert_int_equal(opens(path, a) + opens(path, b) + opens(path, c), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(outcomes),
		cmocka_unit_test(the_same_key_is_a_fresh_wrap),
		cmocka_unit_test(wrong_arguments),
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(a_dry_run_tells_what_cannot_be_written),
		cmocka_unit_test(a_dry_run_tells_what_has_too_long_a_name),
		cmocka_unit_test(waiting_for_another_process),
		cmocka_unit_test(readers_and_rekeyers_at_once),
		cmocka_unit_test(loads_and_rekeyers_at_once),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return run_on_providers(tests, sizeof(tests) / sizeof(tests[0]), setup, teardown);
}
