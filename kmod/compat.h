/* SPDX-License-Identifier: GPL-2.0 */
/*
 * compat.h - all that differs between the kernels that sits.ko is built for (6.1 to 6.12 and on).
 */
#ifndef SITS_COMPAT_H
#define SITS_COMPAT_H

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#include <linux/io_uring_types.h>
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define SITS_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS("DMA_BUF")
#else
#define SITS_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS(DMA_BUF)
#endif

/* In ->mmap, where the mapping is not yet visible to anybody. */
static inline void sits_vma_flags_mod(struct vm_area_struct *vma, unsigned long set,
				      unsigned long clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

/*
 * Before 6.12 a PMD without struct pages can't be told from one with: get_user_pages_fast() would
 * follow it. So protected memory is mapped by PTEs there.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0) && defined(CONFIG_ARCH_SUPPORTS_PMD_PFNMAP)
#define SITS_HAS_PFN_PMD 1

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#include <linux/pfn_t.h>
#endif

static inline vm_fault_t sits_insert_pfn_pmd(struct vm_fault *vmf, unsigned long pfn)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	return vmf_insert_pfn_pmd(vmf, pfn, false);
#else
	return vmf_insert_pfn_pmd(vmf, pfn_to_pfn_t(pfn), false);
#endif
}
#endif

/*
 * The 16 bytes of a command. They lie in memory that the user can write until the command is
 * issued: each word is read once. Not to be called after the issue has returned.
 */
static inline void sits_uring_payload(const struct io_uring_cmd *cmd, u64 payload[2])
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
	const u64 *words = io_uring_sqe_cmd(cmd->sqe);
#else
	const u64 *words = cmd->cmd;
#endif

	payload[0] = READ_ONCE(words[0]);
	payload[1] = READ_ONCE(words[1]);
}

/* Who issued the command, or the ring's own thread; borrowed while the command is not done. */
static inline struct task_struct *sits_uring_task(struct io_uring_cmd *cmd)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	return cmd_to_io_kiocb(cmd)->tctx->task;
#else
	return cmd_to_io_kiocb(cmd)->task;
#endif
}

/* Has the ring been closed? Nobody will see what a command that still waits brings. */
static inline bool sits_uring_is_closed(struct io_uring_cmd *cmd)
{
	return percpu_ref_is_dying(&cmd_to_io_kiocb(cmd)->ctx->refs);
}

/*
 * Have ->uring_cmd() called with SITS_URING_F_CANCEL when the task or the ring goes. From here on
 * the command must be ended by io_uring_cmd_done(), with the ring's lock held. Before 6.7 nobody
 * calls.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#define SITS_URING_F_CANCEL IO_URING_F_CANCEL

static inline void sits_uring_mark_cancelable(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	io_uring_cmd_mark_cancelable(cmd, issue_flags);
}
#else
#define SITS_URING_F_CANCEL 0

static inline void sits_uring_mark_cancelable(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
}
#endif

/*
 * What ->uring_cmd() returns. A result above 0 that is returned counts as a failure on 6.1, and is
 * lost where a worker of the ring issued the command.
 */
static inline int sits_uring_return(struct io_uring_cmd *cmd, int ret, unsigned int issue_flags)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
	if (ret > 0) {
		io_uring_cmd_done(cmd, ret, 0, issue_flags);
		return -EIOCBQUEUED;
	}
#endif
	return ret;
}

/*
 * In task work: is this the issuer's own context, with its memory? It may be a kernel thread's, or
 * a dying task's.
 */
static inline bool sits_uring_task_is_alive(void)
{
	return !(current->flags & (PF_EXITING | PF_KTHREAD)) && current->mm;
}

#endif
