// SPDX-License-Identifier: MIT
/*
 * spec_test.c - speculative decoding: the same answers, bit for bit, whoever guesses and however well.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/spec.h"
#include "tests/unit/engine/engine_fixture.h"

/* ---- lookup ---- */

static void lookup_finds_what_followed_the_longest_match(void **state)
{
	static const struct {
		const char *name;
		int32_t token[24];
		uint32_t nr, max, want;
		int32_t guess[8];
	} cases[] = {
		{ "nothing", { 0 }, 0, 4, 0, { 0 } },
		{ "one token", { 5 }, 1, 4, 0, { 0 } },
		{ "no repetition", { 1, 2, 3, 4, 5 }, 5, 4, 0, { 0 } },
		{ "one token alike is too few", { 1, 2, 9, 3, 2 }, 5, 4, 0, { 0 } },
		{ "two alike", { 1, 2, 7, 8, 9, 1, 2 }, 7, 3, 3, { 7, 8, 9 } },
		{ "the longer match", { 9, 1, 2, 5, 6, 3, 1, 2, 7, 9, 1, 2 }, 12, 2, 2, { 5, 6 } },
		{ "of equal ones the latest", { 1, 2, 5, 1, 2, 6, 4, 1, 2 }, 9, 2, 2, { 6, 4 } },
		{ "a run goes round", { 8, 3, 3, 3, 3 }, 5, 4, 4, { 3, 3, 3, 3 } },
		{ "a period goes round", { 1, 2, 3, 1, 2, 3, 1, 2 }, 8, 7, 7, { 3, 1, 2, 3, 1, 2, 3 } },
		{ "no room", { 1, 2, 1, 2 }, 4, 0, 0, { 0 } },
		{ "from the start", { 1, 2, 1, 2 }, 4, 2, 2, { 1, 2 } },
	};
	int32_t token[40];
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t n;

		memcpy(token, cases[i].token, sizeof(cases[i].token));
		n = sits_spec_lookup(token, cases[i].nr, token + cases[i].nr, cases[i].max);
		if (n != cases[i].want || memcmp(token + cases[i].nr, cases[i].guess, n * sizeof(*token)))
			fail_msg("%s: %u guesses, the first %d", cases[i].name, n, token[cases[i].nr]);
	}
}

static void the_number_of_guesses_follows_their_success(void **state)
{
	const struct spec_cost cheap = { .base = 4, .guess = 1 }, dear = { .base = 0.5f, .guess = 1 };
	struct spec_state s = { 0 };
	uint32_t i, n, made = 0;

	assert_true(sits_spec_length(&s, &cheap, 1, 8) > 0);
	s.rate = 0.99f;
	assert_int_equal(sits_spec_length(&s, &cheap, 1, 8), 8);
	assert_int_equal(sits_spec_length(&s, &cheap, 1, 0), 0);
	/* 0.7 * 5 > 1, 0.49 * 6 > 1.7, 0.343 * 7 > 2.19, 0.24 * 8 < 2.53. */
	s.rate = 0.7f;
	assert_int_equal(sits_spec_length(&s, &cheap, 1, 8), 3);
	assert_int_equal(sits_spec_length(&s, &dear, 1, 8), 1);
	/* The more rows a step has anyway, the less a guess may fail. */
	for (i = 1, n = 100; i < 40; i++) {
		assert_true(sits_spec_length(&s, &cheap, i, 8) <= n || s.rest);
		s.rest = 0;
		n = sits_spec_length(&s, &cheap, i, 8);
		s.rest = 0;
	}
	assert_int_equal(n, 1);
	assert_int_equal(sits_spec_length(&s, &cheap, 40, 8), 1);
	assert_true(s.rest > 0);
	/* Hopeless: one now and then. */
	s = (struct spec_state){ .rate = 0.01f, .fails = 100 };
	for (i = 0; i < 1000; i++)
		made += sits_spec_length(&s, &cheap, 1, 8);
	assert_true(made > 5 && made < 50);
}

