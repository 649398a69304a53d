/* SPDX-License-Identifier: MIT */
/*
 * awq.h - factors that make 8-bit experts with 8-bit activations err least on a text.
 *
 * A product of W and x does not change where column k of W is multiplied by s[k] and x[k] divided by it; but what is lost when both
 * are rounded does. So a factor for each channel is looked for:
 *
 *	gate, up  read x = norm(h); s[E] for a layer, as all its experts and its router read the same x
 *	down      reads silu(gate x) * (up x); t[F] for each expert
 *
 * s goes into the norm's gain (divided), the router and the columns of gate and up (multiplied), t into the rows of up (divided) and
 * the columns of down (multiplied). The model computes the same, but for rounding, and the engine knows nothing of it.
 *
 * Candidates are s = mean|x|^a (Lin et al. 2023, AWQ, eq. 4) and s = max|x|^a / max|W|^(1 - a) (Xiao et al. 2022, SmoothQuant, eq. 4) for
 * a in steps from 0 (no factors) to 1. Each is tried: weights and activations rounded as they will be (SITS_I8C, by the
 * backend's own kernels), the squared error of what comes out summed over sampled rows of a text, those of an
 * expert weighted by the square of what the router gives it. The smallest wins.
 */
#ifndef SITS_TOOLS_AWQ_H
#define SITS_TOOLS_AWQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"

struct sits_model;

/**
 * struct awq_opts - how to look.
 * @windows: of 512 tokens of the text that are run (8)
 * @threads: 0: one per usable core
 * @dense: also layers without experts, as if of one
 * @progress: called with what is done of what there is to do; non-zero stops with -ECANCELED; may be NULL
 */
struct awq_opts {
	uint32_t windows, threads;
	bool dense;
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

/* Errors are relative: root of the squared error over that of what comes out without rounding. Plain: without factors. */
struct awq_layer {
	uint32_t layer, experts;
	bool moe;
	uint64_t E, F;
	float *s, *inv_s;		/* [E] */
	float *t, *inv_t;		/* [experts][F] */
	double gate_up, gate_up_plain, down, down_plain;
	uint32_t idle;			/* experts that no sampled row went to: their t is 1 */
};

struct awq {
	struct awq_layer *layer;	/* [nr] */
	uint32_t nr;
};

/**
 * awq_run() - Run the model over a calibration text and find the factors.
 * @m: borrowed
 * @text: @len: at least one window
 * @out: awq_destroy() it
 * Return: 0; -EINVAL for a model without experts (and no @opts->dense), or a text too short; -EPROTONOSUPPORT where a feed-forward
 * part has biases; -EDOM; -ECANCELED; -ENOMEM; with words.
 */
int awq_run(const struct sits_model *m, const char *text, size_t len, const struct awq_opts *opts, struct awq *out,
	    struct sits_diag *diag);
void awq_destroy(struct awq *a);	/* zero-initialised is allowed */

#endif
