// SPDX-License-Identifier: MIT
/*
 * tok_split.c - cut text into the words that byte-level BPE works on.
 *
 * A family is one or more stages, each a PCRE2 pattern. The first cuts the text into what it matches and what lies
 * between; each of these pieces is cut again by the next stage, to which it is a text of its own. Families of one
 * stage cover every character, so there is nothing between. Classes are spelled out so that they do not hang on the Unicode version of the PCRE2 at
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
/* Of tokenizer.json: (?i:'s), where U+017F is an s too. */
#define FOLD_CONTRACTION "'(?:[sS\\x{17f}tTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define QWEN2_WORD "[^\\r\\n" L N "]?+[" L "]++"
#define QWEN2_REST " ?+[^" S L N "]++[\\r\\n]*+|[" S "]*[\\r\\n]++|" SPACES

/* DeepSeek: the Latin, Greek, Cyrillic, ... letters that its first tokenizer lists one by one, and what it takes for Chinese. */
#define DEEPSEEK_LETTERS "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}" \
	"\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}" \
	"\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}" \
	"\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}" \
	"\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}" \
	"\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}" \
	"\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}" \
	"\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}" \
	"\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}" \
	"\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}" \
	"\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}" \
	"\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_MARKS "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"
#define DEEPSEEK_HAN "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]++"
/* White space at the end: a run of it is looked at once, from its start. */
#define LAST_SPACES "(?<![" S "])[" S "]++\\z"
#define DEEPSEEK3_REST "[!-/:-@\\[-`{-~][A-Za-z]++|[^\\r\\n\\p{P}\\p{S}\\p{M}" L "]?+[\\p{M}" L "]++| ?+[\\p{P}\\p{S}]++[\\r\\n]*+|" \
	"[" S "]*[\\r\\n]++|" SPACES

#define MAX_STAGES 6

static const char *const patterns[][MAX_STAGES] = {
	[SITS_TOK_GPT2] = { GPT2_CONTRACTION "| ?+[" L "]++| ?+[" N "]++| ?+[^" S L N "]++|" SPACES },
	/* Each number character is cut out first, so to white space it is the end of the text. */
	[SITS_TOK_SMOLLM] = { "[" N "]|" GPT2_CONTRACTION "| ?+[" L "]++| ?+[^" S L N "]++|"
			      "[" S "]+(?![^" S N "])|[" S "]++" },
	[SITS_TOK_QWEN2] = { ANY_CONTRACTION "|" QWEN2_WORD "|[" N "]|" QWEN2_REST },
	[SITS_TOK_LLAMA3] = { ANY_CONTRACTION "|" QWEN2_WORD "|[" N "]{1,3}+|" QWEN2_REST },
	[SITS_TOK_QWEN2_FOLD] = { FOLD_CONTRACTION "|" QWEN2_WORD "|[" N "]|" QWEN2_REST },
	[SITS_TOK_LLAMA3_FOLD] = { FOLD_CONTRACTION "|" QWEN2_WORD "|[" N "]{1,3}+|" QWEN2_REST },
	[SITS_TOK_DEEPSEEK_LLM] = { "[\\r\\n]", "[" S "]?+[" DEEPSEEK_LETTERS "]++", "[" S "]?[" DEEPSEEK_MARKS "]++", LAST_SPACES,
				    DEEPSEEK_HAN, "[" N "]++" },
	[SITS_TOK_DEEPSEEK2] = { "[\\r\\n]", "[" S "]?+[" DEEPSEEK_LETTERS "]++", "[" S "]?[" DEEPSEEK_MARKS "]++", LAST_SPACES,
				 DEEPSEEK_HAN, "[" N "]" },
	[SITS_TOK_DEEPSEEK_CODER] = { "[\\r\\n]", "[" S "]?+[" L "]++", "[" S "]?+\\p{P}++", DEEPSEEK_HAN, "[" N "]" },
	[SITS_TOK_DEEPSEEK3] = { "[" N "]{1,3}+", "[\\x{3040}-\\x{30ff}\\x{4e00}-\\x{9fa5}]++", DEEPSEEK3_REST },
};

/*
 * How a tokenizer.json spells the families: one text for each of its pre-tokenizers, with what is not ASCII as \x{...}.
 * "digits" cuts each number character out, "bytes" is ByteLevel with the pattern of GPT-2, which all others end in without.
 */
#define JSON_REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define JSON_WORD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define JSON_HAN "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

