// SPDX-License-Identifier: MIT
/*
 * region_dma_test.c - a real DMA engine on regions: QEMU's edu device behind the emulated IOMMU of Intel, driven from here
 * with the bus addresses of DMA_MAP. What the device may not do, it tries.
 *
 * Registers: QEMU's docs/specs/edu.rst. The device has 4096 bytes of its own at 0x40000, the last of which QEMU 7.2 counts as
 * beyond its end: so half of it is used.
 */
#include "region_common.h"

#define EDU_ID		0x00
#define EDU_DMA_SRC	0x80
#define EDU_DMA_DST	0x88
#define EDU_DMA_COUNT	0x90
#define EDU_DMA_CMD	0x98
#define EDU_DMA_RUN	1
#define EDU_DMA_TO_RAM	2
#define EDU_BUFFER	0x40000ull
#define EDU_BYTES	2048ul	/* of a page, the first */

static char edu[SITS_NAME_MAX];
static volatile char *bar;

static void find_edu(void)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e;
	char path[128];
	uint32_t id = 0;
	uint16_t command;
	int fd;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.12s/config", e->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (pread(fd, &id, 4, 0) == 4 && id == 0x11e81234) {
			snprintf(edu, sizeof(edu), "%.12s", e->d_name);
			snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/enable", edu);
			need(!write_text(path, "1"), "enable the device");
			/* Memory space and bus mastering, as a driver would. */
			need(pread(fd, &command, 2, 4) == 2, "read configuration");
			command |= 6;
			need(pwrite(fd, &command, 2, 4) == 2, "write configuration");
		}
		close(fd);
	}
	if (d)
		closedir(d);
	need(edu[0], "the edu device");
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource0", edu);
	fd = open(path, O_RDWR | O_CLOEXEC);
	bar = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(bar != MAP_FAILED, "map the device's registers");
	close(fd);
}

static void edu_dma(uint64_t src, uint64_t dst, uint64_t cmd)
{
	*(volatile uint64_t *)(bar + EDU_DMA_SRC) = src;
	*(volatile uint64_t *)(bar + EDU_DMA_DST) = dst;
	*(volatile uint64_t *)(bar + EDU_DMA_COUNT) = EDU_BYTES;
	*(volatile uint64_t *)(bar + EDU_DMA_CMD) = cmd | EDU_DMA_RUN;
	for (int tries = 0; tries < 3000 && *(volatile uint64_t *)(bar + EDU_DMA_CMD) & EDU_DMA_RUN; tries++)
		usleep(10000);
	need(!(*(volatile uint64_t *)(bar + EDU_DMA_CMD) & EDU_DMA_RUN), "DMA of the device");
}

static void edu_read(uint64_t bus)
{
	edu_dma(bus, EDU_BUFFER, 0);
}

static void edu_write(uint64_t bus)
{
	edu_dma(EDU_BUFFER, bus, EDU_DMA_TO_RAM);
}

static struct sits_dma_seg segs[4096];
static uint32_t nr_segs;

static int dma_map(int fd, unsigned int flags)
{
	struct sits_dma_map arg = {
		.size = sizeof(arg), .flags = flags, .fd = fd, .segs = (uintptr_t)segs, .nr_segs = 4096,
	};
	int ret;

	memcpy(arg.device, edu, sizeof(arg.device));
	ret = xioctl(dev, SITS_IOC_DMA_MAP, &arg);
	nr_segs = arg.nr_segs;
	return ret ? ret : arg.fd_map;
}

/* The bus address of an offset. */
static uint64_t bus_of(unsigned long off)
{
	for (uint32_t i = 0; i < nr_segs; i++) {
		if (off < segs[i].len_bytes)
			return segs[i].bus_addr + off;
		off -= segs[i].len_bytes;
	}
	need(false, "offset %lu in the segments", off);
	return 0;
}

static void fill(char *p, unsigned int seed)
{
	for (unsigned long i = 0; i < EDU_BYTES; i++)
		p[i] = (char)((i * 31 + seed) ^ (i >> 8));
}

static bool has(const volatile char *p, unsigned int seed)
{
	for (unsigned long i = 0; i < EDU_BYTES; i++)
		if (p[i] != (char)((i * 31 + seed) ^ (i >> 8)))
			return false;
	return true;
}

static bool is_zero(const volatile char *p)
{
	for (unsigned long i = 0; i < EDU_BYTES; i++)
		if (p[i])
			return false;
	return true;
}

