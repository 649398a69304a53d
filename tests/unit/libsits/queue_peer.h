/* SPDX-License-Identifier: MIT */
/*
 * queue_peer.h - for the queue tests: a scratch run directory, a daemon in a thread, open
 * descriptors and memory counted; each provider in turn.
 *
 * The daemon does what a request's first byte says:
 *	E	echo the rest as one last chunk
 *	N	u32 count, u32 len: that many chunks, then an empty last one
 *	H	hold it until a CANCEL comes, then end it with -ECANCELED and the text "bye"
 *	S	end it with the status in the i32 that follows
 *	F	commit 1000-byte chunks until one is refused, then end it with that status
 */
#ifndef TESTS_QUEUE_PEER_H
#define TESTS_QUEUE_PEER_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sits/context.h"
#include "sits/queue.h"
#include "tests/unit/libsits/providers.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PEER_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PEER_SANITIZED 1
#endif
#endif
#ifndef PEER_SANITIZED
#define PEER_SANITIZED 0
#endif

struct peer {
	char dir[64];
	char log[16384];	/* lines of WARN and ERR */
	size_t log_len;
	pthread_mutex_t log_lock;
	struct sits_ctx *ctx;
	struct sits_queue *queue;
	pthread_t thread;
	bool running;
	int stop;		/* atomic */
	uint64_t cancels;	/* CANCEL events seen, atomic */
	uint64_t requests;	/* atomic */
};

static inline uint64_t peer_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void peer_log(void *arg, int severity, const char *line)
{
	struct peer *p = arg;

	if (severity > SITS_LOG_WARN)
		return;
	pthread_mutex_lock(&p->log_lock);
	if (p->log_len + strlen(line) + 2 < sizeof(p->log))
		p->log_len += (size_t)sprintf(p->log + p->log_len, "%s\n", line);
	pthread_mutex_unlock(&p->log_lock);
}

static inline bool peer_logged(struct peer *p, const char *words)
{
	bool found;

	pthread_mutex_lock(&p->log_lock);
	found = strstr(p->log, words);
	pthread_mutex_unlock(&p->log_lock);
	return found;
}

static inline void peer_open(struct peer *p)
{
	struct sits_open_opts o = {
		.size = sizeof(o), .provider = test_provider, .run_dir = p->dir,
		.log = peer_log, .log_arg = p,
	};

	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->log_lock, NULL);
	strcpy(p->dir, "/tmp/sits-queue-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	assert_int_equal(sits_open(&o, &p->ctx), 0);
}

static inline void peer_remove_dir(const char *dir)
{
	struct dirent *e;
	char path[512];
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

static inline struct sits_queue_opts peer_opts(void)
{
	return (struct sits_queue_opts){
		.size = sizeof(struct sits_queue_opts), .depth = 64, .per_client = 16,
		.max_clients = 8, .mode = 0600, .chunk_backlog = 256 << 10, .name = "q",
	};
}

static inline uint32_t peer_u32(const void *data, size_t at)
{
	uint32_t v;

	memcpy(&v, (const uint8_t *)data + at, sizeof(v));
	return v;
}

/* Byte @i of chunk @n, so that a receiver can check both. */
static inline uint8_t peer_byte(uint32_t n, size_t i)
{
	return (uint8_t)(n * 131 + i * 7 + i / 251);
}

static inline int peer_stream(struct peer *p, uint64_t req, uint32_t count, uint32_t len)
{
	uint8_t *buf = malloc(len ? len : 1);
	int ret = 0;

	for (uint32_t n = 0; n < count && !ret; n++) {
		for (size_t i = 0; i < len; i++)
			buf[i] = peer_byte(n, i);
		do {	/* its own flow control: what it can't send now, it sends later */
			ret = sits_queue_commit(p->queue, req, buf, len, 0, 0);
			if (ret == -ENOBUFS) {
				struct sits_queue_event ev;

				if (sits_queue_fetch(p->queue, &ev, 1) == 1 &&
				    ev.kind == SITS_EVENT_REQUEST)
					sits_queue_commit(p->queue, ev.req, NULL, 0, -EBUSY,
							  SITS_COMMIT_LAST);
			}
		} while (ret == -ENOBUFS && !__atomic_load_n(&p->stop, __ATOMIC_RELAXED));
	}
	free(buf);
	return sits_queue_commit(p->queue, req, NULL, 0, 0, SITS_COMMIT_LAST);
}

static inline void peer_flood(struct peer *p, uint64_t req)
{
	uint8_t buf[1000] = { 0 };
	int ret;

	do {
		ret = sits_queue_commit(p->queue, req, buf, sizeof(buf), 0, 0);
	} while (!ret);
	sits_queue_commit(p->queue, req, NULL, 0, ret, SITS_COMMIT_LAST);
}

static inline void peer_serve(struct peer *p, const struct sits_queue_event *ev)
{
	const char *d = ev->data;

	if (ev->kind == SITS_EVENT_CANCEL) {
		__atomic_fetch_add(&p->cancels, 1, __ATOMIC_RELAXED);
		sits_queue_commit(p->queue, ev->req, "bye", 3, -ECANCELED, SITS_COMMIT_LAST);
		return;
	}
	__atomic_fetch_add(&p->requests, 1, __ATOMIC_RELAXED);
	switch (d[0]) {
	case 'E':
		sits_queue_commit(p->queue, ev->req, d + 1, ev->len - 1, 0, SITS_COMMIT_LAST);
		break;
	case 'N':
		peer_stream(p, ev->req, peer_u32(d, 1), peer_u32(d, 5));
		break;
	case 'S':
		sits_queue_commit(p->queue, ev->req, NULL, 0, (int)peer_u32(d, 1),
				  SITS_COMMIT_LAST);
		break;
	case 'F':
		peer_flood(p, ev->req);
		break;
	default:
		break;
	}
}

static inline void *peer_main(void *arg)
{
	struct peer *p = arg;
	struct sits_queue_event ev;

	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE))
		if (sits_queue_fetch(p->queue, &ev, -1) == 1)
			peer_serve(p, &ev);
	return NULL;
}

