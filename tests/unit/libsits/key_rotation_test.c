// SPDX-License-Identifier: MIT
/*
 * key_rotation_test.c - the change of a key that files are under: where the keys are at each step, killed before and after
 * each system call in turn, and what is written out to the disk before what.
 */
#include <keyutils.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include "libsits/key.h"
#include "sits/rekey.h"
#include "tests/unit/libsits/kill_util.h"

#define FILES	2
#define PLAIN	5000

static char spec[64];
static struct sits_key *first;			/* what is at spec when a test begins */
static uint8_t *key_text, *sealed[FILES];
static size_t key_len, sealed_len;

static const char *model(unsigned int i)
{
	static const char *const names[FILES] = { "m0.sits", "m1.sits" };

	return in_dir(names[i]);
}

/* The directory as it is in the beginning: the key and the files under it. */
static void start_again(void)
{
	unsigned int i;
	char dir[64];

	strcpy(dir, test_dir);
	remove_all(dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	write_file(in_dir("kek"), key_text, key_len, 0600);
	for (i = 0; i < FILES; i++)
		write_file(model(i), sealed[i], sealed_len, 0600);
}

static int setup(void **state)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = 4096, .threads = 1 };
	unsigned int i;

	kill_in_memory();
	if (dir_setup(state))
		return -1;
	first = make_key("kek");
	key_text = read_file(in_dir("kek"), &key_len);
	snprintf(spec, sizeof(spec), "file:%s", in_dir("kek"));
	free(make_plain(in_dir("plain"), PLAIN));
	for (i = 0; i < FILES; i++) {
		if (sits_seal(ctx, in_dir("plain"), model(i), first, &o))
			return -1;
		sealed[i] = read_file(model(i), &sealed_len);
	}
	return 0;
}

static int teardown(void **state)
{
	unsigned int i;

	for (i = 0; i < FILES; i++)
		free(sealed[i]);
	free(key_text);
	sits_key_close(first);
	return dir_teardown(state);
}

/* "file:PATH.old-ID" of a key. */
static const char *kept_of(const struct sits_key *key)
{
	static char kept[200];
	char hex[33];

	sits_hex(key->id, sizeof(key->id), hex);
	snprintf(kept, sizeof(kept), "%s.old-%s", spec, hex);
	return kept;
}

static bool exists(const char *file_spec)
{
	return !access(file_spec + strlen("file:"), F_OK);
}

static struct sits_key *open_key(const char *at)
{
	struct sits_key *key = NULL;

	log_clear();
	if (sits_key_open(ctx, at, &key))
		fail_msg("%s", test_log);
	return key;
}

static bool same(const struct sits_key *a, const struct sits_key *b)
{
	return !memcmp(a->raw, b->raw, sizeof(a->raw));
}

static bool opens(unsigned int i, const struct sits_key *key)
{
	return !sits_sealed_verify(ctx, model(i), key, NULL, NULL);
}

/* All of it, as the command does. */
static int rotate(const char *new_spec)
{
	struct sits_rekey_opts o = { .size = sizeof(o), .flags = SITS_REKEY_WAIT };
	struct sits_key_rotation *rot = NULL;
	uint32_t outcome;
	unsigned int i;
	int ret;

	ret = sits_key_rotation_begin(ctx, spec, new_spec, 0, &rot);
	for (i = 0; !ret && i < FILES; i++)
		ret = sits_sealed_change_key(ctx, model(i), sits_key_rotation_old(rot), sits_key_rotation_new(rot), &o,
					     &outcome);
	if (!ret)
		ret = sits_key_rotation_commit(rot);
	sits_key_rotation_end(rot);
	return ret;
}

static int rotate_in_place(void)
{
	return rotate(NULL);
}

static int rotate_to_a_place_of_its_own(void)
{
	char new_spec[80];

	snprintf(new_spec, sizeof(new_spec), "file:%s", in_dir("other"));
	return rotate(new_spec);
}

