// SPDX-License-Identifier: MIT
/*
 * queue_death_test.c - a client or a daemon goes, in each way there is, with commands waiting in each way there is:
 * the other side hears of it, every request ends, nothing is left over.
 *
 * A child is the one that goes; a grandchild may hold on to what it had. Pipes tell who has got how far.
 */
#include "queue_common.h"

enum waits { IN_NOTHING, IN_RING, IN_WORKER, IN_SQPOLL, IN_FIXED_FILE, IN_IOCTL, NR_WAITS };
enum death { BY_KILL, BY_EXIT, BY_EXEC, BY_EXEC_OPEN, BY_KILL_WITH_HEIR, BY_CLOSE, NR_DEATHS };

static const char *const waits_names[NR_WAITS] = {
	"nothing waiting", "commands in a ring", "commands of a ring's worker", "commands in a polled ring",
	"commands on a registered file alone", "an ioctl",
};

static const char *const death_names[NR_DEATHS] = {
	"is killed", "exits", "executes another program", "executes another program, the descriptor stays open",
	"is killed, and a child holds all it had", "closes it",
};

#define NR_REQUESTS 3
#define LINGER "linger"		/* what the other program is called with */

static struct got got;
static int up[2], down[2], life[2];	/* to the parent, to the child, and whose end tells the heirs to go */

static void say(int fd)
{
	need(write(fd, "x", 1) == 1, "write to a pipe");
}

static void hear(int fd)
{
	char c;

	need(read(fd, &c, 1) == 1, "read from a pipe");
}

/* Until the test closes its end. */
static void linger(int fd)
{
	char c;

	while (read(fd, &c, 1) < 0 && errno == EINTR)
		;
}

struct parked {
	struct io_uring ring;
	struct sits_fetch fetch[2];
	struct sits_recv recv[2];
	pthread_t thread;
	int fd;
	uint32_t op;
};

static const void *payload_of(const struct parked *p, int i)
{
	return p->op == SITS_IOC_FETCH ? (const void *)&p->fetch[i] : (const void *)&p->recv[i];
}

static void *wait_in_ioctl(void *arg)
{
	struct parked *p = arg;

	command(BY_IOCTL, p->fd, p->op, payload_of(p, 0));
	return NULL;
}

/* Before the file is used. Return: its descriptor from here on. */
static int prepare(struct parked *p, enum waits waits, int fd, uint32_t op)
{
	p->fd = fd;
	p->op = op;
	for (int i = 0; i < 2; i++) {
		p->fetch[i] = (struct sits_fetch){ .addr = (uintptr_t)&got, .len = sizeof(got) };
		p->recv[i] = (struct sits_recv){ .off = RECV_OFF + i * 4096, .len = 4096 };
	}
	if (waits == IN_NOTHING || waits == IN_IOCTL)
		return fd;
	ring_init(&p->ring, waits == IN_SQPOLL ? IORING_SETUP_SQPOLL : 0);
	if (waits != IN_FIXED_FILE)
		return fd;
	need(!io_uring_register_files(&p->ring, &fd, 1), "register a file");
	close(fd);
	p->fd = 0;
	return -1;
}

/* A command that ends at once. */
static int use(struct parked *p, enum waits waits, uint32_t op, const void *payload)
{
	if (waits != IN_FIXED_FILE)
		return command(BY_IOCTL, p->fd, op, payload);
	ring_put(&p->ring, p->fd, op, payload, IOSQE_FIXED_FILE, 1);
	ring_submit(&p->ring);
	return ring_wait(&p->ring, NULL, NEVER_MS);
}

/* Have two commands wait on the file, or an ioctl. */
static void park(struct parked *p, enum waits waits)
{
	unsigned int flags = waits == IN_WORKER ? IOSQE_ASYNC : waits == IN_FIXED_FILE ? IOSQE_FIXED_FILE : 0;

	if (waits == IN_NOTHING)
		return;
	if (waits == IN_IOCTL) {
		need(!pthread_create(&p->thread, NULL, wait_in_ioctl, p), "pthread_create");
		return;
	}
	for (int i = 0; i < 2; i++)
		ring_put(&p->ring, p->fd, p->op, payload_of(p, i), flags, i);
	ring_submit(&p->ring);
}

