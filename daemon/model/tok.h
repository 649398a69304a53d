/* SPDX-License-Identifier: MIT */
/*
 * tok.h - what the tokenizer's own files share; everybody else uses tokenizer.h.
 *
 *   tokenizer.c    creation from metadata, the public calls
 *   tok_vocab.c    token texts, attributes, the text -> id table
 *   tok_special.c  tokens recognised in raw text before anything else
 *   tok_nfc.c      Unicode normalisation form C
 *   tok_split.c    UTF-8 repair and the PCRE2 pre-tokenizers
 *   tok_bpe.c      BPE by merges, of bytes or of characters
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
#define SITS_TOK_ATTR_LSTRIP	(1u << 8)	/* ... and before it */
#define SITS_TOK_ATTR_LATE	(1u << 9)	/* recognised in normalised text, as its own text is normalised */

/* Fold a 128-bit product: every bit of the result hangs on every bit of @x. */
static inline uint64_t sits_tok_mix(uint64_t x)
{
	unsigned __int128 m = (unsigned __int128)x * 0x9e3779b97f4a7c15ull;

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* ---- tok_nfc.c ---- */

/**
 * sits_tok_nfc() - Normalise text.
 * @out: the text, or where it changes a new one, which is *@owned too; free(*owned) in any case. Bytes that are no UTF-8 stay
 * Time grows as n log n. Return: 0 or -ENOMEM.
 */
int sits_tok_nfc(const char *text, size_t len, const char **out, size_t *out_len, char **owned);

/* ---- tok_vocab.c ---- */

struct sits_tok_slot {
	uint32_t hash;
	int32_t id;		/* -1: empty */
};

struct sits_tok_vocab {
	const struct sits_str *text;	/* [nr]; in the GGUF */
	uint16_t *attr;			/* [nr] */
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
	const struct sits_str *text;	/* [v->nr]: what stands for each token; an empty one is not recognised */
	bool leftmost;			/* at each place the longest, from left to right; else the longest wherever it stands */
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

/**
 * sits_tok_special_init() - @text: as in the struct, borrowed; NULL takes the vocabulary's.
 * @late: the tokens with SITS_TOK_ATTR_LATE, else those without
 */
int sits_tok_special_init(struct sits_tok_special *s, const struct sits_tok_vocab *v, const struct sits_str *text, bool late,
			  bool leftmost, struct sits_diag *diag);
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

enum sits_tok_family {
	SITS_TOK_GPT2, SITS_TOK_SMOLLM, SITS_TOK_QWEN2, SITS_TOK_LLAMA3,
	SITS_TOK_QWEN2_FOLD, SITS_TOK_LLAMA3_FOLD,	/* as tokenizer.json has them: contractions by case folding */
	SITS_TOK_DEEPSEEK_LLM, SITS_TOK_DEEPSEEK2, SITS_TOK_DEEPSEEK_CODER, SITS_TOK_DEEPSEEK3,
	SITS_TOK_NR_FAMILIES,
};

struct sits_tok_split;		/* a compiled pre-tokenizer */

#define SITS_TOK_MAX_JSON_STAGES 6
/** sits_tok_split_spelled() - The family whose pre-tokenizers a tokenizer.json spells like this (see tok_split.c); the last
 * ByteLevel that has no pattern is left out. Return: 0 or -EPROTONOSUPPORT. */
int sits_tok_split_spelled(const char *const *stage, size_t nr, enum sits_tok_family *family);

/** sits_tok_split_create() - @jit: use PCRE2's JIT compiler if the system lets it. Return: 0, -ENOMEM, -EIO. */
int sits_tok_split_create(enum sits_tok_family family, bool jit, struct sits_tok_split **out, struct sits_diag *diag);
void sits_tok_split_destroy(struct sits_tok_split *s);
bool sits_tok_split_has_jit(const struct sits_tok_split *s);

/* Of one stage of a pre-tokenizer: the piece that it works on, and the match ahead. All are offsets into the text. */
struct sits_tok_stage {
	size_t from, end;	/* the piece */
	size_t pos;		/* what is before has been handed out */
	size_t match_start, match_end;	/* both @end where there is no match ahead; match_end == pos: not looked for yet */
};

/*
 * One pass over one fragment. @text is what to encode: the caller's bytes if they are well-formed,
 * else a repaired copy. Words are ranges of it that follow each other without a gap.
 */
struct sits_tok_words {
	const struct sits_tok_split *s;
	const char *text;
	const char *subject;	/* @text with surrogates masked, for PCRE2; the same length */
	size_t len, pos;
	struct sits_tok_stage stage[6];
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

/* ---- what a tokenizer.json says that no GGUF has keys for; made by tok_json.c ---- */

/* Where text becomes what a vocabulary of characters is written in: a space is U+2581 there. */
enum sits_tok_prefix {
	SITS_TOK_PREFIX_NONE,
	SITS_TOK_PREFIX_ALWAYS,		/* a mark before each stretch of text between special tokens */
	SITS_TOK_PREFIX_UNLESS_MARK,	/* ... that does not begin with one */
	SITS_TOK_PREFIX_FIRST,		/* ... and is at the very start of the input */
};

struct sits_tok_merge_text {
	struct sits_str left, right;
};

/* Borrowed by sits_tokenizer_create_ext() until it returns. */
struct sits_tok_ext {
	bool byte_level;		/* symbols are bytes, in words of @family; else characters */
	enum sits_tok_family family;
	bool ignore_merges;
	bool nfc;
	/* Of characters: */
	bool byte_fallback;		/* a character that is no token becomes its bytes' tokens */
	bool fuse_unknown;		/* unknown characters that follow one another are one unknown token */
	bool marks_early;		/* spaces become marks before the special tokens of normalised text are recognised */
	bool cut_at_marks;		/* each mark starts a word */
	enum sits_tok_prefix prefix;
	const struct sits_tok_merge_text *merge;	/* [nr_merges], best first */
	uint32_t nr_merges;
	const uint16_t *attr;		/* [vocabulary]: SITS_TOK_ATTR_RSTRIP, LSTRIP, LATE, EOG of each token */
};

/** sits_tokenizer_create_ext() - From the keys tokenizer.ggml.tokens, token_type, *_token_id, add_*_token of @g, which is borrowed
 * until sits_tokenizer_destroy(), and @ext. Return: as sits_tokenizer_create(). */
int sits_tokenizer_create_ext(const struct sits_gguf *g, const struct sits_tok_ext *ext, struct sits_tokenizer **out,
			      struct sits_diag *diag);

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
	/* Of characters: */
	int32_t unknown_id;		/* for a character that neither is a token nor has all its bytes; -1: it is dropped */
	bool fuse_unknown;
	bool cut_at_marks;		/* each U+2581 starts a word */
	bool cut_at_spaces;		/* no token has a mark after something else, so words may be taken one by one */
};

int sits_tok_bpe_init(struct sits_tok_bpe *b, const struct sits_tok_vocab *v, const struct sits_gguf *g,
		      struct sits_diag *diag);
/** sits_tok_bpe_init_ext() - From a tokenizer.json. @unknown_id: -1 for none. */
int sits_tok_bpe_init_ext(struct sits_tok_bpe *b, const struct sits_tok_vocab *v, const struct sits_tok_ext *ext,
			  int32_t unknown_id, struct sits_diag *diag);
void sits_tok_bpe_fini(struct sits_tok_bpe *b);
int sits_tok_bpe_encode(const struct sits_tok_bpe *b, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			const char *text, size_t len, struct sits_tokens *out);
/** sits_tok_bpe_encode_chars() - @text: with marks for spaces. */
int sits_tok_bpe_encode_chars(const struct sits_tok_bpe *b, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
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
/** sits_tok_spm_escape() - Spaces to marks. @out: room for 3 * @len bytes, or NULL to count them. Return: how many. */
size_t sits_tok_spm_escape(const char *text, size_t len, char *out);
/** sits_tok_spm_can_cut() - Does every token keep to one side of each place before a mark? */
bool sits_tok_spm_can_cut(const struct sits_tok_vocab *v);
/** sits_tok_spm_stretch() - Bytes from @p to the next mark that follows something else, or to the end. */
size_t sits_tok_spm_stretch(const char *p, const char *end);
/** sits_tok_char_len() - The lead byte alone says how long a character is; the text is not checked. */
static inline size_t sits_tok_char_len(uint8_t lead)
{
	return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}
#define SITS_TOK_MARK "\xe2\x96\x81"	/* U+2581 */
static inline bool sits_tok_is_mark(const char *p, const char *end)
{
	return end - p >= 3 && p[0] == SITS_TOK_MARK[0] && p[1] == SITS_TOK_MARK[1] && p[2] == SITS_TOK_MARK[2];
}
/** sits_tok_byte_value() - The byte that a "<0xXX>" text stands for, or -1. */
int sits_tok_byte_value(struct sits_str text);

#endif
