// SPDX-License-Identifier: MIT
/*
 * deepseek2_test.c - what the deepseek2 architecture takes from metadata, and what it refuses, each by name.
 *
 * One valid small model in each of the two forms of files; then one key or tensor is changed at a time. What such a model
 * computes is compared in tests/unit/engine/arch_golden_test.c.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/model.h"
#include "tests/unit/engine/tiny_model.h"

#define A "deepseek2."

enum kind { U32, F32, BOOL, STR };

struct item {
	const char *key;
	enum kind kind;
	double v;
	const char *s;
};

/* The newer form: kv_b in two parts. */
static const struct item base[] = {
	{ A "block_count", U32, 2, NULL }, { A "context_length", U32, 512, NULL }, { A "embedding_length", U32, 32, NULL },
	{ A "feed_forward_length", U32, 48, NULL }, { A "attention.head_count", U32, 2, NULL },
	{ A "attention.head_count_kv", U32, 1, NULL }, { A "attention.layer_norm_rms_epsilon", F32, 1e-6, NULL },
	{ A "attention.q_lora_rank", U32, 24, NULL }, { A "attention.kv_lora_rank", U32, 32, NULL },
	{ A "attention.key_length", U32, 48, NULL }, { A "attention.value_length", U32, 32, NULL },
	{ A "attention.key_length_mla", U32, 24, NULL }, { A "attention.value_length_mla", U32, 12, NULL },
	{ A "rope.dimension_count", U32, 16, NULL }, { A "rope.freq_base", F32, 10000, NULL },
	{ A "leading_dense_block_count", U32, 1, NULL }, { A "expert_count", U32, 8, NULL },
	{ A "expert_used_count", U32, 2, NULL }, { A "expert_shared_count", U32, 2, NULL },
	{ A "expert_feed_forward_length", U32, 16, NULL }, { A "expert_weights_scale", F32, 2.5, NULL },
	{ A "expert_weights_norm", BOOL, 1, NULL }, { A "expert_gating_func", U32, 2, NULL },
	{ A "expert_group_count", U32, 4, NULL }, { A "expert_group_used_count", U32, 2, NULL },
	{ A "rope.scaling.type", STR, 0, "yarn" }, { A "rope.scaling.factor", F32, 40, NULL },
	{ A "rope.scaling.original_context_length", U32, 64, NULL },
	{ A "rope.scaling.yarn_log_multiplier", F32, 0.1, NULL },
};

#define NR_BASE (sizeof(base) / sizeof(base[0]))

static void put(struct gguf_build *b, const struct item *i)
{
	switch (i->kind) {
	case U32:
		gguf_build_u32(b, i->key, i->v);
		break;
	case F32:
		gguf_build_f32(b, i->key, i->v);
		break;
	case BOOL:
		gguf_build_bool(b, i->key, i->v);
		break;
	case STR:
		gguf_build_str(b, i->key, i->s);
		break;
	}
}

static void tensor(struct gguf_build *b, const char *skip, const char *name, uint64_t x, uint64_t y, uint64_t z)
{
	const uint64_t ne[3] = { x, y, z };

	if (skip && !strcmp(skip, name))
		return;
	gguf_build_tensor(b, name, SITS_F32, z ? 3 : y ? 2 : 1, ne, NULL, x * (y ? y : 1) * (z ? z : 1) * sizeof(float));
}

static uint32_t kv_b_type;	/* of attn_kv_b; 0: F32 */