/* Until both commands wait: a worker or a polling thread issues them when it comes to it. */
static void await_parked(int fd)
{
	char path[64], line[128];
	int nr = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	for (int tries = 0; tries < NEVER_MS && nr < 2; tries++) {
		FILE *f = fopen(path, "re");

		need(f, "%s", path);
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "sits-fetchers: %d", &nr) != 1)
				sscanf(line, "sits-receivers: %d", &nr);
		fclose(f);
		usleep(1000);
	}
}

/*
 * Elsewhere they may come at any moment of the end, which is as good a test. But where the descriptor stays open they are
 * all that tells of the exec.
 */
static void die(enum death death, int fd)
{
	char number[16];

	if (death == BY_EXEC_OPEN) {
		await_parked(fd);
		fcntl(fd, F_SETFD, 0);
	}
	if (death == BY_KILL_WITH_HEIR && fork() == 0) {
		say(up[1]);
		linger(life[0]);
		_exit(0);
	}
	if (death != BY_KILL_WITH_HEIR)
		say(up[1]);
	hear(down[0]);
	switch (death) {
	case BY_EXIT:
		_exit(0);
	case BY_EXEC:
	case BY_EXEC_OPEN:
		snprintf(number, sizeof(number), "%d", life[0]);
		fcntl(life[0], F_SETFD, 0);
		execl("/proc/self/exe", "queue_death_test", LINGER, number, NULL);
		_exit(98);
	case BY_CLOSE:
		close(fd);
		break;
	default:
		break;
	}
	linger(life[0]);	/* killed, or told to go */
	_exit(0);
}

static void victim_client(enum waits waits, enum death death)
{
	static struct parked p;
	struct chan c = channel_open("q");
	struct sits_submit submit = { .len = 1, .off_req = REQ_OFF };
	int fd = prepare(&p, waits, c.fd, SITS_IOC_RECV);

	if (waits == IN_FIXED_FILE)	/* the mapping would hold the file */
		munmap(c.arena, c.bytes);
	for (int i = 0; i < NR_REQUESTS; i++)
		need(!use(&p, waits, SITS_IOC_SUBMIT, &submit), "SUBMIT");
	say(up[1]);
	hear(down[0]);
	park(&p, waits);
	die(death, fd);
}

static void victim_daemon(enum waits waits, enum death death)
{
	static struct parked p;
	struct sits_commit_desc desc = { .size = sizeof(desc), .addr = (uintptr_t)"part", .len = 4 };
	struct sits_commit commit = { .addr = (uintptr_t)&desc };
	int q = queue_create(OPTS()), fd;

	need(q >= 0, "QUEUE_CREATE: %d", q);
	fd = prepare(&p, waits, q, SITS_IOC_FETCH);
	say(up[1]);
	hear(down[0]);		/* requests are there */
	for (int i = 0; i < NR_REQUESTS - (waits == IN_NOTHING); i++)
		need(use(&p, waits, SITS_IOC_FETCH, payload_of(&p, 0)) > 0, "FETCH");
	desc.req = got.ev.req;
	need(!use(&p, waits, SITS_IOC_COMMIT, &commit), "COMMIT");
	park(&p, waits);
	die(death, fd);
}

/* Return: the child. */
static pid_t start(void (*victim)(enum waits, enum death), enum waits waits, enum death death)
{
	pid_t pid;

	need(!pipe2(up, O_CLOEXEC) && !pipe2(down, O_CLOEXEC) && !pipe2(life, O_CLOEXEC), "pipe");
	fflush(stdout);
	pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		close(life[1]);
		victim(waits, death);
		_exit(97);
	}
	close(life[0]);
	return pid;
}

static void begin_death(pid_t pid, enum death death)
{
	hear(up[0]);
	if (death == BY_KILL || death == BY_KILL_WITH_HEIR)
		kill(pid, SIGKILL);
	else
		say(down[1]);
}

