// SPDX-License-Identifier: MIT
/*
 * seal_test.c - sealing: what comes out opens again, what is refused, and that nothing is left behind.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "libsits/pump.h"
#include "libsits/tmpfile.h"
#include "tests/unit/libsits/sealed_util.h"

#define HUNG_S	300	/* what takes this long has hung */

static struct sits_key *key;

static int setup(void **state)
{
	int ret = dir_setup(state);

	if (!ret)
		key = make_key("kek");
	return ret;
}

static int teardown(void **state)
{
	sits_key_close(key);
	return dir_teardown(state);
}

/* A forked child has nothing of a key that its parent opened, and opens its own. Not closed: it ends at once. */
static int open_own_key(void)
{
	char spec[300];

	snprintf(spec, sizeof(spec), "file:%s", in_dir("kek"));
	return sits_key_open(ctx, spec, &key);
}

static struct sits_seal_opts seal_opts(uint32_t chunk_bytes)
{
	struct sits_seal_opts o = { .size = sizeof(o), .chunk_bytes = chunk_bytes, .threads = 2 };

	return o;
}

/* Seal, load, compare. */
static void round_trip(size_t len, uint32_t chunk_bytes, uint32_t threads, uint32_t load_flags)
{
	struct sits_load_opts lo = { .size = sizeof(lo), .flags = load_flags, .threads = threads };
	struct sits_seal_opts o = seal_opts(chunk_bytes);
	struct sits_region_info ri;
	struct sits_sealed_info info, seen;
	struct sits_region *r;
	uint8_t *plain;
	int ret;

	log_clear();
	o.threads = threads;
	o.model_version = 7;
	plain = make_plain(in_dir("plain"), len);
	ret = sits_seal(ctx, in_dir("plain"), in_dir("out.sits"), key, &o);
	if (ret)
		fail_msg("%zu bytes, chunk %u: %d: %s", len, chunk_bytes, ret, test_log);
	assert_int_equal(sits_sealed_verify(ctx, in_dir("out.sits"), key, &lo, &info), 0);
	assert_int_equal(info.plain_bytes, len);
	assert_int_equal(info.chunk_bytes, chunk_bytes ? chunk_bytes : 1 << 20);
	assert_int_equal(info.nr_chunks, len ? (len + info.chunk_bytes - 1) / info.chunk_bytes : 1);
	assert_int_equal(info.model_version, 7);
	assert_int_equal(info.authenticated, 1);
	assert_string_equal(info.model_id, "plain");
	assert_int_equal(sits_sealed_inspect(ctx, in_dir("out.sits"), NULL, &seen), 0);
	assert_int_equal(seen.authenticated, 0);
	seen.authenticated = 1;
	assert_memory_equal(&seen, &info, sizeof(info));

	r = make_region(len + 1);
	memset(sits_region_data(r), 0xee, len + 1);
	assert_int_equal(sits_weights_load(ctx, in_dir("out.sits"), r, key, &lo, &info), 0);
	assert_non_null(sits_region_data(r));
	assert_memory_equal(sits_region_data(r), plain, len);
	/* What was there before, or what a direct read brought along, is not. */
	assert_int_equal(((uint8_t *)sits_region_data(r))[len], 0);
	assert_int_equal(sits_region_info(r, &ri), 0);
	assert_int_equal(ri.sealed, 1);
	assert_memory_equal(ri.digest, info.digest, 32);
	sits_region_destroy(r);
	assert_int_equal(unlink(in_dir("out.sits")), 0);
	free(plain);
}

static void sizes_around_chunks_and_spans(void **state)
{
	static const size_t sizes[] = {
		0, 1, 15, 16, 17, 511, 512, 4095, 4096, 4097, 8191, 8192, 8193, 65535, 65536, 65537,
		(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) + 4095, (3 << 20) + 12345,
	};
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		round_trip(sizes[i], 4096, 2, i & 1 ? SITS_LOAD_BUFFERED : 0);
		round_trip(sizes[i], 65536, 1 + (uint32_t)(i % 5), i & 1 ? 0 : SITS_LOAD_BUFFERED);
		round_trip(sizes[i], 0, 0, 0);
	}
	round_trip((4 << 20) + 1, 16 << 20, 3, 0);
	round_trip((20 << 20) + 17, 16 << 20, 2, 0);
	round_trip((9 << 20) + 99, 2 << 20, 64, 0);
}

