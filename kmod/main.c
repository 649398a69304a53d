// SPDX-License-Identifier: GPL-2.0
/*
 * main.c - sits.ko: loading, unloading, and what modinfo says.
 *
 * Every object that userspace can hold (open files, dma-bufs) holds a reference to the module, so
 * it goes only when nothing of it is left.
 */
#include <linux/module.h>

#include "kmod/compat.h"
#include "kmod/device.h"

static int __init sits_init(void)
{
	return sits_device_init();
}

static void __exit sits_exit(void)
{
	sits_device_fini();
}

module_init(sits_init);
module_exit(sits_exit);

MODULE_DESCRIPTION("Sealed inference: protected pinned memory for models and devices");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
SITS_IMPORT_NS_DMA_BUF;