static void finish(pid_t pid)
{
	close(life[1]);
	close(up[0]);
	close(up[1]);
	close(down[0]);
	close(down[1]);
	waitpid(pid, NULL, 0);
}

static bool can_be(enum waits waits, enum death death)
{
	if (waits == IN_FIXED_FILE && (death == BY_CLOSE || death == BY_EXEC_OPEN))
		return false;
	/* A descriptor that stays open is what the program was given. */
	return death != BY_EXEC_OPEN || (waits != IN_NOTHING && waits != IN_IOCTL);
}

static void test_client(enum waits waits, enum death death)
{
	int q = queue_create(OPTS());
	pid_t pid = start(victim_client, waits, death);
	int more, chunk, end;
	uint64_t id[2];
	bool good = true;

	hear(up[0]);
	for (int i = 0; i < 2; i++) {
		fetch_kind(q, &got, SITS_EV_REQUEST);
		id[i] = got.ev.req;
		good = good && got.ev.pid == (uint32_t)pid;
	}
	say(down[1]);
	begin_death(pid, death);
	/* One request still waits, so the queue is readable before the client is gone. */
	for (int tries = 0; tries < NEVER_MS / 10 && queue_facts(q).nr_clients; tries++)
		usleep(10000);
	for (int i = 0; i < 2; i++)
		good = good && fetch_kind(q, &got, SITS_EV_CANCEL) && got.ev.req == id[i];
	more = fetch(q, &got);
	chunk = commit(q, id[0], "x");
	end = commit_end(q, id[0], 0);
	good = good && more == -EAGAIN && chunk == -EPIPE && end == -EPIPE && !queue_facts(q).nr_clients;
	check(good, "a client with %s %s: the daemon hears of its requests", waits_names[waits], death_names[death]);
	if (!good)
		printf("# process %u of %d, then FETCH %d, COMMIT %d and %d, %u clients\n", got.ev.pid, pid, more,
		       chunk, end, queue_facts(q).nr_clients);
	finish(pid);
	close(q);
	check(no_queue_left(), "nothing is left of it");
}

static void test_daemon(enum waits waits, enum death death)
{
	pid_t pid = start(victim_daemon, waits, death);
	struct io_uring *ring = &way_ring[BY_URING];
	struct sits_recv r = { .off = RECV_OFF + 8192, .len = 4096 };
	int status = death == BY_CLOSE ? -ESHUTDOWN : -EPIPE, ends = 0, ret, q;
	uint64_t req[NR_REQUESTS];
	struct chan c;
	bool good;

	hear(up[0]);
	c = channel_open("q");
	for (int i = 0; i < NR_REQUESTS; i++)
		req[i] = submit_text(&c, "x");
	say(down[1]);
	good = recv_is(&c, req[NR_REQUESTS - 1 - (waits == IN_NOTHING)], "part", 0, false);
	ring_put(ring, c.fd, SITS_IOC_RECV, &r, 0, 1);
	ring_submit(ring);
	begin_death(pid, death);
	/* The first end comes to a RECV that waits. */
	good = good && ring_wait(ring, NULL, NEVER_MS) == sizeof(struct sits_chunk_hdr) &&
		chunk_hdr(&c, r.off).status == status;
	for (int i = 0; i < NR_REQUESTS; i++)
		ends += chunk_hdr(&c, r.off).req == req[i];
	while ((ret = recv_by(BY_IOCTL, &c, 4096)) > 0) {
		struct sits_chunk_hdr h = chunk_hdr(&c, RECV_OFF);

		good = good && h.flags == SITS_CHUNK_F_LAST && h.status == status;
		ends++;
	}
	good = good && ends == NR_REQUESTS && ret == -EPIPE && submit(&c, "x", 1, NULL) == -EPIPE;
	check(good, "a daemon with %s %s: all requests end", waits_names[waits], death_names[death]);
	if (!good)
		printf("# %d ends, status %d, RECV %d\n", ends, chunk_hdr(&c, RECV_OFF).status, ret);
	q = queue_create(OPTS());
	check(q >= 0, "its name is free");
	close(q);
	channel_close(&c);
	finish(pid);
	check(no_queue_left(), "nothing is left of it");
}

