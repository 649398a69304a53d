// SPDX-License-Identifier: MIT
/*
 * region_seal_test.c - sealing and revoking: whoever could write, or still read, is found or cut off.
 */
#include <linux/dma-buf.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/uio.h>

#include "region_common.h"

static char pci_device[SITS_NAME_MAX];

static int dma_map(int fd, unsigned int flags)
{
	static struct sits_dma_seg segs[4096];
	struct sits_dma_map arg = {
		.size = sizeof(arg), .flags = flags, .fd = fd, .segs = (uintptr_t)segs, .nr_segs = 4096,
	};
	int ret;

	memcpy(arg.device, pci_device, sizeof(arg.device));
	ret = xioctl(dev, SITS_IOC_DMA_MAP, &arg);
	return ret ? ret : arg.fd_map;
}

static int sync_for(int fd, uint64_t what)
{
	struct dma_buf_sync start = { DMA_BUF_SYNC_START | what }, end = { DMA_BUF_SYNC_END | what };
	int ret = xioctl(fd, DMA_BUF_IOCTL_SYNC, &start);

	return ret ? ret : xioctl(fd, DMA_BUF_IOCTL_SYNC, &end);
}

static int touch(void *p)
{
	return *(volatile char *)p;
}

static const struct {
	const char *name;
	unsigned int kind;
	unsigned long len;
} kinds[] = {
	{ "pinned", SITS_KIND_PINNED, 3 * PAGE },
	{ "huge", SITS_KIND_HUGE, 2 * HUGE },
	{ "protected", SITS_KIND_PROTECTED, HUGE + 3 * PAGE },
};

