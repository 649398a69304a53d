// SPDX-License-Identifier: MIT
/*
 * log.c - the log line, and small helpers that every file of libsits uses.
 *
 * The library never prints: lines go to the callback given to sits_open().
 */
#include "libsits/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOG_LINE_MAX 1024
#define LONG_LINE_MAX (3 * PATH_MAX)	/* two paths and words */
#define GAP " ... "

/* A long path must not push out what is said about it, which is behind: the middle goes. Characters stay whole. */
static void shorten(char *line, size_t len)
{
	size_t head = LOG_LINE_MAX / 2 - sizeof(GAP), tail = len - (LOG_LINE_MAX - 1 - head - strlen(GAP));

	while (head && ((unsigned char)line[head] & 0xc0) == 0x80)
		head--;
	while (((unsigned char)line[tail] & 0xc0) == 0x80)
		tail++;
	memcpy(line + head, GAP, strlen(GAP));
	memmove(line + head + strlen(GAP), line + tail, len - tail + 1);
}

void sits_log(const struct sits_ctx *ctx, int severity, const char *fmt, ...)
{
	char line[LONG_LINE_MAX];
	int len, saved = errno;
	va_list ap;

	if (!ctx || !ctx->log)
		return;
	va_start(ap, fmt);
	len = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (len >= LOG_LINE_MAX)
		shorten(line, strlen(line));
	ctx->log(ctx->log_arg, severity, line);
	errno = saved;
}

int sits_opts_copy(void *dst, size_t dst_size, const void *src, size_t min_size)
{
	const uint8_t *bytes = src;
	uint32_t size;

	memcpy(&size, src, sizeof(size));
	if (size < min_size || size > 4096)
		return -EINVAL;
	for (size_t i = dst_size; i < size; i++)
		if (bytes[i])
			return -EINVAL;
	memset(dst, 0, dst_size);
	memcpy(dst, src, SITS_MIN(dst_size, (size_t)size));
	return 0;
}

uint64_t sits_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SITS_NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}
