// SPDX-License-Identifier: GPL-2.0
/*
 * weights_pump.c - the chunks of a sealed file: read into a region's pages, and opened in place.
 *
 * The file is cut into spans of whole chunks. A span in flight goes round:
 *
 *	IDLE --caller issues a read--> READING --it completed--> CIPHER --a worker opened it--> IDLE
 *	                                  ^  |
 *	                      the rest of it |short, or the file system refused
 *	                                  |  v
 *	                                 RETRY
 *
 * Only the caller issues reads: in its own context, so that bandwidth, page cache and permissions
 * are its own, and because a file system may touch a kiocb after its completion, until the call
 * that issued it returns. Completions come from any context. Workers belong to no CPU.
 *
 * Spans are taken in order, and those before a failure are finished: so the failure that is told is
 * the first in the file, whoever finds which one first.
 */
#include <crypto/aead.h>
#include <crypto/skcipher.h>
#include <linux/bvec.h>
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uio.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "kmod/region.h"
#include "kmod/weights_file.h"
#include "kmod/weights_pump.h"

/* As in libsits: large enough for any disk, small enough to share out between cores. */
#define SITS_SPAN_BYTES		((u32)SZ_1M)

/* How often the caller is asked whether to go on, where nothing else wakes it. */
#define SITS_POLL_MS		20

/* Beyond a span for each core: reads for them to find done. */
#define SITS_INFLIGHT_AHEAD	4

enum sits_span_state {
	SITS_SPAN_IDLE,
	SITS_SPAN_READING,
	SITS_SPAN_RETRY,
	SITS_SPAN_CIPHER,
};

/**
 * struct sits_span - a piece of the file in flight
 *
 * Owned by the pump. Its fields belong to whom @state says: to the caller's task when IDLE and
 * RETRY, to the read when READING, to a worker when CIPHER.
 *
 * @pump: that it is part of
 * @state: under the pump's lock
 * @off: in the plaintext, of whole chunks
 * @region_off: where it goes, the start of a page
 * @len: of data
 * @done: bytes that are there
 * @direct: of the read
 * @res: of the read: bytes or -errno
 * @iocb: the read
 * @bvecs: pages of the region, those for @len rounded up
 * @nr_bvecs: there are
 * @sgl: for one chunk: associated data, pages, tag
 * @aead_req: for one chunk, of suite 1
 * @ecb_req: likewise, of suite 240
 * @wait: for that request
 * @work: opens the span
 * @iv: of one chunk; a device may be the cipher, so these three are not on the stack
 * @tag: likewise
 * @aad: likewise
 */
struct sits_span {
	struct sits_pump *pump;
	enum sits_span_state state;
	u64 off;
	u64 region_off;
	u32 len;
	u32 done;
	bool direct;
	long res;
	struct kiocb iocb;
	struct bio_vec *bvecs;
	unsigned int nr_bvecs;
	struct scatterlist *sgl;
	struct aead_request *aead_req;
	struct skcipher_request *ecb_req;
	struct crypto_wait wait;
	struct work_struct work;
	u8 iv[SITS_SM4_BLOCK_LEN];
	u8 tag[SITS_GCM_TAG_LEN];
	u8 aad[SITS_SEALED_AAD_LEN];
};

/**
 * struct sits_pump - a run, on its caller's stack
 *
 * @run: what the caller wants
 * @span_bytes: of all spans but the last
 * @range: that the next span is taken from, of the run's; the caller's task's
 * @range_done: bytes of it that were taken; the caller's task's
 * @direct: reads past the page cache, until a file system refuses; the caller's task's
 * @slow: a read was over when it was issued; the caller's task's
 * @stop: the caller does not want any more: nothing is worth finishing
 * @spans: in flight
 * @nr_spans: of them
 * @wait: the caller's task, for @event
 * @lock: guards all below; taken in completions
 * @event: a span has become IDLE or RETRY
 * @nr_reading: spans READING
 * @nr_cipher: spans CIPHER
 * @clock: when these two last changed
 * @done_bytes: opened
 * @err: the first failure in the file, or 0
 * @fail_off: where that is
 */
