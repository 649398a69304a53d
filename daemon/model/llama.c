// SPDX-License-Identifier: MIT
/*
 * llama.c - the llama architecture from GGUF metadata: Llama 1 to 3, SmolLM, TinyLlama, Mistral 7B
 * and others that share its graph.
 *
 * Per layer: RMS norm, grouped-query attention with interleaved (NORM) RoPE, residual, RMS norm,
 * SwiGLU, residual. Optional: biases, a tied output matrix, linear RoPE scaling, the per-frequency
 * factors of Llama 3.1 (tensor rope_freqs.weight). Not here: experts, YaRN, sliding windows.
 *
 * Source: the GGUF specification (docs/gguf.md in the ggml repository), section "LLM".
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/arch.h"
#include "kernels/kernels.h"

/* Keys that are read below, and such as can't change an answer. */
static const char *const known_keys[] = {
	"block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
	"attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
	"attention.key_length", "attention.value_length", "attention.sliding_window", "attention.causal",
	"rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
	"rope.scaling.original_context_length", "rope.scaling.finetuned", "tensor_data_layout",
	"expert_count", "expert_used_count", NULL,
};

/* Older converters stored this table, which follows from the metadata. */
static const char *const harmless_tensors[] = { "rope_freqs.weight", NULL };

static int load_sizes(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_hparams *hp = &m->hp;
	uint32_t v_dim;
	int ret;

	ret = sits_arch_u32(m, "block_count", 1, SITS_MODEL_MAX_LAYERS, &hp->layers, diag);
	if (!ret)
		ret = sits_arch_u32(m, "context_length", 1, SITS_MODEL_MAX_CONTEXT, &hp->context, diag);
	if (!ret)
		ret = sits_arch_u32(m, "embedding_length", 1, SITS_MODEL_MAX_EMBD, &hp->embd, diag);
	if (!ret)
		ret = sits_arch_u32(m, "feed_forward_length", 1, SITS_MODEL_MAX_FF, &hp->ff, diag);
	if (!ret)
		ret = sits_arch_u32(m, "attention.head_count", 1, SITS_MODEL_MAX_HEADS, &hp->heads, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.head_count_kv", 1, hp->heads, hp->heads, &hp->kv_heads, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.key_length", 1, SITS_MODEL_MAX_HEAD_DIM,
				       hp->embd / hp->heads, &hp->head_dim, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.value_length", 1, SITS_MODEL_MAX_HEAD_DIM, hp->head_dim, &v_dim,
				       diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "rope.dimension_count", 2, SITS_MODEL_MAX_HEAD_DIM, hp->head_dim,
				       &hp->rope_dims, diag);
	if (!ret)
		ret = sits_arch_f32_or(m, "attention.layer_norm_rms_epsilon", 0, &hp->rms_eps, diag);
	if (!ret)
		ret = sits_arch_f32_or(m, "rope.freq_base", 10000.0f, &hp->rope_base, diag);
	if (ret)
		return ret;
	if (hp->heads % hp->kv_heads)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: key llama.attention.head_count is %" PRIu32
				      ", not a multiple of head_count_kv %" PRIu32, hp->heads, hp->kv_heads);
	if (hp->head_dim % 16 || !hp->head_dim || hp->head_dim > SITS_MODEL_MAX_HEAD_DIM || v_dim != hp->head_dim)
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "model: heads of %" PRIu32 " (keys) and %" PRIu32 " (values) dimensions; "
				      "both must be one multiple of 16, at most %u",
				      hp->head_dim, v_dim, SITS_MODEL_MAX_HEAD_DIM);
	if (hp->rope_dims % 2 || hp->rope_dims > hp->head_dim)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: key llama.rope.dimension_count is %" PRIu32
				      "; it must be even and at most %" PRIu32, hp->rope_dims, hp->head_dim);
	return 0;
}

/* What other variants of this architecture switch on by a key. */
static int refuse_features(const struct sits_model *m, struct sits_diag *diag)
{
	uint32_t experts, window;
	bool causal = true;
	int ret;

	ret = sits_arch_keys(m, known_keys, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "expert_count", 0, UINT32_MAX, 0, &experts, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.sliding_window", 0, UINT32_MAX, 0, &window, diag);
	if (ret)
		return ret;
	if (experts)
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "model: key llama.expert_count is %" PRIu32
				      ": mixtures of experts are not supported yet", experts);
	if (window && window < m->hp.context)
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "model: key llama.attention.sliding_window is %" PRIu32
				      ": windows shorter than the context are not supported", window);
	ret = sits_gguf_get_bool(m->gguf, "llama.attention.causal", &causal);
	if ((ret && ret != -ENOENT) || !causal)
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "model: key llama.attention.causal: only causal attention is supported");
	return 0;
}

static int rope_scale(const struct sits_model *m, float *factor, struct sits_diag *diag)
{
	struct sits_str type = { "none", 4 };
	int ret;

	*factor = 1;
	ret = sits_gguf_get_str(m->gguf, "llama.rope.scaling.type", &type);
	if (ret && ret != -ENOENT)
		return sits_diag_fail(diag, -EBADMSG, "model: key llama.rope.scaling.type is not a string");
	if (ret == -ENOENT)
		return sits_arch_f32_or(m, "rope.scale_linear", 1, factor, diag);
	if (type.len == 4 && !memcmp(type.p, "none", 4))
		return 0;
	if (type.len == 6 && !memcmp(type.p, "linear", 6))
		return sits_arch_f32_or(m, "rope.scaling.factor", 1, factor, diag);
	return sits_diag_fail(diag, -EPROTONOSUPPORT,
			      "model: key llama.rope.scaling.type is \"%.*s\"; known: none, linear",
			      (int)(type.len > 32 ? 32 : type.len), type.p);
}

