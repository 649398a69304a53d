// SPDX-License-Identifier: MIT
/*
 * secret.c - memory for keys and for plaintext that passes through.
 *
 * Whole pages from mmap(), so that what is locked, kept out of core dumps and emptied in a forked child
 * is this memory and nothing else. What lives here is for the callers to know.
 */
#include "libsits/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libsits/internal.h"

static size_t whole_pages(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (len + page - 1) & ~(page - 1);
}

static void *map_private(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, len, MADV_DONTDUMP);
	/* A child sees zeros; on kernels without that (before 4.14) it does not have the pages at all. */
	if (madvise(p, len, MADV_WIPEONFORK))
		madvise(p, len, MADV_DONTFORK);
	return p;
}

int sits_secret_alloc(struct sits_ctx *ctx, size_t len, void **out)
{
	size_t mapped = whole_pages(len);
	void *p = map_private(mapped);
	int ret;

	if (!p)
		return sits_log_nomem(ctx, "key", "its page", mapped);
	ret = sits_lock_memory(ctx, SITS_LOG_ERR, p, mapped, "a key");
	if (ret) {
		munmap(p, mapped);
		return ret;
	}
	*out = p;
	return 0;
}

void sits_secret_free(void *p, size_t len)
{
	if (!p)
		return;
	explicit_bzero(p, len);
	munmap(p, whole_pages(len));
}

void *sits_scratch_alloc(size_t len)
{
	size_t mapped = whole_pages(len);
	void *p = map_private(mapped);

	if (p)
		mlock(p, mapped);
	return p;
}
