// SPDX-License-Identifier: GPL-2.0
/*
 * dmabuf.c - regions as dma-bufs.
 *
 * A static exporter: pages never move, each attachment has a scatterlist of its own, and CPU access
 * syncs all that are mapped. The dma-buf core holds the reservation lock in some callbacks on some
 * kernels and in none on others, so nothing here takes or expects it: the region's lock is enough.
 */
#include <linux/device.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <uapi/linux/dma-buf.h>

#include "kmod/device.h"
#include "kmod/dmabuf.h"
#include "kmod/import.h"
#include "kmod/protect.h"
#include "kmod/region.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

#define SITS_ALLOWED_MAX 64

/* A device that may attach to a PROTECTED region; owned by the region. */
struct sits_allowed {
	struct list_head node;
	char device[SITS_NAME_MAX];
};

/* One device's view of a region; from attach to detach, in the region's list, under its lock. */
struct sits_attachment {
	struct list_head node;
	struct device *dev;
	struct sg_table sgt;
	enum dma_data_direction dir;	/* DMA_NONE: not mapped */
};

void sits_region_count_refused(struct sits_region *region, const char *device, int error)
{
	lockdep_assert_held(&region->lock);
	region->refused_imports++;
	atomic64_inc(&sits_stats.imports_refused);
	trace_sits_attach(region, device, error);
}

void sits_region_free_allowed(struct sits_region *region)
{
	struct sits_allowed *allowed, *next;

	list_for_each_entry_safe(allowed, next, &region->allowed, node)
		kfree(allowed);
}

static bool sits_region_allows(const struct sits_region *region, const char *device)
{
	const struct sits_allowed *allowed;

	lockdep_assert_held(&region->lock);
	list_for_each_entry(allowed, &region->allowed, node)
		if (!strcmp(allowed->device, "*") || !strcmp(allowed->device, device))
			return true;
	return false;
}

static int sits_region_attach_check(const struct sits_region *region, const char *device)
{
	lockdep_assert_held(&region->lock);
	if (region->revoked)
		return -EPERM;
	if (region->load == SITS_LOAD_RUNNING)
		return -EBUSY;
	if (region->load == SITS_LOAD_FAILED)
		return -ENODATA;
	if (region->kind == SITS_KIND_PROTECTED && !sits_region_allows(region, device))
		return -EPERM;
	return 0;
}

/*
 * Contiguous pages become one entry, but entries do not cross slots: none is over 2 MiB, or @max
 * pages.
 */
static unsigned long sits_region_extent(const struct sits_region *region, unsigned long pgoff,
					unsigned long max)
{
	unsigned long slot = pgoff >> SITS_HUGE_ORDER;
	unsigned long end = (slot << SITS_HUGE_ORDER) + sits_slot_pages(region, slot);
	unsigned long pfn = page_to_pfn(sits_region_page(region, pgoff));
	unsigned long n;

	end = min(end, pgoff + max);
	if (region->slots[slot].huge)
		return end - pgoff;
	for (n = 1; pgoff + n < end; n++)
		if (page_to_pfn(sits_region_page(region, pgoff + n)) != pfn + n)
			break;
	return n;
}

static int sits_region_fill_sgt(struct sits_region *region, struct device *dev,
				struct sg_table *sgt)
{
	/* A bounce buffer, which is all that a confidential guest has, takes 256 KiB at most. */
	unsigned long bounce = dma_max_mapping_size(dev) >> PAGE_SHIFT;
	/* What its driver says that an entry may be: 64 KiB, if it says nothing. */
	unsigned long seg = dma_get_max_seg_size(dev) >> PAGE_SHIFT;
	unsigned long max = max(min(bounce, seg), 1ul);
	unsigned long pgoff, n;
	struct scatterlist *sg;
	unsigned int nents = 0;
	int ret;

