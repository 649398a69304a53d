// SPDX-License-Identifier: MIT
/*
 * queue_kernel_test.c - what the kernel provider's queues and channels ask of the module, field by field, and what they make
 * of each answer. A stand-in answers the ioctls, so it runs without the module.
 */
#include "libsits/device.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "sits/context.h"
#include "sits/queue.h"

#define MS 1000000ull

/* What the module is to answer next, and what it was asked last. */
static struct fake {
	int err;		/* -errno for the next call of @cmd */
	int times;		/* how often */
	unsigned long cmd;
	unsigned long last;	/* the last command, and where on */
	int last_fd, calls;
	struct sits_queue_create queue;
	struct sits_channel_create channel;
	struct sits_fetch fetch;
	struct sits_commit_desc commit;
	uint8_t commit_bytes[64];
	struct sits_submit submit;
	struct sits_recv recv;
	struct sits_cancel cancel;
	uint8_t *arena;		/* as the module sees it */
	uint64_t next_req;
	struct sits_event ev;	/* for FETCH; kind 0: none */
	const char *ev_bytes;
	struct sits_chunk_hdr hdr[4];	/* for RECV */
	const char *chunk[4];
	int nr_chunks;
} fake;

static struct sits_ctx *ctx;
static char logged[4096];

static void log_line(void *arg, int severity, const char *line)
{
	if (severity <= SITS_LOG_WARN)
		snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
}

static int fake_open(const char *path, int flags)
{
	assert_string_equal(path, "/dev/sits");
	assert_true(flags & O_CLOEXEC);
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static int give_info(struct sits_get_info *info)
{
	assert_true(info->size >= sizeof(*info));
	info->abi_version = SITS_ABI_VERSION;
	info->features = SITS_FEATURE_REGION | SITS_FEATURE_WEIGHTS | SITS_FEATURE_QUEUE | SITS_FEATURE_URING_CMD;
	return 0;
}

static int give_queue(struct sits_queue_create *arg)
{
	fake.queue = *arg;
	arg->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return 0;
}

static int give_channel(struct sits_channel_create *arg)
{
	fake.channel = *arg;
	arg->fd = memfd_create("fake", MFD_CLOEXEC);
	assert_int_equal(ftruncate(arg->fd, (off_t)arg->arena_bytes), 0);
	fake.arena = mmap(NULL, arg->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arg->fd, 0);
	assert_true(fake.arena != MAP_FAILED);
	return 0;
}

static int give_event(const struct sits_fetch *arg)
{
	uint8_t *to = (uint8_t *)(uintptr_t)arg->addr;

	fake.fetch = *arg;
	if (!fake.ev.kind)
		return -EAGAIN;
	memcpy(to, &fake.ev, sizeof(fake.ev));
	memcpy(to + sizeof(fake.ev), fake.ev_bytes, fake.ev.len);
	fake.ev.kind = 0;
	return (int)(sizeof(fake.ev) + fake.ev.len);
}

static int take_commit(const struct sits_commit *arg)
{
	assert_int_equal(arg->reserved, 0);
	memcpy(&fake.commit, (void *)(uintptr_t)arg->addr, sizeof(fake.commit));
	if (fake.commit.len)
		memcpy(fake.commit_bytes, (void *)(uintptr_t)fake.commit.addr, fake.commit.len);
	return 0;
}

static int take_submit(const struct sits_submit *arg)
{
	fake.submit = *arg;
	memcpy(fake.arena + arg->off_req, &fake.next_req, sizeof(fake.next_req));
	fake.next_req++;
	return 0;
}

static int give_chunk(const struct sits_recv *arg)
{
	struct sits_chunk_hdr hdr = fake.hdr[0];

	fake.recv = *arg;
	if (!fake.nr_chunks)
		return -EAGAIN;
	memcpy(fake.arena + arg->off, &hdr, sizeof(hdr));
	memcpy(fake.arena + arg->off + sizeof(hdr), fake.chunk[0], hdr.len);
	fake.nr_chunks--;
	memmove(fake.hdr, fake.hdr + 1, sizeof(fake.hdr) - sizeof(fake.hdr[0]));
	memmove(fake.chunk, fake.chunk + 1, sizeof(fake.chunk) - sizeof(fake.chunk[0]));
	return (int)(sizeof(hdr) + hdr.len);
}

static int give_facts(struct sits_queue_facts *f)
{
	assert_int_equal(f->size, sizeof(*f));
	f->requests = 10;
	f->answered = 5;
	f->cancelled = 2;
	f->refused_busy = 3;
	f->bytes_in = 1000;
	f->bytes_out = 2000;
	f->nr_clients = 4;
	f->nr_waiting = 1;
	f->nr_running = 2;
	return 0;
}

static int answer(unsigned long cmd, void *arg)
{
	switch (cmd) {
	case SITS_IOC_GET_INFO:
		return give_info(arg);
	case SITS_IOC_QUEUE_CREATE:
		return give_queue(arg);
	case SITS_IOC_CHANNEL_OPEN:
		return give_channel(arg);
	case SITS_IOC_FETCH:
		return give_event(arg);
	case SITS_IOC_COMMIT:
		return take_commit(arg);
	case SITS_IOC_QUEUE_INFO:
		return give_facts(arg);
	case SITS_IOC_SUBMIT:
		return take_submit(arg);
	case SITS_IOC_RECV:
		return give_chunk(arg);
	case SITS_IOC_CANCEL:
		fake.cancel = *(struct sits_cancel *)arg;
		return 0;
	case SITS_IOC_CLOSE_INTAKE:
		return 0;
	default:
		return -ENOTTY;
	}
}

static int fake_ioctl(int fd, unsigned long cmd, void *arg)
{
	int ret;

	fake.last = cmd;
	fake.last_fd = fd;
	fake.calls++;
	if (fake.times && fake.cmd == cmd) {
		fake.times--;
		ret = fake.err;
	} else {
		ret = answer(cmd, arg);
	}
	if (ret < 0)
		errno = -ret;
	return ret < 0 ? -1 : ret;
}

static void fail_next(unsigned long cmd, int err, int times)
{
	fake.cmd = cmd;
	fake.err = err;
	fake.times = times;
}

static int setup(void **state)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = SITS_PROVIDER_KERNEL, .log = log_line };

	memset(&fake, 0, sizeof(fake));
	fake.next_req = 1;
	logged[0] = '\0';
	return sits_open(&o, &ctx);
}

