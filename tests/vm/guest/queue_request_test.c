// SPDX-License-Identifier: MIT
/*
 * queue_request_test.c - the way of a request: there, back in chunks, cancelled, too late; order, bounds,
 * fairness. Each in the ways that there are for it.
 */
#include <sys/time.h>

#include "queue_common.h"

static struct got got;

/* ------------------------------------------------------------------ there and back */

static void test_round_trip(enum way way)
{
	static const uint32_t sizes[] = { 1, 7, 255, 256, 257, 4095, 4096, 4097, 100000 };
	int q = queue_create(OPTS()), ret;
	struct chan c = channel_open("q");
	static char data[100000], back[100000];
	uint64_t req, seen = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t len = sizes[i];
		struct sits_chunk_hdr hdr;

		for (uint32_t k = 0; k < len; k++) {
			data[k] = k * 31 + i;
			back[k] = k * 17 + i + 1;
		}
		ret = submit_by(way, &c, data, len, 0, &req);
		check(!ret && req && req != seen, "%s: SUBMIT of %u bytes", way_names[way], len);
		seen = req;
		ret = fetch_by(way, q, &got, sizeof(got));
		check(ret == (int)(sizeof(got.ev) + len) && got.ev.kind == SITS_EV_REQUEST && got.ev.len == len &&
		      got.ev.req && got.ev.client && !got.ev.deadline_ns && got.ev.uid == getuid() &&
		      got.ev.pid == (uint32_t)getpid() && !memcmp(got.bytes, data, len),
		      "%s: FETCH of %u bytes", way_names[way], len);
		ret = commit_by(way, q, got.ev.req, back, len, 0, false);
		check_int(ret, len > 65536 - 128 ? -ENOBUFS : 0, "%s: COMMIT of %u bytes", way_names[way], len);
		if (!ret) {
			ret = recv_by(way, &c, ARENA_BYTES / 2);
			hdr = chunk_hdr(&c, RECV_OFF);
			check(ret == (int)(sizeof(hdr) + len) && hdr.req == req && hdr.len == len && !hdr.status &&
			      !hdr.flags && !memcmp(c.arena + RECV_OFF + sizeof(hdr), back, len),
			      "%s: RECV of %u bytes", way_names[way], len);
		}
		check_int(commit_by(way, q, got.ev.req, back, 3, -42, true), 0, "%s: last COMMIT", way_names[way]);
		ret = recv_by(way, &c, ARENA_BYTES / 2);
		hdr = chunk_hdr(&c, RECV_OFF);
		check(ret == sizeof(hdr) + 3 && hdr.req == req && hdr.len == 3 && hdr.status == -42 &&
		      hdr.flags == SITS_CHUNK_F_LAST && !memcmp(c.arena + RECV_OFF + sizeof(hdr), back, 3),
		      "%s: RECV of the end", way_names[way]);
	}
	channel_close(&c);
	close(q);
	check(no_queue_left(), "%s: nothing is left", way_names[way]);
}

/* FETCH and RECV wait on rings of their own; requests and answers come meanwhile. */
static void test_parked(enum way way)
{
	struct io_uring *ring = &way_ring[way];
	unsigned int flags = way == BY_WORKER ? IOSQE_ASYNC : 0;
	struct sits_fetch f = { .addr = (uintptr_t)&got, .len = sizeof(got) };
	struct sits_recv r = { .off = RECV_OFF, .len = 4096 };
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t req, tag;
	int good = 0;

	for (int i = 0; i < 100; i++) {
		char text[32];
		int ret;

		ring_put(ring, q, SITS_IOC_FETCH, &f, flags, 1);
		ring_put(ring, c.fd, SITS_IOC_RECV, &r, flags, 2);
		ring_submit(ring);
		snprintf(text, sizeof(text), "request %d", i);
		req = submit_text(&c, text);
		ret = ring_wait(ring, &tag, NEVER_MS);
		good += tag == 1 && ret == (int)(sizeof(got.ev) + strlen(text)) && !memcmp(got.bytes, text, strlen(text));
		commit_by(BY_IOCTL, q, got.ev.req, text, strlen(text), 0, i % 2);
		ret = ring_wait(ring, &tag, NEVER_MS);
		good += tag == 2 && ret == (int)(sizeof(struct sits_chunk_hdr) + strlen(text)) &&
			chunk_hdr(&c, RECV_OFF).req == req &&
			!memcmp(c.arena + RECV_OFF + sizeof(struct sits_chunk_hdr), text, strlen(text));
		if (!(i % 2)) {
			commit_end(q, got.ev.req, 0);
			end_is(&c, req, 0);
		}
	}
	check_int(good, 200, "%s: FETCH and RECV that wait are served", way_names[way]);
	channel_close(&c);
	close(q);
	check(no_queue_left(), "%s: nothing is left of that", way_names[way]);
}

