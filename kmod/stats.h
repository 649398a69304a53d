/* SPDX-License-Identifier: GPL-2.0 */
/*
 * stats.h - what has happened since the module was loaded, as attributes of the device in sysfs.
 */
#ifndef SITS_STATS_H
#define SITS_STATS_H

#include <linux/atomic.h>

struct attribute_group;

/**
 * struct sits_stats - counters, without a lock
 * @regions: regions there are, imports included
 * @region_used_bytes: memory that they hold or pin
 * @regions_created: since loading, imports included
 * @regions_failed: attempts to create or import one that failed
 * @imports_refused: attachments that a region refused
 * @importers: devices attached to regions now
 * @dma_maps: mappings by DMA_MAP there are
 */
struct sits_stats {
	atomic64_t regions;
	atomic64_t region_used_bytes;
	atomic64_t regions_created;
	atomic64_t regions_failed;
	atomic64_t imports_refused;
	atomic64_t importers;
	atomic64_t dma_maps;
};

extern struct sits_stats sits_stats;

/* Attribute groups of the device, NULL-terminated. */
extern const struct attribute_group *sits_stats_groups[];

#endif
