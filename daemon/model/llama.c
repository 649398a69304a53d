// SPDX-License-Identifier: MIT
/*
 * llama.c - the llama architecture: Llama 1 to 3, SmolLM, TinyLlama, Mistral 7B, and with experts Mixtral.
 *
 * GGUF files have the rows of q and k reordered for RoPE over pairs (2i, 2i+1). Optional: biases, a tied output matrix, scaling
 * of positions, the per-frequency factors of Llama 3.1 (tensor rope_freqs.weight), a sliding window.
 * Mixtral: softmax over all experts, the chosen ones' weights divided by their sum.
 */
#include "daemon/model/family.h"

static int load(struct sits_model *m, struct sits_diag *diag)
{
	static const struct sits_family f = { .biases = SITS_BIASES_ANY, .moe = 1, .renorm = true };

	return sits_family_load(m, &f, diag);
}

const struct sits_arch sits_arch_llama = { .name = "llama", .load = load };
