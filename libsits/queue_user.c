// SPDX-License-Identifier: MIT
/*
 * queue_user.c - a daemon's queue over unix sockets: its name, its requests, its events.
 *
 * The event loop runs inside fetch: no thread of our own stands between a client's message
 * and the daemon's. commit sends from the thread that calls it. Who holds the lock file NAME.lock
 * (flock, which ends with the process) owns the name, and may replace the socket of a dead owner.
 */
#include "libsits/queue_user.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libsits/provider_user.h"

#define PLACE_BITS 20		/* of a request's id: DEPTH_MAX of queue.c places */
#define LISTEN_BACKLOG 128
#define EVENTS_A_TURN 16	/* events handed out before the loop looks again */
#define LAST_LOOKS 4		/* turns without waiting while there is something to arm */
#define WARNINGS_A_SECOND 10
#define COPY_ROOM_MIN 4096u

static struct queue *queue_of(struct sits_queue *base)
{
	return (struct queue *)base;	/* its first member */
}

void sits_uq_warn(struct queue *q, const char *fmt, ...)
{
	uint64_t now = sits_now_ns();
	char line[512];
	va_list ap;

	if (now - q->warn_window_ns >= SITS_NSEC_PER_SEC) {
		q->warn_window_ns = now;
		q->nr_warnings = 0;
	}
	if (++q->nr_warnings > WARNINGS_A_SECOND)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	sits_log(q->base.ctx, SITS_LOG_WARN, "%s%s", line,
		 q->nr_warnings == WARNINGS_A_SECOND ? " (more of this within a second is not logged)"
						     : "");
}

/* ----------------------------------------------------------------- requests */

struct request *sits_uq_request_new(struct queue *q, struct client *c)
{
	struct request *r = TAILQ_FIRST(&q->free);

	if (!r)
		return NULL;
	TAILQ_REMOVE(&q->free, r, link);
	*r = (struct request){
		.state = REQUEST_WAITING, .client = c, .client_id = c->id,
		.client_uid = c->uid, .client_pid = c->pid,
		.id = ++q->next_count << PLACE_BITS | (uint64_t)(r - q->table),
	};
	TAILQ_INSERT_TAIL(&c->waiting, r, link);
	c->nr_requests++;
	q->nr_used++;
	return r;
}

void sits_uq_request_free(struct queue *q, struct request *r)
{
	struct client *c = r->client;

	if (c) {
		TAILQ_REMOVE(r->state == REQUEST_WAITING ? &c->waiting : &c->fetched, r, link);
		c->nr_requests--;
		if (r->state == REQUEST_WAITING)
			sits_uq_client_publish_tx(c);
	}
	if (r->cancel_due)
		TAILQ_REMOVE(&q->cancels, r, cancel);
	*r = (struct request){ .state = REQUEST_FREE };
	TAILQ_INSERT_HEAD(&q->free, r, link);
	q->nr_used--;
}

struct request *sits_uq_request_find(struct queue *q, uint64_t id)
{
	uint64_t place = id & ((1u << PLACE_BITS) - 1);

	if (!id || place >= q->opts.depth || q->table[place].id != id)
		return NULL;
	return &q->table[place];
}

/* End it towards its client, if that is still there, and free it. */
static void end_request(struct queue *q, struct request *r, int status)
{
	struct client *c = r->client;
	uint64_t id = r->id;

	if (c && sits_uq_client_answer(c, r, r->creq, NULL, 0, status, true))
		sits_uq_client_drop(c);	/* it would wait for ever */
	r = sits_uq_request_find(q, id);	/* gone where the answer broke its client */
	if (r)
		sits_uq_request_free(q, r);
}

void sits_uq_request_cancel(struct queue *q, struct request *r, int status)
{
	if (r->state == REQUEST_WAITING) {
		q->stats.cancelled++;
		end_request(q, r, status);
		return;
	}
	if (r->cancel_seen)
		return;
	q->stats.cancelled++;
	r->cancel_seen = true;
	r->cancel_due = true;
	TAILQ_INSERT_TAIL(&q->cancels, r, cancel);
}

void sits_uq_note_timer(struct queue *q, uint64_t when_ns)
{
	if (!q->next_timer_ns || when_ns < q->next_timer_ns)
		q->next_timer_ns = when_ns;
}

