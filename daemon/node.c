// SPDX-License-Identifier: MIT
/*
 * node.c - see node.h.
 */
#include "daemon/node.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/engine/threads.h"
#include "daemon/log.h"
#include "daemon/model/model.h"
#include "daemon/node_load.h"
#include "daemon/numa.h"
#include "daemon/versions.h"
#include "sits/context.h"

#define PROGRESS_STEP 10	/* per cent between two lines in the log */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int sits_load_progress(void *arg, uint64_t done, uint64_t total)
{
	struct sits_load *l = arg;
	unsigned int percent = total ? (unsigned int)(done * 100 / total) : 100;
	char words[64];

	if (*l->stop)
		return 1;
	if (percent < l->shown + PROGRESS_STEP && (done < total || percent == l->shown))
		return 0;
	l->shown = percent;
	snprintf(words, sizeof(words), "loading weights: %u %% of %.1f MiB", percent, (double)total / (1 << 20));
	sitsd_log(SITS_LOG_INFO, "%s", words);
	if (l->status)
		l->status(words);
	return 0;
}

/* ------------------------------------------------------------------ steps, in order */

/* While it is only tried out what may be used, what goes wrong is no error. */
static bool trying;

/* The last error of libsits, while a node is loaded: kept until it is known whether the load's own words say the same. */
static struct {
	pthread_mutex_t lock;
	bool on;
	char line[512];		/* "": none */
} held = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void flush_held(void)
{
	if (held.line[0])
		sitsd_log(SITS_LOG_ERR, "%s", held.line);
	held.line[0] = '\0';
}

static void hold(bool on)
{
	pthread_mutex_lock(&held.lock);
	held.on = on;
	flush_held();
	pthread_mutex_unlock(&held.lock);
}

static void hear(void *arg, int severity, const char *line)
{
	bool keep = severity == SITS_LOG_ERR && !trying;

	pthread_mutex_lock(&held.lock);
	keep = keep && held.on && strlen(line) < sizeof(held.line);
	flush_held();
	if (keep)
		strcpy(held.line, line);
	pthread_mutex_unlock(&held.lock);
	if (!keep)
		sitsd_log_line(arg, trying && severity == SITS_LOG_ERR ? SITS_LOG_WARN : severity, line);
}

/* A failure that libsits has words for, and nothing is to be added but the key of the configuration. @what: where it said nothing */
static int fail_as_heard(struct sits_load *l, int err, const char *key, const char *what)
{
	char line[sizeof(held.line)];
	bool fits;

	pthread_mutex_lock(&held.lock);
	strcpy(line, held.line);
	fits = line[0] && strlen(key) + strlen(line) + 2 < sizeof(l->diag->msg);
	if (fits)
		held.line[0] = '\0';
	pthread_mutex_unlock(&held.lock);
	return fits ? sits_diag_fail(l->diag, err, "%s %s", key, line) : sits_diag_fail(l->diag, err, "%s %.200s: %s", key, what, strerror(-err));
}

/* Everybody may be a client of the module, but not everybody may make regions and queues. */
static bool may_own(struct sits_ctx *ctx)
{
	struct sits_region_opts opts = {
		.size = sizeof(opts), .kind = SITS_REGION_PINNED, .node = -1, .len_bytes = 1, .name = "sitsd probe",
	};
	struct sits_region *region;
	int ret;

	trying = true;
	ret = sits_region_create(ctx, &opts, &region);
	trying = false;
	if (!ret)
		sits_region_destroy(region);
	return ret != -EACCES;
}

static int open_context(struct sits_load *l)
{
	struct sits_open_opts opts = {
		.size = sizeof(opts), .provider = (uint32_t)l->cfg->provider, .run_dir = l->cfg->run_dir, .log = hear,
	};
	int ret = sits_open(&opts, &l->n->ctx);

	if (!ret && opts.provider == SITS_PROVIDER_AUTO && !strcmp(sits_provider_name(l->n->ctx), "kernel") &&
	    !may_own(l->n->ctx)) {
		sits_close(l->n->ctx);
		l->n->ctx = NULL;
		opts.provider = SITS_PROVIDER_USER;
		ret = sits_open(&opts, &l->n->ctx);
	}
	if (ret == -ENODEV || ret == -EACCES)
		return sits_diag_fail(l->diag, ret, "provider kernel: /dev/sits %s; load the module (modprobe sits), or "
				      "set provider: user", ret == -EACCES ? "may not be opened" : "does not answer");
	if (ret)
		return sits_diag_fail(l->diag, ret, "libsits can't be opened: %s", strerror(-ret));
	sitsd_log(SITS_LOG_INFO, "provider %s", sits_provider_name(l->n->ctx));
	return 0;
}

