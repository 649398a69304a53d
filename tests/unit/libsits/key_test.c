// SPDX-License-Identifier: MIT
/*
 * key_test.c - keys: what is accepted, what is refused and in which words, where the bytes live. For each provider in
 * $SITS_TEST_PROVIDERS.
 */
#include <keyutils.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "libsits/key.h"
#include "tests/unit/libsits/kill_util.h"

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
	static const char *const specs[] = { NULL, "", "file", "file:", "keyring:", "tpm:", "/etc/key", HEX, " file:x" };
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

/* The prefix is known, and what it stands for is not here: in words, and never as if the spec were at fault. */
static void tpm_is_not_in_this_build(void **state)
{
	struct sits_key *key = NULL;

	write_file(in_dir("saved"), HEX, 32, 0600);
	log_clear();
	assert_int_equal(sits_key_open(ctx, "tpm:model", &key), -EOPNOTSUPP);
	assert_logged("TPM support is not in this build");
	log_clear();
	assert_int_equal(sits_key_create(ctx, "tpm:model"), -EOPNOTSUPP);
	assert_logged("TPM support is not in this build");
	assert_int_equal(open_file("saved", &key), 0);
	log_clear();
	assert_int_equal(sits_key_save(ctx, key, "tpm:model"), -EOPNOTSUPP);
	assert_logged("TPM support is not in this build");
	sits_key_close(key);
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

static void keys_from_elsewhere(void **state)
{
	/* Of the bytes of raw, by coreutils' base64. */
	#define B64 "ABEiM0RVZneImaq7zN3u/w=="
	static const uint8_t zeros[16];
	static const struct {
		const char *text;
		size_t len;
		int ret;
	} cases[] = {
		{ HEX, 32, 0 },
		{ HEX "\n", 33, 0 },
		{ HEX "\r\n", 34, 0 },
		{ (const char *)raw, 16, 0 },
		{ B64, 24, 0 },
		{ B64 "\n", 25, 0 },
		{ B64 "\r\n", 26, 0 },
		{ B64 "\n\n", 26, -EINVAL },
		{ B64, 23, -EINVAL },
		{ B64, 22, -EINVAL },
		{ "ABEiM0RVZneImaq7zN3u/x==", 24, -EINVAL },	/* bits behind the key */
		{ "ABEiM0RVZneImaq7zN3u_w==", 24, -EINVAL },
		{ "ABEiM0RVZneImaq7zN3u/w=A", 24, -EINVAL },
		{ "ABEiM0RVZneImaq7zN3u/===", 24, -EINVAL },
		{ "=BEiM0RVZneImaq7zN3u/w==", 24, -EINVAL },
		{ "ABEiM0RVZn\0Imaq7zN3u/w==", 24, -EINVAL },
		{ "ABEiM0RVZneImaq7zN3u/wAB", 24, -EINVAL },	/* 18 bytes */
		{ "my own password\n", 16, -EINVAL },
		{ "", 0, -EINVAL },
		{ HEX HEX, 64, -EINVAL },
		{ (const char *)zeros, 16, -EINVAL },
		{ "77777777777777777777777777777777", 32, -EINVAL },
	};
	struct sits_key *key = NULL;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int ret, fds[2];

		/* A pipe, and in two pieces. */
		assert_int_equal(pipe(fds), 0);
		assert_int_equal(write(fds[1], cases[i].text, cases[i].len / 2), cases[i].len / 2);
		assert_int_equal(write(fds[1], cases[i].text + cases[i].len / 2, (cases[i].len + 1) / 2), (cases[i].len + 1) / 2);
		close(fds[1]);
		log_clear();
		ret = sits_key_import(ctx, fds[0], &key);
		close(fds[0]);
		if (ret != cases[i].ret)
			fail_msg("case %zu: %d, not %d: %s", i, ret, cases[i].ret, test_log);
		if (ret) {
			assert_logged("the key to import");
			assert_null(key);
			/* Not even of what was refused does a piece get into the log. */
			assert_null(strstr(test_log, "ABEi"));
			assert_null(strstr(test_log, "password\n"));
			continue;
		}
		assert_memory_equal(key->raw, raw, sizeof(raw));
		sits_key_close(key);
		key = NULL;
	}
	assert_int_equal(sits_key_import(ctx, -1, &key), -EBADF);
	assert_int_equal(sits_key_import(NULL, 0, &key), -EINVAL);
	assert_int_equal(sits_key_import(ctx, 0, NULL), -EINVAL);
}

