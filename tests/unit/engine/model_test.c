// SPDX-License-Identifier: MIT
/*
 * model_test.c - opening a model: what is filled in, and what is refused, with which words.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/model.h"
#include "tests/unit/engine/tiny_model.h"

static uint8_t *find(uint8_t *image, size_t len, const char *name)
{
	uint8_t *p = memmem(image, len, name, strlen(name));

	assert_non_null(p);
	return p;
}

static void a_model_is_filled_in(void **state)
{
	struct sits_diag diag = { 0 };
	struct sits_model *m;
	size_t len;
	void *image;

	image = tiny_model((struct tiny_opts){ .type = SITS_Q8_0, .type_v = SITS_Q8_0, .type_out = SITS_F16,
					   .biases = true }, &len);
	if (sits_model_open(image, len, &m, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(m->hp.vocab, TINY_VOCAB);
	assert_int_equal(m->hp.layers, 2);
	assert_int_equal(m->hp.embd, 64);
	assert_int_equal(m->hp.ff, 96);
	assert_int_equal(m->hp.heads, 4);
	assert_int_equal(m->hp.kv_heads, 2);
	assert_int_equal(m->hp.head_dim, 16);
	assert_int_equal(m->hp.rope.dims, 16);
	assert_int_equal(m->hp.context, 512);
	assert_int_equal(m->hp.rope.neox, 0);
	assert_memory_equal(m->name.p, "tiny", 4);
	assert_ptr_equal(m->output.data, m->tok_embd.data);
	assert_int_equal(m->tok_embd.row_bytes, 128);
	assert_int_equal(m->layer[1].w_down.K, 96);
	assert_int_equal(m->layer[1].w_down.N, 64);
	assert_int_equal(m->layer[1].w_down.row_bytes, 96 / 32 * 34);
	assert_non_null(m->layer[0].bq.data);
	assert_non_null(m->layer[0].b_down.data);
	assert_null(m->chat);
	assert_true(m->chat_diag.msg[0]);
	assert_int_equal(sits_model_start_token(m), TINY_BOS);
	sits_model_close(m);
	free(image);

	image = tiny_model((struct tiny_opts){ .untied = true }, &len);
	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	assert_ptr_not_equal(m->output.data, m->tok_embd.data);
	assert_null(m->layer[0].bq.data);
	sits_model_close(m);
	free(image);
	sits_model_close(NULL);
}

static void linear(struct gguf_build *b)
{
	gguf_build_str(b, "llama.rope.scaling.type", "linear");
	gguf_build_f32(b, "llama.rope.scaling.factor", 4);
}

static void frequencies_follow_the_metadata(void **state)
{
	/* base^(-2 i / 16) by hand; then the scaling of each kind. */
	static const struct {
		struct tiny_opts o;
		double scale[8];
	} cases[] = {
		{ { 0 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },
		{ { .extra = linear }, { 4, 4, 4, 4, 4, 4, 4, 4 } },
		{ { .rope_freqs = true }, { 1, 1, 1, 1, 8, 8, 8, 8 } },
	};
	struct sits_model *m;
	size_t i, j, len;
	void *image;

	for (i = 0; i < 3; i++) {
		image = tiny_model(cases[i].o, &len);
		assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
		for (j = 0; j < 8; j++)
			assert_true(fabs(m->inv_freq[j] * cases[i].scale[j] * pow(10000, j / 8.0) - 1) < 1e-5);
		sits_model_close(m);
		free(image);
	}
}

static void yarn(struct gguf_build *b)
{
	gguf_build_str(b, "llama.rope.scaling.type", "yarn");
	gguf_build_f32(b, "llama.rope.scaling.factor", 4);
	gguf_build_u32(b, "llama.rope.scaling.original_context_length", 64);
	gguf_build_f32(b, "llama.rope.scaling.attn_factor", 0.5f);
}

