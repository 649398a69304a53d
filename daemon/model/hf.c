// SPDX-License-Identifier: MIT
/*
 * hf.c - see hf.h. Tensor names: modeling_NAME.py of Hugging Face transformers 4.57 on one side, as in family.c on the other.
 */
#include "daemon/model/hf.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/mem.h"
#include "daemon/manifest.h"
#include "daemon/model/hf_config.h"
#include "daemon/model/json.h"
#include "daemon/model/model.h"
#include "daemon/model/safetensors.h"
#include "kernels/kernels.h"

#define INDEX_NAME	"model.safetensors.index.json"
#define GEN_NAME	"generation_config.json"
#define NAME_MAX_BYTES	80	/* of a GGUF's tensor name here */

/* Deepseek V3 has 91,000 tensors. */
static const struct sits_json_limits index_limits = { .bytes = 128u << 20, .values = 4u << 20 };
static const struct sits_json_limits gen_limits = { .bytes = 1u << 20, .values = 16u << 10 };

struct sits_hf {
	struct sits_hf_config config;
	struct sits_st **shard;		/* [nr_shards] */
	size_t nr_shards;
	struct sits_tok_json tok;
	uint8_t *image;			/* keys, as a GGUF image */
	struct sits_gguf *index;
	struct sits_gguf_tensor *tensor;	/* [nr_tensors], until they are in the index */
	size_t nr_tensors;
	char *names;			/* [nr_tensors][NAME_MAX_BYTES] */
	float *vectors;			/* those that could not be used in place */
	size_t vector_bytes, vector_at;
};

/* ------------------------------------------------------------------ files */

static struct sits_str find_file(const struct sits_model_file *files, size_t nr, const char *name)
{
	size_t i;

	for (i = 0; i < nr; i++)
		if (!strcmp(files[i].name, name))
			return (struct sits_str){ files[i].data, files[i].len };
	return (struct sits_str){ NULL, 0 };
}

static int check_files(const struct sits_model_file *files, size_t nr, struct sits_hf *h, struct sits_diag *diag)
{
	size_t i, j;

	for (i = 0; i < nr; i++) {
		if (!sits_manifest_is_model_file(files[i].name))
			return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: file %.200s has no place in a safetensors model", files[i].name);
		for (j = 0; j < i; j++)
			if (!strcmp(files[i].name, files[j].name))
				return sits_diag_fail(diag, -EBADMSG, "model: there are two files %.200s", files[i].name);
		h->nr_shards += sits_manifest_is_weights(files[i].name);
	}
	if (!find_file(files, nr, "config.json").p || !find_file(files, nr, "tokenizer.json").p)
		return sits_diag_fail(diag, -EBADMSG, "model: file %s is missing",
				      find_file(files, nr, "config.json").p ? "tokenizer.json" : "config.json");
	if (!h->nr_shards)
		return sits_diag_fail(diag, -EBADMSG, "model: there is no file *.safetensors");
	if (h->nr_shards > 1 && !find_file(files, nr, INDEX_NAME).p)
		return sits_diag_fail(diag, -EBADMSG, "model: %zu files *.safetensors, but no " INDEX_NAME, h->nr_shards);
	return 0;
}

/* ------------------------------------------------------------------ tensor names */