static void the_clock_finds_what_a_row_costs(void **state)
{
	struct rng r = rng_seeded("clock");
	struct spec_clock c = { 0 };
	uint32_t i, rows;
	double t;

	/* One size alone says nothing. */
	for (i = 0; i < 100; i++)
		sits_spec_clock_add(&c, 1, 5000000);
	assert_true(c.base == 0);
	/* 3 ms to read, 2 ms a row; some noise, and now and then a step that was kept waiting; a prompt beside it. */
	for (i = 0; i < 2000; i++) {
		rows = 1 + rng_below(&r, 6);
		t = 3e6 + 2e6 * rows;
		sits_spec_clock_add(&c, rows, t * (0.95 + 0.1 * rng_unit(&r)) * (rng_below(&r, 20) ? 1 : 30));
		sits_spec_clock_add(&c, 200, 5);
	}
	assert_true(c.base > 1.2f && c.base < 1.8f);
	assert_true(c.row_ns > 1.8e6 && c.row_ns < 2.2e6);
}

/* ---- the same answers ---- */

#define JOBS 9

/* Prompts that repeat themselves and some that do not; greedy, penalised, sampled; with ends and without. */
static struct sits_gen_params job(int32_t *token, int i)
{
	static const char *stop[] = { "ab", "q" };
	static const size_t stop_len[] = { 2, 1 };
	size_t nr = 10 + 17 * i, j;
	struct sits_gen_params p;
	struct rng r = { i };

	for (j = 0; j < nr; j++)
		token[j] = i % 3 == 2 ? (int32_t)rng_below(&r, 250) : (int32_t)(40 + j % (3 + 2 * i));
	p = params(token, nr, 50);
	if (i % 3 == 1)
		p.sampling = (struct sits_sampling){ .temperature = i == 1 ? 0.05f : 0.8f, .top_k = 20, .top_p = 0.9f,
			.repeat_penalty = i == 4 ? 1.2f : 1, .repeat_last_n = 32, .seed = 1000 + i };
	if (i == 3)
		p.sampling.frequency_penalty = 0.5f;
	if (i > 5) {
		p.ignore_eos = false;
		p.stop = stop;
		p.stop_len = stop_len;
		p.nr_stop = 2;
	}
	return p;
}

static void run_jobs(struct fixture *f, struct client *c, int per_step)
{
	int32_t token[200];
	struct sits_gen_params p;
	int i;

	for (i = 0; i < JOBS; i++) {
		p = job(token, i);
		submit(f, &c[i], &p);
		if (per_step && i % per_step == 0)
			sits_engine_step(f->e);
	}
	run_out(f);
}

static void compare(struct client *a, struct client *b)
{
	int i;

	for (i = 0; i < JOBS; i++) {
		assert_same(&a[i], &b[i]);
		client_fini(&b[i]);
	}
}

static size_t page_bytes(void)
{
	const struct sits_kv_shape s = { .G = 2, .Dk = 16, .Dv = 16 };

	return 2 * sits_backend_get(NULL)->kv_layer_bytes(&s);
}

