// SPDX-License-Identifier: MIT
/*
 * tokenizer.c - build a tokenizer from a GGUF's metadata; the public calls. See tokenizer.h for
 * what they promise, tok.h for the parts, docs/tokenizers.md for what follows which reference.
 */
#include "daemon/model/tokenizer.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/tok.h"

struct sits_tokenizer {
	struct sits_tok_vocab vocab;
	struct sits_tok_special special;
	bool is_spm;
	bool is_marked;			/* spaces are U+2581 in the vocabulary: is_spm, or BPE of characters */
	struct sits_tok_bpe bpe;	/* unless is_spm */
	struct sits_tok_spm spm;	/* if is_spm */
	/* From a tokenizer.json: */
	bool is_ext, nfc, marks_early;
	enum sits_tok_prefix prefix;
	struct sits_tok_special late;	/* recognised in normalised text */
	struct sits_str *late_text;	/* [nr]: theirs, normalised; empty for others */
	char **late_owned;		/* [nr_late] */
	size_t nr_late;
	int32_t bos, eos, unknown;	/* -1: none */
	bool add_bos, add_eos;
	char *pieces;			/* the bytes of all tokens, one after the other */
	size_t *piece_at;		/* [nr + 1] */
};

int sits_tokens_push(struct sits_tokens *t, int32_t id)
{
	if (t->nr == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		int32_t *grown = realloc(t->id, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		t->id = grown;
		t->cap = cap;
	}
	t->id[t->nr++] = id;
	return 0;
}

void sits_tokens_fini(struct sits_tokens *t)
{
	free(t->id);
	memset(t, 0, sizeof(*t));
}

/* A token id from the metadata; @id keeps its value where the key is absent. */
static int read_id(const struct sits_tokenizer *t, const struct sits_gguf *g, const char *key, int32_t *id,
		   struct sits_diag *diag)
{
	uint64_t value;
	int ret = sits_gguf_get_u64(g, key, &value);

	if (ret == -ENOENT)
		return 0;
	if (ret)
		return sits_diag_fail(diag, -EBADMSG, "%s: not a token id", key);
	if (value >= t->vocab.nr)
		return sits_diag_fail(diag, -EBADMSG, "%s: %llu, but there are %u tokens", key,
				      (unsigned long long)value, t->vocab.nr);
	*id = (int32_t)value;
	return 0;
}

static int read_flag(const struct sits_gguf *g, const char *key, bool *flag, struct sits_diag *diag)
{
	int ret = sits_gguf_get_bool(g, key, flag);

	if (ret && ret != -ENOENT)
		return sits_diag_fail(diag, -EBADMSG, "%s: not a boolean", key);
	return 0;
}

/* The token of a text that only a control token should have, whatever its declared type. */
static int32_t mark_control(struct sits_tokenizer *t, const char *text, uint16_t more)
{
	int32_t id = sits_tok_vocab_find(&t->vocab, text, strlen(text));

	if (id >= 0)
		t->vocab.attr[id] |= SITS_TOK_ATTR_CONTROL | more;
	return id;
}

/* Texts that end a turn or the text. Source: the special tokens in the tokenizer_config.json of the
 * families named. */
static const char *const end_texts[] = {
	"<|eot_id|>", "<|eom_id|>",		/* Llama 3 */
	"<|im_end|>", "<|endoftext|>",		/* ChatML: Qwen, SmolLM; GPT-2 */
	"<|end|>",				/* Phi 3 */
	"<end_of_turn>", "<eos>",		/* Gemma */
	"</s>",					/* Llama 2, Mistral */
	"<EOT>", "_<EOT>",			/* Code Llama */
	"<|end_of_text|>",			/* Llama 3, Granite */
	"<end_of_utterance>",			/* SmolVLM */
	"[EOT]", "[EOS]",			/* Kimi */
	"<｜end▁of▁sentence｜>",	/* DeepSeek */
};

/* Fill-in-the-middle padding and boundaries between files: a text that reaches one is over. Of each
 * row the first that the vocabulary has counts. */
static const char *const fim_texts[][6] = {
	{ "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]" },
	{ "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>" },
	{ "<|file_sep|>" },
};
static const char *const fim_keys[] = {
	"tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
};

static int find_ends(struct sits_tokenizer *t, const struct sits_gguf *g, struct sits_diag *diag)
{
	int32_t eot = -1, eom = -1, id;
	size_t i, j;
	int ret;

	ret = read_id(t, g, "tokenizer.ggml.eot_token_id", &eot, diag);
	if (!ret)
		ret = read_id(t, g, "tokenizer.ggml.eom_token_id", &eom, diag);
	for (i = 0; i < sizeof(fim_keys) / sizeof(*fim_keys) && !ret; i++) {
		id = -1;
		ret = read_id(t, g, fim_keys[i], &id, diag);
		for (j = 0; j < 6 && fim_texts[i][j] && id < 0 && !ret; j++)
			id = mark_control(t, fim_texts[i][j], SITS_TOK_ATTR_EOG);
		if (id >= 0)
			t->vocab.attr[id] |= SITS_TOK_ATTR_EOG;
	}
	if (ret)
		return ret;
	for (i = 0; i < sizeof(end_texts) / sizeof(*end_texts); i++)
		mark_control(t, end_texts[i], SITS_TOK_ATTR_EOG);
	if (t->eos >= 0)
		t->vocab.attr[t->eos] |= SITS_TOK_ATTR_EOG;
	if (eot >= 0)
		t->vocab.attr[eot] |= SITS_TOK_ATTR_EOG;
	if (eom >= 0)
		t->vocab.attr[eom] |= SITS_TOK_ATTR_EOG;
	return 0;
}

/* Phi-3 was trained with special tokens that swallow the white space after them; the file format has
 * no place for that, so the model's name tells. Source: "rstrip" in its tokenizer.json. */
static void mark_rstrip(struct sits_tokenizer *t, const struct sits_gguf *g)
{
	static const char *const kept[] = { "<unk>", "<s>", "<|endoftext|>" };
	struct sits_str name;
	bool phi3 = false;
	uint32_t i;
	int32_t id;

	if (sits_gguf_get_str(g, "general.name", &name))
		return;
	for (i = 0; i + 4 <= name.len; i++)
		phi3 |= !strncasecmp(name.p + i, "phi3", 4) || (i + 5 <= name.len && !strncasecmp(name.p + i, "phi-3", 5));
	if (!phi3)
		return;
	for (i = 0; i < t->vocab.nr; i++)
		if (t->vocab.attr[i] & (SITS_TOK_ATTR_CONTROL | SITS_TOK_ATTR_USER | SITS_TOK_ATTR_UNKNOWN))
			t->vocab.attr[i] |= SITS_TOK_ATTR_RSTRIP;
	for (i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		id = sits_tok_vocab_find(&t->vocab, kept[i], strlen(kept[i]));
		if (id >= 0)
			t->vocab.attr[id] &= (uint16_t)~SITS_TOK_ATTR_RSTRIP;
	}
}

static size_t write_piece(const struct sits_tokenizer *t, uint32_t id, char *out)
{
	const struct sits_str text = t->vocab.text[id];
	uint16_t attr = t->vocab.attr[id];

	if (attr & (SITS_TOK_ATTR_CONTROL | SITS_TOK_ATTR_UNKNOWN))
		return 0;
	if (attr & SITS_TOK_ATTR_USER) {
		memcpy(out, text.p, text.len);
		return text.len;
	}
	if (attr & SITS_TOK_ATTR_BYTE) {
		*out = (char)sits_tok_byte_value(text);
		return 1;
	}
	if (!(attr & SITS_TOK_ATTR_NORMAL))
		return 0;	/* unused */
	return t->is_marked ? sits_tok_spm_piece(text.p, text.len, out) : sits_tok_bpe_piece(text.p, text.len, out);
}

/* No piece is longer than its text, so one buffer of the texts' size holds all. */
static int write_pieces(struct sits_tokenizer *t, struct sits_diag *diag)
{
	size_t total = 0, at = 0;
	uint32_t i;
	char *fit;

	for (i = 0; i < t->vocab.nr; i++) {
		total += t->vocab.text[i].len;
		if ((t->vocab.attr[i] & SITS_TOK_ATTR_BYTE) && sits_tok_byte_value(t->vocab.text[i]) < 0)
			return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.tokens: byte token %u is not written <0xXX>", i);
	}
	t->pieces = malloc(total + 1);
	t->piece_at = malloc(((size_t)t->vocab.nr + 1) * sizeof(*t->piece_at));
	if (!t->pieces || !t->piece_at)
		return -ENOMEM;
	for (i = 0; i < t->vocab.nr; i++) {
		t->piece_at[i] = at;
		at += write_piece(t, i, t->pieces + at);
	}
	t->piece_at[i] = at;
	fit = realloc(t->pieces, at + 1);
	if (fit)
		t->pieces = fit;
	return 0;
}

/* Which family, and what it implies where the metadata says nothing. */
static int read_model(struct sits_tokenizer *t, const struct sits_gguf *g, struct sits_diag *diag)
{
	const struct sits_tok_pre *pre;
	struct sits_str model, name;
	int ret;

	ret = sits_gguf_get_str(g, "tokenizer.ggml.model", &model);
	if (ret)
		return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.model: %s",
				      ret == -ENOENT ? "missing: the file has no tokenizer" : "not a string");
	if (model.len == 5 && !memcmp(model.p, "llama", 5)) {
		t->is_spm = t->is_marked = t->add_bos = true;
	} else if (model.len == 4 && !memcmp(model.p, "gpt2", 4)) {
		pre = sits_gguf_get_str(g, "tokenizer.ggml.pre", &name) ? NULL : sits_tok_pre_find(name);
		t->add_bos = pre && pre->add_bos;
	} else {
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "tokenizer.ggml.model: \"%.*s\" is not known; known: gpt2 (byte-level BPE), llama (SentencePiece BPE)",
				      model.len > 60 ? 60 : (int)model.len, model.p);
	}
	return 0;
}