/*
 * YaRN by its definition: pair j turns 64 / (2 pi 10000^(j / 8)) times in the original context. 32 times (fast) is at pair
 * 8 ln(64 / (32 2 pi)) / ln 10000 = -0.99, floor -1, so 0; once (slow) at 2.02, ceil 3. Between 0 and 3 the share of interpolation rises by
 * thirds; from 3 up all is interpolated.
 */
static void yarn_stretches_slow_waves(void **state)
{
	static const double share[] = { 0, 1 / 3.0, 2 / 3.0, 1, 1, 1, 1, 1 };
	struct sits_model *m;
	size_t j, len;
	void *image = tiny_model((struct tiny_opts){ .extra = yarn }, &len);

	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	for (j = 0; j < 8; j++)
		assert_true(fabs(m->inv_freq[j] * pow(10000, j / 8.0) / (1 - share[j] + share[j] / 4) - 1) < 1e-5);
	assert_true(fabs((double)m->rope_mscale / (0.5 * (0.1 * log(4) + 1)) - 1) < 1e-6);
	sits_model_close(m);
	free(image);
}

static void pattern(struct gguf_build *b)
{
	static const uint8_t layers[] = { 0, 1, 1 };

	gguf_build_array(b, "qwen2.attention.sliding_window_pattern", 7, 3, layers, sizeof(layers));
}

static void windows_are_those_of_the_layers(void **state)
{
	static const struct {
		struct tiny_opts o;
		uint32_t window[3];
	} cases[] = {
		{ { .layers = 3 }, { 0, 0, 0 } },
		{ { .layers = 3, .window = 20 }, { 20, 20, 20 } },
		{ { .layers = 3, .window = 512 }, { 0, 0, 0 } },	/* the context: none */
		{ { .layers = 3, .window = 20, .arch = "qwen2", .extra = pattern }, { 0, 20, 20 } },
	};
	struct sits_model *m;
	size_t i, j, len;
	void *image;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		image = tiny_model(cases[i].o, &len);
		assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
		for (j = 0; j < 3; j++)
			assert_int_equal(m->layer[j].window, cases[i].window[j]);
		sits_model_close(m);
		free(image);
	}
}

/* ---- architectures ---- */

static void architectures_differ_where_they_do(void **state)
{
	static const struct {
		struct tiny_opts o;
		int neox;
		enum sits_qk_norm norm;
		uint32_t norm_len;
		bool renorm, bias;
	} cases[] = {
		{ { .arch = "llama" }, 0, SITS_QK_NORM_NONE, 0, false, false },
		{ { .arch = "llama", .experts = 8 }, 0, SITS_QK_NORM_NONE, 0, true, false },
		{ { .arch = "qwen2" }, 1, SITS_QK_NORM_NONE, 0, false, true },
		{ { .arch = "qwen3" }, 1, SITS_QK_NORM_HEAD, 16, false, false },
		{ { .arch = "qwen2moe", .experts = 6, .shared_ff = 32 }, 1, SITS_QK_NORM_NONE, 0, false, true },
		{ { .arch = "qwen3moe", .experts = 6, .expert_ff = 32 }, 1, SITS_QK_NORM_HEAD, 16, true, false },
		{ { .arch = "olmoe", .experts = 6 }, 1, SITS_QK_NORM_ALL, 64, false, false },
	};
	struct sits_model *m;
	const struct sits_layer *l;
	size_t i, len;
	void *image;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct tiny_opts *o = &cases[i].o;
		struct sits_diag diag = { 0 };

		image = tiny_model(*o, &len);
		if (sits_model_open(image, len, &m, &diag))
			fail_msg("%s: %s", o->arch, diag.msg);
		l = &m->layer[1];
		assert_int_equal(m->hp.rope.neox, cases[i].neox);
		assert_int_equal(m->hp.qk_norm, cases[i].norm);
		assert_int_equal(l->q_norm.K, cases[i].norm_len);
		assert_int_equal(!!l->bq.data, cases[i].bias);
		assert_int_equal(m->hp.route.experts, o->experts);
		assert_int_equal(l->kind, o->experts ? SITS_LAYER_MOE : SITS_LAYER_DENSE);
		assert_int_equal(m->hp.route.renorm, cases[i].renorm);
		assert_int_equal(!!l->w_up.data, !o->experts);
		assert_int_equal(m->hp.ff, o->experts ? 0 : 96);
		assert_int_equal(l->s_up.N, o->shared_ff);
		assert_int_equal(!!l->s_router.data, o->shared_ff > 0);
		if (o->experts) {
			assert_int_equal(m->hp.route.used, 2);
			assert_int_equal(m->hp.expert_ff, o->expert_ff ? o->expert_ff : 96);
			assert_int_equal(l->e_down.nr, o->experts);
			assert_int_equal(l->e_down.stride, 64 * l->e_down.row_bytes);
			assert_int_equal(l->router.N, o->experts);
		}
		sits_model_close(m);
		free(image);
	}
}

