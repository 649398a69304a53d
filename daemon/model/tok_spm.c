// SPDX-License-Identifier: MIT
/*
 * tok_spm.c - SentencePiece BPE: characters are symbols, and the pair whose joint token has the
 * highest score merges first. A character that is no token becomes its bytes.
 *
 * The vocabulary writes a space as U+2581. Nothing else is normalised: no model that ships
 * as a GGUF of this kind asks for it.
 */
#include "daemon/model/tok.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SCORES	"tokenizer.ggml.scores"
#define SPACE_MARK	SITS_TOK_MARK

size_t sits_tok_spm_piece(const char *text, size_t len, char *out)
{
	size_t i, o = 0;

	for (i = 0; i < len; i++) {
		if (len - i >= 3 && !memcmp(text + i, SPACE_MARK, 3)) {
			out[o++] = ' ';
			i += 2;
		} else {
			out[o++] = text[i];
		}
	}
	return o;
}

static int read_scores(struct sits_tok_spm *m, const struct sits_tok_vocab *v, const struct sits_gguf *g,
		       struct sits_diag *diag)
{
	struct sits_gguf_array a;
	uint32_t i;
	int32_t whole;
	int ret;

	ret = sits_gguf_get_array(g, KEY_SCORES, &a);
	if (ret || (a.type != SITS_GGUF_F32 && a.type != SITS_GGUF_I32))
		return sits_diag_fail(diag, -EBADMSG, KEY_SCORES ": %s", ret == -ENOENT ? "missing" :
				      "not an array of 32-bit floats or integers");
	if (a.nr != v->nr)
		return sits_diag_fail(diag, -EBADMSG, KEY_SCORES ": %llu scores for %u tokens",
				      (unsigned long long)a.nr, v->nr);
	m->score = malloc((size_t)v->nr * sizeof(*m->score));
	if (!m->score)
		return -ENOMEM;
	memcpy(m->score, a.data, (size_t)v->nr * sizeof(*m->score));
	for (i = 0; i < v->nr; i++) {
		if (a.type == SITS_GGUF_I32) {
			memcpy(&whole, &m->score[i], sizeof(whole));
			m->score[i] = (float)whole;
		}
		if (!isfinite(m->score[i]))
			return sits_diag_fail(diag, -EBADMSG, KEY_SCORES ": the score of token %u is not a finite number", i);
	}
	return 0;
}

/* Whether every token that text can become keeps to one side of each place before a space. Then
 * stretches between such places can be encoded one by one, with the same result. */
bool sits_tok_spm_can_cut(const struct sits_tok_vocab *v)
{
	uint32_t i;
	size_t j;

	for (i = 0; i < v->nr; i++) {
		const struct sits_str t = v->text[i];
		bool other = false;

		for (j = 0; j < t.len; j++) {
			if (t.len - j >= 3 && !memcmp(t.p + j, SPACE_MARK, 3)) {
				if (other)
					return false;
				j += 2;
			} else {
				other = true;
			}
		}
	}
	return true;
}

int sits_tok_spm_init(struct sits_tok_spm *m, const struct sits_tok_vocab *v, int32_t unknown_id,
		      const struct sits_gguf *g, struct sits_diag *diag)
{
	char text[8];
	int ret, i;

	memset(m, 0, sizeof(*m));
	m->unknown_id = unknown_id;
	m->add_space_prefix = true;
	m->cut_at_spaces = sits_tok_spm_can_cut(v);
	ret = sits_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &m->add_space_prefix);
	if (ret && ret != -ENOENT)
		return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.add_space_prefix: not a boolean");
	for (i = 0; i < 256; i++) {
		snprintf(text, sizeof(text), "<0x%02X>", (unsigned int)i);
		m->byte_id[i] = sits_tok_vocab_find(v, text, 6);
		text[0] = (char)i;
		if (m->byte_id[i] < 0)
			m->byte_id[i] = sits_tok_vocab_find_plain(v, text, 1);
		if (m->byte_id[i] < 0 && unknown_id < 0)
			return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.tokens: no token <0x%02X> and no unknown token",
					      (unsigned int)i);
	}
	return read_scores(m, v, g, diag);
}

void sits_tok_spm_fini(struct sits_tok_spm *m)
{
	free(m->score);
}

/* A number that is smaller the higher the score. */
static uint32_t order(float score)
{
	uint32_t bits;

	score += 0.0f;	/* -0 is 0 */
	memcpy(&bits, &score, sizeof(bits));
	return bits >> 31 ? bits : ~(bits | 1u << 31);
}

