/* SPDX-License-Identifier: GPL-2.0 */
/*
 * weights_file.h - an opened sealed file: its authentic header, its tags, and its chunks' cipher.
 */
#ifndef SITS_WEIGHTS_FILE_H
#define SITS_WEIGHTS_FILE_H

#include <linux/time64.h>
#include <linux/types.h>

#include "crypto/sealed.h"

struct crypto_aead;
struct crypto_skcipher;
struct file;
struct sits_weights_range;

/*
 * What tells that somebody wrote to a file; all zero for a block device. Not i_version, finer as it
 * is: XFS counts it up for the time of the last read, too.
 */
struct sits_weights_stamp {
	u64 size_bytes, ino, dev;
	struct timespec64 mtime, ctime;
};

/**
 * struct sits_weights_file - from sits_weights_file_open() to sits_weights_file_close()
 *
 * Owned by the load. All is constant once it is open, but @gcm and @ecb are keyed objects that many
 * requests may use at a time.
 *
 * @file: borrowed
 * @hdr: authentic
 * @salt: of the nonces
 * @hdr_digest: in the associated data
 * @digest: of the file
 * @tags: nr_chunks tags; NULL for suite 240
 * @gcm: keyed with the file key; of suite 1
 * @ecb: likewise, of suite 240
 * @stamp: as it was before anything was read
 */
struct sits_weights_file {
	struct file *file;
	struct sits_sealed_hdr hdr;
	u8 salt[SITS_SEALED_SALT_LEN];
	u8 hdr_digest[SITS_SM3_LEN];
	u8 digest[SITS_SM3_LEN];
	u8 *tags;
	struct crypto_aead *gcm;
	struct crypto_skcipher *ecb;
	struct sits_weights_stamp stamp;
};

/* What the caller of a load allows. */
struct sits_weights_rules {
	bool allow_ecb;
	u64 min_version;
};

/*
 * May weights be read from that file at all? Return: 0; -EBADF: not for reading; -EINVAL: neither a
 * regular file nor a block device.
 */
int sits_weights_file_check(const struct file *file);

/**
 * sits_weights_file_open() - Read the header, authenticate it, check it, read the tags.
 * @wf: out
 * @file: that sits_weights_file_check() accepted; borrowed until close
 * @kek: secret, borrowed
 * @rules: borrowed
 * @bad: out where the file is to blame: SITS_BAD_*
 *
 * Return: 0; -EBADMSG: no sealed file, or changed, or of another length; -EPROTONOSUPPORT: of a
 * version or suite that is not known or not allowed; -ENOKEY: of another key; -EKEYEXPIRED: of an
 * older model; -ESTALE: it was cut meanwhile; -ENOPKG: the kernel has no gcm(sm4) or ecb(sm4);
 * -ENOMEM; -EINTR; what reading gave.
 */
int sits_weights_file_open(struct sits_weights_file *wf, struct file *file,
			   const u8 kek[SITS_SM4_KEY_LEN],
			   const struct sits_weights_rules *rules, u64 *bad);
void sits_weights_file_close(struct sits_weights_file *wf);

/**
 * sits_weights_file_check_ranges() - Are these parts of the file, in an order that can be loaded?
 * @wf: open
 * @room_bytes: of the region
 *
 * Return: 0; -EFBIG: the region has no room for them; -EINVAL: they are not of whole chunks, are
 * beyond the end, overlap, or do not rise.
 */
int sits_weights_file_check_ranges(const struct sits_weights_file *wf,
				   const struct sits_weights_range *ranges, u32 nr_ranges,
				   u64 room_bytes);

/* Is it still the file that was opened? Return: 0; -ESTALE; -errno. */
int sits_weights_file_unchanged(const struct sits_weights_file *wf);

#endif