static int teardown(void **state)
{
	if (fake.arena)
		munmap(fake.arena, fake.channel.arena_bytes);
	sits_close(ctx);
	return 0;
}

static struct sits_queue *make_queue(void)
{
	struct sits_queue_opts o = { .size = sizeof(o), .depth = 64, .per_client = 16, .max_clients = 8, .mode = 0660,
				     .chunk_backlog = 1 << 18, .name = "a-queue" };
	struct sits_queue *q;

	assert_int_equal(sits_queue_create(ctx, &o, &q), 0);
	return q;
}

static struct sits_channel *make_channel(uint64_t arena_bytes)
{
	struct sits_channel *ch;

	assert_int_equal(sits_channel_open(ctx, "a-queue", arena_bytes, &ch), 0);
	return ch;
}

/* ------------------------------------------------------------------ the queue */

static void queue_is_made_as_asked(void **state)
{
	struct sits_queue *q = make_queue();

	assert_int_equal(fake.queue.size, sizeof(fake.queue));
	assert_int_equal(fake.queue.flags, 0);
	assert_int_equal(fake.queue.depth, 64);
	assert_int_equal(fake.queue.per_client, 16);
	assert_int_equal(fake.queue.max_clients, 8);
	assert_int_equal(fake.queue.mode, 0660);
	assert_int_equal(fake.queue.chunk_backlog, 1 << 18);
	assert_int_equal(fake.queue.fd_flags, O_CLOEXEC);
	assert_int_equal(fake.queue.reserved, 0);
	assert_string_equal((char *)fake.queue.name, "a-queue");
	assert_string_equal(logged, "");	/* that io_uring is not used here is nobody's fault */
	sits_queue_destroy(q);
	assert_int_equal(fake.last, SITS_IOC_CLOSE_INTAKE);	/* then the descriptor is closed */
	assert_int_equal(fcntl(fake.last_fd, F_GETFD), -1);
}

static void refusals_of_a_queue_have_words(void **state)
{
	static const struct {
		int err;
		const char *words;
	} cases[] = {
		{ -EADDRINUSE, "held by a running daemon" },
		{ -EPERM, "CAP_IPC_LOCK" },
		{ -ENOTTY, "no queues" },
		{ -ENOMEM, "Cannot allocate memory" },
	};
	struct sits_queue_opts o = { .size = sizeof(o), .depth = 1, .per_client = 1, .max_clients = 1, .chunk_backlog = 1,
				     .name = "a-queue" };
	struct sits_queue *q;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		logged[0] = '\0';
		fail_next(SITS_IOC_QUEUE_CREATE, cases[i].err, 1);
		assert_int_equal(sits_queue_create(ctx, &o, &q), cases[i].err);
		assert_non_null(strstr(logged, cases[i].words));
		assert_non_null(strstr(logged, "'a-queue'"));
	}
}

