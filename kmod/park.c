// SPDX-License-Identifier: GPL-2.0
/*
 * park.c - commands of io_uring that wait: where they are kept, how they end, whose they are.
 *
 * From 6.7 on, a command that waits is on the ring's list of those that can be cancelled, so it may
 * be ended with the ring's lock held only: by task work. Before, anybody may end it, and nobody
 * cancels it but us.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "kmod/compat.h"
#include "kmod/park.h"

static struct kmem_cache *sits_park_cache;

int sits_park_init(void)
{
	sits_park_cache = KMEM_CACHE(sits_park, SLAB_ACCOUNT);
	return sits_park_cache ? 0 : -ENOMEM;
}

void sits_park_fini(void)
{
	kmem_cache_destroy(sits_park_cache);
}

static struct sits_park **sits_park_place(struct io_uring_cmd *cmd)
{
	return (struct sits_park **)cmd->pdu;
}

struct sits_park *sits_park_of(struct io_uring_cmd *cmd)
{
	return *sits_park_place(cmd);
}

struct sits_park *sits_park_alloc(struct io_uring_cmd *cmd, unsigned int issue_flags, void *obj,
				  u64 addr, u32 len)
{
	struct sits_park *park;

	BUILD_BUG_ON(sizeof(park) > sizeof(cmd->pdu));
	park = kmem_cache_alloc(sits_park_cache, GFP_KERNEL);
	if (!park)
		return NULL;
	*park = (struct sits_park) {
		.link = LIST_HEAD_INIT(park->link),
		.cmd = cmd, .obj = obj, .addr = addr, .len = len,
		.task = get_task_struct(sits_uring_task(cmd)),
		.owner = current->files,	/* workers of the ring share it */
	};
	*sits_park_place(cmd) = park;
	/* It may be cancelled at once from here on. */
	sits_uring_mark_cancelable(cmd, issue_flags);
	return park;
}

void sits_park_finish_here(struct sits_park *park, int res, unsigned int issue_flags)
{
	/*
	 * Without the ring's lock, the command may be cancelled until it is done: what the cancel
	 * looks at has to be there as long.
	 */
	io_uring_cmd_done(park->cmd, res, 0, issue_flags);
	put_task_struct(park->task);
	kmem_cache_free(sits_park_cache, park);
}

/*
 * Only its task may end a command, also where the kernel would let others (before 6.7): a task that
 * is on its way out frees what counts its commands as soon as it sees none left, which may be while
 * whoever ended the last one still looks at that; and one that ends its own while it closes its
 * files is never freed.
 */
static void sits_park_finish_in_task(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct sits_park *park = sits_park_of(cmd);

	sits_park_finish_here(park, park->res, issue_flags);
}

void sits_park_finish(struct sits_park *park, int res)
{
	park->res = res;
	io_uring_cmd_complete_in_task(park->cmd, sits_park_finish_in_task);
}

void sits_parks_finish(struct sits_parks *parks, int res)
{
	struct sits_park *park = parks->first, *next;

	for (; park; park = next) {
		next = park->next;
		sits_park_finish(park, res);
	}
}

bool sits_park_is_void(const struct sits_park *park)
{
	return sits_uring_is_closed(park->cmd);
}

enum sits_park_fate sits_park_check(struct sits_park *park)
{
	const struct task_struct *task = park->task;
	const struct signal_struct *sig = task->signal;	/* lives as long as the task */

	if (READ_ONCE(sig->flags) & SIGNAL_GROUP_EXIT || !atomic_read(&sig->live) ||
	    READ_ONCE(sig->group_exec_task))
		return SITS_PARK_PROCESS_GONE;
	if (READ_ONCE(task->flags) & PF_EXITING || sits_park_is_void(park))
		return SITS_PARK_GONE;
	/*
	 * An execve() that fails is over in no time. One that succeeds waits for its commands,
	 * where the kernel does not cancel them.
	 */
	if (task->in_execve && park->in_exec)
		return SITS_PARK_PROCESS_GONE;
	park->in_exec = task->in_execve;
	return SITS_PARK_ALIVE;
}

bool sits_park_is_exec(const struct sits_park *park)
{
	return READ_ONCE(park->task->signal->group_exec_task) ||
	       (park->task == current && current->in_execve);
}
