// SPDX-License-Identifier: MIT
/*
 * counters.c - see counters.h.
 */
#include "daemon/metrics/counters.h"

const char *sits_end_name(enum sits_end end)
{
	static const char *const name[SITS_NR_ENDS] = {
		[SITS_END_STOP] = "stop", [SITS_END_LENGTH] = "length", [SITS_END_CANCELLED] = "cancelled",
		[SITS_END_REFUSED] = "refused", [SITS_END_FAILED] = "failed", [SITS_END_SHUTDOWN] = "shutdown",
		[SITS_END_INFO] = "info",
	};

	return end < SITS_NR_ENDS ? name[end] : "unknown";
}
