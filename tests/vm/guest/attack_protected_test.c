// SPDX-License-Identifier: MIT
/*
 * attack_protected_test.c - an attacker against a protected region with plaintext in it that a device brought: by the system calls
 * that reach into memory, by the region's descriptor, by what the kernel writes elsewhere (core dumps, swap, logs), and by
 * all of physical memory after the region is gone. Each refusal with its errno; the plaintext is looked for by pattern.h.
 *
 * Root's own way by the direct map stays open, as docs/kernel-module.md says: that is how this finds what it looks for while
 * the region is there, and where it is then is nowhere but in the region.
 */
#include <grp.h>
#include <liburing.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "import_common.h"
#include "pattern.h"

#define NR_PAGES 6		/* with plaintext: half of each, as edu brings it */
#define CGROUP "/sys/fs/cgroup/sits-attack"
#define ERR(call) ((long)(call) < 0 ? -errno : 0)

static int series;
static struct pattern secret, canary;	/* the canary lies in ordinary memory: it shows that looking finds */

static long err_mmap(void *p)
{
	return p == MAP_FAILED ? -errno : 0;
}

/* A protected region of @pages pages; a device has put the secret into the first NR_PAGES. */
static int make_secret(unsigned long pages, unsigned int flags)
{
	int src = create(SITS_KIND_PINNED, 0, PAGE), fd = create(SITS_KIND_PROTECTED, flags, pages * PAGE);
	int a = importer(), b = importer();
	unsigned char *s = map(src, PAGE, PROT_READ | PROT_WRITE);

	need(src >= 0 && fd >= 0 && !is_err(s), "regions");
	pattern_fill(&secret, s, PIECE);
	need(!imp_attach(a, src, EDU) && !imp_map(a, SITS_TEST_TO_DEVICE), "attach the source");
	need(!allow(fd, edu) && !imp_attach(b, fd, EDU) && !imp_map(b, SITS_TEST_FROM_DEVICE), "attach the region");
	need(!imp_edu(a, SITS_TEST_EDU_READ, 0), "DMA");
	for (unsigned long i = 0; i < NR_PAGES; i++)
		need(!imp_edu(b, SITS_TEST_EDU_WRITE, i * PAGE), "DMA");
	munmap(s, PAGE);
	close(a);
	close(b);
	close(src);
	return fd;
}

static bool intact(const unsigned char *p)
{
	for (unsigned long i = 0; i < NR_PAGES; i++)
		if (!pattern_is(&secret, p + i * PAGE, PIECE) || !is_zero((const char *)p + i * PAGE + PIECE, PAGE - PIECE))
			return false;
	return true;
}

/* Flags of the mapping at an address, as smaps tells them. */
static bool has_flag(const void *addr, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512], word[8];
	unsigned long start, end;
	bool here = false, found = false;

	snprintf(word, sizeof(word), " %s", flag);
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && strchr(line, '-') < strchr(line, ' '))
			here = start <= (uintptr_t)addr && (uintptr_t)addr < end;
		if (here && !strncmp(line, "VmFlags:", 8))
			found = strstr(line + 8, word);
	}
	if (f)
		fclose(f);
	return found;
}

static void check_guarded(const void *p, const char *after)
{
	check(has_flag(p, "dd") && has_flag(p, "dc") && has_flag(p, "pf") && has_flag(p, "io") && !has_flag(p, "wr") &&
	      !has_flag(p, "mw") && !has_flag(p, "ex") && !has_flag(p, "me") && !has_flag(p, "mg") && !has_flag(p, "lo") &&
	      !has_flag(p, "um") && !has_flag(p, "uw"), "after %s: the mapping is what it was", after);
}

/* ---------------------------------------------------- the mapping, by its own process */

