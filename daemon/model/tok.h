/* SPDX-License-Identifier: MIT */
/*
 * tok.h - what the tokenizer's own files share; everybody else uses tokenizer.h.
 *
 *   tokenizer.c    creation from metadata, the public calls
 *   tok_vocab.c    token texts, attributes, the text -> id table
 *   tok_special.c  tokens recognised in raw text before anything else
 *   tok_split.c    UTF-8 repair and the PCRE2 pre-tokenizers
 *   tok_bpe.c      byte-level BPE
 *   tok_spm.c      SentencePiece BPE
 *   tok_heap.c     the priority queue of both
 *
 * All structs but the scratch ones are immutable once sits_tokenizer_create() has returned, and
 * are shared by threads without a lock.
 */
#ifndef SITS_MODEL_TOK_H
#define SITS_MODEL_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"

/* Bounds: positions and ids are 32-bit, ranks and positions share a 64-bit key. */
#define SITS_TOK_MAX_VOCAB	(1u << 24)
#define SITS_TOK_MAX_MERGES	(1u << 24)
#define SITS_TOK_MAX_TEXT	((size_t)1 << 29)	/* repair may triple it */
#define SITS_TOK_MAX_SPECIAL	1024	/* bytes of one special token */

/* Attributes of a token. The first six are tokenizer.ggml.token_type; more than one may be set. */
#define SITS_TOK_ATTR_NORMAL	(1u << 0)
#define SITS_TOK_ATTR_UNKNOWN	(1u << 1)
#define SITS_TOK_ATTR_CONTROL	(1u << 2)
#define SITS_TOK_ATTR_USER	(1u << 3)
#define SITS_TOK_ATTR_UNUSED	(1u << 4)
#define SITS_TOK_ATTR_BYTE	(1u << 5)
#define SITS_TOK_ATTR_EOG	(1u << 6)
#define SITS_TOK_ATTR_RSTRIP	(1u << 7)	/* swallows the white space after it */

