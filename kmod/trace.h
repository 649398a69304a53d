/* SPDX-License-Identifier: GPL-2.0 */
/*
 * trace.h - tracepoints: one for each change of a region's state. Names of regions are arrays here
 * and not strings, whose macros differ between kernels.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sits

#if !defined(SITS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SITS_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>

#include "kmod/region.h"

DECLARE_EVENT_CLASS(sits_region_event,
	TP_PROTO(const struct sits_region *region),
	TP_ARGS(region),
	TP_STRUCT__entry(
		__array(char, name, SITS_NAME_MAX)
		__field(u64, id)
		__field(u32, kind)
		__field(u64, len_bytes)
		__field(u64, huge_bytes)
	),
	TP_fast_assign(
		memcpy(__entry->name, region->name, SITS_NAME_MAX);
		__entry->id = region->id;
		__entry->kind = region->kind;
		__entry->len_bytes = region->len_bytes;
		__entry->huge_bytes = sits_region_huge_bytes(region);
	),
	TP_printk("id=%llu name=%s kind=%u len=%llu huge=%llu", __entry->id, __entry->name,
		  __entry->kind, __entry->len_bytes, __entry->huge_bytes)
);

DEFINE_EVENT(sits_region_event, sits_region_create,
	TP_PROTO(const struct sits_region *region), TP_ARGS(region));
DEFINE_EVENT(sits_region_event, sits_region_free,
	TP_PROTO(const struct sits_region *region), TP_ARGS(region));
DEFINE_EVENT(sits_region_event, sits_region_seal,
	TP_PROTO(const struct sits_region *region), TP_ARGS(region));
DEFINE_EVENT(sits_region_event, sits_region_revoke,
	TP_PROTO(const struct sits_region *region), TP_ARGS(region));
DEFINE_EVENT(sits_region_event, sits_region_load_begin,
	TP_PROTO(const struct sits_region *region), TP_ARGS(region));
DEFINE_EVENT(sits_region_event, sits_region_load_end,
	TP_PROTO(const struct sits_region *region), TP_ARGS(region));

DECLARE_EVENT_CLASS(sits_import_event,
	TP_PROTO(const struct sits_region *region, const char *device, int error),
	TP_ARGS(region, device, error),
	TP_STRUCT__entry(
		__array(char, name, SITS_NAME_MAX)
		__array(char, device, SITS_NAME_MAX)
		__field(u64, id)
		__field(int, error)
	),
	TP_fast_assign(
		memcpy(__entry->name, region->name, SITS_NAME_MAX);
		strscpy(__entry->device, device, SITS_NAME_MAX);
		__entry->id = region->id;
		__entry->error = error;
	),
	TP_printk("id=%llu name=%s device=%s error=%d", __entry->id, __entry->name,
		  __entry->device, __entry->error)
);

DEFINE_EVENT(sits_import_event, sits_attach,
	TP_PROTO(const struct sits_region *region, const char *device, int error),
	TP_ARGS(region, device, error));
DEFINE_EVENT(sits_import_event, sits_detach,
	TP_PROTO(const struct sits_region *region, const char *device, int error),
	TP_ARGS(region, device, error));
DEFINE_EVENT(sits_import_event, sits_dma_map,
	TP_PROTO(const struct sits_region *region, const char *device, int error),
	TP_ARGS(region, device, error));
DEFINE_EVENT(sits_import_event, sits_dma_unmap,
	TP_PROTO(const struct sits_region *region, const char *device, int error),
	TP_ARGS(region, device, error));

#endif

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
