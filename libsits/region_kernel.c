// SPDX-License-Identifier: MIT
/*
 * region_kernel.c - regions of the kernel provider: dma-bufs that /dev/sits makes.
 *
 * The kernel enforces what region_user.c arranges: what is sealed can't be written by anybody, what is being loaded can't
 * be looked at, what is freed is wiped. It refuses to seal while there is a mapping that may write, and to load while
 * there is any, so this process' own mapping steps aside: other things are mapped over it and it is mapped back, always at the
 * address that was reserved when the region was made. For a load that is nothing (PROT_NONE), for a seal a
 * mapping that can only read.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libsits/io.h"
#include "libsits/provider_kernel.h"

#define MIB(bytes) (((bytes) + (1u << 20) - 1) >> 20)

_Static_assert(SITS_REGION_PINNED == SITS_KIND_PINNED && SITS_REGION_HUGE == SITS_KIND_HUGE &&
	       SITS_REGION_PROTECTED == SITS_KIND_PROTECTED, "kinds have the same numbers in both interfaces");

/* -------------------------------------------------------------------- mappings */

/* Not in core dumps (the module says so too) and not in children. */
static int fence_off(struct sits_region *r)
{
	if (!madvise(r->data, r->mapped_bytes, MADV_DONTDUMP) && !madvise(r->data, r->mapped_bytes, MADV_DONTFORK))
		return 0;
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': can't keep the memory from children: %s", r->name, strerror(errno));
	return -errno;
}

/* Map the region where its place is, over what is there. */
static int map_region(struct sits_region *r, int prot)
{
	int ret;

	if (mmap(r->data, r->mapped_bytes, prot, MAP_SHARED | MAP_FIXED, r->fd, 0) == MAP_FAILED) {
		ret = -errno;
		sits_log(r->ctx, SITS_LOG_ERR, "region '%s': can't be mapped: %s", r->name, strerror(-ret));
		return ret;
	}
	/* One that is PROTECTED is so already, and takes no advice. */
	return r->kind == SITS_REGION_PROTECTED ? 0 : fence_off(r);
}

static int map_nothing(struct sits_region *r)
{
	void *p = mmap(r->data, r->mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	if (p != MAP_FAILED)
		return fence_off(r);
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': mmap: %s", r->name, strerror(errno));
	return -errno;
}

static int open_prot(const struct sits_region *r)
{
	return r->kind == SITS_REGION_PROTECTED ? PROT_READ : PROT_READ | PROT_WRITE;
}

/* ------------------------------------------------------------------- creation */

/* REGION_INFO of what is behind @r. */
static int ask_facts(const struct sits_region *r, struct sits_region_facts *facts)
{
	*facts = (struct sits_region_facts){ .size = sizeof(*facts), .fd = r->fd };
	return sits_ioctl(r->ctx->dev_fd, SITS_IOC_REGION_INFO, facts);
}

static int explain_limit(struct sits_region *r)
{
	struct sits_get_info info = { .size = sizeof(info) };

	sits_ioctl(r->ctx->dev_fd, SITS_IOC_GET_INFO, &info);
	/* In bytes, as the parameter is: rounded, a limit that is too small can look large enough. */
	sits_log(r->ctx, SITS_LOG_ERR,
		 "region '%s': needs %" PRIu64 " bytes, in whole pages of its kind; all regions together may hold %" PRIu64 " bytes (the module's parameter region_limit_bytes) and %" PRIu64 " are in use: raise it in /sys/module/sits/parameters, or end who holds them ('sits stat')",
		 r->name, r->len_bytes, (uint64_t)info.region_limit_bytes, (uint64_t)info.region_used_bytes);
	return -EDQUOT;
}

static int explain_no_memory(struct sits_region *r, const struct sits_region_opts *o)
{
	char what[96];

	if (!sits_memlock_allows(o->len_bytes)) {
		snprintf(what, sizeof(what), "region '%s'", r->name);
		sits_log_memlock(r->ctx, SITS_LOG_ERR, o->len_bytes, what);
		if (o->flags & SITS_REGION_ALLOW_UNLOCKED)
			sits_log(r->ctx, SITS_LOG_ERR, "region '%s': the kernel provider's memory is always locked; provider 'user' can go on without",
				 r->name);
		return -EPERM;
	}
	if (o->flags & SITS_REGION_REQUIRE_HUGE) {
		sits_log(r->ctx, SITS_LOG_ERR,
			 "region '%s': no %" PRIu64 " MiB in pages of 2 MiB are to be had: write 1 to /proc/sys/vm/compact_memory, free memory, or do without huge pages",
			 r->name, MIB(r->len_bytes));
		return -EOPNOTSUPP;
	}
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': the kernel has no memory for %" PRIu64 " MiB: free some, or raise the limit of the memory cgroup",
		 r->name, MIB(r->len_bytes));
	return -ENOMEM;
}

