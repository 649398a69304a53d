// SPDX-License-Identifier: MIT
/*
 * awq_test.c - factors of 8-bit experts on a small mixture: they change nothing but rounding, and make that better.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/model/model.h"
#include "sits/context.h"
#include "tests/unit/engine/tiny_model.h"
#include "tools/model/awq.h"
#include "tools/model/awq_plan.h"
#include "tools/model/gguf_out.h"
#include "tools/model/model.h"
#include "tools/model/ppl.h"
#include "tools/model/quantize.h"

#define CONTEXT 64
#define TEXT_LEN 900

struct fixture {
	char text[TEXT_LEN], dir[32], path[64];
	struct sits_ctx *ctx;
};

static int setup(void **state)
{
	static struct fixture f;
	struct sits_open_opts o = { .size = sizeof(o), .provider = SITS_PROVIDER_USER };
	struct rng r = { 5 };
	size_t i;

	for (i = 0; i < TEXT_LEN; i++)
		f.text[i] = (char)('c' + rng_next(&r) % 20);
	strcpy(f.dir, "/tmp/sits-awq.XXXXXX");
	if (!mkdtemp(f.dir) || sits_open(&o, &f.ctx))
		return -1;
	snprintf(f.path, sizeof(f.path), "%s/out.gguf", f.dir);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	unlink(f->path);
	rmdir(f->dir);
	sits_close(f->ctx);
	return 0;
}

/* Multiply an element of a tensor in place. */
static void poke(const struct sits_model *m, const char *name, size_t i, float by)
{
	const struct sits_gguf_tensor *t = sits_gguf_find(m->gguf, name);

	assert_non_null(t);
	assert_int_equal(t->type, SITS_F32);
	((float *)(uintptr_t)t->data)[i] *= by;
}

static struct sits_model *open_model(struct tiny_opts o, void **image)
{
	struct sits_diag diag = { "" };
	struct sits_model *m;
	size_t len;

	o.context = CONTEXT;
	o.type = o.type_v = o.type_out = SITS_F32;
	o.seed = 9;
	*image = tiny_model(o, &len);
	if (sits_model_open(*image, len, &m, &diag))
		fail_msg("%s", diag.msg);
	return m;
}

/* Two channels that all rows have large values in, as real models do. */
static struct sits_model *open_mixture(void **image)
{
	struct sits_model *m = open_model((struct tiny_opts){ .experts = 4, .used = 2, .ff = 64, .expert_ff = 64 }, image);

	poke(m, "blk.0.ffn_norm.weight", 3, 40);
	poke(m, "blk.1.ffn_norm.weight", 17, 40);
	return m;
}