	for (pgoff = 0; pgoff < region->nr_pages; pgoff += n) {
		n = sits_region_extent(region, pgoff, max);
		if (!++nents)
			return -EOVERFLOW;
		cond_resched();
	}
	ret = sg_alloc_table(sgt, nents, GFP_KERNEL);
	if (ret)
		return ret;
	sg = sgt->sgl;
	for (pgoff = 0; pgoff < region->nr_pages; pgoff += n, sg = sg_next(sg)) {
		n = sits_region_extent(region, pgoff, max);
		sg_set_page(sg, sits_region_page(region, pgoff), n << PAGE_SHIFT, 0);
		cond_resched();
	}
	return 0;
}

static int sits_dmabuf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct sits_region *region = dmabuf->priv;
	struct sits_attachment *a;
	int ret;

	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		return -ENOMEM;
	a->dev = attach->dev;
	a->dir = DMA_NONE;
	mutex_lock(&region->lock);
	ret = sits_region_attach_check(region, dev_name(attach->dev));
	if (ret) {
		sits_region_count_refused(region, dev_name(attach->dev), ret);
		mutex_unlock(&region->lock);
		goto err_free;
	}
	/* Not mapped, so nobody looks at its table, which is empty yet. */
	list_add(&a->node, &region->attachments);
	region->nr_attached++;
	mutex_unlock(&region->lock);
	ret = sits_region_fill_sgt(region, attach->dev, &a->sgt);
	if (ret)
		goto err_forget;
	attach->priv = a;
	atomic64_inc(&sits_stats.importers);
	trace_sits_attach(region, dev_name(attach->dev), 0);
	return 0;

err_forget:
	mutex_lock(&region->lock);
	list_del(&a->node);
	region->nr_attached--;
	mutex_unlock(&region->lock);
err_free:
	kfree(a);
	return ret;
}

static void sits_dmabuf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct sits_region *region = dmabuf->priv;
	struct sits_attachment *a = attach->priv;

	mutex_lock(&region->lock);
	list_del(&a->node);
	region->nr_attached--;
	mutex_unlock(&region->lock);
	atomic64_dec(&sits_stats.importers);
	trace_sits_detach(region, dev_name(attach->dev), 0);
	sg_free_table(&a->sgt);
	kfree(a);
}

/* The direction to map a region in, for an importer that asks for @dir; or -errno. */
static int sits_region_map_dir(const struct sits_region *region, enum dma_data_direction dir)
{
	lockdep_assert_held(&region->lock);
	if (region->load == SITS_LOAD_RUNNING)
		return -EBUSY;
	if (!region->sealed)
		return dir;
	if (dir == DMA_FROM_DEVICE)
		return -EACCES;
	/*
	 * Importers with movable buffers of their own ask for both directions whatever they do.
	 * Behind an IOMMU they get what they need: to read.
	 */
	return DMA_TO_DEVICE;
}

static struct sg_table *sits_dmabuf_map(struct dma_buf_attachment *attach,
					enum dma_data_direction dir)
{
	struct sits_region *region = attach->dmabuf->priv;
	struct sits_attachment *a = attach->priv;
	int ret;

	mutex_lock(&region->lock);
	ret = -EBUSY;
	if (a->dir != DMA_NONE)
		goto out_unlock;
	ret = sits_region_map_dir(region, dir);
	if (ret < 0)
		goto out_unlock;
	dir = ret;
	ret = dma_map_sgtable(a->dev, &a->sgt, dir, 0);
	if (ret)
		goto out_unlock;
	a->dir = dir;
	if (dir != DMA_TO_DEVICE)
		region->nr_dma_writable++;
out_unlock:
	mutex_unlock(&region->lock);
	return ret ? ERR_PTR(ret) : &a->sgt;
}

static void sits_dmabuf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			      enum dma_data_direction dir)
{
	struct sits_region *region = attach->dmabuf->priv;
	struct sits_attachment *a = attach->priv;

	mutex_lock(&region->lock);
	if (a->dir != DMA_NONE) {
		dma_unmap_sgtable(a->dev, &a->sgt, a->dir, 0);
		if (a->dir != DMA_TO_DEVICE)
			region->nr_dma_writable--;
		a->dir = DMA_NONE;
	}
	mutex_unlock(&region->lock);
}

