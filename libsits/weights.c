// SPDX-License-Identifier: MIT
/*
 * weights.c - reading sealed files: load, verify, inspect. What is the same whoever fills the region.
 *
 * Opening the file and its header is source.c's; opening its chunks, into memory of this process or to nowhere,
 * weights_user.c's; having the kernel do it, weights_kernel.c's.
 */
#include "libsits/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "libsits/internal.h"
#include "libsits/key.h"
#include "libsits/source.h"

/* As the options were first; ranges came later. */
#define OPTS_SIZE_MIN offsetof(struct sits_load_opts, ranges)

int sits_source_allowed(const struct sits_source *src, const struct sits_load_opts *opts)
{
	const struct sits_sealed_hdr *h = &src->hdr;

	if (h->suite == SITS_SEALED_SUITE_ECB && !(opts->flags & SITS_LOAD_ALLOW_ECB)) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: header: suite %u is raw SM4-ECB, where changes go unnoticed: it is read only where that is allowed explicitly",
			 src->path, h->suite);
		return -EPROTONOSUPPORT;
	}
	if (h->model_version < opts->min_version) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: header: model version %" PRIu64 " is older than %" PRIu64 ", the least that is accepted: an old file was put in place of a newer one?",
			 src->path, h->model_version, opts->min_version);
		return -EKEYEXPIRED;
	}
	return 0;
}

int sits_load_opts_get(struct sits_ctx *ctx, const struct sits_load_opts *opts, struct sits_load_opts *o)
{
	*o = (struct sits_load_opts){ .size = sizeof(*o) };
	if (!opts)
		return 0;
	if (sits_opts_copy(o, sizeof(*o), opts, OPTS_SIZE_MIN) || o->reserved || o->reserved2 ||
	    o->flags & ~(SITS_LOAD_ALLOW_ECB | SITS_LOAD_BUFFERED)) {
		sits_log(ctx, SITS_LOG_ERR, "load: unknown size, flags or reserved fields in the options");
		return -EINVAL;
	}
	return 0;
}

/* ------------------------------------------------------------------------- ranges */

uint64_t sits_load_range_data(const struct sits_source *src, const struct sits_load_range *range)
{
	uint64_t end = range->file_off + range->len_bytes;

	return (end == src->hdr.plain_bytes ? src->hdr.data_bytes : end) - range->file_off;
}

/* What is wrong with a range that follows @before (NULL: the first one), or NULL. */
static const char *range_fault(const struct sits_sealed_hdr *h, const struct sits_load_range *r,
			       const struct sits_load_range *before, bool placed)
{
	uint64_t mask = h->chunk_bytes - 1;

	if (!r->len_bytes)
		return "is empty";
	if (r->file_off > h->plain_bytes || r->len_bytes > h->plain_bytes - r->file_off)
		return "goes beyond the end of the plaintext";
	if (r->file_off & mask || (r->len_bytes & mask && r->file_off + r->len_bytes != h->plain_bytes))
		return "is not of whole chunks";
	if (before && r->file_off < before->file_off + before->len_bytes)
		return "is not behind the one before it";
	if (!placed)
		return NULL;
	if (r->region_off % SITS_SEALED_ALIGN)
		return "does not go to a multiple of 4096 bytes";
	if (before && r->region_off < before->region_off + before->len_bytes)
		return "goes to where the one before it does, or in front of that";
	return NULL;
}

int sits_load_ranges_check(const struct sits_source *src, const struct sits_load_range *ranges, uint32_t nr_ranges,
			   bool placed)
{
	const char *fault;
	uint32_t i;

	if (nr_ranges > SITS_LOAD_RANGES_MAX || (nr_ranges && !ranges)) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: %u ranges: at most %u, and they must be somewhere", src->path, nr_ranges,
			 SITS_LOAD_RANGES_MAX);
		return -EINVAL;
	}
	for (i = 0; i < nr_ranges; i++) {
		fault = range_fault(&src->hdr, &ranges[i], i ? &ranges[i - 1] : NULL, placed);
		if (!fault)
			continue;
		sits_log(src->ctx, SITS_LOG_ERR, "%s: range %u (counted from 0), %" PRIu64 " bytes at %" PRIu64 ": %s; the plaintext has %" PRIu64 " bytes in chunks of %u: sits_load_plan() makes ranges that can be loaded",
			 src->path, i, ranges[i].len_bytes, ranges[i].file_off, fault, src->hdr.plain_bytes, src->hdr.chunk_bytes);
		return -EINVAL;
	}
	return 0;
}

/* --------------------------------------------------------------------------- loads */

/*
 * Each range, not just the last: where the end of one comes round at 2^64, the next can be in front of it and look like one behind it.
 */
