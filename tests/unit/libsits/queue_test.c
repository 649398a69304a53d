// SPDX-License-Identifier: MIT
/*
 * queue_test.c - queues and channels: requests, answers, bounds, ends.
 *
 * Every test runs on each provider of $SITS_TEST_PROVIDERS (default: user), on io_uring and on poll(2); where a kernel has
 * no io_uring, both run on poll.
 */
#include "tests/unit/libsits/queue_peer.h"

#include <poll.h>
#include <signal.h>

struct opener {
	struct peer *p;
	struct sits_channel *ch;
	int done;	/* atomic */
};

static void *open_in_thread(void *arg)
{
	struct opener *o = arg;

	sits_channel_open(o->p->ctx, "q", 0, &o->ch);
	__atomic_store_n(&o->done, 1, __ATOMIC_RELEASE);
	sits_queue_wake(o->p->queue);
	return NULL;
}

/* Open a channel to a queue that only this thread serves. */
static struct sits_channel *open_served_here(struct peer *p)
{
	struct opener o = { .p = p };
	struct sits_queue_event ev;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, open_in_thread, &o), 0);
	if (test_on_kernel()) {		/* needs nobody to serve it; the wake is still to be heard */
		pthread_join(thread, NULL);
		assert_int_equal(sits_queue_fetch(p->queue, &ev, 0), 0);
		assert_non_null(o.ch);
		return o.ch;
	}
	while (!__atomic_load_n(&o.done, __ATOMIC_ACQUIRE))
		assert_int_equal(sits_queue_fetch(p->queue, &ev, -1), 0);
	pthread_join(thread, NULL);
	assert_non_null(o.ch);
	return o.ch;
}

static void fetch(struct peer *p, struct sits_queue_event *ev, uint32_t kind)
{
	assert_int_equal(sits_queue_fetch(p->queue, ev, 20000), 1);
	assert_int_equal(ev->kind, kind);
}

/* ------------------------------------------------------------------ the way in and out */

static void test_echo_sizes(void **state)
{
	static const size_t sizes[] = { 1, 2, 7, 8, 9, 63, 4095, 4096, 4097, 65536, 200000, 700000 };
	struct sits_queue_opts o = peer_opts();
	struct peer p;
	struct sits_channel *ch;
	uint8_t *buf = malloc(1 << 20);

	o.chunk_backlog = 1 << 20;
	peer_start(&p, &o);
	ch = peer_channel(&p);
	for (int round = 0; round < 20; round++) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			struct sits_chunk chunk;
			uint64_t req;

			for (size_t i = 0; i < sizes[s]; i++)
				buf[i] = peer_byte((uint32_t)s, i);
			buf[0] = 'E';
			req = submit(ch, buf, sizes[s], 0);
			chunk = recv_chunk(ch);
			assert_int_equal(chunk.req, req);
			assert_int_equal(chunk.status, 0);
			assert_int_equal(chunk.last, 1);
			assert_int_equal(chunk.len, sizes[s] - 1);
			assert_memory_equal(chunk.data, buf + 1, chunk.len);
		}
	}
	sits_channel_close(ch);
	peer_end(&p);
	free(buf);
}

static void check_stream(struct sits_channel *ch, uint32_t count, uint32_t len)
{
	uint8_t msg[9] = { 'N' };
	struct sits_chunk chunk;
	uint64_t req;

	memcpy(msg + 1, &count, 4);
	memcpy(msg + 5, &len, 4);
	req = submit(ch, msg, sizeof(msg), 0);
	for (uint32_t n = 0; n < count; n++) {
		chunk = recv_chunk(ch);
		assert_int_equal(chunk.req, req);
		assert_int_equal(chunk.last, 0);
		assert_int_equal(chunk.len, len);
		for (size_t i = 0; i < len; i += len > 4096 ? 97 : 1)
			if (((const uint8_t *)chunk.data)[i] != peer_byte(n, i))
				fail_msg("chunk %u of %u bytes differs at %zu", n, len, i);
	}
	expect_end(ch, req, 0);
}

