// SPDX-License-Identifier: MIT
/*
 * node_dir.c - load a directory of sealed files (manifest.h).
 *
 * The manifest is loaded first, by itself: it is one sealed file, so it is authentic as a whole. It names the others, and what
 * each load finds must be what it says. All files are of one model and version. Files that it does not name are not looked at.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/manifest.h"
#include "daemon/model/model.h"
#include "daemon/node_load.h"

/* One file of the directory. */
struct part {
	char path[4096];
	struct sits_sealed_info seen, loaded;
};

struct dir {
	struct sits_manifest manifest;
	struct part *part;		/* [manifest.nr]; their regions are n->region[i] */
};

static int path_of(struct sits_load *l, const char *name, const char *suffix, char out[4096])
{
	int n = snprintf(out, 4096, "%s/%s%s", l->cfg->model.path, name, suffix);

	return n < 0 || n >= 4096 ? sits_diag_fail(l->diag, -ENAMETOOLONG, "%s: too long a path", sits_load_key(l)) : 0;
}

/* Read the manifest through a region that is gone again behind it. */
static int load_manifest(struct sits_load *l, struct sits_manifest *m)
{
	struct sits_region *region = NULL;
	struct sits_sealed_info info;
	struct sits_load_opts opts;
	char path[4096];
	int ret;

	ret = path_of(l, SITS_MANIFEST_FILE, "", path);
	if (!ret && access(path, F_OK))
		ret = sits_diag_fail(l->diag, -errno, "%.200s: %s; 'sits seal' makes it with the directory", path, strerror(errno));
	if (!ret)
		ret = sits_load_inspect(l, path, &l->n->sealed);
	if (ret)
		return ret;
	/* Without integrity nothing that it says would hold. */
	if (l->n->sealed.suite == SITS_SUITE_SM4_ECB)
		return sits_diag_fail(l->diag, -EPROTONOSUPPORT, "%.200s: SM4-ECB is not read in a directory", path);
	ret = sits_load_region(l, path, l->n->sealed.plain_bytes, false, &region);
	if (ret)
		return ret;
	sits_load_opts(l, &opts);
	opts.progress = NULL;
	ret = sits_weights_load(l->n->ctx, path, region, l->key, &opts, &info);
	if (ret)
		sits_load_failed(l, path, ret);
	else if (!sits_load_is_same(&info, &l->n->sealed))
		ret = sits_load_failed(l, path, -ESTALE);
	else
		ret = sits_manifest_parse(sits_region_data(region), l->n->sealed.plain_bytes, m, l->diag);
	if (!ret)
		l->n->sealed = info;
	sits_region_destroy(region);
	return ret;
}

/* Before any memory is taken: are all there, and of this model? */
static int inspect_parts(struct sits_load *l, struct dir *d)
{
	const struct sits_sealed_info *s = &l->n->sealed;
	size_t i;
	int ret;

	for (i = 0; i < d->manifest.nr; i++) {
		const struct sits_manifest_file *f = &d->manifest.file[i];
		struct part *p = &d->part[i];

		ret = path_of(l, f->name, SITS_SEALED_SUFFIX, p->path);
		if (!ret)
			ret = sits_load_inspect(l, p->path, &p->seen);
		if (ret)
			return ret;
		if (strcmp(p->seen.model_id, s->model_id) || p->seen.model_version != s->model_version)
			return sits_diag_fail(l->diag, -EBADMSG, "%.200s: is of model '%s' version %" PRIu64 ", but the directory of '%s' version %" PRIu64
					      ": files of two models are mixed", p->path, p->seen.model_id, p->seen.model_version,
					      s->model_id, s->model_version);
		if (p->seen.plain_bytes != f->bytes)
			return sits_diag_fail(l->diag, -EBADMSG, "%.200s: holds %" PRIu64 " bytes, but " SITS_MANIFEST_FILE " says %" PRIu64
					      ": it is of another seal", p->path, p->seen.plain_bytes, f->bytes);
	}
	return 0;
}