static const struct name_pair {
	const char *from, *to;
} whole[] = {
	{ "model.embed_tokens.weight", "token_embd.weight" }, { "model.norm.weight", "output_norm.weight" },
	{ "lm_head.weight", "output.weight" },
}, in_layer[] = {	/* behind "model.layers.N." and "blk.N." */
	{ "input_layernorm.weight", "attn_norm.weight" }, { "post_attention_layernorm.weight", "ffn_norm.weight" },
	{ "self_attn.q_proj.weight", "attn_q.weight" }, { "self_attn.q_proj.bias", "attn_q.bias" },
	{ "self_attn.k_proj.weight", "attn_k.weight" }, { "self_attn.k_proj.bias", "attn_k.bias" },
	{ "self_attn.v_proj.weight", "attn_v.weight" }, { "self_attn.v_proj.bias", "attn_v.bias" },
	{ "self_attn.o_proj.weight", "attn_output.weight" }, { "self_attn.o_proj.bias", "attn_output.bias" },
	{ "self_attn.q_norm.weight", "attn_q_norm.weight" }, { "self_attn.k_norm.weight", "attn_k_norm.weight" },
	{ "self_attn.q_a_proj.weight", "attn_q_a.weight" }, { "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight" },
	{ "self_attn.q_b_proj.weight", "attn_q_b.weight" }, { "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight" },
	{ "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight" }, { "self_attn.kv_b_proj.weight", "attn_kv_b.weight" },
	{ "mlp.gate_proj.weight", "ffn_gate.weight" }, { "mlp.gate_proj.bias", "ffn_gate.bias" },
	{ "mlp.up_proj.weight", "ffn_up.weight" }, { "mlp.up_proj.bias", "ffn_up.bias" },
	{ "mlp.down_proj.weight", "ffn_down.weight" }, { "mlp.down_proj.bias", "ffn_down.bias" },
	{ "mlp.gate.weight", "ffn_gate_inp.weight" }, { "block_sparse_moe.gate.weight", "ffn_gate_inp.weight" },
	{ "mlp.gate.e_score_correction_bias", "exp_probs_b.bias" },
	{ "mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight" }, { "mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight" },
	{ "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight" }, { "mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight" },
	{ "mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight" }, { "mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight" },
	{ "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight" },
}, in_expert[] = {	/* behind "model.layers.N.mlp.experts.E.", or block_sparse_moe */
	{ "gate_proj.weight", "ffn_gate" }, { "up_proj.weight", "ffn_up" }, { "down_proj.weight", "ffn_down" },
	{ "w1.weight", "ffn_gate" }, { "w3.weight", "ffn_up" }, { "w2.weight", "ffn_down" },
};

#define NR(a) (sizeof(a) / sizeof((a)[0]))

static const char *find_pair(const struct name_pair *p, size_t nr, const char *from)
{
	size_t i;

	for (i = 0; i < nr; i++)
		if (!strcmp(p[i].from, from))
			return p[i].to;
	return NULL;
}

/* A number as names have it: digits without a leading zero, below 10^6; *p goes behind the dot that follows. */
static bool take_index(const char **p, uint32_t *v)
{
	const char *s = *p;
	uint32_t n = 0;

	if (!isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1])))
		return false;
	for (; isdigit((unsigned char)*s); s++) {
		n = 10 * n + (uint32_t)(*s - '0');
		if (n >= 1000000)
			return false;
	}
	if (*s != '.')
		return false;
	*p = s + 1;
	*v = n;
	return true;
}

static bool skip_prefix(const char **p, const char *prefix)
{
	size_t n = strlen(prefix);

	if (strncmp(*p, prefix, n))
		return false;
	*p += n;
	return true;
}

/* Return: 1 and the name in a GGUF; 0 for a tensor that is not used; -EPROTONOSUPPORT. */
static int translate(const struct sits_hf *h, const char *name, char out[NAME_MAX_BYTES], struct sits_diag *diag)
{
	const char *p = name, *to = find_pair(whole, NR(whole), name);
	uint32_t layer, expert;

	if (to && h->config.tied && !strcmp(to, "output.weight"))
		return 0;	/* a copy of the embedding, or what transformers puts that in the place of */
	if (to) {
		snprintf(out, NAME_MAX_BYTES, "%s", to);
		return 1;
	}
	if (!skip_prefix(&p, "model.layers.") || !take_index(&p, &layer))
		goto unknown;
	if (layer >= h->config.layers && layer - h->config.layers < h->config.mtp_layers)
		return 0;	/* predicts tokens further on */
	if (layer >= h->config.layers)
		return sits_diag_fail(diag, -EBADMSG, "model: tensor %.200s is beyond config.json's num_hidden_layers, %" PRIu32, name,
				      h->config.layers);
	if (!strcmp(p, "self_attn.rotary_emb.inv_freq"))
		return 0;	/* old files have it; it follows from the configuration */
	to = find_pair(in_layer, NR(in_layer), p);
	if (to) {
		snprintf(out, NAME_MAX_BYTES, "blk.%" PRIu32 ".%s", layer, to);
		return 1;
	}
	if ((skip_prefix(&p, "mlp.experts.") || skip_prefix(&p, "block_sparse_moe.experts.")) && take_index(&p, &expert)) {
		to = find_pair(in_expert, NR(in_expert), p);
		if (to) {
			snprintf(out, NAME_MAX_BYTES, "blk.%" PRIu32 ".%s.%" PRIu32 ".weight", layer, to, expert);
			return 1;
		}
	}
unknown:
	return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: tensor %.200s has no place in any architecture known here", name);
}

