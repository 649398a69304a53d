// SPDX-License-Identifier: MIT
/*
 * cmd_info.c - sits info: which provider is in use, what protections effectively hold, what the daemon serves.
 *
 * The protections of a node without a daemon are found by trying (info_providers.c).
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "sits/context.h"
#include "sits/infer.h"
#include "sits/queue.h"
#include "tools/sits/client.h"
#include "tools/sits/cmd.h"
#include "tools/sits/info_providers.h"
#include "tools/sits/tool_opts.h"

#define CMD "info"
#define INFO_WAIT_MS	5000

struct options {
	const char *queue, *run_dir, *provider;
	bool json;
};

static const char help[] =
	"usage: sits info [OPTION]...\n"
	"Say which provider is in use, which protections effectively hold, and what the daemon serves.\n\n"
	"      --json           one JSON object\n"
	"      --queue NAME     queue of the daemon (default " SITS_INFER_QUEUE ")\n"
	"      --run-dir DIR    where the daemon's sockets are (default $SITS_RUN_DIR, or /run/sits)\n"
	"      --provider NAME  auto, kernel or user (default auto)\n"
	"  -h, --help           this text\n\n"
	"Exit status: 0 also where no daemon runs; 1 failed, 2 wrong usage.\n";

/* Return: -1 to go on, else an exit status. */
static int parse_options(struct options *o, int argc, char **argv)
{
	const struct tool_opt opt[] = {
		{ "json", .flag = &o->json },
		{ "queue", .text = &o->queue },
		{ "run-dir", .text = &o->run_dir },
		{ "provider", .text = &o->provider },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt };

	return tool_parse(&l, argc, argv);
}

static json_t *memlock_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r) || r.rlim_cur == RLIM_INFINITY)
		return json_null();
	return json_integer((json_int_t)r.rlim_cur);
}

/* Why libsits takes the provider that it takes, where it was left the choice. */
static json_t *reason(const struct options *o, const json_t *providers, const char *chosen)
{
	const json_t *kernel = json_object_get(providers, "kernel");
	const char *why = json_string_value(json_object_get(kernel, "error"));

	if (o->provider && strcmp(o->provider, "auto"))
		return json_string("as asked for");
	if (!strcmp(chosen, "kernel"))
		return json_string("/dev/sits answers");
	if (why)
		return json_string("the kernel provider is not available");
	why = json_string_value(json_object_get(kernel, "warning"));
	return json_string(why ? why : "libsits does not take the kernel provider");
}

static json_t *node_facts(struct sits_ctx *ctx, const struct options *o)
{
	json_t *regions = info_regions(ctx, client_said()), *providers = info_providers(ctx, regions, o->run_dir);

	return json_pack("{s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o}", "version", SITS_VERSION, "provider", sits_provider_name(ctx),
			 "provider_reason", reason(o, providers, sits_provider_name(ctx)), "run_dir", sits_run_dir(ctx),
			 "module", info_module(), "regions", regions, "providers", providers, "memlock_limit_bytes", memlock_limit());
}

