/* SPDX-License-Identifier: MIT */
/*
 * ppl.h - perplexity of a model over a text.
 *
 * The text's tokens are cut into windows of C that do not overlap; what does not fill the last one is left out. A window starts
 * with no context (its first token is replaced by BOS where the model's metadata asks for one), and its second half is
 * scored: the tokens at positions C/2 + 1 .. C - 1, each given all that stand before it in the window. Perplexity is e to the mean
 * of -ln p over all scored tokens. So each has at least C/2 + 1 tokens of context, and the numbers are comparable with those of
 * llama-perplexity of llama.cpp (its README in tools/perplexity), which counts in this way.
 *
 * With kv_keep the same tokens are scored a second time, as the answer to the first half of their window, by the engine that
 * serves: what it gives up of keys and values after the first half, and then page by page, later tokens do without.
 */
#ifndef SITS_TOOLS_PPL_H
#define SITS_TOOLS_PPL_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/diag.h"

struct sits_model;
struct sits_tokens;

/**
 * struct ppl_opts - how to measure; 0 or NULL takes the default.
 * @context: C, tokens in a window, 8 or more (512, or the model's context where that is less)
 * @windows: at most that many from the start (all)
 * @threads: compute threads (one per usable core)
 * @isa: backend (the best)
 * @kv_kind: enum sits_kv_kind: how keys and values are kept (F16)
 * @kv_keep: measure a second time, with keys and values of so many tokens kept by each head, on average (not)
 * @ffn_in: called for each layer with rows that its FFN or its experts read, [rows][cols], borrowed during the call; may be NULL
 * @progress: called now and then with the windows done; non-zero stops with -ECANCELED; may be NULL
 */
struct ppl_opts {
	uint32_t context, windows, threads;
	const char *isa;
	uint32_t kv_kind, kv_keep;
	void (*ffn_in)(void *arg, uint32_t layer, const float *x, size_t rows, size_t cols);
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

struct ppl_result {
	uint64_t tokens;	/* of the text */
	uint64_t windows, scored;
	double nll;		/* mean -ln p, nats a token */
	double ppl, err;	/* e^nll and its standard error, scored tokens taken as independent */
	double seconds;
	const char *isa;
	uint32_t context, threads;
	uint64_t kv_page_bytes;
	uint32_t kv_pages;	/* at the end of a window */
	struct {
		double nll, ppl, err;
		double kv_pages;	/* mean over windows */
	} kept;			/* with kv_keep: the second time */
};

/**
 * ppl_tokens() - The text as tokens: with BOS where the metadata asks for one; no text becomes a control token.
 * Return: 0; -EILSEQ: not UTF-8; -errno; with words.
 */
int ppl_tokens(const struct sits_model *m, const char *text, size_t len, struct sits_tokens *out, struct sits_diag *diag);

/**
 * ppl_run() - Measure.
 * @m: borrowed
 * @text: @len: any bytes; borrowed
 * Return: 0; -EINVAL for a text of less than one window, an unknown @opts->isa, a window longer than the model's context, or a
 * @opts->kv_keep that is too small;
 * -EDOM where a logit is not finite; -ECANCELED; -ENOMEM.
 */
int ppl_run(const struct sits_model *m, const char *text, size_t len, const struct ppl_opts *opts,
	    struct ppl_result *res, struct sits_diag *diag);

/* ---- between ppl.c and ppl_keep.c ---- */

/* -ln softmax(logits)[target], in double; NaN where that means nothing. */
double ppl_nll(const float *logits, size_t V, int32_t target);
/* The tokens of a window: [C]. */
void ppl_window(const struct sits_model *m, const struct sits_tokens *t, uint32_t C, uint64_t window, int32_t *token);
/* Windows and context are those in @res. sum: of -ln p and of its square, added to. */
int ppl_keep(const struct sits_model *m, const struct sits_tokens *t, const struct ppl_opts *o, struct ppl_result *res,
	     double sum[2], struct sits_diag *diag);

#endif
