// SPDX-License-Identifier: MIT
/*
 * region_map_test.c - CPU mappings of regions: what they allow, how large their pages are, and what an attacker tries on
 * protected ones. Where the brd module is there, also direct I/O.
 */
#include <linux/dma-buf.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "region_common.h"

static int series;	/* 601 for Linux 6.1 */

static bool is_zero(const volatile char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

/* The flags of a mapping, in VmFlags of smaps, and one of its sizes in kB. */
static bool smaps(const void *addr, char *flags, size_t room, const char *key, long *kb)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	unsigned long start, end;
	bool here = false, found = false;

	*flags = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && strchr(line, '-') < strchr(line, ' '))
			here = start == (uintptr_t)addr;
		if (here && key && !strncmp(line, key, strlen(key)))
			*kb = strtol(line + strlen(key) + 1, NULL, 10);
		if (here && !strncmp(line, "VmFlags:", 8)) {
			line[8 + room - 1] = '\0';
			strcpy(flags, line + 8);
			found = true;
		}
	}
	if (f)
		fclose(f);
	return found;
}

static bool has_flag(const void *addr, const char *flag)
{
	char flags[256], word[8];
	long kb = 0;

	if (!smaps(addr, flags, sizeof(flags), NULL, &kb))
		return false;
	snprintf(word, sizeof(word), " %s", flag);
	return strstr(flags, word);
}

static long faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt;
}

/* Page faults that it takes to read (or write) each page once. */
static long count_faults(volatile char *p, size_t len, bool write)
{
	long before = faults();

	for (size_t i = 0; i < len; i += PAGE) {
		if (write)
			p[i] = 1;
		else
			(void)p[i];
	}
	return faults() - before;
}

static int touch(void *p)
{
	return *(volatile char *)p;
}

static long vmsplice_err(const void *p)
{
	struct iovec iov = { (void *)p, 64 };
	int fds[2];
	long n;

	need(!pipe(fds), "pipe");
	n = vmsplice(fds[1], &iov, 1, 0);
	if (n < 0)
		n = -errno;
	close(fds[0]);
	close(fds[1]);
	return n;
}

static void test_pinned(void)
{
	int fd = create(SITS_KIND_PINNED, 0, 3 * PAGE), other;
	char path[64], buf[16];
	char *p, *q, *rest;

	p = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE);
	check_int(err_of(p), 0, "pinned: map for writing");
	check(is_zero(p, 3 * PAGE), "pinned: memory is zero");
	memset(p, 'a', 3 * PAGE);
	q = map(fd, PAGE, PROT_READ);
	check(q[0] == 'a' && q[PAGE - 1] == 'a', "pinned: a second mapping sees it");
	check_int(vmsplice_err(p), 64, "pinned: the kernel can pin its pages");
	check_int(mprotect(q, PAGE, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES,
		  "pinned: mapped for reading it stays so");
	check_int(mprotect(p, PAGE, PROT_READ | PROT_EXEC) ? -errno : 0, -EACCES, "pinned: mprotect to execute");
	check_int(mprotect(p, PAGE, PROT_READ) ? -errno : 0, 0, "pinned: mprotect of a part to read");
	check_int(mprotect(p, PAGE, PROT_READ | PROT_WRITE) ? -errno : 0, 0, "pinned: and back to write");
	p[0] = 'b';
	check_int(err_of(map(fd, PAGE, PROT_READ | PROT_EXEC)), -EACCES, "pinned: map to execute");
	check_int(err_of(map_at(NULL, fd, PAGE, PROT_READ, MAP_PRIVATE)), -EINVAL, "pinned: private mapping");
	check_int(err_of(map(fd, 4 * PAGE, PROT_READ)), -EINVAL, "pinned: map beyond its end");
	check_int(err_of(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 3 * PAGE)) ? -errno : 0, -EINVAL,
		  "pinned: map from its end on");
	check_int(mremap(q, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED ? -errno : 0, -EFAULT,
		  "pinned: a mapping can't grow");
	check_int(madvise(p, PAGE, MADV_DODUMP) ? -errno : 0, -EINVAL, "pinned: madvise can't put it into dumps");
	check(has_flag(q, "dd"), "pinned: not in core dumps");

	munmap(p + PAGE, PAGE);
	rest = p + 2 * PAGE;
	check(p[0] == 'b' && rest[0] == 'a', "pinned: the rest stays when the middle is unmapped");
	p = mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q);
	check(p == q && p[0] == 'b', "pinned: a mapping can move");

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR | O_CLOEXEC);
	check_int(other < 0 ? -errno : 0, -ENXIO, "pinned: can't be opened a second time by /proc");
	check_int(read(fd, buf, sizeof(buf)) < 0 ? -errno : 0, -EINVAL, "pinned: read");
	check_int(in_child(touch, p), 'b', "pinned: a child sees it");
	close(fd);
	check(p[0] == 'b', "pinned: a mapping outlives the descriptor");
	check_int(info().nr_regions, 1, "pinned: and holds the region");
	munmap(p, PAGE);
	munmap(rest, PAGE);
}

