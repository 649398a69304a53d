/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dma_map.h - bus addresses of a region for one PCI device, as long as a descriptor is open.
 */
#ifndef SITS_DMA_MAP_H
#define SITS_DMA_MAP_H

struct file;

long sits_ioctl_dma_map(struct file *file, void __user *uarg);
long sits_ioctl_dma_unmap(struct file *file, void __user *uarg);

#endif
