// SPDX-License-Identifier: MIT
/*
 * queue_kill_test.c - SIGKILL at random moments, to a client or to the daemon.
 *
 * The other side hears of it, survivors get every request ended exactly once, a new daemon takes the
 * name over, and nothing is left behind. How long the news takes is measured from the kill.
 *
 * What is not killed does not fork either while it works: a fork takes the right to write away from all of a process's
 * pages, and QEMU loses the processor's flags where some instructions find that (docs/vm-tests.md).
 */
#include "tests/unit/libsits/queue_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#define ROUNDS 100
#define GUEST_ROUNDS 50
#define HELD_MAX 8

static int nr_rounds(void)
{
	return test_rounds(ROUNDS, GUEST_ROUNDS);
}

static uint64_t rng_state;

static uint64_t rng(void)	/* xorshift64, Marsaglia 2003 */
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static int seed(void **state)
{
	if (*state)
		setenv("SITS_NO_IO_URING", "1", 1);
	else
		unsetenv("SITS_NO_IO_URING");
	rng_state = (uint64_t)time(NULL) * 2654435761u | 1;
	print_message("# seed %llu\n", (unsigned long long)rng_state);
	return 0;
}

/* A random moment: some work's worth of time after the child has begun. */
static void wait_random(void)
{
	const struct timespec ts = { .tv_nsec = (long)(rng() % 3000000) };

	nanosleep(&ts, NULL);
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The news must come within a second: by the median, so that a busy machine's worst does not count. */
static void report(const char *who, uint64_t *ns, int nr)
{
	qsort(ns, (size_t)nr, sizeof(*ns), compare);
	print_message("# %s heard after %.2f ms in the median, %.2f ms at most\n", who,
		      (double)ns[nr / 2] * 1e-6, (double)ns[nr - 1] * 1e-6);
	assert_true(ns[nr / 2] < 1000000000u);
}

/* ------------------------------------------------------------------- a client dies */

/*
 * A process that makes clients, one after the other, each when it is asked to. It tells of each one twice: that it is under
 * way, which the client itself does, and that it has ended.
 */
struct nursery {
	pid_t pid;
	int ask, hear;
};

struct news {
	pid_t pid;
	int ended;
};

/* Ask for everything at once, for ever. */
static void client_main(const char *dir, int tell)
{
	/* A context of its own: the parent's log lock may be held by a thread that is not here. */
	struct sits_open_opts o = { .size = sizeof(o), .provider = test_provider, .run_dir = dir };
	const struct news news = { .pid = getpid() };
	uint8_t stream[9] = { 'N' };
	const uint32_t count = 50, len = 700;
	struct sits_channel *ch;
	struct sits_chunk chunk;
	struct sits_ctx *ctx;
	uint64_t req;

	memcpy(stream + 1, &count, 4);
	memcpy(stream + 5, &len, 4);
	if (sits_open(&o, &ctx) || sits_channel_open(ctx, "q", 0, &ch))
		_exit(1);
	for (int i = 0;; i++) {
		sits_channel_submit(ch, "H", 1, i % 2 ? 1000000 : 0, &req);
		if (i % 3 == 0)
			sits_channel_cancel(ch, req);
		sits_channel_submit(ch, stream, sizeof(stream), 0, &req);
		sits_channel_submit(ch, "Ehello", 6, 0, &req);
		while (sits_channel_recv(ch, &chunk, 0) == 1)
			;
		if (i == 3 && write(tell, &news, sizeof(news)) != sizeof(news))
			_exit(1);
	}
}

static void nursery_main(const char *dir, int asked, int tell)
{
	struct news news = { .ended = 1 };
	char c;

	while (read(asked, &c, 1) == 1) {
		news.pid = fork();
		if (!news.pid)
			client_main(dir, tell);
		waitpid(news.pid, NULL, 0);
		if (write(tell, &news, sizeof(news)) != sizeof(news))
			break;
	}
	_exit(0);
}

static void nursery_open(struct nursery *n, const char *dir)
{
	int ask[2], tell[2];

	assert_int_equal(pipe2(ask, O_CLOEXEC), 0);
	assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
	n->pid = fork();
	assert_true(n->pid >= 0);
	if (!n->pid) {
		close(ask[1]);
		close(tell[0]);
		nursery_main(dir, ask[0], tell[1]);
	}
	close(ask[0]);
	close(tell[1]);
	n->ask = ask[1];
	n->hear = tell[0];
}

static void nursery_close(struct nursery *n)
{
	close(n->ask);
	close(n->hear);
	waitpid(n->pid, NULL, 0);
}

static pid_t start_client(struct nursery *n)
{
	struct news news;

	assert_int_equal(write(n->ask, "x", 1), 1);
	assert_int_equal(read(n->hear, &news, sizeof(news)), sizeof(news));
	if (news.ended)
		fail_msg("a client can't be had, or ends by itself");
	return news.pid;
}

/* Killed, it is waited for. */
static void bury_client(struct nursery *n, pid_t pid)
{
	struct news news;

	assert_int_equal(read(n->hear, &news, sizeof(news)), sizeof(news));
	assert_true(news.ended && news.pid == pid);
}

struct survivor {
	struct peer *p;
	pthread_t thread;
	int stop;	/* atomic */
	uint64_t rounds;
	const char *wrong;
	char what[160];		/* of what was received last, where that is wrong */
};

/* Beside the dying: each request is ended once, with its own bytes. */
static void *survivor_main(void *arg)
{
	struct survivor *s = arg;
	struct sits_channel *ch;
	struct sits_chunk chunk;
	uint64_t req = 0, asked_at = 0;
	char msg[32];
	int ret = 0;

	if (sits_channel_open(s->p->ctx, "q", 0, &ch)) {
		s->wrong = "cannot open";
		return NULL;
	}
	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE) && !s->wrong) {
		int len = snprintf(msg, sizeof(msg), "E%llu", (unsigned long long)s->rounds++);

		chunk = (struct sits_chunk){ .req = 0 };
		asked_at = peer_now_ns();
		ret = sits_channel_submit(ch, msg, (size_t)len, 0, &req);
		if (ret) {
			s->wrong = "submit";
			continue;
		}
		ret = sits_channel_recv(ch, &chunk, 20000);
		if (ret != 1 || chunk.req != req || !chunk.last)
			s->wrong = "no end of its request";
		else if (chunk.status && chunk.status != -EBUSY)
			s->wrong = "status";
		else if (!chunk.status && (chunk.len != (size_t)len - 1 ||
					   memcmp(chunk.data, msg + 1, chunk.len)))
			s->wrong = "somebody else's bytes";
	}
	if (s->wrong)
		snprintf(s->what, sizeof(s->what), "%d after %.1f ms; asked %#llx, received %#llx, %zu bytes, status %d%s", ret,
			 (double)(peer_now_ns() - asked_at) * 1e-6, (unsigned long long)req, (unsigned long long)chunk.req,
			 chunk.len, chunk.status, chunk.last ? ", last" : "");
	if (!s->wrong && sits_channel_recv(ch, &chunk, 0) != 0)
		s->wrong = "a second end";
	sits_channel_close(ch);
	return NULL;
}

