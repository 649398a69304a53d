// SPDX-License-Identifier: MIT
/*
 * region_user.c - regions of the user provider: a memfd that only this process may ever write.
 *
 * One shared mapping is made, and then the memfd gets F_SEAL_FUTURE_WRITE, SHRINK, GROW and SEAL
 * before anybody else has seen it: from then on the kernel refuses every other writable mapping,
 * write(2), truncation and hole punching, through any descriptor and in any process. What is left is
 * this one mapping, so sealing the region is one mprotect(PROT_READ), and destroying it can lift
 * that again to overwrite the bytes. F_SEAL_WRITE would bind the owner's own code too, but then
 * nobody could wipe the pages, and the kernel clears freed pages only when it hands them
 * out again (or with init_on_free=1).
 */
#include "libsits/internal.h"
#include "libsits/provider_user.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the headers of Debian 12; the kernel refuses what it does not know. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U	/* Linux 6.3 */
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)	/* log2 of the page size, as in linux/memfd.h */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23	/* Linux 5.14 */
#endif

#define REGION_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NODES_MAX 1024u
#define NODE_SAMPLES 256u	/* pages asked for their NUMA node */
#define MIB(bytes) (((bytes) + (1u << 20) - 1) >> 20)

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static bool wants_huge(const struct sits_region_opts *o)
{
	return o->kind != SITS_REGION_PINNED &&
	       (o->kind == SITS_REGION_HUGE || o->len_bytes >= SITS_HUGE_BYTES);
}

/* ------------------------------------------------------------------- creation */

static int create_memfd(const char *name, unsigned int extra)
{
	char full[80];
	int fd;

	snprintf(full, sizeof(full), "sits:%s", name);
	fd = memfd_create(full, MFD_CLOEXEC | MFD_NOEXEC_SEAL | extra);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(full, MFD_CLOEXEC | MFD_ALLOW_SEALING | extra);
	return fd < 0 ? -errno : fd;
}

/* Map @fd at an address that is a multiple of @align. */
static int map_aligned(int fd, uint64_t len, uint64_t align, void **out)
{
	void *at;
	int ret;

	ret = sits_map_reserve(len, align, &at);
	if (ret)
		return ret;
	if (mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		ret = -errno;
		munmap(at, len);
		return ret;
	}
	*out = at;
	return 0;
}

static void unback(struct sits_region *r)
{
	if (r->data)
		munmap(r->data, r->mapped_bytes);
	if (r->fd >= 0)
		close(r->fd);
	r->data = NULL;
	r->fd = -1;
}

static int prefer_node(struct sits_region *r, int node)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	const unsigned int bits = 8 * sizeof(unsigned long);

	if (node < 0)
		return 0;
	if ((unsigned int)node >= NODES_MAX)
		return -EINVAL;
	mask[(unsigned int)node / bits] = 1ul << ((unsigned int)node % bits);
	if (!syscall(SYS_mbind, r->data, r->mapped_bytes, MPOL_PREFERRED, mask, NODES_MAX + 1, 0))
		return 0;
	if (errno == ENOSYS && node == 0)
		return 0;	/* a kernel without NUMA has one node */
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': NUMA node %d: %s", r->name, node,
		 strerror(errno));
	return -EINVAL;
}

/* Backing from the hugetlb pool. Return: 0, or -errno and nothing is left behind. */
static int back_hugetlb(struct sits_region *r, int node)
{
	int ret;

	r->fd = create_memfd(r->name, MFD_HUGETLB | MFD_HUGE_2MB);
	if (r->fd < 0)
		return r->fd;
	ret = ftruncate(r->fd, (off_t)r->mapped_bytes) ? -errno : 0;
	if (!ret)
		ret = map_aligned(r->fd, r->mapped_bytes, SITS_HUGE_BYTES, &r->data);
	if (!ret)
		ret = prefer_node(r, node);
	if (!ret && madvise(r->data, r->mapped_bytes, MADV_POPULATE_WRITE))
		ret = -errno;
	if (ret)
		unback(r);
	return ret;
}

