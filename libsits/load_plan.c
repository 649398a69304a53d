// SPDX-License-Identifier: MIT
/*
 * load_plan.c - which chunks of a sealed file have the bytes that somebody wants, and where they go in a region.
 *
 * A node that serves some of the experts of a model needs some ranges of each tensor. Chunks are what is verified, so whole
 * chunks are loaded; what touches is made one range, so that bytes that follow one another in the file do so in the region.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crypto/sealed.h"
#include "sits/sealed.h"

static int by_offset(const void *a, const void *b)
{
	const struct sits_load_range *x = a, *y = b;

	return (x->file_off > y->file_off) - (x->file_off < y->file_off);
}

static bool is_sane(const struct sits_sealed_info *info)
{
	uint32_t c = info->chunk_bytes;

	return c >= SITS_SEALED_CHUNK_MIN && c <= SITS_SEALED_CHUNK_MAX && !(c & (c - 1));
}

static bool in_file(const struct sits_sealed_info *info, const struct sits_load_range *r)
{
	return r->len_bytes && r->file_off <= info->plain_bytes && r->len_bytes <= info->plain_bytes - r->file_off;
}

/* To whole chunks, of which the last may be short. */
static void widen(const struct sits_sealed_info *info, struct sits_load_range *r)
{
	uint64_t mask = info->chunk_bytes - 1, end = r->file_off + r->len_bytes;

	/* Not beyond the end, so that rounding up does not come round either. */
	end = end > (info->plain_bytes & ~mask) ? info->plain_bytes : (end + mask) & ~mask;
	r->file_off &= ~mask;
	r->len_bytes = end - r->file_off;
}

/* Make sorted ranges that touch or overlap one. Return: how many are left. */
static uint32_t merge(struct sits_load_range *r, uint32_t nr)
{
	uint32_t i, n = 0;

	for (i = 1; i < nr; i++) {
		uint64_t end = r[n].file_off + r[n].len_bytes, its_end = r[i].file_off + r[i].len_bytes;

		if (r[i].file_off > end)
			r[++n] = r[i];
		else if (its_end > end)
			r[n].len_bytes = its_end - r[n].file_off;
	}
	return n + 1;
}

static uint64_t place(struct sits_load_range *r, uint32_t nr, bool in_place)
{
	uint64_t at = 0;
	uint32_t i;

	/* All but the last have whole chunks, so pages. */
	for (i = 0; i < nr; i++) {
		r[i].region_off = in_place ? r[i].file_off : at;
		at = r[i].region_off + r[i].len_bytes;
	}
	return at;
}

int sits_load_plan(const struct sits_sealed_info *info, const struct sits_load_range *want, uint32_t nr_want,
		   uint32_t flags, struct sits_load_range *out, uint64_t *region_bytes)
{
	uint64_t bytes;
	uint32_t i, nr;

	if (!info || !want || !out || !nr_want || nr_want > SITS_LOAD_RANGES_MAX || flags & ~SITS_PLAN_IN_PLACE || !is_sane(info))
		return -EINVAL;
	for (i = 0; i < nr_want; i++)
		if (!in_file(info, &want[i]))
			return -EINVAL;
	memmove(out, want, nr_want * sizeof(*out));
	for (i = 0; i < nr_want; i++)
		widen(info, &out[i]);
	qsort(out, nr_want, sizeof(*out), by_offset);
	nr = merge(out, nr_want);
	bytes = place(out, nr, flags & SITS_PLAN_IN_PLACE);
	if (region_bytes)
		*region_bytes = bytes;
	return (int)nr;
}

int sits_load_place(const struct sits_load_range *ranges, uint32_t nr_ranges, uint64_t file_off,
		    uint64_t *region_off, uint64_t *run_bytes)
{
	uint32_t low = 0, high = nr_ranges;

	/* The last range that begins at or before it. */
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (ranges[mid].file_off <= file_off)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low || file_off - ranges[low - 1].file_off >= ranges[low - 1].len_bytes)
		return -ENOENT;
	file_off -= ranges[low - 1].file_off;
	if (region_off)
		*region_off = ranges[low - 1].region_off + file_off;
	if (run_bytes)
		*run_bytes = ranges[low - 1].len_bytes - file_off;
	return 0;
}
