/* SPDX-License-Identifier: MIT */
/*
 * hf_build.h - make the files of a small safetensors model in memory, right or wrong on purpose.
 *
 *	struct hf_build b;
 *
 *	hf_build_llama(&b);			one layer, 32 wide, 2 heads of 16, 8 tokens
 *	hf_build_set(&b, "config.json", "...");	replaces or adds a file
 *	hf_build_tensor(&b, "lm_head.weight", "F32", 2, (uint64_t[]){ 8, 32 });	more tensors, before end
 *	hf_build_end(&b);			now b.file, b.nr are what sits_model_open_files() takes
 *	hf_build_fini(&b);
 *
 * Every function aborts when memory or room is out.
 */
#ifndef SITS_TESTS_HF_BUILD_H
#define SITS_TESTS_HF_BUILD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/model.h"

#define HF_BUILD_MAX 8

struct hf_build {
	struct sits_model_file file[HF_BUILD_MAX];
	size_t nr;
	char header[8192];	/* of model.safetensors, while tensors are added */
	size_t header_len;
	uint8_t *data;
	size_t data_len;
};

static inline void *hf_build_alloc(size_t n)
{
	void *p = malloc(n ? n : 1);

	if (!p)
		abort();
	return p;
}

/* Bytes are copied, into memory of exactly their number. */
static inline void hf_build_put(struct hf_build *b, const char *name, const void *p, size_t len)
{
	void *copy = hf_build_alloc(len);
	size_t i;

	memcpy(copy, p, len);
	for (i = 0; i < b->nr && strcmp(b->file[i].name, name); i++)
		;
	if (i == HF_BUILD_MAX)
		abort();
	if (i < b->nr)
		free((void *)b->file[i].data);
	else
		b->nr++;
	b->file[i] = (struct sits_model_file){ name, copy, len };
}

static inline void hf_build_set(struct hf_build *b, const char *name, const char *text)
{
	hf_build_put(b, name, text, strlen(text));
}

static inline void hf_build_remove(struct hf_build *b, const char *name)
{
	size_t i;

	for (i = 0; i < b->nr && strcmp(b->file[i].name, name); i++)
		;
	if (i == b->nr)
		abort();
	free((void *)b->file[i].data);
	b->file[i] = b->file[--b->nr];
}

/* dims as the format has them: the row last. Values count up from 1/16 in steps of it. */
static inline void hf_build_tensor(struct hf_build *b, const char *name, const char *dtype, uint32_t nr_dims, const uint64_t *dim)
{
	size_t each = !strcmp(dtype, "F32") ? 4 : !strcmp(dtype, "F64") ? 8 : 2, n = 1, i;
	char shape[128] = "";
	float f;

	for (i = 0; i < nr_dims; i++) {
		n *= dim[i];
		snprintf(shape + strlen(shape), sizeof(shape) - strlen(shape), "%s%llu", i ? "," : "", (unsigned long long)dim[i]);
	}
	b->header_len += (size_t)snprintf(b->header + b->header_len, sizeof(b->header) - b->header_len,
					  "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", b->header_len ? "," : "{",
					  name, dtype, shape, b->data_len, b->data_len + n * each);
	if (b->header_len >= sizeof(b->header))
		abort();
	b->data = realloc(b->data, b->data_len + n * each + 1);
	if (!b->data)
		abort();
	for (i = 0; i < n; i++) {
		f = (float)(i % 64 + 1) / 16;
		/* The upper half of an F32 is a BF16; F64 and F16 are not looked at. */
		memcpy(b->data + b->data_len + i * each, (const char *)&f + (each == 2 ? 2 : 0), each == 2 ? 2 : 4);
	}
	b->data_len += n * each;
}

/* Close a safetensors file of this name. */
static inline void hf_build_shard(struct hf_build *b, const char *name)
{
	uint64_t len = b->header_len + 1;
	uint8_t *p = hf_build_alloc(8 + len + b->data_len);

	memcpy(p, &len, 8);
	memcpy(p + 8, b->header, b->header_len);
	p[8 + b->header_len] = '}';
	memcpy(p + 8 + len, b->data, b->data_len);
	hf_build_put(b, name, p, 8 + len + b->data_len);
	free(p);
	free(b->data);
	b->data = NULL;
	b->data_len = b->header_len = 0;
}

static inline void hf_build_end(struct hf_build *b)
{
	hf_build_shard(b, "model.safetensors");
}

static inline void hf_build_fini(struct hf_build *b)
{
	while (b->nr)
		free((void *)b->file[--b->nr].data);
	free(b->data);
}

static const char hf_build_config[] =
	"{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":1,"
	"\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":8,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-05,"
	"\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,\"bos_token_id\":6,\"eos_token_id\":[7,5]}";

static const char hf_build_tokenizer[] =
	"{\"version\":\"1.0\",\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true},{\"id\":7,\"content\":\"</s>\",\"special\":true}],"
	"\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},\"post_processor\":null,"
	"\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"c\":4},\"merges\":[\"a b\"]}}";

static inline void hf_build_tokens(struct hf_build *b)
{
	memset(b, 0, sizeof(*b));
	hf_build_set(b, "config.json", hf_build_config);
	hf_build_set(b, "tokenizer.json", hf_build_tokenizer);
}

/* The tensors of hf_build_config, matrices and vectors of a type each; the embedding alone, and all others. */
static inline void hf_build_embedding(struct hf_build *b, const char *matrix)
{
	hf_build_tensor(b, "model.embed_tokens.weight", matrix, 2, (const uint64_t[]){ 8, 32 });
}

static inline void hf_build_others(struct hf_build *b, const char *matrix, const char *vector)
{
#define HF_M(name, n, k) hf_build_tensor(b, name, matrix, 2, (const uint64_t[]){ n, k })
#define HF_V(name, k) hf_build_tensor(b, name, vector, 1, (const uint64_t[]){ k })
	HF_V("model.norm.weight", 32);
	HF_V("model.layers.0.input_layernorm.weight", 32);
	HF_V("model.layers.0.post_attention_layernorm.weight", 32);
	HF_M("model.layers.0.self_attn.q_proj.weight", 32, 32);
	HF_M("model.layers.0.self_attn.k_proj.weight", 16, 32);
	HF_M("model.layers.0.self_attn.v_proj.weight", 16, 32);
	HF_M("model.layers.0.self_attn.o_proj.weight", 32, 32);
	HF_M("model.layers.0.mlp.gate_proj.weight", 48, 32);
	HF_M("model.layers.0.mlp.up_proj.weight", 48, 32);
	HF_M("model.layers.0.mlp.down_proj.weight", 32, 48);
}

static inline void hf_build_llama(struct hf_build *b)
{
	hf_build_tokens(b);
	hf_build_embedding(b, "F32");
	hf_build_others(b, "F32", "F32");
}

#endif
