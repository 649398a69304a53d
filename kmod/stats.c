// SPDX-License-Identifier: GPL-2.0
/*
 * stats.c - counters of the module in sysfs (/sys/class/misc/sits/), and its tracepoints.
 */
#include <linux/device.h>
#include <linux/sysfs.h>

#include "kmod/stats.h"

#define CREATE_TRACE_POINTS
#include "kmod/trace.h"

struct sits_stats sits_stats;

#define SITS_STAT_ATTR(name)							\
static ssize_t name##_show(struct device *dev, struct device_attribute *attr,	\
			   char *buf)						\
{										\
	return sysfs_emit(buf, "%lld\n", atomic64_read(&sits_stats.name));	\
}										\
static DEVICE_ATTR_RO(name)

SITS_STAT_ATTR(regions);
SITS_STAT_ATTR(region_used_bytes);
SITS_STAT_ATTR(regions_created);
SITS_STAT_ATTR(regions_failed);
SITS_STAT_ATTR(imports_refused);
SITS_STAT_ATTR(importers);
SITS_STAT_ATTR(dma_maps);
SITS_STAT_ATTR(loads);
SITS_STAT_ATTR(load_failures);
SITS_STAT_ATTR(loaded_bytes);
SITS_STAT_ATTR(queues);
SITS_STAT_ATTR(channels);
SITS_STAT_ATTR(requests);
SITS_STAT_ATTR(answered);
SITS_STAT_ATTR(cancelled);
SITS_STAT_ATTR(refused_busy);

static struct attribute *sits_stats_attrs[] = {
	&dev_attr_regions.attr,
	&dev_attr_region_used_bytes.attr,
	&dev_attr_regions_created.attr,
	&dev_attr_regions_failed.attr,
	&dev_attr_imports_refused.attr,
	&dev_attr_importers.attr,
	&dev_attr_dma_maps.attr,
	&dev_attr_loads.attr,
	&dev_attr_load_failures.attr,
	&dev_attr_loaded_bytes.attr,
	&dev_attr_queues.attr,
	&dev_attr_channels.attr,
	&dev_attr_requests.attr,
	&dev_attr_answered.attr,
	&dev_attr_cancelled.attr,
	&dev_attr_refused_busy.attr,
	NULL
};

static const struct attribute_group sits_stats_group = {
	.attrs = sits_stats_attrs,
};

const struct attribute_group *sits_stats_groups[] = {
	&sits_stats_group,
	NULL
};
