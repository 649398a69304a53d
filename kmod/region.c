// SPDX-License-Identifier: GPL-2.0
/*
 * region.c - regions: their memory, what it is charged to, their life from REGION_CREATE to the
 * dma-buf's release, sealing, and the frame of a load.
 *
 * Who may map is in protect.c, who may attach in dmabuf.c, others' memory in import.c.
 */
#include <linux/cc_platform.h>
#include <linux/dma-buf.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "kmod/device.h"
#include "kmod/dmabuf.h"
#include "kmod/import.h"
#include "kmod/protect.h"
#include "kmod/region.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

unsigned long long sits_region_limit_bytes;
module_param_named(region_limit_bytes, sits_region_limit_bytes, ullong, 0644);
MODULE_PARM_DESC(region_limit_bytes,
		 "Memory that all regions together may hold, in bytes, 0: no limit (default 0)");

#define SITS_CREATE_FLAGS (SITS_CREATE_REQUIRE_HUGE | SITS_CREATE_DEVICE_ONLY)

/* ------------------------------------------------------------------------ charging */

static int sits_charge_limit(u64 bytes)
{
	u64 limit = READ_ONCE(sits_region_limit_bytes);
	s64 used = atomic64_read(&sits_stats.region_used_bytes);

	do {
		if (limit && (bytes > limit || used > limit - bytes))
			return -EDQUOT;
	} while (!atomic64_try_cmpxchg(&sits_stats.region_used_bytes, &used, used + bytes));
	return 0;
}

static void sits_uncharge_limit(u64 bytes)
{
	atomic64_sub(bytes, &sits_stats.region_used_bytes);
}

static int sits_region_charge(struct sits_region *region)
{
	u64 bytes = sits_region_mapped_bytes(region);
	int ret;

	ret = sits_charge_limit(bytes);
	if (ret)
		return ret;
	ret = account_locked_vm(current->mm, region->nr_pages, true);
	if (ret)
		goto err_uncharge_limit;
	mmgrab(current->mm);
	region->mm = current->mm;
	region->charged_bytes = bytes;
	return 0;

err_uncharge_limit:
	sits_uncharge_limit(bytes);
	return ret;
}

static void sits_region_uncharge(struct sits_region *region)
{
	if (!region->mm)
		return;
	/* The process may be gone, or have exec'd; the struct is still there. */
	account_locked_vm(region->mm, region->nr_pages, false);
	mmdrop(region->mm);
	sits_uncharge_limit(region->charged_bytes);
}

/* -------------------------------------------------------------------------- memory */

static struct page *sits_alloc_pages(int node, unsigned int order, gfp_t effort)
{
	/* @effort is one that may fail, see SITS_GFP. */
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | effort;

	if (order)
		gfp |= __GFP_COMP;
	return node < 0 ? alloc_pages(gfp, order) : alloc_pages_node(node, gfp, order);
}

static int sits_slot_fill_small(struct sits_region *region, unsigned long i, int node)
{
	unsigned long n = sits_slot_pages(region, i), k;
	struct sits_slot *slot = &region->slots[i];

	slot->small = kcalloc(n, sizeof(*slot->small), SITS_GFP);
	if (!slot->small)
		return -ENOMEM;
	for (k = 0; k < n; k++) {
		slot->small[k] = sits_alloc_pages(node, 0, __GFP_RETRY_MAYFAIL);
		if (!slot->small[k])
			return -ENOMEM;
	}
	return 0;
}

static int sits_slot_fill(struct sits_region *region, unsigned long i, int node)
{
	gfp_t effort = region->kind == SITS_KIND_HUGE ||
		       (region->create_flags & SITS_CREATE_REQUIRE_HUGE) ?
		       __GFP_RETRY_MAYFAIL : __GFP_NORETRY;

	if (sits_slot_pages(region, i) == SITS_SLOT_PAGES)
		region->slots[i].huge = sits_alloc_pages(node, SITS_HUGE_ORDER, effort);
	if (region->slots[i].huge) {
		/*
		 * Where it is in the dma-buf's file. Linux maps a huge page by a PMD only if by
		 * this all of it is within the file (finish_fault() of 6.12.117), and nobody
		 * clears what the page's last user left there.
		 */
		page_folio(region->slots[i].huge)->index = i << SITS_HUGE_ORDER;
		return 0;
	}
	if (region->create_flags & SITS_CREATE_REQUIRE_HUGE)
		return -ENOMEM;
	return sits_slot_fill_small(region, i, node);
}

