// SPDX-License-Identifier: MIT
/*
 * channel_bench.c - the time from submit to the end of the answer, through channel and queue, beside
 * a bare echo over a socketpair of the same kind: what the two wakeups alone cost.
 *
 * Both echo 64 bytes between two threads, and take turns round by round; medians are compared.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "sits/context.h"
#include "sits/queue.h"

#define ROUNDS 15
#define TRIPS 4000	/* a round */
#define BYTES 64

static struct sits_queue *queue;
static int stop;	/* atomic */

static void die(const char *what, int err)
{
	fprintf(stderr, "channel_bench: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void log_line(void *arg, int severity, const char *line)
{
	if (severity <= SITS_LOG_WARN)
		fprintf(stderr, "channel_bench: %s\n", line);
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static void *serve_queue(void *arg)
{
	struct sits_queue_event ev;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		if (sits_queue_fetch(queue, &ev, -1) == 1 && ev.kind == SITS_EVENT_REQUEST)
			sits_queue_commit(queue, ev.req, ev.data, ev.len, 0, SITS_COMMIT_LAST);
	return NULL;
}

static void *serve_socket(void *arg)
{
	const int *sock = arg;
	char buf[BYTES];
	ssize_t n;

	while ((n = recv(*sock, buf, sizeof(buf), 0)) > 0)
		if (send(*sock, buf, (size_t)n, MSG_NOSIGNAL) != n)
			break;
	return NULL;
}

static double channel_round(struct sits_channel *ch)
{
	char msg[BYTES] = "a request";
	struct sits_chunk chunk;
	double start = now_us();
	uint64_t req;
	int ret;

	for (int i = 0; i < TRIPS; i++) {
		ret = sits_channel_submit(ch, msg, sizeof(msg), 0, &req);
		if (ret)
			die("submit", ret);
		ret = sits_channel_recv(ch, &chunk, -1);
		if (ret != 1 || !chunk.last || chunk.status || chunk.len != sizeof(msg))
			die("receive", ret < 0 ? ret : -EIO);
	}
	return (now_us() - start) / TRIPS;
}

static double socket_round(int sock)
{
	char msg[BYTES] = "a request";
	double start = now_us();

	for (int i = 0; i < TRIPS; i++)
		if (send(sock, msg, sizeof(msg), 0) != sizeof(msg) ||
		    recv(sock, msg, sizeof(msg), 0) != sizeof(msg))
			die("socketpair", -errno);
	return (now_us() - start) / TRIPS;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), compare);
	return v[ROUNDS / 2];
}

static void measure(struct sits_channel *ch, int sock)
{
	double ours[ROUNDS], bare[ROUNDS], a, b;

	channel_round(ch);	/* warm both up */
	socket_round(sock);
	for (int i = 0; i < ROUNDS; i++) {
		ours[i] = channel_round(ch);
		bare[i] = socket_round(sock);
	}
	a = median(ours);
	b = median(bare);
	printf("{\"name\": \"channel-roundtrip\", \"value\": %.6g, \"unit\": \"us\", \"peer\": \"socketpair echo between two threads, %.3f us\", \"ratio\": %.6g, \"threads\": 2, \"command\": \"make bench BENCH=channel\"}\n",
	       a, b, b / a);
}

int main(void)
{
	char dir[] = "/tmp/sits-bench-XXXXXX", lock[64];
	struct sits_open_opts o = { .size = sizeof(o), .provider = SITS_PROVIDER_USER,
				    .run_dir = dir, .log = log_line };
	struct sits_queue_opts qo = { .size = sizeof(qo), .depth = 8, .per_client = 8,
				      .max_clients = 1, .mode = 0600, .chunk_backlog = 1 << 16,
				      .name = "bench" };
	pthread_t queue_thread, socket_thread;
	struct sits_channel *ch;
	struct sits_ctx *ctx;
	int sock[2], ret;

	if (!mkdtemp(dir) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock))
		die("setup", -errno);
	ret = sits_open(&o, &ctx);
	if (!ret)
		ret = sits_queue_create(ctx, &qo, &queue);
	if (ret)
		die("queue", ret);
	pthread_create(&queue_thread, NULL, serve_queue, NULL);
	pthread_create(&socket_thread, NULL, serve_socket, &sock[1]);
	ret = sits_channel_open(ctx, "bench", 0, &ch);
	if (ret)
		die("channel", ret);
	measure(ch, sock[0]);
	sits_channel_close(ch);
	shutdown(sock[0], SHUT_RDWR);
	pthread_join(socket_thread, NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	sits_queue_wake(queue);
	pthread_join(queue_thread, NULL);
	sits_queue_destroy(queue);
	sits_close(ctx);
	snprintf(lock, sizeof(lock), "%s/bench.lock", dir);
	unlink(lock);
	rmdir(dir);
	return 0;
}