static void run_timers(struct queue *q)
{
	uint64_t now = sits_now_ns();
	struct sits_conn *conn;

	if (!q->next_timer_ns || now < q->next_timer_ns)
		return;
	q->next_timer_ns = 0;
	for (uint32_t i = 0; i < q->opts.depth; i++) {
		struct request *r = &q->table[i];

		if (r->state == REQUEST_FREE || !r->deadline_ns || r->cancel_seen)
			continue;
		if (now >= r->deadline_ns)
			sits_uq_request_cancel(q, r, -ETIMEDOUT);
		else
			sits_uq_note_timer(q, r->deadline_ns);
	}
	TAILQ_FOREACH(conn, &q->loop.conns, link) {
		struct client *c = (struct client *)conn;

		if (conn->gone || !c->hello_by_ns)
			continue;
		if (now >= c->hello_by_ns)
			sits_uq_client_drop(c);
		else
			sits_uq_note_timer(q, c->hello_by_ns);
	}
}

/* ------------------------------------------------------------------- events */

static void fill_event(struct sits_queue_event *ev, uint32_t kind, const struct request *r)
{
	*ev = (struct sits_queue_event){
		.kind = kind, .req = r->id, .client = r->client_id,
		.client_uid = r->client_uid, .client_pid = r->client_pid,
		.deadline_ns = r->deadline_ns,
	};
}

/* Copy a request's bytes out of its client's arena, once. */
static int copy_request(struct queue *q, const struct request *r)
{
	size_t room = q->copy_room;
	uint8_t *copy;

	while (room < r->len)
		room = SITS_MAX(room * 2, COPY_ROOM_MIN);
	if (room != q->copy_room) {
		copy = malloc(room);
		if (!copy)
			return -ENOMEM;
		free(q->copy);
		q->copy = copy;
		q->copy_room = room;
	}
	memcpy(q->copy, r->client->arena + r->off, r->len);
	return 0;
}

static bool next_request(struct queue *q, struct sits_queue_event *ev)
{
	struct request *r;
	struct client *c;

	while ((c = TAILQ_FIRST(&q->ready))) {
		TAILQ_REMOVE(&q->ready, c, ready);
		r = TAILQ_FIRST(&c->waiting);
		c->on_ready = r && TAILQ_NEXT(r, link);
		if (c->on_ready)	/* its next one comes after everybody else's */
			TAILQ_INSERT_TAIL(&q->ready, c, ready);
		if (!r)
			continue;
		if (copy_request(q, r)) {
			end_request(q, r, -ENOMEM);
			continue;
		}
		TAILQ_REMOVE(&c->waiting, r, link);
		TAILQ_INSERT_TAIL(&c->fetched, r, link);
		r->state = REQUEST_FETCHED;
		sits_uq_client_publish_tx(c);
		fill_event(ev, SITS_EVENT_REQUEST, r);
		ev->data = q->copy;
		ev->len = r->len;
		return true;
	}
	return false;
}

static bool next_event(struct queue *q, struct sits_queue_event *ev)
{
	struct request *r = TAILQ_FIRST(&q->cancels);

	if (!r)
		return next_request(q, ev);
	TAILQ_REMOVE(&q->cancels, r, cancel);
	r->cancel_due = false;
	fill_event(ev, SITS_EVENT_CANCEL, r);
	return true;
}

/* Wait in the loop, at most until @until_ns, and for the next timer. */
static int turn(struct queue *q, uint64_t until_ns)
{
	uint64_t now = sits_now_ns(), wait = SITS_LOOP_FOREVER;

	if (q->next_timer_ns)
		until_ns = SITS_MIN(until_ns, q->next_timer_ns);
	if (until_ns != SITS_LOOP_FOREVER)
		wait = until_ns > now ? until_ns - now : 0;
	q->events_since_turn = 0;
	return sits_loop_turn(&q->loop, &q->lock, wait);
}

static int fetch_locked(struct queue *q, struct sits_queue_event *ev, uint64_t until_ns)
{
	int looks = LAST_LOOKS;
	int ret = 0;

	if (q->events_since_turn >= EVENTS_A_TURN)
		ret = turn(q, 0);
	while (!ret) {
		if (__atomic_exchange_n(&q->wake_asked, 0, __ATOMIC_ACQ_REL))
			return 0;
		run_timers(q);
		if (next_event(q, ev)) {
			q->events_since_turn++;
			return 1;
		}
		if (!looks || (looks < LAST_LOOKS && TAILQ_EMPTY(&q->loop.todo)))
			return 0;
		looks -= until_ns != SITS_LOOP_FOREVER && sits_now_ns() >= until_ns;
		ret = turn(q, until_ns);
	}
	return ret;
}

