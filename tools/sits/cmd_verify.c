// SPDX-License-Identifier: MIT
/*
 * cmd_verify.c - sits verify: check every byte of a sealed file. The work is sits_sealed_verify()'s.
 */
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>

#include "sits/context.h"
#include "sits/sealed.h"
#include "tools/sits/cmd.h"
#include "tools/sits/sealed_dir.h"

#define CMD "verify"

static const char help[] =
	"usage: sits verify --key SPEC [OPTIONS]... FILE\n"
	"\n"
	"Check the header and every chunk of the sealed file FILE. No chunk is decrypted.\n"
	"FILE may be a sealed directory: all of its files, and that they belong together.\n"
	"\n"
	"  --key SPEC            the key: file:PATH or keyring:NAME\n"
	"  --min-version N       refuse a file whose model version is lower\n"
	"  --allow-ecb           accept suite 240, raw SM4-ECB: it can be read, but changes in it go unnoticed\n"
	"  --buffered            read through the page cache rather than with O_DIRECT\n"
	"  --threads N           threads (one per core)\n"
	"  --json                the result as one JSON object on standard output\n"
	"  --quiet               no description, no progress bar\n"
	"  -h, --help            this text\n";

enum { OPT_KEY = 256, OPT_MIN, OPT_ECB, OPT_BUFFERED, OPT_THREADS, OPT_JSON, OPT_QUIET, OPT_HELP };

static const struct option options[] = {
	{ "key", required_argument, NULL, OPT_KEY },
	{ "min-version", required_argument, NULL, OPT_MIN },
	{ "allow-ecb", no_argument, NULL, OPT_ECB },
	{ "buffered", no_argument, NULL, OPT_BUFFERED },
	{ "threads", required_argument, NULL, OPT_THREADS },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "quiet", no_argument, NULL, OPT_QUIET },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

struct args {
	const char *key, *path;
	struct sits_load_opts opts;
	bool json, quiet, help;
};

/* Return: 0, or an exit status after a message. */
static int parse(int argc, char **argv, struct args *a)
{
	int c;

	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (c) {
		case OPT_KEY:
			a->key = optarg;
			break;
		case OPT_MIN:
			if (!tool_parse_number(optarg, &a->opts.min_version))
				return tool_usage(CMD, "--min-version '%s' is not a number", optarg);
			break;
		case OPT_ECB:
			a->opts.flags |= SITS_LOAD_ALLOW_ECB;
			break;
		case OPT_BUFFERED:
			a->opts.flags |= SITS_LOAD_BUFFERED;
			break;
		case OPT_THREADS:
			if (tool_threads(CMD, optarg, &a->opts.threads))
				return 2;
			break;
		case OPT_JSON:
			a->json = true;
			break;
		case OPT_QUIET:
			a->quiet = true;
			break;
		case 'h':
		case OPT_HELP:
			a->help = true;
			return 0;
		default:
			return tool_bad_option(CMD, c, argv);
		}
	}
	if (argc - optind != 1)
		return tool_usage(CMD, "one FILE is needed, %d were given", argc - optind);
	a->path = argv[optind];
	return 0;
}

static int verify(const struct args *a, struct sits_ctx *ctx, const struct sits_key *key)
{
	const struct sealed_dir_args dir = { .cmd = CMD, .json = a->json, .quiet = a->quiet };
	struct sits_sealed_info info;
	int ret;

	if (sealed_dir_is(a->path))
		return sealed_dir_verify(&dir, ctx, key, a->path, &a->opts);
	tool_catch_signals();
	ret = sits_sealed_verify(ctx, a->path, key, &a->opts, &info);
	if (ret)
		return tool_fail(CMD, a->path, ret, a->json);
	tool_progress_end();
	if (a->json || !a->quiet)
		tool_print_info(a->path, &info, a->json);
	if (!a->json && !a->quiet)
		printf("contents        %s\n", info.suite == SITS_SUITE_SM4_ECB ?
		       "readable; nothing can be said about changes: the suite has no integrity" : "every chunk verified");
	return 0;
}

static int run(int argc, char **argv)
{
	struct args a = { .opts = { .size = sizeof(a.opts) } };
	struct sits_ctx *ctx = NULL;
	struct sits_key *key = NULL;
	int status;

	status = parse(argc, argv, &a);
	if (status)
		return status;
	if (a.help) {
		fputs(help, stdout);
		return 0;
	}
	a.opts.progress = a.quiet ? tool_progress_quiet : tool_progress;
	a.opts.progress_arg = (void *)"verifying";
	status = tool_open(CMD, NULL, NULL, &ctx);
	if (!status)
		status = tool_key(CMD, ctx, "--key", a.key, a.json, &key);
	if (!status)
		status = verify(&a, ctx, key);
	sits_key_close(key);
	sits_close(ctx);
	return status;
}

const struct sits_cmd sits_cmd_verify = { CMD, "check every byte of a sealed file", run };
