/* SPDX-License-Identifier: MIT */
/*
 * fault_common.h - a test's side of sits_test_fail.ko: an operation again and again, each time with the next of its calls failing,
 * until none is left to fail. After each the module must be as it was before.
 */
#ifndef SITS_FAULT_COMMON_H
#define SITS_FAULT_COMMON_H

#include <sys/syscall.h>

#include "kmod/sits_test_fail.h"
#include "region_common.h"

#define FAULTS_MAX 4000

/* What an operation that failed may not change. */
struct state {
	long fds, regions, bytes, queues, channels, importers, dma_maps;
};

/**
 * struct operation - to be failed
 * @name: in the report
 * @prepare: before each call, without faults; may be NULL
 * @call: returns what it made, or -errno
 * @undo: after each, with what @call returned; may be NULL
 * @survives: may succeed in spite of a failed call: there is another way
 * @nothing: makes no call that may fail
 * @errors: what it may return beside the failed function's own error and -ENOMEM; 0: no more
 */
struct operation {
	const char *name;
	void (*prepare)(void);
	int (*call)(void);
	void (*undo)(int ret);
	bool survives;
	bool nothing;
	int errors[4];
};

static int fault_fd = -1;

__attribute__((unused))
static void fault_open(void)
{
	fault_fd = open(SITS_TEST_FAIL_DEV, O_RDWR | O_CLOEXEC);
	need(fault_fd >= 0, "open " SITS_TEST_FAIL_DEV);
}

__attribute__((unused))
static void fault_arm(unsigned int mode, unsigned int nth)
{
	struct sits_test_fail arg = { .mode = mode, .nth = nth };

	need(!ioctl(fault_fd, SITS_TEST_FAIL_ARM, &arg), "arm");
}

__attribute__((unused))
static struct sits_test_fail fault_disarm(void)
{
	struct sits_test_fail arg = { 0 };

	need(!ioctl(fault_fd, SITS_TEST_FAIL_DISARM, &arg), "disarm");
	return arg;
}

__attribute__((unused))
static struct state state_now(void)
{
	struct sits_get_info i = info();

	return (struct state){
		.fds = nr_fds(), .regions = i.nr_regions, .bytes = i.region_used_bytes, .queues = i.nr_queues,
		.channels = i.nr_channels, .importers = read_number("/sys/class/misc/sits/importers"),
		.dma_maps = read_number("/sys/class/misc/sits/dma_maps"),
	};
}

static void state_print(const char *what, const struct state *s)
{
	printf("# %s: %ld descriptors, %ld regions of %ld bytes, %ld queues, %ld channels, %ld importers, %ld DMA mappings\n", what,
	       s->fds, s->regions, s->bytes, s->queues, s->channels, s->importers, s->dma_maps);
}

/* What goes by another task or by RCU takes a moment. */
__attribute__((unused))
static bool state_is(const struct state *want)
{
	struct state s = state_now();

	for (int tries = 0; tries < 3000 && memcmp(&s, want, sizeof(s)); tries++) {
		usleep(10000);
		s = state_now();
	}
	if (!memcmp(&s, want, sizeof(s)))
		return true;
	state_print("before", want);
	state_print("after", &s);
	return false;
}

static bool error_is_allowed(const struct operation *op, int ret, int injected)
{
	if (ret == injected || ret == -ENOMEM)
		return true;
	for (int i = 0; i < 4; i++)
		if (op->errors[i] && ret == op->errors[i])
			return true;
	return false;
}

/* How often each function failed, for the report. */
struct tally {
	char name[64];
	int times;
};

static void tally_add(struct tally *t, const char *name)
{
	for (; t->name[0] && strcmp(t->name, name); t++)
		;
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->times++;
}

__attribute__((unused))
static void fault_sweep(const struct operation *op, unsigned int mode)
{
	const char *whose = mode == SITS_TEST_FAIL_OURS ? "calls of the module" : "allocations on the way";
	struct tally tally[64] = { 0 };
	int failed = 0, survived = 0, wrong = 0, left = 0, ret = 0;
	struct sits_test_fail f = { 0 };
	unsigned int nth;

	for (nth = 1; nth < FAULTS_MAX; nth++) {
		struct state before;

		if (op->prepare)
			op->prepare();
		before = state_now();
		fault_arm(mode, nth);
		ret = op->call();
		f = fault_disarm();
		if (f.injected) {
			tally_add(tally, (char *)f.name);
			failed += ret < 0;
			survived += ret >= 0;
			if (ret < 0 && !error_is_allowed(op, ret, f.error)) {
				printf("# %s failed with %d: got %d (%s)\n", f.name, f.error, ret, strerror(-ret));
				wrong++;
			}
			if (ret >= 0 && !op->survives && mode == SITS_TEST_FAIL_OURS) {
				printf("# %s failed with %d: and nobody cared\n", f.name, f.error);
				wrong++;
			}
			if (ret < 0 && !state_is(&before)) {
				printf("# after %s failed, call %u\n", f.name, nth);
				left++;
			}
		}
		if (op->undo)
			op->undo(ret);
		if (!f.injected || left > 3)
			break;
	}
	printf("# %s: %u %s, %d failed, %d survived:", op->name, nth - 1, whose, failed, survived);
	for (struct tally *t = tally; t->name[0]; t++)
		printf(" %s %d", t->name, t->times);
	printf("\n");
	check(!f.injected && ret >= 0, "%s: works when none fails (%s)", op->name, whose);
	if (op->nothing)
		check_int(nth, 1, "%s: nothing can fail (%s)", op->name, whose);
	else
		check(nth > 1, "%s: there was something to fail (%s)", op->name, whose);
	check_int(wrong, 0, "%s: each failure is told as what it is (%s)", op->name, whose);
	check_int(left, 0, "%s: each failure leaves nothing (%s)", op->name, whose);
}

__attribute__((unused))
static void fault_sweep_both(const struct operation *op)
{
	fault_sweep(op, SITS_TEST_FAIL_OURS);
	fault_sweep(op, SITS_TEST_FAIL_MEMORY);
}

__attribute__((unused))
static int unload_sits(void)
{
	int ret = -EAGAIN;

	/* On 6.12 a self-test's thread may hold a module for a moment after it was loaded. */
	for (int tries = 0; tries < 3000 && ret == -EAGAIN; tries++) {
		ret = syscall(SYS_delete_module, "sits", O_NONBLOCK) ? -errno : 0;
		if (ret)
			usleep(10000);
	}
	return ret;
}

#endif
