// SPDX-License-Identifier: MIT
/*
 * ingress_test.c - requests through a real queue and channel, to an engine that does as told: what clients hear, that
 * each request ends exactly once, and that counters come back to rest.
 *
 * Runs for each provider in $SITS_TEST_PROVIDERS (default: user).
 */
#include "daemon/ingress/ingress.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/log.h"
#include "sits/context.h"
#include "sits/queue.h"
#include "tests/unit/daemon/byte_model.h"
#include "tests/unit/daemon/fake_engine.h"

#define CONTEXT 128	/* tokens */
#define WAIT_MS 20000	/* for an answer that must come; failing takes this long, passing does not */

static char dir[] = "/tmp/sits-ingress-XXXXXX";
static uint32_t provider;

static struct bench {
	struct sits_ctx *ctx;
	struct sits_queue *queue;
	struct sits_channel *ch;
	struct sits_model model;
	void *image;
	struct sits_loop *loop;
	struct sits_ingress *in;
	struct sits_counters counters;
	atomic_int fault, idles;
} t;

static char *on_info(void *arg)
{
	return strdup("{\"hello\":\"world\"}");
}

static void on_idle(void *arg)
{
	atomic_fetch_add(&t.idles, 1);
}

static void on_fault(void *arg, int err)
{
	atomic_store(&t.fault, err);
}

static int open_ctx(struct sits_ctx **ctx)
{
	struct sits_open_opts opts = { .size = sizeof(opts), .provider = provider, .run_dir = dir };

	return sits_open(&opts, ctx);
}

static int setup(void **state)
{
	struct sits_queue_opts q = { .size = sizeof(q), .name = "infer", .depth = 64, .per_client = 64, .max_clients = 16,
				     .mode = 0600, .chunk_backlog = 1 << 20 };
	struct sits_ingress_opts opts = { .model_id = "byte", .context = CONTEXT, .prefix = SITS_PREFIX_USER, .counters = &t.counters, .info = on_info,
					  .idle = on_idle, .fault = on_fault };
	struct sits_loop_hooks hooks;
	struct sits_diag diag = { "" };

	memset(&t, 0, sizeof(t));
	fake_reset();
	byte_model_init(&t.model, &t.image, true, true);
	opts.model = &t.model;
	if (open_ctx(&t.ctx) || sits_ingress_create(&opts, &t.in))
		return -1;
	hooks = sits_ingress_hooks(t.in);
	if (sits_loop_create(&fake_ops, NULL, &hooks, &t.loop, &diag) || sits_queue_create(t.ctx, &q, &t.queue) ||
	    sits_ingress_start(t.in, t.loop, t.queue) || sits_channel_open(t.ctx, "infer", 0, &t.ch))
		return -1;
	return 0;
}

static int teardown(void **state)
{
	sits_channel_close(t.ch);
	fake_hold(false);
	sits_ingress_stop(t.in);
	sits_loop_destroy(t.loop);
	sits_queue_destroy(t.queue);
	sits_ingress_destroy(t.in);
	byte_model_fini(&t.model);
	free(t.image);
	sits_close(t.ctx);
	return atomic_load(&t.counters.active) ? -1 : 0;	/* nothing may be left behind */
}

/* ------------------------------------------------------------------ a client */

struct answer {
	char text[8192], error[1024];
	size_t len;
	uint32_t nr_tokens, nr_text_chunks;
	struct sits_infer_done done;
	int has_done, status, last;
};

struct build {
	const char *prompt, *user, *model, *tag;
	uint32_t flags;
	uint32_t max_tokens;
	float temperature;
	uint64_t timeout_ns;
};

static uint64_t submit(struct sits_channel *ch, struct build o)
{
	struct sits_infer_builder *b;
	const void *bytes;
	uint64_t req;
	size_t len;

	assert_int_equal(sits_infer_builder_create(&b), 0);
	sits_infer_builder_hdr(b)->max_tokens = o.max_tokens;
	sits_infer_builder_hdr(b)->temperature = o.temperature;
	if (o.prompt)
		assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_PROMPT, o.prompt, strlen(o.prompt)), 0);
	if (o.user)
		assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_USER, o.user, strlen(o.user)), 0);
	if (o.model)
		assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_MODEL, o.model, strlen(o.model)), 0);
	if (o.tag)
		assert_int_equal(sits_infer_builder_add(b, SITS_FIELD_TAG, o.tag, strlen(o.tag)), 0);
	sits_infer_builder_hdr(b)->flags = o.flags;
	assert_int_equal(sits_infer_builder_bytes(b, &bytes, &len), 0);
	assert_int_equal(sits_channel_submit(ch, bytes, len, o.timeout_ns, &req), 0);
	sits_infer_builder_destroy(b);
	return req;
}