static int sits_region_fill(struct sits_region *region, int node)
{
	unsigned long i;
	int ret;

	for (i = 0; i < region->nr_slots; i++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		ret = sits_slot_fill(region, i, node);
		if (ret)
			return ret;
		cond_resched();
	}
	return 0;
}

static void sits_slot_wipe(struct sits_region *region, unsigned long i)
{
	struct sits_slot *slot = &region->slots[i];
	unsigned long n = sits_slot_pages(region, i), k;

	for (k = 0; k < n; k++) {
		if (slot->huge)
			clear_highpage(slot->huge + k);
		else if (slot->small && slot->small[k])
			clear_highpage(slot->small[k]);
	}
}

static void sits_region_wipe(struct sits_region *region)
{
	unsigned long i;

	for (i = 0; i < region->nr_slots; i++) {
		sits_slot_wipe(region, i);
		cond_resched();
	}
}

static void sits_slot_free(struct sits_region *region, unsigned long i)
{
	struct sits_slot *slot = &region->slots[i];
	unsigned long n = sits_slot_pages(region, i), k;

	if (slot->huge)
		__free_pages(slot->huge, SITS_HUGE_ORDER);
	for (k = 0; slot->small && k < n && slot->small[k]; k++)
		__free_page(slot->small[k]);
	kfree(slot->small);
}

static void sits_region_free_pages(struct sits_region *region)
{
	unsigned long i;

	for (i = 0; i < region->nr_slots; i++) {
		sits_slot_wipe(region, i);
		sits_slot_free(region, i);
		cond_resched();
	}
}

void sits_region_survey(struct sits_region *region)
{
	unsigned long pgoff = 0;

	region->node = page_to_nid(sits_region_page(region, 0));
	while (pgoff < region->nr_pages) {
		if (page_to_nid(sits_region_page(region, pgoff)) != region->node)
			region->node = NUMA_NO_NODE;
		if (region->slots[pgoff >> SITS_HUGE_ORDER].huge) {
			region->nr_huge++;
			pgoff += SITS_SLOT_PAGES;
		} else {
			pgoff++;
		}
		if (!(pgoff & (SITS_SLOT_PAGES - 1)))
			cond_resched();
	}
}

/* ---------------------------------------------------------------------------- life */

struct sits_region *sits_region_alloc(u32 kind, const u8 *name)
{
	static atomic64_t last_id;
	struct sits_region *region;

	region = kzalloc(sizeof(*region), SITS_GFP);
	if (!region)
		return ERR_PTR(-ENOMEM);
	region->id = atomic64_inc_return(&last_id);
	region->kind = kind;
	strscpy(region->name, name, sizeof(region->name));
	region->node = NUMA_NO_NODE;
	init_rwsem(&region->map_sem);
	mutex_init(&region->lock);
	INIT_LIST_HEAD(&region->attachments);
	INIT_LIST_HEAD(&region->allowed);
	atomic64_inc(&sits_stats.regions);
	return region;
}

void sits_region_free(struct sits_region *region)
{
	if (region->user_pages)
		sits_import_unpin(region);
	else if (region->slots)
		sits_region_free_pages(region);
	kvfree(region->slots);
	sits_region_uncharge(region);
	if (region->foreign)
		dma_buf_put(region->foreign);
	sits_region_free_allowed(region);
	mutex_destroy(&region->lock);
	atomic64_dec(&sits_stats.regions);
	kfree_sensitive(region);
}

int sits_region_set_size(struct sits_region *region, unsigned long nr_pages)
{
	int ret;

	region->nr_pages = nr_pages;
	region->nr_slots = DIV_ROUND_UP(nr_pages, SITS_SLOT_PAGES);
	ret = sits_region_charge(region);
	if (ret)
		return ret;
	region->slots = kvcalloc(region->nr_slots, sizeof(*region->slots), SITS_GFP);
	return region->slots ? 0 : -ENOMEM;
}

int sits_region_install(struct sits_region *region, u32 fd_flags, void __user *uarg, void *karg,
			size_t ksize, __s32 *kfd)
{
	struct dma_buf *dmabuf;
	int ret, fd;

	dmabuf = sits_dmabuf_export(region);
	if (IS_ERR(dmabuf)) {
		sits_region_free(region);
		return PTR_ERR(dmabuf);
	}
	/* The dma-buf owns the region from here on. */
	fd = get_unused_fd_flags(fd_flags);
	if (fd < 0) {
		ret = fd;
		goto err_put_dmabuf;
	}
	*kfd = fd;
	ret = sits_arg_put(uarg, karg, ksize);
	if (ret)
		goto err_put_fd;
	atomic64_inc(&sits_stats.regions_created);
	trace_sits_region_create(region);
	/* The descriptor owns the dma-buf from here on, and the user may close it at once. */
	fd_install(fd, dmabuf->file);
	return 0;

err_put_fd:
	put_unused_fd(fd);
err_put_dmabuf:
	dma_buf_put(dmabuf);
	return ret;
}

