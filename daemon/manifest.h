/* SPDX-License-Identifier: MIT */
/*
 * manifest.h - what a directory of sealed files holds.
 *
 * A model of several files is sealed as a directory: NAME.sits for each file NAME, and manifest.sits, whose plaintext is
 *
 *	SITS-DIRECTORY 1
 *	DIGEST BYTES NAME
 *	...
 *
 * a line for each file, in order of their names: the digest of the sealed file (64 digits of hexadecimal, small), the length of its
 * plaintext, its name. The digest is that of struct sits_sealed_info. So nothing can be swapped, taken out or come from
 * another seal, though each file stands alone on the disk.
 *
 * Used by sitsd and by sits, without any other room of the daemon's but diag.c.
 */
#ifndef SITS_DAEMON_MANIFEST_H
#define SITS_DAEMON_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"

#define SITS_MANIFEST_FILE	"manifest.sits"
#define SITS_SEALED_SUFFIX	".sits"
#define SITS_MANIFEST_NAME_MAX	200	/* bytes */
#define SITS_MANIFEST_FILES_MAX	4095	/* a load takes 4,096 */
#define SITS_MANIFEST_BYTES_MAX	(2u << 20)

struct sits_manifest_file {
	char name[SITS_MANIFEST_NAME_MAX + 1];	/* no '/', does not begin with '.' */
	uint64_t bytes;		/* > 0 */
	uint8_t digest[32];
};

struct sits_manifest {
	struct sits_manifest_file *file;	/* [nr]; names rise */
	size_t nr;
};

/**
 * sits_manifest_parse() - Read the plaintext of a manifest.
 * @text: borrowed
 * @out: zeroed first; sits_manifest_fini() in any case
 * Return: 0; -EBADMSG with the line; -EPROTONOSUPPORT for another version; -ENOMEM.
 */
int sits_manifest_parse(const char *text, size_t len, struct sits_manifest *out, struct sits_diag *diag);
void sits_manifest_fini(struct sits_manifest *m);

/** sits_manifest_write() - The plaintext of @m, whose names rise. @text: out, free() is the caller's; @len: its bytes.
 * Return: 0; -EINVAL for a name that may not be; -ENOMEM. */
int sits_manifest_write(const struct sits_manifest *m, char **text, size_t *len);


/** sits_manifest_name_ok() - Can a file's own name stand in a line and in a directory? No '/', no control characters, no dot first. */
bool sits_manifest_name_ok(const char *name, size_t len);
/** sits_manifest_is_weights() - Is a file of this name one of a safetensors model's weights? */
bool sits_manifest_is_weights(const char *name);
/** sits_manifest_is_model_file() - Or another file that such a model is read from? docs/model-formats.md has the list. */
bool sits_manifest_is_model_file(const char *name);

#endif
