// SPDX-License-Identifier: MIT
/*
 * model.c - open a model: GGUF, tokenizer, chat template, and the architecture's own part.
 *
 * The metadata is hostile until checked. What this file and the architectures do not know they
 * refuse by name; a key that is skipped in silence may be the one that changes the answer.
 */
#include "daemon/model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/arch.h"
#include "kernels/kernels.h"

static const struct sits_arch *const archs[] = { &sits_arch_llama };

#define NR_ARCHS (sizeof(archs) / sizeof(archs[0]))
#define KEY_MAX 128

static void key_name(const struct sits_model *m, const char *key, char out[KEY_MAX])
{
	snprintf(out, KEY_MAX, "%.*s.%s", (int)m->arch.len, m->arch.p, key);
}

int sits_arch_u32_or(const struct sits_model *m, const char *key, uint32_t min, uint32_t max, uint32_t dflt,
		     uint32_t *v, struct sits_diag *diag)
{
	char name[KEY_MAX];
	uint64_t x;
	int ret;

	key_name(m, key, name);
	ret = sits_gguf_get_u64(m->gguf, name, &x);
	if (ret == -ENOENT) {
		*v = dflt;
		return 0;
	}
	if (ret)
		return sits_diag_fail(diag, -EBADMSG, "model: key %s is not one non-negative integer", name);
	if (x < min || x > max)
		return sits_diag_fail(diag, -EBADMSG, "model: key %s is %" PRIu64 ", not in %" PRIu32 "..%" PRIu32,
				      name, x, min, max);
	*v = x;
	return 0;
}

int sits_arch_u32(const struct sits_model *m, const char *key, uint32_t min, uint32_t max, uint32_t *v,
		  struct sits_diag *diag)
{
	char name[KEY_MAX];
	uint64_t x;

	key_name(m, key, name);
	if (sits_gguf_get_u64(m->gguf, name, &x) == -ENOENT)
		return sits_diag_fail(diag, -EBADMSG, "model: key %s is missing", name);
	return sits_arch_u32_or(m, key, min, max, 0, v, diag);
}

int sits_arch_f32_or(const struct sits_model *m, const char *key, float dflt, float *v, struct sits_diag *diag)
{
	char name[KEY_MAX];
	int ret;

	key_name(m, key, name);
	ret = sits_gguf_get_f32(m->gguf, name, v);
	if (ret == -ENOENT && dflt > 0) {
		*v = dflt;
		return 0;
	}
	if (ret == -ENOENT)
		return sits_diag_fail(diag, -EBADMSG, "model: key %s is missing", name);
	if (ret)
		return sits_diag_fail(diag, -EBADMSG, "model: key %s is not a float", name);
	if (!isfinite(*v) || *v <= 0)
		return sits_diag_fail(diag, -EBADMSG, "model: key %s is %g; it must be positive", name, (double)*v);
	return 0;
}

static bool is_one_of(const char *p, size_t len, const char *const *names)
{
	for (; *names; names++)
		if (strlen(*names) == len && !memcmp(*names, p, len))
			return true;
	return false;
}

int sits_arch_keys(const struct sits_model *m, const char *const *known, struct sits_diag *diag)
{
	size_t skip = m->arch.len + 1;
	enum sits_gguf_type type;
	struct sits_str key;
	uint64_t i;

	for (i = 0; i < sits_gguf_nr_keys(m->gguf); i++) {
		if (sits_gguf_key_at(m->gguf, i, &key, &type))
			continue;
		if (key.len <= skip || memcmp(key.p, m->arch.p, m->arch.len) || key.p[skip - 1] != '.')
			continue;
		if (!is_one_of(key.p + skip, key.len - skip, known))
			return sits_diag_fail(diag, -EPROTONOSUPPORT,
					      "model: key %.*s is not known here and might change the model's answers",
					      (int)(key.len > 100 ? 100 : key.len), key.p);
	}
	return 0;
}

static int shape_error(const struct sits_gguf_tensor *t, const char *name, uint64_t K, uint64_t N,
		       struct sits_diag *diag)
{
	return sits_diag_fail(diag, -EBADMSG,
			      "model: tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
			      "; the metadata says %" PRIu64 " x %" PRIu64, name,
			      t->ne[0], t->ne[1], t->ne[2], t->ne[3], K, N);
}

int sits_arch_matrix(const struct sits_model *m, const char *name, uint64_t K, uint64_t N, struct sits_weight *w,
		     struct sits_diag *diag)
{
	const struct sits_gguf_tensor *t = sits_gguf_find(m->gguf, name);
	const struct sits_dtype_info *info;

	if (!t)
		return sits_diag_fail(diag, -EBADMSG, "model: tensor %s is missing", name);
	if (t->ne[0] != K || t->ne[1] != N || t->ne[2] != 1 || t->ne[3] != 1)
		return shape_error(t, name, K, N, diag);
	info = sits_dtype_info(t->type);
	if (!info || K % info->block_elems)
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: tensor %s has type %" PRIu32 ", not usable here",
				      name, t->type);
	*w = (struct sits_weight){ .data = t->data, .type = t->type, .K = K, .N = N,
				   .row_bytes = K / info->block_elems * info->block_bytes };
	return 0;
}

int sits_arch_vector(const struct sits_model *m, const char *name, uint64_t K, struct sits_weight *w,
		     struct sits_diag *diag)
{
	int ret = sits_arch_matrix(m, name, K, 1, w, diag);

