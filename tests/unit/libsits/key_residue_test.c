// SPDX-License-Identifier: MIT
/*
 * key_residue_test.c - what the commands leave in their memory when they end: no key, in any form, and no plaintext.
 *
 * The command runs under ptrace and is stopped where it exits, with all of its memory as it left it; every mapping that can be
 * read is searched. What is looked for must be found in the middle of the work, or the search would show nothing.
 */
#include <limits.h>

#include "crypto/sealed.h"
#include "libsits/key.h"
#include "tests/unit/libsits/kill_util.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

#define PLAIN		(3 * 65536 + 123)
#define NEEDLES_MAX	32

struct needle {
	const char *what;
	uint8_t bytes[32];
	size_t len;
};

static struct needle needles[NEEDLES_MAX];
static unsigned int nr_needles;
static char command[PATH_MAX], old_spec[80], new_spec[80];
static uint8_t *plain;

static int setup(void **state)
{
	const char *build = getenv("BUILD");

	if (dir_setup(state))
		return -1;
	snprintf(command, sizeof(command), "%s/sits", build ? build : "build/gcc");
	sits_key_close(make_key("old.key"));
	sits_key_close(make_key("new.key"));
	snprintf(old_spec, sizeof(old_spec), "file:%s", in_dir("old.key"));
	snprintf(new_spec, sizeof(new_spec), "file:%s", in_dir("new.key"));
	plain = make_plain(in_dir("plain"), PLAIN);
	return 0;
}

static int teardown(void **state)
{
	free(plain);
	return dir_teardown(state);
}

static void look_for(const char *what, const void *bytes, size_t len)
{
	assert_true(nr_needles < NEEDLES_MAX && len <= sizeof(needles[0].bytes));
	needles[nr_needles].what = what;
	needles[nr_needles].len = len;
	memcpy(needles[nr_needles++].bytes, bytes, len);
}

/* The key at @spec: its bytes, its digits, its round keys from both ends. */
static void look_for_key(const char *spec)
{
	struct sits_key *key = NULL;
	struct sits_sm4_key sm4;
	char hex[33];

	assert_int_equal(sits_key_open(ctx, spec, &key), 0);
	sits_hex(key->raw, 16, hex);
	sits_sm4_expand_key(&sm4, key->raw);
	look_for("key", key->raw, 16);
	look_for("digits of the key", hex, 32);
	look_for("half of the digits", hex + 16, 16);
	look_for("first round keys", sm4.enc.rk, 16);
	look_for("last round keys", sm4.enc.rk + 28, 16);
	look_for("first round keys to decrypt", sm4.dec.rk, 16);
	sits_key_close(key);
}

/* The file key of what is sealed at @path. */
static void look_for_file_key(const char *path, const char *spec)
{
	struct sits_sealed_file f;
	struct sits_key *key = NULL;
	uint8_t *page;
	size_t len;

	assert_int_equal(sits_key_open(ctx, spec, &key), 0);
	page = read_file(path, &len);
	assert_int_equal(sits_sealed_unwrap(page, key->raw, &f, NULL), 0);
	look_for("first round keys of the file key", f.key.sm4.enc.rk, 16);
	look_for("last round keys of the file key", f.key.sm4.enc.rk + 28, 16);
	look_for("hash key of the file key", f.key.hash.h, 16);
	free(page);
	sits_key_close(key);
}

static void look_for_plaintext(void)
{
	look_for("plaintext", plain, 16);
	look_for("plaintext in the middle", plain + 65536 + 4000, 16);
	look_for("plaintext at the end", plain + PLAIN - 16, 16);
}

/* Return: how many needles are in the memory of @pid; the first is named in @what. -1 where it can't be read. */
static int search(pid_t pid, const char **what)
{
	char path[64], line[512];
	unsigned int i;
	int mem, found = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	mem = open(path, O_RDONLY | O_CLOEXEC);
	if (!maps || mem < 0)
		found = -1;
	while (found >= 0 && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;
		char mode[5];
		uint8_t *buf;
		ssize_t n;

		if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) != 3 || mode[0] != 'r' || strstr(line, "[v"))
			continue;
		buf = malloc(to - from);
		assert_non_null(buf);
		n = pread(mem, buf, to - from, (off_t)from);
		for (i = 0; n > 0 && i < nr_needles; i++) {
			if (!memmem(buf, (size_t)n, needles[i].bytes, needles[i].len))
				continue;
			*what = needles[i].what;
			found++;
			print_message("# %s in %s", needles[i].what, line);
		}
		free(buf);
	}
	if (maps)
		fclose(maps);
	if (mem >= 0)
		close(mem);
	return found;
}

