/* SPDX-License-Identifier: MIT */
/*
 * awq_plan.h - what awq.h found, as a plan of quantize.h.
 */
#ifndef SITS_TOOLS_AWQ_PLAN_H
#define SITS_TOOLS_AWQ_PLAN_H

#include <stdbool.h>

#include "daemon/diag.h"

struct awq;
struct quant_plan;
struct sits_model;

/**
 * awq_plan_types() - Expert matrices (with @dense also those of other layers) become SITS_I8C.
 * Before the search, so that what can be refused is refused before the work.
 * Return: 0; -EINVAL for a tensor that is quantised already, without @requantise; -EPROTONOSUPPORT where the experts of a layer are no
 * stack; with words.
 */
int awq_plan_types(const struct sits_model *m, struct quant_plan *p, bool dense, bool requantise, struct sits_diag *diag);

/** awq_plan_scales() - The factors, into all tensors that they concern. @a: borrowed as long as @p is in use. Return: as above. */
int awq_plan_scales(const struct sits_model *m, struct quant_plan *p, const struct awq *a, struct sits_diag *diag);

#endif