static void in_place(void **state)
{
	struct sits_key_rotation *rot = NULL;
	struct sits_key *now, *kept;
	char next[80];
	unsigned int i;

	start_again();
	snprintf(next, sizeof(next), "%s.next", spec);
	assert_int_equal(sits_key_rotation_begin(ctx, spec, NULL, 0, &rot), 0);
	assert_true(same(sits_key_rotation_old(rot), first));
	assert_false(same(sits_key_rotation_new(rot), first));
	assert_string_equal(sits_key_rotation_new_spec(rot), next);
	assert_string_equal(sits_key_rotation_kept_spec(rot), kept_of(first));
	now = open_key(next);
	assert_true(same(now, sits_key_rotation_new(rot)));
	sits_key_close(now);
	sits_key_rotation_end(rot);

	log_clear();
	if (rotate(NULL))
		fail_msg("%s", test_log);
	now = open_key(spec);
	kept = open_key(kept_of(first));
	assert_true(same(kept, first));
	assert_false(same(now, first));
	assert_false(exists(next));
	assert_int_equal(count_files(), FILES + 2);
	for (i = 0; i < FILES; i++)
		assert_true(opens(i, now) && !opens(i, first));

	/* Once more: the older key stays too. */
	assert_int_equal(rotate(NULL), 0);
	assert_true(exists(kept_of(first)) && exists(kept_of(now)));
	assert_int_equal(count_files(), FILES + 3);
	sits_key_close(now);
	sits_key_close(kept);
}

static void to_a_place_of_its_own(void **state)
{
	struct sits_key_rotation *rot = NULL;
	struct sits_key *now;
	char new_spec[80];
	unsigned int i;

	start_again();
	snprintf(new_spec, sizeof(new_spec), "file:%s", in_dir("other"));
	assert_int_equal(rotate_to_a_place_of_its_own(), 0);
	now = open_key(new_spec);
	for (i = 0; i < FILES; i++)
		assert_true(opens(i, now));
	assert_int_equal(count_files(), FILES + 2);
	sits_key_close(now);
	now = open_key(spec);
	assert_true(same(now, first));
	sits_key_close(now);
	assert_int_equal(sits_key_rotation_begin(ctx, spec, new_spec, 0, &rot), 0);
	assert_string_equal(sits_key_rotation_kept_spec(rot), spec);
	assert_string_equal(sits_key_rotation_new_spec(rot), new_spec);
	sits_key_rotation_end(rot);
}

/* Killed at each stop: every key that a file is under is there, and running it again ends the work. */
static void killed_anywhere_doing(int (*work)(void), const char *new_place)
{
	unsigned int n, i, by_old = 0, by_new = 0, committed = 0;
	struct sits_key *now, *new_key;
	char new_spec[80];
	bool killed = true;

	need_ptrace();
	snprintf(new_spec, sizeof(new_spec), "file:%s", in_dir(new_place));
	for (n = 1; killed; n++) {
		assert_true(n < STOPS_MAX);
		start_again();
		killed = run_killed(work, n);
		now = open_key(spec);
		new_key = exists(new_spec) ? open_key(new_spec) : NULL;
		if (!same(now, first)) {
			struct sits_key *kept = open_key(kept_of(first));

			assert_true(same(kept, first));
			sits_key_close(kept);
			committed++;
		}
		for (i = 0; i < FILES; i++) {
			bool is_old = opens(i, first), is_new = opens(i, now) || (new_key && opens(i, new_key));

			if (!is_old && !is_new)
				fail_msg("killed at stop %u: file %u is under no key that is there: %s", n, i, test_log);
			by_old += is_old;
			by_new += is_new && !is_old;
		}
		sits_key_close(now);
		sits_key_close(new_key);
		log_clear();
		if (work())
			fail_msg("killed at stop %u, the next run failed: %s", n, test_log);
		now = open_key(strcmp(new_place, "kek.next") ? new_spec : spec);
		for (i = 0; i < FILES; i++)
			assert_true(opens(i, now));
		assert_true(!strcmp(new_place, "other") || !exists(new_spec));
		sits_key_close(now);
	}
	print_message("# killed at %u points: %u files were under the old key, %u under the new; %u times the keys had changed places\n",
		      n - 2, by_old, by_new, committed);
	assert_true(by_old > 100 && by_new > 100);
	assert_true(strcmp(new_place, "kek.next") || committed > 3);
}

