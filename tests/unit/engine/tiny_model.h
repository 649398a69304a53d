/* SPDX-License-Identifier: MIT */
/*
 * tiny_model.h - a model of random weights, small enough to make in each test.
 *
 * Its vocabulary is the 256 bytes, so that any text can come out of it, two control tokens (256
 * begins, 257 ends), and "ab", made by the one merge. The same options give the same bytes on every machine.
 */
#ifndef SITS_TESTS_ENGINE_TINY_MODEL_H
#define SITS_TESTS_ENGINE_TINY_MODEL_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "tests/unit/engine/rng.h"
#include "tests/unit/model/gguf_build.h"

#define TINY_VOCAB 259
#define TINY_BOS 256
#define TINY_EOS 257

struct tiny_opts {
	uint32_t layers, embd, ff, heads, kv_heads, head_dim, context;	/* 0: 2, 64, 96, 4, 2, embd/heads, 512 */
	uint32_t type, type_v, type_out;	/* of the matrices; of v and down; of the embedding and output */
	bool biases, untied, rope_freqs, no_eos;
	bool other_merge;	/* the last token is "cd" */
	const char *arch;	/* NULL: llama; any that family.h describes */
	uint32_t experts, used, expert_ff, shared_ff;	/* a mixture where experts > 0; 0: used 2, expert_ff = ff */
	uint32_t type_router;
	bool equal_experts;	/* all of an expert's matrices are those that the dense model has in their place */
	bool apart;		/* a tensor for each expert */
	uint32_t window;
	int32_t nan_token;	/* > 0: this token's embedding is NaN (needs untied) */
	uint64_t seed;
	void (*extra)(struct gguf_build *b);	/* adds keys or tensors at the end */
};

/* The printable stand-in for a byte in byte-level BPE. Source: GPT-2's encoder.py, bytes_to_unicode(). */
static inline uint32_t tiny_byte_char(uint32_t b)
{
	uint32_t i, n = 0;

	for (i = 0; i < 256; i++) {
		bool printable = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;

		if (i == b)
			return printable ? b : 256 + n;
		n += !printable;
	}
	return 0;
}

static inline void tiny_vocabulary(struct gguf_build *b, bool no_eos, bool other_merge)
{
	static char text[TINY_VOCAB][16];
	const char *names[TINY_VOCAB];
	int32_t types[TINY_VOCAB];
	uint32_t i, c;

	for (i = 0; i < 256; i++) {
		c = tiny_byte_char(i);
		if (c < 0x80)
			snprintf(text[i], sizeof(text[i]), "%c", (int)c);
		else
			snprintf(text[i], sizeof(text[i]), "%c%c", 0xC0 | c >> 6, 0x80 | (c & 0x3F));
		types[i] = 1;
	}
	snprintf(text[TINY_BOS], sizeof(text[0]), "<s>");
	snprintf(text[TINY_EOS], sizeof(text[0]), "</s>");
	snprintf(text[TINY_EOS + 1], sizeof(text[0]), other_merge ? "cd" : "ab");
	types[TINY_BOS] = types[TINY_EOS] = 3;
	types[TINY_EOS + 1] = 1;
	for (i = 0; i < TINY_VOCAB; i++)
		names[i] = text[i];
	gguf_build_str(b, "tokenizer.ggml.model", "gpt2");
	gguf_build_str(b, "tokenizer.ggml.pre", "gpt-2");
	gguf_build_strs(b, "tokenizer.ggml.tokens", names, TINY_VOCAB);
	gguf_build_array(b, "tokenizer.ggml.token_type", 5, TINY_VOCAB, types, sizeof(types));
	gguf_build_strs(b, "tokenizer.ggml.merges", (const char *[]){ other_merge ? "c d" : "a b" }, 1);
	gguf_build_u32(b, "tokenizer.ggml.bos_token_id", TINY_BOS);
	if (!no_eos)
		gguf_build_u32(b, "tokenizer.ggml.eos_token_id", TINY_EOS);
}

static inline void tiny_tokens(struct gguf_build *b, bool no_eos)
{
	tiny_vocabulary(b, no_eos, false);
}

