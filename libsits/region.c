// SPDX-License-Identifier: MIT
/*
 * region.c - the public functions of regions, and the state machine of a load.
 *
 *	OPEN --load_begin--> LOADING --load_finish--> SEALED
 *	  \                    |   ^                     ^
 *	   \              load_fail load_begin           |
 *	    \                  v   |                     |
 *	     \               FAILED                      |
 *	      `---------------------------- seal --------'
 *
 * A load that failed before anything was written leaves it OPEN.
 * How memory is got, protected and wiped is the provider's: region_user.c, region_kernel.c.
 */
#include "libsits/internal.h"

#include <errno.h>
#include <string.h>

#define NAME_BYTES_MAX 63	/* of the contract in sits/region.h */

static int check_opts(const struct sits_region_opts *o)
{
	if (o->flags & ~(SITS_REGION_REQUIRE_HUGE | SITS_REGION_ALLOW_UNLOCKED))
		return -EINVAL;
	if (o->kind < SITS_REGION_PINNED || o->kind > SITS_REGION_PROTECTED)
		return -EINVAL;
	if ((o->flags & SITS_REGION_REQUIRE_HUGE) && o->kind == SITS_REGION_PINNED)
		return -EINVAL;
	if (!o->len_bytes || o->len_bytes > INT64_MAX - SITS_HUGE_BYTES || o->node < -1)
		return -EINVAL;
	if (o->name && strlen(o->name) > NAME_BYTES_MAX)
		return -EINVAL;
	return 0;
}

int sits_region_create(struct sits_ctx *ctx, const struct sits_region_opts *opts,
		       struct sits_region **out)
{
	struct sits_region_opts o;
	struct sits_region *region;
	int ret;

	if (!ctx || !opts || !out)
		return -EINVAL;
	ret = sits_opts_copy(&o, sizeof(o), opts, sizeof(o));
	if (!ret)
		ret = check_opts(&o);
	if (ret)
		return ret;
	ret = ctx->provider->region_create(ctx, &o, &region);
	if (ret)
		return ret;
	pthread_mutex_init(&region->lock, NULL);
	*out = region;
	return 0;
}

void sits_region_destroy(struct sits_region *region)
{
	if (!region)
		return;
	pthread_mutex_destroy(&region->lock);
	region->ops->destroy(region);
}

/* The lock is not part of what a caller may see changing. */
static struct sits_region *lock_region(const struct sits_region *region)
{
	struct sits_region *r = (struct sits_region *)(uintptr_t)region;

	pthread_mutex_lock(&r->lock);
	return r;
}

static bool readable(enum sits_region_state state)
{
	return state == SITS_REGION_OPEN || state == SITS_REGION_SEALED;
}

void *sits_region_data(const struct sits_region *region)
{
	struct sits_region *r = lock_region(region);
	void *data = readable(r->state) ? r->data : NULL;

	pthread_mutex_unlock(&r->lock);
	return data;
}

uint64_t sits_region_len(const struct sits_region *region)
{
	return region->len_bytes;
}

int sits_region_fd(const struct sits_region *region)
{
	struct sits_region *r = lock_region(region);
	int fd = readable(r->state) ? r->fd : -EBUSY;

	pthread_mutex_unlock(&r->lock);
	return fd;
}

int sits_region_seal(struct sits_region *region)
{
	int ret = 0;

	lock_region(region);
	if (region->state == SITS_REGION_LOADING)
		ret = -EBUSY;
	else if (region->state == SITS_REGION_FAILED)
		ret = -ENODATA;
	else if (region->state != SITS_REGION_SEALED)
		ret = region->ops->seal(region);
	if (!ret)
		region->state = SITS_REGION_SEALED;
	pthread_mutex_unlock(&region->lock);
	return ret;
}

int sits_region_info(const struct sits_region *region, struct sits_region_info *info)
{
	struct sits_region *r = lock_region(region);
	int ret;

	memset(info, 0, sizeof(*info));
	info->len_bytes = r->len_bytes;
	info->mapped_bytes = r->mapped_bytes;
	info->kind = r->kind;
	info->partial = r->partial;
	memcpy(info->digest, r->digest, sizeof(info->digest));
	ret = r->ops->info(r, info);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int sits_region_load_begin(struct sits_region *region, void **data)
{
	int ret;

	lock_region(region);
	if (region->state == SITS_REGION_LOADING)
		ret = -EBUSY;
	else if (region->state == SITS_REGION_SEALED)
		ret = -EPERM;
	else
		ret = region->ops->load_begin(region);
	if (!ret) {
		region->state = SITS_REGION_LOADING;
		*data = region->data;
	}
	pthread_mutex_unlock(&region->lock);
	return ret;
}

/* Called with the lock held, in state LOADING, or just out of it. */
static void fail_load(struct sits_region *region)
{
	bool wiped = region->ops->load_fail(region);

	region->partial = false;
	memset(region->digest, 0, sizeof(region->digest));
	region->state = wiped ? SITS_REGION_FAILED : SITS_REGION_OPEN;
}

int sits_region_load_finish(struct sits_region *region, const uint8_t *digest, bool partial)
{
	int ret = -EINVAL;

	lock_region(region);
	if (region->state != SITS_REGION_LOADING)
		goto unlock;
	ret = region->ops->load_finish(region);
	if (ret) {
		fail_load(region);
		goto unlock;
	}
	memcpy(region->digest, digest, sizeof(region->digest));
	region->partial = partial;
	region->state = SITS_REGION_SEALED;
unlock:
	pthread_mutex_unlock(&region->lock);
	return ret;
}

void sits_region_load_fail(struct sits_region *region)
{
	lock_region(region);
	if (region->state == SITS_REGION_LOADING)
		fail_load(region);
	pthread_mutex_unlock(&region->lock);
}

void sits_region_load_undo(struct sits_region *region)
{
	lock_region(region);
	if (region->state == SITS_REGION_SEALED)
		fail_load(region);
	pthread_mutex_unlock(&region->lock);
}
