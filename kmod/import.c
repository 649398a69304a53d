// SPDX-License-Identifier: GPL-2.0
/*
 * import.c - regions of others' memory.
 *
 * A foreign dma-buf (of a GPU, a camera, another exporter) becomes a region that passes everything
 * on to it. The two share one reservation object, so that what the dma-buf core locks for ours is
 * what the other's exporter expects to be locked.
 *
 * Memory of the calling process is pinned for the region's life and counts against RLIMIT_MEMLOCK.
 */
#include <linux/dma-buf.h>
#include <linux/fcntl.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "kmod/device.h"
#include "kmod/dmabuf.h"
#include "kmod/import.h"
#include "kmod/region.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

static int sits_foreign_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct sits_region *region = dmabuf->priv;
	struct dma_buf_attachment *inner;
	int ret;

	inner = dma_buf_attach(region->foreign, attach->dev);
	ret = PTR_ERR_OR_ZERO(inner);
	mutex_lock(&region->lock);
	if (ret)
		sits_region_count_refused(region, dev_name(attach->dev), ret);
	else
		region->nr_attached++;
	mutex_unlock(&region->lock);
	if (ret)
		return ret;
	attach->priv = inner;
	atomic64_inc(&sits_stats.importers);
	trace_sits_attach(region, dev_name(attach->dev), 0);
	return 0;
}

static void sits_foreign_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct sits_region *region = dmabuf->priv;

	dma_buf_detach(region->foreign, attach->priv);
	mutex_lock(&region->lock);
	region->nr_attached--;
	mutex_unlock(&region->lock);
	atomic64_dec(&sits_stats.importers);
	trace_sits_detach(region, dev_name(attach->dev), 0);
}

static struct sg_table *sits_foreign_map(struct dma_buf_attachment *attach,
					 enum dma_data_direction dir)
{
	return dma_buf_map_attachment(attach->priv, dir);
}

static void sits_foreign_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			       enum dma_data_direction dir)
{
	dma_buf_unmap_attachment(attach->priv, sgt, dir);
}

static int sits_foreign_begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct sits_region *region = dmabuf->priv;

	return dma_buf_begin_cpu_access(region->foreign, dir);
}

static int sits_foreign_end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct sits_region *region = dmabuf->priv;

	return dma_buf_end_cpu_access(region->foreign, dir);
}

static int sits_foreign_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct sits_region *region = dmabuf->priv;

	return dma_buf_mmap(region->foreign, vma, vma->vm_pgoff);
}

static int sits_foreign_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct sits_region *region = dmabuf->priv;

	return dma_buf_vmap(region->foreign, map);
}

static void sits_foreign_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct sits_region *region = dmabuf->priv;

	dma_buf_vunmap(region->foreign, map);
}

static void sits_foreign_release(struct dma_buf *dmabuf)
{
	struct sits_region *region = dmabuf->priv;

	trace_sits_region_free(region);
	sits_region_free(region);
}

#define SITS_FOREIGN_DMABUF_OPS						\
	.attach			= sits_foreign_attach,			\
	.detach			= sits_foreign_detach,			\
	.map_dma_buf		= sits_foreign_map,			\
	.unmap_dma_buf		= sits_foreign_unmap,			\
	.begin_cpu_access	= sits_foreign_begin_cpu_access,	\
	.end_cpu_access		= sits_foreign_end_cpu_access,		\
	.mmap			= sits_foreign_mmap,			\
	.release		= sits_foreign_release

const struct dma_buf_ops sits_foreign_dmabuf_ops = {
	SITS_FOREIGN_DMABUF_OPS,
	.vmap			= sits_foreign_vmap,
	.vunmap			= sits_foreign_vunmap,
};

/* Of an exporter that gives no kernel mappings. */
const struct dma_buf_ops sits_foreign_novmap_dmabuf_ops = {
	SITS_FOREIGN_DMABUF_OPS,
};

static struct sits_region *sits_import_dmabuf(const struct sits_region_import *arg)
{
	struct dma_buf *foreign = dma_buf_get(arg->src_fd);
	struct sits_region *region;
	int ret = -EINVAL;

