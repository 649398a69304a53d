/* SPDX-License-Identifier: MIT */
/*
 * sealed_dir.h - directories of sealed files: a model in safetensors. What lies in one is daemon/manifest.h's to say.
 */
#ifndef SITS_TOOLS_SEALED_DIR_H
#define SITS_TOOLS_SEALED_DIR_H

#include <stdbool.h>

struct sits_ctx;
struct sits_key;
struct sits_load_opts;
struct sits_seal_opts;

struct sealed_dir_args {
	const char *cmd;	/* for messages */
	bool json, quiet;
};

/**
 * sealed_dir_seal() - Seal the files of a model in the directory @in into a new directory @out.
 * @opts: of each file; model_id NULL means the base name of @in; force: a sealed directory at @out is replaced
 *
 * @out appears whole or not at all: until then it is @out.sits-tmp.XXXXXX beside it, which the next seal removes if its writer was
 * killed. Return: the exit status.
 */
int sealed_dir_seal(const struct sealed_dir_args *a, struct sits_ctx *ctx, const struct sits_key *key, const char *in,
		    const char *out, const struct sits_seal_opts *opts);

/** sealed_dir_is_tmp() - Is it the name of one that is being sealed, or that a killed writer left? */
bool sealed_dir_is_tmp(const char *name);

/** sealed_dir_inspect() - The headers of all files in it. @key: may be NULL. Return: the exit status. */
int sealed_dir_inspect(const struct sealed_dir_args *a, struct sits_ctx *ctx, const struct sits_key *key, const char *path);

/** sealed_dir_verify() - Every chunk of every file, and that they are those which the manifest names. Return: the exit status. */
int sealed_dir_verify(const struct sealed_dir_args *a, struct sits_ctx *ctx, const struct sits_key *key, const char *path,
		      const struct sits_load_opts *opts);

#endif
