// SPDX-License-Identifier: MIT
/*
 * chat_test.c - chat.c against Jinja's own renderings (tests/vectors/chat.json, made by chat.py beside it),
 * and what must never happen: a user's text that becomes a control token, a template taken for another.
 */
#include "daemon/model/chat.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "daemon/model/gguf.h"
#include "tests/unit/model/gguf_build.h"

#define VECTORS "tests/vectors/chat.json"
#define MAX_TOKENS 16
#define MAX_MSGS 8

struct model {
	void *image;
	struct sits_gguf *g;
};

static void model_open(struct model *m, struct gguf_build *b)
{
	struct sits_diag diag = { "" };
	size_t len;

	m->image = gguf_build_end(b, &len);
	assert_int_equal(sits_gguf_open(m->image, len, &m->g, &diag), 0);
}

static void model_close(struct model *m)
{
	sits_gguf_close(m->g);
	free(m->image);
}

/* A vocabulary of the given control tokens and an ordinary one. */
static void build_vocab(struct gguf_build *b, const char *const *tokens, size_t nr, const char *bos, const char *eos)
{
	const char *all[MAX_TOKENS + 1];
	int32_t type[MAX_TOKENS + 1];
	size_t i;

	assert_true(nr <= MAX_TOKENS);
	all[0] = "x";
	type[0] = 1;
	for (i = 0; i < nr; i++) {
		all[i + 1] = tokens[i];
		type[i + 1] = i % 2 ? 4 : 3;
		if (bos && !strcmp(tokens[i], bos))
			gguf_build_u32(b, "tokenizer.ggml.bos_token_id", (uint32_t)i + 1);
		if (eos && !strcmp(tokens[i], eos))
			gguf_build_u32(b, "tokenizer.ggml.eos_token_id", (uint32_t)i + 1);
	}
	gguf_build_strs(b, "tokenizer.ggml.tokens", all, nr + 1);
	gguf_build_array(b, "tokenizer.ggml.token_type", 5, nr + 1, type, (nr + 1) * sizeof(*type));
}

static void build_json(struct gguf_build *b, const json_t *v, int add_bos)
{
	const char *tokens[MAX_TOKENS];
	size_t i, nr = json_array_size(json_object_get(v, "tokens"));

	assert_true(nr && nr <= MAX_TOKENS);
	for (i = 0; i < nr; i++)
		tokens[i] = json_string_value(json_array_get(json_object_get(v, "tokens"), i));
	gguf_build_begin(b);
	build_vocab(b, tokens, nr, json_string_value(json_object_get(v, "bos")), json_string_value(json_object_get(v, "eos")));
	gguf_build_bool(b, "tokenizer.ggml.add_bos_token", add_bos);
	gguf_build_str(b, "tokenizer.chat_template", json_string_value(json_object_get(v, "template")));
}

static size_t read_messages(const json_t *list, struct sits_chat_message *msg)
{
	size_t i, nr = json_array_size(list);

	assert_true(nr <= MAX_MSGS);
	for (i = 0; i < nr; i++) {
		const char *role = json_string_value(json_array_get(json_array_get(list, i), 0));
		json_t *text = json_array_get(json_array_get(list, i), 1);

		msg[i].role = *role == 's' ? SITS_ROLE_SYSTEM : *role == 'u' ? SITS_ROLE_USER : SITS_ROLE_ASSISTANT;
		msg[i].text = json_string_value(text);
		msg[i].len = json_string_length(text);
	}
	return nr;
}

static char *join(const struct sits_chat_prompt *p, int special_only)
{
	size_t i, n = 0;
	char *s;

	for (i = 0; i < p->nr; i++)
		n += p->span[i].len;
	s = calloc(1, n + 1);
	assert_non_null(s);
	for (i = 0, n = 0; i < p->nr; i++) {
		if (special_only && !p->span[i].special)
			continue;
		memcpy(s + n, p->span[i].text, p->span[i].len);
		n += p->span[i].len;
		s[n] = '\0';
	}
	return s;
}

