// SPDX-License-Identifier: MIT
/*
 * key_test.c - keys: what is accepted, what is refused and in which words, where the bytes live.
 */
#include <keyutils.h>
#include <sys/wait.h>

#include "libsits/key.h"
#include "tests/unit/libsits/sealed_util.h"

#define HEX "00112233445566778899aabbccddeeff"

static const uint8_t raw[16] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
				 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };

static int open_file(const char *name, struct sits_key **key)
{
	char spec[300];

	log_clear();
	snprintf(spec, sizeof(spec), "file:%s", in_dir(name));
	return sits_key_open(ctx, spec, key);
}

static void forms_of_a_key_file(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		int ret;
	} cases[] = {
		{ HEX, 32, 0 },
		{ HEX "\n", 33, 0 },
		{ HEX "\r\n", 34, 0 },
		{ "00112233445566778899AABBCCDDEEFF\n", 33, 0 },
		{ (const char *)raw, 16, 0 },
		{ "my own password\n", 16, -EINVAL },
		{ "0011223344556677", 16, -EINVAL },
		{ "001122334455\r\n\r\n", 16, -EINVAL },
		{ "", 0, -EINVAL },
		{ "\n", 1, -EINVAL },
		{ (const char *)raw, 15, -EINVAL },
		{ HEX, 17, -EINVAL },
		{ HEX, 31, -EINVAL },
		{ HEX "0", 33, -EINVAL },
		{ HEX "\n\n", 34, -EINVAL },
		{ HEX "\n" HEX "\n", 66, -EINVAL },
		{ "0x112233445566778899aabbccddeeff", 32, -EINVAL },
		{ "g0112233445566778899aabbccddeeff", 32, -EINVAL },
		{ "0011223344556677889`aabbccddeeff", 32, -EINVAL },
		{ "00112233445566778899aabbccddeef/", 32, -EINVAL },
		{ "00112233445566778899aabbccddee:0", 32, -EINVAL },
		{ "00112233445566778899aabbccddee@G", 32, -EINVAL },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_key *key = NULL;
		int ret;

		write_file(in_dir("form"), cases[i].text, cases[i].len, 0600);
		ret = open_file("form", &key);
		if (ret != cases[i].ret)
			fail_msg("case %zu: %d, not %d: %s", i, ret, cases[i].ret, test_log);
		if (!ret)
			assert_memory_equal(key->raw, raw, sizeof(raw));
		else
			assert_logged("hexadecimal digits");
		sits_key_close(key);
	}
}

static void mode_of_a_key_file(void **state)
{
	static const struct {
		mode_t mode;
		int ret;
	} cases[] = {
		{ 0600, 0 }, { 0400, 0 }, { 0644, -EACCES }, { 0640, -EACCES }, { 0604, -EACCES }, { 0660, -EACCES },
		{ 0610, -EACCES }, { 0601, -EACCES }, { 0602, -EACCES }, { 0700, -EACCES }, { 04600, -EACCES },
	};
	char mode[8], chmod_line[300];
	size_t i;

	snprintf(chmod_line, sizeof(chmod_line), "chmod 600 %s", in_dir("moded"));
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_key *key = NULL;

		write_file(in_dir("moded"), HEX, 32, cases[i].mode);
		assert_int_equal(open_file("moded", &key), cases[i].ret);
		if (cases[i].ret) {
			snprintf(mode, sizeof(mode), "%04o", (unsigned int)cases[i].mode);
			assert_logged(mode);
			assert_logged(chmod_line);
		}
		sits_key_close(key);
	}
}

static void what_is_no_key_file(void **state)
{
	struct sits_key *key = NULL;

	assert_int_equal(open_file("none", &key), -ENOENT);
	assert_logged(in_dir("none"));
	write_file(in_dir("target"), HEX, 32, 0600);
	assert_int_equal(symlink(in_dir("target"), in_dir("link")), 0);
	assert_int_equal(open_file("link", &key), -ELOOP);
	assert_logged("symbolic link");
	assert_int_equal(mkdir(in_dir("dir"), 0700), 0);
	assert_int_equal(open_file("dir", &key), -EINVAL);
	assert_logged("not a regular file");
	/* A pipe without a writer must not make us wait. */
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	assert_int_equal(open_file("fifo", &key), -EINVAL);
	assert_logged("not a regular file");
	assert_null(key);
}

