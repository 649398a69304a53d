// SPDX-License-Identifier: MIT
/*
 * tok_bpe.c - BPE by merges: the best-ranked pair of symbols merges first. Symbols are bytes, or the characters of a
 * text in which U+2581 stands for a space.
 *
 * Merges are turned into ids at creation, so encoding compares numbers only. Short words are
 * scanned, long ones go through the heap; both give the same tokens. The vocabulary writes bytes in
 * an alphabet of printable characters (source: GPT-2's bytes_to_unicode): 0x21-0x7e, 0xa1-0xac
 * and 0xae-0xff stand for themselves, the other 68, in order, for U+0100 to U+0143.
 */
#include "daemon/model/tok.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KEY_MERGES	"tokenizer.ggml.merges"
#define NO_RANK		UINT32_MAX
#define SHORT_WORD	32	/* bytes; scanning beats the heap up to here */

/* Pre-tokenizers by their name in tokenizer.ggml.pre, and what the name implies besides the pattern.
 * Source: the names that converters write into GGUF files, and the models' tokenizer.json. */
static const struct sits_tok_pre known[] = {
	{ .name = "gpt-2", .family = SITS_TOK_GPT2 },
	{ .name = "phi-2", .family = SITS_TOK_GPT2 },
	{ .name = "mpt", .family = SITS_TOK_GPT2 },
	{ .name = "olmo", .family = SITS_TOK_GPT2 },
	{ .name = "mellum", .family = SITS_TOK_GPT2 },
	{ .name = "exaone4", .family = SITS_TOK_GPT2 },
	{ .name = "trillion", .family = SITS_TOK_GPT2 },
	{ .name = "smollm", .family = SITS_TOK_SMOLLM },
	{ .name = "starcoder", .family = SITS_TOK_SMOLLM },
	{ .name = "refact", .family = SITS_TOK_SMOLLM },
	{ .name = "command-r", .family = SITS_TOK_SMOLLM },
	{ .name = "codeshell", .family = SITS_TOK_SMOLLM },
	{ .name = "exaone", .family = SITS_TOK_SMOLLM },
	{ .name = "minerva-7b", .family = SITS_TOK_SMOLLM },
	{ .name = "qwen2", .family = SITS_TOK_QWEN2 },
	{ .name = "deepseek-r1-qwen", .family = SITS_TOK_QWEN2 },
	{ .name = "megrez", .family = SITS_TOK_QWEN2 },
	{ .name = "stablelm2", .family = SITS_TOK_QWEN2 },
	{ .name = "hunyuan", .family = SITS_TOK_QWEN2 },
	{ .name = "grok-2", .family = SITS_TOK_QWEN2 },
	{ .name = "llama3", .family = SITS_TOK_LLAMA3, .ignore_merges = true, .add_bos = true },
	{ .name = "llama-v3", .family = SITS_TOK_LLAMA3, .ignore_merges = true, .add_bos = true },
	{ .name = "llama-bpe", .family = SITS_TOK_LLAMA3, .ignore_merges = true, .add_bos = true },
	{ .name = "falcon3", .family = SITS_TOK_LLAMA3, .ignore_merges = true, .add_bos = true },
	{ .name = "falcon-h1", .family = SITS_TOK_LLAMA3, .ignore_merges = true, .add_bos = true },
	{ .name = "pixtral", .family = SITS_TOK_LLAMA3, .ignore_merges = true, .add_bos = true },
	{ .name = "lfm2", .family = SITS_TOK_LLAMA3, .ignore_merges = true, .add_bos = true },
	{ .name = "deepseek-llm", .family = SITS_TOK_DEEPSEEK_LLM },
	{ .name = "deepseek-coder", .family = SITS_TOK_DEEPSEEK_CODER },
	{ .name = "deepseek-v3", .family = SITS_TOK_DEEPSEEK3 },
	{ .name = "hunyuan-dense", .family = SITS_TOK_DEEPSEEK3 },
	{ .name = "dbrx", .family = SITS_TOK_LLAMA3 },
	{ .name = "smaug-bpe", .family = SITS_TOK_LLAMA3 },
};

const struct sits_tok_pre *sits_tok_pre_find(struct sits_str name)
{
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strlen(known[i].name) == name.len && !memcmp(known[i].name, name.p, name.len))
			return &known[i];
	return NULL;
}