/* Why REGION_CREATE said @err. Return: what the caller is to answer. */
static int explain_create(struct sits_region *r, const struct sits_region_opts *o, int err)
{
	char who[128];

	switch (err) {
	case -EPERM:
		sits_log(r->ctx, SITS_LOG_ERR, "region '%s': this process may not make regions; that takes %s; or choose provider 'user'",
			 r->name, sits_device_owner_words(who, sizeof(who)));
		return -EACCES;
	case -EDQUOT:
		return explain_limit(r);
	case -ENOMEM:
		return explain_no_memory(r, o);
	case -EINVAL:
		if (o->node >= 0) {
			sits_log(r->ctx, SITS_LOG_ERR, "region '%s': NUMA node %d: this machine has no memory there", r->name, o->node);
			return err;
		}
		break;
	}
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': %s: %s", r->name, SITS_DEV_PATH, strerror(-err));
	return err == -ENOTTY ? -EOPNOTSUPP : err;
}

static int make_region(struct sits_region *r, const struct sits_region_opts *o)
{
	struct sits_region_create arg = {
		.size = sizeof(arg), .flags = o->flags & SITS_REGION_REQUIRE_HUGE ? SITS_CREATE_REQUIRE_HUGE : 0,
		.len_bytes = o->len_bytes, .kind = o->kind, .node = o->node, .fd_flags = O_CLOEXEC, .fd = -1,
	};
	struct sits_region_facts facts;
	int ret;

	ret = sits_check_available(r->ctx, r->name, o->len_bytes);
	if (ret)
		return ret;
	memcpy(arg.name, r->name, SITS_MIN(sizeof(arg.name), sizeof(r->name)));
	ret = sits_ioctl(r->ctx->dev_fd, SITS_IOC_REGION_CREATE, &arg);
	if (ret < 0)
		return explain_create(r, o, ret);
	r->fd = sits_off_stdio(arg.fd);
	if (r->fd < 0)
		return -errno;
	ret = ask_facts(r, &facts);
	if (ret < 0)
		return ret;
	r->mapped_bytes = facts.mapped_bytes;
	if (o->kind == SITS_REGION_HUGE && facts.huge_bytes < facts.mapped_bytes)
		sits_log(r->ctx, SITS_LOG_INFO,
			 "region '%s': %" PRIu64 " of %" PRIu64 " MiB in huge pages: memory is short or in pieces; 1 in /proc/sys/vm/compact_memory may help",
			 r->name, MIB((uint64_t)facts.huge_bytes), MIB(r->mapped_bytes));
	return 0;
}

/* A place that huge pages can be mapped at, and the region there. */
static int place_region(struct sits_region *r)
{
	uint64_t align = r->mapped_bytes >= SITS_HUGE_BYTES ? SITS_HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
	int ret;

	ret = sits_map_reserve(r->mapped_bytes, align, &r->data);
	if (ret) {
		sits_log(r->ctx, SITS_LOG_ERR, "region '%s': no addresses for %" PRIu64 " MiB: %s", r->name, MIB(r->mapped_bytes),
			 strerror(-ret));
		return ret;
	}
	return map_region(r, open_prot(r));
}

static void give_back(struct sits_region *r)
{
	if (r->data)
		munmap(r->data, r->mapped_bytes);
	if (r->fd >= 0)
		close(r->fd);
	explicit_bzero(r, sizeof(*r));
	free(r);
}

