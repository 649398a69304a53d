// SPDX-License-Identifier: MIT
/*
 * topology.c - see topology.h.
 */
#include "daemon/engine/topology.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The longest list of 4,096 CPUs, every other one, has 10 KB. */
#define LIST_BYTES 16384

/* A CPU on its way to its place. */
struct seat {
	uint16_t cpu, node, core;	/* < CPU_SETSIZE */
	uint16_t smt;			/* CPUs of its core before it */
	uint16_t rank;			/* CPUs of its node with its smt before it */
};

_Static_assert(CPU_SETSIZE <= UINT16_MAX, "CPUs and nodes are numbers of 16 bits");

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
	return c == '\n' || c == ' ' || c == '\t' || c == '\r';
}

/* A number at *p, before @end; *p moves behind it. */
static int parse_number(const char **p, const char *end, int *out)
{
	long long v = 0;

	if (*p == end || !is_digit(**p))
		return -EINVAL;
	for (; *p < end && is_digit(**p); (*p)++) {
		v = v * 10 + (**p - '0');
		if (v > INT_MAX)
			return -EINVAL;
	}
	*out = (int)v;
	return 0;
}

int sits_topology_parse(const char *text, size_t len, cpu_set_t *set)
{
	const char *p = text, *end = text + len;
	cpu_set_t got;
	int first, last;

	CPU_ZERO(&got);
	while (end > p && is_space(end[-1]))
		end--;
	while (p < end) {
		if (parse_number(&p, end, &first))
			return -EINVAL;
		last = first;
		if (p < end && *p == '-') {
			p++;
			if (parse_number(&p, end, &last) || last < first)
				return -EINVAL;
		}
		for (; first <= last && first < CPU_SETSIZE; first++)
			CPU_SET(first, &got);
		if (p == end)
			break;
		/* A comma promises one more. */
		if (*p++ != ',' || p == end)
			return -EINVAL;
	}
	*set = got;
	return 0;
}

/* The list in the file @root/@name. Return: 0, or -errno and @set is unchanged. */
static int read_list(const char *root, const char *name, cpu_set_t *set)
{
	char path[PATH_MAX], *text;
	size_t len = 0;
	int ret;
	FILE *f;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", root, name) >= sizeof(path))
		return -ENAMETOOLONG;
	f = fopen(path, "re");
	if (!f)
		return -errno;
	text = malloc(LIST_BYTES);
	ret = text ? 0 : -ENOMEM;
	if (!ret)
		len = fread(text, 1, LIST_BYTES, f);
	if (!ret && (ferror(f) || len == LIST_BYTES))
		ret = -EINVAL;
	fclose(f);
	if (!ret)
		ret = sits_topology_parse(text, len, set);
	free(text);
	return ret;
}

/* The lowest CPU of @cpu's core, or @cpu itself where what is told of it does not hold it. */
static int core_of(const char *root, int cpu)
{
	/* The second is the older name of the first. */
	static const char *const file[] = { "core_cpus_list", "thread_siblings_list" };
	cpu_set_t core;
	char name[64];
	size_t i;
	int first;

	for (i = 0; i < sizeof(file) / sizeof(*file); i++) {
		snprintf(name, sizeof(name), "cpu/cpu%d/topology/%s", cpu, file[i]);
		if (read_list(root, name, &core) || !CPU_ISSET(cpu, &core))
			continue;
		for (first = 0; !CPU_ISSET(first, &core); first++)
			;
		return first;
	}
	return cpu;
}

/* node_of[cpu] for all CPUs: the first node that claims it. */
static void read_nodes(const char *root, uint16_t node_of[CPU_SETSIZE])
{
	bool claimed[CPU_SETSIZE] = { false };
	cpu_set_t nodes, cpus;
	char name[64];
	int node, cpu;

	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		node_of[cpu] = 0;
	if (read_list(root, "node/online", &nodes))
		return;
	for (node = 0; node < CPU_SETSIZE; node++) {
		if (!CPU_ISSET(node, &nodes))
			continue;
		snprintf(name, sizeof(name), "node/node%d/cpulist", node);
		if (read_list(root, name, &cpus))
			continue;
		for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			if (!CPU_ISSET(cpu, &cpus) || claimed[cpu])
				continue;
			claimed[cpu] = true;
			node_of[cpu] = (uint16_t)node;
		}
	}
}

static void drop_offline(const char *root, cpu_set_t *mask)
{
	cpu_set_t online;

	if (read_list(root, "cpu/online", &online))
		return;
	CPU_AND(&online, &online, mask);
	/* The process runs somewhere: a list that has none of its CPUs is wrong. */
	if (CPU_COUNT(&online))
		*mask = online;
}

static int by_place(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;

	if (x->smt != y->smt)
		return x->smt < y->smt ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->node != y->node ? (x->node < y->node ? -1 : 1) : x->cpu - y->cpu;
}

void sits_topology_read(const char *root, const cpu_set_t *mask, struct sits_topology *out)
{
	uint16_t node_of[CPU_SETSIZE];
	struct seat seat[CPU_SETSIZE];
	cpu_set_t online = *mask;
	uint32_t i, nr = 0;
	int cpu;

	drop_offline(root, &online);
	read_nodes(root, node_of);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		struct seat *s = &seat[nr];

		if (!CPU_ISSET(cpu, &online))
			continue;
		*s = (struct seat){ .cpu = (uint16_t)cpu, .node = node_of[cpu], .core = (uint16_t)core_of(root, cpu) };
		for (i = 0; i < nr; i++)
			s->smt += seat[i].core == s->core;
		for (i = 0; i < nr; i++)
			s->rank += seat[i].node == s->node && seat[i].smt == s->smt;
		nr++;
	}
	qsort(seat, nr, sizeof(*seat), by_place);
	out->nr = nr;
	out->cores = 0;
	for (i = 0; i < nr; i++) {
		out->cpu[i] = (struct sits_topology_cpu){ seat[i].cpu, seat[i].node };
		out->cores += !seat[i].smt;
	}
}

uint32_t sits_topology_nodes(const struct sits_topology *t, uint32_t nr, cpu_set_t *set)
{
	cpu_set_t nodes;
	uint32_t i;

	CPU_ZERO(&nodes);
	for (i = 0; i < nr && i < t->nr; i++)
		CPU_SET(t->cpu[i].node, &nodes);
	if (set)
		*set = nodes;
	return (uint32_t)CPU_COUNT(&nodes);
}
