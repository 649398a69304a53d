// SPDX-License-Identifier: GPL-2.0
/*
 * sits_test_import.c - a driver that imports dma-bufs, for the tests: with QEMU's edu device, which does DMA, where there is one,
 * and with a platform device, which does none.
 *
 * It calls the dma-buf core as drivers do, and checks nothing that the exporter should. A file is an importer; what a test
 * leaves attached is undone when the file is closed. Registers: QEMU's docs/specs/edu.rst.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/iosys-map.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "sits_test_import.h"

#define EDU_DMA_SRC	0x80
#define EDU_DMA_DST	0x88
#define EDU_DMA_COUNT	0x90
#define EDU_DMA_CMD	0x98
#define EDU_DMA_RUN	1
#define EDU_DMA_TO_RAM	2
#define EDU_BUFFER	0x40000ull

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define dma_buf_vmap_unlocked dma_buf_vmap
#define dma_buf_vunmap_unlocked dma_buf_vunmap
#endif

static struct platform_device *sits_test_platform;
static struct pci_dev *sits_test_edu;	/* with its registers; under the lock below */
static void __iomem *sits_test_bar;
static DEFINE_MUTEX(sits_test_edu_lock);

/* An importer. @lock guards all of it. */
struct sits_test_importer {
	struct mutex lock;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	bool pinned;
	struct sg_table *sgt;
	enum dma_data_direction dir;
	bool vmapped;
	struct iosys_map map;
};

static void sits_test_move_notify(struct dma_buf_attachment *attach)
{
	WARN(1, "sits_test_import: told that a buffer moves, and regions never do\n");
}

static const struct dma_buf_attach_ops sits_test_attach_ops = {
	.allow_peer2peer = false,
	.move_notify = sits_test_move_notify,
};

static int sits_test_pin(struct sits_test_importer *imp)
{
	int ret;

	dma_resv_lock(imp->dmabuf->resv, NULL);
	ret = dma_buf_pin(imp->attach);
	dma_resv_unlock(imp->dmabuf->resv);
	imp->pinned = !ret;
	return ret;
}

static int sits_test_attach(struct sits_test_importer *imp, struct sits_test_import *arg)
{
	bool dynamic = arg->flags & SITS_TEST_ATTACH_DYNAMIC;
	struct device *dev = &sits_test_platform->dev;
	int ret;

	if (imp->attach)
		return -EBUSY;
	if (arg->flags & SITS_TEST_ATTACH_EDU) {
		if (!sits_test_edu)
			return -ENODEV;
		dev = &sits_test_edu->dev;
	}
	imp->dmabuf = dma_buf_get(arg->fd);
	if (IS_ERR(imp->dmabuf))
		return PTR_ERR(imp->dmabuf);
	imp->attach = dynamic ? dma_buf_dynamic_attach(imp->dmabuf, dev, &sits_test_attach_ops, imp) :
				dma_buf_attach(imp->dmabuf, dev);
	ret = PTR_ERR_OR_ZERO(imp->attach);
	if (ret)
		goto err_put;
	if (dynamic)
		ret = sits_test_pin(imp);
	if (ret)
		goto err_detach;
	return 0;

err_detach:
	dma_buf_detach(imp->dmabuf, imp->attach);
err_put:
	imp->attach = NULL;
	dma_buf_put(imp->dmabuf);
	return ret;
}

static int sits_test_map(struct sits_test_importer *imp, struct sits_test_import *arg)
{
	struct sg_table *sgt;
	struct scatterlist *sg;
	int i;

	if (!imp->attach || arg->dir > DMA_FROM_DEVICE)
		return -EINVAL;
	sgt = dma_buf_map_attachment_unlocked(imp->attach, arg->dir);
	if (IS_ERR(sgt))
		return PTR_ERR(sgt);
	/* A second mapping is the exporter's to refuse, not ours. */
	if (WARN_ON(imp->sgt))
		return -EBUSY;
	imp->sgt = sgt;
	imp->dir = arg->dir;
	arg->nents = sgt->nents;
	arg->max_len = 0;
	for_each_sgtable_dma_sg(sgt, sg, i)
		arg->max_len = max(arg->max_len, sg_dma_len(sg));
	return 0;
}

static int sits_test_unmap(struct sits_test_importer *imp)
{
	if (!imp->sgt)
		return -EINVAL;
	dma_buf_unmap_attachment_unlocked(imp->attach, imp->sgt, imp->dir);
	imp->sgt = NULL;
	return 0;
}

static int sits_test_vunmap(struct sits_test_importer *imp)
{
	if (!imp->vmapped)
		return -EINVAL;
	dma_buf_vunmap_unlocked(imp->dmabuf, &imp->map);
	imp->vmapped = false;
	return 0;
}

