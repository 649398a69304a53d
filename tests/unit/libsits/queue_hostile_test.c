// SPDX-License-Identifier: MIT
/*
 * queue_hostile_test.c - clients that break the protocol, by every field and at random.
 *
 * They speak to the daemon's socket without libsits. Each must find itself disconnected, while an
 * honest client beside them is served, and no descriptor or mapping stays behind.
 */
#include "tests/unit/libsits/queue_peer.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "libsits/wire.h"

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004U
#endif

#define ARENA (256u << 10)

/* One setup for all cases: a daemon, an honest client, and a hostile one made anew for each. */
struct scene {
	struct peer p;
	struct sits_channel *honest;
	int sock;
	int arena_fd;
	uint8_t *arena;
	struct sits_wire_hello hello;
};

static struct scene s;

static int connect_raw(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const struct timeval limit = { .tv_sec = 20 };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/q.sock", s.p.dir);
	assert_int_equal(connect(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return sock;
}

static int make_arena(unsigned int mfd_flags, uint64_t bytes, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | mfd_flags);

	if (fd < 0)
		return -1;
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static struct sits_wire_hello good_hello(void)
{
	return (struct sits_wire_hello){
		.hdr = sits_wire_hdr(SITS_WIRE_HELLO, sizeof(struct sits_wire_hello)),
		.magic = SITS_WIRE_MAGIC, .version = SITS_WIRE_VERSION, .arena_bytes = ARENA,
		.tx_off = 4096, .tx_bytes = 128 << 10,
		.rx_off = 4096 + (128 << 10), .rx_bytes = ARENA - 4096 - (128 << 10),
	};
}

/* Send @len bytes with @nr copies of @fd. Return: false where the connection is gone already. */
static bool send_with_fds(int sock, const void *msg, size_t len, int fd, int nr)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)msg, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (nr) {
		mh.msg_control = control;
		mh.msg_controllen = CMSG_SPACE((size_t)nr * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nr * sizeof(int));
		for (int i = 0; i < nr; i++)
			memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &fd, sizeof(fd));
	}
	return sendmsg(sock, &mh, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Completions of the honest client's ring interrupt a receive that has a time limit. */
static ssize_t recv_whole(int sock, void *buf, size_t len)
{
	ssize_t n;

	do {
		n = recv(sock, buf, len, 0);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* A hostile client that has behaved so far. */
static void begin(void)
{
	struct sits_wire_welcome w;

	s.sock = connect_raw();
	s.arena_fd = make_arena(0, ARENA, F_SEAL_SHRINK | F_SEAL_GROW);
	s.arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, s.arena_fd, 0);
	assert_true(s.arena != MAP_FAILED);
	s.hello = good_hello();
	assert_true(send_with_fds(s.sock, &s.hello, sizeof(s.hello), s.arena_fd, 1));
	assert_int_equal(recv_whole(s.sock, &w, sizeof(w)), sizeof(w));
	assert_int_equal(w.status, 0);
}

static void end(void)
{
	munmap(s.arena, ARENA);
	close(s.arena_fd);
	close(s.sock);
}

/* Read until the connection ends. Return: false where it does not. */
static bool is_disconnected(int sock)
{
	char buf[128];
	ssize_t n;

	do {
		n = recv(sock, buf, sizeof(buf), 0);
	} while (n > 0 || (n < 0 && (errno == EINTR || errno == ECONNRESET)));
	return n == 0;
}

static void honest_is_served(void)
{
	struct sits_chunk chunk;
	uint64_t req;

	assert_int_equal(sits_channel_submit(s.honest, "Eservice", 8, 0, &req), 0);
	assert_int_equal(sits_channel_recv(s.honest, &chunk, 20000), 1);
	assert_int_equal(chunk.req, req);
	assert_int_equal(chunk.status, 0);
	assert_int_equal(chunk.len, 7);
	assert_memory_equal(chunk.data, "service", 7);
}

static struct sits_wire_submit good_submit(uint64_t req, const char *text)
{
	struct sits_wire_submit m = {
		.hdr = sits_wire_hdr(SITS_WIRE_SUBMIT, sizeof(m)), .req = req, .off = 4096,
		.len = strlen(text), .tx_end = req * 4096,
	};

	memcpy(s.arena + m.off, text, m.len);
	return m;
}

/* The behaving client sends @msg and must be thrown out. */
static void expect_out(const void *msg, size_t len, int fds, const char *what)
{
	send_with_fds(s.sock, msg, len, s.arena_fd, fds);
	if (!is_disconnected(s.sock))
		fail_msg("%s: still connected", what);
	end();
	honest_is_served();
}

static int setup(void **state)
{
	const char *engine = *state;

	if (!strcmp(engine, "poll"))
		setenv("SITS_NO_IO_URING", "1", 1);
	else
		unsetenv("SITS_NO_IO_URING");
	memset(&s, 0, sizeof(s));
	peer_start(&s.p, NULL);
	s.honest = peer_channel(&s.p);
	return 0;
}

static int teardown(void **state)
{
	sits_channel_close(s.honest);
	peer_end(&s.p);
	return 0;
}

/* ------------------------------------------------------------------------- HELLO */

static void expect_hello_refused(const struct sits_wire_hello *m, size_t len, int fd, int nr_fds,
				 const char *what)
{
	int sock = connect_raw();

	send_with_fds(sock, m, len, fd, nr_fds);
	if (!is_disconnected(sock))
		fail_msg("%s: still connected", what);
	close(sock);
	honest_is_served();
}

static void test_hello_values(void **state)
{
	int fd = make_arena(0, ARENA, F_SEAL_SHRINK | F_SEAL_GROW);
	struct sits_wire_hello good = good_hello(), m;

#define BAD(field_, value_) do { m = good; m.field_ = (value_); \
		expect_hello_refused(&m, sizeof(m), fd, 1, #field_ " = " #value_); } while (0)
	BAD(magic, 0);
	BAD(version, 0);
	BAD(version, 2);
	BAD(arena_bytes, 0);
	BAD(arena_bytes, ARENA - 4096);
	BAD(arena_bytes, ARENA + 4096);
	BAD(arena_bytes, 4096);
	BAD(arena_bytes, UINT64_MAX);
	BAD(arena_bytes, 1ull << 40);
	BAD(tx_off, 0);
	BAD(tx_off, 8);
	BAD(tx_off, 4097);
	BAD(tx_off, ARENA);
	BAD(tx_off, ARENA + 4096);
	BAD(tx_off, UINT64_MAX - 7);
	BAD(tx_bytes, 0);
	BAD(tx_bytes, 12);
	BAD(tx_bytes, ARENA);
	BAD(tx_bytes, UINT64_MAX - 7);
	BAD(rx_off, 0);
	BAD(rx_off, ARENA - 8);
	BAD(rx_off, UINT64_MAX - 7);
	BAD(rx_bytes, 0);
	BAD(rx_bytes, 8);
	BAD(rx_bytes, ARENA);
	BAD(rx_bytes, UINT64_MAX - 7);
	BAD(hdr.size, 0);
	BAD(hdr.size, sizeof(m) + 8);
	BAD(hdr.flags, 1);
#undef BAD
	expect_hello_refused(&good, sizeof(good), fd, 0, "no descriptor");
	expect_hello_refused(&good, sizeof(good), fd, 2, "two descriptors");
	expect_hello_refused(&good, sizeof(good), fd, 3, "three descriptors");
	expect_hello_refused(&good, sizeof(good), fd, 64, "64 descriptors");
	for (size_t len = 1; len < sizeof(good); len++)
		expect_hello_refused(&good, len, fd, 1, "cut off");
	close(fd);
}

static void test_hello_descriptors(void **state)
{
	struct sits_wire_hello good = good_hello();
	char path[128];
	int fd, pipefd[2];

	fd = make_arena(0, ARENA, 0);
	expect_hello_refused(&good, sizeof(good), fd, 1, "no seals");
	close(fd);
	fd = make_arena(0, ARENA, F_SEAL_SHRINK);
	expect_hello_refused(&good, sizeof(good), fd, 1, "may grow");
	close(fd);
	fd = make_arena(0, ARENA, F_SEAL_GROW);
	expect_hello_refused(&good, sizeof(good), fd, 1, "may shrink");
	close(fd);
	fd = make_arena(0, ARENA, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	expect_hello_refused(&good, sizeof(good), fd, 1, "read-only");
	close(fd);
	fd = make_arena(0, ARENA / 2, F_SEAL_SHRINK | F_SEAL_GROW);
	expect_hello_refused(&good, sizeof(good), fd, 1, "too short");
	close(fd);
	fd = make_arena(MFD_HUGETLB, 2 << 20, F_SEAL_SHRINK | F_SEAL_GROW);
	if (fd >= 0) {
		struct sits_wire_hello m = good;

		m.arena_bytes = 2 << 20;
		expect_hello_refused(&m, sizeof(m), fd, 1, "huge pages that may run out");
		close(fd);
	}
	snprintf(path, sizeof(path), "%s/file", s.p.dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, ARENA), 0);
	expect_hello_refused(&good, sizeof(good), fd, 1, "a file");
	close(fd);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	expect_hello_refused(&good, sizeof(good), fd, 1, "a device");
	close(fd);
	assert_int_equal(pipe(pipefd), 0);
	expect_hello_refused(&good, sizeof(good), pipefd[0], 1, "a pipe");
	close(pipefd[0]);
	close(pipefd[1]);
}

static void test_hello_twice(void **state)
{
	begin();
	expect_out(&s.hello, sizeof(s.hello), 1, "second HELLO");
}

/* Connections that say nothing give way, and do not count as clients. */
static void test_silent_connections(void **state)
{
	struct sits_queue_stats stats;
	struct sits_channel *ch;
	int socks[100];

	for (int i = 0; i < 100; i++)
		socks[i] = connect_raw();
	assert_int_equal(sits_channel_open(s.p.ctx, "q", 0, &ch), 0);
	sits_queue_get_stats(s.p.queue, &stats);
	assert_int_equal(stats.clients, 2);
	assert_true(is_disconnected(socks[0]));
	for (int i = 0; i < 100; i++)
		close(socks[i]);
	sits_channel_close(ch);
	honest_is_served();
}

/* ------------------------------------------------------------------------ messages */

static void test_before_hello(void **state)
{
	struct sits_wire_cancel cancel = { .hdr = sits_wire_hdr(SITS_WIRE_CANCEL, sizeof(cancel)) };
	struct sits_wire_kick kick = { .hdr = sits_wire_hdr(SITS_WIRE_KICK, sizeof(kick)) };
	struct sits_wire_submit submit = {
		.hdr = sits_wire_hdr(SITS_WIRE_SUBMIT, sizeof(submit)), .req = 1, .off = 4096, .len = 1,
	};

	expect_hello_refused((void *)&submit, sizeof(submit), -1, 0, "SUBMIT");
	expect_hello_refused((void *)&cancel, sizeof(cancel), -1, 0, "CANCEL");
	expect_hello_refused((void *)&kick, sizeof(kick), -1, 0, "KICK");
}

static void test_submit_values(void **state)
{
	const uint64_t tx_end = 4096 + (128 << 10);

#define BAD(field_, value_) do { struct sits_wire_submit m; \
		begin(); m = good_submit(7, "Ex"); m.field_ = (value_); \
		expect_out(&m, sizeof(m), 0, #field_ " = " #value_); } while (0)
	BAD(req, 0);
	BAD(off, 0);
	BAD(off, 4095);
	BAD(off, tx_end);
	BAD(off, tx_end - 1);
	BAD(off, ARENA);
	BAD(off, UINT64_MAX);
	BAD(off, UINT64_MAX - 1);
	BAD(len, 0);
	BAD(len, (128 << 10) + 1);
	BAD(len, SITS_REQUEST_MAX);
	BAD(len, UINT64_MAX);
	BAD(len, UINT64_MAX - 4095);
	BAD(hdr.size, sizeof(m) - 8);
	BAD(hdr.size, UINT32_MAX);
	BAD(hdr.flags, 1);
	BAD(hdr.type, 0);
	BAD(hdr.type, SITS_WIRE_WELCOME);
	BAD(hdr.type, SITS_WIRE_CHUNK);
	BAD(hdr.type, SITS_WIRE_CANCEL);
	BAD(hdr.type, 7);
	BAD(hdr.type, 65535);
#undef BAD
}

static void test_submit_again(void **state)
{
	struct sits_wire_submit m;

	begin();	/* the same number twice, while the first is held */
	m = good_submit(7, "H");
	assert_true(send_with_fds(s.sock, &m, sizeof(m), -1, 0));
	expect_out(&m, sizeof(m), 0, "duplicate number");
	begin();	/* a number from the past, whose request has ended */
	m = good_submit(7, "Ex");
	assert_true(send_with_fds(s.sock, &m, sizeof(m), -1, 0));
	m = good_submit(6, "Ex");
	expect_out(&m, sizeof(m), 0, "number from the past");
}

static void test_sizes_of_messages(void **state)
{
	uint8_t big[8192] = { 0 };
	struct sits_wire_submit m;

	begin();
	m = good_submit(1, "Ex");
	memcpy(big, &m, sizeof(m));
	for (size_t len = 1; len < sizeof(m); len += 3) {
		expect_out(big, len, 0, "short message");
		begin();
	}
	expect_out(big, sizeof(m) + 1, 0, "long message");
	begin();
	expect_out(big, sizeof(big), 0, "very long message");
	begin();
	expect_out(big, 0, 0, "empty message");
}

static void test_descriptors_with_messages(void **state)
{
	struct sits_wire_submit m;

	for (int fds = 1; fds <= 64; fds *= 4) {
		begin();
		m = good_submit(1, "Ex");
		expect_out(&m, sizeof(m), fds, "descriptors with SUBMIT");
	}
}

/* Cancels of what never was, or is over, are nothing bad: they cross with ends. */
static void test_cancel_of_nothing(void **state)
{
	struct sits_wire_cancel c = { .hdr = sits_wire_hdr(SITS_WIRE_CANCEL, sizeof(c)), .req = 99 };
	struct sits_wire_kick k = { .hdr = sits_wire_hdr(SITS_WIRE_KICK, sizeof(k)) };
	struct sits_wire_chunk chunk;
	struct sits_wire_submit m;

	begin();
	for (int i = 0; i < 50; i++) {
		assert_true(send_with_fds(s.sock, &c, sizeof(c), -1, 0));
		assert_true(send_with_fds(s.sock, &k, sizeof(k), -1, 0));
	}
	m = good_submit(1, "Ex");
	assert_true(send_with_fds(s.sock, &m, sizeof(m), -1, 0));
	assert_int_equal(recv_whole(s.sock, &chunk, sizeof(chunk)), sizeof(chunk));
	assert_int_equal(chunk.hdr.type, SITS_WIRE_CHUNK);
	assert_int_equal(chunk.req, 1);
	assert_int_equal(chunk.len, 1);
	assert_in_range(chunk.off, s.hello.rx_off, ARENA - 1);
	assert_int_equal(s.arena[chunk.off], 'x');
	end();
	honest_is_served();
}

/* --------------------------------------------------------------------- shared memory */

static void test_lies_in_shared_memory(void **state)
{
	static const uint64_t lies[] = { 1, 8, 4096, 1 << 20, UINT64_MAX, UINT64_MAX / 2 };
	struct sits_wire_submit m;
	struct sits_wire_ctl *ctl;

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		begin();
		ctl = (struct sits_wire_ctl *)s.arena;
		__atomic_store_n(&ctl->rx_done, lies[i], __ATOMIC_SEQ_CST);	/* nothing came yet */
		m = good_submit(1, "Ex");
		expect_out(&m, sizeof(m), 0, "rx_done ahead of what was sent");
	}
}

struct scribbler {
	uint8_t *arena;
	int fd;
	int stop;	/* atomic */
};

static void *scribble(void *arg)
{
	struct scribbler *sc = arg;
	uint32_t x = 12345;

	while (!__atomic_load_n(&sc->stop, __ATOMIC_RELAXED)) {
		for (int i = 0; i < 64; i++) {
			x = x * 1664525u + 1013904223u;
			/* Not the control words: lies there end the connection; nor the first byte. */
			__atomic_store_n(sc->arena + 8192 + x % (ARENA - 8192), (uint8_t)(x >> 24),
					 __ATOMIC_RELAXED);
		}
		/* Pages come and go under the daemon: it must see zeros, not SIGBUS. */
		fallocate(sc->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  8192 + x % 60 * 4096, 4096);
	}
	return NULL;
}

/* Receive one answer whole, giving back what was read. Return: bytes of it. */
static size_t receive_answer(uint64_t req)
{
	struct sits_wire_kick kick = { .hdr = sits_wire_hdr(SITS_WIRE_KICK, sizeof(kick)) };
	struct sits_wire_ctl *ctl = (struct sits_wire_ctl *)s.arena;
	struct sits_wire_chunk chunk;
	size_t total = 0;

	do {
		assert_int_equal(recv_whole(s.sock, &chunk, sizeof(chunk)), sizeof(chunk));
		assert_int_equal(chunk.req, req);
		total += chunk.len;
		__atomic_store_n(&ctl->rx_done, chunk.rx_end, __ATOMIC_SEQ_CST);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_exchange_n(&ctl->rx_wait, 0, __ATOMIC_SEQ_CST))
			assert_true(send_with_fds(s.sock, &kick, sizeof(kick), -1, 0));
	} while (!(chunk.hdr.flags & SITS_WIRE_LAST));
	return total;
}

static void test_arena_changes_under_the_daemon(void **state)
{
	struct scribbler sc;
	struct sits_wire_submit m;
	pthread_t thread;

	begin();
	sc = (struct scribbler){ .arena = s.arena, .fd = s.arena_fd };
	pthread_create(&thread, NULL, scribble, &sc);
	for (uint64_t req = 1; req <= 2000; req++) {
		m = good_submit(req, "E0123456789");
		m.len = 60000;
		assert_true(send_with_fds(s.sock, &m, sizeof(m), -1, 0));
		assert_int_equal(receive_answer(req), 59999);
		if (req % 50 == 0)
			honest_is_served();
	}
	__atomic_store_n(&sc.stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	end();
	honest_is_served();
}

/* Never reads, always asks: what is kept for it is bounded, and it is thrown out. */
static void test_asks_and_never_reads(void **state)
{
	struct sits_wire_submit m;
	uint64_t req = 0;

	begin();
	do {
		m = good_submit(++req, "E0123456789");
		if (req % 100 == 0)
			honest_is_served();
		assert_true(req < 1000000);
	} while (send_with_fds(s.sock, &m, sizeof(m), -1, 0));
	print_message("# thrown out after %llu requests\n", (unsigned long long)req);
	assert_true(is_disconnected(s.sock));
	end();
	honest_is_served();
}

/* -------------------------------------------------------------------------- at random */

static uint64_t rng_state;

static uint64_t rng(void)	/* xorshift64, Marsaglia 2003 */
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static size_t random_message(uint8_t *msg)
{
	struct sits_wire_submit submit = good_submit(rng() % 1000, "Ex");
	struct sits_wire_cancel cancel = {
		.hdr = sits_wire_hdr(SITS_WIRE_CANCEL, sizeof(cancel)), .req = rng() % 1000,
	};
	struct sits_wire_kick kick = { .hdr = sits_wire_hdr(SITS_WIRE_KICK, sizeof(kick)) };
	size_t len;

	switch (rng() % 4) {
	case 0:
		len = sizeof(cancel);
		memcpy(msg, &cancel, len);
		break;
	case 1:
		len = sizeof(kick);
		memcpy(msg, &kick, len);
		break;
	default:
		len = sizeof(submit);
		memcpy(msg, &submit, len);
	}
	for (uint64_t k = rng() % 3; k; k--)
		msg[rng() % len] ^= (uint8_t)(1u << rng() % 8);
	return rng() % 16 ? len : rng() % 100;
}

static void test_random_messages(void **state)
{
	size_t fds, maps;

	honest_is_served();	/* so that nothing of the setup is on its way */
	fds = peer_nr_fds();
	maps = peer_nr_maps();
	rng_state = (uint64_t)time(NULL) * 2654435761u | 1;
	print_message("# seed %llu\n", (unsigned long long)rng_state);
	for (int i = 0; i < 400; i++) {
		uint8_t msg[128] = { 0 };
		char buf[128];

		begin();
		for (int k = 0; k < 30; k++) {
			size_t len = random_message(msg);
			int nr = rng() % 32 ? 0 : (int)(rng() % 5);

			if (!send_with_fds(s.sock, msg, len, s.arena_fd, nr))
				break;
			if (rng() % 2)
				while (recv(s.sock, buf, sizeof(buf), MSG_DONTWAIT) > 0)
					;
			if (rng() % 8 == 0)
				((struct sits_wire_ctl *)s.arena)->rx_done = rng() % 64;
		}
		end();
		if (i % 20 == 0)
			honest_is_served();
	}
	honest_is_served();
	assert_int_equal(peer_settled_fds(fds), fds);	/* the daemon closes the last ones */
	assert_true(peer_nr_maps() <= maps + (PEER_SANITIZED ? 100 : 2));
}

#define ENGINES(test_) \
	{ #test_ "/io_uring", test_, setup, teardown, (void *)(uintptr_t)"io_uring" }, \
	{ #test_ "/poll", test_, setup, teardown, (void *)(uintptr_t)"poll" }

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINES(test_hello_values),
		ENGINES(test_hello_descriptors),
		ENGINES(test_hello_twice),
		ENGINES(test_silent_connections),
		ENGINES(test_before_hello),
		ENGINES(test_submit_values),
		ENGINES(test_submit_again),
		ENGINES(test_sizes_of_messages),
		ENGINES(test_descriptors_with_messages),
		ENGINES(test_cancel_of_nothing),
		ENGINES(test_lies_in_shared_memory),
		ENGINES(test_arena_changes_under_the_daemon),
		ENGINES(test_asks_and_never_reads),
		ENGINES(test_random_messages),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