/* The kernel takes no control characters: the name appears in its logs. */
static void copy_name(char *out, size_t size, const char *name)
{
	snprintf(out, size, "%s", name ? name : "unnamed");
	for (; *out; out++)
		if ((unsigned char)*out < 0x20 || *out == 0x7f)
			*out = '?';
}

static const struct sits_region_ops kernel_region_ops;

int sits_kernel_region_create(struct sits_ctx *ctx, const struct sits_region_opts *o, struct sits_region **out)
{
	struct sits_region *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return -ENOMEM;
	r->ctx = ctx;
	r->ops = &kernel_region_ops;
	r->kind = o->kind;
	r->len_bytes = o->len_bytes;
	r->fd = -1;
	copy_name(r->name, sizeof(r->name), o->name);
	ret = make_region(r, o);
	if (!ret)
		ret = place_region(r);
	if (ret) {
		give_back(r);
		return ret;
	}
	*out = r;
	return 0;
}

/* ------------------------------------------------------------------ operations */

static int seal_ioctl(struct sits_region *r, uint32_t flags)
{
	struct sits_region_seal arg = { .size = sizeof(arg), .flags = flags, .fd = r->fd };

	return sits_ioctl(r->ctx->dev_fd, SITS_IOC_REGION_SEAL, &arg);
}

static int kernel_region_seal(struct sits_region *r)
{
	int ret;

	ret = map_region(r, PROT_READ);
	if (ret)
		return ret;
	ret = seal_ioctl(r, 0);
	if (ret >= 0)
		return 0;
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': can't be sealed: %s", r->name, ret != -EBUSY ? strerror(-ret) :
		 "somebody else can still write to it: a mapping in another process, a device, or pages pinned for either");
	map_region(r, open_prot(r));
	return ret;
}

static int kernel_region_load_begin(struct sits_region *r)
{
	return map_nothing(r);
}

/* The kernel has sealed it with the last tag. */
static int kernel_region_load_finish(struct sits_region *r)
{
	return map_region(r, PROT_READ);
}

static bool kernel_region_load_fail(struct sits_region *r)
{
	struct sits_region_facts facts;
	int ret = ask_facts(r, &facts);

	/* Loaded, and not to be mapped: nobody else is to have it either. */
	if (!ret && facts.state & SITS_REGION_F_LOADED)
		seal_ioctl(r, SITS_SEAL_REVOKE);
	/* It was wiped, or the load was refused before it began. */
	return ret || facts.state & (SITS_REGION_F_LOADING | SITS_REGION_F_SEALED) || map_region(r, open_prot(r));
}

static void kernel_region_destroy(struct sits_region *r)
{
	/* Who kept the descriptor has no more use of it. Attached devices do, until they let go: then it is wiped. */
	seal_ioctl(r, SITS_SEAL_REVOKE);
	give_back(r);
}

static int kernel_region_info(const struct sits_region *r, struct sits_region_info *info)
{
	struct sits_region_facts facts;
	struct sits_map_facts map;
	int ret;

	ret = ask_facts(r, &facts);
	if (ret < 0)
		return ret;
	ret = sits_map_facts(r->data, r->mapped_bytes, &map);
	if (ret)
		return ret;
	info->huge_bytes = facts.huge_bytes;
	info->page_bytes = facts.page_bytes;
	info->node = facts.node;
	info->locked = 1;	/* the module's own pages: the kernel can't swap them */
	info->nodump = map.nodump;
	info->nofork = map.nofork;
	info->sealed = facts.state & SITS_REGION_F_SEALED && !map.writable;
	info->partial = !!(facts.state & SITS_REGION_F_PARTIAL);
	return 0;
}

static const struct sits_region_ops kernel_region_ops = {
	.destroy = kernel_region_destroy,
	.seal = kernel_region_seal,
	.load_begin = kernel_region_load_begin,
	.load_finish = kernel_region_load_finish,
	.load_fail = kernel_region_load_fail,
	.info = kernel_region_info,
};
