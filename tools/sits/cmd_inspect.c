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
#include "tools/sits/tool_dir.h"
#include "tools/sits/tool_opts.h"

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
	if (!status && tool_dir_is(path)) {
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
	const struct tool_opt opt[] = {
		{ "key", .text = &spec },
		{ "json", .flag = &json },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .operands = 1, .needs = "one FILE is needed" };
	int status = tool_parse(&l, argc, argv);

	if (status >= 0)
		return status;
	return inspect(argv[optind], spec, json);
}

const struct sits_cmd sits_cmd_inspect = { CMD, "describe a sealed file", run };
