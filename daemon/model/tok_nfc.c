// SPDX-License-Identifier: MIT
/*
 * tok_nfc.c - Unicode normalisation form C, which some models' training text had.
 *
 * utf8proc knows the characters; the order of combining marks is made here, because its own sort takes quadratic time for a
 * long run of them. Text is taken in stretches that start at an ASCII character: those neither combine with what is before them
 * nor move.
 *
 * Source: Unicode Standard Annex 15.
 */
#include "daemon/model/tok.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Code points of a stretch and their classes. Freed by sits_tok_nfc(). */
struct nfc {
	utf8proc_int32_t *cp, *sorted;
	size_t nr, cap;
	char *out;
	size_t len, out_cap;
};

static int reserve(struct nfc *n, size_t cp, size_t bytes)
{
	void *p;

	if (cp > n->cap) {
		p = realloc(n->cp, 2 * cp * sizeof(*n->cp));
		if (!p)
			return -ENOMEM;
		n->cp = p;
		p = realloc(n->sorted, 2 * cp * sizeof(*n->sorted));
		if (!p)
			return -ENOMEM;
		n->sorted = p;
		n->cap = 2 * cp;
	}
	if (bytes > n->out_cap) {
		p = realloc(n->out, 2 * bytes);
		if (!p)
			return -ENOMEM;
		n->out = p;
		n->out_cap = 2 * bytes;
	}
	return 0;
}

static unsigned int class_of(utf8proc_int32_t cp)
{
	return (unsigned int)utf8proc_get_property(cp)->combining_class;
}

/* Sort a run of marks by class, in the order they have among equals: a counting sort, for there are 255 classes. */
static void sort_marks(struct nfc *n, size_t from, size_t to)
{
	size_t at[257] = { 0 }, i;

	if (to - from < 2)
		return;
	for (i = from; i < to; i++)
		at[class_of(n->cp[i]) + 1]++;
	for (i = 1; i < 257; i++)
		at[i] += at[i - 1];
	for (i = from; i < to; i++)
		n->sorted[at[class_of(n->cp[i])]++] = n->cp[i];
	memcpy(n->cp + from, n->sorted, (to - from) * sizeof(*n->cp));
}

static void sort_all(struct nfc *n)
{
	size_t i, from = 0;

	for (i = 0; i <= n->nr; i++) {
		if (i < n->nr && class_of(n->cp[i]))
			continue;
		sort_marks(n, from, i);
		from = i + 1;
	}
}

/* Write what has been collected, composed. */
static int flush(struct nfc *n)
{
	utf8proc_ssize_t nr, i;
	int ret;

	if (!n->nr)
		return 0;
	sort_all(n);
	nr = utf8proc_normalize_utf32(n->cp, (utf8proc_ssize_t)n->nr, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	n->nr = 0;
	if (nr < 0)
		return -ENOMEM;
	ret = reserve(n, 0, n->len + 4 * (size_t)nr);
	for (i = 0; i < nr && !ret; i++)
		n->len += (size_t)utf8proc_encode_char(n->cp[i], (utf8proc_uint8_t *)n->out + n->len);
	return ret;
}

static int put_bytes(struct nfc *n, const char *p, size_t len)
{
	int ret = reserve(n, 0, n->len + len);

	if (ret)
		return ret;
	memcpy(n->out + n->len, p, len);
	n->len += len;
	return 0;
}

/* A character's full decomposition; at most 4 code points in any version of Unicode. */
static int decompose(struct nfc *n, utf8proc_int32_t cp)
{
	int last = 0, ret = reserve(n, n->nr + 32, 0);
	utf8proc_ssize_t nr;

	if (ret)
		return ret;
	nr = utf8proc_decompose_char(cp, n->cp + n->nr, 32, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last);
	if (nr < 0 || nr > 32)
		return -ENOMEM;
	n->nr += (size_t)nr;
	return 0;
}

/* No character below U+0300 changes, alone or by what follows it below U+0300; their lead bytes are below 0xCC. */
static bool is_plain(const char *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if ((uint8_t)p[i] >= 0xcc)
			return false;
	return true;
}

static int normalise(struct nfc *n, const char *text, size_t len)
{
	utf8proc_int32_t cp;
	utf8proc_ssize_t step;
	size_t i;
	int ret = 0;

	for (i = 0; i < len && !ret; i += (size_t)step) {
		if ((uint8_t)text[i] < 0x80 && (i + 1 == len || (uint8_t)text[i + 1] < 0x80)) {
			step = 1;	/* nothing that could combine follows */
			ret = flush(n);
			if (!ret)
				ret = put_bytes(n, text + i, 1);
			continue;
		}
		step = utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(len - i), &cp);
		if (step <= 0) {	/* no UTF-8: as it is */
			step = 1;
			ret = flush(n);
			if (!ret)
				ret = put_bytes(n, text + i, 1);
			continue;
		}
		if (cp < 0x80)
			ret = flush(n);
		if (!ret)
			ret = decompose(n, cp);
	}
	return ret ? ret : flush(n);
}

int sits_tok_nfc(const char *text, size_t len, const char **out, size_t *out_len, char **owned)
{
	struct nfc n = { 0 };
	int ret;

	*out = text;
	*out_len = len;
	*owned = NULL;
	if (is_plain(text, len))
		return 0;
	ret = normalise(&n, text, len);
	free(n.cp);
	free(n.sorted);
	*owned = n.out;
	if (ret)
		return ret;
	*out = n.out;
	*out_len = n.len;
	return 0;
}