static void lookup_changes_no_bit(void **state)
{
	struct client plain[JOBS] = { 0 }, guessed[JOBS] = { 0 };
	const struct sits_backend *be;
	struct fixture f = { 0 };
	uint64_t steps;
	size_t i, k;

	open_model(&f, (struct tiny_opts){ .type = SITS_Q4_0, .type_v = SITS_F32, .type_out = SITS_Q8_0 });
	for (k = 0; (be = sits_backend_at(k)); k++) {
		if (!be->usable())
			continue;
		open_engine(&f, (struct sits_engine_opts){ .isa = be->name });
		run_jobs(&f, plain, 0);
		steps = stats(&f).steps;
		assert_int_equal(stats(&f).draft_tokens, 0);
		close_engine(&f);

		open_engine(&f, (struct sits_engine_opts){ .isa = be->name, .speculation = SITS_SPEC_LOOKUP });
		run_jobs(&f, guessed, 0);
		printf("# %s: %u of %u guesses right, %u steps in place of %u\n", be->name, (uint32_t)stats(&f).draft_accepted,
		       (uint32_t)stats(&f).draft_tokens, (uint32_t)stats(&f).steps, (uint32_t)steps);
		/* How many are made follows what they cost at the moment; the first ones always are. */
		assert_true(stats(&f).draft_accepted > 0);
		assert_true(stats(&f).draft_accepted <= stats(&f).draft_tokens);
		assert_true(stats(&f).steps <= steps);
		close_engine(&f);
		compare(plain, guessed);
		/* No page to spare, few rows, preemptions. */
		open_engine(&f, (struct sits_engine_opts){ .isa = be->name, .speculation = SITS_SPEC_LOOKUP, .threads = 3,
			.draft_tokens = 5, .token_budget = 19, .max_seqs = 6, .kv_bytes = 10 * page_bytes() });
		run_jobs(&f, guessed, 2);
		assert_true(stats(&f).preemptions > 0);
		close_engine(&f);
		compare(plain, guessed);
		for (i = 0; i < JOBS; i++)
			client_fini(&plain[i]);
	}
	close_all(&f);
}

static void open_draft(struct fixture *d, struct tiny_opts o)
{
	open_model(d, o);
}

static void run_draft(struct fixture *f, struct fixture *d, struct client *plain, struct sits_engine_opts o,
		      uint64_t *accepted, uint64_t *made)
{
	struct client guessed[JOBS] = { 0 };

	o.speculation = SITS_SPEC_DRAFT;
	o.draft = d->m;
	open_engine(f, o);
	run_jobs(f, guessed, 2);
	*accepted = stats(f).draft_accepted;
	*made = stats(f).draft_tokens;
	close_engine(f);
	compare(plain, guessed);
}

static void a_draft_model_changes_no_bit(void **state)
{
	struct client plain[JOBS] = { 0 };
	struct fixture f = { 0 }, d = { 0 };
	uint64_t accepted, made, i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	run_jobs(&f, plain, 0);
	close_engine(&f);
	/* The model itself knows every token, the sampled ones too: it draws with the same numbers. */
	open_draft(&d, (struct tiny_opts){ 0 });
	run_draft(&f, &d, plain, (struct sits_engine_opts){ 0 }, &accepted, &made);
	assert_true(made >= JOBS);
	assert_int_equal(accepted, made);
	run_draft(&f, &d, plain, (struct sits_engine_opts){ .token_budget = 17, .max_seqs = 5, .kv_bytes = 10 * page_bytes(),
							  .draft_tokens = 3 }, &accepted, &made);
	assert_true(made > 0);
	assert_int_equal(accepted, made);
	close_all(&d);
	/* Another one knows little; a shorter context and fewer layers are no trouble. */
	open_draft(&d, (struct tiny_opts){ .seed = 5, .layers = 1, .context = 64, .heads = 2, .kv_heads = 1 });
	run_draft(&f, &d, plain, (struct sits_engine_opts){ 0 }, &accepted, &made);
	printf("# another model: %u of %u\n", (uint32_t)accepted, (uint32_t)made);
	assert_true(made > 0 && accepted < made);
	close_all(&d);
	/* One whose logits are no numbers guesses nothing. */
	open_draft(&d, (struct tiny_opts){ .untied = true, .nan_token = 41 });
	run_draft(&f, &d, plain, (struct sits_engine_opts){ 0 }, &accepted, &made);
	close_all(&d);
	for (i = 0; i < JOBS; i++)
		client_fini(&plain[i]);
	close_all(&f);
}

static void a_request_can_do_without(void **state)
{
	struct fixture f = { 0 };
	struct client c = { 0 };
	struct sits_gen_params p;
	int32_t token[200];

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .speculation = SITS_SPEC_LOOKUP });
	p = job(token, 0);
	p.no_speculation = true;
	submit(&f, &c, &p);
	run_out(&f);
	assert_int_equal(stats(&f).draft_tokens, 0);
	assert_int_equal(stats(&f).steps, 50);
	client_fini(&c);
	close_all(&f);
}