static int open_key(struct sits_load *l)
{
	int ret = sits_key_open(l->n->ctx, l->cfg->model.key, &l->key);
	const char *spec = l->cfg->model.key;

	switch (ret) {
	case 0:
		return 0;
	case -EACCES:
		return sits_diag_fail(l->diag, ret, "model.key %.200s: others can read it, or it is not ours; set mode 0600", spec);
	case -EPERM:
		return sits_diag_fail(l->diag, ret, "model.key %.200s: its memory can't be locked; raise RLIMIT_MEMLOCK", spec);
	default:
		return fail_as_heard(l, ret, "model.key:", spec);
	}
}

/* main.c's load_draft() puts the draft's path in the model's place. */
static bool is_draft(const struct sits_load *l)
{
	return l->cfg->model.path == l->cfg->model.draft_path;
}

const char *sits_load_key(const struct sits_load *l)
{
	return is_draft(l) ? "model.draft_path" : "model.path";
}

int sits_load_failed(struct sits_load *l, const char *path, int err)
{
	switch (err) {
	case -ENOKEY:
		return sits_diag_fail(l->diag, err, "%.200s: sealed under another key than model.key; find the right key by its id "
				      "('sits inspect', 'sits key id'), or 'sits rekey'", path);
	case -EBADMSG:
		return sits_diag_fail(l->diag, err, "%.200s: not an intact sealed file: it was changed, cut or is something else; 'sits "
				      "verify' names the part", path);
	case -EKEYEXPIRED:
		return sits_diag_fail(l->diag, err, "%.200s: model version %" PRIu64 " is older than %" PRIu64 ", the oldest allowed here "
				      "(model.min_version %" PRIu64 "; the rest comes from %.100s/" SITS_VERSIONS_FILE ")", path,
				      l->n->sealed.model_version, l->n->min_version, l->cfg->model.min_version, l->cfg->state_dir);
	case -EPROTONOSUPPORT:
		return sits_diag_fail(l->diag, err, "%.200s: a version or suite that is not read here (suite 240 needs "
				      "model.allow_ecb: true)", path);
	case -ESTALE:
		return sits_diag_fail(l->diag, err, "%.200s: changed while it was being loaded", path);
	case -EKEYREVOKED:
	case -EKEYREJECTED:
		return sits_diag_fail(l->diag, err, "model.key %.200s: the kernel does not take it: it was revoked, or is malformed",
				      l->cfg->model.key);
	case -ECANCELED:
		return sits_diag_fail(l->diag, err, "told to stop while loading");
	default:
		return fail_as_heard(l, err, sits_load_key(l), path);
	}
}

/* A key of type logon has no id that is known here: only the kernel can check the header under it. */
static bool only_kernel_has(const struct sits_key *key)
{
	static const uint8_t unknown[SITS_KEY_ID_LEN];
	uint8_t id[SITS_KEY_ID_LEN];

	sits_key_id(key, id);
	return !memcmp(id, unknown, sizeof(id));
}

int sits_load_inspect(struct sits_load *l, const char *path, struct sits_sealed_info *s)
{
	uint64_t recorded = 0;
	int ret;

	ret = sits_sealed_inspect(l->n->ctx, path, only_kernel_has(l->key) ? NULL : l->key, s);
	if (ret)
		return sits_load_failed(l, path, ret);
	if (l->cfg->model.id && strcmp(l->cfg->model.id, s->model_id))
		return sits_diag_fail(l->diag, -EBADMSG, "%.200s: holds model '%s'; model.id wants '%.100s'", path,
				      s->model_id, l->cfg->model.id);
	l->n->min_version = l->cfg->model.min_version;
	if (s->suite == SITS_SUITE_SM4_ECB) {
		if (!l->cfg->model.allow_ecb)
			return sits_load_failed(l, path, -EPROTONOSUPPORT);
		sitsd_log(SITS_LOG_WARN, "%s: SM4-ECB: changes to it can't be noticed, nor an older version", path);
		return 0;
	}
	ret = sits_versions_get(l->cfg->state_dir, s->model_id, &recorded, l->diag);
	if (ret)
		return ret;
	if (recorded > l->n->min_version)
		l->n->min_version = recorded;
	return s->model_version < l->n->min_version ? sits_load_failed(l, path, -EKEYEXPIRED) : 0;
}

