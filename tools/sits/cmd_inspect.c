// SPDX-License-Identifier: MIT
/*
 * cmd_inspect.c - sits inspect: what a sealed file says of itself. The work is sits_sealed_inspect()'s.
 */
#include <getopt.h>
#include <stdio.h>

#include "sits/context.h"
#include "sits/sealed.h"
#include "tools/sits/cmd.h"
#include "tools/sits/sealed_dir.h"

#define CMD "inspect"

static const char help[] =
	"usage: sits inspect [OPTIONS]... FILE\n"
	"\n"
	"Describe the sealed file FILE from its header, and give its digest. With a key the header is\n"
	"authenticated; without one its values are claims. Contents are not read: see 'sits verify'.\n"
	"FILE may be a sealed directory.\n"
	"\n"
	"  --key SPEC            the key: file:PATH or keyring:NAME\n"
	"  --json                the description as one JSON object on standard output\n"
	"  -h, --help            this text\n";

enum { OPT_KEY = 256, OPT_JSON, OPT_HELP };

static const struct option options[] = {
	{ "key", required_argument, NULL, OPT_KEY },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

static int inspect(const char *path, const char *spec, bool json)
{
	const struct sealed_dir_args dir = { .cmd = CMD, .json = json };
	struct sits_sealed_info info;
	struct sits_ctx *ctx = NULL;
	struct sits_key *key = NULL;
	int ret, status;

	status = tool_open(CMD, NULL, NULL, &ctx);
	if (!status && spec)
		status = tool_key(CMD, ctx, "--key", spec, json, &key);
	if (!status && sealed_dir_is(path)) {
		status = sealed_dir_inspect(&dir, ctx, key, path);
	} else if (!status) {
		ret = sits_sealed_inspect(ctx, path, key, &info);
		if (ret)
			status = tool_fail(CMD, path, ret, json);
		else
			tool_print_info(path, &info, json);
	}
	sits_key_close(key);
	sits_close(ctx);
	return status;
}

static int run(int argc, char **argv)
{
	const char *spec = NULL;
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (c) {
		case OPT_KEY:
			spec = optarg;
			break;
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
	if (argc - optind != 1)
		return tool_usage(CMD, "one FILE is needed, %d were given", argc - optind);
	return inspect(argv[optind], spec, json);
}

const struct sits_cmd sits_cmd_inspect = { CMD, "describe a sealed file", run };