static void layer(struct gguf_build *b, int l, bool whole, const char *skip)
{
	const uint64_t ne[2] = { 32, 40 };
	char n[64];

#define T(name, x, y, z) (snprintf(n, sizeof(n), "blk.%d." name, l), tensor(b, skip, n, x, y, z))
	T("attn_norm.weight", 32, 0, 0);
	T("attn_q_a.weight", 32, 24, 0);
	T("attn_q_a_norm.weight", 24, 0, 0);
	T("attn_q_b.weight", 24, 48, 0);
	T("attn_kv_a_mqa.weight", 32, 48, 0);
	T("attn_kv_a_norm.weight", 32, 0, 0);
	if (whole) {
		snprintf(n, sizeof(n), "blk.%d.attn_kv_b.weight", l);
		gguf_build_tensor(b, n, kv_b_type, 2, ne, NULL, sits_dtype_matrix_bytes(kv_b_type, ne[0], ne[1]));
	} else {
		T("attn_k_b.weight", 8, 32, 2);
		T("attn_v_b.weight", 32, 12, 2);
	}
	T("attn_output.weight", 24, 32, 0);
	T("ffn_norm.weight", 32, 0, 0);
	if (!l) {
		T("ffn_gate.weight", 32, 48, 0);
		T("ffn_up.weight", 32, 48, 0);
		T("ffn_down.weight", 48, 32, 0);
		return;
	}
	T("ffn_gate_inp.weight", 32, 8, 0);
	T("exp_probs_b.bias", 8, 0, 0);
	T("ffn_gate_exps.weight", 32, 16, 8);
	T("ffn_up_exps.weight", 32, 16, 8);
	T("ffn_down_exps.weight", 16, 32, 8);
	T("ffn_gate_shexp.weight", 32, 32, 0);
	T("ffn_up_shexp.weight", 32, 32, 0);
	T("ffn_down_shexp.weight", 32, 32, 0);
#undef T
}

/*
 * The model with @change in place of the key of that name, or besides; @drop: a key or tensor that is left out.
 * @whole: the older form.
 */
static void *build(bool whole, const struct item *change, const char *drop, size_t *len)
{
	static const struct item old[] = {
		{ A "attention.key_length", U32, 24, NULL }, { A "attention.value_length", U32, 12, NULL },
		{ A "attention.head_count_kv", U32, 2, NULL },
	};
	struct gguf_build b;
	bool done = false;
	size_t i, k;

	gguf_build_begin(&b);
	gguf_build_str(&b, "general.architecture", "deepseek2");
	for (i = 0; i < NR_BASE; i++) {
		const struct item *it = &base[i];

		if (drop && !strcmp(drop, it->key))
			continue;
		if (whole && strstr(it->key, "_mla"))
			continue;
		for (k = 0; whole && k < 3; k++)
			if (!strcmp(old[k].key, it->key))
				it = &old[k];
		if (change && !strcmp(change->key, it->key)) {
			it = change;
			done = true;
		}
		put(&b, it);
	}
	if (change && !done)
		put(&b, change);
	tiny_tokens(&b, false);
	tensor(&b, drop, "token_embd.weight", 32, TINY_VOCAB, 0);
	tensor(&b, drop, "output_norm.weight", 32, 0, 0);
	layer(&b, 0, whole, drop);
	layer(&b, 1, whole, drop);
	return gguf_build_end(&b, len);
}

static void both_forms_give_one_description(void **state)
{
	const double mscale = 1 + 0.1 * log(40);
	size_t whole;

	for (whole = 0; whole < 2; whole++) {
		struct sits_diag diag = { 0 };
		struct sits_model *m;
		size_t len;
		void *image = build(whole, NULL, NULL, &len);

		if (sits_model_open(image, len, &m, &diag))
			fail_msg("%s", diag.msg);
		assert_int_equal(m->hp.head_dim, 24);
		assert_int_equal(m->hp.v_dim, 12);
		assert_int_equal(m->hp.nope_dims, 8);
		assert_int_equal(m->hp.kv_rank, 32);
		assert_int_equal(m->hp.q_rank, 24);
		assert_int_equal(m->hp.kv_heads, 1);
		assert_int_equal(m->hp.rope.dims, 16);
		assert_int_equal(m->hp.rope.neox, 0);
		assert_true(fabs(m->hp.attn_scale * sqrt(24) - mscale * mscale) < 1e-5);
		assert_true(m->rope_mscale == 1);
		assert_int_equal(m->layer[0].kind, SITS_LAYER_DENSE);
		assert_int_equal(m->layer[1].kind, SITS_LAYER_MOE);
		assert_int_equal(m->hp.shared_ff, 32);
		assert_int_equal(m->hp.route.score, SITS_ROUTE_SIGMOID);
		assert_int_equal(m->hp.route.group_score, SITS_ROUTE_GROUP_TOP2);
		assert_int_equal(m->hp.route.groups, 4);
		assert_int_equal(m->hp.route.groups_used, 2);
		assert_true(m->hp.route.renorm && m->hp.route.scale == 2.5f);
		assert_non_null(m->layer[1].router_bias.data);
		assert_int_equal(!m->layer[1].wkv_b.data, !whole);
		assert_int_equal(!m->layer[1].wk_b.data, whole);
		if (!whole) {
			assert_int_equal(m->layer[0].wk_b.nr, 2);
			assert_ptr_equal(sits_weight_at(&m->layer[0].wk_b, 1), (const float *)m->layer[0].wk_b.data + 8 * 32);
		}
		sits_model_close(m);
		free(image);
	}
}

