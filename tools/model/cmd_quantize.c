// SPDX-License-Identifier: MIT
/*
 * cmd_quantize.c - sits quantize: the command line and the report. The work is quantize.c's, the errors' measure ppl.c's.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "sits/context.h"
#include "tools/model/awq.h"
#include "tools/model/awq_plan.h"
#include "tools/model/gguf_out.h"
#include "tools/model/model.h"
#include "tools/model/ppl.h"
#include "tools/model/quantize.h"
#include "tools/model/quants.h"
#include "tools/model/report.h"
#include "tools/model/source.h"
#include "tools/sits/tool_opts.h"

#define CMD "quantize"
#define MAX_RULES 64
#define ALIGN 32		/* the format's default */

static const char help[] =
	"usage: sits quantize --type TYPE [OPTIONS]... INPUT OUTPUT\n"
	"\n"
	"Write the model INPUT, a GGUF file or the directory of a safetensors model, into the GGUF file OUTPUT with its\n"
	"matrices as TYPE. OUTPUT appears whole, or not at all. Norms, biases and routers stay as they are. For the machine of\n"
	"who owns the weights, before 'sits seal': INPUT and OUTPUT are not sealed.\n"
	"\n"
	"  --type TYPE           q8_0, q4_0, q5_0, q4_k, i8c, f16, bf16, f32; awq-int8: experts as i8c with factors that make\n"
	"                        the error over a calibration text least, all else as it is; keep: only what --tensor says\n"
	"  --output-type TYPE    of the token embedding and the output matrix (TYPE, but q8_0 with types of 4 or 5 bits)\n"
	"  --tensor GLOB=TYPE    of the tensors whose name matches; keep: as they are. May be given again; the last one counts\n"
	"  --requantize          allow an INPUT that is quantised already, which adds to its error\n"
	"  --calibration TEXT    for awq-int8, required: a text file, not the one that results are measured on\n"
	"  --calibration-windows N   how many windows of 512 tokens of it are run (8)\n"
	"  --dense               awq-int8 also for feed-forward weights of layers without experts\n"
	"  --perplexity TEXT     measure the perplexity over the text file TEXT before and after\n"
	"  --windows N           for that: at most N windows of 512 tokens (all)\n"
	"  --threads N           threads (one per core)\n"
	"  --force               replace OUTPUT if it exists\n"
	"  --json                the report as one JSON object on standard output, with each tensor\n"
	"  --quiet               no report, no progress\n"
	"  -h, --help            this text\n";

struct args {
	const char *in, *out, *text, *calibration;
	bool awq, has_type, has_out_type, force, json, quiet;
	struct quant_opts q;
	struct quant_rule rule[MAX_RULES];
	struct ppl_opts ppl;
	struct awq_opts awq_opts;
	const char *doing;		/* for the progress line */
};

/* The work, and what came of it. */
struct job {
	struct args *a;
	struct sits_ctx *ctx;
	struct source in;
	struct mapped text, calibration;
	struct quant_plan plan;
	struct awq awq;
	uint64_t bytes_out;
	struct ppl_result before, after;	/* with --perplexity */
};

/* The types that can be written, for a message. */
static const char *type_list(char *buf, size_t size)
{
	const struct sits_dtype_info *info;
	size_t n = 0;
	uint32_t t;

	for (t = 0; t < 0x10000 && n < size; t++) {
		info = sits_dtype_info(t);
		if (info && quants_can(t))
			n += (size_t)snprintf(buf + n, size - n, "%s, ", info->name);
	}
	return buf;
}

static int type_arg(const char *option, const char *name, uint32_t *type)
{
	const char *why = NULL;
	char list[256];

	if (!quant_type(name, type))
		why = "no type";
	else if (*type != QUANT_KEEP && !quants_can(*type))
		why = "a type that is read, not written";
	return why ? tool_usage(CMD, "%s '%s' is %s; there are %skeep%s", option, name, why, type_list(list, sizeof(list)),
				strcmp(option, "--type") ? "" : ", awq-int8") : 0;
}

/* Arguments of options: @arg is the struct args. Return: 0, or an exit status after a message. */

static int take_type(void *arg, const char *text)
{
	struct args *a = arg;

	a->has_type = true;
	a->awq = !strcasecmp(text, "awq-int8");
	a->q.type = QUANT_KEEP;
	return a->awq ? 0 : type_arg("--type", text, &a->q.type);
}

static int take_output_type(void *arg, const char *text)
{
	struct args *a = arg;

	a->has_out_type = true;
	return type_arg("--output-type", text, &a->q.out_type);
}

