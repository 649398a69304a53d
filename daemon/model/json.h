/* SPDX-License-Identifier: MIT */
/*
 * json.h - JSON text of a model's files, hostile until checked, to a jansson tree of bounded size.
 *
 * jansson bounds nesting only at 2,048 and memory not at all: "[[],[],..." takes fifty bytes for each of the text. So
 * the text is scanned first: what nests deeper or has more values than its kind of file can need is refused before anything is
 * allocated. A tree takes at most about 150 bytes for each value and three times the bytes of the text.
 */
#ifndef SITS_MODEL_JSON_H
#define SITS_MODEL_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"

#define SITS_JSON_MAX_DEPTH	32

/* What a kind of file may have. */
struct sits_json_limits {
	size_t bytes;
	size_t values;		/* values and keys together */
};

/**
 * sits_json_parse() - Parse one JSON object.
 * @file: its name, for messages
 * @text: @len: bytes, borrowed; need not end in NUL
 * @limits: borrowed
 * @out: an object; json_decref() is the caller's
 * Return: 0; -EBADMSG for what is no JSON object, has a key twice, text that is not UTF-8 or a NUL in a text; -EFBIG over a limit;
 * -ENOMEM.
 */
int sits_json_parse(const char *file, const char *text, size_t len, const struct sits_json_limits *limits, json_t **out,
		    struct sits_diag *diag);

#endif
