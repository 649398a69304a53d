// SPDX-License-Identifier: MIT
/*
 * log.c - see log.h.
 */
#include "daemon/log.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config.h"

#define MESSAGE_MAX	1024
#define READER_WAIT_MS	100	/* for a slow reader of the log to make room */

static atomic_int log_level = SITS_LOG_INFO;
static atomic_int log_format = SITS_LOG_FORMAT_TEXT;
static pthread_mutex_t put_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t nr_lost;		/* lines, since the last that was written; guarded by put_lock */

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

/*
 * Write one line, whole, under put_lock. Threads that serve log too: a reader that has stopped may hold them up
 * for a moment, not for good, and only once. (poll(2) finds room for PIPE_BUF bytes, more than a line has.)
 * Return: false where the line is lost.
 */
static bool put(const char *line, size_t len)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	int n;

	do {
		n = poll(&p, 1, nr_lost ? 0 : READER_WAIT_MS);
	} while (n < 0 && errno == EINTR);
	return n && write(STDERR_FILENO, line, len) == (ssize_t)len;
}

static bool put_json(int severity, const char *message)
{
	char when[40];
	json_t *o;
	char *line;
	size_t len;
	bool ok;

	now_text(when, sizeof(when));
	o = json_pack("{s:s, s:s, s:s}", "time", when, "level", severity_name(severity), "message", message);
	if (!o)		/* not UTF-8 */
		o = json_pack("{s:s, s:s, s:s}", "time", when, "level", severity_name(severity), "message",
			      "(a message that is not UTF-8)");
	line = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!line)
		return false;
	len = strlen(line);
	line[len] = '\n';	/* in place of the NUL */
	ok = put(line, len + 1);
	free(line);
	return ok;
}

static bool put_text(int severity, const char *message)
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
	return put(line, (size_t)n);
}

static bool put_message(int severity, const char *message)
{
	return atomic_load(&log_format) == SITS_LOG_FORMAT_JSON ? put_json(severity, message) : put_text(severity, message);
}

/* What was lost is told as soon as there is room again. */
static void put_or_count(int severity, const char *message)
{
	char note[96];

	pthread_mutex_lock(&put_lock);
	if (nr_lost) {
		snprintf(note, sizeof(note), "%" PRIu64 " messages before this one were lost: standard error did not take them",
			 nr_lost);
		if (put_message(SITS_LOG_WARN, note))
			nr_lost = 0;
	}
	if (nr_lost || !put_message(severity, message))
		nr_lost++;
	pthread_mutex_unlock(&put_lock);
}

void sitsd_log(int severity, const char *fmt, ...)
{
	char message[MESSAGE_MAX];
	int saved = errno;	/* callers return it afterwards */
	va_list ap;

	if (severity > atomic_load(&log_level))
		return;
	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	for (char *p = message; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	put_or_count(severity, message);
	errno = saved;
}

void sitsd_log_line(void *arg, int severity, const char *line)
{
	(void)arg;
	sitsd_log(severity, "%s", line);
}