static void test_seal(const char *name, unsigned int kind, unsigned long len)
{
	int fd = create(kind, 0, len), m;
	char *p, *r;

	check_int(sync_for(fd, DMA_BUF_SYNC_RW), 0, "%s: CPU access to write before", name);
	p = map_aligned(fd, len, PROT_READ | PROT_WRITE);
	r = map_aligned(fd, len, PROT_READ);
	memset(p, 'x', len);
	check(r[len - 1] == 'x', "%s: contents", name);
	check_int(seal(fd, 0), -EBUSY, "%s: mapped for writing", name);
	check_int(mprotect(p, len, PROT_READ), 0, "%s: mapping made read-only", name);
	check_int(seal(fd, 0), -EBUSY, "%s: it could be made writable again", name);
	munmap(p, len - PAGE);
	check_int(seal(fd, 0), -EBUSY, "%s: a part is still mapped", name);
	munmap(p + len - PAGE, PAGE);
	check(!(facts(fd).state & SITS_REGION_F_SEALED), "%s: not sealed so far", name);

	m = dma_map(fd, SITS_DMA_FROM_DEVICE);
	check(m >= 0, "%s: DMA_MAP for the device to write", name);
	check_int(seal(fd, 0), -EBUSY, "%s: a device can write", name);
	close(m);
	m = dma_map(fd, SITS_DMA_TO_DEVICE);
	check(m >= 0, "%s: DMA_MAP for the device to read", name);
	check_int(seal(fd, 0), 0, "%s: sealed, while mapped for the CPU and a device to read", name);
	close(m);

	check(r[0] == 'x' && r[len - 1] == 'x', "%s: the mapping still reads", name);
	check_int(seal(fd, 0), 0, "%s: sealed twice", name);
	check(facts(fd).state & SITS_REGION_F_SEALED, "%s: state", name);
	check_int(err_of(map(fd, len, PROT_READ | PROT_WRITE)), -EACCES, "%s: sealed: map for writing", name);
	check_int(mprotect(r, PAGE, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES, "%s: sealed: mprotect to write", name);
	check_int(sync_for(fd, DMA_BUF_SYNC_WRITE), -EACCES, "%s: sealed: CPU access to write", name);
	check_int(sync_for(fd, DMA_BUF_SYNC_RW), -EACCES, "%s: sealed: CPU access to do both", name);
	check_int(sync_for(fd, DMA_BUF_SYNC_READ), 0, "%s: sealed: CPU access to read", name);
	check_int(dma_map(fd, SITS_DMA_FROM_DEVICE), -EACCES, "%s: sealed: DMA from a device", name);
	check_int(dma_map(fd, SITS_DMA_FROM_DEVICE | SITS_DMA_TO_DEVICE), -EACCES, "%s: sealed: DMA both ways", name);
	m = dma_map(fd, SITS_DMA_TO_DEVICE);
	check(m >= 0, "%s: sealed: DMA to a device", name);
	close(m);
	p = map(fd, len, PROT_READ);
	check(!is_err(p) && p[0] == 'x' && p[len - 1] == 'x', "%s: sealed: map for reading", name);
	munmap(p, len);
	munmap(r, len);
	close(fd);
}

/* Pages that were pinned before can be written without a mapping. */
static void test_pins(const char *name, unsigned int kind, unsigned long len)
{
	int fd = create(kind, 0, len), fds[2];
	char *p = map_aligned(fd, len, PROT_READ | PROT_WRITE), buf[64];
	struct iovec iov = { p + PAGE, sizeof(buf) };
	int other;

	memset(p, 'x', len);
	need(!pipe(fds), "pipe");
	check_int(vmsplice(fds[1], &iov, 1, 0), sizeof(buf), "%s: a page in a pipe", name);
	munmap(p, len);
	check_int(seal(fd, 0), -EBUSY, "%s: somebody holds a page", name);
	check_int(seal(fd, SITS_SEAL_REVOKE), -EBUSY, "%s: revoke: somebody holds a page", name);
	check_int(facts(fd).state & (SITS_REGION_F_SEALED | SITS_REGION_F_REVOKED), SITS_REGION_F_REVOKED,
		  "%s: revoked, but not sealed", name);
	check_int(read(fds[0], buf, sizeof(buf)), sizeof(buf), "%s: take it out of the pipe", name);
	check_int(seal(fd, 0), 0, "%s: then it can be sealed", name);
	close(fds[0]);
	close(fds[1]);
	close(fd);

	fd = create(kind, 0, len);
	p = map(fd, len, PROT_READ | PROT_WRITE);
	other = import(SITS_IMPORT_USER, -1, p, len);
	check(other >= 0, "%s: pin its mapping, as an import", name);
	munmap(p, len);
	check_int(seal(fd, 0), -EBUSY, "%s: it is pinned", name);
	close(other);
	check_int(seal(fd, 0), 0, "%s: not pinned any more", name);
	close(fd);
}

/* In a child: read all, again and again, dropping the page table's entries in between. */
static int reader(void *arg)
{
	struct { int fd, started; unsigned int kind; unsigned long len; } *a = arg;
	volatile char *p = map_aligned(a->fd, a->len, PROT_READ);

	for (int i = 0;; i++) {
		for (size_t off = 0; off < a->len; off += PAGE)
			(void)p[off];
		if (i == 0 && write(a->started, "s", 1) != 1)
			return 1;
		if (a->kind != SITS_KIND_PROTECTED) {
			madvise((void *)p, a->len, MADV_DONTNEED);
		} else {
			munmap((void *)p, PAGE);
			p = map_aligned(a->fd, a->len, PROT_READ);
			/* Refused from now on; what is mapped is, too, but that is another test. */
			if (is_err((void *)p))
				return (intptr_t)p == -EPERM ? 0 : 2;
		}
	}
}

static void test_revoke(const char *name, unsigned int kind, unsigned long len)
{
	int fd = create(kind, 0, len), fds[2];
	int prot = kind == SITS_KIND_PROTECTED ? PROT_READ : PROT_READ | PROT_WRITE;
	char *p = map_aligned(fd, len, prot);

	if (kind == SITS_KIND_PROTECTED)
		check_int(allow(fd, "*"), 0, "%s: revoke: allow all devices", name);
	for (size_t off = 0; off < len; off += PAGE)
		(void)((volatile char *)p)[off];
	check_int(seal(fd, SITS_SEAL_REVOKE), 0, "%s: revoke", name);
	check_int(facts(fd).state & (SITS_REGION_F_SEALED | SITS_REGION_F_REVOKED),
		  SITS_REGION_F_SEALED | SITS_REGION_F_REVOKED, "%s: revoked and sealed", name);
	if (kind != SITS_KIND_PROTECTED)
		check_int(in_child(touch, p), 128 + SIGBUS, "%s: revoked: a child's mapping", name);
	need(!pipe(fds), "pipe");
	check_int(write(fds[1], p, 1) < 0 ? -errno : 0, -EFAULT, "%s: revoked: the first page of the mapping", name);
	check_int(write(fds[1], p + len - 1, 1) < 0 ? -errno : 0, -EFAULT, "%s: revoked: the last page", name);
	check_int(err_of(map(fd, PAGE, PROT_READ)), -EPERM, "%s: revoked: map", name);
	check_int(dma_map(fd, SITS_DMA_TO_DEVICE), -EPERM, "%s: revoked: DMA_MAP", name);
	check_int(facts(fd).refused_imports, 1, "%s: revoked: the refusal is counted", name);
	check_int(seal(fd, SITS_SEAL_REVOKE), 0, "%s: revoked twice", name);
	if (kind == SITS_KIND_PROTECTED)
		check_int(allow(fd, "a"), -EPERM, "%s: revoked: allow a device", name);
	munmap(p, len);
	close(fds[0]);
	close(fds[1]);
	close(fd);
}

static void test_revoke_race(const char *name, unsigned int kind, unsigned long len)
{
	struct { int fd, started; unsigned int kind; unsigned long len; } a = { .kind = kind, .len = len };
	int good = 0;

	for (int round = 0; round < 8; round++) {
		int fds[2], status = 0;
		pid_t pids[2];
		char c;

		a.fd = create(kind, 0, len);
		need(!pipe(fds), "pipe");
		a.started = fds[1];
		fflush(stdout);
		for (int i = 0; i < 2; i++) {
			pids[i] = fork();
			if (pids[i] == 0)
				_exit(reader(&a));
		}
		for (int i = 0; i < 2; i++)
			need(read(fds[0], &c, 1) == 1, "reader");
		good += !seal(a.fd, SITS_SEAL_REVOKE);
		for (int i = 0; i < 2; i++) {
			waitpid(pids[i], &status, 0);
			good += (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) ||
				(kind == SITS_KIND_PROTECTED && WIFEXITED(status) && !WEXITSTATUS(status));
		}
		close(fds[0]);
		close(fds[1]);
		close(a.fd);
	}
	check_int(good, 8 * 3, "%s: revoked while two processes fault it in", name);
}

static void find_pci_device(void)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf(pci_device, sizeof(pci_device), "%.12s", e->d_name);
	if (d)
		closedir(d);
	need(pci_device[0], "a PCI device");
}

