// SPDX-License-Identifier: GPL-2.0
/*
 * channel.c - the client's side of a queue: its file, its arena, SUBMIT, RECV, CANCEL.
 *
 * The arena is the client's to write at any time: the kernel reads a request's bytes once, into
 * memory of its own, and otherwise only writes there. Bytes go into it without the lock; meanwhile
 * the channel is "pumping", and nobody else hands out chunks of it.
 */
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "kmod/compat.h"
#include "kmod/device.h"
#include "kmod/park.h"
#include "kmod/queue.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

/* A request larger than this is not copied before it is known to be taken. */
#define SITS_SUBMIT_SMALL 4096

/* ------------------------------------------------------------ handing out */

/* It is used up, or nobody will: off the list. */
static void sits_channel_discard(struct sits_chunk *chunk, struct sits_trash *trash)
{
	struct sits_request *r = chunk->req;
	bool is_end = chunk == &r->end;		/* r may be gone, unless the chunk is the last */

	if (chunk->last)
		sits_trash_request(trash, r);
	if (!is_end)
		sits_trash_chunk(trash, chunk);
}

/*
 * Write the first chunk, or what there is room for, into the arena. Locked on entry and return, not
 * in between; pumping. Return: bytes written.
 */
static int sits_channel_fill(struct sits_channel *ch, u64 off, u32 len, struct sits_trash *trash)
	__must_hold(&ch->queue->lock)
{
	struct sits_chunk *chunk = list_first_entry(&ch->ready, struct sits_chunk, link);
	u32 n = min_t(u32, len - sizeof(struct sits_chunk_hdr), chunk->len - chunk->done);
	const u8 *from = chunk->data + chunk->done;
	bool whole = chunk->done + n == chunk->len;
	struct sits_chunk_hdr hdr = { .req = chunk->creq, .len = n };
	struct sits_queue *q = ch->queue;
	u8 *room = ch->arena + off;

	if (!whole) {
		hdr.flags = SITS_CHUNK_F_MORE;
	} else if (chunk->last) {
		hdr.flags = SITS_CHUNK_F_LAST;
		hdr.status = chunk->status;
		ch->nr_ends--;
		sits_idents_put(&ch->idents, chunk->creq);
	} else {
		chunk->req->backlog -= chunk->len + SITS_CHUNK_OVERHEAD;
	}
	chunk->done += n;
	list_del_init(&chunk->link);
	spin_unlock(&q->lock);

	memcpy(room, &hdr, sizeof(hdr));
	if (n)
		memcpy(room + sizeof(hdr), from, n);

	spin_lock(&q->lock);
	if (whole || ch->dead)
		sits_channel_discard(chunk, trash);
	else
		list_add(&chunk->link, &ch->ready);
	return sizeof(hdr) + n;
}

/* Its daemon is gone, and every request has been ended: what is not on @ready will not come. */
static bool sits_channel_is_over(const struct sits_channel *ch)
{
	return ch->queue->dead && !ch->nr_requests;
}

static bool sits_channel_is_readable(const struct sits_channel *ch)
{
	return ch->dead || (!ch->pumping && (sits_channel_is_over(ch) || !list_empty(&ch->ready)));
}

static __poll_t sits_channel_hup(const struct sits_channel *ch)
{
	return ch->dead || sits_channel_is_over(ch) ? EPOLLHUP : 0;
}

struct sits_park *sits_channel_receiver(struct sits_channel *ch)
{
	struct sits_park *park;

	list_for_each_entry(park, &ch->recvs, link)
		if (!sits_park_is_void(park))
			return park;
	return NULL;
}

/*
 * RECVs of rings that are closed, which nothing is given to. Nobody looks at the tasks of a queue
 * that is dead, so they end here. Locked on entry and return, not in between; pumping. Return:
 * whether there were any, and there may be others now.
 */
static bool sits_channel_end_void(struct sits_channel *ch)
	__must_hold(&ch->queue->lock)
{
	struct sits_park *park;
	struct sits_parks parks = {};

	if (list_empty(&ch->recvs))
		return false;
	while ((park = list_first_entry_or_null(&ch->recvs, struct sits_park, link))) {
		sits_park_take(park, &parks);
		ch->nr_parked--;
	}
	spin_unlock(&ch->queue->lock);
	sits_parks_finish(&parks, -ECANCELED);
	spin_lock(&ch->queue->lock);
	return true;
}