static void test_dump(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	static char line[1 << 16];
	int pid, status, fd = create(SITS_KIND_PINNED, 0, 16 * PAGE);
	unsigned char *p = map(fd, 16 * PAGE, PROT_READ | PROT_WRITE);
	bool found = false, canary = false;
	char path[64];
	FILE *f;
	size_t n;

	/* The two patterns are in no other memory: each byte is computed when it is written or looked for. */
	unsigned char *plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < 16 * PAGE; i++)
		p[i] = (unsigned char)(i * 167 + 13) ^ 0x5a;
	for (size_t i = 0; i < PAGE; i++)
		plain[i] = (unsigned char)(i * 151 + 29) ^ 0xa5;
	check_int(write_text("/proc/sys/kernel/core_pattern", "/tmp/sits-core.%p"), 0, "dump: where to");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &limit);
		(void)p[0];
		abort();
	}
	waitpid(pid, &status, 0);
	snprintf(path, sizeof(path), "/tmp/sits-core.%d", pid);
	f = fopen(path, "re");
	if (!check(f != NULL && WCOREDUMP(status), "dump: a core was dumped"))
		printf("# status %#x, %s: %s\n", status, path, strerror(errno));
	while (f && (n = fread(line, 1, sizeof(line), f)) > 0) {
		for (size_t i = 0; i + 32 <= n; i++) {
			size_t k;

			for (k = 0; k < 32 && (unsigned char)line[i + k] == ((unsigned char)(k * 167 + 13) ^ 0x5a); k++)
				;
			found |= k == 32;
			for (k = 0; k < 32 && (unsigned char)line[i + k] == ((unsigned char)(k * 151 + 29) ^ 0xa5); k++)
				;
			canary |= k == 32;
		}
	}
	if (f)
		fclose(f);
	unlink(path);
	check(canary, "dump: it has the ordinary memory");
	check(!found, "dump: it has nothing of the region");
	munmap(plain, PAGE);
	munmap(p, 16 * PAGE);
	close(fd);
}

/*
 * Fill most of memory with huge pages of a file, far behind its beginning, and give them back: a free page still has in it
 * where in a file it was.
 */
static void leave_far_places(void)
{
	const char *how = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	int knob = open(how, O_WRONLY | O_CLOEXEC), fd = memfd_create("far", MFD_CLOEXEC);
	struct sysinfo mem;

	need(fd >= 0 && !sysinfo(&mem), "memfd_create");
	if (knob < 0 || write(knob, "force", 5) != 5)
		printf("# %s: %s: by small pages\n", how, strerror(errno));
	check_int(fallocate(fd, 0, 1l << 40, (off_t)(mem.freeram * mem.mem_unit / 4 * 3 & ~(HUGE - 1))) ? -errno : 0, 0,
		  "huge: most of memory was a file's");
	close(fd);
	if (knob >= 0 && write(knob, "never", 5) != 5)
		printf("# %s: %s\n", how, strerror(errno));
	close(knob);
}

