// SPDX-License-Identifier: GPL-2.0
/*
 * sm4_sg.c - the scatterlists of a request, in runs that are as long as memory is contiguous.
 *
 * Not the crypto API's walker: that one gives a page at a time, and puts blocks that lie in two
 * pieces into memory which it frees with their plaintext in it.
 */
#include <linux/mm.h>
#include <linux/highmem.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "kmod/sm4_glue.h"

/* To the entry that has the next byte, if there is one. */
static void sits_sg_settle(struct sits_sg *at)
{
	while (at->sg && at->off >= at->sg->length) {
		at->off -= at->sg->length;
		at->sg = sg_next(at->sg);
	}
}

static void sits_sg_advance(struct sits_sg *at, size_t len)
{
	size_t n;

	for (; at->sg && len; len -= n) {
		n = min_t(size_t, len, at->sg->length - at->off);
		at->off += n;
		sits_sg_settle(at);
	}
}

void sits_sg_start(struct sits_sg *at, struct scatterlist *sg, size_t skip)
{
	at->sg = sg;
	at->off = 0;
	sits_sg_settle(at);
	sits_sg_advance(at, skip);
}

/* How much is contiguous from here, at most @max. */
static size_t sits_sg_contiguous(const struct sits_sg *at, size_t max, u8 **p)
{
	struct scatterlist *sg = at->sg, *next;
	size_t len;

	if (!sg)
		return 0;
	*p = (u8 *)sg_virt(sg) + at->off;
	len = sg->length - at->off;
	while (len < max) {
		next = sg_next(sg);
		if (!next || (u8 *)sg_virt(next) != *p + len)
			break;
		len += next->length;
		sg = next;
	}
	return min(len, max);
}

/* For processors that want to be told of pages that were written. */
static void sits_sg_flush(const u8 *p, size_t len)
{
#if ARCH_IMPLEMENTS_FLUSH_DCACHE_PAGE
	const u8 *page = PTR_ALIGN_DOWN(p, PAGE_SIZE);

	for (; page < p + len; page += PAGE_SIZE)
		flush_dcache_page(virt_to_page(page));
#endif
}

int sits_sg_read(struct sits_sg *at, void *buf, size_t len)
{
	size_t n;
	u8 *p;

	for (; len; len -= n, buf += n) {
		n = sits_sg_contiguous(at, len, &p);
		if (!n)
			return -EINVAL;
		memcpy(buf, p, n);
		sits_sg_advance(at, n);
	}
	return 0;
}

int sits_sg_write(struct sits_sg *at, const void *buf, size_t len)
{
	size_t n;
	u8 *p;

	for (; len; len -= n, buf += n) {
		n = sits_sg_contiguous(at, len, &p);
		if (!n)
			return -EINVAL;
		memcpy(p, buf, n);
		sits_sg_flush(p, n);
		sits_sg_advance(at, n);
	}
	return 0;
}

void sits_sg_zero(struct sits_sg *at, size_t len)
{
	size_t n;
	u8 *p;

	for (; len; len -= n) {
		n = sits_sg_contiguous(at, len, &p);
		if (!n)
			return;
		memset(p, 0, n);
		sits_sg_flush(p, n);
		sits_sg_advance(at, n);
	}
}

/* One unit that lies in pieces, or what is left of one. */
static int sits_sg_unit(struct sits_sg_pair *at, size_t len,
			void (*step)(void *arg, u8 *dst, const u8 *src, size_t len), void *arg)
{
	u8 buf[SITS_SM4_BLOCK_LEN];
	int ret;

	ret = sits_sg_read(&at->in, buf, len);
	if (!ret) {
		step(arg, buf, buf, len);
		ret = sits_sg_write(&at->out, buf, len);
	}
	memzero_explicit(buf, sizeof(buf));
	return ret;
}

int sits_sg_runs(struct sits_sg_pair *at, size_t len, unsigned int unit,
		 void (*step)(void *arg, u8 *dst, const u8 *src, size_t len), void *arg)
{
	u8 *dst, *src;
	size_t n;
	int ret;

	for (; len; len -= n) {
		n = sits_sg_contiguous(&at->in, min_t(size_t, len, SITS_SM4_RUN_BYTES), &src);
		n = sits_sg_contiguous(&at->out, n, &dst);
		if (n < len)
			n = n / unit * unit;
		if (n) {
			step(arg, dst, src, n);
			sits_sg_flush(dst, n);
			sits_sg_advance(&at->in, n);
			sits_sg_advance(&at->out, n);
		} else {
			n = min_t(size_t, len, unit);
			ret = sits_sg_unit(at, n, step, arg);
			if (ret)
				return ret;
		}
		if (at->may_sleep)
			cond_resched();
	}
	return 0;
}