/* More than ring and backlog hold together, so the daemon has to wait for the reader. */
static void test_streams(void **state)
{
	struct peer p;
	struct sits_channel *ch;

	peer_start(&p, NULL);
	ch = peer_channel(&p);
	check_stream(ch, 0, 0);
	check_stream(ch, 100, 0);
	check_stream(ch, 20000, 40);
	check_stream(ch, 300, 4000);
	check_stream(ch, 40, 50000);
	check_stream(ch, 8, 200000);	/* longer than a piece */
	sits_channel_close(ch);
	peer_end(&p);
}

static void test_requests_interleave(void **state)
{
	struct peer p;
	struct sits_channel *ch;
	uint64_t held[3], echo[3];

	peer_start(&p, NULL);
	ch = peer_channel(&p);
	for (int i = 0; i < 3; i++) {
		held[i] = submit_text(ch, "H");
		echo[i] = submit_text(ch, "Ehello");
	}
	for (int i = 0; i < 3; i++)
		expect_end(ch, echo[i], 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sits_channel_cancel(ch, held[i]), 0);
	for (int i = 0; i < 3; i++)
		expect_end(ch, held[i], -ECANCELED);
	assert_int_equal(sits_channel_cancel(ch, held[0]), -ENOENT);
	assert_int_equal(sits_channel_cancel(ch, 0), -ENOENT);
	assert_int_equal(sits_channel_cancel(ch, echo[2] + 1), -ENOENT);
	sits_channel_close(ch);
	peer_end(&p);
}

static void test_status_arrives(void **state)
{
	struct peer p;
	struct sits_channel *ch;

	peer_start(&p, NULL);
	ch = peer_channel(&p);
	for (int32_t status = 0; status > -130; status -= 13) {
		uint8_t msg[5] = { 'S' };

		memcpy(msg + 1, &status, 4);
		expect_end(ch, submit(ch, msg, sizeof(msg), 0), status);
	}
	sits_channel_close(ch);
	peer_end(&p);
}

static void test_recv_times_out(void **state)
{
	struct peer p;
	struct sits_channel *ch;
	struct sits_chunk chunk;
	uint64_t start;

	peer_start(&p, NULL);
	ch = peer_channel(&p);
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 0);
	start = peer_now_ns();
	assert_int_equal(sits_channel_recv(ch, &chunk, 30), 0);
	assert_true(peer_now_ns() - start >= 30 * 1000000ull);
	expect_end(ch, submit_text(ch, "Ex"), 0);
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 0);
	assert_int_equal(sits_channel_recv(ch, &chunk, -2), -EINVAL);
	sits_channel_close(ch);
	peer_end(&p);
}

static void test_descriptor_polls(void **state)
{
	struct peer p;
	struct sits_channel *ch;
	struct pollfd pfd;

	peer_start(&p, NULL);
	ch = peer_channel(&p);
	pfd = (struct pollfd){ .fd = sits_channel_fd(ch), .events = POLLIN };
	assert_int_equal(poll(&pfd, 1, 0), 0);
	for (int i = 0; i < 300; i++) {
		uint64_t req = submit_text(ch, "Ex");

		assert_int_equal(poll(&pfd, 1, 20000), 1);
		expect_end(ch, req, 0);
		assert_int_equal(poll(&pfd, 1, 0), 0);
	}
	/* Several answers wait: readable until the last has been taken, and no longer. */
	for (int i = 0; i < 5; i++)
		submit_text(ch, "Ey");
	for (int i = 0; i < 5; i++) {
		assert_int_equal(poll(&pfd, 1, 20000), 1);
		recv_chunk(ch);
	}
	assert_int_equal(poll(&pfd, 1, 0), 0);
	/* The end of the daemon shows, and goes on showing. */
	submit_text(ch, "H");
	submit_text(ch, "H");
	peer_halt(&p);
	sits_queue_destroy(p.queue);
	p.queue = NULL;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(poll(&pfd, 1, 20000), 1);
		recv_chunk(ch);
	}
	for (int i = 0; i < 3; i++) {
		struct sits_chunk chunk;

		assert_int_equal(poll(&pfd, 1, 20000), 1);
		assert_int_equal(sits_channel_recv(ch, &chunk, -1), -EPIPE);
	}
	sits_channel_close(ch);
	peer_end(&p);
}