static void not_renormalised(struct gguf_build *b)
{
	gguf_build_bool(b, "qwen3moe.expert_weights_norm", 0);
	gguf_build_u32(b, "qwen3moe.expert_gating_func", 2);
	gguf_build_f32(b, "qwen3moe.expert_weights_scale", 2.5f);
}

static void what_a_file_says_of_routing_counts(void **state)
{
	struct sits_model *m;
	size_t len;
	void *image = tiny_model((struct tiny_opts){ .arch = "qwen3moe", .experts = 6, .extra = not_renormalised }, &len);

	assert_int_equal(sits_model_open(image, len, &m, NULL), 0);
	assert_false(m->hp.route.renorm);
	assert_int_equal(m->hp.route.score, SITS_ROUTE_SIGMOID);
	assert_true(m->hp.route.scale == 2.5f);
	sits_model_close(m);
	free(image);
}

/* An expert's tensor of another type, in the last layer. */
static void other_type(struct gguf_build *b)
{
	uint64_t ne[2] = { 64, 96 };

	gguf_build_tensor(b, "blk.2.ffn_gate.1.weight", SITS_F16, 2, ne, NULL, 64 * 96 * 2);
}

static void mixtures_with_a_part_missing_are_refused_by_name(void **state)
{
	static const struct {
		struct tiny_opts o;
		const char *name, *rename;	/* of a tensor or key */
		int want;
		const char *word;
	} cases[] = {
		{ { .experts = 4 }, "blk.1.ffn_gate_inp.weight", "blk.1.ffn_gate_imp.weight", -EBADMSG,
		  "blk.1.ffn_gate_inp.weight" },
		{ { .experts = 4 }, "blk.0.ffn_up_exps.weight", "blk.0.ffn_uq_exps.weight", -EBADMSG,
		  "blk.0.ffn_up_exps.weight" },
		{ { .experts = 4, .apart = true }, "blk.1.ffn_down.3.weight", "blk.1.ffn_down.4.weight", -EBADMSG,
		  "blk.1.ffn_down.3.weight" },
		{ { .experts = 4, .apart = true }, "blk.1.ffn_up.2.weight", "blk.1.ffn_uq.2.weight", -EBADMSG,
		  "blk.1.ffn_up.2.weight" },
		{ { .arch = "qwen2moe", .experts = 4, .shared_ff = 32 }, "blk.0.ffn_gate_inp_shexp.weight",
		  "blk.0.ffn_gate_imp_shexp.weight", -EBADMSG, "blk.0.ffn_gate_inp_shexp.weight" },
		{ { .arch = "qwen2moe", .experts = 4, .shared_ff = 32 }, "qwen2moe.expert_count", "qwen2moe.expert_cound",
		  -EPROTONOSUPPORT, "qwen2moe.expert_cound" },
		{ { .arch = "olmoe", .experts = 4 }, "blk.0.attn_k_norm.weight", "blk.0.attn_k_nprm.weight", -EBADMSG,
		  "blk.0.attn_k_norm.weight" },
		{ { .arch = "qwen2" }, "blk.0.attn_v.bias", "blk.0.attn_w.bias", -EBADMSG, "blk.0.attn_v.bias" },
		{ { .arch = "qwen3", .experts = 4 }, NULL, NULL, -EPROTONOSUPPORT, "qwen3.expert_count" },
	};
	struct sits_model *m;
	uint8_t *p, *image;
	size_t i, len;
	int ret;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_diag diag = { 0 };

		image = tiny_model(cases[i].o, &len);
		if (cases[i].name) {
			p = find(image, len, cases[i].name);
			memcpy(p, cases[i].rename, strlen(cases[i].rename));
		}
		m = NULL;
		ret = sits_model_open(image, len, &m, &diag);
		if (ret != cases[i].want || m || !strstr(diag.msg, cases[i].word))
			fail_msg("case %zu: returned %d, \"%s\"", i, ret, diag.msg);
		free(image);
	}
}

