/* SPDX-License-Identifier: MIT */
/*
 * libsits/internal.h - what the files of libsits share and nobody else sees.
 *
 * A provider (kernel: /dev/sits, user: this process and unix sockets) is a table of functions
 * chosen once in sits_open(). The public functions check their arguments, keep the state that
 * does not depend on the provider, and call through the table; a provider embeds the structs
 * below at the head of its own.
 */
#ifndef SITS_INTERNAL_H
#define SITS_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sits/context.h"
#include "sits/queue.h"
#include "sits/region.h"

#pragma GCC visibility push(hidden)

#define SITS_HUGE_BYTES		(2u << 20)
#define SITS_NSEC_PER_SEC	1000000000ull
#define SITS_NSEC_PER_MSEC	1000000ull

#define SITS_MIN(a, b)		((a) < (b) ? (a) : (b))
#define SITS_MAX(a, b)		((a) > (b) ? (a) : (b))

/* ------------------------------------------------------------------ providers */

struct sits_key;
struct sits_load_opts;
struct sits_weights_job;

/**
 * struct sits_provider - one implementation behind the API.
 * @id: SITS_PROVIDER_*
 * @name: what sits_provider_name() answers
 * @probe: 0 where it can be used here; else -errno, and one ERR line where @forced says that
 *         the caller asked for this provider by name
 * @region_create: @opts checked; allocates the region and sets its @data, @fd and @mapped_bytes
 * @source_flags: how a sealed file is to be opened for a load: SITS_SOURCE_* of source.h
 * @weights_load: fill regions from files whose headers allow it, and that fit, as weights.h has it
 * @queue_create: @channel_open: arguments checked
 *
 * The table is constant; the objects it makes are owned by their creators.
 */
struct sits_provider {
	uint32_t id;
	const char *name;
	int (*probe)(struct sits_ctx *ctx, bool forced);
	int (*region_create)(struct sits_ctx *ctx, const struct sits_region_opts *opts,
			     struct sits_region **out);
	unsigned int (*source_flags)(const struct sits_load_opts *opts);
	int (*weights_load)(struct sits_weights_job *jobs, uint32_t nr_jobs, const struct sits_key *key,
			    const struct sits_load_opts *opts);
	int (*queue_create)(struct sits_ctx *ctx, const struct sits_queue_opts *opts,
			    struct sits_queue **out);
	int (*channel_open)(struct sits_ctx *ctx, const char *name, uint64_t arena_bytes,
			    struct sits_channel **out);
};

extern const struct sits_provider sits_provider_kernel, sits_provider_user;

/* Allocated by sits_open(), freed by sits_close(); constant in between. */
struct sits_ctx {
	const struct sits_provider *provider;
	int dev_fd;			/* kernel provider: /dev/sits; else -1 */
	uint64_t features;		/* kernel provider: SITS_FEATURE_* of linux/sits.h */
	char *run_dir;
	void (*log)(void *log_arg, int severity, const char *line);
	void *log_arg;
};

/**
 * sits_log() - Send one line to the context's callback; never called with secrets.
 * @ctx: borrowed; NULL drops the line
 * @severity: SITS_LOG_*
 * @fmt: printf format, no newline; of more than 1023 bytes the middle is left out
 *
 * Context: any thread, no locks taken; errno is preserved.
 */
