// SPDX-License-Identifier: MIT
/*
 * chat_fuzz.c - chat templates: any source is picked or refused with words; any messages are written or refused, and
 * no byte of a message is in a span that may become a control token.
 *
 * Input: first byte 255: the rest is a template's source. Else it is the family, by its number in
 * tests/vectors/chat.json, and the rest are messages {u8 role, u8 length, bytes}. Run from the repository's root.
 */
#include <errno.h>
#include <jansson.h>

#include "daemon/model/chat.h"
#include "daemon/model/gguf.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/model/gguf_build.h"

#define MSGS_MAX 16

static const struct sits_chat_template *family[255];
static json_t *vectors;

static void *build(const json_t *v, const char *source, size_t source_len, size_t *len)
{
	const json_t *tokens = json_object_get(v, "tokens");
	const char *text[32];
	struct gguf_build b;
	int32_t type[32];
	uint32_t i, nr = (uint32_t)json_array_size(tokens);

	FUZZ_CHECK(nr && nr <= 32);
	gguf_build_begin(&b);
	for (i = 0; i < nr; i++) {
		text[i] = json_string_value(json_array_get(tokens, i));
		type[i] = 3;
		if (!strcmp(text[i], json_string_value(json_object_get(v, "eos"))))
			gguf_build_u32(&b, "tokenizer.ggml.eos_token_id", i);
	}
	gguf_build_strs(&b, "tokenizer.ggml.tokens", text, nr);
	gguf_build_array(&b, "tokenizer.ggml.token_type", 5, nr, type, nr * sizeof(*type));
	gguf_build_bool(&b, "tokenizer.ggml.add_bos_token", 1);
	gguf_build_strn(&b, "tokenizer.chat_template", source, source_len);
	return gguf_build_end(&b, len);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	json_error_t err;
	size_t i, len;
	json_t *v;

	vectors = json_load_file("tests/vectors/chat.json", 0, &err);
	if (!vectors) {
		fprintf(stderr, "tests/vectors/chat.json: %s (run from the repository's root)\n", err.text);
		exit(1);
	}
	json_array_foreach(vectors, i, v) {
		const char *source = json_string_value(json_object_get(v, "template"));
		struct sits_diag diag = { "" };
		struct sits_gguf *g;
		void *image = build(v, source, strlen(source), &len);

		FUZZ_CHECK(i < 255 && !sits_gguf_open(image, len, &g, &diag));
		if (sits_chat_pick(g, &family[i], &diag)) {
			fprintf(stderr, "%s\n", diag.msg);
			abort();
		}
		sits_gguf_close(g);
		free(image);
	}
	(void)argc;
	(void)argv;
	return 0;
}

static void try_source(const uint8_t *data, size_t size)
{
	const struct sits_chat_template *t;
	struct sits_diag diag = { "" };
	struct sits_gguf *g;
	size_t len, which = size ? data[0] % json_array_size(vectors) : 0;
	void *image;
	int ret;

	image = build(json_array_get(vectors, which), (const char *)data + !!size, size - !!size, &len);
	FUZZ_CHECK(!sits_gguf_open(image, len, &g, &diag));
	ret = sits_chat_pick(g, &t, &diag);
	FUZZ_CHECK(ret == 0 || ret == -EPROTONOSUPPORT);
	if (ret)
		fuzz_check_words(diag.msg, sizeof(diag.msg));
	else
		FUZZ_CHECK(sits_chat_name(t)[0]);
	sits_gguf_close(g);
	free(image);
}

static size_t read_messages(const uint8_t *p, size_t left, struct sits_chat_message *msg)
{
	size_t nr = 0, n;

	while (left >= 2 && nr < MSGS_MAX) {
		n = p[1] < left - 2 ? p[1] : left - 2;
		msg[nr++] = (struct sits_chat_message){ (enum sits_chat_role)(p[0] % 4), (const char *)p + 2, n };
		p += n + 2;
		left -= n + 2;
	}
	return nr;
}

/* Bytes in special spans, and a sum of them: the same for all messages of these roles. */
static void sum_special(const struct sits_chat_prompt *p, uint64_t *nr, uint64_t *hash)
{
	size_t i, j;

	*nr = 0;
	*hash = 5381;
	for (i = 0; i < p->nr; i++) {
		FUZZ_CHECK(p->span[i].len);
		FUZZ_CHECK(!i || !p->span[i].special != !p->span[i - 1].special);
		for (j = 0; p->span[i].special && j < p->span[i].len; j++, ++*nr)
			*hash = *hash * 33 + (uint8_t)p->span[i].text[j];
	}
}

static void try_messages(const struct sits_chat_template *t, const uint8_t *data, size_t size)
{
	struct sits_chat_message msg[MSGS_MAX];
	uint64_t nr[2], hash[2];
	struct sits_diag diag = { "" };
	struct sits_chat_prompt p;
	size_t n = read_messages(data, size, msg), i, total = 0;
	int ret;

	ret = sits_chat_render(t, msg, n, &p, &diag);
	FUZZ_CHECK(ret == 0 || ret == -EINVAL);
	if (ret) {
		fuzz_check_words(diag.msg, sizeof(diag.msg));
		FUZZ_CHECK(!p.span && !p.storage);
		return;
	}
	for (i = 0; i < p.nr; i++)
		total += p.span[i].len;
	FUZZ_CHECK(total < size + 4096);
	sum_special(&p, &nr[0], &hash[0]);
	sits_chat_prompt_fini(&p);
	for (i = 0; i < n; i++) {
		msg[i].text = "x";
		msg[i].len = 1;
	}
	if (sits_chat_render(t, msg, n, &p, NULL))
		return;		/* a form may ask about the text; see qwen3 */
	sum_special(&p, &nr[1], &hash[1]);
	FUZZ_CHECK(nr[0] == nr[1] && hash[0] == hash[1]);
	sits_chat_prompt_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] == 255)
		try_source(data + 1, size - 1);
	else
		try_messages(family[data[0] % json_array_size(vectors)], data + 1, size - 1);
	return 0;
}
