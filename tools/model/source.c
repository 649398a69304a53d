// SPDX-License-Identifier: MIT
/*
 * source.c - see source.h.
 */
#include "tools/model/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/manifest.h"
#include "daemon/model/meta.h"
#include "daemon/model/tok_json.h"
#include "tools/model/gguf_out.h"
#include "tools/model/quantize.h"
#include "tools/sits/tool_dir.h"

#define NAME_MAX_BYTES	64	/* of a GGUF's tensor */
#define NR_KINDS	3	/* of an expert's matrices */

static const char *const kinds[NR_KINDS] = { "gate", "up", "down" };

/* ---- a directory's files ---- */

static int map_files(struct source *s, struct sits_diag *diag)
{
	struct mapped f;
	char path[TOOL_PATH_MAX];
	int ret;

	s->files = calloc(s->manifest->nr, sizeof(*s->files));
	if (!s->files)
		return -ENOMEM;
	while (s->nr_files < s->manifest->nr) {
		const char *name = s->manifest->file[s->nr_files].name;

		if (tool_dir_join(path, s->path, name, ""))
			return sits_diag_fail(diag, -ENAMETOOLONG, "%s: %s", s->path, strerror(ENAMETOOLONG));
		f = (struct mapped){ 0 };
		ret = mapped_open(path, &f, diag);
		if (ret)
			return ret;
		s->files[s->nr_files++] = (struct sits_model_file){ .name = name, .data = f.data, .len = f.len };
		s->bytes += f.len;
	}
	return 0;
}

static int list_files(struct source *s, struct sits_diag *diag)
{
	struct tool_dir_why why;
	int ret;

	s->manifest = calloc(1, sizeof(*s->manifest));
	if (!s->manifest)
		return -ENOMEM;
	ret = tool_dir_list(s->path, s->manifest, NULL, NULL, &why);
	return ret ? sits_diag_fail(diag, ret, "%.300s: %s", why.path, why.words) : map_files(s, diag);
}

/* ---- tensors as they will be ---- */

/* "blk.@layer.ffn_gate.@expert.weight", and the like: a matrix of one expert. */
static bool is_expert(const struct sits_gguf_tensor *t, uint32_t *layer, uint32_t *kind, uint32_t *expert)
{
	char name[NAME_MAX_BYTES], word[8], tail[8];

	snprintf(name, sizeof(name), "%.*s", (int)t->name.len, t->name.p);
	if (sscanf(name, "blk.%u.ffn_%4[a-z].%u.%7s", layer, word, expert, tail) != 4 || strcmp(tail, "weight"))
		return false;
	for (*kind = 0; *kind < NR_KINDS; ++*kind)
		if (!strcmp(kinds[*kind], word))
			return true;
	return false;
}

/* The list under way. */
struct list {
	struct sits_gguf_tensor *t;
	char (*name)[NAME_MAX_BYTES];	/* [tensors]: of stacks */
	size_t *stack;			/* [layers][NR_KINDS]: index + 1 of each; 0: not met yet */
	size_t nr;
};

/* One matrix more of a stack, which has room for as many as the routing rule says. sits_model_open_files() has seen that they are alike. */
static int add_expert(struct source *s, struct list *l, const struct sits_gguf_tensor *t, uint32_t layer, uint32_t kind, uint32_t expert)
{
	const uint32_t X = s->m->hp.route.experts;
	size_t *at = &l->stack[(size_t)layer * NR_KINDS + kind];
	struct sits_gguf_tensor *all;

	if (layer >= s->m->hp.layers || expert >= X)
		return -EBADMSG;
	if (!*at) {
		all = &l->t[l->nr];
		s->part[l->nr] = calloc(X, sizeof(*s->part[l->nr]));
		if (!s->part[l->nr])
			return -ENOMEM;
		snprintf(l->name[l->nr], NAME_MAX_BYTES, "blk.%u.ffn_%s_exps.weight", layer, kinds[kind]);
		*all = *t;
		all->name = (struct sits_str){ l->name[l->nr], strlen(l->name[l->nr]) };
		all->nr_dims = 3;
		all->ne[2] = X;
		all->bytes *= X;
		*at = ++l->nr;
	}
	s->part[*at - 1][expert] = t->data;
	return 0;
}

static int fill_list(struct source *s, struct list *l, struct sits_diag *diag)
{
	const struct sits_gguf_tensor *t;
	uint32_t layer, kind, expert;
	uint64_t i, nr = sits_gguf_nr_tensors(s->m->gguf);

	l->t = calloc(nr, sizeof(*l->t));
	l->name = calloc(nr, sizeof(*l->name));
	l->stack = calloc((size_t)s->m->hp.layers * NR_KINDS, sizeof(*l->stack));
	s->part = calloc(nr, sizeof(*s->part));
	if (!l->t || !l->name || !l->stack || !s->part)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		int ret = 0;

		t = sits_gguf_tensor_at(s->m->gguf, i);
		if (is_expert(t, &layer, &kind, &expert))
			ret = add_expert(s, l, t, layer, kind, expert);
		else
			l->t[l->nr++] = *t;
		if (ret)
			return sits_diag_fail(diag, ret, "%s: tensor %.*s: %s", s->path, (int)t->name.len, t->name.p, strerror(-ret));
	}
	return 0;
}