/* In pages that others have used, wherever those were. */
static void test_huge_again(void)
{
	const size_t len = 32 * HUGE;
	char flags[256];
	long n, kb = 0;
	char *p;
	int fd;

	leave_far_places();
	fd = create(SITS_KIND_HUGE, SITS_CREATE_REQUIRE_HUGE, len);
	if (!check(fd >= 0, "huge, used before: create"))
		return;
	p = map_aligned(fd, len, PROT_READ | PROT_WRITE);
	check_int(err_of(p), 0, "huge, used before: map");
	n = count_faults(p, len, true);
	printf("# %ld faults\n", n);
	check(info().features & SITS_FEATURE_HUGE_PMD ? n <= 34 : n >= 32 * 512,
	      "huge, used before: one page fault for each huge page");
	smaps(p, flags, sizeof(flags), "FilePmdMapped", &kb);
	check_int(kb, 32 * 2048, "huge, used before: mapped by PMDs");
	munmap(p, len);
	close(fd);
}

static void test_huge(void)
{
	int fd = create(SITS_KIND_HUGE, SITS_CREATE_REQUIRE_HUGE, HUGE + 1);
	struct sits_region_facts f;
	char flags[256];
	long n, kb = 0;
	char *p, *q;

	if (!check(fd >= 0, "huge: create"))
		return;
	f = facts(fd);
	check_int(f.len_bytes, HUGE + 1, "huge: length as asked for");
	check_int(f.mapped_bytes, 2 * HUGE, "huge: whole huge pages");
	check_int(f.huge_bytes, 2 * HUGE, "huge: all of it in huge pages");
	check_int(f.page_bytes, HUGE, "huge: page size");
	check(f.state & SITS_REGION_F_PINNABLE, "huge: can be pinned");

	p = map_aligned(fd, 2 * HUGE, PROT_READ | PROT_WRITE);
	check_int(err_of(p), 0, "huge: map");
	n = count_faults(p, 2 * HUGE, true);
	check(info().features & SITS_FEATURE_HUGE_PMD ? n <= 4 : n >= 1024, "huge: one page fault for each huge page");
	printf("# %ld faults\n", n);
	smaps(p, flags, sizeof(flags), "FilePmdMapped", &kb);
	check_int(kb, 4096, "huge: mapped by PMDs");
	check_int(vmsplice_err(p + HUGE + 5 * PAGE), 64, "huge: the kernel can pin its pages");

	for (size_t i = 0; i < 2 * HUGE; i += PAGE)
		*(size_t *)(p + i) = i;
	check_int(munmap(p + 7 * PAGE, PAGE), 0, "huge: unmap one small page");
	check_int(mprotect(p + HUGE + 9 * PAGE, PAGE, PROT_READ), 0, "huge: protect one small page");
	bool same = true;
	for (size_t i = 0; i < 2 * HUGE; i += PAGE)
		if (i != 7 * PAGE)
			same &= *(volatile size_t *)(p + i) == i;
	check(same, "huge: everything else is as it was");

	q = map(fd, 2 * HUGE, PROT_READ);
	if (((uintptr_t)q & (HUGE - 1)) == 0) {
		munmap(q, 2 * HUGE);
		q = mmap(q + PAGE, 2 * HUGE, PROT_READ, MAP_SHARED, fd, 0);
	}
	same = !is_err(q);
	for (size_t i = 0; same && i < 2 * HUGE; i += PAGE)
		same &= *(volatile size_t *)(q + i) == i;
	check(same, "huge: a mapping at any address has the same contents");
	q = mmap(NULL, 3 * PAGE, PROT_READ, MAP_SHARED, fd, HUGE - PAGE);
	check(!is_err(q) && *(size_t *)q == HUGE - PAGE && *(size_t *)(q + 2 * PAGE) == HUGE + PAGE,
	      "huge: a small mapping across two huge pages");
	munmap(q, 3 * PAGE);
	close(fd);

	fd = create(SITS_KIND_PINNED, 0, HUGE + 3 * PAGE);
	f = facts(fd);
	check(f.huge_bytes <= HUGE && f.page_bytes == PAGE, "mixed pages: the smallest is told");
	p = map_aligned(fd, HUGE + 3 * PAGE, PROT_READ | PROT_WRITE);
	count_faults(p, HUGE + 3 * PAGE, true);
	check(p[0] && p[HUGE] && p[HUGE + 2 * PAGE], "mixed pages: map");
	munmap(p, HUGE + 3 * PAGE);
	close(fd);
}

