/* SPDX-License-Identifier: MIT */
/*
 * chat.h - chat messages to prompt text, in the shape a model family was trained on.
 *
 * The Jinja source in tokenizer.chat_template is recognised, never run: a known family has a
 * renderer here, an unknown one is refused with the way to pass a prompt raw.
 */
#ifndef SITS_MODEL_CHAT_H
#define SITS_MODEL_CHAT_H

#include <stddef.h>

#include "daemon/diag.h"

struct sits_gguf;
struct sits_chat_template;	/* static storage */

enum sits_chat_role { SITS_ROLE_SYSTEM, SITS_ROLE_USER, SITS_ROLE_ASSISTANT };

struct sits_chat_message {
	enum sits_chat_role role;
	const char *text;
	size_t len;
};

/** sits_chat_pick() - The family of the model's template. Return: 0; -ENOENT where the metadata has
 * none; -EPROTONOSUPPORT where it is not known (@diag says how to pass a prompt raw). */
int sits_chat_pick(const struct sits_gguf *g, const struct sits_chat_template **out, struct sits_diag *diag);
const char *sits_chat_name(const struct sits_chat_template *t);

/**
 * A rendered prompt: spans of text. Special tokens are recognised only in spans with special = 1,
 * so that a user's text can't smuggle in a control token.
 */
struct sits_chat_span {
	const char *text;
	size_t len;
	int special;
};
struct sits_chat_prompt {
	struct sits_chat_span *span;
	size_t nr;
	char *storage;		/* owns what spans point to, where it is not the caller's */
};

/** sits_chat_render() - Render and open the assistant's turn. @msg: borrowed while @out is used. Return: 0;
 * -EINVAL for an order of roles that the family has no form for; -ENOMEM. */
int sits_chat_render(const struct sits_chat_template *t, const struct sits_chat_message *msg, size_t nr,
		     struct sits_chat_prompt *out, struct sits_diag *diag);
void sits_chat_prompt_fini(struct sits_chat_prompt *p);

#endif
