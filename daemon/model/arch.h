/* SPDX-License-Identifier: MIT */
/*
 * arch.h - what model.c and the architectures share; nothing outside daemon/model/ includes it.
 *
 * To add an architecture: a file that fills struct sits_model from the metadata (family.h has what most of them need), its
 * struct sits_arch, and a line in the table of model.c.
 */
#ifndef SITS_MODEL_ARCH_H
#define SITS_MODEL_ARCH_H

#include <stdbool.h>

#include "daemon/model/model.h"

struct sits_arch {
	const char *name;	/* general.architecture */
	int (*load)(struct sits_model *m, struct sits_diag *diag);
};

extern const struct sits_arch sits_arch_deepseek2, sits_arch_llama, sits_arch_olmoe, sits_arch_qwen2, sits_arch_qwen2moe, sits_arch_qwen3,
	sits_arch_qwen3moe;

/* Bounds that keep every product of two sizes far inside 64 bits, and hostile files cheap. */
#define SITS_MODEL_MAX_LAYERS	1024
#define SITS_MODEL_MAX_EMBD	(1u << 17)
#define SITS_MODEL_MAX_FF	(1u << 20)
#define SITS_MODEL_MAX_HEADS	1024
#define SITS_MODEL_MAX_HEAD_DIM	256	/* kernels/kernels.h */
#define SITS_MODEL_MAX_CONTEXT	(1u << 24)

/* Look up "{arch}.{key}"; the name is a literal, so it always fits. */

/** sits_arch_u32() - A required integer in [min, max]. Return: 0 or -errno with words. */
int sits_arch_u32(const struct sits_model *m, const char *key, uint32_t min, uint32_t max, uint32_t *v,
		  struct sits_diag *diag);
/** sits_arch_u32_or() - The same, @dflt where the key is absent. */
int sits_arch_u32_or(const struct sits_model *m, const char *key, uint32_t min, uint32_t max, uint32_t dflt,
		     uint32_t *v, struct sits_diag *diag);
/** sits_arch_f32_or() - A finite float > 0; @dflt where absent, required where @dflt is 0. */
int sits_arch_f32_or(const struct sits_model *m, const char *key, float dflt, float *v, struct sits_diag *diag);

/** sits_arch_bool_or() - A bool; @dflt where absent. */
int sits_arch_bool_or(const struct sits_model *m, const char *key, bool dflt, bool *v, struct sits_diag *diag);
/** sits_arch_str_or() - A string in place; @dflt where absent. */
int sits_arch_str_or(const struct sits_model *m, const char *key, const char *dflt, struct sits_str *v,
		     struct sits_diag *diag);

/**
 * sits_arch_keys() - Refuse keys under "{arch}." that are neither in @known nor in @more (NULL-terminated): they might change
 * the result.
 */
int sits_arch_keys(const struct sits_model *m, const char *const *known, const char *const *more, struct sits_diag *diag);

/** sits_arch_matrix() - Tensor @name as a [N][K] matrix. Return: 0; -EBADMSG where it is missing or of another shape. */
int sits_arch_matrix(const struct sits_model *m, const char *name, uint64_t K, uint64_t N, struct sits_weight *w,
		     struct sits_diag *diag);
/** sits_arch_matrices() - Tensor @name with ne = {K, N, @nr} as a stack. */
int sits_arch_matrices(const struct sits_model *m, const char *name, uint64_t K, uint64_t N, uint32_t nr,
		       struct sits_weight *w, struct sits_diag *diag);
/** sits_arch_vector() - Tensor @name as F32 [K], 4-byte aligned. */
int sits_arch_vector(const struct sits_model *m, const char *name, uint64_t K, struct sits_weight *w,
		     struct sits_diag *diag);
/** sits_arch_vector_opt() - The same; data is NULL where the file has no such tensor. */
int sits_arch_vector_opt(const struct sits_model *m, const char *name, uint64_t K, struct sits_weight *w,
			 struct sits_diag *diag);

/**
 * sits_arch_stack() - Matrices [N][K] of @experts experts of layer @i: tensor "blk.@i.@name_exps.weight" with ne = {K, N, experts},
 * or, where there is none, tensors "blk.@i.@name.E.weight" with ne = {K, N}, all of one type.
 */
int sits_arch_stack(struct sits_model *m, uint32_t i, const char *name, uint64_t K, uint64_t N, uint32_t experts,
		    struct sits_weight *w, struct sits_diag *diag);

/**
 * sits_arch_unused() - Refuse tensors that no weight of the model points at, but for those in @harmless.
 * @harmless: NULL-terminated names
 */
int sits_arch_unused(const struct sits_model *m, const char *const *harmless, struct sits_diag *diag);

#endif
