// SPDX-License-Identifier: MIT
/*
 * request_kill_test.c - the request path under load, while clients and the daemon die in every way, on each provider.
 *
 * Eight clients ask a daemon for all kinds of answers, without pause. At MOMENTS random moments one thing happens: a client or
 * the daemon is killed, or executes another program, or forks a child that keeps its descriptors and is killed; a client's ring
 * is closed under it; its channel is passed to another process, which closes it; a client does not read for a while; the module
 * is to be removed. Afterwards every client gets answers again. Each request that a client made has ended exactly once when its
 * channel ends, with its own bytes; the queue never holds more than its depth; in the end nothing is left of it all.
 *
 * Processes tell each other about it in shared memory. Who finds something wrong writes it there and ends.
 */
#include "tests/vm/guest/region_common.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "sits/context.h"
#include "sits/queue.h"

#define MOMENTS		200
#define CLIENTS		8
#define DEPTH		64
#define PER_CLIENT	12
#define MAX_CLIENTS	16
#define OUTSTANDING	24	/* more than PER_CLIENT, so that some are refused */
#define HELD_MAX	32
#define BACKLOG		(64u << 10)
#define PATIENCE_MS	60000	/* for what must come; the host may be busy */
#define TICK_MS		20	/* between looks at orders */

enum order { NOTHING, DO_EXEC, DO_FORK, CLOSE_RING, PASS_CHANNEL, BE_DEAF };

/* Written by its process, but @order, which is the controller's until the process takes it. */
struct who {
	int order;
	int child;		/* that DO_FORK made */
	uint64_t ends;		/* requests that were answered: progress */
	uint64_t opens;
	uint64_t made;
	uint64_t by_status[4];	/* fine, refused or too slow, cancelled or late, the daemon went */
	char wrong[200];
};

static struct shared {
	struct who client[CLIENTS];
	struct who daemon;
	uint32_t nr_clients, pending;	/* as the daemon saw last, and the most that it saw */
	uint32_t pending_max, clients_max;
	uint64_t looks;
	int finish, stop;
} *shared;

static uint32_t provider;
static char dir[] = "/tmp/sits-kill-XXXXXX";
static int pair[CLIENTS][2];	/* sockets to pass a channel by: client's end, controller's */
static int said[2];		/* a pipe by which an executed program says that it is there */
static uint64_t rng_state;

static uint64_t rng(void)	/* xorshift64, Marsaglia 2003 */
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static void nap(long us)
{
	struct timespec ts = { .tv_nsec = us * 1000 };

	nanosleep(&ts, NULL);
}

/* ------------------------------------------------------ what both sides do */

static bool on_kernel(void)
{
	return provider == SITS_PROVIDER_KERNEL;
}

static struct sits_ctx *open_ctx(void)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = provider, .run_dir = dir };
	struct sits_ctx *ctx;

	return sits_open(&o, &ctx) ? NULL : ctx;
}

__attribute__((format(printf, 2, 3), noreturn))
static void wrong(struct who *me, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(me->wrong, sizeof(me->wrong), fmt, ap);
	va_end(ap);
	_exit(1);
}

/* Descriptors of this process whose link begins with @what. */
static int find_fds(const char *what, int *fds, int room)
{
	char path[64], link[128];
	int nr = 0;
	ssize_t n;

	for (int fd = 3; fd < 200 && nr < room; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (!strncmp(link, what, strlen(what)))
			fds[nr++] = fd;
	}
	return nr;
}

/* Become another program, which says that it is there and waits to be killed. */
__attribute__((noreturn))
static void do_exec(struct who *me)
{
	char fd[16];

	fcntl(said[1], F_SETFD, 0);
	snprintf(fd, sizeof(fd), "%d", said[1]);
	execl("/proc/self/exe", "request_kill_test", "linger", fd, NULL);
	wrong(me, "exec: %s", strerror(errno));
}

__attribute__((noreturn))
static void linger(int fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (write(fd, "x", 1) != 1)
		exit(1);
	for (;;)
		pause();
}

