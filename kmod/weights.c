// SPDX-License-Identifier: GPL-2.0
/*
 * weights.c - WEIGHTS_LOAD: a sealed file into a region, as an ioctl and as a command of io_uring.
 *
 * An ioctl loads in its caller's context. A command takes what is the caller's (files, key,
 * credentials, cgroups) when it is issued, and loads on a kernel worker. Both end the same way: the
 * region is sealed, or it is wiped.
 */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "kmod/compat.h"
#include "kmod/device.h"
#include "kmod/region.h"
#include "kmod/stats.h"
#include "kmod/trace.h"
#include "kmod/weights.h"
#include "kmod/weights_file.h"
#include "kmod/weights_key.h"
#include "kmod/weights_pump.h"

#define SITS_LOAD_FLAGS (SITS_LOAD_F_ALLOW_ECB | SITS_LOAD_F_BUFFERED)

/* As it was first; ranges came later. */
#define SITS_LOAD_SIZE_MIN offsetof(struct sits_weights_load, ranges)

/* The fields that are out lie together. */
#define SITS_LOAD_OUT_OFF offsetof(struct sits_weights_load, progress_bytes)
#define SITS_LOAD_OUT_LEN (offsetof(struct sits_weights_load, key) - SITS_LOAD_OUT_OFF)

/**
 * struct sits_load_caller - what a worker needs of who issued a command
 * @cmd: to be done at the end
 * @task: that issued it; a reference
 * @mm: where the struct is; a reference to the struct, not to the memory (mmgrab)
 * @cred: for the checks that reading makes; a reference
 * @memcg: pays for memory; a reference, or NULL
 * @blkcg: pays for I/O; a reference, or NULL
 * @cancelled: its task or ring goes; set without a lock
 */
struct sits_load_caller {
	struct io_uring_cmd *cmd;
	struct task_struct *task;
	struct mm_struct *mm;
	const struct cred *cred;
	struct mem_cgroup *memcg;
	struct cgroup_subsys_state *blkcg;
	bool cancelled;
};

/**
 * struct sits_load - one WEIGHTS_LOAD, from its call to its answer
 *
 * Owned by the ioctl, or by the command from its issue until it is done.
 *
 * @arg: as it was given, and what is to be given back
 * @uarg: where to
 * @file: to be read; a reference
 * @region: to be filled; a reference to its dma-buf
 * @ranges: of the file, copied; NULL for all of it
 * @kek: key-encryption key; secret, wiped as soon as the file is open
 * @wf: the opened file
 * @whole: where there are no @ranges
 * @total_bytes: to be loaded
 * @ret: the result of a command
 * @caller: of a command; cmd is NULL in an ioctl
 * @work: of a command
 */
struct sits_load {
	struct sits_weights_load arg;
	struct sits_weights_load __user *uarg;
	struct file *file;
	struct sits_region *region;
	struct sits_weights_range *ranges;
	u8 kek[SITS_SM4_KEY_LEN];
	struct sits_weights_file wf;
	struct sits_weights_range whole;
	u64 total_bytes;
	int ret;
	struct sits_load_caller caller;
	struct work_struct work;
};

/* Waits for sits_cipher_wq's work, so it can't be on the same queue. */
static struct workqueue_struct *sits_load_wq;

/* ------------------------------------------------------------------- caller's memory */

/*
 * Use the memory of who called. Return: 0, then sits_load_leave_mm() is due; -ECANCELED: it is
 * gone.
 */
static int sits_load_enter_mm(struct sits_load *load)
{
	struct mm_struct *mm = load->caller.mm;

	if (!load->caller.cmd)
		return 0;
	if (!mmget_not_zero(mm))
		return -ECANCELED;
	kthread_use_mm(mm);
	return 0;
}

static void sits_load_leave_mm(struct sits_load *load)
{
	if (!load->caller.cmd)
		return;
	kthread_unuse_mm(load->caller.mm);
	/* Taking down an address space is not the load's work. */
	mmput_async(load->caller.mm);
}

/* Give back the fields that are out, and no others: the user may write to cancel just now. */
static int sits_load_put_results(struct sits_load *load)
{
	u8 __user *uarg = (u8 __user *)load->uarg;
	int ret;

	ret = sits_load_enter_mm(load);
	if (ret)
		return ret;
	if (copy_to_user(uarg + SITS_LOAD_OUT_OFF, (u8 *)&load->arg + SITS_LOAD_OUT_OFF,
			 SITS_LOAD_OUT_LEN))
		ret = -EFAULT;
	sits_load_leave_mm(load);
	return ret;
}