static int read_specials(struct sits_tokenizer *t, const struct sits_gguf *g, struct sits_diag *diag)
{
	int ret;

	if (t->is_spm) {	/* SentencePiece's own default ids */
		t->unknown = t->vocab.attr[0] & SITS_TOK_ATTR_UNKNOWN ? 0 : -1;
		t->bos = t->vocab.nr > 1 ? 1 : -1;
		t->eos = t->vocab.nr > 2 ? 2 : -1;
	}
	ret = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, diag);
	if (!ret)
		ret = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, diag);
	if (!ret)
		ret = read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unknown, diag);
	if (!ret)
		ret = read_flag(g, "tokenizer.ggml.add_bos_token", &t->add_bos, diag);
	if (!ret)
		ret = read_flag(g, "tokenizer.ggml.add_eos_token", &t->add_eos, diag);
	if (ret)
		return ret;
	if (t->add_bos && t->bos < 0)
		return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.bos_token_id: missing, but prompts are to start with it");
	if (t->add_eos && t->eos < 0)
		return sits_diag_fail(diag, -EBADMSG, "tokenizer.ggml.eos_token_id: missing, but tokenizer.ggml.add_eos_token is true");
	ret = find_ends(t, g, diag);
	if (!ret && !t->is_ext)
		mark_rstrip(t, g);
	return ret;
}