static void in_place_killed_anywhere(void **state)
{
	killed_anywhere_doing(rotate_in_place, "kek.next");
}

static void to_a_place_of_its_own_killed_anywhere(void **state)
{
	killed_anywhere_doing(rotate_to_a_place_of_its_own, "other");
}

/* ------------------------------------------------------------- what is on the disk before what */

/*
 * What a power failure leaves can't be made here, but the order that it is a matter of can be seen: each system call
 * that writes, by its name and the base name of what it is about.
 */
static char trace[16384];

static void note(const char *what, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t len = strlen(trace);

	/* Unnamed files, and the random part of temporary names. */
	if (strstr(path, "/#") || strstr(path, " (deleted)"))
		path = "unnamed";
	else
		path = !strcmp(path, test_dir) ? "DIR" : slash ? slash + 1 : path;
	snprintf(trace + len, sizeof(trace) - len, "%s %s\n", what, path);
}

static void note_fd(const char *what, pid_t pid, uint64_t fd)
{
	char proc[64], path[PATH_MAX];
	ssize_t n;

	snprintf(proc, sizeof(proc), "/proc/%d/fd/%d", pid, (int)fd);
	n = readlink(proc, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = '\0';
	note(what, path);
}

static void note_path(const char *what, pid_t pid, uint64_t addr)
{
	char proc[64], path[PATH_MAX] = "";
	int fd;

	snprintf(proc, sizeof(proc), "/proc/%d/mem", pid);
	fd = open(proc, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(pread(fd, path, sizeof(path) - 1, (off_t)addr) > 0);
	close(fd);
	note(what, path);
}

static void note_call(pid_t pid)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return;
	switch (info.entry.nr) {
	case SYS_fsync:
		note_fd("fsync", pid, info.entry.args[0]);
		break;
	case SYS_pwrite64:
		note_fd("write", pid, info.entry.args[0]);
		break;
	case SYS_linkat:
		note_path("link", pid, info.entry.args[3]);
		break;
	case SYS_renameat:
	case SYS_renameat2:
		note_path("rename", pid, info.entry.args[3]);
		break;
#ifdef SYS_rename
	case SYS_rename:
		note_path("rename", pid, info.entry.args[1]);
		break;
	case SYS_unlink:
		note_path("unlink", pid, info.entry.args[0]);
		break;
#endif
	case SYS_unlinkat:
		note_path("unlink", pid, info.entry.args[1]);
		break;
	}
}

static void run_traced(int (*work)(void))
{
	int status;
	pid_t pid;

	trace[0] = '\0';
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(work() ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)), 0);
	resume(pid, 0);
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == (SIGTRAP | 0x80))
			note_call(pid);
		resume(pid, WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status));
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* @lines, one after another, with others in between. */
static void assert_in_order(const char *const *lines)
{
	const char *at = trace;

	for (; *lines; lines++) {
		const char *found = strstr(at, *lines);

		if (!found)
			fail_msg("no '%s' where it must be in:\n%s", *lines, trace);
		at = found + strlen(*lines);
	}
}