void sits_tok_pre_names(char *buf, size_t size)
{
	size_t i, o = 0;

	buf[0] = 0;
	for (i = 0; i < sizeof(known) / sizeof(*known) && o < size; i++)
		o += (size_t)snprintf(buf + o, size - o, "%s%s", i ? " " : "", known[i].name);
}

/* The character that stands for a byte. */
static uint32_t byte_to_char(uint8_t byte)
{
	if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))
		return byte;
	if (byte <= 0x20)
		return 0x100u + byte;
	return byte == 0xad ? 0x143 : 0x121u + (byte - 0x7fu);
}

/* The byte that a character stands for, or -1. */
static int char_to_byte(uint32_t c)
{
	if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad))
		return (int)c;
	if (c >= 0x100 && c <= 0x120)
		return (int)c - 0x100;
	if (c >= 0x121 && c <= 0x142)
		return (int)c - 0x121 + 0x7f;
	return c == 0x143 ? 0xad : -1;
}

static size_t put_char(uint32_t c, char *out)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	out[0] = (char)(0xc0 | c >> 6);
	out[1] = (char)(0x80 | (c & 0x3f));
	return 2;
}

/* A text with a character outside the alphabet is taken as it is: added tokens are such. */
size_t sits_tok_bpe_piece(const char *text, size_t len, char *out)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t i, o = 0;
	int byte;

	for (i = 0; i < len; i++) {
		uint32_t c = p[i];

		if ((c & 0xe0) == 0xc0 && i + 1 < len && (p[i + 1] & 0xc0) == 0x80)
			c = (c & 0x1f) << 6 | (p[++i] & 0x3f);
		else if (c >= 0x80)
			c = 0;
		byte = char_to_byte(c);
		if (byte < 0) {
			memcpy(out, text, len);
			return len;
		}
		out[o++] = (char)byte;
	}
	return o;
}

/* The slot of a pair, or the empty one where it belongs. */
static struct sits_tok_pair *find_pair(const struct sits_tok_bpe *b, int32_t left, int32_t right)
{
	uint32_t i = (uint32_t)sits_tok_mix(((uint64_t)left << 32 | (uint32_t)right) ^ b->seed) & b->mask;

	while (b->pair[i].left >= 0 && (b->pair[i].left != left || b->pair[i].right != right))
		i = (i + 1) & b->mask;
	return &b->pair[i];
}

static uint32_t rank_of(const struct sits_tok_bpe *b, int32_t left, int32_t right)
{
	const struct sits_tok_pair *p;

	if (left < 0 || right < 0)
		return NO_RANK;
	p = find_pair(b, left, right);
	return p->left < 0 ? NO_RANK : p->rank;
}

/* Texts to ids. */
static int find_merge(const struct sits_tok_vocab *v, const struct sits_tok_merge_text *t, struct sits_tok_merge *m)
{
	char small[256], *joined = small;
	size_t len;

	if (!t->left.len || !t->right.len || t->left.len > v->max_len || t->right.len > v->max_len)
		return -EBADMSG;
	len = t->left.len + t->right.len;
	if (len > sizeof(small)) {
		joined = malloc(len);
		if (!joined)
			return -ENOMEM;
	}
	memcpy(joined, t->left.p, t->left.len);
	memcpy(joined + t->left.len, t->right.p, t->right.len);
	m->left = sits_tok_vocab_find(v, t->left.p, t->left.len);
	m->right = sits_tok_vocab_find(v, t->right.p, t->right.len);
	m->id = sits_tok_vocab_find(v, joined, len);
	if (joined != small)
		free(joined);
	return m->left < 0 || m->right < 0 || m->id < 0 ? -EBADMSG : 0;
}

/* "LEFT RIGHT" to its texts. */
static struct sits_tok_merge_text cut_merge(struct sits_str text)
{
	const char *space = text.len > 2 ? memchr(text.p + 1, ' ', text.len - 1) : NULL;
	size_t left = space ? (size_t)(space - text.p) : 0;

	if (!space)
		return (struct sits_tok_merge_text){ 0 };
	return (struct sits_tok_merge_text){ { text.p, left }, { space + 1, text.len - left - 1 } };
}

