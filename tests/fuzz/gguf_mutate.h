/* SPDX-License-Identifier: MIT */
/*
 * gguf_mutate.h - change a GGUF by its parts, and put it together again so that counts, offsets and padding
 * fit. Without this nearly every change is refused for a length that no longer adds up.
 */
#ifndef SITS_TESTS_GGUF_MUTATE_H
#define SITS_TESTS_GGUF_MUTATE_H

#include "kernels/kernels.h"
#include "tests/fuzz/fuzz.h"

#define GM_ITEMS_MAX 1024
#define GM_ALIGN 32

struct gm_item {
	uint8_t *p;
	size_t len;
};

struct gm_file {
	struct gm_item key[GM_ITEMS_MAX], tensor[GM_ITEMS_MAX];
	size_t nr_keys, nr_tensors;
};

struct gm_cur {
	const uint8_t *p;
	size_t len, at;
};

static int gm_skip(struct gm_cur *c, uint64_t n)
{
	if (n > c->len - c->at)
		return 0;
	c->at += (size_t)n;
	return 1;
}

static int gm_u64(struct gm_cur *c, uint64_t *v)
{
	if (!gm_skip(c, 8))
		return 0;
	memcpy(v, c->p + c->at - 8, 8);
	return 1;
}

static int gm_u32(struct gm_cur *c, uint32_t *v)
{
	if (!gm_skip(c, 4))
		return 0;
	memcpy(v, c->p + c->at - 4, 4);
	return 1;
}

static size_t gm_scalar(uint32_t type)
{
	static const uint8_t bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

	return type < sizeof(bytes) ? bytes[type] : 0;
}

static int gm_value(struct gm_cur *c, uint32_t type, int depth)
{
	uint32_t elem;
	uint64_t n;

	if (gm_scalar(type))
		return gm_skip(c, gm_scalar(type));
	if (type == 8)
		return gm_u64(c, &n) && gm_skip(c, n);
	if (type != 9 || depth > 4 || !gm_u32(c, &elem) || !gm_u64(c, &n))
		return 0;
	if (gm_scalar(elem))
		return n <= c->len && gm_skip(c, n * gm_scalar(elem));
	while (n--)
		if (!gm_value(c, elem, depth + 1))
			return 0;
	return 1;
}

static int gm_add(struct gm_item *item, size_t *nr, const uint8_t *p, size_t len)
{
	if (*nr == GM_ITEMS_MAX)
		return 0;
	item[*nr].p = malloc(len ? len : 1);
	if (!item[*nr].p)
		return 0;
	memcpy(item[*nr].p, p, len);
	item[*nr].len = len;
	++*nr;
	return 1;
}

/* As far as it goes; what can't be read is left out. */
static int gm_parse(struct gm_file *f, const uint8_t *p, size_t len)
{
	struct gm_cur c = { p, len, 0 };
	uint64_t nr_tensors, nr_keys, n;
	uint32_t v, type, dims;
	size_t start;

	f->nr_keys = f->nr_tensors = 0;
	if (!gm_u32(&c, &v) || !gm_u32(&c, &v) || !gm_u64(&c, &nr_tensors) || !gm_u64(&c, &nr_keys))
		return 0;
	while (nr_keys--) {
		start = c.at;
		if (!gm_u64(&c, &n) || !gm_skip(&c, n) || !gm_u32(&c, &type) || !gm_value(&c, type, 0))
			return f->nr_keys > 0;
		if (!gm_add(f->key, &f->nr_keys, p + start, c.at - start))
			return 1;
	}
	while (nr_tensors--) {
		start = c.at;
		if (!gm_u64(&c, &n) || !gm_skip(&c, n) || !gm_u32(&c, &dims) || dims > 4 || !gm_skip(&c, 8 * dims + 12))
			return 1;
		if (!gm_add(f->tensor, &f->nr_tensors, p + start, c.at - start))
			return 1;
	}
	return 1;
}

static void gm_free(struct gm_file *f)
{
	size_t i;

	for (i = 0; i < f->nr_keys; i++)
		free(f->key[i].p);
	for (i = 0; i < f->nr_tensors; i++)
		free(f->tensor[i].p);
}

/* Where the number of dimensions is, and what it is where the rest fits it, else 0. */
static size_t gm_dims_at(const struct gm_item *t, uint32_t *dims)
{
	uint64_t n;

	memcpy(&n, t->p, 8);
	memcpy(dims, t->p + 8 + n, 4);
	if (*dims > 4 || t->len != 24 + n + 8 * *dims)
		*dims = 0;
	return 8 + (size_t)n;
}