/* Run the command up to its end. Return: as search(). @input: what it reads, or NULL. */
static int residue_of(char *const argv[], const char *input, const char **what)
{
	int status, found, null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int in = input ? open(input, O_RDONLY | O_CLOEXEC) : null;
	pid_t pid = fork();

	assert_true(pid >= 0 && in >= 0 && null >= 0);
	if (!pid) {
		dup2(in, 0);
		dup2(null, 1);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execv(command, argv);
		_exit(127);
	}
	close(null);
	if (input)
		close(in);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSTOPPED(status))
		fail_msg("%s can't be run", command);
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)), 0);
	do {
		assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status));
	} while (status >> 8 != (SIGTRAP | PTRACE_EVENT_EXIT << 8));
	found = search(pid, what);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status))
		fail_msg("%s %s: exit status %d", argv[1], argv[2], WEXITSTATUS(status));
	return found;
}

static void assert_nothing_of(char *const argv[], const char *input)
{
	const char *what = NULL;
	int found = residue_of(argv, input, &what);

	if (found < 0) {
		print_message("# skip: the memory of a command with keys can't be read here\n");
		skip();
	}
	if (found)
		fail_msg("%s %s left %d things in its memory, such as: %s", argv[1], argv[2], found, what);
}

#define RUN(input, ...) assert_nothing_of((char *[]){ (char *)"sits", __VA_ARGS__, NULL }, input)
#define S(s) ((char *)(uintptr_t)(s))

static void need_plain_memory(void)
{
	need_ptrace();
	nr_needles = 0;
#ifdef SANITIZED
	print_message("# skip: the sanitizer keeps copies of what was on the stack\n");
	skip();
#endif
}

/* It finds what is there: in this process, which holds the key. */
static void the_search_finds_what_is_there(void **state)
{
	struct sits_key *key = NULL;
	const char *what = NULL;

	need_plain_memory();
	assert_int_equal(sits_key_open(ctx, old_spec, &key), 0);
	look_for("key", key->raw, 16);
	assert_true(search(getpid(), &what) >= 2);	/* there, and in the list */
	sits_key_close(key);
}

static void keys(void **state)
{
	char in_spec[80];

	need_plain_memory();
	look_for_key(old_spec);
	snprintf(in_spec, sizeof(in_spec), "file:%s", in_dir("in.key"));
	RUN(NULL, S("key"), S("id"), old_spec);
	RUN(in_dir("old.key"), S("key"), S("import"), in_spec);
	unlink(in_dir("in.key"));
	RUN(NULL, S("key"), S("import"), in_spec, S("--from"), S(in_dir("old.key")));
	unlink(in_dir("in.key"));
}

static void sealing_and_verifying(void **state)
{
	char out[80];

	need_plain_memory();
	snprintf(out, sizeof(out), "%s", in_dir("m.sits"));
	look_for_key(old_spec);
	look_for_plaintext();
	RUN(NULL, S("seal"), S("--force"), S("--chunk-size"), S("64K"), S("--key"), old_spec, S(in_dir("plain")), out);
	look_for_file_key(out, old_spec);
	RUN(NULL, S("verify"), S("--key"), old_spec, out);
	RUN(NULL, S("verify"), S("--buffered"), S("--threads"), S("1"), S("--key"), old_spec, out);
	RUN(NULL, S("inspect"), S("--key"), old_spec, out);
	look_for_key(new_spec);
	RUN(NULL, S("rekey"), S("--key"), old_spec, S("--new-key"), new_spec, out);
	RUN(NULL, S("rekey"), S("--reseal"), S("--key"), new_spec, S("--new-key"), old_spec, out);
}

/* The key that it makes is looked for afterwards: so the command runs twice, with the same new key the second time. */
static void rotating(void **state)
{
	char kek[80], next[90], dir[80], *text;
	struct sits_seal_opts o = { .size = sizeof(o), .threads = 1, .force = 1 };
	struct sits_key *key = NULL;
	char model[100];
	size_t len;

	need_plain_memory();
	snprintf(dir, sizeof(dir), "%s", in_dir("models"));
	assert_int_equal(mkdir(dir, 0700), 0);
	snprintf(model, sizeof(model), "%s/m.sits", dir);
	snprintf(kek, sizeof(kek), "file:%s", in_dir("kek"));
	snprintf(next, sizeof(next), "%s.next", kek);
	text = (char *)read_file(in_dir("old.key"), &len);
	write_file(in_dir("kek"), text, len, 0600);
	free(text);
	assert_int_equal(sits_key_create(ctx, next), 0);
	assert_int_equal(sits_key_open(ctx, kek, &key), 0);
	assert_int_equal(sits_seal(ctx, in_dir("plain"), model, key, &o), 0);
	sits_key_close(key);
	look_for_key(kek);
	look_for_key(next);
	look_for_file_key(model, kek);
	look_for_plaintext();
	RUN(NULL, S("key"), S("rotate"), kek, dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_search_finds_what_is_there),
		cmocka_unit_test(keys),
		cmocka_unit_test(sealing_and_verifying),
		cmocka_unit_test(rotating),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("residue", tests, setup, teardown);
}