static void what_a_file_leaves_out_has_its_meaning(void **state)
{
	struct sits_diag diag = { 0 };
	struct sits_model *m;
	void *image;
	size_t len;

	/* No gating function: DeepSeek-V2's softmax, where a group counts by its best. */
	image = build(false, NULL, A "expert_gating_func", &len);
	assert_int_equal(sits_model_open(image, len, &m, &diag), 0);
	assert_int_equal(m->hp.route.score, SITS_ROUTE_SOFTMAX);
	assert_int_equal(m->hp.route.group_score, SITS_ROUTE_GROUP_MAX);
	sits_model_close(m);
	free(image);
	/* No multiplier: YaRN acts on cos and sin, not on the softmax. */
	image = build(false, NULL, A "rope.scaling.yarn_log_multiplier", &len);
	assert_int_equal(sits_model_open(image, len, &m, &diag), 0);
	assert_true(fabs(m->hp.attn_scale * sqrt(24) - 1) < 1e-5);
	assert_true(fabs(m->rope_mscale - (1 + 0.1 * log(40))) < 1e-5);
	sits_model_close(m);
	free(image);
	/* No bias for the choice. */
	image = build(false, NULL, "blk.1.exp_probs_b.bias", &len);
	assert_int_equal(sits_model_open(image, len, &m, &diag), 0);
	assert_null(m->layer[1].router_bias.data);
	sits_model_close(m);
	free(image);
}

