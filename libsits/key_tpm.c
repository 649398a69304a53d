// SPDX-License-Identifier: MIT
/*
 * key_tpm.c - keys sealed to a TPM 2.0: tpm:NAME. This build has no support for it: the prefix is known, so that nobody
 * takes such a spec for a mistake of theirs, and every use of it says what to do instead.
 */
#include <errno.h>

#include "libsits/internal.h"
#include "libsits/key_source.h"

static int not_here(struct sits_ctx *ctx, const char *name)
{
	sits_log(ctx, SITS_LOG_ERR, "a key was given as tpm:NAME, and TPM support is not in this build; give file:PATH or keyring:NAME");
	return -EOPNOTSUPP;
}

const struct sits_key_source sits_key_tpm = {
	.prefix = "tpm:",
	.durable = true,
	.check = not_here,
};