static int back_shmem(struct sits_region *r, bool huge, int node)
{
	int ret;

	r->fd = create_memfd(r->name, 0);
	if (r->fd < 0)
		return r->fd;
	ret = ftruncate(r->fd, (off_t)r->mapped_bytes) ? -errno : 0;
	if (!ret)
		ret = map_aligned(r->fd, r->mapped_bytes,
				  huge ? SITS_HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE), &r->data);
	if (!ret)
		ret = prefer_node(r, node);
	if (!ret && huge)
		madvise(r->data, r->mapped_bytes, MADV_HUGEPAGE);	/* a wish: info tells */
	if (ret)
		unback(r);
	return ret;
}

/* Touch every page now, so that running out of memory is an error here and not a signal later. */
static int populate(struct sits_region *r)
{
	if (!madvise(r->data, r->mapped_bytes, MADV_POPULATE_WRITE))
		return 0;
	if (errno == EINVAL) {	/* before Linux 5.14 */
		memset(r->data, 0, r->mapped_bytes);
		return 0;
	}
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': no memory for %" PRIu64 " MiB: %s", r->name,
		 MIB(r->mapped_bytes), strerror(errno));
	return -ENOMEM;
}

static int lock_and_populate(struct sits_region *r, uint32_t flags)
{
	bool may_go_on = flags & SITS_REGION_ALLOW_UNLOCKED;
	char what[96];
	int ret;

	snprintf(what, sizeof(what), "region '%s'", r->name);
	ret = sits_lock_memory(r->ctx, may_go_on ? SITS_LOG_WARN : SITS_LOG_ERR, r->data,
			       r->mapped_bytes, what);
	if (ret && !may_go_on)
		return ret;
	return populate(r);
}

/* Excluded from dumps and children, and closed to every writer but this one mapping. */
static int fence_off(struct sits_region *r)
{
	if (madvise(r->data, r->mapped_bytes, MADV_DONTDUMP) ||
	    madvise(r->data, r->mapped_bytes, MADV_DONTFORK) ||
	    fchmod(r->fd, 0) || fcntl(r->fd, F_ADD_SEALS, REGION_SEALS)) {
		int ret = -errno;

		sits_log(r->ctx, SITS_LOG_ERR, "region '%s': cannot protect the memory: %s",
			 r->name, strerror(errno));
		return ret;
	}
	return 0;
}

static void read_word(const char *path, char *out, int size)
{
	FILE *f = fopen(path, "re");

	out[0] = '\0';
	if (!f)
		return;
	if (fgets(out, size, f))
		out[strcspn(out, "\n")] = '\0';
	fclose(f);
}

/* Tell how much came in huge pages, and why not all of it. */
static int report_huge(struct sits_region *r, bool required, int pool_errno)
{
	struct sits_map_facts facts;
	char pool[32], shmem[96];
	int ret;

	ret = sits_map_facts(r->data, r->mapped_bytes, &facts);
	if (ret)
		return ret;
	if (facts.huge_bytes == r->mapped_bytes)
		return 0;
	read_word("/proc/sys/vm/nr_hugepages", pool, sizeof(pool));
	read_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem, sizeof(shmem));
	sits_log(r->ctx, required ? SITS_LOG_ERR : SITS_LOG_INFO,
		 "region '%s': %" PRIu64 " of %" PRIu64 " MiB in huge pages (hugetlb pool of %s pages: %s; shmem_enabled: %s); reserve %" PRIu64 " pages in vm.nr_hugepages, or write 'advise' to /sys/kernel/mm/transparent_hugepage/shmem_enabled",
		 r->name, MIB(facts.huge_bytes), MIB(r->mapped_bytes), pool,
		 strerror(-pool_errno), shmem, r->mapped_bytes / SITS_HUGE_BYTES);
	return required ? -EOPNOTSUPP : 0;
}

static int back_region(struct sits_region *r, const struct sits_region_opts *o)
{
	bool huge = wants_huge(o), pool = false;
	int pool_errno = 0, ret;

	if (huge) {
		pool_errno = back_hugetlb(r, o->node);
		pool = !pool_errno;
	}
	if (!pool) {
		ret = sits_check_available(r->ctx, r->name, r->mapped_bytes);
		if (!ret)
			ret = back_shmem(r, huge, o->node);
		if (ret)
			return ret;
	}
	ret = 0;
	if (!pool)	/* pages of the pool are resident, and never swapped */
		ret = lock_and_populate(r, o->flags);
	if (!ret)
		ret = fence_off(r);
	if (!ret && huge)
		ret = report_huge(r, o->flags & SITS_REGION_REQUIRE_HUGE, pool_errno);
	return ret;
}

