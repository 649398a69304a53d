// SPDX-License-Identifier: MIT
/*
 * cmd_stat.c - sits stat: what the kernel module holds and has done, and what serves beside it over sockets.
 *
 * Gathered as JSON (stat_data.c), once or again and again; shown as it is, or laid out for people by stat_print.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sits/context.h"
#include "sits/queue.h"
#include "tools/sits/client.h"
#include "tools/sits/cmd.h"
#include "tools/sits/stat_data.h"
#include "tools/sits/stat_print.h"
#include "tools/sits/tool_opts.h"

#define CMD "stat"
#define INFO_WAIT_MS	2000
#define SECONDS_MAX	86400
#define SOCKET_SUFFIX	".sock"

struct options {
	const char *provider, *run_dir;
	bool json;
	double watch_s;		/* 0: once */
	uint64_t count;		/* 0: until stopped */
};

static const char help[] =
	"usage: sits stat [OPTION]...\n"
	"Show what the kernel module holds and has done since it was loaded, and the queues that are served over sockets.\n\n"
	"      --json           one JSON object; with --watch one on each line\n"
	"      --watch SECONDS  again every so often, with what changed, until stopped\n"
	"      --count N        with --watch: N times, then end\n"
	"      --provider NAME  kernel: the module alone; user: the sockets alone; auto: both (default auto)\n"
	"      --run-dir DIR    where the sockets are (default $SITS_RUN_DIR, or /run/sits)\n"
	"  -h, --help           this text\n\n"
	"Exit status: 0 shown, also where the module is not loaded; 1 failed, also where it is not loaded and\n"
	"--provider kernel was given; 2 wrong usage.\n";

static int take_watch(void *arg, const char *text)
{
	struct options *o = arg;
	char *end;

	errno = 0;
	o->watch_s = strtod(text, &end);
	if (!*text || *end || errno || !isfinite(o->watch_s) || o->watch_s <= 0 || o->watch_s > SECONDS_MAX)
		return tool_usage(CMD, "--watch: '%s' is not a number of seconds above 0 and up to %d", text, SECONDS_MAX);
	return 0;
}

static int take_count(void *arg, const char *text)
{
	struct options *o = arg;

	if (!tool_parse_number(text, &o->count) || !o->count)
		return tool_usage(CMD, "--count: '%s' is not a number above 0", text);
	return 0;
}

/* Return: -1 to go on, else an exit status. */
static int parse_options(struct options *o, int argc, char **argv)
{
	const struct tool_opt opt[] = {
		{ "json", .flag = &o->json },
		{ "watch", .take = take_watch },
		{ "count", .take = take_count },
		{ "provider", .text = &o->provider },
		{ "run-dir", .text = &o->run_dir },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .arg = o };
	int status = tool_parse(&l, argc, argv);

	if (status >= 0)
		return status;
	if (strcmp(o->provider, "auto") && strcmp(o->provider, "kernel") && strcmp(o->provider, "user"))
		return tool_usage(CMD, "unknown provider '%s': it is auto, kernel or user", o->provider);
	if (o->count && o->watch_s == 0)
		return tool_usage(CMD, "--count goes with --watch");
	return -1;
}

/* ------------------------------------------------------------------ the user provider's queues */

/* @name: of the queue. What its daemon says of it and of itself, or why it says nothing. */
static json_t *socket_facts(struct sits_ctx *ctx, const char *name)
{
	static const char *const copied[] = { "pid", "state", "queue", "counters" };
	json_t *facts = json_pack("{s:s}", "name", name), *info = NULL;
	struct sits_channel *ch = NULL;
	const char *words = NULL;
	char why[512];
	size_t i;
	int ret;

	if (!facts)	/* no UTF-8 */
		return NULL;
	ret = sits_channel_open(ctx, name, 0, &ch);
	if (ret) {
		words = client_open_words(ctx, name, ret, why, sizeof(why));
	} else {
		info = client_info(ch, INFO_WAIT_MS, &words);
		sits_channel_close(ch);
	}
	if (!info)
		json_object_set_new(facts, "error", json_string(words));
	for (i = 0; info && i < sizeof(copied) / sizeof(copied[0]); i++)
		json_object_set(facts, copied[i], json_object_get(info, copied[i]));
	json_decref(info);
	return facts;
}

static bool is_socket_name(const char *file, char *name, size_t len)
{
	size_t n = strlen(file), s = strlen(SOCKET_SUFFIX);

	if (file[0] == '.' || n <= s || n - s >= len || strcmp(file + n - s, SOCKET_SUFFIX))
		return false;
	memcpy(name, file, n - s);
	name[n - s] = '\0';
	return true;
}

static json_t *sockets(const char *run_dir)
{
	json_t *all = json_array();
	struct sits_ctx *ctx = NULL;
	struct dirent **list = NULL;
	char name[64];
	int n, i;

	if (client_ctx(CMD, "user", run_dir, &ctx))
		return all;
	n = scandir(sits_run_dir(ctx), &list, NULL, alphasort);
	for (i = 0; i < n; i++) {
		if (is_socket_name(list[i]->d_name, name, sizeof(name)))
			json_array_append_new(all, socket_facts(ctx, name));
		free(list[i]);
	}
	free(list);
	sits_close(ctx);
	return all;
}

/* ------------------------------------------------------------------ all of it */

