// SPDX-License-Identifier: MIT
/*
 * report.c - see report.h. The error of a tensor, or of all of a layer's: the root of the sum of squared differences, over
 * that of the sum of squares.
 */
#include "tools/model/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tools/model/awq.h"
#include "tools/model/ppl.h"
#include "tools/model/quantize.h"
#include "tools/sits/cmd.h"

#define NO_LAYER UINT32_MAX

/* Sums over the tensors of a layer, or of the rest. */
struct part {
	double err2, x2, worst;
	const struct quant_tensor *worst_tensor;
	uint64_t bytes_in, bytes_out;
};

static double relative(double err2, double x2)
{
	return x2 > 0 ? sqrt(err2 / x2) : 0;
}

static uint32_t layer_of(const struct sits_gguf_tensor *t)
{
	uint32_t n = 0;
	size_t i;

	if (t->name.len < 6 || memcmp(t->name.p, "blk.", 4))
		return NO_LAYER;
	for (i = 4; i < t->name.len && t->name.p[i] >= '0' && t->name.p[i] <= '9' && n < 1000000; i++)
		n = 10 * n + (uint32_t)(t->name.p[i] - '0');
	return i > 4 && i < t->name.len && t->name.p[i] == '.' ? n : NO_LAYER;
}

static void add(struct part *p, const struct quant_tensor *q)
{
	double e = relative(q->err2, q->x2);

	p->err2 += q->err2;
	p->x2 += q->x2;
	p->bytes_in += q->t->bytes;
	p->bytes_out += q->bytes;
	if (!q->copy && (!p->worst_tensor || e > p->worst)) {
		p->worst = e;
		p->worst_tensor = q;
	}
}

/* Return: whether the plan has tensors of that layer. */
static bool sum_layer(const struct quant_plan *plan, uint32_t layer, struct part *p)
{
	bool any = false;
	uint64_t i;

	*p = (struct part){ 0 };
	for (i = 0; i < plan->nr; i++) {
		if (layer_of(plan->tensor[i].t) != layer)
			continue;
		add(p, &plan->tensor[i]);
		any = true;
	}
	return any;
}

static uint32_t last_layer(const struct quant_plan *plan)
{
	uint32_t n = 0, l;
	uint64_t i;

	for (i = 0; i < plan->nr; i++) {
		l = layer_of(plan->tensor[i].t);
		n = l != NO_LAYER && l > n ? l : n;
	}
	return n;
}

static void print_part(const char *label, const struct part *p)
{
	char a[32], b[32];

	printf("%-8s %10s -> %-10s", label, tool_bytes(p->bytes_in, a), tool_bytes(p->bytes_out, b));
	if (p->worst_tensor)
		printf(" %9.3f %%  %.*s (%s, %.3f %%)\n", 100 * relative(p->err2, p->x2), (int)p->worst_tensor->t->name.len,
		       p->worst_tensor->t->name.p, sits_dtype_info(p->worst_tensor->type)->name, 100 * p->worst);
	else
		printf("         -    unchanged\n");
}

static void print_table(const struct quant_plan *plan)
{
	uint32_t l, nr = last_layer(plan);
	uint64_t i, fallback = 0;
	struct part p;
	char label[16];

	printf("%-8s %24s %11s  worst tensor\n", "layer", "size", "error");
	for (l = 0; l <= nr; l++) {
		snprintf(label, sizeof(label), "%u", l);
		if (sum_layer(plan, l, &p))
			print_part(label, &p);
	}
	if (sum_layer(plan, NO_LAYER, &p))
		print_part("others", &p);
	for (i = 0; i < plan->nr; i++)
		fallback += plan->tensor[i].fallback;
	if (fallback)
		printf("%" PRIu64 " tensors have rows that are not whole blocks of the type asked for; they got another one\n", fallback);
}

