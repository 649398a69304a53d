/* SPDX-License-Identifier: GPL-2.0 */
/*
 * import.h - regions of others' memory: foreign dma-bufs, and pages of the calling process.
 */
#ifndef SITS_IMPORT_H
#define SITS_IMPORT_H

struct dma_buf_ops;
struct file;
struct sits_region;

/*
 * Pass everything on to the dma-buf that was imported; the second where that has no kernel
 * mappings.
 */
extern const struct dma_buf_ops sits_foreign_dmabuf_ops;
extern const struct dma_buf_ops sits_foreign_novmap_dmabuf_ops;

/* Unpin the pages of a process. */
void sits_import_unpin(struct sits_region *region);

long sits_ioctl_region_import(struct file *file, void __user *uarg);

#endif
