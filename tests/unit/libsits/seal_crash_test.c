// SPDX-License-Identifier: MIT
/*
 * seal_crash_test.c - sealing and rekeying, killed before and after each of their system calls in turn.
 *
 * A child does the work under ptrace and is killed at its n-th stop, n = 1, 2, 3, ... until it gets to its end.
 * After each death the files must be in a state that the documentation allows, and the next run must bring
 * them to the end and leave nothing behind. Half-written header pages, which no kill can make, are made by hand.
 */
#include <linux/limits.h>
#include <sys/file.h>
#include <sys/xattr.h>

#include "crypto/sealed.h"
#include "libsits/journal.h"
#include "libsits/tmpfile.h"
#include "tests/unit/libsits/kill_util.h"

#define PLAIN	30000

static struct sits_key *old_key, *new_key;
static char old_spec[64], new_spec[64];
static uint8_t *plain;

static int setup(void **state)
{
	kill_in_memory();
	if (dir_setup(state))
		return -1;
	old_key = make_key("old.key");
	new_key = make_key("new.key");
	snprintf(old_spec, sizeof(old_spec), "file:%s", in_dir("old.key"));
	snprintf(new_spec, sizeof(new_spec), "file:%s", in_dir("new.key"));
	plain = make_plain(in_dir("plain"), PLAIN);
	return 0;
}

static int teardown(void **state)
{
	sits_key_close(old_key);
	sits_key_close(new_key);
	free(plain);
	return dir_teardown(state);
}

/* ------------------------------------------------------------------- sealing */

static uint32_t force;

static int seal_again(const struct sits_key *key)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = 4096, .threads = 1, .force = force };

	return sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o);
}

/* In the child, whose copies of the keys are zeros. */
static int child_seal(void)
{
	struct sits_key *key = NULL;
	int ret = sits_key_open(ctx, old_spec, &key);

	ret = ret ? ret : seal_again(key);
	sits_key_close(key);
	return ret;
}

static void sealing_killed_anywhere(void **state)
{
	unsigned int n, files, left = 0;
	uint8_t *is;
	size_t len;

	need_ptrace();
	files = count_files();
	for (force = 0; force < 2; force++) {
		bool killed = true;

		for (n = 1; killed; n++) {
			assert_true(n < STOPS_MAX);
			if (force)
				write_file(in_dir("out"), "old", 3, 0600);
			killed = run_killed(child_seal, n);
			if (access(in_dir("out"), F_OK)) {
				assert_int_equal(force, 0);
			} else {
				is = read_file(in_dir("out"), &len);
				if (force && len == 3)
					assert_memory_equal(is, "old", 3);
				else
					assert_int_equal(sits_sealed_verify(ctx, in_dir("out"), old_key, NULL, NULL), 0);
				free(is);
				unlink(in_dir("out"));
			}
			left += count_files() - files;
			/* The next run ends it, and leaves nothing. */
			assert_int_equal(seal_again(old_key), 0);
			assert_int_equal(sits_sealed_verify(ctx, in_dir("out"), old_key, NULL, NULL), 0);
			assert_int_equal(count_files(), files + 1);
			unlink(in_dir("out"));
		}
		print_message("# sealing, force %u: killed at %u points, %u files were left for the next run\n", force, n - 2,
			      left);
		assert_true(n > 50);
	}
}

static int child_named(void)
{
	struct sits_tmpfile t;
	int ret;

	ret = sits_tmpfile_open(ctx, in_dir("out"), 0600, force, SITS_TMPFILE_NAMED, &t);
	if (!ret && write(t.fd, "whole", 5) != 5)
		return -EIO;
	return ret ? ret : sits_tmpfile_commit(&t);
}

/* As on a filesystem without O_TMPFILE. */
static void named_temporary_file_killed_anywhere(void **state)
{
	unsigned int n, files, left = 0;
	uint8_t *is;
	size_t len;

	need_ptrace();
	files = count_files();
	for (force = 0; force < 2; force++) {
		bool killed = true;

		for (n = 1; killed; n++) {
			assert_true(n < STOPS_MAX);
			killed = run_killed(child_named, n);
			if (!access(in_dir("out"), F_OK)) {
				is = read_file(in_dir("out"), &len);
				assert_int_equal(len, 5);
				free(is);
				unlink(in_dir("out"));
			}
			left += count_files() - files;
			assert_int_equal(child_named(), 0);
			assert_int_equal(count_files(), files + 1);
			unlink(in_dir("out"));
		}
	}
	/* Here a kill does leave files: the test would show nothing otherwise. */
	assert_true(left > 10);
}

