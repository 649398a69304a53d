// SPDX-License-Identifier: MIT
/*
 * main.c - sitsd: reads the configuration, loads the model, serves until told to stop.
 *
 * The main thread loads, then waits for signals and for the other threads' news. It alone starts and stops
 * the rooms, in this order: run directory, node (key, weights, model), loop (engine), queue, ingress. The queue
 * comes last, so that its socket exists only once requests can be served.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/info.h"
#include "daemon/ingress/ingress.h"
#include "daemon/log.h"
#include "daemon/node.h"
#include "sits/queue.h"

#define EXIT_FAILED	1
#define EXIT_USAGE	2		/* and a configuration that can't be used */
#define MAX_OVERRIDES	64
#define DRAIN_POLL_MS	100		/* between looks at the queue while draining */
#define END_WAIT_NS	5000000000u	/* for requests to end once they were cancelled */
#define LOCK_FILE	"sitsd.lock"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

/* Signals so far; written by the handler. */
static volatile sig_atomic_t stop_signals, reload_signals;
static int wake_fd = -1;		/* eventfd: something for the main thread to look at */

struct override {
	const char *key, *value, *option;
};

struct options {
	const char *config;
	bool check, show;
	int ready_fd;
	struct override over[MAX_OVERRIDES];
	size_t nr_over;
};

/* The daemon. The main thread owns it; what others read or write is said below. */
struct daemon {
	const struct options *opts;
	pthread_mutex_t cfg_lock;	/* guards cfg against INFO while a reload changes it */
	struct sits_config cfg;
	struct sits_node node;
	struct sits_node draft;		/* the model that guesses, if any */
	struct sits_counters counters;
	struct sits_loop *loop;
	struct sits_queue *queue;
	struct sits_ingress *ingress;
	int lock_fd;
	uint64_t start_ns;
	atomic_bool draining;
	atomic_int fault;		/* -errno from the fetching or the engine's thread */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void wake_main(void)
{
	uint64_t one = 1;
	ssize_t n = write(wake_fd, &one, sizeof(one));

	(void)n;
}

/* ------------------------------------------------------------------ signals */

static void on_signal(int sig)
{
	int saved = errno;

	if (sig == SIGHUP)
		reload_signals++;
	else if (stop_signals++)
		_exit(128 + sig);	/* a second one: no more patience */
	wake_main();
	errno = saved;
}

static int catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return -errno;
	sigemptyset(&sa.sa_mask);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);	/* what goes beyond RLIMIT_FSIZE is an error to report */
	return 0;
}

/* Threads inherit the mask: signals are the main thread's. */
static void mask_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(how, &set, NULL);
}

/* ------------------------------------------------------------------ options and configuration */

static void usage(FILE *f)
{
	fprintf(f,
		"usage: sitsd [--config FILE] [OPTION]...\n"
		"Serve a sealed model to clients on this machine.\n\n"
		"  -c, --config FILE      configuration (default " SITS_CONFIG_DEFAULT_PATH ")\n"
		"      --check            say what is wrong with the configuration, and exit\n"
		"      --show-config      print every key with its value, and exit\n"
		"      --set KEY=VALUE    override a key of the configuration; may be repeated\n"
		"      --provider NAME    override provider: auto, kernel or user\n"
		"      --run-dir DIR      override run_dir\n"
		"      --state-dir DIR    override state_dir\n"
		"      --model FILE       override model.path\n"
		"      --key SPEC         override model.key: file:PATH or keyring:NAME\n"
		"      --queue NAME       override queue.name\n"
		"      --threads N        override engine.threads\n"
		"      --log-level LEVEL  override log.level: error, warning, info or debug\n"
		"      --log-format FORM  override log.format: text or json\n"
		"      --ready-fd N       write READY and a newline to descriptor N once requests are served\n"
		"  -h, --help             this text\n"
		"  -V, --version          the version\n\n"
		"SIGTERM and SIGINT end it after the requests in progress, a second one at once; SIGHUP reloads\n"
		"the configuration. Exit status: 0 ended as told, 1 failed, 2 wrong usage or configuration.\n"
		"See sitsd(8) and sitsd.yaml(5).\n");
}

enum { OPT_CHECK = 256, OPT_SHOW, OPT_SET, OPT_READY_FD, OPT_OVERRIDE };

