// SPDX-License-Identifier: MIT
/*
 * channel_user.c - a client's channel to a daemon's queue over a unix socket.
 *
 * The protocol is wire.h, the moving of messages channel_io.c. A channel may be used by several
 * threads, of which one at a time receives; @lock guards everything, and is not held while waiting.
 */
#include "libsits/channel_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libsits/provider_user.h"
#include "libsits/whole.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U	/* Linux 6.3 */
#endif

#define OPEN_WITHIN_S 10	/* a daemon that does not answer HELLO by then is stuck */
#define HELLO_RETRY_NS (5 * SITS_NSEC_PER_MSEC)
#define CONTROL_RETRY_NS (10 * SITS_NSEC_PER_MSEC)

struct outstanding {
	uint64_t req;
	bool cancel_due;	/* CANCEL found no room in the socket */
};

/* Allocated by open, freed by close. */
struct channel {
	struct sits_channel base;	/* first */
	pthread_mutex_t lock;
	struct sits_chio io;
	char name[SITS_QUEUE_NAME_MAX];
	int sock;
	uint8_t *arena;
	uint64_t arena_bytes;
	struct sits_wire_ctl *ctl;
	uint64_t tx_off, rx_off, rx_bytes;
	struct sits_ring tx;
	uint64_t tx_end;	/* position after the last request that was sent */
	uint64_t rx_end;	/* position after the last piece that came */
	bool rx_unread;		/* the caller still looks at it */
	bool kick_due;
	uint64_t next_req;
	struct outstanding *out;
	size_t nr_out, out_room, max_out;
	struct sits_whole whole;
};

static struct channel *channel_of(struct sits_channel *base)
{
	return (struct channel *)base;	/* its first member */
}

/* -------------------------------------------------------------- outstanding */

static struct outstanding *find_out(struct channel *ch, uint64_t req)
{
	for (size_t i = 0; i < ch->nr_out; i++)
		if (ch->out[i].req == req)
			return &ch->out[i];
	return NULL;
}

static void remove_out(struct channel *ch, struct outstanding *o)
{
	*o = ch->out[--ch->nr_out];
}

static int add_out(struct channel *ch, uint64_t req)
{
	if (ch->nr_out >= ch->max_out)
		return -ENOBUFS;
	if (ch->nr_out == ch->out_room) {
		size_t room = ch->out_room ? ch->out_room * 2 : 16;
		struct outstanding *out = reallocarray(ch->out, room, sizeof(*out));

		if (!out)
			return -ENOMEM;
		ch->out = out;
		ch->out_room = room;
	}
	ch->out[ch->nr_out++] = (struct outstanding){ .req = req };
	return 0;
}

/* ------------------------------------------------------------------- sending */

static int send_cancel(struct channel *ch, uint64_t req)
{
	struct sits_wire_cancel m = {
		.hdr = sits_wire_hdr(SITS_WIRE_CANCEL, sizeof(m)), .req = req,
	};

	return sits_chio_send(&ch->io, &m, sizeof(m));
}

static int send_kick(struct channel *ch)
{
	struct sits_wire_kick m = { .hdr = sits_wire_hdr(SITS_WIRE_KICK, sizeof(m)) };

	return sits_chio_send(&ch->io, &m, sizeof(m));
}

/* Send what found no room before. Return: true where something still does not. */
static bool flush_control(struct channel *ch)
{
	bool left = false;

	if (ch->kick_due)
		ch->kick_due = send_kick(ch) == -EAGAIN;
	left = ch->kick_due;
	for (size_t i = 0; i < ch->nr_out && !left; i++) {
		if (ch->out[i].cancel_due)
			ch->out[i].cancel_due = send_cancel(ch, ch->out[i].req) == -EAGAIN;
		left = ch->out[i].cancel_due;
	}
	return left;
}