/* ------------------------------------------------------------------- rekeying */

static int child_rekey(void)
{
	struct sits_key *a = NULL, *b = NULL;
	int ret = sits_key_open(ctx, old_spec, &a);

	if (!ret)
		ret = sits_key_open(ctx, new_spec, &b);
	if (!ret)
		ret = sits_sealed_rekey(ctx, in_dir("m.sits"), a, b);
	sits_key_close(a);
	sits_key_close(b);
	return ret;
}

static bool opens(const struct sits_key *key)
{
	return !sits_sealed_verify(ctx, in_dir("m.sits"), key, NULL, NULL);
}

/* Running it again ends it: under the new key, the chunks untouched, nothing else left. */
static void rekey_to_the_end(const uint8_t *sealed, size_t sealed_len, unsigned int files)
{
	uint8_t *is;
	size_t len;

	log_clear();
	if (sits_sealed_rekey(ctx, in_dir("m.sits"), old_key, new_key))
		fail_msg("the rekey after it failed: %s", test_log);
	assert_true(opens(new_key));
	assert_false(opens(old_key));
	is = read_file(in_dir("m.sits"), &len);
	assert_int_equal(len, sealed_len);
	assert_memory_equal(is + 4096, sealed + 4096, len - 4096);
	free(is);
	assert_int_equal(count_files(), files);
}

static void rekeying_killed_anywhere(void **state)
{
	unsigned int n, files, old_left = 0, new_left = 0;
	bool killed = true;
	uint8_t *sealed;
	size_t len;

	need_ptrace();
	force = 0;
	assert_int_equal(seal_again(old_key), 0);
	assert_int_equal(rename(in_dir("out"), in_dir("m.sits")), 0);
	sealed = read_file(in_dir("m.sits"), &len);
	files = count_files();
	for (n = 1; killed; n++) {
		assert_true(n < STOPS_MAX);
		killed = run_killed(child_rekey, n);
		if (opens(old_key))
			old_left++;
		else if (opens(new_key))
			new_left++;
		else
			fail_msg("killed at stop %u, the file is under neither key: %s", n, test_log);
		rekey_to_the_end(sealed, len, files);
		write_file(in_dir("m.sits"), sealed, len, 0600);
	}
	print_message("# rekeying: killed at %u points; %u times the file was under the old key, %u times under the new\n",
		      n - 2, old_left, new_left);
	assert_true(old_left > 10 && new_left > 3);
	free(sealed);
}

static int child_reseal(void)
{
	struct sits_load_opts o = { .size = sizeof(o), .threads = 1 };
	struct sits_key *a = NULL, *b = NULL;
	int ret = sits_key_open(ctx, old_spec, &a);

	if (!ret)
		ret = sits_key_open(ctx, new_spec, &b);
	if (!ret)
		ret = sits_sealed_reseal(ctx, in_dir("m.sits"), a, b, &o);
	sits_key_close(a);
	sits_key_close(b);
	return ret;
}

static void resealing_killed_anywhere(void **state)
{
	unsigned int n, files, old_left = 0, new_left = 0;
	bool killed = true;
	uint8_t *sealed;
	size_t len;

	need_ptrace();
	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	assert_int_equal(rename(in_dir("out"), in_dir("m.sits")), 0);
	sealed = read_file(in_dir("m.sits"), &len);
	files = count_files();
	for (n = 1; killed; n++) {
		assert_true(n < STOPS_MAX);
		killed = run_killed(child_reseal, n);
		log_clear();
		if (opens(old_key)) {
			old_left++;
			if (sits_sealed_reseal(ctx, in_dir("m.sits"), old_key, new_key, NULL))
				fail_msg("the reseal after it failed: %s", test_log);
		} else if (opens(new_key)) {
			new_left++;
		} else {
			fail_msg("killed at stop %u, the file is under neither key: %s", n, test_log);
		}
		assert_true(opens(new_key));
		assert_int_equal(count_files(), files);
		write_file(in_dir("m.sits"), sealed, len, 0600);
	}
	print_message("# resealing: killed at %u points; %u times the file was under the old key, %u times under the new\n",
		      n - 2, old_left, new_left);
	assert_true(old_left > 50 && new_left > 1);
	free(sealed);
}