/* --------------------------------------------------------------------- cancel, deadlines */

/* Requests of many clients wait together; those cancelled before they are fetched end without the
 * daemon's hearing of them, the others by a CANCEL event each. */
static void test_cancel_before_fetch(void **state)
{
	enum { CLIENTS = 40 };
	struct sits_queue_opts o = peer_opts();
	struct sits_queue_stats stats;
	struct sits_queue_event ev;
	struct sits_channel *ch[CLIENTS];
	struct peer p;
	uint64_t req[CLIENTS];
	int requests = 0, cancels = 0, ret;

	o.max_clients = CLIENTS;
	peer_create(&p, &o);
	for (int i = 0; i < CLIENTS; i++)
		ch[i] = open_served_here(&p);
	for (int i = 0; i < CLIENTS; i++) {
		req[i] = submit_text(ch[i], "x");
		assert_int_equal(sits_channel_cancel(ch[i], req[i]), 0);
	}
	do {
		ret = sits_queue_fetch(p.queue, &ev, 0);
		if (ret == 1 && ev.kind == SITS_EVENT_REQUEST)
			requests++;
		if (ret == 1 && ev.kind == SITS_EVENT_CANCEL) {
			cancels++;
			assert_int_equal(sits_queue_commit(p.queue, ev.req, NULL, 0, -ECANCELED,
							   SITS_COMMIT_LAST), 0);
		}
		sits_queue_get_stats(p.queue, &stats);
	} while (ret == 1 || stats.cancelled < CLIENTS);
	assert_int_equal(requests, cancels);
	if (test_on_kernel())	/* knows of a cancel before the next fetch */
		assert_int_equal(requests, 0);
	else
		assert_in_range(requests, 1, CLIENTS - 1);
	assert_int_equal(stats.requests, CLIENTS);
	assert_int_equal(stats.pending, 0);
	for (int i = 0; i < CLIENTS; i++) {
		expect_end(ch[i], req[i], -ECANCELED);
		sits_channel_close(ch[i]);
	}
	peer_end(&p);
}

static void test_deadline_of_a_fetched_request(void **state)
{
	struct sits_queue_event ev;
	struct sits_channel *ch;
	struct peer p;
	uint64_t a, id, deadline;

	peer_create(&p, NULL);
	ch = open_served_here(&p);
	a = submit(ch, "x", 1, 50 * 1000000ull);
	fetch(&p, &ev, SITS_EVENT_REQUEST);
	id = ev.req;
	deadline = ev.deadline_ns;
	assert_true(deadline > 0);
	assert_int_equal(sits_queue_commit(p.queue, id, "early", 5, 0, 0), 0);
	fetch(&p, &ev, SITS_EVENT_CANCEL);	/* nobody sent it: the queue did */
	assert_int_equal(ev.req, id);
	assert_true(peer_now_ns() >= deadline);
	assert_int_equal(sits_queue_fetch(p.queue, &ev, 0), 0);	/* once */
	assert_int_equal(sits_queue_commit(p.queue, id, "late", 4, 0, SITS_COMMIT_LAST), 0);
	assert_int_equal(recv_chunk(ch).last, 0);
	expect_end(ch, a, -ETIMEDOUT);
	assert_int_equal(sits_queue_commit(p.queue, id, NULL, 0, 0, SITS_COMMIT_LAST), -ENOENT);
	sits_channel_close(ch);
	peer_end(&p);
}

