// SPDX-License-Identifier: MIT
/*
 * queue_abi_test.c - each ioctl and each command for queues and channels: valid, then with one field wrong at a time, as
 * an ioctl, by io_uring, by its worker and by its polling thread.
 */
#include <stddef.h>

#include "queue_common.h"

struct bad {
	const char *what;
	size_t off, len;
	uint64_t value;
	const char *text;	/* in place of value */
	int err;
};

#define BAD(type, field, val, err) { #field " = " #val, offsetof(struct type, field), \
	sizeof(((struct type *)0)->field), (uint64_t)(val), NULL, err }
#define BAD_TEXT(type, field, what, str, err) { #field " " what, offsetof(struct type, field), \
	sizeof(((struct type *)0)->field), 0, str, err }

static void apply(void *arg, const struct bad *b)
{
	char *at = (char *)arg + b->off;

	if (b->text) {
		memset(at, 0, b->len);
		memcpy(at, b->text, strnlen(b->text, b->len));
	} else {
		memcpy(at, &b->value, b->len);
	}
}

/* A page before one that can't be touched. */
static char *edge;
static int q;
static struct chan c;
static struct got got;
static uint64_t id, req;

#define NAME_32 "0123456789012345678901234567890a"	/* no NUL within the field */

/* -------------------------------------------------------- structs that grow */

static const struct bad bad_create[] = {
	BAD(sits_queue_create, flags, 1, -EINVAL),
	BAD(sits_queue_create, flags, 1u << 31, -EINVAL),
	BAD(sits_queue_create, depth, 0, -EINVAL),
	BAD(sits_queue_create, depth, (1 << 20) + 1, -EINVAL),
	BAD(sits_queue_create, depth, UINT32_MAX, -EINVAL),
	BAD(sits_queue_create, depth, 3, -EINVAL),	/* less than per_client */
	BAD(sits_queue_create, per_client, 0, -EINVAL),
	BAD(sits_queue_create, per_client, 17, -EINVAL),
	BAD(sits_queue_create, max_clients, 0, -EINVAL),
	BAD(sits_queue_create, max_clients, 65537, -EINVAL),
	BAD(sits_queue_create, mode, 01000, -EINVAL),
	BAD(sits_queue_create, mode, UINT32_MAX, -EINVAL),
	BAD(sits_queue_create, chunk_backlog, 0, -EINVAL),
	BAD(sits_queue_create, fd_flags, O_NONBLOCK, -EINVAL),
	BAD(sits_queue_create, fd_flags, 1, -EINVAL),
	BAD(sits_queue_create, reserved, 1, -EINVAL),
	BAD_TEXT(sits_queue_create, name, "empty", "", -EINVAL),
	BAD_TEXT(sits_queue_create, name, "with a dot first", ".q", -EINVAL),
	BAD_TEXT(sits_queue_create, name, "with a slash", "a/b", -EINVAL),
	BAD_TEXT(sits_queue_create, name, "with a blank", "a b", -EINVAL),
	BAD_TEXT(sits_queue_create, name, "with a byte beyond ASCII", "\xc3\xa4", -EINVAL),
	BAD_TEXT(sits_queue_create, name, "not terminated", NAME_32, -EINVAL),
	BAD_TEXT(sits_queue_create, name, "in use", "q", -EADDRINUSE),
	{ 0 }
};

static const struct bad bad_open[] = {
	BAD(sits_channel_create, flags, 1, -EINVAL),
	BAD(sits_channel_create, arena_bytes, 0, -EINVAL),
	BAD(sits_channel_create, arena_bytes, 1, -EINVAL),
	BAD(sits_channel_create, arena_bytes, PAGE + 8, -EINVAL),
	BAD(sits_channel_create, arena_bytes, (64ull << 20) + PAGE, -EINVAL),
	BAD(sits_channel_create, arena_bytes, 1ull << 63, -EINVAL),
	BAD(sits_channel_create, fd_flags, O_NONBLOCK, -EINVAL),
	BAD_TEXT(sits_channel_create, queue, "empty", "", -EINVAL),
	BAD_TEXT(sits_channel_create, queue, "with a dot first", "..", -EINVAL),
	BAD_TEXT(sits_channel_create, queue, "not terminated", NAME_32, -EINVAL),
	BAD_TEXT(sits_channel_create, queue, "of no queue", "none", -ENOENT),
	{ 0 }
};

static const struct bad bad_facts[] = {
	BAD(sits_queue_facts, flags, 1, -EINVAL),
	{ 0 }
};