static json_t *tensors_json(const struct quant_plan *plan)
{
	json_t *list = json_array();
	const struct quant_tensor *q;
	uint64_t i;

	for (i = 0; i < plan->nr; i++) {
		q = &plan->tensor[i];
		json_array_append_new(list, json_pack("{s:s%, s:s, s:s, s:I, s:I, s:b, s:o, s:o}", "name", q->t->name.p,
			q->t->name.len, "from", sits_dtype_info(q->t->type)->name, "to", sits_dtype_info(q->type)->name,
			"bytes_in", (json_int_t)q->t->bytes, "bytes_out", (json_int_t)q->bytes, "fallback", q->fallback,
			"error", tool_json_real(relative(q->err2, q->x2)), "max_error", tool_json_real(q->max_err)));
	}
	return list;
}

static json_t *layers_json(const struct quant_plan *plan)
{
	uint32_t l, nr = last_layer(plan);
	json_t *list = json_array();
	struct part p;

	for (l = 0; l <= nr; l++)
		if (sum_layer(plan, l, &p))
			json_array_append_new(list, json_pack("{s:i, s:I, s:I, s:o}", "layer", (int)l, "bytes_in",
				(json_int_t)p.bytes_in, "bytes_out", (json_int_t)p.bytes_out, "error",
				tool_json_real(relative(p.err2, p.x2))));
	return list;
}

static json_t *awq_json(const struct awq *a)
{
	json_t *list = json_array();
	uint32_t i;

	for (i = 0; i < a->nr; i++)
		json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:o, s:o}", "layer", (int)a->layer[i].layer, "gate_up",
			tool_json_real(a->layer[i].gate_up), "gate_up_plain", tool_json_real(a->layer[i].gate_up_plain), "down",
			tool_json_real(a->layer[i].down), "down_plain", tool_json_real(a->layer[i].down_plain)));
	return list;
}

static void print_json(const struct report *r)
{
	const struct ppl_result *b = r->before, *a = r->after;
	json_t *o = json_pack("{s:b, s:o, s:o, s:I, s:I, s:o, s:o}", "ok", 1, "input", tool_json_text(r->in), "output",
			      tool_json_text(r->out), "bytes_in", (json_int_t)r->bytes_in, "bytes_out",
			      (json_int_t)r->bytes_out, "layers", layers_json(r->plan), "tensors", tensors_json(r->plan));

	if (r->awq)
		json_object_set_new(o, "awq", awq_json(r->awq));
	if (b)
		json_object_set_new(o, "perplexity", json_pack("{s:o, s:o, s:o, s:o, s:o, s:I}", "before", tool_json_real(b->ppl),
				    "before_stderr", tool_json_real(b->err), "after", tool_json_real(a->ppl), "after_stderr",
				    tool_json_real(a->err), "change", tool_json_real(a->ppl / b->ppl - 1), "scored", (json_int_t)a->scored));
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

static void print_awq(const struct awq *a)
{
	const struct awq_layer *l;
	uint32_t i, idle = 0;

	printf("\nlayer    error over the calibration text, with factors (without)\n");
	for (i = 0; i < a->nr; i++) {
		l = &a->layer[i];
		printf("%-8u gate, up %7.3f %% (%.3f %%)   down %7.3f %% (%.3f %%)\n", l->layer, 100 * l->gate_up,
		       100 * l->gate_up_plain, 100 * l->down, 100 * l->down_plain);
		idle += l->idle;
	}
	if (idle)
		printf("%u experts got no token of the sample; they have factors for gate and up alone\n", idle);
	putchar('\n');
}

void report_print(const struct report *r, bool json)
{
	char a[32], b[32];

	if (json) {
		print_json(r);
		return;
	}
	print_table(r->plan);
	if (r->awq)
		print_awq(r->awq);
	printf("size        %s -> %s, %.1f %%\n", tool_bytes(r->bytes_in, a), tool_bytes(r->bytes_out, b),
	       100.0 * (double)r->bytes_out / (double)r->bytes_in);
	if (r->before)
		printf("perplexity  %.4f +/- %.4f -> %.4f +/- %.4f, %+.3f %%\n", r->before->ppl, r->before->err, r->after->ppl,
		       r->after->err, 100 * (r->after->ppl / r->before->ppl - 1));
}
