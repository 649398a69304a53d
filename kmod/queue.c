// SPDX-License-Identifier: GPL-2.0
/*
 * queue.c - queues of the request path: names, the daemon's file, ends, and who waits for what.
 *
 * A queue ends with its daemon, also where the file lives on: in a forked child, in another
 * process, in a ring that cannot be freed because a command of it waits here. ->flush tells of most
 * of that; a look now and then at the tasks whose commands wait tells of the rest.
 */
#include <linux/anon_inodes.h>
#include <linux/cred.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/mutex.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "kmod/compat.h"
#include "kmod/device.h"
#include "kmod/park.h"
#include "kmod/queue.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

#define SITS_WATCH_EVERY	msecs_to_jiffies(250)

/* Living queues, by growing id. */
static LIST_HEAD(sits_queues);
static DEFINE_MUTEX(sits_queues_lock);
static u64 sits_next_queue;

static void sits_queue_watch(struct work_struct *work);
static DECLARE_DELAYED_WORK(sits_queue_watchdog, sits_queue_watch);

/* Of its own, so that none of it is left when the module goes. */
static struct workqueue_struct *sits_queue_wq;

/* --------------------------------------------------------------------- names */

bool sits_queue_name_is_valid(const u8 *name)
{
	size_t i;

	if (!name[0] || name[0] == '.')
		return false;
	for (i = 0; i < SITS_QNAME_MAX; i++) {
		if (!name[i])
			return true;
		if (!(name[i] >= 'A' && name[i] <= 'Z') && !(name[i] >= 'a' && name[i] <= 'z') &&
		    !(name[i] >= '0' && name[i] <= '9') && !strchr("_.-", name[i]))
			return false;
	}
	return false;
}

static struct sits_queue *sits_queue_find(const u8 *name)
{
	struct sits_queue *q;

	list_for_each_entry(q, &sits_queues, names)
		if (!strncmp(q->arg.name, name, SITS_QNAME_MAX))
			return q;
	return NULL;
}

struct sits_queue *sits_queue_lookup(const u8 *name)
{
	struct sits_queue *q;

	mutex_lock(&sits_queues_lock);
	q = sits_queue_find(name);
	if (q)
		kref_get(&q->ref);
	mutex_unlock(&sits_queues_lock);
	return q;
}

static int sits_queue_publish(struct sits_queue *q)
{
	int ret = 0;

	mutex_lock(&sits_queues_lock);
	if (sits_queue_find(q->arg.name))
		ret = -EADDRINUSE;
	if (!ret) {
		q->id = ++sits_next_queue;
		list_add_tail(&q->names, &sits_queues);
		queue_delayed_work(system_unbound_wq, &sits_queue_watchdog, SITS_WATCH_EVERY);
	}
	mutex_unlock(&sits_queues_lock);
	return ret;
}

static void sits_queue_unpublish(struct sits_queue *q)
{
	mutex_lock(&sits_queues_lock);
	list_del_init(&q->names);
	mutex_unlock(&sits_queues_lock);
}

/* --------------------------------------------------------------------- waking */

/*
 * Clients can make chunks and room for them for ever. So nobody hands out more than his part: who
 * sends or commits is not to be kept by what others do.
 */
static void sits_queue_pump(struct sits_queue *q, struct sits_trash *trash)
	__must_hold(&q->lock)
{
	u32 budget = SITS_PUMP_MAX;
	struct sits_channel *ch;

	while (budget && (ch = list_first_entry_or_null(&q->to_pump, struct sits_channel,
							pump_link))) {
		list_del_init(&ch->pump_link);
		sits_channel_pump(ch, trash, &budget);
	}
	if (list_empty(&q->to_pump))
		return;
	/* It can't put it before the lock goes. */
	if (queue_work(sits_queue_wq, &q->pump))
		kref_get(&q->ref);
}

static void sits_queue_pump_work(struct work_struct *work)
{
	struct sits_queue *q = container_of(work, struct sits_queue, pump);
	struct sits_trash trash = {};

	spin_lock(&q->lock);
	sits_queue_unlock(q, &trash);
	sits_queue_put(q);
}

