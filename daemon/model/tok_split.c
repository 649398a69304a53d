// SPDX-License-Identifier: MIT
/*
 * tok_split.c - cut text into the words that byte-level BPE works on.
 *
 * Each family is one PCRE2 pattern that covers every character, so words follow each other without
 * a gap. Classes are spelled out so that they do not hang on the Unicode version of the PCRE2 at
 * hand, and \s is the White_Space property (PCRE2's own also has U+180E). Possessive quantifiers stand
 * wherever giving back could not help, so a match costs time linear in what it covers.
 *
 * PCRE2 wants well-formed UTF-8 where models accept any bytes; the repair is described in
 * docs/tokenizers.md.
 */
#include "daemon/model/tok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Letters and numbers that Unicode 15 and 15.1 added, for a PCRE2 that knows Unicode 14.
 * Source: DerivedGeneralCategory.txt of 14.0 and 15.1. */
#define LATER_L "\\x{1123f}-\\x{11240}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}" \
	"\\x{13441}-\\x{13446}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}" \
	"\\x{1e4d0}-\\x{1e4eb}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define LATER_N "\\x{11f50}-\\x{11f59}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}"

/* Inside brackets: letters, numbers, white space. */
#define L "A-Za-z\\p{L}" LATER_L
#define N "0-9\\p{N}" LATER_N
#define S "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* White space before something else leaves its last character to it. */
#define SPACES "[" S "]+(?![^" S "])|[" S "]++"
#define GPT2_CONTRACTION "'(?:[stmd]|re|ve|ll)"
#define ANY_CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define QWEN2_WORD "[^\\r\\n" L N "]?+[" L "]++"
#define QWEN2_REST " ?+[^" S L N "]++[\\r\\n]*+|[" S "]*[\\r\\n]++|" SPACES

static const char *const patterns[] = {
	[SITS_TOK_GPT2] = GPT2_CONTRACTION "| ?+[" L "]++| ?+[" N "]++| ?+[^" S L N "]++|" SPACES,
	/* Each number character is cut out first, so to white space it is the end of the text. */
	[SITS_TOK_SMOLLM] = "[" N "]|" GPT2_CONTRACTION "| ?+[" L "]++| ?+[^" S L N "]++|"
			    "[" S "]+(?![^" S N "])|[" S "]++",
	[SITS_TOK_QWEN2] = ANY_CONTRACTION "|" QWEN2_WORD "|[" N "]|" QWEN2_REST,
	[SITS_TOK_LLAMA3] = ANY_CONTRACTION "|" QWEN2_WORD "|[" N "]{1,3}+|" QWEN2_REST,
};

struct sits_tok_split {
	pcre2_code *code;
	bool jit;
};

int sits_tok_split_create(enum sits_tok_family family, bool jit, struct sits_tok_split **out, struct sits_diag *diag)
{
	struct sits_tok_split *s = calloc(1, sizeof(*s));
	PCRE2_SIZE where;
	int err;

	if (!s)
		return -ENOMEM;
	s->code = pcre2_compile((PCRE2_SPTR)patterns[family], PCRE2_ZERO_TERMINATED,
				PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &err, &where, NULL);
	if (!s->code) {
		free(s);
		if (err == PCRE2_ERROR_NOMEMORY)
			return -ENOMEM;
		return sits_diag_fail(diag, -EIO, "PCRE2 refuses the pre-tokenizer's pattern at offset %zu (error %d): was it built without Unicode?",
				      (size_t)where, err);
	}
	/* A process that may not map executable memory gets the interpreter. */
	s->jit = jit && !pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
	*out = s;
	return 0;
}

void sits_tok_split_destroy(struct sits_tok_split *s)
{
	if (!s)
		return;
	pcre2_code_free(s->code);
	free(s);
}

bool sits_tok_split_has_jit(const struct sits_tok_split *s)
{
	return s->jit;
}

/*
 * The lead byte says how many follow, and each of them must look like a continuation: nothing else
 * is checked, so overlong forms and surrogates pass. Return: bytes, or 0 for what is no character.
 */
static size_t decode_loosely(const uint8_t *p, size_t len, uint32_t *cp)
{
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf8 ? 4 : 0;
	size_t i;

	if (!n || n > len)
		return 0;
	*cp = n == 1 ? p[0] : p[0] & (0x7fu >> n);
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		*cp = *cp << 6 | (p[i] & 0x3f);
	}
	return *cp <= 0x10ffff ? n : 0;
}

