// SPDX-License-Identifier: MIT
/*
 * roundtrip_bench.c - the time of an empty request, from submit to the end of its answer, between two processes: through
 * /dev/sits by io_uring, the same where waits sleep at once, through /dev/sits by ioctls, through the user provider's
 * socket, and a byte through two pipes.
 *
 * All take turns, round by round; of all trips of a way the median and the 99th percentile are compared. Runs where the
 * module is loaded: tests/bench/run boots a virtual machine for it. Without the module it measures the last two ways.
 * It prints TAP too, so that a guest can run it as a test.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sits/context.h"
#include "sits/queue.h"

#define ROUNDS 20
#define WARM_UP 100	/* trips */

enum { URING_CMD, SLEEPING, IOCTL, SOCKET, PIPE, NR_WAYS };

static struct way {
	const char *name;
	uint32_t provider;	/* SITS_PROVIDER_*; 0: pipes */
	const char *no_ring;	/* SITS_NO_IO_URING */
	const char *spin;	/* SITS_SPIN_US */
	bool there;
	pid_t peer;
	struct sits_ctx *ctx;
	struct sits_channel *ch;
	int to, from;
	double *us;		/* of every trip */
	size_t nr;
	long switches;
} ways[NR_WAYS] = {
	[URING_CMD] = { .name = "roundtrip-uring-cmd", .provider = SITS_PROVIDER_KERNEL },
	[SLEEPING] = { .name = "roundtrip-uring-cmd-sleeping", .provider = SITS_PROVIDER_KERNEL, .spin = "0" },
	[IOCTL] = { .name = "roundtrip-ioctl", .provider = SITS_PROVIDER_KERNEL, .no_ring = "1" },
	[SOCKET] = { .name = "roundtrip-socket", .provider = SITS_PROVIDER_USER },
	[PIPE] = { .name = "roundtrip-pipe" },
};

static char dir[] = "/tmp/sits-roundtrip-XXXXXX";
static size_t trips = 200;	/* a round */

static void die(const char *what, int err)
{
	fprintf(stderr, "roundtrip_bench: %s: %s\n", what, strerror(-err));
	for (int i = 0; i < NR_WAYS; i++)
		if (ways[i].peer > 0)
			kill(ways[i].peer, SIGKILL);
	exit(1);
}

static void log_line(void *arg, int severity, const char *line)
{
	if (severity <= SITS_LOG_WARN)
		fprintf(stderr, "roundtrip_bench: %s\n", line);
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static int open_ctx(struct way *w)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = w->provider, .run_dir = dir, .log = log_line };

	unsetenv("SITS_NO_IO_URING");
	unsetenv("SITS_SPIN_US");
	if (w->no_ring)
		setenv("SITS_NO_IO_URING", w->no_ring, 1);
	if (w->spin)
		setenv("SITS_SPIN_US", w->spin, 1);
	return sits_open(&o, &w->ctx);
}

/* ------------------------------------------------------------------- the peers */

static void serve_queue(struct way *w, int ready)
{
	struct sits_queue_opts o = { .size = sizeof(o), .depth = 8, .per_client = 8, .max_clients = 1, .mode = 0600,
				     .chunk_backlog = 1 << 16, .name = w->name };
	struct sits_queue_event ev;
	struct sits_queue *queue;
	int ret = open_ctx(w);

	if (!ret)
		ret = sits_queue_create(w->ctx, &o, &queue);
	if (write(ready, &ret, sizeof(ret)) != sizeof(ret) || ret)
		_exit(1);
	for (;;)
		if (sits_queue_fetch(queue, &ev, -1) == 1)
			sits_queue_commit(queue, ev.req, NULL, 0, 0, SITS_COMMIT_LAST);
}

static void serve_pipe(int from, int to)
{
	char c;

	while (read(from, &c, 1) == 1)
		if (write(to, &c, 1) != 1)
			break;
}

static void start_peer(struct way *w)
{
	int there[2], back[2], ret = 0;

	if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC))
		die("pipe", -errno);
	w->peer = fork();
	if (w->peer < 0)
		die("fork", -errno);
	if (!w->peer) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(there[1]);
		close(back[0]);
		if (w->provider)
			serve_queue(w, back[1]);
		else
			serve_pipe(there[0], back[1]);
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	w->to = there[1];
	w->from = back[0];
	if (w->provider && (read(w->from, &ret, sizeof(ret)) != sizeof(ret) || ret))
		die(w->name, ret ? ret : -EIO);
}

