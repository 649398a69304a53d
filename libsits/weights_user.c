// SPDX-License-Identifier: MIT
/*
 * weights_user.c - opening the chunks of sealed files in this process: to load regions, or only to verify.
 *
 * Spans of chunks are read by pump.c. What comes by direct reads is opened in place; what comes from the page cache, piece by
 * piece, on its way there. To verify, ciphertext is hashed and nothing deciphered: there is no plaintext then. A load hands
 * its regions out after the last tag has verified; on any failure they are wiped.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libsits/internal.h"
#include "libsits/pump.h"
#include "libsits/source.h"
#include "libsits/weights.h"

/* A chunk that comes in pieces, on a worker's secret memory. */
struct chunk_state {
	struct sits_gcm gcm;
};

static int begin_chunk(const struct sits_sealed_file *f, uint64_t i, struct sits_gcm *gcm)
{
	u8 nonce[SITS_GCM_IV_LEN], aad[SITS_SEALED_AAD_LEN];
	int ret;

	sits_sealed_chunk_nonce_aad(&f->hdr, f->salt, f->hdr_digest, i, nonce, aad);
	ret = sits_gcm_start(gcm, &f->key, nonce, sizeof(nonce));
	return ret ? ret : sits_gcm_aad(gcm, aad, sizeof(aad));
}

/* @len bytes of chunk @i, which begin @at bytes from its start. @dst: NULL to verify. */
static int open_part(const struct sits_source *src, struct sits_gcm *gcm, uint64_t i, size_t at, uint8_t *dst,
		     const uint8_t *buf, size_t len)
{
	const struct sits_sealed_file *f = src->file;
	int ret;

	if (f->hdr.suite == SITS_SEALED_SUITE_ECB) {
		if (dst)
			sits_sm4_ecb_decrypt(&f->key.sm4, dst, buf, len / SITS_SM4_BLOCK_LEN);
		return 0;
	}
	ret = at ? 0 : begin_chunk(f, i, gcm);
	if (!ret)
		ret = dst ? sits_gcm_update_decrypt(gcm, dst, buf, len) : sits_gcm_update_auth(gcm, buf, len);
	if (!ret && at + len == sits_sealed_chunk_len(&f->hdr, i))
		ret = sits_gcm_verify(gcm, src->tags + i * SITS_GCM_TAG_LEN, SITS_GCM_TAG_LEN);
	return ret;
}

/* A piece of the plaintext at @off: of one chunk, or of several whole ones. */
static int open_piece(void *arg, void *state, uint64_t off, uint8_t *dst, const uint8_t *buf, size_t len, uint64_t *bad)
{
	const struct sits_source *src = arg;
	struct chunk_state *s = state;
	u32 chunk_bytes = src->hdr.chunk_bytes;
	size_t n;
	int ret;

	for (; len; off += n, buf += n, dst = dst ? dst + n : NULL, len -= n) {
		uint64_t i = off / chunk_bytes;
		size_t at = off % chunk_bytes;

		n = SITS_MIN(len, chunk_bytes - at);
		ret = open_part(src, &s->gcm, i, at, dst, buf, n);
		if (ret) {
			*bad = off - at;
			return ret;
		}
	}
	return 0;
}

/* Open every chunk of a span in its place. */
static int open_span(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad)
{
	struct chunk_state s;
	int ret;

	ret = open_piece(arg, &s, off, buf, buf, len, bad);
	explicit_bzero(&s, sizeof(s));
	return ret;
}

static int verify_span(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad)
{
	struct chunk_state s;
	int ret;

	ret = open_piece(arg, &s, off, NULL, buf, len, bad);
	explicit_bzero(&s, sizeof(s));
	return ret;
}

/* An empty file has one empty chunk, with a tag to check and nothing to read. */
static int open_empty(const struct sits_source *src)
{
	u8 none[SITS_SM4_BLOCK_LEN] = { 0 };

	return src->hdr.data_bytes || !src->hdr.nr_chunks ? 0 :
		sits_sealed_chunk_open(src->file, 0, none, src->tags);
}

void sits_source_log_chunk(const struct sits_source *src, uint64_t chunk)
{
	sits_log(src->ctx, SITS_LOG_ERR, "%s: chunk %" PRIu64 " (counted from 0, of %" PRIu64 "): its tag does not verify: it was changed, swapped, or belongs to another file",
		 src->path, chunk, src->hdr.nr_chunks);
}

