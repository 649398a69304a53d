/* SPDX-License-Identifier: MIT */
/*
 * provider_kernel.h - the constructors behind the kernel provider's table.
 *
 * The context's @dev_fd is /dev/sits, @features what GET_INFO answered; sits_ioctl() is in device.h. Region, queue and
 * channel are descriptors of their own, owned by the object that holds them.
 */
#ifndef SITS_PROVIDER_KERNEL_H
#define SITS_PROVIDER_KERNEL_H

#include "libsits/device.h"
#include "libsits/internal.h"

#pragma GCC visibility push(hidden)

int sits_kernel_region_create(struct sits_ctx *ctx, const struct sits_region_opts *opts,
			      struct sits_region **out);
int sits_kernel_queue_create(struct sits_ctx *ctx, const struct sits_queue_opts *opts,
			     struct sits_queue **out);
int sits_kernel_channel_open(struct sits_ctx *ctx, const char *name, uint64_t arena_bytes,
			     struct sits_channel **out);

#pragma GCC visibility pop

#endif
