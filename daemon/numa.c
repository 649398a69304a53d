// SPDX-License-Identifier: MIT
/*
 * numa.c - see numa.h. System calls, since libnuma would be one more library for two of them.
 */
#include "daemon/numa.h"

#include <linux/mempolicy.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORD_BITS (8 * sizeof(unsigned long))
/* What the kernel takes for the number of bits is one more than it reads. */
#define MAX_NODE (CPU_SETSIZE + 1)

bool sits_numa_interleave(const cpu_set_t *nodes)
{
	unsigned long mask[CPU_SETSIZE / WORD_BITS] = { 0 };
	int mode, i;

	if (CPU_COUNT(nodes) < 2)
		return false;
	if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) || mode != MPOL_DEFAULT)
		return false;
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, nodes))
			mask[(size_t)i / WORD_BITS] |= 1ul << ((size_t)i % WORD_BITS);
	/* Nodes without memory, and those that a cpuset forbids, the kernel takes out itself. */
	return !syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, mask, MAX_NODE);
}

void sits_numa_restore(void)
{
	syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
}