static bool sits_queue_wants_fetch(const struct sits_queue *q)
{
	return q->dead || q->nr_hopping < q->nr_cancels + q->facts.nr_waiting;
}

void sits_queue_unlock(struct sits_queue *q, struct sits_trash *trash) __releases(&q->lock)
{
	struct sits_park *park, *next;
	struct sits_parks hops = {};

	sits_queue_pump(q, trash);
	while (!list_empty(&q->fetches) && sits_queue_wants_fetch(q)) {
		park = list_first_entry(&q->fetches, struct sits_park, link);
		sits_park_take(park, &hops);
		q->nr_hopping++;
	}
	/* Who waits has looked under the lock after queueing, so none is missed. */
	if (waitqueue_active(&q->wait) && sits_queue_has_event(q))
		wake_up_poll(&q->wait, EPOLLIN | EPOLLRDNORM | (q->dead ? EPOLLHUP : 0));
	spin_unlock(&q->lock);
	for (park = hops.first; park; park = next) {
		next = park->next;
		sits_fetch_hop(park);
	}
	sits_trash_empty(trash);
}

/* ----------------------------------------------------------------------- ends */

/* Unlocked meanwhile. */
static void sits_queue_breathe(struct sits_queue *q, struct sits_trash *trash)
	__must_hold(&q->lock)
{
	if (!need_resched())
		return;
	sits_queue_unlock(q, trash);
	cond_resched();
	spin_lock(&q->lock);
}

void sits_queue_kill(struct sits_queue *q, int status)
{
	struct sits_trash trash = {};
	struct sits_channel *ch;
	struct sits_request *r;
	u32 i;

	sits_queue_unpublish(q);
	spin_lock(&q->lock);
	if (q->dead) {
		spin_unlock(&q->lock);
		return;
	}
	q->dead = true;
	trace_sits_queue_end(q, 0, status);
	for (i = 0; i < q->idents.nr; i++) {
		if (!q->idents.ident[i].id)
			continue;
		r = q->idents.ident[i].obj;
		sits_request_end(q, r, status, NULL, &trash);
		sits_queue_breathe(q, &trash);
	}
	/* Whoever waits for something else hears that it will not come. */
	list_for_each_entry(ch, &q->channels, link)
		sits_channel_needs_pump(ch);
	sits_queue_unlock(q, &trash);
}

/* What its requests end with when it goes in the caller's context. */
static int sits_queue_end_status(void)
{
	bool gone = current->flags & (PF_EXITING | PF_KTHREAD) || current->in_execve;

	return gone ? -EPIPE : -ESHUTDOWN;
}

static int sits_queue_flush(struct file *file, fl_owner_t id)
{
	struct sits_queue *q = file->private_data;
	struct sits_park *park, *next;
	bool is_owner;
	struct sits_parks mine = {};

	spin_lock(&q->lock);
	is_owner = q->owner == id;
	list_for_each_entry_safe(park, next, &q->fetches, link) {
		if (is_owner || park->owner != id)
			continue;
		sits_park_take(park, &mine);
		q->nr_parked--;
	}
	spin_unlock(&q->lock);
	if (is_owner)
		sits_queue_kill(q, sits_queue_end_status());
	sits_parks_finish(&mine, -ECANCELED);
	return 0;
}

static void sits_queue_free(struct kref *ref)
{
	struct sits_queue *q = container_of(ref, struct sits_queue, ref);

	sits_idents_fini(&q->idents);
	put_pid_ns(q->pid_ns);
	put_cred(q->cred);
	kfree(q);
}

void sits_queue_put(struct sits_queue *q)
{
	kref_put(&q->ref, sits_queue_free);
}

static void sits_queue_close(struct sits_queue *q)
{
	sits_queue_kill(q, sits_queue_end_status());
	cancel_delayed_work_sync(&q->timer);	/* no request is left to set it again */
	WARN_ON_ONCE(!list_empty(&q->fetches) || q->nr_hopping);
	atomic64_dec(&sits_stats.queues);
	sits_queue_put(q);
}

