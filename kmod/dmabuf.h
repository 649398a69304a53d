/* SPDX-License-Identifier: GPL-2.0 */
/*
 * dmabuf.h - regions as dma-bufs: what importing drivers see.
 */
#ifndef SITS_DMABUF_H
#define SITS_DMABUF_H

#include <linux/dma-direction.h>
#include <linux/types.h>

struct dma_buf;
struct dma_buf_attachment;
struct file;
struct sits_region;

/* Is it one of ours, and which region is behind it? NULL if not. Borrowed. */
struct sits_region *sits_region_of_dmabuf(const struct dma_buf *dmabuf);

/**
 * sits_dmabuf_export() - Make the dma-buf that a region lives behind.
 * @region: complete; taken on success: the dma-buf's release frees it
 *
 * Return: the dma-buf; ERR_PTR(-errno).
 */
struct dma_buf *sits_dmabuf_export(struct sits_region *region);

/* May a device write through an attachment that is mapped? */
bool sits_attachment_is_writable(const struct dma_buf_attachment *attach);

/* Count an attempt that was refused; the region's lock is held. */
void sits_region_count_refused(struct sits_region *region, const char *device, int error);

/* Free the list of devices that may attach. */
void sits_region_free_allowed(struct sits_region *region);

long sits_ioctl_device_allow(struct file *file, void __user *uarg);

#endif
