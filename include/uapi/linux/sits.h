/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * linux/sits.h - the interface of /dev/sits.
 *
 * Every object is a file descriptor: a region is a dma-buf; a DMA mapping, a queue and a channel
 * are files of the module. Objects live until the last descriptor and the last mapping is gone.
 *
 * Each struct of an ioctl starts with its size and flags and grows at its end. The kernel goes by
 * the size field, never by the size bits of the ioctl's number. Shorter than the first version of
 * the struct: -EINVAL. Longer than what the kernel knows: -E2BIG, unless all that it does not know
 * is zero. Unknown flags and non-zero reserved fields: -EINVAL. An unknown ioctl: -ENOTTY.
 * Fields marked out are ignored on the way in. Probe the feature bits of SITS_IOC_GET_INFO,
 * never versions.
 */
#ifndef _UAPI_LINUX_SITS_H
#define _UAPI_LINUX_SITS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SITS_ABI_VERSION	1
#define SITS_DEV_PATH		"/dev/sits"

#define SITS_NAME_MAX		64	/* names of regions and devices, with NUL */
#define SITS_QNAME_MAX		32	/* with NUL; [A-Za-z0-9_.-], not starting with '.' */
#define SITS_DIGEST_LEN		32
#define SITS_KEYDESC_MAX	128	/* key description, with NUL */
#define SITS_REQUEST_BYTES_MAX	(4u << 20)

/* ------------------------------------------------------------------ /dev/sits */

#define SITS_FEATURE_REGION	(1ull << 0)
#define SITS_FEATURE_IMPORT	(1ull << 1)
#define SITS_FEATURE_DMA_MAP	(1ull << 2)
#define SITS_FEATURE_WEIGHTS	(1ull << 3)
#define SITS_FEATURE_QUEUE	(1ull << 4)
#define SITS_FEATURE_URING_CMD	(1ull << 5)
#define SITS_FEATURE_HUGE_PMD	(1ull << 6)	/* huge regions map as PMDs on this kernel */
#define SITS_FEATURE_LOAD_RANGES	(1ull << 7)	/* ranges of struct sits_weights_load */

struct sits_get_info {
	__u32 size;
	__u32 flags;			/* in: 0 */
	__u32 abi_version;		/* all below: out */
	__u32 reserved;
	__u64 features;			/* SITS_FEATURE_* */
	__u64 region_limit_bytes;	/* of all regions together; 0: none */
	__u64 region_used_bytes;
	__u32 nr_regions;
	__u32 nr_queues;
	__u32 nr_channels;
	__u32 tee;			/* 1: memory of this machine is encrypted by the platform */
};

#define SITS_KIND_PINNED	1	/* any page size */
#define SITS_KIND_HUGE		2	/* pages of 2 MiB where there are some */
#define SITS_KIND_PROTECTED	3	/* the CPU reads only; see sits(4) */
#define SITS_KIND_IMPORTED	4	/* REGION_INFO only */

/* HUGE, PROTECTED: fail rather than fall back to small pages */
#define SITS_CREATE_REQUIRE_HUGE	(1u << 0)
#define SITS_CREATE_DEVICE_ONLY		(1u << 1)	/* PROTECTED: no CPU mapping at all */

struct sits_region_create {
	__u32 size;
	__u32 flags;			/* SITS_CREATE_* */
	__u64 len_bytes;		/* > 0 */
	__u32 kind;			/* SITS_KIND_PINNED, _HUGE or _PROTECTED */
	__s32 node;			/* preferred; -1: the caller's policy */
	__u32 fd_flags;			/* O_CLOEXEC or 0 */
	__s32 fd;			/* out: dma-buf */
	__u8 name[SITS_NAME_MAX];	/* NUL-terminated, no control characters; may be empty */
};

#define SITS_REGION_F_SEALED		(1u << 0)
#define SITS_REGION_F_PINNABLE		(1u << 1)	/* GUP works on its mapping */
#define SITS_REGION_F_DEVICE_ONLY	(1u << 2)
#define SITS_REGION_F_ENCRYPTED		(1u << 3)	/* by the platform */
#define SITS_REGION_F_LOADED		(1u << 4)	/* digest is valid */
#define SITS_REGION_F_LOADING		(1u << 5)	/* or a load failed: unreadable */
#define SITS_REGION_F_REVOKED		(1u << 6)
#define SITS_REGION_F_PARTIAL		(1u << 7)	/* loaded, but ranges of the file only */