static int sits_queue_release(struct inode *inode, struct file *file)
{
	sits_queue_close(file->private_data);
	return 0;
}

static void sits_queue_timer(struct work_struct *work)
{
	struct sits_queue *q = container_of(to_delayed_work(work), struct sits_queue, timer);
	struct sits_trash trash = {};

	spin_lock(&q->lock);
	while (sits_request_run_timeout(q, &trash))
		sits_queue_breathe(q, &trash);
	sits_queue_unlock(q, &trash);
}

/* ------------------------------------------------------------------- watchdog */

/* Commands whose tasks have gone, off their list. */
struct sits_gone {
	struct sits_parks parks;
	bool owner;	/* the process that used the file last has gone */
};

static u32 sits_queue_take_gone(struct list_head *parks, fl_owner_t owner, struct sits_gone *gone)
{
	struct sits_park *park, *next;
	enum sits_park_fate fate;
	u32 nr = 0;

	list_for_each_entry_safe(park, next, parks, link) {
		fate = sits_park_check(park);
		if (fate == SITS_PARK_ALIVE)
			continue;
		gone->owner |= fate == SITS_PARK_PROCESS_GONE && park->owner == owner;
		sits_park_take(park, &gone->parks);
		nr++;
	}
	return nr;
}

static void sits_queue_check_fetches(struct sits_queue *q)
{
	struct sits_gone gone = {};

	spin_lock(&q->lock);
	q->nr_parked -= sits_queue_take_gone(&q->fetches, q->owner, &gone);
	spin_unlock(&q->lock);
	if (gone.owner)
		sits_queue_kill(q, -EPIPE);
	sits_parks_finish(&gone.parks, -ECANCELED);
}

/*
 * Look at the next channel that was not looked at in this round. Only one at a time: there may be
 * many commands, and others want the lock. Return: whether there was one.
 */
static bool sits_queue_check_channel(struct sits_queue *q, u64 round)
{
	struct sits_channel *ch;
	struct sits_gone gone = {};

	spin_lock(&q->lock);
	ch = list_first_entry_or_null(&q->channels, struct sits_channel, link);
	if (!ch || ch->watch_round == round) {
		spin_unlock(&q->lock);
		return false;
	}
	ch->watch_round = round;
	list_move_tail(&ch->link, &q->channels);
	ch->nr_parked -= sits_queue_take_gone(&ch->recvs, ch->owner, &gone);
	spin_unlock(&q->lock);
	/* A command that was taken holds the file. */
	if (gone.owner)
		sits_channel_kill(ch);
	sits_parks_finish(&gone.parks, -ECANCELED);
	return true;
}

static void sits_queue_check(struct sits_queue *q, u64 round)
{
	sits_queue_check_fetches(q);
	while (sits_queue_check_channel(q, round))
		cond_resched();
}

/* The next living queue, with a reference. */
static struct sits_queue *sits_queue_after(u64 id)
{
	struct sits_queue *q, *found = NULL;

	mutex_lock(&sits_queues_lock);
	list_for_each_entry(q, &sits_queues, names) {
		if (q->id > id) {
			kref_get(&q->ref);
			found = q;
			break;
		}
	}
	mutex_unlock(&sits_queues_lock);
	return found;
}

/*
 * Before 6.7 nobody tells of a task that goes with a command waiting; and on no kernel where the
 * ring holds the file only as a registered one while something else holds the ring.
 */
static void sits_queue_watch(struct work_struct *work)
{
	static u64 round;	/* there is one watchdog */
	struct sits_queue *q;
	u64 id = 0;

	round++;
	while ((q = sits_queue_after(id))) {
		id = q->id;
		sits_queue_check(q, round);
		sits_queue_put(q);
	}
	mutex_lock(&sits_queues_lock);
	if (!list_empty(&sits_queues))
		queue_delayed_work(system_unbound_wq, &sits_queue_watchdog, SITS_WATCH_EVERY);
	mutex_unlock(&sits_queues_lock);
}

/* ------------------------------------------------------------------- the file */