static const struct option long_options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "show-config", no_argument, NULL, OPT_SHOW },
	{ "set", required_argument, NULL, OPT_SET },
	{ "ready-fd", required_argument, NULL, OPT_READY_FD },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	/* From here on: one key each, in the order of override_keys. */
	{ "provider", required_argument, NULL, OPT_OVERRIDE },
	{ "run-dir", required_argument, NULL, OPT_OVERRIDE + 1 },
	{ "state-dir", required_argument, NULL, OPT_OVERRIDE + 2 },
	{ "model", required_argument, NULL, OPT_OVERRIDE + 3 },
	{ "key", required_argument, NULL, OPT_OVERRIDE + 4 },
	{ "queue", required_argument, NULL, OPT_OVERRIDE + 5 },
	{ "threads", required_argument, NULL, OPT_OVERRIDE + 6 },
	{ "log-level", required_argument, NULL, OPT_OVERRIDE + 7 },
	{ "log-format", required_argument, NULL, OPT_OVERRIDE + 8 },
	{ 0 },
};

static const struct {
	const char *key, *option;
} override_keys[] = {
	{ "provider", "--provider" }, { "run_dir", "--run-dir" }, { "state_dir", "--state-dir" }, { "model.path", "--model" },
	{ "model.key", "--key" }, { "queue.name", "--queue" }, { "engine.threads", "--threads" },
	{ "log.level", "--log-level" }, { "log.format", "--log-format" },
};

static int bad_usage(const char *fmt, const char *arg)
{
	fputs("sitsd: ", stderr);
	fprintf(stderr, fmt, arg);
	fputs("; see sitsd --help\n", stderr);
	return EXIT_USAGE;
}

/* What was printed has to be out: a file of it is no configuration if the disk was full. Return: an exit status. */
static int end_stdout(void)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	fprintf(stderr, "sitsd: can't write to standard output: %s\n", strerror(errno ? errno : EIO));
	return EXIT_FAILED;
}

static int add_override(struct options *o, const char *key, const char *value, const char *option)
{
	if (o->nr_over == MAX_OVERRIDES)
		return bad_usage("%s: too many options", option);
	o->over[o->nr_over++] = (struct override){ key, value, option };
	return 0;
}

/* --set KEY=VALUE; argv is cut in place. */
static int add_set(struct options *o, char *arg)
{
	char *eq = strchr(arg, '=');

	if (!eq)
		return bad_usage("--set %s: expected KEY=VALUE", arg);
	*eq = '\0';
	return add_override(o, arg, eq + 1, "--set");
}