bool sits_attachment_is_writable(const struct dma_buf_attachment *attach)
{
	const struct sits_attachment *a = attach->priv;

	return a->dir == DMA_FROM_DEVICE || a->dir == DMA_BIDIRECTIONAL;
}

/* Here the direction is the CPU's: DMA_FROM_DEVICE is to read. */
static int sits_dmabuf_begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct sits_region *region = dmabuf->priv;
	struct sits_attachment *a;
	int ret = 0;

	mutex_lock(&region->lock);
	if (region->load == SITS_LOAD_RUNNING)
		ret = -EBUSY;
	else if (dir != DMA_FROM_DEVICE &&
		 (region->sealed || region->kind == SITS_KIND_PROTECTED))
		ret = -EACCES;
	if (ret)
		goto out_unlock;
	list_for_each_entry(a, &region->attachments, node)
		if (a->dir != DMA_NONE)
			dma_sync_sgtable_for_cpu(a->dev, &a->sgt, a->dir);
out_unlock:
	mutex_unlock(&region->lock);
	return ret;
}

static int sits_dmabuf_end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct sits_region *region = dmabuf->priv;
	struct sits_attachment *a;

	mutex_lock(&region->lock);
	list_for_each_entry(a, &region->attachments, node)
		if (a->dir != DMA_NONE)
			dma_sync_sgtable_for_device(a->dev, &a->sgt, a->dir);
	mutex_unlock(&region->lock);
	return 0;
}

static int sits_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	return sits_region_mmap(dmabuf->priv, vma);
}

static void *sits_region_vmap(struct sits_region *region)
{
	struct page **pages;
	unsigned long i;
	void *vaddr;

	pages = kvmalloc_array(region->nr_pages, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;
	for (i = 0; i < region->nr_pages; i++)
		pages[i] = sits_region_page(region, i);
	vaddr = vmap(pages, region->nr_pages, VM_MAP,
		     region->sealed ? PAGE_KERNEL_RO : PAGE_KERNEL);
	kvfree(pages);
	return vaddr;
}

static int sits_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct sits_region *region = dmabuf->priv;
	int ret = 0;

	mutex_lock(&region->lock);
	if (region->revoked)
		ret = -EPERM;
	else if (region->load == SITS_LOAD_RUNNING)
		ret = -EBUSY;
	else if (region->load == SITS_LOAD_FAILED)
		ret = -ENODATA;
	if (ret)
		goto out_unlock;
	if (!region->nr_vmaps)
		region->vaddr = sits_region_vmap(region);
	if (!region->vaddr) {
		ret = -ENOMEM;
		goto out_unlock;
	}
	region->nr_vmaps++;
	iosys_map_set_vaddr(map, region->vaddr);
out_unlock:
	mutex_unlock(&region->lock);
	return ret;
}

static void sits_dmabuf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct sits_region *region = dmabuf->priv;

	mutex_lock(&region->lock);
	if (!--region->nr_vmaps) {
		vunmap(region->vaddr);
		region->vaddr = NULL;
	}
	mutex_unlock(&region->lock);
	iosys_map_clear(map);
}

static void sits_dmabuf_release(struct dma_buf *dmabuf)
{
	struct sits_region *region = dmabuf->priv;

	trace_sits_region_free(region);
	sits_region_free(region);
}

#define SITS_DMABUF_OPS						\
	.attach			= sits_dmabuf_attach,		\
	.detach			= sits_dmabuf_detach,		\
	.map_dma_buf		= sits_dmabuf_map,		\
	.unmap_dma_buf		= sits_dmabuf_unmap,		\
	.begin_cpu_access	= sits_dmabuf_begin_cpu_access,	\
	.end_cpu_access		= sits_dmabuf_end_cpu_access,	\
	.mmap			= sits_dmabuf_mmap,		\
	.release		= sits_dmabuf_release

static const struct dma_buf_ops sits_dmabuf_ops = {
	SITS_DMABUF_OPS,
	.vmap			= sits_dmabuf_vmap,
	.vunmap			= sits_dmabuf_vunmap,
};

