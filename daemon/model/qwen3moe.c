// SPDX-License-Identifier: MIT
/*
 * qwen3moe.c - Qwen3-MoE: attention as in Qwen3; softmax over all experts, the chosen ones' weights divided by their sum.
 */
#include "daemon/model/family.h"

static int load(struct sits_model *m, struct sits_diag *diag)
{
	static const struct sits_family f = {
		.neox = 1, .qk_norm = SITS_QK_NORM_HEAD, .moe = 2, .renorm = true, .ff_split = true,
	};

	return sits_family_load(m, &f, diag);
}

const struct sits_arch sits_arch_qwen3moe = { .name = "qwen3moe", .load = load };
