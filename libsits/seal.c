// SPDX-License-Identifier: MIT
/*
 * seal.c - write a sealed file, from a plain one or from one sealed before: atomic, and in constant memory.
 *
 * Spans of the input are read, encrypted and written by pump.c; tags go to the file's tag table span by span, so
 * nothing grows with the input. The file gets its name by tmpfile.c when all of it is on the disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "libsits/internal.h"
#include "libsits/io.h"
#include "libsits/key.h"
#include "libsits/pump.h"
#include "libsits/rekey.h"
#include "libsits/secret.h"
#include "libsits/source.h"
#include "libsits/tmpfile.h"

/* As the options were first; info came later. */
#define OPTS_SIZE_MIN	offsetof(struct sits_seal_opts, info)

#define SPAN_CHUNKS_MAX	(SITS_PUMP_SPAN_BYTES / SITS_SEALED_CHUNK_MIN)
#define OUTPUT_MODE	0644	/* less the umask: it holds ciphertext */

/* Allocated in secret memory. */
struct sealing {
	struct sits_sealed_file file;
	u8 random[SITS_SEALED_RANDOM_LEN];
	u8 page[SITS_SEALED_HDR_BYTES];
	struct sits_ctx *ctx;
	const char *in_path, *out_path;
	int in_fd;
	struct stat in_st;
	struct sits_source *from;	/* the sealed input; NULL for a plain one. Same chunks as the output */
	struct sits_tmpfile out;
};

/* Encrypt the chunks of a span, and put their tags into the tag table. */
static int seal_span(void *arg, uint64_t off, uint8_t *buf, size_t len, uint64_t *bad)
{
	struct sealing *s = arg;
	const struct sits_sealed_hdr *h = &s->file.hdr;
	uint64_t first = off / h->chunk_bytes, i = first;
	u8 tags[SPAN_CHUNKS_MAX][SITS_GCM_TAG_LEN];
	size_t at;
	int ret;

	for (at = 0; at < len; at += h->chunk_bytes, i++) {
		ret = s->from ? sits_sealed_chunk_open(s->from->file, i, buf + at, s->from->tags + i * SITS_GCM_TAG_LEN) : 0;
		if (ret) {
			*bad = off + at;
			return ret;
		}
		sits_sealed_chunk_seal(&s->file, i, buf + at, tags[i - first]);
	}
	return sits_pwrite_all(s->out.fd, tags, (i - first) * SITS_GCM_TAG_LEN,
			       h->tags_off + first * SITS_GCM_TAG_LEN);
}

static int get_opts(struct sits_ctx *ctx, const struct sits_seal_opts *opts, struct sits_seal_opts *o)
{
	*o = (struct sits_seal_opts){ .size = sizeof(*o) };
	if (opts && (sits_opts_copy(o, sizeof(*o), opts, OPTS_SIZE_MIN) || o->flags || o->reserved || o->force > 1)) {
		sits_log(ctx, SITS_LOG_ERR, "seal: unknown size, flags or reserved fields in the options");
		return -EINVAL;
	}
	if (!o->chunk_bytes)
		o->chunk_bytes = SITS_SEALED_CHUNK_DEFAULT;
	if (o->chunk_bytes & (o->chunk_bytes - 1) || o->chunk_bytes < SITS_SEALED_CHUNK_MIN ||
	    o->chunk_bytes > SITS_SEALED_CHUNK_MAX) {
		sits_log(ctx, SITS_LOG_ERR, "chunk size %u: must be a power of two from %u to %u bytes", o->chunk_bytes,
			 SITS_SEALED_CHUNK_MIN, SITS_SEALED_CHUNK_MAX);
		return -EINVAL;
	}
	return 0;
}

