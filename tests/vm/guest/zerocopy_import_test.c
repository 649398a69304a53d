// SPDX-License-Identifier: MIT
/*
 * zerocopy_import_test.c - regions in a driver that imports them, sits_test_import.ko: DMA by edu behind the IOMMU in both
 * directions, several importers of one region, kernel mappings, CPU access, rights, and how long each holds what.
 */
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "import_common.h"

#define STAT(name) "/sys/class/misc/sits/" #name

static void test_both_ways(const char *name, unsigned int kind, unsigned long len, unsigned int how)
{
	struct sits_test_import m = { .dir = SITS_TEST_BIDIRECTIONAL };
	int fd = create(kind, 0, len), imp = importer();
	char *p = map(fd, len, PROT_READ | PROT_WRITE);
	unsigned long last = len - PAGE;

	check_int(imp_attach(imp, fd, EDU | how), 0, "%s: attached", name);
	check_int(facts(fd).nr_importers, 1, "%s: an importer", name);
	check_int(xioctl(imp, SITS_TEST_MAP, &m), 0, "%s: mapped", name);
	printf("# %u bus addresses, the longest of %u bytes\n", m.nents, m.max_len);
	cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE);
	fill(p, 1);
	check_int(cpu_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE), 0, "%s: written by the CPU", name);
	check_int(imp_edu(imp, SITS_TEST_EDU_READ, 0), 0, "%s: the device reads", name);
	check_int(imp_edu(imp, SITS_TEST_EDU_WRITE, last), 0, "%s: the device writes", name);
	check_int(cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ), 0, "%s: read by the CPU", name);
	check(has(p + last, 1), "%s: the last page is what the first was", name);
	check(is_zero(p + PIECE, last - PIECE), "%s: nothing else changed", name);
	cpu_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
	if (!how)
		check_int(imp_map(imp, SITS_TEST_TO_DEVICE), -EBUSY, "%s: mapped a second time", name);
	munmap(p, len);
	check_int(seal(fd, 0), -EBUSY, "%s: the device can write, so no seal", name);
	check_int(imp_do(imp, SITS_TEST_DETACH), 0, "%s: detached", name);
	check_int(seal(fd, 0), 0, "%s: then sealed", name);
	check_int(facts(fd).nr_importers, 0, "%s: no importer", name);

	p = map(fd, len, PROT_READ);
	check_int(imp_attach(imp, fd, EDU | how), 0, "%s, sealed: attached", name);
	if (!how)
		check_int(imp_map(imp, SITS_TEST_FROM_DEVICE), -EACCES, "%s, sealed: mapped for the device to write", name);
	check_int(imp_map(imp, SITS_TEST_BIDIRECTIONAL), 0, "%s, sealed: mapped for both directions", name);
	imp_edu(imp, SITS_TEST_EDU_READ, last);
	imp_edu(imp, SITS_TEST_EDU_WRITE, PAGE);
	check(is_zero(p + PAGE, PIECE), "%s, sealed: the device can't write", name);
	munmap(p, len);
	close(imp);
	close(fd);
	check(nothing_left(), "%s: nothing is left", name);
}

/* Two devices and the CPU have the same memory; each direction is on record apart. */
static void test_two(void)
{
	int fd = create(SITS_KIND_PINNED, 0, 3 * PAGE), a = importer(), b = importer();
	char *p = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE), buf[PIECE];

	check_int(imp_attach(a, fd, EDU), 0, "two: edu attached");
	check_int(imp_attach(b, fd, 0), 0, "two: the other attached");
	check_int(facts(fd).nr_importers, 2, "two: both counted");
	check_int(imp_map(a, SITS_TEST_BIDIRECTIONAL), 0, "two: edu mapped, to read and write");
	check_int(imp_map(b, SITS_TEST_TO_DEVICE), 0, "two: the other mapped, to read");
	fill(p, 2);
	imp_edu(a, SITS_TEST_EDU_READ, 0);
	imp_edu(a, SITS_TEST_EDU_WRITE, PAGE);
	check_int(imp_dir(b, SITS_TEST_BEGIN, SITS_TEST_FROM_DEVICE), 0, "two: CPU access by a driver begins");
	check_int(imp_copy(b, SITS_TEST_PREAD, PAGE, buf), 0, "two: a driver reads the pages");
	check(has(buf, 2), "two: it sees what edu wrote");
	check_int(imp_dir(b, SITS_TEST_END, SITS_TEST_FROM_DEVICE), 0, "two: CPU access by a driver ends");
	munmap(p, 3 * PAGE);
	imp_do(a, SITS_TEST_UNMAP);
	check_int(seal(fd, 0), 0, "two: sealed, as the one left reads only");
	check_int(imp_dir(b, SITS_TEST_BEGIN, SITS_TEST_TO_DEVICE), -EACCES, "two: CPU access to write, sealed");
	check_int(imp_map(a, SITS_TEST_FROM_DEVICE), -EACCES, "two: edu can't come back to write");
	check_int(imp_map(a, SITS_TEST_TO_DEVICE), 0, "two: it can to read");
	close(a);
	check_int(facts(fd).nr_importers, 1, "two: one is left");
	check_int(imp_copy(b, SITS_TEST_PREAD, 0, buf), 0, "two: the other has its mapping still");
	check(has(buf, 2), "two: and the contents");
	close(fd);
	check_int(info().nr_regions, 1, "two: an importer alone holds the region");
	close(b);
	check(nothing_left(), "two: nothing is left");
}

