// SPDX-License-Identifier: MIT
/*
 * zerocopy_bounce_test.c - regions whose DMA goes by bounce buffers, as all DMA does in a confidential guest: there it shows
 * whether CPU access is synced, since what the device wrote is somewhere else until then. And a bounce buffer is short.
 */
#include "import_common.h"

static bool bounced;

static void test_sync(const char *name, unsigned int kind, unsigned long len)
{
	struct sits_test_import m = { .dir = SITS_TEST_BIDIRECTIONAL };
	int fd = create(kind, 0, len), imp = importer();
	char *p = map(fd, len, PROT_READ | PROT_WRITE);
	unsigned long last = len - PAGE;

	check_int(imp_attach(imp, fd, EDU), 0, "%s: attached", name);
	if (!check_int(xioctl(imp, SITS_TEST_MAP, &m), 0, "%s: mapped", name))
		goto out;
	printf("# %u bus addresses, the longest of %u bytes\n", m.nents, m.max_len);
	check_int(cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE), 0, "%s: CPU access to write begins", name);
	fill(p, 1);
	if (bounced) {
		imp_edu(imp, SITS_TEST_EDU_READ, 0);
		imp_edu(imp, SITS_TEST_EDU_WRITE, last);
		cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
		check(is_zero(p + last, PIECE), "%s: not synced, the device sees what was there before", name);
		fill(p, 1);
	}
	check_int(cpu_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE), 0, "%s: CPU access to write ends", name);
	check_int(imp_edu(imp, SITS_TEST_EDU_READ, 0), 0, "%s: the device reads", name);
	check_int(imp_edu(imp, SITS_TEST_EDU_WRITE, last), 0, "%s: the device writes", name);
	if (bounced)
		check(is_zero(p + last, PIECE), "%s: not synced, the CPU sees what was there before", name);
	check_int(cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ), 0, "%s: CPU access to read begins", name);
	check(has(p + last, 1), "%s: the CPU sees what the device wrote", name);
	check_int(cpu_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ), 0, "%s: CPU access to read ends", name);
out:
	munmap(p, len);
	close(imp);
	close(fd);
	check(nothing_left(), "%s: nothing is left", name);
}

/* What one device wrote reaches another's bounce buffer when the CPU's access to both ends. */
static void test_two(void)
{
	int fd = create(SITS_KIND_PINNED, 0, 2 * PAGE), src = create(SITS_KIND_PINNED, 0, PAGE);
	int a = importer(), b = importer(), c = importer();
	char *p = map(fd, 2 * PAGE, PROT_READ), *s = map(src, PAGE, PROT_READ | PROT_WRITE);

	fill(s, 2);
	imp_attach(c, src, EDU);
	imp_map(c, SITS_TEST_BIDIRECTIONAL);
	imp_attach(a, fd, EDU);
	imp_attach(b, fd, EDU);
	check_int(imp_map(a, SITS_TEST_FROM_DEVICE), 0, "two: one mapped to write");
	check_int(imp_map(b, SITS_TEST_TO_DEVICE), 0, "two: one mapped to read");
	imp_edu(c, SITS_TEST_EDU_READ, 0);
	imp_edu(a, SITS_TEST_EDU_WRITE, PAGE);
	cpu_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
	check(has(p + PAGE, 2), "two: the CPU sees it");
	cpu_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
	imp_edu(b, SITS_TEST_EDU_READ, PAGE);
	imp_edu(c, SITS_TEST_EDU_WRITE, 0);
	imp_do(c, SITS_TEST_UNMAP);
	check(has(s, 2), "two: the other device read it");
	munmap(p, 2 * PAGE);
	munmap(s, PAGE);
	close(a);
	close(b);
	close(c);
	close(src);
	close(fd);
	check(nothing_left(), "two: nothing is left");
}

int main(void)
{
	bounced = read_number("/sys/kernel/debug/swiotlb/io_tlb_nslabs") > 0;
	check(bounced, "DMA goes by bounce buffers here");
	open_dev();
	find_edu();
	test_sync("pinned", SITS_KIND_PINNED, 5 * PAGE);
	test_sync("huge", SITS_KIND_HUGE, 2 * HUGE);
	test_two();
	return done();
}