/* Of merges either as texts in one piece (a GGUF's) or cut. */
static int read_merges(struct sits_tok_bpe *b, const struct sits_tok_vocab *v, const struct sits_str *text,
		       const struct sits_tok_merge_text *cut, const char *key, struct sits_diag *diag)
{
	uint32_t slots = 16, i;

	while (slots < 2 * b->nr_merges)
		slots *= 2;
	b->mask = slots - 1;
	b->pair = malloc((size_t)slots * sizeof(*b->pair));
	b->merge = malloc(((size_t)b->nr_merges + 1) * sizeof(*b->merge));
	if (!b->pair || !b->merge)
		return -ENOMEM;
	memset(b->pair, 0xff, (size_t)slots * sizeof(*b->pair));
	for (i = 0; i < b->nr_merges; i++) {
		struct sits_tok_merge_text t = cut ? cut[i] : cut_merge(text[i]);
		struct sits_tok_merge *m = &b->merge[i];
		struct sits_tok_pair *p;
		int ret = find_merge(v, &t, m);

		if (ret == -EBADMSG && cut)
			return sits_diag_fail(diag, ret, "%s: merge %u, \"%.*s\" and \"%.*s\", is not two tokens that make a third", key, i,
					      t.left.len > 60 ? 60 : (int)t.left.len, t.left.p, t.right.len > 60 ? 60 : (int)t.right.len,
					      t.right.p);
		if (ret == -EBADMSG)
			return sits_diag_fail(diag, ret, "%s: merge %u, \"%.*s\", is not two tokens that make a third", key, i,
					      text[i].len > 60 ? 60 : (int)text[i].len, text[i].p);
		if (ret)
			return ret;
		if (v->attr[m->id] & (SITS_TOK_ATTR_CONTROL | SITS_TOK_ATTR_UNKNOWN))
			continue;	/* plain text must not become one */
		p = find_pair(b, m->left, m->right);
		if (p->left < 0)	/* of two equal merges the first counts */
			*p = (struct sits_tok_pair){ .left = m->left, .right = m->right, .rank = i };
	}
	return 0;
}

static void draw_seed(struct sits_tok_bpe *b, const struct sits_tok_vocab *v)
{
	if (getrandom(&b->seed, sizeof(b->seed), GRND_NONBLOCK) != sizeof(b->seed))
		b->seed = v->seed;
}

/* The tokens of single bytes, by the character that stands for each. */
static void find_bytes(struct sits_tok_bpe *b, const struct sits_tok_vocab *v)
{
	char c[2];
	int i;

	for (i = 0; i < 256; i++)
		b->byte_id[i] = sits_tok_vocab_find_plain(v, c, put_char(byte_to_char((uint8_t)i), c));
}

/* ... by "<0xXX>". */
static void find_fallback(struct sits_tok_bpe *b, const struct sits_tok_vocab *v, bool wanted)
{
	char text[8];
	int i;

	for (i = 0; i < 256; i++) {
		snprintf(text, sizeof(text), "<0x%02X>", (unsigned int)i);
		b->byte_id[i] = wanted ? sits_tok_vocab_find(v, text, 6) : -1;
	}
}

int sits_tok_bpe_init_ext(struct sits_tok_bpe *b, const struct sits_tok_vocab *v, const struct sits_tok_ext *ext,
			  int32_t unknown_id, struct sits_diag *diag)
{
	int ret;

	memset(b, 0, sizeof(*b));
	b->ignore_merges = ext->ignore_merges;
	b->nr_merges = ext->nr_merges;
	b->unknown_id = unknown_id;
	b->fuse_unknown = ext->fuse_unknown;
	b->cut_at_marks = ext->cut_at_marks;
	draw_seed(b, v);
	ret = read_merges(b, v, NULL, ext->merge, "tokenizer.json: model.merges", diag);
	if (ret)
		return ret;
	if (ext->byte_level) {
		find_bytes(b, v);
		return sits_tok_split_create(ext->family, true, &b->split, diag);
	}
	find_fallback(b, v, ext->byte_fallback);
	b->cut_at_spaces = !b->ignore_merges && sits_tok_spm_can_cut(v);
	return 0;
}

int sits_tok_bpe_init(struct sits_tok_bpe *b, const struct sits_tok_vocab *v, const struct sits_gguf *g,
		      struct sits_diag *diag)
{
	const struct sits_tok_pre *pre;
	struct sits_gguf_array a;
	struct sits_str name;
	char names[512];
	int ret;

