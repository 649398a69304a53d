// SPDX-License-Identifier: MIT
/*
 * tok_json.c - see tok_json.h.
 *
 * tokenizer.json is a list of components that run one after the other: added tokens, normalizer, pre-tokenizer, model,
 * post-processor, decoder. Of each there are some that models of the supported architectures use, and those are read here,
 * every key of them: one that is not known might change ids.
 *
 * Source: the components' documentation of Hugging Face tokenizers, and the files of the models named in docs/tokenizers.md.
 */
#include "daemon/model/tok_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/json.h"

#define FILE_NAME	"tokenizer.json"
#define CONFIG_NAME	"tokenizer_config.json"
#define MARK		SITS_TOK_MARK

/* Gemma's, the largest vocabulary in use, has 33 MB and two million values. */
static const struct sits_json_limits tokenizer_limits = { .bytes = 128u << 20, .values = 6u << 20 };
static const struct sits_json_limits config_limits = { .bytes = 16u << 20, .values = 512u << 10 };

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

struct reader {
	const struct sits_tok_json_src *src;
	struct sits_meta *meta;
	struct sits_tok_json *out;
	struct sits_diag *diag;
	json_t *config;			/* tokenizer_config.json, or NULL */
	struct sits_str *text;		/* [nr]: of each id; p NULL: a hole */
	int32_t *type;			/* [nr] */
	uint32_t nr;
	bool byte_fallback;
	int64_t bos, eos, unknown;	/* -1: none */
	int64_t template_bos, template_eos;	/* what the post-processor puts around a text */
	bool replaces, prepends, metaspace;	/* how spaces become marks */
};