void sits_channel_resume(struct sits_channel *ch)
{
	ch->pumping = false;
	if (ch->dead)	/* gone as soon as the lock goes */
		wake_up_poll(&ch->wait, EPOLLIN | EPOLLHUP);
	else
		sits_channel_needs_pump(ch);
}

/* Return: false where the budget is used up; locked as the next one. */
static bool sits_channel_hand_out(struct sits_channel *ch, struct sits_trash *trash, u32 *budget)
	__must_hold(&ch->queue->lock)
{
	struct sits_queue *q = ch->queue;
	struct sits_park *park;
	int res;

	while ((park = sits_channel_receiver(ch))) {
		if (list_empty(&ch->ready) && !sits_channel_is_over(ch))
			break;
		if (!*budget) {
			sits_channel_needs_pump(ch);
			return false;
		}
		--*budget;
		list_del_init(&park->link);
		ch->nr_parked--;
		res = -EPIPE;
		if (!list_empty(&ch->ready))
			res = sits_channel_fill(ch, park->addr, park->len, trash);
		spin_unlock(&q->lock);
		sits_park_finish(park, res);
		spin_lock(&q->lock);
	}
	return true;
}

void sits_channel_pump(struct sits_channel *ch, struct sits_trash *trash, u32 *budget)
	__must_hold(&ch->queue->lock)
{
	bool give_up;

	if (ch->pumping)
		return;		/* whoever does it looks again */
	ch->pumping = true;
	do {
		give_up = !sits_channel_hand_out(ch, trash, budget);
	} while (!give_up && sits_channel_is_over(ch) && sits_channel_end_void(ch));
	ch->pumping = false;
	/*
	 * With the lock held: the channel may be gone right after. And who waits has looked under
	 * it after queueing, so none is missed.
	 */
	if (waitqueue_active(&ch->wait) && sits_channel_is_readable(ch))
		wake_up_poll(&ch->wait, EPOLLIN | EPOLLRDNORM | sits_channel_hup(ch));
}

/* ------------------------------------------------------------ the three commands */

static int sits_submit_check(const struct sits_channel *ch, const struct sits_submit *arg)
{
	if (arg->len > SITS_REQUEST_BYTES_MAX)
		return -EMSGSIZE;
	if (!arg->len || (u64)arg->off + arg->len > ch->arena_bytes)
		return -EINVAL;
	if (arg->off_req % sizeof(u64) || (u64)arg->off_req + sizeof(u64) > ch->arena_bytes)
		return -EINVAL;
	return 0;
}

static int sits_submit(struct sits_channel *ch, const u64 *payload)
{
	struct sits_trash trash = {};
	struct sits_queue *q = ch->queue;
	struct sits_request *r;
	struct sits_submit arg;
	int ret;

	memcpy(&arg, payload, sizeof(arg));
	ret = sits_submit_check(ch, &arg);
	if (ret)
		return ret;
	if (arg.len > SITS_SUBMIT_SMALL) {
		spin_lock(&q->lock);
		ret = sits_request_admit(q, ch);
		spin_unlock(&q->lock);
		if (ret)
			return ret;
	}
	r = sits_request_alloc(ch, ch->arena + arg.off, arg.len);
	if (!r)
		return -ENOMEM;
	if (arg.timeout_ms)
		r->deadline_ns = ktime_get_ns() + (u64)arg.timeout_ms * NSEC_PER_MSEC;
	spin_lock(&q->lock);
	ch->owner = current->files;
	ret = sits_request_submit(q, ch, r);
	if (!ret)	/* before anybody can answer it */
		WRITE_ONCE(*(u64 *)(ch->arena + arg.off_req), r->creq);
	sits_queue_unlock(q, &trash);
	if (ret)
		sits_request_put(r);
	return ret;
}

