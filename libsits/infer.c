// SPDX-License-Identifier: MIT
/*
 * infer.c - the inference request: building one, and checking one that nobody vouches for.
 *
 *	0            64                                            len
 *	| header     | field | field | ... nr_fields of them        |
 *	               `- u16 type, u16 0, u32 len, len bytes, zeros to a multiple of 8
 *
 * The parser checks everything before it shows anything: a callback never sees a field of a
 * request that is refused later. What the values mean is sitsd's.
 */
#include "sits/infer.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sits/queue.h"
#include "sits/sealed.h"

#define HDR_SIZE_MAX 4096u	/* of a later release: the bytes we don't know must be zero */
#define FIELD_HDR 8u
#define STOPS_MAX 16u
#define STOP_BYTES_MAX 256u
#define TAG_BYTES_MAX 64u
#define TEMPERATURE_MAX 100.0f
#define PENALTY_MAX 2.0f

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");
_Static_assert(sizeof(struct sits_infer_request_hdr) == 64, "wire format");
_Static_assert(offsetof(struct sits_infer_request_hdr, seed) == 56, "wire format");
_Static_assert(sizeof(struct sits_infer_chunk_hdr) == 8, "wire format");
_Static_assert(sizeof(struct sits_infer_done) == 40, "wire format");

struct field_hdr {
	uint16_t type;
	uint16_t reserved;
	uint32_t len;
};

static const char *const field_names[] = {
	[SITS_FIELD_PROMPT] = "prompt",
	[SITS_FIELD_SYSTEM] = "system",
	[SITS_FIELD_USER] = "user",
	[SITS_FIELD_ASSISTANT] = "assistant",
	[SITS_FIELD_STOP] = "stop",
	[SITS_FIELD_MODEL] = "model",
	[SITS_FIELD_PROMPT_SPECIAL] = "prompt_special",
	[SITS_FIELD_TAG] = "tag",
};
#define NR_FIELD_TYPES (sizeof(field_names) / sizeof(field_names[0]))

static size_t padded(size_t len)
{
	return (len + 7) & ~(size_t)7;
}

/* ------------------------------------------------------------------- building */

/* Owned by the caller of create; one thread at a time. */
struct sits_infer_builder {
	struct sits_infer_request_hdr hdr;
	uint8_t *buf;		/* room for the header, then the fields */
	size_t len, room;
};

int sits_infer_builder_create(struct sits_infer_builder **out)
{
	struct sits_infer_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->hdr.size = sizeof(b->hdr);
	b->hdr.op = SITS_INFER_OP_GENERATE;
	b->hdr.sched_class = SITS_CLASS_GUARANTEED;
	b->hdr.top_p = 1.0f;
	b->hdr.repeat_penalty = 1.0f;
	b->hdr.repeat_last_n = 64;
	b->len = sizeof(b->hdr);
	b->room = 512;
	b->buf = malloc(b->room);
	if (!b->buf) {
		free(b);
		return -ENOMEM;
	}
	*out = b;
	return 0;
}

void sits_infer_builder_destroy(struct sits_infer_builder *b)
{
	if (!b)
		return;
	explicit_bzero(b->buf, b->len);
	free(b->buf);
	free(b);
}

struct sits_infer_request_hdr *sits_infer_builder_hdr(struct sits_infer_builder *b)
{
	return &b->hdr;
}

static int make_room(struct sits_infer_builder *b, size_t need)
{
	size_t room = b->room;
	uint8_t *buf;

	while (room < need)
		room *= 2;
	if (room == b->room)
		return 0;
	buf = realloc(b->buf, room);
	if (!buf)
		return -ENOMEM;
	b->buf = buf;
	b->room = room;
	return 0;
}

int sits_infer_builder_add(struct sits_infer_builder *b, uint16_t type, const void *bytes,
			   size_t len)
{
	struct field_hdr h = { .type = type };
	size_t total;
	int ret;

	if (type >= NR_FIELD_TYPES || !field_names[type])
		return -EINVAL;
	if (len > SITS_REQUEST_MAX || b->len + FIELD_HDR + padded(len) > SITS_REQUEST_MAX)
		return -EMSGSIZE;
	total = b->len + FIELD_HDR + padded(len);
	ret = make_room(b, total);
	if (ret)
		return ret;
	h.len = (uint32_t)len;
	memcpy(b->buf + b->len, &h, sizeof(h));
	if (len)
		memcpy(b->buf + b->len + FIELD_HDR, bytes, len);
	memset(b->buf + b->len + FIELD_HDR + len, 0, padded(len) - len);
	b->len = total;
	b->hdr.nr_fields++;
	return 0;
}