/* Sealing twice gives nothing in common but the header's plain fields: keys, salts and nonces are fresh. */
static void fresh_randomness(void **state)
{
	struct sits_seal_opts o = seal_opts(4096);
	uint8_t *plain = make_plain(in_dir("plain"), 8192), *a, *b;
	size_t len, i, same = 0;

	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("a.sits"), key, &o), 0);
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("b.sits"), key, &o), 0);
	a = read_file(in_dir("a.sits"), &len);
	b = read_file(in_dir("b.sits"), &len);
	for (i = 4096; i < len; i++)
		same += a[i] == b[i] && (i < 4096 + 32 || i >= 8192);
	/* 8224 bytes, of which one in 256 is equal by chance. */
	assert_true(same < 120);
	free(a);
	free(b);
	free(plain);
	unlink(in_dir("a.sits"));
	unlink(in_dir("b.sits"));
}

static void refuse(const char *in, const char *out, const struct sits_seal_opts *o, int want, const char *words)
{
	unsigned int before = count_files();
	int ret;

	log_clear();
	ret = sits_seal(ctx, in, out, key, o);
	if (ret != want)
		fail_msg("%s -> %s: %d, not %d: %s", in, out, ret, want, test_log);
	assert_logged(words);
	assert_int_equal(count_files(), before);
}

static void what_is_refused(void **state)
{
	struct sits_seal_opts o = seal_opts(4096), bad;
	uint8_t *plain = make_plain(in_dir("plain"), 5000), *is;
	char id[300];
	size_t len;

	refuse(in_dir("none"), in_dir("out"), &o, -ENOENT, "none");
	refuse(test_dir, in_dir("out"), &o, -EISDIR, "is a directory");
	refuse("/dev/zero", in_dir("out"), &o, -EINVAL, "a device");
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	refuse(in_dir("fifo"), in_dir("out"), &o, -EINVAL, "a pipe");
	refuse(in_dir("plain"), test_dir, &o, -EISDIR, "is a directory");
	refuse(in_dir("plain"), in_dir("none/out"), &o, -ENOENT, "none/out");
	refuse(in_dir("plain"), in_dir("dir/"), &o, -EISDIR, "directory");
	refuse(in_dir("plain"), "", &o, -ENOENT, "No such file");

	/* The same file, by any name. */
	assert_int_equal(link(in_dir("plain"), in_dir("hard")), 0);
	assert_int_equal(symlink("plain", in_dir("soft")), 0);
	o.force = 1;
	refuse(in_dir("plain"), in_dir("plain"), &o, -EINVAL, "same file");
	refuse(in_dir("plain"), in_dir("hard"), &o, -EINVAL, "same file");
	refuse(in_dir("plain"), in_dir("soft"), &o, -EINVAL, "same file");
	is = read_file(in_dir("plain"), &len);
	assert_int_equal(len, 5000);
	assert_memory_equal(is, plain, len);
	free(is);
	/* What is no file is not replaced either: root would have taken it away from everybody. */
	refuse(in_dir("plain"), in_dir("fifo"), &o, -EEXIST, "is a pipe");
	o.force = 0;
	/* Files whose size says nothing about what they hold. */
	refuse("/proc/self/status", in_dir("out"), &o, -EINVAL, "does not end there");

	/* An output that exists is left as it is. */
	write_file(in_dir("out"), "precious", 8, 0600);
	refuse(in_dir("plain"), in_dir("out"), &o, -EEXIST, "exists already");
	is = read_file(in_dir("out"), &len);
	assert_int_equal(len, 8);
	assert_memory_equal(is, "precious", len);
	free(is);
	unlink(in_dir("out"));

	bad = o;
	bad.size = 8;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "options");
	bad = o;
	bad.flags = 1;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "options");
	bad = o;
	bad.reserved = 1;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "options");
	bad = o;
	bad.force = 2;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "options");
	bad = o;
	bad.chunk_bytes = 4095;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "chunk size 4095");
	bad.chunk_bytes = 12288;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "chunk size 12288");
	bad.chunk_bytes = 32 << 20;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "chunk size 33554432");
	bad = o;
	memset(id, 'm', sizeof(id));
	id[SITS_MODEL_ID_MAX] = '\0';
	bad.model_id = id;
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "the model id has 128 bytes, of at most 127");
	bad.model_id = "escape \033[31m";
	refuse(in_dir("plain"), in_dir("out"), &bad, -EINVAL, "has control characters: give one without");
	assert_int_equal(sits_seal(NULL, in_dir("plain"), in_dir("out"), key, NULL), -EINVAL);
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), NULL, NULL), -EINVAL);

	/* The longest id that fits, and a file name that does not. */
	id[SITS_MODEL_ID_MAX - 1] = '\0';
	bad.model_id = id;
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &bad), 0);
	unlink(in_dir("out"));
	id[200] = '\0';
	assert_int_equal(rename(in_dir("plain"), in_dir(id)), 0);
	assert_int_equal(sits_seal(ctx, in_dir(id), in_dir("out"), key, &o), 0);
	unlink(in_dir("out"));
	unlink(in_dir(id));
	unlink(in_dir("hard"));
	unlink(in_dir("soft"));
	unlink(in_dir("fifo"));
	free(plain);
}