static int create_regions(struct sits_load *l, struct dir *d)
{
	size_t i;
	int ret = 0;

	l->n->region = calloc(d->manifest.nr, sizeof(*l->n->region));
	if (!l->n->region)
		return -ENOMEM;
	for (i = 0; i < d->manifest.nr && !ret; i++) {
		/* Of what is less than a huge page none can be had. */
		ret = sits_load_region(l, d->part[i].path, d->manifest.file[i].bytes, d->manifest.file[i].bytes >= 2u << 20,
				       &l->n->region[i]);
		l->n->nr_regions += !ret;
	}
	return ret;
}

/* Each file as a whole, at the digest that the manifest has. */
static int load_parts(struct sits_load *l, struct dir *d)
{
	struct sits_load_item *items = calloc(d->manifest.nr, sizeof(*items));
	struct sits_load_opts opts;
	size_t i;
	int ret;

	if (!items)
		return -ENOMEM;
	for (i = 0; i < d->manifest.nr; i++)
		items[i] = (struct sits_load_item){ .size = sizeof(*items), .path = d->part[i].path, .region = l->n->region[i],
						    .info = &d->part[i].loaded };
	sits_load_opts(l, &opts);
	opts.flags &= ~SITS_LOAD_ALLOW_ECB;
	ret = sits_weights_load_many(l->n->ctx, items, (uint32_t)d->manifest.nr, l->key, &opts);
	free(items);
	if (ret)
		return sits_load_failed(l, l->cfg->model.path, ret);
	for (i = 0; i < d->manifest.nr; i++) {
		if (!sits_load_is_same(&d->part[i].seen, &d->part[i].loaded))
			return sits_load_failed(l, d->part[i].path, -ESTALE);
		if (memcmp(d->part[i].loaded.digest, d->manifest.file[i].digest, sizeof(d->manifest.file[i].digest)))
			return sits_diag_fail(l->diag, -EBADMSG, "%.200s: has another digest than " SITS_MANIFEST_FILE
					      " says: it is of another seal of this model", d->part[i].path);
	}
	return 0;
}

static int open_parts(struct sits_load *l, struct dir *d)
{
	struct sits_model_file *files = calloc(d->manifest.nr, sizeof(*files));
	size_t i;
	int ret;

	if (!files)
		return -ENOMEM;
	l->n->sealed.plain_bytes = 0;
	for (i = 0; i < d->manifest.nr; i++) {
		files[i] = (struct sits_model_file){ .name = d->manifest.file[i].name, .data = sits_region_data(l->n->region[i]),
						     .len = (size_t)d->manifest.file[i].bytes };
		l->n->sealed.plain_bytes += files[i].len;
	}
	ret = sits_load_model(l, files, d->manifest.nr);
	free(files);
	return ret;
}

/* Configuration and tokenizer have been read: what is left are the weights. */
static void drop_small(struct sits_node *n, const struct sits_manifest *m)
{
	uint32_t i, kept = 0;

	for (i = 0; i < n->nr_regions; i++) {
		if (m->nr > 1 && !sits_manifest_is_weights(m->file[i].name))
			sits_region_destroy(n->region[i]);
		else
			n->region[kept++] = n->region[i];
	}
	n->nr_regions = kept;
}

int sits_load_dir(struct sits_load *l)
{
	struct dir d = { 0 };
	int ret;

	ret = load_manifest(l, &d.manifest);
	if (!ret) {
		d.part = calloc(d.manifest.nr, sizeof(*d.part));
		ret = d.part ? 0 : -ENOMEM;
	}
	if (!ret)
		ret = inspect_parts(l, &d);
	if (!ret)
		ret = create_regions(l, &d);
	if (!ret)
		ret = load_parts(l, &d);
	if (!ret)
		ret = open_parts(l, &d);
	if (!ret)
		drop_small(l->n, &d.manifest);
	sits_manifest_fini(&d.manifest);
	free(d.part);
	return ret;
}