/* A child that keeps all descriptors. */
static void do_fork(struct who *me)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	__atomic_store_n(&me->child, pid, __ATOMIC_RELEASE);
}

static enum order take_order(struct who *me)
{
	return (enum order)__atomic_exchange_n(&me->order, NOTHING, __ATOMIC_ACQ_REL);
}

/* Byte @i of chunk @n of what answers request @seq of client @who. */
static uint8_t byte_of(uint32_t who, uint32_t seq, uint32_t n, uint32_t i)
{
	return (uint8_t)(who * 37 + seq * 101 + n * 13 + i * 7 + i / 251);
}

/* What a client asks for. */
struct ask {
	char kind;		/* 'E'cho, 'N' chunks, 'H'old */
	uint8_t who;
	uint16_t count;		/* of chunks */
	uint32_t seq;
	uint32_t len;		/* of a chunk, or of what follows here */
};

/* ---------------------------------------------------------------- the daemon */

static struct held {
	uint64_t req;
} held[HELD_MAX];
static int nr_held;

static void note_bounds(struct sits_queue *q, struct who *me)
{
	struct sits_queue_stats s;

	sits_queue_get_stats(q, &s);
	if (s.pending > DEPTH || s.clients > MAX_CLIENTS)
		wrong(me, "the queue holds %u requests of %u clients", s.pending, s.clients);
	if (s.pending > shared->pending_max)
		shared->pending_max = s.pending;
	if (s.clients > shared->clients_max)
		shared->clients_max = s.clients;
	__atomic_store_n(&shared->pending, s.pending, __ATOMIC_RELAXED);
	__atomic_store_n(&shared->nr_clients, s.clients, __ATOMIC_RELEASE);
	__atomic_fetch_add(&shared->looks, 1, __ATOMIC_RELEASE);
}

static void commit(struct sits_queue *q, struct who *me, uint64_t req, const void *data, size_t len, int status, bool last)
{
	int ret = sits_queue_commit(q, req, data, len, status, last ? SITS_COMMIT_LAST : 0);

	if (ret == -ENOBUFS && last)	/* an end without bytes is always taken */
		ret = sits_queue_commit(q, req, NULL, 0, -ENOBUFS, SITS_COMMIT_LAST);
	if (ret && ret != -EPIPE && ret != -ENOENT && !(ret == -ENOBUFS && !last))
		wrong(me, "commit: %s", strerror(-ret));
}

static void stream(struct sits_queue *q, struct who *me, uint64_t req, const struct ask *a)
{
	static uint8_t buf[4096];
	int ret = 0;

	for (uint32_t n = 0; n < a->count && !ret; n++) {
		for (uint32_t i = 0; i < a->len; i++)
			buf[i] = byte_of(a->who, a->seq, n, i);
		ret = sits_queue_commit(q, req, buf, a->len, 0, 0);
	}
	commit(q, me, req, NULL, 0, ret == -ENOBUFS ? ret : 0, true);
}

static void unhold(struct sits_queue *q, struct who *me, int i)
{
	commit(q, me, held[i].req, "let go", 6, 0, true);
	held[i] = held[--nr_held];
}

static void serve(struct sits_queue *q, struct who *me, const struct sits_queue_event *ev)
{
	const struct ask *a = ev->data;

	if (ev->kind == SITS_EVENT_CANCEL) {
		for (int i = 0; i < nr_held; i++)
			if (held[i].req == ev->req)
				held[i] = held[--nr_held];
		commit(q, me, ev->req, "cancelled", 9, -ECANCELED, true);
		return;
	}
	if (ev->len < sizeof(*a))
		wrong(me, "a request of %zu bytes", ev->len);
	switch (a->kind) {
	case 'E':
		commit(q, me, ev->req, ev->data, ev->len, 0, true);
		break;
	case 'N':
		stream(q, me, ev->req, a);
		break;
	default:
		if (nr_held == HELD_MAX)
			unhold(q, me, (int)(rng() % HELD_MAX));
		held[nr_held++].req = ev->req;
	}
}

