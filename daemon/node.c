// SPDX-License-Identifier: MIT
/*
 * node.c - see node.h.
 */
#include "daemon/node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/model/model.h"
#include "daemon/versions.h"
#include "sits/context.h"

#define PROGRESS_STEP 10	/* per cent between two lines in the log */

struct load {
	struct sits_node *n;
	const struct sits_config *cfg;
	const volatile sig_atomic_t *stop;
	void (*status)(const char *words);
	struct sits_diag *diag;
	struct sits_key *key;
	uint64_t started_ns;
	unsigned int shown;	/* per cent */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int progress(void *arg, uint64_t done, uint64_t total)
{
	struct load *l = arg;
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

static int open_context(struct load *l)
{
	struct sits_open_opts opts = {
		.size = sizeof(opts), .provider = (uint32_t)l->cfg->provider, .run_dir = l->cfg->run_dir, .log = sitsd_log_line,
	};
	int ret = sits_open(&opts, &l->n->ctx);

	if (ret == -ENODEV)
		return sits_diag_fail(l->diag, ret, "provider kernel: /dev/sits does not answer; load the module (modprobe sits), or "
				      "set provider: user");
	if (ret)
		return sits_diag_fail(l->diag, ret, "libsits can't be opened: %s", strerror(-ret));
	sitsd_log(SITS_LOG_INFO, "provider %s", sits_provider_name(l->n->ctx));
	return 0;
}

static int open_key(struct load *l)
{
	int ret = sits_key_open(l->n->ctx, l->cfg->model.key, &l->key);
	const char *spec = l->cfg->model.key;

	switch (ret) {
	case 0:
		return 0;
	case -ENOENT:
	case -ENOKEY:
		return sits_diag_fail(l->diag, ret, "model.key %.200s: there is no such key; make one with 'sits key new'", spec);
	case -EACCES:
		return sits_diag_fail(l->diag, ret, "model.key %.200s: others can read it, or it is not ours; set mode 0600", spec);
	case -EPERM:
		return sits_diag_fail(l->diag, ret, "model.key %.200s: its memory can't be locked; raise RLIMIT_MEMLOCK", spec);
	default:
		return sits_diag_fail(l->diag, ret, "model.key %.200s: %s", spec, strerror(-ret));
	}
}

static int sealed_failed(struct load *l, int err)
{
	const char *path = l->cfg->model.path;

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
	case -ECANCELED:
		return sits_diag_fail(l->diag, err, "told to stop while loading");
	default:
		return sits_diag_fail(l->diag, err, "%.200s: %s", path, strerror(-err));
	}
}

/* The header, under the key: what is it, may it be loaded, how much memory does it need? */
static int inspect(struct load *l)
{
	struct sits_sealed_info *s = &l->n->sealed;
	uint64_t recorded = 0;
	int ret;

	ret = sits_sealed_inspect(l->n->ctx, l->cfg->model.path, l->key, s);
	if (ret)
		return sealed_failed(l, ret);
	if (l->cfg->model.id && strcmp(l->cfg->model.id, s->model_id))
		return sits_diag_fail(l->diag, -EBADMSG, "%.200s: holds model '%s'; model.id wants '%.100s'", l->cfg->model.path,
				      s->model_id, l->cfg->model.id);
	l->n->min_version = l->cfg->model.min_version;
	if (s->suite == SITS_SUITE_SM4_ECB) {
		if (!l->cfg->model.allow_ecb)
			return sealed_failed(l, -EPROTONOSUPPORT);
		sitsd_log(SITS_LOG_WARN, "%s: SM4-ECB: changes to it can't be noticed, nor an older version", l->cfg->model.path);
		return 0;
	}
	ret = sits_versions_get(l->cfg->state_dir, s->model_id, &recorded, l->diag);
	if (ret)
		return ret;
	if (recorded > l->n->min_version)
		l->n->min_version = recorded;
	return s->model_version < l->n->min_version ? sealed_failed(l, -EKEYEXPIRED) : 0;
}

static int create_region(struct load *l)
{
	struct sits_region_opts opts = {
		.size = sizeof(opts), .kind = SITS_REGION_HUGE, .node = -1, .len_bytes = l->n->sealed.plain_bytes, .name = "weights",
		.flags = (l->cfg->memory.require_huge ? SITS_REGION_REQUIRE_HUGE : 0) |
			 (l->cfg->memory.require_locked ? 0 : SITS_REGION_ALLOW_UNLOCKED),
	};
	double mib = (double)l->n->sealed.plain_bytes / (1 << 20);
	int ret;

	if (!opts.len_bytes)
		return sits_diag_fail(l->diag, -EBADMSG, "%.200s: holds nothing", l->cfg->model.path);
	ret = sits_region_create(l->n->ctx, &opts, &l->n->region);
	if (ret == -EPERM)
		return sits_diag_fail(l->diag, ret, "%.1f MiB for the weights can't be locked in memory: raise the limit "
				      "(LimitMEMLOCK=infinity in the unit, or ulimit -l), or set memory.require_locked: false", mib);
	if (ret == -EOPNOTSUPP)
		return sits_diag_fail(l->diag, ret, "%.1f MiB of huge pages are not to be had: reserve some (vm.nr_hugepages), or set "
				      "memory.require_huge: false", mib);
	if (ret)
		return sits_diag_fail(l->diag, ret, "%.1f MiB of memory for the weights: %s", mib, strerror(-ret));
	return 0;
}

static int load_weights(struct load *l)
{
	struct sits_load_opts opts = {
		.size = sizeof(opts), .threads = (uint32_t)l->cfg->model.load_threads, .min_version = l->n->min_version,
		.flags = (l->cfg->model.allow_ecb ? SITS_LOAD_ALLOW_ECB : 0) |
			 (l->cfg->model.buffered ? SITS_LOAD_BUFFERED : 0),
		.progress = progress, .progress_arg = l,
	};
	struct sits_sealed_info info;
	int ret;

	ret = sits_weights_load(l->n->ctx, l->cfg->model.path, l->n->region, l->key, &opts, &info);
	if (ret)
		return sealed_failed(l, ret);
	/* Another file took its place after it was inspected: what was checked is not what was loaded. */
	if (strcmp(info.model_id, l->n->sealed.model_id) || info.model_version != l->n->sealed.model_version ||
	    info.plain_bytes != l->n->sealed.plain_bytes || info.suite != l->n->sealed.suite)
		return sealed_failed(l, -ESTALE);
	l->n->sealed = info;
	return 0;
}

static int open_model(struct load *l)
{
	uint64_t want = l->cfg->engine.context;
	uint32_t own;
	int ret;

	ret = sits_model_open(sits_region_data(l->n->region), sits_region_len(l->n->region), &l->n->model, l->diag);
	if (ret)
		return sits_diag_fail(l->diag, ret, "%.200s: the model can't be opened: %s", l->cfg->model.path, strerror(-ret));
	own = l->n->model->hp.context;
	if (want > own)
		return sits_diag_fail(l->diag, -EINVAL, "engine.context: %" PRIu64 " is more than the model's own, %u", want, own);
	l->n->context = want ? (uint32_t)want : own;
	if (!l->n->model->chat)
		sitsd_log(SITS_LOG_WARN, "chat requests will be refused: %s", l->n->model->chat_diag.msg);
	return 0;
}

/* Only what was loaded and opened counts as seen. */
static int record_version(struct load *l)
{
	if (l->n->sealed.suite == SITS_SUITE_SM4_ECB)
		return 0;
	return sits_versions_raise(l->cfg->state_dir, l->n->sealed.model_id, l->n->sealed.model_version, l->diag);
}

static void log_loaded(const struct load *l)
{
	struct sits_region_info r = { 0 };

	sits_region_info(l->n->region, &r);
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
	static int (*const step[])(struct load *l) = {
		open_context, open_key, inspect, create_region, load_weights, open_model, record_version,
	};
	struct load l = { .n = n, .cfg = cfg, .stop = stop, .status = status, .diag = diag, .started_ns = now_ns() };
	int ret = 0;

	memset(n, 0, sizeof(*n));
	for (size_t i = 0; !ret && i < sizeof(step) / sizeof(step[0]); i++)
		ret = *stop ? sealed_failed(&l, -ECANCELED) : step[i](&l);
	sits_key_close(l.key);
	n->load_ns = now_ns() - l.started_ns;
	if (!ret)
		log_loaded(&l);
	return ret;
}

void sits_node_fini(struct sits_node *n)
{
	sits_model_close(n->model);
	sits_region_destroy(n->region);
	sits_close(n->ctx);
	memset(n, 0, sizeof(*n));
}