/* The daemon's facts, or NULL with words of why not. */
static json_t *daemon_facts(struct sits_ctx **ctx, const struct options *o, char *why, size_t why_len)
{
	struct sits_channel *ch = NULL;
	const char *words;
	json_t *info;
	int ret = client_open(ctx, o->queue, 0, &ch);

	if (ret) {
		client_open_words(*ctx, o->queue, ret, why, why_len);
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

static void print_module(const json_t *m)
{
	const json_t *features = json_object_get(m, "features");
	size_t i;

	if (!json_is_object(m))
		return;
	printf("module: sits %s, ABI %" PRIu64 ":", str(m, "version"), num(m, "abi_version"));
	for (i = 0; i < json_array_size(features); i++)
		printf(" %s", json_string_value(json_array_get(features, i)));
	putchar('\n');
}

static void print_node(const json_t *n)
{
	const json_t *limit = json_object_get(n, "memlock_limit_bytes"), *p;
	const char *name;
	char size[32];

	printf("sits %s, provider %s (%s), run directory %s\n", str(n, "version"), str(n, "provider"), str(n, "provider_reason"),
	       str(n, "run_dir"));
	print_module(json_object_get(n, "module"));
	printf("memory that this user gets here (RLIMIT_MEMLOCK %s):\n",
	       json_is_null(limit) ? "unlimited" : tool_bytes((uint64_t)json_integer_value(limit), size));
	json_object_foreach(json_object_get(n, "providers"), name, p) {
		if (json_is_true(json_object_get(p, "available")))
			info_print_regions(name, json_object_get(p, "regions"));
		else
			printf("  %s: not available: %s\n", name, str(p, "error"));
	}
}

/* Of a mixture of experts. */
static void print_experts(const json_t *x)
{
	if (!json_is_object(x))
		return;
	printf("  experts    %" PRIu64 " of %" PRIu64 " for each token, %" PRIu64 " rows routed, %" PRIu64 " pairs dropped", num(x, "used"),
	       num(x, "count"), num(x, "routed"), num(x, "dropped"));
	if (num(x, "pattern_queries"))
		printf("; patterns known %" PRIu64 " of %" PRIu64 ", pairs as remembered %" PRIu64 " of %" PRIu64,
		       num(x, "pattern_hits"), num(x, "pattern_queries"), num(x, "predicted_hits"), num(x, "predicted_pairs"));
	putchar('\n');
}

/* Where the engine's threads are; nothing of a daemon that does not tell. Return: @text. */
static const char *placement(const json_t *engine, char text[48])
{
	uint64_t nodes = num(engine, "thread_nodes");

	text[0] = '\0';
	if (nodes)
		snprintf(text, 48, " (pinned, on %" PRIu64 " NUMA node%s)", nodes, nodes == 1 ? "" : "s");
	else if (json_object_get(engine, "thread_nodes"))
		snprintf(text, 48, " (not pinned)");
	return text;
}

static void print_daemon(const json_t *d)
{
	const json_t *m = json_object_get(d, "model"), *p = json_object_get(d, "protection"), *e = json_object_get(d, "engine");
	const json_t *q = json_object_get(d, "queue"), *c = json_object_get(d, "counters");
	char mapped[32], huge[32], version[24], where[48];

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
	printf("  engine     %s, %" PRIu64 " threads%s, %" PRIu64 " running, %" PRIu64 " waiting, KV pages %" PRIu64 " of %" PRIu64
	       " used\n", str(e, "isa"), num(e, "threads"), placement(e, where), num(e, "running"), num(e, "waiting"), num(e, "kv_pages_used"),
	       num(e, "kv_pages"));
	printf("  reuse      %" PRIu64 " of %" PRIu64 " prompt tokens found in KV pages, %" PRIu64 " pages kept; %" PRIu64 " of %"
	       PRIu64 " guessed tokens right\n", num(e, "prefix_cache_hits"), num(e, "prefix_cache_queries"),
	       num(e, "kv_pages_cached"), num(e, "draft_accepted"), num(e, "draft_tokens"));
	if (num(e, "kv_keep"))
		printf("  keys       each head keeps %" PRIu64 " tokens, on average; %" PRIu64 " KV pages given up\n",
		       num(e, "kv_keep"), num(e, "kv_pages_given_up"));
	print_experts(json_object_get(d, "experts"));
	printf("  queue      %s: %" PRIu64 " clients, %" PRIu64 " of %" PRIu64 " requests pending\n", str(q, "name"),
	       num(q, "clients"), num(q, "pending"), num(q, "depth"));
	printf("  requests   %" PRIu64 " so far, %" PRIu64 " prompt and %" PRIu64 " completion tokens\n", num(c, "requests"),
	       num(c, "prompt_tokens"), num(c, "completion_tokens"));
}

static int print_all(struct sits_ctx **ctx, const struct options *o)
{
	json_t *node = node_facts(*ctx, o), *daemon;
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
	ret = print_all(&ctx, &o);
	sits_close(ctx);
	return ret;
}

const struct sits_cmd sits_cmd_info = {
	.name = "info", .summary = "which provider, which protections, which daemon", .run = cmd_info,
};