static int parse_ready_fd(struct options *o, const char *arg)
{
	char *end;
	long n = strtol(arg, &end, 10);

	if (*arg < '0' || *arg > '9' || *end || n < 0 || n > 1 << 20 || fcntl((int)n, F_GETFD) < 0)
		return bad_usage("--ready-fd %s: not an open descriptor", arg);
	o->ready_fd = (int)n;
	fcntl(o->ready_fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

/* Return: -1 to go on, else an exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
	int c, ret = 0;

	*o = (struct options){ .config = SITS_CONFIG_DEFAULT_PATH, .ready_fd = -1 };
	while (!ret && (c = getopt_long(argc, argv, "c:hV", long_options, NULL)) != -1) {
		switch (c) {
		case 'c':
			o->config = optarg;
			break;
		case OPT_CHECK:
			o->check = true;
			break;
		case OPT_SHOW:
			o->show = true;
			break;
		case OPT_SET:
			ret = add_set(o, optarg);
			break;
		case OPT_READY_FD:
			ret = parse_ready_fd(o, optarg);
			break;
		case 'h':
			usage(stdout);
			return end_stdout();
		case 'V':
			printf("sitsd %s\n", SITS_VERSION);
			return end_stdout();
		case '?':
			fputs("see sitsd --help\n", stderr);
			return EXIT_USAGE;
		default:
			ret = add_override(o, override_keys[c - OPT_OVERRIDE].key, optarg, override_keys[c - OPT_OVERRIDE].option);
		}
	}
	if (!ret && optind < argc)
		ret = bad_usage("unexpected argument '%s'", argv[optind]);
	return ret ? ret : -1;
}

static void print_report(void *arg, const char *line)
{
	fprintf(stderr, "sitsd: %s\n", line);
}

static void log_report(void *arg, const char *line)
{
	sitsd_log(SITS_LOG_ERR, "%s", line);
}

/* The file, then the options, then what only all together show. */
static int read_config(const struct options *o, struct sits_config *c, sits_config_report_fn report)
{
	int ret = sits_config_init(c);

	if (ret) {
		report(NULL, "out of memory");
		return ret;
	}
	ret = sits_config_load_file(c, o->config, report, NULL);
	for (size_t i = 0; i < o->nr_over; i++) {
		int err = sits_config_set(c, o->over[i].key, o->over[i].value, o->over[i].option, report, NULL);

		ret = ret ? ret : err;
	}
	return ret ? ret : sits_config_check(c, o->config, report, NULL);
}

/* ------------------------------------------------------------------ the process */

static void raise_limit(int resource)
{
	struct rlimit r, all = { RLIM_INFINITY, RLIM_INFINITY };

	if (resource == RLIMIT_MEMLOCK && !setrlimit(resource, &all))
		return;
	if (!getrlimit(resource, &r) && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(resource, &r);
	}
}

/* No core dump, no ptrace by others of the same user, no new privileges, nothing for others in files. A sanitizer
 * looks for leaks by ptrace, so its builds stay open to it. */
static void harden(void)
{
	struct rlimit none = { 0, 0 };

	umask(077);
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
#ifndef SANITIZED
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
	raise_limit(RLIMIT_MEMLOCK);
	raise_limit(RLIMIT_NOFILE);
}

static int check_run_dir(const char *dir)
{
	struct stat st;

	/* Clients look up the socket in it: our umask is not for this directory. */
	if ((mkdir(dir, 0755) || chmod(dir, 0755)) && errno != EEXIST) {
		sitsd_log(SITS_LOG_ERR, "run_dir %s can't be made: %s", dir, strerror(errno));
		return -errno;
	}
	if (stat(dir, &st) || !S_ISDIR(st.st_mode)) {
		sitsd_log(SITS_LOG_ERR, "run_dir %s is not a directory", dir);
		return -ENOTDIR;
	}
	if (st.st_mode & S_IWOTH) {
		sitsd_log(SITS_LOG_ERR, "run_dir %s may be written by everybody, who could put a socket of their own there: "
			  "chmod o-w it, or choose another", dir);
		return -EPERM;
	}
	return 0;
}

/* Hold the run directory: one daemon each. The lock goes with the process, however it ends. */
static int lock_run_dir(struct daemon *d)
{
	char path[4096], pid[16] = "";
	int ret = check_run_dir(d->cfg.run_dir);
	ssize_t n;

	if (ret)
		return ret;
	snprintf(path, sizeof(path), "%s/" LOCK_FILE, d->cfg.run_dir);
	d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (d->lock_fd < 0) {
		sitsd_log(SITS_LOG_ERR, "run_dir: %s: %s; it takes a directory that this user can write", path, strerror(errno));
		return -errno;
	}
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB)) {
		n = pread(d->lock_fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
		sitsd_log(SITS_LOG_ERR, "another sitsd (pid %s) serves %s; stop it, or give this one a run_dir of its own",
			  pid[0] ? pid : "unknown", d->cfg.run_dir);
		return -EADDRINUSE;
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(d->lock_fd, 0) || pwrite(d->lock_fd, pid, (size_t)n, 0) != n)
		sitsd_log(SITS_LOG_WARN, "%s: can't write the process number: %s", path, strerror(errno));
	return 0;
}

/* ------------------------------------------------------------------ start */

static void show_status(const char *words)
{
	sd_notifyf(0, "STATUS=%s\nEXTEND_TIMEOUT_USEC=30000000", words);
}

static char *on_info(void *arg)
{
	struct daemon *d = arg;
	struct sits_info_source src = {
		.node = &d->node, .cfg = &d->cfg, .loop = d->loop, .queue = d->queue, .counters = &d->counters,
		.start_ns = d->start_ns, .draining = atomic_load(&d->draining),
	};
	char *json;

	pthread_mutex_lock(&d->cfg_lock);
	json = sits_info_json(&src);
	pthread_mutex_unlock(&d->cfg_lock);
	return json;
}

static void on_idle(void *arg)
{
	struct daemon *d = arg;

	if (atomic_load(&d->draining))
		wake_main();
}

static void on_fault(void *arg, int err)
{
	struct daemon *d = arg;
	int none = 0;

	atomic_compare_exchange_strong(&d->fault, &none, err);
	wake_main();
}

static struct sits_limits limits_of(const struct sits_config *c)
{
	return (struct sits_limits){ (uint32_t)c->limits.max_tokens, (uint32_t)c->limits.max_prompt_tokens };
}

static int start_engine(struct daemon *d, struct sits_diag *diag)
{
	const struct sits_config *c = &d->cfg;
	struct sits_ingress_opts opts = {
		.model = d->node.model, .model_id = d->node.sealed.model_id, .context = d->node.context,
		.limits = limits_of(c), .prefix = (uint32_t)c->engine.prefix_cache, .counters = &d->counters, .info = on_info, .idle = on_idle, .fault = on_fault, .arg = d,
	};
	struct sits_gen_engine_arg engine = {
		.model = d->node.model,
		.opts = {
			.threads = (uint32_t)c->engine.threads, .max_seqs = (uint32_t)c->engine.max_seqs,
			.token_budget = (uint32_t)c->engine.token_budget, .context = d->node.context,
			.kv_bytes = c->engine.kv_bytes, .pin = c->engine.pin != 0,
			.isa = strcmp(c->engine.isa, "auto") ? c->engine.isa : NULL,
			.kv_kind = (uint32_t)c->engine.kv_type, .kv_keep = (uint32_t)c->engine.kv_keep,
			.speculation = (uint32_t)c->engine.speculation,
			.draft_tokens = (uint32_t)c->engine.draft_tokens, .draft = d->draft.model,
			.moe_temperature = (float)c->engine.moe_temperature / 100,
			.moe_capacity = (float)c->engine.moe_capacity / 100,
			.moe_balance = (float)c->engine.moe_balance / 1000000,
			.route_patterns = (uint32_t)c->engine.route_patterns,
		},
	};
	struct sits_loop_hooks hooks;
	struct sits_loop_state state;
	char where[48];
	int ret;

	memcpy(engine.opts.kv_limit, c->engine.kv_limit, sizeof(engine.opts.kv_limit));
	ret = sits_ingress_create(&opts, &d->ingress);
	if (ret)
		return sits_diag_fail(diag, ret, "out of memory");
	hooks = sits_ingress_hooks(d->ingress);
	ret = sits_loop_create(&sits_gen_engine_ops, &engine, &hooks, &d->loop, diag);
	if (ret)
		return sits_diag_fail(diag, ret, "the engine can't be started: %s", strerror(-ret));
	sits_loop_get_state(d->loop, &state);
	snprintf(where, sizeof(where), "pinned, on %u NUMA node%s", state.engine.thread_nodes,
		 state.engine.thread_nodes == 1 ? "" : "s");
	sitsd_log(SITS_LOG_INFO, "engine: %s, %u threads (%s), context %u tokens, %u KV pages", state.isa, state.engine.threads,
		  state.engine.thread_nodes ? where : "not pinned", d->node.context, state.engine.pages_total);
	return 0;
}

static int start_queue(struct daemon *d, struct sits_diag *diag)
{
	const struct sits_config *c = &d->cfg;
	struct sits_queue_opts opts = {
		.size = sizeof(opts), .name = c->queue.name, .depth = (uint32_t)c->queue.depth,
		.per_client = (uint32_t)c->queue.per_client, .max_clients = (uint32_t)c->queue.max_clients,
		.mode = (uint32_t)c->queue.mode, .chunk_backlog = (uint32_t)c->queue.chunk_backlog,
	};
	int ret = sits_queue_create(d->node.ctx, &opts, &d->queue);

	if (ret == -EADDRINUSE)
		return sits_diag_fail(diag, ret, "queue.name '%s': another daemon serves it", c->queue.name);
	if (ret)
		return sits_diag_fail(diag, ret, "queue '%s' can't be created: %s", c->queue.name, strerror(-ret));
	ret = sits_ingress_start(d->ingress, d->loop, d->queue);
	return ret ? sits_diag_fail(diag, ret, "a thread can't be started: %s", strerror(-ret)) : 0;
}

/* A second sealed file under the same key, with its own record of versions. */
static int load_draft(struct daemon *d, struct sits_diag *diag)
{
	struct sits_config c = d->cfg;

	c.model.path = c.model.draft_path;
	c.model.id = NULL;
	c.model.min_version = 0;
	c.engine.context = 0;
	sitsd_log(SITS_LOG_INFO, "loading the draft model %s", c.model.path);
	return sits_node_load(&d->draft, &c, &stop_signals, show_status, diag);
}

static int start(struct daemon *d, struct sits_diag *diag)
{
	int ret = lock_run_dir(d);

	if (ret)
		return ret;	/* said already */
	ret = sits_node_load(&d->node, &d->cfg, &stop_signals, show_status, diag);
	if (!ret && d->cfg.engine.speculation == SITS_SPEC_DRAFT)
		ret = load_draft(d, diag);
	if (ret)
		return sits_diag_fail(diag, ret, "the model can't be loaded: %s", strerror(-ret));
	mask_signals(SIG_BLOCK);
	ret = start_engine(d, diag);
	if (!ret)
		ret = start_queue(d, diag);
	mask_signals(SIG_UNBLOCK);
	return ret;
}

static void tell_ready(struct daemon *d)
{
	static const char ready[] = "READY\n";
	ssize_t n;

	sitsd_log(SITS_LOG_INFO, "ready: queue '%s' in %s", d->cfg.queue.name, d->cfg.run_dir);
	sd_notifyf(0, "READY=1\nSTATUS=serving '%s' on queue '%s'", d->node.sealed.model_id, d->cfg.queue.name);
	if (d->opts->ready_fd < 0)
		return;
	n = write(d->opts->ready_fd, ready, sizeof(ready) - 1);
	if (n != (ssize_t)sizeof(ready) - 1)
		sitsd_log(SITS_LOG_WARN, "--ready-fd %d: can't be written", d->opts->ready_fd);
	close(d->opts->ready_fd);
}

/* ------------------------------------------------------------------ while serving */

static void log_change(void *arg, const char *key, bool reloadable, const char *from, const char *to)
{
	if (reloadable)
		sitsd_log(SITS_LOG_INFO, "reload: %s: %s, was %s", key, to, from);
	else
		sitsd_log(SITS_LOG_WARN, "reload: %s has changed to %s; that needs a restart, %s stays in force", key, to, from);
}

static void reload(struct daemon *d)
{
	struct sits_config new;
	struct sits_limits limits;

	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, now_ns() / 1000);
	if (read_config(d->opts, &new, log_report)) {
		sitsd_log(SITS_LOG_ERR, "reload: the configuration is left as it was");
	} else {
		sits_config_diff(&d->cfg, &new, log_change, NULL);
		pthread_mutex_lock(&d->cfg_lock);
		sits_config_apply_reloadable(&d->cfg, &new);
		pthread_mutex_unlock(&d->cfg_lock);
		limits = limits_of(&d->cfg);
		sits_ingress_set_limits(d->ingress, &limits);
		sitsd_log(SITS_LOG_INFO, "reload: done");
		sitsd_log_setup(d->cfg.log.level, d->cfg.log.format);
	}
	sits_config_fini(&new);
	sd_notify(0, "READY=1");
}