static double nll(const struct sits_model *m, const struct fixture *f)
{
	const struct ppl_opts o = { .context = CONTEXT, .threads = 2 };
	struct sits_diag diag = { "" };
	struct ppl_result res;

	if (ppl_run(m, f->text, TEXT_LEN, &o, &res, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(res.windows, res.tokens / CONTEXT);
	assert_int_equal(res.scored, res.windows * (CONTEXT / 2 - 1));
	return res.nll;
}

/* Write the plan, open what was written, measure. */
static double nll_written(struct fixture *f, struct quant_plan *p)
{
	static const char *const none[] = { NULL };
	struct sits_diag diag = { "" };
	struct mapped file = { 0 };
	struct sits_model *m;
	struct gguf_out *o;
	double v;

	assert_int_equal(gguf_out_open(f->ctx, f->path, true, 32, &o), 0);
	assert_int_equal(gguf_out_keys_of(o, p->g, none), 0);
	if (quant_run(p, o, 2, NULL, NULL, &diag))
		fail_msg("%s", diag.msg);
	assert_int_equal(gguf_out_commit(o, NULL), 0);
	assert_int_equal(mapped_open(f->path, &file, &diag), 0);
	if (model_load(f->path, &file, &m, &diag))
		fail_msg("%s", diag.msg);
	v = nll(m, f);
	sits_model_close(m);
	mapped_close(&file);
	return v;
}

static void find_factors(const struct sits_model *m, const struct fixture *f, bool dense, struct awq *a)
{
	const struct awq_opts o = { .windows = 3, .threads = 2, .dense = dense };
	struct sits_diag diag = { "" };

	if (awq_run(m, f->text, TEXT_LEN, &o, a, &diag))
		fail_msg("%s", diag.msg);
}

static void factors_change_nothing_but_rounding(void **state)
{
	const struct quant_opts keep = { .type = QUANT_KEEP, .out_type = QUANT_KEEP };
	struct fixture *f = *state;
	struct sits_diag diag = { "" };
	struct quant_plan p;
	struct sits_model *m;
	struct awq a;
	double before, after;
	void *image;

	m = open_mixture(&image);
	before = nll(m, f);
	find_factors(m, f, false, &a);
	assert_int_equal(a.nr, 2);
	assert_int_equal(quant_plan_create(m->gguf, &keep, &p, &diag), 0);
	assert_int_equal(awq_plan_scales(m, &p, &a, &diag), 0);
	after = nll_written(f, &p);
	assert_true(fabs(after - before) < 1e-4 * before);
	quant_plan_destroy(&p);
	awq_destroy(&a);
	sits_model_close(m);
	free(image);
}

static void factors_lower_the_error_where_channels_stand_out(void **state)
{
	const struct quant_opts keep = { .type = QUANT_KEEP, .out_type = QUANT_KEEP };
	struct fixture *f = *state;
	struct sits_diag diag = { "" };
	double before, plain, with;
	struct quant_plan p;
	struct sits_model *m;
	struct awq a;
	uint32_t l;
	void *image;

	m = open_mixture(&image);
	before = nll(m, f);
	find_factors(m, f, false, &a);
	for (l = 0; l < a.nr; l++) {
		print_message("# layer %u: gate and up %.4f (without factors %.4f), down %.4f (%.4f)\n", l, a.layer[l].gate_up,
			      a.layer[l].gate_up_plain, a.layer[l].down, a.layer[l].down_plain);
		assert_true(a.layer[l].gate_up > 0 && a.layer[l].gate_up < 0.8 * a.layer[l].gate_up_plain);
		assert_true(a.layer[l].down > 0 && a.layer[l].down <= a.layer[l].down_plain);
	}
	assert_int_equal(quant_plan_create(m->gguf, &keep, &p, &diag), 0);
	assert_int_equal(awq_plan_types(m, &p, false, false, &diag), 0);
	plain = nll_written(f, &p);
	assert_int_equal(awq_plan_scales(m, &p, &a, &diag), 0);
	assert_int_equal(quant_plan_find(&p, "blk.0.ffn_up_exps.weight")->type, SITS_I8C);
	with = nll_written(f, &p);
	print_message("# nll %.5f, 8 bits %.5f, with factors %.5f\n", before, plain, with);
	assert_true(fabs(with - before) < 0.02 * before);
	quant_plan_destroy(&p);
	awq_destroy(&a);
	sits_model_close(m);
	free(image);
}

static void dense_layers_are_taken_when_asked_for(void **state)
{
	const struct quant_opts keep = { .type = QUANT_KEEP, .out_type = QUANT_KEEP };
	const struct awq_opts no_dense = { .windows = 1 };
	struct fixture *f = *state;
	struct sits_diag diag = { "" };
	struct quant_plan p;
	struct sits_model *m;
	struct awq a;
	double before, after;
	void *image;

	m = open_model((struct tiny_opts){ 0 }, &image);
	assert_int_equal(awq_run(m, f->text, TEXT_LEN, &no_dense, &a, &diag), -EINVAL);
	assert_non_null(strstr(diag.msg, "--dense"));
	before = nll(m, f);
	find_factors(m, f, true, &a);
	assert_int_equal(a.nr, 2);
	assert_int_equal(a.layer[0].experts, 1);
	assert_int_equal(quant_plan_create(m->gguf, &keep, &p, &diag), 0);
	assert_int_equal(awq_plan_scales(m, &p, &a, &diag), 0);
	after = nll_written(f, &p);
	assert_true(fabs(after - before) < 1e-4 * before);
	quant_plan_destroy(&p);
	awq_destroy(&a);
	sits_model_close(m);
	free(image);
}

static void what_can_not_be_measured_is_refused(void **state)
{
	const struct awq_opts o = { .windows = 1 };
	struct fixture *f = *state;
	struct sits_diag diag = { "" };
	struct sits_model *m;
	struct awq a;
	void *image;

	m = open_mixture(&image);
	assert_int_equal(awq_run(m, f->text, 20, &o, &a, &diag), -EINVAL);
	diag.msg[0] = '\0';
	poke(m, "blk.0.ffn_gate_exps.weight", 0, NAN);
	poke(m, "blk.0.ffn_gate_exps.weight", 64 * 64, NAN);
	poke(m, "blk.0.ffn_gate_exps.weight", 2 * 64 * 64, NAN);
	poke(m, "blk.0.ffn_gate_exps.weight", 3 * 64 * 64, NAN);
	assert_int_equal(awq_run(m, f->text, TEXT_LEN, &o, &a, &diag), -EDOM);
	assert_non_null(strstr(diag.msg, "not finite"));
	sits_model_close(m);
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(factors_change_nothing_but_rounding),
		cmocka_unit_test(factors_lower_the_error_where_channels_stand_out),
		cmocka_unit_test(dense_layers_are_taken_when_asked_for),
		cmocka_unit_test(what_can_not_be_measured_is_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
