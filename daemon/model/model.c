// SPDX-License-Identifier: MIT
/*
 * model.c - open a model: GGUF or safetensors, tokenizer, chat template, and the architecture's own part.
 *
 * The metadata is hostile until checked. What this file and the architectures do not know they
 * refuse by name; a key that is skipped in silence may be the one that changes the answer.
 */
#include "daemon/model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/arch.h"
#include "daemon/model/hf.h"
#include "daemon/model/tok_json.h"

static const struct sits_arch *const archs[] = {
	&sits_arch_deepseek2, &sits_arch_llama, &sits_arch_olmoe, &sits_arch_qwen2, &sits_arch_qwen2moe, &sits_arch_qwen3,
	&sits_arch_qwen3moe,
};

#define NR_ARCHS (sizeof(archs) / sizeof(archs[0]))

static int find_arch(const struct sits_model *m, const struct sits_arch **out, struct sits_diag *diag)
{
	char known[256] = "";
	size_t i, len = 0;

	for (i = 0; i < NR_ARCHS; i++) {
		if (strlen(archs[i]->name) == m->arch.len && !memcmp(archs[i]->name, m->arch.p, m->arch.len)) {
			*out = archs[i];
			return 0;
		}
		len += snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "", archs[i]->name);
	}
	return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: architecture \"%.*s\" is not known here; known: %s",
			      (int)(m->arch.len > 64 ? 64 : m->arch.len), m->arch.p, known);
}

static void pick_chat(struct sits_model *m)
{
	int ret = sits_chat_pick(m->gguf, &m->chat, &m->chat_diag);

	if (!ret)
		return;
	m->chat = NULL;
	sits_diag_fail(&m->chat_diag, ret, "model: no chat template in the metadata; pass a raw prompt");
}

static int32_t find_start_token(const struct sits_model *m)
{
	static const char *const ends[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id" };
	int32_t id = sits_tokenizer_bos(m->tok);
	uint64_t v;
	size_t i;

	for (i = 0; id < 0 && i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!sits_gguf_get_u64(m->gguf, ends[i], &v) && v < m->hp.vocab)
			id = v;
	return id;
}

/* From the keys of a GGUF, from a tokenizer.json in them, or from the one of a directory. */
static int make_tokenizer(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_tok_json json;
	struct sits_str s;
	int ret;

	if (m->dir)
		return sits_tokenizer_create_ext(m->gguf, sits_hf_tokenizer(m->dir), &m->tok, diag);
	if (sits_gguf_get_str(m->gguf, "tokenizer.ggml.model", &s) != -ENOENT ||
	    sits_gguf_get_str(m->gguf, SITS_TOK_JSON_KEY, &s) == -ENOENT)
		return sits_tokenizer_create(m->gguf, &m->tok, diag);
	ret = sits_tok_json_embedded(m->gguf, &json, diag);
	if (!ret)
		ret = sits_tokenizer_create_ext(m->gguf, &json.ext, &m->tok, diag);
	sits_tok_json_fini(&json);
	return ret;
}

/* Everything behind the index. */
static int build(struct sits_model *m, struct sits_diag *diag)
{
	const struct sits_arch *arch;
	int ret;

	ret = sits_gguf_get_str(m->gguf, "general.architecture", &m->arch);
	if (ret)
		return sits_diag_fail(diag, -EBADMSG, "model: key general.architecture is %s",
				      ret == -ENOENT ? "missing" : "not a string");
	if (sits_gguf_get_str(m->gguf, "general.name", &m->name))
		m->name = m->arch;
	ret = find_arch(m, &arch, diag);
	if (!ret)
		ret = make_tokenizer(m, diag);
	if (!ret)
		ret = arch->load(m, diag);
	if (ret)
		return ret;
	m->start_token = find_start_token(m);
	pick_chat(m);
	return 0;
}

int sits_model_open(const void *data, size_t len, struct sits_model **out, struct sits_diag *diag)
{
	struct sits_model *m = calloc(1, sizeof(*m));
	int ret;

	if (!m)
		return -ENOMEM;
	ret = sits_gguf_open(data, len, &m->gguf, diag);
	if (!ret)
		ret = build(m, diag);
	if (ret)
		sits_model_close(m);
	else
		*out = m;
	return ret;
}

int sits_model_open_files(const struct sits_model_file *files, size_t nr, struct sits_model **out, struct sits_diag *diag)
{
	struct sits_model *m;
	int ret;

	if (nr == 1)
		return sits_model_open(files[0].data, files[0].len, out, diag);
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->hf = true;
	ret = sits_hf_open(files, nr, &m->dir, diag);
	if (!ret) {
		m->gguf = sits_hf_index(m->dir);
		ret = build(m, diag);
		if (ret && diag)
			sits_hf_reword(m->dir, diag);
		sits_hf_drop_tokenizer(m->dir);
	}
	if (ret)
		sits_model_close(m);
	else
		*out = m;
	return ret;
}

void sits_model_close(struct sits_model *m)
{
	if (!m)
		return;
	free(m->inv_freq);
	free(m->tables);
	free(m->layer);
	sits_tokenizer_destroy(m->tok);
	if (m->dir)
		sits_hf_close(m->dir);	/* with the index */
	else
		sits_gguf_close(m->gguf);
	free(m);
}

int32_t sits_model_start_token(const struct sits_model *m)
{
	return m->start_token;
}
