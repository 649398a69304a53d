// SPDX-License-Identifier: MIT
/*
 * hf_test.c - models in safetensors directories: what a right one says, and what is refused by which name. That the answers are
 * those of transformers is in tests/unit/engine/arch_golden_test.c.
 */
#include "daemon/model/hf.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/hf_config.h"
#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "tests/unit/model/hf_build.h"

#define NR(a) (sizeof(a) / sizeof((a)[0]))

static struct sits_model *must_open(struct hf_build *b)
{
	struct sits_diag diag = { "" };
	struct sits_model *m = NULL;

	if (sits_model_open_files(b->file, b->nr, &m, &diag))
		fail_msg("%s", diag.msg);
	return m;
}

static void refused_at(int line, struct hf_build *b, int err, const char *words)
{
	struct sits_diag diag = { "" };
	struct sits_model *m = NULL;
	int ret = sits_model_open_files(b->file, b->nr, &m, &diag);

	if (ret != err || !strstr(diag.msg, words))
		fail_msg("line %d: %d instead of %d, \"%s\" does not say \"%s\"", line, ret, err, diag.msg, words);
	assert_null(m);
	hf_build_fini(b);
}

#define REFUSED(b, err, words) refused_at(__LINE__, b, err, words)

static const void *data_of(const struct hf_build *b, const char *name)
{
	size_t i;

	for (i = 0; i < b->nr; i++)
		if (!strcmp(b->file[i].name, name))
			return b->file[i].data;
	return NULL;
}

static void a_right_directory_is_read(void **state)
{
	const struct sits_layer *l;
	struct sits_model *m;
	struct hf_build b;

	hf_build_llama(&b);
	hf_build_set(&b, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
	hf_build_set(&b, "generation_config.json", "{\"eos_token_id\":4,\"temperature\":0.6}");
	hf_build_end(&b);
	m = must_open(&b);
	assert_true(m->hf);
	assert_int_equal(m->hp.layers, 1);
	assert_int_equal(m->hp.vocab, 8);
	assert_int_equal(m->hp.embd, 32);
	assert_int_equal(m->hp.ff, 48);
	assert_int_equal(m->hp.heads, 2);
	assert_int_equal(m->hp.kv_heads, 1);
	assert_int_equal(m->hp.head_dim, 16);
	assert_int_equal(m->hp.context, 64);
	assert_int_equal(m->hp.rope.neox, 1);
	assert_int_equal(m->start_token, 6);
	assert_int_equal(sits_tokenizer_bos(m->tok), 6);
	assert_true(sits_tokenizer_is_eog(m->tok, 7) && sits_tokenizer_is_eog(m->tok, 5) && sits_tokenizer_is_eog(m->tok, 4));
	assert_false(sits_tokenizer_is_eog(m->tok, 0));
	assert_null(m->chat);
	assert_ptr_equal(m->output.data, m->tok_embd.data);
	l = &m->layer[0];
	assert_int_equal(l->w_down.K, 48);
	assert_int_equal(l->w_down.N, 32);
	assert_int_equal(l->w_down.type, SITS_F32);
	hf_build_fini(&b);	/* names and texts were borrowed only for the call; the weights are not looked at any more */
	sits_model_close(m);
}

static void matrices_are_used_in_place_and_vectors_become_f32(void **state)
{
	const uint8_t *file, *w;
	struct sits_model *m;
	struct hf_build b;
	size_t len = 0, i;

	hf_build_tokens(&b);
	hf_build_embedding(&b, "BF16");
	hf_build_others(&b, "BF16", "BF16");
	hf_build_end(&b);
	file = data_of(&b, "model.safetensors");
	for (i = 0; i < b.nr; i++)
		if (b.file[i].data == file)
			len = b.file[i].len;
	m = must_open(&b);
	w = m->layer[0].wq.data;
	assert_int_equal(m->layer[0].wq.type, SITS_BF16);
	assert_true(w >= file && w < file + len);
	assert_int_equal(m->layer[0].attn_norm.type, SITS_F32);
	assert_int_equal((uintptr_t)m->layer[0].attn_norm.data % sizeof(float), 0);
	for (i = 0; i < 32; i++)
		assert_true(((const float *)m->layer[0].attn_norm.data)[i] == (float)(i + 1) / 16);
	sits_model_close(m);
	hf_build_fini(&b);
}

#define A_NAME "model-00001-of-00002.safetensors"
#define B_NAME "model-00002-of-00002.safetensors"

/* The map of two files: the embedding in @embedding (NULL: it has none), all else in the second. */
static void put_index(struct hf_build *b, const char *embedding, const char *more)
{
	static const char *const others[] = {
		"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
		"mlp.down_proj", "input_layernorm", "post_attention_layernorm",
	};
	char text[4096];
	size_t i, n;

	n = (size_t)snprintf(text, sizeof(text), "{\"metadata\":{},\"weight_map\":{\"model.norm.weight\":\"" B_NAME "\"%s", more);
	if (embedding)
		n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"model.embed_tokens.weight\":\"%s\"", embedding);
	for (i = 0; i < NR(others); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"model.layers.0.%s.weight\":\"" B_NAME "\"", others[i]);
	snprintf(text + n, sizeof(text) - n, "}}");
	hf_build_set(b, "model.safetensors.index.json", text);
}

