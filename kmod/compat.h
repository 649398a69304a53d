/* SPDX-License-Identifier: GPL-2.0 */
/*
 * compat.h - all that differs between the kernels that sits.ko is built for (6.1 to 6.12 and on).
 */
#ifndef SITS_COMPAT_H
#define SITS_COMPAT_H

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define SITS_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS("DMA_BUF")
#else
#define SITS_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS(DMA_BUF)
#endif

/* In ->mmap, where the mapping is not yet visible to anybody. */
static inline void sits_vma_flags_mod(struct vm_area_struct *vma, unsigned long set,
				      unsigned long clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

/*
 * Before 6.12 a PMD without struct pages can't be told from one with: get_user_pages_fast() would
 * follow it. So protected memory is mapped by PTEs there.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0) && defined(CONFIG_ARCH_SUPPORTS_PMD_PFNMAP)
#define SITS_HAS_PFN_PMD 1

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#include <linux/pfn_t.h>
#endif

static inline vm_fault_t sits_insert_pfn_pmd(struct vm_fault *vmf, unsigned long pfn)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	return vmf_insert_pfn_pmd(vmf, pfn, false);
#else
	return vmf_insert_pfn_pmd(vmf, pfn_to_pfn_t(pfn), false);
#endif
}
#endif

#endif