static int load_rope(struct sits_model *m, struct sits_diag *diag)
{
	uint32_t i, half = m->hp.rope_dims / 2;
	struct sits_weight freqs;
	const float *f;
	float scale;
	int ret;

	ret = rope_scale(m, &scale, diag);
	if (!ret)
		ret = sits_arch_vector_opt(m, "rope_freqs.weight", half, &freqs, diag);
	if (ret)
		return ret;
	m->inv_freq = malloc(half * sizeof(*m->inv_freq));
	if (!m->inv_freq)
		return -ENOMEM;
	f = freqs.data;
	for (i = 0; i < half; i++) {
		m->inv_freq[i] = pow(m->hp.rope_base, -2.0 * i / m->hp.rope_dims) / scale / (f ? f[i] : 1.0f);
		if (!isfinite(m->inv_freq[i]))
			return sits_diag_fail(diag, -EBADMSG,
					      "model: tensor rope_freqs.weight: element %" PRIu32 " is not usable", i);
	}
	return 0;
}

/* One row of the table of a layer's tensors. */
struct part {
	const char *name;
	size_t at;		/* offset in struct sits_layer */
	uint64_t K, N;		/* N 0: a vector; K and N 0 never occur together */
	bool optional;
};

#define PART(field, name, k, n, opt) { name, offsetof(struct sits_layer, field), k, n, opt }

static int load_layer(struct sits_model *m, uint32_t i, struct sits_diag *diag)
{
	const uint64_t E = m->hp.embd, F = m->hp.ff, Q = (uint64_t)m->hp.heads * m->hp.head_dim;
	const uint64_t G = (uint64_t)m->hp.kv_heads * m->hp.head_dim;
	const struct part parts[] = {
		PART(attn_norm, "attn_norm.weight", E, 0, false),
		PART(wq, "attn_q.weight", E, Q, false), PART(bq, "attn_q.bias", Q, 0, true),
		PART(wk, "attn_k.weight", E, G, false), PART(bk, "attn_k.bias", G, 0, true),
		PART(wv, "attn_v.weight", E, G, false), PART(bv, "attn_v.bias", G, 0, true),
		PART(wo, "attn_output.weight", Q, E, false), PART(bo, "attn_output.bias", E, 0, true),
		PART(ffn_norm, "ffn_norm.weight", E, 0, false),
		PART(w_gate, "ffn_gate.weight", E, F, false), PART(b_gate, "ffn_gate.bias", F, 0, true),
		PART(w_up, "ffn_up.weight", E, F, false), PART(b_up, "ffn_up.bias", F, 0, true),
		PART(w_down, "ffn_down.weight", F, E, false), PART(b_down, "ffn_down.bias", E, 0, true),
	};
	struct sits_weight *w;
	char name[64];
	size_t j;
	int ret = 0;

	for (j = 0; j < sizeof(parts) / sizeof(parts[0]) && !ret; j++) {
		w = (struct sits_weight *)((char *)&m->layer[i] + parts[j].at);
		snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s", i, parts[j].name);
		if (parts[j].optional)
			ret = sits_arch_vector_opt(m, name, parts[j].K, w, diag);
		else if (!parts[j].N)
			ret = sits_arch_vector(m, name, parts[j].K, w, diag);
		else
			ret = sits_arch_matrix(m, name, parts[j].K, parts[j].N, w, diag);
	}
	return ret;
}

static int load_ends(struct sits_model *m, struct sits_diag *diag)
{
	const uint64_t E = m->hp.embd, V = sits_tokenizer_vocab(m->tok);
	uint32_t vocab;
	int ret;

	ret = sits_arch_u32_or(m, "vocab_size", 1, UINT32_MAX, V, &vocab, diag);
	if (ret)
		return ret;
	if (vocab != V)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: key llama.vocab_size is %" PRIu32 ", but the tokenizer has %" PRIu64
				      " tokens", vocab, V);
	m->hp.vocab = V;
	ret = sits_arch_matrix(m, "token_embd.weight", E, V, &m->tok_embd, diag);
	if (!ret)
		ret = sits_arch_vector(m, "output_norm.weight", E, &m->output_norm, diag);
	if (ret)
		return ret;
	m->output = m->tok_embd;
	if (sits_gguf_find(m->gguf, "output.weight"))
		ret = sits_arch_matrix(m, "output.weight", E, V, &m->output, diag);
	return ret;
}

static int load(struct sits_model *m, struct sits_diag *diag)
{
	uint32_t i;
	int ret;

	ret = load_sizes(m, diag);
	if (!ret)
		ret = refuse_features(m, diag);
	if (!ret)
		ret = load_rope(m, diag);
	if (!ret)
		ret = load_ends(m, diag);
	if (ret)
		return ret;
	m->layer = calloc(m->hp.layers, sizeof(*m->layer));
	if (!m->layer)
		return -ENOMEM;
	for (i = 0; i < m->hp.layers && !ret; i++)
		ret = load_layer(m, i, diag);
	return ret ? ret : sits_arch_unused(m, harmless_tensors, diag);
}

const struct sits_arch sits_arch_llama = { .name = "llama", .load = load };
