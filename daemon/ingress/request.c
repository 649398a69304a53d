// SPDX-License-Identifier: MIT
/*
 * request.c - see request.h.
 */
#include "daemon/ingress/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/model.h"

static int add_message(struct sits_request *r, enum sits_chat_role role, const char *text, size_t len)
{
	if (r->nr_msg == r->cap_msg) {
		size_t cap = r->cap_msg ? 2 * r->cap_msg : 4;
		struct sits_chat_message *msg = realloc(r->msg, cap * sizeof(*msg));

		if (!msg)
			return -ENOMEM;
		r->msg = msg;
		r->cap_msg = cap;
	}
	r->msg[r->nr_msg++] = (struct sits_chat_message){ .role = role, .text = text, .len = len };
	r->text_bytes += len;
	return 0;
}

static int add_field(void *arg, uint16_t type, const void *bytes, size_t len)
{
	struct sits_request *r = arg;

	switch (type) {
	case SITS_FIELD_PROMPT:
	case SITS_FIELD_PROMPT_SPECIAL:
		r->prompt = bytes;
		r->prompt_len = len;
		r->text_bytes += len;
		r->prompt_special = type == SITS_FIELD_PROMPT_SPECIAL;
		return 0;
	case SITS_FIELD_SYSTEM:
		return add_message(r, SITS_ROLE_SYSTEM, bytes, len);
	case SITS_FIELD_USER:
		return add_message(r, SITS_ROLE_USER, bytes, len);
	case SITS_FIELD_ASSISTANT:
		return add_message(r, SITS_ROLE_ASSISTANT, bytes, len);
	case SITS_FIELD_STOP:
		if (r->nr_stop == SITS_REQUEST_MAX_STOPS)
			return -EINVAL;
		r->stop[r->nr_stop] = bytes;
		r->stop_len[r->nr_stop++] = len;
		return 0;
	case SITS_FIELD_MODEL:
		r->model = bytes;
		r->model_len = len;
		return 0;
	case SITS_FIELD_TAG:
		r->tag = bytes;
		r->tag_len = len;
		return 0;
	default:
		return -EINVAL;
	}
}

int sits_request_init(struct sits_request *r, const void *bytes, size_t len, struct sits_diag *diag)
{
	char err[256] = "";
	int ret;

	memset(r, 0, sizeof(*r));
	r->bytes = malloc(len ? len : 1);
	if (!r->bytes)
		return sits_diag_fail(diag, -ENOMEM, "out of memory");
	r->len = len;
	if (len)
		memcpy(r->bytes, bytes, len);
	ret = sits_infer_parse(r->bytes, len, &r->hdr, add_field, r, err, sizeof(err));
	if (!ret && r->hdr.op == SITS_INFER_OP_GENERATE && !r->prompt == !r->nr_msg) {
		snprintf(err, sizeof(err), r->prompt ? "a raw prompt and chat messages exclude each other" :
			 "neither a prompt nor a message");
		ret = -EINVAL;
	}
	if (ret) {
		sits_diag_fail(diag, ret, "malformed request: %s", err[0] ? err : strerror(-ret));
		sits_request_fini(r);
	}
	return ret;
}

void sits_request_fini(struct sits_request *r)
{
	if (r->bytes)
		explicit_bzero(r->bytes, r->len);	/* a prompt is somebody's secret */
	free(r->msg);
	free(r->bytes);
	memset(r, 0, sizeof(*r));
}

/* ------------------------------------------------------------------ tokens */

static int encode_raw(const struct sits_request *r, const struct sits_model *m, struct sits_tokens *out)
{
	uint32_t flags = SITS_TOK_ADD_BOS | (r->prompt_special ? SITS_TOK_SPECIAL : 0);

	return sits_tokenizer_encode(m->tok, r->prompt, r->prompt_len, flags, out);
}

/* Special tokens are recognised in the template's own spans alone: what a user writes stays text. */
static int encode_spans(const struct sits_model *m, const struct sits_chat_prompt *p, struct sits_tokens *out)
{
	for (size_t i = 0; i < p->nr; i++) {
		const struct sits_chat_span *s = &p->span[i];
		uint32_t flags = (i ? 0 : SITS_TOK_ADD_BOS) | (s->special ? SITS_TOK_SPECIAL : 0);
		int ret = sits_tokenizer_encode(m->tok, s->text, s->len, flags, out);

		if (ret)
			return ret;
	}
	return 0;
}

static int encode_chat(const struct sits_request *r, const struct sits_model *m, struct sits_tokens *out,
		       struct sits_diag *diag)
{
	struct sits_chat_prompt p = { 0 };
	int ret;

	if (!m->chat)
		return sits_diag_fail(diag, -EPROTONOSUPPORT, "%s", m->chat_diag.msg[0] ? m->chat_diag.msg :
				      "the model has no chat template; pass the prompt raw (sits run --raw)");
	ret = sits_chat_render(m->chat, r->msg, r->nr_msg, &p, diag);
	if (ret)
		return sits_diag_fail(diag, ret, "the messages can't be rendered: %s", strerror(-ret));
	ret = encode_spans(m, &p, out);
	sits_chat_prompt_fini(&p);
	return ret;
}

int sits_request_tokens(const struct sits_request *r, const struct sits_model *m, struct sits_tokens *out,
			struct sits_diag *diag)
{
	int32_t bos = sits_tokenizer_bos(m->tok);
	int ret = r->prompt ? encode_raw(r, m, out) : encode_chat(r, m, out, diag);

	if (ret == -E2BIG)
		return sits_diag_fail(diag, -EMSGSIZE, "the prompt has %zu bytes, more than the tokenizer takes", r->text_bytes);
	if (ret)
		return sits_diag_fail(diag, ret, "the prompt can't be tokenised: %s", strerror(-ret));
	if (out->nr)
		return 0;
	/* Nothing to continue from but the start of a text. */
	if (bos < 0)
		return sits_diag_fail(diag, -EINVAL, "the prompt is empty, and the model has no token for the start of a text");
	return sits_tokens_push(out, bos);
}