struct sits_pump {
	struct sits_weights_run *run;
	u32 span_bytes;
	u32 range;
	u64 range_done;
	bool direct;
	bool slow;
	bool stop;
	struct sits_span **spans;
	unsigned int nr_spans;
	wait_queue_head_t wait;

	spinlock_t lock;
	bool event;
	unsigned int nr_reading;
	unsigned int nr_cipher;
	u64 clock;
	u64 done_bytes;
	int err;
	u64 fail_off;
};

static struct workqueue_struct *sits_cipher_wq;

static const struct sits_sealed_hdr *sits_pump_hdr(const struct sits_pump *pump)
{
	return &pump->run->wf->hdr;
}

/* -------------------------------------------------------------------------- states */

static void sits_pump_fail(struct sits_pump *pump, int err, u64 off)
{
	lockdep_assert_held(&pump->lock);
	if (!pump->err || off < pump->fail_off) {
		pump->err = err;
		pump->fail_off = off;
	}
}

/*
 * A span goes from one state to another; the lock makes what was done before visible to its next
 * owner.
 */
static void sits_span_move(struct sits_span *span, enum sits_span_state to)
{
	struct sits_pump *pump = span->pump;
	u64 now = ktime_get_ns();

	lockdep_assert_held(&pump->lock);
	if (pump->nr_reading && !pump->nr_cipher)
		pump->run->read_ns += now - pump->clock;
	pump->clock = now;
	pump->nr_reading += (to == SITS_SPAN_READING) - (span->state == SITS_SPAN_READING);
	pump->nr_cipher += (to == SITS_SPAN_CIPHER) - (span->state == SITS_SPAN_CIPHER);
	span->state = to;
	if (to == SITS_SPAN_IDLE || to == SITS_SPAN_RETRY) {
		pump->event = true;
		/* Under the lock: once the caller has it, nobody looks at the pump any more. */
		wake_up(&pump->wait);
	}
}

static enum sits_span_state sits_span_state(struct sits_span *span)
{
	enum sits_span_state state;

	spin_lock_irq(&span->pump->lock);
	state = span->state;
	spin_unlock_irq(&span->pump->lock);
	return state;
}

/* ------------------------------------------------------------------------- opening */

/* Contiguous pages from @pgoff, at most @max, and within a slot. */
static unsigned long sits_pump_extent(const struct sits_region *region, unsigned long pgoff,
				      unsigned long max)
{
	unsigned long pfn = page_to_pfn(sits_region_page(region, pgoff)), n;

	max = min(max, SITS_SLOT_PAGES - (pgoff & (SITS_SLOT_PAGES - 1)));
	for (n = 1; n < max; n++)
		if (page_to_pfn(sits_region_page(region, pgoff + n)) != pfn + n)
			break;
	return n;
}

/* Add @len bytes of the region at @off, the start of a page, to a list that has room. */
static struct scatterlist *sits_sg_add_region(struct scatterlist *sg,
					      const struct sits_region *region, u64 off, u32 len)
{
	unsigned long pgoff = off >> PAGE_SHIFT, n;
	u32 part;

	for (; len; len -= part, pgoff += n) {
		n = sits_pump_extent(region, pgoff, DIV_ROUND_UP(len, PAGE_SIZE));
		part = min_t(u64, len, (u64)n << PAGE_SHIFT);
		sg_set_page(sg++, sits_region_page(region, pgoff), part, 0);
	}
	return sg;
}

static unsigned int sits_chunk_sg_max(const struct sits_pump *pump)
{
	return (sits_pump_hdr(pump)->chunk_bytes >> PAGE_SHIFT) + 2;
}

