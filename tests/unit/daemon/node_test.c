// SPDX-License-Identifier: MIT
/*
 * node_test.c - what the daemon loads, and everything it must refuse to, with words that name the thing.
 */
#include "daemon/node.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/log.h"
#include "daemon/model/model.h"
#include "sits/context.h"
#include "tests/unit/engine/tiny_model.h"

static char dir[] = "/tmp/sits-node-XXXXXX";
static volatile sig_atomic_t stop;

static const char *in_dir(const char *name)
{
	static char path[4][128];
	static unsigned int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[0]), "%s/%s", dir, name);
	return path[turn];
}

static void write_file(const char *name, const void *bytes, size_t len)
{
	FILE *f = fopen(in_dir(name), "w");

	if (!f || fwrite(bytes, 1, len, f) != len || fclose(f))
		fail_msg("%s can't be written", name);
}

static const char *key_spec(const char *name)
{
	static char spec[160];

	snprintf(spec, sizeof(spec), "file:%s", in_dir(name));
	return spec;
}

static void seal(struct sits_ctx *ctx, const char *in, const char *out, const char *key_name, const char *id, uint64_t version)
{
	struct sits_seal_opts opts = { .size = sizeof(opts), .model_id = id, .model_version = version, .force = 1,
				       .chunk_bytes = 4096, .threads = 1 };
	struct sits_key *key;

	assert_int_equal(sits_key_open(ctx, key_spec(key_name), &key), 0);
	assert_int_equal(sits_seal(ctx, in_dir(in), in_dir(out), key, &opts), 0);
	sits_key_close(key);
}

static int setup(void **state)
{
	struct sits_open_opts opts = { .size = sizeof(opts), .provider = SITS_PROVIDER_USER, .run_dir = dir };
	struct sits_ctx *ctx;
	size_t len;
	void *image;

	sitsd_log_setup(0, 0);
	if (!mkdtemp(dir) || sits_open(&opts, &ctx))
		return -1;
	image = tiny_model((struct tiny_opts){ .seed = 1 }, &len);
	write_file("tiny.gguf", image, len);
	free(image);
	write_file("text", "this is no model", 16);
	if (sits_key_create(ctx, key_spec("key")) || sits_key_create(ctx, key_spec("other")))
		return -1;
	seal(ctx, "tiny.gguf", "v3.sits", "key", "tiny", 3);
	seal(ctx, "tiny.gguf", "v2.sits", "key", "tiny", 2);
	seal(ctx, "tiny.gguf", "other-id.sits", "key", "huge", 1);
	seal(ctx, "text", "text.sits", "key", "text", 1);
	sits_close(ctx);
	return 0;
}

static int teardown(void **state)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* A configuration of @model under @key with a state directory of its own by name. */
static void config(struct sits_config *c, const char *model, const char *key, const char *state)
{
	assert_int_equal(sits_config_init(c), 0);
	assert_int_equal(sits_config_set(c, "provider", "user", "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "run_dir", dir, "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "state_dir", in_dir(state), "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "model.path", in_dir(model), "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "model.key", key_spec(key), "test", NULL, NULL), 0);
	assert_int_equal(sits_config_set(c, "memory.require_locked", "false", "test", NULL, NULL), 0);
}

/* Load and expect @want; the words must have @words in them. Leaves nothing behind. */
static void expect(const struct sits_config *c, int want, const char *words)
{
	struct sits_diag diag = { "" };
	struct sits_node n;
	int ret = sits_node_load(&n, c, &stop, NULL, &diag);

	if (ret != want || (words && !strstr(diag.msg, words)))
		fail_msg("got %d '%s', expected %d '%s'", ret, diag.msg, want, words ? words : "");
	sits_node_fini(&n);
}

static void good_model_is_loaded_and_recorded(void **state)
{
	struct sits_diag diag = { "" };
	struct sits_region_info info;
	struct sits_config c;
	struct sits_node n;

	config(&c, "v3.sits", "key", "s1");
	if (sits_node_load(&n, &c, &stop, NULL, &diag))
		fail_msg("%s", diag.msg);
	assert_string_equal(n.sealed.model_id, "tiny");
	assert_int_equal(n.sealed.model_version, 3);
	assert_int_equal(n.context, 512);
	assert_int_equal(n.model->hp.vocab, TINY_VOCAB);
	assert_int_equal(sits_region_info(n.region[0], &info), 0);
	assert_int_equal(info.sealed, 1);
	assert_int_equal(info.nodump, 1);
	sits_node_fini(&n);
	assert_int_equal(access(in_dir("s1/model-versions.json"), F_OK), 0);
	sits_config_fini(&c);
}

static void older_version_is_refused_once_a_newer_was_seen(void **state)
{
	struct sits_config c;

	config(&c, "v2.sits", "key", "s2");
	expect(&c, 0, NULL);
	sits_config_fini(&c);
	config(&c, "v3.sits", "key", "s2");
	expect(&c, 0, NULL);
	sits_config_fini(&c);
	config(&c, "v2.sits", "key", "s2");
	expect(&c, -EKEYEXPIRED, "model version 2 is older than 3");
	sits_config_fini(&c);
	/* Another model is another record. */
	config(&c, "other-id.sits", "key", "s2");
	expect(&c, 0, NULL);
	sits_config_fini(&c);
}