/* What comes after a guess that is not finite, alone: the row is not looked at, unless it comes true. */
static void not_finite_output_still_ends_one_request_alone(void **state)
{
	struct fixture f = { 0 };
	struct client good = { 0 }, alone = { 0 }, bad = { 0 };
	struct sits_gen_params p, q;
	int32_t token[200];

	open_model(&f, (struct tiny_opts){ .untied = true, .nan_token = 255 });
	open_engine(&f, (struct sits_engine_opts){ .speculation = SITS_SPEC_LOOKUP });
	p = job(token, 3);
	submit(&f, &alone, &p);
	run_out(&f);
	submit(&f, &good, &p);
	q = params((int32_t[]){ 1, 2, 255, 1, 2 }, 5, 30);
	submit(&f, &bad, &q);
	run_out(&f);
	assert_int_equal(bad.res.status, -EDOM);
	assert_int_equal(stats(&f).nonfinite, 1);
	assert_same(&alone, &good);
	client_fini(&good);
	client_fini(&alone);
	client_fini(&bad);
	close_all(&f);
}

static void bad_options_are_refused_with_words(void **state)
{
	struct fixture f = { 0 }, d = { 0 };
	struct {
		struct sits_engine_opts o;
		const char *word;
	} cases[] = {
		{ { .speculation = 7 }, "speculation" },
		{ { .speculation = SITS_SPEC_LOOKUP, .draft_tokens = 65 }, "draft_tokens" },
		{ { .speculation = SITS_SPEC_DRAFT }, "draft model" },
		{ { .speculation = SITS_SPEC_DRAFT }, "token 258 differs" },
		{ { .kv_kind = 9 }, "kv_kind" },
		{ { .kv_limit = { 5 } }, "kv_limit" },
	};
	size_t i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_model(&d, (struct tiny_opts){ .other_merge = true });
	cases[3].o.draft = d.m;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sits_diag diag = { 0 };
		struct sits_engine *e = NULL;

		assert_int_equal(sits_engine_create(f.m, &cases[i].o, &e, &diag), -EINVAL);
		assert_null(e);
		if (!strstr(diag.msg, cases[i].word))
			fail_msg("\"%s\" does not say %s", diag.msg, cases[i].word);
	}
	close_all(&d);
	close_all(&f);
}

/* ---- forced tokens ---- */

static void forced_tokens_have_the_logits_of_drawn_ones(void **state)
{
	struct fixture f = { 0 };
	struct client c = { 0 }, forced = { 0 };
	struct sits_gen_params p;
	int32_t token[200], answer[100];
	struct sits_diag diag = { 0 };
	uint64_t steps;
	size_t i;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ .token_budget = 64 });
	p = job(token, 2);
	p.max_tokens = 100;
	submit(&f, &c, &p);
	run_out(&f);
	for (i = 0; i < 100; i++)
		answer[i] = drawn(&c, i);
	steps = stats(&f).steps;
	p.forced = answer;
	p.nr_forced = 100;
	p.max_tokens = 3;
	submit(&f, &forced, &p);
	run_out(&f);
	assert_same(&c, &forced);
	assert_true(stats(&f).steps - steps < 5);
	/* Checked as a prompt is. */
	answer[7] = TINY_VOCAB;
	assert_int_equal(client_submit(&c, f.e, &p, &diag), -EINVAL);
	assert_non_null(strstr(diag.msg, "forced token 7"));
	answer[7] = 1;
	p.nr_prompt = 44;
	p.nr_forced = 100;
	client_fini(&c);
	client_fini(&forced);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){ .context = 128 });
	assert_int_equal(client_submit(&c, f.e, &p, NULL), -EMSGSIZE);
	close_all(&f);
}

/* ---- KV in bytes ---- */