/* A special span is control tokens end to end; no span is empty; neighbours differ. */
static void check_spans(const struct sits_chat_prompt *p, const json_t *tokens)
{
	size_t i, j, at, n;

	for (i = 0; i < p->nr; i++) {
		assert_true(p->span[i].len > 0);
		if (i)
			assert_int_not_equal(!!p->span[i].special, !!p->span[i - 1].special);
		for (at = 0; p->span[i].special && at < p->span[i].len; at += n) {
			for (j = 0, n = 0; !n && j < json_array_size(tokens); j++) {
				const char *t = json_string_value(json_array_get(tokens, j));

				if (strlen(t) <= p->span[i].len - at && !memcmp(t, p->span[i].text + at, strlen(t)))
					n = strlen(t);
			}
			if (!n)
				fail_msg("not a control token: %.*s", (int)p->span[i].len, p->span[i].text);
		}
	}
}

/* No control token in ordinary text, where the messages have none. */
static void check_no_token_in_text(const struct sits_chat_prompt *p, const json_t *tokens)
{
	size_t i, j;

	for (i = 0; i < p->nr; i++)
		for (j = 0; !p->span[i].special && j < json_array_size(tokens); j++) {
			const char *t = json_string_value(json_array_get(tokens, j));

			if (memmem(p->span[i].text, p->span[i].len, t, strlen(t)))
				fail_msg("%s in ordinary text: %.*s", t, (int)p->span[i].len, p->span[i].text);
		}
}

static int has_token(const struct sits_chat_message *msg, size_t nr, const json_t *tokens)
{
	size_t i, j;

	for (i = 0; i < nr; i++)
		for (j = 0; j < json_array_size(tokens); j++) {
			const char *t = json_string_value(json_array_get(tokens, j));

			if (memmem(msg[i].text, msg[i].len, t, strlen(t)))
				return 1;
		}
	return 0;
}

/* Control tokens written for the same roles with harmless text: what a user's text must not change. */
static void check_same_tokens(const struct sits_chat_template *t, struct sits_chat_message *msg, size_t nr,
			      const char *special)
{
	struct sits_chat_prompt p;
	char *harmless;
	size_t i;

	for (i = 0; i < nr; i++) {
		msg[i].text = "x";
		msg[i].len = 1;
	}
	assert_int_equal(sits_chat_render(t, msg, nr, &p, NULL), 0);
	harmless = join(&p, 1);
	assert_string_equal(harmless, special);
	free(harmless);
	sits_chat_prompt_fini(&p);
}

static void run_case(const struct sits_chat_template *t, const json_t *v, const json_t *c)
{
	const json_t *tokens = json_object_get(v, "tokens"), *expect = json_object_get(c, "expect");
	struct sits_chat_message msg[MAX_MSGS];
	struct sits_chat_prompt p;
	struct sits_diag diag = { "" };
	char *text, *special;
	size_t nr = read_messages(json_object_get(c, "messages"), msg);
	int ret;

	ret = sits_chat_render(t, msg, nr, &p, &diag);
	if (json_is_null(expect)) {
		if (ret != -EINVAL)
			fail_msg("%s: rendered what the template refuses: %s", sits_chat_name(t), json_dumps(c, JSON_COMPACT));
		assert_true(diag.msg[0]);
		assert_null(p.span);
		return;
	}
	if (ret)
		fail_msg("%s: %s: %s", sits_chat_name(t), diag.msg, json_dumps(c, JSON_COMPACT));
	text = join(&p, 0);
	special = join(&p, 1);
	if (strcmp(text, json_string_value(expect)))
		fail_msg("%s:\n got: %s\nwant: %s", sits_chat_name(t), text, json_string_value(expect));
	check_spans(&p, tokens);
	if (!has_token(msg, nr, tokens))
		check_no_token_in_text(&p, tokens);
	check_same_tokens(t, msg, nr, special);
	free(text);
	free(special);
	sits_chat_prompt_fini(&p);
}

static void run_family(const json_t *v, int add_bos, size_t *nr_cases)
{
	const struct sits_chat_template *t = NULL;
	struct sits_diag diag = { "" };
	struct gguf_build b;
	struct model m;
	json_t *c;
	size_t i;

	build_json(&b, v, add_bos);
	model_open(&m, &b);
	if (sits_chat_pick(m.g, &t, &diag))
		fail_msg("%s: %s", json_string_value(json_object_get(v, "family")), diag.msg);
	assert_string_equal(sits_chat_name(t), json_string_value(json_object_get(v, "family")));
	json_array_foreach(json_object_get(v, "cases"), i, c) {
		if (json_is_true(json_object_get(c, "add_bos")) != add_bos)
			continue;
		run_case(t, v, c);
		++*nr_cases;
	}
	model_close(&m);
}