/* -------------------------------------------------------------- rings that go alone */

static void test_ring_goes(void)
{
	struct parked p;
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t req;

	prepare(&p, IN_RING, q, SITS_IOC_FETCH);
	park(&p, IN_RING);
	io_uring_queue_exit(&p.ring);
	req = submit_text(&c, "kept");
	check(fetch_kind(q, &got, SITS_EV_REQUEST) && !memcmp(got.bytes, "kept", 4),
	      "a FETCH whose ring is closed takes no request along");
	prepare(&p, IN_RING, c.fd, SITS_IOC_RECV);
	park(&p, IN_RING);
	io_uring_queue_exit(&p.ring);
	commit(q, got.ev.req, "kept");
	check(recv_is(&c, req, "kept", 0, false), "a RECV whose ring is closed takes no chunk along");
	commit_end(q, got.ev.req, 0);
	check(end_is(&c, req, 0), "queue and channel go on");
	channel_close(&c);
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

static void *park_and_end(void *arg)
{
	struct parked *p = arg;

	prepare(p, IN_RING, p->fd, p->op);
	park(p, IN_RING);
	return NULL;
}

/* The thread that fetches or receives ends, others go on. */
static void test_thread_goes(void)
{
	static struct parked f, r;
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	uint64_t req;

	f.fd = q;
	f.op = SITS_IOC_FETCH;
	r.fd = c.fd;
	r.op = SITS_IOC_RECV;
	pthread_create(&f.thread, NULL, park_and_end, &f);
	pthread_join(f.thread, NULL);
	pthread_create(&r.thread, NULL, park_and_end, &r);
	pthread_join(r.thread, NULL);
	/* Their commands are ended, by whatever of the kernel's ways. */
	for (int i = 0; i < 2; i++) {
		check_int(ring_wait(&f.ring, NULL, NEVER_MS), -ECANCELED, "FETCH of a thread that has ended");
		check_int(ring_wait(&r.ring, NULL, NEVER_MS), -ECANCELED, "RECV of a thread that has ended");
	}
	req = submit_text(&c, "x");
	fetch_kind(q, &got, SITS_EV_REQUEST);
	commit_end(q, got.ev.req, 0);
	check(end_is(&c, req, 0), "queue and channel go on");
	io_uring_queue_exit(&f.ring);
	io_uring_queue_exit(&r.ring);
	channel_close(&c);
	close(q);
	check(no_queue_left(), "nothing is left of that");
}

/* --------------------------------------------------------------- descriptors that travel */

static void send_fd(int sock, int fd)
{
	char byte = 'x', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
	need(sendmsg(sock, &msg, 0) == 1, "sendmsg");
}

static int receive_fd(int sock)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int fd;

	need(recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg), "recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return fd;
}

static int serve_one(void *arg)
{
	int q = receive_fd(*(int *)arg);

	if (!fetch_kind(q, &got, SITS_EV_REQUEST))
		return 1;
	return commit_end(q, got.ev.req, -77) ? 2 : 0;
}

