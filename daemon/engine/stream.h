/* SPDX-License-Identifier: MIT */
/*
 * stream.h - token bytes to text that may be shown.
 *
 * Two gates in a row. Stop strings: bytes that could still become one are held back, so that not
 * even a stop string's beginning leaks out. Characters: a UTF-8 sequence is passed on whole; bytes
 * that can no longer become one are replaced by U+FFFD at once, one for each maximal part of a
 * sequence (Unicode 15.0, section 3.9, "U+FFFD Substitution of Maximal Subparts").
 */
#ifndef SITS_ENGINE_STREAM_H
#define SITS_ENGINE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A character under way; zero-initialise. */
struct sits_utf8 {
	uint8_t have[4];
	uint8_t nr, need;	/* bytes in have; bytes still missing */
	uint8_t lo, hi;		/* what the next byte must lie between */
};

/* Most bytes one input byte can put out: a replacement for what was begun, and one for itself. */
#define SITS_UTF8_GROWTH 6

/** sits_utf8_push() - Feed one byte. @out: room for SITS_UTF8_GROWTH. Return: bytes written. */
size_t sits_utf8_push(struct sits_utf8 *u, uint8_t byte, char *out);
/** sits_utf8_end() - No more bytes come. @out: room for 3. Return: bytes written. */
size_t sits_utf8_end(struct sits_utf8 *u, char *out);

struct sits_stream;

/**
 * sits_stream_create() - @stop: @stop_len: [nr_stop] strings of 1 to 65535 bytes, copied.
 * Return: 0; -EINVAL for an empty or longer string; -ENOMEM.
 */
int sits_stream_create(const char *const *stop, const size_t *stop_len, size_t nr_stop, struct sits_stream **out);
void sits_stream_destroy(struct sits_stream *s);	/* wipes; NULL is allowed */

/**
 * sits_stream_push() - Feed the bytes of one token.
 * @stopped: out: true once a stop string is complete; the text before it is in the output, nothing after
 * Return: 0; -ENOMEM.
 */
int sits_stream_push(struct sits_stream *s, const char *bytes, size_t len, bool *stopped);
/** sits_stream_end() - The generation ended otherwise: what was held back is text after all. Return: 0; -ENOMEM. */
int sits_stream_end(struct sits_stream *s);

/** sits_stream_take() - Whole characters that came out since the last take; valid until the next push or end. */
size_t sits_stream_take(struct sits_stream *s, const char **text);

#endif
