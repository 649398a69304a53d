// SPDX-License-Identifier: MIT
/*
 * hf_config.c - see hf_config.h.
 *
 * A model_type is a table: which keys it has besides those that all have, and what becomes of each. What takes more than
 * a copy under another name (positions, windows, routing) is code behind the tables.
 *
 * Source: the configuration classes of Hugging Face transformers 4.57 (models/NAME/configuration_NAME.py,
 * modeling_rope_utils.py), which also give the defaults; for the names on the other side, as in family.c.
 */
#include "daemon/model/hf_config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/arch.h"
#include "daemon/model/json.h"

#define FILE_NAME "config.json"

static const struct sits_json_limits limits = { .bytes = 4u << 20, .values = 128u << 10 };

enum act {
	IGNORE,		/* changes no answer */
	OFF,		/* must be null, false or 0 */
	OFF_LIST,	/* must be null or an empty array */
	OFF_MAP,	/* must be null or an empty object */
	UNSET,		/* must be null: 0 says something, too */
	U32,		/* a whole number, copied */
	U32_OR_NULL,	/* ... or nothing */
	F32,
	BOOL,
	CODE,		/* read by code below */
};

struct rule {
	const char *key;
	enum act act;
	const char *to;		/* behind "{arch}."; for U32, F32, BOOL */
};

#define IGNORE_(k)	{ .key = k, .act = IGNORE }
#define OFF_(k)		{ .key = k, .act = OFF }
#define OFF_LIST_(k)	{ .key = k, .act = OFF_LIST }
#define OFF_MAP_(k)	{ .key = k, .act = OFF_MAP }
#define UNSET_(k)	{ .key = k, .act = UNSET }
#define CODE_(k)	{ .key = k, .act = CODE }
#define END_		{ .key = NULL }

static const struct rule common[] = {
	{ "hidden_size", U32, "embedding_length" }, { "intermediate_size", U32, "feed_forward_length" },
	CODE_("num_hidden_layers"), CODE_("num_attention_heads"), CODE_("num_key_value_heads"), CODE_("vocab_size"),
	{ "max_position_embeddings", U32, "context_length" }, { "rms_norm_eps", F32, "attention.layer_norm_rms_epsilon" },
	CODE_("rope_theta"), CODE_("rope_scaling"), CODE_("rope_parameters"), CODE_("hidden_act"),
	CODE_("tie_word_embeddings"), CODE_("bos_token_id"), CODE_("eos_token_id"), CODE_("model_type"),
	CODE_("quantization_config"), CODE_("compression_config"), CODE_("partial_rotary_factor"),
	/* Of training, of other software, or of generation, which a request says itself. */
	IGNORE_("architectures"), IGNORE_("torch_dtype"), IGNORE_("dtype"), IGNORE_("transformers_version"),
	IGNORE_("_name_or_path"), IGNORE_("use_cache"), IGNORE_("initializer_range"), IGNORE_("attention_dropout"),
	IGNORE_("hidden_dropout"), IGNORE_("pad_token_id"), IGNORE_("pretraining_tp"), IGNORE_("auto_map"),
	IGNORE_("_attn_implementation"), IGNORE_("_attn_implementation_autoset"), IGNORE_("attn_implementation"),
	IGNORE_("transformers.js_config"), IGNORE_("unsloth_version"), IGNORE_("unsloth_fixed"), IGNORE_("return_dict"),
	IGNORE_("output_attentions"), IGNORE_("output_hidden_states"), IGNORE_("is_llama_config"),
	IGNORE_("is_decoder"), IGNORE_("tokenizer_class"), IGNORE_("max_length"), IGNORE_("do_sample"),
	IGNORE_("temperature"), IGNORE_("top_k"), IGNORE_("top_p"),
	OFF_("is_encoder_decoder"), OFF_("add_cross_attention"), UNSET_("cross_attention_hidden_size"), OFF_MAP_("pruned_heads"),
	OFF_("rope_interleaved"), OFF_("use_mrope"), END_,
};

/* Keys that say where windows are. */
#define WINDOW_KEYS CODE_("sliding_window"), CODE_("use_sliding_window"), CODE_("max_window_layers"), CODE_("layer_types")
/* Of mixtures: training only. */
#define TRAIN_KEYS IGNORE_("output_router_logits"), IGNORE_("router_aux_loss_coef"), IGNORE_("router_jitter_noise"), \
	IGNORE_("aux_loss_alpha"), IGNORE_("seq_aux")
#define HEAD_DIM CODE_("head_dim")
/* Biases show as tensors; what has no place for them is refused there. */
#define BIAS_KEYS IGNORE_("attention_bias"), IGNORE_("mlp_bias")