static void experts_of_two_types_are_refused_by_name(void **state)
{
	struct sits_diag diag = { 0 };
	struct sits_model *m;
	size_t len;
	uint8_t *image = tiny_model((struct tiny_opts){ .experts = 4, .apart = true, .extra = other_type }, &len), *p;

	/* The tensor that extra adds takes the place of one that is there. */
	p = find(image, len, "blk.1.ffn_gate.1.weight");
	memcpy(p, "blk.3", 5);
	p = find(image, len, "blk.2.ffn_gate.1.weight");
	memcpy(p, "blk.1", 5);
	assert_int_equal(sits_model_open(image, len, &m, &diag), -EPROTONOSUPPORT);
	assert_non_null(strstr(diag.msg, "blk.1.ffn_gate.1.weight is F16"));
	free(image);
}

/* ---- one lie per case in an otherwise good image ---- */

enum lie { KEY_U32, RENAME, EXTRA };

static void extra_experts(struct gguf_build *b)
{
	gguf_build_u32(b, "llama.expert_count", 8);
}

static void extra_mixture(struct gguf_build *b)
{
	extra_experts(b);
	gguf_build_u32(b, "llama.expert_used_count", 2);
}

static void extra_greedy(struct gguf_build *b)
{
	extra_experts(b);
	gguf_build_u32(b, "llama.expert_used_count", 9);
}

static void extra_longrope(struct gguf_build *b)
{
	gguf_build_str(b, "llama.rope.scaling.type", "longrope");
}

static void extra_pattern(struct gguf_build *b)
{
	gguf_build_u32(b, "llama.attention.sliding_window", 64);
	gguf_build_u32(b, "llama.attention.sliding_window_pattern", 2);
}

static void extra_not_causal(struct gguf_build *b)
{
	gguf_build_bool(b, "llama.attention.causal", 0);
}

static void extra_key(struct gguf_build *b)
{
	gguf_build_f32(b, "llama.logit_scale", 0.5f);
}

static void extra_vocab(struct gguf_build *b)
{
	gguf_build_u32(b, "llama.vocab_size", 300);
}

static void extra_tensor(struct gguf_build *b)
{
	uint64_t ne = 64;

	gguf_build_tensor(b, "blk.0.attn_sub_norm.weight", SITS_F32, 1, &ne, NULL, 256);
}

static void extra_f16_bias(struct gguf_build *b)
{
	uint64_t ne = 64;

	gguf_build_tensor(b, "blk.0.attn_q.bias", SITS_F16, 1, &ne, NULL, 128);
}

static void extra_long_bias(struct gguf_build *b)
{
	uint64_t ne = 65;

	gguf_build_tensor(b, "blk.1.attn_q.bias", SITS_F32, 1, &ne, NULL, 260);
}

static void extra_type_of_value(struct gguf_build *b)
{
	gguf_build_str(b, "llama.expert_count", "8");
}

static void extra_infinite(struct gguf_build *b)
{
	gguf_build_f32(b, "llama.rope.scale_linear", INFINITY);
}