static int sits_cancel(struct sits_channel *ch, const u64 *payload)
{
	struct sits_trash trash = {};
	struct sits_queue *q = ch->queue;
	struct sits_request *r;
	struct sits_cancel arg;

	memcpy(&arg, payload, sizeof(arg));
	if (arg.reserved)
		return -EINVAL;
	spin_lock(&q->lock);
	r = ch->dead ? NULL : sits_idents_find(&ch->idents, arg.req);
	if (r && r->state != SITS_REQUEST_ENDED)
		sits_request_cancel(q, r, -ECANCELED, &trash);
	sits_queue_unlock(q, &trash);
	return r ? 0 : -ENOENT;
}

/* Return: bytes; -EPIPE; -EAGAIN: nothing is there. */
static int sits_recv_one(struct sits_channel *ch, u32 off, u32 len)
{
	struct sits_trash trash = {};
	struct sits_queue *q = ch->queue;
	int ret = -EAGAIN;

	spin_lock(&q->lock);
	ch->owner = current->files;
	if (ch->dead) {
		ret = -EPIPE;
	} else if (!ch->pumping && !list_empty(&ch->ready)) {
		ch->pumping = true;
		ret = sits_channel_fill(ch, off, len, &trash);
		sits_channel_resume(ch);
	} else if (!ch->pumping && sits_channel_is_over(ch)) {
		ret = -EPIPE;
	}
	sits_queue_unlock(q, &trash);
	return ret;
}

static int sits_recv_check(const struct sits_channel *ch, const struct sits_recv *arg, u32 flags)
{
	if (arg->flags & ~flags || arg->reserved || arg->len <= sizeof(struct sits_chunk_hdr) ||
	    (u64)arg->off + arg->len > ch->arena_bytes)
		return -EINVAL;
	return 0;
}

/* There is nothing: wait. */
static int sits_recv_park(struct sits_channel *ch, struct io_uring_cmd *cmd, u32 off, u32 len,
			  unsigned int issue_flags)
{
	struct sits_trash trash = {};
	struct sits_queue *q = ch->queue;
	struct sits_park *park;
	int ret;

	spin_lock(&q->lock);
	ret = ch->nr_parked >= SITS_PARKED_MAX ? -EBUSY : 0;
	if (!ret)
		ch->nr_parked++;
	spin_unlock(&q->lock);
	if (ret)
		return ret;
	park = sits_park_alloc(cmd, issue_flags, ch, off, len);
	spin_lock(&q->lock);
	if (park && !park->cancelled && !ch->dead) {
		list_add_tail(&park->link, &ch->recvs);
		/* Something may have come meanwhile, or the daemon gone. */
		sits_channel_needs_pump(ch);
		sits_queue_unlock(q, &trash);
		return -EIOCBQUEUED;
	}
	ch->nr_parked--;
	spin_unlock(&q->lock);
	if (!park)
		return -ENOMEM;
	sits_park_finish_here(park, -ECANCELED, issue_flags);
	return -EIOCBQUEUED;
}

static int sits_recv_uring(struct sits_channel *ch, struct io_uring_cmd *cmd, const u64 *payload,
			   unsigned int issue_flags)
{
	struct sits_recv arg;
	int ret;

	memcpy(&arg, payload, sizeof(arg));
	ret = sits_recv_check(ch, &arg, 0);
	if (ret)
		return ret;
	ret = sits_recv_one(ch, arg.off, arg.len);
	if (ret == -EAGAIN)
		return sits_recv_park(ch, cmd, arg.off, arg.len, issue_flags);
	return sits_uring_return(cmd, ret, issue_flags);
}

static bool sits_recv_may_go_on(struct sits_channel *ch)
{
	bool is;

	spin_lock(&ch->queue->lock);
	is = sits_channel_is_readable(ch);
	spin_unlock(&ch->queue->lock);
	return is;
}

static long sits_recv_ioctl(struct sits_channel *ch, const u64 *payload)
{
	struct sits_recv arg;
	int ret;

	memcpy(&arg, payload, sizeof(arg));
	ret = sits_recv_check(ch, &arg, SITS_RECV_NONBLOCK);
	if (ret)
		return ret;
	do {
		ret = sits_recv_one(ch, arg.off, arg.len);
		if (ret != -EAGAIN || arg.flags & SITS_RECV_NONBLOCK)
			return ret;
	} while (!wait_event_interruptible(ch->wait, sits_recv_may_go_on(ch)));
	return -ERESTARTSYS;
}