struct sits_region_facts {
	__u32 size;
	__u32 flags;			/* in: 0 */
	__s32 fd;			/* in: a region */
	__u32 kind;			/* all below: out */
	__u64 len_bytes;		/* as asked for */
	__u64 mapped_bytes;		/* rounded up to pages: the size of the dma-buf */
	__u64 huge_bytes;		/* in pages of 2 MiB */
	__u32 page_bytes;		/* smallest page that backs it */
	__s32 node;			/* -1: mixed or unknown */
	__u32 state;			/* SITS_REGION_F_* */
	__u32 nr_importers;		/* devices attached now */
	__u64 refused_imports;		/* since creation */
	__u8 digest[SITS_DIGEST_LEN];
	__u8 name[SITS_NAME_MAX];
};

#define SITS_IMPORT_DMABUF	1
#define SITS_IMPORT_USER	2

struct sits_region_import {
	__u32 size;
	__u32 flags;			/* 0 */
	__u32 from;			/* SITS_IMPORT_* */
	__s32 src_fd;			/* DMABUF: what to import; else -1 */
	__u64 addr;			/* USER: page-aligned; else 0 */
	__u64 len_bytes;		/* USER: multiple of the page size, > 0; else 0 */
	__u32 fd_flags;			/* O_CLOEXEC or 0 */
	__s32 fd;			/* out: dma-buf */
	__u8 name[SITS_NAME_MAX];
};

/* Also zap CPU mappings and refuse new mappings and attachments, for good. */
#define SITS_SEAL_REVOKE	(1u << 0)

struct sits_region_seal {
	__u32 size;
	__u32 flags;			/* SITS_SEAL_* */
	__s32 fd;
	__u32 reserved;
};

/*
 * Who may import a PROTECTED region: the importing device's name as in /sys/bus/BUS/devices (for
 * PCI "0000:00:05.0"). "*" allows all. Without any entry nobody may.
 */
struct sits_device_allow {
	__u32 size;
	__u32 flags;			/* 0 */
	__s32 fd;
	__u32 reserved;
	__u8 device[SITS_NAME_MAX];	/* NUL-terminated, not empty */
};

struct sits_dma_seg {
	__u64 bus_addr;
	__u64 len_bytes;
};

#define SITS_DMA_TO_DEVICE	(1u << 0)
#define SITS_DMA_FROM_DEVICE	(1u << 1)	/* refused for sealed regions */

/* The mapping lives until DMA_UNMAP, or until fd_map is closed by all who hold it. */
struct sits_dma_map {
	__u32 size;
	__u32 flags;			/* SITS_DMA_*, at least one */
	__s32 fd;			/* region */
	__s32 fd_map;			/* out: the mapping's lifetime; close-on-exec */
	__u8 device[SITS_NAME_MAX];	/* PCI address, "0000:00:05.0" */
	__u64 segs;			/* user pointer to struct sits_dma_seg[nr_segs]; written */
	__u32 nr_segs;			/* in: room; out: how many there are (-ENOSPC: no room) */
	__u32 reserved;
};

struct sits_dma_unmap {
	__u32 size;
	__u32 flags;			/* 0 */
	__s32 fd_map;
	__u32 reserved;
};

#define SITS_LOAD_F_ALLOW_ECB	(1u << 0)
#define SITS_LOAD_F_BUFFERED	(1u << 1)

#define SITS_LOAD_RANGES_MAX	65536u

/*
 * A part of a file, of whole chunks, and where it goes. Offsets of both kinds rise from one range
 * to the next, and no two overlap.
 */
struct sits_weights_range {
	__u64 file_off;			/* in the plaintext; a multiple of the file's chunk size */
	__u64 len_bytes;		/* > 0; likewise, or up to the end of the plaintext */
	__u64 region_off;		/* a multiple of the page size */
};

/*
 * Loads a sealed file into a region: unreadable until the last tag has verified, then sealed. As a
 * uring_cmd on /dev/sits the 16 bytes of the command are { __u64 addr of this struct; __u64 0 },
 * and the struct must stay until completion.
 *
 * With ranges only their chunks are read and verified, and all else in the region is zero; digest
 * is that of the whole file, whose header and tag table are checked as ever.
 */
