/* SPDX-License-Identifier: MIT */
/*
 * rope.h - rotary frequencies of a model, with the ways of stretching its context.
 */
#ifndef SITS_MODEL_ROPE_H
#define SITS_MODEL_ROPE_H

#include "daemon/model/model.h"

/**
 * sits_rope_plan() - inv_freq and rope_mscale of @m from hp.rope.
 * @factors: [dims/2] that frequencies are divided by besides (GGUF tensor rope_freqs.weight); any alignment, borrowed;
 *	NULL: none
 *
 * Sources: Su et al. 2021 (RoPE); Chen et al. 2023 (linear); Peng et al. 2023 (YaRN, sections 3.2 to 3.4).
 * Return: 0; -ENOMEM; -EBADMSG where a frequency or the scale is not usable. m->inv_freq is the model's.
 */
int sits_rope_plan(struct sits_model *m, const void *factors, struct sits_diag *diag);

#endif
