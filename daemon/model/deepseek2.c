// SPDX-License-Identifier: MIT
/*
 * deepseek2.c - the deepseek2 architecture: DeepSeek-V2, V2-Lite, V3, R1 and others of their form.
 *
 * Multi-head latent attention (MLA): a token's keys and values all come from one latent vector; that and one rotated key
 * shared by the heads are what is stored. The first layers are dense, the others mixtures with shared experts. Routing:
 * V2 softmax, a group counts by its best expert; V3 sigmoid with a bias for the choice, a group counts by its two best.
 *
 * Two forms of files: attn_kv_b whole, key_length and value_length those of a head; or attn_k_b (transposed) and attn_v_b
 * apart, key_length and value_length those of what is stored and the head's in *_mla. Files made before the keys
 * expert_group_* existed don't say that there are groups, and are computed without.
 *
 * Sources: DeepSeek-AI 2024, "DeepSeek-V2" (section 2.1) and "DeepSeek-V3" (sections 2.1.1, 2.1.2); keys and tensors:
 * conversion/deepseek.py and gguf-py/gguf/constants.py in the llama.cpp repository; the scale of YaRN: modeling_deepseek.py
 * beside the published weights.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "daemon/model/family.h"
#include "kernels/kernels.h"

#define MAX_STORED 1024	/* struct sits_kv_shape */
#define NR(a) (sizeof(a) / sizeof((a)[0]))

static const char *const own_keys[] = {
	"attention.q_lora_rank", "attention.kv_lora_rank", "attention.key_length_mla", "attention.value_length_mla",
	"leading_dense_block_count", "expert_shared_count", "expert_group_count", "expert_group_used_count",
	"rope.scaling.yarn_log_multiplier", NULL,
};

/* What a head's key and value measure, in either form of file; rope_dims: part of the key. */
static int load_head_sizes(struct sits_model *m, uint32_t rope_dims, struct sits_diag *diag)
{
	struct sits_hparams *hp = &m->hp;
	uint32_t k, v, k_mla, v_mla, kv_heads;
	int ret;

	ret = sits_arch_u32(m, "attention.key_length", 1, MAX_STORED, &k, diag);
	if (!ret)
		ret = sits_arch_u32(m, "attention.value_length", 1, MAX_STORED, &v, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.key_length_mla", 1, MAX_STORED, 0, &k_mla, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.value_length_mla", 1, MAX_STORED, 0, &v_mla, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.head_count_kv", 1, hp->heads, hp->heads, &kv_heads, diag);
	if (ret)
		return ret;
	if (!k_mla != !v_mla)
		return sits_diag_fail(diag, -EBADMSG, "model: of keys deepseek2.attention.key_length_mla and "
				      "value_length_mla there is one only");
	if (k_mla && (k != hp->kv_rank + rope_dims || v != hp->kv_rank))
		return sits_diag_fail(diag, -EBADMSG,
				      "model: keys deepseek2.attention.key_length and value_length are %" PRIu32 " and %" PRIu32
				      "; beside key_length_mla they must be %" PRIu32 " and %" PRIu32, k, v,
				      hp->kv_rank + rope_dims, hp->kv_rank);
	if (kv_heads != 1 && kv_heads != hp->heads)
		return sits_diag_fail(diag, -EBADMSG, "model: key deepseek2.attention.head_count_kv is %" PRIu32
				      "; it must be 1 or head_count %" PRIu32, kv_heads, hp->heads);
	hp->kv_heads = 1;
	hp->head_dim = k_mla ? k_mla : k;
	hp->v_dim = v_mla ? v_mla : v;
	if (hp->head_dim <= rope_dims)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: a key of %" PRIu32 " dimensions has no room beside the %" PRIu32
				      " of deepseek2.rope.dimension_count", hp->head_dim, rope_dims);
	hp->nope_dims = hp->head_dim - rope_dims;
	return 0;
}