/* Power failed in the middle of the page: any sector may be old or new. */
static void half_written_headers(void **state)
{
	struct sits_sealed_info info;
	struct sits_journal j;
	unsigned int mix, s, files, differ = 0;
	uint8_t *sealed, *rekeyed, page[4096];
	size_t len;

	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	assert_int_equal(rename(in_dir("out"), in_dir("m.sits")), 0);
	files = count_files();
	sealed = read_file(in_dir("m.sits"), &len);
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("m.sits"), old_key, new_key), 0);
	rekeyed = read_file(in_dir("m.sits"), &len);
	assert_memory_not_equal(sealed, rekeyed, 4096);
	memcpy(j.old_page, sealed, 4096);
	memcpy(j.new_page, rekeyed, 4096);
	for (s = 0; s < 8; s++)
		differ |= (unsigned int)!!memcmp(sealed + 512 * s, rekeyed + 512 * s, 512) << s;
	for (mix = 0; mix < 256; mix++) {
		bool torn;

		if (mix & ~differ)
			continue;
		for (s = 0; s < 8; s++)
			memcpy(page + 512 * s, (mix >> s & 1 ? rekeyed : sealed) + 512 * s, 512);
		torn = memcmp(page, sealed, 4096) && memcmp(page, rekeyed, 4096);
		patch_file(in_dir("m.sits"), 0, page, 4096);
		/* Without the journal the file would be lost: that is what it is for. */
		assert_true(!torn || (!opens(old_key) && !opens(new_key)));
		assert_int_equal(sits_journal_write(ctx, in_dir("m.sits"), &j), 0);
		assert_true(opens(old_key) == (torn || !memcmp(page, sealed, 4096)));
		assert_true(opens(new_key) == (torn || !memcmp(page, rekeyed, 4096)));
		assert_int_equal(sits_sealed_inspect(ctx, in_dir("m.sits"), NULL, &info), 0);
		rekey_to_the_end(sealed, len, files);
		patch_file(in_dir("m.sits"), 0, sealed, 4096);
	}
	free(sealed);
	free(rekeyed);
}

/* A rekey from a to b was cut short in the page, and the file is to go on to a third key. */
static void half_written_headers_and_other_keys(void **state)
{
	struct sits_key *third = make_key("third.key"), *fourth = make_key("fourth.key");
	uint8_t *sealed, *rekeyed, page[4096], *is;
	struct sits_journal j;
	unsigned int files, how;
	size_t len, len2;

	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	assert_int_equal(rename(in_dir("out"), in_dir("m.sits")), 0);
	files = count_files();
	sealed = read_file(in_dir("m.sits"), &len);
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("m.sits"), old_key, new_key), 0);
	rekeyed = read_file(in_dir("m.sits"), &len);
	memcpy(j.old_page, sealed, 4096);
	memcpy(j.new_page, rekeyed, 4096);
	memcpy(page, rekeyed, 4096);
	memcpy(page, sealed, 512);
	for (how = 0; how < 4; how++) {
		const struct sits_key *from = how & 1 ? new_key : old_key;

		patch_file(in_dir("m.sits"), 0, page, 4096);
		assert_int_equal(sits_journal_write(ctx, in_dir("m.sits"), &j), 0);
		assert_true(opens(from));
		/* Keys that have nothing to do with it change nothing, and the right ones are named. */
		log_clear();
		assert_int_equal(how & 2 ? sits_sealed_reseal(ctx, in_dir("m.sits"), third, fourth, NULL) :
				 sits_sealed_rekey(ctx, in_dir("m.sits"), third, fourth), -ENOKEY);
		assert_logged("was cut short; give one of these");
		is = read_file(in_dir("m.sits"), &len2);
		assert_memory_equal(is, page, 4096);
		free(is);
		assert_int_equal(count_files(), files + 1);

		log_clear();
		if (how & 2 ? sits_sealed_reseal(ctx, in_dir("m.sits"), from, third, NULL) :
		    sits_sealed_rekey(ctx, in_dir("m.sits"), from, third))
			fail_msg("from the %s key: %s", how & 1 ? "new" : "old", test_log);
		assert_true(opens(third));
		assert_false(opens(old_key) || opens(new_key));
		assert_int_equal(count_files(), files);
		write_file(in_dir("m.sits"), sealed, len, 0600);
	}
	free(sealed);
	free(rekeyed);
	sits_key_close(third);
	sits_key_close(fourth);
}

