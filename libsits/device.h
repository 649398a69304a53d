/* SPDX-License-Identifier: MIT */
/*
 * device.h - /dev/sits as libsits sees it: opening it, asking it, one way of calling it.
 *
 * All of the kernel provider goes through sits_ioctl(), so that a test can stand in for the module.
 */
#ifndef SITS_LIBSITS_DEVICE_H
#define SITS_LIBSITS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/sits.h>

#pragma GCC visibility push(hidden)

struct sits_ctx;

/* What the kernel provider asks of the system; tests put their own in, before the first sits_open(). */
struct sits_device_calls {
	int (*open)(const char *path, int flags);		/* a descriptor, or -1 and errno */
	int (*ioctl)(int fd, unsigned long cmd, void *arg);	/* 0 or more, or -1 and errno */
};

extern struct sits_device_calls sits_device_calls;

/** sits_device_is_faked() - Does a test stand in for the module? Then there are no commands by io_uring. */
bool sits_device_is_faked(void);

/**
 * sits_ioctl() - ioctl(2) on /dev/sits and on what it gave.
 * @fd: of /dev/sits, a queue or a channel
 * @cmd: SITS_IOC_*
 * @arg: its struct; fields marked out are written. NULL where there is none
 *
 * Return: what the ioctl returned, 0 or more; -errno. -EINTR is passed on.
 */
int sits_ioctl(int fd, unsigned long cmd, void *arg);

/**
 * sits_device_open() - Open /dev/sits and ask what it is.
 * @severity: of the line that says why not
 * @info: out: as GET_INFO answered, of this ABI
 *
 * Return: a descriptor, close-on-exec; -ENODEV where it does not answer or has another ABI; -EACCES; -ENOMEM, -EMFILE.
 */
int sits_device_open(struct sits_ctx *ctx, int severity, struct sits_get_info *info);

/** sits_device_owner_words() - Who may make regions and queues here, in words. Return: @buf, @len bytes. */
const char *sits_device_owner_words(char *buf, unsigned int len);

#pragma GCC visibility pop

#endif