static inline void peer_run(struct peer *p)
{
	p->stop = 0;
	assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
	p->running = true;
}

static inline void peer_halt(struct peer *p)
{
	if (!p->running)
		return;
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	sits_queue_wake(p->queue);
	pthread_join(p->thread, NULL);
	p->running = false;
}

/* A queue that nobody serves. */
static inline void peer_create(struct peer *p, const struct sits_queue_opts *opts)
{
	struct sits_queue_opts o = peer_opts();

	peer_open(p);
	assert_int_equal(sits_queue_create(p->ctx, opts ? opts : &o, &p->queue), 0);
}

/* A queue, and a thread that serves it. */
static inline void peer_start(struct peer *p, const struct sits_queue_opts *opts)
{
	peer_create(p, opts);
	peer_run(p);
}

static inline void peer_end(struct peer *p)
{
	peer_halt(p);
	sits_queue_destroy(p->queue);
	p->queue = NULL;
	sits_close(p->ctx);
	peer_remove_dir(p->dir);
}

static inline struct sits_channel *peer_channel(struct peer *p)
{
	struct sits_channel *ch;

	assert_int_equal(sits_channel_open(p->ctx, "q", 0, &ch), 0);
	return ch;
}

static inline int use_uring(void **state)
{
	unsetenv("SITS_NO_IO_URING");
	return 0;
}

static inline int use_poll(void **state)
{
	setenv("SITS_NO_IO_URING", "1", 1);
	return 0;
}

static inline uint64_t submit(struct sits_channel *ch, const void *data, size_t len, uint64_t timeout_ns)
{
	uint64_t req;

	assert_int_equal(sits_channel_submit(ch, data, len, timeout_ns, &req), 0);
	return req;
}

static inline uint64_t submit_text(struct sits_channel *ch, const char *text)
{
	return submit(ch, text, strlen(text), 0);
}

static inline struct sits_chunk recv_chunk(struct sits_channel *ch)
{
	struct sits_chunk chunk;

	assert_int_equal(sits_channel_recv(ch, &chunk, 20000), 1);
	return chunk;
}

/* Expect the end of @req, with nothing before it. */
static inline void expect_end(struct sits_channel *ch, uint64_t req, int status)
{
	struct sits_chunk chunk = recv_chunk(ch);

	assert_int_equal(chunk.req, req);
	assert_int_equal(chunk.last, 1);
	assert_int_equal(chunk.status, status);
}

static inline size_t peer_nr_fds(void)
{
	struct dirent *e;
	DIR *d = opendir("/proc/self/fd");
	size_t nr = 0;

	while ((e = readdir(d)))
		nr += e->d_name[0] != '.';
	closedir(d);
	return nr;
}

/* Descriptors that another thread is to close, once it gets to: no more than @nr are left, or it takes too long. */
static inline size_t peer_settled_fds(size_t nr)
{
	uint64_t end = peer_now_ns() + 20000000000u;

	while (peer_nr_fds() > nr && peer_now_ns() < end)
		sched_yield();
	return peer_nr_fds();
}

/* Lines of /proc/self/maps: mappings that leak show here. */
static inline size_t peer_nr_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	size_t nr = 0;
	int c;

	while ((c = getc(f)) != EOF)
		nr += c == '\n';
	fclose(f);
	return nr;
}

/* Not from status: what that has may be off by some pages for each processor. */
static inline long peer_rss_kib(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	long kib = -1;

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %ld", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

/* Each test on each provider. */
static inline int peer_run_tests(const struct CMUnitTest *tests, size_t nr)
{
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return run_on_providers(tests, nr, NULL, NULL);
}

/* What only the user provider has: a wire, files in the run directory. */
static inline void peer_need_user(const char *what)
{
	if (!test_on_kernel())
		return;
	print_message("# skip: the kernel provider has no %s\n", what);
	skip();
}

/* A test on both engines. */
#define BOTH(test_) \
	{ #test_ "/io_uring", test_, use_uring, NULL, NULL }, \
	{ #test_ "/poll", test_, use_poll, NULL, NULL }

#endif
