// SPDX-License-Identifier: MIT
/*
 * arch.c - what architectures read a model with: typed keys, tensors of a known shape, and who was not asked for.
 */
#include "daemon/model/arch.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

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

int sits_arch_bool_or(const struct sits_model *m, const char *key, bool dflt, bool *v, struct sits_diag *diag)
{
	char name[KEY_MAX];
	int ret;

	key_name(m, key, name);
	ret = sits_gguf_get_bool(m->gguf, name, v);
	if (ret == -ENOENT) {
		*v = dflt;
		return 0;
	}
	return ret ? sits_diag_fail(diag, -EBADMSG, "model: key %s is not a bool", name) : 0;
}

int sits_arch_str_or(const struct sits_model *m, const char *key, const char *dflt, struct sits_str *v,
		     struct sits_diag *diag)
{
	char name[KEY_MAX];
	int ret;

	key_name(m, key, name);
	ret = sits_gguf_get_str(m->gguf, name, v);
	if (ret == -ENOENT) {
		*v = (struct sits_str){ dflt, strlen(dflt) };
		return 0;
	}
	return ret ? sits_diag_fail(diag, -EBADMSG, "model: key %s is not a string", name) : 0;
}

static bool is_one_of(const char *p, size_t len, const char *const *names)
{
	for (; *names; names++)
		if (strlen(*names) == len && !memcmp(*names, p, len))
			return true;
	return false;
}

int sits_arch_keys(const struct sits_model *m, const char *const *known, const char *const *more, struct sits_diag *diag)
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
		if (!is_one_of(key.p + skip, key.len - skip, known) && !is_one_of(key.p + skip, key.len - skip, more))
			return sits_diag_fail(diag, -EPROTONOSUPPORT,
					      "model: key %.*s is not known here and might change the model's answers",
					      (int)(key.len > 100 ? 100 : key.len), key.p);
	}
	return 0;
}

int sits_arch_matrices(const struct sits_model *m, const char *name, uint64_t K, uint64_t N, uint32_t nr,
		       struct sits_weight *w, struct sits_diag *diag)
{
	const struct sits_gguf_tensor *t = sits_gguf_find(m->gguf, name);
	uint64_t row, matrix;

	if (!t)
		return sits_diag_fail(diag, -EBADMSG, "model: tensor %s is missing", name);
	if (t->ne[0] != K || t->ne[1] != N || t->ne[2] != nr || t->ne[3] != 1)
		return sits_diag_fail(diag, -EBADMSG,
				      "model: tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
				      "; the metadata says %" PRIu64 " x %" PRIu64 " x %" PRIu32, name,
				      t->ne[0], t->ne[1], t->ne[2], t->ne[3], K, N, nr);
	row = sits_dtype_row_bytes(t->type, K);
	matrix = sits_dtype_matrix_bytes(t->type, K, N);
	if (!row || !matrix)
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "model: tensor %s has type %" PRIu32 ", not usable here",
				      name, t->type);
	*w = (struct sits_weight){ .data = t->data, .type = t->type, .nr = nr, .K = K, .N = N,
				   .row_bytes = row, .stride = nr > 1 ? matrix : 0 };
	return 0;
}

int sits_arch_matrix(const struct sits_model *m, const char *name, uint64_t K, uint64_t N, struct sits_weight *w,
		     struct sits_diag *diag)
{
	return sits_arch_matrices(m, name, K, N, 1, w, diag);
}

#define STACKS_PER_LAYER 3

/* A table of its own for each stack: the one allocation holds those of all layers. */
static const void **next_table(struct sits_model *m, uint32_t experts)
{
	if (!m->tables)
		m->tables = calloc((size_t)m->hp.layers * STACKS_PER_LAYER * experts, sizeof(*m->tables));
	if (!m->tables)
		return NULL;
	m->nr_tables += experts;
	return m->tables + (m->nr_tables - experts);
}

int sits_arch_stack(struct sits_model *m, uint32_t i, const char *name, uint64_t K, uint64_t N, uint32_t experts,
		    struct sits_weight *w, struct sits_diag *diag)
{
	struct sits_weight one;
	const void **table;
	char tensor[64];
	uint32_t x;
	int ret;

	snprintf(tensor, sizeof(tensor), "blk.%" PRIu32 ".%s.0.weight", i, name);
	if (!sits_gguf_find(m->gguf, tensor)) {
		snprintf(tensor, sizeof(tensor), "blk.%" PRIu32 ".%s_exps.weight", i, name);
		return sits_arch_matrices(m, tensor, K, N, experts, w, diag);
	}
	table = next_table(m, experts);
	if (!table)
		return -ENOMEM;
	for (x = 0; x < experts; x++) {
		snprintf(tensor, sizeof(tensor), "blk.%" PRIu32 ".%s.%" PRIu32 ".weight", i, name, x);
		ret = sits_arch_matrix(m, tensor, K, N, &one, diag);
		if (ret)
			return ret;
		if (x && one.type != w->type)
			return sits_diag_fail(diag, -EPROTONOSUPPORT,
					      "model: tensor %s is %s, expert 0 is %s; experts of a layer must be of one type",
					      tensor, sits_dtype_info(one.type)->name, sits_dtype_info(w->type)->name);
		table[x] = one.data;
		*w = one;
	}
	w->data = table[0];
	w->nr = experts;
	w->table = table;
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

#define PER_LAYER (offsetof(struct sits_layer, kind) / sizeof(struct sits_weight))
_Static_assert(offsetof(struct sits_layer, kind) % sizeof(struct sits_weight) == 0, "a layer begins with weights");

/* Every address that a weight of the model has, sorted. *nr of them; NULL where there is no memory. */
static const void **list_used(const struct sits_model *m, size_t *nr)
{
	const struct sits_weight *w;
	const void **used;
	size_t i, j, n = 0;
	uint32_t x;

	used = malloc((PER_LAYER * m->hp.layers + m->nr_tables + 3) * sizeof(*used));
	if (!used)
		return NULL;
	used[n++] = m->tok_embd.data;
	used[n++] = m->output.data;
	used[n++] = m->output_norm.data;
	for (i = 0; i < m->hp.layers; i++) {
		w = (const struct sits_weight *)&m->layer[i];
		for (j = 0; j < PER_LAYER; j++) {
			if (w[j].data)
				used[n++] = w[j].data;
			for (x = 1; w[j].table && x < w[j].nr; x++)
				used[n++] = w[j].table[x];
		}
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