/* The kernel takes a RECV that waits back. */
static void sits_recv_cancel(struct sits_channel *ch, struct io_uring_cmd *cmd,
			     unsigned int issue_flags)
{
	struct sits_park *park = sits_park_of(cmd);
	struct sits_queue *q = ch->queue;
	bool mine, exec;

	spin_lock(&q->lock);
	park->cancelled = true;
	mine = !list_empty(&park->link);
	if (mine) {
		list_del_init(&park->link);
		ch->nr_parked--;
	}
	exec = sits_park_is_exec(park) && park->owner == ch->owner;
	spin_unlock(&q->lock);
	if (!mine)
		return;		/* somebody is ending it */
	if (exec)
		sits_channel_kill(ch);
	sits_park_finish_here(park, -ECANCELED, issue_flags);
}

/* ------------------------------------------------------------------ the file */

static long sits_channel_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct sits_channel *ch = file->private_data;
	u64 payload[2];

	if (cmd != SITS_IOC_SUBMIT && cmd != SITS_IOC_RECV && cmd != SITS_IOC_CANCEL)
		return -ENOTTY;
	if (copy_from_user(payload, (void __user *)arg, sizeof(payload)))
		return -EFAULT;
	if (cmd == SITS_IOC_SUBMIT)
		return sits_submit(ch, payload);
	if (cmd == SITS_IOC_CANCEL)
		return sits_cancel(ch, payload);
	return sits_recv_ioctl(ch, payload);
}

static int sits_channel_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct sits_channel *ch = cmd->file->private_data;
	u64 payload[2];

	if (issue_flags & SITS_URING_F_CANCEL) {
		sits_recv_cancel(ch, cmd, issue_flags);
		return 0;
	}
	sits_uring_payload(cmd, payload);
	switch (cmd->cmd_op) {
	case SITS_IOC_SUBMIT:
		return sits_submit(ch, payload);
	case SITS_IOC_RECV:
		return sits_recv_uring(ch, cmd, payload, issue_flags);
	case SITS_IOC_CANCEL:
		return sits_cancel(ch, payload);
	default:
		return -ENOTTY;
	}
}

static __poll_t sits_channel_poll(struct file *file, poll_table *wait)
{
	struct sits_channel *ch = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &ch->wait, wait);
	spin_lock(&ch->queue->lock);
	if (sits_channel_is_readable(ch))
		mask |= EPOLLIN | EPOLLRDNORM;
	mask |= sits_channel_hup(ch);
	spin_unlock(&ch->queue->lock);
	return mask;
}

static int sits_channel_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sits_channel *ch = file->private_data;
	unsigned long off;
	int ret;

	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != ch->arena_bytes ||
	    !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	sits_vma_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY, VM_MAYEXEC);
	for (off = 0; off < ch->arena_bytes; off += PAGE_SIZE) {
		ret = vm_insert_page(vma, vma->vm_start + off, vmalloc_to_page(ch->arena + off));
		if (ret)
			return ret;
		cond_resched();
	}
	return 0;
}

void sits_channel_kill(struct sits_channel *ch)
{
	struct sits_trash trash = {};
	struct sits_queue *q = ch->queue;
	struct sits_chunk *chunk, *next_chunk;
	struct sits_request *r;
	struct sits_park *park;
	struct sits_parks recvs = {};
	LIST_HEAD(ready);

	spin_lock(&q->lock);
	if (ch->dead) {
		spin_unlock(&q->lock);
		return;
	}
	ch->dead = true;
	trace_sits_channel_end(q, ch->id, ch->nr_requests);
	list_splice_init(&ch->ready, &ready);
	while ((r = list_first_entry_or_null(&ch->waiting, struct sits_request, link))) {
		q->facts.cancelled++;
		atomic64_inc(&sits_stats.cancelled);
		sits_request_forget(q, r);
		sits_trash_request(&trash, r);
	}
	while ((r = list_first_entry_or_null(&ch->running, struct sits_request, link))) {
		sits_request_cancel(q, r, -ECANCELED, &trash);
		list_del_init(&r->link);
		r->client = NULL;
		r->backlog = 0;
	}
	while ((park = list_first_entry_or_null(&ch->recvs, struct sits_park, link)))
		sits_park_take(park, &recvs);
	list_del_init(&ch->link);
	list_del_init(&ch->pump_link);
	q->facts.nr_clients--;
	wake_up_poll(&ch->wait, EPOLLIN | EPOLLHUP);
	sits_queue_unlock(q, &trash);
	/* There may be many. */
	list_for_each_entry_safe(chunk, next_chunk, &ready, link) {
		sits_channel_discard(chunk, &trash);
		sits_trash_empty(&trash);
		cond_resched();
	}
	sits_parks_finish(&recvs, -ECANCELED);
}

