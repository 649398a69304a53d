/* SPDX-License-Identifier: MIT */
/*
 * hf.h - a model in the files of Hugging Face transformers: config.json, tokenizer.json, safetensors, and some more.
 *
 * The directory becomes an index like that of a GGUF: keys under a GGUF's names, tensors under a GGUF's names that point into
 * the safetensors files. So architectures, chat templates and whoever describes a model read one thing. What is left of the
 * difference: rows of q and k have their own order (struct sits_model, hf), and experts are tensors of their own
 * ("blk.N.ffn_gate.E.weight").
 */
#ifndef SITS_MODEL_HF_H
#define SITS_MODEL_HF_H

#include <stddef.h>

#include "daemon/diag.h"
#include "daemon/model/gguf.h"
#include "daemon/model/tok_json.h"

struct sits_model_file;
struct sits_hf;			/* what the index stands on */

/**
 * sits_hf_open() - Read the files.
 * @files: [nr], as in model.h; the bytes of safetensors files are borrowed until sits_hf_close(), the others' until return
 * @out: owned by the caller
 *
 * Matrices are used in place. Vectors that are not F32, or not aligned to 4 bytes, are written as F32 into memory of
 * their own (sits_mem_map()): some kilobytes for each layer.
 *
 * Return: 0; -EPROTONOSUPPORT for what is not supported, by name; -EBADMSG for what is inconsistent; -EFBIG; -ENOMEM.
 */
int sits_hf_open(const struct sits_model_file *files, size_t nr, struct sits_hf **out, struct sits_diag *diag);
void sits_hf_close(struct sits_hf *h);	/* NULL is allowed; after the tokenizer and whatever uses the index */

/** sits_hf_reword() - What is said of the index's keys and tensors, in the names that the files have. Other words stay. */
void sits_hf_reword(const struct sits_hf *h, struct sits_diag *diag);

struct sits_gguf *sits_hf_index(struct sits_hf *h);	/* owned by @h */
/** sits_hf_tokenizer() - For sits_tokenizer_create_ext(), once. */
const struct sits_tok_ext *sits_hf_tokenizer(const struct sits_hf *h);
/** sits_hf_drop_tokenizer() - Free what sits_hf_tokenizer() gave. */
void sits_hf_drop_tokenizer(struct sits_hf *h);

#endif
