// SPDX-License-Identifier: GPL-2.0
/*
 * fetch.c - the daemon's side of a queue: FETCH brings events, COMMIT takes answers.
 *
 * User memory is touched without the lock. An event is taken before it is copied and put back where
 * that fails, so it is never lost, nor seen twice.
 */
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>

#include "kmod/compat.h"
#include "kmod/device.h"
#include "kmod/park.h"
#include "kmod/queue.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

/* An answer as long as this is kept on the stack on its way to a RECV that waits. */
#define SITS_COMMIT_SMALL 512

/* -------------------------------------------------------------------- events */

static void sits_event_fill(const struct sits_queue *q, struct sits_event *ev, u32 kind,
			    const struct sits_request *r)
{
	*ev = (struct sits_event) {
		.kind = kind,
		.req = r->id,
		.client = r->client_id,
		.deadline_ns = r->deadline_ns,
		.uid = from_kuid_munged(q->cred->user_ns, r->uid),
		.pid = r->pid,
	};
}

static int sits_fetch_shutdown(void __user *buf)
{
	struct sits_event ev = { .kind = SITS_EV_SHUTDOWN };

	return copy_to_user(buf, &ev, sizeof(ev)) ? -EFAULT : sizeof(ev);
}

/* Locked on entry, not on return. */
static int sits_fetch_cancel_event(struct sits_queue *q, struct sits_request *r, void __user *buf)
	__releases(&q->lock)
{
	struct sits_trash trash = {};
	struct sits_event ev;
	int ret = sizeof(ev);

	list_del_init(&r->cancel);
	q->nr_cancels--;
	kref_get(&r->ref);
	sits_event_fill(q, &ev, SITS_EV_CANCEL, r);
	spin_unlock(&q->lock);

	if (copy_to_user(buf, &ev, sizeof(ev)))
		ret = -EFAULT;
	spin_lock(&q->lock);
	if (ret < 0 && r->state == SITS_REQUEST_RUNNING) {
		list_add(&r->cancel, &q->cancels);
		q->nr_cancels++;
	}
	sits_queue_unlock(q, &trash);
	sits_request_put(r);
	return ret;
}

/* Locked on entry, not on return. */
static int sits_fetch_request(struct sits_queue *q, struct sits_request *r, void __user *buf)
	__releases(&q->lock)
{
	struct sits_trash trash = {};
	struct sits_event ev;
	int ret = sizeof(ev) + r->len;

	sits_request_begin_fetch(q, r);
	kref_get(&r->ref);
	sits_event_fill(q, &ev, SITS_EV_REQUEST, r);
	ev.len = r->len;
	spin_unlock(&q->lock);

	if (copy_to_user(buf, &ev, sizeof(ev)) ||
	    copy_to_user(buf + sizeof(ev), r->data, r->len))
		ret = -EFAULT;
	else
		sits_request_drop_bytes(r);
	spin_lock(&q->lock);
	sits_request_end_fetch(q, r, ret > 0, &trash);
	sits_queue_unlock(q, &trash);
	sits_request_put(r);
	return ret;
}

/* Bring one event. Return: bytes; -EAGAIN: there is none; -EMSGSIZE, -EFAULT: it stays. */
static int sits_fetch_one(struct sits_queue *q, void __user *buf, u32 len)
{
	struct sits_trash trash = {};
	struct sits_request *r;
	bool late;

	do {
		spin_lock(&q->lock);
		q->owner = current->files;
		if (q->dead) {
			spin_unlock(&q->lock);
			return sits_fetch_shutdown(buf);
		}
		r = list_first_entry_or_null(&q->cancels, struct sits_request, cancel);
		if (r)
			return sits_fetch_cancel_event(q, r, buf);
		r = sits_request_next(q);
		late = r && r->deadline_ns && ktime_get_ns() >= r->deadline_ns;
		if (r && !late && len - sizeof(struct sits_event) >= r->len)
			return sits_fetch_request(q, r, buf);
		if (late)
			sits_request_cancel(q, r, -ETIMEDOUT, &trash);
		sits_queue_unlock(q, &trash);
	} while (late);
	return r ? -EMSGSIZE : -EAGAIN;
}

bool sits_queue_has_event(const struct sits_queue *q)
{
	return q->dead || q->nr_cancels || q->facts.nr_waiting;
}

