/* SPDX-License-Identifier: MIT */
/*
 * whole.h - a chunk that comes in pieces, put together.
 */
#ifndef SITS_LIBSITS_WHOLE_H
#define SITS_LIBSITS_WHOLE_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Zeroed, then the receiver's, who sets @len to 0 when it is done with the bytes; wiped and freed by fini. */
struct sits_whole {
	uint8_t *data;
	size_t len;
	size_t room_bytes;
};

/** sits_whole_append() - Add a piece. @data: copied. Return: 0; -EMSGSIZE: too long a chunk; -ENOMEM. */
int sits_whole_append(struct sits_whole *whole, const uint8_t *data, size_t len);

void sits_whole_fini(struct sits_whole *whole);

#pragma GCC visibility pop

#endif