static inline void tiny_half(uint8_t *p, float v)
{
	uint16_t h = sits_f32_to_f16(v);

	memcpy(p, &h, sizeof(h));
}

/* One block whose values have about the given deviation; random bytes under fixed scales. */
static inline void tiny_block(struct rng *r, uint32_t type, uint32_t bytes, float dev, uint8_t *p)
{
	uint16_t h;
	uint32_t i, u;
	float f;

	for (i = 0; i < bytes; i++)
		p[i] = rng_next(r);
	switch (type) {
	case SITS_F32:
		f = dev * rng_normal(r);
		memcpy(p, &f, sizeof(f));
		break;
	case SITS_F16:
		tiny_half(p, dev * rng_normal(r));
		break;
	case SITS_BF16:
		u = sits_f32_bits(dev * rng_normal(r)) >> 16;
		h = u;
		memcpy(p, &h, sizeof(h));
		break;
	case SITS_Q8_0:
		tiny_half(p, dev / 74);
		break;
	case SITS_Q4_0:
		tiny_half(p, dev / 4.6f);
		break;
	case SITS_Q5_0:
		tiny_half(p, dev / 9.2f);
		break;
	case SITS_Q4_1:
		tiny_half(p, dev / 4.6f);
		tiny_half(p + 2, -7.5f * dev / 4.6f);
		break;
	case SITS_Q5_1:
		tiny_half(p, dev / 9.2f);
		tiny_half(p + 2, -15.5f * dev / 9.2f);
		break;
	case SITS_Q4_K:	/* d, dmin; sub-scales are random 6-bit numbers */
		tiny_half(p, dev / 150);
		tiny_half(p + 2, 7.5f * dev / 150);
		break;
	case SITS_Q5_K:
		tiny_half(p, dev / 300);
		tiny_half(p + 2, 15.5f * dev / 300);
		break;
	case SITS_Q6_K:	/* d last */
		tiny_half(p + bytes - 2, dev / 1400);
		break;
	default:
		abort();
	}
}

/* Fill @len bytes of blocks. */
static inline void tiny_fill(struct rng *r, uint32_t type, uint64_t len, float dev, uint8_t *p)
{
	const uint32_t bytes = sits_dtype_info(type)->block_bytes;
	uint64_t i;

	for (i = 0; i < len; i += bytes)
		tiny_block(r, type, bytes, dev, p + i);
}

static inline void tiny_tensor(struct gguf_build *b, struct rng *r, const char *name, uint32_t type, uint64_t K,
			       uint64_t N, float dev)
{
	const uint64_t len = sits_dtype_matrix_bytes(type, K, N);
	uint64_t ne[2] = { K, N };
	uint8_t *p = malloc(len);

	if (!p || !len)
		abort();
	tiny_fill(r, type, len, dev, p);
	gguf_build_tensor(b, name, type, N > 1 ? 2 : 1, ne, p, len);
	free(p);
}

/* Matrices of all experts, "blk.@l.@name", in one tensor or apart. */
static inline void tiny_stack(struct gguf_build *b, struct rng *r, const struct tiny_opts *o, uint32_t l, const char *name,
			      uint32_t type, uint64_t K, uint64_t N)
{
	const uint64_t len = sits_dtype_matrix_bytes(type, K, N);
	uint64_t ne[3] = { K, N, o->experts };
	uint8_t *p = malloc(len * o->experts);
	char full[64];
	uint32_t x;

	if (!p || !len)
		abort();
	for (x = 0; x < o->experts; x++) {
		if (x && o->equal_experts)
			memcpy(p + x * len, p, len);
		else
			tiny_fill(r, type, len, 1.5f / sqrtf(K), p + x * len);
		snprintf(full, sizeof(full), "blk.%u.%s.%u.weight", l, name, x);
		if (o->apart)
			gguf_build_tensor(b, full, type, 2, ne, p + x * len, len);
	}
	snprintf(full, sizeof(full), "blk.%u.%s_exps.weight", l, name);
	if (!o->apart)
		gguf_build_tensor(b, full, type, 3, ne, p, len * o->experts);
	free(p);
}