static const struct rule llama[] = { HEAD_DIM, BIAS_KEYS, END_ };
static const struct rule mistral[] = { HEAD_DIM, CODE_("sliding_window"), END_ };
static const struct rule mixtral[] = {
	HEAD_DIM, CODE_("sliding_window"), TRAIN_KEYS, { "num_local_experts", U32, "expert_count" },
	{ "num_experts_per_tok", U32, "expert_used_count" }, END_,
};
static const struct rule qwen2[] = { HEAD_DIM, WINDOW_KEYS, END_ };
static const struct rule qwen3[] = { HEAD_DIM, BIAS_KEYS, WINDOW_KEYS, END_ };
#define QWEN_MOE { "num_experts", U32, "expert_count" }, { "num_experts_per_tok", U32, "expert_used_count" }, \
	{ "moe_intermediate_size", U32, "expert_feed_forward_length" }, CODE_("norm_topk_prob"), CODE_("decoder_sparse_step"), \
	OFF_LIST_("mlp_only_layers"), TRAIN_KEYS
static const struct rule qwen2moe[] = {
	HEAD_DIM, WINDOW_KEYS, QWEN_MOE, { "shared_expert_intermediate_size", U32, "expert_shared_feed_forward_length" },
	IGNORE_("qkv_bias"), END_,
};
static const struct rule qwen3moe[] = { HEAD_DIM, BIAS_KEYS, WINDOW_KEYS, QWEN_MOE, END_ };
static const struct rule olmoe[] = {
	HEAD_DIM, BIAS_KEYS, TRAIN_KEYS, { "num_experts", U32, "expert_count" }, { "num_experts_per_tok", U32, "expert_used_count" },
	CODE_("norm_topk_prob"), UNSET_("clip_qkv"), END_,
};
#define DEEPSEEK { "q_lora_rank", U32_OR_NULL, "attention.q_lora_rank" }, { "kv_lora_rank", U32, "attention.kv_lora_rank" }, \
	CODE_("qk_nope_head_dim"), { "qk_rope_head_dim", U32, "rope.dimension_count" }, { "v_head_dim", U32, "attention.value_length" }, \
	{ "n_routed_experts", U32_OR_NULL, "expert_count" }, { "num_experts_per_tok", U32_OR_NULL, "expert_used_count" }, \
	{ "n_shared_experts", U32_OR_NULL, "expert_shared_count" }, { "moe_intermediate_size", U32, "expert_feed_forward_length" }, \
	{ "first_k_dense_replace", U32, "leading_dense_block_count" }, { "routed_scaling_factor", F32, "expert_weights_scale" }, \
	CODE_("moe_layer_freq"), CODE_("n_group"), CODE_("topk_group"), CODE_("topk_method"), CODE_("scoring_func"), \
	CODE_("norm_topk_prob"), IGNORE_("qk_head_dim"), IGNORE_("head_dim"), IGNORE_("ep_size"), IGNORE_("attention_bias"), \
	IGNORE_("mlp_bias"), TRAIN_KEYS
static const struct rule deepseek2[] = { DEEPSEEK, END_ };
static const struct rule deepseek3[] = { DEEPSEEK, CODE_("num_nextn_predict_layers"), CODE_("rope_interleave"), END_ };

enum kind { DENSE, MIXTURE, NORMED_MIXTURE, MLA_V2, MLA_V3 };

static const struct type {
	const char *name;	/* model_type */
	const char *arch;
	const struct rule *rules;
	enum kind kind;		/* NORMED_MIXTURE: norm_topk_prob is a key of it */
	bool own_kv_heads;	/* the class has a default for num_key_value_heads other than all heads, so it must be there */
} types[] = {
	{ "llama", "llama", llama, DENSE, false }, { "mistral", "llama", mistral, DENSE, true },
	{ "mixtral", "llama", mixtral, MIXTURE, true }, { "qwen2", "qwen2", qwen2, DENSE, true },
	{ "qwen3", "qwen3", qwen3, DENSE, true }, { "qwen2_moe", "qwen2moe", qwen2moe, NORMED_MIXTURE, true },
	{ "qwen3_moe", "qwen3moe", qwen3moe, NORMED_MIXTURE, true }, { "olmoe", "olmoe", olmoe, NORMED_MIXTURE, false },
	{ "deepseek_v2", "deepseek2", deepseek2, MLA_V2, false }, { "deepseek_v3", "deepseek2", deepseek3, MLA_V3, false },
};

#define NR(a) (sizeof(a) / sizeof((a)[0]))

struct reader {
	const json_t *root;
	const struct type *type;
	struct sits_meta *meta;
	struct sits_hf_config *out;
	struct sits_diag *diag;
	uint32_t heads, head_dim;	/* head_dim: what RoPE turns, with MLA a part of it */
	uint32_t context;
};