static void refresh_tx(struct channel *ch)
{
	uint64_t done = __atomic_load_n(&ch->ctl->tx_done, __ATOMIC_ACQUIRE);

	if (done > ch->tx.done && done <= ch->tx.head)
		ch->tx.done = done;
	if (ch->tx.done != ch->tx.head)
		return;
	/* Empty: start over at the front, where the whole ring is in one piece. */
	ch->tx.head = (ch->tx.head + ch->tx.bytes - 1) / ch->tx.bytes * ch->tx.bytes;
	ch->tx.done = ch->tx.head;
}

static int send_submit(struct channel *ch, const void *data, size_t len, uint64_t timeout_ns)
{
	struct sits_wire_submit m = {
		.hdr = sits_wire_hdr(SITS_WIRE_SUBMIT, sizeof(m)),
		.req = ch->next_req, .len = len,
	};
	uint64_t now = sits_now_ns();
	int ret;

	refresh_tx(ch);
	if (!sits_ring_place(&ch->tx, len, &m.off, &m.tx_end))
		return -ENOBUFS;
	m.off += ch->tx_off;
	if (timeout_ns)
		m.deadline_ns = timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
	memcpy(ch->arena + m.off, data, len);
	ret = sits_chio_send(&ch->io, &m, sizeof(m));
	if (ret)
		return ret == -EAGAIN ? -ENOBUFS : ret;
	ch->tx.head = ch->tx_end = m.tx_end;
	return 0;
}

static int uc_submit(struct sits_channel *base, const void *data, size_t len,
		     uint64_t timeout_ns, uint64_t *req)
{
	struct channel *ch = channel_of(base);
	int ret;

	if (len > ch->tx.bytes) {
		sits_log(base->ctx, SITS_LOG_ERR,
			 "channel '%s': a request of %zu bytes; its arena takes %" PRIu64 ": open the channel with a larger one",
			 ch->name, len, ch->tx.bytes);
		return -EMSGSIZE;
	}
	pthread_mutex_lock(&ch->lock);
	flush_control(ch);
	ret = add_out(ch, ++ch->next_req);
	if (!ret) {
		ret = send_submit(ch, data, len, timeout_ns);
		if (ret)
			remove_out(ch, find_out(ch, ch->next_req));
		else
			*req = ch->next_req;
	}
	pthread_mutex_unlock(&ch->lock);
	return ret;
}

static int uc_cancel(struct sits_channel *base, uint64_t req)
{
	struct channel *ch = channel_of(base);
	struct outstanding *o;
	int ret = -ENOENT;

	pthread_mutex_lock(&ch->lock);
	flush_control(ch);
	o = find_out(ch, req);
	if (o) {
		o->cancel_due = send_cancel(ch, req) == -EAGAIN;
		ret = 0;	/* where the daemon is gone, the end comes anyway */
	}
	pthread_mutex_unlock(&ch->lock);
	return ret;
}

/* ----------------------------------------------------------------- receiving */

/* The caller is done with the last chunk: give its place in the ring back. */
static void release_rx(struct channel *ch)
{
	ch->whole.len = 0;
	if (!ch->rx_unread)
		return;
	ch->rx_unread = false;
	__atomic_store_n(&ch->ctl->rx_done, ch->rx_end, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ch->ctl->rx_wait, __ATOMIC_SEQ_CST) &&
	    __atomic_exchange_n(&ch->ctl->rx_wait, 0, __ATOMIC_SEQ_CST))
		ch->kick_due = true;
}

static bool chunk_ok(struct channel *ch, const struct sits_wire_chunk *m, int len)
{
	if ((size_t)len != sizeof(*m) || m->hdr.size != sizeof(*m) ||
	    m->hdr.type != SITS_WIRE_CHUNK ||
	    m->hdr.flags & ~(SITS_WIRE_LAST | SITS_WIRE_MORE) ||
	    m->hdr.flags == (SITS_WIRE_LAST | SITS_WIRE_MORE))
		return false;
	if (m->len && (m->off < ch->rx_off || m->off > ch->rx_off + ch->rx_bytes ||
		       m->len > ch->rx_off + ch->rx_bytes - m->off))
		return false;
	return m->rx_end >= ch->rx_end && m->rx_end - ch->rx_end <= ch->rx_bytes &&
	       m->status <= 0 && find_out(ch, m->req);
}