static void build_two(struct hf_build *b)
{
	hf_build_tokens(b);
	hf_build_embedding(b, "F32");
	hf_build_shard(b, A_NAME);
	hf_build_others(b, "F32", "F32");
	hf_build_shard(b, B_NAME);
}

static void several_files_go_by_the_index(void **state)
{
	struct sits_model *m;
	struct hf_build b;

	build_two(&b);
	put_index(&b, A_NAME, "");
	m = must_open(&b);
	assert_int_equal(m->tok_embd.N, 8);
	sits_model_close(m);
	hf_build_fini(&b);

	build_two(&b);
	REFUSED(&b, -EBADMSG, "2 files *.safetensors, but no model.safetensors.index.json");
	build_two(&b);
	put_index(&b, B_NAME, "");
	REFUSED(&b, -EBADMSG, "tensor model.embed_tokens.weight is to be in " B_NAME ", but is in " A_NAME);
	build_two(&b);
	put_index(&b, NULL, "");
	REFUSED(&b, -EBADMSG, "weight_map has 10 tensors, the files have 11");
	build_two(&b);
	put_index(&b, A_NAME, ",\"more\":\"x\"");
	REFUSED(&b, -EBADMSG, "weight_map has 12 tensors, the files have 11");
	build_two(&b);
	hf_build_set(&b, "model.safetensors.index.json", "{\"weight_map\":[]}");
	REFUSED(&b, -EBADMSG, "weight_map has 0 tensors");
	/* One tensor in both. */
	hf_build_tokens(&b);
	hf_build_embedding(&b, "F32");
	hf_build_shard(&b, A_NAME);
	hf_build_embedding(&b, "F32");
	hf_build_others(&b, "F32", "F32");
	hf_build_shard(&b, B_NAME);
	put_index(&b, A_NAME, ",\"x\":\"y\"");
	REFUSED(&b, -EBADMSG, "tensor model.embed_tokens.weight is to be in " A_NAME ", but is in " B_NAME);
}

static void files_that_are_missing_or_unknown_are_named(void **state)
{
	struct hf_build b;

	hf_build_llama(&b);
	REFUSED(&b, -EBADMSG, "there is no file *.safetensors");
	hf_build_llama(&b);
	hf_build_end(&b);
	hf_build_remove(&b, "config.json");
	REFUSED(&b, -EBADMSG, "file config.json is missing");
	hf_build_llama(&b);
	hf_build_end(&b);
	hf_build_remove(&b, "tokenizer.json");
	REFUSED(&b, -EBADMSG, "file tokenizer.json is missing");
	hf_build_llama(&b);
	hf_build_end(&b);
	hf_build_set(&b, "pytorch_model.bin", "x");
	REFUSED(&b, -EPROTONOSUPPORT, "file pytorch_model.bin has no place");
	hf_build_llama(&b);
	hf_build_end(&b);
	b.file[b.nr - 1].name = "config.json";
	REFUSED(&b, -EBADMSG, "two files config.json");
}

static void one_file_is_a_gguf(void **state)
{
	struct sits_diag diag = { "" };
	struct sits_model *m = NULL;
	struct sits_model_file file = { "model.gguf", "nothing of the kind", 19 };

	assert_int_equal(sits_model_open_files(&file, 1, &m, &diag), -EBADMSG);
	assert_non_null(strstr(diag.msg, "not a GGUF file"));
}