static int fits(const struct sits_weights_job *job)
{
	uint64_t room = sits_region_len(job->region);
	const struct sits_load_range *r;

	for (r = job->ranges; r < job->ranges + job->nr_ranges; r++)
		if (r->region_off > room || r->len_bytes > room - r->region_off)
			break;
	if (r == job->ranges + job->nr_ranges)
		return 0;
	if (!job->partial)
		sits_log(job->src.ctx, SITS_LOG_ERR, "%s: has %" PRIu64 " bytes of weights; the region has room for %" PRIu64,
			 job->src.path, job->src.hdr.plain_bytes, room);
	else
		sits_log(job->src.ctx, SITS_LOG_ERR, "%s: range %u (counted from 0), %" PRIu64 " bytes, goes to byte %" PRIu64 " of a region that has room for %" PRIu64,
			 job->src.path, (uint32_t)(r - job->ranges), r->len_bytes, r->region_off, room);
	return -EFBIG;
}

/* What is to be loaded, now that it is known what there is. */
static int choose_ranges(struct sits_weights_job *job, const struct sits_load_item *item)
{
	uint32_t i;
	int ret;

	ret = sits_load_ranges_check(&job->src, item->ranges, item->nr_ranges, true);
	if (ret)
		return ret;
	job->partial = item->nr_ranges;
	job->whole.len_bytes = job->src.hdr.plain_bytes;
	job->ranges = job->partial ? item->ranges : &job->whole;
	job->nr_ranges = job->partial ? item->nr_ranges : !!job->whole.len_bytes;
	for (i = 0; i < job->nr_ranges; i++)
		job->total_bytes += sits_load_range_data(&job->src, &job->ranges[i]);
	return fits(job);
}

/* Return: 0, then sits_source_close() is due. */
static int open_job(struct sits_ctx *ctx, const struct sits_provider *provider, const struct sits_load_item *item,
		    const struct sits_key *key, const struct sits_load_opts *o, struct sits_weights_job *job)
{
	int ret;

	job->region = item->region;
	/* What the header says is checked here, whoever loads, for the words; the kernel goes by its own look at it. */
	ret = sits_source_open(ctx, item->path, key->in_kernel ? NULL : key, provider->source_flags(o), &job->src);
	if (ret)
		return ret;
	ret = sits_source_allowed(&job->src, o);
	if (!ret)
		ret = choose_ranges(job, item);
	if (ret)
		sits_source_close(&job->src);
	return ret;
}

static int begin_job(struct sits_weights_job *job)
{
	void *mem;
	int ret = sits_region_load_begin(job->region, &mem);

	if (ret) {
		sits_log(job->src.ctx, SITS_LOG_ERR, "%s: the region can't be loaded: %s", job->src.path,
			 ret == -EBUSY ? "another load runs" : ret == -EPERM ? "it is sealed" : strerror(-ret));
		return ret;
	}
	job->mem = mem;
	job->loading = true;
	return 0;
}

static int finish_job(struct sits_weights_job *job)
{
	int ret = sits_region_load_finish(job->region, job->src.digest, job->partial);

	if (ret)
		sits_log(job->src.ctx, SITS_LOG_ERR, "%s: the loaded region can't be sealed: %s", job->src.path, strerror(-ret));
	return ret;
}

/* All of the regions are handed out, or none. */
static int finish_jobs(struct sits_weights_job *jobs, uint32_t nr_jobs)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < nr_jobs && !ret; i++)
		ret = finish_job(&jobs[i]);
	for (; ret && i; i--)
		sits_region_load_undo(jobs[i - 1].region);
	return ret;
}

static int run_jobs(const struct sits_provider *provider, struct sits_weights_job *jobs, uint32_t nr_jobs,
		    const struct sits_key *key, const struct sits_load_opts *o)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < nr_jobs && !ret; i++)
		ret = begin_job(&jobs[i]);
	if (!ret)
		ret = provider->weights_load(jobs, nr_jobs, key, o);
	if (!ret)
		ret = finish_jobs(jobs, nr_jobs);
	for (i = 0; ret && i < nr_jobs; i++)
		if (jobs[i].loading)
			sits_region_load_fail(jobs[i].region);
	return ret;
}

static void tell_info(const struct sits_weights_job *job, const struct sits_load_item *item)
{
	if (!item->info)
		return;
	sits_source_info(&job->src, item->info);
	item->info->authenticated = 1;
}

/* Structs that may grow, in a row. */
static const struct sits_load_item *item_at(const struct sits_load_item *items, uint32_t i)
{
	return (const void *)((const char *)items + (size_t)items->size * i);
}

static int load_items(struct sits_ctx *ctx, const struct sits_load_item *items, uint32_t nr_items,
		      const struct sits_key *key, const struct sits_load_opts *o)
{
	const struct sits_provider *provider = items->region->ctx->provider;
	struct sits_weights_job *jobs = calloc(nr_items, sizeof(*jobs));
	uint32_t i, opened;
	int ret = 0;

	if (!jobs)
		return sits_log_nomem(ctx, items->path, "the list of files", 0);
	if (provider->id != SITS_PROVIDER_KERNEL)
		ret = sits_key_need_bytes(ctx, key, "loading into memory of this process");
	for (opened = 0; opened < nr_items && !ret; opened += !ret)
		ret = open_job(ctx, provider, item_at(items, opened), key, o, &jobs[opened]);
	if (!ret)
		ret = run_jobs(provider, jobs, nr_items, key, o);
	for (i = 0; i < opened; i++) {
		if (!ret)
			tell_info(&jobs[i], item_at(items, i));
		sits_source_close(&jobs[i].src);
	}
	free(jobs);
	return ret;
}

