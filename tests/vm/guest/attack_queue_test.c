// SPDX-License-Identifier: MIT
/*
 * attack_queue_test.c - clients and helpers of a daemon that are up to no good: rings that go just before the daemon does, commands
 * by the thousand, descriptors in places where nobody looks, links and timeouts around commands that wait. Nothing hangs, nothing is
 * lost, nothing is left over.
 */
#include <linux/userfaultfd.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "queue_common.h"

#define MANY 1000		/* commands that wait; more than the module hands out at a time */
#define NR_REQUESTS 600
#define ROOM 32			/* for the end of a request */

static struct got got;

static void many_init(struct io_uring *ring, unsigned int flags)
{
	struct io_uring_params p = { .flags = flags };
	int ret = io_uring_queue_init_params(1024, ring, &p);

	errno = -ret;
	need(!ret, "io_uring_queue_init");
}

static struct sits_recv room_at(int i)
{
	return (struct sits_recv){ .off = RECV_OFF + i * 2 * ROOM, .len = ROOM };
}

static void park_receivers(struct io_uring *ring, int fd, int nr)
{
	for (int i = 0; i < nr; i++) {
		struct sits_recv arg = room_at(i);

		ring_put(ring, fd, SITS_IOC_RECV, &arg, 0, i);
	}
	ring_submit(ring);
}

/* The number in a line of fdinfo. */
static int fdinfo(int fd, const char *key)
{
	char path[64], line[128];
	size_t len = strlen(key);
	int nr = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	need(f, "%s", path);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, len) && line[len] == ':')
			nr = atoi(line + len + 1);
	fclose(f);
	return nr;
}

static bool await_fdinfo(int fd, const char *key, int want)
{
	int nr = fdinfo(fd, key);

	for (int tries = 0; tries < NEVER_MS && nr != want; tries++) {
		usleep(1000);
		nr = fdinfo(fd, key);
	}
	return nr == want;
}

/* ------------------------------------------------------------ who goes just before */

/*
 * The file is in a ring alone, that ring is closed with a RECV waiting, and the daemon goes before anybody has looked. Linux 6.1
 * waits for the command, which holds the channel.
 */
static int ring_and_daemon_go(void *arg)
{
	for (int i = 0; i < 4; i++) {
		struct io_uring ring;
		int q = queue_create(OPTS()), c = channel_fd("q", ARENA_BYTES);
		struct sits_recv recv = room_at(0);

		ring_init(&ring, 0);
		need(q >= 0 && c >= 0 && !io_uring_register_files(&ring, &c, 1), "a channel in a ring");
		close(c);
		ring_put(&ring, 0, SITS_IOC_RECV, &recv, IOSQE_FIXED_FILE, 1);
		ring_submit(&ring);
		io_uring_queue_exit(&ring);
		close(q);
	}
	return 0;
}

static void test_ring_then_daemon(void)
{
	in_child(ring_and_daemon_go, NULL);
	check(no_queue_left(), "a ring is closed with a RECV waiting, and then the daemon goes: nothing is left");
}

/* Who looks for nothing but the end of the other side. */
static void test_hangup(void)
{
	struct epoll_event want = { .events = 0 }, ev = { 0 };
	int ep = epoll_create1(EPOLL_CLOEXEC), q = queue_create(OPTS()), q2;
	struct chan c = channel_open("q");

	need(!epoll_ctl(ep, EPOLL_CTL_ADD, c.fd, &want), "epoll_ctl");
	need(!epoll_wait(ep, &ev, 1, 0), "no hangup yet");
	close(q);
	check(epoll_wait(ep, &ev, 1, NEVER_MS) == 1 && ev.events & EPOLLHUP, "who waits for a hangup alone hears that the daemon goes");
	channel_close(&c);

	q = queue_create(OPTS());
	q2 = dup(q);
	fetch(q, &got);		/* its user, whose close is the end */
	need(!epoll_ctl(ep, EPOLL_CTL_ADD, q2, &want), "epoll_ctl");
	need(!epoll_wait(ep, &ev, 1, 0), "no hangup yet");
	close(q);
	check(epoll_wait(ep, &ev, 1, NEVER_MS) == 1 && ev.events & EPOLLHUP, "likewise of a queue that ends");
	close(q2);
	close(ep);
	check(no_queue_left(), "nothing is left of that");
}

/* A process that helps goes, and somebody else is the user by then. All it had is in a ring that lives on. */
static struct io_uring kept;