int sits_infer_builder_bytes(struct sits_infer_builder *b, const void **bytes, size_t *len)
{
	memcpy(b->buf, &b->hdr, sizeof(b->hdr));
	*bytes = b->buf;
	*len = b->len;
	return 0;
}

/* ------------------------------------------------------------------- checking */

struct parser {
	const uint8_t *bytes;
	size_t len;
	char *err;
	size_t err_len;
	uint32_t prompts, messages, stops, models, tags;
};

static int fail(struct parser *p, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct parser *p, int code, const char *fmt, ...)
{
	va_list ap;

	if (p->err && p->err_len) {
		va_start(ap, fmt);
		vsnprintf(p->err, p->err_len, fmt, ap);
		va_end(ap);
	}
	return code;
}

/* lo <= value <= hi, with either end excluded on demand; NaN and Inf never pass. */
static int check_float(struct parser *p, const char *name, float value, float lo, bool lo_open,
		       float hi, bool hi_open)
{
	if (!isfinite(value))
		return fail(p, -EINVAL, "%s: not a finite number", name);
	if (value < lo || value > hi || (lo_open && value == lo) || (hi_open && value == hi))
		return fail(p, -EINVAL, "%s: %g is outside %c%g, %g%c", name, (double)value,
			    lo_open ? '(' : '[', (double)lo, (double)hi, hi_open ? ')' : ']');
	return 0;
}

static int check_floats(struct parser *p, const struct sits_infer_request_hdr *h)
{
	int ret;

	ret = check_float(p, "temperature", h->temperature, 0, false, TEMPERATURE_MAX, false);
	if (!ret)
		ret = check_float(p, "top_p", h->top_p, 0, true, 1, false);
	if (!ret)
		ret = check_float(p, "min_p", h->min_p, 0, false, 1, true);
	if (!ret)
		ret = check_float(p, "repeat_penalty", h->repeat_penalty, 0, true,
				  __FLT_MAX__, false);
	if (!ret)
		ret = check_float(p, "frequency_penalty", h->frequency_penalty, -PENALTY_MAX, false,
				  PENALTY_MAX, false);
	if (!ret)
		ret = check_float(p, "presence_penalty", h->presence_penalty, -PENALTY_MAX, false,
				  PENALTY_MAX, false);
	return ret;
}

static int check_header(struct parser *p, struct sits_infer_request_hdr *h)
{
	if (p->len > SITS_REQUEST_MAX)
		return fail(p, -EMSGSIZE, "request: %zu bytes; at most %u", p->len,
			    SITS_REQUEST_MAX);
	if (p->len < sizeof(*h))
		return fail(p, -EINVAL, "request: %zu bytes; its header alone is %zu", p->len,
			    sizeof(*h));
	memcpy(h, p->bytes, sizeof(*h));
	if (h->size < sizeof(*h) || h->size > HDR_SIZE_MAX || h->size % 8 || h->size > p->len)
		return fail(p, -EINVAL, "size: a header of %u bytes", h->size);
	for (size_t i = sizeof(*h); i < h->size; i++)
		if (p->bytes[i])
			return fail(p, -EINVAL, "size: byte %zu of the header is not known here", i);
	if (h->flags & ~SITS_INFER_FLAGS)
		return fail(p, -EINVAL, "flags: %#x are not known here",
			    h->flags & ~SITS_INFER_FLAGS);
	if (h->op != SITS_INFER_OP_GENERATE && h->op != SITS_INFER_OP_INFO)
		return fail(p, -EINVAL, "op: %u is none", h->op);
	if (h->sched_class > SITS_CLASS_BESTEFFORT)
		return fail(p, -EINVAL, "sched_class: %u is none", h->sched_class);
	if (h->reserved)
		return fail(p, -EINVAL, "reserved: %u; must be 0", h->reserved);
	return check_floats(p, h);
}

static int check_counts(struct parser *p, const struct sits_infer_request_hdr *h)
{
	if (h->op == SITS_INFER_OP_INFO) {
		if (p->prompts || p->messages || p->stops)
			return fail(p, -EINVAL, "op: INFO takes no prompt, message or stop string");
		return 0;
	}
	if (p->prompts > 1)
		return fail(p, -EINVAL, "prompt: given %u times", p->prompts);
	if (p->prompts && p->messages)
		return fail(p, -EINVAL, "prompt: excludes chat messages");
	if (!p->prompts && !p->messages)
		return fail(p, -EINVAL, "prompt: missing, and no chat message either");
	return 0;
}

