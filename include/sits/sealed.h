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
 * Of a key of type logon the bytes are never in this process: it serves for loads into regions of the kernel provider, all
 * else that takes a key answers -EOPNOTSUPP.
 *
 * "tpm:NAME" is kept for keys in a TPM, and is -EOPNOTSUPP in this build.
 *
 * Return: 0; -EINVAL for a malformed spec or key; -EACCES for a file that others can
 * read; -ENOENT, -ENOKEY where there is none; -EPERM where its memory can't be locked.
 */
int sits_key_open(struct sits_ctx *ctx, const char *spec, struct sits_key **out);

/** sits_key_close() - Wipe and free; NULL is allowed. @key: taken. */
void sits_key_close(struct sits_key *key);

/** sits_key_id() - The key's id: a digest, not a secret. @id: out, SITS_KEY_ID_LEN bytes; zeros for a key of type logon,
 * whose bytes only the kernel has. */
void sits_key_id(const struct sits_key *key, uint8_t *id);

/**
 * sits_key_create() - Make a new random key at @spec ("file:PATH" or "keyring:NAME").
 * Return: 0; -EEXIST if there is one already (it is left as it is); -errno.
 */
int sits_key_create(struct sits_ctx *ctx, const char *spec);

/**
 * sits_key_import() - Read a key that comes from elsewhere.
 * @fd: read to its end; holds 32 hex digits or 24 of base64, with or without an end of line, or 16 bytes that are no text; borrowed
 * @out: as that of sits_key_open()
 * Return: 0; -EINVAL for what is no key; -EPERM where its memory can't be locked; -errno.
 */
int sits_key_import(struct sits_ctx *ctx, int fd, struct sits_key **out);

/**
 * sits_key_save() - Put a key at @spec, as sits_key_create() puts a random one.
 * @key: borrowed until return
 * Return: 0; -EEXIST if there is one already (it is left as it is); -EOPNOTSUPP for a @key of type logon; -errno.
 */
int sits_key_save(struct sits_ctx *ctx, const struct sits_key *key, const char *spec);

/**
 * sits_key_install() - Put a key into the user keyring with type "logon": no process can read it from there, and the kernel
 * provider loads with it.
 * @key: borrowed until return
 * @spec: "keyring:NAME", at most 122 bytes of name
 *
 * Return: 0; -EEXIST if there is a key of that name already, of any type; -EINVAL; -EOPNOTSUPP for a @key of type logon; -errno.
 */
int sits_key_install(struct sits_ctx *ctx, const struct sits_key *key, const char *spec);

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
 * @info: out, what sits_sealed_inspect() would say of the output, also where the caller may not read it (its mode is 0644
 *        less the umask) or somebody takes it away at once; NULL: not wanted. Written only where the call returns 0
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
	struct sits_sealed_info *info;
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
 * Reads and writes all of it; model id, version, chunk size, owner, mode and access control list stay, the digest is a new one.
 * Return: as sits_sealed_verify() and sits_seal(); suite 240 is refused, whatever the flags.
 */
int sits_sealed_reseal(struct sits_ctx *ctx, const char *path, const struct sits_key *old_key,
		       const struct sits_key *new_key, const struct sits_load_opts *opts);

#define SITS_LOAD_ALLOW_ECB	(1u << 0)	/* accept suite 240: no integrity */
#define SITS_LOAD_BUFFERED	(1u << 1)	/* through the page cache rather than O_DIRECT */

#define SITS_LOAD_RANGES_MAX	65536u
#define SITS_LOAD_FILES_MAX	4096u

/**
 * struct sits_load_range - a part of a file, and where it goes.
 * @file_off: in the plaintext; for a load a multiple of the file's chunk size
 * @len_bytes: > 0; for a load likewise, or up to the end of the plaintext
 * @region_off: a multiple of 4096
 *
 * A load takes ranges of which both offsets rise and which do not overlap: sits_load_plan() makes them of any.
 */
struct sits_load_range {
	uint64_t file_off;
	uint64_t len_bytes;
	uint64_t region_off;
};

#define SITS_PLAN_IN_PLACE	(1u << 0)	/* what has offset N in the file has it in the region */

/**
 * sits_load_plan() - Find what must be loaded so that some bytes of a file are there.
 * @info: of the file; its chunk_bytes and plain_bytes count
 * @want: any bytes, in any order, that may overlap; region_off is ignored; borrowed
 * @nr_want: 1 to SITS_LOAD_RANGES_MAX
 * @flags: SITS_PLAN_*; without IN_PLACE the ranges follow one another, so the region is as small as can be
 * @out: room for @nr_want ranges, may be @want: whole chunks, sorted; what touches is one
 * @region_bytes: out: how long the region must be; may be NULL
 *
 * Return: how many there are in @out; -EINVAL for an empty range, one beyond the plaintext, or unknown flags.
 */