/* Who can read the file can read the journal, and nobody else. */
static void modes_of_journals(void **state)
{
	static const mode_t modes[] = { 0600, 0640, 0644, 0755 };
	struct sits_journal j = { 0 };
	mode_t before = umask(077);
	struct stat st;
	char name[128];
	size_t i;

	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	snprintf(name, sizeof(name), "%s/.out.sits-rekey", test_dir);
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_int_equal(chmod(in_dir("out"), modes[i]), 0);
		assert_true(geteuid() || !chown(in_dir("out"), 1234, 4321));
		assert_int_equal(sits_journal_write(ctx, in_dir("out"), &j), 0);
		assert_int_equal(stat(name, &st), 0);
		assert_int_equal(st.st_mode & 07777, modes[i] & 0666);
		assert_true(geteuid() || (st.st_uid == 1234 && st.st_gid == 4321));
		assert_int_equal(sits_journal_remove(ctx, in_dir("out")), 0);
	}
	umask(before);
	unlink(in_dir("out"));
	/* One that can't be named: nothing is said of a name that there is not. */
	assert_int_equal(symlink("loop", in_dir("loop")), 0);
	log_clear();
	assert_int_equal(sits_journal_remove(ctx, in_dir("loop")), -ELOOP);
	assert_logged("loop: can't name the journal beside it, to remove it: Too many levels");
	unlink(in_dir("loop"));
}

/* acl(5) as the kernel has it: version 2; tag, permissions, id; the owner, user 1234, the group, the mask, others. */
struct acl {
	uint32_t version;
	struct {
		uint16_t tag, perm;
		uint32_t id;
	} entry[5];
};

#define ACL_FOR_1234(perm) { 2, { { 0x01, 6, ~0u }, { 0x02, (perm), 1234 }, { 0x04, 0, ~0u }, { 0x10, (perm), ~0u }, { 0x20, 0, ~0u } } }

/* @path has that list; without one, none. */
static void assert_acl(const char *path, const struct acl *want)
{
	ssize_t len;
	struct acl got;

	len = getxattr(path, "system.posix_acl_access", &got, sizeof(got));
	if (!want) {
		assert_true(len < 0 && errno == ENODATA);
		return;
	}
	assert_int_equal(len, sizeof(got));
	assert_memory_equal(&got, want, sizeof(got));
}

