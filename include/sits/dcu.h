/* SPDX-License-Identifier: MIT */
/*
 * sits/dcu.h - compute kernels with a plain C ABI, for use outside of the engine: libsits-kernels.
 *
 * They run on the caller's thread, on the best instruction set of the machine, or on the one that the environment variable
 * SITS_FORCE_ISA names: ref, avx2, avx512 or avx512bf16. It is read at each call; empty is as good as unset, and where it names one that
 * is not known, or not usable on this machine, every call that has something to do returns -EINVAL: none is taken in its
 * place. Any number of threads may call at the same time. Tensors are dense f32, row-major, borrowed until return. Nothing is
 * printed; input is never changed. A processor that is not the CPU will be behind the same symbols.
 */
#ifndef SITS_DCU_H
#define SITS_DCU_H

#include <stdint.h>

#if defined(__GNUC__)
#define SITS_DCU_API __attribute__((visibility("default")))
#else
#define SITS_DCU_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * dcu_flash_attn3_forward() - Causal self-attention, by blocks, without a matrix of scores.
 * @q: @k: @v: [batch_size][seq_len][num_heads][head_dim]
 * @o: out, of the same shape; may not overlap the others
 * @batch_size: @seq_len: @num_heads: @head_dim: sizes; where one is 0 there is nothing to do
 * @dropout_p: probability with which each weight of the softmax is dropped, 0 .. 1; others are multiplied by 1 / (1 - p)
 *
 * o[b][i][h] = sum over j <= i of drop(w[i][j]) v[b][j][h], where w[i] is the softmax over j <= i of
 * q[b][i][h] . k[b][j][h] / sqrt(head_dim). Sums are f32. What stands at later positions never reaches a row, be it
 * NaN. Scratch memory is one batch item's keys and values (and its q and o, where head_dim is no multiple of 16).
 *
 * Dropout draws from Philox4x32-10, see dcu_flash_attn3_seed(): weight (b, h, i, j) is dropped where word j % 4 of
 * counter { j / 4, i, b * num_heads + h, call }, key { seed, seed >> 32 }, is less than dropout_p * 2^32.
 *
 * Return: 0; -EINVAL: a size is negative, dropout_p is not within 0 .. 1, a pointer is NULL or o overlaps an input, or
 * SITS_FORCE_ISA names what is not to be had here;
 * -EOVERFLOW: the tensors do not fit the address space; -ENOMEM.
 * Source: Dao et al. 2022, algorithm 1; Shah et al. 2024 (FlashAttention-3) has the name.
 */
SITS_DCU_API int dcu_flash_attn3_forward(const float *q, const float *k, const float *v, float *o, int batch_size, int seq_len,
					 int num_heads, int head_dim, float dropout_p);

/**
 * dcu_flash_attn3_seed() - What the calling thread's dropout draws from now on.
 * @seed: any number; a thread that never calls this has seed 0
 *
 * The next call with dropout_p > 0 that does its work is call 0, the one after it call 1, and so on (modulo 2^32).
 */
SITS_DCU_API void dcu_flash_attn3_seed(uint64_t seed);

/**
 * dcu_gemm_softmax_rmsnorm_forward() - y = rmsnorm(softmax(x w^T)) * gain, row by row, the product never in memory as a whole.
 * @x: [rows][in_features]
 * @w: [out_features][in_features]
 * @gain: [out_features], or NULL for ones
 * @y: out, [rows][out_features]; may not overlap the others
 * @rows: @in_features: @out_features: sizes; rows or out_features 0: nothing to do; in_features 0: the product is 0
 * @eps: added to the mean square of the softmax, >= 0
 *
 * y[t][n] = p[n] * gain[n] / sqrt(mean over n of p[n]^2 + eps), where p is the softmax of row t of x w^T.
 * Return: 0; -EINVAL: a negative size, a NULL pointer, eps negative or NaN, y overlaps an input, SITS_FORCE_ISA names what is
 * not to be had here; -EOVERFLOW; -ENOMEM.
 */
SITS_DCU_API int dcu_gemm_softmax_rmsnorm_forward(const float *x, const float *w, const float *gain, float *y, int rows,
						  int in_features, int out_features, float eps);

#ifdef __cplusplus
}
#endif
#endif