/* No name of a file keeps it from being sealed. */
static void ids_from_names(void **state)
{
	static const struct {
		const char *name, *id;
	} cases[] = {
		{ "plain.gguf", "plain.gguf" },
		{ "two\nlines\t\x1b[31m\x7f.gguf", "two_lines__[31m_.gguf" },
		{ "\xe4\xb8\xad.gguf", "\xe4\xb8\xad.gguf" },
	};
	struct sits_seal_opts o = seal_opts(4096);
	struct sits_sealed_info info;
	char name[200], want[200];
	uint8_t *plain;
	size_t i, n;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		plain = make_plain(in_dir(cases[i].name), 100);
		assert_int_equal(sits_seal(ctx, in_dir(cases[i].name), in_dir("out"), key, &o), 0);
		assert_int_equal(sits_sealed_inspect(ctx, in_dir("out"), key, &info), 0);
		assert_string_equal(info.model_id, cases[i].id);
		unlink(in_dir("out"));
		unlink(in_dir(cases[i].name));
		free(plain);
	}
	/* Cut between characters; of what is no UTF-8, something is left. */
	for (i = 0; i < 4; i++) {
		memset(name, 'n', sizeof(name));
		memset(want, 'n', sizeof(want));
		for (n = i; i < 3 && n + 3 < sizeof(name); n += 3)
			memcpy(name + n, "\xe4\xb8\xad", 3);
		if (i == 3)
			memset(name, 0x80, sizeof(name));
		name[sizeof(name) - 1] = '\0';
		memcpy(want, name, sizeof(name));
		want[i < 3 ? 127 - (127 - i) % 3 : 123] = '\0';
		plain = make_plain(in_dir(name), 100);
		assert_int_equal(sits_seal(ctx, in_dir(name), in_dir("out"), key, &o), 0);
		assert_int_equal(sits_sealed_inspect(ctx, in_dir("out"), key, &info), 0);
		assert_string_equal(info.model_id, want);
		unlink(in_dir("out"));
		unlink(in_dir(name));
		free(plain);
	}
}

static void replacing_an_output(void **state)
{
	struct sits_seal_opts o = seal_opts(4096);
	uint8_t *plain = make_plain(in_dir("plain"), 5000);
	struct sits_sealed_info info;
	struct stat st;
	unsigned int before = count_files();

	write_file(in_dir("out"), "old", 3, 0600);
	o.force = 1;
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o), 0);
	assert_int_equal(sits_sealed_verify(ctx, in_dir("out"), key, NULL, &info), 0);
	/* Replaced by another file, not written over: who has the old one open keeps it. */
	assert_int_equal(stat(in_dir("out"), &st), 0);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(count_files(), before + 1);
	/* And with nothing there, forcing is no error. */
	unlink(in_dir("out"));
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o), 0);
	unlink(in_dir("out"));
	free(plain);
}

static char *spoil_path;
static int spoil_how;

/* Called before the first byte is read, and later. */
static int spoil(void *arg, uint64_t done, uint64_t total)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1 } };

	switch (spoil_how) {
	case 0:
		assert_int_equal(truncate(spoil_path, 1000), 0);
		break;
	case 1:
		assert_int_equal(truncate(spoil_path, 1 << 20), 0);
		break;
	case 2:
		assert_int_equal(utimensat(AT_FDCWD, spoil_path, t, 0), 0);
		break;
	case 3:
		return 1;
	}
	return 0;
}