static int set_writable(struct sits_region *r, bool writable)
{
	int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;

	if (!mprotect(r->data, r->mapped_bytes, prot))
		return 0;
	sits_log(r->ctx, SITS_LOG_ERR, "region '%s': mprotect: %s", r->name, strerror(errno));
	return -errno;
}

static const struct sits_region_ops user_region_ops;

int sits_user_region_create(struct sits_ctx *ctx, const struct sits_region_opts *o,
			    struct sits_region **out)
{
	struct sits_region *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return -ENOMEM;
	r->ctx = ctx;
	r->ops = &user_region_ops;
	r->kind = o->kind;
	r->len_bytes = o->len_bytes;
	r->fd = -1;
	snprintf(r->name, sizeof(r->name), "%s", o->name ? o->name : "unnamed");
	r->mapped_bytes = round_up(o->len_bytes, wants_huge(o) ? SITS_HUGE_BYTES :
				   (uint64_t)sysconf(_SC_PAGESIZE));
	ret = back_region(r, o);
	if (!ret && o->kind == SITS_REGION_PROTECTED)
		ret = set_writable(r, false);
	if (ret) {
		unback(r);
		free(r);
		return ret;
	}
	*out = r;
	return 0;
}

/* ------------------------------------------------------------------ operations */

static int user_region_seal(struct sits_region *r)
{
	return set_writable(r, false);
}

static int user_region_load_begin(struct sits_region *r)
{
	return set_writable(r, true);
}

static bool user_region_load_fail(struct sits_region *r)
{
	/* It is so already, but where the load had been finished. */
	if (!set_writable(r, true))
		explicit_bzero(r->data, r->mapped_bytes);
	if (r->kind == SITS_REGION_PROTECTED)
		set_writable(r, false);
	return true;
}

static void user_region_destroy(struct sits_region *r)
{
	if (!set_writable(r, true))
		explicit_bzero(r->data, r->mapped_bytes);
	unback(r);
	explicit_bzero(r, sizeof(*r));
	free(r);
}

/* One node that holds every sampled page, or -1. */
static int32_t effective_node(const struct sits_region *r)
{
	uint64_t step = round_up(SITS_MAX(r->mapped_bytes / NODE_SAMPLES, 1u),
				 (uint64_t)sysconf(_SC_PAGESIZE));
	int32_t node = -1;

	for (uint64_t at = 0; at < r->mapped_bytes; at += step) {
		void *page = (uint8_t *)r->data + at;
		int status = -1;

		if (syscall(SYS_move_pages, 0, 1ul, &page, NULL, &status, 0)) {
			struct stat st;

			/* A kernel without NUMA has one node. */
			return stat("/sys/devices/system/node/node1", &st) ? 0 : -1;
		}
		if (status < 0 || (node >= 0 && status != node))
			return -1;
		node = status;
	}
	return node;
}

static int user_region_info(const struct sits_region *r, struct sits_region_info *info)
{
	struct sits_map_facts facts;
	int seals, ret;

	ret = sits_map_facts(r->data, r->mapped_bytes, &facts);
	if (ret)
		return ret;
	seals = fcntl(r->fd, F_GET_SEALS);
	info->huge_bytes = facts.huge_bytes;
	info->page_bytes = facts.huge_bytes == r->mapped_bytes ?
			   SITS_MAX(facts.page_bytes, (uint64_t)SITS_HUGE_BYTES) : facts.page_bytes;
	info->node = effective_node(r);
	info->locked = facts.locked && facts.rss_bytes >= r->mapped_bytes;
	info->nodump = facts.nodump;
	info->nofork = facts.nofork;
	info->sealed = r->state == SITS_REGION_SEALED && !facts.writable && seals >= 0 &&
		       (seals & REGION_SEALS) == REGION_SEALS;
	return 0;
}

static const struct sits_region_ops user_region_ops = {
	.destroy = user_region_destroy,
	.seal = user_region_seal,
	.load_begin = user_region_load_begin,
	.load_finish = user_region_seal,
	.load_fail = user_region_load_fail,
	.info = user_region_info,
};