static void attack_mapping(int fd, unsigned char *p, unsigned long len)
{
	unsigned char *q;
	int old;

	check_int(ERR(mprotect(p, PAGE, PROT_READ | PROT_WRITE)), -EACCES, "mprotect to write");
	check_int(ERR(mprotect(p, PAGE, PROT_WRITE)), -EACCES, "mprotect to write only");
	check_int(ERR(mprotect(p, PAGE, PROT_READ | PROT_EXEC)), -EACCES, "mprotect to execute");
	check_int(ERR(pkey_mprotect(p, PAGE, PROT_READ | PROT_WRITE, -1)), -EACCES, "pkey_mprotect to write");
	check_int(ERR(mprotect(p, PAGE, PROT_NONE)), 0, "mprotect to nothing");
	check_int(ERR(mprotect(p, PAGE, PROT_READ)), 0, "mprotect to read again");
	check_int(err_mmap(mremap(p, len, len + PAGE, MREMAP_MAYMOVE)), -EFAULT, "mremap to grow");
	check_int(err_mmap(mremap(p, 0, PAGE, MREMAP_MAYMOVE)), -EFAULT, "mremap to have it twice");
	check_int(err_mmap(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP)), -EINVAL, "mremap to leave it behind");
	check_int(err_of(map(fd, PAGE, PROT_READ | PROT_WRITE)), -EACCES, "map to write");
	check_int(err_of(map(fd, PAGE, PROT_READ | PROT_EXEC)), -EACCES, "map to execute");
	check_int(err_of(map_at(NULL, fd, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE)), -EINVAL, "map a copy on write");
	check_int(err_of(map_at(NULL, fd, PAGE, PROT_READ, MAP_PRIVATE)), -EINVAL, "map privately");
	check_int(err_mmap(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, len - PAGE)), -EINVAL, "map across its end");

	old = personality(READ_IMPLIES_EXEC);
	q = map(fd, len, PROT_READ);
	check(is_err(q) ? err_of(q) == -EACCES : !has_flag(q, "ex"), "personality where reading implies executing: map");
	if (!is_err(q))
		munmap(q, len);
	check_int(ERR(mprotect(p, len, PROT_READ)), 0, "personality where reading implies executing: mprotect");
	personality(old);
	check_guarded(p, "all that");

	/* That split the mapping, and ours do not merge again: a new one in its place. */
	check(map_at(p, fd, len, PROT_READ, MAP_SHARED | MAP_FIXED) == p, "map it anew");
	q = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q, "mremap to move it");
	check(intact(q), "moved: contents");
	check_guarded(q, "moving");
	check_int(ERR(mprotect(q, PAGE, PROT_READ | PROT_WRITE)), -EACCES, "moved: mprotect to write");
	check(mremap(q, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p, "mremap to move it back");
	check_int(ERR(syscall(SYS_remap_file_pages, p, PAGE, 0, 1, 0)), 0, "remap_file_pages: another page at its place");
	check_guarded(p, "remap_file_pages");
	check_int(ERR(mprotect(p, PAGE, PROT_READ | PROT_WRITE)), -EACCES, "remap_file_pages: mprotect to write");
	check(map_at(p, fd, len, PROT_READ, MAP_SHARED | MAP_FIXED) == p, "map it anew once more");
	check(intact(p), "contents");
}

static const struct advice {
	int advice;
	const char *name;
	int want[2];	/* on 6.1, on 6.12 */
} advices[] = {
	{ MADV_WILLNEED, "WILLNEED", { 0, 0 } },		/* of a file that has no cache: nothing happens */
	{ MADV_DONTNEED, "DONTNEED", { -EINVAL, -EINVAL } },
	{ MADV_FREE, "FREE", { -EINVAL, -EINVAL } },
	{ MADV_REMOVE, "REMOVE", { -EACCES, -EACCES } },
	{ MADV_COLD, "COLD", { -EINVAL, -EINVAL } },
	{ MADV_PAGEOUT, "PAGEOUT", { -EINVAL, -EINVAL } },
	{ MADV_MERGEABLE, "MERGEABLE", { 0, 0 } },		/* ignored, by the flags below */
	{ MADV_HUGEPAGE, "HUGEPAGE", { 0, 0 } },		/* a flag, which is for others to look at */
	{ 25, "COLLAPSE", { -EINVAL, -EINVAL } },
	{ 24, "DONTNEED_LOCKED", { -EINVAL, -EINVAL } },
	{ MADV_DOFORK, "DOFORK", { -EINVAL, -EINVAL } },
	{ MADV_DODUMP, "DODUMP", { -EINVAL, -EINVAL } },
	{ MADV_WIPEONFORK, "WIPEONFORK", { -EINVAL, -EINVAL } },
	{ MADV_POPULATE_READ, "POPULATE_READ", { -EINVAL, -EINVAL } },
	{ MADV_POPULATE_WRITE, "POPULATE_WRITE", { -EINVAL, -EINVAL } },
	{ MADV_HWPOISON, "HWPOISON", { -EFAULT, -EFAULT } },
	{ 101, "SOFT_OFFLINE", { -EFAULT, -EFAULT } },
};

