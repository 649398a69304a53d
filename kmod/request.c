// SPDX-License-Identifier: GPL-2.0
/*
 * request.c - the life of a request: taken in, fetched, cancelled, ended; its bytes, its chunks.
 *
 *	SUBMIT -> WAITING -> FETCHING -> RUNNING -> ENDED -> collected by RECV
 *	             ^___________|
 *	           (could not be copied)
 *
 * Prompts and answers are wiped when they are freed. Nothing is freed under sits_queue.lock: it
 * goes into a trash list.
 */
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "kmod/queue.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

#define SITS_IDENT_BITS	21
#define SITS_IDENT_MASK	((1u << SITS_IDENT_BITS) - 1)

static struct kmem_cache *sits_request_cache;
static atomic_t sits_nr_chunks;

int sits_request_cache_init(void)
{
	/* Its small bytes are what goes to user memory. */
	sits_request_cache = KMEM_CACHE_USERCOPY(sits_request, SLAB_ACCOUNT, small);
	return sits_request_cache ? 0 : -ENOMEM;
}

void sits_request_cache_fini(void)
{
	WARN_ON(atomic_read(&sits_nr_chunks));
	kmem_cache_destroy(sits_request_cache);
}

/* --------------------------------------------------------------------- idents */

int sits_idents_init(struct sits_idents *idents, u32 nr)
{
	u32 i;

	if (WARN_ON_ONCE(nr > SITS_IDENT_MASK + 1))
		return -EINVAL;
	idents->ident = kvmalloc_array(nr, sizeof(*idents->ident), GFP_KERNEL_ACCOUNT);
	if (!idents->ident)
		return -ENOMEM;
	idents->nr = nr;
	idents->free = 0;
	idents->count = 0;
	for (i = 0; i < nr; i++)
		idents->ident[i] = (struct sits_ident) { .next_free = i + 1 };
	return 0;
}

void sits_idents_fini(struct sits_idents *idents)
{
	kvfree(idents->ident);
}

u64 sits_idents_get(struct sits_idents *idents, void *obj)
{
	u32 i = idents->free;
	struct sits_ident *ident;

	if (i == idents->nr)
		return 0;
	ident = &idents->ident[i];
	idents->free = ident->next_free;
	ident->id = ++idents->count << SITS_IDENT_BITS | i;
	ident->obj = obj;
	return ident->id;
}

void *sits_idents_find(const struct sits_idents *idents, u64 id)
{
	u32 i = id & SITS_IDENT_MASK;

	if (!id || i >= idents->nr)
		return NULL;
	/* Whoever asks makes up the number. */
	i = array_index_nospec(i, idents->nr);
	return idents->ident[i].id == id ? idents->ident[i].obj : NULL;
}

void sits_idents_put(struct sits_idents *idents, u64 id)
{
	u32 i = id & SITS_IDENT_MASK;

	idents->ident[i] = (struct sits_ident) { .next_free = idents->free };
	idents->free = i;
}

/* ------------------------------------------------------------ memory */

struct sits_request *sits_request_alloc(struct sits_channel *ch, const void *bytes, u32 len)
{
	struct sits_request *r = kmem_cache_alloc(sits_request_cache, GFP_KERNEL);

	if (!r)
		return NULL;
	r->data = r->small;
	if (len > sizeof(r->small)) {
		r->data = kvmalloc(len, SITS_QUEUE_GFP);
		if (!r->data) {
			kmem_cache_free(sits_request_cache, r);
			return NULL;
		}
	}
	memcpy(r->data, bytes, len);
	r->len = len;
	kref_init(&r->ref);
	r->state = SITS_REQUEST_WAITING;
	INIT_LIST_HEAD(&r->link);
	INIT_LIST_HEAD(&r->cancel);
	timerqueue_init(&r->timeout);
	r->client = ch;
	r->client_id = ch->id;
	r->uid = ch->uid;
	r->pid = ch->pid;
	r->cancel_status = 0;
	r->cancel_seen = false;
	r->deadline_ns = 0;
	r->backlog = 0;
	return r;
}

void sits_request_drop_bytes(struct sits_request *r)
{
	if (r->data != r->small)
		kvfree_sensitive(r->data, r->len);
	else
		memzero_explicit(r->small, min_t(size_t, r->len, sizeof(r->small)));
	r->data = r->small;
	r->len = 0;
}

static void sits_request_free(struct kref *ref)
{
	struct sits_request *r = container_of(ref, struct sits_request, ref);

	sits_request_drop_bytes(r);
	kmem_cache_free(sits_request_cache, r);
}