static json_t *load_vectors(void)
{
	json_error_t err;
	json_t *all = json_load_file(VECTORS, 0, &err);

	if (!all)
		fail_msg("%s: %s", VECTORS, err.text);
	return all;
}

static void renders_as_jinja_does(void **state)
{
	json_t *all = load_vectors(), *v;
	size_t i, n = 0;

	(void)state;
	json_array_foreach(all, i, v) {
		run_family(v, 1, &n);
		run_family(v, 0, &n);
	}
	assert_true(i >= 29);
	assert_true(n >= 400);
	json_decref(all);
}

static int pick(const char *source, const char *const *tokens, size_t nr, const char *bos, const char *eos,
		const char **name, struct sits_diag *diag)
{
	const struct sits_chat_template *t = NULL;
	struct gguf_build b;
	struct model m;
	int ret;

	gguf_build_begin(&b);
	build_vocab(&b, tokens, nr, bos, eos);
	gguf_build_bool(&b, "tokenizer.ggml.add_bos_token", 0);
	if (source)
		gguf_build_str(&b, "tokenizer.chat_template", source);
	model_open(&m, &b);
	diag->msg[0] = '\0';
	ret = sits_chat_pick(m.g, &t, diag);
	if (!ret)
		*name = sits_chat_name(t);
	model_close(&m);
	return ret;
}

static const char *const chatml_tokens[] = { "<|im_start|>", "<|im_end|>" };

#define CHATML "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}" \
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

static void no_template_is_enoent(void **state)
{
	struct sits_diag diag;
	const char *name;

	(void)state;
	assert_int_equal(pick(NULL, chatml_tokens, 2, NULL, NULL, &name, &diag), -ENOENT);
	assert_non_null(strstr(diag.msg, "--raw"));
}

static void unknown_template_names_the_raw_way(void **state)
{
	static const char *const source[] = {
		"", "{{ messages }}", "<|im_start|>",
		/* near misses of known forms */
		"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>\n' }}{% endfor %}"
		"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
		CHATML "{{ '<think>' }}",
		"[INST] {{ x }} [/INST]",
	};
	struct sits_diag diag;
	const char *name;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(source) / sizeof(source[0]); i++) {
		assert_int_equal(pick(source[i], chatml_tokens, 2, NULL, NULL, &name, &diag), -EPROTONOSUPPORT);
		assert_non_null(strstr(diag.msg, "sits run --raw"));
	}
}

static void template_of_another_type_is_refused(void **state)
{
	const struct sits_chat_template *t;
	struct sits_diag diag = { "" };
	struct gguf_build b;
	struct model m;

	(void)state;
	gguf_build_begin(&b);
	gguf_build_u32(&b, "tokenizer.chat_template", 1);
	model_open(&m, &b);
	assert_int_equal(sits_chat_pick(m.g, &t, &diag), -EPROTONOSUPPORT);
	model_close(&m);
}

/* A prompt in the right form of ordinary letters would not be one. */
static void missing_control_token_is_refused(void **state)
{
	struct sits_diag diag;
	const char *name;

	(void)state;
	assert_int_equal(pick(CHATML, chatml_tokens, 2, NULL, NULL, &name, &diag), 0);
	assert_string_equal(name, "chatml");
	assert_int_equal(pick(CHATML, chatml_tokens, 1, NULL, NULL, &name, &diag), -EPROTONOSUPPORT);
	assert_non_null(strstr(diag.msg, "<|im_end|>"));
}

static void other_eos_or_bos_is_refused(void **state)
{
	static const char source[] = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + "
		"message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token}}{{ raise_exception('x') }}{% endif %}{% endfor %}";
	static const char *const tokens[] = { "<s>", "</s>", "<other>" };
	struct sits_diag diag;
	const char *name;

	(void)state;
	assert_int_equal(pick(source, tokens, 3, "<s>", "</s>", &name, &diag), 0);
	assert_string_equal(name, "mistral");
	assert_int_equal(pick(source, tokens, 3, "<s>", "<other>", &name, &diag), -EPROTONOSUPPORT);
	assert_non_null(strstr(diag.msg, "eos"));
	assert_int_equal(pick(source, tokens, 3, "<other>", "</s>", &name, &diag), -EPROTONOSUPPORT);
	assert_non_null(strstr(diag.msg, "bos"));
}