/* Return: 1 with @chunk complete; 0 where more of it has to come; -errno. */
static int take_chunk(struct channel *ch, const struct sits_wire_chunk *m,
		      struct sits_chunk *chunk)
{
	const uint8_t *data = ch->arena + m->off;
	int ret;

	ch->rx_end = m->rx_end;
	ch->rx_unread = true;
	if (m->hdr.flags & SITS_WIRE_MORE || ch->whole.len) {
		ret = sits_whole_append(&ch->whole, data, m->len);
		if (ret)
			return ret;
		if (m->hdr.flags & SITS_WIRE_MORE) {
			size_t so_far = ch->whole.len;

			release_rx(ch);	/* copied: its place is free now */
			ch->whole.len = so_far;
			flush_control(ch);
			return 0;
		}
		data = ch->whole.data;
	}
	*chunk = (struct sits_chunk){
		.req = m->req, .data = data, .len = ch->whole.len ? ch->whole.len : m->len,
		.status = m->status, .last = !!(m->hdr.flags & SITS_WIRE_LAST),
	};
	if (chunk->last)
		remove_out(ch, find_out(ch, m->req));
	return 1;
}

/* The daemon is gone: every request ends. */
static int end_one(struct channel *ch, struct sits_chunk *chunk)
{
	if (!ch->nr_out)
		return -EPIPE;
	*chunk = (struct sits_chunk){ .req = ch->out[0].req, .status = -EPIPE, .last = 1 };
	remove_out(ch, &ch->out[0]);
	return 1;
}

static int take_one(struct channel *ch, struct sits_chunk *chunk)
{
	union {
		struct sits_wire_chunk chunk;
		uint8_t bytes[SITS_WIRE_MAX];
	} m;
	int len, ret;

	for (;;) {
		len = sits_chio_next(&ch->io, &m);
		if (len == -EPIPE)
			return end_one(ch, chunk);
		if (len <= 0)
			return len;
		ret = chunk_ok(ch, &m.chunk, len) ? take_chunk(ch, &m.chunk, chunk) : -EPROTO;
		if (ret > 0)
			return ret;
		if (ret < 0) {
			sits_log(ch->base.ctx, SITS_LOG_ERR,
				 "channel '%s': %s; the connection is closed", ch->name,
				 ret == -EPROTO ? "the daemon broke the protocol" : strerror(-ret));
			shutdown(ch->sock, SHUT_RDWR);
		}
	}
}

static int uc_recv(struct sits_channel *base, struct sits_chunk *chunk, int timeout_ms)
{
	struct channel *ch = channel_of(base);
	uint64_t until = timeout_ms > 0 ? sits_now_ns() + (uint64_t)timeout_ms * SITS_NSEC_PER_MSEC
					: timeout_ms ? UINT64_MAX : 0;
	int ret;

	pthread_mutex_lock(&ch->lock);
	if (!(ch->whole.len && !ch->rx_unread))	/* else the front of a chunk, kept over a timeout */
		release_rx(ch);
	for (;;) {
		uint64_t now, wait = UINT64_MAX;
		bool control_left = flush_control(ch);

		ret = take_one(ch, chunk);
		if (ret)
			break;
		now = until == UINT64_MAX ? 0 : sits_now_ns();
		if (now >= until)
			break;
		if (until != UINT64_MAX)
			wait = until - now;
		if (control_left)
			wait = SITS_MIN(wait, CONTROL_RETRY_NS);
		pthread_mutex_unlock(&ch->lock);
		ret = sits_chio_wait(&ch->io, wait);
		pthread_mutex_lock(&ch->lock);
		if (ret)
			break;
	}
	pthread_mutex_unlock(&ch->lock);
	return ret;
}

static int uc_fd(struct sits_channel *base)
{
	return sits_chio_fd(&channel_of(base)->io);
}

/* ------------------------------------------------------- opening and closing */