void sits_request_put(struct sits_request *r)
{
	kref_put(&r->ref, sits_request_free);
}

struct sits_chunk *sits_chunk_alloc(u32 len)
{
	struct sits_chunk *chunk = kvmalloc(sizeof(*chunk) + (size_t)len, SITS_QUEUE_GFP);

	if (!chunk)
		return NULL;
	*chunk = (struct sits_chunk) { .data = (u8 *)(chunk + 1), .len = len };
	atomic_inc(&sits_nr_chunks);
	return chunk;
}

void sits_chunk_free(struct sits_chunk *chunk)
{
	if (!chunk)
		return;
	atomic_dec(&sits_nr_chunks);
	kvfree_sensitive(chunk, sizeof(*chunk) + (size_t)chunk->len);
}

void sits_trash_empty(struct sits_trash *trash)
{
	struct sits_request *r = trash->requests, *next_r;
	struct sits_chunk *chunk = trash->chunks, *next_chunk;

	*trash = (struct sits_trash) {};
	for (; chunk; chunk = next_chunk) {
		next_chunk = chunk->next_trash;
		sits_chunk_free(chunk);
	}
	for (; r; r = next_r) {
		next_r = r->next_trash;
		sits_request_put(r);
	}
}

/* ----------------------------------------------------------- deadlines */

static struct sits_request *sits_request_first_timeout(struct sits_queue *q)
{
	struct timerqueue_node *node = timerqueue_getnext(&q->timeouts);

	return node ? container_of(node, struct sits_request, timeout) : NULL;
}

static void sits_request_set_timer(struct sits_queue *q)
{
	struct sits_request *first = sits_request_first_timeout(q);
	u64 now = ktime_get_ns();
	u64 wait_ns;

	if (!first)
		return;
	wait_ns = first->deadline_ns > now ? first->deadline_ns - now : 0;
	/* Rounded up: never early. */
	mod_delayed_work(system_unbound_wq, &q->timer, nsecs_to_jiffies(wait_ns) + 1);
}

static void sits_request_start_timeout(struct sits_queue *q, struct sits_request *r)
{
	if (!r->deadline_ns)
		return;
	r->timeout.expires = ns_to_ktime(r->deadline_ns);
	if (timerqueue_add(&q->timeouts, &r->timeout))	/* it is the first */
		sits_request_set_timer(q);
}

static void sits_request_stop_timeout(struct sits_queue *q, struct sits_request *r)
{
	if (RB_EMPTY_NODE(&r->timeout.node))
		return;
	timerqueue_del(&q->timeouts, &r->timeout);	/* the timer may run in vain */
}

bool sits_request_run_timeout(struct sits_queue *q, struct sits_trash *trash)
{
	struct sits_request *r = sits_request_first_timeout(q);

	if (!r || r->deadline_ns > ktime_get_ns()) {
		sits_request_set_timer(q);
		return false;
	}
	sits_request_stop_timeout(q, r);
	sits_request_cancel(q, r, -ETIMEDOUT, trash);
	return true;
}

/* ------------------------------------------------------- the way through */

/* It waits: at the end of its client's list, or, where it did before, at the head. */
static void sits_request_wait(struct sits_queue *q, struct sits_request *r, bool again)
{
	struct sits_channel *ch = r->client;

	r->state = SITS_REQUEST_WAITING;
	q->facts.nr_waiting++;
	if (again) {
		list_add(&r->link, &ch->waiting);
		list_move(&ch->ready_link, &q->ready);
		return;
	}
	list_add_tail(&r->link, &ch->waiting);
	if (list_empty(&ch->ready_link))
		list_add_tail(&ch->ready_link, &q->ready);
}

/* Off its client's waiting list, which stays as it is among the others. */
static void sits_request_stop_waiting(struct sits_queue *q, struct sits_request *r)
{
	list_del_init(&r->link);
	q->facts.nr_waiting--;
	if (list_empty(&r->client->waiting))
		list_del_init(&r->client->ready_link);
}

int sits_request_admit(struct sits_queue *q, const struct sits_channel *ch)
{
	if (q->dead || ch->dead)
		return -EPIPE;
	if (q->intake_closed)
		return -ESHUTDOWN;
	if (ch->nr_ends >= q->arg.per_client)
		return -ENOBUFS;
	if (ch->nr_requests >= q->arg.per_client ||
	    q->facts.nr_waiting + q->facts.nr_running >= q->arg.depth) {
		q->facts.refused_busy++;
		atomic64_inc(&sits_stats.refused_busy);
		return -EBUSY;
	}
	return 0;
}