static void test_deadline_of_a_waiting_request(void **state)
{
	struct sits_queue_stats stats;
	struct sits_queue_event ev;
	struct sits_channel *ch;
	struct peer p;
	uint64_t a;

	peer_create(&p, NULL);
	ch = open_served_here(&p);
	a = submit(ch, "x", 1, 1);
	do {	/* too late to be handed out; the module's clock for this has milliseconds */
		uint64_t before = peer_now_ns();

		if (sits_queue_fetch(p.queue, &ev, 0)) {
			assert_true(test_on_kernel());
			if (ev.kind == SITS_EVENT_REQUEST)
				assert_true(before < ev.deadline_ns);
			else
				sits_queue_commit(p.queue, ev.req, NULL, 0, 0, SITS_COMMIT_LAST);
		}
		sits_queue_get_stats(p.queue, &stats);
	} while (!stats.cancelled || stats.pending);
	expect_end(ch, a, -ETIMEDOUT);
	/* One that is in time is not touched. */
	a = submit(ch, "y", 1, 3600ull * 1000000000u);
	fetch(&p, &ev, SITS_EVENT_REQUEST);
	assert_int_equal(sits_queue_commit(p.queue, ev.req, NULL, 0, 0, SITS_COMMIT_LAST), 0);
	expect_end(ch, a, 0);
	a = submit(ch, "z", 1, UINT64_MAX);	/* beyond the end of time */
	fetch(&p, &ev, SITS_EVENT_REQUEST);
	assert_int_equal(sits_queue_commit(p.queue, ev.req, NULL, 0, 0, SITS_COMMIT_LAST), 0);
	expect_end(ch, a, 0);
	sits_channel_close(ch);
	peer_end(&p);
}

/* -------------------------------------------------------------------------------- bounds */

static void test_bounds_of_a_client(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_queue_stats stats;
	struct sits_channel *a, *b;
	struct peer p;
	uint64_t req[8];

	o.depth = 6;
	o.per_client = 4;
	peer_start(&p, &o);
	a = peer_channel(&p);
	b = peer_channel(&p);
	for (int i = 0; i < 4; i++)
		req[i] = submit_text(a, "H");
	expect_end(a, submit_text(a, "E"), -EBUSY);	/* per_client */
	for (int i = 4; i < 6; i++)
		req[i] = submit_text(b, "H");
	expect_end(b, submit_text(b, "E"), -EBUSY);	/* depth */
	sits_queue_get_stats(p.queue, &stats);
	assert_int_equal(stats.refused_busy, 2);
	assert_int_equal(stats.pending, 6);
	assert_int_equal(stats.clients, 2);
	assert_int_equal(sits_channel_cancel(a, req[1]), 0);
	expect_end(a, req[1], -ECANCELED);
	expect_end(a, submit_text(a, "E"), 0);		/* room again */
	sits_channel_close(a);
	sits_channel_close(b);
	peer_end(&p);
}

static void test_max_clients(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_channel *ch[3], *more;
	struct peer p;
	int ret;

	o.max_clients = 3;
	peer_start(&p, &o);
	for (int i = 0; i < 3; i++)
		ch[i] = peer_channel(&p);
	for (int i = 0; i < 50; i++)
		assert_int_equal(sits_channel_open(p.ctx, "q", 0, &more), -EBUSY);
	assert_true(peer_logged(&p, "max_clients"));
	expect_end(ch[0], submit_text(ch[0], "E"), 0);
	sits_channel_close(ch[1]);
	do {	/* the daemon hears of it a moment later */
		ret = sits_channel_open(p.ctx, "q", 0, &ch[1]);
	} while (ret == -EBUSY);
	assert_int_equal(ret, 0);
	for (int i = 0; i < 3; i++)
		sits_channel_close(ch[i]);
	peer_end(&p);
}

