// SPDX-License-Identifier: MIT
/*
 * fault_region_test.c - each call that may fail on the ways of regions, imports, DMA mappings and importers does, one after another,
 * by sits_test_fail.ko; so does each in loading the module. Then a thousand rounds, which may not use up memory.
 */
#include <linux/dma-heap.h>
#include <sys/utsname.h>

#include "fault_common.h"
#include "import_common.h"

static int region = -1, imp = -1, foreign = -1, mapping = -1;
static char *user;
static struct sits_dma_seg segs[64];

static void close_it(int ret)
{
	if (ret >= 0)
		close(ret);
}

static void close_region(int ret)
{
	close(region);
	region = -1;
}

/* ------------------------------------------------------------------------ create */

static int create_small(void)
{
	return create(SITS_KIND_PINNED, 0, 40 * PAGE);
}

static int create_huge(void)
{
	return create(SITS_KIND_HUGE, 0, HUGE);
}

static int create_require_huge(void)
{
	return create(SITS_KIND_PROTECTED, SITS_CREATE_REQUIRE_HUGE, 2 * HUGE);
}

static int create_mixed(void)
{
	return create(SITS_KIND_PROTECTED, 0, HUGE + 3 * PAGE);
}

/* ------------------------------------------------------------------------ import */

static int import_user(void)
{
	return import(SITS_IMPORT_USER, -1, user, HUGE + 2 * PAGE);
}

static int import_foreign(void)
{
	return import(SITS_IMPORT_DMABUF, foreign, NULL, 0);
}

/* --------------------------------------------------------------------- other ioctls */

static void make_region(void)
{
	region = create(SITS_KIND_PINNED, 0, 5 * PAGE);
}

static void make_protected(void)
{
	region = create(SITS_KIND_PROTECTED, 0, 5 * PAGE);
}

static int call_allow(void)
{
	return allow(region, "0000:00:1f.7");
}

static int call_seal(void)
{
	return seal(region, SITS_SEAL_REVOKE);
}

static int call_region_info(void)
{
	struct sits_region_facts arg = { .size = sizeof(arg), .fd = region };

	return xioctl(dev, SITS_IOC_REGION_INFO, &arg);
}

static int call_get_info(void)
{
	struct sits_get_info arg = { .size = sizeof(arg) };

	return xioctl(dev, SITS_IOC_GET_INFO, &arg);
}

/* --------------------------------------------------------------------------- DMA */

static int dma_map(void)
{
	struct sits_dma_map arg = {
		.size = sizeof(arg), .flags = SITS_DMA_TO_DEVICE | SITS_DMA_FROM_DEVICE, .fd = region,
		.segs = (uintptr_t)segs, .nr_segs = 64,
	};
	int ret;

	memcpy(arg.device, edu, sizeof(arg.device));
	ret = xioctl(dev, SITS_IOC_DMA_MAP, &arg);
	return ret ? ret : arg.fd_map;
}

static void close_mapping_and_region(int ret)
{
	close_it(ret);
	close_region(ret);
}

static void make_imported(void)
{
	region = import(SITS_IMPORT_DMABUF, foreign, NULL, 0);
}

static void make_mapping(void)
{
	make_region();
	mapping = dma_map();
}

static int dma_unmap(void)
{
	struct sits_dma_unmap arg = { .size = sizeof(arg), .fd_map = mapping };

	return xioctl(dev, SITS_IOC_DMA_UNMAP, &arg);
}

static void close_both(int ret)
{
	close(mapping);
	close_region(ret);
}

/* ---------------------------------------------------------------------- importers */

static void make_importer(void)
{
	make_region();
	imp = importer();
}

static void make_importer_of_imported(void)
{
	make_imported();
	imp = importer();
}

static int attach(void)
{
	return imp_attach(imp, region, EDU);
}

static int attach_dynamic(void)
{
	return imp_attach(imp, region, EDU | SITS_TEST_ATTACH_DYNAMIC);
}

static void make_attached(void)
{
	make_importer();
	attach();
}

static int map_it(void)
{
	return imp_map(imp, SITS_TEST_BIDIRECTIONAL);
}

static void close_importer(int ret)
{
	close(imp);
	close_region(ret);
}

static char *mapped;

static int map_cpu(void)
{
	mapped = map(region, 5 * PAGE, PROT_READ | PROT_WRITE);
	return err_of(mapped);
}

