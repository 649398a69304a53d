// SPDX-License-Identifier: MIT
/*
 * provider_kernel.c - the kernel provider's table: everything is a descriptor that /dev/sits gives.
 *
 * To be taken without being asked for, the module must be able to do all that a provider does. Who asks for it by name gets
 * what there is.
 */
#include "libsits/provider_kernel.h"

#include <errno.h>
#include <unistd.h>

#include "libsits/weights.h"

#define WANTED (SITS_FEATURE_REGION | SITS_FEATURE_WEIGHTS | SITS_FEATURE_QUEUE)

static int kernel_probe(struct sits_ctx *ctx, bool forced)
{
	int fd, severity = forced ? SITS_LOG_ERR : access(SITS_DEV_PATH, F_OK) ? SITS_LOG_DEBUG : SITS_LOG_INFO;
	struct sits_get_info info;

	fd = sits_device_open(ctx, severity, &info);
	if (fd < 0)
		return fd;
	if ((info.features & WANTED) != WANTED) {
		sits_log(ctx, forced ? SITS_LOG_WARN : SITS_LOG_INFO,
			 "provider 'kernel': the module is an older one, without%s%s%s",
			 info.features & SITS_FEATURE_REGION ? "" : " regions", info.features & SITS_FEATURE_WEIGHTS ? "" : " loading",
			 info.features & SITS_FEATURE_QUEUE ? "" : " queues");
		if (!forced) {
			close(fd);
			return -EOPNOTSUPP;
		}
	}
	ctx->dev_fd = fd;
	ctx->features = info.features;
	return 0;
}

const struct sits_provider sits_provider_kernel = {
	.id = SITS_PROVIDER_KERNEL,
	.name = "kernel",
	.probe = kernel_probe,
	.region_create = sits_kernel_region_create,
	.source_flags = sits_kernel_source_flags,
	.weights_load = sits_kernel_weights_load,
	.queue_create = sits_kernel_queue_create,
	.channel_open = sits_kernel_channel_open,
};