static void test_round_robin(void **state)
{
	struct sits_queue_event ev;
	struct sits_channel *ch[3];
	struct peer p;
	char order[8] = "";

	peer_create(&p, NULL);
	ch[0] = open_served_here(&p);
	ch[1] = open_served_here(&p);
	ch[2] = open_served_here(&p);
	for (int round = 0; round < 2; round++)
		for (int c = 0; c < 3; c++)
			submit_text(ch[c], (const char *[]){ "a", "b", "c" }[c]);
	submit_text(ch[0], "a");
	for (int i = 0; i < 7; i++) {
		fetch(&p, &ev, SITS_EVENT_REQUEST);
		order[i] = *(const char *)ev.data;
	}
	order[7] = '\0';
	/* The first look receives one message a client; after it, they alternate. */
	for (int i = 0; i + 2 < 6; i += 3) {
		assert_non_null(memchr(order + i, 'a', 3));
		assert_non_null(memchr(order + i, 'b', 3));
		assert_non_null(memchr(order + i, 'c', 3));
	}
	assert_int_equal(order[6], 'a');
	for (int i = 0; i < 3; i++)
		sits_channel_close(ch[i]);
	peer_end(&p);
}

static void test_reader_that_does_not_read(void **state)
{
	struct sits_channel *slow, *quick;
	struct sits_chunk chunk;
	struct peer p;
	uint64_t req;
	size_t bytes = 0;

	peer_start(&p, NULL);
	slow = peer_channel(&p);
	quick = peer_channel(&p);
	req = submit_text(slow, "F");
	for (int i = 0; i < 100; i++)		/* the daemon is not held up */
		expect_end(quick, submit_text(quick, "Ex"), 0);
	do {
		chunk = recv_chunk(slow);
		assert_int_equal(chunk.req, req);
		bytes += chunk.len;
	} while (!chunk.last);
	assert_int_equal(chunk.status, -ENOBUFS);
	/* At least chunk_backlog was kept for it; the module counts what it takes to keep a chunk too. */
	assert_true(bytes >= (test_on_kernel() ? 192u : 256u) << 10);
	assert_true(bytes <= 2u << 20);		/* and it was bounded */
	expect_end(slow, submit_text(slow, "Ex"), 0);
	sits_channel_close(slow);
	sits_channel_close(quick);
	peer_end(&p);
}

/* The module copies a request when it takes it, so only its bounds are in the way; refusals are ends to be received. */
static void fill_kernel(struct sits_channel *ch, const uint8_t *buf, uint32_t per_client)
{
	struct sits_chunk chunk;
	uint64_t req;
	int nr = 0, ret;

	while (!(ret = sits_channel_submit(ch, buf, 700000, 0, &req)))
		nr++;
	assert_int_equal(ret, -ENOBUFS);
	assert_in_range(nr, per_client + 1, per_client + 64);
	chunk = recv_chunk(ch);
	assert_int_equal(chunk.status, -EBUSY);
	assert_int_equal(sits_channel_submit(ch, buf, 700000, 0, &req), 0);
	for (int i = nr - (int)per_client; i > 0; i--) {
		chunk = recv_chunk(ch);
		assert_int_equal(chunk.status, -EBUSY);
		assert_int_equal(chunk.last, 1);
	}
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 0);
}

static void fill_user(struct peer *p, struct sits_channel *ch, const uint8_t *buf)
{
	struct sits_queue_event ev;
	uint64_t req;
	int nr = 0, ret;

	while (!(ret = sits_channel_submit(ch, buf, 100000, 0, &req)))
		nr++;
	assert_int_equal(ret, -ENOBUFS);
	assert_in_range(nr, 6, 10);	/* three quarters of 1 MiB */
	fetch(p, &ev, SITS_EVENT_REQUEST);
	assert_int_equal(ev.len, 100000);
	assert_int_equal(sits_channel_submit(ch, buf, 100000, 0, &req), 0);	/* copied: room */
}