static int sits_span_open_gcm(struct sits_span *span, u64 i, u64 region_off, u32 len)
{
	const struct sits_weights_file *wf = span->pump->run->wf;
	struct scatterlist *sg = span->sgl;

	sits_sealed_chunk_nonce_aad(&wf->hdr, wf->salt, wf->hdr_digest, i, span->iv, span->aad);
	memcpy(span->tag, wf->tags + i * SITS_GCM_TAG_LEN, SITS_GCM_TAG_LEN);
	sg_init_table(sg, sits_chunk_sg_max(span->pump));
	sg_set_buf(sg++, span->aad, sizeof(span->aad));
	sg = sits_sg_add_region(sg, span->pump->run->region, region_off, len);
	sg_set_buf(sg, span->tag, sizeof(span->tag));
	sg_mark_end(sg);
	aead_request_set_ad(span->aead_req, sizeof(span->aad));
	aead_request_set_crypt(span->aead_req, span->sgl, span->sgl, len + SITS_GCM_TAG_LEN,
			       span->iv);
	return crypto_wait_req(crypto_aead_decrypt(span->aead_req), &span->wait);
}

static int sits_span_open_ecb(struct sits_span *span, u64 region_off, u32 len)
{
	struct scatterlist *sg = span->sgl;

	len = ALIGN(len, SITS_SM4_BLOCK_LEN);
	sg_init_table(sg, sits_chunk_sg_max(span->pump));
	sg = sits_sg_add_region(sg, span->pump->run->region, region_off, len);
	sg_mark_end(sg - 1);
	skcipher_request_set_crypt(span->ecb_req, span->sgl, span->sgl, len, NULL);
	return crypto_wait_req(crypto_skcipher_decrypt(span->ecb_req), &span->wait);
}

static int sits_span_open_chunk(struct sits_span *span, u64 i)
{
	const struct sits_sealed_hdr *h = sits_pump_hdr(span->pump);
	u32 len = sits_sealed_chunk_len(h, i);
	u64 region_off = i * h->chunk_bytes - span->off + span->region_off;

	return span->aead_req ? sits_span_open_gcm(span, i, region_off, len) :
				sits_span_open_ecb(span, region_off, len);
}

/* Open all chunks of a span. @bad: out on failure, where. */
static int sits_span_open(struct sits_span *span, u64 *bad)
{
	u32 chunk_bytes = sits_pump_hdr(span->pump)->chunk_bytes;
	int ret;

	for (*bad = span->off; *bad < span->off + span->len; *bad += chunk_bytes) {
		if (READ_ONCE(span->pump->stop))
			return -ECANCELED;
		ret = sits_span_open_chunk(span, div_u64(*bad, chunk_bytes));
		if (ret)
			return ret;
		cond_resched();
	}
	return 0;
}

static void sits_span_work(struct work_struct *work)
{
	struct sits_span *span = container_of(work, struct sits_span, work);
	struct sits_pump *pump = span->pump;
	u64 start = ktime_get_ns(), bad;
	int ret;

	ret = sits_span_open(span, &bad);
	spin_lock_irq(&pump->lock);
	pump->run->cipher_ns += ktime_get_ns() - start;
	if (ret)
		sits_pump_fail(pump, ret, bad);
	else
		pump->done_bytes += span->len;
	sits_span_move(span, SITS_SPAN_IDLE);
	spin_unlock_irq(&pump->lock);
}

/* ------------------------------------------------------------------------- reading */

/* A read gave something. Any context. */
static void sits_span_read_done(struct kiocb *iocb, long res)
{
	struct sits_span *span = container_of(iocb, struct sits_span, iocb);
	struct sits_pump *pump = span->pump;
	bool whole = res > 0 && res >= span->len - span->done;
	unsigned long flags;

	spin_lock_irqsave(&pump->lock, flags);
	span->res = res;
	sits_span_move(span, whole ? SITS_SPAN_CIPHER : SITS_SPAN_RETRY);
	spin_unlock_irqrestore(&pump->lock, flags);
	if (whole)
		queue_work(sits_cipher_wq, &span->work);
}

