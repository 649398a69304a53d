// SPDX-License-Identifier: MIT
/*
 * node_dir_test.c - a directory of sealed files: what is served, and every way in which files of different seals can be put together.
 */
#include "daemon/node.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/log.h"
#include "daemon/manifest.h"
#include "daemon/model/model.h"
#include "sits/context.h"
#include "tests/unit/model/hf_build.h"

static char dir[] = "/tmp/sits-node-dir-XXXXXX";
static char key[64];
static volatile sig_atomic_t stop;
static struct sits_ctx *ctx;

static void path_of(char out[600], const char *model, const char *name)
{
	snprintf(out, 600, "%s/%s/%s", dir, model, name);
}

/* Seal bytes as @model/@name.sits (the manifest: without the suffix). */
static void seal(const char *model, const char *name, const void *p, size_t len, const char *id, uint64_t version,
		 struct sits_sealed_info *info)
{
	struct sits_seal_opts opts = { .size = sizeof(opts), .model_id = id, .model_version = version, .force = 1, .chunk_bytes = 4096,
				       .threads = 1 };
	char in[600], out[600], sealed[240];
	struct sits_key *k;
	FILE *f;

	snprintf(in, sizeof(in), "%s/plain", dir);
	f = fopen(in, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
	snprintf(sealed, sizeof(sealed), "%s%s", name, strcmp(name, SITS_MANIFEST_FILE) ? SITS_SEALED_SUFFIX : "");
	path_of(out, model, sealed);
	assert_int_equal(sits_key_open(ctx, key, &k), 0);
	assert_int_equal(sits_seal(ctx, in, out, k, &opts), 0);
	if (info)
		assert_int_equal(sits_sealed_inspect(ctx, out, k, info), 0);
	sits_key_close(k);
	unlink(in);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct sits_manifest_file *)a)->name, ((const struct sits_manifest_file *)b)->name);
}

/* The files of @b, and a manifest of them. */
static void seal_model(const char *model, const struct hf_build *b, const char *id, uint64_t version)
{
	struct sits_manifest_file file[HF_BUILD_MAX] = { 0 };
	struct sits_manifest m = { file, b->nr };
	struct sits_sealed_info info;
	char path[600], *text;
	size_t i, len;

	path_of(path, model, "");
	assert_int_equal(mkdir(path, 0700), 0);
	for (i = 0; i < b->nr; i++) {
		seal(model, b->file[i].name, b->file[i].data, b->file[i].len, id, version, &info);
		snprintf(file[i].name, sizeof(file[i].name), "%s", b->file[i].name);
		file[i].bytes = info.plain_bytes;
		memcpy(file[i].digest, info.digest, 32);
	}
	qsort(file, b->nr, sizeof(file[0]), by_name);
	assert_int_equal(sits_manifest_write(&m, &text, &len), 0);
	seal(model, SITS_MANIFEST_FILE, text, len, id, version, NULL);
	free(text);
}

static int setup(void **state)
{
	struct sits_open_opts opts = { .size = sizeof(opts), .provider = SITS_PROVIDER_USER, .run_dir = dir };

	sitsd_log_setup(0, 0);
	if (!mkdtemp(dir) || sits_open(&opts, &ctx))
		return -1;
	snprintf(key, sizeof(key), "file:%s/key", dir);
	return sits_key_create(ctx, key);
}

