// SPDX-License-Identifier: MIT
/*
 * safetensors.c - see safetensors.h.
 *
 * The header's JSON becomes a tree that is gone when the index is made. Duplicate names are jansson's to refuse: in JSON they
 * are keys of one object. That no tensor overlaps another and no byte is hidden between them follows from sorting them by where they
 * start: each must start where the one before ends, the first at 0, the last must end with the file.
 */
#include "daemon/model/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/json.h"

struct sits_st {
	struct sits_st_tensor *tensor;	/* [nr] */
	size_t nr;
	char *names;			/* all of them, each with a NUL */
};

/* A tensor takes a dozen values: its name, an object, three keys, three values, offsets, dimensions. */
static const struct sits_json_limits header_limits = { .bytes = SITS_ST_MAX_HEADER, .values = 4u << 20 };

/* Bits of an element. Source: enum Dtype of the format's reader. */
static const struct st_dtype {
	const char *name;
	uint32_t bits;
} dtypes[] = {
	{ "F32", 32 }, { "F16", 16 }, { "BF16", 16 }, { "F64", 64 }, { "I64", 64 }, { "I32", 32 }, { "I16", 16 }, { "I8", 8 },
	{ "U64", 64 }, { "U32", 32 }, { "U16", 16 }, { "U8", 8 }, { "BOOL", 8 }, { "C64", 64 },
	{ "F8_E4M3", 8 }, { "F8_E5M2", 8 }, { "F8_E8M0", 8 }, { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "F4", 4 },
};

struct st_cur {
	const char *file;
	const uint8_t *data;	/* behind the header */
	uint64_t data_len;
	struct sits_st *s;
	size_t name_at;		/* where the next name goes */
	struct sits_diag *diag;
};

static bool is_plain(const char *p)
{
	for (; *p; p++)
		if ((uint8_t)*p < 0x20 || *p == 0x7f)
			return false;
	return true;
}

static int take_dtype(struct st_cur *c, const char *name, const json_t *v, struct sits_st_tensor *t, uint32_t *bits)
{
	const char *s = json_string_value(v);
	size_t i;

	if (!s)
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: key dtype is %s", c->file, name,
				      v ? "not a string" : "missing");
	for (i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (strcmp(s, dtypes[i].name))
			continue;
		t->dtype = dtypes[i].name;
		*bits = dtypes[i].bits;
		return 0;
	}
	return sits_diag_fail(c->diag, -EPROTONOSUPPORT, "%.200s: tensor %.200s: dtype \"%.40s\" is not known", c->file, name, s);
}

/* One whole number >= 0 of an array. */
static bool take_number(const json_t *array, size_t i, uint64_t *v)
{
	const json_t *n = json_array_get(array, i);

	if (!json_is_integer(n) || json_integer_value(n) < 0)
		return false;
	*v = (uint64_t)json_integer_value(n);
	return true;
}

static int take_shape(struct st_cur *c, const char *name, const json_t *v, struct sits_st_tensor *t, uint64_t *elems)
{
	size_t i, nr = json_array_size(v);

	if (!json_is_array(v) || nr > SITS_ST_MAX_DIMS)
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: key shape is %s", c->file, name,
				      !v ? "missing" : !json_is_array(v) ? "not an array" : "longer than 8 dimensions");
	t->nr_dims = (uint32_t)nr;
	for (i = 0, *elems = 1; i < nr; i++) {
		if (!take_number(v, i, &t->dim[i]))
			return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: dimension %zu is not a whole number from 0 up",
					      c->file, name, i);
		if (__builtin_mul_overflow(*elems, t->dim[i], elems))
			return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: the number of elements overflows", c->file,
					      name);
	}
	return 0;
}

static int take_offsets(struct st_cur *c, const char *name, const json_t *v, struct sits_st_tensor *t)
{
	uint64_t begin, end;

	if (!json_is_array(v) || json_array_size(v) != 2 || !take_number(v, 0, &begin) || !take_number(v, 1, &end) || begin > end)
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: key data_offsets is %s", c->file, name,
				      v ? "not [begin, end] with 0 <= begin <= end" : "missing");
	if (end > c->data_len)
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s ends at byte %" PRIu64 " of %" PRIu64
				      " bytes of data: the file is cut short", c->file, name, end, c->data_len);
	t->data = c->data + begin;
	t->bytes = end - begin;
	return 0;
}

static int check_size(struct st_cur *c, const struct sits_st_tensor *t, uint64_t elems, uint32_t bits)
{
	uint64_t total;

	if (__builtin_mul_overflow(elems, (uint64_t)bits, &total))
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: the size in bits overflows", c->file, t->name.p);
	if (total % 8)
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: %" PRIu64 " elements of %s are not whole bytes", c->file,
				      t->name.p, elems, t->dtype);
	if (total / 8 != t->bytes)
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: its shape takes %" PRIu64 " bytes of %s, its offsets %" PRIu64,
				      c->file, t->name.p, total / 8, t->dtype, t->bytes);
	return 0;
}