/* Is the engine alive? One that should work and has not finished a step for a whole watchdog period is not. */
static bool engine_alive(struct daemon *d, uint64_t period_ns)
{
	struct sits_loop_state s;

	sits_loop_get_state(d->loop, &s);
	return !s.faulted && (!s.busy || now_ns() - s.progress_ns < period_ns);
}

/* Sleep until woken or @timeout_ms (-1: for ever) is over. */
static void sleep_main(int timeout_ms)
{
	struct pollfd p = { .fd = wake_fd, .events = POLLIN };
	uint64_t n;

	if (poll(&p, 1, timeout_ms) > 0)
		while (read(wake_fd, &n, sizeof(n)) > 0)
			;
}

static void serve(struct daemon *d)
{
	uint64_t watchdog_us = 0;
	int reloaded = 0, timeout_ms;

	sd_watchdog_enabled(0, &watchdog_us);
	timeout_ms = watchdog_us ? (int)(watchdog_us / 2000) + 1 : -1;
	while (!stop_signals && !atomic_load(&d->fault)) {
		if (reload_signals != reloaded) {
			reloaded = reload_signals;
			reload(d);
		}
		if (watchdog_us && engine_alive(d, watchdog_us * 1000))
			sd_notify(0, "WATCHDOG=1");
		sleep_main(timeout_ms);
	}
}

