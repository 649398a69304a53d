// SPDX-License-Identifier: MIT
/*
 * cmd_key.c - sits key: make keys, and tell their ids. Key bytes never reach this file.
 */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "sits/context.h"
#include "sits/sealed.h"
#include "tools/sits/cmd.h"

#define CMD "key"

static const char help[] =
	"usage: sits key new SPEC [OPTIONS]...\n"
	"       sits key id SPEC [OPTIONS]...\n"
	"\n"
	"new makes a random key at SPEC and leaves one that exists as it is; id reads the one there. Both print\n"
	"the key's id: a digest, not a secret.\n"
	"\n"
	"SPEC is file:PATH, a file that only its owner may read, or keyring:NAME, the kernel's key sits:NAME in the\n"
	"session or the user keyring, gone after a restart. For example: sits key new file:/etc/sits/model.key\n"
	"\n"
	"  --json                the id as a JSON object on standard output\n"
	"  -h, --help            this text\n";

enum { OPT_JSON = 256, OPT_HELP };

static const struct option options[] = {
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

static void print_id(const char *spec, const struct sits_key *key, bool json)
{
	char text[2 * SITS_KEY_ID_LEN + 1];
	uint8_t id[SITS_KEY_ID_LEN];
	json_t *obj;
	int i;

	sits_key_id(key, id);
	for (i = 0; i < SITS_KEY_ID_LEN; i++)
		sprintf(text + 2 * i, "%02x", id[i]);
	if (!json) {
		puts(text);
		return;
	}
	obj = json_pack("{s:b, s:s}", "ok", 1, "key_id", text);
	/* Left out where it is no UTF-8. */
	json_object_set_new(obj, "key", json_string(spec));
	json_dumpf(obj, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(obj);
}

static int key_command(const char *spec, bool make, bool json)
{
	struct sits_ctx *ctx = NULL;
	struct sits_key *key = NULL;
	int ret, status;

	tool_protect();
	status = tool_open(CMD, NULL, NULL, &ctx);
	if (!status && make) {
		ret = sits_key_create(ctx, spec);
		if (ret)
			status = tool_fail(CMD, "key", ret, json);
	}
	if (!status) {
		ret = sits_key_open(ctx, spec, &key);
		if (ret)
			status = tool_fail(CMD, "key", ret, json);
		else
			print_id(spec, key, json);
	}
	sits_key_close(key);
	sits_close(ctx);
	return status;
}

static int run(int argc, char **argv)
{
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (c) {
		case OPT_JSON:
			json = true;
			break;
		case 'h':
		case OPT_HELP:
			fputs(help, stdout);
			return 0;
		default:
			return tool_bad_option(CMD, c, argv);
		}
	}
	if (argc - optind < 1 || (strcmp(argv[optind], "new") && strcmp(argv[optind], "id")))
		return tool_usage(CMD, "what to do is needed: new or id, for example: sits key new file:/etc/sits/model.key");
	if (argc - optind != 2)
		return tool_usage(CMD, "one SPEC is needed, %d were given", argc - optind - 1);
	return key_command(argv[optind + 1], !strcmp(argv[optind], "new"), json);
}

const struct sits_cmd sits_cmd_key = { CMD, "make a key, or tell its id", run };