static void fill_create(void *arg)
{
	struct sits_queue_create *a = arg;

	*a = (struct sits_queue_create){
		.depth = 16, .per_client = 8, .max_clients = 4, .mode = 0600, .chunk_backlog = 4096,
		.fd_flags = O_CLOEXEC, .name = "other_.-Z9",
	};
}

static void fill_open(void *arg)
{
	struct sits_channel_create *a = arg;

	*a = (struct sits_channel_create){ .arena_bytes = PAGE, .fd_flags = O_CLOEXEC, .queue = "q" };
}

static void fill_facts(void *arg)
{
	*(struct sits_queue_facts *)arg = (struct sits_queue_facts){ 0 };
}

static const struct ioc {
	const char *name;
	unsigned long cmd;
	size_t len, fd_off;	/* where the descriptor comes; 0: nowhere */
	void (*fill)(void *arg);
	const struct bad *bad;
} iocs[] = {
	{ "QUEUE_CREATE", SITS_IOC_QUEUE_CREATE, sizeof(struct sits_queue_create), offsetof(struct sits_queue_create, fd),
	  fill_create, bad_create },
	{ "CHANNEL_OPEN", SITS_IOC_CHANNEL_OPEN, sizeof(struct sits_channel_create),
	  offsetof(struct sits_channel_create, fd), fill_open, bad_open },
	{ "QUEUE_INFO", SITS_IOC_QUEUE_INFO, sizeof(struct sits_queue_facts), 0, fill_facts, bad_facts },
};

static int call(const struct ioc *ioc, size_t size, size_t room, const struct bad *b, char poke)
{
	char *arg = edge - room;
	uint32_t usize = size;
	int ret, fd;

	memset(edge - PAGE, 0, PAGE);
	ioc->fill(arg);
	if (poke)
		arg[room - 1] = poke;
	memcpy(arg, &usize, 4);
	if (b)
		apply(arg, b);
	ret = xioctl(ioc->fd_off ? dev : q, ioc->cmd, arg);
	if (!ret && ioc->fd_off) {
		memcpy(&fd, arg + ioc->fd_off, sizeof(fd));
		check_int(fcntl(fd, F_GETFD), FD_CLOEXEC, "%s: its descriptor", ioc->name);
		close(fd);
	}
	return ret;
}

static void test_ioc(const struct ioc *ioc)
{
	struct ioc other = *ioc;
	size_t len = ioc->len;

	check_int(call(ioc, len, len, NULL, 0), 0, "%s: valid", ioc->name);
	check_int(call(ioc, len + 8, len + 8, NULL, 0), 0, "%s: longer, and zero there", ioc->name);
	check_int(call(ioc, len + 8, len + 8, NULL, 1), -E2BIG, "%s: longer, and not zero there", ioc->name);
	other.cmd ^= 8u << _IOC_SIZESHIFT;
	check_int(call(&other, len, len, NULL, 0), 0, "%s: the size bits of its number do not count", ioc->name);
	for (uint32_t size = 0; size < len; size += size < 8 ? 1 : 8)
		if (call(ioc, size, len, NULL, 0) != -EINVAL)
			check(false, "%s: size = %u", ioc->name, size);
	check_int(call(ioc, len - 1, len, NULL, 0), -EINVAL, "%s: size is one short", ioc->name);
	check_int(call(ioc, UINT32_MAX, len, NULL, 0), -E2BIG, "%s: size = UINT32_MAX", ioc->name);
	check_int(xioctl(ioc->fd_off ? dev : q, ioc->cmd, NULL), -EFAULT, "%s: NULL", ioc->name);
	check_int(xioctl(ioc->fd_off ? dev : q, ioc->cmd, edge - 8), -EINVAL, "%s: zeros", ioc->name);
	for (const struct bad *b = ioc->bad; b->what; b++)
		check_int(call(ioc, len, len, b, 0), b->err, "%s: %s", ioc->name, b->what);
}

/* ------------------------------------------------------------------- commands */

static const struct bad bad_fetch[] = {
	BAD(sits_fetch, addr, 0, -EFAULT),
	BAD(sits_fetch, addr, 0xffff888000000000ull, -EFAULT),
	BAD(sits_fetch, len, 0, -EINVAL),
	BAD(sits_fetch, len, sizeof(struct sits_event) - 1, -EINVAL),
	BAD(sits_fetch, len, sizeof(struct sits_event), -EMSGSIZE),
	BAD(sits_fetch, flags, 2, -EINVAL),
	BAD(sits_fetch, flags, 1u << 31, -EINVAL),
	{ 0 }
};