static void obey_as_daemon(struct who *me)
{
	switch (take_order(me)) {
	case DO_EXEC:
		do_exec(me);
	case DO_FORK:
		do_fork(me);
		break;
	default:
		break;
	}
}

static int daemon_main(int ready)
{
	struct sits_queue_opts o = { .size = sizeof(o), .depth = DEPTH, .per_client = PER_CLIENT, .max_clients = MAX_CLIENTS,
				     .mode = 0600, .chunk_backlog = BACKLOG, .name = "kill" };
	struct who *me = &shared->daemon;
	struct sits_ctx *ctx = open_ctx();
	struct sits_queue_event ev;
	struct sits_queue *q;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	nr_held = 0;
	ret = ctx ? sits_queue_create(ctx, &o, &q) : -ENODEV;
	if (write(ready, &ret, sizeof(ret)) != sizeof(ret) || ret)
		return 1;
	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
		ret = sits_queue_fetch(q, &ev, TICK_MS);
		if (ret < 0)
			wrong(me, "fetch: %s", strerror(-ret));
		if (ret)
			serve(q, me, &ev);
		if (nr_held && rng() % 64 == 0)
			unhold(q, me, 0);
		note_bounds(q, me);
		obey_as_daemon(me);
	}
	sits_queue_destroy(q);
	sits_close(ctx);
	return 0;
}

/* ----------------------------------------------------------------- a client */

struct asked {
	uint64_t req;
	struct ask a;
	uint32_t next;		/* chunk of a stream */
	bool cancelled, timed;
};

static struct client {
	int nr;
	struct who *me;
	struct sits_ctx *ctx;
	struct sits_channel *ch;
	struct asked out[OUTSTANDING];
	int nr_out;
	uint32_t seq;
	bool deaf;		/* does not read */
	bool was_deaf;		/* so answers may have been too much */
	uint64_t deaf_until;
} me;

static void open_again(void)
{
	int ret;

	do {
		ret = sits_channel_open(me.ctx, "kill", 128 << 10, &me.ch);
		switch (ret) {
		case 0:
			break;
		case -ENOENT:		/* it is being started, or ended */
		case -ECONNREFUSED:
		case -ECONNRESET:
		case -EPIPE:
		case -ESHUTDOWN:
		case -EBUSY:		/* those who died are not gone yet */
			nap(2000);
			break;
		default:
			wrong(me.me, "open: %s", strerror(-ret));
		}
	} while (ret);
	me.was_deaf = false;
	__atomic_fetch_add(&me.me->opens, 1, __ATOMIC_RELEASE);
}

/* The channel has ended, and with it every request. */
static void close_channel(bool all_ended)
{
	if (all_ended && me.nr_out)
		wrong(me.me, "%d requests without an end, the first is number %u, kind %c", me.nr_out, me.out[0].a.seq,
		      me.out[0].a.kind);
	sits_channel_close(me.ch);
	me.ch = NULL;
	me.nr_out = 0;
}

static void ask_something(void)
{
	static uint8_t buf[sizeof(struct ask) + 3000];
	struct asked *o = &me.out[me.nr_out];
	unsigned int die = (unsigned int)(rng() % 16);
	struct ask a = { .kind = die < 8 ? 'E' : die < 14 ? 'N' : 'H', .who = (uint8_t)me.nr, .seq = ++me.seq };
	size_t len = sizeof(a);
	int ret;

	if (a.kind == 'E') {
		a.len = (uint32_t)(rng() % (rng() % 8 ? 200 : 3000));
		for (uint32_t i = 0; i < a.len; i++)
			buf[sizeof(a) + i] = byte_of(a.who, a.seq, 0, i);
		len += a.len;
	} else if (a.kind == 'N') {
		a.count = (uint16_t)(rng() % 20);
		a.len = (uint32_t)(rng() % (rng() % 8 ? 100 : 4096));
	}
	memcpy(buf, &a, sizeof(a));
	*o = (struct asked){ .a = a, .timed = rng() % 16 == 0 };
	ret = sits_channel_submit(me.ch, buf, len, o->timed ? 1 + rng() % 3000000 : 0, &o->req);
	if (ret == -ENOBUFS || ret == -EPIPE)
		return;		/* receive first; what is there to be received will tell */
	if (ret)
		wrong(me.me, "submit: %s", strerror(-ret));
	for (int i = 0; i < me.nr_out; i++)
		if (me.out[i].req == o->req)
			wrong(me.me, "two requests have number %llu", (unsigned long long)o->req);
	me.nr_out++;
	me.me->made++;
	if (a.kind == 'H' || rng() % 32 == 0) {
		o->cancelled = rng() % 2;
		ret = o->cancelled ? sits_channel_cancel(me.ch, o->req) : 0;
		if (ret && ret != -ENOENT)
			wrong(me.me, "cancel: %s", strerror(-ret));
	}
}