static void wait_for_clients(struct peer *p, uint32_t want)
{
	struct sits_queue_stats stats;

	do {
		sched_yield();
		sits_queue_get_stats(p->queue, &stats);
	} while (stats.clients != want || stats.pending > want);
}

static void test_client_is_killed(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct survivor s = { 0 };
	const int rounds = nr_rounds();
	uint64_t heard[ROUNDS];
	size_t fds = 0, maps = 0;
	struct nursery n;
	struct peer p;
	long rss = 0;

	o.depth = 256;
	peer_create(&p, &o);
	nursery_open(&n, p.dir);
	peer_run(&p);
	s.p = &p;
	assert_int_equal(pthread_create(&s.thread, NULL, survivor_main, &s), 0);
	wait_for_clients(&p, 1);
	for (int i = 0; i < rounds; i++) {
		pid_t pid = start_client(&n);
		uint64_t start;

		wait_random();
		start = peer_now_ns();
		kill(pid, SIGKILL);
		wait_for_clients(&p, 1);
		heard[i] = peer_now_ns() - start;
		bury_client(&n, pid);
		if (i == 10) {
			fds = peer_nr_fds();
			maps = peer_nr_maps();
			rss = peer_rss_kib();
		}
	}
	report("the daemon", heard, rounds);
	assert_true(peer_settled_fds(fds) <= fds);
	assert_true(peer_nr_maps() <= maps + (PEER_SANITIZED ? 100 : 3));
	if (!PEER_SANITIZED)
		assert_true(peer_rss_kib() < rss + 4096);
	__atomic_store_n(&s.stop, 1, __ATOMIC_RELEASE);
	pthread_join(s.thread, NULL);
	wait_for_clients(&p, 0);
	nursery_close(&n);
	peer_end(&p);
	if (s.wrong)
		fail_msg("the survivor: %s after %llu requests: %s", s.wrong, (unsigned long long)s.rounds, s.what);
	print_message("# the survivor had %llu requests ended, each once\n", (unsigned long long)s.rounds);
}