static const struct {
	enum sits_tok_family family;
	const char *stage[SITS_TOK_MAX_JSON_STAGES];
} spellings[] = {
	{ SITS_TOK_GPT2, { "bytes" } },
	{ SITS_TOK_GPT2, { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" } },
	{ SITS_TOK_SMOLLM, { "digits", "bytes" } },
	{ SITS_TOK_QWEN2_FOLD, { JSON_WORD "\\p{N}|" JSON_REST } },
	{ SITS_TOK_LLAMA3_FOLD, { JSON_WORD "\\p{N}{1,3}|" JSON_REST } },
	{ SITS_TOK_DEEPSEEK2, { "[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+", "\\s?[" DEEPSEEK_MARKS "]+", "\\s+$", JSON_HAN, "digits" } },
	{ SITS_TOK_DEEPSEEK_CODER, { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", JSON_HAN, "digits" } },
	{ SITS_TOK_DEEPSEEK3, { "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
				"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
				" ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
};

int sits_tok_split_spelled(const char *const *stage, size_t nr, enum sits_tok_family *family)
{
	size_t i, j;

	for (i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
		for (j = 0; j < nr && spellings[i].stage[j] && !strcmp(stage[j], spellings[i].stage[j]); j++)
			;
		if (j < nr || (j < SITS_TOK_MAX_JSON_STAGES && spellings[i].stage[j]))
			continue;
		*family = spellings[i].family;
		return 0;
	}
	return -EPROTONOSUPPORT;
}

struct sits_tok_split {
	pcre2_code *code[MAX_STAGES];
	unsigned int nr;
	bool jit;		/* of all stages */
};

_Static_assert(MAX_STAGES == sizeof(((struct sits_tok_words *)0)->stage) / sizeof(struct sits_tok_stage), "a state for each stage");

int sits_tok_split_create(enum sits_tok_family family, bool jit, struct sits_tok_split **out, struct sits_diag *diag)
{
	struct sits_tok_split *s = calloc(1, sizeof(*s));
	const char *const *pattern = patterns[family];
	uint32_t flags = PCRE2_UTF | PCRE2_UCP;
	PCRE2_SIZE where;
	int err;

	if (!s)
		return -ENOMEM;
	if (!pattern[1])
		flags |= PCRE2_ANCHORED;	/* it covers everything */
	s->jit = jit;
	for (; s->nr < MAX_STAGES && pattern[s->nr]; s->nr++) {
		s->code[s->nr] = pcre2_compile((PCRE2_SPTR)pattern[s->nr], PCRE2_ZERO_TERMINATED, flags, &err, &where, NULL);
		if (!s->code[s->nr]) {
			sits_tok_split_destroy(s);
			if (err == PCRE2_ERROR_NOMEMORY)
				return -ENOMEM;
			return sits_diag_fail(diag, -EIO, "PCRE2 refuses the pre-tokenizer's pattern at offset %zu (error %d): was it built without Unicode?",
					      (size_t)where, err);
		}
		/* A process that may not map executable memory gets the interpreter. */
		s->jit = s->jit && !pcre2_jit_compile(s->code[s->nr], PCRE2_JIT_COMPLETE);
	}
	*out = s;
	return 0;
}

void sits_tok_split_destroy(struct sits_tok_split *s)
{
	unsigned int i;

	if (!s)
		return;
	for (i = 0; i < s->nr; i++)
		pcre2_code_free(s->code[i]);
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

/*
 * Match stage @i in the piece [@from, @end), looking from @pos on: to the pattern it is the whole text.
 * Return: 1 and where the match is; 0 for none; -ENOMEM; -EIO where PCRE2 gave up.
 */
static int match(struct sits_tok_words *w, unsigned int i, size_t from, size_t end, size_t pos, size_t *start, size_t *stop)
{
	PCRE2_SPTR subject = (PCRE2_SPTR)w->subject + from;
	const PCRE2_SIZE *at;
	int ret = PCRE2_ERROR_JIT_STACKLIMIT;

	if (w->s->jit)
		ret = pcre2_jit_match(w->s->code[i], subject, end - from, pos - from, 0, w->match, w->limits);
	/* What the JIT's fixed stack can't hold, the interpreter's heap can. */
	if (ret == PCRE2_ERROR_JIT_STACKLIMIT)
		ret = pcre2_match(w->s->code[i], subject, end - from, pos - from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
				  w->match, w->limits);
	if (ret == PCRE2_ERROR_NOMATCH)
		return 0;
	if (ret == PCRE2_ERROR_NOMEMORY || ret == PCRE2_ERROR_HEAPLIMIT)
		return -ENOMEM;
	at = pcre2_get_ovector_pointer(w->match);
	if (ret < 0 || at[0] < pos - from || at[1] <= at[0])
		return -EIO;
	*start = from + at[0];
	*stop = from + at[1];
	return 1;
}

/* The next piece of stage @i. Return: 1 and the piece; 0 at the end; -errno. */
static int next_piece(struct sits_tok_words *w, unsigned int i, size_t *start, size_t *end)
{
	struct sits_tok_stage *st = &w->stage[i];
	int ret;

	if (st->pos == st->end) {
		if (i) {
			ret = next_piece(w, i - 1, &st->from, &st->end);
			if (ret <= 0)
				return ret;
		} else if (!w->len || st->end) {
			return 0;
		} else {
			st->end = w->len;
		}
		st->pos = st->match_start = st->match_end = st->from;
	}
	if (st->pos == st->match_end) {
		ret = match(w, i, st->from, st->end, st->pos, &st->match_start, &st->match_end);
		if (ret < 0)
			return ret;
		if (!ret)
			st->match_start = st->match_end = st->end;
	}
	*start = st->pos;
	st->pos = *end = st->pos < st->match_start ? st->match_start : st->match_end;
	return 1;
}

int sits_tok_words_next(struct sits_tok_words *w, const char **word, size_t *len)
{
	size_t start = w->pos, end = 0;
	int ret;

	if (w->s->nr == 1) {
		if (w->pos == w->len)
			return 0;
		ret = match(w, 0, 0, w->len, w->pos, &start, &end);
		if (!ret)
			ret = -EIO;	/* the pattern covers everything */
	} else {
		ret = next_piece(w, w->s->nr - 1, &start, &end);
	}
	if (ret <= 0)
		return ret;
	*word = w->text + start;
	*len = end - start;
	w->pos = end;
	return 1;
}