static void attack_advice(unsigned char *p, unsigned long len)
{
	for (unsigned int i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
		check_int(ERR(madvise(p, len, advices[i].advice)), advices[i].want[series >= 612], "madvise %s", advices[i].name);
	/* Both say yes to any such mapping, and leave it alone. */
	check_int(ERR(mlock(p, len)), 0, "mlock");
	check_int(ERR(munlock(p, len)), 0, "munlock");
	check_int(ERR(msync(p, len, MS_SYNC | MS_INVALIDATE)), -EINVAL, "msync, invalidating");
	check_guarded(p, "all advice");
	check(intact(p), "after all advice: contents");
}

/* ------------------------------------------------------- the kernel takes its pages */

static long vmsplice_err(const void *p, unsigned int flags)
{
	struct iovec iov = { (void *)p, 64 };
	int fds[2];
	long n;

	need(!pipe(fds), "pipe");
	n = ERR(vmsplice(fds[1], &iov, 1, flags));
	close(fds[0]);
	close(fds[1]);
	return n;
}

static long register_err(void *p)
{
	struct iovec iov = { p, PAGE };
	struct io_uring ring;
	long ret;

	need(!io_uring_queue_init(4, &ring, 0), "io_uring");
	ret = io_uring_register_buffers(&ring, &iov, 1);
	io_uring_queue_exit(&ring);
	return ret;
}

/* A connection to oneself. */
static long zerocopy_err(const void *p, int type)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, type | SOCK_CLOEXEC, 0), s = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1;
	socklen_t len = sizeof(to);
	long ret;

	need(!bind(l, (struct sockaddr *)&to, len) && !getsockname(l, (struct sockaddr *)&to, &len), "bind");
	need(type != SOCK_STREAM || !listen(l, 1), "listen");
	need(!connect(s, (struct sockaddr *)&to, len), "connect");
	need(!setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)), "SO_ZEROCOPY");
	ret = ERR(send(s, p, 1024, MSG_ZEROCOPY | MSG_DONTWAIT));
	close(s);
	close(l);
	return ret;
}

static long uffd_err(void *p, unsigned long mode, unsigned long features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	struct uffdio_register reg = { .range = { (uintptr_t)p, PAGE }, .mode = mode };
	int u = syscall(SYS_userfaultfd, O_CLOEXEC);
	long ret = ERR(ioctl(u, UFFDIO_API, &api));

	if (!ret)
		ret = ERR(ioctl(u, UFFDIO_REGISTER, &reg));
	close(u);
	return ret;
}

static long move_pages_status(void *p)
{
	void *pages[1] = { p };
	int status[1] = { 0 }, nodes[1] = { 0 };

	if (syscall(SYS_move_pages, 0, 1, pages, nodes, status, 2))
		return -errno;
	return status[0];
}