/* ------------------------------------------------------------------ the daemon dies */

static void daemon_main(struct peer *p, int ready)
{
	struct sits_open_opts oo = { .size = sizeof(oo), .provider = test_provider, .run_dir = p->dir };
	struct sits_queue_opts o = peer_opts();

	if (sits_open(&oo, &p->ctx) || sits_queue_create(p->ctx, &o, &p->queue))
		_exit(1);
	if (write(ready, "x", 1) != 1)
		_exit(1);
	peer_main(p);
}

static pid_t start_daemon(struct peer *p)
{
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		close(ready[0]);
		daemon_main(p, ready[1]);
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		fail_msg("a new daemon cannot take the name over");
	close(ready[0]);
	return pid;
}

struct asked {
	uint64_t req;
	int ends;
};

static int take(struct sits_channel *ch, struct asked *asked, int nr, int timeout_ms, bool *after)
{
	struct sits_chunk chunk;
	int ret = sits_channel_recv(ch, &chunk, timeout_ms);

	if (ret != 1)
		return ret;
	if (!chunk.last)
		return 1;
	*after |= chunk.status == -EPIPE;
	assert_true(chunk.status == 0 || chunk.status == -EPIPE || chunk.status == -EBUSY);
	for (int i = 0; i < nr; i++)
		if (asked[i].req == chunk.req) {
			asked[i].ends++;
			return 1;
		}
	fail_msg("the end of a request that was never made");
	return 1;
}

static uint64_t one_daemon_death(struct peer *p)
{
	uint8_t stream[9] = { 'N' };
	const uint32_t count = 30, len = 300;
	struct asked asked[2000] = { 0 };
	struct sits_channel *ch;
	pid_t pid = start_daemon(p);
	bool heard = false;
	uint64_t start, until;
	int nr = 0, ret;

	memcpy(stream + 1, &count, 4);
	memcpy(stream + 5, &len, 4);
	assert_int_equal(sits_channel_open(p->ctx, "q", 0, &ch), 0);
	until = peer_now_ns() + rng() % 3000000;
	for (int held = 0; peer_now_ns() < until && nr < 1990;) {
		const char *text = held < HELD_MAX && rng() % 4 == 0 ? "H" : "Ehello";

		if (rng() % 2)
			ret = sits_channel_submit(ch, text, strlen(text), 0, &asked[nr].req);
		else
			ret = sits_channel_submit(ch, stream, sizeof(stream), 0, &asked[nr].req);
		held += *text == 'H';
		nr += !ret;
		while (rng() % 4 && take(ch, asked, nr, 0, &heard) == 1)
			;
	}
	start = peer_now_ns();
	kill(pid, SIGKILL);
	do {
		ret = take(ch, asked, nr, 20000, &heard);
		if (heard && start) {
			until = peer_now_ns() - start;
			start = 0;
		}
	} while (ret == 1);
	if (start)	/* nothing was outstanding: the end itself is the news */
		until = peer_now_ns() - start;
	assert_int_equal(ret, -EPIPE);
	for (int i = 0; i < nr; i++)
		if (asked[i].ends != 1)
			fail_msg("request %d of %d ended %d times", i, nr, asked[i].ends);
	sits_channel_close(ch);
	waitpid(pid, NULL, 0);
	return until;
}

static void test_daemon_is_killed(void **state)
{
	const int rounds = nr_rounds();
	size_t fds = 0, maps = 0;
	uint64_t heard[ROUNDS];
	struct peer p;
	long rss = 0;

	peer_open(&p);
	for (int i = 0; i < rounds; i++) {
		heard[i] = one_daemon_death(&p);
		if (i == 10) {
			fds = peer_nr_fds();
			maps = peer_nr_maps();
			rss = peer_rss_kib();
		}
	}
	report("the client", heard, rounds);
	assert_int_equal(peer_nr_fds(), fds);
	assert_true(peer_nr_maps() <= maps + (PEER_SANITIZED ? 100 : 3));
	if (!PEER_SANITIZED)
		assert_true(peer_rss_kib() < rss + 4096);
	peer_end(&p);
}

#define ENGINES(test_) \
	{ #test_ "/io_uring", test_, seed, NULL, NULL }, \
	{ #test_ "/poll", test_, seed, NULL, (void *)(uintptr_t)"poll" }

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINES(test_client_is_killed),
		ENGINES(test_daemon_is_killed),
	};

	return peer_run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
