// SPDX-License-Identifier: MIT
/*
 * cmd_info.c - sits info: which provider is in use, what protections effectively hold, what the daemon serves.
 *
 * The protections of a node without a daemon are found by trying: a small region of each kind is made, looked
 * at and destroyed. Nothing is claimed that was not seen.
 */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "sits/context.h"
#include "sits/infer.h"
#include "sits/queue.h"
#include "sits/region.h"
#include "tools/sits/client.h"
#include "tools/sits/cmd.h"

#define CMD "info"
#define INFO_WAIT_MS	5000
#define PROBE_BYTES	(2u << 20)	/* one huge page */

struct options {
	const char *queue, *run_dir, *provider;
	bool json;
};

static void usage(void)
{
	printf("usage: sits info [OPTION]...\n"
	       "Say which provider is in use, which protections effectively hold, and what the daemon serves.\n\n"
	       "      --json           one JSON object\n"
	       "      --queue NAME     queue of the daemon (default " SITS_INFER_QUEUE ")\n"
	       "      --run-dir DIR    where the daemon's sockets are (default $SITS_RUN_DIR, or /run/sits)\n"
	       "      --provider NAME  auto, kernel or user (default auto)\n"
	       "  -h, --help           this text\n\n"
	       "Exit status: 0 also where no daemon runs; 1 failed, 2 wrong usage.\n");
}

/* Return: -1 to go on, else an exit status. */
static int parse_options(struct options *o, int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "queue", required_argument, NULL, 'Q' },
		{ "run-dir", required_argument, NULL, 'r' },
		{ "provider", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			o->json = true;
			break;
		case 'Q':
			o->queue = optarg;
			break;
		case 'r':
			o->run_dir = optarg;
			break;
		case 'p':
			o->provider = optarg;
			break;
		case 'h':
			usage();
			return 0;
		default:
			return tool_bad_option(CMD, c, argv);
		}
	}
	return optind < argc ? tool_usage(CMD, "unexpected argument '%s'", argv[optind]) : -1;
}

static json_t *region_facts(const struct sits_region *region)
{
	struct sits_region_info i;
	int ret = sits_region_info(region, &i);

	if (ret)
		return json_pack("{s:s}", "error", strerror(-ret));
	return json_pack("{s:b, s:b, s:b, s:b, s:I}", "locked", i.locked, "huge_pages", i.huge_bytes >= PROBE_BYTES,
			 "excluded_from_dumps", i.nodump, "excluded_from_fork", i.nofork, "page_bytes", (json_int_t)i.page_bytes);
}

static json_t *probe(struct sits_ctx *ctx, uint32_t kind)
{
	struct sits_region_opts opts = {
		.size = sizeof(opts), .kind = kind, .node = -1, .len_bytes = PROBE_BYTES, .name = "probe",
		.flags = SITS_REGION_ALLOW_UNLOCKED,
	};
	struct sits_region *region;
	json_t *facts;
	int ret = sits_region_create(ctx, &opts, &region);

	if (ret)
		return json_pack("{s:s}", "error", strerror(-ret));
	facts = region_facts(region);
	sits_region_destroy(region);
	return facts;
}

static json_t *memlock_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r) || r.rlim_cur == RLIM_INFINITY)
		return json_null();
	return json_integer((json_int_t)r.rlim_cur);
}

static json_t *node_facts(struct sits_ctx *ctx)
{
	return json_pack("{s:s, s:s, s:s, s:{s:o, s:o, s:o}, s:o}", "version", SITS_VERSION, "provider", sits_provider_name(ctx),
			 "run_dir", sits_run_dir(ctx), "regions", "pinned", probe(ctx, SITS_REGION_PINNED),
			 "huge", probe(ctx, SITS_REGION_HUGE), "protected", probe(ctx, SITS_REGION_PROTECTED),
			 "memlock_limit_bytes", memlock_limit());
}

/* The daemon's facts, or NULL with words of why not. */
static json_t *daemon_facts(struct sits_ctx *ctx, const struct options *o, char *why, size_t why_len)
{
	struct sits_channel *ch = NULL;
	const char *words;
	json_t *info;
	int ret = client_open(ctx, o->queue, 0, &ch);

	if (ret) {
		client_open_words(ctx, o->queue, ret, why, why_len);
		return NULL;
	}
	info = client_info(ch, INFO_WAIT_MS, &words);
	if (!info)
		snprintf(why, why_len, "%s", words);
	sits_channel_close(ch);
	return info;
}

/* ------------------------------------------------------------------ for people */

static const char *str(const json_t *o, const char *key)
{
	static char safe[4][256];
	static unsigned int turn;
	const char *s = json_string_value(json_object_get(o, key));

	turn = (turn + 1) % 4;
	return tool_print_safe(s ? s : "-", safe[turn], sizeof(safe[0]));
}

static uint64_t num(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *yes(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key)) ? "yes" : "no";
}