/* ------------------------------------------------------------------ tensors */

static int dtype_of(const struct sits_st_tensor *t, uint32_t *type, struct sits_diag *diag)
{
	if (!strcmp(t->dtype, "F32"))
		*type = SITS_F32;
	else if (!strcmp(t->dtype, "F16"))
		*type = SITS_F16;
	else if (!strcmp(t->dtype, "BF16"))
		*type = SITS_BF16;
	else
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: tensor %.200s is %s; supported: F32, F16, BF16", t->name.p, t->dtype);
	return 0;
}

static bool fits_in_place(const struct sits_gguf_tensor *t)
{
	return t->nr_dims > 1 || (t->type == SITS_F32 && (uintptr_t)t->data % sizeof(float) == 0);
}

static int add_tensor(struct sits_hf *h, const struct sits_st_tensor *from, struct sits_diag *diag)
{
	struct sits_gguf_tensor *t = &h->tensor[h->nr_tensors];
	char *name = h->names + h->nr_tensors * NAME_MAX_BYTES;
	int ret = translate(h, from->name.p, name, diag);
	uint32_t i;

	if (ret <= 0)
		return ret;
	*t = (struct sits_gguf_tensor){ .name = { name, strlen(name) }, .nr_dims = from->nr_dims, .ne = { 1, 1, 1, 1 },
					.data = from->data, .bytes = from->bytes };
	ret = dtype_of(from, &t->type, diag);
	if (ret)
		return ret;
	if (from->nr_dims < 1 || from->nr_dims > 2)
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: tensor %.200s has %" PRIu32 " dimensions; weights have 1 or 2",
				      from->name.p, from->nr_dims);
	for (i = 0; i < from->nr_dims; i++) {
		t->ne[i] = from->dim[from->nr_dims - 1 - i];
		if (!t->ne[i])
			return sits_diag_fail(diag, -EBADMSG, "model: tensor %.200s has no elements", from->name.p);
	}
	if (!fits_in_place(t))
		h->vector_bytes += (size_t)t->ne[0] * sizeof(float);
	h->nr_tensors++;
	return 0;
}

/* Vectors are read as F32: kernels take nothing else. */
static int expand_vectors(struct sits_hf *h, struct sits_diag *diag)
{
	const struct sits_backend *be;
	size_t i;
	void *p;

	if (!h->vector_bytes)
		return 0;
	if (sits_mem_map(h->vector_bytes, &p))
		return sits_diag_fail(diag, -ENOMEM, "model: no memory for %zu bytes of vectors", h->vector_bytes);
	h->vectors = p;
	be = sits_backend_get(NULL);	/* exact in all of them */
	if (!be)
		return sits_diag_fail(diag, -EINVAL, "model: SITS_FORCE_ISA names no backend that is usable here");
	for (i = 0; i < h->nr_tensors; i++) {
		struct sits_gguf_tensor *t = &h->tensor[i];
		float *y = h->vectors + h->vector_at;

		if (fits_in_place(t))
			continue;
		be->dequant(t->type, t->data, y, (size_t)t->ne[0]);
		h->vector_at += (size_t)t->ne[0];
		t->type = SITS_F32;
		t->data = y;
		t->bytes = t->ne[0] * sizeof(float);
	}
	return 0;
}

/* config.json's llama-3 factors, as GGUF files have them. */
static void add_factors(struct sits_hf *h)
{
	struct sits_gguf_tensor *t = &h->tensor[h->nr_tensors];
	char *name = h->names + h->nr_tensors * NAME_MAX_BYTES;

	if (!h->config.factors)
		return;
	strcpy(name, "rope_freqs.weight");
	*t = (struct sits_gguf_tensor){ .name = { name, strlen(name) }, .nr_dims = 1, .ne = { h->config.nr_factors, 1, 1, 1 },
					.type = SITS_F32, .data = h->config.factors,
					.bytes = h->config.nr_factors * sizeof(float) };
	h->nr_tensors++;
}

