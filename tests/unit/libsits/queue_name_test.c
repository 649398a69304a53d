// SPDX-License-Identifier: MIT
/*
 * queue_name_test.c - a queue's name, mode and directory, its options, and that nothing grows when
 * queues and channels come and go.
 */
#include "tests/unit/libsits/queue_peer.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "libsits/wire.h"

/* ------------------------------------------------------------------- names and arguments */

static void test_live_name_is_refused(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_queue *second;
	struct sits_channel *ch;
	struct peer p;

	peer_start(&p, NULL);
	assert_int_equal(sits_queue_create(p.ctx, &o, &second), -EADDRINUSE);
	assert_true(peer_logged(&p, "held by a running daemon"));
	ch = peer_channel(&p);		/* the first one is none the worse */
	expect_end(ch, submit_text(ch, "E"), 0);
	sits_channel_close(ch);
	o.name = "other";
	assert_int_equal(sits_queue_create(p.ctx, &o, &second), 0);
	sits_queue_destroy(second);
	peer_end(&p);
}

static void test_dead_name_is_taken_over(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_channel *ch;
	struct peer p;
	int pipefd[2];
	char c;
	pid_t pid;

	peer_open(&p);
	assert_int_equal(pipe(pipefd), 0);
	pid = fork();
	if (!pid) {
		if (sits_queue_create(p.ctx, &o, &p.queue))
			_exit(1);
		if (write(pipefd[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(pipefd[0], &c, 1), 1);
	assert_int_equal(sits_queue_create(p.ctx, &o, &p.queue), -EADDRINUSE);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(sits_channel_open(p.ctx, "q", 0, &ch), test_on_kernel() ? -ENOENT : -ECONNREFUSED);
	assert_int_equal(sits_queue_create(p.ctx, &o, &p.queue), 0);
	peer_run(&p);
	ch = peer_channel(&p);
	expect_end(ch, submit_text(ch, "E"), 0);
	sits_channel_close(ch);
	close(pipefd[0]);
	close(pipefd[1]);
	peer_end(&p);
}

/* Many daemons start at once: one wins, and that one serves. */
static void test_one_of_many_wins(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct peer p;
	pid_t pid[6];
	int go[2], won[2], wins = 0, status;
	char c;

	peer_open(&p);
	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(won), 0);
	for (int i = 0; i < 6; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			int ret;

			close(go[1]);
			if (read(go[0], &c, 1) < 0)	/* EOF starts all at once */
				_exit(9);
			ret = sits_queue_create(p.ctx, &o, &p.queue);
			if (ret)
				_exit(ret == -EADDRINUSE ? 0 : 2);
			if (write(won[1], "x", 1) != 1)
				_exit(9);
			pause();
			_exit(3);
		}
	}
	close(go[0]);
	close(go[1]);
	assert_int_equal(read(won[0], &c, 1), 1);
	for (int left = 6; left > 1; left--) {	/* all but the winner end by themselves */
		pid_t done = wait(&status);

		assert_true(done > 0);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		for (int i = 0; i < 6; i++)
			if (pid[i] == done)
				pid[i] = 0;
	}
	for (int i = 0; i < 6; i++)
		if (pid[i]) {
			wins++;
			kill(pid[i], SIGKILL);
			waitpid(pid[i], NULL, 0);
		}
	assert_int_equal(wins, 1);
	close(won[0]);
	close(won[1]);
	peer_end(&p);
}

/* Return the errno with which uid 65534 fails to open, or 0. */
static int open_as_nobody(struct peer *p)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct sits_channel *ch;

		if (setgid(65534) || setuid(65534))
			_exit(99);
		_exit(-sits_channel_open(p->ctx, "q", 0, &ch));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static void test_mode(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct stat st;
	struct peer p;
	char path[128];
	mode_t mask = umask(077);

	o.mode = 0666;
	peer_start(&p, &o);
	assert_int_equal(chmod(p.dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/q.sock", p.dir);
	if (!test_on_kernel()) {
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0666);	/* whatever the umask is */
	}
	umask(mask);
	if (getuid() == 0) {
		assert_int_equal(open_as_nobody(&p), 0);
		peer_end(&p);
		o.mode = 0600;
		peer_start(&p, &o);
		assert_int_equal(chmod(p.dir, 0755), 0);
		assert_int_equal(open_as_nobody(&p), EACCES);
	}
	peer_end(&p);
}

static void test_arguments(void **state)
{
	static const char *const bad_names[] = {
		"", ".", ".x", "a/b", "a b", "\303\244", "12345678901234567890123456789012", NULL,
	};
	struct sits_queue_opts good = peer_opts(), o;
	struct sits_queue *q;
	struct sits_channel *ch;
	struct peer p;

	peer_open(&p);
	for (size_t i = 0; i < sizeof(bad_names) / sizeof(bad_names[0]); i++) {
		o = good;
		o.name = bad_names[i];
		assert_int_equal(sits_queue_create(p.ctx, &o, &q), -EINVAL);
		assert_int_equal(sits_channel_open(p.ctx, bad_names[i], 0, &ch), -EINVAL);
	}
#define BAD(field_, value_) do { o = good; o.field_ = (value_); \
		assert_int_equal(sits_queue_create(p.ctx, &o, &q), -EINVAL); } while (0)
	BAD(size, 0);
	BAD(size, sizeof(o) - 1);
	BAD(flags, 1);
	BAD(depth, 0);
	BAD(depth, (1u << 20) + 1);
	BAD(per_client, 0);
	BAD(per_client, good.depth + 1);
	BAD(max_clients, 0);
	BAD(mode, 01000);
	BAD(chunk_backlog, 0);
	BAD(reserved, 1);
#undef BAD
	o = good;
	o.name = "1234567890123456789012345678901";	/* the longest */
	assert_int_equal(sits_queue_create(p.ctx, &o, &q), 0);
	assert_int_equal(sits_queue_commit(q, 1, NULL, 0, 0, 0), -ENOENT);
	assert_int_equal(sits_queue_commit(q, 0, NULL, 0, 0, SITS_COMMIT_LAST), -ENOENT);
	assert_int_equal(sits_queue_commit(q, UINT64_MAX, NULL, 0, 0, SITS_COMMIT_LAST), -ENOENT);
	assert_int_equal(sits_queue_commit(q, 1, NULL, 0, 1, SITS_COMMIT_LAST), -EINVAL);
	assert_int_equal(sits_queue_commit(q, 1, NULL, 0, -1, 0), -EINVAL);
	assert_int_equal(sits_queue_commit(q, 1, NULL, 1, 0, 0), -EINVAL);
	assert_int_equal(sits_queue_commit(q, 1, NULL, 0, 0, 2), -EINVAL);
	sits_queue_destroy(q);
	sits_queue_destroy(NULL);
	sits_channel_close(NULL);
	peer_end(&p);
}

static void test_run_dir(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_open_opts oo = { .size = sizeof(oo), .provider = SITS_PROVIDER_USER };
	struct sits_queue *q;
	struct sits_ctx *ctx;
	struct stat st;
	struct peer p;
	char dir[200];

	peer_need_user("run directory");
	peer_open(&p);
	oo.log = peer_log;
	oo.log_arg = &p;
	/* Made where it is missing, its parent not. */
	snprintf(dir, sizeof(dir), "%s/sub", p.dir);
	oo.run_dir = dir;
	assert_int_equal(sits_open(&oo, &ctx), 0);
	assert_int_equal(sits_queue_create(ctx, &o, &q), 0);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	sits_queue_destroy(q);
	sits_close(ctx);
	peer_remove_dir(dir);
	strcat(dir, "/deeper");
	assert_int_equal(sits_open(&oo, &ctx), 0);
	assert_int_equal(sits_queue_create(ctx, &o, &q), -ENOENT);
	assert_true(peer_logged(&p, "run directory"));
	sits_close(ctx);
	/* Too long for a socket: said so, with the numbers. */
	memset(dir + strlen(p.dir), 'x', 120);
	dir[strlen(p.dir) + 120] = '\0';
	dir[strlen(p.dir)] = '/';
	assert_int_equal(sits_open(&oo, &ctx), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(sits_queue_create(ctx, &o, &q), -ENAMETOOLONG);
	assert_true(peer_logged(&p, "107 are possible"));
	sits_close(ctx);
	rmdir(dir);
	peer_end(&p);
}

/* Somebody removes the run directory's files, and a second daemon takes the name: the first one's end leaves it be. */
static void test_name_lost_and_taken(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_queue *first;
	struct sits_channel *ch;
	struct peer p;

	peer_need_user("files that could be removed");
	peer_open(&p);
	assert_int_equal(sits_queue_create(p.ctx, &o, &first), 0);
	peer_remove_dir(p.dir);
	assert_int_equal(sits_queue_create(p.ctx, &o, &p.queue), 0);
	peer_run(&p);
	sits_queue_destroy(first);
	ch = peer_channel(&p);
	expect_end(ch, submit_text(ch, "E"), 0);
	sits_channel_close(ch);
	peer_end(&p);
}

/* ------------------------------------------------------------------------ closed without a word */

/* A daemon under a flood of connections: it closes the first @arg of them before it has heard HELLO. */
struct closer {
	int listen_fd, nr_closed, nr_to_close;
};

static void *closer_main(void *arg)
{
	struct sits_wire_welcome w = {
		.hdr = sits_wire_hdr(SITS_WIRE_WELCOME, sizeof(w)), .version = SITS_WIRE_VERSION, .max_outstanding = 8,
	};
	struct closer *c = arg;
	char hello[SITS_WIRE_MAX];
	int fd;

	while ((fd = accept(c->listen_fd, NULL, NULL)) >= 0) {
		if (c->nr_closed < c->nr_to_close) {
			c->nr_closed++;
			close(fd);
			continue;
		}
		if (recv(fd, hello, sizeof(hello), 0) > 0 && send(fd, &w, sizeof(w), MSG_NOSIGNAL) > 0)
			recv(fd, hello, sizeof(hello), 0);	/* its end */
		close(fd);
		break;
	}
	return NULL;
}

static void test_closed_before_hello(void **state)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct closer c = { .nr_to_close = 20 };
	struct sits_channel *ch;
	pthread_t thread;
	struct peer p;

	peer_need_user("socket");
	peer_open(&p);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/q.sock", p.dir);
	c.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(c.listen_fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(c.listen_fd, 8), 0);
	assert_int_equal(pthread_create(&thread, NULL, closer_main, &c), 0);
	assert_int_equal(sits_channel_open(p.ctx, "q", 0, &ch), 0);
	sits_channel_close(ch);
	pthread_join(thread, NULL);
	assert_int_equal(c.nr_closed, 20);
	close(c.listen_fd);
	peer_end(&p);
}

/* ------------------------------------------------------------------------ without io_uring */

/* Have the kernel refuse io_uring_setup(2), as a container or kernel.io_uring_disabled does. */
static bool refuse_io_uring(int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = 4, .filter = code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* Serve and ask in a process that may not have a ring. Return: 0, or the step that failed. */
static int live_without_io_uring(int err)
{
	struct sits_channel *ch;
	struct sits_chunk chunk;
	struct peer p;
	uint64_t req;

	if (!refuse_io_uring(err))
		return 1;
	peer_start(&p, NULL);
	ch = peer_channel(&p);
	for (int i = 0; i < 100; i++) {
		if (sits_channel_submit(ch, "Ehello", 6, 0, &req))
			return 2;
		if (sits_channel_recv(ch, &chunk, 20000) != 1 || chunk.len != 5 || chunk.status)
			return 3;
	}
	sits_channel_close(ch);
	if (!peer_logged(&p, "queue: io_uring is not available") ||
	    !peer_logged(&p, "channel: io_uring is not available") ||
	    !peer_logged(&p, "kernel.io_uring_disabled"))
		return 4;
	peer_end(&p);
	return 0;
}

static void test_io_uring_is_refused(void **state)
{
	static const int errs[] = { EPERM, ENOSYS };

	unsetenv("SITS_NO_IO_URING");
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t pid = fork();

		if (!pid)
			_exit(live_without_io_uring(errs[i]));
		waitpid(pid, &status, 0);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

/* ------------------------------------------------------------------------------ no growth */

static void open_and_close(struct peer *p, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		struct sits_channel *ch;
		int ret;

		do {
			ret = sits_channel_open(p->ctx, "q", 0, &ch);
		} while (ret == -EBUSY);	/* the daemon is behind with the goodbyes */
		assert_int_equal(ret, 0);
		if (i % 3 == 0)
			submit_text(ch, "H");	/* left outstanding */
		if (i % 3 == 1)
			expect_end(ch, submit_text(ch, "Ex"), 0);
		sits_channel_close(ch);
	}
}

static void wait_for_clients(struct peer *p, uint32_t want)
{
	struct sits_queue_stats stats;

	do {
		sched_yield();
		sits_queue_get_stats(p->queue, &stats);
	} while (stats.clients != want || stats.pending);
}

static void test_no_growth(void **state)
{
	size_t fds, maps;
	struct peer p;
	long rss;

	peer_start(&p, NULL);
	open_and_close(&p, 100);
	wait_for_clients(&p, 0);
	fds = peer_nr_fds();
	maps = peer_nr_maps();
	rss = peer_rss_kib();
	open_and_close(&p, test_rounds(3000, 250));
	wait_for_clients(&p, 0);
	/* The last connection's descriptor is closed a turn after it is counted out: here, and above. */
	assert_true(peer_settled_fds(fds) <= fds);
	assert_true(peer_nr_maps() <= maps + (PEER_SANITIZED ? 100 : 2));
	print_message("# RSS %ld KiB before these rounds, %ld KiB after\n", rss, peer_rss_kib());
	if (!PEER_SANITIZED)	/* the sanitizer keeps freed memory for a while */
		assert_true(peer_rss_kib() < rss + 2048);
	peer_end(&p);
}

static void test_queues_no_growth(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_queue *q;
	struct peer p;
	size_t fds = 0, maps = 0;

	peer_open(&p);
	for (int i = 0; i < test_rounds(520, 100); i++) {
		if (i == 20) {
			fds = peer_nr_fds();
			maps = peer_nr_maps();
		}
		assert_int_equal(sits_queue_create(p.ctx, &o, &q), 0);
		sits_queue_destroy(q);
	}
	assert_int_equal(peer_nr_fds(), fds);
	assert_true(peer_nr_maps() <= maps + (PEER_SANITIZED ? 100 : 2));
	peer_end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_live_name_is_refused),
		BOTH(test_dead_name_is_taken_over),
		BOTH(test_one_of_many_wins),
		BOTH(test_mode),
		BOTH(test_arguments),
		BOTH(test_run_dir),
		BOTH(test_no_growth),
		BOTH(test_queues_no_growth),
		cmocka_unit_test(test_name_lost_and_taken),
		cmocka_unit_test(test_closed_before_hello),
		cmocka_unit_test(test_io_uring_is_refused),
	};

	return peer_run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