static void unmap_cpu(int ret)
{
	if (ret >= 0)
		munmap(mapped, 5 * PAGE);
	close_region(ret);
}

static const struct operation ops[] = {
	{ .name = "REGION_CREATE, small pages", .call = create_small, .undo = close_it },
	{ .name = "REGION_CREATE, huge or small", .call = create_huge, .undo = close_it, .survives = true },
	{ .name = "REGION_CREATE, huge pages alone", .call = create_require_huge, .undo = close_it },
	{ .name = "REGION_CREATE, mixed", .call = create_mixed, .undo = close_it, .survives = true },
	{ .name = "REGION_IMPORT of the caller's memory", .call = import_user, .undo = close_it },
	{ .name = "DEVICE_ALLOW", .prepare = make_protected, .call = call_allow, .undo = close_region },
	{ .name = "DMA_MAP", .prepare = make_region, .call = dma_map, .undo = close_mapping_and_region },
	{ .name = "attach", .prepare = make_importer, .call = attach, .undo = close_importer },
	{ .name = "attach, dynamic importer", .prepare = make_importer, .call = attach_dynamic, .undo = close_importer },
};

/* In these, only what the module calls itself can fail: the copies from and to the caller, the mapping. */
static const struct operation calling_ops[] = {
	{ .name = "map for a device", .prepare = make_attached, .call = map_it, .undo = close_importer },
	{ .name = "REGION_INFO", .prepare = make_region, .call = call_region_info, .undo = close_region },
	{ .name = "GET_INFO", .call = call_get_info },
	{ .name = "REGION_SEAL", .prepare = make_region, .call = call_seal, .undo = close_region },
	{ .name = "DMA_UNMAP", .prepare = make_mapping, .call = dma_unmap, .undo = close_both },
};

static const struct operation foreign_ops[] = {
	{ .name = "REGION_IMPORT of a dma-buf", .call = import_foreign, .undo = close_it },
	{ .name = "DMA_MAP of an imported one", .prepare = make_imported, .call = dma_map, .undo = close_mapping_and_region },
	{ .name = "attach to an imported one", .prepare = make_importer_of_imported, .call = attach, .undo = close_importer },
};

static const struct operation mapping_op = {
	.name = "mmap", .prepare = make_region, .call = map_cpu, .undo = unmap_cpu,
};

static int heap_buffer(unsigned long len)
{
	struct dma_heap_allocation_data arg = { .len = len, .fd_flags = O_RDWR | O_CLOEXEC };
	int h = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC);
	int ret = h < 0 ? -errno : xioctl(h, DMA_HEAP_IOCTL_ALLOC, &arg);

	if (h >= 0)
		close(h);
	return ret ? ret : (int)arg.fd;
}

/* --------------------------------------------------------------------- the module */

/* Not by modprobe, which may try twice. */
static int load_sits(void)
{
	struct utsname u;
	char path[256];
	int fd, ret;

	uname(&u);
	snprintf(path, sizeof(path), "/lib/modules/%s/extra/sits.ko", u.release);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	need(fd >= 0, "open %s", path);
	ret = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
	close(fd);
	return ret;
}

static void test_loading(void)
{
	struct sits_test_fail f = { .injected = 1 };
	unsigned int nth, wrong = 0;
	int ret = -1;

	close(dev);
	check_int(unload_sits(), 0, "loading: the module goes");
	for (nth = 1; nth < 100; nth++) {
		fault_arm(SITS_TEST_FAIL_OURS, nth);
		ret = load_sits();
		f = fault_disarm();
		if (!f.injected)
			break;
		printf("# loading: %s failed with %d: got %d\n", f.name, f.error, ret);
		wrong += ret != f.error || !access("/sys/module/sits", F_OK) || !access(SITS_DEV_PATH, F_OK);
		if (!ret)
			unload_sits();
	}
	check(!f.injected && !ret, "loading: works when none of its %u calls fails", nth - 1);
	check(nth > 1, "loading: there was something to fail");
	check_int(wrong, 0, "loading: each failure fails it, as what it is, and nothing stays");
	open_dev();
}

/* ----------------------------------------------------------------- a thousand rounds */

