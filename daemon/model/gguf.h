/* SPDX-License-Identifier: MIT */
/*
 * gguf.h - GGUF version 3, read in place.
 *
 * Nothing is copied but an index; keys, strings, arrays and tensors point into the caller's
 * bytes. The bytes are hostile: every rule of the format is checked before anything is handed out.
 *
 * Source: the GGUF specification in the ggml repository (docs/gguf.md), version 3.
 */
#ifndef SITS_MODEL_GGUF_H
#define SITS_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"

#define SITS_GGUF_MAX_DIMS 4

/* Value types of the format. */
enum sits_gguf_type {
	SITS_GGUF_U8, SITS_GGUF_I8, SITS_GGUF_U16, SITS_GGUF_I16, SITS_GGUF_U32, SITS_GGUF_I32,
	SITS_GGUF_F32, SITS_GGUF_BOOL, SITS_GGUF_STRING, SITS_GGUF_ARRAY, SITS_GGUF_U64,
	SITS_GGUF_I64, SITS_GGUF_F64,
};

struct sits_gguf;		/* the index; opaque */

/* Bytes inside the file, not NUL-terminated. */
struct sits_str {
	const char *p;
	size_t len;
};

struct sits_gguf_tensor {
	struct sits_str name;
	uint32_t nr_dims;	/* 1 to 4 */
	uint64_t ne[SITS_GGUF_MAX_DIMS];	/* ne[0] is the row; unused ones are 1 */
	uint32_t type;		/* enum sits_dtype in kernels/kernels.h */
	const void *data;	/* in place; aligned to general.alignment from the file's start */
	uint64_t bytes;
};

/**
 * sits_gguf_open() - Index a GGUF image.
 * @data: borrowed until sits_gguf_close(); @len: its length in bytes
 * @out: the index, owned by the caller
 * @diag: says what is wrong and at which byte offset, key or tensor
 * Return: 0; -EBADMSG where the bytes break a rule of the format; -EPROTONOSUPPORT for a version,
 * byte order or tensor type not read here; -ENOMEM.
 */
int sits_gguf_open(const void *data, size_t len, struct sits_gguf **out, struct sits_diag *diag);
void sits_gguf_close(struct sits_gguf *g);	/* NULL is allowed */

/**
 * sits_gguf_attach() - Give an index of a file without tensors those that are elsewhere.
 * @g: from an image of keys alone (meta.h)
 * @t: [nr]; copied, but for the names and data, which must stay until sits_gguf_close()
 * Return: 0; -EBADMSG where two have one name; -EINVAL where @g has tensors; -ENOMEM.
 */
int sits_gguf_attach(struct sits_gguf *g, const struct sits_gguf_tensor *t, size_t nr, struct sits_diag *diag);

/* Typed look-up. Return 0; -ENOENT where the key is absent; -EINVAL where it is of another type
 * or does not fit. Any integer type converts to u64 if it is not negative. */
int sits_gguf_get_u64(const struct sits_gguf *g, const char *key, uint64_t *v);
int sits_gguf_get_f32(const struct sits_gguf *g, const char *key, float *v);	/* F32, F64 */
int sits_gguf_get_bool(const struct sits_gguf *g, const char *key, bool *v);
int sits_gguf_get_str(const struct sits_gguf *g, const char *key, struct sits_str *v);

/* An array of fixed-size elements: unaligned, use memcpy to read one. */
struct sits_gguf_array {
	enum sits_gguf_type type;
	uint64_t nr;
	const void *data;	/* NULL for arrays of strings or arrays */
	const struct sits_str *strings;	/* ARRAY of STRING: [nr], indexed; else NULL */
};
int sits_gguf_get_array(const struct sits_gguf *g, const char *key, struct sits_gguf_array *v);

/* Walk in file order. Key names and types for inspection. */
uint64_t sits_gguf_nr_keys(const struct sits_gguf *g);
int sits_gguf_key_at(const struct sits_gguf *g, uint64_t i, struct sits_str *key, enum sits_gguf_type *type);
const void *sits_gguf_keys_end(const struct sits_gguf *g);	/* in the file: the byte behind the last key's value */
uint64_t sits_gguf_nr_tensors(const struct sits_gguf *g);
const struct sits_gguf_tensor *sits_gguf_tensor_at(const struct sits_gguf *g, uint64_t i);
/** sits_gguf_find() - A tensor by name, or NULL. */
const struct sits_gguf_tensor *sits_gguf_find(const struct sits_gguf *g, const char *name);

#endif