static int sits_load_tell(struct sits_load *load)
{
	u32 cancel;
	int ret;

	ret = sits_load_enter_mm(load);
	if (ret)
		return ret;
	if (put_user(load->arg.progress_bytes, &load->uarg->progress_bytes) ||
	    get_user(cancel, &load->uarg->cancel))
		ret = -EFAULT;
	else if (cancel)
		ret = -ECANCELED;
	sits_load_leave_mm(load);
	return ret;
}

/*
 * Is who issued the command gone, or going? Linux 6.1 does not tell: a dying task or ring thread
 * waits for its commands before it is marked as exiting.
 */
static bool sits_caller_is_gone(const struct sits_load_caller *caller)
{
	return READ_ONCE(caller->cancelled) || READ_ONCE(caller->task->flags) & PF_EXITING ||
	       READ_ONCE(caller->task->signal->flags) & SIGNAL_GROUP_EXIT;
}

/* Go on? Tells how far it is, too. */
static int sits_load_poll(void *arg, u64 done_bytes)
{
	struct sits_load *load = arg;

	if (load->caller.cmd) {
		if (sits_caller_is_gone(&load->caller))
			return -ECANCELED;
	} else if (fatal_signal_pending(current)) {
		return -EINTR;
	}
	/* Suite 240 has padding. */
	load->arg.progress_bytes = min(done_bytes, load->total_bytes);
	return sits_load_tell(load);
}

/* --------------------------------------------------------------------------- loading */

/* Clear what lies between @from and @to, the start of a page. */
static int sits_load_clear(struct sits_load *load, u64 from, u64 to)
{
	unsigned long pgoff = from >> PAGE_SHIFT, part = from & ~PAGE_MASK;
	int ret = 0;

	if (part) {
		memzero_page(sits_region_page(load->region, pgoff), part, PAGE_SIZE - part);
		pgoff++;
	}
	for (; pgoff < to >> PAGE_SHIFT && !ret; pgoff++) {
		clear_highpage(sits_region_page(load->region, pgoff));
		cond_resched();
		if (!(pgoff & (SITS_SLOT_PAGES - 1)))
			ret = sits_load_poll(load, load->total_bytes);
	}
	return ret;
}

/* What whole blocks left behind the end, and what was there before where nothing was loaded. */
static int sits_load_clear_rest(struct sits_load *load, const struct sits_weights_run *run)
{
	u64 at = 0;
	int ret;
	u32 i;

	for (i = 0; i < run->nr_ranges; i++) {
		ret = sits_load_clear(load, at, run->ranges[i].region_off);
		if (ret)
			return ret;
		at = run->ranges[i].region_off + run->ranges[i].len_bytes;
	}
	return sits_load_clear(load, at, sits_region_mapped_bytes(load->region));
}

/* A file that somebody writes to is no forgery, and the reason for whatever went wrong. */
static int sits_load_explain(const struct sits_load *load, int ret)
{
	int changed;

	if (ret == -ECANCELED || ret == -EINTR || ret == -EFAULT || ret == -ENOMEM)
		return ret;
	changed = sits_weights_file_unchanged(&load->wf);
	return changed ?: ret;
}

static int sits_load_pump(struct sits_load *load)
{
	struct sits_weights_run run = {
		.wf = &load->wf,
		.region = load->region,
		.ranges = load->ranges ?: &load->whole,
		.nr_ranges = load->ranges ? load->arg.nr_ranges : !!load->whole.len_bytes,
		.nr_inflight = load->arg.nr_inflight,
		.direct = !(load->arg.flags & SITS_LOAD_F_BUFFERED),
		.poll = sits_load_poll,
		.arg = load,
	};
	int ret;

	ret = sits_weights_pump(&run);
	load->arg.read_ns = run.read_ns;
	load->arg.cipher_ns = run.cipher_ns;
	if (!ret)
		ret = sits_load_clear_rest(load, &run);
	ret = sits_load_explain(load, ret);
	if (ret == -EBADMSG)
		load->arg.bad_chunk = run.bad_chunk;
	return ret;
}

/* Fill the region from the opened file. */
static int sits_load_fill(struct sits_load *load, u64 start)
{
	struct sits_weights_load *arg = &load->arg;
	int ret;

	ret = sits_region_load_begin(load->region);
	if (ret)
		return ret;
	ret = sits_load_pump(load);
	arg->total_ns = ktime_get_ns() - start;
	if (!ret) {
		arg->progress_bytes = load->total_bytes;
		memcpy(arg->digest, load->wf.digest, sizeof(arg->digest));
		/* While it can still fail. */
		ret = sits_load_put_results(load);
	}
	sits_region_load_end(load->region, ret ? NULL : load->wf.digest, load->ranges);
	return ret;
}

