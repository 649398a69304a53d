/* SPDX-License-Identifier: MIT */
/*
 * chat_family.h - how a family of chat templates is recognised and what it writes. Used by chat.c
 * and chat_family.c only.
 */
#ifndef SITS_MODEL_CHAT_FAMILY_H
#define SITS_MODEL_CHAT_FAMILY_H

#include <stddef.h>
#include <stdint.h>

/* In the strings of a family, control tokens stand between these two: T("<|im_end|>"). */
#define SITS_CHAT_TOKEN		'\1'
#define SITS_CHAT_TOKEN_END	'\2'
#define T(token)		"\1" token "\2"

#define CHAT_ALTERNATE		(1u << 0)	/* user, assistant, user, ... after an optional system message */
#define CHAT_NO_SYSTEM		(1u << 1)	/* has no form for a system message */
#define CHAT_SYSTEM_FIRST	(1u << 2)	/* only as the first message */
#define CHAT_SYSTEM_IN_FIRST	(1u << 3)	/* written inside the first user message */
#define CHAT_SYSTEM_IN_LAST	(1u << 4)	/* written inside the last user message */
#define CHAT_NEED_SYSTEM	(1u << 5)	/* the template's own default is not known here */
#define CHAT_CUT_THINK_LAST	(1u << 6)	/* earlier answers lose all up to the last </think> */
#define CHAT_CUT_THINK_FIRST	(1u << 7)	/* ... up to the first one */
#define CHAT_QWEN3		(1u << 8)	/* ... and the newlines after it; see chat.c on the order */

struct sits_chat_form {
	const char *pre, *post;
	uint8_t trim;		/* white space around the text is dropped */
};

struct sits_chat_family {
	const char *name;
	/* Of the normalised source: "\n" escapes made newlines, double quotes made single ones. */
	const char *must[7];	/* all of them are there */
	const char *not[9];	/* none of them is */
	const char *def_mark;	/* what stands before a default system text, NULL: there can't be one */
	const char *def_end;	/* what stands behind it */
	const char *def;	/* text of a system message where the caller has none, NULL: none is written */
	const char *bos, *eos;	/* what the template's bos_token and eos_token must be, NULL: it has none */
	const char *plain[4];	/* markers that are ordinary text: they must not be control tokens */
	struct sits_chat_form form[3];	/* by enum sits_chat_role */
	const char *first_pre;	/* of the first user message, NULL: the same as the others' */
	const char *open;	/* opens the answer; "": nothing does, so the last message is the user's */
	uint32_t flags;
};

#define SITS_CHAT_FAMILIES_MAX	64
extern const struct sits_chat_family sits_chat_families[];
extern const size_t sits_chat_nr_families;

#endif
