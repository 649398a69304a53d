// SPDX-License-Identifier: MIT
/*
 * config_json_fuzz.c - config.json, and the architectures behind it: with the tokenizer and weights of a small llama. What is read makes
 * keys that open.
 *
 * Input: the file.
 */
#include "daemon/model/hf_config.h"
#include "daemon/model/model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/json_mutate.h"
#include "tests/unit/model/hf_build.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	uint64_t rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	return jm_mutate(data, size, max_size, &rng);
}

static struct hf_build model;	/* without config.json; until the process ends */

static void make_model(void)
{
	hf_build_llama(&model);
	hf_build_end(&model);
	hf_build_remove(&model, "config.json");
}

static int read_alone(const char *text, size_t size)
{
	struct sits_diag diag = { "" };
	struct sits_meta meta = { 0 };
	struct sits_hf_config c;
	struct sits_gguf *g = NULL;
	uint8_t *image;
	size_t len;
	int ret = sits_hf_config_read(text, size, &meta, &c, &diag);

	FUZZ_CHECK(!sits_meta_end(&meta, &image, &len));
	if (ret) {
		fuzz_check_words(diag.msg, sizeof(diag.msg));
	} else {
		FUZZ_CHECK(c.arch && c.layers && c.vocab);
		FUZZ_CHECK(!sits_gguf_open(image, len, &g, &diag));
	}
	sits_gguf_close(g);
	free(image);
	free(c.factors);
	return ret;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sits_model_file files[HF_BUILD_MAX + 1];
	struct sits_diag diag = { "" };
	struct sits_model *m = NULL;
	char *text;

	if (!model.nr)
		make_model();
	text = malloc(size ? size : 1);
	FUZZ_CHECK(text);
	memcpy(text, data, size);
	if (!read_alone(text, size)) {
		memcpy(files, model.file, model.nr * sizeof(files[0]));
		files[model.nr] = (struct sits_model_file){ "config.json", text, size };
		if (sits_model_open_files(files, model.nr + 1, &m, &diag))
			fuzz_check_words(diag.msg, sizeof(diag.msg));
		else
			FUZZ_CHECK(m->hp.layers == 1 && m->hp.vocab == 8 && m->inv_freq);
	}
	sits_model_close(m);
	free(text);
	return 0;
}
