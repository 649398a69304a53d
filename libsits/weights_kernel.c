// SPDX-License-Identifier: MIT
/*
 * weights_kernel.c - having the kernel load a sealed file: WEIGHTS_LOAD, and what came of it in words.
 *
 * The file is looked at here first, for the words and for what it says of itself; then the kernel reads it through the same
 * descriptor, believes nothing of that, and fills the region's own pages. The key goes by name: it lies in a
 * keyring of the thread that issues the command, for as long as the load takes (see sits_key_lend()).
 *
 * The command is asynchronous by io_uring; where there is none, the ioctl runs in a thread of its own. Either way the calling
 * thread looks at the progress that the kernel writes, tells it, and passes on that it is to stop.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "libsits/journal.h"
#include "libsits/kernel_ring.h"
#include "libsits/key.h"
#include "libsits/provider_kernel.h"
#include "libsits/source.h"
#include "libsits/weights.h"

#define PROGRESS_NS	(50 * SITS_NSEC_PER_MSEC)
#define HEADER_TRIES	4

/* On the stack of the calling thread, which stays until the kernel is done with it. */
struct load {
	struct sits_weights_job *job;
	struct sits_source *src;
	struct sits_region *region;
	const struct sits_key *key;
	const struct sits_load_opts *o;
	uint64_t before_bytes;	/* of the files before this one */
	uint64_t total_bytes;	/* of all files */
	struct sits_weights_load arg;
	bool cancelled;

	/* Of the ioctl's thread. */
	pthread_mutex_t lock;	/* guards what follows */
	pthread_cond_t ended;
	bool done;
	int ret;
};

_Static_assert(SITS_LOAD_BUFFERED == SITS_LOAD_F_BUFFERED && SITS_LOAD_ALLOW_ECB == SITS_LOAD_F_ALLOW_ECB,
	       "flags have the same values in both interfaces");
_Static_assert(sizeof(struct sits_load_range) == sizeof(struct sits_weights_range) &&
	       offsetof(struct sits_load_range, file_off) == offsetof(struct sits_weights_range, file_off) &&
	       offsetof(struct sits_load_range, len_bytes) == offsetof(struct sits_weights_range, len_bytes) &&
	       offsetof(struct sits_load_range, region_off) == offsetof(struct sits_weights_range, region_off),
	       "ranges are the same in both interfaces");

unsigned int sits_kernel_source_flags(const struct sits_load_opts *o)
{
	return 0;	/* the kernel reads tags and chunks itself */
}

