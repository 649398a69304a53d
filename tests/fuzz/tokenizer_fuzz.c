// SPDX-License-Identifier: MIT
/*
 * tokenizer_fuzz.c - encode any bytes with small vocabularies of both families. Ids are in the vocabulary, text
 * that is UTF-8 comes back byte for byte, and plain text never becomes a control token.
 *
 * Input: one byte that chooses vocabulary and flags, then the text.
 */
#include "daemon/model/gguf.h"
#include "daemon/model/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/model/gguf_build.h"

#define NR_CONTROL 3	/* ids 0 to 2 */

static const struct {
	const char *pre;	/* NULL: SentencePiece */
	int space_prefix;
} kinds[] = {
	{ "gpt-2", 0 }, { "smollm", 0 }, { "qwen2", 0 }, { "llama-bpe", 0 }, { NULL, 0 }, { NULL, 1 },
};

#define NR_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Until the process ends. */
static struct sits_tokenizer *toks[NR_KINDS];
static struct sits_gguf *ggufs[NR_KINDS];
static void *images[NR_KINDS];

static const char *const control[NR_CONTROL] = { "<unk>", "<s>", "<|im_end|>" };
static const char *const words[] = { "t h", "th e", "Ġ the", "i n", "Ġ a", "Ċ Ċ", "in g", "1 2", "Ã ¶", "Ġ Ġ", "' s" };
static const char *const pieces[] = { "▁", "t", "h", "e", "th", "the", "▁the", "▁t", "in", "▁▁", "ö", "漢", "<|im_end|", "s>" };

/* The character that stands for a byte in byte-level BPE. Source: GPT-2's encoder. */
static void byte_text(unsigned int byte, char out[4])
{
	unsigned int c = byte, n = 0, i;

	if (!((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))) {
		for (i = 0; i < byte; i++)
			n += !((i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i != 0xad));
		c = 256 + n;
	}
	if (c < 0x80) {
		out[0] = (char)c;
		out[1] = '\0';
	} else {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		out[2] = '\0';
	}
}

static void build_bpe(struct gguf_build *b, const char **text, uint64_t *nr)
{
	static char byte[256][4], joined[sizeof(words) / sizeof(words[0])][32];
	size_t i;

	for (i = 0; i < 256; i++) {
		byte_text((unsigned int)i, byte[i]);
		text[(*nr)++] = byte[i];
	}
	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const char *space = strchr(words[i], ' ');

		snprintf(joined[i], sizeof(joined[i]), "%.*s%s", (int)(space - words[i]), words[i], space + 1);
		text[(*nr)++] = joined[i];
	}
	gguf_build_strs(b, "tokenizer.ggml.merges", words, sizeof(words) / sizeof(words[0]));
}

static void build_spm(struct gguf_build *b, const char **text, int32_t *type, uint64_t *nr)
{
	static char byte[256][8];
	float score[NR_CONTROL + 256 + 16] = { 0 };
	size_t i;

	for (i = 0; i < 256; i++) {
		snprintf(byte[i], sizeof(byte[i]), "<0x%02X>", (unsigned int)i);
		type[*nr] = 6;
		text[(*nr)++] = byte[i];
	}
	for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		score[*nr] = -(float)(i % 5);
		text[(*nr)++] = pieces[i];
	}
	gguf_build_array(b, "tokenizer.ggml.scores", 6, *nr, score, (size_t)*nr * sizeof(*score));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	size_t k, i;

	for (k = 0; k < NR_KINDS; k++) {
		const char *text[NR_CONTROL + 256 + 32];
		int32_t type[NR_CONTROL + 256 + 32];
		struct sits_diag diag = { "" };
		struct gguf_build b;
		uint64_t nr = 0;
		size_t len;

		gguf_build_begin(&b);
		for (i = 0; i < sizeof(type) / sizeof(type[0]); i++)
			type[i] = 1;
		for (i = 0; i < NR_CONTROL; i++) {
			type[nr] = i ? 3 : 2;
			text[nr++] = control[i];
		}
		gguf_build_str(&b, "tokenizer.ggml.model", kinds[k].pre ? "gpt2" : "llama");
		if (kinds[k].pre)
			gguf_build_str(&b, "tokenizer.ggml.pre", kinds[k].pre);
		gguf_build_bool(&b, "tokenizer.ggml.add_space_prefix", kinds[k].space_prefix);
		if (kinds[k].pre)
			build_bpe(&b, text, &nr);
		else
			build_spm(&b, text, type, &nr);
		gguf_build_strs(&b, "tokenizer.ggml.tokens", text, nr);
		gguf_build_array(&b, "tokenizer.ggml.token_type", 5, nr, type, (size_t)nr * sizeof(*type));
		gguf_build_u32(&b, "tokenizer.ggml.bos_token_id", 1);
		gguf_build_u32(&b, "tokenizer.ggml.eos_token_id", 2);
		gguf_build_bool(&b, "tokenizer.ggml.add_bos_token", 1);
		images[k] = gguf_build_end(&b, &len);
		if (sits_gguf_open(images[k], len, &ggufs[k], &diag) || sits_tokenizer_create(ggufs[k], &toks[k], &diag)) {
			fprintf(stderr, "vocabulary %zu: %s\n", k, diag.msg);
			abort();
		}
	}
	(void)argc;
	(void)argv;
	return 0;
}

