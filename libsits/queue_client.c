// SPDX-License-Identifier: MIT
/*
 * queue_client.c - one client of a queue: its arena, its messages, and the way back to it.
 *
 * Everything that comes from a client is hostile. Its messages are copies in our own memory; its
 * arena is memory that it can change at any time, so each word of it is read once, and request bytes
 * are copied out before anybody looks at them. Whoever breaks the protocol is disconnected, and no
 * other client notices.
 */
#include "libsits/queue_user.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define HELLO_WITHIN_NS (5 * SITS_NSEC_PER_SEC)
#define MUTE_MAX 16		/* connections that have not said HELLO */
#define HELD_OVERHEAD 128	/* what keeping an answer costs beside its bytes */
#define OUTSTANDING_SLACK 16	/* beyond per_client: requests that are told -EBUSY */

static struct client *client_of(struct sits_conn *conn)
{
	return (struct client *)conn;	/* its first member */
}

/* --------------------------------------------------------- coming and going */

static void refuse(int fd, int status)
{
	struct sits_wire_welcome w = {
		.hdr = sits_wire_hdr(SITS_WIRE_WELCOME, sizeof(w)),
		.status = status, .version = SITS_WIRE_VERSION,
	};

	sits_wire_send(fd, &w, sizeof(w));
	close(fd);
}

/* Who connects and says nothing gives way to who comes later. */
static void drop_oldest_mute(struct queue *q)
{
	struct sits_conn *conn;

	TAILQ_FOREACH(conn, &q->loop.conns, link)
		if (!conn->gone && client_of(conn)->hello_by_ns) {
			sits_uq_client_drop(client_of(conn));
			return;
		}
}

static void on_accepted(void *arg, int fd)
{
	struct queue *q = arg;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct client *c;

	if (q->loop.stopping || q->nr_clients - q->nr_mute >= q->opts.max_clients) {
		refuse(fd, q->loop.stopping ? -ESHUTDOWN : -EBUSY);
		return;
	}
	if (q->nr_mute >= MUTE_MAX)
		drop_oldest_mute(q);
	c = calloc(1, sizeof(*c));
	if (!c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
		free(c);
		refuse(fd, -ENOMEM);
		return;
	}
	c->queue = q;
	c->conn.fd = fd;
	c->id = ++q->next_client;
	c->uid = cred.uid;
	c->pid = (uint32_t)cred.pid;
	c->hello_by_ns = sits_now_ns() + HELLO_WITHIN_NS;
	TAILQ_INIT(&c->waiting);
	TAILQ_INIT(&c->fetched);
	TAILQ_INIT(&c->held);
	q->nr_clients++;
	q->nr_mute++;
	sits_uq_note_timer(q, c->hello_by_ns);
	sits_loop_add(&q->loop, &c->conn);
}

static void drop_requests(struct client *c)
{
	struct queue *q = c->queue;
	struct request *r;

	while ((r = TAILQ_FIRST(&c->waiting))) {
		q->stats.cancelled++;
		sits_uq_request_free(q, r);
	}
	while ((r = TAILQ_FIRST(&c->fetched))) {
		sits_uq_request_cancel(q, r, -ECANCELED);
		TAILQ_REMOVE(&c->fetched, r, link);
		r->client = NULL;
		r->backlog = 0;
	}
	c->nr_requests = 0;
}

static void drop_held(struct client *c)
{
	struct held *h;

	while ((h = TAILQ_FIRST(&c->held))) {
		TAILQ_REMOVE(&c->held, h, link);
		explicit_bzero(h->data, h->len);
		free(h);
	}
	c->nr_owed = 0;
}