/* Gains around one. */
static inline void tiny_gain(struct gguf_build *b, struct rng *r, const char *name, uint64_t K)
{
	float *p = malloc(K * sizeof(*p));
	uint64_t i;

	if (!p)
		abort();
	for (i = 0; i < K; i++)
		p[i] = 1 + 0.1f * rng_normal(r);
	gguf_build_tensor(b, name, SITS_F32, 1, &K, p, K * sizeof(*p));
	free(p);
}

static inline void tiny_defaults(struct tiny_opts *o)
{
	o->layers = o->layers ? o->layers : 2;
	o->embd = o->embd ? o->embd : 64;
	o->ff = o->ff ? o->ff : 96;
	o->heads = o->heads ? o->heads : 4;
	o->kv_heads = o->kv_heads ? o->kv_heads : 2;
	o->head_dim = o->head_dim ? o->head_dim : o->embd / o->heads;
	o->context = o->context ? o->context : 512;
	o->arch = o->arch ? o->arch : "llama";
	o->used = o->used ? o->used : 2;
	o->expert_ff = o->expert_ff ? o->expert_ff : o->ff;
}

static inline bool tiny_is(const struct tiny_opts *o, const char *arch)
{
	return !strcmp(o->arch, arch);
}

static inline void tiny_u32(struct gguf_build *b, const struct tiny_opts *o, const char *key, uint32_t v)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", o->arch, key);
	gguf_build_u32(b, name, v);
}

static inline void tiny_f32(struct gguf_build *b, const struct tiny_opts *o, const char *key, float v)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", o->arch, key);
	gguf_build_f32(b, name, v);
}

static inline void tiny_keys(struct gguf_build *b, const struct tiny_opts *o)
{
	gguf_build_str(b, "general.architecture", o->arch);
	gguf_build_str(b, "general.name", "tiny");
	tiny_u32(b, o, "block_count", o->layers);
	tiny_u32(b, o, "context_length", o->context);
	tiny_u32(b, o, "embedding_length", o->embd);
	tiny_u32(b, o, "feed_forward_length", o->ff);
	tiny_u32(b, o, "attention.head_count", o->heads);
	tiny_u32(b, o, "attention.head_count_kv", o->kv_heads);
	tiny_u32(b, o, "attention.key_length", o->head_dim);
	tiny_u32(b, o, "attention.value_length", o->head_dim);
	tiny_f32(b, o, "attention.layer_norm_rms_epsilon", 1e-5f);
	tiny_f32(b, o, "rope.freq_base", 10000.0f);
	if (o->window)
		tiny_u32(b, o, "attention.sliding_window", o->window);
	if (o->experts) {
		tiny_u32(b, o, "expert_count", o->experts);
		tiny_u32(b, o, "expert_used_count", o->used);
		tiny_u32(b, o, "expert_feed_forward_length", o->expert_ff);
	}
	if (o->shared_ff)
		tiny_u32(b, o, "expert_shared_feed_forward_length", o->shared_ff);
	tiny_vocabulary(b, o->no_eos, o->other_merge);
}

struct tiny_mat {
	const char *name;
	uint32_t type;
	uint64_t K, N;
};

static inline void tiny_mats(struct gguf_build *b, struct rng *r, uint32_t l, const struct tiny_mat *mat, size_t nr,
			     bool biases)
{
	char name[64];
	size_t i;

	for (i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "blk.%u.%s.weight", l, mat[i].name);
		tiny_tensor(b, r, name, mat[i].type, mat[i].K, mat[i].N, 1.5f / sqrtf(mat[i].K));
		if (!biases)
			continue;
		snprintf(name, sizeof(name), "blk.%u.%s.bias", l, mat[i].name);
		tiny_tensor(b, r, name, SITS_F32, mat[i].N, 1, 0.3f);
	}
}

static inline void tiny_experts(struct gguf_build *b, struct rng *r, const struct tiny_opts *o, uint32_t l)
{
	const uint64_t E = o->embd, F = o->expert_ff, S = o->shared_ff;
	const struct tiny_mat shared[] = {
		{ "ffn_gate_shexp", o->type, E, S }, { "ffn_up_shexp", o->type, E, S }, { "ffn_down_shexp", o->type_v, S, E },
		{ "ffn_gate_inp_shexp", o->type_router, E, 1 },
	};
	const struct tiny_mat router = { "ffn_gate_inp", o->type_router, E, o->experts };
	struct rng own = { o->seed + 1000 + l };

	tiny_stack(b, r, o, l, "ffn_gate", o->type, E, F);
	tiny_stack(b, r, o, l, "ffn_up", o->type, E, F);
	tiny_stack(b, r, o, l, "ffn_down", o->type_v, F, E);
	/* Drawn apart, so that the rest of the model is what it is without a router. */
	tiny_mats(b, &own, l, &router, 1, false);
	if (S)
		tiny_mats(b, &own, l, shared, 4, false);
}