/* Steps that both kinds of metadata share, around what differs. */
static int create(struct sits_tokenizer *t, const struct sits_gguf *g, struct sits_diag *diag)
{
	int ret;

	t->bos = t->eos = t->unknown = -1;
	ret = read_model(t, g, diag);
	if (!ret)
		ret = sits_tok_vocab_init(&t->vocab, g, diag);
	if (!ret)
		ret = read_specials(t, g, diag);
	if (!ret)
		ret = sits_tok_special_init(&t->special, &t->vocab, NULL, false, false, diag);
	if (!ret)
		ret = t->is_spm ? sits_tok_spm_init(&t->spm, &t->vocab, t->unknown, g, diag)
				: sits_tok_bpe_init(&t->bpe, &t->vocab, g, diag);
	return ret ? ret : write_pieces(t, diag);
}

/* A stretch of text as special tokens that come late see it. free(*owned) in any case. */
static int normalise(const struct sits_tokenizer *t, const char *text, size_t len, const char **out, size_t *out_len,
		     char **owned)
{
	char *marked;
	size_t n;
	int ret;

	*out = text;
	*out_len = len;
	*owned = NULL;
	ret = t->nfc ? sits_tok_nfc(text, len, out, out_len, owned) : 0;
	if (ret || !t->marks_early || !*out_len)
		return ret;
	n = sits_tok_spm_escape(*out, *out_len, NULL);
	marked = malloc(n + 3);
	if (!marked)
		return -ENOMEM;
	memcpy(marked, SITS_TOK_MARK, 3);
	sits_tok_spm_escape(*out, *out_len, marked + 3);
	free(*owned);
	*out = *owned = marked;
	*out_len = n + 3;
	if (t->prefix == SITS_TOK_PREFIX_NONE) {
		*out += 3;
		*out_len -= 3;
	}
	return 0;
}

