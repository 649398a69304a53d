// SPDX-License-Identifier: MIT
/*
 * log.c - the log line, and small helpers that every file of libsits uses.
 *
 * The library never prints: lines go to the callback given to sits_open().
 */
#include "libsits/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOG_LINE_MAX 1024

void sits_log(const struct sits_ctx *ctx, int severity, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	int saved = errno;
	va_list ap;

	if (!ctx || !ctx->log)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
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