struct sits_region *sits_region_get(int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct sits_region *region;

	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	region = sits_region_of_dmabuf(dmabuf);
	if (!region) {
		dma_buf_put(dmabuf);
		return ERR_PTR(-EINVAL);
	}
	return region;
}

void sits_region_put(struct sits_region *region)
{
	dma_buf_put(region->dmabuf);
}

/* -------------------------------------------------------------------------- create */

static int sits_region_create_check(const struct sits_region_create *arg)
{
	if (arg->flags & ~SITS_CREATE_FLAGS || arg->fd_flags & ~O_CLOEXEC)
		return -EINVAL;
	if (arg->kind < SITS_KIND_PINNED || arg->kind > SITS_KIND_PROTECTED)
		return -EINVAL;
	if ((arg->flags & SITS_CREATE_REQUIRE_HUGE) && arg->kind == SITS_KIND_PINNED)
		return -EINVAL;
	if ((arg->flags & SITS_CREATE_DEVICE_ONLY) && arg->kind != SITS_KIND_PROTECTED)
		return -EINVAL;
	if (!arg->len_bytes || arg->len_bytes > LONG_MAX - SITS_HUGE_BYTES)
		return -EINVAL;
	if (arg->node < NUMA_NO_NODE || arg->node >= MAX_NUMNODES)
		return -EINVAL;
	if (arg->node != NUMA_NO_NODE && !node_state(arg->node, N_MEMORY))
		return -EINVAL;
	if (!sits_name_is_valid(arg->name, sizeof(arg->name)))
		return -EINVAL;
	return 0;
}

static struct sits_region *sits_region_make(const struct sits_region_create *arg)
{
	unsigned long align = PAGE_SIZE;
	struct sits_region *region;
	int ret;

	/* Don't evict everything else first to find that out. */
	if (arg->len_bytes >> PAGE_SHIFT > totalram_pages())
		return ERR_PTR(-ENOMEM);
	region = sits_region_alloc(arg->kind, arg->name);
	if (IS_ERR(region))
		return region;
	region->create_flags = arg->flags;
	region->len_bytes = arg->len_bytes;
	if (arg->kind == SITS_KIND_HUGE || (arg->flags & SITS_CREATE_REQUIRE_HUGE))
		align = SITS_HUGE_BYTES;
	ret = sits_region_set_size(region, ALIGN(arg->len_bytes, align) >> PAGE_SHIFT);
	if (ret)
		goto err_free;
	ret = sits_region_fill(region, arg->node);
	if (ret)
		goto err_free;
	sits_region_survey(region);
	return region;

err_free:
	sits_region_free(region);
	return ERR_PTR(ret);
}

long sits_ioctl_region_create(struct file *file, void __user *uarg)
{
	struct sits_region_create arg;
	struct sits_region *region;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	ret = sits_region_create_check(&arg);
	if (ret)
		return ret;
	region = sits_region_make(&arg);
	ret = PTR_ERR_OR_ZERO(region);
	if (!ret)
		ret = sits_region_install(region, arg.fd_flags, uarg, &arg, sizeof(arg), &arg.fd);
	if (ret)
		atomic64_inc(&sits_stats.regions_failed);
	return ret;
}

/* ---------------------------------------------------------------------------- info */

static u32 sits_region_state(const struct sits_region *region)
{
	u32 state = 0;

	if (region->sealed)
		state |= SITS_REGION_F_SEALED;
	if (region->kind == SITS_KIND_PINNED || region->kind == SITS_KIND_HUGE)
		state |= SITS_REGION_F_PINNABLE;
	if (region->create_flags & SITS_CREATE_DEVICE_ONLY)
		state |= SITS_REGION_F_DEVICE_ONLY;
	/* Memory of a device that was imported is not the platform's to encrypt. */
	if (region->slots && cc_platform_has(CC_ATTR_MEM_ENCRYPT))
		state |= SITS_REGION_F_ENCRYPTED;
	if (region->load == SITS_LOAD_DONE)
		state |= SITS_REGION_F_LOADED | (region->partial ? SITS_REGION_F_PARTIAL : 0);
	if (region->load == SITS_LOAD_RUNNING || region->load == SITS_LOAD_FAILED)
		state |= SITS_REGION_F_LOADING;
	if (region->revoked)
		state |= SITS_REGION_F_REVOKED;
	return state;
}