/* Each of them first on ordinary memory, where it works. */
static void attack_pins(unsigned char *p, unsigned char *ordinary)
{
	struct iovec local = { ordinary, 16 }, remote = { p, 16 };
	int ram = open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC);
	int shared = FUTEX_WAIT;

	*(uint32_t *)ordinary = 1;
	need(ram >= 0, "the RAM disk");
	for (int i = 0; i < 2; i++) {
		void *at = i ? p : ordinary;
		const char *what = i ? "protected" : "ordinary";

		check_int(vmsplice_err(at, 0), i ? -EFAULT : 0, "%s: vmsplice", what);
		check_int(vmsplice_err(at, SPLICE_F_GIFT), i ? -EFAULT : 0, "%s: vmsplice as a gift", what);
		check_int(ERR(pwrite(ram, at, PAGE, 0)), i ? -EFAULT : 0, "%s: direct I/O from it", what);
		check_int(ERR(pread(ram, at, PAGE, 0)), i ? -EFAULT : 0, "%s: direct I/O into it", what);
		check_int(register_err(at), i ? -EFAULT : 0, "%s: registered buffer of io_uring", what);
		check_int(zerocopy_err(at, SOCK_STREAM), i ? -EFAULT : 0, "%s: send without copy by TCP", what);
		check_int(zerocopy_err(at, SOCK_DGRAM), i ? -EFAULT : 0, "%s: send without copy by UDP", what);
		remote.iov_base = at;
		check_int(ERR(process_vm_readv(getpid(), &local, 1, &remote, 1, 0)), i ? -EFAULT : 0, "%s: process_vm_readv",
			  what);
		check_int(ERR(process_vm_writev(getpid(), &local, 1, &remote, 1, 0)), i ? -EFAULT : 0, "%s: process_vm_writev",
			  what);
		check_int(uffd_err(at, UFFDIO_REGISTER_MODE_MISSING, 0), i ? -EINVAL : 0, "%s: userfaultfd for missing pages",
			  what);
	}
	/* A futex that others share is known by its page; the value does not match in ordinary memory. */
	check_int(ERR(syscall(SYS_futex, ordinary, shared, ~0u, NULL, NULL, 0)), -EAGAIN, "ordinary: futex");
	check_int(ERR(syscall(SYS_futex, p, shared, ~0u, NULL, NULL, 0)), -EFAULT, "protected: futex");
	check(move_pages_status(ordinary) >= 0, "ordinary: move_pages");
	check_int(move_pages_status(p), -EFAULT, "protected: move_pages");
	if (series >= 612) {	/* by 6.7 any mapping can be watched for writing so; ours can never be written */
		check_int(uffd_err(ordinary, UFFDIO_REGISTER_MODE_WP, 1 << 15), 0, "ordinary: userfaultfd for writing");
		check_int(uffd_err(p, UFFDIO_REGISTER_MODE_WP, 1 << 15), -EINVAL, "protected: userfaultfd for writing");
	}
	check_int(import(SITS_IMPORT_USER, -1, p, PAGE), -EFAULT, "protected: import as memory of the caller");
	close(ram);
	check_guarded(p, "all pins");
	check(intact(p), "after all pins: contents");
}

/* ----------------------------------------------------------------- the descriptor */

static void attack_descriptor(int fd, unsigned char *p, unsigned long len)
{
	char path[96], buf[64];
	struct iovec iov = { buf, sizeof(buf) };
	int fds[2], mem = memfd_create("copy", MFD_CLOEXEC);

	need(!pipe(fds), "pipe");
	check_int(ERR(read(fd, buf, sizeof(buf))), -EINVAL, "read");
	check_int(ERR(pread(fd, buf, sizeof(buf), 0)), -ESPIPE, "pread");
	check_int(ERR(preadv2(fd, &iov, 1, 0, RWF_NOWAIT)), -ESPIPE, "preadv2");
	check_int(ERR(write(fd, buf, sizeof(buf))), -EINVAL, "write");
	check_int(ERR(pwrite(fd, buf, sizeof(buf), 0)), -ESPIPE, "pwrite");
	check_int(ERR(sendfile(fds[1], fd, NULL, 64)), -EINVAL, "sendfile to a pipe");
	check_int(ERR(sendfile(mem, fd, NULL, 64)), -EINVAL, "sendfile to a file");
	check_int(ERR(splice(fd, NULL, fds[1], NULL, 64, 0)), -EINVAL, "splice");
	check_int(ERR(copy_file_range(fd, NULL, mem, NULL, 64, 0)), -EINVAL, "copy_file_range");
	check_int(ERR(ftruncate(fd, 0)), -EINVAL, "ftruncate");
	check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) < 0, "fallocate: punch a hole");
	check(fallocate(fd, 0, 0, 2 * len) < 0, "fallocate: grow");
	check_int(cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE), -EACCES, "CPU access to write");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check_int(ERR(open(path, O_RDONLY | O_CLOEXEC)), -ENXIO, "open it again by /proc/PID/fd");
	check_int(ERR(open(path, O_RDWR | O_CLOEXEC)), -ENXIO, "open it again to write");
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)p, (unsigned long)p + len);
	check_int(ERR(readlink(path, buf, sizeof(buf))), 0, "its link in /proc/PID/map_files");
	check_int(ERR(open(path, O_RDONLY | O_CLOEXEC)), -ENXIO, "open it again by that");
	check_int(lseek(mem, 0, SEEK_END), 0, "nothing was copied");
	close(fds[0]);
	close(fds[1]);
	close(mem);
}