int sits_weights_load(struct sits_ctx *ctx, const char *path, struct sits_region *region,
		      const struct sits_key *key, const struct sits_load_opts *opts,
		      struct sits_sealed_info *info)
{
	struct sits_load_item item = { .size = sizeof(item), .path = path, .region = region, .info = info };
	struct sits_load_opts o;
	int ret;

	if (!ctx || !path || !region || !key)
		return -EINVAL;
	ret = sits_load_opts_get(ctx, opts, &o);
	if (ret)
		return ret;
	item.ranges = o.ranges;
	item.nr_ranges = o.nr_ranges;
	return load_items(ctx, &item, 1, key, &o);
}

static int check_items(struct sits_ctx *ctx, const struct sits_load_item *items, uint32_t nr_items)
{
	uint32_t i;

	if (!nr_items || nr_items > SITS_LOAD_FILES_MAX) {
		sits_log(ctx, SITS_LOG_ERR, "load: %u files: it must be 1 to %u", nr_items, SITS_LOAD_FILES_MAX);
		return -EINVAL;
	}
	for (i = 0; i < nr_items; i++) {
		const struct sits_load_item *item = item_at(items, i);
		struct sits_load_item known;

		if (items->size % sizeof(void *) || sits_opts_copy(&known, sizeof(known), item, sizeof(known))) {
			sits_log(ctx, SITS_LOG_ERR, "load: file %u (counted from 0): unknown size, or fields, of the items", i);
			return -EINVAL;
		}
		if (item->size == items->size && item->path && item->region &&
		    item->region->ctx->provider == items->region->ctx->provider)
			continue;
		sits_log(ctx, SITS_LOG_ERR, "load: file %u (counted from 0): without path or region, or not like the first one", i);
		return -EINVAL;
	}
	return 0;
}

int sits_weights_load_many(struct sits_ctx *ctx, const struct sits_load_item *items, uint32_t nr_items,
			   const struct sits_key *key, const struct sits_load_opts *opts)
{
	struct sits_load_opts o;
	int ret;

	if (!ctx || !items || !key)
		return -EINVAL;
	ret = sits_load_opts_get(ctx, opts, &o);
	if (!ret && (o.ranges || o.nr_ranges)) {
		sits_log(ctx, SITS_LOG_ERR, "load: of several files each has ranges of its own");
		ret = -EINVAL;
	}
	if (!ret)
		ret = check_items(ctx, items, nr_items);
	return ret ? ret : load_items(ctx, items, nr_items, key, &o);
}

/* ------------------------------------------------------------------ without a region */

static int verify_opened(struct sits_source *src, const struct sits_load_opts *o)
{
	struct sits_load_range whole = { .len_bytes = src->hdr.plain_bytes };
	int ret;

	ret = sits_load_ranges_check(src, o->ranges, o->nr_ranges, false);
	if (ret)
		return ret;
	return o->nr_ranges ? sits_source_verify_chunks(src, o->ranges, o->nr_ranges, o) :
			      sits_source_verify_chunks(src, &whole, !!whole.len_bytes, o);
}

int sits_sealed_verify(struct sits_ctx *ctx, const char *path, const struct sits_key *key,
		       const struct sits_load_opts *opts, struct sits_sealed_info *info)
{
	struct sits_source src;
	struct sits_load_opts o;
	int ret;

	if (!ctx || !path || !key)
		return -EINVAL;
	ret = sits_load_opts_get(ctx, opts, &o);
	if (!ret)
		ret = sits_key_need_bytes(ctx, key, "verifying");
	if (!ret)
		ret = sits_source_open(ctx, path, key, sits_user_source_flags(&o), &src);
	if (ret)
		return ret;
	ret = sits_source_allowed(&src, &o);
	if (!ret)
		ret = verify_opened(&src, &o);
	if (!ret && info)
		sits_source_info(&src, info);
	sits_source_close(&src);
	return ret;
}

int sits_sealed_inspect(struct sits_ctx *ctx, const char *path, const struct sits_key *key,
			struct sits_sealed_info *info)
{
	struct sits_source src;
	int ret;

	if (!ctx || !path || !info)
		return -EINVAL;
	ret = key ? sits_key_need_bytes(ctx, key, "inspecting with a key") : 0;
	if (!ret)
		ret = sits_source_open(ctx, path, key, 0, &src);
	if (ret)
		return ret;
	sits_source_info(&src, info);
	sits_source_close(&src);
	return 0;
}