/* ------------------------------------------------------------- FETCH waiting */

/* In task work of who fetches. */
static void sits_fetch_in_task(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct sits_park *park = sits_park_of(cmd);
	struct sits_queue *q = park->obj;
	struct sits_trash trash = {};
	int ret;

	do {
		if (!sits_uring_task_is_alive() || READ_ONCE(park->cancelled) ||
		    sits_park_is_void(park))
			ret = -ECANCELED;
		else
			ret = sits_fetch_one(q, u64_to_user_ptr(park->addr), park->len);
		spin_lock(&q->lock);
		if (ret == -EAGAIN && sits_queue_has_event(q)) {
			spin_unlock(&q->lock);
			continue;
		}
		q->nr_hopping--;
		if (ret == -EAGAIN && !park->cancelled) {	/* somebody else was quicker */
			list_add(&park->link, &q->fetches);
			sits_queue_unlock(q, &trash);
			return;
		}
		q->nr_parked--;
		/* What it did not take is for the next one. */
		sits_queue_unlock(q, &trash);
		if (ret == -EAGAIN)
			ret = -ECANCELED;
		break;
	} while (true);
	sits_park_finish_here(park, ret, issue_flags);
}

void sits_fetch_hop(struct sits_park *park)
{
	io_uring_cmd_complete_in_task(park->cmd, sits_fetch_in_task);
}

/* There is nothing: wait. */
static int sits_fetch_park(struct sits_queue *q, struct io_uring_cmd *cmd, u64 addr, u32 len,
			   unsigned int issue_flags)
{
	struct sits_trash trash = {};
	struct sits_park *park;
	int ret;

	spin_lock(&q->lock);
	ret = q->nr_parked >= SITS_PARKED_MAX ? -EBUSY : 0;
	if (!ret)
		q->nr_parked++;
	spin_unlock(&q->lock);
	if (ret)
		return ret;
	park = sits_park_alloc(cmd, issue_flags, q, addr, len);
	spin_lock(&q->lock);
	if (park && !park->cancelled) {
		list_add_tail(&park->link, &q->fetches);
		/* If something has come meanwhile, this sends it on its way. */
		sits_queue_unlock(q, &trash);
		return -EIOCBQUEUED;
	}
	q->nr_parked--;
	spin_unlock(&q->lock);
	if (!park)
		return -ENOMEM;
	sits_park_finish_here(park, -ECANCELED, issue_flags);
	return -EIOCBQUEUED;
}

static int sits_fetch_check(u32 len, u32 flags, u32 allowed)
{
	return flags & ~allowed || len < sizeof(struct sits_event) ? -EINVAL : 0;
}

int sits_fetch_uring(struct sits_queue *q, struct io_uring_cmd *cmd, const u64 *payload,
		     unsigned int issue_flags)
{
	struct sits_fetch arg;
	int ret;

	memcpy(&arg, payload, sizeof(arg));
	ret = sits_fetch_check(arg.len, arg.flags, 0);
	if (ret)
		return ret;
	ret = sits_fetch_one(q, u64_to_user_ptr(arg.addr), arg.len);
	if (ret == -EAGAIN)
		return sits_fetch_park(q, cmd, arg.addr, arg.len, issue_flags);
	return sits_uring_return(cmd, ret, issue_flags);
}

static bool sits_fetch_may_go_on(struct sits_queue *q)
{
	bool is;

	spin_lock(&q->lock);
	is = sits_queue_has_event(q);
	spin_unlock(&q->lock);
	return is;
}

long sits_fetch_ioctl(struct sits_queue *q, void __user *uarg)
{
	struct sits_fetch arg;
	int ret;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	ret = sits_fetch_check(arg.len, arg.flags, SITS_FETCH_NONBLOCK);
	if (ret)
		return ret;
	do {
		ret = sits_fetch_one(q, u64_to_user_ptr(arg.addr), arg.len);
		if (ret != -EAGAIN || arg.flags & SITS_FETCH_NONBLOCK)
			return ret;
	} while (!wait_event_interruptible(q->wait, sits_fetch_may_go_on(q)));
	return -ERESTARTSYS;
}

