// SPDX-License-Identifier: MIT
/*
 * cmd_rekey.c - sits rekey: put sealed files under another key. Many at once are rekey_many.c's.
 */
#include <getopt.h>
#include <stdio.h>
#include <sys/stat.h>

#include "sits/context.h"
#include "sits/rekey.h"
#include "tools/sits/cmd.h"
#include "tools/sits/rekey_many.h"
#include "tools/sits/tool_opts.h"

#define CMD "rekey"

static const char help[] =
	"usage: sits rekey --key OLD --new-key NEW [OPTIONS]... PATH...\n"
	"\n"
	"Put sealed files that are under the key OLD under the key NEW. A PATH is a file, or a directory, in which\n"
	"every *.sits is taken, however deep. Only the files' headers are rewritten. When the command is killed\n"
	"or power fails, each file is under one of the two keys; running the command again ends the work. A file\n"
	"that fails does not stop the others. To make the new key and let it take the place of the old one too:\n"
	"sits key rotate.\n"
	"\n"
	"With --reseal all of each file is encrypted anew and replaced: then what opened it before, OLD or the\n"
	"file's own key, is of no use any more.\n"
	"\n"
	"  --key OLD             the key they are under: file:PATH or keyring:NAME\n"
	"  --new-key NEW         the key they are to be under; 'sits key new NEW' makes one\n"
	"  --reseal              encrypt the contents anew, with fresh file keys\n"
	"  --skip-other-keys     files under neither key are no failure\n"
	"  --dry-run             say what would be done, and what would fail; write nothing\n"
	"  --threads N           threads for --reseal (one per core)\n"
	"  --wait SECONDS        at most, for a file that another process is writing; the others are done before (60)\n"
	"  --json                one JSON object on standard output: of one file its description, else all that was done\n"
	"  --quiet               no description, no progress bar\n"
	"  -h, --help            this text\n";

struct args {
	const char *old_spec, *new_spec;
	char **paths;
	int nr_paths;
	struct rekey_many many;
};

/* A file by its name, that is to be changed: what it is then, is described. */
static bool is_single(const struct args *a)
{
	struct stat st;

	return a->nr_paths == 1 && !(a->many.flags & (SITS_REKEY_DRY_RUN | SITS_REKEY_SKIP_OTHER)) &&
	       (stat(a->paths[0], &st) || !S_ISDIR(st.st_mode));
}

static int rekey_single(struct rekey_many *m, const char *path)
{
	struct sits_sealed_info info;
	uint32_t outcome = 0;
	char words[4200];
	int ret, status;

	status = rekey_many_one(m, path, &outcome);
	if (status)
		return status;
	if (outcome == SITS_REKEY_ALREADY)
		tool_error(CMD, "warning: %s: is under the new key already; nothing was changed", path);
	ret = sits_sealed_inspect(m->ctx, path, m->new_key, &info);
	if (ret) {
		/* Too long, or cut: no matter to its header. */
		snprintf(words, sizeof(words), "%s: is under the new key now, but can't be described: there is something else wrong with it", path);
		return tool_fail_because(CMD, path, ret, words, m->json);
	}
	if (m->json || !m->quiet)
		tool_print_info(path, &info, m->json);
	return 0;
}

static int rekey(struct args *a)
{
	int status;

	if (is_single(a))
		return rekey_single(&a->many, a->paths[0]);
	status = rekey_many_run(&a->many, a->paths, a->nr_paths);
	rekey_many_report(&a->many, !status, NULL);
	return status;
}

static int open_and_rekey(struct args *a)
{
	struct sits_key *old_key = NULL, *new_key = NULL;
	struct sits_ctx *ctx = NULL;
	int status;

	status = tool_open(CMD, NULL, NULL, &ctx);
	if (!status)
		status = tool_key(CMD, ctx, "--key", a->old_spec, a->many.json, &old_key);
	if (!status)
		status = tool_key(CMD, ctx, "--new-key", a->new_spec, a->many.json, &new_key);
	if (!status) {
		a->many.ctx = ctx;
		a->many.old_key = old_key;
		a->many.new_key = new_key;
		status = rekey(a);
	}
	sits_key_close(new_key);
	sits_key_close(old_key);
	sits_close(ctx);
	return status;
}

/* Return: -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct args *a)
{
	const struct tool_opt opt[] = {
		{ "key", .text = &a->old_spec },
		{ "new-key", .text = &a->new_spec },
		{ "reseal", .bits = &a->many.flags, .bit = SITS_REKEY_RESEAL },
		{ "skip-other-keys", .bits = &a->many.flags, .bit = SITS_REKEY_SKIP_OTHER },
		{ "dry-run", .bits = &a->many.flags, .bit = SITS_REKEY_DRY_RUN },
		{ "threads", .threads = &a->many.threads },
		{ "wait", .wait_s = &a->many.wait_s },
		{ "json", .flag = &a->many.json },
		{ "quiet", .flag = &a->many.quiet },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .operands = -1 };
	int status = tool_parse(&l, argc, argv);

	a->paths = argv + optind;
	a->nr_paths = argc - optind;
	if (status >= 0)
		return status;
	return a->nr_paths ? tool_no_empty(CMD, a->nr_paths, a->paths) : tool_usage(CMD, "a file or directory is needed");
}

static int run(int argc, char **argv)
{
	struct args a = { .many = { .cmd = CMD, .wait_s = REKEY_WAIT_S } };
	int status = parse(argc, argv, &a);

	return status < 0 ? open_and_rekey(&a) : status;
}

const struct sits_cmd sits_cmd_rekey = { CMD, "put sealed files under another key", run };
