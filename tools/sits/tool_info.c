// SPDX-License-Identifier: MIT
/*
 * tool_info.c - what a sealed file says of itself, for people and for scripts.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "sits/sealed.h"
#include "tools/sits/cmd.h"

static const char *suite_name(uint32_t suite)
{
	return suite == SITS_SUITE_SM4_GCM ? "SM4-GCM" : suite == SITS_SUITE_SM4_ECB ? "SM4-ECB" : "unknown";
}

static void hex(const uint8_t *bytes, unsigned int n, char *out)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		sprintf(out + 2 * i, "%02x", bytes[i]);
}

json_t *tool_json_number(uint64_t v)
{
	char text[24];

	if (v <= INT64_MAX)
		return json_integer((json_int_t)v);
	snprintf(text, sizeof(text), "%" PRIu64, v);
	return json_string(text);
}

json_t *tool_json_text(const char *s)
{
	json_t *v = json_string(s);

	return v ? v : json_null();
}

json_t *tool_json_real(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

const char *tool_key_id(const struct sits_key *key, char *text)
{
	uint8_t id[SITS_KEY_ID_LEN];

	sits_key_id(key, id);
	hex(id, SITS_KEY_ID_LEN, text);
	return text;
}

static void print_json(const char *path, const struct sits_sealed_info *info, const char *key_id, const char *digest)
{
	json_t *obj;

	obj = json_pack("{s:o, s:b, s:i, s:i, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:b}",
			"file", tool_json_text(path), "ok", 1,
			"format_version", (int)info->format_version,
			"suite", (int)info->suite,
			"suite_name", suite_name(info->suite),
			"chunk_bytes", (int)info->chunk_bytes,
			"chunks", tool_json_number(info->nr_chunks),
			"plain_bytes", tool_json_number(info->plain_bytes),
			"file_bytes", tool_json_number(info->file_bytes),
			"model_id", tool_json_text(info->model_id),
			"model_version", tool_json_number(info->model_version),
			"key_id", key_id, "digest", digest,
			"authenticated", (int)info->authenticated);
	json_dumpf(obj, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(obj);
}

void tool_print_info(const char *path, const struct sits_sealed_info *info, bool json)
{
	char key_id[2 * SITS_KEY_ID_LEN + 1], digest[2 * sizeof(info->digest) + 1], id[SITS_MODEL_ID_MAX], size[32], name[4096];

	hex(info->key_id, SITS_KEY_ID_LEN, key_id);
	hex(info->digest, sizeof(info->digest), digest);
	if (json) {
		print_json(path, info, key_id, digest);
		return;
	}
	printf("file            %s\n", tool_print_safe(path, name, sizeof(name)));
	printf("model id        %s\n", tool_print_safe(info->model_id, id, sizeof(id)));
	printf("model version   %" PRIu64 "\n", info->model_version);
	printf("plaintext       %" PRIu64 " bytes (%s)\n", info->plain_bytes, tool_bytes(info->plain_bytes, size));
	printf("sealed          %" PRIu64 " bytes, format %u, %s, %" PRIu64 " chunks of %u bytes\n", info->file_bytes,
	       info->format_version, suite_name(info->suite), info->nr_chunks, info->chunk_bytes);
	printf("key id          %s\n", key_id);
	printf("digest          %s (SM3 of header and tags)\n", digest);
	printf("header          %s\n", info->authenticated ? "authentic under the given key" :
	       "not authenticated: no key was given");
}
