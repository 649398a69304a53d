// SPDX-License-Identifier: MIT
/*
 * region_facts.c - what memory effectively is (/proc/self/smaps), what there is of it, and locking it with words.
 *
 * Nothing here believes a flag that was asked for: facts are read back from the kernel.
 */
#include "libsits/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIB(bytes) (((bytes) + 1023) / 1024)

/* --------------------------------------------------------------------- smaps */

struct vma {
	uint64_t start, end;
	uint64_t rss, pmd, page;	/* bytes */
	bool locked, hugetlb, nodump, nofork, writable;
};

static bool has_flag(const char *flags, const char *flag)
{
	for (const char *p = flags; (p = strstr(p, flag)); p += 2)
		if (p[-1] == ' ' && (p[2] == ' ' || p[2] == '\n' || p[2] == '\0'))
			return true;
	return false;
}

/* One line below a mapping's first. Returns true at its last line, VmFlags. */
static bool parse_line(const char *line, struct vma *v)
{
	uint64_t kib;

	if (sscanf(line, "KernelPageSize: %" SCNu64, &kib) == 1)
		v->page = kib * 1024;
	else if (sscanf(line, "Rss: %" SCNu64, &kib) == 1)
		v->rss += kib * 1024;
	else if (sscanf(line, "Shared_Hugetlb: %" SCNu64, &kib) == 1 ||
		 sscanf(line, "Private_Hugetlb: %" SCNu64, &kib) == 1)
		v->rss += kib * 1024;
	else if (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 ||
		 sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1 ||
		 sscanf(line, "FilePmdMapped: %" SCNu64, &kib) == 1)
		v->pmd += kib * 1024;
	if (strncmp(line, "VmFlags:", 8))
		return false;
	v->hugetlb = has_flag(line, "ht");
	v->locked = has_flag(line, "lo") || v->hugetlb;
	v->nodump = has_flag(line, "dd");
	v->nofork = has_flag(line, "dc");
	v->writable = has_flag(line, "wr");
	return true;
}

static void add_vma(const struct vma *v, uint64_t start, uint64_t end,
		    struct sits_map_facts *f)
{
	uint64_t bytes = SITS_MIN(end, v->end) - SITS_MAX(start, v->start);

	if (!f->found_bytes) {
		f->locked = f->nodump = f->nofork = f->hugetlb = true;
		f->page_bytes = v->page;
	}
	f->found_bytes += bytes;
	f->rss_bytes += SITS_MIN(v->rss, bytes);
	f->huge_bytes += v->page >= SITS_HUGE_BYTES ? bytes : SITS_MIN(v->pmd, bytes);
	f->page_bytes = SITS_MIN(f->page_bytes, v->page);
	f->locked &= v->locked;
	f->hugetlb &= v->hugetlb;
	f->nodump &= v->nodump;
	f->nofork &= v->nofork;
	f->writable |= v->writable;
}

int sits_map_facts(const void *addr, uint64_t len_bytes, struct sits_map_facts *facts)
{
	uint64_t start = (uintptr_t)addr, end = start + len_bytes, a, b;
	struct vma v = { 0 };
	char line[512];
	FILE *f;

	memset(facts, 0, sizeof(*facts));
	f = fopen("/proc/self/smaps", "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &a, &b) == 2) {
			memset(&v, 0, sizeof(v));
			v.start = a;
			v.end = b;
			if (a >= end)
				break;
		} else if (parse_line(line, &v) && v.start < end && v.end > start) {
			add_vma(&v, start, end, facts);
		}
	}
	fclose(f);
	return facts->found_bytes == len_bytes ? 0 : -ENOENT;
}

/* ------------------------------------------------------------------- mlock(2) */

static uint64_t locked_now_kib(void)
{
	uint64_t kib = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmLck: %" SCNu64, &kib) == 1)
			break;
	fclose(f);
	return kib;
}

static bool may_lock_all(void)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	return !syscall(SYS_capget, &hdr, data) && data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

bool sits_memlock_allows(uint64_t len_bytes)
{
	struct rlimit limit = { 0 };

	if (may_lock_all() || getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return true;
	return locked_now_kib() + KIB(len_bytes) <= limit.rlim_cur / 1024;
}

void sits_log_memlock(struct sits_ctx *ctx, int severity, uint64_t len_bytes, const char *what)
{
	uint64_t held_kib = locked_now_kib();
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_MEMLOCK, &limit);
	sits_log(ctx, severity,
		 "%s: needs %" PRIu64 " KiB of locked memory, RLIMIT_MEMLOCK is %" PRIu64 " KiB with %" PRIu64 " KiB in use: raise it to %" PRIu64 " KiB or more ('ulimit -l', LimitMEMLOCK= in the systemd unit, memlock in /etc/security/limits.conf), or grant CAP_IPC_LOCK",
		 what, KIB(len_bytes), (uint64_t)limit.rlim_cur / 1024, held_kib, held_kib + KIB(len_bytes));
}

int sits_lock_memory(struct sits_ctx *ctx, int severity, const void *addr, uint64_t len_bytes,
		     const char *what)
{
	int err;

	if (!mlock2(addr, len_bytes, MLOCK_ONFAULT))
		return 0;
	err = errno;
	/* ENOMEM also means too many mappings, EPERM a limit of zero: see mlock(2). */
	if (err == EPERM || (err == ENOMEM && !sits_memlock_allows(len_bytes))) {
		sits_log_memlock(ctx, severity, len_bytes, what);
		return -EPERM;
	}
	sits_log(ctx, severity, "%s: cannot lock %" PRIu64 " KiB in memory: %s", what, KIB(len_bytes),
		 strerror(err));
	return -err;
}

int sits_log_nomem(struct sits_ctx *ctx, const char *about, const char *what, uint64_t len_bytes)
{
	char size[32] = "", limit[80] = "free some";
	struct rlimit lim;

	if (len_bytes)
		snprintf(size, sizeof(size), ", %" PRIu64 " KiB", KIB(len_bytes));
	if (!getrlimit(RLIMIT_AS, &lim) && lim.rlim_cur != RLIM_INFINITY)
		snprintf(limit, sizeof(limit), "the limit on address space (ulimit -v) is %" PRIu64 " KiB", KIB((uint64_t)lim.rlim_cur));
	sits_log(ctx, SITS_LOG_ERR, "%s: no memory for %s%s: %s", about, what, size, limit);
	return -ENOMEM;
}

/* --------------------------------------------------------------- room for regions */

int sits_map_reserve(uint64_t len_bytes, uint64_t align, void **out)
{
	uint64_t before, total = len_bytes + align;
	uint8_t *base;

	base = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	before = -(uintptr_t)base % align;
	if (before)
		munmap(base, before);
	munmap(base + before + len_bytes, align - before);
	*out = base + before;
	return 0;
}

int sits_check_available(struct sits_ctx *ctx, const char *name, uint64_t len_bytes)
{
	uint64_t available_kib = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %" SCNu64, &available_kib) == 1)
			break;
	fclose(f);
	if (!available_kib || len_bytes / 1024 < available_kib)
		return 0;
	sits_log(ctx, SITS_LOG_ERR,
		 "region '%s': %" PRIu64 " MiB wanted, the machine has %" PRIu64 " MiB available: free memory, or use a smaller model",
		 name, (len_bytes + (1u << 20) - 1) >> 20, available_kib / 1024);
	return -ENOMEM;
}
