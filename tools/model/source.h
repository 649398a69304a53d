/* SPDX-License-Identifier: MIT */
/*
 * source.h - a model to be written anew as a GGUF: a GGUF file, or the directory of a safetensors model.
 *
 * A directory is seen as the GGUF that it becomes: the experts of a layer are one tensor, q and k of the llama architecture have
 * their rows in a GGUF's order, and tokenizer.json goes along whole, as a key.
 */
#ifndef SITS_TOOLS_SOURCE_H
#define SITS_TOOLS_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/model.h"
#include "tools/model/model.h"

struct gguf_out;
struct quant_plan;

/* Owned by the caller of source_open(); @path is borrowed until source_close(). */
struct source {
	const char *path;
	bool is_dir;
	uint64_t bytes;			/* of all its files */
	const struct sits_gguf *g;	/* for a plan: tensors as they will be */
	/* The rest is source.c's. A GGUF file: */
	struct mapped file;
	struct sits_gguf *own;		/* @g, of a directory without keys */
	/* A directory: */
	struct sits_model_file *files;	/* [nr_files]; names are those of the manifest */
	size_t nr_files;
	struct sits_manifest *manifest;
	struct sits_model *m;
	uint8_t *image;			/* below @own */
	char *names;			/* of its tensors */
	const void ***part;		/* [tensors of g] */
};

/** source_open() - Read it, whole, as far as metadata goes. Return: 0; -errno with words. */
int source_open(const char *path, struct source *s, struct sits_diag *diag);
void source_close(struct source *s);	/* zero-initialised is allowed */

/** source_model() - The model, to be computed with; borrows @s. @m: the caller's to close. Return: 0; -errno with words. */
int source_model(const struct source *s, struct sits_model **m, struct sits_diag *diag);

/** source_plan() - Tell a plan that was made of @s->g where rows lie. Before quant_run(). */
void source_plan(const struct source *s, struct quant_plan *p);

/** source_keys() - All keys of the new file, but those in @but. Return: 0; -ENOMEM. */
int source_keys(const struct source *s, struct gguf_out *o, const char *const *but);

#endif