/* Direct reads want whole blocks, also where the file ends within one: a region has whole pages. */
static void sits_span_read(struct sits_span *span)
{
	struct sits_pump *pump = span->pump;
	struct file *file = pump->run->wf->file;
	struct iov_iter iter;
	long res;

	span->direct = pump->direct && IS_ALIGNED(span->done, PAGE_SIZE);
	iov_iter_bvec(&iter, ITER_DEST, span->bvecs, span->nr_bvecs,
		      span->direct ? ALIGN(span->len, PAGE_SIZE) : span->len);
	iov_iter_advance(&iter, span->done);
	init_sync_kiocb(&span->iocb, file);
	span->iocb.ki_pos = sits_pump_hdr(pump)->data_off + span->off + span->done;
	span->iocb.ki_flags &= ~IOCB_DIRECT;
	if (span->direct) {
		span->iocb.ki_flags |= IOCB_DIRECT;
		span->iocb.ki_complete = sits_span_read_done;
	}
	spin_lock_irq(&pump->lock);
	sits_span_move(span, SITS_SPAN_READING);
	spin_unlock_irq(&pump->lock);
	res = vfs_iocb_iter_read(file, &span->iocb, &iter);
	/* Else it may be over by now, and the span somebody else's. */
	if (res != -EIOCBQUEUED) {
		pump->slow = true;
		sits_span_read_done(&span->iocb, res);
	}
}

/* Give up a span. */
static void sits_span_drop(struct sits_span *span, int err)
{
	struct sits_pump *pump = span->pump;

	spin_lock_irq(&pump->lock);
	if (err)
		sits_pump_fail(pump, err, span->off + span->done);
	sits_span_move(span, SITS_SPAN_IDLE);
	spin_unlock_irq(&pump->lock);
}

/* Is there no failure before this offset? Then what is there may be the first one. */
static bool sits_pump_wants(struct sits_pump *pump, u64 off)
{
	bool wants;

	spin_lock_irq(&pump->lock);
	wants = !pump->stop && (!pump->err || off < pump->fail_off);
	spin_unlock_irq(&pump->lock);
	return wants;
}

/* What a file system says that can't do this read past the page cache. */
static bool sits_is_direct_refusal(long res)
{
	return res == -EINVAL || res == -EOPNOTSUPP || res == -ENOTBLK || res == -EAGAIN;
}

/* A read gave less than was asked for. */
static void sits_span_retry(struct sits_span *span)
{
	struct sits_pump *pump = span->pump;

	if (span->res > 0) {
		span->done += span->res;
	} else if (span->direct && sits_is_direct_refusal(span->res)) {
		pump->direct = false;
	} else {
		sits_span_drop(span, span->res ? span->res : -ESTALE);
		return;
	}
	if (sits_pump_wants(pump, span->off))
		sits_span_read(span);
	else
		sits_span_drop(span, 0);
}

static void sits_span_set_pages(struct sits_span *span)
{
	const struct sits_region *region = span->pump->run->region;
	unsigned long pgoff = span->region_off >> PAGE_SHIFT, n;
	unsigned long left = DIV_ROUND_UP(span->len, PAGE_SIZE);

	for (span->nr_bvecs = 0; left; left -= n, pgoff += n) {
		struct bio_vec *bv = &span->bvecs[span->nr_bvecs++];

		n = sits_pump_extent(region, pgoff, left);
		bv->bv_page = sits_region_page(region, pgoff);
		bv->bv_len = n << PAGE_SHIFT;
		bv->bv_offset = 0;
	}
}

/* Bytes of data of a range; suite 240 has padding behind the end. */
static u64 sits_range_data_bytes(const struct sits_sealed_hdr *h,
				 const struct sits_weights_range *range)
{
	u64 end = range->file_off + range->len_bytes;

	return (end == h->plain_bytes ? h->data_bytes : end) - range->file_off;
}

