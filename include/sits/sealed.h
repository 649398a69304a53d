/* SPDX-License-Identifier: MIT */
/*
 * sits/sealed.h - keys, and sealed files (.sits): write, check, describe, rekey, load.
 *
 * The format is docs/sealed-file.md.
 */
#ifndef SITS_SEALED_H
#define SITS_SEALED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sits_ctx;
struct sits_region;
struct sits_key;

#define SITS_KEY_ID_LEN		16
#define SITS_MODEL_ID_MAX	128	/* bytes, with the terminating NUL */

#define SITS_SUITE_SM4_GCM	1	/* SM4-GCM per chunk: the only suite written */
#define SITS_SUITE_SM4_ECB	240	/* raw SM4-ECB, no integrity: read with a flag only */

/**
 * sits_key_open() - Get a key-encryption key.
 * @ctx: borrowed until the key is closed
 * @spec: "file:PATH" (a regular file of mode 0600 or stricter, owned by the caller or
 *        root, holding 32 hex digits or 16 bytes that are no text) or "keyring:NAME" (a key of type
 *        "user", or "logon" with the kernel provider, named sits:NAME); borrowed
 * @out: the key, in locked memory excluded from core dumps; freed with sits_key_close()
 *
 * Return: 0; -EINVAL for a malformed spec or key; -EACCES for a file that others can
 * read; -ENOENT, -ENOKEY where there is none; -EPERM where its memory can't be locked.
 */
int sits_key_open(struct sits_ctx *ctx, const char *spec, struct sits_key **out);

/** sits_key_close() - Wipe and free; NULL is allowed. @key: taken. */
void sits_key_close(struct sits_key *key);

/** sits_key_id() - The key's id: a digest, not a secret. @id: out, SITS_KEY_ID_LEN bytes. */
void sits_key_id(const struct sits_key *key, uint8_t *id);

/**
 * sits_key_create() - Make a new random key at @spec ("file:PATH" or "keyring:NAME").
 * Return: 0; -EEXIST if there is one already (it is left as it is); -errno.
 */
int sits_key_create(struct sits_ctx *ctx, const char *spec);

/** Called from the working thread now and then, last with done == total. Return non-zero to
 * cancel: the call then returns -ECANCELED and leaves nothing behind. */
typedef int (*sits_progress_fn)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

/**
 * struct sits_sealed_info - what a sealed file says of itself.
 * @authenticated: 1 where a key was given and the header verified under it
 * @digest: SM3 over the immutable header and the tag table: the file's identity
 */
struct sits_sealed_info {
	uint32_t format_version;
	uint32_t suite;
	uint32_t chunk_bytes;
	uint32_t authenticated;
	uint64_t plain_bytes;
	uint64_t file_bytes;
	uint64_t nr_chunks;
	uint64_t model_version;
	uint8_t key_id[SITS_KEY_ID_LEN];
	uint8_t digest[32];
	char model_id[SITS_MODEL_ID_MAX];
};

/**
 * struct sits_seal_opts - options of sits_seal().
 * @chunk_bytes: power of two, 4 KiB to 16 MiB; 0 means 1 MiB
 * @threads: 0 means one per core
 * @model_id: UTF-8, under SITS_MODEL_ID_MAX bytes, no control characters; NULL means the input's base name,
 *            made to fit
 * @model_version: what a node's recorded minimum is compared with
 * @force: 1 replaces an existing output: a regular file or a symbolic link
 */
struct sits_seal_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t chunk_bytes;
	uint32_t threads;
	const char *model_id;
	uint64_t model_version;
	uint32_t force;
	uint32_t reserved;
	sits_progress_fn progress;
	void *progress_arg;
};

/**
 * sits_seal() - Seal the file @in_path into @out_path: atomic (temporary file, fsync,
 * rename) and in constant memory. On any failure nothing is left at @out_path.
 * Return: 0; -EEXIST; -ENOSPC; -ESTALE if the input changed meanwhile; -errno.
 */
int sits_seal(struct sits_ctx *ctx, const char *in_path, const char *out_path,
	      const struct sits_key *key, const struct sits_seal_opts *opts);

/** sits_sealed_inspect() - Read the header; with @key (may be NULL) authenticate it.
 * Return: 0; -EBADMSG where it is no sealed file or was changed; -ENOKEY for another key's file. */
int sits_sealed_inspect(struct sits_ctx *ctx, const char *path, const struct sits_key *key,
			struct sits_sealed_info *info);

/** sits_sealed_verify() - Check every tag of the file. @opts as for a load; @info may be NULL. */
struct sits_load_opts;
int sits_sealed_verify(struct sits_ctx *ctx, const char *path, const struct sits_key *key,
		       const struct sits_load_opts *opts, struct sits_sealed_info *info);

/** sits_sealed_rekey() - Rewrap the file key under @new_key: rewrites the header only, crash-safe. */
int sits_sealed_rekey(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		      const struct sits_key *new_key);

/**
 * sits_sealed_reseal() - Encrypt the file anew, with a fresh file key under @new_key, and replace it in one step.
 * @opts: threads, min_version and progress as for a load; NULL takes the defaults
 *
 * Reads and writes all of it; model id, version, chunk size, owner and mode stay, the digest is a new one.
 * Return: as sits_sealed_verify() and sits_seal(); suite 240 is refused, whatever the flags.
 */
int sits_sealed_reseal(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		       const struct sits_key *new_key, const struct sits_load_opts *opts);

#define SITS_LOAD_ALLOW_ECB	(1u << 0)	/* accept suite 240: no integrity */
#define SITS_LOAD_BUFFERED	(1u << 1)	/* through the page cache rather than O_DIRECT */

/**
 * struct sits_load_opts - options of a load or a verify.
 * @threads: decrypting threads; 0 means one per core
 * @min_version: a file whose model_version is lower is refused with -EKEYEXPIRED
 */
struct sits_load_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t threads;
	uint32_t reserved;
	uint64_t min_version;
	sits_progress_fn progress;
	void *progress_arg;
};

/**
 * sits_weights_load() - Decrypt a sealed file into a region.
 * @ctx: borrowed until return
 * @path: the sealed file; borrowed
 * @region: at least plain_bytes long, unsealed. Unreadable until the last tag has verified;
 *          then sealed. On failure wiped, and still the caller's to destroy
 * @key: borrowed until return
 * @opts: borrowed; NULL takes the defaults
 * @info: out; may be NULL
 *
 * Return: 0; -EBADMSG with a log line that names the part (header, tag table, chunk N) that
 * was changed, cut or swapped; -ENOKEY for a file sealed under another key; -EKEYEXPIRED for
 * one older than min_version; -ESTALE where it changed during the load; -EFBIG where the region is too small;
 * -EPROTONOSUPPORT for an unknown version or suite, or ECB without the flag; -ECANCELED; -errno.
 */
int sits_weights_load(struct sits_ctx *ctx, const char *path, struct sits_region *region,
		      const struct sits_key *key, const struct sits_load_opts *opts,
		      struct sits_sealed_info *info);

#ifdef __cplusplus
}
#endif
#endif
