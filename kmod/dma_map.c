// SPDX-License-Identifier: GPL-2.0
/*
 * dma_map.c - bus addresses of a region for one PCI device.
 *
 * The device attaches to the region's dma-buf like any importer, so that allow lists, seals and
 * syncs hold. What it may do beyond is the IOMMU's to limit, where there is one.
 */
#include <linux/anon_inodes.h>
#include <linux/dma-buf.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "kmod/device.h"
#include "kmod/dma_map.h"
#include "kmod/dmabuf.h"
#include "kmod/region.h"
#include "kmod/stats.h"
#include "kmod/trace.h"

/**
 * struct sits_dma - a mapping, behind a file of its own
 *
 * Made by DMA_MAP, freed by the file's release; undone by either DMA_UNMAP or that.
 *
 * @region: with a reference to its dma-buf
 * @dev: with a reference
 * @dir: for the device
 * @nr_segs: of the mapping, those in a row as one
 * @lock: guards all below
 * @attach: NULL once it is undone
 * @sgt: the attachment's
 */
struct sits_dma {
	struct sits_region *region;
	struct device *dev;
	enum dma_data_direction dir;
	u32 nr_segs;
	struct mutex lock;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;
};

/* Return 0, or -EALREADY. */
static int sits_dma_undo(struct sits_dma *dma)
{
	int ret = -EALREADY;

	mutex_lock(&dma->lock);
	if (dma->attach) {
		dma_buf_unmap_attachment_unlocked(dma->attach, dma->sgt, dma->dir);
		dma_buf_detach(dma->region->dmabuf, dma->attach);
		dma->attach = NULL;
		atomic64_dec(&sits_stats.dma_maps);
		trace_sits_dma_unmap(dma->region, dev_name(dma->dev), 0);
		ret = 0;
	}
	mutex_unlock(&dma->lock);
	return ret;
}

static void sits_dma_free(struct sits_dma *dma)
{
	sits_dma_undo(dma);
	mutex_destroy(&dma->lock);
	put_device(dma->dev);
	sits_region_put(dma->region);
	kfree(dma);
}

static int sits_dma_release(struct inode *inode, struct file *file)
{
	sits_dma_free(file->private_data);
	return 0;
}

static void sits_dma_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct sits_dma *dma = file->private_data;

	mutex_lock(&dma->lock);
	seq_printf(m, "sits-dma-device:\t%s\n", dev_name(dma->dev));
	seq_printf(m, "sits-dma-region:\t%s\n", dma->region->name);
	seq_printf(m, "sits-dma-bytes:\t%llu\n", sits_region_mapped_bytes(dma->region));
	seq_printf(m, "sits-dma-segments:\t%u\n", dma->nr_segs);
	seq_printf(m, "sits-dma-mapped:\t%u\n", !!dma->attach);
	mutex_unlock(&dma->lock);
}

static const struct file_operations sits_dma_fops = {
	.owner		= THIS_MODULE,
	.release	= sits_dma_release,
	.show_fdinfo	= sits_dma_show_fdinfo,
	.llseek		= noop_llseek,
};

/* A PCI device that the kernel does DMA for, with a reference. */
static struct device *sits_dma_find_device(const char *name)
{
	struct device *dev = bus_find_device_by_name(&pci_bus_type, NULL, name);
	bool managed = false;

	if (!dev)
		return ERR_PTR(-ENODEV);
	/* Where userspace drives it (vfio), the kernel's mappings are not what it sees. */
	device_lock(dev);
	if (dev->driver)
		managed = to_pci_driver(dev->driver)->driver_managed_dma;
	device_unlock(dev);
	if (managed) {
		put_device(dev);
		return ERR_PTR(-EBUSY);
	}
	return dev;
}

/* Goes through the entries of a mapping; those whose bus addresses follow each other are one. */
struct sits_dma_walk {
	struct scatterlist *sg;
	unsigned int left;
};

static struct sits_dma_walk sits_dma_walk_start(const struct sg_table *sgt)
{
	return (struct sits_dma_walk) { .sg = sgt->sgl, .left = sgt->nents };
}

static bool sits_dma_walk_next(struct sits_dma_walk *walk, struct sits_dma_seg *seg)
{
	if (!walk->left)
		return false;
	seg->bus_addr = sg_dma_address(walk->sg);
	seg->len_bytes = sg_dma_len(walk->sg);
	while (--walk->left) {
		walk->sg = sg_next(walk->sg);
		if (sg_dma_address(walk->sg) != seg->bus_addr + seg->len_bytes)
			break;
		seg->len_bytes += sg_dma_len(walk->sg);
		cond_resched();
	}
	return true;
}

static u32 sits_dma_count_segs(const struct sg_table *sgt)
{
	struct sits_dma_walk walk = sits_dma_walk_start(sgt);
	struct sits_dma_seg seg;
	u32 nr = 0;

	while (sits_dma_walk_next(&walk, &seg))
		nr++;
	return nr;
}

