// SPDX-License-Identifier: MIT
/*
 * family.c - see family.h.
 *
 * Keys and tensor names: the GGUF specification (docs/gguf.md in the ggml repository), section "LLM", and
 * gguf-py/gguf/constants.py in the llama.cpp repository.
 */
#include "daemon/model/family.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/rope.h"
#include "kernels/kernels.h"

const char *const sits_family_keys[] = {
	"block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
	"attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
	"attention.key_length", "attention.value_length", "attention.causal",
	"attention.sliding_window", "attention.sliding_window_pattern",
	"rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
	"rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scaling.attn_factor",
	"rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "tensor_data_layout",
	"expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length",
	"expert_weights_norm", "expert_weights_scale", "expert_gating_func", NULL,
};

static const char *const no_keys[] = { NULL };

/* Older converters stored this table, which follows from the metadata. */
static const char *const harmless_tensors[] = { "rope_freqs.weight", NULL };

/* ---- sizes ---- */

static int check_heads(const struct sits_model *m, struct sits_diag *diag)
{
	const struct sits_hparams *hp = &m->hp;

	if (hp->heads % hp->kv_heads)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: key %.*s.attention.head_count is %" PRIu32
				      ", not a multiple of head_count_kv %" PRIu32, (int)m->arch.len, m->arch.p, hp->heads,
				      hp->kv_heads);
	if (!hp->head_dim || hp->head_dim % 16 || hp->head_dim > SITS_MODEL_MAX_HEAD_DIM || hp->v_dim % 16)
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "model: heads of %" PRIu32 " (keys) and %" PRIu32 " (values) dimensions; "
				      "both must be multiples of 16, at most %u",
				      hp->head_dim, hp->v_dim, SITS_MODEL_MAX_HEAD_DIM);
	return 0;
}

static int check_causal(const struct sits_model *m, struct sits_diag *diag)
{
	bool causal = true;
	int ret;

	ret = sits_arch_bool_or(m, "attention.causal", true, &causal, diag);
	if (!ret && !causal)
		ret = sits_diag_fail(diag, -EPROTONOSUPPORT,
				     "model: key %.*s.attention.causal: only causal attention is supported",
				     (int)m->arch.len, m->arch.p);
	return ret;
}

static int check_vocab(struct sits_model *m, struct sits_diag *diag)
{
	const uint32_t V = sits_tokenizer_vocab(m->tok);
	uint32_t vocab;
	int ret;

	ret = sits_arch_u32_or(m, "vocab_size", 1, UINT32_MAX, V, &vocab, diag);
	if (ret)
		return ret;
	if (vocab != V)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: key %.*s.vocab_size is %" PRIu32 ", but the tokenizer has %" PRIu32
				      " tokens", (int)m->arch.len, m->arch.p, vocab, V);
	m->hp.vocab = V;
	return 0;
}

int sits_family_basics(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_hparams *hp = &m->hp;
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
		ret = sits_arch_f32_or(m, "attention.layer_norm_rms_epsilon", 0, &hp->rms_eps, diag);
	if (!ret)
		ret = check_causal(m, diag);
	if (!ret)
		ret = check_vocab(m, diag);
	return ret;
}

int sits_family_sizes(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_hparams *hp = &m->hp;
	int ret;

	ret = sits_family_basics(m, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.head_count_kv", 1, hp->heads, hp->heads, &hp->kv_heads, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.key_length", 1, SITS_MODEL_MAX_HEAD_DIM, hp->embd / hp->heads,
				       &hp->head_dim, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.value_length", 1, SITS_MODEL_MAX_HEAD_DIM, hp->head_dim, &hp->v_dim,
				       diag);
	if (!ret)
		ret = check_heads(m, diag);
	hp->attn_scale = 1.0f / sqrtf(hp->head_dim);
	return ret;
}

/* ---- positions ---- */

static int load_yarn(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_rope *r = &m->hp.rope;
	float attn = 1;
	int ret;

	r->scaling = SITS_ROPE_YARN;
	ret = sits_arch_f32_or(m, "rope.scaling.factor", 1, &r->factor, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "rope.scaling.original_context_length", 1, SITS_MODEL_MAX_CONTEXT, m->hp.context,
				       &r->orig_context, diag);
	if (!ret)
		ret = sits_arch_f32_or(m, "rope.scaling.attn_factor", 1, &attn, diag);
	if (!ret)
		ret = sits_arch_f32_or(m, "rope.scaling.yarn_beta_fast", 32, &r->beta_fast, diag);
	if (!ret)
		ret = sits_arch_f32_or(m, "rope.scaling.yarn_beta_slow", 1, &r->beta_slow, diag);
	/* The key is relative to what YaRN itself asks for. */
	r->attn_factor = attn * (r->factor > 1 ? 0.1f * logf(r->factor) + 1 : 1);
	return ret;
}

