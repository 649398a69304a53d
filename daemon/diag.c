// SPDX-License-Identifier: MIT
/*
 * diag.c - see diag.h.
 */
#include "daemon/diag.h"

#include <stdarg.h>
#include <stdio.h>

int sits_diag_fail(struct sits_diag *diag, int err, const char *fmt, ...)
{
	va_list ap;

	if (!diag || diag->msg[0])
		return err;
	va_start(ap, fmt);
	vsnprintf(diag->msg, sizeof(diag->msg), fmt, ap);
	va_end(ap);
	return err;
}