static int open_shards(const struct sits_model_file *files, size_t nr, struct sits_hf *h, struct sits_diag *diag)
{
	size_t i, n = 0;
	int ret;

	h->shard = calloc(h->nr_shards, sizeof(*h->shard));
	if (!h->shard)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		if (!sits_manifest_is_weights(files[i].name))
			continue;
		ret = sits_st_open(files[i].name, files[i].data, files[i].len, &h->shard[n++], diag);
		if (ret)
			return ret;
	}
	return 0;
}

static const char *shard_name(const struct sits_model_file *files, size_t nr, size_t shard)
{
	size_t i;

	for (i = 0; i < nr; i++)
		if (sits_manifest_is_weights(files[i].name) && !shard--)
			break;
	return files[i].name;
}

/* The index says which file each tensor is in; all of it must be so, and nothing be left out. */
static int check_index(const struct sits_model_file *files, size_t nr, const struct sits_hf *h, size_t total, struct sits_diag *diag)
{
	const struct sits_str text = find_file(files, nr, INDEX_NAME);
	const json_t *map, *file;
	json_t *root;
	size_t i, j;
	int ret;

	if (!text.p)
		return 0;
	ret = sits_json_parse(INDEX_NAME, text.p, text.len, &index_limits, &root, diag);
	if (ret)
		return ret;
	map = json_object_get(root, "weight_map");
	if (!json_is_object(map) || json_object_size(map) != total)
		ret = sits_diag_fail(diag, -EBADMSG, INDEX_NAME ": weight_map has %zu tensors, the files have %zu", json_object_size(map), total);
	for (i = 0; i < h->nr_shards && !ret; i++)
		for (j = 0; j < sits_st_nr(h->shard[i]) && !ret; j++) {
			const char *name = sits_st_at(h->shard[i], j)->name.p, *want;

			file = json_object_get(map, name);
			want = json_string_value(file);
			if (!want || strcmp(want, shard_name(files, nr, i)))
				ret = sits_diag_fail(diag, -EBADMSG, INDEX_NAME ": tensor %.200s is to be in %.100s, but is in %.100s", name,
						     want ? want : "no file", shard_name(files, nr, i));
		}
	json_decref(root);
	return ret;
}

static bool has_tensor(const struct sits_hf *h, const char *name)
{
	size_t i;

	for (i = 0; i < h->nr_tensors; i++)
		if (!strcmp(h->tensor[i].name.p, name))
			return true;
	return false;
}

static int read_tensors(const struct sits_model_file *files, size_t nr, struct sits_hf *h, struct sits_diag *diag)
{
	size_t i, j, total = 0;
	int ret;

	ret = open_shards(files, nr, h, diag);
	if (ret)
		return ret;
	for (i = 0; i < h->nr_shards; i++)
		total += sits_st_nr(h->shard[i]);
	ret = check_index(files, nr, h, total, diag);
	if (ret)
		return ret;
	h->tensor = calloc(total + 1, sizeof(*h->tensor));
	h->names = calloc(total + 1, NAME_MAX_BYTES);
	if (!h->tensor || !h->names)
		return -ENOMEM;
	for (i = 0; i < h->nr_shards; i++)
		for (j = 0; j < sits_st_nr(h->shard[i]); j++) {
			ret = add_tensor(h, sits_st_at(h->shard[i], j), diag);
			if (ret)
				return ret;
		}
	if (!h->config.tied && !has_tensor(h, "output.weight"))
		return sits_diag_fail(diag, -EBADMSG, "model: tensor lm_head.weight is missing, and config.json's tie_word_embeddings is not true");
	ret = expand_vectors(h, diag);
	if (!ret)
		add_factors(h);
	return ret;
}

/* ------------------------------------------------------------------ keys */

/* Tokens that end an answer are in either file; the first of config.json's is EOS where nothing else says. */
static int read_generation(const struct sits_model_file *files, size_t nr, struct sits_hf *h, struct sits_diag *diag)
{
	const struct sits_str text = find_file(files, nr, GEN_NAME);
	json_t *root;
	int ret;

	if (!text.p)
		return 0;
	ret = sits_json_parse(GEN_NAME, text.p, text.len, &gen_limits, &root, diag);
	if (ret)
		return ret;
	ret = sits_hf_end_tokens(root, GEN_NAME, &h->config, diag);
	json_decref(root);
	return ret;
}