static void sits_region_facts(struct sits_region *region, struct sits_region_facts *arg)
{
	arg->kind = region->kind;
	arg->len_bytes = region->len_bytes;
	arg->mapped_bytes = sits_region_mapped_bytes(region);
	arg->huge_bytes = sits_region_huge_bytes(region);
	arg->page_bytes = region->nr_huge && region->nr_huge == region->nr_slots ?
			  SITS_HUGE_BYTES : PAGE_SIZE;
	arg->node = region->node;
	memcpy(arg->name, region->name, sizeof(arg->name));

	mutex_lock(&region->lock);
	arg->state = sits_region_state(region);
	arg->nr_importers = region->nr_attached;
	arg->refused_imports = region->refused_imports;
	memcpy(arg->digest, region->digest, sizeof(arg->digest));
	mutex_unlock(&region->lock);
}

long sits_ioctl_region_info(struct file *file, void __user *uarg)
{
	struct sits_region_facts arg;
	struct sits_region *region;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (arg.flags)
		return -EINVAL;
	region = sits_region_get(arg.fd);
	if (IS_ERR(region))
		return PTR_ERR(region);
	sits_region_facts(region, &arg);
	sits_region_put(region);
	return sits_arg_put(uarg, &arg, sizeof(arg));
}

/* ---------------------------------------------------------------------------- seal */

static int sits_region_seal(struct sits_region *region, u32 flags)
{
	int ret;

	lockdep_assert_held(&region->lock);
	if (region->load == SITS_LOAD_RUNNING)
		return -EBUSY;
	if (region->load == SITS_LOAD_FAILED)
		return -ENODATA;
	if (flags & SITS_SEAL_REVOKE && !region->revoked) {
		sits_region_revoke(region);
		trace_sits_region_revoke(region);
	}
	if (region->sealed)
		return 0;
	/* A mapping that was revoked can't write any more. */
	if (region->nr_writable && !region->revoked)
		return -EBUSY;
	if (region->nr_dma_writable || region->nr_vmaps)
		return -EBUSY;
	ret = sits_region_check_idle(region);
	if (ret)
		return ret;
	region->sealed = true;
	trace_sits_region_seal(region);
	return 0;
}

long sits_ioctl_region_seal(struct file *file, void __user *uarg)
{
	struct sits_region_seal arg;
	struct sits_region *region;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (arg.flags & ~SITS_SEAL_REVOKE || arg.reserved)
		return -EINVAL;
	region = sits_region_get(arg.fd);
	if (IS_ERR(region))
		return PTR_ERR(region);
	/* Nobody can stop those who hold it by other ways. */
	ret = -EOPNOTSUPP;
	if (region->kind != SITS_KIND_IMPORTED) {
		mutex_lock(&region->lock);
		ret = sits_region_seal(region, arg.flags);
		mutex_unlock(&region->lock);
	}
	sits_region_put(region);
	return ret;
}

/* ------------------------------------------------------------------------- loading */

static int sits_region_load_check(struct sits_region *region)
{
	if (region->kind == SITS_KIND_IMPORTED)
		return -EOPNOTSUPP;
	if (region->revoked)
		return -EPERM;
	if (region->sealed)
		return -EACCES;
	if (region->load == SITS_LOAD_RUNNING)
		return -EBUSY;
	if (region->nr_maps || region->nr_attached || region->nr_vmaps)
		return -EBUSY;
	return sits_region_check_idle(region);
}

int sits_region_load_begin(struct sits_region *region)
{
	int ret;

	mutex_lock(&region->lock);
	ret = sits_region_load_check(region);
	if (!ret)
		region->load = SITS_LOAD_RUNNING;
	mutex_unlock(&region->lock);
	if (!ret)
		trace_sits_region_load_begin(region);
	return ret;
}

void sits_region_load_end(struct sits_region *region, const u8 *digest, bool partial)
{
	if (!digest)
		sits_region_wipe(region);
	mutex_lock(&region->lock);
	if (digest) {
		memcpy(region->digest, digest, sizeof(region->digest));
		region->sealed = true;
		region->load = SITS_LOAD_DONE;
		region->partial = partial;
	} else {
		region->load = SITS_LOAD_FAILED;
	}
	mutex_unlock(&region->lock);
	trace_sits_region_load_end(region);
}