static int fail(struct reader *r, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct reader *r, int err, const char *fmt, ...)
{
	char words[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	return sits_diag_fail(r->diag, err, FILE_NAME ": %s", words);
}

/* ------------------------------------------------------------------ values */

static bool is_null(const json_t *v)
{
	return !v || json_is_null(v);
}

static const json_t *get(const struct reader *r, const char *key)
{
	return json_object_get(r->root, key);
}

/* A whole number in [min, UINT32_MAX]; @dflt where it is null or absent, required where @dflt is negative. */
static int get_u32(struct reader *r, const json_t *object, const char *key, uint32_t min, int64_t dflt, uint32_t *v)
{
	const json_t *n = json_object_get(object, key);
	double d;

	if (is_null(n) && dflt >= 0) {
		*v = (uint32_t)dflt;
		return 0;
	}
	if (is_null(n))
		return fail(r, -EBADMSG, "key %s is missing", key);
	d = json_number_value(n);	/* some write 4096.0 */
	if (!json_is_number(n) || d != floor(d) || d < min || d > UINT32_MAX)
		return fail(r, -EBADMSG, "key %s is not a whole number from %" PRIu32 " up", key, min);
	*v = (uint32_t)d;
	return 0;
}

/* A positive float, as get_u32(). */
static int get_f32(struct reader *r, const json_t *object, const char *key, double dflt, double *v)
{
	const json_t *n = json_object_get(object, key);

	if (is_null(n) && dflt >= 0) {
		*v = dflt;
		return 0;
	}
	if (is_null(n))
		return fail(r, -EBADMSG, "key %s is missing", key);
	*v = json_number_value(n);
	if (!json_is_number(n) || !(*v > 0) || *v > 1e30)
		return fail(r, -EBADMSG, "key %s is not a positive number", key);
	return 0;
}

static int get_bool(struct reader *r, const json_t *object, const char *key, bool dflt, bool *v)
{
	const json_t *b = json_object_get(object, key);

	*v = is_null(b) ? dflt : json_is_true(b);
	return is_null(b) || json_is_boolean(b) ? 0 : fail(r, -EBADMSG, "key %s is not a boolean", key);
}

/* NULL where it is null or absent. */
static int get_str(struct reader *r, const json_t *object, const char *key, const char **v)
{
	const json_t *s = json_object_get(object, key);

	*v = json_string_value(s);
	return is_null(s) || *v ? 0 : fail(r, -EBADMSG, "key %s is not a string", key);
}

/* "{arch}.{name}"; all names are literals of this file. */
#define KEY_MAX 96
static const char *to_key(const struct reader *r, const char *name, char buf[KEY_MAX])
{
	snprintf(buf, KEY_MAX, "%s.%s", r->type->arch, name);
	return buf;
}

static void put_u32(struct reader *r, const char *name, uint32_t v)
{
	char buf[KEY_MAX];

	sits_meta_u32(r->meta, to_key(r, name, buf), v);
}

static void put_f32(struct reader *r, const char *name, double v)
{
	char buf[KEY_MAX];

	sits_meta_f32(r->meta, to_key(r, name, buf), (float)v);
}

static void put_bool(struct reader *r, const char *name, bool v)
{
	char buf[KEY_MAX];

	sits_meta_bool(r->meta, to_key(r, name, buf), v);
}

static void put_str(struct reader *r, const char *name, const char *v)
{
	char buf[KEY_MAX];

	sits_meta_str(r->meta, to_key(r, name, buf), v, strlen(v));
}

/* ------------------------------------------------------------------ the tables */

static const struct rule *find_rule(const struct rule *rules, const char *key)
{
	for (; rules->key; rules++)
		if (!strcmp(rules->key, key))
			return rules;
	return NULL;
}

static bool is_off(const json_t *v)
{
	return is_null(v) || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
}

/* What must not be set is set, or is not even of the kind that it should be. */
static int must_be_off(struct reader *r, const struct rule *rule, const json_t *v)
{
	if (is_null(v) || (rule->act == OFF && is_off(v)))
		return 0;
	if (rule->act == OFF_LIST && !json_is_array(v))
		return fail(r, -EBADMSG, "key %s is not a list", rule->key);
	if (rule->act == OFF_MAP && !json_is_object(v))
		return fail(r, -EBADMSG, "key %s is not an object", rule->key);
	if ((rule->act == OFF_LIST && !json_array_size(v)) || (rule->act == OFF_MAP && !json_object_size(v)))
		return 0;
	return fail(r, -EPROTONOSUPPORT, "key %s is set, which is not supported", rule->key);
}

static int apply(struct reader *r, const struct rule *rule, const json_t *v)
{
	uint32_t u = 0;
	double d = 0;
	bool b = false;
	int ret = 0;

	switch (rule->act) {
	case IGNORE:
	case CODE:
		return 0;
	case OFF:
	case OFF_LIST:
	case OFF_MAP:
	case UNSET:
		return must_be_off(r, rule, v);
	case U32_OR_NULL:
		if (is_null(v))
			return 0;
		/* fall through */
	case U32:
		ret = get_u32(r, r->root, rule->key, 0, -1, &u);
		if (!ret)
			put_u32(r, rule->to, u);
		return ret;
	case F32:
		ret = get_f32(r, r->root, rule->key, -1, &d);
		if (!ret)
			put_f32(r, rule->to, d);
		return ret;
	case BOOL:
		ret = get_bool(r, r->root, rule->key, false, &b);
		if (!ret)
			put_bool(r, rule->to, b);
		return ret;
	}
	return 0;
}

static int apply_all(struct reader *r)
{
	const struct rule *rule;
	const char *key;
	json_t *v;
	int ret;

	json_object_foreach((json_t *)r->root, key, v) {
		rule = find_rule(r->type->rules, key);
		if (!rule)
			rule = find_rule(common, key);
		if (!rule)
			return fail(r, -EPROTONOSUPPORT, "key %.80s is not known for model_type %s and might change the model's answers",
				    key, r->type->name);
		ret = apply(r, rule, v);
		if (ret)
			return ret;
	}
	/* What must be there: a class's default is not guessed. */
	for (rule = common; rule->key; rule++)
		if ((rule->act == U32 || rule->act == F32) && is_null(get(r, rule->key)))
			return fail(r, -EBADMSG, "key %s is missing", rule->key);
	for (rule = r->type->rules; rule->key; rule++)
		if ((rule->act == U32 || rule->act == F32) && is_null(get(r, rule->key)))
			return fail(r, -EBADMSG, "key %s is missing", rule->key);
	return 0;
}

/* ------------------------------------------------------------------ sizes */

static int read_sizes(struct reader *r)
{
	const bool mla = r->type->kind == MLA_V2 || r->type->kind == MLA_V3;
	uint32_t kv_heads, head_dim = 0, hidden, rope, nope;
	const char *act;
	double partial;
	int ret;

	ret = get_str(r, r->root, "hidden_act", &act);
	if (!ret)
		ret = get_u32(r, r->root, "num_hidden_layers", 1, -1, &r->out->layers);
	if (!ret)
		ret = get_u32(r, r->root, "vocab_size", 1, -1, &r->out->vocab);
	if (!ret)
		ret = get_u32(r, r->root, "num_attention_heads", 1, -1, &r->heads);
	if (!ret)
		ret = get_u32(r, r->root, "num_key_value_heads", 1, r->type->own_kv_heads ? -1 : (int64_t)r->heads, &kv_heads);
	if (!ret)
		ret = get_u32(r, r->root, "hidden_size", 1, -1, &hidden);
	if (!ret)
		ret = get_u32(r, r->root, "max_position_embeddings", 1, -1, &r->context);
	if (!ret)
		ret = get_f32(r, r->root, "partial_rotary_factor", 1, &partial);
	if (ret)
		return ret;
	if (!act || strcmp(act, "silu"))
		return fail(r, act ? -EPROTONOSUPPORT : -EBADMSG, "key hidden_act is %.40s; only silu is supported", act ? act : "missing");
	if (partial != 1)
		return fail(r, -EPROTONOSUPPORT, "key partial_rotary_factor is %g; only 1 is supported", partial);
	put_u32(r, "block_count", r->out->layers);
	put_u32(r, "vocab_size", r->out->vocab);
	put_u32(r, "attention.head_count", r->heads);
	put_u32(r, "attention.head_count_kv", mla ? r->heads : kv_heads);
	if (mla) {
		ret = get_u32(r, r->root, "qk_rope_head_dim", 1, -1, &rope);
		if (!ret)
			ret = get_u32(r, r->root, "qk_nope_head_dim", 1, -1, &nope);
		if (!ret && nope > UINT32_MAX - rope)
			ret = fail(r, -EBADMSG, "key qk_nope_head_dim is %" PRIu32, nope);
		if (!ret)
			put_u32(r, "attention.key_length", nope + rope);
		r->head_dim = ret ? 0 : rope;
		return ret;
	}
	ret = get_u32(r, r->root, "head_dim", 1, 0, &head_dim);
	if (ret)
		return ret;
	if (!head_dim && hidden % r->heads)
		return fail(r, -EBADMSG, "key hidden_size is %" PRIu32 ", not a multiple of num_attention_heads, %" PRIu32, hidden, r->heads);
	r->head_dim = head_dim ? head_dim : hidden / r->heads;
	put_u32(r, "attention.key_length", r->head_dim);
	put_u32(r, "attention.value_length", r->head_dim);
	put_u32(r, "rope.dimension_count", r->head_dim);
	return 0;
}

/* ------------------------------------------------------------------ positions */

static int only_keys(struct reader *r, const json_t *s, const char *const *known)
{
	const char *const *k;
	const char *key;
	json_t *unused;

	json_object_foreach((json_t *)s, key, unused) {
		for (k = known; *k && strcmp(*k, key); k++)
			;
		if (!*k)
			return fail(r, -EPROTONOSUPPORT, "key rope_scaling.%.60s is not known here", key);
	}
	return 0;
}

/* 0.1 m ln(s) + 1, as YaRN has it. */
static double yarn_mscale(double factor, double m)
{
	return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

static int read_yarn(struct reader *r, const json_t *s)
{
	static const char *const known[] = {
		"rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale",
		"mscale_all_dim", "attention_factor", "truncate", "finetuned", NULL,
	};
	double factor, fast, slow, m, all, attention, relative;
	uint32_t original;
	bool truncate;
	int ret = only_keys(r, s, known);

	if (!ret)
		ret = get_f32(r, s, "factor", -1, &factor);
	if (!ret)
		ret = get_u32(r, s, "original_max_position_embeddings", 1, r->context, &original);
	if (!ret)
		ret = get_f32(r, s, "beta_fast", 32, &fast);
	if (!ret)
		ret = get_f32(r, s, "beta_slow", 1, &slow);
	if (!ret)
		ret = get_f32(r, s, "attention_factor", 0, &attention);
	if (!ret && !is_off(json_object_get(s, "mscale")))
		ret = get_f32(r, s, "mscale", -1, &m);
	else
		m = 0;
	if (!ret && !is_off(json_object_get(s, "mscale_all_dim")))
		ret = get_f32(r, s, "mscale_all_dim", -1, &all);
	else
		all = 0;
	if (!ret)
		ret = get_bool(r, s, "truncate", true, &truncate);
	if (ret)
		return ret;
	if (!truncate)
		return fail(r, -EPROTONOSUPPORT, "key rope_scaling.truncate is false, which is not supported");
	if (attention == 0)
		attention = m > 0 && all > 0 ? yarn_mscale(factor, m) / yarn_mscale(factor, all) : yarn_mscale(factor, 1);
	put_str(r, "rope.scaling.type", "yarn");
	put_f32(r, "rope.scaling.factor", factor);
	put_u32(r, "rope.scaling.original_context_length", original);
	put_f32(r, "rope.scaling.yarn_beta_fast", fast);
	put_f32(r, "rope.scaling.yarn_beta_slow", slow);
	/* The key is relative to what YaRN itself asks for. */
	relative = attention / yarn_mscale(factor, 1);
	if (r->type->kind == MLA_V2 || r->type->kind == MLA_V3) {
		if (all > 0)
			put_f32(r, "rope.scaling.yarn_log_multiplier", 0.1 * all);
		if (all > 0 && fabs(attention - 1) < 1e-9)
			return 0;	/* what deepseek2 takes then without the key */
	}
	if (fabs(relative - 1) > 1e-9)
		put_f32(r, "rope.scaling.attn_factor", relative);
	return 0;
}

/* What each frequency is divided by. Source: modeling_rope_utils.py, _compute_llama3_parameters(). */
static int read_llama3(struct reader *r, const json_t *s, double theta)
{
	static const char *const known[] = {
		"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL,
	};
	double factor, low, high, wave, smooth;
	uint32_t original, i, half = r->head_dim / 2;
	int ret = only_keys(r, s, known);

	if (!ret)
		ret = get_f32(r, s, "factor", -1, &factor);
	if (!ret)
		ret = get_f32(r, s, "low_freq_factor", -1, &low);
	if (!ret)
		ret = get_f32(r, s, "high_freq_factor", -1, &high);
	if (!ret)
		ret = get_u32(r, s, "original_max_position_embeddings", 1, -1, &original);
	if (ret)
		return ret;
	if (high <= low)
		return fail(r, -EBADMSG, "key rope_scaling.high_freq_factor is not above low_freq_factor");
	if (r->head_dim % 2 || r->head_dim > SITS_MODEL_MAX_HEAD_DIM)
		return fail(r, -EPROTONOSUPPORT, "heads of %" PRIu32 " dimensions; at most %d, an even number", r->head_dim,
			    SITS_MODEL_MAX_HEAD_DIM);
	r->out->factors = malloc(half * sizeof(*r->out->factors));
	if (!r->out->factors)
		return fail(r, -ENOMEM, "no memory");
	r->out->nr_factors = half;
	for (i = 0; i < half; i++) {
		wave = 2 * M_PI * pow(theta, 2.0 * i / r->head_dim);
		smooth = (original / wave - low) / (high - low);
		r->out->factors[i] = (float)(wave < original / high ? 1 : wave > original / low ? factor :
					     1 / ((1 - smooth) / factor + smooth));
	}
	return 0;
}

static int read_linear(struct reader *r, const json_t *s)
{
	static const char *const known[] = { "rope_type", "type", "rope_theta", "factor", NULL };
	double factor;
	int ret = only_keys(r, s, known);

	if (!ret)
		ret = get_f32(r, s, "factor", -1, &factor);
	if (ret)
		return ret;
	put_str(r, "rope.scaling.type", "linear");
	put_f32(r, "rope.scaling.factor", factor);
	return 0;
}

static int read_rope(struct reader *r)
{
	static const char *const plain[] = { "rope_type", "type", "rope_theta", NULL };
	const json_t *s = get(r, "rope_parameters"), *old = get(r, "rope_scaling");
	const char *type, *other;
	double theta;
	int ret;

	if (is_null(s))
		s = old;
	else if (!is_null(old))
		return fail(r, -EPROTONOSUPPORT, "there are both rope_parameters and rope_scaling");
	if (!is_null(s) && !json_is_object(s))
		return fail(r, -EBADMSG, "key %s is not an object", s == old ? "rope_scaling" : "rope_parameters");
	ret = get_f32(r, r->root, "rope_theta", 0, &theta);
	if (!ret && theta == 0)
		ret = get_f32(r, s, "rope_theta", 10000, &theta);
	if (ret)
		return ret;
	put_f32(r, "rope.freq_base", theta);
	ret = get_str(r, s, "rope_type", &type);
	if (!ret)
		ret = get_str(r, s, "type", &other);
	if (ret)
		return ret;
	if (type && other && strcmp(type, other))
		return fail(r, -EBADMSG, "key rope_scaling.rope_type is \"%.40s\" and type \"%.40s\"", type, other);
	type = type ? type : other;
	if (is_null(s))
		return 0;
	if ((type && !strcmp(type, "default")) || (!type && s != old))
		return only_keys(r, s, plain);
	if (type && !strcmp(type, "linear"))
		return read_linear(r, s);
	if (type && !strcmp(type, "yarn"))
		return read_yarn(r, s);
	if (type && !strcmp(type, "llama3") && r->type->kind != MLA_V2 && r->type->kind != MLA_V3)
		return read_llama3(r, s, theta);
	return fail(r, -EPROTONOSUPPORT, "key rope_scaling.rope_type is \"%.40s\"; known: default, linear, yarn, llama3", type ? type : "");
}

/* ------------------------------------------------------------------ windows */

/* layer_types, or the rule that it follows from: which layers have the window. */
static int read_layer_types(struct reader *r, const json_t *list, uint8_t *windowed)
{
	const char *s;
	size_t i;

	if (json_array_size(list) != r->out->layers)
		return fail(r, -EBADMSG, "key layer_types has not one entry for each of the %" PRIu32 " layers", r->out->layers);
	for (i = 0; i < r->out->layers; i++) {
		s = json_string_value(json_array_get(list, i));
		if (!s || (strcmp(s, "full_attention") && strcmp(s, "sliding_attention")))
			return fail(r, -EPROTONOSUPPORT, "key layer_types: layer %zu is \"%.40s\"; known: full_attention, sliding_attention", i,
				    s ? s : "");
		windowed[i] = !strcmp(s, "sliding_attention");
	}
	return 0;
}

static int read_window(struct reader *r)
{
	const bool qwen = find_rule(r->type->rules, "use_sliding_window");
	const json_t *list = get(r, "layer_types");
	uint32_t window, from, i, nr = 0;
	uint8_t *windowed;
	char key[KEY_MAX];
	bool used;
	int ret;

	if (!find_rule(r->type->rules, "sliding_window"))
		return 0;
	ret = get_u32(r, r->root, "sliding_window", 0, 0, &window);
	if (!ret)
		ret = get_bool(r, r->root, "use_sliding_window", !qwen, &used);
	if (!ret)
		ret = get_u32(r, r->root, "max_window_layers", 0, 0, &from);
	if (ret)
		return ret;
	if (used && qwen && r->type->kind == NORMED_MIXTURE)
		return fail(r, -EPROTONOSUPPORT, "key use_sliding_window is true, which is not supported for model_type %s", r->type->name);
	if (r->out->layers > SITS_MODEL_MAX_LAYERS)
		return fail(r, -EBADMSG, "key num_hidden_layers is %" PRIu32 "; at most %d", r->out->layers, SITS_MODEL_MAX_LAYERS);
	windowed = calloc(r->out->layers, 1);
	if (!windowed)
		return fail(r, -ENOMEM, "no memory");
	for (i = 0; i < r->out->layers; i++)
		windowed[i] = used && window && (!qwen || i >= from);
	if (!is_null(list))
		ret = read_layer_types(r, list, windowed);
	for (i = 0; i < r->out->layers; i++)
		nr += windowed[i];
	if (!ret && nr && (!window || !used))
		ret = fail(r, -EBADMSG, "key layer_types has sliding_attention, but there is no sliding_window in use");
	if (!ret && nr) {
		put_u32(r, "attention.sliding_window", window);
		if (nr < r->out->layers)
			sits_meta_bools(r->meta, to_key(r, "attention.sliding_window_pattern", key), windowed, r->out->layers);
	}
	free(windowed);
	return ret;
}

/* ------------------------------------------------------------------ experts */

/* A key that says something only where it differs from @one. */
static int must_be(struct reader *r, const char *key, uint32_t one)
{
	uint32_t v;
	int ret = get_u32(r, r->root, key, 0, one, &v);

	if (!ret && v != one)
		ret = fail(r, -EPROTONOSUPPORT, "key %s is %" PRIu32 "; only %" PRIu32 " is supported", key, v, one);
	return ret;
}

static int read_deepseek(struct reader *r)
{
	const char *method, *score;
	const bool v3 = r->type->kind == MLA_V3;
	uint32_t groups, used;
	bool norm, interleave;
	int ret;

	ret = get_str(r, r->root, "topk_method", &method);
	if (!ret)
		ret = get_str(r, r->root, "scoring_func", &score);
	if (!ret)
		ret = get_u32(r, r->root, "n_group", 1, 1, &groups);
	if (!ret)
		ret = get_u32(r, r->root, "topk_group", 1, 1, &used);
	if (!ret)
		ret = get_bool(r, r->root, "norm_topk_prob", v3, &norm);
	if (!ret)
		ret = get_bool(r, r->root, "rope_interleave", true, &interleave);
	if (!ret)
		ret = must_be(r, "moe_layer_freq", 1);
	if (!ret)
		ret = get_u32(r, r->root, "num_nextn_predict_layers", 0, 0, &r->out->mtp_layers);
	if (ret)
		return ret;
	method = method ? method : v3 ? "noaux_tc" : "greedy";
	score = score ? score : v3 ? "sigmoid" : "softmax";
	if (strcmp(score, v3 ? "sigmoid" : "softmax"))
		return fail(r, -EPROTONOSUPPORT, "key scoring_func is \"%.40s\"; for model_type %s only %s is supported", score, r->type->name,
			    v3 ? "sigmoid" : "softmax");
	if (v3 ? strcmp(method, "noaux_tc") : strcmp(method, "greedy") && strcmp(method, "group_limited_greedy"))
		return fail(r, -EPROTONOSUPPORT, "key topk_method is \"%.40s\"; for model_type %s it is not supported", method, r->type->name);
	/* Published code does not agree on what it means there. */
	if (!v3 && norm)
		return fail(r, -EPROTONOSUPPORT, "key norm_topk_prob is true, which is not supported for model_type %s", r->type->name);
	if (!interleave)
		return fail(r, -EPROTONOSUPPORT, "key rope_interleave is false, which is not supported");
	if (!strcmp(method, "greedy"))
		groups = used = 1;
	put_u32(r, "expert_group_count", groups);
	put_u32(r, "expert_group_used_count", used);
	put_u32(r, "expert_gating_func", v3 ? 2 : 1);
	put_bool(r, "expert_weights_norm", norm);
	return 0;
}

static int read_experts(struct reader *r)
{
	bool norm;
	int ret;

	switch (r->type->kind) {
	case NORMED_MIXTURE:
		ret = get_bool(r, r->root, "norm_topk_prob", false, &norm);
		if (!ret)
			ret = must_be(r, "decoder_sparse_step", 1);
		if (!ret)
			put_bool(r, "expert_weights_norm", norm);
		return ret;
	case MLA_V2:
	case MLA_V3:
		return read_deepseek(r);
	default:
		return 0;
	}
}

/* ------------------------------------------------------------------ all */

int sits_hf_end_tokens(const json_t *root, const char *file, struct sits_hf_config *out, struct sits_diag *diag)
{
	const json_t *v = json_object_get(root, "eos_token_id"), *id;
	size_t i, nr = json_is_array(v) ? json_array_size(v) : 1;

	if (is_null(v))
		return 0;
	for (i = 0; i < nr; i++) {
		id = json_is_array(v) ? json_array_get(v, i) : v;
		if (!json_is_integer(id) || json_integer_value(id) < 0 || out->nr_end == SITS_HF_MAX_END)
			return sits_diag_fail(diag, -EBADMSG, "%s: key eos_token_id is not a token, or at most %d of them", file, SITS_HF_MAX_END);
		out->end[out->nr_end++] = json_integer_value(id);
	}
	return 0;
}

static int find_type(struct reader *r)
{
	const char *name = json_string_value(get(r, "model_type"));
	char known[200] = "";
	size_t i, at = 0;

	if (!name)
		return fail(r, -EBADMSG, "key model_type is missing, or not a string");
	for (i = 0; i < NR(types); i++) {
		if (!strcmp(types[i].name, name)) {
			r->type = &types[i];
			r->out->arch = types[i].arch;
			r->out->type = types[i].name;
			return 0;
		}
		at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", types[i].name);
	}
	return fail(r, -EPROTONOSUPPORT, "model_type \"%.40s\" is not known here; known: %s", name, known);
}

static const char *find_to(const struct rule *rules, const char *to)
{
	for (; rules->key; rules++)
		if (rules->to && !strcmp(rules->to, to))
			return rules->key;
	return NULL;
}

const char *sits_hf_config_key(const struct sits_hf_config *c, const char *key)
{
	/* What code puts. With MLA key_length is a sum, and value_length and the dimensions of RoPE are in the tables. */
	static const struct { const char *key, *to; } by_code[] = {
		{ "num_hidden_layers", "block_count" }, { "vocab_size", "vocab_size" }, { "num_attention_heads", "attention.head_count" },
		{ "num_key_value_heads", "attention.head_count_kv" }, { "head_dim", "attention.key_length" },
		{ "head_dim", "attention.value_length" }, { "head_dim", "rope.dimension_count" }, { "rope_theta", "rope.freq_base" },
		{ "rope_scaling.rope_type", "rope.scaling.type" }, { "rope_scaling.factor", "rope.scaling.factor" },
		{ "rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length" },
		{ "rope_scaling.attention_factor", "rope.scaling.attn_factor" }, { "rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast" },
		{ "rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow" },
		{ "rope_scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier" }, { "sliding_window", "attention.sliding_window" },
		{ "layer_types", "attention.sliding_window_pattern" }, { "n_group", "expert_group_count" },
		{ "topk_group", "expert_group_used_count" }, { "scoring_func", "expert_gating_func" }, { "norm_topk_prob", "expert_weights_norm" },
		{ "num_experts_per_tok and others of the experts", "expert_*" },
	};
	const char *from = NULL;
	size_t i;

	for (i = 0; i < NR(types) && !from; i++)
		if (c->type && !strcmp(types[i].name, c->type))
			from = types[i].kind >= MLA_V2 && !strcmp(key, "attention.key_length") ? "qk_nope_head_dim" : find_to(types[i].rules, key);
	if (!from)
		from = find_to(common, key);
	for (i = 0; i < NR(by_code) && !from; i++)
		if (!strcmp(by_code[i].to, key))
			from = by_code[i].key;
	return from;
}

static bool is_empty(const json_t *v)
{
	return is_null(v) || (json_is_object(v) && !json_object_size(v));
}

static int read_all(struct reader *r)
{
	const json_t *bos = get(r, "bos_token_id");
	int ret = find_type(r);

	if (ret)
		return ret;
	if (!is_empty(get(r, "quantization_config")) || !is_empty(get(r, "compression_config")))
		return fail(r, -EPROTONOSUPPORT, "key quantization_config: weights that are quantised in this way are not supported; use F32, F16 or BF16");
	sits_meta_str(r->meta, "general.architecture", r->type->arch, strlen(r->type->arch));
	sits_meta_str(r->meta, "general.name", r->type->name, strlen(r->type->name));
	if (!is_null(bos) && !json_is_integer(bos))
		return fail(r, -EBADMSG, "key bos_token_id is not a token");
	r->out->bos = json_is_integer(bos) && json_integer_value(bos) >= 0 ? json_integer_value(bos) : -1;
	ret = sits_hf_end_tokens(r->root, FILE_NAME, r->out, r->diag);
	if (!ret)
		ret = get_bool(r, r->root, "tie_word_embeddings", false, &r->out->tied);
	if (!ret)
		ret = apply_all(r);
	if (!ret)
		ret = read_sizes(r);
	if (!ret)
		ret = read_rope(r);
	if (!ret)
		ret = read_window(r);
	return ret ? ret : read_experts(r);
}

int sits_hf_config_read(const char *text, size_t len, struct sits_meta *meta, struct sits_hf_config *out, struct sits_diag *diag)
{
	struct reader r = { .meta = meta, .out = out, .diag = diag };
	json_t *root;
	int ret;

	memset(out, 0, sizeof(*out));
	ret = sits_json_parse(FILE_NAME, text, len, &limits, &root, diag);
	if (ret)
		return ret;
	r.root = root;
	ret = read_all(&r);
	json_decref(root);
	return ret;
}
