/* SPDX-License-Identifier: MIT */
/*
 * report.h - what a new model file is, beside the one that it was made from.
 */
#ifndef SITS_TOOLS_REPORT_H
#define SITS_TOOLS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct awq;
struct ppl_result;
struct quant_plan;

/**
 * struct report - what to tell.
 * @plan: after quant_run()
 * @awq: the factors' effect; NULL: none were looked for
 * @before: @after: perplexities; NULL: not measured
 */
struct report {
	const char *in, *out;
	uint64_t bytes_in, bytes_out;
	const struct quant_plan *plan;
	const struct awq *awq;
	const struct ppl_result *before, *after;
};

/** report_print() - Sizes, errors, perplexities, on stdout: as tables, or with @json as an object with "ok": true and each tensor. */
void report_print(const struct report *r, bool json);

#endif
