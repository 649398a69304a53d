/* SPDX-License-Identifier: MIT */
/*
 * request.h - one client's request: its bytes, checked and taken apart, and its prompt as tokens.
 *
 * The bytes are hostile. Nothing here knows of queues or of the engine.
 */
#ifndef SITS_INGRESS_REQUEST_H
#define SITS_INGRESS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"
#include "daemon/model/chat.h"
#include "daemon/model/tokenizer.h"
#include "sits/infer.h"

#define SITS_REQUEST_MAX_STOPS		16
#define SITS_REQUEST_MAX_STOP_BYTES	256

struct sits_model;

/* Owner: whoever called sits_request_init(); all strings point into @bytes. */
struct sits_request {
	struct sits_infer_request_hdr hdr;
	char *bytes;			/* [len] */
	size_t len;
	const char *prompt;		/* NULL: a chat */
	size_t prompt_len;
	bool prompt_special;		/* special tokens are recognised in it */
	struct sits_chat_message *msg;	/* [nr_msg] */
	size_t nr_msg, cap_msg;
	size_t text_bytes;		/* of the prompt or of all messages */
	const char *stop[SITS_REQUEST_MAX_STOPS];
	size_t stop_len[SITS_REQUEST_MAX_STOPS];
	size_t nr_stop;
	const char *model;		/* NULL: any */
	size_t model_len;
	const char *tag;		/* NULL: none */
	size_t tag_len;
};

/**
 * sits_request_init() - Check and take apart.
 * @bytes: @len: copied
 * @diag: what is wrong, naming the field
 * Return: 0; -EINVAL; -EMSGSIZE; -ENOMEM. On failure there is nothing to free.
 */
int sits_request_init(struct sits_request *r, const void *bytes, size_t len, struct sits_diag *diag);
void sits_request_fini(struct sits_request *r);	/* wipes */

/**
 * sits_request_tokens() - The prompt of a GENERATE request as token ids, at least one.
 * @out: zero-initialised by the caller; freed by it, also after a failure
 * Return: 0; -EPROTONOSUPPORT where a chat is asked of a model without a known template; -EINVAL; -ENOMEM.
 */
int sits_request_tokens(const struct sits_request *r, const struct sits_model *m, struct sits_tokens *out,
			struct sits_diag *diag);

#endif