void sits_fetch_cancel(struct sits_queue *q, struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct sits_park *park = sits_park_of(cmd);
	bool mine, exec;

	spin_lock(&q->lock);
	park->cancelled = true;
	mine = !list_empty(&park->link);
	if (mine) {
		list_del_init(&park->link);
		q->nr_parked--;
	}
	exec = sits_park_is_exec(park) && park->owner == q->owner;
	spin_unlock(&q->lock);
	if (!mine)
		return;		/* it is on its way, and will see */
	if (exec)
		sits_queue_kill(q, -EPIPE);
	sits_park_finish_here(park, -ECANCELED, issue_flags);
}

/* -------------------------------------------------------------------- COMMIT */

struct sits_answer {
	struct sits_commit_desc desc;
	struct sits_chunk *chunk;	/* bytes that are kept, or to be; NULL: those below */
	u8 small[SITS_COMMIT_SMALL];
};

/* A RECV that waits and has room for all of it, which it may have without a detour. */
static struct sits_park *sits_commit_receiver(struct sits_channel *ch, u32 len)
{
	struct sits_park *park;

	if (ch->pumping || !list_empty(&ch->ready))
		return NULL;
	park = sits_channel_receiver(ch);
	return park && park->len - sizeof(struct sits_chunk_hdr) >= len ? park : NULL;
}

/* Locked on entry and return, not in between. */
static void sits_commit_direct(struct sits_queue *q, struct sits_request *r, struct sits_park *park,
			       const struct sits_answer *a, bool last, int status,
			       struct sits_trash *trash)
	__must_hold(&q->lock)
{
	struct sits_channel *ch = r->client;
	struct sits_chunk_hdr hdr = {
		.req = r->creq,
		.len = a->desc.len,
		.status = last ? status : 0,
		.flags = last ? SITS_CHUNK_F_LAST : 0,
	};
	u8 *room = ch->arena + park->addr;

	list_del_init(&park->link);
	ch->nr_parked--;
	ch->pumping = true;
	if (last) {
		sits_request_forget(q, r);
		trace_sits_request_end(q, r, status);
		sits_idents_put(&ch->idents, r->creq);
		sits_trash_request(trash, r);
	}
	spin_unlock(&q->lock);

	memcpy(room, &hdr, sizeof(hdr));
	memcpy(room + sizeof(hdr), a->chunk ? a->chunk->data : a->small, a->desc.len);
	sits_park_finish(park, sizeof(hdr) + a->desc.len);

	spin_lock(&q->lock);
	sits_channel_resume(ch);
}

static bool sits_commit_is_too_much(const struct sits_queue *q, const struct sits_request *r,
				    u32 len, bool last)
{
	const u64 limit = q->arg.chunk_backlog;

	if (r->backlog + len + SITS_CHUNK_OVERHEAD <= limit)
		return false;
	return !last || len > limit;
}

/* Keep it until the client collects it. */
static void sits_commit_keep(struct sits_queue *q, struct sits_request *r, struct sits_answer *a,
			     bool last, int status, struct sits_trash *trash)
{
	struct sits_chunk *chunk = a->chunk;
	struct sits_channel *ch = r->client;

	a->chunk = NULL;
	if (chunk)
		r->backlog += chunk->len + SITS_CHUNK_OVERHEAD;
	if (last) {
		sits_request_end(q, r, status, chunk, trash);
		return;
	}
	chunk->req = r;
	chunk->creq = r->creq;
	list_add_tail(&chunk->link, &ch->ready);
	sits_channel_needs_pump(ch);
}

/* Locked on entry and return. Return: -EAGAIN: it takes a chunk to keep it. */
static int sits_commit_locked(struct sits_queue *q, struct sits_answer *a, struct sits_trash *trash)
{
	struct sits_request *r = sits_idents_find(&q->idents, a->desc.req);
	bool last = a->desc.flags & SITS_COMMIT_F_LAST;
	int status = a->desc.status;
	struct sits_park *park;

	if (!r || r->state != SITS_REQUEST_RUNNING)
		return -ENOENT;
	if (!r->client) {
		if (last)
			sits_request_end(q, r, status, NULL, trash);
		return -EPIPE;
	}
	if (last && r->deadline_ns && ktime_get_ns() >= r->deadline_ns)
		status = -ETIMEDOUT;
	park = sits_commit_receiver(r->client, a->desc.len);
	if (!park && sits_commit_is_too_much(q, r, a->desc.len, last))
		return -ENOBUFS;
	if (!park && !a->chunk && (a->desc.len || !last))
		return -EAGAIN;
	trace_sits_commit(q, r, a->desc.len, status, last);
	q->facts.bytes_out += a->desc.len;
	if (last) {
		q->facts.answered++;
		atomic64_inc(&sits_stats.answered);
	}
	if (park)
		sits_commit_direct(q, r, park, a, last, status, trash);
	else
		sits_commit_keep(q, r, a, last, status, trash);
	return 0;
}