static void take(struct answer *a, const struct sits_chunk *c)
{
	struct sits_infer_chunk_hdr h = { 0 };

	assert_false(a->last);	/* nothing after the end */
	a->last = c->last;
	a->status = c->status;
	if (c->len < sizeof(h))
		return;
	memcpy(&h, c->data, sizeof(h));
	switch (h.type) {
	case SITS_CHUNK_TEXT:
	case SITS_CHUNK_JSON:
		assert_true(a->len + c->len < sizeof(a->text));
		memcpy(a->text + a->len, (const char *)c->data + sizeof(h), c->len - sizeof(h));
		a->len += c->len - sizeof(h);
		a->nr_tokens += h.nr_tokens;
		a->nr_text_chunks++;
		break;
	case SITS_CHUNK_DONE:
		assert_int_equal(c->len - sizeof(h), sizeof(a->done));
		memcpy(&a->done, (const char *)c->data + sizeof(h), sizeof(a->done));
		a->has_done = 1;
		break;
	case SITS_CHUNK_ERROR:
		snprintf(a->error, sizeof(a->error), "%.*s", (int)(c->len - sizeof(h)), (const char *)c->data + sizeof(h));
		break;
	default:
		fail_msg("chunk of type %u", h.type);
	}
}

/* Collect until @req has ended; only one request may be outstanding. */
static void collect(struct sits_channel *ch, uint64_t req, struct answer *a)
{
	struct sits_chunk c;

	memset(a, 0, sizeof(*a));
	while (!a->last) {
		int ret = sits_channel_recv(ch, &c, WAIT_MS);

		if (ret != 1)
			fail_msg("recv: %d", ret);
		assert_true(c.req == req);
		take(a, &c);
	}
}

static void ask(struct build o, struct answer *a)
{
	collect(t.ch, submit(t.ch, o), a);
}

/* ------------------------------------------------------------------ tests */

static void answer_is_streamed_and_done(void **state)
{
	int32_t prompt[64];
	struct answer a;

	ask((struct build){ .prompt = "hello", .max_tokens = 5 }, &a);
	assert_int_equal(a.status, 0);
	assert_string_equal(a.text, "xxxxx");
	assert_int_equal(a.nr_tokens, 5);
	assert_int_equal(a.nr_text_chunks, 5);	/* one for each step */
	assert_true(a.has_done);
	assert_int_equal(a.done.finish, SITS_FINISH_LENGTH);
	assert_int_equal(a.done.prompt_tokens, 5);
	assert_int_equal(a.done.completion_tokens, 5);
	assert_true(a.done.first_token_ns >= a.done.queue_ns);
	assert_true(a.done.total_ns >= a.done.first_token_ns);
	fake_last(prompt);
	assert_int_equal(prompt[0], 'h');
	assert_int_equal(atomic_load(&t.counters.ended[SITS_END_LENGTH]), 1);
}

static void chat_is_rendered(void **state)
{
	int32_t prompt[64];
	struct answer a;

	ask((struct build){ .user = "hi", .max_tokens = 1 }, &a);
	assert_int_equal(a.status, 0);
	fake_last(prompt);
	assert_int_equal(prompt[0], BYTE_START);
	assert_int_equal(prompt[1], 'u');
}

static void parameters_reach_the_engine(void **state)
{
	int32_t prompt[64];
	struct answer a;

	ask((struct build){ .prompt = "a", .max_tokens = 1, .temperature = 0.5f }, &a);
	assert_true(fake_last(prompt).sampling.temperature == 0.5f);
	assert_true(fake_last(prompt).sampling.seed != 0);	/* a random one */
	ask((struct build){ .prompt = "a", .max_tokens = 1 }, &a);
	assert_true(fake_last(prompt).sampling.seed == 0);
	assert_int_equal(fake_last(prompt).sched_class, SITS_CLASS_GUARANTEED);
}

static struct sits_gen_params params_of(struct build o)
{
	int32_t prompt[64];
	struct answer a;

	ask(o, &a);
	assert_int_equal(a.status, 0);
	return fake_last(prompt);
}

