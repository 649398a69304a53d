/* SPDX-License-Identifier: MIT */
/*
 * log.h - the daemon's messages: lines on standard error.
 *
 * Text for people, with syslog priorities where systemd collects them, or one JSON object a line. Nothing
 * that is secret may be passed here; prompts and answers are not logged at any level. (The prefix is sitsd_,
 * because sits_log() is libsits' own.)
 */
#ifndef SITS_DAEMON_LOG_H
#define SITS_DAEMON_LOG_H

#include <stdint.h>

#include "sits/context.h"	/* SITS_LOG_* severities */

/** sitsd_log_setup() - Which messages, in which form. Context: any thread, any time. @format: SITS_LOG_FORMAT_*. */
void sitsd_log_setup(uint64_t level, uint64_t format);

/** sitsd_log() - One message; a newline is added, control characters are replaced. Context: any thread. */
void sitsd_log(int severity, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** sitsd_log_line() - The same as a callback of libsits; @arg is not used. */
void sitsd_log_line(void *arg, int severity, const char *line);

#endif
