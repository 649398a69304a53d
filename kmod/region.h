/* SPDX-License-Identifier: GPL-2.0 */
/*
 * region.h - regions: memory with stated properties, each behind a dma-buf.
 */
#ifndef SITS_REGION_H
#define SITS_REGION_H

#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/types.h>

#include "include/uapi/linux/sits.h"

struct dma_buf;
struct file;

#define SITS_HUGE_SHIFT		21	/* 2 MiB, a PMD */
#define SITS_HUGE_ORDER		(SITS_HUGE_SHIFT - PAGE_SHIFT)
#define SITS_HUGE_BYTES		(1ul << SITS_HUGE_SHIFT)
#define SITS_SLOT_PAGES		(1ul << SITS_HUGE_ORDER)

/* For what grows with a region: rather no memory than the OOM killer's choice. */
#define SITS_GFP		(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/* 2 MiB of a region: one compound page, or as many small ones as it takes. */
struct sits_slot {
	struct page *huge;
	struct page **small;
};

enum sits_load_state {
	SITS_LOAD_NONE,
	SITS_LOAD_RUNNING,	/* nobody may map or attach: -EBUSY */
	SITS_LOAD_FAILED,	/* memory is zero; until a load succeeds: -ENODATA */
	SITS_LOAD_DONE,		/* sealed, digest is valid */
};

/**
 * struct sits_region - memory behind a dma-buf
 *
 * Made by REGION_CREATE and REGION_IMPORT, freed by the dma-buf's release: whoever holds the
 * dma-buf (a descriptor, a mapping, an importer, an ioctl under way) holds the region.
 *
 * @id: for traces
 * @kind: SITS_KIND_*
 * @create_flags: SITS_CREATE_*
 * @name: NUL-terminated
 * @len_bytes: as asked for
 * @nr_pages: pages of PAGE_SIZE; the dma-buf is as long
 * @nr_slots: slots, the last of which may be shorter
 * @slots: the pages; NULL for an imported dma-buf
 * @nr_huge: slots that are one huge page
 * @node: that all pages are on, or -1
 * @mm: whose RLIMIT_MEMLOCK the pages count against; a reference to the struct (mmgrab)
 * @charged_bytes: of the module's limit
 * @user_pages: pages are pinned, of a process, and not the region's own
 * @foreign: imported dma-buf, a reference; NULL otherwise
 * @dmabuf: that the region lives behind; no reference
 *
 * All above is constant once the dma-buf exists.
 *
 * @map_sem: held for reading while a PTE is put in, for writing to change @revoked
 * @revoked: no mapping, no attachment, for good; under @map_sem, or a locked page
 * @lock: guards all below; see docs/kernel-module.md for what it nests in
 * @sealed: nobody may write, for good
 * @load: see enum sits_load_state
 * @partial: DONE, but ranges of the file only
 * @nr_maps: CPU mappings (VMAs)
 * @nr_writable: of these, those that may write
 * @nr_attached: devices attached
 * @nr_dma_writable: attachments that are mapped so that the device can write
 * @attachments: struct sits_attachment
 * @allowed: struct sits_allowed: devices that may attach to a PROTECTED region
 * @nr_allowed: entries of @allowed
 * @nr_vmaps: kernel mappings by importers
 * @vaddr: the kernel mapping, while @nr_vmaps
 * @refused_imports: attachments refused
 * @digest: of what was loaded
 */
struct sits_region {
	u64 id;
	u32 kind;
	u32 create_flags;
	char name[SITS_NAME_MAX];
	u64 len_bytes;
	unsigned long nr_pages;
	unsigned long nr_slots;
	struct sits_slot *slots;
	unsigned long nr_huge;
	int node;
	struct mm_struct *mm;
	u64 charged_bytes;
	bool user_pages;
	struct dma_buf *foreign;
	struct dma_buf *dmabuf;

	struct rw_semaphore map_sem;
	bool revoked;

	struct mutex lock;
	bool sealed;
	enum sits_load_state load;
	bool partial;
	unsigned int nr_maps;
	unsigned int nr_writable;
	unsigned int nr_attached;
	unsigned int nr_dma_writable;
	struct list_head attachments;
	struct list_head allowed;
	unsigned int nr_allowed;
	unsigned int nr_vmaps;
	void *vaddr;
	u64 refused_imports;
	u8 digest[SITS_DIGEST_LEN];
};