/* -------------------------------------------------------------------- from outside */

struct victim {
	void *addr;
	int fd;
};

/* In a child of the same user, root. Return bits of what was not refused as it should be. */
static int attack_as_root(void *arg)
{
	struct victim *v = arg;
	char path[64], buf[16];
	struct iovec local = { buf, sizeof(buf) }, remote = { v->addr, sizeof(buf) };
	pid_t parent = getppid();
	int fd, bad = 0, status;

	snprintf(path, sizeof(path), "/proc/%d/mem", parent);
	fd = open(path, O_RDWR);
	bad |= fd < 0 || pread(fd, buf, sizeof(buf), (uintptr_t)v->addr) >= 0 || errno != EIO ? 1 : 0;
	bad |= pwrite(fd, buf, sizeof(buf), (uintptr_t)v->addr) >= 0 || errno != EIO ? 2 : 0;
	bad |= process_vm_readv(parent, &local, 1, &remote, 1, 0) >= 0 || errno != EFAULT ? 4 : 0;
	bad |= process_vm_writev(parent, &local, 1, &remote, 1, 0) >= 0 || errno != EFAULT ? 8 : 0;
	if (ptrace(PTRACE_ATTACH, parent, NULL, NULL))
		return bad | 128;
	waitpid(parent, &status, 0);
	errno = 0;
	ptrace(PTRACE_PEEKDATA, parent, v->addr, NULL);
	bad |= errno != EIO ? 16 : 0;
	errno = 0;
	bad |= ptrace(PTRACE_POKEDATA, parent, v->addr, (void *)1L) == 0 || errno != EIO ? 32 : 0;
	ptrace(PTRACE_DETACH, parent, NULL, NULL);
	return bad;
}

static int attack_as_nobody(void *arg)
{
	struct victim *v = arg;
	char path[64], buf[16];
	struct iovec local = { buf, sizeof(buf) }, remote = { v->addr, sizeof(buf) };
	struct sits_region_facts f = { .size = sizeof(f), .fd = v->fd };
	pid_t parent = getppid();
	int pidfd = syscall(SYS_pidfd_open, parent, 0), bad = 0;

	/* All that was inherited is gone, as for a process that was never given anything. */
	syscall(SYS_close_range, 3, ~0u, 0);
	if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		return 1;
	snprintf(path, sizeof(path), "/proc/%d/mem", parent);
	bad |= open(path, O_RDONLY) >= 0 || errno != EACCES ? 2 : 0;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", parent, v->fd);
	bad |= open(path, O_RDONLY) >= 0 || errno != EACCES ? 4 : 0;
	bad |= process_vm_readv(parent, &local, 1, &remote, 1, 0) >= 0 || errno != EPERM ? 8 : 0;
	bad |= ptrace(PTRACE_ATTACH, parent, NULL, NULL) == 0 || errno != EPERM ? 16 : 0;
	pidfd = syscall(SYS_pidfd_open, parent, 0);
	bad |= syscall(SYS_pidfd_getfd, pidfd, v->fd, 0) >= 0 || errno != EPERM ? 32 : 0;
	open_dev();
	bad |= xioctl(dev, SITS_IOC_REGION_INFO, &f) != -EBADF ? 64 : 0;
	bad |= open("/proc/kcore", O_RDONLY) >= 0 || open("/dev/mem", O_RDONLY) >= 0 ? 128 : 0;
	return bad;
}

/* Given the descriptor, but not the rights of an owner. */
static int attack_as_receiver(void *arg)
{
	struct victim *v = arg;

	if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		return 1;
	close(dev);
	open_dev();
	if (seal(v->fd, SITS_SEAL_REVOKE) != -EPERM || allow(v->fd, "*") != -EPERM)
		return 2;
	if (err_of(map(v->fd, PAGE, PROT_READ | PROT_WRITE)) != -EACCES)
		return 3;
	/* To look is what it was given it for. */
	if (is_err(map(v->fd, PAGE, PROT_READ)))
		return 4;
	return 0;
}