static void refusals_name_what_is_wrong(void **state)
{
	static const struct {
		struct item change;
		const char *drop;
		int err;
		const char *words;
	} cases[] = {
		{ { A "attention.kv_lora_rank", U32, 0, NULL }, NULL, -EBADMSG, "attention.kv_lora_rank is 0" },
		{ { A "attention.kv_lora_rank", U32, 1025, NULL }, NULL, -EBADMSG, "attention.kv_lora_rank is 1025" },
		{ { A "attention.kv_lora_rank", U32, 24, NULL }, NULL, -EBADMSG, "attention.key_length" },
		{ { A "attention.key_length", U32, 64, NULL }, NULL, -EBADMSG, "attention.key_length" },
		{ { A "attention.value_length", U32, 48, NULL }, NULL, -EBADMSG, "value_length" },
		{ { A "attention.key_length_mla", U32, 16, NULL }, NULL, -EBADMSG, "no room" },
		{ { A "attention.head_count_kv", U32, 3, NULL }, NULL, -EBADMSG, "attention.head_count_kv is 3" },
		{ { A "rope.dimension_count", U32, 8, NULL }, NULL, -EBADMSG, "attention.key_length" },
		{ { A "attention.q_lora_rank", U32, 16, NULL }, NULL, -EBADMSG, "blk.0.attn_q_a.weight" },
		{ { A "attention.q_lora_rank", U32, 0, NULL }, NULL, -EBADMSG, "blk.0.attn_q.weight is missing" },
		{ { A "expert_group_count", U32, 3, NULL }, NULL, -EBADMSG, "routing rule" },
		{ { A "expert_group_used_count", U32, 5, NULL }, NULL, -EBADMSG, "expert_group_used_count is 5" },
		{ { A "expert_used_count", U32, 9, NULL }, NULL, -EBADMSG, "routing rule" },
		{ { A "expert_used_count", U32, 5, NULL }, NULL, -EBADMSG, "routing rule" },
		{ { A "expert_gating_func", U32, 3, NULL }, NULL, -EBADMSG, "expert_gating_func is 3" },
		{ { A "expert_shared_count", U32, 1, NULL }, NULL, -EBADMSG, "blk.1.ffn_gate_shexp.weight" },
		{ { A "expert_shared_count", U32, 0, NULL }, NULL, -EPROTONOSUPPORT, "_shexp.weight has no place" },
		{ { A "leading_dense_block_count", U32, 3, NULL }, NULL, -EBADMSG, "leading_dense_block_count is 3" },
		{ { A "leading_dense_block_count", U32, 0, NULL }, NULL, -EBADMSG, "blk.0.ffn_gate_inp.weight is missing" },
		{ { A "rope.scaling.yarn_log_multiplier", F32, -1, NULL }, NULL, -EBADMSG, "yarn_log_multiplier" },
		{ { A "rope.scaling.yarn_log_multiplier", STR, 0, "x" }, NULL, -EBADMSG, "yarn_log_multiplier" },
		{ { A "rope.scaling.type", STR, 0, "longrope" }, NULL, -EPROTONOSUPPORT, "longrope" },
		{ { A "nextn_predict_layers", U32, 1, NULL }, NULL, -EPROTONOSUPPORT, "nextn_predict_layers is not known" },
		{ { 0 }, A "attention.kv_lora_rank", -EBADMSG, "attention.kv_lora_rank is missing" },
		{ { 0 }, A "attention.value_length_mla", -EBADMSG, "there is one only" },
		{ { 0 }, A "expert_feed_forward_length", -EBADMSG, "expert_feed_forward_length is missing" },
		{ { 0 }, "blk.0.attn_k_b.weight", -EBADMSG, "blk.0.attn_kv_b.weight is missing" },
		{ { 0 }, "blk.0.attn_v_b.weight", -EBADMSG, "blk.0.attn_v_b.weight is missing" },
		{ { 0 }, "blk.1.attn_kv_a_norm.weight", -EBADMSG, "blk.1.attn_kv_a_norm.weight is missing" },
		{ { 0 }, "blk.1.ffn_down_exps.weight", -EBADMSG, "blk.1.ffn_down_exps.weight is missing" },
	};
	size_t i, len;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_diag diag = { 0 };
		struct sits_model *m = NULL;
		void *image = build(false, cases[i].change.key ? &cases[i].change : NULL, cases[i].drop, &len);
		int ret = sits_model_open(image, len, &m, &diag);

		if (ret != cases[i].err || !strstr(diag.msg, cases[i].words))
			fail_msg("case %zu: %d, \"%s\"; expected %d, \"%s\"", i, ret, diag.msg, cases[i].err, cases[i].words);
		free(image);
	}
}

static void a_whole_kv_b_may_be_quantised_but_not_packed(void **state)
{
	struct sits_diag diag = { 0 };
	struct sits_model *m;
	void *image;
	size_t len;

	kv_b_type = SITS_Q8_0;
	image = build(true, NULL, NULL, &len);
	assert_int_equal(sits_model_open(image, len, &m, &diag), 0);
	sits_model_close(m);
	free(image);
	kv_b_type = SITS_PACKED | SITS_Q8_0;
	image = build(true, NULL, NULL, &len);
	assert_int_equal(sits_model_open(image, len, &m, &diag), -EPROTONOSUPPORT);
	assert_non_null(strstr(diag.msg, "blk.0.attn_kv_b.weight is packed"));
	free(image);
	kv_b_type = SITS_F32;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_forms_give_one_description),
		cmocka_unit_test(what_a_file_leaves_out_has_its_meaning),
		cmocka_unit_test(refusals_name_what_is_wrong),
		cmocka_unit_test(a_whole_kv_b_may_be_quantised_but_not_packed),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
