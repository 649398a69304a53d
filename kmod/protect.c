// SPDX-License-Identifier: GPL-2.0
/*
 * protect.c - CPU mappings of regions.
 *
 * PINNED and HUGE regions map as ordinary pages, which get_user_pages() can pin. PROTECTED ones
 * map as bare page frames: to the kernel that is a device's memory, which it neither reads for
 * others (ptrace, /proc/PID/mem, core dumps) nor pins, and they can't be written at all.
 *
 * Taking mappings away races with faults that put them in. Bare frames go in under map_sem. Pages
 * go in after the fault handler has returned, but with the page still locked, so going through
 * the page locks once after the flag is set waits for all that had not seen it.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "kmod/compat.h"
#include "kmod/protect.h"
#include "kmod/region.h"

/* How long a page that somebody holds for a moment (a fault, a lookup) is waited for. */
#define SITS_IDLE_TRIES		20
#define SITS_IDLE_SLEEP_MS	5

static void sits_vm_open(struct vm_area_struct *vma)
{
	struct sits_region *region = vma->vm_private_data;

	mutex_lock(&region->lock);
	region->nr_maps++;
	/* Nobody changes this flag after sits_region_mmap(). */
	if (vma->vm_flags & VM_MAYWRITE)
		region->nr_writable++;
	mutex_unlock(&region->lock);
}

static void sits_vm_close(struct vm_area_struct *vma)
{
	struct sits_region *region = vma->vm_private_data;

	mutex_lock(&region->lock);
	region->nr_maps--;
	if (vma->vm_flags & VM_MAYWRITE)
		region->nr_writable--;
	mutex_unlock(&region->lock);
}

static vm_fault_t sits_page_fault(struct vm_fault *vmf)
{
	struct sits_region *region = vmf->vma->vm_private_data;
	struct page *page;

	if (vmf->pgoff >= region->nr_pages)
		return VM_FAULT_SIGBUS;
	page = sits_region_page(region, vmf->pgoff);
	lock_page(page);
	if (READ_ONCE(region->revoked)) {
		unlock_page(page);
		return VM_FAULT_SIGBUS;
	}
	get_page(page);
	vmf->page = page;
	return VM_FAULT_LOCKED;
}

static vm_fault_t sits_pfn_fault(struct vm_fault *vmf)
{
	struct sits_region *region = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	if (vmf->pgoff >= region->nr_pages)
		return VM_FAULT_SIGBUS;
	down_read(&region->map_sem);
	if (!region->revoked)
		ret = vmf_insert_pfn(vmf->vma, vmf->address,
				     page_to_pfn(sits_region_page(region, vmf->pgoff)));
	up_read(&region->map_sem);
	return ret;
}

#ifdef SITS_HAS_PFN_PMD
static vm_fault_t sits_pfn_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	struct sits_region *region = vma->vm_private_data;
	unsigned long start = ALIGN_DOWN(vmf->address, SITS_HUGE_BYTES);
	unsigned long pgoff;
	struct page *huge;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	if (order != SITS_HUGE_ORDER || start < vma->vm_start ||
	    start + SITS_HUGE_BYTES > vma->vm_end)
		return VM_FAULT_FALLBACK;
	pgoff = vma->vm_pgoff + ((start - vma->vm_start) >> PAGE_SHIFT);
	if (!IS_ALIGNED(pgoff, SITS_SLOT_PAGES) || pgoff + SITS_SLOT_PAGES > region->nr_pages)
		return VM_FAULT_FALLBACK;
	huge = region->slots[pgoff >> SITS_HUGE_ORDER].huge;
	if (!huge)
		return VM_FAULT_FALLBACK;
	down_read(&region->map_sem);
	if (!region->revoked)
		ret = sits_insert_pfn_pmd(vmf, page_to_pfn(huge));
	up_read(&region->map_sem);
	return ret;
}
#endif

static const struct vm_operations_struct sits_page_vm_ops = {
	.open	= sits_vm_open,
	.close	= sits_vm_close,
	.fault	= sits_page_fault,
};

/* No .access: that is how ptrace would read. */
static const struct vm_operations_struct sits_pfn_vm_ops = {
	.open	= sits_vm_open,
	.close	= sits_vm_close,
	.fault	= sits_pfn_fault,
#ifdef SITS_HAS_PFN_PMD
	.huge_fault = sits_pfn_huge_fault,
#endif
};