static void events_are_handed_out(void **state)
{
	struct sits_queue *q = make_queue();
	struct sits_queue_event ev;

	assert_int_equal(sits_queue_fetch(q, &ev, 0), 0);
	assert_int_equal(fake.fetch.flags, SITS_FETCH_NONBLOCK);
	assert_int_equal(fake.fetch.len, sizeof(struct sits_event) + SITS_REQUEST_MAX);
	fake.ev = (struct sits_event){ .kind = SITS_EV_REQUEST, .len = 5, .req = 77, .client = 3, .deadline_ns = 123456,
				       .uid = 1000, .pid = 4321 };
	fake.ev_bytes = "hello";
	assert_int_equal(sits_queue_fetch(q, &ev, -1), 1);
	assert_int_equal(ev.kind, SITS_EVENT_REQUEST);
	assert_int_equal(ev.req, 77);
	assert_int_equal(ev.client, 3);
	assert_int_equal(ev.client_uid, 1000);
	assert_int_equal(ev.client_pid, 4321);
	assert_int_equal(ev.deadline_ns, 123456);
	assert_int_equal(ev.len, 5);
	assert_memory_equal(ev.data, "hello", 5);
	fake.ev = (struct sits_event){ .kind = SITS_EV_CANCEL, .req = 77, .client = 3 };
	assert_int_equal(sits_queue_fetch(q, &ev, 1000), 1);
	assert_int_equal(ev.kind, SITS_EVENT_CANCEL);
	assert_int_equal(ev.req, 77);
	assert_null(ev.data);
	fail_next(SITS_IOC_FETCH, -EINTR, 1);
	assert_int_equal(sits_queue_fetch(q, &ev, 0), 0);
	fail_next(SITS_IOC_FETCH, -EIO, 1);
	assert_int_equal(sits_queue_fetch(q, &ev, -1), -EIO);
	assert_non_null(strstr(logged, "waiting for events"));
	sits_queue_wake(q);
	assert_int_equal(sits_queue_fetch(q, &ev, -1), 0);
	sits_queue_destroy(q);
}

static void commits_say_what_they_were_given(void **state)
{
	static const int answers[] = { -ENOENT, -EPIPE, -ENOBUFS, -ENOMEM };
	struct sits_queue *q = make_queue();

	assert_int_equal(sits_queue_commit(q, 5, "part", 4, 0, 0), 0);
	assert_int_equal(fake.commit.size, sizeof(fake.commit));
	assert_int_equal(fake.commit.flags, 0);
	assert_int_equal(fake.commit.req, 5);
	assert_int_equal(fake.commit.len, 4);
	assert_int_equal(fake.commit.status, 0);
	assert_memory_equal(fake.commit_bytes, "part", 4);
	assert_int_equal(sits_queue_commit(q, 6, NULL, 0, -ECANCELED, SITS_COMMIT_LAST), 0);
	assert_int_equal(fake.commit.flags, SITS_COMMIT_F_LAST);
	assert_int_equal(fake.commit.req, 6);
	assert_int_equal(fake.commit.len, 0);
	assert_int_equal(fake.commit.status, -ECANCELED);
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		fail_next(SITS_IOC_COMMIT, answers[i], 1);
		assert_int_equal(sits_queue_commit(q, 5, "x", 1, 0, 0), answers[i]);
	}
	fail_next(SITS_IOC_COMMIT, -EINTR, 3);	/* is no answer */
	assert_int_equal(sits_queue_commit(q, 9, "x", 1, 0, 0), 0);
	assert_int_equal(fake.commit.req, 9);
	sits_queue_destroy(q);
}

static void counters_are_the_modules(void **state)
{
	struct sits_queue *q = make_queue();
	struct sits_queue_stats s;

	sits_queue_get_stats(q, &s);
	assert_int_equal(s.requests, 10);
	assert_int_equal(s.answered, 5);
	assert_int_equal(s.cancelled, 2);
	assert_int_equal(s.refused_busy, 3);
	assert_int_equal(s.bytes_in, 1000);
	assert_int_equal(s.bytes_out, 2000);
	assert_int_equal(s.clients, 4);
	assert_int_equal(s.pending, 3);
	sits_queue_close_intake(q);
	assert_int_equal(fake.last, SITS_IOC_CLOSE_INTAKE);
	sits_queue_destroy(q);
}

/* ---------------------------------------------------------------- the channel */