/* -------------------------------------------------------------------- the stream */

static void test_pieces(void)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	static char data[5000], back[5000];
	uint64_t req = submit_text(&c, "x");
	uint32_t at = 0;
	bool good = true;
	int pieces = 0;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = i * 7;
	fetch_kind(q, &got, SITS_EV_REQUEST);
	check_int(commit_by(BY_IOCTL, q, got.ev.req, data, sizeof(data), -5, true), 0, "a chunk larger than the room");
	do {
		int ret = recv_now(&c, sizeof(struct sits_chunk_hdr) + 999);
		struct sits_chunk_hdr h = chunk_hdr(&c, RECV_OFF);
		bool last = at + h.len == sizeof(data);

		if (ret < 0 || at + h.len > sizeof(back))
			break;
		good = good && h.req == req && h.flags == (last ? SITS_CHUNK_F_LAST : SITS_CHUNK_F_MORE) &&
			h.status == (last ? -5 : 0) && h.len == (last ? sizeof(data) % 999 : 999);
		memcpy(back + at, c.arena + RECV_OFF + sizeof(h), h.len);
		at += h.len;
		pieces++;
	} while (at < sizeof(data));
	check(good && pieces == 6 && !memcmp(data, back, sizeof(data)), "comes in pieces that say so");
	check_int(recv_now(&c, 4096), -EAGAIN, "and then there is nothing");
	check_int(commit_end(q, got.ev.req, 0), -ENOENT, "COMMIT after the end");
	channel_close(&c);
	close(q);
}

/* Several RECVs wait: the oldest is filled first, and a chunk too large for one goes on in the next. */
static void test_many_receivers(void)
{
	struct io_uring *ring = &way_ring[BY_URING];
	int q = queue_create(OPTS()), good = 0;
	struct chan c = channel_open("q");
	uint64_t req = submit_text(&c, "x"), tag;
	char text[] = "0123456789abcdefghij";
	int res[4] = { 0 };

	for (int i = 0; i < 4; i++) {
		struct sits_recv r = { .off = RECV_OFF + i * 4096, .len = sizeof(struct sits_chunk_hdr) + (i ? 4000 : 15) };

		ring_put(ring, c.fd, SITS_IOC_RECV, &r, 0, i);
	}
	ring_submit(ring);
	check(ring_is_empty(ring), "RECVs wait");
	fetch_kind(q, &got, SITS_EV_REQUEST);
	commit(q, got.ev.req, text);		/* 20 bytes: 15 into the first, 5 into the second */
	commit(q, got.ev.req, "next");
	commit_end(q, got.ev.req, -7);
	/* Completions may overtake each other (on 6.1 they do). */
	for (int i = 0; i < 4; i++) {
		int ret = ring_wait(ring, &tag, NEVER_MS);

		if (tag < 4)
			res[tag] = ret;
	}
	for (int i = 0; i < 4; i++) {
		static const struct { int len, flags, status; const char *text; } want[] = {
			{ 15, SITS_CHUNK_F_MORE, 0, "0123456789abcde" }, { 5, 0, 0, "fghij" }, { 4, 0, 0, "next" },
			{ 0, SITS_CHUNK_F_LAST, -7, "" },
		};
		struct sits_chunk_hdr h = chunk_hdr(&c, RECV_OFF + i * 4096);

		good += res[i] == (int)sizeof(h) + want[i].len && h.req == req &&
			(int)h.len == want[i].len && (int)h.flags == want[i].flags && h.status == want[i].status &&
			!memcmp(c.arena + RECV_OFF + i * 4096 + sizeof(h), want[i].text, h.len);
	}
	check_int(good, 4, "four RECVs that wait are filled in their order, the first with a piece");
	channel_close(&c);
	close(q);
}

static void test_stream_order(void)
{
	int q = queue_create(OPTS()), good = 0;
	struct chan c = channel_open("q");
	uint64_t req[4], id[4];

	for (int i = 0; i < 4; i++) {
		req[i] = submit_text(&c, "x");
		fetch_kind(q, &got, SITS_EV_REQUEST);
		id[i] = got.ev.req;
	}
	for (int n = 0; n < 50; n++)
		for (int i = 0; i < 4; i++) {
			char text[16];

			snprintf(text, sizeof(text), "%d.%d", i, n);
			good += !commit(q, id[i], text);
		}
	for (int i = 0; i < 4; i++)
		good += !commit_end(q, id[i], -i);
	for (int n = 0; n < 50; n++)
		for (int i = 0; i < 4; i++) {
			char text[16];

			snprintf(text, sizeof(text), "%d.%d", i, n);
			good += recv_is(&c, req[i], text, 0, false);
		}
	for (int i = 0; i < 4; i++)
		good += end_is(&c, req[i], -i);
	check_int(good, 2 * (200 + 4), "four answers of 50 chunks arrive in order");
	channel_close(&c);
	close(q);
}