/* A model with this one tensor more. */
static void tensor_refused(const char *name, const char *dtype, uint32_t nr, const uint64_t *dim, int err, const char *words)
{
	struct hf_build b;

	hf_build_llama(&b);
	hf_build_tensor(&b, name, dtype, nr, dim);
	hf_build_end(&b);
	REFUSED(&b, err, words);
}

static void tensors_are_mapped_or_named(void **state)
{
	static const uint64_t d[3] = { 32, 32, 2 };
	struct sits_model *m;
	struct hf_build b;

	tensor_refused("model.layers.0.self_attn.x_proj.weight", "F32", 2, d, -EPROTONOSUPPORT, "x_proj.weight has no place in any");
	tensor_refused("model.layers.00.input_layernorm.weight", "F32", 1, d, -EPROTONOSUPPORT, "has no place in any");
	tensor_refused("model.layers.x.input_layernorm.weight", "F32", 1, d, -EPROTONOSUPPORT, "has no place in any");
	tensor_refused("model.layers.99999999.input_layernorm.weight", "F32", 1, d, -EPROTONOSUPPORT, "has no place in any");
	tensor_refused("model.layers.1.input_layernorm.weight", "F32", 1, d, -EBADMSG, "is beyond config.json's num_hidden_layers, 1");
	tensor_refused("model.layers.0.self_attn.q_norm.weight", "F32", 1, d, -EPROTONOSUPPORT, "tensor model.layers.0.self_attn.q_norm.weight has no place in the llama");
	tensor_refused("model.layers.0.mlp.experts.0.up_proj.weight", "F32", 2, d, -EPROTONOSUPPORT, "tensor model.layers.0.mlp.experts.0.up_proj.weight has no place");
	tensor_refused("model.layers.0.self_attn.q_proj.bias", "F64", 1, d, -EPROTONOSUPPORT, "q_proj.bias is F64; supported: F32, F16, BF16");
	tensor_refused("model.layers.0.self_attn.q_proj.bias", "F32", 3, d, -EPROTONOSUPPORT, "q_proj.bias has 3 dimensions");
	tensor_refused("model.layers.0.self_attn.q_proj.bias", "F32", 0, d, -EPROTONOSUPPORT, "q_proj.bias has 0 dimensions");
	tensor_refused("model.layers.0.self_attn.q_proj.bias", "F32", 1, (const uint64_t[]){ 0 }, -EBADMSG, "q_proj.bias has no elements");
	tensor_refused("model.layers.0.self_attn.q_proj.bias", "F32", 1, (const uint64_t[]){ 31 }, -EBADMSG, "tensor model.layers.0.self_attn.q_proj.bias is 31 x 1");
	/* What is there and not used: the tied output, an old buffer. */
	hf_build_llama(&b);
	hf_build_tensor(&b, "lm_head.weight", "F32", 2, (const uint64_t[]){ 8, 32 });
	hf_build_tensor(&b, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 1, (const uint64_t[]){ 8 });
	hf_build_end(&b);
	m = must_open(&b);
	assert_ptr_equal(m->output.data, m->tok_embd.data);
	sits_model_close(m);
	hf_build_fini(&b);
}

/* ------------------------------------------------------------------ config.json */

/* The right configuration with @from replaced by @to. */
static void config_of(const char *from, const char *to, char *out, size_t size)
{
	const char *at = strstr(hf_build_config, from);

	assert_non_null(at);
	snprintf(out, size, "%.*s%s%s", (int)(at - hf_build_config), hf_build_config, to, at + strlen(from));
}

static void config_refused(int line, const char *from, const char *to, int err, const char *words)
{
	struct hf_build b;
	char text[2048];

	hf_build_llama(&b);
	config_of(from, to, text, sizeof(text));
	hf_build_set(&b, "config.json", text);
	hf_build_end(&b);
	refused_at(line, &b, err, words);
}

#define CONFIG(from, to, err, words) config_refused(__LINE__, from, to, err, words)
#define MORE(keys, err, words) config_refused(__LINE__, "{", "{" keys ",", err, words)

