// SPDX-License-Identifier: MIT
/*
 * olmoe.c - OLMoE: q and k each have one RMS norm over all heads before RoPE; softmax over all experts, the weights as they are.
 */
#include "daemon/model/family.h"

static int load(struct sits_model *m, struct sits_diag *diag)
{
	static const struct sits_family f = { .neox = 1, .qk_norm = SITS_QK_NORM_ALL, .moe = 2 };

	return sits_family_load(m, &f, diag);
}

const struct sits_arch sits_arch_olmoe = { .name = "olmoe", .load = load };