static void free_channel(struct channel *ch)
{
	if (ch->sock >= 0)
		close(ch->sock);
	if (ch->arena) {	/* pages that were never used, or that the daemon may read, stay */
		if (__atomic_load_n(&ch->ctl->tx_done, __ATOMIC_ACQUIRE) >= ch->tx_end)
			explicit_bzero(ch->arena + ch->tx_off, SITS_MIN(ch->tx.head, ch->tx.bytes));
		explicit_bzero(ch->arena + ch->rx_off, SITS_MIN(ch->rx_end, ch->rx_bytes));
		munmap(ch->arena, ch->arena_bytes);
	}
	sits_whole_fini(&ch->whole);
	free(ch->out);
	pthread_mutex_destroy(&ch->lock);
	free(ch);
}

static void uc_close(struct sits_channel *base)
{
	struct channel *ch = channel_of(base);

	shutdown(ch->sock, SHUT_RDWR);
	sits_chio_fini(&ch->io);
	free_channel(ch);
}

/* What refused us, in words. Returns what open returns. EAGAIN: nobody did, in time. */
static int explain(struct channel *ch, int err)
{
	struct sits_ctx *ctx = ch->base.ctx;
	char path[512] = "";

	sits_wire_path(ctx, ch->name, ".sock", path, sizeof(path));
	switch (err) {
	case ENOENT:
	case ECONNREFUSED:
		sits_log(ctx, SITS_LOG_ERR,
			 "queue '%s': no daemon serves %s: start sitsd, or set the run directory (SITS_RUN_DIR) to its",
			 ch->name, path);
		break;
	case EACCES:
		sits_log(ctx, SITS_LOG_ERR,
			 "queue '%s': uid %u may not write to %s: join the group that owns it, or have the daemon open its mode",
			 ch->name, (unsigned int)geteuid(), path);
		break;
	case EBUSY:
		sits_log(ctx, SITS_LOG_ERR,
			 "queue '%s': the daemon at %s has as many clients as it takes (max_clients): try again later",
			 ch->name, path);
		break;
	case EAGAIN:
		sits_log(ctx, SITS_LOG_ERR,
			 "queue '%s': the daemon at %s has not answered for %d s: it is stuck, or overloaded",
			 ch->name, path, OPEN_WITHIN_S);
		return -ETIMEDOUT;
	default:
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': %s: %s", ch->name, path, strerror(err));
	}
	return -err;
}