static int touch(void *p)
{
	return *(volatile char *)p;
}

/* What root is told of the page frame of an address of this process; 0: nothing. */
static uint64_t frame_of(const void *p)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t e = 0;

	need(fd >= 0 && pread(fd, &e, 8, (uintptr_t)p / PAGE * 8) == 8, "pagemap");
	close(fd);
	return e & ((1ull << 55) - 1);
}

static void attack_from_outside(int fd, unsigned char *p, unsigned char *ordinary)
{
	struct victim v = { ordinary, fd };

	check_int(in_child(attack_as_root, &v), 63, "root: /proc/PID/mem, ptrace and process_vm_* work on ordinary memory");
	v.addr = p;
	check_int(in_child(attack_as_root, &v), 0, "root: all are refused on protected memory");
	check_int(in_child(attack_as_nobody, &v), 0, "another user: everything is refused");
	check_int(in_child(attack_as_receiver, &v), 0, "another user who was given the descriptor: reads, and no more");
	check_int(in_child(touch, p), 128 + SIGSEGV, "a child has no mapping of it");
	check(frame_of(ordinary) != 0, "root: /proc/PID/pagemap has the frame of ordinary memory");
	check_int(frame_of(p), 0, "root: and none of protected memory");
	check(intact(p), "after attacks from outside: contents");
}

/* --------------------------------------------------------- what the kernel writes */

static int dump_core(void *arg)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	unsigned char *p = map(*(int *)arg, NR_PAGES * PAGE, PROT_READ);
	unsigned char *c = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pattern_fill(&canary, c, 4 * PAGE);
	if (is_err(p) || !intact(p) || write_text("/proc/self/coredump_filter", "0x1ff"))
		return 1;
	if (madvise(p, NR_PAGES * PAGE, MADV_DODUMP) == 0)
		return 2;
	setrlimit(RLIMIT_CORE, &limit);
	abort();
}

static void attack_core(int fd)
{
	struct finds f = { 0 }, c = { 0 };
	char dir[] = "/tmp/sits-attack-XXXXXX", path[96];
	DIR *d;
	struct dirent *e;
	long long bytes = -1;

	need(mkdtemp(dir), "mkdtemp");
	snprintf(path, sizeof(path), "%s/core", dir);
	check_int(write_text("/proc/sys/kernel/core_pattern", path), 0, "core dump: where to");
	check_int(in_child(dump_core, &fd), 128 + SIGABRT, "core dump: the process dies");
	write_text("/proc/sys/kernel/core_pattern", "core");
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%.32s", dir, e->d_name);
		bytes = pattern_scan_file(&secret, path, &f);
		pattern_scan_file(&canary, path, &c);
		unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
	printf("# a core of %lld bytes\n", bytes);
	check(c.pages >= 4, "core dump with everything: ordinary memory is in it");
	check_int(f.pages, 0, "core dump with everything: nothing of the region");
}

static int push_to_swap(void *arg)
{
	unsigned char *p = map(*(int *)arg, NR_PAGES * PAGE, PROT_READ);
	unsigned long more = 24 << 20;
	unsigned char *c = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile unsigned char *m = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (write_text(CGROUP "/cgroup.procs", "0"))
		return 1;
	pattern_fill(&canary, c, 64 * PAGE);
	madvise(c, 64 * PAGE, MADV_PAGEOUT);
	if (!intact(p) || madvise(p, PAGE, MADV_PAGEOUT) == 0)
		return 2;
	for (unsigned long i = 0; i < more; i += PAGE)
		m[i] = 1;
	return intact(p) ? 0 : 3;
}

