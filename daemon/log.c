// SPDX-License-Identifier: MIT
/*
 * log.c - see log.h.
 */
#include "daemon/log.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config.h"

#define MESSAGE_MAX 1024

static atomic_int log_level = SITS_LOG_INFO;
static atomic_int log_format = SITS_LOG_FORMAT_TEXT;

void sitsd_log_setup(uint64_t level, uint64_t format)
{
	atomic_store(&log_level, (int)level);
	atomic_store(&log_format, (int)format);
}

static const char *severity_name(int severity)
{
	return severity <= SITS_LOG_ERR ? "error" : severity <= SITS_LOG_WARN ? "warning" :
	       severity <= SITS_LOG_INFO ? "info" : "debug";
}

/* UTC with milliseconds, as RFC 3339 has it. */
static void now_text(char *buf, size_t len)
{
	struct timespec ts;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(buf, len, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, len - n, ".%03ldZ", ts.tv_nsec / 1000000);
}

/* One write, so that lines of several threads do not mix. A log that nobody reads stops nothing. */
static void put(const char *line, size_t len)
{
	ssize_t n = write(STDERR_FILENO, line, len);

	(void)n;
}

static void put_json(int severity, const char *message)
{
	char when[40];
	json_t *o;
	char *line;
	size_t len;

	now_text(when, sizeof(when));
	o = json_pack("{s:s, s:s, s:s}", "time", when, "level", severity_name(severity), "message", message);
	if (!o)		/* not UTF-8 */
		o = json_pack("{s:s, s:s, s:s}", "time", when, "level", severity_name(severity), "message",
			      "(a message that is not UTF-8)");
	line = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!line)
		return;
	len = strlen(line);
	line[len] = '\n';	/* in place of the NUL */
	put(line, len + 1);
	free(line);
}

static void put_text(int severity, const char *message)
{
	char line[MESSAGE_MAX + 64], when[40];
	int n;

	if (getenv("JOURNAL_STREAM")) {
		n = snprintf(line, sizeof(line), "<%d>%s\n", severity, message);
	} else {
		now_text(when, sizeof(when));
		n = snprintf(line, sizeof(line), "%s sitsd: %s%s\n", when, severity <= SITS_LOG_ERR ? "error: " :
			     severity <= SITS_LOG_WARN ? "warning: " : "", message);
	}
	put(line, (size_t)n);
}

void sitsd_log(int severity, const char *fmt, ...)
{
	char message[MESSAGE_MAX];
	va_list ap;

	if (severity > atomic_load(&log_level))
		return;
	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	for (char *p = message; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	if (atomic_load(&log_format) == SITS_LOG_FORMAT_JSON)
		put_json(severity, message);
	else
		put_text(severity, message);
}

void sitsd_log_line(void *arg, int severity, const char *line)
{
	(void)arg;
	sitsd_log(severity, "%s", line);
}
