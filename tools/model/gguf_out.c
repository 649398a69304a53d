// SPDX-License-Identifier: MIT
/*
 * gguf_out.c - see gguf_out.h.
 */
#include "tools/model/gguf_out.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libsits/tmpfile.h"

#define GGUF_VERSION		3
#define GGUF_ALIGN_DEFAULT	32
#define ALIGN_KEY		"general.alignment"
#define WRITE_MAX		(1u << 30)	/* in one call: no system writes more at once */

struct bytes {
	uint8_t *p;
	size_t len, cap;
	bool failed;
};

/* Owned by the caller of gguf_out_open(), until commit or abort. */
struct gguf_out {
	struct sits_tmpfile file;
	const char *path;
	uint32_t align;
	uint64_t nr_keys, nr_tensors;
	struct bytes keys, infos;
	uint64_t *size;			/* [nr_tensors] bytes of each tensor's data */
	uint64_t data_len;		/* padded sum of them */
	uint64_t at;			/* where the next byte goes, from the file's start */
	uint64_t cur, left;		/* the tensor being written, and its bytes to come */
};

static void put(struct bytes *b, const void *p, size_t n)
{
	size_t cap;
	void *q;

	if (b->failed || !n)
		return;
	if (n > b->cap - b->len) {
		cap = 2 * (b->len + n) + 256;
		q = realloc(b->p, cap);
		if (!q) {
			b->failed = true;
			return;
		}
		b->p = q;
		b->cap = cap;
	}
	memcpy(b->p + b->len, p, n);
	b->len += n;
}

static void put_u32(struct bytes *b, uint32_t v)
{
	put(b, &v, sizeof(v));
}

static void put_u64(struct bytes *b, uint64_t v)
{
	put(b, &v, sizeof(v));
}

static void put_str(struct bytes *b, const char *p, size_t len)
{
	put_u64(b, len);
	put(b, p, len);
}

static uint64_t padded(uint64_t n, uint32_t align)
{
	return (n + align - 1) & ~(uint64_t)(align - 1);
}

int gguf_out_open(struct sits_ctx *ctx, const char *path, bool replace, uint32_t align, struct gguf_out **out)
{
	struct gguf_out *o = calloc(1, sizeof(*o));
	int ret;

	if (!o)
		return -ENOMEM;
	o->path = path;
	o->align = align;
	ret = sits_tmpfile_open(ctx, path, 0600, replace, 0, &o->file);
	if (ret) {
		free(o);
		return ret;
	}
	*out = o;
	return align == GGUF_ALIGN_DEFAULT ? 0 : gguf_out_key_u32(o, ALIGN_KEY, align);
}

static void release(struct gguf_out *o)
{
	free(o->keys.p);
	free(o->infos.p);
	free(o->size);
	free(o);
}

void gguf_out_abort(struct gguf_out *o)
{
	if (!o)
		return;
	sits_tmpfile_abort(&o->file);
	release(o);
}

int gguf_out_key_u32(struct gguf_out *o, const char *key, uint32_t v)
{
	put_str(&o->keys, key, strlen(key));
	put_u32(&o->keys, SITS_GGUF_U32);
	put_u32(&o->keys, v);
	o->nr_keys++;
	return o->keys.failed ? -ENOMEM : 0;
}

int gguf_out_key_str(struct gguf_out *o, const char *key, struct sits_str v)
{
	put_str(&o->keys, key, strlen(key));
	put_u32(&o->keys, SITS_GGUF_STRING);
	put_str(&o->keys, v.p, v.len);
	o->nr_keys++;
	return o->keys.failed ? -ENOMEM : 0;
}

int gguf_out_key_i32s(struct gguf_out *o, const char *key, const int32_t *v, uint64_t nr)
{
	put_str(&o->keys, key, strlen(key));
	put_u32(&o->keys, SITS_GGUF_ARRAY);
	put_u32(&o->keys, SITS_GGUF_I32);
	put_u64(&o->keys, nr);
	put(&o->keys, v, nr * sizeof(*v));
	o->nr_keys++;
	return o->keys.failed ? -ENOMEM : 0;
}

static bool is_one_of(const struct sits_str *s, const char *const *names)
{
	for (; *names; names++)
		if (strlen(*names) == s->len && !memcmp(*names, s->p, s->len))
			return true;
	return false;
}

/* A key's bytes in its file start with the length of its name, and end where those of the next one start. */
static const char *key_start(const struct sits_gguf *g, uint64_t i)
{
	enum sits_gguf_type type;
	struct sits_str key;

	if (i < sits_gguf_nr_keys(g) && !sits_gguf_key_at(g, i, &key, &type))
		return key.p - sizeof(uint64_t);
	return sits_gguf_keys_end(g);
}

