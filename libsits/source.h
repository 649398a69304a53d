/* SPDX-License-Identifier: MIT */
/*
 * source.h - an opened sealed file: its header, authenticated where there is a key, and its tag table.
 */
#ifndef SITS_LIBSITS_SOURCE_H
#define SITS_LIBSITS_SOURCE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "crypto/sealed.h"
#include "sits/sealed.h"

#define SITS_SOURCE_TAGS	(1u << 0)	/* keep the tag table */
#define SITS_SOURCE_DIRECT	(1u << 1)	/* open it for direct I/O too, where that is possible */

struct sits_pump;

/* Caller's storage, sits_source_open() to sits_source_close(). */
struct sits_source {
	struct sits_ctx *ctx;
	const char *path;			/* borrowed */
	int fd, direct_fd;			/* direct_fd: -1 without */
	struct stat st;				/* as it was opened */
	struct sits_sealed_hdr hdr;
	struct sits_sealed_file *file;		/* in secret memory; NULL without a key */
	u8 *tags;				/* nr_chunks tags, with SITS_SOURCE_TAGS */
	u8 digest[SITS_SM3_LEN];
	u8 page[SITS_SEALED_HDR_BYTES];
};

/**
 * sits_source_open() - Open, parse, authenticate under @key (may be NULL), check the size, read the tag table.
 * Return: 0, then sits_source_close() is due; as sits_sealed_inspect(). All are logged.
 */
int sits_source_open(struct sits_ctx *ctx, const char *path, const struct sits_key *key, unsigned int flags,
		     struct sits_source *src);
void sits_source_close(struct sits_source *src);

/** sits_source_unchanged() - Is it still the file that was opened? Return: 0; -ESTALE, logged; -errno. */
int sits_source_unchanged(const struct sits_source *src);

/** sits_source_digest() - From page and the tag table behind it in fd, the file's digest. Return: 0; -errno, logged. */
int sits_source_digest(struct sits_source *src);

/** sits_source_info() - What it says of itself. */
void sits_source_info(const struct sits_source *src, struct sits_sealed_info *info);

/**
 * sits_source_header() - Read the header page of @fd, and take its place from the journal where a rekey is under way
 * or was cut short in the middle of the page.
 * @kek: NULL parses only
 * @f: out, secret; only its hdr without @kek
 * Return: as sits_sealed_parse() or sits_sealed_unwrap(); -ENODATA where the file is shorter than a page; -errno. Not logged.
 */
int sits_source_header(struct sits_ctx *ctx, const char *path, int fd, const u8 *kek, u8 page[SITS_SEALED_HDR_BYTES],
		       struct sits_sealed_file *f, const char **why);

/** sits_source_log_header() - Log what sits_source_header() answered. Return: @ret, -ENODATA as -EBADMSG. */
int sits_source_log_header(struct sits_ctx *ctx, const char *path, const struct stat *st,
			   const u8 page[SITS_SEALED_HDR_BYTES], const struct sits_key *key, const char *why, int ret);

/** sits_load_opts_get() - The caller's options, checked; NULL gives the defaults. Return: 0; -EINVAL, logged. */
int sits_load_opts_get(struct sits_ctx *ctx, const struct sits_load_opts *opts, struct sits_load_opts *o);

/** sits_source_allowed() - Do the options allow a file with this authentic header? Return: 0; -EPROTONOSUPPORT;
 * -EKEYEXPIRED; logged. */
int sits_source_allowed(const struct sits_source *src, const struct sits_load_opts *opts);

/** sits_source_explain() - Log what the pump found wrong with the chunks. Return: what the caller is to answer. */
int sits_source_explain(const struct sits_source *src, const struct sits_pump *p, int ret);

/** sits_same_file_header() - Do both pages have the same immutable header, so are of one file? */
bool sits_same_file_header(const u8 a[SITS_SEALED_HDR_BYTES], const u8 b[SITS_SEALED_HDR_BYTES]);

#endif