int sits_source_explain(const struct sits_source *src, const struct sits_pump *p, int ret)
{
	const struct sits_sealed_hdr *h = &src->hdr;
	uint64_t chunk = p->fail_off / h->chunk_bytes;
	int changed;

	if (ret == -ECANCELED)
		return ret;
	if (ret == -ENOMEM && p->fail_stage == SITS_PUMP_SETUP)
		return sits_log_nomem(src->ctx, src->path, "the buffers of a thread", p->fail_bytes);
	/* A file that somebody writes to is no forgery. */
	changed = sits_source_unchanged(src);
	if (changed)
		return changed;
	if (p->fail_stage == SITS_PUMP_WORK) {
		sits_source_log_chunk(src, chunk);
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

/* The ranges of a file as parts of a pump. @mem: where their region begins; NULL to verify. */
static void add_parts(struct sits_pump_part *parts, struct sits_source *src, const struct sits_load_range *ranges,
		      uint32_t nr_ranges, uint8_t *mem)
{
	uint32_t i;

	for (i = 0; i < nr_ranges; i++)
		parts[i] = (struct sits_pump_part){
			.in_fd = src->fd,
			.in_direct_fd = src->direct_fd,
			.in_off = src->hdr.data_off + ranges[i].file_off,
			.first_off = ranges[i].file_off,
			.total_bytes = sits_load_range_data(src, &ranges[i]),
			.span_bytes = sits_pump_span(src->hdr.chunk_bytes),
			.dst = mem ? mem + ranges[i].region_off : NULL,
			.arg = src,
		};
}

static int run_pump(struct sits_pump *p, const struct sits_load_opts *opts)
{
	p->out_fd = -1;
	p->threads = opts->threads;
	p->piece = open_piece;
	p->state_bytes = sizeof(struct chunk_state);
	p->progress = opts->progress;
	p->progress_arg = opts->progress_arg;
	return sits_pump_run(p);
}

int sits_source_verify_chunks(struct sits_source *src, const struct sits_load_range *ranges, uint32_t nr_ranges,
			      const struct sits_load_opts *opts)
{
	struct sits_pump p = { .work = verify_span, .nr_parts = nr_ranges };
	struct sits_pump_part *parts;
	int ret;

	ret = open_empty(src);
	if (ret) {
		p.fail_stage = SITS_PUMP_WORK;
		return sits_source_explain(src, &p, ret);
	}
	parts = calloc(nr_ranges + 1, sizeof(*parts));
	if (!parts)
		return sits_log_nomem(src->ctx, src->path, "the list of its ranges", 0);
	add_parts(parts, src, ranges, nr_ranges, NULL);
	p.parts = parts;
	ret = run_pump(&p, opts);
	free(parts);
	return ret ? sits_source_explain(src, &p, ret) : sits_source_unchanged(src);
}

/* ---------------------------------------------------------------------------- load */

unsigned int sits_user_source_flags(const struct sits_load_opts *o)
{
	return SITS_SOURCE_TAGS | (o->flags & SITS_LOAD_BUFFERED ? 0 : SITS_SOURCE_DIRECT);
}

/* What direct reads and whole blocks left behind the end, and what was there before where nothing was loaded. */
static void clear_rest(const struct sits_weights_job *job)
{
	uint64_t at = 0;
	uint32_t i;

	for (i = 0; i < job->nr_ranges; i++) {
		memset(job->mem + at, 0, job->ranges[i].region_off - at);
		at = job->ranges[i].region_off + job->ranges[i].len_bytes;
	}
	memset(job->mem + at, 0, sits_region_mapped(job->region) - at);
}

static uint32_t count_ranges(const struct sits_weights_job *jobs, uint32_t nr_jobs)
{
	uint32_t i, n = 0;

	for (i = 0; i < nr_jobs; i++)
		n += jobs[i].nr_ranges;
	return n;
}

static void log_times(const struct sits_weights_job *jobs, uint32_t nr_jobs, const struct sits_pump *p, uint64_t total_ns)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < nr_jobs; i++)
		bytes += jobs[i].total_bytes;
	sits_log(jobs[0].src.ctx, SITS_LOG_DEBUG,
		 "%s%s: loaded: %" PRIu64 " bytes in %.3f s; all threads together: reads %.3f s; cipher %.3f s", jobs[0].src.path,
		 nr_jobs > 1 ? " and others" : "", bytes, (double)total_ns / 1e9, (double)p->read_ns / 1e9, (double)p->work_ns / 1e9);
}

/* All chunks of all files. */
static int open_chunks(struct sits_weights_job *jobs, uint32_t nr_jobs, const struct sits_load_opts *o)
{
	struct sits_pump p = { .work = open_span };
	uint64_t start = sits_now_ns();
	struct sits_pump_part *parts;
	uint32_t i;
	int ret;

	parts = calloc(count_ranges(jobs, nr_jobs) + 1, sizeof(*parts));
	if (!parts)
		return sits_log_nomem(jobs[0].src.ctx, jobs[0].src.path, "the list of its ranges", 0);
	for (i = 0; i < nr_jobs; i++) {
		add_parts(parts + p.nr_parts, &jobs[i].src, jobs[i].ranges, jobs[i].nr_ranges, jobs[i].mem);
		p.nr_parts += jobs[i].nr_ranges;
	}
	p.parts = parts;
	ret = run_pump(&p, o);
	if (ret)
		ret = sits_source_explain(p.nr_parts ? parts[p.fail_part].arg : &jobs[0].src, &p, ret);
	else
		log_times(jobs, nr_jobs, &p, sits_now_ns() - start);
	free(parts);
	return ret;
}

static int open_empty_ones(struct sits_weights_job *jobs, uint32_t nr_jobs)
{
	struct sits_pump p = { .fail_stage = SITS_PUMP_WORK };
	uint32_t i;
	int ret;

	for (i = 0; i < nr_jobs; i++) {
		ret = open_empty(&jobs[i].src);
		if (ret)
			return sits_source_explain(&jobs[i].src, &p, ret);
	}
	return 0;
}

int sits_user_weights_load(struct sits_weights_job *jobs, uint32_t nr_jobs, const struct sits_key *key,
			   const struct sits_load_opts *o)
{
	uint32_t i;
	int ret;

	ret = open_empty_ones(jobs, nr_jobs);
	if (!ret)
		ret = open_chunks(jobs, nr_jobs, o);
	for (i = 0; i < nr_jobs && !ret; i++) {
		ret = sits_source_unchanged(&jobs[i].src);
		if (!ret)
			clear_rest(&jobs[i]);
	}
	return ret;
}
