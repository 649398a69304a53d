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
#include "tools/sits/tool_dir.h"
#include "tools/sits/tool_opts.h"

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

struct args {
	const char *key, *path;
	struct sits_load_opts opts;
	bool json, quiet;
};

static int take_min(void *arg, const char *text)
{
	struct args *a = arg;

	if (!tool_parse_number(text, &a->opts.min_version))
		return tool_usage(CMD, "--min-version '%s' is not a number", text);
	return 0;
}

/* Return: -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct args *a)
{
	const struct tool_opt opt[] = {
		{ "key", .text = &a->key },
		{ "min-version", .take = take_min },
		{ "allow-ecb", .bits = &a->opts.flags, .bit = SITS_LOAD_ALLOW_ECB },
		{ "buffered", .bits = &a->opts.flags, .bit = SITS_LOAD_BUFFERED },
		{ "threads", .threads = &a->opts.threads },
		{ "json", .flag = &a->json },
		{ "quiet", .flag = &a->quiet },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .arg = a, .operands = 1, .needs = "one FILE is needed" };
	int status = tool_parse(&l, argc, argv);

	a->path = argv[optind];
	return status;
}

static int verify(void *arg, struct sits_ctx *ctx, const struct sits_key *key)
{
	const struct args *a = arg;
	const struct sealed_dir_args dir = { .cmd = CMD, .json = a->json, .quiet = a->quiet };
	struct sits_sealed_info info;
	int ret;

	if (tool_dir_is(a->path))
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
	int status = parse(argc, argv, &a);

	if (status >= 0)
		return status;
	a.opts.progress = a.quiet ? tool_progress_quiet : tool_progress;
	a.opts.progress_arg = (void *)"verifying";
	return tool_with_key(CMD, a.key, a.json, verify, &a);
}

const struct sits_cmd sits_cmd_verify = { CMD, "check every byte of a sealed file", run };