static int read_tokenizer(const struct sits_model_file *files, size_t nr, struct sits_hf *h, struct sits_meta *meta,
			  struct sits_diag *diag)
{
	struct sits_tok_json_src src = {
		.tokenizer = find_file(files, nr, "tokenizer.json"), .config = find_file(files, nr, "tokenizer_config.json"),
		.chat = find_file(files, nr, "chat_template.jinja"), .vocab = h->config.vocab, .bos = h->config.bos,
		.nr_end = h->config.nr_end,
	};

	_Static_assert(sizeof(src.end) == sizeof(h->config.end), "as many of them");
	memcpy(src.end, h->config.end, sizeof(src.end));
	return sits_tok_json_read(&src, meta, &h->tok, diag);
}

static int read_keys(const struct sits_model_file *files, size_t nr, struct sits_hf *h, struct sits_diag *diag)
{
	const struct sits_str config = find_file(files, nr, "config.json");
	struct sits_meta meta = { 0 };
	size_t len;
	int ret;

	ret = sits_hf_config_read(config.p, config.len, &meta, &h->config, diag);
	if (!ret)
		ret = read_generation(files, nr, h, diag);
	if (!ret)
		ret = read_tokenizer(files, nr, h, &meta, diag);
	if (sits_meta_end(&meta, &h->image, &len))
		return ret ? ret : -ENOMEM;
	return ret ? ret : sits_gguf_open(h->image, len, &h->index, diag);
}

int sits_hf_open(const struct sits_model_file *files, size_t nr, struct sits_hf **out, struct sits_diag *diag)
{
	struct sits_hf *h = calloc(1, sizeof(*h));
	int ret;

	if (!h)
		return sits_diag_fail(diag, -ENOMEM, "model: no memory");
	ret = check_files(files, nr, h, diag);
	if (!ret)
		ret = read_keys(files, nr, h, diag);
	if (!ret)
		ret = read_tensors(files, nr, h, diag);
	if (!ret)
		ret = sits_gguf_attach(h->index, h->tensor, h->nr_tensors, diag);
	if (ret) {
		sits_hf_close(h);
		return ret == -ENOMEM ? sits_diag_fail(diag, ret, "model: no memory for the index") : ret;
	}
	free(h->tensor);
	h->tensor = NULL;
	*out = h;
	return 0;
}

void sits_hf_close(struct sits_hf *h)
{
	size_t i;

	if (!h)
		return;
	sits_gguf_close(h->index);
	sits_tok_json_fini(&h->tok);
	for (i = 0; h->shard && i < h->nr_shards; i++)
		sits_st_close(h->shard[i]);
	sits_mem_unmap(h->vectors, h->vector_bytes);
	free(h->shard);
	free(h->image);
	free(h->tensor);
	free(h->names);
	free(h->config.factors);
	free(h);
}

/* ------------------------------------------------------------------ names, back */

#define WORD_MAX 200

/* Is some tensor of the files called "....DIR....", @dir being the first bytes of a name? */
static bool has_dir(const struct sits_hf *h, const char *dir, size_t len)
{
	const char *p;
	size_t i, j;

	for (i = 0; i < h->nr_shards; i++)
		for (j = 0; j < sits_st_nr(h->shard[i]); j++)
			for (p = sits_st_at(h->shard[i], j)->name.p; (p = strchr(p, '.')); p++)
				if (!strncmp(p + 1, dir, len) && p[1 + len] == '.')
					return true;
	return false;
}

/* The other way than find_pair(). Of several names, that of a module that this model has; the longest, as most have an mlp. */
static const char *find_back(const struct sits_hf *h, const struct name_pair *p, size_t nr, const char *to)
{
	const char *best = NULL, *end;
	size_t i, len, most = 0;

	for (i = 0; i < nr; i++) {
		if (strcmp(p[i].to, to))
			continue;
		best = best ? best : p[i].from;
		/* Without the last two: "mlp.shared_expert" of "mlp.shared_expert.up_proj.weight". */
		end = strrchr(p[i].from, '.');
		while (end && end > p[i].from && *--end != '.')
			;
		len = end ? (size_t)(end - p[i].from) : 0;
		if (len <= most || !has_dir(h, p[i].from, len))
			continue;
		most = len;
		best = p[i].from;
	}
	return best;
}