static void what_is_on_the_disk_before_what(void **state)
{
	static const char *const fresh[] = {
		/* The new key, before anything is under it. */
		"write unnamed\n", "fsync unnamed\n", "link kek.next\n", "fsync DIR\n",
		/* Each file's journal before its header, and that before the journal goes. */
		"write unnamed\n", "fsync unnamed\n", ".m0.sits.sits-rekey\n", "fsync DIR\n", "write m0.sits\n", "fsync m0.sits\n",
		"unlink .m0.sits.sits-rekey\n",
		"fsync unnamed\n", ".m1.sits.sits-rekey\n", "fsync DIR\n", "write m1.sits\n", "fsync m1.sits\n",
		/* The old key in its second place, before it loses the first. */
		"fsync unnamed\n", "link kek.old-", "fsync DIR\n", "rename kek\n", "fsync DIR\n", NULL
	};
	/* The new key was there, by whoever: perhaps not on the disk. */
	static const char *const again[] = { "fsync kek.next\n", "fsync DIR\n", "write m0.sits\n", NULL };
	/* As was the old one in its second place. */
	static const char *const kept[] = { "fsync m1.sits\n", "fsync kek.old-", "fsync DIR\n", "rename kek\n", NULL };
	struct sits_key_rotation *rot = NULL;
	char text[40];

	need_ptrace();
	start_again();
	run_traced(rotate_in_place);
	if (!strstr(trace, "unnamed")) {
		print_message("# skip: no unnamed files (O_TMPFILE) in /tmp\n");
		skip();
	}
	assert_in_order(fresh);

	start_again();
	assert_int_equal(sits_key_rotation_begin(ctx, spec, NULL, 0, &rot), 0);
	sits_key_rotation_end(rot);
	sits_hex(first->raw, sizeof(first->raw), text);
	write_file(kept_of(first) + strlen("file:"), text, 32, 0600);
	run_traced(rotate_in_place);
	assert_in_order(again);
	assert_in_order(kept);
}

/* ------------------------------------------------------------------------------- refused */

static void refused(const char *from, const char *to, uint32_t flags, int want, const char *words)
{
	struct sits_key_rotation *rot = NULL;
	unsigned int files = count_files();
	int ret;

	log_clear();
	ret = sits_key_rotation_begin(ctx, from, to, flags, &rot);
	if (ret != want)
		fail_msg("%d, not %d: %s", ret, want, test_log);
	assert_null(rot);
	if (words)
		assert_logged(words);
	assert_int_equal(count_files(), files);
}