static void test_arena_full(void **state)
{
	struct sits_queue_opts o = peer_opts();
	struct sits_channel *ch;
	struct peer p;
	uint8_t *buf = calloc(1, SITS_REQUEST_MAX + 1);
	uint64_t req;

	peer_create(&p, &o);
	ch = open_served_here(&p);
	if (test_on_kernel())
		fill_kernel(ch, buf, o.per_client);
	else
		fill_user(&p, ch, buf);
	assert_int_equal(sits_channel_submit(ch, buf, 1 << 20, 0, &req), -EMSGSIZE);
	assert_true(peer_logged(&p, "larger"));
	assert_int_equal(sits_channel_submit(ch, buf, SITS_REQUEST_MAX + 1, 0, &req), -EMSGSIZE);
	assert_int_equal(sits_channel_submit(ch, buf, 0, 0, &req), -EINVAL);
	sits_channel_close(ch);
	peer_run(&p);
	assert_int_equal(sits_channel_open(p.ctx, "q", 6 << 20, &ch), 0);
	buf[0] = 'S';
	expect_end(ch, submit(ch, buf, SITS_REQUEST_MAX, 0), 0);
	sits_channel_close(ch);
	assert_int_equal(sits_channel_open(p.ctx, "q", 1ull << 40, &ch), -EINVAL);
	peer_end(&p);
	free(buf);
}

/* ---------------------------------------------------------------------------------- ends */

static void test_client_goes(void **state)
{
	struct sits_queue_stats stats;
	struct sits_queue_event ev;
	struct sits_channel *ch;
	struct peer p;
	uint64_t id[2], client;

	peer_create(&p, NULL);
	ch = open_served_here(&p);
	submit_text(ch, "1");
	submit_text(ch, "2");
	submit_text(ch, "3");
	for (int i = 0; i < 2; i++) {
		fetch(&p, &ev, SITS_EVENT_REQUEST);
		id[i] = ev.req;
		client = ev.client;
		assert_int_equal(ev.client_uid, getuid());
		assert_int_equal(ev.client_pid, getpid());
	}
	sits_channel_close(ch);
	for (int i = 0; i < 2;) {
		assert_int_equal(sits_queue_fetch(p.queue, &ev, 20000), 1);
		if (ev.kind == SITS_EVENT_REQUEST) {	/* the third was quicker */
			assert_int_equal(*(const char *)ev.data, '3');
			continue;
		}
		assert_int_equal(ev.client, client);
		if (ev.req == id[0] || ev.req == id[1])
			i++;
	}
	assert_int_equal(sits_queue_commit(p.queue, id[0], "x", 1, 0, 0), -EPIPE);
	assert_int_equal(sits_queue_commit(p.queue, id[0], NULL, 0, 0, SITS_COMMIT_LAST), -EPIPE);
	assert_int_equal(sits_queue_commit(p.queue, id[0], NULL, 0, 0, SITS_COMMIT_LAST), -ENOENT);
	assert_int_equal(sits_queue_commit(p.queue, id[1], NULL, 0, -ECANCELED, SITS_COMMIT_LAST),
			 -EPIPE);
	sits_queue_get_stats(p.queue, &stats);
	assert_int_equal(stats.clients, 0);
	peer_end(&p);
}

static void test_destroy_answers_everything(void **state)
{
	struct sits_queue_event ev;
	struct sits_channel *ch;
	struct sits_chunk chunk;
	struct peer p;
	uint64_t a, b, req;

	peer_create(&p, NULL);
	ch = open_served_here(&p);
	a = submit_text(ch, "fetched");
	fetch(&p, &ev, SITS_EVENT_REQUEST);
	assert_int_equal(sits_queue_commit(p.queue, ev.req, "part", 4, 0, 0), 0);
	b = submit_text(ch, "unread, or waiting");
	sits_queue_destroy(p.queue);
	p.queue = NULL;
	assert_int_equal(recv_chunk(ch).last, 0);
	for (int i = 0; i < 2; i++) {
		chunk = recv_chunk(ch);
		assert_int_equal(chunk.last, 1);
		if (chunk.req == a)
			assert_int_equal(chunk.status, -ESHUTDOWN);
		else	/* unread in its socket; in the kernel it waited */
			assert_int_equal(chunk.status, test_on_kernel() ? -ESHUTDOWN : -EPIPE);
		assert_true(chunk.req == a || chunk.req == b);
	}
	assert_int_equal(sits_channel_recv(ch, &chunk, -1), -EPIPE);
	assert_int_equal(sits_channel_submit(ch, "x", 1, 0, &req), -EPIPE);
	assert_int_equal(sits_channel_recv(ch, &chunk, -1), -EPIPE);
	sits_channel_close(ch);
	assert_int_equal(sits_channel_open(p.ctx, "q", 0, &ch), -ENOENT);
	assert_true(peer_logged(&p, "no daemon serves"));
	peer_end(&p);
}

