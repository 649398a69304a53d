// SPDX-License-Identifier: MIT
/*
 * numa_test.c - the policy of memory while weights are made, and that it is given back.
 */
#include "daemon/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/topology.h"

#define PAGES 64

static int mode_now(void)
{
	int mode = -1;

	assert_int_equal(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0), 0);
	return mode;
}

static cpu_set_t set_of(const char *list)
{
	cpu_set_t set;

	assert_int_equal(sits_topology_parse(list, strlen(list), &set), 0);
	return set;
}

/* Containers may forbid it (it needs CAP_SYS_NICE there), and kernels may lack it. */
static void need_policies(void)
{
	unsigned long node0 = 1;

	if (syscall(SYS_set_mempolicy, MPOL_BIND, &node0, 8 * sizeof(node0) + 1)) {
		print_message("# set_mempolicy(2): %s\n", strerror(errno));
		skip();
	}
	sits_numa_restore();
	assert_int_equal(mode_now(), MPOL_DEFAULT);
}

static void memory_is_interleaved_and_the_default_comes_back(void **state)
{
	cpu_set_t nodes = set_of("0-1");

	need_policies();
	assert_true(sits_numa_interleave(&nodes));
	assert_int_equal(mode_now(), MPOL_INTERLEAVE);
	sits_numa_restore();
	assert_int_equal(mode_now(), MPOL_DEFAULT);
}

static void one_node_needs_nothing(void **state)
{
	cpu_set_t none = set_of(""), one = set_of("0");

	need_policies();
	assert_false(sits_numa_interleave(&none));
	assert_false(sits_numa_interleave(&one));
	assert_int_equal(mode_now(), MPOL_DEFAULT);
}

static void a_policy_from_outside_is_kept(void **state)
{
	cpu_set_t nodes = set_of("0-1");
	unsigned long node0 = 1;

	need_policies();
	assert_int_equal(syscall(SYS_set_mempolicy, MPOL_BIND, &node0, 8 * sizeof(node0) + 1), 0);
	assert_false(sits_numa_interleave(&nodes));
	assert_int_equal(mode_now(), MPOL_BIND);
	sits_numa_restore();
}

static void nodes_that_are_not_there_are_refused_by_the_system(void **state)
{
	cpu_set_t nodes = set_of("1022-1023");

	need_policies();
	assert_false(sits_numa_interleave(&nodes));
	assert_int_equal(mode_now(), MPOL_DEFAULT);
}

/* A shared mapping of a memfd, as a region is. */
static void pages_lie_on_all_nodes(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	cpu_set_t nodes, seen;
	void *at[PAGES];
	int where[PAGES], fd, i;
	char text[256];
	uint8_t *p;
	FILE *f;
	size_t len;

	need_policies();
	f = fopen(SITS_TOPOLOGY_ROOT "/node/has_memory", "re");
	len = f ? fread(text, 1, sizeof(text), f) : 0;
	if (f)
		fclose(f);
	if (sits_topology_parse(text, len, &nodes) || CPU_COUNT(&nodes) < 2) {
		print_message("# this machine has less than two nodes with memory\n");
		skip();
	}
	fd = memfd_create("numa_test", MFD_CLOEXEC);
	assert_true(fd >= 0 && !ftruncate(fd, (off_t)(PAGES * page)));
	p = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_true(sits_numa_interleave(&nodes));
	for (i = 0; i < PAGES; i++) {
		at[i] = p + (size_t)i * page;
		memset(at[i], 1, page);
	}
	sits_numa_restore();
	assert_int_equal(syscall(SYS_move_pages, 0, (unsigned long)PAGES, at, NULL, where, 0), 0);
	CPU_ZERO(&seen);
	for (i = 0; i < PAGES; i++) {
		assert_true(where[i] >= 0);
		CPU_SET(where[i], &seen);
	}
	/* A node that is full gives its share to others. */
	assert_true(CPU_COUNT(&seen) > 1);
	munmap(p, PAGES * page);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_interleaved_and_the_default_comes_back),
		cmocka_unit_test(one_node_needs_nothing),
		cmocka_unit_test(a_policy_from_outside_is_kept),
		cmocka_unit_test(nodes_that_are_not_there_are_refused_by_the_system),
		cmocka_unit_test(pages_lie_on_all_nodes),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