/* ------------------------------------------------------------------ stop */

static bool is_idle(struct daemon *d)
{
	struct sits_queue_stats q = { 0 };

	sits_queue_get_stats(d->queue, &q);
	return !q.pending && !sits_ingress_active(d->ingress);
}

/* Return: whether all requests had ended by @until_ns. */
static bool wait_idle(struct daemon *d, uint64_t until_ns)
{
	bool idle;

	while (!(idle = is_idle(d)) && now_ns() < until_ns && !atomic_load(&d->fault))
		sleep_main(DRAIN_POLL_MS);
	return idle;
}

static void drain(struct daemon *d)
{
	uint32_t nr = sits_ingress_active(d->ingress);

	atomic_store(&d->draining, true);
	sits_queue_close_intake(d->queue);
	sitsd_log(SITS_LOG_INFO, "stopping: %u requests in progress may go on for %" PRIu64 " ms", nr, d->cfg.drain_timeout_ms);
	sd_notifyf(0, "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%" PRIu64,
		   d->cfg.drain_timeout_ms * 1000 + END_WAIT_NS / 1000);
	if (wait_idle(d, now_ns() + d->cfg.drain_timeout_ms * 1000000))
		return;
	sitsd_log(SITS_LOG_WARN, "stopping: %u requests are ended before they are done", sits_ingress_active(d->ingress));
	sits_ingress_end_all(d->ingress);
	wait_idle(d, now_ns() + END_WAIT_NS);
}

