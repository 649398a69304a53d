// SPDX-License-Identifier: MIT
/*
 * cmd_seal.c - sits seal: write a sealed file. The work is sits_seal()'s.
 */
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sits/context.h"
#include "sits/sealed.h"
#include "tools/sits/cmd.h"
#include "tools/sits/sealed_dir.h"
#include "tools/sits/tool_dir.h"
#include "tools/sits/tool_opts.h"

#define CMD "seal"

static const char help[] =
	"usage: sits seal --key SPEC [OPTIONS]... INPUT OUTPUT\n"
	"\n"
	"Seal the file INPUT (a model: GGUF, anything) into OUTPUT with SM4-GCM.\n"
	"OUTPUT appears whole, or not at all. INPUT is left as it is.\n"
	"\n"
	"Where INPUT is a directory with a safetensors model in it, OUTPUT is a directory of sealed files.\n"
	"\n"
	"  --key SPEC            the key: file:PATH or keyring:NAME; 'sits key new SPEC' makes one\n"
	"  --model-id TEXT       what the file says it is (INPUT's name; 1 to 127 bytes)\n"
	"  --model-version N     its version, which protects against an older file put in its place (0)\n"
	"  --chunk-size SIZE     bytes per chunk, a power of two from 4K to 16M (1M)\n"
	"  --threads N           threads (one per core)\n"
	"  --force               replace OUTPUT if it exists\n"
	"  --json                describe OUTPUT as one JSON object on standard output\n"
	"  --quiet               no description, no progress bar\n"
	"  -h, --help            this text\n";

struct args {
	const char *key, *in, *out;
	struct sits_seal_opts opts;
	bool json, quiet;
};

/* A daemon names its model, and requests ask for it, by this. */
static int take_id(void *arg, const char *text)
{
	struct args *a = arg;

	if (!*text || strlen(text) >= SITS_MODEL_ID_MAX)
		return tool_usage(CMD, "--model-id has %zu bytes; 1 to %d are possible", strlen(text), SITS_MODEL_ID_MAX - 1);
	a->opts.model_id = text;
	return 0;
}

static int take_version(void *arg, const char *text)
{
	struct args *a = arg;

	if (!tool_parse_number(text, &a->opts.model_version) || a->opts.model_version > INT64_MAX)
		return tool_usage(CMD, "--model-version '%s' is not a number from 0 to 2^63 - 1", text);
	return 0;
}

static int take_chunk(void *arg, const char *text)
{
	struct args *a = arg;
	uint64_t v;

	if (!tool_parse_u64(text, &v) || v < 4096 || v > 16 << 20 || v & (v - 1))
		return tool_usage(CMD, "--chunk-size '%s' is not a power of two from 4K to 16M", text);
	a->opts.chunk_bytes = (uint32_t)v;
	return 0;
}

/* Return: -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct args *a)
{
	const struct tool_opt opt[] = {
		{ "key", .text = &a->key },
		{ "model-id", .take = take_id },
		{ "model-version", .take = take_version },
		{ "chunk-size", .take = take_chunk },
		{ "threads", .threads = &a->opts.threads },
		{ "force", .bits = &a->opts.force, .bit = 1 },
		{ "json", .flag = &a->json },
		{ "quiet", .flag = &a->quiet },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .arg = a, .operands = 2,
				  .needs = "one INPUT and one OUTPUT are needed" };
	int status = tool_parse(&l, argc, argv);

	if (status < 0) {
		a->in = argv[optind];
		a->out = argv[optind + 1];
	}
	return status;
}

static bool is_same_file(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/*
 * Would OUTPUT, with --force, take the place of the key that it is sealed under, or of a directory with it, as one that is sealed
 * does? Then nothing could open it.
 */
static bool has_key_file(const char *spec, const char *path, bool takes_dirs)
{
	char dir[PATH_MAX], *slash;

	if (!spec || strncmp(spec, "file:", 5))
		return false;
	if (is_same_file(spec + 5, path))
		return true;
	if (!takes_dirs)
		return false;
	slash = realpath(spec + 5, dir) ? strrchr(dir, '/') : NULL;
	if (!slash)
		return false;
	slash[slash == dir] = '\0';
	return is_same_file(dir, path);
}

static int seal(void *arg, struct sits_ctx *ctx, const struct sits_key *key)
{
	const struct args *a = arg;
	const struct sealed_dir_args dir = { .cmd = CMD, .json = a->json, .quiet = a->quiet };
	struct sits_seal_opts opts = a->opts;
	struct sits_sealed_info info;
	int ret;

	if (tool_dir_is(a->in))
		return sealed_dir_seal(&dir, ctx, key, a->in, a->out, &a->opts);
	tool_catch_signals();
	opts.info = &info;
	ret = sits_seal(ctx, a->in, a->out, key, &opts);
	if (ret)
		return tool_fail(CMD, a->out, ret, a->json);
	tool_progress_end();
	if (a->json || !a->quiet)
		tool_print_info(a->out, &info, a->json);
	return 0;
}

static int run(int argc, char **argv)
{
	struct args a = { .opts = { .size = sizeof(a.opts) } };
	int status = parse(argc, argv, &a);

	if (status >= 0)
		return status;
	if (has_key_file(a.key, a.out, tool_dir_is(a.in)))
		return tool_usage(CMD, "OUTPUT '%s' is the file of the key, or the directory that it is in: the key would be lost; give another", a.out);
	/* Also without a bar, signals are noticed there. */
	a.opts.progress = a.quiet ? tool_progress_quiet : tool_progress;
	a.opts.progress_arg = (void *)"sealing";
	return tool_with_key(CMD, a.key, a.json, seal, &a);
}

const struct sits_cmd sits_cmd_seal = { CMD, "encrypt a model into a sealed file", run };
