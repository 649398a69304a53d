// SPDX-License-Identifier: MIT
/*
 * json.c - see json.h.
 */
#include "daemon/model/json.h"

#include <errno.h>

/* The byte behind the string that starts at @i, or @len. */
static size_t skip_string(const char *p, size_t len, size_t i)
{
	for (i++; i < len; i++) {
		if (p[i] == '\\')
			i++;
		else if (p[i] == '"')
			return i + 1;
	}
	return len;
}

/*
 * Each value but the first follows one of [ { , : so their number bounds that of the values. What is no JSON may be counted
 * wrongly only from the first fault on, where the parser stops.
 */
static void measure(const char *p, size_t len, size_t *values, size_t *depth)
{
	size_t i = 0, now = 0;

	*values = 1;
	*depth = 0;
	while (i < len) {
		switch (p[i]) {
		case '"':
			i = skip_string(p, len, i);
			continue;
		case '[':
		case '{':
			now++;
			if (now > *depth)
				*depth = now;
			++*values;
			break;
		case ']':
		case '}':
			now -= now > 0;
			break;
		case ',':
		case ':':
			++*values;
			break;
		}
		i++;
	}
}

int sits_json_parse(const char *file, const char *text, size_t len, const struct sits_json_limits *limits, json_t **out,
		    struct sits_diag *diag)
{
	size_t values, depth;
	json_error_t err;
	json_t *root;

	if (len > limits->bytes)
		return sits_diag_fail(diag, -EFBIG, "%.200s: %zu bytes of JSON; at most %zu are read here", file, len, limits->bytes);
	measure(text, len, &values, &depth);
	if (depth > SITS_JSON_MAX_DEPTH)
		return sits_diag_fail(diag, -EFBIG, "%.200s: JSON nests %zu deep; at most %d are read here", file, depth,
				      SITS_JSON_MAX_DEPTH);
	if (values > limits->values)
		return sits_diag_fail(diag, -EFBIG, "%.200s: %zu JSON values; at most %zu are read here", file, values,
				      limits->values);
	/* Of most of its calls for memory that fail jansson 2.14 says nothing, of others that the text is wrong there, or it leaves something out. */
	errno = 0;
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
	if (errno == ENOMEM || (!root && !err.text[0])) {
		json_decref(root);
		return sits_diag_fail(diag, -ENOMEM, "%.200s: no memory for its JSON", file);
	}
	if (!root)
		return sits_diag_fail(diag, -EBADMSG, "%.200s: line %d, column %d: %.150s", file, err.line, err.column, err.text);
	if (!json_is_object(root)) {
		json_decref(root);
		return sits_diag_fail(diag, -EBADMSG, "%.200s: not a JSON object", file);
	}
	*out = root;
	return 0;
}
