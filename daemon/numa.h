/* SPDX-License-Identifier: MIT */
/*
 * numa.h - memory that every thread of the team reads lies on all of the team's nodes.
 *
 * Linux puts memory where the thread runs that touches it first. Weights are made by one thread; on its node alone they would be read
 * at the speed of that node's memory, however many nodes the team is on.
 */
#ifndef SITS_DAEMON_NUMA_H
#define SITS_DAEMON_NUMA_H

#include <sched.h>
#include <stdbool.h>

/**
 * sits_numa_interleave() - Until sits_numa_restore(), put new memory of this thread on @nodes in turn, page by page.
 * @nodes: borrowed
 *
 * Does nothing for less than two nodes, where a policy was set from outside (numactl, NUMAPolicy= of the unit), or where the
 * system refuses. Context: memory of other threads, and memory that is bound to a node, is not affected.
 * Return: true if the policy was set and sits_numa_restore() is due.
 */
bool sits_numa_interleave(const cpu_set_t *nodes);

/** sits_numa_restore() - Back to the default policy. Context: the same thread. */
void sits_numa_restore(void);

#endif
