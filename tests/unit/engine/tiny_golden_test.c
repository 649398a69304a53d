// SPDX-License-Identifier: MIT
/*
 * tiny_golden_test.c - variants of the graph that the real model does not have, against llama.cpp.
 *
 * Random-weights models with biases, an output matrix of their own, frequency factors, linear RoPE scaling, heads that
 * are not embd / heads wide. tests/golden/make_tiny.py says how tests/golden/tiny.bin came to be; it takes the
 * models from this program: SITS_WRITE_TINY=DIR writes them.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/engine/client.h"
#include "tests/unit/engine/tiny_model.h"

#define GOLDEN "tests/golden/tiny.bin"
#define PROMPT 40
#define STEPS 4
/*
 * Logits of these models spread over about +-10. Keys and values in F16 (11 bits) and sums in another order move them by
 * less than this; a wrong pairing, scale or missing bias moves them by whole units.
 */
#define TOLERANCE 0.05f

static void linear(struct gguf_build *b)
{
	gguf_build_str(b, "llama.rope.scaling.type", "linear");
	gguf_build_f32(b, "llama.rope.scaling.factor", 4);
}

static const struct {
	const char *name;
	struct tiny_opts o;
} models[] = {
	{ "plain", { .seed = 1 } },
	{ "biases", { .biases = true, .seed = 2 } },
	{ "untied", { .untied = true, .seed = 3 } },
	{ "factors", { .rope_freqs = true, .seed = 4 } },
	{ "linear", { .extra = linear, .seed = 5 } },
	{ "wide", { .head_dim = 32, .heads = 6, .kv_heads = 3, .layers = 3, .seed = 6 } },
	{ "multi", { .kv_heads = 4, .seed = 7 } },
	{ "all", { .biases = true, .untied = true, .rope_freqs = true, .kv_heads = 1, .seed = 8 } },
};

#define NR_MODELS (sizeof(models) / sizeof(models[0]))

static void write_models(const char *dir)
{
	char path[512];
	size_t i, len;
	void *image;
	FILE *f;

	for (i = 0; i < NR_MODELS; i++) {
		image = tiny_model(models[i].o, &len);
		snprintf(path, sizeof(path), "%s/%zu-%s.gguf", dir, i, models[i].name);
		f = fopen(path, "we");
		if (!f || fwrite(image, 1, len, f) != len || fclose(f)) {
			perror(path);
			exit(1);
		}
		free(image);
	}
}

/* The reference's logits at the last prompt position and after each greedy token of its own. */
static float golden[NR_MODELS][STEPS * TINY_VOCAB];

static int read_golden(void **state)
{
	FILE *f = fopen(GOLDEN, "re");

	if (!f || fread(golden, sizeof(golden), 1, f) != 1 || fgetc(f) != EOF)
		return -1;
	return fclose(f);
}

static void variants_agree_with_the_reference(void **state)
{
	const struct sits_backend *be;
	int32_t prompt[PROMPT];
	size_t i, k, j, len;
	void *image;

	for (i = 0; i < PROMPT; i++)
		prompt[i] = (i * 37 + 11) % 256;
	for (k = 0; k < NR_MODELS; k++) {
		struct sits_diag diag = { 0 };
		struct sits_model *m;

		image = tiny_model(models[k].o, &len);
		if (sits_model_open(image, len, &m, &diag))
			fail_msg("%s: %s", models[k].name, diag.msg);
		for (i = 0; (be = sits_backend_at(i)); i++) {
			const struct sits_engine_opts o = { .isa = be->name, .threads = 2 };
			const struct sits_gen_params p = {
				.prompt = prompt, .nr_prompt = PROMPT, .max_tokens = STEPS, .ignore_eos = true,
				.sampling = { .top_p = 1, .repeat_penalty = 1 },
			};
			struct client c = { .keep_logits = true };
			struct sits_engine *e;
			float d, worst = 0;

			if (!be->usable())
				continue;
			if (sits_engine_create(m, &o, &e, &diag))
				fail_msg("%s", diag.msg);
			assert_int_equal(client_submit(&c, e, &p, NULL), 0);
			while (sits_engine_step(e) > 0)
				;
			assert_int_equal(c.nr_logits, STEPS);
			for (j = 0; j < STEPS * TINY_VOCAB; j++) {
				d = fabsf(c.logits[j] - golden[k][j]);
				worst = d > worst ? d : worst;
			}
			print_message("# %s, %s: at most %.2g off\n", models[k].name, be->name, (double)worst);
			assert_true(worst <= TOLERANCE);
			client_fini(&c);
			sits_engine_destroy(e);
		}
		sits_model_close(m);
		free(image);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(variants_agree_with_the_reference),
	};

	if (getenv("SITS_WRITE_TINY")) {
		write_models(getenv("SITS_WRITE_TINY"));
		return 0;
	}
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, read_golden, NULL);
}
