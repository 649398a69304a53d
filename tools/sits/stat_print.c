// SPDX-License-Identifier: MIT
/*
 * stat_print.c - see stat_print.h.
 */
#include "tools/sits/stat_print.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/sits/cmd.h"

#define MORE_HOLDERS	3	/* holders of a region that are named */

/* jansson iterates over objects that it may change. */
#define FOR_EACH(object, key, val) \
	json_object_foreach((json_t *)(uintptr_t)(object), key, val)

static const json_t *get(const json_t *o, const char *key)
{
	return json_object_get(o, key);
}

static json_int_t num(const json_t *o, const char *key)
{
	return json_integer_value(get(o, key));
}

/* Whatever @v is, as text that a terminal can take. */
static const char *text(const json_t *v, char *buf, unsigned int len)
{
	char number[24];

	if (json_is_integer(v)) {
		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		return tool_print_safe(number, buf, len);
	}
	return tool_print_safe(json_is_string(v) ? json_string_value(v) : "-", buf, len);
}

static void print_module(const json_t *m)
{
	const json_t *v;
	const char *key;
	char a[64], b[64];

	printf("module: sits %s, in use by %s;", text(get(m, "version"), a, sizeof(a)), text(get(m, "users"), b, sizeof(b)));
	FOR_EACH(get(m, "parameters"), key, v) {
		size_t n = strlen(key);

		/* Permissions are decimal in sysfs, and octal everywhere else. */
		if (json_is_integer(v) && n > 5 && !strcmp(key + n - 5, "_mode"))
			printf(" %s=0%llo", key, (unsigned long long)json_integer_value(v));
		else
			printf(" %s=%s", tool_print_safe(key, a, sizeof(a)), text(v, b, sizeof(b)));
	}
	putchar('\n');
}

static void print_words(const json_t *list, const char *none)
{
	size_t i;

	for (i = 0; i < json_array_size(list); i++)
		printf("%s%s", i ? " " : "", json_string_value(json_array_get(list, i)));
	if (!json_array_size(list))
		fputs(none, stdout);
}

static void print_device(const json_t *d)
{
	const json_t *limit = get(d, "region_limit_bytes");
	char used[32], most[32];

	printf("device: %s, ABI %" JSON_INTEGER_FORMAT ": ", json_string_value(get(d, "path")), num(d, "abi_version"));
	print_words(get(d, "features"), "no features");
	printf("\n  regions    %" JSON_INTEGER_FORMAT ", %s of %s\n", num(d, "regions"),
	       tool_bytes((uint64_t)num(d, "region_used_bytes"), used),
	       json_is_integer(limit) ? tool_bytes((uint64_t)json_integer_value(limit), most) : "any number");
	printf("  queues     %" JSON_INTEGER_FORMAT ", with %" JSON_INTEGER_FORMAT " channels\n", num(d, "queues"), num(d, "channels"));
	printf("  memory     %s by the platform\n", json_is_true(get(d, "encrypted_by_platform")) ? "encrypted" : "not encrypted");
}

static void print_counters(const json_t *all, const json_t *before)
{
	const json_t *counters = get(all, "counters"), *old = get(before, "counters"), *v;
	double seconds = json_number_value(get(all, "time")) - json_number_value(get(before, "time"));
	char name[64], now[64];
	const char *key;

	if (!json_object_size(counters))
		return;
	printf("counters:\n");
	FOR_EACH(counters, key, v) {
		json_int_t change = json_integer_value(v) - json_integer_value(get(old, key));

		printf("  %-24s %20s", tool_print_safe(key, name, sizeof(name)), text(v, now, sizeof(now)));
		if (json_is_integer(v) && json_is_integer(get(old, key)) && change && seconds > 0)
			printf("  %+" JSON_INTEGER_FORMAT ", %.1f/s", change, (double)change / seconds);
		putchar('\n');
	}
}

static void print_holders(const json_t *holders)
{
	size_t i, n = json_array_size(holders);
	char command[64];

	for (i = 0; i < n && i < MORE_HOLDERS; i++) {
		const json_t *h = json_array_get(holders, i);

		printf("%s%" JSON_INTEGER_FORMAT " %s", i ? ", " : "", num(h, "pid"), text(get(h, "command"), command, sizeof(command)));
	}
	if (n > MORE_HOLDERS)
		printf(", and %zu more", n - MORE_HOLDERS);
	putchar('\n');
}