static void owner_of_a_key_file(void **state)
{
	struct sits_key *key = NULL;

	if (geteuid()) {
		print_message("# skip: not root, who alone can give a file away\n");
		skip();
	}
	write_file(in_dir("owned"), HEX, 32, 0600);
	assert_int_equal(chown(in_dir("owned"), 12345, 12345), 0);
	assert_int_equal(open_file("owned", &key), -EACCES);
	assert_logged("12345");
}

static void malformed_specs(void **state)
{
	static const char *const specs[] = { NULL, "", "file", "file:", "keyring:", "tpm:x", "/etc/key", HEX, " file:x" };
	struct sits_key *key = NULL;
	char spec[300] = "keyring:";
	size_t i;

	for (i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		log_clear();
		assert_int_equal(sits_key_open(ctx, specs[i], &key), -EINVAL);
		assert_logged("file:PATH or keyring:NAME");
		/* Somebody may have given the key itself. */
		assert_null(strstr(test_log, HEX));
		assert_int_equal(sits_key_create(ctx, specs[i]), -EINVAL);
	}
	memset(spec + 8, 'n', 250);
	log_clear();
	assert_int_equal(sits_key_open(ctx, spec, &key), -EINVAL);
	assert_logged("at most");
	assert_int_equal(sits_key_open(NULL, "file:x", &key), -EINVAL);
	assert_int_equal(sits_key_open(ctx, "file:x", NULL), -EINVAL);
	sits_key_close(NULL);
}

/* The VmFlags line of the mapping at @addr. */
static void vm_flags(const void *addr, char *flags, size_t len)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	char line[512];
	bool here = false;

	assert_non_null(f);
	flags[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = from <= (unsigned long)addr && (unsigned long)addr < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			snprintf(flags, len, "%s", line + 8);
	}
	fclose(f);
}