static struct sits_queue_facts sits_queue_get_facts(struct sits_queue *q)
{
	struct sits_queue_facts facts;

	spin_lock(&q->lock);
	facts = q->facts;
	spin_unlock(&q->lock);
	facts.depth = q->arg.depth;
	facts.per_client = q->arg.per_client;
	facts.max_clients = q->arg.max_clients;
	facts.mode = q->arg.mode;
	facts.chunk_backlog = q->arg.chunk_backlog;
	memcpy(facts.name, q->arg.name, sizeof(facts.name));
	return facts;
}

static long sits_ioctl_queue_info(struct sits_queue *q, void __user *uarg)
{
	struct sits_queue_facts arg;
	u32 size;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (arg.flags)
		return -EINVAL;
	size = arg.size;
	arg = sits_queue_get_facts(q);
	arg.size = size;
	return sits_arg_put(uarg, &arg, sizeof(arg));
}

static long sits_queue_commit_ioctl(struct sits_queue *q, void __user *uarg)
{
	u64 payload[2];

	if (copy_from_user(payload, uarg, sizeof(payload)))
		return -EFAULT;
	return sits_commit(q, payload);
}

static long sits_queue_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct sits_queue *q = file->private_data;
	void __user *uarg = (void __user *)arg;

	switch (cmd) {
	case SITS_IOC_FETCH:
		return sits_fetch_ioctl(q, uarg);
	case SITS_IOC_COMMIT:
		return sits_queue_commit_ioctl(q, uarg);
	case SITS_IOC_CLOSE_INTAKE:
		return sits_close_intake(q);
	}
	/* Its struct grows, and the size bits of the number with it. */
	if ((cmd & ~IOCSIZE_MASK) == (SITS_IOC_QUEUE_INFO & ~IOCSIZE_MASK))
		return sits_ioctl_queue_info(q, uarg);
	return -ENOTTY;
}

static int sits_queue_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct sits_queue *q = cmd->file->private_data;
	u64 payload[2];

	if (issue_flags & SITS_URING_F_CANCEL) {
		sits_fetch_cancel(q, cmd, issue_flags);
		return 0;
	}
	sits_uring_payload(cmd, payload);
	switch (cmd->cmd_op) {
	case SITS_IOC_FETCH:
		return sits_fetch_uring(q, cmd, payload, issue_flags);
	case SITS_IOC_COMMIT:
		return sits_commit(q, payload);
	case SITS_IOC_CLOSE_INTAKE:
		return payload[0] || payload[1] ? -EINVAL : sits_close_intake(q);
	default:
		return -ENOTTY;
	}
}

static __poll_t sits_queue_poll(struct file *file, poll_table *wait)
{
	struct sits_queue *q = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &q->wait, wait);
	spin_lock(&q->lock);
	if (sits_queue_has_event(q))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (q->dead)
		mask |= EPOLLHUP;
	spin_unlock(&q->lock);
	return mask;
}

static void sits_queue_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct sits_queue *q = file->private_data;
	struct sits_queue_facts facts = sits_queue_get_facts(q);

	seq_printf(m, "sits-queue:\t%s\n", q->arg.name);
	seq_printf(m, "sits-depth:\t%u\n", facts.depth);
	seq_printf(m, "sits-clients:\t%u\n", facts.nr_clients);
	seq_printf(m, "sits-waiting:\t%u\n", facts.nr_waiting);
	seq_printf(m, "sits-running:\t%u\n", facts.nr_running);
	seq_printf(m, "sits-requests:\t%llu\n", facts.requests);
	seq_printf(m, "sits-answered:\t%llu\n", facts.answered);
	seq_printf(m, "sits-cancelled:\t%llu\n", facts.cancelled);
	seq_printf(m, "sits-refused-busy:\t%llu\n", facts.refused_busy);
	seq_printf(m, "sits-fetchers:\t%u\n", READ_ONCE(q->nr_parked));
	seq_printf(m, "sits-dead:\t%u\n", READ_ONCE(q->dead));
}