static int connect_to(struct channel *ch)
{
	const struct timeval limit = { .tv_sec = OPEN_WITHIN_S };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct sits_ctx *ctx = ch->base.ctx;
	int ret;

	ret = sits_wire_path(ctx, ch->name, ".sock", addr.sun_path, sizeof(addr.sun_path));
	if (ret)
		return ret;
	ch->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (ch->sock < 0)
		return explain(ch, errno);
	setsockopt(ch->sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(ch->sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	do {
		ret = connect(ch->sock, (struct sockaddr *)&addr, sizeof(addr)) ? errno : 0;
	} while (ret == EINTR);
	return ret ? explain(ch, ret) : 0;
}

static int make_arena(struct channel *ch, int *fd_out)
{
	int fd, ret;
	void *p;

	fd = memfd_create("sits-arena", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("sits-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)ch->arena_bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto err;
	p = mmap(NULL, ch->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		goto err;
	madvise(p, ch->arena_bytes, MADV_DONTFORK);
	madvise(p, ch->arena_bytes, MADV_DONTDUMP);
	ch->arena = p;
	ch->ctl = p;
	*fd_out = fd;
	return 0;

err:
	ret = -errno;
	close(fd);
	return ret;
}

/* Returns as open does, or 1 where the daemon closed without a word. */
static int say_hello(struct channel *ch, int arena_fd)
{
	struct sits_wire_hello m = {
		.hdr = sits_wire_hdr(SITS_WIRE_HELLO, sizeof(m)),
		.magic = SITS_WIRE_MAGIC, .version = SITS_WIRE_VERSION,
		.arena_bytes = ch->arena_bytes,
		.tx_off = ch->tx_off, .tx_bytes = ch->tx.bytes,
		.rx_off = ch->rx_off, .rx_bytes = ch->rx_bytes,
	};
	struct sits_wire_welcome w;
	ssize_t n;
	int ret;

	/* A daemon that refuses us has answered, and closed, before it reads a word. */
	ret = sits_wire_send_fd(ch->sock, &m, sizeof(m), arena_fd);
	if (ret && ret != -EPIPE && ret != -ECONNRESET)
		return explain(ch, -ret);
	do {
		n = recv(ch->sock, &w, sizeof(w), 0);
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	if (n < 0)
		return explain(ch, errno);
	if (!n)
		return 1;
	if (n != sizeof(w) || w.hdr.type != SITS_WIRE_WELCOME || w.status > 0)
		return explain(ch, EPROTO);
	ch->max_out = w.max_outstanding;
	return w.status ? explain(ch, -w.status) : 0;
}

/*
 * A daemon makes room among those that have not said HELLO yet, and under a flood of them it may close before it has
 * read ours: come again. One that has died is found out by connect.
 */
static int say_hello_again(struct channel *ch, int arena_fd)
{
	uint64_t until = sits_now_ns() + OPEN_WITHIN_S * SITS_NSEC_PER_SEC;
	struct timespec pause = { .tv_nsec = HELLO_RETRY_NS };
	int ret;

	while ((ret = say_hello(ch, arena_fd)) == 1) {
		if (sits_now_ns() >= until)
			return explain(ch, EAGAIN);
		close(ch->sock);
		ch->sock = -1;
		nanosleep(&pause, NULL);
		ret = connect_to(ch);
		if (ret)
			return ret;
	}
	return ret;
}

static void lay_out(struct channel *ch, uint64_t wanted)
{
	uint64_t bytes = wanted ? SITS_MAX(wanted, (uint64_t)SITS_ARENA_MIN) : SITS_ARENA_DEFAULT;

	bytes = (bytes + SITS_ARENA_CTL - 1) / SITS_ARENA_CTL * SITS_ARENA_CTL;
	ch->arena_bytes = bytes;
	ch->rx_bytes = SITS_MAX(bytes / 4 / SITS_ARENA_CTL * SITS_ARENA_CTL,
				(uint64_t)SITS_ARENA_RX_MIN);
	ch->tx_off = SITS_ARENA_CTL;
	ch->tx.bytes = bytes - SITS_ARENA_CTL - ch->rx_bytes;
	ch->rx_off = ch->tx_off + ch->tx.bytes;
}

static const struct sits_channel_ops uc_ops = {
	.close = uc_close,
	.submit = uc_submit,
	.recv = uc_recv,
	.cancel = uc_cancel,
	.fd = uc_fd,
};

int sits_user_channel_open(struct sits_ctx *ctx, const char *name, uint64_t arena_bytes,
			   struct sits_channel **out)
{
	struct channel *ch;
	int arena_fd = -1, ret;

	if (arena_bytes > SITS_ARENA_MAX) {
		sits_log(ctx, SITS_LOG_ERR, "channel '%s': an arena of %" PRIu64 " bytes; at most %u",
			 name, arena_bytes, SITS_ARENA_MAX);
		return -EINVAL;
	}
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	ch->base.ops = &uc_ops;
	ch->base.ctx = ctx;
	ch->sock = -1;
	memcpy(ch->name, name, strlen(name));	/* checked: shorter than name[] */
	pthread_mutex_init(&ch->lock, NULL);
	lay_out(ch, arena_bytes);
	ret = connect_to(ch);
	if (!ret)
		ret = make_arena(ch, &arena_fd);
	if (!ret) {
		ret = say_hello_again(ch, arena_fd);
		close(arena_fd);
	}
	if (!ret)
		ret = sits_chio_init(&ch->io, ctx, ch->sock);
	if (ret) {
		free_channel(ch);
		return ret;
	}
	*out = &ch->base;
	return 0;
}