static void input_that_changes_and_cancelling(void **state)
{
	struct sits_seal_opts o = seal_opts(4096);
	uint8_t *plain = NULL, *is;
	size_t len;

	o.progress = spoil;
	spoil_path = strdup(in_dir("spoilt"));
	for (spoil_how = 0; spoil_how < 4; spoil_how++) {
		unsigned int before;
		int ret;

		free(plain);
		plain = make_plain(spoil_path, 50000);
		write_file(in_dir("out"), "old", 3, 0600);
		before = count_files();
		o.force = 1;
		log_clear();
		ret = sits_seal(ctx, spoil_path, in_dir("out"), key, &o);
		assert_int_equal(ret, spoil_how == 3 ? -ECANCELED : -ESTALE);
		if (spoil_how < 3)
			assert_logged("spoilt");
		assert_int_equal(count_files(), before);
		is = read_file(in_dir("out"), &len);
		assert_int_equal(len, 3);
		assert_memory_equal(is, "old", 3);
		free(is);
		unlink(in_dir("out"));
	}
	free(plain);
	unlink(spoil_path);
	free(spoil_path);
}

struct watched {
	uint64_t last, total;
	unsigned int calls;
};

static int watch(void *arg, uint64_t done, uint64_t total)
{
	struct watched *w = arg;

	assert_true(done >= w->last && done <= total);
	w->last = done;
	w->total = total;
	w->calls++;
	return 0;
}

static void progress_ends_with_all(void **state)
{
	struct sits_seal_opts o = seal_opts(4096);
	struct sits_load_opts lo = { .size = sizeof(lo), .progress = watch };
	struct watched w = { 0 };
	uint8_t *plain = make_plain(in_dir("plain"), 3 << 20);

	o.progress = watch;
	o.progress_arg = &w;
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o), 0);
	assert_true(w.calls >= 2);
	assert_int_equal(w.last, 3 << 20);
	assert_int_equal(w.total, 3 << 20);
	memset(&w, 0, sizeof(w));
	lo.progress_arg = &w;
	assert_int_equal(sits_sealed_verify(ctx, in_dir("out"), key, &lo, NULL), 0);
	assert_int_equal(w.last, 3 << 20);
	unlink(in_dir("out"));
	free(plain);
}

/* A file larger than RLIMIT_FSIZE: an error, not the signal that would end the caller. */
static void limit_on_file_sizes(void **state)
{
	struct sits_seal_opts o = seal_opts(4096);
	uint8_t *plain = make_plain(in_dir("plain"), 100000);
	unsigned int before = count_files();
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct rlimit lim = { 50000, 50000 };
		int ret;

		setrlimit(RLIMIT_FSIZE, &lim);
		ret = open_own_key();
		log_clear();
		ret = ret ? ret : sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o);
		_exit(ret == -EFBIG && strstr(test_log, "ulimit -f") ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	assert_int_equal(count_files(), before);
	free(plain);
}

/* A child where reading one byte, as is done at the end of an input, fails. */
static int work_with_bad_end(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(filter[0]), filter };

	if (open_own_key())
		return 1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 77;
	log_clear();
	return sits_seal(ctx, in_dir("plain"), in_dir("out"), key, NULL) == -EIO && strstr(test_log, "can't read at byte 10000") ? 0 : 1;
}

/* Return: the wait status of a child that does @work; its exit status is 77 where seccomp can't be had. */
static int in_child(int (*work)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid)
		_exit(work());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void check_child(int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("# seccomp can't be had\n");
		skip();
	}
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void end_that_cannot_be_read(void **state)
{
	uint8_t *plain = make_plain(in_dir("plain"), 10000);
	unsigned int before = count_files();
	int status;

	status = in_child(work_with_bad_end);
	assert_int_equal(count_files(), before);
	free(plain);
	unlink(in_dir("plain"));
	check_child(status);
}

/* @arg: how often it was called between the beginning and the end; so slow that each time is one to be told. */
static int slow_stop_in_the_middle(void *arg, uint64_t done, uint64_t total)
{
	unsigned int *nr = arg;

	usleep(120000);
	*nr += done && done < total;
	return *nr == 2;
}

/* A child that may start no thread: it is told of what is done as it goes, and is heard. */
static int work_without_threads(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(filter[0]), filter };
	struct sits_seal_opts o = seal_opts(4096);
	unsigned int nr_between = 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 77;
	alarm(HUNG_S);
	if (fork() != -1)
		return 77;
	if (open_own_key())
		return 1;
	o.progress = slow_stop_in_the_middle;
	o.progress_arg = &nr_between;
	if (sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o) != -ECANCELED || nr_between != 2)
		return 1;
	o.progress = NULL;
	return sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o) ||
	       sits_sealed_verify(ctx, in_dir("out"), key, NULL, NULL) ? 1 : 0;
}

static void without_threads(void **state)
{
	uint8_t *plain = make_plain(in_dir("plain"), 16 << 20);
	int status;

	status = in_child(work_without_threads);
	free(plain);
	unlink(in_dir("plain"));
	unlink(in_dir("out"));
	check_child(status);
}

