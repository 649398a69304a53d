/* SPDX-License-Identifier: MIT */
/*
 * gguf_build.h - make GGUF images for tests, right or wrong on purpose.
 *
 *	struct gguf_build b;
 *	size_t len;
 *
 *	gguf_build_begin(&b);
 *	gguf_build_str(&b, "general.architecture", "llama");
 *	gguf_build_u32(&b, "llama.block_count", 1);
 *	gguf_build_strs(&b, "tokenizer.ggml.tokens", (const char *[]){ "a", "b" }, 2);
 *	gguf_build_tensor(&b, "w", SITS_F32, 2, (uint64_t[]){ 4, 2 }, weights, sizeof(weights));
 *	void *image = gguf_build_end(&b, &len);	(free() it; 64-byte aligned)
 *
 * Between begin and end the fields marked "may be set" make the image lie. No call checks its
 * arguments: that is what the reader under test is for. Every function aborts when memory is out.
 */
#ifndef SITS_TESTS_GGUF_BUILD_H
#define SITS_TESTS_GGUF_BUILD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct gguf_bytes {
	uint8_t *p;
	size_t len, cap;
};

struct gguf_build {
	uint32_t version;		/* may be set; 3 */
	uint64_t align;			/* may be set before the first tensor; 32: of data, not the key */
	uint64_t nr_keys, nr_tensors;	/* may be set before end */
	int64_t offset_error;		/* may be set: added to the offset of the next tensor, once */
	struct gguf_bytes keys, infos, data;	/* raw bytes may be added with gguf_put() */
};

static inline void gguf_put(struct gguf_bytes *b, const void *p, size_t n)
{
	if (b->len + n > b->cap) {
		b->cap = 2 * (b->len + n) + 64;
		b->p = realloc(b->p, b->cap);
		if (!b->p)
			abort();
	}
	if (n)
		memcpy(b->p + b->len, p, n);
	b->len += n;
}

static inline void gguf_put_u32(struct gguf_bytes *b, uint32_t v)
{
	gguf_put(b, &v, sizeof(v));
}

static inline void gguf_put_u64(struct gguf_bytes *b, uint64_t v)
{
	gguf_put(b, &v, sizeof(v));
}

static inline void gguf_put_str(struct gguf_bytes *b, const char *p, size_t n)
{
	gguf_put_u64(b, n);
	gguf_put(b, p, n);
}

static inline void gguf_put_zeros(struct gguf_bytes *b, size_t n)
{
	while (n--)
		gguf_put(b, "", 1);
}

static inline void gguf_build_begin(struct gguf_build *b)
{
	memset(b, 0, sizeof(*b));
	b->version = 3;
	b->align = 32;
}

/* A key and its type; the value's bytes follow with gguf_put(&b->keys, ...). */
static inline void gguf_build_key(struct gguf_build *b, const char *key, uint32_t type)
{
	gguf_put_str(&b->keys, key, strlen(key));
	gguf_put_u32(&b->keys, type);
	b->nr_keys++;
}

/* Any value whose bytes are at hand. */
static inline void gguf_build_raw(struct gguf_build *b, const char *key, uint32_t type, const void *p, size_t n)
{
	gguf_build_key(b, key, type);
	gguf_put(&b->keys, p, n);
}

static inline void gguf_build_u32(struct gguf_build *b, const char *key, uint32_t v)
{
	gguf_build_raw(b, key, 4, &v, sizeof(v));
}

static inline void gguf_build_f32(struct gguf_build *b, const char *key, float v)
{
	gguf_build_raw(b, key, 6, &v, sizeof(v));
}

static inline void gguf_build_bool(struct gguf_build *b, const char *key, int v)
{
	uint8_t u = (uint8_t)v;

	gguf_build_raw(b, key, 7, &u, sizeof(u));
}

static inline void gguf_build_strn(struct gguf_build *b, const char *key, const char *p, size_t n)
{
	gguf_build_key(b, key, 8);
	gguf_put_str(&b->keys, p, n);
}

static inline void gguf_build_str(struct gguf_build *b, const char *key, const char *v)
{
	gguf_build_strn(b, key, v, strlen(v));
}

/* An array of nr fixed-size elements of a value type, n bytes in all. */
static inline void gguf_build_array(struct gguf_build *b, const char *key, uint32_t elem, uint64_t nr,
				    const void *p, size_t n)
{
	gguf_build_key(b, key, 9);
	gguf_put_u32(&b->keys, elem);
	gguf_put_u64(&b->keys, nr);
	gguf_put(&b->keys, p, n);
}

static inline void gguf_build_strs(struct gguf_build *b, const char *key, const char *const *s, uint64_t nr)
{
	uint64_t i;

	gguf_build_array(b, key, 8, nr, NULL, 0);
	for (i = 0; i < nr; i++)
		gguf_put_str(&b->keys, s[i], strlen(s[i]));
}

/* A tensor with n bytes of data (p NULL: zeros), padded to b->align. */
static inline void gguf_build_tensor(struct gguf_build *b, const char *name, uint32_t type, uint32_t nr_dims,
				     const uint64_t *ne, const void *p, size_t n)
{
	gguf_put_str(&b->infos, name, strlen(name));
	gguf_put_u32(&b->infos, nr_dims);
	gguf_put(&b->infos, ne, nr_dims * sizeof(*ne));
	gguf_put_u32(&b->infos, type);
	gguf_put_u64(&b->infos, b->data.len + (uint64_t)b->offset_error);
	b->offset_error = 0;
	if (p)
		gguf_put(&b->data, p, n);
	else
		gguf_put_zeros(&b->data, n);
	if (b->align)
		gguf_put_zeros(&b->data, (size_t)(-b->data.len % b->align));
	b->nr_tensors++;
}

/* The image; the builder is empty afterwards. */
static inline void *gguf_build_end(struct gguf_build *b, size_t *len)
{
	struct gguf_bytes h = { 0 };
	void *image;

	gguf_put(&h, "GGUF", 4);
	gguf_put_u32(&h, b->version);
	gguf_put_u64(&h, b->nr_tensors);
	gguf_put_u64(&h, b->nr_keys);
	gguf_put(&h, b->keys.p, b->keys.len);
	gguf_put(&h, b->infos.p, b->infos.len);
	if (b->nr_tensors && b->align)
		gguf_put_zeros(&h, (size_t)(-h.len % b->align));
	gguf_put(&h, b->data.p, b->data.len);
	if (posix_memalign(&image, 64, h.len))
		abort();
	memcpy(image, h.p, h.len);
	*len = h.len;
	free(h.p);
	free(b->keys.p);
	free(b->infos.p);
	free(b->data.p);
	memset(b, 0, sizeof(*b));
	return image;
}

#endif