static void test_backlog(void)
{
	int q = queue_create(OPTS(.chunk_backlog = 1000)), nr = 0, ret;
	struct chan c = channel_open("q");
	uint64_t req = submit_text(&c, "x");
	static char big[2000];

	fetch_kind(q, &got, SITS_EV_REQUEST);
	while (!(ret = commit(q, got.ev.req, "0123456789")))
		nr++;
	check_int(ret, -ENOBUFS, "nobody collects");
	check(nr >= 2 && nr <= 100, "the backlog is bounded: %d chunks of 10 bytes in 1000", nr);
	check_int(commit_by(BY_IOCTL, q, got.ev.req, big, sizeof(big), 0, true), -ENOBUFS, "an end with more than the backlog");
	check(recv_is(&c, req, "0123456789", 0, false), "one is collected");
	check_int(commit(q, got.ev.req, "0123456789"), 0, "there is room for one again");
	check_int(commit(q, got.ev.req, "0123456789"), -ENOBUFS, "and not for two");
	check_int(commit_end(q, got.ev.req, -3), 0, "an end without bytes is always taken");
	for (int i = 0; i < nr; i++)
		ret = recv_now(&c, 4096);
	check(end_is(&c, req, -3), "and comes after the chunks");

	/* More than the backlog goes through where it goes right away. */
	struct io_uring *ring = &way_ring[BY_URING];
	struct sits_recv r = { .off = RECV_OFF, .len = 4096 };

	req = submit_text(&c, "y");
	fetch_kind(q, &got, SITS_EV_REQUEST);
	check_int(commit_by(BY_IOCTL, q, got.ev.req, big, sizeof(big), 0, false), -ENOBUFS, "a chunk beyond the backlog");
	ring_put(ring, c.fd, SITS_IOC_RECV, &r, 0, 0);
	ring_submit(ring);
	check_int(commit_by(BY_IOCTL, q, got.ev.req, big, sizeof(big), 0, false), 0, "into a RECV that waits");
	check_int(ring_wait(ring, NULL, NEVER_MS), sizeof(struct sits_chunk_hdr) + sizeof(big), "which gets all of it");
	commit_end(q, got.ev.req, 0);
	check(end_is(&c, req, 0), "the end of that");
	channel_close(&c);
	close(q);
}

/* -------------------------------------------------------------- fairness, bounds */

static void test_round_robin(void)
{
	int q = queue_create(OPTS());
	struct chan c[3];
	char order[10] = "";

	for (int i = 0; i < 3; i++)
		c[i] = channel_open("q");
	for (int i = 0; i < 5; i++)
		submit_text(&c[0], "a");
	for (int i = 0; i < 2; i++)
		submit_text(&c[1], "b");
	submit_text(&c[2], "c");
	for (int i = 0; i < 8; i++) {
		fetch_kind(q, &got, SITS_EV_REQUEST);
		order[i] = got.bytes[0];
	}
	if (!check(!strcmp(order, "abcabaaa"), "requests come round robin between clients"))
		printf("# %s\n", order);
	for (int i = 0; i < 3; i++)
		channel_close(&c[i]);
	close(q);
}