static void arenas_are_whole_pages(void **state)
{
	static const struct {
		uint64_t asked, got;
	} cases[] = {
		{ 0, 1 << 20 }, { 1, 64 << 10 }, { 64 << 10, 64 << 10 }, { (64 << 10) + 1, 68 << 10 }, { 64 << 20, 64 << 20 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_channel *ch = make_channel(cases[i].asked);

		assert_int_equal(fake.channel.size, sizeof(fake.channel));
		assert_int_equal(fake.channel.flags, 0);
		assert_int_equal(fake.channel.arena_bytes, cases[i].got);
		assert_int_equal(fake.channel.fd_flags, O_CLOEXEC);
		assert_string_equal((char *)fake.channel.queue, "a-queue");
		sits_channel_close(ch);
		munmap(fake.arena, fake.channel.arena_bytes);
		fake.arena = NULL;
	}
}

static void refusals_of_a_channel_have_words(void **state)
{
	static const struct {
		int err;
		const char *words;
	} cases[] = {
		{ -ENOENT, "no daemon serves" }, { -EACCES, "may not open" }, { -EBUSY, "max_clients" },
		{ -ENOTTY, "no queues" }, { -ESHUTDOWN, "shutdown" }, { -ENOMEM, "Cannot allocate memory" },
	};
	struct sits_channel *ch;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		logged[0] = '\0';
		fail_next(SITS_IOC_CHANNEL_OPEN, cases[i].err, 1);
		assert_int_equal(sits_channel_open(ctx, "a-queue", 0, &ch), cases[i].err);
		assert_non_null(strstr(logged, cases[i].words));
	}
	assert_int_equal(sits_channel_open(ctx, "a-queue", (64 << 20) + 1, &ch), -EINVAL);
}

static void submits_lie_in_the_arena(void **state)
{
	static const struct {
		uint64_t ns;
		uint32_t ms;
	} times[] = {
		{ 0, 0 }, { 1, 1 }, { MS - 1, 1 }, { MS, 1 }, { MS + 1, 2 }, { UINT32_MAX * MS, UINT32_MAX },
		{ UINT32_MAX * MS + 1, 0 }, { UINT64_MAX, 0 },
	};
	struct sits_channel *ch = make_channel(0);
	uint64_t req;

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		fake.next_req = 100 + i;
		assert_int_equal(sits_channel_submit(ch, "request", 7, times[i].ns, &req), 0);
		assert_int_equal(req, 100 + i);
		assert_int_equal(fake.submit.len, 7);
		assert_int_equal(fake.submit.timeout_ms, times[i].ms);
		assert_int_equal(fake.submit.off_req % 8, 0);
		assert_true(fake.submit.off + 7 <= fake.channel.arena_bytes);
		assert_true(fake.submit.off >= fake.submit.off_req + 8);
		assert_memory_equal(fake.arena + fake.submit.off, "request", 7);
	}
	fail_next(SITS_IOC_SUBMIT, -EINTR, 2);
	assert_int_equal(sits_channel_submit(ch, "again", 5, 0, &req), 0);
	sits_channel_close(ch);
	assert_int_equal(fcntl(fake.last_fd, F_GETFD), -1);
}

static void refused_requests_end(void **state)
{
	static const int passed_on[] = { -ENOBUFS, -EPIPE, -EMSGSIZE, -EINVAL, -ENOMEM };
	struct sits_channel *ch = make_channel(0);
	struct sits_chunk chunk;
	uint64_t req[100];
	int nr = 0, ret;

	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++) {
		fail_next(SITS_IOC_SUBMIT, passed_on[i], 1);
		assert_int_equal(sits_channel_submit(ch, "x", 1, 0, &req[0]), passed_on[i]);
	}
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 0);
	fail_next(SITS_IOC_SUBMIT, -EBUSY, 1000);
	while (nr < 100 && !(ret = sits_channel_submit(ch, "x", 1, 0, &req[nr])))
		nr++;
	assert_int_equal(ret, -ENOBUFS);
	assert_in_range(nr, 8, 64);
	assert_int_equal(sits_channel_cancel(ch, req[0]), 0);
	for (int i = 0; i < nr; i++) {
		assert_int_equal(sits_channel_recv(ch, &chunk, -1), 1);
		assert_int_equal(chunk.req, req[i]);
		assert_int_equal(chunk.status, -EBUSY);
		assert_int_equal(chunk.last, 1);
		assert_int_equal(chunk.len, 0);
		for (int j = 0; j < i; j++)
			assert_true(req[j] != req[i]);
	}
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 0);
	assert_int_equal(sits_channel_cancel(ch, req[0]), -ENOENT);
	fail_next(SITS_IOC_SUBMIT, -ESHUTDOWN, 1);
	assert_int_equal(sits_channel_submit(ch, "x", 1, 0, &req[0]), 0);
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 1);
	assert_int_equal(chunk.status, -ESHUTDOWN);
	sits_channel_close(ch);
}

