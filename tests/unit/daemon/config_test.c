// SPDX-License-Identifier: MIT
/*
 * config_test.c - sitsd's configuration: what is taken, and that each mistake is named with file, line and key.
 */
#include "daemon/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sits/context.h"

#define REPORTS_MAX 16

/* Calls for memory from now on until one fails; those behind it fail too where @from_there is set. -1: none does. */
static struct {
	long left;
	bool from_there, failed;
} memory = { .left = -1 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_FAILS false	/* they have functions of their own */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_FAILS false
#endif
#endif
#ifndef MEMORY_FAILS
#define MEMORY_FAILS true

/* In the place of the C library's, for the libraries too. */
__attribute__((visibility("default"))) void *malloc(size_t n);
__attribute__((visibility("default"))) void *calloc(size_t nr, size_t n);
__attribute__((visibility("default"))) void *realloc(void *p, size_t n);
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t nr, size_t n);
void *__libc_realloc(void *p, size_t n);

static bool fails(void)
{
	if (memory.left < 0 || memory.left--)
		return false;
	memory.failed = true;
	if (memory.from_there)
		memory.left = 0;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t nr, size_t n)
{
	return fails() ? NULL : __libc_calloc(nr, n);
}

void *realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}
#endif

struct heard {
	char line[REPORTS_MAX][1024];
	size_t nr;
};

static void hear(void *arg, const char *line)
{
	struct heard *h = arg;

	assert_true(h->nr < REPORTS_MAX);
	snprintf(h->line[h->nr++], sizeof(h->line[0]), "%s", line);
}

static int load(struct sits_config *c, const char *text, struct heard *h)
{
	memset(h, 0, sizeof(*h));
	assert_int_equal(sits_config_init(c), 0);
	return sits_config_load_text(c, text, strlen(text), "t.yaml", hear, h);
}

static void defaults_stand(void **state)
{
	struct sits_config c;

	assert_int_equal(sits_config_init(&c), 0);
	assert_int_equal(c.provider, SITS_PROVIDER_AUTO);
	assert_string_equal(c.run_dir, "/run/sits");
	assert_string_equal(c.queue.name, "infer");
	assert_int_equal(c.queue.mode, 0660);
	assert_int_equal(c.drain_timeout_ms, 30000);
	assert_int_equal(c.memory.require_locked, 1);
	assert_int_equal(c.engine.threads, 0);
	assert_null(c.model.path);
	sits_config_fini(&c);
}

static void every_kind_of_value_is_taken(void **state)
{
	static const char text[] =
		"# comment\n"
		"provider: user\n"
		"run_dir: /tmp/x y\n"
		"drain_timeout: 1500ms\n"
		"memory: {require_locked: no, require_huge: on}\n"
		"queue:\n  name: \"q.1\"\n  depth: 16\n  per_client: 4\n  mode: 0600\n  chunk_backlog: 64K\n"
		"model:\n  path: /m/ü.sits\n  key: file:/k\n  min_version: 18446744073709551615\n"
		"engine:\n  threads: 2\n  kv_bytes: 1 GiB\n  context: auto\n  isa: ref\n"
		"limits:\n  max_tokens: 100\n"
		"log: {level: debug, format: json}\n";
	struct sits_config c;
	struct heard h;

	assert_int_equal(load(&c, text, &h), 0);
	assert_int_equal(h.nr, 0);
	assert_int_equal(c.provider, SITS_PROVIDER_USER);
	assert_string_equal(c.run_dir, "/tmp/x y");
	assert_int_equal(c.drain_timeout_ms, 1500);
	assert_int_equal(c.memory.require_locked, 0);
	assert_int_equal(c.memory.require_huge, 1);
	assert_string_equal(c.queue.name, "q.1");
	assert_int_equal(c.queue.depth, 16);
	assert_int_equal(c.queue.mode, 0600);
	assert_int_equal(c.queue.chunk_backlog, 65536);
	assert_string_equal(c.model.path, "/m/ü.sits");
	assert_true(c.model.min_version == UINT64_MAX);
	assert_int_equal(c.engine.threads, 2);
	assert_int_equal(c.engine.context, 0);
	assert_int_equal(c.engine.kv_bytes, 1 << 30);
	assert_string_equal(c.engine.isa, "ref");
	assert_int_equal(c.limits.max_tokens, 100);
	assert_int_equal(c.log.level, SITS_LOG_DEBUG);
	assert_int_equal(c.log.format, SITS_LOG_FORMAT_JSON);
	assert_int_equal(sits_config_check(&c, "t.yaml", hear, &h), 0);
	sits_config_fini(&c);
}