static void start(struct way *w)
{
	int ret;

	start_peer(w);
	w->there = true;
	w->us = calloc(ROUNDS * trips, sizeof(*w->us));
	if (!w->us)
		die("memory", -ENOMEM);
	if (!w->provider)
		return;
	ret = open_ctx(w);
	if (!ret)
		ret = sits_channel_open(w->ctx, w->name, 0, &w->ch);
	if (ret)
		die(w->name, ret);
}

static void stop(struct way *w)
{
	sits_channel_close(w->ch);
	sits_close(w->ctx);
	close(w->to);
	close(w->from);
	kill(w->peer, SIGKILL);
	waitpid(w->peer, NULL, 0);
	free(w->us);
}

/* ------------------------------------------------------------------- the trips */

static void trip(struct way *w)
{
	struct sits_chunk chunk;
	uint64_t req;
	char c = 'x';
	int ret;

	if (!w->provider) {
		if (write(w->to, &c, 1) != 1 || read(w->from, &c, 1) != 1)
			die(w->name, -errno);
		return;
	}
	ret = sits_channel_submit(w->ch, &c, 1, 0, &req);
	if (ret)
		die(w->name, ret);
	ret = sits_channel_recv(w->ch, &chunk, -1);
	if (ret != 1 || !chunk.last || chunk.status || chunk.req != req)
		die(w->name, ret < 0 ? ret : -EIO);
}

static long switches(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_nvcsw + u.ru_nivcsw;
}

static void do_round(struct way *w)
{
	double start, end = now_us();
	long before = switches();

	for (size_t i = 0; i < trips; i++) {
		start = end;
		trip(w);
		end = now_us();
		w->us[w->nr++] = end - start;
	}
	w->switches += switches() - before;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double percentile(const struct way *w, double p)
{
	return w->us[(size_t)(p * (double)(w->nr - 1))];
}

static void report(const struct way *w, const struct way *peer, const char *what)
{
	double p50 = percentile(w, 0.5), p99 = percentile(w, 0.99);

	printf("{\"name\": \"%s\", \"value\": %.6g, \"p99\": %.6g, \"unit\": \"us\", ", w->name, p50, p99);
	if (peer)
		printf("\"peer\": \"%s, %.2f us (p99 %.2f us)\", \"ratio\": %.6g, \"ratio_p99\": %.6g, ", what,
		       percentile(peer, 0.5), percentile(peer, 0.99), p50 / percentile(peer, 0.5),
		       p99 / percentile(peer, 0.99));
	printf("\"switches\": %.6g, \"threads\": 2, \"command\": \"make bench BENCH=roundtrip\"}\n",
	       (double)w->switches / (double)w->nr);
}

int main(int argc, char **argv)
{
	bool module = !access("/dev/sits", F_OK);
	char lock[80];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		trips = strtoul(argv[1], NULL, 10);
	if (!trips || !mkdtemp(dir))
		die("usage: roundtrip_bench [TRIPS A ROUND]", -EINVAL);
	for (int i = 0; i < NR_WAYS; i++)
		if (module || ways[i].provider != SITS_PROVIDER_KERNEL)
			start(&ways[i]);
	for (int i = 0; i < NR_WAYS; i++)
		for (int n = 0; ways[i].there && n < WARM_UP; n++)
			trip(&ways[i]);
	for (int n = 0; n < ROUNDS; n++)
		for (int i = 0; i < NR_WAYS; i++)
			if (ways[i].there)
				do_round(&ways[i]);
	for (int i = 0; i < NR_WAYS; i++)
		if (ways[i].there)
			qsort(ways[i].us, ways[i].nr, sizeof(double), compare);
	if (module) {
		report(&ways[URING_CMD], &ways[SOCKET], "the user provider's socket");
		report(&ways[SLEEPING], &ways[SOCKET], "the user provider's socket");
		report(&ways[IOCTL], &ways[SOCKET], "the user provider's socket");
	}
	report(&ways[SOCKET], &ways[PIPE], "a byte through two pipes");
	report(&ways[PIPE], NULL, NULL);
	for (int i = 0; i < NR_WAYS; i++)
		if (ways[i].there)
			stop(&ways[i]);
	snprintf(lock, sizeof(lock), "rm -rf %s", dir);
	if (system(lock))
		return 1;
	printf("ok 1 - measured%s\n1..1\n", module ? "" : " without the module");
	return 0;
}
