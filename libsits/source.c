// SPDX-License-Identifier: MIT
/*
 * source.c - an opened sealed file: its header, authenticated where there is a key, and its tag table.
 *
 * With a key, no value of the header is used before it is authentic. What is done with the chunks is left to
 * weights.c.
 */
#include "libsits/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/journal.h"
#include "libsits/key.h"
#include "libsits/secret.h"

#define TAGS_PIECE	(64u << 10)	/* of the tag table, where it is only digested */
#define HEADER_TRIES	4

bool sits_same_file_header(const u8 a[SITS_SEALED_HDR_BYTES], const u8 b[SITS_SEALED_HDR_BYTES])
{
	u8 da[SITS_SM3_LEN], db[SITS_SM3_LEN];
	struct sits_sm3 s;

	sits_sealed_digest_init(&s, a);
	sits_sm3_final(&s, da);
	sits_sealed_digest_init(&s, b);
	sits_sm3_final(&s, db);
	return !memcmp(da, db, sizeof(da));
}

static int page_open(const u8 *page, const u8 *kek, struct sits_sealed_file *f, const char **why)
{
	return kek ? sits_sealed_unwrap(page, kek, f, why) : sits_sealed_parse(page, &f->hdr, why);
}

/* A page that is neither the old nor the new one is being written, or was cut: both are as good as it was. */
static int page_from_journal(struct sits_ctx *ctx, const char *path, const u8 *kek, u8 page[SITS_SEALED_HDR_BYTES],
			     struct sits_sealed_file *f)
{
	struct sits_journal j;
	int ret;

	ret = sits_journal_read(ctx, path, &j);
	if (ret)
		return ret;
	if (!memcmp(page, j.old_page, sizeof(j.old_page)) || !memcmp(page, j.new_page, sizeof(j.new_page)) ||
	    !sits_same_file_header(page, j.old_page))
		return -EBADMSG;
	if (!page_open(j.new_page, kek, f, NULL)) {
		memcpy(page, j.new_page, sizeof(j.new_page));
		return 0;
	}
	ret = page_open(j.old_page, kek, f, NULL);
	if (!ret)
		memcpy(page, j.old_page, sizeof(j.old_page));
	return ret;
}

int sits_source_header(struct sits_ctx *ctx, const char *path, int fd, const u8 *kek, u8 page[SITS_SEALED_HDR_BYTES],
		       struct sits_sealed_file *f, const char **why)
{
	u8 last[SITS_SEALED_HDR_BYTES];
	int ret, tries;

	for (tries = 0; tries < HEADER_TRIES; tries++) {
		ret = sits_pread_all(fd, page, SITS_SEALED_HDR_BYTES, 0);
		if (ret)
			return ret;
		ret = page_open(page, kek, f, why);
		if (!ret || !page_from_journal(ctx, path, kek, page, f))
			return 0;
		/* The rewriting may have ended between the two reads: then the page is another one now. */
		if (tries && !memcmp(page, last, sizeof(last)))
			break;
		memcpy(last, page, sizeof(last));
	}
	return ret;
}

static void log_other_key(struct sits_ctx *ctx, const char *path, const u8 *page, const struct sits_key *key)
{
	char theirs[2 * SITS_KEY_ID_LEN + 1] = "?", ours[2 * SITS_KEY_ID_LEN + 1];
	struct sits_sealed_hdr hdr;
	u8 id[SITS_KEY_ID_LEN];

	if (!sits_sealed_parse(page, &hdr, NULL))
		sits_hex(hdr.key_id, SITS_KEY_ID_LEN, theirs);
	sits_key_id(key, id);
	sits_hex(id, SITS_KEY_ID_LEN, ours);
	sits_log(ctx, SITS_LOG_ERR, "%s: wrong key: it is sealed under key %s, the one given is %s", path, theirs, ours);
}

