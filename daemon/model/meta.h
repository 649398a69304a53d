/* SPDX-License-Identifier: MIT */
/*
 * meta.h - make a GGUF image of keys alone, so that what a model says in other files is read as if a GGUF said it.
 *
 *	struct sits_meta m = { 0 };
 *
 *	sits_meta_str(&m, "general.architecture", "llama", 5);
 *	sits_meta_u32(&m, "llama.block_count", 2);
 *	ret = sits_meta_end(&m, &image, &len);	(free() the image once the index on it is closed)
 *
 * Calls after one that found no memory do nothing; sits_meta_end() tells. Keys are the caller's own: no two may be the same.
 */
#ifndef SITS_MODEL_META_H
#define SITS_MODEL_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/model/gguf.h"

struct sits_meta {
	uint8_t *p;
	size_t len, cap;
	uint64_t nr;
	bool failed;
};

void sits_meta_u32(struct sits_meta *m, const char *key, uint32_t v);
void sits_meta_f32(struct sits_meta *m, const char *key, float v);
void sits_meta_bool(struct sits_meta *m, const char *key, bool v);
void sits_meta_str(struct sits_meta *m, const char *key, const char *p, size_t len);
void sits_meta_strs(struct sits_meta *m, const char *key, const struct sits_str *s, uint64_t nr);
void sits_meta_bools(struct sits_meta *m, const char *key, const uint8_t *v, uint64_t nr);	/* 0 or 1 each */
void sits_meta_i32s(struct sits_meta *m, const char *key, const int32_t *v, uint64_t nr);

/** sits_meta_end() - @image: out, the caller's to free(). @m needs no more care, whatever is returned. Return: 0 or -ENOMEM. */
int sits_meta_end(struct sits_meta *m, uint8_t **image, size_t *len);

#endif