static void print_region(const char *name, const json_t *r)
{
	if (json_object_get(r, "error"))
		printf("  %-10s not available: %s\n", name, str(r, "error"));
	else
		printf("  %-10s locked: %s, huge pages: %s, excluded from dumps: %s, from fork: %s\n", name, yes(r, "locked"),
		       yes(r, "huge_pages"), yes(r, "excluded_from_dumps"), yes(r, "excluded_from_fork"));
}

static void print_node(const json_t *n)
{
	const json_t *r = json_object_get(n, "regions"), *limit = json_object_get(n, "memlock_limit_bytes");
	char size[32];

	printf("sits %s, provider %s, run directory %s\n", str(n, "version"), str(n, "provider"), str(n, "run_dir"));
	printf("memory that this user gets here (RLIMIT_MEMLOCK %s):\n",
	       json_is_null(limit) ? "unlimited" : tool_bytes((uint64_t)json_integer_value(limit), size));
	print_region("pinned", json_object_get(r, "pinned"));
	print_region("huge", json_object_get(r, "huge"));
	print_region("protected", json_object_get(r, "protected"));
}

static void print_daemon(const json_t *d)
{
	const json_t *m = json_object_get(d, "model"), *p = json_object_get(d, "protection"), *e = json_object_get(d, "engine");
	const json_t *q = json_object_get(d, "queue"), *c = json_object_get(d, "counters");
	char mapped[32], huge[32], version[24];

	if (json_is_string(json_object_get(m, "version")))
		snprintf(version, sizeof(version), "%s", str(m, "version"));
	else
		snprintf(version, sizeof(version), "%" PRIu64, num(m, "version"));
	printf("daemon: sitsd %s, pid %" PRIu64 ", %s for %.0f s, provider %s\n", str(d, "version"), num(d, "pid"), str(d, "state"),
	       json_number_value(json_object_get(d, "uptime_s")), str(d, "provider"));
	printf("  model      %s, version %s: %s, %s, %.1f M parameters, %s, context %" PRIu64 "\n", str(m, "id"), version,
	       str(m, "name"), str(m, "architecture"), (double)num(m, "parameters") / 1e6, str(m, "quantization"),
	       num(m, "context"));
	printf("  digest     %s\n", str(m, "digest"));
	printf("  weights    %s, %s of it in huge pages; locked: %s, sealed: %s, excluded from dumps: %s, from fork: %s\n",
	       tool_bytes(num(p, "mapped_bytes"), mapped), tool_bytes(num(p, "huge_bytes"), huge), yes(p, "locked"),
	       yes(p, "sealed"), yes(p, "excluded_from_dumps"), yes(p, "excluded_from_fork"));
	printf("  process    ptrace by others: %s, core dumps: %s, new privileges: %s\n", yes(p, "ptrace_by_others"),
	       yes(p, "core_dumps"), json_is_true(json_object_get(p, "no_new_privileges")) ? "no" : "yes");
	printf("  engine     %s, %" PRIu64 " threads, %" PRIu64 " running, %" PRIu64 " waiting, KV pages %" PRIu64 " of %" PRIu64
	       " used\n", str(e, "isa"), num(e, "threads"), num(e, "running"), num(e, "waiting"), num(e, "kv_pages_used"),
	       num(e, "kv_pages"));
	printf("  queue      %s: %" PRIu64 " clients, %" PRIu64 " of %" PRIu64 " requests pending\n", str(q, "name"),
	       num(q, "clients"), num(q, "pending"), num(q, "depth"));
	printf("  requests   %" PRIu64 " so far, %" PRIu64 " prompt and %" PRIu64 " completion tokens\n", num(c, "requests"),
	       num(c, "prompt_tokens"), num(c, "completion_tokens"));
}

static int print_all(struct sits_ctx *ctx, const struct options *o)
{
	json_t *node = node_facts(ctx), *daemon;
	char why[512] = "";

	daemon = daemon_facts(ctx, o, why, sizeof(why));
	if (o->json) {
		json_object_set_new(node, "daemon", daemon ? json_incref(daemon) : json_null());
		json_object_set_new(node, "daemon_error", daemon ? json_null() : json_string(why));
		json_dumpf(node, stdout, JSON_INDENT(2));
		putchar('\n');
	} else {
		print_node(node);
		if (daemon)
			print_daemon(daemon);
		else
			printf("daemon: none: %s\n", why);
	}
	json_decref(daemon);
	json_decref(node);
	return 0;
}

static int cmd_info(int argc, char **argv)
{
	struct options o = { .queue = SITS_INFER_QUEUE };
	struct sits_ctx *ctx = NULL;
	int ret = parse_options(&o, argc, argv);

	if (ret >= 0)
		return ret;
	ret = client_ctx(CMD, o.provider, o.run_dir, &ctx);
	if (ret)
		return ret;
	ret = print_all(ctx, &o);
	sits_close(ctx);
	return ret;
}

const struct sits_cmd sits_cmd_info = {
	.name = "info", .summary = "which provider, which protections, which daemon", .run = cmd_info,
};