static void attack_swap(int fd)
{
	struct finds f = { 0 }, c = { 0 };
	int i, used = 0;
	long kills = -1;
	char line[256];
	FILE *in;

	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP, 0755) || write_text(CGROUP "/memory.max", "16777216")) {
		skip("swap", "no memory controller in the second version's hierarchy");
		return;
	}
	check_int(system("mkswap /dev/ram1 >/dev/null"), 0, "swap: made");
	check_int(ERR(swapon("/dev/ram1", 0)), 0, "swap: on");
	check_int(in_child(push_to_swap, &fd), 0, "swap: a process with the region needs more memory than it may have");
	in = fopen(CGROUP "/memory.events", "re");
	while (in && fgets(line, sizeof(line), in))
		sscanf(line, "oom_kill %ld", &kills);
	if (in)
		fclose(in);
	check_int(kills, 0, "swap: there was enough of it");
	in = fopen("/proc/swaps", "re");
	while (in && fgets(line, sizeof(line), in))
		used |= strstr(line, "/dev/ram1") != NULL;
	if (in)
		fclose(in);
	check(used, "swap: in use");
	check_int(ERR(swapoff("/dev/ram1")), 0, "swap: off");
	check(pattern_scan_file(&canary, "/dev/ram1", &c) > 0, "swap: read the device");
	pattern_scan_file(&secret, "/dev/ram1", &f);
	check(c.pages > 0, "swap: ordinary memory is in it");
	check_int(f.pages, 0, "swap: nothing of the region");
	for (i = 0; i < 3000 && rmdir(CGROUP); i++)
		usleep(10000);
}

/* /dev/kmsg gives a record for each read. */
static void attack_logs(void)
{
	struct finds f = { 0 };
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	static uint64_t buf[8192 / 8];
	long records = 0;
	ssize_t n;

	while (fd >= 0 && ((n = read(fd, buf, sizeof(buf))) > 0 || errno == EPIPE)) {
		for (int shift = 0; n > 0 && shift < 8; shift++)
			pattern_scan(&secret, buf, sizeof(buf), 0, &f);
		records++;
	}
	close(fd);
	check(records > 100, "kernel log: read");
	check_int(f.pages, 0, "kernel log: nothing of the region");
	check(pattern_scan_file(&secret, "/sys/kernel/tracing/trace", &f) > 0, "trace: read");
	check_int(f.pages, 0, "trace: nothing of the region");
}

/* ------------------------------------------------------------------------ memory */

static void scan_memory(struct finds *s, struct finds *c)
{
	const struct pattern *ps[2] = { &secret, &canary };
	struct finds fs[2] = { { 0 }, { 0 } };
	long long bytes = pattern_scan_memory(ps, fs, 2);

	check(bytes > 256ll << 20, "all memory: read");
	printf("# %lld MiB of memory: the secret is in %ld pages, the canary in %ld\n", bytes >> 20, fs[0].pages, fs[1].pages);
	*s = fs[0];
	*c = fs[1];
}

/* The region is one huge page: there, one after another, and nowhere else. */
static void search_while_there(void)
{
	int mem = open("/dev/mem", O_RDONLY | O_CLOEXEC);
	struct finds s, c;
	bool here = true;
	char buf[16];

	scan_memory(&s, &c);
	check_int(s.pages, NR_PAGES, "all memory: as many pages have it as the region has");
	for (long i = 0; i < s.pages && i < NR_PAGES; i++)
		here &= s.at[i] == s.at[0] + i * PAGE;
	check(here && s.at[0] % HUGE == 0, "all memory: these are the region's");
	for (long i = 0; i < s.pages && i < 16; i++)
		printf("# at %#llx\n", (unsigned long long)s.at[i]);
	if (mem < 0) {	/* a kernel may be without; Debian's have it, with CONFIG_STRICT_DEVMEM */
		skip("/dev/mem", "this kernel has none");
		return;
	}
	check_int(ERR(pread(mem, buf, sizeof(buf), s.at[0])), -EPERM, "/dev/mem: read there");
	check_int(err_mmap(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mem, s.at[0])), -EPERM, "/dev/mem: map it");
	close(mem);
}

/* Its owner is killed with the region mapped, attached and in a socket. */
static int die_with_secret(void *arg)
{
	int fd = make_secret(NR_PAGES, 0), imp = importer();
	unsigned char *p = map(fd, NR_PAGES * PAGE, PROT_READ);

	if (is_err(p) || !intact(p) || imp_attach(imp, fd, EDU) || imp_map(imp, SITS_TEST_TO_DEVICE))
		return 1;
	kill(getpid(), SIGKILL);
	return 2;
}