static void prefixes_are_shared_by_user_and_tag(void **state)
{
	struct build plain = { .prompt = "a", .max_tokens = 1 }, blue = plain, red = plain;
	uint64_t scope, of_blue;

	blue.tag = "blue";
	red.tag = "red";
	scope = params_of(plain).prefix_scope;
	of_blue = params_of(blue).prefix_scope;
	assert_true(scope && of_blue && scope != of_blue);
	assert_true(params_of(plain).prefix_scope == scope);
	assert_true(params_of(blue).prefix_scope == of_blue);
	assert_true(params_of(red).prefix_scope != of_blue && params_of(red).prefix_scope != scope);
	assert_true(params_of(plain).route_tag == 0 && params_of(blue).route_tag != params_of(red).route_tag);
	assert_false(params_of(plain).no_speculation);
	plain.flags = SITS_INFER_NO_SPECULATION;
	assert_true(params_of(plain).no_speculation);
}

static void info_is_answered_with_json(void **state)
{
	struct sits_infer_builder *b;
	const void *bytes;
	struct answer a;
	uint64_t req;
	size_t len;

	assert_int_equal(sits_infer_builder_create(&b), 0);
	sits_infer_builder_hdr(b)->op = SITS_INFER_OP_INFO;
	assert_int_equal(sits_infer_builder_bytes(b, &bytes, &len), 0);
	assert_int_equal(sits_channel_submit(t.ch, bytes, len, 0, &req), 0);
	collect(t.ch, req, &a);
	assert_int_equal(a.status, 0);
	assert_string_equal(a.text, "{\"hello\":\"world\"}");
	sits_infer_builder_destroy(b);
}

static void bad_requests_are_answered_and_the_next_is_served(void **state)
{
	char junk[256];
	struct answer a;
	uint64_t req;

	memset(junk, 0xa5, sizeof(junk));
	assert_int_equal(sits_channel_submit(t.ch, junk, sizeof(junk), 0, &req), 0);
	collect(t.ch, req, &a);
	assert_int_equal(a.status, -EINVAL);
	assert_non_null(strstr(a.error, "malformed request"));
	assert_false(a.has_done);
	ask((struct build){ .prompt = "a", .model = "another", .max_tokens = 1 }, &a);
	assert_int_equal(a.status, -ENOENT);
	assert_non_null(strstr(a.error, "model 'another' is not served here; 'byte' is"));
	ask((struct build){ .prompt = "a", .model = "byte", .max_tokens = 1 }, &a);
	assert_int_equal(a.status, 0);
	assert_int_equal(atomic_load(&t.counters.ended[SITS_END_REFUSED]), 2);
}

static void too_long_prompt_is_refused_with_numbers(void **state)
{
	char text[CONTEXT + 2], *huge = malloc(100001);
	struct answer a;

	memset(text, 'y', sizeof(text));
	text[CONTEXT - 1] = '\0';
	ask((struct build){ .prompt = text, .max_tokens = 1 }, &a);
	assert_int_equal(a.status, 0);
	text[CONTEXT - 1] = 'y';
	text[CONTEXT] = '\0';
	ask((struct build){ .prompt = text, .max_tokens = 1 }, &a);
	assert_int_equal(a.status, -EMSGSIZE);
	assert_non_null(strstr(a.error, "the prompt has 128 tokens; the context holds 128"));
	/* So much text that it is refused before it is tokenised. */
	assert_non_null(huge);
	memset(huge, 'y', 100000);
	huge[100000] = '\0';
	ask((struct build){ .prompt = huge, .max_tokens = 1 }, &a);
	assert_int_equal(a.status, -EMSGSIZE);
	assert_non_null(strstr(a.error, "the prompt has 100000 bytes"));
	free(huge);
}

static void limits_hold_and_can_change(void **state)
{
	struct sits_limits limits = { .max_tokens = 3, .max_prompt_tokens = 4 };
	struct answer a;

	sits_ingress_set_limits(t.in, &limits);
	ask((struct build){ .prompt = "abcd", .max_tokens = 4 }, &a);
	assert_int_equal(a.status, -EINVAL);
	assert_non_null(strstr(a.error, "max_tokens is 4; this daemon gives at most 3"));
	ask((struct build){ .prompt = "xyxyx", .max_tokens = 1 }, &a);
	assert_int_equal(a.status, -EMSGSIZE);
	assert_non_null(strstr(a.error, "5 tokens; this daemon takes at most 4"));
	ask((struct build){ .prompt = "xy" }, &a);
	assert_int_equal(a.done.completion_tokens, 3);
	limits = (struct sits_limits){ 0 };
	sits_ingress_set_limits(t.in, &limits);
	ask((struct build){ .prompt = "xyxyx", .max_tokens = 4 }, &a);
	assert_int_equal(a.status, 0);
}