struct sits_weights_load {
	__u32 size;
	__u32 flags;			/* SITS_LOAD_F_* */
	__s32 file_fd;			/* opened for reading */
	__s32 region_fd;
	__u64 min_version;
	__u32 nr_inflight;		/* reads in flight; 0: default */
	__u32 cancel;			/* read during the load: not 0 ends it with -ECANCELED */
	__u64 progress_bytes;		/* out, written now and then during the load */
	__u64 plain_bytes;		/* out */
	__u64 model_version;		/* out */
	__u64 bad_chunk;		/* out, with -EBADMSG: the chunk, or one of SITS_BAD_* */
	__u64 read_ns;			/* out: waited for reads */
	__u64 cipher_ns;		/* out: summed over cores */
	__u64 total_ns;			/* out */
	__u8 digest[SITS_DIGEST_LEN];	/* out */
	/* description of a "logon" or "user" key in the caller's keyrings */
	__u8 key[SITS_KEYDESC_MAX];
	/* Since SITS_FEATURE_LOAD_RANGES. */
	__u64 ranges;			/* user pointer to struct sits_weights_range[nr_ranges] */
	__u32 nr_ranges;		/* 0: all of the file, in its place */
	__u32 reserved;
};

#define SITS_BAD_HEADER		(~0ull)
#define SITS_BAD_TAG_TABLE	(~0ull - 1)
#define SITS_BAD_LENGTH		(~0ull - 2)

/* --------------------------------------------------------------------- queues */

struct sits_queue_create {
	__u32 size;
	__u32 flags;			/* 0 */
	__u32 depth;			/* requests waiting or running, all clients */
	__u32 per_client;
	__u32 max_clients;
	__u32 mode;			/* 0777: who may open a channel (uid, gid of the creator) */
	__u32 chunk_backlog;		/* bytes of uncollected answer per request */
	__u32 fd_flags;			/* O_CLOEXEC or 0 */
	__s32 fd;			/* out */
	__u32 reserved;
	__u8 name[SITS_QNAME_MAX];
};

struct sits_channel_create {
	__u32 size;
	__u32 flags;			/* 0 */
	__u64 arena_bytes;		/* whole pages, at most 64 MiB; mmap at offset 0 */
	__u32 fd_flags;			/* O_CLOEXEC or 0 */
	__s32 fd;			/* out */
	__u8 queue[SITS_QNAME_MAX];
};

/*
 * A queue lives until its descriptor is closed by all who hold it, or until the process that
 * fetches from it ends, execs or closes it. Then every request left is answered with -ESHUTDOWN or
 * -EPIPE. Both kinds of fd poll readable when a non-blocking FETCH or RECV would bring something.
 *
 * Queue fd, daemon side. One FETCH brings one event; of requests, round robin between clients.
 */
#define SITS_EV_REQUEST		1
/* client cancelled, timed out or died: still commit the end */
#define SITS_EV_CANCEL		2
#define SITS_EV_SHUTDOWN	3	/* FETCH aborted because the queue closes */

/* Written at the start of the FETCH buffer; a request's bytes follow. */
struct sits_event {
	__u32 kind;			/* SITS_EV_* */
	__u32 len;			/* bytes that follow */
	__u64 req;
	__u64 client;
	__u64 deadline_ns;		/* CLOCK_MONOTONIC, 0: none */
	__u32 uid;
	__u32 pid;
};

#define SITS_FETCH_NONBLOCK	(1u << 0)	/* ioctl only: -EAGAIN where there is none */

/* uring_cmd payload; result: bytes written, or -EMSGSIZE (needs more: the event stays). */
struct sits_fetch {
	__u64 addr;			/* user buffer */
	__u32 len;
	__u32 flags;			/* SITS_FETCH_* */
};

#define SITS_COMMIT_F_LAST	(1u << 0)

struct sits_commit_desc {
	__u32 size;
	__u32 flags;			/* SITS_COMMIT_F_* */
	__u64 req;
	__u64 addr;			/* chunk bytes */
	__u32 len;
	__s32 status;			/* with LAST: 0 or -errno for the client */
};

/*
 * uring_cmd payload of COMMIT: where the descriptor is. Bytes and descriptor are copied before the
 * command completes; it never waits. Result: 0; -ENOENT: no such request, or it has ended; -EPIPE:
 * its client is gone (with LAST it has ended); -ENOBUFS: more than chunk_backlog uncollected; an
 * end without bytes is always taken.
 */
struct sits_commit {
	__u64 addr;			/* struct sits_commit_desc */
	__u64 reserved;
};

struct sits_queue_facts {
	__u32 size;
	__u32 flags;			/* in: 0 */
	__u32 depth;			/* all below: out; these as asked for */
	__u32 per_client;
	__u32 max_clients;
	__u32 mode;
	__u32 chunk_backlog;
	__u32 nr_clients;		/* now */
	__u32 nr_waiting;		/* requests not fetched yet */
	__u32 nr_running;		/* fetched, not ended */
	__u64 requests;			/* since creation: accepted */
	__u64 answered;			/* ended by a COMMIT */
	__u64 cancelled;		/* ended by the client, its death or a deadline */
	__u64 refused_busy;
	__u64 bytes_in;
	__u64 bytes_out;
	__u8 name[SITS_QNAME_MAX];
};