/* What is wrong, and what the message must have: the place first, then words. */
static const struct {
	const char *text, *place, *words;
} wrong[] = {
	{ "queu:\n  depth: 1\n", "t.yaml:1: queu: ", "unknown key; known here: provider, run_dir" },
	{ "provider: user\n\n\nqueue:\n  name: a\n\n  # note\n  dept: 3\n", "t.yaml:8: queue.dept: ", "name, depth, per_client" },
	{ "model: {path: /a, file: /b}\n", "t.yaml:1: model.file: ", "unknown key" },
	{ "run_dir: /a\nrun_dir: /b\n", "t.yaml:2: run_dir: ", "given twice; the first is on line 1" },
	{ "queue:\n  depth: 1\nlog: {level: info}\nqueue:\n  depth: 2\n", "t.yaml:4: queue: ", "given twice" },
	{ "queue:\n  depth: 4\n\n\n  depth: 5\n", "t.yaml:5: queue.depth: ", "given twice; the first is on line 2" },
	{ "provider: cuda\n", "t.yaml:1: provider: ", "'cuda' is not one of: auto, kernel, user" },
	{ "\nmemory:\n  require_locked: maybe\n", "t.yaml:3: memory.require_locked: ", "true, false" },
	{ "queue:\n  depth: 10K\n", "t.yaml:2: queue.depth: ", "'10K' is not a whole number" },
	{ "queue:\n  depth: -1\n", "t.yaml:2: queue.depth: ", "not a whole number" },
	{ "queue:\n  depth: 0\n", "t.yaml:2: queue.depth: ", "out of range: 1 to 65536 requests" },
	{ "queue:\n  depth: 65537\n", "t.yaml:2: queue.depth: ", "out of range" },
	{ "queue:\n  depth: 99999999999999999999999\n", "t.yaml:2: queue.depth: ", "out of range" },
	{ "queue:\n  depth: 1.5\n", "t.yaml:2: queue.depth: ", "not a whole number" },
	{ "queue:\n  depth:\n", "t.yaml:2: queue.depth: ", "'' is not a whole number" },
	{ "queue:\n  mode: 0888\n", "t.yaml:2: queue.mode: ", "octal" },
	{ "queue:\n  mode: 1777\n", "t.yaml:2: queue.mode: ", "octal" },
	{ "queue:\n  name: ../x\n", "t.yaml:2: queue.name: ", "is not a name" },
	{ "queue:\n  name: .x\n", "t.yaml:2: queue.name: ", "is not a name" },
	{ "queue:\n  name: abcdefghijklmnopqrstuvwxyzabcdef\n", "t.yaml:2: queue.name: ", "1 to 31" },
	{ "queue:\n  chunk_backlog: 64k\n", "t.yaml:2: queue.chunk_backlog: ", "such as 65536, 64K" },
	{ "queue:\n  chunk_backlog: 17179869184T\n", "t.yaml:2: queue.chunk_backlog: ", "out of range: 4K to 1G" },
	{ "drain_timeout: soon\n", "t.yaml:1: drain_timeout: ", "a time, such as 30s" },
	{ "drain_timeout: 25h\n", "t.yaml:1: drain_timeout: ", "out of range" },
	{ "engine:\n  threads: all\n", "t.yaml:2: engine.threads: ", "nor 'auto'" },
	{ "engine:\n  isa: sse9\n", "t.yaml:2: engine.isa: ", "'sse9' is not one of: auto, " },
	{ "engine:\n  isa: AVX2\n", "t.yaml:2: engine.isa: ", "'AVX2' is not one of: auto, " },
	{ "engine:\n  threads: 257\n", "t.yaml:2: engine.threads: ", "out of range: 1 to 256 threads, or 'auto'" },
	{ "model:\n  load_threads: 257\n", "t.yaml:2: model.load_threads: ", "out of range: 1 to 256 threads, or 'auto'" },
	{ "engine:\n  context: 1\n", "t.yaml:2: engine.context: ", "out of range: 2 to 16777216 tokens, or 'auto'" },
	{ "model:\n  path: \"\"\n", "t.yaml:2: model.path: ", "must not be empty" },
	{ "model:\n  path: [a, b]\n", "t.yaml:2: model.path: ", "takes one value" },
	{ "model:\n  path: {a: b}\n", "t.yaml:2: model.path: ", "takes one value" },
	{ "run_dir: /a\nmodel: /m\n", "t.yaml:2: model: ", "is a section" },
	{ "model:\nrun_dir: /a\n", "t.yaml:1: model: ", "is a section" },
	{ "- a\n", "t.yaml: ", "must be a mapping" },
	{ "run_dir: /a\n ? [a]\n : b\n", "t.yaml:", "" },
	{ "? [a]\n: b\n", "t.yaml:1: ", "a key must be a single word" },
	{ "run_dir: \"a\nlog: {level: info}\n", "t.yaml:3: ", "not valid YAML: found unexpected end of stream" },
	{ "log:\n\tlevel: info\n", "t.yaml:2: ", "not valid YAML" },
	{ "run_dir: &x /a\nstate_dir: *x\n", "t.yaml:2: ", "aliases" },
	{ "run_dir: /a\n---\nrun_dir: /b\n", "t.yaml:2: ", "second YAML document" },
	{ "run_dir: \"a\\0b\"\n", "t.yaml:1: ", "NUL" },
	{ "run_dir: a\xff\n", "t.yaml:1: ", "not valid YAML" },
	{ "log: {level: chatty}\n", "t.yaml:1: log.level: ", "error, warning, info, debug" },
	{ "log: {format: xml}\n", "t.yaml:1: log.format: ", "text, json" },
	{ "limits: {max_tokens: many}\n", "t.yaml:1: limits.max_tokens: ", "whole number" },
};