static void test_vmap(void)
{
	int fd = create(SITS_KIND_HUGE, 0, HUGE + 1), a = importer(), b = importer();
	char *p = map(fd, 2 * HUGE, PROT_READ | PROT_WRITE), buf[PIECE];

	imp_attach(a, fd, 0);
	imp_attach(b, fd, EDU);
	check_int(imp_do(a, SITS_TEST_VMAP), 0, "vmap: one");
	check_int(imp_do(b, SITS_TEST_VMAP), 0, "vmap: two");
	fill(buf, 3);
	check_int(imp_copy(a, SITS_TEST_VWRITE, HUGE - PAGE, buf), 0, "vmap: the kernel writes");
	check(has(p + HUGE - PAGE, 3), "vmap: the process sees it");
	fill(p + 2 * HUGE - PAGE, 4);
	check_int(imp_copy(b, SITS_TEST_VREAD, 2 * HUGE - PAGE, buf), 0, "vmap: the kernel reads the last page");
	check(has(buf, 4), "vmap: it sees what the process wrote");
	check_int(imp_do(a, SITS_TEST_VUNMAP), 0, "vmap: one ends");
	check_int(imp_copy(b, SITS_TEST_VREAD, HUGE - PAGE, buf), 0, "vmap: the other stays");
	check(has(buf, 3), "vmap: with its contents");
	munmap(p, 2 * HUGE);
	check_int(seal(fd, 0), -EBUSY, "vmap: the kernel could write, so no seal");
	imp_do(b, SITS_TEST_VUNMAP);
	check_int(seal(fd, 0), 0, "vmap: then sealed");
	check_int(imp_do(a, SITS_TEST_VMAP), 0, "vmap: sealed, to read");
	check_int(imp_copy(a, SITS_TEST_VREAD, HUGE - PAGE, buf), 0, "vmap: sealed, the kernel reads");
	check(has(buf, 3), "vmap: sealed, the contents");
	imp_do(a, SITS_TEST_VUNMAP);
	close(a);
	close(b);
	close(fd);
	check(nothing_left(), "vmap: nothing is left");
}