int sits_source_log_header(struct sits_ctx *ctx, const char *path, const struct stat *st,
			   const u8 page[SITS_SEALED_HDR_BYTES], const struct sits_key *key, const char *why, int ret)
{
	if (!why)
		why = "malformed";
	switch (ret) {
	case 0:
		break;
	case -ENODATA:
		sits_log(ctx, SITS_LOG_ERR, "%s: header: %s: %" PRIu64 " of %u bytes: this is no sealed file, or it was cut",
			 path, st->st_size ? "the file is too short" : "the file is empty", (uint64_t)st->st_size,
			 SITS_SEALED_HDR_BYTES);
		return -EBADMSG;
	case -ENOKEY:
		log_other_key(ctx, path, page, key);
		break;
	case -EPROTONOSUPPORT:
		sits_log(ctx, SITS_LOG_ERR, "%s: header: %s: not known to SITS %s", path, why, SITS_VERSION);
		break;
	case -EBADMSG:
		sits_log(ctx, SITS_LOG_ERR, "%s: header: %s: this is no sealed file, or its header was changed", path, why);
		break;
	default:
		sits_log(ctx, SITS_LOG_ERR, "%s: header: can't read: %s", path, strerror(-ret));
	}
	return ret;
}

static int check_size(const struct sits_source *src)
{
	const struct sits_sealed_hdr *h = &src->hdr;
	uint64_t size = (uint64_t)src->st.st_size;

	if (size == h->file_bytes)
		return 0;
	if (size > h->file_bytes)
		sits_log(src->ctx, SITS_LOG_ERR, "%s: has %" PRIu64 " bytes, %" PRIu64 " more than its header says: something was added",
			 src->path, size, size - h->file_bytes);
	else if (size < h->tags_off + h->tags_bytes)
		sits_log(src->ctx, SITS_LOG_ERR, "%s: tag table: cut: the file ends at byte %" PRIu64 " of %" PRIu64,
			 src->path, size, h->file_bytes);
	else
		sits_log(src->ctx, SITS_LOG_ERR, "%s: chunk %" PRIu64 " (counted from 0, of %" PRIu64 "): cut: the file ends at byte %" PRIu64 " of %" PRIu64,
			 src->path, size < h->data_off ? 0 : (size - h->data_off) / h->chunk_bytes, h->nr_chunks, size,
			 h->file_bytes);
	return -EBADMSG;
}

/* What lies between the tag table and the ciphertext holds nothing, and must not. */
static int check_padding(const struct sits_source *src)
{
	uint64_t at, from = src->hdr.tags_off + src->hdr.tags_bytes;
	u8 padding[SITS_SEALED_ALIGN];
	int ret;

	ret = sits_pread_all(src->fd, padding, src->hdr.data_off - from, from);
	if (ret) {
		sits_log(src->ctx, SITS_LOG_ERR, "%s: tag table: can't read at byte %" PRIu64 ": %s", src->path, from,
			 strerror(-ret));
		return ret;
	}
	for (at = from; at < src->hdr.data_off; at++) {
		if (padding[at - from]) {
			sits_log(src->ctx, SITS_LOG_ERR, "%s: tag table: byte %" PRIu64 " behind it is not zero: the file was changed",
				 src->path, at);
			return -EBADMSG;
		}
	}
	return 0;
}

/* The tag table: digest it, and keep it if asked. */
static int read_tags(struct sits_source *src, bool keep)
{
	uint64_t off, n, left = src->hdr.tags_bytes;
	struct sits_sm3 s;
	u8 *buf;
	int ret = 0;

	buf = malloc(keep && left ? left : TAGS_PIECE);
	if (!buf)
		return sits_log_nomem(src->ctx, src->path, "the tag table", keep && left ? left : TAGS_PIECE);
	sits_sealed_digest_init(&s, src->page);
	for (off = 0; left; off += n, left -= n) {
		u8 *at = keep ? buf + off : buf;

		n = left < TAGS_PIECE ? left : TAGS_PIECE;
		ret = sits_pread_all(src->fd, at, n, src->hdr.tags_off + off);
		if (ret) {
			sits_log(src->ctx, SITS_LOG_ERR, "%s: tag table: can't read at byte %" PRIu64 ": %s", src->path,
				 src->hdr.tags_off + off, strerror(-ret));
			break;
		}
		sits_sm3_update(&s, at, n);
	}
	sits_sm3_final(&s, src->digest);
	if (keep && !ret)
		src->tags = buf;
	else
		free(buf);
	return ret;
}

