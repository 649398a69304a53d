// SPDX-License-Identifier: MIT
/*
 * backend_avx2.c - the AVX2 backend's table.
 */
#include "kernels/backends.h"
#include "kernels/quant.h"
#include "kernels/x86/cpu.h"
#include "kernels/x86/x86.h"

static uint32_t act_class(uint32_t wtype)
{
	return sits_dtype_is_quant(wtype) ? SITS_ACT_Q16 : SITS_ACT_F32;
}

static void matmul(const struct sits_matmul *mm)
{
	if (sits_dtype_is_quant(mm->wtype))
		sits_avx2_matmul_quant(mm);
	else
		sits_avx2_matmul_float(mm);
}

static size_t kv_layer_bytes(size_t G, size_t D)
{
	return 2 * G * SITS_KV_PAGE_TOKENS * D * sizeof(uint16_t);
}

const struct sits_backend sits_backend_avx2 = {
	.name = "avx2",
	.priority = 20,
	.usable = sits_cpu_has_avx2,
	.dequant = sits_avx2_dequant,
	.act_row_bytes = sits_cpu_act_row_bytes,
	.act_prepare = sits_avx2_act_prepare,
	.act_class = act_class,
	.matmul = matmul,
	.rmsnorm = sits_avx2_rmsnorm,
	.rope = sits_avx2_rope,
	.silu_mul = sits_avx2_silu_mul,
	.add = sits_avx2_add,
	.kv_layer_bytes = kv_layer_bytes,
	.kv_store = sits_avx2_kv_store,
	.attn_tasks = sits_avx2_attn_tasks,
	.attn_scratch_bytes = sits_avx2_attn_scratch_bytes,
	.attn = sits_avx2_attn,
};