int sits_load_region(struct sits_load *l, const char *path, uint64_t bytes, bool huge, struct sits_region **out)
{
	struct sits_region_opts opts = {
		.size = sizeof(opts), .kind = huge ? SITS_REGION_HUGE : SITS_REGION_PINNED, .node = -1, .len_bytes = bytes,
		.name = "weights",
		.flags = (l->cfg->memory.require_huge && huge ? SITS_REGION_REQUIRE_HUGE : 0) |
			 (l->cfg->memory.require_locked ? 0 : SITS_REGION_ALLOW_UNLOCKED),
	};
	double mib = (double)bytes / (1 << 20);
	bool interleaved;
	cpu_set_t nodes;
	int ret;

	if (!opts.len_bytes)
		return sits_diag_fail(l->diag, -EBADMSG, "%.200s: holds nothing", path);
	/* Both providers take all of a region's pages at once, by the policy of this thread. */
	sits_threads_plan((uint32_t)l->cfg->engine.threads, l->cfg->engine.pin != 0, &nodes);
	interleaved = sits_numa_interleave(&nodes);
	ret = sits_region_create(l->n->ctx, &opts, out);
	if (interleaved)
		sits_numa_restore();
	if (ret == -EPERM)
		return sits_diag_fail(l->diag, ret, "%.1f MiB for the weights can't be locked in memory: raise the limit "
				      "(LimitMEMLOCK=infinity in the unit, or ulimit -l), or set memory.require_locked: false", mib);
	if (ret == -EACCES)
		return sits_diag_fail(l->diag, ret, "%.1f MiB for the weights: this process may not make regions with /dev/sits (see the "
				      "line before); give it the group of owner_gid or CAP_IPC_LOCK, or set provider: user", mib);
	if (ret == -EDQUOT)
		return sits_diag_fail(l->diag, ret, "%.1f MiB for the weights are more than the module's region_limit_bytes leaves", mib);
	if (ret == -EOPNOTSUPP)
		return sits_diag_fail(l->diag, ret, "%.1f MiB of huge pages are not to be had: reserve some (vm.nr_hugepages), or set "
				      "memory.require_huge: false", mib);
	if (ret)
		return sits_diag_fail(l->diag, ret, "%.1f MiB of memory for the weights: %s", mib, strerror(-ret));
	return 0;
}

void sits_load_opts(struct sits_load *l, struct sits_load_opts *opts)
{
	*opts = (struct sits_load_opts){
		.size = sizeof(*opts), .threads = (uint32_t)l->cfg->model.load_threads, .min_version = l->n->min_version,
		.flags = (l->cfg->model.allow_ecb ? SITS_LOAD_ALLOW_ECB : 0) |
			 (l->cfg->model.buffered ? SITS_LOAD_BUFFERED : 0),
		.progress = sits_load_progress, .progress_arg = l,
	};
}

bool sits_load_is_same(const struct sits_sealed_info *a, const struct sits_sealed_info *b)
{
	return !strcmp(a->model_id, b->model_id) && a->model_version == b->model_version &&
	       a->plain_bytes == b->plain_bytes && a->suite == b->suite;
}

/* One file, whole. */
static int load_file(struct sits_load *l)
{
	const char *path = l->cfg->model.path;
	struct sits_model_file file = { .name = path };
	struct sits_load_opts opts;
	struct sits_sealed_info info;
	int ret;

	ret = sits_load_inspect(l, path, &l->n->sealed);
	if (ret)
		return ret;
	l->n->region = calloc(1, sizeof(*l->n->region));
	if (!l->n->region)
		return -ENOMEM;
	l->n->nr_regions = 1;
	ret = sits_load_region(l, path, l->n->sealed.plain_bytes, true, &l->n->region[0]);
	if (ret)
		return ret;
	sits_load_opts(l, &opts);
	ret = sits_weights_load(l->n->ctx, path, l->n->region[0], l->key, &opts, &info);
	if (ret)
		return sits_load_failed(l, path, ret);
	/* Another file took its place after it was inspected: what was checked is not what was loaded. */
	if (!sits_load_is_same(&info, &l->n->sealed))
		return sits_load_failed(l, path, -ESTALE);
	l->n->sealed = info;
	file.data = sits_region_data(l->n->region[0]);
	file.len = sits_region_len(l->n->region[0]);
	return sits_load_model(l, &file, 1);
}