static const struct {
	const char *what;
	enum lie lie;
	const char *name;
	uint32_t value;
	const char *rename;
	void (*extra)(struct gguf_build *b);
	int want;
	const char *word;	/* in the message */
} lies[] = {
	{ "another architecture", RENAME, "\5\0\0\0\0\0\0\0llama", 0, "\5\0\0\0\0\0\0\0gpt-j", NULL, -EPROTONOSUPPORT,
	  "known: deepseek2, llama, olmoe" },
	{ "no layers", KEY_U32, "llama.block_count", 0, NULL, NULL, -EBADMSG, "llama.block_count" },
	{ "layers without end", KEY_U32, "llama.block_count", UINT32_MAX, NULL, NULL, -EBADMSG, "llama.block_count" },
	{ "a layer too many", KEY_U32, "llama.block_count", 3, NULL, NULL, -EBADMSG, "blk.2.attn_norm.weight" },
	{ "a layer too few", KEY_U32, "llama.block_count", 1, NULL, NULL, -EPROTONOSUPPORT, "blk.1." },
	{ "no context", KEY_U32, "llama.context_length", 0, NULL, NULL, -EBADMSG, "llama.context_length" },
	{ "no context key", RENAME, "llama.context_length", 0, "xlama.context_length", NULL, -EBADMSG,
	  "llama.context_length" },
	{ "wide beyond reason", KEY_U32, "llama.embedding_length", 0xfffffff0, NULL, NULL, -EBADMSG,
	  "llama.embedding_length" },
	{ "another width", KEY_U32, "llama.embedding_length", 128, NULL, NULL, -EBADMSG, "weight" },
	{ "another feed-forward", KEY_U32, "llama.feed_forward_length", 64, NULL, NULL, -EBADMSG, "blk.0.ffn" },
	{ "no heads", KEY_U32, "llama.attention.head_count", 0, NULL, NULL, -EBADMSG, "llama.attention.head_count" },
	{ "heads that do not divide", KEY_U32, "llama.attention.head_count_kv", 3, NULL, NULL, -EBADMSG, "head_count" },
	{ "more key heads than heads", KEY_U32, "llama.attention.head_count_kv", 8, NULL, NULL, -EBADMSG,
	  "head_count_kv" },
	{ "heads of an odd size", KEY_U32, "llama.attention.key_length", 24, NULL, NULL, -EPROTONOSUPPORT, "24" },
	{ "heads too large", KEY_U32, "llama.attention.key_length", 512, NULL, NULL, -EBADMSG, "key_length" },
	{ "values of an odd size", KEY_U32, "llama.attention.value_length", 24, NULL, NULL, -EPROTONOSUPPORT, "24" },
	{ "values of another size", KEY_U32, "llama.attention.value_length", 32, NULL, NULL, -EBADMSG, "blk.0.attn_v" },
	{ "experts without a number of used ones", EXTRA, NULL, 0, NULL, extra_experts, -EBADMSG,
	  "llama.expert_used_count" },
	{ "experts that are not there", EXTRA, NULL, 0, NULL, extra_mixture, -EBADMSG, "blk.0.ffn_gate_inp.weight" },
	{ "more experts used than there are", EXTRA, NULL, 0, NULL, extra_greedy, -EBADMSG, "more than there are" },
	{ "another scaling", EXTRA, NULL, 0, NULL, extra_longrope, -EPROTONOSUPPORT, "longrope" },
	{ "a pattern of windows that is no array of bools", EXTRA, NULL, 0, NULL, extra_pattern, -EPROTONOSUPPORT,
	  "sliding_window_pattern" },
	{ "not causal", EXTRA, NULL, 0, NULL, extra_not_causal, -EPROTONOSUPPORT, "causal" },
	{ "an unknown key", EXTRA, NULL, 0, NULL, extra_key, -EPROTONOSUPPORT, "llama.logit_scale" },
	{ "another vocabulary", EXTRA, NULL, 0, NULL, extra_vocab, -EBADMSG, "llama.vocab_size" },
	{ "an unknown tensor", EXTRA, NULL, 0, NULL, extra_tensor, -EPROTONOSUPPORT, "blk.0.attn_sub_norm.weight" },
	{ "a key of another type", EXTRA, NULL, 0, NULL, extra_type_of_value, -EBADMSG, "llama.expert_count" },
	{ "an infinite scale", EXTRA, NULL, 0, NULL, extra_infinite, -EBADMSG, "llama.rope.scale_linear" },
	{ "a missing tensor", RENAME, "blk.1.ffn_up.weight", 0, "blk.1.ffn_ux.weight", NULL, -EBADMSG,
	  "blk.1.ffn_up.weight" },
	{ "no embedding", RENAME, "token_embd.weight", 0, "tokem_embd.weight", NULL, -EBADMSG, "token_embd.weight" },
	{ "a bias that is not F32", EXTRA, NULL, 0, NULL, extra_f16_bias, -EPROTONOSUPPORT, "blk.0.attn_q.bias" },
	{ "a bias of another length", EXTRA, NULL, 0, NULL, extra_long_bias, -EBADMSG, "blk.1.attn_q.bias" },
};