static int uq_fetch(struct sits_queue *base, struct sits_queue_event *ev, int timeout_ms)
{
	struct queue *q = queue_of(base);
	uint64_t until = SITS_LOOP_FOREVER;
	int ret;

	if (timeout_ms >= 0)
		until = timeout_ms ? sits_now_ns() + (uint64_t)timeout_ms * SITS_NSEC_PER_MSEC : 0;
	pthread_mutex_lock(&q->lock);
	ret = fetch_locked(q, ev, until);
	pthread_mutex_unlock(&q->lock);
	if (ret < 0)
		sits_log(base->ctx, SITS_LOG_ERR, "queue '%s': waiting for events (%s): %s", q->name,
			 q->loop.engine->name, strerror(-ret));
	return ret;
}

static void uq_wake(struct sits_queue *base)
{
	struct queue *q = queue_of(base);

	__atomic_store_n(&q->wake_asked, 1, __ATOMIC_RELEASE);
	sits_loop_wake(&q->loop);
}

/* Returns what commit returns; ends the request where @last is taken or has nobody to go to. */
static int commit_locked(struct queue *q, uint64_t req, const void *data, size_t len, int status,
			 bool last)
{
	struct request *r = sits_uq_request_find(q, req);
	int ret = -EPIPE;

	if (!r || r->state != REQUEST_FETCHED)
		return -ENOENT;
	if (last && r->deadline_ns && sits_now_ns() >= r->deadline_ns)
		status = -ETIMEDOUT;
	if (r->client)
		ret = sits_uq_client_answer(r->client, r, r->creq, data, len, status, last);
	if (last && ret == -ENOMEM && !len) {	/* an end is always taken */
		sits_uq_client_drop(r->client);
		ret = -EPIPE;
	}
	if (last && (!ret || ret == -EPIPE))
		sits_uq_request_free(q, r);
	if (last && !ret)
		q->stats.answered++;
	return ret;
}

static int uq_commit(struct sits_queue *base, uint64_t req, const void *data, size_t len,
		     int status, uint32_t flags)
{
	struct queue *q = queue_of(base);
	int ret;

	pthread_mutex_lock(&q->lock);
	ret = commit_locked(q, req, data, len, status, flags & SITS_COMMIT_LAST);
	pthread_mutex_unlock(&q->lock);
	return ret;
}

static void uq_close_intake(struct sits_queue *base)
{
	struct queue *q = queue_of(base);

	pthread_mutex_lock(&q->lock);
	q->intake_closed = true;
	for (uint32_t i = 0; i < q->opts.depth; i++)
		if (q->table[i].state == REQUEST_WAITING)
			end_request(q, &q->table[i], -ESHUTDOWN);
	pthread_mutex_unlock(&q->lock);
}

static void uq_get_stats(struct sits_queue *base, struct sits_queue_stats *stats)
{
	struct queue *q = queue_of(base);

	pthread_mutex_lock(&q->lock);
	*stats = q->stats;
	stats->clients = q->nr_clients - q->nr_mute;
	stats->pending = q->nr_used;
	pthread_mutex_unlock(&q->lock);
}

/* ------------------------------------------------------- creation and the end */

static int make_run_dir(struct sits_ctx *ctx)
{
	if (!mkdir(ctx->run_dir, 0755)) {
		if (!chmod(ctx->run_dir, 0755))	/* whatever the umask is */
			return 0;
	} else if (errno == EEXIST) {
		return 0;
	}
	sits_log(ctx, SITS_LOG_ERR,
		 "run directory %s: %s; create it, or choose another one (SITS_RUN_DIR)",
		 ctx->run_dir, strerror(errno));
	return -errno;
}

/* Become the owner of the name. The lock file stays behind: removing it would let two in. */
static int own_name(struct queue *q)
{
	struct sits_ctx *ctx = q->base.ctx;
	char path[512];
	int ret;

	ret = sits_wire_path(ctx, q->name, ".lock", path, sizeof(path));
	if (ret)
		return ret;
	q->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (q->lock_fd < 0) {
		ret = -errno;
		sits_log(ctx, SITS_LOG_ERR, "queue '%s': %s: %s", q->name, path, strerror(errno));
		return ret;
	}
	if (!flock(q->lock_fd, LOCK_EX | LOCK_NB))
		return 0;
	ret = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
	sits_log(ctx, SITS_LOG_ERR, "queue '%s': %s is held by a running daemon%s%s", q->name, path,
		 ret == -EADDRINUSE ? "" : ": ", ret == -EADDRINUSE ? "" : strerror(-ret));
	return ret;
}

/* Bind under a name of our own, ready to serve, and then move it into place: nobody ever meets a
 * socket with the wrong mode, or one that does not listen yet. */
