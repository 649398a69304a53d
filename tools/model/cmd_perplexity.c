// SPDX-License-Identifier: MIT
/*
 * cmd_perplexity.c - sits perplexity: how well a model predicts a text. The work is ppl.c's.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine/engine.h"
#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "tools/model/model.h"
#include "tools/model/ppl.h"
#include "tools/model/source.h"
#include "tools/sits/tool_opts.h"

#define CMD "perplexity"

static const char help[] =
	"usage: sits perplexity [OPTIONS]... MODEL TEXT\n"
	"\n"
	"Measure how well the model MODEL, a GGUF file or the directory of a safetensors model, predicts the text file TEXT: e\n"
	"to the mean of -ln p over the second half of each window of tokens. Lower is better. It computes what serving\n"
	"computes. For the machine of who owns the weights: MODEL is not sealed.\n"
	"\n"
	"  --context N           tokens in a window, 8 or more (512, or the model's context if that is less)\n"
	"  --windows N           at most N windows, from the start of TEXT (all)\n"
	"  --kv-type TYPE        how keys and values are kept: f16, or int8, which loses a little (f16)\n"
	"  --kv-keep N           measure a second time, with keys and values of N tokens kept by each head, on average, as\n"
	"                        engine.kv_keep of sitsd does: 64 or more\n"
	"  --isa NAME            instruction set: ref, avx2, avx512, avx512bf16 (the best that the processor has)\n"
	"  --threads N           threads (one per core)\n"
	"  --json                the result as one JSON object on standard output\n"
	"  --quiet               no progress\n"
	"  -h, --help            this text\n";

struct args {
	const char *model, *text;
	struct ppl_opts ppl;
	bool json, quiet;
};

static int take_kv_type(void *arg, const char *text)
{
	struct args *a = arg;

	if (strcmp(text, "f16") && strcmp(text, "int8"))
		return tool_usage(CMD, "--kv-type '%s' is not f16 or int8", text);
	a->ppl.kv_kind = strcmp(text, "f16") ? SITS_KV_I8 : SITS_KV_F16;
	return 0;
}

static int take_isa(void *arg, const char *text)
{
	struct args *a = arg;
	char names[128];

	if (!sits_backend_exists(text))
		return tool_usage(CMD, "--isa '%s' is not one of: %s", text, sits_backend_names(names, sizeof(names)));
	a->ppl.isa = text;
	return 0;
}

/* Return: -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct args *a)
{
	const struct tool_opt opt[] = {
		{ "context", .from = &a->ppl.context, .min = 8 },
		{ "windows", .from = &a->ppl.windows, .min = 1 },
		{ "kv-type", .take = take_kv_type },
		{ "kv-keep", .from = &a->ppl.kv_keep, .min = SITS_KV_KEEP_LEAST },
		{ "isa", .take = take_isa },
		{ "threads", .threads = &a->ppl.threads },
		{ "json", .flag = &a->json },
		{ "quiet", .flag = &a->quiet },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .arg = a, .operands = 2,
				  .needs = "one MODEL and one TEXT are needed" };
	int status = tool_parse(&l, argc, argv);

	if (status < 0) {
		a->model = argv[optind];
		a->text = argv[optind + 1];
	}
	return status;
}

static int progress(void *arg, uint64_t done, uint64_t total)
{
	const struct args *a = arg;

	if (!a->quiet)
		tool_progress_count("window", done, total);
	return tool_signal() || mapped_lost();
}

static double mib(const struct ppl_result *r, double pages)
{
	return pages * (double)r->kv_page_bytes / (1 << 20);
}

static json_t *kept_json(const struct args *a, const struct ppl_result *r)
{
	return json_pack("{s:i, s:o, s:o, s:o, s:f, s:f}", "kv_keep", (int)a->ppl.kv_keep, "perplexity", tool_json_real(r->kept.ppl),
			 "stderr", tool_json_real(r->kept.err), "nll", tool_json_real(r->kept.nll), "kv_pages", r->kept.kv_pages, "kv_bytes",
			 r->kept.kv_pages * (double)r->kv_page_bytes);
}

static void print(const struct args *a, const struct ppl_result *r)
{
	json_t *o;

	if (!a->json) {
		printf("perplexity  %.4f +/- %.4f\n"
		       "scored      %" PRIu64 " of %" PRIu64 " tokens, %" PRIu64 " windows of %u\n"
		       "time        %.1f s, %.0f tokens/s (%s, %u threads)\n",
		       r->ppl, r->err, r->scored, r->tokens, r->windows, r->context, r->seconds,
		       (double)r->windows * r->context / r->seconds, r->isa, r->threads);
		if (a->ppl.kv_keep)
			printf("kept        %u tokens: perplexity %.4f +/- %.4f, %.1f of %u KV pages at a window's end, %.1f of "
			       "%.1f MiB\n", a->ppl.kv_keep, r->kept.ppl, r->kept.err, r->kept.kv_pages, r->kv_pages,
			       mib(r, r->kept.kv_pages), mib(r, r->kv_pages));
		return;
	}
	o = json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:i, s:s, s:i, s:f, s:i, s:I}", "ok", 1, "model",
		      tool_json_text(a->model), "text", tool_json_text(a->text), "perplexity", tool_json_real(r->ppl),
		      "stderr", tool_json_real(r->err), "nll", tool_json_real(r->nll), "tokens", (json_int_t)r->tokens, "scored", (json_int_t)r->scored, "windows",
		      (json_int_t)r->windows, "context", (int)r->context, "isa", r->isa, "threads", (int)r->threads,
		      "seconds", r->seconds, "kv_pages", (int)r->kv_pages, "kv_bytes",
		      (json_int_t)(r->kv_pages * r->kv_page_bytes));
	if (o && a->ppl.kv_keep)
		json_object_set_new(o, "kept", kept_json(a, r));
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

static int run(int argc, char **argv)
{
	struct source model;
	struct mapped text = { 0 };
	struct sits_diag diag = { "" };
	struct sits_model *m = NULL;
	struct ppl_result res;
	struct args a = { 0 };
	int ret, status = parse(argc, argv, &a);

	if (status >= 0)
		return status;
	status = 0;
	tool_catch_signals();
	a.ppl.progress = progress;
	a.ppl.arg = &a;
	ret = source_open(a.model, &model, &diag);
	if (!ret)
		ret = mapped_open(a.text, &text, &diag);
	if (!ret)
		ret = source_model(&model, &m, &diag);
	if (!ret)
		ret = ppl_run(m, text.data, text.len, &a.ppl, &res, &diag);
	ret = mapped_check(ret, &diag);
	tool_progress_end();
	if (ret)
		status = model_fail(CMD, a.model, ret, &diag, a.json);
	else
		print(&a, &res);
	sits_model_close(m);
	mapped_close(&text);
	source_close(&model);
	return status;
}

const struct sits_cmd sits_cmd_perplexity = { CMD, "measure how well a model predicts a text", run };