struct peek {
	void *addr;
	int result;
};

/* In a child, of its parent: by /proc/PID/mem, process_vm_readv and ptrace. 0: all refused. */
static int attack_parent(void *arg)
{
	char path[64], buf[16];
	struct iovec local = { buf, sizeof(buf) }, remote = { arg, sizeof(buf) };
	int fd, bad = 0, status;
	pid_t parent = getppid();

	snprintf(path, sizeof(path), "/proc/%d/mem", parent);
	fd = open(path, O_RDWR);
	if (fd < 0)
		return 1;
	if (pread(fd, buf, sizeof(buf), (uintptr_t)arg) >= 0 || errno != EIO)
		bad |= 2;
	if (pwrite(fd, buf, sizeof(buf), (uintptr_t)arg) >= 0 || errno != EIO)
		bad |= 4;
	if (process_vm_readv(parent, &local, 1, &remote, 1, 0) >= 0 || errno != EFAULT)
		bad |= 8;
	if (process_vm_writev(parent, &local, 1, &remote, 1, 0) >= 0 || errno != EFAULT)
		bad |= 16;
	if (ptrace(PTRACE_ATTACH, parent, NULL, NULL))
		return bad | 32;
	waitpid(parent, &status, 0);
	errno = 0;
	ptrace(PTRACE_PEEKDATA, parent, arg, NULL);
	if (errno != EIO)
		bad |= 64;
	if (!ptrace(PTRACE_POKEDATA, parent, arg, (void *)1L) || errno != EIO)
		bad |= 64;
	ptrace(PTRACE_DETACH, parent, NULL, NULL);
	return bad;
}

static void test_direct_io(const char *p, const char *ordinary)
{
	int fd = open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC);

	if (fd < 0) {
		skip("protected: direct I/O", "no RAM disk");
		return;
	}
	check_int(pwrite(fd, ordinary, PAGE, 0), PAGE, "direct I/O from ordinary memory");
	check_int(pwrite(fd, p, PAGE, 0) < 0 ? -errno : 0, -EFAULT, "protected: direct I/O from it");
	check_int(pread(fd, (void *)p, PAGE, 0) < 0 ? -errno : 0, -EFAULT, "protected: direct I/O into it");
	close(fd);
}