static int sits_test_detach(struct sits_test_importer *imp)
{
	if (!imp->attach)
		return -EINVAL;
	sits_test_vunmap(imp);
	sits_test_unmap(imp);
	if (imp->pinned) {
		dma_resv_lock(imp->dmabuf->resv, NULL);
		dma_buf_unpin(imp->attach);
		dma_resv_unlock(imp->dmabuf->resv);
		imp->pinned = false;
	}
	dma_buf_detach(imp->dmabuf, imp->attach);
	dma_buf_put(imp->dmabuf);
	imp->attach = NULL;
	return 0;
}

/* Run edu's engine, which signals its end in a register. */
static int sits_test_edu_dma(u64 src, u64 dst, u32 len, u64 cmd)
{
	int tries, ret = -ETIMEDOUT;

	mutex_lock(&sits_test_edu_lock);
	if (!sits_test_bar) {
		ret = -ENODEV;
		goto out_unlock;
	}
	writeq(src, sits_test_bar + EDU_DMA_SRC);
	writeq(dst, sits_test_bar + EDU_DMA_DST);
	writeq(len, sits_test_bar + EDU_DMA_COUNT);
	writeq(cmd | EDU_DMA_RUN, sits_test_bar + EDU_DMA_CMD);
	for (tries = 0; ret && tries < 3000; tries++) {
		msleep(10);
		if (!(readq(sits_test_bar + EDU_DMA_CMD) & EDU_DMA_RUN))
			ret = 0;
	}
out_unlock:
	mutex_unlock(&sits_test_edu_lock);
	return ret;
}

static int sits_test_edu_op(struct sits_test_importer *imp, const struct sits_test_import *arg, bool write)
{
	u64 off = arg->off;
	struct scatterlist *sg;
	int i;

	if (!imp->sgt || arg->len > SITS_TEST_EDU_BYTES)
		return -EINVAL;
	for_each_sgtable_dma_sg(imp->sgt, sg, i) {
		u64 len = sg_dma_len(sg), bus = sg_dma_address(sg) + off;

		if (off >= len) {
			off -= len;
			continue;
		}
		if (off + arg->len > len)
			return -EINVAL;
		return write ? sits_test_edu_dma(EDU_BUFFER, bus, arg->len, EDU_DMA_TO_RAM) :
			       sits_test_edu_dma(bus, EDU_BUFFER, arg->len, 0);
	}
	return -EINVAL;
}

static int sits_test_vmap(struct sits_test_importer *imp)
{
	int ret;

	if (!imp->attach || imp->vmapped)
		return -EINVAL;
	ret = dma_buf_vmap_unlocked(imp->dmabuf, &imp->map);
	imp->vmapped = !ret;
	return ret;
}

static int sits_test_vcopy(struct sits_test_importer *imp, const struct sits_test_import *arg, bool write)
{
	void __user *user = u64_to_user_ptr(arg->addr);
	char *p;

	if (!imp->vmapped || imp->map.is_iomem || arg->off + arg->len > imp->dmabuf->size)
		return -EINVAL;
	p = (char *)imp->map.vaddr + arg->off;
	if (write)
		return copy_from_user(p, user, arg->len) ? -EFAULT : 0;
	return copy_to_user(user, p, arg->len) ? -EFAULT : 0;
}

/* As a driver that copies with the CPU: by the pages of the table, within one page. */
static int sits_test_pread(struct sits_test_importer *imp, const struct sits_test_import *arg)
{
	u64 off = arg->off;
	struct scatterlist *sg;
	int i, ret;

	if (!imp->sgt || offset_in_page(arg->off) + arg->len > PAGE_SIZE)
		return -EINVAL;
	for_each_sgtable_sg(imp->sgt, sg, i) {
		char *p;

		if (off >= sg->length) {
			off -= sg->length;
			continue;
		}
		p = kmap_local_page(nth_page(sg_page(sg), off >> PAGE_SHIFT));
		ret = copy_to_user(u64_to_user_ptr(arg->addr), p + offset_in_page(off), arg->len) ? -EFAULT : 0;
		kunmap_local(p);
		return ret;
	}
	return -EINVAL;
}