	if (IS_ERR(foreign))
		return ERR_CAST(foreign);
	/* Ours are regions already, and what wraps one wraps no second. */
	if (sits_region_of_dmabuf(foreign) || !PAGE_ALIGNED(foreign->size))
		goto err_put;
	region = sits_region_alloc(SITS_KIND_IMPORTED, arg->name);
	if (IS_ERR(region)) {
		ret = PTR_ERR(region);
		goto err_put;
	}
	region->foreign = foreign;
	region->len_bytes = foreign->size;
	region->nr_pages = foreign->size >> PAGE_SHIFT;
	return region;

err_put:
	dma_buf_put(foreign);
	return ERR_PTR(ret);
}

void sits_import_unpin(struct sits_region *region)
{
	unsigned long i, n;

	for (i = 0; region->slots && i < region->nr_slots; i++) {
		struct page **pages = region->slots[i].small;

		if (!pages)
			continue;
		n = 0;
		while (n < sits_slot_pages(region, i) && pages[n])
			n++;
		unpin_user_pages_dirty_lock(pages, n, true);
		kfree(pages);
		cond_resched();
	}
}

static int sits_import_pin_slot(struct sits_region *region, unsigned long i, unsigned long addr)
{
	unsigned long n = sits_slot_pages(region, i), done = 0;
	struct page **pages;
	int ret;

	pages = kcalloc(n, sizeof(*pages), SITS_GFP);
	if (!pages)
		return -ENOMEM;
	region->slots[i].small = pages;
	while (done < n) {
		ret = pin_user_pages_fast(addr + (done << PAGE_SHIFT), n - done,
					  FOLL_WRITE | FOLL_LONGTERM, pages + done);
		if (ret < 0)
			return ret;
		if (!ret)
			return -EFAULT;
		done += ret;
	}
	return 0;
}

static struct sits_region *sits_import_user(const struct sits_region_import *arg)
{
	unsigned long nr_pages = arg->len_bytes >> PAGE_SHIFT, i;
	struct sits_region *region;
	int ret;

	if (nr_pages > totalram_pages())
		return ERR_PTR(-ENOMEM);
	region = sits_region_alloc(SITS_KIND_IMPORTED, arg->name);
	if (IS_ERR(region))
		return region;
	region->user_pages = true;
	region->len_bytes = arg->len_bytes;
	ret = sits_region_set_size(region, nr_pages);
	for (i = 0; !ret && i < region->nr_slots; i++) {
		if (fatal_signal_pending(current))
			ret = -EINTR;
		else
			ret = sits_import_pin_slot(region, i, arg->addr + (i << SITS_HUGE_SHIFT));
		cond_resched();
	}
	if (ret) {
		sits_region_free(region);
		return ERR_PTR(ret);
	}
	sits_region_survey(region);
	return region;
}

static int sits_region_import_check(const struct sits_region_import *arg)
{
	if (arg->flags || arg->fd_flags & ~O_CLOEXEC)
		return -EINVAL;
	if (!sits_name_is_valid(arg->name, sizeof(arg->name)))
		return -EINVAL;
	if (arg->from == SITS_IMPORT_DMABUF)
		return arg->addr || arg->len_bytes ? -EINVAL : 0;
	if (arg->from != SITS_IMPORT_USER || arg->src_fd != -1)
		return -EINVAL;
	if (!arg->len_bytes || !PAGE_ALIGNED(arg->addr) || !PAGE_ALIGNED(arg->len_bytes))
		return -EINVAL;
	if (arg->addr + arg->len_bytes < arg->addr)
		return -EINVAL;
	return 0;
}

long sits_ioctl_region_import(struct file *file, void __user *uarg)
{
	struct sits_region_import arg;
	struct sits_region *region;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	ret = sits_region_import_check(&arg);
	if (ret)
		return ret;
	if (arg.from == SITS_IMPORT_DMABUF)
		region = sits_import_dmabuf(&arg);
	else
		region = sits_import_user(&arg);
	ret = PTR_ERR_OR_ZERO(region);
	if (!ret)
		ret = sits_region_install(region, arg.fd_flags, uarg, &arg, sizeof(arg), &arg.fd);
	if (ret)
		atomic64_inc(&sits_stats.regions_failed);
	return ret;
}
