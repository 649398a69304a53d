/* SPDX-License-Identifier: MIT */
/*
 * client.h - a request's owner in tests: keeps all that it hears, and checks what must always hold.
 * Include after cmocka.h.
 */
#ifndef SITS_TESTS_ENGINE_CLIENT_H
#define SITS_TESTS_ENGINE_CLIENT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/stream.h"
#include "daemon/model/model.h"
#include "sits/infer.h"

struct client {
	struct sits_engine *e;
	uint64_t id;
	bool keep_logits;
	void (*on_text)(struct client *c);
	void (*on_done)(struct client *c);

	struct sits_gen_result res;
	char why[256];
	int dones;
	char *text;
	size_t len;
	uint32_t tokens_told;
	float *logits;		/* [nr_logits][vocab] */
	size_t nr_logits, vocab;
	int order;		/* the how manyth to hear its first text, and to be done */
	int done_order;
};

static inline void client_text(void *arg, const char *bytes, size_t len, uint32_t nr_tokens)
{
	struct client *c = arg;
	struct sits_utf8 u = { 0 };
	char out[SITS_UTF8_GROWTH];
	size_t i, n;

	assert_int_equal(c->dones, 0);
	/* Whole characters: each lead byte's sequence is complete, and nothing needs a replacement. */
	for (i = n = 0; i < len; i++)
		n += sits_utf8_push(&u, bytes[i], out);
	assert_int_equal(u.need, 0);
	assert_int_equal(n, len);
	c->text = realloc(c->text, c->len + len + 1);
	assert_non_null(c->text);
	memcpy(c->text + c->len, bytes, len);
	c->len += len;
	c->text[c->len] = 0;
	c->tokens_told += nr_tokens;
	if (c->on_text)
		c->on_text(c);
}

static inline void client_done(void *arg, const struct sits_gen_result *res)
{
	static int order;
	struct client *c = arg;

	assert_int_equal(c->dones, 0);
	c->dones++;
	c->done_order = ++order;
	c->res = *res;
	if (res->why)
		snprintf(c->why, sizeof(c->why), "%s", res->why);
	assert_true(c->tokens_told <= res->completion_tokens);
	assert_true(res->end_ns >= res->arrival_ns);
	assert_true(!res->first_token_ns || (res->start_ns && res->first_token_ns >= res->start_ns));
	assert_true(!res->status == !res->why);
	if (c->on_done)
		c->on_done(c);
}

static inline void client_logits(void *arg, const float *logits, size_t vocab)
{
	struct client *c = arg;

	c->vocab = vocab;
	if (c->keep_logits) {
		c->logits = realloc(c->logits, (c->nr_logits + 1) * vocab * sizeof(float));
		assert_non_null(c->logits);
		memcpy(c->logits + c->nr_logits * vocab, logits, vocab * sizeof(float));
	}
	c->nr_logits++;
}

static inline int client_submit(struct client *c, struct sits_engine *e, const struct sits_gen_params *p,
				struct sits_diag *diag)
{
	const struct sits_gen_sink sink = {
		.text = client_text, .done = client_done, .logits = client_logits, .arg = c,
	};

	c->e = e;
	return sits_engine_submit(e, p, &sink, &c->id, diag);
}

static inline void client_fini(struct client *c)
{
	free(c->text);
	free(c->logits);
	memset(c, 0, sizeof(*c));
}

#endif
