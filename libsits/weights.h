/* SPDX-License-Identifier: MIT */
/*
 * weights.h - the pieces of reading a sealed file that its files share: weights.c, weights_user.c, weights_kernel.c.
 */
#ifndef SITS_LIBSITS_WEIGHTS_H
#define SITS_LIBSITS_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "libsits/source.h"
#include "sits/sealed.h"

struct sits_region;

/**
 * struct sits_weights_job - one file of a load. On the heap of sits_weights_load_many() while it runs.
 * @src: opened, authentic where this process has the key
 * @region: borrowed
 * @ranges: checked; never 0 of them but for a file without contents
 * @partial: the caller gave ranges
 * @total_bytes: to be read
 * @mem: the region's memory, while it is loaded
 * @loading: sits_region_load_begin() took the region
 */
struct sits_weights_job {
	struct sits_source src;
	struct sits_region *region;
	const struct sits_load_range *ranges;
	uint32_t nr_ranges;
	bool partial;
	struct sits_load_range whole;	/* what @ranges is where there are none */
	uint64_t total_bytes;
	uint8_t *mem;
	bool loading;
};

/** sits_load_ranges_check() - Are they of whole chunks of the file, rising, apart? @placed: region_off counts, too.
 * Return: 0; -EINVAL, logged. */
int sits_load_ranges_check(const struct sits_source *src, const struct sits_load_range *ranges, uint32_t nr_ranges,
			   bool placed);

/** sits_load_range_data() - Bytes of ciphertext of a range: suite 240 has padding behind the last one. */
uint64_t sits_load_range_data(const struct sits_source *src, const struct sits_load_range *range);

/** sits_user_source_flags() - SITS_SOURCE_* for opening chunks in this process. */
unsigned int sits_user_source_flags(const struct sits_load_opts *o);

/** sits_kernel_source_flags() - The same where the kernel does. */
unsigned int sits_kernel_source_flags(const struct sits_load_opts *o);

/**
 * sits_source_verify_chunks() - Read the chunks of @ranges, and see that each verifies, on all cores.
 * Return: 0; as sits_weights_load(), logged.
 */
int sits_source_verify_chunks(struct sits_source *src, const struct sits_load_range *ranges, uint32_t nr_ranges,
			      const struct sits_load_opts *opts);

/** sits_source_log_chunk() - The line that says that the tag of chunk @chunk is wrong. */
void sits_source_log_chunk(const struct sits_source *src, uint64_t chunk);

/**
 * sits_user_weights_load() - sits_kernel_weights_load() - Fill regions; the headers allow it, they fit, and are being loaded.
 * Return: as sits_weights_load(), logged.
 */
int sits_user_weights_load(struct sits_weights_job *jobs, uint32_t nr_jobs, const struct sits_key *key,
			   const struct sits_load_opts *o);
int sits_kernel_weights_load(struct sits_weights_job *jobs, uint32_t nr_jobs, const struct sits_key *key,
			     const struct sits_load_opts *o);

#endif