static void check_echo(const struct asked *o, const struct sits_chunk *c)
{
	const uint8_t *d = c->data;

	if (c->len != sizeof(o->a) + o->a.len || memcmp(d, &o->a, sizeof(o->a)))
		wrong(me.me, "request %u got back what is not its own, %zu bytes", o->a.seq, c->len);
	for (uint32_t i = 0; i < o->a.len; i++)
		if (d[sizeof(o->a) + i] != byte_of(o->a.who, o->a.seq, 0, i))
			wrong(me.me, "byte %u of request %u came back changed", i, o->a.seq);
}

static void check_part(struct asked *o, const struct sits_chunk *c)
{
	const uint8_t *d = c->data;

	if (o->a.kind != 'N' || c->len != o->a.len || o->next >= o->a.count)
		wrong(me.me, "request %u, kind %c, got a part of %zu bytes", o->a.seq, o->a.kind, c->len);
	for (uint32_t i = 0; i < c->len; i++)
		if (d[i] != byte_of(o->a.who, o->a.seq, o->next, i))
			wrong(me.me, "byte %u of part %u of request %u is not its own", i, o->next, o->a.seq);
	o->next++;
}

static void check_end(const struct asked *o, const struct sits_chunk *c)
{
	bool may = false;
	int kind = 0;

	switch (c->status) {
	case 0:
		may = true;
		if (o->a.kind == 'E')
			check_echo(o, c);
		else if (o->a.kind == 'N' && o->next != o->a.count)
			wrong(me.me, "request %u ended after %u parts of %u", o->a.seq, o->next, o->a.count);
		break;
	case -EBUSY:
		may = !o->next;
		kind = 1;
		break;
	case -ENOBUFS:
		may = me.was_deaf || o->a.kind == 'N';	/* the daemon does not wait for who is slow */
		kind = 1;
		break;
	case -ECANCELED:
		may = o->cancelled || o->timed;
		kind = 2;
		break;
	case -ETIMEDOUT:
		may = o->timed;
		kind = 2;
		break;
	case -EPIPE:
	case -ESHUTDOWN:
		may = true;
		kind = 3;
	}
	if (!may)
		wrong(me.me, "request %u, kind %c%s%s, ended with: %s", o->a.seq, o->a.kind, o->cancelled ? ", cancelled" : "",
		      o->timed ? ", with a time limit" : "", strerror(-c->status));
	me.me->by_status[kind]++;
}

static void take(const struct sits_chunk *c)
{
	int i = 0;

	while (i < me.nr_out && me.out[i].req != c->req)
		i++;
	if (i == me.nr_out)
		wrong(me.me, "a chunk for number %llu, which was not asked or has ended", (unsigned long long)c->req);
	if (!c->last) {
		check_part(&me.out[i], c);
		return;
	}
	check_end(&me.out[i], c);
	me.out[i] = me.out[--me.nr_out];
	if (!c->status)
		__atomic_fetch_add(&me.me->ends, 1, __ATOMIC_RELEASE);
	else if (c->status == -EBUSY)
		nap(1000);	/* others have it all; a refusal is quickly had */
}