static void test_bounds(void)
{
	int q = queue_create(OPTS(.depth = 6, .per_client = 4, .max_clients = 3)), fd;
	struct chan c[3];
	uint64_t req[8], id;
	struct sits_queue_facts f;

	for (int i = 0; i < 3; i++)
		c[i] = channel_open("q");
	check_int(channel_fd("q", PAGE), -EBUSY, "max_clients");
	for (int i = 0; i < 4; i++)
		req[i] = submit_text(&c[0], "x");
	check_int(submit(&c[0], "x", 1, NULL), -EBUSY, "per_client");
	for (int i = 4; i < 6; i++)
		req[i] = submit_text(&c[1], "x");
	check_int(submit(&c[1], "x", 1, NULL), -EBUSY, "depth");
	check_int(submit(&c[2], c[2].arena, 100000, NULL), -EBUSY, "depth, before a large request is copied");
	f = queue_facts(q);
	check(f.nr_clients == 3 && f.nr_waiting == 6 && !f.nr_running && f.requests == 6 && f.refused_busy == 3 &&
	      f.depth == 6 && f.per_client == 4 && f.max_clients == 3 && f.mode == 0666 &&
	      f.chunk_backlog == 64 << 10 && !strcmp((char *)f.name, "q") && f.bytes_in == 6, "QUEUE_INFO");
	fetch_kind(q, &got, SITS_EV_REQUEST);
	id = got.ev.req;
	f = queue_facts(q);
	check(f.nr_waiting == 5 && f.nr_running == 1, "QUEUE_INFO of one that runs");
	check_int(submit(&c[0], "x", 1, NULL), -EBUSY, "one that runs counts");
	commit_end(q, id, 0);
	check(end_is(&c[0], req[0], 0), "it ends");
	req[0] = submit_text(&c[0], "x");
	check(true, "and makes room");

	/* Ends that are not collected. */
	for (int i = 0; i < 4; i++)
		check_int(cancel(&c[0], req[i]), 0, "cancel of one that waits");
	check_int(submit(&c[0], "x", 1, NULL), -ENOBUFS, "as many ends as per_client are not collected");
	check_int(cancel(&c[0], req[3]), 0, "CANCEL of one whose end waits");
	check(end_is(&c[0], req[1], -ECANCELED) || true, "one is collected");
	submit_text(&c[0], "x");
	check_int(cancel(&c[0], req[0] + 1), -ENOENT, "CANCEL of a number that was never given");
	f = queue_facts(q);
	check(f.answered == 1 && f.cancelled == 4 && f.refused_busy == 4, "counters");
	channel_close(&c[2]);
	fd = channel_fd("q", PAGE);
	check(fd >= 0, "a channel that closes makes room");
	close(fd);
	channel_close(&c[0]);
	channel_close(&c[1]);
	close(q);
	check(no_queue_left(), "nothing is left");
}

static void test_sizes(void)
{
	int q = queue_create(OPTS(.chunk_backlog = 8 << 20)), ret;
	struct chan c = { .fd = channel_fd("q", 16 << 20), .bytes = 16 << 20 };
	struct sits_submit s = { .len = SITS_REQUEST_BYTES_MAX, .off_req = 8 << 20 };
	struct sits_fetch f = { .addr = (uintptr_t)&got, .len = sizeof(got) - 1, .flags = SITS_FETCH_NONBLOCK };
	struct sits_recv r = { .off = 8 << 20, .len = 8 << 20 };
	char *copy = malloc(SITS_REQUEST_BYTES_MAX);

	c.arena = mmap(NULL, c.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c.fd, 0);
	need(c.arena != MAP_FAILED, "mmap");
	for (uint32_t i = 0; i < SITS_REQUEST_BYTES_MAX; i++)
		copy[i] = c.arena[i] = i * 2654435761u >> 24;
	check_int(command(BY_URING, c.fd, SITS_IOC_SUBMIT, &s), 0, "SUBMIT of the most bytes");
	s.len++;
	check_int(command(BY_URING, c.fd, SITS_IOC_SUBMIT, &s), -EMSGSIZE, "SUBMIT of more");
	memset(c.arena, 0, SITS_REQUEST_BYTES_MAX);
	ret = command(BY_IOCTL, q, SITS_IOC_FETCH, &f);
	check_int(ret, -EMSGSIZE, "FETCH with room for one byte less");
	f.len = sizeof(got.ev);
	check_int(command(BY_IOCTL, q, SITS_IOC_FETCH, &f), -EMSGSIZE, "FETCH with room for the event alone");
	check_int(queue_facts(q).nr_waiting, 1, "the request stays");
	check_int(fetch_by(BY_URING, q, &got, sizeof(got)), sizeof(got), "FETCH with the room");
	check(!memcmp(got.bytes, copy, SITS_REQUEST_BYTES_MAX), "all bytes");
	check_int(commit_by(BY_URING, q, got.ev.req, copy, SITS_REQUEST_BYTES_MAX, 0, true), 0, "COMMIT of as many");
	check_int(command(BY_URING, c.fd, SITS_IOC_RECV, &r), sizeof(struct sits_chunk_hdr) + SITS_REQUEST_BYTES_MAX, "RECV");
	check(!memcmp(c.arena + r.off + sizeof(struct sits_chunk_hdr), copy, SITS_REQUEST_BYTES_MAX), "all bytes came back");
	free(copy);
	channel_close(&c);
	close(q);
}

/* ------------------------------------------------------------- cancel, deadlines */

