// SPDX-License-Identifier: MIT
/*
 * tool_protect.c - a process with keys is closed to the other processes of its user, and dumps no core.
 *
 * libsits keeps keys and plaintext in memory that is in no core dump; what passes through stacks and registers
 * while it works is not in its hands.
 */
#include <sys/prctl.h>
#include <sys/resource.h>

#include "tools/sits/cmd.h"

/* A sanitizer looks for leaks by ptrace, so its builds stay open to it. */
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

void tool_protect(void)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
#ifndef SANITIZED
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}
