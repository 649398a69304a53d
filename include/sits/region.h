/* SPDX-License-Identifier: MIT */
/*
 * sits/region.h - regions: memory with stated properties, each a file descriptor.
 *
 * A region's memory is excluded from core dumps and from forked children, locked
 * against swap, and wiped when it is destroyed. sits_region_info() reports what
 * holds *effectively*, never what was wished for.
 */
#ifndef SITS_REGION_H
#define SITS_REGION_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sits_ctx;
struct sits_region;

#define SITS_REGION_PINNED	1	/* any page size */
#define SITS_REGION_HUGE	2	/* 2 MiB pages where granted */
#define SITS_REGION_PROTECTED	3	/* read-only for the owner, wiped, not dumped */

#define SITS_REGION_REQUIRE_HUGE	(1u << 0)	/* fail rather than fall back */
/* Go on, with a warning, where mlock is refused; the kernel provider has no other memory. */
#define SITS_REGION_ALLOW_UNLOCKED	(1u << 1)

/**
 * struct sits_region_opts - what to create.
 * @size: sizeof(struct sits_region_opts)
 * @flags: SITS_REGION_REQUIRE_HUGE, SITS_REGION_ALLOW_UNLOCKED
 * @kind: SITS_REGION_PINNED, _HUGE or _PROTECTED
 * @node: NUMA node, or -1 for the caller's policy
 * @len_bytes: length, > 0; rounded up to whole pages inside
 * @name: shown in /proc and sits stat; at most 63 bytes; borrowed; may be NULL
 */
struct sits_region_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t kind;
	int32_t node;
	uint64_t len_bytes;
	const char *name;
};

/**
 * struct sits_region_info - what a region effectively is.
 * @len_bytes: as asked at creation
 * @mapped_bytes: rounded up to pages
 * @kind: SITS_REGION_*
 * @page_bytes: the page size that backs all of it (the smallest, if mixed)
 * @huge_bytes: how much of it is backed by pages of 2 MiB or more
 * @node: NUMA node, -1 if unknown or mixed
 * @locked: 1 if all of it is locked in memory
 * @sealed: 1 if nobody can write it any more
 * @nodump: 1 if excluded from core dumps
 * @nofork: 1 if a forked child does not inherit it
 * @partial: 1 if only ranges of that file were loaded
 * @digest: SM3 digest of the sealed file it was loaded from; zeros if none
 */
struct sits_region_info {
	uint64_t len_bytes;
	uint64_t mapped_bytes;
	uint64_t huge_bytes;
	uint64_t page_bytes;
	uint32_t kind;
	int32_t node;
	uint8_t locked;
	uint8_t sealed;
	uint8_t nodump;
	uint8_t nofork;
	uint8_t partial;
	uint8_t reserved[3];
	uint8_t digest[32];
};

/**
 * sits_region_create() - Make a region of zeroed memory.
 * @ctx: borrowed until the region is destroyed
 * @opts: borrowed until return
 * @out: the region, owned by the caller, freed with sits_region_destroy()
 *
 * Return: 0; -EINVAL for an unknown kind, flag or a zero length; -ENOMEM;
 * -EPERM where RLIMIT_MEMLOCK does not allow the length (the log line gives the
 * limit and the need); -EOPNOTSUPP where REQUIRE_HUGE can't be met; kernel provider: -EACCES
 * where this process may not make regions, -EDQUOT at the module's limit.
 */
int sits_region_create(struct sits_ctx *ctx, const struct sits_region_opts *opts,
		       struct sits_region **out);

/** sits_region_destroy() - Wipe and free; NULL is allowed. @region: taken.
 * Who still has the descriptor reads zeros; kernel provider: gets SIGBUS, and it is wiped once no device has it. */
void sits_region_destroy(struct sits_region *region);

/** sits_region_data() - The mapping: 64-byte aligned, at least len_bytes long, valid until
 * destroy, also across sits_region_seal(). Writable before it, read-only after; of PROTECTED, read-only
 * always (it is filled by a load). NULL while a load into
 * it is unfinished or has failed. */
void *sits_region_data(const struct sits_region *region);

/** sits_region_len() - len_bytes as asked for at creation. */
uint64_t sits_region_len(const struct sits_region *region);

/** sits_region_fd() - The file descriptor behind it; borrowed, do not close. Whoever gets it can read
 * and map it read-only, never write it (kernel provider, PINNED and HUGE: once it is sealed). -EBUSY while a load into it is
 * unfinished or has failed. */
int sits_region_fd(const struct sits_region *region);

/** sits_region_seal() - Make it immutable for everyone, for good. Return: 0; -EBUSY while a load runs,
 * or (kernel provider) somebody else can write to it: another mapping, a device; -ENODATA where the last load into it failed. */
int sits_region_seal(struct sits_region *region);

/** sits_region_info() - Fill @info with what effectively holds. Return: 0 or -errno. */
int sits_region_info(const struct sits_region *region, struct sits_region_info *info);

#ifdef __cplusplus
}
#endif
#endif
