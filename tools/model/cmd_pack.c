// SPDX-License-Identifier: MIT
/*
 * cmd_pack.c - sits pack: the order of weights that the kernels read fastest. The work is quantize.c's and kernels/pack.c's.
 */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "daemon/model/gguf.h"
#include "kernels/kernels.h"
#include "sits/context.h"
#include "tools/model/gguf_out.h"
#include "tools/model/model.h"
#include "tools/model/quantize.h"
#include "tools/sits/tool_opts.h"

#define CMD "pack"
#define ALIGN_PACKED 64		/* a cache line, which is what the kernels load */
#define ALIGN_PLAIN 32

static const char help[] =
	"usage: sits pack [OPTIONS]... INPUT OUTPUT\n"
	"\n"
	"Write the model in the GGUF file INPUT into the GGUF file OUTPUT with its quantised matrices in the order that\n"
	"vectors of rows are loaded in. sitsd computes the same answers from it, and uses it as it is in memory. OUTPUT appears\n"
	"whole, or not at all. For the machine of who owns the weights, before 'sits seal': INPUT and OUTPUT are not\n"
	"sealed.\n"
	"\n"
	"  --unpack              the other way\n"
	"  --force               replace OUTPUT if it exists\n"
	"  --json                the result as one JSON object on standard output\n"
	"  --quiet               no report, no progress\n"
	"  -h, --help            this text\n";

struct args {
	const char *in, *out;
	bool unpack, force, json, quiet;
};

/* Return: -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct args *a)
{
	const struct tool_opt opt[] = {
		{ "unpack", .flag = &a->unpack },
		{ "force", .flag = &a->force },
		{ "json", .flag = &a->json },
		{ "quiet", .flag = &a->quiet },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .operands = 2,
				  .needs = "one INPUT and one OUTPUT are needed" };
	int status = tool_parse(&l, argc, argv);

	if (status < 0) {
		a->in = argv[optind];
		a->out = argv[optind + 1];
	}
	return status;
}

static int progress(void *arg, uint64_t done, uint64_t total)
{
	const struct args *a = arg;

	if (mapped_lost())
		return 1;
	return a->quiet ? tool_progress_quiet(NULL, done, total) :
	       tool_progress((void *)(uintptr_t)(a->unpack ? "unpacking" : "packing"), done, total);
}

static void report(const struct args *a, const struct quant_plan *plan, uint64_t bytes_in, uint64_t bytes_out)
{
	uint64_t i, changed = 0;
	char from[32], to[32];
	json_t *o;

	for (i = 0; i < plan->nr; i++)
		changed += !plan->tensor[i].copy;
	if (a->json) {
		o = json_pack("{s:b, s:o, s:o, s:b, s:I, s:I, s:I, s:I}", "ok", 1, "input", tool_json_text(a->in), "output",
			      tool_json_text(a->out), "packed", !a->unpack, "tensors", (json_int_t)plan->nr, "changed",
			      (json_int_t)changed, "bytes_in", (json_int_t)bytes_in, "bytes_out", (json_int_t)bytes_out);
		json_dumpf(o, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(o);
		return;
	}
	printf("%s %" PRIu64 " of %" PRIu64 " tensors, %s -> %s\n", a->unpack ? "unpacked" : "packed", changed, plan->nr,
	       tool_bytes(bytes_in, from), tool_bytes(bytes_out, to));
}

static int pack(struct args *a, struct sits_ctx *ctx, struct sits_diag *diag)
{
	static const char *const none[] = { NULL };
	struct quant_plan plan = { 0 };
	struct mapped in = { 0 };
	struct sits_gguf *g = NULL;
	struct gguf_out *o = NULL;
	uint64_t bytes_out = 0;
	int ret = mapped_open(a->in, &in, diag);

	if (!ret)
		ret = model_index(a->in, &in, &g, diag);
	if (!ret)
		ret = quant_plan_pack(g, a->unpack, &plan, diag);
	if (!ret)
		ret = gguf_out_open(ctx, a->out, a->force, a->unpack ? ALIGN_PLAIN : ALIGN_PACKED, &o);
	if (!ret)
		ret = gguf_out_keys_of(o, g, none);
	if (!ret)
		ret = quant_run(&plan, o, 1, progress, a, diag);
	ret = mapped_check(ret, diag);
	tool_progress_end();
	if (ret)
		gguf_out_abort(o);
	else
		ret = gguf_out_commit(o, &bytes_out);
	if (!ret && (a->json || !a->quiet))
		report(a, &plan, in.len, bytes_out);
	quant_plan_destroy(&plan);
	sits_gguf_close(g);
	mapped_close(&in);
	return ret;
}

static int run(int argc, char **argv)
{
	struct sits_diag diag = { "" };
	struct sits_ctx *ctx = NULL;
	struct args a = { 0 };
	int ret, status = parse(argc, argv, &a);

	if (status >= 0)
		return status;
	tool_catch_signals();
	status = tool_open(CMD, "user", NULL, &ctx);
	if (status)
		return status;
	ret = pack(&a, ctx, &diag);
	if (ret)
		status = model_fail(CMD, a.in, ret, &diag, a.json);
	sits_close(ctx);
	return status;
}

const struct sits_cmd sits_cmd_pack = { CMD, "put a model's weights into the kernels' order", run };