static int take_tensor(struct st_cur *c, const char *name, const json_t *v)
{
	struct sits_st_tensor *t = &c->s->tensor[c->s->nr];
	size_t len = strlen(name);
	uint64_t elems = 0;
	uint32_t bits = 0;
	const char *key;
	json_t *unused;
	int ret;

	if (!len || len > SITS_ST_MAX_NAME || !is_plain(name))
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: a tensor's name, \"%.60s\", is %s", c->file, name,
				      !len ? "empty" : len > SITS_ST_MAX_NAME ? "longer than 1024 bytes" : "not plain text");
	if (!json_is_object(v))
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s is not described by an object", c->file, name);
	json_object_foreach((json_t *)v, key, unused)
		if (strcmp(key, "dtype") && strcmp(key, "shape") && strcmp(key, "data_offsets"))
			return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s: key %.60s does not belong to the format", c->file,
					      name, key);
	ret = take_dtype(c, name, json_object_get(v, "dtype"), t, &bits);
	if (!ret)
		ret = take_shape(c, name, json_object_get(v, "shape"), t, &elems);
	if (!ret)
		ret = take_offsets(c, name, json_object_get(v, "data_offsets"), t);
	if (ret)
		return ret;
	t->name = (struct sits_str){ c->s->names + c->name_at, len };
	memcpy(c->s->names + c->name_at, name, len + 1);
	c->name_at += len + 1;
	c->s->nr++;
	return check_size(c, t, elems, bits);
}

/* __metadata__ is text for people; only its form is checked. */
static int check_metadata(struct st_cur *c, const json_t *v)
{
	const char *key;
	json_t *s;

	if (!json_is_object(v))
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: key __metadata__ is not an object", c->file);
	json_object_foreach((json_t *)v, key, s)
		if (!json_is_string(s))
			return sits_diag_fail(c->diag, -EBADMSG, "%.200s: key __metadata__.%.60s is not a string", c->file, key);
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct sits_st_tensor *x = a, *y = b;

	if (x->data != y->data)
		return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
	/* Empty ones come before what starts at the same byte. */
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int check_places(struct st_cur *c)
{
	const struct sits_st *s = c->s;
	const uint8_t *end = c->data;
	size_t i;

	qsort(s->tensor, s->nr, sizeof(*s->tensor), by_place);
	for (i = 0; i < s->nr; i++) {
		const struct sits_st_tensor *t = &s->tensor[i];

		if (t->data != end)
			return sits_diag_fail(c->diag, -EBADMSG, "%.200s: tensor %.200s starts at byte %zu of the data, but the one before ends at %zu: %s",
					      c->file, t->name.p, (size_t)((const uint8_t *)t->data - c->data), (size_t)(end - c->data),
					      (const uint8_t *)t->data < end ? "they overlap" : "bytes are hidden between them");
		end += t->bytes;
	}
	if (end != c->data + c->data_len)
		return sits_diag_fail(c->diag, -EBADMSG, "%.200s: the tensors take %zu bytes, but %" PRIu64 " follow the header", c->file,
				      (size_t)(end - c->data), c->data_len);
	return 0;
}

static int index_header(struct st_cur *c, json_t *root)
{
	size_t nr = json_object_size(root), names = 0;
	const char *key;
	json_t *v;
	int ret;

	json_object_foreach(root, key, v)
		names += strlen(key) + 1;
	c->s->tensor = calloc(nr + 1, sizeof(*c->s->tensor));
	c->s->names = malloc(names + 1);
	if (!c->s->tensor || !c->s->names)
		return sits_diag_fail(c->diag, -ENOMEM, "%.200s: no memory for %zu tensors", c->file, nr);
	json_object_foreach(root, key, v) {
		ret = !strcmp(key, "__metadata__") ? check_metadata(c, v) : take_tensor(c, key, v);
		if (ret)
			return ret;
	}
	return check_places(c);
}

int sits_st_open(const char *file, const void *data, size_t len, struct sits_st **out, struct sits_diag *diag)
{
	struct st_cur c = { .file = file, .diag = diag };
	const uint8_t *p = data;
	uint64_t header;
	json_t *root;
	int ret;

	if (len < 8)
		return sits_diag_fail(diag, -EBADMSG, "%.200s: %zu bytes are no safetensors file", file, len);
	memcpy(&header, p, 8);	/* little-endian */
	if (header > SITS_ST_MAX_HEADER || header > len - 8)
		return sits_diag_fail(diag, -EBADMSG, "%.200s: its header is to have %" PRIu64 " bytes: %s", file, header,
				      header > SITS_ST_MAX_HEADER ? "this is no safetensors file" : "the file is cut short");
	if (!header || p[8] != '{')
		return sits_diag_fail(diag, -EBADMSG, "%.200s: no safetensors file: its header does not start with {", file);
	ret = sits_json_parse(file, (const char *)p + 8, (size_t)header, &header_limits, &root, diag);
	if (ret)
		return ret;
	c.data = p + 8 + header;
	c.data_len = len - 8 - header;
	c.s = calloc(1, sizeof(*c.s));
	ret = c.s ? index_header(&c, root) : sits_diag_fail(diag, -ENOMEM, "%.200s: no memory", file);
	json_decref(root);
	if (ret) {
		sits_st_close(c.s);
		return ret;
	}
	*out = c.s;
	return 0;
}

void sits_st_close(struct sits_st *s)
{
	if (!s)
		return;
	free(s->tensor);
	free(s->names);
	free(s);
}

size_t sits_st_nr(const struct sits_st *s)
{
	return s->nr;
}

const struct sits_st_tensor *sits_st_at(const struct sits_st *s, size_t i)
{
	return i < s->nr ? &s->tensor[i] : NULL;
}