static int load_weights(struct sits_load *l)
{
	struct stat st;

	if (!stat(l->cfg->model.path, &st) && S_ISDIR(st.st_mode))
		return sits_load_dir(l);
	return load_file(l);
}

int sits_load_model(struct sits_load *l, const struct sits_model_file *files, size_t nr)
{
	uint64_t want = l->cfg->engine.context;
	uint32_t own;
	int ret;

	ret = sits_model_open_files(files, nr, &l->n->model, l->diag);
	if (ret)
		return sits_diag_fail(l->diag, ret, "%.200s: the model can't be opened: %s", l->cfg->model.path, strerror(-ret));
	own = l->n->model->hp.context;
	if (want > own)
		return sits_diag_fail(l->diag, -EINVAL, "engine.context: %" PRIu64 " is more than the model's own, %u", want, own);
	l->n->context = want ? (uint32_t)want : own;
	if (!l->n->model->chat && !is_draft(l))
		sitsd_log(SITS_LOG_WARN, "chat requests will be refused: %s", l->n->model->chat_diag.msg);
	return 0;
}

/* Only what was loaded and opened counts as seen. */
static int record_version(struct sits_load *l)
{
	if (l->n->sealed.suite == SITS_SUITE_SM4_ECB)
		return 0;
	return sits_versions_raise(l->cfg->state_dir, l->n->sealed.model_id, l->n->sealed.model_version, l->diag);
}

static void log_loaded(const struct sits_load *l)
{
	struct sits_region_info r = { 0 };

	sits_node_region_info(l->n, &r);
	sitsd_log(SITS_LOG_INFO, "model '%s' version %" PRIu64 ": %.*s, %.*s, loaded in %.2f s; %.1f MiB %s, %.1f MiB of it in huge "
		  "pages", l->n->sealed.model_id, l->n->sealed.model_version, (int)l->n->model->name.len, l->n->model->name.p,
		  (int)l->n->model->arch.len, l->n->model->arch.p, (double)l->n->load_ns / 1e9,
		  (double)r.mapped_bytes / (1 << 20), r.locked ? "locked" : "not locked", (double)r.huge_bytes / (1 << 20));
	if (!r.locked)
		sitsd_log(SITS_LOG_WARN, "the weights are not locked in memory: they may be swapped out to disk in the clear");
}

int sits_node_load(struct sits_node *n, const struct sits_config *cfg, const volatile sig_atomic_t *stop,
		   void (*status)(const char *words), struct sits_diag *diag)
{
	static int (*const step[])(struct sits_load *l) = {
		open_context, open_key, load_weights, record_version,
	};
	struct sits_load l = { .n = n, .cfg = cfg, .stop = stop, .status = status, .diag = diag, .started_ns = now_ns() };
	int ret = 0;

	memset(n, 0, sizeof(*n));
	for (size_t i = 0; !ret && i < sizeof(step) / sizeof(step[0]); i++) {
		hold(true);
		ret = *stop ? sits_load_failed(&l, cfg->model.path, -ECANCELED) : step[i](&l);
	}
	hold(false);
	sits_key_close(l.key);
	n->load_ns = now_ns() - l.started_ns;
	if (!ret)
		log_loaded(&l);
	return ret;
}

void sits_node_fini(struct sits_node *n)
{
	uint32_t i;

	sits_model_close(n->model);
	for (i = 0; i < n->nr_regions; i++)
		sits_region_destroy(n->region[i]);
	free(n->region);
	sits_close(n->ctx);
	memset(n, 0, sizeof(*n));
}

void sits_node_region_info(const struct sits_node *n, struct sits_region_info *info)
{
	struct sits_region_info r;
	uint32_t i;

	memset(info, 0, sizeof(*info));
	for (i = 0; i < n->nr_regions; i++) {
		memset(&r, 0, sizeof(r));
		sits_region_info(n->region[i], &r);
		if (!i) {
			*info = r;
			continue;
		}
		info->mapped_bytes += r.mapped_bytes;
		info->huge_bytes += r.huge_bytes;
		info->locked = info->locked && r.locked;
		info->sealed = info->sealed && r.sealed;
		info->nodump = info->nodump && r.nodump;
		info->nofork = info->nofork && r.nofork;
	}
}