/* Where the markers are letters in training, a vocabulary that has them as tokens is another model's. */
static void plain_marker_as_token_is_refused(void **state)
{
	json_t *all = load_vectors(), *v;
	static const char *const tokens[] = { "</s>", "<s>", "<|user|>" };
	struct sits_diag diag;
	const char *name;
	size_t i;

	(void)state;
	json_array_foreach(all, i, v) {
		if (strcmp(json_string_value(json_object_get(v, "family")), "zephyr"))
			continue;
		assert_int_equal(pick(json_string_value(json_object_get(v, "template")), tokens, 2, NULL, "</s>", &name, &diag), 0);
		assert_int_equal(pick(json_string_value(json_object_get(v, "template")), tokens, 3, NULL, "</s>", &name, &diag),
				 -EPROTONOSUPPORT);
		json_decref(all);
		return;
	}
	fail_msg("no zephyr in %s", VECTORS);
}

/* A fine-tune's own default system text is not guessed: the caller must give one. */
static void unknown_default_system_must_be_given(void **state)
{
	static const char source[] = "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are someone else.<|im_end|>\n' }}{% endif %}" CHATML;
	const struct sits_chat_message msg[] = {
		{ SITS_ROLE_SYSTEM, "s", 1 }, { SITS_ROLE_USER, "u", 1 },
	};
	const struct sits_chat_template *t;
	struct sits_chat_prompt p;
	struct sits_diag diag = { "" };
	struct gguf_build b;
	struct model m;
	char *text;

	(void)state;
	gguf_build_begin(&b);
	build_vocab(&b, chatml_tokens, 2, NULL, NULL);
	gguf_build_str(&b, "tokenizer.chat_template", source);
	model_open(&m, &b);
	assert_int_equal(sits_chat_pick(m.g, &t, &diag), 0);
	assert_int_equal(sits_chat_render(t, msg + 1, 1, &p, &diag), -EINVAL);
	assert_non_null(strstr(diag.msg, "default system"));
	assert_int_equal(sits_chat_render(t, msg, 2, &p, NULL), 0);
	text = join(&p, 0);
	assert_string_equal(text, "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n");
	free(text);
	sits_chat_prompt_fini(&p);
	model_close(&m);
}

/* Jinja reads CR LF as a newline; a default system text behind one must be seen. */
static void default_system_behind_cr_lf_is_seen(void **state)
{
	static const char source[] = "{% if messages[0].role != 'system' %}{{ \"<|im_start|>system\r\nYou are a helpful assistant.<|im_end|>\r\n\" }}{% endif %}" CHATML;
	struct sits_diag diag;
	const char *name;

	(void)state;
	assert_int_equal(pick(source, chatml_tokens, 2, NULL, NULL, &name, &diag), 0);
	assert_string_equal(name, "qwen2");
}

/* BOS is there once: by the tokenizer where it adds one, else by the template. */
static void bos_is_written_where_the_tokenizer_adds_none(void **state)
{
	static const struct {
		const char *model, *pre;
		bool written;
	} c[] = {
		{ "gpt2", "llama-bpe", false }, { "gpt2", "dbrx", true }, { "llama", NULL, false }, { "gpt2", NULL, true },
	};
	static const char *const tokens[] = { "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" };
	const struct sits_chat_message msg = { SITS_ROLE_USER, "u", 1 };
	const struct sits_chat_template *t;
	struct sits_chat_prompt p;
	struct sits_diag diag = { "" };
	struct gguf_build b;
	struct model m;
	char *text;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		gguf_build_begin(&b);
		build_vocab(&b, tokens, 4, "<|begin_of_text|>", "<|eot_id|>");
		gguf_build_str(&b, "tokenizer.ggml.model", c[i].model);
		if (c[i].pre)
			gguf_build_str(&b, "tokenizer.ggml.pre", c[i].pre);
		gguf_build_str(&b, "tokenizer.chat_template",
			       "{{ bos_token + '<|start_header_id|>' + r + '<|end_header_id|>\n\n' + c | trim + '<|eot_id|>' }}");
		model_open(&m, &b);
		if (sits_chat_pick(m.g, &t, &diag))
			fail_msg("%s", diag.msg);
		assert_int_equal(sits_chat_render(t, &msg, 1, &p, NULL), 0);
		text = join(&p, 0);
		assert_true(!strncmp(text, "<|begin_of_text|>", 17) == c[i].written);
		free(text);
		sits_chat_prompt_fini(&p);
		model_close(&m);
	}
}