/* Module parameter: bytes that all regions together may hold; 0: no limit. */
extern unsigned long long sits_region_limit_bytes;

static inline u64 sits_region_mapped_bytes(const struct sits_region *region)
{
	return (u64)region->nr_pages << PAGE_SHIFT;
}

static inline u64 sits_region_huge_bytes(const struct sits_region *region)
{
	return (u64)region->nr_huge << SITS_HUGE_SHIFT;
}

/* Pages of a slot. */
static inline unsigned long sits_slot_pages(const struct sits_region *region, unsigned long slot)
{
	return min(SITS_SLOT_PAGES, region->nr_pages - (slot << SITS_HUGE_ORDER));
}

/**
 * sits_region_page() - The page of PAGE_SIZE at an offset.
 * @region: with pages of its own or pinned ones, borrowed
 * @pgoff: in pages, less than nr_pages
 *
 * Consecutive offsets within one slot that is huge are contiguous.
 *
 * Return: the page, borrowed: it lives as long as the region.
 */
static inline struct page *sits_region_page(const struct sits_region *region, unsigned long pgoff)
{
	const struct sits_slot *slot = &region->slots[pgoff >> SITS_HUGE_ORDER];
	unsigned long i = pgoff & (SITS_SLOT_PAGES - 1);

	return slot->huge ? slot->huge + i : slot->small[i];
}

/* Pieces that the makers of regions (create, import) share. */

/**
 * sits_region_alloc() - An empty region.
 * @kind: SITS_KIND_*
 * @name: valid, copied
 *
 * Return: the region, freed by sits_region_free(); ERR_PTR(-ENOMEM).
 */
struct sits_region *sits_region_alloc(u32 kind, const u8 *name);

/* Wipe and free the pages, or unpin them, give back what was charged, and free the region. */
void sits_region_free(struct sits_region *region);

/**
 * sits_region_set_size() - Set the size, charge for it, and make the empty table of slots.
 * @region: fresh
 * @nr_pages: > 0
 *
 * Return: 0; -ENOMEM: RLIMIT_MEMLOCK of the caller, or no memory for the table; -EDQUOT: the
 * module's limit. sits_region_free() undoes it.
 */
int sits_region_set_size(struct sits_region *region, unsigned long nr_pages);

/* Find out what node the pages are on, and how many are huge. */
void sits_region_survey(struct sits_region *region);

/**
 * sits_region_install() - Put a region behind a new descriptor.
 * @region: complete; taken always
 * @fd_flags: O_CLOEXEC or 0
 * @uarg: the caller's struct
 * @karg: as it is to be copied back
 * @ksize: bytes of it
 * @kfd: the field of it that gets the descriptor
 *
 * Return: 0 or -errno.
 */
int sits_region_install(struct sits_region *region, u32 fd_flags, void __user *uarg, void *karg,
			size_t ksize, __s32 *kfd);

/**
 * sits_region_get() - The region behind a descriptor.
 * @fd: of the calling process
 *
 * Return: the region with a reference to its dma-buf, put by sits_region_put(); ERR_PTR(-EBADF);
 * ERR_PTR(-EINVAL) if the descriptor is of something else.
 */
struct sits_region *sits_region_get(int fd);
void sits_region_put(struct sits_region *region);

/* For loading weights. */

/**
 * sits_region_load_begin() - Take a region for writing by the kernel alone.
 * @region: borrowed until sits_region_load_end()
 *
 * From here on nobody can map the region or attach to it, and nobody has. The pages are the
 * caller's to fill.
 *
 * Return: 0; -EBUSY if it is mapped, attached, pinned, or being loaded; -EACCES if it is sealed;
 * -EPERM if it is revoked; -EOPNOTSUPP if it is imported; -EINTR.
 */
int sits_region_load_begin(struct sits_region *region);

/**
 * sits_region_load_end() - Finish a load.
 * @region: that sits_region_load_begin() took
 * @digest: SITS_DIGEST_LEN bytes: it succeeded, and the region is sealed; copied. NULL: it failed,
 * and the region is wiped, and stays unreadable until a load into it succeeds.
 * @partial: not all of the file was loaded
 */
void sits_region_load_end(struct sits_region *region, const u8 *digest, bool partial);

/* The ioctls. */
long sits_ioctl_region_create(struct file *file, void __user *uarg);
long sits_ioctl_region_info(struct file *file, void __user *uarg);
long sits_ioctl_region_seal(struct file *file, void __user *uarg);

#endif
