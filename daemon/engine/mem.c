// SPDX-License-Identifier: MIT
/*
 * mem.c - see mem.h. Whole mappings, no heap: what is freed goes back to the kernel, which clears it.
 */
#include "daemon/engine/mem.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE (2u << 20)

static size_t padded(size_t len)
{
	size_t unit = len >= HUGE_PAGE ? HUGE_PAGE : 4096;

	return (len + unit - 1) & ~(unit - 1);
}

int sits_mem_map(size_t len, void **out)
{
	size_t want, spare = 0, head;
	uint8_t *p;

	if (!len || len > SIZE_MAX / 2)
		return -EINVAL;
	want = padded(len);
	if (want >= HUGE_PAGE)
		spare = HUGE_PAGE;
	p = mmap(NULL, want + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	if (spare) {
		head = -(uintptr_t)p & (HUGE_PAGE - 1);
		if (head)
			munmap(p, head);
		if (spare - head)
			munmap(p + head + want, spare - head);
		p += head;
		madvise(p, want, MADV_HUGEPAGE);
	}
	/* Best effort, all of it: an old kernel or a small RLIMIT_MEMLOCK must not stop service. */
	madvise(p, want, MADV_DONTDUMP);
	madvise(p, want, MADV_WIPEONFORK);
	mlock2(p, want, MLOCK_ONFAULT);
	*out = p;
	return 0;
}

void sits_mem_unmap(void *p, size_t len)
{
	if (p)
		munmap(p, padded(len));
}
