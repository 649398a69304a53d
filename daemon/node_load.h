/* SPDX-License-Identifier: MIT */
/*
 * node_load.h - what node.c and node_dir.c share while a node is loaded; nothing else includes it.
 */
#ifndef SITS_DAEMON_NODE_LOAD_H
#define SITS_DAEMON_NODE_LOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/node.h"

struct sits_model_file;

struct sits_load {
	struct sits_node *n;
	const struct sits_config *cfg;
	const volatile sig_atomic_t *stop;
	void (*status)(const char *words);
	struct sits_diag *diag;
	struct sits_key *key;
	uint64_t started_ns;
	unsigned int shown;	/* per cent */
};

/* node.c: what returns int returns 0, or -errno with words in l->diag. */

/** sits_load_key() - The key of the configuration that the path is of: model.path, or for a draft model.draft_path. */
const char *sits_load_key(const struct sits_load *l);
/** sits_load_failed() - Words for what libsits said of the sealed file @path. Return: @err. */
int sits_load_failed(struct sits_load *l, const char *path, int err);
/** sits_load_inspect() - The header, under the key: what is it, and may it be loaded? Sets n->min_version. Where only the kernel
 * has the key, it is believed until the load has shown that what was loaded is what was looked at. */
int sits_load_inspect(struct sits_load *l, const char *path, struct sits_sealed_info *info);
/** sits_load_region() - A region for @bytes of plaintext, @huge: of huge pages; node_fini()'s to destroy once it is in n->region. */
int sits_load_region(struct sits_load *l, const char *path, uint64_t bytes, bool huge, struct sits_region **out);
void sits_load_opts(struct sits_load *l, struct sits_load_opts *opts);
/** sits_load_is_same() - Is it the file that was looked at, as far as the two tell? */
bool sits_load_is_same(const struct sits_sealed_info *a, const struct sits_sealed_info *b);
/** sits_load_model() - Open the model in loaded regions. */
int sits_load_model(struct sits_load *l, const struct sits_model_file *files, size_t nr);
int sits_load_progress(void *arg, uint64_t done, uint64_t total);

/* node_dir.c */

/** sits_load_dir() - Load the sealed directory model.path and open the model in it. */
int sits_load_dir(struct sits_load *l);

#endif
