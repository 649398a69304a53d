/* SPDX-License-Identifier: MIT */
/*
 * rekey_many.h - put many sealed files under another key: what `sits rekey` and `sits key rotate` share.
 */
#ifndef SITS_TOOLS_REKEY_MANY_H
#define SITS_TOOLS_REKEY_MANY_H

#include <stdbool.h>
#include <stdint.h>

#define REKEY_WAIT_S	60	/* without --wait */

struct json_t;
struct sits_ctx;
struct sits_key;

/**
 * struct rekey_many - the work, and what came of it.
 * @cmd: for messages
 * @flags: SITS_REKEY_* of sits/rekey.h; WAIT is implied
 * @wait_s: how long to wait, at most, for another process that has a file; all others are done before
 * @json: no lines on stdout, but an object for each file in @files
 * @changed: @already: @other: @failed: how many files there were of each outcome; in a dry run, would be
 * @left: files that were not tried, because a signal came
 */
struct rekey_many {
	const char *cmd;
	struct sits_ctx *ctx;
	const struct sits_key *old_key, *new_key;
	uint32_t flags, threads, wait_s;
	bool json, quiet;
	struct json_t *files;
	unsigned int changed, already, other, failed, left;
};

/**
 * rekey_many_run() - Go through all of @paths: files, and directories, in which every *.sits is taken, however deep. What
 * appears there meanwhile is taken too.
 * Return: the exit status: 0 where all files are under the new key (or were skipped); 1; 128 + N for signal N.
 */
int rekey_many_run(struct rekey_many *m, char **paths, int nr_paths);

/** rekey_many_one() - One file. Return: 0, or an exit status after a message. @outcome: out, of sits/rekey.h. */
int rekey_many_one(struct rekey_many *m, const char *path, uint32_t *outcome);

/** rekey_many_report() - Say what came of it, on stdout. @more: JSON fields to add; taken; NULL for none. */
void rekey_many_report(struct rekey_many *m, bool ok, struct json_t *more);

#endif