/* The work of a child that may not call system call @nr. Return: its exit status; 77 where that can't be had. */
static int work_without(unsigned int nr)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(filter[0]), filter };
	struct sits_seal_opts o = seal_opts(4096);

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) ||
	    syscall(nr, -1, 0, 0, 0, 0, 0) != -1 || errno != EPERM)
		return 77;
	alarm(HUNG_S);
	return open_own_key() || sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o) ||
	       sits_sealed_verify(ctx, in_dir("out"), key, NULL, NULL) ? 1 : 0;
}

/* Where io_uring is forbidden, as in many containers, or one of its calls is, all works without. */
static void without_io_uring(void **state)
{
	static const unsigned int calls[] = { __NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register };
	uint8_t *plain = make_plain(in_dir("plain"), (3 << 20) + 5);
	int status, i;
	pid_t pid;

	for (i = 0; i < 3; i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(work_without(calls[i]));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (!WIFEXITED(status))
			fail_msg("system call %u refused: ended by signal %d", calls[i], WTERMSIG(status));
		unlink(in_dir("out"));
		if (WEXITSTATUS(status) == 77) {
			free(plain);
			print_message("# skip: no seccomp filters here\n");
			skip();
		}
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	free(plain);
}

/* Names that killed runs left go, that of a living run stays, and so does what only looks similar. */
static void leftovers(void **state)
{
	static const char *const names[] = {
		".out.sits-tmp.0123abcd", ".out.sits-tmp.ffffffff",		/* left */
		".out.sits-tmp.11111111",					/* locked */
		".out.sits-tmp.0123abc", ".out.sits-tmp.0123abcg", ".out.sits-tmp.0123abcd0", "out.sits-tmp.0123abcd",
		".other.sits-tmp.0123abcd",
	};
	struct sits_seal_opts o = seal_opts(4096);
	uint8_t *plain = make_plain(in_dir("plain"), 5000);
	size_t i;
	int fd;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		write_file(in_dir(names[i]), "x", 1, 0600);
	fd = open(in_dir(names[2]), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o), 0);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(access(in_dir(names[i]), F_OK), i < 2 ? -1 : 0);
	close(fd);
	/* Also when the run then fails. */
	log_clear();
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o), -EEXIST);
	assert_int_equal(access(in_dir(names[2]), F_OK), -1);
	for (i = 3; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(unlink(in_dir(names[i])), 0);
	unlink(in_dir("out"));
	free(plain);
}

/* Both kinds of temporary file, both kinds of commit, and another file appearing meanwhile. */
static void temporary_files(void **state)
{
	unsigned int flags, replace, appears, before = count_files();
	struct sits_tmpfile t;
	uint8_t *is;
	size_t len;

	for (flags = 0; flags <= SITS_TMPFILE_NAMED; flags++) {
		for (replace = 0; replace < 2; replace++) {
			for (appears = 0; appears < 2; appears++) {
				assert_int_equal(sits_tmpfile_open(ctx, in_dir("t"), 0640, replace, flags, &t), 0);
				assert_int_equal(write(t.fd, "new", 3), 3);
				/* No name but a temporary one, if any, before the commit. */
				assert_int_equal(access(in_dir("t"), F_OK), -1);
				assert_int_equal(count_files(), before + !!flags);
				if (appears)
					write_file(in_dir("t"), "other", 5, 0600);
				log_clear();
				assert_int_equal(sits_tmpfile_commit(&t), appears && !replace ? -EEXIST : 0);
				assert_int_equal(count_files(), before + 1);
				is = read_file(in_dir("t"), &len);
				assert_int_equal(len, appears && !replace ? 5 : 3);
				free(is);
				unlink(in_dir("t"));
			}
			assert_int_equal(sits_tmpfile_open(ctx, in_dir("t"), 0640, replace, flags, &t), 0);
			sits_tmpfile_abort(&t);
			assert_int_equal(count_files(), before);
		}
	}
}

/* The longest base name, relative, so that the path fits in the helpers' buffers. */
static void longest_name(void **state)
{
	struct sits_tmpfile t;
	char base[NAME_MAX + 2];
	int cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(chdir(test_dir), 0);
	memset(base, 'b', NAME_MAX);
	base[NAME_MAX] = '\0';
	assert_int_equal(sits_tmpfile_open(ctx, base, 0600, true, SITS_TMPFILE_NAMED, &t), 0);
	assert_int_equal(sits_tmpfile_commit(&t), 0);
	assert_int_equal(access(base, F_OK), 0);
	unlink(base);
	base[NAME_MAX] = 'b';
	base[NAME_MAX + 1] = '\0';
	assert_int_equal(sits_tmpfile_open(ctx, base, 0600, true, 0, &t), -ENAMETOOLONG);
	assert_int_equal(fchdir(cwd), 0);
	close(cwd);
}