/* All digits of base64, in every place: what decodes is what an independent table says. */
static void base64_of_any_key(void **state)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	struct sits_key *key = NULL;
	unsigned int n, i, bits;
	uint8_t bytes[18] = { 0 };
	char text[24];
	int fds[2];

	for (n = 0; n < 200; n++) {
		fill_random(bytes, 16);
		for (i = 0; i < 22; i++) {
			bits = (unsigned int)bytes[i * 6 / 8] << 8 | bytes[i * 6 / 8 + 1];
			text[i] = digits[bits >> (10 - i * 6 % 8) & 63];
		}
		text[22] = text[23] = '=';
		assert_int_equal(pipe(fds), 0);
		assert_int_equal(write(fds[1], text, 24), 24);
		close(fds[1]);
		assert_int_equal(sits_key_import(ctx, fds[0], &key), 0);
		close(fds[0]);
		assert_memory_equal(key->raw, bytes, 16);
		sits_key_close(key);
	}
}

static void saving_a_key(void **state)
{
	struct sits_key *key = NULL, *again = NULL;
	char spec[300];
	struct stat st;

	write_file(in_dir("given"), raw, 16, 0600);
	assert_int_equal(open_file("given", &key), 0);
	snprintf(spec, sizeof(spec), "file:%s", in_dir("kept"));
	assert_int_equal(sits_key_save(ctx, key, spec), 0);
	assert_int_equal(stat(in_dir("kept"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(open_file("kept", &again), 0);
	assert_memory_equal(again->raw, raw, sizeof(raw));
	sits_key_close(again);
	log_clear();
	assert_int_equal(sits_key_save(ctx, key, spec), -EEXIST);
	assert_logged("exists already");
	assert_int_equal(sits_key_save(ctx, key, "kept"), -EINVAL);
	assert_int_equal(sits_key_save(ctx, NULL, spec), -EINVAL);
	sits_key_close(key);
}

/* Let @pid run up to where it would put its key into the keyring. */
static void run_to_the_move(pid_t pid)
{
	struct __ptrace_syscall_info info;
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)), 0);
	for (;;) {
		resume(pid, 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status));
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY &&
		    info.entry.nr == SYS_keyctl && info.entry.args[0] == KEYCTL_MOVE)
			return;
	}
}

/* Two make a key of one name, and both saw none: the one that comes later displaces nothing. */
static void two_make_one_key(void **state)
{
	struct sits_key *mine = NULL, *now = NULL;
	char spec[100], desc[100];
	key_serial_t serial;
	int status;
	pid_t pid;

	need_ptrace();
	snprintf(spec, sizeof(spec), "keyring:test-race-%d-%08x", getpid(), (unsigned int)rnd());
	snprintf(desc, sizeof(desc), "sits:%s", spec + strlen("keyring:"));
	serial = add_key("user", desc, "x", 1, KEY_SPEC_PROCESS_KEYRING);
	if (serial < 0) {
		print_message("# skip: no kernel keyrings here: %s\n", strerror(errno));
		skip();
	}
	keyctl_unlink(serial, KEY_SPEC_PROCESS_KEYRING);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		status = sits_key_create(ctx, spec);
		_exit(status == -EEXIST ? 3 : status ? 2 : 0);
	}
	run_to_the_move(pid);
	assert_int_equal(sits_key_create(ctx, spec), 0);
	assert_int_equal(sits_key_open(ctx, spec, &mine), 0);
	assert_int_equal(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 3);
	assert_int_equal(sits_key_open(ctx, spec, &now), 0);
	assert_memory_equal(now->raw, mine->raw, sizeof(mine->raw));
	sits_key_close(now);
	sits_key_close(mine);
	serial = (key_serial_t)keyctl_search(KEY_SPEC_USER_KEYRING, "user", desc, 0);
	assert_true(serial > 0);
	keyctl_unlink(serial, KEY_SPEC_USER_KEYRING);
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
	assert_int_equal(sits_key_save(ctx, a, spec), -EEXIST);
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
	if (test_on_kernel()) {		/* by its name; its bytes stay where they are */
		assert_int_equal(sits_key_open(ctx, spec, &b), 0);
		assert_true(all_zero(b->raw, sizeof(b->raw)) && all_zero(b->id, sizeof(b->id)));
		sits_key_close(b);
	} else {
		assert_int_equal(sits_key_open(ctx, spec, &b), -EOPNOTSUPP);
		assert_logged("logon");
	}
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
		cmocka_unit_test(tpm_is_not_in_this_build),
		cmocka_unit_test(memory_of_a_key),
		cmocka_unit_test(creation_of_a_key_file),
		cmocka_unit_test(keys_from_elsewhere),
		cmocka_unit_test(base64_of_any_key),
		cmocka_unit_test(saving_a_key),
		cmocka_unit_test(keys_in_a_keyring),
		cmocka_unit_test(two_make_one_key),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return run_on_providers(tests, sizeof(tests) / sizeof(tests[0]), dir_setup, dir_teardown);
}