int gguf_out_keys_of(struct gguf_out *o, const struct sits_gguf *g, const char *const *but)
{
	static const char *const never[] = { ALIGN_KEY, NULL };
	enum sits_gguf_type type;
	struct sits_str key;
	const char *start;
	uint64_t i;

	for (i = 0; i < sits_gguf_nr_keys(g); i++) {
		if (sits_gguf_key_at(g, i, &key, &type) || is_one_of(&key, never) || is_one_of(&key, but))
			continue;
		start = key_start(g, i);
		put(&o->keys, start, (size_t)(key_start(g, i + 1) - start));
		o->nr_keys++;
	}
	return o->keys.failed ? -ENOMEM : 0;
}

int gguf_out_tensor(struct gguf_out *o, struct sits_str name, uint32_t nr_dims, const uint64_t *ne, uint32_t type,
		    uint64_t bytes)
{
	uint64_t *size, end;
	uint32_t i;

	if (__builtin_add_overflow(o->data_len, bytes, &end) || end > (uint64_t)INT64_MAX - o->align)
		return -EOVERFLOW;
	size = realloc(o->size, (size_t)(o->nr_tensors + 1) * sizeof(*size));
	if (!size)
		return -ENOMEM;
	o->size = size;
	size[o->nr_tensors++] = bytes;
	put_str(&o->infos, name.p, name.len);
	put_u32(&o->infos, nr_dims);
	for (i = 0; i < nr_dims; i++)
		put_u64(&o->infos, ne[i]);
	put_u32(&o->infos, type);
	put_u64(&o->infos, o->data_len);
	o->data_len = padded(end, o->align);
	return o->infos.failed ? -ENOMEM : 0;
}

static int write_raw(struct gguf_out *o, const void *p, size_t len, struct sits_diag *diag)
{
	const uint8_t *at = p;
	ssize_t n;

	while (len) {
		n = pwrite(o->file.fd, at, len < WRITE_MAX ? len : WRITE_MAX, (off_t)o->at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return sits_diag_fail(diag, n ? -errno : -EIO, "%s: %s", o->path, strerror(n ? errno : EIO));
		at += n;
		len -= (size_t)n;
		o->at += (uint64_t)n;
	}
	return 0;
}

static int write_padding(struct gguf_out *o, struct sits_diag *diag)
{
	static const uint8_t zeros[4096];
	uint64_t n = padded(o->at, o->align) - o->at;
	size_t part;
	int ret = 0;

	for (; n && !ret; n -= part) {
		part = n < sizeof(zeros) ? (size_t)n : sizeof(zeros);
		ret = write_raw(o, zeros, part, diag);
	}
	return ret;
}

/* The space for all of it, so that a full disk is found before the work. A filesystem that can't tell finds out later. */
static int reserve(struct gguf_out *o, uint64_t len, struct sits_diag *diag)
{
	if (!fallocate(o->file.fd, 0, 0, (off_t)len) || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR)
		return 0;
	return sits_diag_fail(diag, -errno, "%s: no space for its %llu bytes: %s", o->path, (unsigned long long)len,
			      strerror(errno));
}

int gguf_out_begin(struct gguf_out *o, struct sits_diag *diag)
{
	const uint32_t version = GGUF_VERSION;
	struct bytes head = { 0 };
	int ret;

	put(&head, "GGUF", 4);
	put_u32(&head, version);
	put_u64(&head, o->nr_tensors);
	put_u64(&head, o->nr_keys);
	if (head.failed)
		ret = -ENOMEM;
	else
		ret = reserve(o, padded(head.len + o->keys.len + o->infos.len, o->align) + o->data_len, diag);
	if (!ret)
		ret = write_raw(o, head.p, head.len, diag);
	if (!ret)
		ret = write_raw(o, o->keys.p, o->keys.len, diag);
	if (!ret)
		ret = write_raw(o, o->infos.p, o->infos.len, diag);
	if (!ret)
		ret = write_padding(o, diag);
	free(head.p);
	o->left = o->nr_tensors ? o->size[0] : 0;
	return ret;
}

int gguf_out_write(struct gguf_out *o, const void *p, size_t len, struct sits_diag *diag)
{
	int ret;

	assert(o->cur < o->nr_tensors && len <= o->left);
	ret = write_raw(o, p, len, diag);
	o->left -= len;
	if (ret || o->left)
		return ret;
	o->cur++;
	o->left = o->cur < o->nr_tensors ? o->size[o->cur] : 0;
	return write_padding(o, diag);
}

int gguf_out_commit(struct gguf_out *o, uint64_t *bytes)
{
	int ret;

	assert(o->cur == o->nr_tensors);
	if (bytes)
		*bytes = o->at;
	ret = sits_tmpfile_commit(&o->file);
	release(o);
	return ret;
}
