/* SPDX-License-Identifier: GPL-2.0 */
/*
 * trace.h - tracepoints: one for each change of state of a region, a load, a queue or a request.
 * Names of regions are arrays here and not strings, whose macros differ between kernels.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sits

#if !defined(SITS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SITS_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>

#include "kmod/queue.h"
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

TRACE_EVENT(sits_weights_load,
	TP_PROTO(const struct sits_region *region, int error, const struct sits_weights_load *arg),
	TP_ARGS(region, error, arg),
	TP_STRUCT__entry(
		__array(char, name, SITS_NAME_MAX)
		__field(u64, id)
		__field(int, error)
		__field(u64, plain_bytes)
		__field(u64, bad_chunk)
		__field(u64, read_ns)
		__field(u64, cipher_ns)
		__field(u64, total_ns)
	),
	TP_fast_assign(
		memcpy(__entry->name, region->name, SITS_NAME_MAX);
		__entry->id = region->id;
		__entry->error = error;
		__entry->plain_bytes = arg->plain_bytes;
		__entry->bad_chunk = arg->bad_chunk;
		__entry->read_ns = arg->read_ns;
		__entry->cipher_ns = arg->cipher_ns;
		__entry->total_ns = arg->total_ns;
	),
	TP_printk("id=%llu name=%s error=%d plain=%llu bad_chunk=%lld read_ns=%llu cipher_ns=%llu total_ns=%llu",
		  __entry->id, __entry->name, __entry->error, __entry->plain_bytes,
		  (s64)__entry->bad_chunk, __entry->read_ns, __entry->cipher_ns, __entry->total_ns)
);

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

/* @client, @value: what the event says; 0 where it says nothing */
DECLARE_EVENT_CLASS(sits_queue_event,
	TP_PROTO(const struct sits_queue *q, u64 client, s64 value),
	TP_ARGS(q, client, value),
	TP_STRUCT__entry(
		__array(char, queue, SITS_QNAME_MAX)
		__field(u64, client)
		__field(s64, value)
	),
	TP_fast_assign(
		memcpy(__entry->queue, q->arg.name, SITS_QNAME_MAX);
		__entry->client = client;
		__entry->value = value;
	),
	TP_printk("queue=%s client=%llu value=%lld", __entry->queue, __entry->client,
		  __entry->value)
);

DEFINE_EVENT(sits_queue_event, sits_queue_create,
	TP_PROTO(const struct sits_queue *q, u64 client, s64 value), TP_ARGS(q, client, value));
/* value: status of the requests that were left */
DEFINE_EVENT(sits_queue_event, sits_queue_end,
	TP_PROTO(const struct sits_queue *q, u64 client, s64 value), TP_ARGS(q, client, value));
/* value: process of the client */
DEFINE_EVENT(sits_queue_event, sits_channel_open,
	TP_PROTO(const struct sits_queue *q, u64 client, s64 value), TP_ARGS(q, client, value));
/* value: requests that were left */
DEFINE_EVENT(sits_queue_event, sits_channel_end,
	TP_PROTO(const struct sits_queue *q, u64 client, s64 value), TP_ARGS(q, client, value));

DECLARE_EVENT_CLASS(sits_request_event,
	TP_PROTO(const struct sits_queue *q, const struct sits_request *r, int status),
	TP_ARGS(q, r, status),
	TP_STRUCT__entry(
		__array(char, queue, SITS_QNAME_MAX)
		__field(u64, client)
		__field(u64, id)
		__field(u32, len)
		__field(int, status)
	),
	TP_fast_assign(
		memcpy(__entry->queue, q->arg.name, SITS_QNAME_MAX);
		__entry->client = r->client_id;
		__entry->id = r->id;
		__entry->len = r->len;
		__entry->status = status;
	),
	TP_printk("queue=%s client=%llu req=%llu len=%u status=%d", __entry->queue,
		  __entry->client, __entry->id, __entry->len, __entry->status)
);

DEFINE_EVENT(sits_request_event, sits_request_submit,
	TP_PROTO(const struct sits_queue *q, const struct sits_request *r, int status),
	TP_ARGS(q, r, status));
DEFINE_EVENT(sits_request_event, sits_request_fetch,
	TP_PROTO(const struct sits_queue *q, const struct sits_request *r, int status),
	TP_ARGS(q, r, status));
DEFINE_EVENT(sits_request_event, sits_request_cancel,
	TP_PROTO(const struct sits_queue *q, const struct sits_request *r, int status),
	TP_ARGS(q, r, status));
DEFINE_EVENT(sits_request_event, sits_request_end,
	TP_PROTO(const struct sits_queue *q, const struct sits_request *r, int status),
	TP_ARGS(q, r, status));

TRACE_EVENT(sits_commit,
	TP_PROTO(const struct sits_queue *q, const struct sits_request *r, u32 len, int status,
		 bool last),
	TP_ARGS(q, r, len, status, last),
	TP_STRUCT__entry(
		__array(char, queue, SITS_QNAME_MAX)
		__field(u64, client)
		__field(u64, id)
		__field(u32, len)
		__field(int, status)
		__field(bool, last)
	),
	TP_fast_assign(
		memcpy(__entry->queue, q->arg.name, SITS_QNAME_MAX);
		__entry->client = r->client_id;
		__entry->id = r->id;
		__entry->len = len;
		__entry->status = status;
		__entry->last = last;
	),
	TP_printk("queue=%s client=%llu req=%llu len=%u status=%d last=%d", __entry->queue,
		  __entry->client, __entry->id, __entry->len, __entry->status, __entry->last)
);

#endif

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