/* A process closes it, or goes. */
static int sits_channel_flush(struct file *file, fl_owner_t id)
{
	struct sits_channel *ch = file->private_data;
	struct sits_queue *q = ch->queue;
	struct sits_park *park, *next;
	bool is_owner;
	struct sits_parks mine = {};

	spin_lock(&q->lock);
	is_owner = ch->owner == id;
	list_for_each_entry_safe(park, next, &ch->recvs, link) {
		if (park->owner != id)
			continue;
		sits_park_take(park, &mine);
		ch->nr_parked--;
	}
	spin_unlock(&q->lock);
	if (is_owner)
		sits_channel_kill(ch);
	sits_parks_finish(&mine, -ECANCELED);
	return 0;
}

static bool sits_channel_is_still(struct sits_channel *ch)
{
	bool is;

	spin_lock(&ch->queue->lock);
	is = !ch->pumping;
	spin_unlock(&ch->queue->lock);
	return is;
}

static void sits_channel_free(struct sits_channel *ch)
{
	if (ch->arena) {
		memset(ch->arena, 0, ch->arena_bytes);
		vfree(ch->arena);
	}
	sits_idents_fini(&ch->idents);
	sits_queue_put(ch->queue);
	kfree(ch);
	atomic64_dec(&sits_stats.channels);
}

static void sits_channel_close(struct sits_channel *ch)
{
	sits_channel_kill(ch);
	/* A commit may be copying into the arena right now. */
	wait_event(ch->wait, sits_channel_is_still(ch));
	WARN_ON_ONCE(!list_empty(&ch->recvs));
	sits_channel_free(ch);
}

static int sits_channel_release(struct inode *inode, struct file *file)
{
	sits_channel_close(file->private_data);
	return 0;
}

static void sits_channel_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct sits_channel *ch = file->private_data;
	u32 nr_requests, nr_ends, nr_parked;
	bool dead;

	spin_lock(&ch->queue->lock);
	nr_requests = ch->nr_requests;
	nr_ends = ch->nr_ends;
	nr_parked = ch->nr_parked;
	dead = ch->dead || ch->queue->dead;
	spin_unlock(&ch->queue->lock);
	seq_printf(m, "sits-queue:\t%s\n", ch->queue->arg.name);
	seq_printf(m, "sits-client:\t%llu\n", ch->id);
	seq_printf(m, "sits-arena-bytes:\t%llu\n", ch->arena_bytes);
	seq_printf(m, "sits-requests:\t%u\n", nr_requests);
	seq_printf(m, "sits-ends:\t%u\n", nr_ends);
	seq_printf(m, "sits-receivers:\t%u\n", nr_parked);
	seq_printf(m, "sits-dead:\t%u\n", dead);
}

static const struct file_operations sits_channel_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= sits_channel_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.uring_cmd	= sits_channel_uring_cmd,
	.poll		= sits_channel_poll,
	.mmap		= sits_channel_mmap,
	.flush		= sits_channel_flush,
	.release	= sits_channel_release,
	.show_fdinfo	= sits_channel_show_fdinfo,
	.llseek		= noop_llseek,
};

/* ------------------------------------------------------------------- opening */

