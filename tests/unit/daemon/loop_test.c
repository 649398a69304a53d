// SPDX-License-Identifier: MIT
/*
 * loop_test.c - the engine's thread: every piece of work ends exactly once, and an idle loop does nothing.
 */
#include "daemon/sched/loop.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "tests/unit/daemon/fake_engine.h"

struct piece {
	struct sits_work work;
	int ends, status;
	uint32_t finish, nr_text;
	char why[64];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static const int32_t prompt[3] = { 1, 2, 3 };
static int faults;

static void on_text(void *arg, const char *bytes, size_t len, uint32_t nr_tokens)
{
	((struct piece *)arg)->nr_text += nr_tokens;
}

static void on_done(void *arg, const struct sits_gen_result *res)
{
	struct piece *p = arg;

	pthread_mutex_lock(&lock);
	p->ends++;
	p->status = res->status;
	p->finish = res->finish;
	snprintf(p->why, sizeof(p->why), "%s", res->why ? res->why : "");
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

static void on_fault(void *arg, int err)
{
	pthread_mutex_lock(&lock);
	faults = err;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

static void piece_init(struct piece *p, uint32_t max_tokens)
{
	memset(p, 0, sizeof(*p));
	p->work.params = (struct sits_gen_params){ .prompt = prompt, .nr_prompt = 3, .max_tokens = max_tokens };
	p->work.sink = (struct sits_gen_sink){ .text = on_text, .done = on_done, .arg = p };
}

static void wait_end(struct piece *p)
{
	pthread_mutex_lock(&lock);
	while (!p->ends)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
}

static struct sits_loop *make(void)
{
	struct sits_loop_hooks hooks = { .fault = on_fault };
	struct sits_diag diag = { "" };
	struct sits_loop *l;

	faults = 0;
	if (sits_loop_create(&fake_ops, NULL, &hooks, &l, &diag))
		fail_msg("%s", diag.msg);
	return l;
}

static int setup(void **state)
{
	fake_reset();
	return 0;
}

static void work_is_done_and_ends_once(void **state)
{
	struct sits_loop *l = make();
	static struct piece p[50];

	for (int i = 0; i < 50; i++) {
		piece_init(&p[i], 1 + (uint32_t)i % 7);
		sits_loop_submit(l, &p[i].work);
	}
	for (int i = 0; i < 50; i++) {
		wait_end(&p[i]);
		assert_int_equal(p[i].status, 0);
		assert_int_equal(p[i].finish, SITS_FINISH_LENGTH);
		assert_int_equal(p[i].nr_text, 1 + i % 7);
	}
	sits_loop_destroy(l);
	for (int i = 0; i < 50; i++)
		assert_int_equal(p[i].ends, 1);
	assert_true(fake.destroyed);
}

static void idle_loop_takes_no_steps(void **state)
{
	struct sits_loop *l = make();
	struct sits_loop_state s;
	struct piece p;
	uint64_t steps;

	piece_init(&p, 3);
	sits_loop_submit(l, &p.work);
	wait_end(&p);
	/* The step in which it ended is the last: wait for its end, not for a time. */
	do {
		sched_yield();
		sits_loop_get_state(l, &s);
	} while (s.busy);
	steps = fake_steps();
	for (int i = 0; i < 1000; i++) {
		sched_yield();
		sits_loop_get_state(l, &s);
		assert_false(s.busy);
	}
	assert_int_equal(fake_steps(), steps);
	assert_int_equal(s.engine.running, 0);
	assert_string_equal(s.isa, "fake");
	sits_loop_destroy(l);
}

static void cancel_ends_running_work(void **state)
{
	struct sits_loop *l = make();
	struct piece p;

	fake_hold(true);
	piece_init(&p, 100);
	sits_loop_submit(l, &p.work);
	fake_wait_running(1);
	/* It may not have its id yet; either way it must end. */
	assert_false(sits_loop_cancel(l, &p.work));
	wait_end(&p);
	assert_int_equal(p.finish, SITS_FINISH_CANCEL);
	assert_int_equal(p.status, 0);
	sits_loop_destroy(l);
	assert_int_equal(p.ends, 1);
}

/* Cancels from another thread at any moment: each piece ends once, or is withdrawn and never ends. */
static void cancel_at_any_moment_ends_once(void **state)
{
	struct sits_loop *l = make();
	static struct piece p[300];
	static bool withdrawn[300];

	for (int i = 0; i < 300; i++) {
		piece_init(&p[i], 1000000);
		sits_loop_submit(l, &p[i].work);
		for (int k = 0; k < i % 40; k++)
			sched_yield();
		withdrawn[i] = sits_loop_cancel(l, &p[i].work);
		if (!withdrawn[i])
			wait_end(&p[i]);
	}
	sits_loop_destroy(l);
	for (int i = 0; i < 300; i++)
		assert_int_equal(p[i].ends, withdrawn[i] ? 0 : 1);
}

static void refusal_of_the_engine_is_the_end(void **state)
{
	struct sits_loop *l = make();
	struct piece p;

	fake_set(&fake.submit_error, -EMSGSIZE);
	piece_init(&p, 1);
	sits_loop_submit(l, &p.work);
	wait_end(&p);
	assert_int_equal(p.status, -EMSGSIZE);
	assert_string_equal(p.why, "told to refuse");
	sits_loop_destroy(l);
}

static void destroy_ends_what_is_left(void **state)
{
	struct sits_loop *l = make();
	struct piece p[3];

	fake_hold(true);
	for (int i = 0; i < 3; i++) {
		piece_init(&p[i], 9);
		sits_loop_submit(l, &p[i].work);
	}
	fake_wait_running(3);
	sits_loop_destroy(l);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(p[i].ends, 1);
		assert_int_equal(p[i].status, -ESHUTDOWN);
	}
}

static void fault_of_the_engine_ends_all_and_is_told(void **state)
{
	struct sits_loop *l = make();
	struct sits_loop_state s;
	struct piece p, q;

	fake_hold(true);
	piece_init(&p, 9);
	sits_loop_submit(l, &p.work);
	fake_wait_running(1);
	fake_fail_step(-EIO);
	wait_end(&p);
	assert_int_equal(p.status, -ESHUTDOWN);
	pthread_mutex_lock(&lock);
	while (!faults)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
	assert_int_equal(faults, -EIO);
	piece_init(&q, 1);
	sits_loop_submit(l, &q.work);
	wait_end(&q);
	assert_int_equal(q.status, -EIO);
	sits_loop_get_state(l, &s);
	assert_true(s.faulted);
	sits_loop_destroy(l);
}

static void failed_creation_is_told(void **state)
{
	struct sits_loop_hooks hooks = { 0 };
	struct sits_diag diag = { "" };
	struct sits_loop *l = NULL;

	fake.create_error = -ENODEV;
	assert_int_equal(sits_loop_create(&fake_ops, NULL, &hooks, &l, &diag), -ENODEV);
	assert_string_equal(diag.msg, "told to fail");
	sits_loop_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(work_is_done_and_ends_once, setup),
		cmocka_unit_test_setup(idle_loop_takes_no_steps, setup),
		cmocka_unit_test_setup(cancel_ends_running_work, setup),
		cmocka_unit_test_setup(cancel_at_any_moment_ends_once, setup),
		cmocka_unit_test_setup(refusal_of_the_engine_is_the_end, setup),
		cmocka_unit_test_setup(destroy_ends_what_is_left, setup),
		cmocka_unit_test_setup(fault_of_the_engine_ends_all_and_is_told, setup),
		cmocka_unit_test_setup(failed_creation_is_told, setup),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