int main(void)
{
	int fd;

	open_dev();
	find_pci_device();
	for (int i = 0; i < 2; i++) {
		test_seal(kinds[i].name, kinds[i].kind, kinds[i].len);
		test_pins(kinds[i].name, kinds[i].kind, kinds[i].len);
	}
	for (int i = 0; i < 3; i++) {
		test_revoke(kinds[i].name, kinds[i].kind, kinds[i].len);
		test_revoke_race(kinds[i].name, kinds[i].kind, kinds[i].len);
	}
	fd = create(SITS_KIND_PROTECTED, 0, PAGE);
	check_int(dma_map(fd, SITS_DMA_TO_DEVICE), -EPERM, "protected: a device that nobody allowed");
	check_int(allow(fd, "0000:ff:1f.7"), 0, "protected: allow another device");
	check_int(dma_map(fd, SITS_DMA_TO_DEVICE), -EPERM, "protected: still refused");
	check_int(facts(fd).refused_imports, 2, "protected: refusals are counted");
	check_int(allow(fd, pci_device), 0, "protected: allow the device");
	int m = dma_map(fd, SITS_DMA_TO_DEVICE);
	check(m >= 0, "protected: then it may");
	check_int(facts(fd).nr_importers, 1, "protected: and is counted");
	close(fd);
	check_int(info().nr_regions, 1, "the device's mapping holds the region");
	close(m);
	check(nothing_left(), "nothing is left");
	return done();
}