/* Take the next span of the file. Return: false if there is none. */
static bool sits_span_take(struct sits_span *span)
{
	struct sits_pump *pump = span->pump;
	const struct sits_weights_range *range = &pump->run->ranges[pump->range];
	u64 left;

	if (pump->range == pump->run->nr_ranges ||
	    !sits_pump_wants(pump, range->file_off + pump->range_done))
		return false;
	left = sits_range_data_bytes(sits_pump_hdr(pump), range) - pump->range_done;
	span->off = range->file_off + pump->range_done;
	span->region_off = range->region_off + pump->range_done;
	span->len = min_t(u64, left, pump->span_bytes);
	span->done = 0;
	pump->range_done += span->len;
	if (span->len == left) {
		pump->range++;
		pump->range_done = 0;
	}
	sits_span_set_pages(span);
	return true;
}

/* ------------------------------------------------------------------------- running */

/* Give an idle span something to do, or go on with its read. Return: whether it is in flight. */
static bool sits_span_advance(struct sits_span *span)
{
	switch (sits_span_state(span)) {
	case SITS_SPAN_RETRY:
		sits_span_retry(span);
		return true;
	case SITS_SPAN_IDLE:
		if (!sits_span_take(span))
			return false;
		sits_span_read(span);
		return true;
	default:
		return true;
	}
}

/*
 * Issue what can be. Return: whether anything is in flight. Reads through the page cache are over
 * when they are issued: then it comes back for the caller to be asked before the next one.
 */
static bool sits_pump_issue(struct sits_pump *pump)
{
	bool in_flight = false;
	unsigned int i;

	pump->slow = false;
	for (i = 0; i < pump->nr_spans && !pump->slow; i++)
		in_flight |= sits_span_advance(pump->spans[i]);
	return in_flight;
}

static void sits_pump_ask(struct sits_pump *pump, u64 *asked)
{
	u64 done;
	int ret;

	spin_lock_irq(&pump->lock);
	done = pump->done_bytes;
	pump->event = false;
	spin_unlock_irq(&pump->lock);
	if (pump->stop || (!fatal_signal_pending(current) &&
			   time_is_after_jiffies64(*asked + msecs_to_jiffies(SITS_POLL_MS) / 2)))
		return;
	*asked = get_jiffies_64();
	ret = pump->run->poll(pump->run->arg, done);
	if (!ret)
		return;
	spin_lock_irq(&pump->lock);
	WRITE_ONCE(pump->stop, true);
	pump->err = ret;
	pump->fail_off = 0;
	spin_unlock_irq(&pump->lock);
}

static void sits_pump_go(struct sits_pump *pump)
{
	u64 asked = 0;

	for (;;) {
		sits_pump_ask(pump, &asked);
		if (!sits_pump_issue(pump))
			return;
		if (pump->slow)
			continue;
		/*
		 * Of a signal that ends the caller poll tells; then only what is in flight is
		 * waited for.
		 */
		if (pump->stop)
			wait_event(pump->wait, READ_ONCE(pump->event));
		else
			wait_event_killable_timeout(pump->wait, READ_ONCE(pump->event),
						    msecs_to_jiffies(SITS_POLL_MS));
	}
}

static void sits_span_free(struct sits_span *span)
{
	if (!span)
		return;
	aead_request_free(span->aead_req);
	skcipher_request_free(span->ecb_req);
	kvfree(span->sgl);
	kvfree(span->bvecs);
	kfree_sensitive(span);
}

static struct sits_span *sits_span_alloc(struct sits_pump *pump)
{
	const u32 flags = CRYPTO_TFM_REQ_MAY_BACKLOG | CRYPTO_TFM_REQ_MAY_SLEEP;
	const struct sits_weights_file *wf = pump->run->wf;
	struct sits_span *span;