static void each_mistake_is_named(void **state)
{
	struct sits_config c;
	struct heard h;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int ret = load(&c, wrong[i].text, &h);

		if (ret != -EINVAL || h.nr != 1 || strncmp(h.line[0], wrong[i].place, strlen(wrong[i].place)) ||
		    !strstr(h.line[0], wrong[i].words))
			fail_msg("case %zu: %s-> %d, %zu reports, '%s'; expected '%s' ... '%s'", i, wrong[i].text, ret, h.nr,
				 h.line[0], wrong[i].place, wrong[i].words);
		sits_config_fini(&c);
	}
}

static void every_wrong_value_is_reported_in_one_go(void **state)
{
	struct sits_config c;
	struct heard h;

	assert_int_equal(load(&c, "provider: x\nqueue:\n  depth: y\nlog:\n  level: z\n", &h), -EINVAL);
	assert_int_equal(h.nr, 3);
	assert_non_null(strstr(h.line[0], "t.yaml:1: provider"));
	assert_non_null(strstr(h.line[1], "t.yaml:3: queue.depth"));
	assert_non_null(strstr(h.line[2], "t.yaml:5: log.level"));
	sits_config_fini(&c);
}

static void empty_file_is_every_default(void **state)
{
	struct sits_config c;
	struct heard h;

	assert_int_equal(load(&c, "", &h), 0);
	assert_string_equal(c.queue.name, "infer");
	assert_int_equal(sits_config_check(&c, "t.yaml", hear, &h), -EINVAL);
	assert_int_equal(h.nr, 2);
	assert_non_null(strstr(h.line[0], "t.yaml: model.path: is required"));
	assert_non_null(strstr(h.line[1], "t.yaml: model.key: is required"));
	sits_config_fini(&c);
}

static void key_bytes_in_place_of_a_spec_are_not_repeated(void **state)
{
	struct sits_config c;
	struct heard h;

	assert_int_equal(load(&c, "model:\n  path: /m\n  key: 00112233445566778899aabbccddeeff\n", &h), 0);
	assert_int_equal(sits_config_check(&c, "t.yaml", hear, &h), -EINVAL);
	assert_non_null(strstr(h.line[0], "model.key: must be file:PATH"));
	assert_null(strstr(h.line[0], "00112233"));
	sits_config_fini(&c);
}

/* A message may go to a terminal, and quotes the file. */
static void control_characters_are_not_repeated(void **state)
{
	static const char *const text[] = {
		"provider: \"\\x1b[31m\"\n", "queue: {name: \"a\\x07\"}\n", "\"\\x1b]0;x\\x07\": 1\n", "drain_timeout: \"5\\x7f\\n\"\n",
	};
	struct sits_config c;
	struct heard h;

	for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
		assert_int_not_equal(load(&c, text[i], &h), 0);
		assert_int_equal(h.nr, 1);
		for (const char *p = h.line[0]; *p; p++)
			assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
		sits_config_fini(&c);
	}
}