/* The texts of the late tokens: what the normaliser makes of them, a mark in front included where it puts one before all text. */
static int find_late(struct sits_tokenizer *t, struct sits_diag *diag)
{
	const char *text;
	char *owned;
	size_t len, nr = 0;
	uint32_t i;
	int ret;

	for (i = 0; i < t->vocab.nr; i++)
		nr += !!(t->vocab.attr[i] & SITS_TOK_ATTR_LATE);
	if (!nr)
		return 0;
	t->late_text = calloc(t->vocab.nr, sizeof(*t->late_text));
	t->late_owned = calloc(nr, sizeof(*t->late_owned));
	if (!t->late_text || !t->late_owned)
		return -ENOMEM;
	for (i = 0; i < t->vocab.nr; i++) {
		if (!(t->vocab.attr[i] & SITS_TOK_ATTR_LATE))
			continue;
		ret = normalise(t, t->vocab.text[i].p, t->vocab.text[i].len, &text, &len, &owned);
		t->late_owned[t->nr_late++] = owned;
		if (ret)
			return ret;
		t->late_text[i] = (struct sits_str){ text, len };
	}
	return sits_tok_special_init(&t->late, &t->vocab, t->late_text, true, true, diag);
}

static int create_ext(struct sits_tokenizer *t, const struct sits_gguf *g, const struct sits_tok_ext *ext, struct sits_diag *diag)
{
	uint32_t i;
	int ret;

	t->bos = t->eos = t->unknown = -1;
	t->is_ext = true;
	t->is_marked = !ext->byte_level;
	t->nfc = ext->nfc;
	t->marks_early = ext->marks_early;
	t->prefix = ext->prefix;
	ret = sits_tok_vocab_init(&t->vocab, g, diag);
	for (i = 0; i < t->vocab.nr && !ret; i++)
		t->vocab.attr[i] |= ext->attr[i];
	if (!ret)
		ret = read_specials(t, g, diag);
	if (!ret)
		ret = sits_tok_special_init(&t->special, &t->vocab, NULL, false, true, diag);
	if (!ret)
		ret = find_late(t, diag);
	if (!ret)
		ret = sits_tok_bpe_init_ext(&t->bpe, &t->vocab, ext, t->unknown, diag);
	return ret ? ret : write_pieces(t, diag);
}

static int finish(struct sits_tokenizer *t, int ret, struct sits_tokenizer **out, struct sits_diag *diag)
{
	if (ret) {
		sits_tokenizer_destroy(t);
		return ret == -ENOMEM ? sits_diag_fail(diag, ret, "no memory for the tokenizer") : ret;
	}
	*out = t;
	return 0;
}

int sits_tokenizer_create(const struct sits_gguf *g, struct sits_tokenizer **out, struct sits_diag *diag)
{
	struct sits_tokenizer *t = calloc(1, sizeof(*t));

	return finish(t, t ? create(t, g, diag) : -ENOMEM, out, diag);
}

int sits_tokenizer_create_ext(const struct sits_gguf *g, const struct sits_tok_ext *ext, struct sits_tokenizer **out,
			      struct sits_diag *diag)
{
	struct sits_tokenizer *t = calloc(1, sizeof(*t));

	return finish(t, t ? create_ext(t, g, ext, diag) : -ENOMEM, out, diag);
}

void sits_tokenizer_destroy(struct sits_tokenizer *tok)
{
	if (!tok)
		return;
	sits_tok_bpe_fini(&tok->bpe);
	sits_tok_spm_fini(&tok->spm);
	sits_tok_special_fini(&tok->special);
	sits_tok_special_fini(&tok->late);
	while (tok->nr_late)
		free(tok->late_owned[--tok->nr_late]);
	free(tok->late_owned);
	free(tok->late_text);
	sits_tok_vocab_fini(&tok->vocab);
	free(tok->pieces);
	free(tok->piece_at);
	free(tok);
}

static int encode_fragments(const struct sits_tokenizer *t, const char *text, const struct sits_tok_fragments *all,
			    struct sits_tok_scratch *scratch, struct sits_tokens *out)
{
	bool first = true;	/* the text starts the input or follows a special token */
	size_t i;
	int ret = 0;

	for (i = 0; i < all->nr && !ret; i++) {
		const struct sits_tok_fragment *f = &all->f[i];

		if (f->id >= 0)
			ret = sits_tokens_push(out, f->id);
		else if (t->is_spm)
			ret = sits_tok_spm_encode(&t->spm, &t->vocab, scratch, text + f->pos, f->len, first, out);
		else
			ret = sits_tok_bpe_encode(&t->bpe, &t->vocab, scratch, text + f->pos, f->len, out);
		first = f->id >= 0;
	}
	return ret;
}

/* Text between late tokens: @first: it is at the very start of the input. */
static int encode_text_ext(const struct sits_tokenizer *t, const char *text, size_t len, bool first,
			   struct sits_tok_scratch *scratch, struct sits_tokens *out)
{
	bool mark = false;
	size_t n;
	int ret;

