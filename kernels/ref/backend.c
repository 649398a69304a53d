// SPDX-License-Identifier: MIT
/*
 * backend.c - the reference backend's table.
 */
#include "kernels/backends.h"
#include "kernels/ref/ref.h"

static bool always(void)
{
	return true;
}

const struct sits_backend sits_backend_ref = {
	.name = "ref",
	.priority = 0,
	.usable = always,
	.dequant = sits_ref_dequant,
	.act_row_bytes = sits_ref_act_row_bytes,
	.act_prepare = sits_ref_act_prepare,
	.act_class = sits_ref_act_class,
	.matmul = sits_ref_matmul,
	.rmsnorm = sits_ref_rmsnorm,
	.rope = sits_ref_rope,
	.silu_mul = sits_ref_silu_mul,
	.add = sits_ref_add,
	.kv_layer_bytes = sits_ref_kv_layer_bytes,
	.kv_store = sits_ref_kv_store,
	.attn_tasks = sits_ref_attn_tasks,
	.attn_scratch_bytes = sits_ref_attn_scratch_bytes,
	.attn = sits_ref_attn,
};
