/* SPDX-License-Identifier: GPL-2.0 */
/*
 * weights.h - WEIGHTS_LOAD, as an ioctl and as a command of io_uring.
 */
#ifndef SITS_WEIGHTS_H
#define SITS_WEIGHTS_H

#include <linux/compiler_types.h>

struct file;
struct io_uring_cmd;

int sits_weights_init(void);
void sits_weights_fini(void);

long sits_ioctl_weights_load(struct file *file, void __user *uarg);

/**
 * sits_uring_weights_load() - Begin a load for a ring.
 * @cmd: whose payload names the struct
 * @issue_flags: of ->uring_cmd()
 *
 * Return: -EIOCBQUEUED, and the command is done when the load is over; or -errno.
 */
int sits_uring_weights_load(struct io_uring_cmd *cmd, unsigned int issue_flags);

/* The task or the ring of a load goes: end it soon. Its command is done then. */
void sits_uring_weights_cancel(struct io_uring_cmd *cmd);

#endif
