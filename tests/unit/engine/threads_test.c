// SPDX-License-Identifier: MIT
/*
 * threads_test.c - the team: every task once, stages in order, tails alone, nobody lost over many runs.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/threads.h"
#include "daemon/engine/topology.h"

#define STAGES 50
#define TASKS 37

struct run {
	struct sits_threads *t;
	atomic_uint hits[STAGES][TASKS];
	atomic_uint tails, in_tail;
	atomic_uint stage_errors;
	uint32_t stage;		/* written by tails */
	size_t nr_tasks;
};

static void task(void *arg, size_t i, uint32_t self)
{
	struct run *r = arg;

	/* The stage number was written by a tail and must have arrived here. */
	atomic_fetch_add(&r->hits[r->stage][i], 1);
	if (atomic_load(&r->in_tail) || self >= sits_threads_nr(r->t))
		atomic_fetch_add(&r->stage_errors, 1);
}

static void tail(void *arg)
{
	struct run *r = arg;
	size_t i;

	atomic_store(&r->in_tail, 1);
	for (i = 0; i < r->nr_tasks; i++)
		if (atomic_load(&r->hits[r->stage][i]) != 1)
			atomic_fetch_add(&r->stage_errors, 1);
	atomic_fetch_add(&r->tails, 1);
	r->stage++;
	atomic_store(&r->in_tail, 0);
}

static void body(void *arg, uint32_t self)
{
	struct run *r = arg;
	uint32_t s;

	for (s = 0; s < STAGES; s++)
		sits_threads_stage(r->t, self, r->nr_tasks, task, tail, r);
}

static void every_task_runs_once_and_tails_run_alone(void **state)
{
	static const size_t tasks[] = { 0, 1, 2, TASKS };
	static const uint32_t threads[] = { 1, 2, 3, 8 };
	struct run *r = malloc(sizeof(*r));
	size_t i, j, k;

	assert_non_null(r);
	for (i = 0; i < 4; i++) {
		struct sits_threads *t;

		assert_int_equal(sits_threads_create(threads[i], 0, &t, NULL), 0);
		assert_int_equal(sits_threads_nr(t), threads[i]);
		for (j = 0; j < 4; j++) {
			for (k = 0; k < 20; k++) {
				memset(r, 0, sizeof(*r));
				r->t = t;
				r->nr_tasks = tasks[j];
				sits_threads_run(t, body, r);
				assert_int_equal(r->tails, STAGES);
				assert_int_equal(r->stage_errors, 0);
			}
		}
		sits_threads_destroy(t);
	}
	free(r);
}

struct visits {
	atomic_uint seen[8];
};

static void visit(void *arg, uint32_t self)
{
	struct visits *v = arg;

	atomic_fetch_add(&v->seen[self], 1);
}

static void a_body_without_stages_runs_on_every_thread(void **state)
{
	struct visits v = { 0 };
	struct sits_threads *t;
	uint32_t i;

	assert_int_equal(sits_threads_create(8, 0, &t, NULL), 0);
	for (i = 0; i < 1000; i++)
		sits_threads_run(t, visit, &v);
	for (i = 0; i < 8; i++)
		assert_int_equal(v.seen[i], 1000);
	sits_threads_destroy(t);
}

/* Whether every thread of the process but this one sleeps, by /proc. */
static bool others_sleep(void)
{
	char path[300], state;
	struct dirent *d;
	bool all = true;
	DIR *dir;
	FILE *f;

	dir = opendir("/proc/self/task");
	assert_non_null(dir);
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.' || atoi(d->d_name) == gettid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", d->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1 || state != 'S')
			all = false;
		fclose(f);
	}
	closedir(dir);
	return all;
}

/* An idle team goes to sleep by itself, and a run wakes it. The test runner's limit ends a hang. */
static void idle_workers_sleep_and_are_woken(void **state)
{
	struct visits v = { 0 };
	struct sits_threads *t;
	uint32_t i;

	assert_int_equal(sits_threads_create(4, 0, &t, NULL), 0);
	for (i = 0; i < 30; i++) {
		while (!others_sleep())
			sched_yield();
		sits_threads_run(t, visit, &v);
	}
	for (i = 0; i < 4; i++)
		assert_int_equal(v.seen[i], 30);
	sits_threads_destroy(t);
}

static void note_tid(void *arg, uint32_t self)
{
	((pid_t *)arg)[self] = gettid();
}

/* How often a thread was put on a processor and left it, by /proc. */
static unsigned long switches(pid_t tid)
{
	unsigned long sum = 0, n;
	char path[64], line[128];
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)tid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %lu", &n) == 1) {
			sum += n;
			found++;
		}
	}
	fclose(f);
	assert_int_equal(found, 2);
	return sum;
}