/* Offer what a symbol and the one after it would be. */
static int push_pair(const struct sits_tok_spm *m, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
		     int32_t left)
{
	struct sits_tok_symbol *l;

	if (left < 0)
		return 0;
	l = &s->sym[left];
	l->joint = l->next < 0 ? -1 : sits_tok_vocab_find_plain(v, s->text + l->pos, l->len + s->sym[l->next].len);
	return l->joint < 0 ? 0 : sits_tok_heap_push(&s->heap, order(m->score[l->joint]), left);
}

/* Cut @len bytes at @pos of the scratch text into characters. Return: how many. */
static int32_t cut(const struct sits_tok_vocab *v, struct sits_tok_scratch *s, size_t pos, size_t len)
{
	size_t end = pos + len, step;
	int32_t n = 0;

	for (; pos < end; pos += step, n++) {
		step = sits_tok_char_len((uint8_t)s->text[pos]);
		step = step < end - pos ? step : end - pos;
		s->sym[n] = (struct sits_tok_symbol){
			.id = sits_tok_vocab_find_plain(v, s->text + pos, step),
			.prev = n - 1, .next = n + 1, .pos = (uint32_t)pos, .len = (uint32_t)step,
		};
	}
	s->sym[n - 1].next = -1;
	return n;
}

static int push_symbol(const struct sits_tok_spm *m, const struct sits_tok_scratch *s,
		       const struct sits_tok_symbol *sym, struct sits_tokens *out)
{
	const uint8_t *p = (const uint8_t *)s->text + sym->pos;
	uint32_t i;
	int ret = 0;

	if (sym->id >= 0)
		return sits_tokens_push(out, sym->id);
	for (i = 0; i < sym->len; i++)
		if (m->byte_id[p[i]] < 0)
			return sits_tokens_push(out, m->unknown_id);
	for (i = 0; i < sym->len && !ret; i++)
		ret = sits_tokens_push(out, m->byte_id[p[i]]);
	return ret;
}

static int encode_stretch(const struct sits_tok_spm *m, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			  size_t pos, size_t len, struct sits_tokens *out)
{
	int32_t left, i, n = cut(v, s, pos, len);
	uint32_t rank;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = push_pair(m, v, s, i);
	while (!ret && sits_tok_heap_pop(&s->heap, &rank, &left)) {
		struct sits_tok_symbol *l = &s->sym[left], *r;

		/* Stale if either side has merged with something else since. */
		if (!l->len || l->joint < 0 || order(m->score[l->joint]) != rank)
			continue;
		r = &s->sym[l->next];
		l->id = l->joint;
		l->len += r->len;
		l->next = r->next;
		r->len = 0;
		if (l->next >= 0)
			s->sym[l->next].prev = left;
		ret = push_pair(m, v, s, l->prev);
		if (!ret)
			ret = push_pair(m, v, s, left);
	}
	s->heap.nr = 0;
	for (i = 0; i >= 0 && !ret; i = s->sym[i].next)
		ret = push_symbol(m, s, &s->sym[i], out);
	return ret;
}

size_t sits_tok_spm_escape(const char *text, size_t len, char *out)
{
	size_t i, o = 0;

	for (i = 0; i < len; i++) {
		if (text[i] != ' ') {
			if (out)
				out[o] = text[i];
			o++;
			continue;
		}
		if (out)
			memcpy(out + o, SPACE_MARK, 3);
		o += 3;
	}
	return o;
}

/* Write the text to scratch as the vocabulary writes it. Return: bytes, or -ENOMEM. */
static int64_t escape(struct sits_tok_scratch *s, const char *text, size_t len, bool prefix)
{
	int ret = sits_tok_scratch_reserve(s, 0, sits_tok_spm_escape(text, len, NULL) + 3 * prefix);

	if (ret)
		return ret;
	if (prefix)
		memcpy(s->text, SPACE_MARK, 3);
	return (int64_t)(3 * prefix + sits_tok_spm_escape(text, len, s->text + 3 * prefix));
}

size_t sits_tok_spm_stretch(const char *p, const char *end)
{
	const char *q = p;

	while (sits_tok_is_mark(q, end))
		q += 3;
	while (q < end && !sits_tok_is_mark(q, end))
		q += sits_tok_char_len((uint8_t)*q);
	return (size_t)((q < end ? q : end) - p);
}

int sits_tok_spm_encode(const struct sits_tok_spm *m, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			const char *text, size_t len, bool first, struct sits_tokens *out)
{
	int64_t total = escape(s, text, len, first && m->add_space_prefix);
	size_t pos, n;
	int ret = 0;

	if (total < 0)
		return (int)total;
	for (pos = 0; pos < (size_t)total && !ret; pos += n) {
		n = m->cut_at_spaces ? sits_tok_spm_stretch(s->text + pos, s->text + total) : (size_t)total - pos;
		ret = sits_tok_scratch_reserve(s, n, 0);
		if (!ret)
			ret = encode_stretch(m, v, s, pos, n, out);
	}
	return ret;
}