	span = kzalloc(sizeof(*span), SITS_GFP);
	if (!span)
		return NULL;
	span->pump = pump;
	INIT_WORK(&span->work, sits_span_work);
	crypto_init_wait(&span->wait);
	span->bvecs = kvmalloc_array(pump->span_bytes >> PAGE_SHIFT, sizeof(*span->bvecs),
				     SITS_GFP);
	span->sgl = kvmalloc_array(sits_chunk_sg_max(pump), sizeof(*span->sgl), SITS_GFP);
	if (wf->gcm)
		span->aead_req = aead_request_alloc(wf->gcm, SITS_GFP);
	else
		span->ecb_req = skcipher_request_alloc(wf->ecb, SITS_GFP);
	if (!span->bvecs || !span->sgl || (!span->aead_req && !span->ecb_req)) {
		sits_span_free(span);
		return NULL;
	}
	if (span->aead_req)
		aead_request_set_callback(span->aead_req, flags, crypto_req_done, &span->wait);
	else
		skcipher_request_set_callback(span->ecb_req, flags, crypto_req_done, &span->wait);
	return span;
}

static void sits_pump_free(struct sits_pump *pump)
{
	while (pump->nr_spans)
		sits_span_free(pump->spans[--pump->nr_spans]);
	kfree(pump->spans);
}

static u64 sits_pump_count_spans(const struct sits_pump *pump)
{
	const struct sits_weights_run *run = pump->run;
	u64 n = 0;
	u32 i;

	for (i = 0; i < run->nr_ranges; i++)
		n += DIV_ROUND_UP_ULL(run->ranges[i].len_bytes, pump->span_bytes);
	return n;
}

static int sits_pump_alloc(struct sits_pump *pump)
{
	u64 wanted = sits_pump_count_spans(pump);
	u32 inflight = pump->run->nr_inflight ?: num_online_cpus() + SITS_INFLIGHT_AHEAD;

	/* An empty file has a chunk to open, too. */
	wanted = clamp_t(u64, wanted, 1, min_t(u32, inflight, SITS_INFLIGHT_MAX));
	pump->spans = kcalloc(wanted, sizeof(*pump->spans), SITS_GFP);
	if (!pump->spans)
		return -ENOMEM;
	while (pump->nr_spans < wanted) {
		struct sits_span *span = sits_span_alloc(pump);

		if (!span)
			break;
		pump->spans[pump->nr_spans++] = span;
	}
	/* One is enough to get through. */
	return pump->nr_spans ? 0 : -ENOMEM;
}

int sits_weights_pump(struct sits_weights_run *run)
{
	const struct sits_sealed_hdr *h = &run->wf->hdr;
	struct sits_pump pump = {
		.run = run,
		.span_bytes = max(h->chunk_bytes, SITS_SPAN_BYTES),
		.direct = run->direct && (run->wf->file->f_mode & FMODE_CAN_ODIRECT),
	};
	int ret;

	spin_lock_init(&pump.lock);
	init_waitqueue_head(&pump.wait);
	run->read_ns = 0;
	run->cipher_ns = 0;
	run->bad_chunk = 0;
	ret = sits_pump_alloc(&pump);
	if (ret)
		goto out_free;
	if (run->nr_ranges)
		sits_pump_go(&pump);
	else if (h->nr_chunks)
		pump.err = sits_span_open_chunk(pump.spans[0], 0);
	ret = pump.err;
	if (ret)
		run->bad_chunk = div_u64(pump.fail_off, h->chunk_bytes);
	else
		ret = run->poll(run->arg, pump.done_bytes);
out_free:
	sits_pump_free(&pump);
	return ret;
}

int sits_weights_pump_init(void)
{
	/* WQ_SYSFS: an operator may keep loads off the cores that serve requests. */
	sits_cipher_wq = alloc_workqueue("sits_cipher", WQ_UNBOUND | WQ_SYSFS, num_possible_cpus());
	return sits_cipher_wq ? 0 : -ENOMEM;
}

void sits_weights_pump_fini(void)
{
	destroy_workqueue(sits_cipher_wq);
}
