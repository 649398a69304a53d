/* SPDX-License-Identifier: MIT */
/*
 * may_fail.h - an allocator that runs out of memory, for json_set_alloc_funcs().
 */
#ifndef TESTS_UNIT_MODEL_MAY_FAIL_H
#define TESTS_UNIT_MODEL_MAY_FAIL_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* Calls for memory from now on until one fails, and whether one did. -1: none does. */
static long left = -1;
static bool failed;

static void *may_fail(size_t n)
{
	if (left >= 0 && !left--) {
		failed = true;
		errno = ENOMEM;
		return NULL;
	}
	return malloc(n);
}

#endif