static void give(uint64_t req, const char *text, uint32_t flags, int status)
{
	fake.hdr[fake.nr_chunks] = (struct sits_chunk_hdr){ .req = req, .len = (uint32_t)strlen(text), .flags = flags,
							    .status = status };
	fake.chunk[fake.nr_chunks++] = text;
}

static void expect(struct sits_channel *ch, uint64_t req, const char *text, uint32_t last, int status)
{
	struct sits_chunk chunk;

	assert_int_equal(sits_channel_recv(ch, &chunk, 1000), 1);
	assert_int_equal(chunk.req, req);
	assert_int_equal(chunk.len, strlen(text));
	assert_memory_equal(chunk.data, text, chunk.len);
	assert_int_equal(chunk.last, last);
	assert_int_equal(chunk.status, status);
}

static void chunks_come_whole(void **state)
{
	struct sits_channel *ch = make_channel(0);
	struct sits_chunk chunk;

	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 0);
	assert_int_equal(fake.recv.flags, SITS_RECV_NONBLOCK);
	assert_int_equal(fake.recv.reserved, 0);
	assert_true(fake.recv.off % 8 == 0 && fake.recv.off + fake.recv.len <= fake.channel.arena_bytes);
	give(1, "one", 0, 0);
	give(2, "", 0, 0);
	give(1, "end", SITS_CHUNK_F_LAST, -EIO);
	expect(ch, 1, "one", 0, 0);
	expect(ch, 2, "", 0, 0);
	expect(ch, 1, "end", 1, -EIO);
	give(3, "pieces ", SITS_CHUNK_F_MORE, 0);
	give(3, "of ", SITS_CHUNK_F_MORE, 0);
	give(3, "one", 0, 0);
	give(3, "", SITS_CHUNK_F_LAST, 0);
	expect(ch, 3, "pieces of one", 0, 0);
	expect(ch, 3, "", 1, 0);
	give(4, "kept over ", SITS_CHUNK_F_MORE, 0);
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), 0);
	give(4, "a timeout", SITS_CHUNK_F_LAST, -ETIMEDOUT);
	expect(ch, 4, "kept over a timeout", 1, -ETIMEDOUT);
	give(5, "of one", SITS_CHUNK_F_MORE, 0);
	give(6, "and another", 0, 0);
	assert_int_equal(sits_channel_recv(ch, &chunk, 0), -EPROTO);
	sits_channel_close(ch);
}

static void end_of_the_daemon_stays(void **state)
{
	struct sits_channel *ch = make_channel(0);
	struct sits_chunk chunk;
	uint64_t req;

	fail_next(SITS_IOC_SUBMIT, -EBUSY, 1);
	assert_int_equal(sits_channel_submit(ch, "x", 1, 0, &req), 0);
	give(7, "", SITS_CHUNK_F_LAST, -EPIPE);
	assert_int_equal(sits_channel_recv(ch, &chunk, -1), 1);	/* those that were refused have their ends too */
	assert_int_equal(chunk.req, req);
	expect(ch, 7, "", 1, -EPIPE);
	fail_next(SITS_IOC_RECV, -EPIPE, 1000);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sits_channel_recv(ch, &chunk, -1), -EPIPE);
	fake.times = 0;
	assert_int_equal(sits_channel_cancel(ch, 9), 0);
	assert_int_equal(fake.cancel.req, 9);
	fail_next(SITS_IOC_CANCEL, -ENOENT, 1);
	assert_int_equal(sits_channel_cancel(ch, 9), -ENOENT);
	assert_int_equal(sits_channel_cancel(ch, 0), -ENOENT);
	sits_channel_close(ch);
}

#define TEST(name_) cmocka_unit_test_setup_teardown(name_, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(queue_is_made_as_asked),
		TEST(refusals_of_a_queue_have_words),
		TEST(events_are_handed_out),
		TEST(commits_say_what_they_were_given),
		TEST(counters_are_the_modules),
		TEST(arenas_are_whole_pages),
		TEST(refusals_of_a_channel_have_words),
		TEST(submits_lie_in_the_arena),
		TEST(refused_requests_end),
		TEST(chunks_come_whole),
		TEST(end_of_the_daemon_stays),
	};

	sits_device_calls.open = fake_open;
	sits_device_calls.ioctl = fake_ioctl;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
