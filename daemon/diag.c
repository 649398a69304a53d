// SPDX-License-Identifier: MIT
/*
 * diag.c - see diag.h. Messages quote file contents, which may be any bytes: what is not UTF-8 text
 * of one line becomes question marks here, once for all callers.
 */
#include "daemon/diag.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the printable UTF-8 character at p, 0 where there is none. C1 controls are not. */
static size_t char_at(const uint8_t *p)
{
	size_t n = p[0] < 0x20 || p[0] == 0x7f ? 0 : p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 :
		   p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
	size_t i;

	for (i = 1; i < n; i++)	/* stops at the NUL */
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

static void clean(char *msg)
{
	uint8_t *p = (uint8_t *)msg;
	size_t n;

	for (; *p; p += n) {
		n = char_at(p);
		if (!n) {
			*p = '?';
			n = 1;
		}
	}
}

int sits_diag_fail(struct sits_diag *diag, int err, const char *fmt, ...)
{
	va_list ap;

	if (!diag || diag->msg[0])
		return err;
	va_start(ap, fmt);
	vsnprintf(diag->msg, sizeof(diag->msg), fmt, ap);
	va_end(ap);
	clean(diag->msg);
	return err;
}
