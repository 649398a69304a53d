// SPDX-License-Identifier: MIT
/*
 * tok_vocab.c - token texts, their attributes, and the table from text to id.
 *
 * Texts stay in the GGUF. The table's hash is keyed with random bits, so that no file can be
 * built to make it slow. What makes a token end a turn is decided by tokenizer.c.
 */
#include "daemon/model/tok.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KEY_TOKENS	"tokenizer.ggml.tokens"
#define KEY_TYPES	"tokenizer.ggml.token_type"

static uint32_t hash_text(const struct sits_tok_vocab *v, const char *p, size_t len)
{
	uint64_t h = v->seed ^ len, w;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&w, p, 8);
		h = sits_tok_mix(h ^ w) + v->seed;
	}
	w = 0;
	memcpy(&w, p, len);
	h = sits_tok_mix(sits_tok_mix(h ^ w) ^ v->seed);
	return (uint32_t)(h ^ h >> 32);
}

/* The slot that holds @p, or the empty one where it belongs. */
static struct sits_tok_slot *find_slot(const struct sits_tok_vocab *v, const char *p, size_t len, uint32_t hash)
{
	uint32_t i = hash & v->mask;

	for (;; i = (i + 1) & v->mask) {
		struct sits_tok_slot *s = &v->slot[i];

		if (s->id < 0)
			return s;
		if (s->hash == hash && v->text[s->id].len == len && !memcmp(v->text[s->id].p, p, len))
			return s;
	}
}

int32_t sits_tok_vocab_find(const struct sits_tok_vocab *v, const char *p, size_t len)
{
	if (!len || len > v->max_len)
		return -1;
	return find_slot(v, p, len, hash_text(v, p, len))->id;
}

int32_t sits_tok_vocab_find_plain(const struct sits_tok_vocab *v, const char *p, size_t len)
{
	int32_t id = sits_tok_vocab_find(v, p, len);

	if (id >= 0 && (v->attr[id] & (SITS_TOK_ATTR_CONTROL | SITS_TOK_ATTR_UNKNOWN | SITS_TOK_ATTR_BYTE)))
		return -1;
	return id;
}

static int index_texts(struct sits_tok_vocab *v, struct sits_diag *diag)
{
	uint32_t slots = 16, i;

	while (slots < 2 * v->nr)
		slots *= 2;
	v->slot = malloc((size_t)slots * sizeof(*v->slot));
	if (!v->slot)
		return -ENOMEM;
	memset(v->slot, 0xff, (size_t)slots * sizeof(*v->slot));
	v->mask = slots - 1;
	for (i = 0; i < v->nr; i++) {
		const struct sits_str *t = &v->text[i];
		uint32_t hash = hash_text(v, t->p, t->len);
		struct sits_tok_slot *s;

		if (!t->len)	/* a hole in the numbering: it has an id but no text */
			continue;
		s = find_slot(v, t->p, t->len, hash);
		if (s->id >= 0)
			return sits_diag_fail(diag, -EBADMSG, KEY_TOKENS ": tokens %d and %u are both \"%.*s\"",
					      s->id, i, t->len > 40 ? 40 : (int)t->len, t->p);
		s->hash = hash;
		s->id = (int32_t)i;
		if (t->len > v->max_len)
			v->max_len = t->len;
	}
	return 0;
}

/* tokenizer.ggml.token_type: 0 undefined, 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
 * Source: the GGUF specification, "GGML vocabulary". */
static int read_types(struct sits_tok_vocab *v, const struct sits_gguf *g, struct sits_diag *diag)
{
	struct sits_gguf_array a;
	uint32_t i;
	int32_t type;
	int ret;

	ret = sits_gguf_get_array(g, KEY_TYPES, &a);
	if (ret == -ENOENT) {
		for (i = 0; i < v->nr; i++)
			v->attr[i] = SITS_TOK_ATTR_NORMAL;
		return 0;
	}
	if (ret || (a.type != SITS_GGUF_I32 && a.type != SITS_GGUF_U32))
		return sits_diag_fail(diag, -EBADMSG, KEY_TYPES ": not an array of 32-bit integers");
	if (a.nr != v->nr)
		return sits_diag_fail(diag, -EBADMSG, KEY_TYPES ": %llu types for %u tokens",
				      (unsigned long long)a.nr, v->nr);
	for (i = 0; i < v->nr; i++) {
		memcpy(&type, (const char *)a.data + (size_t)i * 4, 4);
		if (type < 0 || type > 6)
			return sits_diag_fail(diag, -EBADMSG, KEY_TYPES ": token %u has type %d; 0 to 6 exist", i, type);
		v->attr[i] = type ? (uint16_t)(1u << (type - 1)) : 0;
	}
	return 0;
}

int sits_tok_vocab_init(struct sits_tok_vocab *v, const struct sits_gguf *g, struct sits_diag *diag)
{
	struct sits_gguf_array a;
	int ret;

	memset(v, 0, sizeof(*v));
	ret = sits_gguf_get_array(g, KEY_TOKENS, &a);
	if (ret || a.type != SITS_GGUF_STRING)
		return sits_diag_fail(diag, -EBADMSG, KEY_TOKENS ": %s", ret == -ENOENT ? "missing" : "not an array of strings");
	if (!a.nr || a.nr > SITS_TOK_MAX_VOCAB)
		return sits_diag_fail(diag, -EBADMSG, KEY_TOKENS ": %llu tokens; 1 to %u are read here",
				      (unsigned long long)a.nr, SITS_TOK_MAX_VOCAB);
	v->text = a.strings;
	v->nr = (uint32_t)a.nr;
	if (getrandom(&v->seed, sizeof(v->seed), GRND_NONBLOCK) != sizeof(v->seed))
		v->seed = (uintptr_t)v ^ 0x5bd1e9955bd1e995ull;
	v->attr = malloc(v->nr * sizeof(*v->attr));
	if (!v->attr)
		return -ENOMEM;
	ret = read_types(v, g, diag);
	return ret ? ret : index_texts(v, diag);
}

void sits_tok_vocab_fini(struct sits_tok_vocab *v)
{
	free(v->attr);
	free(v->slot);
}

int sits_tok_byte_value(struct sits_str text)
{
	static const char hex[] = "0123456789abcdef0123456789ABCDEF";
	const char *hi, *lo;

	if (text.len != 6 || memcmp(text.p, "<0x", 3) || text.p[5] != '>' || !text.p[3] || !text.p[4])
		return -1;
	hi = strchr(hex, text.p[3]);
	lo = strchr(hex, text.p[4]);
	return hi && lo ? (int)((hi - hex) % 16 * 16 + (lo - hex) % 16) : -1;
}