static void memory_of_a_key(void **state)
{
	struct sits_key *key = NULL;
	char flags[512];
	int status;
	pid_t pid;

	write_file(in_dir("mem"), HEX, 32, 0600);
	assert_int_equal(open_file("mem", &key), 0);
	vm_flags(key, flags, sizeof(flags));
	assert_non_null(strstr(flags, " dd"));
	assert_non_null(strstr(flags, " wf"));
#ifndef __SANITIZE_ADDRESS__
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MLOCK_IS_NOTHING	/* ASan's mlock() does nothing */
#endif
#endif
#else
#define MLOCK_IS_NOTHING
#endif
#ifndef MLOCK_IS_NOTHING
	assert_non_null(strstr(flags, " lo"));
#endif
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(all_zero(key->raw, sizeof(key->raw)) ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	assert_memory_equal(key->raw, raw, sizeof(raw));
	sits_key_close(key);
	/* Its page is gone altogether. */
	vm_flags(key, flags, sizeof(flags));
	assert_string_equal(flags, "");
}

static void creation_of_a_key_file(void **state)
{
	struct sits_key *a = NULL, *b = NULL;
	uint8_t ida[SITS_KEY_ID_LEN], idb[SITS_KEY_ID_LEN], *was, *is;
	mode_t old = umask(0);
	size_t len, len2;
	struct stat st;
	char spec[300];

	a = make_key("new-a");
	umask(0277);
	b = make_key("new-b");
	umask(old);
	assert_int_equal(stat(in_dir("new-a"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(stat(in_dir("new-b"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_memory_not_equal(a->raw, b->raw, sizeof(a->raw));
	sits_key_id(a, ida);
	sits_key_id(b, idb);
	assert_memory_not_equal(ida, idb, sizeof(ida));
	/* The id is no part of the key. */
	assert_memory_not_equal(ida, a->raw, sizeof(ida));

	was = read_file(in_dir("new-a"), &len);
	assert_int_equal(len, 33);
	snprintf(spec, sizeof(spec), "file:%s", in_dir("new-a"));
	log_clear();
	assert_int_equal(sits_key_create(ctx, spec), -EEXIST);
	assert_logged("exists already");
	is = read_file(in_dir("new-a"), &len2);
	assert_int_equal(len, len2);
	assert_memory_equal(was, is, len);
	free(was);
	free(is);
	sits_key_close(a);
	assert_int_equal(open_file("new-a", &a), 0);
	sits_key_id(a, idb);
	assert_memory_equal(ida, idb, sizeof(ida));

	snprintf(spec, sizeof(spec), "file:%s/no/such/place", test_dir);
	assert_int_equal(sits_key_create(ctx, spec), -ENOENT);
	snprintf(spec, sizeof(spec), "file:%s/", test_dir);
	assert_int_equal(sits_key_create(ctx, spec), -EISDIR);
	sits_key_close(a);
	sits_key_close(b);
}

static void keys_in_a_keyring(void **state)
{
	char name[64], spec[80], desc[80], hex[33];
	struct sits_key *a = NULL, *b = NULL;
	key_serial_t id;
	int ret;

	snprintf(name, sizeof(name), "test-%d-%08x", getpid(), (unsigned int)rnd());
	snprintf(spec, sizeof(spec), "keyring:%s", name);
	snprintf(desc, sizeof(desc), "sits:%s", name);
	id = add_key("user", desc, "x", 1, KEY_SPEC_PROCESS_KEYRING);
	if (id < 0) {
		print_message("# skip: no kernel keyrings here: %s\n", strerror(errno));
		skip();
	}
	keyctl_unlink(id, KEY_SPEC_PROCESS_KEYRING);

	log_clear();
	assert_int_equal(sits_key_open(ctx, spec, &a), -ENOKEY);
	assert_logged(desc);
	ret = sits_key_create(ctx, spec);
	if (ret)
		fail_msg("%d: %s", ret, test_log);
	assert_int_equal(sits_key_open(ctx, spec, &a), 0);
	log_clear();
	assert_int_equal(sits_key_create(ctx, spec), -EEXIST);
	assert_logged("exists already");
	/* A session of its own has no link to the user keyring, so no possession of what is there. */
	assert_true(keyctl_join_session_keyring(NULL) >= 0);
	assert_int_equal(sits_key_open(ctx, spec, &b), 0);
	assert_memory_equal(a->raw, b->raw, sizeof(a->raw));
	sits_key_close(b);
	b = NULL;

	/* What an administrator put there, as digits or as bytes. */
	id = (key_serial_t)keyctl_search(KEY_SPEC_USER_KEYRING, "user", desc, 0);
	assert_true(id > 0);
	keyctl_unlink(id, KEY_SPEC_USER_KEYRING);
	id = add_key("user", desc, a->raw, 16, KEY_SPEC_SESSION_KEYRING);
	assert_true(id > 0);
	assert_int_equal(sits_key_open(ctx, spec, &b), 0);
	assert_memory_equal(a->raw, b->raw, sizeof(a->raw));
	sits_key_close(b);
	b = NULL;
	sits_hex(a->raw, 16, hex);
	assert_int_equal(keyctl_update(id, hex, 32), 0);
	assert_int_equal(sits_key_open(ctx, spec, &b), 0);
	assert_memory_equal(a->raw, b->raw, sizeof(a->raw));
	sits_key_close(b);
	b = NULL;
	assert_int_equal(keyctl_update(id, test_log, 4096), 0);
	assert_int_equal(sits_key_open(ctx, spec, &b), -EINVAL);
	keyctl_unlink(id, KEY_SPEC_SESSION_KEYRING);

	id = add_key("logon", desc, a->raw, 16, KEY_SPEC_SESSION_KEYRING);
	assert_true(id > 0);
	log_clear();
	assert_int_equal(sits_key_open(ctx, spec, &b), -EOPNOTSUPP);
	assert_logged("logon");
	keyctl_unlink(id, KEY_SPEC_SESSION_KEYRING);
	sits_key_close(a);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(forms_of_a_key_file),
		cmocka_unit_test(mode_of_a_key_file),
		cmocka_unit_test(what_is_no_key_file),
		cmocka_unit_test(owner_of_a_key_file),
		cmocka_unit_test(malformed_specs),
		cmocka_unit_test(memory_of_a_key),
		cmocka_unit_test(creation_of_a_key_file),
		cmocka_unit_test(keys_in_a_keyring),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("keys", tests, dir_setup, dir_teardown);
}