/* Channel fd, client side. Offsets are into the arena. */

/*
 * uring_cmd payload. The bytes are copied before the command completes, the arena's are the
 * client's again then. Result: 0, and the request's number (not 0, unique on this channel) is in
 * the 8 bytes at arena offset off_req, which must be aligned; or the request was refused and no
 * chunk will come: -EBUSY: the queue's or the client's bound; -ENOBUFS: too many ends not received
 * (as many as per_client); -ESHUTDOWN: intake closed; -EPIPE: the daemon is gone; -EMSGSIZE: over
 * SITS_REQUEST_BYTES_MAX; -EINVAL; -ENOMEM.
 */
struct sits_submit {
	__u32 off;			/* the request's bytes */
	__u32 len;
	__u32 timeout_ms;		/* 0: none */
	__u32 off_req;
};

/* Written at the start of the RECV room; the chunk's bytes follow. */
struct sits_chunk_hdr {
	__u64 req;
	__u32 len;
	__s32 status;			/* with LAST */
	__u32 flags;			/* SITS_CHUNK_F_* */
	__u32 reserved;
};

#define SITS_CHUNK_F_LAST	(1u << 0)
/* a piece: this request's next one goes on with the same chunk */
#define SITS_CHUNK_F_MORE	(1u << 1)

#define SITS_RECV_NONBLOCK	(1u << 0)	/* ioctl only */

/*
 * uring_cmd payload; result: bytes written (header included). Any request's next chunk; a chunk
 * larger than the room is split: all but the last piece say MORE. Of several that are parked the
 * oldest is filled first, but older kernels may complete a later one before: look at the rooms in
 * the order of the commands. Parks until there is one; -EPIPE once the daemon is gone and all ends
 * were delivered.
 */
struct sits_recv {
	__u32 off;
	__u32 len;			/* at least sizeof(struct sits_chunk_hdr) + 1 */
	__u32 flags;			/* SITS_RECV_* */
	__u32 reserved;
};

/* Result: 0: its end will come (-ECANCELED, unless it ended meanwhile); -ENOENT. */
struct sits_cancel {
	__u64 req;
	__u64 reserved;
};

#define SITS_IOC		0xBC

#define SITS_IOC_GET_INFO	_IOWR(SITS_IOC, 0x40, struct sits_get_info)
#define SITS_IOC_REGION_CREATE	_IOWR(SITS_IOC, 0x41, struct sits_region_create)
#define SITS_IOC_REGION_INFO	_IOWR(SITS_IOC, 0x42, struct sits_region_facts)
#define SITS_IOC_REGION_IMPORT	_IOWR(SITS_IOC, 0x43, struct sits_region_import)
#define SITS_IOC_REGION_SEAL	_IOWR(SITS_IOC, 0x44, struct sits_region_seal)
#define SITS_IOC_DEVICE_ALLOW	_IOWR(SITS_IOC, 0x45, struct sits_device_allow)
#define SITS_IOC_DMA_MAP	_IOWR(SITS_IOC, 0x46, struct sits_dma_map)
#define SITS_IOC_DMA_UNMAP	_IOWR(SITS_IOC, 0x47, struct sits_dma_unmap)
#define SITS_IOC_WEIGHTS_LOAD	_IOWR(SITS_IOC, 0x48, struct sits_weights_load)
#define SITS_IOC_QUEUE_CREATE	_IOWR(SITS_IOC, 0x49, struct sits_queue_create)
#define SITS_IOC_CHANNEL_OPEN	_IOWR(SITS_IOC, 0x4a, struct sits_channel_create)
/* On a queue fd; ioctl only. */
#define SITS_IOC_QUEUE_INFO	_IOWR(SITS_IOC, 0x50, struct sits_queue_facts)
/* On a queue fd; also as uring_cmd with the same number as cmd_op and the struct as payload. */
#define SITS_IOC_FETCH		_IOWR(SITS_IOC, 0x60, struct sits_fetch)
#define SITS_IOC_COMMIT		_IOWR(SITS_IOC, 0x61, struct sits_commit)
#define SITS_IOC_CLOSE_INTAKE	_IO(SITS_IOC, 0x62)
/* On a channel fd; likewise. */
#define SITS_IOC_SUBMIT		_IOWR(SITS_IOC, 0x70, struct sits_submit)
#define SITS_IOC_RECV		_IOWR(SITS_IOC, 0x71, struct sits_recv)
#define SITS_IOC_CANCEL		_IOWR(SITS_IOC, 0x72, struct sits_cancel)

#endif