static const struct bad bad_commit[] = {
	BAD(sits_commit, addr, 0, -EFAULT),
	BAD(sits_commit, addr, 0xffff888000000000ull, -EFAULT),
	BAD(sits_commit, reserved, 1, -EINVAL),
	{ 0 }
};

static const struct bad bad_desc[] = {
	BAD(sits_commit_desc, size, 0, -EINVAL),
	BAD(sits_commit_desc, size, 31, -EINVAL),
	BAD(sits_commit_desc, size, UINT32_MAX, -E2BIG),
	BAD(sits_commit_desc, flags, 2, -EINVAL),
	BAD(sits_commit_desc, flags, 1u << 31, -EINVAL),
	BAD(sits_commit_desc, req, 0, -ENOENT),
	BAD(sits_commit_desc, req, UINT64_MAX, -ENOENT),
	BAD(sits_commit_desc, req, 1, -ENOENT),
	BAD(sits_commit_desc, addr, 0, -EFAULT),
	BAD(sits_commit_desc, addr, 0xffff888000000000ull, -EFAULT),
	BAD(sits_commit_desc, len, UINT32_MAX, -ENOBUFS),
	BAD(sits_commit_desc, status, -1, -EINVAL),	/* not the last */
	BAD(sits_commit_desc, status, 1, -EINVAL),
	{ 0 }
};

static const struct bad bad_submit[] = {
	BAD(sits_submit, off, ARENA_BYTES, -EINVAL),
	BAD(sits_submit, off, ARENA_BYTES - 7, -EINVAL),
	BAD(sits_submit, off, UINT32_MAX, -EINVAL),
	BAD(sits_submit, len, 0, -EINVAL),
	BAD(sits_submit, len, ARENA_BYTES + 1, -EINVAL),
	BAD(sits_submit, len, SITS_REQUEST_BYTES_MAX, -EINVAL),
	BAD(sits_submit, len, SITS_REQUEST_BYTES_MAX + 1, -EMSGSIZE),
	BAD(sits_submit, len, UINT32_MAX, -EMSGSIZE),
	BAD(sits_submit, off_req, 4, -EINVAL),
	BAD(sits_submit, off_req, ARENA_BYTES, -EINVAL),
	BAD(sits_submit, off_req, ARENA_BYTES - 4, -EINVAL),
	BAD(sits_submit, off_req, UINT32_MAX - 7, -EINVAL),
	{ 0 }
};

static const struct bad bad_recv[] = {
	BAD(sits_recv, off, ARENA_BYTES, -EINVAL),
	BAD(sits_recv, off, ARENA_BYTES - 8, -EINVAL),
	BAD(sits_recv, off, UINT32_MAX, -EINVAL),
	BAD(sits_recv, len, 0, -EINVAL),
	BAD(sits_recv, len, sizeof(struct sits_chunk_hdr), -EINVAL),
	BAD(sits_recv, len, ARENA_BYTES + 1, -EINVAL),
	BAD(sits_recv, len, UINT32_MAX, -EINVAL),
	BAD(sits_recv, flags, 2, -EINVAL),
	BAD(sits_recv, reserved, 1, -EINVAL),
	{ 0 }
};

static const struct bad bad_cancel[] = {
	BAD(sits_cancel, req, 0, -ENOENT),
	BAD(sits_cancel, req, UINT64_MAX, -ENOENT),
	BAD(sits_cancel, req, 1, -ENOENT),
	BAD(sits_cancel, reserved, 1, -EINVAL),
	{ 0 }
};

static void test_bad(enum way way, const char *name, int fd, uint32_t op, const void *good, const struct bad *bad)
{
	for (const struct bad *b = bad; b->what; b++) {
		char payload[16];

		memcpy(payload, good, 16);
		apply(payload, b);
		check_int(command(way, fd, op, payload), b->err, "%s: %s: %s", way_names[way], name, b->what);
	}
}