	memset(b, 0, sizeof(*b));
	ret = sits_gguf_get_str(g, "tokenizer.ggml.pre", &name);
	if (ret)
		name = (struct sits_str){ .p = "(missing)", .len = 9 };
	pre = ret ? NULL : sits_tok_pre_find(name);
	if (!pre) {
		sits_tok_pre_names(names, sizeof(names));
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "tokenizer.ggml.pre: pre-tokenizer %.*s is not known; known: %s",
				      name.len > 60 ? 60 : (int)name.len, name.p, names);
	}
	b->ignore_merges = pre->ignore_merges;
	ret = sits_gguf_get_array(g, KEY_MERGES, &a);
	if (ret || a.type != SITS_GGUF_STRING || a.nr > SITS_TOK_MAX_MERGES)
		return sits_diag_fail(diag, -EBADMSG, KEY_MERGES ": %s", ret == -ENOENT ? "missing" :
				      ret || a.type != SITS_GGUF_STRING ? "not an array of strings" : "too many");
	b->nr_merges = (uint32_t)a.nr;
	draw_seed(b, v);
	ret = read_merges(b, v, a.strings, NULL, KEY_MERGES, diag);
	if (ret)
		return ret;
	find_bytes(b, v);
	return sits_tok_split_create(pre->family, true, &b->split, diag);
}

void sits_tok_bpe_fini(struct sits_tok_bpe *b)
{
	sits_tok_split_destroy(b->split);
	free(b->merge);
	free(b->pair);
}

static int encode_short(const struct sits_tok_bpe *b, const uint8_t *word, size_t len, struct sits_tokens *out)
{
	uint32_t rank[SHORT_WORD];	/* of each symbol with the next */
	int32_t id[SHORT_WORD];
	size_t n = len, i, best;
	int ret;

	for (i = 0; i < n; i++)
		id[i] = b->byte_id[word[i]];
	for (i = 0; i + 1 < n; i++)
		rank[i] = rank_of(b, id[i], id[i + 1]);
	rank[n - 1] = NO_RANK;
	for (;;) {
		for (best = 0, i = 1; i + 1 < n; i++)
			if (rank[i] < rank[best])
				best = i;
		if (rank[best] == NO_RANK)
			break;
		id[best] = b->merge[rank[best]].id;
		n--;
		memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof(*id));
		memmove(rank + best + 1, rank + best + 2, (n - best - 1) * sizeof(*rank));
		rank[best] = best + 1 < n ? rank_of(b, id[best], id[best + 1]) : NO_RANK;
		if (best)
			rank[best - 1] = rank_of(b, id[best - 1], id[best]);
	}
	for (i = 0; i < n; i++) {
		if (id[i] < 0)
			continue;	/* a byte that the vocabulary lacks */
		ret = sits_tokens_push(out, id[i]);
		if (ret)
			return ret;
	}
	return 0;
}

static int push_pair(const struct sits_tok_bpe *b, struct sits_tok_scratch *s, int32_t left)
{
	int32_t right = left < 0 ? -1 : s->sym[left].next;
	uint32_t rank = right < 0 ? NO_RANK : rank_of(b, s->sym[left].id, s->sym[right].id);

	if (rank == NO_RANK)
		return 0;
	return sits_tok_heap_push(&s->heap, rank, left);
}

/* Merge the first @n symbols of the scratch, which are linked one after another. */
static int encode_symbols(const struct sits_tok_bpe *b, struct sits_tok_scratch *s, int32_t n, struct sits_tokens *out)
{
	int32_t left, i;
	uint32_t rank;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = push_pair(b, s, i);
	while (!ret && sits_tok_heap_pop(&s->heap, &rank, &left)) {
		const struct sits_tok_merge *m = &b->merge[rank];
		struct sits_tok_symbol *l = &s->sym[left], *r;

		/* Stale if either side has merged with something else since. */
		if (!l->len || l->next < 0 || l->id != m->left || s->sym[l->next].id != m->right)
			continue;
		r = &s->sym[l->next];
		l->id = m->id;
		l->next = r->next;
		r->len = 0;
		if (l->next >= 0)
			s->sym[l->next].prev = left;
		ret = push_pair(b, s, l->prev);
		if (!ret)
			ret = push_pair(b, s, left);
	}
	s->heap.nr = 0;
	for (i = n ? 0 : -1; i >= 0 && !ret; i = s->sym[i].next)
		if (s->sym[i].id >= 0)
			ret = sits_tokens_push(out, s->sym[i].id);
	return ret;
}

static void add_symbol(struct sits_tok_scratch *s, int32_t i, int32_t id)
{
	s->sym[i] = (struct sits_tok_symbol){ .id = id, .prev = i - 1, .next = i + 1, .len = 1 };
}