static void test_both_ways(const char *name, unsigned int kind, unsigned long len)
{
	int fd = create(kind, 0, len), m = dma_map(fd, SITS_DMA_TO_DEVICE | SITS_DMA_FROM_DEVICE);
	char *p = map(fd, len, PROT_READ | PROT_WRITE);
	unsigned long last = len - PAGE;
	uint64_t old = bus_of(last);

	check(m >= 0, "%s: mapped for the device", name);
	fill(p, 1);
	edu_read(bus_of(0));
	edu_write(bus_of(last));
	check(has(p + last, 1), "%s: the device copies the first page to the last", name);
	check(is_zero(p + PAGE), "%s: and nothing else", name);
	fill(p, 2);
	edu_read(bus_of(0));
	close(m);
	edu_write(old);
	check(has(p + last, 1), "%s: unmapped, the device can't write there any more", name);

	m = dma_map(fd, SITS_DMA_TO_DEVICE);
	edu_read(bus_of(0));
	edu_write(bus_of(last));
	check(has(p + last, 1), "%s: mapped to read, the device can't write", name);
	close(m);
	m = dma_map(fd, SITS_DMA_FROM_DEVICE);
	edu_write(bus_of(last));
	check(has(p + last, 2), "%s: mapped to write, it can, and what it had read is right", name);
	close(m);
	munmap(p, len);

	check_int(seal(fd, 0), 0, "%s: sealed", name);
	p = map(fd, len, PROT_READ);
	m = dma_map(fd, SITS_DMA_TO_DEVICE);
	edu_read(bus_of(0));
	edu_write(bus_of(PAGE));
	check(is_zero(p + PAGE), "%s: sealed, the device can't write", name);
	munmap(p, len);
	close(m);
	close(fd);
	check(nothing_left(), "%s: nothing is left", name);
}

/* Plaintext comes into a protected region by a device, and is seen by those that may. */
static void test_protected(void)
{
	int src = create(SITS_KIND_PINNED, 0, PAGE), fd = create(SITS_KIND_PROTECTED, 0, HUGE + PAGE), m, m2;
	char *p = map(src, PAGE, PROT_READ | PROT_WRITE), *q = map(fd, HUGE + PAGE, PROT_READ);

	fill(p, 3);
	m = dma_map(src, SITS_DMA_TO_DEVICE);
	edu_read(bus_of(0));
	check_int(dma_map(fd, SITS_DMA_FROM_DEVICE), -EPERM, "protected: the device is not allowed");
	check_int(allow(fd, edu), 0, "protected: allow it");
	m2 = dma_map(fd, SITS_DMA_FROM_DEVICE);
	check(m2 >= 0, "protected: then it is mapped");
	edu_write(bus_of(HUGE));
	check(has(q + HUGE, 3), "protected: the device writes, the owner reads");
	check(is_zero(q) && is_zero(q + HUGE - PAGE), "protected: and nothing else changed");
	check_int(seal(fd, SITS_SEAL_REVOKE), -EBUSY, "protected: the device can write, so revoked alone");
	close(m);
	close(m2);
	check_int(seal(fd, SITS_SEAL_REVOKE), 0, "protected: revoked and sealed");
	munmap(p, PAGE);
	munmap(q, HUGE + PAGE);
	close(src);
	close(fd);
	check(nothing_left(), "protected: nothing is left");
}

/* Memory of this process, by the device, until the descriptor is closed by all. */
static void test_user(void)
{
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd, m, other;
	uint64_t old;

	fill(p, 4);
	fd = import(SITS_IMPORT_USER, -1, p, 2 * PAGE);
	m = dma_map(fd, SITS_DMA_TO_DEVICE | SITS_DMA_FROM_DEVICE);
	close(fd);
	old = bus_of(PAGE);
	edu_read(bus_of(0));
	edu_write(old);
	check(has(p + PAGE, 4), "own memory: the device copies a page");
	other = dup(m);
	close(m);
	fill(p, 5);
	edu_read(bus_of(0));
	edu_write(old);
	check(has(p + PAGE, 5), "own memory: mapped while one descriptor is left");
	close(other);
	fill(p + PAGE, 6);
	edu_write(old);
	check(has(p + PAGE, 6), "own memory: not any more");
	munmap(p, 2 * PAGE);
	check(nothing_left(), "own memory: nothing is left");
}

int main(void)
{
	open_dev();
	find_edu();
	check((*(volatile uint32_t *)(bar + EDU_ID) & 0xffff) == 0x00ed, "the device answers");
	test_both_ways("pinned", SITS_KIND_PINNED, 4 * PAGE);
	test_both_ways("huge", SITS_KIND_HUGE, 2 * HUGE);
	test_protected();
	test_user();
	return done();
}