/* As connecting to a socket of that mode would be. */
static bool sits_channel_may_open(const struct sits_queue *q)
{
	u32 mode = q->arg.mode;

	if (uid_eq(current_fsuid(), q->cred->fsuid))
		mode >>= 6;
	else if (in_group_p(q->cred->fsgid))
		mode >>= 3;
	return mode & 2 || capable(CAP_DAC_OVERRIDE);
}

static int sits_channel_join(struct sits_queue *q, struct sits_channel *ch)
{
	int ret = 0;

	spin_lock(&q->lock);
	if (q->dead)
		ret = -ENOENT;
	else if (q->intake_closed)
		ret = -ESHUTDOWN;
	else if (q->facts.nr_clients >= q->arg.max_clients)
		ret = -EBUSY;
	if (!ret) {
		ch->id = ++q->next_client;
		list_add_tail(&ch->link, &q->channels);
		q->facts.nr_clients++;
	}
	spin_unlock(&q->lock);
	return ret;
}

/* @q: taken on success only */
static struct sits_channel *sits_channel_make(struct sits_queue *q, u64 arena_bytes)
{
	struct sits_channel *ch = kzalloc(sizeof(*ch), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!ch)
		return ERR_PTR(-ENOMEM);
	ch->queue = q;
	ch->uid = current_uid();
	ch->pid = pid_nr_ns(task_tgid(current), q->pid_ns);
	ch->arena_bytes = arena_bytes;
	INIT_LIST_HEAD(&ch->link);
	INIT_LIST_HEAD(&ch->ready_link);
	INIT_LIST_HEAD(&ch->pump_link);
	init_waitqueue_head(&ch->wait);
	INIT_LIST_HEAD(&ch->waiting);
	INIT_LIST_HEAD(&ch->running);
	INIT_LIST_HEAD(&ch->ready);
	INIT_LIST_HEAD(&ch->recvs);
	/* Each request, and an end that is not collected for as many more. */
	ret = sits_idents_init(&ch->idents, 2 * q->arg.per_client);
	if (ret)
		goto err_free;
	ret = sits_channel_join(q, ch);
	if (ret)
		goto err_slots;
	atomic64_inc(&sits_stats.channels);
	return ch;

err_slots:
	sits_idents_fini(&ch->idents);
err_free:
	kfree(ch);
	return ERR_PTR(ret);
}

static int sits_channel_make_arena(struct sits_channel *ch)
{
	ch->arena = __vmalloc(ch->arena_bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
			      __GFP_RETRY_MAYFAIL);
	return ch->arena ? 0 : -ENOMEM;
}

/* Put a channel behind a descriptor. It is taken always. */
static int sits_channel_install(struct sits_channel *ch, struct sits_channel_create *arg,
				void __user *uarg)
{
	struct file *file;

	file = anon_inode_getfile("[sits-channel]", &sits_channel_fops, ch, O_RDWR);
	if (IS_ERR(file)) {
		sits_channel_close(ch);
		return PTR_ERR(file);
	}
	/* The file owns the channel from here on. */
	trace_sits_channel_open(ch->queue, ch->id, ch->pid);
	return sits_file_install(file, arg->fd_flags, uarg, arg, sizeof(*arg), &arg->fd);
}

long sits_ioctl_channel_open(struct file *file, void __user *uarg)
{
	struct sits_channel_create arg;
	struct sits_channel *ch;
	struct sits_queue *q;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (arg.flags || arg.fd_flags & ~O_CLOEXEC || !arg.arena_bytes ||
	    arg.arena_bytes % PAGE_SIZE || arg.arena_bytes > SITS_ARENA_MAX ||
	    !sits_queue_name_is_valid(arg.queue))
		return -EINVAL;
	q = sits_queue_lookup(arg.queue);
	if (!q)
		return -ENOENT;
	ch = ERR_PTR(-EACCES);
	if (sits_channel_may_open(q))
		ch = sits_channel_make(q, arg.arena_bytes);
	if (IS_ERR(ch)) {
		sits_queue_put(q);
		return PTR_ERR(ch);
	}
	ret = sits_channel_make_arena(ch);
	if (ret) {
		sits_channel_close(ch);
		return ret;
	}
	return sits_channel_install(ch, &arg, uarg);
}
