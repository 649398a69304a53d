// SPDX-License-Identifier: MIT
/*
 * awq_plan.c - see awq_plan.h.
 */
#include "tools/model/awq_plan.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/model/model.h"
#include "kernels/kernels.h"
#include "tools/model/awq.h"
#include "tools/model/quantize.h"

/* Tensor "blk.LAYER.NAME" of the plan; NULL where there is none, with words where it is @required. */
static struct quant_tensor *tensor(const struct quant_plan *p, uint32_t layer, const char *name, bool required,
				   struct sits_diag *diag)
{
	struct quant_tensor *q;
	char full[64];

	snprintf(full, sizeof(full), "blk.%u.%s", layer, name);
	q = quant_plan_find(p, full);
	if (!q && required)
		sits_diag_fail(diag, -EPROTONOSUPPORT, "the model has no tensor %s, which awq-int8 needs", full);
	return q;
}

/* Rows of a packed tensor lie side by side: it can't be multiplied and encoded row by row. */
static int refuse_packed(const struct quant_tensor *q, struct sits_diag *diag)
{
	if (!q || !(q->t->type & SITS_PACKED))
		return 0;
	return sits_diag_fail(diag, -EINVAL, "tensor %.*s is %s, packed; quantize what it was packed from", (int)q->t->name.len, q->t->name.p,
			      sits_dtype_info(q->t->type)->name);
}

/* What reads x beside the experts, if it is there; NULL: the end. */
static const char *const readers[] = { "ffn_gate_inp.weight", "ffn_gate_shexp.weight", "ffn_up_shexp.weight",
				       "ffn_gate_inp_shexp.weight", NULL };

int awq_plan_types(const struct sits_model *m, struct quant_plan *p, bool dense, bool requantise, struct sits_diag *diag)
{
	static const char *const names[2][3] = {
		{ "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight" },
		{ "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight" },
	};
	struct quant_tensor *q;
	bool moe;
	uint32_t l;
	size_t i;

	for (l = 0; l < m->hp.layers; l++) {
		moe = m->layer[l].kind == SITS_LAYER_MOE;
		if (!moe && !dense)
			continue;
		for (i = 0; readers[i]; i++)
			if (refuse_packed(tensor(p, l, readers[i], false, NULL), diag))
				return -EINVAL;
		for (i = 0; i < 3; i++) {
			q = tensor(p, l, names[moe][i], true, diag);
			if (!q)
				return -EPROTONOSUPPORT;
			if (refuse_packed(q, diag))
				return -EINVAL;
			if (!quant_plan_encode(q, SITS_I8C))
				return sits_diag_fail(diag, -EPROTONOSUPPORT, "tensor blk.%u.%s: its rows do not fit I8C", l, names[moe][i]);
			if (sits_dtype_info(q->t->type)->block_elems > 1 && !requantise)
				return sits_diag_fail(diag, -EINVAL, "tensor blk.%u.%s is %s already; to make it I8C from that, which adds to its error, say --requantize",
						      l, names[moe][i], sits_dtype_info(q->t->type)->name);
		}
	}
	return 0;
}

static void scale_readers(const struct quant_plan *p, const struct awq_layer *a)
{
	const struct quant_scale s = { .col = a->s };
	struct quant_tensor *q;
	size_t i;

	for (i = 0; readers[i]; i++) {
		q = tensor(p, a->layer, readers[i], false, NULL);
		if (q)
			quant_plan_scale(q, &s);
	}
}

int awq_plan_scales(const struct sits_model *m, struct quant_plan *p, const struct awq *a, struct sits_diag *diag)
{
	struct quant_tensor *norm, *gate, *up, *down;
	const struct awq_layer *l;
	uint32_t i;

	for (i = 0; i < a->nr; i++) {
		l = &a->layer[i];
		norm = tensor(p, l->layer, "ffn_norm.weight", true, diag);
		gate = tensor(p, l->layer, l->moe ? "ffn_gate_exps.weight" : "ffn_gate.weight", true, diag);
		up = tensor(p, l->layer, l->moe ? "ffn_up_exps.weight" : "ffn_up.weight", true, diag);
		down = tensor(p, l->layer, l->moe ? "ffn_down_exps.weight" : "ffn_down.weight", true, diag);
		if (!norm || !gate || !up || !down)
			return -EPROTONOSUPPORT;
		quant_plan_scale(norm, &(struct quant_scale){ .col = l->inv_s });
		quant_plan_scale(gate, &(struct quant_scale){ .col = l->s });
		quant_plan_scale(up, &(struct quant_scale){ .col = l->s, .row = l->inv_t, .row_stride = l->F });
		quant_plan_scale(down, &(struct quant_scale){ .col = l->t, .col_stride = l->F });
		scale_readers(p, l);
	}
	return 0;
}
