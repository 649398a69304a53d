// SPDX-License-Identifier: MIT
/*
 * stream.c - see stream.h.
 */
#include "daemon/engine/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

/*
 * One stop string as a Knuth-Morris-Pratt automaton: matched is the length of the longest suffix
 * of all bytes so far that begins the string, which is also how much must be held back for it.
 */
struct stop {
	uint8_t *str;		/* [len] */
	uint16_t *border;	/* [len]: longest proper border of str[0..i] */
	size_t len, matched;
};

/* Owned by a request, used by the engine's thread. held is a tail of the bytes fed, not yet text. */
struct sits_stream {
	struct stop *stop;
	size_t nr_stop;
	uint8_t *held;		/* ring-free: moved down when bytes leave; [held_cap] */
	size_t nr_held, held_cap;
	struct sits_utf8 utf8;
	char *out;
	size_t out_len, out_cap;
};

/* Bounds of the second byte: Unicode 15.0, table 3-7, "Well-Formed UTF-8 Byte Sequences". */
static bool utf8_lead(struct sits_utf8 *u, uint8_t b)
{
	u->lo = 0x80;
	u->hi = 0xBF;
	if (b >= 0xC2 && b <= 0xDF) {
		u->need = 1;
	} else if (b >= 0xE0 && b <= 0xEF) {
		u->need = 2;
		if (b == 0xE0)
			u->lo = 0xA0;
		if (b == 0xED)
			u->hi = 0x9F;
	} else if (b >= 0xF0 && b <= 0xF4) {
		u->need = 3;
		if (b == 0xF0)
			u->lo = 0x90;
		if (b == 0xF4)
			u->hi = 0x8F;
	} else {
		return false;
	}
	u->have[0] = b;
	u->nr = 1;
	return true;
}

size_t sits_utf8_end(struct sits_utf8 *u, char *out)
{
	size_t n = 0;

	if (u->need) {
		memcpy(out, REPLACEMENT, 3);
		n = 3;
	}
	memset(u, 0, sizeof(*u));
	return n;
}

size_t sits_utf8_push(struct sits_utf8 *u, uint8_t byte, char *out)
{
	size_t n;

	if (u->need && byte >= u->lo && byte <= u->hi) {
		u->have[u->nr++] = byte;
		u->lo = 0x80;
		u->hi = 0xBF;
		if (--u->need)
			return 0;
		memcpy(out, u->have, u->nr);
		return u->nr;
	}
	n = sits_utf8_end(u, out);
	if (byte < 0x80) {
		out[n++] = byte;
	} else if (!utf8_lead(u, byte)) {
		memcpy(out + n, REPLACEMENT, 3);
		n += 3;
	}
	return n;
}

static int stop_init(struct stop *st, const char *str, size_t len)
{
	size_t i, k = 0;

	if (!len || len > UINT16_MAX)
		return -EINVAL;
	st->str = malloc(len);
	st->border = calloc(len, sizeof(*st->border));
	if (!st->str || !st->border)
		return -ENOMEM;
	memcpy(st->str, str, len);
	st->len = len;
	for (i = 1; i < len; i++) {
		while (k && st->str[i] != st->str[k])
			k = st->border[k - 1];
		if (st->str[i] == st->str[k])
			k++;
		st->border[i] = k;
	}
	return 0;
}

/* True when the string is complete with this byte. */
static bool stop_push(struct stop *st, uint8_t b)
{
	while (st->matched && b != st->str[st->matched])
		st->matched = st->border[st->matched - 1];
	if (b == st->str[st->matched])
		st->matched++;
	return st->matched == st->len;
}