static void engine_refusal_and_failure_end_one_request_only(void **state)
{
	struct answer a;

	fake_set(&fake.submit_error, -ENOSPC);
	ask((struct build){ .prompt = "a" }, &a);
	assert_int_equal(a.status, -ENOSPC);
	assert_string_equal(a.error, "told to refuse");
	fake_set(&fake.submit_error, 0);
	fake_set(&fake.end_status, -EDOM);
	ask((struct build){ .prompt = "a" }, &a);
	assert_int_equal(a.status, -EDOM);
	assert_string_equal(a.error, "told to end so");
	assert_string_equal(a.text, "x");	/* what had come before */
	fake_set(&fake.end_status, 0);
	ask((struct build){ .prompt = "a", .max_tokens = 2 }, &a);
	assert_int_equal(a.status, 0);
	assert_int_equal(atomic_load(&t.counters.ended[SITS_END_FAILED]), 2);
}

static void cancel_reaches_the_engine(void **state)
{
	struct answer a;
	uint64_t req;

	fake_hold(true);
	req = submit(t.ch, (struct build){ .prompt = "a", .max_tokens = 50 });
	fake_wait_running(1);
	assert_int_equal(sits_channel_cancel(t.ch, req), 0);
	collect(t.ch, req, &a);
	assert_int_equal(a.status, -ECANCELED);
	fake_wait_running(0);
}

static void deadline_reaches_the_engine(void **state)
{
	struct answer a;
	uint64_t req;

	fake_hold(true);
	req = submit(t.ch, (struct build){ .prompt = "a", .max_tokens = 50, .timeout_ns = 20000000 });
	collect(t.ch, req, &a);
	assert_int_equal(a.status, -ETIMEDOUT);
	fake_wait_running(0);
}

static void closed_channel_frees_its_requests(void **state)
{
	struct sits_channel *other;

	fake_hold(true);
	assert_int_equal(sits_channel_open(t.ctx, "infer", 0, &other), 0);
	for (int i = 0; i < 8; i++)
		submit(other, (struct build){ .prompt = "a", .max_tokens = 50 });
	fake_wait_running(8);
	sits_channel_close(other);
	fake_wait_running(0);
}

static void killed_client_frees_its_requests(void **state)
{
	int ready[2], status;
	char byte;
	pid_t pid;

	fake_hold(true);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct sits_ctx *ctx;
		struct sits_channel *ch;

		if (open_ctx(&ctx) || sits_channel_open(ctx, "infer", 0, &ch))
			_exit(1);
		for (int i = 0; i < 4; i++)
			submit(ch, (struct build){ .prompt = "a", .max_tokens = 50 });
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	fake_wait_running(4);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	fake_wait_running(0);
	close(ready[0]);
	close(ready[1]);
}

/* Submit and cancel with no order between them, many at once: each ends exactly once. */
static void storms_of_cancels_end_each_request_once(void **state)
{
	enum { ROUNDS = 30, BATCH = 16 };
	static struct answer a[BATCH];
	uint64_t req[BATCH];
	struct sits_queue_stats stats;
	struct sits_chunk c;

	for (int round = 0; round < ROUNDS; round++) {
		int left = BATCH;

		memset(a, 0, sizeof(a));
		for (int i = 0; i < BATCH; i++)
			req[i] = submit(t.ch, (struct build){ .prompt = "abc", .max_tokens = 1 + (uint32_t)(i * round) % 40 });
		for (int i = 0; i < BATCH; i++)
			if ((i + round) % 3)
				sits_channel_cancel(t.ch, req[i]);
		while (left) {
			int i = 0;

			assert_int_equal(sits_channel_recv(t.ch, &c, WAIT_MS), 1);
			while (i < BATCH && req[i] != c.req)
				i++;
			assert_true(i < BATCH);
			take(&a[i], &c);
			left -= a[i].last;
		}
		for (int i = 0; i < BATCH; i++) {
			assert_true(a[i].status == 0 || a[i].status == -ECANCELED);
			if (!((i + round) % 3))
				assert_int_equal(a[i].status, 0);
		}
	}
	fake_wait_running(0);
	while (sits_ingress_active(t.in))	/* the last one is taken out a little after its end was heard */
		sched_yield();
	sits_queue_get_stats(t.queue, &stats);
	assert_int_equal(stats.requests, ROUNDS * BATCH);
	if (provider == SITS_PROVIDER_KERNEL)	/* which ends those that were cancelled in time by itself */
		assert_in_range(atomic_load(&t.counters.requests), ROUNDS * BATCH / 3, ROUNDS * BATCH);
	else
		assert_int_equal(atomic_load(&t.counters.requests), ROUNDS * BATCH);
}