/* @text is argv's: its '=' becomes the end of the name. */
static int take_rule(void *arg, const char *text)
{
	struct args *a = arg;
	char *eq = strrchr(text, '=');

	if (!eq || eq == text)
		return tool_usage(CMD, "--tensor '%s' is not GLOB=TYPE", text);
	if (a->q.nr_rules == MAX_RULES)
		return tool_usage(CMD, "--tensor can be given %d times", MAX_RULES);
	*eq = '\0';
	a->rule[a->q.nr_rules].glob = text;
	return type_arg("--tensor", eq + 1, &a->rule[a->q.nr_rules++].type);
}

/* The embedding is read as it is, and a matrix of the vocabulary's size decides every token: few bits cost most there. */
static uint32_t default_out_type(uint32_t type)
{
	return type == SITS_Q4_0 || type == SITS_Q5_0 || type == SITS_Q4_K ? SITS_Q8_0 : type;
}

/* Return: -1, or an exit status after a message. */
static int check(struct args *a)
{
	if (!a->has_type)
		return tool_usage(CMD, "--type is required, for example: --type q8_0");
	if (a->awq && !a->calibration)
		return tool_usage(CMD, "--type awq-int8 needs --calibration TEXT");
	if (!a->awq && (a->calibration || a->awq_opts.dense || a->awq_opts.windows))
		return tool_usage(CMD, "--calibration, --calibration-windows and --dense are for --type awq-int8");
	if (a->ppl.windows && !a->text)
		return tool_usage(CMD, "--windows is for --perplexity TEXT");
	a->awq_opts.threads = a->ppl.threads;
	if (!a->has_out_type)
		a->q.out_type = default_out_type(a->q.type);
	return -1;
}

/* Return: -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct args *a)
{
	const struct tool_opt opt[] = {
		{ "type", .take = take_type },
		{ "output-type", .take = take_output_type },
		{ "tensor", .take = take_rule },
		{ "requantize", .flag = &a->q.requantise },
		{ "calibration", .text = &a->calibration },
		{ "calibration-windows", .from = &a->awq_opts.windows, .min = 1 },
		{ "dense", .flag = &a->awq_opts.dense },
		{ "perplexity", .text = &a->text },
		{ "windows", .from = &a->ppl.windows, .min = 1 },
		{ "threads", .threads = &a->ppl.threads },
		{ "force", .flag = &a->force },
		{ "json", .flag = &a->json },
		{ "quiet", .flag = &a->quiet },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .arg = a, .operands = 2,
				  .needs = "one INPUT and one OUTPUT are needed" };
	int status;

	a->q.rule = a->rule;
	status = tool_parse(&l, argc, argv);
	if (status >= 0)
		return status;
	a->in = argv[optind];
	a->out = argv[optind + 1];
	return check(a);
}

static int progress(void *arg, uint64_t done, uint64_t total)
{
	struct args *a = arg;

	if (mapped_lost())
		return 1;
	return a->quiet ? tool_progress_quiet(NULL, done, total) : tool_progress((void *)(uintptr_t)a->doing, done, total);
}

static int progress_windows(void *arg, uint64_t done, uint64_t total)
{
	const struct args *a = arg;

	if (!a->quiet)
		tool_progress_count(a->doing, done, total);
	return tool_signal() || mapped_lost();
}

/* ---- the work ---- */

/* general.file_type of llama.cpp (enum llama_ftype) says what most tensors are; what has no number there gets no key. */
static int put_keys(struct gguf_out *o, const struct source *s, uint32_t type)
{
	static const struct { uint32_t type, file_type; } names[] = {
		{ SITS_F32, 0 }, { SITS_F16, 1 }, { SITS_Q4_0, 2 }, { SITS_Q8_0, 7 }, { SITS_Q5_0, 8 }, { SITS_Q4_K, 14 },
		{ SITS_BF16, 32 },
	};
	static const char *const replaced[] = { "general.file_type", "general.quantization_version", NULL };
	static const char *const none[] = { NULL };
	size_t i;
	int ret;

	if (type == QUANT_KEEP)
		return source_keys(s, o, none);
	ret = source_keys(s, o, replaced);
	for (i = 0; i < sizeof(names) / sizeof(names[0]) && !ret; i++)
		if (names[i].type == type)
			ret = gguf_out_key_u32(o, "general.file_type", names[i].file_type);
	return ret ? ret : gguf_out_key_u32(o, "general.quantization_version", 2);
}

static int load_text(const char *path, struct mapped *text, struct sits_diag *diag)
{
	return path ? mapped_open(path, text, diag) : 0;
}