void sits_log(const struct sits_ctx *ctx, int severity, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * sits_opts_copy() - Copy an option struct that starts with its size, as copy_struct_from_user().
 * @dst: @dst_size: this library's idea of it; the tail the caller lacks is zeroed
 * @src: the caller's; borrowed
 * @min_size: size of the struct in the first release
 *
 * Return: 0; -EINVAL where the size is below @min_size, or bytes beyond @dst_size are not zero.
 */
int sits_opts_copy(void *dst, size_t dst_size, const void *src, size_t min_size);

/** sits_now_ns() - CLOCK_MONOTONIC. */
uint64_t sits_now_ns(void);

/* -------------------------------------------------------------------- regions */

enum sits_region_state {
	SITS_REGION_OPEN,	/* plain memory of the caller's */
	SITS_REGION_LOADING,	/* between load_begin and load_finish or load_fail */
	SITS_REGION_FAILED,	/* a load failed: wiped, may be loaded again */
	SITS_REGION_SEALED,	/* for good */
};

/**
 * struct sits_region_ops - what a provider does to its regions. Called with region->lock held,
 * but for @destroy.
 * @destroy: wipe, unmap, close and free
 * @seal: make it read-only for everyone for good
 * @load_begin: make it ready to be filled, by this process or by the kernel
 * @load_finish: it has been filled: seal it, and make it readable; on failure load_fail follows
 * @load_fail: give up the load. Return: whether it was wiped and is unreadable now, rather than as it was before
 * @info: fill the effective facts; the caller has filled len, kind and digest
 */
struct sits_region_ops {
	void (*destroy)(struct sits_region *region);
	int (*seal)(struct sits_region *region);
	int (*load_begin)(struct sits_region *region);
	int (*load_finish)(struct sits_region *region);
	bool (*load_fail)(struct sits_region *region);
	int (*info)(const struct sits_region *region, struct sits_region_info *info);
};

/* Allocated by the provider's region_create, freed by its destroy. @lock guards @state, @digest and
 * @partial; all else is constant after creation. */
struct sits_region {
	struct sits_ctx *ctx;		/* borrowed */
	const struct sits_region_ops *ops;
	void *data;			/* where it is mapped, whatever the state */
	uint64_t len_bytes;
	uint64_t mapped_bytes;
	uint32_t kind;
	int fd;
	char name[64];
	pthread_mutex_t lock;
	enum sits_region_state state;
	bool partial;			/* ranges of the file with that digest were loaded */
	uint8_t digest[32];
};

/**
 * sits_region_load_begin() - Start a load into @region.
 * @data: out: the memory to write, mapped_bytes of it, aligned to pages (2 MiB where the
 *        kind asks for huge pages); valid until load_finish or load_fail, one of which must follow. Where the kernel is
 *        to fill it, nobody else can reach it
 *
 * From here on sits_region_data() returns NULL and sits_region_fd() -EBUSY.
 * Return: 0; -EBUSY while another load runs; -EPERM where it is sealed; -errno.
 */
int sits_region_load_begin(struct sits_region *region, void **data);

/**
 * sits_region_load_finish() - Everything has verified: seal it and hand it out.
 * @digest: SM3 of the sealed file, 32 bytes; copied
 * @partial: ranges of it were loaded, not all
 *
 * Return: 0; -errno, and then it has been wiped as load_fail does.
 */
int sits_region_load_finish(struct sits_region *region, const uint8_t *digest, bool partial);

/** sits_region_load_fail() - Give up a load: wipe. Unreadable until a load succeeds; as it was, where nothing had been
 * written yet. */
void sits_region_load_fail(struct sits_region *region);

/** sits_region_load_undo() - The same right after load_finish, before the caller has it: another region of the same load
 * could not be finished. */
void sits_region_load_undo(struct sits_region *region);

/* Bytes at the end of @region's mapping that lie beyond len_bytes are writable during a load. */
static inline uint64_t sits_region_mapped(const struct sits_region *region)
{
	return region->mapped_bytes;
}

/**
 * struct sits_map_facts - what /proc/self/smaps says about a range of addresses.
 * @found_bytes: how much of the range is mapped
 * @rss_bytes: resident
 * @huge_bytes: mapped by entries of 2 MiB or more
 * @page_bytes: the smallest page size in it
 * @locked: @nodump: @nofork: @writable: hold for all of it (writable: for any)
 */
struct sits_map_facts {
	uint64_t found_bytes;
	uint64_t rss_bytes;
	uint64_t huge_bytes;
	uint64_t page_bytes;
	bool locked;
	bool hugetlb;
	bool nodump;
	bool nofork;
	bool writable;
};

/** sits_map_facts() - Read them. Return: 0; -ENOENT where nothing is mapped; -errno. */
int sits_map_facts(const void *addr, uint64_t len_bytes, struct sits_map_facts *facts);

/** sits_map_reserve() - Addresses for @len_bytes, aligned to @align bytes, that nobody can use until something is mapped
 * over them with MAP_FIXED. Return: 0; -errno. */
int sits_map_reserve(uint64_t len_bytes, uint64_t align, void **out);

/** sits_check_available() - -ENOMEM and an ERR line where the machine has less than @len_bytes to give to region @name:
 * trying would end with the OOM killer. */
int sits_check_available(struct sits_ctx *ctx, const char *name, uint64_t len_bytes);

/** sits_memlock_allows() - Does RLIMIT_MEMLOCK let this process lock @len_bytes more? */
bool sits_memlock_allows(uint64_t len_bytes);

/**
 * sits_log_nomem() - The ERR line that says what there is no memory for, and the limit on address space if there is one.
 * @about: what it is about: a file, a key
 * @what: the memory is for; a noun
 * @len_bytes: 0 where that is not known
 * Return: -ENOMEM.
 */
int sits_log_nomem(struct sits_ctx *ctx, const char *about, const char *what, uint64_t len_bytes);

/** sits_log_memlock() - The line of @severity that says it does not: the need, the limit, how to raise it. */
void sits_log_memlock(struct sits_ctx *ctx, int severity, uint64_t len_bytes, const char *what);

/** sits_lock_memory() - mlock(2) with words: -EPERM and one line of @severity giving RLIMIT_MEMLOCK,
 * the need and how to raise it, @what naming the memory; other -errno likewise. */
int sits_lock_memory(struct sits_ctx *ctx, int severity, const void *addr, uint64_t len_bytes,
		     const char *what);

/* ------------------------------------------------------- queues and channels */

/* The head of a provider's queue; the functions are those of sits/queue.h. */
struct sits_queue {
	const struct sits_queue_ops *ops;
	struct sits_ctx *ctx;	/* borrowed */
};

struct sits_queue_ops {
	void (*destroy)(struct sits_queue *queue);
	void (*close_intake)(struct sits_queue *queue);
	int (*fetch)(struct sits_queue *queue, struct sits_queue_event *ev, int timeout_ms);
	void (*wake)(struct sits_queue *queue);
	int (*commit)(struct sits_queue *queue, uint64_t req, const void *data, size_t len,
		      int status, uint32_t flags);
	void (*get_stats)(struct sits_queue *queue, struct sits_queue_stats *stats);
};

/* The head of a provider's channel. */
struct sits_channel {
	const struct sits_channel_ops *ops;
	struct sits_ctx *ctx;	/* borrowed */
};

struct sits_channel_ops {
	void (*close)(struct sits_channel *ch);
	int (*submit)(struct sits_channel *ch, const void *data, size_t len, uint64_t timeout_ns,
		      uint64_t *req);
	int (*recv)(struct sits_channel *ch, struct sits_chunk *chunk, int timeout_ms);
	int (*cancel)(struct sits_channel *ch, uint64_t req);
	int (*fd)(struct sits_channel *ch);
};

#pragma GCC visibility pop

#endif