int sits_request_submit(struct sits_queue *q, struct sits_channel *ch, struct sits_request *r)
{
	int ret = sits_request_admit(q, ch);

	if (ret)
		return ret;
	/* Both have room: of what counts, and of ends in the channel's. */
	r->id = sits_idents_get(&q->idents, r);
	r->creq = sits_idents_get(&ch->idents, r);
	ch->nr_requests++;
	sits_request_wait(q, r, false);
	sits_request_start_timeout(q, r);
	q->facts.requests++;
	q->facts.bytes_in += r->len;
	atomic64_inc(&sits_stats.requests);
	trace_sits_request_submit(q, r, 0);
	return 0;
}

struct sits_request *sits_request_next(struct sits_queue *q)
{
	struct sits_channel *ch = list_first_entry_or_null(&q->ready, struct sits_channel,
							   ready_link);

	return ch ? list_first_entry(&ch->waiting, struct sits_request, link) : NULL;
}

void sits_request_begin_fetch(struct sits_queue *q, struct sits_request *r)
{
	struct sits_channel *ch = r->client;

	sits_request_stop_waiting(q, r);
	if (!list_empty(&ch->ready_link))
		list_move_tail(&ch->ready_link, &q->ready);
	r->state = SITS_REQUEST_FETCHING;
	list_add_tail(&r->link, &ch->running);
	q->facts.nr_running++;
}

void sits_request_end_fetch(struct sits_queue *q, struct sits_request *r, bool good,
			    struct sits_trash *trash)
{
	if (r->state != SITS_REQUEST_FETCHING)
		return;
	if (good) {
		r->state = SITS_REQUEST_RUNNING;
		trace_sits_request_fetch(q, r, 0);
		if (r->cancel_seen)
			sits_request_queue_cancel(q, r);
		return;
	}
	if (r->cancel_seen || q->intake_closed) {
		sits_request_end(q, r, r->cancel_seen ? r->cancel_status : -ESHUTDOWN, NULL, trash);
		return;
	}
	list_del_init(&r->link);
	q->facts.nr_running--;
	sits_request_wait(q, r, true);
}

void sits_request_forget(struct sits_queue *q, struct sits_request *r)
{
	if (r->state == SITS_REQUEST_WAITING) {
		sits_request_stop_waiting(q, r);
	} else {
		list_del_init(&r->link);
		q->facts.nr_running--;
	}
	if (!list_empty(&r->cancel)) {
		list_del_init(&r->cancel);
		q->nr_cancels--;
	}
	sits_request_stop_timeout(q, r);
	sits_idents_put(&q->idents, r->id);
	if (r->client)
		r->client->nr_requests--;
	r->state = SITS_REQUEST_ENDED;
}

void sits_request_end(struct sits_queue *q, struct sits_request *r, int status,
		      struct sits_chunk *chunk, struct sits_trash *trash)
{
	struct sits_channel *ch = r->client;

	sits_request_forget(q, r);
	trace_sits_request_end(q, r, status);
	if (!ch) {
		sits_trash_request(trash, r);
		if (chunk)
			sits_trash_chunk(trash, chunk);
		return;
	}
	if (!chunk) {
		chunk = &r->end;
		*chunk = (struct sits_chunk) { .len = 0 };
	}
	chunk->req = r;
	chunk->creq = r->creq;
	chunk->status = status;
	chunk->last = true;
	list_add_tail(&chunk->link, &ch->ready);
	ch->nr_ends++;
	sits_channel_needs_pump(ch);
}

void sits_request_queue_cancel(struct sits_queue *q, struct sits_request *r)
{
	list_add_tail(&r->cancel, &q->cancels);
	q->nr_cancels++;
}

void sits_request_cancel(struct sits_queue *q, struct sits_request *r, int status,
			 struct sits_trash *trash)
{
	if (r->cancel_seen)
		return;
	r->cancel_seen = true;
	r->cancel_status = status;
	q->facts.cancelled++;
	atomic64_inc(&sits_stats.cancelled);
	trace_sits_request_cancel(q, r, status);
	if (r->state == SITS_REQUEST_WAITING)
		sits_request_end(q, r, status, NULL, trash);
	else if (r->state == SITS_REQUEST_RUNNING)
		sits_request_queue_cancel(q, r);
	/* else the end of the fetch delivers it */
}
