// SPDX-License-Identifier: MIT
/*
 * tok_special.c - tokens that are recognised in text before pre-tokenizing.
 *
 * Control, unknown and user-defined tokens sit in a trie over their bytes. A split finds all
 * occurrences in one walk, then accepts them longest first (of one length: lowest id first, then
 * leftmost), each unless it overlaps one accepted already. That is what taking the tokens one after
 * the other, longest first, and cutting the remaining text at each would give, at the cost of one pass. That is
 * llama.cpp's rule; the one of tokenizer.json is simpler: from left to right, at each place the longest.
 */
#include "daemon/model/tok.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RECOGNISED (SITS_TOK_ATTR_CONTROL | SITS_TOK_ATTR_UNKNOWN | SITS_TOK_ATTR_USER)

/* Recognised only where the caller asks for it: a user's text must not smuggle one in. */
static bool is_guarded(const struct sits_tok_vocab *v, int32_t id)
{
	return v->attr[id] & (SITS_TOK_ATTR_CONTROL | SITS_TOK_ATTR_UNKNOWN);
}

static int32_t add_node(struct sits_tok_special *s, uint8_t byte)
{
	if (s->nr == s->cap) {
		uint32_t cap = s->cap ? 2 * s->cap : 256;
		struct sits_tok_node *grown = realloc(s->node, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		s->node = grown;
		s->cap = cap;
	}
	s->node[s->nr] = (struct sits_tok_node){ .child = -1, .sibling = -1, .id = -1, .byte = byte };
	return (int32_t)s->nr++;
}

static int32_t find_child(const struct sits_tok_special *s, int32_t node, uint8_t byte)
{
	int32_t n;

	for (n = s->node[node].child; n >= 0; n = s->node[n].sibling)
		if (s->node[n].byte == byte)
			return n;
	return -1;
}

static int insert(struct sits_tok_special *s, int32_t id)
{
	const struct sits_str *t = &s->text[id];
	const uint8_t *p = (const uint8_t *)t->p;
	int32_t node = s->root[p[0]], next;
	size_t i;

	if (node < 0) {
		node = add_node(s, p[0]);
		if (node < 0)
			return node;
		s->root[p[0]] = node;
	}
	for (i = 1; i < t->len; i++, node = next) {
		next = find_child(s, node, p[i]);
		if (next >= 0)
			continue;
		next = add_node(s, p[i]);
		if (next < 0)
			return next;
		s->node[next].sibling = s->node[node].child;
		s->node[node].child = next;
	}
	s->node[node].id = id;
	return 0;
}

int sits_tok_special_init(struct sits_tok_special *s, const struct sits_tok_vocab *v, const struct sits_str *text, bool late,
			  bool leftmost, struct sits_diag *diag)
{
	size_t total = 0;
	uint32_t i;
	int ret;

	memset(s, 0, sizeof(*s));
	memset(s->root, 0xff, sizeof(s->root));
	s->v = v;
	s->text = text ? text : v->text;
	s->leftmost = leftmost;
	for (i = 0; i < v->nr; i++) {
		if (!(v->attr[i] & RECOGNISED) || !s->text[i].len || !(v->attr[i] & SITS_TOK_ATTR_LATE) == late)
			continue;
		if (s->text[i].len > SITS_TOK_MAX_SPECIAL)
			return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.tokens: special token %u is %zu bytes long; at most %d are read here",
					      i, s->text[i].len, SITS_TOK_MAX_SPECIAL);
		total += s->text[i].len;
		if (total > INT32_MAX)
			return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.tokens: more than 2 GiB of special tokens");
		if (!is_guarded(v, (int32_t)i))
			s->has_user = true;
		ret = insert(s, (int32_t)i);
		if (ret)
			return ret;
	}
	return 0;
}

void sits_tok_special_fini(struct sits_tok_special *s)
{
	free(s->node);
}

static int push(struct sits_tok_fragments *o, size_t pos, size_t len, int32_t id)
{
	if (o->nr == o->cap) {
		size_t cap = o->cap ? 2 * o->cap : 16;
		struct sits_tok_fragment *grown = realloc(o->f, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		o->f = grown;
		o->cap = cap;
	}
	o->f[o->nr++] = (struct sits_tok_fragment){ .pos = pos, .len = len, .id = id };
	return 0;
}

static int find_all(const struct sits_tok_special *s, const char *text, size_t len, bool control,
		    struct sits_tok_fragments *out)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t i, j;
	int ret;

	for (i = 0; i < len; i++) {
		int32_t node = s->root[p[i]];

		for (j = i + 1; node >= 0; j++) {
			int32_t id = s->node[node].id;

			if (id >= 0 && (control || !is_guarded(s->v, id))) {
				ret = push(out, i, j - i, id);
				if (ret)
					return ret;
			}
			node = j < len ? find_child(s, node, p[j]) : -1;
		}
	}
	return 0;
}

