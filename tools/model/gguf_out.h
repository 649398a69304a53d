/* SPDX-License-Identifier: MIT */
/*
 * gguf_out.h - write a GGUF version 3 file that appears whole or not at all.
 *
 *	gguf_out_open(...);		the file without a name
 *	gguf_out_key(...)...		keys, in order
 *	gguf_out_tensor(...)...		names, shapes and types, in order
 *	gguf_out_begin(...);		the metadata is written, the disk's space is taken
 *	gguf_out_write(...)...		the tensors' bytes, in order; padding is put in by itself
 *	gguf_out_commit(...);		durable, and at its path
 *
 * Failures leave nothing behind. Source: the GGUF specification in the ggml repository (docs/gguf.md), version 3.
 */
#ifndef SITS_TOOLS_GGUF_OUT_H
#define SITS_TOOLS_GGUF_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/gguf.h"

struct gguf_out;
struct sits_ctx;

/**
 * gguf_out_open() - Begin a file at @path, which its owner alone may read.
 * @ctx: for the log lines of libsits' temporary file; borrowed until commit or abort, as is @path
 * @replace: replace a file that is there; else it is refused, now and at commit
 * @align: general.alignment, a power of two from 8 up; the key is written where it is not the format's default, 32
 * Return: 0; -EEXIST; -errno, logged; -ENOMEM.
 */
int gguf_out_open(struct sits_ctx *ctx, const char *path, bool replace, uint32_t align, struct gguf_out **out);

/** gguf_out_abort() - Give it up; nothing is left. NULL is allowed. */
void gguf_out_abort(struct gguf_out *o);

/* Keys. Names are copied. general.alignment is gguf_out_open()'s. Return: 0; -ENOMEM. */
int gguf_out_key_u32(struct gguf_out *o, const char *key, uint32_t v);
int gguf_out_key_str(struct gguf_out *o, const char *key, struct sits_str v);
int gguf_out_key_i32s(struct gguf_out *o, const char *key, const int32_t *v, uint64_t nr);

/**
 * gguf_out_keys_of() - All keys of another file, byte for byte, but for general.alignment and those in @but.
 * @g: open on its bytes
 * @but: NULL-terminated names
 */
int gguf_out_keys_of(struct gguf_out *o, const struct sits_gguf *g, const char *const *but);

/**
 * gguf_out_tensor() - The next tensor.
 * @ne: as in the format, ne[0] the row; [nr_dims] of 1 to 4
 * @bytes: of its data, as its type has it for this shape
 * Return: 0; -ENOMEM; -EOVERFLOW.
 */
int gguf_out_tensor(struct gguf_out *o, struct sits_str name, uint32_t nr_dims, const uint64_t *ne, uint32_t type,
		    uint64_t bytes);

/** gguf_out_begin() - After the last tensor. Return: 0; -ENOSPC; -errno with words. */
int gguf_out_begin(struct gguf_out *o, struct sits_diag *diag);

/** gguf_out_write() - The next @len bytes of the tensors' data. Return: 0; -errno with words. */
int gguf_out_write(struct gguf_out *o, const void *p, size_t len, struct sits_diag *diag);

/** gguf_out_commit() - All bytes of all tensors were written. Always frees @o. @bytes: out: the file's size; may be NULL.
 * Return: 0; -errno, logged. */
int gguf_out_commit(struct gguf_out *o, uint64_t *bytes);

#endif