static void test_close_intake(void **state)
{
	struct sits_queue_event ev;
	struct sits_channel *ch;
	struct sits_chunk chunk;
	struct peer p;
	uint64_t a, b, going_on;
	int ret;

	peer_create(&p, NULL);
	ch = open_served_here(&p);
	a = submit_text(ch, "going on");
	fetch(&p, &ev, SITS_EVENT_REQUEST);
	sits_queue_close_intake(p.queue);
	going_on = ev.req;
	b = submit_text(ch, "new");
	do {
		assert_int_equal(sits_queue_fetch(p.queue, &ev, 0), 0);
		ret = sits_channel_recv(ch, &chunk, 0);
	} while (!ret);
	assert_int_equal(ret, 1);
	assert_int_equal(chunk.req, b);
	assert_int_equal(chunk.status, -ESHUTDOWN);
	assert_int_equal(sits_queue_commit(p.queue, going_on, "done", 4, 0, SITS_COMMIT_LAST), 0);
	expect_end(ch, a, 0);
	sits_channel_close(ch);
	peer_end(&p);
}

static void test_wake(void **state)
{
	struct sits_queue_event ev;
	struct peer p;

	peer_start(&p, NULL);
	peer_halt(&p);
	assert_int_equal(sits_queue_fetch(p.queue, &ev, 0), 0);
	sits_queue_wake(p.queue);
	sits_queue_wake(p.queue);
	assert_int_equal(sits_queue_fetch(p.queue, &ev, -1), 0);	/* a wake is not lost */
	peer_run(&p);
	peer_halt(&p);		/* ends a fetch that waits for ever */
	assert_int_equal(sits_queue_fetch(p.queue, &ev, -2), -EINVAL);
	peer_end(&p);
}

static struct sits_queue *alarmed;

static void on_alarm(int sig)
{
	sits_queue_wake(alarmed);
}

static void test_wake_from_a_signal_handler(void **state)
{
	struct sits_queue_event ev;
	struct sigaction sa = { .sa_handler = on_alarm }, old;
	struct peer p;

	peer_start(&p, NULL);
	peer_halt(&p);
	while (sits_queue_fetch(p.queue, &ev, 0))
		;	/* a wake may be left over from the halt */
	alarmed = p.queue;
	sigaction(SIGALRM, &sa, &old);
	ualarm(20000, 0);
	assert_int_equal(sits_queue_fetch(p.queue, &ev, -1), 0);
	sigaction(SIGALRM, &old, NULL);
	peer_end(&p);
}

/* ------------------------------------------------------------------------------- threads */

#define COMMITTERS 4
#define PARTS 2000

struct committer {
	struct sits_queue *queue;
	uint64_t req;
	pthread_t thread;
};

static void *commit_parts(void *arg)
{
	struct committer *c = arg;

	for (uint32_t i = 0; i < PARTS; i++)
		while (sits_queue_commit(c->queue, c->req, &i, sizeof(i), 0, 0) == -ENOBUFS)
			sched_yield();
	sits_queue_commit(c->queue, c->req, NULL, 0, 0, SITS_COMMIT_LAST);
	return NULL;
}

