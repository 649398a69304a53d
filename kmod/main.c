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
#include "kmod/queue.h"
#include "kmod/weights.h"

static int __init sits_init(void)
{
	int ret;

	ret = sits_weights_init();
	if (ret)
		return ret;
	ret = sits_queue_init();
	if (ret)
		goto err_weights;
	ret = sits_device_init();
	if (ret)
		goto err_queue;
	return 0;

err_queue:
	sits_queue_fini();
err_weights:
	sits_weights_fini();
	return ret;
}

static void __exit sits_exit(void)
{
	sits_device_fini();
	sits_queue_fini();
	sits_weights_fini();
}

module_init(sits_init);
module_exit(sits_exit);

MODULE_DESCRIPTION("Sealed inference: protected pinned memory for models and devices");
MODULE_AUTHOR("The SITS project");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
/* SM4 for WEIGHTS_LOAD, unless the kernel has a better one. */
MODULE_SOFTDEP("pre: sits_sm4");
SITS_IMPORT_NS_DMA_BUF;