int sits_source_digest(struct sits_source *src)
{
	return read_tags(src, false);
}

/* The header page, into src->hdr, and with a key into src->file too. */
static int read_header(struct sits_source *src, const struct sits_key *key)
{
	struct sits_sealed_file *f;
	const char *why = NULL;
	void *mem;
	int ret;

	ret = sits_secret_alloc(src->ctx, sizeof(*f), &mem);
	if (ret)
		return ret;
	f = mem;
	ret = sits_source_header(src->ctx, src->path, src->fd, key ? key->raw : NULL, src->page, f, &why);
	ret = sits_source_log_header(src->ctx, src->path, &src->st, src->page, key, why, ret);
	if (!ret)
		src->hdr = f->hdr;
	if (!ret && key)
		src->file = f;
	else
		sits_secret_free(f, sizeof(*f));
	return ret;
}

int sits_source_open(struct sits_ctx *ctx, const char *path, const struct sits_key *key, unsigned int flags,
		     struct sits_source *src)
{
	int ret;

	*src = (struct sits_source){ .ctx = ctx, .path = path, .direct_fd = -1 };
	src->fd = sits_open_regular(ctx, path, O_RDONLY, &src->st);
	if (src->fd < 0)
		return src->fd;
	ret = read_header(src, key);
	if (!ret)
		ret = check_size(src);
	if (!ret)
		ret = read_tags(src, flags & SITS_SOURCE_TAGS);
	if (!ret)
		ret = check_padding(src);
	if (ret) {
		sits_source_close(src);
		return ret;
	}
	if (flags & SITS_SOURCE_DIRECT)
		src->direct_fd = sits_reopen_direct(src->fd);
	return 0;
}

void sits_source_close(struct sits_source *src)
{
	sits_secret_free(src->file, sizeof(*src->file));
	free(src->tags);
	if (src->direct_fd >= 0)
		close(src->direct_fd);
	close(src->fd);
}

int sits_source_unchanged(const struct sits_source *src)
{
	const struct stat *was = &src->st;
	struct stat st;

	if (fstat(src->fd, &st))
		return -errno;
	if (st.st_size == was->st_size && st.st_ino == was->st_ino && st.st_dev == was->st_dev &&
	    !memcmp(&st.st_mtim, &was->st_mtim, sizeof(st.st_mtim)) &&
	    !memcmp(&st.st_ctim, &was->st_ctim, sizeof(st.st_ctim)))
		return 0;
	sits_log(src->ctx, SITS_LOG_ERR, "%s: changed while it was being read: try again once nobody writes it", src->path);
	return -ESTALE;
}

void sits_source_info(const struct sits_source *src, struct sits_sealed_info *info)
{
	const struct sits_sealed_hdr *h = &src->hdr;

	memset(info, 0, sizeof(*info));
	info->format_version = h->version;
	info->suite = h->suite;
	info->chunk_bytes = h->chunk_bytes;
	info->authenticated = !!src->file;
	info->plain_bytes = h->plain_bytes;
	info->file_bytes = h->file_bytes;
	info->nr_chunks = h->nr_chunks;
	info->model_version = h->model_version;
	memcpy(info->key_id, h->key_id, sizeof(info->key_id));
	memcpy(info->digest, src->digest, sizeof(info->digest));
	memcpy(info->model_id, h->model_id, sizeof(info->model_id));
}