/* An index without keys, whose names are its own copy. */
static int index_list(struct source *s, const struct list *l, struct sits_diag *diag)
{
	struct sits_meta meta = { 0 };
	size_t len, i, at = 0;
	int ret = sits_meta_end(&meta, &s->image, &len);

	for (i = 0; i < l->nr && !ret; i++)
		at += l->t[i].name.len + 1;
	s->names = ret ? NULL : malloc(at + 1);
	if (!s->names)
		return -ENOMEM;
	for (i = 0, at = 0; i < l->nr; i++) {
		memcpy(s->names + at, l->t[i].name.p, l->t[i].name.len);
		l->t[i].name.p = s->names + at;
		at += l->t[i].name.len;
		s->names[at++] = '\0';
	}
	ret = sits_gguf_open(s->image, len, &s->own, diag);
	return ret ? ret : sits_gguf_attach(s->own, l->t, l->nr, diag);
}

static int open_dir(struct source *s, struct sits_diag *diag)
{
	struct sits_diag why = { "" };
	struct list l = { 0 };
	int ret = list_files(s, diag);

	if (ret)
		return ret;
	ret = sits_model_open_files(s->files, s->nr_files, &s->m, &why);
	if (ret)
		return sits_diag_fail(diag, ret, "%s: %s", s->path, why.msg[0] ? why.msg : strerror(-ret));
	ret = fill_list(s, &l, diag);
	if (!ret)
		ret = index_list(s, &l, diag);
	s->g = s->own;
	free(l.t);
	free(l.name);
	free(l.stack);
	return ret;
}

/* ---- both ---- */

static int open_file(struct source *s, struct sits_diag *diag)
{
	int ret = mapped_open(s->path, &s->file, diag);

	if (!ret)
		ret = model_index(s->path, &s->file, &s->own, diag);
	s->g = s->own;
	s->bytes = s->file.len;
	return ret;
}

int source_open(const char *path, struct source *s, struct sits_diag *diag)
{
	*s = (struct source){ .path = path, .is_dir = tool_dir_is(path) };
	return s->is_dir ? open_dir(s, diag) : open_file(s, diag);
}

void source_close(struct source *s)
{
	uint64_t i;

	for (i = 0; s->part && i < sits_gguf_nr_tensors(s->m->gguf); i++)
		free(s->part[i]);
	free(s->part);
	sits_gguf_close(s->own);
	sits_model_close(s->m);
	free(s->image);
	free(s->names);
	for (i = 0; i < s->nr_files; i++)
		mapped_close(&(struct mapped){ s->files[i].data, s->files[i].len });
	free(s->files);
	if (s->manifest)
		sits_manifest_fini(s->manifest);
	free(s->manifest);
	mapped_close(&s->file);
	*s = (struct source){ 0 };
}

int source_model(const struct source *s, struct sits_model **m, struct sits_diag *diag)
{
	return s->is_dir ? sits_model_open_files(s->files, s->nr_files, m, diag) : model_load(s->path, &s->file, m, diag);
}

/* Those of q and k, where a GGUF has them for rotation by neighbours. */
static bool is_rotated(const struct source *s, const struct sits_gguf_tensor *t)
{
	const struct sits_str arch = s->m->arch;
	char name[NAME_MAX_BYTES];

	snprintf(name, sizeof(name), "%.*s", (int)t->name.len, t->name.p);
	return arch.len == 5 && !memcmp(arch.p, "llama", 5) && (strstr(name, ".attn_q.") || strstr(name, ".attn_k."));
}

void source_plan(const struct source *s, struct quant_plan *p)
{
	uint64_t i;

	for (i = 0; s->is_dir && i < p->nr; i++) {
		p->tensor[i].part = (const void *const *)s->part[i];
		if (is_rotated(s, p->tensor[i].t))
			p->tensor[i].head_rows = s->m->hp.head_dim;
	}
}

static int put_tokenizer(const struct source *s, struct gguf_out *o)
{
	uint32_t i, nr = 0, vocab = sits_tokenizer_vocab(s->m->tok);
	int32_t *ends = malloc(vocab * sizeof(*ends));
	size_t f;
	int ret;

	if (!ends)
		return -ENOMEM;
	for (i = 0; i < vocab; i++)
		if (sits_tokenizer_is_eog(s->m->tok, (int32_t)i))
			ends[nr++] = (int32_t)i;
	ret = gguf_out_key_i32s(o, SITS_TOK_ENDS_KEY, ends, nr);
	free(ends);
	for (f = 0; f < s->nr_files && !ret; f++)
		if (!strcmp(s->files[f].name, "tokenizer.json"))
			ret = gguf_out_key_str(o, SITS_TOK_JSON_KEY, (struct sits_str){ s->files[f].data, s->files[f].len });
	return ret;
}

int source_keys(const struct source *s, struct gguf_out *o, const char *const *but)
{
	int ret = gguf_out_keys_of(o, s->is_dir ? s->m->gguf : s->g, but);

	return ret || !s->is_dir ? ret : put_tokenizer(s, o);
}