static uint64_t gm_tensor_bytes(const struct gm_item *t)
{
	const struct sits_dtype_info *info;
	uint64_t ne, elems = 1;
	uint32_t dims, type, i;
	size_t at = gm_dims_at(t, &dims);

	if (!dims)
		return 0;
	for (i = 0; i < dims; i++) {
		memcpy(&ne, t->p + at + 4 + 8 * i, 8);
		if (__builtin_mul_overflow(elems, ne, &elems))
			return 0;
	}
	memcpy(&type, t->p + at + 4 + 8 * dims, 4);
	info = sits_dtype_info(type);
	if (!info || elems > 1u << 24)
		return 0;
	return elems / info->block_elems * info->block_bytes;
}

static size_t gm_put(uint8_t *out, size_t max, size_t at, const void *p, size_t n)
{
	if (at > max || n > max - at)
		return max + 1;
	memcpy(out + at, p, n);
	return at + n;
}

/* The file again; 0 where it does not fit. Data bytes are zero. */
static size_t gm_join(struct gm_file *f, uint8_t *out, size_t max)
{
	uint64_t head[2] = { f->nr_tensors, f->nr_keys }, sum = 0;
	size_t at, i;

	at = gm_put(out, max, 0, "GGUF\3\0\0\0", 8);
	at = gm_put(out, max, at, head, sizeof(head));
	for (i = 0; i < f->nr_keys; i++)
		at = gm_put(out, max, at, f->key[i].p, f->key[i].len);
	for (i = 0; i < f->nr_tensors; i++) {
		memcpy(f->tensor[i].p + f->tensor[i].len - 8, &sum, 8);
		at = gm_put(out, max, at, f->tensor[i].p, f->tensor[i].len);
		sum += (gm_tensor_bytes(&f->tensor[i]) + GM_ALIGN - 1) & ~(uint64_t)(GM_ALIGN - 1);
	}
	if (f->nr_tensors)
		sum += -at % GM_ALIGN;
	if (at > max || sum > max - at)
		return 0;
	memset(out + at, 0, (size_t)sum);
	return at + (size_t)sum;
}

/* Key names that mean something to a reader behind the format, and tensors that one looks for. */
static const char *const gm_keys[] = {
	"general.alignment", "general.architecture", "general.name", "llama.block_count", "llama.context_length",
	"llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
	"llama.attention.head_count_kv", "llama.attention.key_length", "llama.attention.value_length",
	"llama.attention.layer_norm_rms_epsilon", "llama.rope.dimension_count", "llama.rope.freq_base",
	"llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.vocab_size", "llama.expert_count",
	"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
	"tokenizer.ggml.scores", "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
	"tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
	"tokenizer.ggml.add_space_prefix", "tokenizer.chat_template",
};
static const char *const gm_tensors[] = {
	"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight", "blk.0.attn_norm.weight",
	"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
	"blk.0.attn_q.bias", "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
	"blk.0.ffn_down.weight", "blk.1.attn_norm.weight",
};

#define GM_NR(list) (sizeof(list) / sizeof((list)[0]))

static void gm_new_key(struct gm_file *f, uint64_t *rng)
{
	const char *name = gm_keys[fuzz_rand(rng) % GM_NR(gm_keys)];
	uint64_t n = strlen(name), count = fuzz_rand(rng) % 5;
	uint32_t type = fuzz_rand(rng) % 13, elem = fuzz_rand(rng) % 8;
	uint8_t buf[256];
	size_t at;

	at = gm_put(buf, sizeof(buf), 0, &n, 8);
	at = gm_put(buf, sizeof(buf), at, name, (size_t)n);
	at = gm_put(buf, sizeof(buf), at, &type, 4);
	if (type == 9)
		at = gm_put(buf, sizeof(buf), at, &elem, 4);
	if (type == 8 || type == 9)
		at = gm_put(buf, sizeof(buf), at, &count, 8);
	n = fuzz_rand(rng) & (fuzz_rand(rng) % 2 ? UINT64_MAX : 63);
	if (type == 7 || (type == 9 && elem == 7))
		n &= 0x0101010101010101;
	for (count = type == 8 ? count : type == 9 ? count * gm_scalar(elem) : gm_scalar(type); count; count--, n = n >> 8 | n << 56)
		at = gm_put(buf, sizeof(buf), at, &n, 1);
	gm_add(f->key, &f->nr_keys, buf, at);
}