static void configured_minimum_counts_too(void **state)
{
	struct sits_config c;

	config(&c, "v3.sits", "key", "s3");
	c.model.min_version = 4;
	expect(&c, -EKEYEXPIRED, "model.min_version 4");
	assert_int_equal(access(in_dir("s3"), F_OK), -1);
	sits_config_fini(&c);
}

static void another_model_id_is_refused(void **state)
{
	struct sits_config c;

	config(&c, "other-id.sits", "key", "s4");
	assert_int_equal(sits_config_set(&c, "model.id", "tiny", "test", NULL, NULL), 0);
	expect(&c, -EBADMSG, "holds model 'huge'; model.id wants 'tiny'");
	sits_config_fini(&c);
}

static void wrong_key_is_named(void **state)
{
	struct sits_config c;

	config(&c, "v3.sits", "other", "s5");
	expect(&c, -ENOKEY, "sealed under another key");
	sits_config_fini(&c);
	config(&c, "v3.sits", "missing", "s5");
	expect(&c, -ENOENT, "sits key new");
	sits_config_fini(&c);
	config(&c, "v3.sits", "key", "s5");
	assert_int_equal(chmod(in_dir("key"), 0644), 0);
	expect(&c, -EACCES, "mode 0600");
	assert_int_equal(chmod(in_dir("key"), 0600), 0);
	sits_config_fini(&c);
}

/* One bit in the header, in the tags, at the file's end; the file cut; no sealed file at all. */
static void damaged_files_are_refused(void **state)
{
	static const struct { long at, keep; } damage[] = { { 100, 0 }, { 4100, 0 }, { -1, 0 }, { 0, 5000 }, { 0, 10 } };
	struct sits_config c;
	uint8_t *bytes;
	long len;
	FILE *f = fopen(in_dir("v3.sits"), "r");

	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	len = ftell(f);
	rewind(f);
	bytes = malloc((size_t)len);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, (size_t)len, f), len);
	fclose(f);
	config(&c, "bad.sits", "key", "s6");
	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
		long at = damage[i].at < 0 ? len + damage[i].at : damage[i].at;

		if (!damage[i].keep)
			bytes[at] ^= 0x10;
		write_file("bad.sits", bytes, damage[i].keep ? (size_t)damage[i].keep : (size_t)len);
		expect(&c, -EBADMSG, "bad.sits");
		if (!damage[i].keep)
			bytes[at] ^= 0x10;
	}
	write_file("bad.sits", "GGUF", 4);
	expect(&c, -EBADMSG, "bad.sits");
	sits_config_fini(&c);
	assert_int_equal(access(in_dir("s6"), F_OK), -1);
	free(bytes);
}

static void sealed_text_is_no_model(void **state)
{
	struct sits_config c;

	config(&c, "text.sits", "key", "s7");
	expect(&c, -EBADMSG, NULL);
	assert_int_equal(access(in_dir("s7"), F_OK), -1);
	sits_config_fini(&c);
	config(&c, "missing.sits", "key", "s7");
	expect(&c, -ENOENT, "missing.sits");
	sits_config_fini(&c);
}

static void context_beyond_the_models_is_refused(void **state)
{
	struct sits_config c;

	config(&c, "v3.sits", "key", "s8");
	c.engine.context = 513;
	expect(&c, -EINVAL, "engine.context: 513 is more than the model's own, 512");
	c.engine.context = 100;
	expect(&c, 0, NULL);
	sits_config_fini(&c);
}

static void damaged_record_stops_the_load(void **state)
{
	struct sits_config c;

	assert_int_equal(mkdir(in_dir("s9"), 0700), 0);
	write_file("s9/model-versions.json", "{}x", 3);
	config(&c, "v3.sits", "key", "s9");
	expect(&c, -EBADMSG, "model-versions.json");
	sits_config_fini(&c);
}

static void told_to_stop_it_gives_up(void **state)
{
	struct sits_config c;

	config(&c, "v3.sits", "key", "s10");
	stop = 1;
	expect(&c, -ECANCELED, "told to stop");
	stop = 0;
	sits_config_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_model_is_loaded_and_recorded),
		cmocka_unit_test(older_version_is_refused_once_a_newer_was_seen),
		cmocka_unit_test(configured_minimum_counts_too),
		cmocka_unit_test(another_model_id_is_refused),
		cmocka_unit_test(wrong_key_is_named),
		cmocka_unit_test(damaged_files_are_refused),
		cmocka_unit_test(sealed_text_is_no_model),
		cmocka_unit_test(context_beyond_the_models_is_refused),
		cmocka_unit_test(damaged_record_stops_the_load),
		cmocka_unit_test(told_to_stop_it_gives_up),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