static void helper(const int fd_op[2])
{
	struct sits_fetch f = { .addr = (uintptr_t)&got, .len = sizeof(got) };
	struct sits_recv r = room_at(0);

	close(fd_op[0]);
	ring_put(&kept, 0, fd_op[1], fd_op[1] == (int)SITS_IOC_FETCH ? (void *)&f : (void *)&r, IOSQE_FIXED_FILE, 1);
	ring_submit(&kept);
	for (;;)
		pause();
}

/* Return: the helper's pid; its command waits. */
static pid_t start_helper(int fd, int op, const char *key)
{
	int fd_op[] = { fd, op };
	pid_t pid;

	ring_init(&kept, 0);
	need(!io_uring_register_files(&kept, &fd, 1), "register a file");
	fflush(stdout);
	pid = fork();
	if (!pid)
		helper(fd_op);
	need(pid > 0 && await_fdinfo(fd, key, 1), "a helper's command waits");
	return pid;
}

static void end_helper(pid_t pid, int fd, const char *key)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	check(await_fdinfo(fd, key, 0), "a command of a process that was killed, in a ring that lives on, is ended");
}

static void test_helper_goes(void)
{
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t req;
	pid_t pid;

	pid = start_helper(q, SITS_IOC_FETCH, "sits-fetchers");
	fetch(q, &got);		/* now this process is the user */
	end_helper(pid, q, "sits-fetchers");
	io_uring_queue_exit(&kept);
	check_int(fdinfo(q, "sits-dead"), 0, "the queue of a helper that goes lives on with its user");

	pid = start_helper(c.fd, (int)SITS_IOC_RECV, "sits-receivers");
	req = submit_text(&c, "x");
	end_helper(pid, c.fd, "sits-receivers");
	io_uring_queue_exit(&kept);
	check_int(fdinfo(c.fd, "sits-dead"), 0, "likewise a channel");
	if (fetch_kind(q, &got, SITS_EV_REQUEST))
		commit_end(q, got.ev.req, 0);
	check(end_is(&c, req, 0), "both go on");
	channel_close(&c);
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

/* ---------------------------------------------------------------------- by the thousand */

/* Ends and hangups for more commands than are handed out at a time: all come, in order. */
static void test_many_receivers(void)
{
	int q = queue_create(OPTS(.depth = NR_REQUESTS, .per_client = NR_REQUESTS));
	uint64_t reqs[NR_REQUESTS], tag;
	struct chan c = channel_open("q");
	int ends = 0, hangups = 0, wrong = 0;
	struct io_uring ring;

	many_init(&ring, 0);
	for (int i = 0; i < NR_REQUESTS; i++)
		reqs[i] = submit_text(&c, "x");
	park_receivers(&ring, c.fd, MANY);
	check(await_fdinfo(c.fd, "sits-receivers", MANY), "%d RECVs wait", MANY);
	close(q);
	for (int i = 0; i < MANY; i++) {
		int ret = ring_wait(&ring, &tag, NEVER_MS);
		struct sits_chunk_hdr hdr = chunk_hdr(&c, room_at(tag).off);

		if (ret == -EPIPE)
			hangups++;
		else if (ret == sizeof(hdr) && tag < NR_REQUESTS && hdr.req == reqs[tag] && hdr.status == -ESHUTDOWN &&
			 hdr.flags == SITS_CHUNK_F_LAST)
			ends++;
		else
			wrong++;
	}
	check_int(ends, NR_REQUESTS, "an end for each request, in order");
	check_int(hangups, MANY - NR_REQUESTS, "and a hangup for each RECV beyond");
	check_int(wrong, 0, "and nothing else");
	io_uring_queue_exit(&ring);
	channel_close(&c);
	check(no_queue_left(), "nothing is left of that");
}

/* Deadlines that pass together. */
static void test_many_deadlines(void)
{
	int q = queue_create(OPTS(.depth = NR_REQUESTS, .per_client = NR_REQUESTS));
	struct chan c = channel_open("q");
	int good = 0;

	for (int i = 0; i < NR_REQUESTS; i++)
		need(!submit_by(BY_IOCTL, &c, "x", 1, 1, NULL), "SUBMIT");
	for (int i = 0; i < NR_REQUESTS; i++) {
		struct sits_recv arg = room_at(0);
		int ret = command(BY_IOCTL, c.fd, SITS_IOC_RECV, &arg);

		good += ret == sizeof(struct sits_chunk_hdr) && chunk_hdr(&c, RECV_OFF).status == -ETIMEDOUT;
	}
	check_int(good, NR_REQUESTS, "requests whose time passes at once: each ends");
	check_int(queue_facts(q).nr_waiting, 0, "and none waits");
	channel_close(&c);
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

struct many {
	struct io_uring ring;
	struct chan c;
};

static void *park_many(void *arg)
{
	struct many *m = arg;

	many_init(&m->ring, 0);
	park_receivers(&m->ring, m->c.fd, MANY);
	return NULL;
}

/* Threads that end with commands waiting, between others of which nobody has gone. */
static void test_many_of_threads(void)
{
	static struct many gone[3], alive[3];
	int q = queue_create(OPTS()), cancelled = 0;
	pthread_t thread;
	uint64_t req;

	for (int i = 0; i < 3; i++) {
		alive[i].c = channel_open("q");
		park_many(&alive[i]);
		gone[i].c = channel_open("q");
		pthread_create(&thread, NULL, park_many, &gone[i]);
		pthread_join(thread, NULL);
	}
	for (int i = 0; i < 3; i++)
		for (int n = 0; n < MANY; n++)
			cancelled += ring_wait(&gone[i].ring, NULL, NEVER_MS) == -ECANCELED;
	check_int(cancelled, 3 * MANY, "each RECV of threads that have ended is ended");
	for (int i = 0; i < 3; i++) {
		check_int(fdinfo(alive[i].c.fd, "sits-receivers"), MANY, "of a thread that lives, all wait");
		req = submit_text(&alive[i].c, "x");
		need(fetch_kind(q, &got, SITS_EV_REQUEST), "FETCH");
		commit_end(q, got.ev.req, 0);
		check(ring_wait(&alive[i].ring, NULL, NEVER_MS) == sizeof(struct sits_chunk_hdr) &&
		      chunk_hdr(&alive[i].c, room_at(0).off).req == req, "and the first one gets what comes");
	}
	for (int i = 0; i < 3; i++) {
		channel_close(&gone[i].c);
		channel_close(&alive[i].c);
		io_uring_queue_exit(&gone[i].ring);
		io_uring_queue_exit(&alive[i].ring);
	}
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

/* ------------------------------------------------------------------- shapes of rings */

/* What can be put around a command that waits: a link, a timeout of the link, a cancel, a drain. */
static void test_around(unsigned int flags, const char *name)
{
	struct __kernel_timespec ts = { .tv_nsec = 1000000 };
	int q = queue_create(OPTS()), ret[3] = { 0 }, rest = 0;
	struct sits_submit send = { .len = 1, .off_req = REQ_OFF };
	struct chan c = channel_open("q");
	struct sits_recv recv = room_at(0);
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	uint64_t tag, req;

	ring_init(&ring, flags);
	ring_put(&ring, c.fd, SITS_IOC_RECV, &recv, IOSQE_IO_LINK, 0);
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_link_timeout(sqe, &ts, 0);
	sqe->user_data = 1;
	ring_submit(&ring);
	ret[1] = ring_wait(&ring, &tag, NEVER_MS);
	check(tag == 1, "%s: a timeout of a link to a RECV that waits comes (%d)", name, ret[1]);
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_cancel64(sqe, 0, 0);
	sqe->user_data = 2;
	ring_submit(&ring);
	ring_wait(&ring, &tag, NEVER_MS);
	check(tag == 2, "%s: a cancel of it is answered", name);
	req = submit_text(&c, "x");
	need(fetch_kind(q, &got, SITS_EV_REQUEST), "FETCH");
	commit(q, got.ev.req, "abc");
	ret[0] = ring_wait(&ring, &tag, NEVER_MS);
	check(tag == 0 && ret[0] == (int)sizeof(struct sits_chunk_hdr) + 3, "%s: and it gets what comes", name);

	/* A RECV, a SUBMIT linked to it, and something that waits for both. */
	ring_put(&ring, c.fd, SITS_IOC_RECV, &recv, IOSQE_IO_LINK, 10);
	ring_put(&ring, c.fd, SITS_IOC_SUBMIT, &send, 0, 11);
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_nop(sqe);
	sqe->flags = IOSQE_IO_DRAIN;
	sqe->user_data = 12;
	ring_submit(&ring);
	check_int(commit_end(q, got.ev.req, 0), 0, "%s: COMMIT", name);
	for (int i = 0; i < 3; i++) {
		int res = ring_wait(&ring, &tag, NEVER_MS);

		if (tag == 10 && res == sizeof(struct sits_chunk_hdr))
			rest |= 1;
		if (tag == 11 && !res)
			rest |= 2;
		if (tag == 12)
			rest |= 4;
	}
	check_int(rest, 7, "%s: a RECV, a SUBMIT linked to it, and a drain behind them", name);
	check(chunk_hdr(&c, RECV_OFF).req == req && fetch_kind(q, &got, SITS_EV_REQUEST), "%s: the linked request is there", name);
	channel_close(&c);
	io_uring_queue_exit(&ring);
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

/* A ring whose task does not come by: what is given to it comes when the ring is asked, or goes with the ring. */
static void *bound_and_end(void *arg)
{
	struct many *m = arg;

	ring_init(&m->ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	park_receivers(&m->ring, m->c.fd, 2);
	return NULL;
}

static void test_bound_ring(void)
{
	static struct many m;
	struct sits_fetch f = { .addr = (uintptr_t)&got, .len = sizeof(got) };
	int q = queue_create(OPTS());
	struct io_uring ring;
	pthread_t thread;
	uint64_t req;

	m.c = channel_open("q");
	pthread_create(&thread, NULL, bound_and_end, &m);
	pthread_join(thread, NULL);
	check(await_fdinfo(m.c.fd, "sits-receivers", 0), "RECVs in a ring that is bound to a thread that has ended are ended");
	io_uring_queue_exit(&m.ring);

	/* An event that is on its way to a ring that is closed instead. */
	ring_init(&ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	ring_put(&ring, q, SITS_IOC_FETCH, &f, 0, 1);
	ring_submit(&ring);
	req = submit_text(&m.c, "kept");
	io_uring_queue_exit(&ring);
	check(fetch_kind(q, &got, SITS_EV_REQUEST) && !memcmp(got.bytes, "kept", 4), "an event on its way to a ring that is closed stays");
	commit_end(q, got.ev.req, 0);
	check(end_is(&m.c, req, 0), "and is answered");
	channel_close(&m.c);
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

/* ------------------------------------------------------------------------ page faults */

struct slow_fetch {
	pthread_t thread;
	int q;
	void *at;
	int ret;
};

static void *fetch_slowly(void *arg)
{
	struct slow_fetch *s = arg;
	struct sits_fetch f = { .addr = (uintptr_t)s->at, .len = 4096 };

	s->ret = command(BY_IOCTL, s->q, SITS_IOC_FETCH, &f);
	return NULL;
}

/* The bytes of a request are on their way to memory that is taken away, when intake is closed or the client goes. */
static void test_fault_meanwhile(bool client_goes)
{
	int q = queue_create(OPTS()), u = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct slow_fetch s = { .q = q };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct chan c = channel_open("q");
	struct uffd_msg msg;
	uint64_t req;

	s.at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (uintptr_t)s.at;
	reg.range.len = 4096;
	need(u >= 0 && !ioctl(u, UFFDIO_API, &api) && !ioctl(u, UFFDIO_REGISTER, &reg), "userfaultfd");
	req = submit_text(&c, "x");
	pthread_create(&s.thread, NULL, fetch_slowly, &s);
	need(read(u, &msg, sizeof(msg)) == sizeof(msg), "a fault");
	if (client_goes)
		channel_close(&c);
	else
		check_int(command(BY_IOCTL, q, SITS_IOC_CLOSE_INTAKE, NULL), 0, "CLOSE_INTAKE while a request is being fetched");
	munmap(s.at, 4096);
	close(u);
	pthread_join(s.thread, NULL);
	check_int(s.ret, -EFAULT, "a FETCH whose buffer goes meanwhile");
	check_int(fetch(q, &got), -EAGAIN, "no request is left for the daemon");
	check_int(queue_facts(q).nr_waiting + queue_facts(q).nr_running, 0, "nor anywhere");
	if (!client_goes) {
		check(end_is(&c, req, -ESHUTDOWN), "its client hears so");
		channel_close(&c);
	}
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

int main(void)
{
	open_dev();
	test_ring_then_daemon();
	test_hangup();
	test_helper_goes();
	test_many_receivers();
	test_many_deadlines();
	test_many_of_threads();
	test_around(0, "a ring");
	test_around(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "a bound ring");
	test_bound_ring();
	test_fault_meanwhile(false);
	test_fault_meanwhile(true);
	return done();
}