static void test_protected(void)
{
	long before = read_number(STAT(imports_refused));
	int fd = create(SITS_KIND_PROTECTED, 0, HUGE + PAGE), src = create(SITS_KIND_PINNED, 0, PAGE);
	int a = importer(), b = importer(), c = importer();
	char *p = map(fd, HUGE + PAGE, PROT_READ), *s = map(src, PAGE, PROT_READ | PROT_WRITE), buf[PIECE];

	check_int(imp_attach(a, fd, EDU), -EPERM, "protected: edu is not allowed");
	check_int(imp_attach(b, fd, 0), -EPERM, "protected: nor the other");
	check_int(imp_attach(a, fd, EDU | SITS_TEST_ATTACH_DYNAMIC), -EPERM, "protected: nor a dynamic importer");
	check_int(allow(fd, edu), 0, "protected: allow edu");
	check_int(imp_attach(b, fd, 0), -EPERM, "protected: the other is still not");
	check_int(facts(fd).refused_imports, 4, "protected: each refusal is counted");
	check_int(read_number(STAT(imports_refused)), before + 4, "protected: each is counted in sysfs");
	check_int(facts(fd).nr_importers, 0, "protected: none is attached");

	imp_attach(c, src, EDU);
	imp_map(c, SITS_TEST_TO_DEVICE);
	fill(s, 5);
	imp_edu(c, SITS_TEST_EDU_READ, 0);
	check_int(imp_attach(a, fd, EDU), 0, "protected: edu is attached");
	check_int(imp_map(a, SITS_TEST_FROM_DEVICE), 0, "protected: and mapped");
	check_int(imp_edu(a, SITS_TEST_EDU_WRITE, HUGE), 0, "protected: the device writes");
	check(has(p + HUGE, 5) && is_zero(p, HUGE), "protected: there and nowhere else");
	check_int(imp_do(a, SITS_TEST_VMAP), -EINVAL, "protected: no driver gets a kernel mapping");
	check_int(imp_dir(a, SITS_TEST_BEGIN, SITS_TEST_BIDIRECTIONAL), -EACCES, "protected: no CPU access to write");
	check_int(imp_do(a, SITS_TEST_UNMAP), 0, "protected: unmapped");

	/* Revoked with a device attached: CPU mappings are gone, nobody new comes, the device that has it keeps it. */
	check_int(imp_map(a, SITS_TEST_TO_DEVICE), 0, "protected: mapped to read");
	check_int(seal(fd, SITS_SEAL_REVOKE), 0, "protected: revoked and sealed beside a device that reads");
	check_int(imp_attach(b, fd, EDU), -EPERM, "protected: revoked, no second importer");
	check_int(allow(fd, "*"), -EPERM, "protected: revoked, nobody new is allowed");
	check_int(err_of(map(fd, PAGE, PROT_READ)), -EPERM, "protected: revoked, no new mapping");
	check_int(imp_edu(a, SITS_TEST_EDU_READ, HUGE), 0, "protected: revoked, the device reads");
	imp_do(c, SITS_TEST_UNMAP);
	imp_map(c, SITS_TEST_FROM_DEVICE);
	memset(s, 0, PAGE);
	imp_edu(c, SITS_TEST_EDU_WRITE, 0);
	check(has(s, 5), "protected: revoked, what it reads is the contents");
	imp_do(a, SITS_TEST_UNMAP);
	check_int(imp_map(a, SITS_TEST_FROM_DEVICE), -EACCES, "protected: sealed, it can't write");
	check_int(imp_map(a, SITS_TEST_TO_DEVICE), 0, "protected: sealed, it can map to read again");
	imp_copy(a, SITS_TEST_PREAD, HUGE, buf);
	check(has(buf, 5), "protected: an importer that is allowed has the pages");
	munmap(p, HUGE + PAGE);
	munmap(s, PAGE);
	close(a);
	close(b);
	close(c);
	close(src);
	close(fd);
	check(nothing_left(), "protected: nothing is left");
}

static int attach_and_die(void *arg)
{
	int fd = create(SITS_KIND_PINNED, 0, 3 * PAGE), imp = importer();

	if (imp_attach(imp, fd, EDU) || imp_map(imp, SITS_TEST_BIDIRECTIONAL) || imp_do(imp, SITS_TEST_VMAP))
		return 1;
	raise(SIGKILL);
	return 2;
}

static int unload(void)
{
	return syscall(SYS_delete_module, "sits", O_NONBLOCK) ? -errno : 0;
}

/* Descriptor, mapping and device closed: the importer alone is left, and does DMA. */
static void test_outlives(void)
{
	int fd = create(SITS_KIND_HUGE, 0, HUGE), imp = importer(), tries, ret;
	char buf[PIECE];

	check_int(imp_attach(imp, fd, EDU), 0, "outlives: attached");
	check_int(imp_map(imp, SITS_TEST_BIDIRECTIONAL), 0, "outlives: mapped");
	char *p = map(fd, HUGE, PROT_READ | PROT_WRITE);
	fill(p, 6);
	munmap(p, HUGE);
	close(fd);
	check_int(info().nr_regions, 1, "outlives: the importer holds the region");
	check_int(info().region_used_bytes, HUGE, "outlives: and its memory is accounted for");
	close(dev);
	check_int(unload(), -EAGAIN, "outlives: the module can't go");
	check_int(imp_edu(imp, SITS_TEST_EDU_READ, 0), 0, "outlives: the device reads");
	check_int(imp_edu(imp, SITS_TEST_EDU_WRITE, HUGE - PAGE), 0, "outlives: the device writes");
	imp_copy(imp, SITS_TEST_PREAD, HUGE - PAGE, buf);
	check(has(buf, 6), "outlives: the contents");
	check_int(imp_do(imp, SITS_TEST_UNMAP), 0, "outlives: unmapped");
	check_int(unload(), -EAGAIN, "outlives: attached, and the module can't go");
	close(imp);
	for (tries = 0; tries < 3000 && (ret = unload()) == -EAGAIN; tries++)
		usleep(10000);
	check_int(ret, 0, "outlives: closed, and the module can go");
	check_int(system("modprobe sits"), 0, "load it again");
	open_dev();
}

