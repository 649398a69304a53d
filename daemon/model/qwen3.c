// SPDX-License-Identifier: MIT
/*
 * qwen3.c - Qwen3: each head of q and k has an RMS norm before RoPE; no biases.
 */
#include "daemon/model/family.h"

static int load(struct sits_model *m, struct sits_diag *diag)
{
	static const struct sits_family f = { .neox = 1, .qk_norm = SITS_QK_NORM_HEAD };

	return sits_family_load(m, &f, diag);
}

const struct sits_arch sits_arch_qwen3 = { .name = "qwen3", .load = load };
