/* SPDX-License-Identifier: MIT */
/*
 * provider_user.h - the constructors behind the user provider's table.
 */
#ifndef SITS_PROVIDER_USER_H
#define SITS_PROVIDER_USER_H

#include "libsits/internal.h"

#pragma GCC visibility push(hidden)

int sits_user_region_create(struct sits_ctx *ctx, const struct sits_region_opts *opts,
			    struct sits_region **out);
int sits_user_queue_create(struct sits_ctx *ctx, const struct sits_queue_opts *opts,
			   struct sits_queue **out);
int sits_user_channel_open(struct sits_ctx *ctx, const char *name, uint64_t arena_bytes,
			   struct sits_channel **out);

#pragma GCC visibility pop

#endif