static int is_utf8(const uint8_t *p, size_t len)
{
	size_t i, j, n;

	for (i = 0; i < len; i += n) {
		n = p[i] < 0x80 ? 1 : p[i] < 0xc2 ? 0 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : p[i] < 0xf5 ? 4 : 0;
		if (!n || n > len - i)
			return 0;
		for (j = 1; j < n; j++)
			if ((p[i + j] & 0xc0) != 0x80)
				return 0;
		if ((p[i] == 0xe0 && p[i + 1] < 0xa0) || (p[i] == 0xed && p[i + 1] > 0x9f) ||
		    (p[i] == 0xf0 && p[i + 1] < 0x90) || (p[i] == 0xf4 && p[i + 1] > 0x8f))
			return 0;
	}
	return 1;
}

/* The pieces' bytes, one after the other, are the text. */
static void check_round_trip(const struct sits_tokenizer *tok, const struct sits_tokens *ids, size_t first, const char *text,
			     size_t len, int space_prefix)
{
	const char *p;
	size_t i, at = 0;
	int n;

	for (i = first; i < ids->nr; i++) {
		n = sits_tokenizer_piece(tok, ids->id[i], &p);
		FUZZ_CHECK(n >= 0);
		if (i == first && space_prefix && n && *p == ' ') {
			p++;
			n--;
		}
		FUZZ_CHECK((size_t)n <= len - at);
		FUZZ_CHECK(!memcmp(text + at, p, (size_t)n));
		at += (size_t)n;
	}
	FUZZ_CHECK(at == len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sits_tokenizer *tok;
	struct sits_tokens ids = { 0 };
	uint32_t flags;
	size_t kind, i, first;

	if (!size)
		return 0;
	kind = data[0] % NR_KINDS;
	tok = toks[kind];
	flags = (data[0] & 0x40 ? SITS_TOK_ADD_BOS : 0) | (data[0] & 0x80 ? SITS_TOK_SPECIAL : 0);
	FUZZ_CHECK(!sits_tokens_push(&ids, 77));	/* what is there already stays */
	FUZZ_CHECK(!sits_tokenizer_encode(tok, (const char *)data + 1, size - 1, flags, &ids));
	FUZZ_CHECK(ids.nr >= 1 && ids.id[0] == 77);
	first = 1;
	if (flags & SITS_TOK_ADD_BOS) {
		FUZZ_CHECK(ids.nr >= 2 && ids.id[1] == 1);
		first = 2;
	}
	for (i = first; i < ids.nr; i++) {
		FUZZ_CHECK(ids.id[i] >= 0 && (uint32_t)ids.id[i] < sits_tokenizer_vocab(tok));
		FUZZ_CHECK(flags & SITS_TOK_SPECIAL || ids.id[i] >= NR_CONTROL);
	}
	/* In SentencePiece's alphabet U+2581 and the space are one. */
	if (!(flags & SITS_TOK_SPECIAL) && is_utf8(data + 1, size - 1) && (kinds[kind].pre || !memmem(data + 1, size - 1, "▁", 3)))
		check_round_trip(tok, &ids, first, (const char *)data + 1, size - 1, kinds[kind].space_prefix);
	sits_tokens_fini(&ids);
	return 0;
}
