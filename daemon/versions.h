/* SPDX-License-Identifier: MIT */
/*
 * versions.h - the highest model version that this node has loaded of each model: rollback protection.
 *
 * One JSON file in the state directory, {"model id": "version"}; versions are decimal text, because they
 * have 64 bits. It is replaced atomically, and a file that can't be understood stops the daemon rather than
 * count as "nothing recorded". Whoever can write the state directory can undo this; see daemon/README.md.
 */
#ifndef SITS_DAEMON_VERSIONS_H
#define SITS_DAEMON_VERSIONS_H

#include <stdint.h>

#include "daemon/diag.h"

#define SITS_VERSIONS_FILE "model-versions.json"

/** sits_versions_get() - What is recorded of @model_id; 0 where nothing is. @dir: the state directory; it need not
 * exist yet. Return: 0; -EBADMSG for a damaged record; -errno; with words in @diag. */
int sits_versions_get(const char *dir, const char *model_id, uint64_t *version, struct sits_diag *diag);

/** sits_versions_raise() - Record @version for @model_id where it is higher than what is recorded, and make it
 * durable. Makes @dir (mode 0700) where it does not exist. Return: as above. */
int sits_versions_raise(const char *dir, const char *model_id, uint64_t version, struct sits_diag *diag);

#endif
