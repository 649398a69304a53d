/* SPDX-License-Identifier: GPL-2.0 */
/*
 * device.h - /dev/sits: who may what, and how structs travel between user and kernel.
 */
#ifndef SITS_DEVICE_H
#define SITS_DEVICE_H

#include <linux/fs.h>
#include <linux/types.h>

#include "include/uapi/linux/sits.h"

int sits_device_init(void);
void sits_device_fini(void);

/**
 * sits_file_may_own() - May the opener of a file make, load, import, seal and map regions?
 * @file: of /dev/sits, borrowed
 *
 * It is the opener's right, so that it is the same in an ioctl, in a kernel worker of io_uring, and
 * after the opener has given up its privileges.
 *
 * Return: whether it had CAP_IPC_LOCK or was in the owner group.
 */
bool sits_file_may_own(const struct file *file);

/**
 * sits_arg_get() - Copy a struct that may grow from user memory.
 * @karg: out, a struct that starts with its size and flags
 * @ksize: bytes of @karg
 * @min_bytes: bytes of the first version of the struct
 * @uarg: in user memory
 *
 * Return: 0; -EFAULT; -EINVAL if it is shorter than its first version; -E2BIG if it is longer than
 * @karg and what is beyond is not zero.
 */
int sits_arg_get(void *karg, size_t ksize, size_t min_bytes, void __user *uarg);

/**
 * sits_arg_put() - Copy a struct back, as much of it as the user has.
 * @uarg: in user memory
 * @karg: as sits_arg_get() filled it, and changed since; the size must be as it was
 * @ksize: bytes of @karg
 *
 * Return: 0 or -EFAULT.
 */
int sits_arg_put(void __user *uarg, const void *karg, size_t ksize);

/**
 * sits_file_install() - Put a new file behind a new descriptor, and tell the caller of it.
 * @file: taken always
 * @fd_flags: O_CLOEXEC or 0
 * @uarg: the caller's struct
 * @karg: as it is to be copied back
 * @ksize: bytes of it
 * @kfd: the field of it that gets the descriptor
 *
 * Return: 0 or -errno.
 */
int sits_file_install(struct file *file, u32 fd_flags, void __user *uarg, void *karg, size_t ksize,
		      __s32 *kfd);

/* Is it NUL-terminated and without control characters? It will be seen in logs and in sysfs. */
bool sits_name_is_valid(const u8 *name, size_t max);

#endif