static bool str_is(struct sits_str s, const char *text)
{
	return s.len == strlen(text) && !memcmp(s.p, text, s.len);
}

static int load_scaling(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_rope *r = &m->hp.rope;
	struct sits_str type;
	int ret;

	r->factor = 1;
	ret = sits_arch_str_or(m, "rope.scaling.type", "", &type, diag);
	if (ret)
		return ret;
	if (!type.len) {
		r->scaling = SITS_ROPE_LINEAR;
		return sits_arch_f32_or(m, "rope.scale_linear", 1, &r->factor, diag);
	}
	if (str_is(type, "none"))
		return 0;
	if (str_is(type, "yarn"))
		return load_yarn(m, diag);
	if (str_is(type, "linear")) {
		r->scaling = SITS_ROPE_LINEAR;
		return sits_arch_f32_or(m, "rope.scaling.factor", 1, &r->factor, diag);
	}
	return sits_diag_fail(diag, -EPROTONOSUPPORT,
			      "model: key %.*s.rope.scaling.type is \"%.*s\"; known: none, linear, yarn",
			      (int)m->arch.len, m->arch.p, (int)(type.len > 32 ? 32 : type.len), type.p);
}

int sits_family_rope(struct sits_model *m, int neox, struct sits_diag *diag)
{
	struct sits_rope *r = &m->hp.rope;
	struct sits_weight freqs;
	int ret;

	r->neox = neox || m->hf;
	ret = sits_arch_u32_or(m, "rope.dimension_count", 2, SITS_MODEL_MAX_HEAD_DIM, m->hp.head_dim, &r->dims, diag);
	if (!ret)
		ret = sits_arch_f32_or(m, "rope.freq_base", 10000.0f, &r->base, diag);
	if (ret)
		return ret;
	if (r->dims % 2 || r->dims > m->hp.head_dim)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: key %.*s.rope.dimension_count is %" PRIu32
				      "; it must be even and at most %" PRIu32, (int)m->arch.len, m->arch.p, r->dims,
				      m->hp.head_dim);
	ret = load_scaling(m, diag);
	if (!ret)
		ret = sits_arch_vector_opt(m, "rope_freqs.weight", r->dims / 2, &freqs, diag);
	return ret ? ret : sits_rope_plan(m, freqs.data, diag);
}

int sits_family_windows(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_gguf_array pattern = { 0 };
	uint32_t window, i;
	char name[128];
	int ret;

	ret = sits_arch_u32_or(m, "attention.sliding_window", 0, UINT32_MAX, 0, &window, diag);
	if (ret)
		return ret;
	snprintf(name, sizeof(name), "%.*s.attention.sliding_window_pattern", (int)m->arch.len, m->arch.p);
	ret = sits_gguf_get_array(m->gguf, name, &pattern);
	if (ret != -ENOENT && (ret || pattern.type != SITS_GGUF_BOOL || pattern.nr != m->hp.layers))
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: key %s is not one bool for each of the %" PRIu32
				      " layers", name, m->hp.layers);
	if (window >= m->hp.context)
		window = 0;
	for (i = 0; i < m->hp.layers; i++)
		m->layer[i].window = !pattern.data || ((const uint8_t *)pattern.data)[i] ? window : 0;
	return 0;
}

/* ---- experts ---- */

int sits_family_route(struct sits_model *m, bool renorm, struct sits_diag *diag)
{
	struct sits_route_rule *r = &m->hp.route;
	const char *wrong;
	uint32_t gating;
	int ret;

	ret = sits_arch_u32(m, "expert_count", 1, SITS_ROUTE_MAX_EXPERTS, &r->experts, diag);
	if (!ret)
		ret = sits_arch_u32(m, "expert_used_count", 1, SITS_ROUTE_MAX_USED, &r->used, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "expert_gating_func", 1, 2, 1, &gating, diag);
	if (!ret)
		ret = sits_arch_bool_or(m, "expert_weights_norm", renorm, &r->renorm, diag);
	if (!ret)
		ret = sits_arch_f32_or(m, "expert_weights_scale", 1, &r->scale, diag);
	if (ret)
		return ret;
	r->score = gating == 2 ? SITS_ROUTE_SIGMOID : SITS_ROUTE_SOFTMAX;
	r->temperature = 1;
	wrong = sits_route_check(r);
	if (wrong)
		return sits_diag_fail(diag, -EBADMSG, "model: the routing rule that keys %.*s.expert_* give %s",
				      (int)m->arch.len, m->arch.p, wrong);
	return 0;
}