static void print_region(const json_t *r)
{
	bool known = get(r, "page_bytes") != NULL;
	char name[64], kind[32], bytes[32], page[32] = "-";

	if (known)
		tool_bytes((uint64_t)num(r, "page_bytes"), page);
	text(get(r, "name"), name, sizeof(name));
	printf("  %-20s %-10s %10s %10s ", name[0] ? name : "-", text(get(r, "kind"), kind, sizeof(kind)),
	       tool_bytes((uint64_t)num(r, "mapped_bytes"), bytes), page);
	if (known)
		printf("%9" JSON_INTEGER_FORMAT "  ", num(r, "importers"));
	else
		printf("%9s  ", "-");
	print_holders(get(r, "holders"));
	if (known) {
		printf("  %-20s ", "");
		print_words(get(r, "state"), "-");
		putchar('\n');
	}
}

static void print_file(const json_t *f)
{
	char command[64], file[64], a[64], b[64];
	const json_t *v;
	const char *key;

	printf("  %s of %" JSON_INTEGER_FORMAT " %s:", text(get(f, "file"), file, sizeof(file)), num(f, "pid"),
	       text(get(f, "command"), command, sizeof(command)));
	FOR_EACH(get(f, "facts"), key, v)
		printf(" %s=%s", tool_print_safe(key, a, sizeof(a)), text(v, b, sizeof(b)));
	putchar('\n');
}

static void print_held(const json_t *all)
{
	const json_t *held = get(all, "held"), *regions = get(held, "regions"), *files = get(held, "files");
	size_t i, n = json_array_size(regions);

	printf("regions that descriptors lead to, %zu of %" JSON_INTEGER_FORMAT ":\n", n, num(get(all, "device"), "regions"));
	if (n)
		printf("  %-20s %-10s %10s %10s %9s  %s\n", "name, state", "kind", "mapped", "page", "importers", "held by");
	for (i = 0; i < n; i++)
		print_region(json_array_get(regions, i));
	if (json_array_size(files))
		printf("other files of the module:\n");
	for (i = 0; i < json_array_size(files); i++)
		print_file(json_array_get(files, i));
	if (num(held, "hidden_processes"))
		printf("%" JSON_INTEGER_FORMAT " processes of others were not looked into: root sees all\n", num(held, "hidden_processes"));
}

static void print_socket(const json_t *s)
{
	const json_t *q = get(s, "queue"), *c = get(s, "counters");
	char name[64], state[32], why[512];

	printf("  %s: ", text(get(s, "name"), name, sizeof(name)));
	if (get(s, "error"))
		printf("%s\n", text(get(s, "error"), why, sizeof(why)));
	else
		printf("sitsd %" JSON_INTEGER_FORMAT " %s; %" JSON_INTEGER_FORMAT " clients, %" JSON_INTEGER_FORMAT " of %"
		       JSON_INTEGER_FORMAT " requests pending, %" JSON_INTEGER_FORMAT " so far\n", num(s, "pid"),
		       text(get(s, "state"), state, sizeof(state)), num(q, "clients"), num(q, "pending"), num(q, "depth"),
		       num(c, "requests"));
}

void stat_print(const json_t *all, const json_t *before)
{
	const json_t *socket_list = get(all, "sockets");
	char a[512], b[32], c[256];
	size_t i;

	printf("sits %s; libsits takes the provider %s here\n", text(get(all, "version"), a, sizeof(a)),
	       text(get(all, "provider"), b, sizeof(b)));
	if (json_is_object(get(all, "module")))
		print_module(get(all, "module"));
	if (json_is_object(get(all, "device")))
		print_device(get(all, "device"));
	else if (get(all, "device"))
		printf("device: %s\n", text(get(all, "device_error"), c, sizeof(c)));
	print_counters(all, before);
	if (json_is_object(get(all, "held")))
		print_held(all);
	if (!socket_list)
		return;
	printf("queues over sockets in %s:%s\n", text(get(all, "run_dir"), a, sizeof(a)), json_array_size(socket_list) ? "" : " none");
	for (i = 0; i < json_array_size(socket_list); i++)
		print_socket(json_array_get(socket_list, i));
}