static inline void tiny_layer(struct gguf_build *b, struct rng *r, const struct tiny_opts *o, uint32_t l)
{
	const uint64_t E = o->embd, Q = o->heads * o->head_dim, G = o->kv_heads * o->head_dim, F = o->ff;
	const bool all = tiny_is(o, "olmoe"), qwen2 = tiny_is(o, "qwen2") || tiny_is(o, "qwen2moe");
	const struct tiny_mat qkv[] = {
		{ "attn_q", o->type, E, Q }, { "attn_k", o->type, E, G }, { "attn_v", o->type_v, E, G },
	}, out[] = {
		{ "attn_output", o->type, Q, E },
	}, ffn[] = {
		{ "ffn_gate", o->type, E, F }, { "ffn_up", o->type, E, F }, { "ffn_down", o->type_v, F, E },
	};
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.attn_norm.weight", l);
	tiny_gain(b, r, name, E);
	snprintf(name, sizeof(name), "blk.%u.ffn_norm.weight", l);
	tiny_gain(b, r, name, E);
	tiny_mats(b, r, l, qkv, 3, o->biases || qwen2);
	tiny_mats(b, r, l, out, 1, o->biases);
	if (o->experts)
		tiny_experts(b, r, o, l);
	else
		tiny_mats(b, r, l, ffn, 3, o->biases);
	if (!all && strncmp(o->arch, "qwen3", 5))
		return;
	snprintf(name, sizeof(name), "blk.%u.attn_q_norm.weight", l);
	tiny_gain(b, r, name, all ? Q : o->head_dim);
	snprintf(name, sizeof(name), "blk.%u.attn_k_norm.weight", l);
	tiny_gain(b, r, name, all ? G : o->head_dim);
}

/* The image; free() it. */
static inline void *tiny_model(struct tiny_opts o, size_t *len)
{
	struct rng r = { o.seed + 1 };
	struct gguf_build b;
	uint64_t ne[2], i;
	float *embd;

	tiny_defaults(&o);
	gguf_build_begin(&b);
	tiny_keys(&b, &o);
	if (o.nan_token > 0) {
		ne[0] = o.embd;
		ne[1] = TINY_VOCAB;
		embd = malloc(ne[0] * ne[1] * sizeof(*embd));
		if (!embd)
			abort();
		for (i = 0; i < ne[0] * ne[1]; i++)
			embd[i] = i / o.embd == (uint64_t)o.nan_token ? NAN : rng_normal(&r);
		gguf_build_tensor(&b, "token_embd.weight", SITS_F32, 2, ne, embd, ne[0] * ne[1] * sizeof(*embd));
		free(embd);
	} else {
		tiny_tensor(&b, &r, "token_embd.weight", o.type_out, o.embd, TINY_VOCAB, 1);
	}
	for (i = 0; i < o.layers; i++)
		tiny_layer(&b, &r, &o, i);
	tiny_gain(&b, &r, "output_norm.weight", o.embd);
	if (o.untied)
		tiny_tensor(&b, &r, "output.weight", o.type_out, o.embd, TINY_VOCAB, 3.0f / sqrtf(o.embd));
	if (o.rope_freqs) {
		float f[SITS_KV_PAGE_TOKENS * 8];

		ne[0] = o.head_dim / 2;
		for (i = 0; i < ne[0]; i++)
			f[i] = i < ne[0] / 2 ? 1 : 8;
		gguf_build_tensor(&b, "rope_freqs.weight", SITS_F32, 1, ne, f, ne[0] * sizeof(*f));
	}
	if (o.extra)
		o.extra(&b);
	return gguf_build_end(&b, len);
}

#endif