static void every_key_of_the_configuration_counts(void **state)
{
	CONFIG("\"llama\"", "\"gpt2\"", -EPROTONOSUPPORT, "model_type \"gpt2\" is not known here; known: llama, mistral");
	CONFIG("\"model_type\":\"llama\",", "", -EBADMSG, "model_type is missing");
	MORE("\"logit_scale\":0.5", -EPROTONOSUPPORT, "key logit_scale is not known for model_type llama");
	MORE("\"sliding_window\":7", -EPROTONOSUPPORT, "key sliding_window is not known for model_type llama");
	MORE("\"quantization_config\":{\"quant_method\":\"fp8\"}", -EPROTONOSUPPORT, "key quantization_config");
	MORE("\"partial_rotary_factor\":0.5", -EPROTONOSUPPORT, "partial_rotary_factor is 0.5");
	MORE("\"rope_interleaved\":true", -EPROTONOSUPPORT, "rope_interleaved is set");
	MORE("\"use_mrope\":true", -EPROTONOSUPPORT, "use_mrope is set");
	MORE("\"is_encoder_decoder\":true", -EPROTONOSUPPORT, "is_encoder_decoder is set");
	CONFIG("\"silu\"", "\"gelu\"", -EPROTONOSUPPORT, "hidden_act is gelu");
	CONFIG(",\"hidden_act\":\"silu\"", "", -EBADMSG, "hidden_act is missing");
	CONFIG("\"hidden_size\":32,", "", -EBADMSG, "key hidden_size is missing");
	CONFIG("\"hidden_size\":32", "\"hidden_size\":32.5", -EBADMSG, "key hidden_size is not a whole number");
	CONFIG("\"hidden_size\":32", "\"hidden_size\":-1", -EBADMSG, "key hidden_size is not a whole number");
	CONFIG("\"hidden_size\":32", "\"hidden_size\":1e30", -EBADMSG, "key hidden_size is not a whole number");
	CONFIG("\"hidden_size\":32", "\"hidden_size\":\"32\"", -EBADMSG, "key hidden_size is not a whole number");
	CONFIG("\"hidden_size\":32", "\"hidden_size\":33", -EBADMSG, "hidden_size is 33, not a multiple of num_attention_heads, 2");
	CONFIG("\"num_hidden_layers\":1", "\"num_hidden_layers\":0", -EBADMSG, "num_hidden_layers is not a whole number from 1");
	CONFIG("\"num_hidden_layers\":1", "\"num_hidden_layers\":4000000000", -EBADMSG, "config.json: key num_hidden_layers is 4000000000, not in 1..1024");
	CONFIG("\"num_attention_heads\":2", "\"num_attention_heads\":0", -EBADMSG, "num_attention_heads is not a whole number from 1");
	CONFIG("\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":-1", -EBADMSG, "rms_norm_eps is not a positive number");
	CONFIG(",\"rms_norm_eps\":1e-05", "", -EBADMSG, "rms_norm_eps is missing");
	CONFIG("\"vocab_size\":8", "\"vocab_size\":7", -EBADMSG, "token id 7 is beyond config.json's vocab_size, 7");
	CONFIG("\"vocab_size\":8", "\"vocab_size\":9", -EBADMSG, "tensor model.embed_tokens.weight is 32 x 8");
	CONFIG("\"tie_word_embeddings\":true", "\"tie_word_embeddings\":false", -EBADMSG, "lm_head.weight is missing");
	CONFIG("\"tie_word_embeddings\":true", "\"tie_word_embeddings\":1", -EBADMSG, "tie_word_embeddings is not a boolean");
	CONFIG("[7,5]", "[7,8]", -EBADMSG, "generation_config.json: eos_token_id: 8, but there are 8 tokens");
	CONFIG("[7,5]", "\"</s>\"", -EBADMSG, "eos_token_id is not a token");
	CONFIG("[7,5]", "[-1]", -EBADMSG, "eos_token_id is not a token");
	CONFIG("{", "[", -EBADMSG, "config.json: line 1");
	MORE("\"rope_scaling\":7", -EBADMSG, "rope_scaling is not an object");
	MORE("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", -EPROTONOSUPPORT, "rope_type is \"dynamic\"");
	MORE("\"rope_scaling\":{\"factor\":2}", -EPROTONOSUPPORT, "rope_type is \"\"");
	MORE("\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}", -EBADMSG, "rope_type is \"yarn\" and type \"linear\"");
	MORE("\"rope_scaling\":{\"type\":\"linear\"}", -EBADMSG, "key factor is missing");
	MORE("\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"x\":1}", -EPROTONOSUPPORT, "rope_scaling.x is not known");
	MORE("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}", -EPROTONOSUPPORT, "truncate is false");
	MORE("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":1,"
	     "\"original_max_position_embeddings\":32}", -EBADMSG, "high_freq_factor is not above");
	MORE("\"rope_parameters\":{\"rope_type\":\"default\"},\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", -EPROTONOSUPPORT, "both rope_parameters");
}

/* The right tensors with a configuration of another kind, or another shape, and one tensor of @more. */
static void file_names_in(int line, const char *from, const char *to, const char *more, const char *words)
{
	struct hf_build b;
	char text[2048];

	hf_build_llama(&b);
	config_of(from, to, text, sizeof(text));
	hf_build_set(&b, "config.json", text);
	if (more)
		hf_build_tensor(&b, more, "F32", 2, (const uint64_t[]){ 8, 32 });
	hf_build_end(&b);
	refused_at(line, &b, -EBADMSG, words);
}

#define NAMES(from, to, more, words) file_names_in(__LINE__, from, to, more, words)
#define MIXTRAL "\"model_type\":\"mixtral\",\"num_local_experts\":8,\"num_experts_per_tok\":"
#define DEEPSEEK(nope) "\"model_type\":\"deepseek_v2\",\"kv_lora_rank\":32,\"qk_nope_head_dim\":" nope ",\"qk_rope_head_dim\":16,\"v_head_dim\":16," \
	"\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"moe_intermediate_size\":32,\"first_k_dense_replace\":0," \
	"\"routed_scaling_factor\":2.5"

/* Whoever reads the message has config.json and the safetensors, not the keys and tensors of a GGUF. */
static void messages_have_the_names_of_the_files(void **state)
{
	static const char type[] = "\"model_type\":\"llama\"";

	NAMES("\"hidden_size\":32", "\"hidden_size\":200000", NULL, "config.json: key hidden_size is 200000, not in 1..131072");
	NAMES("\"num_attention_heads\":2,\"num_key_value_heads\":1", "\"num_attention_heads\":2,\"num_key_value_heads\":3", NULL,
	      "config.json: key num_key_value_heads is 3, not in 1..2");
	NAMES("\"num_attention_heads\":2,\"num_key_value_heads\":1", "\"num_attention_heads\":4,\"num_key_value_heads\":3", NULL,
	      "config.json: key num_attention_heads is 4, not a multiple of num_key_value_heads 3");
	NAMES("\"hidden_size\":32", "\"hidden_size\":32,\"head_dim\":512", NULL, "config.json: key head_dim is 512, not in 1..256");
	NAMES("\"intermediate_size\":48", "\"intermediate_size\":64", NULL, "tensor model.layers.0.mlp.gate_proj.weight is 32 x 48");
	NAMES("\"num_hidden_layers\":1", "\"num_hidden_layers\":2", NULL, "tensor model.layers.1.input_layernorm.weight is missing");
	NAMES(type, MIXTRAL "9", NULL, "the routing rule that keys num_experts_per_tok and others of the experts give uses no expert, or more");
	NAMES(type, MIXTRAL "2", NULL, "tensor model.layers.0.mlp.gate.weight is missing");
	NAMES(type, MIXTRAL "2", "model.layers.0.block_sparse_moe.experts.0.w1.weight", "tensor model.layers.0.block_sparse_moe.gate.weight is missing");
	NAMES(type, MIXTRAL "2", "model.layers.0.block_sparse_moe.gate.weight", "tensor model.layers.0.block_sparse_moe.experts.0.w1.weight is missing");
	NAMES(type, DEEPSEEK("2000"), NULL, "config.json: key qk_nope_head_dim is 2016, not in 1..1024");
	NAMES(type, DEEPSEEK("16") ",\"n_group\":2000", NULL, "tensor model.layers.0.self_attn.kv_a_proj_with_mqa.weight is missing");
}

/* Of a configuration alone: @model_type with @keys, on top of what all have. */
static int read_config(const char *model_type, const char *keys, struct sits_hf_config *c, struct sits_gguf **g, uint8_t **image,
		       struct sits_diag *diag)
{
	struct sits_meta meta = { 0 };
	char text[2048];
	size_t len;
	int ret;

	snprintf(text, sizeof(text), "{\"model_type\":\"%s\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,"
		 "\"num_key_value_heads\":2,\"vocab_size\":10,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,\"hidden_act\":\"silu\"%s%s}",
		 model_type, *keys ? "," : "", keys);
	diag->msg[0] = '\0';
	*g = NULL;
	ret = sits_hf_config_read(text, strlen(text), &meta, c, diag);
	assert_int_equal(sits_meta_end(&meta, image, &len), 0);
	if (!ret)
		assert_int_equal(sits_gguf_open(*image, len, g, diag), 0);
	return ret;
}

static void drop_config(struct sits_hf_config *c, struct sits_gguf *g, uint8_t *image)
{
	sits_gguf_close(g);
	free(image);
	free(c->factors);
}

static void type_refused(int line, const char *model_type, const char *keys, const char *words)
{
	struct sits_hf_config c;
	struct sits_diag diag;
	struct sits_gguf *g;
	uint8_t *image;
	int ret = read_config(model_type, keys, &c, &g, &image, &diag);

	if (!ret || !strstr(diag.msg, words))
		fail_msg("line %d: %d, \"%s\" does not say \"%s\"", line, ret, diag.msg, words);
	drop_config(&c, g, image);
}

#define V2_KEYS "\"kv_lora_rank\":32,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":16,\"v_head_dim\":24,\"n_routed_experts\":8,\"num_experts_per_tok\":2," \
	"\"n_shared_experts\":1,\"moe_intermediate_size\":32,\"first_k_dense_replace\":1,\"routed_scaling_factor\":2.5"
#define QWEN3_KEYS "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"

static void what_a_type_does_not_do_is_refused(void **state)
{
	type_refused(__LINE__, "mixtral", "\"num_experts_per_tok\":2", "num_local_experts is missing");
	type_refused(__LINE__, "qwen3_moe", QWEN3_KEYS ",\"decoder_sparse_step\":2", "decoder_sparse_step is 2");
	type_refused(__LINE__, "qwen3_moe", QWEN3_KEYS ",\"mlp_only_layers\":[1]", "mlp_only_layers is set");
	type_refused(__LINE__, "qwen3_moe", QWEN3_KEYS ",\"use_sliding_window\":true,\"sliding_window\":8", "use_sliding_window is true");
	type_refused(__LINE__, "olmoe", "\"num_experts\":8,\"num_experts_per_tok\":2,\"clip_qkv\":8.0", "clip_qkv is set");
	type_refused(__LINE__, "qwen2", "\"layer_types\":[\"full_attention\"]", "not one entry for each of the 4 layers");
	type_refused(__LINE__, "qwen2", "\"layer_types\":[\"a\",\"b\",\"c\",\"d\"]", "layer 0 is \"a\"");
	type_refused(__LINE__, "qwen2", "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]", "no sliding_window in use");
	type_refused(__LINE__, "deepseek_v2", V2_KEYS ",\"scoring_func\":\"sigmoid\"", "scoring_func is \"sigmoid\"");
	type_refused(__LINE__, "deepseek_v2", V2_KEYS ",\"topk_method\":\"noaux_tc\"", "topk_method is \"noaux_tc\"");
	type_refused(__LINE__, "deepseek_v2", V2_KEYS ",\"norm_topk_prob\":true", "norm_topk_prob is true");
	type_refused(__LINE__, "deepseek_v2", V2_KEYS ",\"moe_layer_freq\":2", "moe_layer_freq is 2");
	type_refused(__LINE__, "deepseek_v2", V2_KEYS ",\"rope_scaling\":{\"type\":\"llama3\"}", "rope_type is \"llama3\"");
	type_refused(__LINE__, "deepseek_v3", V2_KEYS ",\"topk_method\":\"greedy\"", "topk_method is \"greedy\"");
	type_refused(__LINE__, "deepseek_v3", V2_KEYS ",\"rope_interleave\":false", "rope_interleave is false");
	type_refused(__LINE__, "deepseek_v3", "\"kv_lora_rank\":32", "is missing");
}

/* A value of the wrong kind is no way to say nothing. */
static void what_is_of_the_wrong_type_is_refused(void **state)
{
	static const char *const no_list[] = { "0", "false", "{}", "\"\"" }, *const no_map[] = { "0", "false", "[]", "{\"0\":[1]}" };
	static const char *const no_str[] = { "0", "false", "[]", "{}" };
	char keys[512];
	size_t i;

	for (i = 0; i < 4; i++) {
		snprintf(keys, sizeof(keys), QWEN3_KEYS ",\"mlp_only_layers\":%s", no_list[i]);
		type_refused(__LINE__, "qwen3_moe", keys, "key mlp_only_layers is not a list");
		snprintf(keys, sizeof(keys), "\"layer_types\":%s", no_list[i]);
		type_refused(__LINE__, "qwen2", keys, "key layer_types has not one entry");
		snprintf(keys, sizeof(keys), "\"eos_token_id\":%s", i ? no_list[i] : "1.5");
		type_refused(__LINE__, "llama", keys, "key eos_token_id is not a token");
		snprintf(keys, sizeof(keys), "\"bos_token_id\":%s", i ? no_list[i] : "[1]");
		type_refused(__LINE__, "llama", keys, "key bos_token_id is not a token");
		snprintf(keys, sizeof(keys), "\"pruned_heads\":%s", no_map[i]);
		type_refused(__LINE__, "llama", keys, "key pruned_heads is ");
		snprintf(keys, sizeof(keys), "\"quantization_config\":%s", no_map[i]);
		type_refused(__LINE__, "llama", keys, "key quantization_config");
		snprintf(keys, sizeof(keys), "\"rope_parameters\":{\"rope_type\":%s}", no_str[i]);
		type_refused(__LINE__, "llama", keys, "key rope_type is not a string");
		snprintf(keys, sizeof(keys), "\"rope_scaling\":{\"type\":%s,\"factor\":2}", no_str[i]);
		type_refused(__LINE__, "llama", keys, "key type is not a string");
		snprintf(keys, sizeof(keys), V2_KEYS ",\"topk_method\":%s", no_str[i]);
		type_refused(__LINE__, "deepseek_v2", keys, "key topk_method is not a string");
		snprintf(keys, sizeof(keys), V2_KEYS ",\"scoring_func\":%s", no_str[i]);
		type_refused(__LINE__, "deepseek_v3", keys, "key scoring_func is not a string");
	}
	for (i = 0; i < 3; i++) {
		snprintf(keys, sizeof(keys), "\"num_experts\":8,\"num_experts_per_tok\":2,\"clip_qkv\":%s", no_list[i]);
		type_refused(__LINE__, "olmoe", keys, "clip_qkv is set");	/* 0 would clip all of it */
	}
	type_refused(__LINE__, "llama", "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}",
		     "rope_scaling.partial_rotary_factor is not known");
	type_refused(__LINE__, "llama", "\"rope_scaling\":[]", "key rope_scaling is not an object");
	type_refused(__LINE__, "llama", "\"rope_parameters\":[]", "key rope_parameters is not an object");
}

static void what_says_nothing_is_taken(void **state)
{
	struct sits_hf_config c;
	struct sits_diag diag;
	struct sits_gguf *g;
	uint8_t *image;

	assert_int_equal(read_config("llama", "\"pruned_heads\":{},\"quantization_config\":null,\"rope_scaling\":null,\"use_mrope\":false,"
				     "\"cross_attention_hidden_size\":null,\"bos_token_id\":null,\"eos_token_id\":[],"
				     "\"rope_parameters\":{\"rope_theta\":10000}", &c, &g, &image, &diag), 0);
	drop_config(&c, g, image);
	assert_int_equal(read_config("qwen3_moe", QWEN3_KEYS ",\"mlp_only_layers\":[],\"layer_types\":null", &c, &g, &image, &diag), 0);
	drop_config(&c, g, image);
	assert_int_equal(read_config("olmoe", "\"num_experts\":8,\"num_experts_per_tok\":2,\"clip_qkv\":null", &c, &g, &image, &diag), 0);
	drop_config(&c, g, image);
}

static void is_u32(const struct sits_gguf *g, const char *key, uint64_t want)
{
	uint64_t v = 0;

	if (sits_gguf_get_u64(g, key, &v) || v != want)
		fail_msg("%s is %llu, not %llu", key, (unsigned long long)v, (unsigned long long)want);
}

static void is_f32(const struct sits_gguf *g, const char *key, double want)
{
	float v = 0;

	if (sits_gguf_get_f32(g, key, &v) || fabs(v - want) > 1e-6 * fabs(want))
		fail_msg("%s is %g, not %g", key, (double)v, want);
}

static void keys_become_those_of_a_gguf(void **state)
{
	struct sits_gguf_array pattern;
	struct sits_hf_config c;
	struct sits_diag diag;
	struct sits_gguf *g;
	uint8_t *image;
	uint64_t v;
	bool b;

	assert_int_equal(read_config("qwen2", "\"use_sliding_window\":true,\"sliding_window\":32,\"max_window_layers\":3", &c, &g, &image, &diag), 0);
	is_u32(g, "qwen2.attention.sliding_window", 32);
	assert_int_equal(sits_gguf_get_array(g, "qwen2.attention.sliding_window_pattern", &pattern), 0);
	assert_int_equal(pattern.nr, 4);
	assert_memory_equal(pattern.data, "\0\0\0\1", 4);
	drop_config(&c, g, image);

	assert_int_equal(read_config("qwen2", "\"use_sliding_window\":false,\"sliding_window\":32,\"max_window_layers\":3", &c, &g, &image, &diag), 0);
	assert_int_equal(sits_gguf_get_u64(g, "qwen2.attention.sliding_window", &v), -ENOENT);
	drop_config(&c, g, image);

	assert_int_equal(read_config("mistral", "\"sliding_window\":32", &c, &g, &image, &diag), 0);
	is_u32(g, "llama.attention.sliding_window", 32);
	assert_int_equal(sits_gguf_get_array(g, "llama.attention.sliding_window_pattern", &pattern), -ENOENT);
	drop_config(&c, g, image);

	assert_int_equal(read_config("llama", "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000.0}", &c, &g, &image, &diag), 0);
	is_f32(g, "llama.rope.freq_base", 500000);
	drop_config(&c, g, image);

	/* An attention factor of its own is said relative to YaRN's. */
	assert_int_equal(read_config("llama", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":2}", &c, &g, &image, &diag), 0);
	is_f32(g, "llama.rope.scaling.attn_factor", 2 / (0.1 * log(4) + 1));
	is_u32(g, "llama.rope.scaling.original_context_length", 512);
	drop_config(&c, g, image);

	assert_int_equal(read_config("llama", "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
				     "\"original_max_position_embeddings\":32}", &c, &g, &image, &diag), 0);
	assert_int_equal(c.nr_factors, 8);
	assert_true(c.factors[0] == 1 && c.factors[7] == 8 && c.factors[1] > 1 && c.factors[1] < 8);
	drop_config(&c, g, image);

	assert_int_equal(read_config("deepseek_v3", V2_KEYS ",\"n_group\":4,\"topk_group\":2,\"num_nextn_predict_layers\":1,\"rope_scaling\":{\"type\":\"yarn\","
				     "\"factor\":40,\"original_max_position_embeddings\":64,\"mscale\":1.0,\"mscale_all_dim\":1.0}", &c, &g, &image, &diag), 0);
	is_u32(g, "deepseek2.expert_gating_func", 2);
	is_u32(g, "deepseek2.expert_group_count", 4);
	is_u32(g, "deepseek2.expert_group_used_count", 2);
	is_u32(g, "deepseek2.attention.key_length", 32);
	is_u32(g, "deepseek2.attention.value_length", 24);
	is_f32(g, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1);
	is_f32(g, "deepseek2.expert_weights_scale", 2.5);
	assert_int_equal(sits_gguf_get_bool(g, "deepseek2.expert_weights_norm", &b), 0);
	assert_true(b);
	assert_int_equal(c.mtp_layers, 1);
	drop_config(&c, g, image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_right_directory_is_read),
		cmocka_unit_test(matrices_are_used_in_place_and_vectors_become_f32),
		cmocka_unit_test(several_files_go_by_the_index),
		cmocka_unit_test(files_that_are_missing_or_unknown_are_named),
		cmocka_unit_test(one_file_is_a_gguf),
		cmocka_unit_test(tensors_are_mapped_or_named),
		cmocka_unit_test(every_key_of_the_configuration_counts),
		cmocka_unit_test(messages_have_the_names_of_the_files),
		cmocka_unit_test(what_a_type_does_not_do_is_refused),
		cmocka_unit_test(what_is_of_the_wrong_type_is_refused),
		cmocka_unit_test(what_says_nothing_is_taken),
		cmocka_unit_test(keys_become_those_of_a_gguf),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
