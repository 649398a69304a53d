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
 * @loads: weights loaded since then
 * @load_failures: attempts to load that failed, for whatever reason but a wrong argument
 * @loaded_bytes: of plaintext, in all loads
 * @queues: there are
 * @channels: there are
 * @requests: taken in since then, by all queues
 * @answered: of these, ended by a commit
 * @cancelled: of these, ended by the client, its death or a deadline
 * @refused_busy: turned away because a queue or a client had too many
 */
struct sits_stats {
	atomic64_t regions;
	atomic64_t region_used_bytes;
	atomic64_t regions_created;
	atomic64_t regions_failed;
	atomic64_t imports_refused;
	atomic64_t importers;
	atomic64_t dma_maps;
	atomic64_t loads;
	atomic64_t load_failures;
	atomic64_t loaded_bytes;
	atomic64_t queues;
	atomic64_t channels;
	atomic64_t requests;
	atomic64_t answered;
	atomic64_t cancelled;
	atomic64_t refused_busy;
};

extern struct sits_stats sits_stats;

/* Attribute groups of the device, NULL-terminated. */
extern const struct attribute_group *sits_stats_groups[];

#endif