/* What is to be loaded, now that it is known what there is. */
static int sits_load_choose(struct sits_load *load)
{
	u64 room = load->region->len_bytes;
	u32 i;

	load->whole.len_bytes = load->wf.hdr.plain_bytes;
	if (!load->ranges) {
		load->total_bytes = load->whole.len_bytes;
		return load->total_bytes > room ? -EFBIG : 0;
	}
	for (i = 0; i < load->arg.nr_ranges; i++)
		load->total_bytes += load->ranges[i].len_bytes;
	return sits_weights_file_check_ranges(&load->wf, load->ranges, load->arg.nr_ranges, room);
}

static int sits_load_open(struct sits_load *load)
{
	struct sits_weights_load *arg = &load->arg;
	const struct sits_weights_rules rules = {
		.allow_ecb = arg->flags & SITS_LOAD_F_ALLOW_ECB,
		.min_version = arg->min_version,
	};
	u64 bad;
	int ret;

	ret = sits_weights_file_open(&load->wf, load->file, load->kek, &rules, &bad);
	memzero_explicit(load->kek, sizeof(load->kek));
	switch (ret) {
	case 0:
		arg->plain_bytes = load->wf.hdr.plain_bytes;
		arg->model_version = load->wf.hdr.model_version;
		break;
	case -EBADMSG:
	case -ENOKEY:
	case -EPROTONOSUPPORT:
		/* With -ENOKEY: it is the file that wants another key. */
		arg->bad_chunk = bad;
		break;
	}
	return ret;
}

static int sits_load_run(struct sits_load *load)
{
	struct sits_weights_load *arg = &load->arg;
	u64 start = ktime_get_ns();
	int ret;

	ret = sits_load_open(load);
	if (!ret) {
		ret = sits_load_choose(load);
		if (!ret)
			ret = sits_load_fill(load, start);
		sits_weights_file_close(&load->wf);
	}
	/* A read that a signal ended. */
	if (ret == -ERESTARTSYS)
		ret = -EINTR;
	if (ret) {
		arg->total_ns = ktime_get_ns() - start;
		sits_load_put_results(load);
		atomic64_inc(&sits_stats.load_failures);
	} else {
		atomic64_inc(&sits_stats.loads);
		atomic64_add(load->total_bytes, &sits_stats.loaded_bytes);
	}
	trace_sits_weights_load(load->region, ret, arg);
	return ret;
}

/* ------------------------------------------------------------------- making, freeing */

static int sits_load_check(const struct sits_weights_load *arg)
{
	if (arg->flags & ~SITS_LOAD_FLAGS || arg->nr_inflight > SITS_INFLIGHT_MAX)
		return -EINVAL;
	if (!arg->key[0] || !sits_name_is_valid(arg->key, sizeof(arg->key)))
		return -EINVAL;
	if (arg->nr_ranges > SITS_LOAD_RANGES_MAX || !arg->nr_ranges != !arg->ranges ||
	    arg->reserved)
		return -EINVAL;
	return arg->cancel ? -ECANCELED : 0;
}

static void sits_load_clear_results(struct sits_weights_load *arg)
{
	memset((u8 *)arg + SITS_LOAD_OUT_OFF, 0, SITS_LOAD_OUT_LEN);
}

/* Drop what a load holds. */
static void sits_load_drop(struct sits_load *load)
{
	memzero_explicit(load->kek, sizeof(load->kek));
	if (load->region)
		sits_region_put(load->region);
	if (load->file)
		fput(load->file);
	kvfree(load->ranges);
	load->region = NULL;
	load->file = NULL;
	load->ranges = NULL;
}

static int sits_load_take_ranges(struct sits_load *load)
{
	const struct sits_weights_load *arg = &load->arg;
	size_t len = arg->nr_ranges * sizeof(*load->ranges);

	if (!len)
		return 0;
	load->ranges = kvmalloc(len, SITS_GFP);
	if (!load->ranges)
		return -ENOMEM;
	return copy_from_user(load->ranges, u64_to_user_ptr(arg->ranges), len) ? -EFAULT : 0;
}

static int sits_load_take(struct sits_load *load, void __user *uarg)
{
	struct sits_weights_load *arg = &load->arg;
	struct sits_region *region;
	int ret;

	load->uarg = uarg;
	ret = sits_arg_get(arg, sizeof(*arg), SITS_LOAD_SIZE_MIN, uarg);
	if (ret)
		return ret;
	ret = sits_load_check(arg);
	if (!ret)
		ret = sits_load_take_ranges(load);
	if (ret)
		return ret;
	sits_load_clear_results(arg);
	load->file = fget(arg->file_fd);
	if (!load->file)
		return -EBADF;
	ret = sits_weights_file_check(load->file);
	if (ret)
		return ret;
	region = sits_region_get(arg->region_fd);
	if (IS_ERR(region))
		return PTR_ERR(region);
	load->region = region;
	if (region->kind == SITS_KIND_IMPORTED)
		return -EOPNOTSUPP;
	return sits_weights_key_get(arg->key, load->kek);
}

