// SPDX-License-Identifier: MIT
/*
 * queue_hostile_test.c - a client that changes its arena and its commands while the kernel works on them, beside one that
 * is honest: the daemon gets whole requests only, bounds hold, the honest one notices nothing.
 *
 * argv[1]: seed; default: of the clock, and printed.
 */
#include "queue_common.h"

#define ROUNDS		20000
#define HONEST_ROUNDS	2000
#define RING		32

static struct got got;
static uint64_t seed;

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

struct scribbler {
	struct chan c;
	struct io_uring *ring;
	int stop;	/* atomic */
};

/* Writes random words into what the kernel reads, all the time. */
static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	uint64_t state = seed ^ 0x9e3779b97f4a7c15ull;

	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		uint64_t r = rnd(&state);
		struct io_uring_sqe *sqe = &s->ring->sq.sqes[r % RING];

		((volatile uint64_t *)s->c.arena)[(r >> 8) % (s->c.bytes / 8)] = r;
		((volatile uint32_t *)sqe->cmd)[(r >> 40) & 3] = (r >> 60) ? (r >> 16) & 0xfff8 : (uint32_t)r;
	}
	return NULL;
}

static void reap(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(ring, &cqe))
		io_uring_cqe_seen(ring, cqe);
}

/* Any command with any payload, while the scribbler is at it; killed in the middle. */
static void be_hostile(int ready)
{
	static const uint32_t ops[] = {
		SITS_IOC_SUBMIT, SITS_IOC_SUBMIT, SITS_IOC_SUBMIT, SITS_IOC_RECV, SITS_IOC_RECV, SITS_IOC_CANCEL, SITS_IOC_FETCH,
	};
	struct io_uring ring;
	struct scribbler s = { .c = channel_open("q"), .ring = &ring };
	uint64_t state = seed;
	pthread_t thread;

	need(!io_uring_queue_init(RING, &ring, 0), "io_uring_queue_init");
	pthread_create(&thread, NULL, scribble, &s);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t r = rnd(&state);
		uint32_t op = ops[r % 7];
		uint64_t payload[2] = {
			((r >> 8) & 0xfff8) | ((r >> 30) & 0x3ff8) << 32, (r >> 5) & 0x1f0000fff8ull,
		};

		if (op == SITS_IOC_RECV)
			payload[1] = 0;
		ring_put(&ring, s.c.fd, op, payload, r & 1 << 20 && !(r & 7 << 21) ? IOSQE_ASYNC : 0, i);
		if (i % 4 == 3) {
			ring_submit(&ring);
			reap(&ring);
		}
		if (i == ROUNDS / 10)
			need(write(ready, "x", 1) == 1, "write");
	}
	pause();
}

static int stop_daemon;		/* atomic */
static int nr_wrong;

/* Echoes what it gets; whatever that is, it is whole. */
static void *serve(void *arg)
{
	int q = *(int *)arg;
	struct pollfd pfd = { .fd = q, .events = POLLIN };

	while (!__atomic_load_n(&stop_daemon, __ATOMIC_ACQUIRE)) {
		int ret = fetch(q, &got);

		if (ret == -EAGAIN) {
			poll(&pfd, 1, 20);
			continue;
		}
		if (ret < (int)sizeof(got.ev) || ret != (int)(sizeof(got.ev) + got.ev.len) ||
		    got.ev.len > SITS_REQUEST_BYTES_MAX || !got.ev.client || !got.ev.req ||
		    (got.ev.kind == SITS_EV_REQUEST) != (got.ev.len > 0))
			nr_wrong++;
		/* A client that does not collect, or has gone, ends without bytes. */
		if (commit_by(BY_IOCTL, q, got.ev.req, got.bytes, got.ev.len, 0, true) == -ENOBUFS)
			commit_end(q, got.ev.req, -ENOBUFS);
	}
	return NULL;
}

static void check_bounds(int q, bool *good)
{
	struct sits_queue_facts f = queue_facts(q);

	*good = *good && f.nr_waiting + f.nr_running <= f.depth && f.nr_clients <= f.max_clients;
}

static void be_honest(const struct chan *c, int q, int rounds, bool *echoes, bool *bounds)
{
	char data[300];
	uint64_t state = seed + 1;

	for (int i = 0; i < rounds; i++) {
		uint32_t len = 1 + rnd(&state) % sizeof(data);
		struct sits_chunk_hdr h;
		uint64_t req;
		int ret;

		for (uint32_t k = 0; k < len; k++)
			data[k] = rnd(&state);
		do
			ret = submit(c, data, len, &req);
		while (ret == -EBUSY);		/* the queue is full, of the other's */
		ret = ret ?: recv_by(BY_URING, c, 4096);
		h = chunk_hdr(c, RECV_OFF);
		if (ret != (int)(sizeof(h) + len) || h.req != req || h.status ||
		    memcmp(c->arena + RECV_OFF + sizeof(h), data, len)) {
			if (*echoes)
				printf("# round %d: %d, status %d\n", i, ret, h.status);
			*echoes = false;
		}
		if (i % 16 == 0)
			check_bounds(q, bounds);
	}
}

int main(int argc, char **argv)
{
	bool echoes = true, bounds = true;
	int ready[2], q;
	pthread_t thread;
	struct timespec ts;
	struct chan c;
	pid_t pid;
	char byte;

	clock_gettime(CLOCK_REALTIME, &ts);
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)ts.tv_nsec * 2654435761u + ts.tv_sec;
	seed |= 1;
	printf("# seed %llu\n", (unsigned long long)seed);
	open_dev();
	q = queue_create(OPTS(.depth = 12, .per_client = 8, .max_clients = 2));
	need(q >= 0 && !pipe(ready), "QUEUE_CREATE: %d", q);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		be_hostile(ready[1]);
	ways_init();
	c = channel_open("q");
	pthread_create(&thread, NULL, serve, &q);
	need(read(ready[0], &byte, 1) == 1, "read");
	be_honest(&c, q, HONEST_ROUNDS, &echoes, &bounds);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	be_honest(&c, q, 100, &echoes, &bounds);
	check(echoes, "%d requests of the honest client come back", HONEST_ROUNDS + 100);
	check(bounds, "the bounds of the queue hold");
	for (int tries = 0; tries < NEVER_MS / 10 && queue_facts(q).nr_running + queue_facts(q).nr_waiting; tries++)
		usleep(10000);
	check_int(queue_facts(q).nr_running + queue_facts(q).nr_waiting, 0, "all that the hostile one left behind ends");
	__atomic_store_n(&stop_daemon, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	check_int(nr_wrong, 0, "every event is whole");
	channel_close(&c);
	close(q);
	check(no_queue_left(), "nothing is left");
	ways_fini();
	return done();
}