static int bind_socket(struct queue *q, char *where, size_t where_len)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int ret;

	ret = sits_wire_path(q->base.ctx, q->name, ".sock.new", addr.sun_path,
			     sizeof(addr.sun_path));
	if (!ret)
		ret = sits_wire_path(q->base.ctx, q->name, ".sock", where, where_len);
	if (ret)
		return ret;
	q->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (q->listen_fd < 0)
		return -errno;
	unlink(addr.sun_path);
	if (fchmod(q->listen_fd, q->opts.mode) ||
	    bind(q->listen_fd, (struct sockaddr *)&addr, sizeof(addr)))
		return -errno;
	if (chmod(addr.sun_path, q->opts.mode) || stat(addr.sun_path, &q->sock_file) ||
	    listen(q->listen_fd, LISTEN_BACKLOG) || rename(addr.sun_path, where)) {
		ret = -errno;
		unlink(addr.sun_path);
	}
	return ret;
}

static int listen_on(struct queue *q)
{
	char where[512] = "";
	int ret = bind_socket(q, where, sizeof(where));

	if (ret && ret != -ENAMETOOLONG)
		sits_log(q->base.ctx, SITS_LOG_ERR, "queue '%s': %s: %s", q->name, where,
			 strerror(-ret));
	return ret;
}

/* Whoever removed our files has let another daemon in: its socket stays. */
static void remove_socket(const struct queue *q)
{
	char path[512];
	struct stat st;

	if (!sits_wire_path(q->base.ctx, q->name, ".sock", path, sizeof(path)) && !stat(path, &st) &&
	    st.st_dev == q->sock_file.st_dev && st.st_ino == q->sock_file.st_ino)
		unlink(path);
}

static void release_name(struct queue *q)
{
	if (q->listen_fd >= 0) {
		remove_socket(q);	/* before its inode can be another's */
		close(q->listen_fd);
	}
	if (q->lock_fd >= 0)
		close(q->lock_fd);
}

static void free_queue(struct queue *q)
{
	pthread_mutex_destroy(&q->lock);
	if (q->copy)
		explicit_bzero(q->copy, q->copy_room);
	free(q->copy);
	free(q->table);
	free(q);
}

static void uq_destroy(struct sits_queue *base)
{
	struct queue *q = queue_of(base);

	pthread_mutex_lock(&q->lock);
	q->intake_closed = true;
	for (uint32_t i = 0; i < q->opts.depth; i++)
		if (q->table[i].state != REQUEST_FREE)
			end_request(q, &q->table[i], -ESHUTDOWN);
	sits_loop_fini(&q->loop, &q->lock);
	pthread_mutex_unlock(&q->lock);
	release_name(q);
	free_queue(q);
}

static const struct sits_queue_ops uq_ops = {
	.destroy = uq_destroy,
	.close_intake = uq_close_intake,
	.fetch = uq_fetch,
	.wake = uq_wake,
	.commit = uq_commit,
	.get_stats = uq_get_stats,
};

static struct queue *new_queue(struct sits_ctx *ctx, const struct sits_queue_opts *opts)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->table = calloc(opts->depth, sizeof(*q->table));
	if (!q->table) {
		free(q);
		return NULL;
	}
	q->base.ops = &uq_ops;
	q->base.ctx = ctx;
	q->opts = *opts;
	snprintf(q->name, sizeof(q->name), "%s", opts->name);
	q->opts.name = q->name;
	q->lock_fd = q->listen_fd = -1;
	pthread_mutex_init(&q->lock, NULL);
	TAILQ_INIT(&q->free);
	TAILQ_INIT(&q->cancels);
	TAILQ_INIT(&q->ready);
	for (uint32_t i = 0; i < opts->depth; i++)
		TAILQ_INSERT_TAIL(&q->free, &q->table[i], link);
	return q;
}

int sits_user_queue_create(struct sits_ctx *ctx, const struct sits_queue_opts *opts,
			   struct sits_queue **out)
{
	struct queue *q = new_queue(ctx, opts);
	int ret;

	if (!q)
		return -ENOMEM;
	ret = make_run_dir(ctx);
	if (!ret)
		ret = own_name(q);
	if (!ret)
		ret = listen_on(q);
	if (!ret)
		ret = sits_loop_init(&q->loop, ctx, q->listen_fd, &sits_uq_handler, q);
	if (ret) {
		release_name(q);
		free_queue(q);
		return ret;
	}
	sits_log(ctx, SITS_LOG_INFO, "queue '%s': serving %s/%s.sock by %s", q->name, ctx->run_dir,
		 q->name, q->loop.engine->name);
	*out = &q->base;
	return 0;
}