static int sits_test_op(struct sits_test_importer *imp, unsigned int cmd, struct sits_test_import *arg)
{
	switch (cmd) {
	case SITS_TEST_ATTACH:
		return sits_test_attach(imp, arg);
	case SITS_TEST_DETACH:
		return sits_test_detach(imp);
	case SITS_TEST_MAP:
		return sits_test_map(imp, arg);
	case SITS_TEST_UNMAP:
		return sits_test_unmap(imp);
	case SITS_TEST_EDU_READ:
		return sits_test_edu_op(imp, arg, false);
	case SITS_TEST_EDU_WRITE:
		return sits_test_edu_op(imp, arg, true);
	case SITS_TEST_VMAP:
		return sits_test_vmap(imp);
	case SITS_TEST_VUNMAP:
		return sits_test_vunmap(imp);
	case SITS_TEST_VREAD:
		return sits_test_vcopy(imp, arg, false);
	case SITS_TEST_VWRITE:
		return sits_test_vcopy(imp, arg, true);
	case SITS_TEST_PREAD:
		return sits_test_pread(imp, arg);
	case SITS_TEST_BEGIN:
		return imp->attach ? dma_buf_begin_cpu_access(imp->dmabuf, arg->dir) : -EINVAL;
	case SITS_TEST_END:
		return imp->attach ? dma_buf_end_cpu_access(imp->dmabuf, arg->dir) : -EINVAL;
	}
	return -ENOTTY;
}

static long sits_test_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct sits_test_importer *imp = file->private_data;
	struct sits_test_import arg;
	int ret;

	if (copy_from_user(&arg, (void __user *)uarg, sizeof(arg)))
		return -EFAULT;
	mutex_lock(&imp->lock);
	ret = sits_test_op(imp, cmd, &arg);
	mutex_unlock(&imp->lock);
	if (!ret && cmd == SITS_TEST_MAP && copy_to_user((void __user *)uarg, &arg, sizeof(arg)))
		ret = -EFAULT;
	return ret;
}

static int sits_test_open(struct inode *inode, struct file *file)
{
	struct sits_test_importer *imp = kzalloc(sizeof(*imp), GFP_KERNEL);

	if (!imp)
		return -ENOMEM;
	mutex_init(&imp->lock);
	file->private_data = imp;
	return 0;
}

static int sits_test_release(struct inode *inode, struct file *file)
{
	struct sits_test_importer *imp = file->private_data;

	sits_test_detach(imp);
	kfree(imp);
	return 0;
}

static const struct file_operations sits_test_fops = {
	.owner		= THIS_MODULE,
	.open		= sits_test_open,
	.release	= sits_test_release,
	.unlocked_ioctl	= sits_test_ioctl,
};

static struct miscdevice sits_test_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "sits-test-import",
	.mode	= 0600,
	.fops	= &sits_test_fops,
};

static int sits_test_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int ret = pcim_enable_device(pdev);

	if (!ret)
		ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(32));
	if (!ret)
		ret = pcim_iomap_regions(pdev, BIT(0), "sits-test-import");
	if (ret)
		return ret;
	pci_set_master(pdev);
	mutex_lock(&sits_test_edu_lock);
	sits_test_bar = pcim_iomap_table(pdev)[0];
	sits_test_edu = pdev;
	mutex_unlock(&sits_test_edu_lock);
	return 0;
}

static void sits_test_remove(struct pci_dev *pdev)
{
	mutex_lock(&sits_test_edu_lock);
	sits_test_bar = NULL;
	sits_test_edu = NULL;
	mutex_unlock(&sits_test_edu_lock);
}

static const struct pci_device_id sits_test_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};

static struct pci_driver sits_test_driver = {
	.name		= "sits_test_import",
	.id_table	= sits_test_ids,
	.probe		= sits_test_probe,
	.remove		= sits_test_remove,
};

static int __init sits_test_init(void)
{
	struct platform_device_info info = {
		.name = SITS_TEST_PLATFORM,
		.id = PLATFORM_DEVID_NONE,
		.dma_mask = DMA_BIT_MASK(64),
	};
	int ret;

	sits_test_platform = platform_device_register_full(&info);
	if (IS_ERR(sits_test_platform))
		return PTR_ERR(sits_test_platform);
	ret = pci_register_driver(&sits_test_driver);
	if (ret)
		goto err_platform;
	ret = misc_register(&sits_test_misc);
	if (ret)
		goto err_pci;
	return 0;

err_pci:
	pci_unregister_driver(&sits_test_driver);
err_platform:
	platform_device_unregister(sits_test_platform);
	return ret;
}

static void __exit sits_test_exit(void)
{
	misc_deregister(&sits_test_misc);
	pci_unregister_driver(&sits_test_driver);
	platform_device_unregister(sits_test_platform);
}

module_init(sits_test_init);
module_exit(sits_test_exit);

MODULE_DESCRIPTION("An importer of dma-bufs that does what a test says");
MODULE_LICENSE("GPL");
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