static int sits_region_mmap_check(const struct sits_region *region, unsigned long vm_flags)
{
	/* A private one would make copies that no rule holds for. */
	if (!(vm_flags & VM_SHARED))
		return -EINVAL;
	if (vm_flags & VM_EXEC)
		return -EACCES;
	if (region->user_pages)
		return -ENODEV;
	if (region->revoked || region->create_flags & SITS_CREATE_DEVICE_ONLY)
		return -EPERM;
	if (region->load == SITS_LOAD_RUNNING)
		return -EBUSY;
	if (region->load == SITS_LOAD_FAILED)
		return -ENODATA;
	if (vm_flags & VM_WRITE && (region->sealed || region->kind == SITS_KIND_PROTECTED))
		return -EACCES;
	return 0;
}

int sits_region_mmap(struct sits_region *region, struct vm_area_struct *vma)
{
	/* VM_DONTEXPAND also keeps madvise() from undoing VM_DONTDUMP. */
	unsigned long set = VM_DONTEXPAND | VM_DONTDUMP;
	unsigned long clear = VM_MAYEXEC;
	int ret;

	mutex_lock(&region->lock);
	ret = sits_region_mmap_check(region, vma->vm_flags);
	if (ret)
		goto out_unlock;
	vma->vm_ops = &sits_page_vm_ops;
	/* VM_IO keeps madvise() from undoing VM_DONTCOPY. */
	if (region->kind == SITS_KIND_PROTECTED) {
		vma->vm_ops = &sits_pfn_vm_ops;
		set |= VM_PFNMAP | VM_IO | VM_DONTCOPY;
	}
	/* What is mapped for reading stays so: else a seal could not know who can write. */
	if (!(vma->vm_flags & VM_WRITE))
		clear |= VM_MAYWRITE;
	sits_vma_flags_mod(vma, set, clear);
	vma->vm_private_data = region;
	region->nr_maps++;
	if (vma->vm_flags & VM_MAYWRITE)
		region->nr_writable++;
out_unlock:
	mutex_unlock(&region->lock);
	return ret;
}

static void sits_region_zap(struct sits_region *region, unsigned long pgoff, unsigned long nr)
{
	unmap_mapping_range(region->dmabuf->file->f_mapping, (loff_t)pgoff << PAGE_SHIFT,
			    (loff_t)nr << PAGE_SHIFT, 1);
}

/* A page whose only reference is the region's has no other holder: faults wait for its lock. */
static int sits_page_check_idle(struct sits_region *region, unsigned long pgoff, unsigned long nr)
{
	struct page *page = sits_region_page(region, pgoff);
	int tries;
	bool idle;

	for (tries = 0; tries < SITS_IDLE_TRIES; tries++) {
		lock_page(page);
		if (page_count(page) > 1)
			sits_region_zap(region, pgoff, nr);
		idle = page_count(page) == 1;
		unlock_page(page);
		if (idle)
			return 0;
		if (fatal_signal_pending(current))
			return -EINTR;
		msleep(SITS_IDLE_SLEEP_MS);
	}
	return -EBUSY;
}

int sits_region_check_idle(struct sits_region *region)
{
	unsigned long pgoff, nr;
	int ret;

	lockdep_assert_held(&region->lock);
	/* Bare frames hold no references, and nobody gets any. */
	if (region->kind == SITS_KIND_PROTECTED)
		return 0;
	for (pgoff = 0; pgoff < region->nr_pages; pgoff += nr) {
		nr = region->slots[pgoff >> SITS_HUGE_ORDER].huge ? SITS_SLOT_PAGES : 1;
		ret = sits_page_check_idle(region, pgoff, nr);
		if (ret)
			return ret;
		cond_resched();
	}
	return 0;
}

void sits_region_revoke(struct sits_region *region)
{
	unsigned long pgoff, nr;

	lockdep_assert_held(&region->lock);
	down_write(&region->map_sem);
	WRITE_ONCE(region->revoked, true);
	up_write(&region->map_sem);
	for (pgoff = 0; pgoff < region->nr_pages; pgoff += nr) {
		struct page *page = sits_region_page(region, pgoff);

		nr = region->slots[pgoff >> SITS_HUGE_ORDER].huge ? SITS_SLOT_PAGES : 1;
		lock_page(page);
		unlock_page(page);
		cond_resched();
	}
	sits_region_zap(region, 0, region->nr_pages);
}
