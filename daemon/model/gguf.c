// SPDX-License-Identifier: MIT
/*
 * gguf.c - GGUF version 3, read in place. See gguf.h and docs/model-formats.md.
 *
 *	"GGUF" | u32 version | u64 nr_tensors | u64 nr_keys
 *	nr_keys    x { string key | u32 type | value }
 *	nr_tensors x { string name | u32 nr_dims | u64 ne[nr_dims] | u32 type | u64 offset }
 *	zeros up to general.alignment | tensor data, each tensor padded to general.alignment
 *
 * One pass checks everything and builds the index. A count in the file is believed only as far as the
 * bytes that are left could hold that many items, so the index is never larger than a small
 * multiple of the file. What keys and tensors mean is the business of tokenizer.c, chat.c and the
 * architectures.
 */
#include "daemon/model/gguf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "kernels/kernels.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values and weights are used in place");

#define GGUF_VERSION		3
#define GGUF_KEY_MAX		65535		/* docs/gguf.md: a key is at most 2^16-1 bytes */
#define GGUF_NAME_MAX		63		/* docs/gguf.md: a tensor name is at most 64 bytes; readers keep a NUL */
#define GGUF_STRING_MAX		(UINT64_C(1) << 30)
#define GGUF_ARRAY_MAX		(UINT64_C(1) << 30)
#define GGUF_ALIGN_DEFAULT	32
#define GGUF_ALIGN_MIN		8		/* docs/gguf.md: a multiple of 8 */
#define GGUF_DEPTH_MAX		4		/* ours: arrays of arrays, no file seen has any */

/* Smallest encodings, to bound counts by the bytes left. */
#define GGUF_KEY_BYTES_MIN	(8 + 1 + 4 + 1)
#define GGUF_TENSOR_BYTES_MIN	(8 + 1 + 4 + 8 + 4 + 8)
#define GGUF_ARRAY_BYTES_MIN	(4 + 8)

struct gguf_kv {
	struct sits_str key;
	enum sits_gguf_type type;
	const uint8_t *val;		/* scalar, or the first byte of a string or of array elements */
	uint64_t nr;			/* bytes of a string, elements of an array */
	enum sits_gguf_type elem;	/* ARRAY only */
	struct sits_str *strings;	/* ARRAY of STRING only; owned */
};

/* Open addressing; a slot holds an index + 1, 0 is free. At most half full. */
struct gguf_table {
	uint32_t *slot;
	size_t mask;
};

struct sits_gguf {
	struct gguf_kv *kv;
	struct sits_gguf_tensor *tensor;
	uint64_t nr_kv, nr_tensors;
	const uint8_t *keys_end;
	struct gguf_table by_key, by_name;
	uint64_t seed[2];
};

struct gguf_cur {
	const uint8_t *base;
	size_t len, pos;
	struct sits_diag *diag;
};

/* What is being read, for messages: "key 3 (tokenizer.ggml.tokens)". */
struct gguf_what {
	const char *kind;
	uint64_t i;
	struct sits_str name;	/* checked; len 0 while unknown */
};

#define GGUF_SHOWN_MAX 80	/* bytes of a name in a message */

/* Bytes of a checked name to show: cut between characters. */
static int shown(struct sits_str s)
{
	size_t n = s.len;

	if (n > GGUF_SHOWN_MAX) {
		n = GGUF_SHOWN_MAX;
		while (n && ((uint8_t)s.p[n] & 0xc0) == 0x80)
			n--;
	}
	return (int)n;
}

