/* SPDX-License-Identifier: MIT */
/*
 * ref.h - the scalar reference backend's parts; backend.c puts them into the table.
 *
 * These functions say what each operation means. They favour plainness over speed, and where
 * nothing else is fixed by quant.h they accumulate in double.
 */
#ifndef SITS_KERNELS_REF_H
#define SITS_KERNELS_REF_H

#include "kernels/kernels.h"

void sits_ref_dequant(uint32_t wtype, const void *src, float *dst, size_t n);
size_t sits_ref_act_row_bytes(uint32_t wtype, size_t K);
void sits_ref_act_prepare(uint32_t wtype, const float *x, size_t ldx, size_t T, size_t K, void *out);
uint32_t sits_ref_act_class(uint32_t wtype);
void sits_ref_matmul(const struct sits_matmul *mm);
void sits_ref_matmul_grouped(const struct sits_matmul *mm, const struct sits_matmul_group *group, size_t nr_groups);

void sits_ref_rmsnorm(float *y, const float *x, const float *w, size_t T, size_t C, float eps);
void sits_ref_rope(float *x, size_t ld, const int32_t *pos, const float *inv_freq, size_t T, size_t H,
		   size_t D, size_t R, int neox);
void sits_ref_silu_mul(float *y, const float *a, const float *b, size_t n);
void sits_ref_add(float *y, const float *x, size_t n);
void sits_ref_add_scaled(float *y, const float *x, float a, size_t n);

void sits_ref_add_rmsnorm_prepare(uint32_t wtype, float *x, const float *r, const float *w, float *y, size_t T, size_t C,
				  float eps, void *out);
void sits_ref_silu_mul_prepare(uint32_t wtype, float *y, const float *a, const float *b, size_t T, size_t K, void *out);
void sits_ref_rope_store(const struct sits_rope_store *rs);
void sits_ref_softmax_rmsnorm(float *y, const float *x, const float *w, size_t T, size_t C, float eps);
size_t sits_ref_topk(const float *x, size_t n, size_t k, uint32_t *id);

size_t sits_ref_kv_layer_bytes(const struct sits_kv_shape *s);
void sits_ref_kv_store(const struct sits_kv_shape *s, void *layer, size_t slot, const float *k, const float *v);
void sits_ref_kv_copy(const struct sits_kv_shape *s, void *to, size_t to_cell, const void *from, size_t from_cell);
size_t sits_ref_attn_tasks(const struct sits_attn *a);
size_t sits_ref_attn_scratch_bytes(const struct sits_attn *a);
size_t sits_ref_attn_work_bytes(const struct sits_attn *a);
void sits_ref_attn(const struct sits_attn *a, size_t t0, size_t t1, void *scratch);

#endif
