/* SPDX-License-Identifier: MIT */
/*
 * tool_dir.h - which files of a directory make up the safetensors model in it.
 */
#ifndef SITS_TOOLS_TOOL_DIR_H
#define SITS_TOOLS_TOOL_DIR_H

#include <stdbool.h>

#include "daemon/manifest.h"

#define TOOL_PATH_MAX 4096

/* Why not: @words are about @path. */
struct tool_dir_why {
	char path[TOOL_PATH_MAX], words[800];
};

bool tool_dir_is(const char *path);	/* any directory */

/** tool_dir_join() - "@dir/@name@suffix". Return: 0; -ENAMETOOLONG. */
int tool_dir_join(char out[TOOL_PATH_MAX], const char *dir, const char *name, const char *suffix);

/** tool_dir_add() - One more, not sorted. Return: 0; -ENOMEM. */
int tool_dir_add(struct sits_manifest *m, const char *name, uint64_t bytes);
void tool_dir_sort(struct sits_manifest *m);	/* by name */

/**
 * tool_dir_list() - Which files they are: those that docs/model-formats.md names, and of weights those that the index names, or the only one.
 * @m: out: names, rising, and lengths; no digests. sits_manifest_fini() in any case
 * @left_out: called with the name of each other file, once it is known that the rest may be a model; NULL: nobody is told
 * Return: 0; -errno, and why.
 */
int tool_dir_list(const char *dir, struct sits_manifest *m, void (*left_out)(void *arg, const char *name), void *arg,
		  struct tool_dir_why *why);

#endif