#define gguf_bad(c, err, at, w, fmt, ...)						\
	sits_diag_fail((c)->diag, err, "GGUF: byte %zu: %s %llu%s%.*s%s: " fmt, (size_t)(at),	\
		       (w)->kind, (unsigned long long)(w)->i, (w)->name.len ? " (" : "",	\
		       shown((w)->name), (w)->name.len ? (w)->name.p : "",			\
		       (w)->name.len ? ")" : "", ##__VA_ARGS__)

/*
 * SipHash-1-3 under a random key, so that a file can't be made of names that all collide.
 * Source: Aumasson and Bernstein 2012, with 1 and 3 rounds.
 */
static inline uint64_t rotl64(uint64_t x, int b)
{
	return x << b | x >> (64 - b);
}

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl64(v[1], 13) ^ v[0];
	v[0] = rotl64(v[0], 32);
	v[2] += v[3];
	v[3] = rotl64(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl64(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl64(v[1], 17) ^ v[2];
	v[2] = rotl64(v[2], 32);
}

static uint64_t sip_hash(const uint64_t k[2], const char *p, size_t len)
{
	uint64_t v[4] = {
		k[0] ^ UINT64_C(0x736f6d6570736575), k[1] ^ UINT64_C(0x646f72616e646f6d),
		k[0] ^ UINT64_C(0x6c7967656e657261), k[1] ^ UINT64_C(0x7465646279746573),
	};
	uint64_t last = (uint64_t)len << 56, m;
	size_t i;

	for (i = 0; len - i >= 8; i += 8) {
		memcpy(&m, p + i, 8);
		v[3] ^= m;
		sip_round(v);
		v[0] ^= m;
	}
	m = 0;
	memcpy(&m, p + i, len - i);
	last |= m;
	v[3] ^= last;
	sip_round(v);
	v[0] ^= last;
	v[2] ^= 0xff;
	for (i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static int table_init(struct gguf_table *t, uint64_t nr)
{
	size_t n = 4;

	if (nr >= UINT32_MAX / 2)
		return -ENOMEM;
	while (n < 2 * nr)
		n *= 2;
	t->slot = calloc(n, sizeof(*t->slot));
	if (!t->slot)
		return -ENOMEM;
	t->mask = n - 1;
	return 0;
}

static bool str_eq(struct sits_str a, const char *p, size_t len)
{
	return a.len == len && !memcmp(a.p, p, len);
}

/* The slot that holds the name, or the free one where it belongs. @names: the first struct's name; @stride apart. */
static uint32_t *table_slot(const struct sits_gguf *g, const struct gguf_table *t, const void *names,
			    size_t stride, const char *p, size_t len)
{
	size_t h = (size_t)sip_hash(g->seed, p, len) & t->mask;
	struct sits_str s;

	for (;; h = (h + 1) & t->mask) {
		if (!t->slot[h])
			return &t->slot[h];
		memcpy(&s, (const char *)names + (t->slot[h] - 1) * stride, sizeof(s));
		if (str_eq(s, p, len))
			return &t->slot[h];
	}
}

static uint32_t *key_slot(const struct sits_gguf *g, const char *p, size_t len)
{
	return table_slot(g, &g->by_key, &g->kv[0].key, sizeof(g->kv[0]), p, len);
}

static uint32_t *name_slot(const struct sits_gguf *g, const char *p, size_t len)
{
	return table_slot(g, &g->by_name, &g->tensor[0].name, sizeof(g->tensor[0]), p, len);
}

/* Length of the well-formed UTF-8 character at p, 0 where there is none (Unicode 15, table 3-7). */
static size_t utf8_char(const uint8_t *p, size_t left)
{
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
	size_t i;

	if (!n || n > left)
		return 0;
	for (i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

/* Names of keys and tensors: UTF-8 without control characters, so that they can be shown. */
static bool name_ok(struct sits_str s)
{
	const uint8_t *p = (const uint8_t *)s.p;
	size_t i, n;

	for (i = 0; i < s.len; i += n) {
		n = utf8_char(p + i, s.len - i);
		if (!n || p[i] < 0x20 || p[i] == 0x7f)
			return false;
		if (p[i] == 0xc2 && p[i + 1] < 0xa0)	/* C1 controls */
			return false;
	}
	return s.len > 0;
}

static int take(struct gguf_cur *c, size_t n, const void **p, const struct gguf_what *w, const char *part)
{
	if (n > c->len - c->pos)
		return gguf_bad(c, -EBADMSG, c->pos, w, "%s needs %zu bytes, the file has %zu left", part, n,
				c->len - c->pos);
	*p = c->base + c->pos;
	c->pos += n;
	return 0;
}

static int take_u32(struct gguf_cur *c, uint32_t *v, const struct gguf_what *w, const char *part)
{
	const void *p;
	int ret = take(c, sizeof(*v), &p, w, part);

	if (!ret)
		memcpy(v, p, sizeof(*v));
	return ret;
}

static int take_u64(struct gguf_cur *c, uint64_t *v, const struct gguf_what *w, const char *part)
{
	const void *p;
	int ret = take(c, sizeof(*v), &p, w, part);

	if (!ret)
		memcpy(v, p, sizeof(*v));
	return ret;
}

static int take_str(struct gguf_cur *c, struct sits_str *s, uint64_t max, const struct gguf_what *w,
		    const char *part)
{
	size_t at = c->pos;
	const void *p;
	uint64_t len;
	int ret;

	ret = take_u64(c, &len, w, part);
	if (ret)
		return ret;
	if (len > max)
		return gguf_bad(c, -EBADMSG, at, w, "%s is %llu bytes long, at most %llu are allowed", part,
				(unsigned long long)len, (unsigned long long)max);
	ret = take(c, (size_t)len, &p, w, part);
	if (ret)
		return ret;
	s->p = p;
	s->len = (size_t)len;
	return 0;
}

/* Bytes of a fixed-size value; 0 for the others. */
static size_t scalar_bytes(uint32_t type)
{
	static const uint8_t bytes[] = {
		[SITS_GGUF_U8] = 1, [SITS_GGUF_I8] = 1, [SITS_GGUF_U16] = 2, [SITS_GGUF_I16] = 2,
		[SITS_GGUF_U32] = 4, [SITS_GGUF_I32] = 4, [SITS_GGUF_F32] = 4, [SITS_GGUF_BOOL] = 1,
		[SITS_GGUF_U64] = 8, [SITS_GGUF_I64] = 8, [SITS_GGUF_F64] = 8,
	};

	return type < sizeof(bytes) ? bytes[type] : 0;
}

static int check_type(struct gguf_cur *c, size_t at, uint32_t type, const struct gguf_what *w, const char *part)
{
	if (type <= SITS_GGUF_F64)
		return 0;
	return gguf_bad(c, -EBADMSG, at, w, "%s %u is not one of the format's (0 to 12)", part, type);
}

static int check_bools(struct gguf_cur *c, const uint8_t *p, uint64_t nr, const struct gguf_what *w)
{
	uint64_t i;

	for (i = 0; i < nr; i++)
		if (p[i] > 1)
			return gguf_bad(c, -EBADMSG, p + i - c->base, w, "a bool is %u, not 0 or 1", p[i]);
	return 0;
}

static int take_strings(struct gguf_cur *c, uint64_t nr, struct sits_str *out, const struct gguf_what *w)
{
	struct sits_str s;
	uint64_t i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = take_str(c, &s, GGUF_STRING_MAX, w, "a string of the array");
		if (ret)
			return ret;
		if (out)
			out[i] = s;
	}
	return 0;
}

/* Head of an array: element type and count, the count checked against the bytes left. */
static int take_array_head(struct gguf_cur *c, uint32_t *elem, uint64_t *nr, const struct gguf_what *w)
{
	size_t at = c->pos, each;
	int ret;

	ret = take_u32(c, elem, w, "array element type");
	if (!ret)
		ret = check_type(c, at, *elem, w, "array element type");
	at = c->pos;
	if (!ret)
		ret = take_u64(c, nr, w, "array length");
	if (ret)
		return ret;
	if (*nr > GGUF_ARRAY_MAX)
		return gguf_bad(c, -EBADMSG, at, w, "an array of %llu elements, at most %llu are allowed",
				(unsigned long long)*nr, (unsigned long long)GGUF_ARRAY_MAX);
	each = *elem == SITS_GGUF_STRING ? 8 : *elem == SITS_GGUF_ARRAY ? GGUF_ARRAY_BYTES_MIN : scalar_bytes(*elem);
	if (*nr > (c->len - c->pos) / each)
		return gguf_bad(c, -EBADMSG, at, w, "an array of %llu elements does not fit the %zu bytes left",
				(unsigned long long)*nr, c->len - c->pos);
	return 0;
}

static int take_array_body(struct gguf_cur *c, uint32_t elem, uint64_t nr, struct sits_str *strings, int depth,
			   const struct gguf_what *w)
{
	const void *p;
	uint32_t sub;
	uint64_t i, n;
	int ret;

	if (elem == SITS_GGUF_STRING)
		return take_strings(c, nr, strings, w);
	if (elem != SITS_GGUF_ARRAY) {
		ret = take(c, (size_t)nr * scalar_bytes(elem), &p, w, "array");
		return !ret && elem == SITS_GGUF_BOOL ? check_bools(c, p, nr, w) : ret;
	}
	if (depth >= GGUF_DEPTH_MAX)
		return gguf_bad(c, -EBADMSG, c->pos, w, "arrays nest deeper than %d", GGUF_DEPTH_MAX);
	for (i = 0; i < nr; i++) {
		ret = take_array_head(c, &sub, &n, w);
		if (!ret)
			ret = take_array_body(c, sub, n, NULL, depth + 1, w);
		if (ret)
			return ret;
	}
	return 0;
}

static int take_array(struct gguf_cur *c, struct gguf_kv *kv, const struct gguf_what *w)
{
	uint32_t elem;
	int ret;

	ret = take_array_head(c, &elem, &kv->nr, w);
	if (ret)
		return ret;
	kv->elem = (enum sits_gguf_type)elem;
	kv->val = c->base + c->pos;
	if (elem == SITS_GGUF_STRING && kv->nr) {
		kv->strings = malloc((size_t)kv->nr * sizeof(*kv->strings));
		if (!kv->strings)
			return gguf_bad(c, -ENOMEM, c->pos, w, "no memory for %llu strings",
					(unsigned long long)kv->nr);
	}
	return take_array_body(c, elem, kv->nr, kv->strings, 1, w);
}

static int take_value(struct gguf_cur *c, struct gguf_kv *kv, const struct gguf_what *w)
{
	struct sits_str s;
	const void *p;
	int ret;

	switch (kv->type) {
	case SITS_GGUF_STRING:
		ret = take_str(c, &s, GGUF_STRING_MAX, w, "value");
		if (!ret) {
			kv->val = (const uint8_t *)s.p;
			kv->nr = s.len;
		}
		return ret;
	case SITS_GGUF_ARRAY:
		return take_array(c, kv, w);
	default:
		ret = take(c, scalar_bytes(kv->type), &p, w, "value");
		if (!ret)
			kv->val = p;
		return !ret && kv->type == SITS_GGUF_BOOL ? check_bools(c, p, 1, w) : ret;
	}
}

static int take_name(struct gguf_cur *c, struct sits_str *name, uint64_t max, struct gguf_what *w)
{
	size_t at = c->pos;
	int ret;

	ret = take_str(c, name, max, w, "name");
	if (ret)
		return ret;
	if (!name->len)
		return gguf_bad(c, -EBADMSG, at, w, "the name is empty");
	if (!name_ok(*name))
		return gguf_bad(c, -EBADMSG, at, w, "the name is not UTF-8 text without control characters");
	w->name = *name;
	return 0;
}

static int take_kv(struct gguf_cur *c, struct sits_gguf *g, uint64_t i)
{
	struct gguf_what w = { .kind = "key", .i = i };
	struct gguf_kv *kv = &g->kv[i];
	uint32_t *slot, type;
	size_t at = c->pos;
	int ret;

	ret = take_name(c, &kv->key, GGUF_KEY_MAX, &w);
	if (ret)
		return ret;
	slot = key_slot(g, kv->key.p, kv->key.len);
	if (*slot)
		return gguf_bad(c, -EBADMSG, at, &w, "the same key is already there, as key %u", *slot - 1);
	*slot = (uint32_t)i + 1;
	at = c->pos;
	ret = take_u32(c, &type, &w, "value type");
	if (!ret)
		ret = check_type(c, at, type, &w, "value type");
	if (ret)
		return ret;
	kv->type = (enum sits_gguf_type)type;
	return take_value(c, kv, &w);
}

static int take_dims(struct gguf_cur *c, struct sits_gguf_tensor *t, uint64_t *elems, const struct gguf_what *w)
{
	size_t at = c->pos;
	uint32_t d;
	int ret;

	ret = take_u32(c, &t->nr_dims, w, "number of dimensions");
	if (ret)
		return ret;
	if (!t->nr_dims || t->nr_dims > SITS_GGUF_MAX_DIMS)
		return gguf_bad(c, -EBADMSG, at, w, "%u dimensions; 1 to %d are allowed", t->nr_dims,
				SITS_GGUF_MAX_DIMS);
	for (d = 0, *elems = 1; d < SITS_GGUF_MAX_DIMS; d++) {
		t->ne[d] = 1;
		if (d >= t->nr_dims)
			continue;
		at = c->pos;
		ret = take_u64(c, &t->ne[d], w, "dimension");
		if (ret)
			return ret;
		if (!t->ne[d])
			return gguf_bad(c, -EBADMSG, at, w, "dimension %u is zero", d);
		/* As the format's other readers, whose counts are signed. */
		if (__builtin_mul_overflow(*elems, t->ne[d], elems) || *elems > INT64_MAX)
			return gguf_bad(c, -EBADMSG, at, w, "dimension %u of %llu: the number of elements overflows", d,
					(unsigned long long)t->ne[d]);
	}
	return 0;
}

/* Types that other readers know, for the message. Source: enum ggml_type. */
static const char *other_dtype(uint32_t type)
{
	static const char *const name[] = {
		[4] = "Q4_2, removed", [5] = "Q4_3, removed", [9] = "Q8_1", [10] = "Q2_K", [11] = "Q3_K",
		[15] = "Q8_K", [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL",
		[21] = "IQ3_S", [22] = "IQ2_S", [23] = "IQ4_XS", [24] = "I8", [25] = "I16", [26] = "I32", [27] = "I64",
		[28] = "F64", [29] = "IQ1_M", [34] = "TQ1_0", [35] = "TQ2_0", [39] = "MXFP4", [40] = "NVFP4",
	};

	return type < sizeof(name) / sizeof(name[0]) && name[type] ? name[type] : "unknown";
}

/* Type and size; @elems is the product of the dimensions. */
static int take_dtype(struct gguf_cur *c, struct sits_gguf_tensor *t, uint64_t elems, const struct gguf_what *w)
{
	const struct sits_dtype_info *info;
	size_t at = c->pos;
	uint64_t matrix;
	int ret;

	ret = take_u32(c, &t->type, w, "tensor type");
	if (ret)
		return ret;
	info = sits_dtype_info(t->type);
	if (!info)
		return gguf_bad(c, -EPROTONOSUPPORT, at, w,
				"tensor type %u (%s) is not supported; use a file of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K",
				t->type, other_dtype(t->type));
	if (t->ne[0] % info->block_elems)
		return gguf_bad(c, -EBADMSG, at, w, "a row of %llu elements is not whole %s blocks of %u",
				(unsigned long long)t->ne[0], info->name, info->block_elems);
	matrix = sits_dtype_matrix_bytes(t->type, t->ne[0], t->ne[1]);
	if (!matrix || __builtin_mul_overflow(matrix, elems / (t->ne[0] * t->ne[1]), &t->bytes))
		return gguf_bad(c, -EBADMSG, at, w, "the size in bytes overflows");
	return 0;
}

/* @sum: in and out, where this tensor's data must start and the next one's must, in the data section. */
static int take_tensor(struct gguf_cur *c, struct sits_gguf *g, uint64_t i, uint64_t align, uint64_t *sum)
{
	struct gguf_what w = { .kind = "tensor", .i = i };
	struct sits_gguf_tensor *t = &g->tensor[i];
	uint64_t off, elems = 0;
	size_t at = c->pos;
	uint32_t *slot;
	int ret;

	ret = take_name(c, &t->name, GGUF_NAME_MAX, &w);
	if (ret)
		return ret;
	slot = name_slot(g, t->name.p, t->name.len);
	if (*slot)
		return gguf_bad(c, -EBADMSG, at, &w, "a tensor of the same name is already there, as tensor %u",
				*slot - 1);
	*slot = (uint32_t)i + 1;
	ret = take_dims(c, t, &elems, &w);
	if (!ret)
		ret = take_dtype(c, t, elems, &w);
	at = c->pos;
	if (!ret)
		ret = take_u64(c, &off, &w, "offset");
	if (ret)
		return ret;
	if (off != *sum)
		return gguf_bad(c, -EBADMSG, at, &w, "offset %llu, but the tensors before it end at %llu",
				(unsigned long long)off, (unsigned long long)*sum);
	/* The data section's start is known only after the last tensor: keep the offset until then. */
	if (__builtin_add_overflow(off, t->bytes, sum) || __builtin_add_overflow(*sum, align - 1, sum))
		return gguf_bad(c, -EBADMSG, at, &w, "the tensor's end overflows");
	*sum &= ~(align - 1);
	return 0;
}

/* Offsets are the running padded sum, so they need not be remembered from the first pass. */
static int place_tensors(struct gguf_cur *c, struct sits_gguf *g, uint64_t align)
{
	uint64_t start = ((uint64_t)c->pos + align - 1) & ~(align - 1);
	uint64_t i, off = start;

	for (i = 0; i < g->nr_tensors; i++) {
		struct sits_gguf_tensor *t = &g->tensor[i];
		struct gguf_what w = { .kind = "tensor", .i = i, .name = t->name };

		if (off > c->len || t->bytes > c->len - off)
			return gguf_bad(c, -EBADMSG, off, &w,
					"%llu bytes of data end past the end of the file, which has %zu bytes: it is cut short",
					(unsigned long long)t->bytes, c->len);
		t->data = c->base + off;
		off = (off + t->bytes + align - 1) & ~(align - 1);
	}
	return 0;
}

static int read_alignment(struct gguf_cur *c, const struct sits_gguf *g, uint64_t *align)
{
	static const char key[] = "general.alignment";
	uint32_t slot = *key_slot(g, key, sizeof(key) - 1), v;
	struct gguf_what w = { .kind = "key", .name = { key, sizeof(key) - 1 } };
	const struct gguf_kv *kv;

	*align = GGUF_ALIGN_DEFAULT;
	if (!slot)
		return 0;
	w.i = slot - 1;
	kv = &g->kv[slot - 1];
	if (kv->type != SITS_GGUF_U32)
		return gguf_bad(c, -EBADMSG, kv->key.p - (const char *)c->base, &w, "value type %d, must be 4 (u32)",
				(int)kv->type);
	memcpy(&v, kv->val, sizeof(v));
	if (v < GGUF_ALIGN_MIN || v & (v - 1))
		return gguf_bad(c, -EBADMSG, kv->val - c->base, &w, "%u is not a power of two from %d up", v,
				GGUF_ALIGN_MIN);
	*align = v;
	return 0;
}

static int check_version(struct gguf_cur *c, uint32_t v)
{
	if (v == GGUF_VERSION)
		return 0;
	if (v && !(v & 0xffff))
		return sits_diag_fail(c->diag, -EPROTONOSUPPORT,
				      "GGUF: byte 4: version %u reads as big-endian; only little-endian files are read: convert the model again without --bigendian",
				      __builtin_bswap32(v));
	if (!v)
		return sits_diag_fail(c->diag, -EBADMSG, "GGUF: byte 4: version 0");
	return sits_diag_fail(c->diag, -EPROTONOSUPPORT,
			      "GGUF: byte 4: version %u is not supported, only version %d: convert the model again%s", v,
			      GGUF_VERSION, v > GGUF_VERSION ? "" : " with a tool of 2023-10 or later");
}

static int take_header(struct gguf_cur *c, struct sits_gguf *g)
{
	static const struct gguf_what w = { .kind = "header field" };
	const void *magic;
	uint32_t version;
	int ret;

	ret = take(c, 4, &magic, &w, "magic");
	if (ret)
		return ret;
	if (memcmp(magic, "GGUF", 4))
		return sits_diag_fail(c->diag, -EBADMSG, "not a GGUF file: it does not start with \"GGUF\"");
	ret = take_u32(c, &version, &w, "version");
	if (!ret)
		ret = check_version(c, version);
	if (!ret)
		ret = take_u64(c, &g->nr_tensors, &w, "number of tensors");
	if (!ret)
		ret = take_u64(c, &g->nr_kv, &w, "number of keys");
	if (ret)
		return ret;
	if (g->nr_tensors > (c->len - c->pos) / GGUF_TENSOR_BYTES_MIN)
		return sits_diag_fail(c->diag, -EBADMSG, "GGUF: byte 8: %llu tensors do not fit a file of %zu bytes",
				      (unsigned long long)g->nr_tensors, c->len);
	if (g->nr_kv > (c->len - c->pos) / GGUF_KEY_BYTES_MIN)
		return sits_diag_fail(c->diag, -EBADMSG, "GGUF: byte 16: %llu keys do not fit a file of %zu bytes",
				      (unsigned long long)g->nr_kv, c->len);
	return 0;
}

static int alloc_index(struct gguf_cur *c, struct sits_gguf *g)
{
	/* calloc(0) may give NULL. */
	g->kv = calloc((size_t)g->nr_kv + 1, sizeof(*g->kv));
	g->tensor = calloc((size_t)g->nr_tensors + 1, sizeof(*g->tensor));
	if (!g->kv || !g->tensor || table_init(&g->by_key, g->nr_kv) || table_init(&g->by_name, g->nr_tensors))
		return sits_diag_fail(c->diag, -ENOMEM, "GGUF: no memory for %llu keys and %llu tensors",
				      (unsigned long long)g->nr_kv, (unsigned long long)g->nr_tensors);
	if (getrandom(g->seed, sizeof(g->seed), GRND_NONBLOCK) != sizeof(g->seed)) {
		g->seed[0] = (uintptr_t)g;	/* early boot; ASLR is what is left */
		g->seed[1] = (uintptr_t)g->kv;
	}
	return 0;
}

static int index_all(struct gguf_cur *c, struct sits_gguf *g)
{
	uint64_t i, align = GGUF_ALIGN_DEFAULT, sum = 0;
	int ret;

	ret = take_header(c, g);
	if (!ret)
		ret = alloc_index(c, g);
	for (i = 0; !ret && i < g->nr_kv; i++)
		ret = take_kv(c, g, i);
	if (!ret) {
		g->keys_end = c->base + c->pos;
		ret = read_alignment(c, g, &align);
	}
	for (i = 0; !ret && i < g->nr_tensors; i++)
		ret = take_tensor(c, g, i, align, &sum);
	return ret ? ret : place_tensors(c, g, align);
}

int sits_gguf_open(const void *data, size_t len, struct sits_gguf **out, struct sits_diag *diag)
{
	struct gguf_cur c = { .base = data, .len = len, .diag = diag };
	struct sits_gguf *g;
	int ret;

	g = calloc(1, sizeof(*g));
	if (!g)
		return sits_diag_fail(diag, -ENOMEM, "GGUF: no memory");
	ret = index_all(&c, g);
	if (ret) {
		sits_gguf_close(g);
		return ret;
	}
	*out = g;
	return 0;
}

int sits_gguf_attach(struct sits_gguf *g, const struct sits_gguf_tensor *t, size_t nr, struct sits_diag *diag)
{
	struct sits_gguf_tensor *copy;
	uint32_t *slot;
	size_t i;

	if (g->nr_tensors || nr >= UINT32_MAX)
		return -EINVAL;
	copy = calloc(nr + 1, sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	free(g->tensor);
	g->tensor = copy;
	free(g->by_name.slot);
	memset(&g->by_name, 0, sizeof(g->by_name));
	if (table_init(&g->by_name, nr))
		return -ENOMEM;	/* only to be closed now */
	for (i = 0; i < nr; i++) {
		slot = name_slot(g, t[i].name.p, t[i].name.len);
		if (*slot)
			return sits_diag_fail(diag, -EBADMSG, "model: there are two tensors %.*s", shown(t[i].name), t[i].name.p);
		copy[i] = t[i];
		*slot = (uint32_t)i + 1;
		g->nr_tensors = i + 1;
	}
	return 0;
}

void sits_gguf_close(struct sits_gguf *g)
{
	uint64_t i;

	if (!g)
		return;
	for (i = 0; g->kv && i < g->nr_kv; i++)
		free(g->kv[i].strings);
	free(g->kv);
	free(g->tensor);
	free(g->by_key.slot);
	free(g->by_name.slot);
	free(g);
}

static const struct gguf_kv *find_kv(const struct sits_gguf *g, const char *key)
{
	uint32_t slot = *key_slot(g, key, strlen(key));

	return slot ? &g->kv[slot - 1] : NULL;
}

static int64_t load_signed(const struct gguf_kv *kv)
{
	int8_t i8;
	int16_t i16;
	int32_t i32;
	int64_t i64;

	switch (kv->type) {
	case SITS_GGUF_I8:
		memcpy(&i8, kv->val, sizeof(i8));
		return i8;
	case SITS_GGUF_I16:
		memcpy(&i16, kv->val, sizeof(i16));
		return i16;
	case SITS_GGUF_I32:
		memcpy(&i32, kv->val, sizeof(i32));
		return i32;
	default:
		memcpy(&i64, kv->val, sizeof(i64));
		return i64;
	}
}

int sits_gguf_get_u64(const struct sits_gguf *g, const char *key, uint64_t *v)
{
	const struct gguf_kv *kv = find_kv(g, key);
	uint64_t u = 0;
	int64_t s;

	if (!kv)
		return -ENOENT;
	switch (kv->type) {
	case SITS_GGUF_U8:
	case SITS_GGUF_U16:
	case SITS_GGUF_U32:
	case SITS_GGUF_U64:
		memcpy(&u, kv->val, scalar_bytes(kv->type));	/* little-endian */
		break;
	case SITS_GGUF_I8:
	case SITS_GGUF_I16:
	case SITS_GGUF_I32:
	case SITS_GGUF_I64:
		s = load_signed(kv);
		if (s < 0)
			return -EINVAL;
		u = (uint64_t)s;
		break;
	default:
		return -EINVAL;
	}
	*v = u;
	return 0;
}

int sits_gguf_get_f32(const struct sits_gguf *g, const char *key, float *v)
{
	const struct gguf_kv *kv = find_kv(g, key);
	double d;

	if (!kv)
		return -ENOENT;
	switch (kv->type) {
	case SITS_GGUF_F32:
		memcpy(v, kv->val, sizeof(*v));
		return 0;
	case SITS_GGUF_F64:
		memcpy(&d, kv->val, sizeof(d));
		if (isfinite(d) && fabs(d) > (double)__FLT_MAX__)
			return -EINVAL;
		*v = (float)d;
		return 0;
	default:
		return -EINVAL;
	}
}

int sits_gguf_get_bool(const struct sits_gguf *g, const char *key, bool *v)
{
	const struct gguf_kv *kv = find_kv(g, key);

	if (!kv)
		return -ENOENT;
	if (kv->type != SITS_GGUF_BOOL)
		return -EINVAL;
	*v = *kv->val != 0;
	return 0;
}

int sits_gguf_get_str(const struct sits_gguf *g, const char *key, struct sits_str *v)
{
	const struct gguf_kv *kv = find_kv(g, key);

	if (!kv)
		return -ENOENT;
	if (kv->type != SITS_GGUF_STRING)
		return -EINVAL;
	v->p = (const char *)kv->val;
	v->len = (size_t)kv->nr;
	return 0;
}

int sits_gguf_get_array(const struct sits_gguf *g, const char *key, struct sits_gguf_array *v)
{
	const struct gguf_kv *kv = find_kv(g, key);

	if (!kv)
		return -ENOENT;
	if (kv->type != SITS_GGUF_ARRAY)
		return -EINVAL;
	v->type = kv->elem;
	v->nr = kv->nr;
	v->data = kv->elem == SITS_GGUF_STRING || kv->elem == SITS_GGUF_ARRAY ? NULL : kv->val;
	v->strings = kv->strings;
	return 0;
}

uint64_t sits_gguf_nr_keys(const struct sits_gguf *g)
{
	return g->nr_kv;
}

int sits_gguf_key_at(const struct sits_gguf *g, uint64_t i, struct sits_str *key, enum sits_gguf_type *type)
{
	if (i >= g->nr_kv)
		return -ENOENT;
	*key = g->kv[i].key;
	*type = g->kv[i].type;
	return 0;
}

const void *sits_gguf_keys_end(const struct sits_gguf *g)
{
	return g->keys_end;
}

uint64_t sits_gguf_nr_tensors(const struct sits_gguf *g)
{
	return g->nr_tensors;
}

const struct sits_gguf_tensor *sits_gguf_tensor_at(const struct sits_gguf *g, uint64_t i)
{
	return i < g->nr_tensors ? &g->tensor[i] : NULL;
}

const struct sits_gguf_tensor *sits_gguf_find(const struct sits_gguf *g, const char *name)
{
	uint32_t slot = *name_slot(g, name, strlen(name));

	return slot ? &g->tensor[slot - 1] : NULL;
}