static void test_commands(enum way way)
{
	struct sits_submit s = { .off = 0, .len = 8, .off_req = REQ_OFF };
	struct sits_fetch f = { .addr = (uintptr_t)&got, .len = sizeof(got) };
	struct sits_commit_desc d = { .size = sizeof(d), .addr = (uintptr_t)"chunk", .len = 5 };
	struct sits_commit m = { .addr = (uintptr_t)&d };
	struct sits_recv r = { .off = RECV_OFF, .len = 4096 };
	struct sits_cancel x = { 0 };
	const char *w = way_names[way];

	test_bad(way, "SUBMIT", c.fd, SITS_IOC_SUBMIT, &s, bad_submit);
	check_int(queue_facts(q).nr_waiting, 0, "%s: none of these was taken", w);
	s.off = ARENA_BYTES - 8;
	check_int(command(way, c.fd, SITS_IOC_SUBMIT, &s), 0, "%s: SUBMIT of the arena's last bytes", w);
	memcpy(&req, c.arena + REQ_OFF, 8);

	test_bad(way, "FETCH", q, SITS_IOC_FETCH, &f, bad_fetch);
	if (way != BY_IOCTL) {
		f.flags = SITS_FETCH_NONBLOCK;
		check_int(command(way, q, SITS_IOC_FETCH, &f), -EINVAL, "%s: FETCH: NONBLOCK is for the ioctl", w);
		f.flags = 0;
	}
	check_int(queue_facts(q).nr_waiting, 1, "%s: the request is still there", w);
	check_int(command(way, q, SITS_IOC_FETCH, &f), sizeof(got.ev) + 8, "%s: FETCH", w);
	id = got.ev.req;

	test_bad(way, "COMMIT", q, SITS_IOC_COMMIT, &m, bad_commit);
	d.req = id;
	for (const struct bad *b = bad_desc; b->what; b++) {
		struct sits_commit_desc wrong = d;
		struct sits_commit arg = { .addr = (uintptr_t)&wrong };

		apply(&wrong, b);
		check_int(command(way, q, SITS_IOC_COMMIT, &arg), b->err, "%s: COMMIT: descriptor's %s", w, b->what);
	}
	/* Its last byte is the last one that can be read. */
	memcpy(edge - sizeof(d), &d, sizeof(d));
	check_int(command(way, q, SITS_IOC_COMMIT, &(struct sits_commit){ .addr = (uintptr_t)edge - sizeof(d) }), 0,
		  "%s: COMMIT", w);
	memcpy(edge - sizeof(d) + 8, &d, sizeof(d) - 8);
	check_int(command(way, q, SITS_IOC_COMMIT, &(struct sits_commit){ .addr = (uintptr_t)edge - sizeof(d) + 8 }),
		  -EFAULT, "%s: COMMIT: a descriptor that ends beyond", w);

	test_bad(way, "RECV", c.fd, SITS_IOC_RECV, &r, bad_recv);
	if (way != BY_IOCTL) {
		r.flags = SITS_RECV_NONBLOCK;
		check_int(command(way, c.fd, SITS_IOC_RECV, &r), -EINVAL, "%s: RECV: NONBLOCK is for the ioctl", w);
		r.flags = 0;
	}
	r.off = ARENA_BYTES - sizeof(struct sits_chunk_hdr) - 1;
	r.len = sizeof(struct sits_chunk_hdr) + 1;
	check_int(command(way, c.fd, SITS_IOC_RECV, &r), sizeof(struct sits_chunk_hdr) + 1,
		  "%s: RECV into the arena's last bytes, with the least room", w);
	check(chunk_hdr(&c, r.off).flags == SITS_CHUNK_F_MORE && c.arena[ARENA_BYTES - 1] == 'c', "%s: one byte of the chunk", w);
	check_int(recv_by(way, &c, 4096), sizeof(struct sits_chunk_hdr) + 4, "%s: the rest of it", w);

	test_bad(way, "CANCEL", c.fd, SITS_IOC_CANCEL, &x, bad_cancel);
	x.req = req + 1;
	check_int(command(way, c.fd, SITS_IOC_CANCEL, &x), -ENOENT, "%s: CANCEL: another number", w);
	x.req = req;
	check_int(command(way, c.fd, SITS_IOC_CANCEL, &x), 0, "%s: CANCEL", w);
	check_int(command(way, q, SITS_IOC_FETCH, &f), sizeof(got.ev), "%s: FETCH of it", w);
	check_int(commit_by(way, q, id, NULL, 0, -4095, true), 0, "%s: COMMIT with the last error number", w);
	check(end_is(&c, req, -4095), "%s: which arrives", w);
	check_int(commit_by(way, q, id, NULL, 0, -4096, true), -EINVAL, "%s: COMMIT with one beyond", w);
	check_int(commit_by(way, q, id, NULL, 0, 0, true), -ENOENT, "%s: COMMIT after the end", w);
}