static int load_experts(struct sits_model *m, const struct sits_family *f, struct sits_diag *diag)
{
	struct sits_hparams *hp = &m->hp;
	uint32_t experts, i;
	int ret;

	ret = sits_arch_u32_or(m, "expert_count", 0, SITS_ROUTE_MAX_EXPERTS, 0, &experts, diag);
	if (ret)
		return ret;
	if (experts && !f->moe)
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "model: key %.*s.expert_count is %" PRIu32 ", but this architecture has no experts",
				      (int)m->arch.len, m->arch.p, experts);
	if (!experts && f->moe < 2)
		return 0;
	ret = sits_family_route(m, f->renorm, diag);
	if (ret)
		return ret;
	ret = sits_arch_u32_or(m, "expert_feed_forward_length", 1, SITS_MODEL_MAX_FF,
			       f->ff_split ? hp->ff / hp->route.used : hp->ff, &hp->expert_ff, diag);
	if (!ret && f->shared)
		ret = sits_arch_u32_or(m, "expert_shared_feed_forward_length", 1, SITS_MODEL_MAX_FF, hp->ff,
				       &hp->shared_ff, diag);
	if (!ret && !hp->expert_ff)
		ret = sits_diag_fail(diag, -EBADMSG, "model: key %.*s.feed_forward_length is %" PRIu32
				     ", too small to be shared by %" PRIu32 " experts", (int)m->arch.len, m->arch.p, hp->ff,
				     hp->route.used);
	hp->ff = 0;
	for (i = 0; i < hp->layers; i++)
		m->layer[i].kind = SITS_LAYER_MOE;
	return ret;
}

/* ---- tensors ---- */

