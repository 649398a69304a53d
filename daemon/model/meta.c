// SPDX-License-Identifier: MIT
/*
 * meta.c - see meta.h. The format is that of gguf.c.
 */
#include "daemon/model/meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER 24	/* magic, version, number of tensors, number of keys */

static void put(struct sits_meta *m, const void *p, size_t n)
{
	size_t need, cap = m->cap ? m->cap : 4096;
	void *grown;

	if (!m->len)
		m->len = HEADER;
	if (m->failed || __builtin_add_overflow(m->len, n, &need) || need > SIZE_MAX / 2) {
		m->failed = true;
		return;
	}
	while (cap < need)
		cap *= 2;
	if (cap > m->cap) {
		grown = realloc(m->p, cap);
		if (!grown) {
			m->failed = true;
			return;
		}
		m->p = grown;
		m->cap = cap;
	}
	if (n)
		memcpy(m->p + m->len, p, n);
	m->len = need;
}

static void put_text(struct sits_meta *m, const char *p, size_t len)
{
	uint64_t n = len;

	put(m, &n, 8);
	put(m, p, len);
}

static void put_key(struct sits_meta *m, const char *key, uint32_t type)
{
	put_text(m, key, strlen(key));
	put(m, &type, 4);
	m->nr++;
}

static void put_array(struct sits_meta *m, const char *key, uint32_t elem, uint64_t nr)
{
	put_key(m, key, SITS_GGUF_ARRAY);
	put(m, &elem, 4);
	put(m, &nr, 8);
}

void sits_meta_u32(struct sits_meta *m, const char *key, uint32_t v)
{
	put_key(m, key, SITS_GGUF_U32);
	put(m, &v, 4);
}

void sits_meta_f32(struct sits_meta *m, const char *key, float v)
{
	put_key(m, key, SITS_GGUF_F32);
	put(m, &v, 4);
}

void sits_meta_bool(struct sits_meta *m, const char *key, bool v)
{
	uint8_t b = v;

	put_key(m, key, SITS_GGUF_BOOL);
	put(m, &b, 1);
}

void sits_meta_str(struct sits_meta *m, const char *key, const char *p, size_t len)
{
	put_key(m, key, SITS_GGUF_STRING);
	put_text(m, p, len);
}

void sits_meta_strs(struct sits_meta *m, const char *key, const struct sits_str *s, uint64_t nr)
{
	uint64_t i;

	put_array(m, key, SITS_GGUF_STRING, nr);
	for (i = 0; i < nr; i++)
		put_text(m, s[i].p, s[i].len);
}

void sits_meta_bools(struct sits_meta *m, const char *key, const uint8_t *v, uint64_t nr)
{
	put_array(m, key, SITS_GGUF_BOOL, nr);
	put(m, v, (size_t)nr);
}

void sits_meta_i32s(struct sits_meta *m, const char *key, const int32_t *v, uint64_t nr)
{
	put_array(m, key, SITS_GGUF_I32, nr);
	put(m, v, (size_t)nr * 4);
}

int sits_meta_end(struct sits_meta *m, uint8_t **image, size_t *len)
{
	const uint32_t version = 3;
	const uint64_t tensors = 0;

	put(m, NULL, 0);	/* room for the header, if nothing else came */
	if (m->failed) {
		free(m->p);
		memset(m, 0, sizeof(*m));
		return -ENOMEM;
	}
	memcpy(m->p, "GGUF", 4);
	memcpy(m->p + 4, &version, 4);
	memcpy(m->p + 8, &tensors, 8);
	memcpy(m->p + 16, &m->nr, 8);
	*image = m->p;
	*len = m->len;
	memset(m, 0, sizeof(*m));
	return 0;
}
