// SPDX-License-Identifier: MIT
/*
 * tool_text.c - numbers and names, to and from text.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/sits/cmd.h"

bool tool_parse_u64(const char *s, uint64_t *v)
{
	static const char units[] = "KMG";
	uint64_t n = 0;
	unsigned int i;

	if (!isdigit((unsigned char)*s))
		return false;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
			return false;
	for (i = 0; units[i]; i++)
		if (*s == units[i] || *s == units[i] + ('a' - 'A'))
			break;
	if (units[i]) {
		if (n > UINT64_MAX >> 10 * (i + 1))
			return false;
		n <<= 10 * (i + 1);
		s++;
	}
	if (*s)
		return false;
	*v = n;
	return true;
}

bool tool_parse_number(const char *s, uint64_t *v)
{
	return isdigit((unsigned char)*s) && isdigit((unsigned char)s[strlen(s) - 1]) && tool_parse_u64(s, v);
}

int tool_threads(const char *cmd, const char *arg, uint32_t *threads)
{
	uint64_t v;

	if (!tool_parse_number(arg, &v) || !v || v > 256)
		return tool_usage(cmd, "--threads '%s' is not a number from 1 to 256", arg);
	*threads = (uint32_t)v;
	return 0;
}

int tool_wait(const char *cmd, const char *arg, uint32_t *seconds)
{
	uint64_t v;

	if (!tool_parse_number(arg, &v) || v > 1000000)
		return tool_usage(cmd, "--wait '%s' is not a number of seconds from 0 to 1000000", arg);
	*seconds = (uint32_t)v;
	return 0;
}

const char *tool_bytes(uint64_t n, char *buf)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double d = (double)n / 1024;
	unsigned int i = 0;

	if (n < 1024) {
		snprintf(buf, 32, "%" PRIu64 " bytes", n);
		return buf;
	}
	while (d >= 1024 && i < 5) {
		d /= 1024;
		i++;
	}
	snprintf(buf, 32, "%.1f %s", d, units[i]);
	return buf;
}

const char *tool_print_safe(const char *s, char *buf, unsigned int len)
{
	unsigned int i;

	for (i = 0; s[i] && i + 1 < len; i++) {
		unsigned char c = (unsigned char)s[i];
		/* C0, DEL, and C1 as UTF-8 writes it: 0xc2 0x80 to 0x9f. */
		bool c1 = c >= 0x80 && c <= 0x9f && i && (unsigned char)s[i - 1] == 0xc2;

		buf[i] = c < 0x20 || c == 0x7f || c1 ? '?' : s[i];
	}
	buf[i] = '\0';
	return buf;
}
