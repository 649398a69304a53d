/* SPDX-License-Identifier: MIT */
/*
 * safetensors.h - one safetensors file, read in place.
 *
 *	 0        8            8 + N
 *	| N, u64 | JSON header | data: tensor after tensor, without gaps ... end of file |
 *
 * Nothing is copied but the names; tensors point into the caller's bytes, which are hostile: every rule of the format is
 * checked before anything is handed out. What the tensors mean is not known here.
 *
 * Source: "Format" in the README of huggingface/safetensors, and what its reader (safetensors/src/tensor.rs) refuses.
 */
#ifndef SITS_MODEL_SAFETENSORS_H
#define SITS_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/gguf.h"

#define SITS_ST_MAX_DIMS	8
#define SITS_ST_MAX_HEADER	100000000u	/* bytes, as the format's own reader */
#define SITS_ST_MAX_NAME	1024		/* bytes */

struct sits_st;			/* the index; opaque */

struct sits_st_tensor {
	struct sits_str name;	/* NUL-terminated too; UTF-8 without control characters */
	const char *dtype;	/* as the format writes it: "F32", "BF16", ...; static */
	uint32_t nr_dims;	/* 0 to SITS_ST_MAX_DIMS */
	uint64_t dim[SITS_ST_MAX_DIMS];	/* outermost first: the last one is the row; may be 0 */
	const void *data;	/* in place; aligned as the file's writer did, perhaps not at all */
	uint64_t bytes;
};

/**
 * sits_st_open() - Index a safetensors file.
 * @file: its name, for messages; borrowed until return
 * @data: @len: its bytes; borrowed until sits_st_close()
 * @out: the index, owned by the caller
 * @diag: names the file, and the tensor or key
 * Return: 0; -EBADMSG where the bytes break a rule of the format; -EPROTONOSUPPORT for an element type that is not known;
 * -EFBIG for a header of more than some 350,000 tensors; -ENOMEM.
 */
int sits_st_open(const char *file, const void *data, size_t len, struct sits_st **out, struct sits_diag *diag);
void sits_st_close(struct sits_st *s);	/* NULL is allowed */

/* In the order of their data. */
size_t sits_st_nr(const struct sits_st *s);
const struct sits_st_tensor *sits_st_at(const struct sits_st *s, size_t i);	/* NULL beyond the last */

#endif