/* Fold a 128-bit product: every bit of the result hangs on every bit of @x. */
static inline uint64_t sits_tok_mix(uint64_t x)
{
	unsigned __int128 m = (unsigned __int128)x * 0x9e3779b97f4a7c15ull;

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* ---- tok_vocab.c ---- */

struct sits_tok_slot {
	uint32_t hash;
	int32_t id;		/* -1: empty */
};

struct sits_tok_vocab {
	const struct sits_str *text;	/* [nr]; in the GGUF */
	uint8_t *attr;			/* [nr] */
	uint32_t nr;
	size_t max_len;			/* of text, bytes */
	uint64_t seed;
	uint32_t mask;
	struct sits_tok_slot *slot;	/* [mask + 1], at most half full */
};

int sits_tok_vocab_init(struct sits_tok_vocab *v, const struct sits_gguf *g, struct sits_diag *diag);
void sits_tok_vocab_fini(struct sits_tok_vocab *v);
/** sits_tok_vocab_find() - The id of a token's exact text, or -1. */
int32_t sits_tok_vocab_find(const struct sits_tok_vocab *v, const char *p, size_t len);
/** sits_tok_vocab_find_plain() - The same, but never a token that plain text must not become. */
int32_t sits_tok_vocab_find_plain(const struct sits_tok_vocab *v, const char *p, size_t len);

/* ---- tok_special.c ---- */

struct sits_tok_node {
	int32_t child, sibling;		/* -1: none */
	int32_t id;			/* -1: no token ends here */
	uint8_t byte;
};

struct sits_tok_special {
	const struct sits_tok_vocab *v;
	struct sits_tok_node *node;
	uint32_t nr, cap;
	int32_t root[256];		/* node of each first byte, -1: none */
	bool has_user;			/* some token is recognised without SITS_TOK_SPECIAL */
};

/* Text, or one token, in the order of the input. */
struct sits_tok_fragment {
	size_t pos, len;
	int32_t id;			/* -1: text */
};
struct sits_tok_fragments {
	struct sits_tok_fragment *f;
	size_t nr, cap;
};

int sits_tok_special_init(struct sits_tok_special *s, const struct sits_tok_vocab *v, struct sits_diag *diag);
void sits_tok_special_fini(struct sits_tok_special *s);
/**
 * sits_tok_special_split() - Cut @text at the special tokens in it.
 * @control: recognise control and unknown tokens too, not user-defined ones alone
 * @out: zero-initialised; free(out->f) in any case
 * Return: 0 or -ENOMEM.
 */
int sits_tok_special_split(const struct sits_tok_special *s, const char *text, size_t len, bool control,
			   struct sits_tok_fragments *out);

/* ---- tok_split.c ---- */

enum sits_tok_family { SITS_TOK_GPT2, SITS_TOK_SMOLLM, SITS_TOK_QWEN2, SITS_TOK_LLAMA3 };

struct sits_tok_split;		/* a compiled pre-tokenizer */

/** sits_tok_split_create() - @jit: use PCRE2's JIT compiler if the system lets it. Return: 0, -ENOMEM, -EIO. */
int sits_tok_split_create(enum sits_tok_family family, bool jit, struct sits_tok_split **out, struct sits_diag *diag);
void sits_tok_split_destroy(struct sits_tok_split *s);
bool sits_tok_split_has_jit(const struct sits_tok_split *s);

/*
 * One pass over one fragment. @text is what to encode: the caller's bytes if they are well-formed,
 * else a repaired copy. Words are ranges of it that follow each other without a gap.
 */
struct sits_tok_words {
	const struct sits_tok_split *s;
	const char *text;
	const char *subject;	/* @text with surrogates masked, for PCRE2; the same length */
	size_t len, pos;
	void *match;		/* pcre2_match_data */
	void *limits;		/* pcre2_match_context */
	char *owned[2];
};

/**
 * sits_tok_words_init() - @match_limit: 0 for one that fits the text's length; tests set it low.
 * Return: 0 or -ENOMEM; sits_tok_words_fini() is due in any case.
 */
int sits_tok_words_init(struct sits_tok_words *w, const struct sits_tok_split *s, const char *text, size_t len,
			uint32_t match_limit);
/** sits_tok_words_next() - Return: 1 and a word; 0 at the end; -ENOMEM; -EIO where PCRE2 gave up. */
int sits_tok_words_next(struct sits_tok_words *w, const char **word, size_t *len);
void sits_tok_words_fini(struct sits_tok_words *w);

/* ---- tok_heap.c ---- */

/* A heap of keys, smallest first. A key is rank << 32 | index of the left symbol. */
struct sits_tok_heap {
	uint64_t *key;
	size_t nr, cap;
};
int sits_tok_heap_push(struct sits_tok_heap *h, uint32_t rank, int32_t left);	/* 0 or -ENOMEM */
bool sits_tok_heap_pop(struct sits_tok_heap *h, uint32_t *rank, int32_t *left);

/* ---- the two encoders ---- */

/* Text under work, a doubly linked list in an array; a merge keeps the left one. */
struct sits_tok_symbol {
	int32_t id;		/* token, or -1 */
	int32_t prev, next;	/* -1: none */
	uint32_t pos, len;	/* its bytes; len 0: merged away */
	int32_t joint;		/* SentencePiece: the token that it and the next would be, or -1 */
};

/* Of one encode call. */
struct sits_tok_scratch {
	struct sits_tok_symbol *sym;
	size_t cap;
	struct sits_tok_heap heap;
	char *text;		/* a word or text as the vocabulary writes it */
	size_t text_cap;
};
int sits_tok_scratch_reserve(struct sits_tok_scratch *s, size_t nr_symbols, size_t text_bytes);	/* 0 or -ENOMEM */
void sits_tok_scratch_fini(struct sits_tok_scratch *s);

struct sits_tok_merge {
	int32_t left, right, id;
};
struct sits_tok_pair {
	int32_t left, right;	/* left -1: empty */
	uint32_t rank;		/* index into merge */
};

struct sits_tok_bpe {
	struct sits_tok_split *split;
	struct sits_tok_merge *merge;	/* [nr_merges], best first */
	uint32_t nr_merges;
	uint64_t seed;
	uint32_t mask;
	struct sits_tok_pair *pair;	/* [mask + 1], at most half full */
	int32_t byte_id[256];		/* -1: the vocabulary lacks it */
	bool ignore_merges;		/* a word that is a token is that token */
};

int sits_tok_bpe_init(struct sits_tok_bpe *b, const struct sits_tok_vocab *v, const struct sits_gguf *g,
		      struct sits_diag *diag);
void sits_tok_bpe_fini(struct sits_tok_bpe *b);
int sits_tok_bpe_encode(const struct sits_tok_bpe *b, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			const char *text, size_t len, struct sits_tokens *out);
/** sits_tok_bpe_piece() - Undo the byte-level alphabet. @out: room for @len bytes. Return: bytes written. */
size_t sits_tok_bpe_piece(const char *text, size_t len, char *out);
/** sits_tok_bpe_known() - The pre-tokenizer @pre, or NULL. @list: out: all known names, for a message. */
struct sits_tok_pre {
	const char *name;
	enum sits_tok_family family;
	bool ignore_merges, add_bos;
};
const struct sits_tok_pre *sits_tok_pre_find(struct sits_str name);
void sits_tok_pre_names(char *buf, size_t size);

struct sits_tok_spm {
	float *score;			/* [nr], finite */
	int32_t byte_id[256];		/* -1: the vocabulary lacks it */
	int32_t unknown_id;		/* for a character with such a byte; -1 only if there is none */
	bool add_space_prefix;
	bool cut_at_spaces;		/* no token has a space after something else */
};

int sits_tok_spm_init(struct sits_tok_spm *m, const struct sits_tok_vocab *v, int32_t unknown_id,
		      const struct sits_gguf *g, struct sits_diag *diag);
void sits_tok_spm_fini(struct sits_tok_spm *m);
/** sits_tok_spm_encode() - @first: the text starts the input or follows a special token. */
int sits_tok_spm_encode(const struct sits_tok_spm *m, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			const char *text, size_t len, bool first, struct sits_tokens *out);
size_t sits_tok_spm_piece(const char *text, size_t len, char *out);
/** sits_tok_byte_value() - The byte that a "<0xXX>" text stands for, or -1. */
int sits_tok_byte_value(struct sits_str text);

#endif