static int unsupported(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int unsupported(struct reader *r, const char *fmt, ...)
{
	char words[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	return sits_diag_fail(r->diag, -EPROTONOSUPPORT, FILE_NAME ": %s", words);
}

static int bad(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int bad(struct reader *r, const char *fmt, ...)
{
	char words[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	return sits_diag_fail(r->diag, -EBADMSG, FILE_NAME ": %s", words);
}

/* ------------------------------------------------------------------ helpers */

/* The "type" of a component; "" where there is none. */
static const char *type_of(const json_t *v)
{
	const char *s = json_string_value(json_object_get(v, "type"));

	return s ? s : "";
}

static bool is_type(const json_t *v, const char *type)
{
	return !strcmp(type_of(v), type);
}

static bool is_null(const json_t *v)
{
	return !v || json_is_null(v);
}

/* Refuse keys of a component that are not in the NULL-terminated list. */
static int only_keys(struct reader *r, const json_t *v, const char *where, const char *const *known)
{
	const char *const *k;
	const char *key;
	json_t *unused;

	if (!json_is_object(v))
		return bad(r, "%s is not an object", where);
	json_object_foreach((json_t *)v, key, unused) {
		for (k = known; *k && strcmp(*k, key); k++)
			;
		if (!*k)
			return unsupported(r, "%s.%.60s is not known here and might change tokens", where, key);
	}
	return 0;
}

/* A boolean key; @dflt where it is absent or null. */
static int get_flag(struct reader *r, const json_t *v, const char *where, const char *key, bool dflt, bool *flag)
{
	const json_t *f = json_object_get(v, key);

	*flag = dflt;
	if (is_null(f))
		return 0;
	if (!json_is_boolean(f))
		return bad(r, "%s.%s is not a boolean", where, key);
	*flag = json_is_true(f);
	return 0;
}

/* A key that changes tokens where it is set; it must be null, false, 0 or "". */
static int must_be_off(struct reader *r, const json_t *v, const char *where, const char *key)
{
	const json_t *f = json_object_get(v, key);

	if (is_null(f) || json_is_false(f) || (json_is_number(f) && json_number_value(f) == 0) ||
	    (json_is_string(f) && !*json_string_value(f)))
		return 0;
	return unsupported(r, "%s.%s is set, which is not supported", where, key);
}

/* {"String": "..."} or {"Regex": "..."} */
static const char *pattern_of(const json_t *v, const char *kind)
{
	return json_string_value(json_object_get(json_object_get(v, "pattern"), kind));
}

/* The members of a Sequence, or the component itself. */
static int count_members(struct reader *r, const json_t *v, const char *where, const char *list, size_t *nr)
{
	const json_t *members = json_object_get(v, list);

	*nr = is_type(v, "Sequence") ? json_array_size(members) : 1;
	return !is_type(v, "Sequence") || json_is_array(members) ? 0 : bad(r, "%s.%s is not a list", where, list);
}

static const json_t *member(const json_t *v, const char *list, size_t i)
{
	return is_type(v, "Sequence") ? json_array_get(json_object_get(v, list), i) : v;
}

/* ------------------------------------------------------------------ vocabulary */

static bool is_byte_text(struct sits_str s)
{
	return sits_tok_byte_value(s) >= 0;
}

/* Room for all ids: the highest of the vocabulary and the added tokens, and the rows of the embedding. */
static int count_ids(struct reader *r, const json_t *vocab, const json_t *added)
{
	int64_t top = -1, id;
	const char *key;
	json_t *v;
	size_t i;

	json_object_foreach((json_t *)vocab, key, v) {
		id = json_is_integer(v) ? json_integer_value(v) : -1;
		if (id < 0 || id >= SITS_TOK_MAX_VOCAB)
			return bad(r, "model.vocab: token \"%.40s\" has no id from 0 to %u", key, SITS_TOK_MAX_VOCAB - 1);
		top = id > top ? id : top;
	}
	json_array_foreach((json_t *)added, i, v) {
		v = json_object_get(v, "id");
		id = json_is_integer(v) ? json_integer_value(v) : -1;
		if (id < 0 || id >= SITS_TOK_MAX_VOCAB)
			return bad(r, "added_tokens: number %zu has no id from 0 to %u", i, SITS_TOK_MAX_VOCAB - 1);
		top = id > top ? id : top;
	}
	if (top < 0)
		return bad(r, "model.vocab has no tokens");
	if (r->src->vocab && top >= r->src->vocab)
		return bad(r, "token id %" PRId64 " is beyond config.json's vocab_size, %u", top, r->src->vocab);
	r->nr = r->src->vocab ? r->src->vocab : (uint32_t)top + 1;
	/* A hole costs memory and says nothing; padding is some hundreds. */
	if (r->nr > 4096 + 2 * (json_object_size(vocab) + json_array_size(added)))
		return bad(r, "%zu tokens for %u ids", json_object_size(vocab) + json_array_size(added), r->nr);
	r->text = calloc(r->nr, sizeof(*r->text));
	r->type = calloc(r->nr, sizeof(*r->type));
	r->out->attr = calloc(r->nr, sizeof(*r->out->attr));
	return r->text && r->type && r->out->attr ? 0 : -ENOMEM;
}

static int put_token(struct reader *r, const char *text, uint32_t id, int32_t type)
{
	struct sits_str *t = &r->text[id];

	if (t->p && strcmp(t->p, text))
		return bad(r, "tokens \"%.40s\" and \"%.40s\" have one id, %u", t->p, text, id);
	*t = (struct sits_str){ text, strlen(text) };
	r->type[id] = type;
	return 0;
}

static int read_vocab(struct reader *r, const json_t *vocab)
{
	const char *key;
	json_t *v;
	int ret;

	json_object_foreach((json_t *)vocab, key, v) {
		struct sits_str s = { key, strlen(key) };

		if (!s.len)
			return bad(r, "model.vocab has an empty token");
		ret = put_token(r, key, (uint32_t)json_integer_value(v), r->byte_fallback && is_byte_text(s) ? TYPE_BYTE : TYPE_NORMAL);
		if (ret)
			return ret;
	}
	return 0;
}

static int read_added_token(struct reader *r, const json_t *v, const json_t *vocab)
{
	static const char *const known[] = { "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", NULL };
	const char *text = json_string_value(json_object_get(v, "content"));
	uint32_t id = (uint32_t)json_integer_value(json_object_get(v, "id"));
	bool special, left, right, late;
	const json_t *own;
	int ret = only_keys(r, v, "added_tokens[]", known);

	if (ret)
		return ret;
	if (!text || !*text)
		return bad(r, "added_tokens: token %u has no content", id);
	own = json_object_get(vocab, text);
	if (own && json_integer_value(own) != id)
		return bad(r, "added_tokens: \"%.60s\" has the id %u, in model.vocab it is %" PRId64, text, id,
			   (int64_t)json_integer_value(own));
	if (r->type[id] && r->type[id] != TYPE_NORMAL && r->type[id] != TYPE_BYTE)
		return bad(r, "added_tokens: two have the id %u", id);
	ret = must_be_off(r, v, "added_tokens[]", "single_word");
	if (!ret)
		ret = get_flag(r, v, "added_tokens[]", "special", false, &special);
	if (!ret)
		ret = get_flag(r, v, "added_tokens[]", "lstrip", false, &left);
	if (!ret)
		ret = get_flag(r, v, "added_tokens[]", "rstrip", false, &right);
	if (!ret)
		ret = get_flag(r, v, "added_tokens[]", "normalized", !special, &late);
	if (!ret)
		ret = put_token(r, text, id, special ? TYPE_CONTROL : TYPE_USER);
	if (!ret)
		r->out->attr[id] = (left ? SITS_TOK_ATTR_LSTRIP : 0) | (right ? SITS_TOK_ATTR_RSTRIP : 0) |
				   (late ? SITS_TOK_ATTR_LATE : 0);
	return ret;
}

static int read_added(struct reader *r, const json_t *added, const json_t *vocab)
{
	size_t i;
	json_t *v;
	int ret;

	json_array_foreach((json_t *)added, i, v) {
		ret = read_added_token(r, v, vocab);
		if (ret)
			return ret;
	}
	return 0;
}

/* "LEFT RIGHT", or ["LEFT", "RIGHT"]. */
static int cut_merge(const json_t *v, struct sits_tok_merge_text *m)
{
	const char *s = json_string_value(v), *space, *right;

	if (s) {
		space = *s ? strchr(s + 1, ' ') : NULL;
		if (!space)
			return -EBADMSG;
		*m = (struct sits_tok_merge_text){ { s, (size_t)(space - s) }, { space + 1, strlen(space + 1) } };
		return 0;
	}
	s = json_string_value(json_array_get(v, 0));
	right = json_string_value(json_array_get(v, 1));
	if (json_array_size(v) != 2 || !s || !right)
		return -EBADMSG;
	*m = (struct sits_tok_merge_text){ { s, strlen(s) }, { right, strlen(right) } };
	return 0;
}

static int read_merges(struct reader *r, const json_t *merges)
{
	size_t i, nr = json_array_size(merges);
	json_t *v;

	if (!json_is_array(merges) || nr > SITS_TOK_MAX_MERGES)
		return bad(r, "model.merges is %s", !merges ? "missing" : nr ? "too long" : "not an array");
	r->out->merge = calloc(nr + 1, sizeof(*r->out->merge));
	if (!r->out->merge)
		return -ENOMEM;
	json_array_foreach((json_t *)merges, i, v)
		if (cut_merge(v, &r->out->merge[i]))
			return bad(r, "model.merges: number %zu is neither \"LEFT RIGHT\" nor [\"LEFT\", \"RIGHT\"]", i);
	r->out->ext.merge = r->out->merge;
	r->out->ext.nr_merges = (uint32_t)nr;
	return 0;
}

/* The id of a text, or -1. */
static int64_t find_text(const struct reader *r, const json_t *vocab, const json_t *added, const char *text)
{
	const json_t *id = json_object_get(vocab, text);
	size_t i;
	json_t *v;

	if (id)
		return json_integer_value(id);
	json_array_foreach((json_t *)added, i, v) {
		const char *s = json_string_value(json_object_get(v, "content"));

		if (s && !strcmp(s, text))
			return json_integer_value(json_object_get(v, "id"));
	}
	return -1;
}

static int read_model(struct reader *r, const json_t *m, const json_t *added)
{
	static const char *const known[] = {
		"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
		"ignore_merges", "vocab", "merges", NULL,
	};
	const json_t *vocab = json_object_get(m, "vocab"), *unknown = json_object_get(m, "unk_token");
	struct sits_tok_ext *e = &r->out->ext;
	int ret = only_keys(r, m, "model", known);

	if (ret)
		return ret;
	if (json_object_get(m, "type") && !is_type(m, "BPE"))
		return unsupported(r, "model.type is \"%.40s\"; only BPE is supported", type_of(m));
	if (!json_is_object(vocab))
		return bad(r, "model.vocab is %s", vocab ? "not an object" : "missing");
	ret = must_be_off(r, m, "model", "dropout");
	if (!ret)
		ret = must_be_off(r, m, "model", "continuing_subword_prefix");
	if (!ret)
		ret = must_be_off(r, m, "model", "end_of_word_suffix");
	if (!ret)
		ret = get_flag(r, m, "model", "fuse_unk", false, &e->fuse_unknown);
	if (!ret)
		ret = get_flag(r, m, "model", "byte_fallback", false, &e->byte_fallback);
	if (!ret)
		ret = get_flag(r, m, "model", "ignore_merges", false, &e->ignore_merges);
	if (ret)
		return ret;
	r->byte_fallback = e->byte_fallback;
	ret = count_ids(r, vocab, added);
	if (!ret)
		ret = read_vocab(r, vocab);
	if (!ret)
		ret = read_added(r, added, vocab);
	if (!ret)
		ret = read_merges(r, json_object_get(m, "merges"));
	if (ret || is_null(unknown))
		return ret;
	r->unknown = json_is_string(unknown) ? find_text(r, vocab, added, json_string_value(unknown)) : -1;
	if (r->unknown < 0)
		return bad(r, "model.unk_token is no token");
	return 0;
}

/* ------------------------------------------------------------------ normalizer, pre-tokenizer */

static int read_normalizer(struct reader *r, const json_t *n)
{
	static const char *const type_only[] = { "type", NULL };
	static const char *const prepend[] = { "type", "prepend", NULL };
	static const char *const replace[] = { "type", "pattern", "content", NULL };
	const char *from, *to;

	if (is_type(n, "NFC")) {
		if (r->replaces || r->prepends)
			return unsupported(r, "normalizer: NFC after other normalizers is not supported");
		r->out->ext.nfc = true;
		return only_keys(r, n, "normalizer", type_only);
	}
	if (is_type(n, "Prepend")) {
		to = json_string_value(json_object_get(n, "prepend"));
		if (!to || strcmp(to, MARK) || r->replaces || r->prepends)
			return unsupported(r, "normalizer: Prepend of anything but one U+2581, before Replace, is not supported");
		r->prepends = true;
		return only_keys(r, n, "normalizer", prepend);
	}
	if (is_type(n, "Replace")) {
		from = pattern_of(n, "String");
		to = json_string_value(json_object_get(n, "content"));
		if (!from || strcmp(from, " ") || !to || strcmp(to, MARK) || r->replaces)
			return unsupported(r, "normalizer: Replace of anything but a space by U+2581 is not supported");
		r->replaces = true;
		return only_keys(r, n, "normalizer", replace);
	}
	return unsupported(r, "normalizer \"%.40s\" is not supported; supported: NFC, Prepend, Replace, Sequence", type_of(n));
}

static int read_normalizers(struct reader *r, const json_t *n)
{
	size_t i, nr;
	int ret;

	if (is_null(n))
		return 0;
	ret = count_members(r, n, "normalizer", "normalizers", &nr);
	for (i = 0; i < nr && !ret; i++)
		ret = read_normalizer(r, member(n, "normalizers", i));
	if (!ret && r->prepends && !r->replaces)
		ret = unsupported(r, "normalizer: Prepend without Replace is not supported");
	return ret;
}

static int read_metaspace(struct reader *r, const json_t *p)
{
	static const char *const known[] = { "type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep", NULL };
	const char *mark = json_string_value(json_object_get(p, "replacement"));
	const char *scheme = json_string_value(json_object_get(p, "prepend_scheme"));
	struct sits_tok_ext *e = &r->out->ext;
	bool prefix;
	int ret = only_keys(r, p, "pre_tokenizer", known);

	if (!ret)
		ret = get_flag(r, p, "pre_tokenizer", "split", true, &e->cut_at_marks);
	if (!ret)
		ret = get_flag(r, p, "pre_tokenizer", "add_prefix_space", true, &prefix);
	if (ret)
		return ret;
	if (!mark || strcmp(mark, MARK))
		return unsupported(r, "pre_tokenizer.replacement is not U+2581");
	if (r->replaces || r->prepends)
		return unsupported(r, "pre_tokenizer Metaspace after the normalizer Replace is not supported");
	r->metaspace = true;
	if (!scheme)
		scheme = prefix ? "always" : "never";
	if (!strcmp(scheme, "always"))
		e->prefix = SITS_TOK_PREFIX_UNLESS_MARK;
	else if (!strcmp(scheme, "first"))
		e->prefix = SITS_TOK_PREFIX_FIRST;
	else if (!strcmp(scheme, "never"))
		e->prefix = SITS_TOK_PREFIX_NONE;
	else
		return unsupported(r, "pre_tokenizer.prepend_scheme is \"%.40s\"", scheme);
	return 0;
}

/* A pattern in ASCII: other characters as \x{...}, line ends as \r and \n. Return: 0, or -EMSGSIZE. */
static int spell(const char *s, char *out, size_t size)
{
	const uint8_t *p = (const uint8_t *)s;
	size_t o = 0, n, i;
	uint32_t cp;

	for (; *p; p += n) {
		n = sits_tok_char_len(*p);	/* jansson has seen to it that this is UTF-8 */
		cp = n == 1 ? *p : *p & (0x7fu >> n);
		for (i = 1; i < n; i++)
			cp = cp << 6 | (p[i] & 0x3f);
		if (o + 16 > size)
			return -EMSGSIZE;
		if (cp == '\r' || cp == '\n')
			o += (size_t)snprintf(out + o, size - o, "\\%c", cp == '\r' ? 'r' : 'n');
		else if (cp < 0x80)
			out[o++] = (char)cp;
		else
			o += (size_t)snprintf(out + o, size - o, "\\x{%x}", cp);
	}
	out[o] = '\0';
	return 0;
}

#define SPELLED_MAX 4096

/* The stages of a byte-level pre-tokenizer, to find its family by. */
struct stages {
	char text[SITS_TOK_MAX_JSON_STAGES][SPELLED_MAX];
	const char *stage[SITS_TOK_MAX_JSON_STAGES];
	size_t nr;
	bool bytes;		/* ByteLevel was seen: nothing may follow it */
};

static int add_stage(struct reader *r, struct stages *s, const char *text)
{
	if (s->nr == SITS_TOK_MAX_JSON_STAGES)
		return unsupported(r, "pre_tokenizer: more than %d in a sequence", SITS_TOK_MAX_JSON_STAGES);
	if (spell(text, s->text[s->nr], SPELLED_MAX))
		return unsupported(r, "pre_tokenizer: a pattern is too long to be one that is known");
	s->stage[s->nr] = s->text[s->nr];
	s->nr++;
	return 0;
}

static int read_split(struct reader *r, const json_t *p, struct stages *s)
{
	static const char *const known[] = { "type", "pattern", "behavior", "invert", NULL };
	const char *regex = pattern_of(p, "Regex"), *behavior = json_string_value(json_object_get(p, "behavior"));
	int ret = only_keys(r, p, "pre_tokenizer", known);

	if (!ret)
		ret = must_be_off(r, p, "pre_tokenizer", "invert");
	if (ret)
		return ret;
	if (!regex || !behavior || strcmp(behavior, "Isolated"))
		return unsupported(r, "pre_tokenizer: a Split that is not by a Regex with behavior Isolated is not supported");
	return add_stage(r, s, regex);
}

static int read_byte_level(struct reader *r, const json_t *p, struct stages *s)
{
	static const char *const known[] = { "type", "add_prefix_space", "trim_offsets", "use_regex", NULL };
	bool prefix, regex = true;
	int ret = only_keys(r, p, "pre_tokenizer", known);

	if (!ret)
		ret = get_flag(r, p, "pre_tokenizer", "add_prefix_space", true, &prefix);
	if (!ret)
		ret = get_flag(r, p, "pre_tokenizer", "use_regex", true, &regex);
	if (ret)
		return ret;
	if (prefix)
		return unsupported(r, "pre_tokenizer ByteLevel with add_prefix_space is not supported");
	s->bytes = true;
	return regex ? add_stage(r, s, "bytes") : 0;
}

static int read_stage(struct reader *r, const json_t *p, struct stages *s)
{
	static const char *const digits[] = { "type", "individual_digits", NULL };
	bool each = false;
	int ret;

	if (s->bytes)
		return unsupported(r, "pre_tokenizer \"%.40s\" after ByteLevel is not supported", type_of(p));
	if (is_type(p, "ByteLevel"))
		return read_byte_level(r, p, s);
	if (is_type(p, "Split"))
		return read_split(r, p, s);
	if (!is_type(p, "Digits"))
		return unsupported(r, "pre_tokenizer \"%.40s\" is not supported here; supported: ByteLevel, Split, Digits, Metaspace, Sequence",
				   type_of(p));
	ret = only_keys(r, p, "pre_tokenizer", digits);
	if (!ret)
		ret = get_flag(r, p, "pre_tokenizer", "individual_digits", false, &each);
	if (!ret && !each)
		ret = unsupported(r, "pre_tokenizer Digits without individual_digits is not supported");
	return ret ? ret : add_stage(r, s, "digits");
}

static int read_stages(struct reader *r, const json_t *p)
{
	struct stages *s = calloc(1, sizeof(*s));
	size_t i, nr = 0;
	int ret = s ? count_members(r, p, "pre_tokenizer", "pretokenizers", &nr) : -ENOMEM;

	for (i = 0; i < nr && !ret; i++)
		ret = read_stage(r, member(p, "pretokenizers", i), s);
	if (!ret && !s->bytes)
		ret = unsupported(r, "pre_tokenizer: no ByteLevel at its end");
	if (!ret && sits_tok_split_spelled(s->stage, s->nr, &r->out->ext.family))
		ret = unsupported(r, "pre_tokenizer: a pattern is not one of those known: %.200s", s->nr ? s->stage[0] : "(none)");
	free(s);
	return ret;
}

/* Characters or bytes, and how text is cut. */
static int read_pre_tokenizer(struct reader *r, const json_t *p)
{
	struct sits_tok_ext *e = &r->out->ext;
	const json_t *one;
	size_t nr = 0;
	int ret = is_null(p) ? 0 : count_members(r, p, "pre_tokenizer", "pretokenizers", &nr);

	if (ret)
		return ret;
	one = nr == 1 ? member(p, "pretokenizers", 0) : NULL;
	if (one && is_type(one, "Metaspace"))
		ret = read_metaspace(r, one);
	else if (!is_null(p))
		e->byte_level = true;
	if (ret)
		return ret;
	if (e->byte_level) {
		if (r->replaces)
			return unsupported(r, "normalizer Replace with the pre_tokenizer ByteLevel is not supported");
		if (e->byte_fallback || r->unknown >= 0)
			return unsupported(r, "model.byte_fallback or unk_token with the pre_tokenizer ByteLevel is not supported");
		return read_stages(r, p);
	}
	if (!r->metaspace && !r->replaces)
		return unsupported(r, "neither a ByteLevel nor a Metaspace pre_tokenizer nor a normalizer that replaces spaces");
	if (r->replaces) {
		e->marks_early = true;
		e->prefix = r->prepends ? SITS_TOK_PREFIX_ALWAYS : SITS_TOK_PREFIX_NONE;
	}
	return 0;
}

/* ------------------------------------------------------------------ decoder, post-processor */

/* Pieces are made by the kind of vocabulary; a decoder that says otherwise is refused. */
static int read_decoder(struct reader *r, const json_t *d)
{
	static const char *const chars[] = { "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", NULL };
	size_t i, nr;
	int ret;

	if (is_null(d))
		return 0;
	ret = count_members(r, d, "decoder", "decoders", &nr);
	if (ret)
		return ret;
	for (i = 0; i < nr; i++) {
		const char *type = type_of(member(d, "decoders", i));
		const char *const *c = chars;

		if (r->out->ext.byte_level && !strcmp(type, "ByteLevel"))
			continue;
		while (!r->out->ext.byte_level && *c && strcmp(*c, type))
			c++;
		if (r->out->ext.byte_level || !*c)
			return unsupported(r, "decoder \"%.40s\" is not supported for this kind of vocabulary", type);
	}
	return 0;
}

/* A token of a template: its one id. */
static int template_id(struct reader *r, const json_t *t, const json_t *item, int64_t *id)
{
	const char *name = json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
	const json_t *ids = name ? json_object_get(json_object_get(json_object_get(t, "special_tokens"), name), "ids") : NULL;
	const json_t *v = json_array_get(ids, 0);

	if (json_array_size(ids) != 1 || !json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= r->nr)
		return unsupported(r, "post_processor: a template's item is not one known token");
	*id = json_integer_value(v);
	return 0;
}

static int read_template(struct reader *r, const json_t *t)
{
	static const char *const known[] = { "type", "single", "pair", "special_tokens", NULL };
	const json_t *single = json_object_get(t, "single");
	bool seen = false;
	size_t i;
	json_t *item;
	int ret = only_keys(r, t, "post_processor", known);

	json_array_foreach((json_t *)single, i, item) {
		if (ret)
			return ret;
		if (json_object_get(item, "Sequence")) {
			ret = seen ? unsupported(r, "post_processor: a template has the text twice") : 0;
			seen = true;
		} else if (seen ? r->template_eos >= 0 : r->template_bos >= 0) {
			ret = unsupported(r, "post_processor: more than one token on a side of the text is not supported");
		} else {
			ret = template_id(r, t, item, seen ? &r->template_eos : &r->template_bos);
		}
	}
	if (!ret && !seen)
		ret = bad(r, "post_processor: a template without the text");
	return ret;
}

static int read_post_processor(struct reader *r, const json_t *p)
{
	size_t i, nr;
	int ret;

	if (is_null(p))
		return 0;
	ret = count_members(r, p, "post_processor", "processors", &nr);
	for (i = 0; i < nr && !ret; i++) {
		const json_t *m = member(p, "processors", i);

		if (is_type(m, "TemplateProcessing"))
			ret = read_template(r, m);
		else if (!is_type(m, "ByteLevel"))	/* changes offsets only */
			ret = unsupported(r, "post_processor \"%.40s\" is not supported; supported: TemplateProcessing, ByteLevel, Sequence",
					  type_of(m));
	}
	return ret;
}

/* ------------------------------------------------------------------ tokenizer_config.json */

/* "<s>" or {"content": "<s>", ...}; *id stays where it is null. */
static int config_token(struct reader *r, const char *key, const json_t *vocab, const json_t *added, int64_t *id)
{
	const json_t *v = json_object_get(r->config, key);
	const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

	if (is_null(v))
		return 0;
	*id = s ? find_text(r, vocab, added, s) : -1;
	if (*id < 0)
		return sits_diag_fail(r->diag, -EBADMSG, CONFIG_NAME ": %s, \"%.60s\", is no token of " FILE_NAME, key, s ? s : "?");
	return 0;
}

static int config_flag(struct reader *r, const char *key, bool *flag)
{
	const json_t *v = json_object_get(r->config, key);

	if (is_null(v))
		return 0;
	if (!json_is_boolean(v))
		return sits_diag_fail(r->diag, -EBADMSG, CONFIG_NAME ": %s is not a boolean", key);
	*flag = json_is_true(v);
	return 0;
}

/* A text, or a list of named ones of which "default" counts. */
static int read_chat(struct reader *r)
{
	const json_t *v = json_object_get(r->config, "chat_template"), *item;
	const char *name, *text = json_string_value(v);
	size_t i;

	if (r->src->chat.p) {
		sits_meta_str(r->meta, "tokenizer.chat_template", r->src->chat.p, r->src->chat.len);
		return 0;
	}
	for (i = 0; i < json_array_size(v) && !text; i++) {
		item = json_array_get(v, i);
		name = json_string_value(json_object_get(item, "name"));
		if (name && !strcmp(name, "default"))
			text = json_string_value(json_object_get(item, "template"));
	}
	if (!is_null(v) && !text)
		return sits_diag_fail(r->diag, -EBADMSG, CONFIG_NAME ": chat_template is neither a text nor a list with one named default");
	if (text)
		sits_meta_str(r->meta, "tokenizer.chat_template", text, strlen(text));
	return 0;
}

/* Who starts and ends a text: the configuration, else the template, as transformers has it. */
static int read_edges(struct reader *r, const json_t *vocab, const json_t *added, bool *add_bos, bool *add_eos)
{
	bool split = false, prefix = false;
	int ret;

	r->bos = r->src->bos;
	r->eos = r->src->nr_end ? r->src->end[0] : -1;
	ret = config_token(r, "bos_token", vocab, added, &r->bos);
	if (!ret)
		ret = config_token(r, "eos_token", vocab, added, &r->eos);
	*add_bos = r->template_bos >= 0;
	*add_eos = r->template_eos >= 0;
	if (!ret)
		ret = config_flag(r, "add_bos_token", add_bos);
	if (!ret)
		ret = config_flag(r, "add_eos_token", add_eos);
	if (!ret)
		ret = config_flag(r, "split_special_tokens", &split);
	if (!ret)
		ret = config_flag(r, "add_prefix_space", &prefix);
	if (ret)
		return ret;
	if (split || (prefix && r->out->ext.byte_level))
		return sits_diag_fail(r->diag, -EPROTONOSUPPORT, CONFIG_NAME ": %s is true, which is not supported",
				      split ? "split_special_tokens" : "add_prefix_space");
	if (*add_bos && r->template_bos >= 0)
		r->bos = r->template_bos;
	if (*add_eos && r->template_eos >= 0 && r->eos < 0)
		r->eos = r->template_eos;
	if (*add_eos && r->template_eos >= 0 && r->template_eos != r->eos)
		return sits_diag_fail(r->diag, -EPROTONOSUPPORT, FILE_NAME ": post_processor ends a text with token %" PRId64
				      ", which is not eos_token, %" PRId64, r->template_eos, r->eos);
	if ((*add_bos && r->bos < 0) || (*add_eos && r->eos < 0))
		return sits_diag_fail(r->diag, -EBADMSG, CONFIG_NAME ": %s is true, but there is no %s", *add_bos && r->bos < 0 ?
				      "add_bos_token" : "add_eos_token", *add_bos && r->bos < 0 ? "bos_token" : "eos_token");
	return 0;
}

/* ------------------------------------------------------------------ what comes out */

static int put_id(struct reader *r, const char *key, int64_t id, const char *what)
{
	if (id < 0)
		return 0;
	if (id >= r->nr || !r->text[id].len)
		return sits_diag_fail(r->diag, -EBADMSG, "%s, %" PRId64 ", is no token of " FILE_NAME, what, id);
	sits_meta_u32(r->meta, key, (uint32_t)id);
	return 0;
}

static int put_meta(struct reader *r, bool add_bos, bool add_eos)
{
	size_t i;
	int ret;

	for (i = 0; i < r->nr; i++)
		if (!r->text[i].p) {
			r->text[i] = (struct sits_str){ "", 0 };
			r->type[i] = TYPE_UNUSED;
		}
	for (i = 0; i < r->src->nr_end; i++) {
		if (r->src->end[i] < 0 || r->src->end[i] >= r->nr)
			return sits_diag_fail(r->diag, -EBADMSG, "config.json or generation_config.json: eos_token_id: %" PRId64
					      ", but there are %u tokens", r->src->end[i], r->nr);
		r->out->attr[r->src->end[i]] |= SITS_TOK_ATTR_EOG;
	}
	if (r->unknown >= 0)
		r->type[r->unknown] = TYPE_UNKNOWN;
	sits_meta_strs(r->meta, "tokenizer.ggml.tokens", r->text, r->nr);
	sits_meta_i32s(r->meta, "tokenizer.ggml.token_type", r->type, r->nr);
	sits_meta_bool(r->meta, "tokenizer.ggml.add_bos_token", add_bos);
	sits_meta_bool(r->meta, "tokenizer.ggml.add_eos_token", add_eos);
	ret = put_id(r, "tokenizer.ggml.bos_token_id", r->bos, "bos_token");
	if (!ret)
		ret = put_id(r, "tokenizer.ggml.eos_token_id", r->eos, "eos_token");
	if (!ret)
		ret = put_id(r, "tokenizer.ggml.unknown_token_id", r->unknown, "model.unk_token");
	r->out->ext.attr = r->out->attr;
	return ret;
}

static int read_all(struct reader *r)
{
	static const char *const known[] = {
		"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model", NULL,
	};
	const json_t *root = r->out->root, *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
	const json_t *vocab = json_object_get(model, "vocab");
	bool add_bos, add_eos;
	int ret = only_keys(r, root, "the file", known);

	if (!ret && !json_is_object(model))
		ret = bad(r, "model is %s", model ? "not an object" : "missing");
	if (!ret && !is_null(added) && !json_is_array(added))
		ret = bad(r, "added_tokens is not an array");
	if (!ret)
		ret = read_model(r, model, added);
	if (!ret)
		ret = read_normalizers(r, json_object_get(root, "normalizer"));
	if (!ret)
		ret = read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer"));
	if (!ret)
		ret = read_decoder(r, json_object_get(root, "decoder"));
	if (!ret)
		ret = read_post_processor(r, json_object_get(root, "post_processor"));
	if (!ret)
		ret = read_edges(r, vocab, added, &add_bos, &add_eos);
	if (!ret)
		ret = put_meta(r, add_bos, add_eos);
	return ret ? ret : read_chat(r);
}

int sits_tok_json_read(const struct sits_tok_json_src *src, struct sits_meta *meta, struct sits_tok_json *out,
		       struct sits_diag *diag)
{
	struct reader r = { .src = src, .meta = meta, .out = out, .diag = diag, .bos = -1, .eos = -1, .unknown = -1,
			    .template_bos = -1, .template_eos = -1 };
	int ret;

	memset(out, 0, sizeof(*out));
	ret = sits_json_parse(FILE_NAME, src->tokenizer.p, src->tokenizer.len, &tokenizer_limits, &out->root, diag);
	if (!ret && src->config.p)
		ret = sits_json_parse(CONFIG_NAME, src->config.p, src->config.len, &config_limits, &r.config, diag);
	if (!ret)
		ret = read_all(&r);
	json_decref(r.config);
	free(r.text);
	free(r.type);
	return ret == -ENOMEM ? sits_diag_fail(diag, ret, "no memory for " FILE_NAME) : ret;
}

/* Are the tokens of @g those that the tokenizer.json gave? */
static int same_tokens(const struct sits_gguf *g, const uint8_t *image, size_t len, struct sits_diag *diag)
{
	struct sits_gguf_array a, b, at, bt;
	struct sits_gguf *own;
	uint64_t i;
	int ret = sits_gguf_open(image, len, &own, diag);

	if (ret)
		return ret;
	ret = sits_gguf_get_array(own, "tokenizer.ggml.tokens", &b) || sits_gguf_get_array(own, "tokenizer.ggml.token_type", &bt) ||
	      sits_gguf_get_array(g, "tokenizer.ggml.tokens", &a) || sits_gguf_get_array(g, "tokenizer.ggml.token_type", &at) ||
	      a.type != SITS_GGUF_STRING || at.type != SITS_GGUF_I32 || a.nr != b.nr || at.nr != bt.nr ||
	      memcmp(at.data, bt.data, (size_t)at.nr * sizeof(int32_t));
	for (i = 0; !ret && i < a.nr; i++)
		ret = a.strings[i].len != b.strings[i].len || memcmp(a.strings[i].p, b.strings[i].p, a.strings[i].len);
	sits_gguf_close(own);
	return ret ? sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.tokens or token_type: not those of key " SITS_TOK_JSON_KEY) : 0;
}

static int mark_ends(const struct sits_gguf *g, uint64_t nr_tokens, uint16_t *attr, struct sits_diag *diag)
{
	struct sits_gguf_array ends;
	uint64_t i;
	int32_t id;
	int ret = sits_gguf_get_array(g, SITS_TOK_ENDS_KEY, &ends);

	if (ret == -ENOENT)
		return 0;
	if (ret || ends.type != SITS_GGUF_I32)
		return sits_diag_fail(diag, -EBADMSG, SITS_TOK_ENDS_KEY ": not an array of 32-bit integers");
	for (i = 0; i < ends.nr; i++) {
		memcpy(&id, (const uint8_t *)ends.data + i * sizeof(id), sizeof(id));
		if (id < 0 || (uint64_t)id >= nr_tokens)
			return sits_diag_fail(diag, -EBADMSG, SITS_TOK_ENDS_KEY ": %" PRId32 ", but there are %" PRIu64 " tokens", id, nr_tokens);
		attr[id] |= SITS_TOK_ATTR_EOG;
	}
	return 0;
}

int sits_tok_json_embedded(const struct sits_gguf *g, struct sits_tok_json *out, struct sits_diag *diag)
{
	struct sits_tok_json_src src = { .bos = -1 };
	struct sits_gguf_array tokens;
	struct sits_meta meta = { 0 };
	uint8_t *image = NULL;
	size_t len;
	int ret;

	memset(out, 0, sizeof(*out));
	if (sits_gguf_get_str(g, SITS_TOK_JSON_KEY, &src.tokenizer))
		return sits_diag_fail(diag, -EBADMSG, SITS_TOK_JSON_KEY ": not a string");
	if (sits_gguf_get_array(g, "tokenizer.ggml.tokens", &tokens) || !tokens.nr || tokens.nr > SITS_TOK_MAX_VOCAB)
		return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.tokens: missing, or not an array of 1 to %u tokens", SITS_TOK_MAX_VOCAB);
	src.vocab = (uint32_t)tokens.nr;
	ret = sits_tok_json_read(&src, &meta, out, diag);
	if (sits_meta_end(&meta, &image, &len) && !ret)
		ret = sits_diag_fail(diag, -ENOMEM, "no memory for " FILE_NAME);
	if (!ret)
		ret = same_tokens(g, image, len, diag);
	if (!ret)
		ret = mark_ends(g, tokens.nr, out->attr, diag);
	free(image);
	return ret;
}

void sits_tok_json_fini(struct sits_tok_json *t)
{
	json_decref(t->root);
	free(t->merge);
	free(t->attr);
	memset(t, 0, sizeof(*t));
}