static void test_protected(void)
{
	int fd = create(SITS_KIND_PROTECTED, 0, 4 * PAGE);
	struct dma_buf_sync sync = { DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE };
	char *p, *ordinary = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(!(facts(fd).state & SITS_REGION_F_PINNABLE), "protected: can't be pinned, it says");
	p = map(fd, 4 * PAGE, PROT_READ);
	check_int(err_of(p), 0, "protected: map for reading");
	check(is_zero(p, 4 * PAGE), "protected: memory is zero");
	check_int(err_of(map(fd, PAGE, PROT_READ | PROT_WRITE)), -EACCES, "protected: map for writing");
	check_int(err_of(map(fd, PAGE, PROT_WRITE)), -EACCES, "protected: map for writing only");
	check_int(err_of(map(fd, PAGE, PROT_READ | PROT_EXEC)), -EACCES, "protected: map to execute");
	check_int(err_of(map_at(NULL, fd, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE)), -EINVAL,
		  "protected: private mapping to write");
	check_int(mprotect(p, PAGE, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES, "protected: mprotect to write");
	check_int(mprotect(p, PAGE, PROT_READ | PROT_EXEC) ? -errno : 0, -EACCES, "protected: mprotect to execute");
	check_int(mremap(p, PAGE, 8 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED ? -errno : 0, -EFAULT,
		  "protected: a mapping can't grow");
	check_int(madvise(p, PAGE, MADV_DODUMP) ? -errno : 0, -EINVAL, "protected: madvise can't put it into dumps");
	check_int(madvise(p, PAGE, MADV_DOFORK) ? -errno : 0, -EINVAL, "protected: madvise can't hand it to children");
	check_int(madvise(p, PAGE, MADV_DONTNEED) ? -errno : 0, -EINVAL, "protected: madvise can't drop it");
	check(has_flag(p, "dd") && has_flag(p, "dc") && has_flag(p, "pf") && has_flag(p, "io"),
	      "protected: flags of the mapping");
	check(!has_flag(p, "mw") && !has_flag(p, "me") && !has_flag(p, "wr"), "protected: never to write or execute");
	check_int(vmsplice_err(p), -EFAULT, "protected: the kernel can't pin its pages");
	test_direct_io(p, ordinary);
	check_int(in_child(touch, p), 128 + SIGSEGV, "protected: a child does not have it");
	check_int(in_child(attack_parent, ordinary), 2 | 4 | 8 | 16 | 64, "the attacks work on ordinary memory");
	check_int(in_child(attack_parent, p), 0, "protected: /proc/PID/mem, process_vm_readv, ptrace");
	check_int(xioctl(fd, DMA_BUF_IOCTL_SYNC, &sync), -EACCES, "protected: CPU access to write");
	sync.flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ;
	check_int(xioctl(fd, DMA_BUF_IOCTL_SYNC, &sync), 0, "protected: CPU access to read");
	munmap(p, 4 * PAGE);
	close(fd);

	fd = create(SITS_KIND_PROTECTED, SITS_CREATE_DEVICE_ONLY, PAGE);
	check_int(err_of(map(fd, PAGE, PROT_READ)), -EPERM, "device-only: map");
	check(facts(fd).state & SITS_REGION_F_DEVICE_ONLY, "device-only: state");
	close(fd);
	munmap(ordinary, PAGE);
}

static void test_protected_huge(void)
{
	int fd = create(SITS_KIND_PROTECTED, SITS_CREATE_REQUIRE_HUGE, 2 * HUGE);
	char *p = map_aligned(fd, 2 * HUGE, PROT_READ), *ordinary = (char *)&series;
	long n;

	check_int(facts(fd).page_bytes, HUGE, "protected, huge: page size");
	n = count_faults(p, 2 * HUGE, false);
	printf("# %ld faults\n", n);
	if (series >= 612)
		check(n <= 4, "protected, huge: one page fault for each huge page");
	else
		check(n >= 1024, "protected, huge: by small pages, which can't leak to get_user_pages_fast()");
	check(is_zero(p, 2 * HUGE), "protected, huge: memory is zero");
	check_int(vmsplice_err(p + 3 * PAGE), -EFAULT, "protected, huge: the kernel can't pin its pages");
	test_direct_io(p + HUGE, (char *)((uintptr_t)ordinary & ~(PAGE - 1)));
	check_int(in_child(attack_parent, p + PAGE), 0, "protected, huge: /proc/PID/mem, process_vm_readv, ptrace");
	check_int(munmap(p + PAGE, PAGE), 0, "protected, huge: unmap one small page");
	check(is_zero(p, PAGE) && is_zero(p + 2 * PAGE, PAGE), "protected, huge: the rest stays");
	munmap(p, 2 * HUGE);
	p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, HUGE - PAGE);
	check(!is_err(p) && is_zero(p, 2 * PAGE), "protected, huge: a small mapping across two huge pages");
	munmap(p, 2 * PAGE);
	close(fd);
}

int main(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	sscanf(u.release, "%d.%d", &major, &minor);
	series = major * 100 + minor;
	open_dev();
	test_pinned();
	check(nothing_left(), "pinned: nothing is left");
	test_dump();
	test_huge();
	test_huge_again();
	test_protected();
	test_protected_huge();
	/* Mappings that tests left: gone with the process. */
	return done();
}