static void end_all_ends_with_shutdown(void **state)
{
	struct answer a;
	uint64_t req;

	fake_hold(true);
	req = submit(t.ch, (struct build){ .prompt = "a", .max_tokens = 50 });
	fake_wait_running(1);
	sits_ingress_end_all(t.in);
	collect(t.ch, req, &a);
	assert_int_equal(a.status, -ESHUTDOWN);
	ask((struct build){ .prompt = "a" }, &a);
	assert_int_equal(a.status, -ESHUTDOWN);
	while (!atomic_load(&t.idles))	/* told a little after the client */
		sched_yield();
}

static void fault_of_the_engine_is_told_to_all(void **state)
{
	struct answer a;
	uint64_t req;

	fake_hold(true);
	req = submit(t.ch, (struct build){ .prompt = "a", .max_tokens = 50 });
	fake_wait_running(1);
	fake_fail_step(-EIO);
	collect(t.ch, req, &a);
	assert_true(a.status < 0);
	ask((struct build){ .prompt = "a" }, &a);
	assert_int_equal(a.status, -EIO);
	assert_int_equal(atomic_load(&t.fault), -EIO);
}

/* A client that does not collect: its request is ended, others go on. */
static void client_that_does_not_collect_is_ended(void **state)
{
	struct sits_channel *lazy;
	struct answer a;

	assert_int_equal(sits_channel_open(t.ctx, "infer", 0, &lazy), 0);
	submit(lazy, (struct build){ .prompt = "a", .max_tokens = 4000000 });
	while (!atomic_load(&t.counters.ended[SITS_END_FAILED]))
		ask((struct build){ .prompt = "b", .max_tokens = 2 }, &a);
	assert_int_equal(a.status, 0);
	fake_wait_running(0);
	sits_channel_close(lazy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answer_is_streamed_and_done, setup, teardown),
		cmocka_unit_test_setup_teardown(chat_is_rendered, setup, teardown),
		cmocka_unit_test_setup_teardown(parameters_reach_the_engine, setup, teardown),
		cmocka_unit_test_setup_teardown(prefixes_are_shared_by_user_and_tag, setup, teardown),
		cmocka_unit_test_setup_teardown(info_is_answered_with_json, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_requests_are_answered_and_the_next_is_served, setup, teardown),
		cmocka_unit_test_setup_teardown(too_long_prompt_is_refused_with_numbers, setup, teardown),
		cmocka_unit_test_setup_teardown(limits_hold_and_can_change, setup, teardown),
		cmocka_unit_test_setup_teardown(engine_refusal_and_failure_end_one_request_only, setup, teardown),
		cmocka_unit_test_setup_teardown(cancel_reaches_the_engine, setup, teardown),
		cmocka_unit_test_setup_teardown(deadline_reaches_the_engine, setup, teardown),
		cmocka_unit_test_setup_teardown(closed_channel_frees_its_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(killed_client_frees_its_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(storms_of_cancels_end_each_request_once, setup, teardown),
		cmocka_unit_test_setup_teardown(end_all_ends_with_shutdown, setup, teardown),
		cmocka_unit_test_setup_teardown(fault_of_the_engine_is_told_to_all, setup, teardown),
		cmocka_unit_test_setup_teardown(client_that_does_not_collect_is_ended, setup, teardown),
	};
	const char *list = getenv("SITS_TEST_PROVIDERS");
	char copy[64], cmd[64], *save, *name;
	int failed = 0;

	sitsd_log_setup(0, 0);
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	if (!mkdtemp(dir))
		return 1;
	snprintf(copy, sizeof(copy), "%s", list && *list ? list : "user");
	for (name = strtok_r(copy, " ,", &save); name; name = strtok_r(NULL, " ,", &save)) {
		provider = strcmp(name, "kernel") ? SITS_PROVIDER_USER : SITS_PROVIDER_KERNEL;
		printf("# provider %s\n", name);
		failed |= cmocka_run_group_tests(tests, NULL, NULL);
	}
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd) ? 1 : failed;
}