/* Each thread's importer must see its own region, whatever the others make and free meanwhile. */
static void *attach_many(void *arg)
{
	unsigned int id = (uintptr_t)arg;
	long bad = 0;

	for (unsigned int round = 0; round < 60; round++) {
		unsigned long pages = 1 + (id * 7 + round) % 9;
		int fd = create(round % 4 ? SITS_KIND_PINNED : SITS_KIND_HUGE, 0, pages * PAGE), imp = importer();
		char *p = map(fd, pages * PAGE, PROT_READ | PROT_WRITE), buf[PIECE];
		unsigned int seed = id * 1000 + round;

		if (is_err(p)) {
			bad++;
			continue;
		}
		fill(p, seed);
		fill(p + (pages - 1) * PAGE, seed);
		bad += imp_attach(imp, fd, round % 2 ? SITS_TEST_ATTACH_DYNAMIC : EDU) != 0;
		bad += imp_map(imp, SITS_TEST_BIDIRECTIONAL) != 0;
		close(fd);
		bad += imp_copy(imp, SITS_TEST_PREAD, 0, buf) || !has(buf, seed);
		bad += imp_copy(imp, SITS_TEST_PREAD, (pages - 1) * PAGE, buf) || !has(buf, seed);
		fill(buf, seed + 1);
		bad += imp_do(imp, SITS_TEST_VMAP) || imp_copy(imp, SITS_TEST_VWRITE, 0, buf) || !has(p, seed + 1);
		if (round % 3)
			munmap(p, pages * PAGE);
		close(imp);
		if (round % 3 == 0)
			munmap(p, pages * PAGE);
	}
	return (void *)bad;
}

static void test_at_once(void)
{
	pthread_t t[4];
	void *bad;
	long sum = 0;

	for (uintptr_t i = 0; i < 4; i++)
		need(!pthread_create(&t[i], NULL, attach_many, (void *)i), "pthread_create");
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		sum += (long)bad;
	}
	check_int(sum, 0, "at once: 4 threads, 240 regions, each importer has its own");
	check(nothing_left(), "at once: nothing is left");
	check_int(read_number(STAT(importers)), 0, "at once: no importer is left");
}

/* One region, and everybody attaches, maps, syncs, seals and lets go at once. */
static void *attach_same(void *arg)
{
	int fd = (int)(uintptr_t)arg;

	for (int round = 0; round < 150; round++) {
		int imp = importer();

		imp_attach(imp, fd, round % 3 == 0 ? EDU : round % 3 == 1 ? 0 : SITS_TEST_ATTACH_DYNAMIC);
		imp_map(imp, round % 2 ? SITS_TEST_TO_DEVICE : SITS_TEST_BIDIRECTIONAL);
		cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW);
		if (round % 5 == 0)
			imp_do(imp, SITS_TEST_VMAP);
		if (round == 120)
			seal(fd, 0);
		cpu_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW);
		close(imp);
	}
	return NULL;
}

static void test_same(void)
{
	int fd = create(SITS_KIND_PINNED, 0, 5 * PAGE);
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		need(!pthread_create(&t[i], NULL, attach_same, (void *)(uintptr_t)fd), "pthread_create");
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	check_int(facts(fd).nr_importers, 0, "same region: all have let go");
	check_int(seal(fd, 0), 0, "same region: nobody counts as a writer any more");
	close(fd);
	check(nothing_left(), "same region: nothing is left");
}

/* ----------------------------------------------------------------- others' memory */

static int udmabuf_buffer(unsigned long len)
{
	int mem = memfd_create("udmabuf", MFD_ALLOW_SEALING | MFD_CLOEXEC), ret;
	struct udmabuf_create arg = { .memfd = mem, .flags = UDMABUF_FLAGS_CLOEXEC, .size = len };
	int u = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);

	need(mem >= 0 && !ftruncate(mem, len) && !fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK), "memfd");
	ret = ioctl(u, UDMABUF_CREATE, &arg);
	ret = ret < 0 ? -errno : ret;
	close(u);
	close(mem);
	return ret;
}