static int open_input(struct sealing *s)
{
	struct stat out_st;

	s->in_fd = sits_open_regular(s->ctx, s->in_path, O_RDONLY, &s->in_st);
	if (s->in_fd < 0)
		return s->in_fd;
	if (!stat(s->out_path, &out_st) && out_st.st_dev == s->in_st.st_dev && out_st.st_ino == s->in_st.st_ino) {
		sits_log(s->ctx, SITS_LOG_ERR, "%s: input and output are the same file; give another output", s->out_path);
		return -EINVAL;
	}
	posix_fadvise(s->in_fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return 0;
}

/*
 * The id of a model that was given none: its file's name. No name is a reason to fail: a long one is cut between
 * characters, and control characters, which an id can't have, become '_'. @id: SITS_MODEL_ID_MAX bytes.
 */
static const char *default_id(const char *path, char *id)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t i, n = strlen(name);

	if (n >= SITS_MODEL_ID_MAX) {
		for (n = SITS_MODEL_ID_MAX - 1; n > SITS_MODEL_ID_MAX - 5 && ((unsigned char)name[n] & 0xc0) == 0x80; n--)
			;
	}
	for (i = 0; i < n; i++)
		id[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '_' : name[i];
	id[n] = '\0';
	return id;
}

/* Why the format has no room for this. */
static void log_refused(struct sealing *s, const struct sits_seal_opts *o)
{
	size_t len = strlen(o->model_id);

	if (len >= SITS_MODEL_ID_MAX)
		sits_log(s->ctx, SITS_LOG_ERR, "%s: can't be sealed: the model id has %zu bytes, of at most %d: give a shorter one",
			 s->in_path, len, SITS_MODEL_ID_MAX - 1);
	else if (s->file.hdr.nr_chunks)
		sits_log(s->ctx, SITS_LOG_ERR, "%s: can't be sealed: the model id '%s' has control characters: give one without",
			 s->in_path, o->model_id);
	else
		sits_log(s->ctx, SITS_LOG_ERR, "%s: can't be sealed: it is too long for chunks of %u bytes: give a larger chunk size",
			 s->in_path, o->chunk_bytes);
}

/* The header page, with fresh keys. */
static int make_header(struct sealing *s, const struct sits_key *key, u64 plain_bytes, const struct sits_seal_opts *o)
{
	int ret;

	if (getrandom(s->random, sizeof(s->random), 0) != (ssize_t)sizeof(s->random)) {
		sits_log(s->ctx, SITS_LOG_ERR, "the kernel gave no random bytes for a file key");
		return -EIO;
	}
	ret = sits_sealed_init(&s->file, s->page, key->raw, s->random, o->chunk_bytes, plain_bytes, o->model_id,
			       o->model_version);
	explicit_bzero(s->random, sizeof(s->random));
	if (ret)
		log_refused(s, o);
	return ret;
}

static int no_space(struct sealing *s, int err)
{
	sits_log(s->ctx, SITS_LOG_ERR, "%s: can't write %" PRIu64 " bytes: %s", s->out_path, (uint64_t)s->file.hdr.file_bytes,
		 err == -ENOSPC ? "not enough free space on the filesystem" :
		 err == -EDQUOT ? "the disk quota does not allow it" :
		 err == -EFBIG ? "larger than the limit on file sizes (ulimit -f) or than the filesystem allows" :
		 strerror(-err));
	return err;
}

/* Take the space before the work, and give the file its final size. */
static int reserve(struct sealing *s, const struct sits_seal_opts *o)
{
	off_t size = (off_t)s->file.hdr.file_bytes;
	struct rlimit lim;
	int ret;

	/* Beyond this limit comes SIGXFSZ, which would end the caller. */
	if (!getrlimit(RLIMIT_FSIZE, &lim) && lim.rlim_cur != RLIM_INFINITY && lim.rlim_cur < (rlim_t)size)
		return no_space(s, -EFBIG);
	do {
		ret = fallocate(s->out.fd, 0, 0, size);
		/* A signal came: perhaps to cancel this. */
		if (ret && errno == EINTR && o->progress && o->progress(o->progress_arg, 0, s->file.hdr.plain_bytes))
			return -ECANCELED;
	} while (ret && errno == EINTR);
	if (!ret)
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		return no_space(s, -errno);
	return ftruncate(s->out.fd, size) ? no_space(s, -errno) : 0;
}

/*
 * The size that a file states may not be what it holds: those of /proc have size 0. To seal nothing of them as if it were all
 * would be a loss that only shows when the plaintext is gone.
 */
static int check_input_ends(struct sealing *s)
{
	ssize_t n;
	char more;
	int ret;

	do {
		n = pread(s->in_fd, &more, 1, s->in_st.st_size);
	} while (n < 0 && errno == EINTR);
	if (!n)
		return 0;
	if (n < 0) {
		ret = -errno;
		sits_log(s->ctx, SITS_LOG_ERR, "%s: can't read at byte %" PRIu64 ": %s", s->in_path, (uint64_t)s->in_st.st_size,
			 strerror(-ret));
		return ret;
	}
	sits_log(s->ctx, SITS_LOG_ERR, "%s: states a size of %" PRIu64 " bytes but does not end there, as files of /proc or such: copy it, and seal the copy",
		 s->in_path, (uint64_t)s->in_st.st_size);
	return -EINVAL;
}

static int check_input_unchanged(struct sealing *s)
{
	struct stat st;

	if (s->from)
		return sits_source_unchanged(s->from);
	if (fstat(s->in_fd, &st))
		return -errno;
	if (st.st_size == s->in_st.st_size && !memcmp(&st.st_mtim, &s->in_st.st_mtim, sizeof(st.st_mtim)))
		return check_input_ends(s);
	sits_log(s->ctx, SITS_LOG_ERR, "%s: changed while it was being sealed: try again once nobody writes it", s->in_path);
	return -ESTALE;
}

static int explain(struct sealing *s, const struct sits_pump *p, int ret)
{
	if (ret == -ECANCELED)
		return ret;
	if (ret == -ENOMEM && p->fail_stage == SITS_PUMP_SETUP)
		return sits_log_nomem(s->ctx, s->in_path, "the buffers of a thread", p->fail_bytes);
	if (s->from && p->fail_stage != SITS_PUMP_WRITE && (p->fail_stage != SITS_PUMP_WORK || ret == -EBADMSG))
		return sits_source_explain(s->from, p, ret);
	if (p->fail_stage == SITS_PUMP_EOF) {
		sits_log(s->ctx, SITS_LOG_ERR, "%s: ended at byte %" PRIu64 " while it was being sealed: try again once nobody writes it",
			 s->in_path, p->fail_off);
		return -ESTALE;
	}
	if (p->fail_stage == SITS_PUMP_READ) {
		sits_log(s->ctx, SITS_LOG_ERR, "%s: can't read at byte %" PRIu64 ": %s", s->in_path, p->fail_off, strerror(-ret));
		return ret;
	}
	return no_space(s, ret);
}

static int seal_chunks(struct sealing *s, const struct sits_seal_opts *o)
{
	const struct sits_sealed_hdr *h = &s->file.hdr;
	struct sits_pump p = {
		.in_fd = s->in_fd,
		.in_direct_fd = -1,
		.out_fd = s->out.fd,
		.in_off = s->from ? s->from->hdr.data_off : 0,
		.out_off = h->data_off,
		.threads = o->threads,
		.total_bytes = h->plain_bytes,
		.span_bytes = sits_pump_span(h->chunk_bytes),
		.work = seal_span,
		.arg = s,
		.progress = o->progress,
		.progress_arg = o->progress_arg,
	};
	u8 none[SITS_SM4_BLOCK_LEN] = { 0 }, tag[SITS_GCM_TAG_LEN];
	int ret = 0;

	if (!h->plain_bytes && s->from)
		ret = sits_sealed_chunk_open(s->from->file, 0, none, s->from->tags);
	if (ret) {
		p.fail_stage = SITS_PUMP_WORK;
		return explain(s, &p, ret);
	}
	if (!h->plain_bytes) {
		sits_sealed_chunk_seal(&s->file, 0, none, tag);
		ret = sits_pwrite_all(s->out.fd, tag, sizeof(tag), h->tags_off);
		if (ret)
			return no_space(s, ret);
	}
	ret = sits_pump_run(&p);
	return ret ? explain(s, &p, ret) : 0;
}

/* The new file is for whom the old one was. */
static int keep_owner(struct sealing *s)
{
	const struct stat *st = &s->from->st;
	int ret = sits_copy_owner(s->out.fd, s->from->fd, st, 0777);

	if (ret > 0) {
		sits_log(s->ctx, SITS_LOG_WARN, "%s: was of user %u and group %u, which can't be kept: it is yours now, with the mode that it had",
			 s->out_path, (unsigned int)st->st_uid, (unsigned int)st->st_gid);
		return 0;
	}
	if (ret)
		sits_log(s->ctx, SITS_LOG_ERR, "%s: can't set its owner, mode and access control list: %s", s->out_path, strerror(-ret));
	return ret;
}

static int write_output(struct sealing *s, const struct sits_seal_opts *o)
{
	int ret;

	ret = reserve(s, o);
	if (!ret && s->from)
		ret = keep_owner(s);
	if (ret)
		return ret;
	ret = sits_pwrite_all(s->out.fd, s->page, sizeof(s->page), 0);
	if (ret)
		return no_space(s, ret);
	ret = seal_chunks(s, o);
	if (ret)
		return ret;
	/* This may take long, and the input may change meanwhile: look at it last. */
	if (fsync(s->out.fd))
		return no_space(s, -errno);
	return check_input_unchanged(s);
}

/* What was written says of itself. By its descriptor: once it has its name, it may be out of this caller's reach. */
static int describe(struct sealing *s, struct sits_sealed_info *info)
{
	struct sits_source src = { .ctx = s->ctx, .path = s->out_path, .fd = s->out.fd, .direct_fd = -1, .hdr = s->file.hdr,
				   .file = &s->file };
	int ret;

	memcpy(src.page, s->page, sizeof(src.page));
	ret = sits_source_digest(&src);
	if (!ret)
		sits_source_info(&src, info);
	return ret;
}

static int seal_opened(struct sealing *s, const struct sits_key *key, u64 plain_bytes, const struct sits_seal_opts *o)
{
	struct sits_sealed_info info;
	int ret;

	ret = make_header(s, key, plain_bytes, o);
	if (ret)
		return ret;
	ret = sits_tmpfile_open(s->ctx, s->out_path, OUTPUT_MODE, o->force, 0, &s->out);
	if (ret)
		return ret;
	ret = write_output(s, o);
	if (!ret && o->info)
		ret = describe(s, &info);
	if (ret) {
		sits_tmpfile_abort(&s->out);
		return ret;
	}
	ret = sits_tmpfile_commit(&s->out);
	if (!ret && o->info)
		*o->info = info;
	return ret;
}

int sits_seal(struct sits_ctx *ctx, const char *in_path, const char *out_path,
	      const struct sits_key *key, const struct sits_seal_opts *opts)
{
	char cut[SITS_MODEL_ID_MAX];
	struct sits_seal_opts o;
	struct sealing *s;
	void *mem;
	int ret;

	if (!ctx || !in_path || !out_path || !key)
		return -EINVAL;
	ret = get_opts(ctx, opts, &o);
	if (!ret)
		ret = sits_key_need_bytes(ctx, key, "sealing");
	if (ret)
		return ret;
	if (!o.model_id)
		o.model_id = default_id(in_path, cut);
	ret = sits_secret_alloc(ctx, sizeof(*s), &mem);
	if (ret)
		return ret;
	s = mem;
	s->ctx = ctx;
	s->in_path = in_path;
	s->out_path = out_path;
	ret = open_input(s);
	if (!ret)
		ret = seal_opened(s, key, (u64)s->in_st.st_size, &o);
	if (s->in_fd >= 0)
		close(s->in_fd);
	sits_secret_free(s, sizeof(*s));
	return ret;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int log_replaced(const struct sits_source *src)
{
	sits_log(src->ctx, SITS_LOG_ERR, "%s: another file was put in its place: try again", src->path);
	return -EBUSY;
}

/* Seal what @src holds to its own path, as what it was but for the keys. */
static int reseal_opened(struct sits_source *src, const struct sits_key *new_key, const struct sits_load_opts *lo)
{
	struct sits_seal_opts o = {
		.chunk_bytes = src->hdr.chunk_bytes,
		.threads = lo->threads,
		.model_id = src->hdr.model_id,
		.model_version = src->hdr.model_version,
		.force = 1,
		.progress = lo->progress,
		.progress_arg = lo->progress_arg,
	};
	char real[PATH_MAX];
	struct sealing *s;
	struct stat st;
	void *mem;
	int ret;

	/* A symbolic link stays one. */
	if (!realpath(src->path, real) || stat(real, &st)) {
		ret = -errno;
		sits_log(src->ctx, SITS_LOG_ERR, "%s: %s", src->path, strerror(-ret));
		return ret;
	}
	if (!same_file(&st, &src->st))
		return log_replaced(src);
	ret = sits_secret_alloc(src->ctx, sizeof(*s), &mem);
	if (ret)
		return ret;
	s = mem;
	s->ctx = src->ctx;
	s->in_path = src->path;
	s->out_path = real;
	s->in_fd = src->fd;
	s->from = src;
	ret = seal_opened(s, new_key, src->hdr.plain_bytes, &o);
	sits_secret_free(s, sizeof(*s));
	if (!ret && st.st_nlink > 1)
		sits_log(src->ctx, SITS_LOG_WARN, "%s: had other names (hard links), under which the old file is still there, for whoever has its old key", real);
	return ret;
}

int sits_reseal_locked(struct sits_ctx *ctx, const char *path, int lock, const struct sits_key *old_key,
		       const struct sits_key *new_key, const struct sits_load_opts *opts)
{
	struct sits_load_opts o = *opts;
	struct sits_source src;
	struct stat locked;
	int ret;

	o.flags &= ~SITS_LOAD_ALLOW_ECB;	/* nothing vouches for its bytes: they must not become authentic */
	ret = sits_source_open(ctx, path, old_key, SITS_SOURCE_TAGS, &src);
	if (ret)
		return ret;
	ret = fstat(lock, &locked) ? -errno : same_file(&locked, &src.st) ? 0 : log_replaced(&src);
	if (!ret)
		ret = sits_source_allowed(&src, &o);
	if (!ret)
		ret = reseal_opened(&src, new_key, &o);
	sits_source_close(&src);
	return ret;
}

int sits_sealed_reseal(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		       const struct sits_key *new_key, const struct sits_load_opts *opts)
{
	struct sits_load_opts o;
	int ret, lock;

	if (!ctx || !path || !old_key || !new_key)
		return -EINVAL;
	ret = sits_load_opts_get(ctx, opts, &o);
	if (!ret && o.nr_ranges) {
		sits_log(ctx, SITS_LOG_ERR, "%s: only all of a file can be resealed, not ranges of it", path);
		ret = -EINVAL;
	}
	if (ret)
		return ret;
	/* Else a rekey at the same time would be undone after it had succeeded. */
	lock = sits_sealed_lock(ctx, path, old_key, new_key);
	if (lock < 0)
		return lock;
	ret = sits_reseal_locked(ctx, path, lock, old_key, new_key, &o);
	close(lock);
	return ret;
}