static int encode_long(const struct sits_tok_bpe *b, struct sits_tok_scratch *s, const uint8_t *word, size_t len,
		       struct sits_tokens *out)
{
	int32_t i, n = (int32_t)len;
	int ret = sits_tok_scratch_reserve(s, len, 0);

	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		add_symbol(s, i, b->byte_id[word[i]]);
	s->sym[n - 1].next = -1;
	return encode_symbols(b, s, n, out);
}

static bool has_bytes(const struct sits_tok_bpe *b, const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (b->byte_id[p[i]] < 0)
			return false;
	return true;
}

/* Each character to its token, its bytes' tokens, or the unknown token. */
static int encode_chars(const struct sits_tok_bpe *b, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			const uint8_t *p, size_t len, struct sits_tokens *out)
{
	size_t i, j, step;
	int32_t n = 0, id;
	bool unknown = false;	/* the symbol before is the unknown token, for want of another */
	int ret;

	if (b->ignore_merges) {
		id = sits_tok_vocab_find_plain(v, (const char *)p, len);
		if (id >= 0)
			return sits_tokens_push(out, id);
	}
	ret = sits_tok_scratch_reserve(s, len, 0);
	if (ret)
		return ret;
	for (i = 0; i < len; i += step) {
		step = sits_tok_char_len(p[i]);
		step = step < len - i ? step : len - i;
		id = sits_tok_vocab_find_plain(v, (const char *)p + i, step);
		if (id >= 0) {
			add_symbol(s, n++, id);
			unknown = false;
		} else if (has_bytes(b, p + i, step)) {
			for (j = i; j < i + step; j++)
				add_symbol(s, n++, b->byte_id[p[j]]);
			unknown = false;
		} else if (b->unknown_id >= 0 && !(unknown && b->fuse_unknown)) {
			add_symbol(s, n++, b->unknown_id);
			unknown = true;
		}
	}
	if (n)
		s->sym[n - 1].next = -1;
	return encode_symbols(b, s, n, out);
}

/* Bytes up to the next mark but one at the start. */
static size_t marked_word(const char *p, const char *end)
{
	const char *q = p + sits_tok_char_len((uint8_t)*p);

	while (q < end && !sits_tok_is_mark(q, end))
		q += sits_tok_char_len((uint8_t)*q);
	return (size_t)((q < end ? q : end) - p);
}

int sits_tok_bpe_encode_chars(const struct sits_tok_bpe *b, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			      const char *text, size_t len, struct sits_tokens *out)
{
	size_t pos, n;
	int ret = 0;

	for (pos = 0; pos < len && !ret; pos += n) {
		n = b->cut_at_marks ? marked_word(text + pos, text + len) :
		    b->cut_at_spaces ? sits_tok_spm_stretch(text + pos, text + len) : len - pos;
		ret = encode_chars(b, v, s, (const uint8_t *)text + pos, n, out);
	}
	return ret;
}

/* The token that is the whole word, or -1. */
static int whole_word(const struct sits_tok_vocab *v, struct sits_tok_scratch *s, const uint8_t *word, size_t len,
		      int32_t *id)
{
	size_t i, o = 0;
	int ret;

	*id = -1;
	if (len > v->max_len)
		return 0;
	ret = sits_tok_scratch_reserve(s, 0, 2 * len);
	if (ret)
		return ret;
	for (i = 0; i < len; i++)
		o += put_char(byte_to_char(word[i]), s->text + o);
	*id = sits_tok_vocab_find_plain(v, s->text, o);
	return 0;
}

static int encode_word(const struct sits_tok_bpe *b, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
		       const uint8_t *word, size_t len, struct sits_tokens *out)
{
	int32_t id;
	int ret;

	if (b->ignore_merges) {
		ret = whole_word(v, s, word, len, &id);
		if (ret || id >= 0)
			return ret ? ret : sits_tokens_push(out, id);
	}
	return len <= SHORT_WORD ? encode_short(b, word, len, out) : encode_long(b, s, word, len, out);
}

int sits_tok_bpe_encode(const struct sits_tok_bpe *b, const struct sits_tok_vocab *v, struct sits_tok_scratch *s,
			const char *text, size_t len, struct sits_tokens *out)
{
	struct sits_tok_words w;
	const char *word;
	size_t n;
	int ret;

	ret = sits_tok_words_init(&w, b->split, text, len, 0);
	while (!ret) {
		ret = sits_tok_words_next(&w, &word, &n);
		if (ret <= 0)
			break;
		ret = encode_word(b, v, s, (const uint8_t *)word, n, out);
	}
	sits_tok_words_fini(&w);
	return ret;
}