static int teardown(void **state)
{
	char cmd[64];

	sits_close(ctx);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

static void config(struct sits_config *c, const char *model)
{
	char path[600];

	path_of(path, model, "");
	path[strlen(path) - 1] = '\0';
	assert_int_equal(sits_config_init(c), 0);
	assert_int_equal(sits_config_set(c, "provider", "user", "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "run_dir", dir, "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "model.path", path, "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "model.key", key, "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "memory.require_locked", "false", "test", NULL, NULL), 0);
	path_of(path, "state", model);
	assert_int_equal(sits_config_set(c, "state_dir", path, "test", NULL, NULL), 0);
	path_of(path, "state", "");
	mkdir(path, 0700);
}

/* Load @model and expect @want; the words must have @words in them. */
static void expect(const char *model, int want, const char *words)
{
	struct sits_diag diag = { "" };
	struct sits_config c;
	struct sits_node n;
	int ret;

	config(&c, model);
	ret = sits_node_load(&n, &c, &stop, NULL, &diag);
	if (ret != want || !strstr(diag.msg, words))
		fail_msg("got %d '%s', expected %d '%s'", ret, diag.msg, want, words);
	if (want)
		assert_null(n.model);
	sits_node_fini(&n);
	sits_config_fini(&c);
}

static void build(struct hf_build *b)
{
	hf_build_llama(b);
	hf_build_end(b);
}

static void a_directory_is_served(void **state)
{
	struct sits_diag diag = { "" };
	struct sits_region_info r;
	struct sits_config c;
	struct sits_node n;
	struct hf_build b;
	char path[600];
	size_t i, bytes = 0;
	FILE *f;

	build(&b);
	seal_model("good", &b, "tiny", 3);
	for (i = 0; i < b.nr; i++)
		bytes += b.file[i].len;
	hf_build_fini(&b);
	/* What the manifest does not name is not looked at. */
	path_of(path, "good", "tokenizer_config.json.sits");
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("no sealed file", f);
	fclose(f);
	config(&c, "good");
	if (sits_node_load(&n, &c, &stop, NULL, &diag))
		fail_msg("%s", diag.msg);
	assert_string_equal(n.sealed.model_id, "tiny");
	assert_int_equal(n.sealed.model_version, 3);
	assert_int_equal(n.sealed.plain_bytes, bytes);
	assert_int_equal(n.context, 64);
	assert_int_equal(n.model->hp.vocab, 8);
	assert_true(n.model->hf);
	/* Configuration and tokenizer are read, their regions gone; the weights are where they were loaded. */
	assert_int_equal(n.nr_regions, 1);
	assert_true((const uint8_t *)n.model->tok_embd.data > (const uint8_t *)sits_region_data(n.region[0]));
	assert_true((const uint8_t *)n.model->tok_embd.data < (const uint8_t *)sits_region_data(n.region[0]) + sits_region_len(n.region[0]));
	sits_node_region_info(&n, &r);
	assert_int_equal(r.sealed, 1);
	assert_int_equal(r.nodump, 1);
	sits_node_fini(&n);
	sits_config_fini(&c);
	path_of(path, "state", "good/model-versions.json");
	assert_int_equal(access(path, F_OK), 0);
}

static void a_directory_without_a_manifest_is_refused(void **state)
{
	struct hf_build b;
	char path[600];

	build(&b);
	seal_model("bare", &b, "tiny", 1);
	path_of(path, "bare", SITS_MANIFEST_FILE);
	assert_int_equal(unlink(path), 0);
	expect("bare", -ENOENT, "manifest.sits: No such file or directory; 'sits seal' makes it");
	/* One that is something else. */
	seal("bare", SITS_MANIFEST_FILE, "no manifest\n", 12, "tiny", 1, NULL);
	expect("bare", -EBADMSG, "manifest.sits: not the manifest");
	hf_build_fini(&b);
}

static void a_file_that_is_missing_is_named(void **state)
{
	struct hf_build b;
	char path[600];

	build(&b);
	seal_model("gap", &b, "tiny", 1);
	path_of(path, "gap", "tokenizer.json.sits");
	assert_int_equal(unlink(path), 0);
	expect("gap", -ENOENT, "gap/tokenizer.json.sits: No such file");
	hf_build_fini(&b);
}

static void files_of_two_models_are_not_mixed(void **state)
{
	struct hf_build b;

	build(&b);
	seal_model("mixed", &b, "tiny", 2);
	seal("mixed", "tokenizer.json", b.file[1].data, b.file[1].len, "tiny", 1, NULL);
	expect("mixed", -EBADMSG, "tokenizer.json.sits: is of model 'tiny' version 1, but the directory of 'tiny' version 2");
	seal("mixed", "tokenizer.json", b.file[1].data, b.file[1].len, "other", 2, NULL);
	expect("mixed", -EBADMSG, "is of model 'other' version 2");
	/* The same id, version and bytes, in a seal of its own: it is not the one that was sealed with the others. */
	seal("mixed", "tokenizer.json", b.file[1].data, b.file[1].len, "tiny", 2, NULL);
	expect("mixed", -EBADMSG, "tokenizer.json.sits: has another digest than manifest.sits says");
	seal("mixed", "tokenizer.json", b.file[1].data, b.file[1].len - 1, "tiny", 2, NULL);
	expect("mixed", -EBADMSG, "bytes, but manifest.sits says");
	hf_build_fini(&b);
}

/* Two files of one seal change their names: each is intact, and at the wrong place. */
static void swapped_files_are_refused(void **state)
{
	char a[600], b_path[600], t[600];
	struct hf_build b;

	build(&b);
	seal_model("swapped", &b, "tiny", 1);
	path_of(a, "swapped", "config.json.sits");
	path_of(b_path, "swapped", "tokenizer.json.sits");
	path_of(t, "swapped", "t");
	assert_int_equal(rename(a, t) | rename(b_path, a) | rename(t, b_path), 0);
	expect("swapped", -EBADMSG, "manifest.sits says");
	hf_build_fini(&b);
}

static void an_older_directory_is_refused_once_a_newer_was_seen(void **state)
{
	struct sits_diag diag = { "" };
	struct sits_config c;
	struct sits_node n;
	struct hf_build b;
	char path[600];

	build(&b);
	seal_model("v5", &b, "rolled", 5);
	seal_model("v4", &b, "rolled", 4);
	expect("v5", 0, "");
	config(&c, "v4");
	path_of(path, "state", "v5");
	assert_int_equal(sits_config_set(&c, "state_dir", path, "test", NULL, NULL), 0);
	assert_int_equal(sits_node_load(&n, &c, &stop, NULL, &diag), -EKEYEXPIRED);
	assert_non_null(strstr(diag.msg, "model version 4 is older than 5"));
	sits_node_fini(&n);
	sits_config_fini(&c);
	hf_build_fini(&b);
}

static void a_damaged_file_is_named(void **state)
{
	struct hf_build b;
	char path[600];
	FILE *f;

	build(&b);
	seal_model("damaged", &b, "tiny", 1);
	path_of(path, "damaged", "model.safetensors.sits");
	f = fopen(path, "r+");
	assert_non_null(f);
	fseek(f, -1, SEEK_END);
	fputc(fgetc(f) ^ 1, f);
	fclose(f);
	expect("damaged", -EBADMSG, "damaged");
	hf_build_fini(&b);
}

static void a_model_that_can_not_be_opened_is_not_recorded(void **state)
{
	struct hf_build b;
	char path[600];

	build(&b);
	hf_build_set(&b, "config.json", "{\"model_type\":\"unheard\"}");
	seal_model("unheard", &b, "tiny", 1);
	expect("unheard", -EPROTONOSUPPORT, "model_type \"unheard\" is not known here");
	path_of(path, "state", "unheard/model-versions.json");
	assert_int_equal(access(path, F_OK), -1);
	hf_build_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_is_served),
		cmocka_unit_test(a_directory_without_a_manifest_is_refused),
		cmocka_unit_test(a_file_that_is_missing_is_named),
		cmocka_unit_test(files_of_two_models_are_not_mixed),
		cmocka_unit_test(swapped_files_are_refused),
		cmocka_unit_test(an_older_directory_is_refused_once_a_newer_was_seen),
		cmocka_unit_test(a_damaged_file_is_named),
		cmocka_unit_test(a_model_that_can_not_be_opened_is_not_recorded),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