static void what_is_refused(void **state)
{
	struct sits_key_rotation *rot = NULL;
	char name[400] = "", at[200];
	uint8_t *now;
	size_t len;
	int fd;

	start_again();
	refused("kek", NULL, 0, -EINVAL, "file:PATH");
	refused("tpm:x", NULL, 0, -EOPNOTSUPP, "TPM");
	refused("keyring:x", NULL, 0, -EINVAL, "only a key in a file can be changed in place");
	refused("file:/nonexistent/kek", NULL, 0, -ENOENT, "/nonexistent/kek");
	refused(spec, "tpm:x", 0, -EOPNOTSUPP, "TPM");
	refused(spec, spec, 0, -EINVAL, "are the same");
	refused(spec, NULL, SITS_REKEY_RESEAL, -EINVAL, NULL);
	assert_int_equal(sits_key_rotation_begin(NULL, spec, NULL, 0, &rot), -EINVAL);
	assert_int_equal(sits_key_rotation_begin(ctx, spec, NULL, 0, NULL), -EINVAL);

	/* A name that leaves no room for the names of the other two. */
	snprintf(name, sizeof(name), "file:%s/", test_dir);
	memset(name + strlen(name), 'k', 230);
	write_file(name + strlen("file:"), key_text, key_len, 0600);
	refused(name, NULL, 0, -ENAMETOOLONG, "a place of its own");
	unlink(name + strlen("file:"));

	/* What waits to be the next key must be one. */
	snprintf(at, sizeof(at), "%s.next", in_dir("kek"));
	write_file(at, "no key", 6, 0600);
	refused(spec, NULL, 0, -EINVAL, "kek.next");
	write_file(at, key_text, key_len, 0644);
	refused(spec, NULL, 0, -EACCES, "kek.next");
	write_file(at, key_text, key_len, 0600);
	refused(spec, NULL, 0, -EINVAL, "are the same");
	unlink(at);

	/* Another rotation of the key runs; of another key's place it is none. */
	fd = open(in_dir("kek"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	refused(spec, NULL, 0, -EBUSY, "another rotation");
	close(fd);
	now = read_file(in_dir("kek"), &len);
	assert_int_equal(len, key_len);
	assert_memory_equal(now, key_text, len);
	free(now);
}

/* The keys are others when they are to change places: nothing is touched. */
static void keys_that_change_meanwhile(void **state)
{
	struct sits_key_rotation *rot;
	unsigned int how;
	char at[200];
	size_t len;
	uint8_t *now;

	for (how = 0; how < 5; how++) {
		unsigned int files;

		start_again();
		rot = NULL;
		assert_int_equal(sits_key_rotation_begin(ctx, spec, NULL, 0, &rot), 0);
		switch (how) {
		case 0:	/* another file at PATH, even with the same key */
			write_file(in_dir("kek"), key_text, key_len, 0600);
			break;
		case 1:	/* another key in the file */
			patch_file(in_dir("kek"), 0, key_text[0] == '0' ? "1" : "0", 1);
			break;
		case 2:	/* another key that waits */
			snprintf(at, sizeof(at), "%s.next", in_dir("kek"));
			write_file(at, key_text, key_len, 0600);
			break;
		case 3:	/* none waits */
			snprintf(at, sizeof(at), "%s.next", in_dir("kek"));
			unlink(at);
			break;
		default: /* where the old key is to be kept there is another */
			write_file(kept_of(first) + strlen("file:"), "00112233445566778899aabbccddeeff", 32, 0600);
		}
		files = count_files();
		log_clear();
		assert_int_equal(sits_key_rotation_commit(rot), how == 3 ? -ENOENT : -ESTALE);
		assert_logged("kek");
		sits_key_rotation_end(rot);
		assert_int_equal(count_files(), files);
		now = read_file(in_dir("kek"), &len);
		assert_memory_equal(now + 1, key_text + 1, key_len - 1);
		free(now);
	}
	sits_key_rotation_end(NULL);
	assert_int_equal(sits_key_rotation_commit(NULL), -EINVAL);
}

static void a_dry_run_makes_nothing(void **state)
{
	struct sits_key_rotation *rot = NULL;
	unsigned int files;

	start_again();
	files = count_files();
	assert_int_equal(sits_key_rotation_begin(ctx, spec, NULL, SITS_REKEY_DRY_RUN, &rot), 0);
	assert_null(sits_key_rotation_new(rot));
	assert_true(same(sits_key_rotation_old(rot), first));
	assert_int_equal(sits_key_rotation_commit(rot), -EINVAL);
	sits_key_rotation_end(rot);
	assert_int_equal(count_files(), files);
}

/* A key in a keyring serves as the new one, but is never made there: it would not outlive a restart. */
static void to_a_keyring(void **state)
{
	char at[64], desc[64];
	struct sits_key *key = NULL;
	key_serial_t serial;
	unsigned int i;

	snprintf(at, sizeof(at), "keyring:test-rotate-%d-%08x", getpid(), (unsigned int)rnd());
	snprintf(desc, sizeof(desc), "sits:%s", at + strlen("keyring:"));
	start_again();
	if (sits_key_create(ctx, at)) {
		print_message("# skip: no kernel keyrings here: %s\n", test_log);
		skip();
	}
	if (rotate(at))
		fail_msg("%s", test_log);
	key = open_key(at);
	for (i = 0; i < FILES; i++)
		assert_true(opens(i, key));
	/* And back, from the keyring to a file. */
	assert_int_equal(sits_key_save(ctx, key, "file:/nonexistent/x"), -ENOENT);
	sits_key_close(key);
	serial = (key_serial_t)keyctl_search(KEY_SPEC_USER_KEYRING, "user", desc, 0);
	assert_true(serial > 0);
	assert_int_equal(keyctl_unlink(serial, KEY_SPEC_USER_KEYRING), 0);
	refused(spec, at, 0, -ENOKEY, "lost with a restart");
	refused(spec, at, SITS_REKEY_DRY_RUN, -ENOKEY, "lost with a restart");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_place),
		cmocka_unit_test(to_a_place_of_its_own),
		cmocka_unit_test(in_place_killed_anywhere),
		cmocka_unit_test(to_a_place_of_its_own_killed_anywhere),
		cmocka_unit_test(what_is_on_the_disk_before_what),
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(keys_that_change_meanwhile),
		cmocka_unit_test(a_dry_run_makes_nothing),
		cmocka_unit_test(to_a_keyring),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("rotation", tests, setup, teardown);
}