static void test_cancel(void)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t a = submit_text(&c, "a"), b = submit_text(&c, "b"), id;

	check_int(cancel(&c, a), 0, "CANCEL while it waits");
	check(end_is(&c, a, -ECANCELED), "it ends at once");
	check_int(cancel(&c, a), -ENOENT, "CANCEL after its end was received");
	check(fetch_kind(q, &got, SITS_EV_REQUEST) && got.bytes[0] == 'b', "the daemon does not hear of it");
	id = got.ev.req;
	check_int(cancel(&c, b), 0, "CANCEL while it runs");
	check_int(cancel(&c, b), 0, "CANCEL once more");
	submit_text(&c, "c");
	check(fetch_kind(q, &got, SITS_EV_CANCEL) && got.ev.req == id && !got.ev.len, "the daemon hears of it, before new requests");
	check(fetch_kind(q, &got, SITS_EV_REQUEST) && got.bytes[0] == 'c', "once");
	check_int(recv_now(&c, 4096), -EAGAIN, "no end before the daemon's");
	check_int(commit_by(BY_IOCTL, q, id, "bye", 3, -ECANCELED, true), 0, "the daemon ends it");
	check(recv_is(&c, b, "bye", -ECANCELED, true), "its end comes with the daemon's bytes");
	check_int(commit_end(q, id, 0), -ENOENT, "COMMIT after that");
	check_int(commit_end(q, 0, 0), -ENOENT, "COMMIT of request 0");
	channel_close(&c);
	close(q);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void test_deadlines(void)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t a, b, id, deadline;

	submit_by(BY_IOCTL, &c, "late", 4, 20, &a);
	check(end_is(&c, a, -ETIMEDOUT), "one that waits ends at its deadline");
	check_int(fetch(q, &got), -EAGAIN, "and is not handed out");
	submit_by(BY_IOCTL, &c, "b", 1, 50, &b);
	check(fetch_kind(q, &got, SITS_EV_REQUEST), "one is fetched in time");
	id = got.ev.req;
	deadline = got.ev.deadline_ns;
	check(deadline, "with its deadline");
	check(fetch_kind(q, &got, SITS_EV_CANCEL) && got.ev.req == id && now_ns() >= deadline,
	      "the daemon is told, not too early");
	check_int(fetch(q, &got), -EAGAIN, "once");
	check_int(recv_now(&c, 4096), -EAGAIN, "the client waits for the daemon");
	check_int(commit_by(BY_IOCTL, q, id, "x", 1, 0, true), 0, "the daemon ends it with success");
	check(recv_is(&c, b, "x", -ETIMEDOUT, true), "it was too late");
	/* The first deadline is not the first that was set. */
	submit_by(BY_IOCTL, &c, "x", 1, 3600000, &a);
	submit_by(BY_IOCTL, &c, "y", 1, 30, &b);
	check(end_is(&c, b, -ETIMEDOUT), "a shorter deadline set later comes first");
	check(fetch_kind(q, &got, SITS_EV_REQUEST) && got.bytes[0] == 'x', "a longer one does not come");
	commit_end(q, got.ev.req, 0);
	check(end_is(&c, a, 0), "and its request ends well");
	check_int(queue_facts(q).cancelled, 3, "they count as cancelled");
	channel_close(&c);
	close(q);
}

/* --------------------------------------------------------------- who waits, faults */

struct waiter {
	pthread_t thread;
	int fd, ret;
	uint32_t op;
	char payload[16];
};

static void *wait_in_ioctl(void *arg)
{
	struct waiter *w = arg;

	w->ret = command(BY_IOCTL, w->fd, w->op, w->payload);
	return NULL;
}

static void start_waiter(struct waiter *w, int fd, uint32_t op, const void *payload)
{
	w->fd = fd;
	w->op = op;
	memcpy(w->payload, payload, 16);
	pthread_create(&w->thread, NULL, wait_in_ioctl, w);
}

static void test_blocking_ioctls(void)
{
	static struct got mine;
	struct sits_fetch f = { .addr = (uintptr_t)&mine, .len = sizeof(mine) };
	struct sits_recv r = { .off = RECV_OFF, .len = 4096 };
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	struct waiter wf, wr;
	uint64_t req;

	start_waiter(&wf, q, SITS_IOC_FETCH, &f);
	start_waiter(&wr, c.fd, SITS_IOC_RECV, &r);
	req = submit_text(&c, "hello");
	pthread_join(wf.thread, NULL);
	check(wf.ret == sizeof(mine.ev) + 5 && !memcmp(mine.bytes, "hello", 5), "a FETCH that waits in an ioctl");
	commit_end(q, mine.ev.req, -9);
	pthread_join(wr.thread, NULL);
	check(wr.ret == sizeof(struct sits_chunk_hdr) && chunk_hdr(&c, RECV_OFF).req == req &&
	      chunk_hdr(&c, RECV_OFF).status == -9, "a RECV that waits in an ioctl");
	channel_close(&c);
	close(q);
}

