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
	.matmul_grouped = sits_ref_matmul_grouped,
	.rmsnorm = sits_ref_rmsnorm,
	.rope = sits_ref_rope,
	.silu_mul = sits_ref_silu_mul,
	.add = sits_ref_add,
	.add_scaled = sits_ref_add_scaled,
	.add_rmsnorm_prepare = sits_ref_add_rmsnorm_prepare,
	.silu_mul_prepare = sits_ref_silu_mul_prepare,
	.rope_store = sits_ref_rope_store,
	.softmax_rmsnorm = sits_ref_softmax_rmsnorm,
	.topk = sits_ref_topk,
	.kv_layer_bytes = sits_ref_kv_layer_bytes,
	.kv_store = sits_ref_kv_store,
	.kv_copy = sits_ref_kv_copy,
	.attn_tasks = sits_ref_attn_tasks,
	.attn_scratch_bytes = sits_ref_attn_scratch_bytes,
	.attn_work_bytes = sits_ref_attn_work_bytes,
	.attn = sits_ref_attn,
};