static const struct file_operations sits_queue_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= sits_queue_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.uring_cmd	= sits_queue_uring_cmd,
	.poll		= sits_queue_poll,
	.flush		= sits_queue_flush,
	.release	= sits_queue_release,
	.show_fdinfo	= sits_queue_show_fdinfo,
	.llseek		= noop_llseek,
};

/* ------------------------------------------------------------------- creation */

static int sits_queue_check_arg(const struct sits_queue_create *arg)
{
	if (arg->flags || arg->reserved || arg->fd_flags & ~O_CLOEXEC || arg->mode & ~0777 ||
	    !arg->depth || arg->depth > SITS_DEPTH_MAX || !arg->per_client ||
	    arg->per_client > arg->depth || !arg->max_clients ||
	    arg->max_clients > SITS_CLIENTS_MAX || !arg->chunk_backlog ||
	    !sits_queue_name_is_valid(arg->name))
		return -EINVAL;
	return 0;
}

static struct sits_queue *sits_queue_make(const struct sits_queue_create *arg)
{
	struct sits_queue *q = kzalloc(sizeof(*q), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!q)
		return ERR_PTR(-ENOMEM);
	kref_init(&q->ref);
	q->arg = *arg;
	INIT_LIST_HEAD(&q->names);
	spin_lock_init(&q->lock);
	init_waitqueue_head(&q->wait);
	INIT_LIST_HEAD(&q->channels);
	INIT_LIST_HEAD(&q->ready);
	INIT_LIST_HEAD(&q->to_pump);
	INIT_LIST_HEAD(&q->cancels);
	INIT_LIST_HEAD(&q->fetches);
	timerqueue_init_head(&q->timeouts);
	INIT_DELAYED_WORK(&q->timer, sits_queue_timer);
	INIT_WORK(&q->pump, sits_queue_pump_work);
	ret = sits_idents_init(&q->idents, arg->depth);
	if (ret)
		goto err_free;
	q->cred = get_current_cred();
	q->pid_ns = get_pid_ns(task_active_pid_ns(current));
	ret = sits_queue_publish(q);
	if (ret)
		goto err_put;
	atomic64_inc(&sits_stats.queues);
	trace_sits_queue_create(q, 0, 0);
	return q;

err_put:
	sits_queue_put(q);
	return ERR_PTR(ret);
err_free:
	kfree(q);
	return ERR_PTR(ret);
}

/* Put a queue behind a descriptor. It is taken always. */
static int sits_queue_install(struct sits_queue *q, struct sits_queue_create *arg,
			      void __user *uarg)
{
	struct file *file;

	file = anon_inode_getfile("[sits-queue]", &sits_queue_fops, q, O_RDWR);
	if (IS_ERR(file)) {
		sits_queue_close(q);
		return PTR_ERR(file);
	}
	/* The file owns the queue from here on. */
	return sits_file_install(file, arg->fd_flags, uarg, arg, sizeof(*arg), &arg->fd);
}

long sits_ioctl_queue_create(struct file *file, void __user *uarg)
{
	struct sits_queue_create arg;
	struct sits_queue *q;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	ret = sits_queue_check_arg(&arg);
	if (ret)
		return ret;
	q = sits_queue_make(&arg);
	if (IS_ERR(q))
		return PTR_ERR(q);
	return sits_queue_install(q, &arg, uarg);
}

int sits_queue_init(void)
{
	int ret;

	ret = sits_request_cache_init();
	if (ret)
		return ret;
	ret = sits_park_init();
	if (ret)
		goto err_requests;
	ret = -ENOMEM;
	sits_queue_wq = alloc_workqueue("sits_queue", WQ_UNBOUND, 0);
	if (!sits_queue_wq)
		goto err_parks;
	return 0;

err_parks:
	sits_park_fini();
err_requests:
	sits_request_cache_fini();
	return ret;
}

void sits_queue_fini(void)
{
	cancel_delayed_work_sync(&sits_queue_watchdog);
	destroy_workqueue(sits_queue_wq);
	sits_park_fini();
	sits_request_cache_fini();
}