void sits_uq_client_drop(struct client *c)
{
	struct queue *q = c->queue;

	if (c->conn.gone)
		return;
	sits_loop_drop(&q->loop, &c->conn);
	drop_requests(c);
	drop_held(c);
	if (c->on_ready)
		TAILQ_REMOVE(&q->ready, c, ready);
	c->on_ready = false;
	if (c->arena)
		munmap(c->arena, c->arena_bytes);
	c->arena = NULL;
	c->ctl = NULL;
	q->nr_clients--;
	if (c->hello_by_ns)
		q->nr_mute--;
}

static void on_eof(void *arg, struct sits_conn *conn)
{
	sits_uq_client_drop(client_of(conn));
}

static void on_closed(void *arg, struct sits_conn *conn)
{
	free(client_of(conn));
}

static void misbehaved(struct client *c, const char *what)
{
	sits_uq_warn(c->queue, "queue '%s': client of uid %u, pid %u disconnected: %s",
		     c->queue->name, c->uid, c->pid, what);
	sits_uq_client_drop(c);
}

/* ------------------------------------------------------------------- chunks */

/* Send one piece. Return: bytes of it that went (all of @len up to a limit), -EAGAIN, -EPIPE. */
static ssize_t send_piece(struct client *c, uint64_t creq, const uint8_t *data, size_t len,
			  int status, bool last)
{
	size_t most = SITS_MAX(c->rx.bytes / 4, 4096u);
	size_t piece = SITS_MIN(len, most);
	struct sits_wire_chunk m = {
		.hdr = sits_wire_hdr(SITS_WIRE_CHUNK, sizeof(m)),
		.req = creq, .len = (uint32_t)piece, .rx_end = c->rx.head,
	};
	uint64_t off;
	int ret;

	if (piece) {
		if (!sits_ring_place(&c->rx, piece, &off, &m.rx_end))
			return -EAGAIN;
		m.off = c->rx_off + off;
		memcpy(c->arena + m.off, data, piece);
	}
	if (piece < len) {
		m.hdr.flags = SITS_WIRE_MORE;
	} else if (last) {
		m.hdr.flags = SITS_WIRE_LAST;
		m.status = status;
	}
	ret = sits_wire_send(c->conn.fd, &m, sizeof(m));
	if (ret == -EAGAIN) {
		sits_loop_want_write(&c->queue->loop, &c->conn);
		return ret;
	}
	if (ret)
		return -EPIPE;
	c->rx.head = m.rx_end;
	c->queue->stats.bytes_out += piece;
	return (ssize_t)piece;
}

/* Take over how far the client has read. Return: false where it lies, and it is dropped. */
static bool refresh_rx(struct client *c)
{
	if (sits_ring_set_done(&c->rx, __atomic_load_n(&c->ctl->rx_done, __ATOMIC_ACQUIRE)))
		return true;
	misbehaved(c, "its arena's rx_done is out of range");
	return false;
}