/* Whom a list names can read journals and what is resealed; whom the directory's default names, and the file's does not, can't. */
static void access_control_lists(void **state)
{
	static const struct acl list = ACL_FOR_1234(4), other = ACL_FOR_1234(6);
	struct sits_journal j = { 0 };
	char name[128];
	struct stat st;
	int with;

	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	snprintf(name, sizeof(name), "%s/.out.sits-rekey", test_dir);
	if (setxattr(in_dir("out"), "system.posix_acl_access", &list, sizeof(list), 0)) {
		print_message("# the file system has no access control lists: %s\n", strerror(errno));
		unlink(in_dir("out"));
		skip();
	}
	for (with = 1; with >= 0; with--) {
		if (!with) {
			assert_int_equal(removexattr(in_dir("out"), "system.posix_acl_access"), 0);
			assert_int_equal(chmod(in_dir("out"), 0640), 0);
			assert_int_equal(setxattr(test_dir, "system.posix_acl_default", &other, sizeof(other), 0), 0);
		}
		assert_int_equal(sits_journal_write(ctx, in_dir("out"), &j), 0);
		assert_acl(name, with ? &list : NULL);
		assert_int_equal(stat(name, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0640);
		assert_int_equal(sits_journal_remove(ctx, in_dir("out")), 0);
		assert_int_equal(sits_sealed_reseal(ctx, in_dir("out"), old_key, old_key, NULL), 0);
		assert_acl(in_dir("out"), with ? &list : NULL);
		assert_int_equal(stat(in_dir("out"), &st), 0);
		assert_int_equal(st.st_mode & 07777, 0640);
	}
	assert_int_equal(removexattr(test_dir, "system.posix_acl_default"), 0);
	unlink(in_dir("out"));
}

/* The longest list that a call takes: XATTR_SIZE_MAX, linux/limits.h. */
static void long_access_control_lists(void **state)
{
	const size_t nr = (XATTR_SIZE_MAX - 4) / 8, len = 4 + 8 * nr;
	uint16_t *list = calloc(1, XATTR_SIZE_MAX), *got = malloc(XATTR_SIZE_MAX), *e = list + 2;
	struct sits_journal j = { 0 };
	char name[128];
	uint32_t i, id;

	assert_true(list && got);
	list[0] = 2;
	for (i = 0; i < nr; i++, e += 4) {
		bool named = i && i < nr - 3;

		id = named ? 1000 + i : ~0u;
		e[0] = !i ? 0x01 : named ? 0x02 : i == nr - 3 ? 0x04 : i == nr - 2 ? 0x10 : 0x20;
		e[1] = i && i < nr - 1 ? 4 : i ? 0 : 6;
		memcpy(e + 2, &id, sizeof(id));
	}
	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	snprintf(name, sizeof(name), "%s/.out.sits-rekey", test_dir);
	if (setxattr(in_dir("out"), "system.posix_acl_access", list, len, 0)) {
		print_message("# skip: the file system takes no access control list of %zu entries: %s\n", nr, strerror(errno));
		unlink(in_dir("out"));
		free(list);
		free(got);
		skip();
	}
	assert_int_equal(sits_journal_write(ctx, in_dir("out"), &j), 0);
	assert_int_equal(getxattr(name, "system.posix_acl_access", got, XATTR_SIZE_MAX), len);
	assert_memory_equal(got, list, len);
	assert_int_equal(sits_journal_remove(ctx, in_dir("out")), 0);
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("out"), old_key, new_key), 0);
	assert_int_equal(sits_sealed_reseal(ctx, in_dir("out"), new_key, old_key, NULL), 0);
	assert_int_equal(getxattr(in_dir("out"), "system.posix_acl_access", got, XATTR_SIZE_MAX), len);
	assert_memory_equal(got, list, len);
	unlink(in_dir("out"));
	free(list);
	free(got);
}

/* A journal that does not belong here must change nothing. */
static void foreign_journals(void **state)
{
	uint8_t *sealed, *is, junk[4096];
	struct sits_journal j;
	unsigned int files, i;
	size_t len, len2;
	char name[128];

	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	assert_int_equal(rename(in_dir("out"), in_dir("m.sits")), 0);
	files = count_files();
	sealed = read_file(in_dir("m.sits"), &len);
	snprintf(name, sizeof(name), "%s/.m.sits.sits-rekey", test_dir);

	/* Of another file under the same key. */
	assert_int_equal(seal_again(old_key), 0);
	is = read_file(in_dir("out"), &len2);
	memcpy(j.old_page, is, 4096);
	memcpy(j.new_page, is, 4096);
	free(is);
	unlink(in_dir("out"));
	assert_int_equal(sits_journal_write(ctx, in_dir("m.sits"), &j), 0);
	assert_true(opens(old_key));
	rekey_to_the_end(sealed, len, files);
	patch_file(in_dir("m.sits"), 0, sealed, 4096);

	/* One page of another file, one of this, and a file that is broken: as broken as it was, whichever is which. */
	for (i = 0; i < 2; i++) {
		assert_int_equal(seal_again(old_key), 0);
		is = read_file(in_dir("out"), &len2);
		memcpy(j.old_page, i ? sealed : is, 4096);
		memcpy(j.new_page, i ? is : sealed, 4096);
		unlink(in_dir("out"));
		assert_int_equal(sits_journal_write(ctx, in_dir("m.sits"), &j), 0);
		patch_file(in_dir("m.sits"), 0, j.old_page, 4096);
		patch_file(in_dir("m.sits"), 3000, "broken", 6);
		free(is);
		assert_false(opens(old_key));
		assert_int_equal(sits_sealed_rekey(ctx, in_dir("m.sits"), old_key, new_key), -EBADMSG);
		patch_file(in_dir("m.sits"), 0, sealed, 4096);
		assert_int_equal(sits_journal_remove(ctx, in_dir("m.sits")), 0);
	}

	/* Pages that verify under nothing, for a file that is whole. */
	fill_random(junk, sizeof(junk));
	memcpy(j.old_page, sealed, 4096);
	memcpy(j.old_page + 2048, junk, 2048);
	memcpy(j.new_page, j.old_page, 4096);
	assert_int_equal(sits_journal_write(ctx, in_dir("m.sits"), &j), 0);
	assert_true(opens(old_key));
	rekey_to_the_end(sealed, len, files);
	patch_file(in_dir("m.sits"), 0, sealed, 4096);

	/* And for one that is broken: refused, and nothing is written. */
	assert_int_equal(sits_journal_write(ctx, in_dir("m.sits"), &j), 0);
	patch_file(in_dir("m.sits"), 3000, "broken", 6);
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("m.sits"), old_key, new_key), -EBADMSG);
	patch_file(in_dir("m.sits"), 3000, sealed + 3000, 6);
	is = read_file(in_dir("m.sits"), &len2);
	assert_memory_equal(is, sealed, len);
	free(is);

	/* No journal at all: bytes, a directory, a symbolic link. */
	write_file(name, junk, 100, 0600);
	assert_true(opens(old_key));
	rekey_to_the_end(sealed, len, files);
	patch_file(in_dir("m.sits"), 0, sealed, 4096);
	assert_int_equal(symlink("/dev/zero", name), 0);
	assert_true(opens(old_key));
	rekey_to_the_end(sealed, len, files);
	free(sealed);
}