int sits_family_parts(struct sits_model *m, uint32_t i, const struct sits_part *parts, size_t nr, struct sits_diag *diag)
{
	struct sits_weight *w;
	char name[64];
	size_t j;
	int ret = 0;

	for (j = 0; j < nr && !ret; j++) {
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

#define NR(a) (sizeof(a) / sizeof((a)[0]))

static int load_moe(struct sits_model *m, uint32_t i, struct sits_diag *diag)
{
	const uint64_t E = m->hp.embd, F = m->hp.expert_ff, S = m->hp.shared_ff, X = m->hp.route.experts;
	struct sits_layer *l = &m->layer[i];
	const struct sits_part parts[] = {
		SITS_PART(router, "ffn_gate_inp.weight", E, X, false),
	}, shared[] = {
		SITS_PART(s_gate, "ffn_gate_shexp.weight", E, S, false),
		SITS_PART(s_up, "ffn_up_shexp.weight", E, S, false),
		SITS_PART(s_down, "ffn_down_shexp.weight", S, E, false),
	};
	int ret;

	ret = sits_family_parts(m, i, parts, NR(parts), diag);
	if (!ret)
		ret = sits_arch_stack(m, i, "ffn_gate", E, F, X, &l->e_gate, diag);
	if (!ret)
		ret = sits_arch_stack(m, i, "ffn_up", E, F, X, &l->e_up, diag);
	if (!ret)
		ret = sits_arch_stack(m, i, "ffn_down", F, E, X, &l->e_down, diag);
	if (!ret && S)
		ret = sits_family_parts(m, i, shared, NR(shared), diag);
	return ret;
}

int sits_family_ffn(struct sits_model *m, uint32_t i, struct sits_diag *diag)
{
	const uint64_t E = m->hp.embd, F = m->hp.ff;
	const struct sits_part norm[] = {
		SITS_PART(ffn_norm, "ffn_norm.weight", E, 0, false),
	}, dense[] = {
		SITS_PART(w_gate, "ffn_gate.weight", E, F, false),
		SITS_PART(w_up, "ffn_up.weight", E, F, false),
		SITS_PART(w_down, "ffn_down.weight", F, E, false),
	};
	int ret;

	ret = sits_family_parts(m, i, norm, NR(norm), diag);
	if (ret)
		return ret;
	if (m->layer[i].kind == SITS_LAYER_MOE)
		return load_moe(m, i, diag);
	return sits_family_parts(m, i, dense, NR(dense), diag);
}

/* Biases of projections, as far as the family has them; what else a file brings is refused at the end. */
static int load_biases(struct sits_model *m, const struct sits_family *f, uint32_t i, struct sits_diag *diag)
{
	const uint64_t E = m->hp.embd, F = m->hp.ff, Q = (uint64_t)m->hp.heads * m->hp.head_dim;
	const uint64_t G = (uint64_t)m->hp.kv_heads * m->hp.head_dim, V = (uint64_t)m->hp.kv_heads * m->hp.v_dim;
	const bool opt = f->biases == SITS_BIASES_ANY;
	const struct sits_part qkv[] = {
		SITS_PART(bq, "attn_q.bias", Q, 0, opt), SITS_PART(bk, "attn_k.bias", G, 0, opt),
		SITS_PART(bv, "attn_v.bias", V, 0, opt),
	}, others[] = {
		SITS_PART(bo, "attn_output.bias", E, 0, true), SITS_PART(b_gate, "ffn_gate.bias", F, 0, true),
		SITS_PART(b_up, "ffn_up.bias", F, 0, true), SITS_PART(b_down, "ffn_down.bias", E, 0, true),
	};
	int ret = 0;

	if (f->biases != SITS_BIASES_NONE)
		ret = sits_family_parts(m, i, qkv, NR(qkv), diag);
	if (!ret && opt)
		ret = sits_family_parts(m, i, others, m->layer[i].kind == SITS_LAYER_MOE ? 1 : NR(others), diag);
	return ret;
}

static int load_layer(struct sits_model *m, const struct sits_family *f, uint32_t i, struct sits_diag *diag)
{
	const struct sits_hparams *hp = &m->hp;
	const uint64_t E = hp->embd, Q = (uint64_t)hp->heads * hp->head_dim, G = (uint64_t)hp->kv_heads * hp->head_dim;
	const bool all = f->qk_norm == SITS_QK_NORM_ALL;
	const struct sits_part parts[] = {
		SITS_PART(attn_norm, "attn_norm.weight", E, 0, false),
		SITS_PART(wq, "attn_q.weight", E, Q, false), SITS_PART(wk, "attn_k.weight", E, G, false),
		SITS_PART(wv, "attn_v.weight", E, (uint64_t)hp->kv_heads * hp->v_dim, false),
		SITS_PART(wo, "attn_output.weight", (uint64_t)hp->heads * hp->v_dim, E, false),
	}, norms[] = {
		SITS_PART(q_norm, "attn_q_norm.weight", all ? Q : hp->head_dim, 0, false),
		SITS_PART(k_norm, "attn_k_norm.weight", all ? G : hp->head_dim, 0, false),
	}, gate[] = {
		SITS_PART(s_router, "ffn_gate_inp_shexp.weight", E, 1, false),
	};
	int ret;

	ret = sits_family_parts(m, i, parts, NR(parts), diag);
	if (!ret && f->qk_norm != SITS_QK_NORM_NONE)
		ret = sits_family_parts(m, i, norms, NR(norms), diag);
	if (!ret)
		ret = sits_family_ffn(m, i, diag);
	if (!ret && hp->shared_ff)
		ret = sits_family_parts(m, i, gate, NR(gate), diag);
	return ret ? ret : load_biases(m, f, i, diag);
}

int sits_family_ends(struct sits_model *m, struct sits_diag *diag)
{
	const uint64_t E = m->hp.embd, V = m->hp.vocab;
	int ret;

	ret = sits_arch_matrix(m, "token_embd.weight", E, V, &m->tok_embd, diag);
	if (!ret)
		ret = sits_arch_vector(m, "output_norm.weight", E, &m->output_norm, diag);
	if (ret)
		return ret;
	m->output = m->tok_embd;
	if (sits_gguf_find(m->gguf, "output.weight"))
		ret = sits_arch_matrix(m, "output.weight", E, V, &m->output, diag);
	if (ret)
		return ret;
	m->layer = calloc(m->hp.layers, sizeof(*m->layer));
	return m->layer ? 0 : -ENOMEM;
}

int sits_family_load(struct sits_model *m, const struct sits_family *f, struct sits_diag *diag)
{
	uint32_t i;
	int ret;

	ret = sits_arch_keys(m, sits_family_keys, no_keys, diag);
	if (!ret)
		ret = sits_family_sizes(m, diag);
	if (!ret)
		ret = sits_family_rope(m, f->neox, diag);
	if (!ret)
		ret = sits_family_ends(m, diag);
	if (!ret)
		ret = sits_family_windows(m, diag);
	if (!ret)
		ret = load_experts(m, f, diag);
	m->hp.qk_norm = f->qk_norm;
	for (i = 0; i < m->hp.layers && !ret; i++)
		ret = load_layer(m, f, i, diag);
	return ret ? ret : sits_arch_unused(m, harmless_tensors, diag);
}
