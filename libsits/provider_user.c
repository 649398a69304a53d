// SPDX-License-Identifier: MIT
/*
 * provider_user.c - the user provider's table: memfds, and unix sockets with memfd arenas.
 *
 * It needs nothing but the kernel, so its probe always succeeds.
 */
#include "libsits/internal.h"
#include "libsits/provider_user.h"
#include "libsits/weights.h"

static int user_probe(struct sits_ctx *ctx, bool forced)
{
	return 0;
}

const struct sits_provider sits_provider_user = {
	.id = SITS_PROVIDER_USER,
	.name = "user",
	.probe = user_probe,
	.region_create = sits_user_region_create,
	.source_flags = sits_user_source_flags,
	.weights_load = sits_user_weights_load,
	.queue_create = sits_user_queue_create,
	.channel_open = sits_user_channel_open,
};
