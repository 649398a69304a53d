// SPDX-License-Identifier: MIT
/*
 * whole.c - a chunk that comes in pieces, put together. Answers are not left in freed memory.
 */
#include "libsits/whole.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 4096u
#define WHOLE_MAX (64u << 20)

static int grow(struct sits_whole *whole, size_t need)
{
	size_t room = whole->room_bytes ? whole->room_bytes : ROOM_MIN;
	uint8_t *data;

	while (room < need)
		room *= 2;
	if (room == whole->room_bytes)
		return 0;
	data = malloc(room);
	if (!data)
		return -ENOMEM;
	if (whole->len)
		memcpy(data, whole->data, whole->len);
	sits_whole_fini(whole);
	whole->data = data;
	whole->room_bytes = room;
	return 0;
}

int sits_whole_append(struct sits_whole *whole, const uint8_t *data, size_t len)
{
	size_t need = whole->len + len;
	int ret;

	if (need > WHOLE_MAX)
		return -EMSGSIZE;
	ret = grow(whole, need);
	if (ret)
		return ret;
	if (len)
		memcpy(whole->data + whole->len, data, len);
	whole->len = need;
	return 0;
}

void sits_whole_fini(struct sits_whole *whole)
{
	if (whole->data)
		explicit_bzero(whole->data, whole->room_bytes);
	free(whole->data);
	whole->data = NULL;
	whole->room_bytes = 0;
}