/* Return: false where the channel has ended. */
static bool receive(int timeout_ms)
{
	struct sits_chunk c;
	int ret = sits_channel_recv(me.ch, &c, timeout_ms);

	if (ret == 1)
		take(&c);
	else if (ret == -EPIPE)
		close_channel(true);
	else if (ret)
		wrong(me.me, "recv: %s", strerror(-ret));
	return ret != -EPIPE;
}

/* The ring goes under the channel, which is then of no use; its requests end with it. */
static void close_ring(void)
{
	struct sits_chunk c;
	int fds[4], nr, ret;

	nr = find_fds("anon_inode:[io_uring]", fds, 4);
	for (int i = 0; i < nr; i++)
		close(fds[i]);
	do {
		ret = sits_channel_recv(me.ch, &c, TICK_MS);
	} while (nr && ret == 1);
	if (nr && ret != -EBADF && ret != -EPIPE && ret)
		wrong(me.me, "recv without a ring: %s", strerror(-ret));
	close_channel(false);
}

/* Give the channel's descriptor to the controller as well. */
static void pass_channel(void)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)"x", 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	int fd;

	if (!find_fds(on_kernel() ? "anon_inode:[sits-channel]" : "anon_inode:[io_uring]", &fd, 1))
		wrong(me.me, "no descriptor of a channel");
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	/* A ring may not be passed since Linux 6.7: then nothing is. */
	if (sendmsg(pair[me.nr][0], &mh, MSG_NOSIGNAL) != 1) {
		if (on_kernel())
			wrong(me.me, "pass a channel: %s", strerror(errno));
		if (send(pair[me.nr][0], "-", 1, MSG_NOSIGNAL) != 1)
			wrong(me.me, "say that it is not passed: %s", strerror(errno));
	}
}

static void obey(void)
{
	switch (take_order(me.me)) {
	case DO_EXEC:
		do_exec(me.me);
	case DO_FORK:
		do_fork(me.me);
		break;
	case CLOSE_RING:
		close_ring();
		break;
	case PASS_CHANNEL:
		pass_channel();
		break;
	case BE_DEAF:
		me.deaf = me.was_deaf = true;
		me.deaf_until = now_ms() + 300;
		break;
	case NOTHING:
		break;
	}
}

static void finish(void)
{
	uint64_t until = now_ms() + PATIENCE_MS;

	for (int i = 0; i < me.nr_out; i++)
		if (me.out[i].a.kind == 'H' && !me.out[i].cancelled) {
			me.out[i].cancelled = true;
			sits_channel_cancel(me.ch, me.out[i].req);
		}
	while (me.ch && me.nr_out) {
		if (now_ms() > until)
			wrong(me.me, "%d requests never end, the first is number %u, kind %c", me.nr_out, me.out[0].a.seq,
			      me.out[0].a.kind);
		receive(TICK_MS);
	}
	if (me.ch && receive(0))
		close_channel(true);
	sits_close(me.ctx);
}

static int client_main(int nr)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	me = (struct client){ .nr = nr, .me = &shared->client[nr], .ctx = open_ctx() };
	rng_state ^= (uint64_t)getpid() * 2654435761u;
	if (!me.ctx)
		wrong(me.me, "sits_open");
	while (!__atomic_load_n(&shared->finish, __ATOMIC_ACQUIRE)) {
		if (!me.ch)
			open_again();
		/* Seldom more than is allowed. */
		if (me.nr_out < (rng() % 64 ? PER_CLIENT : OUTSTANDING) && rng() % 4)
			ask_something();
		if (me.deaf && now_ms() < me.deaf_until) {
			nap(1000);
		} else {
			me.deaf = false;
			/* Now and then let answers come in while nobody looks. */
			if (me.nr_out >= PER_CLIENT || rng() % 2)
				receive(me.nr_out ? TICK_MS : 0);
		}
		if (me.ch)
			obey();
	}
	finish();
	return 0;
}

/* --------------------------------------------------------------- the controller */

static pid_t daemon_pid, client_pid[CLIENTS];
static int counts[16];
static bool failed;

