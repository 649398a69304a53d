/* SPDX-License-Identifier: MIT */
/*
 * diag.h - one line of explanation that travels beside an -errno inside the daemon.
 *
 * The caller owns the storage. The first message wins: deeper code knows more than the
 * code that passes its failure on.
 */
#ifndef SITS_DAEMON_DIAG_H
#define SITS_DAEMON_DIAG_H

struct sits_diag {
	char msg[512];		/* "" while nothing is wrong; UTF-8, no newline */
};

/**
 * sits_diag_fail() - Record why, unless something is recorded already.
 * @diag: may be NULL
 * @err: a negative errno
 * Return: @err, so that callers write `return sits_diag_fail(diag, -EINVAL, "...", ...)`.
 */
int sits_diag_fail(struct sits_diag *diag, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