static void contradictions_are_found(void **state)
{
	struct sits_config c;
	struct heard h;

	assert_int_equal(load(&c, "queue: {depth: 4, per_client: 5}\nmodel: {path: /m, key: keyring:k}\n", &h), 0);
	assert_int_equal(sits_config_check(&c, "t.yaml", hear, &h), -EINVAL);
	assert_non_null(strstr(h.line[0], "queue.per_client: 5 is more than queue.depth, 4"));
	sits_config_fini(&c);
	assert_int_equal(load(&c, "engine: {max_seqs: 300}\nmodel: {path: /m, key: keyring:k}\n", &h), 0);
	assert_int_equal(sits_config_check(&c, "t.yaml", hear, &h), -EINVAL);
	assert_non_null(strstr(h.line[0], "engine.token_budget: 256 is less than engine.max_seqs, 300"));
	sits_config_fini(&c);
	assert_int_equal(load(&c, "engine: {kv_keep: 63}\nmodel: {path: /m, key: keyring:k}\n", &h), 0);
	assert_int_equal(sits_config_check(&c, "t.yaml", hear, &h), -EINVAL);
	assert_non_null(strstr(h.line[0], "engine.kv_keep: 63 is less than 64 tokens"));
	sits_config_fini(&c);
	assert_int_equal(load(&c, "engine: {kv_keep: 64}\nmodel: {path: /m, key: keyring:k}\n", &h), 0);
	assert_int_equal(sits_config_check(&c, "t.yaml", hear, &h), 0);
	assert_int_equal(c.engine.kv_keep, 64);
	sits_config_fini(&c);
}

static void options_override(void **state)
{
	struct sits_config c;
	struct heard h;

	assert_int_equal(load(&c, "engine:\n  threads: 2\n", &h), 0);
	assert_int_equal(sits_config_set(&c, "engine.threads", "7", "--threads", hear, &h), 0);
	assert_int_equal(c.engine.threads, 7);
	assert_int_equal(sits_config_set(&c, "engine.threads", "x", "--threads", hear, &h), -EINVAL);
	assert_non_null(strstr(h.line[0], "--threads: engine.threads: 'x' is not"));
	assert_int_equal(sits_config_set(&c, "engine.cores", "1", "--set", hear, &h), -EINVAL);
	assert_non_null(strstr(h.line[1], "--set: engine.cores: unknown key"));
	assert_int_equal(c.engine.threads, 7);
	sits_config_fini(&c);
}

static void printed_form_loads_to_the_same(void **state)
{
	struct sits_config a, b;
	struct heard h;
	char *text = NULL;
	size_t len = 0;
	FILE *f;

	assert_int_equal(load(&a, "run_dir: \"/tmp/a \\\"b\\\\ c: d #e\"\nmodel: {path: \"- x\", key: \"file:/k\", id: \"yes ü\"}\n"
			      "queue: {chunk_backlog: 5000, mode: 0640}\ndrain_timeout: 1234ms\n", &h), 0);
	f = open_memstream(&text, &len);
	assert_non_null(f);
	sits_config_print(&a, f);
	fclose(f);
	assert_int_equal(sits_config_init(&b), 0);
	assert_int_equal(sits_config_load_text(&b, text, len, "printed", hear, &h), 0);
	assert_int_equal(h.nr, 0);
	assert_string_equal(a.run_dir, b.run_dir);
	assert_string_equal(a.model.path, b.model.path);
	assert_string_equal(a.model.id, b.model.id);
	assert_int_equal(a.queue.chunk_backlog, b.queue.chunk_backlog);
	assert_int_equal(a.queue.mode, b.queue.mode);
	assert_int_equal(a.drain_timeout_ms, b.drain_timeout_ms);
	free(text);
	sits_config_fini(&a);
	sits_config_fini(&b);
}

struct changes {
	char text[512];
};

static void note_change(void *arg, const char *key, bool reloadable, const char *from, const char *to)
{
	struct changes *ch = arg;
	size_t n = strlen(ch->text);

	snprintf(ch->text + n, sizeof(ch->text) - n, "%s %s>%s%s;", key, from, to, reloadable ? "" : " restart");
}

static void reload_takes_what_it_may(void **state)
{
	struct changes ch = { "" };
	struct sits_config a, b;
	struct heard h;

	assert_int_equal(load(&a, "engine: {threads: 2}\nlog: {level: info}\n", &h), 0);
	assert_int_equal(load(&b, "engine: {threads: 4}\nlog: {level: debug}\nlimits: {max_tokens: 9}\n", &h), 0);
	sits_config_diff(&a, &b, note_change, &ch);
	assert_string_equal(ch.text, "engine.threads 2>4 restart;limits.max_tokens auto>9;log.level info>debug;");
	sits_config_apply_reloadable(&a, &b);
	assert_int_equal(a.engine.threads, 2);
	assert_int_equal(a.limits.max_tokens, 9);
	assert_int_equal(a.log.level, SITS_LOG_DEBUG);
	sits_config_fini(&a);
	sits_config_fini(&b);
}