static int perplexity(struct job *j, const struct source *s, const char *doing, struct ppl_result *res, struct sits_diag *diag)
{
	struct sits_model *m = NULL;
	int ret;

	j->a->doing = doing;
	j->a->ppl.progress = progress_windows;
	j->a->ppl.arg = j->a;
	ret = source_model(s, &m, diag);
	if (!ret)
		ret = ppl_run(m, j->text.data, j->text.len, &j->a->ppl, res, diag);
	sits_model_close(m);
	tool_progress_end();
	return ret;
}

static int perplexity_after(struct job *j, struct sits_diag *diag)
{
	struct source out;
	int ret = source_open(j->a->out, &out, diag);

	if (!ret)
		ret = perplexity(j, &out, "perplexity after, window", &j->after, diag);
	ret = mapped_check(ret, diag);
	source_close(&out);
	return ret;
}

/* Into the plan: which tensors become 8 bits, and their factors. */
static int plan_awq(struct job *j, struct sits_diag *diag)
{
	struct sits_model *m = NULL;
	int ret = source_model(&j->in, &m, diag);

	j->a->doing = "calibrating, step";
	j->a->awq_opts.progress = progress_windows;
	j->a->awq_opts.arg = j->a;
	if (!ret)
		ret = awq_plan_types(m, &j->plan, j->a->awq_opts.dense, j->a->q.requantise, diag);
	if (!ret)
		ret = awq_run(m, j->calibration.data, j->calibration.len, &j->a->awq_opts, &j->awq, diag);
	if (!ret)
		ret = awq_plan_scales(m, &j->plan, &j->awq, diag);
	sits_model_close(m);
	tool_progress_end();
	return ret;
}

static int write_out(struct job *j, struct sits_diag *diag)
{
	struct gguf_out *o = NULL;
	int ret = gguf_out_open(j->ctx, j->a->out, j->a->force, ALIGN, &o);

	j->a->doing = "quantizing";
	if (!ret)
		ret = put_keys(o, &j->in, j->a->q.type);
	source_plan(&j->in, &j->plan);
	if (!ret)
		ret = quant_run(&j->plan, o, j->a->ppl.threads, progress, j->a, diag);
	ret = mapped_check(ret, diag);
	tool_progress_end();
	if (ret) {
		gguf_out_abort(o);
		return ret;
	}
	return gguf_out_commit(o, &j->bytes_out);
}

/* Everything that can be refused without work is, before the first long step. */
static int open_all(struct job *j, struct sits_diag *diag)
{
	int ret = source_open(j->a->in, &j->in, diag);

	if (!ret)
		ret = load_text(j->a->text, &j->text, diag);
	if (!ret)
		ret = load_text(j->a->calibration, &j->calibration, diag);
	if (!ret)
		ret = quant_plan_create(j->in.g, &j->a->q, &j->plan, diag);
	if (!ret && !j->a->force && !access(j->a->out, F_OK))
		ret = sits_diag_fail(diag, -EEXIST, "%s exists; --force replaces it", j->a->out);
	return ret;
}

static int quantize(struct job *j, struct sits_diag *diag)
{
	int ret = open_all(j, diag);

	if (!ret && j->a->awq)
		ret = plan_awq(j, diag);
	if (!ret && j->a->text)
		ret = perplexity(j, &j->in, "perplexity before, window", &j->before, diag);
	if (!ret)
		ret = write_out(j, diag);
	if (!ret && j->a->text)
		ret = perplexity_after(j, diag);
	ret = mapped_check(ret, diag);
	if (!ret && (j->a->json || !j->a->quiet))
		report_print(&(struct report){ .in = j->a->in, .out = j->a->out, .bytes_in = j->in.bytes, .bytes_out = j->bytes_out,
					       .plan = &j->plan, .awq = j->a->awq ? &j->awq : NULL,
					       .before = j->a->text ? &j->before : NULL, .after = &j->after }, j->a->json);
	return ret;
}

static void close_all(struct job *j)
{
	quant_plan_destroy(&j->plan);
	awq_destroy(&j->awq);
	mapped_close(&j->calibration);
	mapped_close(&j->text);
	source_close(&j->in);
	sits_close(j->ctx);
}

static int run(int argc, char **argv)
{
	struct sits_diag diag = { "" };
	struct args a = { 0 };
	struct job j = { .a = &a };
	int ret, status = parse(argc, argv, &a);

	if (status >= 0)
		return status;
	tool_catch_signals();
	status = tool_open(CMD, "user", NULL, &j.ctx);
	if (status)
		return status;
	ret = quantize(&j, &diag);
	if (ret)
		status = model_fail(CMD, a.in, ret, &diag, a.json);
	close_all(&j);
	return status;
}

const struct sits_cmd sits_cmd_quantize = { CMD, "make a smaller model file of another", run };
