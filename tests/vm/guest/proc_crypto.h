/* SPDX-License-Identifier: MIT */
/*
 * proc_crypto.h - what /proc/crypto says of each algorithm.
 *
 * An algorithm that is being tested, after its registration since 6.12, stands there twice: as itself, and as the kernel's placeholder for it, of
 * type "larval", with its driver's name, which says "passed" already. Placeholders are left out here.
 */
#ifndef TESTS_VM_GUEST_PROC_CRYPTO_H
#define TESTS_VM_GUEST_PROC_CRYPTO_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PROC_CRYPTO_BYTES 2048	/* a block of lines has some 500 */

/* The value of @field in a block of lines; "" and false where it has none. */
static inline bool proc_crypto_field(const char *block, const char *field, char value[128])
{
	char name[64];

	for (const char *line = block; *line; line = strchr(line, '\n') + 1)
		if (sscanf(line, "%63s : %127[^\n]", name, value) == 2 && !strcmp(name, field))
			return true;
	value[0] = '\0';
	return false;
}

/* The lines of the next algorithm of @f. */
static inline bool proc_crypto_next(FILE *f, char block[PROC_CRYPTO_BYTES])
{
	char line[256], type[128];
	size_t len = 0;

	while (fgets(line, sizeof(line), f)) {
		if (line[0] != '\n') {
			len += (size_t)snprintf(block + len, PROC_CRYPTO_BYTES - len, "%s", line);
			if (len >= PROC_CRYPTO_BYTES)
				return false;
			continue;
		}
		if (len && (!proc_crypto_field(block, "type", type) || strcmp(type, "larval")))
			return true;
		len = 0;
	}
	return false;
}

#endif
