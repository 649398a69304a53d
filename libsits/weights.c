// SPDX-License-Identifier: MIT
/*
 * weights.c - reading sealed files: load into a region, verify, inspect.
 *
 * Spans of chunks are read by pump.c and opened in place, on all cores. A load hands its region out after the last
 * tag has verified; on any failure the region is wiped. Opening the file and its header is source.c's.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "libsits/internal.h"
#include "libsits/pump.h"
#include "libsits/source.h"

struct opening {
	struct sits_source *src;
	bool wipe;	/* verify only: the plaintext goes at once */
};

/* Open every chunk of a span. */
static int open_span(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad)
{
	struct opening *o = arg;
	const struct sits_sealed_hdr *h = &o->src->hdr;
	uint64_t i = off / h->chunk_bytes;
	size_t at;
	int ret;

	for (at = 0; at < len; at += h->chunk_bytes, i++) {
		ret = sits_sealed_chunk_open(o->src->file, i, buf + at,
					     h->tags_bytes ? o->src->tags + i * SITS_GCM_TAG_LEN : NULL);
		if (ret) {
			*bad = off + at;
			return ret;
		}
	}
	if (o->wipe)
		explicit_bzero(buf, len);
	return 0;
}

/* An empty file has one empty chunk, with a tag to check and nothing to read. */
static int open_empty(const struct sits_source *src)
{
	u8 none[SITS_SM4_BLOCK_LEN] = { 0 };

	return src->hdr.data_bytes || !src->hdr.nr_chunks ? 0 :
		sits_sealed_chunk_open(src->file, 0, none, src->tags);
}

int sits_source_explain(const struct sits_source *src, const struct sits_pump *p, int ret)
{
	const struct sits_sealed_hdr *h = &src->hdr;
	uint64_t chunk = p->fail_off / h->chunk_bytes;
	int changed;

	if (ret == -ECANCELED || ret == -ENOMEM)
		return ret;
	/* A file that somebody writes to is no forgery. */
	changed = sits_source_unchanged(src);
	if (changed)
		return changed;
	if (p->fail_stage == SITS_PUMP_WORK) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: chunk %" PRIu64 " (counted from 0, of %" PRIu64 "): its tag does not verify: it was changed, swapped, or belongs to another file",
			 src->path, chunk, h->nr_chunks);
		return ret;
	}
	if (p->fail_stage == SITS_PUMP_EOF) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: chunk %" PRIu64 " (counted from 0, of %" PRIu64 "): cut: the file ended while it was being read",
			 src->path, chunk, h->nr_chunks);
		return -ESTALE;
	}
	sits_log(src->ctx, SITS_LOG_ERR, "%s: chunk %" PRIu64 ": can't read at byte %" PRIu64 ": %s", src->path, chunk,
		 h->data_off + p->fail_off, strerror(-ret));
	return ret;
}

/* Read and open all chunks, into @dst or to nowhere. */
static int open_chunks(struct sits_source *src, uint8_t *dst, const struct sits_load_opts *opts)
{
	struct opening o = { .src = src, .wipe = !dst };
	struct sits_pump p = {
		.in_fd = src->fd,
		.in_direct_fd = src->direct_fd,
		.out_fd = -1,
		.threads = opts->threads,
		.in_off = src->hdr.data_off,
		.total_bytes = src->hdr.data_bytes,
		.span_bytes = sits_pump_span(src->hdr.chunk_bytes),
		.dst = dst,
		.work = open_span,
		.arg = &o,
		.progress = opts->progress,
		.progress_arg = opts->progress_arg,
	};
	int ret;

	ret = open_empty(src);
	if (ret)
		p.fail_stage = SITS_PUMP_WORK;
	else
		ret = sits_pump_run(&p);
	return ret ? sits_source_explain(src, &p, ret) : sits_source_unchanged(src);
}

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
	if (sits_opts_copy(o, sizeof(*o), opts, sizeof(*o)) || o->reserved ||
	    o->flags & ~(SITS_LOAD_ALLOW_ECB | SITS_LOAD_BUFFERED)) {
		sits_log(ctx, SITS_LOG_ERR, "load: unknown size, flags or reserved fields in the options");
		return -EINVAL;
	}
	return 0;
}

static unsigned int source_flags(const struct sits_load_opts *o)
{
	return SITS_SOURCE_TAGS | (o->flags & SITS_LOAD_BUFFERED ? 0 : SITS_SOURCE_DIRECT);
}

static int load_into(struct sits_source *src, struct sits_region *region, const struct sits_load_opts *o)
{
	uint64_t plain = src->hdr.plain_bytes, mapped = sits_region_mapped(region);
	uint8_t *data;
	void *mem;
	int ret;

	if (plain > sits_region_len(region)) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: has %" PRIu64 " bytes of weights; the region has room for %" PRIu64, src->path,
			 plain, sits_region_len(region));
		return -EFBIG;
	}
	ret = sits_region_load_begin(region, &mem);
	if (ret) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: the region can't be loaded: %s", src->path,
			 ret == -EBUSY ? "another load runs" : ret == -EPERM ? "it is sealed" : strerror(-ret));
		return ret;
	}
	data = mem;
	ret = open_chunks(src, data, o);
	if (ret) {
		sits_region_load_fail(region);
		return ret;
	}
	/* What direct reads and whole blocks left behind the end, and what was there before. */
	memset(data + plain, 0, mapped - plain);
	ret = sits_region_load_finish(region, src->digest);
	if (ret)
		sits_log(src->ctx, SITS_LOG_ERR, "%s: the loaded region can't be sealed: %s", src->path, strerror(-ret));
	return ret;
}

/* Open every chunk of the file: into @region, or, where that is NULL, only to see that each verifies. */
static int open_all(struct sits_ctx *ctx, const char *path, struct sits_region *region, const struct sits_key *key,
		    const struct sits_load_opts *opts, struct sits_sealed_info *info)
{
	struct sits_source src;
	struct sits_load_opts o;
	int ret;

	ret = sits_load_opts_get(ctx, opts, &o);
	if (ret)
		return ret;
	ret = sits_source_open(ctx, path, key, source_flags(&o), &src);
	if (ret)
		return ret;
	ret = sits_source_allowed(&src, &o);
	if (!ret)
		ret = region ? load_into(&src, region, &o) : open_chunks(&src, NULL, &o);
	if (!ret && info)
		sits_source_info(&src, info);
	sits_source_close(&src);
	return ret;
}

int sits_weights_load(struct sits_ctx *ctx, const char *path, struct sits_region *region,
		      const struct sits_key *key, const struct sits_load_opts *opts,
		      struct sits_sealed_info *info)
{
	if (!ctx || !path || !region || !key)
		return -EINVAL;
	return open_all(ctx, path, region, key, opts, info);
}

int sits_sealed_verify(struct sits_ctx *ctx, const char *path, const struct sits_key *key,
		       const struct sits_load_opts *opts, struct sits_sealed_info *info)
{
	if (!ctx || !path || !key)
		return -EINVAL;
	return open_all(ctx, path, NULL, key, opts, info);
}

int sits_sealed_inspect(struct sits_ctx *ctx, const char *path, const struct sits_key *key,
			struct sits_sealed_info *info)
{
	struct sits_source src;
	int ret;

	if (!ctx || !path || !info)
		return -EINVAL;
	ret = sits_source_open(ctx, path, key, 0, &src);
	if (ret)
		return ret;
	sits_source_info(&src, info);
	sits_source_close(&src);
	return 0;
}