static int stop_at_once(void *arg, uint64_t done, uint64_t total)
{
	return 1;
}

/* The same model under another file key, in place of the old; or all as it was. */
static void resealing(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, (2 << 20) + 77 };
	struct sits_load_opts lo = { .size = sizeof(lo), .progress = stop_at_once };
	static const struct sits_load_range part = { .len_bytes = 1 };
	struct sits_seal_opts o = seal_opts(4096);
	struct sits_sealed_info before, after;
	struct sits_key *next = make_key("next");
	struct sits_region *r;
	uint8_t *plain, *is, *was;
	unsigned int files;
	struct stat st;
	size_t i, len;

	o.model_id = "kept";
	o.model_version = 9;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		plain = make_plain(in_dir("plain"), sizes[i]);
		assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out"), key, &o), 0);
		assert_int_equal(chmod(in_dir("out"), 0640), 0);
		assert_int_equal(symlink("out", in_dir("link")), 0);
		if (i & 1)
			assert_int_equal(link(in_dir("out"), in_dir("hard")), 0);
		assert_int_equal(sits_sealed_inspect(ctx, in_dir("out"), key, &before), 0);
		was = read_file(in_dir("out"), &len);
		files = count_files();

		assert_int_equal(sits_sealed_reseal(ctx, in_dir("out"), key, next, &lo), -ECANCELED);
		assert_int_equal(sits_sealed_reseal(ctx, in_dir("out"), next, key, NULL), -ENOKEY);
		lo.min_version = 10;
		assert_int_equal(sits_sealed_reseal(ctx, in_dir("out"), key, next, &lo), -EKEYEXPIRED);
		lo.min_version = 0;
		lo.nr_ranges = 1;
		lo.ranges = &part;
		assert_int_equal(sits_sealed_reseal(ctx, in_dir("out"), key, next, &lo), -EINVAL);
		lo.nr_ranges = 0;
		if (sizes[i] == (2 << 20) + 77) {
			patch_file(in_dir("out"), before.file_bytes - 77 - 5 * 4096, "changed", 7);
			log_clear();
			assert_int_equal(sits_sealed_reseal(ctx, in_dir("out"), key, next, NULL), -EBADMSG);
			assert_logged("chunk 507 ");
			patch_file(in_dir("out"), 0, was, len);
		}
		is = read_file(in_dir("out"), &len);
		assert_memory_equal(is, was, len);
		free(is);
		assert_int_equal(count_files(), files);

		log_clear();
		if (sits_sealed_reseal(ctx, in_dir("link"), key, next, NULL))
			fail_msg("%s", test_log);
		assert_int_equal(count_files(), files);
		/* The file that was is not gone while it has another name. */
		assert_int_equal(!!strstr(test_log, "hard links"), i & 1);
		assert_int_equal(sits_sealed_verify(ctx, in_dir("hard"), key, NULL, NULL), i & 1 ? 0 : -ENOENT);
		unlink(in_dir("hard"));
		assert_int_equal(sits_sealed_verify(ctx, in_dir("out"), key, NULL, NULL), -ENOKEY);
		r = make_region(sizes[i] + 1);
		assert_int_equal(sits_weights_load(ctx, in_dir("link"), r, next, NULL, &after), 0);
		assert_memory_equal(sits_region_data(r), plain, sizes[i]);
		sits_region_destroy(r);
		assert_string_equal(after.model_id, "kept");
		assert_int_equal(after.model_version, 9);
		assert_int_equal(after.chunk_bytes, 4096);
		assert_memory_not_equal(after.digest, before.digest, 32);
		assert_int_equal(stat(in_dir("out"), &st), 0);
		assert_int_equal(st.st_mode & 07777, 0640);
		assert_int_equal(lstat(in_dir("link"), &st), 0);
		assert_true(S_ISLNK(st.st_mode));
		unlink(in_dir("link"));
		unlink(in_dir("out"));
		free(plain);
		free(was);
	}
	sits_key_close(next);
}