static void no_messages_and_bad_roles_are_refused(void **state)
{
	struct sits_chat_message msg = { (enum sits_chat_role)7, "u", 1 };
	const struct sits_chat_template *t;
	struct sits_chat_prompt p;
	struct sits_diag diag = { "" };
	struct gguf_build b;
	struct model m;

	(void)state;
	gguf_build_begin(&b);
	build_vocab(&b, chatml_tokens, 2, NULL, NULL);
	gguf_build_str(&b, "tokenizer.chat_template", CHATML);
	model_open(&m, &b);
	assert_int_equal(sits_chat_pick(m.g, &t, NULL), 0);
	assert_int_equal(sits_chat_render(t, &msg, 0, &p, &diag), -EINVAL);
	assert_int_equal(sits_chat_render(t, &msg, 1, &p, &diag), -EINVAL);
	sits_chat_prompt_fini(&p);
	model_close(&m);
}

/* White space and cuts in long texts take linear time: this would run for hours otherwise. */
static void long_texts_are_linear(void **state)
{
	const size_t n = 4u << 20;
	const struct sits_chat_template *t;
	struct sits_chat_message msg[3];
	struct sits_chat_prompt p;
	json_t *all = load_vectors(), *v;
	struct gguf_build b;
	struct model m;
	char *text = malloc(n);
	size_t i;

	(void)state;
	assert_non_null(text);
	memset(text, '\n', n);
	memcpy(text, "</think>", 8);
	msg[0] = (struct sits_chat_message){ SITS_ROLE_USER, text, n };
	msg[1] = (struct sits_chat_message){ SITS_ROLE_ASSISTANT, text, n };
	msg[2] = (struct sits_chat_message){ SITS_ROLE_USER, text + 8, n - 8 };
	json_array_foreach(all, i, v) {
		build_json(&b, v, 1);
		model_open(&m, &b);
		assert_int_equal(sits_chat_pick(m.g, &t, NULL), 0);
		if (!sits_chat_render(t, msg, 3, &p, NULL))
			sits_chat_prompt_fini(&p);
		model_close(&m);
	}
	free(text);
	json_decref(all);
}

/* The template in the model that the project is tried with, byte for byte as `chat.py MODEL.gguf` found it. */
static void real_model_is_recognised(void **state)
{
	static const char want[] = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
		"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
	const struct sits_chat_message msg = { SITS_ROLE_USER, "Hi", 2 };
	const char *path = getenv("SITS_MODEL_GGUF");
	const struct sits_chat_template *t;
	struct sits_diag diag = { "" };
	struct sits_chat_prompt p;
	struct sits_gguf *g;
	struct stat st;
	void *image;
	char *text;
	int fd;

	(void)state;
	if (!path || !*path) {
		print_message("# skip: SITS_MODEL_GGUF names no model\n");
		skip();
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(image != MAP_FAILED);
	close(fd);
	if (sits_gguf_open(image, (size_t)st.st_size, &g, &diag) || sits_chat_pick(g, &t, &diag))
		fail_msg("%s: %s", path, diag.msg);
	assert_string_equal(sits_chat_name(t), "smollm2");
	assert_int_equal(sits_chat_render(t, &msg, 1, &p, &diag), 0);
	text = join(&p, 0);
	assert_string_equal(text, want);
	free(text);
	sits_chat_prompt_fini(&p);
	sits_gguf_close(g);
	munmap(image, (size_t)st.st_size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(renders_as_jinja_does),
		cmocka_unit_test(no_template_is_enoent),
		cmocka_unit_test(unknown_template_names_the_raw_way),
		cmocka_unit_test(template_of_another_type_is_refused),
		cmocka_unit_test(missing_control_token_is_refused),
		cmocka_unit_test(other_eos_or_bos_is_refused),
		cmocka_unit_test(plain_marker_as_token_is_refused),
		cmocka_unit_test(unknown_default_system_must_be_given),
		cmocka_unit_test(default_system_behind_cr_lf_is_seen),
		cmocka_unit_test(bos_is_written_where_the_tokenizer_adds_none),
		cmocka_unit_test(no_messages_and_bad_roles_are_refused),
		cmocka_unit_test(long_texts_are_linear),
		cmocka_unit_test(real_model_is_recognised),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