static void kv_in_bytes_is_smaller_near_and_as_invariant(void **state)
{
	struct client plain[JOBS] = { 0 }, bytes[JOBS] = { 0 }, again[JOBS] = { 0 };
	struct fixture f = { 0 };
	uint64_t half;
	double off = 0, size = 0;
	size_t i, j;

	open_model(&f, (struct tiny_opts){ 0 });
	open_engine(&f, (struct sits_engine_opts){ 0 });
	half = stats(&f).page_bytes;
	run_jobs(&f, plain, 0);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){ .kv_kind = SITS_KV_I8 });
	assert_true(stats(&f).page_bytes < half * 7 / 10);
	run_jobs(&f, bytes, 0);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){ .kv_kind = SITS_KV_I8, .speculation = SITS_SPEC_LOOKUP, .token_budget = 19,
		.max_seqs = 6, .kv_bytes = 6 * half });
	run_jobs(&f, again, 2);
	close_engine(&f);
	for (i = 0; i < JOBS; i++)
		/* The first row: nothing drawn can differ yet. */
		for (j = 0; j < TINY_VOCAB; j++) {
			off += fabs(plain[i].logits[j] - bytes[i].logits[j]);
			size += fabs(plain[i].logits[j]);
		}
	printf("# mean difference of logits %g of their mean size\n", off / size);
	assert_true(off > 0 && off < 0.02 * size);
	compare(bytes, again);
	for (i = 0; i < JOBS; i++) {
		client_fini(&plain[i]);
		client_fini(&bytes[i]);
	}
	close_all(&f);
}

/* ---- the real model ---- */

static void a_real_model_repeats_itself_faster_with_the_same_words(void **state)
{
	static const char text[] = "The cat sat on the mat. The dog sat on the log. The cat sat on the mat. The dog sat on";
	const char *path = getenv("SITS_MODEL_GGUF");
	struct client plain = { 0 }, guessed = { 0 };
	struct sits_tokens tok = { 0 };
	struct sits_diag diag = { 0 };
	struct fixture f = { 0 };
	struct sits_gen_params p;
	struct stat st;
	void *image;
	int fd;

	if (!path) {
		print_message("# skip: SITS_MODEL_GGUF is not set\n");
		skip();
	}
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0 && !fstat(fd, &st));
	image = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(image != MAP_FAILED);
	close(fd);
	if (sits_model_open(image, st.st_size, &f.m, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(sits_tokenizer_encode(f.m->tok, text, sizeof(text) - 1, SITS_TOK_ADD_BOS, &tok), 0);
	p = params(tok.id, tok.nr, 24);
	open_engine(&f, (struct sits_engine_opts){ .max_seqs = 4 });
	submit(&f, &plain, &p);
	run_out(&f);
	close_engine(&f);
	open_engine(&f, (struct sits_engine_opts){ .max_seqs = 4, .speculation = SITS_SPEC_LOOKUP });
	submit(&f, &guessed, &p);
	run_out(&f);
	printf("# %u of %u guesses right, %u steps for 24 tokens\n", (uint32_t)stats(&f).draft_accepted,
	       (uint32_t)stats(&f).draft_tokens, (uint32_t)stats(&f).steps);
	assert_true(stats(&f).draft_accepted > 0 && stats(&f).steps < 24);
	assert_same(&plain, &guessed);
	client_fini(&plain);
	client_fini(&guessed);
	sits_tokens_fini(&tok);
	close_engine(&f);
	sits_model_close(f.m);
	munmap(image, st.st_size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lookup_finds_what_followed_the_longest_match),
		cmocka_unit_test(the_number_of_guesses_follows_their_success),
		cmocka_unit_test(the_clock_finds_what_a_row_costs),
		cmocka_unit_test(lookup_changes_no_bit),
		cmocka_unit_test(a_draft_model_changes_no_bit),
		cmocka_unit_test(a_request_can_do_without),
		cmocka_unit_test(not_finite_output_still_ends_one_request_alone),
		cmocka_unit_test(bad_options_are_refused_with_words),
		cmocka_unit_test(forced_tokens_have_the_logits_of_drawn_ones),
		cmocka_unit_test(kv_in_bytes_is_smaller_near_and_as_invariant),
		cmocka_unit_test(a_real_model_repeats_itself_faster_with_the_same_words),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