/* Whether a thread has left its processor, by /proc. It counts as sleeping, and may be put off and on once more, a little before. */
static bool has_left(pid_t tid)
{
	char path[64];
	FILE *f;
	int c;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	f = fopen(path, "re");
	if (!f)		/* a kernel without it */
		return true;
	c = getc(f);
	fclose(f);
	return c != EOF && c != 'r';	/* "running" */
}

/* Neither spinning nor waking up to look: an idle worker is not scheduled once. */
static void idle_workers_use_no_processor(void **state)
{
	unsigned long before[4];
	struct sits_threads *t;
	pid_t tid[4] = { 0 };
	uint32_t i;

	assert_int_equal(sits_threads_create(4, 0, &t, NULL), 0);
	sits_threads_run(t, note_tid, tid);
	while (!others_sleep())
		sched_yield();
	for (i = 1; i < 4; i++) {
		while (!has_left(tid[i]))
			sched_yield();
		before[i] = switches(tid[i]);
	}
	usleep(200000);
	for (i = 1; i < 4; i++)
		assert_int_equal(switches(tid[i]), before[i]);
	sits_threads_destroy(t);
}

static void pinning_gives_the_mask_back(void **state)
{
	cpu_set_t before, during, after;
	struct sits_threads *t;
	uint32_t n;

	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	n = sits_threads_usable();
	assert_true(n >= 1 && n <= (uint32_t)CPU_COUNT(&before));
	assert_int_equal(sits_threads_create(0, 1, &t, NULL), 0);
	assert_int_equal(sits_threads_nr(t), n);
	assert_int_equal(sched_getaffinity(0, sizeof(during), &during), 0);
	assert_int_equal(CPU_COUNT(&during), 1);
	sits_threads_destroy(t);
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_true(CPU_EQUAL(&before, &after));
}

static void note_mask(void *arg, uint32_t self)
{
	cpu_set_t *mask = arg;

	sched_getaffinity(0, sizeof(*mask), &mask[self]);
}

static void threads_are_pinned_in_the_order_of_the_topology(void **state)
{
	static struct sits_topology topo;
	static cpu_set_t mask[SITS_THREADS_MAX];
	struct sits_threads *t;
	cpu_set_t all, planned, nodes;
	uint32_t i, most;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	sits_topology_read(SITS_TOPOLOGY_ROOT, &all, &topo);
	most = topo.nr < SITS_THREADS_MAX ? topo.nr : SITS_THREADS_MAX;
	sits_threads_plan(most, 1, &planned);
	sits_topology_nodes(&topo, most, &nodes);
	assert_int_equal(sits_threads_create(most, 1, &t, NULL), 0);
	assert_int_equal(sits_threads_nodes(t), sits_topology_nodes(&topo, most, NULL));
	assert_true(CPU_EQUAL(&planned, &nodes));
	sits_threads_run(t, note_mask, mask);
	for (i = 0; i < most; i++) {
		assert_int_equal(CPU_COUNT(&mask[i]), 1);
		assert_true(CPU_ISSET(topo.cpu[i].cpu, &mask[i]));
	}
	sits_threads_destroy(t);
	assert_int_equal(sits_threads_create(most, 0, &t, NULL), 0);
	assert_int_equal(sits_threads_nodes(t), 0);
	sits_threads_destroy(t);
	if (most == SITS_THREADS_MAX)
		return;
	sits_threads_plan(1, 0, &planned);
	sits_topology_nodes(&topo, topo.nr, &nodes);
	assert_true(CPU_EQUAL(&planned, &nodes));
	/* More threads than CPUs are left to the scheduler. */
	assert_int_equal(sits_threads_create(most + 1, 1, &t, NULL), 0);
	assert_int_equal(sits_threads_nodes(t), 0);
	sits_threads_run(t, note_mask, mask);
	for (i = 0; i <= most && i < SITS_THREADS_MAX; i++)
		assert_true(CPU_EQUAL(&mask[i], &all));
	sits_threads_destroy(t);
}

static void too_many_threads_are_refused_with_words(void **state)
{
	struct sits_diag diag = { 0 };
	struct sits_threads *t;

	assert_int_equal(sits_threads_create(SITS_THREADS_MAX + 1, 0, &t, &diag), -EINVAL);
	assert_non_null(strstr(diag.msg, "257"));
	sits_threads_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_task_runs_once_and_tails_run_alone),
		cmocka_unit_test(a_body_without_stages_runs_on_every_thread),
		cmocka_unit_test(idle_workers_sleep_and_are_woken),
		cmocka_unit_test(idle_workers_use_no_processor),
		cmocka_unit_test(pinning_gives_the_mask_back),
		cmocka_unit_test(threads_are_pinned_in_the_order_of_the_topology),
		cmocka_unit_test(too_many_threads_are_refused_with_words),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