int sits_stream_create(const char *const *stop, const size_t *stop_len, size_t nr_stop, struct sits_stream **out)
{
	struct sits_stream *s = calloc(1, sizeof(*s));
	size_t i, longest = 0;
	int ret = -ENOMEM;

	if (!s)
		return -ENOMEM;
	if (nr_stop) {
		s->stop = calloc(nr_stop, sizeof(*s->stop));
		if (!s->stop)
			goto err_destroy;
	}
	for (i = 0; i < nr_stop; i++) {
		s->nr_stop = i + 1;
		ret = stop_init(&s->stop[i], stop[i], stop_len[i]);
		if (ret)
			goto err_destroy;
		if (stop_len[i] > longest)
			longest = stop_len[i];
	}
	s->held_cap = longest + 1;
	s->held = malloc(s->held_cap);
	if (!s->held) {
		ret = -ENOMEM;
		goto err_destroy;
	}
	*out = s;
	return 0;

err_destroy:
	sits_stream_destroy(s);
	return ret;
}

void sits_stream_destroy(struct sits_stream *s)
{
	size_t i;

	if (!s)
		return;
	for (i = 0; i < s->nr_stop; i++) {
		if (s->stop[i].str)
			explicit_bzero(s->stop[i].str, s->stop[i].len);
		free(s->stop[i].str);
		free(s->stop[i].border);
	}
	free(s->stop);
	if (s->held)
		explicit_bzero(s->held, s->held_cap);
	free(s->held);
	if (s->out)
		explicit_bzero(s->out, s->out_cap);
	free(s->out);
	explicit_bzero(s, sizeof(*s));
	free(s);
}

/* Room for the text of @n more bytes. The old buffer holds text: it is wiped, so no realloc. */
static int reserve(struct sits_stream *s, size_t n)
{
	size_t want, cap;
	char *p;

	if (n > SIZE_MAX / 16 / SITS_UTF8_GROWTH)
		return -ENOMEM;
	want = s->out_len + n * SITS_UTF8_GROWTH + 3;
	if (want <= s->out_cap)
		return 0;
	cap = want < 256 ? 256 : want * 2;
	p = malloc(cap);
	if (!p)
		return -ENOMEM;
	if (s->out) {
		memcpy(p, s->out, s->out_len);
		explicit_bzero(s->out, s->out_cap);
		free(s->out);
	}
	s->out = p;
	s->out_cap = cap;
	return 0;
}

/* Let all but the last @keep held bytes go on to the second gate. */
static void let_go(struct sits_stream *s, size_t keep)
{
	size_t i, n = s->nr_held - keep;

	for (i = 0; i < n; i++)
		s->out_len += sits_utf8_push(&s->utf8, s->held[i], s->out + s->out_len);
	memmove(s->held, s->held + n, keep);
	s->nr_held = keep;
}

static void finish(struct sits_stream *s)
{
	s->out_len += sits_utf8_end(&s->utf8, s->out + s->out_len);
	s->nr_held = 0;
}

int sits_stream_push(struct sits_stream *s, const char *bytes, size_t len, bool *stopped)
{
	size_t i, j, keep, full;

	*stopped = false;
	if (reserve(s, s->nr_held + len))
		return -ENOMEM;
	for (i = 0; i < len; i++) {
		s->held[s->nr_held++] = bytes[i];
		for (j = keep = full = 0; j < s->nr_stop; j++) {
			if (stop_push(&s->stop[j], bytes[i]) && s->stop[j].len > full)
				full = s->stop[j].len;
			if (s->stop[j].matched > keep)
				keep = s->stop[j].matched;
		}
		if (full) {
			/*
			 * Two that end here: the longer one began first. One that began even earlier
			 * but is not complete has lost: the first to be complete ends the text.
			 */
			let_go(s, full);
			finish(s);
			*stopped = true;
			return 0;
		}
		let_go(s, keep);
	}
	return 0;
}

int sits_stream_end(struct sits_stream *s)
{
	if (reserve(s, s->nr_held))
		return -ENOMEM;
	let_go(s, 0);
	finish(s);
	return 0;
}

size_t sits_stream_take(struct sits_stream *s, const char **text)
{
	size_t n = s->out_len;

	*text = s->out;
	s->out_len = 0;
	return n;
}