/* Would its bytes be taken? So that memory is not asked for in vain; without a client for none. */
static int sits_commit_precheck(struct sits_queue *q, struct sits_commit_desc *desc)
{
	bool last = desc->flags & SITS_COMMIT_F_LAST;
	struct sits_request *r;
	int ret = 0;

	spin_lock(&q->lock);
	r = sits_idents_find(&q->idents, desc->req);
	if (!r || r->state != SITS_REQUEST_RUNNING)
		ret = -ENOENT;
	else if (!r->client)
		desc->len = 0;
	else if (!sits_commit_receiver(r->client, desc->len) &&
		 sits_commit_is_too_much(q, r, desc->len, last))
		ret = -ENOBUFS;
	spin_unlock(&q->lock);
	return ret;
}

/* A chunk with the bytes, where they are too many for the stack, or have to be kept. */
static int sits_commit_chunk(struct sits_answer *a)
{
	struct sits_chunk *chunk = sits_chunk_alloc(a->desc.len);

	if (!chunk)
		return -ENOMEM;
	if (a->desc.len <= sizeof(a->small)) {
		memcpy(chunk->data, a->small, a->desc.len);
	} else if (copy_from_user(chunk->data, u64_to_user_ptr(a->desc.addr), a->desc.len)) {
		sits_chunk_free(chunk);
		return -EFAULT;
	}
	a->chunk = chunk;
	return 0;
}

static int sits_commit_get(struct sits_queue *q, const u64 *payload, struct sits_answer *a)
{
	struct sits_commit_desc *desc = &a->desc;
	struct sits_commit arg;
	int ret;

	memcpy(&arg, payload, sizeof(arg));
	if (arg.reserved)
		return -EINVAL;
	ret = sits_arg_get(desc, sizeof(*desc), sizeof(*desc), u64_to_user_ptr(arg.addr));
	if (ret)
		return ret;
	if (desc->flags & ~SITS_COMMIT_F_LAST || desc->status > 0 || desc->status < -MAX_ERRNO)
		return -EINVAL;
	if (desc->status && !(desc->flags & SITS_COMMIT_F_LAST))
		return -EINVAL;
	if (desc->len <= sizeof(a->small))
		return copy_from_user(a->small, u64_to_user_ptr(desc->addr), desc->len) ?
		       -EFAULT : 0;
	return sits_commit_precheck(q, desc) ?: sits_commit_chunk(a);
}

int sits_commit(struct sits_queue *q, const u64 *payload)
{
	struct sits_trash trash = {};
	struct sits_answer a;
	int ret;

	a.chunk = NULL;
	a.desc.len = 0;
	ret = sits_commit_get(q, payload, &a);
	while (!ret) {
		spin_lock(&q->lock);
		ret = sits_commit_locked(q, &a, &trash);
		sits_queue_unlock(q, &trash);
		if (ret != -EAGAIN)
			break;
		ret = sits_commit_chunk(&a);
	}
	sits_chunk_free(a.chunk);
	memzero_explicit(a.small, min_t(size_t, a.desc.len, sizeof(a.small)));
	return ret;
}

int sits_close_intake(struct sits_queue *q)
{
	struct sits_trash trash = {};
	struct sits_request *r;

	spin_lock(&q->lock);
	q->intake_closed = true;
	while ((r = sits_request_next(q))) {
		sits_request_end(q, r, -ESHUTDOWN, NULL, &trash);
		if (need_resched()) {
			sits_queue_unlock(q, &trash);
			cond_resched();
			spin_lock(&q->lock);
		}
	}
	sits_queue_unlock(q, &trash);
	return 0;
}