/* Numbers that the file does not know. */
static void test_unknown(enum way way)
{
	static const uint32_t on_neither[] = {
		0, 1, 2, _IOWR(SITS_IOC, 0x3f, char[16]), _IOWR(SITS_IOC, 0x63, char[16]), _IOWR(SITS_IOC, 0x73, char[16]),
		_IOWR('x', 0x60, struct sits_fetch), _IOR(SITS_IOC, 0x60, struct sits_fetch),
		_IOWR(SITS_IOC, 0x60, char[24]), SITS_IOC_GET_INFO, SITS_IOC_QUEUE_CREATE, UINT32_MAX,
	};
	static const uint32_t of_channel[] = { SITS_IOC_SUBMIT, SITS_IOC_RECV, SITS_IOC_CANCEL };
	static const uint32_t of_queue[] = { SITS_IOC_FETCH, SITS_IOC_COMMIT, SITS_IOC_CLOSE_INTAKE };
	char payload[24] = { 0 };

	for (size_t i = 0; i < sizeof(on_neither) / sizeof(on_neither[0]); i++) {
		if (way == BY_IOCTL && on_neither[i] <= 2)
			continue;	/* FIBMAP and FIGETBSZ are answered before a file is asked */
		check_int(command(way, q, on_neither[i], payload), -ENOTTY, "%s: %#x on a queue", way_names[way], on_neither[i]);
		check_int(command(way, c.fd, on_neither[i], payload), -ENOTTY, "%s: %#x on a channel", way_names[way], on_neither[i]);
	}
	for (int i = 0; i < 3; i++) {
		check_int(command(way, q, of_channel[i], payload), -ENOTTY, "%s: a channel's %#x on a queue", way_names[way], of_channel[i]);
		check_int(command(way, c.fd, of_queue[i], payload), -ENOTTY, "%s: a queue's %#x on a channel", way_names[way], of_queue[i]);
	}
	if (way == BY_IOCTL)
		return;
	check_int(command(way, q, SITS_IOC_QUEUE_INFO, payload), -ENOTTY, "%s: QUEUE_INFO is no command", way_names[way]);
	payload[0] = 1;
	check_int(command(way, q, SITS_IOC_CLOSE_INTAKE, payload), -EINVAL, "%s: CLOSE_INTAKE with a payload", way_names[way]);
}

static void test_files(void)
{
	static const struct { const char *name; const int *fd; } files[] = { { "queue", &q }, { "channel", &c.fd } };
	char byte = 0;

	for (int i = 0; i < 2; i++) {
		int fd = *files[i].fd;

		check_int(read(fd, &byte, 1) < 0 ? -errno : 0, -EINVAL, "read of a %s", files[i].name);
		check_int(write(fd, &byte, 1) < 0 ? -errno : 0, -EINVAL, "write of a %s", files[i].name);
		check(fcntl(fd, F_GETFD) == FD_CLOEXEC, "a %s closes on exec, as asked for", files[i].name);
	}
	for (size_t i = 0; i < 3; i++)
		check_int(xioctl(dev, (const unsigned long[]){ SITS_IOC_FETCH, SITS_IOC_SUBMIT, SITS_IOC_QUEUE_INFO }[i], &byte),
			  -ENOTTY, "a queue's or a channel's ioctl on the device");
	check_int(xioctl(q, SITS_IOC_FETCH, NULL), -EFAULT, "FETCH: NULL");
	check_int(xioctl(q, SITS_IOC_COMMIT, NULL), -EFAULT, "COMMIT: NULL");
	check_int(xioctl(c.fd, SITS_IOC_SUBMIT, NULL), -EFAULT, "SUBMIT: NULL");
	check_int(xioctl(c.fd, SITS_IOC_RECV, edge - 8), -EFAULT, "RECV: its end is not mapped");
}

int main(void)
{
	int fds;

	open_dev();
	ways_init();
	edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(edge != MAP_FAILED && !munmap(edge + PAGE, PAGE), "mmap");
	edge += PAGE;
	fds = nr_fds();
	q = queue_create(OPTS());
	c = channel_open("q");
	for (size_t i = 0; i < sizeof(iocs) / sizeof(iocs[0]); i++)
		test_ioc(&iocs[i]);
	for (int way = 0; way < NR_WAYS; way++) {
		test_commands(way);
		test_unknown(way);
	}
	test_files();
	channel_close(&c);
	close(q);
	check(no_queue_left(), "nothing is left over");
	check_int(nr_fds(), fds, "no descriptor is left over");
	ways_fini();
	return done();
}