/* U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F, U+3000: White_Space beyond ASCII. */
static const char *const wide_spaces[] = {
	"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84",
	"\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9",
	"\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
};

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Bytes of the white space that [p, end) begins with, or with @back ends with; 0 for none. */
static size_t space_at(const char *p, const char *end, bool back)
{
	size_t i, n;

	if (p < end && is_space(back ? end[-1] : *p))
		return 1;
	for (i = 0; i < sizeof(wide_spaces) / sizeof(wide_spaces[0]); i++) {
		n = strlen(wide_spaces[i]);
		if ((size_t)(end - p) >= n && !memcmp(back ? end - n : p, wide_spaces[i], n))
			return n;
	}
	return 0;
}

/* The longest token at @text + @i, whatever it is. Return: its id and @end, or -1. */
static int32_t longest_at(const struct sits_tok_special *s, const char *text, size_t len, size_t i, size_t *end)
{
	const uint8_t *p = (const uint8_t *)text;
	int32_t node = s->root[p[i]], id = -1;
	size_t j;

	for (j = i + 1; node >= 0; j++) {
		if (s->node[node].id >= 0) {
			id = s->node[node].id;
			*end = j;
		}
		node = j < len ? find_child(s, node, p[j]) : -1;
	}
	return id;
}

/* A token that may not be recognised covers its place all the same. */
static int find_leftmost(const struct sits_tok_special *s, const char *text, size_t len, bool control,
			 struct sits_tok_fragments *out)
{
	size_t i = 0, from = 0, start, stop = 0, next = 0, n;
	int32_t id;
	int ret;

	while (i < len) {
		id = longest_at(s, text, len, i, &next);
		if (id < 0) {
			i++;
			continue;
		}
		start = i;
		i = stop = next;
		if (start < from || (!control && is_guarded(s->v, id)))
			continue;
		while (s->v->attr[id] & SITS_TOK_ATTR_LSTRIP && (n = space_at(text + from, text + start, true)))
			start -= n;
		while (s->v->attr[id] & SITS_TOK_ATTR_RSTRIP && (n = space_at(text + stop, text + len, false)))
			stop += n;
		ret = push(out, start, stop - start, id);
		if (ret)
			return ret;
		from = stop;
	}
	return 0;
}

static int by_priority(const void *a, const void *b)
{
	const struct sits_tok_fragment *x = a, *y = b;

	if (x->len != y->len)
		return x->len > y->len ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static int by_position(const void *a, const void *b)
{
	const struct sits_tok_fragment *x = a, *y = b;

	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

/*
 * Accept what does not overlap. A later candidate is never longer than an accepted one, so looking
 * at its two ends suffices. Each accepted token is marked in @taken, and the white space that an
 * RSTRIP token swallows with it.
 */
static size_t accept(const struct sits_tok_special *s, const char *text, size_t len, char *taken,
		     struct sits_tok_fragments *all)
{
	size_t i, kept = 0;

	for (i = 0; i < all->nr; i++) {
		struct sits_tok_fragment f = all->f[i];
		size_t end = f.pos + f.len;

		if (taken[f.pos] || taken[end - 1])
			continue;
		memset(taken + f.pos, 1, f.len);
		if (s->v->attr[f.id] & SITS_TOK_ATTR_RSTRIP)
			for (; end < len && !taken[end] && is_space(text[end]); end++)
				taken[end] = 1;
		f.len = end - f.pos;
		all->f[kept++] = f;
	}
	return kept;
}

/* Put the text between accepted tokens into the list. */
static int fill_gaps(struct sits_tok_fragments *tokens, size_t len, struct sits_tok_fragments *out)
{
	size_t i, pos = 0;
	int ret = 0;

	for (i = 0; i < tokens->nr && !ret; i++) {
		const struct sits_tok_fragment *f = &tokens->f[i];

		if (f->pos > pos)
			ret = push(out, pos, f->pos - pos, -1);
		if (!ret)
			ret = push(out, f->pos, f->len, f->id);
		pos = f->pos + f->len;
	}
	if (!ret && pos < len)
		ret = push(out, pos, len - pos, -1);
	return ret;
}

int sits_tok_special_split(const struct sits_tok_special *s, const char *text, size_t len, bool control,
			   struct sits_tok_fragments *out)
{
	struct sits_tok_fragments all = { 0 };
	char *taken = NULL;
	int ret = 0;

	if (s->nr && s->leftmost) {
		ret = find_leftmost(s, text, len, control, &all);
		if (!ret)
			ret = fill_gaps(&all, len, out);
		free(all.f);
		return ret;
	}
	if (s->nr && (control || s->has_user))
		ret = find_all(s, text, len, control, &all);
	if (!ret && all.nr) {
		taken = calloc(1, len);
		if (!taken) {
			ret = -ENOMEM;
			goto out;
		}
		qsort(all.f, all.nr, sizeof(*all.f), by_priority);
		all.nr = accept(s, text, len, taken, &all);
		qsort(all.f, all.nr, sizeof(*all.f), by_position);
	}
	if (!ret)
		ret = fill_gaps(&all, len, out);
out:
	free(taken);
	free(all.f);
	return ret;
}
