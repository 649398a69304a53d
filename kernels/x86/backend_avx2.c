// SPDX-License-Identifier: MIT
/*
 * backend_avx2.c - the AVX2 backend's table.
 */
#include "kernels/backends.h"
#include "kernels/quant.h"
#include "kernels/x86/cpu.h"
#include "kernels/x86/x86.h"

static void matmul(const struct sits_matmul *mm)
{
	if (!mm->T || mm->n0 >= mm->n1)
		return;
	switch (sits_cpu_act_class(mm->wtype)) {
	case SITS_ACT_Q8:
		sits_avx2_matmul_i8(mm);
		break;
	case SITS_ACT_Q16:
		sits_avx2_matmul_quant(mm);
		break;
	default:
		sits_avx2_matmul_float(mm);
		break;
	}
}

static void matmul_grouped(const struct sits_matmul *mm, const struct sits_matmul_group *group, size_t nr_groups)
{
	for (size_t i = 0; i < nr_groups; i++) {
		struct sits_matmul one = sits_matmul_of_group(mm, &group[i]);

		matmul(&one);
	}
}

const struct sits_backend sits_backend_avx2 = {
	.name = "avx2",
	.priority = 20,
	.usable = sits_cpu_has_avx2,
	.dequant = sits_avx2_dequant,
	.act_row_bytes = sits_cpu_act_row_bytes,
	.act_prepare = sits_avx2_act_prepare,
	.act_class = sits_cpu_act_class,
	.matmul = matmul,
	.matmul_grouped = matmul_grouped,
	.rmsnorm = sits_avx2_rmsnorm,
	.rope = sits_avx2_rope,
	.silu_mul = sits_avx2_silu_mul,
	.add = sits_avx2_add,
	.add_scaled = sits_avx2_add_scaled,
	.add_rmsnorm_prepare = sits_avx2_add_rmsnorm_prepare,
	.silu_mul_prepare = sits_avx2_silu_mul_prepare,
	.rope_store = sits_avx2_rope_store,
	.softmax_rmsnorm = sits_avx2_softmax_rmsnorm,
	.topk = sits_avx2_topk,
	.kv_layer_bytes = sits_avx2_kv_layer_bytes,
	.kv_store = sits_avx2_kv_store,
	.kv_copy = sits_avx2_kv_copy,
	.attn_tasks = sits_avx2_attn_tasks,
	.attn_scratch_bytes = sits_avx2_attn_scratch_bytes,
	.attn_work_bytes = sits_avx2_attn_work_bytes,
	.attn = sits_avx2_attn,
};