/* Commits from many threads while another one fetches: each stream stays whole and in order. */
static void test_commit_from_many_threads(void **state)
{
	struct committer c[COMMITTERS];
	uint64_t req[COMMITTERS];
	uint32_t next[COMMITTERS] = { 0 };
	struct sits_queue_event ev;
	struct sits_channel *ch;
	struct peer p;
	int ends = 0;

	peer_create(&p, NULL);
	ch = open_served_here(&p);
	for (int i = 0; i < COMMITTERS; i++) {
		req[i] = submit_text(ch, "x");
		fetch(&p, &ev, SITS_EVENT_REQUEST);
		c[i] = (struct committer){ .queue = p.queue, .req = ev.req };
	}
	peer_run(&p);
	for (int i = 0; i < COMMITTERS; i++)
		pthread_create(&c[i].thread, NULL, commit_parts, &c[i]);
	while (ends < COMMITTERS) {
		struct sits_chunk chunk = recv_chunk(ch);
		int i = 0;

		while (i < COMMITTERS && req[i] != chunk.req)
			i++;
		assert_in_range(i, 0, COMMITTERS - 1);
		if (chunk.last) {
			assert_int_equal(next[i], PARTS);
			ends++;
		} else {
			assert_int_equal(peer_u32(chunk.data, 0), next[i]++);
		}
	}
	for (int i = 0; i < COMMITTERS; i++)
		pthread_join(c[i].thread, NULL);
	sits_channel_close(ch);
	peer_end(&p);
}

static void *submit_many(void *arg)
{
	struct sits_channel *ch = arg;
	uint64_t req;

	for (int i = 0; i < 5000;) {
		int ret = sits_channel_submit(ch, "Ez", 2, 0, &req);

		if (!ret)
			i++;
		else if (ret != -ENOBUFS)
			break;
	}
	return NULL;
}

/* The thread that submits ends while answers are outstanding: nothing is lost with it. */
static void test_submit_beside_recv(void **state)
{
	struct sits_channel *ch;
	pthread_t thread;
	struct peer p;
	int busy = 0;

	peer_start(&p, NULL);
	ch = peer_channel(&p);
	pthread_create(&thread, NULL, submit_many, ch);
	for (int i = 0; i < 5000; i++) {
		struct sits_chunk chunk = recv_chunk(ch);

		assert_int_equal(chunk.last, 1);
		assert_true(chunk.status == 0 || chunk.status == -EBUSY);
		busy += chunk.status == -EBUSY;
	}
	pthread_join(thread, NULL);
	print_message("# %d of 5000 refused\n", busy);
	sits_channel_close(ch);
	peer_end(&p);
}

/* The kernel cancels what a thread has in flight when it ends; the channel and the queue go on. */
static void test_threads_come_and_go(void **state)
{
	struct opener o;
	pthread_t thread;
	struct peer p;

	peer_start(&p, NULL);
	o = (struct opener){ .p = &p };
	pthread_create(&thread, NULL, open_in_thread, &o);
	pthread_join(thread, NULL);
	assert_non_null(o.ch);
	for (int i = 0; i < 20; i++) {
		expect_end(o.ch, submit_text(o.ch, "Ex"), 0);
		peer_halt(&p);	/* the fetching thread ends */
		submit_text(o.ch, "Ey");
		peer_run(&p);
		recv_chunk(o.ch);
	}
	sits_channel_close(o.ch);
	peer_end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_echo_sizes),
		BOTH(test_streams),
		BOTH(test_requests_interleave),
		BOTH(test_status_arrives),
		BOTH(test_recv_times_out),
		BOTH(test_descriptor_polls),
		BOTH(test_cancel_before_fetch),
		BOTH(test_deadline_of_a_fetched_request),
		BOTH(test_deadline_of_a_waiting_request),
		BOTH(test_bounds_of_a_client),
		BOTH(test_max_clients),
		BOTH(test_round_robin),
		BOTH(test_reader_that_does_not_read),
		BOTH(test_arena_full),
		BOTH(test_client_goes),
		BOTH(test_destroy_answers_everything),
		BOTH(test_close_intake),
		BOTH(test_wake),
		BOTH(test_wake_from_a_signal_handler),
		BOTH(test_commit_from_many_threads),
		BOTH(test_submit_beside_recv),
		BOTH(test_threads_come_and_go),
	};

	return peer_run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