static int heap_buffer(unsigned long len)
{
	struct dma_heap_allocation_data arg = { .len = len, .fd_flags = O_RDWR | O_CLOEXEC };
	int h = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC);
	int ret = xioctl(h, DMA_HEAP_IOCTL_ALLOC, &arg);

	close(h);
	return ret ? ret : (int)arg.fd;
}

/* @fd: the region of it; @p: the memory, mapped by its owner. All are taken. */
static void test_imported(const char *name, int fd, char *p, unsigned long len, bool can_vmap)
{
	int imp = importer(), ours = create(SITS_KIND_PINNED, 0, PAGE), imp2 = importer(), ret;
	char *q = map(ours, PAGE, PROT_READ | PROT_WRITE), buf[PIECE];

	check(fd >= 0 && !is_err(p), "%s: imported", name);
	fill(p, 7);
	check_int(imp_attach(imp, fd, EDU), 0, "%s: edu attached to the region", name);
	check_int(imp_map(imp, SITS_TEST_BIDIRECTIONAL), 0, "%s: mapped", name);
	check_int(facts(fd).nr_importers, 1, "%s: counted", name);
	check_int(imp_edu(imp, SITS_TEST_EDU_READ, 0), 0, "%s: the device reads it", name);
	check_int(imp_edu(imp, SITS_TEST_EDU_WRITE, len - PAGE), 0, "%s: the device writes it", name);
	check_int(cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ), 0, "%s: CPU access", name);
	check(has(p + len - PAGE, 7), "%s: its owner sees that", name);
	cpu_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);

	/* From theirs to ours by the device, without a copy by a CPU. */
	imp_attach(imp2, ours, EDU);
	imp_map(imp2, SITS_TEST_FROM_DEVICE);
	imp_edu(imp, SITS_TEST_EDU_READ, len - PAGE);
	imp_edu(imp2, SITS_TEST_EDU_WRITE, 0);
	check(has(q, 7), "%s: from there into a region by the device", name);

	ret = imp_do(imp, SITS_TEST_VMAP);
	if (can_vmap) {
		check_int(ret, 0, "%s: kernel mapping", name);
		imp_copy(imp, SITS_TEST_VREAD, 0, buf);
		check(has(buf, 7), "%s: its contents", name);
	}
	munmap(p, len);
	close(fd);
	check_int(imp_edu(imp, SITS_TEST_EDU_READ, 0), 0, "%s: closed, and the device reads still", name);
	memset(q, 0, PAGE);
	imp_edu(imp2, SITS_TEST_EDU_WRITE, 0);
	check(has(q, 7), "%s: closed, with the contents", name);
	close(imp);
	close(imp2);
	munmap(q, PAGE);
	close(ours);
	check(nothing_left(), "%s: nothing is left", name);
}

static void test_foreign(const char *name, int foreign, unsigned long len)
{
	char *p = map(foreign, len, PROT_READ | PROT_WRITE);

	test_imported(name, import(SITS_IMPORT_DMABUF, foreign, NULL, 0), p, len, true);
	close(foreign);
}

static void test_user(void)
{
	char *p = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	test_imported("own memory", import(SITS_IMPORT_USER, -1, p, 5 * PAGE), p, 5 * PAGE, false);
}

int main(void)
{
	open_dev();
	find_edu();
	test_both_ways("pinned", SITS_KIND_PINNED, 5 * PAGE, 0);
	test_both_ways("huge", SITS_KIND_HUGE, 2 * HUGE, 0);
	test_both_ways("pinned, dynamic importer", SITS_KIND_PINNED, 5 * PAGE, SITS_TEST_ATTACH_DYNAMIC);
	test_two();
	test_vmap();
	test_protected();
	check_int(in_child(attach_and_die, NULL), 128 + SIGKILL, "killed while attached");
	check(nothing_left(), "killed while attached: nothing is left");
	test_outlives();
	test_at_once();
	test_same();
	if (!access("/dev/udmabuf", F_OK))
		test_foreign("udmabuf", udmabuf_buffer(8 * PAGE), 8 * PAGE);
	else
		skip("udmabuf", "this kernel has none");
	if (!access("/dev/dma_heap/system", F_OK))
		test_foreign("system heap", heap_buffer(8 * PAGE), 8 * PAGE);
	else
		skip("system heap", "this kernel has none");
	test_user();
	return done();
}