/* A load with all that is the caller's, in the caller's context. */
static struct sits_load *sits_load_make(void __user *uarg)
{
	struct sits_load *load;
	int ret;

	load = kzalloc(sizeof(*load), SITS_GFP);
	if (!load)
		return ERR_PTR(-ENOMEM);
	ret = sits_load_take(load, uarg);
	if (ret) {
		sits_load_drop(load);
		kfree_sensitive(load);
		return ERR_PTR(ret);
	}
	return load;
}

long sits_ioctl_weights_load(struct file *file, void __user *uarg)
{
	struct sits_load *load = sits_load_make(uarg);
	int ret;

	if (IS_ERR(load))
		return PTR_ERR(load);
	ret = sits_load_run(load);
	sits_load_drop(load);
	kfree_sensitive(load);
	return ret;
}

/* -------------------------------------------------------------------------- io_uring */

static struct cgroup_subsys_state *sits_get_blkcg(void)
{
#ifdef CONFIG_BLK_CGROUP
	return task_get_css(current, io_cgrp_id);
#else
	return NULL;
#endif
}

static void sits_caller_take(struct sits_load_caller *caller, struct io_uring_cmd *cmd)
{
	caller->cmd = cmd;
	caller->task = get_task_struct(sits_uring_task(cmd));
	/* Also of a ring's own thread. */
	caller->mm = current->mm;
	mmgrab(caller->mm);
	caller->cred = get_current_cred();
	caller->memcg = get_mem_cgroup_from_mm(caller->mm);
	caller->blkcg = sits_get_blkcg();
}

static void sits_caller_drop(struct sits_load_caller *caller)
{
	if (caller->blkcg)
		css_put(caller->blkcg);
	mem_cgroup_put(caller->memcg);
	put_cred(caller->cred);
	mmdrop(caller->mm);
	put_task_struct(caller->task);
}

/* In the task that issued the command, or, if that is gone, in a kernel worker. */
static void sits_load_done(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct sits_load *load = *(struct sits_load **)cmd->pdu;

	/* The command can't be cancelled any more after this, so nobody looks for the load. */
	io_uring_cmd_done(cmd, load->ret, 0, issue_flags);
	kfree_sensitive(load);
}

static void sits_load_work(struct work_struct *work)
{
	struct sits_load *load = container_of(work, struct sits_load, work);
	struct sits_load_caller *caller = &load->caller;
	struct mem_cgroup *memcg = set_active_memcg(caller->memcg);
	const struct cred *cred = override_creds(caller->cred);

	kthread_associate_blkcg(caller->blkcg);
	load->ret = sits_load_run(load);
	kthread_associate_blkcg(NULL);
	revert_creds(cred);
	set_active_memcg(memcg);
	/* Before the answer: who gets it may want to be the only holder of the region. */
	sits_load_drop(load);
	sits_caller_drop(caller);
	io_uring_cmd_complete_in_task(caller->cmd, sits_load_done);
}

int sits_uring_weights_load(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct sits_load *load;
	u64 payload[2];

	sits_uring_payload(cmd, payload);
	if (payload[1])
		return -EINVAL;
	load = sits_load_make(u64_to_user_ptr(payload[0]));
	if (IS_ERR(load))
		return PTR_ERR(load);
	sits_caller_take(&load->caller, cmd);
	INIT_WORK(&load->work, sits_load_work);
	*(struct sits_load **)cmd->pdu = load;
	sits_uring_mark_cancelable(cmd, issue_flags);
	/* It owns the load from here on. */
	queue_work(sits_load_wq, &load->work);
	return -EIOCBQUEUED;
}

void sits_uring_weights_cancel(struct io_uring_cmd *cmd)
{
	struct sits_load *load = *(struct sits_load **)cmd->pdu;

	WRITE_ONCE(load->caller.cancelled, true);
}

int sits_weights_init(void)
{
	int ret;

	ret = sits_weights_pump_init();
	if (ret)
		return ret;
	sits_load_wq = alloc_workqueue("sits_load", WQ_UNBOUND, 0);
	if (!sits_load_wq) {
		sits_weights_pump_fini();
		return -ENOMEM;
	}
	return 0;
}

void sits_weights_fini(void)
{
	/* A load's command holds the module, but its worker may not have returned yet. */
	destroy_workqueue(sits_load_wq);
	sits_weights_pump_fini();
}
