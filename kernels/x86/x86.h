/* SPDX-License-Identifier: MIT */
/*
 * x86.h - the parts of the x86 backends; backend_<isa>.c puts them into the table.
 */
#ifndef SITS_KERNELS_X86_X86_H
#define SITS_KERNELS_X86_X86_H

#include "kernels/kernels.h"

#define SITS_X86_PARTS(isa)									\
	void sits_##isa##_matmul_quant(const struct sits_matmul *mm);				\
	void sits_##isa##_matmul_i8(const struct sits_matmul *mm);				\
	void sits_##isa##_matmul_float(const struct sits_matmul *mm);				\
	void sits_##isa##_dequant(uint32_t wtype, const void *src, float *dst, size_t n);	\
	void sits_##isa##_act_prepare(uint32_t wtype, const float *x, size_t ldx, size_t T,	\
				      size_t K, void *out);					\
	void sits_##isa##_rmsnorm(float *y, const float *x, const float *w, size_t T, size_t C,	\
				  float eps);							\
	void sits_##isa##_rope(float *x, size_t ld, const int32_t *pos, const float *inv_freq,	\
			       size_t T, size_t H, size_t D, size_t R, int neox);		\
	void sits_##isa##_silu_mul(float *y, const float *a, const float *b, size_t n);		\
	void sits_##isa##_add(float *y, const float *x, size_t n);				\
	void sits_##isa##_add_scaled(float *y, const float *x, float a, size_t n);		\
	void sits_##isa##_add_rmsnorm_prepare(uint32_t wtype, float *x, const float *r,		\
					      const float *w, float *y, size_t T, size_t C,	\
					      float eps, void *out);				\
	void sits_##isa##_silu_mul_prepare(uint32_t wtype, float *y, const float *a,		\
					   const float *b, size_t T, size_t K, void *out);	\
	void sits_##isa##_rope_store(const struct sits_rope_store *rs);				\
	void sits_##isa##_softmax_rmsnorm(float *y, const float *x, const float *w, size_t T,	\
					  size_t C, float eps);					\
	size_t sits_##isa##_topk(const float *x, size_t n, size_t k, uint32_t *id);		\
	size_t sits_##isa##_kv_layer_bytes(const struct sits_kv_shape *s);			\
	void sits_##isa##_kv_store(const struct sits_kv_shape *s, void *layer, size_t slot,	\
				   const float *k, const float *v);				\
	void sits_##isa##_kv_copy(const struct sits_kv_shape *s, void *to, size_t to_cell,	\
				  const void *from, size_t from_cell);				\
	size_t sits_##isa##_attn_tasks(const struct sits_attn *a);				\
	size_t sits_##isa##_attn_scratch_bytes(const struct sits_attn *a);			\
	size_t sits_##isa##_attn_work_bytes(const struct sits_attn *a);				\
	void sits_##isa##_attn(const struct sits_attn *a, size_t t0, size_t t1, void *scratch)

SITS_X86_PARTS(avx2);
SITS_X86_PARTS(avx512);
void sits_avx512_one_matmul_quant(const struct sits_matmul *mm);	/* T = 1 */
void sits_avx512bf16_matmul(const struct sits_matmul *mm);		/* BF16 weights */

#endif