	if (!t->is_marked)
		return sits_tok_bpe_encode(&t->bpe, &t->vocab, scratch, text, len, out);
	if (t->marks_early)
		return sits_tok_bpe_encode_chars(&t->bpe, &t->vocab, scratch, text, len, out);
	if (t->prefix == SITS_TOK_PREFIX_ALWAYS || t->prefix == SITS_TOK_PREFIX_UNLESS_MARK ||
	    (t->prefix == SITS_TOK_PREFIX_FIRST && first))
		mark = *text != ' ' && !sits_tok_is_mark(text, text + len);
	n = sits_tok_spm_escape(text, len, NULL) + 3 * mark;
	ret = sits_tok_scratch_reserve(scratch, 0, n);
	if (ret)
		return ret;
	if (mark)
		memcpy(scratch->text, SITS_TOK_MARK, 3);
	sits_tok_spm_escape(text, len, scratch->text + 3 * mark);
	return sits_tok_bpe_encode_chars(&t->bpe, &t->vocab, scratch, scratch->text, n, out);
}

/* Text between special tokens: normalise, find the late tokens, encode the rest. */
static int encode_fragment_ext(const struct sits_tokenizer *t, const char *text, size_t len, bool first, bool control,
			       struct sits_tok_scratch *scratch, struct sits_tokens *out)
{
	struct sits_tok_fragments late = { 0 };
	char *owned;
	size_t i;
	int ret;

	ret = normalise(t, text, len, &text, &len, &owned);
	if (!ret)
		ret = sits_tok_special_split(&t->late, text, len, control, &late);
	for (i = 0; i < late.nr && !ret; i++) {
		const struct sits_tok_fragment *f = &late.f[i];

		if (f->id >= 0)
			ret = sits_tokens_push(out, f->id);
		else
			ret = encode_text_ext(t, text + f->pos, f->len, first && !f->pos, scratch, out);
	}
	free(late.f);
	free(owned);
	return ret;
}

static int encode_fragments_ext(const struct sits_tokenizer *t, const char *text, const struct sits_tok_fragments *all,
				bool control, struct sits_tok_scratch *scratch, struct sits_tokens *out)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < all->nr && !ret; i++) {
		const struct sits_tok_fragment *f = &all->f[i];

		if (f->id >= 0)
			ret = sits_tokens_push(out, f->id);
		else
			ret = encode_fragment_ext(t, text + f->pos, f->len, !f->pos, control, scratch, out);
	}
	return ret;
}

int sits_tokenizer_encode(const struct sits_tokenizer *tok, const char *text, size_t len, uint32_t flags,
			  struct sits_tokens *out)
{
	struct sits_tok_fragments fragments = { 0 };
	struct sits_tok_scratch scratch = { 0 };
	size_t before = out->nr;
	int ret = 0;

	if (len > SITS_TOK_MAX_TEXT)
		return -E2BIG;
	if ((flags & SITS_TOK_ADD_BOS) && tok->add_bos)
		ret = sits_tokens_push(out, tok->bos);
	if (!ret)
		ret = sits_tok_special_split(&tok->special, text, len, flags & SITS_TOK_SPECIAL, &fragments);
	if (!ret)
		ret = tok->is_ext ? encode_fragments_ext(tok, text, &fragments, flags & SITS_TOK_SPECIAL, &scratch, out)
				  : encode_fragments(tok, text, &fragments, &scratch, out);
	if (!ret && (flags & SITS_TOK_ADD_EOS) && tok->add_eos)
		ret = sits_tokens_push(out, tok->eos);
	if (ret)
		out->nr = before;
	sits_tok_scratch_fini(&scratch);
	free(fragments.f);
	return ret;
}

int sits_tokenizer_piece(const struct sits_tokenizer *tok, int32_t id, const char **p)
{
	if (id < 0 || (uint32_t)id >= tok->vocab.nr)
		return -EINVAL;
	*p = tok->pieces + tok->piece_at[id];
	return (int)(tok->piece_at[id + 1] - tok->piece_at[id]);
}

uint32_t sits_tokenizer_vocab(const struct sits_tokenizer *tok)
{
	return tok->vocab.nr;
}

bool sits_tokenizer_is_eog(const struct sits_tokenizer *tok, int32_t id)
{
	return id >= 0 && (uint32_t)id < tok->vocab.nr && (tok->vocab.attr[id] & SITS_TOK_ATTR_EOG);
}

int32_t sits_tokenizer_bos(const struct sits_tokenizer *tok)
{
	return tok->bos;
}

int32_t sits_tokenizer_find(const struct sits_tokenizer *tok, const char *text, size_t len)
{
	return sits_tok_vocab_find(&tok->vocab, text, len);
}
