/* SPDX-License-Identifier: MIT */
/*
 * topology.h - which CPUs share a core, which node each belongs to, and the order in which threads get them.
 *
 * Reads what Linux tells in sysfs and changes nothing. What it is told is not believed further than it makes sense: whatever the
 * files hold, the order names each allowed CPU once.
 */
#ifndef SITS_ENGINE_TOPOLOGY_H
#define SITS_ENGINE_TOPOLOGY_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#define SITS_TOPOLOGY_ROOT "/sys/devices/system"

struct sits_topology_cpu {
	int cpu;
	int node;		/* 0 where no node claims the CPU */
};

/**
 * struct sits_topology - The CPUs of a mask, in the order in which threads get them.
 * @nr: CPUs
 * @cores: the first of them, one of each core
 * @cpu: [nr]. One CPU of each core before any second one; each time dealt to the nodes in turn, so that of the first n cores no
 *	node has more than one above another that has cores left
 */
struct sits_topology {
	uint32_t nr, cores;
	struct sits_topology_cpu cpu[CPU_SETSIZE];
};

/**
 * sits_topology_read() - Order the CPUs of @mask that are online.
 * @root: folder with cpu/ and node/, SITS_TOPOLOGY_ROOT but in tests; borrowed
 * @mask: borrowed
 * @out: out; nr is 0 only for an empty mask
 *
 * Never fails: without cpu/online all of @mask is taken for online, a CPU whose siblings are not told has its core for itself,
 * and one that no node claims is on node 0. A file that can't be parsed counts as missing. CPUs and nodes from
 * CPU_SETSIZE up are left out.
 *
 * Source: Linux, Documentation/admin-guide/cputopology.rst and Documentation/ABI/stable/sysfs-devices-node.
 */
void sits_topology_read(const char *root, const cpu_set_t *mask, struct sits_topology *out);

/** sits_topology_nodes() - The nodes of the first @nr CPUs (all, if there are fewer). @set: out; may be NULL. Return: how many. */
uint32_t sits_topology_nodes(const struct sits_topology *t, uint32_t nr, cpu_set_t *set);

/**
 * sits_topology_parse() - A list as sysfs writes it: "0-3,8-11,17", white space behind it allowed; nothing is the empty list.
 * @text: [len], no end needed; borrowed
 * @set: out; unchanged on error. Numbers from CPU_SETSIZE up are left out
 * Return: 0; -EINVAL for anything else, a range that runs backwards and a number above INT_MAX among it.
 */
int sits_topology_parse(const char *text, size_t len, cpu_set_t *set);

#endif