/* Ask for a KICK once the client has read on. Return: true where it already has. */
static bool wait_for_room(struct client *c)
{
	uint64_t before = c->rx.done;

	__atomic_store_n(&c->ctl->rx_wait, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return refresh_rx(c) && c->rx.done != before;
}

/* Send as much of a chunk as goes. @sent: in and out. Return: 0 all of it; -EAGAIN; -EPIPE. */
static int send_chunk(struct client *c, uint64_t creq, const uint8_t *data, size_t len,
		      size_t *sent, int status, bool last)
{
	do {
		ssize_t n = send_piece(c, creq, len ? data + *sent : NULL, len - *sent, status,
				       last);

		if (n == -EAGAIN && !c->conn.want_write && wait_for_room(c))
			continue;
		if (c->conn.gone)
			return -EPIPE;
		if (n < 0) {
			if (n == -EPIPE)
				sits_uq_client_drop(c);
			return (int)n;
		}
		*sent += (size_t)n;
		if (*sent == len)
			return 0;
	} while (true);
}

static void forget_held(struct client *c, struct held *h)
{
	struct request *r = sits_uq_request_find(c->queue, h->req_id);

	TAILQ_REMOVE(&c->held, h, link);
	if (r)
		r->backlog -= h->len + HELD_OVERHEAD;
	if (h->last)
		c->nr_owed--;
	explicit_bzero(h->data, h->len);
	free(h);
}

void sits_uq_client_flush(struct client *c)
{
	struct held *h;

	if (c->conn.gone || !c->arena || !refresh_rx(c))
		return;
	while ((h = TAILQ_FIRST(&c->held))) {
		if (send_chunk(c, h->creq, h->data, h->len, &h->sent, h->status, h->last))
			return;
		forget_held(c, h);
	}
}

static int hold(struct client *c, struct request *r, uint64_t creq, const uint8_t *data,
		size_t len, size_t sent, int status, bool last)
{
	struct held *h = malloc(sizeof(*h) + len);

	if (!h)
		return -ENOMEM;
	*h = (struct held){
		.req_id = r ? r->id : 0, .creq = creq, .status = status, .last = last,
		.len = len, .sent = sent,
	};
	if (len > sent)
		memcpy(h->data + sent, data + sent, len - sent);
	memset(h->data, 0, sent);
	TAILQ_INSERT_TAIL(&c->held, h, link);
	if (r)
		r->backlog += len + HELD_OVERHEAD;
	if (last)
		c->nr_owed++;
	return 0;
}

/* Would this answer go over what may be kept for the request? */
static bool over_backlog(const struct client *c, const struct request *r, size_t len, bool last)
{
	const uint64_t limit = c->queue->opts.chunk_backlog;
	uint64_t off, end;

	if (!r || r->backlog + len + HELD_OVERHEAD <= limit)
		return false;
	if (last && len <= limit)	/* an end is always taken, and kept once */
		return false;
	return !TAILQ_EMPTY(&c->held) || !sits_ring_place(&c->rx, len, &off, &end);
}

int sits_uq_client_answer(struct client *c, struct request *r, uint64_t creq, const void *data,
			  size_t len, int status, bool last)
{
	size_t sent = 0;
	int ret;

	sits_uq_client_flush(c);
	if (c->conn.gone)
		return -EPIPE;
	if (over_backlog(c, r, len, last))
		return -ENOBUFS;
	if (TAILQ_EMPTY(&c->held)) {
		ret = send_chunk(c, creq, data, len, &sent, status, last);
		if (ret != -EAGAIN)
			return ret;
	}
	ret = hold(c, r, creq, data, len, sent, status, last);
	if (ret && sent)	/* half a chunk can't be taken back */
		misbehaved(c, "no memory to keep its answer");
	return ret;
}

static void on_writable(void *arg, struct sits_conn *conn)
{
	sits_uq_client_flush(client_of(conn));
}

/* ----------------------------------------------------------------- messages */

static bool ring_ok(uint64_t off, uint64_t bytes, uint64_t arena)
{
	return bytes >= SITS_ARENA_ALIGN && !(bytes % SITS_ARENA_ALIGN) &&
	       !(off % SITS_ARENA_ALIGN) && off >= SITS_ARENA_CTL && off <= arena &&
	       bytes <= arena - off;
}

/*
 * An arena that can't be pulled away under us: a memfd on shmem (pages of a hugetlb pool may run
 * out at any fault), sealed against shrinking, of the size it says.
 */
static const char *check_arena(const struct sits_wire_hello *m, int fd)
{
	struct statfs fs;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return "its arena is no memfd";
	if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return "its arena is not sealed against shrinking and growing";
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return "its arena is not ordinary memory";
	if (m->arena_bytes < SITS_ARENA_MIN || m->arena_bytes > SITS_ARENA_MAX ||
	    m->arena_bytes % SITS_ARENA_CTL)
		return "its arena's size is out of range";
	if (fstat(fd, &st) || (uint64_t)st.st_size != m->arena_bytes)
		return "its arena is of another size than it says";
	if (!ring_ok(m->tx_off, m->tx_bytes, m->arena_bytes) ||
	    !ring_ok(m->rx_off, m->rx_bytes, m->arena_bytes) || m->rx_bytes < SITS_ARENA_RX_MIN)
		return "its rings are not within its arena";
	return NULL;
}

static int map_arena(struct client *c, const struct sits_wire_hello *m, int fd)
{
	void *p = mmap(NULL, m->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	madvise(p, m->arena_bytes, MADV_DONTFORK);
	madvise(p, m->arena_bytes, MADV_DONTDUMP);
	c->arena = p;
	c->arena_bytes = m->arena_bytes;
	c->ctl = p;
	c->tx_off = m->tx_off;
	c->tx_bytes = m->tx_bytes;
	c->rx_off = m->rx_off;
	c->rx.bytes = m->rx_bytes;
	return 0;
}

static void on_hello(struct client *c, const struct sits_wire_hello *m, const int *fds,
		     int nr_fds)
{
	struct queue *q = c->queue;
	struct sits_wire_welcome w = {
		.hdr = sits_wire_hdr(SITS_WIRE_WELCOME, sizeof(w)), .version = SITS_WIRE_VERSION,
		.max_outstanding = q->opts.per_client + OUTSTANDING_SLACK,
	};
	const char *wrong = NULL;

	if (!c->hello_by_ns || nr_fds != 1 || m->magic != SITS_WIRE_MAGIC) {
		misbehaved(c, "its HELLO is malformed");
		return;
	}
	if (m->version != SITS_WIRE_VERSION)
		w.status = -EPROTONOSUPPORT;
	else if (q->nr_clients - q->nr_mute >= q->opts.max_clients)
		w.status = -EBUSY;
	if (w.status) {
		sits_wire_send(c->conn.fd, &w, sizeof(w));
		sits_uq_client_drop(c);
		return;
	}
	wrong = check_arena(m, fds[0]);
	if (!wrong && map_arena(c, m, fds[0]))
		wrong = "its arena cannot be mapped";
	if (!wrong && sits_wire_send(c->conn.fd, &w, sizeof(w)))
		wrong = "it does not listen";
	if (wrong) {
		misbehaved(c, wrong);
		return;
	}
	c->hello_by_ns = 0;
	q->nr_mute--;
}

/* Answer a SUBMIT that is not taken. */
static void turn_away(struct client *c, uint64_t creq, int status)
{
	struct queue *q = c->queue;

	if (c->nr_owed >= q->opts.per_client + OUTSTANDING_SLACK) {
		misbehaved(c, "it collects no answers");
		return;
	}
	sits_uq_client_publish_tx(c);
	if (sits_uq_client_answer(c, NULL, creq, NULL, 0, status, true))
		sits_uq_client_drop(c);	/* it would wait for ever */
}

static void on_submit(struct client *c, const struct sits_wire_submit *m)
{
	struct queue *q = c->queue;
	uint64_t tx_start = c->tx_end;
	struct request *r = NULL;

	if (m->req <= c->last_creq || !m->len || m->len > SITS_REQUEST_MAX ||
	    m->off < c->tx_off || m->off > c->tx_off + c->tx_bytes ||
	    m->len > c->tx_off + c->tx_bytes - m->off) {
		misbehaved(c, "its SUBMIT is malformed");
		return;
	}
	c->last_creq = m->req;
	c->tx_end = m->tx_end;
	if (q->intake_closed) {
		turn_away(c, m->req, -ESHUTDOWN);
		return;
	}
	if (c->nr_requests + c->nr_owed < q->opts.per_client)
		r = sits_uq_request_new(q, c);
	if (!r) {
		q->stats.refused_busy++;
		turn_away(c, m->req, -EBUSY);
		return;
	}
	r->creq = m->req;
	r->off = m->off;
	r->len = m->len;
	r->tx_start = tx_start;
	r->deadline_ns = m->deadline_ns;
	q->stats.requests++;
	q->stats.bytes_in += m->len;
	if (r->deadline_ns)
		sits_uq_note_timer(q, r->deadline_ns);
	if (!c->on_ready) {
		c->on_ready = true;
		TAILQ_INSERT_TAIL(&q->ready, c, ready);
	}
}

static struct request *find_creq(struct request_list *list, uint64_t creq)
{
	struct request *r;

	TAILQ_FOREACH(r, list, link)
		if (r->creq == creq)
			return r;
	return NULL;
}

static void on_cancel(struct client *c, const struct sits_wire_cancel *m)
{
	struct request *r = find_creq(&c->waiting, m->req);

	if (!r)
		r = find_creq(&c->fetched, m->req);
	if (r)		/* else its end is on the way */
		sits_uq_request_cancel(c->queue, r, -ECANCELED);
}

void sits_uq_client_publish_tx(struct client *c)
{
	struct request *first = TAILQ_FIRST(&c->waiting);

	if (c->ctl)
		__atomic_store_n(&c->ctl->tx_done, first ? first->tx_start : c->tx_end,
				 __ATOMIC_RELEASE);
}

static size_t size_of(uint16_t type)
{
	switch (type) {
	case SITS_WIRE_HELLO:
		return sizeof(struct sits_wire_hello);
	case SITS_WIRE_SUBMIT:
		return sizeof(struct sits_wire_submit);
	case SITS_WIRE_CANCEL:
		return sizeof(struct sits_wire_cancel);
	case SITS_WIRE_KICK:
		return sizeof(struct sits_wire_kick);
	default:
		return 0;
	}
}

/* Return: NULL, or what is wrong with the outer form of a message. */
static const char *check_form(const struct client *c, const void *buf, size_t len, int nr_fds,
			      bool truncated)
{
	struct sits_wire_hdr hdr;

	if (truncated || len < sizeof(hdr))
		return "a message of a wrong size";
	memcpy(&hdr, buf, sizeof(hdr));
	if (!size_of(hdr.type))
		return "a message of an unknown type";
	if (hdr.size != len || len != size_of(hdr.type) || hdr.flags)
		return "a message of a wrong size or with unknown flags";
	if (nr_fds && hdr.type != SITS_WIRE_HELLO)
		return "a message with a descriptor";
	if (hdr.type != SITS_WIRE_HELLO && c->hello_by_ns)
		return "a message before HELLO";
	return NULL;
}

static void dispatch(struct client *c, const int *fds, int nr_fds)
{
	union {
		struct sits_wire_hdr hdr;
		struct sits_wire_hello hello;
		struct sits_wire_submit submit;
		struct sits_wire_cancel cancel;
		uint8_t bytes[SITS_WIRE_MAX];
	} m;

	memcpy(&m, c->conn.buf, sizeof(m));
	switch (m.hdr.type) {
	case SITS_WIRE_HELLO:
		on_hello(c, &m.hello, fds, nr_fds);
		break;
	case SITS_WIRE_SUBMIT:
		on_submit(c, &m.submit);
		break;
	case SITS_WIRE_CANCEL:
		on_cancel(c, &m.cancel);
		break;
	default:	/* KICK */
		sits_uq_client_flush(c);
		break;
	}
}

static void on_message(void *arg, struct sits_conn *conn, size_t len, const int *fds, int nr_fds,
		       bool truncated)
{
	struct client *c = client_of(conn);
	const char *wrong = check_form(c, conn->buf, len, nr_fds, truncated);

	if (wrong)
		misbehaved(c, wrong);
	else
		dispatch(c, fds, nr_fds);
	for (int i = 0; i < nr_fds; i++)
		close(fds[i]);
}

const struct sits_loop_handler sits_uq_handler = {
	.accepted = on_accepted,
	.message = on_message,
	.eof = on_eof,
	.writable = on_writable,
	.closed = on_closed,
};