static int load_sizes(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_hparams *hp = &m->hp;
	uint32_t rope_dims;
	int ret;

	ret = sits_family_basics(m, diag);
	if (!ret)
		ret = sits_arch_u32(m, "attention.kv_lora_rank", 1, MAX_STORED, &hp->kv_rank, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "attention.q_lora_rank", 0, SITS_MODEL_MAX_EMBD, 0, &hp->q_rank, diag);
	if (!ret)
		ret = sits_arch_u32(m, "rope.dimension_count", 2, SITS_MODEL_MAX_HEAD_DIM, &rope_dims, diag);
	if (!ret)
		ret = load_head_sizes(m, rope_dims, diag);
	if (ret)
		return ret;
	if (hp->kv_rank % 16 || rope_dims % 16 || hp->kv_rank + rope_dims > MAX_STORED)
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "model: keys deepseek2.attention.kv_lora_rank and rope.dimension_count are %" PRIu32
				      " and %" PRIu32 "; both must be multiples of 16, at most %u together", hp->kv_rank,
				      rope_dims, MAX_STORED);
	hp->attn_scale = 1.0f / sqrtf(hp->head_dim);
	return 0;
}

/*
 * YaRN here also sharpens the softmax, by (1 + multiplier * ln factor)^2; the multiplier is 0.1 mscale_all_dim. Where it is
 * there, what YaRN else multiplies cos and sin by is mscale / mscale_all_dim: 1 in every model, unless the file says so.
 */
static int load_rope(struct sits_model *m, struct sits_diag *diag)
{
	static const char key[] = "deepseek2.rope.scaling.yarn_log_multiplier";
	struct sits_rope *r = &m->hp.rope;
	float log_mul = 0, attn, mscale;
	int ret;

	ret = sits_family_rope(m, 0, diag);
	if (ret)
		return ret;
	r->neox = 0;	/* pairs (2i, 2i+1) in Hugging Face's files, too */
	ret = sits_gguf_get_f32(m->gguf, key, &log_mul);
	if ((ret && ret != -ENOENT) || !(log_mul >= 0 && log_mul <= 10))
		return sits_diag_fail(diag, -EBADMSG, "model: key %s is not a float in 0..10", key);
	if (r->scaling != SITS_ROPE_YARN || log_mul == 0)
		return 0;
	mscale = r->factor > 1 ? 1 + log_mul * logf(r->factor) : 1;
	m->hp.attn_scale *= mscale * mscale;
	if (sits_gguf_get_f32(m->gguf, "deepseek2.rope.scaling.attn_factor", &attn) == -ENOENT)
		r->attn_factor = m->rope_mscale = 1;
	return 0;
}

/* The routing rule, and which layers have experts; needs the layers. */
static int load_experts(struct sits_model *m, struct sits_diag *diag)
{
	struct sits_hparams *hp = &m->hp;
	struct sits_route_rule *r = &hp->route;
	uint32_t experts, shared, dense, i;
	const char *wrong;
	int ret;

	ret = sits_arch_u32_or(m, "expert_count", 0, SITS_ROUTE_MAX_EXPERTS, 0, &experts, diag);
	if (ret || !experts)
		return ret;
	ret = sits_family_route(m, false, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "expert_group_count", 1, SITS_ROUTE_MAX_EXPERTS, 1, &r->groups, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "expert_group_used_count", 1, r->groups, r->groups, &r->groups_used, diag);
	if (!ret)
		ret = sits_arch_u32(m, "expert_feed_forward_length", 1, SITS_MODEL_MAX_FF, &hp->expert_ff, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "expert_shared_count", 0, SITS_MODEL_MAX_FF / hp->expert_ff, 0, &shared, diag);
	if (!ret)
		ret = sits_arch_u32_or(m, "leading_dense_block_count", 0, hp->layers, 0, &dense, diag);
	if (ret)
		return ret;
	r->group_score = r->score == SITS_ROUTE_SIGMOID ? SITS_ROUTE_GROUP_TOP2 : SITS_ROUTE_GROUP_MAX;
	wrong = sits_route_check(r);
	if (wrong)
		return sits_diag_fail(diag, -EBADMSG, "model: the routing rule that keys deepseek2.expert_* give %s", wrong);
	hp->shared_ff = shared * hp->expert_ff;
	for (i = dense; i < hp->layers; i++)
		m->layer[i].kind = SITS_LAYER_MOE;
	if (!dense)
		hp->ff = 0;
	return 0;
}

