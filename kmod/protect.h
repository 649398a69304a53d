/* SPDX-License-Identifier: GPL-2.0 */
/*
 * protect.h - CPU mappings of regions, and how to take them away.
 */
#ifndef SITS_PROTECT_H
#define SITS_PROTECT_H

struct sits_region;
struct vm_area_struct;

/**
 * sits_region_mmap() - Map a region, or refuse.
 * @region: borrowed; the mapping's file holds it
 * @vma: new
 *
 * Context: mmap_lock held.
 * Return: 0; -EINVAL: not MAP_SHARED; -EACCES: to write a sealed or protected region, or to
 * execute; -EPERM: device-only or revoked; -EBUSY: being loaded; -ENODATA: a load failed; -ENODEV:
 * memory of a process, which has it mapped.
 */
int sits_region_mmap(struct sits_region *region, struct vm_area_struct *vma);

/**
 * sits_region_check_idle() - Does nobody hold a page of the region?
 * @region: whose lock the caller holds; no mapping may write
 *
 * Finds what mappings don't tell: pins by get_user_pages(), and pages in pipes. Mappings are
 * zapped on the way, and fault in again.
 *
 * Return: 0; -EBUSY: somebody does, and not just for a moment; -EINTR.
 */
int sits_region_check_idle(struct sits_region *region);

/**
 * sits_region_revoke() - Take all CPU mappings away, for good.
 * @region: whose lock the caller holds
 *
 * What is mapped gives SIGBUS from here on.
 */
void sits_region_revoke(struct sits_region *region);

#endif
