// SPDX-License-Identifier: MIT
/*
 * dispatch.c - which backends this build has, and the choice between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends.h"

static const struct sits_backend *const backends[] = {
#ifdef SITS_KERNELS_X86
	&sits_backend_avx512,
	&sits_backend_avx512bf16,
	&sits_backend_avx2,
#endif
	&sits_backend_ref,
};

const struct sits_backend *sits_backend_at(size_t i)
{
	return i < sizeof(backends) / sizeof(backends[0]) ? backends[i] : NULL;
}

bool sits_backend_exists(const char *name)
{
	const struct sits_backend *b;

	for (size_t i = 0; (b = sits_backend_at(i)); i++)
		if (!strcmp(b->name, name))
			return true;
	return false;
}

const char *sits_backend_names(char *buf, size_t size)
{
	const struct sits_backend *b;
	size_t n = 0;

	*buf = '\0';
	for (size_t i = 0; (b = sits_backend_at(i)) && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "", b->name);
	return buf;
}

static const struct sits_backend *best_usable(void)
{
	const struct sits_backend *best = NULL, *b;

	for (size_t i = 0; (b = sits_backend_at(i)); i++) {
		if (b->usable() && (!best || b->priority > best->priority))
			best = b;
	}
	return best;
}

const struct sits_backend *sits_backend_get(const char *name)
{
	const struct sits_backend *b;

	if (!name || !*name)
		name = getenv("SITS_FORCE_ISA");
	if (!name || !*name)
		return best_usable();
	for (size_t i = 0; (b = sits_backend_at(i)); i++) {
		if (!strcmp(b->name, name))
			return b->usable() ? b : NULL;
	}
	return NULL;
}