/* Zeros would do as a key, and everybody knows them: nothing is sealed, opened or kept under what a fork left of one. */
static int use_inherited_key(void)
{
	struct sits_sealed_info info;
	struct sits_key *own = key;
	char spec[300];

	log_clear();
	if (sits_seal(ctx, in_dir("plain"), in_dir("out"), key, NULL) != -ESTALE || !strstr(test_log, "fork"))
		return 1;
	snprintf(spec, sizeof(spec), "file:%s", in_dir("saved"));
	if (sits_key_save(ctx, key, spec) != -ESTALE || sits_key_install(ctx, key, "keyring:saved") != -ESTALE)
		return 2;
	if (sits_sealed_verify(ctx, in_dir("a.sits"), key, NULL, NULL) != -ESTALE ||
	    sits_sealed_inspect(ctx, in_dir("a.sits"), key, &info) != -ESTALE)
		return 3;
	if (sits_weights_load(ctx, in_dir("a.sits"), make_region(8192), key, NULL, NULL) != -ESTALE)
		return 4;
	if (open_own_key())	/* into key */
		return 5;
	if (sits_sealed_rekey(ctx, in_dir("a.sits"), key, own) != -ESTALE || sits_sealed_rekey(ctx, in_dir("a.sits"), own, key) != -ESTALE ||
	    sits_sealed_reseal(ctx, in_dir("a.sits"), key, own, NULL) != -ESTALE)
		return 6;
	return sits_sealed_verify(ctx, in_dir("a.sits"), key, NULL, NULL) ? 7 : 0;
}

static void forked_child_has_no_key(void **state)
{
	uint8_t *plain = make_plain(in_dir("plain"), 8192);
	unsigned int files;
	int status = 0;
	pid_t pid;

	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("a.sits"), key, NULL), 0);
	files = count_files();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(use_inherited_key());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(count_files(), files);
	assert_int_equal(sits_sealed_verify(ctx, in_dir("a.sits"), key, NULL, NULL), 0);
	unlink(in_dir("a.sits"));
	unlink(in_dir("plain"));
	free(plain);
}

static int add_one(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad)
{
	size_t i;

	for (i = 0; i < len; i++)
		buf[i]++;
	return 0;
}

static int fail_at(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad)
{
	/* Everything from there on fails; the first must be the one that is told. */
	return off >= *(uint64_t *)arg ? -EBADMSG : 0;
}

/* A program may run without standard error, and still log there. */
static void print_line(void *arg, int severity, const char *line)
{
	ssize_t n = write(STDERR_FILENO, line, strlen(line));

	(void)n;
}

static int work_without_stdio(void)
{
	struct sits_open_opts oo = { .size = sizeof(oo), .provider = SITS_PROVIDER_USER, .log = print_line };
	struct sits_seal_opts o = seal_opts(4096);
	struct sits_key *k = NULL, *other = NULL;
	char spec[300], other_spec[300];
	int ret;

	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	snprintf(spec, sizeof(spec), "file:%s", in_dir("kek"));
	ret = sits_open(&oo, &ctx);
	ret = ret ? ret : sits_key_open(ctx, spec, &k);
	ret = ret ? ret : sits_seal(ctx, in_dir("plain"), in_dir("a.sits"), k, &o);
	/* Warns with the file open: it is under k already. */
	snprintf(other_spec, sizeof(other_spec), "file:%s", in_dir("other"));
	ret = ret ? ret : sits_key_create(ctx, other_spec);
	ret = ret ? ret : sits_key_open(ctx, other_spec, &other);
	ret = ret ? ret : sits_sealed_rekey(ctx, in_dir("a.sits"), other, k);
	unlink(in_dir("other"));
	sits_key_close(other);
	sits_key_close(k);
	return ret;
}

static void messages_never_go_into_files(void **state)
{
	uint8_t *plain = make_plain(in_dir("plain"), 8192);
	int status = 0;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(work_without_stdio() ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(sits_sealed_verify(ctx, in_dir("a.sits"), key, NULL, NULL), 0);
	unlink(in_dir("a.sits"));
	free(plain);
}

/* What is said of the output is the same as if it were opened; callers that do not know of it are served as before. */
static void output_is_described(void **state)
{
	static const size_t lens[] = { 0, 1, 4096, 300000 };
	struct sits_sealed_info info, untouched, want;
	struct sits_seal_opts o = seal_opts(4096);
	size_t i;

	o.force = 1;
	o.model_version = 5;
	memset(&untouched, 0xa5, sizeof(untouched));
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		free(make_plain(in_dir("plain"), lens[i]));
		memset(&info, 0xa5, sizeof(info));
		o.info = &info;
		assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out.sits"), key, &o), 0);
		assert_int_equal(sits_sealed_inspect(ctx, in_dir("out.sits"), key, &want), 0);
		assert_memory_equal(&info, &want, sizeof(info));
	}
	/* Not on failure. */
	memset(&info, 0xa5, sizeof(info));
	o.force = 0;
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out.sits"), key, &o), -EEXIST);
	assert_memory_equal(&info, &untouched, sizeof(info));
	/* And not where the options end before it. */
	o.force = 1;
	o.size = offsetof(struct sits_seal_opts, info);
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out.sits"), key, &o), 0);
	assert_memory_equal(&info, &untouched, sizeof(info));
	o.size--;
	assert_int_equal(sits_seal(ctx, in_dir("plain"), in_dir("out.sits"), key, &o), -EINVAL);
	unlink(in_dir("plain"));
	unlink(in_dir("out.sits"));
}

