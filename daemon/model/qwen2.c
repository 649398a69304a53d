// SPDX-License-Identifier: MIT
/*
 * qwen2.c - Qwen2 and Qwen2.5: biases on q, k and v.
 */
#include "daemon/model/family.h"

static int load(struct sits_model *m, struct sits_diag *diag)
{
	static const struct sits_family f = { .neox = 1, .biases = SITS_BIASES_QKV };

	return sits_family_load(m, &f, diag);
}

const struct sits_arch sits_arch_qwen2 = { .name = "qwen2", .load = load };