static void on_signal(int sig)
{
}

static int interrupted(void *arg)
{
	struct waiter *w = arg;
	struct sigaction sa = { .sa_handler = on_signal };
	struct itimerval it = { .it_value.tv_usec = 50000, .it_interval.tv_usec = 50000 };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
	return command(BY_IOCTL, w->fd, w->op, w->payload) == -EINTR ? 0 : 1;
}

static void test_signals(void)
{
	struct sits_fetch f = { .addr = (uintptr_t)&got, .len = sizeof(got) };
	struct sits_recv r = { .off = RECV_OFF, .len = 4096 };
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	struct waiter wf = { .fd = q, .op = SITS_IOC_FETCH }, wr = { .fd = c.fd, .op = SITS_IOC_RECV };

	memcpy(wf.payload, &f, 16);
	memcpy(wr.payload, &r, 16);
	check_int(in_child(interrupted, &wr), 0, "a signal ends a RECV that waits");
	check_int(in_child(interrupted, &wf), 0, "a signal ends a FETCH that waits");
	channel_close(&c);
	close(q);
	check(no_queue_left(), "nothing is left");
}

static void test_poll(void)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	struct pollfd p[2] = { { .fd = q, .events = POLLIN }, { .fd = c.fd, .events = POLLIN } };
	uint64_t req;

	check(poll(p, 2, 0) == 0, "nothing to read");
	req = submit_text(&c, "x");
	check(poll(p, 2, 0) == 1 && p[0].revents == POLLIN, "the queue is readable");
	fetch(q, &got);
	check(poll(p, 2, 0) == 0, "and no longer");
	commit(q, got.ev.req, "a");
	commit(q, got.ev.req, "b");
	for (int i = 0; i < 2; i++) {
		check(poll(p, 2, 0) == 1 && p[1].revents == POLLIN, "the channel is readable");
		recv_now(&c, 4096);
	}
	check(poll(p, 2, 0) == 0, "and no longer");
	cancel(&c, req);
	check(poll(p, 2, 0) == 1 && p[0].revents == POLLIN, "a CANCEL makes the queue readable");
	close(q);
	p[0].fd = -1;
	check(poll(p, 2, NEVER_MS) == 1 && p[1].revents == (POLLIN | POLLHUP), "the end of the queue makes the channel readable");
	check(end_is(&c, req, -ESHUTDOWN), "the request ends");
	for (int i = 0; i < 2; i++)
		check(poll(p, 2, 0) == 1 && p[1].revents == (POLLIN | POLLHUP) && recv_now(&c, 4096) == -EPIPE,
		      "and it stays readable: the daemon is gone");
	check_int(submit(&c, "x", 1, NULL), -EPIPE, "SUBMIT then");
	channel_close(&c);
}

static void test_faults(enum way way)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	char *edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sits_fetch f = { .addr = (uintptr_t)edge + PAGE - sizeof(struct sits_event), .len = PAGE };
	struct io_uring *ring = &way_ring[way == BY_IOCTL ? BY_URING : way];
	uint64_t req, tag;

	munmap(edge + PAGE, PAGE);
	req = submit_text(&c, "first");
	submit_text(&c, "second");
	check_int(command(way, q, SITS_IOC_FETCH, &f), -EFAULT, "%s: FETCH into memory that ends", way_names[way]);
	check(fetch_kind(q, &got, SITS_EV_REQUEST) && !memcmp(got.bytes, "first", 5), "%s: the request stays first", way_names[way]);
	cancel(&c, req);
	f.addr = (uintptr_t)edge + PAGE - 8;
	check_int(command(way, q, SITS_IOC_FETCH, &f), -EFAULT, "%s: of a CANCEL", way_names[way]);
	check(fetch_kind(q, &got, SITS_EV_CANCEL), "%s: it stays", way_names[way]);
	commit_end(q, got.ev.req, 0);
	fetch_kind(q, &got, SITS_EV_REQUEST);
	check_int(commit_by(way, q, got.ev.req, edge + PAGE - 8, 16, 0, false), -EFAULT, "%s: COMMIT from there", way_names[way]);
	check_int(commit_by(way, q, got.ev.req, edge + PAGE - 8, 1000, 0, false), -EFAULT, "%s: COMMIT of more", way_names[way]);
	check_int(commit_end(q, got.ev.req, 0), 0, "%s: the request is as before", way_names[way]);
	if (way != BY_IOCTL) {
		/* One that waits. */
		ring_put(ring, q, SITS_IOC_FETCH, &f, way == BY_WORKER ? IOSQE_ASYNC : 0, 1);
		ring_submit(ring);
		submit_text(&c, "third");
		check_int(ring_wait(ring, &tag, NEVER_MS), -EFAULT, "%s: FETCH that waits, into memory that ends", way_names[way]);
		check(fetch_kind(q, &got, SITS_EV_REQUEST) && !memcmp(got.bytes, "third", 5), "%s: nothing is lost", way_names[way]);
		f.len = sizeof(struct sits_event);
		ring_put(ring, q, SITS_IOC_FETCH, &f, way == BY_WORKER ? IOSQE_ASYNC : 0, 1);
		ring_submit(ring);
		submit_text(&c, "fourth");
		check_int(ring_wait(ring, &tag, NEVER_MS), -EMSGSIZE, "%s: FETCH that waits, too small", way_names[way]);
		check(fetch_kind(q, &got, SITS_EV_REQUEST), "%s: the event stays", way_names[way]);
	}
	munmap(edge, PAGE);
	channel_close(&c);
	close(q);
	check(no_queue_left(), "%s: nothing is left", way_names[way]);
}