	if (ret)
		return ret;
	if (w->type != SITS_F32)
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: tensor %s is %s; a vector must be F32", name,
				      sits_dtype_info(w->type)->name);
	if ((uintptr_t)w->data % sizeof(float))
		return sits_diag_fail(diag, -EBADMSG,
				      "model: tensor %s is not aligned to 4 bytes; general.alignment is too small", name);
	return 0;
}

int sits_arch_vector_opt(const struct sits_model *m, const char *name, uint64_t K, struct sits_weight *w,
			 struct sits_diag *diag)
{
	memset(w, 0, sizeof(*w));
	return sits_gguf_find(m->gguf, name) ? sits_arch_vector(m, name, K, w, diag) : 0;
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)*(const void *const *)a, y = (uintptr_t)*(const void *const *)b;

	return (x > y) - (x < y);
}

/* Every address that a weight of the model has, sorted. *nr of them; NULL where there is no memory. */
static const void **list_used(const struct sits_model *m, size_t *nr)
{
	const size_t per_layer = sizeof(struct sits_layer) / sizeof(struct sits_weight);
	const struct sits_weight *w;
	const void **used;
	size_t i, j, n = 0;

	_Static_assert(sizeof(struct sits_layer) % sizeof(struct sits_weight) == 0, "a layer is weights only");
	used = malloc((per_layer * m->hp.layers + 3) * sizeof(*used));
	if (!used)
		return NULL;
	used[n++] = m->tok_embd.data;
	used[n++] = m->output.data;
	used[n++] = m->output_norm.data;
	for (i = 0; i < m->hp.layers; i++) {
		w = (const struct sits_weight *)&m->layer[i];
		for (j = 0; j < per_layer; j++)
			if (w[j].data)
				used[n++] = w[j].data;
	}
	qsort(used, n, sizeof(*used), by_address);
	*nr = n;
	return used;
}

int sits_arch_unused(const struct sits_model *m, const char *const *harmless, struct sits_diag *diag)
{
	const struct sits_gguf_tensor *t;
	const void **used;
	size_t nr;
	uint64_t i;
	int ret = 0;

	used = list_used(m, &nr);
	if (!used)
		return -ENOMEM;
	for (i = 0; i < sits_gguf_nr_tensors(m->gguf) && !ret; i++) {
		t = sits_gguf_tensor_at(m->gguf, i);
		if (bsearch(&t->data, used, nr, sizeof(*used), by_address) ||
		    is_one_of(t->name.p, t->name.len, harmless))
			continue;
		ret = sits_diag_fail(diag, -EPROTONOSUPPORT,
				     "model: tensor %.*s has no place in the %.*s architecture known here",
				     (int)t->name.len, t->name.p, (int)m->arch.len, m->arch.p);
	}
	free(used);
	return ret;
}

static int find_arch(const struct sits_model *m, const struct sits_arch **out, struct sits_diag *diag)
{
	char known[256] = "";
	size_t i, len = 0;

	for (i = 0; i < NR_ARCHS; i++) {
		if (strlen(archs[i]->name) == m->arch.len && !memcmp(archs[i]->name, m->arch.p, m->arch.len)) {
			*out = archs[i];
			return 0;
		}
		len += snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "", archs[i]->name);
	}
	return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: architecture \"%.*s\" is not known here; known: %s",
			      (int)(m->arch.len > 64 ? 64 : m->arch.len), m->arch.p, known);
}

static void pick_chat(struct sits_model *m)
{
	int ret = sits_chat_pick(m->gguf, &m->chat, &m->chat_diag);

	if (!ret)
		return;
	m->chat = NULL;
	sits_diag_fail(&m->chat_diag, ret, "model: no chat template in the metadata; pass a raw prompt");
}

int sits_model_open(const void *data, size_t len, struct sits_model **out, struct sits_diag *diag)
{
	const struct sits_arch *arch;
	struct sits_model *m;
	int ret;

	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	ret = sits_gguf_open(data, len, &m->gguf, diag);
	if (ret)
		goto err_close;
	ret = sits_gguf_get_str(m->gguf, "general.architecture", &m->arch);
	if (ret) {
		ret = sits_diag_fail(diag, -EBADMSG, "model: key general.architecture is %s",
				     ret == -ENOENT ? "missing" : "not a string");
		goto err_close;
	}
	if (sits_gguf_get_str(m->gguf, "general.name", &m->name))
		m->name = m->arch;
	ret = find_arch(m, &arch, diag);
	if (ret)
		goto err_close;
	ret = sits_tokenizer_create(m->gguf, &m->tok, diag);
	if (ret)
		goto err_close;
	ret = arch->load(m, diag);
	if (ret)
		goto err_close;
	pick_chat(m);
	*out = m;
	return 0;

err_close:
	sits_model_close(m);
	return ret;
}

void sits_model_close(struct sits_model *m)
{
	if (!m)
		return;
	free(m->inv_freq);
	free(m->layer);
	sits_tokenizer_destroy(m->tok);
	sits_gguf_close(m->gguf);
	free(m);
}

int32_t sits_model_start_token(const struct sits_model *m)
{
	static const char *const ends[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id" };
	int32_t id = sits_tokenizer_bos(m->tok);
	uint64_t v;
	size_t i;

	for (i = 0; id < 0 && i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!sits_gguf_get_u64(m->gguf, ends[i], &v) && v < m->hp.vocab)
			id = v;
	return id;
}