/* "blk.N.NAME", behind "blk.": a tensor of the layer, of one of its experts, or all experts of one kind, of which the first stands for all. */
static bool layer_tensor(const struct sits_hf *h, const char *p, char out[WORD_MAX])
{
	const char *from, *experts = has_dir(h, "block_sparse_moe", strlen("block_sparse_moe")) ? "block_sparse_moe" : "mlp";
	uint32_t layer, expert = 0;
	char kind[16], tail[16];
	size_t i;

	if (!take_index(&p, &layer))
		return false;
	from = find_back(h, in_layer, NR(in_layer), p);
	if (from) {
		snprintf(out, WORD_MAX, "model.layers.%" PRIu32 ".%s", layer, from);
		return true;
	}
	if ((sscanf(p, "%15[a-z_].%u.%15s", kind, &expert, tail) != 3 && sscanf(p, "%15[a-z_].%15s", kind, tail) != 2) || strcmp(tail, "weight"))
		return false;
	if (strlen(kind) > strlen("_exps") && !strcmp(kind + strlen(kind) - strlen("_exps"), "_exps"))
		kind[strlen(kind) - strlen("_exps")] = '\0';
	/* Mixtral's names are the second half of the table. */
	for (i = *experts == 'b' ? NR(in_expert) / 2 : 0; i < NR(in_expert); i++)
		if (!strcmp(in_expert[i].to, kind))
			break;
	if (i == NR(in_expert))
		return false;
	snprintf(out, WORD_MAX, "model.layers.%" PRIu32 ".%s.experts.%" PRIu32 ".%s", layer, experts, expert, in_expert[i].from);
	return true;
}

/* Another name for @word, if it is one of the index's. A second key of a message may be without its first part. */
static bool name_back(const struct sits_hf *h, const char *word, char out[WORD_MAX])
{
	const size_t arch = strlen(h->config.arch);
	const char *from = NULL;
	char longer[WORD_MAX + 16];

	if (!strncmp(word, "blk.", 4))
		return layer_tensor(h, word + 4, out);
	if (!strncmp(word, h->config.arch, arch) && word[arch] == '.')
		from = sits_hf_config_key(&h->config, word + arch + 1);
	else
		from = find_back(h, whole, NR(whole), word);
	if (!from && strchr(word, '_'))
		from = sits_hf_config_key(&h->config, word);
	snprintf(longer, sizeof(longer), "attention.%s", word);
	if (!from && strchr(word, '_'))
		from = sits_hf_config_key(&h->config, longer);
	snprintf(out, WORD_MAX, "%s", from ? from : "");
	return from;
}

void sits_hf_reword(const struct sits_hf *h, struct sits_diag *diag)
{
	static const char of_name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.*";
	static const char prefix[] = "model: ", key[] = "model: key ";
	const char *p = diag->msg + sizeof(prefix) - 1;
	char word[WORD_MAX], name[WORD_MAX], msg[2 * sizeof(diag->msg)];
	size_t n, at;

	if (strncmp(diag->msg, prefix, sizeof(prefix) - 1) || !h->config.arch)
		return;
	at = (size_t)snprintf(msg, sizeof(msg), "%s", strncmp(diag->msg, key, sizeof(key) - 1) ? prefix : "config.json: ");
	for (; *p && at < sizeof(msg); p += n) {
		n = strspn(p, of_name);
		if (n && n < sizeof(word)) {
			snprintf(word, sizeof(word), "%.*s", (int)n, p);
			if (!name_back(h, word, name))
				strcpy(name, word);
			at += (size_t)snprintf(msg + at, sizeof(msg) - at, "%s", name);
		} else {
			n = n ? n : 1;
			at += (size_t)snprintf(msg + at, sizeof(msg) - at, "%.*s", (int)n, p);
		}
	}
	*diag = (struct sits_diag){ "" };
	sits_diag_fail(diag, 0, "%s", msg);
}

struct sits_gguf *sits_hf_index(struct sits_hf *h)
{
	return h->index;
}

const struct sits_tok_ext *sits_hf_tokenizer(const struct sits_hf *h)
{
	return &h->tok.ext;
}

void sits_hf_drop_tokenizer(struct sits_hf *h)
{
	sits_tok_json_fini(&h->tok);
}