/* --------------------------------------------------------------------------- ends */

static void test_close_intake(void)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t a = submit_text(&c, "a"), b = submit_text(&c, "b"), id;

	fetch_kind(q, &got, SITS_EV_REQUEST);
	id = got.ev.req;
	check_int(command(BY_URING, q, SITS_IOC_CLOSE_INTAKE, NULL), 0, "CLOSE_INTAKE");
	check(end_is(&c, b, -ESHUTDOWN), "what waits ends");
	check_int(submit(&c, "x", 1, NULL), -ESHUTDOWN, "nothing new is taken");
	check_int(channel_fd("q", PAGE), -ESHUTDOWN, "nor a channel");
	check_int(commit(q, id, "still"), 0, "what runs goes on");
	check(recv_is(&c, a, "still", 0, false), "to the client");
	check_int(commit_end(q, id, 0), 0, "to its end");
	check(end_is(&c, a, 0), "which arrives");
	check_int(command(BY_IOCTL, q, SITS_IOC_CLOSE_INTAKE, NULL), 0, "CLOSE_INTAKE twice");
	channel_close(&c);
	close(q);
}

static void test_client_goes(void)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t id[2];
	bool heard = true;

	for (int i = 0; i < 3; i++)
		submit_text(&c, "x");
	for (int i = 0; i < 2; i++) {
		fetch_kind(q, &got, SITS_EV_REQUEST);
		id[i] = got.ev.req;
	}
	commit(q, id[0], "not collected");
	channel_close(&c);
	for (int i = 0; i < 2; i++)
		heard = heard && fetch_kind(q, &got, SITS_EV_CANCEL) && got.ev.req == id[i];
	check(heard, "the daemon hears of each request that runs");
	check_int(fetch(q, &got), -EAGAIN, "one that waited is dropped");
	check_int(commit(q, id[0], "x"), -EPIPE, "COMMIT");
	check_int(commit_end(q, id[0], 0), -EPIPE, "the last COMMIT");
	check_int(commit_end(q, id[0], 0), -ENOENT, "which has ended it");
	check_int(queue_facts(q).nr_clients, 0, "the client does not count any more");
	check_int(queue_facts(q).nr_running, 1, "the other request does");
	close(q);
	check(no_queue_left(), "it goes with the queue");
}

static void test_names(void)
{
	int q = queue_create(OPTS()), r;

	check_int(queue_create(OPTS()), -EADDRINUSE, "the name of a living queue");
	r = queue_create(OPTS(.name = "r"));
	check(r >= 0, "another name");
	check_int(channel_fd("s", PAGE), -ENOENT, "no such queue");
	close(q);
	check_int(channel_fd("q", PAGE), -ENOENT, "the queue is gone");
	q = queue_create(OPTS());
	check(q >= 0, "the name is free");
	close(q);
	close(r);
}

static int open_as(void *arg)
{
	const int *uid_gid = arg;

	if (setgid(uid_gid[1]) || setuid(uid_gid[0]))
		return 99;
	return -channel_fd("q", PAGE) > 0 ? -channel_fd("q", PAGE) : 0;
}

static int create_as_user(void *arg)
{
	if (setgid(1000) || setuid(1000))
		return 99;
	dev = open(SITS_DEV_PATH, O_RDWR);
	return -queue_create(OPTS(.name = "theirs"));
}