/* Tell how far it is; the answer may be to stop. The kernel looks at the field now and then. */
static void watch(struct load *l)
{
	uint64_t total = l->total_bytes, done = __atomic_load_n(&l->arg.progress_bytes, __ATOMIC_RELAXED);

	if (!l->o->progress || l->cancelled)
		return;
	done += l->before_bytes;
	/* The last call comes when everything has verified. */
	if (done >= total)
		done = total ? total - 1 : 0;
	if (!l->o->progress(l->o->progress_arg, done, total))
		return;
	l->cancelled = true;
	__atomic_store_n(&l->arg.cancel, 1, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------- by ioctl, in a thread */

static void *load_thread(void *arg)
{
	struct load *l = arg;
	struct sits_lent_key lent;
	int ret;

	ret = sits_key_lend(l->src->ctx, l->key, &lent);
	if (!ret) {
		memcpy(l->arg.key, lent.desc, sizeof(l->arg.key));
		ret = sits_ioctl(l->region->ctx->dev_fd, SITS_IOC_WEIGHTS_LOAD, &l->arg);
		sits_key_take_back(l->key, &lent);
	}
	pthread_mutex_lock(&l->lock);
	l->ret = ret;
	l->done = true;
	pthread_cond_signal(&l->ended);
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void wait_thread(struct load *l)
{
	struct timespec until;

	pthread_mutex_lock(&l->lock);
	while (!l->done) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += PROGRESS_NS;
		until.tv_sec += until.tv_nsec / (long)SITS_NSEC_PER_SEC;
		until.tv_nsec %= (long)SITS_NSEC_PER_SEC;
		pthread_cond_timedwait(&l->ended, &l->lock, &until);
		if (l->done)
			break;
		pthread_mutex_unlock(&l->lock);
		watch(l);
		pthread_mutex_lock(&l->lock);
	}
	pthread_mutex_unlock(&l->lock);
}

static int load_by_ioctl(struct load *l)
{
	sigset_t all, was;
	pthread_t thread;
	int ret;

	/* Signals are the application's threads' to handle; here they would cut the load short. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	ret = pthread_create(&thread, NULL, load_thread, l);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (ret)
		return -ret;
	wait_thread(l);
	pthread_join(thread, NULL);
	return l->ret;
}

/* ------------------------------------------------------------------ by io_uring */

/* Return: false where the command did not get as far as the kernel. */
static bool submit_and_wait(struct load *l, struct sits_kring *ring, int *res)
{
	uint64_t payload[2] = { (uintptr_t)&l->arg, 0 };
	uint32_t data;

	if (!sits_kring_cmd(ring, l->region->ctx->dev_fd, SITS_IOC_WEIGHTS_LOAD, payload, 0))
		return false;
	for (;;) {
		int ret = sits_kring_turn(ring, PROGRESS_NS);

		if (sits_kring_next(ring, &data, res))
			return true;
		if (ret && io_uring_sq_ready(&ring->ring))
			return false;
		if (ret)	/* it is under way, and must be waited for somehow */
			nanosleep(&(struct timespec){ .tv_nsec = PROGRESS_NS }, NULL);
		watch(l);
	}
}

/* Return: false where it has to be done by ioctl. */
static bool load_by_uring(struct load *l, int *res)
{
	struct sits_lent_key lent;
	struct sits_kring ring;
	bool done;

	if (!(l->region->ctx->features & SITS_FEATURE_URING_CMD))
		return false;
	sits_kring_init(&ring, l->src->ctx, "load", false, -1);
	if (!ring.on)
		return false;
	*res = sits_key_lend(l->src->ctx, l->key, &lent);
	done = *res;
	if (!done) {
		memcpy(l->arg.key, lent.desc, sizeof(l->arg.key));
		done = submit_and_wait(l, &ring, res);
		sits_key_take_back(l->key, &lent);
		/* That may be a security module that has commands refused; the ioctl tells what it is. */
		if (done && (*res == -EACCES || *res == -EOPNOTSUPP))
			done = false;
	}
	sits_kring_fini(&ring);
	return done;
}

/* -------------------------------------------------------------------- in words */

static void log_fault(const struct sits_source *src, uint64_t chunk)
{
	if (chunk == SITS_BAD_HEADER)
		sits_log(src->ctx, SITS_LOG_ERR, "%s: header: does not verify: it was changed", src->path);
	else if (chunk == SITS_BAD_TAG_TABLE)
		sits_log(src->ctx, SITS_LOG_ERR, "%s: tag table: does not belong to this file: it was changed", src->path);
	else if (chunk == SITS_BAD_LENGTH)
		sits_log(src->ctx, SITS_LOG_ERR, "%s: has not the length that its header says: it was cut, or something was added", src->path);
	else
		sits_source_log_chunk(src, chunk);
}

static void log_no_key(const struct load *l)
{
	char id[2 * SITS_KEY_ID_LEN + 1];

	sits_hex(l->src->hdr.key_id, SITS_KEY_ID_LEN, id);
	sits_log(l->src->ctx, SITS_LOG_ERR, "%s: wrong key: it is sealed under key %s, which %s is not, or the kernel does not find it", l->src->path,
		 id, l->key->in_kernel ? l->key->desc : "the one given");
}

static const char *words(int err)
{
	switch (err) {
	case -EBUSY:
		return "another load runs, or somebody else has the region mapped, attached to a device, or pinned";
	case -EPERM:
		return "this process may not load, or the region was revoked";
	case -EACCES:
		return "it is sealed";
	case -ENOMEM:
		return "the kernel has no memory for it: the memory cgroup's limit?";
	case -EKEYREVOKED:
		return "the key was revoked";
	case -EKEYREJECTED:
		return "the key is malformed: it is 32 hexadecimal digits, or 16 random bytes";
	case -EKEYEXPIRED:
		return "its model version is older than the least that is accepted";
	case -EOPNOTSUPP:
	case -ENOTTY:
		return "this module can't load";
	case -ENOPKG:
		return "the kernel has no cipher for it: load the module with 'modprobe sits_sm4'";
	default:
		return strerror(-err);
	}
}

/*
 * The kernel knows no journal: of a header that a rekey is writing, or was when its power failed, it may see some of each.
 * Here such a page came from the journal, or, without the key's bytes, was not looked into.
 */
static bool in_a_rekey(const struct load *l, int err)
{
	struct sits_journal j;

	return (err == -ENOKEY || (err == -EBADMSG && l->arg.bad_chunk == SITS_BAD_HEADER)) &&
	       !sits_journal_read(l->src->ctx, l->src->path, &j);
}

/* Log what the kernel found. Return: what the caller is to answer. */
static int explain(struct load *l, int err)
{
	int changed;

	if (err == -ECANCELED || err == -EINTR)
		return -ECANCELED;
	/* A file that somebody writes to is no forgery. */
	changed = sits_source_unchanged(l->src);
	if (changed)
		return changed;
	if (in_a_rekey(l, err)) {
		sits_log(l->src->ctx, SITS_LOG_ERR, "%s: header: half written by a rekey that was cut short: 'sits rekey' again ends that", l->src->path);
		return -EBADMSG;
	}
	switch (err) {
	case -EBADMSG:
		log_fault(l->src, l->arg.bad_chunk);
		break;
	case -ENOKEY:
		log_no_key(l);
		break;
	case -ESTALE:
		sits_log(l->src->ctx, SITS_LOG_ERR, "%s: changed while it was being read: try again once nobody writes it", l->src->path);
		break;
	default:
		sits_log(l->src->ctx, SITS_LOG_ERR, "%s: can't be loaded by the kernel: %s", l->src->path, words(err));
	}
	return err == -EACCES ? -EPERM : err == -ENOTTY ? -EOPNOTSUPP : err;
}

/* ------------------------------------------------------------------------ a load */

static int load_once(struct load *l)
{
	const struct sits_load_opts *o = l->o;
	int ret;

	l->arg = (struct sits_weights_load){
		.size = sizeof(l->arg), .flags = o->flags & (SITS_LOAD_F_ALLOW_ECB | SITS_LOAD_F_BUFFERED),
		.file_fd = l->src->fd, .region_fd = l->region->fd, .min_version = o->min_version,
	};
	if (l->job->partial) {
		l->arg.ranges = (uintptr_t)l->job->ranges;
		l->arg.nr_ranges = l->job->nr_ranges;
	}
	l->done = false;
	if (!load_by_uring(l, &ret))
		ret = load_by_ioctl(l);
	return ret > 0 ? 0 : ret;
}

/* A rekey that is under way passes. */
static int load_patiently(struct load *l)
{
	int ret, tries = 0;

	for (;;) {
		ret = load_once(l);
		if (!in_a_rekey(l, ret) || ++tries == HEADER_TRIES || l->cancelled)
			return ret;
		nanosleep(&(struct timespec){ .tv_nsec = PROGRESS_NS }, NULL);
	}
}

/* It has been loaded: is it what was looked at? */
static int check_loaded(struct load *l)
{
	if (memcmp(l->arg.digest, l->src->digest, sizeof(l->arg.digest)) || l->arg.plain_bytes != l->src->hdr.plain_bytes ||
	    l->arg.model_version != l->src->hdr.model_version) {
		sits_log(l->src->ctx, SITS_LOG_ERR, "%s: changed while it was being read: try again once nobody writes it", l->src->path);
		return -ESTALE;
	}
	sits_log(l->src->ctx, SITS_LOG_DEBUG,
		 "%s: loaded by the kernel: %" PRIu64 " bytes in %.3f s; waited for reads %.3f s; cipher %.3f s, all cores together",
		 l->src->path, l->job->total_bytes, (double)l->arg.total_ns / 1e9, (double)l->arg.read_ns / 1e9,
		 (double)l->arg.cipher_ns / 1e9);
	return 0;
}

static int load_file(struct load *l)
{
	int ret;

	if (l->job->partial && !(l->region->ctx->features & SITS_FEATURE_LOAD_RANGES)) {
		sits_log(l->src->ctx, SITS_LOG_ERR, "%s: the module that is loaded can't load ranges of a file: it is older than this library",
			 l->src->path);
		return -EOPNOTSUPP;
	}
	ret = sits_source_unchanged(l->src);
	if (ret)
		return ret;
	ret = load_patiently(l);
	return ret ? explain(l, ret) : check_loaded(l);
}

static bool told_to_stop(const struct sits_load_opts *o, uint64_t done, uint64_t total)
{
	return o->progress && o->progress(o->progress_arg, done, total);
}

int sits_kernel_weights_load(struct sits_weights_job *jobs, uint32_t nr_jobs, const struct sits_key *key,
			     const struct sits_load_opts *o)
{
	uint64_t total = 0, before = 0;
	uint32_t i;
	int ret;

	for (i = 0; i < nr_jobs; i++)
		total += jobs[i].total_bytes;
	/* As with the user provider, the first call comes before anything is read. */
	if (told_to_stop(o, 0, total))
		return -ECANCELED;
	/* One after the other: the kernel has all cores at work for each. */
	for (i = 0; i < nr_jobs; i++) {
		struct load l = {
			.job = &jobs[i], .src = &jobs[i].src, .region = jobs[i].region, .key = key, .o = o, .before_bytes = before,
			.total_bytes = total, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER,
		};

		ret = load_file(&l);
		if (ret)
			return ret;
		before += jobs[i].total_bytes;
	}
	return told_to_stop(o, total, total) ? -ECANCELED : 0;
}
