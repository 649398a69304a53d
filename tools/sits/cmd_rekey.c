// SPDX-License-Identifier: MIT
/*
 * cmd_rekey.c - sits rekey: put a sealed file under another key. The work is sits_sealed_rekey()'s, or
 * sits_sealed_reseal()'s.
 */
#include <getopt.h>
#include <stdio.h>

#include "sits/context.h"
#include "sits/sealed.h"
#include "tools/sits/cmd.h"

#define CMD "rekey"

static const char help[] =
	"usage: sits rekey --key OLD --new-key NEW [OPTIONS]... FILE\n"
	"\n"
	"Put the sealed file FILE, which is under the key OLD, under the key NEW. Only its header is\n"
	"rewritten. When the command is killed or power fails, the file is under one of the two keys; running\n"
	"the command again ends the work.\n"
	"\n"
	"With --reseal all of FILE is encrypted anew and replaced: then what opened it before, OLD or the file's\n"
	"own key, is of no use any more.\n"
	"\n"
	"  --key OLD             the key it is under: file:PATH or keyring:NAME\n"
	"  --new-key NEW         the key it is to be under; 'sits key new NEW' makes one\n"
	"  --reseal              encrypt the contents anew, with a fresh file key\n"
	"  --json                describe FILE as one JSON object on standard output\n"
	"  --quiet               no description, no progress bar\n"
	"  -h, --help            this text\n";

enum { OPT_KEY = 256, OPT_NEW, OPT_RESEAL, OPT_JSON, OPT_QUIET, OPT_HELP };

static const struct option options[] = {
	{ "key", required_argument, NULL, OPT_KEY },
	{ "new-key", required_argument, NULL, OPT_NEW },
	{ "reseal", no_argument, NULL, OPT_RESEAL },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "quiet", no_argument, NULL, OPT_QUIET },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

struct args {
	const char *old_spec, *new_spec, *path;
	bool reseal, json, quiet;
};

static int rekey(const struct args *a, struct sits_ctx *ctx, const struct sits_key *old_key, const struct sits_key *new_key)
{
	struct sits_load_opts opts = { .size = sizeof(opts), .progress_arg = (void *)"resealing" };
	struct sits_sealed_info info;
	int ret;

	opts.progress = a->quiet ? tool_progress_quiet : tool_progress;
	if (a->reseal) {
		tool_catch_signals();
		ret = sits_sealed_reseal(ctx, a->path, old_key, new_key, &opts);
		tool_progress_end();
	} else {
		ret = sits_sealed_rekey(ctx, a->path, old_key, new_key);
	}
	if (!ret)
		ret = sits_sealed_inspect(ctx, a->path, new_key, &info);
	if (ret)
		return tool_fail(CMD, a->path, ret, a->json);
	if (a->json || !a->quiet)
		tool_print_info(a->path, &info, a->json);
	return 0;
}

static int open_and_rekey(const struct args *a)
{
	struct sits_key *old_key = NULL, *new_key = NULL;
	struct sits_ctx *ctx = NULL;
	int status;

	status = tool_open(CMD, NULL, NULL, &ctx);
	if (!status)
		status = tool_key(CMD, ctx, "--key", a->old_spec, a->json, &old_key);
	if (!status)
		status = tool_key(CMD, ctx, "--new-key", a->new_spec, a->json, &new_key);
	if (!status)
		status = rekey(a, ctx, old_key, new_key);
	sits_key_close(new_key);
	sits_key_close(old_key);
	sits_close(ctx);
	return status;
}

static int run(int argc, char **argv)
{
	struct args a = { 0 };
	int c;

	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (c) {
		case OPT_KEY:
			a.old_spec = optarg;
			break;
		case OPT_NEW:
			a.new_spec = optarg;
			break;
		case OPT_RESEAL:
			a.reseal = true;
			break;
		case OPT_JSON:
			a.json = true;
			break;
		case OPT_QUIET:
			a.quiet = true;
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
	a.path = argv[optind];
	return open_and_rekey(&a);
}

const struct sits_cmd sits_cmd_rekey = { CMD, "put a sealed file under another key", run };
