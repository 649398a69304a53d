// SPDX-License-Identifier: MIT
/*
 * fault_queue_test.c - each call that may fail on the way of a request does, one after another: the queue and the channel made, a
 * request from SUBMIT to the end of its answer, by ioctl and by io_uring. What failed has not happened: the next one finds
 * the queue as it was.
 */
#include "fault_common.h"
#include "queue_common.h"

static int q = -1, made = -1;
static struct chan c;
static uint64_t req;
static struct got got;
static enum way way;
static char text[3000];

static int call_create(void)
{
	return queue_create(OPTS());
}

static void close_it(int ret)
{
	if (ret >= 0)
		close(ret);
}

static void make_queue(void)
{
	q = queue_create(OPTS());
	need(q >= 0, "QUEUE_CREATE");
}

static void close_queue(int ret)
{
	close_it(ret);
	close(q);
}

static int call_open(void)
{
	return channel_fd("q", ARENA_BYTES);
}

static void make_channel(void)
{
	make_queue();
	made = channel_fd("q", ARENA_BYTES);
}

static int call_map(void)
{
	c.arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
	return c.arena == MAP_FAILED ? -errno : 0;
}

static void unmap_and_close(int ret)
{
	if (ret >= 0)
		munmap(c.arena, ARENA_BYTES);
	close(made);
	close(q);
}

static void make_both(void)
{
	make_queue();
	c = channel_open("q");
}

static void close_both(int ret)
{
	channel_close(&c);
	close(q);
}

static int call_submit(void)
{
	return submit_by(way, &c, text, sizeof(text), 0, &req);
}

/* Fetched if and only if it was accepted. */
static int wrong;

static void undo_submit(int ret)
{
	int n = fetch(q, &got);

	wrong += ret >= 0 ? n != (int)(sizeof(got.ev) + sizeof(text)) || memcmp(got.bytes, text, sizeof(text)) : n != -EAGAIN;
	close_both(ret);
}

static void make_request(void)
{
	make_both();
	req = submit_text(&c, "question");
}

static int call_fetch(void)
{
	int ret = fetch_by(way, q, &got, sizeof(got));

	return ret < 0 ? ret : 0;
}

/* What FETCH failed to hand over is there for the next. */
static void undo_fetch(int ret)
{
	int n = ret < 0 ? fetch(q, &got) : (int)(sizeof(got.ev) + got.ev.len);

	wrong += n != (int)(sizeof(got.ev) + 8) || memcmp(got.bytes, "question", 8);
	close_both(ret);
}

static void make_fetched(void)
{
	make_request();
	need(fetch_kind(q, &got, SITS_EV_REQUEST), "FETCH");
}

static int call_commit(void)
{
	return commit_by(way, q, got.ev.req, text, sizeof(text), 0, true);
}

/* The answer's bytes come once: with the one that worked. */
static void undo_commit(int ret)
{
	struct sits_chunk_hdr hdr;
	int n;

	if (ret < 0) {
		wrong += recv_now(&c, 8192) != -EAGAIN;
		wrong += commit_by(BY_IOCTL, q, got.ev.req, text, sizeof(text), 0, true) != 0;
	}
	n = recv_now(&c, 8192);
	hdr = chunk_hdr(&c, RECV_OFF);
	wrong += n != (int)(sizeof(hdr) + sizeof(text)) || hdr.req != req || !(hdr.flags & SITS_CHUNK_F_LAST);
	wrong += recv_now(&c, 8192) != -EAGAIN;
	close_both(ret);
}

static void make_answered(void)
{
	make_fetched();
	need(!commit_by(BY_IOCTL, q, got.ev.req, "answer", 6, 0, true), "COMMIT");
}

static int call_recv(void)
{
	int ret = recv_by(way, &c, 8192);

	return ret < 0 ? ret : 0;
}

static void undo_recv(int ret)
{
	if (ret < 0) {
		wrong += recv_now(&c, 8192) != (int)(sizeof(struct sits_chunk_hdr) + 6);
		wrong += memcmp(c.arena + RECV_OFF + sizeof(struct sits_chunk_hdr), "answer", 6) != 0;
	}
	close_both(ret);
}

static int call_cancel(void)
{
	struct sits_cancel arg = { .req = req };

	return command(way, c.fd, SITS_IOC_CANCEL, &arg);
}

static int call_info(void)
{
	struct sits_queue_facts arg = { .size = sizeof(arg) };

	return xioctl(q, SITS_IOC_QUEUE_INFO, &arg);
}

static const struct operation makers[] = {
	{ .name = "QUEUE_CREATE", .call = call_create, .undo = close_it },
	{ .name = "CHANNEL_OPEN", .prepare = make_queue, .call = call_open, .undo = close_queue },
};

static const struct operation others[] = {
	{ .name = "mmap of an arena", .prepare = make_channel, .call = call_map, .undo = unmap_and_close },
	{ .name = "QUEUE_INFO", .prepare = make_queue, .call = call_info, .undo = close_queue },
};

static const struct operation commands[] = {
	{ .name = "SUBMIT", .prepare = make_both, .call = call_submit, .undo = undo_submit },
	{ .name = "FETCH", .prepare = make_request, .call = call_fetch, .undo = undo_fetch },
	{ .name = "COMMIT", .prepare = make_fetched, .call = call_commit, .undo = undo_commit },
	{ .name = "RECV", .prepare = make_answered, .call = call_recv, .undo = undo_recv },
	{ .name = "CANCEL", .prepare = make_request, .call = call_cancel, .undo = close_both },
};

int main(void)
{
	open_dev();
	fault_open();
	ways_init();
	for (unsigned int i = 0; i < sizeof(text); i++)
		text[i] = 'a' + i % 23;
	for (unsigned int i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
		fault_sweep_both(&makers[i]);
	for (unsigned int i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		fault_sweep(&others[i], SITS_TEST_FAIL_OURS);
	for (way = BY_IOCTL; way <= BY_WORKER; way++) {
		for (unsigned int i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
			char name[64];
			struct operation op = commands[i];

			snprintf(name, sizeof(name), "%s by %s", op.name, way_names[way]);
			op.name = name;
			wrong = 0;
			/* These take what is there, and copy no more than the command itself. */
			op.nothing = way != BY_IOCTL && (op.call == call_recv || op.call == call_cancel);
			fault_sweep(&op, SITS_TEST_FAIL_OURS);
			check_int(wrong, 0, "%s: what failed has not happened, what worked has, once", name);
			op.nothing = op.call == call_fetch || op.call == call_recv || op.call == call_cancel;
			if (way == BY_IOCTL)
				fault_sweep(&op, SITS_TEST_FAIL_MEMORY);
		}
	}
	ways_fini();
	return done();
}
