/* SPDX-License-Identifier: MIT */
/*
 * hf_config.h - a model's config.json, in the form that Hugging Face transformers writes, said in the keys of a GGUF.
 */
#ifndef SITS_MODEL_HF_CONFIG_H
#define SITS_MODEL_HF_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/meta.h"

#define SITS_HF_MAX_END 64

/* What the rest of the directory is read with. */
struct sits_hf_config {
	const char *arch;	/* general.architecture; static */
	const char *type;	/* model_type; static */
	uint32_t vocab;		/* rows of the embedding */
	uint32_t layers;
	uint32_t mtp_layers;	/* layers behind them that predict further tokens and are not used here */
	bool tied;		/* the output matrix is the embedding */
	int64_t bos;		/* -1: none */
	int64_t end[SITS_HF_MAX_END];	/* eos_token_id: one or several */
	size_t nr_end;
	float *factors;		/* [nr_factors]: what llama-3 divides frequencies by; the caller's to free(); NULL: nothing */
	uint32_t nr_factors;
};

/**
 * sits_hf_config_read() - Translate config.json.
 * @text: @len: its bytes; borrowed until return
 * @meta: gets the keys general.* and {arch}.*
 * @out: zeroed first; free(out->factors) in any case
 *
 * Keys are either read, known to change no answer, or refused by name.
 * Return: 0; -EPROTONOSUPPORT for a model_type, key or value that is not supported; -EBADMSG for what is missing or of the
 * wrong type; -EFBIG; -ENOMEM.
 */
int sits_hf_config_read(const char *text, size_t len, struct sits_meta *meta, struct sits_hf_config *out, struct sits_diag *diag);

/** sits_hf_config_key() - Which key of config.json @key comes from, a GGUF's without "{arch}."; NULL: none. @c: as read. */
const char *sits_hf_config_key(const struct sits_hf_config *c, const char *key);

/** sits_hf_end_tokens() - Add the tokens of key eos_token_id, a number or an array, to @out. Return: 0 or -EBADMSG. */
int sits_hf_end_tokens(const json_t *root, const char *file, struct sits_hf_config *out, struct sits_diag *diag);

#endif