static void test_rights(void)
{
	static const struct { int mode, uid, gid, err; const char *what; } cases[] = {
		{ 0600, 0, 0, 0, "the owner, mode 0600" },
		{ 0600, 1000, 1000, EACCES, "another user, mode 0600" },
		{ 0600, 1000, 0, EACCES, "the group, mode 0600" },
		{ 0660, 1000, 0, 0, "the group, mode 0660" },
		{ 0660, 1000, 1000, EACCES, "another user, mode 0660" },
		{ 0664, 1000, 1000, EACCES, "reading is not enough" },
		{ 0666, 1000, 1000, 0, "anybody, mode 0666" },
		{ 0606, 1000, 0, EACCES, "the group is not the others" },
		{ -1, 0, 0, 0, "root may all, mode 0000" },
	};

	check_int(in_child(create_as_user, NULL), EPERM, "a queue takes the right to own");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int q = queue_create(OPTS(.mode = cases[i].mode)), uid_gid[2] = { cases[i].uid, cases[i].gid };

		check_int(in_child(open_as, uid_gid), cases[i].err, "CHANNEL_OPEN: %s", cases[i].what);
		close(q);
	}
}

static void test_arena(void)
{
	int q = queue_create(OPTS()), fd = channel_fd("q", 4 * PAGE);
	char *p;

	check_int(err_of(map(fd, PAGE, PROT_READ)), -EINVAL, "mmap of a part of the arena");
	check_int(err_of(map(fd, 5 * PAGE, PROT_READ)), -EINVAL, "mmap of more");
	check_int(err_of(map(fd, 4 * PAGE, PROT_READ | PROT_EXEC)), -EACCES, "mmap to execute");
	check_int(err_of(map_at(NULL, fd, 4 * PAGE, PROT_READ, MAP_PRIVATE)), -EINVAL, "mmap to itself");
	p = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE);
	check(!is_err(p) && !p[0] && !memcmp(p, p + 1, 4 * PAGE - 1), "it is zero");
	check(mprotect(p, 4 * PAGE, PROT_EXEC) < 0 && errno == EACCES, "it can't become executable");
	check(mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED, "it can't grow");
	check_int(err_of(map(q, PAGE, PROT_READ)), -ENODEV, "a queue has nothing to map");
	close(fd);
	p[4 * PAGE - 1] = 1;
	check_int(info().nr_channels, 1, "a mapping holds the channel");
	munmap(p, 4 * PAGE);
	close(q);
	check(no_queue_left(), "and lets go of it");
}

static int sysfs(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/misc/sits/%s", name);
	return read_number(path);
}

static bool fdinfo_has(int fd, const char *line)
{
	char path[64], text[4096] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (f) {
		if (!fread(text, 1, sizeof(text) - 1, f))
			text[0] = '\0';
		fclose(f);
	}
	if (!strstr(text, line))
		printf("# %s\n", text);
	return strstr(text, line);
}

static void test_telling(void)
{
	int before = sysfs("requests"), q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t req = submit_text(&c, "x");

	check(info().nr_queues == 1 && info().nr_channels == 1 && info().features & SITS_FEATURE_QUEUE, "GET_INFO");
	check(sysfs("queues") == 1 && sysfs("channels") == 1 && sysfs("requests") == before + 1, "counters");
	check(fdinfo_has(q, "sits-waiting:\t1\n") && fdinfo_has(q, "sits-queue:\tq\n"), "fdinfo of a queue");
	check(fdinfo_has(c.fd, "sits-requests:\t1\n") && fdinfo_has(c.fd, "sits-dead:\t0\n"), "fdinfo of a channel");
	close(q);
	check(end_is(&c, req, -ESHUTDOWN), "an orderly close");
	check(fdinfo_has(c.fd, "sits-dead:\t1\n"), "fdinfo of a channel without a queue");
	check(info().nr_queues == 0 && info().nr_channels == 1, "GET_INFO then");
	channel_close(&c);
	check(no_queue_left(), "nothing is left");
}

int main(void)
{
	open_dev();
	ways_init();
	for (int way = 0; way < NR_WAYS; way++)
		test_round_trip(way);
	for (int way = BY_URING; way < NR_WAYS; way++)
		test_parked(way);
	for (int way = 0; way < NR_WAYS; way++)
		test_faults(way);
	test_pieces();
	test_many_receivers();
	test_stream_order();
	test_backlog();
	test_round_robin();
	test_bounds();
	test_sizes();
	test_cancel();
	test_deadlines();
	test_blocking_ioctls();
	test_signals();
	test_poll();
	test_close_intake();
	test_client_goes();
	test_names();
	test_rights();
	test_arena();
	test_telling();
	ways_fini();
	return done();
}