static void edit(uint8_t *image, size_t len, size_t i)
{
	uint8_t *p;
	uint32_t v = lies[i].value;
	size_t n;

	switch (lies[i].lie) {
	case KEY_U32:
		p = find(image, len, lies[i].name) + strlen(lies[i].name);
		memcpy(p + 4, &v, sizeof(v));
		break;
	case RENAME:
		/* The architecture's pattern begins with its length, zeros and all. */
		n = lies[i].name[0] == 5 ? 13 : strlen(lies[i].name);
		p = memmem(image, len, lies[i].name, n);
		assert_non_null(p);
		memcpy(p, lies[i].rename, n);
		break;
	default:
		break;
	}
}

static void each_lie_is_refused_by_name(void **state)
{
	struct sits_model *m;
	size_t i, len;
	void *image;
	int ret;

	for (i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct sits_diag diag = { 0 };

		image = tiny_model((struct tiny_opts){ .extra = lies[i].extra }, &len);
		edit(image, len, i);
		m = NULL;
		ret = sits_model_open(image, len, &m, &diag);
		if (ret != lies[i].want || m)
			fail_msg("%s: returned %d, \"%s\"", lies[i].what, ret, diag.msg);
		if (!strstr(diag.msg, lies[i].word))
			fail_msg("%s: the message does not say %s: \"%s\"", lies[i].what, lies[i].word, diag.msg);
		free(image);
	}
}

/* Any byte of the metadata changed: refused or opened, never a fault; the sanitizers watch. */
static void change_bytes(struct rng *r, struct tiny_opts o)
{
	struct sits_model *m;
	size_t len, at, meta;
	uint8_t *image, old;
	uint32_t i, opened = 0;

	image = tiny_model(o, &len);
	meta = find(image, len, "output_norm.weight") - image + 40;
	for (i = 0; i < 10000; i++) {
		at = rng_below(r, meta);
		old = image[at];
		image[at] ^= 1 + rng_below(r, 255);
		if (!sits_model_open(image, len, &m, NULL)) {
			opened++;
			sits_model_close(m);
		}
		image[at] = old;
	}
	assert_true(opened < 10000);
	free(image);
}

static void changed_bytes_never_crash(void **state)
{
	struct rng r = rng_seeded("model");

	change_bytes(&r, (struct tiny_opts){ .biases = true });
	change_bytes(&r, (struct tiny_opts){ .arch = "qwen2moe", .experts = 5, .shared_ff = 32, .window = 30 });
	change_bytes(&r, (struct tiny_opts){ .experts = 3, .apart = true });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_model_is_filled_in),
		cmocka_unit_test(frequencies_follow_the_metadata),
		cmocka_unit_test(yarn_stretches_slow_waves),
		cmocka_unit_test(windows_are_those_of_the_layers),
		cmocka_unit_test(architectures_differ_where_they_do),
		cmocka_unit_test(what_a_file_says_of_routing_counts),
		cmocka_unit_test(mixtures_with_a_part_missing_are_refused_by_name),
		cmocka_unit_test(experts_of_two_types_are_refused_by_name),
		cmocka_unit_test(each_lie_is_refused_by_name),
		cmocka_unit_test(changed_bytes_never_crash),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