static void stop(struct daemon *d)
{
	sits_ingress_stop(d->ingress);
	sits_loop_destroy(d->loop);
	sits_queue_destroy(d->queue);
	sits_ingress_destroy(d->ingress);
	sits_node_fini(&d->draft);
	sits_node_fini(&d->node);
	if (d->lock_fd >= 0)
		close(d->lock_fd);
}

static int run(struct daemon *d)
{
	struct sits_diag diag = { "" };
	int ret = start(d, &diag);

	if (!ret) {
		tell_ready(d);
		serve(d);
		ret = atomic_load(&d->fault);
		if (ret)
			sitsd_log(SITS_LOG_ERR, "can't go on serving: %s", strerror(-ret));
		else
			drain(d);
	} else if (ret == -ECANCELED && stop_signals) {
		sitsd_log(SITS_LOG_INFO, "told to stop before the model was loaded");
		ret = 0;
	} else if (diag.msg[0]) {
		sitsd_log(SITS_LOG_ERR, "%s", diag.msg);
		sd_notifyf(0, "STATUS=%s\nERRNO=%d", diag.msg, -ret);
	}
	stop(d);
	if (!ret)
		sitsd_log(SITS_LOG_INFO, "stopped");
	return ret ? EXIT_FAILED : 0;
}

/* Started with 0, 1 or 2 closed, a socket or a lock file would take the place, and get the log. What is put there answers
 * every read and write with EBADF. */
static bool fill_stdio(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH) != fd)
			return false;
	return true;
}

int main(int argc, char **argv)
{
	static struct daemon d = { .cfg_lock = PTHREAD_MUTEX_INITIALIZER, .lock_fd = -1 };
	struct options opts;
	int ret;

	if (!fill_stdio())
		return EXIT_FAILED;
	ret = parse_options(argc, argv, &opts);
	if (ret >= 0)
		return ret;
	d.opts = &opts;
	d.start_ns = now_ns();
	ret = read_config(&opts, &d.cfg, print_report) ? EXIT_USAGE : 0;
	if (!ret && opts.show)
		sits_config_print(&d.cfg, stdout);
	else if (!ret && opts.check)
		printf("%s: ok\n", opts.config);
	if (!ret && (opts.show || opts.check))
		ret = end_stdout();
	if (ret || opts.show || opts.check)
		goto out;
	harden();
	sitsd_log_setup(d.cfg.log.level, d.cfg.log.format);
	ret = catch_signals() ? EXIT_FAILED : run(&d);
out:
	sits_config_fini(&d.cfg);
	return ret;
}
