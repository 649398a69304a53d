// SPDX-License-Identifier: MIT
/*
 * topology_test.c - the order in which threads get CPUs, on machines made of files in a temporary folder.
 */
#include "daemon/engine/topology.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/engine/rng.h"

static char root[64];
static struct sits_topology topo;

/* ---- machines ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static int clear(void **state)
{
	return root[0] ? nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS) : 0;
}

/* An empty machine. */
static void fresh(void)
{
	clear(NULL);
	strcpy(root, "/tmp/sits-topology-XXXXXX");
	assert_non_null(mkdtemp(root));
}

static void path_of(char path[256], const char *name)
{
	char *p;

	snprintf(path, 256, "%s/%s", root, name);
	for (p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		assert_true(!mkdir(path, 0700) || errno == EEXIST);
	}
}

static void put_bytes(const char *name, const void *bytes, size_t len)
{
	char path[256];
	FILE *f;

	path_of(path, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void put(const char *name, const char *text)
{
	put_bytes(name, text, strlen(text));
}

static void put_core(const char *file, int cpu, const char *list)
{
	char name[64];

	snprintf(name, sizeof(name), "cpu/cpu%d/topology/%s", cpu, file);
	put(name, list);
}

static void put_node(int node, const char *list)
{
	char name[64];

	snprintf(name, sizeof(name), "node/node%d/cpulist", node);
	put(name, list);
}

/* CPUs c and c + cores share a core, as firmware likes to number them; without @smt each has its own. */
static void put_cores(int cores, bool smt)
{
	char list[32];
	int c;

	for (c = 0; c < cores; c++) {
		snprintf(list, sizeof(list), smt ? "%d,%d\n" : "%d\n", c, c + cores);
		put_core("core_cpus_list", c, list);
		if (smt)
			put_core("core_cpus_list", c + cores, list);
	}
}

/* ---- what is expected ---- */

static cpu_set_t set_of(const char *list)
{
	cpu_set_t set;

	assert_int_equal(sits_topology_parse(list, strlen(list), &set), 0);
	return set;
}

static void read_it(const char *mask)
{
	cpu_set_t set = set_of(mask);

	memset(&topo, 0xa5, sizeof(topo));
	sits_topology_read(root, &set, &topo);
}

/* @want: "CPU/node" in order. */
static void expect(const char *mask, uint32_t cores, const char *want)
{
	char got[1024] = "";
	size_t len = 0;
	uint32_t i;

	read_it(mask);
	for (i = 0; i < topo.nr; i++)
		len += (size_t)snprintf(got + len, sizeof(got) - len, "%s%d/%d", i ? " " : "", topo.cpu[i].cpu, topo.cpu[i].node);
	assert_string_equal(got, want);
	assert_int_equal(topo.cores, cores);
}

/* Each CPU of @mask once and nothing else. */
static void expect_permutation(const cpu_set_t *mask)
{
	cpu_set_t seen;
	uint32_t i;

	CPU_ZERO(&seen);
	assert_int_equal(topo.nr, CPU_COUNT(mask));
	assert_true(topo.cores <= topo.nr && (topo.cores || !topo.nr));
	for (i = 0; i < topo.nr; i++) {
		assert_in_range(topo.cpu[i].cpu, 0, CPU_SETSIZE - 1);
		assert_in_range(topo.cpu[i].node, 0, CPU_SETSIZE - 1);
		CPU_SET(topo.cpu[i].cpu, &seen);
	}
	assert_true(CPU_EQUAL(&seen, mask));
}

/* ---- tests ---- */

static void lists_are_parsed(void **state)
{
	static const struct {
		const char *text;
		int nr, first, last;
	} good[] = {
		{ "", 0, -1, -1 }, { "\n", 0, -1, -1 }, { "0\n", 1, 0, 0 }, { "0-3,8-11,17", 9, 0, 17 }, { "5,5,4-6 \n", 3, 4, 6 },
		{ "7-7", 1, 7, 7 }, { "0-1023\n", 1024, 0, 1023 }, { "1022-2147483647", 2, 1022, 1023 }, { "2000", 0, -1, -1 },
		{ "00012", 1, 12, 12 },
	};
	size_t i;
	int c;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		cpu_set_t set = set_of(good[i].text);
		int first = -1, last = -1;

		for (c = 0; c < CPU_SETSIZE; c++) {
			if (!CPU_ISSET(c, &set))
				continue;
			first = first < 0 ? c : first;
			last = c;
		}
		assert_int_equal(CPU_COUNT(&set), good[i].nr);
		assert_int_equal(first, good[i].first);
		assert_int_equal(last, good[i].last);
	}
}

static const char *const bad_list[] = {
	"x", "-", ",", "1,", ",1", "1,,2", "3-1", "1-", "-1", "1-2-3", "1 2", "0x1", "1.5", "+1", "2147483648", "0-99999999999999999999",
	"1\n2", "0-10:2/5", "all", "\xff\xfe", "0-3;rm", "%s%n",
};

static void what_is_no_list_is_refused(void **state)
{
	cpu_set_t before = set_of("3,9"), set = before;
	size_t i;

	for (i = 0; i < sizeof(bad_list) / sizeof(*bad_list); i++)
		assert_int_equal(sits_topology_parse(bad_list[i], strlen(bad_list[i]), &set), -EINVAL);
	assert_int_equal(sits_topology_parse("1\0", 2, &set), -EINVAL);
	assert_true(CPU_EQUAL(&set, &before));
	/* No end is needed, and none is looked for. */
	assert_int_equal(sits_topology_parse("12", 1, &set), 0);
	assert_true(CPU_ISSET(1, &set) && CPU_COUNT(&set) == 1);
}

static void one_node(void **state)
{
	fresh();
	put("cpu/online", "0-3\n");
	put("node/online", "0\n");
	put_node(0, "0-3\n");
	put_cores(4, false);
	expect("0-3", 4, "0/0 1/0 2/0 3/0");
	assert_int_equal(sits_topology_nodes(&topo, 4, NULL), 1);
	expect("1,3", 2, "1/0 3/0");
	expect("", 0, "");
	assert_int_equal(sits_topology_nodes(&topo, 4, NULL), 0);
}

static void two_nodes_take_turns_and_siblings_come_last(void **state)
{
	cpu_set_t nodes;

	fresh();
	put("cpu/online", "0-15\n");
	put("node/online", "0-1\n");
	put_node(0, "0-3,8-11\n");
	put_node(1, "4-7,12-15\n");
	put_cores(8, true);
	expect("0-15", 8, "0/0 4/1 1/0 5/1 2/0 6/1 3/0 7/1 8/0 12/1 9/0 13/1 10/0 14/1 11/0 15/1");
	assert_int_equal(sits_topology_nodes(&topo, 1, NULL), 1);
	assert_int_equal(sits_topology_nodes(&topo, 2, &nodes), 2);
	assert_true(CPU_ISSET(0, &nodes) && CPU_ISSET(1, &nodes));
	assert_int_equal(sits_topology_nodes(&topo, 1000, NULL), 2);
}

static void siblings_may_be_neighbours(void **state)
{
	static const char *const pair[] = { "0-1\n", "2-3\n", "4-5\n", "6-7\n" };
	int c;

	fresh();
	put("node/online", "0-1\n");
	put_node(0, "0-3\n");
	put_node(1, "4-7\n");
	/* The older name of the file. */
	for (c = 0; c < 8; c++)
		put_core("thread_siblings_list", c, pair[c / 2]);
	expect("0-7", 4, "0/0 4/1 2/0 6/1 1/0 5/1 3/0 7/1");
}

static void four_nodes(void **state)
{
	fresh();
	put("node/online", "0-3\n");
	put_node(0, "0,4,8\n");
	put_node(1, "1,5,9\n");
	put_node(2, "2,6,10\n");
	put_node(3, "3,7,11\n");
	put_cores(12, false);
	expect("0-11", 12, "0/0 1/1 2/2 3/3 4/0 5/1 6/2 7/3 8/0 9/1 10/2 11/3");
	put_node(0, "0-2\n");
	put_node(1, "3-5\n");
	put_node(2, "6-8\n");
	put_node(3, "9-11\n");
	expect("0-11", 12, "0/0 3/1 6/2 9/3 1/0 4/1 7/2 10/3 2/0 5/1 8/2 11/3");
}

static void nodes_of_different_size(void **state)
{
	fresh();
	put("node/online", "0-1\n");
	put_node(0, "0-1\n");
	put_node(1, "2-7\n");
	put_cores(8, false);
	expect("0-7", 8, "0/0 2/1 1/0 3/1 4/1 5/1 6/1 7/1");
}

static void some_nodes_have_no_processors_and_numbers_have_gaps(void **state)
{
	fresh();
	put("node/online", "0,2,8,100\n");
	put_node(0, "0-1\n");
	put_node(2, "\n");
	put_node(8, "2-3\n");
	/* node100 has no file at all, and node1 is not online. */
	put_node(1, "0-3\n");
	put_cores(4, false);
	expect("0-3", 4, "0/0 2/8 1/0 3/8");
	assert_int_equal(sits_topology_nodes(&topo, 4, NULL), 2);
}

static void offline_processors_are_left_out(void **state)
{
	fresh();
	put("cpu/online", "0-2,5,7\n");
	put("node/online", "0-1\n");
	/* sysfs takes an offline CPU out of these lists, and its topology folder away. */
	put_node(0, "0-2\n");
	put_node(1, "5,7\n");
	put_core("core_cpus_list", 0, "0\n");
	put_core("core_cpus_list", 1, "1,5\n");
	put_core("core_cpus_list", 5, "1,5\n");
	expect("0-7", 4, "0/0 7/1 1/0 2/0 5/1");
	/* A list without any CPU of the process is not about this machine. */
	put("cpu/online", "40-50\n");
	expect("0-2", 3, "0/0 1/0 2/0");
	put("cpu/online", "\n");
	expect("0-2", 3, "0/0 1/0 2/0");
}

static void masks_leave_nodes_cores_and_siblings_out(void **state)
{
	fresh();
	put("node/online", "0-1\n");
	put_node(0, "0-3,8-11\n");
	put_node(1, "4-7,12-15\n");
	put_cores(8, true);
	expect("4-7", 4, "4/1 5/1 6/1 7/1");
	/* Second siblings alone are a core each. */
	expect("8-15", 8, "8/0 12/1 9/0 13/1 10/0 14/1 11/0 15/1");
	expect("0,8,9,13", 3, "0/0 13/1 9/0 8/0");
	expect("3,11", 1, "3/0 11/0");
	expect("1,1000", 2, "1/0 1000/0");
}

static void nothing_is_told(void **state)
{
	fresh();
	expect("0-2,9", 4, "0/0 1/0 2/0 9/0");
	clear(NULL);
	expect("0-2,1023", 4, "0/0 1/0 2/0 1023/0");
	root[0] = '\0';
	/* A name that no file can have. */
	{
		static char deep[5000];
		cpu_set_t set = set_of("0-1");

		memset(deep, 'a', sizeof(deep) - 1);
		sits_topology_read(deep, &set, &topo);
		expect_permutation(&set);
		assert_int_equal(topo.cores, 2);
	}
}

static void claims_that_contradict_each_other(void **state)
{
	fresh();
	put("node/online", "0-1\n");
	put_node(0, "0-3\n");
	put_node(1, "0-3\n");
	put_core("core_cpus_list", 0, "0-1\n");
	put_core("core_cpus_list", 1, "1\n");	/* 0 says they share, 1 does not */
	put_core("core_cpus_list", 2, "0,3\n");	/* not about 2 */
	put_core("core_cpus_list", 3, "0-1023\n");
	expect("0-3", 3, "0/0 1/0 2/0 3/0");
	/* A core on two nodes. */
	put_node(0, "0,2\n");
	put_core("core_cpus_list", 0, "0-1\n");
	put_core("core_cpus_list", 1, "0-1\n");
	put_core("core_cpus_list", 2, "2\n");
	put_core("core_cpus_list", 3, "3\n");
	expect("0-3", 3, "0/0 3/1 2/0 1/1");
}

static void a_bad_file_counts_as_missing(void **state)
{
	static const char *const file[] = {
		"cpu/online", "node/online", "node/node0/cpulist", "node/node1/cpulist", "cpu/cpu0/topology/core_cpus_list",
		"cpu/cpu5/topology/core_cpus_list",
	};
	const cpu_set_t all = set_of("0-7");
	char path[256], *large = malloc(70000);
	struct sits_topology without;
	size_t i, j;

	assert_non_null(large);
	memset(large, '1', 70000);
	for (i = 0; i < sizeof(file) / sizeof(*file); i++) {
		fresh();
		put("cpu/online", "0-7\n");
		put("node/online", "0-1\n");
		put_node(0, "0-1,4-5\n");
		put_node(1, "2-3,6-7\n");
		put_cores(4, true);
		path_of(path, file[i]);
		assert_int_equal(unlink(path), 0);
		read_it("0-7");
		expect_permutation(&all);
		without = topo;
		for (j = 0; j < sizeof(bad_list) / sizeof(*bad_list) + 2; j++) {
			if (j < sizeof(bad_list) / sizeof(*bad_list))
				put(file[i], bad_list[j]);
			else if (j == sizeof(bad_list) / sizeof(*bad_list))
				put_bytes(file[i], large, 70000);
			else
				assert_true(!unlink(path) && !mkdir(path, 0700));
			read_it("0-7");
			assert_int_equal(topo.nr, without.nr);
			assert_int_equal(topo.cores, without.cores);
			assert_memory_equal(topo.cpu, without.cpu, topo.nr * sizeof(*topo.cpu));
		}
	}
	free(large);
}

static void whatever_files_hold_each_processor_comes_once(void **state)
{
	static const char alphabet[] = "0123456789-,\n 15";
	struct rng rng = rng_seeded(__func__);
	uint8_t bytes[24];
	char name[64];
	int round, k, i;

	for (round = 0; round < 60; round++) {
		cpu_set_t mask;

		fresh();
		CPU_ZERO(&mask);
		for (k = 0; k < 40; k++) {
			size_t len = rng_below(&rng, sizeof(bytes));
			int cpu = (int)rng_below(&rng, 16);

			for (i = 0; i < (int)len; i++)
				bytes[i] = rng_below(&rng, 50) ? (uint8_t)alphabet[rng_below(&rng, sizeof(alphabet) - 1)] :
					   (uint8_t)rng_next(&rng);
			if (k == 0)
				snprintf(name, sizeof(name), "node/online");
			else if (k == 1)
				snprintf(name, sizeof(name), "node/node%d/cpulist", (int)rng_below(&rng, 8));
			else
				snprintf(name, sizeof(name), "cpu/cpu%d/topology/core_cpus_list", cpu);
			put_bytes(name, bytes, len);
			CPU_SET(cpu, &mask);
		}
		sits_topology_read(root, &mask, &topo);
		expect_permutation(&mask);
	}
}

/* Of the first n cores no node has more than one above another that has cores left. */
static void expect_fair(void)
{
	uint32_t taken[16] = { 0 }, have[16] = { 0 }, i;
	int a, b;

	for (i = 0; i < topo.cores; i++)
		have[topo.cpu[i].node]++;
	for (i = 0; i < topo.cores; i++) {
		taken[topo.cpu[i].node]++;
		for (a = 0; a < 16; a++)
			for (b = 0; b < 16; b++)
				assert_true(taken[a] <= taken[b] + 1 || taken[b] == have[b]);
	}
}

static void any_number_of_threads_is_spread_evenly(void **state)
{
	struct rng rng = rng_seeded(__func__);
	int round, cpu, node;

	for (round = 0; round < 20; round++) {
		int nodes = 1 + (int)rng_below(&rng, 8), cores = 1 + (int)rng_below(&rng, 24);
		bool smt = rng_below(&rng, 2);
		char list[8][512] = { "" }, online[16];
		cpu_set_t all;

		fresh();
		CPU_ZERO(&all);
		put_cores(cores, smt);
		for (cpu = 0; cpu < cores; cpu++) {
			char *l;

			node = (int)rng_below(&rng, (uint32_t)nodes);
			l = list[node] + strlen(list[node]);
			if (smt)
				snprintf(l, 16, "%s%d,%d", l == list[node] ? "" : ",", cpu, cpu + cores);
			else
				snprintf(l, 16, "%s%d", l == list[node] ? "" : ",", cpu);
			CPU_SET(cpu, &all);
			if (smt)
				CPU_SET(cpu + cores, &all);
		}
		snprintf(online, sizeof(online), "0-%d\n", nodes - 1);
		put("node/online", online);
		for (node = 0; node < nodes; node++)
			put_node(node, list[node]);
		sits_topology_read(root, &all, &topo);
		expect_permutation(&all);
		assert_int_equal(topo.cores, cores);
		for (cpu = 0; cpu < cores; cpu++)
			assert_true(topo.cpu[cpu].cpu < cores);
		expect_fair();
	}
}

static void this_machine(void **state)
{
	cpu_set_t mask;

	assert_int_equal(sched_getaffinity(0, sizeof(mask), &mask), 0);
	sits_topology_read(SITS_TOPOLOGY_ROOT, &mask, &topo);
	expect_permutation(&mask);
	assert_true(sits_topology_nodes(&topo, topo.nr, NULL) >= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_parsed),
		cmocka_unit_test(what_is_no_list_is_refused),
		cmocka_unit_test(one_node),
		cmocka_unit_test(two_nodes_take_turns_and_siblings_come_last),
		cmocka_unit_test(siblings_may_be_neighbours),
		cmocka_unit_test(four_nodes),
		cmocka_unit_test(nodes_of_different_size),
		cmocka_unit_test(some_nodes_have_no_processors_and_numbers_have_gaps),
		cmocka_unit_test(offline_processors_are_left_out),
		cmocka_unit_test(masks_leave_nodes_cores_and_siblings_out),
		cmocka_unit_test(nothing_is_told),
		cmocka_unit_test(claims_that_contradict_each_other),
		cmocka_unit_test(a_bad_file_counts_as_missing),
		cmocka_unit_test(whatever_files_hold_each_processor_comes_once),
		cmocka_unit_test(any_number_of_threads_is_spread_evenly),
		cmocka_unit_test(this_machine),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, clear);
}