/* What to do about a device that does not answer. */
static const char *device_words(int err)
{
	switch (err) {
	case -ENOENT:
		return "the module is not loaded: 'modprobe sits'";
	case -ENXIO:
	case -ENODEV:
		return "the node is there but no module behind it: 'modprobe sits'";
	case -EACCES:
	case -EPERM:
		return "permission denied: see node_mode in sits(4), and the udev rule";
	case -ENOTTY:
		return "what answers there is not SITS";
	default:
		return strerror(-err);
	}
}

static void add_module(json_t *all, int *err)
{
	struct stat_live live = { .fd = -1 };
	struct stat_source src = stat_live_source(&live);
	json_t *module = stat_module(&src), *device;	/* whose users do not include this program yet */
	char why[256];

	live.fd = open(SITS_DEV_PATH, O_RDWR | O_CLOEXEC);
	live.err = live.fd < 0 ? -errno : 0;
	device = stat_device(&src, err);
	snprintf(why, sizeof(why), "%s: %s", SITS_DEV_PATH, *err ? device_words(*err) : "");
	json_object_set_new(all, "module", module ? module : json_null());
	json_object_set_new(all, "device", device ? device : json_null());
	json_object_set_new(all, "device_error", *err ? json_string(why) : json_null());
	json_object_set_new(all, "counters", stat_counters(&src));
	json_object_set_new(all, "held", module ? stat_held(&src) : json_null());
	if (live.fd >= 0)
		close(live.fd);
}

/* @chosen: the provider that AUTO takes here. @err: out: 0 or -errno of the device. */
static json_t *gather(const struct options *o, const char *chosen, const char *run_dir, int *err)
{
	struct timespec now;
	json_t *all;

	clock_gettime(CLOCK_REALTIME, &now);
	all = json_pack("{s:s, s:f, s:s, s:s}", "version", SITS_VERSION, "time", (double)now.tv_sec + (double)now.tv_nsec * 1e-9,
			"provider", chosen, "run_dir", run_dir);
	*err = 0;
	if (strcmp(o->provider, "user"))
		add_module(all, err);
	if (strcmp(o->provider, "kernel"))
		json_object_set_new(all, "sockets", sockets(o->run_dir));
	return all;
}

static void show(const struct options *o, const json_t *all, const json_t *before)
{
	if (o->json) {
		json_dumpf(all, stdout, o->watch_s > 0 ? JSON_COMPACT : JSON_INDENT(2));
		putchar('\n');
	} else {
		if (o->watch_s > 0 && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		else if (before)
			putchar('\n');
		stat_print(all, before);
	}
}

/* A signal ends the wait; it may have come before. */
static void wait_until(struct timespec *when, double seconds)
{
	sigset_t block, old;
	struct timespec now;
	double left;

	when->tv_sec += (time_t)seconds;
	when->tv_nsec += (long)((seconds - floor(seconds)) * 1e9);
	if (when->tv_nsec >= 1000000000) {
		when->tv_nsec -= 1000000000;
		when->tv_sec++;
	}
	sigfillset(&block);
	sigprocmask(SIG_BLOCK, &block, &old);
	clock_gettime(CLOCK_MONOTONIC, &now);
	left = (double)(when->tv_sec - now.tv_sec) + (double)(when->tv_nsec - now.tv_nsec) * 1e-9;
	if (left > 0 && !tool_signal()) {
		now.tv_sec = (time_t)left;
		now.tv_nsec = (long)((left - floor(left)) * 1e9);
		ppoll(NULL, 0, &now, &old);
	} else if (left <= 0) {
		clock_gettime(CLOCK_MONOTONIC, when);	/* gathering takes longer than that: no hurry to catch up */
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static int show_all(const struct options *o, const char *chosen, const char *run_dir)
{
	json_t *before = NULL, *all = NULL;
	struct timespec when;
	uint64_t shown = 0;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &when);
	do {
		if (shown)
			wait_until(&when, o->watch_s);
		if (tool_signal())
			break;
		json_decref(before);
		before = all;
		all = gather(o, chosen, run_dir, &err);
		if (err && !strcmp(o->provider, "kernel"))
			break;
		show(o, all, before);
		shown++;
	} while (o->watch_s > 0 && shown != o->count && !fflush(stdout) && !ferror(stdout));
	if (err && !strcmp(o->provider, "kernel"))
		err = tool_error(CMD, "%s", json_string_value(json_object_get(all, "device_error")));
	else
		err = 0;
	json_decref(before);
	json_decref(all);
	return err ? err : tool_signal() ? 128 + tool_signal() : 0;
}

static int cmd_stat(int argc, char **argv)
{
	struct options o = { .provider = "auto" };
	struct sits_ctx *ctx = NULL;
	int ret = parse_options(&o, argc, argv);
	const char *chosen;
	char *run_dir;

	if (ret >= 0)
		return ret;
	if (o.watch_s > 0)
		tool_catch_signals();
	/* Asked as a program would: what libsits takes on this machine, whatever is shown. Closed, as it would be in what is shown. */
	ret = client_ctx(CMD, "auto", o.run_dir, &ctx);
	if (ret)
		return ret;
	chosen = sits_provider_name(ctx);
	run_dir = strdup(sits_run_dir(ctx));
	sits_close(ctx);
	if (!run_dir)
		return tool_error(CMD, "%s", strerror(ENOMEM));
	ret = show_all(&o, chosen, run_dir);
	free(run_dir);
	return ret;
}

const struct sits_cmd sits_cmd_stat = {
	.name = "stat", .summary = "what the kernel module holds and has done", .run = cmd_stat,
};