static void one_round(unsigned int i)
{
	int fd = create(i % 3 ? SITS_KIND_PINNED : SITS_KIND_PROTECTED, 0, (1 + i % 7) * PAGE), a = importer(), m;
	char *p = map(fd, PAGE, PROT_READ);

	if (!is_err(p)) {
		(void)*(volatile char *)p;
		munmap(p, PAGE);
	}
	allow(fd, edu);
	imp_attach(a, fd, EDU);
	imp_map(a, i % 2 ? SITS_TEST_TO_DEVICE : SITS_TEST_BIDIRECTIONAL);
	region = fd;
	m = dma_map();
	close_it(m);
	close(a);
	seal(fd, i % 2 ? 0 : SITS_SEAL_REVOKE);
	close(fd);
	fd = import(SITS_IMPORT_USER, -1, user, 3 * PAGE);
	close_it(fd);
	/* And what fails at once, or late. */
	create(SITS_KIND_PINNED, 0, 1ul << 46);
	create(99, 0, PAGE);
	import(SITS_IMPORT_USER, -1, user + HUGE, HUGE);	/* ends beyond the mapping */
	import(SITS_IMPORT_DMABUF, 0, NULL, 0);
}

struct cache {
	char name[48];
	long active;
};

static int read_caches(struct cache *c, int max)
{
	FILE *f = fopen("/proc/slabinfo", "re");
	char line[512];
	int n = 0;

	while (f && n < max && fgets(line, sizeof(line), f))
		if (sscanf(line, "%47s %ld ", c[n].name, &c[n].active) == 2)
			n++;
	if (f)
		fclose(f);
	return n;
}

static long free_kb(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	long kb = -1;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "MemFree: %ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

/* Caches that hold more than before by half the number of rounds. */
static int grown(const struct cache *before, int nr, long by, bool tell)
{
	static struct cache now[512];
	int n = read_caches(now, 512), more = 0;

	for (int i = 0; i < n; i++)
		for (int k = 0; k < nr; k++)
			if (!strcmp(now[i].name, before[k].name) && now[i].active > before[k].active + by) {
				more++;
				if (tell)
					printf("# %s: from %ld to %ld objects\n", now[i].name, before[k].active, now[i].active);
			}
	return more;
}

static void test_rounds(void)
{
	static struct cache before[512];
	long kb, kb_after = 0;
	int nr, tries;

	for (unsigned int i = 0; i < 100; i++)
		one_round(i);
	check(nothing_left(), "rounds: nothing is left of 100");
	nr = read_caches(before, 512);
	kb = free_kb();
	check(nr > 50 && kb > 0, "rounds: the kernel's memory, counted");
	for (unsigned int i = 0; i < 1000; i++)
		one_round(i);
	check(nothing_left(), "rounds: nothing is left of 1000 more");
	/* What is freed by RCU takes a moment; caches keep some for each processor. */
	for (tries = 0; tries < 1500; tries++) {
		kb_after = free_kb();
		if (!grown(before, nr, 500, false) && kb - kb_after < 2000)
			break;
		usleep(20000);
	}
	printf("# free memory: %ld kB before, %ld kB after\n", kb, kb_after);
	check_int(grown(before, nr, 500, true), 0, "rounds: no cache of the kernel's has an object more for every other");
	check(kb - kb_after < 2000, "rounds: not half a page less for each");
}

int main(void)
{
	struct sits_test_fail f;

	open_dev();
	find_edu();
	fault_open();
	fault_arm(SITS_TEST_FAIL_OURS, 0);
	f = fault_disarm();
	printf("# %u functions can fail\n", f.points);
	check(f.points >= 25, "the kernel allows probes");
	user = mmap(NULL, HUGE + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(user, 1, HUGE + 2 * PAGE);

	for (unsigned int i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		fault_sweep_both(&ops[i]);
	for (unsigned int i = 0; i < sizeof(calling_ops) / sizeof(calling_ops[0]); i++)
		fault_sweep(&calling_ops[i], SITS_TEST_FAIL_OURS);
	fault_sweep(&mapping_op, SITS_TEST_FAIL_MEMORY);
	foreign = heap_buffer(4 * PAGE);
	if (foreign >= 0) {
		for (unsigned int i = 0; i < sizeof(foreign_ops) / sizeof(foreign_ops[0]); i++)
			fault_sweep_both(&foreign_ops[i]);
		close(foreign);
	} else {
		skip("imports of dma-bufs", "this kernel has no system heap");
	}
	check(nothing_left(), "nothing is left");
	test_loading();
	test_rounds();
	munmap(user, HUGE + 2 * PAGE);
	return done();
}
