/* SPDX-License-Identifier: MIT */
/*
 * model.h - the commands that work on plaintext models, and what they share.
 *
 * They are a program of their own, sits-model, which `sits` starts: `sits` itself never holds plaintext weights. They
 * belong on the machine of who owns the weights, before these are sealed; nothing here runs where a model is served.
 * A command is cmd_<name>.c with one struct sits_cmd, as tools/sits/cmd.h says; main.c lists them.
 */
#ifndef SITS_TOOLS_MODEL_H
#define SITS_TOOLS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "tools/sits/cmd.h"

struct sits_gguf;
struct sits_model;

/* A file in memory, read-only. */
struct mapped {
	const void *data;
	size_t len;
};

/**
 * mapped_open() - Map the regular file @path, not empty.
 *
 * Where the file is cut short meanwhile, or a page of it can't be read, zeros are read from there on, and mapped_check() says so. To be
 * called, as mapped_close(), while no other thread runs.
 *
 * Return: 0; -errno with words in @diag.
 */
int mapped_open(const char *path, struct mapped *m, struct sits_diag *diag);
void mapped_close(struct mapped *m);	/* zero-initialised is allowed */

/** mapped_lost() - Are zeros read in place of a part of some file? Then there is no sense in going on. */
bool mapped_lost(void);

/**
 * mapped_check() - Are all files that are mapped what they were? Before anything that was made of them is let out.
 * @ret: what has come of the work so far
 * Return: @ret; -ESTALE where a file has changed, -EIO where a part could not be read, with words in @diag in place of any before.
 */
int mapped_check(int ret, struct sits_diag *diag);

/** model_load() - sits_model_open() for the file @path that is mapped at @f, borrowed until close. A sealed file is refused by name. */
int model_load(const char *path, const struct mapped *f, struct sits_model **m, struct sits_diag *diag);

/** model_index() - sits_gguf_open() for the same. */
int model_index(const char *path, const struct mapped *f, struct sits_gguf **g, struct sits_diag *diag);

/** model_fail() - Say why, on stderr and with @json on stdout; @what where @diag has no words. Return: the exit status. */
int model_fail(const char *cmd, const char *what, int err, const struct sits_diag *diag, bool json);

/** seconds_now() - CLOCK_MONOTONIC. */
double seconds_now(void);


#endif