/* What the type says about length and number. */
static int check_field(struct parser *p, uint32_t index, const struct field_hdr *f)
{
	switch (f->type) {
	case SITS_FIELD_PROMPT:
	case SITS_FIELD_PROMPT_SPECIAL:
		p->prompts++;
		return 0;
	case SITS_FIELD_SYSTEM:
	case SITS_FIELD_USER:
	case SITS_FIELD_ASSISTANT:
		p->messages++;
		return 0;
	case SITS_FIELD_STOP:
		if (++p->stops > STOPS_MAX)
			return fail(p, -EINVAL, "field %u (stop): more than %u stop strings", index,
				    STOPS_MAX);
		if (!f->len || f->len > STOP_BYTES_MAX)
			return fail(p, -EINVAL, "field %u (stop): %u bytes; 1 to %u", index, f->len,
				    STOP_BYTES_MAX);
		return 0;
	case SITS_FIELD_MODEL:
		if (++p->models > 1)
			return fail(p, -EINVAL, "field %u (model): given twice", index);
		if (!f->len || f->len >= SITS_MODEL_ID_MAX)
			return fail(p, -EINVAL, "field %u (model): %u bytes; 1 to %u", index,
				    f->len, SITS_MODEL_ID_MAX - 1);
		return 0;
	case SITS_FIELD_TAG:
		if (++p->tags > 1)
			return fail(p, -EINVAL, "field %u (tag): given twice", index);
		if (!f->len || f->len > TAG_BYTES_MAX)
			return fail(p, -EINVAL, "field %u (tag): %u bytes; 1 to %u", index, f->len,
				    TAG_BYTES_MAX);
		return 0;
	default:
		return fail(p, -EINVAL, "field %u: type %u is not known here", index, f->type);
	}
}

static const char *name_of(uint16_t type)
{
	return type < NR_FIELD_TYPES && field_names[type] ? field_names[type] : "unknown";
}

/* Read the field at @at; its end goes to @next. */
static int read_field(struct parser *p, uint32_t index, size_t at, struct field_hdr *f,
		      size_t *next)
{
	size_t end;

	if (p->len - at < FIELD_HDR)
		return fail(p, -EINVAL, "field %u: cut off at byte %zu", index, at);
	memcpy(f, p->bytes + at, sizeof(*f));
	if (f->reserved)
		return fail(p, -EINVAL, "field %u (%s): reserved bytes are not 0", index,
			    name_of(f->type));
	if (f->len > p->len - at - FIELD_HDR ||
	    padded(f->len) > p->len - at - FIELD_HDR)
		return fail(p, -EINVAL, "field %u (%s): %u bytes, past the end of the request",
			    index, name_of(f->type), f->len);
	end = at + FIELD_HDR + f->len;
	*next = at + FIELD_HDR + padded(f->len);
	for (; end < *next; end++)
		if (p->bytes[end])
			return fail(p, -EINVAL, "field %u (%s): padding is not 0", index,
				    name_of(f->type));
	return 0;
}

static int check_fields(struct parser *p, const struct sits_infer_request_hdr *h)
{
	size_t at = h->size;
	struct field_hdr f;
	int ret;

	for (uint32_t i = 0; i < h->nr_fields; i++) {
		ret = read_field(p, i, at, &f, &at);
		if (!ret)
			ret = check_field(p, i, &f);
		if (ret)
			return ret;
	}
	if (at != p->len)
		return fail(p, -EINVAL, "nr_fields: %zu bytes follow the last field",
			    p->len - at);
	return check_counts(p, h);
}

int sits_infer_parse(const void *bytes, size_t len, struct sits_infer_request_hdr *hdr,
		     int (*field)(void *arg, uint16_t type, const void *bytes, size_t len),
		     void *arg, char *err, size_t err_len)
{
	struct parser p = { .bytes = bytes, .len = len, .err = err, .err_len = err_len };
	struct field_hdr f;
	size_t at, next;
	int ret;

	if (err && err_len)
		err[0] = '\0';
	ret = check_header(&p, hdr);
	if (!ret)
		ret = check_fields(&p, hdr);
	if (ret || !field)
		return ret;
	at = hdr->size;
	for (uint32_t i = 0; i < hdr->nr_fields; i++, at = next) {
		ret = read_field(&p, i, at, &f, &next);
		if (!ret)
			ret = field(arg, f.type, p.bytes + at + FIELD_HDR, f.len);
		if (ret)
			return ret;
	}
	return 0;
}

const char *sits_infer_finish_name(uint32_t finish)
{
	switch (finish) {
	case SITS_FINISH_EOS:
	case SITS_FINISH_STOP:
		return "stop";
	case SITS_FINISH_LENGTH:
		return "length";
	case SITS_FINISH_CANCEL:
		return "cancel";
	default:
		return "unknown";
	}
}