static void gm_new_tensor(struct gm_file *f, uint64_t *rng)
{
	const char *name = gm_tensors[fuzz_rand(rng) % GM_NR(gm_tensors)];
	uint32_t dims = 1 + fuzz_rand(rng) % 4, type = fuzz_rand(rng) % 32, i;
	uint64_t n = strlen(name);
	uint8_t buf[256];
	size_t at;

	at = gm_put(buf, sizeof(buf), 0, &n, 8);
	at = gm_put(buf, sizeof(buf), at, name, (size_t)n);
	at = gm_put(buf, sizeof(buf), at, &dims, 4);
	for (i = 0; i < dims; i++) {
		n = i ? 1 + fuzz_rand(rng) % 4 : 32 * (fuzz_rand(rng) % 9);
		at = gm_put(buf, sizeof(buf), at, &n, 8);
	}
	at = gm_put(buf, sizeof(buf), at, &type, 4);
	at = gm_put(buf, sizeof(buf), at, &n, 8);
	gm_add(f->tensor, &f->nr_tensors, buf, at);
}

/* libFuzzer's own changes to a part; its length stays, so that what follows is still found. */
static void gm_bytes(struct gm_item *item, size_t from)
{
	if (from < item->len)
		(void)LLVMFuzzerMutate(item->p + from, item->len - from, item->len - from);
}

/* A string value of another text. */
static void gm_text(struct gm_item *item, uint64_t *rng)
{
	uint64_t name, n;
	uint32_t type;
	uint8_t *p;

	memcpy(&name, item->p, 8);
	memcpy(&type, item->p + 8 + name, 4);
	if (type != 8 || item->len < 20 + name) {
		gm_bytes(item, 12 + (size_t)name);
		return;
	}
	p = realloc(item->p, item->len + 64);
	if (!p)
		return;
	item->p = p;
	n = item->len - (20 + name);
	n = LLVMFuzzerMutate(p + 20 + name, (size_t)n, (size_t)n + fuzz_rand(rng) % 64);
	memcpy(p + 12 + name, &n, 8);
	item->len = 20 + (size_t)(name + n);
}

static void gm_drop(struct gm_item *item, size_t *nr, uint64_t *rng)
{
	size_t i = fuzz_rand(rng) % *nr;

	free(item[i].p);
	item[i] = item[--*nr];
}

static void gm_swap(struct gm_item *item, size_t nr, uint64_t *rng)
{
	size_t a = fuzz_rand(rng) % nr, b = fuzz_rand(rng) % nr;
	struct gm_item t = item[a];

	item[a] = item[b];
	item[b] = t;
}

/* Another type or dimension of a tensor, of a sensible size. */
static void gm_reshape(struct gm_item *t, uint64_t *rng)
{
	uint32_t dims, type = fuzz_rand(rng) % 32;
	uint64_t ne = fuzz_rand(rng) % 2 ? 32 * (fuzz_rand(rng) % 17) : fuzz_rand(rng) % 300;
	size_t at = gm_dims_at(t, &dims);

	if (!dims)
		return;
	if (fuzz_rand(rng) % 3 == 0)
		memcpy(t->p + at + 4 + 8 * dims, &type, 4);
	else
		memcpy(t->p + at + 4 + 8 * (fuzz_rand(rng) % dims), &ne, 8);
}

static void gm_change(struct gm_file *f, uint64_t *rng)
{
	size_t k = f->nr_keys ? fuzz_rand(rng) % f->nr_keys : 0, t = f->nr_tensors ? fuzz_rand(rng) % f->nr_tensors : 0;

	switch (fuzz_rand(rng) % 12) {
	case 0:
		gm_new_tensor(f, rng);
		break;
	case 1:
	case 2:
		if (f->nr_tensors)
			gm_reshape(&f->tensor[t], rng);
		break;
	case 3:
		if (f->nr_tensors)
			gm_drop(f->tensor, &f->nr_tensors, rng);
		break;
	case 4:
		if (f->nr_keys)
			gm_drop(f->key, &f->nr_keys, rng);
		break;
	case 5:
		if (f->nr_keys)
			gm_swap(f->key, f->nr_keys, rng);
		break;
	case 6:
		if (f->nr_keys)
			gm_bytes(&f->key[k], 8);
		break;
	case 7:
		if (f->nr_tensors)
			gm_bytes(&f->tensor[t], 8);
		break;
	case 8:
	case 9:
		gm_new_key(f, rng);
		break;
	default:
		if (f->nr_keys)
			gm_text(&f->key[k], rng);
		break;
	}
}

static size_t gm_mutate(uint8_t *data, size_t size, size_t max, uint64_t *rng)
{
	static struct gm_file f;
	size_t n = 0;

	if (fuzz_rand(rng) % 4 && gm_parse(&f, data, size)) {
		do
			gm_change(&f, rng);
		while (fuzz_rand(rng) % 3 == 0);
		n = gm_join(&f, data, max);
	}
	gm_free(&f);
	f.nr_keys = f.nr_tensors = 0;
	return n ? n : LLVMFuzzerMutate(data, size, max);
}

#endif