/*
 * The importers that PROTECTED allows are devices, not drivers that copy. The dma-buf core warns of
 * an exporter that refuses a kernel mapping, but not of one that has none to give.
 */
static const struct dma_buf_ops sits_protected_dmabuf_ops = {
	SITS_DMABUF_OPS,
};

static const struct dma_buf_ops *sits_region_dmabuf_ops(const struct sits_region *region)
{
	if (region->foreign)
		return region->foreign->ops->vmap ? &sits_foreign_dmabuf_ops :
						    &sits_foreign_novmap_dmabuf_ops;
	return region->kind == SITS_KIND_PROTECTED ? &sits_protected_dmabuf_ops : &sits_dmabuf_ops;
}

struct sits_region *sits_region_of_dmabuf(const struct dma_buf *dmabuf)
{
	if (dmabuf->ops == &sits_dmabuf_ops || dmabuf->ops == &sits_protected_dmabuf_ops ||
	    dmabuf->ops == &sits_foreign_dmabuf_ops ||
	    dmabuf->ops == &sits_foreign_novmap_dmabuf_ops)
		return dmabuf->priv;
	return NULL;
}

struct dma_buf *sits_dmabuf_export(struct sits_region *region)
{
	static const char * const exp_names[] = {
		[SITS_KIND_PINNED] = "sits-pinned",
		[SITS_KIND_HUGE] = "sits-huge",
		[SITS_KIND_PROTECTED] = "sits-protected",
		[SITS_KIND_IMPORTED] = "sits-imported",
	};
	struct dma_buf_export_info info = {
		.exp_name	= exp_names[region->kind],
		.owner		= THIS_MODULE,
		.ops		= sits_region_dmabuf_ops(region),
		.size		= sits_region_mapped_bytes(region),
		.flags		= O_RDWR,
		.resv		= region->foreign ? region->foreign->resv : NULL,
		.priv		= region,
	};
	struct dma_buf *dmabuf;
	char *name;

	/* For fdinfo, which the dma-buf core writes. It frees the name, too. */
	name = kstrndup(region->name, DMA_BUF_NAME_LEN - 1, GFP_KERNEL);
	if (!name)
		return ERR_PTR(-ENOMEM);
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		kfree(name);
		return dmabuf;
	}
	spin_lock(&dmabuf->name_lock);
	dmabuf->name = name;
	spin_unlock(&dmabuf->name_lock);
	region->dmabuf = dmabuf;
	return dmabuf;
}

static int sits_region_allow(struct sits_region *region, struct sits_allowed *allowed)
{
	const struct sits_allowed *other;

	lockdep_assert_held(&region->lock);
	if (region->kind != SITS_KIND_PROTECTED)
		return -EOPNOTSUPP;
	if (region->revoked)
		return -EPERM;
	list_for_each_entry(other, &region->allowed, node)
		if (!strcmp(other->device, allowed->device))
			return -EEXIST;
	if (region->nr_allowed >= SITS_ALLOWED_MAX)
		return -ENOSPC;
	list_add_tail(&allowed->node, &region->allowed);
	region->nr_allowed++;
	return 0;
}

long sits_ioctl_device_allow(struct file *file, void __user *uarg)
{
	struct sits_device_allow arg;
	struct sits_allowed *allowed;
	struct sits_region *region;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (arg.flags || arg.reserved || !arg.device[0] ||
	    !sits_name_is_valid(arg.device, sizeof(arg.device)))
		return -EINVAL;
	region = sits_region_get(arg.fd);
	if (IS_ERR(region))
		return PTR_ERR(region);
	ret = -ENOMEM;
	allowed = kzalloc(sizeof(*allowed), GFP_KERNEL_ACCOUNT);
	if (!allowed)
		goto out_put;
	strscpy(allowed->device, arg.device, sizeof(allowed->device));
	mutex_lock(&region->lock);
	ret = sits_region_allow(region, allowed);
	mutex_unlock(&region->lock);
	if (ret)
		kfree(allowed);
	/* To allow a device twice is to allow it. */
	if (ret == -EEXIST)
		ret = 0;
out_put:
	sits_region_put(region);
	return ret;
}