static void files_that_cannot_be_read_are_named(void **state)
{
	static const char *const path[] = { "/nonexistent/sitsd.yaml", "/dev/null", "/" };
	static const int err[] = { -ENOENT, -EINVAL, -EISDIR };
	struct sits_config c;
	struct heard h = { 0 };

	assert_int_equal(sits_config_init(&c), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(sits_config_load_file(&c, path[i], hear, &h), err[i]);
		assert_int_equal(h.nr, i + 1);
		assert_int_equal(strncmp(h.line[i], path[i], strlen(path[i])), 0);
	}
	sits_config_fini(&c);
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text;
	size_t n;

	if (!f)
		fail_msg("%s: cannot be opened; tests run from the repository root", path);
	text = malloc(1 << 20);
	assert_non_null(text);
	n = fread(text, 1, (1 << 20) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static void shipped_file_and_manual_have_every_key(void **state)
{
	char *shipped = slurp("packaging/sitsd.yaml"), *manual = slurp("man/sitsd.yaml.5");
	struct sits_config c, d;
	struct heard h = { 0 };
	struct changes ch = { "" };
	char key[64], entry[80];

	for (size_t i = 0; sits_config_key_at(i, key, sizeof(key)); i++) {
		snprintf(entry, sizeof(entry), ".B %s\n", key);
		if (!strstr(manual, entry))
			fail_msg("man/sitsd.yaml.5 has no entry '%s'", key);
		snprintf(entry, sizeof(entry), "%s:", strchr(key, '.') ? strchr(key, '.') + 1 : key);
		if (!strstr(shipped, entry))
			fail_msg("packaging/sitsd.yaml does not mention '%s'", key);
	}
	assert_int_equal(sits_config_init(&c), 0);
	assert_int_equal(sits_config_init(&d), 0);
	if (sits_config_load_file(&c, "packaging/sitsd.yaml", hear, &h))
		fail_msg("%s", h.line[0]);
	assert_int_equal(sits_config_check(&c, "packaging/sitsd.yaml", hear, &h), 0);
	/* The file shows the defaults: it differs from them in what it must name alone. */
	sits_config_diff(&d, &c, note_change, &ch);
	assert_string_equal(ch.text, "model.path >/var/lib/sits/model.sits restart;model.key >file:/etc/sits/key restart;");
	sits_config_fini(&c);
	sits_config_fini(&d);
	free(shipped);
	free(manual);
}

/* Whichever of its calls for memory fails, it is said that this is the reason, once, and nothing else. */
static void want_of_memory_is_named(void **state)
{
	static const char text[] = "provider: user\nmodel:\n  path: /m\n  key: 'file:/k'\nqueue:\n  depth: 7\n";
	struct sits_config c;
	struct heard h;
	int ret, from_there;
	long n;

	if (!MEMORY_FAILS) {
		print_message("# skip: the sanitizers' memory can't be made to fail\n");
		skip();
	}
	for (from_there = 0; from_there < 2; from_there++) {
		for (n = 0;; n++) {
			memset(&h, 0, sizeof(h));
			assert_int_equal(sits_config_init(&c), 0);
			memory.failed = false;
			memory.from_there = from_there;
			memory.left = n;
			ret = sits_config_load_text(&c, text, strlen(text), "t.yaml", hear, &h);
			memory.left = -1;
			sits_config_fini(&c);
			if (!memory.failed)
				break;
			if (ret != -ENOMEM || h.nr != 1 || !strstr(h.line[0], "out of memory"))
				fail_msg("call %ld: %d, %zu lines: %s", n, ret, h.nr, h.line[0]);
		}
		assert_int_equal(ret, 0);
		assert_true(n > 10);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_stand),
		cmocka_unit_test(every_kind_of_value_is_taken),
		cmocka_unit_test(each_mistake_is_named),
		cmocka_unit_test(every_wrong_value_is_reported_in_one_go),
		cmocka_unit_test(empty_file_is_every_default),
		cmocka_unit_test(key_bytes_in_place_of_a_spec_are_not_repeated),
		cmocka_unit_test(contradictions_are_found),
		cmocka_unit_test(options_override),
		cmocka_unit_test(control_characters_are_not_repeated),
		cmocka_unit_test(printed_form_loads_to_the_same),
		cmocka_unit_test(reload_takes_what_it_may),
		cmocka_unit_test(files_that_cannot_be_read_are_named),
		cmocka_unit_test(want_of_memory_is_named),
		cmocka_unit_test(shipped_file_and_manual_have_every_key),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