static void test_passing(void)
{
	int pair[2], q = queue_create(OPTS()), fd;
	struct chan c = channel_open("q");
	uint64_t req = submit_text(&c, "x");

	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
	/* Whoever made a queue and has not served it may give it away. */
	send_fd(pair[0], q);
	close(q);
	check_int(in_child(serve_one, &pair[1]), 0, "a queue that was passed on, its maker's descriptor closed, is served");
	check(end_is(&c, req, -77), "the answer comes");
	check_int(recv_now(&c, 4096), -EPIPE, "and the end of the process that served it is the queue's");
	channel_close(&c);

	/* In the socket nobody has it, and it lives. */
	q = queue_create(OPTS());
	send_fd(pair[0], q);
	close(q);
	c = channel_open("q");
	req = submit_text(&c, "y");
	fd = receive_fd(pair[1]);
	check(fetch_kind(fd, &got, SITS_EV_REQUEST) && got.bytes[0] == 'y', "a queue in a socket lives");
	/* Who uses it and closes it ends it, wherever else it is. */
	send_fd(pair[0], c.fd);
	channel_close(&c);
	check_int(info().nr_channels, 1, "a channel in a socket");
	check(fetch_kind(fd, &got, SITS_EV_CANCEL), "that its user has closed is dead");
	c.fd = receive_fd(pair[1]);
	check_int(command(BY_IOCTL, c.fd, SITS_IOC_RECV, &(struct sits_recv){ .len = 4096 }), -EPIPE, "for who gets it, too");
	close(c.fd);
	close(fd);
	close(pair[0]);
	close(pair[1]);
	check(no_queue_left(), "nothing is left of that");
}

/* A descriptor that goes round in a socket, held by nothing else, with a command waiting on it. */
static void test_in_flight(void)
{
	int pair[2], q = queue_create(OPTS());
	struct parked p;

	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
	prepare(&p, IN_RING, q, SITS_IOC_FETCH);
	park(&p, IN_RING);
	send_fd(pair[0], q);
	close(q);
	for (int i = 0; i < 2; i++) {
		int ret = ring_wait(&p.ring, NULL, NEVER_MS);

		check(ret == sizeof(struct sits_event) || ret == -ECANCELED, "a FETCH that waits ends with the close");
	}
	check_int(got.ev.kind, SITS_EV_SHUTDOWN, "and says so");
	close(pair[0]);
	close(pair[1]);
	io_uring_queue_exit(&p.ring);
	check(no_queue_left(), "nothing is left of that");
}

/* Close while other threads wait in ioctls. */
static void test_close_under_waiters(void)
{
	static struct parked f, r;
	int q = queue_create(OPTS());
	struct chan c = channel_open("q");
	struct pollfd pfd;

	prepare(&r, IN_IOCTL, c.fd, SITS_IOC_RECV);
	park(&r, IN_IOCTL);
	prepare(&f, IN_IOCTL, q, SITS_IOC_FETCH);
	park(&f, IN_IOCTL);
	/* Both wait once a request has gone through them. */
	submit_text(&c, "x");
	pthread_join(f.thread, NULL);
	commit(q, got.ev.req, "a");
	pthread_join(r.thread, NULL);
	prepare(&r, IN_IOCTL, c.fd, SITS_IOC_RECV);
	park(&r, IN_IOCTL);
	prepare(&f, IN_IOCTL, q, SITS_IOC_FETCH);
	park(&f, IN_IOCTL);
	channel_close(&c);
	pthread_join(r.thread, NULL);
	check(true, "a RECV in another thread ends when the channel is closed");
	pfd = (struct pollfd){ .fd = q, .events = POLLIN };
	pthread_join(f.thread, NULL);
	check_int(got.ev.kind, SITS_EV_CANCEL, "the FETCH in another thread gets the CANCEL");
	check_int(poll(&pfd, 1, 0), 0, "which was all");
	prepare(&f, IN_IOCTL, q, SITS_IOC_FETCH);
	park(&f, IN_IOCTL);
	close(q);
	pthread_join(f.thread, NULL);
	check(true, "a FETCH in another thread ends when the queue is closed");
	check(no_queue_left(), "nothing is left of that");
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], LINGER)) {
		linger(atoi(argv[2]));
		return 0;
	}
	open_dev();
	ways_init();
	for (int waits = 0; waits < NR_WAITS; waits++) {
		for (int death = 0; death < NR_DEATHS; death++) {
			if (!can_be(waits, death))
				continue;
			test_client(waits, death);
			test_daemon(waits, death);
		}
	}
	test_ring_goes();
	test_thread_goes();
	test_passing();
	test_in_flight();
	test_close_under_waiters();
	ways_fini();
	return done();
}