int sits_load_plan(const struct sits_sealed_info *info, const struct sits_load_range *want, uint32_t nr_want,
		   uint32_t flags, struct sits_load_range *out, uint64_t *region_bytes);

/**
 * sits_load_place() - Where a byte of the file is in the region.
 * @ranges: as they were loaded
 * @run_bytes: out: how many bytes of the file lie there one after another; may be NULL
 * Return: 0; -ENOENT where it was not loaded.
 */
int sits_load_place(const struct sits_load_range *ranges, uint32_t nr_ranges, uint64_t file_off,
		    uint64_t *region_off, uint64_t *run_bytes);

/**
 * struct sits_load_opts - options of a load or a verify.
 * @threads: decrypting threads; 0 means one per core. The kernel provider takes all cores
 * @min_version: a file whose model_version is lower is refused with -EKEYEXPIRED
 * @ranges: what to load or verify; all else in the region is zero then. Borrowed until return. A verify ignores region_off
 * @nr_ranges: 0 means all of the file, in its place
 */
struct sits_load_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t threads;
	uint32_t reserved;
	uint64_t min_version;
	sits_progress_fn progress;
	void *progress_arg;
	const struct sits_load_range *ranges;
	uint32_t nr_ranges;
	uint32_t reserved2;
};

/**
 * sits_weights_load() - Decrypt a sealed file into a region.
 * @ctx: borrowed until return
 * @path: the sealed file; borrowed
 * @region: at least plain_bytes long, or as its ranges ask for; unsealed. Unreadable until the last tag has verified;
 *          then sealed. On failure wiped, and still the caller's to destroy
 * @key: borrowed until return
 * @opts: borrowed; NULL takes the defaults
 * @info: out; may be NULL
 *
 * With ranges, header and tag table are checked and digested as ever, so that the digest is the file's, but of the chunks only
 * those of the ranges are read, and their tags verified: nothing is said of the others.
 *
 * Return: 0; -EBADMSG with a log line that names the part (header, tag table, chunk N) that
 * was changed, cut or swapped; -ENOKEY for a file sealed under another key; -EKEYEXPIRED for
 * one older than min_version; -ESTALE where it changed during the load; -EFBIG where the region is too small;
 * -EPROTONOSUPPORT for an unknown version or suite, or ECB without the flag; -EBUSY where another load runs or somebody
 * else has the region mapped or attached; -EPERM where it is sealed; -EOPNOTSUPP for a key of type logon and a region of the user
 * provider, and for ranges where the module can't; -EINVAL for ranges that are none of this file; -ECANCELED; -errno.
 */
int sits_weights_load(struct sits_ctx *ctx, const char *path, struct sits_region *region,
		      const struct sits_key *key, const struct sits_load_opts *opts,
		      struct sits_sealed_info *info);

/**
 * struct sits_load_item - one file of a load of several.
 * @size: sizeof(struct sits_load_item), the same in all
 * @nr_ranges: of @ranges, as in struct sits_load_opts
 * @path: the sealed file; borrowed
 * @region: its own; of the same context as the others
 * @ranges: borrowed; NULL with 0 of them
 * @info: out; may be NULL
 */
struct sits_load_item {
	uint32_t size;
	uint32_t nr_ranges;
	const char *path;
	struct sits_region *region;
	const struct sits_load_range *ranges;
	struct sits_sealed_info *info;
};

/**
 * sits_weights_load_many() - Load several files, each into a region: all of them, or none.
 * @items: borrowed until return
 * @nr_items: 1 to SITS_LOAD_FILES_MAX
 * @key: under which all are sealed; borrowed until return
 * @opts: borrowed; without ranges; NULL takes the defaults. Its progress is of all files together
 *
 * All headers are checked before the first chunk is read. The same threads go through all files (kernel provider: one file
 * after the other). A region can be read when the last tag of the last file has verified. On failure none can, and
 * all are wiped (kernel provider: those that were complete are revoked); each is still the caller's to destroy.
 *
 * Return: as sits_weights_load(), for the first file that fails.
 */
int sits_weights_load_many(struct sits_ctx *ctx, const struct sits_load_item *items, uint32_t nr_items,
			   const struct sits_key *key, const struct sits_load_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