static int sits_dma_attach(struct sits_dma *dma, u32 flags)
{
	int ret;

	dma->attach = dma_buf_attach(dma->region->dmabuf, dma->dev);
	if (IS_ERR(dma->attach)) {
		ret = PTR_ERR(dma->attach);
		goto err_clear;
	}
	dma->sgt = dma_buf_map_attachment_unlocked(dma->attach, dma->dir);
	if (IS_ERR(dma->sgt)) {
		ret = PTR_ERR(dma->sgt);
		goto err_detach;
	}
	/* A seal took one of two directions away: better none than half. */
	if (flags & SITS_DMA_FROM_DEVICE && !dma->region->foreign &&
	    !sits_attachment_is_writable(dma->attach)) {
		ret = -EACCES;
		goto err_unmap;
	}
	dma->nr_segs = sits_dma_count_segs(dma->sgt);
	atomic64_inc(&sits_stats.dma_maps);
	trace_sits_dma_map(dma->region, dev_name(dma->dev), 0);
	return 0;

err_unmap:
	dma_buf_unmap_attachment_unlocked(dma->attach, dma->sgt, dma->dir);
err_detach:
	dma_buf_detach(dma->region->dmabuf, dma->attach);
err_clear:
	dma->attach = NULL;
	trace_sits_dma_map(dma->region, dev_name(dma->dev), ret);
	return ret;
}

static struct sits_dma *sits_dma_make(const struct sits_dma_map *arg)
{
	struct sits_dma *dma;
	int ret;

	dma = kzalloc(sizeof(*dma), GFP_KERNEL_ACCOUNT);
	if (!dma)
		return ERR_PTR(-ENOMEM);
	mutex_init(&dma->lock);
	switch (arg->flags) {
	case SITS_DMA_TO_DEVICE:
		dma->dir = DMA_TO_DEVICE;
		break;
	case SITS_DMA_FROM_DEVICE:
		dma->dir = DMA_FROM_DEVICE;
		break;
	default:
		dma->dir = DMA_BIDIRECTIONAL;
	}
	dma->region = sits_region_get(arg->fd);
	if (IS_ERR(dma->region)) {
		ret = PTR_ERR(dma->region);
		goto err_free;
	}
	dma->dev = sits_dma_find_device(arg->device);
	if (IS_ERR(dma->dev)) {
		ret = PTR_ERR(dma->dev);
		goto err_put_region;
	}
	ret = sits_dma_attach(dma, arg->flags);
	if (ret)
		goto err_put_device;
	return dma;

err_put_device:
	put_device(dma->dev);
err_put_region:
	sits_region_put(dma->region);
err_free:
	kfree(dma);
	return ERR_PTR(ret);
}

static int sits_dma_put_segs(const struct sits_dma *dma, struct sits_dma_seg __user *usegs)
{
	struct sits_dma_walk walk = sits_dma_walk_start(dma->sgt);
	struct sits_dma_seg seg;

	for (; sits_dma_walk_next(&walk, &seg); usegs++) {
		if (copy_to_user(usegs, &seg, sizeof(seg)))
			return -EFAULT;
		cond_resched();
	}
	return 0;
}

/* Put a mapping behind a descriptor. The mapping is taken always. */
static int sits_dma_install(struct sits_dma *dma, void __user *uarg, struct sits_dma_map *arg)
{
	struct file *file;

	file = anon_inode_getfile("[sits-dma]", &sits_dma_fops, dma, O_RDWR);
	if (IS_ERR(file)) {
		sits_dma_free(dma);
		return PTR_ERR(file);
	}
	/* The file owns the mapping from here on. */
	return sits_file_install(file, O_CLOEXEC, uarg, arg, sizeof(*arg), &arg->fd_map);
}

long sits_ioctl_dma_map(struct file *file, void __user *uarg)
{
	struct sits_dma_map arg;
	struct sits_dma *dma;
	u32 room;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (!arg.flags || arg.flags & ~(SITS_DMA_TO_DEVICE | SITS_DMA_FROM_DEVICE) || arg.reserved)
		return -EINVAL;
	if (!arg.device[0] || !sits_name_is_valid(arg.device, sizeof(arg.device)))
		return -EINVAL;
	dma = sits_dma_make(&arg);
	if (IS_ERR(dma))
		return PTR_ERR(dma);
	room = arg.nr_segs;
	arg.nr_segs = dma->nr_segs;
	if (room < dma->nr_segs) {
		/* So that the caller knows how much room it takes. */
		ret = sits_arg_put(uarg, &arg, sizeof(arg)) ?: -ENOSPC;
		goto err_free;
	}
	ret = sits_dma_put_segs(dma, u64_to_user_ptr(arg.segs));
	if (ret)
		goto err_free;
	return sits_dma_install(dma, uarg, &arg);

err_free:
	sits_dma_free(dma);
	return ret;
}

long sits_ioctl_dma_unmap(struct file *file, void __user *uarg)
{
	struct sits_dma_unmap arg;
	struct file *map;
	int ret;

	ret = sits_arg_get(&arg, sizeof(arg), sizeof(arg), uarg);
	if (ret)
		return ret;
	if (arg.flags || arg.reserved)
		return -EINVAL;
	map = fget(arg.fd_map);
	if (!map)
		return -EBADF;
	ret = -EINVAL;
	if (map->f_op == &sits_dma_fops)
		ret = sits_dma_undo(map->private_data);
	fput(map);
	return ret;
}