static void rekeying_refused(void **state)
{
	uint8_t *sealed, *is;
	unsigned int files;
	size_t len, len2;
	int fd;

	force = 1;
	assert_int_equal(seal_again(old_key), 0);
	assert_int_equal(rename(in_dir("out"), in_dir("m.sits")), 0);
	sealed = read_file(in_dir("m.sits"), &len);
	files = count_files();

	log_clear();
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("m.sits"), new_key, new_key), -ENOKEY);
	assert_logged("wrong key");
	is = read_file(in_dir("m.sits"), &len2);
	assert_memory_equal(is, sealed, len);
	free(is);
	free(sealed);

	assert_int_equal(sits_sealed_rekey(ctx, in_dir("none"), old_key, new_key), -ENOENT);
	assert_int_equal(sits_sealed_rekey(ctx, test_dir, old_key, new_key), -EISDIR);
	log_clear();
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("plain"), old_key, new_key), -EBADMSG);
	assert_logged("no sealed file");
	write_file(in_dir("empty"), "", 0, 0600);
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("empty"), old_key, new_key), -EBADMSG);
	unlink(in_dir("empty"));
	/* Another rekey runs. */
	fd = open(in_dir("m.sits"), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	log_clear();
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("m.sits"), old_key, new_key), -EBUSY);
	assert_logged("another process");
	/* Nor does a reseal take its place: what the rekey did would be undone. */
	log_clear();
	assert_int_equal(sits_sealed_reseal(ctx, in_dir("m.sits"), old_key, new_key, NULL), -EBUSY);
	assert_logged("another process");
	close(fd);
	assert_int_equal(count_files(), files);
	/* The same key again is a fresh wrap. */
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("m.sits"), old_key, old_key), 0);
	assert_true(opens(old_key));
	/* By a symbolic link. */
	assert_int_equal(symlink("m.sits", in_dir("link")), 0);
	assert_int_equal(sits_sealed_rekey(ctx, in_dir("link"), old_key, new_key), 0);
	assert_true(opens(new_key));
	unlink(in_dir("link"));
	assert_int_equal(count_files(), files);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sealing_killed_anywhere),
		cmocka_unit_test(named_temporary_file_killed_anywhere),
		cmocka_unit_test(rekeying_killed_anywhere),
		cmocka_unit_test(resealing_killed_anywhere),
		cmocka_unit_test(half_written_headers),
		cmocka_unit_test(half_written_headers_and_other_keys),
		cmocka_unit_test(modes_of_journals),
		cmocka_unit_test(access_control_lists),
		cmocka_unit_test(long_access_control_lists),
		cmocka_unit_test(foreign_journals),
		cmocka_unit_test(rekeying_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("crashes", tests, setup, teardown);
}