/* kv_b, whole or in two parts. */
static int load_kv_b(struct sits_model *m, uint32_t i, struct sits_diag *diag)
{
	const struct sits_hparams *hp = &m->hp;
	struct sits_layer *l = &m->layer[i];
	char name[64];
	int ret;

	snprintf(name, sizeof(name), "blk.%" PRIu32 ".attn_k_b.weight", i);
	if (!sits_gguf_find(m->gguf, name)) {
		snprintf(name, sizeof(name), "blk.%" PRIu32 ".attn_kv_b.weight", i);
		ret = sits_arch_matrix(m, name, hp->kv_rank, (uint64_t)hp->heads * (hp->nope_dims + hp->v_dim), &l->wkv_b,
				       diag);
		if (!ret && (l->wkv_b.type & SITS_PACKED))
			ret = sits_diag_fail(diag, -EPROTONOSUPPORT, "model: tensor %s is packed; its rows are read one by one",
					     name);
		return ret;
	}
	ret = sits_arch_matrices(m, name, hp->nope_dims, hp->kv_rank, hp->heads, &l->wk_b, diag);
	snprintf(name, sizeof(name), "blk.%" PRIu32 ".attn_v_b.weight", i);
	return ret ? ret : sits_arch_matrices(m, name, hp->kv_rank, hp->v_dim, hp->heads, &l->wv_b, diag);
}

static int load_layer(struct sits_model *m, uint32_t i, struct sits_diag *diag)
{
	const struct sits_hparams *hp = &m->hp;
	const uint64_t E = hp->embd, Q = (uint64_t)hp->heads * hp->head_dim, R = hp->kv_rank;
	const struct sits_part parts[] = {
		SITS_PART(attn_norm, "attn_norm.weight", E, 0, false),
		SITS_PART(wkv_a, "attn_kv_a_mqa.weight", E, R + hp->rope.dims, false),
		SITS_PART(kv_a_norm, "attn_kv_a_norm.weight", R, 0, false),
		SITS_PART(wo, "attn_output.weight", (uint64_t)hp->heads * hp->v_dim, E, false),
	}, whole_q[] = {
		SITS_PART(wq, "attn_q.weight", E, Q, false),
	}, low_rank_q[] = {
		SITS_PART(wq_a, "attn_q_a.weight", E, hp->q_rank, false),
		SITS_PART(q_a_norm, "attn_q_a_norm.weight", hp->q_rank, 0, false),
		SITS_PART(wq_b, "attn_q_b.weight", hp->q_rank, Q, false),
	}, bias[] = {
		SITS_PART(router_bias, "exp_probs_b.bias", hp->route.experts, 0, true),
	};
	int ret;

	ret = sits_family_parts(m, i, parts, NR(parts), diag);
	if (!ret && hp->q_rank)
		ret = sits_family_parts(m, i, low_rank_q, NR(low_rank_q), diag);
	else if (!ret)
		ret = sits_family_parts(m, i, whole_q, NR(whole_q), diag);
	if (!ret)
		ret = load_kv_b(m, i, diag);
	if (!ret)
		ret = sits_family_ffn(m, i, diag);
	if (!ret && m->layer[i].kind == SITS_LAYER_MOE)
		ret = sits_family_parts(m, i, bias, NR(bias), diag);
	return ret;
}

static int load(struct sits_model *m, struct sits_diag *diag)
{
	static const char *const harmless[] = { NULL };
	uint32_t i;
	int ret;

	ret = sits_arch_keys(m, sits_family_keys, own_keys, diag);
	if (!ret)
		ret = load_sizes(m, diag);
	if (!ret)
		ret = load_rope(m, diag);
	if (!ret)
		ret = sits_family_ends(m, diag);
	if (!ret)
		ret = sits_family_windows(m, diag);
	if (!ret)
		ret = load_experts(m, diag);
	for (i = 0; i < m->hp.layers && !ret; i++)
		ret = load_layer(m, i, diag);
	return ret ? ret : sits_arch_unused(m, harmless, diag);
}

const struct sits_arch sits_arch_deepseek2 = { .name = "deepseek2", .load = load };