static size_t encode(uint32_t cp, char *p)
{
	if (cp < 0x80) {
		p[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		p[0] = (char)(0xc0 | cp >> 6);
		p[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		p[0] = (char)(0xe0 | cp >> 12);
		p[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		p[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	p[0] = (char)(0xf0 | cp >> 18);
	p[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	p[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	p[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

static bool is_surrogate(uint32_t cp)
{
	return cp >= 0xd800 && cp < 0xe000;
}

/* Bytes up to the first that is not well-formed UTF-8. */
static size_t well_formed(const char *text, size_t len)
{
	static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
	const uint8_t *p = (const uint8_t *)text;
	size_t i = 0, n;
	uint32_t cp = 0;
	uint64_t w;

	while (i < len) {
		if (len - i >= 8) {
			memcpy(&w, p + i, 8);
			if (!(w & 0x8080808080808080ull)) {
				i += 8;
				continue;
			}
		}
		n = decode_loosely(p + i, len - i, &cp);
		if (!n || cp < least[n] || is_surrogate(cp))
			break;
		i += n;
	}
	return i;
}

/* Write the repaired text to @w->owned[0], and if it has surrogates the masked one to owned[1]. */
static int repair(struct sits_tok_words *w, const char *text, size_t len, size_t good)
{
	char *out = malloc(good + 3 * (len - good));
	bool masked = false;
	size_t i, n, o;
	uint32_t cp;

	w->owned[0] = out;
	if (!out)
		return -ENOMEM;
	memcpy(out, text, good);
	for (i = o = good; i < len; i += n) {
		n = decode_loosely((const uint8_t *)text + i, len - i, &cp);
		if (!n) {
			n = 1;
			cp = 0xfffd;
		}
		masked |= is_surrogate(cp);
		o += encode(cp, out + o);
	}
	w->text = w->subject = out;
	w->len = o;
	if (!masked)
		return 0;
	w->owned[1] = malloc(o);
	if (!w->owned[1])
		return -ENOMEM;
	memcpy(w->owned[1], out, o);
	for (i = good; i + 2 < o; i++)	/* ED A0..BF xx; neither letter, number nor space, like U+FFFD */
		if ((uint8_t)out[i] == 0xed && (uint8_t)out[i + 1] >= 0xa0)
			encode(0xfffd, w->owned[1] + i);
	w->subject = w->owned[1];
	return 0;
}

int sits_tok_words_init(struct sits_tok_words *w, const struct sits_tok_split *s, const char *text, size_t len,
			uint32_t match_limit)
{
	size_t good = well_formed(text, len);
	int ret;

	memset(w, 0, sizeof(*w));
	w->s = s;
	w->text = w->subject = text;
	w->len = len;
	if (good < len) {
		ret = repair(w, text, len, good);
		if (ret)
			return ret;
	}
	w->match = pcre2_match_data_create(1, NULL);
	w->limits = pcre2_match_context_create(NULL);
	if (!w->match || !w->limits)
		return -ENOMEM;
	/* A few steps for each character of the longest possible word; a quadratic pattern would not pass. */
	if (!match_limit)
		match_limit = w->len < (UINT32_MAX - 1000) / 4 ? 1000 + 4 * (uint32_t)w->len : UINT32_MAX;
	pcre2_set_match_limit(w->limits, match_limit);
	return 0;
}

void sits_tok_words_fini(struct sits_tok_words *w)
{
	pcre2_match_data_free(w->match);
	pcre2_match_context_free(w->limits);
	free(w->owned[0]);
	free(w->owned[1]);
}

int sits_tok_words_next(struct sits_tok_words *w, const char **word, size_t *len)
{
	PCRE2_SPTR subject = (PCRE2_SPTR)w->subject;
	int ret = PCRE2_ERROR_JIT_STACKLIMIT;

	if (w->pos == w->len)
		return 0;
	if (w->s->jit)
		ret = pcre2_jit_match(w->s->code, subject, w->len, w->pos, 0, w->match, w->limits);
	/* What the JIT's fixed stack can't hold, the interpreter's heap can. */
	if (ret == PCRE2_ERROR_JIT_STACKLIMIT)
		ret = pcre2_match(w->s->code, subject, w->len, w->pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
				  w->match, w->limits);
	if (ret == PCRE2_ERROR_NOMEMORY || ret == PCRE2_ERROR_HEAPLIMIT)
		return -ENOMEM;
	if (ret < 0 || pcre2_get_ovector_pointer(w->match)[1] <= w->pos)
		return -EIO;
	*word = w->text + w->pos;
	*len = pcre2_get_ovector_pointer(w->match)[1] - w->pos;
	w->pos += *len;
	return 1;
}
