// SPDX-License-Identifier: MIT
/*
 * backend_avx512.c - the tables of the AVX-512 backend, and of its lossy variant for BF16.
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
		sits_avx512_matmul_i8(mm);
		break;
	case SITS_ACT_Q16:	/* packed rows need no turning: nothing gains from 256-bit vectors */
		if (mm->T == 1 && !(mm->wtype & SITS_PACKED))
			sits_avx512_one_matmul_quant(mm);
		else
			sits_avx512_matmul_quant(mm);
		break;
	default:
		sits_avx512_matmul_float(mm);
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

/* The second backend: BF16 weights meet activations rounded to BF16, all else is the first one's. */
static void matmul_bf16(const struct sits_matmul *mm)
{
	if (mm->wtype != SITS_BF16)
		matmul(mm);
	else if (mm->T && mm->n0 < mm->n1)
		sits_avx512bf16_matmul(mm);
}

static void matmul_grouped_bf16(const struct sits_matmul *mm, const struct sits_matmul_group *group, size_t nr_groups)
{
	for (size_t i = 0; i < nr_groups; i++) {
		struct sits_matmul one = sits_matmul_of_group(mm, &group[i]);

		matmul_bf16(&one);
	}
}

#define AVX512_TABLE(...) {						\
	__VA_ARGS__,							\
	.dequant = sits_avx512_dequant, \
	.act_row_bytes = sits_cpu_act_row_bytes, \
	.act_prepare = sits_avx512_act_prepare, \
	.act_class = sits_cpu_act_class, \
	.rmsnorm = sits_avx512_rmsnorm, \
	.rope = sits_avx512_rope, \
	.silu_mul = sits_avx512_silu_mul, \
	.add = sits_avx512_add, \
	.add_scaled = sits_avx512_add_scaled, \
	.add_rmsnorm_prepare = sits_avx512_add_rmsnorm_prepare, \
	.silu_mul_prepare = sits_avx512_silu_mul_prepare, \
	.rope_store = sits_avx512_rope_store, \
	.softmax_rmsnorm = sits_avx512_softmax_rmsnorm, \
	.topk = sits_avx512_topk, \
	.kv_layer_bytes = sits_avx512_kv_layer_bytes, \
	.kv_store = sits_avx512_kv_store, \
	.kv_copy = sits_avx512_kv_copy, \
	.attn_tasks = sits_avx512_attn_tasks, \
	.attn_scratch_bytes = sits_avx512_attn_scratch_bytes, \
	.attn_work_bytes = sits_avx512_attn_work_bytes, \
	.attn = sits_avx512_attn, \
}

const struct sits_backend sits_backend_avx512 =
	AVX512_TABLE(.name = "avx512", .priority = 30, .usable = sits_cpu_has_avx512, .matmul = matmul,
		     .matmul_grouped = matmul_grouped);

const struct sits_backend sits_backend_avx512bf16 =	/* only where it is asked for by name */
	AVX512_TABLE(.name = "avx512bf16", .priority = 25, .usable = sits_cpu_has_avx512bf16, .matmul = matmul_bf16,
		     .matmul_grouped = matmul_grouped_bf16);
