/* SPDX-License-Identifier: MIT */
/*
 * sits/infer.h - what travels over a channel to sitsd: inference requests and answer chunks.
 *
 * A request is a fixed header and then fields; each field is {u16 type, u16 0, u32 len, bytes,
 * zero padding to 8}. An answer is a run of chunks, each a struct sits_infer_chunk_hdr and its bytes.
 * Little-endian. Both sides treat the bytes as hostile.
 */
#ifndef SITS_INFER_H
#define SITS_INFER_H

#include <stdint.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SITS_INFER_QUEUE	"infer"		/* default name of sitsd's queue */

/* Operations. */
#define SITS_INFER_OP_GENERATE	1
#define SITS_INFER_OP_INFO	2	/* answered with one JSON object: model, limits, counters */

/* Scheduling classes. */
#define SITS_CLASS_REALTIME	0
#define SITS_CLASS_GUARANTEED	1
#define SITS_CLASS_BESTEFFORT	2

/* Fields. PROMPT excludes messages; one of the two is required for GENERATE. */
#define SITS_FIELD_PROMPT	1	/* raw text, tokenised as it is, special tokens not recognised */
#define SITS_FIELD_SYSTEM	2	/* chat message by role, in order; rendered by the model's template */
#define SITS_FIELD_USER		3
#define SITS_FIELD_ASSISTANT	4
#define SITS_FIELD_STOP		5	/* stop string, at most 16, 1 to 256 bytes each */
#define SITS_FIELD_MODEL	6	/* model id that must be the one served */
#define SITS_FIELD_PROMPT_SPECIAL 7	/* raw text in which special tokens are recognised */
#define SITS_FIELD_TAG		8	/* 1 to 64 bytes, any: requests of one tag are alike, and share computed prefixes with
					 * each other only */

#define SITS_INFER_IGNORE_EOS	(1u << 0)	/* generate until max_tokens */
#define SITS_INFER_NO_SPECULATION (1u << 1)	/* no guessed tokens for this request; the answer is the same */
#define SITS_INFER_FLAGS	(SITS_INFER_IGNORE_EOS | SITS_INFER_NO_SPECULATION)

/**
 * struct sits_infer_request_hdr - first bytes of a request; all of it is copied.
 * @size: sizeof(struct sits_infer_request_hdr)
 * @max_tokens: 1 up; 0 means what fits the context
 * @temperature: 0 means greedy; else in (0, 100]
 * @top_k: 0 means off
 * @top_p: in (0, 1]; 1 means off
 * @min_p: in [0, 1); 0 means off
 * @repeat_penalty: > 0; 1 means off; over the last @repeat_last_n tokens
 * @frequency_penalty: @presence_penalty: in [-2, 2]; 0 means off
 * @seed: of sampling; 0 means a random one
 */
struct sits_infer_request_hdr {
	uint32_t size;
	uint32_t flags;
	uint16_t op;
	uint16_t sched_class;
	uint32_t nr_fields;
	uint32_t max_tokens;
	uint32_t top_k;
	float temperature;
	float top_p;
	float min_p;
	float repeat_penalty;
	float frequency_penalty;
	float presence_penalty;
	uint32_t repeat_last_n;
	uint32_t reserved;
	uint64_t seed;
};

/* Chunk types. */
#define SITS_CHUNK_TEXT		1	/* UTF-8 text, whole characters only */
#define SITS_CHUNK_DONE		2	/* struct sits_infer_done; the request's last chunk */
#define SITS_CHUNK_ERROR	3	/* UTF-8 message; the request's last chunk, with a status */
#define SITS_CHUNK_JSON		4

struct sits_infer_chunk_hdr {
	uint16_t type;
	uint16_t reserved;
	uint32_t nr_tokens;	/* TEXT: tokens behind these bytes */
};

/* Why generation ended. */
#define SITS_FINISH_EOS		1	/* the model ended its turn */
#define SITS_FINISH_STOP	2	/* a stop string; not part of the text */
#define SITS_FINISH_LENGTH	3	/* max_tokens, or the context is full */
#define SITS_FINISH_CANCEL	4

struct sits_infer_done {
	uint32_t finish;
	uint32_t prompt_tokens;
	uint32_t completion_tokens;
	uint32_t cached_tokens;
	uint64_t queue_ns;	/* from arrival to the first engine step */
	uint64_t first_token_ns;	/* from arrival to the first token */
	uint64_t total_ns;
};

/* Encoding: grow a request in a caller-owned builder. */
struct sits_infer_builder;
int sits_infer_builder_create(struct sits_infer_builder **out);	/* header gets the defaults */
void sits_infer_builder_destroy(struct sits_infer_builder *b);
struct sits_infer_request_hdr *sits_infer_builder_hdr(struct sits_infer_builder *b);
int sits_infer_builder_add(struct sits_infer_builder *b, uint16_t type, const void *bytes, size_t len);
/** sits_infer_builder_bytes() - The encoded request, valid until the next call on @b. */
int sits_infer_builder_bytes(struct sits_infer_builder *b, const void **bytes, size_t *len);

/**
 * sits_infer_parse() - Check a request and walk its fields.
 * @bytes: @len: hostile input, any alignment
 * @hdr: out: the header, every value checked
 * @field: called for each field, in order; non-zero stops the walk and is returned; may be NULL
 * @err: out: what is wrong, in words, naming the field; at least @err_len bytes; may be NULL
 * Return: 0; -EINVAL or -EMSGSIZE.
 */
int sits_infer_parse(const void *bytes, size_t len, struct sits_infer_request_hdr *hdr,
		     int (*field)(void *arg, uint16_t type, const void *bytes, size_t len), void *arg,
		     char *err, size_t err_len);

/** sits_infer_finish_name() - "stop" for EOS and STOP, "length", "cancel"; "unknown" otherwise. */
const char *sits_infer_finish_name(uint32_t finish);

#ifdef __cplusplus
}
#endif
#endif