static void start_daemon(void)
{
	int ready[2], ret = -EIO;
	uint64_t until = now_ms() + PATIENCE_MS;

	shared->daemon.order = NOTHING;
	do {	/* the name is the old one's until the kernel has ended it */
		need(!pipe2(ready, O_CLOEXEC), "pipe");
		daemon_pid = fork();
		need(daemon_pid >= 0, "fork");
		if (!daemon_pid)
			_exit(daemon_main(ready[1]));
		close(ready[1]);
		need(read(ready[0], &ret, sizeof(ret)) == sizeof(ret), "the daemon's word");
		close(ready[0]);
		if (ret)
			waitpid(daemon_pid, NULL, 0);
	} while (ret == -EADDRINUSE && now_ms() < until);
	if (ret) {
		check(false, "a new daemon can not start: %s", strerror(-ret));
		failed = true;
		daemon_pid = 0;
	}
}

static void start_client(int i)
{
	shared->client[i].order = NOTHING;
	client_pid[i] = fork();
	need(client_pid[i] >= 0, "fork");
	if (!client_pid[i])
		_exit(client_main(i));
}

static void end_process(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* For what must happen soon. */
static bool wait_for(bool (*is)(void *), void *arg, const char *what)
{
	uint64_t until = now_ms() + PATIENCE_MS;

	while (!is(arg)) {
		if (now_ms() > until) {
			check(false, "%s", what);
			failed = true;
			return false;
		}
		nap(1000);
	}
	return true;
}

static bool any_wrong(void)
{
	bool is = *shared->daemon.wrong;

	if (is)
		printf("# the daemon: %s\n", shared->daemon.wrong);
	for (int i = 0; i < CLIENTS; i++)
		if (*shared->client[i].wrong) {
			printf("# client %d: %s\n", i, shared->client[i].wrong);
			is = true;
		}
	return is;
}

static bool is_obeyed(void *arg)
{
	return any_wrong() || !__atomic_load_n(&((struct who *)arg)->order, __ATOMIC_ACQUIRE);
}

static bool order(struct who *who, enum order what)
{
	__atomic_store_n(&who->order, what, __ATOMIC_RELEASE);
	return wait_for(is_obeyed, who, "a process takes its order");
}

static bool is_forked(void *arg)
{
	return any_wrong() || __atomic_load_n(&((struct who *)arg)->child, __ATOMIC_ACQUIRE);
}

static uint64_t looks_before;

/* Does the daemon see no more clients than those that live? */
static bool is_counted_out(void *arg)
{
	int *living = arg;

	return any_wrong() || (__atomic_load_n(&shared->looks, __ATOMIC_ACQUIRE) > looks_before &&
			       __atomic_load_n(&shared->nr_clients, __ATOMIC_ACQUIRE) <= (uint32_t)*living);
}

static bool is_at_rest(void *arg)
{
	int none = 0;

	return is_counted_out(&none) && !__atomic_load_n(&shared->pending, __ATOMIC_ACQUIRE);
}

static void await_counted_out(void)
{
	int living = CLIENTS - 1;

	looks_before = __atomic_load_n(&shared->looks, __ATOMIC_ACQUIRE);
	wait_for(is_counted_out, &living, "the daemon hears that a client is gone");
}

static bool has_said(void *arg)
{
	struct pollfd pfd = { .fd = said[0], .events = POLLIN };
	char c;

	return any_wrong() || (poll(&pfd, 1, 0) == 1 && read(said[0], &c, 1) == 1);
}

static uint64_t ends_before[CLIENTS];

static bool all_go_on(void *arg)
{
	for (int i = 0; i < CLIENTS; i++)
		if (__atomic_load_n(&shared->client[i].ends, __ATOMIC_ACQUIRE) == ends_before[i])
			return any_wrong();
	return true;
}

static void take_passed(int i)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	char c;
	struct iovec iov = { &c, 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct pollfd pfd = { .fd = pair[i][1], .events = POLLIN };
	struct cmsghdr *h;
	int fd;

	if (poll(&pfd, 1, PATIENCE_MS) != 1 || recvmsg(pair[i][1], &mh, MSG_CMSG_CLOEXEC) != 1) {
		check(false, "a descriptor is passed");
		failed = true;
		return;
	}
	h = CMSG_FIRSTHDR(&mh);
	if (h && h->cmsg_type == SCM_RIGHTS) {
		memcpy(&fd, CMSG_DATA(h), sizeof(fd));
		close(fd);
	}
}

/* A lingering child is not the controller's: it is reaped by whoever is the parent of orphans. */
static void end_child(struct who *who)
{
	pid_t pid = __atomic_exchange_n(&who->child, 0, __ATOMIC_ACQ_REL);

	if (pid > 0)
		kill(pid, SIGKILL);
}

static void kill_client_with_child(int i)
{
	struct who *who = &shared->client[i];

	order(who, DO_FORK);
	wait_for(is_forked, who, "a client forks");
	end_process(client_pid[i]);
	if (on_kernel())	/* whatever the child has; a socket of its own it would keep open */
		await_counted_out();
	start_client(i);
	nap((long)(rng() % 5000));
	end_child(who);
}

static void kill_daemon_with_child(void)
{
	order(&shared->daemon, DO_FORK);
	wait_for(is_forked, &shared->daemon, "the daemon forks");
	end_process(daemon_pid);
	if (!on_kernel())
		end_child(&shared->daemon);
	start_daemon();
	end_child(&shared->daemon);
}

static const char *const names[] = {
	"a client is killed", "the daemon is killed", "a client executes", "the daemon executes",
	"a client with a child is killed", "the daemon with a child is killed", "a ring is closed",
	"a channel is passed and closed", "a client does not read", "the module is to go",
};

static void one_moment(unsigned int what, int i)
{
	struct who *who = &shared->client[i];

	counts[what]++;
	switch (what) {
	case 0:
		end_process(client_pid[i]);
		start_client(i);
		break;
	case 1:
		end_process(daemon_pid);
		nap((long)(rng() % 3000));
		start_daemon();
		break;
	case 2:
		__atomic_store_n(&who->order, DO_EXEC, __ATOMIC_RELEASE);
		if (wait_for(has_said, NULL, "a client executes another program") && !any_wrong())
			await_counted_out();
		end_process(client_pid[i]);
		start_client(i);
		break;
	case 3:
		__atomic_store_n(&shared->daemon.order, DO_EXEC, __ATOMIC_RELEASE);
		wait_for(has_said, NULL, "the daemon executes another program");
		start_daemon();	/* it is no daemon any more: the name is free */
		break;
	case 4:
		kill_client_with_child(i);
		break;
	case 5:
		kill_daemon_with_child();
		break;
	case 6:
		order(who, CLOSE_RING);
		break;
	case 7:
		if (order(who, PASS_CHANNEL) && !any_wrong())
			take_passed(i);
		break;
	case 8:
		order(who, BE_DEAF);
		break;
	case 9:
		if (!syscall(SYS_delete_module, "sits", O_NONBLOCK) || (errno != EAGAIN && errno != EBUSY)) {
			check(false, "the module does not go while it is used: %s", strerror(errno));
			failed = true;
		}
	}
}

static void moments(void)
{
	pid_t old_daemon;

	for (int n = 0; n < MOMENTS && !failed && !any_wrong(); n++) {
		unsigned int what = (unsigned int)(rng() % 10);
		int i = (int)(rng() % CLIENTS);

		if (!on_kernel() && (what == 6 || what == 9))
			what = 0;	/* its ring is its own affair, and there is no module */
		nap((long)(rng() % 10000));
		old_daemon = daemon_pid;
		one_moment(what, i);
		if (what == 3)
			end_process(old_daemon);
		for (i = 0; i < CLIENTS; i++)
			ends_before[i] = __atomic_load_n(&shared->client[i].ends, __ATOMIC_ACQUIRE);
		if (!wait_for(all_go_on, NULL, "every client gets answers again"))
			printf("# after moment %d: %s\n", n, names[what]);
	}
}

static int end_of(pid_t pid)
{
	uint64_t until = now_ms() + PATIENCE_MS;
	int status = -1;

	while (!waitpid(pid, &status, WNOHANG)) {
		if (now_ms() > until) {
			end_process(pid);
			return -1;
		}
		nap(1000);
	}
	return status;
}

static void finish_all(void)
{
	bool good = true;

	__atomic_store_n(&shared->finish, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < CLIENTS; i++)
		good &= end_of(client_pid[i]) == 0;
	check(good && !any_wrong() && !failed, "every request of the survivors ended exactly once, with its own bytes");
	looks_before = __atomic_load_n(&shared->looks, __ATOMIC_ACQUIRE);
	if (daemon_pid) {
		wait_for(is_at_rest, NULL, "all clients have gone, and no request is left in the queue");
		__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
		check_int(end_of(daemon_pid), 0, "the daemon ends");
	}
	check(shared->pending_max <= DEPTH && shared->pending_max > PER_CLIENT, "the queue held at most %u of %u requests",
	      shared->pending_max, DEPTH);
}

static void print_counts(void)
{
	struct who sum = { 0 };

	for (int i = 0; i < CLIENTS; i++) {
		sum.ends += shared->client[i].ends;
		sum.made += shared->client[i].made;
		sum.opens += shared->client[i].opens;
		for (int k = 0; k < 4; k++)
			sum.by_status[k] += shared->client[i].by_status[k];
	}
	printf("# %llu requests over %llu channels; ended: %llu fine, %llu refused or too slow, %llu cancelled or late, %llu with the daemon; at most %u clients\n",
	       (unsigned long long)sum.made, (unsigned long long)sum.opens, (unsigned long long)sum.by_status[0],
	       (unsigned long long)sum.by_status[1], (unsigned long long)sum.by_status[2],
	       (unsigned long long)sum.by_status[3], shared->clients_max);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		printf("# %3d times: %s\n", counts[i], names[i]);
}

static void test_provider(uint32_t which)
{
	uint64_t start = now_ms();

	provider = which;
	printf("# provider %s, seed %llu\n", on_kernel() ? "kernel" : "user", (unsigned long long)rng_state);
	memset(shared, 0, sizeof(*shared));
	memset(counts, 0, sizeof(counts));
	failed = false;
	start_daemon();
	for (int i = 0; i < CLIENTS && !failed; i++)
		start_client(i);
	if (!failed && wait_for(all_go_on, memset(ends_before, 0, sizeof(ends_before)), "every client is served"))
		moments();
	finish_all();
	print_counts();
	printf("# %llu ms\n", (unsigned long long)(now_ms() - start));
}

static bool is_empty(void *arg)
{
	struct sits_get_info i = info();

	return !i.nr_queues && !i.nr_channels && !i.nr_regions && !i.region_used_bytes;
}

static bool is_unloaded(void *arg)
{
	return !syscall(SYS_delete_module, "sits", O_NONBLOCK);
}

static void test_nothing_left(void)
{
	open_dev();
	check(wait_for(is_empty, NULL, "no queue, channel or region is left"), "nothing is left in the module");
	close(dev);
	check(wait_for(is_unloaded, NULL, "the module can be removed"), "the module goes");
	check_int(system("modprobe sits"), 0, "and comes again");
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "linger"))
		linger(atoi(argv[2]));
	rng_state = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL) * 2654435761u | 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(shared != MAP_FAILED && mkdtemp(dir) && !pipe2(said, O_CLOEXEC), "setup");
	for (int i = 0; i < CLIENTS; i++)
		need(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair[i]), "socketpair");
	if (access("/dev/sits", F_OK)) {
		test_provider(SITS_PROVIDER_USER);
	} else {
		test_provider(SITS_PROVIDER_KERNEL);
		test_nothing_left();
		test_provider(SITS_PROVIDER_USER);
	}
	if (system("rm -rf /tmp/sits-kill-*"))
		return 1;
	return done();
}