static void leave_canaries(void)
{
	unsigned char *c = mmap(NULL, 256 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pattern_fill(&canary, c, 256 * PAGE);
	munmap(c, 256 * PAGE);
}

static void search_after(void)
{
	struct finds s, c;

	leave_canaries();
	scan_memory(&s, &c);
	check(c.pages > 0, "all memory, after: freed ordinary memory is found");
	check_int(s.pages, 0, "all memory, after: nothing of the regions");
	for (long i = 0; i < s.pages && i < 16; i++)
		printf("# at %#llx\n", (unsigned long long)s.at[i]);
}

/* -------------------------------------------------------------------- other kinds */

static void attack_sealed(int fd, unsigned char *p)
{
	int imp = importer();

	check_int(seal(fd, 0), 0, "sealed");
	check_int(err_of(map(fd, PAGE, PROT_READ | PROT_WRITE)), -EACCES, "sealed: map to write");
	check_int(cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE), -EACCES, "sealed: CPU access to write");
	check_int(imp_attach(imp, fd, 0), -EPERM, "sealed: a device that is not allowed");
	check_int(imp_attach(imp, fd, EDU), 0, "sealed: one that is");
	check_int(imp_map(imp, SITS_TEST_FROM_DEVICE), -EACCES, "sealed: to write");
	check_int(imp_map(imp, SITS_TEST_BIDIRECTIONAL), 0, "sealed: both directions, of which it gets one");
	imp_edu(imp, SITS_TEST_EDU_WRITE, PAGE + PIECE);
	check(intact(p), "sealed: what the device writes does not arrive");
	close(imp);
}

/* Whoever may trace the owner may take its descriptor: against that there are these two. */
static void attack_by_stolen_descriptor(void)
{
	int fd = make_secret(NR_PAGES, SITS_CREATE_DEVICE_ONLY), pidfd = syscall(SYS_pidfd_open, getpid(), 0), stolen;
	unsigned char *p;

	stolen = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	check(stolen >= 0, "descriptor taken from its owner by root");
	check_int(err_of(map(stolen, PAGE, PROT_READ)), -EPERM, "taken, device-only: map");
	close(stolen);
	close(fd);
	fd = make_secret(NR_PAGES, 0);
	p = map(fd, NR_PAGES * PAGE, PROT_READ);
	check(intact(p), "taken: the owner has it mapped");
	check_int(seal(fd, SITS_SEAL_REVOKE), 0, "taken: revoked");
	stolen = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	check_int(err_of(map(stolen, PAGE, PROT_READ)), -EPERM, "taken, revoked: map");
	check_int(in_child(touch, p), 128 + SIGSEGV, "taken, revoked: not by a child either");
	close(stolen);
	close(pidfd);
	munmap(p, NR_PAGES * PAGE);
	close(fd);
}

int main(void)
{
	unsigned char *ordinary = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;
	unsigned long len = HUGE;
	struct utsname u;
	int major = 0, minor = 0, fd;

	if (!getenv("SITS_VM")) {
		printf("1..0 # SKIP this belongs into a virtual machine\n");
		return 0;
	}
	uname(&u);
	sscanf(u.release, "%d.%d", &major, &minor);
	series = major * 100 + minor;
	pattern_set_seed();
	pattern_make(&secret);
	pattern_make(&canary);
	open_dev();
	find_edu();
	write_text("/sys/kernel/tracing/events/sits/enable", "1");

	fd = make_secret(len / PAGE, SITS_CREATE_REQUIRE_HUGE);
	p = map_aligned(fd, len, PROT_READ);
	check(!is_err(p) && intact(p), "a device has filled the region, its owner reads it");
	ordinary[0] = 1;
	attack_mapping(fd, p, len);
	attack_advice(p, len);
	attack_pins(p, ordinary);
	attack_descriptor(fd, p, len);
	attack_from_outside(fd, p, ordinary);
	attack_core(fd);
	attack_swap(fd);
	attack_logs();
	search_while_there();
	attack_sealed(fd, p);
	attack_by_stolen_descriptor();
	check_int(in_child(die_with_secret, NULL), 128 + SIGKILL, "an owner is killed");
	munmap(p, len);
	close(fd);
	check(nothing_left(), "nothing is left");
	search_after();
	write_text("/sys/kernel/tracing/events/sits/enable", "0");
	write_text("/sys/kernel/tracing/trace", "");
	return done();
}