/* The pump by itself, with io_uring and without: the same bytes, the same failures. */
static void pump(void **state)
{
	size_t len = (5 << 20) + 777, got;
	uint8_t *plain = make_plain(in_dir("plain"), len), *is;
	uint64_t fail_off = 3 << 20;
	unsigned int flags, threads;
	size_t i;

	for (flags = 0; flags <= SITS_PUMP_NO_URING; flags++) {
		for (threads = 1; threads <= 4; threads++) {
			struct sits_pump p = {
				.in_fd = open(in_dir("plain"), O_RDONLY | O_CLOEXEC),
				.in_direct_fd = open(in_dir("plain"), O_RDONLY | O_CLOEXEC | O_DIRECT),
				.out_fd = open(in_dir("pumped"), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600),
				.out_off = 100, .total_bytes = len, .span_bytes = 64 << 10, .threads = threads,
				.flags = flags, .work = add_one,
			};
			struct sits_pump q;

			assert_int_equal(sits_pump_run(&p), 0);
			is = read_file(in_dir("pumped"), &got);
			assert_int_equal(got, len + 100);
			for (i = 0; i < len; i++)
				if (is[100 + i] != (uint8_t)(plain[i] + 1))
					fail_msg("flags %u, threads %u: byte %zu", flags, threads, i);
			free(is);

			q = p;
			q.out_fd = -1;
			q.work = fail_at;
			q.arg = &fail_off;
			assert_int_equal(sits_pump_run(&q), -EBADMSG);
			assert_int_equal(q.fail_stage, SITS_PUMP_WORK);
			assert_int_equal(q.fail_off, fail_off);

			/* The input ends early; more than there is was promised. */
			q = p;
			q.out_fd = -1;
			q.total_bytes = len + 1;
			assert_int_equal(sits_pump_run(&q), -ENODATA);
			assert_int_equal(q.fail_stage, SITS_PUMP_EOF);
			assert_int_equal(q.fail_off, len);

			/* An output that can't be written. */
			q = p;
			q.out_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
			assert_int_equal(sits_pump_run(&q), -ENOSPC);
			assert_int_equal(q.fail_stage, SITS_PUMP_WRITE);
			close(q.out_fd);

			/* An input that can't be read. */
			q = p;
			q.in_fd = open(test_dir, O_RDONLY | O_CLOEXEC);
			q.in_direct_fd = -1;
			assert_int_equal(sits_pump_run(&q), -EISDIR);
			assert_int_equal(q.fail_stage, SITS_PUMP_READ);
			assert_int_equal(q.fail_off, 0);
			close(q.in_fd);
			close(p.in_fd);
			close(p.in_direct_fd);
			close(p.out_fd);
		}
	}
	unlink(in_dir("pumped"));
	free(plain);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_around_chunks_and_spans),
		cmocka_unit_test(fresh_randomness),
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(ids_from_names),
		cmocka_unit_test(replacing_an_output),
		cmocka_unit_test(input_that_changes_and_cancelling),
		cmocka_unit_test(progress_ends_with_all),
		cmocka_unit_test(limit_on_file_sizes),
		cmocka_unit_test(without_io_uring),
		cmocka_unit_test(without_threads),
		cmocka_unit_test(end_that_cannot_be_read),
		cmocka_unit_test(leftovers),
		cmocka_unit_test(temporary_files),
		cmocka_unit_test(longest_name),
		cmocka_unit_test(resealing),
		cmocka_unit_test(messages_never_go_into_files),
		cmocka_unit_test(output_is_described),
		cmocka_unit_test(forked_child_has_no_key),
		cmocka_unit_test(pump),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("sealing", tests, setup, teardown);
}
