// SPDX-License-Identifier: MIT
/*
 * qwen2moe.c - Qwen1.5-MoE and Qwen2-MoE: softmax over all experts, the weights as they are, and a shared expert times the
 * sigmoid of a gate of its own.
 */
#include "daemon/model/family.h"

static int load(struct sits_model *m, struct sits_diag *diag)
{
	static const struct sits_family f = {
		.neox = 1, .biases = SITS_BIASES_QKV, .moe = 2, .ff_split = true, .shared = true,
	};

	return sits_family_load(m, &f, diag);
}

const struct sits_arch sits_arch_qwen2moe = { .name = "qwen2moe", .load = load };
